/* test_cuda_choice.c: the engines that a GPU training chooses: timed, stored on disk and in
 * checkpoints (worker/train/trainer_tuning.h, worker/backend/cuda/plan/choose.c). Runs on the fake
 * GPU, whose engines have configured durations. */
#include "tests/gp_test.h"

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/memory/alloc.h"
#include "tests/fake/gpu/fake_gpu.h"
#include "tests/worker/sink.h"
#include "worker/backend/cuda/plan/plan.h"
#include "worker/backend/cuda/libraries/device.h"
#include "worker/train/trainer.h"
#include "worker/train/trainer_state.h"

enum { ENGINES = 5, TILES = 8, WEIGHTS_MAX = 4000, PLANS_BYTES = 8192 };

typedef struct outcome {
    char plans[PLANS_BYTES], reported[480], warned[480]; /* "": none */
    uint64_t raced;                                      /* convolution runs before the first step */
    uint64_t built, read;                                /* plans built by cuDNN, plans loaded from text */
    uint64_t engine[ENGINES], tile[TILES], algorithm[3]; /* runs during the training */
    float weights[WEIGHTS_MAX];
    size_t count;
} outcome;

static const char network[] =
    "{\"name\":\"small\",\"input\":[3,6,6],\"scale\":[0.00392156862745098],\"offset\":[-0.4],\"layers\":["
    "{\"name\":\"c1\",\"kind\":\"conv2d\",\"channels\":4,\"kernel\":[3,3]},{\"name\":\"r1\",\"kind\":"
    "\"relu\"},"
    "{\"name\":\"c2\",\"kind\":\"conv2d\",\"channels\":4,\"kernel\":[3,3]},{\"name\":\"r2\",\"kind\":"
    "\"relu\"},"
    "{\"name\":\"f1\",\"kind\":\"fc\",\"outputs\":4},{\"name\":\"loss\",\"kind\":\"crossentropy\"}]}";

static const char normed[] =
    "{\"name\":\"small\",\"input\":[3,6,6],\"scale\":[0.00392156862745098],\"offset\":[-0.4],\"layers\":["
    "{\"name\":\"c1\",\"kind\":\"conv2d\",\"channels\":8,\"kernel\":[3,3],\"bias\":false},"
    "{\"name\":\"n1\",\"kind\":\"batchnorm\"},{\"name\":\"r1\",\"kind\":\"relu\"},"
    "{\"name\":\"f1\",\"kind\":\"fc\",\"outputs\":4},{\"name\":\"loss\",\"kind\":\"crossentropy\"}]}";
static const char *net = network; /* network for the next training */

static void take_note(void *context, const char *text, bool warning)
{
    outcome *out = context;

    if (warning)
        snprintf(out->warned, sizeof(out->warned), "%s", text);
    if (strstr(text, "plans") != NULL)
        snprintf(out->reported, sizeof(out->reported), "%s", text);
}

static void counts_read(outcome *out)
{
    char name[32];

    for (int i = 0; i < ENGINES; i++) {
        snprintf(name, sizeof(name), "cudnnEngine%d", i);
        out->engine[i] = fake_gpu_count(name);
    }
    for (int i = 0; i < TILES; i++) {
        snprintf(name, sizeof(name), "cudnnTile%d", i);
        out->tile[i] = fake_gpu_count(name);
    }
    for (int i = 0; i < 3; i++) {
        snprintf(name, sizeof(name), "cublasLtAlgorithm%d", i);
        out->algorithm[i] = fake_gpu_count(name);
    }
}

static char folder[64]; /* disk cache for one test */

