/* keep.c -- a training that stays on the device: its parameters, the solver's state, the exchange and the commit.
 *
 * reduce() waits for the sums of all ranks before any commit kernel is launched: whoever dies before that leaves the
 * others at the step before, whoever dies after it at the step itself, and never in between. */
#include <string.h>

#include "common/base/alloc.h"
#include "worker/backend/cuda/bodies.h"
#include "worker/backend/cuda/keep.h"

enum { CLIP_CHUNKS = 128 };

_Static_assert((int)GP_CLIP_L2NORM == 0 && (int)GP_CLIP_GLOBAL_L2NORM == 1 && (int)GP_CLIP_ABSOLUTE == 2,
               "body_clip knows the methods by these numbers");

struct gp_kept {
    const gp_train_options *options;
    float *state;
    uint32_t state_blobs, tensor_count;
    gp_kernel_tensor *tensors; /* by offset */
    gp_kernel_rule *rule;
    double *squares;
};

void gp_kept_free(gp_plan *plan)
{
    struct gp_kept *kept = plan->kept;

    if (kept == NULL)
        return;
    gp_device_free(plan->backend->device, kept->state);
    gp_device_free(plan->backend->device, kept->tensors);
    gp_device_free(plan->backend->device, kept->rule);
    gp_device_free(plan->backend->device, kept->squares);
    gp_free(kept);
    plan->kept = NULL;
}

/* Parameters are in layer order, and the blob runs the other way within and between layers: sorted here. */
static void tensors_fill(const gp_graph *graph, gp_kernel_tensor *tensors)
{
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
}

static gp_status kept_take(gp_plan *plan, struct gp_kept *kept, const gp_keep *keep, gp_error *err)
{
    const gp_graph *graph = plan->graph;
    gp_device *device = plan->backend->device;
    size_t blob = graph->blob_count * sizeof(float),
           bytes = graph->parameter_count * sizeof(gp_kernel_tensor);
    gp_kernel_tensor *tensors = gp_calloc(graph->parameter_count + 1, sizeof(*tensors));
    void *block;
    gp_status status = tensors == NULL ? gp_fail(err, GP_ENOMEM, "no memory for a table of tensors") : GP_OK;

    if (status == GP_OK)
        status = gp_device_alloc(device, &block, kept->state_blobs * blob + 1, err);
    if (status == GP_OK) {
        kept->state = block;
        status = gp_device_upload(device, kept->state, keep->state, kept->state_blobs * blob, err);
    }
    if (status == GP_OK)
        status = gp_device_upload(device, plan->parameters, plan->memory.parameters, blob, err);
    if (status == GP_OK)
        status = gp_device_alloc(device, &block, bytes + 1, err);
    if (status == GP_OK) {
        kept->tensors = block;
        tensors_fill(graph, tensors);
        status = gp_device_upload(device, kept->tensors, tensors, bytes, err);
    }
    if (status == GP_OK)
        status = gp_device_alloc(device, &block, sizeof(*kept->rule), err);
    if (status == GP_OK) {
        kept->rule = block;
        status = gp_device_alloc(device, &block,
                                 ((size_t)kept->tensor_count * (CLIP_CHUNKS + 1) + 1) * sizeof(double), err);
    }
    if (status == GP_OK) {
        kept->squares = block;
        status = gp_device_sync(device, err);
    }
    gp_free(tensors);
    return status;
}

