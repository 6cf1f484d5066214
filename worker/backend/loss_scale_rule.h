/* loss_scale_rule.h -- how the loss scale moves behind a step (loss_scale.h): the host's and, where a training stays on its device,
 * the device's.  Double precision and multiplications only, so that both come to the same bits. */
#ifndef GP_LOSS_SCALE_RULE_H
#define GP_LOSS_SCALE_RULE_H

#include <stdint.h>

#include "proto/message/limits.h"

#ifdef __CUDACC__
#define GP_LOSS_SCALE_RULE static __host__ __device__ __forceinline__
#else
#define GP_LOSS_SCALE_RULE static inline
#endif

typedef struct gp_loss_scale_rule {
    double growth, backoff;
    int64_t interval; /* 0: it never grows */
} gp_loss_scale_rule;

/* bad: gradients that are not finite; good: steps since it changed.  Returns whether the step is to be skipped. */
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
