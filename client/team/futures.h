/* futures.h -- the futures of a team: their memory, and those that have ended and wait for gp_team_as_completed(). */
#ifndef GP_TEAM_FUTURES_H
#define GP_TEAM_FUTURES_H

#include "client/team/unit.h"

typedef struct future_slab future_slab;

/* Zero-initialise. */
typedef struct team_futures {
    future_slab *slabs;
    team_unit *free; /* units of unused futures, linked by `next` */
    unit_list ended; /* and neither given by gp_team_as_completed() nor freed */
    uint64_t coming; /* futures that have not ended and that gp_team_as_completed() will give */
} team_futures;

/* Keep the result of a unit that is a future, and run its callback. */
void future_ended(gp_team *team, team_unit *unit, const team_outcome *outcome);
void futures_deinit(team_futures *futures);

#endif
