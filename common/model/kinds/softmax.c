/* softmax.c -- softmax over the channels of each pixel, inside a network. The last layer of a
 * classification is crossentropy. */
#include <stddef.h>

#include "common/model/kinds/wiring.h"

static const gp_param softmax_params[] = { { 0 } };

static gp_status softmax_forward(gp_lowering *lowering, gp_error *err)
{
    return gp_wire_forward(lowering, gp_op_init(GP_OP_SOFTMAX), err);
}

static gp_status softmax_backward(gp_lowering *lowering, gp_error *err)
{
    return gp_wire_backward_output(lowering, gp_op_init(GP_OP_SOFTMAX_BACKWARD), err);
}

static const gp_kind_check softmax_checks[] = {
    { { 3, { 4, 3, 2 } }, NULL, 2, false },
    { { 1, { 7 } }, NULL, 3, false },
    { .samples = 0 },
};

const gp_kind gp_kind_softmax = {
    .name = "softmax",
    .onnx = "Softmax",
    .help = "exp(x) over its sum over channels",
    .flags = GP_KIND_DISTRIBUTION,
    .inputs_min = 1,
    .inputs_max = 1,
    .settings_table = softmax_params,
    .checks = softmax_checks,
    .infer = gp_wire_infer_same,
    .forward = softmax_forward,
    .backward = softmax_backward,
};
