/* test_graph.c: shapes, the blob layout, and the lowering of networks. */
#include "common/model/graph/graph.h"

#include "tests/gp_test.h"
#include "tests/common/model/nets.h"
#include "tests/ref/run.h"

static const gp_shape image = { 3, { 2, 8, 6 } };

static gp_graph *lenet_graph(void)
{
    gp_netspec *spec;
    gp_graph *graph = NULL;
    gp_error err;

    if (gp_zoo_build(&spec, "lenet", NULL, 0, &err) != GP_OK || gp_graph_new(&graph, spec, &err) != GP_OK)
        GP_TEST_FAIL("lenet: %s", err.message);
    gp_netspec_free(spec);
    return graph;
}

static void check_shape(const char *expected, const gp_shape *shape)
{
    char text[64];

    CHECK_TEXT(expected, gp_shape_format(shape, text, sizeof(text)));
}

TEST(lenet_has_the_shapes_and_the_129068_parameters_of_d2l)
{
    static const char *const shapes[] = { "20x26x26", "20x26x26", "20x13x13", "50x9x9", "50x9x9",
                                          "50x4x4",   "128",      "128",      "10",     "10" };
    gp_graph *graph = lenet_graph();

    REQUIRE(graph != NULL);
    CHECK_INT(129068, graph->blob_count);
    CHECK_INT(10, graph->spec->layer_count);
    for (uint32_t i = 0; i < graph->spec->layer_count; i++)
        check_shape(shapes[i], &graph->outputs[i]);
    check_shape("1x28x28", &graph->values[graph->input].shape);
    check_shape("10", &graph->values[graph->ends[0].logits].shape);
    CHECK_INT(10, graph->class_count);
    CHECK(!graph->couples_samples);
    CHECK_INT(26 * 26 * 20 * 9 + 9 * 9 * 50 * 20 * 25 + 800 * 128 + 128 * 10, gp_graph_forward_macs(graph));
    gp_graph_free(graph);
}

TEST(parameters_lie_dense_in_backward_order_weight_before_bias)
{
    static const struct {
        const char *name, *shape;
        size_t offset;
        int64_t fan_in, fan_out;
        double l2;
    } expected[] = {
        { "conv1.weight", "20x1x3x3", 128868, 9, 180, 1 },
        { "conv1.bias", "20", 129048, 0, 0, 0 },
        { "conv2.weight", "50x20x5x5", 103818, 500, 1250, 1 },
        { "conv2.bias", "50", 128818, 0, 0, 0 },
        { "fc1.weight", "128x800", 1290, 800, 128, 1 },
        { "fc1.bias", "128", 103690, 0, 0, 0 },
        { "fc2.weight", "10x128", 0, 128, 10, 1 },
        { "fc2.bias", "10", 1280, 0, 0, 0 },
    };
    gp_graph *graph = lenet_graph();

    REQUIRE(graph != NULL && graph->parameter_count == 8);
    for (int p = 0; p < 8; p++) {
        const gp_parameter *parameter = &graph->parameters[p];

        CHECK_TEXT(expected[p].name, parameter->name);
        check_shape(expected[p].shape, &parameter->shape);
        CHECK_INT(expected[p].offset, parameter->offset);
        CHECK_INT(gp_shape_count(&parameter->shape), parameter->count);
        if (expected[p].fan_in != 0) {
            CHECK_INT(expected[p].fan_in, parameter->fan_in);
            CHECK_INT(expected[p].fan_out, parameter->fan_out);
        }
        CHECK_NEAR(1.0, parameter->learn_rate_factor, 0.0);
        CHECK_NEAR(expected[p].l2, parameter->l2_factor, 0.0); /* MATLAB: 0 for biases */
        CHECK_INT(GP_VALUE_PARAMETER, graph->values[parameter->value].role);
        CHECK_INT(GP_VALUE_PARAMETER_GRADIENT, graph->values[parameter->gradient].role);
        CHECK_INT(p, graph->values[parameter->gradient].parameter);
    }
    gp_graph_free(graph);
}

