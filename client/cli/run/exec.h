/* Run commands on leased workers. Each worker has one runner process (worker/exec/runner.h) with
 * `slots` slots.
 *
 *   open -> [ wait -> next... -> start, kill ]... -> close
 *
 * gp_exec_wait() does all the work and also handles pool messages. When a runner exits, alone or
 * with its worker, every command handed to it is lost: the caller gets one EXEC_LOST per command,
 * even without an EXEC_STARTED. A command can kill the runner before the start is reported, so a
 * missing report does not prove that the command never ran. The caller decides whether to start a
 * lost command again. The worker gets a new runner; commands on other workers continue.
 *
 * Not thread-safe. The process must not fork without exec while a pool is open. */
#ifndef GP_EXEC_H
#define GP_EXEC_H

#include <poll.h>

#include "client/pool/pool.h"
#include "proto/local/runner_wire.h"

typedef struct gp_exec gp_exec;

/* A slot for one command at a time: worker rank and slot number, both from 0. */
typedef struct exec_place {
    uint32_t rank, slot;
} exec_place;

/* A command to start. */
typedef struct exec_command {
    gp_runner_spec spec;
    int in, out, err; /* standard streams; remain the caller's */
    bool alone;       /* exclude other commands from the worker; requires gp_exec_find_alone() */
} exec_command;

typedef enum exec_kind {
    EXEC_STARTED, /* valid: pid */
    EXEC_ENDED,   /* valid: exit_code, signal, times */
    /* the command could not be started; `text` has the reason, exit_code is 126 or 127 as in a
     * shell */
    EXEC_FAILED,
    /* the runner exited, alone or with its worker; the command may or may not have run */
    EXEC_LOST,
} exec_kind;

/* A change of a command's state. */
typedef struct exec_event {
    exec_kind kind;
    uint64_t job;
    exec_place place;
    bool worker_alive; /* EXEC_LOST: only the runner exited */
    pid_t pid;
    int exit_code;                                /* -1: ended by a signal */
    int signal;                                   /* 0: none */
    bool core;                                    /* core dumped */
    double seconds, user_seconds, system_seconds; /* elapsed time and CPU times */
    uint64_t rss_bytes;                           /* peak memory */
    char text[GP_RUNNER_TEXT_MAX];                /* EXEC_FAILED: the reason */
} exec_event;

enum { EXEC_SLOTS_MAX = GP_RUNNER_JOBS_MAX };

/* Start runners on all leased workers; the caller called pool_lease(). Does not wait: slots become
 * free as the runners come up.
 *
 * Without a pool, start one local runner. Commands may use all cores of this process. The runner
 * and all its commands end when this process exits. gp_exec_slot() must not be called.
 *   pool   NULL: none
 *   slots  commands at a time on each worker, 1 to EXEC_SLOTS_MAX */
gp_status gp_exec_open(gp_exec **out, gp_pool *pool, uint32_t slots, gp_error *err);

/* Kill all running commands and close the runners; keep the lease. Accepts NULL. */
void gp_exec_close(gp_exec *exec);

/* Find a free slot on the least busy worker. false: all slots are busy. Skips workers that run an
 * exclusive command, and the worker drained by gp_exec_find_alone(). */
bool gp_exec_find(const gp_exec *exec, exec_place *place);

/* Like gp_exec_find(), for one worker. */
bool gp_exec_find_on(const gp_exec *exec, uint32_t rank, exec_place *place);

/* Find an idle worker for an exclusive command. false: all are busy; the least busy worker then
 * gets no new commands until it is idle, so call again until this function succeeds. */
bool gp_exec_find_alone(gp_exec *exec, exec_place *place);

/* Return the worker count; 1 in local mode. */
uint32_t gp_exec_workers(const gp_exec *exec);

/* Return the device and process data of a worker. */
const gp_slot *gp_exec_slot(const gp_exec *exec, uint32_t rank);

/* Hand a command to a slot's runner. The caller must have taken all events.
 *   place  free slot from one of the find functions
 *   job    caller's id; not 0, and not the id of a running command
 *
 * GP_EPEER: the runner exited and the command was not started; no event follows, and the slot
 * becomes free when the runner is replaced. GP_ELIMIT, GP_EINVAL: the command can never be started.
 * GP_EIO: runners of this worker exit repeatedly before they answer, or do not read requests. */
gp_status gp_exec_start(gp_exec *exec, exec_place place, uint64_t job, const exec_command *command,
                        gp_error *err);

/* Send SIGTERM to all processes of the command in a slot, and SIGKILL grace_ms later (0: at once).
 * EXEC_ENDED follows. Does nothing if the slot is free. */
void gp_exec_kill(gp_exec *exec, exec_place place, uint32_t grace_ms);

/* Wait until an event is available, a descriptor of `others` is ready, a signal arrives, or
 * timeout_ms is over (-1: one hour).
 *
 * GP_EPEER: the scheduler, or the local runner, exited. GP_ECANCELED: the lease ended. */
gp_status gp_exec_wait(gp_exec *exec, struct pollfd *others, nfds_t count, int timeout_ms, gp_error *err);

/* Take the next event. false: there is no event. */
bool gp_exec_next(gp_exec *exec, exec_event *event);

#endif
