/* Interface of a segment: consecutive plan ops that one kernel library executes together.
 *
 * cpu.c divides a graph's op list into segments. The lanes kernels (lanes.h) execute small
 * networks, oneDNN executes large ones, and loops (loops.h) execute single ops. Gradients that the
 * trainer computes itself also form a segment (factors.h). The oneDNN segment is a module,
 * gradpool_onednn.so, that exports
 *     const gp_segment_ops gp_segment_onednn;              (both with default visibility)
 *     const gp_segment_build gp_segment_onednn_build;
 * The module is loaded when a plan first needs it. Workers that train small networks never map
 * libdnnl. An upgrade may have replaced the file since the worker started, so the worker compares
 * the module's gp_segment_build with its own.
 *
 * Between segments, a value is stored in a plan buffer, dense and in logical order:
 *   activations, activation gradients   float32 [micro_batch][C][H][W]
 *   saved values                        their dtype, [micro_batch][shape]
 *   parameters, gradients               at the tensor's offset in the blob
 * Within a segment, values may have any layout. A segment may keep packed parameter copies and
 * refreshes them in every run with batch->first.
 *
 * Every segment computes with request->threads OpenMP threads, including the calling thread. cpu.c
 * pins them and enables flush-to-zero in each. Work is assigned to threads in a fixed way and sums
 * have a fixed order, so equal calls give bitwise identical results. */
#ifndef GP_SEGMENT_H
#define GP_SEGMENT_H

#include "worker/backend/backend.h"
#include "worker/backend/cpu/base/profile.h"

#define GP_SEGMENT_ONEDNN_SYMBOL "gp_segment_onednn"
#define GP_SEGMENT_ONEDNN_BUILD  "gp_segment_onednn_build"
#define GP_SEGMENT_ONEDNN_MODULE "gradpool_onednn.so"

/* Version of gradpool, and sizes of the structs that a worker shares with the module. The two
 * are compatible if all bytes are equal. */
typedef struct gp_segment_build {
    char version[32];
    uint32_t sizes[8];
} gp_segment_build;

/* Initializer for the build of the including file. */
#define GP_SEGMENT_BUILD                                                                                     \
    {                                                                                                        \
        GP_BUILD,                                                                                            \
        {                                                                                                    \
            sizeof(gp_segment_ops), sizeof(gp_segment_request), sizeof(gp_graph), sizeof(gp_op),             \
                sizeof(gp_value), sizeof(gp_batch), sizeof(gp_plan_memory), sizeof(gp_plan_times)            \
        }                                                                                                    \
    }

/* Opaque; each implementation defines the struct. */
typedef struct gp_segment gp_segment;

/* Arguments of gp_segment_ops.compile(). All pointers except `ops` and `values` stay valid while
 * the segment exists. */
typedef struct gp_segment_request {
    const gp_graph *graph;
    gp_phase phase;
    const gp_op *ops; /* points into graph->ops[phase].op */
    uint32_t count;   /* op count, at least 1 */
    uint32_t micro_batch;
    uint32_t threads;
    gp_dtype sample_dtype; /* for segments with reads_samples */
    /* precision within the segment; values between segments are always as described above */
    gp_precision precision;
    const gp_plan_memory *memory; /* parameters, gradients, sums and scores; points into the plan */
    /* [graph->value_count]: buffers of values that cross a segment border; NULL: the value does
     * not. A value with a buffer must be read from it and written to it. The network input has a
     * buffer unless reads_samples is set. The array is read during compile() only; the buffers stay
     * valid. */
    void *const *values;
    const char *kernels; /* gp_backend_options.kernels; may be NULL */
} gp_segment_request;

/* Function table of a segment implementation. */
typedef struct gp_segment_ops {
    const char *name; /* "lanes-avx2", "onednn" */
    /* The segment reads the network input from batch->samples and normalises it with spec->scale
     * and offset. false: the plan normalises the input into a buffer. */
    bool reads_samples;
    /* Count the ops from ops[0] on that can form one segment. The result must not depend on the
     * host load. The caller may compile fewer ops. NULL: cpu.c knows by itself. */
    size_t (*claim)(const gp_graph *graph, gp_phase phase, const gp_op *ops, size_t count);
    gp_status (*compile)(gp_segment **out, const gp_segment_request *request, gp_error *err);
    void (*free)(gp_segment *segment); /* accepts NULL */
    /* Execute the segment; synchronous. Parameter gradients are overwritten if batch->first is set,
     * otherwise added to; sums are always added to. With count 0 and `first`, gradients become
     * zero. Samples beyond batch->count change no gradient and no sum, and their rows in buffers
     * may hold any value before and after. Adds wall time to *times, divided at ops.forward_count.
     * Neither allocates memory nor makes system calls. */
    gp_status (*run)(gp_segment *segment, const gp_batch *batch, gp_plan_times *times, gp_error *err);
    void (*rebind)(gp_segment *segment, const float *parameters); /* as gp_backend_ops.rebind */
    size_t (*memory_bytes)(const gp_segment *segment);
    /* return true if the segment computes in bfloat16; NULL: never */
    bool (*narrow)(const gp_segment *segment);
    /* Start measuring if `fn` is NULL; otherwise call `fn` for each operation of a run in order.
     * NULL: the segment does not measure single operations. */
    void (*profile)(gp_segment *segment, gp_profile_fn fn, void *context);
} gp_segment_ops;

#endif
