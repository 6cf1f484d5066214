/* Compile a network: infer shapes, lay out parameters, and find losses and targets. lower.c then
 * creates the operations. */
#include "common/model/graph/graph.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/base/memory/alloc.h"
#include "common/base/memory/hash.h"
#include "common/model/graph/lower.h"

#define ELEMENTS_MAX   ((int64_t)1 << 28)   /* activation elements per sample */
#define PARAMETERS_MAX ((int64_t)INT32_MAX) /* parameters per network: 8 GiB */

/* Check that the network ends in a loss, that no layer reads a loss, and that every other layer is
 * read. */
static gp_status graph_check_ends(const gp_netspec *spec, gp_error *err)
{
    if (spec->layer_count == 0)
        return gp_fail(err, GP_EINVAL, "network %s has no layers", spec->name);
    for (uint32_t i = 0; i < spec->layer_count; i++) {
        const gp_layer *layer = &spec->layers[i];
        bool last = i + 1 == spec->layer_count, loss = layer->kind->flags & GP_KIND_LOSS;
        const gp_layer *reader = NULL;

        if (last && !loss)
            return gp_fail(err, GP_EINVAL, "the last layer %s (%s) is not a loss; add crossentropy",
                           layer->name, layer->kind->name);
        for (uint32_t j = i + 1; j < spec->layer_count && reader == NULL; j++)
            for (uint32_t k = 0; k < spec->layers[j].input_count; k++)
                if (spec->layers[j].inputs[k] == i)
                    reader = &spec->layers[j];
        if (loss && reader != NULL)
            return gp_fail(err, GP_EINVAL,
                           "%s (%s) is a loss, but layer %s reads it; no layer can follow a loss",
                           layer->name, layer->kind->name, reader->name);
        if (!loss && reader == NULL)
            return gp_fail(err, GP_EINVAL,
                           "no layer reads %s (%s); remove it or add it to \"inputs\" of a layer",
                           layer->name, layer->kind->name);
    }
    return GP_OK;
}

/* Append a layer's parameters, with a value for each parameter and each gradient. */
static gp_status graph_add_parameters(gp_graph *graph, uint32_t index, const gp_infer *infer, gp_error *err)
{
    const gp_layer *layer = &graph->spec->layers[index];

    for (uint32_t k = 0; k < infer->parameter_count; k++) {
        const gp_parameter_need *need = &infer->parameters[k];
        gp_parameter *parameter = &graph->parameters[graph->parameter_count];
        bool weight = strcmp(need->role, "weight") == 0 || strcmp(need->role, "scale") == 0;
        gp_status status = gp_shape_check(&need->shape, PARAMETERS_MAX, err);

        if (status != GP_OK)
            return status;
        *parameter = (gp_parameter){
            .shape = need->shape,
            .count = gp_shape_count(&need->shape),
            .layer = index,
            .fan_in = need->fan_in,
            .fan_out = need->fan_out,
            .initializer = need->initializer,
            .statistic = need->statistic,
            .statistic_rate = need->rate,
            .per_sample = need->per_sample,
            .learn_rate_factor = weight ? layer->factors.weight_learn_rate : layer->factors.bias_learn_rate,
            .l2_factor = weight ? layer->factors.weight_l2 : layer->factors.bias_l2,
        };
        snprintf(parameter->name, sizeof(parameter->name), "%s.%s", layer->name, need->role);
        graph->blob_count += (size_t)parameter->count;
        if (need->statistic == GP_STATISTIC_NONE)
            graph->learned_count += (size_t)parameter->count;
        if (graph->blob_count > (size_t)PARAMETERS_MAX)
            return gp_fail(err, GP_ELIMIT,
                           "the network has %zu parameters up to this layer, at most %" PRId64
                           " are supported",
                           graph->blob_count, PARAMETERS_MAX);
        status = gp_graph_add_value(graph, GP_VALUE_PARAMETER, GP_F32, &need->shape, index, &parameter->value,
                                    err);
        if (status == GP_OK)
            status = gp_graph_add_value(graph, GP_VALUE_PARAMETER_GRADIENT, GP_F32, &need->shape, index,
                                        &parameter->gradient, err);
        if (status != GP_OK)
            return status;
        graph->values[parameter->value].parameter = graph->parameter_count;
        graph->values[parameter->gradient].parameter = graph->parameter_count;
        graph->parameter_count++;
    }
    return GP_OK;
}

/* Assign a target to a loss: the target that the earlier loss `of` uses, or a new one if `of` is
 * NULL or "". */
