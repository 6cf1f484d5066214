/* predict.c: apply a model to a data source, and return results one by one, in an array, or only as
 * metrics. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "client/predict/predict_fan.h"
#include "client/train/transfer.h"
#include "common/base/memory/alloc.h"
#include "common/base/clock.h"
#include "common/base/text/json.h"
#include "common/base/system/seal.h"
#include "common/data/store/store.h"
#include "common/model/graph/normalization.h"
#include "common/model/train_options.h"

enum { BYTE_CLASSES_MAX = 256 };

#define SCORES_BYTES_MAX ((uint64_t)64 << 30)

/* State during one prediction call. */
typedef struct gp_predicting {
    const gp_predict_request *request;
    gp_network network;
    gp_fan_plan plan;
    gp_buffer class_json;     /* the model's class names as JSON; empty: none */
    const char **class_names; /* [classes] class names; NULL: the model predicts values */
    char (*numbers)[12];      /* numbers as text; names for classes without one */
    uint32_t classes, scores; /* scores per sample */
    const char *score_type;   /* as in gp_prediction */
    gp_shape output;          /* shape of the first loss's scores */
    uint32_t places;          /* items with a class per sample: 1, or the pixels; 0: values */
    bool by_pixel;            /* gp_graph_scores_pixels() returned true */
    int32_t *pixels;          /* [places] pixel classes; NULL: workers return scores */
    uint64_t pixels_max;      /* allocated entries in `pixels` */
} gp_predicting;

static void predicting_deinit(gp_predicting *p)
{
    gp_buffer_deinit(&p->class_json);
    gp_free((char *)(uintptr_t)p->plan.netspec);
    gp_free(p->class_names);
    gp_free(p->numbers);
    gp_free(p->pixels);
    if (p->plan.weights_fd >= 0)
        close(p->plan.weights_fd);
    gp_network_deinit(&p->network);
}

/* ---- the model ---- */

