/* launch.h -- find the scheduler of a pool, or start it, without a race. */
#ifndef GP_LAUNCH_H
#define GP_LAUNCH_H

#include "client/gradpool.h"
#include "proto/local/door.h"
#include "proto/local/places.h"

/* gp_launch_find -- knock at the scheduler's door, and wait by a patience that is used up; *door is owned by the caller.
 * GP_ENOPOOL: nobody is there. */
gp_status gp_launch_find(int *door, gp_door_reply *reply, const gp_places *places, const uint8_t session[16],
                         gp_patience *patience, gp_error *err);

/* gp_launch -- find it, or start one and wait until it answers.  Starters take the pool's start lock in turn, so
 * of any number that come at once one starts a scheduler and all attach to it; the scheduler's own lock makes a
 * second one impossible even so.  One that has just been started is given some time more to let us in.
 * *started: whether this call began a pool; false too when it started a scheduler that goes on with the workers of one
 * that died. */
gp_status gp_launch(int *door, gp_door_reply *reply, bool *started, const gp_places *places,
                    const gp_pool_options *options, const uint8_t session[16], gp_patience *patience,
                    gp_error *err);

#endif
