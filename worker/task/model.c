/* model.c -- steps, scores and export of a model in a task. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/base/memory/alloc.h"
#include "common/base/system/file.h"
#include "common/model/onnx/onnx.h"
#include "worker/backend/cpu/base/threads.h"
#include "worker/task/model_state.h"

/* ---- parameters ---- */

size_t gp_model_count(const gp_model *model)
{
    return model->graph->blob_count;
}

float *gp_model_parameters(gp_model *model)
{
    return model->parameters;
}

float *gp_model_gradients(gp_model *model)
{
    return model->gradients;
}

uint32_t gp_model_tensor_count(const gp_model *model)
{
    return model->graph->parameter_count;
}

void gp_model_get_tensor(gp_model *model, uint32_t index, gp_model_tensor *out)
{
    const gp_parameter *parameter = &model->graph->parameters[index];

    *out = (gp_model_tensor){ .name = parameter->name,
                              .rank = parameter->shape.rank,
                              .count = (size_t)parameter->count,
                              .first = parameter->offset,
                              .parameters = model->parameters + parameter->offset,
                              .gradients = model->gradients + parameter->offset,
                              .statistic = parameter->statistic != GP_STATISTIC_NONE,
                              .frozen = parameter->learn_rate_factor == 0.0 };
    memcpy(out->dim, parameter->shape.dim, sizeof(out->dim));
}

gp_status gp_model_find_tensor(gp_model *model, const char *name, gp_model_tensor *out, gp_error *err)
{
    char known[160] = "";

    for (uint32_t i = 0; i < model->graph->parameter_count; i++) {
        const char *has = model->graph->parameters[i].name;
        size_t used = strlen(known);

        if (strcmp(has, name) == 0) {
            gp_model_get_tensor(model, i, out);
            return GP_OK;
        }
        if (used + strlen(has) + 6 < sizeof(known))
            snprintf(known + used, sizeof(known) - used, "%s%s", used == 0 ? "" : ", ", has);
        else if (used + 6 < sizeof(known) && known[used - 1] != '.')
            snprintf(known + used, sizeof(known) - used, ", ...");
    }
    return gp_fail(err, GP_ENOENT, "network %s has no tensor \"%.40s\"; its tensors are %s",
                   model->graph->spec->name, name, known[0] == '\0' ? "none" : known);
}

size_t gp_model_outputs(const gp_model *model)
{
    return model->graph->score_count;
}

/* ---- computing ---- */

static gp_status check_canceled(const gp_model *model, gp_error *err)
{
    if (!gp_tasks_canceled(model->tasks))
        return GP_OK;
    return gp_fail(err, GP_ECANCELED, "the task was canceled in step %" PRIu64, model->step + 1);
}

/* Return the batch for samples [first, first + count) of the supplied ones. */
static gp_batch batch_of(const gp_model *model, const gp_samples *samples, uint32_t first, uint32_t count)
{
    const unsigned char *targets = samples->targets;

    return (gp_batch){
        .samples = (const unsigned char *)samples->samples + (size_t)first * model->sample_bytes,
        .targets = targets == NULL ? NULL : targets + (size_t)first * model->target_bytes,
        .count = count,
        .first = model->fresh && first == 0,
        .last = first + count == samples->count,
        .seed = (uint64_t)model->options.seed,
        .step = model->step,
        .position = samples->position + first,
        .coupling = model->coupling.sums == NULL ? NULL : &model->coupling,
    };
}

static gp_status samples_check(const gp_model *model, const gp_samples *samples, bool targets, gp_error *err)
{
    if (samples->count != 0 && (samples->samples == NULL || (targets && samples->targets == NULL)))
        return gp_fail(err, GP_EINVAL, "%" PRIu32 " samples, but no %s", samples->count,
                       samples->samples == NULL ? "memory" : "targets");
    if (model->loss.forward.count != 0)
        return gp_fail(err, GP_ESTATE,
                       "gp_model_forward called before gp_model_backward of the previous pass");
    return GP_OK;
}

static void step_begins(gp_model *model)
{
    /* The plan overwrites its sums in the first call, but not the others. */
    if (model->fresh)
        memset(model->sums, 0, MODEL_SUMS * sizeof(double));
}

/* Compute samples in calls of at most micro_batch. At least one call is made, so a rank without
 * samples gets zero gradients. */
