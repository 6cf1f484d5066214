/* Read a CSV file with rows path,label as a list of images. Paths are relative to the file's
 * directory. */
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "common/data/format/csv.h"
#include "common/data/source/image_store.h"
#include "common/data/source/objects.h"

/* Return whether a field is among the column names; NULL ends the list. */
static bool is_one_of(const char *field, const char *const *names)
{
    while (*names != NULL && strcasecmp(field, *names) != 0)
        names++;
    return *names != NULL;
}

static gp_status row_take(gp_image_list *list, uint32_t place, const gp_csv *csv, const gp_csv_row *row,
                          gp_error *err)
{
    static const char *const paths[] = { "path", "file", "filename", "image", NULL };
    static const char *const labels[] = { "label", "class", "category", NULL };
    int32_t label = -1;
    gp_status status = GP_OK;

    if (row->count != 2)
        return gp_fail(err, GP_ECORRUPT, "%s: line %u has %u fields; must be path,label", csv->name,
                       row->line, row->count);
    if (row->first && is_one_of(row->fields[0], paths) && is_one_of(row->fields[1], labels))
        return GP_OK;
    if (row->fields[0][0] == '\0')
        return gp_fail(err, GP_ECORRUPT, "%s: line %u has no path", csv->name, row->line);
    if (row->fields[1][0] != '\0')
        status = gp_image_list_class_of(list, row->fields[1], &label, err);
    return status == GP_OK ? gp_image_list_add(list, place, row->fields[0], label, err) : status;
}

/* Read all rows into the list, then sort the classes. Closes the CSV file. */
static gp_status rows_take(gp_image_list *list, gp_csv *csv, const char *place_path, gp_error *err)
{
    uint32_t place;
    gp_csv_row row;
    gp_status status = gp_image_list_add_place(list, place_path, &place, err);

    while (status == GP_OK && (status = gp_csv_next(csv, &row, err)) == GP_OK && row.count > 0)
        status = row_take(list, place, csv, &row, err);
    if (status == GP_OK && (list->count == 0 || list->class_count == 0))
        status = gp_fail(err, GP_ENOENT, "%s has no lines; each must be path,label", csv->name);
    gp_csv_close(csv);
    if (status == GP_OK)
        status = gp_image_list_sort_classes(list, true, err);
    if (status == GP_OK)
        gp_image_list_trim(list);
    return status;
}

gp_status gp_csv_list_text(gp_image_list *list, const char *path, const char *place, char *text, size_t bytes,
                           gp_error *err)
{
    gp_csv csv;

    gp_image_list_init(list);
    gp_csv_init(&csv, path, text, bytes);
    return rows_take(list, &csv, place, err);
}

gp_status gp_csv_list(gp_image_list *list, const char *path, gp_data_role role,
                      const gp_store_options *options, gp_error *err)
{
    const char *slash = strrchr(path, '/');
    char directory[PATH_MAX];
    gp_csv csv;
    gp_status status;

    (void)options;
    gp_image_list_init(list);
    if (role == GP_DATA_TEST)
        return gp_fail(err, GP_ENOENT, "%s has no test part; use --validation-data FILE.csv", path);
    snprintf(directory, sizeof(directory), "%.*s",
             slash == NULL   ? 1
             : slash == path ? 1
                             : (int)(slash - path),
             slash == NULL ? "." : path);
    status = gp_csv_open(&csv, path, err);
    if (status == GP_OK)
        status = rows_take(list, &csv, directory, err);
    return status == GP_OK ? gp_s3_list_lines(list, path, err) : status;
}
