/* task_data.c -- data for custom loops: the trainer's mini-batch order, and reads at any position.
 *
 * `ahead` (prefetch position) precedes `now` by at most the loader slot count minus the one that
 * the caller uses. */
#include <inttypes.h>
#include <string.h>

#include "common/base/memory/alloc.h"
#include "worker/task/model_state.h"

enum { DEPTH = 3, EPOCHS_MAX = 1 << 24 };

static void data_free(gp_owned *owned)
{
    gp_data *data = (gp_data *)(void *)owned;

    gp_loader_free(data->loader);
    gp_store_close(data->store);
    gp_free(data->index);
    gp_free(data->samples);
    gp_free(data->targets);
    gp_free(data);
}

void gp_data_close(gp_data *data)
{
    if (data == NULL)
        return;
    gp_owned_leave(&data->owned);
    data_free(&data->owned);
}

static gp_status data_build(gp_data *data, const gp_data_options *options, gp_error *err)
{
    gp_shuffle shuffle = options->test ? GP_SHUFFLE_NEVER : GP_SHUFFLE_EVERY_EPOCH;
    gp_train_options parsed = { .shuffle = shuffle };
    gp_status status = GP_OK;

    if (options->source == NULL || options->epochs > EPOCHS_MAX)
        return gp_fail(err, GP_EINVAL, "the data have no source, or more than %d epochs", EPOCHS_MAX);
    if (options->test && options->shuffle != NULL && strcmp(options->shuffle, "never") != 0)
        return gp_fail(err, GP_EINVAL, "test data cannot be shuffled; omit shuffle \"%.40s\"",
                       options->shuffle);
    if (options->shuffle != NULL) {
        status =
            gp_params_set(gp_params_find(gp_train_options_table, "shuffle"), &parsed, options->shuffle, err);
        shuffle = (gp_shuffle)parsed.shuffle;
    }
    if (status == GP_OK)
        status =
            gp_store_open(&data->store, options->source, options->test ? GP_DATA_TEST : GP_DATA_TRAIN, err);
    if (status != GP_OK)
        return status;
    const gp_store_info *info = gp_store_get_info(data->store);

    if (options->batch > info->count || options->read_max > info->count)
        return gp_fail(err, GP_EINVAL, "invalid batch of %" PRIu32 " samples: %s has %" PRIu32,
                       options->batch > info->count ? options->batch : options->read_max, info->source,
                       info->count);
    gp_sampler_init(&data->sampler, info->count, shuffle, options->seed);
    data->batch = options->batch;
    data->epochs = options->epochs == 0 ? 1 : options->epochs;
    data->share_max = (options->batch + data->world - 1) / data->world;
    data->read_max = options->read_max != 0 ? options->read_max : options->batch == 0 ? 1 : options->batch;
    data->index = gp_calloc(data->read_max, sizeof(*data->index));
    data->samples = gp_aligned_calloc(64, data->read_max * info->sample_bytes);
    data->targets = gp_aligned_calloc(64, data->read_max * info->target_bytes);
    if (data->index == NULL || data->samples == NULL || data->targets == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for %" PRIu32 " samples of %zu bytes", data->read_max,
                       info->sample_bytes);
    return data->batch == 0
               ? GP_OK
               : gp_loader_new(&data->loader, data->store, &data->sampler,
                               &(gp_loader_options){ .depth = DEPTH, .capacity = data->share_max }, err);
}

