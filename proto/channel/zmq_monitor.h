/* Read the connection events of a ZeroMQ socket. Internal to proto/.
 *
 * Only the thread of that socket may call these functions. */
#ifndef GP_ZMQ_MONITOR_H
#define GP_ZMQ_MONITOR_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/error.h"

typedef struct gp_zmq_monitor {
    void *watched;
    void *events; /* NULL: not monitoring */
} gp_zmq_monitor;

/* Start to monitor a socket.
 *
 *   events  ZMQ_EVENT_* mask
 *   what    name of the socket for the error message, for example "a link"
 *
 * GP_ELIMIT: no socket or memory for the monitor. */
gp_status gp_zmq_monitor_open(gp_zmq_monitor *out, void *socket, int events, const char *what, gp_error *err);

/* Get the next pending event. *value is a descriptor or an errno, see zmq_socket_monitor(3). Return
 * false if no event is pending. */
bool gp_zmq_monitor_next(gp_zmq_monitor *monitor, uint16_t *event, uint32_t *value);

/* Stop monitoring; call it before closing the socket. Safe on a monitor that is not open. */
void gp_zmq_monitor_close(gp_zmq_monitor *monitor);

#endif