static gp_status keep_begin(gp_plan *plan, const gp_keep *keep, gp_error *err)
{
    struct gp_kept *kept = gp_calloc(1, sizeof(*kept));
    gp_status status;

    if (kept == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for a training on the GPU");
    kept->options = keep->options;
    kept->state_blobs = keep->state_blobs;
    kept->tensor_count = plan->graph->parameter_count;
    plan->kept = kept;
    status = kept_take(plan, kept, keep, err);
    if (status != GP_OK)
        gp_kept_free(plan);
    return status;
}

static gp_status keep_reduce(gp_plan *plan, double *sums, gp_error *err)
{
    gp_device *device = plan->backend->device;
    gp_status status = gp_device_upload(device, plan->sums + GP_SUMS, &sums[GP_SUMS], sizeof(double), err);

    if (status == GP_OK)
        status = gp_device_sum(device, plan->gradients, plan->graph->blob_count, false, err);
    if (status == GP_OK)
        status = gp_device_sum(device, plan->sums, PLAN_SUMS, true, err);
    if (status == GP_OK)
        status = gp_device_download(device, sums, plan->sums, PLAN_SUMS * sizeof(double), err);
    if (status == GP_OK)
        status = gp_device_wait(device, err);
    if (status == GP_OK)
        gp_plan_measure(plan);
    return status;
}

/* ---- commit ---- */

static gp_status clip(gp_plan *plan, gp_kernel_args args, gp_error *err)
{
    const struct gp_kept *kept = plan->kept;
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

static gp_kernel_rule rule_of(const gp_train_options *options, double learn_rate, uint64_t t)
{
    return (gp_kernel_rule){
        .threshold = options->gradient_threshold,
        .learn_rate = (float)learn_rate,
        .l2 = (float)options->l2_regularization,
        .momentum = (float)options->momentum,
        .decay = (float)options->gradient_decay_factor,
        .squared_decay = (float)options->squared_gradient_decay_factor,
        .epsilon = (float)options->epsilon,
        .correction = (float)(1.0 / (1.0 - pow(options->gradient_decay_factor, (double)t))),
        .squared_correction = (float)(1.0 / (1.0 - pow(options->squared_gradient_decay_factor, (double)t))),
    };
}

static gp_status keep_commit(gp_plan *plan, double learn_rate, uint64_t t, gp_error *err)
{
    static const gp_kernel kernels[] = { [GP_SOLVER_SGDM] = GP_KERNEL_sgdm,
                                         [GP_SOLVER_ADAM] = GP_KERNEL_adam,
                                         [GP_SOLVER_ADAMW] = GP_KERNEL_adam,
                                         [GP_SOLVER_RMSPROP] = GP_KERNEL_rmsprop };
    const struct gp_kept *kept = plan->kept;
    const size_t count = plan->graph->blob_count;
    gp_device *device = plan->backend->device;
    gp_kernel_rule rule = rule_of(kept->options, learn_rate, t);
    gp_kernel_args args = { .call = plan->call,
                            .rule = kept->rule,
                            .tensors = kept->tensors,
                            .count = count,
                            .n = { kept->tensor_count },
                            .kind = kept->options->solver == GP_SOLVER_ADAMW };
    gp_status status = gp_device_upload(device, kept->rule, &rule, sizeof(rule), err);

    if (count > INT32_MAX)
        return gp_fail(err, GP_ELIMIT, "a network of %zu parameters; a GPU's solver takes at most %d", count,
                       INT32_MAX);
    args.f[0] = plan->parameters;
    args.f[1] = plan->gradients;
    args.f[2] = kept->state;
    args.f[3] = kept->state + count;
    args.d[1] = plan->sums;
    if (status == GP_OK)
        status = gp_device_launch(device, GP_KERNEL_statistics, &args, (uint32_t)count, err);
    if (status == GP_OK)
        status = clip(plan, args, err);
    return status == GP_OK
               ? gp_device_launch(device, kernels[kept->options->solver], &args, (uint32_t)count, err)
               : status;
}

static gp_status keep_fetch(gp_plan *plan, float *parameters, float *state, gp_error *err)
{
    const size_t bytes = plan->graph->blob_count * sizeof(float);
    gp_device *device = plan->backend->device;
    gp_status status = gp_device_download(device, parameters, plan->parameters, bytes, err);

    if (status == GP_OK && state != NULL)
        status = gp_device_download(device, state, plan->kept->state, plan->kept->state_blobs * bytes, err);
    return status == GP_OK ? gp_device_sync(device, err) : status;
}

static gp_status keep_join(gp_backend *backend, const gp_group *group, gp_error *err)
{
    return gp_device_join(backend->device, group->id, group->rank, group->world, group->stopped,
                          group->context, err);
}

static void keep_leave(gp_backend *backend)
{
    gp_device_leave(backend->device);
}

const gp_backend_steps gp_plan_steps = {
    .keep = keep_begin,
    .reduce = keep_reduce,
    .commit = keep_commit,
    .fetch = keep_fetch,
    .group_id = gp_device_group_id,
    .join = keep_join,
    .leave = keep_leave,
};
