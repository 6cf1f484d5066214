#include <inttypes.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "common/base/memory/buffer.h"
#include "common/base/rng.h"
#include "common/model/network.h"
#include "common/model/onnx/onnx.h"
#include "tests/gp_test.h"
#include "tests/leftovers.h"
#include "tests/common/model/onnx_bytes.h"
#include "tests/common/model/onnx_nets.h"

/* ---- files written by gradpool ---- */

static gp_status write_net(gp_buffer *file, const char *name, const char *const *names, uint32_t count)
{
    gp_error err;
    net n;
    gp_status status = net_new(&n, name, &err);

    gp_buffer_init(file, 64 << 20);
    if (status == GP_OK)
        status = gp_onnx_write(file, n.spec, n.graph, n.blob, names, count, &err);
    if (status != GP_OK)
        GP_TEST_FAIL("%s", err.message);
    net_free(&n);
    return status;
}

static void check_round_trip(const net *n, const char *const *names, uint32_t count)
{
    loaded l = { 0 };
    gp_buffer file;
    gp_error err;

    gp_buffer_init(&file, 64 << 20);
    REQUIRE_OK(gp_onnx_write(&file, n->spec, n->graph, n->blob, names, count, &err), err);
    REQUIRE_OK(load(&l, &file, &err), err);
    check_same_network(n->spec, l.spec);
    CHECK(memcmp(n->blob, l.blob, n->graph->blob_count * sizeof(float)) == 0);
    CHECK_INT(count, l.class_count);
    CHECK((count == 0) == (l.class_names == NULL));
    for (uint32_t i = 0; i < l.class_count; i++)
        CHECK_TEXT(names[i], l.class_names[i]);
    loaded_free(&l);
    gp_buffer_deinit(&file);
}

TEST(network_survives_a_bitwise_round_trip_with_class_names)
{
    static const char *const digits[] = { "zero", "one", "two", "\xc3\xa9t\xc3\xa9 \"3\"", "4", "5", "6",
                                          "7",    "8",   "" };
    static const char *const names[] = { "lenet", "mixed", "tiny", "gates" };
    gp_error err;

    for (int i = 0; i < 4; i++) {
        net n;

        REQUIRE_OK(net_new(&n, names[i], &err), err);
        check_round_trip(&n, NULL, 0);
        if (i == 0)
            check_round_trip(&n, digits, 10);
        net_free(&n);
    }
}

/* A new kind must be written and read too. */
TEST(every_kind_has_an_onnx_form)
{
    for (const gp_kind *const *kind = gp_kinds; *kind != NULL; kind++)
        for (const gp_kind_check *check = (*kind)->checks; check->samples != 0; check++) {
            const gp_shape *shape = &check->input;
            gp_shape input = shape->rank == 3 ? *shape : gp_shape3(gp_shape_count(shape), 1, 1);
            const char *const twice[] = { "input", "input" };
            gp_error err;
            net n = { 0 };

            REQUIRE_OK(gp_netspec_new(&n.spec, (*kind)->name, &input, &err), err);
            if (((*kind)->flags & GP_KIND_LOSS) && shape->rank == 1)
                REQUIRE_OK(gp_netspec_add(n.spec, "vector", "flatten", NULL, &err), err);
            REQUIRE_OK(gp_netspec_add(n.spec, "layer", (*kind)->name, check->settings, &err), err);
            if ((*kind)->extra_inputs > 0)
                REQUIRE_OK(gp_netspec_connect(n.spec, twice, 2, &err), err);
            if (((*kind)->flags & GP_KIND_LOSS) == 0) {
                REQUIRE_OK(gp_netspec_add(n.spec, "head", "fc", "outputs=2", &err), err);
                REQUIRE_OK(gp_netspec_add(n.spec, "loss", "crossentropy", NULL, &err), err);
            }
            REQUIRE_OK(net_finish(&n, 0.1, &err), err);
            check_round_trip(&n, NULL, 0);
            net_free(&n);
        }
}

