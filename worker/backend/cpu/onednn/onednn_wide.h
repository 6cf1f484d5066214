/* onednn_wide.h -- kernels of ours for processors with AVX-512, where they beat oneDNN's.  Private to onednn*.c.
 *
 * Everything here is for one thread and single precision; callers share the work out. */
#ifndef GP_ONEDNN_WIDE_H
#define GP_ONEDNN_WIDE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { GP_WIDE_KEPT = 64 };

/* Whether this processor has what the functions below need; without it they must not be called. */
bool gp_wide_usable(void);

/* y[m][n] = bias[n] + sum over k of x[m][k] w[n][k] for n in [first, end); cut at 0 from below where `relu`.  Rows of x
 * are k long, of w too, of y `stride`; bias may be NULL.  No matrix is copied: with few rows of x that would cost
 * more than the product. */
void gp_wide_product(const float *x, size_t rows, size_t k, const float *w, size_t first, size_t end,
                     const float *bias, bool relu, float *y, size_t stride);

/* kept[i]: 1 where the 24 bits that make the uniform number of element first + i are at least `least`, else 0; the
 * words are those of gp_rng_draw() with elements first / 4, first / 4 + 1 ... */
void gp_wide_kept(uint8_t kept[GP_WIDE_KEPT], uint64_t seed, uint32_t stream, uint32_t when,
                  uint32_t position, uint32_t first, uint32_t least);

#endif
