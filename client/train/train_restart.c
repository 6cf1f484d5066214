/* train_restart.c: restart a training with another lease after its state was lost.
 *
 *   the only worker failed, all workers failed, or the lease is gone
 *   -> release the lease -> request another
 *   -> train_begin with the newest checkpoint of this run, or the initial state
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

bool gp_run_may_restart(gp_run *run)
{
    const gp_training_summary *summary = &run->training->summary;
    bool stop = run->request->stop != NULL && *run->request->stop != 0;

    if (summary->steps > run->restart_step)
        run->restarts = 0;
    if (run->state != GP_RUN_LOST || stop || run->restarts >= run->options.max_restarts)
        return false;
    run->restarts++;
    run->restart_step = summary->steps;
    return true;
}

gp_status gp_run_restart(gp_run *run, const gp_error *why, gp_error *err)
{
    if (run->paused_ms == 0)
        run->paused_ms = gp_now_ms();
    snprintf(run->cause, sizeof(run->cause), "restarted: %.*s", (int)sizeof(run->cause) - 16, why->message);
    run->training->summary.restarts++;
    run->report.spare.count = run->report.early.count = 0;
    run->report.seconds_before = run->training->summary.seconds;
    gp_joiners_forget(&run->joiners, run->pool);
    run->alarm = (gp_timeout){ 0 };
    run->state = GP_RUN_PREPARED;
    run->pause = GP_RUN_RESTARTED;
    run->message.fields.restart = 0;

    /* Point options.resume at the newest checkpoint from this run. Without a checkpoint, keep the
     * request's value. A failed worker may have written a checkpoint after the last step that it
     * reported. An older checkpoint is preferred, so that every step is reported; a later one is
     * still better than a restart from the beginning. */
    char path[sizeof(run->options.resume) + 32];
    uint64_t step = gp_run_newest_checkpoint(run, run->training->summary.steps);

    if (step == 0)
        step = gp_run_newest_checkpoint(run, UINT64_MAX);
    if (step == 0 || run->message.options.bytes == 0) {
        pool_note(run->pool, "the training restarts: %s", why->message);
        return GP_OK;
    }
    pool_note(run->pool, "the training restarts from the checkpoint of step %" PRIu64 ": %s", step,
              why->message);
    if ((size_t)snprintf(path, sizeof(path), "%s/%" PRIu64 ".json", run->options.checkpoint_path, step) >=
        sizeof(run->options.resume))
        return gp_fail(err, GP_ELIMIT, "the path %s is longer than %zu bytes", path,
                       sizeof(run->options.resume) - 1);
    strcpy(run->options.resume, path);
    return gp_begin_message_set_options(&run->message, &run->options, err);
}
