/* Fit the model of a search, and choose the next point by it.
 *
 * The model sees one level: the trials that are done, or with early stopping the highest rung with
 * enough values. Its hyperparameters depend only on the observations of that level and their order:
 * the model is fitted to growing prefixes of the observations, and each fit continues the one
 * before. A search that repeats a history therefore has the same hyperparameters, whenever it
 * asks. */
#include "common/search/bayes.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/memory/alloc.h"
#include "common/base/rng.h"
#include "common/search/acquire.h"

enum {
    FIT_ROWS_MAX = 128,     /* observations in a fit of the hyperparameters */
    FIT_BEST = 64,          /* best observations among them */
    MODEL_ROWS_MAX = 400,   /* observations in the model */
    MODEL_BEST = 150,       /* best observations among them */
    PENDING_MAX = 100,      /* pending trials in the model */
    EACH_UNTIL = 100,       /* up to here each observation leads to a fit, then 2 % more do */
    FIT_EVALUATIONS = 12,   /* evaluations of the likelihood in a fit */
    FIRST_EVALUATIONS = 60, /* the same for a fit from the prior */
    RESTART_EVERY = 16,     /* every 16th fit also starts from the prior */
    BOUND_EVERY = 4,        /* every fourth proposal of a large space maximizes a confidence bound */
    BOUND_REST = 8,         /* trials after such a proposal, which make use of its value */
};

/* Range into which the worse half of the values is squeezed, in interquartile ranges. In a small
 * space, the model cannot resolve the cliff between good trainings and trainings that diverge; a
 * stronger squeeze lowers it. */
#define SQUEEZE       1.5
#define SQUEEZE_SMALL 0.5

/* Doubt about the target of a failed trial, see gp_regression_add(). A trial may fail by chance at
 * a good point; with the worst value as an exact target, the model would have to bend around it.
 * Several failures beside each other still keep the search out of their region. */
#define DOUBT_FAILED 1.0

/* Prior of the noise in a small space, where no value is refined to many digits. */
#define NOISE_MEAN_SMALL      (-5.0)
#define NOISE_DEVIATION_SMALL 2.0

/* Observations of one level. */
typedef struct sample {
    uint32_t *trials; /* [count] */
    double *costs;    /* [count] low is good; NaN: the trial failed */
    double *targets;  /* [count] standardized */
    uint32_t count;
    double squeeze; /* SQUEEZE or SQUEEZE_SMALL */
} sample;

static void sample_deinit(sample *s)
{
    gp_free(s->trials);
    gp_free(s->costs);
    gp_free(s->targets);
}

/* Return whether all points of the space are rated for a proposal. */
static bool is_small(const gp_search *search)
{
    return search->points <= GP_ACQUIRE_ALL_MAX;
}

/* Return the number of observations that a model needs. */
static uint32_t observations_min(const gp_search *search)
{
    const uint32_t size = search->space->count + (is_small(search) ? 1 : 4);

    return size < 16 ? size : 16;
}

uint32_t search_design_size(const gp_search *search)
{
    const uint32_t wanted = observations_min(search), half = (search->planned + 1) / 2;

    return wanted < half ? wanted : half;
}

/* ---- observations ---- */

/* Return whether an observation belongs to a level. The observation of a failed trial belongs to
 * all levels that the trial has not reached. */
static bool belongs(const gp_search *search, const search_observation *o, uint32_t level)
{
    return isnan(o->cost) ? search->trials[o->trial - 1].rungs <= level : o->level == level;
}

/* Choose the level with enough observations: the highest with two for each hyperparameter, or else
 * the lowest. */
static uint32_t choose_level(const gp_search *search)
{
    uint32_t count[GP_ASHA_RUNGS_MAX + 1] = { 0 };

    for (uint32_t i = 0; i < search->observation_count; i++)
        if (!isnan(search->observations[i].cost))
            count[search->observations[i].level]++;
    for (uint32_t level = search->asha.rung_count; level > 0; level--)
        if (count[level] >= 2 * (search->space->count + 1))
            return level;
    return 0;
}

