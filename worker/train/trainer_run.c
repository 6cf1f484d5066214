/* trainer_run.c -- the training loop.
 *
 *   epoch e:  [ compute: calls of this rank's share -> exchange: buckets, header -> commit ] ...
 *             validation
 *
 * Compute writes only the arena and scratch memory; commit needs no peer (docs/plan.md, I3). A
 * failure before the commit leaves parameters, state and step counter unchanged. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "common/base/clock.h"
#include "common/base/memory/crc32c.h"
#include "common/base/system/fault.h"
#include "common/base/system/fence.h"
#include "common/base/text/log.h"
#include "worker/train/trainer_state.h"

/* ---- a step on the host ---- */

/* Compute all calls in this rank's share of one step.
 *   now       position of the step; advanced past it
 *   requests  loader request position; advanced
 *   last      set to the last call of the step */
static gp_status trainer_compute(gp_trainer *trainer, gp_train_cursor *now, gp_train_cursor *requests,
                                 gp_train_call *last, gp_train_record *record, gp_error *err)
{
    gp_loader *loader = trainer->data.training.loader;
    const gp_train_progress *progress = &trainer->progress;
    bool reproducible = trainer->options.reproducible;
    int64_t waited_ns;
    gp_status status;

    do {
        gp_loader_batch *loaded;

        gp_schedule_next(&trainer->schedule, now, last);
        status = gp_train_control_check(trainer->control, progress->step, err);
        if (status == GP_OK)
            status = gp_loader_take(loader, &loaded, &waited_ns, err);
        if (status != GP_OK)
            return status;
        record->data_ms += (double)waited_ns * 1e-6;
        gp_train_control_span_begin(trainer->control);
        gp_fault_point("forward");
        status = trainer->backend_ops->run(
            trainer->plan,
            &(gp_batch){
                .samples = loaded->samples,
                .targets = loaded->targets,
                .count = last->count,
                .first = last->first_call || reproducible,
                .last = last->last_call || reproducible,
                .seed = (uint64_t)trainer->options.seed,
                .step = progress->step,
                .position = last->position,
                .loss_scale = gp_loss_scale_of_sum(&progress->loss_scale, last->batch),
                .coupling = gp_exchange_coupling(&trainer->exchange),
            },
            trainer->exchange.by_bucket ? gp_exchange_sum : NULL, &trainer->exchange, err);
        gp_loader_release(loader, loaded);
        if (status == GP_OK && reproducible) {
            status = trainer->backend_ops->sync(trainer->backend, err);
            gp_exchange_add_call(&trainer->exchange, true);
        }
        gp_train_control_span_end(trainer->control);
        record->samples += last->count;
        gp_train_control_progress(trainer->control);
        if (status == GP_OK)
            status = gp_train_data_request(&trainer->data, &trainer->schedule, requests, err);
    } while (status == GP_OK && !last->last_call);
    if (status == GP_OK)
        status = trainer->backend_ops->sync(trainer->backend, err);
    return status == GP_OK && reproducible ? gp_exchange_text(&trainer->exchange, err) : status;
}

/* Update parameters and state. A step without any target changes nothing. */
static gp_status trainer_commit(gp_trainer *trainer, const gp_step_result *result, double learn_rate,
                                gp_error *err)
{
    float *gradients = trainer->exchange.gradients;
    bool sharded = result->weight > 0 && trainer->shards.active;
    gp_status status = GP_OK;

    if (!sharded)
        gp_train_control_span_begin(trainer->control);
    gp_fault_point("commit");
    if (sharded) {
        status = gp_shards_commit(&trainer->shards, &trainer->parameters, trainer->graph, trainer->optim,
                                  &trainer->exchange, learn_rate, err);
        if (status != GP_OK)
            return status;
        trainer->backend_ops->rebind(trainer->plan, trainer->parameters);
        if (trainer->validation_plan != NULL)
            trainer->backend_ops->rebind(trainer->validation_plan, trainer->parameters);
        return GP_OK;
    }
    if (result->weight > 0) {
        /* before the optimizer, which may clip the gradients */
        gp_statistics_commit(trainer->graph, trainer->parameters, gradients, result->samples, false);
        gp_optim_step(trainer->optim, trainer->parameters, gradients, result->weight, learn_rate);
    }
    gp_train_control_span_end(trainer->control);
    return GP_OK;
}

