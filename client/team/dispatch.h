/* dispatch.h: decide which call goes to which worker, and when. Pure logic: without sockets, rings,
 * threads or a clock.
 *
 *   HELD --dependencies ended--> READY --send--> SENT --answer--> ENDED
 *                                  ^              | |
 *                                  |-- revoked ---' |-- worker failed, no attempt left --> DYING
 *                                  |                |                      DYING --over--> ENDED
 *                                  '----------------'-- error, retries left;
 *                                                       or worker failed, attempts left
 *
 * A ready call waits in one of several queues: for its chosen worker, or for its class. A class
 * consists of the calls with the same needs, which the same set of workers can run; class 0 are
 * calls for any worker. Each queue is ordered by priority, then age. Each worker receives at least
 * two calls, and as many as fill about 10 ms by the run times of earlier calls: a client that
 * shares a core with a computing worker may wake up about 3 ms late.
 *
 * A call that was sent but not started can be revoked. Four rules revoke calls and preserve the
 * start order:
 *   priority  calls in a ring return to the queue when a call of higher priority is ready for that
 *             worker; and no worker is sent a call while a call of higher priority, which it could
 *             run, waits in the ring of another worker
 *   long      no call that another worker could run waits behind a call that has run for
 *             DISPATCH_SOLO_NS
 *   idle      an idle worker receives half of the calls that wait in the fullest ring
 *   cancel    see dispatch_cancel()
 *   leaving   a worker that leaves starts no call that a worker that stays could run
 *
 * The caller must execute the hooks immediately, and must end every unit that dispatch_next_over()
 * returns. */
#ifndef GP_DISPATCH_H
#define GP_DISPATCH_H

#include "client/team/unit.h"

enum {
    DISPATCH_DEPTH_MAX = 1024,

    /* estimated work to keep in a ring; covers a late client wakeup */
    DISPATCH_FILL_NS = 10000000,

    /* this much work is sent even if few calls are left for other workers */
    DISPATCH_EAGER_NS = 50000,
    DISPATCH_STEAL_NS = 50000, /* waiting time from which moving a call is worthwhile */

    /* run time from which a call keeps no other calls in the same ring */
    DISPATCH_SOLO_NS = 20000000,
    DISPATCH_GRACE_MS = 1000, /* default time from cancel until the worker is killed */

    /* a deadline that is handled later than this shows a stall of the host: the grace period is
     * extended by half */
    DISPATCH_LATE_NS = 100000000,
    DISPATCH_ATTEMPTS = 3,
    DISPATCH_CLASSES_MAX = 64,
};

typedef struct dispatch_hooks {
    /* Put the unit into the ring of a worker. Return false if there is no room now. */
    bool (*send)(void *context, uint32_t worker, team_unit *unit);

    /* Revoke the unit. Return whether the worker has not started it and never will. */
    bool (*revoke)(void *context, uint32_t worker, team_unit *unit);

    /* Request the end of a running call. */
    void (*stop)(void *context, uint32_t worker, team_unit *unit);

    /* Replace the worker, because the call did not end in time. Return false if the call has ended
     * meanwhile: its answer has not been processed. */
    bool (*replace)(void *context, uint32_t worker, team_unit *unit);
    void *context;
} dispatch_hooks;

typedef struct dispatch dispatch;

typedef struct dispatch_counts {
    uint64_t live;              /* submitted units that have not ended */
    uint64_t held, ready, sent; /* live units in that state */
    uint64_t urgent;            /* urgent units, ready or sent */
    uint64_t rerun, stolen;     /* totals so far */
} dispatch_counts;

/* Create a dispatcher for `workers` workers.
 *   workers_max  limit for dispatch_set_workers()
 * GP_ENOMEM: out of memory. */
gp_status dispatch_new(dispatch **out, const dispatch_hooks *hooks, uint32_t workers, uint32_t workers_max,
                       gp_error *err);
void dispatch_free(dispatch *d); /* does not free units; they belong to the caller */

/* Set which workers can run the calls of a class, from 1 to DISPATCH_CLASSES_MAX - 1. Calls of a
 * class without workers wait, see dispatch_class_unmet().
 *   workers  bit w - 1: worker w; bits of workers that join later are allowed
 * GP_ENOMEM: out of memory. */
gp_status dispatch_set_class(dispatch *d, uint32_t class, uint64_t workers, gp_error *err);

/* Keep a class in use although none of its calls is live, or no longer keep it. */
void dispatch_hold_class(dispatch *d, uint32_t class);
void dispatch_release_class(dispatch *d, uint32_t class);

/* Return whether a class has live calls or is kept in use. The number of an unused class can get
 * another meaning. */
bool dispatch_class_used(const dispatch *d, uint32_t class);

/* Return whether a class is in use although no worker of the team can run its calls. */
bool dispatch_class_unmet(const dispatch *d, uint32_t class);

