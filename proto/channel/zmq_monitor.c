/* Connection events of a socket through an inproc PAIR (zmq_monitor.h). */
#include "proto/channel/zmq_monitor.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <zmq.h>

#include "proto/channel/zmq_context.h"

gp_status gp_zmq_monitor_open(gp_zmq_monitor *out, void *socket, int events, const char *what, gp_error *err)
{
    static _Atomic unsigned serial;
    char address[64];
    int none = 0;
    void *context = gp_zmq_acquire(err);

    if (context == NULL)
        return GP_ELIMIT;
    snprintf(address, sizeof(address), "inproc://gradpool.monitor.%u", ++serial);
    *out = (gp_zmq_monitor){ .watched = socket, .events = zmq_socket(context, ZMQ_PAIR) };

    /* No queue limit: with one, ZeroMQ's I/O thread would block until this thread reads events. */
    if (out->events != NULL && zmq_socket_monitor(socket, address, events) == 0 &&
        zmq_setsockopt(out->events, ZMQ_RCVHWM, &none, sizeof(none)) == 0 &&
        zmq_setsockopt(out->events, ZMQ_LINGER, &none, sizeof(none)) == 0 &&
        zmq_connect(out->events, address) == 0)
        return GP_OK;
    gp_fail(err, GP_ELIMIT, "cannot monitor %s: %s", what, zmq_strerror(errno));
    if (out->events == NULL)
        gp_zmq_release();
    gp_zmq_monitor_close(out);
    return GP_ELIMIT;
}

/* An event has two frames: u16 event and u32 value in the first, the address in the second. */
bool gp_zmq_monitor_next(gp_zmq_monitor *monitor, uint16_t *event, uint32_t *value)
{
    zmq_msg_t frame;
    bool found = false;

    *event = 0;
    *value = 0;
    for (bool more = true; more;) {
        zmq_msg_init(&frame);
        if (zmq_msg_recv(&frame, monitor->events, ZMQ_DONTWAIT) < 0) {
            zmq_msg_close(&frame);
            if (errno == EINTR)
                continue;
            return found;
        }
        if (!found && zmq_msg_size(&frame) >= 6) {
            memcpy(event, zmq_msg_data(&frame), 2);
            memcpy(value, (const uint8_t *)zmq_msg_data(&frame) + 2, 4);
        }
        found = true;
        more = zmq_msg_more(&frame);
        zmq_msg_close(&frame);
    }
    return found;
}

void gp_zmq_monitor_close(gp_zmq_monitor *monitor)
{
    if (monitor->events == NULL)
        return;
    zmq_socket_monitor(monitor->watched, NULL, 0);
    zmq_close(monitor->events);
    monitor->events = NULL;
    gp_zmq_release();
}
