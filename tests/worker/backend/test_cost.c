/* test_cost.c: multiply-adds and memory estimated from the graph, compared with hand counts and
 * with the memory of a real backend. */
#include "common/model/cost.h"
#include "tests/gp_test.h"
#include "worker/backend/backend.h"
#include "worker/optim/optim.h"

static gp_graph *graph_of(const char *name, const gp_shape *input)
{
    gp_netspec *spec = NULL;
    gp_graph *graph = NULL;
    gp_error err;

    if (gp_zoo_build(&spec, name, input, 0, &err) != GP_OK || gp_graph_new(&graph, spec, &err) != GP_OK)
        GP_TEST_FAIL("%s: %s", name, err.message);
    gp_netspec_free(spec);
    return graph;
}

TEST(multiply_adds_match_hand_counts)
{
    static const struct {
        const char *layer;
        gp_layer_cost cost;
    } cases[] = {
        /* the input gradient is not needed */
        { "conv1", { 20 * 9 + 20, 26 * 26 * 20 * 9, 26 * 26 * 20 * 9 } },
        { "relu1", { 0, 0, 0 } },
        { "conv2", { 50 * 20 * 25 + 50, 9 * 9 * 50 * 20 * 25, 2 * 9 * 9 * 50 * 20 * 25 } },
        { "fc1", { 800 * 128 + 128, 800 * 128, 2 * 800 * 128 } },
        { "fc2", { 128 * 10 + 10, 128 * 10, 2 * 128 * 10 } },
        { "loss", { 0, 0, 0 } },
    };
    gp_graph *graph = graph_of("lenet", NULL);
    gp_layer_cost costs[32];
    int64_t forward = 0;

    REQUIRE(graph != NULL);
    gp_graph_costs(graph, costs);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const gp_layer_cost *cost = &costs[gp_netspec_find(graph->spec, cases[i].layer)];

        CHECK_INT(cases[i].cost.parameters, cost->parameters);
        CHECK_INT(cases[i].cost.forward_macs, cost->forward_macs);
        CHECK_INT(cases[i].cost.backward_macs, cost->backward_macs);
    }
    for (uint32_t i = 0; i < graph->spec->layer_count; i++)
        forward += costs[i].forward_macs;
    CHECK_INT(gp_graph_forward_macs(graph), forward);
    gp_graph_free(graph);
}

TEST(transposed_convolution_costs_as_much_as_its_convolution)
{
    const gp_shape input = gp_shape3(4, 6, 5);
    gp_netspec *spec = NULL;
    gp_graph *graph = NULL;
    gp_layer_cost costs[8];
    gp_error err;

    REQUIRE_OK(gp_netspec_new(&spec, "up", &input, &err), err);
    REQUIRE_OK(gp_netspec_add(spec, "first", "conv2d", "channels=4;kernel=1", &err), err);
    REQUIRE_OK(gp_netspec_add(spec, "up", "transconv2d", "channels=8;kernel=2;stride=2", &err), err);
    REQUIRE_OK(gp_netspec_add(spec, "fc", "fc", "outputs=3", &err), err);
    REQUIRE_OK(gp_netspec_add(spec, "loss", "crossentropy", NULL, &err), err);
    REQUIRE_OK(gp_graph_new(&graph, spec, &err), err);
    gp_graph_costs(graph, costs);
    CHECK_INT(6 * 5 * 4 * 8 * 4, costs[1].forward_macs);
    CHECK_INT(2 * 6 * 5 * 4 * 8 * 4, costs[1].backward_macs);
    gp_graph_free(graph);
    gp_netspec_free(spec);
}

TEST(solver_state_has_the_documented_size)
{
    CHECK_INT(1, gp_solver_state(GP_SOLVER_SGDM));
    CHECK_INT(2, gp_solver_state(GP_SOLVER_ADAM));
    CHECK_INT(2, gp_solver_state(GP_SOLVER_ADAMW));
    CHECK_INT(1, gp_solver_state(GP_SOLVER_RMSPROP));
}

