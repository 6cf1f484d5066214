/* The warning about operations that run on slow kernels. */
#ifndef GP_MISSING_PLANS_H
#define GP_MISSING_PLANS_H

#include <stdbool.h>
#include <stddef.h>

#include "worker/backend/backend.h"

enum { GP_MISSING_PLANS_BYTES = 300 };

/* Format a warning if no library executes some operations of a plan, because they are then many
 * times slower. Return false, with an empty text, if libraries execute all of them. */
bool gp_missing_plans_format(const gp_backend_ops *ops, const gp_plan *plan,
                             char text[GP_MISSING_PLANS_BYTES]);

#endif
