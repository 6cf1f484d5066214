/* The logistic function. */
#include <stddef.h>

#include "common/model/graph.h"

static const gp_param sigmoid_params[] = { { 0 } };

static gp_status sigmoid_infer(gp_infer *infer, gp_error *err)
{
    (void)err;
    infer->output = infer->inputs[0];
    return GP_OK;
}

static gp_op sigmoid_op(gp_opcode code)
{
    gp_op op = gp_op_init(code);

    op.function = GP_ACTIVATION_SIGMOID;
    return op;
}

static gp_status sigmoid_forward(gp_lowering *lowering, gp_error *err)
{
    gp_op op = sigmoid_op(GP_OP_ACTIVATION);

    op.in[0] = lowering->x[0];
    op.out[0] = lowering->y;
    return gp_lowering_emit(lowering, &op, err);
}

static gp_status sigmoid_backward(gp_lowering *lowering, gp_error *err)
{
    gp_op op = sigmoid_op(GP_OP_ACTIVATION_BACKWARD);

    if (lowering->dx[0] == GP_NO_VALUE)
        return GP_OK;
    op.in[0] = lowering->y;
    op.in[1] = lowering->dy;
    op.out[0] = lowering->dx[0];
    return gp_lowering_emit(lowering, &op, err);
}

static const gp_kind_check sigmoid_checks[] = {
    { { 3, { 2, 3, 5 } }, NULL, 3, false },
    { { 1, { 7 } }, NULL, 1, false },
    { .samples = 0 },
};

const gp_kind gp_kind_sigmoid = {
    .name = "sigmoid",
    .onnx = "Sigmoid",
    .help = "1 / (1 + exp(-x))",
    .inputs_min = 1,
    .inputs_max = 1,
    .settings_table = sigmoid_params,
    .checks = sigmoid_checks,
    .infer = sigmoid_infer,
    .forward = sigmoid_forward,
    .backward = sigmoid_backward,
};
