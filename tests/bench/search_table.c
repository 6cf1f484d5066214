/* Table of trainings; search_table.h describes the interface. */
#include "tests/bench/search_table.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/memory/alloc.h"
#include "common/base/text/json.h"

enum { COLUMNS_MAX = 16, ROWS_MAX = 1000, CELL_BYTES = 24, LINE_BYTES = 400, SPACE_BYTES = 4000 };

struct search_table {
    char names[COLUMNS_MAX][CELL_BYTES];
    char cells[ROWS_MAX][COLUMNS_MAX][CELL_BYTES];
    int options, rows; /* the last TABLE_SEEDS columns are accuracies */
    char space[SPACE_BYTES];
};

static void fail(const char *path, const char *why)
{
    fprintf(stderr, "%s: %s\n", path, why);
    exit(1);
}

/* Split a line into cells and return the count. */
static int split(char (*cells)[CELL_BYTES], char *line)
{
    int count = 0;

    line[strcspn(line, "\n")] = '\0';
    for (char *cell; count < COLUMNS_MAX && (cell = strsep(&line, ",")) != NULL; count++)
        snprintf(cells[count], CELL_BYTES, "%s", cell);
    return count;
}

/* Append the different values of an option to the space. */
static void add_list(search_table *table, int option)
{
    char *at = table->space + strlen(table->space);
    char *const end = table->space + sizeof(table->space);

    at += snprintf(at, (size_t)(end - at), "%s%s=", option > 0 ? " " : "", table->names[option]);
    for (int row = 0; row < table->rows; row++) {
        bool seen = false;

        for (int before = 0; before < row; before++)
            seen |= strcmp(table->cells[before][option], table->cells[row][option]) == 0;
        if (!seen)
            at += snprintf(at, (size_t)(end - at), "%s%s", row > 0 ? "," : "", table->cells[row][option]);
    }
}

search_table *search_table_read(const char *path)
{
    search_table *table = gp_calloc(1, sizeof(*table));
    char line[LINE_BYTES];
    FILE *file = fopen(path, "r");

    if (table == NULL || file == NULL || fgets(line, sizeof(line), file) == NULL)
        fail(path, "cannot be read");
    table->options = split(table->names, line) - TABLE_SEEDS;
    while (table->rows < ROWS_MAX && fgets(line, sizeof(line), file) != NULL)
        if (split(table->cells[table->rows++], line) != table->options + TABLE_SEEDS)
            fail(path, "a line has another number of columns than the first one");
    fclose(file);
    for (int i = 0; i < table->options; i++)
        add_list(table, i);
    return table;
}

void search_table_free(search_table *table)
{
    gp_free(table);
}

const char *search_table_space(const search_table *table)
{
    return table->space;
}

static double cell_number(const char *cell)
{
    return cell[0] == '\0' ? NAN : strtod(cell, NULL);
}

/* Return whether a cell has the value of a member. */
static bool cell_matches(const char *cell, const gp_json *value)
{
    return gp_json_is_number(value) ? strtod(cell, NULL) == gp_json_number(value, NAN)
                                    : strcmp(cell, gp_json_text(value, "")) == 0;
}

double search_table_value(const search_table *table, const char *values, int seed)
{
    gp_json *json = NULL;
    double value = NAN;
    bool found = false;

    if (gp_json_parse(&json, values, strlen(values), NULL) != GP_OK)
        fail(values, "malformed");
    for (int row = 0; row < table->rows && !found; row++) {
        found = true;
        for (int i = 0; i < table->options; i++)
            found &= cell_matches(table->cells[row][i], gp_json_member(json, table->names[i]));
        if (found)
            value = cell_number(table->cells[row][table->options + seed]);
    }
    gp_json_free(json);
    if (!found)
        fail(values, "not in the table");
    return value;
}

double search_table_best(const search_table *table, int seed)
{
    double best = -INFINITY;

    for (int row = 0; row < table->rows; row++)
        best = fmax(best, cell_number(table->cells[row][table->options + seed]));
    return best;
}
