/* Updates the loss scale after a training step (see loss_scale.h). The host and the CUDA kernels
 * both compile this code. It uses only double-precision multiplications and comparisons, so that
 * host and device compute bitwise identical scales. */
#ifndef GP_LOSS_SCALE_RULE_H
#define GP_LOSS_SCALE_RULE_H

#include <stdint.h>

#include "proto/message/limits.h"

#ifdef __CUDACC__
#define GP_LOSS_SCALE_RULE static __host__ __device__ __forceinline__
#else
#define GP_LOSS_SCALE_RULE static inline
#endif

/* Rule constants. */
typedef struct gp_loss_scale_rule {
    double growth, backoff;
    int64_t interval; /* Steps without overflow before the scale grows. 0: the scale never grows. */
} gp_loss_scale_rule;

/* Update the loss scale after one step. Return 1 if the step must be skipped, otherwise 0.
 *   scale  loss scale, at most GP_LOSS_SCALE_MAX
 *   good   consecutive steps without overflow since the last change
 *   rule   growth and backoff factors
 *   bad    gradients that are not finite; above 0: reduce the scale and skip the step */
GP_LOSS_SCALE_RULE int gp_loss_scale_move(double *scale, uint32_t *good, const gp_loss_scale_rule *rule,
                                          double bad)
{
    if (bad > 0.0) {
        if (*scale * rule->backoff >= 1 / GP_LOSS_SCALE_MAX)
            *scale *= rule->backoff;
        *good = 0;
        return 1;
    }
    if (rule->interval > 0 && ++*good >= rule->interval) {
        if (*scale * rule->growth <= GP_LOSS_SCALE_MAX)
            *scale *= rule->growth;
        *good = 0;
    }
    return 0;
}

#endif
