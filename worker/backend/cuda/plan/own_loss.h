/* own_loss.h -- losses that the host computes (GP_OP_OWN_LOSS): the scores go there, their gradient comes back.
 * Private to this folder. */
#ifndef GP_CUDA_OWN_LOSS_H
#define GP_CUDA_OWN_LOSS_H

#include "worker/backend/backend.h"
#include "worker/backend/cuda/libraries/device.h"

typedef struct plan_own_loss {
    bool present; /* the graph has such a loss: the host computes the sums of a step */
    float *scores,
        *gradient; /* [bytes], of the host; NULL: the graph has none, or the plan is for inference */
    size_t bytes;
} plan_own_loss;

gp_status gp_own_loss_take(plan_own_loss *loss, gp_error *err);
void gp_own_loss_free(plan_own_loss *loss);
/* Compute the loss of one call; at: where its scores and their gradient are on the device.  A call that is
 * forward only ends after the loss, one that is backward only begins with the gradient that was left. */
gp_status gp_own_loss_run(plan_own_loss *loss, gp_device *device, const gp_plan_memory *memory,
                          const gp_batch *batch, const gp_device_operands *at, gp_error *err);

#endif
