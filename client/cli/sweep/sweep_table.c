/* Trials of a sweep as a table; sweep_table.h describes the interface. */
#include "client/cli/sweep/sweep_table.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "client/cli/cli.h"
#include "client/runs/run_reader.h"
#include "common/base/memory/alloc.h"

/* PARAMETERS_MAX: parameters with a column of their own. */
enum { PARAMETERS_MAX = 8, TEXT = 400, TIME_BYTES = 40 };

char *sweep_objective_text(const sweep_plan *plan, double value, char text[SWEEP_VALUE_BYTES])
{
    if (isnan(value))
        snprintf(text, SWEEP_VALUE_BYTES, "-");
    else if (strstr(plan->objective, "accuracy") != NULL)
        snprintf(text, SWEEP_VALUE_BYTES, "%.2f %%", 100 * value);
    else
        snprintf(text, SWEEP_VALUE_BYTES, "%.4g", value);
    return text;
}

double sweep_trial_seconds(const sweep_folder *folder, uint32_t trial)
{
    char path[SWEEP_PATH_MAX + 100];
    double seconds;
    gp_json *end;

    sweep_folder_trial(folder, trial, NULL, path);
    end = run_document_read(path, "end.json");
    seconds = gp_json_number(gp_json_member(end, "seconds"), NAN);
    gp_json_free(end);
    return seconds;
}

/* ---- order ---- */

typedef struct order {
    uint32_t trial;
    int group;
    double cost; /* smaller is better; NaN: none */
} order;

static int compare(const void *a, const void *b)
{
    const order *x = a, *y = b;

    if (x->group != y->group)
        return x->group < y->group ? -1 : 1;
    if (isnan(x->cost) != isnan(y->cost))
        return isnan(x->cost) ? 1 : -1;
    if (!isnan(x->cost) && x->cost != y->cost)
        return x->cost < y->cost ? -1 : 1;
    return x->trial < y->trial ? -1 : 1;
}

uint32_t *sweep_table_order(const sweep *core, const sweep_plan *plan, bool running_first)
{
    static const int groups[2][SWEEP_STATES] = {
        { [SWEEP_DONE] = 0,
          [SWEEP_STOPPED] = 1,
          [SWEEP_RUNNING] = 2,
          [SWEEP_STOPPING] = 2,
          [SWEEP_FAILED] = 3,
          [SWEEP_LOST] = 3,
          [SWEEP_SUBMITTED] = 4,
          [SWEEP_ASKED] = 4 },
        { [SWEEP_RUNNING] = 0,
          [SWEEP_STOPPING] = 0,
          [SWEEP_DONE] = 1,
          [SWEEP_STOPPED] = 2,
          [SWEEP_FAILED] = 3,
          [SWEEP_LOST] = 3,
          [SWEEP_SUBMITTED] = 4,
          [SWEEP_ASKED] = 4 },
    };
    const uint32_t count = sweep_count(core);
    order *orders = gp_calloc(count + 1, sizeof(*orders));
    uint32_t *trials = gp_calloc(count + 1, sizeof(*trials));

    for (uint32_t i = 0; orders != NULL && i < count; i++) {
        const sweep_trial *trial = sweep_find(core, i + 1);

        orders[i] = (order){ i + 1, groups[running_first][trial->state],
                             plan->minimize ? trial->value : -trial->value };
    }
    if (orders != NULL)
        qsort(orders, count, sizeof(*orders), compare);
    for (uint32_t i = 0; orders != NULL && trials != NULL && i < count; i++)
        trials[i] = orders[i].trial;
    if (orders == NULL) {
        gp_free(trials);
        trials = NULL;
    }
    gp_free(orders);
    return trials;
}

/* ---- rows ---- */

/* Append the values of a trial as one cell: "lr 0.04, solver adam". */
static void add_values(show_table *table, const sweep_point *point, const gp_space *space)
{
    char text[TEXT] = "", number[32];
    size_t used = 0;

    for (uint32_t i = 0; i < space->count && used < sizeof(text); i++)
        if (point->applies[i])
            used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%s %s", used > 0 ? ", " : "",
                                     space->parameters[i].name, sweep_point_text(point, space, i, number));
    show_cells(table, "%s", text);
}

static void add_row(show_table *table, const sweep_table *t, uint32_t number)
{
    const sweep_trial *trial = sweep_find(t->core, number);
    const double seconds =
        t->folder != NULL ? sweep_trial_seconds(t->folder, number) : t->seconds[number - 1];
    char value[SWEEP_VALUE_BYTES], time[TIME_BYTES] = "", text[32];
    sweep_point point = { 0 };

    if (!isnan(seconds))
        cli_duration(seconds, time, sizeof(time));
    show_cells(table, "%" PRIu32 "\t%s\t%" PRIu32 "\t%s\t%s%s", number,
               sweep_objective_text(t->plan, trial->value, value), trial->epoch, time,
               sweep_state_word(trial->state), number == sweep_best(t->core) ? ", best" : "");
    sweep_point_read(&point, t->space, trial->values, NULL);
    if (t->space->count > PARAMETERS_MAX)
        add_values(table, &point, t->space);
    for (uint32_t i = 0; i < t->space->count && t->space->count <= PARAMETERS_MAX; i++)
        show_cells(table, "%s", sweep_point_text(&point, t->space, i, text));
    show_cells(table, "%s", trial->text != NULL ? trial->text : "");
}

show_table *sweep_table_new(const sweep_table *t)
{
    const uint32_t count = sweep_count(t->core),
                   parameters = t->space->count <= PARAMETERS_MAX ? t->space->count : 1;
    uint32_t *trials = count > 0 ? sweep_table_order(t->core, t->plan, t->running_first) : NULL;
    show_table *table;
    char titles[120];

    if (trials == NULL)
        return NULL;
    snprintf(titles, sizeof(titles), "trial\t%s\tepochs\ttime\tstate", t->plan->objective);
    table = show_table_new(6 + parameters, titles);
    for (uint32_t i = 0; i < parameters; i++)
        show_cells(table, "%s", t->space->count <= PARAMETERS_MAX ? t->space->parameters[i].name : "values");
    show_cells(table, "%s", "");
    for (uint32_t i = 0; i < count && (t->rows == 0 || i < t->rows); i++)
        add_row(table, t, trials[i]);
    gp_free(trials);
    return table;
}
