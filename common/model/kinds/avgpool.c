/* avgpool.c -- average pooling. A setting decides whether padding counts as pixels with value 0. */
#include <stdbool.h>
#include <stddef.h>

#include "common/model/kinds/pooling.h"

typedef struct avgpool_settings {
    gp_window_settings window;
    bool count_padding;
} avgpool_settings;

static const gp_param avgpool_params[] = {
    GP_POOLING_PARAMS(avgpool_settings),
    { "count-padding", NULL, GP_PARAM_BOOL, offsetof(avgpool_settings, count_padding),
      .seed_name = "PaddingValue", .torch_name = "count_include_pad",
      .help = "divide by the whole window, padding included" },
    { 0 },
};

static gp_status avgpool_infer(gp_infer *infer, gp_error *err)
{
    const avgpool_settings *settings = infer->settings;
    gp_window window;
    gp_status status = gp_pooling_infer(infer, &settings->window, &window, err);

    if (status == GP_OK && settings->window.ceil && settings->count_padding &&
        (window.padding[2] != settings->window.padding[2] ||
         window.padding[3] != settings->window.padding[3]))
        return gp_fail(
            err, GP_EUNSUPPORTED,
            "ceil and count-padding together leave open what a window over the end counts; drop one");
    return status;
}

static gp_pool_kind avgpool_kind(const avgpool_settings *settings)
{
    return settings->count_padding ? GP_POOL_AVERAGE_COUNT_PADDING : GP_POOL_AVERAGE;
}

static gp_status avgpool_forward(gp_lowering *lowering, gp_error *err)
{
    const avgpool_settings *settings = lowering->settings;

    return gp_pooling_forward(lowering, avgpool_kind(settings), &settings->window, err);
}

static gp_status avgpool_backward(gp_lowering *lowering, gp_error *err)
{
    const avgpool_settings *settings = lowering->settings;

    return gp_pooling_backward(lowering, avgpool_kind(settings), &settings->window, err);
}

static const gp_kind_check avgpool_checks[] = {
    { { 3, { 2, 4, 6 } }, "kernel=2", 2, false },
    { { 3, { 1, 5, 4 } }, "kernel=3,2;stride=1,2;padding=1,0,2,1", 1, false },
    { { 3, { 3, 7, 5 } }, "kernel=3;stride=2;padding=1;count-padding=true", 3, false },
    { { 3, { 1, 3, 3 } }, "kernel=1;stride=2", 1, false },
    { { 3, { 2, 6, 7 } }, "kernel=3,2;stride=2;padding=1,0,0,1;ceil=true", 2, false },
    { { 3, { 2, 5, 6 } }, "kernel=3;stride=2;same=upper", 1, false },
    { { 3, { 1, 7, 6 } }, "kernel=2;stride=1;dilation=2,3;padding=1;count-padding=true", 2, false },
    { .samples = 0 },
};

const gp_kind gp_kind_avgpool = {
    .name = "avgpool",
    .onnx = "AveragePool",
    .help = "mean over windows",
    .inputs_min = 1,
    .inputs_max = 1,
    .settings_table = avgpool_params,
    .settings_bytes = sizeof(avgpool_settings),
    .checks = avgpool_checks,
    .infer = avgpool_infer,
    .forward = avgpool_forward,
    .backward = avgpool_backward,
};