/* Format the ops of a phase: "code layer, ...". */
static void format_ops(const gp_graph *graph, gp_phase phase, char *text, size_t bytes)
{
    size_t used = 0;

    text[0] = '\0';
    for (uint32_t i = 0; i < graph->ops[phase].count && used < bytes; i++) {
        const gp_op *op = &graph->ops[phase].op[i];

        used += (size_t)snprintf(text + used, bytes - used, "%s%s %s", i == 0 ? "" : ", ",
                                 gp_op_name(op->code), graph->spec->layers[op->layer].name);
    }
}

TEST(lenet_lowers_to_the_expected_ops_without_an_input_gradient)
{
    char text[2048];
    gp_graph *graph = lenet_graph();

    REQUIRE(graph != NULL);
    format_ops(graph, GP_PHASE_TRAIN, text, sizeof(text));
    CHECK_TEXT(
        "conv2d conv1, relu relu1, pool pool1, conv2d conv2, relu relu2, pool pool2, fc fc1, relu relu3, "
        "fc fc2, softmax_xent loss, "
        "fc_backward_weights fc2, fc_backward_data fc2, relu_backward relu3, "
        "fc_backward_weights fc1, fc_backward_data fc1, pool_backward pool2, relu_backward relu2, "
        "conv2d_backward_weights conv2, conv2d_backward_data conv2, pool_backward pool1, "
        "relu_backward relu1, conv2d_backward_weights conv1",
        text);
    CHECK_INT(10, graph->ops[GP_PHASE_TRAIN].forward_count);
    format_ops(graph, GP_PHASE_INFER, text, sizeof(text));
    CHECK_TEXT(
        "conv2d conv1, relu relu1, pool pool1, conv2d conv2, relu relu2, pool pool2, fc fc1, relu relu3, "
        "fc fc2, softmax_xent loss",
        text);
    CHECK_INT(10, graph->ops[GP_PHASE_INFER].forward_count);
    gp_graph_free(graph);
}

/* Check the guarantees for backends: every value is written once before it is read, and parameter
 * gradients become final in blob order. */
static void check_dataflow(const gp_graph *graph, gp_phase phase)
{
    bool *written = calloc(graph->value_count, sizeof(*written));
    size_t final = 0;

    for (uint32_t v = 0; v < graph->value_count; v++)
        written[v] = graph->values[v].role == GP_VALUE_INPUT || graph->values[v].role == GP_VALUE_TARGET ||
                     graph->values[v].role == GP_VALUE_PARAMETER;
    for (uint32_t i = 0; i < graph->ops[phase].count; i++) {
        const gp_op *op = &graph->ops[phase].op[i];

        for (int k = 0; k < GP_OP_VALUES_MAX; k++)
            CHECK(op->in[k] == GP_NO_VALUE || written[op->in[k]]);
        for (int k = 0; k < GP_OP_VALUES_MAX; k++) {
            if (op->out[k] == GP_NO_VALUE)
                continue;
            const gp_value *value = &graph->values[op->out[k]];

            /* every loss adds to the sums */
            CHECK(!written[op->out[k]] || op->out[k] == graph->sums);
            written[op->out[k]] = true;
            if (value->role != GP_VALUE_PARAMETER_GRADIENT)
                continue;
            CHECK_INT(GP_PHASE_TRAIN, phase);
            CHECK_INT(final, graph->parameters[value->parameter].offset);
            final += (size_t)graph->parameters[value->parameter].count;
        }
    }
    if (phase == GP_PHASE_TRAIN)
        CHECK_INT(graph->blob_count, final);
    for (uint32_t i = 0; i < graph->end_count; i++) {
        CHECK_INT(phase == GP_PHASE_INFER, written[graph->ends[i].scores]);
        CHECK(written[graph->ends[i].logits]);
    }
    CHECK(written[graph->sums]);
    free(written);
}

