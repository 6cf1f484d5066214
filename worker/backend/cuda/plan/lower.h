/* lower.h -- where scratch and what lasts are until their places are known.  Private to lower*.c and plan.c. */
#ifndef GP_CUDA_LOWER_H
#define GP_CUDA_LOWER_H

#include "worker/backend/cuda/plan/plan.h"

/* No addresses of any memory. */
#define GP_SCRATCH_BASE ((uintptr_t)1 << 60)
#define GP_LASTING_BASE ((uintptr_t)1 << 61)

#endif
