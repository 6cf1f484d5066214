/* train_recover.c: continue a training in another group of its lease, after a worker failure or a
 * resize.
 *
 *   steps ... worker_lost, or all ranks pause -> the remaining workers keep the state
 *   -> the lease gets another generation -> attach -> train_begin to all, restart > 0
 *   -> they agree on the furthest state -> steps ...
 *
 * membership.c decides; this file executes the decisions. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "client/train/train_run.h"
#include "common/base/clock.h"
#include "common/base/text/text.h"

bool gp_run_is_between_groups(const gp_run *run)
{
    return run->membership.phase == MEMBERSHIP_BREAK || run->membership.phase == MEMBERSHIP_WAIT;
}

/* ---- failures ---- */

/* Take the step from the workers' reports: the scheduler's text may have an older one, by up to
 * half a second. */
gp_status gp_run_describe_loss(const gp_run *run, gp_error *err)
{
    const bool alone = run->membership.why == MEMBERSHIP_REASON_ALONE;

    if (!alone && !run->report.begun)
        return gp_fail(err, GP_EPEER, "%s; no step was completed", run->cause);
    return gp_fail(err, GP_EPEER, "%s; %s %" PRIu64 "%s", run->cause,
                   alone ? "no other worker has the state of step"
                         : "the last step that all workers completed is",
                   run->training->summary.steps,
                   alone ? " (with min-workers 2 the training waits for another worker)" : "");
}

/* End the run with the error for a decision of membership.c. */
static void fail(gp_run *run, membership_reason why)
{
    gp_run_state state = GP_RUN_FAILED;
    gp_error err = { .code = GP_EPEER };

    switch (why) {
    /* gp_run_describe_loss() writes the message */
    case MEMBERSHIP_REASON_LOST:
    case MEMBERSHIP_REASON_ALONE:

        /* with more ranks the cause is too many failures in a row */
        if (run->membership.world == 1 && !run->membership.stopped)
            state = GP_RUN_LOST;
        break;
    case MEMBERSHIP_REASON_STATE:
        gp_fail(&err, GP_EPEER, "%s; no remaining worker has the state of step %" PRIu64, run->cause,
                run->membership.reported);
        state = GP_RUN_LOST;
        break;
    case MEMBERSHIP_REASON_NOT_REPLACED:
        gp_fail(&err, GP_EPEER,
                "%s; fewer workers remained than min-workers (%" PRId64
                "), and no replacement arrived within %d s",
                run->cause, run->options.min_workers, MEMBERSHIP_REPLACE_MS / 1000);
        break;
    case MEMBERSHIP_REASON_SHORT_LIVED:
    case MEMBERSHIP_REASON_UNFIT: /* these are not failures */
        return;
    }
    gp_run_fail(run, state, &err);
}

/* ---- from one group to the next ---- */

void gp_run_report_regroup(gp_run *run, uint32_t before, uint64_t step)
{
    gp_training_summary *summary = &run->training->summary;
    gp_train_rescale regroup = { .workers_before = before,
                                 .workers = run->membership.world,
                                 .step = step,
                                 .seconds = (double)(gp_now_ms() - run->paused_ms) * 1e-3,
                                 .lease = run->pool->lease,
                                 .died = run->pause != GP_RUN_RESIZED,
                                 .cause = run->cause };
    time_t now = time(NULL);
    struct tm local;
    char clock[8];

    gp_report_begin(&run->report);
    memcpy(regroup.worker_index, run->report.info.worker_index, sizeof(regroup.worker_index));
    summary->paused_seconds += regroup.seconds;
    strftime(clock, sizeof(clock), "%H:%M", localtime_r(&now, &local));
    pool_note(run->pool, "%s %" PRIu32 " -> %" PRIu32 " workers at step %" PRIu64 ", %.2f s: %s", clock,
              before, run->membership.world, step, regroup.seconds,
              run->pause == GP_RUN_RESTARTED ? "restarted" : run->cause); /* noted by gp_run_restart() */
    if (run->request->events.regroup != NULL)
        run->request->events.regroup(run->request->events.context, &regroup);
    run->paused_ms = 0;
    if (run->pause == GP_RUN_RESTARTED)
        run->pause = GP_RUN_DIED; /* report the restart only once */
}

