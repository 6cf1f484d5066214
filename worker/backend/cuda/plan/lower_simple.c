/* Lowers ops that are mostly one kernel each: element-wise ops, boxes, resizing, pooling. */
#include <string.h>

#include "common/base/rng.h"
#include "worker/backend/cuda/plan/lower_inside.h"

void gp_lower_pool(lowering *l)
{
    gp_kernel_args args = l->args;
    bool forward = l->op->code == GP_OP_POOL;

    args.kind = (int32_t)l->op->pool;
    args.bytes = gp_plan_data(l->plan, forward ? l->op->out[1] : l->op->in[1]);
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

void gp_lower_simple(lowering *l)
{
    static const gp_kernel kernels[GP_OP_COUNT] = {
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
    gp_lower_kernel(l, kernels[code], &args, count);
}

/* Lower an op that has a wide kernel. */
void gp_lower_elementwise(lowering *l)
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

void gp_lower_reshape(lowering *l)
{
    if (l->args.x[0].data != l->args.y[0].data)
        gp_lower_kernel(l, GP_KERNEL_reshape, &l->args, gp_lower_elements(l, &l->args.y[0]));
}

void gp_lower_concat(lowering *l)
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

void gp_lower_dropout(lowering *l)
{
    gp_kernel_args args = l->args;

    args.rate = (float)l->op->rate;
    args.n[0] = gp_rng_stream(GP_RNG_DROPOUT, l->op->layer);
    args.n[1] = (args.x[0].sample + 3) / 4;
    gp_lower_kernel(l, GP_KERNEL_dropout, &args, (uint64_t)args.n[1] * l->plan->options.micro_batch);
}
