/* Declarations shared by the lower*.c files. */
#ifndef GP_CUDA_LOWER_INSIDE_H
#define GP_CUDA_LOWER_INSIDE_H

#include "worker/backend/cuda/plan/plan.h"

/* Limits of the engine configurations that are measured for one library request. */
enum {
    PLAN_QUICK_MAX = 12,   /* without compilation */
    PLAN_COMPILED_MAX = 2, /* the library compiles them first */
    PLAN_ENGINE_MAX = 8    /* of one engine */
};

/* Maximum number of ways in which a library can execute an op: two requests, whole and alone. */
enum { PLAN_WAYS_MAX = 2 * (PLAN_QUICK_MAX + PLAN_COMPILED_MAX) };

/* A way to execute an op: "whole " or "alone " and an engine name, or "direct". */
typedef struct plan_way {
    char how[GP_CHOICE_HOW_BYTES];
    bool compiled; /* the library compiles the engine first */
} plan_way;

/* Library use of one op during lowering (choose.c). */
typedef struct plan_site {
    char what[GP_CHOICE_WHAT_BYTES]; /* operation and shape; "": no library was asked */
    const char *how;                 /* way to use; NULL: default */
    bool refused;                    /* the library lacks the engine; the default was used */
    bool whole;                      /* the granted plan includes the operations after the op */
    bool listing;                    /* only list the ways, grant nothing */
    bool direct;                     /* a kernel of grids_conv.h is used instead of a library */
    char missing[200]; /* error of a library that has no plan; "": it has one, or was not asked */
    plan_way ways[PLAN_WAYS_MAX];
    uint32_t way_count;
} plan_site;

/* State of lowering one op. It stores the first error; all functions do nothing afterwards. */
typedef struct lowering {
    gp_plan *plan;
    gp_status status;
    gp_error *err;
    const gp_op *op;
    const plan_follow *follow;
    plan_site *site; /* NULL: use no library */
    uint32_t index;
    bool preparing;      /* append steps to plan->prepare */
    size_t scratch;      /* scratch memory used by this op so far */
    gp_kernel_args args; /* initial arguments of the op's kernels: images, window, call, relu */
    float *known;        /* conv: sums computed by the library; NULL: none */
} lowering;

/* ---- lower.c ---- */

/* Append the steps of op `index`, and reserve the scratch and workspace memory that they need. */
gp_status gp_lower_op(gp_plan *plan, uint32_t index, plan_site *site, gp_error *err);

/* Return the initial state for lowering op `index`. */
lowering gp_lower_begin(gp_plan *plan, uint32_t index, gp_error *err);

/* Append a step. NULL: l->status is an error. */
step *gp_lower_step(lowering *l, step_kind kind);

/* Append a kernel with `count` work items. */
void gp_lower_kernel(lowering *l, gp_kernel kernel, const gp_kernel_args *args, uint64_t count);

/* Append the wide kernel if the images are suitable, otherwise the plain one. Items are elements of
 * y[0]. */
void gp_lower_wide(lowering *l, uint32_t images, gp_kernel wide_one, gp_kernel plain,
                   const gp_kernel_args *args);

/* Reserve scratch memory for this op and return a placeholder. */
void *gp_lower_scratch(lowering *l, size_t bytes);
/* Reserve memory for the plan's lifetime and for this op only. */
void *gp_lower_persistent(lowering *l, size_t bytes);

/* Return an image's element count over all rows. */
uint64_t gp_lower_elements(const lowering *l, const gp_kernel_image *image);

/* Return true if the image is packed, of 2-byte numbers, and its channels are a multiple of 8. */
bool gp_lower_image_is_wide(const gp_kernel_image *image);

/* Return true if bodies_wide.h supports the op: y[0] and the first `images` of x[] are packed
 * 2-byte images with channels in multiples of 8. Vectors count as packed in every plan. */
bool gp_lower_is_wide(const lowering *l, uint32_t images);

/* Return the number type name: "bf16", "f32". */
const char *gp_lower_number(int32_t narrow, bool tf32);

/* Return the chunk count for a sum.
 *   each   items per chunk
 *   units  units to sum
 *   most   maximum chunk count */
uint32_t gp_lower_chunks(uint64_t each, uint64_t units, uint32_t most);

/* Return the number of partial sums of a kernel of grids.h that adds up the rows of `image`, and in
 * *threads the number of its threads. */
uint32_t gp_lower_column_parts(const lowering *l, const gp_kernel_image *image, uint64_t *threads);

/* ---- choose.c ---- */