static const char *const branched[] = {
    "c conv2d channels=3;kernel=3;padding=1 | r relu < c | d conv2d channels=3;kernel=1 < r | a add < d,r | "
    "f fc outputs=4 | l crossentropy",

    /* three readers of one value, one of them twice */
    "c conv2d channels=2;kernel=3;padding=1 | p conv2d channels=2;kernel=1 < c | q dropout < c | "
    "a add < c,p,q,c | m maxpool kernel=2 | n avgpool kernel=2 < a | s add < m,n | f fc outputs=3 | "
    "l crossentropy",

    /* the input read twice, and a branch without parameters */
    "m maxpool kernel=3;stride=1;padding=1 | c conv2d channels=2;kernel=1 < input | a add < m,c | "
    "f fc outputs=3 | l crossentropy",

    /* the loss input has another reader: its gradient combines loss and reader */
    "f fc outputs=3 | g fc outputs=3 | h add < f,g | l crossentropy",

    /* multiplication per channel; overlapping pieces */
    "a conv2d channels=3;kernel=1 | g globalavgpool | e conv2d channels=3;kernel=1 | s sigmoid | m multiply "
    "< a,s | "
    "n multiply < m,g | f fc outputs=3 | l crossentropy",
    "a conv2d channels=2;kernel=1 | b conv2d channels=4;kernel=3;same=lower < a | c concat < b,a,b | "
    "d crop start=1,2,0;size=6,0,4 | e pad padding=1,0,0,1 | t transpose order=2,0,1 | p softmax | "
    "h reshape shape=7,-1,5 | f fc outputs=3 | l crossentropy",

    /* several losses: for classes, pixels and values; two on one layer that has another reader */
    "c conv2d channels=3;kernel=3;padding=1 | p pixelclassification loss-factor=0.3 | d dice loss-factor=2 < "
    "c | "
    "f fc outputs=3 < c | l crossentropy label-smoothing=0.1 | g fc outputs=2 < f | m huber delta=0.4",
};

TEST(values_are_written_once_before_reads_and_gradients_complete_in_blob_order)
{
    gp_graph *graph = lenet_graph();
    gp_error err;

    REQUIRE(graph != NULL);
    check_dataflow(graph, GP_PHASE_TRAIN);
    check_dataflow(graph, GP_PHASE_INFER);
    gp_graph_free(graph);
    for (size_t i = 0; i < sizeof(branched) / sizeof(branched[0]); i++) {
        REQUIRE_OK(net_graph(&graph, &image, branched[i], &err), err);
        check_dataflow(graph, GP_PHASE_TRAIN);
        check_dataflow(graph, GP_PHASE_INFER);
        gp_graph_free(graph);
    }
}

TEST(gradients_of_a_value_with_two_readers_are_added)
{
    char text[2048];
    gp_graph *graph;
    gp_error err;

    REQUIRE_OK(net_graph(&graph, &image, branched[0], &err), err);
    format_ops(graph, GP_PHASE_TRAIN, text, sizeof(text));
    CHECK_TEXT("conv2d c, relu r, conv2d d, add a, fc f, softmax_xent l, fc_backward_weights f, "
               "fc_backward_data f, reshape a, reshape a, conv2d_backward_weights d, conv2d_backward_data d, "
               "add d, relu_backward r, conv2d_backward_weights c",
               text);
    gp_graph_free(graph);
}

TEST(layer_without_trainable_inputs_has_no_backward_op)
{
    char text[2048];
    gp_graph *graph;
    gp_error err;

    REQUIRE_OK(net_graph(&graph, &image, branched[2], &err), err);
    format_ops(graph, GP_PHASE_TRAIN, text, sizeof(text));
    CHECK_TEXT("pool m, conv2d c, add a, fc f, softmax_xent l, fc_backward_weights f, fc_backward_data f, "
               "reshape a, conv2d_backward_weights c",
               text);
    gp_graph_free(graph);
    REQUIRE_OK(net_graph(&graph, &image, "r relu | v flatten | l crossentropy", &err), err);
    format_ops(graph, GP_PHASE_TRAIN, text, sizeof(text));
    CHECK_TEXT("relu r, reshape v, softmax_xent l", text);
    CHECK_INT(0, graph->blob_count);
    gp_graph_free(graph);
}

#define FROZEN "weight-learn-rate-factor=0;bias-learn-rate-factor=0"

