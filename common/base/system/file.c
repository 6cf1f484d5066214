/* Implement file.h. */
#include "common/base/system/file.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/memory/alloc.h"
#include "common/base/system/fault.h"
#include "common/base/system/fence.h"

enum { LOCK_POLL_MS = 5 }; /* gp_file_lock_wait() */

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

ssize_t gp_read_ends(int fd, void *to, size_t bytes)
{
    const size_t head = bytes / 4;
    uint8_t *tail = (uint8_t *)to + head;
    struct stat info;
    ssize_t got;

    if (fstat(fd, &info) != 0)
        return -1;
    if ((uint64_t)info.st_size <= bytes || head == 0)
        return gp_read_at(fd, to, bytes, 0);
    got = gp_read_at(fd, to, head, 0);
    if (got < (ssize_t)head) /* the file was cut meanwhile */
        return got;
    *tail++ = '\n';
    bytes -= head + 1;
    got = gp_read_at(fd, tail, bytes, (uint64_t)info.st_size - bytes);
    return got < 0 ? -1 : (ssize_t)(head + 1) + got;
}

gp_status gp_file_lock(int fd)
{
    while (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        if (errno == EINTR)
            continue;
        if (errno == EWOULDBLOCK)
            return GP_EBUSY;
        return errno == ENOSYS || errno == ENOLCK || errno == EOPNOTSUPP ? GP_OK : GP_EIO;
    }
    return GP_OK;
}

gp_status gp_file_lock_wait(int fd, int timeout_ms)
{
    const int64_t deadline_ms = gp_now_ms() + timeout_ms;
    gp_status status;

    while ((status = gp_file_lock(fd)) == GP_EBUSY && gp_now_ms() < deadline_ms)
        gp_sleep_ms(LOCK_POLL_MS);
    return status;
}

bool gp_rename_new(const char *from, const char *to)
{
    if (renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE) == 0)
        return true;
    if ((errno != EINVAL && errno != ENOSYS) || link(from, to) != 0)
        return false;
    unlink(from);
    return true;
}

