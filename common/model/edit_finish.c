/* Build an edit's result: a new graph, weights, and the change list. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/base/memory/alloc.h"
#include "common/model/edit_state.h"
#include "common/model/graph/normalization.h"

const char *gp_edit_action_name(gp_edit_action action)
{
    static const char *const names[] = { "removed", "added", "changed", "initialized", "frozen" };

    return names[action];
}

void gp_edited_deinit(gp_edited *edited)
{
    gp_graph_free(edited->graph);
    gp_netspec_free(edited->spec);
    gp_free(edited->weights);
    gp_free(edited->changes);
    *edited = (gp_edited){ 0 };
}

/* ---- factors ---- */

/* Set learn-rate factors to 0 in all frozen layers. Only layers with weights may have factors, so
 * this needs the graph. GP_EINVAL: no layer would learn. */
static gp_status finish_freeze(gp_edit *edit, gp_error *err)
{
    gp_graph *graph;
    bool learns = false;
    gp_status status;

    if (edit->frozen == 0)
        return GP_OK;
    status = gp_graph_new(&graph, edit->spec, err);
    if (status != GP_OK)
        return status;
    for (uint32_t p = 0; p < graph->parameter_count; p++) {
        const gp_parameter *parameter = &graph->parameters[p];
        gp_layer_factors *factors = &edit->spec->layers[parameter->layer].factors;

        if (parameter->layer < edit->frozen)
            factors->weight_learn_rate = factors->bias_learn_rate = 0.0;
        else
            learns |= gp_parameter_learns(parameter);
    }
    gp_graph_free(graph);
    return learns ? GP_OK
                  : gp_fail(err, GP_EINVAL, "no layer after %s has learnable weights",
                            edit->spec->layers[edit->frozen - 1].name);
}

/* ---- input ---- */

/* Check that the normalization matches the channels: each of the two can be set alone. */
static gp_status finish_input(const gp_edit *edit, gp_error *err)
{
    const gp_netspec *spec = edit->spec;
    char text[GP_NORMALIZATION_TEXT], size[64];

    if (spec->normalize_count == 1 || (int64_t)spec->normalize_count == spec->input.dim[0])
        return GP_OK;
    return gp_fail(err, GP_EINVAL,
                   "input.normalization is '%.60s' with %" PRIu32 " values, but input.size is %s; also set "
                   "input.normalization to one value such as 0..1, or to one per channel",
                   gp_normalization_format(spec, text), spec->normalize_count,
                   gp_shape_format(&spec->input, size, sizeof(size)));
}

/* ---- weights ---- */

/* Return the parameter name without the layer name: "weight" for "conv1.weight". */
static const char *role_of(const gp_graph *graph, const gp_parameter *parameter)
{
    return parameter->name + strlen(graph->spec->layers[parameter->layer].name) + 1;
}

/* Return the corresponding original parameter. NULL: the parameter is new or has another shape. */
static const gp_parameter *parameter_before(const gp_edit *edit, const gp_graph *graph,
                                            const gp_parameter *now)
{
    uint32_t origin = edit->origin[now->layer];

    for (uint32_t p = 0; origin != EDIT_NEW && p < edit->before->parameter_count; p++) {
        const gp_parameter *old = &edit->before->parameters[p];

        if (old->layer == origin && strcmp(role_of(edit->before, old), role_of(graph, now)) == 0)
            return gp_shape_equal(&old->shape, &now->shape) ? old : NULL;
    }
    return NULL;
}

