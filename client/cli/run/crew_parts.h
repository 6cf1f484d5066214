/* crew_parts.h -- what crew.c and crew_open.c share; nobody else includes it. */
#ifndef GP_CLI_CREW_PARTS_H
#define GP_CLI_CREW_PARTS_H

#include <poll.h>

#include "client/cli/run/crew.h"

enum { OWN_VARIABLES = 10 };

typedef enum crew_stop { STOP_NOT, STOP_NEW, STOP_TERM, STOP_KILL } crew_stop;

typedef struct crew {
    const crew_options *options;
    crew_result *result;
    gp_pool *pool;
    gp_exec *exec;
    cli_output *output;
    uint32_t slots;
    crew_job **running; /* by place; NULL: no job */
    uint32_t running_count;
    crew_queue retries; /* may share a worker with other jobs */
    crew_queue
        suspects; /* lost CREW_LOSSES_SHARED times: each may have killed the runner, so it runs alone */
    uint64_t numbers, attempts;       /* the last job number and attempt number that were assigned */
    crew_job *ranked[GP_MEMBERS_MAX]; /* spmd: the jobs of ranks that have not been started */
    inputs_state source;              /* of the inputs, or of `ranked`: INPUTS_END when it is empty */
    crew_stop stop;
    const char *names[INPUTS_SOURCES_MAX]; /* of the inputs */
    int name_count;
    gp_runner_spec spec;                /* what all commands inherit; its directory is owned */
    const char **environment;           /* of the command that is being started; its strings are not owned */
    char variables[OWN_VARIABLES][128]; /* GRADPOOL_* and others, for `environment` */
    int null_fd;
    struct pollfd *fds;
    nfds_t fds_max;
    gp_buffer failures; /* text for the last line of the run */
    uint32_t failures_shown;
    int64_t begin_ms, progress_ms; /* start of the run; when progress was last printed */
    uint32_t progress_tenths;      /* of the jobs, when progress was last printed */
    bool line_shown;               /* the cursor is on the line of --progress */
} crew;

/* crew_open.c */

/* Take the workers and what commands inherit; undone by crew_close(), also after a failure. */
gp_status crew_open(crew *c, gp_error *err);
void crew_close(crew *c);
/* The environment of a command at that place; valid until the next call. */
const char *const *crew_environment(crew *c, exec_place place, uint64_t job);

/* crew.c */
void crew_wipe(void *context); /* erase the line of --progress, before something else is written */

#endif
