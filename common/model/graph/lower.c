/* Lower layers to primitive operations.
 *
 * The forward pass visits the layers in order, the backward pass in reverse order. An output's
 * gradient is complete when the backward pass reaches the layer, because all readers come later in
 * the network. The dx of the first reader is the gradient; GP_OP_ADD adds the dx from each further
 * reader.
 *
 * Layers without learning parameters in or before them (`trained` is false) have no gradient. The
 * backward pass therefore stops at the first layer that learns. A frozen layer after that one
 * passes the gradient on, but computes no gradients for its weights. */
#include "common/model/graph/lower.h"

#include <assert.h>
#include <string.h>

#include "common/base/memory/alloc.h"

/* Per-layer state during lowering. */
typedef struct lower_layer {
    bool trained;      /* the output depends on parameters that learn */
    uint32_t y;        /* output value */
    uint32_t gradient; /* sum over y's readers so far; GP_NO_VALUE: no reader yet */
    uint32_t saved[GP_LAYER_SAVED_MAX];
    uint32_t parameter_first, parameter_count; /* range in graph->parameters */
} lower_layer;

gp_status gp_graph_add_value(gp_graph *graph, gp_value_role role, gp_dtype dtype, const gp_shape *shape,
                             uint32_t layer, uint32_t *index, gp_error *err)
{
    /* Copy *shape before the table moves: it may point into the table. */
    const gp_value value = {
        .role = role, .dtype = dtype, .shape = *shape, .layer = layer, .parameter = GP_NO_VALUE
    };

    gp_value *values = gp_array_grow(graph->values, graph->value_count, sizeof(*values));

    if (values == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for a graph of %u values", graph->value_count + 1);
    graph->values = values;
    graph->values[graph->value_count] = value;
    *index = graph->value_count++;
    return GP_OK;
}

/* Return whether a backward operation computes only frozen parameters' gradients. */
static bool op_is_idle(const gp_lowering *lowering, const gp_op *op)
{
    const gp_graph *graph = lowering->graph;

    if (lowering->dy == GP_NO_VALUE)
        return false;
    for (int i = 0; i < GP_OP_VALUES_MAX; i++) {
        const gp_value *value = op->out[i] == GP_NO_VALUE ? NULL : &graph->values[op->out[i]];

        if (value != NULL && (value->role != GP_VALUE_PARAMETER_GRADIENT ||
                              gp_parameter_learns(&graph->parameters[value->parameter])))
            return false;
    }
    return true;
}

gp_status gp_lowering_emit(gp_lowering *lowering, const gp_op *op, gp_error *err)
{
    gp_graph *graph = lowering->graph;
    gp_ops *ops = &graph->ops[lowering->phase];

    for (int i = 0; i < GP_OP_VALUES_MAX; i++) {
        assert(op->in[i] == GP_NO_VALUE || op->in[i] < graph->value_count);
        assert(op->out[i] == GP_NO_VALUE || op->out[i] < graph->value_count);
    }
    if (op_is_idle(lowering, op))
        return GP_OK;
    gp_op *grown = gp_array_grow(ops->op, ops->count, sizeof(*grown));

    if (grown == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for a graph of %u ops", ops->count + 1);
    ops->op = grown;
    ops->op[ops->count] = *op;
    ops->op[ops->count++].layer = lowering->layer;
    return GP_OK;
}

gp_status gp_lowering_save(gp_lowering *lowering, uint32_t slot, bool shared, gp_dtype dtype,
                           const gp_shape *shape, gp_error *err)
{
    assert(slot < GP_LAYER_SAVED_MAX && lowering->saved[slot] == GP_NO_VALUE);
    return gp_graph_add_value(lowering->graph, shared ? GP_VALUE_CALL : GP_VALUE_SAVED, dtype, shape,
                              lowering->layer, &lowering->saved[slot], err);
}

/* Set what the kind defines in an operation, and emit it. */
static gp_status kind_emit(gp_lowering *lowering, gp_op *op, gp_error *err)
{
    gp_status status = lowering->kind->prepare == NULL ? GP_OK : lowering->kind->prepare(lowering, op, err);

    return status == GP_OK ? gp_lowering_emit(lowering, op, err) : status;
}

/* Return an operation with the constants of the kind. */
static gp_op kind_op(const gp_lowering *lowering, gp_opcode code)
{
    gp_op op = gp_op_init(code);

    op.function = lowering->kind->function;
    op.pool = lowering->kind->pool;
    memcpy(op.factor, lowering->settings, lowering->kind->factors * sizeof(*op.factor));
    return op;
}

/* Emit the operation of the forward pass; see gp_kind. */
static gp_status kind_forward(gp_lowering *lowering, gp_error *err)
{
    gp_op op = kind_op(lowering, lowering->kind->op);
    uint32_t count = lowering->input_count;

    memcpy(op.in, lowering->x, count * sizeof(*op.in));
    for (int k = 0; k < GP_LAYER_PARAMETERS_MAX && lowering->parameters[k] != GP_NO_VALUE; k++)
        op.in[count++] = lowering->parameters[k];
    op.out[0] = lowering->y;
    return kind_emit(lowering, &op, err);
}

/* Emit the operations of the backward pass; see gp_kind. */
static gp_status kind_backward(gp_lowering *lowering, gp_error *err)
{
    const gp_kind *kind = lowering->kind;
    const bool learns = kind->op_weights == 0 && lowering->parameters[0] != GP_NO_VALUE;
    gp_op op = kind_op(lowering, kind->op_weights);
    uint32_t count = 0;
    gp_status status = GP_OK;

    if (kind->op_weights != 0) {
        op.in[0] = lowering->x[0];
        op.in[1] = lowering->dy;
        memcpy(op.out, lowering->gradients, 2 * sizeof(*op.out));
        status = kind_emit(lowering, &op, err);
    }
    if (status != GP_OK || (lowering->dx[0] == GP_NO_VALUE && !learns))
        return status;
    op = kind_op(lowering, kind->op_backward);
    op.out[0] = lowering->dx[0];
    if (learns)
        memcpy(op.out + 1, lowering->gradients, 2 * sizeof(*op.out));
    if (kind->backward_reads != GP_READS_NOTHING)
        op.in[count++] = kind->backward_reads == GP_READS_INPUT ? lowering->x[0] : lowering->y;
    op.in[count++] = lowering->dy;
    op.in[count] = lowering->parameters[0];
    return kind_emit(lowering, &op, err);
}

/* Fill in everything common to forward and backward for layer i. */
static void lowering_init(gp_lowering *lowering, gp_graph *graph, const lower_layer *layers, gp_phase phase,
                          uint32_t i)
{
    const gp_layer *layer = &graph->spec->layers[i];

    /* Set every value to GP_NO_VALUE. */
    memset(lowering, 0xff, sizeof(*lowering));
    lowering->graph = graph;
    lowering->kind = layer->kind;
    lowering->phase = phase;
    lowering->layer = i;
    lowering->settings = layer->settings;
    lowering->input_count = layer->input_count;
    lowering->y = layers[i].y;
    for (uint32_t k = 0; k < layer->input_count; k++)
        lowering->x[k] = layer->inputs[k] == GP_INPUT_LAYER ? graph->input : layers[layer->inputs[k]].y;
    for (uint32_t k = 0; k < layers[i].parameter_count; k++) {
        const gp_parameter *parameter = &graph->parameters[layers[i].parameter_first + k];

        lowering->parameters[k] = parameter->value;
        lowering->gradients[k] = parameter->gradient;
    }
    memcpy(lowering->saved, layers[i].saved, sizeof(lowering->saved));
}

/* Fill in everything specific to losses. With several losses, each counts as its own mean: the
 * total weight is the mean over all losses, and a sample without ignored parts has the weight that
 * the first loss gives it. With one loss, factor and weight are exactly 1. */
static void lowering_init_loss(gp_lowering *lowering, gp_phase phase)
{
    const gp_graph *graph = lowering->graph;
    gp_end *end = graph->ends;

    while (end->layer != lowering->layer)
        end++;
    const double relative = graph->ends[0].weight / end->weight;

    end->logits = lowering->x[0];
    lowering->target = end->truth;
    lowering->sums = graph->sums;
    lowering->scores = phase == GP_PHASE_INFER ? end->scores : GP_NO_VALUE;
    lowering->loss = (gp_op_loss){ .target_first = end->target_first,
                                   .target_stride = (uint32_t)(graph->target_bytes / 4),
                                   .score_first = end->score_first,
                                   .score_stride = graph->score_count,
                                   .scores_as_is = phase == GP_PHASE_INFER && end->scores_as_is,
                                   .factor = relative,
                                   .weight = relative / graph->end_count };
}

/* Add another reader's contribution to the gradient for `input`. */
static gp_status gradient_meet(gp_lowering *lowering, lower_layer *input, uint32_t contribution,
                               gp_error *err)
{
    const gp_shape shape = lowering->graph->values[contribution].shape;
    uint32_t layer = lowering->graph->values[contribution].layer;
    gp_op op = gp_op_init(GP_OP_ADD);

    if (input->gradient == GP_NO_VALUE) {
        input->gradient = contribution;
        return GP_OK;
    }
    op.in[0] = input->gradient;
    op.in[1] = contribution;
    gp_status status = gp_graph_add_value(lowering->graph, GP_VALUE_ACTIVATION_GRADIENT, GP_F32, &shape,
                                          layer, &op.out[0], err);

    if (status != GP_OK)
        return status;
    input->gradient = op.out[0];
    return gp_lowering_emit(lowering, &op, err);
}

/* Create a gradient value for input k. GP_NO_VALUE: no layer before it learns. */
static gp_status gradient_value(gp_graph *graph, const lower_layer *layers, const gp_layer *layer, uint32_t k,
                                uint32_t *out, gp_error *err)
{
    uint32_t input = layer->inputs[k];

    *out = GP_NO_VALUE;
    if (input == GP_INPUT_LAYER || !layers[input].trained)
        return GP_OK;
    return gp_graph_add_value(graph, GP_VALUE_ACTIVATION_GRADIENT, GP_F32, &graph->outputs[input], input, out,
                              err);
}

/* Emit forward operations for all layers. */
static gp_status lower_forward(gp_graph *graph, lower_layer *layers, gp_phase phase, gp_error *err)
{
    for (uint32_t i = 0; i < graph->spec->layer_count; i++) {
        const gp_layer *layer = &graph->spec->layers[i];
        bool loss = layer->kind->flags & GP_KIND_LOSS;
        gp_status status = GP_OK;
        gp_lowering lowering;

        lowering_init(&lowering, graph, layers, phase, i);
        /* Each phase has separate saved values. */
        memset(lowering.saved, 0xff, sizeof(lowering.saved));
        if (loss && phase == GP_PHASE_TRAIN)
            status = gradient_value(graph, layers, layer, 0, &lowering.dlogits, err);
        if (loss)
            lowering_init_loss(&lowering, phase);
        if (status == GP_OK)
            status = layer->kind->forward == NULL ? kind_forward(&lowering, err)
                                                  : layer->kind->forward(&lowering, err);
        if (status != GP_OK)
            return status;
        if (phase == GP_PHASE_TRAIN)
            memcpy(layers[i].saved, lowering.saved, sizeof(lowering.saved));
        if (loss && lowering.dlogits != GP_NO_VALUE)
            status = gradient_meet(&lowering, &layers[layer->inputs[0]], lowering.dlogits, err);
        if (status != GP_OK)
            return status;
    }
    return GP_OK;
}

/* Emit the backward operations. Losses are skipped, as their forward operations compute
 * gradients. */
static gp_status lower_backward(gp_graph *graph, lower_layer *layers, gp_error *err)
{
    for (uint32_t i = graph->spec->layer_count; i-- > 0;) {
        const gp_layer *layer = &graph->spec->layers[i];
        gp_status status = GP_OK;
        gp_lowering lowering;

        if (!layers[i].trained || (layer->kind->flags & GP_KIND_LOSS))
            continue;
        assert(layers[i].gradient != GP_NO_VALUE);
        lowering_init(&lowering, graph, layers, GP_PHASE_TRAIN, i);
        lowering.dy = layers[i].gradient;
        for (uint32_t k = 0; k < layer->input_count && status == GP_OK; k++)
            status = gradient_value(graph, layers, layer, k, &lowering.dx[k], err);
        if (status == GP_OK)
            status = layer->kind->backward == NULL ? kind_backward(&lowering, err)
                                                   : layer->kind->backward(&lowering, err);
        for (uint32_t k = 0; k < layer->input_count && status == GP_OK; k++)
            if (lowering.dx[k] != GP_NO_VALUE)
                status = gradient_meet(&lowering, &layers[layer->inputs[k]], lowering.dx[k], err);
        if (status != GP_OK)
            return status;
    }
    return GP_OK;
}

/* Find trained layers and their parameters, and create a value for each output. */
static gp_status layers_init(lower_layer *layers, gp_graph *graph, gp_error *err)
{
    uint32_t parameter = 0;

    for (uint32_t i = 0; i < graph->spec->layer_count; i++) {
        const gp_layer *spec = &graph->spec->layers[i];
        lower_layer *layer = &layers[i];

        memset(layer, 0xff, sizeof(*layer));
        layer->parameter_first = parameter;
        layer->trained = false;
        while (parameter < graph->parameter_count && graph->parameters[parameter].layer == i)
            layer->trained |= gp_parameter_learns(&graph->parameters[parameter++]);
        layer->parameter_count = parameter - layer->parameter_first;
        for (uint32_t k = 0; k < spec->input_count; k++)
            if (spec->inputs[k] != GP_INPUT_LAYER && layers[spec->inputs[k]].trained)
                layer->trained = true;
        if (spec->kind->flags & GP_KIND_LOSS)
            continue;
        gp_status status =
            gp_graph_add_value(graph, GP_VALUE_ACTIVATION, GP_F32, &graph->outputs[i], i, &layer->y, err);

        if (status != GP_OK)
            return status;
    }
    return GP_OK;
}

gp_status gp_graph_lower(gp_graph *graph, gp_error *err)
{
    lower_layer *layers = gp_calloc(graph->spec->layer_count, sizeof(*layers));

    if (layers == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for lowering %u layers", graph->spec->layer_count);
    gp_status status = layers_init(layers, graph, err);

    if (status == GP_OK)
        status = lower_forward(graph, layers, GP_PHASE_TRAIN, err);
    if (status == GP_OK) {
        graph->ops[GP_PHASE_TRAIN].forward_count = graph->ops[GP_PHASE_TRAIN].count;
        status = lower_backward(graph, layers, err);
    }
    if (status == GP_OK)
        status = lower_forward(graph, layers, GP_PHASE_INFER, err);
    graph->ops[GP_PHASE_INFER].forward_count = graph->ops[GP_PHASE_INFER].count;
    gp_free(layers);
    return status;
}
