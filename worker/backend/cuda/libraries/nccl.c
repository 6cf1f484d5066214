/* Ranks on GPUs: one non-blocking NCCL communicator per generation. Only this file includes nccl.h.
 *
 * NCCL reports a failed peer only if the transport notices; over NVLink and shared memory, NCCL
 * kernels wait forever. Every wait in this file therefore polls gp_device_poll(), which also asks
 * the caller. The caller learns about failed workers from the kernel and the scheduler.
 *
 * NCCL destroys a communicator only after the graphs that it was recorded into are freed. An abort
 * therefore runs in a separate thread: the lanes become idle, the caller frees all graphs, and
 * gp_device_leave() waits a limited time for the thread.
 *
 * Sums use ncclSum on registered memory, not on symmetric windows. All ranks must get bitwise
 * identical results, and the ring, tree and switch algorithms guarantee that: one rank, or the
 * switch, computes a sum, and all ranks get a copy. */
#include <errno.h>
#include <nccl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "worker/backend/cuda/libraries/check.h"
#include "worker/backend/cuda/libraries/device_state.h"

/* Convert an NCCL result to an error. `device`: a CUDA error of this device takes precedence; NULL:
 * none. The message contains the last warning of NCCL, which names the cause. */
static gp_status nccl_fail(gp_device *device, ncclResult_t code, const char *what, gp_error *err)
{
    const char *warning = ncclGetLastError(NULL);
    gp_error words;
    gp_status status = gp_fail(&words,
                               code == ncclRemoteError                               ? GP_EPEER
                               : code == ncclInvalidUsage || code == ncclSystemError ? GP_EUNSUPPORTED
                                                                                     : GP_EIO,
                               "%s failed: %s (NCCL error %d)%s%.200s", what, ncclGetErrorString(code),
                               (int)code, warning[0] == '\0' ? "" : "; NCCL's last warning: ", warning);

    if (device != NULL)
        return gp_device_fail(device, status, &words, err);
    return gp_fail(err, status, "%s", words.message);
}

/* Allow several ranks on one GPU, for tests. NCCL rejects two ranks with the same host and device,
 * so each process reports another host name. Only small collectives are reliable with time-sliced
 * contexts. */
static void share_one_gpu(void)
{
    static const char *const settings[][2] = {
        { "NCCL_P2P_DISABLE", "1" }, { "NCCL_SHM_DISABLE", "1" },    { "NCCL_NET", "Socket" },
        { "NCCL_IB_DISABLE", "1" },  { "NCCL_SOCKET_IFNAME", "lo" }, { "NCCL_MNNVL_ENABLE", "0" },
        { "NCCL_NVLS_ENABLE", "0" }, { "NCCL_ALGO", "Ring" },        { "NCCL_PROTO", "Simple" },
        { "NCCL_MAX_CTAS", "2" },
    };
    char host[24];

    if (getenv("GRADPOOL_NCCL_SHARED_GPU") == NULL)
        return;
    /* contains the PID rather than the rank: NCCL reads the name once, and ranks change */
    snprintf(host, sizeof(host), "w%d", (int)getpid());
    setenv("NCCL_HOSTID", host, 0);
    for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]); i++)
        setenv(settings[i][0], settings[i][1], 0);
}

gp_status gp_device_group_id(uint8_t id[GP_DEVICE_GROUP_ID_BYTES], gp_error *err)
{
    ncclUniqueId unique;
    ncclResult_t code;

    _Static_assert(sizeof(unique) == GP_DEVICE_GROUP_ID_BYTES, "the NCCL id has the wrong size");
    share_one_gpu(); /* the first NCCL call reads the listen address */
    code = ncclGetUniqueId(&unique);
    if (code != ncclSuccess)
        return nccl_fail(NULL, code, "ncclGetUniqueId", err);
    memcpy(id, &unique, sizeof(unique));
    return GP_OK;
}

enum { FINALIZE_MS = 5000 };

static void pause_briefly(void)
{
    nanosleep(&(struct timespec){ .tv_nsec = 50000 }, NULL);
}

/* ---- ending a group ---- */

static void *abort_main(void *group)
{
    ncclCommAbort(group);
    return NULL;
}

static void abort_begin(gp_device *device)
{
    if (device->group == NULL || device->aborted)
        return;
    if (pthread_create(&device->abort_thread, NULL, abort_main, device->group) == 0)
        device->aborted = true;
    else
        ncclCommAbort(device->group); /* direct call: nothing was recorded */
    device->group = NULL;
}

gp_status gp_device_abort(gp_device *device, gp_error *err)
{
    gp_timeout timeout = gp_device_timeout(device, false, 0);

    abort_begin(device);
    for (int i = 0; i < GP_LANES; i++) {
        cudaError_t code;

        while ((code = cudaStreamQuery(device->lanes[i])) == cudaErrorNotReady &&
               gp_timeout_left(timeout) > 0)
            pause_briefly();
        if (code == cudaErrorNotReady)
            return gp_fail(err, GP_EIO, "the GPU is still busy %d s after an abort",
                           (int)(device->timeout_ms / 1000));
        if (code != cudaSuccess)
            return gp_cuda_check(code, "cudaStreamQuery after an abort", err);
    }
    return GP_OK;
}

/* Wait until peers have received everything that this rank sent, unless a peer failed. Return true
 * on success. */
static bool group_finalize(gp_device *device)
{
    gp_timeout timeout = gp_timeout_in(FINALIZE_MS);
    ncclResult_t code = ncclCommFinalize(device->group);
    gp_error ignored;

    while (code == ncclInProgress && gp_timeout_left(timeout) > 0) {
        if (device->check != NULL && device->check(device->check_context, &ignored) != GP_OK)
            return false;
        if (ncclCommGetAsyncError(device->group, &code) != ncclSuccess)
            return false;
        if (code == ncclInProgress)
            pause_briefly();
    }
    return code == ncclSuccess;
}

