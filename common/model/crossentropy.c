/* Softmax and cross-entropy in one: the loss of classification, and the end of the network. */
#include <stddef.h>

#include "common/model/graph.h"

static const gp_param crossentropy_params[] = { { 0 } };

static gp_status crossentropy_infer(gp_infer *infer, gp_error *err)
{
    char shape[64];

    if (infer->inputs[0].rank != 1)
        return gp_fail(
            err, GP_EINVAL,
            "its input has shape %s; it reads one score per class: put an fc or flatten layer before",
            gp_shape_format(&infer->inputs[0], shape, sizeof(shape)));
    if (infer->inputs[0].dim[0] < 2)
        return gp_fail(err, GP_EINVAL, "its input has 1 score; a classification needs at least 2 classes");
    infer->output = infer->inputs[0];
    return GP_OK;
}

/* The gradient of its input is a by-product, so there is no backward op. */
static gp_status crossentropy_forward(gp_lowering *lowering, gp_error *err)
{
    gp_op op = gp_op_init(GP_OP_SOFTMAX_XENT);

    op.in[0] = lowering->x[0];
    op.in[1] = lowering->labels;
    op.out[0] = lowering->dlogits;
    op.out[1] = lowering->sums;
    op.out[2] = lowering->scores;
    return gp_lowering_emit(lowering, &op, err);
}

static gp_status crossentropy_backward(gp_lowering *lowering, gp_error *err)
{
    (void)lowering;
    (void)err;
    return GP_OK;
}

static const gp_kind_check crossentropy_checks[] = {
    { { 1, { 10 } }, NULL, 4, false },
    { { 1, { 2 } }, NULL, 1, false },
    { .samples = 0 },
};

const gp_kind gp_kind_crossentropy = {
    .name = "crossentropy",
    .onnx = "Softmax",
    .help = "softmax and cross-entropy: the loss of classification",
    .flags = GP_KIND_LOSS,
    .inputs_min = 1,
    .inputs_max = 1,
    .settings_table = crossentropy_params,
    .checks = crossentropy_checks,
    .infer = crossentropy_infer,
    .forward = crossentropy_forward,
    .backward = crossentropy_backward,
};
