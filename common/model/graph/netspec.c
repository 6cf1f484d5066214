/* Implement netspec.h, except for JSON (netspec_json.c) and the zoo. */
#include "common/model/graph/netspec.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/base/memory/alloc.h"
#include "common/base/text/spell.h"

enum { DIMENSION_MAX = 1 << 24 };
#define SAMPLE_ELEMENTS_MAX ((int64_t)1 << 26)
#define INPUT_NAME          "input"

#define FACTOR(text, member, value, seed, what)                                                              \
    {                                                                                                        \
        .name = text, GP_PARAM_FIELD(gp_layer_factors, member), .fallback = value, .max = 1e6,               \
        .seed_name = seed, .help = what                                                                      \
    }

const gp_param gp_layer_factors_table[] = {
    FACTOR("weight-learn-rate-factor", weight_learn_rate, 1, "WeightLearnRateFactor",
           "factor of the learning rate for the weights; 0 freezes them"),
    FACTOR("bias-learn-rate-factor", bias_learn_rate, 1, "BiasLearnRateFactor",
           "factor of the learning rate for the biases; 0 freezes them"),
    FACTOR("weight-l2-factor", weight_l2, 1, "WeightL2Factor",
           "factor of the L2 regularization for the weights"),
    FACTOR("bias-l2-factor", bias_l2, 0, "BiasL2Factor", "factor of the L2 regularization for the biases"),
    { 0 },
};

/* Check a name: visible ASCII without characters that need quoting, because names appear in error
 * messages, file formats and tables. */
static gp_status name_check(const char *what, const char *name, gp_error *err)
{
    size_t bytes = strlen(name);

    if (bytes == 0 || bytes >= GP_NAME_MAX)
        return gp_fail(err, GP_EINVAL, "the name of the %s has %zu bytes; must have 1 to %d", what, bytes,
                       GP_NAME_MAX - 1);
    for (const char *c = name; *c != '\0'; c++)
        if (*c <= ' ' || *c > '~' || *c == '"' || *c == '\\')
            return gp_fail(err, GP_EINVAL,
                           "the name of the %s contains the byte 0x%02x; use letters, digits and . _ - /",
                           what, (unsigned char)*c);
    return GP_OK;
}

bool gp_netspec_takes(const gp_netspec *spec, const gp_shape *sample)
{
    return gp_shape_equal(sample, &spec->input) || (spec->input.dim[1] == 1 && spec->input.dim[2] == 1 &&
                                                    gp_shape_count(sample) == spec->input.dim[0]);
}

