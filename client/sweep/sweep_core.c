/* State machine of a sweep; sweep_core.h describes the interface. */
#include "client/sweep/sweep_core.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "client/sweep/sweep_parts.h"

/* ---- actions ---- */

/* Return whether a job of the trial may exist and has not ended. */
static bool has_job(const sweep_trial *trial)
{
    return trial->state >= SWEEP_SUBMITTED && trial->state <= SWEEP_STOPPING;
}

static uint32_t count_jobs(const sweep *s)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < s->active_count; i++)
        count += has_job(trial_at(s, s->active[i]));
    return count;
}

static void act_on(sweep *s, sweep_action_kind kind, uint32_t number, uint32_t workers)
{
    sweep_action action = {
        .kind = kind, .trial = number, .attempt = trial_at(s, number)->attempt, .workers = workers
    };

    s->act(s->context, &action);
}

/* Append a line to the journal and return its number. */
static uint64_t append(sweep *s, sweep_line line)
{
    sweep_action action = { .kind = SWEEP_APPEND, .number = ++s->number, .line = &line };

    if (line.kind != SWEEP_LINE_HALT)
        trial_at(s, line.trial)->line = s->number;
    s->act(s->context, &action);
    return s->number;
}

static void close_with(sweep *s, sweep_reason reason, const char *text)
{
    if (s->closing == SWEEP_REASON_NONE || reason == SWEEP_REASON_HALTED ||
        (reason == SWEEP_REASON_TIME && s->closing != SWEEP_REASON_HALTED)) {
        s->closing = reason;
        snprintf(s->text, sizeof(s->text), "%.*s", (int)sizeof(s->text) - 1, text != NULL ? text : "");
    }
}

/* ---- the end of a job ---- */

static void append_end(sweep *s, uint32_t number, sweep_state state, uint32_t epoch, double value,
                       const char *text)
{
    sweep_trial_end(s, number, state, epoch, value, text);
    append(s, (sweep_line){ .kind = SWEEP_LINE_END,
                            .trial = number,
                            .state = state,
                            .epoch = epoch,
                            .value = value,
                            .text = text });
}

/* Begin another attempt, or end the trial if too many were lost.
 *   reason  why the last one was lost; NULL or "": unknown */
static void attempt_again(sweep *s, uint32_t number, bool lost, const char *reason)
{
    sweep_trial *trial = trial_at(s, number);
    const bool known = reason != NULL && reason[0] != '\0';
    char text[SWEEP_TEXT_MAX];

    if ((lost && trial->losses + 1 >= SWEEP_LOSSES_MAX) || trial->attempt == SWEEP_ATTEMPTS_MAX) {
        snprintf(text, sizeof(text), "%" PRIu32 " attempts were lost%s%.150s", trial->losses + 1,
                 known ? "; the last: " : "", known ? reason : "");
        append_end(s, number, SWEEP_LOST, trial->epoch, NAN, text);
        return;
    }
    sweep_trial_attempt(trial, trial->attempt + 1, lost);
    append(s, (sweep_line){
                  .kind = SWEEP_LINE_ATTEMPT, .trial = number, .attempt = trial->attempt, .lost = lost });
}

static void stop_trial(sweep *s, uint32_t number);

/* Close the sweep and stop the running trials, but not the repeats of one that reached the goal. */
static void stop_all(sweep *s, sweep_reason reason)
{
    close_with(s, reason, NULL);
    for (uint32_t i = 0; i < s->active_count; i++)
        if (reason != SWEEP_REASON_GOAL || trial_at(s, s->active[i])->repeat == 0)
            stop_trial(s, s->active[i]);
}

bool sweep_has_goal(const sweep *s)
{
    return s->best != 0 && !isnan(s->config.goal) &&
           !is_better(s, s->config.goal, trial_at(s, s->best)->value);
}

/* Close the sweep if the best trial reached the goal, or too many trials failed. */
static void check_end(sweep *s)
{
    if (sweep_has_goal(s))
        stop_all(s, SWEEP_REASON_GOAL);
    if (s->config.failures_max > 0 && s->failures >= s->config.failures_max)
        close_with(s, SWEEP_REASON_FAILURES, trial_at(s, s->first_failure)->text);
}

