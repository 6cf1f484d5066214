/* Owner process of a pool: pidfd, and removal of the pool's files. */
#include "scheduler/process/owner.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "common/base/system/directory.h"
#include "common/base/system/proc_stat.h"

gp_status gp_owner_open(gp_owner *out, const char *text, gp_error *err)
{
    gp_owner owner = { .fd = -1 };
    gp_proc_stat stat;
    char rest;

    *out = owner;
    if (text == NULL || text[0] == '\0')
        return GP_OK;
    if (sscanf(text, "%d:%" SCNu64 "%c", &owner.pid, &owner.start_time, &rest) != 2 || owner.pid <= 0)
        return gp_fail(err, GP_EINVAL, "the owner is '%.40s'; it must be PID:START", text);
    /* The pidfd keeps the pid reserved, so a start time read afterwards belongs to that process.
     * EINVAL or ENOENT, by version of Linux: the pid is that of a thread of another process. */
    owner.fd = (int)syscall(SYS_pidfd_open, owner.pid, 0);
    if (owner.fd < 0 && errno != ESRCH && errno != EINVAL && errno != ENOENT)
        return gp_fail_errno(err, GP_EIO, "cannot watch process %d, the owner of the pool", owner.pid);
    if (owner.fd >= 0 && !gp_proc_stat_read(&stat, owner.pid)) {
        const gp_status unread = gp_fail_errno(
            err, GP_EIO, "cannot read the start time of process %d, the owner of the pool", owner.pid);
        const bool exited = gp_owner_exited(&owner);

        gp_owner_close(&owner);
        if (!exited)
            return unread;
    } else if (owner.fd >= 0 && stat.start_time != owner.start_time) {
        gp_owner_close(&owner);
    }
    *out = owner;
    return GP_OK;
}

void gp_owner_close(gp_owner *owner)
{
    if (owner->fd >= 0)
        close(owner->fd);
    owner->fd = -1;
}

bool gp_owner_exited(const gp_owner *owner)
{
    struct pollfd ended = { .fd = owner->fd, .events = POLLIN };

    return owner->pid != 0 && (owner->fd < 0 || poll(&ended, 1, 0) > 0);
}

/* Remove a directory with its contents. Rename it first: the next pool of this name may create its
 * directory at any time. Pool names contain no '~'. */
static void directory_remove(const char *path)
{
    char aside[GP_TEXT_PATH + 1];

    snprintf(aside, sizeof(aside), "%s~", path);
    gp_directory_remove(aside); /* left by a killed scheduler */
    if (rename(path, aside) == 0)
        gp_directory_remove(aside);
}

void gp_owner_remove_files(const gp_owner *owner, const gp_paths *paths)
{
    /* Remove the state first: the lock in the runtime directory prevents the next scheduler from
     * using it. */
    if (owner->temporary)
        directory_remove(paths->state_dir);
    directory_remove(paths->pool_dir);
}
