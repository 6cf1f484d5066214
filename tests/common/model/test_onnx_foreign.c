/* test_onnx_foreign.c: graphs of other programs: computed constants, unsupported dimensions,
 * arithmetic with constants, weights in separate files.
 *
 * onnx_oracle.py, onnx_cases.py and onnx_light.py compare the values with onnxruntime; this file
 * checks the resulting graph and refused files. */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/common/model/onnx_bytes.h"
#include "tests/leftovers.h"

/* Append an int64 tensor such as "1 -1". */
static void put_list(gp_buffer *graph, const char *name, const char *numbers)
{
    gp_buffer tensor = message();
    int64_t count = 0;
    char words[128], *rest;

    snprintf(words, sizeof(words), "%s", numbers);
    for (char *word = strtok_r(words, " ", &rest); word != NULL; word = strtok_r(NULL, " ", &rest), count++)
        put_int(&tensor, 7, atoll(word));
    put_int(&tensor, 1, count);
    put_int(&tensor, 2, 7);
    put_text(&tensor, 8, name);
    put_message(graph, 5, &tensor);
}

static void check_refused_model(gp_status wanted, const char *part, gp_buffer *graph)
{
    gp_buffer file = model_of(graph, 13);
    loaded l = { 0 };
    gp_error err;

    CHECK_STATUS(wanted, load(&l, &file, &err));
    CHECK_CONTAINS(err.message, part);
    loaded_free(&l);
    gp_buffer_deinit(&file);
}

/* Format the layer kinds of a network, separated by blanks. */
static const char *kinds_of(const gp_netspec *spec, char text[256])
{
    size_t used = 0;

    *text = '\0';
    for (uint32_t i = 0; i < spec->layer_count; i++)
        used +=
            (size_t)snprintf(text + used, 256 - used, "%s%s", i == 0 ? "" : " ", spec->layers[i].kind->name);
    return text;
}

static void check_kinds(const char *wanted, gp_buffer *graph, int64_t opset)
{
    gp_buffer file = model_of(graph, opset);
    loaded l = { 0 };
    gp_error err;
    char text[256];

    REQUIRE_OK(load(&l, &file, &err), err);
    CHECK_TEXT(wanted, kinds_of(l.spec, text));
    loaded_free(&l);
    gp_buffer_deinit(&file);
}

/* ---- input scale ---- */

static void check_scale_unknown(bool wanted, gp_buffer *graph)
{
    gp_buffer file = model_of(graph, 13);
    loaded l = { 0 };
    gp_error err;

    REQUIRE_OK(load(&l, &file, &err), err);
    CHECK_INT(wanted, l.spec->scale_unknown);
    loaded_free(&l);
    gp_buffer_deinit(&file);
}

TEST(pixel_scale_is_unknown_without_arithmetic_before_the_first_layer)
{
    static const struct {
        const char *type, *constant; /* type and constant of the first node */
        bool unknown;
    } cases[] = { { "Sub", "one", false },
                  { "Div", "one", false },
                  { "Mul", "each", false },
                  { "Relu", "", true },
                  { "Dropout", "", true } };
    gp_buffer graph;
    char inputs[16];

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        graph = graph_of();

        /* even arithmetic without an effect defines the scale */
        put_tensor(&graph, "one", "1", 1, 0);
        put_tensor(&graph, "each", "1 2 1 1", 2, 1);
        snprintf(inputs, sizeof(inputs), "x %s", cases[i].constant);
        put_node(&graph, cases[i].type, "first", inputs, "a", "");
        put_node(&graph, "Flatten", "flat", "a", "y", "");
        check_scale_unknown(cases[i].unknown, &graph);
    }

    /* Arithmetic after a transposition still defines the scale, but not after a computing layer. */
    graph = graph_of();
    put_tensor(&graph, "half", "1", 0.5, 0);
    put_node(&graph, "Transpose", "t", "x", "t", "perm=0,2,3,1");
    put_node(&graph, "Mul", "half", "t half", "a", "");
    put_node(&graph, "Flatten", "flat", "a", "y", "");
    check_scale_unknown(false, &graph);
    graph = graph_of();
    put_tensor(&graph, "half", "1", 0.5, 0);
    put_node(&graph, "Relu", "r", "x", "r", "");
    put_node(&graph, "Mul", "half", "r half", "a", "");
    put_node(&graph, "Flatten", "flat", "a", "y", "");
    check_scale_unknown(true, &graph);
}

/* ---- constant folding ---- */

TEST(computed_shape_is_a_reshape_for_any_number_of_samples)
{
    gp_buffer graph = graph_of();

    put_list(&graph, "zero", "0");
    put_list(&graph, "one", "1");
    put_list(&graph, "rest", "8 4");
    put_node(&graph, "Relu", "r", "x", "r", "");
    put_node(&graph, "Shape", "s", "r", "s", "");
    put_node(&graph, "Gather", "g", "s zero", "n", "axis=0"); /* number of samples: unknown */
    put_node(&graph, "Concat", "c", "n rest one", "to", "axis=0");
    put_node(&graph, "Reshape", "v", "r to", "v", "");
    put_node(&graph, "Flatten", "f", "v", "y", "");
    check_kinds("relu reshape flatten crossentropy", &graph, 13);
}

