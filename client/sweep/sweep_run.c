/* Controller of a sweep; sweep_run.h describes the interface.
 *
 * One thread polls up to fifty times a second. Lines of the journal are written and synced before
 * the state machine learns that they are durable, so that each iteration is a group commit. */
#include "client/sweep/sweep_run.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/sweep/sweep_command.h"
#include "client/sweep/sweep_inbox.h"
#include "client/sweep/sweep_points.h"
#include "client/sweep/trial_board.h"
#include "client/sweep/trial_pack.h"
#include "client/sweep/trial_result.h"
#include "common/base/clock.h"
#include "common/base/memory/alloc.h"
#include "common/base/system/fault.h"
#include "common/base/system/file.h"

enum {
    POLL_MS = 20, /* with FEW_TRIALS at once; more trials are polled less often */
    POLL_MANY_MS = 100,
    FEW_TRIALS = 16,
    WORKERS_EVERY_MS = 2000, /* interval of requests for the number of workers */
    CANCEL_EVERY_MS = 1000,
    POOL_RETRY_MS = 60000, /* how long to wait for another scheduler */
    ATTEMPTS = 65536,      /* seq of a submit: trial * ATTEMPTS + attempt */
    PATH = SWEEP_PATH_MAX + 100,
    NAME_BYTES = 32,
    ID_BYTES = 64, /* job_id as text */
};

/* Identity of a job. In another pool, such as that of the next allocation of a cluster, the number
 * may name another job, which was submitted at another time. */
typedef struct job_id {
    uint64_t number;      /* 0: not submitted yet */
    int64_t submitted_ms; /* wall clock on the pool's host */
} job_id;

/* What the controller knows about the job of a trial. */
typedef struct trial_job {
    uint32_t attempt;
    job_id id;
    uint32_t workers;
    bool wanted, running, stop;
    bool ended; /* clean_ended() must remove its files */
    bool model; /* its model may be there and belong to the best ones */
    int64_t canceled_ms;
    trial_reader reader;
    sweep_state shown;
} trial_job;

typedef struct runner {
    sweep *core;
    sweep_points *points;
    sweep_folder *folder;
    const sweep_plan *plan;
    const sweep_run_options *options;
    gp_pool *pool;
    gp_buffer lines;  /* not written yet */
    uint64_t number;  /* of the last line */
    gp_error failure; /* of the journal */
    bool failed;
    trial_job *jobs; /* [SWEEP_TRIALS_MAX], by trial; NULL: the sweep is only read */
    int poll_ms;
    bool over;
    sweep_reason reason;
    char text[SWEEP_TEXT_MAX];
} runner;

static trial_job *job_of(const runner *r, uint32_t trial)
{
    return r->jobs != NULL ? &r->jobs[trial - 1] : NULL;
}

static void note(const runner *r, const char *text)
{
    if (r->options->note != NULL)
        r->options->note(r->options->context, text);
}

/* ---- steps of the state machine ---- */

static void remove_result(const runner *r, uint32_t trial)
{
    char path[PATH];

    sweep_folder_trial(r->folder, trial, "/end.json", path);
    unlink(path);
}

static void act(void *context, const sweep_action *action)
{
    runner *r = context;
    trial_job *job;
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
    job = job_of(r, action->trial);
    if (action->kind == SWEEP_LINK_BEST)
        sweep_folder_link_best(r->folder, action->trial);
    if (job == NULL)
        return;
    if (action->kind == SWEEP_SUBMIT) {
        trial_reader_deinit(&job->reader);
        *job = (trial_job){
            .attempt = action->attempt, .workers = action->workers, .wanted = true, .shown = job->shown
        };
    } else if (action->kind == SWEEP_STOP_JOB) {
        job->stop = true;
    } else if (action->kind == SWEEP_SIZE && r->pool != NULL && job->id.number != 0) {
        gp_training_resize(r->pool, 0, job->id.number, action->workers, &ignored);
    }
}

/* Write the pending lines and report them as durable, until the state machine adds no more. */
static void flush(runner *r)
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

/* Return whether the model of an ended trial stays in the folder of the trial: all models, or those
 * of the best trials. A single best model stays as best.onnx only. */
static bool keeps_model(const runner *r, uint32_t number)
{
    const uint32_t models = r->plan->models;
    const sweep_trial *trial = sweep_find(r->core, number);
    uint32_t better = 0;

    if (models == 1 || models >= SWEEP_TRIALS_MAX)
        return models > 1;
    if (trial->state != SWEEP_DONE || trial->repeat > 0)
        return false;
    for (uint32_t i = 1; i <= sweep_count(r->core); i++) {
        const sweep_trial *other = sweep_find(r->core, i);

        if (other->state == SWEEP_DONE && other->repeat == 0)
            better += other->value == trial->value ? i < number
                                                   : (other->value < trial->value) == r->plan->minimize;
    }
    return better < models;
}

