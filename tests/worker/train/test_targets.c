/* test_targets.c: trainings on targets of any shape, with real processes as ranks: pixel classes,
 * values, several losses, ignored targets, and mismatched data. */
#include "tests/worker/comm/ranks.h"

#include "common/base/memory/alloc.h"
#include "tests/common/model/nets.h"
#include "tests/ref/run.h"
#include "worker/train/trainer.h"
#include "worker/train/trainer_state.h"

enum {
    SAMPLES = 12,
    CHANNELS = 3,
    SIDE = 8,
    PIXELS = SIDE * SIDE,
    CLASSES = 3,
    BLOB_MAX = 4096,
    STEPS_MAX = 64
};

/* Results of a rank, for the test to check. */
typedef struct rank_result {
    gp_train_done done;
    uint32_t records;
    gp_train_record record[STEPS_MAX];
    gp_train_validation check; /* the last one */
    uint64_t excluded;         /* from that validation */
    float weights[BLOB_MAX], gradients[BLOB_MAX];
} rank_result;

typedef struct target_job {
    char net[1024], options[256];
    uint32_t count; /* samples in the data */
    rank_result results[SLOT_MAX];
} target_job;

static target_job *shared; /* shared by all processes of a test */

/* The data, created before the fork and thus equal in all processes. */
static float samples[SAMPLES][CHANNELS][PIXELS];
static void *targets;
static gp_graph *graph; /* from shared->net */

static const char pixel_net[] = "c1 conv2d channels=4;kernel=3;padding=1 | r relu | p maxpool kernel=2 | "
                                "c2 conv2d channels=5;kernel=3;padding=1 | r2 relu | "
                                "t transconv2d channels=3;kernel=2;stride=2 | "
                                "loss pixelclassification ignore-label=2;label-smoothing=0.1";
static const char dice_net[] =
    "c1 conv2d channels=4;kernel=3;padding=1 | r relu | c2 conv2d channels=3;kernel=1 | "
    "loss dice";
static const char value_net[] =
    "c1 conv2d channels=4;kernel=3 | r relu | p avgpool kernel=2 | f fc outputs=5 | "
    "loss mse";
static const char map_net[] =
    "c1 conv2d channels=4;kernel=3;padding=1 | r relu | c2 conv2d channels=2;kernel=1 | "
    "loss huber delta=0.5";
static const char many_net[] =
    "c1 conv2d channels=4;kernel=3;padding=1 | r relu | c2 conv2d channels=3;kernel=1 | "
    "pixels pixelclassification loss-factor=0.5 | f fc outputs=4 < r | class crossentropy | "
    "g fc outputs=2 < r | values huber loss-factor=2";

static const char shared_net[] =
    "c1 conv2d channels=4;kernel=3;padding=1 | r relu | c2 conv2d channels=3;kernel=1 | "
    "pixels pixelclassification ignore-label=2 | overlap dice loss-factor=0.5;target-of=pixels < c2";

/* An image and numbers, packed into 3 x 8 x 8; a pixel class and values from both. */
static const char inputs_net[] =
    "{\"inputs\": [{\"name\": \"image\", \"shape\": [2, 8, 8], \"scale\": 0.5}, {\"name\": \"beside\", "
    "\"shape\": [64]}], "
    "\"layers\": [{\"name\": \"c\", \"kind\": \"conv2d\", \"inputs\": [\"image\"], \"channels\": 3, "
    "\"kernel\": 3, "
    "\"padding\": 1}, {\"name\": \"pixels\", \"kind\": \"pixelclassification\"}, "
    "{\"name\": \"v\", \"kind\": \"flatten\", \"inputs\": [\"c\"]}, "
    "{\"name\": \"both\", \"kind\": \"concat\", \"inputs\": [\"v\", \"beside\"]}, "
    "{\"name\": \"f\", \"kind\": \"fc\", \"outputs\": 2}, {\"name\": \"values\", \"kind\": \"mse\"}]}";

