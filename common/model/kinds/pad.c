/* pad.c -- zero padding around height and width. */
#include <stddef.h>

#include "common/model/kinds/wiring.h"

typedef struct pad_settings {
    int64_t padding[4];
} pad_settings;

static const gp_param pad_params[] = {
    { "padding", NULL, GP_PARAM_I64, offsetof(pad_settings, padding), .count = 4, .max = 4096,
      .torch_name = "padding", .unit = "pixels", .help = "top, left, bottom, right" },
    { 0 },
};

static gp_status pad_infer(gp_infer *infer, gp_error *err)
{
    const pad_settings *settings = infer->settings;

    if (gp_wire_check_image(&infer->inputs[0], err) != GP_OK)
        return GP_EINVAL;
    for (int i = 0; i < 4; i++)
        infer->output.dim[1 + i % 2] += settings->padding[i];
    return GP_OK;
}

static gp_status pad_prepare(gp_lowering *lowering, gp_op *op, gp_error *err)
{
    (void)err;
    for (int i = 0; i < 2; i++)
        op->number[1 + i] = (int32_t)((const pad_settings *)lowering->settings)->padding[i];
    return GP_OK;
}

static const gp_kind_check pad_checks[] = {
    { { 3, { 2, 3, 4 } }, "padding=1,0,2,3", 2, false },
    { { 3, { 1, 2, 2 } }, NULL, 1, false },
    { .samples = 0 },
};

const gp_kind gp_kind_pad = {
    .name = "pad",
    .onnx = "Pad",
    .help = "zeros around the input",
    .settings_table = pad_params,
    .settings_bytes = sizeof(pad_settings),
    .checks = pad_checks,
    .infer = pad_infer,
    .op = GP_OP_PAD,
    .op_backward = GP_OP_SLICE,
    .prepare = pad_prepare,
};
