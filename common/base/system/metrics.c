/* Confusion matrices: counting, packing for the network, and derived metrics. */
#include "common/base/metrics.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/base/memory/alloc.h"
#include "common/base/system/metrics_put.h"

gp_status gp_confusion_new(gp_confusion **out, uint32_t class_count, const char *const *class_names,
                           gp_error *err)
{
    size_t text = 0, used = 0;

    if (class_count == 0 || class_count > GP_CONFUSION_CLASSES_MAX)
        return gp_fail(err, GP_EINVAL, "invalid confusion matrix of %" PRIu32 " classes: must have 1 to %d",
                       class_count, GP_CONFUSION_CLASSES_MAX);
    for (uint32_t i = 0; i < class_count; i++)
        text += class_names != NULL ? strlen(class_names[i]) + 1 : sizeof("4095");
    /* One block contains the name pointer array, followed by the names. */
    gp_confusion *matrix = gp_calloc(1, sizeof(*matrix));
    const char **names = gp_malloc(class_count * sizeof(*names) + text);
    uint64_t *counts = gp_calloc((size_t)class_count * class_count, sizeof(*counts));

    if (matrix == NULL || names == NULL || counts == NULL) {
        gp_free(matrix);
        gp_free(names);
        gp_free(counts);
        return gp_fail(err, GP_ENOMEM, "no memory for a confusion matrix of %" PRIu32 " classes",
                       class_count);
    }
    char *bytes = (char *)(names + class_count);

    for (uint32_t i = 0; i < class_count; i++) {
        names[i] = bytes + used;
        used += 1 + (size_t)(class_names != NULL ? snprintf(bytes + used, text - used, "%s", class_names[i])
                                                 : snprintf(bytes + used, text - used, "%" PRIu32, i));
    }
    *matrix = (gp_confusion){ .class_count = class_count, .counts = counts, .class_names = names };
    *out = matrix;
    return GP_OK;
}

void gp_confusion_free(gp_confusion *matrix)
{
    if (matrix == NULL)
        return;
    gp_free(matrix->counts);
    gp_free(matrix->class_names);
    gp_free(matrix);
}

static size_t cells_of(const gp_confusion *matrix)
{
    return (size_t)matrix->class_count * matrix->class_count;
}

/* ---- counting ---- */

void gp_confusion_clear(gp_confusion *matrix)
{
    memset(matrix->counts, 0, cells_of(matrix) * sizeof(*matrix->counts));
}

uint64_t gp_confusion_count(gp_confusion *matrix, const int32_t *truth, const int32_t *predicted,
                            size_t count)
{
    const uint32_t classes = matrix->class_count;
    uint64_t counted = 0;

    for (size_t i = 0; i < count; i++) {
        /* Negative classes become large unsigned numbers, so this comparison rejects them too. */
        if ((uint32_t)truth[i] >= classes || (uint32_t)predicted[i] >= classes)
            continue;
        matrix->counts[(size_t)truth[i] * classes + (size_t)predicted[i]]++;
        counted++;
    }
    return counted;
}

/* ---- network format ---- */

static void number_put(uint8_t *bytes, uint64_t value, int count)
{
    for (int i = 0; i < count; i++)
        bytes[i] = (uint8_t)(value >> 8 * i);
}

static uint64_t number_get(const uint8_t *bytes, int count)
{
    uint64_t value = 0;

    for (int i = 0; i < count; i++)
        value |= (uint64_t)bytes[i] << 8 * i;
    return value;
}

gp_status gp_confusion_pack(const gp_confusion *matrix, gp_buffer *cells, gp_error *err)
{
    gp_status status = GP_OK;

    for (size_t i = 0; i < cells_of(matrix) && status == GP_OK; i++) {
        uint8_t cell[GP_CONFUSION_CELL_BYTES];

        if (matrix->counts[i] == 0)
            continue;
        number_put(cell, i / matrix->class_count, 4);
        number_put(cell + 4, i % matrix->class_count, 4);
        number_put(cell + 8, matrix->counts[i], 8);
        status = gp_buffer_append(cells, cell, sizeof(cell), err);
    }
    return status;
}

