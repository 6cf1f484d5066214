/* transpose.c -- permutation of axes. */
#include <inttypes.h>
#include <stddef.h>

#include "common/model/kinds/wiring.h"

typedef struct transpose_settings {
    int64_t order[3];
} transpose_settings;

static const gp_param transpose_params[] = {
    { "order", NULL, GP_PARAM_I64, offsetof(transpose_settings, order), .count = 3, .max = 2,
      .torch_name = "dims", .help = "input axis of each output axis (0: channels, 1: height, 2: width)" },
    { 0 },
};

static gp_status transpose_infer(gp_infer *infer, gp_error *err)
{
    const transpose_settings *settings = infer->settings;
    unsigned seen = 0;

    if (gp_wire_check_image(&infer->inputs[0], err) != GP_OK)
        return GP_EINVAL;
    for (int i = 0; i < 3; i++) {
        infer->output.dim[i] = infer->inputs[0].dim[settings->order[i]];
        seen |= 1u << settings->order[i];
    }
    if (seen != 7)
        return gp_fail(err, GP_EINVAL,
                       "order %" PRId64 ",%" PRId64 ",%" PRId64 " must have each of 0, 1 and 2 once",
                       settings->order[0], settings->order[1], settings->order[2]);
    return GP_OK;
}

static gp_status transpose_prepare(gp_lowering *lowering, gp_op *op, gp_error *err)
{
    const transpose_settings *settings = lowering->settings;

    (void)err;
    for (int32_t i = 0; i < 3; i++)
        if (lowering->dy == GP_NO_VALUE)
            op->number[i] = (int32_t)settings->order[i];
        else
            op->number[settings->order[i]] = i;
    return GP_OK;
}

static const gp_kind_check transpose_checks[] = {
    { { 3, { 2, 3, 4 } }, "order=1,2,0", 2, false },
    { { 3, { 3, 2, 4 } }, "order=0,2,1", 2, false },
    { { 3, { 5, 2, 3 } }, "order=2,1,0", 1, false },
    { .samples = 0 },
};

const gp_kind gp_kind_transpose = {
    .name = "transpose",
    .onnx = "Transpose",
    .help = "the input with permuted axes",
    .settings_table = transpose_params,
    .settings_bytes = sizeof(transpose_settings),
    .checks = transpose_checks,
    .infer = transpose_infer,
    .op = GP_OP_TRANSPOSE,
    .op_backward = GP_OP_TRANSPOSE,
    .prepare = transpose_prepare,
};
