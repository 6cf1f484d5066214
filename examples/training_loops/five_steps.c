/* Data-parallel training in the five steps from chapter 12.5 of "Dive into Deep Learning". Each
 * rank in an spmd block is one device.
 *
 *   cmake -B build && cmake --build build
 *   gradpool spmd -n 2 build/five_steps.so:train [SOURCE]
 *
 * SOURCE: digits:6000, fashion-mnist, a directory, ... */
#include <gradpool/train_task.h>
#include <string.h>

enum { BATCH = 250, EPOCHS = 3 };

/* Train on one mini-batch: samples [first, first + BATCH) in epoch order. */
static gp_status train_batch(gp_task *task, gp_model *model, gp_data *data, uint32_t epoch, uint32_t first,
                             gp_error *err)
{
    uint32_t rank = gp_task_index(task) - 1, ranks = gp_task_size(task), each = BATCH / ranks;
    gp_samples share;

    /* 1. Split the mini-batch evenly over the devices. The last device also has the remainder. */
    gp_status status = gp_data_read(data, epoch, first + rank * each,
                                    rank + 1 < ranks ? each : BATCH - rank * each, &share, err);

    /* 2. and 3. Each device computes loss and gradients for one slice, with a local copy of the
     * parameters. */
    if (status == GP_OK)
        status = gp_model_forward_backward(model, &share, err);

    /* 4. The gradients are added, and every device receives the sum. */
    if (status == GP_OK)
        status = gp_model_all_reduce(model, task, err);

    /* 5. Each device updates the local parameters. All copies stay identical. */
    return status == GP_OK ? gp_model_optimizer_step(model, 0.3, err) : status;
}

/* Check that all ranks have bitwise identical parameters. */
static gp_status compare(gp_task *task, gp_model *model, gp_error *err)
{
    size_t count = gp_model_count(model), bytes, parts[65];
    const float *parameters = gp_model_parameters(model);
    const void *all;
    gp_status status = gp_task_all_gather(task, parameters, count * sizeof(float), &all, &bytes, parts, err);

    for (uint32_t k = 1; status == GP_OK && k < gp_task_size(task); k++)
        if (memcmp(all, (const char *)all + parts[k], count * sizeof(float)) != 0)
            return gp_fail(err, GP_EINTERNAL, "the parameters of index %u differ from those of index 1",
                           k + 1);
    if (status == GP_OK && gp_task_index(task) == 1)
        gp_task_log(task, "%zu parameters are the same on all ranks", count);
    return status;
}

GP_TASK gp_status train(gp_task *task, gp_error *err)
{
    size_t bytes;
    const char *source = gp_task_argument(task, &bytes); /* from the command line; NULL: none */
    gp_data_options from = { .source = source != NULL ? source : "digits:6000", .read_max = BATCH };
    gp_data_info info;
    gp_data *data;
    gp_model *model;
    gp_status status = gp_data_open(&data, task, &from, err);

    if (status == GP_OK)
        status = gp_model_open(
            &model, task, &(gp_model_options){ .network = "lenet", .data = data, .options = "momentum=0" },
            err);
    if (status != GP_OK)
        return status; /* the task closes data and model */
    gp_data_get_info(data, &info);
    for (uint32_t epoch = 1; epoch <= EPOCHS; epoch++) {
        gp_model_sums sums = { 0 };

        for (uint32_t first = 0; first + BATCH <= info.count && status == GP_OK; first += BATCH) {
            status = train_batch(task, model, data, epoch, first, err);
            gp_model_get_sums(model, &sums);
        }
        if (status != GP_OK)
            return status;
        if (gp_task_index(task) == 1)
            gp_task_log(task, "epoch %u: last batch: loss %.4f, accuracy %.1f %%", epoch,
                        sums.loss / sums.weight, 100.0 * sums.correct / sums.weight);
    }
    return compare(task, model, err);
}
