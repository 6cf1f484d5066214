/* trainer_keep.c -- a training whose parameters, solver's state and exchange stay on the device (backend.h, steps).
 *
 * The host's blobs are then as old as the last fetch: who reads them fetches first.  Ranks add up by the device's own
 * library where it joins them all; where one cannot, all take the host's way, gradients through shared memory. */
#include "common/base/log.h"
#include "worker/trainer_state.h"

static bool keep_possible(const gp_trainer *trainer)
{
    return trainer->backend_ops->steps != NULL && !trainer->options.reproducible &&
           trainer->coupling.sums == NULL && trainer->options.batch_norm_statistics == GP_STATISTICS_MOVING;
}

static bool keep_stopped(void *context)
{
    const gp_trainer *trainer = context;

    return atomic_load_explicit(&trainer->control->stop, memory_order_relaxed) > 1;
}

/* *joined: all ranks are in one group of the device's library. */
static gp_status keep_join(gp_trainer *trainer, bool *joined, gp_error *err)
{
    const gp_backend_steps *steps = trainer->backend_ops->steps;
    gp_group group = {
        .rank = trainer->rank, .world = trainer->world, .stopped = keep_stopped, .context = trainer
    };
    int64_t failed = 0;
    gp_error why = { 0 };
    gp_status status;

    *joined = true;
    if (trainer->world == 1)
        return steps->join(trainer->backend, &group, err);
    if (trainer->rank == 0)
        failed = steps->group_id(group.id, &why) != GP_OK;
    status = gp_comm_broadcast_private(trainer->comm, group.id, sizeof(group.id), 0, err);
    if (status == GP_OK)
        status = gp_comm_all_reduce_private(trainer->comm, &failed, 1, GP_I64, GP_COMM_MAX, err);
    if (status == GP_OK && failed == 0) {
        failed = steps->join(trainer->backend, &group, &why) != GP_OK;
        status = gp_comm_all_reduce_private(trainer->comm, &failed, 1, GP_I64, GP_COMM_MAX, err);
    }
    if (status == GP_OK && failed != 0) {
        steps->leave(trainer->backend);
        gp_log(GP_LOG_WARN, "GPUs do not exchange by themselves, gradients go through the host's memory: %s",
               why.message[0] == '\0' ? "another rank cannot" : why.message);
        *joined = false;
    }
    return status;
}

gp_status gp_trainer_keep(gp_trainer *trainer, gp_error *err)
{
    bool joined = false;
    uint64_t *step;
    gp_keep keep = { .options = &trainer->options };
    gp_status status;

    if (!keep_possible(trainer)) /* on all ranks or on none: it is of the options and the kind of device */
        return GP_OK;
    status = keep_join(trainer, &joined, err);
    if (status != GP_OK || !joined)
        return status;
    keep.state = gp_optim_state(trainer->optim, &keep.state_blobs, &step);
    status = trainer->backend_ops->steps->keep(trainer->plan, &keep, err);
    trainer->kept = status == GP_OK;
    return status;
}

void gp_trainer_keep_end(gp_trainer *trainer)
{
    if (trainer->backend_ops->steps != NULL && trainer->backend != NULL)
        trainer->backend_ops->steps->leave(trainer->backend);
}

gp_status gp_trainer_keep_reduce(gp_trainer *trainer, uint64_t samples, gp_error *err)
{
    double sums[GP_SUMS + 1];
    gp_status status;

    sums[GP_SUMS] = (double)samples;
    status = trainer->backend_ops->steps->reduce(trainer->plan, sums, err);
    if (status != GP_OK)
        return status;
    for (int i = 0; i < GP_SUMS; i++)
        trainer->header[i] = sums[i];
    trainer->header[HEADER_SAMPLES] = sums[GP_SUMS];
    trainer->header[HEADER_STOP] = atomic_load(&trainer->control->stop) == 1;
    trainer->header[HEADER_PAUSE] = atomic_load(&trainer->control->pause);
    return gp_comm_all_reduce(trainer->comm, &trainer->header[HEADER_STOP], 2, GP_F64, GP_COMM_SUM, err);
}

gp_status gp_trainer_keep_commit(gp_trainer *trainer, double learn_rate, gp_error *err)
{
    uint32_t blobs;
    uint64_t *step;
    gp_status status;

    gp_optim_state(trainer->optim, &blobs, &step);
    status = trainer->backend_ops->steps->commit(trainer->plan, learn_rate, *step + 1, err);
    if (status != GP_OK)
        return status;
    ++*step;
    trainer->stale = true;
    return GP_OK;
}

gp_status gp_trainer_fetch(gp_trainer *trainer, gp_error *err)
{
    uint32_t blobs;
    uint64_t *step;
    gp_status status = GP_OK;

    if (!trainer->stale)
        return GP_OK;
    status = trainer->backend_ops->steps->fetch(trainer->plan, trainer->parameters,
                                                gp_optim_state(trainer->optim, &blobs, &step), err);
    trainer->stale = status != GP_OK;
    return status;
}
