/* Softmax over channels, pixel by pixel, within a network; the end of a classification is crossentropy. */
#include <stddef.h>

#include "common/model/graph.h"

static const gp_param softmax_params[] = { { 0 } };

static gp_status softmax_infer(gp_infer *infer, gp_error *err)
{
    (void)err;
    infer->output = infer->inputs[0];
    return GP_OK;
}

static gp_status softmax_forward(gp_lowering *lowering, gp_error *err)
{
    gp_op op = gp_op_init(GP_OP_SOFTMAX);

    op.in[0] = lowering->x[0];
    op.out[0] = lowering->y;
    return gp_lowering_emit(lowering, &op, err);
}

static gp_status softmax_backward(gp_lowering *lowering, gp_error *err)
{
    gp_op op = gp_op_init(GP_OP_SOFTMAX_BACKWARD);

    if (lowering->dx[0] == GP_NO_VALUE)
        return GP_OK;
    op.in[0] = lowering->y;
    op.in[1] = lowering->dy;
    op.out[0] = lowering->dx[0];
    return gp_lowering_emit(lowering, &op, err);
}

static const gp_kind_check softmax_checks[] = {
    { { 3, { 4, 3, 2 } }, NULL, 2, false },
    { { 1, { 7 } }, NULL, 3, false },
    { .samples = 0 },
};

const gp_kind gp_kind_softmax = {
    .name = "softmax",
    .onnx = "Softmax",
    .help = "exp(x) over its sum over channels",
    .inputs_min = 1,
    .inputs_max = 1,
    .settings_table = softmax_params,
    .checks = softmax_checks,
    .infer = softmax_infer,
    .forward = softmax_forward,
    .backward = softmax_backward,
};
