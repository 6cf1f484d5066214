/* simt_kernels.cu: kernels with and without faults, compiled by the host only. */
#include "tests/worker/backend/simt_kernels.h"

#include <cuda_bf16.h>
#include <math.h>

#include "worker/backend/cuda/kernels/bodies.h"

enum { BLOCK = 256 };

static __device__ float warp_sum(float value)
{
    for (int lanes = 16; lanes > 0; lanes /= 2)
        value += __shfl_xor_sync(0xffffffffu, value, lanes);
    return value;
}

__global__ void block_sums(const __grid_constant__ gp_kernel_args args, uint32_t count)
{
    __shared__ float sums[BLOCK / 32];
    const uint32_t i = blockIdx.x * BLOCK + threadIdx.x;
    float sum = warp_sum(i < count ? args.f[0][i] : 0.0f);

    if (threadIdx.x % 32 == 0)
        sums[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x < 32) {
        sum = warp_sum(threadIdx.x < BLOCK / 32 ? sums[threadIdx.x] : 0.0f);
        if (threadIdx.x == 0)
            args.f[1][blockIdx.x] = sum;
    }
}

__global__ void block_sums_without_barrier(const __grid_constant__ gp_kernel_args args, uint32_t count)
{
    __shared__ float sums[BLOCK / 32];
    const uint32_t i = blockIdx.x * BLOCK + threadIdx.x;
    float sum = warp_sum(i < count ? args.f[0][i] : 0.0f);

    if (threadIdx.x % 32 == 0)
        sums[threadIdx.x / 32] = sum;
    if (threadIdx.x < 32) {
        sum = warp_sum(threadIdx.x < BLOCK / 32 ? sums[threadIdx.x] : 0.0f);
        if (threadIdx.x == 0)
            args.f[1][blockIdx.x] = sum;
    }
}

__global__ void block_reversed_twice(const __grid_constant__ gp_kernel_args args, uint32_t count)
{
    __shared__ float values[BLOCK];
    const uint32_t i = blockIdx.x * BLOCK + threadIdx.x;
    float value = args.f[0][i];

    (void)count;
    for (int turn = 0; turn < 2; turn++) {
        values[threadIdx.x] = value;
        __syncthreads();
        value = values[BLOCK - 1 - threadIdx.x];
        __syncthreads();
    }
    args.f[1][i] = value;
}

__global__ void block_reversed_twice_without_barrier(const __grid_constant__ gp_kernel_args args,
                                                     uint32_t count)
{
    __shared__ float values[BLOCK];
    const uint32_t i = blockIdx.x * BLOCK + threadIdx.x;
    float value = args.f[0][i];

    (void)count;
    for (int turn = 0; turn < 2; turn++) {
        values[threadIdx.x] = value;
        __syncthreads();
        value = values[BLOCK - 1 - threadIdx.x];
    }
    args.f[1][i] = value;
}

__global__ void neighbour_output(const __grid_constant__ gp_kernel_args args, uint32_t count)
{
    const uint32_t i = blockIdx.x * BLOCK + threadIdx.x;

    if (i < count)
        args.f[1][i] = args.f[0][i] + args.f[1][(i + 1) % count];
}

__global__ void divergent_barrier(const __grid_constant__ gp_kernel_args args, uint32_t count)
{
    (void)args;
    (void)count;
    if (threadIdx.x < BLOCK / 2)
        __syncthreads();
    else
        __syncthreads();
}

__global__ void exit_before_barrier(const __grid_constant__ gp_kernel_args args, uint32_t count)
{
    (void)args;
    (void)count;
    if (threadIdx.x >= BLOCK / 2)
        return;
    __syncthreads();
}

__global__ void divergent_shuffle(const __grid_constant__ gp_kernel_args args, uint32_t count)
{
    (void)count;
    if (threadIdx.x % 32 < 16)
        args.f[1][threadIdx.x] = warp_sum(1.0f);
    __syncthreads();
}

__global__ void shuffle_from_excluded_lane(const __grid_constant__ gp_kernel_args args, uint32_t count)
{
    (void)count;
    if (threadIdx.x < 16)
        args.f[1][threadIdx.x] = __shfl_xor_sync(0x0000ffffu, 1.0f, 16);
}

__global__ void copy_of_16_bytes(const __grid_constant__ gp_kernel_args args, uint32_t count)
{
    const uint32_t i = blockIdx.x * BLOCK + threadIdx.x;

    if (i < count)
        ((float4 *)args.f[1])[i] = __ldg((const float4 *)(args.f[0] + args.n[0]) + i);
}

__global__ void shared_overflow(const __grid_constant__ gp_kernel_args args, uint32_t count)
{
    __shared__ float values[BLOCK];
    float *volatile behind = values + count; /* hides the size of the array from UBSan */

    behind[threadIdx.x] = 1.0f;
    __syncthreads();
    args.f[1][threadIdx.x] = values[threadIdx.x];
}

__global__ void atomic_counts(const __grid_constant__ gp_kernel_args args, uint32_t count)
{
    const uint32_t i = blockIdx.x * BLOCK + threadIdx.x;
    const unsigned odd = __ballot_sync(0xffffffffu, threadIdx.x % 2);

    if (i >= count)
        return;
    atomicAdd(&args.f[1][0], 1.0f);
    atomicMax(&args.f[1][1], (float)i);
    if (threadIdx.x == 0)
        memcpy(&args.f[1][2], &odd, sizeof(odd));
}

__global__ void shuffles(const __grid_constant__ gp_kernel_args args, uint32_t count)
{
    const float own = (float)threadIdx.x;
    float *out = args.f[1] + 4 * threadIdx.x;

    (void)count;
    out[0] = __shfl_sync(0xffffffffu, own, 5);
    out[1] = __shfl_xor_sync(0xffffffffu, own, 1);
    out[2] = (float)__shfl_down_sync(0xffffffffu, (double)own, 3);
    out[3] = (float)__shfl_up_sync(0xffffffffu, (double)own, 3);
}

__global__ void conversions(const __grid_constant__ gp_kernel_args args, uint32_t count)
{
    const uint32_t i = blockIdx.x * BLOCK + threadIdx.x;

    if (i >= count)
        return;
    args.f[1][i] = f16_wide((uint16_t)i);
    ((uint16_t *)args.x[0].data)[i] = f16_narrow(args.f[0][i]);
    ((__nv_bfloat162 *)args.y[0].data)[i] = __floats2bfloat162_rn(args.f[0][i], -args.f[0][i]);
}
