/* team.h -- inside a team: the whole of it, for the files that move calls and messages between its parts.
 *
 *   calls.h        what blocks, loops and futures use of a team; they do not see struct gp_team
 *   dispatch.h     calls in flight: which call goes to which worker (pure)
 *   worker.h       one worker: stages, link, door
 *   payloads.h     which worker has which shared payload
 *   broadcast.h    calls to every worker, repeated to each that replaces one
 *   futures.h, functions.h, spmd.h   state of parfeval, of task objects, and of blocks
 *   background.h   the lock, and the thread that drives the team while no call is made
 *
 *   team.c         open and close, enter and leave, units
 *   team_link.c    membership: stages of the workers, their failure and replacement
 *   team_answers.c records from workers: results, items, log lines
 *   team_drive.c   waiting
 *
 * The failure of a worker is known at once from the end of file at its door. First its answers are read, because its
 * committed results count. Then the calls that it had not begun go to other workers, and the call that it ran counts an
 * attempt.
 *
 * A callback runs with the lock held, and enters the team again without taking it. */
#ifndef GP_TEAM_H
#define GP_TEAM_H

#include "client/team/background.h"
#include "client/team/broadcast.h"
#include "client/team/dispatch.h"
#include "client/team/functions.h"
#include "client/team/futures.h"
#include "client/team/payloads.h"
#include "client/team/spmd.h"
#include "client/team/worker.h"
#include "common/base/system/forks.h"

struct gp_team {
    gp_pool *pool; /* our own handle, with the lease */
    dispatch *dispatch;
    team_worker workers[GP_MEMBERS_MAX]; /* of grant.slots */
    uint32_t size, up;                   /* workers in all, and in stage UP */
    uint64_t reunions;                   /* pool->reunions when requests were last repeated */
    team_payloads payloads;
    team_broadcast *broadcasts; /* in the order of adding */
    team_futures futures;
    team_functions functions;
    gp_queue *queues;
    spmd_group group;
    team_background background;
    gp_team_info info;
    gp_error failure; /* why no call can be run any more; code GP_OK: none */
    uint64_t id_next;
    /* Options: */
    const volatile sig_atomic_t *stop;
    void (*log)(void *context, uint32_t worker, const char *line);
    void *context;
    /* Waiting: */
    int bell; /* eventfd: answers are pending */
    gp_spin spin;
    int64_t opened_ns, now_ns, looked_ns; /* when it was opened, driven last, team_look() was called last */
    bool asleep;                          /* as announced on the links */
    bool patient;                         /* the waiting call needs many answers */
};

#define EACH_WORKER(team, w) for (uint32_t w = 1; w <= (team)->size; w++)

static inline team_worker *worker_of(gp_team *team, uint32_t worker)
{
    return &team->workers[worker - 1];
}

/* Return whether this process was forked from the one that opened the team. Its copy of the team has the rings of the
 * parent but no background thread, which may hold the lock forever here. */
static inline bool team_is_forked(const gp_team *team)
{
    return team->pool->forks != gp_forks();
}

/* ---- team.c ---- */

/* End all units with that status: nothing can be run any more. */
void team_break(gp_team *team, const gp_error *why);
/* team_break() with the reason for which the scheduler ended the lease. */
void team_break_revoked(gp_team *team);
/* Take the lock without entering: for functions that only read. */
void team_lock(gp_team *team);
void team_unlock(gp_team *team);
void team_log_line(gp_team *team, uint32_t worker, const char *line);
/* A unit has ended: report it to its owner, and release the units that depend on it. */
void team_end(gp_team *team, team_unit *unit, const team_outcome *outcome);
/* End the units that dispatch_next_over() returns. */
void team_end_over(gp_team *team);
/* Check the terms of a call, copy the call into a zeroed unit, and give it an id. */
gp_status unit_fill(gp_team *team, team_unit *unit, const team_call *call, const team_terms *terms,
                    gp_error *err);
/* Send ready units, commit the records and wake the workers. */
void team_send(gp_team *team);
void team_flush(gp_team *team);
void team_release_unused(gp_team *team);

/* ---- team_link.c ---- */

extern const dispatch_hooks team_hooks;

/* Link all workers of a new team. */
gp_status team_link_all(gp_team *team, gp_error *err);
/* Handle pending messages of scheduler and workers, and what is pending at the doors; never blocks. */
void team_look(gp_team *team);
/* When team_link_tick() has something to do although no message came; INT64_MAX: never. */
int64_t team_link_next_ns(const gp_team *team);
void team_link_tick(gp_team *team);
/* Return whether a worker has begun the unit; false while the unit waits, also in the worker's ring. */
bool team_unit_begun(const gp_team *team, const team_unit *unit);

/* ---- team_answers.c ---- */

/* Handle the records of one worker, also the last ones of a dead one.  Returns whether there were any. */
bool team_drain(gp_team *team, uint32_t worker);

/* ---- team_drive.c ---- */

/* Handle records, end what ended, send what is ready.  Returns whether there was a record. */
bool team_pump(gp_team *team);
/* The background thread; context: the team. */
void *team_background_run(void *context);
/* Announce on the links that this process no longer sleeps. */
void team_awake(gp_team *team);

/* ---- queue.c ---- */

void queue_take(gp_team *team, uint32_t worker, const char *name, const void *data, size_t bytes);
/* Return whether the queue is full and blocks its senders: then their rings are not read. */
bool queue_blocks(const gp_team *team, const char *name);
void queues_free(gp_team *team);

#endif
