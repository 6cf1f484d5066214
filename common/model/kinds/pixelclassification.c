/* pixelclassification.c -- cross-entropy per pixel: the segmentation loss. Like crossentropy,
 * but vectors are rejected. */
#include "common/model/graph/loss.h"

static gp_status pixelclassification_infer(gp_infer *infer, gp_error *err)
{
    char shape[64];

    if (infer->inputs[0].rank != 3)
        return gp_fail(err, GP_EINVAL,
                       "its input has shape %s, but must be classes x height x width (for one score per "
                       "class use crossentropy)",
                       gp_shape_format(&infer->inputs[0], shape, sizeof(shape)));
    return gp_xent_infer(infer, err);
}

static const gp_kind_check pixelclassification_checks[] = {
    { { 3, { 3, 2, 4 } }, NULL, 3, false },
    { { 3, { 4, 3, 3 } }, "label-smoothing=0.2;class-weights=0.5 1 2 0", 2, false },
    { { 3, { 2, 1, 5 } }, "ignore-label=0", 4, false },
    { .samples = 0 },
};

const gp_kind gp_kind_pixelclassification = {
    .name = "pixelclassification",
    .onnx = "Softmax",
    .help = "softmax and cross-entropy of each pixel, for segmentation",
    .flags = GP_KIND_LOSS,
    .settings_table = gp_xent_params,
    .settings_bytes = sizeof(gp_xent_settings),
    .checks = pixelclassification_checks,
    .infer = pixelclassification_infer,
    .forward = gp_xent_forward,
};
