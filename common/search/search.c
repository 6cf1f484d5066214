/* A search: its trials, and the choice of the next point. search.h describes the interface. */
#include "common/search/bayes.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "common/base/memory/alloc.h"
#include "common/base/memory/hash.h"
#include "common/base/rng.h"
#include "common/search/sobol.h"

/* Random draws for one proposal before the points are enumerated. */
enum { DRAWS_MAX = 64 };

void search_set_planned(gp_search *search, uint32_t trials)
{
    search->planned = trials < search->options.trials_max ? trials : search->options.trials_max;
}

gp_status gp_search_new(gp_search **out, const char *space, const gp_search_options *options, gp_error *err)
{
    static const gp_search_options defaults;
    gp_search *search = gp_calloc(1, sizeof(*search));

    if (search == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for a search");
    search->options = options != NULL ? *options : defaults;
    options = &search->options;
    if (options->trials_max == 0)
        search->options.trials_max = GP_SEARCH_TRIALS_MAX;
    search->planned = options->trials_max;
    gp_status status = gp_space_parse(&search->space, space, options->type_of, options->context, err);

    if (status == GP_OK && options->method > GP_SEARCH_GRID)
        status = gp_fail(err, GP_EINVAL, "unknown search method %d", (int)options->method);
    if (status == GP_OK && options->trials_max > GP_SEARCH_TRIALS_MAX)
        status = gp_fail(err, GP_ELIMIT, "%" PRIu32 " trials, at most %d are supported", options->trials_max,
                         GP_SEARCH_TRIALS_MAX);
    if (status == GP_OK && options->asha_eta != 0)
        status = gp_asha_init(&search->asha, options->asha_eta,
                              options->epochs_min == 0 ? 1 : options->epochs_min, options->epochs_max, err);
    for (uint32_t i = 0; status == GP_OK && options->method == GP_SEARCH_GRID && i < search->space->count;
         i++)
        if (search->space->parameters[i].kind == GP_SPACE_REAL)
            status = gp_fail(err, GP_EINVAL,
                             "a grid needs a list or a step for each parameter, but %s is a real range; "
                             "write %s=LO:STEP:HI",
                             search->space->parameters[i].name, search->space->parameters[i].name);
    if (status == GP_OK) {
        search->points = gp_space_points(search->space, GP_SEARCH_TRIALS_MAX + 1);
        *out = search;
    } else {
        gp_search_free(search);
    }
    return status;
}

void gp_search_free(gp_search *search)
{
    if (search == NULL)
        return;
    gp_asha_deinit(&search->asha);
    gp_space_free(search->space);
    gp_free(search->trials);
    gp_free(search->values);
    gp_free(search->index);
    gp_free(search->observations);
    gp_free(search);
}

/* ---- points of trials ---- */

const double *search_point(const gp_search *search, uint32_t trial)
{
    return search->values + (size_t)(trial - 1) * search->space->count;
}

/* Return the slot of the index for a point: that of the trial with an equal point, or a free
 * one. */
static uint32_t index_slot(const gp_search *search, const double *point)
{
    const size_t bytes = search->space->count * sizeof(*point);
    uint32_t slot = (uint32_t)(gp_hash_add(GP_HASH_BEGIN, point, bytes) & (search->index_size - 1));

    while (search->index[slot] != 0 && memcmp(search_point(search, search->index[slot]), point, bytes) != 0)
        slot = (slot + 1) & (search->index_size - 1);
    return slot;
}

bool search_is_used(const gp_search *search, const double *point)
{
    return search->index_size > 0 && search->index[index_slot(search, point)] != 0;
}

/* Double the index, so that at most half of it is used. */
static gp_status grow_index(gp_search *search, gp_error *err)
{
    const uint32_t size = search->index_size == 0 ? 64 : 2 * search->index_size;
    uint32_t *index = gp_calloc(size, sizeof(*index));

    if (index == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for %" PRIu32 " trials", size / 2);
    gp_free(search->index);
    search->index = index;
    search->index_size = size;
    for (uint32_t trial = 1; trial <= search->trial_count; trial++) {
        const uint32_t slot = index_slot(search, search_point(search, trial));

        if (index[slot] == 0)
            index[slot] = trial;
    }
    return GP_OK;
}

/* Append a pending trial. */
static gp_status start_trial(gp_search *search, const double *point, gp_error *err)
{
    const uint32_t count = search->trial_count;
    const size_t point_bytes = search->space->count * sizeof(*point);

    if (2 * (count + 1) > search->index_size) {
        gp_status status = grow_index(search, err);

        if (status != GP_OK)
            return status;
    }
    void *trials = gp_array_grow(search->trials, count, sizeof(*search->trials));

    if (trials != NULL)
        search->trials = trials;
    void *values = gp_array_grow(search->values, count, point_bytes);

    if (values != NULL)
        search->values = values;
    if (trials == NULL || values == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for a trial");
    memcpy(search->values + (size_t)count * search->space->count, point, point_bytes);
    search->trials[count] = (search_trial){ .state = GP_SEARCH_PENDING, .value = NAN };
    const uint32_t slot = index_slot(search, point);

    if (search->index[slot] == 0) {
        search->index[slot] = count + 1;
        search->points_used++;
    }
    search->trial_count++;
    return GP_OK;
}

/* ---- choice ---- */

void search_draw(const gp_search *search, uint32_t purpose, uint32_t when, uint32_t position, double *unit)
{
    for (uint32_t i = 0; i < search->space->count; i += 2) {
        uint32_t word[4];

        gp_rng_draw(word, search->options.seed, gp_rng_stream(GP_RNG_SEARCH, purpose), when, position, i / 2);
        unit[i] = (double)(((uint64_t)word[0] << 32 | word[1]) >> 11) * 0x1p-53;
        if (i + 1 < search->space->count)
            unit[i + 1] = (double)(((uint64_t)word[2] << 32 | word[3]) >> 11) * 0x1p-53;
    }
}

/* Choose the first point in grid order that no trial has. The space has one. */
static void choose_grid(gp_search *search, double *point)
{
    if (search->grid_started)
        memcpy(point, search->grid, search->space->count * sizeof(*point));
    else
        gp_space_first(search->space, point);
    while (search_is_used(search, point))
        gp_space_next(search->space, point);
    memcpy(search->grid, point, search->space->count * sizeof(*point));
    search->grid_started = true;
}

/* Choose a random point that no trial has, if a few draws find one. */
static void choose_random(gp_search *search, double *point)
{
    double unit[GP_SEARCH_PARAMETERS_MAX];

    for (uint32_t draw = 0; draw < DRAWS_MAX; draw++) {
        search_draw(search, SEARCH_RANDOM, search->trial_count + 1, draw, unit);
        gp_space_decode(search->space, unit, point);
        if (!search_is_used(search, point))
            return;
    }

    /* Nearly all points of a finite space are used: take the next free one. */
    if (search->points <= GP_SEARCH_TRIALS_MAX)
        while (search_is_used(search, point))
            if (!gp_space_next(search->space, point))
                gp_space_first(search->space, point);
}

/* Choose the point of a Sobol sequence with the number of the trial, unless a trial has it. */
static void choose_sobol(gp_search *search, double *point)
{
    double unit[GP_SEARCH_PARAMETERS_MAX];

    gp_sobol_point(search->options.seed, gp_rng_stream(GP_RNG_SEARCH, SEARCH_SOBOL), 0, search->trial_count,
                   search->space->count, unit);
    gp_space_decode(search->space, unit, point);
    if (search_is_used(search, point))
        choose_random(search, point);
}

static gp_status choose(gp_search *search, double *point, gp_error *err)
{
    gp_error ignored;
    gp_status status;

    switch (search->options.method) {
    case GP_SEARCH_BAYES:
        status = search_bayes(search, point, &ignored);
        if (status == GP_ENOENT) {
            choose_sobol(search, point);
            status = GP_OK;
        } else if (status != GP_OK) {
            gp_fail(err, status, "%s", ignored.message);
        }
        return status;
    case GP_SEARCH_SOBOL:
        choose_sobol(search, point);
        return GP_OK;
    case GP_SEARCH_GRID:
        choose_grid(search, point);
        return GP_OK;
    case GP_SEARCH_RANDOM:
        break;
    }
    choose_random(search, point);
    return GP_OK;
}

gp_status gp_search_ask(gp_search *search, uint32_t *trial, char **values, gp_error *err)
{
    double point[GP_SEARCH_PARAMETERS_MAX];
    char *text;

    if (search->trial_count >= search->options.trials_max)
        return gp_fail(err, GP_ENOENT, "no trial is left: all %" PRIu32 " were started",
                       search->options.trials_max);
    if (search->points <= GP_SEARCH_TRIALS_MAX && search->points_used == search->points)
        return gp_fail(err, GP_ENOENT, "no trial is left: all %" PRIu64 " points of the space were tried",
                       search->points);
    gp_status status = choose(search, point, err);

    if (status == GP_OK)
        status = gp_space_point_text(search->space, point, &text, err);
    if (status != GP_OK)
        return status;
    status = start_trial(search, point, err);
    if (status == GP_OK) {
        *trial = search->trial_count;
        *values = text;
    } else {
        gp_free(text);
    }
    return status;
}

gp_status gp_search_add(gp_search *search, const char *values, uint32_t *trial, gp_error *err)
{
    double point[GP_SEARCH_PARAMETERS_MAX];

    if (search->trial_count >= search->options.trials_max)
        return gp_fail(err, GP_ELIMIT, "no trial is left: all %" PRIu32 " were started",
                       search->options.trials_max);
    gp_status status = gp_space_point_parse(search->space, values, point, err);

    if (status == GP_OK)
        status = start_trial(search, point, err);
    if (status == GP_OK && trial != NULL)
        *trial = search->trial_count;
    return status;
}

/* ---- values ---- */

/* Append an observation. */
static gp_status observe(gp_search *search, uint32_t trial, uint32_t level, double cost, gp_error *err)
{
    void *grown =
        gp_array_grow(search->observations, search->observation_count, sizeof(*search->observations));

    if (grown == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for the value of trial %" PRIu32, trial);
    search->observations = grown;
    search->observations[search->observation_count++] = (search_observation){ trial, level, cost };
    return GP_OK;
}

/* Find a trial that has not ended. */
static gp_status find_pending(gp_search *search, uint32_t trial, search_trial **out, gp_error *err)
{
    if (trial == 0 || trial > search->trial_count)
        return gp_fail(err, GP_EINVAL, "no trial %" PRIu32 "; %" PRIu32 " were started", trial,
                       search->trial_count);
    if (search->trials[trial - 1].state != GP_SEARCH_PENDING)
        return gp_fail(err, GP_ESTATE, "trial %" PRIu32 " has ended before", trial);
    *out = &search->trials[trial - 1];
    return GP_OK;
}

gp_status gp_search_report(gp_search *search, uint32_t trial, uint32_t epoch, double value, bool *stop,
                           gp_error *err)
{
    search_trial *reported;
    gp_status status = find_pending(search, trial, &reported, err);

    if (status == GP_OK && epoch == 0)
        status = gp_fail(err, GP_EINVAL, "trial %" PRIu32 " reports epoch 0; epochs begin with 1", trial);
    if (status != GP_OK)
        return status;
    const uint32_t reached = gp_asha_reached(&search->asha, epoch);

    if (search->asha.rung_count > 0 && !isfinite(value)) {
        reported->stop = true;
    } else if (reached > reported->rungs && !reported->stop) {
        /* A caller that reports some epochs only has its value at the highest rung reached. */
        const double cost = search->options.minimize ? value : -value;
        bool stopped;

        status = observe(search, trial, reached - 1, cost, err);
        if (status != GP_OK)
            return status;
        status = gp_asha_record(&search->asha, reached - 1, -cost, &stopped, err);
        if (status != GP_OK) {
            search->observation_count--;
            return status;
        }
        reported->stop = stopped;
        reported->rungs = reached;
    }
    if (status == GP_OK)
        *stop = reported->stop;
    return status;
}

gp_status gp_search_tell(gp_search *search, uint32_t trial, gp_search_state state, double value,
                         gp_error *err)
{
    search_trial *told;
    gp_status status = find_pending(search, trial, &told, err);

    if (status != GP_OK)
        return status;
    if (state != GP_SEARCH_DONE && state != GP_SEARCH_STOPPED && state != GP_SEARCH_FAILED)
        return gp_fail(err, GP_EINVAL, "invalid final state %d of trial %" PRIu32, (int)state, trial);
    if (state == GP_SEARCH_DONE && !isfinite(value))
        return gp_fail(err, GP_EINVAL, "trial %" PRIu32 " has the value %g; report it as failed", trial,
                       value);
    const bool has_value = state == GP_SEARCH_DONE || (state == GP_SEARCH_STOPPED && isfinite(value));

    /* Record the final value. With early stopping, the value of a stopped trial counts at its rungs
     * only. */
    if (state == GP_SEARCH_FAILED)
        status = observe(search, trial, search->asha.rung_count, NAN, err);
    else if (has_value && (state == GP_SEARCH_DONE || search->asha.rung_count == 0))
        status =
            observe(search, trial, search->asha.rung_count, search->options.minimize ? value : -value, err);
    if (status != GP_OK)
        return status;
    told->state = state;
    told->value = has_value ? value : NAN;
    return GP_OK;
}

gp_status gp_search_best(const gp_search *search, uint32_t *trial, double *value, char **values,
                         gp_error *err)
{
    uint32_t best = 0;
    char *text = NULL;

    for (uint32_t i = 0; i < search->trial_count; i++) {
        const search_trial *one = &search->trials[i];

        if (one->state == GP_SEARCH_DONE &&
            (best == 0 || (search->options.minimize ? one->value < search->trials[best - 1].value
                                                    : one->value > search->trials[best - 1].value)))
            best = i + 1;
    }
    if (best == 0)
        return gp_fail(err, GP_ENOENT, "no trial of the search is done");
    gp_status status =
        values == NULL ? GP_OK : gp_space_point_text(search->space, search_point(search, best), &text, err);

    if (status != GP_OK)
        return status;
    if (trial != NULL)
        *trial = best;
    if (value != NULL)
        *value = search->trials[best - 1].value;
    if (values != NULL)
        *values = text;
    return GP_OK;
}
