/* predictor.c -- prediction on one worker: read samples, run the plan, and compute scores or
 * classes, sums and the confusion matrix for each part.
 *
 * If the device supports it, one call is computed while the previous call's results are processed.
 *
 * The plan's batch size depends on the total sample count, not on how the client divides them into
 * parts. So a sample's scores are bitwise identical in any part and on any worker. */
#include "worker/predict/predictor.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/base/memory/alloc.h"
#include "common/base/system/fault.h"
#include "common/base/text/log.h"
#include "common/data/store/class_match.h"
#include "common/data/loader/loader.h"
#include "common/model/graph/normalization.h"
#include "worker/backend/missing_plans.h"
#include "worker/predict/answers.h"
#include "worker/process/exit_reason.h"

/* Samples per call. PREDICT_MICRO_BATCH is large enough to use every thread's vectors, and small
 * enough for the cache. A plan may compute the whole batch even for fewer samples, so small data
 * sets are divided into at least CALLS_MIN calls. */
enum { PREDICT_MICRO_BATCH = 256, CALLS_MIN = 32 };

/* Calls whose samples are in memory: the current one, and the next one unless a call exceeds
 * this size. */
enum { READ_AHEAD = 2, READ_AHEAD_BYTES_MAX = 256 << 20 };
enum { WINDOW_SCORES_MAX = 2 << 20 }; /* approximate limit for one call, in float32 elements */

/* Plan call whose results are not stored yet. */
typedef struct pending {
    uint32_t from, count; /* samples, as positions in the part */
    int32_t *targets;     /* [micro_batch] targets; NULL: no confusion matrix */
} pending;

struct gp_predictor {
    gp_netspec *spec;
    gp_graph *graph;
    gp_answers answers;
    float *parameters;

    /* Input samples. */
    gp_store *data;      /* NULL: the client sends the samples */
    gp_augment view;     /* image part that the network sees, as in a validation */
    gp_store_info shape; /* sample properties after `view` */
    gp_loader *loader;   /* NULL: the client sends the samples, or images are whole */
    /* tiled inference for images of any size; NULL: samples have the network's input size */
    gp_tiled_inference *tiles;
    gp_dtype sample_dtype;
    size_t sample_bytes;
    void *samples; /* [micro_batch] samples from the client; NULL: read from data */

    /* Plan calls. */
    const gp_backend_ops *backend_ops;
    gp_backend *backend;
    gp_plan *plan;
    uint32_t micro_batch; /* maximum samples per call */
    /* [micro_batch, graph->score_count] written by the plan; NULL: the plan
     * has a separate buffer */
    float *call_scores;
    pending pending[GP_PREDICTIONS_AHEAD]; /* oldest first */
    uint32_t pending_count;
    bool called;        /* a call has succeeded, so the plan has read the parameters */
    bool pieces_logged; /* logged that calls are not launched as one graph */
};

void gp_predictor_free(gp_predictor *predictor)
{
    if (predictor == NULL)
        return;
    if (predictor->plan != NULL)
        predictor->backend_ops->free(predictor->plan);
    gp_graph_free(predictor->graph);
    gp_netspec_free(predictor->spec);
    gp_loader_free(predictor->loader);
    gp_tiled_inference_free(predictor->tiles);
    gp_store_close(predictor->data);
    gp_answers_deinit(&predictor->answers);
    for (uint32_t i = 0; i < GP_PREDICTIONS_AHEAD; i++)
        gp_free(predictor->pending[i].targets);
    gp_free(predictor->parameters);
    gp_free(predictor->samples);
    gp_free(predictor->call_scores);
    gp_free(predictor);
}

/* ---- setup ---- */

/* Check that the model accepts the data's samples. */
static gp_status sample_check(const gp_predictor *predictor, uint32_t channels, uint32_t height,
                              uint32_t width, gp_error *err)
{
    const gp_store_info *info = gp_store_get_info(predictor->data);
    const gp_shape sample = gp_shape3(channels, height, width);

    return gp_netspec_check_samples(predictor->spec, &sample, info->dtype, info->source, err);
}

/* Return whether the targets can be compared with predictions. The class count may differ. */
static bool targets_fit(const gp_graph *graph, const gp_store_info *info)
{
    bool fit = info->target_count == graph->target_count;

    for (uint32_t i = 0; i < graph->target_count && fit; i++)
        fit = info->targets[i].dtype == graph->targets[i].dtype &&
              gp_shape_equal(&info->targets[i].shape, &graph->targets[i].shape);
    return fit;
}