/* Train with additional options `more`. */
static void train(outcome *out, const char *more)
{
    gp_train_begin begin = { .workers = 1, .data = "synthetic:6x6x3:4:24" };
    const gp_comm_member member = { .index = 1, .pid = getpid() };
    const gp_comm_rendezvous group = { .lease = 1, .generation = 1, .world = 1, .members = &member };
    const gp_train_sink sink = { out, ignore_record, ignore_validation, take_note, NULL };
    gp_train_control control;
    gp_trainer *trainer;
    gp_train_ready ready;
    gp_train_done done;
    gp_backend *backend;
    char options[600], compiled[100];
    gp_error err;

    memset(out, 0, sizeof(*out));
    snprintf(options, sizeof(options), "{\"mini-batch-size\":8%s%s%s}",
             strstr(more, "autotune-seconds") != NULL ? "" : ",\"autotune-seconds\":3600",
             more[0] == '\0' ? "" : ",", more);
    gp_train_control_init(&control);
    snprintf(compiled, sizeof(compiled), "%s/gradpool/compiled", folder);
    REQUIRE_OK(
        gp_backend_cuda.open(&backend, &(gp_backend_options){ .threads = 1, .compiled = compiled }, &err),
        err);
    fake_gpu_reset_counts();
    REQUIRE_OK(gp_trainer_new(&trainer, &ready,
                              &(gp_trainer_setup){ .begin = &begin,
                                                   .netspec = net,
                                                   .netspec_bytes = strlen(net),
                                                   .options = options,
                                                   .options_bytes = strlen(options),
                                                   .group = &group,
                                                   .backend_ops = &gp_backend_cuda,
                                                   .backend = backend,
                                                   .control = &control },
                              &err),
               err);
    out->raced = fake_gpu_count("cudnnBackendExecute");
    out->built = fake_gpu_count("cudnnPlan");
    out->read = fake_gpu_count("cudnnPlanFromText");
    snprintf(out->plans, sizeof(out->plans), "%s",
             trainer->tuning.document == NULL ? "" : trainer->tuning.document);
    fake_gpu_reset_counts();
    if (gp_trainer_run(trainer, &sink, &done) != GP_OK)
        GP_TEST_FAIL("%s", done.message);
    counts_read(out);
    const float *weights = gp_trainer_weights(trainer, &out->count);

    REQUIRE(out->count <= WEIGHTS_MAX);
    memcpy(out->weights, weights, out->count * sizeof(float));
    gp_trainer_free(trainer);
    gp_backend_cuda.close(backend);
    gp_train_control_deinit(&control);
    CHECK_INT(0, fake_gpu_violations());
    CHECK_INT(0, fake_gpu_blocks());
}

static void check_engine(const outcome *o, int engine)
{
    for (int i = 0; i < ENGINES; i++)
        if ((o->engine[i] > 0) != (i == engine))
            GP_TEST_FAIL("engine %d ran %llu times; expected only engine %d", i,
                         (unsigned long long)o->engine[i], engine);
}

static void check_tile(const outcome *o, int tile)
{
    for (int i = 0; i < TILES; i++)
        if ((o->tile[i] > 0) != (i == tile))
            GP_TEST_FAIL("tile %d ran %llu times; expected only tile %d", i, (unsigned long long)o->tile[i],
                         tile);
}

/* ---- a cache folder for each test ---- */

/* Create the cache folder. times: durations of engines 0, 1, ... in microseconds. */
static void begin(const char *times)
{
    snprintf(folder, sizeof(folder), "/tmp/gp_cuda_choice_XXXXXX");
    REQUIRE(mkdtemp(folder) != NULL);
    setenv("XDG_CACHE_HOME", folder, 1);
    setenv("FAKE_GPU_ENGINES", "5", 1);
    setenv("FAKE_GPU_ENGINE_US", times, 1);
    unsetenv("FAKE_GPU_TILES");
    unsetenv("FAKE_GPU_TILE_US");
    unsetenv("FAKE_GPU_FUSED_US");
    unsetenv("FAKE_GPU_ALGORITHM_US");
    unsetenv("FAKE_GPU_COMPILED");
    unsetenv("FAKE_GPU_DRIVER");
    fake_gpu_faults(NULL);
}

static void end(void)
{
    char command[100];

    snprintf(command, sizeof(command), "rm -rf %s", folder);
    CHECK_INT(0, system(command));
    fake_gpu_faults(NULL);
}

/* Return the path of the only plans file. "": none or several. */
static const char *plans_file(void)
{
    static char path[400];
    char place[100];
    int count = 0;

    snprintf(place, sizeof(place), "%s/gradpool/plans", folder);
    DIR *entries = opendir(place);

    path[0] = '\0';
    for (struct dirent *entry = entries == NULL ? NULL : readdir(entries); entry != NULL;
         entry = readdir(entries))
        if (entry->d_name[0] != '.' && count++ == 0)
            snprintf(path, sizeof(path), "%s/%.200s", place, entry->d_name);
    if (entries != NULL)
        closedir(entries);
    return count == 1 ? path : "";
}

/* Engine 1 uses tensor cores, which strict float32 excludes; engine 2 is not deterministic. */
static const char three_is_fast[] = "900000,0,0,100000,500000", four_is_fast[] = "900000,0,0,500000,100000";

/* ---- autotuning ---- */

TEST(fastest_deterministic_engine_is_chosen)
{
    static outcome o;

    begin(three_is_fast);
    train(&o, "");
    CHECK(o.raced > 0);
    check_engine(&o, 3);
    CHECK_CONTAINS(o.reported, "plans: timed ");
    CHECK_TEXT("", o.warned);
    begin(four_is_fast);
    train(&o, "");
    check_engine(&o, 4);
    end();
}

