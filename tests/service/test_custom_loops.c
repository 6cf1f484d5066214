/* test_custom_loops.c: custom training loops in tasks (train_task.h) on real workers. */
#include <math.h>

#include "common/data/source/digits.h"
#include "common/model/network.h"
#include "tests/service/objects/custom.h"
#include "tests/service/teams.h"

enum { WORKERS = 3 };

static char lines[4096];

static void take_line(void *context, uint32_t worker, const char *line)
{
    size_t used = strlen(lines);

    (void)context;
    (void)worker;
    snprintf(lines + used, sizeof(lines) - used, "%s\n", line);
}

static bool begin_team(uint32_t workers)
{
    lines[0] = '\0';
    return team_begin(workers, &(gp_team_options){ .log = take_line });
}

static const gp_function *function(const char *name)
{
    return team_function(TASKS_CUSTOM, name);
}

static gp_status block_on(gp_spmd_result **block, uint32_t ranks, const char *name,
                          const custom_request *asked)
{
    err.message[0] = '\0';
    return gp_spmd(block, team,
                   &(gp_spmd_request){ .function = function(name),
                                       .argument = asked,
                                       .bytes = asked == NULL ? 0 : sizeof(*asked),
                                       .workers_min = ranks,
                                       .workers_max = ranks },
                   &err);
}

/* Run the task on `ranks` ranks; it must succeed on all of them. */
static void pass(uint32_t ranks, const char *name, const custom_request *asked)
{
    gp_spmd_result *block = NULL;

    if (block_on(&block, ranks, name, asked) != GP_OK)
        GP_TEST_FAIL("%s on %u ranks: %s", name, ranks, err.message);
    gp_spmd_result_free(block);
}

/* Return the numbers from index 1, which must be equal on all ranks. The caller frees them. */
static float *numbers_of(uint32_t ranks, const char *name, const custom_request *asked, size_t *count)
{
    gp_spmd_result *block = NULL;
    const void *data;
    size_t bytes;
    float *numbers = NULL;

    if (block_on(&block, ranks, name, asked) != GP_OK) {
        GP_TEST_FAIL("%s on %u ranks: %s", name, ranks, err.message);
        return NULL;
    }
    for (uint32_t index = 1; index <= ranks; index++) {
        if (gp_spmd_result_get(block, index, &data, &bytes, &err) != GP_OK) {
            GP_TEST_FAIL("result %u: %s", index, err.message);
            break;
        }
        if (numbers == NULL) {
            numbers = malloc(bytes);
            memcpy(numbers, data, bytes);
            *count = bytes / sizeof(float);
        } else {
            CHECK(bytes == *count * sizeof(float) && memcmp(numbers, data, bytes) == 0);
        }
    }
    gp_spmd_result_free(block);
    return numbers;
}

static double distance(const float *a, const float *b, size_t count)
{
    double squares = 0.0, apart = 0.0;

    for (size_t i = 0; i < count; i++) {
        squares += (double)a[i] * a[i];
        apart += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
    }
    return sqrt(apart / squares);
}

static const custom_request lenet = {
    .network = "lenet", .source = "digits:250", .options = "seed=1", .batch = 100, .epochs = 2, .rate = 0.05
};

/* Return the weights that `gradpool train` computes. */
static float *trained(uint32_t workers, size_t *count)
{
    static const char *const options[] = {
        "max-epochs=2", "mini-batch-size=100",    "initial-learn-rate=0.05",
        "seed=1",       "validation-frequency=0", NULL
    };
    gp_train_request request = { .network = "lenet",
                                 .data = "digits:250",
                                 .validation_data = "none",
                                 .options = options,
                                 .lease = { .workers_min = workers, .workers_max = workers } };
    gp_training *training = NULL;
    gp_network network = { 0 };
    const char *path = in_root("model.onnx");
    gp_graph *graph = NULL;
    float *weights = NULL;

    if (gp_train(&training, pool, &request, &err) != GP_OK ||
        gp_training_save(training, path, &err) != GP_OK ||
        gp_network_load(&network, path, NULL, 0, &err) != GP_OK ||
        gp_graph_new(&graph, network.spec, &err) != GP_OK) {
        GP_TEST_FAIL("training on %u: %s", workers, err.message);
    } else {
        weights = network.weights;
        network.weights = NULL;
        *count = graph->blob_count;
    }
    gp_graph_free(graph);
    gp_network_deinit(&network);
    gp_training_free(training);
    return weights;
}

TEST(custom_loop_is_bitwise_identical_to_gradpool_train)
{
    float *theirs[WORKERS + 1] = { NULL }, *mine;
    size_t count = 0, same = 0;

    REQUIRE(team_pool_begin(WORKERS));
    for (uint32_t n = 1; n <= WORKERS; n++)
        theirs[n] = trained(n, &same);
    if (team_open(NULL)) {
        for (uint32_t n = 1; n <= WORKERS; n++) {
            mine = numbers_of(n, "train", &lenet, &count);
            CHECK_INT(same, count);
            CHECK(mine != NULL && theirs[n] != NULL && same == count &&
                  memcmp(mine, theirs[n], count * sizeof(float)) == 0);
            free(mine);
        }
    }
    for (uint32_t n = 1; n <= WORKERS; n++)
        gp_free(theirs[n]);
}

