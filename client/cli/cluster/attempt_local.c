/* Implement attempt_local.h. */
#include "client/cli/cluster/attempt_local.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "common/base/system/cgroup.h"
#include "common/base/system/directory.h"
#include "common/base/system/file.h"

#define NAME "gpjob-"

enum {
    BOOT_BYTES = 40,
    YOUNG_S = 60, /* younger directories may not have a lock yet */
};

/* Create and lock the file of an attempt. It has the boot id of this host: hosts can share the
 * folder, and some file systems lock files only within a host. */
static gp_status lock_create(int *out, const char *path, gp_error *err)
{
    char boot[BOOT_BYTES];
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

    gp_boot_id_read(boot, sizeof(boot));
    if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) != 0 || !gp_write_all(fd, boot, strlen(boot))) {
        gp_fail_errno(err, GP_EIO, "cannot create %s", path);
        if (fd >= 0)
            close(fd);
        return GP_EIO;
    }
    *out = fd;
    return GP_OK;
}

/* Return whether a directory belongs to an attempt on this host whose processes have all exited. */
static bool is_stale(const char *path)
{
    char lock[PATH_MAX], boot[BOOT_BYTES], here[BOOT_BYTES];
    struct stat info;
    bool stale;
    int fd;

    if (lstat(path, &info) != 0 || !S_ISDIR(info.st_mode) || info.st_uid != geteuid() ||
        time(NULL) - info.st_mtime < YOUNG_S || snprintf(lock, sizeof(lock), "%s/lock", path) >= PATH_MAX)
        return false;
    gp_boot_id_read(here, sizeof(here));
    if (!gp_line_read(lock, boot, sizeof(boot)) || strcmp(boot, here) != 0)
        return false;
    fd = open(lock, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    stale = fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0;
    if (fd >= 0)
        close(fd);
    return stale;
}

static void stale_remove(const char *folder)
{
    DIR *all = opendir(folder);
    const struct dirent *entry;

    while (all != NULL && (entry = readdir(all)) != NULL) {
        char path[PATH_MAX];

        if (strncmp(entry->d_name, NAME, strlen(NAME)) == 0 &&
            snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name) < PATH_MAX && is_stale(path))
            gp_directory_remove(path);
    }
    if (all != NULL)
        closedir(all);
}

/* Create a directory below that of the attempt, and name it in a variable. */
static gp_status directory_create(const attempt_local *local, const char *name, const char *variable,
                                  gp_error *err)
{
    char path[ATTEMPT_LOCAL_BYTES + 16];

    snprintf(path, sizeof(path), "%s/%s", local->path, name);
    setenv(variable, path, 1);
    return mkdir(path, 0700) == 0 ? GP_OK : gp_fail_errno(err, GP_EIO, "cannot create %s", path);
}

gp_status attempt_local_open(attempt_local *out, gp_error *err)
{
    const char *folder = getenv("TMPDIR");
    char path[ATTEMPT_LOCAL_BYTES + 16];
    gp_status status;

    out->lock = -1;
    if (folder == NULL || folder[0] != '/' || strlen(folder) > ATTEMPT_LOCAL_BYTES / 2)
        folder = "/tmp";
    stale_remove(folder);
    snprintf(out->path, sizeof(out->path), "%s/" NAME "XXXXXX", folder);
    if (mkdtemp(out->path) == NULL) {
        out->path[0] = '\0';
        return gp_fail_errno(err, GP_EIO, "cannot create a directory in %s", folder);
    }
    snprintf(path, sizeof(path), "%s/lock", out->path);
    status = lock_create(&out->lock, path, err);
    if (status == GP_OK)
        status = directory_create(out, "run", "GRADPOOL_RUNTIME_DIR", err);
    if (status == GP_OK)
        status = directory_create(out, "state", "GRADPOOL_STATE_DIR", err);
    if (status != GP_OK)
        attempt_local_remove(out);
    return status;
}

void attempt_local_remove(attempt_local *local)
{
    if (local->path[0] != '\0')
        gp_directory_remove(local->path);
    if (local->lock >= 0)
        close(local->lock);
    local->lock = -1;
}
