/* leakyrelu.c -- leaky rectified linear unit (Maas et al., ICML 2013): a nonzero slope below
 * zero, so that no unit stops learning. */
#include <stddef.h>

#include "common/model/kinds/activation.h"

typedef struct leakyrelu_settings {
    double slope;
} leakyrelu_settings;

static const gp_param leakyrelu_params[] = {
    { "slope", NULL, GP_PARAM_F64, offsetof(leakyrelu_settings, slope), .fallback = 0.01, .min = 0.0,
      .max = 1.0, .seed_name = "Scale", .torch_name = "negative_slope",
      .help = "factor of negative numbers" },
    { 0 },
};

static gp_status leakyrelu_forward(gp_lowering *lowering, gp_error *err)
{
    const leakyrelu_settings *settings = lowering->settings;

    return gp_activation_forward(lowering, GP_ACTIVATION_LEAKY_RELU, settings->slope, 0, err);
}

static gp_status leakyrelu_backward(gp_lowering *lowering, gp_error *err)
{
    const leakyrelu_settings *settings = lowering->settings;

    return gp_activation_backward(lowering, GP_ACTIVATION_LEAKY_RELU, settings->slope, 0, err);
}

static const gp_kind_check leakyrelu_checks[] = {
    { { 3, { 2, 3, 5 } }, NULL, 3, false },
    { { 1, { 7 } }, "slope=0.3", 1, false },
    { .samples = 0 },
};

const gp_kind gp_kind_leakyrelu = {
    .name = "leakyrelu",
    .onnx = "LeakyRelu",
    .help = "x where x is positive, slope times x elsewhere",
    .inputs_min = 1,
    .inputs_max = 1,
    .settings_table = leakyrelu_params,
    .settings_bytes = sizeof(leakyrelu_settings),
    .checks = leakyrelu_checks,
    .infer = gp_wire_infer_same,
    .forward = leakyrelu_forward,
    .backward = leakyrelu_backward,
};