/* Create a job with one step over `count` samples in order, unless the options say otherwise. */
static void job_new(const char *net, uint32_t count, const char *options)
{
    const gp_shape input = gp_shape3(CHANNELS, SIDE, SIDE);
    gp_error err;

    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        abort();
    snprintf(shared->net, sizeof(shared->net), "%s", net);
    snprintf(shared->options, sizeof(shared->options),
             "{\"max-epochs\": 1, \"mini-batch-size\": %u, \"shuffle\": \"never\", \"weights-initializer\": "
             "\"he\"%s%s}",
             count, options[0] == '\0' ? "" : ", ", options);
    shared->count = count;
    if (net[0] == '{') {
        gp_netspec *spec;

        REQUIRE_OK(gp_netspec_from_json(&spec, net, strlen(net), &err), err);
        REQUIRE_OK(gp_graph_new(&graph, spec, &err), err);
        gp_netspec_free(spec);
    } else {
        REQUIRE_OK(net_graph(&graph, &input, net, &err), err);
    }
    CHECK(graph->blob_count <= BLOB_MAX);
    for (size_t i = 0; i < sizeof(samples) / sizeof(float); i++)
        ((float *)samples)[i] = (float)sin(1.7 * (double)i + 0.3);
    targets = gp_ref_targets_new(graph, SAMPLES, 5);
}

static void job_free(void)
{
    gp_graph_free(graph);
    free(targets);
    munmap(shared, sizeof(*shared));
}

/* Return the target of one element for the network's loss `end`. */
static int32_t *target_of(uint32_t end, uint32_t sample, size_t element)
{
    return (int32_t *)((char *)targets + sample * graph->target_bytes) + graph->ends[end].target_first +
           element;
}

static gp_store_info data_info(void)
{
    gp_store_info info = { .source = "arrays",
                           .kind = "memory",
                           .count = shared->count,
                           .channels = CHANNELS,
                           .height = SIDE,
                           .width = SIDE,
                           .dtype = GP_F32,
                           .target_count = graph->target_count,
                           .class_count = graph->class_count };

    for (uint32_t i = 0; i < graph->target_count; i++)
        info.targets[i] = graph->targets[i];
    return info;
}

/* Open the ranks' data under any name. */
static gp_status data_open(gp_store **out, const char *source, gp_data_role role,
                           const gp_store_options *options, gp_error *err)
{
    gp_store_info info = data_info();

    (void)source, (void)role, (void)options;
    return gp_store_open_arrays(out, &info, samples, targets, err);
}

static void watch_record(void *context, const gp_train_record *record)
{
    rank_result *result = context;

    if (result->records < STEPS_MAX)
        result->record[result->records++] = *record;
}

static void watch_validation(void *context, const gp_train_validation *validation)
{
    ((rank_result *)context)->check = *validation;
}

static void watch_note(void *context, const char *text, bool warning)
{
    (void)context, (void)text, (void)warning;
}

static void watch_validating(void *context, const gp_train_validating *validating)
{
    if (validating->done == validating->count)
        ((rank_result *)context)->excluded = validating->excluded;
}

static void run_trainer(const gp_trainer_setup *setup, rank_result *result, gp_error *err)
{
    gp_train_sink sink = { result, watch_record, watch_validation, watch_note, watch_validating };
    gp_train_ready ready;
    gp_trainer *trainer;
    size_t count;
    gp_status status = gp_trainer_new(&trainer, &ready, setup, err);

    if (status != GP_OK) {
        result->done.status = status;
        snprintf(result->done.message, sizeof(result->done.message), "%s", err->message);
        return;
    }
    gp_trainer_run(trainer, &sink, &result->done);
    memcpy(result->weights, gp_trainer_weights(trainer, &count), graph->blob_count * sizeof(float));
    memcpy(result->gradients, trainer->exchange.gradients, graph->blob_count * sizeof(float));
    gp_trainer_free(trainer);
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
    gp_train_begin begin = { .workers = place->slots, .data = "arrays", .validation_data = "=" };
    gp_train_control control;
    gp_backend *backend;
    gp_buffer json;
    gp_error err = { 0 };

    place->generation = 1;
    place->order = in_order;
    place->world = place->slots;
    gp_train_control_init(&control);
    gp_buffer_init(&json, GP_NETSPEC_BYTES_MAX);
    REQUIRE_OK(gp_netspec_to_json(graph->spec, &json, false, &err), err);
    REQUIRE_OK(gp_backend_cpu.open(&backend, &(gp_backend_options){ .threads = 1 }, &err), err);
    run_trainer(&(gp_trainer_setup){ .begin = &begin,
                                     .netspec = gp_buffer_text(&json),
                                     .netspec_bytes = json.bytes,
                                     .options = shared->options,
                                     .options_bytes = strlen(shared->options),
                                     .open = data_open,
                                     .group = &group,
                                     .backend_ops = &gp_backend_cpu,
                                     .backend = backend,
                                     .control = &control },
                &shared->results[place->slot], &err);
    gp_backend_cpu.close(backend);
    gp_buffer_deinit(&json);
    gp_train_control_deinit(&control);
}

