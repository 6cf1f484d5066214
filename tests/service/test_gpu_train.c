/* test_gpu_train.c: a training on GPU workers continues after a worker failure, as on CPU workers.
 *
 * Daemons, sockets and the plugin's sources are real; the GPUs are fake (tests/fake/gpu), and their
 * NCCL never reports a failure. */
#include "common/base/system/file.h"
#include "tests/service/cards.h"
#include "tests/service/trained.h"

static const char network[] =
    "{\"name\":\"small\",\"input\":[1,28,28],\"scale\":[0.00392156862745098],\"layers\":["
    "{\"name\":\"p0\",\"kind\":\"avgpool\",\"kernel\":[4,4]},"
    "{\"name\":\"c1\",\"kind\":\"conv2d\",\"channels\":8,\"kernel\":[3,3]},"
    "{\"name\":\"r1\",\"kind\":\"relu\"},{\"name\":\"f1\",\"kind\":\"fc\",\"outputs\":32},"
    "{\"name\":\"r2\",\"kind\":\"relu\"},{\"name\":\"f2\",\"kind\":\"fc\",\"outputs\":10},"
    "{\"name\":\"loss\",\"kind\":\"crossentropy\"}]}";

/* At least two workers, so that the same ranks have the same shares after a failure. */
static const char *const options[] = {
    "max-epochs=3",  "mini-batch-size=64",     "solver=adam", "initial-learn-rate=0.01",
    "min-workers=2", "validation-frequency=9", NULL
};

typedef struct outcome {
    gp_status status;
    gp_error err;
    gp_training_summary summary;
    trained_model model;
    uint64_t next; /* step that rank 0 reports next, from 1 */
    bool out_of_turn;
} outcome;

static void watch_step(void *context, const gp_train_step *step)
{
    outcome *o = context;

    if (step->rank != 0)
        return;
    o->out_of_turn = o->out_of_turn || step->step != o->next;
    o->next = step->step + 1;
}

static bool on_gpus(gp_pool *pool)
{
    gp_status_reply *reply = pools_settled(pool);
    bool all = reply != NULL && reply->workers_count == 2;

    for (uint32_t i = 0; all && i < reply->workers_count; i++)
        all = reply->workers[i].slot.device_kind == GP_DEVICE_CUDA;
    gp_free(reply);
    return all;
}

static void run(outcome *o, const char *fault)
{
    gp_pool *pool;
    char path[120];
    gp_train_request request = { .network = path,
                                 .data = "digits:900",
                                 .validation_data = "=",
                                 .options = options,
                                 .events = { .step = watch_step, .context = o } };

    *o = (outcome){ .next = 1 };
    pools_begin(fault);
    snprintf(path, sizeof(path), "%s/network.json", pools_root);
    REQUIRE_OK(gp_file_write(path, network, strlen(network), &o->err), o->err);
    if (gp_pool_open(&pool, &(gp_pool_options){ .workers = 2 }, &o->err) != GP_OK) {
        GP_TEST_FAIL("no pool: %s", o->err.message);
        pools_end();
        return;
    }
    CHECK(on_gpus(pool));
    o->status = trained_run(&o->model, &o->summary, pool, &request, &o->err);
    gp_pool_close(pool);
    pools_end();
}

TEST(training_is_bitwise_identical_after_failure_of_either_gpu_worker)
{
    static const char *const faults[] = { "forward:9:kill@1.1", "exchange:11:kill@2.1", "commit:7:kill@1.1",
                                          "commit:14:kill@2.1", "validation:2:kill@2.1" };
    outcome undisturbed, got;

    cards_begin(TWO_CARDS, FAKE_GPU_PLUGIN);
    setenv("GRADPOOL_AUTOTUNE_SECONDS", "0", 1); /* the same engines in all runs */
    run(&undisturbed, NULL);
    REQUIRE_OK(undisturbed.status, undisturbed.err);
    CHECK_INT(0, undisturbed.summary.restarts);
    CHECK(undisturbed.summary.validation_accuracy > 0.5);
    for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++) {
        run(&got, faults[i]);
        if (got.status != GP_OK)
            GP_TEST_FAIL("%s: %s", faults[i], got.err.message);
        else if (!trained_equal(&got.model, &undisturbed.model))
            GP_TEST_FAIL("%s: the models differ", faults[i]);
        if (got.out_of_turn || got.next != undisturbed.next)
            GP_TEST_FAIL("%s: its steps were not reported once each, in order", faults[i]);
        CHECK_INT(1, got.summary.restarts);
        free(got.model.data);
    }
    free(undisturbed.model.data);
    unsetenv("GRADPOOL_AUTOTUNE_SECONDS");
    cards_end();
}
