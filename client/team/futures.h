/* futures.h: the futures of a team: their memory, and the ended ones for gp_team_as_completed(). */
#ifndef GP_TEAM_FUTURES_H
#define GP_TEAM_FUTURES_H

#include "client/team/unit.h"

typedef struct future_slab future_slab;
typedef struct futures_wait futures_wait;
typedef struct detach_writer detach_writer;

struct gp_future {
    /* must be first; after the end, unit.call.payload is the result or the error message */
    team_unit unit;
    gp_team *team;
    void (*done)(void *context, gp_future *future);
    void *context;
    futures_wait *wait; /* the gp_futures_wait() call that counts the end; NULL: none */

    int64_t submitted_ns, started_ns;
    union {
        struct result_key *result; /* until the end: entry of a detached future, see detach.h; NULL: none */
        int64_t ended_ns;          /* after the end */
    };
    uint16_t status;
    bool ended;
    bool mapped;   /* the result is a mapping; false: on the heap, or in the unit */
    bool released; /* gp_future_free() was called */
    bool listed;   /* linked into team_futures.ended */
    bool calling;  /* the callback is running */
    bool detached; /* gp_future_detach() was called */
};

/* Futures of one team. Initialize with zeros. */
typedef struct team_futures {
    future_slab *slabs;
    team_unit *free; /* units for unused futures, linked by `next` */

    /* ended futures that are neither returned by gp_team_as_completed() nor freed */
    unit_list ended;

    /* futures that have not ended and will be returned by gp_team_as_completed() */
    uint64_t coming;
    struct result_store *results; /* opened by the first detached future; NULL: none */
    detach_writer *writer;        /* stores outcomes in a thread; NULL: not started, see detach.c */
    uint32_t storing;             /* futures whose outcomes the writer stores */
    size_t storing_bytes;         /* size of these results */
    bool store_always;            /* the writer tries to store an outcome until the team ends */

    /* An outcome could not be stored. Until the writer has stored its queue, all outcomes go to the
     * writer at once: a try in the team may wait 10 s for the lock. */
    bool stalled;
} team_futures;

/* Submit a call as gp_parfeval() does.
 *   key  claimed entry in which the outcome is stored; NULL: none */
gp_status future_submit(gp_future **out, gp_team *team, const gp_parfeval_request *request,
                        const struct result_key *key, gp_error *err);

/* Store the result of a future's unit and run the callback. */
void future_ended(gp_team *team, team_unit *unit, const team_outcome *outcome);

/* The same after the result of a detached future has been stored for other processes. */
void future_finish(gp_team *team, team_unit *unit, const team_outcome *outcome);
void futures_deinit(team_futures *futures);

#endif
