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
    size_t bytes = strlen(folder);
    char path[700];
    gp_status status;

    while (bytes > 1 && folder[bytes - 1] == '/') /* as shells complete it */
        bytes--;
    snprintf(path, sizeof(path), "%.*s", (int)bytes, folder);

    if (grown == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for %zu runs", set->count + 1);
    set->runs = grown;
    status = run_summary_read(&grown[set->count], path, err);
    if (status != GP_OK)
        return status;
    grown[set->count].number = number;
    set->count++;
    return GP_OK;
}

/* ---- the index ---- */

/* Folders of the index. */
typedef struct listing {
    char (*folders)[700]; /* folder of run i + 1; "": a line that is not a run */
    size_t count;
} listing;

static bool listing_add(void *context, const run_entry *entry)
{
    listing *l = context;

    while (l->count < entry->number) {
        char(*grown)[700] = gp_array_grow(l->folders, l->count, sizeof(*grown));

        if (grown == NULL)
            return false;
        l->folders = grown;
        l->folders[l->count++][0] = '\0';
    }
    snprintf(l->folders[entry->number - 1], sizeof(l->folders[0]), "%s", entry->folder);
    return true;
}

static gp_status listing_read(listing *out, const cli_call *call, gp_error *err)
{
    gp_paths paths;
    gp_status status = gp_paths_find(&paths, cli_pool_name(call), err);

    *out = (listing){ 0 };
    return status == GP_OK ? run_index_each(paths.state_dir, listing_add, out, err) : status;
}

gp_status runs_of_index(runs_set *out, const cli_call *call, gp_error *err)
{
    const runs_options *options = call->options;
    const bool some = !options->all && options->where[0] == '\0' && options->sort[0] == '\0';
    listing l;
    gp_status status = listing_read(&l, call, err);

    *out = (runs_set){ 0 };
    for (size_t i = l.count; i > 0 && status == GP_OK && !(some && out->count == RUNS_SHOWN); i--) {
        if (l.folders[i - 1][0] != '\0')
            status = set_add(out, l.folders[i - 1], i, err);
        status = status == GP_ENOENT ? GP_OK : status; /* the folder was removed */
    }
    gp_free(l.folders);
    if (status != GP_OK)
        runs_set_free(out);
    return status;
}

gp_status runs_find(runs_set *out, const cli_call *call, const char *const *words, int count, gp_error *err)
{
    listing l;
    gp_status status = listing_read(&l, call, err);

    *out = (runs_set){ 0 };
    for (int i = 0; i < count && status == GP_OK; i++) {
        char *end;
        const unsigned long long number = strtoull(words[i], &end, 10);
        const bool is_number = words[i][0] >= '0' && words[i][0] <= '9' && *end == '\0';
        const bool latest = strcmp(words[i], "latest") == 0;
        uint64_t line = latest ? l.count : number;

        while (latest && line > 1 && access(l.folders[line - 1], F_OK) != 0)
            line--; /* the folder was removed */
        if (!is_number && !latest)
            status = set_add(out, words[i], 0, err);
        else if (line == 0 || line > l.count || l.folders[line - 1][0] == '\0')
            status = gp_fail(err, GP_ENOENT, "no run %s; `gradpool runs` lists them", words[i]);
        else
            status = set_add(out, l.folders[line - 1], line, err);
    }
    gp_free(l.folders);
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
        { "network", run->network }, { "data", run->data },   { "state", run->state },
        { "folder", run->folder },   { "began", run->began }, { "note", run->note },
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
    if (run->note[0] != '\0')
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
