/* gate.h -- inside proto/: the connections of a TCP listener, counted, watched and cut off.
 *
 * ZeroMQ (4.3) shows whole messages of authenticated peers and nothing else: not who is connected, nor a message that never
 * ends, and it cannot drop one peer.  But its monitor tells the descriptor of each connection, a message tells that of the
 * one it came on, and the kernel how many bytes have come in there: so a connection that brings bytes and no message is
 * seen, and shutdown(2) ends any of them, upon which ZeroMQ throws away what had come.
 *
 *   accepted --5 s without a message--> cut         a message: the key is looked up anew, its rate is counted
 *   4 MiB since its last message: cut               10 of a key that are none: cut, it is muted
 *
 * One thread, that of the channel. */
#ifndef GP_GATE_H
#define GP_GATE_H

#include "proto/channel/channel.h"

typedef struct gp_gate gp_gate;

/* router: a ROUTER that is bound to TCP endpoints only, with the port; frames are zmq_msg_t. */
gp_status gp_gate_open(gp_gate **out, void *router, gp_zap *zap, gp_error *err);
void gp_gate_set_port(gp_gate *gate, uint16_t port);
void gp_gate_close(gp_gate *gate); /* before the router; accepts NULL */

int gp_gate_fd(const gp_gate *gate); /* readable (edge): something happened */
void gp_gate_watch(gp_gate *gate);
int gp_gate_patience_ms(const gp_gate *gate); /* -1: nothing is due */

/* A message of `bytes` has come whole, frame is one of its frames.  GP_OK: *owner sent it.  GP_EPERM: its key is not (any
 * more) on the list, its connection was cut.  GP_EBUSY: over its key's rate; drop it. */
gp_status gp_gate_pass(gp_gate *gate, void *frame, const gp_peer *peer, size_t bytes, gp_allowed *owner);

/* What came with this frame was no message. */
void gp_gate_offend(gp_gate *gate, void *frame);

void gp_gate_cut_peer(gp_gate *gate, const gp_peer *peer);
bool gp_gate_next_gone(gp_gate *gate, gp_peer *out);
gp_gate_stats gp_gate_get_stats(const gp_gate *gate);

#endif
