/* test_train_recover.c: a training continues after worker failures with the same result. */
#include "common/model/checkpoint_record.h"
#include "tests/service/again.h"

TEST(model_is_bitwise_identical_after_a_failure_in_any_phase)
{
    static const char *const faults[] = {
        "loading:1:kill@2.1", "ready:1:kill@1.1",   "forward:9:kill@1.1",    "exchange:20:kill@2.1",
        "commit:11:kill@1.1", "commit:12:kill@2.1", "validation:2:kill@1.1", "validation:5:kill@2.1",
        "done:1:kill@1.1",    "done:1:kill@2.1",
    };
    outcome alone, undisturbed, got;

    run(&undisturbed, 2, NULL, exact);
    REQUIRE_OK(undisturbed.status, undisturbed.err);
    REQUIRE(undisturbed.model.bytes > 0);
    CHECK(undisturbed.summary.validation_accuracy > 0.5);
    run(&alone, 3, NULL, exact);
    CHECK(trained_equal(&alone.model, &undisturbed.model));
    for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++) {
        run(&got, 2 + i % 2, faults[i], exact);
        if (strncmp(faults[i], "done:1:kill@2", 13) == 0 && got.status == GP_OK)
            got.summary.restarts = 1; /* no work was left, so that no rank waited for another */
        check_same(faults[i], &undisturbed, &got);
        outcome_free(&got);
    }
    outcome_free(&alone);
    outcome_free(&undisturbed);
}

/* Rank 0 fails in the step after a validation. The validation is reported in parallel with the
 * steps, mostly before the failure. */
TEST(validation_of_a_failed_rank_is_reported_once)
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

/* The same with at least two workers: the next failure then never hits the only one with the
 * state. */
static const char *const exact_by_two[] = { "max-epochs=2",
                                            "mini-batch-size=96",
                                            "solver=adam",
                                            "initial-learn-rate=0.002",
                                            "min-workers=2",
                                            "reproducible=true",
                                            "validation-frequency=7",
                                            "output-network=best-validation",
                                            NULL };

/* A running worker always has the state: the third worker, or one of two that wait for each other's
 * replacement. */
TEST(training_survives_successive_failures_while_a_worker_has_the_state)
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
    REQUIRE_OK(undisturbed.status, undisturbed.err);
    REQUIRE(undisturbed.model.bytes > 0);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        run(&got, cases[i].workers, cases[i].fault, cases[i].options);
        check_same(cases[i].fault, &undisturbed, &got);
        if (i == 0 && got.status == GP_OK)
            CHECK_INT(2, got.summary.restarts);
        outcome_free(&got);
    }
    outcome_free(&undisturbed);
}

/* The replacement of worker 2 gets the state from worker 1. */
TEST(resumed_training_survives_a_failure_after_its_checkpoint_was_removed)
{
    char folder[] = "/tmp/gpt-ck-XXXXXX", written[100], resumed[100];
    const char *const first[] = { "max-epochs=1", "mini-batch-size=96", written, NULL };
    const char *const second[] = { "max-epochs=2", "mini-batch-size=96", "min-workers=2", resumed, NULL };
    outcome got;

    REQUIRE(leftovers_make(folder) != NULL);
    snprintf(written, sizeof(written), "checkpoint-path=%s", folder);
    snprintf(resumed, sizeof(resumed), "resume=%s/16.json", folder);
    run(&got, 2, NULL, first);
    CHECK_STATUS(GP_OK, got.status);
    CHECK_INT(16, got.summary.steps);
    outcome_free(&got);
    got = (outcome){ .removed = folder };
    run_on(&got, 2, "commit:5:kill@2.1", second);
    if (got.status != GP_OK)
        GP_TEST_FAIL("%s", got.err.message);
    CHECK_INT(32, got.summary.steps);
    CHECK_INT(1, got.summary.restarts);
    outcome_free(&got);
    leftovers_clear(folder);
}

/* ---- checkpoints ---- */

static char checkpoints[64], path_option[100];

static void checkpoints_begin(void)
{
    strcpy(checkpoints, "/tmp/gpt-ck-XXXXXX");
    REQUIRE(leftovers_make(checkpoints) != NULL);
    snprintf(path_option, sizeof(path_option), "checkpoint-path=%s", checkpoints);
}

/* List the checkpoints, newest first, and read the record of the newest one. */
static gp_json *checkpoints_read(gp_checkpoint_list *steps)
{
    gp_json *record = NULL;
    gp_error err = { 0 };

    if (gp_checkpoint_list_steps(steps, checkpoints, &err) != GP_OK || steps->count == 0 ||
        gp_checkpoint_read_record(&record, checkpoints, steps->step[0], &err) != GP_OK)
        GP_TEST_FAIL("no checkpoint: %s", err.message);
    return record;
}

TEST(next_rank_0_writes_the_checkpoint_that_rank_0_did_not_finish)
{
    const char *const options[] = { "max-epochs=2", "mini-batch-size=32", path_option, NULL };
    static gp_checkpoint_list steps;
    outcome got;

    checkpoints_begin();
    run(&got, 2, "checkpoint:1:kill@1.1", options);
    REQUIRE_OK(got.status, got.err);
    gp_json_free(checkpoints_read(&steps));
    REQUIRE(steps.count == 2);
    CHECK_INT(got.summary.steps, steps.step[0]);
    CHECK(2 * steps.step[1] >= got.summary.steps && steps.step[1] < got.summary.steps);
    outcome_free(&got);
    leftovers_clear(checkpoints);
}

