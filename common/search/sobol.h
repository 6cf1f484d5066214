/* Sobol sequences with the direction numbers of Joe and Kuo, and Owen's nested uniform scrambling
 * (Owen, "Randomly Permuted (t,m,s)-Nets and (t,s)-Sequences", 1995).
 *
 * The first 2^m points have one point in each interval of length 2^-m, in each dimension. Scrambled
 * points keep this property, and each is uniformly distributed. */
#ifndef GP_SOBOL_H
#define GP_SOBOL_H

#include <stdint.h>

enum { GP_SOBOL_DIMENSIONS_MAX = 64 };

/* Set unit[dimensions] to point `index` of the scrambled sequence, in the open interval (0, 1). All
 * arguments but the index and the number of dimensions select the scrambling, as in gp_rng_draw().
 * `dimensions` is at most GP_SOBOL_DIMENSIONS_MAX. */
void gp_sobol_point(uint64_t seed, uint32_t stream, uint32_t when, uint32_t index, uint32_t dimensions,
                    double *unit);

/* Return a coordinate of the sequence without scrambling, times 2^32; points are in Gray code
 * order. */
uint32_t gp_sobol_word(uint32_t dimension, uint32_t index);

#endif