bool gp_write_all(int fd, const void *data, size_t bytes)
{
    const char *at = data;

    while (bytes > 0) {
        ssize_t n = write(fd, at, bytes);

        if (n < 0 && errno == EINTR)
            continue;
        if (n == 0)
            /* write() sets no errno if it returns 0. */
            errno = ENOSPC;
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

bool gp_files_sync(const char *directory, const char *const *names)
{
    enum { FILES_MAX = 8 };
    int files[FILES_MAX], count = 0, saved = 0, fd = open(directory, O_RDONLY | O_CLOEXEC | O_DIRECTORY);

    if (fd < 0)
        return false;
    for (; names[count] != NULL && count < FILES_MAX; count++) {
        files[count] = openat(fd, names[count], O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
        /* Without this, a file system that delays the allocation of blocks begins a new commit for
         * each file. */
        if (files[count] >= 0)
            (void)sync_file_range(files[count], 0, 0, SYNC_FILE_RANGE_WRITE);
        else
            saved = errno;
    }
    for (int i = 0; i < count; i++) {
        if (files[i] >= 0 && fsync(files[i]) != 0)
            saved = errno;
        if (files[i] >= 0)
            close(files[i]);
    }
    if (fsync(fd) != 0)
        saved = errno;
    close(fd);
    errno = saved;
    return saved == 0;
}

gp_status gp_file_open(int *out, size_t *bytes, const char *path, size_t bytes_max, gp_error *err)
{
    /* Without O_NONBLOCK, opening a FIFO waits for a writer. On a regular file the flag has no
     * effect. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    struct stat info;
    gp_status status = GP_OK;

    /* gp_fail_errno() would return GP_ELIMIT if no descriptor is free. Here GP_ELIMIT only means
     * that the file is too large or not a regular file. */
    if (fd < 0)
        return gp_fail(err,
                       errno == ENOENT   ? GP_ENOENT
                       : errno == ENOMEM ? GP_ENOMEM
                                         : GP_EIO,
                       "cannot open %s: %s", path, strerror(errno));
    if (fstat(fd, &info) != 0)
        status = gp_fail_errno(err, GP_EIO, "cannot read %s", path);
    else if (!S_ISREG(info.st_mode))
        status = gp_fail(err, GP_ELIMIT, "%s is not a regular file", path);
    else if ((uintmax_t)info.st_size > bytes_max)
        status = gp_fail(err, GP_ELIMIT, "%s has %jd bytes, at most %zu are supported", path,
                         (intmax_t)info.st_size, bytes_max);
    if (status != GP_OK) {
        close(fd);
        return status;
    }
    *out = fd;
    *bytes = (size_t)info.st_size;
    return GP_OK;
}

gp_status gp_file_read(uint8_t **data, size_t *bytes, const char *path, size_t bytes_max, gp_error *err)
{
    size_t size;
    int fd;
    gp_status status = gp_file_open(&fd, &size, path, bytes_max, err);

    if (status != GP_OK)
        return status;
    uint8_t *buffer = gp_malloc(size + 1);
    ssize_t got = buffer != NULL ? gp_read_at(fd, buffer, size, 0) : 0;

    close(fd);
    if (buffer == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for the %zu bytes of %s", size, path);
    if (got != (ssize_t)size) {
        gp_free(buffer);
        return gp_fail(err, GP_EIO, "%s is truncated: %zd of %zu bytes", path, got > 0 ? got : 0, size);
    }
    buffer[size] = '\0';
    *data = buffer;
    *bytes = size;
    return GP_OK;
}

/* ---- drafts ---- */

/* Find the file that a write to `path` would reach, and whether to write in place. stat() checks
 * the kernel's rules for symbolic links (fs.protected_symlinks); realpath() alone does not. */
static gp_status path_resolve(gp_file_draft *draft, const char *path, gp_error *err)
{
    struct stat link, target;

    if (strlen(path) + sizeof(".tmp-2147483647") > sizeof(draft->path))
        return gp_fail(err, GP_ELIMIT, "the path %.80s... is too long", path);
    strcpy(draft->path, path);
    draft->in_place = false;
    if (lstat(path, &link) != 0)
        return GP_OK;
    draft->in_place = !S_ISREG(link.st_mode) && !S_ISDIR(link.st_mode);
    if (!S_ISLNK(link.st_mode))
        return GP_OK;
    if (stat(path, &target) != 0)
        return gp_fail_errno(err, errno == ENOENT ? GP_ENOENT : GP_EIO,
                             "%s is a symbolic link to a file that cannot be written", path);
    draft->in_place = !S_ISREG(target.st_mode) && !S_ISDIR(target.st_mode);
    if (!draft->in_place && (realpath(path, draft->path) == NULL ||
                             strlen(draft->path) + sizeof(".tmp-2147483647") > sizeof(draft->path)))
        return gp_fail_errno(err, GP_EIO, "cannot resolve the symbolic link %s", path);
    return GP_OK;
}

/* Build a draft's temporary name FILE.tmp-PID. */
static void temporary_name(char name[PATH_MAX], const gp_file_draft *draft)
{
    size_t bytes = strlen(draft->path);

    memcpy(name, draft->path, bytes);
    snprintf(name + bytes, PATH_MAX - bytes, ".tmp-%d", (int)getpid());
}

gp_status gp_file_draft_open(gp_file_draft *out, const char *path, gp_error *err)
{
    char name[PATH_MAX];
    gp_status status = path_resolve(out, path, err);

    out->fd = -1;
    out->named = out->ordered = out->unsynced = false;
    if (status != GP_OK)
        return status;
    if (out->in_place) {
        out->fd = open(out->path, O_WRONLY | O_CLOEXEC | O_NOCTTY);
    } else {
        const char *slash = strrchr(out->path, '/');

        snprintf(name, sizeof(name), "%.*s", slash == NULL ? 1 : (int)(slash - out->path + 1),
                 slash == NULL ? "." : out->path);
        out->fd = open(name, O_TMPFILE | O_WRONLY | O_CLOEXEC, 0666);
        /* This file system has no O_TMPFILE. */
        out->named = out->fd < 0;
        temporary_name(name, out);
        if (out->named)
            out->fd = open(name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    }
    return out->fd >= 0 ? GP_OK : gp_fail_errno(err, GP_EIO, "cannot create %s", path);
}

gp_status gp_file_draft_stream(FILE **stream, gp_file_draft *out, const char *path, gp_error *err)
{
    gp_status status = gp_file_draft_open(out, path, err);
    int fd = status == GP_OK ? fcntl(out->fd, F_DUPFD_CLOEXEC, 0) : -1;

    if (status != GP_OK)
        return status;
    *stream = fd >= 0 ? fdopen(fd, "w") : NULL;
    if (*stream != NULL)
        return GP_OK;
    status = gp_fail_errno(err, GP_EIO, "cannot write %s", path);
    if (fd >= 0)
        close(fd);
    gp_file_draft_discard(out);
    return status;
}

/* Write the contents to the disk. File systems without sync_file_range() sync them. */
static bool draft_sync(const gp_file_draft *draft)
{
    enum { WRITTEN = SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER };

    if (draft->unsynced) {
        sync_file_range(draft->fd, 0, 0, SYNC_FILE_RANGE_WRITE);
        return true;
    }
    return (draft->ordered && sync_file_range(draft->fd, 0, 0, WRITTEN) == 0) || fsync(draft->fd) == 0;
}

gp_status gp_file_draft_commit(gp_file_draft *draft, gp_error *err)
{
    char name[PATH_MAX], self[40];
    gp_status status = GP_OK;

    temporary_name(name, draft);
    /* fsync() fails on pipes and devices, which have nothing to sync. */
    if (!draft_sync(draft) && !draft->in_place)
        status = gp_fail_errno(err, GP_EIO, "cannot write %s", draft->path);
    gp_fault_point("file-written");
    if (status == GP_OK && !draft->in_place)
        status = gp_fence_check_process(err);
    if (status == GP_OK && !draft->in_place && !draft->named) {
        /* Give a file created with O_TMPFILE the temporary name, as linkat()
         * cannot replace existing files. */
        snprintf(self, sizeof(self), "/proc/self/fd/%d", draft->fd);
        unlink(name);
        draft->named = linkat(AT_FDCWD, self, AT_FDCWD, name, AT_SYMLINK_FOLLOW) == 0;
        if (!draft->named)
            status = gp_fail_errno(err, GP_EIO, "cannot rename a temporary file to %s", draft->path);
    }
    if (close(draft->fd) != 0 && status == GP_OK)
        status = gp_fail_errno(err, GP_EIO, "cannot write %s", draft->path);
    draft->fd = -1;
    if (status == GP_OK && draft->named && rename(name, draft->path) != 0)
        status = gp_fail_errno(err, GP_EIO, "cannot rename %s to %s", name, draft->path);
    if (status != GP_OK && draft->named)
        unlink(name);
    return status;
}

void gp_file_draft_discard(gp_file_draft *draft)
{
    char name[PATH_MAX];

    if (draft->fd < 0)
        return;
    close(draft->fd);
    draft->fd = -1;
    temporary_name(name, draft);
    if (draft->named)
        unlink(name);
}

static gp_status file_write(const char *path, const void *data, size_t bytes, bool unsynced, gp_error *err)
{
    gp_file_draft draft;
    gp_status status = gp_file_draft_open(&draft, path, err);

    if (status != GP_OK)
        return status;
    draft.unsynced = unsynced;
    if (!gp_write_all(draft.fd, data, bytes)) {
        status = gp_fail_errno(err, GP_EIO, "cannot write %s", path);
        gp_file_draft_discard(&draft);
        return status;
    }
    return gp_file_draft_commit(&draft, err);
}

gp_status gp_file_write(const char *path, const void *data, size_t bytes, gp_error *err)
{
    return file_write(path, data, bytes, false, err);
}

gp_status gp_file_write_record(const char *path, const void *data, size_t bytes, gp_error *err)
{
    return file_write(path, data, bytes, true, err);
}