/* Set the class names: for the workers, which number the labels by them, and for the caller. */
static gp_status name_classes(gp_predicting *p, gp_error *err)
{
    const gp_network *network = &p->network;
    const bool named = network->class_names != NULL && network->class_count >= p->classes;
    gp_status status = GP_OK;

    if (network->class_names != NULL) {
        status = gp_network_classes_write(network, network->class_count, &p->class_json, err);
        p->plan.class_names = (const char *)p->class_json.data;
        p->plan.class_names_bytes = p->class_json.bytes;
    }
    if (status != GP_OK || p->classes == 0)
        return status;
    p->class_names = gp_calloc(p->classes, sizeof(*p->class_names));
    p->numbers = gp_calloc(named ? 1 : p->classes, sizeof(*p->numbers));
    if (p->class_names == NULL || p->numbers == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for the names of %" PRIu32 " classes", p->classes);
    for (uint32_t k = 0; k < p->classes; k++) {
        if (!named)
            snprintf(p->numbers[k], sizeof(p->numbers[k]), "%" PRIu32, k);
        p->class_names[k] = named ? network->class_names[k] : p->numbers[k];
    }
    return GP_OK;
}

/* ---- mapping images to the network input ---- */

typedef struct view {
    gp_predict_crop crop;
    uint32_t size[2]; /* size to which images are resized first; 0, 0: none */
} view;

/* Return the mapping that the request specifies; `model` is the default. */
static view view_of_request(const gp_predict_request *request, const view *model)
{
    const bool sized = request->image_size[0] != 0;
    view v = { .crop = sized ? GP_PREDICT_MIDDLE : GP_PREDICT_ALL };

    memcpy(v.size, request->image_size, sizeof(v.size));
    switch (request->fit) {
    case GP_IMAGE_FIT_MODEL:
        return sized ? v : *model;
    case GP_IMAGE_FIT_WINDOWS:
        if (!sized && model->crop == GP_PREDICT_MIDDLE)
            return *model;
        v.crop = GP_PREDICT_MIDDLE;
        break;
    case GP_IMAGE_FIT_CROP:
        v.crop = GP_PREDICT_FIT;
        break;
    case GP_IMAGE_FIT_RESIZE:
    case GP_IMAGE_FIT_INPUT:
        break;
    }
    return v;
}

static const char *view_format(const view *v, const gp_shape *input, char *text, size_t bytes)
{
    static const char *const words[] = { [GP_PREDICT_ALL] = "stretched to",
                                         [GP_PREDICT_MIDDLE] = "cropped to",
                                         [GP_PREDICT_FIT] = "scaled to cover" };
    char brought[40] = "";

    if (v->size[0] != 0)
        snprintf(brought, sizeof(brought), " resized to %" PRIu32 "x%" PRIu32 ",", v->size[0], v->size[1]);
    snprintf(text, bytes, "images%s %s %" PRId64 "x%" PRId64, brought, words[v->crop], input->dim[1],
             input->dim[2]);
    return text;
}

/* Report a mapping that differs from the training's. */
static void view_note(const gp_predicting *p, const view *asked, const view *model)
{
    const gp_predict_request *request = p->request;
    char text[600], mine[160], other[160];

    if (request->note == NULL || model->crop == GP_PREDICT_ALL ||
        (asked->crop == model->crop && memcmp(asked->size, model->size, sizeof(asked->size)) == 0))
        return;
    snprintf(text, sizeof(text),
             "%.120s was trained on %s, but gets %s as requested; drop fit and image-size to prepare images "
             "as in training",
             request->model, view_format(model, &p->network.spec->input, mine, sizeof(mine)),
             view_format(asked, &p->network.spec->input, other, sizeof(other)));
    request->note(request->context, text);
}

/* Choose the image mapping.
 *   whole  results may have the original image size */
static gp_status view_choose(gp_predicting *p, bool whole, gp_error *err)
{
    const gp_predict_request *request = p->request;
    const gp_shape *input = &p->network.spec->input;
    const gp_netspec *spec = p->network.spec;

    /* the mapping used in the model's training */
    const view model = { .crop = spec->windows  ? GP_PREDICT_MIDDLE
                                 : spec->fitted ? GP_PREDICT_FIT
                                                : GP_PREDICT_ALL,
                         .size = { spec->window_image[0], spec->window_image[1] } };
    const view asked = view_of_request(request, &model);

    if (request->data == NULL)
        return GP_OK;
    if (!p->by_pixel && request->fit == GP_IMAGE_FIT_WINDOWS)
        return gp_fail(
            err, GP_EINVAL,
            "fit windows needs a network with scores per pixel, unlike %s; use fit model, resize or crop",
            request->model);
    p->plan.begin.whole = whole && p->by_pixel && request->fit != GP_IMAGE_FIT_INPUT;
    p->plan.begin.crop = (uint32_t)asked.crop;
    p->plan.begin.image_height = asked.size[0];
    p->plan.begin.image_width = asked.size[1];
    p->plan.begin.exact_size =
        request->fit == GP_IMAGE_FIT_MODEL && asked.crop == GP_PREDICT_ALL && !p->network.spec->resized;
    view_note(p, &asked, &model);
    if (!p->plan.begin.whole || asked.crop == GP_PREDICT_FIT || asked.crop == GP_PREDICT_MIDDLE) {
        p->plan.begin.overlap =
            !p->plan.begin.whole ? 0
            : request->overlap != 0
                ? request->overlap
                : (uint32_t)(input->dim[1] < input->dim[2] ? input->dim[1] : input->dim[2]) / 4;
        return GP_OK;
    }

    /* resize to the input size, and resize the scores back */
    p->plan.begin.image_height = (uint32_t)input->dim[1];
    p->plan.begin.image_width = (uint32_t)input->dim[2];
    return GP_OK;
}

/* Choose the answer kind per sample.
 *   wanted  the caller needs results; false: only metrics
 *   alike   all results must have the same size */
static gp_status answer_choose(gp_predicting *p, bool wanted, bool alike, gp_error *err)
{
    p->plan.begin.answer = !wanted ? GP_ANSWER_SUMS
                           : p->request->pixel_classes && p->places > 0 && p->output.rank > 1
                               ? GP_ANSWER_CLASSES
                               : GP_ANSWER_SCORES;
    if (p->plan.begin.answer == GP_ANSWER_SCORES)
        p->plan.row_bytes = p->scores * sizeof(float);
    const gp_status status = view_choose(p, !alike && p->plan.begin.answer != GP_ANSWER_SCORES, err);

    if (status != GP_OK)
        return status;
    if (p->plan.begin.answer != GP_ANSWER_CLASSES)
        return GP_OK;
    p->plan.class_bytes = p->classes <= BYTE_CLASSES_MAX ? 1 : sizeof(int32_t);
    p->plan.row_bytes = (size_t)p->places * p->plan.class_bytes;
    p->pixels_max = p->places;
    p->pixels = gp_calloc(p->places, sizeof(*p->pixels));
    return p->pixels != NULL ? GP_OK : gp_fail(err, GP_ENOMEM, "no memory for %" PRIu32 " pixels", p->places);
}

static gp_status read_graph(gp_predicting *p, gp_error *err)
{
    gp_graph *graph;
    gp_status status = gp_graph_new(&graph, p->network.spec, err);

    if (status != GP_OK)
        return status;
    const gp_end *end = &graph->ends[0];

    p->plan.weights_bytes = graph->blob_count * sizeof(float);
    p->scores = graph->score_count;
    p->plan.score_count = p->scores;
    p->output = graph->outputs[end->layer];
    p->classes = graph->class_count;
    p->score_type = gp_score_type_name(gp_graph_score_type(graph));
    p->places = end->target.dtype == GP_I32 ? (uint32_t)gp_shape_count(&end->target.shape) : 0;
    p->by_pixel = gp_graph_scores_pixels(graph);
    gp_graph_free(graph);
    status = gp_seal_new(&p->plan.weights_fd, p->network.weights, p->plan.weights_bytes, err);
    if (status == GP_OK)
        gp_network_set_weights(&p->network, NULL, 0);
    return status;
}

/* Check the data source, or the samples in the caller's memory. */
static gp_status read_data(gp_predicting *p, gp_error *err)
{
    const gp_predict_request *request = p->request;

    if ((request->data == NULL) == (request->samples == NULL))
        return gp_fail(err, GP_EINVAL, "give %s",
                       request->data == NULL ? "data or samples" : "data or samples, not both");
    if (request->samples != NULL && (request->image_size[0] != 0 || request->image_size[1] != 0))
        return gp_fail(err, GP_EINVAL,
                       "image_size has no effect on samples in memory; they have the model's size");
    if (request->data != NULL && request->data[0] == '\0')
        return gp_fail(err, GP_EINVAL, "the data name is empty");
    if (request->data != NULL)
        return gp_source_absolute(p->plan.begin.data, sizeof(p->plan.begin.data), request->data, err);
    p->plan.begin.samples = request->sample_count;
    p->plan.sample_bytes =
        (size_t)gp_shape_count(&p->network.spec->input) * (request->sample_floats ? sizeof(float) : 1);
    return request->sample_count > 0 ? GP_OK : gp_fail(err, GP_EINVAL, "the number of samples is 0");
}

static gp_status predicting_init(gp_predicting *p, const gp_predict_request *request, gp_error *err)
{
    gp_buffer buffer;

    *p = (gp_predicting){ .request = request, .plan = { .request = request, .weights_fd = -1 } };
    p->plan.begin.floats = request->sample_floats;
    p->plan.begin.ignore_labels = request->ignore_labels;
    gp_buffer_init(&p->class_json, GP_JSON_BYTES_MAX);
    gp_buffer_init(&buffer, GP_NETSPEC_BYTES_MAX);

    /* parse precision and on_error in the same way as training options */
    gp_train_options options;
    gp_status status = GP_OK;

    gp_params_default(gp_train_options_table, &options);
    if (request->precision != NULL)
        status = gp_params_set(gp_params_find(gp_train_options_table, "precision"), &options,
                               request->precision, err);
    if (status == GP_OK && request->on_error != NULL)
        status = gp_params_set(gp_params_find(gp_train_options_table, "on-error"), &options,
                               request->on_error, err);
    p->plan.begin.precision = (uint32_t)options.precision;
    p->plan.begin.on_bad = (uint32_t)options.on_error;

    if (status == GP_OK)
        status = gp_network_pretrained(&p->network, request->model, err);
    if (status == GP_OK)
        status = gp_normalization_apply(p->network.spec, request->image_normalization, true, err);
    if (status == GP_OK)
        status = read_graph(p, err);
    if (status == GP_OK)
        status = gp_netspec_to_json(p->network.spec, &buffer, false, err);
    if (status == GP_OK)
        p->plan.netspec = (char *)gp_buffer_take(&buffer, &p->plan.netspec_bytes);
    gp_buffer_deinit(&buffer);
    if (status == GP_OK)
        status = name_classes(p, err);
    if (status == GP_OK)
        status = read_data(p, err);
    return status;
}

/* ---- results ---- */

/* Convert received classes, with 1 or 4 bytes each, to int32_t. */
static void classes_read(const gp_predicting *p, const uint8_t *row, uint64_t count)
{
    if (p->classes > BYTE_CLASSES_MAX) {
        memcpy(p->pixels, row, count * sizeof(*p->pixels));
        return;
    }
    for (uint64_t i = 0; i < count; i++)
        p->pixels[i] = row[i];
}

/* Fill in the pixel classes for an image at the original size, and advance *row to the next image.
 * Return false if out of memory. */
static bool image_fill(gp_predicting *p, gp_prediction *one, const uint8_t **row)
{
    uint32_t size[2];

    memcpy(size, *row, sizeof(size));
    const uint64_t count = (uint64_t)size[0] * size[1];

    if (count > p->pixels_max) {
        int32_t *pixels = gp_realloc_array(p->pixels, count, sizeof(*pixels));

        if (pixels == NULL)
            return false;
        p->pixels = pixels;
        p->pixels_max = count;
    }
    classes_read(p, *row + sizeof(size), count);
    *row += sizeof(size) + count * p->plan.class_bytes;
    one->rank = 3;
    one->dims[0] = p->classes;
    one->dims[1] = size[0];
    one->dims[2] = size[1];
    one->pixels = p->pixels;
    return true;
}

static void prediction_fill(const gp_predicting *p, gp_prediction *one, const uint8_t *row)
{
    one->rank = p->output.rank < 4 ? p->output.rank : 4;
    for (uint32_t d = 0; d < one->rank; d++)
        one->dims[d] = (uint64_t)p->output.dim[d];
    if (p->pixels != NULL) {
        classes_read(p, row, p->places);
        one->pixels = p->pixels;
        return;
    }
    one->scores = (const float *)(const void *)row;
    if (p->classes == 0 || one->rank != 1)
        return;
    for (uint32_t k = 1; k < p->classes; k++)
        if (one->scores[k] > one->scores[one->predicted])
            one->predicted = k;
    one->class_name = p->class_names[one->predicted];
}

/* Pass all samples in a part to on_result(). Return false to end the run. */
static bool take_each(void *context, const gp_fan_part *part)
{
    gp_predicting *p = context;
    const char *name = part->names;
    const uint8_t *row = part->scores;

    for (uint32_t i = 0; i < part->sums.count && p->request->on_result != NULL; i++) {
        gp_prediction one = { .index = part->sums.first + i,
                              .label = part->labels != NULL ? part->labels[i] : -1,
                              .classes = p->classes,
                              .class_names = p->class_names,
                              .score_count = p->scores,
                              .score_type = p->score_type };
        char number[24];

        snprintf(number, sizeof(number), "%" PRIu64, one.index + 1);
        one.name = name != NULL ? name : number;
        const bool skipped = part->skipped != NULL && part->skipped[i] != 0;

        if (skipped)
            row += p->plan.begin.whole ? 2 * sizeof(uint32_t) : 0;
        else if (!p->plan.begin.whole)
            prediction_fill(p, &one, row + i * p->plan.row_bytes);
        else if (!image_fill(p, &one, &row))
            return false;
        if (!skipped && !p->request->on_result(p->request->context, &one))
            return false;
        if (name != NULL)
            name += strlen(name) + 1;
    }
    return true;
}

/* ---- calls ---- */

/* Lease workers and run the prediction. `what` names the operation; *out may be NULL. */
static gp_status predicting_run(gp_predicting *p, gp_evaluation *out, gp_pool *pool, const char *what,
                                gp_error *err)
{
    const int64_t begin_ns = gp_now_ns();
    char purpose[96];
    gp_fan_sums sums;

    snprintf(purpose, sizeof(purpose), "%s %.80s", what, p->request->model);

    /* List the data before the lease, so that no worker waits. The workers use the cached
     * result. */
    if (p->plan.begin.data[0] != '\0' && p->request->data_progress != NULL)
        gp_store_prepare(p->plan.begin.data, GP_DATA_GIVEN, p->request->data_progress);
    gp_status status = pool_lease(pool, &p->request->lease, purpose, p->request->stop, err);

    if (status != GP_OK)
        return status;
    status = gp_fan_run(&sums, pool, &p->plan, err);
    pool_release(pool);
    if (status == GP_OK && out != NULL)
        *out = (gp_evaluation){
            .count = sums.count,
            .skipped = sums.skipped,
            .labelled = sums.labelled,
            .excluded = sums.excluded,
            .accuracy = sums.classed > 0 ? sums.correct / sums.classed : NAN,
            .loss = sums.weight > 0 ? sums.loss / sums.weight : NAN,
            .rmse = sums.values > 0 ? sqrt(sums.squares / sums.values) : NAN,
            .seconds = (double)(gp_now_ns() - begin_ns) * 1e-9,
        };
    return status;
}

gp_status gp_predict(gp_evaluation *out, gp_pool *pool, const gp_predict_request *request, gp_error *err)
{
    gp_predicting p;
    gp_status status = predicting_init(&p, request, err);

    if (status == GP_OK)
        status = answer_choose(&p, request->on_result != NULL, false, err);
    p.plan.take = take_each;
    p.plan.context = &p;
    if (status == GP_OK)
        status = predicting_run(&p, out, pool, "predict", err);
    predicting_deinit(&p);
    return status;
}

gp_status gp_evaluate(gp_evaluation *out, gp_confusion **confusion, gp_pool *pool,
                      const gp_predict_request *request, gp_error *err)
{
    gp_predicting p;
    gp_status status = predicting_init(&p, request, err);

    if (status == GP_OK)
        status = answer_choose(&p, false, false, err);
    if (status == GP_OK && confusion != NULL && p.places > 0 && p.classes <= GP_CONFUSION_CLASSES_MAX)
        status = gp_confusion_new(&p.plan.confusion, p.classes, p.class_names, err);
    if (status == GP_OK)
        status = predicting_run(&p, out, pool, "evaluate", err);
    if (status == GP_OK && confusion != NULL) {
        const bool any = p.plan.confusion != NULL && gp_confusion_metrics(p.plan.confusion).count > 0;

        *confusion = any ? p.plan.confusion : NULL;
        p.plan.confusion = any ? NULL : p.plan.confusion;
    }
    gp_confusion_free(p.plan.confusion);
    predicting_deinit(&p);
    return status;
}

/* ---- results in an array ---- */

typedef struct gp_keeper {
    gp_predicting p;
    gp_scores scores;
    uint64_t capacity; /* allocated samples */
    gp_error refused;  /* error that ended the run; code GP_OK: none */
} gp_keeper;

/* Make room for `count` samples in total. */
static gp_status keeper_grow(gp_keeper *keeper, uint64_t count, gp_error *err)
{
    const gp_predicting *p = &keeper->p;
    const size_t row = p->pixels == NULL ? p->scores * sizeof(float) : 0,
                 classes = p->pixels != NULL || p->output.rank == 1 ? p->places * sizeof(int32_t) : 0,
                 index = p->plan.begin.on_bad != 0 ? sizeof(*keeper->scores.index) : 0;
    uint64_t capacity = keeper->capacity;

    while (capacity < count)
        capacity = capacity == 0 ? 1024 : capacity * 2;
    if (capacity == keeper->capacity)
        return GP_OK;
    if (p->request->samples != NULL)
        capacity = p->request->sample_count; /* the final number is known */
    if (capacity * (row + classes + index) > SCORES_BYTES_MAX)
        return gp_fail(err, GP_ELIMIT,
                       "the results of %" PRIu64
                       " samples exceed 64 GiB; receive them one by one with gp_predict()",
                       count);
    float *scores = row > 0 ? gp_realloc_array(keeper->scores.scores, capacity, row) : NULL;

    keeper->scores.scores = scores != NULL ? scores : keeper->scores.scores;
    int32_t *predicted = classes > 0 ? gp_realloc_array(keeper->scores.predicted, capacity, classes) : NULL;

    keeper->scores.predicted = predicted != NULL ? predicted : keeper->scores.predicted;
    uint64_t *samples = index > 0 ? gp_realloc_array(keeper->scores.index, capacity, index) : NULL;

    keeper->scores.index = samples != NULL ? samples : keeper->scores.index;
    if ((row > 0 && scores == NULL) || (classes > 0 && predicted == NULL) || (index > 0 && samples == NULL))
        return gp_fail(err, GP_ENOMEM, "no memory for the results of %" PRIu64 " samples", capacity);
    keeper->capacity = capacity;
    return GP_OK;
}

/* Append a part's results to the arrays. Return false on an error, stored in `refused`. */
static bool take_keep(void *context, const gp_fan_part *part)
{
    gp_keeper *keeper = context;
    gp_predicting *p = &keeper->p;
    gp_scores *out = &keeper->scores;

    if (keeper_grow(keeper, out->count + part->sums.count, &keeper->refused) != GP_OK)
        return false;
    for (uint32_t i = 0; i < part->sums.count; i++) {
        gp_prediction one = { 0 };

        if (part->skipped != NULL && part->skipped[i] != 0)
            continue;
        prediction_fill(p, &one, (const uint8_t *)part->scores + i * p->plan.row_bytes);
        if (out->scores != NULL)
            memcpy(out->scores + out->count * p->scores, one.scores, p->scores * sizeof(float));
        if (one.pixels != NULL)
            memcpy(out->predicted + out->count * p->places, one.pixels, p->places * sizeof(int32_t));
        else if (out->predicted != NULL)
            out->predicted[out->count] = (int32_t)one.predicted;
        if (out->index != NULL)
            out->index[out->count] = part->sums.first + i;
        out->count++;
    }
    return true;
}

gp_status gp_predict_array(gp_scores *out, gp_pool *pool, const gp_predict_request *request, gp_error *err)
{
    gp_keeper keeper = { 0 };
    gp_predicting *p = &keeper.p;
    gp_status status = predicting_init(p, request, err);

    if (status == GP_OK)
        status = answer_choose(p, true, true, err);
    p->plan.take = take_keep;
    p->plan.context = &keeper;
    if (status == GP_OK)
        status = predicting_run(p, &keeper.scores.evaluation, pool, "predict", err);
    if (keeper.refused.code != GP_OK) {
        status = keeper.refused.code;
        if (err != NULL)
            *err = keeper.refused;
    }
    if (status == GP_OK) {
        keeper.scores.score_count = p->scores;
        keeper.scores.classes = p->classes;
        keeper.scores.score_type = p->score_type;
        keeper.scores.rank = p->output.rank < 4 ? p->output.rank : 4;
        for (uint32_t d = 0; d < keeper.scores.rank; d++)
            keeper.scores.dims[d] = (uint64_t)p->output.dim[d];
        *out = keeper.scores;
    } else {
        gp_scores_deinit(&keeper.scores);
    }
    predicting_deinit(p);
    return status;
}

void gp_scores_deinit(gp_scores *scores)
{
    if (scores == NULL)
        return;
    gp_free(scores->scores);
    gp_free(scores->predicted);
    gp_free(scores->index);
    *scores = (gp_scores){ 0 };
}