static gp_status graph_share_target(gp_graph *graph, gp_end *end, const char *of, gp_error *err)
{
    char mine[64], other[64];

    for (uint32_t i = 0; of != NULL && *of != '\0' && i < graph->end_count; i++) {
        const gp_end *before = &graph->ends[i];

        if (strcmp(graph->spec->layers[before->layer].name, of) != 0)
            continue;
        if (end->target.dtype != before->target.dtype ||
            !gp_shape_equal(&end->target.shape, &before->target.shape))
            return gp_fail(err, GP_EINVAL, "target-of %s: that loss needs targets of %s, but this one %s", of,
                           gp_targets_format(&before->target, 1, other, sizeof(other)),
                           gp_targets_format(&end->target, 1, mine, sizeof(mine)));
        if (end->target.classes != before->target.classes)
            return gp_fail(err, GP_EINVAL, "target-of %s: that loss has %u classes, this one %u", of,
                           before->target.classes, end->target.classes);
        end->target_index = before->target_index;
        end->target_first = before->target_first;
        return GP_OK;
    }
    if (of != NULL && *of != '\0')
        return gp_fail(err, GP_EINVAL, "target-of %s: no earlier loss has this name", of);
    /* A user-defined loss manages its own target. */
    if (end->target.dtype == 0)
        return GP_OK;
    end->target_index = graph->target_count;
    graph->targets[graph->target_count++] = end->target;
    graph->target_bytes += gp_targets_bytes(&end->target, 1);
    return GP_OK;
}

/* Append a loss to graph->ends. */
static gp_status graph_add_end(gp_graph *graph, uint32_t index, const gp_infer *infer, gp_error *err)
{
    if (graph->end_count == GP_ENDS_MAX)
        return gp_fail(err, GP_ELIMIT, "too many losses: this is loss %d, at most %d are supported",
                       GP_ENDS_MAX + 1, GP_ENDS_MAX);
    gp_end end = {
        .layer = index,
        .target = infer->target,
        .scores_count = (uint32_t)gp_shape_count(&infer->output),
        .weight = infer->weight,
        .target_first = (uint32_t)(graph->target_bytes / 4),
        .score_first = graph->score_count,
    };
    gp_status status = graph_share_target(graph, &end, infer->target_of, err);

    if (status != GP_OK)
        return status;
    const uint32_t last = gp_netspec_before_reshapes(graph->spec, graph->spec->layers[end.layer].inputs[0]);
    const unsigned flags = last == GP_INPUT_LAYER ? 0 : graph->spec->layers[last].kind->flags;
    const bool classes = end.target.dtype == GP_I32, sample = end.target.shape.rank == 0;
    const bool adds_up =
        (flags & GP_KIND_DISTRIBUTION) != 0 && graph->outputs[last].dim[0] == (int64_t)end.target.classes;

    end.scores_as_is = classes && sample && gp_netspec_gives_probabilities(graph->spec, last);
    end.score_type = !classes                       ? GP_SCORE_VALUES
                     : end.scores_as_is && !adds_up ? GP_SCORE_PROBABILITIES
                                                    : GP_SCORE_DISTRIBUTION;
    graph->ends[graph->end_count++] = end;
    graph->score_count += (uint32_t)gp_shape_count(&infer->output);
    if (graph->class_count == 0)
        graph->class_count = infer->target.classes;
    return GP_OK;
}

/* Infer a layer's output shape and parameters. */
static gp_status graph_infer_layer(gp_graph *graph, uint32_t index, gp_error *err)
{
    const gp_layer *layer = &graph->spec->layers[index];
    const gp_kind *kind = layer->kind;
    gp_infer infer = { .kind = kind, .input_count = layer->input_count, .settings = layer->settings };
    gp_status status;

    if (layer->input_count < (kind->extra_inputs > 0 ? 2 : 1) || layer->input_count > 1 + kind->extra_inputs)
        return gp_fail(err, GP_EINVAL, "it has %u inputs, but this kind takes %u to %u", layer->input_count,
                       kind->extra_inputs > 0 ? 2 : 1, 1 + kind->extra_inputs);
    for (uint32_t k = 0; k < layer->input_count; k++)
        infer.inputs[k] =
            layer->inputs[k] == GP_INPUT_LAYER ? graph->spec->input : graph->outputs[layer->inputs[k]];
    status = gp_kind_infer(&infer, err);
    if (status == GP_OK)
        status = gp_shape_check(&infer.output, ELEMENTS_MAX, err);
    if (status != GP_OK)
        return status;
    for (const gp_param *p = gp_layer_factors_table; infer.parameter_count == 0 && p->type != GP_PARAM_NONE;
         p++)
        if (gp_params_changed(p, &layer->factors))
            return gp_fail(err, GP_EINVAL, "it has no weights, so %s has no effect; remove it", p->name);
    graph->outputs[index] = infer.output;
    if (kind->flags & GP_KIND_LOSS)
        status = graph_add_end(graph, index, &infer, err);
    if (status != GP_OK)
        return status;
    graph->couples_samples |= (kind->flags & GP_KIND_COUPLES_SAMPLES) != 0;
    return graph_add_parameters(graph, index, &infer, err);
}

