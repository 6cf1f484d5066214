/* test_trainer.c: trainings with real processes as ranks, without daemons. */
#include "tests/worker/comm/ranks.h"
#include "tests/leftovers.h"

#include <dirent.h>

#include "tests/common/model/nets.h"
#include "tests/ref/run.h"
#include "common/base/system/fault.h"
#include "worker/train/trainer.h"
#include "worker/train/trainer_state.h"

enum { LENET = 129068, STEPS_MAX = 512 };

/* Results of the ranks, for the test to check. */
typedef struct train_result {
    gp_train_done done;
    uint32_t records, checks, notes, share; /* share: samples of a mini-batch */
    char note[480];                         /* the last one */
    double losses[STEPS_MAX];
    gp_train_validation check; /* the last one */
    double check_losses[32];
    uint32_t best_records, best_checks; /* after which a checkpoint would be the best */
    float weights[LENET], gradients[LENET];
    bool kept_previous; /* after a failure: the weights equal those of the last record */
    uint32_t factors;   /* weights whose gradient is computed from factors only */
    bool untouched;     /* their gradient buffer was never written */
    uint64_t allocations_early, allocations_late;
} train_result;

/* Parameters for the ranks of a test. */
typedef struct train_job {
    char data[64], validation[64], options[512], fault[64];
    char last_options[512];        /* for the last rank; "": as for the others */
    char net[512];                 /* network for net_parse(), instead of lenet */
    uint32_t stop_rank, stop_step; /* rank that requests a soft stop, and the step; 0: never */
    uint32_t skewed_rank;          /* rank whose gradients are scaled by 1.001; UINT32_MAX: none */
    size_t shard_minimum;          /* as in gp_trainer_setup */
    uint32_t threads;              /* threads per rank; 0: one */
    bool from_weights, dropout;
    size_t initial_count; /* 0: LENET */
    float initial[LENET];
    train_result results[SLOT_MAX];
} train_job;

static train_job *shared; /* shared by all processes of a test */

static train_job *job_new(const char *data, const char *options)
{
    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        abort();
    snprintf(shared->data, sizeof(shared->data), "%s", data);
    snprintf(shared->options, sizeof(shared->options), "%s", options);
    shared->skewed_rank = UINT32_MAX;
    return shared;
}

static void job_free(train_job *job)
{
    munmap(job, sizeof(*job));
}

/* ---- a backend whose gradients are wrong by a thousandth ---- */

typedef struct train_skew {
    gp_ready_fn ready;
    void *context;
    float *gradients;
} train_skew;

static float *skewed_gradients;

static gp_status skew_ready(void *context, size_t count, gp_error *err)
{
    train_skew *inner = context;

    if (count == LENET)
        for (size_t i = 0; i < count; i++)
            inner->gradients[i] *= 1.001f;
    return inner->ready(inner->context, count, err);
}

static gp_status skew_compile(gp_plan **out, gp_backend *backend, const gp_graph *graph,
                              const gp_plan_options *options, const gp_plan_memory *memory, gp_error *err)
{
    if (memory->gradients != NULL)
        skewed_gradients = memory->gradients;
    return gp_backend_cpu.compile(out, backend, graph, options, memory, err);
}

static gp_status skew_run(gp_plan *plan, const gp_batch *batch, gp_ready_fn ready, void *context,
                          gp_error *err)
{
    train_skew inner = { ready, context, skewed_gradients };

    return gp_backend_cpu.run(plan, batch, ready == NULL ? NULL : skew_ready, &inner, err);
}

/* ---- one rank ---- */

typedef struct train_watcher {
    train_result *result;
    gp_trainer *trainer;
    gp_train_control *control;
    uint32_t rank;
    float *previous; /* weights at the last record */
} train_watcher;

static bool watch_best(const train_watcher *w)
{
    gp_checkpoint now;

    gp_trainer_checkpoint(w->trainer, &now);
    return now.is_best;
}

static void watch_record(void *context, const gp_train_record *record)
{
    train_watcher *w = context;
    size_t count;

    w->result->best_records += watch_best(w);

    if (w->result->records < STEPS_MAX)
        w->result->losses[w->result->records] = record->loss;
    w->result->records++;

    const float *weights = gp_trainer_weights(w->trainer, &count);

    memcpy(w->previous, weights, count * sizeof(float));
    if (record->step == 3)
        w->result->allocations_early = gp_alloc_get_stats().calls;
    w->result->allocations_late = gp_alloc_get_stats().calls;
    if (shared->stop_step == record->step && shared->stop_rank == w->rank)
        atomic_store(&w->control->stop, 1);
}

static void watch_validation(void *context, const gp_train_validation *validation)
{
    train_watcher *w = context;

    if (w->result->checks < 32)
        w->result->check_losses[w->result->checks] = validation->loss;
    w->result->checks++;
    w->result->best_checks += watch_best(w);
    w->result->check = *validation;
}

static void watch_note(void *context, const char *text, bool warning)
{
    train_watcher *w = context;

    (void)warning;
    w->result->notes++;
    snprintf(w->result->note, sizeof(w->result->note), "%s", text);
}

/* Write LeNet, or the job's network, as JSON; optional dropout does not change the tensors. */
static gp_status lenet_json(gp_buffer *json, gp_error *err)
{
    gp_shape input = gp_shape3(1, 28, 28);
    gp_netspec *spec;
    gp_status status =
        shared->net[0] != '\0' ? net_parse(&spec, &input, shared->net, err)
        : !shared->dropout
            ? gp_zoo_build(&spec, "lenet", &input, 10, err)
            : net_parse(&spec, &input,
                        "conv1 conv2d channels=20;kernel=3 | relu1 relu | pool1 avgpool kernel=2 | "
                        "conv2 conv2d channels=50;kernel=5 | relu2 relu | pool2 avgpool kernel=2 | "
                        "fc1 fc outputs=128 | relu3 relu | drop dropout rate=0.5 | fc2 fc outputs=10 | "
                        "loss crossentropy",
                        err);

    gp_buffer_init(json, GP_NETSPEC_BYTES_MAX);
    if (status != GP_OK)
        return status;
    status = gp_netspec_to_json(spec, json, false, err);
    gp_netspec_free(spec);
    return status;
}

static void look_at_factors(const gp_trainer *trainer, train_result *result)
{
    result->factors = trainer->shards.factors.count;
    result->untouched = true;
    for (uint32_t i = 0; i < trainer->shards.factors.count; i++) {
        const gp_parameter *weights =
            &trainer->graph->parameters[trainer->shards.factors.factor[i].parameter];

        for (int64_t k = 0; k < weights->count; k++)
            result->untouched =
                result->untouched && trainer->exchange.gradients[weights->offset + (size_t)k] == 0.0f;
    }
}

static void run_trainer(const gp_trainer_setup *setup, train_result *result, gp_error *err)
{
    train_watcher watcher = { .result = result, .control = setup->control, .rank = setup->group->rank };
    gp_train_sink sink = { &watcher, watch_record, watch_validation, watch_note, NULL };
    gp_train_ready ready;
    size_t count;
    gp_status status = gp_trainer_new(&watcher.trainer, &ready, setup, err);

    if (status != GP_OK) {
        result->done.status = status;
        snprintf(result->done.message, sizeof(result->done.message), "%s", err->message);
        return;
    }
    result->share = ready.batch_rank;
    watcher.previous = gp_malloc(LENET * sizeof(float));
    gp_trainer_weights(watcher.trainer, &count);
    CHECK(shared->net[0] != '\0' ? count <= LENET : count == LENET);
    memcpy(watcher.previous, gp_trainer_weights(watcher.trainer, &count), count * sizeof(float));
    gp_trainer_run(watcher.trainer, &sink, &result->done);
    memcpy(result->weights, gp_trainer_weights(watcher.trainer, &count), count * sizeof(float));
    memcpy(result->gradients, watcher.trainer->exchange.gradients, count * sizeof(float));
    look_at_factors(watcher.trainer, result);
    result->kept_previous = memcmp(watcher.previous, result->weights, count * sizeof(float)) == 0;
    gp_free(watcher.previous);
    gp_trainer_free(watcher.trainer);
}

static void rank_body(rank_place *place)
{
    gp_comm_rendezvous group = { .lease = 77,
                                 .generation = 1,
                                 .rank = place->slot,
                                 .world = place->slots,
                                 .members = place->board->members,
                                 .ops = &place_ops,
                                 .context = place };
    gp_train_begin begin = { .workers = place->slots };
    gp_backend_ops ops = gp_backend_cpu;
    gp_train_control control;
    gp_backend *backend;
    gp_buffer json;
    gp_error err = { 0 };
    const bool is_last = place->slot + 1 == place->slots;
    const char *options = is_last && shared->last_options[0] != '\0' ? shared->last_options : shared->options;

    snprintf(begin.data, sizeof(begin.data), "%s", shared->data);
    snprintf(begin.validation_data, sizeof(begin.validation_data), "%s", shared->validation);
    place->generation = 1;
    place->order = in_order;
    place->world = place->slots;
    if (shared->skewed_rank == place->slot) {
        ops.compile = skew_compile;
        ops.run = skew_run;
    }
    gp_train_control_init(&control);
    REQUIRE_OK(gp_fault_setup(shared->fault, GP_FAULT_worker, place->slot + 1, 1, &err), err);
    REQUIRE_OK(lenet_json(&json, &err), err);
    REQUIRE_OK(
        gp_backend_cpu.open(
            &backend, &(gp_backend_options){ .threads = shared->threads == 0 ? 1 : shared->threads }, &err),
        err);
    run_trainer(
        &(gp_trainer_setup){ .begin = &begin,
                             .netspec = gp_buffer_text(&json),
                             .netspec_bytes = json.bytes,
                             .options = options,
                             .options_bytes = strlen(options),
                             .weights = shared->from_weights ? shared->initial : NULL,
                             .weights_count = shared->initial_count != 0 ? shared->initial_count : LENET,
                             .group = &group,
                             .backend_ops = &ops,
                             .backend = backend,
                             .control = &control,
                             .shard_minimum = shared->shard_minimum },
        &shared->results[place->slot], &err);
    gp_backend_cpu.close(backend);
    gp_buffer_deinit(&json);
    gp_train_control_deinit(&control);
}

