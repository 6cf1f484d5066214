/* loop_fn.c: the loop measured by bench_loops: `gradpool train` as a task. */
#include <math.h>
#include <time.h>

#include <gradpool/train_task.h>

#include "tests/bench/loop_fn.h"

static double now(clockid_t clock)
{
    struct timespec at;

    clock_gettime(clock, &at);
    return (double)at.tv_sec + (double)at.tv_nsec * 1e-9;
}

static gp_status custom_loss(gp_loss_call *call, gp_error *err)
{
    (void)err;
    for (uint32_t n = 0; n < call->count; n++) {
        const float *scores = call->scores + n * call->size;
        size_t label = (size_t)((const int32_t *)call->targets)[n];
        float largest = scores[0], sum = 0.0f;

        for (size_t k = 1; k < call->size; k++)
            largest = fmaxf(largest, scores[k]);
        for (size_t k = 0; k < call->size; k++)
            sum += expf(scores[k] - largest);
        for (size_t k = 0; k < call->size; k++)
            call->gradient[n * call->size + k] = expf(scores[k] - largest) / sum - (k == label);
        call->loss -= scores[label] - largest - logf(sum);
    }
    return GP_OK;
}

GP_TASK gp_status loop(gp_task *task, gp_error *err)
{
    size_t bytes;
    const loop_request *asked = gp_task_argument(task, &bytes);
    loop_times times = { 0 };
    gp_data *data;
    gp_model *model;
    gp_samples batch;

    if (bytes != sizeof(*asked))
        return gp_fail(err, GP_EINVAL, "the argument has %zu bytes; expected %zu", bytes, sizeof(*asked));
    gp_data_options from = { .source = asked->data, .batch = asked->batch, .epochs = 1 << 20, .seed = 1 };
    gp_status status = gp_data_open(&data, task, &from, err);
    gp_model_options options = { .network = asked->network,
                                 .data = data,
                                 .loss = asked->custom_loss ? custom_loss : NULL,
                                 .loss_parallel = asked->custom_loss,
                                 .train_only = true };

    if (status == GP_OK)
        status = gp_model_open(&model, task, &options, err);
    for (uint32_t step = 1; status == GP_OK && step <= asked->steps; step++) {
        status = gp_data_next(data, &batch, err);
        if (status == GP_OK)
            status = gp_model_forward_backward(model, &batch, err);
        if (status == GP_OK)
            status = gp_model_all_reduce(model, task, err);
        if (status == GP_OK)
            status = gp_model_optimizer_step(model, 0.01, err);
        if (step == 1)
            times = (loop_times){ -now(CLOCK_MONOTONIC), -now(CLOCK_THREAD_CPUTIME_ID) };
    }
    times.seconds += now(CLOCK_MONOTONIC);
    times.cpu += now(CLOCK_THREAD_CPUTIME_ID);
    return status == GP_OK ? gp_task_result(task, &times, sizeof(times), err) : status;
}
