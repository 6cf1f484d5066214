/* The backend of plan.c, for a CUDA device in the plugin or for the host implementation in tests.
 *
 * gp_backend_options.kernels, or GRADPOOL_CUDA_KERNELS if that is NULL, contains words separated by
 * commas:
 *   dense, packed   order of activations; by default the precision determines it
 *   own             use neither cuDNN nor cuBLASLt
 *   eager           launch steps one by one, without graphs
 *   fed             feed data from the host even if it would fit on the device
 *   apart           do not fuse ops
 *   tf32            round products of float32 to TF32 */
#ifndef GP_CUDA_BACKEND_H
#define GP_CUDA_BACKEND_H

#include "worker/backend/cuda/plan/plan.h"

extern const gp_backend_ops gp_backend_cuda;

#endif