static void run_killed(uint32_t slots, uint32_t killed)
{
    rank_family family;

    family_open(&family, slots);
    family_fork(&family, rank_body);
    family_join(&family, killed);
}

/* ---- tests ---- */

TEST(one_rank_learns_drawn_digits)
{
    train_job *job =
        job_new("digits:6000", "{\"max-epochs\": 2, \"mini-batch-size\": 64, \"initial-learn-rate\": 0.05}");
    train_result *r = &job->results[0];

    strcpy(job->validation, "=");
    run_ranks(1, rank_body);
    CHECK_STATUS(GP_OK, (gp_status)r->done.status);
    CHECK_INT(188, r->records);
    CHECK_INT(2, r->checks);
    CHECK_INT(1000, r->check.count);
    CHECK_NEAR(1.0, r->check.accuracy, 0.1);
    CHECK(r->losses[187] < r->losses[0] / 4);
    job_free(job);
}

TEST(two_ranks_learn_and_end_bitwise_identical)
{
    train_job *job =
        job_new("digits:6000", "{\"max-epochs\": 2, \"mini-batch-size\": 64, \"initial-learn-rate\": 0.05}");

    strcpy(job->validation, "=");
    run_ranks(2, rank_body);
    CHECK_STATUS(GP_OK, (gp_status)job->results[0].done.status);
    CHECK(memcmp(job->results[0].weights, job->results[1].weights, sizeof(job->results[0].weights)) == 0);
    CHECK_NEAR(1.0, job->results[1].check.accuracy, 0.1);
    CHECK_INT(1000, job->results[1].check.count);
    job_free(job);
}

/* Compute weights after some steps, the start for comparing single steps. */
static void train_start(float *weights)
{
    train_job *job =
        job_new("digits:2048", "{\"max-epochs\": 2, \"mini-batch-size\": 64, \"initial-learn-rate\": 0.05}");

    strcpy(job->validation, "=");
    run_ranks(1, rank_body);
    CHECK(job->results[0].check.accuracy > 0.6);
    memcpy(weights, job->results[0].weights, LENET * sizeof(float));
    job_free(job);
}

/* Run one step from these weights: the data is one batch. Store rank 0's summed gradient. */
static void one_step(const float *weights, uint32_t samples, uint32_t world, uint32_t skewed, float *gradient)
{
    char data[32], options[200];

    snprintf(data, sizeof(data), "digits:%u", samples);
    snprintf(options, sizeof(options),
             "{\"max-epochs\": 1, \"mini-batch-size\": %u, \"exchange-bucket-bytes\": 65536}", samples);
    train_job *job = job_new(data, options);

    memcpy(job->initial, weights, sizeof(job->initial));
    job->from_weights = true;
    job->skewed_rank = skewed;
    run_ranks(world, rank_body);
    for (uint32_t rank = 0; rank < world; rank++) {
        CHECK_INT(1, job->results[rank].done.step);
        CHECK(memcmp(job->results[0].weights, job->results[rank].weights, sizeof(job->results[0].weights)) ==
              0);
    }
    memcpy(gradient, job->results[0].gradients, LENET * sizeof(float));
    job_free(job);
}

static double distance(const float *a, const float *b)
{
    double difference = 0, norm = 0;

    for (size_t i = 0; i < LENET; i++) {
        difference += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
        norm += (double)a[i] * a[i];
    }
    return sqrt(difference / norm);
}

/* Compute the same gradient with float64 plain loops over all samples. */
static void oracle_gradient(const float *weights, uint32_t samples, double *gradient)
{
    gp_shape shape = gp_shape3(1, 28, 28);
    uint32_t *index = gp_calloc(samples, sizeof(*index));
    uint8_t *pixels = gp_malloc((size_t)samples * 784);
    double *input = gp_calloc((size_t)samples * 784, sizeof(double)),
           *blob = gp_calloc(LENET, sizeof(double));
    int32_t *labels = gp_calloc(samples, sizeof(*labels));
    gp_netspec *spec;
    gp_graph *graph;
    gp_store *store;
    char data[32];
    gp_error err;

    snprintf(data, sizeof(data), "digits:%u", samples);
    for (uint32_t i = 0; i < samples; i++)
        index[i] = i;
    REQUIRE_OK(gp_store_open(&store, data, GP_DATA_TRAIN, &err), err);
    REQUIRE_OK(gp_store_read(store, index, samples, pixels, labels, &err), err);
    REQUIRE_OK(gp_zoo_build(&spec, "lenet", &shape, 10, &err), err);
    REQUIRE_OK(gp_graph_new(&graph, spec, &err), err);
    gp_ref_input(spec, GP_U8, pixels, samples, input);
    gp_ref_widen(weights, LENET, blob);
    gp_ref_run *run = gp_ref_run_new(
        graph, GP_PHASE_TRAIN,
        &(gp_ref_batch){ .blob = blob, .input = input, .targets = labels, .count = samples, .seed = 1 });

    memcpy(gradient, run->gradients, LENET * sizeof(double));
    gp_ref_run_free(run);
    gp_graph_free(graph);
    gp_netspec_free(spec);
    gp_store_close(store);
    gp_free(index);
    gp_free(pixels);
    gp_free(input);
    gp_free(blob);
    gp_free(labels);
}

static double oracle_distance(const double *expected, const float *got)
{
    double difference = 0, norm = 0;

    for (size_t i = 0; i < LENET; i++) {
        difference += (expected[i] - (double)got[i]) * (expected[i] - (double)got[i]);
        norm += expected[i] * expected[i];
    }
    return sqrt(difference / norm);
}

TEST(one_step_has_the_same_gradient_on_one_to_four_ranks)
{
    static float weights[LENET], alone[LENET], together[LENET];
    static double expected[LENET];
    static const uint32_t batches[] = { 64, 67, 3, 1 };

    train_start(weights);
    for (size_t i = 0; i < 4; i++) {
        one_step(weights, batches[i], 1, UINT32_MAX, alone);
        for (uint32_t world = 2; world <= 4; world++) {
            one_step(weights, batches[i], world, UINT32_MAX, together);
            CHECK_NEAR(0, distance(alone, together), 1e-6);
        }
        oracle_gradient(weights, batches[i], expected);
        CHECK_NEAR(0, oracle_distance(expected, alone), 1e-5);
    }

    /* proves that the check can fail: rank 1 scales gradients by 1.001 */
    one_step(weights, 64, 2, 1, together);
    one_step(weights, 64, 1, UINT32_MAX, alone);
    CHECK(distance(alone, together) > 1e-5);
}

/* d2l 12.5, get_params(params, device): every worker gets a copy of the parameters. */
TEST(every_worker_gets_the_parameters_it_was_sent)
{
    train_job *job =
        job_new("digits:64", "{\"max-epochs\": 1, \"mini-batch-size\": 64, \"initial-learn-rate\": 0}");

    for (size_t i = 0; i < LENET; i++)
        job->initial[i] = (float)(i % 1001) * 1e-4f - 0.05f;
    job->from_weights = true;
    run_ranks(3, rank_body);
    for (uint32_t rank = 0; rank < 3; rank++) {
        CHECK_INT(1, job->results[rank].done.step);
        CHECK(memcmp(job->initial, job->results[rank].weights, sizeof(job->initial)) == 0);
    }
    job_free(job);
}

TEST(repeated_training_is_bitwise_identical)
{
    static float first[LENET];

    for (int round = 0; round < 2; round++) {
        train_job *job = job_new("digits:1000", "{\"max-epochs\": 2, \"mini-batch-size\": 96}");

        run_ranks(3, rank_body);
        CHECK_STATUS(GP_OK, (gp_status)job->results[2].done.status);
        if (round == 0)
            memcpy(first, job->results[2].weights, sizeof(first));
        else
            CHECK(memcmp(first, job->results[2].weights, sizeof(first)) == 0);
        job_free(job);
    }
}

TEST(micro_batches_accumulate_to_the_same_step)
{
    static float whole[LENET];
    const char *options[] = { "{\"max-epochs\": 1, \"mini-batch-size\": 250}",
                              "{\"max-epochs\": 1, \"mini-batch-size\": 250, \"micro-batch-size\": 33}" };

    for (int round = 0; round < 2; round++) {
        train_job *job = job_new("digits:250", options[round]);

        run_ranks(2, rank_body);
        CHECK_STATUS(GP_OK, (gp_status)job->results[0].done.status);
        if (round == 0)
            memcpy(whole, job->results[0].gradients, sizeof(whole));
        else
            CHECK_NEAR(0, distance(whole, job->results[0].gradients), 1e-6);
        job_free(job);
    }
}

TEST(a_rank_killed_between_two_buckets_leaves_the_others_with_the_previous_step)
{
    train_job *job = job_new(
        "digits:2000", "{\"max-epochs\": 2, \"mini-batch-size\": 100, \"exchange-bucket-bytes\": 65536}");

    /* 8 passes per step: in the middle of step 3 */
    strcpy(job->fault, "between-buckets:23:kill@2");
    run_killed(3, 1u << 1);
    for (uint32_t rank = 0; rank < 3; rank += 2) {
        train_result *r = &job->results[rank];

        CHECK_STATUS(GP_EPEER, (gp_status)r->done.status);
        CHECK_INT(GP_STOP_FAILED, r->done.stop_reason);
        CHECK_CONTAINS(r->done.message, "worker 2");
        CHECK_INT(r->records, r->done.step);
        CHECK(r->done.step > 0 && r->done.step < 40);
        CHECK(r->kept_previous);
    }
    CHECK_INT(job->results[0].done.step, job->results[2].done.step);
    CHECK(memcmp(job->results[0].weights, job->results[2].weights, sizeof(job->results[0].weights)) == 0);
    job_free(job);
}

