/* lower_inside.h -- what lower*.c share.  Private to them. */
#ifndef GP_CUDA_LOWER_INSIDE_H
#define GP_CUDA_LOWER_INSIDE_H

#include "worker/backend/cuda/plan/lower.h"

/* What the lowering of one op has at hand. */
typedef struct lowering {
    gp_plan *plan;
    const gp_op *op;
    const plan_follow *follow;
    uint32_t index;
    bool preparing;      /* steps go to plan->prepare */
    size_t scratch;      /* taken by this op so far */
    gp_kernel_args args; /* images, window, call, ReLU: what kernels of the op begin with */
    float *known;        /* of a convolution: sums that the library adds up, or NULL */
} lowering;

/* ---- lower.c ---- */

lowering gp_lower_begin(gp_plan *plan, uint32_t index);
step *gp_lower_step(lowering *l, step_kind kind); /* NULL: no memory */
gp_status gp_lower_no_steps(gp_error *err);
gp_status gp_lower_kernel(lowering *l, gp_kernel kernel, const gp_kernel_args *args, uint64_t count,
                          gp_error *err);
/* The wide kernel where its images fit, the plain one elsewhere; items are elements of y[0]. */
gp_status gp_lower_wide(lowering *l, uint32_t images, gp_kernel wide_one, gp_kernel plain,
                        const gp_kernel_args *args, gp_error *err);
void *gp_lower_scratch(lowering *l, size_t bytes);
void *gp_lower_lasting(lowering *l, size_t bytes); /* for as long as the plan; nobody else has it */
uint64_t gp_lower_elements(const lowering *l, const gp_kernel_image *image);
/* Whether bodies_wide.h takes the op: y[0] and as many of x[] are packed, narrow, of eights of channels.  Those of vectors are
 * too, whichever the plan's order is. */
bool gp_lower_is_wide(const lowering *l, uint32_t images);
/* Of numbers that a library computes with: "bf16", "f32". */
const char *gp_lower_number(int32_t narrow, bool tf32);
/* Into how many parts to cut a sum of so many units, where each part has `each` items. */
uint32_t gp_lower_chunks(uint64_t each, uint64_t units, uint32_t most);

/* ---- choose.c ---- */

/* A library's functions of device.h, with requests of whichever kind. */
typedef struct gp_library {
    gp_status (*plan)(gp_device_work **out, gp_device *device, const void *request, const char *engine,
                      size_t *workspace, gp_error *err);
    uint32_t (*engines)(gp_device *device, const void *request, gp_engine *engines, uint32_t most);
    bool alone_by_rule; /* what follows is not asked for, unless it was chosen */
} gp_library;

/* Once for each op: in the way that was chosen for `what`.  whole: with all that follows, NULL where nothing does;
 * plan->site.whole says whether that was granted.  *work NULL: the library has no plan. */
gp_status gp_lower_ask(lowering *l, const gp_library *library, const char *what, const void *whole,
                       const void *alone, gp_device_work **work, size_t *workspace, gp_error *err);

/* ---- lower_weights.c ---- */

/* Parts by `kernel`, then their sum into the gradient; NULL: nobody asks for it. */
gp_status gp_lower_parts(lowering *l, gp_kernel kernel, gp_kernel_args *args, float *gradient, uint64_t count,
                         uint64_t units, gp_error *err);
gp_status gp_lower_bias_gradient(lowering *l, const gp_kernel_image *dy, float *gradient, gp_error *err);
/* What is left to do of a library's y: + bias (or NULL), and what follows. */
gp_status gp_lower_finish(lowering *l, const gp_kernel_image *y, float *bias, gp_error *err);
/* And of its dx: the ReLU's way back. */
gp_status gp_lower_mask(lowering *l, const gp_kernel_image *dx, gp_error *err);

/* Weights [outputs][inputs][pixels]; a library is given `stored` inputs, the rest of which are zeros. */
typedef struct gp_weights_shape {
    uint64_t outputs;
    uint32_t inputs, stored, pixels;
} gp_weights_shape;

/* The weights in the order and type of the images, batch norm folded in where the op says so; as they are where that is the
 * blob's.  Made once for all steps that ask for it, and again when parameters have changed. */
gp_status gp_lower_weights_pack(lowering *l, float *weights, const gp_weights_shape *shape,
                                const gp_kernel_image *like, void **out, gp_error *err);
/* Likewise what is added to the outputs, for a library or for a kernel of ours: NULL is nothing. */
gp_status gp_lower_vector(lowering *l, float *bias, uint32_t count, int32_t narrow, bool library, void **out,
                          gp_error *err);
/* The way back of a gradient, which was computed into `from`. */
gp_status gp_lower_weights_unpack(lowering *l, float *gradient, const gp_weights_shape *shape,
                                  const gp_kernel_image *like, void *from, int32_t narrow, gp_error *err);
/* What came of asking a library for *work: that it has none is no failure, *work is NULL then.  err: may be NULL. */
gp_status gp_lower_granted(gp_status status, const gp_error *why, gp_device_work **work, gp_error *err);
/* A library's step; the work is the plan's from here on, freed on failure too. */
gp_status gp_lower_work(lowering *l, step_kind kind, gp_device_work *work, size_t workspace,
                        const gp_device_operands *at, gp_error *err);

/* ---- one for each op, or for several ---- */

gp_status gp_lower_conv(lowering *l, gp_error *err);
gp_status gp_lower_fc(lowering *l, gp_error *err);
gp_status gp_lower_simple(lowering *l, gp_error *err);
gp_status gp_lower_pool(lowering *l, gp_error *err);
gp_status gp_lower_reshape(lowering *l, gp_error *err);
gp_status gp_lower_concat(lowering *l, gp_error *err);
gp_status gp_lower_dropout(lowering *l, gp_error *err);
gp_status gp_lower_batchnorm(lowering *l, gp_error *err);
/* The sums of batch norm op `norm`, by the op that writes its input. */
gp_status gp_lower_batchnorm_sums(lowering *writer, uint32_t norm, gp_error *err);
gp_status gp_lower_batchnorm_infer(lowering *l, gp_error *err);
gp_status gp_lower_groupnorm(lowering *l, gp_error *err);
gp_status gp_lower_lrn(lowering *l, gp_error *err);
gp_status gp_lower_xent(lowering *l, gp_error *err);
gp_status gp_lower_values_loss(lowering *l, gp_error *err);
gp_status gp_lower_dice(lowering *l, gp_error *err);
gp_status gp_lower_own_loss(lowering *l, gp_error *err);

#endif
