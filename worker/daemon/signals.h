/* signals.h: read SIGTERM, SIGINT and SIGHUP of a worker from a descriptor, without blocking them.
 *
 * Tasks start programs with system() or fork() and exec(). A program inherits blocked and ignored
 * signals: timeout(1) could not end it, and a writer would not end with its reader. exec() resets
 * handlers, so a worker has handlers only: signalfd() would need blocked signals. */
#ifndef GP_WORKER_SIGNALS_H
#define GP_WORKER_SIGNALS_H

#include "common/base/error.h"

/* Install the handlers. Call it once per process, before any thread starts: a signal that arrives
 * earlier has its default action. A child that a task forked has the default actions, too.
 * GP_EIO: no descriptor is left. */
gp_status gp_signals_catch(gp_error *err);

/* Return the descriptor: readable when a signal has arrived. Valid until the process exits. */
int gp_signals_fd(void);

/* Return the number of the next signal that arrived; 0: none. Never blocks. */
int gp_signals_next(void);

#endif
