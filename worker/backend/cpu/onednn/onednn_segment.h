/* oneDNN segment internals, private to the onednn*.c files.
 *
 *   ops --onednn_translate.h--> steps over tensors in buffers --onednn_memory.c--> one arena
 *
 * A step is a oneDNN primitive or a loop (onednn_loops.c), with the tensors that it reads and
 * writes; a run executes all steps in order. A tensor is a descriptor for a buffer; several tensors
 * may use the same buffer (a flattened activation). Buffers whose contents need not survive a run
 * share the arena according to their lifetimes, counted in steps.
 *
 * A graph value has up to two forms. DENSE is the logical order, used at segment borders and by
 * fully connected layers. PACKED is nhwc, used by convolutions and pooling. If an op needs a form
 * that does not exist yet, one reorder creates it from another form. If both orders are the same
 * bytes (one channel, one pixel, or a vector), the forms share a buffer.
 *
 * A narrow segment stores activations and their gradients in bfloat16, and packs weights in
 * bfloat16. In such a segment, each order also has a wide form in float32, for values at segment
 * borders and for loops and primitives without bfloat16 support. In other segments the wide forms
 * are the same as the plain forms. */
#ifndef GP_ONEDNN_SEGMENT_H
#define GP_ONEDNN_SEGMENT_H

#include "worker/backend/cpu/onednn/dnnl_shim.h"
#include "worker/backend/cpu/loops/loops.h"
#include "worker/backend/cpu/base/segment.h"
#include "worker/backend/cpu/onednn/winograd.h"

/* Value form: order and, in narrow segments, width. */
typedef enum gp_onednn_form { DENSE, PACKED, WIDE_DENSE, WIDE_PACKED, FORMS } gp_onednn_form;

enum { ONEDNN_ARGUMENTS_MAX = 2 * GP_OP_VALUES_MAX, ONEDNN_ALIGNMENT = 64 };
#define ONEDNN_NONE UINT32_MAX /* no tensor, buffer or primitive */

/* Buffer lifetime and owner. */
typedef enum gp_onednn_life {
    LIFE_FOREIGN, /* memory outside the segment: blob, exchange arena, values at segment borders */
    LIFE_KEPT,    /* kept between runs: packed weights */
    LIFE_RUN,     /* from the first to the last step that uses the buffer */
} gp_onednn_life;

/* A buffer. */
typedef struct gp_onednn_buffer {
    gp_onednn_life life;
    void *data; /* NULL until placed, except for LIFE_FOREIGN */
    size_t bytes, offset;
    uint32_t first, last; /* first and last step that use the buffer */
} gp_onednn_buffer;

/* A tensor: a typed view of a buffer. */
typedef struct gp_onednn_tensor {
    shim_md md; /* owned */
    uint32_t buffer;
    dnnl_memory_t memory; /* owned; created by gp_onednn_place() */
} gp_onednn_tensor;

/* Calls in a training step in which a segment step runs. The first call overwrites parameter
 * gradients and refreshes packed weights; later calls add to the gradients. */
typedef enum gp_onednn_when { WHEN_ALWAYS, WHEN_FIRST, WHEN_LATER } gp_onednn_when;

/* Role of an argument of the loops in onednn_norm.c. */
typedef enum gp_onednn_slot {
    SLOT_A, /* terms of a mix: activations or their gradients */
    SLOT_B,
    SLOT_MASK,
    SLOT_X,
    SLOT_RUNNING,
    SLOT_SCALE,
    SLOT_SUMS, /* parameter gradients, or sums for running statistics in their place */
    SLOT_SQUARES,
    SLOT_MOMENTS, /* for term A or x: mean, then 1 / standard deviation */
    SLOT_FACTOR,  /* scale / standard deviation */
    SLOT_OFFSET,
    SLOT_MOMENTS_B,
    SLOT_FACTOR_B,
    SLOT_OFFSET_B,
    SLOT_PARTIALS,
    SLOT_OUT,
    SLOT_KEPT, /* mix of a gradient that another op reads too */
} gp_onednn_slot;

