/* lower.c -- each op as kernels.
 *
 * Convolutions and fully connected layers go to cuDNN and cuBLASLt where these have a plan.  Their weights are copies in
 * the order and type of the activations, packed anew in each call; their weights' gradients come out the same way and are
 * added to the blob's.  Everything else, and what the libraries refuse, is bodies of our own.
 *
 * Scratch is shared by all ops, which run one after the other.  Its place is not known before all are lowered: pointers
 * into it are offsets from SCRATCH_BASE, which is no address, until plan.c moves them. */
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/rng.h"
#include "worker/backend/cuda/bodies.h"
#include "worker/backend/cuda/lower.h"

_Static_assert((int)BODY_SUMS == (int)GP_SUMS && (int)BODY_WEIGHT == (int)GP_SUM_WEIGHT &&
                   (int)BODY_CORRECT == (int)GP_SUM_CORRECT && (int)BODY_VALUES == (int)GP_SUM_VALUES,
               "a step's sums stand elsewhere");
_Static_assert((int)STEP_STATISTIC_MEAN == (int)GP_STATISTIC_MEAN, "statistics have other numbers");

/* What the lowering of one op has at hand. */
typedef struct lowering {
    gp_plan *plan;
    const gp_op *op;
    uint32_t index;
    size_t scratch;      /* taken by this op so far */
    gp_kernel_args args; /* images, window, call: what kernels of the op begin with */
} lowering;

static step *step_add(lowering *l, step_kind kind)
{
    gp_plan *plan = l->plan;
    step *added;

    if (plan->step_count == plan->step_capacity) {
        uint32_t capacity = plan->step_capacity == 0 ? 64 : 2 * plan->step_capacity;
        step *grown = gp_realloc_array(plan->steps, capacity, sizeof(*grown));

        if (grown == NULL)
            return NULL;
        plan->steps = grown;
        plan->step_capacity = capacity;
    }
    added = &plan->steps[plan->step_count++];
    memset(added, 0, sizeof(*added));
    added->kind = kind;
    added->op = l->index;
    return added;
}

static gp_status no_steps(gp_error *err)
{
    return gp_fail(err, GP_ENOMEM, "no memory for the steps of a plan");
}

static gp_status kernel_add(lowering *l, gp_kernel kernel, const gp_kernel_args *args, uint64_t count,
                            gp_error *err)
{
    step *added;

    if (count > INT32_MAX)
        return gp_fail(err, GP_ELIMIT,
                       "op %s has %llu work items; a GPU takes at most %d: use a smaller batch",
                       gp_op_name(l->op->code), (unsigned long long)count, INT32_MAX);
    added = step_add(l, STEP_KERNEL);
    if (added == NULL)
        return no_steps(err);
    added->kernel = kernel;
    added->args = *args;
    added->count = (uint32_t)count;
    return GP_OK;
}

static void *scratch_take(lowering *l, size_t bytes)
{
    void *at = (void *)(GP_SCRATCH_BASE + l->scratch);

    l->scratch += (bytes + 255) / 256 * 256;
    if (l->scratch > l->plan->scratch_bytes)
        l->plan->scratch_bytes = l->scratch;
    return at;
}

static uint64_t elements(const lowering *l, const gp_kernel_image *image)
{
    return (uint64_t)image->sample * l->plan->options.micro_batch;
}

/* Whether bodies_wide.h takes the op: all its images are packed bfloat16 of eights of channels.  Those of vectors are too,
 * whichever the plan's order is. */
static bool is_wide(const lowering *l, uint32_t images)
{
    const gp_kernel_image *all[3] = { &l->args.y[0], &l->args.x[0], &l->args.x[1] };

    for (uint32_t i = 0; i < images + 1; i++)
        if (all[i]->data != NULL &&
            (!all[i]->narrow || all[i]->channel_stride != 1 || all[i]->channels % 8 != 0))
            return false;
    return true;
}

/* Into how many parts to cut a sum of so many units, where each part has `each` items. */
static uint32_t chunks_for(uint64_t each, uint64_t units, uint32_t most)
{
    enum { ITEMS = 1 << 18 };
    uint64_t chunks = each == 0 ? 1 : ITEMS / each;

    chunks = chunks > most ? most : chunks;
    chunks = chunks > units ? units : chunks;
    return chunks == 0 ? 1 : (uint32_t)chunks;
}

/* ---- gradients of parameters: parts, then their sum ---- */

static gp_status parts_add(lowering *l, gp_kernel kernel, gp_kernel_args *args, float *gradient,
                           uint64_t count, uint64_t units, gp_error *err)
{
    gp_status status;

    if (gradient == NULL)
        return GP_OK;
    args->count = count;
    args->chunks = chunks_for(count, units, PLAN_CHUNKS_MAX);
    args->f[0] = gradient;
    args->f[1] = scratch_take(l, (size_t)args->chunks * count * sizeof(float));
    status = kernel_add(l, kernel, args, args->chunks * count, err);
    return status == GP_OK ? kernel_add(l, GP_KERNEL_parts_add, args, count, err) : status;
}

static gp_status bias_gradient(lowering *l, const gp_kernel_image *dy, float *gradient, gp_error *err)
{
    gp_kernel_args args = l->args;

    args.x[0] = *dy;
    return parts_add(l, GP_KERNEL_bias_part, &args, gradient, dy->channels,
                     (uint64_t)l->plan->options.micro_batch * dy->pixels, err);
}

