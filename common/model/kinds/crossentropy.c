/* crossentropy.c -- softmax and cross-entropy combined: the classification loss for samples or
 * pixels. Ends a network. */
#include "common/model/graph/loss.h"

static gp_status crossentropy_infer(gp_infer *infer, gp_error *err)
{
    char shape[64];

    if (infer->inputs[0].rank != 1 && infer->inputs[0].rank != 3)
        return gp_fail(err, GP_EINVAL,
                       "its input has shape %s, but must have one score per class (add an fc or flatten "
                       "layer before it), or classes x height x width",
                       gp_shape_format(&infer->inputs[0], shape, sizeof(shape)));
    return gp_xent_infer(infer, err);
}

static const gp_kind_check crossentropy_checks[] = {
    { { 1, { 10 } }, NULL, 4, false },
    { { 1, { 2 } }, NULL, 1, false },
    { { 1, { 4 } }, "label-smoothing=0.2;class-weights=0.5 1 2 0", 5, false },
    { { 1, { 3 } }, "ignore-label=1;label-smoothing=0.1", 6, false },
    { { 3, { 3, 4, 2 } }, NULL, 3, false },
    { .samples = 0 },
};

const gp_kind gp_kind_crossentropy = {
    .name = "crossentropy",
    .onnx = "Softmax",
    .help = "softmax and cross-entropy, for classification",
    .flags = GP_KIND_LOSS,
    .settings_table = gp_xent_params,
    .settings_bytes = sizeof(gp_xent_settings),
    .checks = crossentropy_checks,
    .infer = crossentropy_infer,
    .forward = gp_xent_forward,
};
