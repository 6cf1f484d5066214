/* Translation of ops into steps. The parts are onednn_tensors.c (descriptors, tensors, steps,
 * values), onednn_parameters.c (weights and gradients), onednn_layers.c (convolution, fully
 * connected), onednn_pool.c, onednn_pending.c (normalisation and element-wise ops), and
 * onednn_ops.c (all other ops, and the dispatch).
 *
 * The translator stores the first error; all functions do nothing afterwards. An op's translation
 * is therefore a plain call list without error checks. */
#ifndef GP_ONEDNN_TRANSLATE_H
#define GP_ONEDNN_TRANSLATE_H

#include "worker/backend/cpu/onednn/onednn_segment.h"

#include <assert.h>

/* A packed copy of a weight. */
typedef struct gp_onednn_packed {
    uint32_t value, tensor;
} gp_onednn_packed;

/* maximum term count in a pending sum */
enum { PENDING_TERMS = 2 };

/* Term in a pending sum: a value, the normalisation (moments, factor and offset are tensors), or
 * some of its channels. */
typedef struct gp_onednn_term {
    uint32_t value;
    uint32_t moments, factor, offset; /* ONEDNN_NONE: not normalised */
    bool sliced;
    size_t channel; /* first channel */
} gp_onednn_term;

/* A value whose computation is deferred. */
typedef struct gp_onednn_pending {
    uint32_t count; /* term count; 0: not deferred */
    gp_onednn_term term[PENDING_TERMS];
    bool bounded; /* clamp to [low, high] */
    /* GP_NO_VALUE, or a value; the sum is 0 where that value is not between low and high */
    uint32_t mask;
    float low, high;
} gp_onednn_pending;

/* Translation state. */
typedef struct gp_onednn_translator {
    gp_segment *segment;
    const gp_segment_request *request;
    gp_status status;
    gp_error *err;
    const gp_op *op; /* current op */
    /* [value_count]: tensors by form; ONEDNN_NONE: does not exist (yet) */
    uint32_t (*forms)[FORMS];
    uint32_t *roots;            /* [value_count]: the alias root, or the value itself */
    uint32_t *readers;          /* [value_count]: ops that read a root value or an alias */
    gp_onednn_pending *pending; /* [value_count] */
    /* [request->count]: ops that an earlier op's primitive includes */
    bool *folded;
    /* packed weights; forward and backward data share a copy if they use the same layout */
    gp_onednn_packed *packed;
    uint32_t packed_count;
} gp_onednn_translator;

/* Operation that a primitive applies to the result: none, or add it to the destination. */
typedef enum gp_onednn_post { POST_NONE, POST_SUM } gp_onednn_post;

/* Return true if no error has occurred. */
static inline bool going(const gp_onednn_translator *t)
{
    return t->status == GP_OK;
}

static inline const gp_shape *shape_of(const gp_onednn_translator *t, uint32_t value)
{
    return &t->request->graph->values[value].shape;
}

/* Return the element count per sample. */
static inline size_t count_of(const gp_onednn_translator *t, uint32_t value)
{
    return (size_t)gp_shape_count(shape_of(t, value));
}

/* Return the float32 form in the same order. */
static inline gp_onednn_form wide_of(gp_onednn_form form)
{
    return form | WIDE_DENSE;
}

/* Return the activation data type. */
static inline dnnl_data_type_t type_of(const gp_onednn_translator *t, bool wide)
{
    return wide || !t->segment->narrow ? dnnl_f32 : dnnl_bf16;
}

/* Return true if the value exists in `form`'s order, in either width. */
static inline bool lies_in(const gp_onednn_translator *t, uint32_t value, gp_onednn_form form)
{
    return t->forms[value][form & PACKED] != ONEDNN_NONE || t->forms[value][wide_of(form)] != ONEDNN_NONE;
}

/* Return true if dense order and nhwc are the same bytes. */
static inline bool one_order(const gp_shape *shape)
{
    return shape->rank != 3 || shape->dim[0] == 1 || shape->dim[1] * shape->dim[2] == 1;
}

/* Append an argument to a step. */
static inline void step_argument(gp_onednn_step *step, int role, uint32_t tensor)
{
    assert(step->argument_count < ONEDNN_ARGUMENTS_MAX);
    step->roles[step->argument_count] = role;
    step->tensors[step->argument_count++] = tensor;
}

