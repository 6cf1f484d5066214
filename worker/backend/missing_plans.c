#include "worker/backend/missing_plans.h"

#include <inttypes.h>
#include <stdio.h>

bool gp_missing_plans_format(const gp_backend_ops *ops, const gp_plan *plan,
                             char text[GP_MISSING_PLANS_BYTES])
{
    const char *why = "";
    const uint32_t count = ops->missing == NULL ? 0 : ops->missing(plan, &why);

    text[0] = '\0';
    if (count > 0)
        snprintf(text, GP_MISSING_PLANS_BYTES,
                 "no library has a plan for %" PRIu32 " operation%s, which run%s on slow kernels: %.200s",
                 count, count == 1 ? "" : "s", count == 1 ? "s" : "", why);
    return count > 0;
}
