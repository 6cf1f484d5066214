/* cuda_bf16.h: bfloat16 on the host. A device converts every NaN to 0x7fff. */
#ifndef SIMT_CUDA_BF16_H
#define SIMT_CUDA_BF16_H

typedef struct __nv_bfloat16 {
    unsigned short bits;
} __nv_bfloat16;

typedef struct __align__(4) __nv_bfloat162
{
    __nv_bfloat16 x, y;
}
__nv_bfloat162;

static inline float __bfloat162float(__nv_bfloat16 value)
{
    const unsigned word = (unsigned)value.bits << 16;
    float result;

    memcpy(&result, &word, sizeof(result));
    return result;
}

/* Round to nearest, ties to even. */
static inline __nv_bfloat16 __float2bfloat16_rn(float value)
{
    unsigned word;

    memcpy(&word, &value, sizeof(word));
    if (value != value)
        return { 0x7fff };
    return { (unsigned short)((word + 0x7fff + (word >> 16 & 1)) >> 16) };
}

static inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y)
{
    return { __float2bfloat16_rn(x), __float2bfloat16_rn(y) };
}

#endif
