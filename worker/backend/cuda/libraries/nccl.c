/* nccl.c -- the ranks of a training on GPUs: a non-blocking communicator, one for each generation (only: nccl.h).
 *
 * NCCL tells of a dead peer only where its transport notices; over NVLink and shared memory its kernel waits for ever.  So
 * nothing here waits without gp_device_look(), which asks the caller too: it hears of deaths from the kernel and the
 * scheduler.
 *
 * A communicator lives until the graphs that it was recorded into are gone: NCCL waits for that in its end.  So an abort
 * is begun by a thread of its own; the lanes come to rest, the caller frees its graphs, and gp_device_leave() waits for
 * the thread, for a while.
 *
 * Sums are ncclSum over memory that is registered, not over symmetric windows: all ranks must get the same bits, which
 * NCCL's ring, tree and switch algorithms give (one rank, or the switch, makes a sum, and all get a copy). */
#include <errno.h>
#include <nccl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "worker/backend/cuda/libraries/check.h"
#include "worker/backend/cuda/libraries/device_state.h"

/* device: whose error it may be; NULL: none's. */
static gp_status nccl_fail(gp_device *device, ncclResult_t code, const char *what, gp_error *err)
{
    gp_error words;
    gp_status status = gp_fail(&words,
                               code == ncclRemoteError                               ? GP_EPEER
                               : code == ncclInvalidUsage || code == ncclSystemError ? GP_EUNSUPPORTED
                                                                                     : GP_EIO,
                               "%s failed: %s (NCCL error %d)", what, ncclGetErrorString(code), (int)code);

    if (device != NULL)
        return gp_device_fail(device, status, &words, err);
    return gp_fail(err, status, "%s", words.message);
}

/* Ranks that share a GPU, in tests: NCCL refuses two of one host on one device, and believes what it is told of hosts.
 * With time-sliced contexts few, small collectives are all that can be hoped for. */
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
    snprintf(host, sizeof(host), "w%d",
             (int)getpid()); /* not by rank: NCCL reads it once, and ranks change */
    setenv("NCCL_HOSTID", host, 0);
    for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]); i++)
        setenv(settings[i][0], settings[i][1], 0);
}

gp_status gp_device_group_id(uint8_t id[GP_DEVICE_GROUP_ID_BYTES], gp_error *err)
{
    ncclUniqueId unique;
    ncclResult_t code;

    _Static_assert(sizeof(unique) == GP_DEVICE_GROUP_ID_BYTES, "NCCL's id has another size");
    share_one_gpu(); /* the first call reads where to listen */
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

/* ---- the end of a group ---- */

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
        ncclCommAbort(device->group); /* right where nothing was recorded */
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
            return gp_fail(err, GP_EIO, "the GPU did not come to rest within %d s of an abort",
                           (int)(device->patience_ms / 1000));
        if (code != cudaSuccess)
            return gp_cuda_check(code, "cudaStreamQuery after an abort", err);
    }
    return GP_OK;
}

/* All that this rank has sent is with its peers, unless one of them is gone. */
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

/* NCCL may wait for ranks that are gone, to free what they share (its issue 863): then it does so for itself, with what it
 * holds, and nobody waits for it. */
static void abort_end(gp_device *device)
{
    gp_timeout timeout = gp_device_timeout(device, false, 0);
    int busy = EBUSY;

    if (!device->aborted)
        return;
    while ((busy = pthread_tryjoin_np(device->abort_thread, NULL)) == EBUSY && gp_timeout_left(timeout) > 0)
        pause_briefly();
    if (busy == EBUSY)
        pthread_detach(device->abort_thread);
    device->aborted = false;
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
    abort_end(device);
    device->group = NULL;
    device->registered_count = 0;
    device->check = NULL;
}

/* ---- its life ---- */

static gp_status group_look(gp_device *device, ncclResult_t *code, const char *what, gp_error *err)
{
    gp_status status = device->check == NULL ? GP_OK : device->check(device->check_context, err);

    if (status != GP_OK)
        return status;
    if (ncclCommGetAsyncError(device->group, code) != ncclSuccess)
        *code = ncclInternalError;
    return *code == ncclSuccess || *code == ncclInProgress ? GP_OK : nccl_fail(device, *code, what, err);
}

/* What was begun is under way; also while a graph is recorded, so nothing is asked of the streams. */
static gp_status group_settle(gp_device *device, ncclResult_t code, const char *what, gp_error *err)
{
    gp_status status = GP_OK;

    while (status == GP_OK && code == ncclInProgress) {
        status = group_look(device, &code, what, err);
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
        return gp_fail(err, GP_EPEER, "the GPU's group has ended");
    return group_settle(device,
                        ncclAllReduce(buffer, buffer, count, wide ? ncclFloat64 : ncclFloat32, ncclSum,
                                      device->group, device->lanes[GP_LANE_PEERS]),
                        "ncclAllReduce", err);
}

gp_status gp_device_look(gp_device *device, gp_error *err)
{
    ncclResult_t code = ncclSuccess;

    for (int i = 0; i < GP_LANES; i++) {
        cudaError_t now = cudaStreamQuery(device->lanes[i]);

        if (now != cudaSuccess && now != cudaErrorNotReady)
            return gp_cuda_check(now, "cudaStreamQuery", err);
    }
    cudaGetLastError(); /* not ready is no error */
    return device->group == NULL ? GP_OK : group_look(device, &code, "NCCL's exchange", err);
}
