/* The ZeroMQ context of the process, created for the first user and destroyed after the last.
 * Internal to proto/.
 *
 * These files may include zmq.h: channel.c (sockets), channel_messages.c (messages), dial.c,
 * connection_guard.c and zmq_monitor.c (connections), zap.c (admission), curve.c (key pairs). */
#ifndef GP_ZMQ_CONTEXT_H
#define GP_ZMQ_CONTEXT_H

#include "common/base/error.h"

/* Return the context and count a user; release it with gp_zmq_release(). NULL: GP_ELIMIT, with the
 * reason in *err. */
void *gp_zmq_acquire(gp_error *err);
void gp_zmq_release(void);

#endif