/* ---- onednn_tensors.c ---- */

/* Fail with an error about an invalid value. */
void gp_onednn_fail_invalid(gp_onednn_translator *t, const char *what, uint32_t value);

/* Record the result of a oneDNN call; return true if no error has occurred so far. */
bool gp_onednn_done(gp_onednn_translator *t, dnnl_status_t status, const char *what);

/* Create a descriptor; `gp_onednn_md_new` creates a float32 one. */
shim_md gp_onednn_md_new(gp_onednn_translator *t, int rank, const dnnl_dims_t dims, dnnl_format_tag_t tag);

/* Create a descriptor with a given data type. */
shim_md gp_onednn_md_typed(gp_onednn_translator *t, int rank, const dnnl_dims_t dims, dnnl_data_type_t type,
                           dnnl_format_tag_t tag);
shim_md gp_onednn_md_copy(gp_onednn_translator *t, shim_cmd other);

/* Create a descriptor of a rank-3 value as [micro_batch, C, H, W]. */
shim_md gp_onednn_md_image(gp_onednn_translator *t, uint32_t value, bool wide, dnnl_format_tag_t tag);

/* Create a descriptor of any value as [micro_batch, F]. */
shim_md gp_onednn_md_vector(gp_onednn_translator *t, uint32_t value, bool wide);

/* Return true if a primitive exists and is not reference code. If it is missing and `wide` is
 * false, the caller tries a wide one. Other failures are recorded. */
bool gp_onednn_primitive_fits(gp_onednn_translator *t, dnnl_status_t status, const_dnnl_primitive_desc_t pd,
                              bool wide, const char *what);

/* Make room for one more element in the array that `array` points to. Return false, with an
 * error, if out of memory. count  number of elements
 *   what   name of the elements in the error message */
bool gp_onednn_grow(gp_onednn_translator *t, void *array, uint32_t count, size_t size, const char *what);

/* Create a buffer. `data`: memory of a LIFE_FOREIGN buffer, otherwise NULL. */
uint32_t gp_onednn_buffer_new(gp_onednn_translator *t, gp_onednn_life life, void *data, size_t bytes);

/* Create a tensor in a buffer. Takes ownership of `md`. */
uint32_t gp_onednn_tensor_new(gp_onednn_translator *t, shim_md md, uint32_t buffer);

/* Create a tensor with a new buffer. */
uint32_t gp_onednn_tensor_make(gp_onednn_translator *t, shim_md md, gp_onednn_life life);

/* Append a step. Fills in the layer and, if not set, the name from the current op. */
void gp_onednn_step_emit(gp_onednn_translator *t, const gp_onednn_step *step);
dnnl_primitive_attr_t gp_onednn_attr_new(gp_onednn_translator *t, gp_onednn_post post);

/* Create a step's primitive and reserve scratchpad memory for it. */
void gp_onednn_step_primitive(gp_onednn_translator *t, gp_onednn_step *step, const_dnnl_primitive_desc_t pd,
                              const char *what);

/* Emit a step that copies a tensor to another layout. `add`: add to the destination. */
void gp_onednn_reorder_emit(gp_onednn_translator *t, uint32_t from, uint32_t to, gp_onednn_when when,
                            bool add);

/* Set a form's tensor to a buffer; set both forms if they are the same. */
void gp_onednn_form_attach(gp_onednn_translator *t, uint32_t value, gp_onednn_form form, uint32_t buffer);

/* Return a value's tensor in this form, after any necessary reorder. */
uint32_t gp_onednn_value_read(gp_onednn_translator *t, uint32_t value, gp_onednn_form form);

/* Return the tensor that an op writes. Call gp_onednn_value_written() after the step. */
uint32_t gp_onednn_value_write(gp_onednn_translator *t, uint32_t value, gp_onednn_form form);

/* Complete a write: if the value crosses the segment border, create the dense float32 form. */
void gp_onednn_value_written(gp_onednn_translator *t, uint32_t value);

/* Return the form in which an element-wise op reads the inputs: one that all inputs have, otherwise
 * nhwc. */
gp_onednn_form gp_onednn_common_form(gp_onednn_translator *t, uint32_t a, uint32_t b);

/* Return a tensor for a value that a layer keeps for the backward pass, in the order that the
 * layer's loop prefers. */