TEST(a_soft_stop_on_one_rank_stops_all_at_the_same_step)
{
    train_job *job = job_new("digits:2000", "{\"max-epochs\": 9, \"mini-batch-size\": 100}");

    job->stop_rank = 2;
    job->stop_step = 4;
    run_ranks(3, rank_body);
    for (uint32_t rank = 0; rank < 3; rank++) {
        CHECK_STATUS(GP_OK, (gp_status)job->results[rank].done.status);
        CHECK_INT(GP_STOP_STOPPED, job->results[rank].done.stop_reason);
        CHECK_INT(5, job->results[rank].done.step);
    }
    job_free(job);
}

TEST(early_stopping_ends_a_training_without_improvement)
{
    train_job *job = job_new("digits:200", "{\"max-epochs\": 9, \"mini-batch-size\": 100, \"lr\": 0,"
                                           " \"validation-patience\": 2}");

    strcpy(job->validation, "=");
    run_ranks(2, rank_body);
    for (uint32_t rank = 0; rank < 2; rank++) {
        CHECK_STATUS(GP_OK, (gp_status)job->results[rank].done.status);
        CHECK_INT(GP_STOP_EARLY, job->results[rank].done.stop_reason);
        CHECK_INT(3, job->results[rank].done.epoch);
        CHECK_INT(3, job->results[rank].checks);
    }
    job_free(job);
}

TEST(the_best_weights_are_those_of_the_lowest_validation_loss)
{
    static const char *const options = "{\"max-epochs\": %u, \"mini-batch-size\": 16, \"lr\": 0.4,"
                                       " \"output-network\": \"%s\"}";
    char text[200];
    uint32_t best = 0;

    snprintf(text, sizeof(text), options, 8, "best-validation");
    train_job *job = job_new("digits:96", text);

    strcpy(job->validation, "=");
    run_ranks(2, rank_body);
    REQUIRE(job->results[0].checks == 8);
    for (uint32_t i = 1; i < 8; i++)
        if (job->results[0].check_losses[i] < job->results[0].check_losses[best])
            best = i;
    CHECK(best < 7); /* otherwise the test shows nothing */
    snprintf(text, sizeof(text), options, best + 1, "last");
    train_job *shorter = job_new("digits:96", text);

    strcpy(shorter->validation, "=");
    run_ranks(2, rank_body);
    CHECK(memcmp(job->results[0].weights, shorter->results[0].weights, sizeof(job->results[0].weights)) == 0);
    CHECK(memcmp(job->results[0].weights, job->results[1].weights, sizeof(job->results[0].weights)) == 0);
    job_free(job);
    job_free(shorter);
}

/* ---- bitwise identical results on any number of ranks ---- */

static train_job *reproducible_job(void)
{
    train_job *job = job_new("digits:1000", "{\"max-epochs\": 3, \"mini-batch-size\": 100, \"lr\": 0.05,"
                                            " \"weights-initializer\": \"he\", \"reproducible\": true}");

    strcpy(job->validation, "=");
    job->dropout = true;
    return job;
}

TEST(reproducible_gives_the_same_losses_and_weights_on_any_number_of_ranks)
{
    train_job *one = reproducible_job();

    run_ranks(1, rank_body);
    CHECK_STATUS(GP_OK, (gp_status)one->results[0].done.status);
    CHECK_INT(30, one->results[0].records);
    CHECK(one->results[0].losses[29] < 0.6 * one->results[0].losses[0]); /* the loss improves */
    for (uint32_t ranks = 2; ranks <= 4; ranks++) {
        train_job *more = reproducible_job();

        run_ranks(ranks, rank_body);
        for (uint32_t rank = 0; rank < ranks; rank++) {
            CHECK_STATUS(GP_OK, (gp_status)more->results[rank].done.status);
            CHECK(memcmp(one->results[0].losses, more->results[rank].losses, 30 * sizeof(double)) == 0);
            CHECK(memcmp(one->results[0].weights, more->results[rank].weights,
                         sizeof(one->results[0].weights)) == 0);
            CHECK(one->results[0].check.loss == more->results[rank].check.loss);
        }
        job_free(more);
    }
    job_free(one);
}

TEST(reproducible_step_matches_the_default_up_to_rounding)
{
    static const char *const options =
        "{\"max-epochs\": 1, \"mini-batch-size\": 64, \"lr\": 0, \"reproducible\": %s}";
    char text[160];
    double norm = 0, error = 0;

    snprintf(text, sizeof(text), options, "false");
    train_job *usual = job_new("digits:64", text);

    run_ranks(2, rank_body);
    snprintf(text, sizeof(text), options, "true");
    train_job *exact = job_new("digits:64", text);

    run_ranks(2, rank_body);
    for (size_t i = 0; i < LENET; i++) {
        double difference = usual->results[0].gradients[i] - exact->results[0].gradients[i];

        norm += (double)usual->results[0].gradients[i] * usual->results[0].gradients[i];
        error += difference * difference;
    }
    CHECK(norm > 0);
    CHECK_NEAR(0.0, sqrt(error / norm), 1e-6);
    job_free(usual);
    job_free(exact);
}

/* ---- sharded optimizer state ---- */

/* A network with everything that an update handles, on two kernel networks: running statistics, a
 * frozen layer, a factor. */
static void use_mixed_net(train_job *job)
{
    strcpy(job->net,
           "c1 conv2d channels=8;kernel=3;stride=2;padding=1 | n1 batchnorm | r1 relu | "
           "c2 conv2d channels=8;kernel=3;padding=1;weight-learn-rate-factor=0;bias-learn-rate-factor=0 | "
           "n2 batchnorm | a add < n2,r1 | r2 relu | f1 fc outputs=37;weight-learn-rate-factor=3 | "
           "r3 relu | f fc outputs=10 | l crossentropy");
}

static train_job *sharded_job(uint32_t ranks, const char *options, bool mixed, bool sharded)
{
    train_job *job = job_new("digits:330", options);

    strcpy(job->validation, "=");
    job->dropout = true;
    if (mixed)
        use_mixed_net(job);
    job->shard_minimum = sharded ? 1 : SIZE_MAX;
    run_ranks(ranks, rank_body);
    for (uint32_t rank = 0; rank < ranks; rank++)
        CHECK_STATUS(GP_OK, (gp_status)job->results[rank].done.status);
    return job;
}

static void check_sharded(uint32_t ranks, const char *options, bool mixed)
{
    train_job *each = sharded_job(ranks, options, mixed, false),
              *one = sharded_job(ranks, options, mixed, true);
    const train_result *expected = &each->results[0];

    CHECK_INT(8, expected->records);
    for (uint32_t rank = 0; rank < ranks; rank++) {
        const train_result *r = &one->results[rank];

        CHECK(memcmp(expected->losses, r->losses, 8 * sizeof(double)) == 0);
        CHECK(memcmp(expected->weights, r->weights, sizeof(r->weights)) == 0);
        CHECK(expected->check.loss == r->check.loss);
    }
    job_free(each);
    job_free(one);
}

TEST(sharded_update_is_bitwise_identical_to_a_replicated_one)
{
    static const char *const solvers[] = { "sgdm", "adam", "adamw", "rmsprop" };

    for (uint32_t ranks = 1; ranks <= 4; ranks++) {
        char options[300];

        snprintf(options, sizeof(options),
                 "{\"max-epochs\": 2, \"mini-batch-size\": 90, \"lr\": 0.01, \"l2-regularization\": 0.01, "
                 "\"solver\": \"%s\"}",
                 solvers[ranks - 1]);
        check_sharded(ranks, options, false);
        check_sharded(ranks, options, true);
    }
    check_sharded(2, "{\"max-epochs\": 2, \"mini-batch-size\": 90, \"momentum\": 0}", false);
    check_sharded(3, "{\"max-epochs\": 2, \"mini-batch-size\": 90, \"micro-batch-size\": 11}", false);
    check_sharded(2, "{\"max-epochs\": 2, \"mini-batch-size\": 90, \"precision\": \"bf16\"}", true);
    check_sharded(
        3, "{\"max-epochs\": 2, \"mini-batch-size\": 90, \"batch-norm-statistics\": \"population\"}", true);
    check_sharded(2, "{\"max-epochs\": 2, \"mini-batch-size\": 90, \"synchronize-batch-norm\": true}", true);
    check_sharded(3, "{\"max-epochs\": 2, \"mini-batch-size\": 90, \"gradient-threshold\": 1}", true);
}

TEST(rank_killed_in_a_sharded_update_leaves_the_others_with_the_previous_step)
{
    /* 8 tensors give 7 passes per step between them. The faults are at the first one, in the middle
     * and at the end; rank 0 owns the memory. */
    static const char *const faults[] = { "between-buckets:18:kill@1", "between-buckets:18:kill@2",
                                          "exchange:17:kill@3", "commit:3:kill@1" };

    for (size_t i = 0; i < 4; i++) {
        train_job *job = job_new("digits:2000", "{\"max-epochs\": 2, \"mini-batch-size\": 100}");
        uint32_t dead = (uint32_t)(faults[i][strlen(faults[i]) - 1] - '1'), alive = dead == 0 ? 1 : 0;

        job->shard_minimum = 1;
        strcpy(job->fault, faults[i]);
        run_killed(3, 1u << dead);
        for (uint32_t rank = 0; rank < 3; rank++) {
            train_result *r = &job->results[rank];

            if (rank == dead)
                continue;
            CHECK_STATUS(GP_EPEER, (gp_status)r->done.status);
            CHECK_INT(2, r->done.step);
            CHECK_INT(2, r->records);
            CHECK(r->kept_previous);
            CHECK(memcmp(job->results[alive].weights, r->weights, sizeof(r->weights)) == 0);
        }
        job_free(job);
    }
}

/* ---- gradients computed from their factors ---- */

/* Two layers that profit at mini-batches of 6, with column and row counts that fill no panel and no
 * block. */
static void use_factors_net(train_job *job, const char *head, const char *f1, const char *f2)
{
    snprintf(job->net, sizeof(job->net),
             "%sf1 fc outputs=100%s | r1 relu | d dropout rate=0.2 | f2 fc outputs=96%s | r2 relu | "
             "f3 fc outputs=10 | l crossentropy",
             head, f1, f2);
}

