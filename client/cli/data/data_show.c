/* `gradpool data show` and `gradpool data split`. */
#include "client/cli/data/data_show.h"

#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "client/cli/show.h"
#include "common/base/memory/alloc.h"
#include "common/base/text/json.h"
#include "common/base/text/text.h"
#include "common/data/store/balance.h"
#include "common/data/store/subset.h"

/* ---- show ---- */

enum { PARTS_MAX = 3 };

/* A part of the source; store NULL: the source has no such part. */
typedef struct data_part {
    const char *name;
    gp_store *store;
    uint64_t *counts; /* samples or pixels per class; entry class_count: without a class */
    double *weights;  /* class weights by median frequency */
} data_part;

/* Open one part of the source and count the classes. Only the training part is required; *part
 * stays empty if another part does not exist. */
static gp_status part_open(data_part *part, const char *source, gp_data_role role,
                           const gp_progress *progress, gp_error *err)
{
    const gp_store_options options = { .any_size = true, .cache_bytes = 1, .progress = progress };
    gp_status status = gp_store_open_with(&part->store, source, role, &options, err);

    if (status == GP_ENOENT && role != GP_DATA_TRAIN)
        return GP_OK;
    if (status != GP_OK)
        return status;
    const gp_store_info *info = gp_store_get_info(part->store);
    const bool classes = gp_store_has_class(info);

    part->counts = gp_calloc(2 * (size_t)info->class_count + 1, sizeof(*part->counts));
    part->weights = gp_calloc(info->class_count + 1, sizeof(*part->weights));
    if (part->counts == NULL || part->weights == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory to count classes");
    uint64_t *within = classes ? NULL : part->counts + info->class_count + 1;

    status = gp_store_count_within(part->store, part->counts, within, progress, err);
    if (status == GP_OK)
        gp_balance_weights(GP_BALANCE_MEDIAN, part->counts, within, info->class_count, part->weights);
    return status;
}

/* Return the share of a class among all samples or pixels that have a class. */
static double part_share(const data_part *part, uint32_t class)
{
    const gp_store_info *info = gp_store_get_info(part->store);
    uint64_t total = 0;

    for (uint32_t k = 0; k < info->class_count; k++)
        total += part->counts[k];
    return total == 0 ? 0 : (double)part->counts[class] / (double)total;
}

static void part_print_json(const data_part *part, gp_json_writer *writer)
{
    const gp_store_info *info = gp_store_get_info(part->store);
    char targets[160];

    gp_json_begin_object(writer, NULL);
    gp_json_put_text(writer, "part", part->name);
    gp_json_put_integer(writer, "samples", info->count);
    gp_json_put_integer(writer, "channels", info->channels);
    gp_json_put_integer(writer, "height", info->height);
    gp_json_put_integer(writer, "width", info->width);
    gp_json_put_bool(writer, "sizes_differ", info->sizes_differ);
    gp_json_put_text(writer, "dtype", gp_dtype_name(info->dtype));
    gp_json_put_text(writer, "targets",
                     gp_targets_format(info->targets, info->target_count, targets, sizeof(targets)));
    gp_json_put_integer(writer, "passed_over", (int64_t)info->passed_over);
    gp_json_put_integer(writer, "left_out", (int64_t)info->left_out);
    gp_json_begin_array(writer, "classes");
    for (uint32_t i = 0; i < info->class_count; i++) {
        gp_json_begin_object(writer, NULL);
        gp_json_put_text(writer, "name", info->class_names[i]);
        gp_json_put_integer(writer, "count", (int64_t)part->counts[i]);
        gp_json_put_number(writer, "share", part_share(part, i));
        gp_json_put_number(writer, "weight", part->weights[i]);
        gp_json_end_object(writer);
    }
    gp_json_end_array(writer);
    gp_json_put_integer(writer, "no_class", (int64_t)part->counts[info->class_count]);
    gp_json_end_object(writer);
}

static void show_text(const data_part *parts, int count)
{
    const gp_store_info *first = gp_store_get_info(parts[0].store);
    bool classes = gp_store_has_class(first);
    show_table *table;

    printf("%s: ", first->kind);
    show_line(stdout, first->source);
    for (int i = 0; i < count; i++) {
        const gp_store_info *info = parts[i].store == NULL ? NULL : gp_store_get_info(parts[i].store);
        char targets[160], left_out[400];

        if (info == NULL) {
            printf("%s: none\n", parts[i].name);
            continue;
        }
        printf("%s: %u sample%s, %ux%ux%u %s%s, targets %s", parts[i].name, info->count,
               gp_plural(info->count), info->channels, info->height, info->width, gp_dtype_name(info->dtype),
               info->sizes_differ ? " (the first; sizes differ)" : "",
               gp_targets_format(info->targets, info->target_count, targets, sizeof(targets)));
        if (info->passed_over > 0)
            printf(", %" PRIu64 " file%s skipped", info->passed_over, gp_plural(info->passed_over));
        printf("\n");
        if (info->left_out > 0)
            printf("%s\n", gp_store_left_out(parts[i].store, left_out, sizeof(left_out)));
    }
    if (first->class_count == 0)
        return;
    printf("\n%s of each class\n", classes ? "samples" : "pixels");
    table = show_table_new((uint32_t)count + 3, "class");
    for (int i = 0; i < count; i++)
        show_cells(table, "%s", parts[i].name);
    show_cells(table, "share\tweight");
    for (uint32_t k = 0; table != NULL && k < first->class_count; k++) {
        show_cells(table, "%s", first->class_names[k]);
        for (int i = 0; i < count; i++) {
            const gp_store_info *info = parts[i].store == NULL ? NULL : gp_store_get_info(parts[i].store);

            /* "-": the part has no class with that name and number */
            if (info != NULL && k < info->class_count &&
                strcmp(info->class_names[k], first->class_names[k]) == 0)
                show_cells(table, "%" PRIu64, parts[i].counts[k]);
            else
                show_cells(table, "-");
        }
        show_cells(table, "%.2f %%\t%.4g", 100 * part_share(&parts[0], k), parts[0].weights[k]);
    }
    show_table_print_free(table);
    printf(
        "(share and weight: of the training part; weight: class weight with train --class-weights auto)\n");
    for (int i = 0; i < count; i++)
        if (parts[i].store != NULL && parts[i].counts[gp_store_get_info(parts[i].store)->class_count] > 0)
            printf("%s: %" PRIu64 " without a class\n", parts[i].name,
                   parts[i].counts[gp_store_get_info(parts[i].store)->class_count]);
}

gp_status data_show(cli_call *call, gp_error *err)
{
    data_part parts[PARTS_MAX] = { 0 };
    int count;
    cli_progress progress;
    const gp_progress reports = cli_progress_reports(&progress);
    json_document json;

    cli_progress_begin(call, &progress, "samples");

    /* Open all parts of a source: training, validation, and test. evaluate and predict may read
     * another part than the validation; without such a part, validation and test are the same. */
    parts[0].name = "train";
    parts[1].name = "test";
    count = 2;
    gp_status status = part_open(&parts[0], call->words[1], GP_DATA_TRAIN, &reports, err);

    if (status == GP_OK)
        status = part_open(&parts[1], call->words[1], GP_DATA_TEST, &reports, err);
    if (status == GP_OK && parts[1].store != NULL)
        status = part_open(&parts[2], call->words[1], GP_DATA_GIVEN, &reports, err);
    if (status == GP_OK && parts[2].store != NULL &&
        gp_store_get_info(parts[2].store)->fingerprint != gp_store_get_info(parts[1].store)->fingerprint) {
        parts[1].name = "validation";
        parts[2].name = "test";
        count = 3;
    }
    cli_progress_end(&progress);
    if (status == GP_OK && ((const cli_common *)call->options)->json) {
        gp_json_writer *writer = show_json_object(&json, true);

        gp_json_put_text(writer, "source", gp_store_get_info(parts[0].store)->source);
        gp_json_put_text(writer, "kind", gp_store_get_info(parts[0].store)->kind);
        gp_json_begin_array(writer, "parts");
        for (int i = 0; i < count; i++)
            if (parts[i].store != NULL)
                part_print_json(&parts[i], writer);
        gp_json_end_array(writer);
        status = show_json_print(&json, err);
    } else if (status == GP_OK) {
        show_text(parts, count);
    }
    for (int i = 0; i < PARTS_MAX; i++) {
        gp_store_close(parts[i].store);
        gp_free(parts[i].counts);
        gp_free(parts[i].weights);
    }
    return status;
}

/* ---- split ---- */

/* Split a list at commas, in place. Return the word count; 0: too many words, or an empty word. */
static uint32_t list_cut(char *text, char **words)
{
    uint32_t count = 0;

    for (char *at = text; at != NULL; count++) {
        if (count == GP_SPLIT_PARTS_MAX || *at == ',' || *at == '\0')
            return 0;
        words[count] = at;
        at = strchr(at, ',');
        if (at != NULL)
            *at++ = '\0';
    }
    return count;
}

gp_status data_split(cli_call *call, const char *source, const char *sizes, const char *outputs,
                     uint64_t seed, gp_error *err)
{
    char *sizes_text = gp_strdup(sizes), *paths_text = gp_strdup(outputs);
    char *size_names[GP_SPLIT_PARTS_MAX], *paths[GP_SPLIT_PARTS_MAX];
    double numbers[GP_SPLIT_PARTS_MAX];
    uint32_t samples[GP_SPLIT_PARTS_MAX];
    gp_status status = GP_OK;
    cli_progress progress;
    const gp_progress reports = cli_progress_reports(&progress);
    uint32_t size_count = sizes_text == NULL ? 0 : list_cut(sizes_text, size_names);
    uint32_t path_count = paths_text == NULL ? 0 : list_cut(paths_text, paths);

    if (size_count == 0 || path_count != size_count + 1)
        call->code = cli_usage(
            call,
            "%s: give the sizes of all files except the last, and the files, as in 0.9 -o train.csv,test.csv",
            sizes);
    for (uint32_t i = 0; i < size_count && call->code == CLI_OK; i++) {
        char *end;

        numbers[i] = strtod(size_names[i], &end);
        if (*end != '\0')
            call->code = cli_usage(call, "'%s' is neither a fraction nor a count", size_names[i]);
    }
    if (call->code == CLI_OK) {
        cli_progress_begin(call, &progress, "samples");
        status = gp_data_split(source, numbers, (const char *const *)paths, path_count, seed, samples,
                               &reports, err);
        cli_progress_end(&progress);
        if (status != GP_OK || ((const cli_common *)call->options)->quiet)
            path_count = 0;
        for (uint32_t p = 0; p < path_count; p++)
            printf("%s: %u sample%s\n", paths[p], samples[p], gp_plural(samples[p]));
    }
    gp_free(sizes_text);
    gp_free(paths_text);
    return status;
}
