/* test_cuda_profile.c: times of single steps on the device (worker/backend/cuda/plan/profile.h).
 * Runs on libfake_gpu.so, whose cuDNN engines have configured durations. */
#include "tests/gp_test.h"

#include "tests/fake/gpu/fake_gpu.h"
#include "tests/worker/backend/backend_check.h"
#include "worker/backend/cuda/plan/profile.h"
#include "worker/optim/optim.h"

/* CONV_US: duration of each convolution; everything else takes a few microseconds. */
enum { ROWS = 4, CALLS = 3, CONV_US = 700, FEW_US = 20 };

static const net_layer layers[] = { { "conv2d", "channels=8;kernel=3" },
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

static void flow_open(flow *f, gp_phase phase)
{
    gp_plan_options options = { .phase = phase, .micro_batch = ROWS, .sample_dtype = GP_U8 };
    gp_plan_memory memory;
    gp_error err;

    *f = (flow){ 0 };
    fake_gpu_faults(NULL);
    setenv("FAKE_GPU_ENGINE_US", "700", 1);
    REQUIRE_OK(chain_net(&f->n, gp_shape3(3, 8, 8), CALLS * ROWS, layers, &err), err);
    f->gradients = gp_calloc(f->n.graph->blob_count, sizeof(float));
    REQUIRE(f->gradients != NULL);
    memory = (gp_plan_memory){ .parameters = f->n.parameters, .gradients = f->gradients, .sums = f->sums };
    REQUIRE_OK(gp_backend_cuda.open(&f->backend, &(gp_backend_options){ .threads = 1 }, &err), err);
    REQUIRE_OK(gp_backend_cuda.compile(&f->plan, f->backend, f->n.graph, &options, &memory, &err), err);
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

    flow_open(&f, GP_PHASE_INFER);
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

/* The first layer has no data gradient. */
TEST(profile_of_a_training_has_the_time_of_each_layer_and_the_commit)
{
    gp_step_reported reported;
    uint32_t blobs;
    uint64_t *solved;
    bool resident;
    flow f;
    gp_error err;

    flow_open(&f, GP_PHASE_TRAIN);
    REQUIRE_OK(gp_train_options_from_json(&f.train, "{}", 2, &err), err);
    REQUIRE_OK(gp_optim_new(&f.optim, f.n.graph, &f.train, &err), err);
    float *state = gp_optim_state(f.optim, &blobs, &solved);

    REQUIRE_OK(gp_backend_cuda.steps->make_resident(
                   f.plan,
                   &(gp_resident_request){
                       .options = &f.train, .state = state, .state_blobs = blobs, .solved = *solved },
                   &resident, &err),
               err);
    for (int call = 0; call < 2 * CALLS; call++) {
        const gp_step_call sent = { .batch = flow_batch(&f, call % CALLS),
                                    .learn_rate = 1e-3,
                                    .samples = ROWS };

        if (call == CALLS)
            REQUIRE_OK(gp_plan_profile(f.plan, NULL, NULL, &err), err);
        REQUIRE_OK(gp_backend_cuda.steps->launch(f.plan, &sent, &err), err);
        REQUIRE_OK(gp_backend_cuda.steps->reported(f.plan, &reported, &err), err);
        CHECK(reported.committed);
    }
    check_times(&f, 2, 3, 2);
    flow_close(&f);
}
