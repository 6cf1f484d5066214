/* team.h: complete internal state of a team, for the files that move calls and messages between its
 * parts.
 *
 *   calls.h        interface for blocks, loops and futures
 *   dispatch.h     calls in flight: which call goes to which worker (pure logic)
 *   worker.h       one worker: stages, link, control socket
 *   payloads.h     which worker has which shared payload
 *   needs.h        the different needs of calls, and the workers that meet them
 *   background.h   the lock, and the thread that drives the team while no call is active
 *   functions.h    task objects and their functions
 *   futures.h      futures, and the ended ones
 *
 *   team.c         open and close, enter and leave, units
 *   team_link.c    membership: stages of the workers, their failure and replacement
 *   team_size.c    workers that join and leave an elastic team
 *   team_answers.c records from workers: results, items, lines
 *   team_poll.c    waiting
 *
 *   detach.h       futures whose results other processes fetch
 *
 * A worker failure is detected at once by end of file on the worker's control socket. The team then
 * reads the worker's answers, because committed results count. After that, calls not started move
 * to other workers, and the running call counts one attempt.
 *
 * A callback runs with the lock held, and enters the team again without taking the lock. */
#ifndef GP_TEAM_H
#define GP_TEAM_H

#include "client/team/background.h"
#include "client/team/dispatch.h"
#include "client/team/functions.h"
#include "client/team/futures.h"
#include "client/team/needs.h"
#include "client/team/payloads.h"
#include "client/team/worker.h"
#include "common/base/clock.h"
#include "common/base/system/forks.h"

/* Call to every worker of a team, repeated to each replacement: an object, a function, a value or
 * an open loop. calls.h declares the functions for other files. */
struct team_broadcast {
    team_broadcast *next;      /* next broadcast, in the order added */
    team_call call;            /* copy of the call, with id 0 */
    uint64_t wanted, answered; /* bit w - 1: worker w, present or future */
    uint32_t pending;          /* units in flight */

    /* workers that failed while executing this broadcast, since the last answer */
    uint32_t deaths;
    bool removed;     /* removed by its owner; freed when `pending` reaches 0 */
    gp_status status; /* GP_ETIMEDOUT: not every worker has answered yet */
    gp_error error;
};

/* Submit all broadcasts to a new worker, before any other call. */
void broadcasts_replay(gp_team *team, uint32_t worker);

/* Group in which SPMD ranks exchange messages. The first block of a size forms the group. Later
 * blocks of the same size reuse it, until a rank fails, messages are left over, or the lease has a
 * new generation. Initialize with zeros. */
typedef struct spmd_group {
    uint32_t number;     /* number on the workers; never 0 after the first use */
    uint32_t world;      /* ranks; 0: the next block forms a new group */
    uint32_t generation; /* generation of the lease */
} spmd_group;

/* Changes of the lease: of its size, see team_size.c, and of the scheduler. */
typedef struct team_membership {
    bool elastic;
    uint32_t forming;  /* requested size of the next generation; 0: none requested */
    uint32_t blocks;   /* SPMD blocks that run */
    uint64_t reunions; /* pool->reunions when requests were last repeated */
} team_membership;

/* Callbacks for lines of tasks; NULL: none. */
typedef struct team_lines {
    void (*log)(void *context, uint32_t worker, const char *line);
    void (*output)(void *context, const gp_output_line *line);
    void *context;
} team_lines;

struct gp_team {
    gp_pool *pool; /* separate handle of the team, which has the lease */
    dispatch *dispatch;
    team_worker workers[GP_MEMBERS_MAX]; /* workers in the order of grant.slots */
    uint32_t size, up;                   /* worker count, and how many are in stage TEAM_UP */

    team_membership membership;
    team_needs needs;
    team_payloads payloads;
    team_broadcast *broadcasts; /* list in the order added */
    team_futures futures;
    team_functions functions;
    gp_queue *queues;
    spmd_group group;
    team_background background;
    gp_team_info info;
    gp_error failure; /* reason why no call can run any more; code GP_OK: none */
    uint64_t id_next;

    /* Options. */
    const volatile sig_atomic_t *stop;
    team_lines lines;

    /* State of waiting. */
    int wakeup_fd; /* eventfd; written when answers are pending */
    gp_spin spin;

