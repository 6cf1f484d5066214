/* Lowers each op to kernels.
 *
 * Convolutions and fully connected layers use cuDNN and cuBLASLt where these have a plan. The
 * libraries get copies of the weights in the activation order and type, updated when parameters
 * change (plan->prepare). Weight gradients have the same format and are added to the blob's. All
 * other ops, and requests without a library plan, use the kernels in bodies*.h.
 *
 * Pointers into regions (step.h) are placeholders until plan.c replaces them. */
#include <string.h>

#include "common/base/rng.h"
#include "worker/backend/cuda/plan/lower_inside.h"

step *gp_lower_step(lowering *l, step_kind kind)
{
    step *added = NULL;

    if (l->status == GP_OK)
        added = gp_step_add(l->preparing ? &l->plan->prepare : &l->plan->steps, kind, l->index);
    if (l->status == GP_OK && added == NULL)
        l->status = gp_fail(l->err, GP_ENOMEM, "no memory for the steps of a plan");
    return added;
}

void gp_lower_kernel(lowering *l, gp_kernel kernel, const gp_kernel_args *args, uint64_t count)
{
    step *added;

    if (count > INT32_MAX && l->status == GP_OK)
        l->status = gp_fail(
            l->err, GP_ELIMIT, "op %s has %llu work items, a GPU supports at most %d; use a smaller batch",
            l->op == NULL ? "of a step" : gp_op_name(l->op->code), (unsigned long long)count, INT32_MAX);
    added = gp_lower_step(l, STEP_KERNEL);
    if (added == NULL)
        return;
    added->kernel = kernel;
    added->args = *args;
    added->count = (uint32_t)count;
}

void *gp_lower_scratch(lowering *l, size_t bytes)
{
    return gp_region_reserve(l->plan->regions, REGION_SCRATCH, &l->scratch, bytes);
}

void *gp_lower_persistent(lowering *l, size_t bytes)
{
    size_t offset = l->plan->regions[REGION_PERSISTENT].bytes;

    return gp_region_reserve(l->plan->regions, REGION_PERSISTENT, &offset, bytes);
}

uint64_t gp_lower_elements(const lowering *l, const gp_kernel_image *image)
{
    return (uint64_t)image->sample * l->plan->options.micro_batch;
}

bool gp_lower_image_is_wide(const gp_kernel_image *image)
{
    return image->narrow && image->channel_stride == 1 && image->channels % 8 == 0;
}

bool gp_lower_is_wide(const lowering *l, uint32_t images)
{
    const gp_kernel_image *all[4] = { &l->args.x[PLAN_WITH], &l->args.y[0], &l->args.x[0], &l->args.x[1] };

    for (uint32_t i = 0; i < images + 2; i++)
        if (all[i]->data != NULL && !gp_lower_image_is_wide(all[i]))
            return false;
    return true;
}

const char *gp_lower_number(int32_t narrow, bool tf32)
{
    return narrow == GP_NARROW_BF16 ? "bf16" : narrow == GP_NARROW_F16 ? "fp16" : tf32 ? "tf32" : "f32";
}

uint32_t gp_lower_chunks(uint64_t each, uint64_t units, uint32_t most)
{
    enum { ITEMS = 1 << 18 };
    uint64_t chunks = each == 0 ? 1 : ITEMS / each;

    chunks = chunks > most ? most : chunks;
    chunks = chunks > units ? units : chunks;
    return chunks == 0 ? 1 : (uint32_t)chunks;
}

void gp_lower_wide(lowering *l, uint32_t images, gp_kernel wide_one, gp_kernel plain,
                   const gp_kernel_args *args)
{
    bool fits = gp_lower_is_wide(l, images);

    gp_lower_kernel(l, fits ? wide_one : plain, args, gp_lower_elements(l, &args->y[0]) / (fits ? 8 : 1));
}

/* Return the number of blocks that process a row of an image, in kernels of grids.h. */
static uint32_t row_blocks(const gp_kernel_image *image)
{
    return (image->channels / 8 + GP_KERNEL_THREADS - 1) / GP_KERNEL_THREADS;
}

