/* trainer_run.c -- the steps.
 *
 *   epoch e:  [ compute: calls of our share -> exchange: buckets, header -> commit ] ...  validation
 *
 * Compute touches arena and scratch only; commit needs no peer (docs/plan.md, I3).  A failure anywhere before the
 * commit leaves parameters, state and the step counter as they were. */
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/base/system/cached.h"
#include "common/base/clock.h"
#include "common/base/memory/crc32c.h"
#include "worker/train/diagnose.h"
#include "common/base/system/fault.h"
#include "common/base/text/log.h"
#include "worker/train/trainer_state.h"

bool gp_trainer_next_call(const gp_trainer *trainer, cursor *at, step_part *out)
{
    uint32_t samples = trainer->sampler.count, share_first, share;

    if (at->epoch >= trainer->options.max_epochs)
        return false;
    out->batch = samples - at->first < trainer->world_batch ? samples - at->first : trainer->world_batch;
    gp_trainer_share(trainer, out->batch, trainer->rank, &share_first, &share);
    out->epoch = at->epoch;
    out->position = share_first + at->done;
    out->first = at->first + (uint32_t)out->position;
    out->count = share - at->done < trainer->micro_batch ? share - at->done : trainer->micro_batch;
    out->first_call = at->done == 0;
    at->done += out->count;
    out->last_call = at->done == share;
    out->last_step = at->first + out->batch == samples;
    if (out->last_call) {
        at->first += out->batch;
        at->done = 0;
        if (out->last_step) {
            at->first = 0;
            at->epoch++;
        }
    }
    return true;
}

gp_status gp_trainer_check_stop(const gp_trainer *trainer, gp_error *err)
{
    if (atomic_load_explicit(&trainer->control->stop, memory_order_relaxed) < 2)
        return GP_OK;
    return gp_fail(err, GP_ECANCELED, "stopped at once, in step %" PRIu64, trainer->step + 1);
}

/* ---- a step ---- */

gp_status gp_trainer_request(gp_trainer *trainer, cursor *ahead, gp_error *err)
{
    step_part next;

    if (!gp_trainer_next_call(trainer, ahead, &next))
        return GP_OK;
    return gp_loader_request(trainer->loader, next.epoch, next.first, next.count, err);
}

/* All calls of our share of one step.  *last is the last of them. */
static gp_status trainer_compute(gp_trainer *trainer, cursor *now, cursor *ahead, step_part *last,
                                 gp_train_record *record, gp_error *err)
{
    bool exact = trainer->options.reproducible;
    int64_t waited_ns;
    gp_status status;

    record->samples = 0;
    if (exact)
        gp_trainer_exact_begin(trainer, true);
    do {
        gp_loader_batch *loaded;

        gp_trainer_next_call(trainer, now, last);
        status = gp_trainer_check_stop(trainer, err);
        if (status == GP_OK)
            status = gp_loader_take(trainer->loader, &loaded, &waited_ns, err);
        if (status != GP_OK)
            return status;
        record->data_ms += (double)waited_ns * 1e-6;
        gp_train_control_stretch(trainer->control);
        gp_fault_point("forward");
        status = trainer->backend_ops->run(
            trainer->plan,
            &(gp_batch){
                .samples = loaded->samples,
                .targets = loaded->targets,
                .count = last->count,
                .first = last->first_call || exact,
                .last = last->last_call || exact,
                .seed = (uint64_t)trainer->options.seed,
                .step = trainer->step,
                .position = last->position,
                .loss_scale = gp_loss_scale_of_sum(&trainer->loss_scale, last->batch),
                .coupling = gp_trainer_coupling(trainer),
            },
            exact || trainer->sharded ? NULL : gp_trainer_exchange, trainer, err);
        gp_loader_release(trainer->loader, loaded);
        if (status == GP_OK && exact) {
            status = trainer->backend_ops->sync(trainer->backend, err);
            gp_trainer_exact_take(trainer, true);
        }
        gp_train_control_rest(trainer->control);
        record->samples += last->count;
        gp_trainer_progress(trainer);
        if (status == GP_OK)
            status = gp_trainer_request(trainer, ahead, err);
    } while (status == GP_OK && !last->last_call);
    if (status == GP_OK)
        status = trainer->backend_ops->sync(trainer->backend, err);
    return status == GP_OK && exact ? gp_trainer_exact_exchange(trainer, err) : status;
}