static gp_status predictor_take_memory(gp_predictor *predictor, const float *weights, gp_error *err)
{
    const gp_graph *graph = predictor->graph;
    const size_t micro_batch = predictor->micro_batch;

    predictor->parameters = gp_aligned_calloc(64, graph->blob_count * sizeof(float));
    if (predictor->data == NULL)
        predictor->samples = gp_aligned_calloc(64, micro_batch * predictor->sample_bytes);
    if (predictor->backend_ops->predictions == NULL)
        predictor->call_scores = gp_aligned_calloc(64, micro_batch * graph->score_count * sizeof(float));
    for (uint32_t i = 0; i < GP_PREDICTIONS_AHEAD && predictor->answers.confusion != NULL; i++) {
        predictor->pending[i].targets = gp_malloc(micro_batch * graph->target_bytes);
        if (predictor->pending[i].targets == NULL)
            return gp_fail(err, GP_ENOMEM, "no memory for the targets of %zu samples", micro_batch);
    }
    if (predictor->parameters == NULL || (predictor->data == NULL && predictor->samples == NULL) ||
        (predictor->backend_ops->predictions == NULL && predictor->call_scores == NULL))
        return gp_fail(err, GP_ENOMEM,
                       "no memory for a predictor of %zu parameters and parts of %" PRIu32 " samples",
                       graph->blob_count, predictor->answers.part_max);
    memcpy(predictor->parameters, weights, graph->blob_count * sizeof(float));
    return GP_OK;
}

/* Return the samples per call: a power of two, unless parts are smaller. */
static uint32_t micro_batch_of(uint64_t samples, uint32_t part_max)
{
    uint32_t size = 1;

    while (size < PREDICT_MICRO_BATCH && (uint64_t)size * CALLS_MIN < samples)
        size *= 2;
    return size < part_max ? size : part_max;
}

/* Set the image part that the network sees. Whole images keep their size, because windows are cut
 * from them. */
static gp_status view_take(gp_predictor *predictor, const gp_predict_begin *begin, gp_error *err)
{
    static const char *const crops[] = { [GP_PREDICT_MIDDLE] = "center", [GP_PREDICT_FIT] = "fit" };
    const gp_shape *input = &predictor->spec->input;
    const gp_predict_crop crop = begin->whole               ? GP_PREDICT_ALL
                                 : begin->crop != 0         ? (gp_predict_crop)begin->crop
                                 : begin->image_height != 0 ? GP_PREDICT_MIDDLE
                                                            : GP_PREDICT_ALL;
    char text[80] = "";

    if (crop != GP_PREDICT_ALL && input->rank != 3)
        return gp_fail(err, GP_EINVAL, "image-size and fit need images, but the model takes a vector");
    if (crop == GP_PREDICT_MIDDLE && begin->image_height != 0 &&
        (begin->image_height < input->dim[1] || begin->image_width < input->dim[2]))
        return gp_fail(err, GP_EINVAL,
                       "image-size %" PRIu32 ",%" PRIu32 " is smaller than the %" PRId64 ",%" PRId64
                       " that the model takes",
                       begin->image_height, begin->image_width, input->dim[1], input->dim[2]);
    if (crop != GP_PREDICT_ALL)
        snprintf(text, sizeof(text), "crop=%s crop-size=%" PRId64 ",%" PRId64, crops[crop], input->dim[1],
                 input->dim[2]);
    return gp_augment_parse(&predictor->view, text, err);
}