/* A mix: term A plus term B, each optionally normalised or a channel slice. The result is clamped
 * to [low, high], or set to 0 where the mask is not between low and high. */
typedef struct gp_onednn_mix {
    size_t stride[2], channel[2]; /* per term: elements per pixel, and first channel used */
    bool bounded;
    float low, high;
    double epsilon;
    size_t chunk_rows, chunks; /* rows per chunk and chunk count, for sums over rows */
} gp_onednn_mix;

typedef struct gp_onednn_step gp_onednn_step;
typedef struct gp_onednn_run gp_onednn_run;

/* Execute a step. Returns GP_OK or an error in the batch. */
typedef gp_status (*gp_onednn_loop)(const gp_onednn_step *step, const gp_onednn_run *run, gp_error *err);

/* One step. */
struct gp_onednn_step {
    gp_onednn_when when;
    const char *what; /* name in profiles */
    uint32_t layer;
    dnnl_primitive_t primitive; /* owned by the segment; NULL: the step is a loop */
    gp_onednn_loop loop;
    uint32_t argument_count;
    /* DNNL_ARG_...; for a plain loop the operand index, with outputs from GP_OP_VALUES_MAX on */
    int roles[ONEDNN_ARGUMENTS_MAX];
    uint32_t tensors[ONEDNN_ARGUMENTS_MAX];
    /* the last tensor may replace the first in the buffer, unless a later step reads the first */
    bool in_place;
    dnnl_exec_arg_t arguments[ONEDNN_ARGUMENTS_MAX]; /* filled by gp_onednn_place(), as is `data` */
    void *data[ONEDNN_ARGUMENTS_MAX];
    /* For loops only: */
    size_t count; /* elements per sample, or of a parameter */
    /* For dropout and samples: element channel * pixels + pixel is stored at pixel * channels +
     * channel. channels is 1 in dense order. */
    size_t channels, pixels;
    double rate;
    gp_onednn_mix mix;
    gp_winograd winograd;
    const gp_loop *plain; /* loop from loops.h, with the op and the activation order */
    const gp_op *op;
    bool packed;
    bool narrow; /* activations are bfloat16 */
};

/* Return the argument in a slot. NULL: the step has none. */
static inline void *gp_onednn_data(const gp_onednn_step *step, gp_onednn_slot slot)
{
    for (uint32_t i = 0; i < step->argument_count; i++)
        if (step->roles[i] == (int)slot)
            return step->data[i];
    return NULL;
}

/* Context of a running loop. */
struct gp_onednn_run {
    const gp_segment *segment;
    const gp_batch *batch;
};

/* A value from another segment. Rows beyond batch->count have undefined contents; they are set to
 * zero before any step reads them, so that zero gradients are multiplied with finite
 * activations. */
typedef struct gp_onednn_entry {
    float *data;
    size_t count; /* elements per sample */
} gp_onednn_entry;

/* A parameter blob range. */
typedef struct gp_onednn_range {
    size_t offset, count; /* float32 elements */
} gp_onednn_range;

/* A compiled segment. */
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
    uint32_t buffer_count;
    gp_onednn_tensor *tensors;
    uint32_t tensor_count;
    dnnl_primitive_t *primitives;
    uint32_t primitive_count;
    gp_onednn_step *steps;
    uint32_t step_count;
    int64_t *step_ns; /* [step_count]: time spent in each step; NULL: not measured */
    gp_onednn_entry *entries;
    uint32_t entry_count;
    /* gradients written by this segment; zeroed on a rank without samples */
    gp_onednn_range *gradients;
    uint32_t gradient_count;
    uint32_t forward_steps; /* steps[0 .. forward_steps) belong to the forward pass */
    /* buffer for the scratchpads of all primitives, which run one after the other */
    uint32_t scratch;
    double *losses; /* [micro_batch]: each sample's loss in nats; one thread adds them in order */
    bool *hits;     /* [micro_batch]: true if the label has the largest logit */
    unsigned char *arena;
    size_t arena_bytes;
};

