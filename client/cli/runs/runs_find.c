/* Find runs by number or folder, and get their values by name. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/cli/runs/runs_verbs.h"
#include "client/runs/run_index.h"
#include "common/base/memory/alloc.h"
#include "common/model/train_options.h"
#include "proto/local/paths.h"

void runs_set_free(runs_set *set)
{
    for (size_t i = 0; i < set->count; i++)
        run_summary_deinit(&set->runs[i]);
    gp_free(set->runs);
    *set = (runs_set){ 0 };
}

/* Append the run of a folder. */
static gp_status set_add(runs_set *set, const char *folder, uint64_t number, gp_error *err)
{
    run_summary *grown = gp_array_grow(set->runs, set->count, sizeof(*grown));
    gp_status status;

    if (grown == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for %zu runs", set->count + 1);
    set->runs = grown;
    status = run_summary_read(&grown[set->count], folder, err);
    if (status != GP_OK)
        return status;
    grown[set->count].number = number;
    set->count++;
    return GP_OK;
}

/* ---- the index ---- */

/* Folders of the index. At most RUNS_LISTED_MAX are held. */
typedef struct listing {
    char *newest[RUNS_LISTED_MAX]; /* folder of run N at N % RUNS_LISTED_MAX; NULL: not a run */
    uint64_t last;                 /* newest run; 0: none */
    const uint64_t *wanted;        /* runs that are listed although they are older; 0: none */
    char **found;                  /* their folders; NULL: no such run */
    size_t wanted_count;
    bool full; /* no memory */
} listing;

/* Replace a folder by a copy of another one. */
static void listing_keep(listing *l, char **slot, const char *folder)
{
    gp_free(*slot);
    *slot = gp_strdup(folder);
    l->full |= *slot == NULL;
}

static bool listing_add(void *context, const run_entry *entry)
{
    listing *l = context;

    while (l->last < entry->number) { /* numbers of malformed lines have no run */
        char **slot = &l->newest[++l->last % RUNS_LISTED_MAX];

        gp_free(*slot);
        *slot = NULL;
    }
    listing_keep(l, &l->newest[l->last % RUNS_LISTED_MAX], entry->folder);
    for (size_t i = 0; i < l->wanted_count; i++)
        if (l->wanted[i] == entry->number)
            listing_keep(l, &l->found[i], entry->folder);
    return !l->full;
}

static void listing_free(listing *l)
{
    for (size_t i = 0; l != NULL && i < RUNS_LISTED_MAX; i++)
        gp_free(l->newest[i]);
    for (size_t i = 0; l != NULL && i < l->wanted_count; i++)
        gp_free(l->found[i]);
    gp_free(l);
}

/* Read the newest folders of the index, and those of `count` wanted runs into `found`, which is
 * zeroed. */
static gp_status listing_read(listing **out, const cli_call *call, const uint64_t *wanted, char **found,
                              size_t count, gp_error *err)
{
    listing *l = gp_calloc(1, sizeof(*l));
    gp_paths paths;
    gp_status status = l == NULL ? gp_fail(err, GP_ENOMEM, "no memory for the index of runs")
                                 : gp_paths_find(&paths, cli_pool_name(call), err);

    if (status == GP_OK) {
        l->wanted = wanted;
        l->found = found;
        l->wanted_count = count;
        status = run_index_each(paths.state_dir, listing_add, l, err);
    }
    if (status == GP_OK && l->full)
        status = gp_fail(err, GP_ENOMEM, "no memory for the index of runs");
    if (status == GP_OK)
        *out = l;
    else
        listing_free(l);
    return status;
}

/* Return the folder of run `number`, which is among the newest; NULL: no such run. */
static const char *listing_folder(const listing *l, uint64_t number)
{
    return l->newest[number % RUNS_LISTED_MAX];
}

/* Return the number of the oldest run in the list, or 1. */
static uint64_t listing_first(const listing *l)
{
    return l->last > RUNS_LISTED_MAX ? l->last - RUNS_LISTED_MAX + 1 : 1;
}

gp_status runs_of_index(runs_set *out, const cli_call *call, gp_error *err)
{
    const runs_options *options = call->options;
    const bool some = !options->all && options->where[0] == '\0' && options->sort[0] == '\0';
    listing *l = NULL;
    gp_status status = listing_read(&l, call, NULL, NULL, 0, err);

    *out = (runs_set){ 0 };
    if (status != GP_OK)
        return status;
    if (!some && listing_first(l) > 1 && !options->common.quiet)
        fprintf(stderr, "the index has %" PRIu64 " runs; only the newest %d are considered\n", l->last,
                RUNS_LISTED_MAX);
    for (uint64_t n = l->last; n >= listing_first(l) && status == GP_OK; n--) {
        if (some && out->count == RUNS_SHOWN)
            break;
        if (listing_folder(l, n) != NULL)
            status = set_add(out, listing_folder(l, n), n, err);
        status = status == GP_ENOENT ? GP_OK : status; /* the folder was removed */
    }
    listing_free(l);
    if (status != GP_OK)
        runs_set_free(out);
    return status;
}

/* Append the newest run whose folder exists. */
static gp_status add_latest(runs_set *set, const listing *l, gp_error *err)
{
    for (uint64_t n = l->last; n >= listing_first(l); n--)
        if (listing_folder(l, n) != NULL && access(listing_folder(l, n), F_OK) == 0)
            return set_add(set, listing_folder(l, n), n, err);
    return gp_fail(err, GP_ENOENT, "no run latest; `gradpool runs` lists them");
}

/* Return the number of a run from the command line; 0: the word is not a number. */
static uint64_t number_of(const char *word)
{
    char *end;
    const unsigned long long number = strtoull(word, &end, 10);

    return word[0] >= '0' && word[0] <= '9' && *end == '\0' ? number : 0;
}

gp_status runs_find(runs_set *out, const cli_call *call, const char *const *words, int count, gp_error *err)
{
    uint64_t wanted[RUNS_COMPARED_MAX] = { 0 };
    char *found[RUNS_COMPARED_MAX] = { NULL };
    listing *l = NULL;
    gp_status status;

    *out = (runs_set){ 0 };
    for (int i = 0; i < count; i++)
        wanted[i] = number_of(words[i]);
    status = listing_read(&l, call, wanted, found, (size_t)count, err);
    for (int i = 0; i < count && status == GP_OK; i++) {
        if (strcmp(words[i], "latest") == 0)
            status = add_latest(out, l, err);
        else if (found[i] != NULL)
            status = set_add(out, found[i], wanted[i], err);
        else if (strspn(words[i], "0123456789") == strlen(words[i]))
            status = gp_fail(err, GP_ENOENT, "no run %s; `gradpool runs` lists them", words[i]);
        else
            status = set_add(out, words[i], 0, err);
    }
    listing_free(l);
    if (status != GP_OK)
        runs_set_free(out);
    return status;
}

/* ---- values ---- */

/* Set a number, unless it is NaN. */
static void give(char *text, size_t bytes, double *value, const char *format, double number)
{
    *value = number;
    if (!isnan(number))
        snprintf(text, bytes, format, number);
}

bool runs_value(const run_summary *run, const char *name, char *text, size_t bytes, double *value)
{
    const gp_param *param = gp_params_find(gp_train_options_table, name);
    const struct {
        const char *name;
        double number;
        const char *format;
    } numbers[] = {
        { "run", (double)run->number, "%.0f" },
        { "epochs", (double)run->epochs, "%.0f" },
        { "steps", (double)run->steps, "%.0f" },
        { "workers", (double)run->workers, "%.0f" },
        { "loss", isnan(run->validation_loss) ? run->loss : run->validation_loss, "%.4g" },
        { "accuracy", run->accuracy, "%.4f" },
        { "rmse", run->rmse, "%.4g" },
        { "seconds", run->seconds, "%.1f" },
        { "images-per-second", run->images_per_second, "%.0f" },
    };
    const struct {
        const char *name, *text;
    } texts[] = {
        { "network", run->network }, { "data", run->data },
        { "state", run->state },     { "folder", run->folder != NULL ? run->folder : "" },
        { "began", run->began },     { "note", run->note != NULL ? run->note : "" },
        { "reason", run->reason },
    };
    char *end;

    text[0] = '\0';
    *value = NAN;
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
        if (strcmp(name, numbers[i].name) == 0) {
            give(text, bytes, value, numbers[i].format, numbers[i].number);
            return true;
        }
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        if (strcmp(name, texts[i].name) == 0) {
            snprintf(text, bytes, "%s", texts[i].text);
            return true;
        }
    if (param == NULL)
        return false;
    if (run_summary_option(run, param->name, text, bytes) != NULL && text[0] != '\0') {
        *value = strtod(text, &end);
        if (*end != '\0')
            *value = NAN;
    }
    return true;
}

bool runs_is_number(const char *name)
{
    const gp_param *param = gp_params_find(gp_train_options_table, name);
    const run_summary none = { 0 };
    char text[40];
    double number;

    if (runs_value(&none, name, text, sizeof(text), &number) && !isnan(number)) /* a column */
        return true;
    return param != NULL && param->count == 1 && (param->type == GP_PARAM_I64 || param->type == GP_PARAM_F64);
}

void runs_put(gp_json_writer *writer, const run_summary *run)
{
    gp_json_begin_object(writer, NULL);
    if (run->number != 0)
        gp_json_put_integer(writer, "run", (int64_t)run->number);
    gp_json_put_text(writer, "folder", run->folder);
    gp_json_put_text(writer, "began", run->began);
    gp_json_put_text(writer, "network", run->network);
    gp_json_put_text(writer, "data", run->data);
    gp_json_put_text(writer, "state", run->state);
    if (run->reason[0] != '\0')
        gp_json_put_text(writer, "reason", run->reason);
    if (run->note != NULL)
        gp_json_put_text(writer, "note", run->note);
    gp_json_put_integer(writer, "workers", run->workers);
    gp_json_put_integer(writer, "epochs", run->epochs);
    gp_json_put_integer(writer, "steps", run->steps);
    gp_json_put_number(writer, "loss", run->loss);
    gp_json_put_number(writer, "validation_loss", run->validation_loss);
    gp_json_put_number(writer, "accuracy", run->accuracy);
    if (!isnan(run->rmse))
        gp_json_put_number(writer, "rmse", run->rmse);
    gp_json_put_number(writer, "seconds", run->seconds);
    gp_json_put_number(writer, "images_per_second", run->images_per_second);
    gp_json_put_value(writer, "options", gp_json_member(run->command, "options"));
    gp_json_end_object(writer);
}
