/* futures.h: the futures of a team: their memory, and the ended ones for gp_team_as_completed(). */
#ifndef GP_TEAM_FUTURES_H
#define GP_TEAM_FUTURES_H

#include "client/team/unit.h"

typedef struct future_slab future_slab;

/* Futures of one team. Initialize with zeros. */
typedef struct team_futures {
    future_slab *slabs;
    team_unit *free; /* units for unused futures, linked by `next` */

    /* ended futures that are neither returned by gp_team_as_completed() nor freed */
    unit_list ended;

    /* futures that have not ended and will be returned by gp_team_as_completed() */
    uint64_t coming;
} team_futures;

/* Store the result of a future's unit and run the callback. */
void future_ended(gp_team *team, team_unit *unit, const team_outcome *outcome);
void futures_deinit(team_futures *futures);

#endif