/* Append a kernel of grids.h, in which a thread processes eight channels of several rows of
 * `image`. */
static void lower_columns(lowering *l, gp_kernel kernel, const gp_kernel_args *args,
                          const gp_kernel_image *image)
{
    enum {
        ROWS = 4,
        THREADS = GP_KERNEL_THREADS,
        BLOCKS = 132 * 8
    }; /* two rows at once, and several times */
    const uint64_t segments = row_blocks(image), items = gp_lower_elements(l, image) / 8;
    uint64_t blocks = (items + ROWS * THREADS - 1) / (ROWS * THREADS);

    blocks = blocks < BLOCKS ? blocks : BLOCKS;
    blocks = blocks > segments ? blocks : segments;
    if (items <= INT32_MAX)
        gp_lower_kernel(l, kernel, args, blocks * THREADS);
    else
        gp_lower_kernel(l, kernel, args, items); /* reports an error */
}

uint32_t gp_lower_column_parts(const lowering *l, const gp_kernel_image *image, uint64_t *threads)
{
    enum { MOST = 132 * 2 };
    const uint32_t blocks = row_blocks(image), most = MOST / blocks,
                   each = blocks == 1 ? GP_KERNEL_THREADS / (image->channels / 8) : 1;
    const uint64_t rows = (uint64_t)l->plan->options.micro_batch * image->pixels,
                   parts = (rows + each - 1) / each;
    const uint32_t count = most == 0 ? 1 : parts < most ? (uint32_t)parts : most;

    *threads = (uint64_t)count * blocks * GP_KERNEL_THREADS;
    return count;
}

/* ---- ops that are mostly one kernel each ---- */

/* Return true if an offset of a pixel inside a window of x fits into 16 bits. */
static bool window_is_small(const gp_kernel_args *args)
{
    return (uint64_t)(args->kernel[0] - 1) * (uint64_t)args->dilation[0] * args->x[0].width +
               (uint64_t)(args->kernel[1] - 1) * (uint64_t)args->dilation[1] <
           1 << 16;
}

/* Set the divisors of the pool kernels for eight channels. */
static void pool_divisors(gp_kernel_args *args)
{
    gp_kernel_divisor(&args->n[0], args->y[0].pixels);
    gp_kernel_divisor(&args->n[2], args->y[0].width);
    gp_kernel_divisor(&args->n[4], (uint32_t)args->stride[0]);
    gp_kernel_divisor(&args->n[6], (uint32_t)args->stride[1]);
}

/* Return true if the windows of a pool have 2 x 2 pixels, do not overlap, and divide dense float32
 * images, of which `large` is the larger one. */
static bool windows_are_apart(const gp_kernel_args *args, const gp_kernel_image *large,
                              const gp_kernel_image *small)
{
    for (int k = 0; k < 2; k++)
        if (args->kernel[k] != 2 || args->stride[k] != 2 || args->dilation[k] != 1 || args->padding[k] != 0)
            return false;
    return !large->narrow && !small->narrow && large->pixel_stride == 1 &&
           large->channel_stride == large->pixels && small->height == large->height / 2 &&
           small->width == large->width / 2;
}

/* Append the kernel for the backward pass of a pool that also sums a bias gradient, if one is
 * requested and each block has enough windows. */
static bool window_bias_add(lowering *l, gp_kernel_args *args, uint32_t windows)
{
    enum { BLOCKS = 132 * 8 };
    const uint32_t rows = l->plan->options.micro_batch, channels = args->y[0].channels,
                   op = l->follow->bias_of, chunks = gp_lower_bias_chunks(l, channels, BLOCKS);
    float *gradient = op == 0 ? NULL : gp_plan_data(l->plan, l->plan->ops[op].out[1]);

    if (gradient == NULL || chunks == 0 || rows / chunks * windows < GP_KERNEL_THREADS)
        return false;
    gp_kernel_divisor(&args->n[0], windows);
    gp_lower_bias_parts(l, GP_KERNEL_window_pool_bias, args, gradient, channels, chunks);
    l->plan->follows[op].bias_summed = true;
    return true;
}

