/* Trials of a sweep as files of other programs. */
#ifndef GP_CLI_SWEEP_EXPORT_H
#define GP_CLI_SWEEP_EXPORT_H

#include "client/sweep/sweep_points.h"

/* Write all trials as CSV, in the order of their numbers: trial, state, the objective, epochs,
 * seconds, attempts, how, a column for each parameter, text. */
gp_status sweep_export_csv(const char *path, const sweep *core, const sweep_folder *folder,
                           const sweep_plan *plan, gp_error *err);

/* Write the trials that have ended as a journal of Optuna 5, which JournalFileBackend of Python's
 * optuna reads. The study has the name of the folder.
 *
 * A stopped trial is PRUNED there, and a lost trial FAIL. The intermediate value of a trial is that
 * of its last epoch. */
gp_status sweep_export_optuna(const char *path, const sweep *core, const sweep_folder *folder,
                              const sweep_plan *plan, gp_error *err);

#endif