TEST(backward_stops_at_the_first_trainable_layer_and_skips_frozen_gradients)
{
    static const struct {
        const char *net, *ops;
    } cases[] = {
        { "c conv2d channels=2;kernel=3;" FROZEN " | r relu | d conv2d channels=2;kernel=3;" FROZEN
          " | p maxpool kernel=2 | f fc outputs=4 | s relu | g fc outputs=3 | l crossentropy",
          "fc_backward_weights g, fc_backward_data g, relu_backward s, fc_backward_weights f" },
        { "c conv2d channels=2;kernel=3 | d conv2d channels=2;kernel=3;" FROZEN " | f fc outputs=4;" FROZEN
          " | g fc outputs=3 | l crossentropy",
          "fc_backward_weights g, fc_backward_data g, fc_backward_data f, conv2d_backward_data d, "
          "conv2d_backward_weights c" },

        /* Half a layer: one op computes both gradients. */
        { "f fc outputs=4;weight-learn-rate-factor=0 | g fc outputs=3;" FROZEN " | l crossentropy",
          "fc_backward_data g, fc_backward_weights f" },

        /* One branch is frozen; batch norm gradients are computed with the other branch. */
        { "c conv2d channels=2;kernel=1 | d conv2d channels=2;kernel=1;" FROZEN " < input | "
          "n batchnorm " FROZEN " < c | a add < n,d | f fc outputs=3 | l crossentropy",
          "fc_backward_weights f, fc_backward_data f, reshape a, batchnorm_backward n, "
          "conv2d_backward_weights c" },
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char text[2048];
        gp_graph *graph;
        gp_error err;

        REQUIRE_OK(net_graph(&graph, &image, cases[i].net, &err), err);
        format_ops(graph, GP_PHASE_TRAIN, text, sizeof(text));
        const char *backward = strstr(text, "softmax_xent l, ");

        REQUIRE(backward != NULL);
        CHECK_TEXT(cases[i].ops, backward + strlen("softmax_xent l, "));
        gp_graph_free(graph);
    }
}

TEST(fully_frozen_network_has_no_backward_ops)
{
    gp_graph *graph;
    gp_error err;

    REQUIRE_OK(net_graph(&graph, &image, "f fc outputs=3;" FROZEN " | l crossentropy", &err), err);
    CHECK_INT(2, graph->ops[GP_PHASE_TRAIN].count);
    CHECK(!gp_parameter_learns(&graph->parameters[0]));
    gp_graph_free(graph);
}

/* Along one random direction over all parameters. */
TEST(gradients_of_branched_networks_equal_finite_differences)
{
    for (size_t i = 0; i < sizeof(branched) / sizeof(branched[0]); i++) {
        void *targets;
        double input[2 * 96], *blob, *moved, slope = 0.0, loss[2];
        gp_graph *graph;
        gp_error err;

        REQUIRE_OK(net_graph(&graph, &image, branched[i], &err), err);
        targets = gp_ref_targets_new(graph, 2, 12);
        blob = calloc(graph->blob_count, sizeof(double));
        moved = calloc(graph->blob_count, sizeof(double));
        for (int e = 0; e < 2 * 96; e++)
            input[e] = sin(1.7 * e + 0.3);
        for (size_t e = 0; e < graph->blob_count; e++)
            blob[e] = 0.5 * sin(2.9 * (double)e + 1.1);
        gp_ref_batch batch = { .blob = blob, .input = input, .targets = targets, .count = 2, .seed = 4 };
        gp_ref_run *run = gp_ref_run_new(graph, GP_PHASE_TRAIN, &batch);

        for (size_t e = 0; e < graph->blob_count; e++)
            slope += run->gradients[e] * cos(5.3 * (double)e);
        gp_ref_run_free(run);
        batch.blob = moved;
        for (int side = 0; side < 2; side++) {
            for (size_t e = 0; e < graph->blob_count; e++)
                moved[e] = blob[e] + (side == 0 ? -1e-6 : 1e-6) * cos(5.3 * (double)e);
            run = gp_ref_run_new(graph, GP_PHASE_TRAIN, &batch);
            loss[side] = run->sums[GP_SUM_LOSS];
            gp_ref_run_free(run);
        }
        CHECK_NEAR((loss[1] - loss[0]) / 2e-6, slope, 1e-7 * fmax(1.0, fabs(slope)));
        free(targets);
        free(blob);
        free(moved);
        gp_graph_free(graph);
    }
}