/* Replace the first occurrence of `old` by a text of the same length. */
static void replace(gp_buffer *file, const char *old, const char *new)
{
    uint8_t *at = memmem(file->data, file->bytes, old, strlen(old));

    REQUIRE(at != NULL && strlen(old) == strlen(new));
    memcpy(at, new, strlen(new));
}

TEST(nodes_without_metadata_give_the_same_network_except_dropout)
{
    gp_buffer file;
    gp_error err;
    loaded l = { 0 };
    net n;

    REQUIRE_OK(net_new(&n, "tiny", &err), err);
    REQUIRE(write_net(&file, "tiny", NULL, 0) == GP_OK);
    replace(&file, "gradpool.network", "gradpool.netwerk");
    REQUIRE_OK(load(&l, &file, &err), err);
    char *json = json_of(l.spec);

    CHECK_TEXT("{\"name\": \"tiny\", \"input\": [1, 3, 3], \"scale\": [0.5], \"offset\": [0], \"layers\": ["
               "{\"name\": \"c\", \"kind\": \"conv2d\", \"channels\": 2, \"kernel\": [2, 2]}, "
               "{\"name\": \"f.flatten\", \"kind\": \"flatten\"}, "
               "{\"name\": \"f\", \"kind\": \"fc\", \"outputs\": 2}, "
               "{\"name\": \"l\", \"kind\": \"crossentropy\"}]}",
               json);
    CHECK(memcmp(n.blob, l.blob, n.graph->blob_count * sizeof(float)) == 0);
    gp_free(json);
    loaded_free(&l);
    net_free(&n);
    gp_buffer_deinit(&file);
}

/* Another program may edit a file without updating the metadata. */
TEST(metadata_that_contradicts_the_graph_is_ignored)
{
    static const char *const edits[][2] = {
        { "\"offset\": [0]", "\"offset\": [9]" }, /* the graph has no Add node */
        { "\"scale\": [0.5]", "\"scale\": [0.7]" }, { "\"channels\": 2", "\"channels\": 3" },
        { "\"outputs\": 2", "\"outputs\": 1" },     { "\"kind\": \"fc\"", "\"kind\": \"xy\"" },
        { "\"layers\":", "\"layers\";" },
    };

    for (size_t i = 0; i < sizeof(edits) / sizeof(edits[0]); i++) {
        gp_buffer file;
        gp_error err;
        loaded l = { 0 };

        REQUIRE(write_net(&file, "tiny", NULL, 0) == GP_OK);
        replace(&file, edits[i][0], edits[i][1]);
        REQUIRE_OK(load(&l, &file, &err), err);
        CHECK_INT(4, l.spec->layer_count); /* from the nodes: flatten, and no dropout */
        CHECK_TEXT("f.flatten", l.spec->layers[1].name);
        CHECK_NEAR(0.5, l.spec->scale[0], 0);
        CHECK_NEAR(0, l.spec->offset[0], 0);
        loaded_free(&l);
        gp_buffer_deinit(&file);
    }
}

TEST(number_of_class_names_equals_number_of_classes)
{
    static const char *const names[] = { "a", "b" };
    gp_buffer file;
    gp_error err;
    loaded l = { 0 };
    net n;

    REQUIRE_OK(net_new(&n, "tiny", &err), err);
    gp_buffer_init(&file, 1 << 20);
    CHECK_STATUS(GP_EINVAL, gp_onnx_write(&file, n.spec, n.graph, n.blob, names, 1, &err));
    CHECK_CONTAINS(err.message, "1 class names for a network of 2 classes");
    CHECK_INT(0, file.bytes);
    REQUIRE_OK(gp_onnx_write(&file, n.spec, n.graph, n.blob, names, 2, &err), err);
    replace(&file, "[\"a\", \"b\"]", "[\"a,   b\"]");
    CHECK_STATUS(GP_EINVAL, load(&l, &file, &err));
    CHECK_CONTAINS(err.message, "gradpool.classes must be a list of 2 names");
    gp_buffer_deinit(&file);
    net_free(&n);
}

