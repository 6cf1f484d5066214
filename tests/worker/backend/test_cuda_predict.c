/* test_cuda_predict.c: device predictions with two batches in flight: graphs are bitwise identical
 * to separate kernel launches, and agree with the CPU up to rounding. Runs on libfake_gpu.so with
 * asynchronous lanes. */
#include "tests/gp_test.h"

#include "tests/fake/gpu/fake_gpu.h"
#include "tests/common/model/nets.h"
#include "tests/worker/backend/backend_check.h"
#include "worker/backend/cuda/plan/plan.h"
#include "worker/predict/predictor.h"

enum { ROWS = 8, SAMPLES = 45 /* five full batches and one with 5 samples */ };

static const net_layer layers[] = { { "conv2d", "channels=8;kernel=3" },
                                    { "batchnorm", NULL },
                                    { "relu", NULL },
                                    { "maxpool", "kernel=2" },
                                    { "fc", "outputs=7" },
                                    { "crossentropy", NULL },
                                    { NULL, NULL } };

typedef struct flow {
    net n;
    gp_backend *backend;
    gp_plan *plan;
    double sums[GP_SUMS];
    float *scores;
} flow;

static void flow_open(flow *f, const char *words)
{
    gp_plan_options options = { .phase = GP_PHASE_INFER, .micro_batch = ROWS, .sample_dtype = GP_U8 };
    gp_plan_memory memory;
    gp_error err;

    *f = (flow){ 0 };
    fake_gpu_faults(NULL);
    REQUIRE_OK(chain_net(&f->n, gp_shape3(3, 8, 8), 200, layers, &err), err);
    memory = (gp_plan_memory){ .parameters = f->n.parameters, .sums = f->sums };
    REQUIRE_OK(
        gp_backend_cuda.open(&f->backend, &(gp_backend_options){ .threads = 1, .kernels = words }, &err),
        err);
    REQUIRE_OK(gp_backend_cuda.compile(&f->plan, f->backend, f->n.graph, &options, &memory, &err), err);
    f->scores = gp_calloc(SAMPLES * f->n.graph->score_count, sizeof(float));
}

static void flow_close(flow *f)
{
    gp_backend_cuda.free(f->plan);
    gp_backend_cuda.close(f->backend);
    gp_free(f->scores);
    net_free(&f->n);
}

static void check_left(void)
{
    CHECK_INT(0, fake_gpu_blocks());
    CHECK_INT(0, fake_gpu_streams());
    CHECK_INT(0, fake_gpu_violations());
}

static gp_batch flow_batch(const flow *f, uint32_t first)
{
    return (gp_batch){ .samples = f->n.bytes + first * f->n.pixels,
                       .targets = (const char *)f->n.labels + first * f->n.graph->target_bytes,
                       .count = SAMPLES - first < ROWS ? SAMPLES - first : ROWS,
                       .first = first == 0,
                       .last = true };
}

static gp_status flow_take(flow *f, uint32_t first, gp_error *err)
{
    const float *scores;
    gp_status status = gp_backend_cuda.predictions->take(f->plan, &scores, err);

    if (status == GP_OK)
        memcpy(f->scores + first * f->n.graph->score_count, scores,
               flow_batch(f, first).count * f->n.graph->score_count * sizeof(float));
    return status;
}

/* Predict all samples; each batch is launched before the result of the previous one is read. */
static gp_status flow_run(flow *f, gp_error *err)
{
    gp_status status = GP_OK;

    for (uint32_t first = 0; first < SAMPLES && status == GP_OK; first += ROWS) {
        gp_batch batch = flow_batch(f, first);

        status = gp_backend_cuda.predictions->launch(f->plan, &batch, err);
        if (status == GP_OK && first > 0)
            status = flow_take(f, first - ROWS, err);
    }
    return status == GP_OK ? flow_take(f, SAMPLES - SAMPLES % ROWS, err) : status;
}

static void check_same(const flow *a, const flow *b, const char *what)
{
    if (memcmp(a->scores, b->scores, SAMPLES * a->n.graph->score_count * sizeof(float)) != 0 ||
        memcmp(a->sums, b->sums, sizeof(a->sums)) != 0)
        GP_TEST_FAIL("%s: results differ", what);
}

