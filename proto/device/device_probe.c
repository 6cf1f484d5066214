/* Run the device probe as a child process with a timeout (device_probe.h). */
#include "proto/device/device_probe.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/system/timeout.h"
#include "common/base/text/log.h"
#include "common/base/system/process.h"

extern char **environ;

#define FALLBACK "using CPU workers; `--devices cpu` skips the probe"

enum { GRACE_MS = 200 }; /* time for a killed child to exit; a child stuck in the driver does not */

bool gp_device_probe_needed(void)
{
    static const char *const signs[] = { "/dev/nvidiactl", "/proc/driver/nvidia", "/dev/dxg" };

    if (getenv("GRADPOOL_NVML_LIBRARY") != NULL || getenv("GRADPOOL_CUDA_LIBRARY") != NULL)
        return true;
    for (size_t i = 0; i < sizeof(signs) / sizeof(signs[0]); i++)
        if (access(signs[i], F_OK) == 0)
            return true;
    return false;
}

/* A running probe. */
typedef struct child {
    pid_t pid;
    int pidfd, output; /* output: read end of the probe's standard output */
} child;

/* Start the probe in a new process group, so that helper processes of a driver library can be
 * killed with it. */
static gp_status child_start(child *out, const char *program, const char *option, gp_error *err)
{
    char *arguments[] = { (char *)(uintptr_t)program, (char *)(uintptr_t)option, NULL };
    posix_spawn_file_actions_t actions;
    int ends[2], problem;

    if (pipe2(ends, O_CLOEXEC) != 0)
        return gp_fail_errno(err, GP_EIO, "cannot create a pipe for the device probe");
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    problem = gp_spawn(&out->pid, program, &actions, POSIX_SPAWN_SETPGROUP, arguments, environ);
    close(ends[1]);
    if (problem != 0) {
        close(ends[0]);
        errno = problem;
        return gp_fail_errno(err, GP_EIO, "cannot start the device probe %s (" FALLBACK ")", program);
    }
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    out->output = ends[0];
    out->pidfd = (int)syscall(SYS_pidfd_open, out->pid, 0);
    return GP_OK;
}

/* Append all available output to `text`. *ended is set at end of file. */
static gp_status child_read(child *probe, gp_buffer *text, bool *ended, gp_error *err)
{
    char piece[4096];

    for (;;) {
        ssize_t got = read(probe->output, piece, sizeof(piece));

        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0) {
            *ended = got == 0;
            return GP_OK;
        }
        gp_status status = gp_buffer_append(text, piece, (size_t)got, err);

        if (status != GP_OK)
            return status;
    }
}

/* Read the probe's output until the probe exits or the timeout is reached. Both the pipe and the
 * process are polled: a helper process of the driver may keep the pipe open after the probe has
 * exited. */
static gp_status child_listen(child *probe, gp_buffer *text, int timeout_ms, gp_error *err)
{
    gp_timeout timeout = gp_timeout_in(timeout_ms);
    bool over = false, ended = false;

    for (;;) {
        struct pollfd fds[] = { { .fd = probe->output, .events = POLLIN },
                                { .fd = probe->pidfd, .events = POLLIN } };
        gp_status status;

        poll(fds, 2, gp_timeout_slice(timeout));
        status = child_read(probe, text, &ended, err);
        if (status != GP_OK || ended || fds[1].revents != 0)
            return status;
        if (over)
            return gp_fail(err, GP_ETIMEDOUT,
                           "no reply from the device probe within %g s: the driver may hang; " FALLBACK,
                           timeout_ms / 1000.0);

        /* then poll once more: this process may have been suspended */
        over = gp_timeout_left(timeout) == 0;
    }
}

/* Run `program option` and append the output to `text`. */
static gp_status child_ask(gp_buffer *text, const char *program, const char *option, int timeout_ms,
                           gp_error *err)
{
    child probe;
    int wait_status;
    gp_status status = child_start(&probe, program, option, err);

    if (status != GP_OK)
        return status;
    status = child_listen(&probe, text, timeout_ms, err);

    /* Reap the probe; after a failure, kill it first. wait_status is 0 if it is unknown. */
    struct pollfd ended = { .fd = probe.pidfd, .events = POLLIN };

    wait_status = 0;
    if (status != GP_OK)
        kill(-probe.pid, SIGKILL);
    poll(&ended, 1, status != GP_OK ? GRACE_MS : GP_DEVICE_PROBE_MS);
    if (waitpid(probe.pid, &wait_status, WNOHANG) == 0) {
        kill(-probe.pid, SIGKILL);
        gp_log(GP_LOG_WARN, "probe-hangs",
               "the device probe (pid %d) does not exit after SIGKILL: it hangs in the driver",
               (int)probe.pid);
    }
    close(probe.output);
    if (probe.pidfd >= 0)
        close(probe.pidfd);
    if (status == GP_OK && WIFSIGNALED(wait_status))
        status =
            gp_fail(err, GP_EIO,
                    "the device probe was killed by signal %d (%s): the driver may be damaged; " FALLBACK,
                    WTERMSIG(wait_status), strsignal(WTERMSIG(wait_status)));
    else if (status == GP_OK && WEXITSTATUS(wait_status) != 0)
        status =
            gp_fail(err, GP_EIO, "the device probe exited with code %d; " FALLBACK, WEXITSTATUS(wait_status));
    return status;
}

gp_status gp_device_probe(gp_device_list *out, const char *program, int timeout_ms, gp_error *err)
{
    gp_buffer text;
    gp_status status;

    if (!gp_device_probe_needed()) {
        memset(out, 0, sizeof(*out));
        return GP_OK;
    }
    gp_buffer_init(&text, GP_DEVICE_LIST_BYTES_MAX);
    status = child_ask(&text, program, "--probe", timeout_ms, err);
    if (status == GP_OK)
        status = gp_device_list_read(out, gp_buffer_text(&text), text.bytes, err);
    gp_buffer_deinit(&text);
    return status;
}

gp_status gp_device_selftest(gp_json **out, const char *program, int timeout_ms, gp_error *err)
{
    gp_buffer text;
    gp_status status;

    gp_buffer_init(&text, GP_DEVICE_LIST_BYTES_MAX);
    status = child_ask(&text, program, "--selftest", timeout_ms, err);
    if (status == GP_OK)
        status = gp_json_parse(out, gp_buffer_text(&text), text.bytes, err);
    gp_buffer_deinit(&text);
    return status;
}
