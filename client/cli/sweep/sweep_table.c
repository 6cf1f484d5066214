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
    run_document_read(&end, path, "end.json", NULL);
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

/* Return the numbers of all trials, the best first; free it with gp_free(). NULL: no memory. */
static uint32_t *order_of(const sweep *core, const sweep_plan *plan, bool running_first)
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

/* ---- --sort ---- */

/* Value of a trial in a column. */
typedef struct sort_key {
    uint32_t trial;
    double number;    /* NaN: a text */
    const char *text; /* NULL: no value */
    bool descending;
} sort_key;

static int compare_keys(const void *a, const void *b)
{
    const sort_key *x = a, *y = b;
    int result;

    if (x->text == NULL || y->text == NULL || isnan(x->number) != isnan(y->number))
        result = x->text == NULL || y->text == NULL ? (x->text == NULL) - (y->text == NULL)
                                                    : isnan(x->number) - isnan(y->number);
    else if (isnan(x->number))
        result = x->descending ? strcmp(y->text, x->text) : strcmp(x->text, y->text);
    else
        result = x->descending ? (x->number < y->number) - (x->number > y->number)
                               : (x->number > y->number) - (x->number < y->number);
    return result != 0 ? result : (x->trial > y->trial) - (x->trial < y->trial);
}

static double seconds_of(const sweep_table *t, uint32_t trial)
{
    return t->folder != NULL ? sweep_trial_seconds(t->folder, trial) : t->seconds[trial - 1];
}

/* Get the value of a trial in a column. false: no such column. */
static bool get_key(const sweep_table *t, uint32_t number, const char *column, sort_key *key)
{
    const sweep_trial *trial = sweep_find(t->core, number);
    sweep_point point = { 0 };

    *key = (sort_key){ .trial = number, .number = NAN };
    if (strcmp(column, "trial") == 0)
        key->number = number;
    else if (strcmp(column, "epochs") == 0)
        key->number = trial != NULL ? trial->epoch : 0;
    else if (strcmp(column, "time") == 0)
        key->number = trial != NULL ? seconds_of(t, number) : 0;
    else if (strcmp(column, t->plan->objective) == 0)
        key->number = trial != NULL ? trial->value : 0;
    else
        for (uint32_t i = 0; i < t->space->count; i++) {
            const gp_space_parameter *p = &t->space->parameters[i];

            if (strcmp(column, p->name) != 0)
                continue;
            if (trial == NULL || sweep_point_read(&point, t->space, trial->values, NULL) != GP_OK ||
                !point.applies[i])
                return true;
            key->text = p->kind == GP_SPACE_LIST ? p->values[(uint32_t)point.value[i]].text : "";
            if (p->kind != GP_SPACE_LIST)
                key->number = point.value[i];
            else if (!p->values[(uint32_t)point.value[i]].is_text)
                key->number = p->values[(uint32_t)point.value[i]].number;
            return true;
        }
    if (!isnan(key->number))
        key->text = "";
    return !isnan(key->number) || strcmp(column, "time") == 0 || strcmp(column, t->plan->objective) == 0;
}

gp_status sweep_table_check_sort(const sweep_table *t, gp_error *err)
{
    const char *column = t->sort != NULL && t->sort[0] == '-' ? t->sort + 1 : t->sort;
    sort_key ignored;

    if (column == NULL || t->sort[0] == '\0' || get_key(t, 0, column, &ignored))
        return GP_OK;
    return gp_fail(err, GP_EINVAL,
                   "--sort: trials have no '%s'; use trial, epochs, time, %s or the name of a parameter",
                   column, t->plan->objective);
}

/* Sort trials by a column: the objective with the best value first, others with the smallest, and
 * trials without a value last. */
static void sort_trials(const sweep_table *t, uint32_t *trials)
{
    const uint32_t count = sweep_count(t->core);
    const bool reversed = t->sort[0] == '-';
    const char *column = t->sort + reversed;
    sort_key *keys = gp_calloc(count, sizeof(*keys));

    if (keys == NULL)
        return;
    for (uint32_t i = 0; i < count; i++) {
        get_key(t, i + 1, column, &keys[i]);
        keys[i].descending = (strcmp(column, t->plan->objective) == 0 && !t->plan->minimize) != reversed;
    }
    qsort(keys, count, sizeof(*keys), compare_keys);
    for (uint32_t i = 0; i < count; i++)
        trials[i] = keys[i].trial;
    gp_free(keys);
}

/* ---- rows ---- */

/* Append the values of a trial as one cell: "lr 0.04, solver adam". */
static void add_values(show_table *table, const sweep_point *point, const gp_space *space)
{
    char text[TEXT] = "", number[GP_NUMBER_BYTES];
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
    const double seconds = seconds_of(t, number);
    char value[SWEEP_VALUE_BYTES], time[TIME_BYTES] = "", text[GP_NUMBER_BYTES];
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
    uint32_t *trials = count > 0 ? order_of(t->core, t->plan, t->running_first) : NULL;
    show_table *table;
    char titles[120];

    if (trials == NULL)
        return NULL;
    if (t->sort != NULL && t->sort[0] != '\0')
        sort_trials(t, trials);
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
