/* Device memory that every call of a plan reads and writes, other than activations. Private to this
 * folder. */
#ifndef GP_CUDA_BUFFERS_H
#define GP_CUDA_BUFFERS_H

#include "worker/backend/backend.h"
#include "worker/backend/cuda/libraries/device.h"

/* ---- heap: a plan's device memory, blocks that are freed together ----
 *
 * Single blocks are never freed. A plan part that can fail saves `count` first, and on failure
 * frees the blocks added since. */

enum { HEAP_BLOCKS_MAX = 32 }; /* maximum block count; a device-resident training uses 25 */

/* A device memory block. */
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

/* Free all blocks except the first `count`. */
void gp_heap_cut(plan_heap *heap, uint32_t count);

/* Return the total block size in bytes. */
size_t gp_heap_bytes(const plan_heap *heap);

/* ---- buffers ---- */

/* Number of sums: GP_SUMS, then the header of a device-resident step: samples, stop, pause. */
enum { PLAN_SUMS = GP_SUMS + 3 };

/* A plan's buffers. */
typedef struct plan_buffers {
    /* [micro_batch], as stored; NULL: inference, where slots contain the samples */
    void *samples;
    void *targets;        /* [micro_batch] */
    float *scores;        /* [micro_batch] */
    float *parameters;    /* parameter blob */
    float *gradients;     /* same layout; NULL: inference */
    float *class_weights; /* class weights of all ops that have any, in op order; NULL: none */
    double *sums;         /* [PLAN_SUMS] */
    gp_kernel_call *call; /* current call */
} plan_buffers;

/* Allocate the buffers from the heap. */
gp_status gp_buffers_take(plan_buffers *buffers, plan_heap *heap, const gp_graph *graph,
                          const gp_plan_options *options, gp_error *err);

/* Return the class weights of op `index`. NULL: it has none. */
float *gp_buffers_class_weights(const plan_buffers *buffers, const gp_graph *graph, gp_phase phase,
                                uint32_t index);

/* Upload the parameters from the host. */
gp_status gp_buffers_put_parameters(const plan_buffers *buffers, gp_device *device, const gp_graph *graph,
                                    const float *parameters, gp_error *err);

/* Set the sums to 0. */
gp_status gp_buffers_clear_sums(const plan_buffers *buffers, gp_device *device, gp_error *err);

#endif
