/* Run many commands on pool workers; shared by spmd and parfor.
 *
 * Jobs are created from the inputs as slots become free, so the inputs may be endless. A job
 * finishes when the command succeeds, when it has failed `retries` + 1 times, or when it was lost
 * COMMAND_SET_LOSSES_MAX times because the runner or worker exited. */
#ifndef GP_CLI_COMMAND_SET_H
#define GP_CLI_COMMAND_SET_H

#include "client/cli/cli.h"
#include "client/cli/run/command_set_text.h"
#include "client/cli/run/inputs.h"
#include "client/cli/run/joblog.h"
#include "client/cli/run/template.h"

enum {
    COMMAND_SET_LOSSES_MAX = 3, /* losses after which a job has failed */
    COMMAND_SET_LOSSES_SHARED =
        COMMAND_SET_LOSSES_MAX - 1, /* losses after which a job runs alone on a worker */
    COMMAND_SET_GRACE_MS = 2000,    /* default delay between SIGTERM and SIGKILL */
    COMMAND_SET_SLOTS_CORES = 0,    /* command_set_options.slots: one slot per worker core */
    /* exit code of gradpool's own errors; programs hardly use 255, so their
     * codes keep their meaning */
    COMMAND_SET_ERROR = 255,
};

/* Options of both commands. `each` names what a JSON object describes;
 * `often`: --help has --timeout. */
#define COMMAND_SET_PARAMS(options_type, each, often)                                                        \
    { .name = "shell",                                                                                       \
      GP_PARAM_FIELD(options_type, shell),                                                                   \
      .help =                                                                                                \
          "run the words as one sh command line; default for one word with spaces (--shell=no: never)" },    \
        { .name = "stdin",                                                                                   \
          GP_PARAM_FIELD(options_type, stdin_path),                                                          \
          .placeholder = "FILE",                                                                             \
          .help = "standard input for each command: FILE or - [/dev/null]" },                                \
        { .name = "timeout",                                                                                 \
          GP_PARAM_FIELD(options_type, timeout),                                                             \
          .max = 315360000,                                                                                  \
          .unit = "seconds",                                                                                 \
          .basic = often,                                                                                    \
          .help = "time limit in seconds: SIGTERM, then SIGKILL after --grace; 0: none" },                   \
        { .name = "grace",                                                                                   \
          GP_PARAM_FIELD(options_type, grace),                                                               \
          .fallback = COMMAND_SET_GRACE_MS / 1000,                                                           \
          .max = 3600,                                                                                       \
          .unit = "seconds",                                                                                 \
          .help = "time from SIGTERM to SIGKILL; 0: SIGKILL at once" },                                      \
        { .name = "dry-run",                                                                                 \
          GP_PARAM_FIELD(options_type, dry_run),                                                             \
          .help = "print the commands instead of running them" },                                            \
    {                                                                                                        \
        .name = "json", GP_PARAM_FIELD(options_type, common.json),                                           \
        .help = "print one JSON object per " each ", one per line"                                           \
    }

/* Reaction to a failed job (--halt). */
typedef enum command_set_halt {
    COMMAND_SET_NEVER, /* run all jobs */
    COMMAND_SET_SOON,  /* start no new jobs */
    COMMAND_SET_NOW,   /* also kill the running jobs */
} command_set_halt;

/* Run settings. */
typedef struct command_set_options {
    const cli_call *call;
    cli_inputs *inputs; /* NULL: one job per worker (spmd) */
    cli_template *command;
    /* "": /dev/null, "-": standard input of this process, else a file opened for each job */
    const char *stdin_path;
    uint32_t slots; /* jobs at a time on each worker, or COMMAND_SET_SLOTS_CORES */
    command_set_halt halt;
    int retries;      /* further attempts after a failure */
    double timeout_s; /* limit per attempt, in seconds; 0: none */
    bool lines, ordered, tagged, json, progress;
    cli_joblog *joblog; /* NULL: no job log */
    /* jobs at a time in local mode: commands run on this host without a lease, and may lease
     * workers themselves; 0: on leased workers */
    uint32_t local;
    int grace_ms; /* delay between SIGTERM and SIGKILL, in milliseconds */
    /* Print this text for a job instead of the job's output (see output.h); `subject` is a
     * command_job. NULL: print the output, or JSON if `json` is set. */
    gp_status (*report)(void *context, const void *subject, const gp_buffer *out, const gp_buffer *err,
                        gp_buffer *text, gp_error *error);
    void *report_context;
    /* called with each piece of output, see output.h; NULL: nothing to call */
    void (*copy)(void *context, int which, const char *text, size_t bytes);
    void *copy_context;
} command_set_options;

/* Totals of a run. */
typedef struct command_set_result {
    /* finished jobs; among them failed jobs, and jobs that --halt now or an interrupt stopped */
    uint64_t done, failed, stopped;
    int first_code;   /* first failed job's shell exit code; 0: no failure */
    bool interrupted; /* the run was stopped by Ctrl-C or SIGTERM */
} command_set_result;

/* Lease workers according to the call's options and run all jobs. Failed jobs are counted in
 * *result and are not an error. `pool` is NULL in local mode.
 *
 * GP_ECANCELED: interrupted while waiting for workers, or the lease ended. */
gp_status command_set_run(const command_set_options *options, gp_pool *pool, command_set_result *result,
                          gp_error *err);

/* Open the pool, run all jobs, and close the pool. */
gp_status command_set_run_on_pool(const command_set_options *options, command_set_result *result,
                                  gp_error *err);

/* Return whether a shell runs the command. Default: only if the command is a single word that
 * contains blanks.
 *   given  value of --shell; ignored if the option is not on the command line */
bool command_set_by_shell(const cli_call *call, bool given);

/* Parse --slots-per-worker: "4" or "cores". GP_EINVAL: malformed or out of range. */
gp_status command_set_slots(uint32_t *slots, const char *text, gp_error *err);

/* Print the commands instead of running them (--dry-run). */
gp_status command_set_print(const command_set_options *options, gp_error *err);

#endif
