/* calls.h -- inside a team: the calls that futures, loops and blocks consist of.
 *
 *   futures, loops, blocks --team_submit()--> units --dispatch--> rings of the workers
 *            ^-------- done(outcome) ----------'                        |
 *            '---------------------- answers <-------------------------'
 *
 * A *unit* is one record for one worker. It waits here until a worker is free (or the one that it is meant for), is
 * sent and answered, and goes to another worker if the first dies without an answer. Its `done` is called exactly once,
 * by the thread that drives the team. It may submit, cancel and copy, and must not drive or free the team.
 * A *broadcast* (an object, a function, a value, an open loop) goes to every worker, and to each worker that replaces
 * one, ahead of all units that are sent there later.
 *
 * Workers have numbers 1 .. gp_team_size(), also for users; team_worker_index() is the number in the pool. Every public
 * function begins with team_enter() and ends with team_leave(); the functions here are called between the two. */
#ifndef GP_TEAM_CALLS_H
#define GP_TEAM_CALLS_H

#include "client/team/call.h"

typedef struct team_unit team_unit;

/* What becomes of a call when its worker dies. */
typedef enum team_loss {
    TEAM_LOSS_RERUN, /* it goes to another worker, unless it was begun as often as its terms allow */
    TEAM_LOSS_STALE, /* it ends with GP_ESTALE: it concerns that process only */
    TEAM_LOSS_FATAL, /* begun: it ends with GP_EPEER and how the worker died; else with GP_ESTALE */
} team_loss;

/* Where and how often; zero-initialise. */
typedef struct team_terms {
    uint32_t worker;  /* only on this one; 0 = any */
    uint32_t needs;   /* GP_NEEDS_... of the worker's device */
    int32_t priority; /* -1000 .. 1000 */
    bool urgent;      /* before everything that waits, whatever its priority; for a given worker only */
    team_loss loss;
    uint32_t attempts; /* begun at most so often when workers die; 0 = 3 */
    uint32_t retries;  /* begun again so often after an error of its own */
    int64_t timeout_ms;
} team_terms;

/* How a unit ended; valid during the callback. */
typedef struct team_outcome {
    gp_status status;
    const char *sentence;    /* of a failure: names the worker; "" when it is GP_OK */
    uint32_t worker;         /* where it ran last; 0 = never begun */
    uint32_t attempts;       /* begun so often */
    const gp_answer *answer; /* the header, checked and private; NULL: no worker answered */
    const void *data;        /* the answer's payload, inline or mapped */
    size_t bytes;
    int64_t begun_ns, ended_ns; /* CLOCK_MONOTONIC of this process; 0 = never begun */
    struct team_bytes *blob;    /* of `data`, when it came as one; private */
} team_outcome;

typedef void (*team_done_fn)(gp_team *team, void *context, const team_outcome *outcome);

/* Bytes from a worker, to keep: on the heap, or a mapping. */
typedef struct team_bytes {
    void *data;
    size_t bytes;
    size_t mapped; /* 0 = on the heap */
} team_bytes;

/* The outcome's payload, taken over without a copy if it is large. */
gp_status team_bytes_take(team_bytes *out, const team_outcome *outcome, gp_error *err);
void team_bytes_deinit(team_bytes *bytes);

/* ---- calls ---- */

void team_enter(gp_team *team);
void team_leave(gp_team *team);

/* Return whether this thread is in a callback of the team: it has the lock already, and must not wait. */
bool team_in_callback(const gp_team *team);
/* Mark this thread as in a callback; returns the previous mark, for team_callback_end(). */
const gp_team *team_callback_begin(const gp_team *team);
void team_callback_end(const gp_team *before);

/* The error that ended the team: the lease ended, the scheduler exited.  GP_OK: none. */
gp_status team_check(const gp_team *team, gp_error *err);
/* GP_EINVAL: no worker of the team has that number, and it is not 0. */
gp_status team_check_worker(const gp_team *team, uint32_t worker, gp_error *err);
gp_status team_check_priority(int32_t priority, gp_error *err);

