/* Controller of a sweep; sweep_run.h describes the interface.
 *
 * One thread polls up to fifty times a second. Lines of the journal are written and synced before
 * the state machine learns that they are durable, so that each iteration is a group commit. */
#include "client/sweep/sweep_run.h"

#include <stdio.h>
#include <unistd.h>

#include "client/sweep/sweep_inbox.h"
#include "client/sweep/sweep_runner.h"
#include "client/sweep/trial_board.h"
#include "client/sweep/trial_pack.h"
#include "common/base/clock.h"
#include "common/base/memory/alloc.h"
#include "common/base/system/fault.h"

enum {
    POLL_MS = 20, /* with FEW_TRIALS at once; more trials are polled less often */
    POLL_MANY_MS = 100,
    FEW_TRIALS = 16,
    WORKERS_EVERY_MS = 2000, /* interval of requests for the number of workers */
    POOL_RETRY_MS = 60000,   /* how long to wait for another scheduler */
    PATH = SWEEP_PATH_MAX + 100,
};

void sweep_runner_note(const sweep_runner *r, const char *text)
{
    if (r->options->note != NULL)
        r->options->note(r->options->context, text);
}

/* ---- steps of the state machine ---- */

/* Remove the result of an attempt and the number of its job, so that neither counts for the next
 * attempt. */
static void remove_result(const sweep_runner *r, uint32_t trial)
{
    char path[PATH];

    sweep_folder_trial(r->folder, trial, "/end.json", path);
    unlink(path);
    sweep_folder_trial(r->folder, trial, ".job", path);
    unlink(path);
}

/* Replace best.onnx by the model of the best trial. On failure, keep the model in the trial's
 * folder until another try succeeds or another trial is the best. */
static void link_best(sweep_runner *r, uint32_t trial)
{
    const uint32_t kept = r->unlinked_best;
    gp_error err;

    r->unlinked_best = sweep_folder_link_best(r->folder, trial, &err) == GP_OK ? 0 : trial;
    if (r->unlinked_best != 0)
        sweep_runner_note(r, err.message);
    if (kept != 0 && kept != r->unlinked_best && r->plan->models == 1)
        trial_remove_model(r->folder, kept);
}

static void act(void *context, const sweep_action *action)
{
    sweep_runner *r = context;
    sweep_job *job;
    gp_error ignored;

    if (action->kind == SWEEP_APPEND) {
        /* The result of the last attempt must not count for the next one. */
        if (action->line->kind == SWEEP_LINE_ATTEMPT)
            remove_result(r, action->line->trial);
        r->number = action->number;
        if (!r->failed && sweep_line_encode(&r->lines, action->line, &r->failure) != GP_OK)
            r->failed = true;
        return;
    }
    if (action->kind == SWEEP_OVER) {
        r->over = true;
        r->reason = action->reason;
        snprintf(r->text, sizeof(r->text), "%s", action->text);
        return;
    }
    job = sweep_runner_job(r, action->trial);
    if (action->kind == SWEEP_LINK_BEST)
        link_best(r, action->trial);
    if (job == NULL)
        return;
    if (action->kind == SWEEP_SUBMIT) {
        trial_reader_deinit(&job->reader);
        *job = (sweep_job){
            .attempt = action->attempt, .workers = action->workers, .wanted = true, .shown = job->shown
        };
    } else if (action->kind == SWEEP_STOP_JOB) {
        job->stop = true;
    } else if (action->kind == SWEEP_SIZE && r->pool != NULL && job->id.number != 0) {
        gp_training_resize(r->pool, 0, job->id.number, action->workers, &ignored);
    }
}

/* Write the pending lines and report them as durable, until the state machine adds no more. */
static void flush(sweep_runner *r)
{
    while (r->lines.bytes > 0 || r->failed) {
        sweep_event event = { .kind = SWEEP_EVENT_APPENDED, .number = r->number };

        if (!r->failed && sweep_folder_append(r->folder, &r->lines, &r->failure) != GP_OK)
            r->failed = true;
        gp_fault_point("sweep-appended");
        gp_buffer_clear(&r->lines);
        if (r->failed) {
            event = (sweep_event){ .kind = SWEEP_EVENT_UNWRITABLE, .text = r->failure.message };
            sweep_step(r->core, &event);
            return;
        }
        sweep_step(r->core, &event);
    }
}

/* Return the trial whose model must be removed now that a trial has ended: that trial, or the one
 * that it displaces among the best. A single best model stays as best.onnx only. 0: none. */
static uint32_t model_dropped(sweep_runner *r, uint32_t number)
{
    const uint32_t models = r->plan->models;
    const sweep_trial *trial = sweep_find(r->core, number);

    if (models >= SWEEP_TRIALS_MAX || (models == 1 && number == r->unlinked_best))
        return 0;
    if (models == 1 || trial->state != SWEEP_DONE || trial->repeat > 0)
        return number;
    return sweep_top_add(&r->top, number, trial->value);
}

