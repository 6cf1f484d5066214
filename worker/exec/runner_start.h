/* runner_start.h -- one command as a process. */
#ifndef GP_RUNNER_START_H
#define GP_RUNNER_START_H

#include <sys/types.h>

#include "proto/local/runner_wire.h"

/* gp_runner_start -- start spec with standard input, output and error fds[0..2], which stay the caller's.
 * *exit_code: on failure what a shell would end with (126 cannot be run, 127 not found).  The caller has one thread
 * and has blocked all signals; the command has none blocked.  It dies with the caller. */
gp_status gp_runner_start(pid_t *pid, int *exit_code, const gp_runner_spec *spec, const int fds[3],
                          gp_error *err);

#endif
