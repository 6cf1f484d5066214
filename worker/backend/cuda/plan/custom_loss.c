/* Losses that the host computes. */
#include "worker/backend/cuda/plan/custom_loss.h"

#include <string.h>

#include "common/base/memory/alloc.h"

gp_status gp_custom_loss_take(plan_custom_loss *loss, gp_error *err)
{
    if (loss->bytes == 0)
        return GP_OK;
    loss->scores = gp_aligned_calloc(64, loss->bytes);
    loss->gradient = gp_aligned_calloc(64, loss->bytes);
    return loss->scores == NULL || loss->gradient == NULL
               ? gp_fail(err, GP_ENOMEM, "no memory for the scores of a loss of your own")
               : GP_OK;
}

void gp_custom_loss_free(plan_custom_loss *loss)
{
    gp_free(loss->scores);
    gp_free(loss->gradient);
}

gp_status gp_custom_loss_run(plan_custom_loss *loss, gp_device *device, const gp_plan_memory *memory,
                             const gp_batch *batch, const gp_device_operands *at, gp_error *err)
{
    gp_status status = GP_OK;

    if (!batch->backward_only) {
        memset(loss->gradient, 0, loss->bytes);
        status = gp_device_download(device, loss->scores, at->first, loss->bytes, err);
        if (status == GP_OK)
            status = gp_device_sync(device, err);
        if (status == GP_OK && batch->count != 0)
            status = memory->loss(memory->loss_context,
                                  &(gp_plan_loss_call){ .count = batch->count,
                                                        .scores = loss->scores,
                                                        .gradient = loss->gradient,
                                                        .sums = memory->sums },
                                  err);
    }
    if (status == GP_OK && !batch->forward_only)
        status = gp_device_upload(device, at->out, loss->gradient, loss->bytes, err);
    return status;
}
