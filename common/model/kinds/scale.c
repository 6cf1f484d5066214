/* scale.c -- multiplication by a constant that is not learned, such as the residual scaling in
 * Inception-ResNet. */
#include <stddef.h>

#include "common/model/kinds/activation.h"

typedef struct scale_settings {
    double factor;
} scale_settings;

static const gp_param scale_params[] = {
    { "factor", NULL, GP_PARAM_F64, offsetof(scale_settings, factor), .fallback = 1.0, .min = -1e6,
      .max = 1e6, .seed_name = "ScalingFactor", .help = "what each number is multiplied by" },
    { 0 },
};

static gp_status scale_forward(gp_lowering *lowering, gp_error *err)
{
    const scale_settings *settings = lowering->settings;

    return gp_activation_forward(lowering, GP_ACTIVATION_SCALE, settings->factor, 0, err);
}

static gp_status scale_backward(gp_lowering *lowering, gp_error *err)
{
    const scale_settings *settings = lowering->settings;

    return gp_activation_backward(lowering, GP_ACTIVATION_SCALE, settings->factor, 0, err);
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
    .infer = gp_wire_infer_same,
    .forward = scale_forward,
    .backward = scale_backward,
};
