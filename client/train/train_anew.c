/* Restart a training whose state is lost, in another lease.
 *
 *   the only worker failed, all workers failed, or the lease is gone -> release the lease -> ask for another one
 *   -> train_begin with the newest checkpoint of this run, or as at first -> the same steps again -> new steps
 *
 * Steps and validations that were reported are not reported again.  A training restarts at most max-restarts times
 * without a new step in between: so a worker that always fails in the same step ends it. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "client/train/train_run.h"
#include "common/base/clock.h"

bool gp_run_lost_lease(const gp_run *run, gp_status status)
{
    const gp_pool *pool = run->pool;

    if (status == GP_ECANCELED)
        return pool->ended.code == GP_ESTALE; /* its scheduler died, and the next one did not know it */
    if (pool_is_gone(pool) && !pool_missed(pool))
        return false; /* the pool ended as it was told */
    return status == GP_EPEER || status == GP_ESTALE || status == GP_ETIMEDOUT;
}

bool gp_run_may_begin_anew(gp_run *run)
{
    const gp_training_summary *summary = &run->training->summary;
    bool stop = run->request->stop != NULL && *run->request->stop != 0;

    if (summary->steps > run->lost_at)
        run->losses = 0;
    if (!run->lost || stop || run->losses >= run->options.max_restarts)
        return false;
    run->losses++;
    run->lost_at = summary->steps;
    return true;
}

/* Point options.resume at the newest checkpoint of this run; without one it stays as the request has it.
 *
 * A worker that died may have written a checkpoint after the last step that it reported.  An older checkpoint is
 * preferred, so that each step is reported; but a later one is better than starting from the beginning. */
static gp_status choose_beginning(gp_run *run, gp_error *err)
{
    char path[sizeof(run->options.resume) + 32];
    uint64_t step = gp_run_newest_checkpoint(run, run->training->summary.steps);

    if (step == 0)
        step = gp_run_newest_checkpoint(run, UINT64_MAX);
    if (step == 0 || run->options_text == NULL)
        return GP_OK;
    if ((size_t)snprintf(path, sizeof(path), "%s/%" PRIu64 ".json", run->options.checkpoint_path, step) >=
        sizeof(run->options.resume))
        return gp_fail(err, GP_ELIMIT, "the path %s is longer than %zu bytes", path,
                       sizeof(run->options.resume) - 1);
    strcpy(run->options.resume, path);
    return gp_run_write_options(run, err);
}

gp_status gp_run_begin_anew(gp_run *run, const gp_error *why, gp_error *err)
{
    if (run->left_ms == 0)
        run->left_ms = gp_now_ms();
    snprintf(run->cause, sizeof(run->cause), "restarted: %.*s", (int)sizeof(run->cause) - 16, why->message);
    pool_note(run->pool, "the training restarts: %s", why->message);
    run->training->summary.restarts++;
    run->spare.count = run->early.count = 0;
    gp_run_join_forget(run);
    run->failure = run->effect = (gp_error){ 0 };
    run->failed_ms = 0;
    run->alarmed = false;
    run->stop_told = 0;
    run->lost = run->lost_told = run->lost_worded = run->has_result = run->begin_due = false;
    run->anew = run->died = true;
    run->begin.restart = 0;
    return choose_beginning(run, err);
}
