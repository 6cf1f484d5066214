/* Implement cost.h. */
#include "common/model/cost.h"

#include <string.h>

#include "common/base/memory/alloc.h"

/* Return an operation's multiply-adds: the elements in value `numbers`, each multiplied by the
 * weights for one output channel (all dimensions except the first). */
static int64_t meets(const gp_graph *graph, uint32_t numbers, uint32_t weight)
{
    const gp_shape *shape = &graph->values[weight].shape;

    return gp_shape_count(&graph->values[numbers].shape) * (gp_shape_count(shape) / shape->dim[0]);
}

/* Return one operation's multiply-adds. Zero for all except convolutions and matrix products. */
static int64_t op_macs(const gp_graph *graph, const gp_op *op)
{
    switch (op->code) {
    case GP_OP_CONV2D:
    case GP_OP_FC:
        return meets(graph, op->out[0], op->in[1]);
    case GP_OP_CONV2D_BACKWARD_DATA:
    case GP_OP_FC_BACKWARD_DATA:
    /* Each pixel in x is multiplied by each weight for the pixel's channel. */
    case GP_OP_TRANSCONV2D:
        return meets(graph, op->in[0], op->in[1]);
    case GP_OP_CONV2D_BACKWARD_WEIGHTS:
    case GP_OP_FC_BACKWARD_WEIGHTS:
        return meets(graph, op->in[1], op->out[0]);
    case GP_OP_TRANSCONV2D_BACKWARD_DATA:
        return meets(graph, op->out[0], op->in[1]);
    case GP_OP_TRANSCONV2D_BACKWARD_WEIGHTS:
        return meets(graph, op->in[0], op->out[0]);
    default:
        return 0;
    }
}

void gp_graph_costs(const gp_graph *graph, gp_layer_cost *costs)
{
    const gp_ops *ops = &graph->ops[GP_PHASE_TRAIN];

    memset(costs, 0, graph->spec->layer_count * sizeof(*costs));
    for (uint32_t p = 0; p < graph->parameter_count; p++)
        if (graph->parameters[p].statistic == GP_STATISTIC_NONE)
            costs[graph->parameters[p].layer].parameters += graph->parameters[p].count;
    for (uint32_t i = 0; i < ops->count; i++) {
        gp_layer_cost *cost = &costs[ops->op[i].layer];

        *(i < ops->forward_count ? &cost->forward_macs : &cost->backward_macs) += op_macs(graph, &ops->op[i]);
    }
}

int64_t gp_graph_forward_macs(const gp_graph *graph)
{
    const gp_ops *ops = &graph->ops[GP_PHASE_INFER];
    int64_t macs = 0;

    for (uint32_t i = 0; i < ops->count; i++)
        macs += op_macs(graph, &ops->op[i]);
    return macs;
}

uint32_t gp_solver_state(gp_solver solver)
{
    return solver == GP_SOLVER_ADAM || solver == GP_SOLVER_ADAMW ? 2 : 1;
}

/* First and last operation that uses a value; UINT32_MAX: never used. */
typedef struct value_life {
    uint32_t first, last;
} value_life;

/* Return a value's memory for a call. */
static double value_bytes(const gp_value *value, int64_t samples)
{
    const double bytes = (double)gp_shape_count(&value->shape) * (double)gp_dtype_bytes(value->dtype);

    switch (value->role) {
    case GP_VALUE_INPUT:
    case GP_VALUE_ACTIVATION:
    case GP_VALUE_SAVED:
    case GP_VALUE_ACTIVATION_GRADIENT:
        return bytes * (double)samples;
    case GP_VALUE_CALL:
        return bytes;
    /* Parameters are counted as blobs. Labels and scores belong to the batch. */
    default:
        return 0;
    }
}

/* Find each value's lifetime. The input is live from the start. */
static void lives_find(value_life *lives, const gp_graph *graph, const gp_ops *ops)
{
    memset(lives, 0xff, graph->value_count * sizeof(*lives));
    lives[graph->input] = (value_life){ 0, 0 };
    for (uint32_t i = 0; i < ops->count; i++)
        for (int k = 0; k < GP_OP_VALUES_MAX; k++) {
            const uint32_t in = ops->op[i].in[k], out = ops->op[i].out[k];

            if (in != GP_NO_VALUE)
                lives[in].last = i;
            if (out == GP_NO_VALUE)
                continue;
            if (lives[out].first == UINT32_MAX)
                lives[out].first = i;
            if (lives[out].last == UINT32_MAX || lives[out].last < i)
                lives[out].last = i;
        }
}

/* Compute the peak memory for all live values. */
static gp_status peak_find(double *out, const gp_graph *graph, gp_phase phase, int64_t samples, gp_error *err)
{
    const gp_ops *ops = &graph->ops[phase];
    value_life *lives = gp_calloc(graph->value_count, sizeof(*lives));
    /* by operation: bytes allocated minus bytes freed */
    double *change = gp_calloc((size_t)ops->count + 1, sizeof(*change));
    double alive = 0, most = 0;

    if (lives == NULL || change == NULL) {
        gp_free(lives);
        gp_free(change);
        return gp_fail(err, GP_ENOMEM, "no memory for the cost of %u ops", ops->count);
    }
    lives_find(lives, graph, ops);
    for (uint32_t v = 0; v < graph->value_count; v++)
        if (lives[v].first != UINT32_MAX) {
            change[lives[v].first] += value_bytes(&graph->values[v], samples);
            change[lives[v].last + 1] -= value_bytes(&graph->values[v], samples);
        }
    for (uint32_t i = 0; i < ops->count; i++) {
        alive += change[i];
        most = alive > most ? alive : most;
    }
    gp_free(lives);
    gp_free(change);
    *out = most;
    return GP_OK;
}

gp_status gp_graph_memory(gp_memory_estimate *out, const gp_graph *graph, gp_phase phase, int64_t samples,
                          gp_solver solver, gp_error *err)
{
    gp_memory_estimate estimate = { .parameters = (double)graph->blob_count * sizeof(float) };
    gp_status status = peak_find(&estimate.activations, graph, phase, samples, err);

    if (status != GP_OK)
        return status;
    if (phase == GP_PHASE_TRAIN) {
        estimate.gradients = estimate.parameters;
        estimate.state = estimate.parameters * gp_solver_state(solver);
    }
    estimate.total = estimate.parameters + estimate.gradients + estimate.state + estimate.activations;
    *out = estimate;
    return GP_OK;
}