TEST(network_has_at_most_2147483647_parameters)
{
    gp_graph *graph = NULL;
    gp_error err;

    REQUIRE_OK(net_graph(&graph, &image, "f fc outputs=46000 | g fc outputs=46000 | l crossentropy", &err),
               err);
    CHECK_INT(2120508000, graph->blob_count);
    gp_graph_free(graph);
    graph = NULL;
    CHECK_STATUS(GP_ELIMIT,
                 net_graph(&graph, &image, "f fc outputs=46294 | g fc outputs=46294 | l crossentropy", &err));
    CHECK_CONTAINS(err.message, "the network has 2147624954 parameters up to this layer, at most 2147483647");
    CHECK(graph == NULL);
}

TEST(invalid_network_is_refused_with_a_message)
{
    static const struct {
        const char *net, *part[3];
    } cases[] = {
        { "c conv2d channels=2;kernel=9,3 | f fc outputs=2 | l crossentropy",
          { "c (conv2d)", "kernel 9x3 is larger than the input of 8x6", "smaller kernel" } },
        { "c conv2d channels=2;kernel=3;dilation=4 | f fc outputs=2 | l crossentropy",
          { "kernel 9x9 (with its dilation)", "8x6" } },
        { "c conv2d channels=2;kernel=9;padding=1,0,0,0 | f fc outputs=2 | l crossentropy",
          { "padded to 9x6", "c (conv2d)" } },
        { "c conv2d kernel=3 | f fc outputs=2 | l crossentropy", { "channels=N" } },
        { "c conv2d channels=2 | f fc outputs=2 | l crossentropy", { "kernel is missing", "kernel=3" } },
        { "c conv2d channels=4;kernel=1;groups=3 | f fc outputs=2 | l crossentropy",
          { "3 groups do not divide", "2 input and 4 output" } },
        { "v flatten | c conv2d channels=4;kernel=1 | f fc outputs=2 | l crossentropy",
          { "c (conv2d)", "shape 96", "channels x height x width" } },
        { "p maxpool kernel=2;padding=2 | f fc outputs=2 | l crossentropy", { "only padding", "at most 1" } },
        { "p avgpool kernel=3,1;padding=0,1 | f fc outputs=2 | l crossentropy", { "p (avgpool)" } },
        { "f fc | l crossentropy", { "outputs=N" } },
        { "f fc outputs=2", { "the last layer f (fc) is not a loss", "add crossentropy" } },
        { "f fc outputs=1 | l crossentropy", { "at least 2 classes" } },
        { "f flatten | l pixelclassification",
          { "l (pixelclassification)", "shape 96", "classes x height x width" } },
        { "f flatten | l dice", { "l (dice)", "shape 96", "2 to 1024 classes" } },
        { "f fc outputs=2 | l crossentropy | g fc outputs=2 | m crossentropy",
          { "l (crossentropy) is a loss", "g reads it" } },
        { "f fc outputs=2 | g fc outputs=2 < input | l crossentropy", { "no layer reads f (fc)" } },
        { "c conv2d channels=2;kernel=3 | a add < c,input | f fc outputs=2 | l crossentropy",
          { "a (add)", "2x6x4 and 2x8x6" } },
        { "r relu | a add | f fc outputs=2 | l crossentropy",
          { "it has 1 inputs, but this kind takes 2 to 8" } },
        { "r relu | s relu < r,r | f fc outputs=2 | l crossentropy",
          { "it has 2 inputs, but this kind takes 1 to 1" } },
        { "r relu weight-l2-factor=2 | f fc outputs=2 | l crossentropy",
          { "has no weights", "weight-l2-factor has no effect" } },
        { "f fc outputs=1048576 | g fc outputs=1048576 | l crossentropy", { "g (fc)" } },
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        gp_graph *graph = NULL;
        gp_error err = { .message = "" };
        gp_status status = net_graph(&graph, &image, cases[i].net, &err);

        if (status != GP_EINVAL && status != GP_ELIMIT)
            GP_TEST_FAIL("%s: %s", cases[i].net, gp_status_name(status));
        for (int k = 0; k < 3 && cases[i].part[k] != NULL; k++)
            CHECK_CONTAINS(err.message, cases[i].part[k]);
        CHECK(graph == NULL);
        gp_graph_free(graph);
    }
}

