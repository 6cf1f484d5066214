/* driver.c: a fake libcuda.so.1 that has no device but loads modules. This lets cuDNN finalize
 * plans compiled for given device properties (tests/worker/backend/test_cuda_plans.c).
 *
 * cuDNN 9 requires all these symbols before it compiles, and calls those with more than a one-line
 * body. */
#include <stddef.h>
#include <stdint.h>

#define EXPORT __attribute__((visibility("default")))

enum { SUCCESS = 0, STUB_LIBRARY = 34 }; /* like the stub library of the toolkit, which is empty */

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

/* Return a constant handle: modules have no contents. */
static int handle_give(void **out)
{
    *out = (void *)(uintptr_t)0x1000;
    return SUCCESS;
}

EXPORT int cuLibraryLoadData(void **library);
EXPORT int cuLibraryLoadData(void **library) /* and arguments that are ignored here */
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
