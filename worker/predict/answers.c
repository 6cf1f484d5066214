#include "worker/predict/answers.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "common/base/memory/alloc.h"
#include "common/model/graph/normalization.h"

enum { BYTE_CLASSES_MAX = 256 };

/* ---- memory ---- */

static const gp_target *first_target(const gp_answers *answers)
{
    return &answers->graph->ends[0].target;
}

static size_t class_bytes(const gp_answers *answers)
{
    return first_target(answers)->classes <= BYTE_CLASSES_MAX ? 1 : sizeof(int32_t);
}

/* Allocate zeroed memory; `out` is the address of any pointer. No effect for 0 bytes. */
static gp_status take(const gp_answers *answers, void *out, size_t bytes, gp_error *err)
{
    void *memory = bytes == 0 ? NULL : gp_aligned_calloc(64, bytes);

    memcpy(out, &memory, sizeof(memory));
    return bytes == 0 || memory != NULL
               ? GP_OK
               : gp_fail(err, GP_ENOMEM,
                         "no memory for a predictor of %zu parameters and parts of %" PRIu32 " samples",
                         answers->graph->blob_count, answers->part_max);
}

gp_status gp_answers_init(gp_answers *answers, bool whole, gp_error *err)
{
    const gp_target *target = first_target(answers);
    gp_status status;

    gp_buffer_init(&answers->rows, GP_PAYLOAD_BYTES_MAX);
    answers->place_count = target->dtype == GP_I32 ? (uint32_t)gp_shape_count(&target->shape) : 0;
    if (answers->kind == GP_ANSWER_CLASSES && answers->place_count == 0)
        return gp_fail(err, GP_EINVAL, "the model predicts values, not classes");
    if (answers->kind == GP_ANSWER_SCORES)
        answers->sample_bytes = answers->graph->score_count * sizeof(float);
    else if (answers->kind == GP_ANSWER_CLASSES && !whole)
        answers->sample_bytes = answers->place_count * class_bytes(answers);
    status = take(answers, &answers->largest, answers->place_count * sizeof(float), err);
    if (status == GP_OK)
        status = take(answers, &answers->predicted, answers->place_count * sizeof(int32_t), err);
    if (status == GP_OK)
        status = take(answers, &answers->scores, answers->part_max * answers->sample_bytes, err);
    if (status == GP_OK)
        status = take(answers, &answers->labels, answers->part_max * sizeof(*answers->labels), err);
    if (status == GP_OK)
        status = take(answers, &answers->skipped, answers->part_max, err);
    if (status == GP_OK && answers->kind == GP_ANSWER_SUMS && answers->compares && answers->place_count > 0 &&
        target->classes > 0 && target->classes <= GP_CONFUSION_CLASSES_MAX)
        status = gp_confusion_new(&answers->confusion, target->classes, NULL, err);
    return status;
}

void gp_answers_deinit(gp_answers *answers)
{
    gp_free(answers->largest);
    gp_free(answers->predicted);
    gp_free(answers->scores);
    gp_buffer_deinit(&answers->rows);
    gp_free(answers->labels);
    gp_confusion_free(answers->confusion);
    gp_free(answers->skipped);
}

void gp_answers_clear(gp_answers *answers)
{
    gp_buffer_clear(&answers->rows);
    memset(answers->sums, 0, sizeof(answers->sums));
    if (answers->confusion != NULL)
        gp_confusion_clear(answers->confusion);
    answers->labelled = 0;
    answers->excluded = 0;
    memset(answers->skipped, 0, answers->part_max);
    answers->skipped_count = 0;
}

/* ---- targets ---- */

void gp_answers_skip(gp_answers *answers, uint32_t at, void *target)
{
    const gp_graph *graph = answers->graph;
    uint8_t *element = target;

    answers->skipped[at] = 1;
    answers->skipped_count++;
    for (uint32_t i = 0; target != NULL && i < graph->target_count; i++) {
        const gp_target *about = &graph->targets[i];
        const float no_value = NAN;
        const int32_t no_class = -1;

        for (int64_t e = gp_shape_count(&about->shape); e > 0; e--, element += sizeof(int32_t))
            memcpy(element, about->dtype == GP_F32 ? (const void *)&no_value : &no_class, sizeof(int32_t));
    }
}

void gp_answers_read_targets(gp_answers *answers, void *targets, uint32_t count, uint32_t at)
{
    const gp_graph *graph = answers->graph;

    for (uint32_t n = 0; n < count; n++) {
        int32_t *first = (int32_t *)(void *)((uint8_t *)targets + n * graph->target_bytes), *target = first;

        for (uint32_t i = 0; i < graph->target_count; i++) {
            const gp_target *about = &graph->targets[i];
            int64_t elements = gp_shape_count(&about->shape);

            for (int64_t e = 0; e < elements && about->dtype == GP_I32; e++)
                if (target[e] >= (int32_t)about->classes)
                    target[e] = -1;
            target += elements;
        }
        answers->labels[at + n] = *first;
        const uint64_t missing = gp_targets_missing(graph->targets, graph->target_count, first);

        answers->labelled += missing < graph->target_bytes / sizeof(int32_t);
        answers->excluded += answers->skipped[at + n] ? 0 : missing;
    }
}

