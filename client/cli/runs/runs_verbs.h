/* `gradpool runs` subcommands: options and functions. */
#ifndef GP_CLI_RUNS_H
#define GP_CLI_RUNS_H

#include "client/cli/cli.h"
#include "client/runs/run_summary.h"

enum {
    RUNS_SHOWN = 20,
    RUNS_LISTED_MAX = 10000,
    RUNS_COMPARED_MAX = 500,
    RUNS_CONDITIONS_MAX = 32,
    RUNS_VALUE_BYTES = RUN_NOTE_BYTES_MAX + 1, /* a value with its NUL; notes are the longest */
};

/* Options for all subcommands. */
typedef struct runs_options {
    cli_common common;
    bool all, csv;
    char where[2048]; /* conditions, separated by '\n' */
    char sort[80], plot[512];
} runs_options;

gp_status runs_list(cli_call *call, gp_error *err);
gp_status runs_compare(cli_call *call, gp_error *err);
gp_status runs_note(cli_call *call, gp_error *err);

/* Runs that a command selected. */
typedef struct runs_set {
    run_summary *runs;
    size_t count;
} runs_set;

void runs_set_free(runs_set *set);

/* Read the runs that the words name, in their order: a number of `gradpool runs`, a folder, or
 * "latest". GP_ENOENT: no such run. */
gp_status runs_find(runs_set *out, const cli_call *call, const char *const *words, int count, gp_error *err);

/* Read the newest RUNS_LISTED_MAX runs of the index, the newest first; folders that were removed
 * are skipped. */
gp_status runs_of_index(runs_set *out, const cli_call *call, gp_error *err);

/* Write a run as a JSON object. */
void runs_put(gp_json_writer *writer, const run_summary *run);

/* Format a value of a run by the name of a column or a training option. "": the run does not have
 * it. false: no such column or option.
 *   value  set to the number, if the value is one; else NaN */
bool runs_value(const run_summary *run, const char *name, char *text, size_t bytes, double *value);

/* Return whether the values of a column or training option are numbers. */
bool runs_is_number(const char *name);

#endif
