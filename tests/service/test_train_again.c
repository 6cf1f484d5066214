/* test_train_again.c -- workers die in a training, and it goes on as if they had not. */
#include <glob.h>

#include "common/base/file.h"
#include "tests/service/trained.h"

static const char *const exact[] = {
    "max-epochs=2",      "mini-batch-size=96",     "initial-learn-rate=0.002",       "solver=adam",
    "reproducible=true", "validation-frequency=7", "output-network=best-validation", NULL
};

/* The same, and nobody goes on alone: who may die next is then not the only one that has the state. */
static const char *const exact_by_two[] = { "max-epochs=2",
                                            "mini-batch-size=96",
                                            "solver=adam",
                                            "initial-learn-rate=0.002",
                                            "min-workers=2",
                                            "reproducible=true",
                                            "validation-frequency=7",
                                            "output-network=best-validation",
                                            NULL };

/* What came of a training. */
typedef struct outcome {
    gp_status status;
    gp_error err;
    gp_training_summary summary;
    trained_model model;
    uint64_t next;    /* the step that rank 0 tells next, from 1 */
    bool out_of_turn; /* another one was told */
    gp_pool *pool;
    uint64_t kill_all_at;   /* the step; 0 = never */
    bool kill_always;       /* and whenever it goes on */
    const char *kill_saved; /* all of them at step 14, once a checkpoint stands in this folder */
    uint64_t anew_at;       /* the step after which it went on last */
    double longest;         /* of the pauses */
    uint32_t checks, checked_twice;
    uint64_t checked;
    const char *network; /* JSON; NULL: lenet */
} outcome;

static void kill_all(const outcome *o)
{
    for (uint32_t rank = 0; rank < o->pool->grant.slots_count; rank++)
        kill((pid_t)o->pool->grant.slots[rank].pid, SIGKILL);
}

/* A checkpoint is written beside the steps, as fast as the disk is. */
static void kill_all_saved(const outcome *o)
{
    char pattern[80];
    glob_t found = { 0 };

    snprintf(pattern, sizeof(pattern), "%s/[0-9]*.json", o->kill_saved);
    for (int64_t until = gp_now_ms() + POOLS_PATIENCE_MS;
         glob(pattern, 0, NULL, &found) == GLOB_NOMATCH && gp_now_ms() < until;)
        usleep(10000);
    if (found.gl_pathc == 0)
        GP_TEST_FAIL("no checkpoint in %s", o->kill_saved);
    globfree(&found);
    kill_all(o);
}

static void watch_step(void *context, const gp_train_step *step)
{
    outcome *o = context;

    if (step->rank != 0)
        return;
    if (step->step != o->next)
        printf("     step %d was told, not %d\n", (int)step->step, (int)o->next);
    o->out_of_turn = o->out_of_turn || step->step != o->next;
    o->next = step->step + 1;
    if (step->step == o->kill_all_at)
        kill_all(o);
    if (step->step == 14 && o->kill_saved != NULL && o->anew_at == 0)
        kill_all_saved(o);
}

static void watch_regroup(void *context, const gp_train_regroup *regroup)
{
    outcome *o = context;

    o->anew_at = regroup->step;
    o->longest = regroup->seconds > o->longest ? regroup->seconds : o->longest;
    if (o->kill_always)
        kill_all(o);
}

static void watch_check(void *context, const gp_train_check *check)
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

/* On a pool of its own, whose workers have that fault (NULL: none). */
static void run_on(outcome *o, uint32_t workers, const char *fault, const char *const *options)
{
    gp_training *training = NULL;
    gp_pool *pool;

    char network[120];

    o->next = 1;
    gp_train_request request = {
        .network = o->network == NULL ? "lenet" : network,
        .data = "digits:1500",
        .options = options,
        .events = { .step = watch_step, .check = watch_check, .regroup = watch_regroup, .context = o }
    };

    pools_begin(fault);
    snprintf(network, sizeof(network), "%s/network.json", pools_root);
    if (o->network != NULL && gp_file_write(network, o->network, strlen(o->network), &o->err) != GP_OK)
        GP_TEST_FAIL("no network: %s", o->err.message);
    gp_pool_options daemons = { .workers = workers,
                                .silence_ms = o->kill_saved != NULL ? -1 : 0 }; /* we kill, nobody else */

    if (gp_pool_open(&pool, &daemons, &o->err) != GP_OK) {
        GP_TEST_FAIL("no pool: %s", o->err.message);
        pools_end();
        return;
    }
    o->pool = pool;
    o->status = gp_train(&training, pool, &request, &o->err);
    if (o->status == GP_OK) {
        gp_training_summarize(training, &o->summary);
        o->model = trained_read(training);
        gp_training_free(training);
    }
    gp_pool_close(pool);
    pools_end();
}

