/* trainer_group.c -- join the group, and compile the plans that write to its memory. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/text/log.h"
#include "worker/train/memory.h"
#include "worker/train/trainer_state.h"

gp_status gp_trainer_join(gp_trainer *trainer, const gp_comm_rendezvous *group, gp_error *err)
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

/* Check that all ranks have the same parameter layout, because they sum parameters elementwise;
 * collective. */
gp_status gp_trainer_check_layout(gp_trainer *trainer, gp_error *err)
{
    int64_t hash = (int64_t)(gp_graph_layout_hash(trainer->graph) >> 1), seen[2] = { hash, -hash };
    gp_status status = gp_comm_all_reduce_private(trainer->comm, seen, 2, GP_I64, GP_COMM_MAX, err);

    if (status == GP_OK && (seen[0] != hash || seen[1] != -hash))
        return gp_fail(err, GP_EPROTO, "the ranks do not agree on the layout of network %s",
                       trainer->spec->name);
    return status;
}

/* Check that the calls of all ranks fit into memory before allocating any; collective. Plans are
 * measured only if the upper bound is near the available memory. All ranks share one host. */
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
        snprintf(parts, sizeof(parts), ", or micro-batch-size %" PRId64 ", which computes it in parts", fits);
    return gp_fail(
        err, GP_ENOMEM,
        "a share of %" PRIu32 " samples of network %s needs about %.1f GiB of memory and each of %" PRIu32
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

/* Compile the plans.
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
        gp_log(GP_LOG_DEBUG, "plan-compiled", "a plan of %" PRIu32 " samples after %.2f ms",
               options.micro_batch, (double)(gp_now_ns() - began_ns) * 1e-6);
    if (status != GP_OK || trainer->data.validation.store == NULL)
        return status;
    options.phase = GP_PHASE_INFER;
    options.sample_dtype = gp_store_get_info(trainer->data.validation.store)->dtype;
    memory.gradients = NULL;
    return trainer->backend_ops->compile(&trainer->validation_plan, trainer->backend, trainer->graph,
                                         &options, &memory, err);
}

gp_status gp_trainer_compile(gp_trainer *trainer, gp_error *err)
{
    gp_status status = compile_plans(trainer, true, err);

    if (status == GP_OK)
        status = gp_train_tuning_end(&trainer->tuning, &trainer->notes, err);
    trainer->frame.plans = gp_train_tuning_document(&trainer->tuning);
    return status;
}

gp_status gp_trainer_rehearse(gp_trainer *trainer, gp_error *err)
{
    gp_status status = gp_exchange_place(&trainer->exchange, NULL, trainer->options.reproducible, false, err);

    return status == GP_OK ? compile_plans(trainer, false, err) : status;
}