/* End the calls of a class that wait for other calls or for a worker, with that status. Calls for a
 * chosen worker remain. */
void dispatch_over_class(dispatch *d, uint32_t class, gp_status status);

/* Submit a unit in state FREE whose other fields are filled in, including the id.
 *   start_by_ns  end the unit with GP_ETIMEDOUT if it has not started by then; 0: no limit
 * GP_ENOMEM: out of memory. */
gp_status dispatch_submit(dispatch *d, team_unit *unit, int64_t start_by_ns, gp_error *err);

/* Make a unit wait for `before`, which must not have ended. follow: run on the same worker as well.
 * Call it before dispatch_submit(). GP_ENOMEM: out of memory. */
gp_status dispatch_after(dispatch *d, team_unit *unit, team_unit *before, bool follow, gp_error *err);

/* Send as many ready calls as the rules allow, and revoke calls that should run elsewhere. */
void dispatch_fill(dispatch *d, int64_t now_ns);

/* Handle the answer from a worker.
 *   ran_ns  run time measured by the worker
 *   out     set to the unit that has ended; after reporting the end, call dispatch_settle()
 * GP_OK: the unit has ended. GP_EBUSY: the unit failed and will be retried. GP_ENOENT: no such call
 * is in the ring (a late duplicate). */
gp_status dispatch_answered(dispatch *d, uint32_t worker, uint64_t id, gp_status status, int64_t ran_ns,
                            int64_t now_ns, team_unit **out);

/* Release the units that depend on an ended unit: they become ready, or end with GP_ECANCELED if
 * the status is an error. */
void dispatch_settle(dispatch *d, team_unit *unit, gp_status status);

/* Start sending calls to a worker whose link is up. */
void dispatch_worker_up(dispatch *d, uint32_t worker, int64_t now_ns);

/* Handle a worker failure. Call it after all answers of the worker have been processed. Started
 * units without an attempt left become DYING; pass them to dispatch_over() when the exit cause is
 * known. */
void dispatch_worker_down(dispatch *d, uint32_t worker, int64_t now_ns);

/* Change the number of workers. New workers are down. Workers above the number have left: units
 * that must run on one of them end with GP_ESTALE, those with dependencies when these have ended.
 * The rings of these workers must be empty, see dispatch_leave(). */
void dispatch_set_workers(dispatch *d, uint32_t workers);

/* Let a worker leave: send only calls that no worker that stays can run, and revoke the others.
 * false: stay. */
void dispatch_leave(dispatch *d, uint32_t worker, bool leave);

/* Return whether no ready call waits for this worker, and the ring is empty. A worker that leaves
 * must also not be the last one that can run the calls of a class in use: these may wait for other
 * calls, or belong to a loop that has not submitted them yet. */
bool dispatch_worker_done(const dispatch *d, uint32_t worker);

/* Return the first DYING unit of a worker; NULL: none. */
team_unit *dispatch_dying(const dispatch *d, uint32_t worker);

/* Set whether the worker shares a core with the client. Such a worker is chosen last. */
void dispatch_worker_near(dispatch *d, uint32_t worker, bool near);

/* Cancel a unit. Not started: it ends. Running: request the end, and replace the worker if the unit
 * has not ended after grace_ms (0: at once); a second cancel can shorten this time. Ended: no
 * effect. */
void dispatch_cancel(dispatch *d, team_unit *unit, uint32_t grace_ms, int64_t now_ns);

/* Return the status of a unit that was canceled while running: GP_ETIMELIMIT or GP_ECANCELED. */
gp_status dispatch_canceled_status(const team_unit *unit);

/* End a unit in state HELD, READY, SENT or DYING with that status, unconditionally. */
void dispatch_over(dispatch *d, team_unit *unit, gp_status status);

/* Return the next unit that was ended without an answer, now in state ENDED; NULL: none. Each is
 * returned once. */
team_unit *dispatch_next_over(dispatch *d);

/* Handle the deadlines that have passed. */
void dispatch_tick(dispatch *d, int64_t now_ns);

/* Return when dispatch_tick() or dispatch_fill() has work although no message arrives; INT64_MAX:
 * never. */
int64_t dispatch_next_ns(const dispatch *d, int64_t now_ns);

/* Return the current counters, valid until dispatch_free(). */
const dispatch_counts *dispatch_get_counts(const dispatch *d);

/* Count the calls in the worker's ring. *first is set to the first: the running one, if any. */
uint32_t dispatch_sent(const dispatch *d, uint32_t worker, team_unit **first);

/* Return whether an idle worker has a full ring, so that sending must be retried. */
bool dispatch_stuck(const dispatch *d);

/* End every live unit with that status. Units not started are revoked. */
void dispatch_over_all(dispatch *d, gp_status status);

#endif
