/* process.h -- starting threads and processes in the way of all parts of gradpool. */
#ifndef GP_PROCESS_H
#define GP_PROCESS_H

#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stddef.h>
#include <sys/types.h>

#include "common/base/error.h"

/* pthread_create() with all signals blocked in the new thread: they are handled by the threads of the caller.
 *   name         for listings of threads, at most 15 bytes
 *   stack_bytes  0: the default of the system
 * Returns 0 or the error number of pthread_create(). */
int gp_thread_start(pthread_t *out, const char *name, size_t stack_bytes, void *(*run)(void *),
                    void *context);

/* posix_spawn() of a program with no blocked signals and the default action for all, whatever this process has set.
 *   actions  used and destroyed
 *   group    POSIX_SPAWN_SETPGROUP: leader of a process group of its own; POSIX_SPAWN_SETSID: of a session of its own.
 *            A group whose last parent in its session ends is sent SIGHUP if one of its processes is stopped; a session
 *            of its own is not.
 * Returns 0 or the error number of posix_spawn(). */
int gp_spawn(pid_t *pid, const char *program, posix_spawn_file_actions_t *actions, short group,
             char *const *arguments, char *const *environment);

/* Move *fd above the descriptors that the child is given, so that the dup2() of a file action does not overwrite it.
 *   highest  the highest of those
 * Returns 0 or an error number (EMFILE: no descriptor is free above them); *fd is closed and -1 then. */
int gp_spawn_raise(int *fd, int highest);

/* Fill in the signals that a daemon reads from a descriptor: SIGTERM, SIGINT and SIGHUP. */
void gp_daemon_signals(sigset_t *set);
/* Open that descriptor. All threads must block these signals. */
gp_status gp_daemon_signals_open(int *fd, gp_error *err);

#endif
