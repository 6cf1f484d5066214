/* `gradpool runs` and `gradpool runs list`: a table of runs. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "client/cli/runs/runs_verbs.h"
#include "client/cli/show.h"
#include "common/base/text/text.h"
#include "common/model/train_options.h"

/* ---- --where ---- */

/* A condition: NAME, operator, value. */
typedef struct condition {
    char name[80], value[200];
    enum { EQUAL, UNEQUAL, LESS, AT_MOST, MORE, AT_LEAST } operator;
} condition;

/* Return a value as a number: "0.9", "90%" or "90 %". NaN: it is a text. */
static double number_of(const char *text)
{
    char *end;
    const double number = strtod(text, &end);
    const char *unit = end + strspn(end, " ");

    if (end != text && strcmp(unit, "%") == 0)
        return number / 100;
    return end != text && *end == '\0' ? number : NAN;
}

/* Check the value of a condition. A column of numbers cannot be compared with a text, such as
 * "0,9"; NAME= and NAME!= ask whether a run has the number. */
static gp_status condition_check(const condition *c, gp_error *err)
{
    const bool asks_whether = c->value[0] == '\0' && (c->operator== EQUAL || c->operator== UNEQUAL);

    return !runs_is_number(c->name) || asks_whether || !isnan(number_of(c->value))
               ? GP_OK
               : gp_fail(err, GP_EINVAL,
                         "--where: %s is a number, and '%s' is not; write it with a decimal point, such as "
                         "0.9 or 90%%",
                         c->name, c->value);
}

/* Parse "NAME=VALUE", or with !=, <, <=, > or >=. */
static gp_status condition_parse(condition *out, const char *text, size_t bytes, gp_error *err)
{
    static const struct {
        const char *text;
        int operator;
    } operators[] = { { "!=", UNEQUAL }, { "<=", AT_MOST }, { ">=", AT_LEAST },
                      { "=", EQUAL },    { "<", LESS },     { ">", MORE } };
    const size_t name = strcspn(text, "!<>=");
    run_summary none = { 0 };
    char value[40];
    double number;

    for (size_t i = 0; i < sizeof(operators) / sizeof(operators[0]) && name > 0 && name < bytes; i++) {
        const size_t length = strlen(operators[i].text);

        if (strncmp(text + name, operators[i].text, length) != 0)
            continue;
        if (name >= sizeof(out->name) || bytes - name - length >= sizeof(out->value))
            return gp_fail(err, GP_ELIMIT, "--where: the condition is longer than %zu characters",
                           sizeof(out->value) - 1);
        snprintf(out->name, sizeof(out->name), "%.*s", (int)name, text);
        snprintf(out->value, sizeof(out->value), "%.*s", (int)(bytes - name - length), text + name + length);
        out->operator= operators[i].operator;
        if (!runs_value(&none, out->name, value, sizeof(value), &number))
            return gp_fail(
                err, GP_EINVAL,
                "--where: runs have no '%s'; use a column of --csv or an option of `gradpool options`",
                out->name);
        return condition_check(out, err);
    }
    return gp_fail(err, GP_EINVAL,
                   "--where is '%.*s'; it must be NAME=VALUE, or with !=, <, <=, > or >=", (int)bytes, text);
}

/* Compare as numbers if both values are numbers, else as texts. */
static bool condition_holds(const condition *c, const run_summary *run)
{
    char text[RUNS_VALUE_BYTES];
    double number, wanted = number_of(c->value);
    int order;

    runs_value(run, c->name, text, sizeof(text), &number);
    if (isnan(wanted) || isnan(number))
        order = strcmp(text, c->value);
    else
        order = number < wanted ? -1 : number > wanted;
    switch (c->operator) {
    case EQUAL:
        return order == 0;
    case UNEQUAL:
        return order != 0;
    case LESS:
        return text[0] != '\0' && order < 0;
    case AT_MOST:
        return text[0] != '\0' && order <= 0;
    case MORE:
        return text[0] != '\0' && order > 0;
    default:
        return text[0] != '\0' && order >= 0;
    }
}

