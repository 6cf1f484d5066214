/* Read requests from a control socket; shared by both sides. Internal to proto/. */
#ifndef GP_DOOR_WIRE_H
#define GP_DOOR_WIRE_H

#include "proto/local/door.h"

/* Read one pending request. Never blocks. The caller owns *fd; -1: no descriptor was sent.
 *
 * GP_ETIMEDOUT: no request is pending.
 * GP_EPEER: the peer closed the connection.
 * GP_EPROTO: malformed packet. */
gp_status gp_door_request_read(int door_fd, gp_door_request *request, int *fd, gp_error *err);

#endif
