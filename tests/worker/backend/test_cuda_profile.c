/* test_cuda_profile.c: times of single steps on the device (worker/backend/cuda/plan/profile.h).
 * Runs on libfake_gpu.so, whose cuDNN engines have configured durations. */
#include "tests/gp_test.h"

#include "tests/fake/gpu/fake_gpu.h"
#include "tests/worker/backend/backend_check.h"
#include "worker/backend/cuda/plan/profile.h"
#include "worker/optim/optim.h"

/* CONV_US: duration of each convolution; everything else takes a few microseconds. */
enum { ROWS = 4, CALLS = 3, CONV_US = 700, FEW_US = 20 };

static const net_layer chain[] = { { "conv2d", "channels=8;kernel=3" },
                                   { "relu", NULL },
                                   { "conv2d", "channels=4;kernel=3" },
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
} flow;

/* Open a plan for f->n. */
static void flow_open(flow *f, gp_phase phase, gp_precision precision)
{
    gp_plan_options options = {
        .phase = phase, .micro_batch = ROWS, .sample_dtype = GP_U8, .precision = precision
    };
    gp_plan_memory memory;
    gp_error err;

    fake_gpu_faults(NULL);
    setenv("FAKE_GPU_ENGINE_US", "700", 1);
    f->gradients = gp_calloc(f->n.graph->blob_count, sizeof(float));
    REQUIRE(f->gradients != NULL);
    memory = (gp_plan_memory){ .parameters = f->n.parameters, .gradients = f->gradients, .sums = f->sums };
    REQUIRE_OK(gp_backend_cuda.open(&f->backend,
                                    &(gp_backend_options){ .threads = 1, .kernels = "libraries" }, &err),
               err);
    REQUIRE_OK(gp_backend_cuda.compile(&f->plan, f->backend, f->n.graph, &options, &memory, &err), err);
}

static void chain_open(flow *f, gp_phase phase)
{
    gp_error err;

    *f = (flow){ 0 };
    REQUIRE_OK(chain_net(&f->n, gp_shape3(3, 8, 8), CALLS * ROWS, chain, &err), err);
    flow_open(f, phase, GP_PRECISION_F32);
}

static void flow_close(flow *f)
{
    gp_backend_cuda.free(f->plan);
    gp_backend_cuda.close(f->backend);
    gp_optim_free(f->optim);
    gp_free(f->gradients);
    net_free(&f->n);
    unsetenv("FAKE_GPU_ENGINE_US");
    CHECK_INT(0, fake_gpu_blocks());
    CHECK_INT(0, fake_gpu_streams());
    CHECK_INT(0, fake_gpu_violations());
}

static gp_batch flow_batch(const flow *f, int call)
{
    const uint32_t first = (uint32_t)call * ROWS;

    return (gp_batch){ .samples = f->n.bytes + first * f->n.pixels,
                       .targets = (const char *)f->n.labels + first * f->n.graph->target_bytes,
                       .count = ROWS,
                       .first = true,
                       .unchanged = f->optim == NULL && call > 0,
                       .last = true };
}

/* Sums over the reported lines. */
typedef struct totals {
    int lines, convs[2], parts;   /* convs: of each convolution layer */
    int64_t conv_ns[2], other_ns; /* conv_ns: library steps of each convolution layer */
} totals;

static void take_line(void *context, const gp_profile_line *line)
{
    totals *t = context;

    if (line->ns == 0)
        return;
    t->lines++;
    t->parts += strcmp(line->what, "input") == 0 || strcmp(line->what, "output") == 0 ||
                strcmp(line->what, "commit") == 0;
    if (strncmp(line->what, "conv2d", 6) == 0 && strncmp(line->kernel, "0-", 2) == 0) {
        REQUIRE(line->layer == 0 || line->layer == 2);
        t->convs[line->layer / 2]++;
        t->conv_ns[line->layer / 2] += line->ns;
    } else {
        t->other_ns += line->ns;
    }
}

/* Check the times of CALLS calls.
 *   convs  convolutions of the first and second layer in each call
 *   parts  parts of a call that are not steps */
static void check_times(flow *f, int first_convs, int second_convs, int parts)
{
    const int convs[2] = { first_convs, second_convs };
    totals t = { 0 };
    gp_error err;

    REQUIRE_OK(gp_plan_profile(f->plan, take_line, &t, &err), err);
    CHECK_INT(parts, t.parts);
    for (int i = 0; i < 2; i++) {
        const int64_t us = (int64_t)CALLS * convs[i] * CONV_US;

        CHECK_INT(convs[i], t.convs[i]);
        if (t.conv_ns[i] < us * 1000 || t.conv_ns[i] > (us + CALLS * convs[i] * FEW_US) * 1000)
            GP_TEST_FAIL("convolution %d: %lld ns, expected %lld us", i, (long long)t.conv_ns[i],
                         (long long)us);
    }
    if (t.other_ns > (int64_t)CALLS * t.lines * FEW_US * 1000)
        GP_TEST_FAIL("other steps: %lld ns for %d lines", (long long)t.other_ns, t.lines);
}

