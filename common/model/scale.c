/* Its input times one number that is not learned, as the branches of Inception-ResNet before they are added. */
#include <stddef.h>

#include "common/model/graph.h"

typedef struct scale_settings {
    double factor;
} scale_settings;

static const gp_param scale_params[] = {
    { "factor", NULL, GP_PARAM_F64, offsetof(scale_settings, factor), .fallback = 1.0, .min = -1e6,
      .max = 1e6, .seed_name = "ScalingFactor", .help = "what each number is multiplied by" },
    { 0 },
};

static gp_status scale_infer(gp_infer *infer, gp_error *err)
{
    (void)err;
    infer->output = infer->inputs[0];
    return GP_OK;
}

static gp_op scale_op(const gp_lowering *lowering, gp_opcode code)
{
    gp_op op = gp_op_init(code);

    op.function = GP_ACTIVATION_SCALE;
    op.factor[0] = ((const scale_settings *)lowering->settings)->factor;
    return op;
}

static gp_status scale_forward(gp_lowering *lowering, gp_error *err)
{
    gp_op op = scale_op(lowering, GP_OP_ACTIVATION);

    op.in[0] = lowering->x[0];
    op.out[0] = lowering->y;
    return gp_lowering_emit(lowering, &op, err);
}

static gp_status scale_backward(gp_lowering *lowering, gp_error *err)
{
    gp_op op = scale_op(lowering, GP_OP_ACTIVATION_BACKWARD);

    if (lowering->dx[0] == GP_NO_VALUE)
        return GP_OK;
    op.in[0] = lowering->y;
    op.in[1] = lowering->dy;
    op.out[0] = lowering->dx[0];
    return gp_lowering_emit(lowering, &op, err);
}

static const gp_kind_check scale_checks[] = {
    { { 3, { 2, 3, 5 } }, "factor=0.17", 3, false },
    { { 1, { 7 } }, "factor=-2", 1, false },
    { .samples = 0 },
};

const gp_kind gp_kind_scale = {
    .name = "scale",
    .onnx = "Mul",
    .help = "its input times one number",
    .inputs_min = 1,
    .inputs_max = 1,
    .settings_table = scale_params,
    .settings_bytes = sizeof(scale_settings),
    .checks = scale_checks,
    .infer = scale_infer,
    .forward = scale_forward,
    .backward = scale_backward,
};