/* Layers that the small-network kernels do not support, placed first. */
static const char factors_head[] = "c1 conv2d channels=8;kernel=3;stride=2;padding=1 | n1 batchnorm | a1 "
                                   "relu | p1 maxpool kernel=2;stride=2 | ";

/* Create a job with 11 steps; the last one has a single sample. */
static train_job *product_job(uint32_t ranks, const char *head, const char *f1, const char *f2,
                              const char *options, size_t shard_minimum)
{
    char text[400];

    snprintf(text, sizeof(text), "{\"max-epochs\": 1, \"mini-batch-size\": 6, \"lr\": 0.01%s}", options);
    train_job *job = job_new("digits:61", text);

    use_factors_net(job, head, f1, f2);
    job->shard_minimum = shard_minimum;
    job->threads = strstr(options, "adam") != NULL ? 2 : 1;
    run_ranks(ranks, rank_body);
    for (uint32_t rank = 0; rank < ranks; rank++) {
        CHECK_STATUS(GP_OK, (gp_status)job->results[rank].done.status);
        CHECK_INT(11, job->results[rank].records);
    }
    return job;
}

static void check_factors(uint32_t ranks, const char *head, const char *f1, const char *f2,
                          const char *options, uint32_t factors, double tolerance)
{
    train_job *usual = product_job(ranks, head, f1, f2, options, SIZE_MAX),
              *from = product_job(ranks, head, f1, f2, options, 1);
    const train_result *expected = &usual->results[0];

    CHECK_INT(0, expected->factors);
    for (uint32_t rank = 0; rank < ranks; rank++) {
        const train_result *r = &from->results[rank];

        CHECK_INT(factors, r->factors);
        CHECK(r->untouched);
        CHECK(memcmp(from->results[0].weights, r->weights, sizeof(r->weights)) == 0);
        CHECK_NEAR(0.0, distance(expected->weights, r->weights), tolerance);
        CHECK_NEAR(1.0, r->losses[10] / expected->losses[10], 100 * tolerance);
    }
    job_free(usual);
    job_free(from);
}

TEST(gradients_from_factors_match_exchanged_gradients)
{
    static const char *const heads[] = { "", factors_head };

    for (int i = 0; i < 2; i++) {
        for (uint32_t ranks = 2; ranks <= 3; ranks++) {
            check_factors(ranks, heads[i], "", "", "", 2, 1e-6);
            check_factors(ranks, heads[i], ";weight-learn-rate-factor=3;bias-learn-rate-factor=2",
                          ";weight-learn-rate-factor=0", ", \"l2-regularization\": 0.01", 1, 1e-6);
        }
        check_factors(2, heads[i], "", "", ", \"worker-weights\": \"3,1\"", 2, 1e-6);
        check_factors(3, heads[i], ";bias=false", "", ", \"worker-weights\": \"1,0,4\", \"momentum\": 0", 2,
                      1e-6);
        check_factors(2, heads[i], "", "", ", \"precision\": \"bf16\"", 2, 1e-4);
        check_factors(2, heads[i], "", "", ", \"gradient-threshold\": 1", 0, 0);
    }

    /* A share in several calls with one sample each. */
    check_factors(2, "", "", "", ", \"micro-batch-size\": 1", 2, 1e-6);
    check_factors(3, "", "", "", ", \"micro-batch-size\": 1, \"solver\": \"adam\"", 2, 1e-4);
}

/* Compare with dW = dY^T X in plain loops: wider than a tile, rows that fill no block, two ranks
 * with two threads. */
TEST(every_weight_is_updated_once_with_the_sum_over_all_samples)
{
    static const char plain[] = "{\"momentum\": 0, \"l2-regularization\": 0}";
    enum { INPUTS = 21900, OUTPUTS = 27, SAMPLES = 5, COUNTED = 4 };
    gp_shape shape = gp_shape3(1, 100, 219);
    gp_graph *graph;
    gp_optim *optim;
    gp_train_options options;
    gp_optim_pass pass;
    gp_netspec *spec;
    gp_error err;
    double worst = 0;

    REQUIRE_OK(net_parse(&spec, &shape, "f fc outputs=27;bias=false | l crossentropy", &err), err);
    REQUIRE_OK(gp_graph_new(&graph, spec, &err), err);
    REQUIRE_OK(gp_train_options_from_json(&options, plain, strlen(plain), &err), err);
    REQUIRE_OK(gp_optim_new(&optim, graph, &options, &err), err);

    gp_factor factor = { .inputs = INPUTS, .outputs = OUTPUTS, .samples = SAMPLES };
    float *x = gp_calloc(SAMPLES * INPUTS, sizeof(*x)), *dy = gp_calloc(SAMPLES * OUTPUTS, sizeof(*dy));
    float *weights = gp_calloc(INPUTS * OUTPUTS, sizeof(*weights));

    for (size_t i = 0; i < SAMPLES * INPUTS; i++)
        x[i] = (float)(i % 31) - 15.0f;
    for (size_t i = 0; i < SAMPLES * OUTPUTS; i++)
        dy[i] = (float)(i % 17) - 8.0f;
    gp_factor_place(&factor, gp_aligned_calloc(64, gp_factor_bytes(&factor)));
    gp_factor_write(&factor, &(gp_batch){ .count = 2, .position = 3 }, x + 3 * INPUTS, dy + 3 * OUTPUTS, 2);
    gp_factor_write(&factor, &(gp_batch){ .count = 3, .position = 0 }, x, dy, 1);
    gp_optim_begin(&pass, optim, weights, 1, 1);
    for (size_t part = 0; part < 4; part++)
        gp_factor_update(&factor, &pass, COUNTED, part, 4);
    for (size_t o = 0; o < OUTPUTS; o++)
        for (size_t i = 0; i < INPUTS; i++) {
            double sum = 0;

            for (size_t s = 0; s < COUNTED; s++)
                sum += (double)dy[s * OUTPUTS + o] * x[s * INPUTS + i];
            worst = fmax(worst, fabs(weights[o * INPUTS + i] + sum));
        }
    CHECK(worst == 0); /* all values are whole numbers */
    gp_free(factor.x);
    gp_free(weights);
    gp_free(dy);
    gp_free(x);
    gp_optim_free(optim);
    gp_graph_free(graph);
    gp_netspec_free(spec);
}

TEST(gradients_of_mini_batches_larger_than_the_layer_are_exchanged)
{
    train_job *job = job_new("digits:330", "{\"max-epochs\": 1, \"mini-batch-size\": 90}");

    use_factors_net(job, "", "", "");
    job->shard_minimum = 1;
    run_ranks(2, rank_body);
    CHECK_STATUS(GP_OK, (gp_status)job->results[1].done.status);
    CHECK_INT(0, job->results[1].factors);
    job_free(job);
}

TEST(rank_killed_during_gradients_leaves_the_others_with_the_previous_step)
{
    /* 6 tensors give 5 passes per step between them. */
    static const char *const faults[] = { "between-buckets:13:kill@1", "between-buckets:12:kill@2",
                                          "exchange:13:kill@3", "forward:3:kill@1" };

    for (size_t i = 0; i < 4; i++) {
        train_job *job = job_new("digits:61", "{\"max-epochs\": 1, \"mini-batch-size\": 6}");
        uint32_t dead = (uint32_t)(faults[i][strlen(faults[i]) - 1] - '1'), alive = dead == 0 ? 1 : 0;

        use_factors_net(job, "", "", "");
        job->shard_minimum = 1;
        strcpy(job->fault, faults[i]);
        run_killed(3, 1u << dead);
        for (uint32_t rank = 0; rank < 3; rank++) {
            train_result *r = &job->results[rank];

            if (rank == dead)
                continue;
            CHECK_STATUS(GP_EPEER, (gp_status)r->done.status);
            CHECK_INT(2, r->factors);
            CHECK_INT(2, r->done.step);
            CHECK(r->kept_previous);
            CHECK(memcmp(job->results[alive].weights, r->weights, sizeof(r->weights)) == 0);
        }
        job_free(job);
    }
}

/* ---- checkpoints ---- */

/* A network beyond the small-network kernels, so that the precision option matters. */
static void use_residual_net(train_job *job, const char *norm)
{
    snprintf(job->net, sizeof(job->net),
             "c1 conv2d channels=8;kernel=3;stride=2;padding=1 | n1 %s | r1 relu | "
             "c2 conv2d channels=8;kernel=3;padding=1 | n2 %s | a add < n2,r1 | r2 relu | "
             "g globalavgpool | f fc outputs=10 | l crossentropy",
             norm, norm);
}

static bool resume_shards; /* the ranks shard their state */

/* Create a job with 20 steps per epoch, 60 in total. */
static train_job *resume_job(const char *more)
{
    char options[512];

    snprintf(options, sizeof(options),
             "{\"max-epochs\": 3, \"mini-batch-size\": 50, \"lr\": 0.01, \"solver\": \"adam\", \"shuffle\": "
             "\"every-epoch\", \"learn-rate-schedule\": \"cosine\"%s}",
             more);
    train_job *job = job_new("digits:1000", options);

    strcpy(job->validation, "=");
    job->dropout = true;
    job->shard_minimum = resume_shards ? 1 : 0;
    return job;
}

static train_job *resume_job_in(gp_precision precision, const char *more)
{
    char options[320];

    if (precision == GP_PRECISION_F32)
        return resume_job(more);
    snprintf(options, sizeof(options), "%s, \"precision\": \"%s\"", more, gp_precision_names[precision]);
    train_job *job = resume_job(options);

    use_residual_net(job, "batchnorm");
    return job;
}

static bool has_checkpoint(const char *directory)
{
    DIR *folder = opendir(directory);
    bool found = false;

    for (struct dirent *entry; !found && folder != NULL && (entry = readdir(folder)) != NULL;) {
        size_t length = strlen(entry->d_name);

        found = entry->d_name[0] != '.' && length > 5 && strcmp(entry->d_name + length - 5, ".json") == 0;
    }
    if (folder != NULL)
        closedir(folder);
    return found;
}

