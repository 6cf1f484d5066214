#include "worker/train/fixed_point.h"

#include <math.h>
#include <string.h>

#define TOP_UNIT   1073741824.0          /* 2^30 */
#define HIGH_SCALE 65536.0               /* 2^16 */
#define LOW_SCALE  4611686018427387904.0 /* 2^62 */
/* Adding MAGIC leaves the nearest integer in a double's low bits (for |x| < 2^51). Unlike a
 * conversion to int64, the addition vectorizes. */
#define MAGIC      6755399441055744.0 /* 1.5 * 2^52 */
#define MAGIC_BITS 0x4338000000000000

static inline int64_t integer_of(double shifted)
{
    int64_t bits;

    memcpy(&bits, &shifted, sizeof(bits));
    return bits - MAGIC_BITS;
}

static inline void add_one(int64_t *high, int64_t *low, double value)
{
    double x = value > GP_FIXED_POINT_LIMIT    ? GP_FIXED_POINT_LIMIT
               : value < -GP_FIXED_POINT_LIMIT ? -GP_FIXED_POINT_LIMIT
                                               : value;
    double shifted = x * HIGH_SCALE + MAGIC;
    double rest = x - (shifted - MAGIC) * (1.0 / HIGH_SCALE); /* exact */

    *high += integer_of(shifted);
    *low += integer_of(rest * LOW_SCALE + MAGIC);
}

uint64_t gp_fixed_point_add(int64_t *restrict high, int64_t *restrict low, const float *restrict values,
                            size_t count)
{
    uint64_t bad = 0;

    for (size_t i = 0; i < count; i++) {
        float value = values[i] == values[i] ? values[i] : 0.0f;

        bad += values[i] != values[i];
        add_one(&high[i], &low[i], value);
    }
    return bad;
}

static inline double value_of(int64_t high, int64_t low)
{
    return (double)high * (1.0 / HIGH_SCALE) + (double)low * (1.0 / LOW_SCALE);
}

void gp_fixed_point_get(float *restrict out, const int64_t *restrict high, const int64_t *restrict low,
                        size_t count)
{
    for (size_t i = 0; i < count; i++)
        out[i] = (float)value_of(high[i], low[i]);
}

uint64_t gp_fixed_point_add_wide(int64_t *sums, const double *values, size_t count)
{
    int64_t *top = sums, *high = sums + count, *low = sums + 2 * count;
    uint64_t bad = 0;

    for (size_t i = 0; i < count; i++) {
        if (!(fabs(values[i]) <= GP_FIXED_POINT_WIDE_LIMIT)) {
            bad++;
            continue;
        }
        double shifted = values[i] * (1.0 / TOP_UNIT) + MAGIC;

        top[i] += integer_of(shifted);
        add_one(&high[i], &low[i], values[i] - (shifted - MAGIC) * TOP_UNIT); /* exact */
    }
    return bad;
}

void gp_fixed_point_get_wide(double *out, const int64_t *sums, size_t count)
{
    for (size_t i = 0; i < count; i++)
        out[i] = (double)sums[i] * TOP_UNIT + value_of(sums[count + i], sums[2 * count + i]);
}