static void do_one(gp_run *run, const membership_action *action)
{
    gp_train_begin fields = run->message.fields;
    gp_error err;

    switch (action->kind) {
    case MEMBERSHIP_DO_PREPARE:
        fields.workers = action->workers;
        fields.restart = run->membership.restarts + 1;
        fields.prepare = 1;
        gp_joiners_invite(&run->joiners, run->pool, &run->message, &fields);
        break;
    case MEMBERSHIP_DO_PAUSE:
        /* the request travels with the gradients, so one rank is enough */
        run->paused_ms = 0;
        run->pause = GP_RUN_RESIZED;
        snprintf(run->cause, sizeof(run->cause), "%s",
                 run->membership.wanted_asked                     ? "resized"
                 : run->membership.wanted > run->membership.world ? "more workers available"
                                                                  : "workers released");
        pool_post_to_worker(run->pool, 0, &gp_msg_train_stop, &(gp_train_stop){ .pause = 1 }, NULL, 0, NULL,
                            NULL);
        break;
    case MEMBERSHIP_DO_FORM:
        if (run->paused_ms == 0)
            run->paused_ms = run->last_step_ms;
        if (pool_post(run->pool, &gp_msg_lease_form,
                      &(gp_lease_form){ .joining = gp_joiners_prepared(&run->joiners) }, NULL, &err) != GP_OK)
            gp_run_fail(run, GP_RUN_FAILED, &err);
        break;
    case MEMBERSHIP_DO_START:
        run->state = GP_RUN_REGROUPING; /* the loop attaches later: a message may be in use here */
        run->message.fields.restart = action->restart;
        break;
    case MEMBERSHIP_DO_RESUME:
        gp_run_report_regroup(run, action->workers, action->step);
        break;

    /* gp_joiners_take() has already reported why a worker cannot join */
    case MEMBERSHIP_DO_KEEP:
        if (action->why == MEMBERSHIP_REASON_SHORT_LIVED)
            pool_note(run->pool,
                      "joining workers failed %" PRIu32
                      " time%s within %d steps; the training adds no more workers, except on gradpool resize",
                      run->membership.short_lived, gp_plural(run->membership.short_lived),
                      MEMBERSHIP_PROVED_STEPS);
        if (pool_post(run->pool, &gp_msg_lease_resize,
                      &(gp_lease_resize){ .lease = run->pool->lease, .workers = action->workers }, NULL,
                      &err) != GP_OK)
            gp_run_fail(run, GP_RUN_FAILED, &err);
        break;
    case MEMBERSHIP_DO_ALARM:
        run->alarm = action->ms == 0 ? (gp_timeout){ 0 } : gp_timeout_in(action->ms);
        break;
    case MEMBERSHIP_DO_FAIL:
        fail(run, action->why);
        break;
    }
}

void gp_run_membership(gp_run *run, const membership_event *event)
{
    membership_action actions[MEMBERSHIP_ACTIONS_MAX];
    size_t count = membership_step(&run->membership, event, actions);

    for (size_t i = 0; i < count; i++)
        do_one(run, &actions[i]);
}

/* Set the state to RECOVERING, and record the cause and when the pause began. */
static void begin_recovery(gp_run *run, const char *cause)
{
    run->state = GP_RUN_RECOVERING;
    snprintf(run->cause, sizeof(run->cause), "%s%.*s", run->pause == GP_RUN_RESTARTED ? "restarted: " : "",
             (int)sizeof(run->cause) - 16, cause);
    if (run->pause == GP_RUN_RESIZED)
        run->pause = GP_RUN_DIED;
    if (run->paused_ms == 0)
        run->paused_ms = gp_now_ms();
}

