/* Merge the copies of weights for libraries into one step. Private to this folder. */
#ifndef GP_CUDA_PREPARE_H
#define GP_CUDA_PREPARE_H

#include "worker/backend/cuda/plan/plan.h"

/* Replace the steps of plan->prepare, whose addresses are final, by one step that executes all of
 * them. They are independent of each other and short, so a launch for each would take longer than
 * the copies. */
gp_status gp_plan_join_prepare(gp_plan *plan, gp_error *err);

#endif