static gp_status samples_run(gp_model *model, const gp_samples *samples, bool forward_only, gp_error *err)
{
    gp_status status = GP_OK;
    uint32_t first = 0;

    model->loss.status = GP_OK;
    do {
        uint32_t left = samples->count - first;
        gp_batch batch =
            batch_of(model, samples, first, left < model->micro_batch ? left : model->micro_batch);

        batch.forward_only = forward_only;
        model->loss.targets = batch.targets;
        status = model->backend_ops->run(model->plan, &batch, NULL, NULL, err);
        first += batch.count;
        atomic_fetch_add_explicit(&model->tasks->train->progress, 1, memory_order_relaxed);
    } while (status == GP_OK && model->loss.status == GP_OK && first < samples->count);
    if (status == GP_OK)
        status = model->backend_ops->sync(model->backend, err);
    gp_threads_restore();
    return status == GP_OK ? gp_custom_loss_result(&model->loss, err) : status;
}

gp_status gp_model_forward_backward(gp_model *model, const gp_samples *samples, gp_error *err)
{
    gp_status status = samples_check(model, samples, model->loss.function == NULL, err);

    if (status == GP_OK)
        status = check_canceled(model, err);
    if (status == GP_OK && samples->count > model->micro_batch && model->graph->couples_samples)
        status = gp_fail(err, GP_EINVAL,
                         "%" PRIu32 " samples need calls of %" PRIu32
                         ", but network %s couples the samples of a call (batch norm); raise micro_batch",
                         samples->count, model->micro_batch, model->graph->spec->name);
    if (status != GP_OK)
        return status;
    step_begins(model);
    status = samples_run(model, samples, false, err);
    if (status != GP_OK)
        return status;
    model->fresh = false;
    model->sums[MODEL_SAMPLES] += samples->count;
    return GP_OK;
}

gp_status gp_model_forward(gp_model *model, const gp_samples *samples, const float **scores, float **gradient,
                           gp_error *err)
{
    gp_status status = samples_check(model, samples, false, err);

    if (status == GP_OK)
        status = check_canceled(model, err);
    if (status == GP_OK && model->loss.parallel)
        status = gp_fail(
            err, GP_ESTATE,
            "the model was opened with loss_parallel; forward and backward cannot be called separately");
    if (status == GP_OK && model->loss.function == NULL)
        status =
            gp_fail(err, GP_ESTATE, "network %s computes its own loss; open the model with a custom loss",
                    model->graph->spec->name);
    if (status == GP_OK && (samples->count == 0 || samples->count > model->micro_batch))
        status =
            gp_fail(err, GP_EINVAL,
                    "invalid batch of %" PRIu32 " samples: must be between 1 and micro_batch (%" PRIu32 ")",
                    samples->count, model->micro_batch);
    if (status != GP_OK)
        return status;
    step_begins(model);
    model->loss.scores = NULL;
    model->loss.gradient = NULL;
    model->loss.forward = *samples;
    status = samples_run(model, samples, true, err);
    if (status == GP_OK && model->loss.gradient == NULL)
        status = gp_fail(err, GP_EINVAL, "network %s has no learnable parameters", model->graph->spec->name);
    if (status != GP_OK) {
        model->loss.forward.count = 0;
        return status;
    }
    *scores = model->loss.scores;
    *gradient = model->loss.gradient;
    return GP_OK;
}

gp_status gp_model_backward(gp_model *model, double loss, double weight, gp_error *err)
{
    if (model->loss.forward.count == 0)
        return gp_fail(err, GP_ESTATE, "gp_model_backward called without gp_model_forward");
    gp_batch batch = batch_of(model, &model->loss.forward, 0, model->loss.forward.count);

    batch.backward_only = true;
    model->loss.forward.count = 0;
    gp_status status = model->backend_ops->run(model->plan, &batch, NULL, NULL, err);

    if (status == GP_OK)
        status = model->backend_ops->sync(model->backend, err);
    gp_threads_restore();
    if (status != GP_OK)
        return status;
    model->fresh = false;
    model->sums[GP_SUM_LOSS] += loss;
    model->sums[GP_SUM_WEIGHT] += weight;
    model->sums[MODEL_SAMPLES] += batch.count;
    return GP_OK;
}

/* ---- end of a step ---- */

static gp_model_sums sums_of(const double *sums, double samples)
{
    return (gp_model_sums){ .loss = sums[GP_SUM_LOSS],
                            .weight = sums[GP_SUM_WEIGHT],
                            .correct = sums[GP_SUM_CORRECT],
                            .classed = sums[GP_SUM_CLASSED],
                            .squares = sums[GP_SUM_SQUARES],
                            .values = sums[GP_SUM_VALUES],
                            .samples = samples };
}

void gp_model_get_sums(const gp_model *model, gp_model_sums *out)
{
    *out = sums_of(model->sums, model->sums[MODEL_SAMPLES]);
}

uint64_t gp_model_step_count(const gp_model *model)
{
    return model->step;
}

void gp_model_set_step(gp_model *model, uint64_t step)
{
    model->step = step;
    model->fresh = true;
}

