/* crew_words.h -- how a job's end is told: to a person, to the job log, as JSON. */
#ifndef GP_CLI_CREW_WORDS_H
#define GP_CLI_CREW_WORDS_H

#include "client/cli/run/exec.h"
#include "common/base/memory/buffer.h"

enum {
    CREW_CODE_LOST = 255, /* of a job that was lost with its worker: no shell says so */
    CREW_FAILURES_SHOWN = 10,
};

/* What became of a job. */
typedef struct crew_end {
    exec_event event; /* of its last attempt */
    uint32_t worker;  /* index, from 1 */
    bool timed_out;
    int attempts; /* starts handed to a runner */
    int losses;   /* of these, lost because the runner or worker exited */
    double start; /* of the last attempt, seconds since 1970 */
} crew_end;

bool crew_end_succeeded(const crew_end *end);
int crew_end_code(const crew_end *end); /* as a shell's $?: 128 + a signal's number */
/* "exit code 3", "signal 11 (Segmentation fault), core dumped", "ended after 10 s (--timeout)". */
char *crew_end_words(const crew_end *end, char *text, size_t bytes);

/* The JSON object of a job without what it said; *facts is freed with gp_free(). */
gp_status crew_facts(char **facts, uint64_t job, const char *const *names, const char *const *values,
                     int count, const char *command, const crew_end *end, gp_error *err);
/* output.h's report: the facts, and what it said, on a line. */
gp_status crew_report(void *context, const char *facts, const gp_buffer *out, const gp_buffer *err,
                      gp_buffer *text, gp_error *error);

#endif
