/* Kernel bodies: the code of one work item. nvcc compiles them for the device, a C++ compiler for
 * tests without a device, and a C compiler for the fake libraries.
 *
 * Bodies use neither shared memory nor atomics. An item reads only data that earlier kernels wrote.
 * A large sum is computed as partial sums in a fixed order, which a second kernel adds. Equal calls
 * therefore give bitwise identical results. Tests without a device run the kernels on the host
 * (tests/fake/simt).
 *
 *   bodies.h       access to activations, element-wise ops, packing of weights
 *   bodies_conv.h  convolution, fully connected layers, pooling
 *   bodies_norm.h  batch, group and local response norm
 *   bodies_wide.h  some of these for eight channels at once
 *   bodies_move.h  boxes, resizing, softmax
 *   bodies_loss.h  losses
 *   bodies_step.h  end of a step: latch, optimizer
 *   bodies_feed.h  sources of samples
 *
 * A body's comment lists the inputs and outputs as gp_kernel_args fields, and the meaning of the
 * items. */
#ifndef GP_CUDA_BODIES_H
#define GP_CUDA_BODIES_H

#include <math.h>
#include <string.h>
#include <time.h>

#include "common/model/kinds/norm_fold.h"
#include "worker/backend/cuda/kernels/kernel_args.h"

#ifdef __CUDACC__
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#define BODY static __host__ __device__ __forceinline__
#else
#define BODY static inline
#endif

/* Unroll the next loop `count` times; 1: do not unroll. */
#ifdef __NVCC__
#define PRAGMA(text)  _Pragma(#text)
#define UNROLL(count) PRAGMA(unroll count)
#else
#define UNROLL(count)
#endif

/* ---- activations ---- */

BODY float bf16_wide(uint16_t bits)
{
    uint32_t word = (uint32_t)bits << 16;
    float value;

    memcpy(&value, &word, sizeof(value));
    return value;
}

