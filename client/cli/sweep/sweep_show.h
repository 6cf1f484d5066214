/* Output of `gradpool sweep`. */
#ifndef GP_CLI_SWEEP_SHOW_H
#define GP_CLI_SWEEP_SHOW_H

#include "client/cli/cli.h"
#include "client/sweep/sweep_run.h"

/* Print the first lines of a sweep: folder, trials, method and parameters. */
void sweep_show_head(const sweep_folder *folder, const sweep_plan *plan);

/* Print the line of a trial that has ended. */
void sweep_show_end(const sweep *core, const sweep_plan *plan, uint32_t trial);

/* Print a table of the trials (sweep_table.h).
 *   rows  largest number of rows; 0: all
 *   sort  column, or "-" and a column; "": the best trial first
 * GP_EINVAL: no such column. */
gp_status sweep_show_table(const sweep *core, const sweep_folder *folder, const sweep_plan *plan,
                           uint32_t rows, const char *sort, gp_error *err);

/* Print counts of trials, the best one, the model and the command that repeats it.
 *   importance  of the parameters, as JSON; NULL: unknown */
void sweep_show_summary(const sweep *core, const sweep_folder *folder, const sweep_plan *plan,
                        const char *importance);

/* Print the sweep as JSON.
 *   importance  as for sweep_show_summary() */
gp_status sweep_show_json(const sweep *core, const sweep_folder *folder, const sweep_plan *plan,
                          const char *importance, gp_error *err);

#endif