/* Of the sums that were exchanged; NaN where nothing had a class. */
static double trainer_accuracy(const gp_trainer *trainer)
{
    return trainer->header[GP_SUM_CORRECT] / trainer->header[GP_SUM_CLASSED];
}

/* Likewise; NaN where nothing had a value. */
static double trainer_rmse(const gp_trainer *trainer)
{
    double mean = trainer->header[GP_SUM_SQUARES] / trainer->header[GP_SUM_VALUES];

    return mean <= GP_ERROR_MAX ? sqrt(mean) : NAN;
}

double gp_trainer_learn_rate(const gp_trainer *trainer, uint64_t step, uint32_t epoch)
{
    uint64_t steps_per_epoch = (trainer->sampler.count + trainer->world_batch - 1) / trainer->world_batch;
    gp_train_place place = { .step = step,
                             .epoch = epoch,
                             .steps = steps_per_epoch * (uint64_t)trainer->options.max_epochs };

    return gp_train_learn_rate(&trainer->options, &place);
}

static void diagnose_progress(void *context)
{
    gp_trainer_progress(context);
}

/* Find the layer and the sample where a value is not finite first. All ranks call it, each for its share of the samples,
 * and get the same sentence. */
static const char *find_first_bad(gp_trainer *trainer, gp_diagnose_request *request, char *text, size_t bytes)
{
    gp_diagnosis found = { .place = GP_BAD_NOWHERE, .phase = request->phase };
    gp_error ignored;
    int64_t key;

    request->graph = trainer->graph;
    request->parameters = trainer->parameters;
    request->seed = (uint64_t)trainer->options.seed;
    request->step = trainer->step;
    request->progress = diagnose_progress;
    request->context = trainer;
    gp_diagnose(&found, request, &ignored);
    key = -gp_diagnosis_key(&found);
    if (gp_comm_all_reduce_private(trainer->comm, &key, 1, GP_I64, GP_COMM_MAX, &ignored) == GP_OK)
        found = gp_diagnosis_from_key(-key, trainer->graph, request->phase);
    return gp_diagnosis_format(&found, trainer->graph, text, bytes);
}

/* Report a loss of the step that is not finite. All ranks have seen the same loss and call it. */
gp_status gp_trainer_diverged(gp_trainer *trainer, const step_part *last, double loss, gp_error *err)
{
    uint32_t share_first, share;
    char text[160];
    gp_status status = gp_trainer_fetch_parameters(trainer, err);

    if (status != GP_OK)
        return status;
    gp_trainer_share(trainer, last->batch, trainer->rank, &share_first, &share);
    gp_diagnose_request request = { .phase = GP_PHASE_TRAIN,
                                    .store = trainer->data,
                                    .sampler = &trainer->sampler,
                                    .augment = &trainer->augment,
                                    .epoch = last->epoch,
                                    .first = last->first - (uint32_t)last->position + share_first,
                                    .count = share,
                                    .position = share_first };

    return gp_fail(err, GP_EDIVERGED,
                   "the loss of step %" PRIu64 " is %s: %s; the weights are those of step %" PRIu64
                   "; lower initial-learn-rate (%g)",
                   trainer->step + 1, isnan(loss) ? "not a number" : "infinite",
                   find_first_bad(trainer, &request, text, sizeof(text)), trainer->step,
                   trainer->options.initial_learn_rate);
}

gp_status gp_trainer_scale(gp_trainer *trainer, uint64_t before, gp_train_record *record, gp_error *err)
{
    record->loss_scale = trainer->loss_scale.scale;
    record->skipped =
        gp_loss_scale_step(&trainer->loss_scale, &trainer->options, trainer->header[GP_SUM_BAD]);
    if (trainer->loss_scale.skips < GP_LOSS_SCALE_SKIPS_MAX)
        return GP_OK;
    return gp_fail(
        err, GP_EDIVERGED,
        "the gradients of %d steps in a row are not finite, down to a loss scale of %g; the weights are "
        "those of step %" PRIu64 "; lower initial-learn-rate (%g), or use --precision bf16",
        GP_LOSS_SCALE_SKIPS_MAX, record->loss_scale, before - (GP_LOSS_SCALE_SKIPS_MAX - 1),
        trainer->options.initial_learn_rate);
}

