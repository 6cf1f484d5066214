/* broadcast.h -- calls to every worker of a team, repeated to each worker that replaces one: objects, functions, values,
 * open loops.  calls.h has the functions for those who add them. */
#ifndef GP_TEAM_BROADCAST_H
#define GP_TEAM_BROADCAST_H

#include "client/team/calls.h"

struct team_broadcast {
    team_broadcast *next;      /* in the order of adding */
    team_call call;            /* a copy; its id is 0 */
    uint64_t wanted, answered; /* bit w - 1: worker w */
    uint32_t pending;          /* units in flight */
    uint32_t deaths;           /* workers that died executing it since one answered */
    bool removed;              /* freed when nothing is pending any more */
    gp_status status;          /* GP_ETIMEDOUT: not every worker has answered */
    gp_error error;
};

/* Submit all broadcasts to a new worker, before any other call. */
void broadcasts_replay(gp_team *team, uint32_t worker);
/* Fail every broadcast that a worker has not answered. */
void broadcasts_fail(team_broadcast *first, const gp_error *why);
void broadcasts_free(gp_team *team);

#endif
