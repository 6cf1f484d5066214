/* trainer_population.c -- batch normalization statistics over the whole training data.
 *
 * The moving averages of the steps lag behind the parameters. With `batch-norm-statistics
 * population`, one more pass over the data follows the training: mini-batches as in an epoch,
 * forward only. Each layer's moments are summed over all mini-batches and ranks, and replace the
 * running statistics. */
#include <string.h>

#include "common/base/memory/alloc.h"
#include "worker/train/trainer_state.h"

/* Add a call's sums to the totals, in blob order, or with `put` write the totals back. The plan
 * writes the sums in place of the gradients of the statistics. Return the number of totals. */
static size_t totals_move(const gp_graph *graph, float *gradients, double *totals, bool put)
{
    size_t count = 0;

    for (uint32_t p = 0; p < graph->parameter_count; p++) {
        const gp_parameter *parameter = &graph->parameters[p];

        for (int64_t i = 0; parameter->statistic != GP_STATISTIC_NONE && i < parameter->count; i++) {
            float *sum = &gradients[parameter->offset + (size_t)i];

            if (put)
                *sum = (float)totals[count];
            else
                totals[count] += (double)*sum;
            count++;
        }
    }
    return count;
}

/* Compute this rank's share of the mini-batch at position `first` in one call, because batch
 * normalization couples the samples. */
static gp_status population_call(gp_trainer *trainer, uint32_t first, uint32_t *share, gp_error *err)
{
    const gp_schedule *schedule = &trainer->schedule;
    gp_loader *loader = trainer->data.training.loader;
    gp_loader_batch *loaded;
    uint32_t share_first;
    gp_status status;

    gp_schedule_share(schedule, gp_schedule_batch(schedule, first), &share_first, share);
    status = gp_loader_request(loader, 0, first + share_first, *share, err);
    if (status == GP_OK)
        status = gp_loader_take(loader, &loaded, NULL, err);
    if (status != GP_OK)
        return status;
    status = trainer->backend_ops->run(trainer->plan,
                                       &(gp_batch){
                                           .samples = loaded->samples,
                                           .targets = loaded->targets,
                                           .count = *share,
                                           .first = true,
                                           .last = true,
                                           .forward_only = true,
                                           .seed = (uint64_t)trainer->options.seed,
                                           .step = trainer->progress.step,
                                           .position = share_first,
                                           .coupling = gp_exchange_coupling(&trainer->exchange),
                                       },
                                       NULL, NULL, err);
    if (status == GP_OK)
        status = trainer->backend_ops->sync(trainer->backend, err);
    gp_loader_release(loader, loaded);
    gp_train_control_progress(trainer->control);
    return status;
}

/* If the ranks share one copy, wait until no rank accesses the shared parameters. */
static gp_status common_barrier(gp_trainer *trainer, gp_error *err)
{
    return trainer->shards.active ? gp_comm_barrier(trainer->comm, err) : GP_OK;
}

/* Return whether this rank writes the parameters. Of ranks that share one copy, only the owner
 * does. */
static bool writes_parameters(const gp_trainer *trainer)
{
    return !trainer->shards.active || gp_comm_rank(trainer->comm) == GP_SHARD_OWNER;
}

gp_status gp_trainer_population(gp_trainer *trainer, gp_error *err)
{
    const gp_graph *graph = trainer->graph;
    const bool writes = writes_parameters(trainer);
    const size_t blob_bytes = graph->blob_count * sizeof(float);
    float *gradients = trainer->exchange.gradients;
    size_t count;
    const float *kept = gp_trainer_weights(trainer, &count);
    gp_status status = GP_OK;
    double *totals = gp_calloc(graph->blob_count, sizeof(*totals));

    if (totals == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for the statistics of the whole training data");
    status = common_barrier(trainer, err);
    if (kept != trainer->parameters && writes && status == GP_OK)
        memcpy(trainer->parameters, kept, blob_bytes);
    if (status == GP_OK)
        status = common_barrier(trainer, err);
    gp_loader_cancel(trainer->data.training.loader); /* requests left over after a stop */
    /* Sum the moments of all mini-batches on this rank. */
    for (uint32_t first = 0, share; first < trainer->data.shape.count && status == GP_OK;
         first += gp_schedule_batch(&trainer->schedule, first)) {
        if (atomic_load(&trainer->control->stop) > 1)
            status = gp_fail(err, GP_ECANCELED, "stopped while collecting statistics");
        else
            status = population_call(trainer, first, &share, err);
        if (status == GP_OK && share > 0)
            totals_move(graph, gradients, totals, false);
    }
    memset(gradients, 0, blob_bytes);
    if (status == GP_OK) {
        count = totals_move(graph, gradients, totals, false); /* the gradients are 0: counts only */
        status = gp_comm_all_reduce_private(trainer->comm, totals, count, GP_F64, GP_COMM_SUM, err);
    }
    if (status == GP_OK) {
        totals_move(graph, gradients, totals, true);
        if (writes) /* all ranks have reached the sum, so no rank reads the parameters */
            gp_statistics_commit(graph, trainer->parameters, gradients, trainer->data.shape.count, true);
        status = common_barrier(trainer, err);
        if (kept != trainer->parameters && status == GP_OK)
            memcpy(trainer->best, trainer->parameters, blob_bytes);
    }
    gp_free(totals);
    return status;
}
