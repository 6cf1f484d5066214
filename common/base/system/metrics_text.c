/* Format a confusion matrix as a text table, CSV or JSON. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/memory/alloc.h"
#include "common/base/metrics.h"
#include "common/base/system/metrics_put.h"
#include "common/base/printable.h"

/* Limits: classes in a table, lines in a confusion list, name width, buffer for a number. */
enum { TABLE_CLASSES_MAX = 32, CONFUSIONS_MAX = 20, NAME_COLUMNS_MAX = 24, NUMBER_TEXT = 24 };

#define TEXT_BYTES_MAX ((size_t)1 << 30)

/* ---- tables ---- */

/* Return the width of UTF-8 text in characters, by counting lead bytes. */
static int columns_of(const char *text)
{
    int columns = 0;

    for (; *text != '\0'; text++)
        columns += ((unsigned char)*text & 0xc0) != 0x80;
    return columns;
}

/* Append a class name or number, cut to NAME_COLUMNS_MAX characters and padded with spaces. Class
 * names come from data sets, so unprintable characters are replaced.
 *   width         minimum width
 *   to_the_right  align to the right */
static gp_status cell_put(gp_buffer *text, const char *cell, int width, bool to_the_right, gp_error *err)
{
    char clean[4 * NAME_COLUMNS_MAX + 1];
    int bytes = 0, columns = 0;

    while (cell[bytes] != '\0') {
        columns += ((unsigned char)cell[bytes] & 0xc0) != 0x80;
        if (columns > NAME_COLUMNS_MAX)
            break;
        bytes++;
    }
    snprintf(clean, sizeof(clean), "%.*s", bytes, cell);
    columns = columns > NAME_COLUMNS_MAX ? NAME_COLUMNS_MAX : columns;
    const int blanks = width - columns;

    return gp_buffer_printf(text, err, "%*s%s%*s", to_the_right && blanks > 0 ? blanks : 0, "",
                            gp_printable(clean), !to_the_right && blanks > 0 ? blanks : 0, "");
}

/* Return the larger of `width` and the width of a cell. */
static int width_of(const char *cell, int width)
{
    const int columns = columns_of(cell) < NAME_COLUMNS_MAX ? columns_of(cell) : NAME_COLUMNS_MAX;

    return columns > width ? columns : width;
}

/* Write the matrix as a table. Each column is as wide as necessary for the content. */
static gp_status table_put(gp_buffer *text, const gp_confusion *matrix, gp_error *err)
{
    static const char corner[] = "true \\ predicted";
    const uint32_t classes = matrix->class_count;
    int first = (int)strlen(corner), widths[TABLE_CLASSES_MAX];
    char number[NUMBER_TEXT];
    gp_status status;

    for (uint32_t j = 0; j < classes; j++) {
        first = width_of(matrix->class_names[j], first);
        widths[j] = width_of(matrix->class_names[j], 1);
        for (uint32_t i = 0; i < classes; i++) {
            snprintf(number, sizeof(number), "%" PRIu64, matrix->counts[(size_t)i * classes + j]);
            widths[j] = width_of(number, widths[j]);
        }
    }
    status = cell_put(text, corner, first, false, err);
    for (uint32_t j = 0; j < classes && status == GP_OK; j++) {
        status = gp_buffer_append(text, "  ", 2, err);
        if (status == GP_OK)
            status = cell_put(text, matrix->class_names[j], widths[j], true, err);
    }
    for (uint32_t i = 0; i < classes && status == GP_OK; i++) {
        status = gp_buffer_append(text, "\n", 1, err);
        if (status == GP_OK)
            status = cell_put(text, matrix->class_names[i], first, false, err);
        for (uint32_t j = 0; j < classes && status == GP_OK; j++)
            status = gp_buffer_printf(text, err, "  %*" PRIu64, widths[j],
                                      matrix->counts[(size_t)i * classes + j]);
    }
    return status == GP_OK ? gp_buffer_append(text, "\n", 1, err) : status;
}

/* A cell outside the diagonal. */
typedef struct confusion {
    uint64_t count;
    uint32_t truth, predicted;
} confusion;

/* Order cells by descending count, then by class; for qsort(). */
static int confusion_order(const void *a, const void *b)
{
    const confusion *x = a, *y = b;

    if (x->count != y->count)
        return x->count > y->count ? -1 : 1;
    if (x->truth != y->truth)
        return x->truth < y->truth ? -1 : 1;
    return x->predicted < y->predicted ? -1 : x->predicted > y->predicted;
}

