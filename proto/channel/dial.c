#include "proto/channel/channel_parts.h"

#include <errno.h>
#include <zmq.h>

#include "common/base/clock.h"
#include "common/base/system/timeout.h"

enum {
    HANDSHAKES_FAILED_MAX = 3,
    CONNECTS_REFUSED_MAX = 4, /* reached within about a second */
};

gp_status gp_dial_begin(gp_dial *dial, void *socket, int events, gp_error *err)
{
    dial->received_ms = gp_now_ms();
    return gp_zmq_monitor_open(&dial->monitor, socket, events, "a link", err);
}

void gp_dial_end(gp_dial *dial)
{
    gp_zmq_monitor_close(&dial->monitor);
}

/* Read all pending monitor events and update the counters. */
static void dial_handle(gp_dial *dial)
{
    uint16_t event;
    uint32_t value;

    while (gp_zmq_monitor_next(&dial->monitor, &event, &value)) {
        if (event == ZMQ_EVENT_CONNECTED) {
            dial->connected = true;
            dial->connected_ms = dial->received_ms;
        }
        dial->broken |= event == ZMQ_EVENT_DISCONNECTED;
        if (event == ZMQ_EVENT_DISCONNECTED)
            dial->ended_ms = gp_now_ms();
        else if (event == ZMQ_EVENT_CONNECT_RETRIED || event == ZMQ_EVENT_CONNECT_DELAYED ||
                 event == ZMQ_EVENT_CONNECTED)
            dial->ended_ms = 0;
        dial->refused += event == ZMQ_EVENT_CONNECT_RETRIED;
        dial->turned_away |= event == ZMQ_EVENT_HANDSHAKE_FAILED_AUTH;
        if (event == ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL &&
            gp_now_ms() - dial->connected_ms >= GP_DIAL_HANDSHAKE_MS / 2)
            dial->unanswered++;
        else if (event == ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL)
            dial->closed++;
        else if (event == ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL)
            dial->failed++;
    }
    dial->received_ms = gp_now_ms();
}

/* Decide whether to keep waiting. GP_OK: the link can still come up. Otherwise fail with a
 * diagnosis. */
static gp_status dial_judge(const gp_dial *dial, const char *endpoint, bool time_is_over, int timeout_ms,
                            bool *unproved, gp_error *err)
{
    unsigned ended = dial->closed + dial->failed;

    if (dial->turned_away)
        return gp_fail(err, GP_EPERM,
                       "the pool at %s rejects this key: it is not in the pool's list (run `gradpool key "
                       "add` there), was removed, or is blocked after protocol errors",
                       endpoint);
    if (ended > 0 && (time_is_over || ended + dial->unanswered >= HANDSHAKES_FAILED_MAX)) {
        *unproved = true;
        if (dial->failed == 0)
            return gp_fail(err, GP_EPERM,
                           "%s closed the connection before the handshake: --server-key-file is of another "
                           "pool, the pool's key was rotated, too many new connections are open there, or "
                           "the network closes connections",
                           endpoint);
        return gp_fail(
            err, GP_EPERM,
            "%s cannot prove that it owns the key in --server-key-file: the file is of another pool, the "
            "pool's key was rotated, another program listens there, or the network closes connections",
            endpoint);
    }
    if (dial->unanswered >= HANDSHAKES_FAILED_MAX || (time_is_over && dial->connected))
        return gp_fail(err, GP_EPEER,
                       "%s accepts connections but does not reply: it hangs, the network drops data, or this "
                       "key is blocked for ten seconds after protocol errors",
                       endpoint);
    if (dial->refused >= CONNECTS_REFUSED_MAX && !dial->connected)
        return gp_fail(err, GP_EPEER, "connection refused: no process listens at %s", endpoint);
    if (time_is_over)
        return gp_fail(err, GP_EPEER, "no reply from %s within %d ms", endpoint, timeout_ms);
    return GP_OK;
}

gp_status gp_dial_wait(gp_dial *dial, void *socket, const char *endpoint, int timeout_ms, bool *unproved,
                       gp_error *err)
{
    gp_timeout timeout = gp_timeout_in(timeout_ms);
    zmq_pollitem_t items[2] = { { .socket = socket, .events = ZMQ_POLLOUT },
                                { .socket = dial->monitor.events, .events = ZMQ_POLLIN } };

    for (;;) {
        /* Read the time before polling: this process may have been suspended. */
        bool time_is_over = gp_timeout_left(timeout) == 0;
        int wait = gp_timeout_slice(timeout);

        if (dial->ended_ms != 0 && wait > GP_DIAL_RETRY_MS)
            wait = GP_DIAL_RETRY_MS;
        int ready = zmq_poll(items, dial->monitor.events != NULL ? 2 : 1, wait);
        gp_status status;

        if (ready > 0 && items[0].revents != 0)
            return GP_OK;
        if (ready < 0 && errno != EINTR)
            return gp_fail(err, GP_EIO, "cannot wait for %s: %s", endpoint, zmq_strerror(errno));
        if (dial->monitor.events != NULL) {
            dial_handle(dial);

            /* Reconnect if ZeroMQ does not: after a protocol error, for example because the network
             * changed a byte, it does not retry. zmq_disconnect() fails harmlessly if ZeroMQ has
             * already dropped the connection. */
            if (dial->ended_ms != 0 && gp_now_ms() - dial->ended_ms >= GP_DIAL_RETRY_MS) {
                dial->ended_ms = 0;
                zmq_disconnect(socket, endpoint);
                zmq_connect(socket, endpoint);
            }
        }
        status = dial_judge(dial, endpoint, ready == 0 && time_is_over, timeout_ms, unproved, err);
        if (status != GP_OK)
            return status;
    }
}

bool gp_channel_broke(gp_channel *channel)
{
    gp_dial *dial = &channel->dial;

    if (dial->monitor.events == NULL)
        return false;
    dial_handle(dial);
    bool broke = dial->broken;

    dial->broken = false;
    return broke;
}
