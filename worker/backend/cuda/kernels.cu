#include "worker/backend/cuda/kernels.h"

namespace
{

/* Memory-bound: 12 bytes read and 8 written an element; a grid-stride loop keeps the grid small. */
__global__ void sgdm_kernel(float *__restrict__ w, float *__restrict__ v, const float *__restrict__ g,
                            size_t count, const float *__restrict__ hyper)
{
    const float rate = hyper[0], momentum = hyper[1], l2 = hyper[2], scale = hyper[3];
    const size_t stride = (size_t)gridDim.x * blockDim.x;

    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += stride) {
        const float step = momentum * v[i] - rate * (g[i] * scale + l2 * w[i]);

        v[i] = step;
        w[i] += step;
    }
}

} // namespace

cudaError_t gp_cuda_sgdm(float *w, float *v, const float *g, size_t count, const float *hyper,
                         cudaStream_t stream)
{
    const unsigned threads = 256;
    size_t blocks = (count + threads - 1) / threads;

    if (count == 0)
        return cudaSuccess;
    if (blocks > 2048)
        blocks = 2048;
    sgdm_kernel<<<(unsigned)blocks, threads, 0, stream>>>(w, v, g, count, hyper);
    return cudaGetLastError();
}
