/* onnx_tool.c: the C part of onnx_oracle.py.
 *
 *   onnx_tool write NET FILE     write a network from onnx_nets.h with gp_onnx_write()
 *   onnx_tool save NET FILE      the same with gp_onnx_save() and external data
 *   onnx_tool scores NET COUNT   print the float64 oracle's scores for COUNT samples
 *                                (float32, stored values) from stdin; NET may be FILE.onnx,
 *                                read by gp_onnx_read()
 *   onnx_tool infer NET COUNT    print the CPU backend's scores
 *   onnx_tool values FILE COUNT  print the oracle's, then the backend's outputs of the regression
 *                                network in FILE */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/model/onnx/onnx.h"
#include "tests/common/model/onnx_nets.h"
#include "tests/ref/run.h"
#include "worker/backend/backend.h"

static int failed(const gp_error *err)
{
    fprintf(stderr, "onnx_tool: %s\n", err->message);
    return 1;
}

static unsigned char *file_read(const char *path, size_t *bytes)
{
    FILE *file = fopen(path, "rb");
    long size = file != NULL && fseek(file, 0, SEEK_END) == 0 ? ftell(file) : -1;
    unsigned char *data = size < 0 ? NULL : malloc((size_t)size + 1);

    if (data != NULL) {
        rewind(file);
        *bytes = fread(data, 1, (size_t)size, file);
    }
    if (file != NULL)
        fclose(file);
    return data;
}

static gp_status file_load(net *n, const char *path, const char *loss, gp_error *err)
{
    const char *slash = strrchr(path, '/');
    char **names, folder[4096] = ".";
    uint32_t count;
    size_t bytes;
    unsigned char *data = file_read(path, &bytes);

    *n = (net){ 0 };
    if (data == NULL)
        return gp_fail_errno(err, GP_EIO, "cannot read %s", path);
    if (slash != NULL)
        snprintf(folder, sizeof(folder), "%.*s", (int)(slash - path), path);
    gp_status status = gp_onnx_read(&n->spec, &n->blob, &names, &count, data, bytes,
                                    &(gp_onnx_options){ .folder = folder, .loss = loss }, err);

    free(data);
    if (status != GP_OK)
        return status;
    for (uint32_t i = 0; i < count; i++)
        gp_free(names[i]);
    gp_free(names);
    return gp_graph_new(&n->graph, n->spec, err);
}

/* Save a network with the weights in FILE.data, even if it is small. */
static int save_net(const net *n, const char *path)
{
    gp_error err;

    return gp_onnx_save(path, n->spec, n->graph, n->blob, NULL, 0, 1, &err) == GP_OK ? 0 : failed(&err);
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

/* Read COUNT samples from stdin; NULL: too few. */
static float *samples_read(const net *n, int64_t count)
{
    const size_t numbers = (size_t)(count * gp_shape_count(&n->spec->input));
    float *stored = calloc(numbers + 1, sizeof(float));

    if (stored != NULL && fread(stored, sizeof(float), numbers, stdin) == numbers)
        return stored;
    fprintf(stderr, "onnx_tool: %zu numbers are wanted on stdin\n", numbers);
    free(stored);
    return NULL;
}

static int print_oracle(const net *n, const float *stored, int64_t count)
{
    const size_t numbers = (size_t)(count * gp_shape_count(&n->spec->input));
    double *input = calloc(numbers + 1, sizeof(double)),
           *blob = calloc(n->graph->blob_count + 1, sizeof(double));

    if (input == NULL || blob == NULL)
        return 1;
    gp_ref_input(n->spec, GP_F32, stored, count, input);
    gp_ref_widen(n->blob, n->graph->blob_count, blob);
    gp_ref_run *run = gp_ref_run_new(n->graph, GP_PHASE_INFER,
                                     &(gp_ref_batch){ .blob = blob, .input = input, .count = count });

    for (int64_t i = 0; i < count * n->graph->score_count; i++)
        printf("%.17g\n", run->scores[i]);
    gp_ref_run_free(run);
    free(input);
    free(blob);
    return 0;
}

static int print_backend(const net *n, const float *stored, int64_t count)
{
    const gp_backend_ops *ops = &gp_backend_cpu;
    const gp_plan_options options = { .phase = GP_PHASE_INFER,
                                      .micro_batch = (uint32_t)count,
                                      .sample_dtype = GP_F32 };
    float *scores = calloc((size_t)(count * n->graph->score_count), sizeof(float));
    double sums[GP_SUMS];
    const gp_plan_memory memory = { .parameters = n->blob, .sums = sums, .scores = scores };
    const gp_batch batch = { .samples = stored, .count = (uint32_t)count, .first = true, .last = true };
    gp_backend *backend = NULL;
    gp_plan *plan = NULL;
    gp_error err;
    gp_status status = ops->open(&backend, &(gp_backend_options){ .threads = 2 }, &err);

    if (status == GP_OK)
        status = ops->compile(&plan, backend, n->graph, &options, &memory, &err);
    if (status == GP_OK)
        status = ops->run(plan, &batch, NULL, NULL, &err);
    if (status == GP_OK)
        status = ops->sync(backend, &err);
    for (int64_t i = 0; status == GP_OK && i < count * n->graph->score_count; i++)
        printf("%.9g\n", (double)scores[i]);
    if (plan != NULL)
        ops->free(plan);
    if (backend != NULL)
        ops->close(backend);
    free(scores);
    return status == GP_OK ? 0 : failed(&err);
}

static int run(const char *verb, const net *n, int64_t count)
{
    float *stored = samples_read(n, count);
    int rc = stored == NULL;

    if (rc == 0 && strcmp(verb, "infer") != 0)
        rc = print_oracle(n, stored, count);
    if (rc == 0 && strcmp(verb, "scores") != 0)
        rc = print_backend(n, stored, count);
    free(stored);
    return rc;
}

int main(int count, char **arguments)
{
    gp_error err;
    net n;

    if (count != 4) {
        fprintf(stderr, "usage: onnx_tool write|save NET FILE | onnx_tool scores|infer|values NET COUNT\n");
        return 2;
    }
    const char *verb = arguments[1], *name = arguments[2], *loss = strcmp(verb, "values") == 0 ? "mse" : NULL;
    bool file = strstr(name, ".onnx") != NULL;

    if ((file ? file_load(&n, name, loss, &err) : net_new(&n, name, &err)) != GP_OK)
        return failed(&err);
    int rc = strcmp(verb, "write") == 0  ? write_net(&n, arguments[3])
             : strcmp(verb, "save") == 0 ? save_net(&n, arguments[3])
                                         : run(verb, &n, atoi(arguments[3]));

    net_free(&n);
    return rc;
}
