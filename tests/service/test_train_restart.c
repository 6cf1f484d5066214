/* test_train_restart.c: all workers with the state of a training fail: it restarts, or ends with an
 * error message. */
#include "tests/service/again.h"

/* All copies of the state are lost: the only worker failed, all failed at once, or the last one
 * failed after the others. */
TEST(training_with_lost_state_restarts_and_reports_each_step_once)
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
        { "commit:10:hang@1.1", 2, 7 }, /* prevents the end before all workers are killed */
        { "commit:10:hang@1.1,ready:1:kill@1.2", 2, 7 },
    };
    outcome undisturbed, got;

    run(&undisturbed, 2, NULL, exact);
    REQUIRE_OK(undisturbed.status, undisturbed.err);
    REQUIRE(undisturbed.model.bytes > 0 && undisturbed.checks > 2);
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

/* Copy checkpoints of another run into the directory: the restart must not continue from them. */
static void plant_foreign(const char *into)
{
    CHECK_INT(0, shell("cp %s/foreign/13.* %s/", own_folder, into));
}

/* Overwrite the beginning of the tensors that `which` selects from a list, oldest first. */
static void damage(const char *in, const char *which)
{
    char command[300];

    snprintf(command, sizeof(command),
             "for file in $(ls %s/*.safetensors | sort -V | %s); do "
             "printf damaged | dd of=$file bs=1 seek=8 conv=notrunc status=none; done",
             in, which);
    CHECK_INT(0, system(command));
}

static void damage_all(const char *in)
{
    damage(in, "cat");
}

TEST(a_restarted_training_continues_from_the_newest_checkpoint_of_its_own_run)
{
    char path[100], foreign[100];
    const char *options[] = { "max-epochs=1",
                              "mini-batch-size=64",
                              "seed=3",
                              "checkpoint-frequency=4",
                              "checkpoint-frequency-unit=iteration",
                              path,
                              NULL };
    const char *const other[] = { "max-epochs=1",
                                  "mini-batch-size=64",
                                  "seed=4",
                                  "checkpoint-frequency=13",
                                  "checkpoint-frequency-unit=iteration",
                                  foreign,
                                  NULL };
    outcome undisturbed, got;

    strcpy(own_folder, "/tmp/gpt-ck-XXXXXX");
    REQUIRE(leftovers_make(own_folder) != NULL);
    snprintf(foreign, sizeof(foreign), "checkpoint-path=%s/foreign", own_folder);
    run(&got, 1, NULL, other);
    REQUIRE_OK(got.status, got.err);
    outcome_free(&got);
    snprintf(path, sizeof(path), "checkpoint-path=%s/undisturbed", own_folder);
    run(&undisturbed, 1, NULL, options);
    REQUIRE_OK(undisturbed.status, undisturbed.err);
    REQUIRE(undisturbed.model.bytes > 0 && undisturbed.next > 20);
    snprintf(path, sizeof(path), "checkpoint-path=%s/before", own_folder);
    run(&got, 1, "forward:3:kill@1.1", options);
    check_same("before the first", &undisturbed, &got);
    CHECK_INT(0, got.anew_at);
    outcome_free(&got);
    snprintf(path, sizeof(path), "checkpoint-path=%s/after", own_folder);
    got = (outcome){ .kill_saved = path + strlen("checkpoint-path="), .saved = plant_foreign };
    run_on(&got, 1, "forward:15:hang@1.1", options);
    check_same("after the first", &undisturbed, &got);
    if (got.anew_at < 4 || got.anew_at > 12 || got.anew_at % 4 != 0)
        GP_TEST_FAIL("it continued after step %d", (int)got.anew_at);
    CHECK(!got.earlier);
    CHECK_NEAR(got.seconds, got.summary.seconds, 0);
    outcome_free(&got);
    snprintf(path, sizeof(path), "checkpoint-path=%s/damaged", own_folder);
    got = (outcome){ .kill_saved = path + strlen("checkpoint-path="), .saved = damage_all };
    run_on(&got, 1, "forward:15:hang@1.1", options);
    check_same("damaged", &undisturbed, &got);
    outcome_free(&got);
    outcome_free(&undisturbed);
    leftovers_clear(own_folder);
}

#define OFTEN "mini-batch-size=64", "seed=3", "checkpoint-frequency=4", "checkpoint-frequency-unit=iteration"

/* The worker falls back to the previous checkpoint and fails before its first step. For the
 * restart, the damaged checkpoint is still the newest one. */
TEST(a_restart_falls_back_from_a_damaged_checkpoint_to_the_previous_one)
{
    char path[100], resume[100];
    const char *const one_epoch[] = { "max-epochs=1", OFTEN, path, NULL };
    const char *const two_epochs[] = { "max-epochs=2", OFTEN, path, NULL };
    const char *const resumed[] = { "max-epochs=2", OFTEN, path, resume, "max-restarts=1", NULL };
    outcome undisturbed, got;

    strcpy(own_folder, "/tmp/gpt-ck-XXXXXX");
    REQUIRE(leftovers_make(own_folder) != NULL);
    snprintf(path, sizeof(path), "checkpoint-path=%s/undisturbed", own_folder);
    run(&undisturbed, 1, NULL, two_epochs);
    REQUIRE_OK(undisturbed.status, undisturbed.err);
    snprintf(path, sizeof(path), "checkpoint-path=%s/damaged", own_folder);
    snprintf(resume, sizeof(resume), "resume=%s/damaged", own_folder);
    run(&got, 1, NULL, one_epoch);
    REQUIRE_OK(got.status, got.err);
    const uint64_t end = got.summary.steps;

    outcome_free(&got);
    damage(path + strlen("checkpoint-path="), "tail -n 1");
    run(&got, 1, "ready:1:kill@1.1", resumed);
    REQUIRE_OK(got.status, got.err);
    CHECK(trained_equal(&undisturbed.model, &got.model));
    CHECK(got.anew_at > 0 && got.anew_at < end);
    CHECK_INT(1, got.summary.restarts);
    outcome_free(&got);
    outcome_free(&undisturbed);
    leftovers_clear(own_folder);
}

TEST(only_worker_that_always_fails_in_one_step_ends_the_training)
{
    static const char *const twice[] = { "max-epochs=2", "mini-batch-size=64", "max-restarts=2", NULL };
    outcome got;

    run(&got, 1, "forward:40:kill@1", twice);
    CHECK_STATUS(GP_EPEER, got.status);
    CHECK_CONTAINS(got.err.message, "worker 1");
    CHECK_CONTAINS(got.err.message, "signal 9");
    CHECK_CONTAINS(got.err.message, "the last step that all workers completed is");
    CHECK(got.next <= 40 && !got.out_of_turn);
}

TEST(repeated_failures_of_all_workers_name_the_checkpoint_to_resume)
{
    char path[100], reported[100];
    const char *const options[] = { "max-epochs=100",
                                    "mini-batch-size=64",
                                    "max-restarts=1",
                                    path,
                                    "checkpoint-frequency=2",
                                    "checkpoint-frequency-unit=iteration",
                                    NULL };
    outcome got = { .kill_all_at = 5, .kill_always = true };

    strcpy(own_folder, "/tmp/gpt-ck-XXXXXX");
    REQUIRE(leftovers_make(own_folder) != NULL);
    snprintf(path, sizeof(path), "checkpoint-path=%s", own_folder);
    snprintf(reported, sizeof(reported), "--resume %s", own_folder);

    run_on(&got, 2, NULL, options);
    CHECK_STATUS(GP_EPEER, got.status);
    CHECK_CONTAINS(got.err.message, reported);
    leftovers_clear(own_folder);
}
