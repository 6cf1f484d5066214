/* check.h -- CUDA's results become ours by an expression: the cause first, as long sentences lose their end. */
#ifndef GP_CUDA_CHECK_H
#define GP_CUDA_CHECK_H

#include <cuda_runtime_api.h>

#include "common/base/error.h"

/* what: the call; an error of work that was queued may be older than it. */
static inline gp_status gp_cuda_check(cudaError_t code, const char *what, gp_error *err)
{
    if (code == cudaSuccess)
        return GP_OK;
    return gp_fail(err,
                   code == cudaErrorNoDevice || code == cudaErrorInsufficientDriver ||
                           code == cudaErrorStubLibrary
                       ? GP_ENODEV
                       : GP_EIO,
                   "%s (CUDA error %d), found by %s", cudaGetErrorString(code), (int)code, what);
}
#define GP_CUDA(call, err) gp_cuda_check(call, #call, err)

#endif
