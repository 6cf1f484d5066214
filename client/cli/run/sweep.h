/* sweep.h -- parfor INPUT... -- train ...: a network of its own for every input, each on one worker, and one table.
 *
 * Each is a `gradpool train ... --workers 1` of our own executable, run here; it takes its worker from the scheduler's
 * queue like anyone.  At most as many run at once as the pool has workers. */
#ifndef GP_CLI_SWEEP_H
#define GP_CLI_SWEEP_H

#include "client/cli/run/crew.h"

enum { SWEEP_GRACE_MS = 10000 }; /* for a training to stop at a step and write its model */

typedef struct cli_sweep cli_sweep;

/* Whether the command behind -- is train. */
bool sweep_asked(const cli_call *call);

/* What is wrong with its words; CLI_OK = nothing. */
int sweep_check(const cli_call *call);

/* sweep_new -- *words and *count: the command to be filled for each input; valid until sweep_free(). */
gp_status sweep_new(cli_sweep **out, const cli_call *call, const char *const **words, int *count,
                    gp_error *err);
void sweep_free(cli_sweep *sweep); /* accepts NULL */

/* sweep_try -- check the words as they are for the first input.  CLI_OK, or the exit code after an error was told. */
int sweep_try(const cli_call *call, cli_template *command);

/* sweep_run -- crew: with inputs, command and what --retries, --timeout, ... say. */
gp_status sweep_run(cli_sweep *sweep, crew_options *crew, crew_result *result, gp_error *err);

#endif
