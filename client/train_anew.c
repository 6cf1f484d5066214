/* train_anew.c -- a training whose state is lost begins anew, in another lease.
 *
 *   the only worker died, or all did, or the lease is gone -> give it back -> ask for another, in the queue like anybody
 *   -> train_begin as at first, or after the newest checkpoint that this training wrote -> the same steps again -> new steps
 *
 * Steps and validations that were told are not told again.  It may happen max-restarts times in a row without a new step
 * between: a worker that always dies in the same step ends it. */
#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "client/train_run.h"
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

/* The step of the newest checkpoint in the folder, up to `last`, that was written since this training was made; 0 = none.  An
 * older one may be of another training. */
static uint64_t newest_own(const gp_run *run, uint64_t last)
{
    DIR *folder = opendir(run->options.checkpoint_path);
    const struct dirent *entry;
    uint64_t newest = 0;

    while (folder != NULL && (entry = readdir(folder)) != NULL) {
        struct stat facts;
        uint64_t step;
        int length = 0;

        if (sscanf(entry->d_name, "%20" SCNu64 ".json%n", &step, &length) == 1 && length > 0 &&
            entry->d_name[length] == '\0' && step > newest && step <= last &&
            fstatat(dirfd(folder), entry->d_name, &facts, 0) == 0 &&
            facts.st_mtim.tv_sec * INT64_C(1000000000) + facts.st_mtim.tv_nsec >= run->begun_ns)
            newest = step;
    }
    if (folder != NULL)
        closedir(folder);
    return newest;
}

/* Where it begins: what its request says, or a checkpoint of its own. */
static gp_status choose_beginning(gp_run *run, gp_error *err)
{
    uint64_t step = 0;
    char path[sizeof(run->options.resume) + 32];

    /* Who died may have written one of a step that it could not tell any more: not after that one, or its steps would be told by
     * nobody; but rather so than from the beginning. */
    if (run->options.checkpoint_path[0] != '\0')
        step = newest_own(run, run->training->summary.steps);
    if (run->options.checkpoint_path[0] != '\0' && step == 0)
        step = newest_own(run, UINT64_MAX);
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
    snprintf(run->cause, sizeof(run->cause), "begun anew: %.*s", (int)sizeof(run->cause) - 16, why->message);
    pool_note(run->pool, "the training begins anew: %s", why->message);
    run->training->summary.restarts++;
    run->spare.count = run->early.count = 0;
    gp_run_join_forget(run);
    run->failure = run->effect = (gp_error){ 0 };
    run->failed_ms = 0;
    run->alarmed = false;
    run->stop_told = 0;
    run->lost = run->lost_told = run->lost_worded = run->has_result = run->begin_due = run->loading_told =
        false;
    run->anew = run->died = true;
    run->begin.restart = 0;
    return choose_beginning(run, err);
}