static void run(outcome *o, uint32_t workers, const char *fault, const char *const *options)
{
    *o = (outcome){ 0 };
    run_on(o, workers, fault, options);
}

static void check_same(const char *what, const outcome *wanted, const outcome *got)
{
    if (got->status != GP_OK) {
        GP_TEST_FAIL("%s: %s", what, got->err.message);
        return;
    }
    if (!trained_equal(&got->model, &wanted->model))
        GP_TEST_FAIL("%s: another model", what);
    if (got->out_of_turn || got->next != wanted->next || got->summary.steps != wanted->summary.steps)
        GP_TEST_FAIL("%s: its steps were not told once each, in order, up to %llu", what,
                     (unsigned long long)wanted->next - 1);
    if (got->summary.restarts == 0)
        GP_TEST_FAIL("%s: nobody died", what);
    if (got->longest > 600)
        GP_TEST_FAIL("%s: a pause of %g s", what, got->longest);
    if (got->checked_twice != 0)
        GP_TEST_FAIL("%s: %u validations were told twice", what, got->checked_twice);
}

TEST(whoever_dies_in_whatever_phase_the_model_has_the_same_bits)
{
    static const char *const faults[] = {
        "loading:1:kill@2.1", "ready:1:kill@1.1",   "forward:9:kill@1.1",    "exchange:20:kill@2.1",
        "commit:11:kill@1.1", "commit:12:kill@2.1", "validation:2:kill@1.1", "validation:5:kill@2.1",
        "done:1:kill@1.1",    "done:1:kill@2.1",
    };
    outcome alone, undisturbed, got;

    run(&undisturbed, 2, NULL, exact);
    REQUIRE(undisturbed.status == GP_OK && undisturbed.model.bytes > 0);
    CHECK(undisturbed.summary.validation_accuracy > 0.5);
    run(&alone, 3, NULL, exact);
    CHECK(trained_equal(&alone.model, &undisturbed.model));
    for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++) {
        run(&got, 2 + i % 2, faults[i], exact);
        if (strncmp(faults[i], "done:1:kill@2", 13) == 0 && got.status == GP_OK)
            got.summary.restarts = 1; /* it had nothing left to do, so nobody had to wait for another */
        check_same(faults[i], &undisturbed, &got);
        outcome_free(&got);
    }
    outcome_free(&alone);
    outcome_free(&undisturbed);
}

/* At any time somebody lives that has the state: the third worker, or the other one of two that wait for each other's
 * replacement. */
/* Rank 0 dies in the step after a validation, which is told beside the steps: mostly before that. */
TEST(a_validation_that_only_a_dying_rank_would_have_told_is_told_once)
{
    static const char *const options[] = { "max-epochs=2", "mini-batch-size=96", "validation-frequency=7",
                                           NULL };
    outcome calm = { 0 }, hurt = { 0 };

    run_on(&calm, 2, NULL, options);
    REQUIRE_OK(calm.status, calm.err);
    CHECK(calm.checks >= 4 && calm.checked_twice == 0);
    run_on(&hurt, 2, "forward:8:kill@1.1", options);
    REQUIRE_OK(hurt.status, hurt.err);
    CHECK(hurt.anew_at >= 7);
    CHECK_INT(calm.checks, hurt.checks);
    CHECK_INT(0, hurt.checked_twice);
    CHECK_INT(calm.checked, hurt.checked);
    outcome_free(&calm);
    outcome_free(&hurt);
}

