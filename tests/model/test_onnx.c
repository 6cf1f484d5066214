#include "common/base/buffer.h"
#include "common/model/onnx.h"
#include "tests/gp_test.h"

typedef struct model {
    gp_netspec *spec;
    gp_graph *graph;
    float *blob;
} model;

/* What a read gives. */
typedef struct loaded {
    gp_netspec *spec;
    float *blob;
    char **class_names;
    uint32_t class_count;
} loaded;

static void model_free(model *m)
{
    gp_graph_free(m->graph);
    gp_netspec_free(m->spec);
    gp_free(m->blob);
}

static void loaded_free(loaded *l)
{
    for (uint32_t i = 0; i < l->class_count; i++)
        gp_free(l->class_names[i]);
    gp_free(l->class_names);
    gp_netspec_free(l->spec);
    gp_free(l->blob);
    *l = (loaded){ 0 };
}

static bool model_finish(model *m)
{
    gp_error err;

    if (gp_graph_new(&m->graph, m->spec, &err) != GP_OK) {
        GP_TEST_FAIL("%s", err.message);
        return false;
    }
    m->blob = gp_malloc(m->graph->blob_count * sizeof(float));
    gp_graph_initialize(m->graph, (gp_init_rule){ GP_INIT_NORMAL, 0.1 }, 7, m->blob);
    return true;
}

static bool json_equal(const gp_netspec *a, const gp_netspec *b)
{
    gp_buffer x, y;

    gp_buffer_init(&x, GP_NETSPEC_BYTES_MAX);
    gp_buffer_init(&y, GP_NETSPEC_BYTES_MAX);
    bool equal = gp_netspec_to_json(a, &x, false, NULL) == GP_OK &&
                 gp_netspec_to_json(b, &y, false, NULL) == GP_OK &&
                 strcmp(gp_buffer_text(&x), gp_buffer_text(&y)) == 0;

    if (!equal)
        printf("    %s\n    %s\n", gp_buffer_text(&x), gp_buffer_text(&y));
    gp_buffer_deinit(&x);
    gp_buffer_deinit(&y);
    return equal;
}

static gp_status load(loaded *l, const void *data, size_t bytes, gp_error *err)
{
    return gp_onnx_read(&l->spec, &l->blob, &l->class_names, &l->class_count, data, bytes, err);
}

TEST(lenet_comes_back_bit_for_bit_with_its_class_names)
{
    static const char *const names[] = { "zero", "one", "two", "\xc3\xa9t\xc3\xa9 \"3\"", "4", "5", "6",
                                         "7",    "8",   "9" };
    model m = { 0 };
    loaded l = { 0 };
    gp_buffer file;
    gp_error err;

    gp_buffer_init(&file, 64 << 20);
    REQUIRE_OK(gp_zoo_build(&m.spec, "lenet", NULL, 0, &err), err);
    REQUIRE(model_finish(&m));
    REQUIRE_OK(gp_onnx_write(&file, m.spec, m.graph, m.blob, names, 10, &err), err);
    REQUIRE_OK(load(&l, file.data, file.bytes, &err), err);
    CHECK(json_equal(m.spec, l.spec));
    CHECK(memcmp(m.blob, l.blob, m.graph->blob_count * sizeof(float)) == 0);
    REQUIRE(l.class_count == 10);
    for (int i = 0; i < 10; i++)
        CHECK_TEXT(names[i], l.class_names[i]);
    loaded_free(&l);
    model_free(&m);
    gp_buffer_deinit(&file);
}
