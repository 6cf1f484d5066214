#include "common/data/store/balance.h"

#include <stdlib.h>

#include "common/base/memory/alloc.h"
#include "common/data/store/subset.h"

/* Balance option names on the command line, in gp_balance order. */
const char *const gp_balance_names[] = { "median-frequency", "inverse-frequency", NULL };

static int number_compare(const void *left, const void *right)
{
    const double a = *(const double *)left, b = *(const double *)right;

    return (a > b) - (a < b);
}

void gp_balance_weights(gp_balance balance, const uint64_t *counts, const uint64_t *within,
                        uint32_t class_count, double *weights)
{
    const bool by_image = balance == GP_BALANCE_MEDIAN && within != NULL;
    uint64_t total = 0;
    uint32_t present = 0;
    double unit = 1.0 / class_count;

    for (uint32_t k = 0; k < class_count; k++)
        total += counts[k];
    /* collect the frequencies of all present classes at the front */
    for (uint32_t k = 0; k < class_count; k++)
        if (counts[k] != 0)
            weights[present++] = (double)counts[k] / (double)(by_image ? within[k] : total);
    if (balance == GP_BALANCE_MEDIAN && present > 0) {
        qsort(weights, present, sizeof(*weights), number_compare);
        unit = (weights[present / 2] + weights[(present - 1) / 2]) / 2;
    }
    for (uint32_t k = 0; k < class_count; k++)
        weights[k] = counts[k] == 0 ? 1 : unit * (double)(by_image ? within[k] : total) / (double)counts[k];
}

gp_status gp_balance_store(gp_balance balance, const gp_store *store, double *weights,
                           const gp_progress *progress, gp_error *err)
{
    const gp_store_info *info = gp_store_get_info(store);
    uint64_t *counts, *within;
    gp_status status;

    if (info->class_count == 0 || info->targets[0].dtype != GP_I32)
        return gp_fail(err, GP_EINVAL, "%s has no classes to balance", info->source);
    counts = gp_calloc(2 * (size_t)info->class_count + 1, sizeof(*counts));
    if (counts == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory to count %u classes", info->class_count);
    within = counts + info->class_count + 1;
    status = gp_store_count_within(store, counts, within, progress, err);
    if (status == GP_OK)
        gp_balance_weights(balance, counts, gp_store_has_class(info) ? NULL : within, info->class_count,
                           weights);
    gp_free(counts);
    return status;
}
