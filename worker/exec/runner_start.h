/* Starts one command as a process. */
#ifndef GP_RUNNER_START_H
#define GP_RUNNER_START_H

#include <sys/types.h>

#include "proto/local/runner_wire.h"

/* Start a command. The caller has a single thread and has blocked all signals; the command has none
 * blocked. The kernel kills the command if the caller exits.
 *   exit_code  on failure, the exit code that a shell would report (126: cannot be executed,
 *              127: not found)
 *   fds        standard input, output and error; the caller keeps them */
gp_status gp_runner_start(pid_t *pid, int *exit_code, const gp_runner_spec *spec, const int fds[3],
                          gp_error *err);

#endif
