/* `gradpool runs compare` and `gradpool runs note`. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "client/cli/runs/runs_verbs.h"
#include "client/cli/show.h"
#include "client/predict/plot.h"
#include "common/base/memory/alloc.h"
#include "common/base/printable.h"
#include "common/model/train_options.h"

/* COLUMNS_MAX: runs side by side in a table; more runs become rows. */
enum { COLUMNS_MAX = 8, CELL_BYTES = 100, POINTS_MAX = PLOT_COLOURS };

/* Values of one line for each run. */
typedef char cells[RUNS_COMPARED_MAX][CELL_BYTES];

/* Copy a value to a cell. Of a long value, such as a path, the end is kept. */
static void set_cell(char cell[CELL_BYTES], const char *value)
{
    const size_t bytes = strlen(value), room = CELL_BYTES - sizeof("...");

    if (bytes < CELL_BYTES) {
        snprintf(cell, CELL_BYTES, "%s", value[0] != '\0' ? value : "-");
        return;
    }
    value += bytes - room;
    while (((unsigned char)*value & 0xc0) == 0x80) /* within a character */
        value++;
    snprintf(cell, CELL_BYTES, "...%s", value);
}

/* Fill in the value of a column or option for each run. true: the runs differ. */
static bool fill(cells out, const runs_set *set, const char *name)
{
    char first[RUNS_VALUE_BYTES], value[RUNS_VALUE_BYTES];
    bool differ = false;

    for (size_t i = 0; i < set->count; i++) {
        double number;

        runs_value(&set->runs[i], name, value, sizeof(value), &number);
        if (i == 0)
            strcpy(first, value);
        differ |= strcmp(value, first) != 0;
        set_cell(out[i], value);
    }
    return differ;
}

/* A comparison: lines of the output in order, each with one value for each run. */
typedef struct comparison {
    const runs_set *set;
    char (*titles)[80];
    cells *lines;
    size_t count;
} comparison;

/* Append a line. */
static gp_status add_line(comparison *c, const char *title, cells values, gp_error *err)
{
    cells *lines = gp_array_grow(c->lines, c->count, sizeof(*lines));
    char(*titles)[80] = lines == NULL ? NULL : gp_array_grow(c->titles, c->count, sizeof(*titles));

    if (lines != NULL)
        c->lines = lines;
    if (titles == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory to compare %zu runs", c->set->count);
    c->titles = titles;
    snprintf(c->titles[c->count], sizeof(c->titles[0]), "%s", title);
    memcpy(c->lines[c->count++], values, sizeof(cells));
    return GP_OK;
}

/* Add network, data and all training options whose values differ. Paths and ids of the run itself
 * are not compared. */
static gp_status add_options(comparison *c, cells values, gp_error *err)
{
    static const char *const first[] = { "network", "data", "workers" };
    static const char *const own[] = { "checkpoint-path", "resume", "run-id", "verbose-frequency" };
    gp_status status = GP_OK;

    for (size_t i = 0; i < 3 && status == GP_OK; i++)
        if (fill(values, c->set, first[i]))
            status = add_line(c, first[i], values, err);
    for (const gp_param *param = gp_train_options_table; param->type != GP_PARAM_NONE && status == GP_OK;
         param++) {
        bool skip = false;

        for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++)
            skip |= strcmp(param->name, own[i]) == 0;
        if (!skip && fill(values, c->set, param->name))
            status = add_line(c, param->name, values, err);
    }
    return status;
}

/* Return a round accuracy that most runs reach: the highest multiple of 5 % that the second best
 * run reaches. NaN: fewer than two runs have an accuracy. */
static double round_accuracy(const runs_set *set)
{
    double best = NAN, second = NAN;

    for (size_t i = 0; i < set->count; i++) {
        const double accuracy = set->runs[i].accuracy;

        if (isnan(accuracy))
            continue;
        if (isnan(best) || accuracy > best) {
            second = best;
            best = accuracy;
        } else if (isnan(second) || accuracy > second) {
            second = accuracy;
        }
    }
    return floor(second * 20) / 20;
}

/* Add a line with the epochs that each run needed for a round accuracy. */
static gp_status add_epochs(comparison *c, cells values, gp_error *err)
{
    const double goal = round_accuracy(c->set);
    char title[40];
    gp_status status = GP_OK;

    if (isnan(goal) || goal <= 0)
        return GP_OK;
    for (size_t i = 0; i < c->set->count && status == GP_OK; i++) {
        run_point *points;
        size_t count;

        status = run_points_read(&points, &count, c->set->runs[i].folder, err);
        strcpy(values[i], "-");
        for (size_t p = count; p > 0; p--)
            if (points[p - 1].accuracy >= goal)
                snprintf(values[i], CELL_BYTES, "%" PRIu32, points[p - 1].epoch);
        gp_free(points);
    }
    snprintf(title, sizeof(title), "epochs to %.0f %%", goal * 100);
    return status == GP_OK ? add_line(c, title, values, err) : status;
}

/* Add the results. */
static gp_status add_results(comparison *c, cells values, gp_error *err)
{
    static const char *const results[] = { "state", "epochs",  "accuracy",         "loss",
                                           "rmse",  "seconds", "images-per-second" };
    gp_status status = GP_OK;

    for (size_t i = 0; i < sizeof(results) / sizeof(results[0]) && status == GP_OK; i++) {
        bool any = false;

        fill(values, c->set, results[i]);
        for (size_t k = 0; k < c->set->count; k++)
            any |= strcmp(values[k], "-") != 0;
        if (any)
            status = add_line(c, results[i], values, err);
    }
    return status == GP_OK ? add_epochs(c, values, err) : status;
}

