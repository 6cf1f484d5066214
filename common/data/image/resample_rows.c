/* Inner loops of the resampler in plain C, AVX2 and AVX-512.
 *
 * In the AVX2 version, the vertical pass processes two rows and 32 values at a time. The horizontal
 * pass processes two output pixels and two input pixels for each. A shuffle turns (r0 g0 b0 r1 g1
 * b1) into (r0 r1 g0 g1 b0 b1), which one pairwise multiply-add reduces to three sums. The AVX-512
 * version doubles these numbers and reads weights that are already replicated (gp_axis.fours). */
#include "common/data/image/resample_rows.h"

#include <string.h>

static void plain_mix(int16_t *mixed, const uint8_t *row, size_t stride, uint32_t rows, const int16_t *weight,
                      size_t count)
{
    for (size_t i = 0; i < count; i++) {
        int32_t sum = 1 << (GP_WEIGHT_BITS - GP_ROW_BITS - 1);

        for (uint32_t k = 0; k < rows; k++)
            sum += row[k * stride + i] * weight[k];
        mixed[i] = (int16_t)(sum >> (GP_WEIGHT_BITS - GP_ROW_BITS));
    }
}

static void narrow_one(const gp_row_out *out, const gp_axis *axis, const int16_t *row, uint32_t x)
{
    const int16_t *weight = axis->weight + (size_t)x * axis->taps, *from = row + (size_t)axis->first[x] * 3;
    int32_t sum[3];

    for (int c = 0; c < 3; c++)
        sum[c] = 1 << (GP_WEIGHT_BITS + GP_ROW_BITS - 1);
    for (uint32_t k = 0; k < axis->used; k++, from += 3)
        for (int c = 0; c < 3; c++)
            sum[c] += from[c] * weight[k];
    for (uint32_t c = 0; c < 3; c++)
        gp_row_put(out, x, c, gp_row_round(sum[c]));
}

static void plain_narrow_rgb(const gp_row_out *out, const gp_axis *axis, const int16_t *row)
{
    for (uint32_t x = 0; x < axis->to; x++)
        narrow_one(out, axis, row, x);
}

const gp_row_ops gp_row_ops_plain = { .mix = plain_mix, .narrow_rgb = plain_narrow_rgb };

#if defined(__x86_64__)
#include <immintrin.h>

#define AVX2 __attribute__((target("avx2")))

/* Multiply 32 values from two rows by the weights (w0, w1) in each 32-bit lane, and add them to
 * four sums. The sums hold values 0-3 and 16-19, 4-7 and 20-23, 8-11 and 24-27, 12-15 and 28-31. */
AVX2 static inline void mix_two(__m256i sum[4], __m256i a, __m256i b, __m256i weights)
{
    const __m256i zero = _mm256_setzero_si256();
    const __m256i low = _mm256_unpacklo_epi8(a, b), high = _mm256_unpackhi_epi8(a, b);

    sum[0] = _mm256_add_epi32(sum[0], _mm256_madd_epi16(_mm256_unpacklo_epi8(low, zero), weights));
    sum[1] = _mm256_add_epi32(sum[1], _mm256_madd_epi16(_mm256_unpackhi_epi8(low, zero), weights));
    sum[2] = _mm256_add_epi32(sum[2], _mm256_madd_epi16(_mm256_unpacklo_epi8(high, zero), weights));
    sum[3] = _mm256_add_epi32(sum[3], _mm256_madd_epi16(_mm256_unpackhi_epi8(high, zero), weights));
}

