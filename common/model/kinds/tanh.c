/* tanh.c -- hyperbolic tangent. */
#include <stddef.h>

#include "common/model/kinds/activation.h"

static const gp_param tanh_params[] = { { 0 } };

static gp_status tanh_forward(gp_lowering *lowering, gp_error *err)
{
    return gp_activation_forward(lowering, GP_ACTIVATION_TANH, 0, 0, err);
}

static gp_status tanh_backward(gp_lowering *lowering, gp_error *err)
{
    return gp_activation_backward(lowering, GP_ACTIVATION_TANH, 0, 0, err);
}

static const gp_kind_check tanh_checks[] = {
    { { 3, { 2, 3, 5 } }, NULL, 3, false },
    { { 1, { 7 } }, NULL, 1, false },
    { .samples = 0 },
};

const gp_kind gp_kind_tanh = {
    .name = "tanh",
    .onnx = "Tanh",
    .help = "hyperbolic tangent",
    .inputs_min = 1,
    .inputs_max = 1,
    .settings_table = tanh_params,
    .checks = tanh_checks,
    .infer = gp_wire_infer_same,
    .forward = tanh_forward,
    .backward = tanh_backward,
};
