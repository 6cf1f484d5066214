/* train_again.c -- a training goes on although workers die.
 *
 *   steps ... worker_lost -> the survivors end their step and keep their state -> the lease gets another generation, with
 *   replacements -> attach -> train_begin to all, restart > 0 -> they agree on the furthest state -> steps ...
 *
 * What is told of a step is told once: news of steps that were told before are left out, and news that rank 0 took
 * with it are taken from another rank. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "client/train_run.h"
#include "common/base/alloc.h"
#include "common/base/clock.h"

enum {
    STEPS_MAX = 1 << 16,
    LAST_WORDS_MS = 300, /* what survivors are given to send their news, once the next generation is there */
    REPLACE_MS = 60000,  /* for a replacement to start and the survivors to end their step */
    WAITING_MS = 2000,   /* then it is said what is waited for */
};

/* ---- news that wait ---- */

void gp_step_list_add(gp_step_list *list, const gp_train_record *record)
{
    if (list->count == list->capacity) {
        size_t capacity = list->capacity == 0 ? 256 : 2 * list->capacity;
        gp_train_record *records =
            capacity > STEPS_MAX ? NULL : gp_realloc_array(list->records, capacity, sizeof(*records));

        if (records == NULL)
            return; /* then they may be missing */
        list->records = records;
        list->capacity = capacity;
    }
    list->records[list->count++] = *record;
}

void gp_step_list_drop(gp_step_list *list, uint64_t step)
{
    size_t kept = 0;

    for (size_t i = 0; i < list->count; i++)
        if (list->records[i].step > step)
            list->records[kept++] = list->records[i];
    list->count = kept;
}

/* ---- again ---- */

bool gp_run_may_go_on(const gp_run *run)
{
    bool moved = run->training->summary.steps > run->told;

    return run->world > 1 && (moved ? 0 : run->in_a_row) < run->options.max_restarts && run->stop_told < 2;
}

/* Survivors end what they were in: with their last answer all their news have come. */
static bool survivors_ended(const gp_run *run)
{
    return run->ended >= run->world;
}

static gp_status wait_for_generation(gp_run *run, gp_error *err)
{
    gp_pool *pool = run->pool;
    int64_t begin_ms = gp_now_ms(), granted_ms = 0;
    bool told = false;

    for (;;) {
        pool_message message;
        int64_t now_ms = gp_now_ms();

        if (pool->regranted && granted_ms == 0)
            granted_ms = now_ms;
        if (granted_ms != 0 && (survivors_ended(run) || now_ms - granted_ms > LAST_WORDS_MS))
            return GP_OK;
        if (pool->revoked)
            return gp_fail(err, GP_EPEER, "%s; the lease ended: %s", run->cause, pool->ended.reason);
        if (run->request->stop != NULL && *run->request->stop >= 2)
            return gp_fail(err, GP_ECANCELED, "stopped at once, while a worker was replaced");
        if (now_ms - begin_ms > REPLACE_MS)
            return gp_fail(err, GP_EPEER, "%s; it was not replaced within %d s", run->cause,
                           REPLACE_MS / 1000);
        if (!told && now_ms - begin_ms > WAITING_MS) {
            told = true;
            pool_note(pool, "%s; waiting for a replacement", run->cause);
        }
        gp_status status = pool_next(pool, &message, 20, err);

        if (status != GP_OK)
            return status;
        if (message.from == POOL_WORKER)
            gp_run_take(run, message.rank, &message.in);
        if (message.from != POOL_NOBODY)
            pool_message_close(&message);
    }
}

gp_status gp_run_form_again(gp_run *run, gp_error *err)
{
    gp_training_summary *summary = &run->training->summary;
    gp_status status = wait_for_generation(run, err);

    if (status == GP_OK)
        status = pool_attach(run->pool, err);
    if (status != GP_OK)
        return status;
    gp_run_tell_steps(run, &run->spare);
    run->in_a_row = summary->steps > run->told ? 1 : run->in_a_row + 1;
    run->told = summary->steps;
    summary->restarts++;
    run->begin.restart = summary->restarts;
    run->broken = false;
    run->ready = run->ended = 0;
    memset(run->rank_ended, 0, sizeof(run->rank_ended));
    run->failure = run->effect = (gp_error){ 0 };
    run->failed_ms = 0;
    run->stop_told = 0;
    run->loading_told = true;
    return gp_run_begin(run, err);
}

gp_status gp_run_went_on(gp_run *run, uint64_t step, gp_error *err)
{
    double paused = (double)(gp_now_ms() - run->broken_ms) * 1e-3;

    if (step == 0 && run->told > 0)
        return gp_fail(
            err, GP_EPEER, "%s; no worker is left that had the state of step %" PRIu64 "%s%s", run->cause,
            run->told,
            run->options.checkpoint_path[0] == '\0' ? "" : "; go on from the last checkpoint with --resume ",
            run->options.checkpoint_path);
    run->training->summary.paused_seconds += paused;
    pool_note(run->pool, "%s; %" PRIu32 " workers go on after step %" PRIu64 ", paused for %.2f s",
              run->cause, run->world, step, paused);
    return GP_OK;
}
