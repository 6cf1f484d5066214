/* train_restart.c: restart a training with another lease after its state was lost.
 *
 *   the only worker failed, all workers failed, or the lease is gone
 *   -> release the lease -> request another
 *   -> train_begin with the newest checkpoint of this run, or the initial state
 *   -> the checkpoint is damaged: restart from the previous one
 *   -> repeated steps -> new steps
 *
 * Steps and validations that were reported are not reported again. A training restarts at most
 * max-restarts times without a new step in between. Thus a worker that always fails in the same
 * step ends the training. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "client/train/train_run.h"
#include "common/base/clock.h"

gp_run_state gp_run_state_after(const gp_run *run, gp_status status)
{
    const gp_pool *pool = run->pool;
    bool lost;

    if (status == GP_ECANCELED)
        lost = pool->ended.code == GP_ESTALE; /* the scheduler's successor did not know the lease */
    else if (pool_is_gone(pool) && !pool_missed(pool))
        lost = false; /* the pool was shut down */
    else
        lost = status == GP_EPEER || status == GP_ESTALE || status == GP_ETIMEDOUT;
    return lost ? GP_RUN_LOST : GP_RUN_FAILED;
}

/* Return whether the last restart failed because its checkpoint is damaged. */
static bool checkpoint_is_damaged(const gp_run *run, const gp_error *why)
{
    return run->resumed_step != 0 && why->code == GP_ECORRUPT;
}

bool gp_run_may_restart(gp_run *run, const gp_error *why)
{
    const gp_training_summary *summary = &run->training->summary;
    bool stop = run->request->stop != NULL && *run->request->stop != 0;

    if (summary->steps > run->restart_step)
        run->restarts = 0;
    if (run->state != GP_RUN_LOST || stop)
        return false;
    if (checkpoint_is_damaged(run, why)) /* no limit needed: no checkpoint is tried twice */
        return true;
    if (run->restarts >= run->options.max_restarts)
        return false;
    run->restarts++;
    run->restart_step = summary->steps;
    return true;
}

/* Choose the checkpoint to restart from.
 *   step     set to the step of the checkpoint; 0: none, restart with the requested `resume`
 *   damaged  step of the damaged checkpoint of the last restart; 0: a worker failed
 *
 * Checkpoints up to the last reported step come first, newest first, so that every step is
 * reported. A failed worker may also have written checkpoints of later steps. They come next,
 * newest first, because they are better than a restart from the beginning. */
static gp_status choose_step(uint64_t *step, const gp_run *run, uint64_t damaged, gp_error *err)
{
    const uint64_t steps = run->training->summary.steps;
    gp_status status;

    *step = 0;
    if (run->message.options.bytes == 0) /* no group has started */
        return GP_OK;
    if (damaged <= steps) {
        status = gp_run_newest_checkpoint(step, run, damaged != 0 ? damaged - 1 : steps, err);
        if (status != GP_OK || *step != 0)
            return status;
    }
    status = gp_run_newest_checkpoint(step, run, damaged > steps ? damaged - 1 : UINT64_MAX, err);
    if (*step <= steps) /* an older one was already tried */
        *step = 0;
    return status;
}

/* Report the restart: as a warning if a checkpoint is damaged, otherwise as a note. */
static void report_restart(const gp_run *run, bool damaged, const gp_error *why)
{
    const gp_train_events *events = &run->request->events;
    char from[64] = "", text[sizeof(why->message) + 128];

    if (run->resumed_step != 0)
        snprintf(from, sizeof(from), " from the checkpoint of step %" PRIu64, run->resumed_step);
    snprintf(text, sizeof(text), "the training restarts%s: %s", from, why->message);
    if (damaged && events->warning != NULL)
        events->warning(events->context, text);
    else
        pool_note(run->pool, "%s", text);
}

gp_status gp_run_restart(gp_run *run, const gp_error *why, gp_error *err)
{
    const bool damaged = checkpoint_is_damaged(run, why);
    char *resume = run->options.resume;
    gp_error failure = *why, unlisted = { 0 }; /* `why` and `err` may be the same */

    if (run->paused_ms == 0)
        run->paused_ms = gp_now_ms();
    if (!damaged) { /* a damaged checkpoint continues the restart that was already counted */
        snprintf(run->cause, sizeof(run->cause), "restarted: %.*s", (int)sizeof(run->cause) - 16,
                 why->message);
        run->training->summary.restarts++;
    }
    run->report.spare.count = run->report.early.count = 0;
    run->report.seconds_before = run->training->summary.seconds;
    gp_joiners_forget(&run->joiners, run->pool);
    run->alarm = (gp_timeout){ 0 };
    run->state = GP_RUN_PREPARED;
    run->pause = GP_RUN_RESTARTED;
    run->message.fields.restart = 0;
    if (choose_step(&run->resumed_step, run, damaged ? run->resumed_step : 0, &unlisted) != GP_OK)
        return gp_fail(err, unlisted.code, "the training cannot restart: %s; it had failed: %s",
                       unlisted.message, failure.message);
    report_restart(run, damaged, why);
    if (run->message.options.bytes == 0)
        return GP_OK;
    if (run->resumed_step == 0)
        strcpy(resume, run->requested_resume);
    else if ((size_t)snprintf(resume, sizeof(run->options.resume), "%s/%" PRIu64 ".json",
                              run->options.checkpoint_path, run->resumed_step) >= sizeof(run->options.resume))
        return gp_fail(err, GP_ELIMIT, "the path %s/%" PRIu64 ".json is longer than %zu bytes",
                       run->options.checkpoint_path, run->resumed_step, sizeof(run->options.resume) - 1);
    return gp_begin_message_set_options(&run->message, &run->options, err);
}
