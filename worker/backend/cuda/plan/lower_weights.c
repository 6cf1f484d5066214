/* Lowering helpers for layers with weights: weight copies for libraries, gradients, biases. */
#include "worker/backend/cuda/plan/lower_inside.h"

/* ---- parameter gradients: partial sums, then their sum ---- */

void *gp_lower_gradient(lowering *l, size_t bytes)
{
    return gp_plan_gradients_wait(l->plan) ? gp_lower_persistent(l, bytes) : gp_lower_scratch(l, bytes);
}

void gp_lower_parts_add(lowering *l, const gp_kernel_args *args)
{
    enum { MANY = 32, FULL = 1 << 13 }; /* a single item would take too long; items for a device */

    if (args->chunks < MANY || args->count >= FULL)
        gp_lower_kernel(l, GP_KERNEL_parts_add, args, args->count);
    else
        gp_lower_kernel(l, GP_KERNEL_parts_add_warp, args, 32 * args->count);
}

void gp_lower_parts(lowering *l, gp_kernel kernel, gp_kernel_args *args, float *gradient, uint64_t count,
                    uint64_t units)
{
    if (gradient == NULL)
        return;
    args->count = count;
    args->chunks = gp_lower_chunks(count, units, PLAN_CHUNKS_MAX);
    args->f[0] = gradient;
    args->f[1] = gp_lower_gradient(l, (size_t)args->chunks * count * sizeof(float));
    gp_lower_kernel(l, kernel, args, args->chunks * count);
    gp_lower_parts_add(l, args);
}

enum { BIAS_BLOCKS = 132 * 4 };

uint32_t gp_lower_bias_chunks(const lowering *l, uint32_t channels, uint32_t blocks)
{
    const uint32_t rows = l->plan->options.micro_batch, most = blocks / channels;

    return rows < most ? rows : most;
}

void gp_lower_bias_parts(lowering *l, gp_kernel kernel, gp_kernel_args *args, float *gradient,
                         uint32_t channels, uint32_t chunks)
{
    args->count = channels;
    args->chunks = chunks;
    args->f[0] = gradient;
    args->f[1] = gp_lower_gradient(l, (size_t)chunks * channels * sizeof(float));
    gp_lower_kernel(l, kernel, args, (uint64_t)chunks * channels * GP_KERNEL_THREADS);
    gp_lower_parts_add(l, args);
}

/* Return true if plane_bias_part supports the image: float32, and planes of vectors of four
 * elements. */
static bool has_plane_vectors(const gp_kernel_image *dy)
{
    return !dy->narrow && dy->pixel_stride == 1 && dy->channel_stride == dy->pixels && dy->pixels % 4 == 0 &&
           dy->channels <= BIAS_BLOCKS;
}

void gp_lower_bias_gradient(lowering *l, const gp_kernel_image *dy, float *gradient)
{
    gp_kernel_args args = l->args;
    uint64_t threads;

    args.x[0] = *dy;
    if (gradient != NULL && has_plane_vectors(dy)) {
        gp_kernel_divisor(&args.n[0], dy->pixels / 4);
        gp_lower_bias_parts(l, GP_KERNEL_plane_bias_part, &args, gradient, dy->channels,
                            gp_lower_bias_chunks(l, dy->channels, BIAS_BLOCKS));
        return;
    }
    if (!gp_lower_image_is_wide(dy)) {
        gp_lower_parts(l, GP_KERNEL_bias_part, &args, gradient, dy->channels,
                       (uint64_t)l->plan->options.micro_batch * dy->pixels);
        return;
    }
    if (gradient == NULL)
        return;
    args.count = dy->channels;
    args.chunks = gp_lower_column_parts(l, dy, &threads);
    args.f[0] = gradient;
    args.f[1] = gp_lower_gradient(l, (size_t)args.chunks * args.count * sizeof(float));
    gp_lower_kernel(l, GP_KERNEL_wide_bias_part, &args, threads);
    gp_lower_parts_add(l, &args);
}

void gp_lower_finish(lowering *l, const gp_kernel_image *y, float *bias)
{
    gp_kernel_args args = l->args;

    if (bias == NULL && args.x[PLAN_WITH].data == NULL && !args.relu)
        return;
    args.y[0] = *y;
    args.f[0] = bias;
    gp_lower_kernel(l, GP_KERNEL_finish, &args, gp_lower_elements(l, y));
}

void gp_lower_mask(lowering *l, const gp_kernel_image *dx)
{
    gp_kernel_args args = l->args;

    if (!l->follow->masked)
        return;
    args.x[0] = args.x[PLAN_WITH];
    args.x[1] = args.y[0] = *dx;
    gp_lower_kernel(l, GP_KERNEL_relu_backward, &args, gp_lower_elements(l, dx));
}

/* ---- weight copies, updated when parameters change ---- */

static gp_kernel_image vector_image(void *data, uint64_t count, int32_t narrow)
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

/* Append a copy of weights. kind: GP_KERNEL_COPY_*. */
static void prepare_add(lowering *l, int32_t kind, gp_kernel_args *args, uint64_t count)
{
    args->number[0] = kind;
    l->preparing = true;
    gp_lower_kernel(l, GP_KERNEL_prepare_weights, args, count);
    l->preparing = false;
}