TEST(arithmetic_with_the_number_of_samples_is_refused)
{
    gp_buffer graph = graph_of();

    put_list(&graph, "zero", "0");
    put_list(&graph, "two", "2");
    put_node(&graph, "Shape", "s", "x", "s", "");
    put_node(&graph, "Gather", "g", "s zero", "n", "axis=0");
    put_node(&graph, "Mul", "twice", "n two", "t", "");
    check_refused_model(GP_EUNSUPPORTED, "node 'twice' (Mul, opset 13): the number of samples is unknown",
                        &graph);
}

TEST(weights_from_constant_of_shape_have_the_size_of_the_layer)
{
    gp_buffer graph = graph_of(), file;
    loaded l = { 0 };
    gp_error err;

    put_list(&graph, "size", "32 3");
    put_node(&graph, "ConstantOfShape", "zeros", "size", "w0", "");
    put_node(&graph, "Add", "ones", "w0 half", "w1", "");
    put_tensor(&graph, "half", "1", 0.5, 0);
    put_node(&graph, "Flatten", "f", "x", "f", "");
    put_node(&graph, "MatMul", "m1", "f w1", "y", "");
    file = model_of(&graph, 13);
    REQUIRE_OK(load(&l, &file, &err), err);
    for (int i = 0; i < 96; i++)
        CHECK_NEAR(0.5, (double)l.blob[i], 0);
    loaded_free(&l);
    gp_buffer_deinit(&file);
}

/* Build a chain of nodes that double a constant at each step. */
static gp_buffer bomb(const char *type, const char *attributes)
{
    gp_buffer graph = graph_of();
    char in[8] = "seed", out[8], inputs[16];

    put_list(&graph, "seed", "1 1 1 1 1 1 1 1");
    for (int i = 0; i < 40; i++) {
        snprintf(out, sizeof(out), "b%d", i);
        snprintf(inputs, sizeof(inputs), "%s %s", in, in);
        put_node(&graph, type, out, inputs, out, attributes);
        strcpy(in, out);
    }
    return graph;
}

TEST(folding_bombs_stop_at_the_limit)
{
    gp_buffer graph = bomb("Concat", "axis=0");

    check_refused_model(GP_ELIMIT, "exceed 40 MiB", &graph);

    graph = graph_of();
    put_list(&graph, "huge", "1048576 1048576"); /* 2^40 */
    put_node(&graph, "ConstantOfShape", "c", "huge", "c", "");
    check_refused_model(GP_ELIMIT, "more than 2147483648 elements", &graph);

    graph = graph_of();

    /* 2^30 elements, which are materialized only on use */
    put_list(&graph, "large", "32768 32768");
    put_node(&graph, "ConstantOfShape", "c", "large", "c", "");
    put_node(&graph, "Transpose", "t", "c", "t", "perm=1,0");
    check_refused_model(GP_ELIMIT, "exceed 40 MiB", &graph);

    graph = graph_of();
    put_list(&graph, "one", "1");
    put_list(&graph, "wide", "65536 65536");
    put_node(&graph, "Expand", "e", "one wide", "e", "");
    check_refused_model(GP_ELIMIT, "more than 2147483648 elements", &graph);
}

TEST(constant_weights_are_limited)
{
    gp_buffer graph = graph_of(), file;
    const gp_onnx_options options = { .repeated_max = 95 };
    loaded l = { 0 };
    gp_error err;

    put_list(&graph, "size", "32 3");
    put_node(&graph, "ConstantOfShape", "zeros", "size", "w0", "");
    put_node(&graph, "Flatten", "f", "x", "f", "");
    put_node(&graph, "MatMul", "m1", "f w0", "y", "");
    file = model_of(&graph, 13);
    CHECK_STATUS(GP_ELIMIT, gp_onnx_read(&l.spec, &l.blob, &l.class_names, &l.class_count, file.data,
                                         file.bytes, &options, &err));
    CHECK_CONTAINS(err.message, "constants to 96 weights");
    gp_buffer_deinit(&file);
}

static void check_fold_refused_as(gp_status status, const char *part, const char *type, const char *inputs,
                                  const char *attributes)
{
    gp_buffer graph = graph_of();

    put_list(&graph, "list", "1 2 3");
    put_list(&graph, "none", "");
    put_list(&graph, "zero", "0");
    put_list(&graph, "nine", "1 1 1 1 1 1 1 1 1");
    put_list(&graph, "far", "9223372036854775807");
    put_list(&graph, "minus", "-3");
    put_list(&graph, "void", "0 4611686018427387904 4611686018427387904");
    put_node(&graph, type, "odd one", inputs, "o", attributes);
    check_refused_model(status, part, &graph);
}

