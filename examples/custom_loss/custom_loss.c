/* A custom loss: focal loss, -(1 - p)^2 log p, where p is the softmax value for the label. It gives
 * more weight to samples with a low p (Lin et al., "Focal loss for dense object detection", ICCV
 * 2017).
 *
 *   cmake -B build && cmake --build build && gradpool spmd -n 2 build/custom_loss.so:train */
#include <gradpool/train_task.h>
#include <math.h>

static gp_status focal_loss(gp_loss_call *call, gp_error *err)
{
    (void)err;
    for (uint32_t n = 0; n < call->count; n++) {
        const float *scores = call->scores + n * call->size;
        float *gradient = call->gradient + n * call->size;
        int32_t label = ((const int32_t *)call->targets)[n];
        size_t largest = 0;
        double sum = 0.0;

        for (size_t k = 1; k < call->size; k++)
            largest = scores[k] > scores[largest] ? k : largest;
        for (size_t k = 0; k < call->size; k++)
            sum += exp(scores[k] - scores[largest]);
        double p = exp(scores[label] - scores[largest]) / sum, hard = 1.0 - p;
        double slope = 2.0 * hard * p * log(p) - hard * hard; /* d loss / d log p */

        for (size_t k = 0; k < call->size; k++)
            gradient[k] = (float)(slope * ((k == (size_t)label) - exp(scores[k] - scores[largest]) / sum));
        call->loss -= hard * hard * log(p);
        call->correct += largest == (size_t)label;
    }
    return GP_OK;
}

GP_TASK gp_status train(gp_task *task, gp_error *err)
{
    gp_data *data;
    gp_model *model;
    gp_samples batch;
    gp_data_options from = { .source = "digits:4000", .batch = 200, .epochs = 3 };
    gp_model_options options = {
        .network = "lenet", .loss = focal_loss, .loss_parallel = true, .options = "solver=adam"
    };
    gp_status status = gp_data_open(&data, task, &from, err);

    options.data = data;
    if (status == GP_OK)
        status = gp_model_open(&model, task, &options, err);
    while (status == GP_OK && (status = gp_data_next(data, &batch, err)) == GP_OK && !batch.ended) {
        status = gp_model_forward_backward(model, &batch, err);
        if (status == GP_OK)
            status = gp_model_all_reduce(model, task, err);
        if (status == GP_OK)
            status = gp_model_optimizer_step(model, 0.002, err);
        if (status == GP_OK && batch.last && gp_task_index(task) == 1) {
            gp_model_sums sums;

            gp_model_get_sums(model, &sums); /* sums over the last step */
            gp_task_log(task, "epoch %u: focal loss %.4f, accuracy %.1f %%", batch.epoch,
                        sums.loss / sums.weight, 100.0 * sums.correct / sums.weight);
        }
    }
    return status;
}
