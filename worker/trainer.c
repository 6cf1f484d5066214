/* trainer.c -- building one rank's training: everything that takes memory or can be refused. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"
#include "common/base/json.h"
#include "worker/exact.h"
#include "worker/fault.h"
#include "worker/memory.h"
#include "worker/trainer_state.h"

void gp_train_control_init(gp_train_control *control)
{
    memset(control, 0, sizeof(*control));
    pthread_mutex_init(&control->lock, NULL);
}

void gp_train_control_deinit(gp_train_control *control)
{
    pthread_mutex_destroy(&control->lock);
}

void gp_train_control_reset(gp_train_control *control)
{
    atomic_store(&control->stop, 0);
    atomic_store(&control->progress, 0);
    atomic_store(&control->step, 0);
    atomic_store(&control->epoch, 0);
}

void gp_train_control_abort(gp_train_control *control)
{
    atomic_store(&control->stop, 2);
    pthread_mutex_lock(&control->lock);
    if (control->comm != NULL)
        gp_comm_abort(control->comm, control->generation);
    pthread_mutex_unlock(&control->lock);
}

static void control_set_comm(gp_train_control *control, gp_comm *comm, uint32_t generation)
{
    pthread_mutex_lock(&control->lock);
    control->comm = comm;
    control->generation = generation;
    pthread_mutex_unlock(&control->lock);
}

void gp_trainer_free(gp_trainer *trainer)
{
    if (trainer == NULL)
        return;
    control_set_comm(trainer->control, NULL, 0);
    gp_saver_free(trainer->saver); /* first: it borrows the graph */
    if (trainer->plan != NULL)
        trainer->backend_ops->free(trainer->plan);
    if (trainer->validation_plan != NULL)
        trainer->backend_ops->free(trainer->validation_plan);
    gp_loader_free(trainer->loader);
    gp_loader_free(trainer->validation_loader);
    gp_comm_free(trainer->comm); /* the arena goes with it */
    if (trainer->options.reproducible) {
        gp_free(trainer->header);
        gp_free(trainer->gradients);
    }
    gp_optim_free(trainer->optim);
    gp_free(trainer->parameters);
    gp_free(trainer->best);
    gp_free(trainer->buckets);
    gp_free(trainer->classes);
    gp_free(trainer->loads);
    gp_free(trainer->coupling.sums);
    gp_graph_free(trainer->graph);
    gp_netspec_free(trainer->spec);
    gp_store_close(trainer->data);
    gp_store_close(trainer->validation);
    gp_free(trainer);
}

/* ---- data ---- */

/* Whether the network takes what the store gives. */
static gp_status store_check(const gp_store_info *info, const gp_graph *graph, gp_error *err)
{
    gp_shape sample = gp_shape3(info->channels, info->height, info->width);
    char have[64], want[64];

    if (!gp_netspec_takes(graph->spec, &sample))
        return gp_fail(err, GP_EINVAL,
                       "the samples of %s are %s (channels x height x width); network %s takes %s",
                       info->source, gp_shape_format(&sample, have, sizeof(have)), graph->spec->name,
                       gp_shape_format(&graph->spec->input, want, sizeof(want)));
    return gp_graph_check_targets(graph, info->targets, info->target_count, info->source, err);
}

