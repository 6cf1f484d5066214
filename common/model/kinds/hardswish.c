/* hardswish.c -- hard swish (Howard et al., ICCV 2019), the activation in MobileNetV3: x times
 * the hard sigmoid of x with slope 1/6. */
#include "common/model/kinds/wiring.h"

const gp_kind gp_kind_hardswish = {
    .name = "hardswish",
    .onnx = "HardSwish",
    .help = "x * min(max(x / 6 + 1/2, 0), 1)",
    .settings_table = gp_no_params,
    .checks = gp_elementwise_checks,
    .op = GP_OP_ACTIVATION,
    .op_backward = GP_OP_ACTIVATION_BACKWARD,
    .backward_reads = GP_READS_INPUT,
    .function = GP_ACTIVATION_HARD_SWISH,
};
