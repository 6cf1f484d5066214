/* onednn_wide.h -- kernels of ours for processors with AVX-512, where they beat oneDNN's.  Private to onednn*.c.
 *
 * Everything here is for one thread and single precision; callers share the work out. */
#ifndef GP_ONEDNN_WIDE_H
#define GP_ONEDNN_WIDE_H

#include <stdbool.h>
#include <stddef.h>

/* Whether this processor has what the functions below need; without it they must not be called. */
bool gp_wide_usable(void);

/* y[m][n] = bias[n] + sum over k of x[m][k] w[n][k] for n in [first, end); cut at 0 from below where `relu`.  Rows of x
 * are k long, of w too, of y `stride`; bias may be NULL.  No matrix is copied: with few rows of x that would cost
 * more than the product. */
void gp_wide_product(const float *x, size_t rows, size_t k, const float *w, size_t first, size_t end,
                     const float *bias, bool relu, float *y, size_t stride);

#endif
