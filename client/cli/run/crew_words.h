/* crew_words.h -- one job of a command run, and descriptions of its end: as text, exit code and JSON. */
#ifndef GP_CLI_CREW_WORDS_H
#define GP_CLI_CREW_WORDS_H

#include "client/cli/run/output.h"
#include "client/cli/run/exec.h"
#include "common/base/text/json.h"

enum {
    CREW_CODE_LOST = 255, /* exit code of a job that was lost with its worker; no shell uses it */
    CREW_FAILURES_SHOWN = 10,
};

typedef struct crew_job {
    uint64_t number, attempt; /* attempt: identifies the attempt to the runner; new each time */
    int input_count;
    const char *const *names; /* of the inputs; "": it has none */
    char **values;            /* of the inputs; one allocation */
    char *line;               /* the command as one line, for logs and reports; else NULL */
    output_job *output;
    int attempts; /* starts handed to a runner */
    int losses;   /* attempts that ended because the runner or worker exited */
    bool timed_out;
    double start;          /* of the last attempt, seconds since 1970 */
    int64_t deadline_ms;   /* 0 = none */
    exec_event end;        /* of the last attempt */
    uint32_t worker;       /* index of the last attempt's worker, from 1; 0: run here */
    struct crew_job *next; /* in a crew_queue */
} crew_job;

/* Jobs in the order in which they are to be started again. */
typedef struct crew_queue {
    crew_job *first, *last;
} crew_queue;

void crew_job_free(crew_job *job); /* accepts NULL */

void crew_queue_add(crew_queue *queue, crew_job *job);
crew_job *crew_queue_take(crew_queue *queue); /* NULL: empty */

bool crew_job_succeeded(const crew_job *job);
int crew_job_code(const crew_job *job); /* as a shell's $?: 128 + a signal's number */
/* "exit code 3", "signal 11 (Segmentation fault), core dumped", "ended after 10 s (--timeout)". */
char *crew_job_words(const crew_job *job, char *text, size_t bytes);

/* Write the members of a job's JSON object, without its output. */
gp_status crew_job_put(gp_json_writer *writer, const crew_job *job, gp_error *err);

/* The report of output.h with a crew_job as subject: one JSON object per line, with the job's output. */
gp_status crew_report(void *context, const void *subject, const gp_buffer *out, const gp_buffer *err,
                      gp_buffer *text, gp_error *error);

#endif