TEST(every_batch_after_the_first_is_one_launch)
{
    flow recorded, pieces;
    uint64_t kernels;
    gp_error err;

    flow_open(&pieces, "eager");
    REQUIRE_OK(flow_run(&pieces, &err), err);
    CHECK_CONTAINS(gp_backend_cuda.predictions->pieces(pieces.plan), "eager");
    CHECK(pieces.sums[GP_SUM_LOSS] > 0 && pieces.sums[GP_SUM_CLASSED] > SAMPLES / 2);
    flow_open(&recorded, "");
    fake_gpu_reset_counts();
    REQUIRE_OK(flow_run(&recorded, &err), err);
    CHECK_INT(1, fake_gpu_count("cudaGraphInstantiate"));

    /* six batches; the first one runs as separate launches */
    CHECK_INT(SAMPLES / ROWS, fake_gpu_count("cudaGraphLaunch"));
    CHECK_TEXT("", gp_backend_cuda.predictions->pieces(recorded.plan));
    check_same(&pieces, &recorded, "a graph");
    kernels = fake_gpu_count("cudaLaunchKernel");
    fake_gpu_reset_counts();
    for (int i = 0; i < 3; i++) {
        memset(recorded.scores, 0, SAMPLES * recorded.n.graph->score_count * sizeof(float));
        REQUIRE_OK(flow_run(&recorded, &err), err);
        check_same(&pieces, &recorded, "again");
    }
    CHECK_INT(3 * (SAMPLES / ROWS + 1), fake_gpu_count("cudaGraphLaunch"));
    CHECK_INT(0, fake_gpu_count("cudaGraphInstantiate"));
    CHECK_INT(0, fake_gpu_count("cudaMalloc") + fake_gpu_count("cudaHostAlloc"));
    CHECK(fake_gpu_count("cudaLaunchKernel") <
          kernels); /* weight copies only: the parameters may have changed */
    flow_close(&recorded);
    flow_close(&pieces);
    check_left();
}

TEST(only_changed_parameters_are_uploaded_again)
{
    static flow f;
    float before;
    gp_error err;

    flow_open(&f, "");
    REQUIRE_OK(flow_run(&f, &err), err);
    before = f.scores[0];
    for (size_t i = 0; i < f.n.graph->blob_count; i++)
        f.n.parameters[i] += 0.25f;
    for (int changed = 0; changed < 2; changed++) {
        gp_batch batch = flow_batch(&f, 0);

        batch.unchanged = !changed;
        REQUIRE_OK(gp_backend_cuda.predictions->launch(f.plan, &batch, &err), err);
        REQUIRE_OK(flow_take(&f, 0, &err), err);
        CHECK((f.scores[0] != before) == changed);
    }
    flow_close(&f);
    check_left();
}

/* A request's plan ends with the request, but cuDNN's compiled plans are cached while the device is
 * open. */
TEST(next_request_reuses_the_librarys_plans)
{
    const gp_plan_options options = { .phase = GP_PHASE_INFER, .micro_batch = ROWS, .sample_dtype = GP_U8 };
    gp_plan_memory memory;
    flow first, again;
    gp_error err;

    fake_gpu_reset_counts();
    flow_open(&first, "");
    CHECK(fake_gpu_count("cudnnPlan") > 0);
    REQUIRE_OK(flow_run(&first, &err), err);
    again = first; /* same backend */
    again.scores = gp_calloc(SAMPLES * first.n.graph->score_count, sizeof(float));
    memory = (gp_plan_memory){ .parameters = first.n.parameters, .sums = again.sums };
    gp_backend_cuda.free(first.plan);
    fake_gpu_reset_counts();
    REQUIRE_OK(gp_backend_cuda.compile(&again.plan, first.backend, first.n.graph, &options, &memory, &err),
               err);
    CHECK_INT(0, fake_gpu_count("cudnnPlan"));
    REQUIRE_OK(flow_run(&again, &err), err);
    check_same(&first, &again, "of a plan that was used before");
    first.plan = again.plan;
    gp_free(again.scores);
    flow_close(&first);
    check_left();
}

