/* Helpers shared by spmd and parfor, the commands that run other programs. */
#ifndef GP_CLI_RUNS_H
#define GP_CLI_RUNS_H

#include "client/cli/run/crew.h"

/* Exit code of gradpool's own errors. Programs hardly use 255, so their exit codes keep their
 * meaning. */
enum { RUNS_ERROR = 255 };

/* Return whether a shell runs the command. Default: only if the command is a single word that
 * contains blanks.
 *   given  value of --shell; ignored if the option is not on the command line */
bool runs_by_shell(const cli_call *call, bool given);

/* Parse --slots-per-worker: "4" or "cores". GP_EINVAL: malformed or out of range. */
gp_status runs_slots(uint32_t *slots, const char *text, gp_error *err);

/* Open the pool, run all jobs, and close the pool. */
gp_status runs_crew(const crew_options *crew, crew_result *result, gp_error *err);

#endif