/* Append a kernel of grids_dense.h, with a thread for each window. Return false if it does not
 * support the pool. */
static bool window_pool_add(lowering *l, gp_kernel_args *args, bool forward)
{
    const gp_kernel_image *large = forward ? &args->x[0] : &args->y[0],
                          *small = forward ? &args->y[0] : &args->x[0];
    const uint32_t height = forward ? small->height : (large->height + 1) / 2,
                   width = forward ? small->width : (large->width + 1) / 2;

    if (!windows_are_apart(args, large, small) || height == 0 || width == 0)
        return false;
    gp_kernel_divisor(&args->n[2], width);
    if (!forward && window_bias_add(l, args, height * width))
        return true;
    gp_kernel_divisor(&args->n[4], height);
    gp_lower_kernel(l, forward ? GP_KERNEL_window_pool : GP_KERNEL_window_pool_backward, args,
                    (uint64_t)l->plan->options.micro_batch * large->channels * height * width);
    return true;
}

static void lower_pool(lowering *l)
{
    gp_kernel_args args = l->args;
    bool forward = l->op->code == GP_OP_POOL;

    args.kind = (int32_t)l->op->pool;
    args.bytes = gp_plan_data(l->plan, forward ? l->op->out[1] : l->op->in[1]);
    if (window_pool_add(l, &args, forward))
        return;
    pool_divisors(&args);
    if (gp_lower_is_wide(l, 1) &&
        (forward ? window_is_small(&args) : args.dilation[0] == 1 && args.dilation[1] == 1))
        lower_columns(l, forward ? GP_KERNEL_wide_pool : GP_KERNEL_wide_pool_backward, &args, &args.y[0]);
    else
        gp_lower_kernel(l, forward ? GP_KERNEL_pool : GP_KERNEL_pool_backward, &args,
                        gp_lower_elements(l, &args.y[0]));
}

static void resize_ratios(gp_kernel_args *args, const gp_kernel_image *from, const gp_kernel_image *to)
{
    const double inputs[2] = { from->height, from->width }, outputs[2] = { to->height, to->width };

    for (int k = 0; k < 2; k++)
        args->number64[k] = args->kind != GP_RESIZE_BILINEAR_CORNERS ? inputs[k] / outputs[k]
                            : outputs[k] == 1.0                      ? 0.0
                                                                     : (inputs[k] - 1.0) / (outputs[k] - 1.0);
}

/* Kernels of ops that need nothing else. 0 (GP_KERNEL_normalize): see the table below. */
static const gp_kernel simple_kernels[GP_OP_COUNT] = {
    [GP_OP_ACTIVATION] = GP_KERNEL_activation,
    [GP_OP_ACTIVATION_BACKWARD] = GP_KERNEL_activation_backward,
    [GP_OP_MULTIPLY] = GP_KERNEL_multiply,
    [GP_OP_MULTIPLY_SUM] = GP_KERNEL_multiply_sum,
    [GP_OP_RESIZE] = GP_KERNEL_resize,
    [GP_OP_RESIZE_BACKWARD] = GP_KERNEL_resize_backward,
    [GP_OP_PAD] = GP_KERNEL_pad,
    [GP_OP_TRANSPOSE] = GP_KERNEL_transpose,
    [GP_OP_SLICE] = GP_KERNEL_copy_box,
    [GP_OP_SOFTMAX] = GP_KERNEL_softmax,
    [GP_OP_SOFTMAX_BACKWARD] = GP_KERNEL_softmax_backward,
};

