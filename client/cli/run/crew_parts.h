/* Command run state. Private to crew.c and crew_open.c. */
#ifndef GP_CLI_CREW_PARTS_H
#define GP_CLI_CREW_PARTS_H

#include <poll.h>

#include "client/cli/run/crew.h"

enum { OWN_VARIABLES = 10 }; /* maximum number of environment variables set per command */

/* Stop stages, in order. */
typedef enum crew_stop {
    STOP_NOT,
    STOP_NEW,  /* start no new jobs */
    STOP_TERM, /* send SIGTERM to running jobs, and SIGKILL after the grace period */
    STOP_KILL, /* send SIGKILL to running jobs */
} crew_stop;

/* A command run. */
typedef struct crew {
    const crew_options *options;
    crew_result *result;
    gp_pool *pool;      /* NULL: local mode, commands run on this host without a lease */
    gp_exec *exec;      /* runners on the workers; owned */
    cli_output *output; /* owned */
    uint32_t slots;     /* jobs at a time on each worker */
    crew_job **running; /* running jobs, indexed by rank * slots + slot; NULL: free */
    uint32_t running_count;
    crew_queue retries;         /* jobs to start (again); they may share a worker */
    crew_queue suspects;        /* jobs lost CREW_LOSSES_SHARED times, to start alone */
    uint64_t numbers, attempts; /* last job number and last attempt number assigned */
    inputs_state source;        /* input state; spmd: INPUTS_END */
    crew_stop stop;
    gp_runner_spec spec; /* inherited by all commands; its directory is owned */
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
} crew;

/* ---- crew_open.c ---- */

/* Lease workers and prepare the run. The caller calls crew_close() even after a failure. */
gp_status crew_open(crew *c, gp_error *err);
void crew_close(crew *c);

/* Return the environment for a command on that slot; valid until the next call. */
const char *const *crew_environment(crew *c, exec_place place, uint64_t job);

/* ---- crew.c ---- */

/* Take a job out of the queues; NULL: they are empty. */
crew_job *crew_job_take(crew *c);

/* Erase the progress line; `context` is the crew. Called before any output. */
void crew_wipe(void *context);

#endif