/* cuDNN lists the first tiles of all engines before the last tile of engine 0. Eight tiles of
 * engine 0 are timed, then four of engine 3. */
TEST(configurations_of_the_first_engine_are_timed_first)
{
    static outcome o;

    begin("");
    setenv("FAKE_GPU_TILES", "8", 1);
    setenv("FAKE_GPU_TILE_US", "900000,900000,900000,900000,900000,900000,900000,0", 1);
    train(&o, "");
    check_engine(&o, 0);
    check_tile(&o, 7);
    end();
    begin("500000,0,0,0,0");
    setenv("FAKE_GPU_TILES", "8", 1);
    setenv("FAKE_GPU_TILE_US", "400000,300000,200000,100000,0,0,0,0", 1);
    train(&o, "");
    check_engine(&o, 3);
    check_tile(&o, 3);
    end();
}

TEST(operations_are_fused_into_a_convolution_only_if_faster)
{
    static outcome o;

    begin("900000,0,0,900000,900000");
    setenv("FAKE_GPU_FUSED_US", "500000", 1);
    train(&o, "");
    CHECK_CONTAINS(o.plans, "\"conv forward");
    CHECK(strstr(o.plans, "bias relu\", \"how\": \"alone") != NULL ||
          strstr(o.plans, "bias relu\",\"how\":\"alone") != NULL);
    end();
    begin("900000,0,0,900000,900000");
    setenv("FAKE_GPU_FUSED_US", "-500000", 1);
    train(&o, "");
    CHECK(strstr(o.plans, "bias relu\", \"how\": \"whole") != NULL ||
          strstr(o.plans, "bias relu\",\"how\":\"whole") != NULL);
    end();
}

/* Without autotuning they are not: the cost of such a cuDNN engine is unknown there. */
TEST(batch_norm_moments_are_fused_into_the_convolution_only_if_faster)
{
    static const char *const fused_us[] = { "-500000", "500000" };
    static outcome o, rule;

    net = normed;
    begin("900000,900000,0,900000,900000");
    train(&rule, "\"precision\":\"bf16\",\"autotune-seconds\":0");
    end();
    for (int i = 0; i < 2; i++) {
        begin("900000,900000,0,900000,900000");
        setenv("FAKE_GPU_FUSED_US", fused_us[i], 1);
        train(&o, "\"precision\":\"bf16\"");
        CHECK((strstr(o.plans, "moments\", \"how\": \"whole") != NULL ||
               strstr(o.plans, "moments\",\"how\":\"whole") != NULL) == (i == 0));
        for (size_t k = 0; k < o.count; k++)
            CHECK_NEAR(rule.weights[k], o.weights[k], 0.02);
        end();
    }
    net = network;
}

TEST(fastest_product_algorithm_is_chosen)
{
    static outcome o;

    begin(three_is_fast);
    setenv("FAKE_GPU_ALGORITHM_US", "900000,500000,0", 1);
    train(&o, "");
    CHECK(o.algorithm[2] > 0);
    CHECK_INT(0, o.algorithm[0] + o.algorithm[1]);
    end();
}

TEST(engine_that_fails_to_run_is_skipped)
{
    static outcome o;

    begin(three_is_fast);
    setenv("FAKE_GPU_ALGORITHM_US", "0,500000,900000", 1);
    fake_gpu_faults("cudnnEngine3:1+=5000;cublasLtAlgorithm0:1+=14");
    train(&o, "");
    check_engine(&o, 4);
    CHECK(o.algorithm[1] > 0);
    end();
}

TEST(engine_that_fails_only_during_recording_is_skipped)
{
    static outcome o;

    begin(three_is_fast);
    fake_gpu_faults("cudnnEngine3:3+=5000"); /* the third timed run is the first in a graph */
    train(&o, "");
    CHECK_INT(0, o.engine[3]);
    end();
}

TEST(convolutions_without_a_plan_are_reported_with_the_error_of_cudnn)
{
    static const char *const seconds[] = { "\"autotune-seconds\":0", "" };
    static outcome o;

    for (int i = 0; i < 2; i++) {
        begin(three_is_fast);
        fake_gpu_faults("cudnnPlan:1+=3000");
        train(&o, seconds[i]);
        CHECK_CONTAINS(o.warned, "no library has a plan for 2 operations"); /* of c1; c2 needs none */
        CHECK_CONTAINS(o.warned, "the plan does not build");
        CHECK_INT(0, o.engine[0] + o.engine[3] + o.engine[4]);
        end();
    }
}