/* Add a folded batch norm's parameters to the arguments. */
static void norm_args(const lowering *l, gp_kernel_args *args)
{
    if (!l->follow->norm)
        return;
    args->f[1] = gp_plan_data(l->plan, l->op->in[PLAN_NORM]);
    args->f[2] = gp_plan_data(l->plan, l->op->in[PLAN_NORM + 1]);
    args->f[3] = gp_plan_data(l->plan, l->op->in[PLAN_NORM + 2]);
    args->f[4] = gp_plan_data(l->plan, l->op->in[PLAN_NORM + 3]);
    args->number64[0] = l->follow->epsilon;
}

/* Return true if the parameter is sufficiently aligned for libraries. Tensors in the blob are
 * contiguous and may not be. */
static bool is_aligned(const lowering *l, const float *parameter)
{
    return (uint64_t)(parameter - l->plan->buffers.parameters) * sizeof(float) % GP_LIBRARY_ALIGNMENT == 0;
}

/* Append a copy of eight inputs at a time with the arguments of a copy of elements, if it supports
 * them. Weights in the same order are one output. */
static bool wide_pack_add(lowering *l, gp_kernel_args *args, const plan_copy *copy, uint64_t count)
{
    const uint64_t offset = (uint64_t)(copy->of - l->plan->buffers.parameters);

    if (copy->normed || count > INT32_MAX || (!copy->same_order && args->n[0] % 8 != 0))
        return false;
    if (copy->same_order)
        args->n[0] = args->n[2] = (uint32_t)count;
    args->kind = copy->same_order && offset % 4 == 0;
    prepare_add(l, GP_KERNEL_COPY_WIDE, args, count / args->n[0] / args->n[1] * ((args->n[0] + 7) / 8));
    return true;
}

void *gp_lower_weights_pack(lowering *l, float *weights, const gp_weights_shape *shape,
                            const gp_kernel_image *like)
{
    const uint64_t count = shape->outputs * shape->stored * shape->pixels;
    plan_copy copy = { .of = weights,
                       .narrow = like->narrow,
                       .stored = shape->stored,
                       .same_order = shape->stored == shape->inputs &&
                                     (like->channel_stride != 1 || shape->inputs == 1 || shape->pixels == 1),
                       .normed = l->follow->norm };
    gp_kernel_args args = l->args;

    if (copy.same_order && !copy.narrow && !copy.normed && is_aligned(l, weights))
        return weights;
    for (uint32_t i = 0; i < l->plan->copy_count; i++) {
        const plan_copy *at = &l->plan->copies[i];

        if (at->of == copy.of && at->narrow == copy.narrow && at->stored == copy.stored &&
            at->same_order == copy.same_order && at->normed == copy.normed)
            return at->at;
    }
    copy.at = gp_lower_persistent(l, count * (like->narrow ? 2 : 4));
    l->plan->copies[l->plan->copy_count++] = copy;
    args.y[0] = vector_image(copy.at, count, like->narrow);
    args.f[0] = weights;
    norm_args(l, &args);
    args.n[0] = copy.same_order ? shape->pixels * shape->inputs : shape->stored;
    args.n[1] = copy.same_order ? 1 : shape->pixels; /* same order: converts only the type */
    args.n[2] = copy.same_order ? args.n[0] : shape->inputs;
    if (!wide_pack_add(l, &args, &copy, count))
        prepare_add(l, GP_KERNEL_COPY_ELEMENTS, &args, count);
    return copy.at;
}

void *gp_lower_vector(lowering *l, float *bias, uint32_t count, int32_t narrow, bool library)
{
    gp_kernel_args args = l->args;
    void *out;

    if (!l->follow->norm && (bias == NULL || (!narrow && (!library || is_aligned(l, bias)))))
        return bias;
    out = gp_lower_persistent(l, (size_t)count * (narrow ? 2 : 4));
    args.y[0] = vector_image(out, count, narrow);
    args.f[0] = bias;
    norm_args(l, &args);
    prepare_add(l, GP_KERNEL_COPY_VECTOR, &args, count);
    return out;
}

void gp_lower_weights_unpack(lowering *l, float *gradient, const gp_weights_shape *shape,
                             const gp_kernel_image *like, void *from, int32_t narrow)
{
    gp_kernel_args args = l->args;
    bool same = shape->stored == shape->inputs &&
                (like->channel_stride != 1 || shape->inputs == 1 || shape->pixels == 1);

    args.x[0] = vector_image(from, shape->outputs * shape->stored * shape->pixels, narrow);
    args.f[0] = gradient;
    args.n[0] = same ? shape->pixels * shape->inputs : shape->inputs;
    args.n[1] = same ? 1 : shape->pixels;
    args.n[2] = same ? args.n[0] : shape->stored;
    args.count = shape->outputs * shape->inputs * shape->pixels;
    gp_lower_kernel(l, GP_KERNEL_weights_unpack, &args,
                    args.count > INT32_MAX ? args.count : (args.count + 3) / 4); /* the first is an error */
}

void gp_lower_work(lowering *l, step_kind kind, gp_device_work *work, size_t workspace,
                   const gp_device_operands *at)
{
    step *added = gp_lower_step(l, kind);

    if (added == NULL) {
        gp_device_work_free(work);
        return;
    }
    added->work = work;
    added->at = *at;
    if (workspace > l->plan->regions[REGION_WORKSPACE].bytes)
        l->plan->regions[REGION_WORKSPACE].bytes = workspace;
}