static void lower_simple(lowering *l)
{
    const gp_opcode code = l->op->code;
    gp_kernel_args args = l->args;
    uint64_t count = gp_lower_elements(l, &args.y[0]);

    args.kind = code == GP_OP_ACTIVATION || code == GP_OP_ACTIVATION_BACKWARD ? (int32_t)l->op->function
                : code == GP_OP_SLICE                                         ? 0
                                                                              : l->op->number[0];
    if (code == GP_OP_RESIZE)
        resize_ratios(&args, &args.x[0], &args.y[0]);
    if (code == GP_OP_RESIZE_BACKWARD)
        resize_ratios(&args, &args.y[0], &args.x[0]);
    if (code == GP_OP_SOFTMAX || code == GP_OP_SOFTMAX_BACKWARD)
        count = (uint64_t)args.x[0].pixels * l->plan->options.micro_batch;
    gp_lower_kernel(l, simple_kernels[code], &args, count);
}

/* Lower an op that has a wide kernel. */
static void lower_elementwise(lowering *l)
{
    gp_kernel_args args = l->args;

    switch (l->op->code) {
    case GP_OP_RELU:
        gp_lower_wide(l, 1, GP_KERNEL_wide_relu, GP_KERNEL_relu, &args);
        break;
    case GP_OP_RELU_BACKWARD:
        args.bytes = gp_lower_is_wide(l, 2) ? l->plan->values[l->op->in[0]].mask : NULL;
        gp_lower_wide(l, 2, GP_KERNEL_wide_relu_backward, GP_KERNEL_relu_backward, &args);
        break;
    default:
        args.bytes =
            l->follow->masked && gp_lower_is_wide(l, 2) ? l->plan->values[l->op->in[PLAN_WITH]].mask : NULL;
        gp_lower_wide(l, 2, GP_KERNEL_wide_add, GP_KERNEL_add, &args);
        break;
    }
}

static void lower_reshape(lowering *l)
{
    if (l->args.x[0].data != l->args.y[0].data)
        gp_lower_kernel(l, GP_KERNEL_reshape, &l->args, gp_lower_elements(l, &l->args.y[0]));
}

static void lower_concat(lowering *l)
{
    gp_kernel_args args = l->args;

    args.kind = 1;
    memset(args.number, 0, sizeof(args.number));
    for (int k = 0; k < GP_OP_VALUES_MAX && l->op->in[k] != GP_NO_VALUE; k++) {
        const uint32_t extent[3] = { l->args.x[k].channels, l->args.x[k].height, l->args.x[k].width };

        args.x[0] = l->args.x[k];
        gp_lower_kernel(l, GP_KERNEL_copy_box, &args, gp_lower_elements(l, &args.x[0]));
        args.number[l->op->number[0]] += (int32_t)extent[l->op->number[0]];
    }
}

static void lower_dropout(lowering *l)
{
    gp_kernel_args args = l->args;

    args.rate = (float)l->op->rate;
    args.n[0] = gp_rng_stream(GP_RNG_DROPOUT, l->op->layer);
    args.n[1] = (args.x[0].sample + 3) / 4;
    gp_lower_kernel(l, GP_KERNEL_dropout, &args, (uint64_t)args.n[1] * l->plan->options.micro_batch);
}

/* ---- normalisation ---- */

/* Return the number of threads of batchnorm_sum and batchnorm_backward_sum. */
static uint32_t sum_threads(uint32_t channels)
{
    return (channels + GP_KERNEL_SUM_CHANNELS - 1) / GP_KERNEL_SUM_CHANNELS * GP_KERNEL_THREADS;
}

/* Append the sum of d[1] over the ranks. The kernel, which wrote d[1], then computes what follows
 * from it again. */
static void couple_add(lowering *l, gp_kernel kernel, const gp_kernel_args *args)
{
    const uint32_t channels = args->x[0].channels;
    step *added = gp_lower_step(l, STEP_COUPLE);

    if (added == NULL)
        return;
    added->sums = args->d[1];
    added->doubles = 2 * (size_t)channels + 1;
    added->kernel = kernel;
    added->args = *args;
    added->args.chunks = 0; /* d[1] holds the sums */
    added->count = sum_threads(channels);
}

/* Reserve the mask bits of a relu after batch norm, which processes eight channels per item. The
 * backward pass reads the mask rather than y. */