/* Move answers and messages, sleeping in between, until until(context) is true; it is asked first.
 * timeout_ms: -1 = for ever; 0 = what is there now.  GP_ETIMEDOUT; GP_ECANCELED: the team's stop is set;
 * GP_EPEER and others: the team is broken (all its units have ended then). */
gp_status team_drive(gp_team *team, bool (*until)(void *context), void *context, int64_t timeout_ms,
                     gp_error *err);

/* team_drive() with a limit that is extended by the time in which this process was suspended. */
gp_status team_drive_patient(gp_team *team, bool (*until)(void *context), void *context, int64_t ms,
                             gp_error *err);

/* The same without a limit and whatever `stop` says: for units that were canceled and must end before the caller's
 * memory goes.  Ends at the latest when their workers have been replaced. */
void team_drive_out(gp_team *team, bool (*until)(void *context), void *context);

/* Look for messages and failed workers, unless that was done within the last age_ns. */
void team_refresh(gp_team *team, int64_t age_ns);

/* ---- units ---- */

/* team_submit -- hand over a call; what can be sent is sent before it returns.
 *   out   valid until `done` is called; may be NULL
 *   done  may be NULL
 * GP_ENOMEM; or the team is broken: then done is not called. */
gp_status team_submit(team_unit **out, gp_team *team, const team_call *call, const team_terms *terms,
                      team_done_fn done, void *context, gp_error *err);

/* Cancel a unit.  Not begun: it ends now (done is called at the next drive, with GP_ECANCELED).  Running: its task is
 * asked to end; its worker is replaced after 1 s. */
void team_unit_cancel(gp_team *team, team_unit *unit);

/* Submit a call for one worker and wait for its end: the outcome's status and sentence.
 *   out  its payload; may be NULL */
gp_status team_ask(gp_team *team, uint32_t worker, const team_call *call, team_bytes *out, gp_error *err);

uint64_t team_new_id(gp_team *team);

/* ---- broadcasts ---- */

typedef struct team_broadcast team_broadcast;

/* team_broadcast_add -- send a call to that worker (0: to all) and to each that replaces it, in the order of adding.  Does
 * not wait. */
gp_status team_broadcast_add(team_broadcast **out, gp_team *team, const team_call *call, uint32_t worker,
                             gp_error *err);
/* Wait until every worker has answered, except those that run a call: they execute the broadcast before any later call.
 * The first error, "worker 2: ...". */
gp_status team_broadcast_wait(gp_team *team, team_broadcast *broadcast, gp_error *err);
/* Add a broadcast to all workers and wait for it; a worker's refusal removes it. */
gp_status team_broadcast_run(team_broadcast **out, gp_team *team, const team_call *call, gp_error *err);
/* The first error of a worker so far.  GP_OK: none, though answers may be missing. */
gp_status team_broadcast_refused(const team_broadcast *broadcast, gp_error *err);
/* Send it to no further worker; accepts NULL.  Its effects on workers remain. */
void team_broadcast_remove(gp_team *team, team_broadcast *broadcast);

/* ---- workers ---- */

/* Whether its link is up; false between a death and the replacement. */
bool team_worker_up(const gp_team *team, uint32_t worker);
/* The worker's index in the pool: in `gradpool status`, log files and messages of the scheduler. */
uint32_t team_worker_index(const gp_team *team, uint32_t worker);
enum { TEAM_NAME_BYTES = 64 };
/* Write how messages name a worker: "worker 1", or "worker 1 (3 in the pool)" when the two indices differ. */
const char *team_worker_name(const gp_team *team, uint32_t worker, char name[TEAM_NAME_BYTES]);
uint32_t team_generation(const gp_team *team); /* of the lease: groups of blocks form within one */

/* ---- functions ---- */

struct gp_function {
    gp_team *team;
    uint32_t number; /* on the workers */
    char name[GP_TASK_NAME_MAX];
};

#endif