/* Return |a - b| / |a|. */
static double distance(const double *a, const float *b, size_t count)
{
    double difference = 0, norm = 0;

    for (size_t i = 0; i < count; i++) {
        difference += (a[i] - (double)b[i]) * (a[i] - (double)b[i]);
        norm += a[i] * a[i];
    }
    return sqrt(difference / norm);
}

/* Compute the sums of the first step over the whole mini-batch with float64 plain loops. */
static gp_ref_run *oracle_new(void)
{
    float *initial = gp_calloc(graph->blob_count, sizeof(float));
    double *blob = gp_calloc(graph->blob_count, sizeof(double)),
           *input = gp_calloc(sizeof(samples) / sizeof(float), sizeof(double));
    gp_init_rule rule = { .kind = GP_INIT_HE };

    gp_graph_initialize(graph, rule, 0, initial);
    gp_ref_widen(initial, graph->blob_count, blob);
    gp_ref_input(graph->spec, GP_F32, samples, shared->count, input);
    gp_ref_run *run = gp_ref_run_new(
        graph, GP_PHASE_TRAIN,
        &(gp_ref_batch){ .blob = blob, .input = input, .targets = targets, .count = shared->count });

    gp_free(initial);
    gp_free(blob);
    gp_free(input);
    return run;
}

/* Run one step on one to three ranks and compare the gradients with the oracle's. */
static void check_step(const char *what)
{
    static double alone[BLOB_MAX];
    const size_t count = graph->blob_count;
    gp_ref_run *expected = oracle_new();

    for (uint32_t world = 1; world <= 3; world++) {
        const rank_result *r = &shared->results[world - 1];

        memset(shared->results, 0, sizeof(shared->results));
        run_ranks(world, rank_body);
        if (r->done.status != GP_OK || r->done.step != 1) {
            GP_TEST_FAIL("%s on %u ranks: %s", what, world, r->done.message);
            break;
        }
        for (uint32_t rank = 1; rank < world; rank++)
            CHECK(memcmp(shared->results[0].weights, shared->results[rank].weights, count * sizeof(float)) ==
                  0);
        if (world == 1)
            gp_ref_widen(r->gradients, count, alone);
        CHECK_NEAR(0, distance(alone, r->gradients, count), 1e-6);
        CHECK_NEAR(0, distance(expected->gradients, r->gradients, count), 1e-5);
        CHECK_NEAR(expected->sums[GP_SUM_LOSS] / expected->sums[GP_SUM_WEIGHT], r->record[0].loss, 1e-5);
        if (expected->sums[GP_SUM_CLASSED] > 0)
            CHECK_NEAR(expected->sums[GP_SUM_CORRECT] / expected->sums[GP_SUM_CLASSED], r->record[0].accuracy,
                       1e-12);
        else
            CHECK(isnan(r->record[0].accuracy));
    }
    gp_ref_run_free(expected);
}

TEST(step_matches_the_oracle_on_any_number_of_ranks_for_all_targets)
{
    static const char *const nets[] = { pixel_net, dice_net,   value_net, map_net,
                                        many_net,  shared_net, inputs_net };

    for (size_t i = 0; i < sizeof(nets) / sizeof(nets[0]); i++) {
        job_new(nets[i], SAMPLES, "\"seed\": 0");
        check_step(nets[i]);
        job_free();
    }
}

