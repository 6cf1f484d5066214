/* Job output, on the way to standard output and standard error of this process.
 *
 *   OUTPUT_WHOLE   each job writes to two unlinked temporary files; after the job, they
 *                  are copied, standard output first, in job order or in completion order
 *   OUTPUT_LINES   each job writes to two pipes; complete lines are printed as they arrive, tagged
 *
 * Memory and descriptors are bounded in runs of any length: a slow job delays the output of later
 * jobs, and output_room() refuses new jobs once OUTPUT_AHEAD_MAX jobs or OUTPUT_FILES_MAX files are
 * waiting. */
#ifndef GP_CLI_OUTPUT_H
#define GP_CLI_OUTPUT_H

#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/base/memory/buffer.h"

enum {
    OUTPUT_AHEAD_MAX = 16384,        /* jobs begun and not printed yet */
    OUTPUT_FILES_MAX = 512,          /* files held by finished jobs */
    OUTPUT_SMALL_BYTES = 16 << 10,   /* outputs up to this size are kept in memory */
    OUTPUT_LINE_BYTES_MAX = 1 << 20, /* a longer line is printed in pieces */
};

typedef enum output_kind { OUTPUT_WHOLE, OUTPUT_LINES } output_kind;

typedef struct output_options {
    output_kind kind;
    bool ordered;                  /* WHOLE: print in output_begin() order */
    int out, err;                  /* destination descriptors, usually 1 and 2 */
    void (*before)(void *context); /* called before each write; NULL: nothing to call */
    void *context;
    const volatile sig_atomic_t *stop; /* 2: give up a blocked write; NULL: never */
    /* WHOLE: write `text` to `out` instead of the job's output; NULL: copy the output.
     *   subject   as set by output_subject(); NULL: the job did not finish
     *   out, err  the job's output */
    gp_status (*report)(void *context, const void *subject, const gp_buffer *out, const gp_buffer *err,
                        gp_buffer *text, gp_error *error);
    void *report_context;
    /* called with the output of jobs before it is printed; `which` is 0 for standard output and 1
     * for standard error; NULL: nothing to call */
    void (*copy)(void *context, int which, const char *text, size_t bytes);
    void *copy_context;
    /* destructor for subjects; required with output_subject() */
    void (*subject_free)(void *subject);
} output_options;

typedef struct cli_output cli_output;
typedef struct output_job output_job;

gp_status output_new(cli_output **out, const output_options *options, gp_error *err);
void output_free(cli_output *output); /* accepts NULL; drops output that was not printed */

/* Return whether another job may begin. */
bool output_room(const cli_output *output);

/* Register a job; in ordered mode it is printed after all jobs registered before.
 *   tag  copied; printed before each line; "": none */
gp_status output_begin(output_job **out, cli_output *output, const char *tag, gp_error *err);

/* Create new files or pipes for one attempt to run the job, and drop the files of the previous
 * attempt.
 *   out, err  set to descriptors for writing; the caller closes them after the start */
gp_status output_open(output_job *job, int *out, int *err, gp_error *error);

/* Add a line from gradpool to the job's standard error. */
void output_print(output_job *job, const char *line);

/* Set the job report's subject. The output takes ownership. */
void output_subject(output_job *job, void *subject);

/* Finish a job: print it now, or in ordered mode after all earlier jobs. The output takes ownership
 * of `job`. */
gp_status output_end(output_job *job, gp_error *err);

/* End an attempt that will be repeated: LINES prints the remaining output, WHOLE drops it. */
gp_status output_drop(output_job *job, gp_error *err);

/* ---- LINES: pipes to poll ---- */

/* Fill in a poll set with the pipes of all running jobs; return their number. fds NULL: only
 * count. */
nfds_t output_fds(const cli_output *output, struct pollfd *fds, nfds_t max);

/* Read the pipes whose revents are set. `fds` must be in output_fds() order. */
gp_status output_read(cli_output *output, const struct pollfd *fds, nfds_t count, gp_error *err);

#endif