TEST(third_prediction_waits_until_the_first_is_read)
{
    flow f;
    gp_batch batch;
    gp_error err;

    flow_open(&f, "");
    batch = flow_batch(&f, 0);
    CHECK_STATUS(GP_ESTATE, flow_take(&f, 0, &err));
    REQUIRE_OK(gp_backend_cuda.predictions->launch(f.plan, &batch, &err), err);
    REQUIRE_OK(gp_backend_cuda.predictions->launch(f.plan, &batch, &err), err);
    CHECK_STATUS(GP_ESTATE, gp_backend_cuda.predictions->launch(f.plan, &batch, &err));
    REQUIRE_OK(flow_take(&f, 0, &err), err);
    REQUIRE_OK(gp_backend_cuda.predictions->launch(f.plan, &batch, &err), err);
    flow_close(&f); /* with two in flight */
    check_left();
}

/* Fails each call that a recording makes. */
TEST(failed_recording_falls_back_to_separate_launches_with_a_reason)
{
    static const char *const rules[] = { "cudaStreamBeginCapture:1=900", "cudaStreamEndCapture:1=901",
                                         "cudaGraphInstantiate:1=2" };
    static const char *const words[] = { "900", "901", "memory" };
    flow pieces;
    gp_error err;

    flow_open(&pieces, "eager");
    REQUIRE_OK(flow_run(&pieces, &err), err);
    for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++) {
        flow f;
        char text[300];

        flow_open(&f, "");
        fake_gpu_reset_counts();
        fake_gpu_faults(rules[i]);
        REQUIRE_OK(flow_run(&f, &err), err);
        CHECK_INT(0, fake_gpu_count("cudaGraphLaunch"));
        CHECK_INT(1, fake_gpu_count("cudaStreamBeginCapture")); /* recording is not retried */
        CHECK_CONTAINS(gp_backend_cuda.predictions->pieces(f.plan), words[i]);
        gp_backend_cuda.describe(f.plan, text, sizeof(text));
        CHECK_CONTAINS(text, "eager");
        check_same(&pieces, &f, rules[i]);
        flow_close(&f);
    }
    flow_close(&pieces);
    check_left();
}

TEST(device_failure_ends_predictions_with_an_error_message)
{
    flow f;
    gp_batch batch;
    gp_error err;

    flow_open(&f, "");
    fake_gpu_reset_counts();
    fake_gpu_faults("cudaGraphLaunch:2=700");
    CHECK_STATUS(GP_EIO, flow_run(&f, &err));
    CHECK_CONTAINS(err.message, "illegal memory access");
    batch = flow_batch(&f, 0);
    CHECK_STATUS(GP_ESTATE, gp_backend_cuda.predictions->launch(f.plan, &batch, &err));
    gp_backend_cuda.free(f.plan);
    gp_backend_cuda.close(f.backend);
    fake_gpu_faults(NULL);
    fake_gpu_restart();
    gp_free(f.scores);
    net_free(&f.n);
}

/* ---- a worker's predictor ---- */

static const char network[] =
    "{\"name\":\"small\",\"input\":[3,8,8],\"scale\":[0.00392156862745098],\"offset\":[-0.4],\"layers\":["
    "{\"name\":\"c1\",\"kind\":\"conv2d\",\"channels\":6,\"kernel\":[3,3]},{\"name\":\"r1\",\"kind\":"
    "\"relu\"},"
    "{\"name\":\"f1\",\"kind\":\"fc\",\"outputs\":4},{\"name\":\"loss\",\"kind\":\"crossentropy\"}]}";

enum { DATA = 300, PARTS = 2, PART = 150 };

typedef struct predicted {
    gp_predict_part parts[PARTS];
    float scores[DATA * 4];
    uint64_t confusion[16];
    int32_t labels[DATA];
} predicted;

