/* custom_loss.h -- a loss function supplied by the task, which replaces the network's loss. The
 * plan calls it between the forward and the backward pass.
 *
 * With gp_model_forward() and gp_model_backward() the task computes the loss itself between two
 * calls of the plan. In this mode only the score and gradient addresses are recorded here. */
#ifndef GP_CUSTOM_LOSS_H
#define GP_CUSTOM_LOSS_H

#include <pthread.h>

#include "worker/backend/backend.h"
#include "worker/task/train_task.h"

/* Custom loss function and its state during a step. */
typedef struct gp_custom_loss {
    gp_loss_fn function;  /* NULL: the model uses the network's loss */
    void *context;        /* argument for function */
    bool parallel;        /* function is thread-safe: several threads may call it at once */
    size_t outputs;       /* scores per sample */
    size_t target_bytes;  /* target bytes per sample */
    const void *targets;  /* sample targets in the current plan call */
    gp_samples forward;   /* forward pass whose backward pass is due; count 0: none */
    const float *scores;  /* that forward pass's scores, in plan memory; NULL: not computed yet */
    float *gradient;      /* gradient for that forward pass, in plan memory */
    pthread_mutex_t lock; /* protects status and error */
    gp_status status;     /* first failure of function; GP_OK: none */
    gp_error error;
} gp_custom_loss;

void gp_custom_loss_init(gp_custom_loss *loss, gp_loss_fn function, void *context, bool parallel);
void gp_custom_loss_deinit(gp_custom_loss *loss);

/* Return the first failure of `function` since status was last set to GP_OK. */
gp_status gp_custom_loss_result(gp_custom_loss *loss, gp_error *err);

/* Call the loss function for some samples. Implements gp_plan_loss_fn; context is the
 * gp_custom_loss. */
gp_status gp_custom_loss_call(void *context, const gp_plan_loss_call *part, gp_error *err);

#endif
