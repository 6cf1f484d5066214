/* heap.h -- the device memory of one plan: blocks that are freed together.  Private to this folder.
 *
 * A plan never frees a single block.  A part of a plan that may fail half-way notes `count` first and
 * cuts the heap back to it. */
#ifndef GP_CUDA_HEAP_H
#define GP_CUDA_HEAP_H

#include "worker/backend/cuda/libraries/device.h"

enum { HEAP_BLOCKS_MAX = 32 }; /* a plan that keeps a training has 21 */

typedef struct heap_block {
    void *at;
    size_t bytes;
    bool summed; /* from gp_device_alloc_summed() */
} heap_block;

typedef struct plan_heap {
    gp_device *device; /* not owned */
    heap_block blocks[HEAP_BLOCKS_MAX];
    uint32_t count;
} plan_heap;

/* Allocate a block and store its address at `out`, a pointer of any type. */
gp_status gp_heap_take(plan_heap *heap, void *out, size_t bytes, gp_error *err);
/* The same in memory that NCCL sums over the ranks without a copy. */
gp_status gp_heap_take_summed(plan_heap *heap, void *out, size_t bytes, gp_error *err);
/* Free all blocks but the first `count`. */
void gp_heap_cut(plan_heap *heap, uint32_t count);
size_t gp_heap_bytes(const plan_heap *heap);

#endif