AVX2 static void mix_32(int16_t *mixed, const uint8_t *row, size_t stride, uint32_t rows,
                        const int16_t *weight)
{
    __m256i sum[4], low, high;

    for (int i = 0; i < 4; i++)
        sum[i] = _mm256_set1_epi32(1 << (GP_WEIGHT_BITS - GP_ROW_BITS - 1));
    for (uint32_t k = 0; k < rows; k += 2, row += 2 * stride) {
        int32_t pair = (int32_t)((uint32_t)(uint16_t)weight[k] | (uint32_t)(uint16_t)weight[k + 1] << 16);
        const __m256i a = _mm256_loadu_si256((const __m256i *)(const void *)row);
        const __m256i b =
            k + 1 < rows ? _mm256_loadu_si256((const __m256i *)(const void *)(row + stride)) : a;

        mix_two(sum, a, b, _mm256_set1_epi32(pair));
    }
    for (int i = 0; i < 4; i++)
        sum[i] = _mm256_srai_epi32(sum[i], GP_WEIGHT_BITS - GP_ROW_BITS);
    low = _mm256_packs_epi32(sum[0], sum[1]);
    high = _mm256_packs_epi32(sum[2], sum[3]);
    _mm256_storeu_si256((__m256i *)(void *)mixed, _mm256_permute2x128_si256(low, high, 0x20));
    _mm256_storeu_si256((__m256i *)(void *)(mixed + 16), _mm256_permute2x128_si256(low, high, 0x31));
}

AVX2 static void avx2_mix(int16_t *mixed, const uint8_t *row, size_t stride, uint32_t rows,
                          const int16_t *weight, size_t count)
{
    size_t i;

    if (count < 32) {
        plain_mix(mixed, row, stride, rows, weight, count);
        return;
    }
    for (i = 0; i + 32 <= count; i += 32)
        mix_32(mixed + i, row + i, stride, rows, weight);
    if (i < count) /* process the last 32 values; some are computed a second time */
        mix_32(mixed + count - 32, row + count - 32, stride, rows, weight);
}

/* Return two output pixels as 32-bit sums, already scaled to bytes: r g b 0 r g b 0. */
AVX2 static inline __m256i two_pixels(const int16_t *row, const gp_axis *axis, uint32_t x)
{
    const __m256i order =
        _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 6, 7, 2, 3, 8, 9, 4, 5, 10, 11, -1, -1, -1, -1));
    const int16_t *a = row + (size_t)axis->first[x] * 3, *b = row + (size_t)axis->first[x + 1] * 3;
    const int16_t *wa = axis->weight + (size_t)x * axis->taps, *wb = wa + axis->taps;
    __m256i sum = _mm256_set1_epi32(1 << (GP_WEIGHT_BITS + GP_ROW_BITS - 1));

    for (uint32_t k = 0; k < axis->used; k += 2, a += 6, b += 6) {
        int32_t pair_a, pair_b;
        __m256i in = _mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)a));

        memcpy(&pair_a, wa + k, sizeof(pair_a));
        memcpy(&pair_b, wb + k, sizeof(pair_b));
        in = _mm256_inserti128_si256(in, _mm_loadu_si128((const __m128i *)(const void *)b), 1);
        sum = _mm256_add_epi32(
            sum, _mm256_madd_epi16(_mm256_shuffle_epi8(in, order),
                                   _mm256_set_m128i(_mm_set1_epi32(pair_b), _mm_set1_epi32(pair_a))));
    }
    return _mm256_srai_epi32(sum, GP_WEIGHT_BITS + GP_ROW_BITS);
}

/* Write four pixels, stored as r g b 0 in 16 bytes, in the output format. */
AVX2 static inline void four_put(const gp_row_out *out, uint32_t x, __m128i pixels)
{
    const __m128i planes =
        _mm_shuffle_epi8(pixels, _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
    const uint32_t values[3] = { (uint32_t)_mm_extract_epi32(planes, 0),
                                 (uint32_t)_mm_extract_epi32(planes, 1),
                                 (uint32_t)_mm_extract_epi32(planes, 2) };

    if (out->floats != NULL) {
        for (size_t c = 0; c < 3; c++) {
            __m128 four = _mm_cvtepi32_ps(_mm_cvtepu8_epi32(_mm_cvtsi32_si128((int)values[c])));

            four = _mm_add_ps(_mm_mul_ps(four, _mm_set1_ps(out->scale[c])), _mm_set1_ps(out->offset[c]));
            _mm_storeu_ps(out->floats + c * out->plane + x, four);
        }
    } else if (out->step == 1) {
        for (size_t c = 0; c < 3; c++)
            memcpy(out->bytes + c * out->plane + x, &values[c], 4);
    } else {
        const __m128i packed =
            _mm_shuffle_epi8(pixels, _mm_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1));
        uint8_t bytes[16];

        _mm_storeu_si128((__m128i *)(void *)bytes, packed);
        memcpy(out->bytes + (size_t)x * 3, bytes, 12);
    }
}

