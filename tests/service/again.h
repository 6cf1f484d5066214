/* again.h: trainings with worker failures, each on a separate pool, and their results. */
#ifndef GP_TEST_AGAIN_H
#define GP_TEST_AGAIN_H

#include <glob.h>

#include "common/base/system/file.h"
#include "tests/service/trained.h"

static const char *const exact[] __attribute__((unused)) = {
    "max-epochs=2",      "mini-batch-size=96",     "initial-learn-rate=0.002",       "solver=adam",
    "reproducible=true", "validation-frequency=7", "output-network=best-validation", NULL
};

/* Result of a training. */
typedef struct outcome {
    gp_status status;
    gp_error err;
    gp_training_summary summary;
    trained_model model;
    uint64_t next;    /* step that rank 0 reports next, from 1 */
    bool out_of_turn; /* another step was reported */
    double seconds;   /* time of the last step */
    bool earlier;     /* a step had an earlier time than the step before it */
    gp_pool *pool;
    uint64_t kill_all_at; /* step; 0: never */
    bool kill_always;     /* and after each restart */
    uint64_t stop_at;     /* step after which a stop is requested; 0: never */
    volatile sig_atomic_t stop;

    /* kill all workers at step 14, once this folder contains a checkpoint */
    const char *kill_saved;
    void (*saved)(const char *directory); /* called before that kill; may be NULL */
    const char *removed;                  /* folder that is removed when the training has begun; NULL: none */
    bool begun;                           /* the begin event was reported */

    /* a regroup event preceded it, or named no previous workers */
    bool regrouped_early;
    uint64_t anew_at; /* step after which the training last continued */
    double longest;   /* longest pause */
    uint32_t checks, checked_twice;
    uint64_t checked;
    const char *network; /* JSON; NULL: lenet */
} outcome;

static void kill_all(const outcome *o)
{
    for (uint32_t rank = 0; rank < o->pool->grant.slots_count; rank++)
        kill((pid_t)o->pool->grant.slots[rank].pid, SIGKILL);
}

/* Kill all workers once a checkpoint exists. Checkpoints are written in the background, at disk
 * speed. */
static void kill_all_saved(const outcome *o)
{
    char pattern[80];
    glob_t found = { 0 };

    snprintf(pattern, sizeof(pattern), "%s/[0-9]*.json", o->kill_saved);
    AWAIT(glob(pattern, 0, NULL, &found) != GLOB_NOMATCH, 10);
    if (found.gl_pathc == 0)
        GP_TEST_FAIL("no checkpoint in %s", o->kill_saved);
    globfree(&found);
    if (o->saved != NULL)
        o->saved(o->kill_saved);
    kill_all(o);
}

static void watch_step(void *context, const gp_train_step *step)
{
    outcome *o = context;

    if (step->rank != 0)
        return;
    if (step->step != o->next)
        printf("     step %d was reported, not %d\n", (int)step->step, (int)o->next);
    o->out_of_turn = o->out_of_turn || step->step != o->next;
    o->next = step->step + 1;
    o->earlier = o->earlier || step->seconds < o->seconds;
    o->seconds = step->seconds;
    if (step->step == o->stop_at)
        o->stop = 1;
    if (step->step == o->kill_all_at)
        kill_all(o);
    if (step->step == 14 && o->kill_saved != NULL && o->anew_at == 0)
        kill_all_saved(o);
}

static void watch_begin(void *context, const gp_train_info *facts)
{
    outcome *o = context;

    (void)facts;
    o->begun = true;
    if (o->removed != NULL)
        leftovers_clear(o->removed);
}

static void watch_regroup(void *context, const gp_train_rescale *regroup)
{
    outcome *o = context;

    o->regrouped_early = o->regrouped_early || !o->begun || regroup->workers_before == 0;
    o->anew_at = regroup->step;
    o->longest = regroup->seconds > o->longest ? regroup->seconds : o->longest;
    if (o->kill_always)
        kill_all(o);
}

static void watch_check(void *context, const gp_train_validation_result *check)
{
    outcome *o = context;

    o->checks++;
    o->checked_twice += check->step <= o->checked;
    o->checked = check->step;
}

static void outcome_free(outcome *o)
{
    free(o->model.data);
    *o = (outcome){ 0 };
}

/* Train on a new pool whose workers have that fault (NULL: none). */
static void run_on(outcome *o, uint32_t workers, const char *fault, const char *const *options)
{
    gp_pool *pool;

    char network[120];

    o->next = 1;
    gp_train_request request = { .network = o->network == NULL ? "lenet" : network,
                                 .data = "digits:1500",
                                 .options = options,
                                 .stop = &o->stop,
                                 .events = { .begin = watch_begin,
                                             .step = watch_step,
                                             .check = watch_check,
                                             .regroup = watch_regroup,
                                             .context = o } };

    pools_begin(fault);
    snprintf(network, sizeof(network), "%s/network.json", pools_root);
    if (o->network != NULL && gp_file_write(network, o->network, strlen(o->network), &o->err) != GP_OK)
        GP_TEST_FAIL("no network: %s", o->err.message);

    /* only this test kills workers */
    gp_pool_options daemons = { .workers = workers, .silence_ms = o->kill_saved != NULL ? -1 : 0 };

    if (gp_pool_open(&pool, &daemons, &o->err) != GP_OK) {
        GP_TEST_FAIL("no pool: %s", o->err.message);
        pools_end();
        return;
    }
    o->pool = pool;
    o->status = trained_run(&o->model, &o->summary, pool, &request, &o->err);
    gp_pool_close(pool);
    pools_end();
}

static inline void run(outcome *o, uint32_t workers, const char *fault, const char *const *options)
{
    *o = (outcome){ 0 };
    run_on(o, workers, fault, options);
}

static inline void check_same(const char *what, const outcome *wanted, const outcome *got)
{
    if (got->status != GP_OK) {
        GP_TEST_FAIL("%s: %s", what, got->err.message);
        return;
    }
    if (!trained_equal(&got->model, &wanted->model))
        GP_TEST_FAIL("%s: the models differ", what);
    if (got->out_of_turn || got->next != wanted->next || got->summary.steps != wanted->summary.steps)
        GP_TEST_FAIL("%s: its steps were not reported once each, in order, up to %llu", what,
                     (unsigned long long)wanted->next - 1);
    if (got->summary.restarts == 0)
        GP_TEST_FAIL("%s: no worker failed", what);
    if (got->regrouped_early)
        GP_TEST_FAIL("%s: a regroup event preceded the begin event, or named no previous workers", what);
    if (got->longest > 600)
        GP_TEST_FAIL("%s: a pause of %g s", what, got->longest);
    if (got->checked_twice != 0)
        GP_TEST_FAIL("%s: %u validations were reported twice", what, got->checked_twice);
}

#endif
