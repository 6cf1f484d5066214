/* Implement asha.h. */
#include "common/search/asha.h"

#include <inttypes.h>
#include <math.h>

#include "common/base/memory/alloc.h"

gp_status gp_asha_init(gp_asha *asha, uint32_t eta, uint32_t epochs_min, uint32_t epochs_max, gp_error *err)
{
    *asha = (gp_asha){ .eta = eta };
    if (eta < 2 || eta > GP_ASHA_ETA_MAX)
        return gp_fail(err, GP_EINVAL, "early stopping keeps one of %" PRIu32 " trials; must be 2 to %d", eta,
                       GP_ASHA_ETA_MAX);
    if (epochs_min == 0 || epochs_min >= epochs_max)
        return gp_fail(err, GP_EINVAL,
                       "early stopping begins after epoch %" PRIu32 " of %" PRIu32
                       "; must be at least 1 and before the last epoch",
                       epochs_min, epochs_max);
    for (uint64_t epoch = epochs_min; epoch < epochs_max; epoch *= eta)
        asha->rungs[asha->rung_count++].epoch = (uint32_t)epoch;
    return GP_OK;
}

void gp_asha_deinit(gp_asha *asha)
{
    for (uint32_t i = 0; i < asha->rung_count; i++) {
        gp_free(asha->rungs[i].sorted);
    }
    *asha = (gp_asha){ 0 };
}

uint32_t gp_asha_reached(const gp_asha *asha, uint32_t epoch)
{
    uint32_t reached = 0;

    while (reached < asha->rung_count && asha->rungs[reached].epoch <= epoch)
        reached++;
    return reached;
}

/* Return the quantile 1 - 1/eta of the scores of a rung. The operations and their order are those
 * of NumPy's percentile(), which Ray uses, so that equal scores lead to equal decisions. */
static double cutoff(const gp_rung *rung, uint32_t eta)
{
    const double quantile = (1.0 - 1.0 / eta) * 100.0 / 100.0;
    const double at = (rung->count - 1) * quantile;
    const uint32_t below = (uint32_t)floor(at);
    const uint32_t above = below + 1 < rung->count ? below + 1 : below;
    const double a = rung->sorted[below], b = rung->sorted[above], part = at - below;

    return part >= 0.5 ? b - (b - a) * (1.0 - part) : a + (b - a) * part;
}

gp_status gp_asha_record(gp_asha *asha, uint32_t rung, double score, bool *stop, gp_error *err)
{
    gp_rung *at = &asha->rungs[rung];
    double *grown = gp_array_grow(at->sorted, at->count, sizeof(*at->sorted));
    uint32_t place = at->count;

    if (grown == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for the values after epoch %" PRIu32, at->epoch);
    at->sorted = grown;
    *stop = at->count > 0 && score < cutoff(at, asha->eta);
    for (; place > 0 && at->sorted[place - 1] > score; place--)
        at->sorted[place] = at->sorted[place - 1];
    at->sorted[place] = score;
    at->count++;
    return GP_OK;
}
