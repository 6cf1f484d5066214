/* Lowers losses, and adds their partial sums to the step sums. */
#include "worker/backend/cuda/kernels/bodies.h"
#include "worker/backend/cuda/plan/lower_inside.h"

_Static_assert((int)BODY_SUMS == (int)GP_SUMS && (int)BODY_WEIGHT == (int)GP_SUM_WEIGHT &&
                   (int)BODY_CORRECT == (int)GP_SUM_CORRECT && (int)BODY_VALUES == (int)GP_SUM_VALUES,
               "the offset of the sums of a step differs");

static uint32_t smaller(uint64_t a, uint32_t b)
{
    return a < b ? (uint32_t)a : b;
}

/* Append kernels that add `parts` partial sums in args->d[0] to the sums. Many parts are reduced to
 * fewer first. */
static void loss_sums_add(lowering *l, gp_kernel_args args, uint32_t parts)
{
    enum { FEW = 64 };

    args.chunks = parts;
    if (parts > 16 * FEW) {
        args.kind = 0;
        args.n[0] = FEW;
        args.d[1] = gp_lower_scratch(l, FEW * BODY_SUMS * sizeof(double));
        gp_lower_kernel(l, GP_KERNEL_loss_sums, &args, 32 * FEW * BODY_SUMS);
        args.d[0] = args.d[1];
        args.chunks = FEW;
    }
    args.kind = 1;
    args.n[0] = 1;
    args.d[1] = l->plan->buffers.sums;
    gp_lower_kernel(l, GP_KERNEL_loss_sums, &args, 32 * BODY_SUMS);
}

static void loss_args(const lowering *l, gp_kernel_args *args)
{
    const gp_op *op = l->op;
    double mean = 0.0;

    args->bytes = l->plan->buffers.targets;
    args->f[2] = op->out[2] == GP_NO_VALUE ? NULL : l->plan->buffers.scores;
    args->n[0] = op->loss.target_first;
    args->n[1] = op->loss.target_stride;
    args->n[2] = op->loss.score_first;
    args->n[3] = op->loss.score_stride;
    args->number64[0] = op->loss.factor;
    args->number64[1] = op->loss.weight;
    args->number64[2] = op->factor[0];
    if (op->code == GP_OP_SOFTMAX_XENT) {
        args->number[0] = -1; /* no label is ignored */
        args->factor[0] = 0.0f;
    }
    for (uint32_t k = 0; k < args->x[0].channels; k++)
        mean += (op->weights == NULL ? 1.0 : op->weights[k]) / args->x[0].channels;
    args->factor[1] = (float)((double)args->factor[0] * mean);
    args->f[3] =
        gp_buffers_class_weights(&l->plan->buffers, l->plan->graph, l->plan->options.phase, l->index);
}

/* Return true if a warp should compute the loss of a pixel: an item alone would take too long, and
 * the lanes can load consecutive classes. A batch of single pixels leaves most of a device idle, so
 * lanes without a class cost nothing. */
static bool xent_by_warp(const gp_kernel_args *args)
{
    enum { CLASSES_MIN = 32, SINGLE_CLASSES_MIN = 8 };
    const uint32_t least = args->x[0].pixels == 1 ? SINGLE_CLASSES_MIN : CLASSES_MIN;

    return args->x[0].channels >= least && args->x[0].channel_stride == 1 && !args->x[0].narrow;
}

/* Return true if logits, gradient, class weights and scores of a pixel have vectors of 16 bytes. */
static bool xent_has_vectors(const gp_kernel_args *args)
{
    return args->x[0].channels % 4 == 0 && (uintptr_t)args->f[3] % 16 == 0 &&
           (args->f[2] == NULL || (args->x[0].pixels == 1 && args->n[2] % 4 == 0 && args->n[3] % 4 == 0));
}

