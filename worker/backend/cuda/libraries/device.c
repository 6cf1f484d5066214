/* A CUDA device: one stream per lane, events, marks and library handles. */
#include "worker/backend/cuda/libraries/device_state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "worker/backend/cuda/libraries/check.h"
#include "worker/backend/cuda/libraries/cublas_product.h"
#include "worker/backend/cuda/libraries/cudnn_conv.h"
#include "worker/backend/cuda/kernels/kernels.h"

enum { TIMEOUT_S = 5, TIMEOUT_MAX_S = 3600 };

struct gp_device_graph {
    cudaGraphExec_t exec;
};

struct gp_device_work {
    gp_cudnn_conv *conv; /* NULL: a product */
    gp_conv_pass pass;
    uint32_t channels; /* channels of y */
    size_t workspace;
    gp_conv_pool *pool; /* pool and description under which the plan is returned */
    char what[GP_COMPILED_WHAT_BYTES];
    gp_cublas_product *product;
};

/* ---- unused cuDNN plan pool ----
 *
 * Later requests with the same description take them: the next prediction or training, another op
 * with the same shape, or the fastest engine after measurements. Belongs to one device and the
 * device's thread. */

enum { CONV_POOL_MAX = 256 };

/* Pool entry. */
typedef struct pooled {
    char what[GP_COMPILED_WHAT_BYTES]; /* "": free */
    gp_cudnn_conv *conv;               /* NULL: cuDNN has no plan */
    char why[200];                     /* conv NULL: the error */
    size_t workspace;
    uint64_t put;
} pooled;

struct gp_conv_pool {
    pooled plans[CONV_POOL_MAX];
    uint64_t puts;
};

static void conv_pool_free(gp_conv_pool *pool)
{
    for (int i = 0; pool != NULL && i < CONV_POOL_MAX; i++)
        gp_cudnn_conv_free(pool->plans[i].conv);
    free(pool);
}

/* Take a plan from the pool. Return false if the pool has no entry for the description.
 *   what  from gp_cudnn_conv_describe(), with the engine; at most GP_COMPILED_WHAT_BYTES
 *   conv  set to the plan, which the caller then owns; NULL: cuDNN is known to have no plan
 *   why   set to the error if conv is NULL; valid until the next change of the pool */
static bool conv_pool_take(gp_conv_pool *pool, const char *what, gp_cudnn_conv **conv, size_t *workspace,
                           const char **why)
{
    for (int i = 0; i < CONV_POOL_MAX; i++) {
        pooled *at = &pool->plans[i];

        if (strcmp(at->what, what) != 0)
            continue;
        *conv = at->conv;
        *workspace = at->workspace;
        *why = at->why;
        if (at->conv != NULL) /* the knowledge that no plan exists stays in the pool */
            *at = (pooled){ .conv = NULL };
        return true;
    }
    return false;
}

/* Give a plan to the pool, or NULL to record that cuDNN has none, and why. If the pool is full, the
 * oldest entry is freed. */
static void conv_pool_put(gp_conv_pool *pool, const char *what, gp_cudnn_conv *conv, size_t workspace,
                          const char *why)
{
    pooled *to = &pool->plans[0];

    for (int i = 1; i < CONV_POOL_MAX && to->what[0] != '\0'; i++)
        if (pool->plans[i].what[0] == '\0' || pool->plans[i].put < to->put)
            to = &pool->plans[i];
    gp_cudnn_conv_free(to->conv);
    *to = (pooled){ .conv = conv, .workspace = workspace, .put = ++pool->puts };
    snprintf(to->what, sizeof(to->what), "%s", what);
    snprintf(to->why, sizeof(to->why), "%.199s", why);
}

/* ---- opening ---- */

/* The CUDA context stays until the process exits. cudaDeviceReset() would release it, but cuDNN,
 * cuBLASLt and NCCL each have their own CUDA runtime, which would fail afterwards. */