static gp_status bias_add(lowering *l, const gp_kernel_image *y, float *bias, gp_error *err)
{
    gp_kernel_args args = l->args;

    if (bias == NULL)
        return GP_OK;
    args.y[0] = *y;
    args.f[0] = bias;
    return kernel_add(l, GP_KERNEL_bias_add, &args, elements(l, y), err);
}

/* ---- the libraries ---- */

static gp_kernel_image vector_image(void *data, uint64_t count, bool narrow)
{
    return (gp_kernel_image){ .data = data,
                              .channels = (uint32_t)count,
                              .height = 1,
                              .width = 1,
                              .pixels = 1,
                              .channel_stride = 1,
                              .pixel_stride = (uint32_t)count,
                              .sample = (uint32_t)count,
                              .narrow = narrow };
}

/* Weights [O][I][P] in the order and type of the images; as they are where those are the blob's. */
static gp_status weights_pack(lowering *l, float *weights, uint64_t outputs, uint32_t inputs, uint32_t pixels,
                              const gp_kernel_image *like, void **out, gp_error *err)
{
    gp_kernel_args args = l->args;
    uint64_t count = outputs * inputs * pixels;
    bool same = like->channel_stride != 1 || inputs == 1 || pixels == 1;

    if (same && !like->narrow) {
        *out = weights;
        return GP_OK;
    }
    *out = scratch_take(l, count * (like->narrow ? 2 : 4));
    args.y[0] = vector_image(*out, count, like->narrow);
    args.f[0] = weights;
    args.n[0] = same ? pixels * inputs : inputs; /* in the same order: a change of type alone */
    args.n[1] = same ? 1 : pixels;
    return kernel_add(l, GP_KERNEL_weights_pack, &args, count, err);
}

/* The way back of a gradient, which was computed into `from`. */
static gp_status weights_unpack(lowering *l, float *gradient, uint64_t outputs, uint32_t inputs,
                                uint32_t pixels, const gp_kernel_image *like, void *from, bool narrow,
                                gp_error *err)
{
    gp_kernel_args args = l->args;
    uint64_t count = outputs * inputs * pixels;
    bool same = like->channel_stride != 1 || inputs == 1 || pixels == 1;

    args.x[0] = vector_image(from, count, narrow);
    args.f[0] = gradient;
    args.n[0] = same ? pixels * inputs : inputs;
    args.n[1] = same ? 1 : pixels;
    return kernel_add(l, GP_KERNEL_weights_unpack, &args, count, err);
}

static gp_status work_add(lowering *l, step_kind kind, gp_device_work *work, size_t workspace,
                          const void *first, const void *second, void *out, gp_error *err)
{
    step *added = step_add(l, kind);

    if (added == NULL) {
        gp_device_work_free(work);
        return no_steps(err);
    }
    added->work = work;
    added->first = first;
    added->second = second;
    added->out = out;
    if (workspace > l->plan->workspace_bytes)
        l->plan->workspace_bytes = workspace;
    return GP_OK;
}

/* *done: the library has a plan.  x and y are of the convolution, whichever op it stands for. */
static gp_status library_conv(lowering *l, gp_conv_pass pass, const gp_kernel_image *x,
                              const gp_kernel_image *y, float *weights, float *bias, bool *done,
                              gp_error *err)
{
    const gp_window *window = &l->op->window;
    gp_conv_request request = { .pass = pass,
                                .x = *x,
                                .y = *y,
                                .rows = l->plan->options.micro_batch,
                                .groups = window->groups,
                                .tf32 = l->plan->backend->tf32 };
    uint32_t inputs = x->channels / (uint32_t)window->groups;
    uint32_t taps = (uint32_t)(window->kernel[0] * window->kernel[1]);
    gp_device_work *work;
    size_t workspace = 0;
    void *packed;
    gp_error why;
    gp_status status;

    *done = false;
    if (l->plan->backend->own || x->narrow != y->narrow)
        return GP_OK;
    memcpy(request.kernel, window->kernel, sizeof(request.kernel));
    memcpy(request.stride, window->stride, sizeof(request.stride));
    memcpy(request.dilation, window->dilation, sizeof(request.dilation));
    memcpy(request.padding, window->padding, sizeof(request.padding));
    status = gp_device_conv_new(&work, l->plan->backend->device, &request, &workspace, &why);
    if (status == GP_EUNSUPPORTED)
        return GP_OK;
    if (status != GP_OK) {
        if (err != NULL)
            *err = why;
        return status;
    }
    *done = true;
    if (pass == GP_CONV_WEIGHTS) {
        void *from = scratch_take(l, (uint64_t)y->channels * inputs * taps * (x->narrow ? 2 : 4));

        status = work_add(l, STEP_CONV, work, workspace, x->data, y->data, from, err);
        if (status == GP_OK)
            status = weights_unpack(l, weights, y->channels, inputs, taps, x, from, x->narrow, err);
        return status;
    }
    status = weights_pack(l, weights, y->channels, inputs, taps, x, &packed, err);
    if (status != GP_OK) {
        gp_device_work_free(work);
        return status;
    }
    status = pass == GP_CONV_FORWARD ? work_add(l, STEP_CONV, work, workspace, x->data, packed, y->data, err)
                                     : work_add(l, STEP_CONV, work, workspace, packed, y->data, x->data, err);
    return status == GP_OK ? bias_add(l, pass == GP_CONV_FORWARD ? y : x, bias, err) : status;
}

