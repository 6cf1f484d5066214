/* data_split.c: split a data source into file lists. */
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "client/gradpool.h"
#include "common/base/memory/alloc.h"
#include "common/base/memory/buffer.h"
#include "common/base/system/file.h"
#include "common/data/s3/s3_source.h"
#include "common/data/store/subset.h"

#define LIST_BYTES_MAX ((size_t)4 << 30)

enum { REPORT_EACH = 256 };

/* Write one list, completely or not at all. *written counts the samples in all lists so
 * far. */
static gp_status list_write(const gp_store *store, const char *options, const uint8_t *parts, uint32_t part,
                            const char *path, uint32_t *samples, uint64_t *written,
                            const gp_progress *progress, gp_error *err)
{
    const gp_store_info *info = gp_store_get_info(store);
    gp_buffer list;
    uint32_t count = 0;

    gp_buffer_init(&list, LIST_BYTES_MAX);
    gp_status status = gp_buffer_printf(&list, err, "path,label\n");

    for (uint32_t i = 0; i < info->count && status == GP_OK; i++) {
        char sample[3 * PATH_MAX];
        int32_t label = -1;

        if (parts[i] != part)
            continue;
        status = gp_store_read(store, &i, 1, NULL, &label, err);

        /* The full path for a sample: folders name images relative to themselves, CSV files
         * as written. For S3 objects, append the source's options, so that the list also works
         * elsewhere. */
        char name[PATH_MAX], below[2 * PATH_MAX], here[PATH_MAX];

        gp_store_name(store, i, name, sizeof(name));
        if (strcmp(info->kind, "folder") == 0)
            snprintf(below, sizeof(below), "%s/%s", info->source, name);
        else
            snprintf(below, sizeof(below), "%s", name);
        if (gp_s3_is(below))
            snprintf(sample, sizeof(sample), "%s%s", below, options);
        else if (below[0] == '/' || getcwd(here, sizeof(here)) == NULL)
            snprintf(sample, sizeof(sample), "%s", below);
        else
            snprintf(sample, sizeof(sample), "%s/%s", here, below);
        if (status == GP_OK)
            status = gp_buffer_csv_field(&list, sample, err);
        if (status == GP_OK)
            status = gp_buffer_append(&list, ",", 1, err);
        if (status == GP_OK && label >= 0)
            status = gp_buffer_csv_field(&list, info->class_names[label], err);
        if (status == GP_OK)
            status = gp_buffer_append(&list, "\n", 1, err);
        count++;
        if (++*written % REPORT_EACH == 0 || *written == info->count)
            gp_progress_report(progress, "writing lists", "samples", *written, info->count);
    }
    if (status == GP_OK)
        status = gp_file_write(path, list.data, list.bytes, err);
    gp_buffer_deinit(&list);
    if (status == GP_OK && samples != NULL)
        *samples = count;
    return status;
}

gp_status gp_data_split(const char *source, const double *sizes, const char *const *paths, uint32_t count,
                        uint64_t seed, uint32_t *samples, const gp_progress *progress, gp_error *err)
{
    const gp_store_options images = { .any_size = true, .cache_bytes = 1, .progress = progress };
    char whole[GP_S3_SOURCE_BYTES_MAX] = "";
    gp_store *store = NULL;
    uint64_t written = 0;
    uint8_t *parts = NULL;
    gp_status status = GP_OK;

    if (count < 2 || count > GP_SPLIT_PARTS_MAX)
        return gp_fail(err, GP_EINVAL, "cannot split into %u lists; the number must be 2 to %d", count,
                       GP_SPLIT_PARTS_MAX);
    if (gp_s3_is(source))
        status = gp_source_absolute(whole, sizeof(whole), source, err);
    if (status == GP_OK)
        status = gp_store_open_with(&store, source, GP_DATA_TRAIN, &images, err);
    if (status != GP_OK)
        return status;
    const gp_store_info *info = gp_store_get_info(store);
    const char *options = strrchr(whole, '?');

    if (strcmp(info->kind, "folder") != 0 && strcmp(info->kind, "csv") != 0)
        status = gp_fail(err, GP_EUNSUPPORTED,
                         "%s (%s) cannot be split into file lists; only image folders and CSV files can",
                         info->source, info->kind);
    if (status == GP_OK) {
        parts = gp_calloc(info->count, sizeof(*parts));
        if (parts == NULL)
            status = gp_fail(err, GP_ENOMEM, "no memory to split %u samples", info->count);
    }
    if (status == GP_OK)
        status = gp_store_split(store, sizes, count, seed, parts, err);
    for (uint32_t p = 0; p < count && status == GP_OK; p++)
        status = list_write(store, options != NULL ? options : "", parts, p, paths[p],
                            samples != NULL ? &samples[p] : NULL, &written, progress, err);
    gp_free(parts);
    gp_store_close(store);
    return status;
}
