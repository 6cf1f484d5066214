/* Edit a network's layers; edit_finish.c builds the result.
 *
 * Layers are removed, changed in place, or appended. Their order therefore remains topological.
 * `origin` records each layer's original index, which determines weights and changes. */
#include "common/model/edit.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/memory/alloc.h"
#include "common/base/text/spell.h"
#include "common/model/edit_state.h"
#include "common/model/graph/normalization.h"

/* layer text limit; layers in an error message */
enum { TEXT_BYTES = GP_LAYER_SETTINGS_BYTES + 2 * GP_NAME_MAX, LAST_SHOWN = 4 };

/* Kinds that can be a head, with the setting that determines the score count. */
static const struct head_kind {
    const char *kind, *setting;
} head_kinds[] = { { "fc", "outputs" }, { "conv2d", "channels" }, { "transconv2d", "channels" } };

/* ---- layers by name ---- */

/* Find a layer by name. GP_EINVAL: not found; the message suggests the nearest name. */
static gp_status layer_find(const gp_edit *edit, const char *name, uint32_t *index, gp_error *err)
{
    const gp_netspec *spec = edit->spec;
    const char *near = NULL;
    unsigned distance = 0;

    *index = gp_netspec_find(spec, name);
    if (*index < spec->layer_count)
        return GP_OK;
    for (uint32_t i = 0; i < spec->layer_count; i++)
        gp_spell_offer(name, spec->layers[i].name, &near, &distance);
    if (near != NULL)
        return gp_fail(err, GP_EINVAL, "network %s has no layer '%.64s'; did you mean '%s'?", spec->name,
                       name, near);
    return gp_fail(err, GP_EINVAL,
                   "network %s has no layer '%.64s'; list its %" PRIu32 " layers with gradpool model show",
                   spec->name, name, spec->layer_count);
}

/* Find an unused layer name: `stem`, or `stem` with the first free number. */
static void name_free(const gp_edit *edit, const char *stem, char name[GP_NAME_MAX])
{
    snprintf(name, GP_NAME_MAX, "%s", stem);
    for (unsigned i = 2; gp_netspec_find(edit->spec, name) < edit->spec->layer_count; i++)
        snprintf(name, GP_NAME_MAX, "%.*s_%u", GP_NAME_MAX - 12, stem, i);
}

static bool is_kind(const gp_layer *layer, const char *kind)
{
    return strcmp(layer->kind->name, kind) == 0;
}

/* ---- appending and removing single layers ---- */

static gp_status edit_append(gp_edit *edit, const char *name, const char *kind, const char *settings,
                             gp_error *err)
{
    gp_status status = gp_netspec_add(edit->spec, name, kind, settings, err);

    if (status == GP_OK)
        edit->origin[edit->spec->layer_count - 1] = EDIT_NEW;
    return status;
}

/* Remove a layer with a single input. Readers of the layer then read that input. */
static void edit_take_out(gp_edit *edit, uint32_t index)
{
    gp_netspec *spec = edit->spec;
    uint32_t input = spec->layers[index].inputs[0], behind = spec->layer_count - index - 1;

    memmove(&spec->layers[index], &spec->layers[index + 1], behind * sizeof(*spec->layers));
    memmove(&edit->origin[index], &edit->origin[index + 1], behind * sizeof(*edit->origin));
    spec->layer_count--;
    for (uint32_t i = index; i < spec->layer_count; i++)
        for (uint32_t k = 0; k < spec->layers[i].input_count; k++) {
            uint32_t *read = &spec->layers[i].inputs[k];

            if (*read == index)
                *read = input;
            else if (*read != GP_INPUT_LAYER && *read > index)
                (*read)--;
        }
    edit->frozen -= index < edit->frozen;
}

/* Append crossentropy unless the last layer is a loss. */
static gp_status edit_add_loss(gp_edit *edit, gp_error *err)
{
    const gp_netspec *spec = edit->spec;
    char name[GP_NAME_MAX];

    if (spec->layer_count == 0)
        return gp_fail(err, GP_EINVAL, "network %s has no layers", spec->name);
    if (spec->layers[spec->layer_count - 1].kind->flags & GP_KIND_LOSS)
        return GP_OK;
    name_free(edit, "loss", name);
    return edit_append(edit, name, "crossentropy", NULL, err);
}

