/* crew_parts.h -- what crew.c and crew_open.c share; nobody else includes it. */
#ifndef GP_CLI_CREW_PARTS_H
#define GP_CLI_CREW_PARTS_H

#include <poll.h>

#include "client/cli/run/crew.h"

enum { OWN_VARIABLES = 10 };

/* Jobs to be started again, first in, first out. */
typedef struct crew_queue {
    crew_job *first, *last;
} crew_queue;

typedef enum crew_stop { STOP_NOT, STOP_NEW, STOP_TERM, STOP_KILL } crew_stop;

typedef struct crew {
    const crew_options *options;
    crew_result *result;
    gp_pool *pool;
    gp_exec *exec;
    cli_output *output;
    uint32_t slots;
    crew_job **running; /* by place */
    uint32_t running_count;
    crew_queue again; /* may share a worker with other jobs */
    crew_queue
        suspects; /* lost CREW_LOSSES_SHARED times: each may be what killed the runner, so it is run alone */
    uint64_t numbers, attempts;       /* given out */
    crew_job *ranked[GP_MEMBERS_MAX]; /* spmd: the jobs of ranks that have not begun */
    bool ranks_made;
    bool source_ended, source_waits;
    crew_stop stop;
    const char *names[INPUTS_SOURCES_MAX];
    int name_count;
    /* What commands inherit. */
    char *directory;
    uint32_t mask;
    uint64_t files_max;
    const char **environment;
    char variables[OWN_VARIABLES][128];
    int null_fd;
    struct pollfd *fds;
    nfds_t fds_max;
    /* For people. */
    gp_buffer failures;
    uint32_t failures_told;
    int64_t begin_ms, told_ms;
    uint32_t told_tenths; /* of the jobs, when progress was last printed */
    bool line_shown, terminal;
} crew;

/* crew_open.c */

/* Take the workers and what commands inherit; undone by crew_close(), also after a failure. */
gp_status crew_open(crew *c, gp_error *err);
void crew_close(crew *c);
/* The environment of a command at that place; valid until the next call. */
const char *const *crew_environment(crew *c, exec_place place, uint64_t job);

/* crew.c */
void crew_wipe(void *context);                /* the line of --progress, before something else is written */
crew_job *crew_queue_take(crew_queue *queue); /* NULL: empty */

#endif
