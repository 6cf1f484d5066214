/* Rectified linear unit.  Backward reads the output, so that a backend may overwrite the input. */
#include <stddef.h>

#include "common/model/graph.h"

static const gp_param relu_params[] = { { 0 } };

static gp_status relu_infer(gp_infer *infer, gp_error *err)
{
    (void)err;
    infer->output = infer->inputs[0];
    return GP_OK;
}

static gp_status relu_forward(gp_lowering *lowering, gp_error *err)
{
    gp_op op = gp_op_init(GP_OP_RELU);

    op.in[0] = lowering->x[0];
    op.out[0] = lowering->y;
    return gp_lowering_emit(lowering, &op, err);
}

static gp_status relu_backward(gp_lowering *lowering, gp_error *err)
{
    gp_op op = gp_op_init(GP_OP_RELU_BACKWARD);

    if (lowering->dx[0] == GP_NO_VALUE)
        return GP_OK;
    op.in[0] = lowering->y;
    op.in[1] = lowering->dy;
    op.out[0] = lowering->dx[0];
    return gp_lowering_emit(lowering, &op, err);
}

static const gp_kind_check relu_checks[] = {
    { { 3, { 2, 3, 5 } }, NULL, 3, false },
    { { 1, { 7 } }, NULL, 1, false },
    { .samples = 0 },
};

const gp_kind gp_kind_relu = {
    .name = "relu",
    .onnx = "Relu",
    .help = "max(x, 0)",
    .inputs_min = 1,
    .inputs_max = 1,
    .settings_table = relu_params,
    .checks = relu_checks,
    .infer = relu_infer,
    .forward = relu_forward,
    .backward = relu_backward,
};
