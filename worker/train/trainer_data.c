/* trainer_data.c -- open, share, compare and report the training data. */
#include "worker/train/trainer_data.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/memory/alloc.h"
#include "common/base/system/cached.h"
#include "common/base/text/json.h"
#include "common/data/store/class_match.h"
#include "common/model/graph/normalization.h"

/* Check that the network accepts the samples and targets of a store. */
static gp_status store_check(const gp_store_info *info, const gp_graph *graph, gp_error *err)
{
    const gp_shape sample = gp_shape3(info->channels, info->height, info->width);
    gp_status status = gp_netspec_check_samples(graph->spec, &sample, info->dtype, info->source, err);

    return status == GP_OK
               ? gp_graph_check_targets(graph, info->targets, info->target_count, info->source, err)
               : status;
}

/* Open the stores. begin->validation_data "": none; "=": the training source's test split. */
static gp_status stores_open(gp_train_data *data, const gp_trainer_setup *setup,
                             const gp_train_options *options, const gp_graph *graph, gp_error *err)
{
    const gp_train_begin *begin = setup->begin;
    bool same = strcmp(begin->validation_data, "=") == 0;
    gp_store_options images = { 0 };
    gp_store_info validation;
    gp_class_list names;
    gp_augment fixed;
    gp_status (*open)(gp_store **, const char *, gp_data_role, const gp_store_options *, gp_error *) =
        setup->open == NULL ? gp_store_open_with : setup->open;
    gp_status status = gp_augment_parse(&data->augment, options->augment, err);

    if (status == GP_OK)
        status = gp_augment_images(&images, &data->augment, options->image_size, &graph->spec->input, err);
    if (status == GP_OK)
        status = gp_class_list_read(&names, setup->classes, setup->classes_bytes, err);
    if (status == GP_OK) {
        if (graph->spec->resized)
            memset(images.exact, 0, sizeof(images.exact));
        images.on_error = (gp_on_error)options->on_error;
        images.cache_bytes = gp_store_cache_bytes(options->image_cache);
        images.class_names = names.names;
        images.class_count = names.count;
        if (data->training.store == NULL)
            status = open(&data->training.store, begin->data, GP_DATA_TRAIN, &images, err);
        gp_class_list_deinit(&names);
    }
    if (status == GP_OK)
        status = gp_augment_shape(&data->shape, &data->augment, gp_store_get_info(data->training.store), err);
    if (status == GP_OK)
        status = store_check(&data->shape, graph, err);
    if (status != GP_OK || begin->validation_data[0] == '\0')
        return status;
    images.class_names = gp_store_get_info(data->training.store)->class_names;
    images.class_count = gp_store_get_info(data->training.store)->class_count;
    fixed = gp_augment_fixed(&data->augment, options->image_size);
    if (data->validation.store == NULL)
        status = open(&data->validation.store, same ? begin->data : begin->validation_data,
                      same ? GP_DATA_TEST : GP_DATA_GIVEN, &images, err);
    if (status == GP_OK)
        status = gp_augment_shape(&validation, &fixed, gp_store_get_info(data->validation.store), err);
    return status == GP_OK ? store_check(&validation, graph, err) : status;
}

gp_status gp_train_data_open(gp_train_data *data, const gp_trainer_setup *setup,
                             const gp_train_options *options, const gp_graph *graph, gp_error *err)
{
    gp_status status = stores_open(data, setup, options, graph, err);
    char host[HOST_NAME_MAX + 1] = "";
    const gp_store_info *info;
    gp_json_writer writer;
    gp_buffer buffer;
    size_t bytes;

    /* Name the host: a file that is missing here may exist on another host. */
    if (status != GP_OK && setup->group->world > 1 && err != NULL && gethostname(host, sizeof(host) - 1) == 0)
        gp_error_prefix(err, "on %s", host);
    if (status != GP_OK)
        return status;
    /* Format the training data's class names as a JSON array. */
    info = gp_store_get_info(data->training.store);
    gp_buffer_init(&buffer, GP_JSON_BYTES_MAX);
    gp_json_writer_init(&writer, &buffer, false);
    gp_json_begin_array(&writer, NULL);
    for (uint32_t i = 0; i < info->class_count; i++)
        gp_json_put_text(&writer, NULL, info->class_names[i]);
    gp_json_end_array(&writer);
    status = gp_json_writer_finish(&writer, err);
    if (status == GP_OK)
        data->classes = (char *)gp_buffer_take(&buffer, &bytes);
    gp_buffer_deinit(&buffer);
    return status;
}

