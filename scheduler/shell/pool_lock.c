/* Pool lock and epoch files. */
#include "scheduler/shell/pool_lock.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/base/text/log.h"

/* Read the last epoch. 0: the file does not exist. An unreadable file is an error, because it may
 * hold any number. A damaged file must not bring back an old number: continue from the microseconds
 * since 1970, which exceed any count of starts. */
static gp_status epoch_read(uint64_t *out, const char *path, gp_error *err)
{
    char text[32] = "", *end;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    struct timespec now;
    ssize_t got;

    *out = 0;
    if (fd < 0 && errno == ENOENT)
        return GP_OK;
    got = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
    if (got < 0)
        gp_fail_errno(err, GP_EIO, "cannot read %s", path);
    if (fd >= 0)
        close(fd);
    if (got < 0)
        return GP_EIO;
    *out = strtoull(text, &end, 10);
    if (end != text && *end == '\n' && *out < UINT64_MAX / 2)
        return GP_OK;
    gp_log(GP_LOG_WARN, "epoch-damaged", "%s is damaged; deriving the next epoch from the clock", path);
    clock_gettime(CLOCK_REALTIME, &now);
    *out = (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
    return GP_OK;
}

/* Write the epoch to a temporary file, sync it, rename it and sync the directory. After a power
 * loss, the file has either the old number or the new one. */
static gp_status epoch_write(const char *directory, const char *path, uint64_t epoch, gp_error *err)
{
    char aside[GP_TEXT_PATH + 16], text[32];
    int length = snprintf(text, sizeof(text), "%" PRIu64 "\n", epoch);
    int fd, problem = 0;

    snprintf(aside, sizeof(aside), "%s.new", path);
    fd = open(aside, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return gp_fail_errno(err, GP_EIO, "cannot write %s", aside);
    errno = ENOSPC; /* a short write does not set errno */
    if (write(fd, text, (size_t)length) != length || fsync(fd) != 0)
        problem = errno;
    close(fd);
    if (problem == 0 && rename(aside, path) != 0)
        problem = errno;
    if (problem != 0)
        unlink(aside);
    fd = problem == 0 ? open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    if (fd >= 0) {
        if (fsync(fd) != 0)
            problem = errno;
        close(fd);
    }
    errno = problem;
    return problem == 0 ? GP_OK : gp_fail_errno(err, GP_EIO, "cannot write %s", path);
}

/* Open and lock the lock file, and write the pid into it. GP_EBUSY: another process holds the
 * lock. GP_ENOENT: the directory does not exist. */
static gp_status lock_take(gp_pool_lock *lock, const char *path, gp_error *err)
{
    struct stat status;
    char text[24];

    lock->fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (lock->fd < 0)
        return gp_fail_errno(err, errno == ENOENT ? GP_ENOENT : GP_EIO, "cannot open the lock file %s", path);
    if (flock(lock->fd, LOCK_EX | LOCK_NB) != 0 || fstat(lock->fd, &status) != 0) {
        bool busy = errno == EWOULDBLOCK;

        close(lock->fd);
        lock->fd = -1;
        return busy ? gp_fail(err, GP_EBUSY, "another scheduler has locked %s", path)
                    : gp_fail_errno(err, GP_EIO, "cannot lock %s", path);
    }
    lock->device = status.st_dev;
    lock->inode = status.st_ino;
    snprintf(text, sizeof(text), "%d\n", (int)getpid());
    if (ftruncate(lock->fd, 0) != 0 || pwrite(lock->fd, text, strlen(text), 0) < 0)
        gp_log(GP_LOG_WARN, "pid-unwritten", "cannot write the pid to %s: %s", path, strerror(errno));
    return GP_OK;
}

gp_status gp_pool_lock_take(gp_pool_lock *out, const gp_paths *paths, gp_error *err)
{
    char path[GP_TEXT_PATH + 8];
    gp_pool_lock lock = { .fd = -1 };
    gp_status status;

    do { /* the scheduler of an owned pool that ends removes the directories and the file */
        gp_pool_lock_release(&lock);
        status = gp_paths_create(paths, err);
        if (status == GP_OK)
            status = lock_take(&lock, paths->lock, err);
    } while (status == GP_ENOENT || (status == GP_OK && !gp_pool_lock_valid(&lock, paths)));
    if (status != GP_OK)
        return status;
    snprintf(path, sizeof(path), "%s/epoch", paths->state_dir);
    status = epoch_read(&lock.epoch, path, err);
    lock.epoch++;
    if (status == GP_OK)
        status = epoch_write(paths->state_dir, path, lock.epoch, err);
    if (status != GP_OK) {
        gp_pool_lock_release(&lock);
        return status;
    }
    *out = lock;
    return GP_OK;
}

void gp_pool_lock_release(gp_pool_lock *lock)
{
    if (lock->fd >= 0)
        close(lock->fd);
    lock->fd = -1;
}

bool gp_pool_lock_valid(const gp_pool_lock *lock, const gp_paths *paths)
{
    struct stat status;

    return stat(paths->lock, &status) == 0 && status.st_dev == lock->device && status.st_ino == lock->inode;
}

bool gp_pool_lock_followed(const gp_pool_lock *lock, const gp_paths *paths)
{
    char path[GP_TEXT_PATH + 8], text[32] = "";
    int fd;
    ssize_t got;

    snprintf(path, sizeof(path), "%s/epoch", paths->state_dir);
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    got = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
    if (fd >= 0)
        close(fd);
    return got > 0 && strtoull(text, NULL, 10) > lock->epoch;
}
