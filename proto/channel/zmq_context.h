/* zmq_context.h -- inside proto/: the process's one ZeroMQ context, made with its first user and ended with its last.
 * Who includes zmq.h: channel.c (sockets), channel_messages.c (what goes through them), dial.c, gate.c and zmq_monitor.c
 * (what happens to their connections), zap.c (who may come in), curve.c (pairs of keys). */
#ifndef GP_ZMQ_CONTEXT_H
#define GP_ZMQ_CONTEXT_H

#include "common/base/error.h"

/* gp_zmq_check_process -- GP_ESTATE: this process was forked from one that has a context, whose threads it lacks. */
gp_status gp_zmq_check_process(gp_error *err);

/* NULL: GP_ELIMIT is in *err. */
void *gp_zmq_acquire(gp_error *err);
void gp_zmq_release(void);

#endif
