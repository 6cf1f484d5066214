/* crew.h -- many commands on a pool's workers: what spmd and parfor have in common.
 *
 * Jobs come from the inputs as places become free, so inputs may be endless.  A job ends when its command succeeds,
 * when it has failed `retries` + 1 times, or when it was lost CREW_LOSSES_MAX times because its runner or worker
 * exited. */
#ifndef GP_CLI_CREW_H
#define GP_CLI_CREW_H

#include "client/cli/cli.h"
#include "client/cli/run/crew_words.h"
#include "client/cli/run/inputs.h"
#include "client/cli/run/joblog.h"
#include "client/cli/run/template.h"

enum {
    CREW_LOSSES_MAX = 3,                      /* losses until a job has failed */
    CREW_LOSSES_SHARED = CREW_LOSSES_MAX - 1, /* losses after which a job is started alone on a worker */
    CREW_GRACE_MS = 2000,                     /* between SIGTERM and SIGKILL, of a program */
    CREW_SLOTS_CORES = 0,                     /* slots: as many as a worker has cores */
};

typedef enum crew_halt {
    CREW_NEVER, /* all jobs run */
    CREW_SOON,  /* after a failure no new ones */
    CREW_NOW,   /* after a failure those that run are ended too */
} crew_halt;

typedef struct crew_options {
    const cli_call *call;
    cli_inputs *inputs; /* NULL: one job on each worker */
    cli_template *command;
    const char *stdin_path; /* "" = nothing, "-" = our own, else a file that each job opens */
    uint32_t slots;         /* at once on each worker, or CREW_SLOTS_CORES */
    crew_halt halt;
    int retries;
    double timeout_s; /* of one attempt; 0 = none */
    bool lines, ordered, tagged, json, progress;
    cli_joblog *joblog; /* NULL = none */
    /* Commands that find workers by themselves: run here, so many at once; 0 = on leased workers. */
    uint32_t local;
    int grace_ms; /* between SIGTERM and SIGKILL */
    /* Replaces what is printed of a job (output.h); subject: its crew_job. NULL = as above. */
    gp_status (*report)(void *context, const void *subject, const gp_buffer *out, const gp_buffer *err,
                        gp_buffer *text, gp_error *error);
    void *report_context;
} crew_options;

typedef struct crew_result {
    uint64_t done, failed;
    int first_code; /* what a shell would say of the first job that failed; 0 = none did */
    bool interrupted;
} crew_result;

/* crew_run -- with the workers that the call's options ask for; waits for them.  pool: NULL with `local`.  Jobs that fail are no failure of it.
 * GP_ECANCELED: interrupted before it began. */
gp_status crew_run(const crew_options *options, gp_pool *pool, crew_result *result, gp_error *err);

/* crew_print -- the commands instead of running them (--dry-run). */
gp_status crew_print(const crew_options *options, gp_error *err);

#endif
