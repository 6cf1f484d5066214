/* test_cuda_feed.c: batches that the device reads from the page-locked memory of the loader. Runs
 * on libfake_gpu.so, whose input lane can be blocked. */
#include "tests/gp_test.h"

#include <pthread.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/memory/alloc.h"
#include "common/base/memory/crc32c.h"
#include "common/data/store/sampler.h"
#include "tests/fake/gpu/fake_gpu.h"
#include "tests/worker/backend/backend_check.h"
#include "tests/worker/sink.h"
#include "worker/backend/cuda/libraries/device_state.h"
#include "worker/backend/cuda/plan/plan.h"
#include "worker/optim/optim.h"
#include "worker/train/trainer.h"

enum { ROWS = 4, PAGE = 4096 };

/* ---- a plan ---- */

static const net_layer chain[] = { { "conv2d", "channels=8;kernel=3" },
                                   { "relu", NULL },
                                   { "fc", "outputs=7" },
                                   { "crossentropy", NULL },
                                   { NULL, NULL } };

typedef struct flow {
    net n;
    gp_backend *backend;
    gp_plan *plan;
    gp_train_options train;
    gp_optim *optim;
    double sums[GP_SUMS];
    float *gradients;
    char *memory; /* samples, then targets, of one call */
    size_t samples_bytes, bytes;
} flow;

/* rows: samples for which a call has room; resident: data that stay on the device, NULL: calls pass
 * them. */
static void flow_open(flow *f, uint32_t rows, const gp_resident *resident)
{
    gp_plan_options options = { .phase = GP_PHASE_TRAIN, .micro_batch = rows, .sample_dtype = GP_U8 };
    gp_plan_memory memory;
    uint32_t blobs;
    uint64_t *count;
    bool stays;
    gp_error err;

    *f = (flow){ 0 };
    fake_gpu_faults(NULL);
    fake_gpu_restart();
    fake_gpu_reset_counts();
    REQUIRE_OK(chain_net(&f->n, gp_shape3(3, 8, 8), 2 * ROWS, chain, &err), err);
    f->gradients = gp_calloc(f->n.graph->blob_count, sizeof(float));
    f->samples_bytes = ROWS * f->n.pixels;
    f->bytes = f->samples_bytes + ROWS * f->n.graph->target_bytes;
    f->memory = gp_aligned_calloc(PAGE, f->bytes);
    REQUIRE(f->gradients != NULL && f->memory != NULL);
    memory = (gp_plan_memory){ .parameters = f->n.parameters, .gradients = f->gradients, .sums = f->sums };
    REQUIRE_OK(gp_train_options_from_json(&f->train, "{}", 2, &err), err);
    REQUIRE_OK(gp_optim_new(&f->optim, f->n.graph, &f->train, &err), err);
    REQUIRE_OK(gp_backend_cuda.open(&f->backend, &(gp_backend_options){ .threads = 1 }, &err), err);
    REQUIRE_OK(gp_backend_cuda.compile(&f->plan, f->backend, f->n.graph, &options, &memory, &err), err);

    float *state = gp_optim_state(f->optim, &blobs, &count);

    REQUIRE_OK(gp_backend_cuda.steps->make_resident(
                   f->plan,
                   &(gp_resident_request){
                       .options = &f->train, .state = state, .state_blobs = blobs, .resident = resident },
                   &stays, &err),
               err);
    CHECK_INT(resident != NULL, stays);
}

static void flow_close(flow *f)
{
    gp_backend_cuda.free(f->plan);
    gp_backend_cuda.close(f->backend);
    gp_optim_free(f->optim);
    gp_free(f->memory);
    gp_free(f->gradients);
    net_free(&f->n);
    CHECK_INT(0, fake_gpu_blocks());
    CHECK_INT(0, fake_gpu_violations());
}

/* Write one of the two batches to the memory. */
static void flow_fill(const flow *f, uint32_t batch)
{
    memcpy(f->memory, f->n.bytes + batch * f->samples_bytes, f->samples_bytes);
    memcpy(f->memory + f->samples_bytes, (const char *)f->n.labels + batch * ROWS * f->n.graph->target_bytes,
           f->bytes - f->samples_bytes);
}

static gp_status flow_launch(flow *f, gp_error *err)
{
    gp_step_call call = { .batch = { .samples = f->memory,
                                     .targets = f->memory + f->samples_bytes,
                                     .count = ROWS,
                                     .first = true,
                                     .last = true },
                          .learn_rate = 0.05,
                          .samples = ROWS };

    return gp_backend_cuda.steps->launch(f->plan, &call, err);
}

