/* fuzz_onnx.c: a model file gives an error, or a network that survives a round trip. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/memory/alloc.h"
#include "common/model/onnx/onnx.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Abort unless kept. Unlike assert(), it works in every build. */
static void promise(int kept)
{
    if (!kept)
        abort();
}

typedef struct loaded {
    gp_netspec *spec;
    float *blob;
    char **class_names;
    uint32_t class_count;
} loaded;

static gp_status load(loaded *l, const void *data, size_t bytes, gp_error *err)
{
    static const gp_onnx_options options = { .repeated_max = 1 << 20 }; /* the default is 1 GiB */

    return gp_onnx_read(&l->spec, &l->blob, &l->class_names, &l->class_count, data, bytes, &options, err);
}

static void loaded_free(loaded *l)
{
    for (uint32_t i = 0; i < l->class_count; i++)
        gp_free(l->class_names[i]);
    gp_free(l->class_names);
    gp_netspec_free(l->spec);
    gp_free(l->blob);
}

static void compare(const loaded *a, const loaded *b, size_t blob_count)
{
    gp_buffer x, y;

    gp_buffer_init(&x, GP_NETSPEC_BYTES_MAX);
    gp_buffer_init(&y, GP_NETSPEC_BYTES_MAX);
    promise(gp_netspec_to_json(a->spec, &x, false, NULL) == GP_OK);
    promise(gp_netspec_to_json(b->spec, &y, false, NULL) == GP_OK);
    promise(strcmp(gp_buffer_text(&x), gp_buffer_text(&y)) == 0);
    promise(memcmp(a->blob, b->blob, blob_count * sizeof(float)) == 0);
    promise(a->class_count == b->class_count);
    for (uint32_t i = 0; i < a->class_count; i++)
        promise(strcmp(a->class_names[i], b->class_names[i]) == 0);
    gp_buffer_deinit(&x);
    gp_buffer_deinit(&y);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    loaded first = { 0 }, second = { 0 };
    gp_graph *graph;
    gp_buffer file;
    gp_error err = { 0 };

    if (load(&first, data, size, &err) != GP_OK) {
        promise(err.code != GP_OK && err.message[0] != '\0');
        return 0;
    }
    gp_buffer_init(&file, (size_t)1 << 28);
    promise(gp_graph_new(&graph, first.spec, &err) == GP_OK);
    promise(gp_onnx_write(&file, first.spec, graph, first.blob, (const char *const *)first.class_names,
                          first.class_count, &err) == GP_OK);
    promise(load(&second, file.data, file.bytes, &err) == GP_OK);
    compare(&first, &second, graph->blob_count);
    gp_graph_free(graph);
    gp_buffer_deinit(&file);
    loaded_free(&first);
    loaded_free(&second);
    return 0;
}
