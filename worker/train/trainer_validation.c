/* trainer_validation.c -- compute validation metrics. */
#include <math.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/system/fault.h"
#include "worker/train/trainer_state.h"

/* Validation state on this rank. */
typedef struct validation {
    uint32_t total;        /* samples on all ranks */
    uint32_t first, count; /* this rank's share */
    uint32_t micro_batch;  /* maximum samples per call */
    uint32_t calls;        /* at least one, so that a rank without samples writes zeros */
    uint64_t excluded;     /* targets without a class or value */
    int64_t begin_ns;
    int64_t report_ms; /* next progress report time, from the start */
} validation;

enum { REPORT_FIRST_MS = 2000, REPORT_EACH_MS = 500 };

/* Request a call's samples from the loader. No effect after the last call. */
static gp_status validation_request(gp_trainer *trainer, const validation *v, uint32_t call, gp_error *err)
{
    uint32_t begin = call * v->micro_batch;
    uint32_t left = v->count - begin;

    if (call >= v->calls)
        return GP_OK;
    return gp_loader_request(trainer->data.validation.loader, 0, v->first + begin,
                             left < v->micro_batch ? left : v->micro_batch, err);
}

static gp_status validation_call(gp_trainer *trainer, validation *v, uint32_t call, gp_error *err)
{
    const gp_graph *graph = trainer->graph;
    gp_loader *loader = trainer->data.validation.loader;
    bool reproducible = trainer->options.reproducible;
    gp_loader_batch *loaded;
    gp_status status = gp_train_control_check(trainer->control, trainer->progress.step, err);

    if (status == GP_OK)
        status = gp_loader_take(loader, &loaded, NULL, err);
    if (status != GP_OK)
        return status;
    gp_train_control_span_begin(trainer->control);
    gp_fault_point("validation");
    status = trainer->backend_ops->run(trainer->validation_plan,
                                       &(gp_batch){
                                           .samples = loaded->samples,
                                           .targets = loaded->targets,
                                           .count = loaded->count,
                                           .first = call == 0 || reproducible,
                                           .last = call + 1 == v->calls || reproducible,
                                       },
                                       NULL, NULL, err);
    /* Count the targets that are excluded from all metrics, except for unreadable samples: these
     * are reported as skipped. */
    for (uint32_t n = 0; n < loaded->count; n++)
        if (!gp_store_is_skipped(trainer->data.validation.store, loaded->first + n))
            v->excluded += gp_targets_missing(graph->targets, graph->target_count,
                                              (const uint8_t *)loaded->targets + n * graph->target_bytes);
    gp_loader_release(loader, loaded);
    if (status == GP_OK && reproducible) {
        status = trainer->backend_ops->sync(trainer->backend, err);
        gp_exchange_add_call(&trainer->exchange, false);
    }
    gp_train_control_span_end(trainer->control);
    gp_train_control_progress(trainer->control);
    return status;
}

/* Compute all calls on this rank and sum the results over all ranks. */
static gp_status validation_compute(gp_trainer *trainer, validation *v, const gp_train_sink *sink,
                                    gp_error *err)
{
    gp_status status = gp_pipeline_fetch(&trainer->pipeline, trainer->parameters, NULL, err);
    double seconds;

    gp_exchange_begin(&trainer->exchange, false);
    for (uint32_t i = 0; i < GP_TRAIN_PREFETCH && status == GP_OK; i++)
        status = validation_request(trainer, v, i, err);
    for (uint32_t i = 0; i < v->calls && status == GP_OK; i++) {
        status = validation_call(trainer, v, i, err);
        /* Report progress first after REPORT_FIRST_MS, then every REPORT_EACH_MS. The other
         * ranks are assumed to have the same progress. */
        seconds = (double)(gp_now_ns() - v->begin_ns) * 1e-9;
        if (sink->validating != NULL && i + 1 < v->calls && seconds * 1e3 >= (double)v->report_ms) {
            v->report_ms = (int64_t)(seconds * 1e3) + REPORT_EACH_MS;
            sink->validating(
                sink->context,
                &(gp_train_validating){ .step = trainer->progress.step,
                                        .done = (uint64_t)(i + 1) * v->micro_batch * v->total / v->count,
                                        .count = v->total,
                                        .seconds = seconds });
        }
        if (status == GP_OK)
            status = validation_request(trainer, v, i + GP_TRAIN_PREFETCH, err);
    }
    if (status == GP_OK)
        status = trainer->backend_ops->sync(trainer->backend, err);
    return status == GP_OK ? gp_exchange_header(&trainer->exchange, v->excluded, err) : status;
}

gp_status gp_trainer_validate(gp_trainer *trainer, uint32_t epoch, const gp_train_sink *sink, gp_error *err)
{
    gp_train_progress *progress = &trainer->progress;
    validation v = { .total = trainer->data.validation.sampler.count,
                     .micro_batch = trainer->schedule.micro_batch,
                     .begin_ns = gp_now_ns(),
                     .report_ms = REPORT_FIRST_MS };

    gp_schedule_share(&trainer->schedule, v.total, &v.first, &v.count);
    v.calls = v.count == 0 ? 1 : (v.count + v.micro_batch - 1) / v.micro_batch;
    gp_status status = validation_compute(trainer, &v, sink, err);

    if (status != GP_OK)
        return status;

    gp_step_result result = gp_exchange_result(&trainer->exchange);

    if (result.weight > 0 && !isfinite(result.loss)) /* a weight of 0: no sample had a target */
        return gp_trainer_validation_diverged(trainer, v.first, v.count, result.loss, err);
    if (gp_train_progress_improved(progress, &result) && trainer->best != NULL)
        memcpy(trainer->best, trainer->parameters, trainer->graph->blob_count * sizeof(float));
    progress->excluded = (uint64_t)result.samples;
    progress->last_validation = (gp_train_validation){ .step = progress->step,
                                                       .epoch = epoch,
                                                       .loss = result.loss,
                                                       .accuracy = result.accuracy,
                                                       .rmse = result.rmse,
                                                       .count = v.total,
                                                       .seconds = gp_train_progress_seconds(progress) };
    gp_trainer_report_validation(trainer, sink);
    return GP_OK;
}

void gp_trainer_report_validation(const gp_trainer *trainer, const gp_train_sink *sink)
{
    const gp_train_validation *last = &trainer->progress.last_validation;
    const gp_train_validating complete = {
        .step = last->step, .done = last->count, .count = last->count, .excluded = trainer->progress.excluded
    };

    if (complete.excluded > 0 && sink->validating != NULL)
        sink->validating(sink->context, &complete);
    sink->validation(sink->context, last);
}
