/* check.h -- CUDA's results become ours by an expression. */
#ifndef GP_CUDA_CHECK_H
#define GP_CUDA_CHECK_H

#include <cuda_runtime_api.h>

#include "common/base/error.h"

static inline gp_status gp_cuda_check(cudaError_t code, const char *what, gp_error *err)
{
    if (code == cudaSuccess)
        return GP_OK;
    return gp_fail(err,
                   code == cudaErrorNoDevice || code == cudaErrorInsufficientDriver ||
                           code == cudaErrorStubLibrary
                       ? GP_ENODEV
                       : GP_EIO,
                   "%s: %s (CUDA error %d)", what, cudaGetErrorString(code), (int)code);
}
#define GP_CUDA(call, err) gp_cuda_check(call, #call, err)

#endif