static void check_fold_refused(const char *part, const char *type, const char *inputs, const char *attributes)
{
    check_fold_refused_as(GP_EINVAL, part, type, inputs, attributes);
}

TEST(invalid_constants_are_refused)
{
    check_fold_refused("its index 9223372036854775807 is not between", "Gather", "list far", "axis=0");
    check_fold_refused("it has no axis 1", "Gather", "list list", "axis=1");
    check_fold_refused("it has no axis -2", "Gather", "list list", "axis=-2");
    check_fold_refused("it has no axis -3", "Flatten", "list", "axis=-3");
    check_fold_refused_as(GP_EUNSUPPORTED, "9223372036854775807 does not fit in int32", "Cast", "far",
                          "to=6");
    check_fold_refused("its index 1 is not between", "Gather", "none list", "axis=0");
    check_fold_refused("int64 overflow", "Add", "far far", "");
    check_fold_refused("division by zero", "Div", "list zero", "");
    check_fold_refused("sizes 3 and 9 do not broadcast", "Mul", "list nine", "");
    check_fold_refused("its inputs are of types int64 and float32", "Add", "list w", "");
    check_fold_refused("does not match", "Reshape", "list minus", "");
    check_fold_refused("axis 0 is present twice", "Unsqueeze", "list", "axes=0,0");
    check_fold_refused("its perm has axis 0 twice", "Transpose", "w", "perm=0,0,1,1");
    check_fold_refused("its inputs differ", "Concat", "w b", "axis=0");
}

TEST(concat_of_many_constants_is_folded)
{
    gp_buffer graph = graph_of();
    char inputs[256] = "";

    put_list(&graph, "s", "0");
    put_list(&graph, "i", "1");
    put_list(&graph, "n", "32");
    for (int i = 0; i < 63; i++)
        strcat(inputs, i == 0 ? "s" : " i");
    strcat(inputs, " n");
    put_node(&graph, "Concat", "c", inputs, "c", "axis=0");
    put_list(&graph, "ends", "0 63");
    put_node(&graph, "Gather", "g", "c ends", "to", "axis=0");
    put_node(&graph, "Reshape", "r", "x to", "y", "");
    check_kinds("flatten crossentropy", &graph, 13);
}

TEST(dimensions_beside_one_of_zero_do_not_overflow)
{
    check_fold_refused_as(GP_ELIMIT, "more than 2147483648 elements", "ConstantOfShape", "void", "");
    check_fold_refused_as(GP_EINVAL, "do not match", "Reshape", "none void", "allowzero=1");
}

TEST(inputs_over_the_sample_limit_are_refused)
{
    static const char *const dims[] = { "1 3 32 4611686018427387904",
                                        "1 3 4611686018427387904 4611686018427387904",
                                        "N 4611686018427387904 32 32", "1 3 16384 16384" };

    for (size_t i = 0; i < sizeof(dims) / sizeof(dims[0]); i++)
        for (int more = 0; more < 2; more++) {
            gp_buffer graph = message();

            put_port(&graph, 11, "x", dims[i]);
            if (more != 0)
                put_port(&graph, 11, "z", dims[i]);
            put_port(&graph, 12, "y", "N 3");
            put_node(&graph, "Relu", "r", "x", "y", "");
            check_refused_model(GP_ELIMIT, "a tensor has more than 268435456 elements", &graph);
        }
}

/* ---- dimensions ---- */

TEST(concat_of_too_many_inputs_is_split_into_groups_of_neighbors)
{
    gp_buffer graph = graph_of();

    for (int i = 0; i < 10; i++) {
        char name[8];

        snprintf(name, sizeof(name), "r%d", i);
        put_node(&graph, "Relu", name, "x", name, "");
    }
    put_node(&graph, "Concat", "c", "r0 r1 r2 r3 r4 r5 r6 r7 r8 r9", "c", "axis=1");
    put_node(&graph, "ReduceMean", "m", "c", "y", "axes=2,3 keepdims=0");
    check_kinds(
        "relu relu relu relu relu relu relu relu relu relu concat concat concat globalavgpool flatten "
        "crossentropy",
        &graph, 13);
}

TEST(block_over_channels_last_needs_no_transpose)
{
    gp_buffer graph = graph_of(); /* x: [N, 2, 4, 4] */

    put_tensor(&graph, "one", "2", 0, 1);
    put_tensor(&graph, "up", "2 6", 0, 1);
    put_tensor(&graph, "upb", "6", 0, 1);
    put_tensor(&graph, "down", "6 2", 0, 1);
    put_tensor(&graph, "gamma", "2 1 1", 0, 1);
    put_node(&graph, "Transpose", "last", "x", "l", "perm=0,2,3,1");
    put_node(&graph, "LayerNormalization", "norm", "l one one", "n", "axis=-1");
    put_node(&graph, "MatMul", "up", "n up", "u", "");
    put_node(&graph, "Add", "bias", "upb u", "ub", "");
    put_node(&graph, "Gelu", "gelu", "ub", "g", "approximate=@tanh");
    put_node(&graph, "MatMul", "down", "g down", "d", "");
    put_node(&graph, "Transpose", "first", "d", "f", "perm=0,3,1,2");
    put_node(&graph, "Mul", "scale", "gamma f", "s", "");
    put_node(&graph, "Add", "sum", "s x", "a", "");
    put_node(&graph, "GlobalAveragePool", "m", "a", "y", "");
    check_kinds("layernorm conv2d gelu conv2d conv2d add globalavgpool flatten crossentropy", &graph, 20);
}

