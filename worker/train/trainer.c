/* trainer.c -- building one rank's training: everything that takes memory or can be refused. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/base/memory/alloc.h"
#include "common/base/clock.h"
#include "common/base/system/fault.h"
#include "common/base/text/log.h"
#include "worker/train/trainer_state.h"

void gp_trainer_free(gp_trainer *trainer)
{
    if (trainer == NULL)
        return;
    gp_train_control_set_comm(trainer->control, NULL, 0);
    gp_saver_free(trainer->saver); /* first: it borrows the graph */
    if (trainer->plan != NULL)
        trainer->backend_ops->free(trainer->plan);
    if (trainer->validation_plan != NULL)
        trainer->backend_ops->free(trainer->validation_plan);
    gp_trainer_keep_end(trainer);
    gp_loader_free(trainer->loader);
    gp_loader_free(trainer->validation_loader);
    gp_comm_free(trainer->comm); /* the arena goes with it */
    if (trainer->own_sums) {
        gp_free(trainer->header);
        gp_free(trainer->gradients);
    }
    gp_optim_free(trainer->optim);
    if (!trainer->sharded)
        gp_free(trainer->parameters);
    gp_free(trainer->best);
    gp_free(trainer->factors);
    gp_free(trainer->buckets);
    gp_tuning_deinit(&trainer->tuning);
    gp_free(trainer->plans);
    gp_free(trainer->classes);
    gp_free(trainer->loads);
    gp_free(trainer->coupling.sums);
    gp_graph_free(trainer->graph);
    gp_netspec_free(trainer->spec);
    if (!trainer->kept_stores) {
        gp_store_close(trainer->data);
        gp_store_close(trainer->validation);
    }
    gp_free(trainer);
}

/* ---- the state it begins with ---- */

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
    return GP_OK;
}