/* Rank 0 fails after the validation that follows the stop. */
TEST(validation_after_a_stop_does_not_count_although_a_rank_fails_after_it)
{
    const char *const options[] = { "max-epochs=50",
                                    "mini-batch-size=96",
                                    "validation-frequency=1000",
                                    "checkpoint-frequency=1000",
                                    path_option,
                                    NULL };
    static gp_checkpoint_list steps;
    outcome got = { .stop_at = 3 };

    checkpoints_begin();
    run_on(&got, 2, "done:1:kill@1.1", options);
    REQUIRE_OK(got.status, got.err);
    CHECK(got.summary.stopped);
    CHECK_INT(1, got.checks);
    gp_json *record = checkpoints_read(&steps);

    CHECK_INT(1, steps.count);
    CHECK_INT(got.summary.steps, steps.step[0]);
    CHECK(!gp_json_is_number(gp_json_member(record, "best_loss")));
    CHECK_INT(0, gp_json_integer(gp_json_member(record, "no_better"), -1));
    gp_json_free(record);
    outcome_free(&got);
    leftovers_clear(checkpoints);
}

/* The last checkpoint has the weights of the last step, and not those with the lowest validation
 * loss and new statistics, which the model has. */
TEST(failure_after_population_statistics_leaves_the_last_checkpoint_unchanged)
{
    static const char norm[] =
        "{\"name\": \"norm\", \"input\": [1, 28, 28], \"scale\": [0.0039], \"offset\": [0], \"layers\": ["
        "{\"name\": \"fc1\", \"kind\": \"fc\", \"outputs\": 16},"
        "{\"name\": \"norm1\", \"kind\": \"batchnorm\"},"
        "{\"name\": \"fc2\", \"kind\": \"fc\", \"outputs\": 10},"
        "{\"name\": \"loss\", \"kind\": \"crossentropy\"}]}";
    const char *const options[] = { "max-epochs=2",
                                    "mini-batch-size=96",
                                    "initial-learn-rate=0.1",
                                    "validation-frequency=7",
                                    "output-network=best-validation",
                                    "batch-norm-statistics=population",
                                    path_option,
                                    NULL };
    static const char *const faults[] = { NULL, "done:1:kill@1.1", "done:1:kill@2.1" };
    static gp_checkpoint_list steps;
    outcome undisturbed = { 0 };
    char sums[3][16];

    for (int i = 0; i < 3; i++) {
        outcome got = { .network = norm };

        checkpoints_begin();
        run_on(&got, 2, faults[i], options);
        REQUIRE_OK(got.status, got.err);
        if (i == 0)
            undisturbed = got;
        CHECK(trained_equal(&undisturbed.model, &got.model));
        gp_json *record = checkpoints_read(&steps);

        CHECK_INT(32, steps.step[0]);
        snprintf(sums[i], sizeof(sums[i]), "%s",
                 gp_json_text(gp_json_element(gp_json_member(record, "crc32c"), 0), "?"));
        CHECK_TEXT(sums[0], sums[i]);
        gp_json_free(record);
        if (i != 0)
            outcome_free(&got);
        leftovers_clear(checkpoints);
    }
    outcome_free(&undisturbed);
}

/* Rank 0 fails in or after the validation with which the resumed training ends. */
TEST(complete_run_that_resumes_leaves_its_last_checkpoint_unchanged)
{
    const char *const complete[] = { "max-epochs=1", "mini-batch-size=96", path_option, NULL };
    const char *const resumed[] = { "max-epochs=1", "mini-batch-size=96", path_option, "resume=auto", NULL };
    static const char *const faults[] = { NULL, "validation:1:kill@1.1", "done:1:kill@1.1" };
    static gp_checkpoint_list steps;

    checkpoints_begin();
    for (int i = 0; i < 3; i++) {
        outcome got;

        run(&got, 2, faults[i], i == 0 ? complete : resumed);
        REQUIRE_OK(got.status, got.err);
        gp_json *record = checkpoints_read(&steps);

        CHECK_INT(16, steps.step[0]);
        CHECK_INT(0, gp_json_integer(gp_json_member(record, "no_better"), -1));
        CHECK_INT(i != 0, got.summary.restarts);
        gp_json_free(record);
        outcome_free(&got);
    }
    leftovers_clear(checkpoints);
}

TEST(float32_training_with_failures_is_as_accurate_as_an_undisturbed_one)
{
    static const char *const options[] = { "max-epochs=2", "mini-batch-size=64", "initial-learn-rate=0.05",
                                           NULL };
    outcome undisturbed, got;

    run(&undisturbed, 3, NULL, options);
    run(&got, 3, "between-buckets:14:kill@1.1,commit:9:kill@3.1", options);
    REQUIRE_OK(undisturbed.status, undisturbed.err);
    REQUIRE_OK(got.status, got.err);
    CHECK(got.summary.restarts > 0);
    CHECK(got.summary.paused_seconds > 0);
    CHECK(!got.out_of_turn);
    CHECK_INT(undisturbed.summary.steps, got.summary.steps);
    CHECK_NEAR(undisturbed.summary.validation_accuracy, got.summary.validation_accuracy,
               0.02); /* of 250 digits */
    outcome_free(&undisturbed);
    outcome_free(&got);
}

TEST(repeated_failures_without_a_step_end_the_training_with_a_message)
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
