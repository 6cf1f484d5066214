/* Parameter sweeps (parfor INPUT... -- train ...): train one network per input on one worker each,
 * and print a table of the results.
 *
 * Each training is a `gradpool train ... --workers=1` process of this executable. It runs on this
 * host and waits for a worker in the scheduler's queue. At most as many trainings run at a time as
 * the pool has workers. */
#ifndef GP_CLI_SWEEP_H
#define GP_CLI_SWEEP_H

#include "client/cli/run/command_set.h"

/* time for a training to stop at a step and write the model, in milliseconds */
enum { SWEEP_GRACE_MS = 10000 };

typedef struct cli_sweep cli_sweep;

/* Return whether the command after -- is `train`. */
bool sweep_asked(const cli_call *call);

/* Check the words for options that contradict a sweep. Return CLI_OK, or the exit code after
 * printing an error. */
int sweep_check(const cli_call *call);

/* Create a sweep.
 *   words, count  set to the command template; valid until sweep_free() */
gp_status sweep_new(cli_sweep **out, const cli_call *call, const char *const **words, int *count,
                    gp_error *err);
void sweep_free(cli_sweep *sweep); /* accepts NULL */

/* Check the training command as filled in for the first input. Return CLI_OK, or the exit code
 * after printing an error. */
int sweep_try(const cli_call *call, cli_template *command);

/* Run the sweep and print the table. `command_set` holds the inputs, the command and the parfor options;
 * this function adds the rest. */
gp_status sweep_run(cli_sweep *sweep, command_set_options *command_set, command_set_result *result,
                    gp_error *err);

#endif
