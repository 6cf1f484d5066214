/* scale.c -- multiplication by a constant that is not learned, such as the residual scaling in
 * Inception-ResNet. */
#include <stddef.h>

#include "common/model/kinds/wiring.h"

typedef struct scale_settings {
    double factor;
} scale_settings;

static const gp_param scale_params[] = {
    { "factor", NULL, GP_PARAM_F64, offsetof(scale_settings, factor), .fallback = 1.0, .min = -1e6,
      .max = 1e6, .seed_name = "ScalingFactor", .help = "factor" },
    { 0 },
};

static const gp_kind_check scale_checks[] = {
    { { 3, { 2, 3, 5 } }, "factor=0.17", 3, false },
    { { 1, { 7 } }, "factor=-2", 1, false },
    { .samples = 0 },
};

const gp_kind gp_kind_scale = {
    .name = "scale",
    .onnx = "Mul",
    .help = "the input times a constant",
    .settings_table = scale_params,
    .settings_bytes = sizeof(scale_settings),
    .checks = scale_checks,
    .op = GP_OP_ACTIVATION,
    .op_backward = GP_OP_ACTIVATION_BACKWARD,
    .backward_reads = GP_READS_OUTPUT,
    .function = GP_ACTIVATION_SCALE,
    .factors = 1,
};
