/* trainer_ahead.c -- the steps of a training that stays on its device: some are begun before the oldest is heard of.
 *
 *   begin s+1 | begin s+2, hear of s+1 | begin s+3, hear of s+2 | ...
 *
 * What a rank was asked (to stop, to pause) goes into the header of the next step that it begins, and all hear of it with
 * the sums of that step, when the step after it is under way on every rank alike; that one is the last.  Where validation
 * or a checkpoint follows a step, the next one waits for it, on every rank too: a rank that began one more than the others
 * would wait for them for ever.
 *
 * After a death the device says how far it came: a step that it had committed counts although nobody had asked yet. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/system/fault.h"
#include "common/base/text/log.h"
#include "worker/process/last_words.h"
#include "worker/train/trainer_state.h"

/* ---- beginning a step ---- */

static void call_draw(gp_trainer *trainer, const step_part *next)
{
    const gp_store_info *info = gp_store_get_info(trainer->data);

    for (uint32_t i = 0; i < next->count; i++) {
        uint32_t index;

        gp_sampler_get(&trainer->sampler, next->epoch, next->first + i, 1, &index);
        gp_augment_draw_sample(&trainer->draws[i], &trainer->augment, info, &trainer->shape,
                               trainer->sampler.seed, next->epoch, index);
    }
}

/* Its samples are copied, or are there: the loader has its batch back. */
static gp_status call_launch(gp_trainer *trainer, step_ahead *step, uint64_t number, cursor *ahead,
                             gp_error *err)
{
    const step_part *next = &step->last;
    const gp_loss_scale one = { .scale = trainer->loss_scale.scale > 0 }; /* the rest of it is the device's */
    gp_step_call with = { .batch = { .count = next->count,
                                     .first = next->first_call,
                                     .last = next->last_call,
                                     .seed = (uint64_t)trainer->options.seed,
                                     .step = number - 1,
                                     .position = next->position,
                                     .loss_scale = gp_loss_scale_of_sum(&one, next->batch) },
                          .epoch = next->epoch,
                          .at = next->first,
                          .draws = trainer->draws };
    gp_loader_batch *loaded = NULL;
    int64_t waited_ns = 0;
    gp_status status = gp_trainer_check_stop(trainer, err);

    if (status == GP_OK && !trainer->resident)
        status = gp_loader_take(trainer->loader, &loaded, &waited_ns, err);
    if (status != GP_OK)
        return status;
    if (trainer->draws != NULL)
        call_draw(trainer, next);
    if (loaded != NULL) {
        with.batch.samples = loaded->samples;
        with.batch.targets = loaded->targets;
    }
    step->data_ms += (double)waited_ns * 1e-6;
    step->samples += next->count;
    if (next->last_call) {
        step->learn_rate = gp_trainer_learn_rate(trainer, number, next->epoch + 1);
        with.learn_rate = step->learn_rate;
        with.samples = step->samples;
        with.stop = atomic_load(&trainer->control->stop) == 1;
        with.pause = atomic_load(&trainer->control->pause) != 0;
    }
    gp_fault_point("forward");
    status = trainer->backend_ops->steps->launch(trainer->plan, &with, err);
    if (loaded != NULL)
        gp_loader_release(trainer->loader, loaded);
    gp_trainer_progress(trainer);
    return status == GP_OK && !trainer->resident ? gp_trainer_request(trainer, ahead, err) : status;
}

static gp_status step_launch(gp_trainer *trainer, cursor from, cursor *ahead, gp_error *err)
{
    const uint64_t number = trainer->step + trainer->ahead_count + 1;
    step_ahead *step = &trainer->ahead[trainer->ahead_count];
    gp_status status = GP_OK;

    *step = (step_ahead){ .after = from };
    do {
        gp_trainer_next_call(trainer, &step->after, &step->last);
        status = call_launch(trainer, step, number, ahead, err);
    } while (status == GP_OK && !step->last.last_call);
    if (status != GP_OK)
        return status;
    step->due = gp_trainer_due_after(trainer, &step->last, number);
    trainer->ahead_count++;
    gp_fault_point("exchange");
    return GP_OK;
}

static gp_status steps_launch(gp_trainer *trainer, const cursor *now, cursor *ahead, gp_error *err)
{
    gp_status status = GP_OK;

    while (status == GP_OK && trainer->ahead_count < GP_STEPS_AHEAD && !trainer->stops && !trainer->pauses) {
        const step_ahead *newest =
            trainer->ahead_count == 0 ? NULL : &trainer->ahead[trainer->ahead_count - 1];
        cursor from = newest == NULL ? *now : newest->after;

        if ((newest != NULL && newest->due) || from.epoch >= trainer->options.max_epochs)
            break;
        status = step_launch(trainer, from, ahead, err);
    }
    return status;
}

