#include "worker/predictor.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/json.h"
#include "common/data/store.h"
#include "worker/fault.h"

/* Samples per call: enough to fill the vectors of every thread, small enough for the cache. */
enum { PREDICT_MICRO_BATCH = 256 };

struct gp_predictor {
    const gp_backend_ops *backend_ops;
    gp_backend *backend;
    gp_netspec *spec;
    gp_graph *graph;
    gp_store *data;
    float *parameters;
    gp_plan *plan;
    double sums[GP_SUMS];
    uint32_t part_max;  /* samples of the largest part */
    uint32_t *index;    /* [micro_batch] */
    void *samples;      /* [micro_batch] samples */
    void *targets;      /* [micro_batch] samples' targets, packed */
    int32_t *labels;    /* [part_max]: the class where a sample has one */
    float *scores;      /* [part_max, graph->score_count] */
    float *call_scores; /* [micro_batch, graph->score_count]: what the plan writes */
    uint32_t micro_batch;
    bool called;       /* once at least: the plan has taken the parameters in */
    bool compares;     /* the data's targets are what the model's losses compare with */
    uint32_t labelled; /* samples of the part with something to compare with */
};

void gp_predictor_free(gp_predictor *predictor)
{
    if (predictor == NULL)
        return;
    if (predictor->plan != NULL)
        predictor->backend_ops->free(predictor->plan);
    gp_graph_free(predictor->graph);
    gp_netspec_free(predictor->spec);
    gp_store_close(predictor->data);
    gp_free(predictor->parameters);
    gp_free(predictor->index);
    gp_free(predictor->samples);
    gp_free(predictor->targets);
    gp_free(predictor->labels);
    gp_free(predictor->scores);
    gp_free(predictor->call_scores);
    gp_free(predictor);
}

static gp_status predictor_check(const gp_predictor *predictor, size_t weights_count, gp_error *err)
{
    const gp_store_info *info = gp_store_get_info(predictor->data);
    gp_shape sample = gp_shape3(info->channels, info->height, info->width);
    char have[64], want[64];

    if (weights_count != predictor->graph->blob_count)
        return gp_fail(err, GP_EPROTO, "%zu weights for a network of %zu", weights_count,
                       predictor->graph->blob_count);
    if (!gp_netspec_takes(predictor->spec, &sample))
        return gp_fail(err, GP_EINVAL,
                       "the samples of %s are %s (channels x height x width); the model takes %s",
                       info->source, gp_shape_format(&sample, have, sizeof(have)),
                       gp_shape_format(&predictor->spec->input, want, sizeof(want)));
    return GP_OK;
}

/* Whether the data's targets can be compared with; the number of classes may differ. */
static bool targets_fit(const gp_graph *graph, const gp_store_info *info)
{
    bool fit = info->target_count == graph->end_count;

    for (uint32_t i = 0; i < graph->end_count && fit; i++)
        fit = info->targets[i].dtype == graph->ends[i].target.dtype &&
              gp_shape_equal(&info->targets[i].shape, &graph->ends[i].target.shape);
    return fit;
}

static gp_status predictor_take_memory(gp_predictor *predictor, const float *weights, gp_error *err)
{
    const gp_store_info *info = gp_store_get_info(predictor->data);
    size_t scores = predictor->graph->score_count * sizeof(float), blob = predictor->graph->blob_count;
    uint32_t micro_batch = predictor->micro_batch;

    predictor->parameters = gp_aligned_calloc(64, blob * sizeof(float));
    predictor->index = gp_calloc(micro_batch, sizeof(*predictor->index));
    predictor->samples = gp_aligned_calloc(64, micro_batch * info->sample_bytes);
    predictor->targets = gp_aligned_calloc(64, micro_batch * info->target_bytes);
    predictor->labels = gp_calloc(predictor->part_max, sizeof(*predictor->labels));
    predictor->scores = gp_calloc(predictor->part_max, scores);
    predictor->call_scores = gp_aligned_calloc(64, micro_batch * scores);
    if (predictor->parameters == NULL || predictor->index == NULL || predictor->samples == NULL ||
        predictor->targets == NULL || predictor->labels == NULL || predictor->scores == NULL ||
        predictor->call_scores == NULL)
        return gp_fail(err, GP_ENOMEM,
                       "no memory for a predictor of %zu parameters and parts of %" PRIu32 " samples", blob,
                       predictor->part_max);
    memcpy(predictor->parameters, weights, blob * sizeof(float));
    return GP_OK;
}

