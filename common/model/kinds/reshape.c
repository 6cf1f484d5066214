/* reshape.c -- another image shape for the same numbers, in channel, row, column order. */
#include <inttypes.h>
#include <stddef.h>

#include "common/model/kinds/wiring.h"

typedef struct reshape_settings {
    int64_t shape[3];
} reshape_settings;

static const gp_param reshape_params[] = {
    { "shape", NULL, GP_PARAM_I64, offsetof(reshape_settings, shape), .count = 3, .min = -1, .max = INT32_MAX,
      .help = "channels, height, width (0: as in the input, -1: the remaining size, at most once)" },
    { 0 },
};

static gp_status reshape_infer(gp_infer *infer, gp_error *err)
{
    const reshape_settings *settings = infer->settings;
    const int64_t count = gp_shape_count(&infer->inputs[0]);
    int64_t rest = count;
    int open = -1;
    char shape[64];

    infer->output = gp_shape3(1, 1, 1);
    for (int i = 0; i < 3; i++) {
        int64_t kept = i < (int)infer->inputs[0].rank ? infer->inputs[0].dim[i] : 1;

        if (settings->shape[i] == -1 && open < 0) {
            open = i;
            continue;
        }
        infer->output.dim[i] = settings->shape[i] == 0 ? kept : settings->shape[i];
        if (infer->output.dim[i] < 1 || rest % infer->output.dim[i] != 0)
            break;
        rest /= infer->output.dim[i];
    }
    if (open >= 0)
        infer->output.dim[open] = rest;
    for (int i = 0; i < 3; i++)
        if (infer->output.dim[i] < 1 || infer->output.dim[i] > count)
            rest = 0;
    if (rest == 0 || gp_shape_count(&infer->output) != count)
        return gp_fail(err, GP_EINVAL,
                       "its input of shape %s has %" PRId64 " numbers, which cannot have shape %" PRId64
                       " x %" PRId64 " x %" PRId64,
                       gp_shape_format(&infer->inputs[0], shape, sizeof(shape)), count, settings->shape[0],
                       settings->shape[1], settings->shape[2]);
    return GP_OK;
}

static const gp_kind_check reshape_checks[] = {
    { { 3, { 2, 3, 4 } }, "shape=4,-1,2", 2, false },
    { { 3, { 4, 3, 2 } }, "shape=0,2,3", 3, false },
    { { 1, { 12 } }, "shape=3,2,2", 1, false },
    { .samples = 0 },
};

const gp_kind gp_kind_reshape = {
    .name = "reshape",
    .onnx = "Reshape",
    .help = "the same numbers in another shape",
    .flags = GP_KIND_RESHAPES,
    .settings_table = reshape_params,
    .settings_bytes = sizeof(reshape_settings),
    .checks = reshape_checks,
    .infer = reshape_infer,
    .op = GP_OP_RESHAPE,
    .op_backward = GP_OP_RESHAPE,
};
