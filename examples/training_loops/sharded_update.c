/* Exercise 3 from chapter 12.5 of "Dive into Deep Learning": an all-reduce in two parts. A
 * reduce-scatter adds the gradients, and each rank then updates one slice of the parameters. An
 * all-gather distributes the new parameters. A rank stores the momentum for this slice only (ZeRO
 * stage 1; Rajbhandari et al., SC 2020). A second model is trained with all-reduce, and must have
 * bitwise identical parameters.
 *
 *   cmake -B build && cmake --build build
 *   gradpool spmd -n 2 build/sharded_update.so:train */
#include <gradpool/train_task.h>
#include <stdlib.h>
#include <string.h>

static const float rate = 0.1f, momentum = 0.9f;

/* Update parameters [first, first + count). `velocity` has `count` elements. */
static void update(float *parameters, float *velocity, const float *gradients, size_t first, size_t count,
                   double weight)
{
    for (size_t i = 0; i < count; i++) {
        velocity[i] = momentum * velocity[i] - rate * (gradients[first + i] / (float)weight);
        parameters[first + i] += velocity[i];
    }
}

/* Take a step with all-reduce; every rank updates all parameters. */
static gp_status step_whole(gp_task *task, gp_model *model, float *velocity, const gp_samples *batch,
                            gp_error *err)
{
    gp_model_sums sums;
    gp_status status = gp_model_forward_backward(model, batch, err);

    if (status == GP_OK)
        status = gp_model_all_reduce(model, task, err);
    if (status != GP_OK)
        return status;
    gp_model_get_sums(model, &sums);
    update(gp_model_parameters(model), velocity, gp_model_gradients(model), 0, gp_model_count(model),
           sums.weight);
    gp_model_next_step(model);
    return GP_OK;
}

/* Take a step in which every rank updates only one slice of the parameters. */
static gp_status step_sharded(gp_task *task, gp_model *model, float *velocity, const gp_samples *batch,
                              gp_error *err)
{
    gp_model_sums sums;
    size_t first, count;
    gp_status status = gp_model_forward_backward(model, batch, err);

    if (status == GP_OK)
        status = gp_model_reduce_scatter(model, task, err);
    if (status == GP_OK)
        status = gp_model_slice(model, task, gp_task_index(task), &first, &count, err);
    if (status != GP_OK)
        return status;
    gp_model_get_sums(model, &sums);
    update(gp_model_parameters(model), velocity, gp_model_gradients(model), first, count, sums.weight);
    status = gp_model_all_gather(model, task, err);
    gp_model_next_step(model);
    return status;
}

GP_TASK gp_status train(gp_task *task, gp_error *err)
{
    gp_model *whole, *sharded;
    gp_data *data;
    gp_samples batch = { 0 };
    size_t count, first, mine = 0;
    gp_data_options from = { .source = "digits:3000", .batch = 250, .epochs = 2 };
    gp_status status = gp_data_open(&data, task, &from, err);
    gp_model_options options = { .network = "lenet", .data = data };

    if (status == GP_OK)
        status = gp_model_open(&whole, task, &options, err);
    if (status == GP_OK)
        status = gp_model_open(&sharded, task, &options, err);
    if (status == GP_OK)
        status = gp_model_slice(sharded, task, gp_task_index(task), &first, &mine, err);
    if (status != GP_OK)
        return status;
    const float *a = gp_model_parameters(whole), *b = gp_model_parameters(sharded);

    count = gp_model_count(whole);
    float *all_velocity = calloc(count, sizeof(float)), *own_velocity = calloc(mine + 1, sizeof(float));

    if (all_velocity == NULL || own_velocity == NULL)
        status = gp_fail(err, GP_ENOMEM, "no memory for the momentum of %zu parameters", count);
    while (status == GP_OK && (status = gp_data_next(data, &batch, err)) == GP_OK && !batch.ended) {
        status = step_whole(task, whole, all_velocity, &batch, err);
        if (status == GP_OK)
            status = step_sharded(task, sharded, own_velocity, &batch, err);
        if (status == GP_OK && memcmp(a, b, count * sizeof(float)) != 0)
            status = gp_fail(err, GP_EINTERNAL, "epoch %u, step %u: the parameters differ", batch.epoch,
                             batch.step);
    }
    if (status == GP_OK)
        gp_task_log(task, "bitwise identical after %d steps; momentum on this rank: %zu of %zu numbers",
                    (int)gp_model_step_count(whole), mine, count);
    free(all_velocity);
    free(own_velocity);
    return status;
}
