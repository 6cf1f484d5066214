/* door_wire.h -- inside proto/: reading one request, for both sides of a door. */
#ifndef GP_DOOR_WIRE_H
#define GP_DOOR_WIRE_H

#include "proto/local/door.h"

/* Does not block.  *fd is -1 or owned by the caller.  GP_ETIMEDOUT: nothing waits. */
gp_status gp_door_request_read(int door_fd, gp_door_request *request, int *fd, gp_error *err);

#endif
