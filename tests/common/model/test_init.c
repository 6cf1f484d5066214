/* test_init.c: initial parameter values; the golden numbers come from an independent Philox in
 * Python. */
#include "common/model/graph/graph.h"
#include "tests/gp_test.h"
#include "tests/common/model/nets.h"

static const gp_shape image = { 3, { 1, 28, 28 } };

static float *blob_new(const gp_graph *graph, const char *rule_text, uint64_t seed)
{
    float *blob = calloc(graph->blob_count, sizeof(float));
    gp_init_rule rule;
    gp_error err;

    if (gp_init_rule_parse(&rule, rule_text, &err) != GP_OK)
        GP_TEST_FAIL("%s: %s", rule_text, err.message);
    gp_graph_initialize(graph, rule, seed, blob);
    return blob;
}

static gp_graph *graph_new(const char *net)
{
    gp_graph *graph = NULL;
    gp_error err;

    if (net_graph(&graph, &image, net, &err) != GP_OK)
        GP_TEST_FAIL("%s: %s", net, err.message);
    return graph;
}

typedef struct moments {
    double mean, deviation, largest;
} moments;

static moments moments_of(const float *values, int64_t count)
{
    moments m = { 0 };

    for (int64_t i = 0; i < count; i++) {
        m.mean += values[i] / (double)count;
        m.largest = fmax(m.largest, fabsf(values[i]));
    }
    for (int64_t i = 0; i < count; i++)
        m.deviation += (values[i] - m.mean) * (values[i] - m.mean) / (double)count;
    m.deviation = sqrt(m.deviation);
    return m;
}

static const char *const net =
    "c conv2d channels=20;kernel=3 | f fc outputs=128 | g fc outputs=10 | l crossentropy";

TEST(initial_values_never_change)
{
    static const struct {
        const char *rule;
        float weight[6], bias[3];
    } golden[] = {
        { "glorot",
          { 0.07132826f, -0.0790148303f, -0.0584348068f, -0.0852744356f, -0.13640669f, 0.0233841948f },
          { 0, 0, 0 } },
        { "he",
          { -0.0703151077f, 0.391757011f, -0.0467675105f, 0.694636583f, -0.894310594f, -0.391157776f },
          { 0, 0, 0 } },
        { "normal:0.01",
          { -0.00149160868f, 0.00831042137f, -0.000992088695f, 0.0147354677f, -0.0189711936f,
            -0.00829770975f },
          { -0.00525640277f, -0.0134334164f, -0.00989327487f } },
    };
    gp_graph *graph = graph_new(net);

    for (int r = 0; r < 3; r++) {
        float *blob = blob_new(graph, golden[r].rule, 1);

        for (int i = 0; i < 6; i++)
            CHECK_NEAR(golden[r].weight[i], blob[graph->parameters[0].offset + i], 1e-9);
        for (int i = 0; i < 3; i++)
            CHECK_NEAR(golden[r].bias[i], blob[graph->parameters[1].offset + i], 1e-9);
        free(blob);
    }
    gp_graph_free(graph);
}

/* fc f has 13520 x 128 weights: the estimated deviation has an error below 0.1 %. */
TEST(glorot_is_uniform_and_he_is_normal_with_the_published_deviations)
{
    gp_graph *graph = graph_new(net);
    const gp_parameter *weight = &graph->parameters[2], *bias = &graph->parameters[3];
    const double bound = sqrt(6.0 / (13520 + 128)), he = sqrt(2.0 / 13520);
    float *blob = blob_new(graph, "glorot", 3);
    moments m = moments_of(blob + weight->offset, weight->count);

    CHECK_NEAR(0.0, m.mean, bound / 500);
    CHECK_NEAR(bound / sqrt(3.0), m.deviation, bound / 500);
    CHECK(m.largest <= bound * 1.0000001 && m.largest > 0.9999 * bound);
    CHECK_NEAR(0.0, moments_of(blob + bias->offset, bias->count).largest, 0.0);
    free(blob);
    blob = blob_new(graph, "he", 3);
    m = moments_of(blob + weight->offset, weight->count);
    CHECK_NEAR(0.0, m.mean, he / 200);
    CHECK_NEAR(he, m.deviation, he / 200);

    /* 1.7 million draws: normal, not truncated */
    CHECK(m.largest > 4.5 * he && m.largest < 6.5 * he);
    CHECK_NEAR(0.0, moments_of(blob + bias->offset, bias->count).largest, 0.0);
    free(blob);
    gp_graph_free(graph);
}

