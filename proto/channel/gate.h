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
#ifndef GP_GATE_H
#define GP_GATE_H

#include "proto/channel/channel.h"

typedef struct gp_gate gp_gate;

/* Create a guard for `router`, a ROUTER bound to TCP endpoints only, and set the listening port.
 * Frames in this interface are zmq_msg_t. */
gp_status gp_gate_open(gp_gate **out, void *router, gp_zap *zap, gp_error *err);
void gp_gate_set_port(gp_gate *gate, uint16_t port);
void gp_gate_close(gp_gate *gate); /* Close the guard before the router; accepts NULL. */

/* Check a complete message of `bytes`; `frame` is any frame of it. GP_OK sets *owner to the key
 * owner.
 *
 * GP_EPERM: the key is not on the list any more, or has too many connections; the connection has
 * been closed.
 * GP_EBUSY: over the rate limit of the key; the caller must drop the message. */
gp_status gp_gate_pass(gp_gate *gate, void *frame, const gp_peer *peer, size_t bytes, gp_allowed *owner);

/* Count a malformed message; `frame` is any frame of it. */
void gp_gate_offend(gp_gate *gate, void *frame);

#endif
