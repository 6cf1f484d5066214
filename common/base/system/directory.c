/* Implement directory.h. */
#include "common/base/system/directory.h"

#include <errno.h>
#include <ftw.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum { REMOVE_DESCRIPTORS = 8 };

/* Create all directories in the path's first `length` bytes. */
static gp_status make(const char *path, size_t length, mode_t mode, gp_error *err)
{
    char part[PATH_MAX];
    struct stat info;

    if (length >= sizeof(part))
        return gp_fail(err, GP_ELIMIT, "the path %.200s... has %zu bytes, at most %zu are supported", path,
                       length, sizeof(part) - 1);
    memcpy(part, path, length);
    part[length] = '\0';
    for (size_t at = 1; at <= length; at++)
        if ((at == length || part[at] == '/') && part[at - 1] != '/') {
            part[at] = '\0';
            int saved = mkdir(part, mode) == 0 ? 0 : errno;

            /* Ignore the error if the directory exists. File systems do not always report EEXIST
             * then: a read-only one may report EROFS, and a parent without write permission
             * EACCES. */
            if (saved != 0 && (stat(part, &info) != 0 || !S_ISDIR(info.st_mode))) {
                errno = saved == EEXIST ? ENOTDIR : saved;
                if (at == length)
                    return gp_fail_errno(err, GP_EIO, "cannot create the directory %s", part);
                return gp_fail_errno(err, GP_EIO, "cannot create the directory %s for %s", part, path);
            }
            part[at] = at == length ? '\0' : '/';
        }
    return GP_OK;
}

gp_status gp_directory_make(const char *path, mode_t mode, gp_error *err)
{
    return make(path, strlen(path), mode, err);
}

gp_status gp_directory_make_above(const char *path, mode_t mode, gp_error *err)
{
    const char *slash = strrchr(path, '/');

    return slash == NULL ? GP_OK : make(path, (size_t)(slash - path), mode, err);
}

static int remove_entry(const char *path, const struct stat *info, int kind, struct FTW *at)
{
    (void)info;
    (void)kind;
    (void)at;
    remove(path);
    return 0;
}

void gp_directory_remove(const char *path)
{
    nftw(path, remove_entry, REMOVE_DESCRIPTORS, FTW_DEPTH | FTW_PHYS);
}
