/* dice.c -- softmax and generalized Dice loss (Sudre et al., DLMIA 2017) for pixel classes: 1
 * minus twice the overlap between prediction and truth, divided by the sum of their sizes. Each
 * class is weighted by a power of its true size.
 *
 * The sums in the paper cover a batch. Here they cover the pixels of one sample, and the batch
 * loss is the sum over the samples, each with weight 1. So losses are sums, as for all other
 * kinds, and a step does not depend on the number of workers. A class without pixels in a sample
 * has weight 0 there (1 / 0 in the paper). Predictions of that class still increase the loss,
 * because the true classes lose these pixels. */
#include <stddef.h>

#include "common/model/graph/loss.h"
#include "common/model/graph/lower.h"

typedef struct dice_settings {
    gp_loss_settings loss;
    double power;
    int64_t ignored;
} dice_settings;

static const gp_param dice_params[] = {
    { "volume-power", NULL, GP_PARAM_F64, offsetof(dice_settings, power), .fallback = 2.0, .min = 0.0,
      .max = 2.0,
      .help =
          "exponent: a class of n pixels has the weight n^-exponent (2: generalized Dice, 0: plain Dice)" },
    { "ignore-label", NULL, GP_PARAM_I64, offsetof(dice_settings, ignored), .fallback = -1, .min = -1,
      .max = INT32_MAX, .torch_name = "ignore_index",
      .help = "label whose pixels are ignored; -1 is always ignored" },
    GP_LOSS_PARAMS,
    { 0 },
};

static gp_status dice_infer(gp_infer *infer, gp_error *err)
{
    const gp_shape *x = &infer->inputs[0];
    char shape[64];

    if (x->rank != 3 || x->dim[0] < 2 || x->dim[0] > GP_DICE_CLASSES_MAX)
        return gp_fail(err, GP_EINVAL,
                       "its input has shape %s, but must be classes x height x width with 2 to %d classes",
                       gp_shape_format(x, shape, sizeof(shape)), GP_DICE_CLASSES_MAX);
    infer->target = (gp_target){ .dtype = GP_I32,
                                 .shape = gp_shape2(x->dim[1], x->dim[2]),
                                 .classes = (uint32_t)x->dim[0] };
    infer->target_of = ((const dice_settings *)infer->settings)->loss.target_of;
    infer->weight = 1.0;
    return GP_OK;
}

/* Emit softmax, Dice on the probabilities, and the softmax backward pass. */
static gp_status dice_forward(gp_lowering *lowering, gp_error *err)
{
    const dice_settings *settings = lowering->settings;
    gp_graph *graph = lowering->graph;
    const gp_shape shape = graph->values[lowering->x[0]].shape;
    gp_op softmax = gp_op_init(GP_OP_SOFTMAX), back = gp_op_init(GP_OP_SOFTMAX_BACKWARD);
    gp_op op = gp_loss_op(lowering, GP_OP_DICE);
    gp_status status =
        gp_graph_add_value(graph, GP_VALUE_ACTIVATION, GP_F32, &shape, lowering->layer, &op.in[0], err);

    if (status == GP_OK && lowering->dlogits != GP_NO_VALUE)
        status = gp_graph_add_value(graph, GP_VALUE_ACTIVATION_GRADIENT, GP_F32, &shape, lowering->layer,
                                    &op.out[0], err);
    softmax.in[0] = lowering->x[0];
    softmax.out[0] = op.in[0];
    op.factor[0] = settings->power;
    op.number[0] = (int32_t)settings->ignored;
    back.in[0] = op.in[0];
    back.in[1] = op.out[0];
    back.out[0] = lowering->dlogits;
    if (status == GP_OK)
        status = gp_lowering_emit(lowering, &softmax, err);
    if (status == GP_OK)
        status = gp_lowering_emit(lowering, &op, err);
    if (status == GP_OK && lowering->dlogits != GP_NO_VALUE)
        status = gp_lowering_emit(lowering, &back, err);
    return status;
}

static const gp_kind_check dice_checks[] = {
    { { 3, { 3, 3, 4 } }, NULL, 3, false },
    { { 3, { 4, 2, 5 } }, "volume-power=0;ignore-label=2", 4, false },
    { { 3, { 2, 3, 3 } }, "volume-power=1", 1, false },
    { .samples = 0 },
};

const gp_kind gp_kind_dice = {
    .name = "dice",
    .onnx = "Softmax",
    .help = "softmax and generalized Dice loss, for segmentation with classes of different size",
    .flags = GP_KIND_LOSS,
    .settings_table = dice_params,
    .settings_bytes = sizeof(dice_settings),
    .checks = dice_checks,
    .infer = dice_infer,
    .forward = dice_forward,
};