/* Remove the runs that do not meet all conditions. */
static gp_status filter(runs_set *set, const char *where, gp_error *err)
{
    while (*where != '\0') {
        const size_t bytes = strcspn(where, "\n");
        condition c;
        size_t kept = 0;
        gp_status status = condition_parse(&c, where, bytes, err);

        if (status != GP_OK)
            return status;
        for (size_t i = 0; i < set->count; i++)
            if (condition_holds(&c, &set->runs[i]))
                set->runs[kept++] = set->runs[i];
            else
                run_summary_deinit(&set->runs[i]);
        set->count = kept;
        where += bytes + (where[bytes] == '\n');
    }
    return GP_OK;
}

/* ---- --sort ---- */

static struct {
    const char *name;
    bool descending;
} order;

/* Compare two runs; a run without the value comes last. */
static int by_value(const void *a, const void *b)
{
    char texts[2][RUNS_VALUE_BYTES];
    double numbers[2];
    int result;

    runs_value(a, order.name, texts[0], sizeof(texts[0]), &numbers[0]);
    runs_value(b, order.name, texts[1], sizeof(texts[1]), &numbers[1]);
    if (texts[0][0] == '\0' || texts[1][0] == '\0')
        return (texts[0][0] == '\0') - (texts[1][0] == '\0');
    if (isnan(numbers[0]) != isnan(numbers[1])) /* numbers before texts */
        return isnan(numbers[0]) ? 1 : -1;
    if (!isnan(numbers[0]))
        result = numbers[0] < numbers[1] ? -1 : numbers[0] > numbers[1];
    else
        result = strcmp(texts[0], texts[1]);
    return order.descending ? -result : result;
}

/* Sort by a column or option: accuracy and speed with the largest value first, others with the
 * smallest. A leading '-' reverses the order. */
static gp_status sort(runs_set *set, const char *name, gp_error *err)
{
    const bool reversed = name[0] == '-';
    run_summary none = { 0 };
    char text[40];
    double number;

    order.name = name + reversed;
    order.descending = strcmp(order.name, "accuracy") == 0 || strcmp(order.name, "images-per-second") == 0;
    order.descending ^= reversed;
    if (!runs_value(&none, order.name, text, sizeof(text), &number))
        return gp_fail(err, GP_EINVAL,
                       "--sort: runs have no '%s'; use a column of --csv or an option of `gradpool options`",
                       order.name);
    if (set->count > 0)
        qsort(set->runs, set->count, sizeof(set->runs[0]), by_value);
    return GP_OK;
}

/* ---- output ---- */

/* Format the start: "18:12 today", "Nov 21 17:40". */
static void format_when(const char *began, char text[40])
{
    struct tm utc = { 0 }, local, today;
    time_t then, now = time(NULL);

    snprintf(text, 40, "-");
    if (strptime(began, "%Y-%m-%dT%H:%M:%S", &utc) == NULL)
        return;
    then = timegm(&utc);
    localtime_r(&then, &local);
    localtime_r(&now, &today);
    strftime(text, 40,
             local.tm_year == today.tm_year && local.tm_yday == today.tm_yday ? "%H:%M today"
             : local.tm_year == today.tm_year                                 ? "%b %e %H:%M"
                                                                              : "%Y-%m-%d",
             &local);
}

/* Format a number, or "-" if it is NaN. */
static const char *or_dash(char text[24], const char *format, double number)
{
    snprintf(text, 24, isnan(number) ? "-" : format, number);
    return text;
}