/* Open the source named in predict_begin, or prepare for samples sent by the client. */
static gp_status data_begin(gp_predictor *predictor, const gp_predictor_setup *setup, gp_error *err)
{
    const gp_predict_begin *begin = setup->begin;
    const int64_t size[2] = { begin->whole ? 0 : begin->image_height, begin->whole ? 0 : begin->image_width };
    gp_store_options images = { 0 };
    gp_class_list names = { 0 };

    if (begin->data[0] == '\0') {
        predictor->micro_batch = micro_batch_of(begin->samples, predictor->answers.part_max);
        predictor->sample_dtype = begin->floats ? GP_F32 : GP_U8;
        predictor->sample_bytes =
            (size_t)gp_shape_count(&predictor->spec->input) * gp_dtype_bytes(predictor->sample_dtype);
        return gp_netspec_check_samples(predictor->spec, &predictor->spec->input, predictor->sample_dtype,
                                        "the array of samples", err);
    }
    gp_status status = view_take(predictor, begin, err);

    if (status == GP_OK)
        status = gp_augment_images(&images, &predictor->view, size, &predictor->spec->input, err);
    if (!begin->exact_size)
        memset(images.exact, 0, sizeof(images.exact));
    images.on_error = (gp_on_error)begin->on_bad;
    images.class_count = begin->ignore_labels ? 0 : predictor->graph->class_count;
    /* Labels are numbered by the model's classes, unless they are ignored. */
    if (status == GP_OK)
        status = gp_class_list_read(&names, images.class_count == 0 ? NULL : setup->classes,
                                    setup->classes_bytes, err);
    if (status == GP_OK && names.names != NULL && names.count != images.class_count)
        status = gp_fail(err, GP_EPROTO, "%" PRIu32 " class names for a network of %" PRIu32 " classes",
                         names.count, images.class_count);
    images.class_names = names.names;
    if (status == GP_OK)
        status = gp_store_open_with(&predictor->data, begin->data, GP_DATA_GIVEN, &images, err);
    gp_class_list_deinit(&names);
    if (status != GP_OK)
        return status;
    const gp_store_info *info = gp_store_get_info(predictor->data);

    predictor->micro_batch = micro_batch_of(info->count, predictor->answers.part_max);
    status = gp_augment_shape(&predictor->shape, &predictor->view, info, err);
    if (status == GP_OK && !begin->whole)
        status = sample_check(predictor, predictor->shape.channels, predictor->shape.height,
                              predictor->shape.width, err);
    if (status == GP_OK && begin->whole) /* windows have the network's input size */
        status = sample_check(predictor, info->channels, (uint32_t)predictor->spec->input.dim[1],
                              (uint32_t)predictor->spec->input.dim[2], err);
    if (status != GP_OK)
        return status;
    predictor->sample_dtype = predictor->shape.dtype;
    predictor->sample_bytes = predictor->shape.sample_bytes;
    /* Images of any size need a class for each pixel. */
    const gp_shape pixels = gp_shape2(info->height, info->width);
    const bool fit = begin->whole ? info->target_count == 1 && info->targets[0].dtype == GP_I32 &&
                                        gp_shape_equal(&info->targets[0].shape, &pixels)
                                  : targets_fit(predictor->graph, &predictor->shape);

    predictor->answers.compares = !begin->ignore_labels && fit;
    return GP_OK;
}

/* ---- calls ---- */

/* Exit the process if the device hangs or the error is permanent. Return all other errors to the
 * caller. */
static gp_status call_checked(const gp_predictor *predictor, gp_status status, const gp_error *err)
{
    const gp_backend_ops *ops = predictor->backend_ops;
    gp_error still;

    if (ops->predictions != NULL &&
        (status == GP_ETIMEDOUT || (status == GP_EIO && ops->sync(predictor->backend, &still) != GP_OK)))
        gp_device_lost("in a prediction", err);
    return status;
}

/* Compute samples [from, from + count) of the part, or start to compute them on the device. */
static gp_status plan_begin(gp_predictor *predictor, const void *samples, const void *targets, uint32_t from,
                            uint32_t count, gp_error *err)
{
    const gp_backend_ops *ops = predictor->backend_ops;
    const gp_batch batch = { .samples = samples,
                             .targets = targets,
                             .count = count,
                             .first = from == 0,
                             .unchanged = predictor->called,
                             .last = true };
    gp_status status;

    gp_fault_point("predict");
    if (ops->predictions != NULL) {
        status = ops->predictions->launch(predictor->plan, &batch, err);
    } else {
        status = ops->run(predictor->plan, &batch, NULL, NULL, err);
        if (status == GP_OK)
            status = ops->sync(predictor->backend, err);
    }
    predictor->called = status == GP_OK;
    return call_checked(predictor, status, err);
}

/* Wait for the oldest started call. *scores is set to the results. */
static gp_status plan_end(gp_predictor *predictor, const float **scores, gp_error *err)
{
    const gp_backend_predictions *predictions = predictor->backend_ops->predictions;
    gp_status status = GP_OK;

    *scores = predictor->call_scores;
    if (predictions != NULL)
        status = predictions->take(predictor->plan, scores, err);
    const char *why = status == GP_OK && predictions != NULL ? predictions->pieces(predictor->plan) : "";

    if (why[0] != '\0' && !predictor->pieces_logged) {
        predictor->pieces_logged = true;
        gp_log(GP_LOG_WARN, "predict-pieces",
               "predictions run as single kernels instead of a CUDA graph, which is slower: %s", why);
    }
    return call_checked(predictor, status, err);
}

