/* exact.h -- sums that do not depend on their order: fixed-point numbers of two 64-bit integers.
 *
 * A value is cut at 2^-16 and 2^-62; what is below is rounded off, once, when the value comes in.  Integers add up the
 * same in any order and any grouping, so a sum over blocks of samples has the same bits whoever computed which block.
 * The idea is that of reproducible summation with fixed bins (Demmel and Nguyen, "Parallel reproducible summation",
 * 2015), with bins that are fixed beforehand instead of chosen from the data: nothing has to be agreed on, kept or
 * restored.  Up to GP_EXACT_TERMS values of up to GP_EXACT_LIMIT can be added; larger ones count as the limit. */
#ifndef GP_EXACT_H
#define GP_EXACT_H

#include <stddef.h>
#include <stdint.h>

enum { GP_EXACT_TERMS = 1 << 16 };
#define GP_EXACT_LIMIT 1073741824.0 /* 2^30 */

/* high[i], low[i] += values[i].  Returns how many were NaN, which count as 0. */
uint64_t gp_exact_add(int64_t *high, int64_t *low, const float *values, size_t count);
uint64_t gp_exact_add_f64(int64_t *high, int64_t *low, const double *values, size_t count);

/* The sums as float32 and float64, rounded once. */
void gp_exact_get(float *out, const int64_t *high, const int64_t *low, size_t count);
void gp_exact_get_f64(double *out, const int64_t *high, const int64_t *low, size_t count);

#endif
