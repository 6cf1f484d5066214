/* test_cuda_trainer.c: a training that stays on the device (worker/train/pipeline.h) against one on
 * the CPU: equal losses, weights and validations, and bitwise identical results after a checkpoint.
 * The device is the host (tests/fake/device.c). */
#include "tests/gp_test.h"
#include "tests/leftovers.h"

#include <math.h>
#include <unistd.h>

#include "common/base/memory/alloc.h"
#include "worker/backend/cuda/plan/plan.h"
#include "worker/train/trainer.h"

enum { STEPS_MAX = 64, WEIGHTS_MAX = 20000 };

typedef struct outcome {
    double losses[STEPS_MAX], validations[STEPS_MAX];
    uint64_t validated[STEPS_MAX]; /* steps followed by a validation */
    uint32_t checks;
    double scales[STEPS_MAX];
    uint32_t skipped[STEPS_MAX];
    uint32_t steps;
    float weights[WEIGHTS_MAX];
    size_t count;
    gp_train_done done;
} outcome;

static void take_record(void *context, const gp_train_record *record)
{
    outcome *out = context;

    if (record->step <= STEPS_MAX) {
        out->losses[record->step - 1] = record->loss;
        out->scales[record->step - 1] = record->loss_scale;
        out->skipped[record->step - 1] = record->skipped;
    }
    out->steps++;
}

static void take_validation(void *context, const gp_train_validation *validation)
{
    outcome *out = context;

    if (out->checks < STEPS_MAX) {
        out->validations[out->checks] = validation->loss;
        out->validated[out->checks] = validation->step;
    }
    out->checks++;
}

static void take_note(void *context, const char *text, bool warning)
{
    (void)context;
    if (warning)
        GP_TEST_FAIL("unexpected warning: %s", text);
}

static const char network[] =
    "{\"name\":\"small\",\"input\":[3,8,8],\"scale\":[0.00392156862745098],\"offset\":[-0.4],\"layers\":["
    "{\"name\":\"c1\",\"kind\":\"conv2d\",\"channels\":6,\"kernel\":[3,3],\"bias\":false},{\"name\":\"n1\","
    "\"kind\":"
    "\"batchnorm\"},"
    "{\"name\":\"r1\",\"kind\":\"relu\"},{\"name\":\"p1\",\"kind\":\"maxpool\",\"kernel\":[2,2]},"
    "{\"name\":\"f1\",\"kind\":\"fc\",\"outputs\":4},{\"name\":\"loss\",\"kind\":\"crossentropy\"}]}";

/* Train on a backend. words: options of the backend; NULL: none. */
static void train_on(outcome *out, const gp_backend_ops *ops, const char *words, const char *data,
                     const char *options)
{
    gp_train_begin begin = { .workers = 1, .validation_data = "=" };
    const gp_comm_member member = { .index = 1, .pid = getpid() };
    const gp_comm_rendezvous group = { .lease = 1, .generation = 1, .world = 1, .members = &member };
    const gp_train_sink sink = { out, take_record, take_validation, take_note, NULL };
    gp_train_control control;
    gp_trainer *trainer;
    gp_train_ready ready;
    gp_backend *backend;
    gp_error err;

    memset(out, 0, sizeof(*out));
    setenv("GRADPOOL_AUTOTUNE_SECONDS", "0", 1); /* ignores the disk cache */
    snprintf(begin.data, sizeof(begin.data), "%s", data);
    gp_train_control_init(&control);
    REQUIRE_OK(ops->open(&backend, &(gp_backend_options){ .threads = 1, .kernels = words }, &err), err);
    REQUIRE_OK(gp_trainer_new(&trainer, &ready,
                              &(gp_trainer_setup){ .begin = &begin,
                                                   .netspec = network,
                                                   .netspec_bytes = strlen(network),
                                                   .options = options,
                                                   .options_bytes = strlen(options),
                                                   .group = &group,
                                                   .backend_ops = ops,
                                                   .backend = backend,
                                                   .control = &control },
                              &err),
               err);
    gp_trainer_run(trainer, &sink, &out->done);
    const float *weights = gp_trainer_weights(trainer, &out->count);

    memcpy(out->weights, weights, out->count * sizeof(float));
    gp_trainer_free(trainer);
    ops->close(backend);
    gp_train_control_deinit(&control);
    if (out->done.status != GP_OK)
        GP_TEST_FAIL("%s", out->done.message);
}

static void train(outcome *out, const gp_backend_ops *ops, const char *options)
{
    train_on(out, ops, NULL, "synthetic:8x8x3:4:80", options);
}

static double apart(const outcome *a, const outcome *b)
{
    double difference = 0, norm = 0;

    for (size_t i = 0; i < a->count; i++) {
        difference += pow((double)a->weights[i] - (double)b->weights[i], 2);
        norm += pow((double)a->weights[i], 2);
    }
    return sqrt(difference / norm);
}

