#include "tests/fault/failing.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

typedef enum call { OPEN, WRITE, FSYNC, RENAME, FALLOCATE, LINK, MKDIR, MMAP, SOCKET, FLOCK, CALLS } call;

const char *const failing_calls[] = { "open",  "write", "fsync",  "rename", "fallocate", "link",
                                      "mkdir", "mmap",  "socket", "flock",  NULL };

enum { SHORT = -1, PART_MAX = 100 };

static struct {
    call call;
    int error; /* SHORT or an errno value */
    bool onward;
    char part[PART_MAX];
    _Atomic long left;
    _Atomic int struck;
} failing = { .call = CALLS };

static int error_of(const char *name)
{
    static const struct {
        const char *name;
        int number;
    } errors[] = { { "short", SHORT },   { "ENOSPC", ENOSPC }, { "EIO", EIO },
                   { "EMFILE", EMFILE }, { "EDQUOT", EDQUOT }, { "EROFS", EROFS },
                   { "ENOMEM", ENOMEM }, { "EACCES", EACCES }, { "EINVAL", EINVAL },
                   { "ENOSYS", ENOSYS }, { "ENOLCK", ENOLCK }, { "EOPNOTSUPP", EOPNOTSUPP } };

    for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++)
        if (strcmp(errors[i].name, name) == 0)
            return errors[i].number;
    fprintf(stderr, "failing.c does not know %s\n", name);
    abort();
}

void failing_set(const char *spec)
{
    char name[16] = "", error[16] = "", more[2] = "";
    long n = 0;

    failing.call = CALLS;
    failing.part[0] = '\0';
    failing.struck = 0;
    if (spec == NULL || *spec == '\0')
        return;
    if (sscanf(spec, "%15[a-z]:%ld%1[+]:%15[A-Za-z]:%99s", name, &n, more, error, failing.part) < 4 &&
        sscanf(spec, "%15[a-z]:%ld:%15[A-Za-z]:%99s", name, &n, error, failing.part) < 3) {
        fprintf(stderr, "failing.c does not understand %s\n", spec);
        abort();
    }
    failing.onward = more[0] == '+';
    failing.error = error_of(error);
    failing.left = n;
    for (int i = 0; i < CALLS; i++)
        if (strcmp(failing_calls[i], name) == 0)
            failing.call = (call)i;
}

int failing_struck(void)
{
    return failing.struck;
}

__attribute__((constructor)) static void from_environment(void)
{
    failing_set(getenv("GP_FAIL"));
}

static void tell(const char *path)
{
    const char *reported = getenv("GP_FAIL_TOLD");
    char line[1200];
    int length = snprintf(line, sizeof(line), "%s %.1000s\n", failing_calls[failing.call], path);

    if (reported == NULL)
        return;
    int fd = (int)syscall(SYS_openat, AT_FDCWD, reported, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);

    if (fd >= 0) {
        syscall(SYS_write, fd, line, (size_t)length);
        syscall(SYS_close, fd);
    }
}

/* Count a call and return whether it must fail. If so, errno is set. */
static bool strikes(call which, const char *path)
{
    if (failing.call != which || (failing.part[0] != '\0' && strstr(path, failing.part) == NULL))
        return false;
    long left = atomic_fetch_sub(&failing.left, 1);

    if (left > 1 || (left < 1 && !failing.onward))
        return false;
    atomic_fetch_add(&failing.struck, 1);
    tell(path);
    errno = failing.error;
    return true;
}

static bool strikes_fd(call which, int fd)
{
    char link[40], path[1024];
    ssize_t length;
    int before = errno;

    if (failing.call != which)
        return false;
    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    length = readlink(link, path, sizeof(path) - 1);
    path[length > 0 ? length : 0] = '\0';
    errno = before;
    return strikes(which, path);
}

#define NEXT(name) ((__typeof__(&(name)))(uintptr_t)dlsym(RTLD_NEXT, #name))

/* ---- the calls ---- */

