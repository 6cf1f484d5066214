/* train_again.c -- a training goes on in another group of its lease: workers died, or their number is to change.
 *
 *   steps ... worker_lost, or all ranks pause -> who is left keeps the state -> the lease gets another generation
 *   -> attach -> train_begin to all, restart > 0 -> they agree on the furthest state -> steps ...
 *
 * What comes next is decided in reform.c; here it is done.
 *
 * What is told of a step is told once: news of steps that were told before are left out, and news that rank 0 took
 * with it are taken from another rank. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "client/train/train_run.h"
#include "common/base/memory/alloc.h"
#include "common/base/clock.h"

enum { PENDING_MAX = 1 << 16 };

/* ---- pending events ---- */

void gp_pending_list_add(gp_pending_list *list, const gp_pending_event *event)
{
    if (list->count == list->capacity) {
        size_t capacity = list->capacity == 0 ? 256 : 2 * list->capacity;
        gp_pending_event *events =
            capacity > PENDING_MAX ? NULL : gp_realloc_array(list->events, capacity, sizeof(*events));

        if (events == NULL)
            return;
        list->events = events;
        list->capacity = capacity;
    }
    list->events[list->count++] = *event;
}

void gp_pending_list_drop(gp_pending_list *list, uint64_t step)
{
    size_t kept = 0;

    for (size_t i = 0; i < list->count; i++)
        if (list->events[i].is_validation || list->events[i].step.step > step)
            list->events[kept++] = list->events[i];
    list->count = kept;
}

/* ---- again ---- */

bool gp_run_between(const gp_run *run)
{
    return run->reform.phase == REFORM_BREAK || run->reform.phase == REFORM_WAIT;
}

/* The scheduler's words, and the step: what it knows of that is half a second old, what we saw is not. */
static void say_lost(const gp_run *run, gp_error *err)
{
    const char *checkpoint = run->options.checkpoint_path;

    if (!run->lost_alone && !run->told_begin)
        gp_fail(err, GP_EPEER, "%s; it happened before the first step", run->cause);
    else
        gp_fail(err, GP_EPEER, "%s; %s %" PRIu64 "%s%s%s", run->cause,
                run->lost_alone ? "no other worker had the state of step"
                                : "the last step that all workers finished is",
                run->training->summary.steps,
                run->lost_alone ? " (with min-workers 2 a training waits for another one)" : "",
                checkpoint[0] == '\0' ? "" : "; continue from the last checkpoint with --resume ",
                checkpoint);
}

static void fail_lost(gp_run *run, reform_why why)
{
    gp_error err;

    run->lost_alone = why == REFORM_WHY_ALONE;
    say_lost(run, &err);
    run->failed_ms = 0;
    run->lost = run->reform.world == 1 && !run->reform.stopped; /* of several: it may not die so often */
    run->lost_worded = run->failure.code == GP_OK;
    gp_run_fail(run, &err);
}

void gp_run_say_lost(gp_run *run)
{
    if (run->lost_worded)
        say_lost(run, &run->failure);
}

static void fail(gp_run *run, reform_why why)
{
    const char *checkpoint = run->options.checkpoint_path;
    gp_error err;

    switch (why) {
    case REFORM_WHY_LOST:
    case REFORM_WHY_ALONE:
        fail_lost(run, why);
        return;
    case REFORM_WHY_STATE:
        gp_fail(&err, GP_EPEER, "%s; no worker is left that had the state of step %" PRIu64 "%s%s",
                run->cause, run->reform.told,
                checkpoint[0] == '\0' ? "" : "; continue from the last checkpoint with --resume ",
                checkpoint);
        run->lost = true;
        break;
    case REFORM_WHY_NOT_REPLACED:
        gp_fail(&err, GP_EPEER,
                "%s; fewer workers were left than min-workers (%" PRId64 "), and none came within %d s",
                run->cause, run->options.min_workers, REFORM_REPLACE_MS / 1000);
        break;
    case REFORM_WHY_SHORT_LIVED:
    case REFORM_WHY_UNFIT: /* no failures */
        return;
    }
    gp_run_fail(run, &err);
}

void gp_run_go_on(gp_run *run, uint32_t before, uint64_t step)
{
    gp_training_summary *summary = &run->training->summary;
    gp_train_regroup regroup = { .workers_before = before,
                                 .workers = run->reform.world,
                                 .step = step,
                                 .seconds = (double)(gp_now_ms() - run->left_ms) * 1e-3,
                                 .lease = run->pool->lease,
                                 .died = run->died,
                                 .cause = run->cause };
    time_t now = time(NULL);
    struct tm local;
    char clock[8];

    gp_run_report_begin(run);
    memcpy(regroup.worker_index, run->facts.worker_index, sizeof(regroup.worker_index));
    summary->paused_seconds += regroup.seconds;
    strftime(clock, sizeof(clock), "%H:%M", localtime_r(&now, &local));
    pool_note(run->pool, "%s %" PRIu32 " -> %" PRIu32 " workers at step %" PRIu64 ", %.2f s: %s", clock,
              before, run->reform.world, step, regroup.seconds, run->cause);
    if (run->request->events.regroup != NULL)
        run->request->events.regroup(run->request->events.context, &regroup);
    run->left_ms = 0;
    run->anew = false;
}