/* ---- convolution: pass over x and y of the window, transposed or not ---- */

static gp_status conv_values(lowering *l, gp_conv_pass pass, const gp_kernel_image *x,
                             const gp_kernel_image *y, float *weights, float *bias, gp_error *err)
{
    gp_kernel_args args = l->args;
    bool done, forward = pass == GP_CONV_FORWARD;
    const gp_kernel_image *from = forward ? x : y, *to = forward ? y : x;
    gp_status status = library_conv(l, pass, x, y, weights, bias, &done, err);

    if (status != GP_OK || done)
        return status;
    args.x[0] = *from;
    args.y[0] = *to;
    args.f[0] = weights;
    args.f[1] = bias;
    return kernel_add(l, forward ? GP_KERNEL_conv : GP_KERNEL_conv_data, &args, elements(l, to), err);
}

static gp_status conv_weights(lowering *l, const gp_kernel_image *x, const gp_kernel_image *y,
                              float *gradient, gp_error *err)
{
    const gp_window *window = &l->op->window;
    gp_kernel_args args = l->args;
    bool done = false;
    gp_status status;

    if (gradient == NULL)
        return GP_OK;
    status = library_conv(l, GP_CONV_WEIGHTS, x, y, gradient, NULL, &done, err);
    if (status != GP_OK || done)
        return status;
    args.x[0] = *x;
    args.x[1] = *y;
    return parts_add(l, GP_KERNEL_conv_weights, &args, gradient,
                     (uint64_t)y->channels * (x->channels / (uint32_t)window->groups) *
                         (uint32_t)(window->kernel[0] * window->kernel[1]),
                     (uint64_t)l->plan->options.micro_batch * y->height, err);
}

static gp_status lower_conv(lowering *l, gp_error *err)
{
    const gp_op *op = l->op;
    float *weights = gp_plan_data(l->plan, op->in[1]), *bias = gp_plan_data(l->plan, op->in[2]);
    gp_status status;

    switch (op->code) {
    case GP_OP_CONV2D:
        return conv_values(l, GP_CONV_FORWARD, &l->args.x[0], &l->args.y[0], weights, bias, err);
    case GP_OP_CONV2D_BACKWARD_DATA:
        return conv_values(l, GP_CONV_DATA, &l->args.y[0], &l->args.x[0], weights, NULL, err);
    case GP_OP_TRANSCONV2D:
        return conv_values(l, GP_CONV_DATA, &l->args.y[0], &l->args.x[0], weights, bias, err);
    case GP_OP_TRANSCONV2D_BACKWARD_DATA:
        return conv_values(l, GP_CONV_FORWARD, &l->args.x[0], &l->args.y[0], weights, NULL, err);
    case GP_OP_CONV2D_BACKWARD_WEIGHTS:
        status = conv_weights(l, &l->args.x[0], &l->args.x[1], gp_plan_data(l->plan, op->out[0]), err);
        break;
    default: /* transposed: dy is the convolution's x */
        status = conv_weights(l, &l->args.x[1], &l->args.x[0], gp_plan_data(l->plan, op->out[0]), err);
        break;
    }
    return status == GP_OK ? bias_gradient(l, &l->args.x[1], gp_plan_data(l->plan, op->out[1]), err) : status;
}

/* ---- fully connected ---- */

/* *done: cuBLASLt took it.  x [rows][F], y [rows][O] as the op's images; weights of the blob. */
static gp_status library_fc(lowering *l, gp_conv_pass pass, const gp_kernel_image *x,
                            const gp_kernel_image *y, float *weights, float *bias, bool *done, gp_error *err)
{
    uint32_t rows = l->plan->options.micro_batch, inputs = x->sample, outputs = y->sample;
    gp_product_request request = { .tf32 = l->plan->backend->tf32,
                                   .narrow_a = y->narrow,
                                   .narrow_b = x->narrow };
    gp_device_work *work;
    size_t workspace = 0;
    void *packed;
    gp_status status;

    *done = false;
    if (l->plan->backend->own)
        return GP_OK;
    switch (pass) {
    case GP_CONV_FORWARD: /* y = x W' */
        request.n = rows, request.m = outputs, request.k = inputs;
        request.transpose_b = true;
        request.narrow_a = request.narrow_b = x->narrow;
        request.narrow_out = y->narrow;
        break;
    case GP_CONV_DATA: /* dx = dy W */
        request.n = rows, request.m = inputs, request.k = outputs;
        request.narrow_a = request.narrow_b = y->narrow;
        request.narrow_out = x->narrow;
        break;
    case GP_CONV_WEIGHTS: /* dW = dy' x */
        request.n = outputs, request.m = inputs, request.k = rows;
        request.transpose_a = true;
        break;
    }
    if (request.narrow_a != request.narrow_b)
        return GP_OK; /* next to a loss, whose numbers are wide */
    status = gp_device_product_new(&work, l->plan->backend->device, &request, &workspace, err);
    if (status != GP_OK)
        return status == GP_EUNSUPPORTED ? GP_OK : status;
    *done = true;
    if (pass == GP_CONV_WEIGHTS) {
        void *from = scratch_take(l, (uint64_t)outputs * inputs * sizeof(float));

        status = work_add(l, STEP_PRODUCT, work, workspace, y->data, x->data, from, err);
        if (status == GP_OK)
            status = weights_unpack(l, weights, outputs, x->channels, x->pixels, x, from, false, err);
        return status;
    }
    gp_kernel_image like = *x;

    like.narrow = request.narrow_a;
    status = weights_pack(l, weights, outputs, x->channels, x->pixels, &like, &packed, err);
    if (status != GP_OK) {
        gp_device_work_free(work);
        return status;
    }
    status = work_add(l, STEP_PRODUCT, work, workspace, pass == GP_CONV_FORWARD ? x->data : y->data, packed,
                      pass == GP_CONV_FORWARD ? y->data : x->data, err);
    return status == GP_OK && pass == GP_CONV_FORWARD ? bias_add(l, y, bias, err) : status;
}

