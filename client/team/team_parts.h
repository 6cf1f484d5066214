/* team_parts.h -- inside a team: what futures, loops and blocks are made of.
 *
 *   futures, loops, blocks --team_submit()--> units --dispatch--> rings of the workers
 *            ^-------- done(outcome) ----------'                        |
 *            '---------------------- answers <-------------------------'
 *
 * A *unit* is one record for one worker: kept here until a worker is free (or the one it wants), sent, answered, and
 * given again to another worker when that one dies before it answered.  Its `done` is called once, whatever happens,
 * on the thread that drives the team; it may submit, cancel and copy, and must not drive or free the team.
 * Something *lasting* (an object, a function, a value, an open loop) is said to every worker, and again to each that
 * replaces one, before any unit that is sent there later.
 *
 * Workers are numbered 1 .. team_size(), for users too; team_worker_index() is the pool's number.  Every public function begins with team_enter() and ends with
 * team_leave(); all below is called between the two. */
#ifndef GP_TEAM_PARTS_H
#define GP_TEAM_PARTS_H

#include "client/gradpool.h"
#include "proto/task/task_wire.h"

typedef struct team_unit team_unit;

/* The part of a record that its sender chooses (task_wire.h has the meaning by kind). */
typedef struct team_call {
    uint16_t kind; /* gp_call_kind */
    uint16_t flags;
    uint32_t function; /* team_function_number(), or the number of a loop */
    int64_t first;
    uint32_t count;
    uint32_t attempt; /* 0 = counted here, from 1 */
    uint64_t id;      /* 0 = a new one; of a block: the same for all its ranks, from team_new_id() */
    uint64_t value;
    const void *payload;
    size_t bytes;            /* more than GP_LINK_INLINE_MAX travel as a blob, unless there is `shared` */
    bool borrowed;           /* payload stays where it is until `done`; false: it is copied */
    const gp_shared *shared; /* the blob; NULL = none.  Kept alive by the unit */
} team_call;

/* Where and how often; zero-initialise. */
typedef struct team_terms {
    uint32_t worker;   /* only on this one; 0 = any */
    uint32_t needs;    /* GP_NEEDS_... of the worker's device */
    int32_t priority;  /* -1000 .. 1000 */
    bool urgent;       /* before everything that waits, whatever its priority; for a given worker only */
    uint32_t attempts; /* begun at most so often when workers die; 0 = 3 */
    uint32_t retries;  /* begun again so often after an error of its own */
    int64_t run_ms_max;
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

/* Why nothing can be run any more: the lease ended, the scheduler is gone; GP_OK = go on. */
gp_status team_check(const gp_team *team, gp_error *err);

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

/* ---- units ---- */

/* team_submit -- hand over a call; what can be sent is sent before it returns.
 *   out  valid until `done` is called; may be NULL
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

/* ---- what lasts ---- */

typedef struct team_lasting team_lasting;

/* team_lasting_add -- say it to that worker (0 = all) and to whoever replaces it, in the order of adding.  Does not wait. */
gp_status team_lasting_add(team_lasting **out, gp_team *team, const team_call *call, uint32_t worker,
                           gp_error *err);
/* Wait until every worker has answered, but for those that are busy with a call: they will have it before any later
 * one.  The first error, "worker 2: ...". */
gp_status team_lasting_wait(gp_team *team, team_lasting *lasting, gp_error *err);
/* The same without waiting: GP_ETIMEDOUT while an answer is missing. */
gp_status team_lasting_check(const team_lasting *lasting, gp_error *err);
/* Say it no more; accepts NULL.  What workers have of it stays there. */
void team_lasting_remove(gp_team *team, team_lasting *lasting);

/* ---- workers ---- */

uint32_t team_size(const gp_team *team);
/* Whether its link is up; false between a death and the replacement. */
bool team_worker_up(const gp_team *team, uint32_t worker);
bool team_all_up(const gp_team *team);
/* The worker's index in the pool: in `gradpool status`, log files and messages of the scheduler. */
uint32_t team_worker_index(const gp_team *team, uint32_t worker);
enum { TEAM_NAME_BYTES = 64 };
/* Write what messages call a worker: "worker 1", or "worker 1 (3 in the pool)" when the two indices differ.
 *   pid  named too; 0: none */
const char *team_worker_name(const gp_team *team, uint32_t worker, uint32_t pid, char name[TEAM_NAME_BYTES]);
uint32_t team_generation(const gp_team *team); /* of the lease: groups of blocks form within one */

/* The running call of that id should end: its flag is set and what it waits for fails. */
void team_worker_stop(gp_team *team, uint32_t worker, uint64_t id);
/* It does not end: kill and replace the worker.  reason: for the log and the sentence, "it did not end within 1 s". */
void team_worker_replace(gp_team *team, uint32_t worker, const char *reason);

/* ---- functions ---- */

struct gp_function {
    gp_team *team;
    uint32_t number; /* on the workers */
    char name[GP_TASK_NAME_MAX];
};

static inline uint32_t team_function_number(const gp_function *function)
{
    return function->number;
}

#endif
