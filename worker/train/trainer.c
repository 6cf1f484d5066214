/* trainer.c -- build one rank's training: every allocation and check that can fail before the
 * first step. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/memory/alloc.h"
#include "common/base/system/fault.h"
#include "common/base/text/log.h"
#include "worker/backend/missing_plans.h"
#include "worker/train/memory.h"
#include "worker/train/trainer_state.h"

void gp_trainer_free(gp_trainer *trainer)
{
    if (trainer == NULL)
        return;
    gp_train_control_set_comm(trainer->control, NULL, 0);
    gp_saver_free(trainer->saver); /* first, because it borrows the graph */
    if (trainer->plan != NULL)
        trainer->backend_ops->free(trainer->plan);
    if (trainer->validation_plan != NULL)
        trainer->backend_ops->free(trainer->validation_plan);
    gp_pipeline_close(&trainer->pipeline);
    gp_train_data_close(&trainer->data);
    gp_exchange_deinit(&trainer->exchange);
    gp_comm_free(trainer->comm); /* frees the arena */
    gp_optim_free(trainer->optim);
    if (trainer->shards.parameters[0] == NULL) /* otherwise the parameters are in the arena */
        gp_free(trainer->parameters);
    gp_free(trainer->best);
    gp_shards_deinit(&trainer->shards);
    gp_train_tuning_deinit(&trainer->tuning);
    gp_schedule_deinit(&trainer->schedule);
    gp_graph_free(trainer->graph);
    gp_netspec_free(trainer->spec);
    gp_free(trainer);
}

/* ---- initial state ---- */