void gp_lower_xent(lowering *l)
{
    enum { PARTS = 1 << 14 };
    gp_kernel_args args = l->args;
    const bool by_warp = xent_by_warp(&args);

    loss_args(l, &args);
    args.number[1] = l->op->loss.scores_as_is;
    args.n[4] = xent_has_vectors(&args);
    args.chunks = smaller((uint64_t)args.rows * args.x[0].pixels, PARTS);
    args.d[0] = gp_lower_scratch(l, (size_t)args.chunks * BODY_SUMS * sizeof(double));
    gp_lower_kernel(l, by_warp ? GP_KERNEL_xent_warp : GP_KERNEL_xent, &args,
                    (uint64_t)args.chunks * (by_warp ? 32 : 1));
    loss_sums_add(l, args, args.chunks);
}

void gp_lower_values_loss(lowering *l)
{
    enum { PARTS = 1 << 14 };
    gp_kernel_args args = l->args;

    loss_args(l, &args);
    args.kind = l->op->code == GP_OP_HUBER;
    args.factor[0] = (float)l->op->factor[0];
    args.chunks = smaller((uint64_t)args.rows * args.x[0].sample, PARTS);
    args.d[0] = gp_lower_scratch(l, (size_t)args.chunks * BODY_SUMS * sizeof(double));
    gp_lower_kernel(l, GP_KERNEL_values_loss, &args, args.chunks);
    loss_sums_add(l, args, args.chunks);
}

void gp_lower_dice(lowering *l)
{
    enum { PARTS = 1 << 13 };
    gp_kernel_args args = l->args;
    uint32_t classes = args.x[0].channels, parts = smaller((uint64_t)args.rows * args.x[0].pixels, PARTS);

    loss_args(l, &args);
    args.chunks = gp_lower_chunks((uint64_t)args.rows * classes, args.x[0].pixels, PLAN_CHUNKS_MAX);
    args.n[4] = parts;
    args.f[4] = gp_lower_scratch(l, (size_t)args.rows * args.chunks * classes * 3 * sizeof(float));
    args.f[5] = gp_lower_scratch(l, (size_t)args.rows * (classes + 2) * sizeof(float));
    args.d[0] = gp_lower_scratch(l, ((size_t)args.rows + parts) * BODY_SUMS * sizeof(double));
    gp_lower_kernel(l, GP_KERNEL_dice_part, &args, (uint64_t)args.rows * args.chunks * classes);
    gp_lower_kernel(l, GP_KERNEL_dice_sum, &args, args.rows);
    gp_lower_kernel(l, GP_KERNEL_dice_apply, &args, parts);
    loss_sums_add(l, args, args.rows + parts);
}

/* Scores are copied to the host in CHW order. The gradient is uploaded in CHW order and converted
 * here. */
void gp_lower_custom_loss(lowering *l)
{
    gp_kernel_args args = l->args;
    gp_kernel_image plain = args.x[0];
    step *added;

    args.f[2] = l->plan->buffers.scores;
    args.n[2] = 0;
    args.n[3] = args.x[0].sample;
    gp_lower_kernel(l, GP_KERNEL_scores_copy, &args, gp_lower_elements(l, &args.x[0]));
    if (l->op->out[0] == GP_NO_VALUE || l->plan->memory.loss == NULL)
        return;
    plain.channel_stride = plain.pixels;
    plain.pixel_stride = 1;
    plain.narrow = GP_WIDE;
    plain.data = gp_lower_scratch(l, gp_lower_elements(l, &plain) * sizeof(float));
    added = gp_lower_step(l, STEP_CUSTOM_LOSS);
    if (added == NULL)
        return;
    added->at.first = l->plan->buffers.scores;
    added->at.out = plain.data;
    l->plan->custom_loss.bytes = gp_lower_elements(l, &plain) * sizeof(float);
    args.x[0] = plain;
    gp_lower_kernel(l, GP_KERNEL_scores_slope, &args, gp_lower_elements(l, &args.y[0]));
}
