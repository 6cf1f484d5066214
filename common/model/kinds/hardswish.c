/* hardswish.c -- hard swish (Howard et al., ICCV 2019), the activation in MobileNetV3: x times
 * the hard sigmoid of x with slope 1/6. */
#include <stddef.h>

#include "common/model/kinds/activation.h"

static const gp_param hardswish_params[] = { { 0 } };

static gp_status hardswish_forward(gp_lowering *lowering, gp_error *err)
{
    return gp_activation_forward(lowering, GP_ACTIVATION_HARD_SWISH, 0, 0, err);
}

static gp_status hardswish_backward(gp_lowering *lowering, gp_error *err)
{
    return gp_activation_backward(lowering, GP_ACTIVATION_HARD_SWISH, 0, 0, err);
}

static const gp_kind_check hardswish_checks[] = {
    { { 3, { 2, 3, 5 } }, NULL, 3, false },
    { { 1, { 7 } }, NULL, 1, false },
    { .samples = 0 },
};

const gp_kind gp_kind_hardswish = {
    .name = "hardswish",
    .onnx = "HardSwish",
    .help = "x * min(max(x / 6 + 1/2, 0), 1)",
    .inputs_min = 1,
    .inputs_max = 1,
    .settings_table = hardswish_params,
    .checks = hardswish_checks,
    .infer = gp_wire_infer_same,
    .forward = hardswish_forward,
    .backward = hardswish_backward,
};
