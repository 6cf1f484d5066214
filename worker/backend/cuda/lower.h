/* lower.h -- where scratch is until its place is known.  Private to lower.c and plan.c. */
#ifndef GP_CUDA_LOWER_H
#define GP_CUDA_LOWER_H

#include "worker/backend/cuda/plan.h"

/* No address of any memory: bit 60. */
#define GP_SCRATCH_BASE ((uintptr_t)1 << 60)

#endif
