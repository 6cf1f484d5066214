/* bf16.h -- bfloat16 (the upper half of a float32) from and to float32, in a form that compilers vectorise. */
#ifndef GP_CPU_BF16_H
#define GP_CPU_BF16_H

#include <stdint.h>
#include <string.h>

static inline __attribute__((always_inline)) float bf16_float(uint16_t narrow)
{
    uint32_t bits = (uint32_t)narrow << 16;
    float value;

    memcpy(&value, &bits, sizeof(value));
    return value;
}

/* The nearest, the even one of two equally near; NaN stays NaN (rounding would carry some into the sign). */
static inline __attribute__((always_inline)) uint16_t bf16_of(float value)
{
    uint32_t bits, rounded;

    memcpy(&bits, &value, sizeof(bits));
    rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    return (uint16_t)((bits & 0x7fffffff) > 0x7f800000 ? bits >> 16 | 0x40 : rounded);
}

/* The same of what arithmetic made, whose NaNs have nothing but zeros in the lower half. */
static inline __attribute__((always_inline)) uint16_t bf16_of_result(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof(bits));
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

#endif
