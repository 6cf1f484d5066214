/* hardsigmoid.c -- piecewise linear sigmoid with three parts, used as the squeeze-and-excitation
 * gate in MobileNetV3. */
#include <stddef.h>

#include "common/model/kinds/wiring.h"

typedef struct hardsigmoid_settings {
    double slope, offset;
} hardsigmoid_settings;

static const gp_param hardsigmoid_params[] = {
    { "slope", NULL, GP_PARAM_F64, offsetof(hardsigmoid_settings, slope), .fallback = 1.0 / 6.0, .min = 1e-6,
      .max = 1e6, .help = "slope of the middle part" },
    { "offset", NULL, GP_PARAM_F64, offsetof(hardsigmoid_settings, offset), .fallback = 0.5, .min = -1e6,
      .max = 1e6, .help = "value at 0, before clipping" },
    { 0 },
};

static const gp_kind_check hardsigmoid_checks[] = {
    { { 3, { 2, 3, 5 } }, "slope=1.5;offset=0.4", 3, false },
    { { 1, { 7 } }, NULL, 1, false },
    { .samples = 0 },
};

const gp_kind gp_kind_hardsigmoid = {
    .name = "hardsigmoid",
    .onnx = "HardSigmoid",
    .help = "min(max(slope * x + offset, 0), 1)",
    .flags = GP_KIND_PROBABILITIES,
    .settings_table = hardsigmoid_params,
    .settings_bytes = sizeof(hardsigmoid_settings),
    .checks = hardsigmoid_checks,
    .op = GP_OP_ACTIVATION,
    .op_backward = GP_OP_ACTIVATION_BACKWARD,
    .backward_reads = GP_READS_OUTPUT,
    .function = GP_ACTIVATION_HARD_SIGMOID,
    .factors = 2,
};
