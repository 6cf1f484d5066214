/* entry.c -- the plugin's table: devices, libraries, one kernel that proves the tool chain.
 *
 * The backend opens a device with its streams and library handles.  It claims no op yet, so compile() says which op
 * it cannot run; the daemon's CPU path does not pass here. */
#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <cudnn.h>
#include <inttypes.h>
#include <math.h>
#include <nccl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "worker/backend/cuda/kernels.h"
#include "worker/backend/plugin.h"

/* Foreign results become ours by an expression. */
static gp_status cuda_check(cudaError_t code, const char *what, gp_error *err)
{
    if (code == cudaSuccess)
        return GP_OK;
    return gp_fail(err,
                   code == cudaErrorNoDevice || code == cudaErrorInsufficientDriver ||
                           code == cudaErrorStubLibrary
                       ? GP_ENODEV
                       : GP_EIO,
                   "%s: %s (CUDA error %d)", what, cudaGetErrorString(code), (int)code);
}
#define GP_CUDA(call, err) cuda_check(call, #call, err)

struct gp_backend {
    cudaStream_t stream;
    cudnnHandle_t cudnn;
    cublasLtHandle_t cublas;
};

/* ---- devices ---- */

static gp_status plugin_device_count(uint32_t *count, gp_error *err)
{
    int found = 0;
    gp_status status = GP_CUDA(cudaGetDeviceCount(&found), err);

    if (status == GP_OK)
        *count = (uint32_t)found;
    return status;
}

