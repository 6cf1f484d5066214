/* Acquisition: rate how promising it is to evaluate a point, and find the most promising point. */
#ifndef GP_ACQUIRE_H
#define GP_ACQUIRE_H

#include "common/search/regression.h"
#include "common/search/space.h"

/* Largest number of points for which all points are rated. A larger space is searched with
 * candidates. */
enum { GP_ACQUIRE_ALL_MAX = 1000 };

/* Criterion for the next point. */
typedef enum gp_criterion {
    GP_EXPECTED_IMPROVEMENT,
    GP_CONFIDENCE_BOUND, /* mean - 4 deviations; escapes from a local minimum */
} gp_criterion;

/* Return the logarithm of the expected improvement on 0 of a normal variable with mean -z and
 * deviation 1: log(z Phi(z) + phi(z)). It is accurate for all z (Ament et al., "Unexpected
 * Improvements to Expected Improvement", NeurIPS 2023).
 *   slope  set to the derivative; NULL: not needed */
double gp_log_improvement(double z, double *slope);

/* Inputs to the choice of the next point. */
typedef struct gp_acquisition {
    const gp_space *space;
    gp_regression *model; /* conditioned, with pending points; low targets are good */
    gp_criterion criterion;
    const double *incumbent; /* coordinates of the best point */
    double target;           /* mean of the incumbent; improvements are relative to it */
    uint64_t seed;           /* of the candidates, with `when` */
    uint32_t stream, when;

    /* Return whether a trial has the point. */
    bool (*is_used)(void *context, const double *point);
    void *context;
} gp_acquisition;

/* Maximize the criterion over the points of the space that no trial has. A space of at most
 * GP_ACQUIRE_ALL_MAX points is searched completely. Otherwise, candidates are scrambled Sobol
 * points and points around the incumbent, and the best ones are refined by their gradient.
 * GP_ENOENT: all candidates are used. */
gp_status gp_acquire(const gp_acquisition *acquisition, double *point, gp_error *err);

#endif
