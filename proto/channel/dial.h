/* Connection attempts to another host: wait for the link, diagnose a failure, detect a broken link.
 * Internal to proto/.
 *
 * zmq_connect() reports neither: it retries forever. The socket monitor reports each attempt. This
 * code uses its events to distinguish a wrong key, a closed port, and a port that accepts
 * connections without a reply, each as early as possible.
 *
 * Only the thread of the connecting socket may call these functions. */
#ifndef GP_DIAL_H
#define GP_DIAL_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/error.h"
#include "proto/channel/zmq_monitor.h"

enum {
    /* handshake limit, for connecting sockets and for listeners for other hosts */
    GP_DIAL_HANDSHAKE_MS = 2000,
    GP_DIAL_RETRY_MS = 100,
};

/* Events of one link; zero-initialize. A failed handshake counts as
 *
 *   closed      the peer or the network closed the connection
 *   failed      the peer sent a wrong reply
 *   unanswered  this side gave up after GP_DIAL_HANDSHAKE_MS
 *
 * If this process was suspended and reads start and end of a handshake together, the handshake
 * counts as unanswered: a peer that closes a connection does so early. */
typedef struct gp_dial {
    gp_zmq_monitor monitor;
    bool connected, turned_away;
    int64_t heard_ms;     /* last time the monitor was read; events read next are not older */
    int64_t connected_ms; /* lower bound for the time of the last connect */
    int64_t ended_ms;     /* when the link ended, if ZeroMQ has not reported a retry; 0: neither */
    bool broken;          /* the link ended since the last gp_channel_broke() */
    unsigned closed, failed, unanswered, refused;
} gp_dial;

/* Start to monitor a socket; call it before zmq_connect(). events: ZMQ_EVENT_*. GP_ELIMIT: no
 * resources. */
gp_status gp_dial_begin(gp_dial *dial, void *socket, int events, gp_error *err);

/* Wait up to timeout_ms until the link is up. Without gp_dial_begin() (a local link) the only
 * failure is a timeout.
 *
 * GP_EPEER: no reply.
 * GP_EPERM: the peer refuses the key of this process, or its own key is not the expected one. If
 * the handshake ended without proof of either, *unproved is set to true.
 * GP_EIO: the socket is unusable. */
gp_status gp_dial_wait(gp_dial *dial, void *socket, const char *endpoint, int timeout_ms, bool *unproved,
                       gp_error *err);

/* Stop monitoring; call it before closing the socket. Safe without gp_dial_begin(). */
void gp_dial_end(gp_dial *dial);

#endif