/* Assign blob offsets: the last layer first; within a layer, weights before biases. */
static void graph_place_parameters(gp_graph *graph)
{
    size_t offset = 0;

    for (uint32_t end = graph->parameter_count; end > 0;) {
        uint32_t first = end - 1;

        while (first > 0 && graph->parameters[first - 1].layer == graph->parameters[end - 1].layer)
            first--;
        for (uint32_t p = first; p < end; p++) {
            graph->parameters[p].offset = offset;
            offset += (size_t)graph->parameters[p].count;
        }
        end = first;
    }
    assert(offset == graph->blob_count);
}

/* Create the values for input, sums, targets and scores. Losses with the same target share its
 * value. */
static gp_status graph_add_ends(gp_graph *graph, gp_error *err)
{
    const gp_shape sums = gp_shape1(GP_SUMS);
    gp_status status = gp_graph_add_value(graph, GP_VALUE_INPUT, GP_F32, &graph->spec->input, GP_INPUT_LAYER,
                                          &graph->input, err);

    if (status == GP_OK)
        status = gp_graph_add_value(graph, GP_VALUE_SUMS, GP_F64, &sums, graph->spec->layer_count - 1,
                                    &graph->sums, err);
    for (uint32_t i = 0; i < graph->end_count && status == GP_OK; i++) {
        gp_end *end = &graph->ends[i];

        end->truth = GP_NO_VALUE;
        for (uint32_t k = 0; k < i && end->target.dtype != 0; k++)
            if (graph->ends[k].truth != GP_NO_VALUE && graph->ends[k].target_index == end->target_index)
                end->truth = graph->ends[k].truth;
        if (end->target.dtype != 0 && end->truth == GP_NO_VALUE)
            status = gp_graph_add_value(graph, GP_VALUE_TARGET, end->target.dtype, &end->target.shape,
                                        GP_INPUT_LAYER, &end->truth, err);
        if (status == GP_OK)
            status = gp_graph_add_value(graph, GP_VALUE_SCORES, GP_F32, &graph->outputs[end->layer],
                                        end->layer, &end->scores, err);
    }
    return status;
}

