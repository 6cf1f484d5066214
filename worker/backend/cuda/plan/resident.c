/* Device-resident training: parameters, optimizer state, gradient buckets and the commit. */
#include "worker/backend/cuda/kernels/bodies.h"

#include "common/base/memory/alloc.h"
#include "worker/backend/cuda/plan/resident.h"

enum { CLIP_CHUNKS = 128 };

_Static_assert((int)GP_CLIP_L2NORM == 0 && (int)GP_CLIP_GLOBAL_L2NORM == 1 && (int)GP_CLIP_ABSOLUTE == 2,
               "body_clip uses these numbers");
_Static_assert((int)STEP_SUMS == (int)PLAN_SUMS && (int)PLAN_SUMS <= (int)GP_KERNEL_REPORTED_SUMS,
               "the sums of a step");

/* Frees the graphs first, then leaves the group that they use. The heap frees the memory registered
 * with the group. */
void gp_resident_free(gp_plan *plan)
{
    gp_resident_state *kept = plan->resident;
    gp_device *device = plan->backend->device;

    if (kept == NULL)
        return;
    gp_steps_free_graphs(plan);
    gp_device_leave(device);
    gp_feed_close(plan);
    gp_device_free_host(device, kept->mail);
    gp_free(kept->buckets);
    gp_free(kept);
    plan->resident = NULL;
}

/* ---- buckets ---- */

/* Set last[parameter] to the last step that uses the gradient at `pointer`. */
static void touch(const gp_plan *plan, uint32_t *last, const void *pointer, uint32_t at)
{
    const char *begin = (const char *)plan->buffers.gradients, *where = pointer;
    const size_t element = (size_t)(where - begin) / sizeof(float);
    const gp_parameter *parameters = plan->graph->parameters;

    if (where < begin || where >= begin + plan->graph->blob_count * sizeof(float))
        return;
    for (uint32_t i = 0; i < plan->graph->parameter_count; i++)
        if (element >= parameters[i].offset && element - parameters[i].offset < (size_t)parameters[i].count)
            last[i] = at;
}

static void step_touch(const gp_plan *plan, uint32_t *last, uint32_t at)
{
    const step *s = &plan->steps.step[at];
    const gp_ops *ops = &plan->graph->ops[plan->options.phase];

    /* only counts values that are not finite, which a sum over the ranks preserves */
    if (s->kernel == GP_KERNEL_bad_part)
        return;
    for (int k = 0; k < GP_KERNEL_FLOATS; k++)
        touch(plan, last, s->args.f[k], at);
    for (int k = 0; k < GP_KERNEL_IMAGES; k++)
        touch(plan, last, s->args.x[k].data, at);
    for (int k = 0; k < 2; k++)
        touch(plan, last, s->args.y[k].data, at);
    touch(plan, last, s->at.out, at);
    touch(plan, last, s->at.vector, at);
    for (uint32_t k = 0; s->op < ops->count && k < GP_OP_VALUES_MAX; k++) {
        uint32_t value = ops->op[s->op].out[k];

        if (value != GP_NO_VALUE && plan->graph->values[value].role == GP_VALUE_PARAMETER_GRADIENT)
            last[plan->graph->values[value].parameter] = at;
    }
}

/* Set the step after which each bucket is complete. All ranks sum the buckets in the same order, so
 * a bucket is never complete before the previous one. */
static gp_status buckets_place(gp_plan *plan, const gp_resident_request *keep, gp_error *err)
{
    const gp_graph *graph = plan->graph;
    gp_resident_state *kept = plan->resident;
    uint32_t *last = gp_calloc(graph->parameter_count + 1, sizeof(*last)), after = 0;

    kept->buckets = gp_calloc(keep->bucket_count + 1, sizeof(*kept->buckets));
    if (last == NULL || kept->buckets == NULL) {
        gp_free(last);
        return gp_fail(err, GP_ENOMEM, "no memory for %u buckets", keep->bucket_count);
    }
    for (uint32_t p = 0; p < graph->parameter_count; p++)
        last[p] = UINT32_MAX; /* unknown: complete at the end */
    for (uint32_t i = 0; i < plan->steps.count; i++)
        step_touch(plan, last, i);
    for (uint32_t b = 0; b < keep->bucket_count; b++) {
        const gp_range *range = &keep->buckets[b];

        for (uint32_t p = 0; p < graph->parameter_count; p++) {
            const gp_parameter *parameter = &graph->parameters[p];
            uint32_t touched = last[p] < plan->steps.count ? last[p] : plan->steps.count - 1;

            if (parameter->offset < range->first + range->count &&
                range->first < parameter->offset + (size_t)parameter->count && touched > after)
                after = touched;
        }
        kept->buckets[b] = (kept_bucket){ .first = range->first, .count = range->count, .after = after };
    }
    kept->bucket_count = keep->bucket_count;
    gp_free(last);
    return GP_OK;
}