void gp_device_close(gp_device *device)
{
    if (device == NULL)
        return;
    gp_device_leave(device);
    conv_pool_free(device->convs);
    if (device->cublas != NULL)
        cublasLtDestroy(device->cublas);
    if (device->cudnn != NULL)
        cudnnDestroy(device->cudnn);
    for (uint32_t i = 0; i < device->mark_count; i++)
        cudaEventDestroy(device->marks[i]);
    free(device->marks);
    for (int i = 0; i < GP_EVENTS; i++)
        if (device->events[i] != NULL)
            cudaEventDestroy(device->events[i]);
    for (int i = 0; i < GP_LANES; i++)
        if (device->lanes[i] != NULL)
            cudaStreamDestroy(device->lanes[i]);
    free(device->directory);
    free(device);
}

static int64_t timeout_ms(void)
{
    const char *text = getenv("GRADPOOL_GPU_TIMEOUT");
    int64_t seconds = text == NULL ? 0 : atoi(text);

    return 1000 * (seconds < 1 ? TIMEOUT_S : seconds > TIMEOUT_MAX_S ? TIMEOUT_MAX_S : seconds);
}

static gp_status libraries_open(gp_device *device, gp_error *err)
{
    char why[160] = "";
    cudnnStatus_t dnn = cudnnCreate(&device->cudnn);
    cublasStatus_t blas;

    if (dnn == CUDNN_STATUS_SUCCESS)
        dnn = cudnnSetStream(device->cudnn, device->stream);
    if (dnn != CUDNN_STATUS_SUCCESS) {
        cudnnGetLastErrorString(why, sizeof(why));
        return gp_fail(err, GP_EIO, "cannot initialize cuDNN on this device: %s (%s)",
                       cudnnGetErrorString(dnn), why);
    }
    blas = cublasLtCreate(&device->cublas);
    return blas == CUBLAS_STATUS_SUCCESS
               ? GP_OK
               : gp_fail(err, GP_EIO, "cannot initialize cuBLASLt on this device: %s",
                         cublasLtGetStatusString(blas));
}

