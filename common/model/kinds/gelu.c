/* gelu.c -- Gaussian error linear unit (Hendrycks & Gimpel, 2016): x times the standard normal
 * distribution function at x. */
#include <stddef.h>

#include "common/model/kinds/activation.h"

enum { GELU_NONE, GELU_TANH }; /* indices in gelu_approximations */

static const char *const gelu_approximations[] = { "none", "tanh", NULL };

typedef struct gelu_settings {
    int approximate;
} gelu_settings;

static const gp_param gelu_params[] = {
    { "approximate", NULL, GP_PARAM_WORD, offsetof(gelu_settings, approximate), .words = gelu_approximations,
      .torch_name = "approximate",
      .help = "none: by the error function; tanh: by the paper's approximation" },
    { 0 },
};

static gp_activation gelu_function(const gp_lowering *lowering)
{
    const gelu_settings *settings = lowering->settings;

    return settings->approximate == GELU_TANH ? GP_ACTIVATION_GELU_TANH : GP_ACTIVATION_GELU;
}

static gp_status gelu_forward(gp_lowering *lowering, gp_error *err)
{
    return gp_activation_forward(lowering, gelu_function(lowering), 0, 0, err);
}

static gp_status gelu_backward(gp_lowering *lowering, gp_error *err)
{
    return gp_activation_backward(lowering, gelu_function(lowering), 0, 0, err);
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
    .inputs_min = 1,
    .inputs_max = 1,
    .settings_table = gelu_params,
    .settings_bytes = sizeof(gelu_settings),
    .checks = gelu_checks,
    .infer = gp_wire_infer_same,
    .forward = gelu_forward,
    .backward = gelu_backward,
};
