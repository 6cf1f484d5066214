/* clip.c -- clamping to an interval: ReLU6 has min=0 and max=6, a clipped ReLU has min=0 and its
 * ceiling as max. */
#include <stddef.h>

#include "common/model/kinds/wiring.h"

typedef struct clip_settings {
    double min, max;
} clip_settings;

static const gp_param clip_params[] = {
    { "min", NULL, GP_PARAM_F64, offsetof(clip_settings, min), .fallback = 0.0, .min = -3e38, .max = 3e38,
      .torch_name = "min_val", .help = "minimum of the output" },
    { "max", NULL, GP_PARAM_F64, offsetof(clip_settings, max), .fallback = 6.0, .min = -3e38, .max = 3e38,
      .seed_name = "Ceiling", .torch_name = "max_val", .help = "maximum of the output" },
    { 0 },
};

static gp_status clip_infer(gp_infer *infer, gp_error *err)
{
    const clip_settings *settings = infer->settings;

    if (settings->min >= settings->max)
        return gp_fail(err, GP_EINVAL, "min=%g must be below max=%g", settings->min, settings->max);
    return GP_OK;
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
    .settings_table = clip_params,
    .settings_bytes = sizeof(clip_settings),
    .checks = clip_checks,
    .infer = clip_infer,
    .op = GP_OP_ACTIVATION,
    .op_backward = GP_OP_ACTIVATION_BACKWARD,
    .backward_reads = GP_READS_OUTPUT,
    .function = GP_ACTIVATION_CLIP,
    .factors = 2,
};
