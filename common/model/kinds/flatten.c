/* flatten.c -- [C, H, W] to [C * H * W]: the shape changes, the bytes do not. */
#include <stddef.h>

#include "common/model/kinds/wiring.h"

static gp_status flatten_infer(gp_infer *infer, gp_error *err)
{
    (void)err;
    infer->output = gp_shape1(gp_shape_count(&infer->inputs[0]));
    return GP_OK;
}

static const gp_kind_check flatten_checks[] = {
    { { 3, { 2, 3, 5 } }, NULL, 2, false },
    { { 1, { 4 } }, NULL, 1, false },
    { .samples = 0 },
};

const gp_kind gp_kind_flatten = {
    .name = "flatten",
    .onnx = "Flatten",
    .help = "reshape channels, height and width to one vector",
    .flags = GP_KIND_RESHAPES,
    .settings_table = gp_no_params,
    .checks = flatten_checks,
    .infer = flatten_infer,
    .op = GP_OP_RESHAPE,
    .op_backward = GP_OP_RESHAPE,
};
