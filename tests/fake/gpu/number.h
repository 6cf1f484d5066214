/* number.h: read and write elements of all library data types as float64. */
#ifndef FAKE_GPU_NUMBER_H
#define FAKE_GPU_NUMBER_H

#include <library_types.h>
#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef enum number_type {
    NUMBER_NONE,
    NUMBER_F64,
    NUMBER_F32,
    NUMBER_F16,
    NUMBER_BF16,
    NUMBER_I8,
    NUMBER_U8,
    NUMBER_I32,
    NUMBER_U32,
    NUMBER_I64,
    NUMBER_BIT,
} number_type;

static inline number_type number_of_cuda(int type)
{
    switch (type) {
    case CUDA_R_64F:
        return NUMBER_F64;
    case CUDA_R_32F:
        return NUMBER_F32;
    case CUDA_R_16F:
        return NUMBER_F16;
    case CUDA_R_16BF:
        return NUMBER_BF16;
    default:
        return NUMBER_NONE;
    }
}

static inline size_t number_bytes(number_type type)
{
    switch (type) {
    case NUMBER_F64:
    case NUMBER_I64:
        return 8;
    case NUMBER_F32:
    case NUMBER_I32:
    case NUMBER_U32:
        return 4;
    case NUMBER_F16:
    case NUMBER_BF16:
        return 2;
    default:
        return 1;
    }
}

static inline double half_wide(uint16_t bits)
{
    int exponent = bits >> 10 & 31, mantissa = bits & 1023;
    double value = exponent == 0    ? ldexp(mantissa, -24)
                   : exponent == 31 ? (mantissa == 0 ? INFINITY : NAN)
                                    : ldexp(1024 + mantissa, exponent - 25);

    return (bits & 0x8000) != 0 ? -value : value;
}

/* Round to nearest, ties to even. */
static inline uint16_t half_narrow(double value)
{
    uint16_t sign = signbit(value) ? 0x8000 : 0;
    double size = fabs(value), steps;
    int exponent;

    if (isnan(value))
        return 0x7e00;
    if (size >= 65520.0)
        return sign | 0x7c00;
    if (size < ldexp(1.0, -14))
        return (uint16_t)(sign | (uint16_t)nearbyint(ldexp(size, 24)));
    frexp(size, &exponent);
    steps = nearbyint(ldexp(size, 11 - exponent)); /* 1024 .. 2048 */
    return (uint16_t)(sign | (uint16_t)(((exponent + 14) << 10) + ((int)steps - 1024)));
}

static inline double number_get(const void *at, number_type type, int64_t index)
{
    uint16_t bits;
    uint32_t word;
    float single;

    switch (type) {
    case NUMBER_F64:
        return ((const double *)at)[index];
    case NUMBER_F32:
        return (double)((const float *)at)[index];
    case NUMBER_F16:
        return half_wide(((const uint16_t *)at)[index]);
    case NUMBER_BF16:
        bits = ((const uint16_t *)at)[index];
        word = (uint32_t)bits << 16;
        memcpy(&single, &word, sizeof(single));
        return (double)single;
    case NUMBER_I8:
        return ((const int8_t *)at)[index];
    case NUMBER_U8:
        return ((const uint8_t *)at)[index];
    case NUMBER_I32:
        return ((const int32_t *)at)[index];
    case NUMBER_U32:
        return ((const uint32_t *)at)[index];
    case NUMBER_I64:
        return (double)((const int64_t *)at)[index];
    case NUMBER_BIT:
        return ((const uint8_t *)at)[index / 8] >> (index % 8) & 1;
    default:
        return NAN;
    }
}

static inline void number_put(void *at, number_type type, int64_t index, double value)
{
    float single = (float)value;
    uint32_t word;

    switch (type) {
    case NUMBER_F64:
        ((double *)at)[index] = value;
        break;
    case NUMBER_F32:
        ((float *)at)[index] = single;
        break;
    case NUMBER_F16:
        ((uint16_t *)at)[index] = half_narrow(value);
        break;
    case NUMBER_BF16:
        memcpy(&word, &single, sizeof(word));
        ((uint16_t *)at)[index] = (word & 0x7fffffffu) > 0x7f800000u
                                      ? (uint16_t)(word >> 16 | 0x40)
                                      : (uint16_t)((word + 0x7fff + (word >> 16 & 1)) >> 16);
        break;
    case NUMBER_I8:
        ((int8_t *)at)[index] = (int8_t)value;
        break;
    case NUMBER_U8:
        ((uint8_t *)at)[index] = (uint8_t)value;
        break;
    case NUMBER_I32:
        ((int32_t *)at)[index] = (int32_t)value;
        break;
    case NUMBER_U32:
        ((uint32_t *)at)[index] = (uint32_t)value;
        break;
    case NUMBER_I64:
        ((int64_t *)at)[index] = (int64_t)value;
        break;
    case NUMBER_BIT: {
        uint8_t *byte = (uint8_t *)at + index / 8;

        *byte = (uint8_t)((*byte & ~(1u << (index % 8))) | (value != 0.0 ? 1u << (index % 8) : 0u));
        break;
    }
    default:
        break;
    }
}

#endif
