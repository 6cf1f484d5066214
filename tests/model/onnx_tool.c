/* onnx_tool.c -- the C half of onnx_oracle.py.
 *
 *   onnx_tool write NET FILE     a network of onnx_nets.h, by gp_onnx_write()
 *   onnx_tool scores NET COUNT   the float64 oracle's scores of COUNT samples (float32, stored values) on stdin;
 *                                NET may be FILE.onnx, read by gp_onnx_read() */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/model/onnx.h"
#include "tests/model/onnx_nets.h"
#include "tests/ref/run.h"

static int failed(const gp_error *err)
{
    fprintf(stderr, "onnx_tool: %s\n", err->message);
    return 1;
}

static gp_status file_load(net *n, const char *path, gp_error *err)
{
    static unsigned char data[16 << 20];
    char **names;
    uint32_t count;
    FILE *file = fopen(path, "rb");

    *n = (net){ 0 };
    if (file == NULL)
        return gp_fail_errno(err, GP_EIO, "cannot open %s", path);
    size_t bytes = fread(data, 1, sizeof(data), file);

    fclose(file);
    gp_status status = gp_onnx_read(&n->spec, &n->blob, &names, &count, data, bytes, err);

    if (status != GP_OK)
        return status;
    for (uint32_t i = 0; i < count; i++)
        gp_free(names[i]);
    gp_free(names);
    return gp_graph_new(&n->graph, n->spec, err);
}

static int write_net(const net *n, const char *path)
{
    gp_buffer buffer;
    gp_error err;
    FILE *file = fopen(path, "wb");

    gp_buffer_init(&buffer, 64 << 20);
    if (file == NULL || gp_onnx_write(&buffer, n->spec, n->graph, n->blob, NULL, 0, &err) != GP_OK)
        return file == NULL ? 1 : failed(&err);
    size_t put = fwrite(buffer.data, 1, buffer.bytes, file);
    int rc = put == buffer.bytes && fclose(file) == 0 ? 0 : 1;

    gp_buffer_deinit(&buffer);
    return rc;
}

static int print_scores(const net *n, int64_t count)
{
    const size_t numbers = (size_t)(count * gp_shape_count(&n->spec->input));
    float *stored = calloc(numbers + 1, sizeof(float));
    double *input = calloc(numbers + 1, sizeof(double)),
           *blob = calloc(n->graph->blob_count + 1, sizeof(double));

    if (stored == NULL || input == NULL || blob == NULL ||
        fread(stored, sizeof(float), numbers, stdin) != numbers) {
        fprintf(stderr, "onnx_tool: %zu numbers are wanted on stdin\n", numbers);
        return 1;
    }
    gp_ref_input(n->spec, GP_F32, stored, count, input);
    gp_ref_widen(n->blob, n->graph->blob_count, blob);
    gp_ref_run *run = gp_ref_run_new(n->graph, GP_PHASE_INFER,
                                     &(gp_ref_batch){ .blob = blob, .input = input, .count = count });

    for (int64_t i = 0; i < count * n->graph->class_count; i++)
        printf("%.17g\n", run->scores[i]);
    gp_ref_run_free(run);
    free(stored);
    free(input);
    free(blob);
    return 0;
}

int main(int count, char **arguments)
{
    gp_error err;
    net n;

    if (count != 4) {
        fprintf(stderr, "usage: onnx_tool write NET FILE | onnx_tool scores NET COUNT\n");
        return 2;
    }
    bool file = strstr(arguments[2], ".onnx") != NULL;

    if ((file ? file_load(&n, arguments[2], &err) : net_new(&n, arguments[2], &err)) != GP_OK)
        return failed(&err);
    int rc = strcmp(arguments[1], "write") == 0 ? write_net(&n, arguments[3])
                                                : print_scores(&n, atoi(arguments[3]));

    net_free(&n);
    return rc;
}
