/* Vector type and operations for one instruction set; only for lanes_kernels.c.
 *
 * Most operations use GCC vector extensions. Intrinsics convert between comparison results and
 * bits. */
#ifndef GP_LANES_VECTOR_H
#define GP_LANES_VECTOR_H

#include <assert.h>
#include <stdint.h>
#include <string.h>
#if defined(__SSE2__)
#include <immintrin.h>
#endif

#if defined(__AVX512F__)
#define LANES 16
#elif defined(__AVX2__)
#define LANES 8
#else
#define LANES 4
#endif

#define INLINE static inline __attribute__((always_inline))
#if defined(GP_LANES_ROLLED) /* sanitizer builds, for fast compilation */
#define UNROLL
#elif defined(__clang__)
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 64")
#endif

typedef float V __attribute__((vector_size(4 * LANES), may_alias));
typedef float V_unaligned __attribute__((vector_size(4 * LANES), may_alias, aligned(4)));
typedef int32_t I __attribute__((vector_size(4 * LANES), may_alias));
typedef uint32_t U __attribute__((vector_size(4 * LANES), may_alias));
typedef float V4 __attribute__((vector_size(16), may_alias));
typedef float V4_unaligned __attribute__((vector_size(16), may_alias, aligned(4)));

#if LANES == 16
typedef uint16_t mask_bits;
#define LANE_SEQUENCE                                                                                        \
    {                                                                                                        \
        0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15                                                 \
    }
#define LANE_BITS                                                                                            \
    {                                                                                                        \
        1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768                          \
    }
#elif LANES == 8
typedef uint8_t mask_bits;
#define LANE_SEQUENCE                                                                                        \
    {                                                                                                        \
        0, 1, 2, 3, 4, 5, 6, 7                                                                               \
    }
#define LANE_BITS                                                                                            \
    {                                                                                                        \
        1, 2, 4, 8, 16, 32, 64, 128                                                                          \
    }
#else
typedef uint8_t mask_bits;
#define LANE_SEQUENCE                                                                                        \
    {                                                                                                        \
        0, 1, 2, 3                                                                                           \
    }
#define LANE_BITS                                                                                            \
    {                                                                                                        \
        1, 2, 4, 8                                                                                           \
    }
#endif

/* Compute acc + a * b in the innermost tiles, in exactly this order. Tiles use all registers;
 * otherwise the compiler would move loads up and spill accumulators, at half the speed
 * (measured). */
#if defined(__AVX512F__) || defined(__FMA__)
#define MULTIPLY_ADD(acc, a, b) __asm__ volatile("vfmadd231ps %2, %1, %0" : "+v"(acc) : "v"(a), "v"(b))
/* prevents the compiler from keeping loaded values for the next taps */
#define FORGET_LOADS() __asm__ volatile("" ::: "memory")
#else
#define MULTIPLY_ADD(acc, a, b) ((acc) += (a) * (b))
#define FORGET_LOADS()          ((void)0)
#endif

INLINE V load(const float *from)
{
    return *(const V *)from;
}

INLINE void store(float *to, V v)
{
    *(V *)to = v;
}

INLINE V splat(float f)
{
    return f - (V){ 0 };
}

INLINE I splat_int(int32_t i)
{
    return i - (I){ 0 };
}

INLINE V zero(void)
{
    return (V){ 0 };
}

/* Return v where the comparison m holds, otherwise 0. */
INLINE V keep(I m, V v)
{
    return (V)((I)v & m);
}

INLINE V choose(I m, V yes, V no)
{
    return (V)(((I)yes & m) | ((I)no & ~m));
}

/* Written as !(v <= 0), so that NaN counts as positive. Otherwise the NaN from a diverged training
 * would vanish. */
INLINE I positive(V v)
{
    return ~(v <= zero());
}

/* Return the maximum, or b if either value is NaN. */
INLINE V maximum(V a, V b)
{
#if defined(__AVX512F__)
    return (V)_mm512_max_ps((__m512)a, (__m512)b);
#elif defined(__AVX2__)
    return (V)_mm256_max_ps((__m256)a, (__m256)b);
#elif defined(__SSE2__)
    return (V)_mm_max_ps((__m128)a, (__m128)b);
#else
    return choose(a > b, a, b);
#endif
}

/* Compare: true where a or b is NaN. */
INLINE I unordered(V a, V b)
{
#if defined(__AVX512F__)
    return (I)_mm512_movm_epi32(_mm512_cmp_ps_mask((__m512)a, (__m512)b, _CMP_UNORD_Q));
#elif defined(__AVX2__)
    return (I)_mm256_cmp_ps((__m256)a, (__m256)b, _CMP_UNORD_Q);
#elif defined(__SSE2__)
    return (I)_mm_cmpunord_ps((__m128)a, (__m128)b);
#else
    return (a != a) | (b != b);
#endif
}

/* Convert a comparison to one bit per lane. */
INLINE uint32_t bits_of(I m)
{
#if defined(__AVX512F__)
    return _mm512_test_epi32_mask((__m512i)m, (__m512i)m);
#elif defined(__AVX2__)
    return (uint32_t)_mm256_movemask_ps((__m256)m);
#elif defined(__SSE2__)
    return (uint32_t)_mm_movemask_ps((__m128)m);
#else
    uint32_t bits = 0;
    for (int i = 0; i < LANES; i++)
        bits |= (uint32_t)(m[i] & 1) << i;
    return bits;
#endif
}

