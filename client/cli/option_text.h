/* Text of command-line options, the same in --help, in manual pages and in shell completion. */
#ifndef GP_CLI_OPTION_TEXT_H
#define GP_CLI_OPTION_TEXT_H

#include "client/cli/cli.h"

/* A titled table of options. */
typedef struct cli_option_group {
    const char *title;      /* "Training" */
    const gp_param *params; /* NULL: end of the list */
} cli_option_group;

enum { CLI_OPTION_GROUPS = 5 }; /* the four tables that a command may have, and the end of the list */

/* List the option tables of a command. */
void cli_option_groups(const cli_command *command, cli_option_group groups[CLI_OPTION_GROUPS]);

/* Text of one option. */
typedef struct cli_option_text {
    char alias[40];  /* "-n" or "--lr"; "": none */
    char value[240]; /* placeholder of the value; "": a flag */
    char help[1000]; /* description, allowed values and default */
} cli_option_text;

void cli_option_describe(const gp_param *param, cli_option_text *out);

#endif