/* A step of which all is ignored changes nothing. */
static gp_status trainer_commit(gp_trainer *trainer, double learn_rate, gp_error *err)
{
    double weight = trainer->header[GP_SUM_WEIGHT];

    if (weight > 0 && trainer->sharded) {
        gp_fault_point("commit");
        return gp_trainer_shard_commit(trainer, weight, learn_rate, err);
    }
    gp_train_control_stretch(trainer->control);
    gp_fault_point("commit");
    if (weight <= 0) {
        gp_train_control_rest(trainer->control);
        return GP_OK;
    }
    /* before the optimiser, which may clip what it is given */
    gp_statistics_commit(trainer->graph, trainer->parameters, trainer->gradients,
                         trainer->header[HEADER_SAMPLES]);
    gp_optim_step(trainer->optim, trainer->parameters, trainer->gradients, weight, learn_rate);
    gp_train_control_rest(trainer->control);
    return GP_OK;
}

void gp_trainer_count_step(gp_trainer *trainer, const step_part *last, double learn_rate,
                           gp_train_record *record)
{
    double weight = trainer->header[GP_SUM_WEIGHT], loss = trainer->header[GP_SUM_LOSS] / weight;

    trainer->step++;
    if (weight > 0) /* a step of which all is ignored counts, and has no loss */
        trainer->loss = loss;
    trainer->stops = trainer->stops || trainer->header[HEADER_STOP] > 0; /* reduced: all ranks agree */
    trainer->pauses = trainer->pauses || trainer->header[HEADER_PAUSE] > 0;
    record->step = trainer->step;
    record->epoch = last->epoch + 1;
    record->loss = loss;
    record->accuracy = trainer_accuracy(trainer);
    record->rmse = trainer_rmse(trainer);
    record->learn_rate = learn_rate;
    record->seconds = (double)(gp_now_ns() - trainer->begin_ns) * 1e-9;
    atomic_store_explicit(&trainer->control->step, trainer->step, memory_order_relaxed);
    atomic_store_explicit(&trainer->control->epoch, last->epoch + 1, memory_order_relaxed);
}

static gp_status trainer_step(gp_trainer *trainer, cursor *now, cursor *ahead, step_part *last,
                              gp_train_record *record, gp_error *err)
{
    uint64_t wait_ns = gp_comm_get_stats(trainer->comm).wait_ns;
    gp_status status;

    *record = (gp_train_record){ 0 };
    if (trainer->kept)
        return gp_trainer_kept_step(trainer, now, ahead, last, record, err);
    trainer->buckets_done = 0;
    trainer->exchange_ns = 0;
    status = trainer_compute(trainer, now, ahead, last, record, err);
    if (status == GP_OK)
        status = gp_trainer_exchange_header(trainer, record->samples, err);
    if (status != GP_OK)
        return status;

    double weight = trainer->header[GP_SUM_WEIGHT], loss = trainer->header[GP_SUM_LOSS] / weight;

    if (weight > 0 && !isfinite(loss))
        return gp_trainer_diverged(trainer, last, loss, err);
    int64_t commit_ns = gp_now_ns(), exchange_ns = trainer->exchange_ns;
    double learn_rate = gp_trainer_learn_rate(trainer, trainer->step + 1, last->epoch + 1);

    status = gp_trainer_scale(trainer, trainer->step, record, err);
    if (status == GP_OK && record->skipped == 0)
        status = trainer_commit(trainer, learn_rate, err);
    if (status != GP_OK)
        return status;
    commit_ns = gp_now_ns() - commit_ns - (trainer->exchange_ns - exchange_ns);
    gp_trainer_count_step(trainer, last, learn_rate, record);

    gp_plan_times times = trainer->backend_ops->take_times(trainer->plan);

    wait_ns = gp_comm_get_stats(trainer->comm).wait_ns - wait_ns;
    record->forward_ms = (double)times.forward_ns * 1e-6;
    record->backward_ms = (double)times.backward_ns * 1e-6;
    record->commit_ms = (double)commit_ns * 1e-6;
    record->wait_ms = (double)wait_ns * 1e-6;
    record->exchange_ms = (double)(trainer->exchange_ns - (int64_t)wait_ns) * 1e-6;
    if (record->exchange_ms < 0)
        record->exchange_ms = 0;
    return GP_OK;
}