TEST(file_over_the_buffer_limit_leaves_the_buffer_unchanged)
{
    gp_buffer file;
    gp_error err;
    net n;

    REQUIRE_OK(net_new(&n, "tiny", &err), err);
    gp_buffer_init(&file, 100);
    gp_buffer_append(&file, "abc", 3, NULL);
    CHECK_STATUS(GP_ELIMIT, gp_onnx_write(&file, n.spec, n.graph, n.blob, NULL, 0, &err));
    CHECK_TEXT("abc", gp_buffer_text(&file));
    gp_buffer_deinit(&file);
    net_free(&n);
}

TEST(model_over_the_limit_keeps_its_weights_in_a_second_file)
{
    char root[] = "/tmp/gpt-XXXXXX", path[64];
    const char *const names[] = { "a", "b" };
    gp_network network = { 0 };
    struct stat one, two;
    gp_error err;
    net n;

    REQUIRE(leftovers_make(root) != NULL);
    snprintf(path, sizeof(path), "%s/m.onnx", root);
    REQUIRE_OK(net_new(&n, "tiny", &err), err);
    REQUIRE_OK(gp_onnx_save(path, n.spec, n.graph, n.blob, names, 2, 0, &err), err);
    REQUIRE(stat(path, &one) == 0);
    strcat(path, ".data");
    CHECK(stat(path, &two) != 0); /* one file if the limit permits */
    path[strlen(path) - strlen(".data")] = '\0';
    REQUIRE_OK(gp_onnx_save(path, n.spec, n.graph, n.blob, names, 2, (size_t)one.st_size - 1, &err), err);
    strcat(path, ".data");
    REQUIRE(stat(path, &two) == 0);
    CHECK_INT(n.graph->blob_count * sizeof(float), two.st_size);
    path[strlen(path) - strlen(".data")] = '\0';
    REQUIRE_OK(gp_network_load(&network, path, NULL, 0, &err), err);
    check_same_network(n.spec, network.spec);
    CHECK(memcmp(n.blob, network.weights, n.graph->blob_count * sizeof(float)) == 0);
    CHECK_TEXT("b", network.class_names[1]);
    gp_network_deinit(&network);

    /* A failure to write the weights leaves the model unchanged. */
    struct rlimit limit, low;

    REQUIRE_OK(gp_onnx_save(path, n.spec, n.graph, n.blob, names, 2, 0, &err), err);
    REQUIRE(getrlimit(RLIMIT_FSIZE, &limit) == 0 && signal(SIGXFSZ, SIG_IGN) != SIG_ERR);
    low = (struct rlimit){ .rlim_cur = n.graph->blob_count * sizeof(float) / 2, .rlim_max = limit.rlim_max };
    REQUIRE(setrlimit(RLIMIT_FSIZE, &low) == 0);
    CHECK_STATUS(GP_EIO,
                 gp_onnx_save(path, n.spec, n.graph, n.blob, names, 2, (size_t)one.st_size - 1, &err));
    REQUIRE(setrlimit(RLIMIT_FSIZE, &limit) == 0 && signal(SIGXFSZ, SIG_DFL) != SIG_ERR);
    REQUIRE_OK(gp_network_load(&network, path, NULL, 0, &err), err);
    gp_network_deinit(&network);
    net_free(&n);
}

/* ---- files of other programs ---- */

