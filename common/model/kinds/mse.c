/* mse.c -- mean squared error for values of any shape: the regression loss. */
#include "common/model/graph/loss.h"

static const gp_param mse_params[] = { GP_LOSS_PARAMS, { 0 } };

static gp_status mse_forward(gp_lowering *lowering, gp_error *err)
{
    gp_op op = gp_loss_op(lowering, GP_OP_MSE);

    return gp_lowering_emit(lowering, &op, err);
}

static const gp_kind_check mse_checks[] = {
    { { 1, { 5 } }, NULL, 4, false },
    { { 3, { 2, 3, 4 } }, "loss-factor=0.5", 3, false },
    { .samples = 0 },
};

const gp_kind gp_kind_mse = {
    .name = "mse",
    .onnx = "Identity",
    .help = "mean squared error, for regression",
    .flags = GP_KIND_LOSS,
    .settings_table = mse_params,
    .settings_bytes = sizeof(gp_loss_settings),
    .checks = mse_checks,
    .infer = gp_values_infer,
    .forward = mse_forward,
};
