/* dispatch.h -- which call goes to which worker, when, and how often: no sockets, rings, threads or clock in here.
 *
 *   HELD --those it comes after ended--> READY --send--> SENT --answer--> ENDED
 *                                          ^              | |
 *                                          |--- revoked --' |--- its worker died, no attempt left ---> DYING ---> ENDED
 *                                          '--- error, retries left; or its worker died, attempts left
 *
 * A ready call waits in a queue of those that want its worker, its kind of device, or any; within one queue by
 * priority and then age.  Each worker is sent at least two calls, and as many as fill about 10 ms by the durations of
 * earlier calls: a client that shares a core with a computing worker may be scheduled some 3 ms late.
 *
 * A call that was sent and has not begun can be taken back.  Four rules do so, and keep the order of beginning:
 *   priority  calls in a ring go back when a call of higher priority is ready for that worker; and no worker is sent a
 *             call while one of higher priority, which it could run, waits in the ring of another worker
 *   long      nothing that another worker could run waits behind a call that has run for DISPATCH_SOLO_NS
 *   idle      an idle worker gets half of what waits in the fullest ring
 *   cancel    see dispatch_cancel()
 *
 * Whoever calls in here does what the hooks ask at once, and ends what dispatch_next_over() gives. */
#ifndef GP_DISPATCH_H
#define GP_DISPATCH_H

#include "client/team/unit.h"

enum {
    DISPATCH_DEPTH_MAX = 1024,
    DISPATCH_FILL_NS = 10000000, /* of calls in a ring, by estimate: so late may we be woken */
    DISPATCH_EAGER_NS = 50000,   /* of them although few are left for the others */
    DISPATCH_STEAL_NS = 50000,   /* a call that waits longer than this is worth being moved */
    DISPATCH_SOLO_NS = 20000000, /* a call that runs longer keeps no other call in its worker's ring */
    DISPATCH_GRACE_MS = 1000,    /* usual time from a cancel of a running call to the end of its worker */
    DISPATCH_LATE_NS =
        100000000, /* a deadline seen later than this: the host stalled, so the grace is extended by half */
    DISPATCH_ATTEMPTS = 3,
};

typedef struct dispatch_hooks {
    /* Put it into the ring: false = there is no room now. */
    bool (*send)(void *context, uint32_t worker, team_unit *unit);
    /* Whether the worker has not begun it and never will. */
    bool (*revoke)(void *context, uint32_t worker, team_unit *unit);
    /* Ask a running one to end; replace its worker because it did not. */
    void (*stop)(void *context, uint32_t worker, team_unit *unit);
    void (*replace)(void *context, uint32_t worker, team_unit *unit);
    void *context;
} dispatch_hooks;

typedef struct dispatch dispatch;

typedef struct dispatch_counts {
    uint64_t live;              /* units submitted that have not ended */
    uint64_t held, ready, sent; /* of them, in that state */
    uint64_t urgent;            /* ready or sent, for one worker, before all others */
    uint64_t rerun, stolen;     /* so far */
} dispatch_counts;

/* gpus: bit w - 1 is set when worker w has one. */
gp_status dispatch_new(dispatch **out, const dispatch_hooks *hooks, uint32_t workers, uint64_t gpus,
                       gp_error *err);
void dispatch_free(dispatch *d); /* forgets the units, which are others' */

/* A unit of state FREE with its fields filled, id and all.  start_by_ns: over with GP_ETIMEDOUT when not begun by then;
 * 0 = none.  GP_ENOMEM. */
gp_status dispatch_submit(dispatch *d, team_unit *unit, int64_t start_by_ns, gp_error *err);
/* Before submit: unit comes after `before`, which has not ended; follow: and on its worker. */
gp_status dispatch_after(dispatch *d, team_unit *unit, team_unit *before, bool follow, gp_error *err);

/* Send what can be sent, take back what is better elsewhere. */
void dispatch_fill(dispatch *d, int64_t now_ns);

/* The worker answered.  GP_OK: *out has ended, and is settled by dispatch_settle() after it was told of.  GP_EBUSY: it
 * failed and is tried again.  GP_ENOENT: no such call is there (a late duplicate).
 * ran_ns: how long it took, by the worker. */
gp_status dispatch_answered(dispatch *d, uint32_t worker, uint64_t id, gp_status status, int64_t ran_ns,
                            int64_t now_ns, team_unit **out);
/* It has ended with that status: those that come after it go on, or are over. */
void dispatch_settle(dispatch *d, team_unit *unit, gp_status status);

void dispatch_worker_up(dispatch *d, uint32_t worker, int64_t now_ns);
/* Its answers have all been taken.  Units without an attempt left are DYING, to be given to dispatch_over() when more
 * is known. */
void dispatch_worker_down(dispatch *d, uint32_t worker, int64_t now_ns);
/* The first unit that is DYING there; NULL = none. */
team_unit *dispatch_dying(const dispatch *d, uint32_t worker);
/* Whether the worker shares a core with the client: it is chosen last. */
void dispatch_worker_near(dispatch *d, uint32_t worker, bool near);

/* Cancel a unit.  Not begun: it is over.  Running: its worker is asked to end it, and replaced when it has not done so
 * after grace_ms (0: at once); a second cancel can shorten that time.  Ended: no effect. */
void dispatch_cancel(dispatch *d, team_unit *unit, uint32_t grace_ms, int64_t now_ns);
/* The status of a unit that was canceled while it ran. */
gp_status dispatch_canceled_status(const team_unit *unit);
/* A unit of state HELD, READY, SENT or DYING is over with that status, come what may. */
void dispatch_over(dispatch *d, team_unit *unit, gp_status status);
/* The next unit that is over (and was not given yet), now ENDED; NULL = none. */
team_unit *dispatch_next_over(dispatch *d);

/* Deadlines that have passed. */
void dispatch_tick(dispatch *d, int64_t now_ns);
/* When dispatch_tick() or dispatch_fill() will have something to do although nothing came; INT64_MAX = never. */
int64_t dispatch_next_ns(const dispatch *d, int64_t now_ns);

const dispatch_counts *dispatch_get_counts(const dispatch *d);
/* Calls in the worker's ring, and the first of them: the one that it runs, if it runs any. */
uint32_t dispatch_sent(const dispatch *d, uint32_t worker, const team_unit **first);
/* Whether there may be something to send that found no room. */
bool dispatch_stuck(const dispatch *d);

/* Every unit that has not ended is over with that status; what was not begun is taken back. */
void dispatch_over_all(dispatch *d, gp_status status);

#endif