/* The data, its labels numbered by the names of the model's classes, if it has any. */
static gp_status data_open(gp_predictor *predictor, const gp_predictor_setup *setup,
                           gp_store_options *options, gp_error *err)
{
    gp_json *document = NULL;
    const char **names = NULL;
    gp_status status = GP_OK;

    if (setup->classes != NULL)
        status = gp_json_parse(&document, setup->classes, setup->classes_bytes, err);
    if (document != NULL && gp_json_count(document) > 0 && gp_json_count(document) <= GP_STORE_CLASSES_MAX) {
        options->class_count = (uint32_t)gp_json_count(document);
        options->class_names = names = gp_calloc(options->class_count, sizeof(*names));
        if (names == NULL)
            status = gp_fail(err, GP_ENOMEM, "no memory for %" PRIu32 " class names", options->class_count);
    }
    for (uint32_t i = 0; names != NULL && i < options->class_count; i++)
        names[i] = gp_json_text(gp_json_element(document, i), "");
    if (status == GP_OK)
        status = gp_store_open_with(&predictor->data, setup->begin->data, GP_DATA_GIVEN, options, err);
    gp_free(names);
    gp_json_free(document);
    return status;
}

gp_status gp_predictor_names(const gp_predictor *predictor, uint64_t first, uint32_t count, gp_buffer *names,
                             gp_error *err)
{
    gp_status status = GP_OK;

    for (uint32_t i = 0; i < count && status == GP_OK; i++) {
        char name[4096];

        gp_store_name(predictor->data, (uint32_t)(first + i), name, sizeof(name));
        status = gp_buffer_append(names, name, strlen(name) + 1, err);
    }
    return status;
}

static gp_status predictor_build(gp_predictor *predictor, const gp_predictor_setup *setup, gp_error *err)
{
    gp_store_options images;
    gp_status status = gp_netspec_from_json(&predictor->spec, setup->netspec, setup->netspec_bytes, err);

    if (status == GP_OK)
        status = gp_graph_new(&predictor->graph, predictor->spec, err);
    if (status == GP_OK) {
        images = gp_store_options_for(&predictor->spec->input);
        images.any_class = true;
        status = data_open(predictor, setup, &images, err);
    }
    if (status == GP_OK)
        status = predictor_check(predictor, setup->weights_count, err);
    if (status == GP_OK)
        predictor->compares = targets_fit(predictor->graph, gp_store_get_info(predictor->data));
    if (status == GP_OK)
        status = predictor_take_memory(predictor, setup->weights, err);
    if (status != GP_OK)
        return status;
    return predictor->backend_ops->compile(&predictor->plan, predictor->backend, predictor->graph,
                                           &(gp_plan_options){
                                               .phase = GP_PHASE_INFER,
                                               .micro_batch = predictor->micro_batch,
                                               .sample_dtype = gp_store_get_info(predictor->data)->dtype,
                                               .precision = (gp_precision)setup->begin->precision,
                                           },
                                           &(gp_plan_memory){
                                               .parameters = predictor->parameters,
                                               .sums = predictor->sums,
                                               .scores = predictor->call_scores,
                                           },
                                           err);
}

