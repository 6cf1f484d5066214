/* zmq_monitor.h -- inside proto/: what ZeroMQ tells of the connections of one socket.
 *
 * It is of the thread of that socket. */
#ifndef GP_ZMQ_MONITOR_H
#define GP_ZMQ_MONITOR_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/error.h"

typedef struct gp_zmq_monitor {
    void *watched;
    void *events; /* NULL: nothing is heard */
} gp_zmq_monitor;

/* gp_zmq_monitor_open -- hear of `events`, ZMQ_EVENT_*, of the socket; what: "a link", for the sentence.  GP_ELIMIT. */
gp_status gp_zmq_monitor_open(gp_zmq_monitor *out, void *socket, int events, const char *what, gp_error *err);

/* gp_zmq_monitor_next -- the next event that waits; value: its descriptor or errno (zmq_socket_monitor(3)). */
bool gp_zmq_monitor_next(gp_zmq_monitor *monitor, uint16_t *event, uint32_t *value);

void gp_zmq_monitor_close(
    gp_zmq_monitor *monitor); /* before the socket; one that was not opened may be closed */

#endif