/* Create the new blob: initialize all weights, then copy those that remain. */
static gp_status finish_weights(const gp_edit *edit, gp_init_rule rule, uint64_t seed, gp_edited *out,
                                gp_error *err)
{
    const gp_graph *graph = out->graph;

    if (edit->weights == NULL)
        return GP_OK;
    out->weights = gp_calloc(graph->blob_count == 0 ? 1 : graph->blob_count, sizeof(float));
    if (out->weights == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for %zu weights", graph->blob_count);
    gp_graph_initialize(graph, rule, seed, out->weights);
    for (uint32_t p = 0; p < graph->parameter_count; p++) {
        const gp_parameter *now = &graph->parameters[p], *old = parameter_before(edit, graph, now);

        if (old != NULL)
            memcpy(out->weights + now->offset, edit->weights + old->offset,
                   (size_t)now->count * sizeof(float));
    }
    return GP_OK;
}

/* ---- list of changes ---- */

/* Append all settings that differ from the default, as "name=value". */
static void text_settings(char *text, size_t bytes, const gp_param *table, const void *values)
{
    size_t used = strlen(text);

    for (; table->type != GP_PARAM_NONE; table++) {
        char value[80];

        if (!gp_params_changed(table, values) || used >= bytes)
            continue;
        used += (size_t)snprintf(text + used, bytes - used, "%s%s=%s", used == 0 ? "" : " ", table->name,
                                 gp_params_format(table, values, value, sizeof(value)));
    }
}

/* Append a change for layer `index`. `graph` is the original or the edited graph. */
static void change_add(gp_edited *out, gp_edit_action action, const gp_graph *graph, uint32_t index)
{
    const gp_layer *layer = &graph->spec->layers[index];
    gp_edit_change *change = &out->changes[out->change_count++];

    *change =
        (gp_edit_change){ .action = action, .kind = layer->kind->name, .output = graph->outputs[index] };
    strcpy(change->layer, layer->name);
    text_settings(change->settings, sizeof(change->settings), layer->kind->settings_table, layer->settings);
    text_settings(change->settings, sizeof(change->settings), gp_layer_factors_table, &layer->factors);
    for (uint32_t p = 0; p < graph->parameter_count; p++)
        if (graph->parameters[p].layer == index && graph->parameters[p].statistic == GP_STATISTIC_NONE)
            change->parameters += graph->parameters[p].count;
}

/* Append a change for the input, if shape or normalization differ. */
static void change_input(gp_edited *out, const gp_netspec *before)
{
    const gp_netspec *now = out->spec;
    gp_edit_change *change = &out->changes[out->change_count];
    size_t used = 0, bytes = now->normalize_count * sizeof(double);

    if (gp_shape_equal(&before->input, &now->input) && before->scale_unknown == now->scale_unknown &&
        before->normalize_count == now->normalize_count && memcmp(before->scale, now->scale, bytes) == 0 &&
        memcmp(before->offset, now->offset, bytes) == 0)
        return;
    *change =
        (gp_edit_change){ .action = GP_EDIT_CHANGED, .layer = "input", .kind = "", .output = now->input };
    for (uint32_t i = 0; i < now->normalize_count && used < sizeof(change->settings); i++)
        used += (size_t)snprintf(change->settings + used, sizeof(change->settings) - used, "%s%.6g",
                                 i == 0 ? "scale=" : ",", now->scale[i]);
    for (uint32_t i = 0; i < now->normalize_count && used < sizeof(change->settings); i++)
        used += (size_t)snprintf(change->settings + used, sizeof(change->settings) - used, "%s%.6g",
                                 i == 0 ? " offset=" : ",", now->offset[i]);
    out->change_count++;
}

/* Return whether a layer has weights and none of them learns. */
static bool is_frozen(const gp_graph *graph, uint32_t layer)
{
    bool has = false;

    for (uint32_t p = 0; p < graph->parameter_count; p++) {
        if (graph->parameters[p].layer != layer || graph->parameters[p].statistic != GP_STATISTIC_NONE)
            continue;
        if (gp_parameter_learns(&graph->parameters[p]))
            return false;
        has = true;
    }
    return has;
}

/* Append a remaining layer's most important difference, if there is one. */
static void change_kept(const gp_edit *edit, gp_edited *out, uint32_t index)
{
    const gp_layer *now = &out->spec->layers[index], *old = &edit->before->spec->layers[edit->origin[index]];
    bool anew = false;

    for (uint32_t p = 0; p < out->graph->parameter_count; p++)
        anew |= out->graph->parameters[p].layer == index &&
                parameter_before(edit, out->graph, &out->graph->parameters[p]) == NULL;
    if (anew)
        change_add(out, GP_EDIT_INITIALIZED, out->graph, index);
    else if (is_frozen(out->graph, index) && !is_frozen(edit->before, edit->origin[index]))
        change_add(out, GP_EDIT_FROZEN, out->graph, index);
    else if (now->kind != old->kind || memcmp(now->settings, old->settings, sizeof(now->settings)) != 0 ||
             memcmp(&now->factors, &old->factors, sizeof(now->factors)) != 0)
        change_add(out, GP_EDIT_CHANGED, out->graph, index);
}

/* Compare both networks and list the changes: removed, added, input, remaining layers. */
static gp_status finish_changes(const gp_edit *edit, gp_edited *out, gp_error *err)
{
    const gp_netspec *before = edit->before->spec;
    size_t most = (size_t)before->layer_count + out->spec->layer_count + 1;

    out->changes = gp_calloc(most, sizeof(*out->changes));
    if (out->changes == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for a list of %zu changes", most);
    for (uint32_t i = 0; i < edit->given_count; i++) {
        bool kept = false;

        for (uint32_t j = 0; j < out->spec->layer_count && !kept; j++)
            kept = edit->origin[j] == i;
        if (!kept)
            change_add(out, GP_EDIT_REMOVED, edit->before, i);
    }
    for (uint32_t j = 0; j < out->spec->layer_count; j++)
        if (edit->origin[j] == EDIT_NEW || edit->origin[j] >= edit->given_count)
            change_add(out, GP_EDIT_ADDED, out->graph, j);
    change_input(out, before);
    for (uint32_t j = 0; j < out->spec->layer_count; j++)
        if (edit->origin[j] < edit->given_count)
            change_kept(edit, out, j);
    return GP_OK;
}

gp_status gp_edit_finish(gp_edit *edit, gp_init_rule rule, uint64_t seed, gp_edited *out, gp_error *err)
{
    gp_edited edited = { 0 };
    gp_status status = gp_edit_end(edit, err);

    if (status == GP_OK)
        status = finish_input(edit, err);
    if (status == GP_OK)
        status = finish_freeze(edit, err);
    if (status == GP_OK)
        status = gp_graph_new(&edited.graph, edit->spec, err);
    if (status == GP_OK)
        status = gp_netspec_copy(&edited.spec, edit->spec, err);
    if (status == GP_OK)
        status = finish_weights(edit, rule, seed, &edited, err);
    if (status == GP_OK)
        status = finish_changes(edit, &edited, err);
    if (status != GP_OK) {
        gp_edited_deinit(&edited);
        return status;
    }
    *out = edited;
    return GP_OK;
}