static gp_status lower_fc(lowering *l, gp_error *err)
{
    const gp_op *op = l->op;
    gp_kernel_args args = l->args;
    float *gradient = gp_plan_data(l->plan, op->out[0]);
    bool done = false;
    gp_status status = GP_OK;

    args.f[0] = gp_plan_data(l->plan, op->in[1]);
    args.f[1] = NULL;
    switch (op->code) {
    case GP_OP_FC:
        args.f[1] = gp_plan_data(l->plan, op->in[2]);
        status = library_fc(l, GP_CONV_FORWARD, &args.x[0], &args.y[0], args.f[0], args.f[1], &done, err);
        if (status != GP_OK || done)
            return status;
        return kernel_add(l, GP_KERNEL_fc, &args, elements(l, &args.y[0]), err);
    case GP_OP_FC_BACKWARD_DATA:
        status = library_fc(l, GP_CONV_DATA, &args.y[0], &args.x[0], args.f[0], NULL, &done, err);
        if (status != GP_OK || done)
            return status;
        return kernel_add(l, GP_KERNEL_fc_data, &args, elements(l, &args.y[0]), err);
    default:
        break;
    }
    if (gradient != NULL)
        status = library_fc(l, GP_CONV_WEIGHTS, &args.x[0], &args.x[1], gradient, NULL, &done, err);
    if (status == GP_OK && !done)
        status = parts_add(l, GP_KERNEL_fc_weights, &args, gradient,
                           (uint64_t)args.x[1].sample * args.x[0].sample, l->plan->options.micro_batch, err);
    return status == GP_OK ? bias_gradient(l, &l->args.x[1], gp_plan_data(l->plan, op->out[1]), err) : status;
}

/* ---- pooling ---- */

static gp_status lower_pool(lowering *l, gp_error *err)
{
    gp_kernel_args args = l->args;
    bool forward = l->op->code == GP_OP_POOL;

    args.kind = (int32_t)l->op->pool;
    args.bytes = gp_plan_data(l->plan, forward ? l->op->out[1] : l->op->in[1]);
    return kernel_add(l, forward ? GP_KERNEL_pool : GP_KERNEL_pool_backward, &args, elements(l, &args.y[0]),
                      err);
}

/* ---- one kernel, an item for each element of y or of x ---- */

/* The wide kernel where its images fit, the plain one elsewhere; items are elements of y[0]. */
static gp_status wide_add(lowering *l, uint32_t images, gp_kernel wide_one, gp_kernel plain,
                          const gp_kernel_args *args, gp_error *err)
{
    bool fits = is_wide(l, images);

    return kernel_add(l, fits ? wide_one : plain, args, elements(l, &args->y[0]) / (fits ? 8 : 1), err);
}

static void resize_ratios(gp_kernel_args *args, const gp_kernel_image *from, const gp_kernel_image *to)
{
    const double inputs[2] = { from->height, from->width }, outputs[2] = { to->height, to->width };

    for (int k = 0; k < 2; k++)
        args->number64[k] = args->kind != GP_RESIZE_BILINEAR_CORNERS ? inputs[k] / outputs[k]
                            : outputs[k] == 1.0                      ? 0.0
                                                                     : (inputs[k] - 1.0) / (outputs[k] - 1.0);
}

