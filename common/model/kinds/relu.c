/* relu.c -- rectified linear unit. The backward pass reads the output, so a backend may
 * overwrite the input. */
#include "common/model/kinds/wiring.h"

const gp_kind gp_kind_relu = {
    .name = "relu",
    .onnx = "Relu",
    .help = "max(x, 0)",
    .settings_table = gp_no_params,
    .checks = gp_elementwise_checks,
    .op = GP_OP_RELU,
    .op_backward = GP_OP_RELU_BACKWARD,
    .backward_reads = GP_READS_OUTPUT,
};
