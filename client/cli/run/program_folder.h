/* Run folder of a program that `gradpool spmd --folder` runs:
 *
 *     metrics.jsonl   curves that the program appends: GRADPOOL_METRICS
 *     log             output of the program
 *     end.json        {"state": "completed", "code": 0, "number": 0.91}
 *
 * The states are those of a training: completed, failed, or stopped by Ctrl-C or a cancel. `number`
 * is the last number printed to standard output. end.json is missing if gradpool failed, or if a
 * signal such as SIGTERM or SIGKILL ended the program: the run may be repeated. */
#ifndef GP_CLI_PROGRAM_FOLDER_H
#define GP_CLI_PROGRAM_FOLDER_H

#include "client/cli/run/command_set.h"

enum { PROGRAM_FOLDER_LINE_BYTES = 512 };

typedef struct program_folder {
    char path[4096]; /* absolute; "": none */
    int log;
    struct {
        char text[PROGRAM_FOLDER_LINE_BYTES]; /* last line that is not empty; longer ones are truncated */
        size_t bytes;
        bool complete; /* the line is complete: the next byte begins another one */
    } lines[2];        /* standard output, standard error */
    double number;     /* last number printed; NaN: not a finite number */
    bool has_number;
} program_folder;

/* Prepare the folder: create it, remove the files of an earlier run, and set GRADPOOL_METRICS and
 * GRADPOOL_RUN_FOLDER in the environment. Finish with program_folder_close(). GP_EIO. GP_ELIMIT:
 * the path is too long. */
gp_status program_folder_open(program_folder *folder, const char *path, gp_error *err);

/* Record a piece of output; a command_set_options.copy callback.
 *   which  0: standard output, 1: standard error */
void program_folder_output(void *context, int which, const char *text, size_t bytes);

/* Write end.json for the result of a run and close the folder. An error is only reported.
 *   result  NULL: the run failed for a reason outside the program */
void program_folder_close(program_folder *folder, const command_set_result *result);

/* Find the last number of a line, such as 0.91 in "epoch 3: accuracy=0.91". Digits inside a word do
 * not count.
 *   out  set to the number; "nan" and "inf" are numbers
 * false: the line has no number. */
bool program_folder_number(const char *line, double *out);

#endif
