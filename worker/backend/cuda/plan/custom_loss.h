/* Losses that the host computes (GP_OP_CUSTOM_LOSS): scores are downloaded and their gradient is
 * uploaded. Private to this folder. */
#ifndef GP_CUDA_CUSTOM_LOSS_H
#define GP_CUDA_CUSTOM_LOSS_H

#include "worker/backend/backend.h"
#include "worker/backend/cuda/libraries/device.h"

/* State of host losses. */
typedef struct plan_custom_loss {
    bool present; /* the graph has such a loss: the host computes the step sums */
    /* host memory [bytes]; NULL: the graph has no such loss, or the plan is for inference */
    float *scores, *gradient;
    size_t bytes;
} plan_custom_loss;

/* Allocate the host memory for scores and gradient. */
gp_status gp_custom_loss_take(plan_custom_loss *loss, gp_error *err);
void gp_custom_loss_free(plan_custom_loss *loss);

/* Compute the loss of one call. A forward_only call ends after the loss; a backward_only call
 * starts with the gradient from that call.
 *   at  scores and their gradient on the device */
gp_status gp_custom_loss_run(plan_custom_loss *loss, gp_device *device, const gp_plan_memory *memory,
                             const gp_batch *batch, const gp_device_operands *at, gp_error *err);

#endif