/* Remove the files that ended trials no longer need. Called after the next trials were submitted,
 * so that they need not wait. */
static void clean_ended(const runner *r)
{
    bool cleaned = false;
    gp_error err;

    for (uint32_t trial = 1; trial <= sweep_count(r->core); trial++) {
        const sweep_state state = sweep_find(r->core, trial)->state;
        const bool succeeded = state == SWEEP_DONE || state == SWEEP_STOPPED;
        trial_job *job = job_of(r, trial);

        if (!job->ended)
            continue;
        job->ended = false;
        job->model = keeps_model(r, trial);
        cleaned = true;
        if (!sweep_plan_trains(r->plan))
            trial_board_write(r->folder, r->plan, trial, sweep_find(r->core, trial));
        if (trial_clean(r->folder, trial, job->model, succeeded && sweep_plan_trains(r->plan), &err) != GP_OK)
            note(r, err.message);
    }
    for (uint32_t trial = 1; cleaned && trial <= sweep_count(r->core); trial++) {
        if (!job_of(r, trial)->model || keeps_model(r, trial))
            continue;
        job_of(r, trial)->model = false;
        trial_remove_model(r->folder, trial);
    }
}

/* Report changed states. */
static void show_changes(runner *r)
{
    for (uint32_t trial = 1; trial <= sweep_count(r->core); trial++) {
        trial_job *job = job_of(r, trial);
        sweep_state state = sweep_find(r->core, trial)->state;

        if (job == NULL || state == job->shown)
            continue;
        job->shown = state;
        job->ended = state >= SWEEP_DONE;
        if (r->options->on_trial != NULL)
            r->options->on_trial(r->options->context, r->core, trial);
    }
}

static void feed(runner *r, sweep_event event)
{
    sweep_step(r->core, &event);
    flush(r);
    show_changes(r);
}

/* ---- requests of the user ---- */

static bool feed_request(void *context, sweep_event event)
{
    runner *r = context;

    feed(r, event);
    return !r->failed;
}

/* Retry the trials that failed or were lost, unless an earlier controller did. */
static void retry_failed(runner *r)
{
    const uint32_t count = sweep_count(r->core);

    for (uint32_t trial = 1; trial <= count; trial++) {
        const sweep_trial *there = sweep_find(r->core, trial);
        bool retried = false;

        for (uint32_t later = trial + 1; later <= sweep_count(r->core); later++)
            retried |= sweep_find(r->core, later)->of == trial;
        if (!retried && sweep_can_retry(there) && there->state != SWEEP_STOPPED)
            feed(r, (sweep_event){ .kind = SWEEP_EVENT_RETRY, .trial = trial });
    }
}

/* Process the requests in the inbox, unless another controller will continue the sweep and process
 * them. */
static void take_requests(runner *r, bool halted)
{
    if (!halted && !r->failed && !r->over)
        sweep_inbox_take(r->folder, r->core, feed_request, r);
}

/* ---- submitting ---- */

/* Return the job whose result is in the folder of a trial; all zero: there is no result. */
static job_id finished_job(const runner *r, uint32_t trial)
{
    char path[PATH];
    uint8_t *text = NULL;
    size_t bytes;
    job_id id = { 0 };

    sweep_folder_trial(r->folder, trial, "/end.json", path);
    if (access(path, F_OK) != 0)
        return id;
    sweep_folder_trial(r->folder, trial, ".job", path);
    if (gp_file_read(&text, &bytes, path, ID_BYTES, NULL) == GP_OK)
        sscanf((const char *)text, "%" SCNu64 " %" SCNd64, &id.number, &id.submitted_ms);
    gp_free(text);
    return id;
}

/* Submit the job of a trial. A repeated submit finds the same job, as long as the pool knows it:
 * therefore a trial whose folder has a result is not submitted again. */