/* CUDA_VISIBLE_DEVICES contains the UUID of the device, so the process sees only one. */
gp_status gp_device_open(gp_device **out, const char *directory, gp_error *err)
{
    gp_device *device = calloc(1, sizeof(*device));
    gp_status status;

    if (device == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for a device");
    device->timeout_ms = timeout_ms();
    device->convs = calloc(1, sizeof(gp_conv_pool));
    device->directory = directory == NULL ? NULL : strdup(directory);
    device->kept = (gp_compiled){ .directory = device->directory, .libraries = device->libraries };
    status = device->convs == NULL || (directory != NULL && device->directory == NULL)
                 ? gp_fail(err, GP_ENOMEM, "no memory for a device")
                 : GP_CUDA(cudaSetDevice(0), err);
    if (status == GP_OK)
        status = gp_device_libraries(device, device->libraries, sizeof(device->libraries), err);
    if (status == GP_OK) {
        /* Create the lanes. Sums over ranks get a higher priority than computation,
         * because ranks wait for each other. */
        int least = 0, greatest = 0;

        status = GP_CUDA(cudaDeviceGetStreamPriorityRange(&least, &greatest), err);
        for (int i = 0; i < GP_LANES && status == GP_OK; i++)
            status = GP_CUDA(cudaStreamCreateWithPriority(&device->lanes[i], cudaStreamNonBlocking,
                                                          i == GP_LANE_PEERS ? greatest : least),
                             err);
        device->stream = device->lanes[GP_LANE_MAIN];
        for (int i = 0; i < GP_EVENTS && status == GP_OK; i++)
            status = GP_CUDA(cudaEventCreateWithFlags(&device->events[i], cudaEventDisableTiming), err);
    }
    if (status == GP_OK)
        status = gp_device_marks(device, GP_DEVICE_MARKS, err);
    if (status == GP_OK)
        status = libraries_open(device, err);
    if (status != GP_OK) {
        gp_device_close(device);
        return status;
    }
    *out = device;
    return GP_OK;
}

/* ---- memory ---- */

gp_status gp_device_alloc(gp_device *device, void **out, size_t bytes, gp_error *err)
{
    const double gib = 1024.0 * 1024.0 * 1024.0;
    size_t available = 0, total = 0;
    void *block = NULL;
    cudaError_t code = cudaMalloc(&block, bytes);

    if (code == cudaErrorMemoryAllocation) {
        cudaGetLastError(); /* clear the error, so that the next call does not report it again */
        cudaMemGetInfo(&available, &total);
        return gp_fail(err, GP_ENOMEM,
                       "not enough GPU memory: %.2f GiB needed, %.2f of %.2f GiB free; use a smaller "
                       "mini-batch-size, or set micro-batch-size to compute it in parts",
                       (double)bytes / gib, (double)available / gib, (double)total / gib);
    }
    if (code == cudaSuccess)
        code = cudaMemsetAsync(block, 0, bytes, device->stream);
    if (code != cudaSuccess) {
        cudaFree(block);
        return gp_cuda_check(code, "cudaMalloc and cudaMemsetAsync", err);
    }
    *out = block;
    return GP_OK;
}

void gp_device_free(gp_device *device, void *memory)
{
    if (memory == NULL)
        return;
    cudaStreamSynchronize(device->stream);
    cudaFree(memory);
}

int64_t gp_device_timeout_ms(const gp_device *device)
{
    return device->timeout_ms;
}

size_t gp_device_available(gp_device *device)
{
    size_t available = 0, total = 0;

    (void)device;
    if (cudaMemGetInfo(&available, &total) != cudaSuccess)
        cudaGetLastError();
    return available;
}

size_t gp_device_used(gp_device *device)
{
    size_t available = 0, total = 0;

    (void)device;
    if (cudaMemGetInfo(&available, &total) != cudaSuccess)
        cudaGetLastError(); /* clear the error, so that the next call does not report it again */
    return total - available;
}

gp_status gp_device_alloc_host(gp_device *device, void **out, void **there, size_t bytes, gp_error *err)
{
    void *block = NULL;
    gp_status status =
        GP_CUDA(cudaHostAlloc(&block, bytes, cudaHostAllocPortable | cudaHostAllocMapped), err);

    (void)device;
    if (status == GP_OK)
        status = GP_CUDA(cudaHostGetDevicePointer(there, block, 0), err);
    if (status != GP_OK) {
        cudaGetLastError();
        cudaFreeHost(block);
        return status;
    }
    memset(block, 0, bytes);
    *out = block;
    return GP_OK;
}

void gp_device_free_host(gp_device *device, void *memory)
{
    (void)device;
    if (memory != NULL)
        cudaFreeHost(memory);
}

gp_status gp_device_lock(gp_device *device, void *memory, size_t bytes, gp_error *err)
{
    gp_status status = GP_CUDA(cudaHostRegister(memory, bytes, cudaHostRegisterPortable), err);

    (void)device;
    if (status != GP_OK)
        cudaGetLastError(); /* clear the error, so that the next call does not report it again */
    return status;
}

void gp_device_unlock(gp_device *device, void *memory)
{
    if (memory == NULL)
        return;
    cudaStreamSynchronize(device->lanes[GP_LANE_INPUT]);
    cudaHostUnregister(memory);
}

gp_status gp_device_feed(gp_device *device, void *to, const void *from, size_t bytes, gp_error *err)
{
    return GP_CUDA(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, device->lanes[GP_LANE_INPUT]),
                   err);
}

gp_status gp_device_fetch(gp_device *device, void *to, const void *from, size_t bytes, gp_error *err)
{
    return GP_CUDA(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, device->lanes[GP_LANE_OUTPUT]),
                   err);
}

