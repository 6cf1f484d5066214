/* Implement acquire.h. */
#include "common/search/acquire.h"

#include <math.h>
#include <string.h>

#include "common/base/memory/alloc.h"
#include "common/base/rng.h"
#include "common/search/minimize.h"
#include "common/search/sobol.h"

enum {
    CANDIDATES_WIDE = 1000, /* Sobol points */
    CANDIDATES_NEAR = 200,  /* points around the incumbent */
    STARTS = 8,             /* candidates that are refined */
    EVALUATIONS_MAX = 30,   /* of a refinement by gradient */
    ROUNDS = 2,             /* rounds of a refinement: by gradient, then by neighbours */
    NEIGHBOURS_MAX = 16,    /* values of a parameter that are tried one by one */
};

#define KAPPA 4.0

typedef struct candidate {
    double unit[GP_SEARCH_PARAMETERS_MAX]; /* coordinates of a point of the space */
    double cost;                           /* minus the criterion */
} candidate;

/* ---- criteria ---- */

double gp_log_improvement(double z, double *slope)
{
    static const double log_density = -0.91893853320467274178; /* log(1 / sqrt(2 pi)) */
    double rest = 0.0;

    if (z > -5.0) {
        const double density = exp(log_density - 0.5 * z * z), below = 0.5 * erfc(-z * M_SQRT1_2);
        const double improvement = density + z * below;

        if (slope != NULL)
            *slope = below / improvement;
        return log(improvement);
    }

    /* With t = -z, Mills' ratio Phi(-t) / phi(t) is the continued fraction 1 / (t + rest). There,
     * rest is 1 / (t + 2 / (t + 3 / ...)). The improvement is phi(t) * rest / (t + rest), in which
     * nothing cancels. */
    for (int k = 40; k > 0; k--)
        rest = k / (rest - z);
    if (slope != NULL)
        *slope = 1.0 / rest;
    return log_density - 0.5 * z * z + log(rest / (rest - z));
}

/* Return the cost of a prediction, and its derivatives. */
static double cost(const gp_acquisition *a, double mean, double deviation, double *by_mean,
                   double *by_deviation)
{
    double slope;

    if (a->criterion == GP_CONFIDENCE_BOUND) {
        *by_mean = 1.0;
        *by_deviation = -KAPPA;
        return mean - KAPPA * deviation;
    }

    /* log EI = log(deviation) + log_improvement(z), z = (target - mean) / deviation. */
    const double z = (a->target - mean) / deviation;
    const double value = log(deviation) + gp_log_improvement(z, &slope);

    *by_mean = slope / deviation;
    *by_deviation = (z * slope - 1.0) / deviation;
    return -value;
}

/* Set the costs of candidates. */
static void rate(const gp_acquisition *a, candidate *candidates, uint32_t count)
{
    for (uint32_t first = 0; first < count; first += GP_REGRESSION_BATCH) {
        const uint32_t batch = count - first < GP_REGRESSION_BATCH ? count - first : GP_REGRESSION_BATCH;
        const double *points[GP_REGRESSION_BATCH];
        double means[GP_REGRESSION_BATCH], deviations[GP_REGRESSION_BATCH], ignored;

        for (uint32_t i = 0; i < batch; i++)
            points[i] = candidates[first + i].unit;
        gp_regression_predict(a->model, points, batch, means, deviations);
        for (uint32_t i = 0; i < batch; i++)
            candidates[first + i].cost = cost(a, means[i], deviations[i], &ignored, &ignored);
    }
}

/* ---- candidates ---- */

/* Move coordinates to those of the nearest point of the space. */
static void snap(const gp_space *space, double *unit)
{
    double point[GP_SEARCH_PARAMETERS_MAX];

    gp_space_decode(space, unit, point);
    gp_space_encode(space, point, unit);
}

/* Draw a candidate around the incumbent: each coordinate changes with a probability, by a normal
 * distance of a random scale. Unordered lists take any value. */
static void draw_near(const gp_acquisition *a, uint32_t index, double *unit)
{
    const uint32_t count = a->space->count;
    uint32_t word[4];

    gp_rng_draw(word, a->seed, a->stream, a->when, index, GP_SEARCH_PARAMETERS_MAX);
    const double scale = pow(10.0, -1.0 - 2.0 * gp_rng_uniform(word[0]));
    const double share = index % 2 == 0 ? 1.0 : 1.5 / count;
    const uint32_t always = word[1] % count;

    for (uint32_t k = 0; k < count; k++) {
        const gp_space_parameter *parameter = &a->space->parameters[k];
        double normal[2];

        gp_rng_draw(word, a->seed, a->stream, a->when, index, k);
        unit[k] = a->incumbent[k];
        if (k != always && gp_rng_uniform(word[0]) >= share)
            continue;
        gp_rng_normal(normal, word[1], word[2]);
        if (parameter->kind == GP_SPACE_LIST && (!parameter->ordered || word[3] % 2 == 0))
            unit[k] = gp_rng_uniform(word[1]);
        else
            unit[k] += scale * normal[0] + (parameter->kind == GP_SPACE_REAL ? 0.0
                                            : normal[0] > 0                  ? 1.0
                                                                             : -1.0) /
                                               (parameter->high - parameter->low + 1.0);
        unit[k] = fmin(fmax(unit[k], 0.0), 1.0);
    }
}

