/* Implement cached.h. */
#include "common/base/system/cached.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/memory/alloc.h"
#include "common/base/memory/crc32c.h"
#include "common/base/system/directory.h"

enum { HEAD_MAX = GP_CACHED_WORD_MAX + 10 }; /* WORD, blank, 8 digits, newline */

/* Write a cache file's first line. Return the length. */
static size_t head_write(char head[HEAD_MAX + 1], const char *word, const void *data, size_t bytes)
{
    return (size_t)snprintf(head, HEAD_MAX + 1, "%.*s %08" PRIx32 "\n", GP_CACHED_WORD_MAX, word,
                            gp_crc32c(0, data, bytes));
}

/* ---- reading ---- */

/* Read a whole regular file of this user and add a NUL. O_NOFOLLOW and O_NONBLOCK: another user may
 * have put a symbolic link or FIFO in the directory. */
static gp_status file_read(const char *path, size_t bytes_max, char **out, size_t *bytes, gp_error *err)
{
    struct stat info;
    char *text = NULL;
    ssize_t got = -1;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);

    if (fd < 0)
        return gp_fail_errno(err, errno == ENOENT ? GP_ENOENT : GP_EIO, "cannot open %s", path);
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode) || info.st_uid != geteuid() ||
        (uintmax_t)info.st_size > bytes_max) {
        close(fd);
        return gp_fail(err, GP_EIO, "%s is not a regular file of this user with at most %zu bytes", path,
                       bytes_max);
    }
    text = gp_malloc((size_t)info.st_size + 1);
    if (text != NULL)
        got = read(fd, text, (size_t)info.st_size);
    close(fd);
    if (text == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for the content of %s", path);
    if (got < 0) {
        gp_free(text);
        return gp_fail_errno(err, GP_EIO, "cannot read %s", path);
    }
    text[got] = '\0';
    *out = text;
    *bytes = (size_t)got;
    return GP_OK;
}

gp_status gp_cached_read(char **out, size_t *bytes, const char *path, const char *word, size_t bytes_max,
                         gp_error *err)
{
    const size_t head_bytes = strlen(word) + 10;
    char head[HEAD_MAX + 1], *text;
    size_t got;
    gp_status status = file_read(path, bytes_max + head_bytes, &text, &got, err);

    if (status != GP_OK)
        return status;
    if (got >= head_bytes)
        head_write(head, word, text + head_bytes, got - head_bytes);
    if (got < head_bytes || memcmp(text, head, head_bytes) != 0) {
        gp_free(text);
        return gp_fail(err, GP_ECORRUPT, "%s is damaged: its checksum differs", path);
    }
    memmove(text, text + head_bytes, got - head_bytes + 1);
    *out = text;
    *bytes = got - head_bytes;
    return GP_OK;
}

/* ---- writing ---- */

/* Remove a directory's oldest visible file if the directory has more than `most` files. */
static void files_prune(const char *directory, uint32_t most)
{
    struct timespec oldest = { 0 };
    char path[PATH_MAX + 300], victim[PATH_MAX + 300] = "";
    DIR *folder = opendir(directory);
    uint32_t count = 0;

    for (struct dirent *entry = folder == NULL ? NULL : readdir(folder); entry != NULL;
         entry = readdir(folder)) {
        struct stat info;

        snprintf(path, sizeof(path), "%s/%s", directory, entry->d_name);
        if (entry->d_name[0] == '.' || lstat(path, &info) != 0 || !S_ISREG(info.st_mode))
            continue;
        if (count++ == 0 || info.st_mtim.tv_sec < oldest.tv_sec ||
            (info.st_mtim.tv_sec == oldest.tv_sec && info.st_mtim.tv_nsec < oldest.tv_nsec)) {
            oldest = info.st_mtim;
            memcpy(victim, path, sizeof(victim));
        }
    }
    if (folder != NULL)
        closedir(folder);
    if (count > most)
        unlink(victim);
}

/* Write head and data to `scratch`, and rename it to `path`. */
static gp_status file_write(const char *path, const char *scratch, const char *head, size_t head_bytes,
                            const void *data, size_t bytes, gp_error *err)
{
    int fd = open(scratch, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    gp_status status = GP_OK;

    if (fd < 0)
        return gp_fail_errno(err, GP_EIO, "cannot create %s", scratch);
    if (write(fd, head, head_bytes) != (ssize_t)head_bytes || write(fd, data, bytes) != (ssize_t)bytes)
        status = gp_fail_errno(err, GP_EIO, "cannot write %s", scratch);
    if (close(fd) != 0 && status == GP_OK)
        status = gp_fail_errno(err, GP_EIO, "cannot write %s", scratch);
    if (status == GP_OK && rename(scratch, path) != 0)
        status = gp_fail_errno(err, GP_EIO, "cannot rename %s to %s", scratch, path);
    if (status != GP_OK)
        unlink(scratch);
    return status;
}

gp_status gp_cached_write(const char *path, const char *word, const void *data, size_t bytes,
                          uint32_t files_max, gp_error *err)
{
    const char *slash = strrchr(path, '/');
    char directory[PATH_MAX], scratch[PATH_MAX + 40], head[HEAD_MAX + 1];
    gp_status status;

    if (slash == NULL || slash == path || slash - path >= PATH_MAX)
        return gp_fail(err, GP_EINVAL, "%.200s is not in a cache directory", path);
    snprintf(directory, sizeof(directory), "%.*s", (int)(slash - path), path);
    snprintf(scratch, sizeof(scratch), "%s/.tmp-%d", directory, (int)getpid());
    status = gp_directory_make(directory, 0700, err);
    if (status == GP_OK)
        status = file_write(path, scratch, head, head_write(head, word, data, bytes), data, bytes, err);
    if (status == GP_OK)
        files_prune(directory, files_max);
    return status;
}

/* ---- location ---- */

gp_status gp_cache_path(char *path, size_t path_bytes, const char *what, const char *name, gp_error *err)
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME"), *middle = "";
    int length;

    /* The XDG specification requires relative paths to be ignored. */
    if (cache == NULL || cache[0] != '/') {
        if (home == NULL || home[0] != '/')
            return gp_fail(err, GP_ENOENT, "no cache directory: neither XDG_CACHE_HOME nor HOME is set");
        cache = home;
        middle = "/.cache";
    }
    length = snprintf(path, path_bytes, "%s%s/gradpool/%s%s%s", cache, middle, what, name == NULL ? "" : "/",
                      name == NULL ? "" : name);
    if (length < 0 || (size_t)length >= path_bytes)
        return gp_fail(err, GP_ELIMIT, "the path of the cache in %s has more than %zu bytes", cache,
                       path_bytes);
    return GP_OK;
}
