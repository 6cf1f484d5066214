/* Manual pages and shell completion, generated from the tables of the commands. */
#ifndef GP_CLI_MANUAL_H
#define GP_CLI_MANUAL_H

#include <stdio.h>

#include "common/base/error.h"

/* Write gradpool.1 and gradpool-COMMAND.1 for each command.
 *   guide      text of docs/gradpool.md: its tables are the sections ENVIRONMENT, FILES and
 *              EXIT STATUS
 *   directory  where to write them; must exist */
gp_status manual_pages(const char *guide, const char *directory, gp_error *err);

/* Write the page of a daemon, section 8, from the output of its --help option. GP_EPROTO: the first
 * line is not "NAME -- SUMMARY; NOTE". */
gp_status manual_daemon(FILE *out, const char *name, const char *help, gp_error *err);

/* Write a completion script: the template, with the line "@TABLES@" replaced by the tables of
 * commands, options and values. */
void manual_completion_bash(FILE *out, const char *template);
void manual_completion_zsh(FILE *out, const char *template);
void manual_completion_fish(FILE *out, const char *template);

#endif