TEST(channels_last_readers_get_a_transpose)
{
    gp_buffer graph = graph_of();

    put_tensor(&graph, "s", "4", 0, 1);
    put_node(&graph, "Transpose", "last", "x", "l", "perm=0,2,3,1");
    put_node(&graph, "HardSwish", "h", "l", "h", "");
    put_node(&graph, "Flatten", "f", "h", "y", "");
    check_kinds("hardswish transpose flatten crossentropy", &graph, 14);

    graph = graph_of();
    put_tensor(&graph, "s", "4", 0, 1);
    put_node(&graph, "LayerNormalization", "n", "x s s", "n", ""); /* over the width */
    put_node(&graph, "MatMul", "prod", "n m", "y", "");
    check_kinds("transpose layernorm conv2d transpose pixelclassification", &graph, 17);
}

/* Build x * (1 + erf(x / sqrt(2))) / 2 for layer "c"; odd: another node reads an intermediate
 * value. */
static gp_buffer erf_graph(bool odd, float root)
{
    gp_buffer graph = graph_of();

    put_tensor(&graph, "root", "", root, 0);
    put_tensor(&graph, "one", "", 1.0f, 0);
    put_tensor(&graph, "half", "", 0.5f, 0);
    put_node(&graph, "Relu", "c", "x", "c", "");
    put_node(&graph, "Div", "d", "c root", "d", "");
    put_node(&graph, "Erf", "e", "d", "e", "");
    put_node(&graph, "Add", "e1", "e one", "e1", "");
    put_node(&graph, "Mul", "p", "c e1", "p", "");
    put_node(&graph, "Mul", "g", "p half", odd ? "g" : "y", "");
    if (odd)
        put_node(&graph, "Add", "more", "g d", "y", "");
    return graph;
}

TEST(gelu_written_with_erf_is_one_layer)
{
    gp_buffer graph = erf_graph(false, 1.41421356f);

    check_kinds("relu gelu pixelclassification", &graph, 13);
    graph = erf_graph(true, 1.41421356f);
    check_refused_model(GP_EUNSUPPORTED, "node 'e' (Erf, opset 13): it is supported only in", &graph);
    graph = erf_graph(false, 1.5f);
    check_refused_model(GP_EUNSUPPORTED, "node 'e' (Erf, opset 13): it is supported only in", &graph);
}

/* Build layer norm over the width of layer "c" from single steps; axes: axes of the second mean. */
static gp_buffer norm_graph(const char *axes)
{
    gp_buffer graph = graph_of();

    put_tensor(&graph, "two", "", 2, 0);
    put_tensor(&graph, "epsilon", "", 1e-5f, 0);
    put_tensor(&graph, "scale", "4", 0, 1);
    put_node(&graph, "Relu", "c", "x", "c", "");
    put_list(&graph, "last", "-1");
    put_list(&graph, "axes", axes);
    put_node(&graph, "ReduceMean", "m1", "c last", "m1", "");
    put_node(&graph, "Sub", "s", "c m1", "s", "");
    put_node(&graph, "Pow", "q", "s two", "q", "");
    put_node(&graph, "ReduceMean", "m2", "q axes", "m2", "");
    put_node(&graph, "Add", "v", "epsilon m2", "v", "");
    put_node(&graph, "Sqrt", "root", "v", "root", "");
    put_node(&graph, "Div", "d", "s root", "d", "");
    put_node(&graph, "Mul", "k", "d scale", "k", "");
    put_node(&graph, "Add", "n", "k scale", "y", "");
    return graph;
}

TEST(layer_norm_written_in_steps_is_one_layer)
{
    gp_buffer graph = norm_graph("-1");

    check_kinds("relu transpose layernorm transpose pixelclassification", &graph, 18);
    graph = norm_graph("-2");
    check_refused_model(GP_EUNSUPPORTED, "only height and width of images", &graph);
}

/* Build a Gather from all samples of x, [N, 2, 4, 4], as one vector at N * factor + columns. */
static gp_buffer gather_graph(const char *factor, const char *reads)
{
    gp_buffer graph = graph_of();
    char columns[128] = "";

    for (int i = 0; i < 32; i++)
        snprintf(columns + strlen(columns), sizeof(columns) - strlen(columns), "%d ", i);
    put_list(&graph, "flat", "-1");
    put_list(&graph, "axes", "1");
    put_list(&graph, "factor", factor);
    put_list(&graph, "columns", columns);
    put_list(&graph, "back", "1 32");
    put_list(&graph, "zero", "0");
    put_list(&graph, "one", "1");
    put_node(&graph, "Shape", "shape", "x", "n", "start=0 end=1");
    put_node(&graph, "Range", "range", "zero n one", "r", "");
    put_node(&graph, "Mul", "mul", "r factor", "rows", "");
    put_node(&graph, "Unsqueeze", "axis", "rows axes", "u", "");
    put_node(&graph, "Reshape", "row", "columns back", "row", "");
    put_node(&graph, "Add", "add", "row u", "i", "");
    put_node(&graph, "Reshape", "all", "x flat", "f", "");
    put_node(&graph, "Gather", "gather", reads, "y", "axis=0");
    return graph;
}

