/* dropout.c -- inverted dropout (Srivastava et al., JMLR 2014): scaled during training, the
 * identity in inference. */
#include <stddef.h>

#include "common/model/kinds/wiring.h"

typedef struct dropout_settings {
    double rate;
} dropout_settings;

static const gp_param dropout_params[] = {
    { "rate", NULL, GP_PARAM_F64, offsetof(dropout_settings, rate), .fallback = 0.5, .min = 0.0, .max = 0.95,
      .seed_name = "Probability", .torch_name = "p", .help = "fraction of values set to zero" },
    { 0 },
};

static gp_status dropout_prepare(gp_lowering *lowering, gp_op *op, gp_error *err)
{
    (void)err;
    if (lowering->phase == GP_PHASE_TRAIN)
        op->rate = ((const dropout_settings *)lowering->settings)->rate;
    else
        op->code = GP_OP_RESHAPE;
    return GP_OK;
}

/* The mask depends only on (seed, step, position), so both sides of a finite difference use the
 * same mask. */
static const gp_kind_check dropout_checks[] = {
    { { 3, { 2, 3, 5 } }, NULL, 3, false },
    { { 1, { 9 } }, "rate=0.2", 2, false },
    { { 1, { 4 } }, "rate=0", 1, false },
    { .samples = 0 },
};

const gp_kind gp_kind_dropout = {
    .name = "dropout",
    .onnx = "Dropout",
    .help = "set a random fraction of the values to zero during training",
    .flags = GP_KIND_RESHAPES,
    .settings_table = dropout_params,
    .settings_bytes = sizeof(dropout_settings),
    .checks = dropout_checks,
    .op = GP_OP_DROPOUT,
    .op_backward = GP_OP_DROPOUT_BACKWARD,
    .prepare = dropout_prepare,
};
