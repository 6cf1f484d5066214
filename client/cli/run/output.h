/* output.h -- what commands say, on its way to our own standard output and error.
 *
 *   OUTPUT_WHOLE   each job writes into two unlinked temporary files; when it has ended they are copied, standard
 *                  output first, in the order of the jobs or as they end
 *   OUTPUT_LINES   each job writes into two pipes; whole lines go out as they come, tagged
 *
 * With more jobs ended out of turn than OUTPUT_AHEAD_MAX, or more kept files than OUTPUT_FILES_MAX, output_room()
 * says no until the slow one has ended: memory and descriptors are bounded however long a run is. */
#ifndef GP_CLI_OUTPUT_H
#define GP_CLI_OUTPUT_H

#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/base/memory/buffer.h"

enum {
    OUTPUT_AHEAD_MAX = 16384,
    OUTPUT_FILES_MAX = 512,
    OUTPUT_SMALL_BYTES = 16 << 10,   /* kept in memory, the file closed */
    OUTPUT_LINE_BYTES_MAX = 1 << 20, /* a longer line goes out in pieces */
};

typedef enum output_kind { OUTPUT_WHOLE, OUTPUT_LINES } output_kind;

typedef struct output_options {
    output_kind kind;
    bool ordered;                  /* WHOLE: in the order of output_begin() */
    int out, err;                  /* where it goes: 1, 2 */
    void (*before)(void *context); /* called before something is written; NULL = nothing */
    void *context;
    const volatile sig_atomic_t *stop; /* 2 = give up a write that does not go on; NULL = never */
    /* WHOLE: write `text` to `out` for a job instead of a copy of its output; NULL = copy.
     *   subject   as given to output_subject(); NULL: the job never ended
     *   out, err  the job's output */
    gp_status (*report)(void *context, const void *subject, const gp_buffer *out, const gp_buffer *err,
                        gp_buffer *text, gp_error *error);
    void *report_context;
    void (*subject_free)(void *subject); /* frees subjects; required with output_subject() */
} output_options;

typedef struct cli_output cli_output;
typedef struct output_job output_job;

gp_status output_new(cli_output **out, const output_options *options, gp_error *err);
void output_free(cli_output *output); /* accepts NULL; what was not written is dropped */

/* Whether another job may begin. */
bool output_room(const cli_output *output);

/* output_begin -- a job; its turn is behind those begun before it.  tag: put before each line, "" = nothing
 * (copied). */
gp_status output_begin(output_job **out, cli_output *output, const char *tag, gp_error *err);

/* output_open -- fresh files or pipes for one attempt to run it; what an earlier attempt said in files is forgotten.
 * *out, *err: the writing ends, the caller's to close after they were handed over. */
gp_status output_open(output_job *job, int *out, int *err, gp_error *error);

/* output_say -- a line of ours among the job's standard error. */
void output_say(output_job *job, const char *line);

/* Set the subject of the job's report. The output owns it from now on. */
void output_subject(output_job *job, void *subject);

/* output_end -- the job has ended for good: written now or in its turn; job is no longer the caller's. */
gp_status output_end(output_job *job, gp_error *err);

/* An attempt has ended that is followed by another: LINES writes what is there, WHOLE forgets it. */
gp_status output_drop(output_job *job, gp_error *err);

/* ---- LINES: pipes to poll ---- */

nfds_t output_fds(const cli_output *output, struct pollfd *fds, nfds_t max); /* fds may be NULL: how many */
/* Read those whose revents are set, as output_fds() filled them in. */
gp_status output_read(cli_output *output, const struct pollfd *fds, nfds_t count, gp_error *err);

#endif
