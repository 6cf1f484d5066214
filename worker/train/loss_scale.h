/* loss_scale.h -- dynamic loss scaling for fp16. Losses are multiplied by a scale, so that
 * activation gradients do not underflow below 2^-24 (Micikevicius et al., Mixed Precision
 * Training, ICLR 2018).
 *
 *   a gradient is not finite: skip the step, scale x backoff; after enough good steps: scale x
 *   growth
 *
 * The non-finite gradient count is summed over all ranks (GP_SUM_BAD), so all ranks compute the
 * same scale. */
#ifndef GP_LOSS_SCALE_H
#define GP_LOSS_SCALE_H

#include <stdbool.h>

#include "common/model/train_options.h"
#include "worker/backend/loss_scale_rule.h"

/* skipped steps in a row; after these the scale is not the cause */
enum { GP_LOSS_SCALE_SKIPS_MAX = 64 };

/* Dynamic loss scale state. */
typedef struct gp_loss_scale {
    double scale;   /* 0: the precision needs no scale */
    uint32_t good;  /* good steps since the last change */
    uint32_t skips; /* skipped steps in a row */
} gp_loss_scale;

/* Return the initial loss scale. scale 0: the precision is not fp16. */
gp_loss_scale gp_loss_scale_begin(const gp_train_options *options);

/* Return the scale for a plan, which computes gradients of the summed loss; `scale` applies to
 * the mean loss.
 *   samples  sample count in the sum */
double gp_loss_scale_of_sum(const gp_loss_scale *scale, uint32_t samples);

gp_loss_scale_rule gp_loss_scale_rule_of(const gp_train_options *options);

/* Update the scale after a step. Return whether to skip the step.
 *   bad  non-finite gradient count */
bool gp_loss_scale_step(gp_loss_scale *scale, const gp_train_options *options, double bad);

#endif
