/* Minimization of a smooth function in a box: BFGS with projection (Nocedal, Wright: "Numerical
 * Optimization", 2006, chapters 6 and 16.7). */
#ifndef GP_MINIMIZE_H
#define GP_MINIMIZE_H

#include <stdint.h>

enum { GP_MINIMIZE_DIMENSIONS_MAX = 66 };

/* Return the value at x, and set gradient[count]. A value that is not finite marks an invalid x. */
typedef double (*gp_smooth_fn)(void *context, const double *x, double *gradient);

/* Lower a function from a starting point.
 *   x                [count] start, replaced by the best point
 *   low, high        [count] box
 *   evaluations_max  limit for calls of `function`
 * Return the value at x; not finite: the start is invalid. */
double gp_minimize(gp_smooth_fn function, void *context, double *x, const double *low, const double *high,
                   uint32_t count, uint32_t evaluations_max);

#endif