static gp_status trainer_take_memory(gp_trainer *trainer, const gp_trainer_setup *setup, gp_error *err)
{
    size_t count = trainer->graph->blob_count;

    if (setup->weights != NULL && setup->weights_count != count)
        return gp_fail(err, GP_EPROTO, "%zu initial weights for a network of %zu", setup->weights_count,
                       count);
    trainer->parameters = gp_aligned_calloc(64, count * sizeof(float));
    if (trainer->parameters == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for %zu parameters", count);
    trainer->best_loss = INFINITY;
    trainer->loss_scale = gp_loss_scale_begin(&trainer->options);
    if (trainer->validation != NULL && gp_train_keeps_best(&trainer->options)) {
        trainer->best = gp_malloc(count * sizeof(float));
        if (trainer->best == NULL)
            return gp_fail(err, GP_ENOMEM, "no memory to keep the best %zu parameters", count);
    }
    return GP_OK;
}

void gp_trainer_checkpoint(gp_trainer *trainer, gp_checkpoint *out)
{
    uint64_t *optim_step;

    *out = (gp_checkpoint){ .step = trainer->step,
                            .epoch = trainer->epoch,
                            .first = trainer->first,
                            .best_loss = trainer->best_loss,
                            .no_better = trainer->no_better,
                            .loss_scale = trainer->loss_scale.scale,
                            .loss_scale_good = trainer->loss_scale.good,
                            .is_best = isfinite(trainer->best_loss) && trainer->no_better == 0,
                            .parameters = trainer->parameters,
                            .best = trainer->best };
    out->state = gp_optim_state(trainer->optim, &out->state_blobs, &optim_step);
    out->optim_step = *optim_step;
}

void gp_trainer_stand(gp_trainer *trainer, const gp_checkpoint *at)
{
    uint32_t blobs;
    uint64_t *optim_step;

    gp_optim_state(trainer->optim, &blobs, &optim_step);
    *optim_step = at->optim_step;
    trainer->step = at->step;
    trainer->epoch = at->epoch;
    trainer->first = at->first;
    trainer->best_loss = at->best_loss;
    trainer->no_better = at->no_better;
    if (trainer->loss_scale.scale > 0 && at->loss_scale > 0)
        trainer->loss_scale = (gp_loss_scale){ .scale = at->loss_scale, .good = at->loss_scale_good };
}

/* Every rank reads the same file. */
static gp_status trainer_resume(gp_trainer *trainer, gp_error *err)
{
    gp_checkpoint checkpoint;

    gp_trainer_checkpoint(trainer, &checkpoint);
    gp_status status =
        gp_checkpoint_read(&checkpoint, &trainer->frame, trainer->options.resume, trainer->damaged, err);

    if (status != GP_OK)
        return status;
    trainer->plans = checkpoint.plans;
    if (checkpoint.first >= trainer->shape.count)
        return gp_fail(err, GP_ECORRUPT,
                       "the checkpoint of step %" PRIu64 " stands at sample %" PRIu32 " of %" PRIu32,
                       checkpoint.step, checkpoint.first, trainer->shape.count);
    gp_trainer_stand(trainer, &checkpoint);
    /* A run that is complete takes no step: it validates once more, so that its result has the numbers. */
    trainer->owes_validation = checkpoint.epoch >= trainer->options.max_epochs && trainer->validation != NULL;
    snprintf(trainer->resumed, sizeof(trainer->resumed), "resumed after step %" PRIu64 " of %.200s",
             trainer->step, trainer->options.resume);
    return GP_OK;
}

/* What the group before left; else what a training begins with, which one that joins later needs only if nobody else has
 * more. */
static gp_status trainer_begin_state(gp_trainer *trainer, const gp_trainer_setup *setup, gp_error *err)
{
    gp_checkpoint now;
    gp_status status = GP_OK;

    trainer->frame = (gp_checkpoint_frame){ .graph = trainer->graph,
                                            .options = &trainer->options,
                                            .data_fingerprint = gp_store_get_info(trainer->data)->fingerprint,
                                            .world = trainer->world };
    if (!gp_trainer_take(trainer, setup->held)) {
        trainer->blank = trainer->again && trainer->options.resume[0] == '\0';
        if (!trainer->blank)
            status = gp_trainer_initialize(trainer, setup, err);
        if (status == GP_OK && trainer->options.resume[0] != '\0')
            status = trainer_resume(trainer, err);
    }
    if (trainer->again) /* the first group has reported both */
        trainer->resumed[0] = trainer->damaged[0] = '\0';
    if (status != GP_OK || trainer->options.checkpoint_path[0] == '\0' || trainer->rank != 0)
        return status;
    gp_trainer_checkpoint(trainer, &now);
    return gp_saver_new(&trainer->saver, trainer->options.checkpoint_path, &trainer->frame, now.state_blobs,
                        now.best != NULL, err);
}

/* ---- the whole ---- */

/* Where the time of a beginning goes; after a death or a resize it is what all wait for. */
enum { BUILT_DATA, BUILT_STATE, BUILT_GROUP, BUILT_PLANS, BUILT_COUNT };

/* Parts of the time that a training took to get ready. */
typedef struct build_times {
    double data_ms, network_ms;
} build_times;

static void take_times(build_times *times, int64_t begin_ns, const int64_t built_ns[BUILT_COUNT])
{
    double ms[BUILT_COUNT];

    for (int i = 0; i < BUILT_COUNT; i++)
        ms[i] = (double)(built_ns[i] - (i == 0 ? begin_ns : built_ns[i - 1])) * 1e-6;
    gp_log(GP_LOG_DEBUG, "training-built",
           "a training is built: data %.1f ms, state %.1f ms, group %.1f ms, plans %.1f ms", ms[BUILT_DATA],
           ms[BUILT_STATE], ms[BUILT_GROUP], ms[BUILT_PLANS]);
    *times = (build_times){ .data_ms = ms[BUILT_DATA], .network_ms = ms[BUILT_STATE] + ms[BUILT_PLANS] };
}

static gp_status build_data(gp_trainer *trainer, const gp_trainer_setup *setup, gp_error *err)
{
    gp_status status =
        gp_train_options_from_json(&trainer->options, setup->options, setup->options_bytes, err);

    if (status == GP_OK)
        status = gp_netspec_from_json(&trainer->spec, setup->netspec, setup->netspec_bytes, err);
    if (status == GP_OK)
        status = gp_graph_new(&trainer->graph, trainer->spec, err);
    if (status == GP_OK)
        status = gp_trainer_open_data(trainer, setup, err);
    gp_fault_point("loading");
    return status;
}

static gp_status build_state(gp_trainer *trainer, const gp_trainer_setup *setup, gp_error *err)
{
    gp_status status = gp_trainer_check_batch(trainer, err);

    if (status == GP_OK)
        status = gp_trainer_new_loaders(trainer, err);
    if (status == GP_OK)
        status = gp_trainer_name_classes(trainer, err);
    if (status == GP_OK)
        status = gp_trainer_cut_buckets(trainer, err);
    if (status == GP_OK)
        status = trainer_take_memory(trainer, setup, err);
    if (status == GP_OK)
        status = gp_optim_new(&trainer->optim, trainer->graph, &trainer->options, err);
    return status;
}

static gp_status trainer_build(gp_trainer *trainer, const gp_trainer_setup *setup, build_times *times,
                               gp_error *err)
{
    int64_t begin_ns = gp_now_ns(), built_ns[BUILT_COUNT];
    gp_status status = build_data(trainer, setup, err);

    built_ns[BUILT_DATA] = gp_now_ns();
    if (status == GP_OK)
        status = build_state(trainer, setup, err);
    if (status == GP_OK)
        status = trainer_begin_state(trainer, setup, err);
    built_ns[BUILT_STATE] = gp_now_ns();
    if (status == GP_OK && gp_trainer_shards(trainer)) {
        gp_trainer_shard_release(trainer);
        status = gp_trainer_choose_factors(trainer, err);
    }
    if (status == GP_OK)
        status = gp_trainer_join(trainer, setup->group, err);
    if (status == GP_OK)
        status = gp_trainer_check_layout(trainer, err);
    if (status == GP_OK && trainer->again)
        status = gp_trainer_agree(trainer, setup, err);
    if (status == GP_OK && gp_trainer_shards(trainer))
        status = gp_trainer_shard_state(trainer, err);
    if (status == GP_OK)
        status = gp_trainer_place_factors(trainer, err);
    if (status == GP_OK)
        status = gp_trainer_check_data(trainer, err);
    if (status == GP_OK)
        status = gp_trainer_couple(trainer, err);
    built_ns[BUILT_GROUP] = gp_now_ns();
    if (status == GP_OK)
        status = gp_trainer_compile(trainer, err);
    if (status == GP_OK)
        status = gp_trainer_keep(trainer, err);
    built_ns[BUILT_PLANS] = gp_now_ns();
    take_times(times, begin_ns, built_ns);
    return status;
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
        .step = trainer->step,
        .memory_bytes =
            3 * blob_bytes + trainer->backend_ops->memory_bytes(trainer->plan) +
            LOADER_DEPTH * (uint64_t)trainer->micro_batch * (data->sample_bytes + data->target_bytes),
    };
    gp_trainer_share(trainer, trainer->world_batch, trainer->rank, &first, &ready->batch_rank);
    if (trainer->sharded && trainer->rank == 0)
        ready->memory_bytes +=
            gp_trainer_shard_bytes(trainer) + gp_trainer_factor_bytes(trainer) - 2 * blob_bytes;
    else if (trainer->sharded)
        ready->memory_bytes -= 2 * blob_bytes;
    if (trainer->options.reproducible)
        ready->memory_bytes += 2 * trainer->graph->blob_count * sizeof(int64_t);
    if (trainer->validation_plan != NULL)
        ready->memory_bytes += trainer->backend_ops->memory_bytes(trainer->validation_plan);
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
    trainer->rank = setup->group->rank;
    trainer->world = setup->group->world;
    trainer->again = setup->begin->restart > 0;
    trainer->shard_minimum = setup->shard_minimum;
    return trainer;
}

