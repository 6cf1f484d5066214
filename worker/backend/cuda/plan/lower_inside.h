/* lower_inside.h -- what lower*.c share.  Private to them. */
#ifndef GP_CUDA_LOWER_INSIDE_H
#define GP_CUDA_LOWER_INSIDE_H

#include "worker/backend/cuda/plan/plan.h"

/* A way in which a library can do what an op asks: "whole " or "alone ", and the name of an engine. */
enum { PLAN_WAYS_MAX = 12 };

typedef struct plan_way {
    char how[GP_CHOICE_HOW_BYTES];
    bool compiled; /* the library compiles that engine first */
} plan_way;

/* What the lowering of one op asked of a library, and how that went (choose.c). */
typedef struct plan_site {
    char what[GP_CHOICE_WHAT_BYTES]; /* "": nothing was asked */
    const char *how;                 /* the way to take; NULL: by rule */
    bool refused;                    /* the library has not that engine: it was by rule */
    bool whole;                      /* what was granted does what follows as well */
    bool listing;                    /* only list the ways; nothing is granted */
    plan_way ways[PLAN_WAYS_MAX];
    uint32_t way_count;
} plan_site;

/* What the lowering of one op has at hand. */
typedef struct lowering {
    gp_plan *plan;
    const gp_op *op;
    const plan_follow *follow;
    plan_site *site; /* NULL: nothing is asked of a library */
    uint32_t index;
    bool preparing;      /* steps go to plan->prepare */
    size_t scratch;      /* taken by this op so far */
    gp_kernel_args args; /* images, window, call, ReLU: what kernels of the op begin with */
    float *known;        /* of a convolution: sums that the library adds up, or NULL */
} lowering;

/* ---- lower.c ---- */

/* Append the steps of op `index`; reserve the scratch and the workspace that they need. */
gp_status gp_lower_op(gp_plan *plan, uint32_t index, plan_site *site, gp_error *err);
lowering gp_lower_begin(gp_plan *plan, uint32_t index);
step *gp_lower_step(lowering *l, step_kind kind); /* NULL: no memory */
gp_status gp_lower_no_steps(gp_error *err);
gp_status gp_lower_kernel(lowering *l, gp_kernel kernel, const gp_kernel_args *args, uint64_t count,
                          gp_error *err);
/* The wide kernel where its images fit, the plain one elsewhere; items are elements of y[0]. */
gp_status gp_lower_wide(lowering *l, uint32_t images, gp_kernel wide_one, gp_kernel plain,
                        const gp_kernel_args *args, gp_error *err);
void *gp_lower_scratch(lowering *l, size_t bytes);
void *gp_lower_lasting(lowering *l, size_t bytes); /* for as long as the plan, and for this op alone */
uint64_t gp_lower_elements(const lowering *l, const gp_kernel_image *image);
/* Whether bodies_wide.h takes the op: y[0] and as many of x[] are packed, narrow, of eights of channels.  Those of vectors are
 * too, whichever the plan's order is. */
bool gp_lower_is_wide(const lowering *l, uint32_t images);
/* Of numbers that a library computes with: "bf16", "f32". */
const char *gp_lower_number(int32_t narrow, bool tf32);
/* Into how many parts to cut a sum of so many units, where each part has `each` items. */
uint32_t gp_lower_chunks(uint64_t each, uint64_t units, uint32_t most);

/* ---- choose.c ---- */

/* What an op asks of a library: a gp_conv_request or a gp_product_request of device.h. */
typedef struct plan_question {
    step_kind kind;     /* CONV or PRODUCT */
    const void *whole;  /* with all that follows the op; NULL: nothing follows */
    const void *alone;  /* without that */
    bool alone_by_rule; /* `whole` is granted only if a choice of the tuning says so */
} plan_question;

/* Ask a library, once for each op, in the way that was chosen for `what`.  l->site->whole says whether the
 * whole was granted.  *work NULL: the library has no plan. */
gp_status gp_lower_ask(lowering *l, const plan_question *question, const char *what, gp_device_work **work,
                       size_t *workspace, gp_error *err);

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