gp_status gp_netspec_new(gp_netspec **out, const char *name, const gp_shape *input, gp_error *err)
{
    gp_status status = name_check("network", name, err);

    if (status != GP_OK)
        return status;
    if (input->rank != 3)
        return gp_fail(err, GP_EINVAL,
                       "the input has %" PRIu32 " dimensions; must have 3: channels, height, width",
                       input->rank);
    for (int i = 0; i < 3; i++)
        if (input->dim[i] < 1 || input->dim[i] > DIMENSION_MAX)
            return gp_fail(err, GP_EINVAL,
                           "dimension %d of the input is %" PRId64 "; must be between 1 and %d", i + 1,
                           input->dim[i], DIMENSION_MAX);
    status = gp_shape_check(input, SAMPLE_ELEMENTS_MAX, err);
    if (status != GP_OK)
        return status;
    gp_netspec *spec = gp_calloc(1, sizeof(*spec));

    if (spec == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for a network");
    strcpy(spec->name, name);
    spec->input = *input;
    spec->normalize_count = 1;
    spec->scale[0] = 1.0;
    *out = spec;
    return GP_OK;
}

void gp_netspec_free(gp_netspec *spec)
{
    if (spec == NULL)
        return;
    gp_free(spec->layers);
    gp_free(spec);
}

gp_status gp_netspec_copy(gp_netspec **out, const gp_netspec *spec, gp_error *err)
{
    gp_netspec *copy = gp_calloc(1, sizeof(*copy));
    uint32_t capacity = 16;

    while (capacity < spec->layer_count) /* capacity must match gp_array_grow() */
        capacity *= 2;
    gp_layer *layers = gp_calloc(capacity, sizeof(*layers));

    if (copy == NULL || layers == NULL) {
        gp_free(copy);
        gp_free(layers);
        return gp_fail(err, GP_ENOMEM, "no memory for a network of %" PRIu32 " layers", spec->layer_count);
    }
    *copy = *spec;
    if (spec->layer_count > 0)
        memcpy(layers, spec->layers, spec->layer_count * sizeof(*layers));
    copy->layers = layers;
    *out = copy;
    return GP_OK;
}

gp_status gp_netspec_normalize(gp_netspec *spec, const double *scale, const double *offset, size_t count,
                               gp_error *err)
{
    if (count > GP_NORMALIZE_MAX || (count != 1 && (int64_t)count != spec->input.dim[0]))
        return gp_fail(err, GP_EINVAL,
                       "%zu values of scale and offset for %" PRId64
                       " channels; must be one, or one per channel (at most %d)",
                       count, spec->input.dim[0], GP_NORMALIZE_MAX);
    for (size_t i = 0; i < count; i++)
        if (!isfinite(scale[i]) || scale[i] == 0.0 || !isfinite(offset[i]))
            return gp_fail(
                err, GP_EINVAL,
                "invalid scale %g or offset %g of channel %zu: both must be finite, and the scale not 0",
                scale[i], offset[i], i + 1);
    spec->normalize_count = (uint32_t)count;
    spec->scale_unknown = false;
    for (size_t i = 0; i < count; i++) {
        spec->scale[i] = scale[i];
        spec->offset[i] = offset[i] + 0.0; /* -0 becomes 0: equal networks produce equal bytes */
    }
    return GP_OK;
}

uint32_t gp_netspec_before_reshapes(const gp_netspec *spec, uint32_t layer)
{
    while (layer != GP_INPUT_LAYER && (spec->layers[layer].kind->flags & GP_KIND_RESHAPES) != 0)
        layer = spec->layers[layer].inputs[0];
    return layer;
}

bool gp_netspec_gives_probabilities(const gp_netspec *spec, uint32_t layer)
{
    const uint32_t last = gp_netspec_before_reshapes(spec, layer);

    return last != GP_INPUT_LAYER &&
           (spec->layers[last].kind->flags & (GP_KIND_DISTRIBUTION | GP_KIND_PROBABILITIES)) != 0;
}

uint32_t gp_netspec_find(const gp_netspec *spec, const char *name)
{
    uint32_t i = 0;

    while (i < spec->layer_count && strcmp(spec->layers[i].name, name) != 0)
        i++;
    return i;
}

/* Fail with a message that suggests the nearest kind and lists the known ones. */
static gp_status kind_unknown(const char *name, gp_error *err)
{
    const char *near = NULL;
    unsigned distance = 0;
    char known[256] = "";

    for (const gp_kind *const *kind = gp_kinds; *kind != NULL; kind++) {
        size_t used = strlen(known);

        gp_spell_offer(name, (*kind)->name, &near, &distance);
        snprintf(known + used, sizeof(known) - used, "%s%s", used == 0 ? "" : ", ", (*kind)->name);
    }
    if (near != NULL)
        return gp_fail(err, GP_EINVAL, "unknown layer kind '%.64s'; did you mean '%s'? (available: %s)", name,
                       near, known);
    return gp_fail(err, GP_EINVAL, "unknown layer kind '%.64s'; available: %s", name, known);
}

/* Fail with a message that suggests the nearest setting or lists all. */
static gp_status setting_unknown(const gp_kind *kind, const char *name, gp_error *err)
{
    const gp_param *const tables[] = { kind->settings_table, gp_layer_factors_table };
    const char *near = NULL;
    unsigned distance = 0;
    char known[256] = "";

    for (int t = 0; t < 2; t++)
        for (const gp_param *param = tables[t]; param->type != GP_PARAM_NONE; param++)
            gp_spell_offer(name, param->name, &near, &distance);
    for (const gp_param *param = tables[0]; param->type != GP_PARAM_NONE; param++) {
        size_t used = strlen(known);

        snprintf(known + used, sizeof(known) - used, "%s%s", used == 0 ? "" : ", ", param->name);
    }
    if (near != NULL)
        return gp_fail(err, GP_EINVAL, "%s has no setting '%.64s'; did you mean '%s'?", kind->name, name,
                       near);
    return gp_fail(err, GP_EINVAL, "%s has no setting '%.64s'; it has: %s", kind->name, name,
                   known[0] == '\0' ? "none" : known);
}

/* Find a setting or factor by name.
 *   param   set to the table entry
 *   values  set to the struct that contains the value */
static gp_status setting_find(gp_layer *layer, const char *name, const gp_param **param, void **values,
                              gp_error *err)
{
    *param = gp_params_find(layer->kind->settings_table, name);
    *values = layer->settings;
    if (*param == NULL) {
        *param = gp_params_find(gp_layer_factors_table, name);
        *values = &layer->factors;
    }
    return *param == NULL ? setting_unknown(layer->kind, name, err) : GP_OK;
}

/* Append a layer with default settings that reads the previous layer. */
static gp_status netspec_append(gp_netspec *spec, const char *name, const char *kind_name, gp_error *err)
{
    const gp_kind *kind = gp_kind_find(kind_name);
    gp_status status = name_check("layer", name, err);

    if (status != GP_OK)
        return status;
    if (strcmp(name, INPUT_NAME) == 0 || gp_netspec_find(spec, name) != spec->layer_count)
        return gp_fail(err, GP_EINVAL, "the layer name '%s' is used twice; use another name", name);
    if (kind == NULL) {
        status = kind_unknown(kind_name, err);
        gp_error_prefix(err, "%s", name);
        return status;
    }
    if (spec->layer_count >= GP_LAYERS_MAX)
        return gp_fail(err, GP_ELIMIT, "a network can have at most %d layers", GP_LAYERS_MAX);
    gp_layer *layers = gp_array_grow(spec->layers, spec->layer_count, sizeof(*layers));

    if (layers == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for a network of %" PRIu32 " layers",
                       spec->layer_count + 1);
    spec->layers = layers;
    gp_layer *layer = &spec->layers[spec->layer_count];

    *layer = (gp_layer){ .kind = kind, .input_count = 1, .inputs = { spec->layer_count - 1 } };
    strcpy(layer->name, name);
    gp_params_default(gp_layer_factors_table, &layer->factors);
    gp_params_default(kind->settings_table, layer->settings);
    spec->layer_count++;
    return GP_OK;
}

gp_status gp_layer_set(gp_layer *layer, const char *name, const char *value, gp_error *err)
{
    const gp_param *param;
    void *values;
    gp_status status = setting_find(layer, name, &param, &values, err);

    return status == GP_OK ? gp_params_set(param, values, value, err) : status;
}

/* Parse and apply "name=value", a text with `bytes` bytes and no NUL. */
static gp_status layer_set_text(gp_layer *layer, const char *text, size_t bytes, gp_error *err)
{
    char setting[512], *value;

    if (bytes >= sizeof(setting))
        return gp_fail(err, GP_ELIMIT, "a setting has %zu bytes, at most %zu are supported", bytes,
                       sizeof(setting) - 1);
    memcpy(setting, text, bytes);
    setting[bytes] = '\0';
    value = strchr(setting, '=');
    if (value == NULL)
        return gp_fail(err, GP_EINVAL, "'%s' must be setting=value", setting);
    *value++ = '\0';
    return gp_layer_set(layer, setting, value, err);
}

gp_status gp_layer_set_json(gp_layer *layer, const char *name, const gp_json *value, gp_error *err)
{
    const gp_param *param;
    void *values;
    gp_status status = setting_find(layer, name, &param, &values, err);

    return status == GP_OK ? gp_params_set_json(param, values, value, err) : status;
}

gp_status gp_netspec_add(gp_netspec *spec, const char *name, const char *kind, const char *settings,
                         gp_error *err)
{
    gp_status status = netspec_append(spec, name, kind, err);

    for (const char *at = settings; status == GP_OK && at != NULL && *at != '\0';) {
        size_t bytes = strcspn(at, ";");

        status = layer_set_text(&spec->layers[spec->layer_count - 1], at, bytes, err);
        if (status != GP_OK) {
            gp_error_prefix(err, "%s (%s)", name, kind);
            /* Undo the append. */
            spec->layer_count--;
        }
        at += bytes + (at[bytes] == ';');
    }
    return status;
}

/* Fail with a message that suggests the nearest earlier layer. */
static gp_status input_unknown(const gp_netspec *spec, const char *name, gp_error *err)
{
    const char *near = NULL;
    unsigned distance = 0;

    gp_spell_offer(name, INPUT_NAME, &near, &distance);
    for (uint32_t i = 0; i + 1 < spec->layer_count; i++)
        gp_spell_offer(name, spec->layers[i].name, &near, &distance);
    if (near != NULL)
        return gp_fail(err, GP_EINVAL, "no earlier layer has the name '%.64s'; did you mean '%s'?", name,
                       near);
    return gp_fail(
        err, GP_EINVAL,
        "no earlier layer has the name '%.64s'; a layer can read only earlier layers, and \"input\"", name);
}

gp_status gp_netspec_connect(gp_netspec *spec, const char *const *inputs, size_t count, gp_error *err)
{
    gp_layer *layer = &spec->layers[spec->layer_count - 1];
    uint32_t found[GP_LAYER_INPUTS_MAX];
    gp_status status = GP_OK;

    if (count == 0 || count > GP_LAYER_INPUTS_MAX)
        status = gp_fail(err, GP_EINVAL, "%zu inputs; a layer must have 1 to %d", count, GP_LAYER_INPUTS_MAX);
    for (size_t i = 0; i < count && status == GP_OK; i++) {
        found[i] = strcmp(inputs[i], INPUT_NAME) == 0 ? GP_INPUT_LAYER : gp_netspec_find(spec, inputs[i]);
        if (found[i] != GP_INPUT_LAYER && found[i] + 1 >= spec->layer_count)
            status = input_unknown(spec, inputs[i], err);
    }
    if (status != GP_OK) {
        gp_error_prefix(err, "%s (%s)", layer->name, layer->kind->name);
        return status;
    }
    layer->input_count = (uint32_t)count;
    memcpy(layer->inputs, found, count * sizeof(found[0]));
    return GP_OK;
}
