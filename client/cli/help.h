/* help.h -- the text of --help and --help-all, made from the tables of options. */
#ifndef CLI_HELP_H
#define CLI_HELP_H

#include <stdio.h>

#include "client/cli/cli.h"

/* Print usage, options and examples of a command. Without `all`, tables that mark basic options show only those. */
void help_command(const cli_command *command, bool all);

/* Print one line for each command. */
void help_commands(FILE *out);

#endif