static void *mask_take(lowering *l)
{
    uint32_t y = l->op->out[0];

    if (!l->follow->relu || l->follow->pooled || !gp_lower_is_wide(l, 1))
        return NULL;
    l->plan->values[y].mask = gp_lower_persistent(l, gp_lower_elements(l, &l->args.y[0]) / 8);
    return l->plan->values[y].mask;
}

enum { PARTS_MANY = 4096, PARTS_FEW = 64 };

/* Append the kernel for partial sums of images with 2-byte types. Each block computes a part of
 * eight channels per thread. */
static void wide_parts_add(lowering *l, gp_kernel_args *args, bool forward)
{
    uint64_t threads;

    args->chunks = gp_lower_column_parts(l, &args->x[0], &threads);
    args->d[0] = gp_lower_scratch(l, (size_t)args->chunks * 2 * args->x[0].channels * sizeof(double));
    gp_lower_kernel(l, forward ? GP_KERNEL_wide_batchnorm_part : GP_KERNEL_wide_batchnorm_backward_part, args,
                    threads);
}

static void plain_parts_add(lowering *l, gp_kernel_args *args, bool forward)
{
    const uint32_t channels = args->x[0].channels;
    gp_kernel_args fold;

    args->chunks =
        gp_lower_chunks(channels, (uint64_t)l->plan->options.micro_batch * args->x[0].pixels, PARTS_MANY);
    args->d[0] = gp_lower_scratch(l, (size_t)args->chunks * 2 * channels * sizeof(double));
    gp_lower_kernel(l, forward ? GP_KERNEL_batchnorm_part : GP_KERNEL_batchnorm_backward_part, args,
                    (uint64_t)args->chunks * channels);
    if (args->chunks <= 2 * PARTS_FEW)
        return;
    fold = *args; /* a single block would take too long */
    fold.n[0] = 2 * channels;
    fold.n[1] = PARTS_FEW;
    fold.d[1] = gp_lower_scratch(l, (size_t)PARTS_FEW * 2 * channels * sizeof(double));
    gp_lower_kernel(l, GP_KERNEL_parts_fold, &fold, (uint64_t)PARTS_FEW * 2 * channels);
    args->d[0] = fold.d[1];
    args->chunks = PARTS_FEW;
}

/* Append the kernels for partial sums, and for their sums in args->d[1] with the values that follow
 * from them; for the forward or the backward pass. */
static void sums_add(lowering *l, gp_kernel_args *args, bool forward)
{
    if (gp_lower_is_wide(l, forward ? 1 : 2))
        wide_parts_add(l, args, forward);
    else
        plain_parts_add(l, args, forward);
    gp_lower_kernel(l, forward ? GP_KERNEL_batchnorm_sum : GP_KERNEL_batchnorm_backward_sum, args,
                    sum_threads(args->x[0].channels));
}

/* Return the initial arguments of forward kernels. The sums are stored in f[1] and f[2]. */
static gp_kernel_args forward_args(const lowering *l)
{
    gp_kernel_args args = l->args;

    args.number64[0] = l->op->factor[0];
    args.f[0] = gp_plan_data(l->plan, l->op->in[3]);
    args.f[3] = gp_plan_data(l->plan, l->op->out[1]);
    args.f[1] = gp_plan_data(l->plan, l->op->out[2]);
    args.f[2] = gp_plan_data(l->plan, l->op->out[3]);
    return args;
}

void gp_lower_batchnorm_sums(lowering *writer, uint32_t norm)
{
    lowering l = gp_lower_begin(writer->plan, norm, writer->err);
    gp_kernel_args args = forward_args(&l);

    l.status = writer->status;
    l.index = writer->index;
    l.scratch = writer->scratch;
    args.d[1] = gp_lower_persistent(&l, (2 * (size_t)args.x[0].channels + 1) * sizeof(double));
    args.f[3] = NULL; /* memory of the moments exists only when the batch norm runs */
    args.f[4] = writer->known;
    sums_add(&l, &args, true);
    writer->status = l.status;
    writer->scratch = l.scratch;
    writer->plan->follows[norm].sums = args.d[1];
}

