#include "worker/daemon/signals.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <unistd.h>

#include "common/base/system/fence.h"

static struct {
    pid_t owner;
    bool fenced; /* the worker belongs to a cluster job */
    int read_end, write_end;
} caught = { .read_end = -1, .write_end = -1 };

/* Write the number of a signal to the pipe. Async-signal-safe. */
static void on_signal(int number)
{
    const unsigned char byte = (unsigned char)number;
    const int saved = errno;

    if (getpid() == caught.owner) {
        /* a full pipe is already readable */
        ssize_t ignored = write(caught.write_end, &byte, sizeof(byte));

        (void)ignored;
    } else {
        /* a child that a task forked: the pipe belongs to the worker */
        signal(number, SIG_DFL);
        raise(number);
    }
    errno = saved;
}

/* Ignore a signal in the worker; take the default action in a forked child. exec() resets handlers
 * but keeps SIG_IGN. */
static void on_ignored(int number)
{
    if (getpid() != caught.owner) {
        signal(number, SIG_DFL);
        raise(number);
    }
}

void gp_signals_restore(void)
{
    const struct sigaction caught_action = { .sa_handler = on_signal, .sa_flags = SA_RESTART },
                           ignored_action = { .sa_handler = on_ignored, .sa_flags = SA_RESTART };

    sigaction(SIGINT, &caught_action, NULL);
    sigaction(SIGHUP, &caught_action, NULL);
    sigaction(SIGTERM, caught.fenced ? &ignored_action : &caught_action, NULL);
    sigaction(SIGPIPE, &ignored_action, NULL);
    if (caught.fenced)
        sigaction(SIGUSR1, &ignored_action, NULL);
}

gp_status gp_signals_catch(gp_error *err)
{
    int ends[2];

    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0)
        return gp_fail_errno(err, GP_EIO, "cannot create a pipe for signals");
    caught.owner = getpid();
    caught.read_end = ends[0];
    caught.write_end = ends[1];
    caught.fenced = gp_fence_given();
    gp_signals_restore();
    return GP_OK;
}

int gp_signals_fd(void)
{
    return caught.read_end;
}

int gp_signals_next(void)
{
    unsigned char byte;

    return read(caught.read_end, &byte, sizeof(byte)) == sizeof(byte) ? byte : 0;
}
