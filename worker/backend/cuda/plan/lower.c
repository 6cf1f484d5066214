/* Lowers each op to kernels.
 *
 * Convolutions and fully connected layers use cuDNN and cuBLASLt where these have a plan. The
 * libraries get copies of the weights in the order and type of the activations, updated when
 * parameters change (plan->prepare). Weight gradients have the same format and are added to the
 * blob's. All other ops, and requests without a library plan, use the kernels in bodies*.h.
 *
 * Pointers into regions (step.h) are placeholders until plan.c replaces them. */
#include <string.h>

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

bool gp_lower_is_wide(const lowering *l, uint32_t images)
{
    const gp_kernel_image *all[4] = { &l->args.x[PLAN_WITH], &l->args.y[0], &l->args.x[0], &l->args.x[1] };

    for (uint32_t i = 0; i < images + 2; i++)
        if (all[i]->data != NULL &&
            (!all[i]->narrow || all[i]->channel_stride != 1 || all[i]->channels % 8 != 0))
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
        [GP_OP_RELU] = gp_lower_elementwise,
        [GP_OP_RELU_BACKWARD] = gp_lower_elementwise,
        [GP_OP_ADD] = gp_lower_elementwise,
        [GP_OP_ACTIVATION] = gp_lower_simple,
        [GP_OP_ACTIVATION_BACKWARD] = gp_lower_simple,
        [GP_OP_MULTIPLY] = gp_lower_simple,
        [GP_OP_MULTIPLY_SUM] = gp_lower_simple,
        [GP_OP_RESIZE] = gp_lower_simple,
        [GP_OP_RESIZE_BACKWARD] = gp_lower_simple,
        [GP_OP_SLICE] = gp_lower_simple,
        [GP_OP_PAD] = gp_lower_simple,
        [GP_OP_TRANSPOSE] = gp_lower_simple,
        [GP_OP_SOFTMAX] = gp_lower_simple,
        [GP_OP_SOFTMAX_BACKWARD] = gp_lower_simple,
        [GP_OP_CONCAT] = gp_lower_concat,
        [GP_OP_RESHAPE] = gp_lower_reshape,
        [GP_OP_POOL] = gp_lower_pool,
        [GP_OP_POOL_BACKWARD] = gp_lower_pool,
        [GP_OP_DROPOUT] = gp_lower_dropout,
        [GP_OP_DROPOUT_BACKWARD] = gp_lower_dropout,
        [GP_OP_BATCHNORM] = gp_lower_batchnorm,
        [GP_OP_BATCHNORM_BACKWARD] = gp_lower_batchnorm_backward,
        [GP_OP_BATCHNORM_INFER] = gp_lower_batchnorm_infer,
        [GP_OP_GROUPNORM] = gp_lower_groupnorm,
        [GP_OP_GROUPNORM_BACKWARD] = gp_lower_groupnorm,
        [GP_OP_LRN] = gp_lower_lrn,
        [GP_OP_LRN_BACKWARD] = gp_lower_lrn,
        [GP_OP_SOFTMAX_XENT] = gp_lower_xent,
        [GP_OP_WEIGHTED_XENT] = gp_lower_xent,
        [GP_OP_DICE] = gp_lower_dice,
        [GP_OP_MSE] = gp_lower_values_loss,
        [GP_OP_HUBER] = gp_lower_values_loss,
        [GP_OP_CUSTOM_LOSS] = gp_lower_custom_loss,
    };

    return (unsigned)code < GP_OP_COUNT ? table[code] : NULL;
}

bool gp_plan_asks(gp_opcode code)
{
    return lower_find(code) == gp_lower_conv || lower_find(code) == gp_lower_fc;
}

/* Return the image of an operand. Parameters and targets have none. */
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