/* ---- validation ---- */

/* Our share of the validation data, cut into calls: one at least, so that a rank without samples writes zeros. */
typedef struct validation_share {
    uint32_t first, count, calls;
} validation_share;

static gp_status validation_request(gp_trainer *trainer, const validation_share *share, uint32_t call_index,
                                    gp_error *err)
{
    uint32_t begin = call_index * trainer->micro_batch;
    uint32_t left = share->count - begin;

    if (call_index >= share->calls)
        return GP_OK;
    return gp_loader_request(trainer->validation_loader, 0, share->first + begin,
                             left < trainer->micro_batch ? left : trainer->micro_batch, err);
}

/* Count the targets of a batch that no metric counts, except those of samples that could not be read: these are reported
 * as skipped. */
static uint64_t batch_excluded(const gp_trainer *trainer, const gp_loader_batch *batch)
{
    const gp_graph *graph = trainer->graph;
    uint64_t excluded = 0;

    for (uint32_t n = 0; n < batch->count; n++)
        if (!gp_store_is_skipped(trainer->validation, batch->first + n))
            excluded += gp_targets_missing(graph->targets, graph->target_count,
                                           (const uint8_t *)batch->targets + n * graph->target_bytes);
    return excluded;
}

static gp_status validation_call(gp_trainer *trainer, bool first, bool last, gp_error *err)
{
    bool exact = trainer->options.reproducible;
    gp_loader_batch *loaded;
    gp_status status = gp_trainer_check_stop(trainer, err);

    if (status == GP_OK)
        status = gp_loader_take(trainer->validation_loader, &loaded, NULL, err);
    if (status != GP_OK)
        return status;
    gp_train_control_stretch(trainer->control);
    gp_fault_point("validation");
    status = trainer->backend_ops->run(trainer->validation_plan,
                                       &(gp_batch){
                                           .samples = loaded->samples,
                                           .targets = loaded->targets,
                                           .count = loaded->count,
                                           .first = first || exact,
                                           .last = last || exact,
                                       },
                                       NULL, NULL, err);
    trainer->excluded += batch_excluded(trainer, loaded);
    gp_loader_release(trainer->validation_loader, loaded);
    if (status == GP_OK && exact) {
        status = trainer->backend_ops->sync(trainer->backend, err);
        gp_trainer_exact_take(trainer, false);
    }
    gp_train_control_rest(trainer->control);
    gp_trainer_progress(trainer);
    return status;
}

/* Remember the weights if they are the best so far; all ranks see the same loss and come to the same end. */
static void trainer_judge(gp_trainer *trainer, double loss)
{
    trainer->no_better++;
    if (!(loss < trainer->best_loss))
        return;
    trainer->best_loss = loss;
    trainer->no_better = 0;
    if (trainer->best != NULL)
        memcpy(trainer->best, trainer->parameters, trainer->graph->blob_count * sizeof(float));
}

static bool trainer_out_of_patience(const gp_trainer *trainer)
{
    return trainer->options.validation_patience > 0 &&
           trainer->no_better >= trainer->options.validation_patience;
}

/* Report a validation loss that is not finite: the training ends, and neither a checkpoint nor a model is made of these
 * weights. All ranks have seen the same loss and call it. */
