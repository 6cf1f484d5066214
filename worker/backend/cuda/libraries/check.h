/* Converts CUDA results to errors. The cause comes first, because long messages are truncated. */
#ifndef GP_CUDA_CHECK_H
#define GP_CUDA_CHECK_H

#include <cuda_runtime_api.h>

#include "common/base/error.h"

/* Convert a result. `what`: call name. The error may come from earlier asynchronous work. */
static inline gp_status gp_cuda_check(cudaError_t code, const char *what, gp_error *err)
{
    if (code == cudaSuccess)
        return GP_OK;
    return gp_fail(err,
                   code == cudaErrorNoDevice || code == cudaErrorInsufficientDriver ||
                           code == cudaErrorStubLibrary
                       ? GP_ENODEV
                       : GP_EIO,
                   "%s (CUDA error %d) in %s", cudaGetErrorString(code), (int)code, what);
}
#define GP_CUDA(call, err) gp_cuda_check(call, #call, err)

#endif