static void check_as_cpu(const char *options)
{
    static outcome cpu, cuda;

    train(&cpu, &gp_backend_cpu, options);
    train(&cuda, &gp_backend_cuda, options);
    CHECK_INT(cpu.steps, cuda.steps);
    for (uint32_t i = 0; i < cpu.steps; i++)
        CHECK_NEAR(cpu.losses[i], cuda.losses[i], 1e-4);
    CHECK_INT(cpu.checks, cuda.checks);
    for (uint32_t i = 0; i < cpu.checks && i < STEPS_MAX; i++) {
        CHECK_INT(cpu.validated[i], cuda.validated[i]);
        CHECK_NEAR(cpu.validations[i], cuda.validations[i], 1e-4);
    }
    if (!(apart(&cpu, &cuda) <= 1e-4))
        GP_TEST_FAIL("%s: the weights differ by %g", options, apart(&cpu, &cuda));
}

TEST(training_on_a_device_matches_the_cpu)
{
    check_as_cpu("{\"max-epochs\":2,\"mini-batch-size\":16,\"initial-learn-rate\":0.05}");
    check_as_cpu("{\"max-epochs\":2,\"mini-batch-size\":32,\"solver\":\"adam\",\"gradient-threshold\":1}");

    /* Validations come between steps that are launched before the previous result is read. */
    check_as_cpu("{\"max-epochs\":3,\"mini-batch-size\":16,\"validation-frequency\":3,"
                 "\"validation-patience\":4,\"output-network\":\"best-validation\"}");
}

/* Options for which the host commits the steps. */
TEST(training_committed_by_the_host_matches_the_cpu)
{
    check_as_cpu("{\"max-epochs\":2,\"mini-batch-size\":16,\"synchronize-batch-norm\":true}");
    check_as_cpu("{\"max-epochs\":1,\"mini-batch-size\":16,\"batch-norm-statistics\":\"population\"}");
}

/* ---- sources of samples ---- */

static void check_bits(const outcome *a, const outcome *b, const char *what)
{
    CHECK_INT(a->steps, b->steps);
    if (memcmp(a->losses, b->losses, sizeof(a->losses)) != 0)
        GP_TEST_FAIL("%s: different losses", what);
    if (memcmp(a->weights, b->weights, a->count * sizeof(float)) != 0)
        GP_TEST_FAIL("%s: different weights", what);
}

/* Order, random draws and pixels come from the loader in both cases. */
TEST(data_resident_on_the_device_is_bitwise_identical_to_fed_data)
{
    static const char *const options[] = {
        "\"shuffle\":\"every-epoch\"",
        "\"shuffle\":\"once\",\"micro-batch-size\":0",
        "\"shuffle\":\"never\"",
        "\"augment\":\"x-reflection=0.5 y-reflection=0.3\"",
        "\"augment\":\"crop=random crop-size=8,8 x-reflection=0.5\"",
        "\"augment\":\"crop=resized crop-size=8,8 patches-per-image=2\"",
        "\"augment\":\"crop=center crop-size=8,8 rotation=-40,40 scale=0.7,1.5 x-shear=-10,10 "
        "y-translation=-2,2 fill=90\"",
        "\"augment\":\"crop=random crop-size=8,8 brightness=0.5,1.5 contrast=0.5,1.5 saturation=0,2 "
        "hue=-90,90 rotation=-20,20\"",
    };
    static outcome fed, resident;

    for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++) {
        const char *data =
            strstr(options[i], "crop") == NULL ? "synthetic:8x8x3:4:75" : "synthetic:11x13x3:4:75";
        char text[400];

        snprintf(text, sizeof(text), "{\"max-epochs\":2,\"mini-batch-size\":16,%s}", options[i]);
        train_on(&fed, &gp_backend_cuda, "fed", data, text);
        train_on(&resident, &gp_backend_cuda, NULL, data, text);
        check_bits(&fed, &resident, text);
    }
}

TEST(recorded_step_is_bitwise_identical_to_separate_launches)
{
    static const char options[] = "{\"max-epochs\":2,\"mini-batch-size\":16,\"solver\":\"adam\"}";
    static outcome eager, recorded;

    train_on(&eager, &gp_backend_cuda, "eager", "synthetic:8x8x3:4:75", options);
    train_on(&recorded, &gp_backend_cuda, NULL, "synthetic:8x8x3:4:75", options);
    check_bits(&eager, &recorded, "eager and recorded");
}

