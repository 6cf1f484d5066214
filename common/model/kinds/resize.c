/* resize.c -- resizing of height and width, by nearest neighbor or bilinear interpolation. */
#include <stddef.h>

#include "common/model/kinds/wiring.h"

typedef struct resize_settings {
    int64_t scale[2], size[2];
    int mode;
} resize_settings;

/* Names in the order of gp_resize_mode. */
static const char *const resize_modes[] = { "nearest", "bilinear", "bilinear-corners", "bilinear-asymmetric",
                                            NULL };

static const gp_param resize_params[] = {
    { "scale", NULL, GP_PARAM_I64, offsetof(resize_settings, scale), .count = 2, .max = 1024,
      .seed_name = "Scale", .torch_name = "scale_factor", .help = "factor of height and width" },
    { "size", NULL, GP_PARAM_I64, offsetof(resize_settings, size), .count = 2, .max = 65536,
      .seed_name = "OutputSize", .torch_name = "size", .unit = "pixels",
      .help = "height and width; instead of scale" },
    { "mode", NULL, GP_PARAM_WORD, offsetof(resize_settings, mode), .words = resize_modes,
      .seed_name = "Method", .torch_name = "mode",
      .help = "interpolation: nearest, or linear with the coordinate mode half_pixel, align_corners or "
              "asymmetric" },
    { 0 },
};

static gp_status resize_infer(gp_infer *infer, gp_error *err)
{
    const resize_settings *settings = infer->settings;

    if (gp_wire_check_image(&infer->inputs[0], err) != GP_OK)
        return GP_EINVAL;
    for (int i = 0; i < 2; i++) {
        if ((settings->scale[i] == 0) == (settings->size[i] == 0))
            return gp_fail(err, GP_EINVAL, "set either scale=N or size=height,width");
        infer->output.dim[1 + i] =
            settings->size[i] != 0 ? settings->size[i] : infer->inputs[0].dim[1 + i] * settings->scale[i];
    }
    return GP_OK;
}

static gp_status resize_prepare(gp_lowering *lowering, gp_op *op, gp_error *err)
{
    (void)err;
    op->number[0] = ((const resize_settings *)lowering->settings)->mode;
    return GP_OK;
}

static const gp_kind_check resize_checks[] = {
    { { 3, { 2, 3, 2 } }, "scale=2,3", 2, false },
    { { 3, { 2, 3, 4 } }, "scale=2;mode=bilinear", 2, false },
    { { 3, { 3, 4, 3 } }, "size=7,2;mode=bilinear-corners", 1, false },
    { { 3, { 1, 4, 5 } }, "scale=2;mode=bilinear-asymmetric", 1, false },
    { .samples = 0 },
};

const gp_kind gp_kind_resize = {
    .name = "resize",
    .onnx = "Resize",
    .help = "the input in another size",
    .settings_table = resize_params,
    .settings_bytes = sizeof(resize_settings),
    .checks = resize_checks,
    .infer = resize_infer,
    .op = GP_OP_RESIZE,
    .op_backward = GP_OP_RESIZE_BACKWARD,
    .prepare = resize_prepare,
};