static gp_status submit(runner *r, uint32_t trial, gp_error *err)
{
    trial_job *job = job_of(r, trial);
    char path[PATH], name[NAME_BYTES], text[ID_BYTES];
    sweep_command *command = NULL;
    gp_status status = GP_OK;
    job_id id = finished_job(r, trial);
    gp_job_info info;

    if (id.number == 0) {
        gp_job_request request = { .name = name,
                                   .priority = r->plan->priority,
                                   .directory = r->plan->directory,
                                   .seq = (uint64_t)trial * ATTEMPTS + job->attempt,
                                   .kind = GP_JOB_TRIAL };

        snprintf(name, sizeof(name), "trial %" PRIu32, trial);
        memcpy(request.key, r->plan->key, sizeof(request.key));
        status = sweep_command_new(&command, r->folder, r->plan, trial, sweep_find(r->core, trial)->repeat,
                                   sweep_find(r->core, trial)->values, job->workers, err);
        if (status == GP_OK) {
            request.words = sweep_command_words(command);
            status = gp_job_submit(&id.number, r->pool, &request, err);
        }
        if (status == GP_OK) {
            status = gp_job_get(&info, r->pool, id.number, err);
            id.submitted_ms = status == GP_OK ? info.submitted_ms : 0;
            status = status == GP_ENOENT ? GP_OK : status; /* ended and deleted: look() reports it */
        }
        sweep_command_free(command);
        gp_fault_point("sweep-submitted");
        sweep_folder_trial(r->folder, trial, ".job", path);
        snprintf(text, sizeof(text), "%" PRIu64 " %" PRId64 "\n", id.number, id.submitted_ms);
        if (status == GP_OK)
            gp_file_write_record(path, text, strlen(text),
                                 NULL); /* a failure only costs a repeated training */
    }
    if (status == GP_OK) {
        job->id = id;
        feed(r, (sweep_event){ .kind = SWEEP_EVENT_SUBMITTED, .trial = trial, .attempt = job->attempt });
    } else if (status == GP_ELIMIT || status == GP_EINVAL || status == GP_EPERM) {
        feed(r, (sweep_event){ .kind = SWEEP_EVENT_ENDED,
                               .trial = trial,
                               .attempt = job->attempt,
                               .outcome = SWEEP_OUTCOME_FAILED,
                               .value = NAN,
                               .text = err->message });
        status = GP_OK;
    }
    /* The next iteration tries again. GP_ESTATE: the pool is shutting down, and its end will be
     * GP_EPEER. */
    return status == GP_EBUSY || status == GP_ESTATE ? GP_OK : status;
}

/* ---- following ---- */

/* Report the values since the last call. */
static void follow(runner *r, uint32_t trial)
{
    trial_job *job = job_of(r, trial);
    sweep_event event = { .kind = SWEEP_EVENT_VALUE, .trial = trial, .attempt = job->attempt };

    while (trial_reader_next(&job->reader, r->folder, r->plan, trial, &event.epoch, &event.value))
        if (event.epoch > 0)
            feed(r, event);
}

/* Report how the job of a trial ended.
 *   info  state of the job; NULL: the pool has forgotten it */
static void judge(runner *r, uint32_t trial, const gp_job_info *info)
{
    trial_job *job = job_of(r, trial);
    sweep_event event = { .kind = SWEEP_EVENT_ENDED,
                          .trial = trial,
                          .attempt = job->attempt,
                          .epoch = sweep_find(r->core, trial)->epoch }; /* of the last value */
    char text[SWEEP_TEXT_MAX];

    trial_result_read(&event, text, &job->reader, r->folder, r->plan, info);
    feed(r, event);
}

/* Look at the job of a trial. */
static gp_status look(runner *r, uint32_t trial, gp_error *err)
{
    trial_job *job = job_of(r, trial);
    gp_job_info info;
    gp_status status = gp_job_get(&info, r->pool, job->id.number, err);

    if (status == GP_ENOENT || (status == GP_OK && info.submitted_ms != job->id.submitted_ms)) {
        follow(r, trial);
        judge(r, trial, NULL);
        return GP_OK;
    }
    if (status != GP_OK)
        return status;
    if (info.state == GP_JOB_RUNNING && !job->running) {
        job->running = true;
        feed(r, (sweep_event){ .kind = SWEEP_EVENT_RUNNING, .trial = trial, .attempt = job->attempt });
    }
    if (job->running || gp_job_state_ended(info.state))
        follow(r, trial);
    if (gp_job_state_ended(info.state)) {
        judge(r, trial, &info);
    } else if (job->stop && gp_now_ms() - job->canceled_ms >= CANCEL_EVERY_MS) {
        job->canceled_ms = gp_now_ms();
        status = gp_job_cancel(NULL, r->pool, job->id.number, err);
    }
    return status == GP_ENOENT ? GP_OK : status;
}

/* Submit and look at all jobs. */
static gp_status poll_jobs(runner *r, gp_error *err)
{
    gp_status status = GP_OK;

    for (uint32_t trial = 1; status == GP_OK && trial <= sweep_count(r->core) && !r->over; trial++) {
        const sweep_trial *there = sweep_find(r->core, trial);
        const trial_job *job = job_of(r, trial);

        if (job == NULL || !job->wanted || job->attempt != there->attempt || there->state < SWEEP_SUBMITTED ||
            there->state > SWEEP_STOPPING)
            continue;
        status = job->id.number == 0 ? submit(r, trial, err) : look(r, trial, err);
    }
    return status;
}

