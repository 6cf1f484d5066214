/* confusion.c: write a confusion matrix to a file, as a picture, tables or data, depending on the
 * suffix. */
#include <string.h>

#include "client/gradpool.h"
#include "client/predict/plot.h"
#include "common/base/memory/alloc.h"
#include "common/base/memory/buffer.h"
#include "common/base/system/file.h"

static gp_status save_picture(const gp_confusion *matrix, const char *path, const char *title, gp_error *err)
{
    plot *picture = plot_matrix_new(matrix, title != NULL ? title : "");
    gp_status status = picture != NULL ? plot_write(picture, path, err)
                                       : gp_fail(err, GP_ENOMEM, "no memory for the picture %s", path);

    plot_free(picture);
    return status;
}

static gp_status save_text(const gp_confusion *matrix, const char *path, gp_confusion_form form,
                           gp_error *err)
{
    char *text;
    gp_status status = gp_confusion_format(matrix, form, &text, err);

    if (status != GP_OK)
        return status;
    status = gp_file_write(path, text, strlen(text), err);
    gp_buffer_free(text);
    return status;
}

/* Write the matrix and the metrics per class as text tables. */
static gp_status save_tables(const gp_confusion *matrix, const char *path, gp_error *err)
{
    static const gp_confusion_form forms[] = { GP_CONFUSION_TABLE, GP_CONFUSION_CLASSES };
    gp_buffer file;
    gp_status status = GP_OK;

    gp_buffer_init(&file, (size_t)1 << 30);
    for (int i = 0; i < 2 && status == GP_OK; i++) {
        char *text;

        status = gp_confusion_format(matrix, forms[i], &text, err);
        if (status != GP_OK)
            break;
        if (i > 0)
            status = gp_buffer_append(&file, "\n", 1, err);
        if (status == GP_OK)
            status = gp_buffer_append(&file, text, strlen(text), err);
        gp_buffer_free(text);
    }
    if (status == GP_OK)
        status = gp_file_write(path, file.data, file.bytes, err);
    gp_buffer_deinit(&file);
    return status;
}

gp_status gp_confusion_save(const gp_confusion *matrix, const char *path, const char *title, gp_error *err)
{
    const char *suffix = strrchr(path, '.');

    if (suffix != NULL && strcmp(suffix, ".png") == 0)
        return save_picture(matrix, path, title, err);
    if (suffix != NULL && strcmp(suffix, ".csv") == 0)
        return save_text(matrix, path, GP_CONFUSION_CSV, err);
    if (suffix != NULL && strcmp(suffix, ".json") == 0)
        return save_text(matrix, path, GP_CONFUSION_JSON, err);
    if (suffix != NULL && strcmp(suffix, ".txt") == 0)
        return save_tables(matrix, path, err);
    return gp_fail(err, GP_EINVAL,
                   "%s: a confusion matrix is written as FILE.png, FILE.csv, FILE.json or FILE.txt", path);
}