static gp_status host_step(gp_trainer *trainer, gp_train_cursor *now, gp_train_cursor *requests,
                           gp_train_call *last, gp_train_record *record, gp_error *err)
{
    gp_exchange *exchange = &trainer->exchange;
    gp_train_progress *progress = &trainer->progress;
    gp_status status;

    gp_exchange_begin(exchange, true);
    status = trainer_compute(trainer, now, requests, last, record, err);
    if (status == GP_OK)
        status = gp_exchange_header(exchange, record->samples, err);
    if (status != GP_OK)
        return status;

    gp_step_result result = gp_exchange_result(exchange);

    if (result.weight > 0 && !isfinite(result.loss))
        return gp_trainer_diverged(trainer, last, result.loss, err);
    int64_t commit_ns = gp_now_ns(), exchange_ns = exchange->spent_ns;
    double learn_rate = gp_schedule_learn_rate(&trainer->schedule, progress->step + 1, last->epoch + 1);

    status = gp_train_progress_scale(progress, &trainer->options, result.bad, progress->step, record, err);
    if (status == GP_OK && record->skipped == 0)
        status = trainer_commit(trainer, &result, learn_rate, err);
    if (status != GP_OK)
        return status;
    commit_ns = gp_now_ns() - commit_ns - (exchange->spent_ns - exchange_ns);
    gp_train_progress_count(progress, last, &result, learn_rate, trainer->control, record);

    gp_plan_times times = trainer->backend_ops->take_times(trainer->plan);

    record->forward_ms = (double)times.forward_ns * 1e-6;
    record->backward_ms = (double)times.backward_ns * 1e-6;
    record->commit_ms = (double)commit_ns * 1e-6;
    gp_exchange_get_times(exchange, record);
    return GP_OK;
}

/* ---- a step on the device ---- */

static void count_device_step(gp_trainer *trainer, const gp_flight *flight, const gp_step_reported *reported,
                              gp_train_record *record)
{
    gp_step_result result =
        gp_step_result_of(reported->sums, reported->samples, reported->stop, reported->pause);

    if (reported->committed)
        gp_optim_end(trainer->optim);

    /* the device applies the same rule as the host */
    trainer->progress.loss_scale.scale = reported->loss_scale;
    *record = (gp_train_record){ .samples = flight->samples,
                                 .data_ms = flight->data_ms,
                                 .forward_ms = (double)reported->forward_ns * 1e-6,
                                 .backward_ms = (double)reported->backward_ns * 1e-6,
                                 .exchange_ms = (double)reported->exchange_ns * 1e-6,
                                 .commit_ms = (double)reported->commit_ns * 1e-6 };
    gp_train_progress_count(&trainer->progress, &flight->last, &result, flight->learn_rate, trainer->control,
                            record);
    gp_train_control_progress(trainer->control);
}

static gp_status device_step(gp_trainer *trainer, gp_train_cursor *now, gp_train_cursor *requests,
                             gp_train_call *last, gp_train_record *record, gp_error *err)
{
    gp_train_progress *progress = &trainer->progress;
    gp_flight flight;
    gp_step_reported reported;
    gp_status status = gp_pipeline_step(&trainer->pipeline, now, requests, &flight, &reported, err);

    if (status != GP_OK)
        return status;
    if (!reported.counts) { /* the steps after it are invalid too */
        status = gp_pipeline_drain(&trainer->pipeline, err);
        return status == GP_OK
                   ? gp_trainer_diverged(trainer, &flight.last,
                                         reported.sums[GP_SUM_LOSS] / reported.sums[GP_SUM_WEIGHT], err)
                   : status;
    }
    gp_fault_point("commit");
    count_device_step(trainer, &flight, &reported, record);
    *last = flight.last;
    *now = flight.after;
    return gp_train_progress_scale(progress, &trainer->options, reported.sums[GP_SUM_BAD], progress->step - 1,
                                   record, err);
}

/* After a failed step, count and report the steps that the device had committed. */
static void trainer_halt(gp_trainer *trainer, const gp_train_sink *sink, gp_train_done *done,
                         const gp_error *cause)
{
    gp_train_progress *progress = &trainer->progress;
    const gp_schedule *schedule = &trainer->schedule;
    gp_train_record record;
    gp_flight flight;
    gp_step_reported reported;
    gp_error ignored; /* too many skipped steps: the next group detects that too */

    if (trainer->pipeline.residency == GP_ON_HOST)
        return;
    gp_pipeline_halt(&trainer->pipeline, cause);
    while (gp_pipeline_halted_step(&trainer->pipeline, &flight, &reported)) {
        count_device_step(trainer, &flight, &reported, &record);
        gp_train_progress_scale(progress, &trainer->options, reported.sums[GP_SUM_BAD], progress->step - 1,
                                &record, &ignored);
        progress->epoch = flight.after.epoch;
        progress->first = flight.after.first;
        progress->validation_due = gp_schedule_validates(schedule, &flight.last, progress->step);
        done->epoch = flight.last.epoch + 1;
        sink->record(sink->context, &record);
    }
}

/* ---- checkpoints ---- */

static void report_saver(gp_trainer *trainer, const gp_train_sink *sink)
{
    char text[480];
    bool failed;

    if (gp_saver_events(trainer->saver, text, &failed))
        sink->note(sink->context, text, failed);
}