/* Remove the files that ended trials no longer need. Call it after the next trials were submitted.
 * After a failure of the journal, remove nothing: the next controller needs the files of trials
 * whose ends are not durable. */
static void clean_ended(sweep_runner *r)
{
    gp_error err;

    if (r->failed)
        return;
    for (uint32_t trial = 1; trial <= sweep_count(r->core); trial++) {
        const sweep_state state = sweep_find(r->core, trial)->state;
        const bool succeeded = state == SWEEP_DONE || state == SWEEP_STOPPED;
        sweep_job *job = sweep_runner_job(r, trial);

        if (!job->ended)
            continue;
        job->ended = false;
        const uint32_t dropped = model_dropped(r, trial);

        if (!sweep_plan_trains(r->plan))
            trial_board_write(r->folder, r->plan, trial, sweep_find(r->core, trial));
        if (trial_clean(r->folder, trial, dropped != trial, succeeded && sweep_plan_trains(r->plan), &err) !=
            GP_OK)
            sweep_runner_note(r, err.message);
        if (dropped != 0 && dropped != trial)
            trial_remove_model(r->folder, dropped);
    }
}

/* Report changed states. */
static void show_changes(sweep_runner *r)
{
    for (uint32_t trial = 1; trial <= sweep_count(r->core); trial++) {
        sweep_job *job = sweep_runner_job(r, trial);
        sweep_state state = sweep_find(r->core, trial)->state;

        if (job == NULL || state == job->shown)
            continue;
        job->shown = state;
        job->ended = state >= SWEEP_DONE;
        if (r->options->on_trial != NULL)
            r->options->on_trial(r->options->context, r->core, trial);
    }
}

void sweep_runner_feed(sweep_runner *r, sweep_event event)
{
    sweep_step(r->core, &event);
    flush(r);
    show_changes(r);
}

/* ---- requests of the user ---- */

static bool feed_request(void *context, sweep_event event)
{
    sweep_runner *r = context;

    sweep_runner_feed(r, event);
    return !r->failed;
}

/* Retry the trials that failed or were lost, unless an earlier controller did. */
static void retry_failed(sweep_runner *r)
{
    const uint32_t count = sweep_count(r->core);

    for (uint32_t trial = 1; trial <= count; trial++) {
        const sweep_trial *there = sweep_find(r->core, trial);
        bool retried = false;

        for (uint32_t later = trial + 1; later <= sweep_count(r->core); later++)
            retried |= sweep_find(r->core, later)->of == trial;
        if (!retried && sweep_can_retry(there) && there->state != SWEEP_STOPPED)
            sweep_runner_feed(r, (sweep_event){ .kind = SWEEP_EVENT_RETRY, .trial = trial });
    }
}

/* Process the requests in the inbox, unless another controller will continue the sweep and process
 * them. */
static void take_requests(sweep_runner *r, bool halted)
{
    if (!halted && !r->failed && !r->over)
        sweep_inbox_take(r->folder, r->core, feed_request, r);
}

/* ---- the pool ---- */

static gp_status ask_workers(sweep_runner *r, gp_error *err)
{
    uint32_t workers;
    gp_status status = gp_pool_workers(r->pool, &workers, err);

    if (status == GP_OK)
        sweep_runner_feed(r, (sweep_event){ .kind = SWEEP_EVENT_WORKERS, .count = workers });
    return status;
}

/* Open the pool again after a failure of the scheduler, but not after a shutdown. */
static gp_status reopen(sweep_runner *r, gp_error *err)
{
    int64_t deadline = gp_now_ms() + POOL_RETRY_MS;
    gp_status status;

    gp_pool_close(r->pool);
    r->pool = NULL;
    for (;;) {
        status = r->options->open_pool(r->options->context, true, &r->pool, err);
        if (status == GP_OK || *r->options->stop != 0 || gp_now_ms() >= deadline || status == GP_EINVAL ||
            status == GP_ENOPOOL)
            return status;
        gp_sleep_ms(POLL_MANY_MS);
    }
}

/* ---- running ---- */

static gp_status iterate(sweep_runner *r, int64_t *workers_ms, gp_error *err)
{
    gp_status status = GP_OK;

    if (gp_now_ms() - *workers_ms >= WORKERS_EVERY_MS) {
        *workers_ms = gp_now_ms();
        status = ask_workers(r, err);
    }
    if (status == GP_OK)
        status = sweep_jobs_poll(r, err);
    if (status == GP_EPEER || status == GP_ETIMEDOUT) {
        sweep_runner_note(r, err->message);
        status = reopen(r, err);
    }
    return status;
}

