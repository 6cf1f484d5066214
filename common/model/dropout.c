/* Dropout (Srivastava et al., JMLR 2014), inverted: scaled in training, nothing to do in inference. */
#include <stddef.h>

#include "common/model/graph.h"

typedef struct dropout_settings {
    double rate;
} dropout_settings;

static const gp_param dropout_params[] = {
    { "rate", NULL, GP_PARAM_F64, offsetof(dropout_settings, rate), .fallback = 0.5, .min = 0.0, .max = 0.95,
      .seed_name = "Probability", .torch_name = "p", .help = "share zeroed" },
    { 0 },
};

static gp_status dropout_infer(gp_infer *infer, gp_error *err)
{
    (void)err;
    infer->output = infer->inputs[0];
    return GP_OK;
}

static gp_status dropout_forward(gp_lowering *lowering, gp_error *err)
{
    const dropout_settings *settings = lowering->settings;
    gp_op op = gp_op_init(lowering->phase == GP_PHASE_TRAIN ? GP_OP_DROPOUT : GP_OP_RESHAPE);

    op.in[0] = lowering->x[0];
    op.out[0] = lowering->y;
    if (op.code == GP_OP_DROPOUT)
        op.rate = settings->rate;
    return gp_lowering_emit(lowering, &op, err);
}

static gp_status dropout_backward(gp_lowering *lowering, gp_error *err)
{
    const dropout_settings *settings = lowering->settings;
    gp_op op = gp_op_init(GP_OP_DROPOUT_BACKWARD);

    if (lowering->dx[0] == GP_NO_VALUE)
        return GP_OK;
    op.in[0] = lowering->dy;
    op.out[0] = lowering->dx[0];
    op.rate = settings->rate;
    return gp_lowering_emit(lowering, &op, err);
}

/* The mask is a function of (seed, step, position), so differences work: both sides draw the same. */
static const gp_kind_check dropout_checks[] = {
    { { 3, { 2, 3, 5 } }, NULL, 3, false },
    { { 1, { 9 } }, "rate=0.2", 2, false },
    { { 1, { 4 } }, "rate=0", 1, false },
    { .samples = 0 },
};

const gp_kind gp_kind_dropout = {
    .name = "dropout",
    .onnx = "Dropout",
    .help = "zeroes a random share of the values while training",
    .inputs_min = 1,
    .inputs_max = 1,
    .settings_table = dropout_params,
    .settings_bytes = sizeof(dropout_settings),
    .checks = dropout_checks,
    .infer = dropout_infer,
    .forward = dropout_forward,
    .backward = dropout_backward,
};
