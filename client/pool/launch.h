/* launch.h: find the scheduler of a pool, or start one, without races between clients. */
#ifndef GP_LAUNCH_H
#define GP_LAUNCH_H

#include "client/gradpool.h"
#include "common/base/system/timeout.h"
#include "proto/local/door.h"
#include "proto/local/places.h"

/* Connect to the scheduler's control socket and wait for the reply. The caller owns *door.
 * GP_ENOPOOL: no scheduler listens. */
gp_status gp_launch_find(int *door, gp_door_reply *reply, const gp_places *places, const uint8_t session[16],
                         gp_timeout timeout, gp_error *err);

/* Find the scheduler, or start one and wait until it replies. The start lock of the pool serializes
 * starting processes: of any number of callers, one starts a scheduler and all connect to it. The
 * scheduler's own lock also excludes a second scheduler.
 *   door     set to the control socket, owned by the caller
 *   started  set to whether this call created the pool; false also if the new scheduler adopted the
 *            workers of a failed one
 *   timeout  extended if a scheduler was started and little time is left to connect */
gp_status gp_launch(int *door, gp_door_reply *reply, bool *started, const gp_places *places,
                    const gp_pool_options *options, const uint8_t session[16], gp_timeout *timeout,
                    gp_error *err);

#endif
