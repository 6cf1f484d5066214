#include "worker/train/schedule.h"

#include <inttypes.h>
#include <string.h>

#include "common/base/memory/alloc.h"
#include "common/data/store/sampler.h"
#include "worker/train/fixed_point.h"

/* Compute any rank's share. */
static void share_of(const gp_schedule *schedule, uint32_t total, uint32_t rank, uint32_t *first,
                     uint32_t *count)
{
    uint32_t block = schedule->options->reproducible ? GP_REPRODUCIBLE_BLOCK : 1;
    uint32_t blocks = (total + block - 1) / block;

    if (schedule->loads == NULL)
        gp_split(blocks, schedule->world, rank, first, count);
    else
        gp_split_loads(blocks, schedule->loads, schedule->world, rank, first, count);
    *first = *first * block < total ? *first * block : total;
    *count = *count * block < total - *first ? *count * block : total - *first;
}

void gp_schedule_share(const gp_schedule *schedule, uint32_t total, uint32_t *first, uint32_t *count)
{
    share_of(schedule, total, schedule->rank, first, count);
}

/* Reject options that cannot give bitwise identical results for every worker count. */
static gp_status check_reproducible(gp_schedule *schedule, const gp_graph *graph, gp_error *err)
{
    const gp_train_options *options = schedule->options;

    if (options->precision == GP_PRECISION_F16)
        return gp_fail(err, GP_EINVAL,
                       "reproducible does not support fp16, because fp16 skips steps depending on gradients; "
                       "use f32, tf32 or bf16");
    if (graph->couples_samples)
        return gp_fail(err, GP_EINVAL,
                       "network %s couples the samples of a call (batch norm), so results depend on the "
                       "number of workers; reproducible needs other layers, such as group norm",
                       graph->spec->name);
    if (options->micro_batch_size != 0)
        return gp_fail(
            err, GP_EINVAL,
            "reproducible computes blocks of %d samples; leave micro-batch-size at 0 (it is %" PRId64 ")",
            GP_REPRODUCIBLE_BLOCK, options->micro_batch_size);
    if ((schedule->batch + GP_REPRODUCIBLE_BLOCK - 1) / GP_REPRODUCIBLE_BLOCK > GP_FIXED_POINT_TERMS)
        return gp_fail(
            err, GP_ELIMIT,
            "reproducible supports at most %d blocks of %d samples, but mini-batch-size is %" PRIu32,
            GP_FIXED_POINT_TERMS, GP_REPRODUCIBLE_BLOCK, schedule->batch);
    schedule->micro_batch = GP_REPRODUCIBLE_BLOCK;
    return GP_OK;
}

gp_status gp_schedule_init(gp_schedule *schedule, const gp_train_options *options, const gp_graph *graph,
                           const gp_store_info *data, bool validates, gp_error *err)
{
    uint32_t largest = 1, first, count; /* samples in the largest share of a mini-batch */
    double loads[GP_LOADS_MAX];
    bool given;
    gp_status status;

    schedule->options = options;
    schedule->validates = validates;
    schedule->samples = data->count;
    status = gp_train_options_loads(options, schedule->world, loads, &given, err);
    if (status != GP_OK)
        return status;
    if (given) {
        schedule->loads = gp_calloc(schedule->world, sizeof(*loads));
        if (schedule->loads == NULL)
            return gp_fail(err, GP_ENOMEM, "no memory for the loads of %" PRIu32 " workers", schedule->world);
        memcpy(schedule->loads, loads, schedule->world * sizeof(*loads));
    }
    schedule->batch = (uint32_t)options->mini_batch_size;
    status = gp_train_options_check_samples(options, schedule->samples, data->source, err);
    if (status != GP_OK)
        return status;
    /* Shares by load are rounded: the share of a smaller last mini-batch can be larger. */
    for (uint32_t rank = 0; rank < schedule->world; rank++)
        for (int last = 0; last < 2; last++) {
            share_of(schedule, last ? schedule->samples % schedule->batch : schedule->batch, rank, &first,
                     &count);
            largest = count > largest ? count : largest;
        }
    schedule->micro_batch = options->micro_batch_size > 0 && options->micro_batch_size < largest
                                ? (uint32_t)options->micro_batch_size
                                : largest;
    if (graph->couples_samples && schedule->micro_batch < largest)
        return gp_fail(err, GP_EINVAL,
                       "micro-batch-size is %" PRIu32
                       ", but network %s couples the samples of a call (batch norm); leave it at 0",
                       schedule->micro_batch, graph->spec->name);
    return options->reproducible ? check_reproducible(schedule, graph, err) : GP_OK;
}

void gp_schedule_deinit(gp_schedule *schedule)
{
    gp_free(schedule->loads);
}

uint32_t gp_schedule_batch(const gp_schedule *schedule, uint32_t first)
{
    uint32_t left = schedule->samples - first;

    return left < schedule->batch ? left : schedule->batch;
}

bool gp_schedule_next(const gp_schedule *schedule, gp_train_cursor *at, gp_train_call *out)
{
    uint32_t share_first, share;

    if (at->epoch >= schedule->options->max_epochs)
        return false;
    out->batch = gp_schedule_batch(schedule, at->first);
    gp_schedule_share(schedule, out->batch, &share_first, &share);
    out->epoch = at->epoch;
    out->position = share_first + at->done;
    out->first = at->first + (uint32_t)out->position;
    out->count = share - at->done < schedule->micro_batch ? share - at->done : schedule->micro_batch;
    out->first_call = at->done == 0;
    at->done += out->count;
    out->last_call = at->done == share;
    out->last_step = at->first + out->batch == schedule->samples;
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

uint32_t gp_schedule_steps_per_epoch(const gp_schedule *schedule)
{
    return (schedule->samples + schedule->batch - 1) / schedule->batch;
}

bool gp_schedule_validates(const gp_schedule *schedule, const gp_train_call *call, uint64_t step)
{
    int64_t every = schedule->options->validation_frequency;

    bool last = call->last_step && call->epoch + 1 >= schedule->options->max_epochs;

    if (!schedule->validates)
        return false;
    return last || (every == 0 ? call->last_step : step % (uint64_t)every == 0);
}

bool gp_schedule_saves(const gp_schedule *schedule, const gp_train_call *call, uint64_t step)
{
    const gp_train_options *options = schedule->options;
    uint64_t every = (uint64_t)options->checkpoint_frequency;

    if (options->checkpoint_path[0] == '\0')
        return false;
    if (options->checkpoint_frequency_unit == GP_PERIOD_ITERATION)
        return step % every == 0;
    return call->last_step && (call->epoch + 1) % every == 0;
}

double gp_schedule_learn_rate(const gp_schedule *schedule, uint64_t step, uint32_t epoch)
{
    gp_train_place place = { .step = step,
                             .epoch = epoch,
                             .steps = (uint64_t)gp_schedule_steps_per_epoch(schedule) *
                                      (uint64_t)schedule->options->max_epochs };

    return gp_train_learn_rate(schedule->options, &place);
}
