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

static gp_op pad_op(const gp_lowering *lowering, gp_opcode code)
{
    gp_op op = gp_op_init(code);

    for (int i = 0; i < 2; i++)
        op.number[1 + i] = (int32_t)((const pad_settings *)lowering->settings)->padding[i];
    return op;
}

static gp_status pad_infer(gp_infer *infer, gp_error *err)
{
    const pad_settings *settings = infer->settings;
    char shape[64];

    if (infer->inputs[0].rank != 3)
        return gp_fail(err, GP_EINVAL, "its input has shape %s; it reads channels x height x width",
                       gp_shape_format(&infer->inputs[0], shape, sizeof(shape)));
    infer->output = infer->inputs[0];
    for (int i = 0; i < 4; i++)
        infer->output.dim[1 + i % 2] += settings->padding[i];
    return GP_OK;
}

static gp_status pad_forward(gp_lowering *lowering, gp_error *err)
{
    return gp_wire_forward(lowering, pad_op(lowering, GP_OP_PAD), err);
}

static gp_status pad_backward(gp_lowering *lowering, gp_error *err)
{
    return gp_wire_backward(lowering, pad_op(lowering, GP_OP_SLICE), err);
}

static const gp_kind_check pad_checks[] = {
    { { 3, { 2, 3, 4 } }, "padding=1,0,2,3", 2, false },
    { { 3, { 1, 2, 2 } }, NULL, 1, false },
    { .samples = 0 },
};

const gp_kind gp_kind_pad = {
    .name = "pad",
    .onnx = "Pad",
    .help = "zeros around its input",
    .inputs_min = 1,
    .inputs_max = 1,
    .settings_table = pad_params,
    .settings_bytes = sizeof(pad_settings),
    .checks = pad_checks,
    .infer = pad_infer,
    .forward = pad_forward,
    .backward = pad_backward,
};
