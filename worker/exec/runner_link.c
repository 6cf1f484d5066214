#include "worker/exec/runner_link.h"

#include <errno.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/memory/alloc.h"
#include "common/base/text/log.h"
#include "proto/local/runner_spawn.h"
#include "worker/comm/process.h"
#include "worker/exec/descendants.h"

/* Time limit in milliseconds for killing a killed runner's orphans. */
enum { ORPHANS_MS = 200 };

struct gp_runner_link {
    pid_t pid;
    int pidfd;
    int pipe;   /* write end; closing it makes the runner exit */
    int client; /* client's end of the socket; -1: taken */
    bool reaped;
};

gp_status gp_runner_link_open(gp_runner_link **out, uint32_t index, gp_error *err)
{
    static uint32_t runners; /* only the control thread starts runners */
    gp_runner_link *runner = gp_calloc(1, sizeof(*runner));

    if (runner == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for a runner");
    runner->pidfd = runner->pipe = runner->client = -1;
    /* a killed runner's orphans become children of this process, not of init */
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    int problem =
        gp_runner_spawn(&runner->pid, &runner->client, &runner->pipe, "/proc/self/exe", index, ++runners);

    if (problem == 0) {
        runner->pidfd = (int)syscall(SYS_pidfd_open, runner->pid, 0);
        problem = runner->pidfd < 0 ? errno : 0;
    }
    if (problem != 0) {
        gp_runner_link_close(runner);
        errno = problem;
        return gp_fail_errno(err, GP_EIO, "cannot start a runner");
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
        gp_log(GP_LOG_WARN, "runner-killed", "the runner was killed by signal %d; killing its commands",
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
