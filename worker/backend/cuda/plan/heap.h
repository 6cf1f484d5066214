/* The device memory of one plan: blocks that are freed together. Private to this folder.
 *
 * Single blocks are never freed. A part of a plan that can fail saves `count` first, and on failure
 * frees the blocks added since. */
#ifndef GP_CUDA_HEAP_H
#define GP_CUDA_HEAP_H

#include "worker/backend/cuda/libraries/device.h"

enum { HEAP_BLOCKS_MAX = 32 }; /* maximum number of blocks; a device-resident training uses 21 */

/* A block of device memory. */
typedef struct heap_block {
    void *at;
    size_t bytes;
    bool summed; /* from gp_device_alloc_summed() */
} heap_block;

/* All blocks of a plan. */
typedef struct plan_heap {
    gp_device *device; /* not owned */
    heap_block blocks[HEAP_BLOCKS_MAX];
    uint32_t count;
} plan_heap;

/* Allocate a block and store its address in `out`, which points to a pointer of any type. */
gp_status gp_heap_take(plan_heap *heap, void *out, size_t bytes, gp_error *err);

/* Allocate a block that NCCL sums over the ranks without copies. */
gp_status gp_heap_take_summed(plan_heap *heap, void *out, size_t bytes, gp_error *err);

/* Free all blocks except the first `count`. */
void gp_heap_cut(plan_heap *heap, uint32_t count);

/* Return the size of all blocks in bytes. */
size_t gp_heap_bytes(const plan_heap *heap);

#endif