/* Return whether the group works, or suspects a failure without a known cause. */
static bool has_no_known_failure(const gp_run *run)
{
    return run->state == GP_RUN_WORKING || run->state == GP_RUN_SUSPECT;
}

/* Handle the losses of workers in the group. The first loss is the cause of the pause. Later losses
 * only end the wait for the final messages of those ranks.
 *
 * The scheduler's notice can overtake messages that the worker sent before it failed, such as
 * train_done with the trained weights. So a loss is handled after these messages. Return false if
 * the first loss is deferred. */
static bool watch_lost(gp_run *run)
{
    gp_pool *pool = run->pool;
    const gp_train_info *info = &run->report.info;

    if (pool->lost.index != 0 && has_no_known_failure(run)) {
        uint32_t rank = 0;

        while (rank < info->workers && info->worker_index[rank] != pool->lost.index)
            rank++;
        if (rank < info->workers && !pool_worker_drained(pool, rank))
            return false;
        begin_recovery(run, pool->lost.cause);
        gp_run_membership(run, &(membership_event){ .kind = MEMBERSHIP_LOST, .rank = rank });
    }
    for (uint32_t rank = 0;
         run->state == GP_RUN_RECOVERING && run->membership.phase == MEMBERSHIP_BREAK && rank < info->workers;
         rank++)
        if (pool->is_lost[info->worker_index[rank]] && run->membership.end_of[rank] == 0 &&
            pool_worker_drained(pool, rank))
            gp_run_membership(run, &(membership_event){ .kind = MEMBERSHIP_LOST, .rank = rank });
    return true;
}

void gp_run_watch(gp_run *run, bool quiet)
{
    gp_pool *pool = run->pool;
    const bool lost_handled = watch_lost(run);

    if (pool->reunions != run->reunions) {
        run->reunions = pool->reunions;

        /* the new scheduler announces joining workers again */
        gp_joiners_forget(&run->joiners, pool);
        gp_run_membership(run, &(membership_event){ .kind = MEMBERSHIP_RECONNECTED });
    }
    if (lost_handled && pool->regranted && !run->membership.granted && run->state != GP_RUN_REGROUPING) {
        /* after a scheduler failure, a grant can arrive without a loss or a resize */
        if (has_no_known_failure(run) && run->membership.phase != MEMBERSHIP_WAIT)
            snprintf(run->cause, sizeof(run->cause), "the scheduler was replaced");
        gp_run_membership(
            run, &(membership_event){ .kind = MEMBERSHIP_GRANT, .workers = pool->grant.slots_count });
    }
    if (pool->elastic.change.workers != 0 && !pool->regranted && pool->lost.index == 0) {
        gp_joiners_change(&run->joiners, pool, &pool->elastic.change);
        gp_run_membership(run, &(membership_event){ .kind = MEMBERSHIP_CHANGE,
                                                    .workers = pool->elastic.change.workers,
                                                    .asked = pool->elastic.change.asked,
                                                    .prepared = gp_joiners_count_prepared(&run->joiners) });
        pool->elastic.change.workers = 0;
    }

    /* Handle all messages before the alarm: this process may have been suspended. */
    if (run->alarm.end_ms != 0 && gp_timeout_left(run->alarm) == 0 && quiet) {
        run->alarm = (gp_timeout){ 0 };
        gp_run_membership(run, &(membership_event){ .kind = MEMBERSHIP_LATE });
    }
}

gp_status gp_run_regroup(gp_run *run, gp_error *err)
{
    gp_training_summary *summary = &run->training->summary;

    gp_joiners_forget(&run->joiners, run->pool);
    gp_status status = pool_attach(run->pool, NULL, err);

    if (status != GP_OK)
        return status;
    gp_run_membership(
        run, &(membership_event){ .kind = MEMBERSHIP_ATTACHED, .workers = run->pool->grant.slots_count });
    gp_run_report_pending(run, &run->report.early);
    gp_run_report_pending(run, &run->report.spare);
    if (run->pause == GP_RUN_RESIZED)
        summary->resizes++;
    else
        summary->restarts++;
    return gp_run_begin(run, err);
}
