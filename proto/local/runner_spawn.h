/* Start a command runner (worker/exec/runner.h) as a child process. Workers do this for their
 * client; a client can do it for itself. */
#ifndef GP_RUNNER_SPAWN_H
#define GP_RUNNER_SPAWN_H

#include <stdint.h>
#include <sys/types.h>

/* Descriptors that the runner inherits: one end of the socket to the client, and the read end of a
 * pipe. The runner exits when all writers have closed the pipe. */
enum { GP_RUNNER_CLIENT_FD = 3, GP_RUNNER_WORKER_FD = 4 };

/* Start `program` as a runner in a new process group. Its standard output goes to standard error.
 * Return 0 or an error number.
 *
 *   index, incarnation  identify the runner in logs
 *   client              set to the client's end of the socket; -1 on failure
 *   pipe_end            set to the write end of the pipe: close it to end the runner; -1 on
 *                       failure */
int gp_runner_spawn(pid_t *pid, int *client, int *pipe_end, const char *program, uint32_t index,
                    uint32_t incarnation);

#endif