TEST(profile_of_a_prediction_has_the_time_of_each_layer)
{
    const float *scores;
    float plain[ROWS * 7];
    flow f;
    gp_error err;

    chain_open(&f, GP_PHASE_INFER);
    for (int call = 0; call < 2 * CALLS; call++) { /* the second half is profiled */
        gp_batch batch = flow_batch(&f, call % CALLS);

        if (call == CALLS)
            REQUIRE_OK(gp_plan_profile(f.plan, NULL, NULL, &err), err);
        REQUIRE_OK(gp_backend_cuda.predictions->launch(f.plan, &batch, &err), err);
        REQUIRE_OK(gp_backend_cuda.predictions->take(f.plan, &scores, &err), err);
        if (call == CALLS - 1)
            memcpy(plain, scores, sizeof(plain));
    }
    CHECK(memcmp(plain, scores, sizeof(plain)) == 0);
    check_times(&f, 1, 1, 2);
    flow_close(&f);
}

/* Run CALLS steps of a training that stays on the device, then as many with a profile. */
static void train_profiled(flow *f)
{
    gp_step_reported reported;
    uint32_t blobs;
    uint64_t *solved;
    bool resident;
    gp_error err;

    REQUIRE_OK(gp_train_options_from_json(&f->train, "{}", 2, &err), err);
    REQUIRE_OK(gp_optim_new(&f->optim, f->n.graph, &f->train, &err), err);
    float *state = gp_optim_state(f->optim, &blobs, &solved);

    REQUIRE_OK(gp_backend_cuda.steps->make_resident(
                   f->plan,
                   &(gp_resident_request){
                       .options = &f->train, .state = state, .state_blobs = blobs, .solved = *solved },
                   &resident, &err),
               err);
    for (int call = 0; call < 2 * CALLS; call++) {
        const gp_step_call sent = { .batch = flow_batch(f, call % CALLS),
                                    .learn_rate = 1e-3,
                                    .samples = ROWS };

        if (call == CALLS)
            REQUIRE_OK(gp_plan_profile(f->plan, NULL, NULL, &err), err);
        REQUIRE_OK(gp_backend_cuda.steps->launch(f->plan, &sent, &err), err);
        REQUIRE_OK(gp_backend_cuda.steps->reported(f->plan, &reported, &err), err);
        CHECK(reported.committed);
    }
}

/* The first layer has no data gradient. */
TEST(profile_of_a_training_has_the_time_of_each_layer_and_the_commit)
{
    flow f;

    chain_open(&f, GP_PHASE_TRAIN);
    train_profiled(&f);
    check_times(&f, 2, 3, 2);
    flow_close(&f);
}

static void count_copies(void *context, const gp_profile_line *line)
{
    *(int *)context += strcmp(line->kernel, "reshape") == 0;
}

/* Both inputs of a sum share its gradient. In bf16, activations are packed. */
TEST(gradients_of_a_sum_need_no_copy)
{
    const char *const skip[] = { "conv2", "relu1" };
    const gp_shape input = gp_shape3(3, 8, 8);
    flow f = { 0 };
    int copies = 0;
    gp_error err;

    REQUIRE_OK(gp_netspec_new(&f.n.spec, "sum", &input, &err), err);
    REQUIRE_OK(gp_netspec_add(f.n.spec, "conv1", "conv2d", "channels=8;kernel=3;padding=1", &err), err);
    REQUIRE_OK(gp_netspec_add(f.n.spec, "relu1", "relu", NULL, &err), err);
    REQUIRE_OK(gp_netspec_add(f.n.spec, "conv2", "conv2d", "channels=8;kernel=3;padding=1", &err), err);
    REQUIRE_OK(gp_netspec_add(f.n.spec, "sum", "add", NULL, &err), err);
    REQUIRE_OK(gp_netspec_connect(f.n.spec, skip, 2, &err), err);
    REQUIRE_OK(gp_netspec_add(f.n.spec, "fc", "fc", "outputs=8", &err), err);
    REQUIRE_OK(gp_netspec_add(f.n.spec, "loss", "crossentropy", NULL, &err), err);
    REQUIRE_OK(net_fill(&f.n, CALLS * ROWS, &err), err);
    flow_open(&f, GP_PHASE_TRAIN, GP_PRECISION_BF16);
    train_profiled(&f);
    REQUIRE_OK(gp_plan_profile(f.plan, count_copies, &copies, &err), err);
    CHECK_INT(2, copies); /* the gradient of the loss to bf16, for two products */
    flow_close(&f);
}