/* Rank 0 hangs in step 33 and is killed once a checkpoint is on disk: checkpoints are written in
 * the background. */
static void run_killed_later(train_job *job, uint32_t ranks, const char *directory)
{
    rank_family family;

    strcpy(job->fault, "commit:33:hang@1");
    family_open(&family, ranks);
    family_fork(&family, rank_body);
    while (__atomic_load_n(&job->results[0].records, __ATOMIC_SEQ_CST) < 32 || !has_checkpoint(directory))
        pause_ms(1);
    kill(family.pids[0], SIGKILL);
    family_join(&family, 1u << 0);
}

/* Compare a straight run with one whose rank is killed between two steps and which resumes from the
 * checkpoint. */
static void check_resumed(uint32_t ranks, bool killed, gp_precision precision)
{
    char directory[] = "/tmp/gp-resume-XXXXXX", more[256];

    REQUIRE(leftovers_make(directory) != NULL);
    train_job *straight = resume_job_in(precision, "");

    run_ranks(ranks, rank_body);
    CHECK_STATUS(GP_OK, (gp_status)straight->results[0].done.status);
    CHECK_INT(60, straight->results[0].records);
    snprintf(more, sizeof(more),
             ", \"checkpoint-path\": \"%s\", \"checkpoint-frequency\": 7, \"checkpoint-frequency-unit\": "
             "\"iteration\"",
             directory);
    train_job *first = resume_job_in(precision, more);

    if (killed) {
        run_killed_later(first, ranks, directory);
    } else {
        first->stop_rank = 0;
        first->stop_step = 31;
        run_ranks(ranks, rank_body);
        CHECK_INT(GP_STOP_STOPPED, first->results[0].done.stop_reason);
        CHECK_CONTAINS(first->results[0].note,
                       "checkpoint of step 32"); /* one more step, and one at the end */
    }
    snprintf(more, sizeof(more), ", \"resume\": \"%s\"", directory);
    train_job *second = resume_job_in(precision, more);

    run_ranks(ranks, rank_body);
    CHECK_STATUS(GP_OK, (gp_status)second->results[0].done.status);
    CHECK_CONTAINS(second->results[0].note, "resumed after step");
    CHECK_INT(60, second->results[0].done.step);
    uint32_t steps = second->results[0].records;

    /* not from the start; a slow disk skips a checkpoint that is due */
    CHECK(steps >= 25 && steps <= 53);
    CHECK(memcmp(straight->results[0].losses + 60 - steps, second->results[0].losses,
                 steps * sizeof(double)) == 0);
    CHECK(memcmp(straight->results[0].weights, second->results[0].weights,
                 sizeof(straight->results[0].weights)) == 0);
    CHECK(straight->results[0].check.loss == second->results[0].check.loss);
    job_free(straight);
    job_free(first);
    job_free(second);
    leftovers_clear(directory);
}

TEST(stopped_and_resumed_training_is_bitwise_identical)
{
    check_resumed(2, false, GP_PRECISION_F32);
    check_resumed(2, false, GP_PRECISION_BF16);
}

TEST(killed_and_resumed_training_is_bitwise_identical)
{
    check_resumed(2, true, GP_PRECISION_F32);
    check_resumed(1, true, GP_PRECISION_F32);
}

TEST(killed_and_resumed_sharded_training_is_bitwise_identical)
{
    resume_shards = true;
    check_resumed(2, true, GP_PRECISION_F32);
    resume_shards = false;
}

TEST(bfloat16_training_ends_within_half_a_point_of_float32)
{
    double accuracy[2] = { 0 }, loss[2] = { 0 };

    for (int precision = 0; precision < 2; precision++) {
        char options[256];

        snprintf(options, sizeof(options),
                 "{\"max-epochs\": 4, \"mini-batch-size\": 50, \"solver\": \"adam\", \"lr\": 0.01, "
                 "\"learn-rate-schedule\": \"cosine\", \"precision\": \"%s\"}",
                 gp_precision_names[precision]);
        train_job *job = job_new("digits:2500", options);

        strcpy(job->validation, "=");
        strcpy(job->net,
               "c1 conv2d channels=16;kernel=5;stride=2 | n1 batchnorm | r1 relu | "
               "c2 conv2d channels=32;kernel=3;stride=2 | n2 batchnorm | r2 relu | f fc outputs=10 | "
               "l crossentropy");
        run_ranks(2, rank_body);
        CHECK_STATUS(GP_OK, (gp_status)job->results[0].done.status);
        accuracy[precision] = job->results[0].check.accuracy;
        loss[precision] = job->results[0].losses[0];
        job_free(job);
    }
    CHECK(accuracy[0] > 0.9);
    CHECK_NEAR(accuracy[0], accuracy[1], 0.005);
#ifdef __x86_64__
    CHECK((loss[0] != loss[1]) ==
          (__builtin_cpu_supports("avx512bf16") && getenv("ONEDNN_MAX_CPU_ISA") == NULL));
#endif
}

TEST(reproducible_bfloat16_training_is_bitwise_identical_on_any_number_of_ranks)
{
    train_job *jobs[4] = { NULL };

    for (uint32_t ranks = 1; ranks <= 3; ranks++) {
        jobs[ranks] = job_new("digits:300", "{\"max-epochs\": 2, \"mini-batch-size\": 100, \"lr\": 0.05,"
                                            " \"precision\": \"bf16\", \"reproducible\": true}");
        strcpy(jobs[ranks]->validation, "=");
        use_residual_net(jobs[ranks], "groupnorm groups=4");
        run_ranks(ranks, rank_body);
        CHECK_STATUS(GP_OK, (gp_status)jobs[ranks]->results[ranks - 1].done.status);
        CHECK(memcmp(jobs[1]->results[0].losses, jobs[ranks]->results[ranks - 1].losses,
                     6 * sizeof(double)) == 0);
        CHECK(memcmp(jobs[1]->results[0].weights, jobs[ranks]->results[ranks - 1].weights,
                     sizeof(jobs[1]->results[0].weights)) == 0);
    }
    for (uint32_t ranks = 1; ranks <= 3; ranks++)
        job_free(jobs[ranks]);
}

TEST(reproducible_training_resumes_bitwise_on_another_number_of_ranks)
{
    char directory[] = "/tmp/gp-resume-XXXXXX", more[256];

    REQUIRE(leftovers_make(directory) != NULL);
    train_job *straight = resume_job(", \"reproducible\": true");

    run_ranks(1, rank_body);
    CHECK_INT(60, straight->results[0].done.step);
    snprintf(more, sizeof(more), ", \"reproducible\": true, \"checkpoint-path\": \"%s\"", directory);
    train_job *first = resume_job(more);

    first->stop_rank = 1;
    first->stop_step = 23;
    run_ranks(3, rank_body);
    CHECK_INT(24, first->results[0].done.step);
    snprintf(more, sizeof(more), ", \"reproducible\": true, \"resume\": \"%s\"", directory);
    train_job *second = resume_job(more);

    run_ranks(2, rank_body);
    CHECK_INT(60, second->results[1].done.step);
    CHECK(memcmp(straight->results[0].weights, second->results[1].weights,
                 sizeof(straight->results[0].weights)) == 0);
    CHECK(straight->results[0].check.loss == second->results[0].check.loss);
    job_free(straight);
    job_free(first);
    job_free(second);
    leftovers_clear(directory);
}

TEST(ranks_that_resume_from_different_checkpoints_are_refused)
{
    char directory[] = "/tmp/gp-resume-XXXXXX", more[256];

    REQUIRE(leftovers_make(directory) != NULL);
    snprintf(more, sizeof(more), ", \"checkpoint-path\": \"%s\"", directory);
    train_job *first = resume_job(more);

    first->stop_rank = 0;
    first->stop_step = 23;
    run_ranks(1, rank_body);
    CHECK_INT(24, first->results[0].done.step);
    snprintf(more, sizeof(more), ", \"resume\": \"%s/20.json\"", directory);
    train_job *other = resume_job(more);

    snprintf(more, sizeof(more), ", \"resume\": \"%s\"", directory);
    train_job *second = resume_job(more);

    strcpy(second->last_options, other->options);
    run_ranks(2, rank_body);
    for (int rank = 0; rank < 2; rank++) {
        CHECK_STATUS(GP_ESTATE, (gp_status)second->results[rank].done.status);
        CHECK_CONTAINS(second->results[rank].done.message, "of steps 20 and 24");
    }
    job_free(first);
    job_free(other);
    job_free(second);
    leftovers_clear(directory);
}

TEST(full_disk_does_not_stop_a_training)
{
    train_job *job = resume_job(", \"checkpoint-path\": \"/proc/no/room\"");

    run_ranks(1, rank_body);
    CHECK_STATUS(GP_OK, (gp_status)job->results[0].done.status);
    CHECK_INT(60, job->results[0].records);
    CHECK(job->results[0].notes >= 1);
    CHECK_CONTAINS(job->results[0].note, "the training continues");
    job_free(job);
}

TEST(resuming_a_complete_training_takes_no_step)
{
    char directory[] = "/tmp/gp-resume-XXXXXX", more[256];

    REQUIRE(leftovers_make(directory) != NULL);
    snprintf(more, sizeof(more), ", \"checkpoint-path\": \"%s\"", directory);
    train_job *first = resume_job(more);

    run_ranks(1, rank_body);
    snprintf(more, sizeof(more), ", \"resume\": \"%s\"", directory);
    train_job *second = resume_job(more);

    run_ranks(1, rank_body);
    CHECK_STATUS(GP_OK, (gp_status)second->results[0].done.status);
    CHECK_INT(first->results[0].done.step, second->results[0].done.step);
    CHECK(memcmp(first->results[0].weights, second->results[0].weights, sizeof(first->results[0].weights)) ==
          0);
    job_free(first);
    job_free(second);
    leftovers_clear(directory);
}

/* Require that a training ends early after `step`. Without a learning rate, every validation has
 * the same loss.
 *   stop_step  stop it earlier by a request; 0: never */
