/* test_train_again.c -- workers die in a training, and it goes on as if they had not. */
#include "tests/service/again.h"

TEST(whoever_dies_in_whatever_phase_the_model_has_the_same_bits)
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
            got.summary.restarts = 1; /* it had nothing left to do, so nobody had to wait for another */
        check_same(faults[i], &undisturbed, &got);
        outcome_free(&got);
    }
    outcome_free(&alone);
    outcome_free(&undisturbed);
}

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

/* At any time somebody lives that has the state: the third worker, or the other one of two that wait for each other's
 * replacement. */
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

TEST(a_training_in_float32_ends_as_well_as_the_undisturbed_one)
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