static void predict_all(predicted *out, const gp_backend_ops *ops, gp_predict_answer answer)
{
    gp_predict_begin begin = { .batch = PART, .answer = (uint32_t)answer };
    gp_netspec *spec;
    gp_graph *graph;
    gp_backend *backend;
    gp_predictor *predictor;
    gp_predict_ready ready;
    float *weights;
    gp_error err;

    memset(out, 0, sizeof(*out));
    snprintf(begin.data, sizeof(begin.data), "synthetic:8x8x3:4:%d", DATA);
    REQUIRE_OK(gp_netspec_from_json(&spec, network, strlen(network), &err), err);
    REQUIRE_OK(gp_graph_new(&graph, spec, &err), err);
    weights = gp_calloc(graph->blob_count, sizeof(float));
    gp_graph_initialize(graph, (gp_init_rule){ .kind = GP_INIT_GLOROT }, 5, weights);
    REQUIRE_OK(ops->open(&backend, &(gp_backend_options){ .threads = 1 }, &err), err);
    REQUIRE_OK(gp_predictor_new(&predictor, &ready,
                                &(gp_predictor_setup){ .begin = &begin,
                                                       .netspec = network,
                                                       .netspec_bytes = strlen(network),
                                                       .weights = weights,
                                                       .weights_count = graph->blob_count,
                                                       .backend_ops = ops,
                                                       .backend = backend },
                                &err),
               err);
    CHECK_INT(DATA, ready.samples);
    CHECK(ready.micro_batch < PART && PART % ready.micro_batch != 0); /* several calls and a tail */
    for (uint32_t i = 0; i < PARTS; i++) {
        gp_predicted got;

        REQUIRE_OK(
            gp_predictor_part(predictor, &(gp_predictor_ask){ .first = i * PART, .count = PART }, &got, &err),
            err);
        out->parts[i] = got.part;
        if (answer == GP_ANSWER_SCORES)
            CHECK_INT(PART * 4 * sizeof(float), got.scores_bytes);
        if (got.scores != NULL)
            memcpy((char *)out->scores + i * got.scores_bytes, got.scores, got.scores_bytes);
        if (got.labels != NULL)
            memcpy(out->labels + i * PART, got.labels, PART * sizeof(int32_t));
        for (uint32_t truth = 0; truth < 4 && got.confusion != NULL; truth++)
            for (uint32_t said = 0; said < 4; said++)
                out->confusion[truth * 4 + said] += got.confusion->counts[truth * 4 + said];
    }
    CHECK_STATUS(GP_EINVAL, gp_predictor_part(predictor, &(gp_predictor_ask){ .first = DATA, .count = 1 },
                                              &(gp_predicted){ 0 }, &err));
    gp_predictor_free(predictor);
    ops->close(backend);
    gp_free(weights);
    gp_graph_free(graph);
    gp_netspec_free(spec);
}

TEST(worker_predictions_on_a_device_match_the_cpu)
{
    static predicted cpu, cuda;

    for (int answer = GP_ANSWER_SCORES; answer <= GP_ANSWER_SUMS; answer++) {
        uint64_t counted = 0;

        predict_all(&cpu, &gp_backend_cpu, (gp_predict_answer)answer);
        fake_gpu_reset_counts();
        predict_all(&cuda, &gp_backend_cuda, (gp_predict_answer)answer);
        CHECK_INT(1, fake_gpu_count("cudaGraphInstantiate"));
        for (int i = 0; i < PARTS; i++) {
            CHECK_NEAR(cpu.parts[i].loss, cuda.parts[i].loss, 1e-3);
            CHECK_NEAR(cpu.parts[i].correct, cuda.parts[i].correct, 0);
            CHECK_INT(cpu.parts[i].labelled, cuda.parts[i].labelled);
        }
        for (int i = 0; i < DATA * 4 && answer == GP_ANSWER_SCORES; i++)
            CHECK_NEAR(cpu.scores[i], cuda.scores[i], 1e-5);
        if (answer == GP_ANSWER_CLASSES)
            CHECK(memcmp(cpu.scores, cuda.scores, DATA) == 0);
        CHECK(memcmp(cpu.labels, cuda.labels, sizeof(cpu.labels)) == 0);
        CHECK(memcmp(cpu.confusion, cuda.confusion, sizeof(cpu.confusion)) == 0);
        for (int i = 0; i < 16; i++)
            counted += cuda.confusion[i];
        CHECK_INT(answer == GP_ANSWER_SUMS ? DATA : 0, counted);
    }
    check_left();
}