/* ---- onednn_memory.c ---- */

/* Finish the segment after the last step: lay out and allocate the arena, create memory objects,
 * bind arguments. */
gp_status gp_onednn_place(gp_segment *segment, gp_error *err);

/* Move all tensors in the parameter blob to another blob. */
void gp_onednn_rebind(gp_segment *segment, const float *parameters);

/* Convert an oneDNN status to an error. GP_OK: dnnl_success. */
gp_status gp_onednn_check(dnnl_status_t status, const char *what, gp_error *err);

/* ---- onednn_ops.c ---- */

/* Translate all ops of the request into steps. */
gp_status gp_onednn_translate(gp_segment *segment, const gp_segment_request *request, gp_error *err);

/* ---- onednn_loops.c ---- */

/* Loops. The comments list the tensors in argument order; `count` elements per sample, micro_batch
 * samples. */
/* batch samples -> x in packed order */
gp_status gp_onednn_loop_samples(const gp_onednn_step *, const gp_onednn_run *, gp_error *);
/* x -> y */
gp_status gp_onednn_loop_copy(const gp_onednn_step *, const gp_onednn_run *, gp_error *);
gp_status gp_onednn_loop_dropout(const gp_onednn_step *, const gp_onednn_run *,
                                 gp_error *); /* x -> y; also used for the backward pass */
gp_status gp_onednn_loop_accumulate(const gp_onednn_step *, const gp_onednn_run *,
                                    gp_error *); /* part -> added to gradient */
gp_status gp_onednn_loop_bias(const gp_onednn_step *, const gp_onednn_run *,
                              gp_error *); /* bias -> added to y */
gp_status gp_onednn_loop_bias_gradient(const gp_onednn_step *, const gp_onednn_run *,
                                       gp_error *); /* dy -> dbias */
/* executes step->plain */
gp_status gp_onednn_loop_plain(const gp_onednn_step *, const gp_onednn_run *, gp_error *);

/* By slots: X [rows, count], SCALE [channels, count], optional OFFSET [channels] -> OUT [rows,
 * channels], at least 0 if mix.bounded is set. */
gp_status gp_onednn_loop_product(const gp_onednn_step *, const gp_onednn_run *, gp_error *);

/* By slots: X (weights), A (optional bias), SCALE, OFFSET, RUNNING (mean), SQUARES (variance) ->
 * OUT (weights), KEPT (bias). */
gp_status gp_onednn_loop_norm_fold(const gp_onednn_step *, const gp_onednn_run *, gp_error *);

/* logits -> dlogits (optional second tensor). Adds sums and stores scores in the plan's memory. */
gp_status gp_onednn_loop_softmax_xent(const gp_onednn_step *, const gp_onednn_run *, gp_error *);

/* ---- onednn_norm.c ----
 *
 * Arguments by slots; activations in packed order (a mix without norms accepts either order). Each
 * loop has three variants: float32, float32 for CPUs where gp_wide_usable() is true, and
 * bfloat16. */

#define GP_ONEDNN_NORM_LOOP(name)                                                                            \
    gp_status name(const gp_onednn_step *, const gp_onednn_run *, gp_error *);                               \
    gp_status name##_wide(const gp_onednn_step *, const gp_onednn_run *, gp_error *);                        \
    gp_status name##_narrow(const gp_onednn_step *, const gp_onednn_run *, gp_error *)

/* X, SCALE, RUNNING -> MOMENTS, FACTOR, SUMS, SQUARES */
GP_ONEDNN_NORM_LOOP(gp_onednn_loop_moments);

/* mix -> OUT */
GP_ONEDNN_NORM_LOOP(gp_onednn_loop_mix);

/* mix (dy), X, SCALE, MOMENTS -> optional OUT, optional KEPT, SUMS (dscale), SQUARES (doffset) */
GP_ONEDNN_NORM_LOOP(gp_onednn_loop_norm_backward);

#endif
