/* Trials of a sweep: the table, and the replay of the journal. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "client/sweep/sweep_parts.h"
#include "common/base/memory/alloc.h"

/* ---- trials ---- */

const sweep_trial *sweep_find(const sweep *s, uint32_t trial)
{
    return trial >= 1 && trial <= s->count ? trial_at(s, trial) : NULL;
}

uint32_t sweep_count(const sweep *s)
{
    return s->count;
}

uint32_t sweep_best(const sweep *s)
{
    return s->best;
}

bool sweep_has_room(const sweep *s, gp_error *err)
{
    const uint32_t active_max = sizeof(s->active) / sizeof(s->active[0]);

    if (s->count < SWEEP_TRIALS_MAX && s->active_count < active_max)
        return true;
    gp_fail(err, GP_ELIMIT,
            "the sweep has %" PRIu32 " trials, and %" PRIu32 " of them have not ended; the "
            "limits are %d and %" PRIu32,
            s->count, s->active_count, SWEEP_TRIALS_MAX, active_max);
    return false;
}

uint32_t sweep_requested(const sweep *s, const char *request)
{
    for (uint32_t trial = 1; trial <= s->count; trial++)
        if (trial_at(s, trial)->request != NULL && strcmp(trial_at(s, trial)->request, request) == 0)
            return trial;
    return 0;
}

bool sweep_can_retry(const sweep_trial *trial)
{
    return has_ended(trial) && trial->state != SWEEP_DONE && trial->repeat == 0;
}

bool sweep_is_idle(const sweep *s)
{
    return s->active_count == 0;
}

bool sweep_is_complete(const sweep *s)
{
    return sweep_is_idle(s) && s->count >= trials_planned(s);
}

static bool is_requested(const sweep_line *line)
{
    return line->request != NULL && line->request[0] != '\0';
}

bool sweep_is_extra(const sweep_line *line)
{
    return is_requested(line) || line->of > 0 || strcmp(line->how, "added") == 0;
}

gp_status sweep_trial_new(sweep *s, const sweep_line *line, gp_error *err)
{
    const bool requested = is_requested(line);
    sweep_trial *trial;
    char *values_copy, *how_copy, *request_copy;

    if (!sweep_has_room(s, err))
        return GP_ELIMIT;
    if (s->count == s->size) {
        uint32_t size = s->size == 0 ? 64 : 2 * s->size;
        sweep_trial *grown = gp_realloc_array(s->trials, size, sizeof(*grown));

        if (grown == NULL)
            return gp_fail(err, GP_ENOMEM, "no memory for %" PRIu32 " trials", size);
        s->trials = grown;
        s->size = size;
    }
    values_copy = gp_strdup(line->values);
    how_copy = gp_strdup(line->how);
    request_copy = requested ? gp_strdup(line->request) : NULL;
    if (values_copy == NULL || how_copy == NULL || (requested && request_copy == NULL)) {
        gp_free(values_copy);
        gp_free(how_copy);
        gp_free(request_copy);
        return gp_fail(err, GP_ENOMEM, "no memory for a trial");
    }
    trial = &s->trials[s->count++];
    *trial = (sweep_trial){ .attempt = 1,
                            .values = values_copy,
                            .how = how_copy,
                            .of = line->of,
                            .repeat = line->repeat,
                            .request = request_copy,
                            .value = NAN };
    s->added += sweep_is_extra(line);
    s->active[s->active_count++] = s->count;
    return GP_OK;
}

sweep_verdict sweep_trial_report(sweep *s, uint32_t number, uint32_t epoch, double value)
{
    sweep_trial *trial = trial_at(s, number);
    sweep_verdict verdict = epoch > trial->rung && trial->repeat == 0
                                ? s->config.search.report(s->config.search.context, number, epoch, value)
                                : SWEEP_NO_RUNG;

    if (verdict != SWEEP_NO_RUNG)
        trial->rung = epoch;
    return verdict;
}

/* Return whether a trial with a value is better than the best one so far. Of equal values, that of
 * the lower number wins, as in the table and in gp_search_best(). */
static bool is_best(const sweep *s, uint32_t number, double value)
{
    const double best = s->best != 0 ? trial_at(s, s->best)->value : NAN;

    return s->best == 0 || is_better(s, value, best) || (value == best && number < s->best);
}