TEST(foreign_file_is_read_from_its_nodes)
{
    gp_buffer file = foreign_model();
    gp_error err;
    loaded l = { 0 };
    gp_graph *graph;

    REQUIRE_OK(load(&l, &file, &err), err);
    char *json = json_of(l.spec);

    CHECK_TEXT("{\"name\": \"net_from_afar\", \"input\": [2, 4, 4], \"scale\": [1], \"offset\": [0], "
               "\"scale_unknown\": true, \"layers\": ["
               "{\"name\": \"/conv_1/Conv\", \"kind\": \"conv2d\", \"channels\": 4, \"kernel\": [3, 3]}, "
               "{\"name\": \"maxpool2\", \"kind\": \"maxpool\", \"kernel\": [2, 2], \"stride\": [2, 2]}, "
               "{\"name\": \"flat\", \"kind\": \"flatten\"}, "
               "{\"name\": \"head\", \"kind\": \"fc\", \"outputs\": 3}, "
               "{\"name\": \"loss\", \"kind\": \"crossentropy\"}]}",
               json);
    CHECK(l.class_names == NULL && l.class_count == 0);
    REQUIRE_OK(gp_graph_new(&graph, l.spec, &err), err);
    const float *conv = l.blob + graph->parameters[0].offset, *head = l.blob + graph->parameters[2].offset;

    CHECK_NEAR(71, conv[71], 0);
    CHECK_NEAR(100, l.blob[graph->parameters[1].offset], 0);
    CHECK_NEAR(3, head[1], 0);     /* [output 0][input 1] is [1][0] in the file's [4, 3] */
    CHECK_NEAR(2, head[2 * 4], 0); /* [2][0] is [0][2] */
    CHECK_NEAR(11, head[2 * 4 + 3], 0);
    CHECK_NEAR(9, l.blob[graph->parameters[3].offset + 2], 0);
    gp_graph_free(graph);
    gp_free(json);
    loaded_free(&l);
    gp_buffer_deinit(&file);
}

TEST(arithmetic_before_the_first_layer_becomes_scale_and_offset)
{
    gp_buffer graph = graph_of();
    gp_error err;
    loaded l = { 0 };

    put_tensor(&graph, "half", "", 0.5, 0);
    put_tensor(&graph, "mean", "1 2 1 1", 3, 1);    /* 3, 4 */
    put_tensor(&graph, "deviation", "2 1 1", 2, 2); /* 2, 4 */
    put_tensor(&graph, "one", "1", 1, 0);
    put_tensor(&graph, "k", "32 3", 0, 1);
    put_node(&graph, "Mul", "m1", "half x", "x1", "");
    put_node(&graph, "Sub", "m2", "x1 mean", "x2", "");
    put_node(&graph, "Div", "m3", "x2 deviation", "x3", "");
    put_node(&graph, "Add", "m4", "x3 one", "x4", "");
    put_node(&graph, "Relu", "r", "x4", "r", "");
    put_node(&graph, "Add", "a", "x4 r", "a", "");
    put_node(&graph, "Flatten", "f", "a", "f", "axis=1");
    put_node(&graph, "Gemm", "g", "f k", "g", "alpha=1.0");
    put_node(&graph, "Softmax", "s", "g", "y", "axis=-1");
    gp_buffer file = model_of(&graph, 13);

    REQUIRE_OK(load(&l, &file, &err), err);
    CHECK_INT(2, l.spec->normalize_count);
    CHECK_NEAR(0.25, l.spec->scale[0], 0);
    CHECK_NEAR(0.125, l.spec->scale[1], 0);
    CHECK_NEAR(-0.5, l.spec->offset[0], 0); /* -3 / 2 + 1 */
    CHECK_NEAR(0.0, l.spec->offset[1], 0);
    CHECK_INT(5, l.spec->layer_count);
    CHECK_TEXT("s", l.spec->layers[4].name);
    CHECK_INT(GP_INPUT_LAYER, l.spec->layers[1].inputs[0]);
    loaded_free(&l);
    gp_buffer_deinit(&file);
}

