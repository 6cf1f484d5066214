/* crop.c -- a box cut out of the input, given by its first channel, row and column and by its
 * size. */
#include <inttypes.h>
#include <stddef.h>

#include "common/model/kinds/wiring.h"

typedef struct crop_settings {
    int64_t start[3], size[3];
} crop_settings;

static const gp_param crop_params[] = {
    { "start", NULL, GP_PARAM_I64, offsetof(crop_settings, start), .count = 3, .max = INT32_MAX,
      .seed_name = "Location", .help = "first channel, row and column" },
    { "size", NULL, GP_PARAM_I64, offsetof(crop_settings, size), .count = 3, .max = INT32_MAX,
      .help = "channels, height, width (0: to the end)" },
    { 0 },
};

static gp_status crop_infer(gp_infer *infer, gp_error *err)
{
    const crop_settings *settings = infer->settings;
    char shape[64];

    for (uint32_t i = 0; i < 3; i++) {
        int64_t have = i < infer->output.rank ? infer->output.dim[i] : 1;
        int64_t size = settings->size[i] == 0 ? have - settings->start[i] : settings->size[i];

        if (size < 1 || settings->start[i] + size > have)
            return gp_fail(err, GP_EINVAL,
                           "from %" PRId64 " on, fewer than %" PRId64
                           " elements remain along axis %u of its input %s",
                           settings->start[i], settings->size[i] == 0 ? 1 : settings->size[i], i,
                           gp_shape_format(&infer->inputs[0], shape, sizeof(shape)));
        if (i < infer->output.rank)
            infer->output.dim[i] = size;
    }
    return GP_OK;
}

static gp_status crop_prepare(gp_lowering *lowering, gp_op *op, gp_error *err)
{
    (void)err;
    for (int i = 0; i < 3; i++)
        op->number[i] = (int32_t)((const crop_settings *)lowering->settings)->start[i];
    return GP_OK;
}

static const gp_kind_check crop_checks[] = {
    { { 3, { 3, 4, 5 } }, "start=1,2,0;size=2,1,3", 2, false },
    { { 3, { 2, 3, 5 } }, "start=0,1,2", 1, false },
    { { 1, { 6 } }, "start=2,0,0;size=3,0,0", 2, false },
    { .samples = 0 },
};

const gp_kind gp_kind_crop = {
    .name = "crop",
    .onnx = "Slice",
    .help = "a box of the input",
    .settings_table = crop_params,
    .settings_bytes = sizeof(crop_settings),
    .checks = crop_checks,
    .infer = crop_infer,
    .op = GP_OP_SLICE,
    .op_backward = GP_OP_PAD,
    .prepare = crop_prepare,
};
