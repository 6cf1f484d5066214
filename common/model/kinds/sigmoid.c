/* sigmoid.c -- the logistic function. */
#include "common/model/kinds/wiring.h"

const gp_kind gp_kind_sigmoid = {
    .name = "sigmoid",
    .onnx = "Sigmoid",
    .help = "1 / (1 + exp(-x))",
    .flags = GP_KIND_PROBABILITIES,
    .settings_table = gp_no_params,
    .checks = gp_elementwise_checks,
    .op = GP_OP_ACTIVATION,
    .op_backward = GP_OP_ACTIVATION_BACKWARD,
    .backward_reads = GP_READS_OUTPUT,
    .function = GP_ACTIVATION_SIGMOID,
};
