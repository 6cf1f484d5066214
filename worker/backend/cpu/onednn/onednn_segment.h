/* onednn_segment.h -- the parts of a segment that runs on oneDNN; private to onednn*.c.
 *
 *   ops --onednn_translate.h--> steps over tensors in buffers --onednn_memory.c--> one arena, memory objects
 *
 * A step is a primitive of oneDNN or a loop of ours (onednn_loops.c), with the tensors it reads and writes; a
 * run is one pass over the steps.  A tensor is a descriptor on a buffer; several tensors may lie on one buffer
 * (a flattened activation).  Buffers whose contents need not outlive a run share the arena by their lifetimes,
 * counted in steps.
 *
 * A value of the graph has up to two forms: DENSE, logical order, what crosses segment borders and what a
 * fully connected layer multiplies; and PACKED, nhwc, what convolutions and pooling want.  A form that is asked
 * for and not there is made from another by a reorder, once.  Where both orders are the same bytes
 * (one channel, one pixel, or a vector) the forms share a buffer.
 *
 * A narrow segment keeps activations and their gradients in bfloat16, and packs weights so.  Then either order has a
 * wide form too, float32: of what crosses, and for the loops and primitives that know no bfloat16.  In other segments
 * the wide forms are the same as the plain ones. */
#ifndef GP_ONEDNN_SEGMENT_H
#define GP_ONEDNN_SEGMENT_H

#include "worker/backend/cpu/onednn/dnnl_shim.h"
#include "worker/backend/cpu/loops/loops.h"
#include "worker/backend/cpu/base/segment.h"
#include "worker/backend/cpu/onednn/winograd.h"

typedef enum gp_onednn_form { DENSE, PACKED, WIDE_DENSE, WIDE_PACKED, FORMS } gp_onednn_form;

enum { ONEDNN_ARGUMENTS_MAX = 2 * GP_OP_VALUES_MAX, ONEDNN_ALIGNMENT = 64 };
#define ONEDNN_NONE UINT32_MAX /* no such tensor, buffer, primitive */

typedef enum gp_onednn_life {
    LIFE_FOREIGN, /* somebody else's memory: blob, arena of the exchange, crossing values */
    LIFE_KEPT,    /* ours from run to run: packed weights */
    LIFE_RUN,     /* ours from the first step that names it to the last */
} gp_onednn_life;

typedef struct gp_onednn_buffer {
    gp_onednn_life life;
    void *data; /* NULL until placed, but for FOREIGN */
    size_t bytes, offset;
    uint32_t first, last; /* steps */
} gp_onednn_buffer;

typedef struct gp_onednn_tensor {
    shim_md md; /* owned */
    uint32_t buffer;
    dnnl_memory_t memory; /* owned; made when buffers are placed */
} gp_onednn_tensor;

/* A parameter gradient is overwritten by the first call of a step and added to by later ones, and packed
 * weights are refreshed by the first: some steps belong to one sort of call only. */
typedef enum gp_onednn_when { WHEN_ALWAYS, WHEN_FIRST, WHEN_LATER } gp_onednn_when;

/* Of a loop of onednn_norm.c: an argument's role. */
typedef enum gp_onednn_slot {
    SLOT_A, /* the terms of a mix: activations, or gradients of them */
    SLOT_B,
    SLOT_MASK,
    SLOT_X,
    SLOT_RUNNING,
    SLOT_SCALE,
    SLOT_SUMS, /* gradients of parameters, or the sums of statistics in their place */
    SLOT_SQUARES,
    SLOT_MOMENTS, /* of term A, or of x: mean, then inverse deviation */
    SLOT_FACTOR,  /* scale times inverse deviation */
    SLOT_OFFSET,
    SLOT_MOMENTS_B,
    SLOT_FACTOR_B,
    SLOT_OFFSET_B,
    SLOT_PARTIALS,
    SLOT_OUT,
    SLOT_KEPT, /* the mix of a gradient, where somebody else reads it too */
} gp_onednn_slot;

/* A + B, normalised or channels of something wider; then cut to [low, high], or 0 where the mask does not lie
 * between them. */
typedef struct gp_onednn_mix {
    size_t stride[2], channel[2]; /* of a term: numbers of a pixel, the first of them that is meant */
    bool bounded;
    float low, high;
    double epsilon;
    size_t chunk_rows, chunks; /* of sums over rows */
} gp_onednn_mix;