static void check_early_stop(const char *output, const char *more, uint32_t stop_step, uint64_t step)
{
    char options[512];

    snprintf(
        options, sizeof(options),
        "{\"mini-batch-size\": 50, \"lr\": 0, \"validation-patience\": 2, \"output-network\": \"%s\", %s}",
        output, more);
    train_job *job = job_new("digits:200", options);

    strcpy(job->validation, "=");
    job->stop_step = stop_step;
    run_ranks(2, rank_body);
    CHECK_STATUS(GP_OK, (gp_status)job->results[0].done.status);
    CHECK_INT(stop_step == 0 ? GP_STOP_EARLY : GP_STOP_STOPPED, job->results[0].done.stop_reason);
    CHECK_INT(step, job->results[0].done.step);
    job_free(job);
}

/* The validations are after steps 4, 8 and 12, and after the stop. */
TEST(resumed_training_ends_early_after_the_same_step)
{
    static const char *const outputs[] = { "last", "best-validation" };

    for (int i = 0; i < 2; i++)
        for (uint32_t stop_step = 4; stop_step < 12; stop_step += 3) {
            char directory[] = "/tmp/gp-resume-XXXXXX", more[256];

            REQUIRE(leftovers_make(directory) != NULL);
            snprintf(more, sizeof(more), "\"max-epochs\": 9, \"checkpoint-path\": \"%s\"", directory);
            check_early_stop(outputs[i], more, stop_step, stop_step + 1);
            snprintf(more, sizeof(more), "\"max-epochs\": 9, \"checkpoint-path\": \"%s\", \"resume\": \"%s\"",
                     directory, directory);
            check_early_stop(outputs[i], more, 0, 12);
            check_early_stop(outputs[i], more, 0, 12); /* takes no step */
            leftovers_clear(directory);
        }
}

/* Only the first of several validations with the same loss has the lowest loss, and only the
 * checkpoint of that step has its weights. */
TEST(checkpoint_is_best_only_after_the_best_validation)
{
    train_job *job = job_new("digits:200", "{\"max-epochs\": 3, \"mini-batch-size\": 50, \"lr\": 0}");

    strcpy(job->validation, "=");
    run_ranks(1, rank_body);
    CHECK_INT(12, job->results[0].records);
    CHECK_INT(3, job->results[0].checks);
    CHECK(job->results[0].best_checks == 1);
    CHECK(job->results[0].best_records == 0);
    job_free(job);
}

TEST(steps_allocate_no_heap_memory)
{
    train_job *job = job_new("digits:2000", "{\"max-epochs\": 3, \"mini-batch-size\": 50}");

    run_ranks(2, rank_body);
    CHECK_INT(120, job->results[0].records);
    CHECK_INT(job->results[0].allocations_early, job->results[0].allocations_late);
    job_free(job);
}

TEST(a_rank_without_samples_takes_part)
{
    train_job *job = job_new("digits:10", "{\"max-epochs\": 3, \"mini-batch-size\": 3}");

    strcpy(job->validation, "="); /* two samples for four ranks */
    run_ranks(4, rank_body);
    CHECK_STATUS(GP_OK, (gp_status)job->results[3].done.status);
    CHECK_INT(12, job->results[3].records);
    CHECK_INT(2, job->results[3].check.count);
    job_free(job);
}

TEST(a_loss_that_is_not_finite_ends_the_training_before_the_commit)
{
    train_job *job = job_new("digits:1000", "{\"max-epochs\": 9, \"mini-batch-size\": 50, "
                                            "\"initial-learn-rate\": 900, \"l2-regularization\": 100}");

    run_ranks(2, rank_body);
    CHECK_STATUS(GP_EDIVERGED, (gp_status)job->results[0].done.status);
    CHECK_STATUS(GP_EDIVERGED, (gp_status)job->results[1].done.status);
    CHECK_CONTAINS(job->results[0].done.message, "initial-learn-rate");
    CHECK_CONTAINS(job->results[0].done.message, "the first non-finite value is in the output of layer");
    CHECK(strcmp(job->results[0].done.message, job->results[1].done.message) == 0);
    CHECK(job->results[0].kept_previous);
    job_free(job);
}

/* Fill in Glorot weights for LeNet, times a factor. */
static void initial_fill(train_job *job, float factor)
{
    gp_shape input = gp_shape3(1, 28, 28);
    gp_netspec *spec;
    gp_graph *graph;
    gp_error err;

    REQUIRE_OK(gp_zoo_build(&spec, "lenet", &input, 10, &err), err);
    REQUIRE_OK(gp_graph_new(&graph, spec, &err), err);
    gp_graph_initialize(graph, (gp_init_rule){ .kind = GP_INIT_GLOROT }, 1, job->initial);
    for (size_t i = 0; i < graph->blob_count; i++)
        job->initial[i] *= factor;
    job->from_weights = true;
    gp_graph_free(graph);
    gp_netspec_free(spec);
}

/* A rectifier that replaced NaN by 0 would hide it from the loss. The steps do not use a running
 * variance. */
TEST(weights_that_are_not_finite_end_the_training)
{
    static const char *const names[] = { "n1.scale", "n1.variance" };
    static const char *const words[] = { "the loss of step 1 is ",
                                         "the weights are not finite after step 2" };

    for (int i = 0; i < 2; i++) {
        train_job *job = job_new("digits:60", "{\"max-epochs\": 1, \"mini-batch-size\": 30}");
        gp_shape input = gp_shape3(1, 28, 28);
        gp_netspec *spec;
        gp_graph *graph;
        gp_error err;

        use_residual_net(job, "batchnorm");
        REQUIRE_OK(net_parse(&spec, &input, job->net, &err), err);
        REQUIRE_OK(gp_graph_new(&graph, spec, &err), err);
        gp_graph_initialize(graph, (gp_init_rule){ .kind = GP_INIT_GLOROT }, 1, job->initial);
        for (uint32_t p = 0; p < graph->parameter_count; p++)
            if (strcmp(graph->parameters[p].name, names[i]) == 0)
                job->initial[graph->parameters[p].offset] = NAN;
        job->from_weights = true;
        job->initial_count = graph->blob_count;
        run_ranks(2, rank_body);
        CHECK_STATUS(GP_EDIVERGED, (gp_status)job->results[0].done.status);
        CHECK_CONTAINS(job->results[0].done.message, words[i]);
        gp_graph_free(graph);
        gp_netspec_free(spec);
        job_free(job);
    }
}

/* The only step of an epoch has a finite loss, but the weights make every score overflow. */
TEST(a_validation_loss_that_is_not_finite_ends_the_training_without_a_checkpoint)
{
    char directory[] = "/tmp/gp-resume-XXXXXX", options[200];

    REQUIRE(leftovers_make(directory) != NULL);
    snprintf(options, sizeof(options),
             "{\"max-epochs\": 2, \"mini-batch-size\": 50, \"initial-learn-rate\": 1000, "
             "\"checkpoint-path\": \"%s\"}",
             directory);
    train_job *job = job_new("digits:50", options);

    strcpy(job->validation, "=");
    initial_fill(job, 1e3f); /* large gradients */
    run_ranks(2, rank_body);
    for (int rank = 0; rank < 2; rank++) {
        CHECK_STATUS(GP_EDIVERGED, (gp_status)job->results[rank].done.status);
        CHECK_INT(1, job->results[rank].records);
        CHECK_CONTAINS(job->results[rank].done.message, "the validation loss after step 1 is ");
        CHECK_CONTAINS(job->results[rank].done.message, "in the output of layer ");
        CHECK_CONTAINS(job->results[rank].done.message, "of the validation data");
    }
    CHECK_INT(0, rmdir(directory)); /* empty: no checkpoint */
    job_free(job);
}

TEST(a_weight_that_is_not_finite_is_named_by_its_layer)
{
    for (int in_weights = 0; in_weights < 2; in_weights++) {
        train_job *job = job_new("digits:100", "{\"max-epochs\": 1, \"mini-batch-size\": 50}");
        gp_shape input = gp_shape3(1, 28, 28);
        gp_netspec *spec;
        gp_graph *graph;
        gp_error err;

        REQUIRE_OK(gp_zoo_build(&spec, "lenet", &input, 10, &err), err);
        REQUIRE_OK(gp_graph_new(&graph, spec, &err), err);
        gp_graph_initialize(graph, (gp_init_rule){ .kind = GP_INIT_GLOROT }, 1, job->initial);
        for (uint32_t p = 0; p < graph->parameter_count;
             p++) /* the second convolution, or so large that the sum in fc1 overflows */
            if (strcmp(graph->parameters[p].name, in_weights ? "conv2.weight" : "fc1.weight") == 0)
                for (int i = 0; i < (in_weights ? 1 : 100); i++)
                    job->initial[graph->parameters[p].offset + 7 + (size_t)i] = in_weights ? NAN : 3e38f;
        job->from_weights = true;
        run_ranks(2, rank_body);
        CHECK_STATUS(GP_EDIVERGED, (gp_status)job->results[1].done.status);
        CHECK_CONTAINS(job->results[1].done.message,
                       in_weights ? "the weights of layer conv2 (conv2d) are not finite"
                                  : "in the output of layer fc1 (fc), for sample ");
        gp_graph_free(graph);
        gp_netspec_free(spec);
        job_free(job);
    }
}

static void check_refused(const char *data, const char *options, gp_status status, const char *words)
{
    train_job *job = job_new(data, options);

    run_ranks(1, rank_body);
    CHECK_STATUS(status, (gp_status)job->results[0].done.status);
    CHECK_CONTAINS(job->results[0].done.message, words);
    job_free(job);
}

