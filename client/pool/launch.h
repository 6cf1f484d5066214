/* launch.h -- find the scheduler of a pool, or start it, without a race. */
#ifndef GP_LAUNCH_H
#define GP_LAUNCH_H

#include "client/gradpool.h"
#include "common/base/system/timeout.h"
#include "proto/local/door.h"
#include "proto/local/places.h"

/* Connect to the scheduler's control socket and wait for its reply. The caller owns *door.
 * GP_ENOPOOL: no scheduler listens. */
gp_status gp_launch_find(int *door, gp_door_reply *reply, const gp_places *places, const uint8_t session[16],
                         gp_timeout timeout, gp_error *err);

/* Find the scheduler, or start one and wait until it replies. The pool's start lock serialises
 * processes that start one, so of any number at once one starts a scheduler and all connect to it.
 * The scheduler's own lock excludes a second scheduler in any case. *timeout is extended where a
 * scheduler was started and little time is left to connect to it. *started: this call created the
 * pool; false also if it started a scheduler that adopted the workers of a failed one. */
gp_status gp_launch(int *door, gp_door_reply *reply, bool *started, const gp_places *places,
                    const gp_pool_options *options, const uint8_t session[16], gp_timeout *timeout,
                    gp_error *err);

#endif
