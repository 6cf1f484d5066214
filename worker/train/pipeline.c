/* pipeline.c -- move a training onto the device: connect the ranks, hand over parameters, state
 * and data, and fetch them back. */
#include "worker/train/pipeline.h"

#include <inttypes.h>

#include "common/base/clock.h"
#include "common/base/memory/alloc.h"
#include "common/base/text/log.h"
#include "worker/train/multinode.h"

/* ---- connecting the ranks ---- */

/* Time limits. NCCL may take long to connect many ranks; a rank that cannot connect reports it
 * through the group (pipeline_join). */
enum { JOIN_S = 60, LEFT_S = 2 };

/* Return an error if waiting for the other ranks cannot succeed. Called while the device waits
 * for them. */
static gp_status check_peers(void *context, gp_error *err)
{
    gp_pipeline *pipeline = context;
    const uint64_t step = pipeline->progress->step;
    bool left;
    gp_status status = gp_train_control_check(pipeline->exchange->control, step, err);

    if (status == GP_OK)
        status = gp_comm_check(pipeline->exchange->comm, &left, err);
    if (status != GP_OK)
        return status;
    if (pipeline->join_ns != 0 && gp_now_ns() - pipeline->join_ns > JOIN_S * (int64_t)1000000000)
        return gp_fail(err, GP_ETIMEDOUT, "timed out forming an NCCL group of %u ranks after %d s",
                       pipeline->schedule->world, JOIN_S);
    if (!left || pipeline->left_ns == 0) {
        pipeline->left_ns = left ? gp_now_ns() : 0;
        return GP_OK;
    }

    /* the rank may have sent its part before it left */
    if (gp_now_ns() - pipeline->left_ns < LEFT_S * (int64_t)1000000000)
        return GP_OK;
    return gp_fail(err, GP_EPEER, "a rank left the training in step %" PRIu64, step + 1);
}

/* Set the NCCL environment from the detected network (option nccl-auto-network). NCCL reads the
 * environment only once per process. */
static gp_status set_network(const gp_pipeline *pipeline, gp_train_notes *notes, gp_error *err)
{
    static bool used, set; /* accessed by the compute thread only */
    gp_multinode found;
    gp_status status = GP_OK;
    char text[300];
    bool slow;

    if (pipeline->options->nccl_auto_network) {
        status = gp_multinode_detect(&found, "", err);
        if (status == GP_OK && used && !set)
            status = gp_fail(err, GP_ESTATE,
                             "this worker already uses NCCL without nccl-auto-network, and NCCL reads its "
                             "settings only once; restart the pool (gradpool down)");
        if (status != GP_OK)
            return status;
        gp_multinode_set(&found);
        set = true;
        gp_multinode_describe(&found, text, sizeof(text), &slow);
        gp_train_notes_add(notes, slow, "%s", text);
    }
    used = true;
    return GP_OK;
}

/* Connect all ranks' devices; collective. *joined: all are in one group of the device library. */
static gp_status pipeline_join(gp_pipeline *pipeline, gp_train_notes *notes, bool *joined, gp_error *err)
{
    static const char indirect[] =
        "the GPUs cannot exchange gradients directly, so gradients go through host memory: ";
    const gp_backend_steps *ops = pipeline->ops;
    const uint32_t world = pipeline->schedule->world;
    gp_comm *comm = pipeline->exchange->comm;
    gp_group group = {
        .rank = pipeline->schedule->rank, .world = world, .check = check_peers, .context = pipeline
    };
    int64_t failed = 0;
    gp_error why = { 0 };
    gp_status status;

    *joined = true;
    if (world == 1)
        return ops->join(pipeline->backend, &group, err);
    failed = set_network(pipeline, notes, &why) != GP_OK;
    status = gp_comm_all_reduce_private(comm, &failed, 1, GP_I64, GP_COMM_MAX, err);
    if (status == GP_OK && failed != 0)
        return gp_fail(err, why.message[0] == '\0' ? GP_EPEER : why.code, "%s",
                       why.message[0] == '\0'
                           ? "the network of another rank does not support nccl-auto-network"
                           : why.message);
    if (status != GP_OK)
        return status;
    if (group.rank == 0)
        failed = ops->group_id(group.id, &why) != GP_OK;
    status = gp_comm_broadcast(comm, group.id, sizeof(group.id), 0, err);
    if (status == GP_OK)
        status = gp_comm_all_reduce_private(comm, &failed, 1, GP_I64, GP_COMM_MAX, err);
    if (status == GP_OK && failed == 0) {
        pipeline->join_ns = gp_now_ns();
        failed = ops->join(pipeline->backend, &group, &why) != GP_OK;
        gp_log(GP_LOG_DEBUG, "gpu-joined", "%s %" PRIu32 " ranks after %.2f ms",
               failed ? "did not join" : "joined", world, (double)(gp_now_ns() - pipeline->join_ns) * 1e-6);
        pipeline->join_ns = 0;
        status = gp_comm_all_reduce_private(comm, &failed, 1, GP_I64, GP_COMM_MAX, err);
    }
    if (status == GP_OK && failed != 0) {
        const char *reason = why.message[0] == '\0' ? "another rank cannot" : why.message;

        ops->leave(pipeline->backend);
        gp_log(GP_LOG_WARN, "gpu-exchange-indirect", "%s%s", indirect, reason);
        gp_train_notes_add(notes, true, "%s%s", indirect, reason);
        *joined = false;
    }
    return status;
}

/* ---- resident data ---- */

enum { READ_ROWS = 1024 };