/* ---- images of any size ---- */

/* Run the plan on a batch of windows. Implements gp_tiled_inference_setup.run. */
static gp_status windows_run(void *context, const void *windows, uint32_t count, const float **scores,
                             gp_error *err)
{
    gp_predictor *predictor = context;
    gp_status status = plan_begin(predictor, windows, NULL, 0, count, err);

    return status == GP_OK ? plan_end(predictor, scores, err) : status;
}

static gp_status tiles_begin(gp_predictor *predictor, const gp_predict_begin *begin, gp_error *err)
{
    const gp_graph *graph = predictor->graph;
    const gp_shape *input = &graph->spec->input;
    const bool cover = begin->crop == GP_PREDICT_FIT;
    char shape[64];

    if (!gp_graph_scores_pixels(graph))
        return gp_fail(err, GP_EINVAL,
                       "network %s does not predict a class for each pixel of its input, %s: only images of "
                       "that size are supported",
                       graph->spec->name, gp_shape_format(input, shape, sizeof(shape)));
    if (predictor->data == NULL || predictor->answers.kind == GP_ANSWER_SCORES)
        return gp_fail(err, GP_EPROTO, "whole images need a data source, and predict classes");
    gp_tiled_inference_setup setup = {
        .store = predictor->data,
        .height = (uint32_t)input->dim[1],
        .width = (uint32_t)input->dim[2],
        .classes = graph->ends[0].target.classes,
        .score_count = graph->score_count,
        .read = { .height = cover ? (uint32_t)input->dim[1] : begin->image_height,
                  .width = cover ? (uint32_t)input->dim[2] : begin->image_width,
                  .cover = cover },
        .overlap = begin->overlap,
        .batch = predictor->micro_batch,
        .run = windows_run,
        .context = predictor,
    };

    setup.loss_count = gp_pixel_losses_of(graph, setup.losses);
    return gp_tiled_inference_new(&predictor->tiles, &setup, err);
}

static gp_status predictor_build(gp_predictor *predictor, const gp_predictor_setup *setup, gp_error *err)
{
    gp_status status = gp_netspec_from_json(&predictor->spec, setup->netspec, setup->netspec_bytes, err);

    if (status == GP_OK)
        status = gp_graph_new(&predictor->graph, predictor->spec, err);
    if (status == GP_OK && setup->weights_count != predictor->graph->blob_count)
        status = gp_fail(err, GP_EPROTO, "the number of weights (%zu) does not match the network's %zu",
                         setup->weights_count, predictor->graph->blob_count);
    if (status == GP_OK)
        status = data_begin(predictor, setup, err);
    if (status == GP_OK && setup->begin->whole) { /* the window count per image is not known */
        const uint32_t most = WINDOW_SCORES_MAX / predictor->graph->score_count + 1;

        predictor->micro_batch = most < PREDICT_MICRO_BATCH ? most : PREDICT_MICRO_BATCH;
    }
    predictor->answers.graph = predictor->graph;
    if (status == GP_OK)
        status = gp_answers_init(&predictor->answers, setup->begin->whole != 0, err);
    if (status == GP_OK)
        status = predictor_take_memory(predictor, setup->weights, err);
    if (status == GP_OK)
        status = predictor->backend_ops->compile(&predictor->plan, predictor->backend, predictor->graph,
                                                 &(gp_plan_options){
                                                     .phase = GP_PHASE_INFER,
                                                     .micro_batch = predictor->micro_batch,
                                                     .sample_dtype = predictor->sample_dtype,
                                                     .precision = (gp_precision)setup->begin->precision,
                                                 },
                                                 &(gp_plan_memory){
                                                     .parameters = predictor->parameters,
                                                     .sums = predictor->answers.sums,
                                                     .scores = predictor->call_scores,
                                                 },
                                                 err);
    if (status == GP_OK && setup->begin->whole)
        return tiles_begin(predictor, setup->begin, err);
    if (status != GP_OK || predictor->data == NULL)
        return status;
    /* Samples are read in data order, on all threads of the rank. */
    const bool large = predictor->micro_batch * predictor->sample_bytes > READ_AHEAD_BYTES_MAX;
    const gp_loader_options options = { .depth = large ? 1 : READ_AHEAD,
                                        .capacity = predictor->micro_batch,
                                        .augment = &predictor->view };
    gp_sampler sampler;

    gp_sampler_init(&sampler, predictor->shape.count, GP_SHUFFLE_NEVER, 0);
    return gp_loader_new(&predictor->loader, predictor->data, &sampler, &options, err);
}

