/* kernels.h -- what the host side of the plugin calls of the device side. */
#ifndef GP_CUDA_KERNELS_H
#define GP_CUDA_KERNELS_H

#include <cuda_runtime_api.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* gp_cuda_sgdm -- one step of SGD with momentum on device memory, the rule of worker/optim/sgdm.c:
 *   v <- momentum * v - rate * (g * scale + l2 * w),  w <- w + v
 *   w, v  float32 [count]  read and written      g  float32 [count]  read
 * hyper: float32 [4] in device memory: rate, momentum, l2, scale; read by the kernel, so that a captured graph
 * need not change when the learning rate does.  Asynchronous on the stream. */
cudaError_t gp_cuda_sgdm(float *w, float *v, const float *g, size_t count, const float *hyper,
                         cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
