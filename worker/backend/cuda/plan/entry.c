/* The plugin's function table: devices, libraries, the backend (plan.c), and a kernel that tests
 * the tool chain. */
#include <cublasLt.h>
#include <cudnn.h>
#include <inttypes.h>
#include <nccl.h>
#include <stdio.h>
#include <stdlib.h>

#include "worker/backend/cuda/plan/plan.h"
#include "worker/backend/cuda/plan/profile.h"
#include "worker/backend/cuda/libraries/check.h"
#include "worker/backend/cuda/kernels/kernels.h"
#include "worker/backend/plugin.h"

/* ---- devices ---- */

static gp_status plugin_driver(uint32_t *driver, uint32_t *runtime, gp_error *err)
{
    int have = 0;
    gp_status status = GP_CUDA(cudaDriverGetVersion(&have), err);

    if (status != GP_OK)
        return status;
    *driver = (uint32_t)have;
    *runtime = CUDART_VERSION;
    return GP_OK;
}

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
    struct cudaDeviceProp info;
    size_t available = 0, total = 0;
    int used = 0;
    gp_status status = GP_CUDA(cudaGetDeviceProperties(&info, (int)ordinal), err);

    if (status == GP_OK)
        status = GP_CUDA(cudaSetDevice((int)ordinal), err);
    if (status == GP_OK)
        status = GP_CUDA(cudaMemGetInfo(&available, &total), err);
    if (status != GP_OK)
        return status;
    *out = (gp_plugin_device){ .ordinal = ordinal,
                               .major = (uint32_t)info.major,
                               .minor = (uint32_t)info.minor,
                               .memory_total = total,
                               .memory_free = available };
    snprintf(out->name, sizeof(out->name), "%.95s", info.name);
    used = snprintf(out->uuid, sizeof(out->uuid), "GPU-");
    for (int i = 0; i < 16; i++)
        used += snprintf(out->uuid + used, sizeof(out->uuid) - (size_t)used, "%s%02x",
                         i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", (unsigned char)info.uuid.bytes[i]);
    return GP_OK;
}

/* ---- self test: a kernel against the host ---- */

enum { TEST_COUNT = 4099 };

/* Test the device with a leaky relu in place. */
static gp_status plugin_self_test(uint32_t ordinal, gp_error *err)
{
    float values[TEST_COUNT], back[TEST_COUNT], *device = NULL;
    gp_kernel_args args = { .kind = 0, .factor = { 0.25f } };
    gp_status status = GP_CUDA(cudaSetDevice((int)ordinal), err);

    for (int i = 0; i < TEST_COUNT; i++)
        values[i] = (float)(i % 17) - 8;
    if (status == GP_OK)
        status = GP_CUDA(cudaMalloc((void **)&device, sizeof(values)), err);
    args.x[0] = args.y[0] = (gp_kernel_image){ .data = device, .channels = TEST_COUNT, .sample = TEST_COUNT };
    if (status == GP_OK)
        status = GP_CUDA(cudaMemcpy(device, values, sizeof(values), cudaMemcpyHostToDevice), err);
    if (status == GP_OK)
        status = GP_CUDA(gp_kernel_launch(GP_KERNEL_activation, &args, TEST_COUNT, NULL), err);
    if (status == GP_OK)
        status = GP_CUDA(cudaMemcpy(back, device, sizeof(back), cudaMemcpyDeviceToHost), err);
    for (int i = 0; i < TEST_COUNT && status == GP_OK; i++) {
        float expected = values[i] > 0 ? values[i] : 0.25f * values[i];

        if (back[i] != expected)
            status = gp_fail(err, GP_EINTERNAL,
                             "device %" PRIu32 " computes %.9g for element %d, but the host computes %.9g",
                             ordinal, (double)back[i], i, (double)expected);
    }
    cudaFree(device);
    return status;
}

/* ---- copies between devices ---- */

enum { PEER_BYTES = 64 << 20, PEER_COPIES = 8 };

/* Measure a copy. The first copy sets up the path and is not measured. */
static gp_status peer_time(void *to, int to_device, const void *from, int from_device, double *seconds,
                           gp_error *err)
{
    cudaEvent_t begin = NULL, end = NULL;
    float ms = 0.0f;
    gp_status status = GP_CUDA(cudaEventCreate(&begin), err);

    if (status == GP_OK)
        status = GP_CUDA(cudaEventCreate(&end), err);
    for (int i = 0; i <= PEER_COPIES && status == GP_OK; i++) {
        status = GP_CUDA(cudaMemcpyPeerAsync(to, to_device, from, from_device, PEER_BYTES, NULL), err);
        if (i == 0 && status == GP_OK)
            status = GP_CUDA(cudaEventRecord(begin, NULL), err);
    }
    if (status == GP_OK)
        status = GP_CUDA(cudaEventRecord(end, NULL), err);
    if (status == GP_OK)
        status = GP_CUDA(cudaEventSynchronize(end), err);
    if (status == GP_OK)
        status = GP_CUDA(cudaEventElapsedTime(&ms, begin, end), err);
    if (begin != NULL)
        cudaEventDestroy(begin);
    if (end != NULL)
        cudaEventDestroy(end);
    *seconds = (double)ms * 1e-3 / PEER_COPIES;
    return status;
}

static gp_status plugin_peer(uint32_t from, uint32_t to, gp_plugin_peer *out, gp_error *err)
{
    void *source = NULL, *target = NULL;
    double seconds = 0.0;
    int direct = 0;
    gp_status status = GP_CUDA(cudaDeviceCanAccessPeer(&direct, (int)to, (int)from), err);

    if (status == GP_OK)
        status = GP_CUDA(cudaSetDevice((int)to), err);
    if (status == GP_OK)
        status = GP_CUDA(cudaMalloc(&target, PEER_BYTES), err);
    if (status == GP_OK && direct != 0 && cudaDeviceEnablePeerAccess((int)from, 0) != cudaSuccess)
        /* already enabled, or unavailable: the copy then goes through host memory and takes
         * longer */
        cudaGetLastError();
    if (status == GP_OK)
        status = GP_CUDA(cudaSetDevice((int)from), err);
    if (status == GP_OK)
        status = GP_CUDA(cudaMalloc(&source, PEER_BYTES), err);
    if (status == GP_OK && direct != 0 && cudaDeviceEnablePeerAccess((int)to, 0) != cudaSuccess)
        cudaGetLastError();
    if (status == GP_OK)
        status = peer_time(target, (int)to, source, (int)from, &seconds, err);
    cudaFree(source);
    cudaFree(target);
    if (status == GP_OK)
        *out = (gp_plugin_peer){ .direct = direct != 0,
                                 .bytes_per_second = seconds > 0 ? PEER_BYTES / seconds : 0 };
    return status;
}

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
                          .backend = &gp_backend_cuda,
                          .driver = plugin_driver,
                          .peer = plugin_peer,
                          .device_count = plugin_device_count,
                          .device = plugin_device,
                          .self_test = plugin_self_test,
                          .profile = gp_plan_profile };
    return &plugin;
}
