/* huber.c -- Huber loss (Huber, Annals of Mathematical Statistics 1964): quadratic up to delta,
 * linear beyond, so that outliers do not dominate a regression. */
#include <stddef.h>

#include "common/model/graph/loss.h"

typedef struct huber_settings {
    gp_loss_settings loss;
    double delta;
} huber_settings;

static const gp_param huber_params[] = {
    { "delta", NULL, GP_PARAM_F64, offsetof(huber_settings, delta), .fallback = 1.0, .min = 1e-6, .max = 1e6,
      .seed_name = "TransitionPoint", .torch_name = "delta",
      .help = "error at which the loss becomes linear" },
    GP_LOSS_PARAMS,
    { 0 },
};

static gp_status huber_forward(gp_lowering *lowering, gp_error *err)
{
    const huber_settings *settings = lowering->settings;
    gp_op op = gp_loss_op(lowering, GP_OP_HUBER);

    op.factor[0] = settings->delta;
    return gp_lowering_emit(lowering, &op, err);
}

static const gp_kind_check huber_checks[] = {
    { { 1, { 6 } }, NULL, 4, false },
    { { 3, { 3, 2, 2 } }, "delta=0.3", 3, false },
    { .samples = 0 },
};

const gp_kind gp_kind_huber = {
    .name = "huber",
    .onnx = "Identity",
    .help = "squared error up to delta, linear beyond: for regression with outliers",
    .flags = GP_KIND_LOSS,
    .settings_table = huber_params,
    .settings_bytes = sizeof(huber_settings),
    .checks = huber_checks,
    .infer = gp_values_infer,
    .forward = huber_forward,
};
