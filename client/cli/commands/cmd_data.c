/* `gradpool data`: show, split, preview, download and generate data sets. */
#include <inttypes.h>
#include <limits.h>
#include <string.h>

#include "client/cli/cli.h"
#include "client/cli/data/data_preview.h"
#include "client/cli/data/data_show.h"
#include "client/cli/show.h"
#include "common/base/system/cached.h"
#include "common/base/text/json.h"
#include "common/data/source/digits.h"
#include "common/data/store/store.h"

typedef struct data_options {
    cli_common common;
    int64_t count, test_count, seed;
    int64_t rows, columns, image_size[2];
    int format;
    char url[512], out[1024], augment[512];
    bool only_local;
} data_options;

static const char *const format_names[] = { [GP_DIGITS_IDX] = "idx", [GP_DIGITS_PNG] = "png", NULL };

static const gp_param data_params[] = {
    { .name = "count",
      GP_PARAM_FIELD(data_options, count),
      .fallback = 20000,
      .min = 1,
      .max = GP_DIGITS_COUNT_MAX,
      .help = "make digits: training samples" },
    { .name = "test-count",
      GP_PARAM_FIELD(data_options, test_count),
      .fallback = 4000,
      .min = 1,
      .max = GP_DIGITS_COUNT_MAX,
      .help = "make digits: test samples" },
    { .name = "format",
      GP_PARAM_FIELD(data_options, format),
      .words = format_names,
      .help = "make digits: idx (IDX files) or png (images in class folders)" },
    { .name = "seed",
      GP_PARAM_FIELD(data_options, seed),
      .fallback = GP_DIGITS_SEED,
      .min = 0,
      .max = 9007199254740991.0,
      .help = "make digits, split, preview: seed of the random numbers" },
    { .name = "out",
      .alias = "o",
      GP_PARAM_FIELD(data_options, out),
      .placeholder = "FILES",
      .help = "split: output files, A.csv,B.csv; preview: output file, SHEET.png" },
    { .name = "augment",
      GP_PARAM_FIELD(data_options, augment),
      .help = "preview: see `gradpool train --augment`" },
    { .name = "image-size",
      GP_PARAM_FIELD(data_options, image_size),
      .max = 8192,
      .unit = "pixels",
      .placeholder = "H,W",
      .help = "preview: resize image files to height, width" },
    { .name = "rows",
      GP_PARAM_FIELD(data_options, rows),
      .fallback = 6,
      .min = 1,
      .max = 1000,
      .help = "preview: number of samples" },
    { .name = "columns",
      GP_PARAM_FIELD(data_options, columns),
      .fallback = 8,
      .min = 1,
      .max = 1000,
      .help = "preview: images per sample, the stored one and the augmented ones" },
    { .name = "url",
      GP_PARAM_FIELD(data_options, url),
      .help = "get: mirror to download from (default: $GRADPOOL_DATA_URL, else built in)" },
    { .name = "only-local",
      GP_PARAM_FIELD(data_options, only_local),
      .help = "get: print the local path, never download" },
    CLI_JSON_PARAM(data_options),
    CLI_COMMON_PARAMS(data_options),
    { 0 },
};

/* Print the path to a data set; download the data set first unless it exists or --only-local is
 * given. */
static gp_status data_get(cli_call *call, gp_error *err)
{
    const data_options *options = call->options;
    const char *name = call->words[1];
    gp_get_options get;
    cli_progress progress;
    char path[PATH_MAX], cache[PATH_MAX];
    gp_status status = gp_store_find(path, sizeof(path), name, err);
    /* An incomplete download may have left files in the cache: call gp_get() to fetch the missing
     * files. */
    bool ours = status == GP_OK && gp_cache_path(cache, sizeof(cache), "data", name, NULL) == GP_OK &&
                strcmp(path, cache) == 0;

    if ((status != GP_OK || ours) && !options->only_local) {
        get = cli_progress_download(call, &progress, options->url);
        status = gp_get(name, &get, err);
        cli_progress_end(&progress);
        if (status == GP_OK)
            status = gp_store_find(path, sizeof(path), name, err);
    }
    if (status == GP_OK)
        printf("%s\n", path);
    return status;
}