TEST(identity_gather_makes_no_layer)
{
    gp_buffer graph = gather_graph("32", "f i");

    check_kinds("flatten crossentropy", &graph, 13);
    graph = gather_graph("16", "f i");
    check_refused_model(GP_EUNSUPPORTED, "it is supported only if it keeps their positions", &graph);
    graph = gather_graph("32", "f zero");
    check_refused_model(GP_EUNSUPPORTED, "it is supported only if it keeps their positions", &graph);
    graph = gather_graph("32", "x i");
    check_refused_model(GP_EUNSUPPORTED, "it is supported only for constant inputs", &graph);

    graph = gather_graph("32", "f i");
    put_node(&graph, "Relu", "r", "f", "z", "");
    check_refused_model(GP_EUNSUPPORTED, "node 'r' (Relu, opset 13): it reads the numbers of all samples",
                        &graph);
    graph = gather_graph("32", "f i");
    put_node(&graph, "Neg", "n", "i", "z", "");
    check_refused_model(GP_EUNSUPPORTED, "node 'n' (Neg, opset 13): it reads indices that depend", &graph);
}

TEST(layer_norm_over_several_axes_is_refused)
{
    gp_buffer graph = graph_of();

    put_tensor(&graph, "s", "2 4 4", 0, 1);
    put_node(&graph, "LayerNormalization", "n", "x s s", "y", "axis=1");
    check_refused_model(GP_EUNSUPPORTED, "axis=1 is not supported; must be the last axis", &graph);
}

TEST(channel_factor_has_no_bias_and_addition_has_no_trainable_factor)
{
    gp_buffer graph = graph_of(), file;
    loaded l = { 0 };
    gp_error err;

    put_tensor(&graph, "c", "2 1 1", 0, 1);
    put_node(&graph, "Relu", "r", "x", "r", "");
    put_node(&graph, "Mul", "mul", "r c", "rc", "");
    put_node(&graph, "Relu", "r2", "rc", "r2", "");
    put_node(&graph, "Add", "add", "r2 c", "y", "");
    file = model_of(&graph, 13);
    REQUIRE_OK(load(&l, &file, &err), err);
    char *json = json_of(l.spec);

    REQUIRE(json != NULL);
    const char *mul = strstr(json, "\"mul\""), *add = strstr(json, "\"add\"");

    REQUIRE(mul != NULL && add != NULL);
    CHECK(strstr(mul, "\"bias\": false") != NULL && strstr(mul, "\"bias\": false") < add);
    CHECK_CONTAINS(add, "\"weight-learn-rate-factor\": 0");
    gp_free(json);
    loaded_free(&l);
    gp_buffer_deinit(&file);
}

TEST(mean_over_other_axes_than_height_and_width_is_refused)
{
    gp_buffer graph = graph_of();

    put_node(&graph, "ReduceMean", "m", "x", "y", "axes=1,2");
    check_refused_model(GP_EUNSUPPORTED, "only height and width of images", &graph);
}

TEST(channel_shuffle_in_five_dimensions_is_one_transpose)
{
    gp_buffer graph = graph_of();

    put_list(&graph, "five", "0 2 2 2 4"); /* does not match 2 x 4 x 4 */
    put_list(&graph, "apart", "0 2 1 4 4");
    put_list(&graph, "back", "0 2 4 4");
    put_node(&graph, "Reshape", "a", "x apart", "a", "");

    /* moves an axis of size 1: no effect */
    put_node(&graph, "Transpose", "t", "a", "t", "perm=0,2,1,3,4");
    put_node(&graph, "Reshape", "b", "t back", "b1", "");
    put_node(&graph, "Reshape", "c", "b1 five", "c", "");
    put_node(&graph, "Transpose", "u", "c", "u", "perm=0,2,1,3,4");
    put_node(&graph, "Flatten", "f", "u", "y", "");
    check_kinds("reshape reshape transpose flatten crossentropy", &graph, 13);
}