/* Set the candidates and their costs. */
static void draw(const gp_acquisition *a, candidate *candidates)
{
    for (uint32_t i = 0; i < CANDIDATES_WIDE; i++)
        gp_sobol_point(a->seed, a->stream, a->when, i, a->space->count, candidates[i].unit);
    for (uint32_t i = 0; i < CANDIDATES_NEAR; i++)
        draw_near(a, i, candidates[CANDIDATES_WIDE + i].unit);
    for (uint32_t i = 0; i < CANDIDATES_WIDE + CANDIDATES_NEAR; i++)
        snap(a->space, candidates[i].unit);
    rate(a, candidates, CANDIDATES_WIDE + CANDIDATES_NEAR);
}

static double distance(const candidate *a, const candidate *b, uint32_t count)
{
    double sum = 0.0;

    for (uint32_t k = 0; k < count; k++)
        sum += (a->unit[k] - b->unit[k]) * (a->unit[k] - b->unit[k]);
    return sqrt(sum);
}

/* Move the best candidates that are not close to each other to the front; return their number. */
static uint32_t select_starts(const gp_acquisition *a, candidate *candidates, uint32_t count)
{
    uint32_t selected = 0;

    for (; selected < STARTS; selected++) {
        uint32_t best = count;

        for (uint32_t i = selected; i < count; i++) {
            bool close = best < count && candidates[i].cost >= candidates[best].cost;

            for (uint32_t k = 0; k < selected && !close; k++)
                close = distance(&candidates[i], &candidates[k], a->space->count) < 0.05;
            if (!close)
                best = i;
        }
        if (best == count)
            break;
        const candidate swapped = candidates[selected];

        candidates[selected] = candidates[best];
        candidates[best] = swapped;
    }
    return selected;
}

/* ---- refinement ---- */

/* Return whether refinement tries the values of a parameter one by one. The gradient moves the
 * other parameters. */
static bool is_enumerated(const gp_space_parameter *parameter)
{
    return parameter->kind == GP_SPACE_LIST ||
           (parameter->kind == GP_SPACE_INTEGER && parameter->high - parameter->low < NEIGHBOURS_MAX);
}

/* State of a refinement by gradient, which moves only the coordinates in `moving`. */
typedef struct refinement {
    const gp_acquisition *acquisition;
    double unit[GP_SEARCH_PARAMETERS_MAX];
    uint32_t moving[GP_SEARCH_PARAMETERS_MAX], count;
} refinement;

static double cost_at(void *context, const double *x, double *gradient)
{
    refinement *r = context;
    double mean, deviation, by_mean, by_deviation;
    double of_mean[GP_SEARCH_PARAMETERS_MAX], of_deviation[GP_SEARCH_PARAMETERS_MAX];

    for (uint32_t i = 0; i < r->count; i++)
        r->unit[r->moving[i]] = x[i];
    gp_regression_predict_gradient(r->acquisition->model, r->unit, &mean, &deviation, of_mean, of_deviation);
    const double value = cost(r->acquisition, mean, deviation, &by_mean, &by_deviation);

    for (uint32_t i = 0; i < r->count; i++)
        gradient[i] = by_mean * of_mean[r->moving[i]] + by_deviation * of_deviation[r->moving[i]];
    return value;
}

/* Lower the cost of a candidate by moving the coordinates of parameters that are not enumerated. */
static void refine_reals(const gp_acquisition *a, candidate *one)
{
    static const double low[GP_SEARCH_PARAMETERS_MAX] = { 0 };
    double high[GP_SEARCH_PARAMETERS_MAX], x[GP_SEARCH_PARAMETERS_MAX], point[GP_SEARCH_PARAMETERS_MAX];
    bool applies[GP_SEARCH_PARAMETERS_MAX];
    refinement r = { .acquisition = a };

    gp_space_decode(a->space, one->unit, point);
    memcpy(r.unit, one->unit, sizeof(r.unit));
    for (uint32_t k = 0; k < a->space->count; k++) {
        applies[k] = gp_space_applies(&a->space->parameters[k], point, applies);
        if (!applies[k] || is_enumerated(&a->space->parameters[k]))
            continue;
        high[r.count] = 1.0;
        x[r.count] = one->unit[k];
        r.moving[r.count++] = k;
    }
    if (r.count == 0)
        return;
    gp_minimize(cost_at, &r, x, low, high, r.count, EVALUATIONS_MAX);
    for (uint32_t i = 0; i < r.count; i++)
        one->unit[r.moving[i]] = x[i];
    snap(a->space, one->unit);
    rate(a, one, 1);
}

