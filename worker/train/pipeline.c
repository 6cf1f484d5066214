/* trainer_keep.c -- a training whose parameters, solver's state and exchange stay on the device (backend.h, steps).
 *
 * The host's blobs are then as old as the last fetch: who reads them fetches first.  Ranks add up by the device's own
 * library where it joins them all; where one cannot, all take the host's way, gradients through shared memory. */
#include <inttypes.h>

#include "common/base/memory/alloc.h"
#include "common/base/clock.h"
#include "common/base/text/log.h"
#include "worker/train/multinode.h"
#include "worker/train/trainer_state.h"

static bool keep_possible(const gp_trainer *trainer)
{
    return trainer->backend_ops->steps != NULL && !trainer->options.reproducible &&
           trainer->coupling.sums == NULL && trainer->options.batch_norm_statistics == GP_STATISTICS_MOVING;
}

/* NCCL may take its time to connect many ranks, but a rank that cannot says so by the other way (keep_join). */
enum { JOIN_S = 60, LEFT_S = 2 };

/* Why it is in vain to wait for the others, asked while the device waits for them. */
static gp_status keep_check(void *context, gp_error *err)
{
    gp_trainer *trainer = context;
    bool left;
    gp_status status = gp_trainer_check_stop(trainer, err);

    if (status == GP_OK)
        status = gp_comm_look(trainer->comm, &left, err);
    if (status != GP_OK)
        return status;
    if (trainer->join_ns != 0 && gp_now_ns() - trainer->join_ns > JOIN_S * (int64_t)1000000000)
        return gp_fail(err, GP_ETIMEDOUT, "the GPUs of %u ranks did not find each other within %d s",
                       trainer->world, JOIN_S);
    if (!left || trainer->left_ns == 0) {
        trainer->left_ns = left ? gp_now_ns() : 0;
        return GP_OK;
    }
    if (gp_now_ns() - trainer->left_ns < LEFT_S * (int64_t)1000000000) /* it may have done its part */
        return GP_OK;
    return gp_fail(err, GP_EPEER, "a rank left the training in step %llu",
                   (unsigned long long)trainer->step + 1);
}

/* NCCL reads its environment when a process first uses it. */
static gp_status keep_multinode(gp_trainer *trainer, gp_error *err)
{
    static bool used, set; /* by the compute thread only */
    gp_multinode found;
    gp_status status = GP_OK;

    if (trainer->options.fast_multinode) {
        status = gp_multinode_look(&found, "", err);
        if (status == GP_OK && used && !set)
            status =
                gp_fail(err, GP_ESTATE,
                        "this worker has used NCCL without fast-multinode, and NCCL reads its settings once; "
                        "begin a new pool (gradpool down)");
        if (status != GP_OK)
            return status;
        gp_multinode_set(&found);
        set = true;
        gp_multinode_describe(&found, trainer->network, sizeof(trainer->network), &trainer->network_slow);
    }
    used = true;
    return GP_OK;
}

/* *joined: all ranks are in one group of the device's library. */
static gp_status keep_join(gp_trainer *trainer, bool *joined, gp_error *err)
{
    const gp_backend_steps *steps = trainer->backend_ops->steps;
    gp_group group = {
        .rank = trainer->rank, .world = trainer->world, .check = keep_check, .context = trainer
    };
    int64_t failed = 0;
    gp_error why = { 0 };
    gp_status status;

    *joined = true;
    if (trainer->world == 1)
        return steps->join(trainer->backend, &group, err);
    failed = keep_multinode(trainer, &why) != GP_OK;
    status = gp_comm_all_reduce_private(trainer->comm, &failed, 1, GP_I64, GP_COMM_MAX, err);
    if (status == GP_OK && failed != 0)
        return gp_fail(err, why.message[0] == '\0' ? GP_EPEER : why.code, "%s",
                       why.message[0] == '\0' ? "another rank's network is not fit for fast-multinode"
                                              : why.message);
    if (status != GP_OK)
        return status;
    if (trainer->rank == 0)
        failed = steps->group_id(group.id, &why) != GP_OK;
    status = gp_comm_broadcast_private(trainer->comm, group.id, sizeof(group.id), 0, err);
    if (status == GP_OK)
        status = gp_comm_all_reduce_private(trainer->comm, &failed, 1, GP_I64, GP_COMM_MAX, err);
    if (status == GP_OK && failed == 0) {
        trainer->join_ns = gp_now_ns();
        failed = steps->join(trainer->backend, &group, &why) != GP_OK;
        gp_log(GP_LOG_DEBUG, "gpu-joined", "%s %" PRIu32 " ranks after %.2f ms",
               failed ? "did not join" : "joined", trainer->world,
               (double)(gp_now_ns() - trainer->join_ns) * 1e-6);
        trainer->join_ns = 0;
        status = gp_comm_all_reduce_private(trainer->comm, &failed, 1, GP_I64, GP_COMM_MAX, err);
    }
    if (status == GP_OK && failed != 0) {
        steps->leave(trainer->backend);
        gp_log(GP_LOG_WARN, "gpu-exchange-indirect",
               "GPUs do not exchange by themselves, gradients go through the host's memory: %s",
               why.message[0] == '\0' ? "another rank cannot" : why.message);
        *joined = false;
    }
    return status;
}

