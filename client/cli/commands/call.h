/* Find and run subcommands. */
#ifndef CLI_CALL_H
#define CLI_CALL_H

#include "client/cli/cli.h"

/* Return the command with this name; NULL: unknown. */
const cli_command *command_find(const char *name);

/* Report an unknown command on standard error and suggest a similar one. Return the exit code. */
int command_unknown(const char *name);

/* Parse and run a command. Return the exit code.
 *   argv  command line; argv[1] is the name of the command
 *   dry   parse and check only */
int command_run(const cli_command *command, int argc, char **argv, bool dry);

#endif
