/* Trials of a sweep as a table, for the terminal. */
#ifndef GP_CLI_SWEEP_TABLE_H
#define GP_CLI_SWEEP_TABLE_H

#include "client/cli/show.h"
#include "client/sweep/sweep_points.h"

enum { SWEEP_VALUE_BYTES = 40 };

/* Write an objective: an accuracy in percent, NaN as "-". Return `text`. */
char *sweep_objective_text(const sweep_plan *plan, double value, char text[SWEEP_VALUE_BYTES]);

/* Return the seconds of a trial that has ended, from its run folder. NaN: unknown. */
double sweep_trial_seconds(const sweep_folder *folder, uint32_t trial);

/* What to show. All pointers are borrowed. */
typedef struct sweep_table {
    const sweep *core;
    const sweep_plan *plan;
    const gp_space *space;
    const sweep_folder *folder; /* of the times; NULL: they are in `seconds` */
    const double *seconds;      /* by trial, from trial 1; NaN: unknown */
    bool running_first;         /* running trials stand above those that are done */
    uint32_t rows;              /* largest number of rows; 0: all */
    const char *sort;           /* column, or "-" and a column; NULL or "": best trial first */
} sweep_table;

/* Create a table: the best trial first, then stopped trials by value, then trials that run or have
 * no value. NULL: there are no trials, or out of memory. */
show_table *sweep_table_new(const sweep_table *table);

/* Check the column of `sort`. GP_EINVAL: there is no such column; err lists them. */
gp_status sweep_table_check_sort(const sweep_table *table, gp_error *err);

#endif