/* ---- classes ---- */

/* Find the class with the largest score at each position (sample or pixel); the first one wins
 * ties.
 *   scores  [classes, place_count] */
static void places_predict(gp_answers *answers, const float *scores)
{
    const uint32_t places = answers->place_count, classes = first_target(answers)->classes;
    float *restrict largest = answers->largest;
    int32_t *restrict predicted = answers->predicted;

    memcpy(largest, scores, places * sizeof(float));
    memset(predicted, 0, places * sizeof(*predicted));
    for (uint32_t k = 1; k < classes; k++) {
        const float *restrict of_class = scores + (size_t)k * places;

        for (uint32_t i = 0; i < places; i++) {
            const bool more = of_class[i] > largest[i];

            largest[i] = more ? of_class[i] : largest[i];
            predicted[i] = more ? (int32_t)k : predicted[i];
        }
    }
}

/* Convert classes to the wire format: bytes if they fit, else int32. */
static void classes_put(const gp_answers *answers, uint8_t *out, const int32_t *classes, size_t count)
{
    if (class_bytes(answers) > 1) {
        memcpy(out, classes, count * sizeof(int32_t));
        return;
    }
    for (size_t i = 0; i < count; i++)
        out[i] = (uint8_t)classes[i];
}

void gp_answers_store(gp_answers *answers, const float *scores, const int32_t *targets, uint32_t count,
                      uint32_t at)
{
    const gp_graph *graph = answers->graph;
    const size_t bytes = answers->sample_bytes;
    const bool wants_classes = answers->kind == GP_ANSWER_CLASSES || answers->confusion != NULL;

    for (uint32_t n = 0; n < count && wants_classes; n++) {
        places_predict(answers, scores + n * graph->score_count + graph->ends[0].score_first);
        if (answers->kind == GP_ANSWER_CLASSES)
            classes_put(answers, answers->scores + (at + n) * bytes, answers->predicted,
                        answers->place_count);
        else
            gp_confusion_count(answers->confusion, targets + n * (graph->target_bytes / sizeof(int32_t)),
                               answers->predicted, answers->place_count);
    }
    if (answers->kind == GP_ANSWER_SCORES)
        memcpy(answers->scores + at * bytes, scores, count * bytes);
}

/* ---- images of any size ---- */

/* Store a row: height, width and classes. A skipped image has size 0 x 0. */
gp_status gp_answers_store_image(gp_answers *answers, const gp_stitched *image, uint32_t at, gp_error *err)
{
    const size_t count = (size_t)image->height * image->width;
    const uint32_t size[2] = { image->height, image->width };
    uint64_t right = 0, classed = 0;
    gp_status status;

    if (image->skipped) {
        gp_answers_skip(answers, at, NULL);
    } else if (answers->compares) {
        for (size_t i = 0; i < count; i++) {
            classed += image->labels[i] >= 0;
            right += image->labels[i] >= 0 && image->labels[i] == image->predicted[i];
        }
        answers->sums[GP_SUM_LOSS] += image->loss;
        answers->sums[GP_SUM_WEIGHT] += image->weight;
        answers->sums[GP_SUM_CORRECT] += (double)right;
        answers->sums[GP_SUM_CLASSED] += (double)classed;
        answers->labelled += classed > 0;
        answers->excluded += count - classed;
        if (answers->confusion != NULL)
            gp_confusion_count(answers->confusion, image->labels, image->predicted, count);
    }
    if (answers->kind != GP_ANSWER_CLASSES)
        return GP_OK;
    status = gp_buffer_append(&answers->rows, size, sizeof(size), err);
    if (status == GP_OK)
        status = gp_buffer_reserve(&answers->rows, count * class_bytes(answers), err);
    if (status == GP_OK) {
        classes_put(answers, answers->rows.data + answers->rows.bytes, image->predicted, count);
        answers->rows.bytes += count * class_bytes(answers);
    }
    return status;
}

/* ---- result ---- */

gp_predicted gp_answers_get(const gp_answers *answers, uint64_t first, uint32_t count)
{
    return (gp_predicted){ .part = { .first = first,
                                     .count = count,
                                     .loss = answers->sums[GP_SUM_LOSS],
                                     .correct = answers->sums[GP_SUM_CORRECT],
                                     .classed = answers->sums[GP_SUM_CLASSED],
                                     .squares = answers->sums[GP_SUM_SQUARES],
                                     .values = answers->sums[GP_SUM_VALUES],
                                     .labelled = answers->labelled,
                                     .excluded = answers->excluded,
                                     .weight = answers->sums[GP_SUM_WEIGHT] },
                           .scores = answers->rows.bytes > 0 ? answers->rows.data : answers->scores,
                           .scores_bytes =
                               answers->rows.bytes > 0 ? answers->rows.bytes : count * answers->sample_bytes,
                           .confusion = answers->confusion,
                           .skipped = answers->skipped_count > 0 ? answers->skipped : NULL,
                           .named = answers->kind != GP_ANSWER_SUMS };
}
