/* Device-resident training: parameters, optimizer state, gradient buckets and the commit. */
#include "worker/backend/cuda/kernels/bodies.h"

#include "common/base/memory/alloc.h"
#include "worker/backend/cuda/plan/resident.h"

_Static_assert((int)GP_CLIP_L2NORM == (int)STEP_CLIP_TENSOR &&
                   (int)GP_CLIP_GLOBAL_L2NORM == (int)STEP_CLIP_GLOBAL &&
                   (int)GP_CLIP_ABSOLUTE == (int)STEP_CLIP_ABSOLUTE,
               "the order of the clipping methods differs");
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
    for (uint32_t i = 0; s->kernel == GP_KERNEL_add_gradients && i < plan->graph->parameter_count; i++)
        last[i] = at;
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

static uint32_t pieces_of(const gp_parameter *p)
{
    const size_t last = p->offset + (size_t)p->count - 1;

    return p->count == 0 ? 0 : (uint32_t)(last / GP_KERNEL_PIECE - p->offset / GP_KERNEL_PIECE + 1);
}

/* Append the pieces of tensor `index` at `at`. Return their number. */
static uint32_t pieces_add(gp_kernel_piece *at, const gp_parameter *p, uint32_t index)
{
    const size_t end = p->offset + (size_t)p->count;
    const uint32_t count = pieces_of(p);

    for (uint32_t i = 0; i < count; i++) {
        const size_t page = (p->offset / GP_KERNEL_PIECE + i) * GP_KERNEL_PIECE,
                     after = page + GP_KERNEL_PIECE;

        at[i] = (gp_kernel_piece){ .first = (uint32_t)(page < p->offset ? p->offset : page),
                                   .end = (uint32_t)(after < end ? after : end),
                                   .tensor = index,
                                   .index = i };
    }
    return count;
}

/* Fill in the tables on the host, and count their pieces. */
static void tables_fill(commit_tables *tables, const gp_graph *graph, gp_kernel_tensor *tensors,
                        gp_kernel_piece *pieces)
{
    for (uint32_t i = 0; i < graph->parameter_count; i++) {
        const gp_parameter *p = &graph->parameters[i];

        tensors[i] = (gp_kernel_tensor){ .offset = p->offset,
                                         .learn_rate_factor = (float)p->learn_rate_factor,
                                         .l2_factor = (float)p->l2_factor,
                                         .statistic_rate = p->statistic_rate,
                                         .per_sample = (double)p->per_sample };
        if (p->statistic != GP_STATISTIC_MEAN)
            continue;
        tensors[i].variance = graph->parameters[i + 1].offset;
        tables->mean_pieces += pieces_add(pieces + tables->mean_pieces, p, i);
    }
    pieces += tables->mean_pieces;
    for (uint32_t i = 0; i < graph->parameter_count; i++) {
        if (!gp_parameter_learns(&graph->parameters[i]))
            continue;
        tensors[i].first_piece = tables->solver_pieces;
        tensors[i].pieces = pieces_add(pieces + tables->solver_pieces, &graph->parameters[i], i);
        tables->solver_pieces += tensors[i].pieces;
    }
}

static gp_status tables_take(gp_plan *plan, gp_error *err)
{
    const gp_graph *graph = plan->graph;
    commit_tables *tables = &plan->resident->tables;
    gp_device *device = plan->backend->device;
    const size_t count = graph->parameter_count, bytes = count * sizeof(gp_kernel_tensor);
    size_t piece_bytes = 0;
    gp_kernel_tensor *tensors = gp_calloc(count + 1, sizeof(*tensors));
    gp_kernel_piece *pieces;
    gp_status status;

    for (uint32_t i = 0; i < count; i++)
        piece_bytes += pieces_of(&graph->parameters[i]) * sizeof(*pieces);
    pieces = gp_calloc(1, piece_bytes + 1);
    status = tensors == NULL || pieces == NULL ? gp_fail(err, GP_ENOMEM, "no memory for tables of tensors")
                                               : GP_OK;
    if (status == GP_OK) {
        tables->tensor_count = graph->parameter_count;
        tables_fill(tables, graph, tensors, pieces);
        status = gp_heap_take(&plan->heap, &tables->tensors, bytes, err);
    }
    if (status == GP_OK)
        status = gp_device_upload(device, tables->tensors, tensors, bytes, err);
    if (status == GP_OK)
        status = gp_heap_take(&plan->heap, &tables->pieces, piece_bytes, err);
    if (status == GP_OK)
        status = gp_device_upload(device, tables->pieces, pieces, piece_bytes, err);
    if (status == GP_OK)
        status = gp_device_sync(device, err); /* the uploads read the tables on the host */
    if (status == GP_OK && plan->resident->options->gradient_threshold > 0)
        status =
            gp_heap_take(&plan->heap, &tables->squares, count * (STEP_SQUARES_MAX + 1) * sizeof(double), err);
    if (status == GP_OK && plan->resident->options->gradient_threshold > 0)
        status = gp_heap_take(&plan->heap, &tables->clip_factors, count * sizeof(float), err);
    gp_free(pieces);
    gp_free(tensors);
    return status;
}

