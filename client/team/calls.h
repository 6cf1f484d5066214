/* calls.h: internal interface of a team for futures, loops and SPMD blocks.
 *
 *   futures, loops, blocks --team_submit()--> units --dispatch--> rings of the workers
 *            ^-------- done(outcome) ----------'                        |
 *            '---------------------- answers <-------------------------'
 *
 * A *unit* is one call record for one worker. A unit waits until any worker, or the chosen one, has
 * room. The team sends it to the worker and receives the answer. If the worker fails before the
 * answer, the unit moves to another worker. The thread that drives the team calls `done` exactly
 * once per unit. `done` may submit, cancel and copy; it must not drive or free the team.
 *
 * A *broadcast* (an object, a function, a value, an open loop) goes to every worker, and to each
 * replacement before all units that are sent to it later.
 *
 * Workers have numbers from 1 to gp_team_size(), also in the public interface;
 * team_worker.index is the number in the pool, as in `gradpool status`, log files and scheduler
 * messages. Every public function begins with team_enter() and ends with team_leave(); call the
 * functions here between the two. */
#ifndef GP_TEAM_CALLS_H
#define GP_TEAM_CALLS_H

#include "client/gradpool.h"
#include "proto/task/task_wire.h"

typedef struct team_unit team_unit;

/* ---- call.c: a call as described by its sender, and copies that outlive
 * the sender's memory ---- */

/* payload bytes that a copy can store inside its own structure */
enum { CALL_IN_PLACE_MAX = 32 };

/* Fields of gp_call that the sender sets, and the payload. task_wire.h defines them for each
 * kind. */
typedef struct team_call {
    uint8_t kind;  /* gp_call_kind */
    bool borrowed; /* the payload outlives the call; false: call_own() copies it */
    uint16_t flags;
    uint32_t function; /* function or loop number */
    uint32_t count;
    uint32_t attempt; /* from 1; 0: set by the team */
    int64_t first;

    /* 0: assign a new id. All ranks of an SPMD block share one id from team_new_id(). */
    uint64_t id;
    uint64_t value;
    const void *payload;

    /* a payload above GP_LINK_INLINE_MAX becomes a blob, unless `shared` is set */
    size_t bytes;
    const gp_broadcast *shared; /* the blob, kept alive by copies of the call; NULL: none */
} team_call;

/* Replace the payload of a call by a copy that the call owns, until call_free(). On an error the
 * call owns nothing: do not pass it to call_free().
 *   heap_max  a longer payload becomes a memory file at once; the descriptor stays open until
 *             call_free()
 *   in_place  [CALL_IN_PLACE_MAX] buffer for a short payload, referenced by *call; NULL: none
 * GP_ELIMIT: the call has a blob and also more than GP_LINK_INLINE_MAX bytes. GP_ENOMEM: out of
 * memory. GP_EIO: cannot create or seal a memory file. */
gp_status call_own(team_call *call, size_t heap_max, void *in_place, gp_error *err);

/* Move an owned payload into a memory file if it is too long for the ring. Return false if that
 * fails; retry later. */
bool call_share(team_call *call);

/* Free the payload that a call owns. */
void call_free(team_call *call, const void *in_place);

/* ---- units and outcomes ---- */

/* Handling of a call whose worker fails. */
typedef enum team_loss {
    TEAM_LOSS_RERUN, /* move to another worker, unless the allowed number of attempts is used up */
    TEAM_LOSS_STALE, /* end with GP_ESTALE: the call concerns only that process */

    /* if started: end with GP_EPEER and the worker's exit cause; otherwise end with GP_ESTALE */
    TEAM_LOSS_FATAL,
} team_loss;

/* Requirements and limits of a call. Initialize with zeros. */
typedef struct team_terms {
    uint32_t worker;  /* run only on this worker; 0: any */
    uint32_t needs;   /* class of needs (needs.h); 0: none */
    int32_t priority; /* -1000 to 1000 */
    bool urgent;      /* run before everything that waits, at any priority; only with `worker` */
    team_loss loss;
    uint32_t attempts; /* maximum number of starts when workers fail; 0: 3 */
    uint32_t retries;  /* repeats after an error of the call itself */
    int64_t timeout_ms;
    bool cancel_at_once; /* no grace period after a cancel or time limit */
} team_terms;

/* Result of a unit; valid only during the callback. */
typedef struct team_outcome {
    gp_status status;
    const char *sentence; /* error message that names the worker; "" with GP_OK */
    uint32_t worker;      /* worker of the last attempt; 0: never started */
    uint32_t attempts;    /* number of starts */
    uint32_t progress;    /* without an answer: index of the loop iteration that ran last */
    bool over_limit;      /* canceled because of the time limit */

    /* checked private copy of the answer header; NULL: no worker answered */
    const gp_answer *answer;
    const void *data; /* payload of the answer, inline or mapped */
    size_t bytes;
    int64_t begun_ns, ended_ns; /* CLOCK_MONOTONIC of this process; 0: never started */

    /* private: owner of `data`, if it came as a blob */
    struct team_bytes *blob;
} team_outcome;

typedef void (*team_done_fn)(gp_team *team, void *context, const team_outcome *outcome);

/* Bytes received from a worker, owned by the holder: heap memory or a mapping. */
typedef struct team_bytes {
    void *data;
    size_t bytes;
    size_t mapped; /* mapping size; 0: on the heap */
} team_bytes;

