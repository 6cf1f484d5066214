/* relu.c -- rectified linear unit. The backward pass reads the output, so a backend may
 * overwrite the input. */
#include <stddef.h>

#include "common/model/kinds/wiring.h"

static const gp_param relu_params[] = { { 0 } };

static gp_status relu_forward(gp_lowering *lowering, gp_error *err)
{
    return gp_wire_forward(lowering, gp_op_init(GP_OP_RELU), err);
}

static gp_status relu_backward(gp_lowering *lowering, gp_error *err)
{
    return gp_wire_backward_output(lowering, gp_op_init(GP_OP_RELU_BACKWARD), err);
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
    .infer = gp_wire_infer_same,
    .forward = relu_forward,
    .backward = relu_backward,
};