static gp_status state_take(gp_plan *plan, const gp_resident_request *keep, gp_error *err)
{
    enum { STATE_ALIGNMENT = 64 }; /* elements; kernels load vectors of 16 bytes */
    const gp_graph *graph = plan->graph;
    gp_resident_state *kept = plan->resident;
    gp_device *device = plan->backend->device;
    gp_status status;

    kept->state_stride = (graph->blob_count + STATE_ALIGNMENT - 1) / STATE_ALIGNMENT * STATE_ALIGNMENT;
    status =
        gp_heap_take(&plan->heap, &kept->state, kept->state_blobs * kept->state_stride * sizeof(float), err);
    for (uint32_t i = 0; i < kept->state_blobs && status == GP_OK; i++)
        status =
            gp_device_upload(device, kept->state + i * kept->state_stride,
                             keep->state + i * graph->blob_count, graph->blob_count * sizeof(float), err);
    if (status == GP_OK)
        status = gp_buffers_put_parameters(&plan->buffers, device, graph, plan->memory.parameters, err);
    if (status == GP_OK)
        status = tables_take(plan, err);
    if (status == GP_OK)
        status = mail_take(plan, keep, err);
    return status == GP_OK ? gp_device_sync(device, err) : status; /* wait for uploads from local memory */
}

/* Let the last step of the forward pass end it, if that step adds up the sums of a loss. */
static void forward_end(gp_plan *plan)
{
    const uint32_t forward_count = plan->graph->ops[plan->options.phase].forward_count;
    gp_resident_state *kept = plan->resident;
    step *last = NULL;

    for (uint32_t i = 0; i < plan->steps.count && plan->steps.step[i].op < forward_count; i++)
        last = &plan->steps.step[i];
    kept->loss_ends_pass = last != NULL && last->kind == STEP_KERNEL && last->kernel == GP_KERNEL_loss_sums;
    if (kept->loss_ends_pass)
        last->args.kept = kept->kept;
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
    forward_end(plan);
    gp_device_register(plan->backend->device, plan->buffers.gradients,
                       plan->graph->blob_count * sizeof(float));
    *resident = kept->feed.resident != NULL;
    return GP_OK;
}

/* ---- commit ---- */

/* Launch the kernels that compute the factors of clipping by norm. */
static gp_status clip_factors(gp_plan *plan, const gp_kernel_args *args, gp_error *err)
{
    const commit_tables *tables = &plan->resident->tables;
    gp_device *device = plan->backend->device;
    gp_status status = GP_OK;

    if (args->number[0] != STEP_CLIP_TENSOR && args->number[0] != STEP_CLIP_GLOBAL)
        return GP_OK;
    status = gp_device_launch(device, GP_KERNEL_squares_part, args, 32 * tables->solver_pieces, err);
    if (status == GP_OK)
        status = gp_device_launch(device, GP_KERNEL_squares_sum, args, 32 * tables->tensor_count, err);
    if (status == GP_OK && args->number[0] == STEP_CLIP_GLOBAL)
        status = gp_device_launch(device, GP_KERNEL_squares_total, args, 32, err);
    return status;
}

gp_status gp_resident_commit(gp_plan *plan, bool ends_pass, gp_error *err)
{
    static const gp_kernel kernels[] = { [GP_SOLVER_SGDM] = GP_KERNEL_sgdm,
                                         [GP_SOLVER_ADAM] = GP_KERNEL_adam,
                                         [GP_SOLVER_ADAMW] = GP_KERNEL_adam,
                                         [GP_SOLVER_RMSPROP] = GP_KERNEL_rmsprop };
    const gp_resident_state *kept = plan->resident;
    const commit_tables *tables = &kept->tables;
    gp_device *device = plan->backend->device;
    gp_kernel_args args = { .call = plan->buffers.call,
                            .kept = kept->kept,
                            .mail = kept->mail_there,
                            .tensors = tables->tensors,
                            .pieces = tables->pieces,
                            .n = { tables->tensor_count },
                            .number = { kept->options->gradient_threshold > 0
                                            ? (int32_t)kept->options->gradient_threshold_method
                                            : STEP_CLIP_NONE,
                                        ends_pass },
                            .kind = kept->options->solver == GP_SOLVER_ADAMW };
    gp_kernel_args tell = args;
    gp_status status;

    args.f[0] = plan->buffers.parameters;
    args.f[1] = plan->buffers.gradients;
    args.f[2] = kept->state;
    args.f[3] = kept->state + kept->state_stride;
    args.f[4] = tables->clip_factors;
    args.d[0] = tables->squares;
    args.d[1] = tell.d[1] = plan->buffers.sums;
    tell.n[0] = PLAN_SUMS;
    status = gp_device_launch(device, GP_KERNEL_latch, &args, 1, err);
    if (status == GP_OK && tables->mean_pieces != 0)
        status = gp_device_launch(device, GP_KERNEL_statistics, &args, 32 * tables->mean_pieces, err);
    args.pieces += tables->mean_pieces;
    if (status == GP_OK)
        status = clip_factors(plan, &args, err);
    if (status == GP_OK && tables->solver_pieces != 0)
        status =
            gp_device_launch(device, kernels[kept->options->solver], &args, 32 * tables->solver_pieces, err);
    return status == GP_OK ? gp_device_launch(device, GP_KERNEL_tell, &tell, 1, err) : status;
}

static gp_status keep_fetch(gp_plan *plan, float *parameters, float *state, gp_error *err)
{
    const gp_resident_state *kept = plan->resident;
    const size_t count = plan->graph->blob_count, bytes = count * sizeof(float);
    gp_device *device = plan->backend->device;
    gp_status status = gp_device_download(device, parameters, plan->buffers.parameters, bytes, err);

    for (uint32_t i = 0; state != NULL && i < kept->state_blobs && status == GP_OK; i++)
        status =
            gp_device_download(device, state + i * count, kept->state + i * kept->state_stride, bytes, err);
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
    .lock = gp_feed_lock,
    .reading = gp_feed_reading,
    .reported = gp_steps_reported,
    .halt = gp_steps_halt,
    .fetch = keep_fetch,
    .group_id = gp_device_group_id,
    .join = keep_join,
    .leave = keep_leave,
};
