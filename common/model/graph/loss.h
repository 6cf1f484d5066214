/* Functions shared by all loss kinds.
 *
 * A loss is a sum over samples. The same holds for the total weight, by which the loss is divided
 * once, after the sums of all ranks are added. The kind defines the weight: 1 per sample, per pixel
 * with a class, or per value. Ignored parts have weight 0. */
#ifndef GP_LOSS_H
#define GP_LOSS_H

#include <stddef.h>

#include "common/model/graph/graph.h"

/* Common settings, the first member in every loss's settings. */
typedef struct gp_loss_settings {
    double factor;               /* relative importance among several losses */
    char target_of[GP_NAME_MAX]; /* earlier loss that shares its target; "": own target */
} gp_loss_settings;

/* Table entries for gp_loss_settings. */
#define GP_LOSS_PARAMS                                                                                       \
    { "loss-factor",   NULL,       GP_PARAM_F64, offsetof(gp_loss_settings, factor),                         \
      .fallback = 1.0, .min = 0.0, .max = 1e6,   .help = "weight of this loss in the sum of all losses" },   \
    {                                                                                                        \
        "target-of", NULL, GP_PARAM_TEXT, offsetof(gp_loss_settings, target_of),                             \
            .count = GP_NAME_MAX, .help = "earlier loss that uses the same target"                           \
    }

/* Return an operation with the loss's input, target and outputs. The kind adds its own numbers and
 * emits it. */
gp_op gp_loss_op(const gp_lowering *lowering, gp_opcode code);

/* text limit for class weights */
enum { GP_XENT_WEIGHTS_BYTES = GP_LAYER_SETTINGS_BYTES - 64 - GP_NAME_MAX };

/* Settings for softmax cross-entropy, for a vector (crossentropy.c) or for each pixel
 * (pixelclassification.c). */
typedef struct gp_xent_settings {
    gp_loss_settings loss;
    double smoothing;                    /* label fraction that is spread over all classes */
    int64_t ignored;                     /* label without weight; -1: none besides -1 itself */
    char weights[GP_XENT_WEIGHTS_BYTES]; /* numbers separated by spaces; "": all 1 */
} gp_xent_settings;

/* Table for gp_xent_settings. */
extern const gp_param gp_xent_params[];

/* Infer output and target. The kind must have checked the input's rank. */
gp_status gp_xent_infer(gp_infer *infer, gp_error *err);

/* Emit the forward operation. */
gp_status gp_xent_forward(gp_lowering *lowering, gp_error *err);

/* Infer output and target for losses that compare numbers: mse.c, huber.c. */
gp_status gp_values_infer(gp_infer *infer, gp_error *err);

#endif
