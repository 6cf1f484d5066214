/* Pidfds. A PID can be reused before pidfd_open(). The start time is therefore checked after the
 * pidfd was opened: if it matches, the pidfd refers to the right process. */
#include "worker/comm/process.h"

#include <errno.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/base/system/proc_stat.h"

gp_status gp_process_start_time(pid_t pid, uint64_t *ticks, gp_error *err)
{
    gp_proc_stat stat;

    if (!gp_proc_stat_read(&stat, pid))
        return gp_fail_errno(err, GP_EPEER, "process %d has exited: no /proc/%d/stat", (int)pid, (int)pid);
    *ticks = stat.start_time;
    return GP_OK;
}

gp_status gp_process_open(pid_t pid, uint64_t start_time, int *pidfd, gp_error *err)
{
    uint64_t ticks = 0;
    gp_status status;
    int fd = (int)syscall(SYS_pidfd_open, pid, 0);

    if (fd < 0 && errno == ESRCH)
        return gp_fail(err, GP_EPEER, "process %d has exited", (int)pid);
    if (fd < 0)
        return gp_fail_errno(err, GP_EIO, "cannot open a pidfd for process %d", (int)pid);
    status = gp_process_start_time(pid, &ticks, err);
    if (status == GP_OK && ticks != start_time)
        status = gp_fail(
            err, GP_EPEER,
            "process %d has exited: it started at tick %llu, and another process with this pid at tick %llu",
            (int)pid, (unsigned long long)start_time, (unsigned long long)ticks);
    if (status != GP_OK) {
        close(fd);
        return status;
    }
    *pidfd = fd;
    return GP_OK;
}

bool gp_process_dead(int pidfd)
{
    struct pollfd entry = { .fd = pidfd, .events = POLLIN };

    return poll(&entry, 1, 0) > 0;
}
