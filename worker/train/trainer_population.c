/* trainer_population.c -- running statistics of the whole training data for the weights that are kept.
 *
 * The averages that the steps moved lag behind the weights.  `batch-norm-statistics population` goes through the data
 * once more when training has ended: mini-batches as in an epoch, forward only, each layer's moments summed over all of
 * them and all ranks, and the running statistics replaced by the moments of the whole. */
#include <string.h>

#include "common/base/memory/alloc.h"
#include "worker/train/trainer_state.h"

/* What the call left where statistics have their sums is added to the totals, one after the other. */
static size_t totals_add(const gp_trainer *trainer, double *totals)
{
    size_t count = 0;

    for (uint32_t p = 0; p < trainer->graph->parameter_count; p++) {
        const gp_parameter *parameter = &trainer->graph->parameters[p];

        for (int64_t i = 0; parameter->statistic != GP_STATISTIC_NONE && i < parameter->count; i++)
            totals[count++] += (double)trainer->gradients[parameter->offset + (size_t)i];
    }
    return count;
}

static void totals_put(gp_trainer *trainer, const double *totals)
{
    for (uint32_t p = 0; p < trainer->graph->parameter_count; p++) {
        const gp_parameter *parameter = &trainer->graph->parameters[p];

        for (int64_t i = 0; parameter->statistic != GP_STATISTIC_NONE && i < parameter->count; i++)
            trainer->gradients[parameter->offset + (size_t)i] = (float)*totals++;
    }
}

/* Our share of the mini-batch that begins at position `first`, which is one call: batch norm couples its samples. */
static gp_status population_call(gp_trainer *trainer, uint32_t first, double *totals, gp_error *err)
{
    uint32_t left = trainer->sampler.count - first, share_first, share;
    uint32_t batch = left < trainer->world_batch ? left : trainer->world_batch;
    gp_loader_batch *loaded;
    gp_status status;

    gp_trainer_share(trainer, batch, trainer->rank, &share_first, &share);
    status = gp_loader_request(trainer->loader, 0, first + share_first, share, err);
    if (status == GP_OK)
        status = gp_loader_take(trainer->loader, &loaded, NULL, err);
    if (status != GP_OK)
        return status;
    status = trainer->backend_ops->run(trainer->plan,
                                       &(gp_batch){
                                           .samples = loaded->samples,
                                           .targets = loaded->targets,
                                           .count = share,
                                           .first = true,
                                           .last = true,
                                           .forward_only = true,
                                           .seed = (uint64_t)trainer->options.seed,
                                           .step = trainer->step,
                                           .position = share_first,
                                           .coupling = gp_trainer_coupling(trainer),
                                       },
                                       NULL, NULL, err);
    if (status == GP_OK)
        status = trainer->backend_ops->sync(trainer->backend, err);
    gp_loader_release(trainer->loader, loaded);
    atomic_fetch_add_explicit(&trainer->control->progress, 1, memory_order_relaxed);
    if (status == GP_OK && share > 0)
        totals_add(trainer, totals);
    return status;
}

/* Nobody reads the ranks' common parameters before a rank that writes them is through with it, or while it does. */
static gp_status common_barrier(gp_trainer *trainer, gp_error *err)
{
    return trainer->sharded ? gp_comm_barrier(trainer->comm, err) : GP_OK;
}

gp_status gp_trainer_population(gp_trainer *trainer, gp_error *err)
{
    const bool writes = !trainer->sharded || trainer->rank == 0;
    const size_t blob_bytes = trainer->graph->blob_count * sizeof(float);
    size_t count;
    const float *kept = gp_trainer_weights(trainer, &count);
    gp_status status = GP_OK;
    double *totals;

    totals = gp_calloc(trainer->graph->blob_count, sizeof(*totals));
    if (totals == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for the statistics of the whole training data");
    status = common_barrier(trainer, err);
    if (kept != trainer->parameters && writes && status == GP_OK)
        memcpy(trainer->parameters, kept, blob_bytes);
    if (status == GP_OK)
        status = common_barrier(trainer, err);
    gp_loader_cancel(trainer->loader); /* what a stop left requested */
    for (uint32_t first = 0; first < trainer->sampler.count && status == GP_OK;
         first += trainer->world_batch) {
        if (atomic_load(&trainer->control->stop) > 1)
            status = gp_fail(err, GP_ECANCELED, "stopped while the statistics were taken");
        else
            status = population_call(trainer, first, totals, err);
    }
    memset(trainer->gradients, 0, blob_bytes);
    if (status == GP_OK) {
        count = totals_add(trainer, totals); /* adds zeros */
        status = gp_comm_all_reduce_private(trainer->comm, totals, count, GP_F64, GP_COMM_SUM, err);
    }
    if (status == GP_OK) {
        totals_put(trainer, totals);
        if (writes) /* nobody reads: all have come to the sum */
            gp_statistics_set(trainer->graph, trainer->parameters, trainer->gradients,
                              trainer->sampler.count);
        status = common_barrier(trainer, err);
        if (kept != trainer->parameters && status == GP_OK)
            memcpy(trainer->best, trainer->parameters, blob_bytes);
    }
    gp_free(totals);
    return status;
}