/* Return the size of a CPU plan, including packed weights and scratch memory; bytes. */
static double plan_bytes(const gp_graph *graph, gp_phase phase, uint32_t samples)
{
    const gp_backend_options options = { .threads = 1, .kernels = "onednn" };
    gp_backend *backend = NULL;
    gp_plan *plan = NULL;
    float *blob = calloc(graph->blob_count, sizeof(float)),
          *gradients = calloc(graph->blob_count, sizeof(float));
    float *scores = calloc((size_t)samples * graph->class_count, sizeof(float));
    double sums[GP_SUMS], bytes = 0;
    gp_error err = { 0 };
    const gp_plan_memory memory = {
        .parameters = blob, .gradients = gradients, .sums = sums, .scores = scores
    };
    gp_status status = gp_backend_cpu.open(&backend, &options, &err);

    if (status == GP_OK)
        status = gp_backend_cpu.compile(
            &plan, backend, graph,
            &(gp_plan_options){ .phase = phase, .micro_batch = samples, .sample_dtype = GP_U8 }, &memory,
            &err);
    if (status == GP_OK)
        bytes = (double)gp_backend_cpu.memory_bytes(plan);
    else
        GP_TEST_FAIL("cannot plan %u samples: %s", samples, err.message);
    gp_backend_cpu.free(plan);
    gp_backend_cpu.close(backend);
    free(blob);
    free(gradients);
    free(scores);
    return bytes;
}

/* Largest ratio, as documented for `model show` and in docs/gradpool.md. */
static const double WITHIN = 2.0;

TEST(memory_estimate_is_within_a_factor_of_two)
{
    static const struct {
        const char *name;
        gp_shape input;
    } nets[] = {
        { "lenet", { 3, { 1, 28, 28 } } },         { "resnet18", { 3, { 3, 64, 64 } } },
        { "squeezenet1.1", { 3, { 3, 96, 96 } } }, { "mobilenetv2", { 3, { 3, 64, 64 } } },
        { "googlenet", { 3, { 3, 64, 64 } } },
    };
    enum { SAMPLES = 32 };

    for (size_t i = 0; i < sizeof(nets) / sizeof(nets[0]); i++) {
        gp_graph *graph = graph_of(nets[i].name, &nets[i].input);

        REQUIRE(graph != NULL);
        for (int phase = 0; phase < GP_PHASE_COUNT; phase++) {
            gp_memory_estimate estimate;
            gp_error err;

            REQUIRE_OK(gp_graph_memory(&estimate, graph, (gp_phase)phase, SAMPLES, GP_SOLVER_SGDM, &err),
                       err);
            double blobs = estimate.total - estimate.activations,
                   taken = blobs + plan_bytes(graph, (gp_phase)phase, SAMPLES);

            if (taken > estimate.total * WITHIN || taken < estimate.total / WITHIN)
                GP_TEST_FAIL("%s, phase %d: %.0f bytes estimated, %.0f used", nets[i].name, phase,
                             estimate.total, taken);
        }
        gp_graph_free(graph);
    }
}

TEST(memory_grows_with_the_batch_and_training_takes_more)
{
    gp_graph *graph = graph_of("resnet18", &(gp_shape){ 3, { 3, 32, 32 } });
    gp_memory_estimate one, ten, inference;
    gp_error err;

    REQUIRE(graph != NULL);
    REQUIRE_OK(gp_graph_memory(&one, graph, GP_PHASE_TRAIN, 1, GP_SOLVER_ADAM, &err), err);
    REQUIRE_OK(gp_graph_memory(&ten, graph, GP_PHASE_TRAIN, 10, GP_SOLVER_ADAM, &err), err);
    REQUIRE_OK(gp_graph_memory(&inference, graph, GP_PHASE_INFER, 10, GP_SOLVER_ADAM, &err), err);
    CHECK(ten.activations > 8 * one.activations && ten.activations <= 10 * one.activations);
    CHECK_INT(graph->blob_count * 4, one.parameters);
    CHECK_INT(graph->blob_count * 8, one.state);
    CHECK(inference.gradients == 0 && inference.state == 0 && inference.activations < ten.activations);
    gp_graph_free(graph);
}
