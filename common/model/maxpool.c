/* Maximum over windows.  Training keeps where the maximum was; inference has no use for it. */
#include <stdbool.h>
#include <stddef.h>

#include "common/model/graph.h"
#include "common/model/window.h"

typedef struct maxpool_settings {
    gp_window_settings window;
} maxpool_settings;

static const gp_param maxpool_params[] = {
    { "kernel", NULL, GP_PARAM_I64, offsetof(maxpool_settings, window.kernel), .count = 2, .min = 1,
      .max = GP_WINDOW_MAX, .seed_name = "PoolSize", .torch_name = "kernel_size", .unit = "pixels",
      .help = "height, width" },
    { "stride", NULL, GP_PARAM_I64, offsetof(maxpool_settings, window.stride), .count = 2, .min = 1,
      .max = GP_WINDOW_MAX, .seed_name = "Stride", .torch_name = "stride", .unit = "pixels",
      .help = "step between windows: height, width (default: the kernel)" },
    { "padding", NULL, GP_PARAM_I64, offsetof(maxpool_settings, window.padding), .count = 4,
      .max = GP_WINDOW_MAX, .seed_name = "Padding", .torch_name = "padding", .unit = "pixels",
      .help = "around the input: top, left, bottom, right" },
    { "dilation", NULL, GP_PARAM_I64, offsetof(maxpool_settings, window.dilation), .count = 2, .fallback = 1,
      .min = 1, .max = GP_WINDOW_MAX, .torch_name = "dilation", .unit = "pixels",
      .help = "distance of neighbouring taps: height, width" },
    { "same", NULL, GP_PARAM_WORD, offsetof(maxpool_settings, window.same), .words = gp_window_same_words,
      .seed_name = "Padding",
      .help =
          "pad so that the output is ceil(input / stride): an odd pixel behind (upper) or before (lower)" },
    { "ceil", NULL, GP_PARAM_BOOL, offsetof(maxpool_settings, window.ceil), .torch_name = "ceil_mode",
      .help = "also take a last window that reaches over the end of the input" },
    { 0 },
};

static gp_status maxpool_infer(gp_infer *infer, gp_error *err)
{
    const maxpool_settings *settings = infer->settings;
    gp_window window;
    int64_t out[2];
    gp_status status = gp_window_resolve(&window, out, &settings->window, 1, &infer->inputs[0], err);

    if (status != GP_OK)
        return status;
    infer->output = gp_shape3(infer->inputs[0].dim[0], out[0], out[1]);
    return gp_window_check_padding(&window, &infer->inputs[0], out, err);
}

static gp_op maxpool_op(const gp_lowering *lowering, gp_opcode code)
{
    const maxpool_settings *settings = lowering->settings;
    gp_op op = gp_op_init(code);
    int64_t out[2];

    gp_window_resolve(&op.window, out, &settings->window, 1, &lowering->graph->values[lowering->x[0]].shape,
                      NULL); /* infer has seen it succeed */
    op.pool = GP_POOL_MAX;
    return op;
}

static gp_status maxpool_forward(gp_lowering *lowering, gp_error *err)
{
    gp_op op = maxpool_op(lowering, GP_OP_POOL);

    op.in[0] = lowering->x[0];
    op.out[0] = lowering->y;
    if (lowering->phase == GP_PHASE_TRAIN) {
        const gp_shape shape = lowering->graph->values[lowering->y].shape;
        gp_status status = gp_lowering_save(lowering, 0, GP_I32, &shape, err);

        if (status != GP_OK)
            return status;
        op.out[1] = lowering->saved[0];
    }
    return gp_lowering_emit(lowering, &op, err);
}

static gp_status maxpool_backward(gp_lowering *lowering, gp_error *err)
{
    gp_op op = maxpool_op(lowering, GP_OP_POOL_BACKWARD);

    if (lowering->dx[0] == GP_NO_VALUE)
        return GP_OK;
    op.in[0] = lowering->dy;
    op.in[1] = lowering->saved[0];
    op.out[0] = lowering->dx[0];
    return gp_lowering_emit(lowering, &op, err);
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
