/* Times of a plan's steps on the device, for benchmarks.
 *
 * A profiled plan launches each step without a graph, with a time mark before each step and after
 * the last. Each call waits until the device has completed the previous one. A step that is shorter
 * than a launch (about 5 us) includes the wait for the next launch. */
#ifndef GP_CUDA_PROFILE_H
#define GP_CUDA_PROFILE_H

#include "worker/backend/cuda/plan/plan.h"
#include "worker/backend/profile.h"

typedef struct plan_profile plan_profile;

/* Parts of a call that are not steps of the plan. */
typedef enum plan_part { PART_INPUT, PART_EXCHANGE, PART_COMMIT, PART_OUTPUT, PART_COUNT } plan_part;

/* Report the times of all steps, in plan order; 0 for a step that did not run. The first call must
 * pass `fn` NULL, which starts the measurement. */
gp_status gp_plan_profile(gp_plan *plan, gp_profile_fn fn, void *context, gp_error *err);
void gp_profile_free(plan_profile *profile);

/* The functions below do nothing for a plan that is not profiled. */

/* Begin a call: wait for the previous call and add its times. */
gp_status gp_profile_begin(gp_plan *plan, gp_error *err);

/* Begin a step of plan->prepare or plan->steps, or another part of a call. */
gp_status gp_profile_step(gp_plan *plan, const step *s, gp_error *err);
gp_status gp_profile_part(gp_plan *plan, plan_part part, gp_error *err);

/* End a call. */
gp_status gp_profile_end(gp_plan *plan, gp_error *err);

#endif