TEST(one_after_the_other_may_die_if_somebody_has_the_state)
{
    static const struct {
        const char *fault;
        uint32_t workers;
        const char *const *options;
    } cases[] = {
        { "commit:5:kill@1.1,forward:3:kill@2.1", 2, exact_by_two },
        { "commit:5:kill@1.1,forward:3:kill@2.1", 3, exact },
        { "forward:4:kill@2.1,commit:6:kill@2.2,exchange:15:kill@1.1", 3, exact },
    };
    outcome undisturbed, got;

    run(&undisturbed, 2, NULL, exact);
    REQUIRE(undisturbed.status == GP_OK && undisturbed.model.bytes > 0);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        run(&got, cases[i].workers, cases[i].fault, cases[i].options);
        check_same(cases[i].fault, &undisturbed, &got);
        if (i == 0 && got.status == GP_OK)
            CHECK_INT(2, got.summary.restarts);
        outcome_free(&got);
    }
    outcome_free(&undisturbed);
}

/* Nobody is left that has the state: the only worker died, or all did, or the last one after the others. */
TEST(a_training_whose_state_is_lost_begins_anew_and_tells_each_step_once)
{
    static const struct {
        const char *fault;
        uint32_t workers;
        uint64_t kill_all_at;
    } cases[] = {
        { "ready:1:kill@1.1", 1, 0 },
        { "commit:5:kill@1.1,attached:1:kill@1.2", 1, 0 },
        { "validation:2:kill@1.1", 1, 0 },
        { "done:1:kill@1.1", 1, 0 },
        { "forward:3:kill@2.1,claimed:1:kill@2.2,commit:5:kill@1.1", 2, 0 },
        { "commit:10:hang@1.1", 2, 7 }, /* it does not end before all are killed */
        { "commit:10:hang@1.1,ready:1:kill@1.2", 2, 7 },
    };
    outcome undisturbed, got;

    run(&undisturbed, 2, NULL, exact);
    REQUIRE(undisturbed.status == GP_OK && undisturbed.model.bytes > 0 && undisturbed.checks > 2);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        got = (outcome){ .kill_all_at = cases[i].kill_all_at };
        run_on(&got, cases[i].workers, cases[i].fault, exact);
        check_same(cases[i].fault, &undisturbed, &got);
        CHECK_INT(undisturbed.checks, got.checks);
        outcome_free(&got);
    }
    outcome_free(&undisturbed);
}

static char own_folder[64];

