/* pipeline_steps.c -- steps in flight on the device: launch, wait, halt. */
#include "worker/train/pipeline.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/base/system/fault.h"
#include "worker/process/exit_reason.h"

/* ---- launching ---- */

/* Give the batches that the device has read back to the loader. */
static void batches_release(gp_pipeline *pipeline)
{
    uint32_t reading = pipeline->ops->reading(pipeline->plan), done;

    done = pipeline->read_count > reading ? pipeline->read_count - reading : 0;
    for (uint32_t i = 0; i < done; i++)
        gp_loader_release(pipeline->data->training.loader, pipeline->read[i]);
    pipeline->read_count -= done;
    memmove(pipeline->read, pipeline->read + done, pipeline->read_count * sizeof(pipeline->read[0]));
}

/* Launch the last call of *flight.
 *   number  step number, from 1 */
static gp_status call_launch(gp_pipeline *pipeline, gp_flight *flight, uint64_t number,
                             gp_train_cursor *requests, gp_error *err)
{
    const gp_train_call *call = &flight->last;
    gp_train_control *control = pipeline->exchange->control;
    const gp_train_data *data = pipeline->data;
    const gp_sampler *sampler = &data->training.sampler;
    gp_loader *loader = pipeline->data->training.loader;
    /* The device applies its own loss scale. */
    const gp_loss_scale one = { .scale = pipeline->progress->loss_scale.scale > 0 };
    gp_step_call with = { .batch = { .count = call->count,
                                     .first = call->first_call,
                                     .last = call->last_call,
                                     .seed = (uint64_t)pipeline->options->seed,
                                     .step = number - 1,
                                     .position = call->position,
                                     .loss_scale = gp_loss_scale_of_sum(&one, call->batch) },
                          .epoch = call->epoch,
                          .at = call->first,
                          .draws = pipeline->draws };
    gp_loader_batch *loaded = NULL;
    int64_t waited_ns = 0;
    gp_status status = gp_train_control_check(control, pipeline->progress->step, err);

    batches_release(pipeline);
    if (status == GP_OK && !pipeline->data_resident)
        status = gp_loader_take(loader, &loaded, &waited_ns, err);
    if (status != GP_OK)
        return status;
    for (uint32_t i = 0; pipeline->draws != NULL && i < call->count; i++) {
        uint32_t index;

        gp_sampler_get(sampler, call->epoch, call->first + i, 1, &index);
        gp_augment_draw_sample(&pipeline->draws[i], &data->augment, gp_store_get_info(data->training.store),
                               &data->shape, sampler->seed, call->epoch, index);
    }
    if (loaded != NULL) {
        with.batch.samples = loaded->samples;
        with.batch.targets = loaded->targets;
    }
    flight->data_ms += (double)waited_ns * 1e-6;
    flight->samples += call->count;
    if (call->last_call) {
        flight->learn_rate = gp_schedule_learn_rate(pipeline->schedule, number, call->epoch + 1);
        with.learn_rate = flight->learn_rate;
        with.samples = flight->samples;
        with.stop = atomic_load(&control->stop) == 1;
        with.pause = atomic_load(&control->pause) != 0;
        with.shorter = call->batch < gp_schedule_batch(pipeline->schedule, 0);
    }
    gp_fault_point("forward");
    status = pipeline->ops->launch(pipeline->plan, &with, err);
    if (loaded != NULL)
        pipeline->read[pipeline->read_count++] = loaded;
    batches_release(pipeline);
    gp_train_control_progress(control);
    return status == GP_OK && !pipeline->data_resident
               ? gp_train_data_request(pipeline->data, pipeline->schedule, requests, err)
               : status;
}

/* ---- results ---- */

/* Wait for the oldest step in flight, and remove it from the pipeline. */
static gp_status step_take(gp_pipeline *pipeline, gp_flight *out, gp_step_reported *reported, gp_error *err)
{
    gp_status status = pipeline->ops->reported(pipeline->plan, reported, err);

    if (status != GP_OK)
        return status;
    batches_release(pipeline);
    if (reported->counts)
        pipeline->residency = GP_DEVICE_NEWER;
    *out = pipeline->flights[0];
    pipeline->count--;
    memmove(pipeline->flights, pipeline->flights + 1, pipeline->count * sizeof(pipeline->flights[0]));
    return GP_OK;
}

gp_status gp_pipeline_step(gp_pipeline *pipeline, const gp_train_cursor *now, gp_train_cursor *requests,
                           gp_flight *out, gp_step_reported *reported, gp_error *err)
{
    gp_status status = GP_OK;

    while (status == GP_OK && pipeline->count < GP_STEPS_AHEAD &&
           pipeline->progress->ending == GP_ENDING_NONE) {
        const gp_flight *newest = pipeline->count == 0 ? NULL : &pipeline->flights[pipeline->count - 1];
        gp_train_cursor from = newest == NULL ? *now : newest->after;

        if ((newest != NULL && newest->barrier) || from.epoch >= pipeline->options->max_epochs)
            break;
        const uint64_t number = pipeline->progress->step + pipeline->count + 1;
        gp_flight *flight = &pipeline->flights[pipeline->count];

        *flight = (gp_flight){ .after = from };
        do {
            gp_schedule_next(pipeline->schedule, &flight->after, &flight->last);
            status = call_launch(pipeline, flight, number, requests, err);
        } while (status == GP_OK && !flight->last.last_call);
        if (status != GP_OK)
            return status;
        flight->barrier = gp_schedule_validates(pipeline->schedule, &flight->last, number) ||
                          gp_schedule_saves(pipeline->schedule, &flight->last, number);
        pipeline->count++;
        gp_fault_point("exchange");
    }
    return status == GP_OK ? step_take(pipeline, out, reported, err) : status;
}

gp_status gp_pipeline_drain(gp_pipeline *pipeline, gp_error *err)
{
    gp_status status = GP_OK;
    gp_flight flight;
    gp_step_reported reported;

    while (pipeline->count > 0 && status == GP_OK)
        status = step_take(pipeline, &flight, &reported, err);
    return status;
}

void gp_pipeline_halt(gp_pipeline *pipeline, const gp_error *cause)
{
    gp_error err;
    char doing[48];

    if (pipeline->ops->halt(pipeline->plan, &err) == GP_OK)
        return;
    snprintf(doing, sizeof(doing), "in step %" PRIu64, pipeline->progress->step + 1);
    /* Report the first failure if it was a device error: the halt may have failed only because
     * of it. */
    gp_device_lost(doing, cause->code == GP_EIO ? cause : &err);
}

bool gp_pipeline_halted_step(gp_pipeline *pipeline, gp_flight *out, gp_step_reported *reported)
{
    gp_error ignored;
    bool committed =
        pipeline->count > 0 && step_take(pipeline, out, reported, &ignored) == GP_OK && reported->counts;

    if (!committed)
        pipeline->count = 0;
    return committed;
}
