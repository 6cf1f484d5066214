/* exec.h -- commands on the workers of a lease: a runner (worker/runner.h) beside each, `slots` places on each runner.
 *
 *   open -> [ wait -> next... -> start, kill ]... -> close
 *
 * All is driven by exec_wait(), which also sees what becomes of the pool.  A worker that dies loses what ran there
 * (EXEC_LOST, one event a command); its successor gets a new runner when the scheduler has granted it, and the other
 * workers' commands are not touched meanwhile.  Whether a lost command is run again is the caller's to decide.
 *
 * Not for threads; the process must not fork without exec while a pool is open. */
#ifndef GP_EXEC_H
#define GP_EXEC_H

#include <poll.h>

#include "client/pool.h"
#include "proto/runner_wire.h"

typedef struct gp_exec gp_exec;

/* A place for one command at a time; both from 0. */
typedef struct exec_place {
    uint32_t rank, slot;
} exec_place;

typedef struct exec_command {
    gp_runner_spec spec;
    int in, out, err; /* copied to the command; the caller's */
} exec_command;

typedef enum exec_kind {
    EXEC_STARTED, /* pid */
    EXEC_ENDED,   /* exit_code, signal, ... */
    EXEC_FAILED,  /* it could not be started: text says why; exit_code is a shell's, 126 or 127 */
    EXEC_LOST,    /* its worker died, or its runner; started says whether it had begun */
} exec_kind;

typedef struct exec_event {
    exec_kind kind;
    uint64_t job;
    exec_place place;
    bool started;
    pid_t pid;
    int exit_code; /* -1 = by signal */
    int signal;    /* 0 = none */
    bool core;
    double seconds, user_seconds, system_seconds;
    uint64_t rss_bytes;
    char text[GP_RUNNER_TEXT_MAX];
} exec_event;

enum { EXEC_SLOTS_MAX = GP_RUNNER_JOBS_MAX };

/* gp_exec_open -- on every worker of the pool's lease, which the caller has taken (pool_lease).  Does not wait: places
 * are free as the runners come up.  slots: commands at once on each worker, 1 to EXEC_SLOTS_MAX. */
gp_status gp_exec_open(gp_exec **out, gp_pool *pool, uint32_t slots, gp_error *err);

/* gp_exec_open_local -- without a pool: one runner of our own, whose commands have all our cores.  It, and all that they
 * start, end with this process.  gp_exec_slot() is not for it. */
gp_status gp_exec_open_local(gp_exec **out, uint32_t slots, gp_error *err);

/* gp_exec_close -- kills what still runs; the lease remains.  Accepts NULL. */
void gp_exec_close(gp_exec *exec);

/* A free place on the worker with the fewest commands; false: none now. */
bool gp_exec_find(const gp_exec *exec, exec_place *place);
/* The same on one worker. */
bool gp_exec_find_on(const gp_exec *exec, uint32_t rank, exec_place *place);

uint32_t gp_exec_workers(const gp_exec *exec);
const gp_slot *gp_exec_slot(const gp_exec *exec, uint32_t rank);

/* gp_exec_start -- job: not 0, of no command that runs; all events were taken before.  GP_EPEER: the worker has just
 * died, nothing was started, no event comes of this job, and its places are free again when it is replaced.
 * GP_ELIMIT, GP_EINVAL: the command can never be started. */
gp_status gp_exec_start(gp_exec *exec, exec_place place, uint64_t job, const exec_command *command,
                        gp_error *err);

/* gp_exec_kill -- SIGTERM to all that the command has started, SIGKILL grace_ms later (0 = at once).  Its EXEC_ENDED
 * follows.  One that does not run (any more) is ignored. */
void gp_exec_kill(gp_exec *exec, uint64_t job, uint32_t grace_ms);

/* gp_exec_wait -- until an event is there, one of `others` is ready (their revents are set), a signal came, or
 * timeout_ms are over (-1 = for ever).  GP_EPEER: the scheduler is gone.  GP_ECANCELED: the lease was ended. */
gp_status gp_exec_wait(gp_exec *exec, struct pollfd *others, nfds_t count, int timeout_ms, gp_error *err);

/* The next event; false: none waits. */
bool gp_exec_next(gp_exec *exec, exec_event *event);

#endif
