/* nccl.c -- the ranks of a training on GPUs: a non-blocking communicator, one for each group (only: nccl.h).
 *
 * NCCL tells of a dead peer only where its transport notices; over NVLink and shared memory its kernel waits for ever.  So
 * nothing here waits without asking stopped(), which the worker's control thread answers: it hears of deaths from the
 * scheduler.  Either ends the communicator: a later training joins a new one. */
#include <nccl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "worker/backend/cuda/check.h"
#include "worker/backend/cuda/device_state.h"

static gp_status nccl_fail(ncclResult_t code, const char *what, gp_error *err)
{
    return gp_fail(err,
                   code == ncclRemoteError                               ? GP_EPEER
                   : code == ncclInvalidUsage || code == ncclSystemError ? GP_EUNSUPPORTED
                                                                         : GP_EIO,
                   "%s: %s (NCCL error %d)", what, ncclGetErrorString(code), (int)code);
}

gp_status gp_device_group_id(uint8_t id[GP_DEVICE_GROUP_ID_BYTES], gp_error *err)
{
    ncclUniqueId unique;
    ncclResult_t code = ncclGetUniqueId(&unique);

    _Static_assert(sizeof(unique) == GP_DEVICE_GROUP_ID_BYTES, "NCCL's id has another size");
    if (code != ncclSuccess)
        return nccl_fail(code, "ncclGetUniqueId", err);
    memcpy(id, &unique, sizeof(unique));
    return GP_OK;
}

/* Ranks that share a GPU, in tests: NCCL refuses two of one host on one device, and believes what it is told of hosts.
 * With time-sliced contexts few, small collectives are all that can be hoped for. */
static void share_one_gpu(uint32_t rank)
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
    snprintf(host, sizeof(host), "w%u", rank);
    setenv("NCCL_HOSTID", host, 0);
    for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]); i++)
        setenv(settings[i][0], settings[i][1], 0);
}

void gp_device_leave(gp_device *device)
{
    if (device->group != NULL)
        ncclCommAbort(device->group);
    device->group = NULL;
    device->stopped = NULL;
}

static void pause_briefly(void)
{
    nanosleep(&(struct timespec){ .tv_nsec = 50000 }, NULL);
}

/* What was begun is under way or done; the group is gone when it failed. */
static gp_status group_settle(gp_device *device, ncclResult_t code, const char *what, gp_error *err)
{
    while (code == ncclInProgress) {
        if (device->stopped != NULL && device->stopped(device->stopped_context)) {
            gp_device_leave(device);
            return gp_fail(err, GP_ECANCELED, "stopped while peers were waited for (%s)", what);
        }
        if (ncclCommGetAsyncError(device->group, &code) != ncclSuccess)
            code = ncclInternalError;
        if (code == ncclInProgress)
            pause_briefly();
    }
    if (code == ncclSuccess)
        return GP_OK;
    gp_device_leave(device);
    return nccl_fail(code, what, err);
}

gp_status gp_device_join(gp_device *device, const uint8_t id[GP_DEVICE_GROUP_ID_BYTES], uint32_t rank,
                         uint32_t world, gp_device_stopped_fn stopped, void *context, gp_error *err)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclUniqueId unique;
    ncclResult_t code;

    gp_device_leave(device);
    if (world == 1)
        return GP_OK;
    memcpy(&unique, id, sizeof(unique));
    share_one_gpu(rank);
    config.blocking = 0;
    device->stopped = stopped;
    device->stopped_context = context;
    code = ncclCommInitRankConfig(&device->group, (int)world, unique, (int)rank, &config);
    if (code != ncclSuccess && code != ncclInProgress) {
        device->group = NULL;
        return nccl_fail(code, "ncclCommInitRankConfig", err);
    }
    return group_settle(device, code, "joining", err);
}

gp_status gp_device_sum(gp_device *device, void *buffer, size_t count, bool wide, gp_error *err)
{
    ncclResult_t code;

    if (device->group == NULL)
        return GP_OK;
    code = ncclAllReduce(buffer, buffer, count, wide ? ncclFloat64 : ncclFloat32, ncclSum, device->group,
                         device->stream);
    return group_settle(device, code, "ncclAllReduce", err);
}

gp_status gp_device_wait(gp_device *device, gp_error *err)
{
    ncclResult_t code = ncclSuccess;
    cudaError_t done;
    gp_status status;

    if (device->group == NULL)
        return gp_device_sync(device, err);
    while ((done = cudaStreamQuery(device->stream)) == cudaErrorNotReady) {
        if (device->stopped != NULL && device->stopped(device->stopped_context)) {
            gp_device_leave(device);
            return gp_fail(err, GP_ECANCELED, "stopped in the exchange");
        }
        if (ncclCommGetAsyncError(device->group, &code) != ncclSuccess)
            code = ncclInternalError;
        if (code != ncclSuccess && code != ncclInProgress) {
            gp_device_leave(device);
            return nccl_fail(code, "the exchange", err);
        }
    }
    status = gp_cuda_check(done, "the exchange", err);
    return status;
}