/* ---- data that the device may hold ---- */

enum { READ_ROWS = 1024 };

static gp_status data_read(void *context, uint32_t first, uint32_t count, void *samples, void *targets,
                           gp_error *err)
{
    gp_trainer *trainer = context;
    const gp_store_info *info = gp_store_get_info(trainer->data);
    uint32_t index[READ_ROWS];
    gp_status status = GP_OK;

    for (uint32_t done = 0; done < count && status == GP_OK; done += READ_ROWS) {
        uint32_t some = count - done < READ_ROWS ? count - done : READ_ROWS;

        for (uint32_t i = 0; i < some; i++)
            index[i] = first + done + i;
        status = gp_store_read(trainer->data, index, some, (char *)samples + done * info->sample_bytes,
                               (char *)targets + done * info->target_bytes, err);
        gp_trainer_progress(trainer);
    }
    return status;
}

/* What is read without waiting or decoding, and gives the same bits there: bytes, drawn or not, and other types as they
 * are.  Ranks may answer differently. */
static gp_status data_offer(gp_trainer *trainer, const gp_resident **out, gp_error *err)
{
    const gp_store_info *info = gp_store_get_info(trainer->data);
    bool drawn = !gp_augment_is_identity(&trainer->augment);

    *out = NULL;
    if (info->remote || info->decodes || info->sizes_differ ||
        (drawn && (info->dtype != GP_U8 || info->target_count != 1 || info->targets[0].shape.rank != 0)))
        return GP_OK;
    if (drawn) {
        trainer->draws = gp_calloc(trainer->micro_batch, sizeof(*trainer->draws));
        if (trainer->draws == NULL)
            return gp_fail(err, GP_ENOMEM, "no memory for the draws of %u samples", trainer->micro_batch);
    }
    trainer->data_there = (gp_resident){ .sampler = &trainer->sampler,
                                         .count = info->count,
                                         .patches = (uint32_t)trainer->augment.patches_per_image,
                                         .sample_bytes = info->sample_bytes,
                                         .target_bytes = info->target_bytes,
                                         .channels = info->channels,
                                         .height = info->height,
                                         .width = info->width,
                                         .drawn = drawn,
                                         .fill = (float)trainer->augment.fill,
                                         .read = data_read,
                                         .context = trainer };
    *out = &trainer->data_there;
    return GP_OK;
}

/* ---- the whole ---- */

gp_status gp_trainer_keep(gp_trainer *trainer, gp_error *err)
{
    bool joined = false;
    uint64_t *step;
    gp_keep keep = { .options = &trainer->options };
    gp_range *buckets;
    gp_status status;

    if (trainer->options.fast_multinode && trainer->backend_ops->steps == NULL)
        return gp_fail(err, GP_EINVAL,
                       "fast-multinode is of NCCL between GPUs, and these are CPU workers; leave it out");
    if (!keep_possible(trainer)) /* on all ranks or on none: it is of the options and the kind of device */
        return GP_OK;
    status = keep_join(trainer, &joined, err);
    if (status != GP_OK || !joined)
        return status;
    buckets = gp_calloc(trainer->bucket_count + 1, sizeof(*buckets));
    if (buckets == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for %u buckets", trainer->bucket_count);
    for (uint32_t i = 0; i < trainer->bucket_count; i++)
        buckets[i] = (gp_range){ trainer->buckets[i].first, trainer->buckets[i].count };
    keep.buckets = buckets;
    keep.bucket_count = trainer->bucket_count;
    keep.state = gp_optim_state(trainer->optim, &keep.state_blobs, &step);
    keep.solved = *step;
    keep.loss_scale = trainer->loss_scale.scale;
    keep.loss_scale_good = trainer->loss_scale.good;
    status = data_offer(trainer, &keep.resident, err);
    if (status == GP_OK)
        status = trainer->backend_ops->steps->keep(trainer->plan, &keep, &trainer->resident, err);
    trainer->kept = status == GP_OK;
    gp_free(buckets);
    if (trainer->kept && !trainer->resident) {
        gp_free(trainer->draws);
        trainer->draws = NULL;
    }
    return status;
}

void gp_trainer_keep_end(gp_trainer *trainer)
{
    if (trainer->backend_ops->steps != NULL && trainer->backend != NULL)
        trainer->backend_ops->steps->leave(trainer->backend);
    gp_free(trainer->draws);
}

gp_status gp_trainer_fetch_parameters(gp_trainer *trainer, gp_error *err)
{
    return trainer->stale ? trainer->backend_ops->steps->fetch(trainer->plan, trainer->parameters, NULL, err)
                          : GP_OK;
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
