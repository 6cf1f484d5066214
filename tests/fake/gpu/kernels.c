/* kernels.c: kernels.cu on the host. Work items run forwards here and backwards in
 * tests/fake/device.c, because a device guarantees no order: a kernel that reads the output of
 * another work item gives a different result in one of the two. */
#include "worker/backend/cuda/kernels/kernels.h"

#include <stdlib.h>

#include "tests/fake/gpu/parts.h"
#include "worker/backend/cuda/kernels/bodies.h"

typedef struct launch {
    gp_kernel kernel;
    gp_kernel_args args;
    uint32_t count;
} launch;

static void run_kernel(void *at)
{
    const launch *l = at;

    switch (l->kernel) {
#define GP_KERNEL(name)                                                                                      \
    case GP_KERNEL_##name:                                                                                   \
        for (uint32_t i = 0; i < l->count; i++)                                                              \
            body_##name(&l->args, i);                                                                        \
        break;
#include "worker/backend/cuda/kernels/kernels.def"
#undef GP_KERNEL
    case GP_KERNEL_COUNT:
        abort();
    }
}

cudaError_t gp_kernel_launch(gp_kernel kernel, const gp_kernel_args *args, uint32_t count,
                             cudaStream_t stream)
{
    launch l = { kernel, *args, count };

    if (count == 0)
        return cudaSuccess;
    return fake_push(stream, FAKE_REACHED(gp_kernel_launch), run_kernel, NULL, &l, sizeof(l));
}