/* validation_data "" means none, "=" the test split of the training source. */
static gp_status trainer_open_data(gp_trainer *trainer, const gp_trainer_setup *setup, gp_error *err)
{
    const gp_train_begin *begin = setup->begin;
    bool same = strcmp(begin->validation_data, "=") == 0;
    gp_store_options images;
    gp_store_info validation;
    gp_augment fixed;
    gp_status (*open)(gp_store **, const char *, gp_data_role, const gp_store_options *, gp_error *) =
        setup->open == NULL ? gp_store_open_with : setup->open;
    gp_status status = gp_augment_parse(&trainer->augment, trainer->options.augment, err);

    if (status == GP_OK)
        status = gp_augment_images(&images, &trainer->augment, trainer->options.image_size,
                                   &trainer->graph->spec->input, err);
    if (status == GP_OK) {
        images.on_bad = (gp_on_bad)trainer->options.on_bad;
        status = open(&trainer->data, begin->data, GP_DATA_TRAIN, &images, err);
    }
    if (status == GP_OK)
        status = gp_augment_shape(&trainer->shape, &trainer->augment, gp_store_get_info(trainer->data), err);
    if (status == GP_OK)
        status = store_check(&trainer->shape, trainer->graph, err);
    if (status != GP_OK || begin->validation_data[0] == '\0')
        return status;
    images.class_names = gp_store_get_info(trainer->data)->class_names;
    images.class_count = gp_store_get_info(trainer->data)->class_count;
    fixed = gp_augment_fixed(&trainer->augment);
    status = open(&trainer->validation, same ? begin->data : begin->validation_data,
                  same ? GP_DATA_TEST : GP_DATA_GIVEN, &images, err);
    if (status == GP_OK)
        status = gp_augment_shape(&validation, &fixed, gp_store_get_info(trainer->validation), err);
    return status == GP_OK ? store_check(&validation, trainer->graph, err) : status;
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

static gp_status trainer_check_batch(gp_trainer *trainer, gp_error *err)
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

static gp_status trainer_new_loaders(gp_trainer *trainer, gp_error *err)
{
    uint64_t seed = (uint64_t)trainer->options.seed;
    gp_status status;

    gp_augment fixed = gp_augment_fixed(&trainer->augment);

    gp_sampler_init(&trainer->sampler, trainer->shape.count, (gp_shuffle)trainer->options.shuffle, seed);
    status = gp_loader_new_augmented(&trainer->loader, trainer->data, &trainer->sampler, LOADER_DEPTH,
                                     trainer->micro_batch, &trainer->augment, seed, 0, err);
    if (status != GP_OK || trainer->validation == NULL)
        return status;
    gp_sampler_init(&trainer->validation_sampler, gp_store_get_info(trainer->validation)->count,
                    GP_SHUFFLE_NEVER, seed);
    return gp_loader_new_augmented(&trainer->validation_loader, trainer->validation,
                                   &trainer->validation_sampler, LOADER_DEPTH, trainer->micro_batch, &fixed,
                                   seed, 0, err);
}

static gp_status trainer_name_classes(gp_trainer *trainer, gp_error *err)
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

/* ---- group and memory ---- */

/* Lengthens the last bucket up to the wanted size, then begins others. */
static void bucket_append(gp_trainer *trainer, size_t first, size_t count, size_t wanted)
{
    while (count > 0) {
        bucket *last = trainer->bucket_count == 0 ? NULL : &trainer->buckets[trainer->bucket_count - 1];
        size_t room = wanted, part;

        if (last != NULL && last->first + last->count == first && last->count < wanted) {
            room -= last->count;
        } else {
            last = &trainer->buckets[trainer->bucket_count++];
            *last = (bucket){ .first = first };
        }
        part = count < room ? count : room;
        last->count += part;
        first += part;
        count -= part;
    }
}

/* Cut what ranks exchange of the blob into buckets of about the wanted size; the first completes first.  Frozen
 * tensors are left out. */
static gp_status trainer_cut_buckets(gp_trainer *trainer, gp_error *err)
{
    const gp_graph *graph = trainer->graph;
    size_t wanted = (size_t)trainer->options.exchange_bucket_bytes / sizeof(float);
    size_t most = graph->blob_count / wanted + graph->parameter_count + 1;

    trainer->buckets = gp_calloc(most, sizeof(*trainer->buckets));
    if (trainer->buckets == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for %zu buckets", most);
    for (uint32_t end = graph->parameter_count, first; end > 0; end = first) { /* as they lie in the blob */
        first = end - 1;
        while (first > 0 && graph->parameters[first - 1].layer == graph->parameters[first].layer)
            first--;
        for (uint32_t p = first; p < end; p++) {
            const gp_parameter *parameter = &graph->parameters[p];

            if (gp_parameter_learns(parameter) || parameter->statistic != GP_STATISTIC_NONE)
                bucket_append(trainer, parameter->offset, (size_t)parameter->count, wanted);
        }
    }
    return GP_OK;
}

/* With `reproducible`, what is exchanged is integers; the plan writes into memory of our own. */
static gp_status trainer_take_exact(gp_trainer *trainer, gp_error *err)
{
    size_t count = trainer->graph->blob_count;
    void *range;
    gp_status status =
        gp_comm_arena_alloc(trainer->comm, (EXACT_COUNT + 2 * count) * sizeof(int64_t), &range, err);

    if (status != GP_OK)
        return status;
    trainer->exact = range;
    trainer->header = gp_aligned_calloc(64, HEADER_COUNT * sizeof(double));
    trainer->gradients = gp_aligned_calloc(64, count * sizeof(float));
    return trainer->header != NULL && trainer->gradients != NULL
               ? GP_OK
               : gp_fail(err, GP_ENOMEM, "no memory for gradients of %zu parameters", count);
}

static gp_status trainer_join(gp_trainer *trainer, const gp_comm_rendezvous *group, gp_error *err)
{
    gp_comm_rendezvous rendezvous = *group;
    size_t header_bytes = HEADER_COUNT * sizeof(double),
           blob_bytes = trainer->graph->blob_count * sizeof(float);
    void *range;
    gp_status status = gp_comm_new(&trainer->comm, &gp_comm_shm, err);

    if (trainer->options.reproducible) {
        header_bytes = EXACT_COUNT * sizeof(int64_t);
        blob_bytes = 2 * trainer->graph->blob_count * sizeof(int64_t);
    }

    if (status != GP_OK)
        return status;
    rendezvous.arena_bytes = header_bytes + blob_bytes + 128; /* two ranges, each aligned to 64 bytes */
    control_set_comm(trainer->control, trainer->comm, rendezvous.generation);
    if (atomic_load(&trainer->control->stop) == 2)
        return gp_fail(err, GP_ECANCELED, "stopped before the training began");
    status = gp_comm_form(trainer->comm, &rendezvous, err);
    if (status == GP_OK && trainer->options.reproducible)
        return trainer_take_exact(trainer, err);
    if (status == GP_OK)
        status = gp_comm_arena_alloc(trainer->comm, header_bytes, &range, err);
    if (status != GP_OK)
        return status;
    trainer->header = range;
    status = gp_comm_arena_alloc(trainer->comm, blob_bytes, &range, err);
    if (status == GP_OK)
        trainer->gradients = range;
    return status;
}

/* Ranks whose blobs differ in layout must not add them up. */
static gp_status trainer_check_layout(gp_trainer *trainer, gp_error *err)
{
    int64_t hash = (int64_t)(gp_graph_layout_hash(trainer->graph) >> 1), seen[2] = { hash, -hash };
    gp_status status = gp_comm_all_reduce_private(trainer->comm, seen, 2, GP_I64, GP_COMM_MAX, err);

    if (status == GP_OK && (seen[0] != hash || seen[1] != -hash))
        return gp_fail(err, GP_EPROTO, "the ranks do not agree on the layout of network %s",
                       trainer->spec->name);
    return status;
}

static gp_status trainer_set_weights(gp_trainer *trainer, const gp_trainer_setup *setup, gp_error *err)
{
    size_t count = trainer->graph->blob_count;
    gp_init_rule rule;
    gp_status status = gp_init_rule_parse(&rule, trainer->options.weights_initializer, err);

    if (status != GP_OK)
        return status;
    trainer->parameters = gp_aligned_calloc(64, count * sizeof(float));
    if (trainer->parameters == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for %zu parameters", count);
    trainer->best_loss = INFINITY;
    if (trainer->validation != NULL && gp_train_keeps_best(&trainer->options)) {
        trainer->best = gp_malloc(count * sizeof(float));
        if (trainer->best == NULL)
            return gp_fail(err, GP_ENOMEM, "no memory to keep the best %zu parameters", count);
    }
    if (setup->weights == NULL) {
        gp_graph_initialize(trainer->graph, rule, (uint64_t)trainer->options.seed, trainer->parameters);
        return GP_OK;
    }
    if (setup->weights_count != count)
        return gp_fail(err, GP_EPROTO, "%zu initial weights for a network of %zu", setup->weights_count,
                       count);
    memcpy(trainer->parameters, setup->weights, count * sizeof(float));
    return GP_OK;
}

static gp_status coupling_reduce(void *context, size_t count, gp_error *err)
{
    gp_trainer *trainer = context;
    gp_status status =
        gp_comm_all_reduce_private(trainer->comm, trainer->coupling.sums, count, GP_F64, GP_COMM_SUM, err);

    atomic_fetch_add_explicit(&trainer->control->progress, 1, memory_order_relaxed);
    return status;
}

const gp_coupling *gp_trainer_coupling(const gp_trainer *trainer)
{
    return trainer->coupling.sums == NULL ? NULL : &trainer->coupling;
}

static gp_status trainer_couple(gp_trainer *trainer, gp_error *err)
{
    int64_t widest = 0;

    for (uint32_t p = 0; p < trainer->graph->parameter_count; p++) {
        const gp_parameter *parameter = &trainer->graph->parameters[p];

        if (parameter->statistic != GP_STATISTIC_NONE && parameter->count > widest)
            widest = parameter->count;
    }
    if (widest == 0 && (trainer->options.synchronize_batch_norm ||
                        trainer->options.batch_norm_statistics != GP_STATISTICS_MOVING))
        return gp_fail(err, GP_EINVAL, "network %s has no batch norm; leave %s out", trainer->spec->name,
                       trainer->options.synchronize_batch_norm ? "synchronize-batch-norm"
                                                               : "batch-norm-statistics");
    if (!trainer->options.synchronize_batch_norm)
        return GP_OK;
    trainer->coupling = (gp_coupling){ .sums = gp_calloc(2 * (size_t)widest + 1, sizeof(double)),
                                       .reduce = coupling_reduce,
                                       .context = trainer };
    return trainer->coupling.sums == NULL ? gp_fail(err, GP_ENOMEM, "no memory for moments") : GP_OK;
}

/* Whether the calls fit into memory, before any of it is touched: all ranks come to the same end.  Measured only where
 * the bound is not far below what there is.  Ranks share one host. */
static gp_status trainer_check_memory(gp_trainer *trainer, const gp_plan_options *options,
                                      const gp_plan_memory *memory, gp_error *err)
{
    enum { NEED, FIXED, EACH, MISSING, NUMBERS };
    const double gib = 1024.0 * 1024.0 * 1024.0;
    uint64_t free_bytes = gp_memory_available() / trainer->world;
    double available = free_bytes > INT64_MAX ? 9e18 : (double)free_bytes;
    double bound = gp_memory_bound(trainer->graph, GP_PHASE_TRAIN, trainer->micro_batch);
    int64_t numbers[NUMBERS] = { 0 };
    char parts[100] = "";
    gp_status status;

    numbers[MISSING] = -(int64_t)available;
    if (strcmp(trainer->backend_ops->name, "cpu") == 0 && bound > available / 2) {
        gp_memory_model model =
            gp_memory_measure(trainer->backend_ops, trainer->backend, trainer->graph, options, memory);

        numbers[FIXED] = (int64_t)model.fixed;
        numbers[EACH] = (int64_t)model.each;
        numbers[NEED] = (int64_t)(model.fixed + model.each * trainer->micro_batch);
    }
    status = gp_comm_all_reduce_private(trainer->comm, numbers, NUMBERS, GP_I64, GP_COMM_MAX, err);
    if (status != GP_OK || numbers[NEED] <= -numbers[MISSING])
        return status;
    int64_t fits = numbers[EACH] == 0 ? 0 : (-numbers[MISSING] - numbers[FIXED]) / numbers[EACH];

    fits = fits < 0 ? 0 : fits;
    if (!trainer->graph->couples_samples && fits > 0)
        snprintf(parts, sizeof(parts), ", or micro-batch-size %" PRId64 ", which computes it in parts", fits);
    return gp_fail(err, GP_ENOMEM,
                   "a share of %" PRIu32
                   " samples of network %s needs about %.1f GiB of memory and each of %" PRIu32
                   " workers has %.1f GiB; use a mini-batch-size of at most %" PRId64 "%s",
                   trainer->micro_batch, trainer->spec->name, (double)numbers[NEED] / gib, trainer->world,
                   -(double)numbers[MISSING] / gib, fits * trainer->world, parts);
}

static gp_status trainer_compile(gp_trainer *trainer, gp_error *err)
{
    gp_plan_memory memory = { .parameters = trainer->parameters,
                              .gradients = trainer->gradients,
                              .sums = trainer->header };
    gp_plan_options options = { .phase = GP_PHASE_TRAIN,
                                .micro_batch = trainer->micro_batch,
                                .sample_dtype = gp_store_get_info(trainer->data)->dtype,
                                .threads = trainer->options.reproducible ? 1 : 0,
                                .precision = (gp_precision)trainer->options.precision };
    gp_status status = trainer_check_memory(trainer, &options, &memory, err);

    if (status == GP_OK)
        status = trainer->backend_ops->compile(&trainer->plan, trainer->backend, trainer->graph, &options,
                                               &memory, err);
    if (status != GP_OK || trainer->validation == NULL)
        return status;
    options.phase = GP_PHASE_INFER;
    options.sample_dtype = gp_store_get_info(trainer->validation)->dtype;
    memory.gradients = NULL;
    return trainer->backend_ops->compile(&trainer->validation_plan, trainer->backend, trainer->graph,
                                         &options, &memory, err);
}

/* ---- checkpoints ---- */

void gp_trainer_checkpoint(gp_trainer *trainer, gp_checkpoint *out)
{
    uint64_t *optim_step;

    *out = (gp_checkpoint){ .step = trainer->step,
                            .epoch = trainer->epoch,
                            .first = trainer->first,
                            .best_loss = trainer->best_loss,
                            .no_better = trainer->no_better,
                            .is_best = isfinite(trainer->best_loss) && trainer->no_better == 0,
                            .parameters = trainer->parameters,
                            .best = trainer->best };
    out->state = gp_optim_state(trainer->optim, &out->state_blobs, &optim_step);
    out->optim_step = *optim_step;
}

/* Every rank reads the same file. */
static gp_status trainer_resume(gp_trainer *trainer, gp_error *err)
{
    gp_checkpoint checkpoint;
    char damaged[240];
    uint32_t blobs;
    uint64_t *optim_step;

    gp_trainer_checkpoint(trainer, &checkpoint);
    gp_status status =
        gp_checkpoint_read(&checkpoint, &trainer->frame, trainer->options.resume, damaged, err);

    if (status != GP_OK)
        return status;
    if (checkpoint.epoch >= trainer->options.max_epochs)
        return gp_fail(err, GP_EINVAL,
                       "the checkpoint of step %" PRIu64 " has all of its %" PRIu32
                       " epochs; raise max-epochs (%" PRId64 ") to go on",
                       checkpoint.step, checkpoint.epoch, trainer->options.max_epochs);
    if (checkpoint.first >= trainer->shape.count)
        return gp_fail(err, GP_ECORRUPT,
                       "the checkpoint of step %" PRIu64 " stands at sample %" PRIu32 " of %" PRIu32,
                       checkpoint.step, checkpoint.first, trainer->shape.count);
    trainer->step = checkpoint.step;
    trainer->epoch = checkpoint.epoch;
    trainer->first = checkpoint.first;
    trainer->best_loss = checkpoint.best_loss;
    trainer->no_better = checkpoint.no_better;
    gp_optim_state(trainer->optim, &blobs, &optim_step);
    *optim_step = checkpoint.optim_step;
    snprintf(trainer->resumed, sizeof(trainer->resumed), "%s%sresumed after step %" PRIu64 " of %.200s",
             damaged, damaged[0] == '\0' ? "" : "; ", trainer->step, trainer->options.resume);
    return GP_OK;
}

static gp_status trainer_keep_state(gp_trainer *trainer, gp_error *err)
{
    gp_checkpoint now;
    gp_status status = GP_OK;

    trainer->frame = (gp_checkpoint_frame){ .graph = trainer->graph,
                                            .options = &trainer->options,
                                            .data_fingerprint = gp_store_get_info(trainer->data)->fingerprint,
                                            .world = trainer->world };
    if (trainer->options.resume[0] != '\0')
        status = trainer_resume(trainer, err);
    if (status != GP_OK || trainer->options.checkpoint_path[0] == '\0' || trainer->rank != 0)
        return status;
    gp_trainer_checkpoint(trainer, &now);
    return gp_saver_new(&trainer->saver, trainer->options.checkpoint_path, &trainer->frame, now.state_blobs,
                        now.best != NULL, err);
}

/* ---- the whole ---- */

static gp_status trainer_build(gp_trainer *trainer, const gp_trainer_setup *setup, gp_error *err)
{
    gp_status status =
        gp_train_options_from_json(&trainer->options, setup->options, setup->options_bytes, err);

    if (status == GP_OK)
        status = gp_netspec_from_json(&trainer->spec, setup->netspec, setup->netspec_bytes, err);
    if (status == GP_OK)
        status = gp_graph_new(&trainer->graph, trainer->spec, err);
    if (status == GP_OK)
        status = trainer_open_data(trainer, setup, err);
    gp_fault_point("loading");
    if (status == GP_OK)
        status = trainer_check_batch(trainer, err);
    if (status == GP_OK)
        status = trainer_new_loaders(trainer, err);
    if (status == GP_OK)
        status = trainer_name_classes(trainer, err);
    if (status == GP_OK)
        status = trainer_cut_buckets(trainer, err);
    if (status == GP_OK)
        status = trainer_set_weights(trainer, setup, err);
    if (status == GP_OK)
        status = gp_optim_new(&trainer->optim, trainer->graph, &trainer->options, err);
    if (status == GP_OK)
        status = trainer_keep_state(trainer, err);
    if (status == GP_OK)
        status = trainer_join(trainer, setup->group, err);
    if (status == GP_OK)
        status = trainer_check_layout(trainer, err);
    if (status == GP_OK)
        status = trainer_couple(trainer, err);
    return status == GP_OK ? trainer_compile(trainer, err) : status;
}

static void trainer_describe(const gp_trainer *trainer, gp_train_ready *ready)
{
    const gp_store_info *data = &trainer->shape;
    size_t blob_bytes = trainer->graph->blob_count * sizeof(float);
    uint32_t first;

    *ready = (gp_train_ready){
        .rank = trainer->rank,
        .world = trainer->world,
        .samples = data->count,
        .validation_samples = trainer->validation == NULL ? 0 : gp_store_get_info(trainer->validation)->count,
        .steps_per_epoch = (data->count + trainer->world_batch - 1) / trainer->world_batch,
        .batch = trainer->world_batch,
        .parameters = trainer->graph->learned_count,
        .classes = trainer->graph->class_count,
        .memory_bytes =
            3 * blob_bytes + trainer->backend_ops->memory_bytes(trainer->plan) +
            LOADER_DEPTH * (uint64_t)trainer->micro_batch * (data->sample_bytes + data->target_bytes),
    };
    gp_trainer_share(trainer, trainer->world_batch, trainer->rank, &first, &ready->batch_rank);
    if (trainer->options.reproducible)
        ready->memory_bytes += 2 * trainer->graph->blob_count * sizeof(int64_t);
    if (trainer->validation_plan != NULL)
        ready->memory_bytes += trainer->backend_ops->memory_bytes(trainer->validation_plan);
}

gp_status gp_trainer_new(gp_trainer **out, gp_train_ready *ready, const gp_trainer_setup *setup,
                         gp_error *err)
{
    gp_trainer *trainer = gp_calloc(1, sizeof(*trainer));
    int64_t begin_ns = gp_now_ns();

    if (trainer == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for a trainer");
    trainer->control = setup->control;
    trainer->backend_ops = setup->backend_ops;
    trainer->backend = setup->backend;
    trainer->rank = setup->group->rank;
    trainer->world = setup->group->world;
    gp_status status = trainer_build(trainer, setup, err);

    if (status != GP_OK) {
        gp_trainer_free(trainer);
        return status;
    }
    trainer_describe(trainer, ready);
    ready->ready_ms = (double)(gp_now_ns() - begin_ns) * 1e-6;
    *out = trainer;
    return GP_OK;
}

const float *gp_trainer_weights(const gp_trainer *trainer, size_t *count)
{
    bool best = trainer->best != NULL && isfinite(trainer->best_loss);

    *count = trainer->graph->blob_count;
    return best ? trainer->best : trainer->parameters;
}

const char *gp_trainer_classes(const gp_trainer *trainer)
{
    return trainer->classes;
}
