/* driver.c -- a library in the place of libcuda.so.1 that has no device and yet loads modules: so cuDNN finishes a plan that it has
 * compiled for the properties of one, which needs no more of a driver than that (tests/worker/backend/test_cuda_plans.c).
 *
 * cuDNN 9 wants all of these to be there before it compiles, and calls those that are more than a line. */
#include <stddef.h>
#include <stdint.h>

#define EXPORT __attribute__((visibility("default")))

enum { SUCCESS = 0, STUB_LIBRARY = 34 }; /* as the toolkit's own, which is empty */

#define WANTED(name)                                                                                         \
    EXPORT int name(void);                                                                                   \
    EXPORT int name(void)                                                                                    \
    {                                                                                                        \
        return STUB_LIBRARY;                                                                                 \
    }
WANTED(cuInit)
WANTED(cuCtxGetCurrent)
WANTED(cuCtxGetLimit)
WANTED(cuCtxPopCurrent)
WANTED(cuCtxPushCurrent)
WANTED(cuDeviceGet)
WANTED(cuDriverGetVersion)
WANTED(cuGetErrorName)
WANTED(cuGetErrorString)
WANTED(cuKernelGetAttribute)
WANTED(cuKernelSetAttribute)
WANTED(cuLaunchCooperativeKernel)
WANTED(cuLaunchKernel)
WANTED(cuLaunchKernelEx)
WANTED(cuLibraryLoadFromFile)
WANTED(cuLinkAddData)
WANTED(cuLinkComplete)
WANTED(cuLinkCreate)
WANTED(cuLinkDestroy)
WANTED(cuOccupancyMaxPotentialClusterSize)
WANTED(cuStreamGetCtx)

EXPORT int cuDeviceGetCount(int *count);
EXPORT int cuDeviceGetCount(int *count)
{
    *count = 0;
    return SUCCESS;
}

/* A module is a number. */
static int handle_give(void **out)
{
    *out = (void *)(uintptr_t)0x1000;
    return SUCCESS;
}

EXPORT int cuLibraryLoadData(void **library);
EXPORT int cuLibraryLoadData(void **library) /* and what nobody reads */
{
    return handle_give(library);
}

EXPORT int cuLibraryGetKernel(void **kernel);
EXPORT int cuLibraryGetKernel(void **kernel)
{
    return handle_give(kernel);
}

EXPORT int cuLibraryUnload(void);
EXPORT int cuLibraryUnload(void)
{
    return SUCCESS;
}
