/* libraries_check.h: cuDNN and cuBLASLt execute every convolution and product of four networks. */
#ifndef GP_TEST_LIBRARIES_CHECK_H
#define GP_TEST_LIBRARIES_CHECK_H

#include "common/base/memory/alloc.h"
#include "common/model/network.h"
#include "tests/gp_test.h"
#include "worker/backend/backend.h"

/* Compare the library steps of a training plan with the ops of the network. Without fused
 * operations ("apart"), each op is one step, and cuDNN need not compile engines. Kernels of the
 * backend replace no library ("libraries"). */
static void check_network_libraries(const gp_backend_ops *ops, const char *name, gp_precision precision)
{
    gp_plan_options options = {
        .phase = GP_PHASE_TRAIN, .micro_batch = 1, .sample_dtype = GP_U8, .precision = precision
    };
    float *blobs[2]; /* parameters, gradients */
    gp_netspec *spec;
    gp_graph *graph;
    gp_backend *backend;
    gp_plan *plan;
    unsigned expected[2] = { 0 }, found[2] = { 0 }; /* convolutions, products */
    char text[300];
    const char *why = "";
    gp_error err;

    REQUIRE_OK(gp_zoo_build(&spec, name, NULL, 0, &err), err);
    REQUIRE_OK(gp_graph_new(&graph, spec, &err), err);
    for (uint32_t i = 0; i < graph->ops[GP_PHASE_TRAIN].count; i++) {
        const gp_opcode code = graph->ops[GP_PHASE_TRAIN].op[i].code;

        expected[0] += code == GP_OP_CONV2D || code == GP_OP_CONV2D_BACKWARD_DATA ||
                       code == GP_OP_CONV2D_BACKWARD_WEIGHTS;
        expected[1] +=
            code == GP_OP_FC || code == GP_OP_FC_BACKWARD_DATA || code == GP_OP_FC_BACKWARD_WEIGHTS;
    }
    for (int i = 0; i < 2; i++) {
        blobs[i] = gp_aligned_calloc(64, graph->blob_count * sizeof(float));
        REQUIRE(blobs[i] != NULL);
    }
    const gp_plan_memory memory = { .parameters = blobs[0], .gradients = blobs[1] };

    REQUIRE_OK(ops->open(&backend, &(gp_backend_options){ .threads = 1, .kernels = "apart,libraries" }, &err),
               err);
    REQUIRE_OK(ops->compile(&plan, backend, graph, &options, &memory, &err), err);
    ops->describe(plan, text, sizeof(text));
    REQUIRE(strchr(text, ':') != NULL);
    CHECK_INT(
        2, sscanf(strchr(text, ':'), ": %*u steps, %u of them cuDNN's, %u cuBLASLt's", &found[0], &found[1]));
    if (ops->missing(plan, &why) != 0 || found[0] != expected[0] || found[1] != expected[1])
        GP_TEST_FAIL("%s in %s: %u of %u convolutions and %u of %u products by libraries; %s", name,
                     gp_precision_names[precision], found[0], expected[0], found[1], expected[1], why);
    CHECK(expected[0] > 0 && expected[1] > 0);
    ops->free(plan);
    ops->close(backend);
    gp_free(blobs[1]);
    gp_free(blobs[0]);
    gp_graph_free(graph);
    gp_netspec_free(spec);
}

static void check_libraries(const gp_backend_ops *ops)
{
    static const char *const networks[] = { "lenet", "resnet18", "resnet50", "alexnet" };

    for (size_t i = 0; i < sizeof(networks) / sizeof(networks[0]); i++)
        for (int precision = 0; precision < GP_PRECISION_COUNT; precision++)
            check_network_libraries(ops, networks[i], (gp_precision)precision);
}

#endif