/* Return the loss of a first step with a batch. */
static double first_loss(uint32_t batch)
{
    gp_step_reported reported = { .counts = false };
    gp_error err;
    flow f;

    flow_open(&f, ROWS, NULL);
    flow_fill(&f, batch);
    if (flow_launch(&f, &err) != GP_OK || gp_backend_cuda.steps->reported(f.plan, &reported, &err) != GP_OK)
        GP_TEST_FAIL("%s", err.message);
    CHECK_INT(0, gp_backend_cuda.steps->reading(f.plan));
    CHECK_INT(0, fake_gpu_count("cudaHostRegister"));
    flow_close(&f);
    return reported.sums[GP_SUM_LOSS];
}

static void lane_wait(void *gate)
{
    pthread_mutex_lock(gate);
    pthread_mutex_unlock(gate);
}

TEST(call_reads_locked_memory_until_its_copy_ends)
{
    const double first = first_loss(0), second = first_loss(1);
    pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
    const gp_backend_steps *steps = gp_backend_cuda.steps;
    gp_step_reported reported;
    gp_error err;
    flow f;

    flow_open(&f, ROWS, NULL);
    REQUIRE_OK(steps->lock(f.plan, f.memory, f.bytes, &err), err);
    CHECK_INT(1, fake_gpu_count("cudaHostRegister"));
    pthread_mutex_lock(&gate);
    CHECK_INT(cudaSuccess,
              cudaLaunchHostFunc(f.plan->backend->device->lanes[GP_LANE_INPUT], lane_wait, &gate));
    flow_fill(&f, 0);
    REQUIRE_OK(flow_launch(&f, &err), err);
    CHECK_INT(1, steps->reading(f.plan));
    flow_fill(&f, 1); /* shows that the launch has not read the memory */
    CHECK_INT(1, steps->reading(f.plan));
    pthread_mutex_unlock(&gate);
    REQUIRE_OK(steps->reported(f.plan, &reported, &err), err);
    CHECK_INT(0, steps->reading(f.plan));
    CHECK(first != second);
    CHECK_NEAR(second, reported.sums[GP_SUM_LOSS], 0);
    flow_close(&f);
    CHECK_INT(1, fake_gpu_count("cudaHostUnregister"));
}

TEST(memory_that_cannot_be_locked_is_copied)
{
    const double expected = first_loss(0);
    gp_step_reported reported;
    gp_error err;
    flow f;

    flow_open(&f, ROWS, NULL);
    fake_gpu_faults("cudaHostRegister:1=2");
    CHECK_STATUS(GP_EIO, gp_backend_cuda.steps->lock(f.plan, f.memory, f.bytes, &err));
    flow_fill(&f, 0);
    REQUIRE_OK(flow_launch(&f, &err), err);
    CHECK_INT(0, gp_backend_cuda.steps->reading(f.plan));
    flow_fill(&f, 1);
    REQUIRE_OK(gp_backend_cuda.steps->reported(f.plan, &reported, &err), err);
    CHECK_NEAR(expected, reported.sums[GP_SUM_LOSS], 0);
    flow_close(&f);
}

/* ---- launches ---- */

static gp_status flow_read(void *context, uint32_t first, uint32_t count, void *samples, void *targets,
                           gp_error *err)
{
    const flow *f = context;

    (void)err;
    memcpy(samples, f->n.bytes + first * f->n.pixels, count * f->n.pixels);
    memcpy(targets, f->n.labels + first, count * f->n.graph->target_bytes);
    return GP_OK;
}

/* Return the loss of a step with resident data, whose calls have room for `rows` samples. The step
 * must launch `others` kernels besides those of the plan. */
static double resident_loss(uint32_t rows, uint32_t others)
{
    gp_sampler sampler;
    flow f;
    const gp_resident resident = { .sampler = &sampler,
                                   .count = 2 * ROWS,
                                   .patches = 1,
                                   .sample_bytes = 3 * 8 * 8,
                                   .target_bytes = sizeof(int32_t),
                                   .channels = 3,
                                   .height = 8,
                                   .width = 8,
                                   .read = flow_read,
                                   .context = &f };
    const gp_step_call call = {
        .batch = { .count = ROWS, .first = true, .last = true }, .at = 1, .learn_rate = 0.05, .samples = ROWS
    };
    gp_step_reported reported = { .committed = false };
    uint32_t kernels;
    gp_error err;

    gp_sampler_init(&sampler, resident.count, GP_SHUFFLE_EVERY_EPOCH, 1);
    flow_open(&f, rows, &resident);
    kernels = f.plan->prepare.count;
    for (uint32_t i = 0; i < f.plan->steps.count; i++)
        kernels += f.plan->steps.step[i].kind == STEP_KERNEL;
    fake_gpu_reset_counts();
    if (gp_backend_cuda.steps->launch(f.plan, &call, &err) != GP_OK ||
        gp_backend_cuda.steps->reported(f.plan, &reported, &err) != GP_OK)
        GP_TEST_FAIL("%s", err.message);
    CHECK_INT(kernels + others, fake_gpu_count("cudaLaunchKernel"));
    CHECK(reported.committed);
    CHECK(reported.forward_ns > 0);
    flow_close(&f);
    return reported.sums[GP_SUM_LOSS];
}