typedef struct gp_onednn_step gp_onednn_step;
typedef struct gp_onednn_run gp_onednn_run;
/* Returns GP_OK, or what the batch is wrong in. */
typedef gp_status (*gp_onednn_loop)(const gp_onednn_step *step, const gp_onednn_run *run, gp_error *err);

struct gp_onednn_step {
    gp_onednn_when when;
    const char *what; /* of a profile */
    uint32_t layer;
    dnnl_primitive_t primitive; /* borrowed from the segment; NULL: a loop */
    gp_onednn_loop loop;
    uint32_t argument_count;
    int roles
        [ONEDNN_ARGUMENTS_MAX]; /* DNNL_ARG_...; of a plain loop, its slot: outputs from GP_OP_VALUES_MAX on */
    uint32_t tensors[ONEDNN_ARGUMENTS_MAX];
    bool in_place; /* the last tensor may lie on the first one's buffer if nobody reads that later */
    dnnl_exec_arg_t arguments[ONEDNN_ARGUMENTS_MAX]; /* filled when buffers are placed, as is data */
    void *data[ONEDNN_ARGUMENTS_MAX];
    /* Of loops: */
    size_t count;            /* elements of one sample, or of a parameter */
    size_t channels, pixels; /* of dropout and samples: element channel * pixels + pixel lies at
                              * pixel * channels + channel; channels = 1 where the order is dense */
    double rate;
    gp_onednn_mix mix;
    gp_winograd winograd;
    const gp_loop *plain; /* of loops.h, with the op and the order of its activations */
    const gp_op *op;
    bool packed;
    bool narrow; /* its activations are bfloat16 */
};

/* An argument by its slot; NULL: there is none. */
static inline void *gp_onednn_data(const gp_onednn_step *step, gp_onednn_slot slot)
{
    for (uint32_t i = 0; i < step->argument_count; i++)
        if (step->roles[i] == (int)slot)
            return step->data[i];
    return NULL;
}

/* What a loop is given beside its step. */
struct gp_onednn_run {
    const gp_segment *segment;
    const gp_batch *batch;
};

/* Crossing values whose rows beyond batch->count may hold anything: made zero before they are read, so that
 * zero gradients meet finite activations. */
typedef struct gp_onednn_entry {
    float *data;
    size_t count; /* elements of one sample */
} gp_onednn_entry;

typedef struct gp_onednn_range {
    size_t offset, count; /* float32 elements of the blob */
} gp_onednn_range;

typedef struct gp_onednn_list {
    uint32_t count, capacity;
} gp_onednn_list;

struct gp_segment {
    const gp_graph *graph;
    gp_plan_memory memory;
    gp_phase phase;
    uint32_t micro_batch, threads;
    gp_dtype sample_dtype;
    bool narrow;
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    gp_onednn_buffer *buffers;
    gp_onednn_list buffer_list;
    gp_onednn_tensor *tensors;
    gp_onednn_list tensor_list;
    dnnl_primitive_t *primitives;
    gp_onednn_list primitive_list;
    gp_onednn_step *steps;
    gp_onednn_list step_list;
    int64_t *step_ns; /* [step_list.count] spent in each; NULL: nobody asked */
    gp_onednn_entry *entries;
    gp_onednn_list entry_list;
    gp_onednn_range *gradients; /* written here: zeroed for a rank without samples */
    gp_onednn_list gradient_list;
    uint32_t forward_steps; /* steps[0 .. forward_steps) are of the forward pass */
    uint32_t scratch;       /* buffer of all primitives' scratchpads; they run one after the other */
    double *losses;         /* [micro_batch] nats of each sample, summed in sample order by one thread */
    bool *hits;             /* [micro_batch] whether its largest logit is the label's */
    unsigned char *arena;
    size_t arena_bytes;
};

/* --- onednn_memory.c -------------------------------------------------------------------------------- */

/* Room for one more element: *array grows; returns false when memory is out. */
bool gp_onednn_grow(void **array, gp_onednn_list *list, size_t size);

gp_status gp_onednn_buffer_add(gp_segment *segment, uint32_t *out, gp_onednn_life life, void *data,
                               size_t bytes, gp_error *err);