static void lower_batchnorm(lowering *l)
{
    const gp_op *op = l->op;
    gp_kernel_args args = forward_args(l);
    const uint32_t channels = args.x[0].channels;

    args.bytes = mask_take(l);
    if (l->follow->sums != NULL) {
        args.d[1] = l->follow->sums;
        args.chunks = 0; /* only the moments */
        gp_lower_kernel(l, GP_KERNEL_batchnorm_sum, &args, sum_threads(channels));
    } else {
        args.d[1] = gp_lower_scratch(l, (2 * (size_t)channels + 1) * sizeof(double));
        sums_add(l, &args, true);
    }
    couple_add(l, GP_KERNEL_batchnorm_sum, &args);
    args.f[1] = gp_plan_data(l->plan, op->in[1]);
    args.f[2] = gp_plan_data(l->plan, op->in[2]);
    if (l->follow->pooled) {
        pool_divisors(&args);
        args.bytes = gp_plan_data(l->plan, op->out[PLAN_INDEX]);
        if (gp_lower_is_wide(l, 1) && window_is_small(&args))
            lower_columns(l, GP_KERNEL_wide_batchnorm_pool, &args, &args.y[0]);
        else
            gp_lower_kernel(l, GP_KERNEL_batchnorm_pool, &args, gp_lower_elements(l, &args.y[0]));
    } else {
        if (gp_lower_is_wide(l, 1))
            lower_columns(l, GP_KERNEL_wide_batchnorm_apply, &args, &args.y[0]);
        else
            gp_lower_kernel(l, GP_KERNEL_batchnorm_apply, &args, gp_lower_elements(l, &args.y[0]));
    }
}

static void lower_batchnorm_backward(lowering *l)
{
    const gp_op *op = l->op;
    gp_kernel_args args = l->args;
    const uint32_t channels = args.x[0].channels;

    args.number64[0] = op->factor[0];
    args.bytes = l->follow->masked && gp_lower_is_wide(l, 2) ? l->plan->values[op->in[PLAN_WITH]].mask : NULL;
    args.d[1] = gp_lower_scratch(l, (2 * (size_t)channels + 1) * sizeof(double));
    args.f[0] = gp_plan_data(l->plan, op->in[2]);
    args.f[3] = gp_plan_data(l->plan, op->in[3]);
    args.f[1] = gp_plan_data(l->plan, op->out[1]);
    args.f[2] = gp_plan_data(l->plan, op->out[2]);
    args.f[5] = gp_plan_data(l->plan, op->in[PLAN_NORM + 1]);
    args.f[6] = gp_lower_scratch(l, 2 * (size_t)channels * sizeof(float));
    sums_add(l, &args, false);
    couple_add(l, GP_KERNEL_batchnorm_backward_sum, &args);
    if (args.y[0].data == NULL)
        return;
    if (gp_lower_is_wide(l, 2))
        lower_columns(l, GP_KERNEL_wide_batchnorm_backward_apply, &args, &args.y[0]);
    else
        gp_lower_kernel(l, GP_KERNEL_batchnorm_backward_apply, &args, gp_lower_elements(l, &args.y[0]));
}

static void lower_batchnorm_infer(lowering *l)
{
    gp_kernel_args args = l->args;

    args.number64[0] = l->op->factor[0];
    args.f[1] = gp_plan_data(l->plan, l->op->in[1]);
    args.f[2] = gp_plan_data(l->plan, l->op->in[2]);
    args.f[0] = gp_plan_data(l->plan, l->op->in[3]);
    args.f[3] = gp_plan_data(l->plan, l->op->in[4]);
    gp_lower_kernel(l, GP_KERNEL_batchnorm_infer, &args, gp_lower_elements(l, &args.y[0]));
}

