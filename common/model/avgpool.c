/* Mean over windows; whether padding counts as pixels of value 0 is a setting. */
#include <stdbool.h>
#include <stddef.h>

#include "common/model/graph.h"
#include "common/model/window.h"

typedef struct avgpool_settings {
    gp_window_settings window;
    bool count_padding;
} avgpool_settings;

static const gp_param avgpool_params[] = {
    { "kernel", NULL, GP_PARAM_I64, offsetof(avgpool_settings, window.kernel), .count = 2, .min = 1,
      .max = GP_WINDOW_MAX, .seed_name = "PoolSize", .torch_name = "kernel_size", .unit = "pixels",
      .help = "height, width" },
    { "stride", NULL, GP_PARAM_I64, offsetof(avgpool_settings, window.stride), .count = 2, .min = 1,
      .max = GP_WINDOW_MAX, .seed_name = "Stride", .torch_name = "stride", .unit = "pixels",
      .help = "step between windows: height, width (default: the kernel)" },
    { "padding", NULL, GP_PARAM_I64, offsetof(avgpool_settings, window.padding), .count = 4,
      .max = GP_WINDOW_MAX, .seed_name = "Padding", .torch_name = "padding", .unit = "pixels",
      .help = "around the input: top, left, bottom, right" },
    { "dilation", NULL, GP_PARAM_I64, offsetof(avgpool_settings, window.dilation), .count = 2, .fallback = 1,
      .min = 1, .max = GP_WINDOW_MAX, .torch_name = "dilation", .unit = "pixels",
      .help = "distance of neighbouring taps: height, width" },
    { "same", NULL, GP_PARAM_WORD, offsetof(avgpool_settings, window.same), .words = gp_window_same_words,
      .seed_name = "Padding",
      .help =
          "pad so that the output is ceil(input / stride): an odd pixel behind (upper) or before (lower)" },
    { "ceil", NULL, GP_PARAM_BOOL, offsetof(avgpool_settings, window.ceil), .torch_name = "ceil_mode",
      .help = "also take a last window that reaches over the end of the input" },
    { "count-padding", NULL, GP_PARAM_BOOL, offsetof(avgpool_settings, count_padding),
      .seed_name = "PaddingValue", .torch_name = "count_include_pad",
      .help = "divide by the whole window, padding included" },
    { 0 },
};

static gp_status avgpool_infer(gp_infer *infer, gp_error *err)
{
    const avgpool_settings *settings = infer->settings;
    gp_window window;
    int64_t out[2];
    gp_status status = gp_window_resolve(&window, out, &settings->window, 1, &infer->inputs[0], err);

    if (status != GP_OK)
        return status;
    if (settings->window.ceil && settings->count_padding &&
        (window.padding[2] != settings->window.padding[2] ||
         window.padding[3] != settings->window.padding[3]))
        return gp_fail(
            err, GP_EUNSUPPORTED,
            "ceil and count-padding together leave open what a window over the end counts; drop one");
    infer->output = gp_shape3(infer->inputs[0].dim[0], out[0], out[1]);
    return gp_window_check_padding(&window, &infer->inputs[0], out, err);
}

static gp_op avgpool_op(const gp_lowering *lowering, gp_opcode code)
{
    const avgpool_settings *settings = lowering->settings;
    gp_op op = gp_op_init(code);
    int64_t out[2];

    gp_window_resolve(&op.window, out, &settings->window, 1, &lowering->graph->values[lowering->x[0]].shape,
                      NULL); /* infer has seen it succeed */
    op.pool = settings->count_padding ? GP_POOL_AVERAGE_COUNT_PADDING : GP_POOL_AVERAGE;
    return op;
}

static gp_status avgpool_forward(gp_lowering *lowering, gp_error *err)
{
    gp_op op = avgpool_op(lowering, GP_OP_POOL);

    op.in[0] = lowering->x[0];
    op.out[0] = lowering->y;
    return gp_lowering_emit(lowering, &op, err);
}

static gp_status avgpool_backward(gp_lowering *lowering, gp_error *err)
{
    gp_op op = avgpool_op(lowering, GP_OP_POOL_BACKWARD);

    if (lowering->dx[0] == GP_NO_VALUE)
        return GP_OK;
    op.in[0] = lowering->dy;
    op.out[0] = lowering->dx[0];
    return gp_lowering_emit(lowering, &op, err);
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