static gp_status lower_simple(lowering *l, gp_error *err)
{
    gp_kernel_args args = l->args;
    gp_kernel kernel = GP_KERNEL_COUNT;

    args.kind = l->op->number[0];
    switch (l->op->code) {
    case GP_OP_RELU:
        return wide_add(l, 1, GP_KERNEL_wide_relu, GP_KERNEL_relu, &args, err);
    case GP_OP_RELU_BACKWARD:
        return wide_add(l, 2, GP_KERNEL_wide_relu_backward, GP_KERNEL_relu_backward, &args, err);
    case GP_OP_ADD:
        return wide_add(l, 2, GP_KERNEL_wide_add, GP_KERNEL_add, &args, err);
    case GP_OP_ACTIVATION:
        args.kind = (int32_t)l->op->function;
        kernel = GP_KERNEL_activation;
        break;
    case GP_OP_ACTIVATION_BACKWARD:
        args.kind = (int32_t)l->op->function;
        kernel = GP_KERNEL_activation_backward;
        break;
    case GP_OP_MULTIPLY:
        kernel = GP_KERNEL_multiply;
        break;
    case GP_OP_MULTIPLY_SUM:
        kernel = GP_KERNEL_multiply_sum;
        break;
    case GP_OP_RESIZE:
        resize_ratios(&args, &args.x[0], &args.y[0]);
        kernel = GP_KERNEL_resize;
        break;
    case GP_OP_RESIZE_BACKWARD:
        resize_ratios(&args, &args.y[0], &args.x[0]);
        kernel = GP_KERNEL_resize_backward;
        break;
    case GP_OP_PAD:
        kernel = GP_KERNEL_pad;
        break;
    case GP_OP_TRANSPOSE:
        kernel = GP_KERNEL_transpose;
        break;
    case GP_OP_SLICE:
        args.kind = 0;
        kernel = GP_KERNEL_copy_box;
        break;
    case GP_OP_SOFTMAX:
    case GP_OP_SOFTMAX_BACKWARD:
        return kernel_add(l, l->op->code == GP_OP_SOFTMAX ? GP_KERNEL_softmax : GP_KERNEL_softmax_backward,
                          &args, (uint64_t)args.x[0].pixels * l->plan->options.micro_batch, err);
    default:
        break;
    }
    return kernel_add(l, kernel, &args, elements(l, &args.y[0]), err);
}

static gp_status lower_reshape(lowering *l, gp_error *err)
{
    if (l->args.x[0].data == l->args.y[0].data)
        return GP_OK;
    return kernel_add(l, GP_KERNEL_reshape, &l->args, elements(l, &l->args.y[0]), err);
}

static gp_status lower_concat(lowering *l, gp_error *err)
{
    gp_kernel_args args = l->args;
    gp_status status = GP_OK;

    args.kind = 1;
    memset(args.number, 0, sizeof(args.number));
    for (int k = 0; k < GP_OP_VALUES_MAX && l->op->in[k] != GP_NO_VALUE && status == GP_OK; k++) {
        const uint32_t extent[3] = { l->args.x[k].channels, l->args.x[k].height, l->args.x[k].width };

        args.x[0] = l->args.x[k];
        status = kernel_add(l, GP_KERNEL_copy_box, &args, elements(l, &args.x[0]), err);
        args.number[l->op->number[0]] += (int32_t)extent[l->op->number[0]];
    }
    return status;
}

static gp_status lower_dropout(lowering *l, gp_error *err)
{
    gp_kernel_args args = l->args;

    args.rate = (float)l->op->rate;
    args.n[0] = gp_rng_stream(GP_RNG_DROPOUT, l->op->layer);
    args.n[1] = (args.x[0].sample + 3) / 4;
    return kernel_add(l, GP_KERNEL_dropout, &args, (uint64_t)args.n[1] * l->plan->options.micro_batch, err);
}

/* ---- norms ---- */

static gp_status couple_add(lowering *l, double *sums, size_t doubles, gp_error *err)
{
    step *added = step_add(l, STEP_COUPLE);

    if (added == NULL)
        return no_steps(err);
    added->sums = sums;
    added->doubles = doubles;
    return GP_OK;
}

static gp_status lower_batchnorm(lowering *l, gp_error *err)
{
    enum { MANY = 4096, FEW = 64 };
    const gp_op *op = l->op;
    gp_kernel_args args = l->args;
    uint32_t channels = args.x[0].channels;
    bool forward = op->code == GP_OP_BATCHNORM, fits = is_wide(l, forward ? 1 : 2);
    gp_status status;

    args.number64[0] = op->factor[0];
    args.kind = !forward;
    args.chunks =
        chunks_for(channels / (fits ? 8 : 1),
                   (uint64_t)l->plan->options.micro_batch * args.x[0].pixels / (fits ? 16 : 1), MANY);
    args.d[0] = scratch_take(l, (size_t)args.chunks * 2 * channels * sizeof(double));
    args.d[1] = scratch_take(l, (2 * (size_t)channels + 1) * sizeof(double));
    if (forward) {
        args.f[0] = gp_plan_data(l->plan, op->in[3]);
        args.f[3] = gp_plan_data(l->plan, op->out[1]);
        args.f[1] = gp_plan_data(l->plan, op->out[2]);
        args.f[2] = gp_plan_data(l->plan, op->out[3]);
    } else {
        args.f[0] = gp_plan_data(l->plan, op->in[2]);
        args.f[3] = gp_plan_data(l->plan, op->in[3]);
        args.f[1] = gp_plan_data(l->plan, op->out[1]);
        args.f[2] = gp_plan_data(l->plan, op->out[2]);
    }
    status = kernel_add(l,
                        fits      ? GP_KERNEL_wide_batchnorm_part
                        : forward ? GP_KERNEL_batchnorm_part
                                  : GP_KERNEL_batchnorm_backward_part,
                        &args, (uint64_t)args.chunks * (channels / (fits ? 8 : 1)), err);
    if (args.chunks > 2 * FEW && status == GP_OK) { /* one item would add for too long */
        gp_kernel_args fold = args;

        fold.n[0] = 2 * channels;
        fold.n[1] = FEW;
        fold.d[1] = scratch_take(l, (size_t)FEW * 2 * channels * sizeof(double));
        status = kernel_add(l, GP_KERNEL_parts_fold, &fold, (uint64_t)FEW * 2 * channels, err);
        args.d[0] = fold.d[1];
        args.chunks = FEW;
    }
    if (status == GP_OK)
        status = kernel_add(l, forward ? GP_KERNEL_batchnorm_sum : GP_KERNEL_batchnorm_backward_sum, &args,
                            channels, err);
    if (status == GP_OK)
        status = couple_add(l, args.d[1], 2 * (size_t)channels + 1, err);
    if (status == GP_OK && !forward)
        return args.y[0].data == NULL ? GP_OK
                                      : wide_add(l, 2, GP_KERNEL_wide_batchnorm_backward_apply,
                                                 GP_KERNEL_batchnorm_backward_apply, &args, err);
    if (status == GP_OK)
        status = kernel_add(l, GP_KERNEL_batchnorm_moments, &args, channels, err);
    args.f[1] = gp_plan_data(l->plan, op->in[1]);
    args.f[2] = gp_plan_data(l->plan, op->in[2]);
    return status == GP_OK
               ? wide_add(l, 1, GP_KERNEL_wide_batchnorm_apply, GP_KERNEL_batchnorm_apply, &args, err)
               : status;
}