    int64_t opened_ns; /* when the team was opened */
    int64_t now_ns;    /* for team_now(); 0: the clock was not read since team_enter() */
    int64_t looked_ns; /* when team_check_workers() last ran */
    bool asleep;       /* sleep was announced on the links */
    bool patient;      /* the waiting call needs many answers */
};

/* time after which a worker that is not linked breaks the team */
enum { TEAM_REPLACE_MS = 30000 };

#define EACH_WORKER(team, w) for (uint32_t w = 1; w <= (team)->size; w++)

static inline team_worker *worker_of(gp_team *team, uint32_t worker)
{
    return &team->workers[worker - 1];
}

/* Return the time of the last team_pump(), or else of the first team_now() since team_enter(). A
 * public function that neither sends nor receives does not read the clock. */
static inline int64_t team_now(gp_team *team)
{
    if (team->now_ns == 0)
        team->now_ns = gp_now_ns();
    return team->now_ns;
}

/* Return whether this process was forked from the one that opened the team. The copy refers to the
 * parent's rings, and has no background thread, so the copied lock may never be released. */
static inline bool team_is_forked(const gp_team *team)
{
    return team->pool->forks != gp_forks();
}

/* ---- team.c ---- */

/* End all units with that error. No call can run on the team afterwards. */
void team_break(gp_team *team, const gp_error *why);

/* Call team_break() with the reason for which the scheduler ended the lease. */
void team_break_revoked(gp_team *team);

/* Take the lock without entering, for functions that only read. */
void team_lock(gp_team *team);
void team_unlock(gp_team *team);

/* Report an ended unit to the owner, and release the units that depend on it. */
void team_end(gp_team *team, team_unit *unit, const team_outcome *outcome);

/* End the units that dispatch_next_over() returns. */
void team_end_over(gp_team *team);

/* Check the terms of unit->call, make the call own its payload, and assign an id. The other fields
 * of the unit are zero. On an error unit->call is empty. */
gp_status unit_fill(gp_team *team, team_unit *unit, const team_terms *terms, gp_error *err);

/* Send ready units, commit the records and wake the workers. team_flush() only does the last
 * two. */
void team_send(gp_team *team);
void team_flush(gp_team *team);

/* Release payloads without users on the workers. */
void team_release_unused(gp_team *team);

/* ---- team_link.c ---- */

extern const dispatch_hooks team_hooks;

/* Connect the links to all workers after opening a team. */
gp_status team_link_all(gp_team *team, gp_error *err);

/* Process pending messages from the scheduler, the workers and the control sockets. Never
 * blocks. */
void team_check_workers(gp_team *team);

/* Return when team_link_tick() has work although no message arrives; INT64_MAX: never. */
int64_t team_link_next_ns(const gp_team *team);

/* Retry connections, and fail calls or the team whose time limits have expired. */
void team_link_tick(gp_team *team);

/* Return whether a worker has started the unit. A unit that waits in a ring has not started. */
bool team_unit_begun(const gp_team *team, const team_unit *unit);

/* ---- team_size.c ---- */

/* Follow the size that the scheduler offers or requests: let workers run out of calls, and request
 * the next generation of the lease. */
void team_follow_size(gp_team *team);

/* Request the next generation again after the scheduler was replaced. */
void team_form_again(gp_team *team);

/* Take over the number of workers of a new generation. New workers are in stage DOWN. */
void team_set_size(gp_team *team, uint32_t size);

/* ---- team_answers.c ---- */

/* Process the records from one worker, including the last records of a failed one. Return whether
 * there were any. */
bool team_drain(gp_team *team, uint32_t worker);

/* ---- team_poll.c ---- */

/* Process records, end units and send ready ones, without waiting. Return whether there was a
 * record. */
bool team_pump(gp_team *team);

/* Return whether the background thread has work: units in flight, large results that are being
 * stored, or an elastic team that may have to give workers back. */
bool team_has_work(const gp_team *team);

/* Entry function of the background thread; context: the team. */
void *team_background_run(void *context);

/* Announce on the links that this process no longer sleeps. */
void team_awake(gp_team *team);

/* ---- queue.c ---- */

/* Deliver an item to the queue with that name. Items without a queue are dropped and counted. */
void queue_take(gp_team *team, uint32_t worker, const char *name, const void *data, size_t bytes);

/* Return whether the queue is full and blocks senders. The team then stops reading their
 * rings. */
bool queue_blocks(const gp_team *team, const char *name);
void queues_free(gp_team *team);

#endif
