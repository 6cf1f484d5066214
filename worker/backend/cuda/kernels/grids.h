/* Kernels that are more than a loop over work items: a thread processes a column of an image, and
 * the threads of a block may exchange values. Included by kernels.cu only.
 *
 * GP_GRID(name) of kernels.def is a function grid_<name>() here. Its launch has the number of
 * threads given to gp_kernel_launch(), rounded up to blocks.
 *
 * These kernels run at the speed of the memory, so their main loops have a bound on instructions
 * (tests/gpu/sass.py). Values that depend only on the channel are loaded before the loop. Images
 * have a 2-byte type in packed order, and a number of channels that is a multiple of 8. A thread
 * reads and writes eight channels of a pixel, 16 bytes, at once. */
#ifndef GP_CUDA_GRIDS_H
#define GP_CUDA_GRIDS_H

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "worker/backend/cuda/kernels/kernel_args.h"

#define GRID      static __global__ void __launch_bounds__(THREADS)
#define GRID_ARGS const __grid_constant__ gp_kernel_args args, uint32_t
#define PART      static __device__ __forceinline__

namespace
{

enum { THREADS = GP_KERNEL_THREADS, WARP = 32, WARPS = THREADS / WARP };

/* ---- two numbers in a word ---- */

template <class T> PART uint32_t word_of(T two)
{
    uint32_t word;

    memcpy(&word, &two, sizeof(word));
    return word;
}

template <class T> PART T two_of(uint32_t word)
{
    T two;

    memcpy(&two, &word, sizeof(two));
    return two;
}

/* Comparisons of two numbers of type PAIR in a word. */
template <class PAIR> struct two_numbers {
    /* Return the larger numbers; NaN if one is NaN. */
    PART uint32_t larger(uint32_t x, uint32_t y)
    {
        return word_of(__hmax2_nan(two_of<PAIR>(x), two_of<PAIR>(y)));
    }
    /* Return 0xffff for each number of x above that of y. */
    PART uint32_t above(uint32_t x, uint32_t y)
    {
        return __hgt2_mask(two_of<PAIR>(x), two_of<PAIR>(y));
    }
    PART uint32_t above_0(uint32_t word)
    {
        return above(word, 0);
    }
};

struct two_bf16 : two_numbers<__nv_bfloat162> {
    enum : uint32_t { LEAST = 0xff80ff80u }; /* minus infinity, twice */

    PART float low(uint32_t word)
    {
        return __uint_as_float(word << 16);
    }
    PART float high(uint32_t word)
    {
        return __uint_as_float(word & 0xffff0000u);
    }
    PART uint32_t narrow(float low, float high)
    {
        return word_of(__floats2bfloat162_rn(low, high));
    }
};

struct two_f16 : two_numbers<__half2> {
    enum : uint32_t { LEAST = 0xfc00fc00u };

