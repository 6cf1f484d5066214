/* Lowers batch, group and local response norm. */
#include "worker/backend/cuda/plan/lower_inside.h"

static void couple_add(lowering *l, double *sums, size_t doubles)
{
    step *added = gp_lower_step(l, STEP_COUPLE);

    if (added == NULL)
        return;
    added->sums = sums;
    added->doubles = doubles;
}

/* Reserve the mask bits of a relu after batch norm, which processes eight channels per item. The
 * backward pass reads the mask instead of y. */
static void *mask_take(lowering *l)
{
    uint32_t y = l->op->out[0];

    if (!l->follow->relu || l->follow->pooled || !gp_lower_is_wide(l, 1))
        return NULL;
    l->plan->values[y].mask = gp_lower_persistent(l, gp_lower_elements(l, &l->args.y[0]) / 8);
    return l->plan->values[y].mask;
}

enum { PARTS_MANY = 4096, PARTS_FEW = 64 };

/* Append the kernels for partial sums, fewer partial sums, and the sums in args->d[1]; for the
 * forward or the backward pass. */
static void sums_add(lowering *l, gp_kernel_args *args, bool forward)
{
    const uint32_t channels = args->x[0].channels;
    const bool fits = gp_lower_is_wide(l, forward ? 1 : 2);

    args->kind = !forward;
    args->chunks = gp_lower_chunks(
        channels / (fits ? 8 : 1),
        (uint64_t)l->plan->options.micro_batch * args->x[0].pixels / (fits ? 16 : 1), PARTS_MANY);
    args->d[0] = gp_lower_scratch(l, (size_t)args->chunks * 2 * channels * sizeof(double));
    gp_lower_kernel(l,
                    fits      ? GP_KERNEL_wide_batchnorm_part
                    : forward ? GP_KERNEL_batchnorm_part
                              : GP_KERNEL_batchnorm_backward_part,
                    args, (uint64_t)args->chunks * (channels / (fits ? 8 : 1)));
    if (args->chunks > 2 * PARTS_FEW) { /* a single item would take too long */
        gp_kernel_args fold = *args;

        fold.n[0] = 2 * channels;
        fold.n[1] = PARTS_FEW;
        fold.d[1] = gp_lower_scratch(l, (size_t)PARTS_FEW * 2 * channels * sizeof(double));
        gp_lower_kernel(l, GP_KERNEL_parts_fold, &fold, (uint64_t)PARTS_FEW * 2 * channels);
        args->d[0] = fold.d[1];
        args->chunks = PARTS_FEW;
    }
    gp_lower_kernel(l, forward ? GP_KERNEL_batchnorm_sum : GP_KERNEL_batchnorm_backward_sum, args, channels);
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
    args.f[4] = writer->known;
    sums_add(&l, &args, true);
    writer->status = l.status;
    writer->scratch = l.scratch;
    writer->plan->follows[norm].sums = args.d[1];
}

void gp_lower_batchnorm(lowering *l)
{
    const gp_op *op = l->op;
    gp_kernel_args args = forward_args(l);
    const uint32_t channels = args.x[0].channels;

    args.bytes = mask_take(l);
    if (l->follow->sums != NULL) {
        args.d[1] = l->follow->sums;
    } else {
        args.d[1] = gp_lower_scratch(l, (2 * (size_t)channels + 1) * sizeof(double));
        sums_add(l, &args, true);
    }
    couple_add(l, args.d[1], 2 * (size_t)channels + 1);
    gp_lower_kernel(l, GP_KERNEL_batchnorm_moments, &args, channels);
    args.f[1] = gp_plan_data(l->plan, op->in[1]);
    args.f[2] = gp_plan_data(l->plan, op->in[2]);
    if (l->follow->pooled) {
        args.bytes = gp_plan_data(l->plan, op->out[PLAN_INDEX]);
        gp_lower_wide(l, 1, GP_KERNEL_wide_batchnorm_pool, GP_KERNEL_batchnorm_pool, &args);
    } else {
        gp_lower_wide(l, 1, GP_KERNEL_wide_batchnorm_apply, GP_KERNEL_batchnorm_apply, &args);
    }
}

void gp_lower_batchnorm_backward(lowering *l)
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
    sums_add(l, &args, false);
    couple_add(l, args.d[1], 2 * (size_t)channels + 1);
    if (args.y[0].data != NULL)
        gp_lower_wide(l, 2, GP_KERNEL_wide_batchnorm_backward_apply, GP_KERNEL_batchnorm_backward_apply,
                      &args);
}

void gp_lower_batchnorm_infer(lowering *l)
{
    gp_kernel_args args = l->args;

    args.number64[0] = l->op->factor[0];
    args.f[1] = gp_plan_data(l->plan, l->op->in[1]);
    args.f[2] = gp_plan_data(l->plan, l->op->in[2]);
    args.f[0] = gp_plan_data(l->plan, l->op->in[3]);
    args.f[3] = gp_plan_data(l->plan, l->op->in[4]);
    gp_lower_kernel(l, GP_KERNEL_batchnorm_infer, &args, gp_lower_elements(l, &args.y[0]));
}

void gp_lower_groupnorm(lowering *l)
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

void gp_lower_lrn(lowering *l)
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
