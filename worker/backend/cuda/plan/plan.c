/* Compiles a graph to steps on the device, and runs calls: upload the samples, replay the
 * stretches, download the sums.
 *
 * Between calls, the host's blobs are authoritative. Parameters are uploaded in the first call of a
 * step; gradients and sums are downloaded after the last. Trainer, checkpoints, the exchange
 * between workers and `reproducible` therefore work as on a CPU worker. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/memory/alloc.h"
#include "worker/backend/cuda/plan/resident.h"
#include "worker/backend/cuda/plan/predict.h"
#include "worker/backend/cuda/plan/prepare.h"
#include "worker/backend/cuda/plan/profile.h"

enum { MICRO_BATCH_MAX = 1 << 20 };

/* ---- backend ---- */

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
    backend->libraries = words_have(words, "libraries");
    status = gp_device_open(&backend->device, options->compiled, err);
    if (status != GP_OK) {
        plan_backend_close(backend);
        return status;
    }
    *out = backend;
    return GP_OK;
}

/* ---- memory ---- */

static void plan_free(gp_plan *plan)
{
    if (plan == NULL)
        return;
    gp_resident_free(plan);
    gp_predict_close(plan);
    gp_profile_free(plan->profile);
    gp_stretches_free(&plan->stretches);
    gp_step_list_free(&plan->steps);
    gp_step_list_free(&plan->prepare);
    gp_heap_cut(&plan->heap, 0);
    gp_free(plan->custom_loss.scores);
    gp_free(plan->custom_loss.gradient);
    gp_free(plan->copies);
    gp_free(plan->follows);
    gp_free(plan->ops);
    gp_free(plan->values);
    gp_free(plan);
}

/* Allocate the regions, whose sizes are known after lowering, and replace the placeholders in the
 * steps. Allocate host memory for custom losses. */
static gp_status plan_take_regions(gp_plan *plan, gp_error *err)
{
    plan_region *regions = plan->regions, *persistent = &regions[REGION_PERSISTENT];
    plan_custom_loss *loss = &plan->custom_loss;
    gp_status status = GP_OK;

    for (int i = 0; i < REGIONS && status == GP_OK; i++)
        status = gp_heap_take(&plan->heap, &regions[i].at, regions[i].bytes, err);
    /* some of it accumulates, so it must start at zero */
    if (status == GP_OK && persistent->bytes > 0)
        status = gp_device_clear(plan->backend->device, persistent->at, persistent->bytes, err);
    if (status != GP_OK)
        return status;
    gp_step_move(&plan->steps, 0, regions);
    gp_step_move(&plan->prepare, 0, regions);
    if (loss->bytes == 0)
        return GP_OK;
    loss->scores = gp_aligned_calloc(64, loss->bytes);
    loss->gradient = gp_aligned_calloc(64, loss->bytes);
    return loss->scores == NULL || loss->gradient == NULL
               ? gp_fail(err, GP_ENOMEM, "no memory for the scores of a loss of your own")
               : GP_OK;
}

/* ---- compile ---- */

