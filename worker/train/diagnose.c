#include "worker/train/diagnose.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "common/base/memory/alloc.h"
#include "worker/backend/backend.h"

/* samples per call; all samples of this rank if the network couples them */
enum { DIAGNOSE_SAMPLES = 8 };

/* Bit positions in a key: place, then op or layer, then sample position. */
enum { KEY_PLACE_SHIFT = 60, KEY_INDEX_SHIFT = 36 };

typedef struct examination {
    const gp_diagnose_request *request;
    gp_diagnosis *found;
    gp_backend *backend;
    gp_plan *plan;
    gp_loader *loader;
    float *gradients;
    double sums[GP_SUMS];
    uint32_t batch; /* samples per call */
} examination;

static size_t first_bad(const float *values, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!isfinite(values[i]))
            return i;
    return count;
}

static void note(examination *e, gp_bad_place place, uint32_t op, uint32_t layer, uint64_t position)
{
    gp_diagnosis seen = { .place = place, .op = op, .layer = layer, .position = position };

    if (gp_diagnosis_key(&seen) < gp_diagnosis_key(e->found))
        *e->found = seen;
}

/* Check all forward ops' outputs after a call with `count` samples; `position` is the first
 * sample's index. */
static void selftest_outputs(examination *e, uint32_t count, uint64_t position)
{
    const gp_graph *graph = e->request->graph;
    const gp_ops *ops = &graph->ops[e->request->phase];

    for (uint32_t i = 0; i < ops->forward_count; i++) {
        const gp_op *op = &ops->op[i];

        for (uint32_t k = 0; k < GP_OP_VALUES_MAX; k++) {
            const gp_value *value = op->out[k] == GP_NO_VALUE ? NULL : &graph->values[op->out[k]];
            const float *at = value == NULL ? NULL : gp_cpu_peek(e->plan, op->out[k]);

            if (at == NULL || value->dtype != GP_F32)
                continue;
            size_t each = (size_t)gp_shape_count(&value->shape);
            size_t all = value->role == GP_VALUE_CALL ? each : each * count, bad = first_bad(at, all);

            if (bad < all)
                note(e, GP_BAD_OUTPUT, i, op->layer,
                     position + (value->role == GP_VALUE_CALL ? 0 : bad / each));
        }
    }
    if (!isfinite(e->sums[GP_SUM_LOSS])) /* the scores are finite: the loss itself is not */
        note(e, GP_BAD_OUTPUT, ops->forward_count - 1, ops->op[ops->forward_count - 1].layer, position);
}

static gp_status selftest_call(examination *e, uint32_t done, uint32_t count, gp_error *err)
{
    const gp_diagnose_request *request = e->request;
    const gp_store_info *info = gp_store_get_info(request->store);
    const uint64_t position = request->position + done;
    gp_loader_batch *batch;
    gp_status status = gp_loader_request(e->loader, request->epoch, request->first + done, count, err);

    if (status == GP_OK)
        status = gp_loader_take(e->loader, &batch, NULL, err);
    if (status != GP_OK)
        return status;
    if (info->dtype == GP_F32) {
        size_t each = (size_t)gp_shape_count(&request->graph->spec->input),
               bad = first_bad(batch->samples, each * count);

        if (bad < each * count)
            note(e, GP_BAD_INPUT, 0, 0, position + bad / each);
    }
    status = gp_backend_cpu.run(e->plan,
                                &(gp_batch){
                                    .samples = batch->samples,
                                    .targets = batch->targets,
                                    .count = count,
                                    .first = true,
                                    .last = true,
                                    .forward_only = true,
                                    .seed = request->seed,
                                    .step = request->step,
                                    .position = position,
                                },
                                NULL, NULL, err);
    gp_loader_release(e->loader, batch);
    if (status == GP_OK)
        selftest_outputs(e, count, position);
    return status;
}

