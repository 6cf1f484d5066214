/* onednn_translate.h -- what the parts of a translation of ops to steps share: onednn_tensors.c (descriptors, tensors,
 * steps, values), onednn_parameters.c (weights and gradients), onednn_layers.c (convolution, fully connected),
 * onednn_pool.c, onednn_pending.c (normalisation and element by element), onednn_ops.c (the rest, and which op is whose).
 *
 * The first failure sticks in the translator: functions do nothing after it, so the translation of an op reads as the
 * list of what it makes. */
#ifndef GP_ONEDNN_TRANSLATE_H
#define GP_ONEDNN_TRANSLATE_H

#include "worker/backend/cpu/onednn/onednn_segment.h"

#include <assert.h>

typedef struct gp_onednn_packed {
    uint32_t value, tensor;
} gp_onednn_packed;

enum { PENDING_TERMS = 2 };

/* One of a sum: a value as it is, its normalisation (moments, factor, offset: tensors), or some of its channels. */
typedef struct gp_onednn_term {
    uint32_t value;
    uint32_t moments, factor, offset; /* ONEDNN_NONE: as it is */
    bool sliced;
    size_t channel; /* the first one */
} gp_onednn_term;

/* A value that is not there yet. */
typedef struct gp_onednn_pending {
    uint32_t count; /* of terms; 0: nothing waits */
    gp_onednn_term term[PENDING_TERMS];
    bool bounded;  /* cut to [low, high] */
    uint32_t mask; /* GP_NO_VALUE, or what must lie between low and high; elsewhere the sum counts 0 */
    float low, high;
} gp_onednn_pending;

typedef struct gp_onednn_translator {
    gp_segment *segment;
    const gp_segment_request *request;
    gp_status status;
    gp_error *err;
    const gp_op *op;            /* being translated */
    uint32_t (*forms)[FORMS];   /* [value_count] tensors, ONEDNN_NONE where a form is not there (yet) */
    uint32_t *roots;            /* [value_count] the value that one is another name of, or itself */
    uint32_t *readers;          /* [value_count] ops that read a root or another name of it */
    gp_onednn_pending *pending; /* [value_count] */
    bool *folded;               /* [request->count] ops that an earlier op's primitive does as well */
    gp_onednn_packed *packed;   /* forward and backward-data share a copy where they like the same layout */
    gp_onednn_list packed_list;
} gp_onednn_translator;

typedef enum gp_onednn_post { POST_NONE, POST_SUM } gp_onednn_post;

static inline bool going(const gp_onednn_translator *t)
{
    return t->status == GP_OK;
}

static inline const gp_shape *shape_of(const gp_onednn_translator *t, uint32_t value)
{
    return &t->request->graph->values[value].shape;
}

static inline size_t count_of(const gp_onednn_translator *t, uint32_t value)
{
    return (size_t)gp_shape_count(shape_of(t, value));
}

/* The float32 form of the same order. */
static inline gp_onednn_form wide_of(gp_onednn_form form)
{
    return form | WIDE_DENSE;
}

static inline dnnl_data_type_t type_of(const gp_onednn_translator *t, bool wide)
{
    return wide || !t->segment->narrow ? dnnl_f32 : dnnl_bf16;
}

/* Whether a value is there in the order of `form`, in whatever width. */
static inline bool lies_in(const gp_onednn_translator *t, uint32_t value, gp_onednn_form form)
{
    return t->forms[value][form & PACKED] != ONEDNN_NONE || t->forms[value][wide_of(form)] != ONEDNN_NONE;
}

/* Whether logical order and nhwc are the same bytes. */
static inline bool one_order(const gp_shape *shape)
{
    return shape->rank != 3 || shape->dim[0] == 1 || shape->dim[1] * shape->dim[2] == 1;
}

static inline void step_argument(gp_onednn_step *step, int role, uint32_t tensor)
{
    assert(step->argument_count < ONEDNN_ARGUMENTS_MAX);
    step->roles[step->argument_count] = role;
    step->tensors[step->argument_count++] = tensor;
}

/* --- onednn_tensors.c -------------------------------------------------------------------------------- */

void gp_onednn_fail_invalid(gp_onednn_translator *t, const char *what, uint32_t value);
/* Whether all went well so far, this call of oneDNN included. */
bool gp_onednn_done(gp_onednn_translator *t, dnnl_status_t status, const char *what);

shim_md gp_onednn_md_new(gp_onednn_translator *t, int rank, const dnnl_dims_t dims,
                         dnnl_format_tag_t tag); /* float32 */
shim_md gp_onednn_md_typed(gp_onednn_translator *t, int rank, const dnnl_dims_t dims, dnnl_data_type_t type,
                           dnnl_format_tag_t tag);
shim_md gp_onednn_md_copy(gp_onednn_translator *t, shim_cmd other);
/* [micro_batch, C, H, W] of a rank-3 value. */
shim_md gp_onednn_md_image(gp_onednn_translator *t, uint32_t value, bool wide, dnnl_format_tag_t tag);
/* [micro_batch, F] of any value. */
shim_md gp_onednn_md_vector(gp_onednn_translator *t, uint32_t value, bool wide);
/* Whether a primitive is there for its descriptor, and no mere reference code: where it is not, a wide one is tried.
 * Other failures stick. */
bool gp_onednn_primitive_fits(gp_onednn_translator *t, dnnl_status_t status, const_dnnl_primitive_desc_t pd,
                              bool wide, const char *what);

uint32_t gp_onednn_buffer_new(gp_onednn_translator *t, gp_onednn_life life, void *data, size_t bytes);
/* Takes md. */
uint32_t gp_onednn_tensor_new(gp_onednn_translator *t, shim_md md, uint32_t buffer);
/* A tensor of its own. */
uint32_t gp_onednn_tensor_make(gp_onednn_translator *t, shim_md md, gp_onednn_life life);