gp_status gp_confusion_unpack(gp_confusion *into, const void *cells, size_t bytes, gp_error *err)
{
    const uint64_t classes = into->class_count;
    const size_t count = bytes / GP_CONFUSION_CELL_BYTES;
    uint64_t next = 0;

    if (bytes % GP_CONFUSION_CELL_BYTES != 0)
        return gp_fail(err, GP_EPROTO, "malformed confusion matrix: %zu bytes", bytes);
    /* The first pass checks all cells; the second one adds them. */
    for (int add = 0; add < 2; add++)
        for (size_t i = 0; i < count; i++) {
            const uint8_t *cell = (const uint8_t *)cells + i * GP_CONFUSION_CELL_BYTES;
            const uint64_t truth = number_get(cell, 4), predicted = number_get(cell + 4, 4),
                           n = number_get(cell + 8, 8), place = truth * classes + predicted;
            uint64_t sum;

            if (add) {
                into->counts[place] += n;
                continue;
            }
            if (truth >= classes || predicted >= classes || place < next || n == 0 ||
                __builtin_add_overflow(into->counts[place], n, &sum))
                return gp_fail(err, GP_EPROTO,
                               "malformed confusion matrix of %" PRIu64 " classes: %" PRIu64
                               " samples of class %" PRIu64 " predicted as class %" PRIu64,
                               classes, n, truth, predicted);
            next = place + 1;
        }
    return GP_OK;
}

/* ---- derived metrics ---- */

/* Return part / whole. NaN: whole is 0. */
static double ratio(double part, double whole)
{
    return whole > 0 ? part / whole : NAN;
}

/* Compute the metrics of a class.
 *   right      n[i][i]
 *   truth      row i sum
 *   predicted  column i sum */
static gp_class_metrics class_of(uint64_t right, uint64_t truth, uint64_t predicted)
{
    return (gp_class_metrics){
        .truth = truth,
        .predicted = predicted,
        .right = right,
        .recall = ratio((double)right, (double)truth),
        .precision = ratio((double)right, (double)predicted),
        .f1 = ratio(2.0 * (double)right, (double)truth + (double)predicted),
        .iou = ratio((double)right, (double)truth + (double)predicted - (double)right),
    };
}

gp_class_metrics gp_confusion_class(const gp_confusion *matrix, uint32_t index)
{
    const size_t classes = matrix->class_count;
    uint64_t truth = 0, predicted = 0;

    for (size_t i = 0; i < classes; i++) {
        truth += matrix->counts[index * classes + i];
        predicted += matrix->counts[i * classes + index];
    }
    return class_of(matrix->counts[index * classes + index], truth, predicted);
}

/* Weighted mean of all values that are not NaN. */
typedef struct mean {
    double sum, weight;
} mean;

static void mean_add(mean *m, double value, double weight)
{
    if (isnan(value))
        return;
    m->sum += weight * value;
    m->weight += weight;
}

gp_metrics gp_confusion_metrics(const gp_confusion *matrix)
{
    const size_t classes = matrix->class_count;
    uint64_t rows[GP_CONFUSION_CLASSES_MAX] = { 0 }, columns[GP_CONFUSION_CLASSES_MAX] = { 0 }, right = 0;
    mean recall = { 0 }, precision = { 0 }, f1 = { 0 }, iou = { 0 }, weighted = { 0 };
    gp_metrics all = { 0 };

    /* Read the matrix once, in memory order: a large matrix does not fit in the caches. */
    for (size_t i = 0; i < classes; i++)
        for (size_t j = 0; j < classes; j++) {
            rows[i] += matrix->counts[i * classes + j];
            columns[j] += matrix->counts[i * classes + j];
        }
    for (size_t i = 0; i < classes; i++) {
        const gp_class_metrics m = class_of(matrix->counts[i * classes + i], rows[i], columns[i]);

        all.count += m.truth;
        all.present += m.truth > 0;
        right += m.right;
        mean_add(&recall, m.recall, 1);
        mean_add(&precision, m.precision, 1);
        mean_add(&f1, m.f1, 1);
        mean_add(&iou, m.iou, 1);
        mean_add(&weighted, m.iou, (double)m.truth);
    }
    all.accuracy = ratio((double)right, (double)all.count);
    all.mean_accuracy = ratio(recall.sum, recall.weight);
    all.mean_precision = ratio(precision.sum, precision.weight);
    all.mean_f1 = ratio(f1.sum, f1.weight);
    all.mean_iou = ratio(iou.sum, iou.weight);
    all.weighted_iou = ratio(weighted.sum, weighted.weight);
    return all;
}