TEST(graph_without_layers_is_refused)
{
    gp_netspec *spec;
    gp_graph *graph = NULL;
    gp_error err;

    REQUIRE_OK(gp_netspec_new(&spec, "empty", &image, &err), err);
    CHECK_STATUS(GP_EINVAL, gp_graph_new(&graph, spec, &err));
    CHECK_CONTAINS(err.message, "empty has no layers");
    gp_netspec_free(spec);
}

TEST(a_graph_survives_every_failing_allocation)
{
    gp_netspec *spec;
    gp_graph *graph;
    gp_error err;

    REQUIRE_OK(gp_zoo_build(&spec, "lenet", NULL, 0, &err), err);
    CHECK_EVERY_ALLOCATION(gp_graph_new(&graph, spec, NULL), gp_graph_free(graph));
    gp_netspec_free(spec);
    REQUIRE_OK(net_parse(&spec, &image, branched[1], &err), err);
    CHECK_EVERY_ALLOCATION(gp_graph_new(&graph, spec, NULL), gp_graph_free(graph));
    gp_netspec_free(spec);
}

static uint64_t hash_of(const char *net)
{
    gp_graph *graph;
    gp_error err;

    if (net_graph(&graph, &image, net, &err) != GP_OK) {
        GP_TEST_FAIL("%s: %s", net, err.message);
        return 0;
    }
    uint64_t hash = gp_graph_layout_hash(graph);

    gp_graph_free(graph);
    return hash;
}

TEST(layout_hash_depends_on_names_shapes_and_order)
{
    static const char *const nets[] = {
        "c conv2d channels=4;kernel=3,2 | f fc outputs=2 | l crossentropy",

        /* equal number of weights */
        "c conv2d channels=4;kernel=2,3 | f fc outputs=2 | l crossentropy",
        "c conv2d channels=4;kernel=3,2;bias=false | f fc outputs=2 | l crossentropy",
        "d conv2d channels=4;kernel=3,2 | f fc outputs=2 | l crossentropy",
        "c conv2d channels=4;kernel=3,2;groups=2 | f fc outputs=2 | l crossentropy",
        "c conv2d channels=4;kernel=3,2 | f fc outputs=3 | l crossentropy",

        /* fc reads fewer values */
        "c conv2d channels=4;kernel=3,2;stride=2 | f fc outputs=2 | l crossentropy",
        "a fc outputs=96 | b fc outputs=96 | l crossentropy",

        /* two tensors with one shape swapped */
        "b fc outputs=96 | a fc outputs=96 | l crossentropy",
    };
    enum { COUNT = sizeof(nets) / sizeof(nets[0]) };
    uint64_t hash[COUNT];

    for (int i = 0; i < COUNT; i++) {
        hash[i] = hash_of(nets[i]);
        CHECK(hash[i] == hash_of(nets[i]));
        for (int j = 0; j < i; j++)
            if (hash[i] == hash[j])
                GP_TEST_FAIL("one hash for \"%s\" and \"%s\"", nets[i], nets[j]);
    }

    /* Layers without an effect on the blob do not change the hash. */
    CHECK(hash_of("c conv2d channels=4;kernel=3,2 | r relu | f fc outputs=2 | l crossentropy") == hash[0]);
}

TEST(bias_false_removes_the_bias_and_factors_reach_the_parameters)
{
    gp_graph *graph;
    gp_error err;

    REQUIRE_OK(net_graph(&graph, &image,
                         "c conv2d channels=4;kernel=3;bias=false;weight-learn-rate-factor=0 | "
                         "f fc outputs=2;weight-l2-factor=0.5;bias-l2-factor=2;bias-learn-rate-factor=3 | "
                         "l crossentropy",
                         &err),
               err);
    CHECK_INT(3, graph->parameter_count);
    CHECK_TEXT("c.weight", graph->parameters[0].name);
    CHECK_NEAR(0.0, graph->parameters[0].learn_rate_factor, 0.0);
    CHECK_NEAR(1.0, graph->parameters[1].learn_rate_factor, 0.0);
    CHECK_NEAR(0.5, graph->parameters[1].l2_factor, 0.0);
    CHECK_NEAR(3.0, graph->parameters[2].learn_rate_factor, 0.0);
    CHECK_NEAR(2.0, graph->parameters[2].l2_factor, 0.0);
    gp_graph_free(graph);
}

