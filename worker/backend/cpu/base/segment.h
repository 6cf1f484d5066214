/* segment.h -- a run of ops of one plan that one library of kernels executes together.
 *
 * cpu.c cuts a graph's op list into segments: our lanes kernels (lanes.h), which can run every op, and
 * oneDNN for large nets; gradients that are left to the trainer are a segment too (factors.h).  oneDNN's is a
 * module, gradpool_onednn.so, that exports
 *     const gp_segment_ops gp_segment_onednn;        (visibility default)
 * and is loaded when a plan first wants it, so that a worker training a small net never maps libdnnl.
 *
 * Between segments a value lives in a buffer of the plan, dense and in logical order:
 *   activations, activation gradients   float32 [micro_batch][C][H][W]
 *   saved values                        their dtype, [micro_batch][shape]
 *   parameters, gradients               the tensor's place in the blob
 * Within a segment values have whatever layout the segment likes, and it keeps private packed copies of
 * parameters, refreshed by every run whose batch->first is set.
 *
 * Threads: every segment computes with request->threads OpenMP threads, the caller being the first; cpu.c has
 * pinned them and set flush-to-zero in each.  A fixed split of work over threads and a fixed order of sums:
 * equal calls give equal bits. */
#ifndef GP_SEGMENT_H
#define GP_SEGMENT_H

#include "worker/backend/backend.h"
#include "worker/backend/cpu/base/profile.h"

#define GP_SEGMENT_ONEDNN_SYMBOL "gp_segment_onednn"
#define GP_SEGMENT_ONEDNN_MODULE "gradpool_onednn.so"

typedef struct gp_segment gp_segment;

/* What a segment is made for.  All pointers but `ops` and `values` stay valid while the segment lives. */
typedef struct gp_segment_request {
    const gp_graph *graph;
    gp_phase phase;
    const gp_op *ops; /* within graph->ops[phase].op */
    uint32_t count;   /* ops claimed, >= 1 */
    uint32_t micro_batch;
    uint32_t threads;
    gp_dtype sample_dtype;        /* for segments with reads_samples */
    gp_precision precision;       /* within the segment; what crosses its borders is as below */
    const gp_plan_memory *memory; /* parameters, gradients, sums, scores; copied by cpu.c into the plan */
    /* [graph->value_count] buffers of values that cross a segment border, NULL for those that do not: a value
     * with a buffer and read here must be read there, one written here must be written there.  The network's
     * input has one unless reads_samples.  The array is read during compile() only, the buffers stay. */
    void *const *values;
    const char *kernels; /* gp_backend_options.kernels, may be NULL */
} gp_segment_request;

typedef struct gp_segment_ops {
    const char *name; /* "lanes-avx2", "onednn" */
    /* Takes the network's input from batch->samples itself, normalising by spec->scale and offset.  Else the
     * plan does it beforehand, and the input is a value with a buffer. */
    bool reads_samples;
    /* Return how many ops from ops[0] on it can run as one segment; 0: not even ops[0]. The result must not depend on the
     * load of the host. The caller may compile fewer. NULL: cpu.c does not ask. */
    size_t (*claim)(const gp_graph *graph, gp_phase phase, const gp_op *ops, size_t count);
    gp_status (*compile)(gp_segment **out, const gp_segment_request *request, gp_error *err);
    void (*free)(gp_segment *segment); /* accepts NULL */
    /* Synchronous.  Parameter gradients are overwritten when batch->first, else added to, as sums always are; with count 0
     * and first they become zeros.  Samples beyond batch->count reach no gradient and no sum; their rows in
     * crossing buffers may hold anything on entry and on return.  Adds wall time to *times, split at
     * ops.forward_count.  Allocates nothing and makes no system call. */
    gp_status (*run)(gp_segment *segment, const gp_batch *batch, gp_plan_times *times, gp_error *err);
    void (*rebind)(gp_segment *segment, const float *parameters); /* as of gp_backend_ops */
    size_t (*memory_bytes)(const gp_segment *segment);
    bool (*narrow)(const gp_segment *segment); /* whether it computes in bfloat16; NULL: never */
    /* fn NULL: count times from now on; else call it for each piece of work of a run, in order.  NULL: the segment
     * does not tell its time apart. */
    void (*profile)(gp_segment *segment, gp_profile_fn fn, void *context);
} gp_segment_ops;

#endif