/* Return whether all parameters and running statistics are finite. */
static bool is_finite(const gp_trainer *trainer)
{
    double sum = 0; /* 0 or NaN */

    for (size_t i = 0; i < trainer->graph->blob_count; i++)
        sum += 0.0f * trainer->parameters[i];
    return !isnan(sum);
}

/* Write the checkpoint that is due. While the disk is busy with an earlier one, it stays due. */
static void trainer_save(gp_trainer *trainer, bool ends, const gp_train_sink *sink)
{
    gp_train_progress *progress = &trainer->progress;
    gp_checkpoint now;
    gp_error err;

    report_saver(trainer, sink);
    /* With steps in flight, the device state may be newer than the step counter. */
    if ((!progress->checkpoint_due && !ends) || trainer->pipeline.count > 0)
        return;
    if (gp_pipeline_fetch(&trainer->pipeline, trainer->parameters, trainer->optim, &err) != GP_OK) {
        sink->note(sink->context, err.message, true);
        return;
    }

    /* a later step or the end reports it; the previous checkpoint stays the newest */
    if (!is_finite(trainer)) {
        sink->note(sink->context, "no checkpoint is written: the weights are not finite", true);
        return;
    }
    if (ends)
        gp_saver_wait(trainer->saver);
    gp_trainer_checkpoint(trainer, &now);
    if (gp_saver_save(trainer->saver, &now))
        progress->checkpoint_due = false;
    if (ends)
        gp_saver_wait(trainer->saver);
    report_saver(trainer, sink);
}

/* ---- the run ---- */

/* Do the work that is due between two steps: validation, early stopping, checkpoint.
 *   last  last call of the step; NULL: the step was taken in another group
 *   ends  no step follows; set when the training stops early */
static gp_status trainer_after_step(gp_trainer *trainer, const gp_train_call *last, bool *ends,
                                    const gp_train_sink *sink, gp_train_done *done, gp_error *err)
{
    gp_train_progress *progress = &trainer->progress;
    bool first_of_group = last == NULL && trainer->restarted;
    bool validated = progress->validation_due || first_of_group;

    if (progress->validation_due) {
        gp_status status = gp_trainer_validate(trainer, gp_train_progress_epoch(progress), sink, err);

        if (status != GP_OK)
            return status;
        progress->validation_due = false;
    } else if (first_of_group && progress->last_validation.step != 0) {
        /* rank 0 may have failed before it reported; the client drops a repetition */
        gp_trainer_report_validation(trainer, sink);
    }
    if (validated && !*ends && gp_train_progress_stops_early(progress, &trainer->options)) {
        done->stop_reason = GP_STOP_EARLY;
        *ends = true;
    }
    /* On ranks other than 0 a checkpoint stays due: if rank 0 fails while it writes one, the
     * next rank 0 writes another one after its first step. */
    if (last != NULL && gp_schedule_saves(&trainer->schedule, last, progress->step))
        progress->checkpoint_due = true;
    /* `last` NULL: an earlier group took the last step, and may not have saved it. */
    if (trainer->saver != NULL && (last != NULL || (*ends && progress->ended == 0)))
        trainer_save(trainer, *ends, sink);
    return GP_OK;
}

/* After the last step and its checkpoint, compute the metrics and statistics of the final weights:
 *
 *   - the validation of a stopped training. It follows the checkpoint, because a training that
 *     resumes must count the same validations as an uninterrupted one.
 *   - the batch normalization statistics over all data, and another validation
 *
 * If a cluster job is stopped before its allocation ends, skip all this: there is no time left. */
static gp_status trainer_finish(gp_trainer *trainer, const gp_train_sink *sink, const gp_train_done *done,
                                gp_error *err)
{
    gp_train_progress *progress = &trainer->progress;
    const bool stopped = done->stop_reason == GP_STOP_STOPPED;
    const bool population = trainer->options.batch_norm_statistics == GP_STATISTICS_POPULATION;
    const bool validates =
        stopped && trainer->schedule.validates && progress->last_validation.step != progress->step;

    if ((stopped && gp_fence_given()) || (!population && !validates))
        return GP_OK;
    /* Rank 0 has written the checkpoint. From now on the state differs from that checkpoint: if a
     * rank fails, the next group must neither save the state nor take steps from it. */
    gp_status status = gp_comm_barrier(trainer->comm, err);

    if (status == GP_OK)
        progress->ended = 1 + done->stop_reason;
    if (status == GP_OK && validates)
        status = gp_trainer_validate(trainer, done->epoch, sink, err);
    if (status == GP_OK && population && !progress->population_done) {
        status = gp_trainer_population(trainer, err);
        progress->population_done = status == GP_OK;
    }
    if (status == GP_OK && population && trainer->validation_plan != NULL)
        status = gp_trainer_validate(trainer, done->epoch, sink, err);
    return status;
}

