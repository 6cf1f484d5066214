#include "common/base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/base/fault.h"

ssize_t gp_read_at(int fd, void *to, size_t bytes, uint64_t offset)
{
    size_t got = 0;

    while (got < bytes) {
        ssize_t n = pread(fd, (char *)to + got, bytes - got, (off_t)(offset + got));

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -1;
        if (n == 0)
            break;
        got += (size_t)n;
    }
    return (ssize_t)got;
}

bool gp_write_all(int fd, const void *data, size_t bytes)
{
    const char *at = data;

    while (bytes > 0) {
        ssize_t n = write(fd, at, bytes);

        if (n < 0 && errno == EINTR)
            continue;
        if (n == 0)
            errno = ENOSPC; /* it says nothing of its own */
        if (n <= 0)
            return false;
        at += n;
        bytes -= (size_t)n;
    }
    return true;
}

bool gp_directory_sync(const char *directory)
{
    int fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool synced = fd >= 0 && fsync(fd) == 0;
    int problem = errno;

    if (fd >= 0)
        close(fd);
    errno = problem;
    return synced;
}

gp_status gp_file_open(int *out, size_t *bytes, const char *path, size_t bytes_max, gp_error *err)
{
    /* Without O_NONBLOCK, opening a FIFO waits for a writer. On a regular file the flag has no effect. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    struct stat facts;
    gp_status status = GP_OK;

    if (fd < 0)
        return gp_fail_errno(err, errno == ENOENT ? GP_ENOENT : GP_EIO, "cannot open %s", path);
    if (fstat(fd, &facts) != 0)
        status = gp_fail_errno(err, GP_EIO, "cannot read %s", path);
    else if (!S_ISREG(facts.st_mode))
        status = gp_fail(err, GP_ELIMIT, "%s is not a regular file", path);
    else if ((uintmax_t)facts.st_size > bytes_max)
        status = gp_fail(err, GP_ELIMIT, "%s has %jd bytes; at most %zu are read", path,
                         (intmax_t)facts.st_size, bytes_max);
    if (status != GP_OK) {
        close(fd);
        return status;
    }
    *out = fd;
    *bytes = (size_t)facts.st_size;
    return GP_OK;
}

gp_status gp_file_read(uint8_t **data, size_t *bytes, const char *path, size_t bytes_max, gp_error *err)
{
    size_t size;
    int fd;
    gp_status status = gp_file_open(&fd, &size, path, bytes_max, err);

    if (status != GP_OK)
        return status;
    uint8_t *buffer = gp_malloc(size);
    ssize_t got = buffer != NULL ? gp_read_at(fd, buffer, size, 0) : 0;

    close(fd);
    if (buffer == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for the %zu bytes of %s", size, path);
    if (got != (ssize_t)size) {
        gp_free(buffer);
        return gp_fail(err, GP_EIO, "%s ended after %zd of %zu bytes", path, got > 0 ? got : 0, size);
    }
    *data = buffer;
    *bytes = size;
    return GP_OK;
}

/* In the folder of path, without a name: should we die, it is gone.  *named: not every file system has that. */
static int file_create(const char *path, const char *temporary, bool *named)
{
    char folder[PATH_MAX];
    const char *slash = strrchr(path, '/');
    int fd;

    snprintf(folder, sizeof(folder), "%.*s", slash == NULL ? 1 : (int)(slash - path + 1),
             slash == NULL ? "." : path);
    fd = open(folder, O_TMPFILE | O_WRONLY | O_CLOEXEC, 0666);
    *named = fd < 0;
    return fd >= 0 ? fd : open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
}

static bool file_name(int fd, const char *temporary)
{
    char self[40];

    snprintf(self, sizeof(self), "/proc/self/fd/%d", fd);
    unlink(temporary);
    return linkat(AT_FDCWD, self, AT_FDCWD, temporary, AT_SYMLINK_FOLLOW) == 0;
}

gp_status gp_file_write(const char *path, const void *data, size_t bytes, gp_error *err)
{
    char temporary[PATH_MAX];
    bool named;

    if ((size_t)snprintf(temporary, sizeof(temporary), "%s.tmp-%d", path, (int)getpid()) >= sizeof(temporary))
        return gp_fail(err, GP_ELIMIT, "the path %.80s... is too long", path);
    int fd = file_create(path, temporary, &named);

    if (fd < 0)
        return gp_fail_errno(err, GP_EIO, "cannot create %s", path);
    gp_status status = gp_write_all(fd, data, bytes) && fsync(fd) == 0
                           ? GP_OK
                           : gp_fail_errno(err, GP_EIO, "cannot write %s", path);

    gp_fault_point("file-written");
    if (status == GP_OK && !named && !file_name(fd, temporary))
        status = gp_fail_errno(err, GP_EIO, "cannot give %s its name", path);
    if (close(fd) != 0 && status == GP_OK)
        status = gp_fail_errno(err, GP_EIO, "cannot write %s", path);
    if (status == GP_OK && rename(temporary, path) != 0)
        status = gp_fail_errno(err, GP_EIO, "cannot rename %s to %s", temporary, path);
    if (status != GP_OK)
        unlink(temporary);
    return status;
}
