/* The networks of the zoo: sizes as published, shapes, and what they can be built for. */
#include "common/model/graph.h"
#include "tests/gp_test.h"

static gp_graph *zoo_graph(const char *name, const gp_shape *input, uint32_t classes)
{
    gp_netspec *spec = NULL;
    gp_graph *graph = NULL;
    gp_error err;

    if (gp_zoo_build(&spec, name, input, classes, &err) != GP_OK || gp_graph_new(&graph, spec, &err) != GP_OK)
        GP_TEST_FAIL("%s: %s", name, err.message);
    gp_netspec_free(spec);
    return graph;
}

/* torchvision's counts; LeNet's is that of "Dive into Deep Learning". */
static const struct published {
    const char *name;
    size_t parameters, statistics;
    int64_t mega_macs; /* of one sample's forward pass, rounded down */
} published[] = {
    { "lenet", 129068, 0, 2 },
    { "alexnet", 61100840, 0, 714 },
    { "vgg16", 138357544, 0, 15470 },
    { "resnet18", 11689512, 9600, 1814 },
    { "resnet34", 21797672, 17024, 3663 },
    { "resnet50", 25557032, 53120, 4089 },
    { "resnet101", 44549160, 105344, 7801 },
    { "squeezenet1.1", 1235496, 0, 349 },
    { "mobilenetv2", 3504872, 34112, 300 },
};

TEST(every_network_has_the_parameters_that_were_published)
{
    size_t count = sizeof(published) / sizeof(published[0]);

    for (size_t i = 0; i < count; i++) {
        gp_graph *graph = zoo_graph(published[i].name, NULL, 0);

        if (graph == NULL)
            continue;
        CHECK_TEXT(published[i].name, gp_zoo_names[i]);
        CHECK_INT(published[i].parameters, graph->learned_count);
        CHECK_INT(published[i].statistics, graph->blob_count - graph->learned_count);
        CHECK_INT(published[i].mega_macs, gp_graph_forward_macs(graph) / 1000000);
        gp_graph_free(graph);
    }
    CHECK(gp_zoo_names[count] == NULL);
}

static gp_shape shape_of(const gp_graph *graph, const char *layer)
{
    return graph->outputs[gp_netspec_find(graph->spec, layer)];
}

TEST(shapes_are_those_of_the_papers)
{
    static const struct {
        const char *name, *layer, *shape;
    } cases[] = {
        { "alexnet", "pool1", "64x27x27" },        { "alexnet", "pool5", "256x6x6" },
        { "vgg16", "pool5", "512x7x7" },           { "resnet18", "stem_pool", "64x56x56" },
        { "resnet18", "s4_b2_relu", "512x7x7" },   { "resnet50", "s2_b1_relu", "512x28x28" },
        { "resnet50", "pool", "2048x1x1" },        { "squeezenet1.1", "pool1", "64x55x55" },
        { "squeezenet1.1", "fire9", "512x13x13" }, { "mobilenetv2", "last_clip", "1280x7x7" },
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        gp_graph *graph = zoo_graph(cases[i].name, NULL, 0);
        char text[64];

        REQUIRE(graph != NULL);
        gp_shape shape = shape_of(graph, cases[i].layer);

        CHECK_TEXT(cases[i].shape, gp_shape_format(&shape, text, sizeof(text)));
        gp_graph_free(graph);
    }
}

TEST(networks_are_built_for_other_inputs_and_classes)
{
    const gp_shape small = gp_shape3(3, 32, 32), grey = gp_shape3(1, 64, 64);
    gp_graph *graph = zoo_graph("resnet18", &small, 10);

    REQUIRE(graph != NULL);
    CHECK_INT(10, graph->class_count);
    CHECK_INT(11689512 - 513 * 990, graph->learned_count);
    CHECK_INT(3, graph->spec->normalize_count);
    CHECK(graph->couples_samples);
    gp_graph_free(graph);
    graph = zoo_graph("squeezenet1.1", &grey, 7);
    REQUIRE(graph != NULL);
    CHECK_INT(7, graph->class_count);
    CHECK_INT(1, graph->spec->normalize_count);
    CHECK(!graph->couples_samples);
    gp_graph_free(graph);
}
