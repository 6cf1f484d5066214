/* exec.h -- commands on the workers of a lease: a runner (worker/exec/runner.h) beside each, `slots` places on each runner.
 *
 *   open -> [ wait -> next... -> start, kill ]... -> close
 *
 * gp_exec_wait() drives everything and also receives the pool's notifications.  When a runner exits, alone or with its
 * worker, every command handed to it is lost: one EXEC_LOST each, whether or not the runner had reported its start.  A
 * command can kill its runner before that report is sent, so a missing report does not prove that nothing ran.  The
 * caller decides whether to start a lost command again.  A new runner follows; commands on other workers continue.
 *
 * Not for threads; the process must not fork without exec while a pool is open. */
#ifndef GP_EXEC_H
#define GP_EXEC_H

#include <poll.h>

#include "client/pool/pool.h"
#include "proto/local/runner_wire.h"

typedef struct gp_exec gp_exec;

/* A place for one command at a time; both from 0. */
typedef struct exec_place {
    uint32_t rank, slot;
} exec_place;

typedef struct exec_command {
    gp_runner_spec spec;
    int in, out, err; /* copied to the command; the caller's */
    bool alone;       /* no other command may run on its worker meanwhile; needs gp_exec_find_alone() */
} exec_command;

typedef enum exec_kind {
    EXEC_STARTED, /* pid */
    EXEC_ENDED,   /* exit_code, signal, ... */
    EXEC_FAILED,  /* it could not be started: text says why; exit_code is a shell's, 126 or 127 */
    EXEC_LOST,    /* the runner exited, alone or with its worker; the command may or may not have begun */
} exec_kind;

typedef struct exec_event {
    exec_kind kind;
    uint64_t job;
    exec_place place;
    bool worker_alive; /* EXEC_LOST: only the runner exited */
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

/* Find a free place on the worker with the fewest commands; false: there is none now. Skips workers that run a
 * command alone or that gp_exec_find_alone() drains. */
bool gp_exec_find(const gp_exec *exec, exec_place *place);
/* The same on one worker. */
bool gp_exec_find_on(const gp_exec *exec, uint32_t rank, exec_place *place);
/* Find a worker that runs nothing. false: all are busy; the one with the fewest commands then gets no new ones, so
 * that it becomes idle. Call again until it succeeds. */
bool gp_exec_find_alone(gp_exec *exec, exec_place *place);

uint32_t gp_exec_workers(const gp_exec *exec);
const gp_slot *gp_exec_slot(const gp_exec *exec, uint32_t rank);

/* gp_exec_start -- hand a command to the runner at `place`.
 *   job   not 0, not the number of a running command; the caller has taken all events
 * GP_EPEER: the runner has exited; nothing was started, no event of this job follows, and the place is free again
 * when the runner is replaced.  GP_ELIMIT, GP_EINVAL: the command can never be started.  GP_EIO: the worker's
 * runners exit again and again before they answer. */
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