static gp_status validation_diverged(gp_trainer *trainer, const validation_share *share, double loss,
                                     gp_error *err)
{
    gp_augment fixed = gp_augment_fixed(&trainer->augment, trainer->options.image_size);
    gp_diagnose_request request = { .phase = GP_PHASE_INFER,
                                    .store = trainer->validation,
                                    .sampler = &trainer->validation_sampler,
                                    .augment = &fixed,
                                    .first = share->first,
                                    .count = share->count,
                                    .position = share->first };
    char text[160];

    return gp_fail(err, GP_EDIVERGED,
                   "the validation loss after step %" PRIu64
                   " is %s: %s; no model is written; lower initial-learn-rate (%g)",
                   trainer->step, isnan(loss) ? "not a number" : "infinite",
                   find_first_bad(trainer, &request, text, sizeof(text)),
                   trainer->options.initial_learn_rate);
}

enum { VALIDATING_FIRST_MS = 2000, VALIDATING_EACH_MS = 500 };

/* Report the progress of a validation: after VALIDATING_FIRST_MS, then once per VALIDATING_EACH_MS. The other ranks are
 * assumed to be as far as this one.
 *   calls   calls that this rank has completed
 *   due_ms  time of the next report, from the beginning of the validation */
static void report_progress(const gp_trainer *trainer, const validation_share *share, uint32_t calls,
                            int64_t begin_ns, int64_t *due_ms, const gp_train_sink *sink)
{
    const double seconds = (double)(gp_now_ns() - begin_ns) * 1e-9;
    const uint64_t total = trainer->validation_sampler.count;

    if (sink->validating == NULL || calls >= share->calls || seconds * 1e3 < (double)*due_ms)
        return;
    *due_ms = (int64_t)(seconds * 1e3) + VALIDATING_EACH_MS;
    sink->validating(sink->context, &(gp_train_validating){ .step = trainer->step,
                                                            .done = (uint64_t)calls * trainer->micro_batch *
                                                                    total / share->count,
                                                            .count = total,
                                                            .seconds = seconds });
}

/* Report the last validation. The number of excluded targets comes first, so that the client has it with the metrics. */
static void report_judged(const gp_trainer *trainer, const gp_train_sink *sink)
{
    const gp_train_validating complete = { .step = trainer->judged.step,
                                           .done = trainer->judged.count,
                                           .count = trainer->judged.count,
                                           .excluded = trainer->excluded };

    if (trainer->excluded > 0 && sink->validating != NULL)
        sink->validating(sink->context, &complete);
    sink->validation(sink->context, &trainer->judged);
}

/* Compute the metrics of the validation data, each sample once over all ranks. */
static gp_status trainer_validate(gp_trainer *trainer, uint32_t epoch, const gp_train_sink *sink,
                                  gp_error *err)
{
    uint32_t total = trainer->validation_sampler.count;
    int64_t begin_ns = gp_now_ns(), due_ms = VALIDATING_FIRST_MS;
    validation_share share;
    gp_status status = gp_trainer_fetch_parameters(trainer, err);

    gp_trainer_share(trainer, total, trainer->rank, &share.first, &share.count);
    share.calls = share.count == 0 ? 1 : (share.count + trainer->micro_batch - 1) / trainer->micro_batch;
    trainer->excluded = 0;
    if (trainer->options.reproducible)
        gp_trainer_exact_begin(trainer, false);
    for (uint32_t i = 0; i < LOADER_DEPTH && status == GP_OK; i++)
        status = validation_request(trainer, &share, i, err);
    for (uint32_t i = 0; i < share.calls && status == GP_OK; i++) {
        status = validation_call(trainer, i == 0, i + 1 == share.calls, err);
        report_progress(trainer, &share, i + 1, begin_ns, &due_ms, sink);
        if (status == GP_OK)
            status = validation_request(trainer, &share, i + LOADER_DEPTH, err);
    }
    if (status == GP_OK)
        status = trainer->backend_ops->sync(trainer->backend, err);
    if (status == GP_OK)
        status = gp_trainer_exchange_header(trainer, trainer->excluded, err);
    if (status != GP_OK)
        return status;
    trainer->excluded = (uint64_t)trainer->header[HEADER_SAMPLES];
    double weight = trainer->header[GP_SUM_WEIGHT], loss = trainer->header[GP_SUM_LOSS] / weight;

    if (weight > 0 && !isfinite(loss)) /* a weight of 0: no sample had a target */
        return validation_diverged(trainer, &share, loss, err);
    trainer_judge(trainer, loss);
    trainer->judged = (gp_train_validation){ .step = trainer->step,
                                             .epoch = epoch,
                                             .loss = loss,
                                             .accuracy = trainer_accuracy(trainer),
                                             .rmse = trainer_rmse(trainer),
                                             .count = total,
                                             .seconds = (double)(gp_now_ns() - trainer->begin_ns) * 1e-9 };
    report_judged(trainer, sink);
    return GP_OK;
}

