/* cuda_fp16.h: fp16 on the host. The conversions are the compiler's, not those of bodies.h. */
#ifndef SIMT_CUDA_FP16_H
#define SIMT_CUDA_FP16_H

#ifdef __aarch64__
typedef __fp16 simt_half;
#else
typedef _Float16 simt_half;
#endif

typedef struct __half {
    unsigned short bits;
} __half;

static inline __half __ushort_as_half(unsigned short bits)
{
    return { bits };
}

static inline unsigned short __half_as_ushort(__half value)
{
    return value.bits;
}

/* Look values up, because libgcc needs about 30 ns to convert one. Filled before main(). */
static const struct simt_half_values {
    float of[1 << 16];
    simt_half_values()
    {
        for (unsigned bits = 0; bits < 1 << 16; bits++) {
            const unsigned short word = (unsigned short)bits;
            simt_half half;

            memcpy(&half, &word, sizeof(half));
            of[bits] = (float)half;
        }
    }
} simt_half_values;

static inline float __half2float(__half value)
{
    return simt_half_values.of[value.bits];
}

static inline __half __float2half_rn(float value)
{
    const simt_half half = (simt_half)value; /* rounds to nearest, ties to even */
    __half result;

    memcpy(&result, &half, sizeof(result));
    return result;
}

#endif