/* The Identity node has one reader, but Relu reads the input too and needs the original numbers. */
TEST(arithmetic_on_an_alias_of_the_input_leaves_other_readers_of_the_input_alone)
{
    gp_buffer graph = graph_of();
    gp_error err;
    loaded l = { 0 };

    put_tensor(&graph, "half", "", 0.5, 0);
    put_tensor(&graph, "k", "32 3", 0, 1);
    put_node(&graph, "Identity", "i", "x", "x1", "");
    put_node(&graph, "Mul", "m", "x1 half", "x2", "");
    put_node(&graph, "Relu", "r", "x", "r", "");
    put_node(&graph, "Add", "a", "x2 r", "a", "");
    put_node(&graph, "Flatten", "f", "a", "f", "axis=1");
    put_node(&graph, "Gemm", "g", "f k", "y", "");
    gp_buffer file = model_of(&graph, 13);

    REQUIRE_OK(load(&l, &file, &err), err);
    CHECK_NEAR(1, l.spec->scale[0], 0);
    CHECK_TEXT("scale", l.spec->layers[0].kind->name);
    CHECK_TEXT("relu", l.spec->layers[1].kind->name);
    CHECK_INT(GP_INPUT_LAYER, l.spec->layers[1].inputs[0]);
    loaded_free(&l);
    gp_buffer_deinit(&file);
}

/* Check that a node before the head of the foreign model, or in place of the head, is refused. */
static void check_refused(gp_status wanted, const char *part, const char *type, const char *inputs,
                          const char *attributes)
{
    gp_buffer graph = graph_of();
    gp_error err;
    loaded l = { 0 };

    put_tensor(&graph, "wide", "1 1 1 4", 0, 1);
    put_tensor(&graph, "half", "", 0.5, 0);
    put_tensor(&graph, "k", "32 3", 0, 1);
    put_node(&graph, type, "odd one", inputs, "o", attributes);
    put_node(&graph, "Flatten", "flat", "o", "f", "");
    put_node(&graph, "Gemm", "head", "f k", "y", "");
    gp_buffer file = model_of(&graph, 12);

    CHECK_STATUS(wanted, load(&l, &file, &err));
    CHECK_CONTAINS(err.message, part);
    CHECK_CONTAINS(err.message, "odd one");
    loaded_free(&l);
    gp_buffer_deinit(&file);
}

TEST(unsupported_nodes_are_named_with_operator_and_opset)
{
    const gp_status no = GP_EUNSUPPORTED;

    check_refused(no, "node 'odd one' (Einsum, opset 12): this operator is not supported; docs/onnx.md",
                  "Einsum", "x", "");
    check_refused(no, "storage_order=1 is not supported", "MaxPool", "x", "kernel_shape=2,2 storage_order=1");
    check_refused(no, "auto_pad is not NOTSET", "Conv", "x w", "auto_pad=@SAME");
    check_refused(no, "both auto_pad and pads", "Conv", "x w", "auto_pad=@SAME_UPPER pads=1,1,1,1");
    check_refused(no, "training_mode=1", "BatchNormalization", "x b b b b", "training_mode=1");
    check_refused(no, "spatial=0 is not supported", "BatchNormalization", "x b b b b", "spatial=0");
    check_refused(no, "its min must be one float32 number", "Clip", "x wide", "");
    check_refused(no, "kernel_shape has 3 numbers", "MaxPool", "x", "kernel_shape=2,2,2");
    check_refused(no, "its attribute 'slope' is not supported", "Relu", "x", "slope=1");
    check_refused(no, "transA=1", "Gemm", "x m", "transA=1");
    check_refused(no, "'m' has 2 dimensions; must have 4", "Conv", "x m", "");
    check_refused(no, "one per channel", "Mul", "x wide", "");
    check_refused(no, "axis=2", "Flatten", "x", "axis=2");
    check_refused(no, "axis 0 is not supported", "Softmax", "x", "axis=0");
    check_refused(no, "axis 4", "Concat", "x x", "axis=4");
    check_refused(no, "padding of height and width", "Pad", "x", "pads=0,1,0,0,0,0,0,0");
    check_refused(no, "its mode must be constant", "Pad", "x", "mode=@edge pads=0,0,1,1,0,0,1,1");
    check_refused(no, "moves the sample axis", "Transpose", "x", "perm=1,0,2,3");
    check_refused(no, "all its inputs are constants", "Relu", "w", "");
    check_refused(no, "only Add and Mul are supported", "Sub", "x x", "");
    check_refused(no, "a constant divided by a layer", "Div", "half x", "");
    check_refused(GP_EINVAL, "it reads 'nobody'", "Relu", "nobody", "");
    check_refused(GP_EINVAL, "rate", "Dropout", "x", "ratio=0.99");
}

