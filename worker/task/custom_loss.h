/* custom_loss.h -- a loss function of the task, in place of the network's: the plan calls it between the forward and the
 * backward pass.
 *
 * With gp_model_forward() and gp_model_backward() the task itself computes the loss between two calls of the plan; then
 * only the place of scores and gradient is recorded here. */
#ifndef GP_CUSTOM_LOSS_H
#define GP_CUSTOM_LOSS_H

#include <pthread.h>

#include "worker/backend/backend.h"
#include "worker/task/train_task.h"

typedef struct gp_custom_loss {
    gp_loss_fn function;  /* NULL: the model uses the network's loss */
    void *context;        /* of function */
    bool parallel;        /* several threads may call function at once */
    size_t outputs;       /* scores per sample */
    size_t target_bytes;  /* per sample */
    const void *targets;  /* of the samples in the present call of the plan */
    gp_samples forward;   /* a forward pass whose backward pass is due; count 0: none */
    const float *scores;  /* of that forward pass, in memory of the plan; NULL: not computed yet */
    float *gradient;      /* the same for the gradient */
    pthread_mutex_t lock; /* guards the next two */
    gp_status status;     /* of the first call of function that failed; GP_OK: none has */
    gp_error error;
} gp_custom_loss;

void gp_custom_loss_init(gp_custom_loss *loss, gp_loss_fn function, void *context, bool parallel);
void gp_custom_loss_deinit(gp_custom_loss *loss);
/* Return how the calls of function ended since status was set to GP_OK. */
gp_status gp_custom_loss_result(gp_custom_loss *loss, gp_error *err);
/* A gp_plan_loss_fn; context: the gp_custom_loss. */
gp_status gp_custom_loss_call(void *context, const gp_plan_loss_call *part, gp_error *err);

#endif