/* List the largest cells outside the diagonal, for matrices that are too large for a table. */
static gp_status confusions_put(gp_buffer *text, const gp_confusion *matrix, gp_error *err)
{
    const uint32_t classes = matrix->class_count;
    confusion top[CONFUSIONS_MAX + 1];
    size_t count = 0;
    gp_status status = GP_OK;

    for (uint32_t i = 0; i < classes; i++)
        for (uint32_t j = 0; j < classes; j++) {
            const confusion one = { matrix->counts[(size_t)i * classes + j], i, j };

            if (i == j || one.count == 0 ||
                (count == CONFUSIONS_MAX && confusion_order(&one, &top[count - 1]) > 0))
                continue;
            top[count++] = one;
            qsort(top, count, sizeof(*top), confusion_order);
            count = count > CONFUSIONS_MAX ? CONFUSIONS_MAX : count;
        }
    if (count == 0)
        return gp_buffer_printf(text, err, "no sample was assigned to a wrong class\n");
    for (size_t i = 0; i < count && status == GP_OK; i++) {
        char truth[400], predicted[400];

        snprintf(truth, sizeof(truth), "%s", matrix->class_names[top[i].truth]);
        snprintf(predicted, sizeof(predicted), "%s", matrix->class_names[top[i].predicted]);
        status = gp_buffer_printf(text, err, "%10" PRIu64 "  %s predicted as %s\n", top[i].count,
                                  gp_printable(truth), gp_printable(predicted));
    }
    return status;
}

/* Append one class table line. counts: NULL for empty columns. */
static gp_status classes_line(gp_buffer *text, const char *name, int width, const uint64_t *counts,
                              const double *shares, gp_error *err)
{
    gp_status status = cell_put(text, name, width, false, err);

    for (int i = 0; i < 2 && status == GP_OK; i++)
        status = counts != NULL ? gp_buffer_printf(text, err, "  %11" PRIu64, counts[i])
                                : gp_buffer_printf(text, err, "  %11s", "");
    for (int i = 0; i < 4 && status == GP_OK; i++)
        status = isnan(shares[i]) ? gp_buffer_printf(text, err, "  %9s", "-")
                                  : gp_buffer_printf(text, err, "  %9.4f", shares[i]);
    return status == GP_OK ? gp_buffer_append(text, "\n", 1, err) : status;
}

static gp_status classes_put(gp_buffer *text, const gp_confusion *matrix, gp_error *err)
{
    const gp_metrics all = gp_confusion_metrics(matrix);
    int width = (int)strlen("class");
    gp_status status;

    for (uint32_t i = 0; i < matrix->class_count; i++)
        width = width_of(matrix->class_names[i], width);
    status = cell_put(text, "class", width, false, err);
    if (status == GP_OK)
        status = gp_buffer_printf(text, err, "  %11s  %11s  %9s  %9s  %9s  %9s\n", "count", "predicted",
                                  "recall", "precision", "F1", "IoU");
    for (uint32_t i = 0; i < matrix->class_count && status == GP_OK; i++) {
        const gp_class_metrics m = gp_confusion_class(matrix, i);

        status = classes_line(text, matrix->class_names[i], width, (uint64_t[]){ m.truth, m.predicted },
                              (double[]){ m.recall, m.precision, m.f1, m.iou }, err);
    }
    return status != GP_OK
               ? status
               : classes_line(text, "mean", width, NULL,
                              (double[]){ all.mean_accuracy, all.mean_precision, all.mean_f1, all.mean_iou },
                              err);
}

/* ---- CSV ---- */

static gp_status csv_put(gp_buffer *text, const gp_confusion *matrix, gp_error *err)
{
    const uint32_t classes = matrix->class_count;
    gp_status status = gp_buffer_printf(text, err, "true\\predicted");

    for (uint32_t j = 0; j < classes && status == GP_OK; j++) {
        status = gp_buffer_append(text, ",", 1, err);
        if (status == GP_OK)
            status = gp_buffer_csv_field(text, matrix->class_names[j], err);
    }
    for (uint32_t i = 0; i < classes && status == GP_OK; i++) {
        status = gp_buffer_append(text, "\n", 1, err);
        if (status == GP_OK)
            status = gp_buffer_csv_field(text, matrix->class_names[i], err);
        for (uint32_t j = 0; j < classes && status == GP_OK; j++)
            status = gp_buffer_printf(text, err, ",%" PRIu64, matrix->counts[(size_t)i * classes + j]);
    }
    return status == GP_OK ? gp_buffer_append(text, "\n", 1, err) : status;
}