/* Take the payload of an outcome. A blob is moved without a copy; an inline payload is copied.
 * GP_ENOMEM: out of memory. */
gp_status team_bytes_take(team_bytes *out, const team_outcome *outcome, gp_error *err);
void team_bytes_deinit(team_bytes *bytes);

/* Copy text from a worker. Control characters become spaces; the text is cut to `room`. */
void team_text_copy(char *out, size_t room, const unsigned char *text, size_t bytes);

/* ---- calls ---- */

/* Begin a public function: take the lock, unless this thread is in a callback of the team. */
void team_enter(gp_team *team);

/* End a public function: start the background thread if work is left, and release the lock. */
void team_leave(gp_team *team);

/* Return whether this thread is in a callback of the team: it already has the lock, and must not
 * wait. */
bool team_in_callback(const gp_team *team);

/* Mark this thread as being in a callback. Return the previous mark, for team_callback_end(). */
const gp_team *team_callback_begin(const gp_team *team);
void team_callback_end(const gp_team *before);

/* Return the error that broke the team, such as the end of the lease or a scheduler exit. GP_OK:
 * none. */
gp_status team_check(const gp_team *team, gp_error *err);

/* Check a worker number. 0 is valid. GP_EINVAL: the team has no such worker. */
gp_status team_check_worker(const gp_team *team, uint32_t worker, gp_error *err);

/* Check the argument of a call, loop or block: an address with its size, a broadcast, or nothing.
 * With a broadcast, `bytes` is 0 or the size of the broadcast. GP_EINVAL: anything else. */
gp_status team_check_argument(const void *argument, size_t bytes, const gp_broadcast *shared, gp_error *err);

/* Process answers and messages, and sleep in between, until until(context) returns true. The first
 * check comes before any work.
 *   timeout_ms  -1: no limit; 0: process only pending messages
 * GP_ETIMEDOUT: not done in time. GP_ECANCELED: the team's stop flag is set. GP_ESTATE: called from
 * a callback. GP_EPEER and others: the team is broken, and all units have ended. */
gp_status team_poll(gp_team *team, bool (*until)(void *context), void *context, int64_t timeout_ms,
                    gp_error *err);

/* Like team_poll(), but extend the limit by the time in which this process was suspended. */
gp_status team_poll_extended(gp_team *team, bool (*until)(void *context), void *context, int64_t ms,
                             gp_error *err);

/* Like team_poll() without a limit, ignoring the stop flag. Use it to wait for canceled units
 * before their memory is freed. It returns at the latest when their workers have been replaced. */
void team_poll_canceled(gp_team *team, bool (*until)(void *context), void *context);

/* ---- units ---- */

/* Submit a call, and send it at once if a worker has room.
 *   out   set to the unit, valid until `done` is called; may be NULL
 *   done  may be NULL
 * GP_ENOMEM: out of memory. Other errors: the team is broken. On any error `done` is not called. */
gp_status team_submit(team_unit **out, gp_team *team, const team_call *call, const team_terms *terms,
                      team_done_fn done, void *context, gp_error *err);

/* Cancel a unit. Not started: it ends at once, and the next drive calls `done` with GP_ECANCELED.
 * Running: the task receives a stop request, and the worker is replaced after 1 s, or at once with
 * cancel_at_once. */
void team_unit_cancel(gp_team *team, team_unit *unit);

/* Submit a call to one worker, wait for the end, and return the status and message of the outcome.
 *   out  set to the payload; may be NULL */
gp_status team_ask(gp_team *team, uint32_t worker, const team_call *call, team_bytes *out, gp_error *err);

/* Return a new call id, unique in the team. */
uint64_t team_new_id(gp_team *team);

/* ---- broadcasts ---- */

typedef struct team_broadcast team_broadcast;

/* Send a call to one worker (0: all) and to each of its replacements, in the order of adding. Does
 * not wait. */
gp_status team_broadcast_add(team_broadcast **out, gp_team *team, const team_call *call, uint32_t worker,
                             gp_error *err);

/* Wait until every worker has answered, except workers that run a call: they execute the broadcast
 * before any later call. Return the first error, in the form "worker 2: ...". */
gp_status team_broadcast_wait(gp_team *team, team_broadcast *broadcast, gp_error *err);

/* Add a broadcast to all workers and wait for it. If a worker rejects it, remove it again. */
gp_status team_broadcast_run(team_broadcast **out, gp_team *team, const team_call *call, gp_error *err);

/* Return the first error of a worker so far. GP_OK: none yet, though answers may be missing. */
gp_status team_broadcast_refused(const team_broadcast *broadcast, gp_error *err);

/* Stop sending a broadcast to replacements. The effects on workers remain. Accepts NULL. */
void team_broadcast_remove(gp_team *team, team_broadcast *broadcast);

/* ---- workers ---- */

enum { TEAM_NAME_BYTES = 64 };

/* Write a worker name for messages: "worker 1", or "worker 1 (3 in the pool)" if the two numbers
 * differ. */
const char *team_worker_name(const gp_team *team, uint32_t worker, char name[TEAM_NAME_BYTES]);

/* ---- functions ---- */

struct gp_function {
    gp_team *team;
    uint32_t number; /* number of the function on the workers */
    char name[GP_TASK_NAME_MAX];
};

#endif