uint32_t gp_onednn_kept_tensor(gp_onednn_translator *t, uint32_t value);

/* ---- onednn_pending.c ---- */

/* Compute a deferred value. */
void gp_onednn_pending_force(gp_onednn_translator *t, uint32_t value);

/* Translate y = clamp(x, low, high), or dx = dy where low < y < high. */
void gp_onednn_translate_cut(gp_onednn_translator *t, const gp_op *op, double low, double high);
void gp_onednn_translate_mask(gp_onednn_translator *t, const gp_op *op, uint32_t y, uint32_t dy, double low,
                              double high);

/* Translate an addition; it is deferred if possible. */
void gp_onednn_translate_add(gp_onednn_translator *t, const gp_op *op);

/* Translate a channel slice. Return false and do nothing for other slices. */
bool gp_onednn_translate_slice(gp_onednn_translator *t, const gp_op *op);

/* Translate batch norm. The moments are computed at once, the normalisation is deferred. */
void gp_onednn_translate_batchnorm(gp_onednn_translator *t, const gp_op *op);
void gp_onednn_translate_batchnorm_backward(gp_onednn_translator *t, const gp_op *op);

/* ---- onednn_parameters.c ---- */

/* Return a tensor for the parameter in the blob. */
uint32_t gp_onednn_parameter_tensor(gp_onednn_translator *t, uint32_t value, shim_cmd md);

/* Return the parameter or the gradient as a vector. */
uint32_t gp_onednn_flat_parameter(gp_onednn_translator *t, uint32_t value, bool gradient);

/* Return the parameter in the layout `wanted`: the memory in the blob, or a private copy that the
 * first call in each training step refreshes. */
uint32_t gp_onednn_weight_tensor(gp_onednn_translator *t, uint32_t value, shim_cmd plain, shim_cmd wanted);

/* Emit a backward-weights step and store the result in the gradients.
 *
 * Backward-weights primitives overwrite their outputs. The step therefore becomes two steps, for
 * the first call in a training step and for later calls, with a step that adds the result to the
 * arena.
 *   step   the step without outputs
 *   dbias  GP_NO_VALUE: none
 *   plain  gradient layout in the blob
 *   made   layout that the primitive produces
 *   bias   bias gradient layout */
void gp_onednn_gradient_emit(gp_onednn_translator *t, const gp_onednn_step *step, uint32_t dweight,
                             uint32_t dbias, shim_cmd plain, shim_cmd made, shim_cmd bias);

/* Operations that a layer's primitive applies to the result. */
typedef struct gp_onednn_tail {
    uint32_t y;        /* final value after all operations */
    const gp_op *norm; /* batch norm with running statistics, folded into the weights; NULL: none */
    uint32_t other;    /* value to add; GP_NO_VALUE: none */
    bool bounded;      /* finally clamp to [low, high] */
    float low, high;
} gp_onednn_tail;

/* ---- onednn_layers.c, onednn_pool.c ---- */

/* Convert a window to oneDNN conventions. */
shim_window gp_onednn_window_of(const gp_window *window);

/* Emit a step that folds a batch norm into weights and bias, in the first call of each training
 * step: weight' = weight * f, bias' = (bias - mean) * f + offset, f = scale / sqrt(variance +
 * epsilon). */
void gp_onednn_norm_fold_emit(gp_onednn_translator *t, const gp_op *op, const gp_op *norm, shim_cmd plain,
                              gp_onednn_life life, uint32_t *weight, uint32_t *bias);

/* Translate one convolution or fully connected pass. */
void gp_onednn_translate_forward(gp_onednn_translator *t, const gp_op *op);
void gp_onednn_translate_backward_data(gp_onednn_translator *t, const gp_op *op);
void gp_onednn_translate_backward_weights(gp_onednn_translator *t, const gp_op *op);
void gp_onednn_translate_pool(gp_onednn_translator *t, const gp_op *op);

/* ---- onednn_winograd.c ---- */

/* Translate a layer to the Winograd kernels. Return false and do nothing if they do not suit the
 * layer. */
bool gp_onednn_winograd_forward(gp_onednn_translator *t, const gp_op *op, const gp_onednn_tail *tail);
bool gp_onednn_winograd_backward_data(gp_onednn_translator *t, const gp_op *op);
bool gp_onednn_winograd_backward_weights(gp_onednn_translator *t, const gp_op *op);

#endif
