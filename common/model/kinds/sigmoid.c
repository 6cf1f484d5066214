/* sigmoid.c -- the logistic function. */
#include <stddef.h>

#include "common/model/kinds/activation.h"

static const gp_param sigmoid_params[] = { { 0 } };

static gp_status sigmoid_forward(gp_lowering *lowering, gp_error *err)
{
    return gp_activation_forward(lowering, GP_ACTIVATION_SIGMOID, 0, 0, err);
}

static gp_status sigmoid_backward(gp_lowering *lowering, gp_error *err)
{
    return gp_activation_backward(lowering, GP_ACTIVATION_SIGMOID, 0, 0, err);
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
    .flags = GP_KIND_PROBABILITIES,
    .inputs_min = 1,
    .inputs_max = 1,
    .settings_table = sigmoid_params,
    .checks = sigmoid_checks,
    .infer = gp_wire_infer_same,
    .forward = sigmoid_forward,
    .backward = sigmoid_backward,
};