gp_status gp_predictor_new(gp_predictor **out, gp_predict_ready *ready, const gp_predictor_setup *setup,
                           gp_error *err)
{
    gp_predictor *predictor = gp_calloc(1, sizeof(*predictor));

    if (predictor == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for a predictor");
    predictor->backend_ops = setup->backend_ops;
    predictor->backend = setup->backend;
    predictor->answers.kind = (gp_predict_answer)setup->begin->answer;
    predictor->answers.part_max = setup->begin->batch;
    gp_status status = predictor_build(predictor, setup, err);

    if (status != GP_OK) {
        gp_predictor_free(predictor);
        return status;
    }
    *ready = (gp_predict_ready){
        .samples = predictor->data != NULL ? gp_store_get_info(predictor->data)->count : 0,
        .classes = predictor->answers.kind == GP_ANSWER_CLASSES ? predictor->answers.place_count
                                                                : predictor->graph->score_count,
        .has_labels = predictor->answers.compares,
        .micro_batch = predictor->micro_batch,
    };
    *out = predictor;
    return GP_OK;
}

/* ---- parts ---- */

/* Wait for the oldest pending call, and store the results. */
static gp_status call_end(gp_predictor *predictor, gp_error *err)
{
    pending ended = predictor->pending[0];
    const float *scores;
    gp_status status = plan_end(predictor, &scores, err);

    predictor->pending_count--;
    memmove(predictor->pending, predictor->pending + 1,
            (GP_PREDICTIONS_AHEAD - 1) * sizeof(predictor->pending[0]));
    predictor->pending[GP_PREDICTIONS_AHEAD - 1] = ended; /* keep the memory for a later call */
    if (status == GP_OK)
        gp_answers_store(&predictor->answers, scores, ended.targets, ended.count, ended.from);
    return status;
}

/* Begin a call for samples [from, from + count) of the part. The caller may overwrite samples
 * and targets afterwards. */
static gp_status call_begin(gp_predictor *predictor, const void *samples, void *targets, uint32_t from,
                            uint32_t count, gp_error *err)
{
    const uint32_t most = predictor->backend_ops->predictions == NULL ? 1 : GP_PREDICTIONS_AHEAD;
    pending *begun;
    gp_status status = GP_OK;

    if (targets != NULL)
        gp_answers_read_targets(&predictor->answers, targets, count, from);
    if (predictor->pending_count == most)
        status = call_end(predictor, err);
    if (status == GP_OK)
        status = plan_begin(predictor, samples, targets, from, count, err);
    if (status != GP_OK)
        return status;
    begun = &predictor->pending[predictor->pending_count++];
    begun->from = from;
    begun->count = count;
    if (begun->targets != NULL)
        memcpy(begun->targets, targets, count * predictor->graph->target_bytes);
    return GP_OK;
}

static gp_status predictor_call(gp_predictor *predictor, const gp_predictor_ask *ask, uint32_t from,
                                uint32_t count, gp_error *err)
{
    gp_loader_batch *batch;
    gp_status status;

    if (predictor->data == NULL) { /* copy: samples in the message are not aligned */
        memcpy(predictor->samples, (const uint8_t *)ask->samples + from * predictor->sample_bytes,
               count * predictor->sample_bytes);
        return call_begin(predictor, predictor->samples, NULL, from, count, err);
    }
    status = gp_loader_take(predictor->loader, &batch, NULL, err);
    if (status != GP_OK)
        return status;
    uint8_t *targets = predictor->answers.compares ? batch->targets : NULL;

    /* Mark unreadable samples as skipped. Their targets are not compared, even if a sample that was
     * unreadable when the data were opened can be read now. */
    for (uint32_t n = 0; n < count; n++)
        if (gp_store_is_skipped(predictor->data, (uint32_t)(ask->first + from + n)))
            gp_answers_skip(&predictor->answers, from + n,
                            targets == NULL ? NULL : targets + n * predictor->graph->target_bytes);
    status = call_begin(predictor, batch->samples, targets, from, count, err);
    gp_loader_release(predictor->loader, batch);
    return status;
}

static uint32_t call_size(const gp_predictor *predictor, const gp_predictor_ask *ask, uint32_t from)
{
    const uint32_t left = ask->count - from;

    return left < predictor->micro_batch ? left : predictor->micro_batch;
}

/* Run all calls of a part. The loader gets the requests of all calls before the first one. */
static gp_status samples_part(gp_predictor *predictor, const gp_predictor_ask *ask, gp_error *err)
{
    gp_status status = GP_OK;

    for (uint32_t at = 0; predictor->loader != NULL && at < ask->count && status == GP_OK;
         at += predictor->micro_batch)
        status = gp_loader_request(predictor->loader, 0, (uint32_t)ask->first + at,
                                   call_size(predictor, ask, at), err);
    for (uint32_t at = 0; at < ask->count && status == GP_OK; at += predictor->micro_batch)
        status = predictor_call(predictor, ask, at, call_size(predictor, ask, at), err);

    /* after a failure too: the next part starts without pending calls */
    while (predictor->pending_count > 0) {
        gp_error other;
        gp_status ended = call_end(predictor, status == GP_OK ? err : &other);

        status = status == GP_OK ? ended : status;
    }
    if (status != GP_OK && predictor->loader != NULL)
        gp_loader_cancel(predictor->loader);
    return status;
}

gp_status gp_predictor_part(gp_predictor *predictor, const gp_predictor_ask *ask, gp_predicted *out,
                            gp_error *err)
{
    const uint64_t total =
        predictor->data != NULL ? gp_store_get_info(predictor->data)->count : GP_SAMPLES_MAX;
    gp_status status = GP_OK;

    gp_answers_clear(&predictor->answers);
    if (ask->count == 0 || ask->count > predictor->answers.part_max || ask->first >= total ||
        ask->count > total - ask->first)
        status = gp_fail(err, GP_EINVAL,
                         "invalid range: samples %" PRIu64 " to %" PRIu64 "; there are %" PRIu64
                         ", and a part has at most %" PRIu32,
                         ask->first + 1, ask->first + ask->count, total, predictor->answers.part_max);
    else if (predictor->data == NULL && ask->samples_bytes != ask->count * predictor->sample_bytes)
        status = gp_fail(err, GP_EINVAL, "%" PRIu32 " samples must have %zu bytes, but have %zu", ask->count,
                         predictor->sample_bytes, ask->samples_bytes);
    if (status == GP_OK && predictor->tiles == NULL)
        status = samples_part(predictor, ask, err);
    for (uint32_t i = 0; i < ask->count && status == GP_OK && predictor->tiles != NULL; i++) {
        gp_stitched image;

        status = gp_tiled_inference_image(predictor->tiles, (uint32_t)(ask->first + i), &image, err);
        if (status == GP_OK)
            status = gp_answers_store_image(&predictor->answers, &image, i, err);
    }
    if (status != GP_OK)
        return status;
    *out = gp_answers_get(&predictor->answers, ask->first, ask->count);
    if (out->named && predictor->answers.compares && gp_store_has_class(gp_store_get_info(predictor->data)))
        out->labels = predictor->answers.labels;
    return GP_OK;
}

char *gp_predictor_note(const gp_predictor *predictor, char *text, size_t bytes)
{
    const gp_store_info *info = predictor->data == NULL ? NULL : gp_store_get_info(predictor->data);
    char classes[200], missing[GP_MISSING_PLANS_BYTES];

    text[0] = '\0';
    if (info != NULL)
        gp_store_left_out(predictor->data, text, bytes);
    if (info != NULL && info->matched_by_number && predictor->answers.compares)
        snprintf(
            text + strlen(text), bytes - strlen(text),
            "%sthe outputs of the model have no names; assuming the order of the data's classes: %s",
            text[0] == '\0' ? "" : "; ",
            gp_class_names_format(classes, sizeof(classes), info->class_names, info->class_count, NULL, 0));
    if (gp_missing_plans_format(predictor->backend_ops, predictor->plan, missing))
        snprintf(text + strlen(text), bytes - strlen(text), "%s%s", text[0] == '\0' ? "" : "; ", missing);
    return text;
}

gp_status gp_predictor_names(const gp_predictor *predictor, uint64_t first, uint32_t count,
                             const uint8_t *only, gp_buffer *names, gp_error *err)
{
    gp_status status = GP_OK;

    for (uint32_t i = 0; i < count && status == GP_OK; i++) {
        char name[4096];

        if (only != NULL && only[i] == 0)
            continue;
        if (predictor->data != NULL)
            gp_store_name(predictor->data, (uint32_t)(first + i), name, sizeof(name));
        else
            snprintf(name, sizeof(name), "%" PRIu64, first + i + 1);
        status = gp_buffer_append(names, name, strlen(name) + 1, err);
    }
    return status;
}
