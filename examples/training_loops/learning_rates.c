/* Exercise 2 from chapter 12.5 of "Dive into Deep Learning": learning rates for different worker
 * counts. As in the book, the mini-batch has 128 samples per worker. More workers therefore take
 * fewer steps and need a larger rate.
 *
 *   cmake -B build && cmake --build build
 *   for n in 1 2 4; do gradpool spmd -n $n build/learning_rates.so:table [SOURCE]; done */
#include <gradpool/train_task.h>

enum { EACH = 128, EPOCHS = 4 };

/* Sum the loss, weight and correct answers over the test samples, one slice per rank. */
static gp_status test(gp_task *task, gp_model *model, gp_data *data, gp_model_sums *total, gp_error *err)
{
    gp_samples batch;
    double sums[3] = { 0 };
    gp_status status;

    while ((status = gp_data_next(data, &batch, err)) == GP_OK && !batch.ended) {
        gp_model_sums part;

        status = gp_model_scores(model, &batch, NULL, &part, err);
        if (status != GP_OK)
            return status;
        sums[0] += part.loss;
        sums[1] += part.weight;
        sums[2] += part.correct;
    }
    if (status == GP_OK)
        status = gp_task_all_reduce(task, sums, sizeof(sums), gp_combine_sum_f64, NULL, err);
    *total = (gp_model_sums){ .loss = sums[0], .weight = sums[1], .correct = sums[2] };
    return status;
}

/* Train with one learning rate, and test the model. */
static gp_status train(gp_task *task, const char *source, double rate, gp_model_sums *out, gp_error *err)
{
    uint32_t batch_size = EACH * gp_task_size(task);
    gp_data *data = NULL, *held_out = NULL;
    gp_model *model = NULL;
    gp_samples batch;
    gp_data_options from = { .source = source, .batch = batch_size, .epochs = EPOCHS };
    gp_data_options against = { .source = source, .test = true, .batch = EACH };
    gp_status status = gp_data_open(&data, task, &from, err);

    if (status == GP_OK)
        status = gp_data_open(&held_out, task, &against, err);
    if (status == GP_OK)
        status = gp_model_open(
            &model, task, &(gp_model_options){ .network = "lenet", .data = data, .options = "momentum=0" },
            err);
    while (status == GP_OK && (status = gp_data_next(data, &batch, err)) == GP_OK && !batch.ended) {
        status = gp_model_forward_backward(model, &batch, err);
        if (status == GP_OK)
            status = gp_model_all_reduce(model, task, err);
        if (status == GP_OK)
            status = gp_model_optimizer_step(model, rate, err);
    }
    if (status == GP_OK)
        status = test(task, model, held_out, out, err);

    /* Free the memory before the next rate instead of at the end of the task. */
    gp_model_close(model);
    gp_data_close(held_out);
    gp_data_close(data);
    return status;
}

GP_TASK gp_status table(gp_task *task, gp_error *err)
{
    static const double rates[] = { 0.05, 0.1, 0.2, 0.8 };
    size_t bytes;
    const char *source = gp_task_argument(task, &bytes); /* from the command line; NULL: none */

    if (source == NULL)
        source = "digits:6000";
    for (size_t i = 0; i < sizeof(rates) / sizeof(rates[0]); i++) {
        gp_model_sums sums = { 0 };
        gp_status status = train(task, source, rates[i], &sums, err);

        /* All ranks return GP_EDIVERGED in the same step. */
        if (status == GP_EDIVERGED && gp_task_index(task) == 1)
            gp_task_log(task, "workers %u  batch %4u  rate %.2f  diverged", gp_task_size(task),
                        EACH * gp_task_size(task), rates[i]);
        if (status != GP_OK && status != GP_EDIVERGED)
            return status;
        if (status == GP_OK && gp_task_index(task) == 1)
            gp_task_log(task, "workers %u  batch %4u  rate %.2f  loss %.4f  accuracy %5.2f %%",
                        gp_task_size(task), EACH * gp_task_size(task), rates[i], sums.loss / sums.weight,
                        100.0 * sums.correct / sums.weight);
    }
    return GP_OK;
}