static void lower_groupnorm(lowering *l)
{
    const gp_op *op = l->op;
    gp_kernel_args args = l->args;
    uint64_t rows = l->plan->options.micro_batch,
             groups = op->number[1] != 0 ? args.x[0].pixels : (uint64_t)op->number[0];

    args.number64[0] = op->factor[0];
    if (op->code == GP_OP_GROUPNORM) {
        args.f[1] = gp_plan_data(l->plan, op->in[1]);
        args.f[2] = gp_plan_data(l->plan, op->in[2]);
        args.f[3] = gp_plan_data(l->plan, op->out[1]);
        gp_lower_kernel(l, GP_KERNEL_groupnorm_moments, &args, rows * groups);
        gp_lower_kernel(l, GP_KERNEL_groupnorm_apply, &args, gp_lower_elements(l, &args.y[0]));
        return;
    }
    args.f[0] = gp_plan_data(l->plan, op->in[2]);
    args.f[3] = gp_plan_data(l->plan, op->in[3]);
    args.f[1] = gp_plan_data(l->plan, op->out[1]);
    args.f[2] = gp_plan_data(l->plan, op->out[2]);
    args.f[4] = gp_plan_data(l->plan, op->out[3]);
    args.f[5] = gp_lower_scratch(l, rows * 2 * groups * sizeof(float));
    gp_lower_kernel(l, GP_KERNEL_groupnorm_backward_channels, &args, rows * args.x[0].channels);
    gp_lower_kernel(l, GP_KERNEL_groupnorm_backward_parameters, &args, args.x[0].channels);
    if (args.y[0].data == NULL)
        return;
    gp_lower_kernel(l, GP_KERNEL_groupnorm_backward_groups, &args, rows * groups);
    gp_lower_kernel(l, GP_KERNEL_groupnorm_backward_apply, &args, gp_lower_elements(l, &args.y[0]));
}

static void lower_lrn(lowering *l)
{
    gp_kernel_args args = l->args;

    if (l->op->code == GP_OP_LRN) {
        gp_lower_kernel(l, GP_KERNEL_lrn, &args, gp_lower_elements(l, &args.y[0]));
        return;
    }
    args.y[0] = l->args.y[1];
    gp_lower_kernel(l, GP_KERNEL_lrn_terms, &args, gp_lower_elements(l, &args.y[0]));
    args.x[3] = l->args.y[1];
    args.y[0] = l->args.y[0];
    gp_lower_kernel(l, GP_KERNEL_lrn_backward, &args, gp_lower_elements(l, &args.y[0]));
}

/* ---- lowering functions ---- */

typedef void (*lower_fn)(lowering *l);

static lower_fn lower_find(gp_opcode code)
{
    static const lower_fn table[GP_OP_COUNT] = {
        [GP_OP_CONV2D] = gp_lower_conv,
        [GP_OP_CONV2D_BACKWARD_DATA] = gp_lower_conv,
        [GP_OP_CONV2D_BACKWARD_WEIGHTS] = gp_lower_conv,
        [GP_OP_TRANSCONV2D] = gp_lower_conv,
        [GP_OP_TRANSCONV2D_BACKWARD_DATA] = gp_lower_conv,
        [GP_OP_TRANSCONV2D_BACKWARD_WEIGHTS] = gp_lower_conv,
        [GP_OP_FC] = gp_lower_fc,
        [GP_OP_FC_BACKWARD_DATA] = gp_lower_fc,
        [GP_OP_FC_BACKWARD_WEIGHTS] = gp_lower_fc,
        [GP_OP_RELU] = lower_elementwise,
        [GP_OP_RELU_BACKWARD] = lower_elementwise,
        [GP_OP_ADD] = lower_elementwise,
        [GP_OP_CONCAT] = lower_concat,
        [GP_OP_RESHAPE] = lower_reshape,
        [GP_OP_POOL] = lower_pool,
        [GP_OP_POOL_BACKWARD] = lower_pool,
        [GP_OP_DROPOUT] = lower_dropout,
        [GP_OP_DROPOUT_BACKWARD] = lower_dropout,
        [GP_OP_BATCHNORM] = lower_batchnorm,
        [GP_OP_BATCHNORM_BACKWARD] = lower_batchnorm_backward,
        [GP_OP_BATCHNORM_INFER] = lower_batchnorm_infer,
        [GP_OP_GROUPNORM] = lower_groupnorm,
        [GP_OP_GROUPNORM_BACKWARD] = lower_groupnorm,
        [GP_OP_LRN] = lower_lrn,
        [GP_OP_LRN_BACKWARD] = lower_lrn,
        [GP_OP_SOFTMAX_XENT] = gp_lower_xent,
        [GP_OP_WEIGHTED_XENT] = gp_lower_xent,
        [GP_OP_DICE] = gp_lower_dice,
        [GP_OP_MSE] = gp_lower_values_loss,
        [GP_OP_HUBER] = gp_lower_values_loss,
        [GP_OP_CUSTOM_LOSS] = gp_lower_custom_loss,
    };

    if ((unsigned)code >= GP_OP_COUNT)
        return NULL;
    return simple_kernels[code] != 0 ? lower_simple : table[code];
}

