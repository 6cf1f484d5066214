#include "worker/exec/runner_link.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/memory/alloc.h"
#include "common/base/text/log.h"
#include "common/base/system/process.h"
#include "worker/comm/process.h"
#include "worker/exec/descendants.h"

enum { ORPHANS_MS = 200 };

extern char **environ;

struct gp_runner_link {
    pid_t pid;
    int pidfd;
    int pipe;   /* its write end: closed = end */
    int client; /* the client's end, until it is fetched */
    bool reaped;
};

static int link_spawn(pid_t *pid, uint32_t index, int client, int pipe_end)
{
    static uint32_t runners; /* control's thread alone starts them */
    char number[16], which[16], program[] = "gradpool-worker", run[] = "--run", option[] = "--index",
                                incarnation[] = "--incarnation";
    char *arguments[] = { program, run, option, number, incarnation, which, NULL };
    posix_spawn_file_actions_t actions;
    int problem;

    snprintf(number, sizeof(number), "%u", index);
    snprintf(which, sizeof(which), "%u", ++runners);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    /* Standard error stays ours, the log; nothing is written to standard output. */
    posix_spawn_file_actions_adddup2(&actions, client, GP_RUNNER_CLIENT_FD);
    posix_spawn_file_actions_adddup2(&actions, pipe_end, GP_RUNNER_WORKER_FD);
    posix_spawn_file_actions_addclosefrom_np(&actions, GP_RUNNER_WORKER_FD + 1);
    /* A group of its own: who kills the worker's group must leave it time to kill what it started. */
    problem = gp_spawn(pid, "/proc/self/exe", &actions, POSIX_SPAWN_SETPGROUP, arguments, environ);
    return problem;
}

/* A descriptor above those that the runner's are moved to, or one move would overwrite the other. */
static int fd_raise(int fd)
{
    int raised = fcntl(fd, F_DUPFD_CLOEXEC, GP_RUNNER_WORKER_FD + 1);
    int problem = errno;

    close(fd);
    errno = problem;
    return raised;
}

static gp_status link_start(gp_runner_link *runner, uint32_t index, gp_error *err)
{
    int sockets[2] = { -1, -1 }, pipes[2] = { -1, -1 }, problem = 0;

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) != 0 || pipe2(pipes, O_CLOEXEC) != 0)
        problem = errno;
    runner->client = sockets[0];
    runner->pipe = pipes[1];
    if (problem == 0 && ((sockets[1] = fd_raise(sockets[1])) < 0 || (pipes[0] = fd_raise(pipes[0])) < 0))
        problem = errno;
    if (problem == 0)
        problem = link_spawn(&runner->pid, index, sockets[1], pipes[0]);
    if (sockets[1] >= 0)
        close(sockets[1]);
    if (pipes[0] >= 0)
        close(pipes[0]);
    if (problem == 0) {
        runner->pidfd = (int)syscall(SYS_pidfd_open, runner->pid, 0);
        problem = runner->pidfd < 0 ? errno : 0;
    }
    errno = problem;
    return problem == 0 ? GP_OK : gp_fail_errno(err, GP_EIO, "cannot start a runner of commands");
}

gp_status gp_runner_link_open(gp_runner_link **out, uint32_t index, gp_error *err)
{
    gp_runner_link *runner = gp_calloc(1, sizeof(*runner));

    if (runner == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for a runner of commands");
    runner->pidfd = runner->pipe = runner->client = -1;
    prctl(PR_SET_CHILD_SUBREAPER, 1); /* orphans of a runner that is killed come to us, not to init */
    gp_status status = link_start(runner, index, err);

    if (status != GP_OK) {
        gp_runner_link_close(runner);
        return status;
    }
    *out = runner;
    return GP_OK;
}

int gp_runner_link_fd(const gp_runner_link *runner)
{
    return runner->pidfd;
}

bool gp_runner_link_fresh(const gp_runner_link *runner)
{
    return runner->client >= 0;
}

int gp_runner_link_take(gp_runner_link *runner)
{
    int client = runner->client;

    runner->client = -1;
    return client;
}

void gp_runner_link_end(gp_runner_link *runner)
{
    if (runner->pipe >= 0)
        close(runner->pipe);
    if (runner->client >= 0)
        close(runner->client);
    runner->pipe = runner->client = -1;
}

bool gp_runner_link_gone(gp_runner_link *runner)
{
    int status;

    if (runner->reaped)
        return true;
    if (!gp_process_dead(runner->pidfd) || waitpid(runner->pid, &status, WNOHANG) != runner->pid)
        return false;
    runner->reaped = true;
    if (WIFSIGNALED(status)) {
        gp_log(GP_LOG_WARN, "runner-killed",
               "the runner of commands was killed by signal %d; what it started is killed too",
               WTERMSIG(status));
        gp_descendants_end(ORPHANS_MS, NULL, NULL);
    }
    return true;
}

void gp_runner_link_close(gp_runner_link *runner)
{
    if (runner == NULL)
        return;
    gp_runner_link_end(runner);
    prctl(PR_SET_CHILD_SUBREAPER, 0);
    if (runner->pidfd >= 0)
        close(runner->pidfd);
    gp_free(runner);
}