/* ---- the pool ---- */

static gp_status ask_workers(runner *r, gp_error *err)
{
    uint32_t workers;
    gp_status status = gp_pool_workers(r->pool, &workers, err);

    if (status == GP_OK)
        feed(r, (sweep_event){ .kind = SWEEP_EVENT_WORKERS, .count = workers });
    return status;
}

/* Open the pool again after a failure of the scheduler, but not after a shutdown. */
static gp_status reopen(runner *r, gp_error *err)
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

static gp_status iterate(runner *r, int64_t *workers_ms, gp_error *err)
{
    gp_status status = GP_OK;

    if (gp_now_ms() - *workers_ms >= WORKERS_EVERY_MS) {
        *workers_ms = gp_now_ms();
        status = ask_workers(r, err);
    }
    if (status == GP_OK)
        status = poll_jobs(r, err);
    if (status == GP_EPEER || status == GP_ETIMEDOUT) {
        note(r, err->message);
        status = reopen(r, err);
    }
    return status;
}

/* Sleep until the next poll, or until the job of a trial ends, so that the next trial starts at
 * once. With many trials only poll, because each watched job costs a message. */
static void rest(runner *r)
{
    gp_job_info infos[FEW_TRIALS];
    uint64_t ids[FEW_TRIALS];
    size_t count = 0;
    gp_status status = GP_EBUSY;

    for (uint32_t trial = 1; trial <= sweep_count(r->core) && count < FEW_TRIALS; trial++) {
        const sweep_state state = sweep_find(r->core, trial)->state;

        if (state >= SWEEP_SUBMITTED && state <= SWEEP_STOPPING && job_of(r, trial)->id.number != 0)
            ids[count++] = job_of(r, trial)->id.number;
    }
    if (r->poll_ms == POLL_MS && count > 0)
        status = gp_job_wait(infos, r->pool, ids, count, true, r->poll_ms, r->options->stop, NULL);
    if (status != GP_OK && status != GP_ETIMEDOUT)
        gp_sleep_ms(r->poll_ms); /* the next iteration handles a failure of the scheduler */
}

static gp_status loop(runner *r, uint32_t workers, gp_error *err)
{
    const int64_t begin_ms = gp_now_ms();
    int64_t workers_ms = 0;
    bool halted = false, late = false;
    gp_status status = GP_OK;

    feed(r, (sweep_event){ .kind = SWEEP_EVENT_WORKERS, .count = workers }); /* for the first trials */
    if (r->options->retry)
        retry_failed(r);
    take_requests(r, false); /* a sweep without open trials would end before the next poll */
    feed(r, (sweep_event){ .kind = SWEEP_EVENT_BEGIN });
    while (!r->over && status == GP_OK && *r->options->stop < 2) {
        if (*r->options->stop != 0 && !halted) {
            halted = true;
            feed(r, (sweep_event){ .kind = SWEEP_EVENT_HALT });
        }
        if (r->options->time_limit_ms > 0 && !late && gp_now_ms() - begin_ms >= r->options->time_limit_ms) {
            late = true;
            feed(r, (sweep_event){ .kind = SWEEP_EVENT_TIME });
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

static gp_status core_new(runner *r, uint32_t concurrent, gp_error *err)
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
static void begin_job(runner *r, uint32_t trial)
{
    trial_job *job = job_of(r, trial);
    char path[PATH];

    job->shown = sweep_find(r->core, trial)->state;
    job->model = job->shown == SWEEP_DONE;
    sweep_folder_trial(r->folder, trial, ".job", path);
    job->ended = job->shown >= SWEEP_DONE && access(path, F_OK) == 0;
}

gp_status sweep_run(sweep **core, sweep_reason *reason, char **importance, sweep_folder *folder,
                    const sweep_plan *plan, const sweep_run_options *options, gp_error *err)
{
    runner *r = gp_calloc(1, sizeof(*r));
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
    runner r = { .folder = folder, .plan = plan };
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
    runner r = { .folder = folder, .plan = plan };
    gp_status status = sweep_points_new(&r.points, plan, err);
    const char *values;

    if (status == GP_OK)
        status = core_new(&r, 1, err);
    if (status == GP_OK)
        *ended = sweep_is_complete(r.core) ||
                 (sweep_is_idle(r.core) &&
                  sweep_points_search(r.points).ask(r.points, &values, NULL) == GP_ENOENT);
    sweep_points_free(r.points);
    sweep_free(r.core);
    return status;
}