static gp_status selftest_samples(examination *e, gp_error *err)
{
    const gp_diagnose_request *request = e->request;
    const gp_graph *graph = request->graph;
    gp_plan_memory memory = { .parameters = request->parameters };
    gp_status status;

    e->batch =
        graph->couples_samples || request->count < DIAGNOSE_SAMPLES ? request->count : DIAGNOSE_SAMPLES;
    e->gradients = gp_aligned_calloc(64, graph->blob_count * sizeof(float));
    if (e->gradients == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory to look for the layer");
    memory.gradients = e->gradients;
    memory.sums = e->sums;
    status = gp_backend_cpu.open(&e->backend, &(gp_backend_options){ .threads = 1, .kernels = "lanes,split" },
                                 err);
    if (status == GP_OK)
        status = gp_backend_cpu.compile(
            &e->plan, e->backend, graph,
            &(gp_plan_options){ .phase = request->phase,
                                .micro_batch = e->batch,
                                .sample_dtype = gp_store_get_info(request->store)->dtype },
            &memory, err);
    if (status == GP_OK)
        status = gp_loader_new(
            &e->loader, request->store, request->sampler,
            &(gp_loader_options){
                .depth = 1, .capacity = e->batch, .augment = request->augment, .seed = request->seed },
            err);
    for (uint32_t done = 0; done < request->count && status == GP_OK; done += e->batch) {
        uint32_t left = request->count - done;

        status = selftest_call(e, done, left < e->batch ? left : e->batch, err);
        gp_train_control_progress(request->control);
        if (request->phase == GP_PHASE_INFER && e->found->place != GP_BAD_NOWHERE)
            break;
    }
    return status;
}

gp_status gp_diagnose(gp_diagnosis *out, const gp_diagnose_request *request, gp_error *err)
{
    gp_diagnosis found = { .place = GP_BAD_NOWHERE, .phase = request->phase };
    examination e = { .request = request, .found = &found };
    gp_status status = GP_OK;

    for (uint32_t p = 0; p < request->graph->parameter_count; p++) {
        const gp_parameter *parameter = &request->graph->parameters[p];
        const size_t count = (size_t)parameter->count;

        if (first_bad(request->parameters + parameter->offset, count) < count)
            note(&e, GP_BAD_WEIGHTS, 0, parameter->layer, 0);
    }
    if (request->count > 0 && found.place != GP_BAD_WEIGHTS)
        status = selftest_samples(&e, err);
    gp_loader_free(e.loader);
    if (e.plan != NULL)
        gp_backend_cpu.free(e.plan);
    gp_backend_cpu.close(e.backend);
    gp_free(e.gradients);
    if (status == GP_OK) {
        *out = found;
        out->phase = request->phase;
    }
    return status;
}

int64_t gp_diagnosis_key(const gp_diagnosis *diagnosis)
{
    uint32_t index = diagnosis->place == GP_BAD_WEIGHTS ? diagnosis->layer : diagnosis->op;

    return (int64_t)diagnosis->place << KEY_PLACE_SHIFT | (int64_t)index << KEY_INDEX_SHIFT |
           (int64_t)diagnosis->position;
}

gp_diagnosis gp_diagnosis_from_key(int64_t key, const gp_graph *graph, gp_phase phase)
{
    gp_diagnosis diagnosis = { .phase = phase,
                               .place = (gp_bad_place)(key >> KEY_PLACE_SHIFT & 3),
                               .position = (uint64_t)key & (((uint64_t)1 << KEY_INDEX_SHIFT) - 1) };
    uint32_t index = (uint32_t)(key >> KEY_INDEX_SHIFT) & 0xffffff;

    if (diagnosis.place == GP_BAD_WEIGHTS)
        diagnosis.layer = index;
    if (diagnosis.place == GP_BAD_OUTPUT && index < graph->ops[phase].forward_count) {
        diagnosis.op = index;
        diagnosis.layer = graph->ops[phase].op[index].layer;
    }
    return diagnosis;
}

const char *gp_diagnosis_format(const gp_diagnosis *diagnosis, const gp_graph *graph, char *text,
                                size_t bytes)
{
    const gp_layer *layer =
        diagnosis->layer < graph->spec->layer_count ? &graph->spec->layers[diagnosis->layer] : NULL;
    const char *whole = diagnosis->phase == GP_PHASE_TRAIN ? "mini-batch" : "validation data";
    const char *name = layer == NULL ? "input" : layer->name, *kind = layer == NULL ? "" : layer->kind->name;

    switch (diagnosis->place) {
    case GP_BAD_WEIGHTS:
        snprintf(text, bytes, "the weights of layer %s (%s) are not finite", name, kind);
        break;
    case GP_BAD_INPUT:
        snprintf(text, bytes, "sample %" PRIu64 " of the %s is not finite", diagnosis->position + 1, whole);
        break;
    case GP_BAD_OUTPUT:
        snprintf(text, bytes,
                 "the first non-finite value is in the output of layer %s (%s), for sample %" PRIu64
                 " of the %s",
                 name, kind, diagnosis->position + 1, whole);
        break;
    case GP_BAD_NOWHERE:
        snprintf(text, bytes, "all layer outputs are finite in float32");
        break;
    }
    return text;
}
