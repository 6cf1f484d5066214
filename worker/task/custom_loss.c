#include "worker/task/custom_loss.h"

#include "worker/backend/cpu/base/threads.h"

void gp_custom_loss_init(gp_custom_loss *loss, gp_loss_fn function, void *context, bool parallel)
{
    *loss = (gp_custom_loss){ .function = function, .context = context, .parallel = parallel };
    pthread_mutex_init(&loss->lock, NULL);
}

void gp_custom_loss_deinit(gp_custom_loss *loss)
{
    pthread_mutex_destroy(&loss->lock);
}

gp_status gp_custom_loss_result(gp_custom_loss *loss, gp_error *err)
{
    if (loss->status != GP_OK && err != NULL)
        *err = loss->error;
    return loss->status;
}

gp_status gp_custom_loss_call(void *context, const gp_plan_loss_call *part, gp_error *err)
{
    gp_custom_loss *loss = context;
    const unsigned char *targets = loss->targets;
    gp_error why = { .code = GP_OK };
    gp_loss_call call = { .scores = part->scores,
                          .targets = targets == NULL ? NULL : targets + part->first * loss->target_bytes,
                          .count = part->count,
                          .size = loss->outputs,
                          .gradient = part->gradient,
                          .weight = part->count,
                          .context = loss->context };

    if (loss->forward.count != 0) { /* the task computes the loss itself */
        loss->scores = part->scores;
        loss->gradient = part->gradient;
        return GP_OK;
    }
    const bool prepared = gp_threads_is_prepared();
    gp_status status = loss->function(&call, &why);

    if (prepared) /* the loss function may have used another model, which restored this thread */
        gp_threads_resume();
    if (status != GP_OK && why.message[0] == '\0')
        gp_fail(&why, status, "the loss function returned %s", gp_status_text(status));
    if (status != GP_OK) {
        pthread_mutex_lock(&loss->lock);
        if (loss->status == GP_OK) {
            loss->status = status;
            loss->error = why;
        }
        pthread_mutex_unlock(&loss->lock);
        if (err != NULL)
            *err = why;
        return status;
    }
    part->sums[GP_SUM_LOSS] += call.loss;
    part->sums[GP_SUM_WEIGHT] += call.weight;
    part->sums[GP_SUM_CORRECT] += call.correct;
    part->sums[GP_SUM_CLASSED] += call.weight;
    return GP_OK;
}