/* Read stored samples for the device; implements gp_resident. */
static gp_status data_read(void *context, uint32_t first, uint32_t count, void *samples, void *targets,
                           gp_error *err)
{
    gp_pipeline *pipeline = context;
    gp_store *store = pipeline->data->training.store;
    const gp_store_info *info = gp_store_get_info(store);
    uint32_t index[READ_ROWS];
    gp_status status = GP_OK;

    for (uint32_t done = 0; done < count && status == GP_OK; done += READ_ROWS) {
        uint32_t some = count - done < READ_ROWS ? count - done : READ_ROWS;

        for (uint32_t i = 0; i < some; i++)
            index[i] = first + done + i;
        status = gp_store_read(store, index, some, (char *)samples + done * info->sample_bytes,
                               (char *)targets + done * info->target_bytes, err);
        gp_train_control_progress(pipeline->exchange->control);
    }
    return status;
}

/* Offer the training data to the device. Only data that are read without waiting or decoding
 * qualify, and only if the device produces bitwise identical samples: bytes with or without
 * augmentation, other types without. Ranks may decide differently.
 *   out  NULL: not offered */
static gp_status data_offer(gp_pipeline *pipeline, const gp_resident **out, gp_error *err)
{
    const gp_train_data *data = pipeline->data;
    const gp_store_info *info = gp_store_get_info(data->training.store);
    const uint32_t draws = pipeline->schedule->micro_batch;
    bool drawn = !gp_augment_is_identity(&data->augment);

    *out = NULL;
    if (info->remote || info->decodes || info->sizes_differ ||
        (drawn && (info->dtype != GP_U8 || info->target_count != 1 || info->targets[0].shape.rank != 0)))
        return GP_OK;
    if (drawn) {
        pipeline->draws = gp_calloc(draws, sizeof(*pipeline->draws));
        if (pipeline->draws == NULL)
            return gp_fail(err, GP_ENOMEM, "no memory for the draws of %u samples", draws);
    }
    pipeline->resident = (gp_resident){ .sampler = &data->training.sampler,
                                        .count = info->count,
                                        .patches = (uint32_t)data->augment.patches_per_image,
                                        .sample_bytes = info->sample_bytes,
                                        .target_bytes = info->target_bytes,
                                        .channels = info->channels,
                                        .height = info->height,
                                        .width = info->width,
                                        .drawn = drawn,
                                        .fill = (float)data->augment.fill,
                                        .read = data_read,
                                        .context = pipeline };
    *out = &pipeline->resident;
    return GP_OK;
}

/* Let the device read batches from the memory of the loader. If the pages cannot be locked, the
 * launching thread copies each batch. */
static void loader_lock(gp_pipeline *pipeline)
{
    size_t bytes;
    void *memory = gp_loader_memory(pipeline->data->training.loader, &bytes);
    gp_error why;

    if (pipeline->ops->lock(pipeline->plan, memory, bytes, &why) != GP_OK)
        gp_log(GP_LOG_INFO, "batches-copied", "cannot lock %zu bytes of batches; copying each batch: %s",
               bytes, why.message);
}

/* ---- the pipeline ---- */

gp_status gp_pipeline_open(gp_pipeline *pipeline, gp_plan *plan, gp_optim *optim, gp_train_notes *notes,
                           gp_error *err)
{
    const gp_train_options *options = pipeline->options;
    const gp_loss_scale *scale = &pipeline->progress->loss_scale;
    gp_resident_request keep = { .options = pipeline->options,
                                 .loss_scale = scale->scale,
                                 .loss_scale_good = scale->good,
                                 .buckets = pipeline->exchange->buckets,
                                 .bucket_count = pipeline->exchange->bucket_count };
    bool joined = false;
    uint64_t *step;
    gp_status status;

    pipeline->plan = plan;
    if (pipeline->options->nccl_auto_network && pipeline->ops == NULL)
        return gp_fail(err, GP_EINVAL,
                       "nccl-auto-network needs GPU workers, but these are CPU workers; omit it");
    if (pipeline->ops == NULL || options->reproducible || options->synchronize_batch_norm ||
        options->batch_norm_statistics !=
            GP_STATISTICS_MOVING) /* options and device kind are the same on all ranks */
        return GP_OK;
    status = pipeline_join(pipeline, notes, &joined, err);
    if (status != GP_OK || !joined)
        return status;
    keep.state = gp_optim_state(optim, &keep.state_blobs, &step);
    keep.solved = *step;
    status = data_offer(pipeline, &keep.resident, err);
    if (status == GP_OK)
        status = pipeline->ops->make_resident(pipeline->plan, &keep, &pipeline->data_resident, err);
    if (status != GP_OK)
        return status;
    pipeline->residency = GP_ON_BOTH;
    if (!pipeline->data_resident) {
        gp_free(pipeline->draws);
        pipeline->draws = NULL;
        loader_lock(pipeline);
    }
    return GP_OK;
}

void gp_pipeline_unlock(gp_pipeline *pipeline)
{
    gp_error ignored;

    if (pipeline->residency != GP_ON_HOST && !pipeline->data_resident)
        pipeline->ops->lock(pipeline->plan, NULL, 0, &ignored);
    pipeline->read_count = 0;
}

void gp_pipeline_close(gp_pipeline *pipeline)
{
    if (pipeline->ops != NULL && pipeline->backend != NULL)
        pipeline->ops->leave(pipeline->backend);
    gp_free(pipeline->draws);
}

gp_status gp_pipeline_fetch(gp_pipeline *pipeline, float *parameters, gp_optim *optim, gp_error *err)
{
    float *state = optim == NULL ? NULL : gp_optim_state(optim, NULL, NULL);
    gp_status status;

    if (pipeline->residency != GP_DEVICE_NEWER)
        return GP_OK;
    status = pipeline->ops->fetch(pipeline->plan, parameters, state, err);
    if (status == GP_OK && optim != NULL)
        pipeline->residency = GP_ON_BOTH;
    return status;
}