/* A launch takes about as long as a small kernel. Besides the steps of the plan, a step has one
 * kernel for the call and the samples, or two in large calls, and three for the latch, the solver
 * and the report. */
TEST(step_with_resident_data_launches_four_kernels_besides_its_plan)
{
    const double loss = resident_loss(ROWS, 4);

    CHECK(loss != 0.0);
    CHECK_NEAR(loss, resident_loss(513, 5), 1e-9);
}

/* ---- a training ---- */

enum { REFILL_MS = 5 }; /* time for the loader to fill a batch that it got back too early */

/* Calls that a device reads as late as it may. */
static struct {
    const void *samples[GP_READS_AHEAD];
    uint32_t sums[GP_READS_AHEAD], calls, locks, changed;
    size_t bytes;
} late;

static gp_backend_steps late_steps;

static gp_status late_lock(gp_plan *plan, void *memory, size_t bytes, gp_error *err)
{
    late.locks += memory != NULL;
    return gp_backend_cuda.steps->lock(plan, memory, bytes, err);
}

static uint32_t late_reading(gp_plan *plan)
{
    (void)plan;
    return late.calls < GP_READS_AHEAD ? late.calls : GP_READS_AHEAD;
}

static gp_status late_launch(gp_plan *plan, const gp_step_call *call, gp_error *err)
{
    gp_status status = gp_backend_cuda.steps->launch(plan, call, err);
    uint32_t at = late.calls++ % GP_READS_AHEAD;

    /* the samples of the call two positions earlier may be overwritten from now on */
    late.samples[at] = call->batch.samples;
    late.sums[at] = gp_crc32c(0, call->batch.samples, late.bytes);
    gp_sleep_ms(REFILL_MS);
    for (uint32_t i = 0; i < GP_READS_AHEAD && i < late.calls; i++)
        late.changed += gp_crc32c(0, late.samples[i], late.bytes) != late.sums[i];
    return status;
}

static void ignore_note(void *context, const char *text, bool warning)
{
    (void)context;
    (void)text;
    (void)warning;
}

TEST(training_returns_batches_to_the_loader_after_the_device_has_read_them)
{
    static const char network[] =
        "{\"name\":\"small\",\"input\":[3,8,8],\"scale\":[0.0039],\"offset\":[-0.4],\"layers\":["
        "{\"name\":\"f1\",\"kind\":\"fc\",\"outputs\":4},{\"name\":\"loss\",\"kind\":\"crossentropy\"}]}";
    static const char options[] = "{\"mini-batch-size\":8,\"max-epochs\":3,\"autotune-seconds\":0}";
    gp_train_begin begin = { .workers = 1, .data = "synthetic:8x8x3:4:80" };
    const gp_comm_member member = { .index = 1, .pid = getpid() };
    const gp_comm_rendezvous group = { .lease = 1, .generation = 1, .world = 1, .members = &member };
    const gp_train_sink sink = { NULL, ignore_record, ignore_validation, ignore_note, NULL };
    gp_backend_ops ops = gp_backend_cuda;
    gp_train_control control;
    gp_trainer *trainer;
    gp_train_ready ready;
    gp_train_done done;
    gp_backend *backend;
    gp_error err;

    fake_gpu_restart();
    late_steps = *gp_backend_cuda.steps;
    late_steps.lock = late_lock;
    late_steps.reading = late_reading;
    late_steps.launch = late_launch;
    late.bytes = 8u * 3 * 8 * 8;
    ops.steps = &late_steps;
    gp_train_control_init(&control);
    REQUIRE_OK(ops.open(&backend, &(gp_backend_options){ .threads = 1, .kernels = "fed" }, &err), err);
    REQUIRE_OK(gp_trainer_new(&trainer, &ready,
                              &(gp_trainer_setup){ .begin = &begin,
                                                   .netspec = network,
                                                   .netspec_bytes = strlen(network),
                                                   .options = options,
                                                   .options_bytes = strlen(options),
                                                   .group = &group,
                                                   .backend_ops = &ops,
                                                   .backend = backend,
                                                   .control = &control },
                              &err),
               err);
    CHECK_STATUS(GP_OK, gp_trainer_run(trainer, &sink, &done));
    gp_trainer_free(trainer);
    ops.close(backend);
    gp_train_control_deinit(&control);
    CHECK_INT(30, late.calls);
    CHECK_INT(1, late.locks);
    CHECK_INT(0, late.changed);
    CHECK_INT(0, fake_gpu_violations());
}