/* c2 has few channels, c1 has too few. */
TEST(kernel_for_few_channels_competes_with_engines_and_recorded_choices_are_kept)
{
    static outcome direct, library, again;

    begin(three_is_fast);
    train(&direct, "");
    CHECK_CONTAINS(direct.plans, "\"direct\"");
    train(&again, "");
    CHECK_INT(0, again.raced);
    CHECK_INT(direct.engine[3], again.engine[3]);
    end();

    begin(three_is_fast);
    setenv("GRADPOOL_CUDA_KERNELS", "libraries", 1);
    train(&library, "");
    unsetenv("GRADPOOL_CUDA_KERNELS");
    CHECK(strstr(library.plans, "direct") == NULL);
    CHECK(library.engine[3] > direct.engine[3]);
    train(&again, "");
    CHECK_INT(0, again.raced);
    CHECK_INT(library.engine[3], again.engine[3]);
    end();
}

TEST(engine_that_needs_compiling_is_chosen_if_faster)
{
    static outcome o;

    begin(three_is_fast);
    setenv("FAKE_GPU_COMPILED", "3", 1);
    train(&o, "");
    check_engine(&o, 3);
    end();
}

TEST(next_process_loads_compiled_plans_with_identical_results)
{
    static outcome first, second;

    begin(three_is_fast);
    setenv("FAKE_GPU_COMPILED", "3", 1);
    train(&first, "");
    CHECK_INT(0, first.read);
    train(&second, "");
    check_engine(&second, 3);
    CHECK_INT(0, second.built);
    CHECK(second.read > 0);
    CHECK(memcmp(first.weights, second.weights, first.count * sizeof(float)) == 0);
    end();
}

TEST(plan_that_cudnn_cannot_load_is_recompiled)
{
    static outcome o;

    begin(three_is_fast);
    setenv("FAKE_GPU_COMPILED", "3", 1);
    train(&o, "");
    fake_gpu_faults("cudnnPlanFromText:1+=2000");
    train(&o, "");
    check_engine(&o, 3);
    CHECK(o.read > 0 && o.built > 0);
    end();
}

/* A loaded plan may be valid and still fail to run: the next request asks cuDNN for a new plan. */
TEST(loaded_plan_that_fails_to_run_is_discarded)
{
    const gp_kernel_image image = { .channels = 4,
                                    .height = 4,
                                    .width = 4,
                                    .pixels = 16,
                                    .channel_stride = 16,
                                    .pixel_stride = 1,
                                    .sample = 64 };
    const gp_conv_request request = { .x = image,
                                      .y = image,
                                      .rows = 1,
                                      .kernel = { 1, 1 },
                                      .stride = { 1, 1 },
                                      .dilation = { 1, 1 },
                                      .groups = 1 };

    begin("");
    setenv("FAKE_GPU_COMPILED", "0", 1);
    for (int i = 0; i < 3; i++) {
        gp_device *device;
        gp_device_work *work;
        void *at = NULL, *workspace = NULL;
        size_t bytes;
        gp_error err;

        fake_gpu_reset_counts();
        REQUIRE_OK(gp_device_open(&device, folder, &err), err);
        REQUIRE_OK(gp_device_conv_new(&work, device, &request, NULL, &bytes, &err), err);
        CHECK_INT(i == 1, fake_gpu_count("cudnnPlanFromText"));
        CHECK_INT(i != 1, fake_gpu_count("cudnnPlan"));
        REQUIRE_OK(gp_device_alloc(device, &at, 3 * 64 * sizeof(float), &err), err);
        REQUIRE_OK(gp_device_alloc(device, &workspace, bytes, &err), err);
        if (i == 1)
            fake_gpu_faults("cudnnBackendExecute:1+=5000");
        CHECK_STATUS(
            i == 1 ? GP_EIO : GP_OK,
            gp_device_conv_run(
                device, work,
                &(gp_device_operands){ .first = at, .second = (float *)at + 64, .out = (float *)at + 128 },
                workspace, &err));
        fake_gpu_faults(NULL);
        CHECK_STATUS(GP_OK, gp_device_sync(device, &err));
        gp_device_work_free(work);
        gp_device_free(device, at);
        gp_device_free(device, workspace);
        gp_device_close(device);
    }
    end();
}

TEST(untimed_choices_follow_the_rule_permanently)
{
    static outcome first, second;

    begin(three_is_fast);
    train(&first, "\"autotune-seconds\":1e-9");
    CHECK_CONTAINS(first.reported, "plans: timed 1 of ");
    CHECK_CONTAINS(first.reported, "no time was left");
    CHECK(first.engine[0] > 0);
    train(&second, "");
    CHECK_INT(0, second.raced);
    CHECK_TEXT("", second.reported);
    CHECK_INT(first.engine[0], second.engine[0]);
    CHECK(memcmp(first.weights, second.weights, first.count * sizeof(float)) == 0);
    end();
}

