/* test_add.c: sums of many inputs, the only layer kind whose lowering creates additional values. */
#include "common/model/graph/graph.h"
#include "tests/gp_test.h"

/* Build `before` layers, then the sum of eight copies of the last one. */
static gp_graph *summed(uint32_t before)
{
    const gp_shape input = gp_shape3(2, 3, 5);
    const char *inputs[GP_LAYER_INPUTS_MAX];
    gp_graph *graph = NULL;
    gp_netspec *spec;
    char name[16];
    gp_error err;

    if (gp_netspec_new(&spec, "sums", &input, &err) != GP_OK)
        return NULL;
    for (uint32_t i = 0; i < before; i++) {
        snprintf(name, sizeof(name), "relu%u", i);
        gp_netspec_add(spec, name, "relu", NULL, &err);
    }
    for (int i = 0; i < GP_LAYER_INPUTS_MAX; i++)
        inputs[i] = before == 0 ? "input" : name;
    if (gp_netspec_add(spec, "sum", "add", NULL, &err) != GP_OK ||
        gp_netspec_connect(spec, inputs, GP_LAYER_INPUTS_MAX, &err) != GP_OK ||
        gp_netspec_add(spec, "fc", "fc", "outputs=2", &err) != GP_OK ||
        gp_netspec_add(spec, "loss", "crossentropy", NULL, &err) != GP_OK ||
        gp_graph_new(&graph, spec, &err) != GP_OK)
        printf("    %s\n", err.message);
    gp_netspec_free(spec);
    return graph;
}

TEST(sum_of_eight_keeps_its_shape_when_the_value_table_grows)
{
    const gp_shape shape = gp_shape3(2, 3, 5);

    for (uint32_t before = 0; before < 70; before++) { /* the table grows at 32 and at 64 values */
        gp_graph *graph = summed(before);
        uint32_t sums = 0;

        REQUIRE(graph != NULL);
        for (int phase = 0; phase < GP_PHASE_COUNT; phase++)
            for (uint32_t i = 0; i < graph->ops[phase].count; i++) {
                const gp_op *op = &graph->ops[phase].op[i];

                if (op->code != GP_OP_ADD)
                    continue;
                CHECK(gp_shape_equal(&shape, &graph->values[op->out[0]].shape));
                CHECK_INT(GP_F32, graph->values[op->out[0]].dtype);
                sums++;
            }
        CHECK_INT(2 * (GP_LAYER_INPUTS_MAX - 1), sums);
        gp_graph_free(graph);
    }
}