gp_status gp_data_open(gp_data **out, gp_task *task, const gp_data_options *options, gp_error *err)
{
    gp_data *data = gp_calloc(1, sizeof(*data));

    if (data == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for data");
    data->owned.close = data_free;
    data->tasks = task->tasks;
    data->rank = task->group == NULL ? 0 : task->group->rank;
    data->world = task->group == NULL ? 1 : task->group->world;
    gp_status status = data_build(data, options, err);

    if (status != GP_OK) {
        data_free(&data->owned);
        return status;
    }
    gp_task_own(task, &data->owned);
    *out = data;
    return GP_OK;
}

void gp_data_get_info(const gp_data *data, gp_data_info *out)
{
    const gp_store_info *info = gp_store_get_info(data->store);

    *out = (gp_data_info){ .count = info->count,
                           .channels = info->channels,
                           .height = info->height,
                           .width = info->width,
                           .bytes = info->dtype == GP_U8,
                           .sample_bytes = info->sample_bytes,
                           .target_bytes = info->target_bytes,
                           .classes = info->class_count,
                           .class_names = info->class_names };
}

/* ---- iteration ---- */

static uint32_t batch_at(const gp_data *data, const struct data_place *at)
{
    uint32_t left = data->sampler.count - at->first;

    return left < data->batch ? left : data->batch;
}

static void place_advance(const gp_data *data, struct data_place *at)
{
    at->first += batch_at(data, at);
    at->step++;
    if (at->first < data->sampler.count)
        return;
    at->first = at->step = 0;
    at->epoch++;
}

gp_status gp_data_next(gp_data *data, gp_samples *out, gp_error *err)
{
    struct data_place *now = &data->now;
    gp_status status = GP_OK;
    uint32_t first, count;

    if (data->loader == NULL)
        return gp_fail(err, GP_ESTATE, "the data were opened without a batch size; use gp_data_read");
    if (gp_tasks_canceled(data->tasks))
        return gp_fail(err, GP_ECANCELED, "the task was canceled in epoch %" PRIu32 " of %" PRIu32,
                       now->epoch + 1, data->epochs);
    if (data->loaded != NULL)
        gp_loader_release(data->loader, data->loaded);
    data->loaded = NULL;
    if (now->epoch >= data->epochs) {
        *out = (gp_samples){ .ended = true };
        return GP_OK;
    }
    bool begins = data->ahead.epoch == 0 && data->ahead.first == 0;

    for (int i = 0; i < (begins ? DEPTH : 1) && status == GP_OK && data->ahead.epoch < data->epochs; i++) {
        gp_split(batch_at(data, &data->ahead), data->world, data->rank, &first, &count);
        status = gp_loader_request(data->loader, data->ahead.epoch, data->ahead.first + first, count, err);
        if (status == GP_OK)
            place_advance(data, &data->ahead);
    }
    if (status == GP_OK)
        status = gp_loader_take(data->loader, &data->loaded, NULL, err);
    if (status != GP_OK)
        return status;
    gp_split(batch_at(data, now), data->world, data->rank, &first, &count);
    *out = (gp_samples){ .samples = data->loaded->samples,
                         .targets = data->loaded->targets,
                         .count = count,
                         .position = first,
                         .batch = batch_at(data, now),
                         .epoch = now->epoch + 1,
                         .step = now->step + 1,
                         .last = now->first + batch_at(data, now) == data->sampler.count };
    place_advance(data, now);
    return GP_OK;
}

gp_status gp_data_read(gp_data *data, uint32_t epoch, uint32_t first, uint32_t count, gp_samples *out,
                       gp_error *err)
{
    if (gp_tasks_canceled(data->tasks))
        return gp_fail(err, GP_ECANCELED, "the task was canceled before it read samples");
    if (epoch == 0 || count > data->read_max || first > data->sampler.count ||
        count > data->sampler.count - first)
        return gp_fail(err, GP_EINVAL,
                       "cannot read %" PRIu32 " samples from position %" PRIu32 " of epoch %" PRIu32
                       ": there are %" PRIu32 ", epochs start at 1, and read_max is %" PRIu32,
                       count, first, epoch, data->sampler.count, data->read_max);
    gp_sampler_get(&data->sampler, epoch - 1, first, count, data->index);
    gp_status status = gp_store_read(data->store, data->index, count, data->samples, data->targets, err);

    if (status == GP_OK)
        *out = (gp_samples){ .samples = data->samples, .targets = data->targets, .count = count };
    return status;
}