TEST(tasks_run_with_all_cores_and_with_denormals_after_trainings)
{
    size_t count;

    REQUIRE(team_pool_begin(1));
    gp_free(trained(1, &count));
    if (team_open(NULL))
        for (int round = 0; round < 2; round++)
            pass(1, "thread_state", &lenet);
}

TEST(gradient_is_equal_on_any_number_of_workers)
{
    float *alone, *together;
    size_t count = 0;

    REQUIRE(begin_team(WORKERS));
    alone = numbers_of(1, "gradient", &lenet, &count);
    for (uint32_t n = 2; n <= WORKERS; n++) {
        custom_request cut = lenet;

        together = numbers_of(n, "gradient", &lenet, &count);
        CHECK(alone != NULL && together != NULL && distance(alone, together, count) < 1e-6);
        free(together);
        cut.micro_batch = 7;
        together = numbers_of(n, "gradient", &cut, &count);
        CHECK(alone != NULL && together != NULL && distance(alone, together, count) < 1e-6);
        free(together);
    }
    free(alone);
}

TEST(synchronized_batch_norm_covers_the_samples_of_all_ranks)
{
    float *alone, *together;
    size_t count = 0;
    gp_spmd_result *block = NULL;
    custom_request norm = lenet, apart;

    REQUIRE(begin_team(WORKERS));
    strcpy(norm.network, "coupled");
    apart = norm;
    strcpy(norm.options, "synchronize-batch-norm=true");
    alone = numbers_of(1, "gradient", &norm, &count);
    for (uint32_t n = 2; n <= WORKERS; n++) {
        together = numbers_of(n, "gradient", &norm, &count);
        CHECK(alone != NULL && together != NULL && distance(alone, together, count) < 1e-6);
        free(together);
    }
    together = numbers_of(2, "gradient", &apart, &count);
    CHECK(alone != NULL && together != NULL && distance(alone, together, count) > 1e-4);
    free(together);
    free(alone);
    strcpy(norm.network, "lenet");
    CHECK_STATUS(GP_EINVAL, block_on(&block, 1, "gradient", &norm));
    CHECK_CONTAINS(err.message, "no batch norm");
    gp_spmd_result_free(block);
}

TEST(sharded_update_is_bitwise_identical_to_a_full_update)
{
    REQUIRE(begin_team(WORKERS));
    for (uint32_t n = 1; n <= WORKERS; n++)
        pass(n, "sharded", &lenet);
    free(numbers_of(2, "spread", NULL, &(size_t){ 0 }));
    pass(2, "statistics", NULL);
}

TEST(custom_loss_gives_the_gradients_of_the_network_loss)
{
    custom_request cut = lenet, large = lenet;

    REQUIRE(begin_team(1));
    cut.micro_batch = 32; /* 100 samples in four calls */
    pass(1, "losses", &cut);
    large.micro_batch = 8; /* oneDNN segments on both sides of the loss */
    large.batch = 16;
    strcpy(large.network, "squeezenet1.1");
    strcpy(large.source, "synthetic:64x64x3:10:32");
    pass(1, "losses", &large);
}

TEST(custom_loss_of_samples_without_targets_gets_none)
{
    custom_request cut = lenet;

    REQUIRE(begin_team(1));
    cut.micro_batch = 32;
    pass(1, "targetless", &cut);
}

TEST(custom_layer_kind_learns_and_a_wrong_gradient_is_detected)
{
    REQUIRE(begin_team(1));
    pass(1, "kinds", NULL);
}

TEST(model_survives_an_onnx_round_trip_through_a_task)
{
    custom_request small = lenet;
    gp_network network = { 0 };
    gp_spmd_result *block = NULL;
    const void *data;
    size_t bytes;

    REQUIRE(begin_team(2));
    small.batch = 60;
    small.epochs = 1;
    if (block_on(&block, 2, "export_model", &small) != GP_OK ||
        gp_spmd_result_get(block, 1, &data, &bytes, &err) != GP_OK ||
        gp_network_read(&network, data, bytes, &err) != GP_OK)
        GP_TEST_FAIL("%s", err.message);
    CHECK_INT(10, network.class_count);
    gp_network_deinit(&network);
    gp_spmd_result_free(block);
}