TEST(loads_split_the_batch_unequally_without_changing_gradients)
{
    static const char *const loads[] = { "", ", \"worker-weights\": \"1,3,0\"" };
    char options[160];
    train_job *jobs[2];

    for (int i = 0; i < 2; i++) {
        snprintf(options, sizeof(options), "{\"max-epochs\": 1, \"mini-batch-size\": 50%s}", loads[i]);
        jobs[i] = job_new("digits:50", options);
        run_ranks(3, rank_body);
        CHECK_STATUS(GP_OK, (gp_status)jobs[i]->results[2].done.status);
    }
    CHECK_NEAR(0, distance(jobs[0]->results[0].gradients, jobs[1]->results[0].gradients), 1e-6);
    CHECK_INT(13, jobs[1]->results[0].share);
    CHECK_INT(37, jobs[1]->results[1].share);
    CHECK_INT(0, jobs[1]->results[2].share);
    check_refused("digits:50", "{\"mini-batch-size\": 50, \"worker-weights\": \"1,2\"}", GP_EINVAL,
                  "worker-weights has 2 numbers ('1,2') for 1 workers");
    check_refused("digits:50", "{\"mini-batch-size\": 50, \"worker-weights\": \"x\"}", GP_EINVAL,
                  "worker-weights is 'x'");
    check_refused("digits:50", "{\"mini-batch-size\": 50, \"worker-weights\": \"0\"}", GP_EINVAL, "above 0");
    job_free(jobs[0]);
    job_free(jobs[1]);
}

TEST(unsupported_trainings_are_refused)
{
    check_refused(
        "digits:100", "{\"mini-batch-size\": 101}", GP_EINVAL,
        "mini-batch-size is 101, but digits:100 has only 100 samples; use --batch-size 100 or less");
    check_refused("synthetic:28x28x1:7:100", "{\"mini-batch-size\": 10}", GP_EINVAL,
                  "7 classes, but network lenet has 10");
    check_refused("synthetic:32x32x3:10:100", "{\"mini-batch-size\": 10}", GP_EINVAL, "3x32x32");
    check_refused("/nowhere", "{\"mini-batch-size\": 10}", GP_ENOENT, "/nowhere");
    check_refused("digits:100", "{\"mini-batch-size\": 0}", GP_EINVAL, "mini-batch-size is 0");
    check_refused("digits:100", "{\"weights-initializer\": \"xavier\"}", GP_EINVAL, "xavier");
    check_refused("digits:100", "{\"mini-batch-size\": 10, \"synchronize-batch-norm\": true}", GP_EINVAL,
                  "lenet has no batch norm; omit synchronize-batch-norm");
    check_refused("digits:100", "{\"mini-batch-size\": 10, \"batch-norm-statistics\": \"population\"}",
                  GP_EINVAL, "omit batch-norm-statistics");
}

/* ---- learn-rate factors ---- */

#define FROZEN "weight-learn-rate-factor=0;bias-learn-rate-factor=0"

/* Return the graph of a job's network, for tensor offsets. */
static gp_graph *job_graph(const train_job *job)
{
    gp_shape input = gp_shape3(1, 28, 28);
    gp_graph *graph = NULL;
    gp_error err;

    if (net_graph(&graph, &input, job->net, &err) != GP_OK)
        GP_TEST_FAIL("%s: %s", job->net, err.message);
    return graph;
}

static train_job *factors_job(const char *net, const char *options)
{
    train_job *job = job_new("digits:60", options);
    gp_graph *graph;

    snprintf(job->net, sizeof(job->net), "%s", net);
    graph = job_graph(job);
    job->from_weights = true;
    job->initial_count = graph == NULL ? 0 : graph->blob_count;
    gp_graph_free(graph);
    for (size_t i = 0; i < job->initial_count; i++)
        job->initial[i] = 0.05f + 0.1f * sinf((float)i);
    return job;
}

TEST(frozen_layer_is_bitwise_unchanged_while_its_statistics_move)
{
    train_job *job = factors_job("c conv2d channels=4;kernel=5;stride=2;" FROZEN " | n batchnorm " FROZEN
                                 " | r relu | d conv2d channels=3;kernel=3 | f fc outputs=16;" FROZEN
                                 " | s relu | g fc outputs=10 | l crossentropy",
                                 "{\"max-epochs\": 3, \"mini-batch-size\": 20, \"lr\": 0.1,"
                                 " \"l2-regularization\": 0.01, \"gradient-threshold\": 1,"
                                 " \"exchange-bucket-bytes\": 4096}");
    gp_graph *graph = job_graph(job);
    size_t moved = 0, kept = 0;

    REQUIRE(graph != NULL);
    run_ranks(2, rank_body);
    CHECK_STATUS(GP_OK, (gp_status)job->results[0].done.status);
    CHECK_INT(9, job->results[0].records);
    CHECK(memcmp(job->results[0].weights, job->results[1].weights, sizeof(job->results[0].weights)) == 0);
    for (uint32_t p = 0; p < graph->parameter_count; p++) {
        const gp_parameter *parameter = &graph->parameters[p];
        const float *now = job->results[0].weights + parameter->offset,
                    *then = job->initial + parameter->offset;
        bool same = memcmp(now, then, (size_t)parameter->count * sizeof(float)) == 0;
        bool learns = gp_parameter_learns(parameter) || parameter->statistic != GP_STATISTIC_NONE;

        if (same == learns)
            GP_TEST_FAIL("%s has %s", parameter->name, same ? "not moved" : "moved");
        (same ? &kept : &moved)[0]++;
    }
    CHECK_INT(6, kept);
    CHECK_INT(6, moved);
    gp_graph_free(graph);
    job_free(job);
}

TEST(a_factor_of_ten_moves_ten_times_as_far_in_one_step)
{
    static const char *const net = "c conv2d channels=4;kernel=5;stride=2 | r relu | f fc outputs=10%s | "
                                   "l crossentropy";
    static const char *const options = "{\"max-epochs\": 1, \"mini-batch-size\": 60, \"lr\": 0.01,"
                                       " \"momentum\": 0, \"l2-regularization\": 0}";
    train_job *jobs[2];
    char text[2][200];

    snprintf(text[0], sizeof(text[0]), net, "");
    snprintf(text[1], sizeof(text[1]), net, ";weight-learn-rate-factor=10;bias-learn-rate-factor=20");
    for (int i = 0; i < 2; i++) {
        jobs[i] = factors_job(text[i], options);
        run_ranks(2, rank_body);
        CHECK_INT(1, jobs[i]->results[0].records);
    }
    gp_graph *graph = job_graph(jobs[1]);

    REQUIRE(graph != NULL);
    for (uint32_t p = 0; p < graph->parameter_count; p++) {
        const gp_parameter *parameter = &graph->parameters[p];
        double far = 0.0, near = 0.0, expected = p < 2 ? 1.0 : p == 2 ? 10.0 : 20.0;

        CHECK_NEAR(expected, parameter->learn_rate_factor, 0.0);
        for (size_t i = parameter->offset; i < parameter->offset + (size_t)parameter->count; i++) {
            double from = jobs[0]->initial[i], a = jobs[0]->results[0].weights[i] - from,
                   b = jobs[1]->results[0].weights[i] - from;

            near += a * a;
            far += a * b; /* same direction */
        }
        CHECK_NEAR(expected, far / near, 1e-3 * expected);
    }
    gp_graph_free(graph);
    job_free(jobs[0]);
    job_free(jobs[1]);
}

TEST(reproducible_partly_frozen_training_is_bitwise_identical_on_any_number_of_ranks)
{
    train_job *jobs[4] = { NULL };

    for (uint32_t ranks = 1; ranks <= 3; ranks++) {
        jobs[ranks] = factors_job("c conv2d channels=4;kernel=5;stride=2;" FROZEN
                                  " | r relu | f fc outputs=10 | l crossentropy",
                                  "{\"max-epochs\": 2, \"mini-batch-size\": 30, \"lr\": 0.05,"
                                  " \"reproducible\": true}");
        run_ranks(ranks, rank_body);
        CHECK_STATUS(GP_OK, (gp_status)jobs[ranks]->results[0].done.status);
        CHECK(memcmp(jobs[1]->results[0].weights, jobs[ranks]->results[ranks - 1].weights,
                     sizeof(jobs[1]->results[0].weights)) == 0);
    }
    CHECK(memcmp(jobs[1]->initial, jobs[1]->results[0].weights, sizeof(float)) != 0);
    for (uint32_t ranks = 1; ranks <= 3; ranks++)
        job_free(jobs[ranks]);
}

/* ---- networks with normalization ---- */

/* A residual block between two group norms. */
TEST(residual_network_with_group_norm_is_bitwise_identical_on_any_number_of_ranks)
{
    train_job *jobs[5] = { NULL };

    for (uint32_t ranks = 1; ranks <= 4; ranks++) {
        jobs[ranks] = job_new("digits:500", "{\"max-epochs\": 3, \"mini-batch-size\": 100, \"lr\": 0.05,"
                                            " \"weights-initializer\": \"he\", \"reproducible\": true}");
        strcpy(jobs[ranks]->validation, "=");
        use_residual_net(jobs[ranks], "groupnorm groups=4");
        run_ranks(ranks, rank_body);
        CHECK_STATUS(GP_OK, (gp_status)jobs[ranks]->results[ranks - 1].done.status);
        CHECK_INT(15, jobs[ranks]->results[ranks - 1].records);
        CHECK(memcmp(jobs[1]->results[0].losses, jobs[ranks]->results[ranks - 1].losses,
                     15 * sizeof(double)) == 0);
        CHECK(memcmp(jobs[1]->results[0].weights, jobs[ranks]->results[ranks - 1].weights,
                     sizeof(jobs[1]->results[0].weights)) == 0);
        CHECK(jobs[1]->results[0].check.loss == jobs[ranks]->results[ranks - 1].check.loss);
    }
    CHECK(jobs[1]->results[0].losses[14] < jobs[1]->results[0].losses[0]);
    for (uint32_t ranks = 1; ranks <= 4; ranks++)
        job_free(jobs[ranks]);
}

/* Clear the gradients' statistics sums: only trainable parameters remain. */
static void forget_statistics(train_job *job)
{
    gp_shape input = gp_shape3(1, 28, 28);
    gp_netspec *spec;
    gp_graph *graph;
    gp_error err;

    REQUIRE_OK(net_parse(&spec, &input, job->net, &err), err);
    REQUIRE_OK(gp_graph_new(&graph, spec, &err), err);
    for (uint32_t p = 0; p < graph->parameter_count; p++)
        if (graph->parameters[p].statistic != GP_STATISTIC_NONE)
            memset(job->results[0].gradients + graph->parameters[p].offset, 0,
                   (size_t)graph->parameters[p].count * sizeof(float));
    gp_graph_free(graph);
    gp_netspec_free(spec);
}

