/* test_train_wide.c: failures of workers with sharded training state. */
#include "tests/service/again.h"

/* Train a network large enough for sharded state (trainer_shard.c), which survives every single
 * failure. With small mini-batches, the gradient of fc1 is computed from exchanged factors
 * (trainer_factors.c). */
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
    REQUIRE_OK(undisturbed.status, undisturbed.err);
    REQUIRE(undisturbed.model.bytes > 400 * 784 * 4);
    CHECK(undisturbed.summary.validation_accuracy > 0.5);
    for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++) {
        got = (outcome){ .network = network };
        run_on(&got, 2, faults[i], options);
        check_same(faults[i], &undisturbed, &got);
        outcome_free(&got);
    }
    outcome_free(&undisturbed);
}

TEST(sharded_training_is_bitwise_identical_after_failures)
{
    check_wide("mini-batch-size=96");
    check_wide("mini-batch-size=16");
}
