#include "tests/ref/run.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/memory/alloc.h"
#include "common/base/rng.h"
#include "tests/ref/ops.h"

static double *doubles_new(size_t count)
{
    double *block = gp_calloc(count + 1, sizeof(double));

    if (block == NULL) {
        fprintf(stderr, "the oracle: no memory for %zu numbers\n", count);
        abort();
    }
    return block;
}

/* Return the element count of a value. Parameters and sums have no sample axis. */
static size_t value_count(const gp_value *value, int64_t samples)
{
    size_t count = (size_t)gp_shape_count(&value->shape);

    if (value->role == GP_VALUE_PARAMETER || value->role == GP_VALUE_PARAMETER_GRADIENT ||
        value->role == GP_VALUE_CALL || value->role == GP_VALUE_SUMS)
        return count;
    return count * (size_t)samples;
}

static void run_fill_target(const gp_graph *graph, const gp_ref_batch *batch, uint32_t index, double *data)
{
    const gp_end *end = graph->ends;

    while (end->truth != index)
        end++;
    const size_t each = (size_t)gp_shape_count(&end->target.shape);

    for (int64_t n = 0; n < batch->count; n++)
        for (size_t e = 0; e < each; e++) {
            const uint8_t *at = (const uint8_t *)batch->targets + (size_t)n * graph->target_bytes +
                                4 * (end->target_first + e);

            *data++ = end->target.dtype == GP_I32 ? *(const int32_t *)at : (double)*(const float *)at;
        }
}

static void run_fill(const gp_graph *graph, const gp_ref_batch *batch, uint32_t index, double *data)
{
    const gp_value *value = &graph->values[index];
    size_t count = value_count(value, batch->count);

    if (value->role == GP_VALUE_INPUT)
        memcpy(data, batch->input, count * sizeof(*data));
    else if (value->role == GP_VALUE_PARAMETER)
        memcpy(data, batch->blob + graph->parameters[value->parameter].offset, count * sizeof(*data));
    else if (value->role == GP_VALUE_TARGET)
        run_fill_target(graph, batch, index, data);
    else if (value->role != GP_VALUE_PARAMETER_GRADIENT && value->role != GP_VALUE_SUMS)
        for (size_t i = 0; i < count; i++)
            data[i] = NAN; /* makes reads before the first write visible */
}

static gp_ref_tensor run_tensor(gp_ref_run *run, const gp_graph *graph, const gp_ref_batch *batch,
                                uint32_t index)
{
    if (index == GP_NO_VALUE)
        return (gp_ref_tensor){ .data = NULL };
    if (run->values[index] == NULL &&
        (graph->values[index].role != GP_VALUE_TARGET || batch->targets != NULL)) {
        run->values[index] = doubles_new(value_count(&graph->values[index], batch->count));
        run_fill(graph, batch, index, run->values[index]);
    }
    return (gp_ref_tensor){ .shape = graph->values[index].shape, .data = run->values[index] };
}

static void run_op(gp_ref_run *run, const gp_graph *graph, const gp_ref_batch *batch, const gp_op *op,
                   double scale)
{
    gp_ref_call call = { .op = op,
                         .samples = batch->count,
                         .seed = batch->seed,
                         .step = (uint32_t)batch->step,
                         .position = (uint32_t)batch->position };

    for (int i = 0; i < GP_OP_VALUES_MAX; i++) {
        call.in[i] = run_tensor(run, graph, batch, op->in[i]);
        call.out[i] = run_tensor(run, graph, batch, op->out[i]);
    }
    gp_ref_op_find(op->code)(&call);
    for (int i = 0; i < GP_OP_VALUES_MAX; i++) {
        const gp_value *value = &graph->values[op->out[i] == GP_NO_VALUE ? 0 : op->out[i]];

        if (op->out[i] == GP_NO_VALUE || value->dtype != GP_F32)
            continue; /* indices are int32, sums float64 */
        for (size_t e = 0; e < value_count(value, batch->count); e++)
            call.out[i].data[e] *= scale;
    }
}