static void show_run(show_table *table, const run_summary *run)
{
    char when[40], number[24] = "-", epochs[48], accuracy[24], loss[24], seconds[40] = "-";

    format_when(run->began, when);
    if (run->number != 0)
        snprintf(number, sizeof(number), "%" PRIu64, run->number);
    snprintf(epochs, sizeof(epochs), run->epochs < run->max_epochs ? "%" PRId64 " / %" PRId64 : "%" PRId64,
             run->epochs, run->max_epochs);
    if (run->seconds > 0)
        cli_duration(run->seconds, seconds, sizeof(seconds));
    show_cells(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%" PRId64 "\t%s\t%s", number, when, run->network,
               run->data, run->state, epochs, or_dash(accuracy, "%.2f %%", run->accuracy * 100),
               or_dash(loss, "%.4f", isnan(run->validation_loss) ? run->loss : run->validation_loss), seconds,
               run->workers, run->folder, run->note != NULL ? run->note : run->reason);
}

static void show_runs(const runs_set *set)
{
    show_table *table = show_table_new(
        12, "run\twhen\tnetwork\tdata\tstate\tepochs\taccuracy\tloss\tfor\tworkers\tfolder\tnote");

    for (size_t i = 0; i < set->count; i++)
        show_run(table, &set->runs[i]);
    if (set->count > 0)
        show_table_print_free(table);
    else
        show_table_free(table);
}

/* Print all columns as CSV: those of a run, and the training options that any run has. Numbers have
 * all their digits. */
static void print_csv(const runs_set *set)
{
    static const char *const columns[] = {
        "run",  "began",   "network",           "data",    "state",  "epochs", "steps", "accuracy", "loss",
        "rmse", "seconds", "images-per-second", "workers", "folder", "note",
    };
    const size_t count = sizeof(columns) / sizeof(columns[0]);

    for (size_t c = 0; c < count; c++)
        printf("%s%s", c == 0 ? "" : ",", columns[c]);
    for (const gp_param *param = gp_train_options_table; param->type != GP_PARAM_NONE; param++)
        printf(",%s", param->name);
    printf("\n");
    for (size_t i = 0; i < set->count; i++) {
        char text[RUNS_VALUE_BYTES];
        double number;

        for (size_t c = 0; c < count; c++) {
            char digits[GP_NUMBER_BYTES];

            runs_value(&set->runs[i], columns[c], text, sizeof(text), &number);
            if (c > 0)
                putchar(',');
            show_csv_field(stdout, isnan(number) ? text : gp_digits_text(number, digits));
        }
        for (const gp_param *param = gp_train_options_table; param->type != GP_PARAM_NONE; param++) {
            runs_value(&set->runs[i], param->name, text, sizeof(text), &number);
            putchar(',');
            show_csv_field(stdout, text);
        }
        printf("\n");
    }
}

static gp_status print_json(const runs_set *set, gp_error *err)
{
    json_document json;
    gp_json_writer *writer = show_json_array(&json);

    for (size_t i = 0; i < set->count; i++)
        runs_put(writer, &set->runs[i]);
    return show_json_print(&json, err);
}

gp_status runs_list(cli_call *call, gp_error *err)
{
    const runs_options *options = call->options;
    runs_set set;
    gp_status status = call->word_count > 1
                           ? runs_find(&set, call, call->words + 1, call->word_count - 1, err)
                           : runs_of_index(&set, call, err);

    if (status != GP_OK)
        return status;
    status = filter(&set, options->where, err);
    if (status == GP_OK && options->sort[0] != '\0')
        status = sort(&set, options->sort, err);
    if (status != GP_OK) {
        runs_set_free(&set);
        return status;
    }
    if (!options->all && call->word_count <= 1)
        while (set.count > RUNS_SHOWN)
            run_summary_deinit(&set.runs[--set.count]);
    if (options->common.json)
        status = print_json(&set, err);
    else if (options->csv)
        print_csv(&set);
    else if (set.count > 0)
        show_runs(&set);
    else
        printf("no runs\n");
    runs_set_free(&set);
    return status;
}
