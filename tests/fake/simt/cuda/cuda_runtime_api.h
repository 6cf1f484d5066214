/* cuda_runtime_api.h: the part of NVIDIA's header that kernels.h and kernels.cu use. The sizes and
 * the passing of arguments are the same, so that an object file can be linked with
 * tests/fake/gpu. */
#ifndef SIMT_CUDA_RUNTIME_API_H
#define SIMT_CUDA_RUNTIME_API_H

#include <stddef.h>

typedef enum cudaError { cudaSuccess = 0 } cudaError_t;
typedef struct CUstream_st *cudaStream_t;

typedef struct dim3 {
    unsigned x, y, z;
#ifdef __cplusplus
    explicit dim3(unsigned x_, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_)
    {
    }
#endif
} dim3;

#ifdef __cplusplus
extern "C"
#endif
    cudaError_t
    cudaLaunchKernel(const void *kernel, dim3 grid, dim3 block, void **args, size_t shared,
                     cudaStream_t stream);

#endif