/* Generate a data set in a folder. */
static gp_status data_make(cli_call *call, gp_error *err)
{
    const data_options *options = call->options;
    const char *directory = call->words[2];
    cli_progress progress;
    const gp_progress reports = cli_progress_reports(&progress);

    if (strcmp(call->words[1], "digits") != 0) {
        call->code = cli_usage(call, "unknown data set '%s'; usage: make digits FOLDER", call->words[1]);
        return GP_OK;
    }
    if (!options->common.quiet)
        fprintf(stderr, "generating %" PRId64 " + %" PRId64 " digits\n", options->count, options->test_count);
    cli_progress_begin(call, &progress, "digits");
    gp_status status = gp_digits_write(directory, (gp_digits_format)options->format, (uint32_t)options->count,
                                       (uint32_t)options->test_count, (uint64_t)options->seed, &reports, err);

    cli_progress_end(&progress);
    if (status == GP_OK)
        printf("%s\n", directory);
    return status;
}

static gp_status data_list(cli_call *call, gp_error *err)
{
    json_document json;

    if (((const data_options *)call->options)->common.json) {
        gp_json_writer *writer = show_json_array(&json);

        for (const gp_get_set *set = gp_get_sets; set->name != NULL; set++) {
            gp_json_begin_object(writer, NULL);
            gp_json_put_text(writer, "name", set->name);
            gp_json_put_text(writer, "about", set->about);
            gp_json_end_object(writer);
        }
        return show_json_print(&json, err);
    }
    show_table *table = show_table_new(2, "name\t");

    for (const gp_get_set *set = gp_get_sets; set->name != NULL; set++)
        show_cells(table, "%s\t%s", set->name, set->about);
    show_cells(table, "digits[:COUNT]\tgenerated in memory, 28x28, 10 classes");
    show_cells(table, "synthetic:HxWxC:CLASSES:COUNT\trandom bytes, for benchmarks");
    show_table_print_free(table);
    return GP_OK;
}

static gp_status preview_run(cli_call *call, gp_error *err)
{
    const data_options *options = call->options;
    preview_request request = { .source = call->words[1],
                                .out = options->out,
                                .augment = options->augment,
                                .image_size = { options->image_size[0], options->image_size[1] },
                                .rows = options->rows,
                                .columns = options->columns,
                                .seed = (uint64_t)options->seed };

    if (options->out[0] != '\0')
        return data_preview(call, &request, err);
    call->code = cli_usage(call, "data preview needs -o SHEET.png");
    return GP_OK;
}

static gp_status split_run(cli_call *call, gp_error *err)
{
    const data_options *options = call->options;

    return data_split(call, call->words[1], call->words[2], options->out, (uint64_t)options->seed, err);
}

static const cli_verb data_verbs[] = {
    { "list", "", "list the data sets that have a name", 0, 0, data_list },
    { "show", "SOURCE", "show the samples and classes of a data source", 1, 1, data_show },
    { "preview", "SOURCE -o SHEET.png", "draw samples, before and after augmentation", 1, 1, preview_run },
    { "split", "SOURCE SIZE,... -o FILE.csv,...", "divide a data source into parts, class by class", 2, 2,
      split_run },
    { "get", "DATASET", "download a data set and print its path", 1, 1, data_get },
    { "make", "digits FOLDER", "generate a data set of digits in a folder", 2, 2, data_make },
    { 0 },
};

static const char *const data_sources[] = { NULL };

const cli_command cli_command_data = {
    .name = "data",
    .summary = "show, split, preview, download or generate data sets",
    .description =
        "Work with data sets. SOURCE is a folder of images, of IDX or of NPY files, FILE.csv, FILE.tar, "
        "FILE.npy, s3://BUCKET/PREFIX, or a name of `gradpool data list`. Option descriptions begin with "
        "the verb that they belong to.",
    .examples = "  gradpool data get fashion-mnist\n"
                "  gradpool data make digits ./digits --count 20000\n"
                "  gradpool data show photos\n"
                "  gradpool data show s3://bucket/photos --s3-endpoint http://localhost:9000\n"
                "  gradpool data split photos 0.9 -o train.csv,test.csv\n"
                "  gradpool data preview photos --augment 'x-reflection=0.5 rotation=-20,20' -o sheet.png\n"
                "  gradpool data list\n",
    .options = data_params,
    .options_bytes = sizeof(data_options),
    .words_max = 3,
    .sources = data_sources,
    .verbs = data_verbs,
};