AVX2 static inline void narrow_four(const gp_row_out *out, const gp_axis *axis, const int16_t *row,
                                    uint32_t x)
{
    const __m256i a = two_pixels(row, axis, x), b = two_pixels(row, axis, x + 2);
    const __m128i first = _mm_packs_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
    const __m128i second = _mm_packs_epi32(_mm256_castsi256_si128(b), _mm256_extracti128_si256(b, 1));

    four_put(out, x, _mm_packus_epi16(first, second));
}

AVX2 static void avx2_narrow_rgb(const gp_row_out *out, const gp_axis *axis, const int16_t *row)
{
    uint32_t x;

    if (axis->to < 4) {
        plain_narrow_rgb(out, axis, row);
        return;
    }
    for (x = 0; x + 4 <= axis->to; x += 4)
        narrow_four(out, axis, row, x);
    if (x < axis->to)
        narrow_four(out, axis, row, axis->to - 4);
}

static const gp_row_ops avx2_ops = { .mix = avx2_mix, .narrow_rgb = avx2_narrow_rgb };

#define AVX512 __attribute__((target("avx512f,avx512bw,avx512vl,avx512vnni")))

AVX512 static void mix_64(int16_t *mixed, const uint8_t *row, size_t stride, uint32_t rows,
                          const int16_t *weight)
{
    const __m512i zero = _mm512_setzero_si512();
    __m512i sum[4], low, high;

    for (int i = 0; i < 4; i++)
        sum[i] = _mm512_set1_epi32(1 << (GP_WEIGHT_BITS - GP_ROW_BITS - 1));
    for (uint32_t k = 0; k < rows; k += 2, row += 2 * stride) {
        const __m512i weights = _mm512_set1_epi32(
            (int32_t)((uint32_t)(uint16_t)weight[k] | (uint32_t)(uint16_t)weight[k + 1] << 16));
        const __m512i a = _mm512_loadu_si512(row), b = k + 1 < rows ? _mm512_loadu_si512(row + stride) : a;

        low = _mm512_unpacklo_epi8(a, b);
        high = _mm512_unpackhi_epi8(a, b);
        sum[0] = _mm512_dpwssd_epi32(sum[0], _mm512_unpacklo_epi8(low, zero), weights);
        sum[1] = _mm512_dpwssd_epi32(sum[1], _mm512_unpackhi_epi8(low, zero), weights);
        sum[2] = _mm512_dpwssd_epi32(sum[2], _mm512_unpacklo_epi8(high, zero), weights);
        sum[3] = _mm512_dpwssd_epi32(sum[3], _mm512_unpackhi_epi8(high, zero), weights);
    }
    for (int i = 0; i < 4; i++)
        sum[i] = _mm512_srai_epi32(sum[i], GP_WEIGHT_BITS - GP_ROW_BITS);
    low = _mm512_packs_epi32(sum[0], sum[1]); /* values 0-7, 16-23, 32-39, 48-55 */
    high = _mm512_packs_epi32(sum[2], sum[3]);
    _mm512_storeu_si512(mixed,
                        _mm512_permutex2var_epi64(low, _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11), high));
    _mm512_storeu_si512(mixed + 32,
                        _mm512_permutex2var_epi64(low, _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15), high));
}

AVX512 static void avx512_mix(int16_t *mixed, const uint8_t *row, size_t stride, uint32_t rows,
                              const int16_t *weight, size_t count)
{
    size_t i;

    if (count < 64) {
        avx2_mix(mixed, row, stride, rows, weight, count);
        return;
    }
    for (i = 0; i + 64 <= count; i += 64)
        mix_64(mixed + i, row + i, stride, rows, weight);
    if (i < count)
        mix_64(mixed + count - 64, row + count - 64, stride, rows, weight);
}