/* Round to nearest, ties to even; NaN stays NaN. Devices have an instruction for it. */
BODY uint16_t bf16_narrow(float value)
{
#ifdef __CUDA_ARCH__
    return __bfloat16_as_ushort(__float2bfloat16_rn(value));
#else
    uint32_t word;

    memcpy(&word, &value, sizeof(word));
    if ((word & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)(word >> 16 | 0x40);
    return (uint16_t)((word + 0x7fff + (word >> 16 & 1)) >> 16);
#endif
}

/* Convert fp16 (5 exponent bits, 11 significant bits) to float32. Devices have an instruction for
 * it. */
BODY float f16_wide(uint16_t bits)
{
#ifdef __CUDA_ARCH__
    return __half2float(__ushort_as_half(bits));
#else
    uint32_t sign = (uint32_t)(bits & 0x8000u) << 16, exponent = bits >> 10 & 31u, fraction = bits & 0x3ffu;
    uint32_t word = sign | (exponent + 112) << 23 | fraction << 13;
    float value = (float)fraction * (1.0f / 16777216.0f); /* subnormal: units of 2^-24 */

    if (exponent == 0)
        return sign != 0 ? -value : value;
    if (exponent == 31)
        word = sign | 0x7f800000u | fraction << 13;
    memcpy(&value, &word, sizeof(value));
    return value;
#endif
}

/* Round to nearest, ties to even. Values from 65520 on become infinite. */
BODY uint16_t f16_narrow(float value)
{
#ifdef __CUDA_ARCH__
    return __half_as_ushort(__float2half_rn(value));
#else
    uint32_t word, sign;
    float units;

    memcpy(&word, &value, sizeof(word));
    sign = word >> 16 & 0x8000u;
    word &= 0x7fffffffu;
    if (word > 0x7f800000u)
        return (uint16_t)(sign | 0x7e00u);
    if (word >= 0x477ff000u)
        return (uint16_t)(sign | 0x7c00u);
    /* below 2^-14: units of 2^-24; the addition rounds the lower bits away */
    if (word < 0x38800000u) {
        memcpy(&units, &word, sizeof(units));
        units = units * 16777216.0f + 8388608.0f;
        memcpy(&word, &units, sizeof(word));
        return (uint16_t)(sign | (word & 0x7ffu));
    }
    word -= 112u << 23;
    return (uint16_t)(sign | (word + 0xfffu + (word >> 13 & 1u)) >> 13);
#endif
}

BODY float number_wide(int32_t narrow, uint16_t bits)
{
    return narrow == GP_NARROW_F16 ? f16_wide(bits) : bf16_wide(bits);
}

BODY uint16_t number_narrow(int32_t narrow, float value)
{
    return narrow == GP_NARROW_F16 ? f16_narrow(value) : bf16_narrow(value);
}

BODY float image_get(const gp_kernel_image *image, size_t at)
{
    return image->narrow ? number_wide(image->narrow, ((const uint16_t *)image->data)[at])
                         : ((const float *)image->data)[at];
}

BODY void image_put(const gp_kernel_image *image, size_t at, float value)
{
    if (image->narrow)
        ((uint16_t *)image->data)[at] = number_narrow(image->narrow, value);
    else
        ((float *)image->data)[at] = value;
}

/* Four numbers, 16-byte aligned. */
typedef struct __attribute__((aligned(16))) four {
    float of[4];
} four;

/* Load `width` (1 or 4) numbers. */
BODY void floats_get(float *values, uint32_t width, const float *from)
{
    if (width == 4) {
        const four v = *(const four *)from;

        for (uint32_t k = 0; k < 4; k++)
            values[k] = v.of[k];
    } else {
        values[0] = from[0];
    }
}

/* Store `width` numbers. */
BODY void floats_put(float *to, uint32_t width, const float *values)
{
    if (width == 4) {
        const four v = { { values[0], values[1], values[2], values[3] } };

        *(four *)to = v;
    } else {
        to[0] = values[0];
    }
}

/* Apply the operations after a sum, as selected by lower*.c: add x[7], then replace negative
 * numbers by 0. NaN stays NaN. */
BODY float followed(const gp_kernel_args *a, size_t i, float value)
{
    if (a->x[7].data != NULL)
        value += image_get(&a->x[7], i);
    return a->relu && value <= 0.0f ? 0.0f : value;
}

/* Mask a gradient: x[7] is the relu output. */
BODY float masked(const gp_kernel_args *a, size_t i, float value)
{
    return a->x[7].data != NULL && !(image_get(&a->x[7], i) > 0.0f) ? 0.0f : value;
}

/* Sample, channel and pixel of an element. */
typedef struct place {
    uint32_t n, c, p;
} place;

BODY place image_place(const gp_kernel_image *image, uint32_t i)
{
    place at;
    uint32_t rest = i % image->sample;

    at.n = i / image->sample;
    if (image->channel_stride == 1) {
        at.c = rest % image->channels;
        at.p = rest / image->channels;
    } else {
        at.c = rest / image->pixels;
        at.p = rest % image->pixels;
    }
    return at;
}

BODY size_t image_at(const gp_kernel_image *image, uint32_t n, uint32_t c, uint32_t p)
{
    return (size_t)n * image->sample + (size_t)c * image->channel_stride + (size_t)p * image->pixel_stride;
}

/* Return the index of element e of a sample, counted in CHW order. */
BODY size_t image_chw(const gp_kernel_image *image, uint32_t n, uint32_t e)
{
    return image_at(image, n, e / image->pixels, e % image->pixels);
}

/* ---- input ---- */

/* Normalise samples: y[0] = value * scale + offset.
 *   bytes   samples, [count][C][H][W]; kind 1: uint8, kind 0: float32
 *   n[0]    number of scales
 *   n[1]    channels in the samples; the other channels of y[0] are zero
 *   count   bytes between input slots
 *   index   which resident samples to read; NULL: the first ones */
BODY void body_normalize(const gp_kernel_args *a, uint32_t i)
{
    place at = image_place(&a->y[0], i);
    size_t within = (size_t)at.c * a->y[0].pixels + at.p, each = (size_t)a->n[1] * a->y[0].pixels;
    uint32_t k = at.c < a->n[0] ? at.c : 0;
    float value = 0.0f;

    if (at.n < a->call->count && at.c < a->n[1]) {
        const void *bytes = (const char *)a->bytes + a->call->slot * a->count;
        size_t from = (size_t)(a->index == NULL ? at.n : a->index[at.n]) * each + within;

        value = a->kind == 1 ? (float)((const uint8_t *)bytes)[from] : ((const float *)bytes)[from];
        value = value * a->scale[k] + a->offset[k];
    }
    image_put(&a->y[0], i, value);
}

/* ---- element-wise ops ---- */

BODY void body_relu(const gp_kernel_args *a, uint32_t i)
{
    float x = image_get(&a->x[0], i);

    image_put(&a->y[0], i, x > 0.0f ? x : x != x ? x : 0.0f);
}

BODY void body_relu_backward(const gp_kernel_args *a, uint32_t i)
{
    image_put(&a->y[0], i, image_get(&a->x[0], i) > 0.0f ? image_get(&a->x[1], i) : 0.0f);
}

BODY void body_add(const gp_kernel_args *a, uint32_t i)
{
    image_put(&a->y[0], i, masked(a, i, image_get(&a->x[0], i) + image_get(&a->x[1], i)));
}

/* Apply an activation function. kind: gp_activation. */
BODY void body_activation(const gp_kernel_args *a, uint32_t i)
{
    float x = image_get(&a->x[0], i), low = a->factor[0], high = a->factor[1], y = 0.0f;

    switch (a->kind) {
    case 0:
        y = x > 0.0f ? x : low * x;
        break;
    case 1:
        y = x > low ? x : low;
        y = y < high ? y : high;
        break;
    case 2:
        y = 1.0f / (1.0f + expf(-x));
        break;
    case 3:
        y = tanhf(x);
        break;
    case 4:
        y = low * x;
        break;
    case 5:
        y = fminf(fmaxf(low * x + high, 0.0f), 1.0f);
        break;
    case 6:
        y = x * fminf(fmaxf(x * (1.0f / 6.0f) + 0.5f, 0.0f), 1.0f);
        break;
    case 7:
        y = 0.5f * x * (1.0f + erff(x * 0.70710678f));
        break;
    case 8:
        y = 0.5f * x * (1.0f + tanhf(0.79788456f * (x + 0.044715f * x * x * x)));
        break;
    }
    image_put(&a->y[0], i, y);
}

/* Return the derivative of GELU in the tanh approximation. */
BODY float gelu_tanh_slope(float x)
{
    float t = tanhf(0.79788456f * (x + 0.044715f * x * x * x));

    return 0.5f * (1.0f + t) + 0.5f * x * (1.0f - t * t) * 0.79788456f * (1.0f + 0.134145f * x * x);
}

/* Compute an activation's gradient. x[0]: forward pass output, or input if
 * gp_activation_reads_input(). */
BODY void body_activation_backward(const gp_kernel_args *a, uint32_t i)
{
    float y = image_get(&a->x[0], i), dy = image_get(&a->x[1], i), low = a->factor[0], high = a->factor[1];
    float dx = 0.0f;

    switch (a->kind) {
    case 0:
        dx = y > 0.0f ? dy : low * dy;
        break;
    case 1: /* y was rounded, and so were the bounds */
        if (a->x[0].narrow) {
            low = number_wide(a->x[0].narrow, number_narrow(a->x[0].narrow, low));
            high = number_wide(a->x[0].narrow, number_narrow(a->x[0].narrow, high));
        }
        dx = y > low && y < high ? dy : 0.0f;
        break;
    case 2:
        dx = dy * y * (1.0f - y);
        break;
    case 3:
        dx = dy * (1.0f - y * y);
        break;
    case 4:
        dx = low * dy;
        break;
    case 5:
        dx = y > 0.0f && y < 1.0f ? low * dy : 0.0f;
        break;
    case 6: /* from here on, y holds x */
        dx = y < -3.0f ? 0.0f : y > 3.0f ? dy : dy * (y * (1.0f / 3.0f) + 0.5f);
        break;
    case 7:
        dx = dy * (0.5f * (1.0f + erff(y * 0.70710678f)) + y * 0.39894228f * expf(-0.5f * y * y));
        break;
    case 8:
        dx = dy * gelu_tanh_slope(y);
        break;
    }
    image_put(&a->y[0], i, dx);
}

/* Multiply x[0] by x[1], which has the same shape or [C, 1, 1]. */
BODY void body_multiply(const gp_kernel_args *a, uint32_t i)
{
    place at = image_place(&a->x[0], i);
    size_t by = a->x[1].pixels == a->x[0].pixels ? (size_t)i : image_at(&a->x[1], at.n, at.c, 0);

    image_put(&a->y[0], i, image_get(&a->x[0], i) * image_get(&a->x[1], by));
}

/* Sum a product over pixels. Items: (sample, channel) of y[0]. */
BODY void body_multiply_sum(const gp_kernel_args *a, uint32_t i)
{
    place at = image_place(&a->y[0], i);
    double sum = 0.0;

    for (uint32_t p = 0; p < a->x[0].pixels; p++) {
        size_t from = image_at(&a->x[0], at.n, at.c, p);

        sum += (double)image_get(&a->x[0], from) * (double)image_get(&a->x[1], from);
    }
    image_put(&a->y[0], i, (float)sum);
}

/* Copy elements in CHW order between different shapes. */
BODY void body_reshape(const gp_kernel_args *a, uint32_t i)
{
    place at = image_place(&a->y[0], i);
    uint32_t e = at.c * a->y[0].pixels + at.p;

    image_put(&a->y[0], i, image_get(&a->x[0], image_chw(&a->x[0], at.n, e)));
}

/* ---- random numbers ---- */

/* Compute Philox4x32-10 (common/base/rng.h). */
BODY void philox(uint32_t out[4], uint32_t c0, uint32_t c1, uint32_t c2, uint32_t c3, uint64_t seed)
{
    uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);

    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
        uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0, n2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;

        c1 = (uint32_t)p1;
        c3 = (uint32_t)p0;
        c0 = n0;
        c2 = n2;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

/* Dropout, forward and backward. Items: (sample, four elements in CHW order), n[1] per sample.
 * n[0]: random stream. */
BODY void body_dropout(const gp_kernel_args *a, uint32_t i)
{
    uint32_t n = i / a->n[1], quad = i % a->n[1], words[4];
    float scale = 1.0f / (1.0f - a->rate);

    philox(words, a->n[0], a->call->step, a->call->position + n, quad, a->call->seed);
    for (uint32_t k = 0; k < 4 && 4 * quad + k < a->x[0].sample; k++) {
        size_t at = image_chw(&a->x[0], n, 4 * quad + k);
        float draw = (float)(words[k] >> 8) * (1.0f / 16777216.0f);

        image_put(&a->y[0], at, draw >= a->rate ? image_get(&a->x[0], at) * scale : 0.0f);
    }
}

/* ---- partial sums ---- */

/* Store a parameter gradient: overwrite in the first call, otherwise add. Removes the loss
 * scale. */
BODY void gradient_add(const gp_kernel_args *a, float *gradient, double sum)
{
    *gradient = (float)((a->call->first ? 0.0 : (double)*gradient) + sum * (double)a->call->unscale);
}

/* Return the sum of the values of a warp's 32 items, in a fixed order. All 32 items must call it.
 * The host compiles it but does not run it. */
BODY double warp_sum(double value)
{
#ifdef __CUDA_ARCH__
    for (int distance = 16; distance > 0; distance /= 2)
        value += __shfl_xor_sync(0xffffffffu, value, distance);
#endif
    return value;
}

/* Add the sum over chunks of f[1][chunk * count + i] to gradient f[0][i]. */
BODY void body_parts_add(const gp_kernel_args *a, uint32_t i)
{
    double sum = 0.0;

    for (uint32_t k = 0; k < a->chunks; k++)
        sum += (double)a->f[1][(size_t)k * a->count + i];
    gradient_add(a, &a->f[0][i], sum);
}

/* As parts_add, for many chunks. Items: 32 for each element of f[0]. */
BODY void body_parts_add_warp(const gp_kernel_args *a, uint32_t i)
{
    double sum = 0.0;

    for (uint32_t k = i % 32; k < a->chunks; k += 32)
        sum += (double)a->f[1][(size_t)k * a->count + i / 32];
    sum = warp_sum(sum);
    if (i % 32 == 0)
        gradient_add(a, &a->f[0][i / 32], sum);
}

/* Return true if cuDNN computed the moments of all rows in f[4] and all rows count, so that no
 * partial sums are needed. */
BODY int moments_known(const gp_kernel_args *a)
{
    return a->f[4] != NULL && a->call->count == a->rows;
}

/* Reduce the partial sums d[0] [chunks][n[0]] to fewer, d[1] [n[1]][n[0]]. Items: (part,
 * number). */
BODY void body_parts_fold(const gp_kernel_args *a, uint32_t i)
{
    double sum = 0.0;

    if (moments_known(a))
        return;
    for (uint32_t k = i / a->n[0]; k < a->chunks; k += a->n[1])
        sum += a->d[0][(size_t)k * a->n[0] + i % a->n[0]];
    a->d[1][i] = sum;
}

/* ---- weights in library layouts: [O][I][P] <-> [O][P][I], P pixels of a kernel or an image
 * ---- */

/* Return the inference batch norm factor for output o. f[1]: scale, f[4]: variance, number64[0]:
 * epsilon. */
BODY double norm_factor(const gp_kernel_args *a, uint32_t o)
{
    return a->f[1] == NULL ? 1.0 : gp_norm_factor(a->f[1][o], a->f[4][o], a->number64[0]);
}

/* Pack weights from f[0]. Items: elements (or vectors of elements) of y[0]. n[0]: stored inputs,
 * n[1]: P, n[2]: inputs with weights; the other inputs are 0. */
BODY void body_weights_pack(const gp_kernel_args *a, uint32_t i)
{
    uint32_t in = i % a->n[0], rest = i / a->n[0], p = rest % a->n[1], o = rest / a->n[1];
    float value = in < a->n[2] ? a->f[0][((size_t)o * a->n[2] + in) * a->n[1] + p] : 0.0f;

    image_put(&a->y[0], i, (float)norm_factor(a, o) * value);
}

/* Pack the bias of output i into y[0]. f[0]: bias or NULL; with batch norm, f[1] is not NULL, f[2]:
 * offset, f[3]: mean. */
BODY void body_vector_pack(const gp_kernel_args *a, uint32_t i)
{
    float bias = a->f[0] == NULL ? 0.0f : a->f[0][i];

    image_put(&a->y[0], i,
              a->f[1] == NULL ? bias : (float)gp_norm_level(norm_factor(a, i), bias, a->f[3][i], a->f[2][i]));
}

#include "worker/backend/cuda/kernels/bodies_conv.h"
#include "worker/backend/cuda/kernels/bodies_norm.h"
#include "worker/backend/cuda/kernels/bodies_wide.h"
#include "worker/backend/cuda/kernels/bodies_move.h"
#include "worker/backend/cuda/kernels/bodies_loss.h"
#include "worker/backend/cuda/kernels/bodies_step.h"
#include "worker/backend/cuda/kernels/bodies_feed.h"

#endif