TEST(layout_hash_depends_on_offsets)
{
    gp_graph *graph = lenet_graph();

    REQUIRE(graph != NULL);
    uint64_t hash = gp_graph_layout_hash(graph);

    graph->parameters[0].offset++;
    CHECK(gp_graph_layout_hash(graph) != hash);
    gp_graph_free(graph);
}

static void check_numbers(const char *what, const int32_t *expected, const int32_t *got, int count)
{
    for (int i = 0; i < count; i++)
        if (expected[i] != got[i])
            GP_TEST_FAIL("%s[%d] is %d, expected %d", what, i, got[i], expected[i]);
}

/* Finite differences cannot detect a setting lost in both forward and backward. */
TEST(settings_reach_the_ops_forward_and_backward)
{
    gp_graph *graph;
    gp_error err;
    int convolutions = 0, pools = 0, dropouts = 0;

    REQUIRE_OK(
        net_graph(&graph, &image,
                  "z conv2d channels=4;kernel=1 | "
                  "c conv2d channels=6;kernel=3,2;stride=2,1;dilation=1,3;padding=1,2,4,3;groups=2 | "
                  "d dropout rate=0.25 | p avgpool kernel=2,3;stride=1,2;padding=1,0,0,2;count-padding=yes | "
                  "m maxpool kernel=2,1 | q avgpool kernel=1 | f fc outputs=2 | l crossentropy",
                  &err),
        err);
    CHECK_INT(6, graph->parameters[2].shape.dim[0]);
    CHECK_INT(2, graph->parameters[2].shape.dim[1]);
    CHECK_INT(2 * 6, graph->parameters[2].fan_in);
    CHECK_INT(3 * 6, graph->parameters[2].fan_out);
    for (uint32_t i = 0; i < graph->ops[GP_PHASE_TRAIN].count; i++) {
        const gp_op *op = &graph->ops[GP_PHASE_TRAIN].op[i];
        char layer = graph->spec->layers[op->layer].name[0];

        if (layer == 'c') {
            check_numbers("kernel", (const int32_t[]){ 3, 2 }, op->window.kernel, 2);
            check_numbers("stride", (const int32_t[]){ 2, 1 }, op->window.stride, 2);
            check_numbers("dilation", (const int32_t[]){ 1, 3 }, op->window.dilation, 2);
            check_numbers("padding", (const int32_t[]){ 1, 2, 4, 3 }, op->window.padding, 4);
            CHECK_INT(2, op->window.groups);
            convolutions++;
        } else if (layer == 'p') {
            check_numbers("kernel", (const int32_t[]){ 2, 3 }, op->window.kernel, 2);
            check_numbers("stride", (const int32_t[]){ 1, 2 }, op->window.stride, 2);
            check_numbers("padding", (const int32_t[]){ 1, 0, 0, 2 }, op->window.padding, 4);
            CHECK_INT(GP_POOL_AVERAGE_COUNT_PADDING, op->pool);
            pools++;
        } else if (layer == 'm') {
            check_numbers("kernel", (const int32_t[]){ 2, 1 }, op->window.kernel, 2);

            /* stride of the kernel window */
            check_numbers("stride", (const int32_t[]){ 2, 1 }, op->window.stride, 2);
            check_numbers("dilation", (const int32_t[]){ 1, 1 }, op->window.dilation, 2);
            CHECK_INT(GP_POOL_MAX, op->pool);
            pools++;
        } else if (layer == 'q') {
            CHECK_INT(GP_POOL_AVERAGE, op->pool);
            pools++;
        } else if (layer == 'd') {
            CHECK_NEAR(0.25, op->rate, 0.0);
            dropouts++;
        }
    }
    CHECK_INT(3, convolutions);
    CHECK_INT(6, pools);
    CHECK_INT(2, dropouts);
    gp_graph_free(graph);
}