gp_status gp_device_note(gp_device *device, uint32_t event, gp_lane lane, gp_error *err)
{
    return GP_CUDA(cudaEventRecord(device->events[event], device->lanes[lane]), err);
}

gp_status gp_device_follow(gp_device *device, gp_lane lane, uint32_t event, gp_error *err)
{
    return GP_CUDA(cudaStreamWaitEvent(device->lanes[lane], device->events[event], 0), err);
}

gp_status gp_device_idle(gp_device *device, gp_lane lane, bool *idle, gp_error *err)
{
    cudaError_t code = cudaStreamQuery(device->lanes[lane]);

    *idle = code == cudaSuccess;
    if (code != cudaErrorNotReady)
        return gp_cuda_check(code, "cudaStreamQuery", err);
    cudaGetLastError();
    return GP_OK;
}

gp_status gp_device_passed(gp_device *device, uint32_t event, bool *passed, gp_error *err)
{
    cudaError_t code = cudaEventQuery(device->events[event]);

    *passed = code == cudaSuccess;
    if (code != cudaErrorNotReady)
        return gp_cuda_check(code, "cudaEventQuery", err);
    cudaGetLastError(); /* clear the "not ready" result */
    return GP_OK;
}

/* Waits for the copy. CUDA does not guarantee that unpinned memory was read when the call returns.
 * That holds where the driver stages the copy, but not where the device reads such memory directly
 * (HMM, Grace Hopper). */
gp_status gp_device_upload(gp_device *device, void *to, const void *from, size_t bytes, gp_error *err)
{
    gp_status status = GP_CUDA(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, device->stream), err);

    return status == GP_OK ? gp_device_sync(device, err) : status;
}

gp_status gp_device_download(gp_device *device, void *to, const void *from, size_t bytes, gp_error *err)
{
    return GP_CUDA(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, device->stream), err);
}

gp_status gp_device_copy(gp_device *device, void *to, const void *from, size_t bytes, gp_error *err)
{
    return GP_CUDA(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, device->stream), err);
}

gp_status gp_device_clear(gp_device *device, void *memory, size_t bytes, gp_error *err)
{
    return GP_CUDA(cudaMemsetAsync(memory, 0, bytes, device->stream), err);
}

gp_status gp_device_launch(gp_device *device, gp_kernel kernel, const gp_kernel_args *args, uint32_t count,
                           gp_error *err)
{
    return GP_CUDA(gp_kernel_launch(kernel, args, count, device->stream), err);
}

gp_status gp_device_wait(gp_device *device, gp_lane lane, gp_error *err)
{
    return GP_CUDA(cudaStreamSynchronize(device->lanes[lane]), err);
}

gp_status gp_device_sync(gp_device *device, gp_error *err)
{
    return gp_device_wait(device, GP_LANE_MAIN, err);
}

