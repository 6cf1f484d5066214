/* Jobs of a command run, and descriptions of their results as text, exit code and JSON. */
#ifndef GP_CLI_COMMAND_SET_TEXT_H
#define GP_CLI_COMMAND_SET_TEXT_H

#include <sys/queue.h>

#include "client/cli/run/inputs.h"
#include "client/cli/run/output.h"
#include "client/cli/run/exec.h"
#include "common/base/text/json.h"

enum {
    COMMAND_SET_CODE_LOST = 255,     /* exit code for lost jobs; no shell uses it */
    COMMAND_SET_FAILURES_SHOWN = 10, /* failed jobs named in the summary line */
};

/* A job: a command line to run until it succeeds or finally fails. */
typedef struct command_job {
    uint64_t number, attempt; /* attempt: unique id for the current attempt, sent to the runner */
    const cli_inputs *inputs; /* NULL: spmd */
    char **values;            /* input values; one allocation */
    char *line;               /* command line for logs and reports; NULL: not needed */
    output_job *output;       /* output from all attempts; NULL: not registered yet */
    int attempts;             /* starts, including failed and lost ones */
    int losses;               /* attempts that ended because the runner or worker exited */
    bool timed_out;           /* the last attempt exceeded --timeout */
    double start;             /* start of the last attempt, seconds since 1970 */
    int64_t deadline_ms;      /* end of the time limit; 0: none */
    exec_event end;           /* last attempt result */
    uint32_t worker;          /* last attempt's worker index, from 1; 0: local mode */
    uint32_t rank;            /* spmd: rank of the worker that the job runs on */
    TAILQ_ENTRY(command_job) queue;
} command_job;

/* FIFO queue for jobs to start again. */
typedef TAILQ_HEAD(command_queue, command_job) command_queue;

void command_job_free(void *job); /* frees a command_job; accepts NULL */

/* Return whether the last attempt exited with code 0 within the time limit. */
bool command_job_succeeded(const command_job *job);

/* Return the job's exit code as a shell reports it: 128 + signal number, 124 after a timeout,
 * COMMAND_SET_CODE_LOST for a lost job. */
int command_job_code(const command_job *job);

/* Describe the last attempt, e.g. "exit code 3", "signal 11 (Segmentation fault), core dumped",
 * "ended after 10 s (--timeout)". Return `text`. */
char *command_job_text(const command_job *job, char *text, size_t bytes);

/* Write the job's JSON members, without the output. */
gp_status command_job_put(gp_json_writer *writer, const command_job *job, gp_error *err);

/* Report callback (output.h) for --json: write a command_job with its output as one JSON line. */
gp_status command_set_report(void *context, const void *subject, const gp_buffer *out, const gp_buffer *err,
                             gp_buffer *text, gp_error *error);

#endif