void gp_model_next_step(gp_model *model)
{
    if (!model->fresh && model->sums[MODEL_SAMPLES] > 0) {
        gp_threads_resume();
        gp_statistics_commit(model->graph, model->parameters, model->gradients, model->sums[MODEL_SAMPLES],
                             false);
        gp_threads_restore();
    }
    model->step++;
    model->fresh = true;
    model->loss.forward.count = 0;
}

gp_status gp_model_optimizer_step(gp_model *model, double learn_rate, gp_error *err)
{
    double loss = model->sums[GP_SUM_LOSS], weight = model->sums[GP_SUM_WEIGHT];

    if (model->fresh || model->loss.forward.count != 0 || weight == 0.0)
        return gp_fail(err, GP_ESTATE, "cannot commit step %" PRIu64 ": %s", model->step + 1,
                       model->fresh                     ? "no gradients were computed since the last commit"
                       : model->loss.forward.count != 0 ? "a backward pass is missing"
                                                        : "the total weight is 0");
    if (!isfinite(loss) || !isfinite(weight) || weight < 0.0 || !isfinite(learn_rate))
        return gp_fail(err, GP_EDIVERGED,
                       "in step %" PRIu64 " the loss is %g, the weight %g and the learning rate %g; the "
                       "parameters are those of step %" PRIu64,
                       model->step + 1, loss, weight, learn_rate, model->step);
    gp_threads_resume();
    /* Statistics first, because the optimizer may clip the gradients. */
    gp_statistics_commit(model->graph, model->parameters, model->gradients, model->sums[MODEL_SAMPLES],
                         false);
    gp_optim_step(model->optim, model->parameters, model->gradients, weight, learn_rate);
    gp_threads_restore();
    model->step++;
    model->fresh = true;
    return GP_OK;
}

/* ---- outside of steps ---- */

gp_status gp_model_scores(gp_model *model, const gp_samples *samples, float *scores, gp_model_sums *sums,
                          gp_error *err)
{
    size_t outputs = gp_model_outputs(model);
    gp_status status = samples_check(model, samples, false, err);

    if (status == GP_OK)
        status = check_canceled(model, err);
    if (status == GP_OK && model->inference == NULL)
        status = gp_fail(err, GP_ESTATE, "the model was opened with train_only; it cannot predict");
    memset(model->inference_sums, 0, sizeof(model->inference_sums));
    for (uint32_t first = 0; status == GP_OK && first < samples->count; first += model->micro_batch) {
        uint32_t left = samples->count - first;
        gp_batch batch =
            batch_of(model, samples, first, left < model->micro_batch ? left : model->micro_batch);

        batch.first = first == 0;
        status = model->backend_ops->run(model->inference, &batch, NULL, NULL, err);
        if (status == GP_OK)
            status = model->backend_ops->sync(model->backend, err);
        if (status == GP_OK && scores != NULL)
            memcpy(scores + first * outputs, model->scores, batch.count * outputs * sizeof(float));
    }
    gp_threads_restore();
    if (status == GP_OK && sums != NULL)
        *sums = sums_of(model->inference_sums, samples->count);
    return status;
}

gp_status gp_model_pass(gp_model *model, const gp_samples *samples, bool gradients, double *loss,
                        gp_error *err)
{
    gp_status status = check_canceled(model, err);

    model->fresh = true;
    step_begins(model);
    if (status == GP_OK)
        status = samples_run(model, samples, !gradients, err);
    *loss = model->sums[GP_SUM_LOSS];
    return status;
}

/* Write the model as ONNX: to a file, or into model->onnx if path is NULL. */
static gp_status onnx_put(gp_model *model, const char *path, gp_error *err)
{
    const gp_network *network = &model->network;
    const char *const *names = (const char *const *)network->class_names;
    gp_graph *own = NULL;
    const gp_graph *graph = model->graph;
    gp_status status = GP_OK;

    /* The file has no custom loss, so it needs the network's own graph. */
    if (model->loss.function != NULL) {
        status = gp_graph_new(&own, network->spec, err);
        graph = own;
    }
    if (status == GP_OK && path != NULL)
        status =
            gp_onnx_save(path, network->spec, graph, model->parameters, names, network->class_count, 0, err);
    else if (status == GP_OK)
        status = gp_onnx_write(&model->onnx, network->spec, graph, model->parameters, names,
                               network->class_count, err);
    gp_graph_free(own);
    return status;
}

gp_status gp_model_onnx(gp_model *model, const void **data, size_t *bytes, gp_error *err)
{
    gp_buffer_clear(&model->onnx);
    gp_status status = onnx_put(model, NULL, err);

    if (status != GP_OK)
        return status;
    *data = model->onnx.data;
    *bytes = model->onnx.bytes;
    return GP_OK;
}

gp_status gp_model_save(gp_model *model, const char *path, gp_error *err)
{
    return onnx_put(model, path, err);
}
