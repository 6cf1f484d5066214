/* Output of `gradpool sweep`. */
#include "client/cli/sweep/sweep_show.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "client/cli/show.h"
#include "client/cli/sweep/sweep_table.h"
#include "client/sweep/sweep_command.h"
#include "common/base/memory/alloc.h"
#include "common/base/text/json.h"

enum { TEXT = 400, VALUE_BYTES = SWEEP_VALUE_BYTES };

/* ---- texts ---- */

typedef struct joined {
    char *text;
    size_t bytes, used;
    const char *before, *between; /* before each name; between name and value */
    const char *after;            /* between two values */
} joined;

/* Append a name and its value. */
static gp_status join(void *context, const char *name, const gp_json *value, gp_error *err)
{
    joined *j = context;
    char number[32];
    const char *text = gp_json_text(value, NULL);

    (void)err;
    if (text == NULL && gp_json_is_bool(value))
        text = gp_json_bool(value, false) ? "true" : "false";
    if (text == NULL) {
        snprintf(number, sizeof(number), "%g", gp_json_number(value, NAN));
        text = number;
    }
    if (j->used < j->bytes)
        j->used += (size_t)snprintf(j->text + j->used, j->bytes - j->used, "%s%s%s%s%s",
                                    j->used > 0 ? j->after : "", j->before, name, j->between, text);
    return GP_OK;
}

/* Write the values of a trial as text: "lr 0.04, solver adam", or with `options` "--lr 0.04
 * --solver adam". */
static char *values_text(const sweep_trial *trial, char *text, size_t bytes, bool options)
{
    joined j = { .text = text,
                 .bytes = bytes,
                 .before = options ? "--" : "",
                 .between = " ",
                 .after = options ? " " : ", " };
    gp_json *json = NULL;

    text[0] = '\0';
    if (gp_json_parse(&json, trial->values, strlen(trial->values), NULL) == GP_OK)
        gp_json_each(json, join, &j, NULL);
    gp_json_free(json);
    return text;
}

/* Append the name of a parameter and its importance, a fraction of the variance. */
static gp_status join_part(void *context, const char *name, const gp_json *value, gp_error *err)
{
    joined *j = context;

    (void)err;
    if (j->used < j->bytes)
        j->used += (size_t)snprintf(j->text + j->used, j->bytes - j->used, "%s%s %.2f",
                                    j->used > 0 ? ", " : "", name, gp_json_number(value, NAN));
    return GP_OK;
}

/* Write the importance of the parameters as "lr 0.71, momentum 0.22". */
static char *parts_text(const char *importance, char *text, size_t bytes)
{
    joined j = { .text = text, .bytes = bytes };
    gp_json *json = NULL;

    text[0] = '\0';
    if (gp_json_parse(&json, importance, strlen(importance), NULL) == GP_OK)
        gp_json_each(json, join_part, &j, NULL);
    gp_json_free(json);
    return text;
}

/* ---- lines ---- */

void sweep_show_head(const sweep_folder *folder, const sweep_plan *plan)
{
    char trials[40], epochs[40];

    snprintf(trials, sizeof(trials), "%" PRIu32 " trials", plan->trials);
    printf("sweep in %s: %s, %s; the %s %s wins\n", folder->path,
           plan->method == GP_SEARCH_GRID && plan->trials == SWEEP_TRIALS_MAX ? "all combinations" : trials,
           sweep_method_word(plan->method), plan->minimize ? "lowest" : "highest", plan->objective);
    printf("parameters: %s\n", gp_buffer_text(&plan->space));
    snprintf(epochs, sizeof(epochs), " of %" PRIu32, plan->epochs_max);
    if (plan->asha_eta > 0)
        printf("early stopping after epoch %" PRIu32 ", %" PRIu32 ", ...%s: one of %" PRIu32 " continues\n",
               plan->epochs_min, plan->epochs_min * plan->asha_eta, sweep_plan_trains(plan) ? epochs : "",
               plan->asha_eta);
    fflush(stdout);
}

void sweep_show_end(const sweep *core, const sweep_plan *plan, uint32_t number)
{
    const sweep_trial *trial = sweep_find(core, number);
    char values[TEXT], value[VALUE_BYTES], line[3 * TEXT];

    if (trial->state < SWEEP_DONE)
        return;
    snprintf(line, sizeof(line), "trial %" PRIu32 ": %s%s, %s after %" PRIu32 " epoch%s: %s%s%s", number,
             sweep_state_word(trial->state), sweep_best(core) == number ? ", best so far" : "",
             sweep_objective_text(plan, trial->value, value), trial->epoch, trial->epoch == 1 ? "" : "s",
             values_text(trial, values, sizeof(values), false), trial->text != NULL ? ": " : "",
             trial->text != NULL ? trial->text : "");
    show_line(stdout, line);
    fflush(stdout);
}

