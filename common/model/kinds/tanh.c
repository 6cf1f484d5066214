/* tanh.c -- hyperbolic tangent. */
#include "common/model/kinds/wiring.h"

const gp_kind gp_kind_tanh = {
    .name = "tanh",
    .onnx = "Tanh",
    .help = "hyperbolic tangent",
    .settings_table = gp_no_params,
    .checks = gp_elementwise_checks,
    .op = GP_OP_ACTIVATION,
    .op_backward = GP_OP_ACTIVATION_BACKWARD,
    .backward_reads = GP_READS_OUTPUT,
    .function = GP_ACTIVATION_TANH,
};