TEST(rule_and_reproducible_modes_time_and_store_nothing)
{
    static const char *const options[] = { "\"autotune-seconds\":0", "\"reproducible\":true" };
    static outcome o;

    for (size_t i = 0; i < 2; i++) {
        begin(three_is_fast);
        train(&o, options[i]);
        CHECK_INT(0, o.raced);
        CHECK_TEXT("", o.plans);
        CHECK_TEXT("", plans_file());
        check_engine(&o, 0);
        end();
    }
}

/* ---- on disk ---- */

TEST(second_training_uses_the_stored_choices)
{
    static outcome first, second;
    struct stat facts;

    begin(three_is_fast);
    train(&first, "");
    REQUIRE(plans_file()[0] != '\0' && stat(plans_file(), &facts) == 0);
    CHECK_INT(0600, facts.st_mode & 07777);
    setenv("FAKE_GPU_ENGINE_US", four_is_fast, 1);
    train(&second, "");
    CHECK_INT(0, second.raced);
    CHECK_TEXT("", second.reported);
    CHECK_TEXT(first.plans, second.plans);
    check_engine(&second, 3);
    CHECK(memcmp(first.weights, second.weights, first.count * sizeof(float)) == 0);
    end();
}

TEST(damaged_plans_are_replaced)
{
    static outcome o;
    char path[400];

    begin(three_is_fast);
    train(&o, "");
    snprintf(path, sizeof(path), "%s", plans_file());
    FILE *file = fopen(path, "r+");

    REQUIRE(file != NULL);
    fseek(file, 60, SEEK_SET);
    fputc('#', file);
    fclose(file);
    setenv("FAKE_GPU_ENGINE_US", four_is_fast, 1);
    train(&o, "");
    CHECK(o.raced > 0);
    CHECK_CONTAINS(o.reported, "is damaged");
    check_engine(&o, 4);
    CHECK_TEXT(path, plans_file());
    train(&o, "");
    CHECK_INT(0, o.raced);
    end();
}

TEST(other_library_versions_have_separate_plans)
{
    static outcome o;

    begin(three_is_fast);
    train(&o, "");
    setenv("FAKE_GPU_DRIVER", "13020", 1);
    setenv("FAKE_GPU_ENGINE_US", four_is_fast, 1);
    train(&o, "");
    check_engine(&o, 4);
    CHECK_TEXT("", plans_file()); /* two files exist */
    unsetenv("FAKE_GPU_DRIVER");
    train(&o, "");
    CHECK_INT(0, o.raced);
    check_engine(&o, 3);
    end();
}

TEST(missing_engine_is_replaced_by_rule)
{
    static outcome o;

    begin(three_is_fast);
    train(&o, "");
    setenv("FAKE_GPU_ENGINES", "3", 1);
    train(&o, "");
    check_engine(&o, 0);
    end();
}

/* ---- in checkpoints ---- */

static void resume_after(outcome *out, outcome *before, const char *driver)
{
    char options[200], command[100];

    begin(three_is_fast);
    snprintf(options, sizeof(options), "\"max-epochs\":1,\"checkpoint-path\":\"%s/saved\"", folder);
    train(before, options);
    check_engine(before, 3);
    snprintf(command, sizeof(command), "rm -r %s/gradpool", folder);
    REQUIRE(system(command) == 0);
    setenv("FAKE_GPU_ENGINE_US", four_is_fast, 1);
    if (driver != NULL)
        setenv("FAKE_GPU_DRIVER", driver, 1);
    snprintf(options, sizeof(options), "\"max-epochs\":2,\"resume\":\"%s/saved\"", folder);
    train(out, options);
    end();
}

TEST(resumed_training_uses_the_engines_of_the_checkpoint)
{
    static outcome before, after;

    resume_after(&after, &before, NULL);
    CHECK_INT(0, after.raced);
    CHECK_TEXT(before.plans, after.plans);
    check_engine(&after, 3);
}

TEST(resume_with_other_versions_warns_and_chooses_new_engines)
{
    static outcome before, after;

    resume_after(&after, &before, "13020");
    CHECK(after.raced > 0);
    CHECK_CONTAINS(after.reported, "cannot use the plans of the checkpoint");
    CHECK_CONTAINS(after.reported, "driver 13020");
    CHECK_CONTAINS(after.reported, "driver 13000");
    check_engine(&after, 4);
}
