/* backend.h -- the backend of plan.c: of a CUDA device in the plugin, of the host that stands in for one in tests.
 *
 * gp_backend_options.kernels, or GRADPOOL_CUDA_KERNELS where that is NULL, are words with commas between them:
 *   dense, packed   the order of activations, which is otherwise chosen by precision
 *   own             neither cuDNN nor cuBLASLt
 *   eager           steps are launched one by one, not as graphs
 *   fed             data that would fit on the device are fed to it all the same
 *   apart           each op by itself, none fused with the next
 *   tf32            products of float32 are rounded to TF32 */
#ifndef GP_CUDA_BACKEND_H
#define GP_CUDA_BACKEND_H

#include "worker/backend/cuda/plan/plan.h"

extern const gp_backend_ops gp_backend_cuda;

#endif
