/* broadcast.h: calls to every worker of a team, repeated to each replacement: objects, functions,
 * values and open loops. calls.h declares the functions for their users. */
#ifndef GP_TEAM_BROADCAST_H
#define GP_TEAM_BROADCAST_H

#include "client/team/calls.h"

struct team_broadcast {
    team_broadcast *next;      /* next broadcast in the order of adding */
    team_call call;            /* copy of the call; its id is 0 */
    uint64_t wanted, answered; /* bit w - 1: worker w */
    uint32_t pending;          /* units in flight */

    /* workers that failed while executing this broadcast, since the last answer */
    uint32_t deaths;
    bool removed;     /* removed by its owner; freed when `pending` reaches 0 */
    gp_status status; /* GP_ETIMEDOUT: not every worker has answered yet */
    gp_error error;
};

/* Submit all broadcasts to a new worker, before any other call. */
void broadcasts_replay(gp_team *team, uint32_t worker);

/* Fail every broadcast that still waits for an answer. */
void broadcasts_fail(team_broadcast *first, const gp_error *why);
void broadcasts_free(gp_team *team);

#endif