TEST(normal_sets_biases_too)
{
    gp_graph *graph = graph_new(net);
    float *blob = blob_new(graph, "normal:0.01", 8);
    moments all = moments_of(blob, (int64_t)graph->blob_count);
    moments bias = moments_of(blob + graph->parameters[3].offset, graph->parameters[3].count);

    CHECK_NEAR(0.01, all.deviation, 1e-4);
    CHECK_NEAR(0.0, all.mean, 1e-4);
    CHECK_NEAR(0.01, bias.deviation, 0.003); /* 128 samples */
    free(blob);
    gp_graph_free(graph);
}

TEST(initial_tensor_depends_only_on_seed_and_layer_position)
{
    gp_graph *small = graph_new("c conv2d channels=5;kernel=3;bias=false | f fc outputs=4 | l crossentropy");
    gp_graph *other = graph_new("p maxpool kernel=28 | f fc outputs=8 | g fc outputs=40 | l crossentropy");
    float *a = blob_new(small, "normal:1", 1), *b = blob_new(other, "normal:1", 1);
    float *c = blob_new(small, "normal:1", 2), *d = blob_new(small, "normal:1", 1u + (UINT64_C(1) << 32));
    const gp_parameter *fa = &small->parameters[1], *fb = &other->parameters[0], *gb = &other->parameters[2];

    CHECK_TEXT("f.weight", fa->name);
    CHECK_TEXT("f.weight", fb->name);
    for (int i = 0; i < 8; i++) {
        /* other neighboring layers, another blob */
        CHECK_NEAR(a[fa->offset + i], b[fb->offset + i], 0.0);
        CHECK(a[fa->offset + i] != b[gb->offset + i]); /* another layer */
        CHECK(a[fa->offset + i] != a[i + small->parameters[0].offset]);
        CHECK(b[fb->offset + i] != b[other->parameters[1].offset + i]); /* the bias */
        CHECK(a[fa->offset + i] != c[fa->offset + i]);                  /* another seed */

        /* another upper half of the seed */
        CHECK(a[fa->offset + i] != d[fa->offset + i]);
    }
    free(a);
    free(b);
    free(c);
    free(d);
    gp_graph_free(small);
    gp_graph_free(other);
}

TEST(rules_are_parsed_or_refused_with_a_message)
{
    static const char *const bad[] = { "",           "normal",     "normal:",    "normal:0",    "normal:-1",
                                       "normal:nan", "normal:inf", "normal:1e4", "normal:0.1x", "normal:1,2",
                                       "xavier" };
    gp_init_rule rule = { .sigma = -1 };
    gp_error err;

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        CHECK_STATUS(GP_EINVAL, gp_init_rule_parse(&rule, bad[i], &err));
        CHECK_CONTAINS(err.message, "initializer");
        CHECK_CONTAINS(err.message, bad[i]);
    }
    CHECK_NEAR(-1.0, rule.sigma, 0.0); /* unchanged */
    CHECK_STATUS(GP_EINVAL, gp_init_rule_parse(&rule, "glorott", &err));
    CHECK_CONTAINS(err.message, "did you mean 'glorot'");
    CHECK_STATUS(GP_OK, gp_init_rule_parse(&rule, "normal:0.25", &err));
    CHECK_INT(GP_INIT_NORMAL, rule.kind);
    CHECK_NEAR(0.25, rule.sigma, 0.0);
    CHECK_STATUS(GP_OK, gp_init_rule_parse(&rule, "he", &err));
    CHECK_INT(GP_INIT_HE, rule.kind);
}
