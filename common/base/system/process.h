/* Start threads and child processes with the signal settings that all parts of gradpool rely on. */
#ifndef GP_PROCESS_H
#define GP_PROCESS_H

#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "common/base/error.h"

/* Store the path of this program's executable. If another file has replaced it, for example in an
 * upgrade, the kernel appends " (deleted)" to the path; the result is then the path of the new
 * file. GP_EIO: /proc/self/exe is not readable, or the path is too long. */
gp_status gp_program_path(char *path, size_t bytes, gp_error *err);

/* Return the umask of this process. Other threads may create files meanwhile: the umask stays as it
 * is, unless /proc is missing. */
mode_t gp_umask(void);

/* Start a thread with all signals blocked: the caller's threads handle signals.
 *   out          thread
 *   name         thread name for debuggers and ps, at most 15 bytes
 *   stack_bytes  0: system default
 *   run          thread function, called with `context`
 * Return 0 or pthread_create()'s error number. */
int gp_thread_start(pthread_t *out, const char *name, size_t stack_bytes, void *(*run)(void *),
                    void *context);

/* Start a program with default signal actions and no blocked signals, whatever this process's
 * settings are.
 *   pid          set to the child's process id
 *   actions      file actions; destroyed by this call
 *   group        POSIX_SPAWN_SETPGROUP: new process group; POSIX_SPAWN_SETSID: new session. The
 *                kernel sends SIGHUP to a process group with a stopped member when the group is
 *                orphaned: the last parent in the session has exited. A new session avoids this.
 *   arguments    NULL-terminated
 *   environment  NULL-terminated
 * Return 0 or posix_spawn()'s error number. */
int gp_spawn(pid_t *pid, const char *program, posix_spawn_file_actions_t *actions, short group,
             char *const *arguments, char *const *environment);

/* Return whether the error number of a failed spawn means that the machine lacks a resource: the
 * program is not the cause, and a later attempt can succeed. */
bool gp_spawn_is_shortage(int error_number);

/* Move *fd to a number above `highest`, the highest descriptor that file actions assign in the
 * child. Otherwise dup2() in a file action could overwrite it. Return 0 or an error number, and
 * then *fd is closed and -1. EMFILE: no descriptor above `highest` is free. */
int gp_spawn_raise(int *fd, int highest);

/* Fill in the signals that daemons read from a signalfd: SIGTERM, SIGINT and SIGHUP. */
void gp_daemon_signals(sigset_t *set);

/* Open a signalfd for these signals. All threads must block them. In a cluster job, SIGTERM is
 * ignored: see gp_job_signals_ignore(). */
gp_status gp_daemon_signals_open(int *fd, gp_error *err);

/* In a process of a cluster job (fence.h), ignore SIGTERM and SIGUSR1, and return true.
 *
 * Slurm announces the end of an allocation by one of these signals to all processes of the job.
 * Only the process of the attempt acts on it: it stops the command, which needs the pool for the
 * last checkpoint. */
bool gp_job_signals_ignore(void);

#endif
