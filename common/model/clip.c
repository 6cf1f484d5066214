/* Numbers cut off at both ends: ReLU6 is min=0, max=6, a clipped ReLU min=0 and its ceiling. */
#include <stddef.h>

#include "common/model/graph.h"

typedef struct clip_settings {
    double min, max;
} clip_settings;

static const gp_param clip_params[] = {
    { "min", NULL, GP_PARAM_F64, offsetof(clip_settings, min), .fallback = 0.0, .min = -3e38, .max = 3e38,
      .torch_name = "min_val", .help = "what smaller numbers become" },
    { "max", NULL, GP_PARAM_F64, offsetof(clip_settings, max), .fallback = 6.0, .min = -3e38, .max = 3e38,
      .seed_name = "Ceiling", .torch_name = "max_val", .help = "what larger numbers become" },
    { 0 },
};

static gp_status clip_infer(gp_infer *infer, gp_error *err)
{
    const clip_settings *settings = infer->settings;

    if (settings->min >= settings->max)
        return gp_fail(err, GP_EINVAL, "min=%g is not below max=%g", settings->min, settings->max);
    infer->output = infer->inputs[0];
    return GP_OK;
}

static gp_op clip_op(const gp_lowering *lowering, gp_opcode code)
{
    const clip_settings *settings = lowering->settings;
    gp_op op = gp_op_init(code);

    op.function = GP_ACTIVATION_CLIP;
    op.factor[0] = settings->min;
    op.factor[1] = settings->max;
    return op;
}

static gp_status clip_forward(gp_lowering *lowering, gp_error *err)
{
    gp_op op = clip_op(lowering, GP_OP_ACTIVATION);

    op.in[0] = lowering->x[0];
    op.out[0] = lowering->y;
    return gp_lowering_emit(lowering, &op, err);
}

static gp_status clip_backward(gp_lowering *lowering, gp_error *err)
{
    gp_op op = clip_op(lowering, GP_OP_ACTIVATION_BACKWARD);

    if (lowering->dx[0] == GP_NO_VALUE)
        return GP_OK;
    op.in[0] = lowering->y;
    op.in[1] = lowering->dy;
    op.out[0] = lowering->dx[0];
    return gp_lowering_emit(lowering, &op, err);
}

static const gp_kind_check clip_checks[] = {
    { { 3, { 2, 3, 5 } }, "min=-0.3;max=0.4", 3, false },
    { { 1, { 7 } }, NULL, 1, false },
    { .samples = 0 },
};

const gp_kind gp_kind_clip = {
    .name = "clip",
    .onnx = "Clip",
    .help = "min(max(x, min), max): a clipped ReLU",
    .inputs_min = 1,
    .inputs_max = 1,
    .settings_table = clip_params,
    .settings_bytes = sizeof(clip_settings),
    .checks = clip_checks,
    .infer = clip_infer,
    .forward = clip_forward,
    .backward = clip_backward,
};
