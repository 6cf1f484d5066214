/* Implement minimize.h. */
#include "common/search/minimize.h"

#include <assert.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

/* Smallest relative decrease of the function that is worth another step. */
#define DECREASE_MIN 1e-10

/* Length of the first step, which has no curvature yet. */
#define FIRST_STEP 0.1

/* State of a minimization. */
typedef struct minimizer {
    gp_smooth_fn function;
    void *context;
    const double *low, *high;
    uint32_t count, evaluations_left;
    double x[GP_MINIMIZE_DIMENSIONS_MAX], gradient[GP_MINIMIZE_DIMENSIONS_MAX], value;
    double inverse[GP_MINIMIZE_DIMENSIONS_MAX][GP_MINIMIZE_DIMENSIONS_MAX]; /* of the Hessian */
    bool curved; /* `inverse` has seen a step; false: it is the identity */
} minimizer;

static double dot(const double *a, const double *b, uint32_t count)
{
    double sum = 0.0;

    for (uint32_t i = 0; i < count; i++)
        sum += a[i] * b[i];
    return sum;
}

static void reset(minimizer *m, double scale)
{
    memset(m->inverse, 0, sizeof(m->inverse));
    for (uint32_t i = 0; i < m->count; i++)
        m->inverse[i][i] = scale;
    m->curved = false;
}

/* Set the direction of the next step: zero in the coordinates that the gradient pushes out of the
 * box. Return its slope; 0: no descent is possible. */
static double set_direction(minimizer *m, double *direction)
{
    bool blocked[GP_MINIMIZE_DIMENSIONS_MAX];

    for (uint32_t i = 0; i < m->count; i++)
        blocked[i] =
            (m->x[i] <= m->low[i] && m->gradient[i] > 0.0) || (m->x[i] >= m->high[i] && m->gradient[i] < 0.0);
    for (int again = 0; again < 2; again++) {
        for (uint32_t i = 0; i < m->count; i++) {
            direction[i] = 0.0;
            for (uint32_t k = 0; k < m->count && !blocked[i]; k++)
                if (!blocked[k])
                    direction[i] -= m->inverse[i][k] * m->gradient[k];
        }
        const double slope = dot(direction, m->gradient, m->count);

        if (slope < 0.0)
            return slope;
        reset(m, 1.0);
    }
    return 0.0;
}

/* Update the inverse Hessian after a step. */
static void update(minimizer *m, const double *step, const double *change)
{
    double product[GP_MINIMIZE_DIMENSIONS_MAX];
    const double curvature = dot(step, change, m->count), square = dot(change, change, m->count);

    if (!(curvature > 1e-12 * sqrt(square * dot(step, step, m->count))))
        return;
    if (!m->curved)
        reset(m, curvature / square);
    m->curved = true;
    for (uint32_t i = 0; i < m->count; i++)
        product[i] = dot(m->inverse[i], change, m->count);
    const double factor = (1.0 + dot(change, product, m->count) / curvature) / curvature;

    for (uint32_t i = 0; i < m->count; i++)
        for (uint32_t k = 0; k < m->count; k++)
            m->inverse[i][k] +=
                factor * step[i] * step[k] - (product[i] * step[k] + step[i] * product[k]) / curvature;
}

/* Search along the direction, projected into the box, until the function decreases enough (Armijo).
 * Return false if no step decreases it. */
static bool line_search(minimizer *m, const double *direction)
{
    double x[GP_MINIMIZE_DIMENSIONS_MAX], gradient[GP_MINIMIZE_DIMENSIONS_MAX],
        step[GP_MINIMIZE_DIMENSIONS_MAX];
    const double length = sqrt(dot(direction, direction, m->count));
    double scale = m->curved || length < FIRST_STEP ? 1.0 : FIRST_STEP / length;

    for (; m->evaluations_left > 0; scale *= 0.3) {
        for (uint32_t i = 0; i < m->count; i++) {
            const double moved = m->x[i] + scale * direction[i];

            x[i] = moved < m->low[i] ? m->low[i] : moved > m->high[i] ? m->high[i] : moved;
            step[i] = x[i] - m->x[i];
        }
        const double expected = dot(step, m->gradient, m->count);

        if (!(expected < -1e-14 * (1.0 + fabs(m->value))))
            return false;
        const double value = m->function(m->context, x, gradient);

        m->evaluations_left--;
        if (!isfinite(value) || value > m->value + 1e-4 * expected)
            continue;
        const double decrease = m->value - value;

        for (uint32_t i = 0; i < m->count; i++)
            m->gradient[i] = gradient[i] - m->gradient[i];
        update(m, step, m->gradient);
        memcpy(m->gradient, gradient, m->count * sizeof(*gradient));
        memcpy(m->x, x, m->count * sizeof(*x));
        m->value = value;
        return decrease > DECREASE_MIN * (1.0 + fabs(value));
    }
    return false;
}

double gp_minimize(gp_smooth_fn function, void *context, double *x, const double *low, const double *high,
                   uint32_t count, uint32_t evaluations_max)
{
    minimizer m = { .function = function,
                    .context = context,
                    .low = low,
                    .high = high,
                    .count = count,
                    .evaluations_left = evaluations_max };
    double direction[GP_MINIMIZE_DIMENSIONS_MAX];

    assert(count <= GP_MINIMIZE_DIMENSIONS_MAX);
    memcpy(m.x, x, count * sizeof(*x));
    reset(&m, 1.0);
    m.value = function(context, m.x, m.gradient);
    if (isfinite(m.value))
        while (set_direction(&m, direction) < 0.0 && line_search(&m, direction))
            ;
    memcpy(x, m.x, count * sizeof(*x));
    return m.value;
}
