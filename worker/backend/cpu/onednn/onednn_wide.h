/* AVX-512 kernels for operations where they beat oneDNN. Private to onednn*.c.
 *
 * All functions run on one thread in float32; callers divide the work. */
#ifndef GP_ONEDNN_WIDE_H
#define GP_ONEDNN_WIDE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { GP_WIDE_KEPT = 64 };

/* Return true if this CPU supports the functions below, which otherwise must not be called. */
bool gp_wide_usable(void);

/* Compute y[m][n] = bias[n] + sum over k of x[m][k] * w[n][k] for n in [first, end). Copies no
 * matrix: for few x rows, copying would take longer than the product.
 *   k       row length of x and w
 *   bias    NULL: none
 *   relu    replace negative results by 0
 *   stride  row length of y */
void gp_wide_product(const float *x, size_t rows, size_t k, const float *w, size_t first, size_t end,
                     const float *bias, bool relu, float *y, size_t stride);

/* Draw dropout decisions: kept[i] is 1 if the 24-bit random number of element first + i is at least
 * `least`, otherwise 0. The random words come from gp_rng_draw() for elements first / 4, first / 4
 * + 1, ... */
void gp_wide_kept(uint8_t kept[GP_WIDE_KEPT], uint64_t seed, uint32_t stream, uint32_t when,
                  uint32_t position, uint32_t first, uint32_t least);

#endif