/* ---- JSON ---- */

void gp_confusion_put_means(gp_json_writer *writer, const gp_metrics *metrics)
{
    gp_json_put_integer(writer, "present", metrics->present);
    gp_json_put_number(writer, "mean_accuracy", metrics->mean_accuracy);
    gp_json_put_number(writer, "mean_precision", metrics->mean_precision);
    gp_json_put_number(writer, "mean_f1", metrics->mean_f1);
    gp_json_put_number(writer, "mean_iou", metrics->mean_iou);
    gp_json_put_number(writer, "weighted_iou", metrics->weighted_iou);
}

void gp_confusion_put_per_class(gp_json_writer *writer, const gp_confusion *matrix)
{
    gp_json_begin_array(writer, "per_class");
    for (uint32_t i = 0; i < matrix->class_count; i++) {
        const gp_class_metrics m = gp_confusion_class(matrix, i);

        gp_json_begin_object(writer, NULL);
        gp_json_put_text(writer, "class", matrix->class_names[i]);
        gp_json_put_integer(writer, "truth", (int64_t)m.truth);
        gp_json_put_integer(writer, "predicted", (int64_t)m.predicted);
        gp_json_put_integer(writer, "right", (int64_t)m.right);
        gp_json_put_number(writer, "recall", m.recall);
        gp_json_put_number(writer, "precision", m.precision);
        gp_json_put_number(writer, "f1", m.f1);
        gp_json_put_number(writer, "iou", m.iou);
        gp_json_end_object(writer);
    }
    gp_json_end_array(writer);
}

static gp_status json_put(gp_buffer *text, const gp_confusion *matrix, gp_error *err)
{
    const uint32_t classes = matrix->class_count;
    const gp_metrics all = gp_confusion_metrics(matrix);
    gp_json_writer writer;
    gp_status status;

    gp_json_writer_init(&writer, text, false);
    gp_json_begin_object(&writer, NULL);
    gp_json_begin_array(&writer, "classes");
    for (uint32_t i = 0; i < classes; i++)
        gp_json_put_text(&writer, NULL, matrix->class_names[i]);
    gp_json_end_array(&writer);
    gp_json_begin_array(&writer, "counts");
    for (uint32_t i = 0; i < classes; i++) {
        gp_json_begin_array(&writer, NULL);
        for (uint32_t j = 0; j < classes; j++)
            gp_json_put_integer(&writer, NULL, (int64_t)matrix->counts[(size_t)i * classes + j]);
        gp_json_end_array(&writer);
    }
    gp_json_end_array(&writer);
    gp_json_begin_object(&writer, "metrics");
    gp_json_put_integer(&writer, "count", (int64_t)all.count);
    gp_json_put_number(&writer, "accuracy", all.accuracy);
    gp_confusion_put_means(&writer, &all);
    gp_json_end_object(&writer);
    gp_confusion_put_per_class(&writer, matrix);
    gp_json_end_object(&writer);
    status = gp_json_writer_finish(&writer, err);
    return status == GP_OK ? gp_buffer_append(text, "\n", 1, err) : status;
}

gp_status gp_confusion_format(const gp_confusion *matrix, gp_confusion_form form, char **text, gp_error *err)
{
    gp_buffer buffer;
    gp_status status = GP_OK;
    size_t bytes;

    gp_buffer_init(&buffer, TEXT_BYTES_MAX);
    switch (form) {
    case GP_CONFUSION_TABLE:
        status = matrix->class_count <= TABLE_CLASSES_MAX ? table_put(&buffer, matrix, err)
                                                          : confusions_put(&buffer, matrix, err);
        break;
    case GP_CONFUSION_CLASSES:
        status = classes_put(&buffer, matrix, err);
        break;
    case GP_CONFUSION_CSV:
        status = csv_put(&buffer, matrix, err);
        break;
    case GP_CONFUSION_JSON:
        status = json_put(&buffer, matrix, err);
        break;
    }
    if (status == GP_OK)
        *text = (char *)gp_buffer_take(&buffer, &bytes);
    gp_buffer_deinit(&buffer);
    return status;
}
