/* Job state machine: process events and emit actions. jobs.h describes the interface. */
#include "scheduler/core/jobs.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/base/memory/alloc.h"
#include "scheduler/core/jobs_parts.h"

enum {
    PRUNE_EVERY_MS = 1000,
    KILL_AGAIN_MS = 1000,
    START_AGAIN_MS = 1000,
    /* A longer gap between steps means that this process was suspended. Client requests have waited
     * in the socket since then. */
    STOPPED_MS = 2000,
};

#define COPY_TEXT(to, from) snprintf((to), sizeof(to), "%.*s", (int)sizeof(to) - 1, (from))

gp_jobs_config gp_jobs_config_default(void)
{
    return (gp_jobs_config){ .unfinished_max = 100000,
                             .finished_max = 1000,
                             .trials_max = 200,
                             .repeat_ms = 60 * 1000,
                             .replies_max = 65536,
                             .capacity = 1,
                             .sweeps_max = GP_JOBS_SWEEPS_MAX,
                             .cancel_ms = 10000,
                             .stop_ms = 2000 };
}

gp_status gp_jobs_new(gp_jobs **out, const gp_jobs_config *config, gp_jobs_act act, void *context,
                      gp_error *err)
{
    gp_jobs *jobs = gp_calloc(1, sizeof(*jobs));
    bool heaps = true;

    if (jobs == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for jobs");
    jobs->config = *config;
    jobs->act = act;
    jobs->context = context;
    jobs->next_id = 1;
    jobs->alarm_ms = INT64_MAX;
    /* In one step, all unfinished jobs may end before the first one is dropped. */
    jobs->size = 2 * config->unfinished_max + config->finished_max + config->trials_max + 1;
    jobs->used = 1;
    jobs->entries = gp_calloc(jobs->size, sizeof(*jobs->entries));
    for (jobs_lane lane = JOBS_LANE_WORK; lane < JOBS_LANES; lane++)
        heaps &= (jobs->heaps[lane].items = gp_calloc(jobs->size, sizeof(jobs_wait))) != NULL;
    jobs->replies = gp_calloc(config->replies_max, sizeof(*jobs->replies));
    if (jobs->entries == NULL || !heaps || jobs->replies == NULL || !jobs_tables_init(jobs)) {
        gp_jobs_free(jobs);
        return gp_fail(err, GP_ENOMEM, "no memory for %u jobs", config->unfinished_max);
    }
    *out = jobs;
    return GP_OK;
}

void gp_jobs_free(gp_jobs *jobs)
{
    if (jobs == NULL)
        return;
    gp_free(jobs->entries);
    gp_index_deinit(&jobs->ids);
    gp_index_deinit(&jobs->submits);
    for (jobs_lane lane = JOBS_LANE_WORK; lane < JOBS_LANES; lane++)
        gp_free(jobs->heaps[lane].items);
    gp_free(jobs->replies);
    gp_free(jobs);
}

/* ---- actions ---- */

static void act(gp_jobs *jobs, gp_jobs_action_kind kind, const gp_jobs_job *job)
{
    gp_jobs_action action = { .kind = kind, .job = job, .id = job->id, .attempt = job->attempts };

    jobs->act(jobs->context, &action);
}

static void send_error(gp_jobs *jobs, const gp_core_id *client, uint64_t correlation, gp_status status,
                       const char *text)
{
    gp_jobs_action action = {
        .kind = GP_JOBS_ERROR, .client = *client, .correlation = correlation, .status = status, .text = text
    };

    jobs->act(jobs->context, &action);
}

static void send_reply(gp_jobs *jobs, const jobs_reply *reply)
{
    gp_jobs_action action = { .kind = reply->accepted ? GP_JOBS_ACCEPTED : GP_JOBS_CANCELING,
                              .client = reply->client,
                              .correlation = reply->correlation,
                              .id = reply->id,
                              .count = reply->count,
                              .known = reply->known };

    jobs->act(jobs->context, &action);
}

/* Send a reply now, or after the journal has reached the number. */
static void reply_when(gp_jobs *jobs, jobs_reply reply)
{
    if (reply.number <= jobs->persisted) {
        send_reply(jobs, &reply);
        return;
    }
    assert(jobs->reply_count < jobs->config.replies_max);
    jobs->replies[(jobs->reply_first + jobs->reply_count++) % jobs->config.replies_max] = reply;
}

/* Send the current row to the journal and track it until it is durable. */
static void write_row(gp_jobs *jobs, gp_jobs_job *job, gp_jobs_action_kind kind)
{
    gp_jobs_action action = { .kind = kind, .job = job, .id = job->id, .number = ++jobs->number };

    job->written = jobs->number;
    jobs_dirty(jobs, job);
    jobs->act(jobs->context, &action);
}

/* ---- ending and deleting jobs ---- */

/* Move a job to an end state and write the row. */
static void end_job(gp_jobs *jobs, gp_jobs_job *job, gp_jobs_state state, const char *reason)
{
    jobs_heap_remove(jobs, job);
    jobs_set_state(jobs, job, state);
    job->ended_ms = jobs->clock_ms;
    COPY_TEXT(job->reason, reason);
    write_row(jobs, job, GP_JOBS_UPDATE);
}

static void queue_again(gp_jobs *jobs, gp_jobs_job *job, const char *reason)
{
    jobs_set_state(jobs, job, GP_JOBS_QUEUED);
    job->spawned = job->term_sent = job->foreign = false;
    COPY_TEXT(job->reason, reason);
    write_row(jobs, job, GP_JOBS_UPDATE);
}

/* Return the number of ended jobs of a kind. */
static uint32_t ended_count(const gp_jobs *jobs, gp_jobs_kind kind)
{
    uint32_t count = 0;

    for (jobs_lane lane = JOBS_LANE_WORK; lane < JOBS_LANES; lane++)
        for (gp_jobs_state state = GP_JOBS_DONE; state < GP_JOBS_STATES; state++)
            count += jobs->counts[lane][kind][state];
    return count;
}

/* Delete the oldest jobs of a list of `count` ended jobs that exceed count_max. The age is no
 * reason: the wall clock may be wrong by decades after a boot. */
static void prune_list(gp_jobs *jobs, gp_jobs_list list, uint32_t count, uint32_t count_max)
{
    for (; count > count_max && jobs->lists[list].first != JOBS_NIL && !jobs->failed; count--) {
        gp_jobs_job *job = jobs_at(jobs, jobs->lists[list].first);

        /* The submit of a job may be repeated for some time: if the job were deleted, the
         * repetition would create a second one. The wall clock may jump, so measure by the
         * monotonic clock. The clock value at the end of a job under an earlier scheduler is
         * unknown; use the time when this scheduler started or last resumed after a suspension.
         * Later entries ended later. */
        int64_t since_ms = job->done_ms > jobs->began_ms ? job->done_ms : jobs->began_ms;

        if (jobs->now_ms - since_ms < jobs->config.repeat_ms)
            break;
        gp_jobs_action action = {
            .kind = GP_JOBS_DELETE, .job = job, .id = job->id, .number = ++jobs->number
        };

        jobs->act(jobs->context, &action);
        jobs_give(jobs, job);
    }
}

/* Delete the oldest ended jobs. Trials have a limit of their own: thousands of them must not push
 * out the records of other jobs. */
static void prune(gp_jobs *jobs)
{
    prune_list(jobs, GP_JOBS_ENDED, ended_count(jobs, GP_JOBS_ORDINARY) + ended_count(jobs, GP_JOBS_SWEEP),
               jobs->config.finished_max);
    prune_list(jobs, GP_JOBS_ENDED_TRIALS, ended_count(jobs, GP_JOBS_TRIAL), jobs->config.trials_max);
}

/* Queue a job whose attempt ended without a result. */
static void retry(gp_jobs *jobs, gp_jobs_job *job, bool lost, const char *text)
{
    bool last = job->attempts >= GP_JOBS_ATTEMPTS_MAX;
    char reason[GP_JOBS_REASON_BYTES];

    if (lost && last)
        snprintf(reason, sizeof(reason), "%u attempts were lost with a scheduler, which is the limit",
                 job->attempts);
    else if (lost)
        snprintf(reason, sizeof(reason), "attempt %u was lost with the scheduler; queued again",
                 job->attempts);
    else
        snprintf(reason, sizeof(reason), "%.120s (attempt %u of %d)%s", text, job->attempts,
                 GP_JOBS_ATTEMPTS_MAX, last ? "" : "; queued again");
    if (last)
        end_job(jobs, job, lost ? GP_JOBS_LOST : GP_JOBS_FAILED, reason);
    else
        queue_again(jobs, job, reason);
}

/* Process the exit of a job's process: done, canceled, requeued, lost or failed. */
static void handle_ended(gp_jobs *jobs, const gp_jobs_event *event)
{
    gp_jobs_job *job = jobs_find_id(jobs, event->job);
    const char *text = event->text != NULL ? event->text : "";
    bool lost = job != NULL && job->foreign && (event->pool_lost || event->exit == GP_JOBS_EXIT_UNKNOWN);
    bool alive = job != NULL && (job->state == GP_JOBS_RUNNING || job->state == GP_JOBS_STOPPING ||
                                 (job->state == GP_JOBS_STARTING && job->spawned));

    if (!alive || event->attempt != job->attempts)
        return; /* the process was dropped at the gate */
    job->exit = event->exit;
    job->number = event->number;
    if (event->exit == GP_JOBS_EXIT_CODE && event->number == 0 && job->state != GP_JOBS_STARTING)
        end_job(jobs, job, GP_JOBS_DONE, "");
    else if (job->cancel)
        end_job(jobs, job, GP_JOBS_CANCELED, text);
    else if (jobs->stopping && job->attempts > 0) {
        job->attempts--; /* a shutdown does not count as an attempt */
        queue_again(jobs, job, "the pool was shut down while the job ran; it restarts with the next pool");
    } else if (lost || (job->kind == GP_JOBS_SWEEP && event->exit == GP_JOBS_EXIT_SIGNAL)) {
        retry(jobs, job, lost, text);
    } else {
        end_job(jobs, job, GP_JOBS_FAILED, text);
    }
}

/* ---- requests ---- */

static bool refuse_request(gp_jobs *jobs, const gp_jobs_event *event)
{
    char text[GP_ERROR_MESSAGE_MAX];

    if (jobs->failed) {
        send_error(jobs, &event->client, event->correlation, jobs->failure.code, jobs->failure.message);
        return true;
    }
    if (jobs->reply_count < jobs->config.replies_max)
        return false;
    snprintf(text, sizeof(text),
             "%u job requests are waiting for the journal, which is the limit; try again later",
             jobs->config.replies_max);
    send_error(jobs, &event->client, event->correlation, GP_EBUSY, text);
    return true;
}

static uint32_t unfinished(const gp_jobs *jobs)
{
    uint32_t count = 0;

    for (gp_jobs_state state = GP_JOBS_NONE; state < GP_JOBS_DONE; state++)
        count += gp_jobs_count(jobs, state);
    return count;
}

/* Return a queued keeper; the journal may still be writing it. NULL: none. */
static gp_jobs_job *queued_keeper(const gp_jobs *jobs)
{
    for (uint32_t at = jobs->lists[GP_JOBS_WRITTEN].first; at != JOBS_NIL;
         at = jobs_at(jobs, at)->links[GP_JOBS_WRITTEN].next) {
        gp_jobs_job *job = jobs_at(jobs, at);

        if (job->state == GP_JOBS_QUEUED && jobs_lane_of(job->kind, job->command) == JOBS_LANE_KEEPER)
            return job;
    }
    return jobs_heap_peek(jobs, JOBS_LANE_KEEPER);
}

static void handle_submit(gp_jobs *jobs, const gp_jobs_event *event)
{
    const gp_jobs_submit *submit = event->submit;
    gp_jobs_job *job;
    jobs_reply reply = { .client = event->client, .correlation = event->correlation, .accepted = true };
    char text[GP_ERROR_MESSAGE_MAX];

    if (refuse_request(jobs, event))
        return;
    job = jobs_find_submit(jobs, submit->submitter, submit->seq);

    /* A queued keeper will see all calls, so one is enough. Clients request a keeper every few
     * seconds until one runs. */
    if (job == NULL && jobs_lane_of(submit->kind, submit->command) == JOBS_LANE_KEEPER)
        job = queued_keeper(jobs);
    reply.known = job != NULL;
    if (job == NULL && unfinished(jobs) < jobs->config.unfinished_max)
        job = jobs_take(jobs, jobs->next_id, submit->submitter, submit->seq, submit->kind, submit->command);
    if (job == NULL) {
        snprintf(
            text, sizeof(text),
            unfinished(jobs) < jobs->config.unfinished_max
                ? "%u jobs are queued or running, and as many ended within the last minute; try again later"
                : "%u jobs are queued or running, which is the limit; try again later",
            unfinished(jobs));
        send_error(jobs, &event->client, event->correlation, GP_EBUSY, text);
        return;
    }
    if (!reply.known) {
        jobs->next_id++;
        job->priority = submit->priority;
        job->submitted_ms = jobs->clock_ms;
        COPY_TEXT(job->name, submit->name);
        jobs_set_state(jobs, job, GP_JOBS_QUEUED);
        write_row(jobs, job, GP_JOBS_INSERT);
    }
    reply.id = job->id;
    reply.number = job->durable == GP_JOBS_NONE ? job->written : 0;
    reply_when(jobs, reply);
}

/* Send SIGTERM once, and set the SIGKILL deadline. */
static void request_end(gp_jobs *jobs, gp_jobs_job *job, int64_t timeout_ms)
{
    if (!job->term_sent)
        act(jobs, GP_JOBS_TERM, job);
    job->term_sent = true;
    job->due_ms = jobs->now_ms + timeout_ms;
    if (job->due_ms < jobs->alarm_ms)
        jobs->alarm_ms = job->due_ms;
}

/* Shorten the grace period of a canceled job. Return whether it was longer. */
static bool shorten_grace(gp_jobs *jobs, gp_jobs_job *job, uint32_t grace_ms)
{
    if (job->state != GP_JOBS_STOPPING)
        return false;
    if (!job->term_sent && grace_ms < job->grace_ms) {
        job->grace_ms = grace_ms;
        return true;
    }
    if (!job->term_sent || jobs->now_ms + (int64_t)grace_ms >= job->due_ms)
        return false;
    request_end(jobs, job, grace_ms);
    return true;
}

/* Cancel a job. Return whether there was anything to cancel. */
static bool cancel_job(gp_jobs *jobs, gp_jobs_job *job, uint32_t grace_ms)
{
    if (gp_jobs_state_ended(job->state))
        return false;
    if (job->cancel)
        return shorten_grace(jobs, job, grace_ms);
    job->cancel = true;
    job->grace_ms = grace_ms;
    if (job->state == GP_JOBS_QUEUED) {
        end_job(jobs, job, GP_JOBS_CANCELED, "canceled before it started");
    } else if (job->state == GP_JOBS_STARTING) {
        act(jobs, GP_JOBS_DROP, job);
        end_job(jobs, job, GP_JOBS_CANCELED, "canceled before it started");
    } else {
        jobs_set_state(jobs, job, GP_JOBS_STOPPING); /* SIGTERM follows once this is durable */
        write_row(jobs, job, GP_JOBS_UPDATE);
    }
    return true;
}

static void handle_cancel(gp_jobs *jobs, const gp_jobs_event *event)
{
    jobs_reply reply = { .client = event->client, .correlation = event->correlation };
    gp_jobs_job *one = event->job != 0 ? jobs_find_id(jobs, event->job) : NULL;
    char text[GP_ERROR_MESSAGE_MAX];

    if (refuse_request(jobs, event))
        return;
    if (event->job != 0 && (one == NULL || one->durable == GP_JOBS_NONE)) {
        snprintf(text, sizeof(text), "job %" PRIu64 " does not exist; list jobs with `gradpool jobs --all`",
                 event->job);
        send_error(jobs, &event->client, event->correlation, GP_ENOENT, text);
        return;
    }
    if (one != NULL)
        reply.count = cancel_job(jobs, one, event->grace_ms) ? 1 : 0;
    for (uint32_t at = event->job == 0 ? jobs->lists[GP_JOBS_BY_ID].first : JOBS_NIL; at != JOBS_NIL;
         at = jobs_next(jobs, at))
        reply.count += cancel_job(jobs, jobs_at(jobs, at), event->grace_ms) ? 1 : 0;
    reply.number = reply.count != 0 ? jobs->number : one != NULL ? one->written : 0;
    reply_when(jobs, reply);
}

/* ---- processes ---- */

static void handle_spawned(gp_jobs *jobs, const gp_jobs_event *event)
{
    gp_jobs_job *job = jobs_find_id(jobs, event->job);

    if (!gp_jobs_awaits(jobs, event->job, event->attempt)) {
        gp_jobs_action action = { .kind = GP_JOBS_DROP, .job = job, .id = event->job };

        jobs->act(jobs->context, &action);
        return;
    }
    job->spawned = true;
    job->attempts++;
    job->pid = event->pid;
    job->start_time = event->start_time;
    memcpy(job->boot, event->boot, sizeof(job->boot));
    job->started_ms = jobs->clock_ms;
    job->exit = GP_JOBS_EXIT_NONE;
    job->number = 0;
    job->workers = 0;
    job->reason[0] = '\0';
    write_row(jobs, job, GP_JOBS_UPDATE);
}

static void handle_unborn(gp_jobs *jobs, const gp_jobs_event *event)
{
    gp_jobs_job *job = jobs_find_id(jobs, event->job);
    char reason[GP_JOBS_REASON_BYTES];

    if (!gp_jobs_awaits(jobs, event->job, event->attempt))
        return;
    if (event->status == GP_EINVAL || event->status == GP_ENOENT) {
        end_job(jobs, job, GP_JOBS_FAILED, event->text);
        return;
    }
    /* All queued jobs would fail within seconds, although none of them is the cause. */
    jobs->start_ms = jobs->now_ms + START_AGAIN_MS;
    snprintf(reason, sizeof(reason), "%.150s; queued again", event->text);
    queue_again(jobs, job, reason);
}

/* ---- journal reports ---- */

/* Act on a row that is now durable. */
static void settle_job(gp_jobs *jobs, gp_jobs_job *job)
{
    gp_jobs_state before = job->durable;

    jobs_clean(jobs, job);
    if (job->state == GP_JOBS_STARTING && job->spawned) {
        jobs_set_state(jobs, job, GP_JOBS_RUNNING);
        act(jobs, GP_JOBS_GO, job);
    } else if (job->state == GP_JOBS_STOPPING && !job->term_sent) {
        request_end(jobs, job, job->grace_ms);
    } else if (job->state == GP_JOBS_QUEUED) {
        jobs_heap_push(jobs, job);
    }
    job->durable = job->state;
    if (gp_jobs_state_ended(job->state) && !gp_jobs_state_ended(before))
        jobs_done(jobs, job);
    if (job->durable != before)
        act(jobs, GP_JOBS_CHANGED, job);
}

static void handle_persisted(gp_jobs *jobs, const gp_jobs_event *event)
{
    if (jobs->failed || event->persisted <= jobs->persisted)
        return;
    jobs->persisted = event->persisted;
    while (jobs->reply_count > 0 && jobs->replies[jobs->reply_first].number <= jobs->persisted) {
        send_reply(jobs, &jobs->replies[jobs->reply_first]);
        jobs->reply_first = (jobs->reply_first + 1) % jobs->config.replies_max;
        jobs->reply_count--;
    }
    while (jobs->lists[GP_JOBS_WRITTEN].first != JOBS_NIL &&
           jobs_at(jobs, jobs->lists[GP_JOBS_WRITTEN].first)->written <= jobs->persisted)
        settle_job(jobs, jobs_at(jobs, jobs->lists[GP_JOBS_WRITTEN].first));
    prune(jobs);
}

/* Fail all pending requests, forget jobs that are not durable, and drop processes at the gate. */
static void handle_journal_failed(gp_jobs *jobs, const gp_jobs_event *event)
{
    gp_jobs_action broken = { .kind = GP_JOBS_BROKEN, .status = event->status, .text = event->text };

    if (jobs->failed)
        return;
    jobs->failed = true;
    gp_fail(&jobs->failure, event->status, "%s", event->text);
    for (; jobs->reply_count > 0; jobs->reply_count--) {
        const jobs_reply *reply = &jobs->replies[jobs->reply_first];

        send_error(jobs, &reply->client, reply->correlation, event->status, jobs->failure.message);
        jobs->reply_first = (jobs->reply_first + 1) % jobs->config.replies_max;
    }
    while (jobs->lists[GP_JOBS_WRITTEN].first != JOBS_NIL) {
        gp_jobs_job *job = jobs_at(jobs, jobs->lists[GP_JOBS_WRITTEN].first);

        jobs_clean(jobs, job);
        if (job->durable == GP_JOBS_NONE)
            jobs_give(jobs, job); /* no client knows this job */
    }
    for (uint32_t at = jobs->lists[GP_JOBS_BY_ID].first; at != JOBS_NIL; at = jobs_next(jobs, at)) {
        if (jobs_at(jobs, at)->state != GP_JOBS_STARTING)
            continue;
        act(jobs, GP_JOBS_DROP, jobs_at(jobs, at));
        jobs_set_state(jobs, jobs_at(jobs, at), GP_JOBS_QUEUED);
    }
    jobs->act(jobs->context, &broken);
}

/* ---- timers and shutdown ---- */

/* Stop all processes for a shutdown of the pool. Starting jobs return to the queue without a
 * counted attempt. */
static void stop_all(gp_jobs *jobs)
{
    if (jobs->stopping)
        return;
    jobs->stopping = true;
    for (uint32_t at = jobs->lists[GP_JOBS_BY_ID].first; at != JOBS_NIL; at = jobs_next(jobs, at)) {
        gp_jobs_job *job = jobs_at(jobs, at);

        if (job->state == GP_JOBS_STARTING) {
            act(jobs, GP_JOBS_DROP, job);
            job->attempts -= job->spawned ? 1 : 0;
            queue_again(jobs, job, "");
        } else if (job->state == GP_JOBS_RUNNING || job->state == GP_JOBS_STOPPING) {
            request_end(jobs, job, jobs->config.stop_ms);
        }
    }
}

/* Send SIGKILL to all processes whose SIGTERM deadline has passed. Called only when the earliest
 * deadline (alarm_ms) is due. */
static void kill_overdue(gp_jobs *jobs)
{
    uint32_t left = gp_jobs_count(jobs, GP_JOBS_RUNNING) + gp_jobs_count(jobs, GP_JOBS_STOPPING);

    jobs->alarm_ms = INT64_MAX;
    for (uint32_t at = jobs->lists[GP_JOBS_BY_ID].first; at != JOBS_NIL && left > 0;
         at = jobs_next(jobs, at)) {
        gp_jobs_job *job = jobs_at(jobs, at);

        if (job->state != GP_JOBS_RUNNING && job->state != GP_JOBS_STOPPING)
            continue;
        left--;
        if (!job->term_sent)
            continue;
        if (jobs->now_ms >= job->due_ms) {
            act(jobs, GP_JOBS_KILL, job);
            job->due_ms = jobs->now_ms + KILL_AGAIN_MS;
        }
        if (job->due_ms < jobs->alarm_ms)
            jobs->alarm_ms = job->due_ms;
    }
}

int64_t gp_jobs_due(const gp_jobs *jobs)
{
    int64_t due = jobs->pruned_ms + PRUNE_EVERY_MS;

    return jobs->alarm_ms < due ? jobs->alarm_ms : due;
}

/* ---- starting ---- */

/* Return whether another job of the lane may start. */
static bool may_start(const gp_jobs *jobs, jobs_lane lane)
{
    const uint32_t limits[JOBS_LANES] = { jobs->config.capacity, jobs->config.sweeps_max, 1 };
    uint32_t limit = jobs->config.capacity == 0 || jobs->now_ms < jobs->start_ms ? 0 : limits[lane];

    return !jobs->failed && !jobs->holding && !jobs->stopping && jobs_lane_active(jobs, lane) < limit;
}

/* Start queued jobs while the limits allow it. */
static void start_queued(gp_jobs *jobs)
{
    gp_jobs_job *job;

    for (jobs_lane lane = JOBS_LANE_WORK; lane < JOBS_LANES; lane++) {
        while (may_start(jobs, lane) && (job = jobs_heap_pop(jobs, lane)) != NULL) {
            gp_jobs_action action = {
                .kind = GP_JOBS_START, .job = job, .id = job->id, .attempt = job->attempts + 1
            };

            jobs_set_state(jobs, job, GP_JOBS_STARTING);
            job->spawned = job->term_sent = job->foreign = false;
            jobs->act(jobs->context, &action);
        }
    }
}

/* ---- event dispatch ---- */

void gp_jobs_step(gp_jobs *jobs, const gp_jobs_event *event, int64_t now_ms)
{
    static void (*const handlers[])(gp_jobs * jobs, const gp_jobs_event *event) = {
        [GP_JOBS_EVENT_SUBMIT] = handle_submit,       [GP_JOBS_EVENT_CANCEL] = handle_cancel,
        [GP_JOBS_EVENT_PERSISTED] = handle_persisted, [GP_JOBS_EVENT_JOURNAL_FAILED] = handle_journal_failed,
        [GP_JOBS_EVENT_SPAWNED] = handle_spawned,     [GP_JOBS_EVENT_UNBORN] = handle_unborn,
        [GP_JOBS_EVENT_ENDED] = handle_ended,
    };
    gp_jobs_job *job;

    assert(now_ms >= jobs->now_ms);
    if (!jobs->began || now_ms - jobs->now_ms > STOPPED_MS)
        jobs->began_ms = now_ms;
    jobs->began = true;
    jobs->now_ms = now_ms;
    jobs->clock_ms = event->clock_ms;
    switch (event->kind) {
    case GP_JOBS_EVENT_TICK:
        if (now_ms >= jobs->alarm_ms)
            kill_overdue(jobs);
        if (now_ms - jobs->pruned_ms >= PRUNE_EVERY_MS) {
            jobs->pruned_ms = now_ms;
            prune(jobs);
        }
        break;
    case GP_JOBS_EVENT_CAPACITY:
        jobs->config.capacity = event->count;
        break;
    case GP_JOBS_EVENT_HOLD:
        jobs->holding = event->count != 0;
        break;
    case GP_JOBS_EVENT_STOP:
        stop_all(jobs);
        break;
    case GP_JOBS_EVENT_ADOPTED:
        job = jobs_find_id(jobs, event->job);
        /* The earlier scheduler may have failed before it sent SIGTERM. This one sends it again,
         * because the process may have been unknown until now. */
        if (job != NULL && gp_jobs_orphaned(job) && (job->state == GP_JOBS_STOPPING || jobs->stopping)) {
            job->term_sent = false;
            request_end(jobs, job, jobs->stopping ? jobs->config.stop_ms : jobs->config.cancel_ms);
        }
        break;
    case GP_JOBS_EVENT_WORKERS:
        job = jobs_find_id(jobs, event->job);
        if (job != NULL)
            job->workers = event->count;
        break;
    default:
        handlers[event->kind](jobs, event);
    }
    start_queued(jobs);
}
