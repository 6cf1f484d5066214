/* Parameter sweeps (parfor INPUT... -- train ...): train one network per input on one worker each,
 * and print a table with the results.
 *
 * Each training is a `gradpool train ... --workers=1` process of this executable. It runs on this
 * host and waits for a worker in the scheduler's queue. At most as many trainings run at a time as
 * the pool has workers. */
#ifndef GP_CLI_PARFOR_TRAIN_H
#define GP_CLI_PARFOR_TRAIN_H

#include "client/cli/run/command_set.h"

/* time for a training to stop at a step and write the model, in milliseconds */
enum { PARFOR_TRAIN_GRACE_MS = 10000 };

typedef struct cli_parfor_train cli_parfor_train;

/* Return whether the command after -- is `train`. */
bool parfor_train_asked(const cli_call *call);

/* Check the words for options that contradict a sweep. Return CLI_OK, or the exit code after
 * printing an error. */
int parfor_train_check(const cli_call *call);

/* Create a sweep.
 *   words, count  set to the command template; valid until parfor_train_free() */
gp_status parfor_train_new(cli_parfor_train **out, const cli_call *call, const char *const **words,
                           int *count, gp_error *err);
void parfor_train_free(cli_parfor_train *train); /* accepts NULL */

/* Check the training command as filled in for the first input. Return CLI_OK, or the exit code
 * after printing an error. */
int parfor_train_try(const cli_call *call, cli_template *command);

/* Run the sweep and print the table. `command_set` holds the inputs, the command and the parfor
 * options; this function adds the rest. */
gp_status parfor_train_run(cli_parfor_train *train, command_set_options *command_set,
                           command_set_result *result, gp_error *err);

#endif