static gp_status graph_build(gp_graph *graph, const gp_netspec *spec, gp_error *err)
{
    gp_status status = graph_check_ends(spec, err);

    if (status == GP_OK)
        status = gp_netspec_copy(&graph->spec, spec, err);
    if (status != GP_OK)
        return status;
    graph->outputs = gp_calloc(spec->layer_count, sizeof(*graph->outputs));
    graph->parameters =
        gp_calloc((size_t)spec->layer_count * GP_LAYER_PARAMETERS_MAX, sizeof(*graph->parameters));
    graph->ends = gp_calloc(GP_ENDS_MAX, sizeof(*graph->ends));
    graph->targets = gp_calloc(GP_ENDS_MAX, sizeof(*graph->targets));
    graph->weights = gp_calloc(spec->layer_count, sizeof(*graph->weights));
    if (graph->outputs == NULL || graph->parameters == NULL || graph->ends == NULL ||
        graph->targets == NULL || graph->weights == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for a graph of %u layers", spec->layer_count);
    for (uint32_t i = 0; i < spec->layer_count; i++) {
        status = graph_infer_layer(graph, i, err);
        if (status == GP_EINVAL || status == GP_ELIMIT) /* the layer caused the error */
            gp_error_prefix(err, "%s (%s)", spec->layers[i].name, spec->layers[i].kind->name);
        if (status != GP_OK)
            return status;
    }
    graph_place_parameters(graph);
    status = graph_add_ends(graph, err);
    return status == GP_OK ? gp_graph_lower(graph, err) : status;
}

gp_status gp_graph_new(gp_graph **out, const gp_netspec *spec, gp_error *err)
{
    gp_graph *graph = gp_calloc(1, sizeof(*graph));

    if (graph == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for a graph");
    gp_status status = graph_build(graph, spec, err);

    if (status != GP_OK) {
        gp_graph_free(graph);
        return status;
    }
    *out = graph;
    return GP_OK;
}

void gp_graph_put_last(gp_graph *graph, uint32_t parameter)
{
    gp_ops *ops = &graph->ops[GP_PHASE_TRAIN];
    uint32_t gradient = graph->parameters[parameter].gradient;

    for (uint32_t i = ops->forward_count; i < ops->count; i++)
        for (uint32_t k = 0; k < GP_OP_VALUES_MAX; k++)
            if (ops->op[i].out[k] == gradient) {
                gp_op op = ops->op[i];

                memmove(ops->op + i, ops->op + i + 1, (ops->count - i - 1) * sizeof(op));
                ops->op[ops->count - 1] = op;
                return;
            }
}

void gp_graph_free(gp_graph *graph)
{
    if (graph == NULL)
        return;
    for (int phase = 0; phase < GP_PHASE_COUNT; phase++)
        gp_free(graph->ops[phase].op);
    gp_free(graph->outputs);
    for (uint32_t i = 0; graph->weights != NULL && i < graph->spec->layer_count; i++)
        gp_free(graph->weights[i]);
    gp_free(graph->weights);
    gp_free(graph->ends);
    gp_free(graph->targets);
    gp_free(graph->parameters);
    gp_free(graph->values);
    gp_netspec_free(graph->spec);
    gp_free(graph);
}

uint64_t gp_graph_layout_hash(const gp_graph *graph)
{
    uint64_t hash = gp_hash_add_number(GP_HASH_BEGIN, graph->blob_count);

    for (uint32_t p = 0; p < graph->parameter_count; p++) {
        const gp_parameter *parameter = &graph->parameters[p];

        hash = gp_hash_add(hash, parameter->name, strlen(parameter->name) + 1);
        hash = gp_hash_add_number(hash, parameter->offset);
        hash = gp_hash_add_number(hash, parameter->shape.rank);
        for (uint32_t d = 0; d < parameter->shape.rank; d++)
            hash = gp_hash_add_number(hash, (uint64_t)parameter->shape.dim[d]);
    }
    return hash;
}

gp_status gp_graph_check_targets(const gp_graph *graph, const gp_target *targets, uint32_t count,
                                 const char *source, gp_error *err)
{
    const gp_target *wanted = graph->targets;
    bool same = count == graph->target_count;
    char have[160], want[160];

    for (uint32_t i = 0; i < graph->target_count && same; i++)
        same = targets[i].dtype == wanted[i].dtype && gp_shape_equal(&targets[i].shape, &wanted[i].shape);
    if (!same)
        return gp_fail(err, GP_EINVAL, "the targets of %s are %s, but network %s (%s %s) needs %s", source,
                       gp_targets_format(targets, count, have, sizeof(have)), graph->spec->name,
                       graph->end_count == 1 ? "loss" : "first loss",
                       graph->spec->layers[graph->ends[0].layer].kind->name,
                       gp_targets_format(wanted, graph->target_count, want, sizeof(want)));
    for (uint32_t i = 0; i < graph->end_count; i++) {
        const gp_target *mine = &targets[graph->ends[i].target_index];

        if (graph->ends[i].target.dtype != 0 && mine->classes != graph->ends[i].target.classes)
            return gp_fail(err, GP_EINVAL,
                           "%s has %" PRIu32 " classes, but network %s has %" PRIu32 " (layer %s)", source,
                           mine->classes, graph->spec->name, graph->ends[i].target.classes,
                           graph->spec->layers[graph->ends[i].layer].name);
    }
    return GP_OK;
}

gp_score_type gp_graph_score_type(const gp_graph *graph)
{
    for (uint32_t i = 0; i < graph->end_count; i++)
        if (graph->ends[i].score_type != GP_SCORE_VALUES)
            return graph->ends[i].score_type;
    return GP_SCORE_VALUES;
}

const char *gp_score_type_name(gp_score_type type)
{
    static const char *const names[] = { [GP_SCORE_VALUES] = "values",
                                         [GP_SCORE_DISTRIBUTION] = "probabilities",
                                         [GP_SCORE_PROBABILITIES] = "independent_probabilities" };

    return names[type];
}

bool gp_graph_scores_pixels(const gp_graph *graph)
{
    const gp_shape *input = &graph->spec->input;
    bool scores = graph->target_count == 1;

    for (uint32_t i = 0; i < graph->end_count && scores; i++) {
        const gp_target *target = &graph->ends[i].target;

        scores = target->dtype == GP_I32 && target->shape.rank == 2 &&
                 target->shape.dim[0] == input->dim[1] && target->shape.dim[1] == input->dim[2];
    }
    return scores;
}
