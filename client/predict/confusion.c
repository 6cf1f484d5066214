/* confusion.c: write a confusion matrix to a file, as a picture, tables or data, depending on the
 * suffix. */
#include <string.h>

#include "client/gradpool.h"
#include "client/predict/plot.h"
#include "common/base/memory/buffer.h"
#include "common/base/system/file.h"

/* Write `count` texts, one after the other. */
static gp_status save_texts(const gp_confusion *matrix, const char *path, const gp_confusion_form *forms,
                            int count, gp_error *err)
{
    gp_buffer file;
    gp_status status = GP_OK;

    gp_buffer_init(&file, (size_t)1 << 30);
    for (int i = 0; i < count && status == GP_OK; i++) {
        char *text;

        status = gp_confusion_format(matrix, forms[i], &text, err);
        if (status != GP_OK)
            break;
        status = gp_buffer_printf(&file, err, "%s%s", i > 0 ? "\n" : "", text);
        gp_buffer_free(text);
    }
    if (status == GP_OK)
        status = gp_file_write(path, file.data, file.bytes, err);
    gp_buffer_deinit(&file);
    return status;
}

gp_status gp_confusion_save(const gp_confusion *matrix, const char *path, const char *title, gp_error *err)
{
    static const struct {
        const char *suffix;
        gp_confusion_form forms[2];
        int count;
    } kinds[] = { { ".csv", { GP_CONFUSION_CSV }, 1 },
                  { ".json", { GP_CONFUSION_JSON }, 1 },
                  { ".txt", { GP_CONFUSION_TABLE, GP_CONFUSION_CLASSES }, 2 } };
    const char *suffix = strrchr(path, '.');

    if (suffix != NULL && strcmp(suffix, ".png") == 0) {
        plot *picture = plot_matrix_new(matrix, title != NULL ? title : "");
        gp_status status = picture != NULL ? plot_write(picture, path, err)
                                           : gp_fail(err, GP_ENOMEM, "no memory for the image %s", path);

        plot_free(picture);
        return status;
    }
    for (size_t i = 0; suffix != NULL && i < sizeof(kinds) / sizeof(kinds[0]); i++)
        if (strcmp(suffix, kinds[i].suffix) == 0)
            return save_texts(matrix, path, kinds[i].forms, kinds[i].count, err);
    return gp_fail(err, GP_EINVAL,
                   "cannot write a confusion matrix to %s: the suffix must be .png, .csv, .json or .txt",
                   path);
}