TEST(vectors_and_signals_are_inputs_too)
{
    gp_buffer graph = message();

    put_port(&graph, 11, "x", "N 6");
    put_port(&graph, 12, "y", "N 3");
    put_tensor(&graph, "m", "6 3", 0, 1);
    put_node(&graph, "Gemm", "g", "x m", "y", "");
    check_kinds("fc crossentropy", &graph, 13);

    graph = message();
    put_port(&graph, 11, "x", "N 2 9");
    put_port(&graph, 12, "y", "N 4 1");
    put_tensor(&graph, "w", "4 2 3", 0, 1);
    put_node(&graph, "Conv", "c", "x w", "c", "strides=2,");
    put_node(&graph, "GlobalAveragePool", "g", "c", "y", "");
    check_refused_model(GP_EUNSUPPORTED, "strides has 2 numbers; must have 1", &graph);

    graph = message();
    put_port(&graph, 11, "x", "N 2 9");
    put_port(&graph, 12, "y", "N 4 1");
    put_tensor(&graph, "w", "4 2 3", 0, 1);
    put_node(&graph, "Conv", "c", "x w", "c", "");
    put_node(&graph, "GlobalAveragePool", "g", "c", "y", "");
    check_kinds("conv2d globalavgpool flatten crossentropy", &graph, 13);
}

TEST(several_inputs_are_unpacked_from_one_sample)
{
    gp_buffer graph = message();

    put_port(&graph, 11, "image", "N 2 3 3");
    put_port(&graph, 11, "place", "N 4");
    put_port(&graph, 12, "y", "N 22");
    put_node(&graph, "Relu", "r", "image", "r", "");
    put_node(&graph, "Flatten", "f", "r", "f", "");
    put_node(&graph, "Concat", "k", "f place", "y", "axis=1");
    check_kinds("crop reshape crop flatten relu flatten concat crossentropy", &graph, 13);

    graph = message();
    for (char name[] = "a"; *name <= 'i'; (*name)++)
        put_port(&graph, 11, name, "N 4");
    put_node(&graph, "Relu", "r", "a", "y", "");
    check_refused_model(GP_EUNSUPPORTED, "more than 8 inputs", &graph);

    graph = message();
    put_port(&graph, 11, "a", "N 4");
    put_port(&graph, 11, "b", "N 0");
    put_port(&graph, 12, "y", "N 4");
    put_node(&graph, "Add", "r", "a b", "y", "");
    check_refused_model(GP_EINVAL, "dimension 2 of the input 'b' is 0", &graph);
}

TEST(unordered_nodes_and_duplicate_names_are_refused)
{
    gp_buffer graph = graph_of();

    put_node(&graph, "Relu", "first", "second", "first", "");
    put_node(&graph, "Relu", "second", "first", "second", "");
    check_refused_model(GP_EINVAL, "it reads 'second'", &graph);

    graph = graph_of();
    put_node(&graph, "Relu", "r", "x", "w", "");
    check_refused_model(GP_ECORRUPT, "the value 'w' is computed twice", &graph);
}

/* ---- arithmetic with constants ---- */

TEST(constant_is_folded_into_the_previous_layer_or_becomes_a_layer)
{
    gp_buffer graph = graph_of(), file;
    loaded l = { 0 };
    gp_error err;
    char text[256];

    put_tensor(&graph, "per", "4 1 1", 2, 1); /* 2 3 4 5 */
    put_tensor(&graph, "shift", "4 1 1", 1, 0);
    put_tensor(&graph, "half", "", 0.5, 0);
    put_node(&graph, "Conv", "conv", "x w", "c", "");
    put_node(&graph, "Add", "bias", "c per", "c2", ""); /* a bias of the convolution */
    put_node(&graph, "BatchNormalization", "norm", "c2 b b b b", "n", "");
    put_node(&graph, "Mul", "m", "n per", "n2", "");
    put_node(&graph, "Add", "a", "n2 shift", "n3", ""); /* 100.. * 2.. + 1 */
    put_node(&graph, "Relu", "r", "n3", "r", "");
    put_node(&graph, "Mul", "s", "r half", "s", "");
    put_node(&graph, "Sub", "own", "shift s", "o", "");
    put_node(&graph, "GlobalMaxPool", "g", "o", "y", "");
    file = model_of(&graph, 13);
    REQUIRE_OK(load(&l, &file, &err), err);
    CHECK_TEXT("conv2d batchnorm relu scale conv2d globalmaxpool flatten crossentropy",
               kinds_of(l.spec, text));
    gp_graph *net;

    REQUIRE_OK(gp_graph_new(&net, l.spec, &err), err);
    for (uint32_t p = 0; p < net->parameter_count; p++) {
        const gp_parameter *parameter = &net->parameters[p];
        const double last = (double)l.blob[parameter->offset + 3];

        if (strcmp(parameter->name, "conv.bias") == 0)
            CHECK_NEAR(5.0, last, 0);
        else if (strcmp(parameter->name, "norm.scale") == 0)
            CHECK_NEAR(515.0, last, 0);
        else if (strcmp(parameter->name, "norm.offset") == 0)
            CHECK_NEAR(516.0, last, 0);
        else if (strcmp(parameter->name, "own.weight") == 0)
            CHECK_NEAR(-1.0, last, 0);
        else if (strcmp(parameter->name, "own.bias") == 0)
            CHECK_NEAR(1.0, last, 0);
    }
    gp_graph_free(net);
    loaded_free(&l);
    gp_buffer_deinit(&file);
}