TEST(opsets_outside_6_to_28_are_refused)
{
    static const int64_t opsets[] = { 0, 5, 29, -1, INT64_MAX };
    gp_error err;
    loaded l = { 0 };

    for (int i = 0; i < 5; i++) {
        gp_buffer graph = graph_of(), file = model_of(&graph, opsets[i]);

        CHECK_STATUS(GP_EUNSUPPORTED, load(&l, &file, &err));
        CHECK_CONTAINS(err.message, "must be 6 to 28");
        gp_buffer_deinit(&file);
    }
}

TEST(nodes_with_a_shared_initializer_cannot_exceed_the_memory_limit)
{
    gp_buffer graph = message();
    gp_error err;
    loaded l = { 0 };
    char in[8] = "x", out[8];

    put_port(&graph, 11, "x", "N 64 1 1");
    put_port(&graph, 12, "y", "N 64");
    put_tensor(&graph, "w", "64 64 1 1", 0, 1);
    for (int i = 0; i < 20; i++) {
        snprintf(out, sizeof(out), "c%d", i);
        gp_buffer inputs = message();

        gp_buffer_printf(&inputs, NULL, "%s w", in);
        put_node(&graph, "Conv", out, gp_buffer_text(&inputs), out, "");
        gp_buffer_deinit(&inputs);
        strcpy(in, out);
    }
    put_node(&graph, "Flatten", "f", in, "y", "");
    gp_buffer file = model_of(&graph, 13);

    CHECK_STATUS(GP_EUNSUPPORTED, load(&l, &file, &err));
    CHECK_CONTAINS(err.message, "share the initializer");
    gp_buffer_deinit(&file);
}

TEST(equal_biases_merged_by_an_exporter_are_copied_to_each_layer)
{
    gp_buffer graph = message();
    gp_error err;
    loaded l = { 0 };

    put_port(&graph, 11, "x", "N 4 1 1");
    put_port(&graph, 12, "y", "N 4");
    put_tensor(&graph, "v", "4 4 1 1", 0, 1);
    put_tensor(&graph, "w", "4 4 1 1", 100, 1);
    put_tensor(&graph, "b", "4", 7, 1);
    put_node(&graph, "Conv", "first", "x v b", "h", "");
    put_node(&graph, "Conv", "second", "h w b", "c", "");
    put_node(&graph, "Flatten", "f", "c", "y", "");
    gp_buffer file = model_of(&graph, 13);
    gp_graph *network;

    CHECK_STATUS(GP_OK, load(&l, &file, &err));
    CHECK_STATUS(GP_OK, gp_graph_new(&network, l.spec, &err));
    for (uint32_t p = 1; p < 4; p += 2)
        for (int i = 0; i < 4; i++)
            CHECK_NEAR(7 + i, l.blob[network->parameters[p].offset + i], 0);
    CHECK_NEAR(103, l.blob[network->parameters[2].offset + 3], 0);
    gp_graph_free(network);
    loaded_free(&l);
    gp_buffer_deinit(&file);
}

/* ---- arbitrary bytes ---- */

static void check_bytes(gp_status wanted, const char *part, gp_buffer *file)
{
    gp_error err;
    loaded l = { 0 };

    CHECK_STATUS(wanted, load(&l, file, &err));
    CHECK_CONTAINS(err.message, part);
    loaded_free(&l);
    gp_buffer_deinit(file);
}