/* ---- hearing of one ---- */

static void step_drop(gp_trainer *trainer)
{
    trainer->ahead_count--;
    memmove(trainer->ahead, trainer->ahead + 1, trainer->ahead_count * sizeof(trainer->ahead[0]));
}

static void step_count(gp_trainer *trainer, const step_ahead *step, const gp_step_told *told,
                       gp_train_record *record)
{
    uint32_t blobs;
    uint64_t *solved;

    gp_optim_state(trainer->optim, &blobs, &solved);
    *solved += told->committed;
    trainer->stale = true;
    trainer->loss_scale.scale = told->loss_scale; /* by the same rule, so it is */
    memcpy(trainer->header, told->sums, sizeof(told->sums));
    trainer->header[HEADER_SAMPLES] = told->samples;
    trainer->header[HEADER_STOP] = told->stop;
    trainer->header[HEADER_PAUSE] = told->pause;
    *record = (gp_train_record){ .samples = step->samples,
                                 .data_ms = step->data_ms,
                                 .forward_ms = (double)told->forward_ns * 1e-6,
                                 .backward_ms = (double)told->backward_ns * 1e-6,
                                 .exchange_ms = (double)told->exchange_ns * 1e-6,
                                 .commit_ms = (double)told->commit_ns * 1e-6 };
    gp_trainer_count_step(trainer, &step->last, step->learn_rate, record);
    gp_trainer_progress(trainer);
}

/* None behind it counts either: they are heard of, so that the device is at rest on all ranks. */
static gp_status step_diverged(gp_trainer *trainer, const step_ahead *step, const gp_step_told *told,
                               gp_error *err)
{
    gp_status status = GP_OK;
    gp_step_told other;

    for (; trainer->ahead_count > 0 && status == GP_OK; step_drop(trainer))
        status = trainer->backend_ops->steps->told(trainer->plan, &other, err);
    return status == GP_OK ? gp_trainer_diverged(trainer, &step->last,
                                                 told->sums[GP_SUM_LOSS] / told->sums[GP_SUM_WEIGHT], err)
                           : status;
}

gp_status gp_trainer_kept_step(gp_trainer *trainer, cursor *now, cursor *ahead, step_part *last,
                               gp_train_record *record, gp_error *err)
{
    gp_step_told told;
    gp_status status = steps_launch(trainer, now, ahead, err);

    if (status == GP_OK)
        status = trainer->backend_ops->steps->told(trainer->plan, &told, err);
    if (status != GP_OK)
        return status;

    step_ahead step = trainer->ahead[0];

    step_drop(trainer);
    if (!told.counts)
        return step_diverged(trainer, &step, &told, err);
    gp_fault_point("commit");
    step_count(trainer, &step, &told, record);
    *last = step.last;
    *now = step.after;
    return gp_trainer_scale(trainer, trainer->step - 1, record, err);
}

/* ---- the end of all ---- */

/* cause: what was first wrong: a halt only finds that it still is. */
static _Noreturn void step_lost(const gp_trainer *trainer, const gp_error *cause)
{
    char doing[48];

    snprintf(doing, sizeof(doing), "in step %llu", (unsigned long long)trainer->step + 1);
    gp_device_lost(doing, cause);
}

void gp_trainer_kept_halt(gp_trainer *trainer, const gp_train_sink *sink, gp_train_done *done,
                          const gp_error *cause)
{
    const gp_backend_steps *steps = trainer->backend_ops->steps;
    gp_step_told told;
    gp_error err;

    if (steps->halt(trainer->plan, &err) != GP_OK)
        step_lost(trainer, cause->code == GP_EIO ? cause : &err);
    while (trainer->ahead_count > 0 && steps->told(trainer->plan, &told, &err) == GP_OK && told.counts) {
        step_ahead step = trainer->ahead[0];
        gp_train_record record;

        step_drop(trainer);
        step_count(trainer, &step, &told, &record);
        gp_trainer_scale(trainer, trainer->step - 1, &record,
                         &err); /* that it was one too many is for another group */
        trainer->epoch = step.after.epoch;
        trainer->first = step.after.first;
        trainer->owes_validation = gp_trainer_owes_after(trainer, &step.last);
        done->epoch = step.last.epoch + 1;
        sink->record(sink->context, &record);
    }
    trainer->ahead_count = 0;
}