    PART float low(uint32_t word)
    {
        return __low2float(two_of<__half2>(word));
    }
    PART float high(uint32_t word)
    {
        return __high2float(two_of<__half2>(word));
    }
    PART uint32_t narrow(float low, float high)
    {
        return word_of(__floats2half2_rn(low, high));
    }
};

/* Eight numbers. */
struct words {
    uint32_t of[4];
};

PART words words_get(const void *image, uint32_t eight)
{
    const uint4 value = __ldg((const uint4 *)image + eight);

    return { { value.x, value.y, value.z, value.w } };
}

PART void words_put(void *image, uint32_t eight, const words &w)
{
    ((uint4 *)image)[eight] = { w.of[0], w.of[1], w.of[2], w.of[3] };
}

/* Return the mask byte of eight numbers: a bit for each number above 0. */
template <class T> PART uint32_t mask_of(const words &w)
{
    uint32_t bits = 0;

#pragma unroll
    for (int h = 0; h < 4; h++)
        bits |= T::above_0(w.of[h]) & (1u << 2 * h | 1u << (17 + 2 * h));
    return (bits | bits >> 16) & 255;
}

/* ---- masks of a gradient ---- */

/* How the kernel knows which elements of a gradient a relu lets pass: all, a bit for each element,
 * the relu's output, or the output of the batch norm before the relu, which is computed again. */
enum { MASK_NONE, MASK_BITS, MASK_OUTPUT, MASK_NORM };

PART int mask_source(const gp_kernel_args &a)
{
    return a.relu ? MASK_NORM : a.bytes != NULL ? MASK_BITS : a.x[7].data != NULL ? MASK_OUTPUT : MASK_NONE;
}

/* Load the mask of eight elements; MASK_BITS: into the first word. */
template <int MASK> PART words mask_get(const gp_kernel_args &a, uint32_t eight)
{
    if (MASK == MASK_BITS)
        return { { __ldg((const uint8_t *)a.bytes + eight) } };
    return MASK == MASK_OUTPUT ? words_get(a.x[7].data, eight) : words{};
}

/* Return a word of four bytes 0 or 255: the highest bits of four bytes of `word`. Each hexadecimal
 * digit of `selector` is the number of a byte, plus 8. */
PART uint32_t signs_of(uint32_t word, uint32_t selector)
{
    uint32_t signs = 0;

#ifdef __NVCC__
    asm("prmt.b32 %0, %1, 0, %2;" : "=r"(signs) : "r"(word), "r"(selector));
#else
    for (int k = 0; k < 4; k++)
        signs |= (word >> (8 * (selector >> 4 * k & 7)) & 128) != 0 ? 255u << 8 * k : 0;
#endif
    return signs;
}

/* Return 0xffff for each of the elements 2 h and 2 h + 1 that passes. h is a constant. */
template <class T, int MASK> PART uint32_t mask_word(const words &mask, int h)
{
    if (MASK == MASK_BITS) {
        /* Bit k of the lower or upper four bits becomes the highest bit of byte k, which fills two
         * bytes of the result. */
        const uint32_t bits = (h < 2 ? mask.of[0] & 15 : mask.of[0] >> 4) * 0x10204080u;

        return signs_of(bits, h % 2 == 0 ? 0x9988 : 0xbbaa);
    }
    return MASK == MASK_OUTPUT ? T::above_0(mask.of[h]) : UINT32_MAX;
}

/* A type that stands for a number, as an argument of a generic function. */
template <int N> struct number {
    enum { value = N };
};

/* Call f(type, mask) with the type of the image and the source of the mask. */
template <class F> PART void with_type_and_mask(const gp_kernel_args &a, F f)
{
    const bool f16 = a.x[0].narrow == GP_NARROW_F16;

    switch (mask_source(a)) {
    case MASK_NONE:
        return f16 ? f(two_f16(), number<MASK_NONE>()) : f(two_bf16(), number<MASK_NONE>());
    case MASK_BITS:
        return f16 ? f(two_f16(), number<MASK_BITS>()) : f(two_bf16(), number<MASK_BITS>());
    case MASK_OUTPUT:
        return f16 ? f(two_f16(), number<MASK_OUTPUT>()) : f(two_bf16(), number<MASK_OUTPUT>());
    case MASK_NORM:
        return f16 ? f(two_f16(), number<MASK_NORM>()) : f(two_bf16(), number<MASK_NORM>());
    }
}

/* ---- division ---- */

/* Return value / divisor, for a value below 2^31 and gp_kernel_divisor(divisor). */
PART uint32_t quotient(uint32_t value, const uint32_t divisor[2])
{
    return __umulhi(2 * value, divisor[0]) >> divisor[1];
}

/* ---- columns ---- */

/* The rows of an image, which are pixels, that a thread processes: row, row + step, ..., and the
 * eight channels that it processes in each. */
struct column {
    uint32_t eight, row, step;
};

/* Divide an image of `eights` * 8 channels among the threads of the grid, which has at least
 * (eights + THREADS - 1) / THREADS blocks. row is UINT32_MAX in threads without work. */
PART column column_of(uint32_t eights)
{
    const uint32_t segments = (eights + THREADS - 1) / THREADS, each = segments == 1 ? THREADS / eights : 1,
                   block = blockIdx.x / segments, blocks = gridDim.x / segments,
                   lane = segments == 1 ? threadIdx.x / eights : 0;
    column c;

    c.eight = segments == 1 ? threadIdx.x % eights : blockIdx.x % segments * THREADS + threadIdx.x;
    c.row = lane < each && block < blocks && c.eight < eights ? block * each + lane : UINT32_MAX;
    c.step = blocks * each;
    return c;
}

PART void floats_get(float values[8], const float *from)
{
#pragma unroll
    for (int k = 0; k < 8; k++)
        values[k] = __ldg(from + k);
}

} // namespace

#include "worker/backend/cuda/kernels/grids_input.h"
#include "worker/backend/cuda/kernels/grids_norm.h"
#include "worker/backend/cuda/kernels/grids_pool.h"
#include "worker/backend/cuda/kernels/grids_bias.h"
#include "worker/backend/cuda/kernels/grids_weights.h"
#include "worker/backend/cuda/kernels/grids_dense.h"
#include "worker/backend/cuda/kernels/grids_conv.h"

#endif
