/* Launches the kernels of kernels.cu. */
#ifndef GP_CUDA_KERNELS_H
#define GP_CUDA_KERNELS_H

#include <cuda_runtime_api.h>

#include "worker/backend/cuda/kernels/kernel_args.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Run body_<kernel>(args, i) for i in [0, count), or grid_<kernel>(args) with at least `count`
 * threads, asynchronously on the stream. Copies `args`. */
cudaError_t gp_kernel_launch(gp_kernel kernel, const gp_kernel_args *args, uint32_t count,
                             cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