static gp_status trainer_steps(gp_trainer *trainer, const gp_train_sink *sink, gp_train_done *done,
                               gp_error *err)
{
    const gp_schedule *schedule = &trainer->schedule;
    const gp_pipeline *pipeline = &trainer->pipeline;
    gp_train_progress *progress = &trainer->progress;
    gp_train_cursor now = { .epoch = progress->epoch, .first = progress->first }, requests = now;
    gp_status status = GP_OK;

    /* all steps were taken in an earlier group */
    bool ends = progress->epoch >= trainer->options.max_epochs || progress->ended != 0;
    bool pauses = false;

    if (!pipeline->data_resident)
        status = gp_train_data_prefetch(&trainer->data, schedule, &requests, err);
    gp_train_progress_start(progress);
    done->epoch = gp_train_progress_epoch(progress);
    if (progress->ended != 0)
        done->stop_reason = progress->ended - 1;
    if (status == GP_OK)
        status = trainer_after_step(trainer, NULL, &ends, sink, done, err);
    while (status == GP_OK && !ends && !pauses) {
        gp_train_record record = { 0 };
        gp_train_call last = { 0 };

        status = pipeline->residency == GP_ON_HOST
                     ? host_step(trainer, &now, &requests, &last, &record, err)
                     : device_step(trainer, &now, &requests, &last, &record, err);
        if (status != GP_OK)
            break;
        progress->epoch = now.epoch;
        progress->first = now.first;
        /* A request takes effect when no step is in flight. */
        bool stops = progress->ending == GP_ENDING_STOP && pipeline->count == 0;

        pauses = progress->ending == GP_ENDING_PAUSE && pipeline->count == 0;
        ends = stops || now.epoch >= trainer->options.max_epochs;
        progress->validation_due = gp_schedule_validates(schedule, &last, progress->step);
        if (stops)
            done->stop_reason = GP_STOP_STOPPED;
        done->epoch = last.epoch + 1;
        sink->record(sink->context, &record);
        status = trainer_after_step(trainer, &last, &ends, sink, done, err);
    }

    /* trainer_after_step() has done all work that was due */
    if (status == GP_OK && pauses && !ends) {
        done->stop_reason = GP_STOP_PAUSED;
        return GP_OK;
    }
    return status == GP_OK ? trainer_finish(trainer, sink, done, err) : status;
}

gp_status gp_trainer_run(gp_trainer *trainer, const gp_train_sink *sink, gp_train_done *done)
{
    gp_error err = { 0 }, lost;

    const bool rank_0 = trainer->schedule.rank == 0;

    *done = (gp_train_done){ .stop_reason = GP_STOP_COMPLETED };
    if (rank_0 && !trainer->restarted)
        gp_train_notes_report(&trainer->notes, sink);
    gp_train_data_report(&trainer->data, rank_0, trainer->restarted, sink);

    gp_status status = trainer_steps(trainer, sink, done, &err);

    if (trainer->saver != NULL) {
        gp_saver_wait(trainer->saver);
        report_saver(trainer, sink);
    }
    gp_saver_free(trainer->saver); /* frees the state copy before the results are copied */
    trainer->saver = NULL;
    /* A failed step leaves the previous step's parameters, which remain usable. */
    if (status != GP_OK)
        trainer_halt(trainer, sink, done, &err);
    if (gp_pipeline_fetch(&trainer->pipeline, trainer->parameters, trainer->optim, &lost) != GP_OK &&
        status == GP_OK) {
        status = lost.code;
        err = lost;
    }
    /* The loss can stay finite, because some kernels replace NaN by 0. */
    if (status == GP_OK && !is_finite(trainer))
        status = gp_fail(&err, GP_EDIVERGED,
                         "the weights are not finite after step %" PRIu64
                         ", although the loss is; lower initial-learn-rate, or look for samples with NaN",
                         trainer->progress.step);
    if (gp_log_is_shown(GP_LOG_DEBUG))
        gp_log(GP_LOG_DEBUG, "weights",
               "rank %" PRIu32 " of %" PRIu32 " finished at step %" PRIu64 ", weights checksum %08" PRIx32,
               trainer->schedule.rank, trainer->schedule.world, trainer->progress.step,
               gp_crc32c(0, trainer->parameters, trainer->graph->blob_count * sizeof(float)));
    if (status != GP_OK)
        done->stop_reason = status == GP_ECANCELED ? GP_STOP_STOPPED : GP_STOP_FAILED;
    done->status = status;
    snprintf(done->message, sizeof(done->message), "%s", err.message);
    done->step = trainer->progress.step;
    done->loss = trainer->progress.loss;
    done->seconds = trainer->progress.seconds;
    gp_train_data_add_skipped(&trainer->data, done);
    return status;
}
