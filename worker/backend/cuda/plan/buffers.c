/* Device memory that every call of a plan reads and writes, other than activations. */
#include "worker/backend/cuda/plan/buffers.h"

#include <assert.h>
#include <string.h>

#include "common/base/memory/alloc.h"

/* ---- heap ---- */

/* Allocate a block. `summed`: NCCL sums it over the ranks without copies. */
static gp_status heap_take(plan_heap *heap, void *out, size_t bytes, bool summed, gp_error *err)
{
    gp_status (*alloc)(gp_device *, void **, size_t, gp_error *) =
        summed ? gp_device_alloc_summed : gp_device_alloc;
    void *block;
    gp_status status = alloc(heap->device, &block, bytes == 0 ? 1 : bytes, err);

    if (status != GP_OK)
        return status;
    assert(heap->count < HEAP_BLOCKS_MAX);
    heap->blocks[heap->count++] = (heap_block){ .at = block, .bytes = bytes, .summed = summed };
    memcpy(out, &block, sizeof(block));
    return GP_OK;
}

gp_status gp_heap_take(plan_heap *heap, void *out, size_t bytes, gp_error *err)
{
    return heap_take(heap, out, bytes, false, err);
}

void gp_heap_cut(plan_heap *heap, uint32_t count)
{
    while (heap->count > count) {
        const heap_block *block = &heap->blocks[--heap->count];

        if (block->summed)
            gp_device_free_summed(heap->device, block->at);
        else
            gp_device_free(heap->device, block->at);
    }
}

size_t gp_heap_bytes(const plan_heap *heap)
{
    size_t bytes = 0;

    for (uint32_t i = 0; i < heap->count; i++)
        bytes += heap->blocks[i].bytes;
    return bytes;
}

/* ---- buffers ---- */

/* Return the class weight count for a loss. */
static size_t classes_of(const gp_graph *graph, const gp_op *op)
{
    return op->weights == NULL ? 0 : (size_t)graph->values[op->in[0]].shape.dim[0];
}

/* Return the total class weight count for all ops before `end`. */
static size_t classes_before(const gp_graph *graph, const gp_ops *ops, uint32_t end)
{
    size_t count = 0;

    for (uint32_t i = 0; i < end; i++)
        count += classes_of(graph, &ops->op[i]);
    return count;
}

static gp_status take_class_weights(plan_buffers *buffers, plan_heap *heap, const gp_graph *graph,
                                    const gp_ops *ops, gp_error *err)
{
    const size_t count = classes_before(graph, ops, ops->count);
    float *weights;
    size_t at = 0;
    gp_status status;

    if (count == 0)
        return GP_OK;
    weights = gp_calloc(count, sizeof(*weights));
    if (weights == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for the weights of %zu classes", count);
    for (uint32_t i = 0; i < ops->count; i++)
        for (size_t k = 0; k < classes_of(graph, &ops->op[i]); k++)
            weights[at++] = (float)ops->op[i].weights[k];
    status = gp_heap_take(heap, &buffers->class_weights, count * sizeof(float), err);
    if (status == GP_OK)
        status = gp_device_upload(heap->device, buffers->class_weights, weights, count * sizeof(float), err);
    gp_free(weights);
    return status;
}

gp_status gp_buffers_take(plan_buffers *buffers, plan_heap *heap, const gp_graph *graph,
                          const gp_plan_options *options, gp_error *err)
{
    const size_t rows = options->micro_batch, blob = graph->blob_count * sizeof(float);
    const size_t sample = (size_t)gp_shape_count(&graph->spec->input) * gp_dtype_bytes(options->sample_dtype);
    const bool train = options->phase == GP_PHASE_TRAIN;
    gp_status status = GP_OK;

    if (train)
        status = gp_heap_take(heap, &buffers->samples, rows * sample, err);
    if (status == GP_OK)
        status = gp_heap_take(heap, &buffers->targets, rows * graph->target_bytes, err);
    if (status == GP_OK)
        status = gp_heap_take(heap, &buffers->scores, rows * graph->score_count * sizeof(float), err);
    if (status == GP_OK)
        status = gp_heap_take(heap, &buffers->parameters, blob, err);
    if (status == GP_OK && train)
        status = heap_take(heap, &buffers->gradients, blob, true, err);
    if (status == GP_OK)
        status = gp_heap_take(heap, &buffers->sums, PLAN_SUMS * sizeof(double), err);
    if (status == GP_OK)
        status = gp_heap_take(heap, &buffers->call, sizeof(*buffers->call), err);
    return status == GP_OK ? take_class_weights(buffers, heap, graph, &graph->ops[options->phase], err)
                           : status;
}

float *gp_buffers_class_weights(const plan_buffers *buffers, const gp_graph *graph, gp_phase phase,
                                uint32_t index)
{
    const gp_ops *ops = &graph->ops[phase];

    return ops->op[index].weights == NULL ? NULL : buffers->class_weights + classes_before(graph, ops, index);
}

gp_status gp_buffers_put_parameters(const plan_buffers *buffers, gp_device *device, const gp_graph *graph,
                                    const float *parameters, gp_error *err)
{
    return gp_device_upload(device, buffers->parameters, parameters, graph->blob_count * sizeof(float), err);
}

gp_status gp_buffers_clear_sums(const plan_buffers *buffers, gp_device *device, gp_error *err)
{
    return gp_device_clear(device, buffers->sums, PLAN_SUMS * sizeof(double), err);
}
