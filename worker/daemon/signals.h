/* signals.h: read SIGTERM, SIGINT and SIGHUP of a worker from a descriptor, without blocking them.
 *
 * Tasks start programs with system(), or with fork() and exec(). exec() keeps blocked and ignored
 * signals, but it resets handlers. So the worker installs handlers: otherwise timeout(1) could not
 * end such a program, and SIGPIPE would not end a writer. signalfd() needs blocked signals. */
#ifndef GP_WORKER_SIGNALS_H
#define GP_WORKER_SIGNALS_H

#include "common/base/error.h"

/* Install the handlers. Call it once per process, before any thread starts: a signal that arrives
 * earlier has its default action. A child that a task forked has the default actions, too.
 *
 * SIGPIPE has no effect on the worker, nor have SIGTERM and SIGUSR1 in a cluster job: Slurm sends
 * them to all processes of a job before its end, and the pool must continue until the command has
 * written its last checkpoint. GP_EIO: no descriptor is left. */
gp_status gp_signals_catch(gp_error *err);

/* Install the handlers again, because a task may have replaced them: an embedded Python, MPI, or
 * system() while its program runs. */
void gp_signals_restore(void);

/* Return the descriptor: readable when a signal has arrived. Valid until the process exits. */
int gp_signals_fd(void);

/* Return the number of the next signal that arrived; 0: none. Never blocks. */
int gp_signals_next(void);

#endif