/* ---- state on the device ---- */

static gp_status mail_take(gp_plan *plan, const gp_resident_request *keep, gp_error *err)
{
    gp_resident_state *kept = plan->resident;
    gp_device *device = plan->backend->device;
    gp_kernel_kept first = { .rule = {
                                 .threshold = kept->options->gradient_threshold,
                                 .wide_decay = kept->options->gradient_decay_factor,
                                 .wide_squared_decay = kept->options->squared_gradient_decay_factor,
                                 .l2 = (float)kept->options->l2_regularization,
                                 .momentum = (float)kept->options->momentum,
                                 .decay = (float)kept->options->gradient_decay_factor,
                                 .squared_decay = (float)kept->options->squared_gradient_decay_factor,
                                 .epsilon = (float)kept->options->epsilon,
                                 .loss_scale = { .growth = kept->options->loss_scale_growth,
                                                 .backoff = kept->options->loss_scale_backoff,
                                                 .interval = kept->options->loss_scale_interval },
                             },
                             .solved = keep->solved,
                             .loss_scale = keep->loss_scale,
                             .loss_scale_good = keep->loss_scale_good };
    void *mail = NULL, *there = NULL;
    gp_status status = gp_heap_take(&plan->heap, &kept->kept, sizeof(*kept->kept), err);

    if (status == GP_OK)
        status = gp_device_upload(device, kept->kept, &first, sizeof(first), err);
    if (status == GP_OK)
        status = gp_device_alloc_host(device, &mail, &there, sizeof(*kept->mail), err);
    if (status != GP_OK)
        return status;
    kept->mail = mail;
    kept->mail_there = there;
    kept->mail->go = 1;
    return GP_OK;
}

static gp_status state_take(gp_plan *plan, const gp_resident_request *keep, gp_error *err)
{
    const gp_graph *graph = plan->graph;
    gp_resident_state *kept = plan->resident;
    gp_device *device = plan->backend->device;
    size_t blob = graph->blob_count * sizeof(float),
           bytes = graph->parameter_count * sizeof(gp_kernel_tensor);
    gp_kernel_tensor *tensors = gp_calloc(graph->parameter_count + 1, sizeof(*tensors));
    gp_status status = tensors == NULL ? gp_fail(err, GP_ENOMEM, "no memory for a table of tensors") : GP_OK;

    if (status == GP_OK)
        status = gp_heap_take(&plan->heap, &kept->state, kept->state_blobs * blob, err);
    if (status == GP_OK)
        status = gp_device_upload(device, kept->state, keep->state, kept->state_blobs * blob, err);
    if (status == GP_OK)
        status = gp_buffers_put_parameters(&plan->buffers, device, graph, plan->memory.parameters, err);
    if (status == GP_OK)
        status = gp_heap_take(&plan->heap, &kept->tensors, bytes, err);
    if (status == GP_OK) {
        /* Fill in the tensors sorted by offset. Parameters are in layer order, and
         * the blob has the reverse order. */
        for (uint32_t i = 0; i < graph->parameter_count; i++) {
            const gp_parameter *p = &graph->parameters[i];
            gp_kernel_tensor tensor = { .offset = p->offset,
                                        .count = (uint64_t)p->count,
                                        .learn_rate_factor = (float)p->learn_rate_factor,
                                        .l2_factor = (float)p->l2_factor,
                                        .statistic_rate = p->statistic_rate,
                                        .per_sample = (double)p->per_sample,
                                        .statistic = (int32_t)p->statistic,
                                        .learns = gp_parameter_learns(p) };
            uint32_t at = i;

            if (p->statistic == GP_STATISTIC_MEAN)
                tensor.variance = graph->parameters[i + 1].offset;
            while (at > 0 && tensors[at - 1].offset > tensor.offset) {
                tensors[at] = tensors[at - 1];
                at--;
            }
            tensors[at] = tensor;
        }
        status = gp_device_upload(device, kept->tensors, tensors, bytes, err);
    }
    if (status == GP_OK)
        status = gp_heap_take(&plan->heap, &kept->squares,
                              ((size_t)kept->tensor_count * (CLIP_CHUNKS + 1) + 1) * sizeof(double), err);
    if (status == GP_OK)
        status = mail_take(plan, keep, err);
    if (status == GP_OK)
        status = gp_device_sync(device, err); /* wait for the uploads from local tables */
    gp_free(tensors);
    return status;
}