/* Count the layers that read a layer. */
static uint32_t readers_count(const gp_netspec *spec, uint32_t layer)
{
    uint32_t count = 0;

    for (uint32_t i = layer + 1; i < spec->layer_count; i++)
        for (uint32_t k = 0; k < spec->layers[i].input_count; k++)
            count += spec->layers[i].inputs[k] == layer;
    return count;
}

/* Losses that include softmax: a softmax layer in front of them would apply it twice. */
static const char *const with_softmax[] = { "crossentropy", "pixelclassification", "dice" };

static bool has_softmax(const gp_layer *layer)
{
    for (size_t i = 0; i < sizeof(with_softmax) / sizeof(with_softmax[0]); i++)
        if (is_kind(layer, with_softmax[i]))
            return true;
    return false;
}

/* Remove each softmax layer that such a loss repeats. A softmax whose input already consists of
 * probabilities remains: the network's scores are then those probabilities. */
static void edit_fuse_softmax(gp_edit *edit)
{
    const gp_netspec *spec = edit->spec;

    for (uint32_t i = spec->layer_count; i-- > 0;) {
        uint32_t before = spec->layers[i].inputs[0];

        if (has_softmax(&spec->layers[i]) && before != GP_INPUT_LAYER &&
            is_kind(&spec->layers[before], "softmax") && readers_count(spec, before) == 1 &&
            !gp_netspec_gives_probabilities(spec, spec->layers[before].inputs[0]))
            edit_take_out(edit, before);
    }
}

gp_status gp_edit_end(gp_edit *edit, gp_error *err)
{
    gp_status status = edit_add_loss(edit, err);

    if (status == GP_OK)
        edit_fuse_softmax(edit);
    return status;
}

