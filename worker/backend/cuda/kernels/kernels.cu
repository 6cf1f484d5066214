/* Wraps each body of bodies.h in a CUDA kernel, and launches these and the kernels of grids.h. */
#include "worker/backend/cuda/kernels/kernels.h"

#include "worker/backend/cuda/kernels/bodies.h"
#include "worker/backend/cuda/kernels/grids.h"

namespace
{

enum { BLOCKS_MAX = 132 * 32 };

#define GP_KERNEL(name)                                                                                      \
    __global__ void __launch_bounds__(THREADS)                                                               \
        grid_##name(const __grid_constant__ gp_kernel_args args, uint32_t count)                             \
    {                                                                                                        \
        for (uint32_t i = blockIdx.x * THREADS + threadIdx.x; i < count; i += gridDim.x * THREADS)           \
            body_##name(&args, i);                                                                           \
    }
#define GP_GRID(name)
#include "worker/backend/cuda/kernels/kernels.def"
#undef GP_KERNEL

} // namespace

cudaError_t gp_kernel_launch(gp_kernel kernel, const gp_kernel_args *args, uint32_t count,
                             cudaStream_t stream)
{
    static const void *const grids[GP_KERNEL_COUNT] = {
#define GP_KERNEL(name) reinterpret_cast<const void *>(&grid_##name),
#include "worker/backend/cuda/kernels/kernels.def"
#undef GP_KERNEL
    };
    uint32_t blocks = (count + THREADS - 1) / THREADS;
    void *arguments[2] = { const_cast<gp_kernel_args *>(args), &count };

    if (count == 0)
        return cudaSuccess;
    return cudaLaunchKernel(grids[kernel], dim3(blocks < BLOCKS_MAX ? blocks : BLOCKS_MAX), dim3(THREADS),
                            arguments, 0, stream);
}