static gp_status trainer_take_memory(gp_trainer *trainer, const gp_trainer_setup *setup, gp_error *err)
{
    size_t count = trainer->graph->blob_count;

    if (setup->weights != NULL && setup->weights_count != count)
        return gp_fail(err, GP_EPROTO, "the number of initial weights (%zu) does not match the network's %zu",
                       setup->weights_count, count);
    trainer->parameters = gp_aligned_calloc(64, count * sizeof(float));
    if (trainer->parameters == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for %zu parameters", count);
    gp_train_progress_init(&trainer->progress, &trainer->options);
    if (trainer->data.validation.store != NULL && gp_train_keeps_best(&trainer->options)) {
        trainer->best = gp_calloc(count, sizeof(float)); /* a checkpoint may precede the first one */
        if (trainer->best == NULL)
            return gp_fail(err, GP_ENOMEM, "no memory to keep the best %zu parameters", count);
    }
    return GP_OK;
}

void gp_trainer_checkpoint(gp_trainer *trainer, gp_checkpoint *out)
{
    const gp_train_progress *progress = &trainer->progress;
    uint64_t *optim_step;

    *out = (gp_checkpoint){ .progress = *progress,
                            .is_best = progress->last_validation.step == progress->step &&
                                       isfinite(progress->best_loss) && progress->validations_since_best == 0,
                            .parameters = trainer->parameters,
                            .best = trainer->best };
    out->state = gp_optim_state(trainer->optim, &out->state_blobs, &optim_step);
    out->optim_step = *optim_step;
}

void gp_trainer_continue(gp_trainer *trainer, const gp_checkpoint *from)
{
    uint64_t *optim_step;

    gp_optim_state(trainer->optim, NULL, &optim_step);
    *optim_step = from->optim_step;
    trainer->progress = from->progress;
}

/* Continue from the checkpoint given in the options. Every rank reads the same file. */
static gp_status trainer_resume(gp_trainer *trainer, gp_error *err)
{
    gp_train_progress *progress = &trainer->progress;
    gp_checkpoint checkpoint;
    char damaged[240] = "";

    gp_trainer_checkpoint(trainer, &checkpoint);
    gp_status status =
        gp_checkpoint_read(&checkpoint, &trainer->frame, trainer->options.resume, damaged, err);

    if (status != GP_OK)
        return status;
    trainer->tuning.document = checkpoint.plans;
    if (damaged[0] != '\0')
        gp_train_notes_add(&trainer->notes, true, "%s; using the previous checkpoint", damaged);
    gp_train_notes_add(&trainer->notes, false, "resumed after step %" PRIu64 " of %.200s",
                       checkpoint.progress.step, trainer->options.resume);
    gp_trainer_continue(trainer, &checkpoint);
    if (progress->first >= trainer->data.shape.count)
        return gp_fail(err, GP_ECORRUPT,
                       "the checkpoint of step %" PRIu64 " is at sample %" PRIu32 " of %" PRIu32,
                       progress->step, progress->first, trainer->data.shape.count);
    /* A run that was complete or had ended early takes no step. Validate once more, so that the
     * result has metrics. `ended` keeps later groups from saving that validation: the checkpoint
     * exists. */
    const bool validates = trainer->data.validation.store != NULL;
    const bool complete = progress->epoch >= trainer->options.max_epochs;

    if (complete || (validates && gp_train_progress_stops_early(progress, &trainer->options))) {
        progress->ended = 1 + (complete ? GP_STOP_COMPLETED : GP_STOP_EARLY);
        progress->validation_due = validates;
    }
    return GP_OK;
}

gp_status gp_trainer_initialize(gp_trainer *trainer, const gp_trainer_setup *setup, gp_error *err)
{
    size_t count = trainer->graph->blob_count;
    gp_init_rule rule;
    gp_status status = gp_init_rule_parse(&rule, trainer->options.weights_initializer, err);

    if (status != GP_OK)
        return status;
    trainer->blank = false;
    if (setup->weights == NULL)
        gp_graph_initialize(trainer->graph, rule, (uint64_t)trainer->options.seed, trainer->parameters);
    else
        memcpy(trainer->parameters, setup->weights, count * sizeof(float));
    return trainer->options.resume[0] == '\0' ? GP_OK : trainer_resume(trainer, err);
}

/* Take over the state from an earlier group, or else initialize it. A rank that joins later
 * initializes the state only if no other rank has one: the checkpoint that the training resumed
 * from may have been removed. */
static gp_status trainer_begin_state(gp_trainer *trainer, const gp_trainer_setup *setup, gp_error *err)
{
    const gp_train_options *options = &trainer->options;
    const gp_store_info *data = gp_store_get_info(trainer->data.training.store);
    gp_checkpoint now;
    gp_status status = GP_OK;

    trainer->frame = (gp_checkpoint_frame){ .graph = trainer->graph,
                                            .options = options,
                                            .data_fingerprint = data->fingerprint,
                                            .world = setup->group->world };
    if (!gp_trainer_take(trainer, setup->held)) {
        trainer->blank = trainer->restarted;
        if (!trainer->blank)
            status = gp_trainer_initialize(trainer, setup, err);
    }
    if (status != GP_OK || options->checkpoint_path[0] == '\0' || setup->group->rank != 0)
        return status;
    gp_trainer_checkpoint(trainer, &now);
    return gp_saver_new(&trainer->saver, options->checkpoint_path, &trainer->frame, &now, err);
}

/* ---- group and plans ---- */

/* Join the rank group, and place the gradients in the group's memory. */
static gp_status trainer_join(gp_trainer *trainer, const gp_comm_rendezvous *group, gp_error *err)
{
    const bool reproducible = trainer->options.reproducible, sharded = trainer->shards.active;
    gp_comm_rendezvous rendezvous = *group;
    gp_status status = gp_comm_new(&trainer->comm, err);

    if (status != GP_OK)
        return status;
    rendezvous.arena_bytes = gp_exchange_arena_bytes(&trainer->exchange, reproducible) +
                             gp_shards_bytes(&trainer->shards, trainer->graph, trainer->optim);
    rendezvous.sparse = rendezvous.sparse || sharded;
    gp_train_control_set_comm(trainer->control, trainer->comm, rendezvous.generation);
    if (atomic_load(&trainer->control->stop) == 2)
        return gp_fail(err, GP_ECANCELED, "stopped before the training began");
    status = gp_comm_form(trainer->comm, &rendezvous, err);
    return status == GP_OK ? gp_exchange_place(&trainer->exchange, trainer->comm, reproducible, sharded, err)
                           : status;
}

/* Check that all ranks' calls fit into memory before allocating any; collective. Plans are measured
 * only if the upper bound is near the available memory. All ranks share one host. */
static gp_status trainer_check_memory(gp_trainer *trainer, const gp_plan_options *options,
                                      const gp_plan_memory *memory, gp_error *err)
{
    enum { NEED, FIXED, EACH, MISSING, NUMBERS };
    const double gib = 1024.0 * 1024.0 * 1024.0;
    uint64_t free_bytes = gp_memory_available() / trainer->schedule.world;
    double available = free_bytes > INT64_MAX ? 9e18 : (double)free_bytes;
    double bound = gp_memory_bound(trainer->graph, GP_PHASE_TRAIN, trainer->schedule.micro_batch);
    int64_t numbers[NUMBERS] = { 0 };
    char parts[100] = "";
    gp_status status;

    numbers[MISSING] = -(int64_t)available;
    if (strcmp(trainer->backend_ops->name, "cpu") == 0 && bound > available / 2) {
        gp_memory_model model =
            gp_memory_measure(trainer->backend_ops, trainer->backend, trainer->graph, options, memory);

        numbers[FIXED] = (int64_t)model.fixed;
        numbers[EACH] = (int64_t)model.each;
        numbers[NEED] = (int64_t)(model.fixed + model.each * trainer->schedule.micro_batch);
    }
    status = gp_comm_all_reduce_private(trainer->comm, numbers, NUMBERS, GP_I64, GP_COMM_MAX, err);
    if (status != GP_OK || numbers[NEED] <= -numbers[MISSING])
        return status;
    int64_t fits = numbers[EACH] == 0 ? 0 : (-numbers[MISSING] - numbers[FIXED]) / numbers[EACH];

    fits = fits < 0 ? 0 : fits;
    if (!trainer->graph->couples_samples && fits > 0)
        snprintf(parts, sizeof(parts), ", or set micro-batch-size to %" PRId64 " to compute it in parts",
                 fits);
    return gp_fail(
        err, GP_ENOMEM,
        "not enough memory: %" PRIu32 " samples of network %s need about %.1f GiB, and each of %" PRIu32
        " workers has %.1f GiB; use a mini-batch-size of at most %" PRId64 "%s",
        trainer->schedule.micro_batch, trainer->spec->name, (double)numbers[NEED] / gib,
        trainer->schedule.world, -(double)numbers[MISSING] / gib, fits * trainer->schedule.world, parts);
}

static gp_plan_memory plan_memory(const gp_trainer *trainer)
{
    return (gp_plan_memory){ .parameters = trainer->parameters,
                             .gradients = trainer->exchange.gradients,
                             .sums = trainer->exchange.header,
                             .factors = trainer->shards.factors.factor,
                             .factor_count = trainer->shards.factors.count };
}

/* Compile the plans that write to the group's memory.
 *   group  true: check the memory and tune, both collective; false: there is no group */
static gp_status compile_plans(gp_trainer *trainer, bool group, gp_error *err)
{
    gp_plan_memory memory = plan_memory(trainer);
    gp_plan_options options = { .phase = GP_PHASE_TRAIN,
                                .micro_batch = trainer->schedule.micro_batch,
                                .sample_dtype = gp_store_get_info(trainer->data.training.store)->dtype,
                                .threads = trainer->options.reproducible ? 1 : 0,
                                .precision = (gp_precision)trainer->options.precision };
    gp_status status = group ? trainer_check_memory(trainer, &options, &memory, err) : GP_OK;
    const int64_t began_ns = gp_now_ns();

    if (status == GP_OK && group)
        status = gp_train_tuning_begin(&trainer->tuning, trainer->comm, err);
    options.tuning = gp_train_tuning_choices(&trainer->tuning);
    if (status == GP_OK)
        status = trainer->backend_ops->compile(&trainer->plan, trainer->backend, trainer->graph, &options,
                                               &memory, err);
    if (status == GP_OK)
        gp_log(GP_LOG_DEBUG, "plan-compiled", "compiled a plan of %" PRIu32 " samples in %.2f ms",
               options.micro_batch, (double)(gp_now_ns() - began_ns) * 1e-6);
    if (status != GP_OK || trainer->data.validation.store == NULL)
        return status;
    options.phase = GP_PHASE_INFER;
    options.sample_dtype = gp_store_get_info(trainer->data.validation.store)->dtype;
    memory.gradients = NULL;
    return trainer->backend_ops->compile(&trainer->validation_plan, trainer->backend, trainer->graph,
                                         &options, &memory, err);
}

/* ---- building ---- */

/* Start phases, for the log. After a worker failure or a resize, all ranks wait for them. */
enum { BUILT_DATA, BUILT_STATE, BUILT_GROUP, BUILT_PLANS, BUILT_COUNT };

static gp_status build_data(gp_trainer *trainer, const gp_trainer_setup *setup, gp_error *err)
{
    gp_status status =
        gp_train_options_from_json(&trainer->options, setup->options, setup->options_bytes, err);

    if (status == GP_OK)
        status = gp_netspec_from_json(&trainer->spec, setup->netspec, setup->netspec_bytes, err);
    if (status == GP_OK)
        status = gp_graph_new(&trainer->graph, trainer->spec, err);
    if (status == GP_OK) {
        gp_carry_over_take_stores(setup->held, trainer->graph, &trainer->data);
        status = gp_train_data_open(&trainer->data, setup, &trainer->options, trainer->graph, err);
    }
    gp_fault_point("loading");
    return status;
}

static gp_status build_state(gp_trainer *trainer, const gp_trainer_setup *setup, gp_error *err)
{
    gp_status status = gp_schedule_init(&trainer->schedule, &trainer->options, trainer->graph,
                                        &trainer->data.shape, trainer->data.validation.store != NULL, err);

    if (status == GP_OK)
        status = gp_train_data_start(&trainer->data, &trainer->options, trainer->schedule.micro_batch, err);
    if (status == GP_OK)
        status = gp_exchange_init(&trainer->exchange, trainer->graph, &trainer->options, trainer->control,
                                  trainer->backend_ops->steps != NULL, err);
    if (status == GP_OK)
        status = trainer_take_memory(trainer, setup, err);
    if (status == GP_OK)
        status = gp_optim_new(&trainer->optim, trainer->graph, &trainer->options, err);
    return status;
}

static gp_status build_group(gp_trainer *trainer, const gp_trainer_setup *setup, gp_error *err)
{
    gp_shards *shards = &trainer->shards;
    const int64_t hash = (int64_t)(gp_graph_layout_hash(trainer->graph) >> 1);
    const int64_t step = (int64_t)trainer->progress.step;
    int64_t seen[] = { hash, -hash, step, -step };
    gp_status status = GP_OK;

    /* Decide whether the ranks share one state copy. If so, a rank whose own copy is not needed
     * frees it before the group allocates memory. */
    if (setup->group->world > 1 && trainer->backend_ops->rebind != NULL)
        status = gp_shards_init(shards, trainer->graph, &trainer->options, setup->shard_minimum,
                                trainer->schedule.batch, err);
    if (status == GP_OK && shards->active && !trainer->restarted && setup->group->rank != GP_SHARD_OWNER) {
        gp_free(trainer->parameters);
        trainer->parameters = NULL;
        gp_optim_place_state(trainer->optim, NULL);
    }
    if (status == GP_OK)
        status = trainer_join(trainer, setup->group, err);
    /* Check that all ranks have the same parameter layout, because they sum parameters elementwise,
     * and that all resumed from the same checkpoint: each rank reads the directory itself. */
    if (status == GP_OK)
        status = gp_comm_all_reduce_private(trainer->comm, seen, sizeof(seen) / sizeof(seen[0]), GP_I64,
                                            GP_COMM_MAX, err);
    if (status == GP_OK && (seen[0] != hash || seen[1] != -hash))
        status =
            gp_fail(err, GP_EPROTO, "the ranks have different layouts of network %s", trainer->spec->name);
    if (status == GP_OK && trainer->restarted)
        status = gp_trainer_agree(trainer, setup, err);
    else if (status == GP_OK && seen[2] != -seen[3])
        status = gp_fail(err, GP_ESTATE,
                         "the ranks resumed from different checkpoints, of steps %" PRId64 " and %" PRId64
                         ": one was written meanwhile, or a worker could not read the newest; resume again",
                         -seen[3], seen[2]);
    if (status == GP_OK)
        status = gp_shards_place(shards, &trainer->parameters, trainer->graph, trainer->optim,
                                 &trainer->exchange, err);
    if (status == GP_OK)
        status = gp_train_data_compare(&trainer->data, trainer->comm, err);
    if (status == GP_OK)
        status = gp_exchange_couple(&trainer->exchange, trainer->graph, &trainer->options, err);
    return status;
}

static gp_status trainer_build(gp_trainer *trainer, const gp_trainer_setup *setup, gp_train_ready *ready,
                               gp_error *err)
{
    int64_t begin_ns = gp_now_ns(), built_ns[BUILT_COUNT];
    double ms[BUILT_COUNT];
    char missing[GP_MISSING_PLANS_BYTES];
    gp_status status = build_data(trainer, setup, err);

    built_ns[BUILT_DATA] = gp_now_ns();
    if (status == GP_OK)
        status = build_state(trainer, setup, err);
    if (status == GP_OK)
        status = trainer_begin_state(trainer, setup, err);
    built_ns[BUILT_STATE] = gp_now_ns();
    if (status == GP_OK)
        status = build_group(trainer, setup, err);
    built_ns[BUILT_GROUP] = gp_now_ns();
    if (status == GP_OK)
        status = compile_plans(trainer, true, err);
    if (status == GP_OK && gp_missing_plans_format(trainer->backend_ops, trainer->plan, missing))
        gp_train_notes_add(&trainer->notes, true, "%s", missing);
    if (status == GP_OK)
        status = gp_train_tuning_end(&trainer->tuning, &trainer->notes, err);
    trainer->frame.plans = gp_train_tuning_document(&trainer->tuning);
    if (status == GP_OK)
        status = gp_pipeline_open(&trainer->pipeline, trainer->plan, trainer->optim, &trainer->notes, err);
    built_ns[BUILT_PLANS] = gp_now_ns();
    for (int i = 0; i < BUILT_COUNT; i++)
        ms[i] = (double)(built_ns[i] - (i == 0 ? begin_ns : built_ns[i - 1])) * 1e-6;
    gp_log(GP_LOG_DEBUG, "training-built",
           "set up a training: data %.1f ms, state %.1f ms, group %.1f ms, plans %.1f ms", ms[BUILT_DATA],
           ms[BUILT_STATE], ms[BUILT_GROUP], ms[BUILT_PLANS]);
    ready->data_ms = ms[BUILT_DATA];
    ready->network_ms = ms[BUILT_STATE] + ms[BUILT_PLANS];
    return status;
}

/* Return the bytes for parameters, state, exchange, plans and prefetched batches on this rank. */
static uint64_t memory_bytes(const gp_trainer *trainer, const gp_store_info *data)
{
    const size_t blob_bytes = trainer->graph->blob_count * sizeof(float);
    uint64_t bytes = 3 * blob_bytes + trainer->backend_ops->memory_bytes(trainer->plan) +
                     GP_TRAIN_PREFETCH * (uint64_t)trainer->schedule.micro_batch *
                         (data->sample_bytes + data->target_bytes);

    if (trainer->options.reproducible)
        bytes += 2 * trainer->graph->blob_count * sizeof(int64_t);
    if (trainer->validation_plan != NULL)
        bytes += trainer->backend_ops->memory_bytes(trainer->validation_plan);
    /* shards replace parameters and state, and are in the owner's memory */
    if (trainer->shards.active)
        bytes -= 2 * blob_bytes;
    if (trainer->shards.active && gp_comm_rank(trainer->comm) == GP_SHARD_OWNER)
        bytes += gp_shards_bytes(&trainer->shards, trainer->graph, trainer->optim);
    return bytes;
}

static gp_trainer *trainer_begin(const gp_trainer_setup *setup, gp_error *err)
{
    gp_trainer *trainer = gp_calloc(1, sizeof(*trainer));

    if (trainer == NULL) {
        gp_fail(err, GP_ENOMEM, "no memory for a trainer");
        return NULL;
    }
    trainer->control = setup->control;
    trainer->backend_ops = setup->backend_ops;
    trainer->backend = setup->backend;
    trainer->restarted = setup->begin->restart > 0;
    trainer->schedule.rank = setup->group->rank;
    trainer->schedule.world = setup->group->world;
    trainer->tuning = (gp_train_tuning){ .options = &trainer->options,
                                         .backend_ops = setup->backend_ops,
                                         .backend = setup->backend,
                                         .control = setup->control,
                                         .restarted = trainer->restarted };
    trainer->pipeline = (gp_pipeline){ .ops = setup->backend_ops->steps,
                                       .backend = setup->backend,
                                       .options = &trainer->options,
                                       .schedule = &trainer->schedule,
                                       .data = &trainer->data,
                                       .exchange = &trainer->exchange,
                                       .progress = &trainer->progress };
    return trainer;
}

gp_status gp_trainer_prepare(gp_carry_over **out, const gp_trainer_setup *setup, uint64_t lease,
                             gp_error *err)
{
    gp_trainer *trainer = trainer_begin(setup, err);
    int64_t begin_ns = gp_now_ns(), data_ns;

    *out = NULL;
    if (trainer == NULL)
        return GP_ENOMEM;
    gp_status status = build_data(trainer, setup, err);

    data_ns = gp_now_ns();
    if (status == GP_OK && atomic_load(&trainer->control->stop) == 2)
        status = gp_fail(err, GP_ECANCELED, "stopped during preparation");
    if (status == GP_OK)
        status = build_state(trainer, setup, err);
    if (status == GP_OK)
        status = gp_exchange_place(&trainer->exchange, NULL, trainer->options.reproducible, false, err);
    if (status == GP_OK) /* the plans that a rank of a future group will have */
        status = compile_plans(trainer, false, err);
    gp_log(GP_LOG_DEBUG, "training-prepared", "prepared to join a training: data %.1f ms, other %.1f ms",
           (double)(data_ns - begin_ns) * 1e-6, (double)(gp_now_ns() - data_ns) * 1e-6);
    *out = gp_trainer_hold_data(trainer, lease);
    gp_trainer_free(trainer);
    return status;
}

gp_status gp_trainer_new(gp_trainer **out, gp_train_ready *ready, const gp_trainer_setup *setup,
                         gp_error *err)
{
    gp_trainer *trainer = trainer_begin(setup, err);
    int64_t begin_ns = gp_now_ns();

    if (trainer == NULL)
        return GP_ENOMEM;
    *ready = (gp_train_ready){ 0 };
    gp_status status = trainer_build(trainer, setup, ready, err);

    if (status != GP_OK) {
        gp_carry_over_return_stores(setup->held, trainer->graph, &trainer->data);
        gp_trainer_free(trainer);
        return status;
    }
    const gp_schedule *schedule = &trainer->schedule;
    const gp_store *validation = trainer->data.validation.store;
    uint32_t first;

    ready->rank = schedule->rank;
    ready->world = schedule->world;
    ready->samples = schedule->samples;
    ready->validation_samples = validation == NULL ? 0 : gp_store_get_info(validation)->count;
    ready->steps_per_epoch = gp_schedule_steps_per_epoch(schedule);
    ready->batch = schedule->batch;
    ready->parameters = trainer->graph->learned_count;
    ready->classes = trainer->graph->class_count;
    ready->memory_bytes = memory_bytes(trainer, &trainer->data.shape);
    ready->step = trainer->progress.step;
    gp_schedule_share(schedule, schedule->batch, &first, &ready->batch_rank);
    ready->ready_ms = (double)(gp_now_ns() - begin_ns) * 1e-6;
    *out = trainer;
    return GP_OK;
}

const float *gp_trainer_weights(const gp_trainer *trainer, size_t *count)
{
    bool best = trainer->best != NULL && isfinite(trainer->progress.best_loss);

    *count = trainer->graph->blob_count;
    return best ? trainer->best : trainer->parameters;
}

const char *gp_trainer_classes(const gp_trainer *trainer)
{
    return trainer->data.classes;
}