static void handle_ended(sweep *s, const sweep_event *event)
{
    const uint32_t number = event->trial;
    sweep_trial *trial = trial_at(s, number);
    const bool unfinished = event->outcome == SWEEP_OUTCOME_CANCELED || event->outcome == SWEEP_OUTCOME_LOST;

    if (s->failed) { /* the next controller reads the result from the folder of the trial */
        trial->state = SWEEP_ASKED;
        return;
    }
    if (unfinished && trial->stop)
        append_end(s, number, SWEEP_STOPPED, trial->epoch, trial->value, NULL);
    else if (unfinished && trial->interrupted)
        attempt_again(s, number, false, NULL);
    else if (event->outcome == SWEEP_OUTCOME_LOST)
        attempt_again(s, number, true, event->text);
    else if (event->outcome == SWEEP_OUTCOME_CANCELED)
        append_end(s, number, SWEEP_FAILED, event->epoch, NAN, "its job was canceled");
    else if (event->outcome == SWEEP_OUTCOME_DONE && !isnan(event->value))
        append_end(s, number, SWEEP_DONE, event->epoch, event->value, NULL);
    else
        append_end(s, number, SWEEP_FAILED, event->epoch, NAN, event->text);
    if (has_ended(trial))
        check_end(s);
}

/* ---- other events ---- */

/* Decide to stop a trial, unless that is decided or the trial has ended. A trial that waits for a
 * slot ends at once. */
static void stop_trial(sweep *s, uint32_t number)
{
    sweep_trial *trial = trial_at(s, number);

    if (has_ended(trial) || trial->stop || s->failed)
        return;
    trial->stop = true;
    if (!has_job(trial) && !trial->resumed) {
        append_end(s, number, SWEEP_STOPPED, trial->epoch, trial->value, NULL);
        return;
    }
    if (has_job(trial))
        trial->state = SWEEP_STOPPING;
    append(s, (sweep_line){ .kind = SWEEP_LINE_STOP, .trial = number });
}

static void handle_value(sweep *s, const sweep_event *event)
{
    sweep_trial *trial = trial_at(s, event->trial);
    sweep_verdict verdict;

    if (trial->stop || s->failed || event->epoch == 0 || isnan(event->value))
        return;
    trial->epoch = event->epoch;
    trial->value = event->value;
    verdict = sweep_trial_report(s, event->trial, event->epoch, event->value);
    if (verdict == SWEEP_NO_RUNG)
        return;
    if (verdict == SWEEP_STOP) {
        trial->stop = true;
        trial->state = SWEEP_STOPPING;
    }
    append(s, (sweep_line){ .kind = SWEEP_LINE_RUNG,
                            .trial = event->trial,
                            .epoch = event->epoch,
                            .value = event->value,
                            .stop = trial->stop });
}

/* Create a trial and append its line. Return false if the sweep is full.
 *   line  how, values, of, repeat and request
 *   told  the search already knows the point, because it proposed it */
static bool append_trial(sweep *s, sweep_line line, bool told)
{
    gp_error ignored;

    if (!sweep_has_room(s, &ignored) ||
        (!told && s->config.search.add(s->config.search.context, line.values, sweep_is_extra(&line),
                                       &ignored) != GP_OK) ||
        sweep_trial_new(s, &line, &ignored) != GP_OK)
        return false;
    line.kind = SWEEP_LINE_ASKED;
    line.trial = s->count;
    line.values = trial_at(s, s->count)->values;
    append(s, line);
    return true;
}

/* Create a trial with a point that the user added, or with the point of a trial to retry. */
static void handle_request(sweep *s, const sweep_event *event)
{
    const bool open = s->closing == SWEEP_REASON_NONE || s->closing == SWEEP_REASON_EXHAUSTED;
    const sweep_trial *of = event->kind == SWEEP_EVENT_RETRY ? sweep_find(s, event->trial) : NULL;

    if (s->failed || s->over || !open)
        return;
    if (event->kind == SWEEP_EVENT_ADD)
        append_trial(s, (sweep_line){ .how = "added", .values = event->values, .request = event->text },
                     false);
    else if (of != NULL && sweep_can_retry(of))
        append_trial(
            s,
            (sweep_line){ .how = "retry", .values = of->values, .of = event->trial, .request = event->text },
            false);
}

