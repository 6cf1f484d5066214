/* maxpool.c -- maximum pooling. Training saves the position of each maximum for the backward
 * pass; inference does not. */
#include <stdbool.h>
#include <stddef.h>

#include "common/model/kinds/pooling.h"

typedef struct maxpool_settings {
    gp_window_settings window;
} maxpool_settings;

static const gp_param maxpool_params[] = {
    GP_POOLING_PARAMS(maxpool_settings),
    { 0 },
};

static gp_status maxpool_infer(gp_infer *infer, gp_error *err)
{
    const maxpool_settings *settings = infer->settings;
    gp_window window;

    return gp_pooling_infer(infer, &settings->window, &window, err);
}

static gp_status maxpool_forward(gp_lowering *lowering, gp_error *err)
{
    const maxpool_settings *settings = lowering->settings;

    return gp_pooling_forward(lowering, GP_POOL_MAX, &settings->window, err);
}

static gp_status maxpool_backward(gp_lowering *lowering, gp_error *err)
{
    const maxpool_settings *settings = lowering->settings;

    return gp_pooling_backward(lowering, GP_POOL_MAX, &settings->window, err);
}

static const gp_kind_check maxpool_checks[] = {
    { { 3, { 2, 4, 6 } }, "kernel=2", 2, false },
    { { 3, { 1, 5, 4 } }, "kernel=3,2;stride=1,2;padding=1,0,2,1", 1, false },
    { { 3, { 3, 7, 7 } }, "kernel=3;stride=2;padding=1", 3, false },
    { { 3, { 1, 3, 3 } }, "kernel=1;stride=2", 1, false },
    { { 3, { 2, 6, 8 } }, "kernel=3;stride=2;ceil=true", 2, false },
    { { 3, { 2, 6, 5 } }, "kernel=2,3;stride=1,2;same=lower", 1, false },
    { { 3, { 1, 7, 8 } }, "kernel=2,3;stride=1;dilation=3,2;padding=1,2,2,0", 2, false },
    { .samples = 0 },
};

const gp_kind gp_kind_maxpool = {
    .name = "maxpool",
    .onnx = "MaxPool",
    .help = "maximum over windows",
    .inputs_min = 1,
    .inputs_max = 1,
    .settings_table = maxpool_params,
    .settings_bytes = sizeof(maxpool_settings),
    .checks = maxpool_checks,
    .infer = maxpool_infer,
    .forward = maxpool_forward,
    .backward = maxpool_backward,
};
