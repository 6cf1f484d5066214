/* fixed_point.h -- sums that do not depend on the addition order: fixed-point numbers with two or
 * three 64-bit integers.
 *
 * Each value is split at 2^-16 and 2^-62; smaller parts are rounded off once, when the value is
 * added. Integer addition is associative, so a sum over sample blocks is bitwise identical however
 * blocks are assigned to ranks. The method is reproducible summation with bins (Demmel and Nguyen,
 * "Parallel reproducible summation", 2015), but the bins are fixed in advance rather than chosen
 * from the data. So ranks need not agree on bins, and bins need not be stored.
 *
 * Up to GP_FIXED_POINT_TERMS values can be added. Gradients have two integers and a magnitude of up
 * to GP_FIXED_POINT_LIMIT; larger ones are clamped to the limit. Sums of losses and squared errors
 * have a third integer for multiples of 2^30, and a magnitude of up to GP_FIXED_POINT_WIDE_LIMIT:
 * targets may have any unit, such as prices. */
#ifndef GP_FIXED_POINT_H
#define GP_FIXED_POINT_H

#include <stddef.h>
#include <stdint.h>

enum { GP_FIXED_POINT_TERMS = 1 << 16 };
#define GP_FIXED_POINT_LIMIT      1073741824.0              /* 2^30 */
#define GP_FIXED_POINT_WIDE_LIMIT 75557863725914323419136.0 /* 2^76 */

/* Add values[i] to high[i], low[i]. Return the number of NaN values, which are added as 0. */
uint64_t gp_fixed_point_add(int64_t *high, int64_t *low, const float *values, size_t count);

/* Convert the sums to float32, with one rounding. */
void gp_fixed_point_get(float *out, const int64_t *high, const int64_t *low, size_t count);

/* Integers of one wide sum; wide sums have [GP_FIXED_POINT_WIDE][count] integers. */
enum { GP_FIXED_POINT_WIDE = 3 };

/* Add values[i] to the wide sum i. Return the number of values that are not finite or exceed the
 * limit; they are added as 0. */
uint64_t gp_fixed_point_add_wide(int64_t *sums, const double *values, size_t count);

/* Convert the wide sums to float64. */
void gp_fixed_point_get_wide(double *out, const int64_t *sums, size_t count);

#endif