/* Sleep until the next poll, or until the job of a trial ends, so that the next trial starts at
 * once. With many trials only poll, because each watched job costs a message. */
static void rest(sweep_runner *r)
{
    gp_job_info infos[FEW_TRIALS];
    uint64_t ids[FEW_TRIALS];
    size_t count = 0;
    bool unreadable = false;
    gp_status status = GP_EBUSY;

    for (uint32_t trial = 1; trial <= sweep_count(r->core) && count < FEW_TRIALS; trial++) {
        const sweep_state state = sweep_find(r->core, trial)->state;
        const sweep_job *job = sweep_runner_job(r, trial);

        if (state < SWEEP_SUBMITTED || state > SWEEP_STOPPING || job->id.number == 0)
            continue;
        if (job->unreadable_ms == 0)
            ids[count++] = job->id.number;
        else
            unreadable = true; /* its job has ended, so a wait would return at once */
    }
    if (r->poll_ms == POLL_MS && count > 0)
        status = gp_job_wait(infos, r->pool, ids, count, true, r->poll_ms, r->options->stop, NULL);
    if ((status != GP_OK && status != GP_ETIMEDOUT) || unreadable)
        gp_sleep_ms(r->poll_ms); /* the next iteration handles a failure of the scheduler */
}

/* Try again to replace best.onnx; otherwise report which model is the best one. */
static void report_unlinked(sweep_runner *r)
{
    const uint32_t trial = r->unlinked_best;
    char text[PATH + 100], model[PATH];

    if (trial != 0)
        link_best(r, trial);
    if (r->unlinked_best == 0)
        return;
    sweep_folder_trial(r->folder, trial, "/result/model.onnx", model);
    snprintf(text, sizeof(text), "best.onnx is not the best model; that is %s", model);
    sweep_runner_note(r, text);
}

static gp_status loop(sweep_runner *r, uint32_t workers, gp_error *err)
{
    const int64_t begin_ms = gp_now_ms();
    int64_t workers_ms = 0;
    bool halted = false, late = false;
    gp_status status = GP_OK;

    sweep_runner_feed(
        r, (sweep_event){ .kind = SWEEP_EVENT_WORKERS, .count = workers }); /* for the first trials */
    take_requests(r, false); /* a sweep without open trials would end before the next poll */
    if (r->options->retry && !sweep_has_goal(r->core))
        retry_failed(r); /* requests first: a trial must not be retried twice */
    sweep_runner_feed(r, (sweep_event){ .kind = SWEEP_EVENT_BEGIN });
    while (!r->over && status == GP_OK && *r->options->stop < 2) {
        if (*r->options->stop != 0 && !halted) {
            halted = true;
            sweep_runner_feed(r, (sweep_event){ .kind = SWEEP_EVENT_HALT });
        }
        if (r->options->time_limit_ms > 0 && !late && gp_now_ms() - begin_ms >= r->options->time_limit_ms) {
            late = true;
            sweep_runner_feed(r, (sweep_event){ .kind = SWEEP_EVENT_TIME });
        }
        take_requests(r, halted);
        status = r->over ? GP_OK : iterate(r, &workers_ms, err);
        clean_ended(r);
        if (r->options->on_poll != NULL)
            r->options->on_poll(r->options->context, r->core);
        if (!r->over && status == GP_OK)
            rest(r);
    }
    clean_ended(r);
    report_unlinked(r);
    if (status == GP_OK && !r->over)
        status = gp_fail(err, GP_ECANCELED, "interrupted; running trials continue as jobs of the pool");
    if (status == GP_OK && r->reason == SWEEP_REASON_JOURNAL)
        status =
            gp_fail(err, GP_EIO, "%.150s; running trials end as jobs of the pool, and --resume continues",
                    r->failure.message);
    if (status == GP_OK && (r->reason == SWEEP_REASON_FAILURES || r->reason == SWEEP_REASON_SEARCH))
        status = gp_fail(err, GP_EINVAL, "%s: %s",
                         r->reason == SWEEP_REASON_SEARCH ? "the search failed"
                                                          : "too many trials failed in a row; the first one",
                         r->text);
    return status;
}

static gp_status core_new(sweep_runner *r, uint32_t concurrent, gp_error *err)
{
    const sweep_plan *plan = r->plan;
    const sweep_config config = { .trials_max = plan->trials,
                                  .concurrent_max = concurrent,
                                  .workers_min = plan->workers_min,
                                  .workers_max = plan->workers_max,
                                  .repeats = plan->repeats,
                                  .failures_max = plan->failures_max,
                                  .minimize = plan->minimize,
                                  .goal = plan->goal,
                                  .how = sweep_method_word(plan->method),
                                  .search = sweep_points_search(r->points) };
    gp_status status = sweep_new(&r->core, &config, act, r, err);

    return status == GP_OK ? sweep_folder_replay(r->folder, r->core, err) : status;
}

