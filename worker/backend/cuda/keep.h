/* keep.h -- a training that stays on the device.  Private to this folder. */
#ifndef GP_CUDA_KEEP_H
#define GP_CUDA_KEEP_H

#include "worker/backend/cuda/plan.h"

extern const gp_backend_steps gp_plan_steps;

void gp_kept_free(gp_plan *plan); /* its part of a plan, if any */

#endif
