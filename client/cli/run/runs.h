/* runs.h -- what the two commands that run other programs share. */
#ifndef GP_CLI_RUNS_H
#define GP_CLI_RUNS_H

#include "client/cli/run/crew.h"

enum {
    RUNS_ERROR = 255
}; /* exit code of what is not the programs' fault: no program's own meaning is lost */

/* Whether a shell runs the command: told to (given = the value of --shell), or it is one word with blanks in it. */
bool runs_by_shell(const cli_call *call, bool given);

/* "4", "cores". */
gp_status runs_slots(uint32_t *slots, const char *text, gp_error *err);

/* Open the pool, run, close it. */
gp_status runs_crew(const crew_options *crew, crew_result *result, gp_error *err);

#endif
