/* loss_scale.h -- the number that losses are multiplied with in fp16, so that gradients of activations do not vanish below
 * 2^-24 (Micikevicius et al., Mixed Precision Training, ICLR 2018).
 *
 *   a gradient is not finite -> the step changes nothing, scale x backoff      that many good steps -> scale x growth
 *
 * Whether a gradient is finite is a sum over the ranks (GP_SUM_BAD): all come to the same scale. */
#ifndef GP_LOSS_SCALE_H
#define GP_LOSS_SCALE_H

#include <stdbool.h>

#include "common/model/train_options.h"
#include "worker/backend/loss_scale_rule.h"

enum { GP_LOSS_SCALE_SKIPS_MAX = 64 }; /* in a row: it is not the scale, then */

typedef struct gp_loss_scale {
    double scale;   /* 0: the precision needs none */
    uint32_t good;  /* steps since it changed */
    uint32_t skips; /* in a row */
} gp_loss_scale;

gp_loss_scale gp_loss_scale_begin(const gp_train_options *options);

/* What a plan is given: gradients there are of the SUM of the losses of so many samples, the scale is of their mean. */
double gp_loss_scale_of_sum(const gp_loss_scale *scale, uint32_t samples);

gp_loss_scale_rule gp_loss_scale_rule_of(const gp_train_options *options);

/* A step was computed; bad: how many of its gradients are not finite.  True: it is to be skipped. */
bool gp_loss_scale_step(gp_loss_scale *scale, const gp_train_options *options, double bad);

#endif
