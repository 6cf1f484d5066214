/* trainer_data.c -- what a rank reads: the stores, its share of a mini-batch, the loaders. */
#include <inttypes.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

#include "common/base/memory/alloc.h"
#include "common/base/text/json.h"
#include "common/data/store/class_match.h"
#include "common/model/graph/normalization.h"
#include "worker/train/exact.h"
#include "worker/train/trainer_state.h"

/* Check that the network takes the samples and targets of a store. */
static gp_status store_check(const gp_store_info *info, const gp_graph *graph, gp_error *err)
{
    const gp_shape sample = gp_shape3(info->channels, info->height, info->width);
    gp_status status = gp_netspec_check_samples(graph->spec, &sample, info->dtype, info->source, err);

    return status == GP_OK
               ? gp_graph_check_targets(graph, info->targets, info->target_count, info->source, err)
               : status;
}

/* validation_data "" means none, "=" the test split of the training source. */
static gp_status trainer_open_stores(gp_trainer *trainer, const gp_trainer_setup *setup, gp_error *err)
{
    const gp_train_begin *begin = setup->begin;
    bool same = strcmp(begin->validation_data, "=") == 0;
    gp_store_options images = { 0 };
    gp_store_info validation;
    gp_class_list names;
    gp_augment fixed;
    gp_status (*open)(gp_store **, const char *, gp_data_role, const gp_store_options *, gp_error *) =
        setup->open == NULL ? gp_store_open_with : setup->open;
    gp_status status = gp_augment_parse(&trainer->augment, trainer->options.augment, err);

    trainer->data = gp_trainer_take_store(trainer, setup, false);
    trainer->validation = gp_trainer_take_store(trainer, setup, true);

    if (status == GP_OK)
        status = gp_augment_images(&images, &trainer->augment, trainer->options.image_size,
                                   &trainer->graph->spec->input, err);
    if (status == GP_OK)
        status = gp_class_list_read(&names, setup->classes, setup->classes_bytes, err);
    if (status == GP_OK) {
        if (trainer->graph->spec->resized)
            memset(images.exact, 0, sizeof(images.exact));
        images.on_bad = (gp_on_bad)trainer->options.on_bad;
        images.cache_bytes = gp_store_cache_bytes(trainer->options.image_cache);
        images.class_names = names.names;
        images.class_count = names.count;
        if (trainer->data == NULL)
            status = open(&trainer->data, begin->data, GP_DATA_TRAIN, &images, err);
        gp_class_list_deinit(&names);
    }
    if (status == GP_OK)
        status = gp_augment_shape(&trainer->shape, &trainer->augment, gp_store_get_info(trainer->data), err);
    if (status == GP_OK)
        status = store_check(&trainer->shape, trainer->graph, err);
    if (status != GP_OK || begin->validation_data[0] == '\0')
        return status;
    images.class_names = gp_store_get_info(trainer->data)->class_names;
    images.class_count = gp_store_get_info(trainer->data)->class_count;
    fixed = gp_augment_fixed(&trainer->augment, trainer->options.image_size);
    if (trainer->validation == NULL)
        status = open(&trainer->validation, same ? begin->data : begin->validation_data,
                      same ? GP_DATA_TEST : GP_DATA_GIVEN, &images, err);
    if (status == GP_OK)
        status = gp_augment_shape(&validation, &fixed, gp_store_get_info(trainer->validation), err);
    return status == GP_OK ? store_check(&validation, trainer->graph, err) : status;
}

gp_status gp_trainer_open_data(gp_trainer *trainer, const gp_trainer_setup *setup, gp_error *err)
{
    gp_status status = trainer_open_stores(trainer, setup, err);
    char host[HOST_NAME_MAX + 1] = "";

    /* What one worker cannot see, another may. */
    if (status != GP_OK && trainer->world > 1 && err != NULL && gethostname(host, sizeof(host) - 1) == 0)
        gp_error_prefix(err, "on %s", host);
    return status;
}

void gp_trainer_share(const gp_trainer *trainer, uint32_t total, uint32_t rank, uint32_t *first,
                      uint32_t *count)
{
    uint32_t block = trainer->options.reproducible ? REPRODUCIBLE_BLOCK : 1;
    uint32_t blocks = (total + block - 1) / block;

    if (trainer->loads == NULL)
        gp_split(blocks, trainer->world, rank, first, count);
    else
        gp_split_loads(blocks, trainer->loads, trainer->world, rank, first, count);
    *first = *first * block < total ? *first * block : total;
    *count = *count * block < total - *first ? *count * block : total - *first;
}

