/* runner_spawn.h -- start a runner of commands (worker/exec/runner.h): by a worker, or by a client for itself. */
#ifndef GP_RUNNER_SPAWN_H
#define GP_RUNNER_SPAWN_H

#include <stdint.h>
#include <sys/types.h>

/* Descriptors of the runner: its end of the client's socket, and the pipe that ends it when all writers close it. */
enum { GP_RUNNER_CLIENT_FD = 3, GP_RUNNER_WORKER_FD = 4 };

/* Start `program` as a runner in a process group of its own; its standard output goes to standard error.
 *   index, incarnation  name the runner in logs
 *   client              the client's end of the socket; -1 on failure
 *   pipe_end            close it to end the runner; -1 on failure
 * Returns 0 or an error number. */
int gp_runner_spawn(pid_t *pid, int *client, int *pipe_end, const char *program, uint32_t index,
                    uint32_t incarnation);

#endif