gp_status gp_edit_new(gp_edit **out, const gp_netspec *spec, const float *weights, gp_error *err)
{
    gp_edit *edit = gp_calloc(1, sizeof(*edit));

    if (edit == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for the edited network");
    edit->weights = weights;
    edit->given_count = spec->layer_count;
    for (uint32_t i = 0; i < GP_LAYERS_MAX; i++)
        edit->origin[i] = i;
    gp_status status = gp_netspec_copy(&edit->spec, spec, err);

    if (status == GP_OK)
        status = edit_add_loss(edit, err);
    /* Treat an added loss as original: the original graph contains it too. */
    if (status == GP_OK && edit->spec->layer_count > spec->layer_count)
        edit->origin[spec->layer_count] = spec->layer_count;
    if (status == GP_OK)
        status = gp_graph_new(&edit->before, edit->spec, err);
    if (status != GP_OK) {
        gp_edit_free(edit);
        return status;
    }
    edit_fuse_softmax(edit);
    *out = edit;
    return GP_OK;
}

void gp_edit_free(gp_edit *edit)
{
    if (edit == NULL)
        return;
    gp_graph_free(edit->before);
    gp_netspec_free(edit->spec);
    gp_free(edit);
}

/* ---- removing ---- */

/* Keep only the first `count` layers. */
static void edit_truncate(gp_edit *edit, uint32_t count)
{
    edit->spec->layer_count = count;
    if (edit->frozen > count)
        edit->frozen = count;
}

gp_status gp_edit_remove_last(gp_edit *edit, uint32_t count, gp_error *err)
{
    uint32_t have = edit->spec->layer_count;

    if (count >= have)
        return gp_fail(err, GP_EINVAL,
                       "cannot remove %" PRIu32 " layers: network %s has %" PRIu32
                       ", and at least one must remain",
                       count, edit->spec->name, have);
    edit_truncate(edit, have - count);
    return GP_OK;
}

gp_status gp_edit_remove_from(gp_edit *edit, const char *layer, gp_error *err)
{
    uint32_t index;
    gp_status status = layer_find(edit, layer, &index, err);

    if (status == GP_OK && index == 0)
        status = gp_fail(err, GP_EINVAL, "cannot remove %s: it is the first layer of network %s", layer,
                         edit->spec->name);
    if (status == GP_OK)
        edit_truncate(edit, index);
    return status;
}

/* ---- adding ---- */

/* A parsed layer text: "KIND[:VALUE],a=1,b=2,3,inputs=x+y" becomes settings "first=VALUE;a=1;b=2,3"
 * and an input list. */
typedef struct add_text {
    char *name, *kind; /* point into `words`; name NULL: not given */
    char settings[TEXT_BYTES];
    const char *inputs[GP_LAYER_INPUTS_MAX];
    size_t input_count;
    char words[TEXT_BYTES]; /* text copy that name, kind and inputs point into */
} add_text;

/* Parse the text for gp_edit_add(). */
static gp_status add_parse(add_text *add, const char *text, gp_error *err)
{
    char *rest = add->words, *head, *value, *equals;
    size_t used = 0;

    *add = (add_text){ 0 };
    /* Use half the buffer: the first setting's name may be added. */
    if (strlen(text) >= sizeof(add->words) / 2)
        return gp_fail(err, GP_ELIMIT, "the text of a layer has %zu bytes, at most %zu are supported",
                       strlen(text), sizeof(add->words) / 2 - 1);
    rest = strcpy(add->words, text);
    head = strsep(&rest, ",");
    value = strchr(head, ':');
    equals = strchr(head, '=');
    if (equals != NULL && (value == NULL || equals < value)) {
        *equals = '\0';
        add->name = head;
        head = equals + 1;
    }
    if (value != NULL)
        *value++ = '\0';
    add->kind = head;
    const gp_kind *kind = gp_kind_find(head);

    if (value != NULL && kind != NULL && strchr(value, '=') == NULL) {
        if (kind->settings_table[0].type == GP_PARAM_NONE)
            return gp_fail(err, GP_EINVAL, "%s has no settings; omit :%s", kind->name, value);
        used = (size_t)snprintf(add->settings, sizeof(add->settings), "%s=%s", kind->settings_table[0].name,
                                value);
        /* A word without '=' continues the list before it. */
    } else if (value != NULL) {
        used = (size_t)snprintf(add->settings, sizeof(add->settings), "%s", value);
    }
    for (char *word = strsep(&rest, ","); word != NULL; word = strsep(&rest, ",")) {
        if (strncmp(word, "inputs=", 7) != 0) {
            used += (size_t)snprintf(add->settings + used, sizeof(add->settings) - used, "%s%s",
                                     used == 0                   ? ""
                                     : strchr(word, '=') != NULL ? ";"
                                                                 : ",",
                                     word);
            continue;
        }
        for (char *names = word + 7, *name; (name = strsep(&names, "+")) != NULL;) {
            if (add->input_count == GP_LAYER_INPUTS_MAX)
                return gp_fail(err, GP_EINVAL, "more than %d inputs", GP_LAYER_INPUTS_MAX);
            add->inputs[add->input_count++] = name;
        }
    }
    return GP_OK;
}

gp_status gp_edit_add(gp_edit *edit, const char *text, gp_error *err)
{
    char name[GP_NAME_MAX];
    add_text add;
    gp_status status = add_parse(&add, text, err);

    if (status != GP_OK)
        return status;
    if (edit->spec->layer_count > 0 &&
        (edit->spec->layers[edit->spec->layer_count - 1].kind->flags & GP_KIND_LOSS))
        return gp_fail(err, GP_EINVAL,
                       "no layer can follow the loss %s; remove it first (it is added again automatically)",
                       edit->spec->layers[edit->spec->layer_count - 1].name);
    if (add.name == NULL)
        name_free(edit, add.kind, name);
    status = edit_append(edit, add.name != NULL ? add.name : name, add.kind, add.settings, err);
    if (status == GP_OK && add.input_count > 0) {
        status = gp_netspec_connect(edit->spec, add.inputs, add.input_count, err);
        if (status != GP_OK)
            edit->spec->layer_count--;
    }
    if (status != GP_OK)
        gp_error_prefix(err, "%.80s", text);
    return status;
}

/* ---- the head ---- */

static const struct head_kind *head_kind_of(const gp_layer *layer)
{
    for (size_t i = 0; i < sizeof(head_kinds) / sizeof(head_kinds[0]); i++)
        if (is_kind(layer, head_kinds[i].kind))
            return &head_kinds[i];
    return NULL;
}

/* Return an integer setting's address. NULL: the kind has no such setting. */
static int64_t *layer_number(gp_layer *layer, const char *setting)
{
    const gp_param *param = gp_params_find(layer->kind->settings_table, setting);

    return param == NULL || param->type != GP_PARAM_I64
               ? NULL
               : (int64_t *)(void *)(layer->settings + param->offset);
}

/* Return whether an original layer has weights. New layers count as having none. */
static bool has_weights(const gp_edit *edit, uint32_t layer)
{
    for (uint32_t p = 0; edit->origin[layer] != EDIT_NEW && p < edit->before->parameter_count; p++)
        if (edit->before->parameters[p].layer == edit->origin[layer])
            return true;
    return false;
}

/* Search from the loss backward for the layer that computes the scores. Return layer_count if there
 * is no unique head: several losses, branches, a grouped convolution, or other weights. */
static uint32_t head_find(const gp_edit *edit)
{
    const gp_netspec *spec = edit->spec;
    uint32_t losses = 0, at = spec->layer_count - 1;

    for (uint32_t i = 0; i < spec->layer_count; i++)
        losses += (spec->layers[i].kind->flags & GP_KIND_LOSS) != 0;
    if (losses > 1)
        return spec->layer_count;
    for (;;) {
        gp_layer *layer = &spec->layers[at];

        if (head_kind_of(layer) != NULL) {
            const int64_t *groups = layer_number(layer, "groups");

            return groups == NULL || *groups == 1 ? at : spec->layer_count;
        }
        if (layer->input_count != 1 || layer->inputs[0] == GP_INPUT_LAYER || has_weights(edit, at))
            return spec->layer_count;
        at = layer->inputs[0];
    }
}

gp_status gp_edit_set_head(gp_edit *edit, const gp_edit_head *head, gp_error *err)
{
    const gp_netspec *spec = edit->spec;
    char last[4 * (GP_NAME_MAX + 24)] = "";
    uint32_t at;
    size_t used = 0;
    gp_status status;

    if (head->classes < 2)
        return gp_fail(err, GP_EINVAL, "%" PRIu32 " class%s, but a classification needs at least 2",
                       head->classes, head->classes == 1 ? "" : "es");
    status = edit_add_loss(edit, err);
    if (status != GP_OK)
        return status;
    at = head_find(edit);
    if (at == edit->spec->layer_count) {
        uint32_t first = spec->layer_count > LAST_SHOWN ? spec->layer_count - LAST_SHOWN : 0;

        for (uint32_t i = first; i < spec->layer_count; i++)
            used += (size_t)snprintf(last + used, sizeof(last) - used, "%s%.24s (%s)", i == first ? "" : ", ",
                                     spec->layers[i].name, spec->layers[i].kind->name);
        return gp_fail(err, GP_EINVAL,
                       "no classifier found: network %.24s ends in %s, not in a single fc or convolution; "
                       "replace the end with gradpool model edit --remove-last N --add fc:CLASSES",
                       spec->name, last);
    }
    gp_layer *layer = &edit->spec->layers[at];

    *layer_number(layer, head_kind_of(layer)->setting) = head->classes;
    layer->factors.weight_learn_rate = head->weight_learn_rate;
    layer->factors.bias_learn_rate = head->bias_learn_rate;
    edit->origin[at] = EDIT_NEW;
    for (uint32_t i = at + 1; i < edit->spec->layer_count; i++) { /* class weights are of the old classes */
        const gp_param *weights = gp_params_find(edit->spec->layers[i].kind->settings_table, "class-weights");

        if (weights != NULL)
            gp_params_set(weights, edit->spec->layers[i].settings, "", NULL);
    }
    return GP_OK;
}

uint32_t gp_edit_classes(const gp_edit *edit)
{
    uint32_t at = head_find(edit);
    gp_layer *layer = &edit->spec->layers[at];

    return at == edit->spec->layer_count ? 0 : (uint32_t)*layer_number(layer, head_kind_of(layer)->setting);
}

/* ---- settings ---- */

/* Parse "0.5" or "0.5,1,2". Return the count; 0: not a list, or more than `most` numbers. */
static size_t numbers_parse(const char *text, double *numbers, size_t most)
{
    for (size_t count = 0; count < most; text++) {
        char *end;

        numbers[count++] = strtod(text, &end);
        if (end == text)
            return 0;
        text = end;
        if (*text == '\0')
            return count;
        if (*text != ',')
            return 0;
    }
    return 0;
}

/* Change the input's size, normalization, scale or offset. */
static gp_status input_set(gp_edit *edit, const char *setting, const char *value, gp_error *err)
{
    gp_netspec *spec = edit->spec;
    double given[GP_NORMALIZE_MAX], scale[GP_NORMALIZE_MAX], offset[GP_NORMALIZE_MAX];
    bool is_scale = strcmp(setting, "scale") == 0;
    gp_shape size = { 3, { 0 } };
    size_t count;
    char behind;

    if (strcmp(setting, "size") == 0) {
        if (sscanf(value, "%" SCNd64 "x%" SCNd64 "x%" SCNd64 "%c", &size.dim[0], &size.dim[1], &size.dim[2],
                   &behind) != 3 ||
            size.dim[0] < 1 || size.dim[1] < 1 || size.dim[2] < 1 || size.dim[0] > GP_CHANNELS_MAX ||
            size.dim[1] > GP_CHANNELS_MAX || size.dim[2] > GP_CHANNELS_MAX)
            return gp_fail(err, GP_EINVAL,
                           "input.size is '%.40s'; must be CHANNELSxHEIGHTxWIDTH, for example 3x32x32",
                           value);
        spec->input = size;
        return GP_OK;
    }
    if (strcmp(setting, "normalization") == 0)
        return gp_normalization_set(spec, value, err);
    if (!is_scale && strcmp(setting, "offset") != 0)
        return gp_fail(err, GP_EINVAL,
                       "the input has no setting '%.40s'; it has normalization, scale, offset and size",
                       setting);
    count = numbers_parse(value, given, GP_NORMALIZE_MAX);
    if (count == 0)
        return gp_fail(err, GP_EINVAL,
                       "input.%s is '%.60s'; must be a number, or one per channel separated by commas",
                       setting, value);
    if (count < spec->normalize_count)
        for (; count < spec->normalize_count; count++)
            given[count] = given[0];
    for (size_t i = 0; i < count; i++) {
        size_t k = i < spec->normalize_count ? i : 0;

        scale[i] = is_scale ? given[i] : spec->scale[k];
        offset[i] = is_scale ? spec->offset[k] : given[i];
    }
    return gp_netspec_normalize(spec, scale, offset, count, err);
}

gp_status gp_edit_set(gp_edit *edit, const char *text, gp_error *err)
{
    char layer[TEXT_BYTES], *setting, *value = NULL;
    uint32_t index;
    gp_status status;

    if (strlen(text) >= sizeof(layer))
        return gp_fail(err, GP_ELIMIT, "a setting has %zu bytes, at most %zu are supported", strlen(text),
                       sizeof(layer) - 1);
    strcpy(layer, text);
    value = strchr(layer, '=');
    if (value != NULL)
        *value = '\0';
    /* Layer names can contain dots, settings cannot. */
    setting = strrchr(layer, '.');
    if (value == NULL || setting == NULL)
        return gp_fail(err, GP_EINVAL, "'%.80s' must be LAYER.setting=value", text);
    *setting++ = '\0';
    *value++ = '\0';
    if (strcmp(layer, "input") == 0)
        return input_set(edit, setting, value, err);
    status = layer_find(edit, layer, &index, err);
    if (status == GP_OK)
        status = gp_layer_set(&edit->spec->layers[index], setting, value, err);
    return status;
}

gp_status gp_edit_freeze(gp_edit *edit, const char *layer, gp_error *err)
{
    uint32_t index;
    bool any = false;
    gp_status status = layer_find(edit, layer, &index, err);

    if (status != GP_OK)
        return status;
    for (uint32_t i = 0; i <= index; i++)
        any |= has_weights(edit, i) || edit->origin[i] == EDIT_NEW;
    if (!any)
        return gp_fail(err, GP_EINVAL, "nothing to freeze: no layer up to %s has weights", layer);
    edit->frozen = index + 1;
    return GP_OK;
}

void gp_edit_unfreeze(gp_edit *edit)
{
    edit->frozen = 0;
    for (uint32_t i = 0; i < edit->spec->layer_count; i++)
        edit->spec->layers[i].factors.weight_learn_rate = edit->spec->layers[i].factors.bias_learn_rate = 1.0;
}
