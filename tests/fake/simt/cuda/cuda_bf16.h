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

static inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 value)
{
    return value.bits;
}

static inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y)
{
    return { __float2bfloat16_rn(x), __float2bfloat16_rn(y) };
}

static inline __nv_bfloat16 simt_hmax_nan(__nv_bfloat16 x, __nv_bfloat16 y)
{
    const float a = __bfloat162float(x), b = __bfloat162float(y);

    if (a != a || b != b)
        return { 0x7fff };
    if (a == b) /* 0 is larger than minus 0 */
        return (x.bits & 0x8000) != 0 ? y : x;
    return a > b ? x : y;
}

/* Return the larger numbers; NaN if one is NaN. */
static inline __nv_bfloat162 __hmax2_nan(__nv_bfloat162 x, __nv_bfloat162 y)
{
    return { simt_hmax_nan(x.x, y.x), simt_hmax_nan(x.y, y.y) };
}

/* Return 0xffff for each number of x above that of y. */
static inline unsigned __hgt2_mask(__nv_bfloat162 x, __nv_bfloat162 y)
{
    return (__bfloat162float(x.x) > __bfloat162float(y.x) ? 0xffffu : 0) |
           (__bfloat162float(x.y) > __bfloat162float(y.y) ? 0xffff0000u : 0);
}

#endif
