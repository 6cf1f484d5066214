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

typedef struct __align__(4) __half2
{
    __half x, y;
}
__half2;

static inline float __low2float(__half2 two)
{
    return __half2float(two.x);
}

static inline float __high2float(__half2 two)
{
    return __half2float(two.y);
}

static inline __half2 __floats2half2_rn(float x, float y)
{
    return { __float2half_rn(x), __float2half_rn(y) };
}

static inline __half simt_hmax_nan(__half x, __half y)
{
    const float a = __half2float(x), b = __half2float(y);

    if (a != a || b != b)
        return { 0x7fff };
    if (a == b) /* 0 is larger than minus 0 */
        return (x.bits & 0x8000) != 0 ? y : x;
    return a > b ? x : y;
}

/* Return the larger numbers; NaN if one is NaN. */
static inline __half2 __hmax2_nan(__half2 x, __half2 y)
{
    return { simt_hmax_nan(x.x, y.x), simt_hmax_nan(x.y, y.y) };
}

/* Return 0xffff for each number of x above that of y. */
static inline unsigned __hgt2_mask(__half2 x, __half2 y)
{
    return (__half2float(x.x) > __half2float(y.x) ? 0xffffu : 0) |
           (__half2float(x.y) > __half2float(y.y) ? 0xffff0000u : 0);
}

#endif