void sweep_trial_end(sweep *s, uint32_t number, sweep_state state, uint32_t epoch, double value,
                     const char *text)
{
    sweep_trial *trial = trial_at(s, number);

    trial->state = state;
    trial->epoch = epoch;
    trial->value = value;
    if (text != NULL && text[0] != '\0')
        trial->text = gp_strdup(text); /* out of memory: the journal has it */
    s->failures = state == SWEEP_FAILED || state == SWEEP_LOST ? s->failures + 1 : 0;
    if (s->failures == 1)
        s->first_failure = number;
    if (state == SWEEP_DONE && trial->repeat == 0 && is_best(s, number, value))
        s->best = number;
    s->config.search.tell(s->config.search.context, number, state, value);
}

void sweep_trial_attempt(sweep_trial *trial, uint32_t attempt, bool lost)
{
    trial->state = SWEEP_ASKED;
    trial->attempt = attempt;
    trial->losses += lost;
    trial->interrupted = trial->known = trial->stop_sent = trial->resumed = false;
}

/* ---- replay ---- */

static gp_status contradicts(const sweep_line *line, const char *why, gp_error *err)
{
    return gp_fail(err, GP_ECORRUPT, "the journal is damaged: trial %" PRIu32 " %s", line->trial, why);
}

static gp_status replay_asked(sweep *s, const sweep_line *line, gp_error *err)
{
    gp_status status;

    if (line->trial != s->count + 1)
        return contradicts(line, "is out of order", err);
    if (is_requested(line) && sweep_requested(s, line->request) != 0)
        return contradicts(line, "repeats a request", err);
    status = s->config.search.add(s->config.search.context, line->values, sweep_is_extra(line), err);
    return status == GP_OK ? sweep_trial_new(s, line, err) : status;
}

gp_status sweep_replay(sweep *s, const sweep_line *line, gp_error *err)
{
    sweep_trial *trial;

    if (line->kind == SWEEP_LINE_ASKED)
        return replay_asked(s, line, err);
    if (line->kind == SWEEP_LINE_HALT) {
        for (uint32_t i = 0; i < s->active_count; i++)
            trial_at(s, s->active[i])->interrupted = true;
        return GP_OK;
    }
    if (line->trial < 1 || line->trial > s->count)
        return contradicts(line, "was never asked", err);
    trial = trial_at(s, line->trial);
    if (has_ended(trial))
        return contradicts(line, "has a line after its end", err);
    switch (line->kind) {
    case SWEEP_LINE_ATTEMPT:
        if (line->attempt != trial->attempt + 1 || line->attempt > SWEEP_ATTEMPTS_MAX)
            return contradicts(line, "skips an attempt", err);
        sweep_trial_attempt(trial, line->attempt, line->lost);
        break;
    case SWEEP_LINE_RUNG:
        if (line->epoch <= trial->rung)
            return contradicts(line, "repeats a rung", err);
        sweep_trial_report(s, line->trial, line->epoch, line->value);
        trial->rung = trial->epoch = line->epoch;
        trial->value = line->value;
        trial->stop |= line->stop;
        break;
    case SWEEP_LINE_STOP:
        trial->stop = true;
        break;
    default:
        sweep_trial_end(s, line->trial, line->state, line->epoch, line->value, line->text);
        for (uint32_t i = 0, kept = 0, count = s->active_count; i < count; i++) {
            s->active[kept] = s->active[i];
            kept += s->active[i] != line->trial;
            s->active_count = kept;
        }
    }
    return GP_OK;
}

/* ---- creation ---- */

gp_status sweep_new(sweep **out, const sweep_config *config, sweep_act act, void *context, gp_error *err)
{
    sweep *s;

    if (config->trials_max < 1 || config->trials_max > SWEEP_TRIALS_MAX || config->concurrent_max < 1 ||
        config->concurrent_max > SWEEP_CONCURRENT_MAX || config->workers_min < 1 ||
        config->workers_max < config->workers_min)
        return gp_fail(err, GP_EINVAL,
                       "a sweep of %" PRIu32 " trials, %" PRIu32 " at once, with %" PRIu32 " to %" PRIu32
                       " workers; must be 1 to %d, 1 to %d, and 1 or more",
                       config->trials_max, config->concurrent_max, config->workers_min, config->workers_max,
                       SWEEP_TRIALS_MAX, SWEEP_CONCURRENT_MAX);
    s = gp_calloc(1, sizeof(*s));
    if (s == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for a sweep");
    s->config = *config;
    s->act = act;
    s->context = context;
    *out = s;
    return GP_OK;
}

void sweep_free(sweep *s)
{
    if (s == NULL)
        return;
    for (uint32_t i = 0; i < s->count; i++) {
        gp_free(s->trials[i].values);
        gp_free(s->trials[i].how);
        gp_free(s->trials[i].text);
        gp_free(s->trials[i].request);
    }
    gp_free(s->trials);
    gp_free(s);
}