static bool validation_due(const gp_trainer *trainer, const step_part *last, uint64_t step, bool ends)
{
    int64_t every = trainer->options.validation_frequency;

    if (trainer->validation == NULL)
        return false;
    return ends || (every == 0 ? last->last_step : step % (uint64_t)every == 0);
}

bool gp_trainer_owes_after(const gp_trainer *trainer, const step_part *last)
{
    bool ends = last->last_step && last->epoch + 1 >= trainer->options.max_epochs;

    return validation_due(trainer, last, trainer->step, ends);
}

/* ---- checkpoints ---- */

static void trainer_tell_saver(gp_trainer *trainer, const gp_train_sink *sink)
{
    char text[480];
    bool failed;

    if (gp_saver_news(trainer->saver, text, &failed))
        sink->note(sink->context, text, failed);
}

static bool checkpoint_due(const gp_trainer *trainer, const step_part *last, uint64_t step)
{
    uint64_t every = (uint64_t)trainer->options.checkpoint_frequency;

    if (trainer->options.checkpoint_frequency_unit == GP_PERIOD_ITERATION)
        return step % every == 0;
    return last->last_step && (last->epoch + 1) % every == 0;
}

bool gp_trainer_due_after(const gp_trainer *trainer, const step_part *last, uint64_t step)
{
    return validation_due(trainer, last, step, false) ||
           (trainer->options.checkpoint_path[0] != '\0' && checkpoint_due(trainer, last, step));
}

static bool weights_finite(const gp_trainer *trainer)
{
    double sum = 0; /* of zeros, or not a number */

    for (size_t i = 0; i < trainer->graph->blob_count; i++)
        sum += 0.0f * trainer->parameters[i];
    return sum == 0;
}

/* One that is due while the disk is still busy with the one before is written after the next step. */
static void trainer_save(gp_trainer *trainer, const step_part *last, bool ends, const gp_train_sink *sink)
{
    gp_checkpoint now;
    gp_error err;

    trainer_tell_saver(trainer, sink);
    if (last != NULL && checkpoint_due(trainer, last, trainer->step))
        trainer->owes_checkpoint = true;
    if ((!trainer->owes_checkpoint && !ends) || trainer->ahead_count > 0) /* the device is further than we */
        return;
    if (gp_trainer_fetch(trainer, &err) != GP_OK) {
        sink->note(sink->context, err.message, true);
        return;
    }
    if (!weights_finite(trainer)) { /* the next step will say so; the checkpoint before stays the newest */
        sink->note(sink->context, "weights are not finite: no checkpoint is written", true);
        return;
    }
    if (ends)
        gp_saver_wait(trainer->saver);
    gp_trainer_checkpoint(trainer, &now);
    if (gp_saver_save(trainer->saver, &now))
        trainer->owes_checkpoint = false;
    if (ends)
        gp_saver_wait(trainer->saver);
    trainer_tell_saver(trainer, sink);
}

/* ---- the run ---- */

/* The kept weights get the statistics of all data, and are validated once more with them. */
static gp_status trainer_finish_statistics(gp_trainer *trainer, uint32_t epoch, const gp_train_sink *sink,
                                           gp_error *err)
{
    gp_status status = gp_trainer_population(trainer, err);

    if (status == GP_OK && trainer->validation != NULL)
        status = trainer_validate(trainer, epoch, sink, err);
    return status;
}