static gp_status lower_batchnorm_infer(lowering *l, gp_error *err)
{
    gp_kernel_args args = l->args;

    args.number64[0] = l->op->factor[0];
    args.f[1] = gp_plan_data(l->plan, l->op->in[1]);
    args.f[2] = gp_plan_data(l->plan, l->op->in[2]);
    args.f[0] = gp_plan_data(l->plan, l->op->in[3]);
    args.f[3] = gp_plan_data(l->plan, l->op->in[4]);
    return kernel_add(l, GP_KERNEL_batchnorm_infer, &args, elements(l, &args.y[0]), err);
}

static gp_status lower_groupnorm(lowering *l, gp_error *err)
{
    const gp_op *op = l->op;
    gp_kernel_args args = l->args;
    uint64_t rows = l->plan->options.micro_batch, groups = (uint64_t)op->number[0];
    gp_status status;

    args.number64[0] = op->factor[0];
    if (op->code == GP_OP_GROUPNORM) {
        args.f[1] = gp_plan_data(l->plan, op->in[1]);
        args.f[2] = gp_plan_data(l->plan, op->in[2]);
        args.f[3] = gp_plan_data(l->plan, op->out[1]);
        status = kernel_add(l, GP_KERNEL_groupnorm_moments, &args, rows * groups, err);
        return status == GP_OK ? kernel_add(l, GP_KERNEL_groupnorm_apply, &args, elements(l, &args.y[0]), err)
                               : status;
    }
    args.f[0] = gp_plan_data(l->plan, op->in[2]);
    args.f[3] = gp_plan_data(l->plan, op->in[3]);
    args.f[1] = gp_plan_data(l->plan, op->out[1]);
    args.f[2] = gp_plan_data(l->plan, op->out[2]);
    args.f[4] = gp_plan_data(l->plan, op->out[3]);
    args.f[5] = scratch_take(l, rows * 2 * groups * sizeof(float));
    status = kernel_add(l, GP_KERNEL_groupnorm_backward_channels, &args, rows * args.x[0].channels, err);
    if (status == GP_OK)
        status = kernel_add(l, GP_KERNEL_groupnorm_backward_parameters, &args, args.x[0].channels, err);
    if (status != GP_OK || args.y[0].data == NULL)
        return status;
    status = kernel_add(l, GP_KERNEL_groupnorm_backward_groups, &args, rows * groups, err);
    return status == GP_OK
               ? kernel_add(l, GP_KERNEL_groupnorm_backward_apply, &args, elements(l, &args.y[0]), err)
               : status;
}

static gp_status lower_lrn(lowering *l, gp_error *err)
{
    gp_kernel_args args = l->args;
    gp_status status;

    if (l->op->code == GP_OP_LRN)
        return kernel_add(l, GP_KERNEL_lrn, &args, elements(l, &args.y[0]), err);
    args.y[0] = l->args.y[1];
    status = kernel_add(l, GP_KERNEL_lrn_terms, &args, elements(l, &args.y[0]), err);
    args.x[3] = l->args.y[1];
    args.y[0] = l->args.y[0];
    return status == GP_OK ? kernel_add(l, GP_KERNEL_lrn_backward, &args, elements(l, &args.y[0]), err)
                           : status;
}

/* ---- losses ---- */

static uint32_t smaller(uint64_t a, uint32_t b)
{
    return a < b ? (uint32_t)a : b;
}

/* Parts in args->d[0], `parts` of them, are added to the sums; many by way of fewer. */
static gp_status loss_sums_add(lowering *l, gp_kernel_args args, uint32_t parts, gp_error *err)
{
    enum { FEW = 64 };
    gp_status status = GP_OK;

    args.chunks = parts;
    if (parts > 4 * FEW) {
        args.kind = 0;
        args.n[0] = FEW;
        args.d[1] = scratch_take(l, FEW * BODY_SUMS * sizeof(double));
        status = kernel_add(l, GP_KERNEL_loss_sums, &args, FEW * BODY_SUMS, err);
        args.d[0] = args.d[1];
        args.chunks = FEW;
    }
    args.kind = 1;
    args.n[0] = 1;
    args.d[1] = l->plan->sums;
    return status == GP_OK ? kernel_add(l, GP_KERNEL_loss_sums, &args, BODY_SUMS, err) : status;
}

