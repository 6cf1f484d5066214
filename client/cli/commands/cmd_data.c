/* `gradpool data`: show, split, preview, download and generate data sets. */
#include <inttypes.h>
#include <limits.h>
#include <string.h>

#include "client/cli/cli.h"
#include "client/cli/data/data_preview.h"
#include "client/cli/data/data_show.h"
#include "client/cli/data/download.h"
#include "client/cli/show.h"
#include "common/base/system/cached.h"
#include "common/base/text/json.h"
#include "common/base/text/spell.h"
#include "common/data/source/digits.h"
#include "common/data/store/store.h"

typedef struct data_options {
    cli_common common;
    int64_t count, test_count, seed;
    int64_t rows, columns, image_size[2];
    char url[512], out[1024], augment[512];
    bool only_local;
} data_options;

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
    { .name = "seed",
      GP_PARAM_FIELD(data_options, seed),
      .fallback = GP_DIGITS_SEED,
      .min = 0,
      .max = 9007199254740991.0,
      .help = "make digits: of the drawing; split: of the division; preview: of the draws" },
    { .name = "out",
      .alias = "o",
      GP_PARAM_FIELD(data_options, out),
      .placeholder = "FILES",
      .help = "split: the files, A.csv,B.csv; preview: the PNG" },
    { .name = "augment",
      GP_PARAM_FIELD(data_options, augment),
      .help = "preview: as of `gradpool train --augment`" },
    { .name = "image-size",
      GP_PARAM_FIELD(data_options, image_size),
      .max = 8192,
      .unit = "pixels",
      .placeholder = "H,W",
      .help = "preview: height, width that images of files are brought to" },
    { .name = "rows",
      GP_PARAM_FIELD(data_options, rows),
      .fallback = 6,
      .min = 1,
      .max = 1000,
      .help = "preview: samples" },
    { .name = "columns",
      GP_PARAM_FIELD(data_options, columns),
      .fallback = 8,
      .min = 1,
      .max = 1000,
      .help = "preview: each as it is stored, then in this number less one of epochs" },
    { .name = "url",
      GP_PARAM_FIELD(data_options, url),
      .help = "get: a mirror ($GRADPOOL_DATA_URL is another way to name it)" },
    { .name = "only-local",
      GP_PARAM_FIELD(data_options, only_local),
      .help = "get: look for it, download nothing" },
    CLI_JSON_PARAM(data_options),
    CLI_COMMON_PARAMS(data_options),
    { 0 },
};

/* Print the path of a data set; download the data set first unless it exists or --only-local is
 * given. */
static int data_get(cli_call *call, const char *name)
{
    const data_options *options = call->options;
    gp_get_options get;
    download_view shown;
    char path[PATH_MAX], cache[PATH_MAX];
    gp_error err;
    gp_status status = gp_store_find(path, sizeof(path), name, &err);
    /* An incomplete download may have left files in the cache: call gp_get() to fetch the missing
     * files. */
    bool ours = status == GP_OK && gp_cache_path(cache, sizeof(cache), "data", name, NULL) == GP_OK &&
                strcmp(path, cache) == 0;

    if (status == GP_OK && (!ours || options->only_local)) {
        printf("%s\n", path);
        return CLI_OK;
    }
    if (options->only_local)
        return cli_fail(call, &err);
    get = download_begin(call, &shown, options->url);
    status = gp_get(name, &get, &err);
    download_end(&shown);
    if (status == GP_OK)
        status = gp_store_find(path, sizeof(path), name, &err);
    if (status != GP_OK)
        return cli_fail(call, &err);
    printf("%s\n", path);
    return CLI_OK;
}