/* Of the last step, from 1. */
static uint32_t trainer_epoch(const gp_trainer *trainer)
{
    return trainer->epoch + (trainer->first > 0);
}

/* What follows a step before the next: a validation that is due, the end by patience, a checkpoint.  last: NULL where the
 * step was taken in another group. */
static gp_status trainer_after_step(gp_trainer *trainer, const step_part *last, bool *ends,
                                    const gp_train_sink *sink, gp_train_done *done, gp_error *err)
{
    bool judged = trainer->owes_validation || (last == NULL && trainer->again);

    if (trainer->owes_validation) {
        gp_status status = trainer_validate(trainer, trainer_epoch(trainer), sink, err);

        if (status != GP_OK)
            return status;
        trainer->owes_validation = false;
    } else if (last == NULL && trainer->again && trainer->judged.step != 0) {
        report_judged(trainer,
                      sink); /* rank 0 may have failed before it reported; the client drops a repetition */
    }
    if (judged && !*ends && trainer_out_of_patience(trainer)) {
        done->stop_reason = GP_STOP_PATIENCE;
        *ends = true;
    }
    /* Without a step and not in a new group, a complete run was resumed: its checkpoint exists. */
    if (trainer->saver != NULL && (last != NULL || (*ends && trainer->again)))
        trainer_save(trainer, last, *ends, sink);
    return GP_OK;
}

static gp_status trainer_steps(gp_trainer *trainer, const gp_train_sink *sink, gp_train_done *done,
                               gp_error *err)
{
    cursor now = { .epoch = trainer->epoch, .first = trainer->first }, ahead = now;
    gp_status status = GP_OK;
    bool ends = trainer->epoch >= trainer->options.max_epochs; /* in another group */
    bool pauses = false;

    for (uint32_t i = 0; i < gp_loader_depth_max(trainer->loader) && status == GP_OK && !trainer->resident;
         i++)
        status = gp_trainer_request(trainer, &ahead, err);
    trainer->begin_ns = gp_now_ns() - trainer->elapsed_ns;
    done->epoch = trainer_epoch(trainer);
    if (status == GP_OK)
        status = trainer_after_step(trainer, NULL, &ends, sink, done, err);
    while (status == GP_OK && !ends && !pauses) {
        gp_train_record record;
        step_part last = { 0 };

        status = trainer_step(trainer, &now, &ahead, &last, &record, err);
        if (status != GP_OK)
            break;
        trainer->epoch = now.epoch;
        trainer->first = now.first;
        /* What the device has been given is heard of first. */
        bool stops = trainer->stops && trainer->ahead_count == 0;

        pauses = trainer->pauses && trainer->ahead_count == 0;
        ends = stops || now.epoch >= trainer->options.max_epochs;
        trainer->owes_validation = validation_due(trainer, &last, trainer->step, ends);
        if (stops)
            done->stop_reason = GP_STOP_STOPPED;
        done->epoch = last.epoch + 1;
        sink->record(sink->context, &record);
        status = trainer_after_step(trainer, &last, &ends, sink, done, err);
    }
    if (status == GP_OK && pauses && !ends) { /* all that was due after the step is done: nothing is owed */
        done->stop_reason = GP_STOP_PAUSED;
        return GP_OK;
    }
    if (status == GP_OK && trainer->options.batch_norm_statistics == GP_STATISTICS_POPULATION)
        status = trainer_finish_statistics(trainer, done->epoch, sink, err);
    return status;
}

/* The images that a store passed over, after those that an earlier group told of: how many, and the first of them by name, as long as there is room. */
static void done_add_skipped(gp_train_done *done, const gp_store *store, uint64_t told)
{
    uint32_t index[GP_SKIPPED_TOLD], count = gp_store_skipped_first(store, index);
    size_t bytes = strlen(done->skipped_names);

    done->skipped += gp_store_skipped(store) - told;
    for (uint64_t i = told; i < count; i++) {
        char name[256];
        size_t length = strlen(gp_store_name(store, index[i], name, sizeof(name)));

        if (bytes + length + 2 > sizeof(done->skipped_names))
            return;
        bytes += (size_t)sprintf(done->skipped_names + bytes, "%s\n", name);
    }
}

