/* loss.h -- what the loss kinds have in common.
 *
 * A loss is a sum over samples, and so is the weight that it is divided by, once, after all ranks' sums are added.
 * What the weight counts is the kind's: 1 per sample, per pixel with a class, per value; what is ignored has none. */
#ifndef GP_LOSS_H
#define GP_LOSS_H

#include <stddef.h>

#include "common/model/graph/graph.h"

/* First in the settings of every loss. */
typedef struct gp_loss_settings {
    double factor;
    char target_of[GP_NAME_MAX]; /* the loss before it whose target it compares with; "": it has its own */
} gp_loss_settings;

#define GP_LOSS_PARAMS                                                                                       \
    { "loss-factor",   NULL,       GP_PARAM_F64, offsetof(gp_loss_settings, factor),                         \
      .fallback = 1.0, .min = 0.0, .max = 1e6,   .help = "what this loss counts among several" },            \
    {                                                                                                        \
        "target-of", NULL, GP_PARAM_TEXT, offsetof(gp_loss_settings, target_of),                             \
            .count = GP_NAME_MAX, .help = "a loss before it: both compare with the same target"              \
    }

/* The op of a loss with its input, target and outputs; the kind adds its own numbers and emits it. */
gp_op gp_loss_op(const gp_lowering *lowering, gp_opcode code);

/* A loss's gradient is a by-product of its forward op, so there is no backward op. */
gp_status gp_loss_backward(gp_lowering *lowering, gp_error *err);

/* Classes by softmax and cross-entropy, of a vector or of each pixel: crossentropy.c, pixelclassification.c. */
enum { GP_XENT_WEIGHTS_BYTES = GP_LAYER_SETTINGS_BYTES - 64 - GP_NAME_MAX }; /* of their text */

typedef struct gp_xent_settings {
    gp_loss_settings loss;
    double smoothing;
    int64_t ignored;
    char weights[GP_XENT_WEIGHTS_BYTES];
} gp_xent_settings;

extern const gp_param gp_xent_params[];
gp_status gp_xent_infer(gp_infer *infer, gp_error *err); /* of an input whose shape is right */
gp_status gp_xent_forward(gp_lowering *lowering, gp_error *err);

/* Values: mse.c, huber.c. */
gp_status gp_values_infer(gp_infer *infer, gp_error *err);

#endif
