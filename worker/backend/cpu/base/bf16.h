/* Conversions between bfloat16 (the upper half of a float32) and float32, in a form that compilers
 * vectorise. */
#ifndef GP_CPU_BF16_H
#define GP_CPU_BF16_H

#include <stdint.h>
#include <string.h>

/* Convert a bfloat16 to float32, exactly. */
static inline __attribute__((always_inline)) float bf16_float(uint16_t narrow)
{
    uint32_t bits = (uint32_t)narrow << 16;
    float value;

    memcpy(&value, &bits, sizeof(value));
    return value;
}

/* Round to the nearest bfloat16, ties to even. NaN remains NaN: it is handled separately, because
 * rounding could carry into the sign bit. */
static inline __attribute__((always_inline)) uint16_t bf16_of(float value)
{
    uint32_t bits, rounded;

    memcpy(&bits, &value, sizeof(bits));
    rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    return (uint16_t)((bits & 0x7fffffff) > 0x7f800000 ? bits >> 16 | 0x40 : rounded);
}

/* Round the result of an arithmetic operation. Faster than bf16_of(): NaNs from arithmetic have a
 * zero lower half, so they need no special case. */
static inline __attribute__((always_inline)) uint16_t bf16_of_result(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof(bits));
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

#endif
