/* Start a command runner with a socket and a pipe (runner_spawn.h). */
#include "proto/local/runner_spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/base/system/process.h"

extern char **environ;

static void fd_close(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

int gp_runner_spawn(pid_t *pid, int *client, int *pipe_end, const char *program, uint32_t index,
                    uint32_t incarnation)
{
    char number[16], which[16], name[] = "gradpool-worker", run[] = "--run", option[] = "--index",
                                again[] = "--incarnation";
    char *arguments[] = { name, run, option, number, again, which, NULL };
    int sockets[2] = { -1, -1 }, pipes[2] = { -1, -1 }, problem = 0;

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) != 0 || pipe2(pipes, O_CLOEXEC) != 0)
        problem = errno;
    if (problem == 0)
        problem = gp_spawn_raise(&sockets[1], GP_RUNNER_WORKER_FD);
    if (problem == 0)
        problem = gp_spawn_raise(&pipes[0], GP_RUNNER_WORKER_FD);
    if (problem == 0) {
        posix_spawn_file_actions_t actions;

        snprintf(number, sizeof(number), "%" PRIu32, index);
        snprintf(which, sizeof(which), "%" PRIu32, incarnation);
        posix_spawn_file_actions_init(&actions);
        posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
        posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);
        posix_spawn_file_actions_adddup2(&actions, sockets[1], GP_RUNNER_CLIENT_FD);
        posix_spawn_file_actions_adddup2(&actions, pipes[0], GP_RUNNER_WORKER_FD);
        posix_spawn_file_actions_addclosefrom_np(&actions, GP_RUNNER_WORKER_FD + 1);

        /* Use a new process group: after Ctrl-C, or when the parent's group is killed, the runner
         * needs time to kill the commands that it started. */
        problem = gp_spawn(pid, program, &actions, POSIX_SPAWN_SETPGROUP, arguments, environ);
    }
    fd_close(&sockets[1]);
    fd_close(&pipes[0]);
    if (problem != 0) {
        fd_close(&sockets[0]);
        fd_close(&pipes[1]);
    }
    *client = sockets[0];
    *pipe_end = pipes[1];
    return problem;
}