void gp_train_data_close(gp_train_data *data)
{
    gp_loader_free(data->training.loader);
    gp_loader_free(data->validation.loader);
    gp_store_close(data->training.store);
    gp_store_close(data->validation.store);
    gp_free(data->classes);
}

gp_status gp_train_data_start(gp_train_data *data, const gp_train_options *options, uint32_t micro_batch,
                              gp_error *err)
{
    gp_train_source *training = &data->training, *validation = &data->validation;
    uint64_t seed = (uint64_t)options->seed;
    gp_augment fixed = gp_augment_fixed(&data->augment, options->image_size);
    gp_loader_options with = { .depth = GP_TRAIN_PREFETCH,
                               .depth_max = GP_LOADER_DEPTH_MAX,
                               .bytes_max = GP_TRAIN_PREFETCH_BYTES_MAX,
                               .capacity = micro_batch,
                               .augment = &data->augment,
                               .seed = seed };
    gp_status status;

    gp_sampler_init(&training->sampler, data->shape.count, (gp_shuffle)options->shuffle, seed);
    status = gp_loader_new(&training->loader, training->store, &training->sampler, &with, err);
    if (status != GP_OK || validation->store == NULL)
        return status;
    gp_sampler_init(&validation->sampler, gp_store_get_info(validation->store)->count, GP_SHUFFLE_NEVER,
                    seed);
    with.augment = &fixed;
    with.depth_max = 0;
    return gp_loader_new(&validation->loader, validation->store, &validation->sampler, &with, err);
}

gp_status gp_train_data_request(gp_train_data *data, const gp_schedule *schedule, gp_train_cursor *at,
                                gp_error *err)
{
    gp_train_call next;

    if (!gp_schedule_next(schedule, at, &next))
        return GP_OK;
    return gp_loader_request(data->training.loader, next.epoch, next.first, next.count, err);
}

gp_status gp_train_data_prefetch(gp_train_data *data, const gp_schedule *schedule, gp_train_cursor *at,
                                 gp_error *err)
{
    gp_status status = GP_OK;

    for (uint32_t i = 0; i < gp_loader_depth_max(data->training.loader) && status == GP_OK; i++)
        status = gp_train_data_request(data, schedule, at, err);
    return status;
}

void gp_train_data_hand_over(gp_train_data *data, gp_store *stores[2], uint64_t skipped[2])
{
    gp_train_source *sources[2] = { &data->training, &data->validation };

    for (int i = 0; i < 2; i++) {
        gp_loader_free(sources[i]->loader);
        sources[i]->loader = NULL;
        if (stores[i] != NULL)
            continue;
        stores[i] = sources[i]->store;
        skipped[i] = sources[i]->skipped_reported;
        sources[i]->store = NULL;
    }
}

void gp_train_data_take_over(gp_train_data *data, gp_store *stores[2], const uint64_t skipped[2])
{
    gp_train_source *sources[2] = { &data->training, &data->validation };

    for (int i = 0; i < 2; i++) {
        if (stores[i] == NULL)
            continue;
        sources[i]->store = stores[i];
        sources[i]->skipped_reported = skipped[i];
        stores[i] = NULL;
    }
}

/* ---- comparing all ranks' data ---- */

/* Summary of the data that one rank has opened. */
typedef struct data_seen {
    uint64_t training, validation; /* fingerprints; validation 0: none */
    uint64_t samples, validation_samples;
    char host[64];
} data_seen;

static bool data_same(const data_seen *a, const data_seen *b)
{
    return a->training == b->training && a->validation == b->validation && a->samples == b->samples &&
           a->validation_samples == b->validation_samples;
}

static gp_status data_judge(const gp_train_data *data, const data_seen *all, const gp_comm *comm,
                            gp_error *err)
{
    const uint32_t world = gp_comm_world(comm);
    const data_seen *usual = NULL, *ours = &all[gp_comm_rank(comm)];
    uint32_t most = 0;

    for (uint32_t i = 0; i < world; i++) { /* find the largest rank group with equal data */
        uint32_t same = 0;

        for (uint32_t k = 0; k < world; k++)
            same += data_same(&all[i], &all[k]);
        usual = same > most ? &all[i] : usual;
        most = same > most ? same : most;
    }
    bool training = ours->training != usual->training || ours->samples != usual->samples;
    const gp_store_info *info = gp_store_get_info(
        training || data->validation.store == NULL ? data->training.store : data->validation.store);

    if (!data_same(ours, usual))
        return gp_fail(err, GP_EINVAL,
                       "on %s the %s data %s differ from those on %s: %" PRIu64 " samples here, %" PRIu64
                       " there%s; make the same files available to all workers",
                       ours->host, training ? "training" : "validation", info->source, usual->host,
                       training ? ours->samples : ours->validation_samples,
                       training ? usual->samples : usual->validation_samples,
                       (training ? ours->samples == usual->samples
                                 : ours->validation_samples == usual->validation_samples)
                           ? ", with different content"
                           : "");
    for (uint32_t rank = 0; rank < world; rank++)
        if (!data_same(&all[rank], usual))
            return gp_fail(err, GP_EPEER, "rank %" PRIu32 " of %" PRIu32 " has different data", rank, world);
    return GP_OK;
}

