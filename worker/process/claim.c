#include "worker/process/claim.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "proto/device/device_holder.h"

enum { CLAIM_TRY_MS = 5 };

gp_status gp_claim_take(int *out, const char *directory, const char *uuid, const gp_claim_holder *holder,
                        int wait_ms, gp_error *err)
{
    char name[GP_DEVICE_CLAIM_NAME], record[GP_DEVICE_CLAIM_RECORD + 1];
    gp_device_holder self = { .pid = holder->pid, .worker = holder->index };
    int64_t deadline = gp_now_ms() + wait_ms;
    int folder, fd;
    gp_status status;

    if (uuid[0] == '\0')
        return gp_fail(err, GP_EINVAL, "cannot claim a device without UUID");
    folder = open(directory, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0)
        return gp_fail_errno(err, GP_EIO, "cannot open the directory %s", directory);
    gp_device_claim_name(name, uuid);
    fd = openat(folder, name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
    if (fd < 0)
        status = gp_fail_errno(err, GP_EIO, "cannot open the claim file %s/%s", directory, name);
    close(folder);
    if (fd < 0)
        return status;
    while (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        if (errno == EINTR)
            continue;
        if (errno == EWOULDBLOCK && gp_now_ms() < deadline) {
            gp_sleep_ms(CLAIM_TRY_MS);
            continue;
        }
        if (errno != EWOULDBLOCK) {
            status = gp_fail_errno(err, GP_EIO, "cannot lock device %s", uuid);
        } else {
            /* Name the holder. The record is missing between the holder's flock and write. */
            ssize_t got = pread(fd, record, GP_DEVICE_CLAIM_RECORD, 0);
            gp_device_holder by;

            record[got > 0 ? got : 0] = '\0';
            status = gp_device_claim_read(&by, record)
                         ? gp_fail(err, GP_EBUSY, "device %s is held by worker %u of pool %s (pid %u)", uuid,
                                   by.worker, by.pool, by.pid)
                         : gp_fail(err, GP_EBUSY, "device %s is held by another process", uuid);
        }
        close(fd);
        return status;
    }
    snprintf(self.pool, sizeof(self.pool), "%s", holder->pool);

    int length = gp_device_claim_write(record, &self);

    /* Ignore a failed write, for example on a full disk: only the holder's name is missing from
     * later error messages. */
    if (ftruncate(fd, 0) != 0 || pwrite(fd, record, (size_t)length, 0) != length)
        errno = 0;
    *out = fd;
    return GP_OK;
}

void gp_claim_release(int claim)
{
    if (claim >= 0)
        close(claim);
}
