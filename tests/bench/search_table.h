/* Table of trainings, on which searches are replayed: each combination of a few options, with the
 * accuracy of two trainings (sweep_table.csv, made by `run_sweep make-table`). */
#ifndef GP_SEARCH_TABLE_H
#define GP_SEARCH_TABLE_H

enum { TABLE_SEEDS = 2 };

typedef struct search_table search_table;

/* Read a table. Exit with a message if it is malformed. */
search_table *search_table_read(const char *path);
void search_table_free(search_table *table);

/* Return the space of the table: a list for each option. */
const char *search_table_space(const search_table *table);

/* Return the accuracy of a training; NaN: it failed.
 *   values  JSON, as from gp_search_ask()
 *   seed    of the training, from 0 */
double search_table_value(const search_table *table, const char *values, int seed);

/* Return the highest accuracy of the table. */
double search_table_best(const search_table *table, int seed);

#endif