/* What was left out of the data before the first step (on-bad skip), which all ranks see alike. */
static void trainer_tell_left_out(const gp_trainer *trainer, const gp_store *store, const gp_train_sink *sink)
{
    char text[400];

    if (store != NULL && trainer->rank == 0 && gp_store_left_out(store, text, sizeof(text))[0] != '\0')
        sink->note(sink->context, text, false);
}

enum { DECODE_TOLD_NS = 100000000 }; /* shorter decoding is not reported */

/* Report how long this rank decoded the samples of a store, if it did, and where the result is cached. */
static void trainer_tell_decoded(const gp_store *store, const char *part, const gp_train_sink *sink)
{
    const gp_store_info *info = store == NULL ? NULL : gp_store_get_info(store);
    char directory[PATH_MAX], text[400];

    if (info == NULL || info->decode_ns < DECODE_TOLD_NS)
        return;
    if (gp_cache_path(directory, sizeof(directory), "decoded", NULL, NULL) != GP_OK)
        snprintf(directory, sizeof(directory), "the cache: neither XDG_CACHE_HOME nor HOME is set");
    snprintf(text, sizeof(text), "decoded the %s data of %.100s in %.2f s; %s %.200s", part, info->source,
             (double)info->decode_ns * 1e-9,
             info->decode_cached ? "cached for later runs in" : "it could not be cached in", directory);
    sink->note(sink->context, text, false);
}

gp_status gp_trainer_run(gp_trainer *trainer, const gp_train_sink *sink, gp_train_done *done)
{
    gp_error err = { 0 };

    *done = (gp_train_done){ .stop_reason = GP_STOP_COMPLETED };
    if (trainer->damaged[0] != '\0' && trainer->rank == 0) {
        char text[320];

        snprintf(text, sizeof(text), "%s; the checkpoint before it is used", trainer->damaged);
        sink->note(sink->context, text, true);
    }
    if (trainer->resumed[0] != '\0' && trainer->rank == 0)
        sink->note(sink->context, trainer->resumed, false);
    if (trainer->network[0] != '\0' && trainer->rank == 0 && !trainer->again)
        sink->note(sink->context, trainer->network, trainer->network_slow);
    if (trainer->planned[0] != '\0' && trainer->rank == 0 && !trainer->again)
        sink->note(sink->context, trainer->planned, false);
    trainer_tell_left_out(trainer, trainer->data, sink);
    trainer_tell_left_out(trainer, trainer->validation, sink);
    if (!trainer->again) {
        trainer_tell_decoded(trainer->data, "training", sink);
        trainer_tell_decoded(trainer->validation, "validation", sink);
    }
    gp_error lost;
    gp_status status = trainer_steps(trainer, sink, done, &err);

    gp_saver_free(trainer->saver); /* its copy of the state, before results are copied */
    trainer->saver = NULL;
    /* A failed step left the weights of the one before: they are still worth having. */
    if (status != GP_OK && trainer->kept)
        gp_trainer_kept_halt(trainer, sink, done, &err);
    if (gp_trainer_fetch(trainer, &lost) != GP_OK && status == GP_OK) {
        status = lost.code;
        err = lost;
    }
    if (gp_log_tells(GP_LOG_DEBUG))
        gp_log(GP_LOG_DEBUG, "weights",
               "rank %" PRIu32 " of %" PRIu32 " ends at step %" PRIu64 " with weights %08" PRIx32,
               trainer->rank, trainer->world, trainer->step,
               gp_crc32c(0, trainer->parameters, trainer->graph->blob_count * sizeof(float)));
    if (status != GP_OK)
        done->stop_reason = status == GP_ECANCELED ? GP_STOP_STOPPED : GP_STOP_FAILED;
    done->status = status;
    snprintf(done->message, sizeof(done->message), "%s", err.message);
    done->step = trainer->step;
    done->loss = trainer->loss;
    done_add_skipped(done, trainer->data, trainer->skipped[0]);
    if (trainer->validation != NULL)
        done_add_skipped(done, trainer->validation, trainer->skipped[1]);
    return status;
}