/* A soft stop and a pause travel with the gradients: one rank is enough. */
static void pause_group(gp_run *run)
{
    gp_train_stop stop = { .pause = 1 };

    run->left_ms = 0;
    run->died = false;
    snprintf(run->cause, sizeof(run->cause), "%s",
             run->reform.wanted_asked                 ? "resized"
             : run->reform.wanted > run->reform.world ? "workers are free"
                                                      : "workers were given back");
    pool_tell_worker(run->pool, 0, &gp_msg_train_stop, &stop, NULL, 0, NULL, NULL);
}

static void do_one(gp_run *run, const reform_action *action)
{
    gp_error err;

    switch (action->kind) {
    case REFORM_DO_PREPARE:
        gp_run_join_prepare(run, action->workers);
        break;
    case REFORM_DO_PAUSE:
        pause_group(run);
        break;
    case REFORM_DO_FORM:
        if (run->left_ms == 0)
            run->left_ms = run->stepped_ms;
        if (pool_tell(run->pool, &gp_msg_lease_form, &(gp_lease_form){ .joining = gp_run_join_prepared(run) },
                      NULL, &err) != GP_OK)
            gp_run_fail(run, &err);
        break;
    case REFORM_DO_BEGIN:
        run->begin_due = true;
        run->begin.restart = action->restart;
        break;
    case REFORM_DO_GO_ON:
        gp_run_go_on(run, action->workers, action->step);
        break;
    case REFORM_DO_KEEP:
        if (action->why == REFORM_WHY_SHORT_LIVED) /* of one that cannot join its reason was told */
            pool_note(run->pool,
                      "workers that joined died %" PRIu32
                      " times within %d steps: no more of them are taken unless gradpool resize says so",
                      run->reform.short_lived, REFORM_PROVED_STEPS);
        if (pool_tell(run->pool, &gp_msg_lease_resize,
                      &(gp_lease_resize){ .lease = run->pool->lease, .workers = action->workers }, NULL,
                      &err) != GP_OK)
            gp_run_fail(run, &err);
        break;
    case REFORM_DO_ALARM:
        run->alarmed = action->ms != 0;
        run->alarm = gp_timeout_in(action->ms);
        break;
    case REFORM_DO_FAIL:
        fail(run, action->why);
        break;
    }
}

void gp_run_reform(gp_run *run, const reform_event *event)
{
    reform_action actions[REFORM_ACTIONS_MAX];
    size_t count = reform_step(&run->reform, event, actions);

    for (size_t i = 0; i < count; i++)
        do_one(run, &actions[i]);
}

/* The first death of a group is the one that is told. */
static void watch_lost(gp_run *run)
{
    const gp_worker_lost *lost = &run->pool->lost;
    uint32_t rank = 0;

    if (lost->index == 0 || run->lost_told || run->failure.code != GP_OK)
        return;
    run->lost_told = true;
    run->died = true;
    snprintf(run->cause, sizeof(run->cause), "%s%.*s", run->anew ? "restarted: " : "",
             (int)sizeof(run->cause) - 16, lost->cause);
    if (run->left_ms == 0)
        run->left_ms = run->failed_ms != 0 ? run->failed_ms : gp_now_ms();
    while (rank < run->facts.workers && run->facts.worker_index[rank] != lost->index)
        rank++;
    gp_run_reform(run, &(reform_event){ .kind = REFORM_LOST, .rank = rank });
}

void gp_run_watch(gp_run *run)
{
    gp_pool *pool = run->pool;

    watch_lost(run);
    if (pool->reunions != run->reunions) {
        run->reunions = pool->reunions;
        gp_run_join_forget(run); /* the next scheduler names them again */
        gp_run_reform(run, &(reform_event){ .kind = REFORM_REUNION });
    }
    if (pool->regranted && !run->reform.granted && !run->begin_due)
        gp_run_reform(run, &(reform_event){ .kind = REFORM_GRANT, .workers = pool->grant.slots_count });
    if (pool->change.workers != 0 && !pool->regranted) {
        gp_run_join_change(run, &pool->change);
        gp_run_reform(run, &(reform_event){ .kind = REFORM_CHANGE,
                                            .workers = pool->change.workers,
                                            .asked = pool->change.asked,
                                            .prepared = gp_run_join_count(run) });
        pool->change.workers = 0;
    }
    /* Handle all messages before reporting that a peer is late: this process may have been
     * suspended. */
    if (run->alarmed && gp_timeout_left(run->alarm) == 0 && run->quiet) {
        run->alarmed = false;
        gp_run_reform(run, &(reform_event){ .kind = REFORM_LATE });
    }
}

gp_status gp_run_form_again(gp_run *run, gp_error *err)
{
    gp_training_summary *summary = &run->training->summary;

    if (!run->begin_due)
        return GP_OK;
    run->begin_due = false;
    gp_run_join_forget(run);
    gp_status status = pool_attach(run->pool, err);

    if (status != GP_OK)
        return status;
    gp_run_reform(run, &(reform_event){ .kind = REFORM_ATTACHED, .workers = run->pool->grant.slots_count });
    gp_run_report_pending(run, &run->early);
    gp_run_report_pending(run, &run->spare);
    summary->restarts += run->died;
    summary->resizes += !run->died;
    run->lost_told = run->lost_worded = false;
    run->failure = run->effect = (gp_error){ 0 };
    run->failed_ms = 0;
    run->stop_told = 0;
    return gp_run_begin(run, err);
}