/* Rank 1 of 3 has samples 4 to 7 of 12. */
TEST(rank_with_only_ignored_targets_changes_nothing)
{
    job_new(pixel_net, SAMPLES, "\"seed\": 0");
    for (uint32_t sample = 4; sample < 8; sample++)
        for (size_t p = 0; p < PIXELS; p++)
            *target_of(0, sample, p) = p % 2 == 0 ? -1 : 2; /* ignore-label */
    check_step("a rank all ignored");
    job_free();
    job_new(value_net, SAMPLES, "\"seed\": 0");
    for (uint32_t sample = 4; sample < 8; sample++)
        for (size_t e = 0; e < 5; e++)
            *(float *)target_of(0, sample, e) = NAN;
    check_step("a rank without values");
    job_free();
}

/* The missing targets are in slices of different ranks. */
TEST(a_validation_counts_the_missing_targets_of_all_ranks)
{
    static const char *const options[] = { "", "\"reproducible\": true" };

    for (int i = 0; i < 2; i++) {
        job_new(pixel_net, SAMPLES, options[i]);
        uint64_t missing = 0;

        *target_of(0, 1, 0) = *target_of(0, 6, 3) = *target_of(0, 11, 5) = -1;
        for (uint32_t sample = 0; sample < SAMPLES; sample++)
            for (size_t p = 0; p < PIXELS; p++)
                missing += *target_of(0, sample, p) < 0;
        for (uint32_t world = 1; world <= 3; world++) {
            memset(shared->results, 0, sizeof(shared->results));
            run_ranks(world, rank_body);
            CHECK_INT(GP_OK, shared->results[0].done.status);
            for (uint32_t rank = 0; rank < world; rank++)
                CHECK_INT(missing, shared->results[rank].excluded);
        }
        job_free();
    }
    uint64_t missing = 0;

    job_new(value_net, SAMPLES, "");
    *(float *)target_of(0, 2, 1) = *(float *)target_of(0, 9, 4) = NAN;
    for (uint32_t sample = 0; sample < SAMPLES; sample++)
        for (size_t e = 0; e < 5; e++)
            missing += isnan(*(float *)target_of(0, sample, e));
    run_ranks(2, rank_body);
    CHECK_INT(missing, shared->results[0].excluded);
    job_free();
}

TEST(ignored_pixels_have_no_effect)
{
    static const char *const nets[] = {
        "c conv2d channels=3;kernel=1 | r relu | d conv2d channels=3;kernel=1 | "
        "loss pixelclassification",
        "c conv2d channels=3;kernel=1 | loss dice", "c conv2d channels=2;kernel=1 | loss mse"
    };
    static rank_result before;

    for (size_t i = 0; i < sizeof(nets) / sizeof(nets[0]); i++) {
        job_new(nets[i], SAMPLES, "\"seed\": 0");
        run_ranks(2, rank_body);
        before = shared->results[0];
        CHECK_STATUS(GP_OK, (gp_status)before.done.status);
        for (uint32_t n = 0; n < SAMPLES; n++)
            for (size_t p = 0; p < PIXELS; p++) {
                bool ignored = graph->class_count != 0 ? *target_of(0, n, p) == -1
                                                       : isnan(*(float *)target_of(0, n, p)) &&
                                                             isnan(*(float *)target_of(0, n, PIXELS + p));

                for (int c = 0; c < CHANNELS && ignored; c++)
                    samples[n][c][p] = 100.0f;
            }
        memset(shared->results, 0, sizeof(shared->results));
        run_ranks(2, rank_body);
        CHECK(memcmp(before.gradients, shared->results[0].gradients, graph->blob_count * sizeof(float)) == 0);
        CHECK(before.record[0].loss == shared->results[0].record[0].loss);
        job_free();
    }
}

