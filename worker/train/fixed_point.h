/* fixed_point.h -- sums that do not depend on the addition order: fixed-point numbers with two
 * 64-bit integers.
 *
 * Each value is split at 2^-16 and 2^-62; smaller parts are rounded off once, when the value is
 * added. Integer addition is associative, so a sum over sample blocks is bitwise identical however
 * blocks are assigned to ranks. The method is reproducible summation with bins (Demmel and Nguyen,
 * "Parallel reproducible summation", 2015), but the bins are fixed in advance rather than chosen
 * from the data. So ranks need not agree on bins, and bins need not be stored. Up to
 * GP_FIXED_POINT_TERMS values with magnitudes up to GP_FIXED_POINT_LIMIT can be added; larger
 * values are clamped to the limit. */
#ifndef GP_FIXED_POINT_H
#define GP_FIXED_POINT_H

#include <stddef.h>
#include <stdint.h>

enum { GP_FIXED_POINT_TERMS = 1 << 16 };
#define GP_FIXED_POINT_LIMIT 1073741824.0 /* 2^30 */

/* Add values[i] to high[i], low[i]. Return the number of NaN values, which are added as 0. */
uint64_t gp_fixed_point_add(int64_t *high, int64_t *low, const float *values, size_t count);
uint64_t gp_fixed_point_add_f64(int64_t *high, int64_t *low, const double *values, size_t count);

/* Convert the sums to float32 or float64, with one rounding. */
void gp_fixed_point_get(float *out, const int64_t *high, const int64_t *low, size_t count);
void gp_fixed_point_get_f64(double *out, const int64_t *high, const int64_t *low, size_t count);

#endif