static mode_t mode_of(int flags, va_list arguments)
{
    return (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE ? va_arg(arguments, mode_t) : 0;
}

int open(const char *path, int flags, ...)
{
    va_list arguments;

    va_start(arguments, flags);
    mode_t mode = mode_of(flags, arguments);

    va_end(arguments);
    return strikes(OPEN, path) ? -1 : NEXT(open)(path, flags, mode);
}

int open64(const char *path, int flags, ...)
{
    va_list arguments;

    va_start(arguments, flags);
    mode_t mode = mode_of(flags, arguments);

    va_end(arguments);
    return strikes(OPEN, path) ? -1 : NEXT(open64)(path, flags, mode);
}

int openat(int folder, const char *path, int flags, ...)
{
    va_list arguments;

    va_start(arguments, flags);
    mode_t mode = mode_of(flags, arguments);

    va_end(arguments);
    return strikes(OPEN, path) ? -1 : NEXT(openat)(folder, path, flags, mode);
}

FILE *fopen(const char *path, const char *mode)
{
    return strikes(OPEN, path) ? NULL : NEXT(fopen)(path, mode);
}

FILE *fopen64(const char *path, const char *mode)
{
    return strikes(OPEN, path) ? NULL : NEXT(fopen64)(path, mode);
}

ssize_t write(int fd, const void *data, size_t bytes)
{
    if (bytes > 0 && strikes_fd(WRITE, fd)) {
        if (failing.error != SHORT)
            return -1;
        bytes = 1;
    }
    return NEXT(write)(fd, data, bytes);
}

ssize_t pwrite(int fd, const void *data, size_t bytes, off_t at)
{
    if (bytes > 0 && strikes_fd(WRITE, fd)) {
        if (failing.error != SHORT)
            return -1;
        bytes = 1;
    }
    return NEXT(pwrite)(fd, data, bytes, at);
}

ssize_t pwrite64(int fd, const void *data, size_t bytes, off64_t at)
{
    if (bytes > 0 && strikes_fd(WRITE, fd)) {
        if (failing.error != SHORT)
            return -1;
        bytes = 1;
    }
    return NEXT(pwrite64)(fd, data, bytes, at);
}

ssize_t writev(int fd, const struct iovec *parts, int count)
{
    if (strikes_fd(WRITE, fd)) {
        if (failing.error != SHORT)
            return -1;
        return NEXT(write)(fd, parts[0].iov_base, parts[0].iov_len > 0);
    }
    return NEXT(writev)(fd, parts, count);
}

/* The C library writes stream buffers with an internal call that cannot be interposed: fail
 * fwrite() itself. */
size_t fwrite(const void *data, size_t size, size_t count, FILE *stream)
{
    if (size * count > 0 && failing.error != SHORT && strikes_fd(WRITE, fileno(stream)))
        return 0;
    return NEXT(fwrite)(data, size, count, stream);
}

int fflush(FILE *stream)
{
    if (stream != NULL && failing.error != SHORT && strikes_fd(WRITE, fileno(stream)))
        return EOF;
    return NEXT(fflush)(stream);
}

int fclose(FILE *stream)
{
    if (failing.error != SHORT && strikes_fd(WRITE, fileno(stream))) {
        int error = errno;

        NEXT(fclose)(stream);
        errno = error;
        return EOF;
    }
    return NEXT(fclose)(stream);
}

int fsync(int fd)
{
    return strikes_fd(FSYNC, fd) ? -1 : NEXT(fsync)(fd);
}

int fdatasync(int fd)
{
    return strikes_fd(FSYNC, fd) ? -1 : NEXT(fdatasync)(fd);
}

int rename(const char *from, const char *to)
{
    return strikes(RENAME, to) ? -1 : NEXT(rename)(from, to);
}

int renameat(int from_folder, const char *from, int to_folder, const char *to)
{
    return strikes(RENAME, to) ? -1 : NEXT(renameat)(from_folder, from, to_folder, to);
}

int renameat2(int from_folder, const char *from, int to_folder, const char *to, unsigned flags)
{
    return strikes(RENAME, to) ? -1 : NEXT(renameat2)(from_folder, from, to_folder, to, flags);
}

int flock(int fd, int operation)
{
    return operation != LOCK_UN && strikes_fd(FLOCK, fd) ? -1 : NEXT(flock)(fd, operation);
}

int linkat(int from_folder, const char *from, int to_folder, const char *to, int flags)
{
    return strikes(LINK, to) ? -1 : NEXT(linkat)(from_folder, from, to_folder, to, flags);
}

int mkdir(const char *path, mode_t mode)
{
    return strikes(MKDIR, path) ? -1 : NEXT(mkdir)(path, mode);
}

int posix_fallocate(int fd, off_t from, off_t bytes)
{
    return strikes_fd(FALLOCATE, fd) ? failing.error : NEXT(posix_fallocate)(fd, from, bytes);
}

int posix_fallocate64(int fd, off64_t from, off64_t bytes)
{
    return strikes_fd(FALLOCATE, fd) ? failing.error : NEXT(posix_fallocate64)(fd, from, bytes);
}

int ftruncate(int fd, off_t bytes)
{
    return strikes_fd(FALLOCATE, fd) ? -1 : NEXT(ftruncate)(fd, bytes);
}

int ftruncate64(int fd, off64_t bytes)
{
    return strikes_fd(FALLOCATE, fd) ? -1 : NEXT(ftruncate64)(fd, bytes);
}

/* File mappings only: tests/fault/memory.c handles allocations by mmap(). */
void *mmap(void *at, size_t bytes, int protection, int flags, int fd, off_t from)
{
    return fd >= 0 && strikes_fd(MMAP, fd) ? MAP_FAILED : NEXT(mmap)(at, bytes, protection, flags, fd, from);
}

int socket(int domain, int type, int protocol)
{
    return strikes(SOCKET, "socket") ? -1 : NEXT(socket)(domain, type, protocol);
}