/* Three mini-batches, the second of them fully ignored, match a training on the other two. */
TEST(step_with_only_ignored_targets_changes_nothing)
{
    static float expected[BLOB_MAX];
    size_t half = 0;

    for (int round = 0; round < 2; round++) {
        job_new(pixel_net, SAMPLES, "\"seed\": 0");
        snprintf(shared->options, sizeof(shared->options),
                 "{\"max-epochs\": 1, \"mini-batch-size\": 4, \"shuffle\": \"never\", \"seed\": 0}");
        if (round == 0) { /* the first and the last four samples */
            shared->count = 8;
            memcpy(samples[4], samples[8], 4 * sizeof(samples[0]));
            memcpy(target_of(0, 4, 0), target_of(0, 8, 0), 4 * graph->target_bytes);
        } else {
            for (uint32_t sample = 4; sample < 8; sample++)
                for (size_t p = 0; p < PIXELS; p++)
                    *target_of(0, sample, p) = -1;
        }
        run_ranks(2, rank_body);
        const rank_result *r = &shared->results[0];

        CHECK_STATUS(GP_OK, (gp_status)r->done.status);
        CHECK_INT(round == 0 ? 2 : 3, r->done.step);
        CHECK(isfinite(r->done.loss));
        if (round == 0) {
            half = graph->blob_count;
            memcpy(expected, r->weights, half * sizeof(float));
        } else {
            CHECK(isnan(r->record[1].loss) && isnan(r->record[1].accuracy));
            CHECK(memcmp(expected, r->weights, half * sizeof(float)) == 0);
        }
        job_free();
    }
}

/* The class of a pixel is its largest channel; the value of a sample is the mean over the first
 * channel. */
TEST(pixels_and_values_are_learned)
{
    job_new(
        "c1 conv2d channels=8;kernel=1 | r relu | c2 conv2d channels=3;kernel=1 | loss pixelclassification",
        SAMPLES, "\"initial-learn-rate\": 0.1");
    for (uint32_t n = 0; n < SAMPLES; n++)
        for (size_t p = 0; p < PIXELS; p++) {
            int32_t largest = 0;

            for (int32_t c = 1; c < CHANNELS; c++)
                largest = samples[n][c][p] > samples[n][largest][p] ? c : largest;
            *target_of(0, n, p) = largest;
        }
    snprintf(shared->options, sizeof(shared->options),
             "{\"max-epochs\": 20, \"mini-batch-size\": 4, \"initial-learn-rate\": 0.3}");
    run_ranks(2, rank_body);
    CHECK_STATUS(GP_OK, (gp_status)shared->results[0].done.status);
    CHECK(shared->results[0].check.accuracy > 0.9);
    CHECK_INT(SAMPLES, shared->results[0].check.count);
    job_free();
    job_new("p globalavgpool | f fc outputs=1 | loss mse", SAMPLES, "");
    for (uint32_t n = 0; n < SAMPLES; n++) {
        float sum = 0;

        for (size_t p = 0; p < PIXELS; p++)
            sum += samples[n][0][p] += (float)n * 0.1f;
        *(float *)target_of(0, n, 0) = sum / PIXELS;
    }
    snprintf(shared->options, sizeof(shared->options),
             "{\"max-epochs\": 20, \"mini-batch-size\": 4, \"initial-learn-rate\": 0.1}");
    run_ranks(3, rank_body);
    CHECK_STATUS(GP_OK, (gp_status)shared->results[0].done.status);
    CHECK(shared->results[0].check.loss < 0.01);
    CHECK(isnan(shared->results[0].check.accuracy));
    job_free();
}

TEST(reproducible_training_on_pixels_is_bitwise_identical_on_any_number_of_ranks)
{
    static rank_result alone;

    job_new(many_net, SAMPLES, "\"seed\": 0");
    snprintf(shared->options, sizeof(shared->options),
             "{\"max-epochs\": 3, \"mini-batch-size\": 7, \"reproducible\": true}");
    for (uint32_t world = 1; world <= 3; world++) {
        memset(shared->results, 0, sizeof(shared->results));
        run_ranks(world, rank_body);
        CHECK_STATUS(GP_OK, (gp_status)shared->results[0].done.status);
        if (world == 1)
            alone = shared->results[0];
        CHECK(memcmp(alone.weights, shared->results[0].weights, graph->blob_count * sizeof(float)) == 0);
        for (uint32_t i = 0; i < alone.records; i++)
            CHECK(alone.record[i].loss == shared->results[0].record[i].loss);
    }
    job_free();
}

