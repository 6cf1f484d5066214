/* The device memory of one plan. */
#include "worker/backend/cuda/plan/heap.h"

#include <assert.h>
#include <string.h>

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

gp_status gp_heap_take_summed(plan_heap *heap, void *out, size_t bytes, gp_error *err)
{
    return heap_take(heap, out, bytes, true, err);
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