/* Append the step that writes the input, which belongs to no op. */
static gp_status lower_input(gp_plan *plan, gp_error *err)
{
    const gp_netspec *spec = plan->graph->spec;
    gp_kernel_args args = { .call = plan->buffers.call,
                            .bytes = plan->buffers.samples,
                            .rows = plan->options.micro_batch };
    step *added;

    _Static_assert((int)GP_NORMALIZE_MAX <= (int)GP_KERNEL_RATES,
                   "a kernel takes fewer scales than a network has");
    args.y[0] = gp_plan_image(plan, plan->graph->input);
    args.n[1] = args.y[0].channels;
    if (plan->spread_input) /* includes the zero padding */
        args.y[0].channels = PLAN_INPUT_CHANNELS;
    args.kind = plan->options.sample_dtype == GP_U8;
    args.n[0] = spec->normalize_count;
    for (uint32_t k = 0; k < spec->normalize_count; k++) {
        args.scale[k] = (float)spec->scale[k];
        args.offset[k] = (float)spec->offset[k];
    }
    added = gp_step_add(&plan->steps, STEP_KERNEL, 0);
    if (added == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for the steps of a plan");
    added->kernel = plan->spread_input ? GP_KERNEL_wide_normalize : GP_KERNEL_normalize;
    added->args = args;
    added->count =
        args.y[0].sample / (plan->spread_input ? PLAN_INPUT_CHANNELS : 1) * plan->options.micro_batch;
    return GP_OK;
}

static gp_status plan_build(gp_plan *plan, gp_error *err)
{
    const gp_ops *ops = &plan->graph->ops[plan->options.phase];
    gp_status status = gp_plan_fuse(plan, err);

    if (status == GP_OK)
        status = gp_plan_place(plan, err);
    if (status == GP_OK)
        status = gp_heap_take(&plan->heap, &plan->arena.at, plan->arena.bytes, err);
    if (status == GP_OK)
        status = gp_buffers_take(&plan->buffers, &plan->heap, plan->graph, &plan->options, err);
    if (status == GP_OK)
        status = lower_input(plan, err);
    for (uint32_t i = 0; i < ops->count; i++)
        plan->custom_loss.present = plan->custom_loss.present || ops->op[i].code == GP_OP_CUSTOM_LOSS;
    if (status == GP_OK)
        status = gp_plan_lower_all(plan, err);
    if (status == GP_OK && plan->options.phase == GP_PHASE_TRAIN && plan->narrow == GP_NARROW_F16)
        status = gp_plan_lower_bad(plan, err);
    if (status == GP_OK)
        status = plan_take_regions(plan, err);
    if (status == GP_OK)
        status = gp_plan_join_prepare(plan, err);
    if (status == GP_OK && gp_plan_gradients_wait(plan))
        status = gp_plan_join_gradients(plan, err);
    if (status == GP_OK)
        status =
            plan->options.phase == GP_PHASE_TRAIN
                ? gp_stretches_cut(&plan->stretches, &plan->prepare, &plan->steps, ops->forward_count, err)
                : gp_predict_open(plan, err);
    return status == GP_OK ? gp_device_sync(plan->backend->device, err) : status;
}

static gp_status plan_compile(gp_plan **out, gp_backend *backend, const gp_graph *graph,
                              const gp_plan_options *options, const gp_plan_memory *memory, gp_error *err)
{
    gp_plan *plan;
    gp_status status;

    if (options->micro_batch < 1 || options->micro_batch > MICRO_BATCH_MAX)
        return gp_fail(err, GP_EINVAL, "invalid micro-batch size %u: must be between 1 and %d",
                       options->micro_batch, MICRO_BATCH_MAX);
    if (options->sample_dtype != GP_U8 && options->sample_dtype != GP_F32)
        return gp_fail(err, GP_EINVAL, "unsupported sample type %s: must be uint8 or float32",
                       gp_dtype_name(options->sample_dtype));
    plan = gp_calloc(1, sizeof(*plan));
    if (plan == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for a plan");
    plan->backend = backend;
    plan->graph = graph;
    plan->options = *options;
    plan->memory = *memory;
    /* Tensor cores need packed activations; cuDNN's strict float32 kernels need dense ones. */
    plan->tf32 = backend->tf32 || options->precision == GP_PRECISION_TF32;
    plan->narrow = options->precision == GP_PRECISION_BF16  ? GP_NARROW_BF16
                   : options->precision == GP_PRECISION_F16 ? GP_NARROW_F16
                                                            : GP_WIDE;
    plan->packed = backend->packed || (!backend->dense && (plan->narrow != GP_WIDE || plan->tf32));
    plan->heap.device = backend->device;
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
    if (status == GP_OK)
        status = gp_device_upload(device, s->sums, coupling->sums, s->doubles * sizeof(double), err);
    return status == GP_OK ? gp_device_launch(device, s->kernel, &s->args, s->count, err) : status;
}

/* Compute the loss of one call. A forward_only call ends after the loss; a backward_only call
 * starts with the gradient from that call.
 *   at  scores and their gradient on the device */
static gp_status custom_loss_run(gp_plan *plan, const gp_device_operands *at, gp_error *err)
{
    const plan_custom_loss *loss = &plan->custom_loss;
    const gp_plan_memory *memory = &plan->memory;
    const gp_batch *batch = &plan->batch;
    gp_device *device = plan->backend->device;
    gp_status status = GP_OK;

    if (!batch->backward_only) {
        memset(loss->gradient, 0, loss->bytes);
        status = gp_device_download(device, loss->scores, at->first, loss->bytes, err);
        if (status == GP_OK)
            status = gp_device_sync(device, err);
        if (status == GP_OK && batch->count != 0)
            status = memory->loss(memory->loss_context,
                                  &(gp_plan_loss_call){ .count = batch->count,
                                                        .scores = loss->scores,
                                                        .gradient = loss->gradient,
                                                        .sums = memory->sums },
                                  err);
    }
    if (status == GP_OK && !batch->forward_only)
        status = gp_device_upload(device, at->out, loss->gradient, loss->bytes, err);
    return status;
}

static gp_status step_run(gp_plan *plan, const step *s, gp_error *err)
{
    gp_device *device = plan->backend->device;
    char *workspace = plan->regions[REGION_WORKSPACE].at;

    switch (s->kind) {
    case STEP_KERNEL:
        return gp_device_launch(device, s->kernel, &s->args, s->count, err);
    case STEP_CONV:
        return gp_device_conv_run(device, s->work, &s->at, workspace, err);
    case STEP_PRODUCT:
        return gp_device_product_run(device, s->work, &s->at, workspace, err);
    case STEP_COUPLE:
        return couple(plan, s, err);
    case STEP_CUSTOM_LOSS:
        break;
    }
    return custom_loss_run(plan, &s->at, err);
}

gp_status gp_plan_launch(gp_plan *plan, const step_list *list, uint32_t first, uint32_t count, gp_error *err)
{
    gp_status status = GP_OK;

    for (uint32_t i = first; i < first + count && status == GP_OK; i++) {
        status = gp_profile_step(plan, &list->step[i], err);
        if (status == GP_OK)
            status = step_run(plan, &list->step[i], err);
    }
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
    gp_status status = GP_OK;

    if (part->count == 0)
        return GP_OK;
    if (gp_plan_eager(plan) || plan->batch.coupling != NULL || gp_stretch_is_loss(part))
        return gp_plan_launch(plan, part->list, part->first, part->count, err);
    if (part->graph == NULL && !part->warm) {
        part->warm = true;
        return gp_plan_launch(plan, part->list, part->first, part->count, err);
    }
    if (part->graph == NULL) {
        status = gp_device_record(device, err);
        if (status == GP_OK)
            status = gp_plan_recorded(plan, &part->graph,
                                      gp_plan_launch(plan, part->list, part->first, part->count, err), err);
    }
    return status == GP_OK ? gp_device_replay(device, part->graph, err) : status;
}

gp_kernel_args *gp_plan_input(gp_plan *plan)
{
    return &plan->steps.step[0].args;
}

gp_kernel_call gp_plan_call(const gp_batch *batch)
{
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
    gp_kernel_call call = gp_plan_call(batch);
    size_t each = (size_t)gp_shape_count(&graph->spec->input) * gp_dtype_bytes(plan->options.sample_dtype);
    gp_status status = gp_device_upload(device, plan->buffers.call, &call, sizeof(call), err);

    if (batch->backward_only || status != GP_OK)
        return status;
    if (batch->first && !batch->unchanged)
        status = gp_buffers_put_parameters(&plan->buffers, device, graph, plan->memory.parameters, err);
    if (status == GP_OK && batch->first)
        status = gp_buffers_clear_sums(&plan->buffers, device, err);
    if (status == GP_OK && batch->first && plan->custom_loss.present)
        memset(plan->memory.sums, 0, GP_SUMS * sizeof(double));
    if (status == GP_OK && batch->count != 0)
        status = gp_device_upload(device, plan->buffers.samples, batch->samples, batch->count * each, err);
    if (status == GP_OK && batch->count != 0 && batch->targets != NULL && graph->target_bytes != 0)
        status = gp_device_upload(device, plan->buffers.targets, batch->targets,
                                  batch->count * graph->target_bytes, err);
    return status;
}

static gp_status plan_end(gp_plan *plan, gp_error *err)
{
    const gp_batch *batch = &plan->batch;
    const plan_buffers *buffers = &plan->buffers;
    const bool custom_loss = plan->custom_loss.present;
    gp_device *device = plan->backend->device;
    gp_status status = GP_OK;

    if (batch->last || batch->forward_only)
        status = gp_device_download(device, plan->memory.gradients, buffers->gradients,
                                    plan->graph->blob_count * sizeof(float), err);
    if (status == GP_OK && !custom_loss && !batch->backward_only)
        status = gp_device_download(device, plan->memory.sums, buffers->sums, GP_SUMS * sizeof(double), err);
    if (status == GP_OK && custom_loss && batch->last)
        status = gp_device_download(device, &plan->memory.sums[GP_SUM_BAD], buffers->sums + GP_SUM_BAD,
                                    sizeof(double), err);
    return status == GP_OK ? gp_device_sync(device, err) : status;
}

/* Run a call synchronously: gradients, sums and scores are in host memory on return.
 * Device-resident trainings use steps.c and predictions use predict.c instead. */
static gp_status plan_run(gp_plan *plan, const gp_batch *batch, gp_ready_fn ready, void *context,
                          gp_error *err)
{
    gp_device *device = plan->backend->device;
    bool turned = false;
    gp_status status;

    assert(batch->count <= plan->options.micro_batch && plan->resident == NULL);
    if (plan->predict != NULL)
        return gp_predict_run(plan, batch, err);
    plan->batch = *batch;
    status = gp_profile_begin(plan, err);
    if (status == GP_OK)
        status = plan_begin(plan, err);
    if (status == GP_OK)
        status = gp_device_mark(device, 0, err);
    if (status == GP_OK && batch->first && !batch->unchanged && !batch->backward_only)
        status = stretch_run(plan, &plan->stretches.preparation, err);
    for (uint32_t i = 0; i < plan->stretches.count && status == GP_OK; i++) {
        stretch *part = &plan->stretches.stretch[i];
        bool loss = gp_stretch_is_loss(part);

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
        status = gp_profile_end(plan, err);
    if (status == GP_OK)
        status = plan_end(plan, err);
    if (status != GP_OK)
        return status;
    plan->times.forward_ns += gp_device_between_ns(device, 0, 1);
    plan->times.backward_ns += gp_device_between_ns(device, 1, 2);
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
    return sizeof(*plan) + gp_heap_bytes(&plan->heap) +
           (plan->steps.count + plan->prepare.count) * sizeof(step) + 2 * plan->custom_loss.bytes;
}

static void plan_describe(const gp_plan *plan, char *text, size_t bytes)
{
    uint32_t convs = 0, products = 0, direct = 0, kernels = 0;

    for (uint32_t i = 0; i < plan->steps.count; i++) {
        const step *s = &plan->steps.step[i];
        const bool is_direct = s->kind == STEP_KERNEL && (s->kernel == GP_KERNEL_direct_conv ||
                                                          s->kernel == GP_KERNEL_direct_conv_data ||
                                                          s->kernel == GP_KERNEL_direct_conv_weights);

        convs += s->kind == STEP_CONV;
        products += s->kind == STEP_PRODUCT;
        direct += is_direct;
        kernels += s->kind == STEP_KERNEL && !is_direct;
    }
    snprintf(text, bytes,
             "cuda in %s, %s: %u steps, %u of them cuDNN's, %u cuBLASLt's, %u direct convolutions, %u other "
             "kernels; %s\n",
             plan->narrow == GP_NARROW_BF16  ? "bf16"
             : plan->narrow == GP_NARROW_F16 ? "fp16"
             : plan->tf32                    ? "tf32"
                                             : "f32",
             plan->packed ? "packed" : "dense", plan->steps.count, convs, products, direct, kernels,
             gp_plan_eager(plan) || (plan->predict != NULL && plan->predict->pieces[0] != '\0')
                 ? "eager"
                 : "as graphs");
}

static uint32_t plan_report_missing(const gp_plan *plan, const char **why)
{
    *why = plan->missing.why;
    return plan->missing.count;
}

_Static_assert((int)GP_DEVICE_LIBRARIES_BYTES == (int)GP_LIBRARIES_BYTES,
               "a line of libraries has another length");

static gp_status plan_libraries(gp_backend *backend, char text[GP_LIBRARIES_BYTES], gp_error *err)
{
    return gp_device_libraries(backend->device, text, GP_LIBRARIES_BYTES, err);
}

static uint64_t plan_device_memory(gp_backend *backend)
{
    return gp_device_used(backend->device);
}

const gp_backend_ops gp_backend_cuda = {
    .name = "cuda",
    .release_idle = true,
    .open = plan_backend_open,
    .close = plan_backend_close,
    .compile = plan_compile,
    .free = plan_free,
    .run = plan_run,
    .sync = plan_sync,
    .take_times = plan_take_times,
    .memory_bytes = plan_memory_bytes,
    .describe = plan_describe,
    .steps = &gp_plan_steps,
    .libraries = plan_libraries,
    .missing = plan_report_missing,
    .device_memory = plan_device_memory,
    .predictions = &gp_plan_predictions,
};