/* Weights of classes were put behind each other in the order of ops (plan.c). */
static float *class_weights_of(const lowering *l)
{
    const gp_ops *ops = &l->plan->graph->ops[l->plan->options.phase];
    size_t at = 0;

    if (l->op->weights == NULL)
        return NULL;
    for (uint32_t i = 0; i < l->index; i++)
        if (ops->op[i].weights != NULL)
            at += (size_t)l->plan->graph->values[ops->op[i].in[0]].shape.dim[0];
    return l->plan->class_weights + at;
}

static void loss_args(const lowering *l, gp_kernel_args *args)
{
    const gp_op *op = l->op;
    double mean = 0.0;

    args->bytes = l->plan->targets;
    args->f[2] = op->out[2] == GP_NO_VALUE ? NULL : l->plan->scores;
    args->n[0] = op->loss.target_first;
    args->n[1] = op->loss.target_stride;
    args->n[2] = op->loss.score_first;
    args->n[3] = op->loss.score_stride;
    args->number64[0] = op->loss.factor;
    args->number64[1] = op->loss.weight;
    args->number64[2] = op->factor[0];
    if (op->code == GP_OP_SOFTMAX_XENT) {
        args->number[0] = -1; /* nothing else is ignored */
        args->factor[0] = 0.0f;
    }
    for (uint32_t k = 0; k < args->x[0].channels; k++)
        mean += (op->weights == NULL ? 1.0 : op->weights[k]) / args->x[0].channels;
    args->factor[1] = (float)((double)args->factor[0] * mean);
    args->f[3] = class_weights_of(l);
}

static gp_status lower_xent(lowering *l, gp_error *err)
{
    enum { PARTS = 1 << 14 };
    gp_kernel_args args = l->args;
    gp_status status;

    loss_args(l, &args);
    args.chunks = smaller((uint64_t)args.rows * args.x[0].pixels, PARTS);
    args.d[0] = scratch_take(l, (size_t)args.chunks * BODY_SUMS * sizeof(double));
    status = kernel_add(l, GP_KERNEL_xent, &args, args.chunks, err);
    return status == GP_OK ? loss_sums_add(l, args, args.chunks, err) : status;
}

static gp_status lower_values_loss(lowering *l, gp_error *err)
{
    enum { PARTS = 1 << 14 };
    gp_kernel_args args = l->args;
    gp_status status;

    loss_args(l, &args);
    args.kind = l->op->code == GP_OP_HUBER;
    args.factor[0] = (float)l->op->factor[0];
    args.chunks = smaller((uint64_t)args.rows * args.x[0].sample, PARTS);
    args.d[0] = scratch_take(l, (size_t)args.chunks * BODY_SUMS * sizeof(double));
    status = kernel_add(l, GP_KERNEL_values_loss, &args, args.chunks, err);
    return status == GP_OK ? loss_sums_add(l, args, args.chunks, err) : status;
}

static gp_status lower_dice(lowering *l, gp_error *err)
{
    enum { PARTS = 1 << 13 };
    gp_kernel_args args = l->args;
    uint32_t classes = args.x[0].channels, parts = smaller((uint64_t)args.rows * args.x[0].pixels, PARTS);
    gp_status status;

    loss_args(l, &args);
    args.chunks = chunks_for((uint64_t)args.rows * classes, args.x[0].pixels, PLAN_CHUNKS_MAX);
    args.n[4] = parts;
    args.f[4] = scratch_take(l, (size_t)args.rows * args.chunks * classes * 3 * sizeof(float));
    args.f[5] = scratch_take(l, (size_t)args.rows * (classes + 2) * sizeof(float));
    args.d[0] = scratch_take(l, ((size_t)args.rows + parts) * BODY_SUMS * sizeof(double));
    status = kernel_add(l, GP_KERNEL_dice_part, &args, (uint64_t)args.rows * args.chunks * classes, err);
    if (status == GP_OK)
        status = kernel_add(l, GP_KERNEL_dice_sum, &args, args.rows, err);
    if (status == GP_OK)
        status = kernel_add(l, GP_KERNEL_dice_apply, &args, parts, err);
    return status == GP_OK ? loss_sums_add(l, args, args.rows + parts, err) : status;
}

/* Scores go to the host in CHW order; the gradient comes back the same way and is put in order here. */
static gp_status lower_own_loss(lowering *l, gp_error *err)
{
    gp_kernel_args args = l->args;
    gp_kernel_image plain = args.x[0];
    step *added;
    gp_status status;

    args.f[2] = l->plan->scores;
    args.n[2] = 0;
    args.n[3] = args.x[0].sample;
    status = kernel_add(l, GP_KERNEL_scores_copy, &args, elements(l, &args.x[0]), err);
    if (status != GP_OK || l->op->out[0] == GP_NO_VALUE || l->plan->memory.loss == NULL)
        return status;
    plain.channel_stride = plain.pixels;
    plain.pixel_stride = 1;
    plain.narrow = false;
    plain.data = scratch_take(l, elements(l, &plain) * sizeof(float));
    added = step_add(l, STEP_OWN_LOSS);
    if (added == NULL)
        return no_steps(err);
    added->first = l->plan->scores;
    added->out = plain.data;
    l->plan->host_bytes = elements(l, &plain) * sizeof(float);
    args.x[0] = plain;
    return kernel_add(l, GP_KERNEL_reshape, &args, elements(l, &args.y[0]), err);
}

