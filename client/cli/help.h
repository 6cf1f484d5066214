/* Help texts (--help and --help-all), generated from the option tables, and `gradpool` without a
 * command. */
#ifndef CLI_HELP_H
#define CLI_HELP_H

#include "client/cli/cli.h"

/* Print usage, options and examples for a command.
 *   all  false: print only basic options of tables that mark some options as basic */
void help_command(const cli_command *command, bool all);

/* Print one line per command. */
void help_commands(FILE *out);

/* Print the pool state and suggest next commands. Return the exit code. */
int cli_home(void);

#endif