/* Return four pixels as planes: r r r r g g g g b b b b, then zeros. */
AVX512 static inline __m128i four_pixels(const int16_t *row, const gp_axis *axis, uint32_t x)
{
    const __m512i order =
        _mm512_broadcast_i32x4(_mm_setr_epi8(0, 1, 6, 7, 2, 3, 8, 9, 4, 5, 10, 11, -1, -1, -1, -1));
    const uint32_t pairs = axis->used / 2;
    const int32_t *weight = axis->fours + (size_t)(x / 4) * pairs * 16;
    const int16_t *from[4];
    __m512i sum = _mm512_set1_epi32(1 << (GP_WEIGHT_BITS + GP_ROW_BITS - 1));

    for (int i = 0; i < 4; i++)
        from[i] = row + (size_t)axis->first[x + (uint32_t)i] * 3;
    for (uint32_t k = 0; k < pairs; k++, weight += 16) {
        __m256i low =
            _mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)(from[0] + 6 * k)));
        __m256i high =
            _mm256_castsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)(from[2] + 6 * k)));
        __m512i in;

        low = _mm256_inserti128_si256(low, _mm_loadu_si128((const __m128i *)(const void *)(from[1] + 6 * k)),
                                      1);
        high = _mm256_inserti128_si256(high,
                                       _mm_loadu_si128((const __m128i *)(const void *)(from[3] + 6 * k)), 1);
        in = _mm512_shuffle_epi8(_mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1), order);
        sum = _mm512_dpwssd_epi32(sum, in, _mm512_loadu_si512(weight));
    }
    return _mm_shuffle_epi8(_mm512_cvtepi32_epi8(_mm512_srai_epi32(sum, GP_WEIGHT_BITS + GP_ROW_BITS)),
                            _mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
}

AVX512 static inline void eight_put_float(const gp_row_out *out, uint32_t x, uint32_t c, __m128i eight)
{
    __m256 value = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(eight));

    value = _mm256_mul_ps(value, _mm256_set1_ps(out->scale[c]));
    _mm256_storeu_ps(out->floats + c * out->plane + x, _mm256_add_ps(value, _mm256_set1_ps(out->offset[c])));
}

AVX512 static void avx512_narrow_rgb(const gp_row_out *out, const gp_axis *axis, const int16_t *row)
{
    uint32_t x = 0;

    if (out->step != 1) {
        avx2_narrow_rgb(out, axis, row);
        return;
    }
    for (; x + 8 <= axis->to; x += 8) {
        const __m128i a = four_pixels(row, axis, x), b = four_pixels(row, axis, x + 4);
        const __m128i red_green = _mm_unpacklo_epi32(a, b), blue = _mm_unpackhi_epi32(a, b);

        if (out->floats != NULL) {
            eight_put_float(out, x, 0, red_green);
            eight_put_float(out, x, 1, _mm_srli_si128(red_green, 8));
            eight_put_float(out, x, 2, blue);
        } else {
            _mm_storel_epi64((__m128i *)(void *)(out->bytes + x), red_green);
            _mm_storel_epi64((__m128i *)(void *)(out->bytes + out->plane + x), _mm_srli_si128(red_green, 8));
            _mm_storel_epi64((__m128i *)(void *)(out->bytes + 2 * out->plane + x), blue);
        }
    }
    for (; x < axis->to; x++)
        narrow_one(out, axis, row, x);
}

static const gp_row_ops avx512_ops = { .mix = avx512_mix, .narrow_rgb = avx512_narrow_rgb };

int gp_row_ops_all(const gp_row_ops *out[3])
{
    int count = 0;

    out[count++] = &gp_row_ops_plain;
    if (__builtin_cpu_supports("avx2"))
        out[count++] = &avx2_ops;
    if (count == 2 && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512vnni"))
        out[count++] = &avx512_ops;
    return count;
}
#else
int gp_row_ops_all(const gp_row_ops *out[3])
{
    out[0] = &gp_row_ops_plain;
    return 1;
}
#endif

const gp_row_ops *gp_row_ops_find(void)
{
    const gp_row_ops *all[3];

    return all[gp_row_ops_all(all) - 1];
}

void gp_axis_fours(gp_axis *axis)
{
    int32_t *to = axis->fours;

    for (uint32_t x = 0; x + 4 <= axis->to; x += 4)
        for (uint32_t k = 0; k < axis->used; k += 2)
            for (uint32_t i = 0; i < 4; i++) {
                int32_t pair;

                memcpy(&pair, axis->weight + (size_t)(x + i) * axis->taps + k, sizeof(pair));
                for (int c = 0; c < 4; c++)
                    *to++ = pair;
            }
}
