/* Channel internals: the channel (channel.c, channel_messages.c), links to other hosts (dial.c),
 * and the connection guard of a listener for other hosts (connection_guard.c). */
#ifndef GP_CHANNEL_PARTS_H
#define GP_CHANNEL_PARTS_H

#include "common/base/memory/buffer.h"
#include "proto/channel/channel.h"
#include "proto/channel/zmq_monitor.h"
#include "proto/local/listen.h"

/* ---- dial.c ---- */

/* Connection attempts to another host: wait for the link, diagnose a failure, detect a broken link.
 * Internal to proto/.
 *
 * zmq_connect() reports neither: it retries forever. The socket monitor reports each attempt. This
 * code uses its events to distinguish a wrong key, a closed port, and a port that accepts
 * connections without a reply, each as early as possible.
 *
 * Only the thread of the connecting socket may call these functions. */

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
    int64_t received_ms;  /* last time the monitor was read; events read next are not older */
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

/* ---- connection_guard.c ---- */

/* Connection guard: counts, checks and closes the connections of a TCP listener. Internal to
 * proto/.
 *
 * ZeroMQ 4.3 delivers only whole messages of authenticated peers. It reports neither who is
 * connected nor a message that never ends, and it cannot disconnect one peer. The guard combines
 * three sources: the socket monitor gives the descriptor of each new connection, a message gives
 * the descriptor that it came from, and the kernel counts the bytes received on it. So a connection
 * that sends bytes but no message can be detected. shutdown(2) on the descriptor ends it, and
 * ZeroMQ then discards the partial message.
 *
 * A connection is closed if it
 *
 * - sends no complete message within 5 s
 * - sends 4 MiB without completing a message
 * - sends ten malformed messages with the same key; the key is also muted
 * - stays over the rate limit of its key; the key is also muted
 * - uses a key that was removed from the list
 *
 * Only the thread of the channel may call these functions. */

typedef struct gp_connection_guard gp_connection_guard;

/* Create a guard for `router`, a ROUTER bound to TCP endpoints only, and set the listening port.
 * Frames in this interface are zmq_msg_t. */
gp_status gp_connection_guard_open(gp_connection_guard **out, void *router, gp_zap *zap, gp_error *err);
void gp_connection_guard_set_port(gp_connection_guard *guard, uint16_t port);
void gp_connection_guard_close(
    gp_connection_guard *guard); /* Close the guard before the router; accepts NULL. */

/* Check a complete message of `bytes`; `frame` is any frame of it. GP_OK sets *owner to the key
 * owner.
 *
 * GP_EPERM: the key is not on the list any more, or has too many connections; the connection has
 * been closed.
 * GP_EBUSY: over the rate limit of the key; the caller must drop the message. */
gp_status gp_connection_guard_pass(gp_connection_guard *guard, void *frame, const gp_peer *peer, size_t bytes,
                                   gp_allowed *owner);

/* Count a malformed message; `frame` is any frame of it. */
void gp_connection_guard_offend(gp_connection_guard *guard, void *frame);

/* ---- the channel ---- */

struct gp_channel {
    void *socket;
    bool router;
    gp_connection_guard *guard; /* connection guard of a listener for other hosts; else NULL */
    size_t payload_bytes_max;
    gp_listener listener; /* local ROUTER only; ZeroMQ owns the descriptor after the bind */
    bool listening;
    gp_dial dial;             /* link to another host, once it is up: detects whether it broke */
    gp_buffer envelope, body; /* buffers reused by each send */
    gp_channel_stats stats;
};

#endif
