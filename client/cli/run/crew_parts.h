/* crew_parts.h -- the state of a command run.  Private to crew.c and crew_open.c. */
#ifndef GP_CLI_CREW_PARTS_H
#define GP_CLI_CREW_PARTS_H

#include <poll.h>

#include "client/cli/run/crew.h"

enum { OWN_VARIABLES = 10 }; /* environment variables that a command gets at most */

typedef enum crew_stop {
    STOP_NOT,
    STOP_NEW,  /* no new jobs */
    STOP_TERM, /* SIGTERM to running jobs, then SIGKILL */
    STOP_KILL, /* SIGKILL to running jobs */
} crew_stop;

typedef struct crew {
    const crew_options *options;
    crew_result *result;
    gp_pool *pool;      /* NULL: commands run here, without workers */
    gp_exec *exec;      /* runners on the workers; owned */
    cli_output *output; /* owned */
    uint32_t slots;     /* jobs at once on each worker */
    crew_job **running; /* by place; NULL: no job */
    uint32_t running_count;
    crew_queue retries;               /* jobs to start again, which may share a worker with other jobs */
    crew_queue suspects;              /* jobs to start alone on a worker: lost CREW_LOSSES_SHARED times */
    uint64_t numbers, attempts;       /* the last job number and attempt number that were assigned */
    crew_job *ranked[GP_MEMBERS_MAX]; /* spmd: the jobs of ranks that have not been started */
    inputs_state source;              /* of the inputs, or of `ranked`: INPUTS_END when it is empty */
    crew_stop stop;
    const char *names[INPUTS_SOURCES_MAX]; /* of the inputs; "": the input has none */
    int name_count;
    gp_runner_spec spec;                /* what all commands inherit; its directory is owned */
    const char **environment;           /* of the command that is being started; its strings are not owned */
    char variables[OWN_VARIABLES][128]; /* GRADPOOL_* and others, for `environment` */
    int null_fd;                        /* /dev/null, the standard input of commands */
    struct pollfd *fds;                 /* of one poll; owned */
    nfds_t fds_max;                     /* allocated in `fds` */
    gp_buffer failures;                 /* the first failures, for the last line of the run */
    uint32_t failure_count;             /* the first CREW_FAILURES_SHOWN of them are in `failures` */
    int64_t begin_ms, progress_ms;      /* start of the run; when progress was last printed */
    uint32_t progress_tenths;           /* of the jobs, when progress was last printed */
    bool line_shown;                    /* the cursor is on the line of --progress */
} crew;

/* crew_open.c */

/* Lease workers, and prepare what commands inherit. The caller calls crew_close() also after a failure. */
gp_status crew_open(crew *c, gp_error *err);
void crew_close(crew *c);
/* Return the environment of a command at that place; valid until the next call. */
const char *const *crew_environment(crew *c, exec_place place, uint64_t job);

/* crew.c */
void crew_wipe(void *context); /* erase the line of --progress */

#endif
