/* Merge short steps with weights or gradients into one step. Private to this folder. */
#ifndef GP_CUDA_PREPARE_H
#define GP_CUDA_PREPARE_H

#include "worker/backend/cuda/plan/plan.h"

/* Replace the steps of plan->prepare, whose addresses are final, by one step that executes all of
 * them. They are independent of each other and short, so a launch for each would take longer than
 * the copies. */
gp_status gp_plan_join_prepare(gp_plan *plan, gp_error *err);

/* Replace the steps that add to gradients of parameters by one, in the place of the last of them.
 * For plans whose gradients can wait (gp_plan_gradients_wait()). */
gp_status gp_plan_join_gradients(gp_plan *plan, gp_error *err);

#endif
