/* language.h: CUDA's keywords, built-in variables and functions for a C++ compiler of the host.
 * CMake includes it before the first line of each .cu file.
 *
 * __CUDA_ARCH__ is defined, so the code of the device is compiled. Inline PTX does not
 * compile: put it inside #ifdef __NVCC__. A function that is missing here is a compile error. */
#ifndef SIMT_LANGUAGE_H
#define SIMT_LANGUAGE_H

#include <stdint.h>
#include <string.h>

#include "tests/fake/simt/simt.h"

#define __CUDACC__
#define __CUDA_ARCH__ 900

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(bytes) __attribute__((aligned(bytes)))

/* shared_fill() finds the variables by their section. Not in templates: a section cannot hold both
 * kinds of variables. */
#define __shared__ static __attribute__((section("simt_shared"), unused))

/* ---- vectors: a load of 8 or 16 bytes needs that alignment ---- */

struct __align__(8) float2
{
    float x, y;
};
struct __align__(16) float4
{
    float x, y, z, w;
};
struct __align__(16) double2
{
    double x, y;
};
struct __align__(8) uint2
{
    unsigned x, y;
};
struct __align__(16) uint4
{
    unsigned x, y, z, w;
};

struct __align__(16) int4
{
    int x, y, z, w;
};

template <class T> inline T __ldg(const T *at)
{
    return *at;
}

inline float __uint_as_float(unsigned word)
{
    float value;

    memcpy(&value, &word, sizeof(value));
    return value;
}

inline int __clz(unsigned value)
{
    return value == 0 ? 32 : __builtin_clz(value);
}

inline unsigned __umulhi(unsigned x, unsigned y)
{
    return (unsigned)((uint64_t)x * y >> 32);
}

/* An approximation, to 2 units in the last place, on a device. */
inline float __fdividef(float x, float y)
{
    return x / y;
}

inline int min(int x, int y)
{
    return x < y ? x : y;
}

inline int max(int x, int y)
{
    return x > y ? x : y;
}

/* ---- synchronisation ---- */

inline void __syncthreads(uint32_t line = __builtin_LINE())
{
    simt_barrier(line);
}

inline void __syncwarp(uint32_t mask = 0xffffffffu, uint32_t line = __builtin_LINE())
{
    simt_exchange(mask, 0, line);
}

inline void __threadfence()
{
}

inline void __threadfence_system()
{
    __sync_synchronize();
}

/* ---- shuffles and votes of whole warps ---- */

template <class T> inline T simt_shuffle(uint32_t mask, T value, uint32_t lane, uint32_t line)
{
    uint64_t bits = 0;

    static_assert(sizeof(T) <= sizeof(bits), "a shuffle moves at most 8 bytes");
    memcpy(&bits, &value, sizeof(value));
    bits = simt_exchange(mask, bits, line)[lane];
    if ((mask >> lane & 1) == 0)
        simt_fault("line %u: the mask %08x lacks lane %u, which thread %u reads", line, mask, lane,
                   threadIdx.x);
    memcpy(&value, &bits, sizeof(value));
    return value;
}

template <class T> inline T __shfl_sync(uint32_t mask, T value, int lane, uint32_t line = __builtin_LINE())
{
    return simt_shuffle(mask, value, (uint32_t)lane % 32, line);
}

template <class T>
inline T __shfl_xor_sync(uint32_t mask, T value, int lanes, uint32_t line = __builtin_LINE())
{
    return simt_shuffle(mask, value, (threadIdx.x ^ (uint32_t)lanes) % 32, line);
}

/* Beyond the last lane, a thread receives its own value. */
template <class T>
inline T __shfl_down_sync(uint32_t mask, T value, unsigned lanes, uint32_t line = __builtin_LINE())
{
    const uint32_t lane = threadIdx.x % 32;

    return simt_shuffle(mask, value, lane + lanes < 32 ? lane + lanes : lane, line);
}

template <class T>
inline T __shfl_up_sync(uint32_t mask, T value, unsigned lanes, uint32_t line = __builtin_LINE())
{
    const uint32_t lane = threadIdx.x % 32;

    return simt_shuffle(mask, value, lane >= lanes ? lane - lanes : lane, line);
}

inline unsigned __ballot_sync(uint32_t mask, int predicate, uint32_t line = __builtin_LINE())
{
    const uint64_t *lanes = simt_exchange(mask, predicate != 0, line);
    unsigned ballot = 0;

    for (uint32_t lane = 0; lane < 32; lane++)
        ballot |= (mask >> lane & 1) != 0 && lanes[lane] != 0 ? 1u << lane : 0;
    return ballot;
}

/* ---- atomic operations: only one thread runs at a time ---- */

template <class T> inline T atomicAdd(T *at, T value)
{
    const T before = *at;

    *at = before + value;
    return before;
}

template <class T> inline T atomicMax(T *at, T value)
{
    const T before = *at;

    *at = before < value ? value : before;
    return before;
}

template <class T> inline T atomicCAS(T *at, T expected, T value)
{
    const T before = *at;

    if (before == expected)
        *at = value;
    return before;
}

/* ---- arithmetic that the compiler does not fuse: compiled with -ffp-contract=off ---- */

inline float __fmul_rn(float x, float y)
{
    return x * y;
}

inline float __fadd_rn(float x, float y)
{
    return x + y;
}

inline double __dmul_rn(double x, double y)
{
    return x * y;
}

inline double __dadd_rn(double x, double y)
{
    return x + y;
}

#endif