/* Stop all jobs. A restarted controller continues their trials with further attempts. */
static void handle_halt(sweep *s)
{
    uint64_t line;

    if (s->closing == SWEEP_REASON_HALTED)
        return;
    close_with(s, SWEEP_REASON_HALTED, NULL);
    line = s->failed ? 0 : append(s, (sweep_line){ .kind = SWEEP_LINE_HALT });
    for (uint32_t i = 0; i < s->active_count; i++) {
        sweep_trial *trial = trial_at(s, s->active[i]);

        if (has_ended(trial) || s->failed)
            continue;
        trial->interrupted = true;
        trial->line = line;
        if (has_job(trial))
            trial->state = SWEEP_STOPPING;
    }
}

/* ---- progress after each event ---- */

/* Remove trials whose end is durable from the active ones, and link the model of the best trial. */
static void settle(sweep *s)
{
    uint32_t kept = 0;

    for (uint32_t i = 0; i < s->active_count; i++) {
        const uint32_t number = s->active[i];
        const sweep_trial *trial = trial_at(s, number);

        if (!has_ended(trial) || (trial->line > s->persisted && !s->failed))
            s->active[kept++] = number;
        else if (number == s->best && !s->failed)
            act_on(s, SWEEP_LINK_BEST, number, 0);
    }
    s->active_count = kept;
}

/* Return the trials that have not ended. */
static uint32_t count_open(const sweep *s)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < s->active_count; i++)
        count += !has_ended(trial_at(s, s->active[i]));
    return count;
}

/* Ask the search for points while slots are free. The end of a trial frees its slot before the end
 * is durable, so that one sync serves that line and the line of the next trial. */
static void ask(sweep *s)
{
    const char *values;
    gp_error err;

    while (s->closing == SWEEP_REASON_NONE && !s->failed && count_open(s) < s->config.concurrent_max &&
           s->count < trials_planned(s)) {
        gp_status status = s->config.search.ask(s->config.search.context, &values, &err);

        if (status == GP_OK && append_trial(s, (sweep_line){ .how = s->config.how, .values = values }, true))
            continue;
        if (status == GP_OK)
            status = gp_fail(&err, GP_ELIMIT, "too many trials");
        close_with(s, status == GP_ENOENT ? SWEEP_REASON_EXHAUSTED : SWEEP_REASON_SEARCH, err.message);
    }
}

/* After the last trial, repeat the best one with further seeds. */
static void repeat_best(sweep *s)
{
    const bool complete = s->closing == SWEEP_REASON_EXHAUSTED || s->closing == SWEEP_REASON_GOAL ||
                          (s->closing == SWEEP_REASON_NONE && sweep_is_complete(s));
    uint32_t repeats = 0;

    if (!complete || s->failed || s->best == 0 || s->active_count > 0)
        return;
    for (uint32_t i = 1; i <= s->count; i++)
        repeats += trial_at(s, i)->repeat > 0 && trial_at(s, i)->of == s->best;
    while (repeats < s->config.repeats) {
        const sweep_line line = {
            .how = "confirm", .values = trial_at(s, s->best)->values, .of = s->best, .repeat = ++repeats
        };

        if (!append_trial(s, line, false))
            return;
    }
}

/* Return the workers of each concurrent trial. */
static uint32_t share(const sweep *s)
{
    const uint32_t planned = trials_planned(s);
    const uint32_t left = s->closing != SWEEP_REASON_NONE || s->count >= planned ? 0 : planned - s->count;
    uint32_t trials = s->active_count + left, part;

    if (trials > s->config.concurrent_max)
        trials = s->config.concurrent_max;
    part = trials > 0 ? s->workers / trials : 0;
    return part < s->config.workers_min   ? s->config.workers_min
           : part > s->config.workers_max ? s->config.workers_max
                                          : part;
}

/* Resize running trials to the given size: those above it, or those below it. */
static void resize(sweep *s, uint32_t size, bool shrink)
{
    for (uint32_t i = 0; i < s->active_count; i++) {
        sweep_trial *trial = trial_at(s, s->active[i]);
        bool differs = shrink ? trial->workers > size || trial->workers == 0 : trial->workers < size;

        if (trial->state != SWEEP_RUNNING || !differs)
            continue;
        trial->workers = size;
        act_on(s, SWEEP_SIZE, s->active[i], size);
    }
}