/* Run one step of the residual network with batch norm; there may be more ranks than samples. */
static train_job *norm_step(uint32_t ranks, uint32_t batch, bool synchronized)
{
    char data[32], options[160];

    snprintf(data, sizeof(data), "digits:%u", batch);
    snprintf(options, sizeof(options),
             "{\"max-epochs\": 1, \"mini-batch-size\": %u, \"weights-initializer\": \"he\", "
             "\"synchronize-batch-norm\": %s}",
             batch, synchronized ? "true" : "false");
    train_job *job = job_new(data, options);

    use_residual_net(job, "batchnorm");
    run_ranks(ranks, rank_body);
    for (uint32_t rank = 0; rank < ranks; rank++)
        CHECK_STATUS(GP_OK, (gp_status)job->results[rank].done.status);
    forget_statistics(job);
    return job;
}

TEST(synchronized_batch_norm_matches_one_rank_on_any_number)
{
    static const uint32_t batches[] = { 48, 7, 3 };

    for (size_t i = 0; i < 3; i++) {
        train_job *one = norm_step(1, batches[i], true), *local = norm_step(1, batches[i], false);

        CHECK_NEAR(0, distance(local->results[0].gradients, one->results[0].gradients), 1e-6);
        for (uint32_t ranks = 2; ranks <= 4; ranks++) {
            train_job *more = norm_step(ranks, batches[i], true);

            CHECK_NEAR(0, distance(one->results[0].gradients, more->results[0].gradients), 2e-6);
            CHECK_NEAR(0, distance(one->results[0].weights, more->results[ranks - 1].weights), 1e-6);
            job_free(more);
        }
        job_free(local);
        local = norm_step(2, batches[i], false); /* proves that the check can fail */
        CHECK(distance(one->results[0].gradients, local->results[0].gradients) > 1e-4);
        job_free(local);
        job_free(one);
    }
}

/* Compute the mean output of the first convolution over all data, per channel: the input mean of
 * the first norm. */
static void first_means(const char *data, uint32_t samples, const float *weight, const float *bias,
                        double *means)
{
    uint8_t *pixels = gp_malloc((size_t)samples * 784);
    uint32_t *index = gp_calloc(samples, sizeof(*index));
    gp_store *store;
    gp_error err;

    for (uint32_t i = 0; i < samples; i++)
        index[i] = i;
    REQUIRE_OK(gp_store_open(&store, data, GP_DATA_TRAIN, &err), err);
    REQUIRE_OK(gp_store_read(store, index, samples, pixels, NULL, &err), err);
    for (int c = 0; c < 8; c++) {
        double sum = 0;

        for (uint32_t n = 0; n < samples; n++)
            for (int y = 0; y < 14; y++)
                for (int x = 0; x < 14; x++)
                    for (int k = 0; k < 9; k++) {
                        int row = 2 * y - 1 + k / 3, column = 2 * x - 1 + k % 3;

                        if (row >= 0 && row < 28 && column >= 0 && column < 28)
                            sum +=
                                (double)weight[9 * c + k] * pixels[n * 784 + (uint32_t)(28 * row + column)];
                    }
        means[c] = sum / (samples * 196.0) + (double)bias[c];
    }
    gp_store_close(store);
    gp_free(pixels);
    gp_free(index);
}

TEST(population_statistics_are_those_of_all_data_under_the_final_weights)
{
    for (uint32_t ranks = 1; ranks <= 3; ranks += 2) {
        train_job *job = job_new("digits:100", "{\"max-epochs\": 2, \"mini-batch-size\": 30, \"lr\": 0.1,"
                                               " \"batch-norm-statistics\": \"population\"}");
        gp_shape input = gp_shape3(1, 28, 28);
        const float *weights = job->results[0].weights;
        size_t weight = 0, bias = 0, mean = 0;
        double means[8];
        gp_netspec *spec;
        gp_graph *graph;
        gp_error err;

        strcpy(job->validation, "=");
        use_residual_net(job, "batchnorm");
        run_ranks(ranks, rank_body);
        CHECK_STATUS(GP_OK, (gp_status)job->results[0].done.status);

        /* two epochs, and a final one with the new statistics */
        CHECK_INT(3, job->results[0].checks);
        REQUIRE_OK(net_parse(&spec, &input, job->net, &err), err);
        REQUIRE_OK(gp_graph_new(&graph, spec, &err), err);
        for (uint32_t p = 0; p < graph->parameter_count; p++) {
            weight =
                strcmp(graph->parameters[p].name, "c1.weight") == 0 ? graph->parameters[p].offset : weight;
            bias = strcmp(graph->parameters[p].name, "c1.bias") == 0 ? graph->parameters[p].offset : bias;
            mean = strcmp(graph->parameters[p].name, "n1.mean") == 0 ? graph->parameters[p].offset : mean;
        }
        first_means("digits:100", 100, weights + weight, weights + bias, means);
        for (int c = 0; c < 8; c++)
            CHECK_NEAR(means[c], (double)weights[mean + (size_t)c], 1e-4 * (1 + fabs(means[c])));
        gp_graph_free(graph);
        gp_netspec_free(spec);
        job_free(job);
    }
}

/* The last mini-batch has one sample. */
TEST(population_statistics_are_computed_although_a_rank_has_no_samples)
{
    train_job *job = job_new("digits:31", "{\"max-epochs\": 1, \"mini-batch-size\": 30, \"lr\": 0.1,"
                                          " \"synchronize-batch-norm\": true,"
                                          " \"batch-norm-statistics\": \"population\"}");

    use_residual_net(job, "batchnorm");
    run_ranks(2, rank_body);
    for (int rank = 0; rank < 2; rank++)
        CHECK_STATUS(GP_OK, (gp_status)job->results[rank].done.status);
    job_free(job);
}

/* With these weights, rank 1 gets 76 of 128 samples, but 77 of 127. */
TEST(the_share_of_a_smaller_last_mini_batch_can_be_larger)
{
    train_job *job = job_new("digits:255", "{\"max-epochs\": 1, \"mini-batch-size\": 128, \"lr\": 0.1,"
                                           " \"worker-weights\": \"1,3,1\","
                                           " \"batch-norm-statistics\": \"population\"}");

    use_residual_net(job, "batchnorm");
    run_ranks(3, rank_body);
    CHECK_INT(76, job->results[1].share);
    for (int rank = 0; rank < 3; rank++)
        CHECK_STATUS(GP_OK, (gp_status)job->results[rank].done.status);
    job_free(job);
}

TEST(batch_too_large_for_memory_is_refused_with_the_largest_possible_one)
{
    static const char *const options = "{\"max-epochs\": 1, \"mini-batch-size\": %d}";
    char text[80];
    int most = 0;

    setenv("GRADPOOL_WORKER_MEMORY", "24M", 1);
    snprintf(text, sizeof(text), options, 1900);
    train_job *job = job_new("digits:2000", text);

    use_residual_net(job, "batchnorm");
    run_ranks(2, rank_body);
    for (int rank = 0; rank < 2; rank++) {
        const char *words = job->results[rank].done.message;

        CHECK_STATUS(GP_ENOMEM, (gp_status)job->results[rank].done.status);
        CHECK_CONTAINS(words, "950 samples of network net need about 0.");
        REQUIRE(strstr(words, "at most ") != NULL);
        most = atoi(strstr(words, "at most ") + strlen("at most "));
    }
    job_free(job);
    CHECK(most > 20 && most < 1900);
    snprintf(text, sizeof(text), options, most);
    job = job_new("digits:2000", text);
    use_residual_net(job, "batchnorm");
    run_ranks(2, rank_body);
    CHECK_STATUS(GP_OK, (gp_status)job->results[0].done.status);
    unsetenv("GRADPOOL_WORKER_MEMORY");
    job_free(job);
}

/* ---- augmentation ---- */

TEST(augmented_samples_are_the_same_on_any_number_of_ranks_and_new_in_each_epoch)
{
    static const char *const options = "{\"max-epochs\": 2, \"mini-batch-size\": 60, \"lr\": 0.05, "
                                       "\"shuffle\": \"never\", \"reproducible\": true"
                                       "%s}";
    static const char *const augments[] = {
        ", \"augment\": \"rotation=-20,20 x-translation=-2,2 x-reflection=0.5 brightness=0.8,1.2\"",
        ", \"augment\": \"crop=random crop-size=28,28 patches-per-image=2 rotation=-20,20\"", ""
    };
    train_job *one[3];
    char text[400];

    for (int i = 0; i < 3; i++) {
        snprintf(text, sizeof(text), options, augments[i]);
        one[i] = job_new("digits:120", text);
        strcpy(one[i]->validation, "=");
        run_ranks(1, rank_body);
        CHECK_STATUS(GP_OK, (gp_status)one[i]->results[0].done.status);
        CHECK_INT(i == 1 ? 8 : 4, one[i]->results[0].records); /* two patches per image */
        if (i == 2)
            continue;
        train_job *three = job_new("digits:120", text);

        strcpy(three->validation, "=");
        run_ranks(3, rank_body);
        CHECK(memcmp(one[i]->results[0].losses, three->results[1].losses, sizeof(three->results[1].losses)) ==
              0);
        CHECK(memcmp(one[i]->results[0].weights, three->results[2].weights,
                     sizeof(three->results[2].weights)) == 0);
        job_free(three);
    }
    CHECK(one[0]->results[0].losses[0] != one[2]->results[0].losses[0]);
    for (int i = 0; i < 3; i++)
        job_free(one[i]);
    check_refused("digits:100", "{\"mini-batch-size\": 10, \"augment\": \"rotatoin=3\"}", GP_EINVAL,
                  "rotation");
    check_refused("digits:100", "{\"mini-batch-size\": 10, \"augment\": \"crop=center crop-size=20,20\"}",
                  GP_EINVAL, "1x20x20");
}