static void remove_own_folder(void)
{
    nftw(own_folder, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

TEST(a_training_that_begins_anew_goes_on_from_the_newest_checkpoint_of_its_own)
{
    char path[100];
    const char *const options[] = { "max-epochs=1",
                                    "mini-batch-size=64",
                                    "seed=3",
                                    "checkpoint-frequency=4",
                                    "checkpoint-frequency-unit=iteration",
                                    path,
                                    NULL };
    outcome undisturbed, got;

    strcpy(own_folder, "/tmp/gpt-ck-XXXXXX");
    REQUIRE(mkdtemp(own_folder) != NULL);
    leftovers_watch(own_folder);
    snprintf(path, sizeof(path), "checkpoint-path=%s", own_folder);
    run(&undisturbed, 1, NULL, options); /* what it leaves is not of the next one */
    REQUIRE(undisturbed.status == GP_OK && undisturbed.model.bytes > 0 && undisturbed.next > 20);
    run(&got, 1, "forward:3:kill@1.1", options);
    check_same("before the first", &undisturbed, &got);
    CHECK_INT(0, got.anew_at);
    outcome_free(&got);
    remove_own_folder();
    got = (outcome){ .kill_saved = own_folder };
    run_on(&got, 1, "forward:15:hang@1.1", options);
    check_same("after the first", &undisturbed, &got);
    if (got.anew_at < 4 || got.anew_at > 12 || got.anew_at % 4 != 0)
        GP_TEST_FAIL("it went on after step %d", (int)got.anew_at);
    outcome_free(&got);
    outcome_free(&undisturbed);
    remove_own_folder();
}

/* Large enough for one copy of the state (trainer_shard.c), which dies with nobody; of small mini-batches the gradient of fc1
 * is made from what the ranks write for each other (trainer_factors.c). */
static void check_wide(const char *batch)
{
    static const char network[] =
        "{\"name\": \"wide\", \"input\": [1, 28, 28], \"scale\": [0.0039], \"offset\": [0], \"layers\": ["
        "{\"name\": \"fc1\", \"kind\": \"fc\", \"outputs\": 400}, {\"name\": \"relu1\", \"kind\": \"relu\"},"
        "{\"name\": \"fc2\", \"kind\": \"fc\", \"outputs\": 10}, {\"name\": \"loss\", \"kind\": "
        "\"crossentropy\"}]}";
    const char *const options[] = { "max-epochs=2", batch,           "initial-learn-rate=0.002",
                                    "solver=adam",  "min-workers=2", NULL };
    static const char *const faults[] = { "forward:9:kill@1.1",   "exchange:12:kill@1.1",
                                          "exchange:12:kill@2.1", "between-buckets:7:kill@2.1",
                                          "commit:11:kill@1.1",   "validation:1:kill@1.1",
                                          "done:1:kill@1.1" };
    outcome undisturbed = { .network = network }, got;

    run_on(&undisturbed, 2, NULL, options);
    REQUIRE(undisturbed.status == GP_OK && undisturbed.model.bytes > 400 * 784 * 4);
    CHECK(undisturbed.summary.validation_accuracy > 0.5);
    for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++) {
        got = (outcome){ .network = network };
        run_on(&got, 2, faults[i], options);
        check_same(faults[i], &undisturbed, &got);
        outcome_free(&got);
    }
    outcome_free(&undisturbed);
}

TEST(ranks_that_share_their_state_go_on_to_the_same_bits_on_as_many_workers)
{
    check_wide("mini-batch-size=96");
    check_wide("mini-batch-size=16");
}

TEST(a_training_in_float32_ends_as_well_as_the_undisturbed_one)
{
    static const char *const options[] = { "max-epochs=2", "mini-batch-size=64", "initial-learn-rate=0.05",
                                           NULL };
    outcome undisturbed, got;

    run(&undisturbed, 3, NULL, options);
    run(&got, 3, "between-buckets:14:kill@1.1,commit:9:kill@3.1", options);
    REQUIRE(undisturbed.status == GP_OK && got.status == GP_OK);
    CHECK(got.summary.restarts > 0);
    CHECK(got.summary.paused_seconds > 0);
    CHECK(!got.out_of_turn);
    CHECK_INT(undisturbed.summary.steps, got.summary.steps);
    CHECK_NEAR(undisturbed.summary.validation_accuracy, got.summary.validation_accuracy,
               0.02); /* of 250 digits */
    outcome_free(&undisturbed);
    outcome_free(&got);
}

TEST(a_worker_that_dies_again_and_again_without_a_step_ends_the_training_in_words)
{
    static const char *const twice[] = { "max-epochs=2", "mini-batch-size=64", "max-restarts=2",
                                         "min-workers=2", NULL };
    static const char *const never[] = { "max-epochs=2", "mini-batch-size=64", "max-restarts=0", NULL };
    outcome got;

    run(&got, 2, "forward:1:kill@2", twice);
    CHECK_STATUS(GP_EPEER, got.status);
    CHECK_CONTAINS(got.err.message, "worker 2");
    CHECK_CONTAINS(got.err.message, "signal 9");
    run(&got, 2, "forward:5:kill@2.1", never);
    CHECK_STATUS(GP_EPEER, got.status);
    CHECK_CONTAINS(got.err.message, "worker 2");
}

TEST(an_only_worker_that_always_dies_in_the_same_step_ends_the_training_in_words)
{
    static const char *const twice[] = { "max-epochs=2", "mini-batch-size=64", "max-restarts=2", NULL };
    outcome got;

    run(&got, 1, "forward:40:kill@1", twice);
    CHECK_STATUS(GP_EPEER, got.status);
    CHECK_CONTAINS(got.err.message, "worker 1");
    CHECK_CONTAINS(got.err.message, "signal 9");
    CHECK_CONTAINS(got.err.message, "the last step that all workers finished is");
    CHECK(got.next <= 40 && !got.out_of_turn);
}

TEST(when_all_die_too_often_the_checkpoint_to_go_on_from_is_named)
{
    char path[100], told[100];
    const char *const options[] = { "max-epochs=100", "mini-batch-size=64", "max-restarts=1", path, NULL };
    outcome got = { .kill_all_at = 5, .kill_always = true };

    strcpy(own_folder, "/tmp/gpt-ck-XXXXXX");
    REQUIRE(mkdtemp(own_folder) != NULL);
    leftovers_watch(own_folder);
    snprintf(path, sizeof(path), "checkpoint-path=%s", own_folder);
    snprintf(told, sizeof(told), "--resume %s", own_folder);

    run_on(&got, 2, NULL, options);
    CHECK_STATUS(GP_EPEER, got.status);
    CHECK_CONTAINS(got.err.message, told);
    remove_own_folder();
}