gp_status gp_device_marks(gp_device *device, uint32_t count, gp_error *err)
{
    cudaEvent_t *grown;
    gp_status status = GP_OK;

    if (count <= device->mark_count)
        return GP_OK;
    grown = realloc(device->marks, count * sizeof(*grown));
    if (grown == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for %u time marks", count);
    device->marks = grown;
    while (device->mark_count < count && status == GP_OK) {
        status = GP_CUDA(cudaEventCreate(&device->marks[device->mark_count]), err);
        device->mark_count += status == GP_OK;
    }
    return status;
}

gp_status gp_device_mark(gp_device *device, uint32_t mark, gp_error *err)
{
    return GP_CUDA(cudaEventRecord(device->marks[mark], device->stream), err);
}

int64_t gp_device_between_ns(gp_device *device, uint32_t from, uint32_t to)
{
    float ms = 0.0f;

    if (cudaEventElapsedTime(&ms, device->marks[from], device->marks[to]) != cudaSuccess)
        cudaGetLastError();
    return (int64_t)((double)ms * 1e6);
}

/* ---- graphs ---- */

gp_status gp_device_record(gp_device *device, gp_error *err)
{
    return GP_CUDA(cudaStreamBeginCapture(device->stream, cudaStreamCaptureModeThreadLocal), err);
}

gp_status gp_device_recorded(gp_device *device, gp_device_graph **out, gp_error *err)
{
    gp_device_graph *graph = calloc(1, sizeof(*graph));
    cudaGraph_t nodes = NULL;
    gp_status status = GP_CUDA(cudaStreamEndCapture(device->stream, &nodes), err);

    if (status == GP_OK && graph == NULL)
        status = gp_fail(err, GP_ENOMEM, "no memory for a graph");
    /* Keep the higher priority of sums over ranks. By default, all nodes have the priority of the
     * stream in which the graph is launched. */
    if (status == GP_OK)
        status =
            GP_CUDA(cudaGraphInstantiate(&graph->exec, nodes, cudaGraphInstantiateFlagUseNodePriority), err);
    if (nodes != NULL)
        cudaGraphDestroy(nodes);
    if (status != GP_OK) {
        cudaGetLastError();
        free(graph);
        return status;
    }
    *out = graph;
    return GP_OK;
}

gp_status gp_device_replay(gp_device *device, gp_device_graph *graph, gp_error *err)
{
    return GP_CUDA(cudaGraphLaunch(graph->exec, device->stream), err);
}

void gp_device_graph_free(gp_device_graph *graph)
{
    if (graph == NULL)
        return;
    cudaGraphExecDestroy(graph->exec);
    free(graph);
}

/* ---- libraries ---- */

gp_status gp_device_fail(gp_device *device, gp_status status, const gp_error *words, gp_error *err)
{
    /* Libraries contain their own CUDA runtime, so the last error from this runtime may not show
     * the pending device error. */
    enum cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    cudaError_t code = cudaStreamIsCapturing(device->stream, &capture);

    if (code == cudaSuccess && capture == cudaStreamCaptureStatusNone)
        code = cudaStreamQuery(device->stream);
    cudaGetLastError(); /* clear the error, so that the next call does not report it again */
    if (code == cudaSuccess || code == cudaErrorNotReady)
        return gp_fail(err, status, "%s", words->message);
    return gp_fail(err, GP_EIO, "%s (CUDA error %d): %s", cudaGetErrorString(code), (int)code,
                   words->message);
}

gp_status gp_device_libraries(gp_device *device, char *text, size_t bytes, gp_error *err)
{
    struct cudaDeviceProp info;
    int driver = 0, runtime = 0;
    gp_status status = GP_CUDA(cudaDriverGetVersion(&driver), err);

    (void)device;
    if (status == GP_OK)
        status = GP_CUDA(cudaRuntimeGetVersion(&runtime), err);
    if (status == GP_OK)
        status = GP_CUDA(cudaGetDeviceProperties(&info, 0), err);
    if (status == GP_OK)
        snprintf(text, bytes,
                 "cuDNN %zu, cuBLASLt %zu, driver %d, runtime %d; %.80s, %d.%d, %d multiprocessors",
                 cudnnGetVersion(), cublasLtGetVersion(), driver, runtime, info.name, info.major, info.minor,
                 info.multiProcessorCount);
    return status;
}

uint32_t gp_device_conv_engines(gp_device *device, const gp_conv_request *request, gp_engine *engines,
                                uint32_t most)
{
    return gp_cudnn_conv_engines(device->cudnn, NULL, request, engines, most);
}

uint32_t gp_device_product_engines(gp_device *device, const gp_product_request *request, gp_engine *engines,
                                   uint32_t most)
{
    return gp_cublas_product_engines(device->cublas, request, engines, most);
}

const char *gp_device_work_engine(const gp_device_work *work)
{
    return work->conv != NULL ? gp_cudnn_conv_engine(work->conv)->name
                              : gp_cublas_product_engine(work->product);
}

/* ---- cuDNN ---- */

/* Take a matching plan from the pool, or create one. */
static gp_status conv_get(gp_device_work *work, gp_device *device, const gp_conv_request *request,
                          const char *engine, gp_error *err)
{
    const char *known;
    gp_error why;
    gp_status status;

    if (conv_pool_take(device->convs, work->what, &work->conv, &work->workspace, &known))
        return work->conv != NULL ? GP_OK : gp_fail(err, GP_EUNSUPPORTED, "%s", known);
    status = gp_cudnn_conv_new(&work->conv, device->cudnn, NULL, &device->kept, request, engine,
                               &work->workspace, &why);
    if (status != GP_OK)
        status = gp_device_fail(device, status, &why, err);
    if (status == GP_EUNSUPPORTED)
        conv_pool_put(device->convs, work->what, NULL, 0, why.message);
    return status;
}

gp_status gp_device_conv_new(gp_device_work **out, gp_device *device, const gp_conv_request *request,
                             const char *engine, size_t *workspace, gp_error *err)
{
    gp_device_work *work = calloc(1, sizeof(*work));
    gp_status status;

    if (work == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for a convolution's plan");
    work->pass = request->pass;
    work->channels = request->y.channels;
    work->pool = device->convs;
    gp_cudnn_conv_describe(request, engine, work->what);
    status = conv_get(work, device, request, engine, err);
    if (status != GP_OK) {
        free(work);
        return status;
    }
    *workspace = work->workspace;
    *out = work;
    return GP_OK;
}

gp_status gp_device_conv_run(gp_device *device, gp_device_work *work, const gp_device_operands *at,
                             void *workspace, gp_error *err)
{
    void *a = (void *)(uintptr_t)at->first, *b = (void *)(uintptr_t)at->second;
    void *vector = (void *)(uintptr_t)at->vector, *image = (void *)(uintptr_t)at->image;
    void *squares = at->sums == NULL ? NULL : at->sums + work->channels;
    void *const pointers[][GP_CUDNN_POINTERS] = {
        [GP_CONV_FORWARD] = { a, b, at->out, vector, image, at->sums, squares },
        [GP_CONV_DATA] = { at->out, a, b, vector, image },
        [GP_CONV_WEIGHTS] = { a, at->out, b, vector, image },
    };
    gp_error why;
    gp_status status = gp_cudnn_conv_run(work->conv, device->cudnn, pointers[work->pass], workspace, &why);

    if (status == GP_OK)
        return GP_OK;
    work->pool = NULL; /* after a failure, do not return the plan to the pool */
    return gp_device_fail(device, status, &why, err);
}

/* ---- cuBLASLt ---- */

gp_status gp_device_product_new(gp_device_work **out, gp_device *device, const gp_product_request *request,
                                const char *engine, size_t *workspace, gp_error *err)
{
    gp_device_work *work = calloc(1, sizeof(*work));
    gp_error why;
    gp_status status;

    if (work == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for a product's plan");
    status = gp_cublas_product_new(&work->product, device->cublas, request, engine, workspace, &why);
    if (status != GP_OK) {
        free(work);
        return gp_device_fail(device, status, &why, err);
    }
    *out = work;
    return GP_OK;
}

gp_status gp_device_product_run(gp_device *device, gp_device_work *work, const gp_device_operands *at,
                                void *workspace, gp_error *err)
{
    gp_error why;
    gp_status status =
        gp_cublas_product_run(work->product, device->cublas, at, workspace, device->stream, &why);

    return status == GP_OK ? GP_OK : gp_device_fail(device, status, &why, err);
}

void gp_device_work_free(gp_device_work *work)
{
    if (work == NULL)
        return;
    if (work->pool == NULL)
        gp_cudnn_conv_free(work->conv);
    else if (work->conv != NULL)
        conv_pool_put(work->pool, work->what, work->conv, work->workspace, "");
    gp_cublas_product_free(work->product);
    free(work);
}
