/* softmax.c -- softmax over the channels of each pixel, inside a network. The last layer of a
 * classification is crossentropy. */
#include <stddef.h>

#include "common/model/kinds/wiring.h"

static const gp_kind_check softmax_checks[] = {
    { { 3, { 4, 3, 2 } }, NULL, 2, false },
    { { 1, { 7 } }, NULL, 3, false },
    { .samples = 0 },
};

const gp_kind gp_kind_softmax = {
    .name = "softmax",
    .onnx = "Softmax",
    .help = "softmax over channels",
    .flags = GP_KIND_DISTRIBUTION,
    .settings_table = gp_no_params,
    .checks = softmax_checks,
    .op = GP_OP_SOFTMAX,
    .op_backward = GP_OP_SOFTMAX_BACKWARD,
    .backward_reads = GP_READS_OUTPUT,
};