/* Replace one enumerated value by a better one. Return false if no value is better. */
static bool refine_values(const gp_acquisition *a, candidate *one)
{
    candidate neighbours[NEIGHBOURS_MAX], best = *one;
    double point[GP_SEARCH_PARAMETERS_MAX];
    bool applies[GP_SEARCH_PARAMETERS_MAX];

    gp_space_decode(a->space, one->unit, point);
    for (uint32_t k = 0; k < a->space->count; k++) {
        const gp_space_parameter *parameter = &a->space->parameters[k];
        const double values = parameter->high - parameter->low + 1.0;
        uint32_t count = 0;

        applies[k] = gp_space_applies(parameter, point, applies);
        if (!applies[k] || !is_enumerated(parameter))
            continue;
        for (int i = 0; i < NEIGHBOURS_MAX && i < values; i++) {
            /* A long list: its nearest values. */
            const double offset =
                values <= NEIGHBOURS_MAX ? i - (point[k] - parameter->low) : i - NEIGHBOURS_MAX / 2;

            neighbours[count] = *one;
            neighbours[count].unit[k] += offset / values;
            if (neighbours[count].unit[k] >= 0.0 && neighbours[count].unit[k] <= 1.0 && offset != 0.0)
                snap(a->space, neighbours[count++].unit);
        }
        rate(a, neighbours, count);
        for (uint32_t i = 0; i < count; i++)
            if (neighbours[i].cost < best.cost)
                best = neighbours[i];
    }
    if (!(best.cost < one->cost))
        return false;
    *one = best;
    return true;
}

static void refine(const gp_acquisition *a, candidate *one)
{
    for (int round = 0; round < ROUNDS; round++) {
        const candidate before = *one;

        refine_reals(a, one);
        if (one->cost > before.cost) /* snapping lost more than the gradient gained */
            *one = before;
        if (!refine_values(a, one))
            break;
    }
}

/* ---- choice ---- */

/* Get the point of the best candidate that no trial has. */
static bool take_best(const gp_acquisition *a, candidate *candidates, uint32_t count, double *point)
{
    for (;;) {
        uint32_t best = 0;

        for (uint32_t i = 1; i < count; i++)
            if (candidates[i].cost < candidates[best].cost)
                best = i;
        if (!(candidates[best].cost < INFINITY))
            return false;
        gp_space_decode(a->space, candidates[best].unit, point);
        if (!a->is_used(a->context, point))
            return true;
        candidates[best].cost = INFINITY;
    }
}

/* Get the best of all points of a small space that no trial has. */
static gp_status acquire_any(const gp_acquisition *a, uint32_t points, double *point, gp_error *err)
{
    candidate *candidates = gp_calloc(points, sizeof(*candidates));
    uint32_t count = 0;

    if (candidates == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for %u candidates", points);
    gp_space_first(a->space, point);
    do {
        if (!a->is_used(a->context, point))
            gp_space_encode(a->space, point, candidates[count++].unit);
    } while (gp_space_next(a->space, point));
    rate(a, candidates, count);
    const bool found = count > 0 && take_best(a, candidates, count, point);

    gp_free(candidates);
    return found ? GP_OK : gp_fail(err, GP_ENOENT, "all points have been tried");
}

gp_status gp_acquire(const gp_acquisition *acquisition, double *point, gp_error *err)
{
    const uint64_t points = gp_space_points(acquisition->space, GP_ACQUIRE_ALL_MAX + 1);

    if (points <= GP_ACQUIRE_ALL_MAX)
        return acquire_any(acquisition, (uint32_t)points, point, err);
    const uint32_t count = CANDIDATES_WIDE + CANDIDATES_NEAR;
    candidate *candidates = gp_calloc(count + STARTS, sizeof(*candidates));

    if (candidates == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for %u candidates", count);
    draw(acquisition, candidates);
    const uint32_t starts = select_starts(acquisition, candidates, count);

    for (uint32_t i = 0; i < starts; i++) {
        candidates[count + i] = candidates[i];
        refine(acquisition, &candidates[count + i]);
    }
    const bool found = take_best(acquisition, candidates, count + starts, point);

    gp_free(candidates);
    return found ? GP_OK : gp_fail(err, GP_ENOENT, "all candidates have been tried");
}