static gp_status plugin_device(uint32_t ordinal, gp_plugin_device *out, gp_error *err)
{
    struct cudaDeviceProp facts;
    size_t available = 0, total = 0;
    int used = 0;
    gp_status status = GP_CUDA(cudaGetDeviceProperties(&facts, (int)ordinal), err);

    if (status == GP_OK)
        status = GP_CUDA(cudaSetDevice((int)ordinal), err);
    if (status == GP_OK)
        status = GP_CUDA(cudaMemGetInfo(&available, &total), err);
    if (status != GP_OK)
        return status;
    *out = (gp_plugin_device){ .ordinal = ordinal,
                               .major = (uint32_t)facts.major,
                               .minor = (uint32_t)facts.minor,
                               .memory_total = total,
                               .memory_free = available };
    snprintf(out->name, sizeof(out->name), "%.95s", facts.name);
    used = snprintf(out->uuid, sizeof(out->uuid), "GPU-");
    for (int i = 0; i < 16; i++)
        used +=
            snprintf(out->uuid + used, sizeof(out->uuid) - (size_t)used, "%s%02x",
                     i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", (unsigned char)facts.uuid.bytes[i]);
    return GP_OK;
}

/* ---- self test: the kernel against the host ---- */

enum { TEST_COUNT = 4099 };

typedef struct test_memory {
    float *w, *v, *g, *hyper; /* device */
    float host_w[TEST_COUNT], host_v[TEST_COUNT], host_g[TEST_COUNT], back[TEST_COUNT];
} test_memory;

static gp_status test_run(test_memory *m, const float hyper[4], gp_error *err)
{
    const size_t bytes = TEST_COUNT * sizeof(float);
    float **buffers[] = { &m->w, &m->v, &m->g };
    const float *sources[] = { m->host_w, m->host_v, m->host_g };
    gp_status status = GP_CUDA(cudaMalloc((void **)&m->hyper, 4 * sizeof(float)), err);

    if (status == GP_OK)
        status = GP_CUDA(cudaMemcpy(m->hyper, hyper, 4 * sizeof(float), cudaMemcpyHostToDevice), err);
    for (int i = 0; i < 3 && status == GP_OK; i++) {
        status = GP_CUDA(cudaMalloc((void **)buffers[i], bytes), err);
        if (status == GP_OK)
            status = GP_CUDA(cudaMemcpy(*buffers[i], sources[i], bytes, cudaMemcpyHostToDevice), err);
    }
    if (status == GP_OK)
        status = GP_CUDA(gp_cuda_sgdm(m->w, m->v, m->g, TEST_COUNT, m->hyper, NULL), err);
    if (status == GP_OK)
        status = GP_CUDA(cudaMemcpy(m->back, m->w, bytes, cudaMemcpyDeviceToHost), err);
    return status;
}

static gp_status plugin_self_test(uint32_t ordinal, gp_error *err)
{
    static const float hyper[4] = { 0.1f, 0.9f, 1e-4f, 0.5f };
    test_memory *m = calloc(1, sizeof(*m));
    gp_status status;

    if (m == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for the self test");
    for (int i = 0; i < TEST_COUNT; i++) {
        m->host_w[i] = (float)(i % 17) - 8;
        m->host_v[i] = (float)(i % 5) * 0.25f;
        m->host_g[i] = (float)(i % 13) * 0.5f - 3;
    }
    status = GP_CUDA(cudaSetDevice((int)ordinal), err);
    if (status == GP_OK)
        status = test_run(m, hyper, err);
    for (int i = 0; i < TEST_COUNT && status == GP_OK; i++) {
        double v = hyper[1] * (double)m->host_v[i] -
                   hyper[0] * ((double)m->host_g[i] * hyper[3] + hyper[2] * (double)m->host_w[i]);

        if (fabs(m->host_w[i] + v - (double)m->back[i]) > 1e-5 * (1 + fabs((double)m->host_w[i])))
            status =
                gp_fail(err, GP_EINTERNAL, "device %" PRIu32 " computes %.9g for element %d, the host %.9g",
                        ordinal, (double)m->back[i], i, m->host_w[i] + v);
    }
    cudaFree(m->w);
    cudaFree(m->v);
    cudaFree(m->g);
    cudaFree(m->hyper);
    free(m);
    return status;
}

static gp_status plugin_group_id(uint8_t id[GP_PLUGIN_GROUP_ID_BYTES], gp_error *err)
{
    ncclUniqueId unique;
    ncclResult_t result = ncclGetUniqueId(&unique);

    _Static_assert(sizeof(unique) == GP_PLUGIN_GROUP_ID_BYTES, "NCCL's id has another size");
    if (result != ncclSuccess)
        return gp_fail(err, GP_EIO, "ncclGetUniqueId: %s", ncclGetErrorString(result));
    memcpy(id, &unique, sizeof(unique));
    return GP_OK;
}

/* ---- backend ---- */

static void cuda_close(gp_backend *backend)
{
    if (backend == NULL)
        return;
    if (backend->cublas != NULL)
        cublasLtDestroy(backend->cublas);
    if (backend->cudnn != NULL)
        cudnnDestroy(backend->cudnn);
    if (backend->stream != NULL)
        cudaStreamDestroy(backend->stream);
    free(backend);
}

/* The process sees one device: CUDA_VISIBLE_DEVICES was set to its UUID. */
static gp_status cuda_open(gp_backend **out, const gp_backend_options *options, gp_error *err)
{
    gp_backend *backend = calloc(1, sizeof(*backend));
    gp_status status;

    (void)options;
    if (backend == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for the CUDA backend");
    status = GP_CUDA(cudaSetDevice(0), err);
    if (status == GP_OK)
        status = GP_CUDA(cudaStreamCreateWithFlags(&backend->stream, cudaStreamNonBlocking), err);
    if (status == GP_OK && cudnnCreate(&backend->cudnn) != CUDNN_STATUS_SUCCESS)
        status = gp_fail(err, GP_EIO, "cuDNN cannot be initialised on this device");
    if (status == GP_OK && cublasLtCreate(&backend->cublas) != CUBLAS_STATUS_SUCCESS)
        status = gp_fail(err, GP_EIO, "cuBLASLt cannot be initialised on this device");
    if (status != GP_OK) {
        cuda_close(backend);
        return status;
    }
    *out = backend;
    return GP_OK;
}

static size_t cuda_claim(gp_backend *backend, const gp_graph *graph, const gp_op *ops, size_t count)
{
    (void)backend;
    (void)graph;
    (void)ops;
    (void)count;
    return 0;
}

static gp_status cuda_compile(gp_plan **out, gp_backend *backend, const gp_graph *graph,
                              const gp_plan_options *options, const gp_plan_memory *memory, gp_error *err)
{
    (void)out;
    (void)backend;
    (void)memory;
    const gp_ops *ops = &graph->ops[options->phase];

    return gp_fail(err, GP_EUNSUPPORTED,
                   "the CUDA backend of this version runs no network yet (first op: code %d); use "
                   "CPU workers: gradpool up --devices cpu",
                   ops->count > 0 ? (int)ops->op[0].code : -1);
}

static void cuda_free(gp_plan *plan)
{
    (void)plan;
}

static gp_status cuda_run(gp_plan *plan, const gp_batch *batch, gp_ready_fn ready, void *context,
                          gp_error *err)
{
    (void)plan;
    (void)batch;
    (void)ready;
    (void)context;
    return gp_fail(err, GP_ESTATE, "there is no plan to run");
}

static gp_status cuda_sync(gp_backend *backend, gp_error *err)
{
    return GP_CUDA(cudaStreamSynchronize(backend->stream), err);
}

static gp_plan_times cuda_take_times(gp_plan *plan)
{
    (void)plan;
    return (gp_plan_times){ 0 };
}

static size_t cuda_memory_bytes(const gp_plan *plan)
{
    (void)plan;
    return 0;
}

static void cuda_describe(const gp_plan *plan, char *text, size_t bytes)
{
    (void)plan;
    snprintf(text, bytes, "no segments");
}

static const gp_backend_ops cuda_ops = {
    .name = "cuda",
    .open = cuda_open,
    .close = cuda_close,
    .claim = cuda_claim,
    .compile = cuda_compile,
    .free = cuda_free,
    .run = cuda_run,
    .sync = cuda_sync,
    .take_times = cuda_take_times,
    .memory_bytes = cuda_memory_bytes,
    .describe = cuda_describe,
};

__attribute__((visibility("default"))) const gp_plugin *gp_plugin_entry(void);
const gp_plugin *gp_plugin_entry(void)
{
    static char versions[120];
    static gp_plugin plugin;
    int nccl = 0;
    size_t cudnn = cudnnGetVersion(), cublas = cublasLtGetVersion();

    ncclGetVersion(&nccl);
    snprintf(versions, sizeof(versions), "CUDA %d.%d, cuDNN %zu.%zu.%zu, cuBLASLt %zu.%zu, NCCL %d.%d.%d",
             CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10, cudnn / 10000, cudnn % 10000 / 100,
             cudnn % 100, cublas / 10000, cublas % 10000 / 100, nccl / 10000, nccl % 10000 / 100, nccl % 100);
    plugin = (gp_plugin){ .abi = GP_PLUGIN_ABI,
                          .name = "cuda",
                          .versions = versions,
                          .backend = &cuda_ops,
                          .device_count = plugin_device_count,
                          .device = plugin_device,
                          .self_test = plugin_self_test,
                          .group_id = plugin_group_id };
    return &plugin;
}