/* A step says whose it is by itself: what, if not said, and the layer are the op's. */
void gp_onednn_step_emit(gp_onednn_translator *t, const gp_onednn_step *step);
dnnl_primitive_attr_t gp_onednn_attr_new(gp_onednn_translator *t, gp_onednn_post post);
/* Make the primitive of a descriptor the step's, and give it its part of the common scratchpad. */
void gp_onednn_step_primitive(gp_onednn_translator *t, gp_onednn_step *step, const_dnnl_primitive_desc_t pd,
                              const char *what);
void gp_onednn_reorder_emit(gp_onednn_translator *t, uint32_t from, uint32_t to, gp_onednn_when when,
                            bool add);

/* Give a value a form that lies on that buffer; both forms where they are one. */
void gp_onednn_form_attach(gp_onednn_translator *t, uint32_t value, gp_onednn_form form, uint32_t buffer);
uint32_t gp_onednn_value_read(gp_onednn_translator *t, uint32_t value, gp_onednn_form form);
/* The tensor an op is to write; value_written() follows the step. */
uint32_t gp_onednn_value_write(gp_onednn_translator *t, uint32_t value, gp_onednn_form form);
void gp_onednn_value_written(gp_onednn_translator *t, uint32_t value);
/* The form in which an element-wise op reads its inputs: one that all have, else nhwc. */
gp_onednn_form gp_onednn_common_form(gp_onednn_translator *t, uint32_t a, uint32_t b);

/* A value that one layer keeps for its own backward pass, in the order its loop likes. */
uint32_t gp_onednn_kept_tensor(gp_onednn_translator *t, uint32_t value);

/* --- onednn_pending.c -------------------------------------------------------------------------------- */

/* Compute a value that waits. */
void gp_onednn_pending_force(gp_onednn_translator *t, uint32_t value);
/* y = x cut to [low, high];  dx = dy where low < y < high. */
void gp_onednn_translate_cut(gp_onednn_translator *t, const gp_op *op, double low, double high);
void gp_onednn_translate_mask(gp_onednn_translator *t, const gp_op *op, uint32_t y, uint32_t dy, double low,
                              double high);
void gp_onednn_translate_add(gp_onednn_translator *t, const gp_op *op);
/* false: not a slice of channels, nothing done. */
bool gp_onednn_translate_slice(gp_onednn_translator *t, const gp_op *op);
void gp_onednn_translate_batchnorm(gp_onednn_translator *t, const gp_op *op);
void gp_onednn_translate_batchnorm_backward(gp_onednn_translator *t, const gp_op *op);

/* --- onednn_parameters.c ----------------------------------------------------------------------------- */

/* The parameter's own memory in the blob. */
uint32_t gp_onednn_parameter_tensor(gp_onednn_translator *t, uint32_t value, shim_cmd md);
/* The parameter, or its gradient, as one row of numbers. */
uint32_t gp_onednn_flat_parameter(gp_onednn_translator *t, uint32_t value, bool gradient);
/* The parameter in the layout `wanted`: the blob's own memory, or a private copy that the first call of each
 * step refreshes. */
uint32_t gp_onednn_weight_tensor(gp_onednn_translator *t, uint32_t value, shim_cmd plain, shim_cmd wanted);
/* Backward-weights primitives overwrite.  `step` is one without its outputs: here it becomes two, for the
 * first call of a step and for later ones, with what carries the result into the arena.  dbias may be
 * GP_NO_VALUE. */
void gp_onednn_gradient_emit(gp_onednn_translator *t, const gp_onednn_step *step, uint32_t dweight,
                             uint32_t dbias, shim_cmd plain, shim_cmd made, shim_cmd bias);

/* What a layer's primitive does to its sums at once. */
typedef struct gp_onednn_tail {
    uint32_t y;        /* the value that comes out behind it all */
    const gp_op *norm; /* batch norm by running statistics, which goes into the weights; or NULL */
    uint32_t other;    /* what is added; GP_NO_VALUE */
    bool bounded;      /* then cut to [low, high] */
    float low, high;
} gp_onednn_tail;

/* --- onednn_layers.c, onednn_pool.c ------------------------------------------------------------------ */

/* A window in oneDNN's terms. */
shim_window gp_onednn_window_of(const gp_window *window);

/* Weights and bias with a batch norm in them: weight' = weight * f, bias' = (bias - mean) * f + offset, f = scale /
 * sqrt(variance + epsilon), made by the first call of a step. */
void gp_onednn_norm_fold_emit(gp_onednn_translator *t, const gp_op *op, const gp_op *norm, shim_cmd plain,
                              gp_onednn_life life, uint32_t *weight, uint32_t *bias);

void gp_onednn_translate_forward(gp_onednn_translator *t, const gp_op *op);
void gp_onednn_translate_backward_data(gp_onednn_translator *t, const gp_op *op);
void gp_onednn_translate_backward_weights(gp_onednn_translator *t, const gp_op *op);
void gp_onednn_translate_pool(gp_onednn_translator *t, const gp_op *op);
void gp_onednn_translate_pool_backward(gp_onednn_translator *t, const gp_op *op);

/* --- onednn_winograd.c ------------------------------------------------------------------------------- */

/* A layer's pass on kernels of ours; false: not one for them, nothing done. */
bool gp_onednn_winograd_forward(gp_onednn_translator *t, const gp_op *op, const gp_onednn_tail *tail);
bool gp_onednn_winograd_backward_data(gp_onednn_translator *t, const gp_op *op);
bool gp_onednn_winograd_backward_weights(gp_onednn_translator *t, const gp_op *op);

#endif