/* ---- table ---- */

gp_status sweep_show_table(const sweep *core, const sweep_folder *folder, const sweep_plan *plan,
                           uint32_t rows, const char *sort, gp_error *err)
{
    sweep_table table = { .core = core, .plan = plan, .folder = folder, .rows = rows, .sort = sort };
    gp_space *space = NULL;
    gp_status status = sweep_points_space(&space, plan, err);

    table.space = space;
    if (status == GP_OK)
        status = sweep_table_check_sort(&table, err);
    if (status != GP_OK) {
        gp_space_free(space);
        return status;
    }
    show_table_print_free(sweep_table_new(&table));
    if (rows != 0 && sweep_count(core) > rows)
        printf("%" PRIu32 " more; `gradpool sweep show` lists all\n", sweep_count(core) - rows);
    gp_space_free(space);
    return GP_OK;
}

void sweep_show_summary(const sweep *core, const sweep_folder *folder, const sweep_plan *plan,
                        const char *importance)
{
    uint32_t counts[SWEEP_STATES] = { 0 }, best = sweep_best(core);
    char values[TEXT], value[VALUE_BYTES], path[SWEEP_PATH_MAX + 20];
    gp_buffer again;

    for (uint32_t i = 1; i <= sweep_count(core); i++)
        counts[sweep_find(core, i)->state]++;
    printf("%" PRIu32 " trial%s: %" PRIu32 " done, %" PRIu32 " stopped early, %" PRIu32 " failed, %" PRIu32
           " lost, %" PRIu32 " open\n",
           sweep_count(core), sweep_count(core) == 1 ? "" : "s", counts[SWEEP_DONE], counts[SWEEP_STOPPED],
           counts[SWEEP_FAILED], counts[SWEEP_LOST],
           counts[SWEEP_ASKED] + counts[SWEEP_SUBMITTED] + counts[SWEEP_RUNNING] + counts[SWEEP_STOPPING]);
    if (best == 0)
        return;
    printf("best: trial %" PRIu32 ": %s %s: %s\n", best, plan->objective,
           sweep_objective_text(plan, sweep_find(core, best)->value, value),
           values_text(sweep_find(core, best), values, sizeof(values), false));
    if (importance != NULL)
        printf("importance: %s\n", parts_text(importance, values, sizeof(values)));
    snprintf(path, sizeof(path), "%s/best.onnx", folder->path);
    if (access(path, R_OK) == 0)
        printf("model: %s\n", path);
    gp_buffer_init(&again, SIZE_MAX / 2);
    if (sweep_command_line(&again, plan, best, sweep_find(core, best)->values, NULL) == GP_OK)
        printf("again: %s\n", gp_buffer_text(&again));
    gp_buffer_deinit(&again);
}

gp_status sweep_show_json(const sweep *core, const sweep_folder *folder, const sweep_plan *plan,
                          const char *importance, gp_error *err)
{
    json_document json;
    gp_json_writer *writer = show_json_object(&json, true);
    gp_json *parts = NULL;

    gp_json_put_text(writer, "folder", folder->path);
    gp_json_put_text(writer, "objective", plan->objective);
    gp_json_put_bool(writer, "minimize", plan->minimize);
    gp_json_put_integer(writer, "best", sweep_best(core));
    if (importance != NULL)
        gp_json_parse(&parts, importance, strlen(importance), NULL);
    gp_json_put_value(writer, "importance", parts);
    gp_json_free(parts);
    gp_json_begin_array(writer, "trials");
    for (uint32_t i = 1; i <= sweep_count(core); i++) {
        const sweep_trial *trial = sweep_find(core, i);
        gp_json *values = NULL;

        gp_json_parse(&values, trial->values, strlen(trial->values), NULL);
        gp_json_one_line(writer);
        gp_json_begin_object(writer, NULL);
        gp_json_put_integer(writer, "trial", i);
        gp_json_put_text(writer, "state", sweep_state_word(trial->state));
        gp_json_put_integer(writer, "epochs", trial->epoch);
        gp_json_put_number(writer, "value", trial->value);
        gp_json_put_number(writer, "seconds", sweep_trial_seconds(folder, i));
        gp_json_put_integer(writer, "attempts", trial->attempt);
        gp_json_put_text(writer, "how", trial->how);
        if (trial->of > 0)
            gp_json_put_integer(writer, "of", trial->of);
        if (trial->repeat > 0)
            gp_json_put_integer(writer, "repeat", trial->repeat);
        gp_json_put_text(writer, "text", trial->text != NULL ? trial->text : "");
        gp_json_put_value(writer, "values", values);
        gp_json_end_object(writer);
        gp_json_free(values);
    }
    gp_json_end_array(writer);
    return show_json_print(&json, err);
}