/* Set what is known about a trial of the journal. An earlier controller may have been killed before
 * it cleaned the files of an ended trial: the number of its job is still there. */
static void begin_job(sweep_runner *r, uint32_t trial)
{
    sweep_job *job = sweep_runner_job(r, trial);
    char path[PATH];

    job->shown = sweep_find(r->core, trial)->state;
    sweep_folder_trial(r->folder, trial, ".job", path);
    job->ended = job->shown >= SWEEP_DONE && access(path, F_OK) == 0;
    if (job->shown != SWEEP_DONE || job->ended)
        return;
    const uint32_t dropped = model_dropped(r, trial); /* an earlier --keep may have kept more */

    if (dropped != 0 && dropped != sweep_best(r->core)) /* best.onnx may still be another model */
        trial_remove_model(r->folder, dropped);
}

gp_status sweep_run(sweep **core, sweep_reason *reason, char **importance, sweep_folder *folder,
                    const sweep_plan *plan, const sweep_run_options *options, gp_error *err)
{
    sweep_runner *r = gp_calloc(1, sizeof(*r));
    uint32_t workers = 0, concurrent = plan->concurrent;
    gp_status status;

    if (r == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for a sweep");
    r->folder = folder;
    r->plan = plan;
    r->options = options;
    gp_buffer_init(&r->lines, SWEEP_JOURNAL_BYTES_MAX);
    r->jobs = gp_calloc(SWEEP_TRIALS_MAX, sizeof(*r->jobs));
    status = r->jobs == NULL ? gp_fail(err, GP_ENOMEM, "no memory for a sweep") : GP_OK;
    if (status == GP_OK)
        status = sweep_top_init(&r->top, plan->models, plan->minimize, err);
    if (status == GP_OK)
        status = sweep_points_new(&r->points, plan, err);
    if (status == GP_OK)
        status = options->open_pool(options->context, false, &r->pool, err);
    if (status == GP_OK)
        status = gp_pool_workers(r->pool, &workers, err);
    if (concurrent == 0)
        concurrent = workers < plan->workers_min ? 1 : workers / plan->workers_min;
    if (concurrent > SWEEP_CONCURRENT_MAX)
        concurrent = SWEEP_CONCURRENT_MAX;
    r->poll_ms = concurrent <= FEW_TRIALS ? POLL_MS : POLL_MANY_MS;
    if (status == GP_OK)
        status = core_new(r, concurrent, err);
    for (uint32_t trial = 1; status == GP_OK && trial <= sweep_count(r->core); trial++)
        begin_job(r, trial);
    if (status == GP_OK)
        status = loop(r, workers, err);
    gp_pool_close(r->pool);
    for (uint32_t i = 0; r->jobs != NULL && i < SWEEP_TRIALS_MAX; i++)
        trial_reader_deinit(&r->jobs[i].reader);
    gp_free(r->jobs);
    sweep_top_deinit(&r->top);
    gp_buffer_deinit(&r->lines);
    *importance = NULL;
    if (r->points != NULL)
        *importance = sweep_points_importance(r->points);
    sweep_points_free(r->points);
    *core = r->core;
    *reason = r->reason;
    gp_free(r);
    return status;
}

gp_status sweep_load(sweep **core, char **importance, sweep_folder *folder, const sweep_plan *plan,
                     gp_error *err)
{
    sweep_runner r = { .folder = folder, .plan = plan };
    gp_status status = sweep_points_new(&r.points, plan, err);

    if (status == GP_OK)
        status = core_new(&r, 1, err);
    if (status == GP_OK)
        *importance = sweep_points_importance(r.points);
    sweep_points_free(r.points);
    if (status == GP_OK)
        *core = r.core;
    else
        sweep_free(r.core);
    return status;
}

gp_status sweep_has_ended(bool *ended, sweep_folder *folder, const sweep_plan *plan, gp_error *err)
{
    sweep_runner r = { .folder = folder, .plan = plan };
    gp_status status = sweep_points_new(&r.points, plan, err);
    const char *values;

    if (status == GP_OK)
        status = core_new(&r, 1, err);
    if (status == GP_OK)
        *ended = sweep_is_complete(r.core) || (sweep_is_idle(r.core) && sweep_has_goal(r.core)) ||
                 (sweep_is_idle(r.core) &&
                  sweep_points_search(r.points).ask(r.points, &values, NULL) == GP_ENOENT);
    sweep_points_free(r.points);
    sweep_free(r.core);
    return status;
}
