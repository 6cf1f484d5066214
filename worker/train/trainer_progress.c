#include "worker/train/trainer_progress.h"

#include <inttypes.h>
#include <math.h>

#include "common/base/clock.h"

void gp_train_progress_init(gp_train_progress *progress, const gp_train_options *options)
{
    *progress = (gp_train_progress){ .best_loss = INFINITY,
                                     .best_accuracy = NAN,
                                     .best_rmse = NAN,
                                     .loss_scale = gp_loss_scale_begin(options) };
}

gp_train_progress gp_train_progress_carry_over(const gp_train_progress *progress)
{
    gp_train_progress next = *progress;

    if (progress->begin_ns != 0)
        next.elapsed_ns = gp_now_ns() - progress->begin_ns;
    next.begin_ns = 0;
    next.ending = GP_ENDING_NONE;
    next.loss_scale.skips = 0;
    return next;
}

void gp_train_progress_start(gp_train_progress *progress)
{
    progress->begin_ns = gp_now_ns() - progress->elapsed_ns;
}

double gp_train_progress_seconds(const gp_train_progress *progress)
{
    return (double)(gp_now_ns() - progress->begin_ns) * 1e-9;
}

uint32_t gp_train_progress_epoch(const gp_train_progress *progress)
{
    return progress->epoch + (progress->first > 0);
}

void gp_train_progress_count(gp_train_progress *progress, const gp_train_call *call,
                             const gp_step_result *result, double learn_rate, gp_train_control *control,
                             gp_train_record *record)
{
    progress->step++;
    if (result->weight > 0) /* a step without any target has no loss, but still counts */
        progress->loss = result->loss;
    if (result->ending > progress->ending)
        progress->ending = result->ending;
    record->step = progress->step;
    record->epoch = call->epoch + 1;
    record->loss = result->loss;
    record->accuracy = result->accuracy;
    record->rmse = result->rmse;
    record->learn_rate = learn_rate;
    record->seconds = progress->seconds = gp_train_progress_seconds(progress);
    atomic_store_explicit(&control->step, progress->step, memory_order_relaxed);
    atomic_store_explicit(&control->epoch, record->epoch, memory_order_relaxed);
}

gp_status gp_train_progress_scale(gp_train_progress *progress, const gp_train_options *options, double bad,
                                  uint64_t before, gp_train_record *record, gp_error *err)
{
    gp_loss_scale *scale = &progress->loss_scale;

    record->loss_scale = scale->scale;
    record->skipped = gp_loss_scale_step(scale, options, bad);
    if (scale->skips < GP_LOSS_SCALE_SKIPS_MAX)
        return GP_OK;
    return gp_fail(err, GP_EDIVERGED,
                   "non-finite gradients in %d consecutive steps, down to a loss scale of %g; the weights "
                   "are those of step %" PRIu64 "; lower initial-learn-rate (%g), or use --precision bf16",
                   GP_LOSS_SCALE_SKIPS_MAX, record->loss_scale, before - (GP_LOSS_SCALE_SKIPS_MAX - 1),
                   options->initial_learn_rate);
}

bool gp_train_progress_improved(gp_train_progress *progress, const gp_step_result *result)
{
    bool improved = result->loss < progress->best_loss;

    progress->validations_since_best = improved ? 0 : progress->validations_since_best + 1;
    if (improved) {
        progress->best_loss = result->loss;
        progress->best_accuracy = result->accuracy;
        progress->best_rmse = result->rmse;
    }
    return improved;
}

bool gp_train_progress_stops_early(const gp_train_progress *progress, const gp_train_options *options)
{
    return options->validation_patience > 0 &&
           progress->validations_since_best >= options->validation_patience;
}
