/* Per-operation times of a CPU plan, for benchmarks. */
#ifndef GP_CPU_PROFILE_H
#define GP_CPU_PROFILE_H

#include "worker/backend/backend.h"
#include "worker/backend/profile.h"

/* Report the times of all operations of a plan in execution order, for the segments that measure
 * them. The first call must pass `fn` NULL, which starts the measurement. */
void gp_cpu_profile(const gp_plan *plan, gp_profile_fn fn, void *context);

#endif