/* A tensor on a buffer.  Takes md, also on failure. */
gp_status gp_onednn_tensor_add(gp_segment *segment, uint32_t *out, shim_md md, uint32_t buffer,
                               gp_error *err);
/* The step is copied; its tensors' buffers live at least until it. */
gp_status gp_onednn_step_add(gp_segment *segment, const gp_onednn_step *step, gp_error *err);
/* After the last step: lay out the arena, take it, make memory objects, fill steps' arguments. */
gp_status gp_onednn_place(gp_segment *segment, gp_error *err);

/* Tensors that lie in the blob of parameters lie in that one. */
void gp_onednn_rebind(gp_segment *segment, const float *parameters);

/* A failed call of oneDNN as an error of ours; GP_OK for dnnl_success. */
gp_status gp_onednn_check(dnnl_status_t status, const char *what, gp_error *err);

/* --- onednn_ops.c ----------------------------------------------------------------------------------- */

/* Translate all ops of the request into steps. */
gp_status gp_onednn_translate(gp_segment *segment, const gp_segment_request *request, gp_error *err);

/* --- onednn_loops.c --------------------------------------------------------------------------------- */

/* tensors: in declaration order below; `count` elements per sample, micro_batch samples. */
gp_status gp_onednn_loop_samples(const gp_onednn_step *, const gp_onednn_run *, gp_error *); /* -> x packed */
gp_status gp_onednn_loop_copy(const gp_onednn_step *, const gp_onednn_run *, gp_error *);    /* x -> y */
gp_status gp_onednn_loop_dropout(const gp_onednn_step *, const gp_onednn_run *,
                                 gp_error *); /* x -> y; also backward */
gp_status gp_onednn_loop_accumulate(const gp_onednn_step *, const gp_onednn_run *,
                                    gp_error *); /* part -> gradient */
gp_status gp_onednn_loop_bias(const gp_onednn_step *, const gp_onednn_run *,
                              gp_error *); /* bias -> y, added */
gp_status gp_onednn_loop_bias_gradient(const gp_onednn_step *, const gp_onednn_run *,
                                       gp_error *);                                        /* dy -> dbias */
gp_status gp_onednn_loop_plain(const gp_onednn_step *, const gp_onednn_run *, gp_error *); /* step->plain */
/* X [rows, count], SCALE [channels, count], OFFSET [channels] or none -> OUT [rows, channels], cut at 0 if
 * mix.bounded; arguments by slots */
gp_status gp_onednn_loop_product(const gp_onednn_step *, const gp_onednn_run *, gp_error *);
/* by slots: X (weights), A (bias, or none), SCALE, OFFSET, RUNNING (mean), SQUARES (variance) -> OUT (weights), KEPT (bias) */
gp_status gp_onednn_loop_norm_fold(const gp_onednn_step *, const gp_onednn_run *, gp_error *);
/* logits -> dlogits (or no second tensor); sums and scores go to the plan's memory. */
gp_status gp_onednn_loop_softmax_xent(const gp_onednn_step *, const gp_onednn_run *, gp_error *);

/* --- onednn_norm.c: arguments by slots, activations packed (a mix without norms: in either form).  Each thrice: plain
 * float32, float32 where gp_wide_usable(), bfloat16 --------------------------------------------------- */

#define GP_ONEDNN_NORM_LOOP(name)                                                                            \
    gp_status name(const gp_onednn_step *, const gp_onednn_run *, gp_error *);                               \
    gp_status name##_wide(const gp_onednn_step *, const gp_onednn_run *, gp_error *);                        \
    gp_status name##_narrow(const gp_onednn_step *, const gp_onednn_run *, gp_error *)

/* X, SCALE, RUNNING -> MOMENTS, FACTOR, SUMS, SQUARES */
GP_ONEDNN_NORM_LOOP(gp_onednn_loop_moments);
/* the mix -> OUT */
GP_ONEDNN_NORM_LOOP(gp_onednn_loop_mix);
/* the mix (dy), X, SCALE, MOMENTS -> OUT (or none), KEPT (or none), SUMS (dscale), SQUARES (doffset) */
GP_ONEDNN_NORM_LOOP(gp_onednn_loop_norm_backward);

#endif