/* Generate a data set in a folder. */
static int data_make(cli_call *call, const char *what, const char *directory)
{
    const data_options *options = call->options;
    cli_progress progress;
    gp_error err;

    if (strcmp(what, "digits") != 0)
        return cli_usage(call, "unknown data '%s'; there is: make digits DIR", what);
    if (!options->common.quiet)
        fprintf(stderr, "drawing %" PRId64 " + %" PRId64 " digits\n", options->count, options->test_count);
    cli_progress_begin(call, &progress, "digits");
    const gp_progress reports = cli_progress_reports(&progress);
    gp_status status = gp_digits_write(directory, (uint32_t)options->count, (uint32_t)options->test_count,
                                       (uint64_t)options->seed, &reports, &err);

    cli_progress_end(&progress);

    if (status != GP_OK)
        return cli_fail(call, &err);
    printf("%s\n", directory);
    return CLI_OK;
}

static void data_list(void)
{
    show_table *table = show_table_new(2, (const char *[]){ "name", "" });

    for (const gp_get_set *set = gp_get_sets; set->name != NULL; set++)
        show_row(table, (const char *[]){ set->name, set->about });
    show_row(table, (const char *[]){ "digits[:COUNT]", "drawn in memory, 28x28, 10 classes" });
    show_row(table, (const char *[]){ "synthetic:HxWxC:CLASSES:COUNT", "random bytes, for benchmarks" });
    show_table_print_free(table);
}

static void data_list_json(void)
{
    json_document json;
    gp_json_writer *writer = show_json_array(&json);

    for (const gp_get_set *set = gp_get_sets; set->name != NULL; set++) {
        gp_json_begin_object(writer, NULL);
        gp_json_put_text(writer, "name", set->name);
        gp_json_put_text(writer, "about", set->about);
        gp_json_end_object(writer);
    }
    show_json_print(&json, NULL);
}

static int data_preview_run(cli_call *call, const char *source)
{
    const data_options *options = call->options;
    preview_request request = { .source = source,
                                .out = options->out,
                                .augment = options->augment,
                                .image_size = { options->image_size[0], options->image_size[1] },
                                .rows = options->rows,
                                .columns = options->columns,
                                .seed = (uint64_t)options->seed };

    if (options->out[0] == '\0')
        return cli_usage(call, "data preview needs -o SHEET.png");
    return data_preview(call, &request);
}

static int data_run(cli_call *call)
{
    static const char *const verbs[] = { "get", "make", "list", "show", "split", "preview", NULL };
    const char *verb = call->word_count > 0 ? call->words[0] : "", *near = NULL;
    unsigned distance = 0;

    if (strcmp(verb, "get") == 0 && call->word_count == 2)
        return data_get(call, call->words[1]);
    if (strcmp(verb, "make") == 0 && call->word_count == 3)
        return data_make(call, call->words[1], call->words[2]);
    if (strcmp(verb, "list") == 0 && call->word_count == 1) {
        if (((const data_options *)call->options)->common.json)
            data_list_json();
        else
            data_list();
        return CLI_OK;
    }
    if (strcmp(verb, "show") == 0 && call->word_count == 2)
        return data_show(call, call->words[1]);
    if (strcmp(verb, "preview") == 0 && call->word_count == 2)
        return data_preview_run(call, call->words[1]);
    if (strcmp(verb, "split") == 0 && call->word_count == 3) {
        const data_options *options = call->options;

        return data_split(call, call->words[1], call->words[2], options->out, (uint64_t)options->seed);
    }
    for (size_t i = 0; verbs[i] != NULL; i++)
        gp_spell_offer(verb, verbs[i], &near, &distance);
    if (near != NULL && strcmp(near, verb) != 0)
        return cli_usage(call, "unknown word '%s'; did you mean '%s'?", verb, near);
    return cli_usage(call, "usage: gradpool data %s", call->command->usage);
}

static const char *const data_sources[] = { NULL };

const cli_command cli_command_data = {
    .name = "data",
    .summary = "show, divide, download or make data sets",
    .usage = "show SOURCE [--json] | split SOURCE SIZE[,SIZE] -o A.csv,B.csv | preview SOURCE [--augment "
             "...] -o SHEET.png | "
             "get NAME | make digits DIR | list",
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
    .run = data_run,
};
