/* device_state.h -- what device.c and nccl.c share. */
#ifndef GP_CUDA_DEVICE_STATE_H
#define GP_CUDA_DEVICE_STATE_H

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <cudnn.h>
#include <pthread.h>

#include "worker/backend/cuda/libraries/conv_pool.h"
#include "worker/backend/cuda/libraries/device.h"

enum { GP_DEVICE_REGISTERED_MAX = 4 };

struct gp_device {
    cudaStream_t stream; /* the main lane */
    cudaStream_t lanes[GP_LANES];
    cudaEvent_t events[GP_EVENTS];
    cudaEvent_t marks[GP_DEVICE_MARKS];
    cudnnHandle_t cudnn;
    cublasLtHandle_t cublas;
    char libraries[GP_DEVICE_LIBRARIES_BYTES], *directory;
    gp_compiled kept;
    gp_conv_pool *convs;
    int64_t patience_ms;
    struct ncclComm *group; /* NULL: alone */
    bool aborted;           /* the group: a thread is about to end it */
    pthread_t abort_thread;
    void *registered[GP_DEVICE_REGISTERED_MAX];
    uint32_t registered_count;
    gp_device_check_fn check;
    void *check_context;
};

/* A library's failure, in its own words; but where CUDA has an error, that is what the library met: it is said first, and the status
 * is its own.  Of a failure within a capture nothing is asked that would end the capture. */
gp_status gp_device_fail(gp_device *device, gp_status status, const gp_error *words, gp_error *err);

#endif