bool gp_plan_asks(gp_opcode code)
{
    return lower_find(code) == gp_lower_conv || lower_find(code) == gp_lower_fc;
}

/* Return an operand's image. Parameters and targets have none. */
static gp_kernel_image operand_image(const gp_plan *plan, uint32_t value)
{
    gp_value_role role = value == GP_NO_VALUE ? GP_VALUE_PARAMETER : plan->graph->values[value].role;
    gp_kernel_image absent = { .data = NULL };

    if (role != GP_VALUE_INPUT && role != GP_VALUE_ACTIVATION && role != GP_VALUE_ACTIVATION_GRADIENT &&
        role != GP_VALUE_SAVED)
        return absent;
    return gp_plan_image(plan, value);
}

gp_status gp_plan_lower_bad(gp_plan *plan, gp_error *err)
{
    enum { PARTS = 1 << 14, FEW = 64 };
    lowering l = { .plan = plan, .err = err, .index = plan->graph->ops[plan->options.phase].count };
    gp_kernel_args args = {
        .call = plan->buffers.call, .count = plan->graph->blob_count, .chunks = PARTS, .n = { 1, FEW }
    };

    args.f[1] = plan->buffers.gradients;
    args.d[0] = gp_lower_scratch(&l, PARTS * sizeof(double));
    gp_lower_kernel(&l, GP_KERNEL_bad_part, &args, PARTS);
    args.f[1] = NULL;
    args.d[1] = gp_lower_scratch(&l, FEW * sizeof(double));
    gp_lower_kernel(&l, GP_KERNEL_parts_fold, &args, FEW);
    args.d[0] = args.d[1];
    args.d[1] = plan->buffers.sums;
    args.chunks = FEW;
    gp_lower_kernel(&l, GP_KERNEL_bad_sum, &args, 1);
    return l.status;
}

lowering gp_lower_begin(gp_plan *plan, uint32_t index, gp_error *err)
{
    const gp_op *op = &plan->ops[index];
    lowering l = { .plan = plan, .err = err, .op = op, .follow = &plan->follows[index], .index = index };

    l.args.call = plan->buffers.call;
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
    l.args.relu = l.follow->relu;
    memcpy(l.args.number, op->number, sizeof(l.args.number));
    for (int k = 0; k < 4; k++)
        l.args.factor[k] = (float)op->factor[k];
    return l;
}

gp_status gp_lower_op(gp_plan *plan, uint32_t index, plan_site *site, gp_error *err)
{
    const gp_op *op = &plan->ops[index];
    lower_fn lower = lower_find(op->code);
    lowering l;

    if (plan->follows[index].taken)
        return GP_OK;
    if (lower == NULL)
        return gp_fail(
            err, GP_EUNSUPPORTED,
            "GPU workers do not support op %s: use CPU workers for custom layers (gradpool up --devices cpu)",
            gp_op_name(op->code));
    l = gp_lower_begin(plan, index, err);
    l.site = site;
    lower(&l);
    return l.status;
}