void gp_device_leave(gp_device *device)
{
    if (device->group != NULL) {
        for (uint32_t i = 0; i < device->registered_count; i++)
            ncclCommDeregister(device->group, device->registered[i]);
        if (group_finalize(device))
            ncclCommDestroy(device->group);
        else
            abort_begin(device);
    }
    if (device->aborted) {
        /* Release an aborted communicator. NCCL may wait for failed ranks to free shared resources
         * (NCCL issue 863). After a time limit, the thread and the thread's resources are
         * abandoned. */
        gp_timeout timeout = gp_device_timeout(device, false, 0);
        int busy;

        while ((busy = pthread_tryjoin_np(device->abort_thread, NULL)) == EBUSY &&
               gp_timeout_left(timeout) > 0)
            pause_briefly();
        if (busy == EBUSY)
            pthread_detach(device->abort_thread);
        device->aborted = false;
    }
    device->group = NULL;
    device->registered_count = 0;
    device->check = NULL;
}

/* ---- joining and summing ---- */

static gp_status group_check(gp_device *device, ncclResult_t *code, const char *what, gp_error *err)
{
    gp_status status = device->check == NULL ? GP_OK : device->check(device->check_context, err);

    if (status != GP_OK)
        return status;
    if (ncclCommGetAsyncError(device->group, code) != ncclSuccess)
        *code = ncclInternalError;
    return *code == ncclSuccess || *code == ncclInProgress ? GP_OK : nccl_fail(device, *code, what, err);
}

/* Wait until NCCL has started an operation. Works during recording, so it queries no stream. */
static gp_status group_settle(gp_device *device, ncclResult_t code, const char *what, gp_error *err)
{
    gp_status status = GP_OK;

    while (status == GP_OK && code == ncclInProgress) {
        status = group_check(device, &code, what, err);
        if (status == GP_OK && code == ncclInProgress)
            pause_briefly();
    }
    return status != GP_OK || code == ncclSuccess ? status : nccl_fail(device, code, what, err);
}

gp_status gp_device_join(gp_device *device, const uint8_t id[GP_DEVICE_GROUP_ID_BYTES], uint32_t rank,
                         uint32_t world, gp_device_check_fn check, void *context, gp_error *err)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclUniqueId unique;
    ncclResult_t code;
    gp_status status;

    gp_device_leave(device);
    if (world == 1)
        return GP_OK;
    memcpy(&unique, id, sizeof(unique));
    share_one_gpu();
    config.blocking = 0;
    code = ncclCommInitRankConfig(&device->group, (int)world, unique, (int)rank, &config);
    if (code != ncclSuccess && code != ncclInProgress) {
        device->group = NULL;
        return nccl_fail(device, code, "ncclCommInitRankConfig", err);
    }
    device->check = check;
    device->check_context = context;
    status = group_settle(device, code, "NCCL's join", err);
    if (status != GP_OK)
        abort_begin(device);
    return status;
}

bool gp_device_joined(const gp_device *device)
{
    return device->group != NULL;
}

void gp_device_register(gp_device *device, void *memory, size_t bytes)
{
    void *handle = NULL;
    gp_error ignored;

    if (device->group == NULL || device->registered_count == GP_DEVICE_REGISTERED_MAX ||
        group_settle(device, ncclCommRegister(device->group, memory, bytes, &handle), "NCCL's registration",
                     &ignored) != GP_OK ||
        handle == NULL)
        return;
    device->registered[device->registered_count++] = handle;
}

gp_status gp_device_alloc_summed(gp_device *device, void **out, size_t bytes, gp_error *err)
{
    void *block = NULL;
    ncclResult_t code = ncclMemAlloc(&block, bytes);

    if (code != ncclSuccess) {
        gp_error words;
        gp_status status = gp_fail(&words, GP_ENOMEM,
                                   "no memory for %zu bytes of gradients on the GPU (%s); use a smaller "
                                   "mini-batch-size, or micro-batch-size, which computes it in parts",
                                   bytes, ncclGetErrorString(code));

        return gp_device_fail(device, status, &words, err);
    }
    if (gp_device_clear(device, block, bytes, err) != GP_OK) {
        ncclMemFree(block);
        return GP_EIO;
    }
    *out = block;
    return GP_OK;
}

void gp_device_free_summed(gp_device *device, void *memory)
{
    if (memory == NULL)
        return;
    for (int i = 0; i < GP_LANES; i++)
        cudaStreamSynchronize(device->lanes[i]);
    ncclMemFree(memory);
}

gp_status gp_device_sum(gp_device *device, void *buffer, size_t count, bool wide, gp_error *err)
{
    if (device->group == NULL)
        return gp_fail(err, GP_EPEER, "the NCCL group of this GPU has been aborted");
    return group_settle(device,
                        ncclAllReduce(buffer, buffer, count, wide ? ncclFloat64 : ncclFloat32, ncclSum,
                                      device->group, device->lanes[GP_LANE_PEERS]),
                        "ncclAllReduce", err);
}

gp_status gp_device_poll(gp_device *device, gp_error *err)
{
    ncclResult_t code = ncclSuccess;

    for (int i = 0; i < GP_LANES; i++) {
        cudaError_t now = cudaStreamQuery(device->lanes[i]);

        if (now != cudaSuccess && now != cudaErrorNotReady)
            return gp_cuda_check(now, "cudaStreamQuery", err);
    }
    cudaGetLastError(); /* clear the "not ready" result */
    return device->group == NULL ? GP_OK : group_check(device, &code, "NCCL's exchange", err);
}
