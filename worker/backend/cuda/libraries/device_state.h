/* State shared by device.c and nccl.c. */
#ifndef GP_CUDA_DEVICE_STATE_H
#define GP_CUDA_DEVICE_STATE_H

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <cudnn.h>
#include <pthread.h>

#include "worker/backend/cuda/libraries/cudnn_conv.h"

typedef struct gp_conv_pool gp_conv_pool; /* device.c */
#include "worker/backend/cuda/libraries/device.h"

enum { GP_DEVICE_REGISTERED_MAX = 4 };

/* An open CUDA device. */
struct gp_device {
    cudaStream_t stream; /* main lane */
    cudaStream_t lanes[GP_LANES];
    cudaEvent_t events[GP_EVENTS];
    cudaEvent_t *marks; /* [mark_count], at least GP_DEVICE_MARKS */
    uint32_t mark_count;
    cudnnHandle_t cudnn;
    cublasLtHandle_t cublas;
    char libraries[GP_DEVICE_LIBRARIES_BYTES], *directory;
    gp_compiled kept;
    gp_conv_pool *convs;
    int64_t timeout_ms;
    struct ncclComm *group; /* NULL: not in a group */
    bool aborted;           /* a thread is aborting the group */
    pthread_t abort_thread;
    void *registered[GP_DEVICE_REGISTERED_MAX];
    uint32_t registered_count;
    gp_device_check_fn check;
    void *check_context;
};

/* Report a library failure. If CUDA has an error, it is the cause: that text comes first and that
 * status is returned. During a capture, nothing is queried that would end the capture. */
gp_status gp_device_fail(gp_device *device, gp_status status, const gp_error *words, gp_error *err);

#endif