TEST(layer_with_other_readers_keeps_its_parameters)
{
    gp_buffer graph = graph_of();

    put_tensor(&graph, "per", "4 1 1", 2, 1);
    put_node(&graph, "Conv", "conv", "x w b", "c", "");
    put_node(&graph, "Add", "a", "c per", "c2", "");
    put_node(&graph, "Add", "both", "c c2", "s", "");
    put_node(&graph, "GlobalMaxPool", "g", "s", "y", "");
    check_kinds("conv2d conv2d add globalmaxpool flatten crossentropy", &graph, 13);
}

/* ---- external weights ---- */

typedef struct folder {
    char path[64];
} folder;

static void folder_put(const folder *f, const char *name, const void *data, size_t bytes)
{
    char path[160];

    snprintf(path, sizeof(path), "%s/%s", f->path, name);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);

    REQUIRE(fd >= 0 && write(fd, data, bytes) == (ssize_t)bytes);
    close(fd);
}

static void folder_new(folder *f)
{
    float numbers[128];

    strcpy(f->path, "/tmp/test_onnx_XXXXXX");
    REQUIRE(leftovers_make(f->path) != NULL);
    for (int i = 0; i < 128; i++)
        numbers[i] = (float)i;
    folder_put(f, "weights", numbers, sizeof(numbers));
}

static void folder_remove(const folder *f)
{
    char command[160];

    snprintf(command, sizeof(command), "rm -r %s", f->path);
    CHECK_INT(0, system(command));
}

/* Build a weight [32, 3] at that location: "location=weights offset=8". */
static gp_buffer external_model(const char *place)
{
    gp_buffer graph = graph_of(), tensor = message();
    char words[1400], *rest;

    put_int(&tensor, 1, 32);
    put_int(&tensor, 1, 3);
    put_int(&tensor, 2, 1);
    put_int(&tensor, 14, 1);
    put_text(&tensor, 8, "far");
    snprintf(words, sizeof(words), "%s", place);
    for (char *word = strtok_r(words, " ", &rest); word != NULL; word = strtok_r(NULL, " ", &rest)) {
        gp_buffer pair = message();
        char *value = strchr(word, '=');

        *value++ = '\0';
        put_text(&pair, 1, word);
        put_text(&pair, 2, value);
        put_message(&tensor, 13, &pair);
    }
    put_message(&graph, 5, &tensor);
    put_node(&graph, "Flatten", "f", "x", "f", "");
    put_node(&graph, "MatMul", "m1", "f far", "y", "");
    return model_of(&graph, 13);
}

static gp_status external_load(loaded *l, const folder *f, const char *place, gp_error *err)
{
    const gp_onnx_options options = { .folder = f == NULL ? NULL : f->path };
    gp_buffer file = external_model(place);
    gp_status status = gp_onnx_read(&l->spec, &l->blob, &l->class_names, &l->class_count, file.data,
                                    file.bytes, &options, err);

    gp_buffer_deinit(&file);
    return status;
}

static void check_external_refused(gp_status wanted, const char *part, const folder *f, const char *place)
{
    loaded l = { 0 };
    gp_error err;

    CHECK_STATUS(wanted, external_load(&l, f, place, &err));
    CHECK_CONTAINS(err.message, part);
    loaded_free(&l);
}

TEST(external_weights_beside_the_model_are_read)
{
    loaded l = { 0 };
    gp_error err;
    folder f;

    folder_new(&f);
    REQUIRE_OK(external_load(&l, &f, "location=weights offset=8 length=384", &err), err);
    CHECK_NEAR(2.0, (double)l.blob[0], 0);
    CHECK_NEAR(5.0, (double)l.blob[1], 0); /* [outputs, inputs] from [inputs, outputs] */
    loaded_free(&l);
    REQUIRE_OK(external_load(&l, &f, "location=./weights", &err), err);
    CHECK_NEAR(0.0, (double)l.blob[0], 0);
    loaded_free(&l);
    folder_remove(&f);
}