TEST(class_names_of_a_network_and_the_data_must_match)
{
    custom_request named = lenet;

    REQUIRE(begin_team(1));
    REQUIRE_OK(gp_digits_write(in_root("digits"), GP_DIGITS_PNG, 40, 10, GP_DIGITS_SEED, NULL, &err), err);
    CHECK(rename(in_root("digits/train/0"), in_root("digits/train/zero")) == 0);
    CHECK(rename(in_root("digits/test/0"), in_root("digits/test/zero")) == 0);
    snprintf(named.source, sizeof(named.source), "%s", in_root("digits"));
    named.batch = 20;
    pass(1, "class_names", &named);
}

TEST(invalid_uses_are_refused_with_one_error)
{
    gp_future *future = NULL;
    const void *data;
    size_t bytes;

    REQUIRE(begin_team(1));
    if (gp_parfeval(&future, team, &(gp_parfeval_request){ .function = function("misuse") }, &err) != GP_OK ||
        gp_future_result(future, &data, &bytes, &err) != GP_OK)
        GP_TEST_FAIL("%s", err.message);
    gp_future_free(future);
}

static custom_footprint footprint(void)
{
    custom_footprint here = { 0 };
    gp_spmd_result *block = NULL;
    const void *data;
    size_t bytes;

    if (block_on(&block, 2, "footprint", NULL) != GP_OK ||
        gp_spmd_result_get(block, 2, &data, &bytes, &err) != GP_OK || bytes != sizeof(here))
        GP_TEST_FAIL("%s", err.message);
    else
        memcpy(&here, data, bytes);
    gp_spmd_result_free(block);
    return here;
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { GROWTH_KIB = 1 << 18 };
#else
enum { GROWTH_KIB = 2048 };
#endif

TEST(task_that_ends_in_the_middle_leaks_nothing)
{
    custom_footprint before, after;

    REQUIRE(begin_team(2));
    for (int times = 0; times < 4; times++) {
        gp_spmd_result *block = NULL;

        (void)block_on(&block, 2, "abandon", &lenet);
        gp_spmd_result_free(block);
    }
    before = footprint();
    for (int times = 0; times < 20; times++) {
        gp_spmd_result *block = NULL;
        gp_status status = block_on(&block, 2, "abandon", &lenet);

        CHECK_STATUS(times % 2 == 0 ? GP_OK : GP_EINVAL, status);
        gp_spmd_result_free(block);
    }
    after = footprint();
    CHECK(after.descriptors < before.descriptors + 5); /* a few connections may open or close */
    CHECK(after.anonymous_kib < before.anonymous_kib + GROWTH_KIB);
    CHECK(after.shared_kib < before.shared_kib + 512);
}

TEST(steps_allocate_no_memory)
{
    custom_request many = lenet;

    REQUIRE(begin_team(2));
    strcpy(many.source, "digits:64");
    many.batch = 16;
    many.epochs = 1000;
    pass(2, "frugal", &many);
}

TEST(crashed_rank_ends_the_others_with_an_error_message)
{
    custom_request many = lenet;
    gp_spmd_result *block = NULL;
    const void *data;
    size_t bytes;

    REQUIRE(begin_team(WORKERS));
    many.epochs = 1000;
    CHECK_STATUS(GP_EPEER, block_on(&block, WORKERS, "crash", &many));
    CHECK_CONTAINS(err.message, "Aborted");
    for (uint32_t index = 1; block != NULL && index <= 3; index += 2) {
        gp_status status = gp_spmd_result_get(block, index, &data, &bytes, &err);

        /* depends on whether the exchange or the client reports first */
        CHECK(status == GP_EPEER || status == GP_ECANCELED);
    }
    gp_spmd_result_free(block);
    pass(WORKERS, "sharded", &lenet); /* the worker was replaced */
}

TEST(cancel_ends_a_loop_that_never_checks_for_it)
{
    gp_future *future = NULL;
    const void *data;
    size_t bytes;

    REQUIRE(begin_team(1));
    REQUIRE_OK(gp_parfeval(&future, team,
                           &(gp_parfeval_request){ .function = function("endless"),
                                                   .argument = &lenet,
                                                   .bytes = sizeof(lenet),
                                                   .timeout_ms = 60000 },
                           &err),
               err);
    AWAIT(strstr(lines, "begun") != NULL || gp_future_wait(future, 10, NULL) == GP_OK, 0);
    gp_future_cancel(future);
    CHECK_STATUS(GP_ECANCELED, gp_future_result(future, &data, &bytes, &err));
    gp_future_free(future);
}

TEST(resident_model_continues_in_the_next_task)
{
    REQUIRE(begin_team(1));
    for (int64_t times = 1; times <= 3; times++) {
        gp_future *future = NULL;
        const void *data;
        size_t bytes;
        int64_t steps = 0;

        if (gp_parfeval(&future, team, &(gp_parfeval_request){ .function = function("kept") }, &err) !=
                GP_OK ||
            gp_future_result(future, &data, &bytes, &err) != GP_OK)
            GP_TEST_FAIL("%s", err.message);
        else
            memcpy(&steps, data, sizeof(steps));
        CHECK_INT(times, steps);
        gp_future_free(future);
    }
}