TEST(resumed_training_on_a_device_is_bitwise_identical)
{
    static outcome whole, half, rest;
    char folder[] = "/tmp/gp_cuda_trainer_XXXXXX", options[400];

    REQUIRE(leftovers_make(folder) != NULL);
    train(&whole, &gp_backend_cuda, "{\"max-epochs\":3,\"mini-batch-size\":16,\"solver\":\"adam\"}");
    snprintf(options, sizeof(options),
             "{\"max-epochs\":2,\"mini-batch-size\":16,\"solver\":\"adam\",\"checkpoint-path\":\"%s\"}",
             folder);
    train(&half, &gp_backend_cuda, options);
    snprintf(options, sizeof(options),
             "{\"max-epochs\":3,\"mini-batch-size\":16,\"solver\":\"adam\",\"resume\":\"%s\"}", folder);
    train(&rest, &gp_backend_cuda, options);
    CHECK_INT(whole.steps, half.steps + rest.steps);
    CHECK(memcmp(whole.weights, rest.weights, whole.count * sizeof(float)) == 0);
    snprintf(options, sizeof(options), "rm -r %s", folder);
    CHECK_INT(0, system(options));
}

/* ---- fp16 ---- */

TEST(fp16_training_is_close_to_float32_on_the_cpu)
{
    static outcome cpu, cuda;
    const char *const more[] = { "", ",\"synchronize-batch-norm\":true" };

    train(&cpu, &gp_backend_cpu, "{\"max-epochs\":2,\"mini-batch-size\":16,\"initial-learn-rate\":0.05}");
    for (size_t i = 0; i < 2; i++) {
        char options[200];

        snprintf(
            options, sizeof(options),
            "{\"max-epochs\":2,\"mini-batch-size\":16,\"initial-learn-rate\":0.05,\"precision\":\"fp16\"%s}",
            more[i]);
        train(&cuda, &gp_backend_cuda, options);
        CHECK_INT(cpu.steps, cuda.steps);
        for (uint32_t k = 0; k < cpu.steps; k++) {
            CHECK_NEAR(cpu.losses[k], cuda.losses[k], 0.03);
            CHECK_NEAR(65536, cuda.scales[k], 0);
            CHECK_INT(0, cuda.skipped[k]);
        }
        if (!(apart(&cpu, &cuda) <= 0.03))
            GP_TEST_FAIL("%s: the weights differ by %g", options, apart(&cpu, &cuda));
    }
}

/* Nothing is committed until the scale fits; in the second case the host commits. */
TEST(steps_that_overflow_are_skipped_until_the_scale_fits)
{
    static outcome of;
    const char *const more[] = { "", ",\"synchronize-batch-norm\":true" };

    for (size_t i = 0; i < 2; i++) {
        char options[200];
        uint32_t skips = 0;

        snprintf(options, sizeof(options),
                 "{\"max-epochs\":4,\"mini-batch-size\":16,\"precision\":\"fp16\",\"loss-scale\":1e9%s}",
                 more[i]);
        train(&of, &gp_backend_cuda, options);
        CHECK_NEAR(1e9, of.scales[0], 0);
        while (skips < of.steps && of.skipped[skips])
            skips++;
        CHECK(skips > 2 && skips < of.steps);
        for (uint32_t k = 0; k < of.steps; k++) {
            CHECK_INT(k < skips, of.skipped[k]);
            CHECK_NEAR(ldexp(1e9, -(int)(k < skips ? k : skips)), of.scales[k], 0);
        }
        CHECK(of.losses[of.steps - 1] < of.losses[0]);
    }
}

TEST(resumed_fp16_training_uses_the_scale_of_the_checkpoint)
{
    static outcome whole, half, rest;
    const char common[] = "\"mini-batch-size\":16,\"precision\":\"fp16\",\"loss-scale-interval\":3";
    char folder[] = "/tmp/gp_cuda_trainer_XXXXXX", options[400];

    REQUIRE(leftovers_make(folder) != NULL);
    snprintf(options, sizeof(options), "{\"max-epochs\":3,%s}", common);
    train(&whole, &gp_backend_cuda, options);
    snprintf(options, sizeof(options), "{\"max-epochs\":2,%s,\"checkpoint-path\":\"%s\"}", common, folder);
    train(&half, &gp_backend_cuda, options);
    snprintf(options, sizeof(options), "{\"max-epochs\":3,%s,\"resume\":\"%s\"}", common, folder);
    train(&rest, &gp_backend_cuda, options);
    CHECK_INT(whole.steps, half.steps + rest.steps);
    CHECK(whole.scales[whole.steps - 1] != 65536);
    for (uint32_t k = half.steps; k < whole.steps; k++)
        CHECK_NEAR(whole.scales[k], rest.scales[k], 0);
    CHECK(memcmp(whole.weights, rest.weights, whole.count * sizeof(float)) == 0);
    snprintf(options, sizeof(options), "rm -r %s", folder);
    CHECK_INT(0, system(options));
}