INLINE V keep_bits(uint32_t bits, V v)
{
#if defined(__AVX512F__)
    return (V)_mm512_maskz_mov_ps((__mmask16)bits, (__m512)v);
#else
    const I lane_bits = LANE_BITS;

    return keep((splat_int((int32_t)bits) & lane_bits) == lane_bits, v);
#endif
}

#if LANES == 16
#define INTERLEAVE_LOW(a, b)                                                                                 \
    __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23)
#define INTERLEAVE_HIGH(a, b)                                                                                \
    __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31)
#define UNPACK_LOW(a, b)                                                                                     \
    __builtin_shufflevector(a, b, 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29)
#define UNPACK_HIGH(a, b)                                                                                    \
    __builtin_shufflevector(a, b, 2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30, 15, 31)
#define PAIRS_LOW(a, b)                                                                                      \
    __builtin_shufflevector(a, b, 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29)
#define PAIRS_HIGH(a, b)                                                                                     \
    __builtin_shufflevector(a, b, 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31)
#elif LANES == 8
#define INTERLEAVE_LOW(a, b)  __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11)
#define INTERLEAVE_HIGH(a, b) __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15)
#define UNPACK_LOW(a, b)      __builtin_shufflevector(a, b, 0, 8, 1, 9, 4, 12, 5, 13)
#define UNPACK_HIGH(a, b)     __builtin_shufflevector(a, b, 2, 10, 3, 11, 6, 14, 7, 15)
#define PAIRS_LOW(a, b)       __builtin_shufflevector(a, b, 0, 1, 8, 9, 4, 5, 12, 13)
#define PAIRS_HIGH(a, b)      __builtin_shufflevector(a, b, 2, 3, 10, 11, 6, 7, 14, 15)
#else
#define INTERLEAVE_LOW(a, b)  __builtin_shufflevector(a, b, 0, 4, 1, 5)
#define INTERLEAVE_HIGH(a, b) __builtin_shufflevector(a, b, 2, 6, 3, 7)
#define UNPACK_LOW(a, b)      INTERLEAVE_LOW(a, b)
#define UNPACK_HIGH(a, b)     INTERLEAVE_HIGH(a, b)
#define PAIRS_LOW(a, b)       __builtin_shufflevector(a, b, 0, 1, 4, 5)
#define PAIRS_HIGH(a, b)      __builtin_shufflevector(a, b, 2, 3, 6, 7)
#endif

/* Return the lane sums for four vectors. */
INLINE V4 sum_lanes4(V a, V b, V c, V d)
{
    V ab = UNPACK_LOW(a, b) + UNPACK_HIGH(a, b);
    V cd = UNPACK_LOW(c, d) + UNPACK_HIGH(c, d);
    V s = PAIRS_LOW(ab, cd) + PAIRS_HIGH(ab, cd);

#if LANES == 16
    V4 s0 = __builtin_shufflevector(s, s, 0, 1, 2, 3), s1 = __builtin_shufflevector(s, s, 4, 5, 6, 7);
    V4 s2 = __builtin_shufflevector(s, s, 8, 9, 10, 11), s3 = __builtin_shufflevector(s, s, 12, 13, 14, 15);
    return (s0 + s1) + (s2 + s3);
#elif LANES == 8
    return __builtin_shufflevector(s, s, 0, 1, 2, 3) + __builtin_shufflevector(s, s, 4, 5, 6, 7);
#else
    return s;
#endif
}

INLINE float sum_lanes(V v)
{
    return sum_lanes4(v, zero(), zero(), zero())[0];
}

/* Transpose a square of vectors with log2(LANES) shuffles. */
INLINE void transpose(V r[LANES])
{
    UNROLL
    for (int stage = 1; stage < LANES; stage *= 2) {
        V t[LANES];

        UNROLL
        for (int i = 0; i < LANES / 2; i++) {
            t[2 * i] = INTERLEAVE_LOW(r[i], r[i + LANES / 2]);
            t[2 * i + 1] = INTERLEAVE_HIGH(r[i], r[i + LANES / 2]);
        }
        UNROLL
        for (int i = 0; i < LANES; i++)
            r[i] = t[i];
    }
}

/* Compute exp(x) for x <= 0 with an error of about 1 ulp: x = n ln 2 + r, a polynomial in r, and n
 * as exponent. Results below 2^-126 become approximately 2^-126. */
INLINE V exp_negative(V x)
{
    /* 1.5 * 2^23: adding it rounds to an integer in the low bits */
    const float round = 12582912.0f;
    V n, r, p;
    I exponent;

    x = choose(x < splat(-87.0f), splat(-87.0f), x);
    n = x * splat(1.44269504088896341f) + splat(round);
    exponent = (I)n << 23;
    n = n - splat(round);
    r = x - n * splat(0.693359375f);
    r = r - n * splat(-2.12194440e-4f);
    p = splat(1.9875691500e-4f);
    p = p * r + splat(1.3981999507e-3f);
    p = p * r + splat(8.3334519073e-3f);
    p = p * r + splat(4.1665795894e-2f);
    p = p * r + splat(1.6666665459e-1f);
    p = p * r + splat(5.0000001201e-1f);
    p = p * (r * r) + r + splat(1.0f);
    return (V)((I)p + exponent); /* the sum's low bits are n in two's complement */
}

/* Return a view's address in this thread's scratch memory. */
INLINE float *at(const lanes_view *view, const lanes_block *block)
{
    return block->scratch + view->offset;
}

#endif