/* Submit trials and stop jobs, as far as their lines are durable. Running trials give up workers
 * before others start. */
static void drive(sweep *s)
{
    const uint32_t size = share(s);
    const bool elastic = s->config.workers_min < s->config.workers_max && s->workers > 0;
    uint32_t jobs = count_jobs(s);

    if (elastic)
        resize(s, size, true);
    for (uint32_t i = 0; i < s->active_count; i++) {
        const uint32_t number = s->active[i];
        sweep_trial *trial = trial_at(s, number);

        if (trial->line > s->persisted || has_ended(trial))
            continue;
        if (trial->state == SWEEP_ASKED && s->closing != SWEEP_REASON_HALTED && !s->failed &&
            jobs < s->config.concurrent_max) {
            jobs++;
            trial->state = SWEEP_SUBMITTED;
            trial->workers = trial->resumed ? 0 : size;
            act_on(s, SWEEP_SUBMIT, number, size);
        } else if (trial->state == SWEEP_STOPPING && trial->known && !trial->stop_sent) {
            trial->stop_sent = true;
            act_on(s, SWEEP_STOP_JOB, number, 0);
        }
    }
    if (elastic)
        resize(s, size, false);
}

/* Emit OVER when nothing is left to do. */
static void finish(sweep *s)
{
    const bool continues = s->failed || s->closing == SWEEP_REASON_HALTED;
    sweep_action action = { .kind = SWEEP_OVER, .reason = s->closing, .text = s->text };

    if (s->closing == SWEEP_REASON_NONE && s->count >= trials_planned(s))
        action.reason = SWEEP_REASON_TRIALS;
    if (s->failed)
        action.reason = SWEEP_REASON_JOURNAL;
    if (action.reason == SWEEP_REASON_NONE ||
        (count_jobs(s) > 0 && !(s->failed && s->closing == SWEEP_REASON_HALTED)) ||
        (!continues && s->active_count > 0) || (!s->failed && s->number > s->persisted))
        return;
    s->over = true;
    s->act(s->context, &action);
}

static void handle_trial(sweep *s, const sweep_event *event)
{
    sweep_trial *trial = event->trial >= 1 && event->trial <= s->count ? trial_at(s, event->trial) : NULL;

    if (trial == NULL || !has_job(trial) || event->attempt != trial->attempt)
        return;
    if (event->kind == SWEEP_EVENT_ENDED) {
        handle_ended(s, event);
    } else if (event->kind == SWEEP_EVENT_VALUE) {
        handle_value(s, event);
    } else {
        trial->known = true;
        if (trial->stop || (trial->interrupted && s->closing == SWEEP_REASON_HALTED))
            trial->state = SWEEP_STOPPING;
        else if (event->kind == SWEEP_EVENT_RUNNING)
            trial->state = SWEEP_RUNNING;
    }
}

static void begin(sweep *s)
{
    s->begun = true;
    s->failures = 0; /* the user who restarts the sweep expects the cause to be gone */
    for (uint32_t i = 0; i < s->active_count; i++)
        trial_at(s, s->active[i])->resumed = true;
    if (s->best != 0)
        act_on(s, SWEEP_LINK_BEST, s->best, 0);
    check_end(s);
}

void sweep_step(sweep *s, const sweep_event *event)
{
    switch (event->kind) {
    case SWEEP_EVENT_BEGIN:
        begin(s);
        break;
    case SWEEP_EVENT_APPENDED:
        if (event->number > s->persisted && event->number <= s->number)
            s->persisted = event->number;
        break;
    case SWEEP_EVENT_UNWRITABLE:
        s->failed = true;
        snprintf(s->text, sizeof(s->text), "%s", event->text != NULL ? event->text : "");
        break;
    case SWEEP_EVENT_ADD:
    case SWEEP_EVENT_RETRY:
        handle_request(s, event);
        break;
    case SWEEP_EVENT_WORKERS:
        s->workers = event->count;
        break;
    case SWEEP_EVENT_TIME:
        stop_all(s, SWEEP_REASON_TIME);
        break;
    case SWEEP_EVENT_HALT:
        handle_halt(s);
        break;
    default:
        handle_trial(s, event);
    }
    if (!s->begun || s->over)
        return;
    settle(s);
    ask(s);
    repeat_best(s);
    drive(s);
    finish(s);
}