TEST(malformed_wire_bytes_are_refused_before_protobuf)
{
    gp_buffer file = message();

    check_bytes(GP_ECORRUPT, "empty", &file);
    gp_buffer_append(&file, "\x0b\x0c", 2, NULL); /* a group */
    check_bytes(GP_ECORRUPT, "a field with an unknown wire type", &file);
    gp_buffer_append(&file, "\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 12, NULL);
    check_bytes(GP_ECORRUPT, "a number with too many bytes", &file);

    /* a graph with a length of 127 bytes and one byte left */
    gp_buffer_append(&file, "\x3a\x7f\x00", 3, NULL);
    check_bytes(GP_ECORRUPT, "127 bytes needed, but only 1 are left", &file);
    gp_buffer_append(&file, "\x00\x00", 2, NULL);
    check_bytes(GP_ECORRUPT, "number out of range", &file);
    put_bytes(&file, 2, "a\0b", 3);
    check_bytes(GP_ECORRUPT, "a text with a NUL byte", &file);
    put_int(&file, 7, 1);
    check_bytes(GP_ECORRUPT, "with the wrong type", &file);
    put_int(&file, 1, 8);
    put_int(&file, 1, 8);
    check_bytes(GP_ECORRUPT, "a field that is present twice", &file);
    put_bytes(&file, 7, "", 0);
    put_bytes(&file, 7, "", 0);
    check_bytes(GP_ECORRUPT, "a field that is present twice", &file);
    put_int(&file, 1, 8);
    check_bytes(GP_ECORRUPT, "no graph", &file);
}

static gp_buffer tensor_model(gp_buffer *tensor)
{
    gp_buffer graph = graph_of();

    put_message(&graph, 5, tensor);
    return model_of(&graph, 13);
}

TEST(tensor_data_must_match_the_shape)
{
    static const float numbers[4] = { 0 };
    gp_buffer tensor = message(), file;

    put_int(&tensor, 1, 5);
    put_int(&tensor, 2, 1);
    put_text(&tensor, 8, "short");
    put_bytes(&tensor, 9, numbers, 16);
    file = tensor_model(&tensor);
    check_bytes(GP_ECORRUPT, "tensor 'short' has 16 bytes of data, but its shape of 5 elements", &file);
    put_bytes(&tensor, 1, "\x05", 1); /* packed dims */
    put_int(&tensor, 2, 1);
    put_bytes(&tensor, 4, numbers, 16);
    file = tensor_model(&tensor);
    check_bytes(GP_ECORRUPT, "has 4 numbers, but its shape needs 5", &file);
    put_int(&tensor, 1, (int64_t)1 << 20);
    put_int(&tensor, 1, (int64_t)1 << 20);
    file = tensor_model(&tensor);
    check_bytes(GP_ELIMIT, "elements", &file);
    put_int(&tensor, 1, -1);
    file = tensor_model(&tensor);
    check_bytes(GP_ELIMIT, "elements", &file);
    put_int(&tensor, 14, 1);
    put_text(&tensor, 8, "far");
    file = tensor_model(&tensor);
    check_bytes(GP_EUNSUPPORTED, "tensor 'far' has its data in another file (external data)", &file);
}

TEST(depth_and_counts_are_limited)
{
    gp_buffer inner = message(), graph = message(), file;

    put_text(&inner, 2, "g");
    for (int i = 0; i < 20; i++) { /* graph in attribute in node in graph ... */
        gp_buffer attribute = message(), node = message();

        put_message(&attribute, 6, &inner);
        put_message(&node, 5, &attribute);
        put_message(&inner, 1, &node);
    }
    file = model_of(&inner, 13);
    check_bytes(GP_ELIMIT, "more than 16 levels of nested", &file);
    for (int i = 0; i < 20000; i++)
        put_bytes(&graph, 1, "", 0);
    file = model_of(&graph, 13);
    check_bytes(GP_ELIMIT, "more than 16384 nodes", &file);
    for (int i = 0; i < 1100000; i++)
        put_int(&file, 1000, 1);
    check_bytes(GP_ELIMIT, "more than 1048576 fields", &file);
}

/* Any bytes must give an error, or a network that the graph accepts. */
static void try_bytes(const uint8_t *data, size_t bytes)
{
    loaded l = { 0 };
    gp_graph *graph;
    gp_error err = { 0 };

    /* exact size, so that ASan detects reads past the end */
    uint8_t *exact = malloc(bytes == 0 ? 1 : bytes);

    memcpy(exact, data, bytes);
    if (gp_onnx_read(&l.spec, &l.blob, &l.class_names, &l.class_count, exact, bytes, NULL, &err) == GP_OK) {
        REQUIRE_OK(gp_graph_new(&graph, l.spec, &err), err);
        volatile float last = graph->blob_count == 0 ? 0 : l.blob[graph->blob_count - 1];

        (void)last;
        gp_graph_free(graph);
    } else {
        CHECK(err.message[0] != '\0');
        CHECK(l.spec == NULL && l.blob == NULL);
    }
    loaded_free(&l);
    free(exact);
}

TEST(file_truncated_at_any_byte_gives_an_error_or_a_network)
{
    gp_buffer ours, foreign = foreign_model();
    int64_t live = gp_alloc_get_stats().live;

    REQUIRE(write_net(&ours, "tiny", (const char *const[]){ "a", "b" }, 2) == GP_OK);
    for (size_t bytes = 0; bytes < ours.bytes; bytes++)
        try_bytes(ours.data, bytes);
    for (size_t bytes = 0; bytes < foreign.bytes; bytes++)
        try_bytes(foreign.data, bytes);
    gp_buffer_deinit(&ours);
    CHECK_INT(live, gp_alloc_get_stats().live);
    gp_buffer_deinit(&foreign);
}

TEST(file_with_flipped_bits_gives_an_error_or_a_network)
{
    gp_buffer files[2] = { { 0 }, foreign_model() };

    REQUIRE(write_net(&files[0], "tiny", (const char *const[]){ "a", "b" }, 2) == GP_OK);
    for (int f = 0; f < 2; f++) {
        uint8_t *bytes = malloc(files[f].bytes);

        for (uint32_t round = 0; round < 6000; round++) {
            uint32_t word[4];

            gp_rng_draw(word, 99, (uint32_t)f, round, 0, 0);
            memcpy(bytes, files[f].data, files[f].bytes);
            for (uint32_t i = 0; i <= word[3] % 3; i++)
                bytes[word[i] % files[f].bytes] ^= (uint8_t)(1 << (word[i] >> 24) % 8);
            try_bytes(bytes, files[f].bytes);
        }
        free(bytes);
        gp_buffer_deinit(&files[f]);
    }
}

static gp_status load_and_free(const gp_buffer *file)
{
    loaded l = { 0 };
    gp_error err;
    gp_status status = load(&l, file, &err);

    loaded_free(&l);
    return status;
}

static gp_status write_and_free(const net *n, const char *const *names)
{
    gp_buffer file;

    gp_buffer_init(&file, 1 << 20);
    gp_status status = gp_onnx_write(&file, n->spec, n->graph, n->blob, names, 2, NULL);

    gp_buffer_deinit(&file);
    return status;
}

TEST(every_failing_allocation_is_handled)
{
    static const char *const names[] = { "a", "b" };
    gp_buffer ours, foreign = foreign_model();
    gp_error err;
    net n;

    REQUIRE_OK(net_new(&n, "tiny", &err), err);
    CHECK_EVERY_ALLOCATION(write_and_free(&n, names), (void)0);
    REQUIRE(write_net(&ours, "tiny", names, 2) == GP_OK);
    CHECK_EVERY_ALLOCATION(load_and_free(&ours), (void)0);
    CHECK_EVERY_ALLOCATION(load_and_free(&foreign), (void)0);
    gp_buffer_deinit(&ours);
    gp_buffer_deinit(&foreign);
    net_free(&n);
}