gp_status gp_train_data_compare(const gp_train_data *data, gp_comm *comm, gp_error *err)
{
    const uint32_t world = gp_comm_world(comm);
    data_seen *all = gp_calloc(world, sizeof(*all));
    size_t *parts = gp_calloc(world + 1, sizeof(*parts));
    gp_status status = GP_OK;

    if (all == NULL || parts == NULL)
        status = gp_fail(err, GP_ENOMEM, "no memory to compare the data of %" PRIu32 " workers", world);
    if (status == GP_OK) {
        data_seen *ours = &all[gp_comm_rank(comm)];

        for (uint32_t rank = 0; rank <= world; rank++)
            parts[rank] = rank * sizeof(*all);
        ours->training = gp_store_get_info(data->training.store)->fingerprint;
        ours->samples = gp_store_get_info(data->training.store)->count;
        if (data->validation.store != NULL) {
            ours->validation = gp_store_get_info(data->validation.store)->fingerprint;
            ours->validation_samples = gp_store_get_info(data->validation.store)->count;
        }
        gethostname(ours->host, sizeof(ours->host) - 1);
        status = gp_comm_gather_private(comm, all, parts, err);
    }
    if (status == GP_OK)
        status = data_judge(data, all, comm, err);
    gp_free(all);
    gp_free(parts);
    return status;
}

/* ---- reports ---- */

enum { DECODE_REPORTED_NS = 100000000 }; /* shorter decoding times are not reported */

void gp_train_data_report(const gp_train_data *data, bool rank_0, bool restarted, const gp_train_sink *sink)
{
    static const char *const parts[2] = { "training", "validation" };
    const gp_store *stores[2] = { data->training.store, data->validation.store };
    char directory[PATH_MAX], text[400];

    for (int i = 0; i < 2 && rank_0; i++)
        if (stores[i] != NULL && gp_store_left_out(stores[i], text, sizeof(text))[0] != '\0')
            sink->note(sink->context, text, false);
    for (int i = 0; i < 2 && !restarted; i++) {
        const gp_store_info *info = stores[i] == NULL ? NULL : gp_store_get_info(stores[i]);

        if (info == NULL || info->decode_ns < DECODE_REPORTED_NS)
            continue;
        if (gp_cache_path(directory, sizeof(directory), "decoded", NULL, NULL) != GP_OK)
            snprintf(directory, sizeof(directory), "the cache: neither XDG_CACHE_HOME nor HOME is set");
        snprintf(text, sizeof(text), "decoded the %s data of %.100s in %.2f s; %s %.200s", parts[i],
                 info->source, (double)info->decode_ns * 1e-9,
                 info->decode_cached ? "cached for later runs in" : "cannot cache it in", directory);
        sink->note(sink->context, text, false);
    }
}

static void source_add_skipped(gp_train_source *source, gp_train_done *done)
{
    uint64_t reported = source->skipped_reported;
    uint32_t index[GP_SKIPPED_NAMED_MAX], count = gp_store_skipped_first(source->store, index);
    size_t bytes = strlen(done->skipped_names);

    source->skipped_reported = gp_store_skipped(source->store);
    done->skipped += source->skipped_reported - reported;
    for (uint64_t i = reported; i < count; i++) {
        char name[256];
        size_t length = strlen(gp_store_name(source->store, index[i], name, sizeof(name)));

        if (bytes + length + 2 > sizeof(done->skipped_names))
            return;
        bytes += (size_t)sprintf(done->skipped_names + bytes, "%s\n", name);
    }
}

void gp_train_data_add_skipped(gp_train_data *data, gp_train_done *done)
{
    source_add_skipped(&data->training, done);
    if (data->validation.store != NULL)
        source_add_skipped(&data->validation, done);
}
