/* Command run state. Private to command_set.c and command_set_open.c. */
#ifndef GP_CLI_COMMAND_SET_PARTS_H
#define GP_CLI_COMMAND_SET_PARTS_H

#include <poll.h>

#include "client/cli/run/command_set.h"

enum { OWN_VARIABLES = 10 }; /* maximum number of environment variables set per command */

/* Stop stages, in order. */
typedef enum command_set_stop {
    STOP_NOT,
    STOP_NEW,  /* start no new jobs */
    STOP_TERM, /* send SIGTERM to running jobs, and SIGKILL after the grace period */
    STOP_KILL, /* send SIGKILL to running jobs */
} command_set_stop;

/* A command run. */
typedef struct command_set {
    const command_set_options *options;
    command_set_result *result;
    gp_pool *pool;         /* NULL: local mode, commands run on this host without a lease */
    gp_exec *exec;         /* runners on the workers; owned */
    cli_output *output;    /* owned */
    uint32_t slots;        /* jobs at a time on each worker */
    command_job **running; /* running jobs, indexed by rank * slots + slot; NULL: free */
    uint32_t running_count;
    command_queue retries;      /* jobs to start (again); they may share a worker */
    command_queue suspects;     /* jobs lost COMMAND_SET_LOSSES_SHARED times, to start alone */
    uint64_t numbers, attempts; /* last job number and last attempt number assigned */
    inputs_state source;        /* input state; spmd: INPUTS_END */
    command_set_stop stop;
    gp_runner_spec spec; /* inherited by all commands; the directory is owned */
    /* environment of the command being started; the strings are not owned */
    const char **environment;
    /* strings for the variables set by gradpool, used by `environment` */
    char variables[OWN_VARIABLES][128];
    int null_fd;                   /* /dev/null, default standard input */
    struct pollfd *fds;            /* poll set; owned */
    nfds_t fds_max;                /* entries allocated in `fds` */
    gp_buffer failures;            /* first failures, for the summary line */
    uint32_t failure_count;        /* failures so far; the first ones are in `failures` */
    int64_t begin_ms, progress_ms; /* run start, and last progress output */
    uint32_t progress_tenths;      /* tenths of the jobs finished at the last progress output */
    bool line_shown;               /* the cursor is on the progress line */
} command_set;

/* ---- command_set_open.c ---- */

/* Lease workers and prepare the run. The caller calls command_set_close() even after a failure. */
gp_status command_set_open(command_set *c, gp_error *err);
void command_set_close(command_set *c);

/* Return the environment for a command on that slot; valid until the next call. */
const char *const *command_set_environment(command_set *c, exec_place place, uint64_t job);

/* ---- command_set.c ---- */

/* Take a job out of the queues; NULL: they are empty. */
command_job *command_job_take(command_set *c);

/* Erase the progress line; `context` is the command set. Called before any output. */
void command_set_wipe(void *context);

#endif