/* An op's request to a library, as gp_conv_request or gp_product_request (device.h). */
typedef struct plan_question {
    step_kind kind;     /* CONV or PRODUCT */
    const void *whole;  /* including all operations after the op; NULL: nothing follows */
    const void *alone;  /* without them */
    bool alone_by_rule; /* grant `whole` only if a recorded choice says so */
    bool direct;        /* a kernel of grids_conv.h exists; it is the default */
} plan_question;

/* Ask a library for a plan, once per op, in the way chosen for `what`. l->site->whole is true if
 * the whole request was granted. Return the plan. NULL: the library has none. */
gp_device_work *gp_lower_ask(lowering *l, const plan_question *question, const char *what, size_t *workspace);

/* ---- lower_direct.c ---- */

/* Set the arguments of the direct_conv kernel of a pass, without images and pointers, and its
 * number of threads. WEIGHTS: also the number of chunks. Return false if the convolution has many
 * channels or is otherwise unsuitable; *args is then undefined. */
bool gp_lower_direct(const lowering *l, gp_conv_pass pass, const gp_kernel_image *x, const gp_kernel_image *y,
                     gp_kernel_args *args, uint64_t *threads);

/* ---- lower_weights.c ---- */

enum { GP_LIBRARY_ALIGNMENT = 256 }; /* in bytes; required by cuBLASLt (cuDNN requires 16) */

/* Reserve memory for a gradient, or for its partial sums, until the step that adds it to the
 * gradients of parameters. */
void *gp_lower_gradient(lowering *l, size_t bytes);

/* Append the kernel that adds args->chunks partial sums in f[1] to the gradient f[0], which has
 * args->count elements. */
void gp_lower_parts_add(lowering *l, const gp_kernel_args *args);

/* Append a kernel that computes partial sums and a kernel that adds them to the gradient. gradient
 * NULL: not requested. */
void gp_lower_parts(lowering *l, gp_kernel kernel, gp_kernel_args *args, float *gradient, uint64_t count,
                    uint64_t units);

/* Return the number of partial sums of the bias gradient of a channel: a block of a kernel of
 * grids_dense.h computes one of them. 0: there are more channels than blocks. */
uint32_t gp_lower_bias_chunks(const lowering *l, uint32_t channels, uint32_t blocks);

/* Append such a kernel, and the kernel that adds the partial sums to the gradient. */
void gp_lower_bias_parts(lowering *l, gp_kernel kernel, gp_kernel_args *args, float *gradient,
                         uint32_t channels, uint32_t chunks);

/* Append the kernels for a bias gradient. gradient NULL: not requested. */
void gp_lower_bias_gradient(lowering *l, const gp_kernel_image *dy, float *gradient);

/* Append the kernel that completes a library's y: add the bias (NULL: none) and apply the fused
 * operations. */
void gp_lower_finish(lowering *l, const gp_kernel_image *y, float *bias);

/* Append the kernel that applies a relu's mask to a library's dx. */
void gp_lower_mask(lowering *l, const gp_kernel_image *dx);

/* Weight shape [outputs][inputs][pixels]. A library gets `stored` inputs; the additional ones are
 * zero. */
typedef struct gp_weights_shape {
    uint64_t outputs;
    uint32_t inputs, stored, pixels;
} gp_weights_shape;

/* Return the weights in the image order and type, with batch norm folded in if requested. This is
 * the blob itself if it has the right layout, otherwise a copy. All steps share the copy, which is
 * updated when parameters change. */
void *gp_lower_weights_pack(lowering *l, float *weights, const gp_weights_shape *shape,
                            const gp_kernel_image *like);

/* Return the vector added to the outputs, for a library or for a kernel of this folder. NULL:
 * nothing to add. */
void *gp_lower_vector(lowering *l, float *bias, uint32_t count, int32_t narrow, bool library);

/* Append the kernel that converts a weight gradient from `from` back to the blob layout. */
void gp_lower_weights_unpack(lowering *l, float *gradient, const gp_weights_shape *shape,
                             const gp_kernel_image *like, void *from, int32_t narrow);

/* Append a library step. The plan takes ownership of `work`, even on failure. */
void gp_lower_work(lowering *l, step_kind kind, gp_device_work *work, size_t workspace,
                   const gp_device_operands *at);

/* ---- lowering functions by op ---- */

void gp_lower_conv(lowering *l);
void gp_lower_fc(lowering *l);

/* Append the sums for batch norm op `norm`, while lowering the op that writes the norm's input. */
void gp_lower_batchnorm_sums(lowering *writer, uint32_t norm);
void gp_lower_xent(lowering *l);
void gp_lower_values_loss(lowering *l);
void gp_lower_dice(lowering *l);
void gp_lower_custom_loss(lowering *l);

#endif