static gp_status keep_begin(gp_plan *plan, const gp_resident_request *keep, bool *resident, gp_error *err)
{
    const uint32_t blocks = plan->heap.count;
    gp_resident_state *kept;
    gp_status status;

    if (plan->graph->blob_count > INT32_MAX)
        return gp_fail(err, GP_ELIMIT, "the network has %zu parameters; GPU workers support at most %d",
                       plan->graph->blob_count, INT32_MAX);
    kept = gp_calloc(1, sizeof(*kept));
    if (kept == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for a training on the GPU");
    kept->options = keep->options;
    kept->state_blobs = keep->state_blobs;
    kept->tensor_count = plan->graph->parameter_count;
    plan->resident = kept;
    status = state_take(plan, keep, err);
    if (status == GP_OK)
        status = buckets_place(plan, keep, err);
    if (status == GP_OK)
        status = gp_feed_open(plan, plan->backend->fed ? NULL : keep->resident, err);
    if (status == GP_OK)
        status = gp_device_sync(plan->backend->device, err);
    if (status != GP_OK) {
        gp_resident_free(plan);
        gp_heap_cut(&plan->heap, blocks);
        return status;
    }
    gp_device_register(plan->backend->device, plan->buffers.gradients,
                       plan->graph->blob_count * sizeof(float));
    *resident = kept->feed.resident != NULL;
    return GP_OK;
}

/* ---- commit ---- */

static gp_status clip(gp_plan *plan, gp_kernel_args args, gp_error *err)
{
    const gp_resident_state *kept = plan->resident;
    gp_device *device = plan->backend->device;
    gp_status status = GP_OK;

    if (kept->options->gradient_threshold <= 0)
        return GP_OK;
    args.kind = kept->options->gradient_threshold_method;
    args.chunks = CLIP_CHUNKS;
    args.d[0] = kept->squares;
    if (args.kind != GP_CLIP_ABSOLUTE) {
        status =
            gp_device_launch(device, GP_KERNEL_squares_part, &args, kept->tensor_count * CLIP_CHUNKS, err);
        if (status == GP_OK)
            status = gp_device_launch(device, GP_KERNEL_squares_sum, &args, kept->tensor_count + 1, err);
    }
    return status == GP_OK ? gp_device_launch(device, GP_KERNEL_clip, &args, (uint32_t)args.count, err)
                           : status;
}

gp_status gp_resident_commit(gp_plan *plan, gp_error *err)
{
    static const gp_kernel kernels[] = { [GP_SOLVER_SGDM] = GP_KERNEL_sgdm,
                                         [GP_SOLVER_ADAM] = GP_KERNEL_adam,
                                         [GP_SOLVER_ADAMW] = GP_KERNEL_adam,
                                         [GP_SOLVER_RMSPROP] = GP_KERNEL_rmsprop };
    const gp_resident_state *kept = plan->resident;
    const size_t count = plan->graph->blob_count;
    gp_device *device = plan->backend->device;
    gp_kernel_args args = { .call = plan->buffers.call,
                            .kept = kept->kept,
                            .mail = kept->mail_there,
                            .tensors = kept->tensors,
                            .count = count,
                            .n = { kept->tensor_count },
                            .kind = kept->options->solver == GP_SOLVER_ADAMW };
    gp_kernel_args tell = args;
    gp_status status;

    args.f[0] = plan->buffers.parameters;
    args.f[1] = plan->buffers.gradients;
    args.f[2] = kept->state;
    args.f[3] = kept->state + count;
    args.d[1] = tell.d[1] = plan->buffers.sums;
    tell.n[0] = PLAN_SUMS;
    status = gp_device_launch(device, GP_KERNEL_latch, &args, 1, err);
    if (status == GP_OK)
        status = gp_device_launch(device, GP_KERNEL_statistics, &args, (uint32_t)count, err);
    if (status == GP_OK)
        status = clip(plan, args, err);
    if (status == GP_OK)
        status = gp_device_launch(device, kernels[kept->options->solver], &args, (uint32_t)count, err);
    return status == GP_OK ? gp_device_launch(device, GP_KERNEL_tell, &tell, 1, err) : status;
}

static gp_status keep_fetch(gp_plan *plan, float *parameters, float *state, gp_error *err)
{
    const size_t bytes = plan->graph->blob_count * sizeof(float);
    gp_device *device = plan->backend->device;
    gp_status status = gp_device_download(device, parameters, plan->buffers.parameters, bytes, err);

    if (status == GP_OK && state != NULL)
        status = gp_device_download(device, state, plan->resident->state, plan->resident->state_blobs * bytes,
                                    err);
    return status == GP_OK ? gp_device_sync(device, err) : status;
}

static gp_status keep_join(gp_backend *backend, const gp_group *group, gp_error *err)
{
    return gp_device_join(backend->device, group->id, group->rank, group->world, group->check, group->context,
                          err);
}

static void keep_leave(gp_backend *backend)
{
    gp_device_leave(backend->device);
}

const gp_backend_steps gp_plan_steps = {
    .make_resident = keep_begin,
    .launch = gp_steps_launch,
    .reported = gp_steps_reported,
    .halt = gp_steps_halt,
    .fetch = keep_fetch,
    .group_id = gp_device_group_id,
    .join = keep_join,
    .leave = keep_leave,
};
