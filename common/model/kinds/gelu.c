/* gelu.c -- Gaussian error linear unit (Hendrycks & Gimpel, 2016): x times the standard normal
 * distribution function at x. */
#include <stddef.h>

#include "common/model/kinds/wiring.h"

enum { GELU_NONE, GELU_TANH }; /* indices in gelu_approximations */

static const char *const gelu_approximations[] = { "none", "tanh", NULL };

typedef struct gelu_settings {
    int approximate;
} gelu_settings;

static const gp_param gelu_params[] = {
    { "approximate", NULL, GP_PARAM_WORD, offsetof(gelu_settings, approximate), .words = gelu_approximations,
      .torch_name = "approximate", .help = "none: exact, with the error function; tanh: approximation" },
    { 0 },
};

static gp_status gelu_prepare(gp_lowering *lowering, gp_op *op, gp_error *err)
{
    (void)err;
    if (((const gelu_settings *)lowering->settings)->approximate == GELU_TANH)
        op->function = GP_ACTIVATION_GELU_TANH;
    return GP_OK;
}

static const gp_kind_check gelu_checks[] = {
    { { 3, { 2, 3, 5 } }, NULL, 3, false },
    { { 3, { 2, 5, 3 } }, "approximate=tanh", 2, false },
    { { 1, { 7 } }, NULL, 1, false },
    { .samples = 0 },
};

const gp_kind gp_kind_gelu = {
    .name = "gelu",
    .onnx = "Gelu",
    .help = "x times the probability that a standard normal number is below x",
    .settings_table = gelu_params,
    .settings_bytes = sizeof(gelu_settings),
    .checks = gelu_checks,
    .op = GP_OP_ACTIVATION,
    .op_backward = GP_OP_ACTIVATION_BACKWARD,
    .backward_reads = GP_READS_INPUT,
    .function = GP_ACTIVATION_GELU,
    .prepare = gelu_prepare,
};
