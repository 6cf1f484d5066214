/* leakyrelu.c -- leaky rectified linear unit (Maas et al., ICML 2013): a nonzero slope below
 * zero, so that no unit stops learning. */
#include <stddef.h>

#include "common/model/kinds/wiring.h"

typedef struct leakyrelu_settings {
    double slope;
} leakyrelu_settings;

static const gp_param leakyrelu_params[] = {
    { "slope", NULL, GP_PARAM_F64, offsetof(leakyrelu_settings, slope), .fallback = 0.01, .min = 0.0,
      .max = 1.0, .seed_name = "Scale", .torch_name = "negative_slope",
      .help = "factor of negative numbers" },
    { 0 },
};

static const gp_kind_check leakyrelu_checks[] = {
    { { 3, { 2, 3, 5 } }, NULL, 3, false },
    { { 1, { 7 } }, "slope=0.3", 1, false },
    { .samples = 0 },
};

const gp_kind gp_kind_leakyrelu = {
    .name = "leakyrelu",
    .onnx = "LeakyRelu",
    .help = "x for positive x, slope * x for negative x",
    .settings_table = leakyrelu_params,
    .settings_bytes = sizeof(leakyrelu_settings),
    .checks = leakyrelu_checks,
    .op = GP_OP_ACTIVATION,
    .op_backward = GP_OP_ACTIVATION_BACKWARD,
    .backward_reads = GP_READS_OUTPUT,
    .function = GP_ACTIVATION_LEAKY_RELU,
    .factors = 1,
};