/* Values in a small unit, such as prices: the sum of the squares exceeds 2^30 by far. */
TEST(reproducible_training_reports_the_errors_of_large_values)
{
    gp_train_record step[2];
    gp_train_validation check[2];

    for (int reproducible = 0; reproducible < 2; reproducible++) {
        job_new(value_net, SAMPLES, reproducible ? "\"reproducible\": true" : "");
        for (uint32_t sample = 0; sample < SAMPLES; sample++)
            for (size_t e = 0; e < 5; e++)
                *(float *)target_of(0, sample, e) *= 2e5f;
        run_ranks(2, rank_body);
        CHECK_INT(GP_OK, shared->results[0].done.status);
        step[reproducible] = shared->results[0].record[0];
        check[reproducible] = shared->results[0].check;
        job_free();
    }
    CHECK(step[0].rmse > 1e4);
    CHECK_NEAR(1, step[1].loss / step[0].loss, 1e-6);
    CHECK_NEAR(1, step[1].rmse / step[0].rmse, 1e-6);
    CHECK_NEAR(1, check[1].loss / check[0].loss, 1e-6);
    CHECK_NEAR(1, check[1].rmse / check[0].rmse, 1e-6);
}

TEST(losses_that_share_a_target_read_it_once)
{
    const gp_shape input = gp_shape3(CHANNELS, SIDE, SIDE);
    gp_graph *other;
    gp_error err;

    job_new(shared_net, SAMPLES, "");
    CHECK_INT(2, graph->end_count);
    CHECK_INT(1, graph->target_count);
    CHECK_INT(PIXELS * 4, graph->target_bytes);
    job_free();
    CHECK_STATUS(GP_EINVAL, net_graph(&other, &input,
                                      "c conv2d channels=3;kernel=1 | a dice target-of=b | "
                                      "b pixelclassification < c",
                                      &err));
    CHECK_CONTAINS(err.message, "target-of b: no earlier loss has this name");
    CHECK_STATUS(GP_EINVAL, net_graph(&other, &input,
                                      "c conv2d channels=3;kernel=1 | a dice | f fc outputs=3 < c | "
                                      "b crossentropy target-of=a",
                                      &err));
    CHECK_CONTAINS(err.message,
                   "target-of a: that loss needs targets of int32 8x8, but this one int32 per sample");
}

TEST(data_with_unsuitable_targets_is_refused)
{
    static const struct {
        const char *net, *other, *part[2];
    } cases[] = {
        { "f fc outputs=3 | loss crossentropy",
          pixel_net,
          { "the targets of arrays are int32 per sample",
            "net (loss pixelclassification) needs int32 8x8" } },
        { value_net,
          "c conv2d channels=3;kernel=1 | loss crossentropy",
          { "the targets of arrays are float32 5", "(loss crossentropy) needs int32 8x8" } },
        { "c conv2d channels=4;kernel=1 | loss dice", dice_net, { "arrays has 4 classes", "net has 3" } },
    };
    const gp_shape input = gp_shape3(CHANNELS, SIDE, SIDE);

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        gp_graph *other;
        gp_error err = { .message = "" };

        job_new(cases[i].net, SAMPLES, ""); /* creates matching data */
        gp_store_info info = data_info();

        REQUIRE_OK(net_graph(&other, &input, cases[i].other, &err), err);
        CHECK_STATUS(GP_EINVAL,
                     gp_graph_check_targets(other, info.targets, info.target_count, info.source, &err));
        CHECK_CONTAINS(err.message, cases[i].part[0]);
        CHECK_CONTAINS(err.message, cases[i].part[1]);
        gp_graph_free(other);
        job_free();
    }
}