/* What can have the same bits on any number of workers. */
static gp_status trainer_check_reproducible(gp_trainer *trainer, gp_error *err)
{
    if (!trainer->options.reproducible)
        return GP_OK;
    if (trainer->options.precision == GP_PRECISION_F16)
        return gp_fail(err, GP_EINVAL,
                       "reproducible adds up gradients as they are, and fp16 skips steps by them; use f32, "
                       "tf32 or bf16");
    if (trainer->graph->couples_samples)
        return gp_fail(
            err, GP_EINVAL,
            "network %s couples the samples of a call (batch norm), so its bits depend on who computes them; "
            "reproducible needs layers that do not, such as group norm",
            trainer->spec->name);
    if (trainer->options.micro_batch_size != 0)
        return gp_fail(err, GP_EINVAL,
                       "reproducible computes blocks of %d samples; leave micro-batch-size (%" PRId64
                       ") at 0",
                       REPRODUCIBLE_BLOCK, trainer->options.micro_batch_size);
    if ((trainer->world_batch + REPRODUCIBLE_BLOCK - 1) / REPRODUCIBLE_BLOCK > GP_EXACT_TERMS)
        return gp_fail(err, GP_ELIMIT,
                       "reproducible adds up at most %d blocks of %d samples; mini-batch-size is %" PRIu32,
                       GP_EXACT_TERMS, REPRODUCIBLE_BLOCK, trainer->world_batch);
    trainer->micro_batch = REPRODUCIBLE_BLOCK;
    return GP_OK;
}

static gp_status trainer_set_loads(gp_trainer *trainer, gp_error *err)
{
    double loads[GP_LOADS_MAX];
    bool given;
    gp_status status = gp_train_options_loads(&trainer->options, trainer->world, loads, &given, err);

    if (status != GP_OK || !given)
        return status;
    trainer->loads = gp_calloc(trainer->world, sizeof(*loads));
    if (trainer->loads == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for the loads of %" PRIu32 " workers", trainer->world);
    memcpy(trainer->loads, loads, trainer->world * sizeof(*loads));
    return GP_OK;
}

/* Samples of the largest share of a mini-batch. */
static uint32_t trainer_largest_share(const gp_trainer *trainer)
{
    uint32_t largest = 1, first, count;

    for (uint32_t rank = 0; rank < trainer->world; rank++) {
        gp_trainer_share(trainer, trainer->world_batch, rank, &first, &count);
        largest = count > largest ? count : largest;
    }
    return largest;
}

gp_status gp_trainer_check_batch(gp_trainer *trainer, gp_error *err)
{
    uint32_t samples = trainer->shape.count;
    gp_status status = trainer_set_loads(trainer, err);
    uint32_t largest;

    if (status != GP_OK)
        return status;

    trainer->world_batch = (uint32_t)trainer->options.mini_batch_size;
    if (trainer->world_batch > samples)
        return gp_fail(err, GP_EINVAL,
                       "mini-batch-size is %" PRIu32 ", but %s has only %" PRIu32
                       " samples; use at most that many",
                       trainer->world_batch, trainer->shape.source, samples);
    largest = trainer_largest_share(trainer);
    trainer->micro_batch =
        trainer->options.micro_batch_size > 0 && trainer->options.micro_batch_size < largest
            ? (uint32_t)trainer->options.micro_batch_size
            : largest;
    if (trainer->graph->couples_samples && trainer->micro_batch < largest)
        return gp_fail(err, GP_EINVAL,
                       "micro-batch-size is %" PRIu32
                       ", but network %s couples the samples of a call; leave it at 0",
                       trainer->micro_batch, trainer->spec->name);
    return trainer_check_reproducible(trainer, err);
}

gp_status gp_trainer_new_loaders(gp_trainer *trainer, gp_error *err)
{
    uint64_t seed = (uint64_t)trainer->options.seed;
    gp_status status;

    gp_augment fixed = gp_augment_fixed(&trainer->augment, trainer->options.image_size);
    gp_loader_options options = { .depth = LOADER_DEPTH,
                                  .depth_max = GP_LOADER_DEPTH_MAX,
                                  .bytes_max = LOADER_BYTES_MAX,
                                  .capacity = trainer->micro_batch,
                                  .augment = &trainer->augment,
                                  .seed = seed };

    gp_sampler_init(&trainer->sampler, trainer->shape.count, (gp_shuffle)trainer->options.shuffle, seed);
    status = gp_loader_new_with(&trainer->loader, trainer->data, &trainer->sampler, &options, err);
    if (status != GP_OK || trainer->validation == NULL)
        return status;
    gp_sampler_init(&trainer->validation_sampler, gp_store_get_info(trainer->validation)->count,
                    GP_SHUFFLE_NEVER, seed);
    options.augment = &fixed;
    options.depth_max = 0;
    return gp_loader_new_with(&trainer->validation_loader, trainer->validation, &trainer->validation_sampler,
                              &options, err);
}

gp_status gp_trainer_name_classes(gp_trainer *trainer, gp_error *err)
{
    const gp_store_info *info = gp_store_get_info(trainer->data);
    gp_buffer buffer;
    gp_json_writer writer;
    size_t bytes;

    gp_buffer_init(&buffer, GP_JSON_BYTES_MAX);
    gp_json_writer_init(&writer, &buffer, false);
    gp_json_begin_array(&writer, NULL);
    for (uint32_t i = 0; i < info->class_count; i++)
        gp_json_put_text(&writer, NULL, info->class_names[i]);
    gp_json_end_array(&writer);
    gp_status status = gp_json_writer_finish(&writer, err);

    if (status == GP_OK)
        trainer->classes = (char *)gp_buffer_take(&buffer, &bytes);
    gp_buffer_deinit(&buffer);
    return status;
}