gp_ref_run *gp_ref_run_new(const gp_graph *graph, gp_phase phase, const gp_ref_batch *batch)
{
    gp_ref_run *run = gp_calloc(1, sizeof(*run));
    const gp_ops *ops = &graph->ops[phase];

    assert(phase == GP_PHASE_INFER || batch->targets != NULL);
    if (run != NULL)
        run->values = gp_calloc(graph->value_count, sizeof(*run->values));
    if (run == NULL || run->values == NULL)
        abort();
    run->value_count = graph->value_count;
    for (uint32_t i = 0; i < ops->count; i++) {
        bool scaled = batch->scale != 0.0 && batch->scaled_op == i;

        run_op(run, graph, batch, &ops->op[i], scaled ? batch->scale : 1.0);
    }
    if (run->values[graph->sums] != NULL)
        memcpy(run->sums, run->values[graph->sums], sizeof(run->sums));
    if (phase == GP_PHASE_INFER)
        run->scores = run->values[graph->ends[0].scores];
    if (phase != GP_PHASE_TRAIN)
        return run;
    run->gradients = doubles_new(graph->blob_count);
    for (uint32_t p = 0; p < graph->parameter_count; p++) {
        const gp_parameter *parameter = &graph->parameters[p];

        /* Asserted, not skipped: a trainable parameter without a gradient is a bug in the
         * lowering. */
        assert(run->values[parameter->gradient] != NULL || !gp_parameter_learns(parameter));
        if (run->values[parameter->gradient] == NULL)
            continue;
        memcpy(run->gradients + parameter->offset, run->values[parameter->gradient],
               (size_t)parameter->count * sizeof(double));
    }
    return run;
}

void gp_ref_run_free(gp_ref_run *run)
{
    if (run == NULL)
        return;
    for (uint32_t i = 0; i < run->value_count; i++)
        gp_free(run->values[i]);
    gp_free(run->values);
    gp_free(run->gradients);
    gp_free(run);
}

void *gp_ref_targets_new(const gp_graph *graph, int64_t count, uint64_t seed)
{
    uint8_t *targets = malloc((size_t)count * graph->target_bytes + 1);

    if (targets == NULL)
        abort();
    for (int64_t n = 0; n < count; n++)
        for (uint32_t i = 0; i < graph->end_count; i++)
            for (int64_t e = 0; e < gp_shape_count(&graph->ends[i].target.shape); e++) {
                uint8_t *at =
                    targets + (size_t)n * graph->target_bytes + 4 * (graph->ends[i].target_first + (size_t)e);
                uint32_t words[4];

                gp_rng_draw(words, seed, i, 0, (uint32_t)n, (uint32_t)e);
                if (graph->ends[i].target.dtype == GP_I32)
                    *(int32_t *)at =
                        words[1] % 8 == 0 ? -1 : (int32_t)(words[0] % graph->ends[i].target.classes);
                else
                    *(float *)at = words[1] % 8 == 0 ? NAN : (float)((double)words[0] * 0x1p-31 - 1.0);
            }
    return targets;
}

void gp_ref_input(const gp_netspec *spec, gp_dtype dtype, const void *samples, int64_t count, double *input)
{
    const int64_t plane = spec->input.dim[1] * spec->input.dim[2];

    assert(dtype == GP_U8 || dtype == GP_F32);
    for (int64_t i = 0; i < count * gp_shape_count(&spec->input); i++) {
        int64_t c = spec->normalize_count == 1 ? 0 : i / plane % spec->input.dim[0];
        double stored = dtype == GP_U8 ? ((const uint8_t *)samples)[i] : ((const float *)samples)[i];

        input[i] = stored * spec->scale[c] + spec->offset[c];
    }
}

void gp_ref_widen(const float *from, size_t count, double *to)
{
    for (size_t i = 0; i < count; i++)
        to[i] = from[i];
}

/* Return the larger error. NaN counts as infinite, because fmax() would ignore it. */
static double error_join(double largest, double expected, double got)
{
    double error = fabs(expected - got);

    return isnan(error) ? INFINITY : fmax(largest, error);
}

static double error_scale(const double *expected, size_t count)
{
    double largest = 0.0;

    for (size_t i = 0; i < count; i++)
        largest = fmax(largest, fabs(expected[i]));
    return largest == 0.0 ? 1.0 : largest;
}

double gp_ref_error(const double *expected, const double *got, size_t count)
{
    double largest = 0.0;

    for (size_t i = 0; i < count; i++)
        largest = error_join(largest, expected[i], got[i]);
    return largest / error_scale(expected, count);
}

double gp_ref_error_f32(const double *expected, const float *got, size_t count)
{
    double largest = 0.0;

    for (size_t i = 0; i < count; i++)
        largest = error_join(largest, expected[i], got[i]);
    return largest / error_scale(expected, count);
}