static gp_status check_stopped(const gp_trainer *trainer, gp_error *err)
{
    return atomic_load(&trainer->control->stop) == 2 ? gp_fail(err, GP_ECANCELED, "stopped while it prepared")
                                                     : GP_OK;
}

gp_status gp_trainer_prepare(gp_train_held **out, const gp_trainer_setup *setup, uint64_t lease,
                             gp_error *err)
{
    gp_trainer *trainer = trainer_begin(setup, err);
    int64_t begin_ns = gp_now_ns(), data_ns;

    *out = NULL;
    if (trainer == NULL)
        return GP_ENOMEM;
    gp_status status = build_data(trainer, setup, err);

    data_ns = gp_now_ns();
    if (status == GP_OK)
        status = check_stopped(trainer, err);
    if (status == GP_OK)
        status = build_state(trainer, setup, err);
    if (status == GP_OK)
        status = gp_trainer_rehearse(trainer, err);
    gp_log(GP_LOG_DEBUG, "training-prepared", "prepared to join a training: data %.1f ms, the rest %.1f ms",
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
    build_times times;
    gp_status status = trainer_build(trainer, setup, &times, err);

    if (status != GP_OK) {
        gp_trainer_return_stores(trainer, setup->held);
        gp_trainer_free(trainer);
        return status;
    }
    trainer_describe(trainer, ready);
    ready->ready_ms = (double)(gp_now_ns() - begin_ns) * 1e-6;
    ready->data_ms = times.data_ms;
    ready->network_ms = times.network_ms;
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