static gp_status sample_init(sample *s, const gp_search *search, uint32_t level, gp_error *err)
{
    const uint32_t limit = search->observation_count;

    *s = (sample){ .trials = gp_calloc(limit, sizeof(*s->trials)),
                   .costs = gp_calloc(limit, sizeof(*s->costs)),
                   .targets = gp_calloc(limit, sizeof(*s->targets)),
                   .squeeze = is_small(search) ? SQUEEZE_SMALL : SQUEEZE };
    if (s->trials == NULL || s->costs == NULL || s->targets == NULL) {
        sample_deinit(s);
        return gp_fail(err, GP_ENOMEM, "no memory for %u observations", limit);
    }
    for (uint32_t i = 0; i < limit; i++)
        if (belongs(search, &search->observations[i], level)) {
            s->trials[s->count] = search->observations[i].trial;
            s->costs[s->count++] = search->observations[i].cost;
        }
    return GP_OK;
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Set the targets of the first `count` observations: failed trials count as the worst value, the
 * worse half is squeezed, and the result has mean 0 and variance 1. Return false if all have
 * failed. */
static bool standardize(sample *s, uint32_t count)
{
    double *sorted = s->targets, sum = 0.0, squares = 0.0;
    uint32_t valid = 0;

    for (uint32_t i = 0; i < count; i++)
        if (!isnan(s->costs[i]))
            sorted[valid++] = s->costs[i];
    if (valid == 0)
        return false;
    qsort(sorted, valid, sizeof(*sorted), compare);
    const double worst = sorted[valid - 1], median = sorted[valid / 2];
    const double range = s->squeeze * fmax(sorted[valid * 3 / 4] - sorted[valid / 4], median - sorted[0]);

    for (uint32_t i = 0; i < count; i++) {
        const double value = isnan(s->costs[i]) ? worst : s->costs[i];

        s->targets[i] =
            value > median && range > 0.0 ? median - range * expm1((median - value) / range) : value;
        sum += s->targets[i];
    }
    for (uint32_t i = 0; i < count; i++)
        squares += (s->targets[i] - sum / count) * (s->targets[i] - sum / count);
    const double deviation = sqrt(squares / count);

    for (uint32_t i = 0; i < count; i++)
        s->targets[i] = deviation > 0.0 ? (s->targets[i] - sum / count) / deviation : 0.0;
    return true;
}

/* Row of a model, and its sort key: the target, or a random number. */
typedef struct row_key {
    double key;
    uint32_t row;
} row_key;

static int compare_keys(const void *a, const void *b)
{
    const row_key *x = a, *y = b;

    return x->key != y->key ? (x->key > y->key) - (x->key < y->key) : (x->row > y->row) - (x->row < y->row);
}

/* Add the first `count` observations to a model. If there are more than rows_max, add the `best`
 * best ones, and a random choice of the others. */
static gp_status add_rows(const gp_search *search, const sample *s, uint32_t count, uint32_t best,
                          uint32_t rows_max, gp_regression *model, gp_error *err)
{
    row_key *keys = gp_calloc(count, sizeof(*keys));
    double unit[GP_SEARCH_PARAMETERS_MAX];

    if (keys == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for %u observations", count);
    for (uint32_t i = 0; i < count; i++)
        keys[i] = (row_key){ s->targets[i], i };
    if (count > rows_max) {
        qsort(keys, count, sizeof(*keys), compare_keys);
        for (uint32_t i = best; i < count; i++) {
            uint32_t word[4];

            gp_rng_draw(word, search->options.seed, gp_rng_stream(GP_RNG_SEARCH, SEARCH_ROWS), count,
                        rows_max, keys[i].row);
            keys[i].key = word[0];
        }
        qsort(keys + best, count - best, sizeof(*keys), compare_keys);
        count = rows_max;
    }
    for (uint32_t i = 0; i < count; i++) {
        gp_space_encode(search->space, search_point(search, s->trials[keys[i].row]), unit);
        gp_regression_add(model, unit, s->targets[keys[i].row],
                          isnan(s->costs[keys[i].row]) ? DOUBT_FAILED : 0.0);
    }
    gp_free(keys);
    return GP_OK;
}

/* ---- model ---- */

static gp_status model_init(const gp_search *search, uint32_t rows, gp_regression *model, gp_error *err)
{
    gp_status status = gp_regression_init(model, rows, search->space->count, err);

    if (status == GP_OK && is_small(search)) {
        model->noise_mean = NOISE_MEAN_SMALL;
        model->noise_deviation = NOISE_DEVIATION_SMALL;
    }
    for (uint32_t k = 0; status == GP_OK && k < search->space->count; k++)
        model->category[k] =
            search->space->parameters[k].kind == GP_SPACE_LIST && !search->space->parameters[k].ordered;
    return status;
}

/* Continue the sequence of fits up to the first `count` observations. A method that does not
 * propose by the model needs no sequence: one fit to all observations is enough. */
static gp_status fit(gp_search *search, sample *s, uint32_t level, uint32_t count, gp_error *err)
{
    const bool once = search->options.method != GP_SEARCH_BAYES;
    search_fit *last = &search->fit;
    gp_status status = GP_OK;

    if (last->level != level || once)
        *last = (search_fit){ .level = level };
    while (status == GP_OK && last->count < count) {
        uint32_t next = count;
        gp_regression model;

        if (!once && last->count < 2)
            next = 2;
        else if (!once)
            next = last->count + (last->count < EACH_UNTIL ? 1 : last->count / 50);
        if (next > count)
            break;
        status = model_init(search, next < FIT_ROWS_MAX ? next : FIT_ROWS_MAX, &model, err);
        if (status != GP_OK)
            break;
        if (standardize(s, next))
            status = add_rows(search, s, next, FIT_BEST, FIT_ROWS_MAX, &model, err);
        if (last->count == 0)
            gp_regression_prior(&model, last->theta);
        memcpy(model.theta, last->theta, sizeof(model.theta));
        if (status == GP_OK && model.count > 0)
            gp_regression_fit(&model, last->fits == 0 ? FIRST_EVALUATIONS : FIT_EVALUATIONS,
                              last->fits % RESTART_EVERY == RESTART_EVERY - 1);
        if (status == GP_OK) {
            memcpy(last->theta, model.theta, sizeof(model.theta));
            last->count = next;
            last->fits++;
        }
        gp_regression_deinit(&model);
    }
    return status;
}

/* Add the trials that have no observation at the level, the newest ones first. */
static gp_status add_pending(const gp_search *search, const sample *s, gp_regression *model, gp_error *err)
{
    bool *seen = gp_calloc(search->trial_count + 1, sizeof(*seen));
    double unit[GP_SEARCH_PARAMETERS_MAX];

    if (seen == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for %u trials", search->trial_count);
    for (uint32_t i = 0; i < s->count; i++)
        seen[s->trials[i]] = true;
    for (uint32_t trial = search->trial_count; trial > 0 && model->pending < PENDING_MAX; trial--) {
        if (seen[trial])
            continue;
        gp_space_encode(search->space, search_point(search, trial), unit);
        gp_regression_add_pending(model, unit);
    }
    gp_free(seen);
    return GP_OK;
}

gp_status search_model(gp_search *search, bool pending, gp_regression *model, uint32_t *incumbent,
                       gp_error *err)
{
    const uint32_t level = choose_level(search);
    sample s;
    gp_status status = sample_init(&s, search, level, err);

    if (status != GP_OK)
        return status;
    const uint32_t least = pending ? search_design_size(search) : observations_min(search);

    if (s.count < least || s.count < 2 || !standardize(&s, s.count))
        status = gp_fail(err, GP_ENOENT, "too few trials have a value");
    if (status == GP_OK)
        status = fit(search, &s, level, s.count, err);
    if (status == GP_OK)
        status = model_init(search, (s.count < MODEL_ROWS_MAX ? s.count : MODEL_ROWS_MAX) + PENDING_MAX,
                            model, err);
    if (status != GP_OK) {
        sample_deinit(&s);
        return status;
    }
    standardize(&s, s.count);
    status = add_rows(search, &s, s.count, MODEL_BEST, MODEL_ROWS_MAX, model, err);
    if (status == GP_OK) {
        memcpy(model->theta, search->fit.theta, sizeof(model->theta));
        gp_regression_condition(model);
        *incumbent = 0;
        for (uint32_t i = 1; i < model->count; i++)
            if (model->targets[i] < model->targets[*incumbent])
                *incumbent = i;
        if (pending)
            status = add_pending(search, &s, model, err);
    }
    if (status != GP_OK)
        gp_regression_deinit(model);
    sample_deinit(&s);
    return status;
}

/* Return whether the next trial explores: its point has the largest confidence bound, even where no
 * improvement is expected. The last trials of a search do not explore: no trial follows that could
 * use their values. */
static bool explores(const gp_search *search)
{
    const uint32_t trial = search->trial_count + 1;

    return !is_small(search) && trial % BOUND_EVERY == 0 && trial + BOUND_REST <= search->planned;
}

static bool is_used(void *context, const double *point)
{
    return search_is_used(context, point);
}

gp_status search_bayes(gp_search *search, double *point, gp_error *err)
{
    double incumbent[GP_SEARCH_PARAMETERS_MAX], deviation;
    const double *points[1] = { incumbent };
    gp_regression model;
    uint32_t row;
    gp_status status = search_model(search, true, &model, &row, err);

    if (status != GP_OK)
        return status;
    gp_acquisition acquisition = { .space = search->space,
                                   .model = &model,
                                   .criterion =
                                       explores(search) ? GP_CONFIDENCE_BOUND : GP_EXPECTED_IMPROVEMENT,
                                   .incumbent = incumbent,
                                   .seed = search->options.seed,
                                   .stream = gp_rng_stream(GP_RNG_SEARCH, SEARCH_CANDIDATES),
                                   .when = search->trial_count + 1,
                                   .is_used = is_used,
                                   .context = search };

    for (uint32_t k = 0; k < search->space->count; k++)
        incumbent[k] = model.inputs[(size_t)k * model.stride + row];
    gp_regression_predict(&model, points, 1, &acquisition.target, &deviation);
    status = gp_acquire(&acquisition, point, err);
    gp_regression_deinit(&model);
    return status;
}
