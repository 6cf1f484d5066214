/* device_state.h -- what device.c and nccl.c share. */
#ifndef GP_CUDA_DEVICE_STATE_H
#define GP_CUDA_DEVICE_STATE_H

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <cudnn.h>

#include "worker/backend/cuda/device.h"

struct gp_device {
    cudaStream_t stream;
    cudaEvent_t marks[GP_DEVICE_MARKS];
    cudnnHandle_t cudnn;
    cublasLtHandle_t cublas;
    struct ncclComm *group; /* NULL: alone */
    gp_device_stopped_fn stopped;
    void *stopped_context;
};

#endif
