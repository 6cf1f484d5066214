/* plan.c -- a graph becomes steps on the device, and a call becomes: samples there, stretches replayed, sums back.
 *
 * The host's blobs are the truth between calls: parameters go to the device with the first call of a step, gradients and
 * sums come back with the last.  So the trainer, checkpoints, the exchange between workers and `reproducible` are those
 * of a CPU worker. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/memory/alloc.h"
#include "worker/backend/cuda/plan/backend.h"
#include "worker/backend/cuda/plan/keep.h"
#include "worker/backend/cuda/plan/lower.h"
#include "worker/backend/cuda/plan/predict.h"

enum { MICRO_BATCH_MAX = 1 << 20 };

/* ---- the backend ---- */

static bool words_have(const char *words, const char *word)
{
    const char *at = words == NULL ? NULL : strstr(words, word);
    char after = at == NULL ? '\0' : at[strlen(word)];

    return at != NULL && (at == words || at[-1] == ',') && (after == '\0' || after == ',');
}

static void plan_backend_close(gp_backend *backend)
{
    if (backend == NULL)
        return;
    gp_device_close(backend->device);
    gp_free(backend);
}

static gp_status plan_backend_open(gp_backend **out, const gp_backend_options *options, gp_error *err)
{
    const char *words = options->kernels == NULL ? getenv("GRADPOOL_CUDA_KERNELS") : options->kernels;
    gp_backend *backend = gp_calloc(1, sizeof(*backend));
    gp_status status;

    if (backend == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for the CUDA backend");
    backend->dense = words_have(words, "dense");
    backend->packed = words_have(words, "packed");
    backend->own = words_have(words, "own");
    backend->eager = words_have(words, "eager");
    backend->fed = words_have(words, "fed");
    backend->tf32 = words_have(words, "tf32");
    backend->apart = words_have(words, "apart");
    backend->moments = words_have(words, "moments");
    status = gp_device_open(&backend->device, options->compiled, err);
    if (status != GP_OK) {
        plan_backend_close(backend);
        return status;
    }
    *out = backend;
    return GP_OK;
}

static size_t plan_claim(gp_backend *backend, const gp_graph *graph, const gp_op *ops, size_t count)
{
    size_t claimed = 0;

    (void)backend;
    (void)graph;
    while (claimed < count && gp_plan_can(ops[claimed].code))
        claimed++;
    return claimed;
}

/* ---- memory ---- */

static void plan_free(gp_plan *plan)
{
    gp_device *device;

    if (plan == NULL)
        return;
    device = plan->backend->device;
    gp_kept_free(plan);
    gp_predict_close(plan);
    for (uint32_t i = 0; i < plan->stretch_count; i++)
        gp_device_graph_free(plan->stretches[i].graph);
    gp_device_graph_free(plan->preparation.graph);
    for (uint32_t i = 0; i < plan->step_count; i++)
        gp_device_work_free(plan->steps[i].work);
    void *const blocks[] = { plan->arena,      plan->scratch,       plan->lasting, plan->workspace,
                             plan->samples,    plan->targets,       plan->scores,  plan->sums,
                             plan->parameters, plan->class_weights, plan->call };

    for (size_t i = 0; i < sizeof(blocks) / sizeof(blocks[0]); i++)
        gp_device_free(device, blocks[i]);
    gp_device_free_summed(device, plan->gradients);
    gp_free(plan->steps);
    gp_free(plan->prepare);
    gp_free(plan->copies);
    gp_free(plan->masks);
    gp_free(plan->product_masks);
    gp_free(plan->follows);
    gp_free(plan->ops);
    gp_free(plan->values);
    gp_free(plan->host_scores);
    gp_free(plan->host_gradient);
    gp_free(plan);
}

gp_status gp_plan_take(gp_plan *plan, void *out, size_t bytes, gp_error *err)
{
    void *block;
    gp_status status = gp_device_alloc(plan->backend->device, &block, bytes == 0 ? 1 : bytes, err);

    if (status != GP_OK)
        return status;
    memcpy(out, &block, sizeof(block));
    plan->taken_bytes += bytes;
    return GP_OK;
}

/* The weights of losses' classes, one op behind the other. */
static gp_status plan_take_class_weights(gp_plan *plan, gp_error *err)
{
    const gp_ops *ops = &plan->graph->ops[plan->options.phase];
    size_t count = 0, at = 0;
    float *weights;
    gp_status status;

    for (uint32_t i = 0; i < ops->count; i++)
        if (ops->op[i].weights != NULL)
            count += (size_t)plan->graph->values[ops->op[i].in[0]].shape.dim[0];
    if (count == 0)
        return GP_OK;
    weights = gp_calloc(count, sizeof(*weights));
    if (weights == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for the weights of %zu classes", count);
    for (uint32_t i = 0; i < ops->count; i++)
        for (int64_t k = 0;
             ops->op[i].weights != NULL && k < plan->graph->values[ops->op[i].in[0]].shape.dim[0]; k++)
            weights[at++] = (float)ops->op[i].weights[k];
    status = gp_plan_take(plan, &plan->class_weights, count * sizeof(float), err);
    if (status == GP_OK)
        status =
            gp_device_upload(plan->backend->device, plan->class_weights, weights, count * sizeof(float), err);
    gp_free(weights);
    return status;
}

/* Gradients lie where the ranks' sums are made. */
static gp_status plan_take_gradients(gp_plan *plan, size_t bytes, gp_error *err)
{
    void *block;
    gp_status status = gp_device_alloc_summed(plan->backend->device, &block, bytes == 0 ? 1 : bytes, err);

    if (status != GP_OK)
        return status;
    plan->gradients = block;
    plan->taken_bytes += bytes;
    return GP_OK;
}

static gp_status plan_take_memory(gp_plan *plan, gp_error *err)
{
    const gp_graph *graph = plan->graph;
    const size_t rows = plan->options.micro_batch, blob = graph->blob_count * sizeof(float);
    gp_status status = gp_plan_take(plan, &plan->arena, plan->arena_bytes, err);

    if (status == GP_OK && plan->options.phase == GP_PHASE_TRAIN) /* predictions have slots for them */
        status = gp_plan_take(plan, &plan->samples,
                              rows * (size_t)gp_shape_count(&graph->spec->input) *
                                  gp_dtype_bytes(plan->options.sample_dtype),
                              err);
    if (status == GP_OK)
        status = gp_plan_take(plan, &plan->targets, rows * graph->target_bytes, err);
    if (status == GP_OK)
        status = gp_plan_take(plan, &plan->scores, rows * graph->score_count * sizeof(float), err);
    if (status == GP_OK)
        status = gp_plan_take(plan, &plan->parameters, blob, err);
    if (status == GP_OK && plan->options.phase == GP_PHASE_TRAIN)
        status = plan_take_gradients(plan, blob, err);
    if (status == GP_OK)
        status = gp_plan_take(plan, &plan->sums, PLAN_SUMS * sizeof(double), err);
    if (status == GP_OK)
        status = gp_plan_take(plan, &plan->call, sizeof(*plan->call), err);
    return status == GP_OK ? plan_take_class_weights(plan, err) : status;
}

/* Scratch and what lasts have a place now. */
static void *moved(const gp_plan *plan, const void *pointer)
{
    uintptr_t at = (uintptr_t)pointer;

    if (at >= GP_LASTING_BASE)
        return plan->lasting + (at - GP_LASTING_BASE);
    return at < GP_SCRATCH_BASE ? (void *)at : plan->scratch + (at - GP_SCRATCH_BASE);
}

void gp_plan_step_move(const gp_plan *plan, step *s)
{
    for (int k = 0; k < GP_KERNEL_IMAGES; k++)
        s->args.x[k].data = moved(plan, s->args.x[k].data);
    for (int k = 0; k < 2; k++) {
        s->args.y[k].data = moved(plan, s->args.y[k].data);
        s->args.d[k] = moved(plan, s->args.d[k]);
    }
    for (int k = 0; k < GP_KERNEL_FLOATS; k++)
        s->args.f[k] = moved(plan, s->args.f[k]);
    s->args.bytes = moved(plan, s->args.bytes);
    s->at = (gp_device_operands){ .first = moved(plan, s->at.first),
                                  .second = moved(plan, s->at.second),
                                  .out = moved(plan, s->at.out),
                                  .vector = moved(plan, s->at.vector),
                                  .image = moved(plan, s->at.image),
                                  .mask = moved(plan, s->at.mask),
                                  .sums = moved(plan, s->at.sums) };
    s->sums = moved(plan, s->sums);
}

static gp_status plan_take_scratch(gp_plan *plan, gp_error *err)
{
    gp_status status = gp_plan_take(plan, &plan->scratch, plan->scratch_bytes, err);

    if (status == GP_OK)
        status = gp_plan_take(plan, &plan->lasting, plan->lasting_bytes, err);
    if (status == GP_OK && plan->lasting_bytes > 0) /* some of it is added to */
        status = gp_device_clear(plan->backend->device, plan->lasting, plan->lasting_bytes, err);
    if (status == GP_OK)
        status = gp_plan_take(plan, &plan->workspace, plan->workspace_bytes, err);
    for (uint32_t i = 0; i < plan->step_count && status == GP_OK; i++)
        gp_plan_step_move(plan, &plan->steps[i]);
    for (uint32_t i = 0; i < plan->prepare_count && status == GP_OK; i++)
        gp_plan_step_move(plan, &plan->prepare[i]);
    if (status == GP_OK && plan->host_bytes != 0) {
        plan->host_scores = gp_aligned_calloc(64, plan->host_bytes);
        plan->host_gradient = gp_aligned_calloc(64, plan->host_bytes);
        if (plan->host_scores == NULL || plan->host_gradient == NULL)
            status = gp_fail(err, GP_ENOMEM, "no memory for the scores of a loss of your own");
    }
    return status;
}

/* ---- compile ---- */

/* The input is not an op's: it is written before the first. */
static gp_status lower_input(gp_plan *plan, gp_error *err)
{
    const gp_netspec *spec = plan->graph->spec;
    gp_kernel_args args = { .call = plan->call, .bytes = plan->samples, .rows = plan->options.micro_batch };
    step *steps;

    _Static_assert((int)GP_NORMALIZE_MAX <= (int)GP_KERNEL_RATES,
                   "a kernel takes fewer scales than a network has");
    args.y[0] = gp_plan_image(plan, plan->graph->input);
    args.n[1] = args.y[0].channels;
    if (plan->spread_input) /* zeros are written too */
        args.y[0].channels = PLAN_INPUT_CHANNELS;
    args.kind = plan->options.sample_dtype == GP_U8;
    args.n[0] = spec->normalize_count;
    for (uint32_t k = 0; k < spec->normalize_count; k++) {
        args.scale[k] = (float)spec->scale[k];
        args.offset[k] = (float)spec->offset[k];
    }
    steps = gp_calloc(64, sizeof(*steps));
    if (steps == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for the steps of a plan");
    plan->steps = steps;
    plan->step_capacity = 64;
    plan->steps[plan->step_count++] = (step){ .kind = STEP_KERNEL,
                                              .kernel = GP_KERNEL_normalize,
                                              .args = args,
                                              .count = args.y[0].sample * plan->options.micro_batch };
    return GP_OK;
}

/* Cut where the passes meet and where the host has a loss. */
static gp_status plan_cut(gp_plan *plan, gp_error *err)
{
    const uint32_t forward_count = plan->graph->ops[plan->options.phase].forward_count;

    plan->preparation = (stretch){ .steps = plan->prepare, .count = plan->prepare_count, .forward = true };
    for (uint32_t i = 0; i < plan->step_count; i++) {
        const step *s = &plan->steps[i];
        stretch *last = plan->stretch_count == 0 ? NULL : &plan->stretches[plan->stretch_count - 1];
        bool forward = s->op < forward_count;

        if (last != NULL && last->forward == forward && s->kind != STEP_OWN_LOSS &&
            plan->steps[last->first].kind != STEP_OWN_LOSS) {
            last->count++;
            continue;
        }
        if (plan->stretch_count == PLAN_STRETCHES)
            return gp_fail(err, GP_ELIMIT, "a GPU's plan has at most %d stretches between losses of your own",
                           PLAN_STRETCHES);
        plan->stretches[plan->stretch_count++] = (stretch){
            .steps = plan->steps,
            .first = i,
            .count = 1,
            .forward = forward,
            .after_loss =
                last != NULL && (last->after_loss || plan->steps[last->first].kind == STEP_OWN_LOSS),
        };
    }
    return GP_OK;
}

static gp_status plan_build(gp_plan *plan, gp_error *err)
{
    const gp_ops *ops = &plan->graph->ops[plan->options.phase];
    gp_status status = gp_plan_fuse(plan, err);

    if (status == GP_OK)
        status = gp_plan_place(plan, err);
    if (status == GP_OK)
        status = plan_take_memory(plan, err);
    if (status == GP_OK)
        status = lower_input(plan, err);
    for (uint32_t i = 0; i < ops->count; i++)
        plan->sums_on_host = plan->sums_on_host || ops->op[i].code == GP_OP_OWN_LOSS;
    if (status == GP_OK)
        status = gp_plan_lower_all(plan, err);
    if (status == GP_OK && plan->options.phase == GP_PHASE_TRAIN && plan->narrow == GP_NARROW_F16)
        status = gp_plan_lower_bad(plan, err);
    if (status == GP_OK)
        status = plan_take_scratch(plan, err);
    if (status == GP_OK)
        status = plan->options.phase == GP_PHASE_TRAIN ? plan_cut(plan, err) : gp_predict_open(plan, err);
    return status == GP_OK ? gp_device_sync(plan->backend->device, err) : status;
}

static gp_status plan_compile(gp_plan **out, gp_backend *backend, const gp_graph *graph,
                              const gp_plan_options *options, const gp_plan_memory *memory, gp_error *err)
{
    gp_plan *plan;
    gp_status status;

    if (options->micro_batch < 1 || options->micro_batch > MICRO_BATCH_MAX)
        return gp_fail(err, GP_EINVAL, "a micro-batch of %u samples; 1 to %d are possible",
                       options->micro_batch, MICRO_BATCH_MAX);
    if (options->sample_dtype != GP_U8 && options->sample_dtype != GP_F32)
        return gp_fail(err, GP_EINVAL, "samples are %s; uint8 and float32 are possible",
                       gp_dtype_name(options->sample_dtype));
    plan = gp_calloc(1, sizeof(*plan));
    if (plan == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for a plan");
    plan->backend = backend;
    plan->graph = graph;
    plan->options = *options;
    plan->memory = *memory;
    /* Tensor cores want packed activations; cuDNN's kernels for strict float32 are for dense ones. */
    plan->tf32 = backend->tf32 || options->precision == GP_PRECISION_TF32;
    plan->narrow = options->precision == GP_PRECISION_BF16  ? GP_NARROW_BF16
                   : options->precision == GP_PRECISION_F16 ? GP_NARROW_F16
                                                            : GP_WIDE;
    plan->packed = backend->packed || (!backend->dense && (plan->narrow != GP_WIDE || plan->tf32));
    plan->eager = backend->eager;
    status = plan_build(plan, err);
    if (status != GP_OK) {
        plan_free(plan);
        return status;
    }
    *out = plan;
    return GP_OK;
}

/* ---- run ---- */

static gp_status couple(gp_plan *plan, const step *s, gp_error *err)
{
    const gp_coupling *coupling = plan->batch.coupling;
    gp_device *device = plan->backend->device;
    gp_status status;

    if (coupling == NULL)
        return GP_OK;
    status = gp_device_download(device, coupling->sums, s->sums, s->doubles * sizeof(double), err);
    if (status == GP_OK)
        status = gp_device_sync(device, err);
    if (status == GP_OK)
        status = coupling->reduce(coupling->context, s->doubles, err);
    return status == GP_OK
               ? gp_device_upload(device, s->sums, coupling->sums, s->doubles * sizeof(double), err)
               : status;
}

/* Forward of a call that goes on later ends here as well: whoever drives the plan writes the gradient in between. */
static gp_status own_loss(gp_plan *plan, const step *s, gp_error *err)
{
    const gp_batch *batch = &plan->batch;
    gp_device *device = plan->backend->device;
    gp_status status = GP_OK;

    if (!batch->backward_only) {
        memset(plan->host_gradient, 0, plan->host_bytes);
        status = gp_device_download(device, plan->host_scores, s->at.first, plan->host_bytes, err);
        if (status == GP_OK)
            status = gp_device_sync(device, err);
        if (status == GP_OK && batch->count != 0)
            status = plan->memory.loss(plan->memory.loss_context,
                                       &(gp_plan_loss_call){ .count = batch->count,
                                                             .scores = plan->host_scores,
                                                             .gradient = plan->host_gradient,
                                                             .sums = plan->memory.sums },
                                       err);
    }
    if (status == GP_OK && !batch->forward_only)
        status = gp_device_upload(device, s->at.out, plan->host_gradient, plan->host_bytes, err);
    return status;
}

gp_status gp_plan_step_run(gp_plan *plan, const step *s, gp_error *err)
{
    gp_device *device = plan->backend->device;

    switch (s->kind) {
    case STEP_KERNEL:
        return gp_device_launch(device, s->kernel, &s->args, s->count, err);
    case STEP_CONV:
        return gp_device_conv_run(device, s->work, &s->at, plan->workspace, err);
    case STEP_PRODUCT:
        return gp_device_product_run(device, s->work, &s->at, plan->workspace, err);
    case STEP_COUPLE:
        return couple(plan, s, err);
    case STEP_OWN_LOSS:
        break;
    }
    return own_loss(plan, s, err);
}

static gp_status stretch_launch(gp_plan *plan, const stretch *part, gp_error *err)
{
    gp_status status = GP_OK;

    for (uint32_t i = part->first; i < part->first + part->count && status == GP_OK; i++)
        status = gp_plan_step_run(plan, &part->steps[i], err);
    return status;
}

gp_status gp_plan_recorded(gp_plan *plan, gp_device_graph **out, gp_status status, gp_error *err)
{
    gp_status ended = gp_device_recorded(plan->backend->device, out, status == GP_OK ? err : NULL);

    return status == GP_OK ? ended : status;
}

static gp_status stretch_run(gp_plan *plan, stretch *part, gp_error *err)
{
    gp_device *device = plan->backend->device;
    gp_status status;

    if (part->count == 0)
        return GP_OK;
    if (plan->eager || plan->batch.coupling != NULL || part->steps[part->first].kind == STEP_OWN_LOSS)
        return stretch_launch(plan, part, err);
    if (part->graph == NULL &&
        !part->warm) { /* libraries load their kernels when first used: not into a graph */
        part->warm = true;
        return stretch_launch(plan, part, err);
    }
    if (part->graph == NULL) {
        status = gp_device_record(device, err);
        if (status == GP_OK) {
            status = stretch_launch(plan, part, err);
            status = gp_plan_recorded(plan, &part->graph, status, err);
        }
        if (status != GP_OK)
            return status;
    }
    return gp_device_replay(device, part->graph, err);
}

gp_kernel_call gp_plan_call(const gp_plan *plan, const gp_batch *batch)
{
    (void)plan;
    return (gp_kernel_call){ .seed = batch->seed,
                             .step = (uint32_t)batch->step,
                             .position = (uint32_t)batch->position,
                             .count = batch->count,
                             .first = batch->first,
                             .last = batch->last,
                             .targets = batch->targets != NULL,
                             .scale = batch->loss_scale > 0 ? (float)batch->loss_scale : 1.0f,
                             .unscale = batch->loss_scale > 0 ? (float)(1.0 / batch->loss_scale) : 1.0f };
}

static gp_status plan_begin(gp_plan *plan, gp_error *err)
{
    const gp_batch *batch = &plan->batch;
    const gp_graph *graph = plan->graph;
    gp_device *device = plan->backend->device;
    gp_kernel_call call = gp_plan_call(plan, batch);
    size_t each = (size_t)gp_shape_count(&graph->spec->input) * gp_dtype_bytes(plan->options.sample_dtype);
    gp_status status = gp_device_upload(device, plan->call, &call, sizeof(call), err);

    if (batch->backward_only || status != GP_OK)
        return status;
    if (batch->first && !batch->unchanged)
        status = gp_device_upload(device, plan->parameters, plan->memory.parameters,
                                  graph->blob_count * sizeof(float), err);
    if (status == GP_OK && batch->first)
        status = gp_device_clear(device, plan->sums, PLAN_SUMS * sizeof(double), err);
    if (status == GP_OK && batch->first && plan->sums_on_host)
        memset(plan->memory.sums, 0, GP_SUMS * sizeof(double));
    if (status == GP_OK && batch->count != 0)
        status = gp_device_upload(device, plan->samples, batch->samples, batch->count * each, err);
    if (status == GP_OK && batch->count != 0 && batch->targets != NULL && graph->target_bytes != 0)
        status =
            gp_device_upload(device, plan->targets, batch->targets, batch->count * graph->target_bytes, err);
    return status;
}

static gp_status plan_end(gp_plan *plan, gp_error *err)
{
    const gp_batch *batch = &plan->batch;
    const gp_graph *graph = plan->graph;
    gp_device *device = plan->backend->device;
    gp_status status = GP_OK;

    if (batch->last || batch->forward_only)
        status = gp_device_download(device, plan->memory.gradients, plan->gradients,
                                    graph->blob_count * sizeof(float), err);
    if (status == GP_OK && !plan->sums_on_host && !batch->backward_only)
        status = gp_device_download(device, plan->memory.sums, plan->sums, GP_SUMS * sizeof(double), err);
    if (status == GP_OK && plan->sums_on_host && batch->last)
        status = gp_device_download(device, &plan->memory.sums[GP_SUM_BAD], plan->sums + GP_SUM_BAD,
                                    sizeof(double), err);
    return status == GP_OK ? gp_device_sync(device, err) : status;
}

/* The time between marks that were passed is added up. */
static void plan_measure(gp_plan *plan)
{
    gp_device *device = plan->backend->device;

    plan->times.forward_ns += gp_device_between_ns(device, 0, 1);
    plan->times.backward_ns += gp_device_between_ns(device, 1, 2);
}

/* Synchronous: gradients, sums and scores are in the host's memory when it is back.  A training that is kept goes by
 * steps.c, a prediction by predict.c. */
static gp_status plan_run(gp_plan *plan, const gp_batch *batch, gp_ready_fn ready, void *context,
                          gp_error *err)
{
    gp_device *device = plan->backend->device;
    bool turned = false;
    gp_status status;

    assert(batch->count <= plan->options.micro_batch && plan->kept == NULL);
    if (plan->predict != NULL)
        return gp_predict_run(plan, batch, err);
    plan->batch = *batch;
    status = plan_begin(plan, err);
    if (status == GP_OK)
        status = gp_device_mark(device, 0, err);
    if (status == GP_OK && batch->first && !batch->unchanged && !batch->backward_only)
        status = stretch_run(plan, &plan->preparation, err);
    for (uint32_t i = 0; i < plan->stretch_count && status == GP_OK; i++) {
        stretch *part = &plan->stretches[i];
        bool loss = plan->steps[part->first].kind == STEP_OWN_LOSS;

        if (!part->forward && !turned) {
            turned = true;
            status = gp_device_mark(device, 1, err);
        }
        bool back = !part->forward || part->after_loss;

        if (!loss && (back ? batch->forward_only : batch->backward_only))
            continue;
        if (status == GP_OK)
            status = stretch_run(plan, part, err);
    }
    if (status == GP_OK && !turned)
        status = gp_device_mark(device, 1, err);
    if (status == GP_OK)
        status = gp_device_mark(device, 2, err);
    if (status == GP_OK)
        status = plan_end(plan, err);
    if (status != GP_OK)
        return status;
    plan_measure(plan);
    return batch->last && ready != NULL ? ready(context, plan->graph->blob_count, err) : GP_OK;
}

static gp_status plan_sync(gp_backend *backend, gp_error *err)
{
    return gp_device_sync(backend->device, err);
}

static gp_plan_times plan_take_times(gp_plan *plan)
{
    gp_plan_times times = plan->times;

    plan->times = (gp_plan_times){ 0 };
    return times;
}

static size_t plan_memory_bytes(const gp_plan *plan)
{
    return sizeof(*plan) + plan->taken_bytes + (plan->step_count + plan->prepare_count) * sizeof(step) +
           2 * plan->host_bytes;
}

static void plan_describe(const gp_plan *plan, char *text, size_t bytes)
{
    uint32_t convs = 0, products = 0, kernels = 0;

    for (uint32_t i = 0; i < plan->step_count; i++) {
        convs += plan->steps[i].kind == STEP_CONV;
        products += plan->steps[i].kind == STEP_PRODUCT;
        kernels += plan->steps[i].kind == STEP_KERNEL;
    }
    snprintf(text, bytes, "cuda in %s, %s: %u steps, %u of them cuDNN's, %u cuBLASLt's, %u our kernels; %s\n",
             plan->narrow == GP_NARROW_BF16  ? "bf16"
             : plan->narrow == GP_NARROW_F16 ? "fp16"
             : plan->tf32                    ? "tf32"
                                             : "f32",
             plan->packed ? "packed" : "dense", plan->step_count, convs, products, kernels,
             plan->eager || (plan->predict != NULL && plan->predict->pieces[0] != '\0') ? "eager"
                                                                                        : "as graphs");
}

_Static_assert((int)GP_DEVICE_LIBRARIES_BYTES == (int)GP_LIBRARIES_BYTES,
               "a line of libraries has another length");

static gp_status plan_libraries(gp_backend *backend, char text[GP_LIBRARIES_BYTES], gp_error *err)
{
    return gp_device_libraries(backend->device, text, GP_LIBRARIES_BYTES, err);
}

const gp_backend_ops gp_backend_cuda = {
    .name = "cuda",
    .cools = true,
    .open = plan_backend_open,
    .close = plan_backend_close,
    .claim = plan_claim,
    .compile = plan_compile,
    .free = plan_free,
    .run = plan_run,
    .sync = plan_sync,
    .take_times = plan_take_times,
    .memory_bytes = plan_memory_bytes,
    .describe = plan_describe,
    .steps = &gp_plan_steps,
    .libraries = plan_libraries,
    .predictions = &gp_plan_predictions,
};