/* ---- the table ---- */

typedef gp_status (*lower_fn)(lowering *l, gp_error *err);

static lower_fn lower_find(gp_opcode code)
{
    static const lower_fn table[GP_OP_COUNT] = {
        [GP_OP_CONV2D] = lower_conv,
        [GP_OP_CONV2D_BACKWARD_DATA] = lower_conv,
        [GP_OP_CONV2D_BACKWARD_WEIGHTS] = lower_conv,
        [GP_OP_TRANSCONV2D] = lower_conv,
        [GP_OP_TRANSCONV2D_BACKWARD_DATA] = lower_conv,
        [GP_OP_TRANSCONV2D_BACKWARD_WEIGHTS] = lower_conv,
        [GP_OP_FC] = lower_fc,
        [GP_OP_FC_BACKWARD_DATA] = lower_fc,
        [GP_OP_FC_BACKWARD_WEIGHTS] = lower_fc,
        [GP_OP_RELU] = lower_simple,
        [GP_OP_RELU_BACKWARD] = lower_simple,
        [GP_OP_ADD] = lower_simple,
        [GP_OP_ACTIVATION] = lower_simple,
        [GP_OP_ACTIVATION_BACKWARD] = lower_simple,
        [GP_OP_MULTIPLY] = lower_simple,
        [GP_OP_MULTIPLY_SUM] = lower_simple,
        [GP_OP_RESIZE] = lower_simple,
        [GP_OP_RESIZE_BACKWARD] = lower_simple,
        [GP_OP_SLICE] = lower_simple,
        [GP_OP_PAD] = lower_simple,
        [GP_OP_TRANSPOSE] = lower_simple,
        [GP_OP_SOFTMAX] = lower_simple,
        [GP_OP_SOFTMAX_BACKWARD] = lower_simple,
        [GP_OP_CONCAT] = lower_concat,
        [GP_OP_RESHAPE] = lower_reshape,
        [GP_OP_POOL] = lower_pool,
        [GP_OP_POOL_BACKWARD] = lower_pool,
        [GP_OP_DROPOUT] = lower_dropout,
        [GP_OP_DROPOUT_BACKWARD] = lower_dropout,
        [GP_OP_BATCHNORM] = lower_batchnorm,
        [GP_OP_BATCHNORM_BACKWARD] = lower_batchnorm,
        [GP_OP_BATCHNORM_INFER] = lower_batchnorm_infer,
        [GP_OP_GROUPNORM] = lower_groupnorm,
        [GP_OP_GROUPNORM_BACKWARD] = lower_groupnorm,
        [GP_OP_LRN] = lower_lrn,
        [GP_OP_LRN_BACKWARD] = lower_lrn,
        [GP_OP_SOFTMAX_XENT] = lower_xent,
        [GP_OP_WEIGHTED_XENT] = lower_xent,
        [GP_OP_DICE] = lower_dice,
        [GP_OP_MSE] = lower_values_loss,
        [GP_OP_HUBER] = lower_values_loss,
        [GP_OP_OWN_LOSS] = lower_own_loss,
    };

    return (unsigned)code < GP_OP_COUNT ? table[code] : NULL;
}

bool gp_plan_can(gp_opcode code)
{
    return lower_find(code) != NULL;
}

/* Roles whose values are images: not parameters, not targets. */
static gp_kernel_image operand_image(const gp_plan *plan, uint32_t value)
{
    gp_value_role role = value == GP_NO_VALUE ? GP_VALUE_PARAMETER : plan->graph->values[value].role;
    gp_kernel_image absent = { .data = NULL };

    if (role != GP_VALUE_INPUT && role != GP_VALUE_ACTIVATION && role != GP_VALUE_ACTIVATION_GRADIENT &&
        role != GP_VALUE_SAVED)
        return absent;
    return gp_plan_image(plan, value);
}

gp_status gp_plan_lower(gp_plan *plan, uint32_t index, gp_error *err)
{
    const gp_op *op = &plan->graph->ops[plan->options.phase].op[index];
    lowering l = { .plan = plan, .op = op, .index = index };
    lower_fn lower = lower_find(op->code);

    if (lower == NULL)
        return gp_fail(
            err, GP_EUNSUPPORTED,
            "a GPU has no kernel for op %s: layers of your own run on the CPU (gradpool up --devices cpu)",
            gp_op_name(op->code));
    l.args.call = plan->call;
    l.args.rows = plan->options.micro_batch;
    for (int k = 0; k < GP_OP_VALUES_MAX; k++)
        l.args.x[k] = operand_image(plan, op->in[k]);
    for (int k = 0; k < 2; k++)
        l.args.y[k] = operand_image(plan, op->out[k]);
    memcpy(l.args.kernel, op->window.kernel, sizeof(l.args.kernel));
    memcpy(l.args.stride, op->window.stride, sizeof(l.args.stride));
    memcpy(l.args.dilation, op->window.dilation, sizeof(l.args.dilation));
    memcpy(l.args.padding, op->window.padding, sizeof(l.args.padding));
    l.args.groups = op->window.groups;
    memcpy(l.args.number, op->number, sizeof(l.args.number));
    for (int k = 0; k < 4; k++)
        l.args.factor[k] = (float)op->factor[k];
    return lower(&l, err);
}