/* Return the name of a run in the output: its number, else the end of its folder. */
static const char *name_of(const run_summary *run, char text[CELL_BYTES])
{
    const char *slash = strrchr(run->folder, '/');

    if (run->number != 0)
        snprintf(text, CELL_BYTES, "%" PRIu64, run->number);
    else
        snprintf(text, CELL_BYTES, "%.*s", CELL_BYTES - 1, slash != NULL ? slash + 1 : run->folder);
    return text;
}

/* Print one column for each run, or with many runs one row for each. */
static void print_table(const comparison *c)
{
    const bool columns = c->set->count <= COLUMNS_MAX;
    const size_t across = columns ? c->set->count : c->count, down = columns ? c->count : c->set->count;
    show_table *table = show_table_new((uint32_t)across + 1, columns ? "" : "run");
    char text[CELL_BYTES];

    for (size_t i = 0; i < across; i++)
        show_cells(table, "%s", columns ? name_of(&c->set->runs[i], text) : c->titles[i]);
    for (size_t row = 0; row < down; row++) {
        show_cells(table, "%s", columns ? c->titles[row] : name_of(&c->set->runs[row], text));
        for (size_t i = 0; i < across; i++)
            show_cells(table, "%s", columns ? c->lines[row][i] : c->lines[i][row]);
    }
    show_table_print_free(table);
}

static gp_status print_json(const comparison *c, gp_error *err)
{
    json_document json;
    gp_json_writer *writer = show_json_object(&json, true);

    gp_json_begin_array(writer, "runs");
    for (size_t i = 0; i < c->set->count; i++)
        runs_put(writer, &c->set->runs[i]);
    gp_json_end_array(writer);
    gp_json_begin_object(writer, "compared");
    for (size_t line = 0; line < c->count; line++) {
        gp_json_begin_array(writer, c->titles[line]);
        for (size_t i = 0; i < c->set->count; i++)
            gp_json_put_text(writer, NULL, c->lines[line][i]);
        gp_json_end_array(writer);
    }
    gp_json_end_object(writer);
    return show_json_print(&json, err);
}

/* Draw the validation curves of the first runs. */
static gp_status draw(const runs_set *set, const char *path, gp_error *err)
{
    const size_t count = set->count < POINTS_MAX ? set->count : POINTS_MAX;
    char names[POINTS_MAX][CELL_BYTES];
    double *x[POINTS_MAX] = { 0 }, *y[POINTS_MAX] = { 0 };
    plot_series series[POINTS_MAX] = { 0 };
    plot *picture = plot_new(900, 560);
    bool accuracy = true;
    gp_status status = picture != NULL ? GP_OK : gp_fail(err, GP_ENOMEM, "no memory for a picture");

    for (size_t i = 0; i < count; i++)
        accuracy &= !isnan(set->runs[i].accuracy);
    for (size_t i = 0; i < count && status == GP_OK; i++) {
        run_point *points;
        size_t n;

        status = run_points_read(&points, &n, set->runs[i].folder, err);
        x[i] = gp_calloc(n + 1, sizeof(double));
        y[i] = gp_calloc(n + 1, sizeof(double));
        if (status == GP_OK && (x[i] == NULL || y[i] == NULL))
            status = gp_fail(err, GP_ENOMEM, "no memory for a picture");
        for (size_t p = 0; p < n && status == GP_OK; p++) {
            x[i][p] = points[p].epoch;
            y[i][p] = accuracy ? points[p].accuracy : points[p].loss;
        }
        series[i] =
            (plot_series){ .name = name_of(&set->runs[i], names[i]), .x = x[i], .y = y[i], .count = n };
        gp_free(points);
    }
    if (status == GP_OK) {
        plot_lines(picture, (plot_area){ 0, 0, 900, 560 },
                   &(plot_names){ accuracy ? "validation accuracy" : "validation loss", "epoch", "" }, series,
                   count);
        status = plot_write(picture, path, err);
    }
    for (size_t i = 0; i < count; i++) {
        gp_free(x[i]);
        gp_free(y[i]);
    }
    plot_free(picture);
    return status;
}

gp_status runs_compare(cli_call *call, gp_error *err)
{
    const runs_options *options = call->options;
    comparison c = { 0 };
    runs_set set = { 0 };
    cells *values = gp_calloc(1, sizeof(*values));
    gp_status status = values != NULL ? GP_OK : gp_fail(err, GP_ENOMEM, "no memory to compare runs");

    if (status == GP_OK)
        status = runs_find(&set, call, call->words + 1, call->word_count - 1, err);
    c.set = &set;
    if (status == GP_OK)
        status = add_options(&c, *values, err);
    if (status == GP_OK)
        status = add_results(&c, *values, err);
    if (status == GP_OK && options->common.json)
        status = print_json(&c, err);
    else if (status == GP_OK)
        print_table(&c);
    if (status == GP_OK && options->plot[0] != '\0')
        status = draw(&set, options->plot, err);
    gp_free(values);
    gp_free(c.lines);
    gp_free(c.titles);
    runs_set_free(&set);
    return status;
}

gp_status runs_note(cli_call *call, gp_error *err)
{
    runs_set set;
    gp_status status = gp_printable_check("note", call->words[2], err);

    if (status != GP_OK)
        return status;
    status = runs_find(&set, call, call->words + 1, 1, err);
    if (status == GP_OK)
        status = run_note_write(set.runs[0].folder, call->words[2], err);
    runs_set_free(&set);
    return status;
}
