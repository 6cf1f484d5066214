#include "worker/backend/cpu/onednn/onednn_wide.h"

#if defined(__AVX512F__)

#include <immintrin.h>

#define INLINE static inline __attribute__((always_inline))

/* 16 floats at any address. */
typedef float wide __attribute__((vector_size(64), aligned(4), may_alias));

enum { WIDE = 16, ROWS = 4, COLUMNS = 6, PANEL_NUMBERS = 131072, DEPTH_MIN = 256, DEPTH_MAX = 4096 };

bool gp_wide_usable(void)
{
    return __builtin_cpu_supports("avx512f");
}

INLINE float wide_sum(wide v)
{
    float sum = 0.0f;

    for (int half = WIDE / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++)
            v[i] += v[i + half];
    sum = v[0];
    return sum;
}

/* Compute a tile of y: rows x columns dot products over [0, depth), added to y. */
INLINE void product_tile(const float *x, const float *w, size_t k, size_t depth, float *y, size_t stride,
                         const int rows, const int columns)
{
    wide acc[ROWS][COLUMNS] = { 0 };
    size_t i = 0;

    for (; i + WIDE <= depth; i += WIDE) {
        wide b[COLUMNS];

#pragma GCC unroll 6
        for (int n = 0; n < columns; n++)
            b[n] = *(const wide *)(w + (size_t)n * k + i);
#pragma GCC unroll 4
        for (int m = 0; m < rows; m++) {
            wide a = *(const wide *)(x + (size_t)m * k + i);

#pragma GCC unroll 6
            for (int n = 0; n < columns; n++)
                acc[m][n] += a * b[n];
        }
    }
#pragma GCC unroll 4
    for (int m = 0; m < rows; m++)
#pragma GCC unroll 6
        for (int n = 0; n < columns; n++) {
            float sum = wide_sum(acc[m][n]);

            for (size_t rest = i; rest < depth; rest++)
                sum += x[(size_t)m * k + rest] * w[(size_t)n * k + rest];
            y[(size_t)m * stride + (size_t)n] += sum;
        }
}

INLINE void product_columns(const float *x, size_t rows, const float *w, size_t k, size_t depth, float *y,
                            size_t stride, const int columns)
{
    size_t m = 0;

    for (; m + ROWS <= rows; m += ROWS)
        product_tile(x + m * k, w, k, depth, y + m * stride, stride, ROWS, columns);
    for (; m + 2 <= rows; m += 2)
        product_tile(x + m * k, w, k, depth, y + m * stride, stride, 2, columns);
    for (; m < rows; m++)
        product_tile(x + m * k, w, k, depth, y + m * stride, stride, 1, columns);
}

void gp_wide_product(const float *x, size_t rows, size_t k, const float *w, size_t first, size_t end,
                     const float *bias, bool relu, float *y, size_t stride)
{
    size_t panel = PANEL_NUMBERS / rows / WIDE * WIDE; /* x panel that fits into the L2 cache */

    panel = panel < DEPTH_MIN ? DEPTH_MIN : panel > DEPTH_MAX ? DEPTH_MAX : panel;
    for (size_t m = 0; m < rows; m++)
        for (size_t n = first; n < end; n++)
            y[m * stride + n] = bias == NULL ? 0.0f : bias[n];
    for (size_t i = 0; i < k; i += panel) {
        size_t depth = k - i < panel ? k - i : panel, n = first;

        for (; n + COLUMNS <= end; n += COLUMNS)
            product_columns(x + i, rows, w + n * k + i, k, depth, y + n, stride, COLUMNS);
        for (; n < end; n++)
            product_columns(x + i, rows, w + n * k + i, k, depth, y + n, stride, 1);
    }
    for (size_t m = 0; m < rows && relu; m++)
        for (size_t n = first; n < end; n++)
            y[m * stride + n] = y[m * stride + n] <= 0.0f ? 0.0f : y[m * stride + n]; /* keeps NaN */
}

/* Compute the high and low halves of 16 products. */
INLINE void multiply(__m512i x, uint32_t by, __m512i *high, __m512i *low)
{
    const __mmask16 odd = 0xaaaa;
    const __m512i factor = _mm512_set1_epi32((int)by);
    __m512i even = _mm512_mul_epu32(x, factor), others = _mm512_mul_epu32(_mm512_srli_epi64(x, 32), factor);

    *low = _mm512_mask_blend_epi32(odd, even, _mm512_slli_epi64(others, 32));
    *high = _mm512_mask_blend_epi32(odd, _mm512_srli_epi64(even, 32), others);
}

/* Run Philox4x32-10 on 16 counters (Salmon et al., SC 2011). */
void gp_wide_kept(uint8_t kept[GP_WIDE_KEPT], uint64_t seed, uint32_t stream, uint32_t when,
                  uint32_t position, uint32_t first, uint32_t least)
{
    const __m512i lanes = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    __m512i c[4] = { _mm512_set1_epi32((int)stream), _mm512_set1_epi32((int)when),
                     _mm512_set1_epi32((int)position),
                     _mm512_add_epi32(_mm512_set1_epi32((int)(first / 4)), lanes) };
    __m512i bytes = _mm512_setzero_si512();
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);

    for (int round = 0; round < 10; round++) {
        __m512i high0, low0, high1, low1;

        multiply(c[0], 0xD2511F53u, &high0, &low0);
        multiply(c[2], 0xCD9E8D57u, &high1, &low1);
        c[0] = _mm512_xor_si512(_mm512_xor_si512(high1, c[1]), _mm512_set1_epi32((int)k0));
        c[1] = low1;
        c[2] = _mm512_xor_si512(_mm512_xor_si512(high0, c[3]), _mm512_set1_epi32((int)k1));
        c[3] = low0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    for (int i = 0; i < 4; i++) {
        __mmask16 stays = _mm512_cmpge_epu32_mask(_mm512_srli_epi32(c[i], 8), _mm512_set1_epi32((int)least));

        bytes = _mm512_or_si512(bytes, _mm512_maskz_set1_epi32(stays, 1 << 8 * i));
    }
    _mm512_storeu_si512(kept, bytes);
}

#else

bool gp_wide_usable(void)
{
    return false;
}

void gp_wide_product(const float *x, size_t rows, size_t k, const float *w, size_t first, size_t end,
                     const float *bias, bool relu, float *y, size_t stride)
{
    (void)x, (void)rows, (void)k, (void)w, (void)first, (void)end, (void)bias, (void)relu, (void)y,
        (void)stride;
}

void gp_wide_kept(uint8_t kept[GP_WIDE_KEPT], uint64_t seed, uint32_t stream, uint32_t when,
                  uint32_t position, uint32_t first, uint32_t least)
{
    (void)kept, (void)seed, (void)stream, (void)when, (void)position, (void)first, (void)least;
}

#endif