TEST(external_weights_outside_the_model_folder_are_refused)
{
    char outside[200], link_path[200], deep[1300] = "location=";
    folder f;

    folder_new(&f);
    snprintf(link_path, sizeof(link_path), "%s/link", f.path);
    REQUIRE(symlink("weights", link_path) == 0);
    snprintf(link_path, sizeof(link_path), "%s/out", f.path);
    REQUIRE(symlink("/etc", link_path) == 0);
    snprintf(link_path, sizeof(link_path), "%s/pipe", f.path);
    REQUIRE(mkfifo(link_path, 0600) == 0);
    snprintf(outside, sizeof(outside), "location=%s/weights", f.path);
    check_external_refused(GP_EUNSUPPORTED, "outside of the directory of the model", &f, outside);
    snprintf(outside, sizeof(outside), "location=../%s/weights", strrchr(f.path, '/') + 1);
    check_external_refused(GP_EUNSUPPORTED, "outside of the directory", &f, outside);
    check_external_refused(GP_ENOENT, "cannot open its data 'a/../weights'", &f, "location=a/../weights");
    check_external_refused(GP_EUNSUPPORTED, "a symbolic link", &f, "location=link");
    check_external_refused(GP_EUNSUPPORTED, "a symbolic link", &f, "location=out/passwd");
    check_external_refused(GP_EUNSUPPORTED, "not a regular file", &f, "location=pipe");
    check_external_refused(GP_EUNSUPPORTED, "not a regular file", &f, "location=.");
    check_external_refused(GP_EUNSUPPORTED, "outside of the directory", &f, "location=/");
    check_external_refused(GP_ENOENT, "tensor 'far' (external data): cannot open", &f, "location=nobody");
    check_external_refused(GP_ECORRUPT, "names no file", &f, "offset=0");
    for (int i = 0; i < 120; i++)
        strcat(deep, "./");
    strcat(deep, "weights");
    check_external_refused(GP_EUNSUPPORTED, "outside of the directory", &f, deep);
    memset(deep + 9, 'a', 1100);
    deep[1109] = '\0';
    check_external_refused(GP_ECORRUPT, "more than 1023 bytes", &f, deep);
    check_external_refused(GP_EUNSUPPORTED, "only for models in files", NULL, "location=weights");
    folder_remove(&f);
}

TEST(offset_and_length_must_lie_within_the_file)
{
    folder f;

    folder_new(&f);
    check_external_refused(GP_ECORRUPT, "384 bytes from 132 exceeds its file of 512 bytes", &f,
                           "location=weights offset=132");
    check_external_refused(GP_ECORRUPT, "exceeds its file", &f,
                           "location=weights offset=9223372036854775807");
    check_external_refused(GP_ECORRUPT, "is not a whole number", &f,
                           "location=weights offset=18446744073709551616");
    check_external_refused(GP_ECORRUPT, "is not a whole number", &f, "location=weights offset=-1");
    check_external_refused(GP_ECORRUPT, "is empty", &f, "location=weights length=");
    check_external_refused(GP_ECORRUPT, "has 380 bytes, but its shape needs 384", &f,
                           "location=weights length=380");
    folder_remove(&f);
}

static void check_overlap_refused(const char *first, const char *second)
{
    gp_buffer graph = graph_of(), file;
    loaded l = { 0 };
    gp_error err;
    folder f;

    folder_new(&f);
    for (int i = 0; i < 2; i++) {
        gp_buffer tensor = message(), pair = message();

        put_text(&pair, 1, "location");
        put_text(&pair, 2, i == 0 ? first : second);
        put_int(&tensor, 1, 100);
        put_int(&tensor, 2, 1);
        put_int(&tensor, 14, 1);
        put_text(&tensor, 8, i == 0 ? "p" : "q");
        put_message(&tensor, 13, &pair);
        put_message(&graph, 5, &tensor);
    }
    file = model_of(&graph, 13);
    CHECK_STATUS(GP_ELIMIT, gp_onnx_read(&l.spec, &l.blob, &l.class_names, &l.class_count, file.data,
                                         file.bytes, &(gp_onnx_options){ .folder = f.path }, &err));
    CHECK_CONTAINS(err.message, "overlap");
    gp_buffer_deinit(&file);
    folder_remove(&f);
}

TEST(tensors_in_a_file_may_not_overlap)
{
    check_overlap_refused("weights", "weights");
    check_overlap_refused("weights", "./weights"); /* the same file by another path */
}

static gp_status read_external(loaded *l, const folder *f, const gp_buffer *file)
{
    return gp_onnx_read(&l->spec, &l->blob, &l->class_names, &l->class_count, file->data, file->bytes,
                        &(gp_onnx_options){ .folder = f->path }, NULL);
}

TEST(failing_allocations_in_constants_and_files_are_handled)
{
    gp_buffer graph = graph_of(), file = external_model("location=weights"), computed;
    loaded l = { 0 };
    folder f;

    folder_new(&f);
    CHECK_EVERY_ALLOCATION(read_external(&l, &f, &file), loaded_free(&l));
    put_list(&graph, "size", "3 32");
    put_tensor(&graph, "half", "1", 0.5, 0);
    put_tensor(&graph, "shift", "2 1 1", 0.5, 0);
    put_node(&graph, "Relu", "r", "x", "r", "");
    put_node(&graph, "Add", "s", "r shift", "s", "");
    put_node(&graph, "ConstantOfShape", "c", "size", "c", "");
    put_node(&graph, "Add", "a", "c half", "a", "");
    put_node(&graph, "Transpose", "t", "a", "t", "perm=1,0");
    put_node(&graph, "Flatten", "f", "s", "f", "");
    put_node(&graph, "MatMul", "m1", "f t", "y", "");
    computed = model_of(&graph, 13);
    CHECK_EVERY_ALLOCATION(read_external(&l, &f, &computed), loaded_free(&l));
    gp_buffer_deinit(&computed);
    gp_buffer_deinit(&file);
    folder_remove(&f);
}