gp_status gp_predictor_new(gp_predictor **out, gp_predict_ready *ready, const gp_predictor_setup *setup,
                           gp_error *err)
{
    gp_predictor *predictor = gp_calloc(1, sizeof(*predictor));

    if (predictor == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for a predictor");
    predictor->backend_ops = setup->backend_ops;
    predictor->backend = setup->backend;
    predictor->part_max = setup->begin->batch;
    predictor->micro_batch =
        predictor->part_max < PREDICT_MICRO_BATCH ? predictor->part_max : PREDICT_MICRO_BATCH;
    gp_status status = predictor_build(predictor, setup, err);

    if (status != GP_OK) {
        gp_predictor_free(predictor);
        return status;
    }
    *ready = (gp_predict_ready){ .samples = gp_store_get_info(predictor->data)->count,
                                 .classes = predictor->graph->score_count,
                                 .has_labels = predictor->compares };
    *out = predictor;
    return GP_OK;
}

/* What the losses compare with; a class that the model does not know counts as none. */
static void targets_take(gp_predictor *predictor, uint32_t count, uint32_t at)
{
    const gp_graph *graph = predictor->graph;

    for (uint32_t n = 0; n < count; n++) {
        int32_t *target = (int32_t *)((uint8_t *)predictor->targets + n * graph->target_bytes);
        bool any = false;

        for (uint32_t i = 0; i < graph->end_count; i++) {
            const gp_target *about = &graph->ends[i].target;
            int64_t elements = gp_shape_count(&about->shape);

            for (int64_t e = 0; e < elements && about->dtype == GP_F32; e++)
                any |= !isnan(((float *)target)[e]);
            for (int64_t e = 0; e < elements && about->dtype == GP_I32; e++) {
                if (target[e] >= (int32_t)about->classes)
                    target[e] = -1;
                any |= target[e] >= 0;
            }
            if (i == 0)
                predictor->labels[at + n] = *target;
            target += elements;
        }
        predictor->labelled += any;
    }
}

/* One call: samples [first, first + count) of the data into place `at` of the part. */
static gp_status predictor_call(gp_predictor *predictor, uint64_t first, uint32_t count, uint32_t at,
                                gp_error *err)
{
    size_t scores = predictor->graph->score_count;

    for (uint32_t i = 0; i < count; i++)
        predictor->index[i] = (uint32_t)(first + i);
    gp_status status = gp_store_read(predictor->data, predictor->index, count, predictor->samples,
                                     predictor->compares ? predictor->targets : NULL, err);

    if (status != GP_OK)
        return status;
    if (predictor->compares)
        targets_take(predictor, count, at);
    gp_fault_point("predict");
    status =
        predictor->backend_ops->run(predictor->plan,
                                    &(gp_batch){ .samples = predictor->samples,
                                                 .targets = predictor->compares ? predictor->targets : NULL,
                                                 .count = count,
                                                 .first = at == 0,
                                                 .unchanged = predictor->called,
                                                 .last = true },
                                    NULL, NULL, err);
    if (status == GP_OK)
        status = predictor->backend_ops->sync(predictor->backend, err);
    predictor->called = status == GP_OK;
    if (status == GP_OK)
        memcpy(predictor->scores + at * scores, predictor->call_scores, count * scores * sizeof(float));
    return status;
}

gp_status gp_predictor_part(gp_predictor *predictor, uint64_t first, uint32_t count, gp_predict_part *part,
                            const float **scores, const int32_t **labels, gp_error *err)
{
    uint64_t total = gp_store_get_info(predictor->data)->count;

    if (count == 0 || count > predictor->part_max || first >= total || count > total - first)
        return gp_fail(err, GP_EINVAL,
                       "samples %" PRIu64 " to %" PRIu64 " were asked for; there are %" PRIu64
                       ", and a part has at most %" PRIu32,
                       first + 1, first + count, total, predictor->part_max);
    predictor->labelled = 0;
    for (uint32_t done = 0; done < count; done += predictor->micro_batch) {
        uint32_t left = count - done;
        gp_status status =
            predictor_call(predictor, first + done,
                           left < predictor->micro_batch ? left : predictor->micro_batch, done, err);

        if (status != GP_OK)
            return status;
    }
    *part = (gp_predict_part){ .first = first,
                               .count = count,
                               .loss = predictor->sums[GP_SUM_LOSS],
                               .correct = predictor->sums[GP_SUM_CORRECT],
                               .classed = predictor->sums[GP_SUM_CLASSED],
                               .squares = predictor->sums[GP_SUM_SQUARES],
                               .values = predictor->sums[GP_SUM_VALUES],
                               .labelled = predictor->labelled,
                               .weight = predictor->sums[GP_SUM_WEIGHT] };
    *scores = predictor->scores;
    *labels = predictor->compares && gp_store_has_class(gp_store_get_info(predictor->data))
                  ? predictor->labels
                  : NULL;
    return GP_OK;
}
