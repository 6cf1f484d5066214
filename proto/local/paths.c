/* Derive, create and check the directories of a pool (paths.h). */
#include "proto/local/paths.h"

#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Format a path. Return false if it does not fit into `size` bytes. */
__attribute__((format(printf, 3, 4))) static bool path_set(char *out, size_t size, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    int length = vsnprintf(out, size, format, arguments);
    va_end(arguments);
    return length >= 0 && (size_t)length < size;
}

/* Remove trailing slashes: lstat("link/") would follow the link. */
static void slashes_strip(char *path)
{
    for (size_t bytes = strlen(path); bytes > 1 && path[bytes - 1] == '/'; bytes--)
        path[bytes - 1] = '\0';
}

/* Read an environment variable that must be an absolute path. *out is NULL if it is unset or
 * empty. */
static gp_status variable_get(const char *name, const char **out, gp_error *err)
{
    const char *value = getenv(name);

    *out = NULL;
    if (value == NULL || value[0] == '\0')
        return GP_OK;
    if (value[0] != '/')
        return gp_fail(err, GP_EINVAL, "%s is '%.120s'; must be an absolute path", name, value);
    *out = value;
    return GP_OK;
}

/* Return whether /run/user/UID is a private directory of this user that survives logout: systemd
 * keeps it if the user lingers. A pool outlives logins, so it must not use a directory that
 * disappears. */
static bool run_user_usable(const char *path, uid_t uid)
{
    struct passwd entry, *found = NULL;
    char text[1024], linger[256];
    struct stat seen;

    return lstat(path, &seen) == 0 && S_ISDIR(seen.st_mode) && seen.st_uid == uid &&
           (seen.st_mode & 077) == 0 && getpwuid_r(uid, &entry, text, sizeof(text), &found) == 0 &&
           found != NULL && strchr(found->pw_name, '/') == NULL &&
           path_set(linger, sizeof(linger), "/var/lib/systemd/linger/%s", found->pw_name) &&
           access(linger, F_OK) == 0;
}

/* Get the name of this host, for paths in home directories that several hosts share. "localhost":
 * the host has no usable name. */
static void host_name(char out[65])
{
    memset(out, 0, 65);
    if (gethostname(out, 64) != 0 || out[0] == '\0' || out[0] == '.' || strchr(out, '/') != NULL)
        snprintf(out, 65, "localhost");
}

/* Set state_root and the paths below it, and check that log paths fit. GP_EINVAL: HOME and both
 * state variables are unset, or one is not an absolute path. */
static gp_status state_find(gp_paths *paths, gp_error *err)
{
    const char *own, *xdg, *home;
    char host[65], *root = paths->state_root;
    size_t size = sizeof(paths->state_root);
    bool fits;
    gp_status status = variable_get("GRADPOOL_STATE_DIR", &own, err);

    if (status == GP_OK)
        status = variable_get("XDG_STATE_HOME", &xdg, err);
    if (status == GP_OK)
        status = variable_get("HOME", &home, err);
    if (status != GP_OK)
        return status;
    if (own != NULL)
        fits = path_set(root, size, "%s", own);
    else if (xdg != NULL)
        fits = path_set(root, size, "%s/gradpool", xdg);
    else if (home != NULL)
        fits = path_set(root, size, "%s/.local/state/gradpool", home);
    else
        return gp_fail(err, GP_EINVAL, "no directory for the pool's state: set HOME or GRADPOOL_STATE_DIR");
    slashes_strip(root);
    host_name(host);
    fits = fits &&
           path_set(paths->state_dir, sizeof(paths->state_dir), "%s/%s/%s", root, host, paths->pool) &&
           path_set(paths->log_dir, sizeof(paths->log_dir), "%s/log", paths->state_dir) &&
           strlen(paths->log_dir) + strlen("/worker-256.log") < sizeof(paths->log_dir) &&
           path_set(paths->scheduler_log, sizeof(paths->scheduler_log), "%s/scheduler.log", paths->log_dir);
    if (!fits)
        return gp_fail(err, GP_ELIMIT,
                       "paths of log files in '%.120s' would have more than %d bytes; set GRADPOOL_STATE_DIR "
                       "to a shorter directory",
                       root, GP_TEXT_PATH - 1);
    return GP_OK;
}

/* Choose the user_dir: /tmp/gradpool-UID, or STATE/.run.HOST if another user owns that name in
 * /tmp.
 *
 * Once STATE/.run.HOST exists, it is always used. Otherwise the user who took the name in /tmp
 * could hide a running pool by removing the directory. The name cannot collide in STATE: no host
 * name starts with a dot.
 *
 * GP_ELIMIT: another user owns /tmp/gradpool-UID, and the other path is too long. */
static gp_status user_dir_find(const gp_paths *paths, char out[GP_TEXT_ENDPOINT], gp_error *err)
{
    char host[65], fallback[GP_TEXT_ENDPOINT];
    struct stat seen;

    host_name(host);
    path_set(out, GP_TEXT_ENDPOINT, "/tmp/gradpool-%u", (unsigned)geteuid());
    bool taken = lstat(out, &seen) == 0 && seen.st_uid != geteuid();
    unsigned owner = taken ? (unsigned)seen.st_uid : 0;
    bool fits = path_set(fallback, sizeof(fallback), "%s/.run.%s", paths->state_root, host);

    if (taken && !fits)
        return gp_fail(err, GP_ELIMIT,
                       "%s belongs to user %u, and '%.100s/.run.%s' is too long for sockets; set "
                       "GRADPOOL_RUNTIME_DIR to a short directory of your own",
                       out, owner, paths->state_root, host);
    if (fits && (taken || lstat(fallback, &seen) == 0))
        path_set(out, GP_TEXT_ENDPOINT, "%s", fallback);
    return GP_OK;
}

/* Set runtime, pool_dir and device_dir, and check that socket paths fit. */
static gp_status runtime_find(gp_paths *paths, gp_error *err)
{
    char run_user[64], user_dir[GP_TEXT_ENDPOINT];
    uid_t uid = geteuid();
    const char *chosen;
    gp_status status = variable_get("GRADPOOL_RUNTIME_DIR", &chosen, err);
    bool fits;

    if (status == GP_OK)
        status = user_dir_find(paths, user_dir, err);
    if (status != GP_OK)
        return status;
    snprintf(run_user, sizeof(run_user), "/run/user/%u", (unsigned)uid);
    if (chosen != NULL)
        fits = path_set(paths->runtime, sizeof(paths->runtime), "%s", chosen);
    else if (run_user_usable(run_user, uid))
        fits = path_set(paths->runtime, sizeof(paths->runtime), "%s/gradpool", run_user);
    else
        fits = path_set(paths->runtime, sizeof(paths->runtime), "%s", user_dir);
    slashes_strip(paths->runtime);
    fits = fits && path_set(paths->pool_dir, sizeof(paths->pool_dir), "%s/%s", paths->runtime, paths->pool);

    /* The control socket of a worker has the longest name in pool_dir. */
    if (!fits || strlen(paths->pool_dir) + strlen("/w256.4294967295.door") > GP_SOCKET_PATH_MAX)
        return gp_fail(
            err, GP_ELIMIT,
            "paths of sockets in '%.120s/%s' would have more than %d bytes; set GRADPOOL_RUNTIME_DIR to a "
            "shorter directory (its path and the pool's name together have at most %d bytes)",
            chosen != NULL ? chosen : paths->runtime, paths->pool, GP_SOCKET_PATH_MAX,
            GP_SOCKET_PATH_MAX - (int)strlen("//w256.4294967295.door"));
    if (!path_set(paths->device_dir, sizeof(paths->device_dir), "%s/devices", user_dir))
        return gp_fail(err, GP_ELIMIT,
                       "'%s/devices' has more than %zu bytes; set GRADPOOL_STATE_DIR to a shorter directory",
                       user_dir, sizeof(paths->device_dir) - 1);
    return GP_OK;
}

gp_status gp_paths_find(gp_paths *out, const char *pool, gp_error *err)
{
    gp_paths paths = { 0 };
    gp_status status;

    if (pool == NULL)
        pool = "default";
    size_t bytes = strlen(pool);

    if (bytes == 0 || bytes > GP_POOL_NAME_MAX ||
        strspn(pool, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-") != bytes ||
        strspn(pool, ".") == bytes || strcmp(pool, "devices") == 0)
        return gp_fail(err, GP_EINVAL,
                       "invalid pool name '%.60s': use 1 to %d letters, digits, '.', '_' or '-', not only "
                       "dots and not 'devices'",
                       pool, GP_POOL_NAME_MAX);
    memcpy(paths.pool, pool, bytes + 1);
    status = state_find(&paths, err);
    if (status == GP_OK)
        status = runtime_find(&paths, err);
    if (status != GP_OK)
        return status;

    /* These paths fit: runtime_find() has checked a longer one, the control socket of a worker. */
    path_set(paths.lock, sizeof(paths.lock), "%s/lock", paths.pool_dir);
    path_set(paths.record, sizeof(paths.record), "%s/record", paths.pool_dir);
    path_set(paths.scheduler_socket, sizeof(paths.scheduler_socket), "%s/scheduler", paths.pool_dir);
    path_set(paths.scheduler_control_socket, sizeof(paths.scheduler_control_socket), "%s/scheduler.door",
             paths.pool_dir);

    /* These paths fit: state_find() has checked a longer one, the log of a worker. */
    path_set(paths.key_dir, sizeof(paths.key_dir), "%s/keys", paths.state_dir);
    path_set(paths.server_key, sizeof(paths.server_key), "%s/server.key", paths.key_dir);
    path_set(paths.allowed, sizeof(paths.allowed), "%s/allowed", paths.key_dir);
    *out = paths;
    return GP_OK;
}

/* ---- directories ---- */

/* Environment variables that choose the directories; errors name the one that moves a path. */
static const char runtime_variable[] = "GRADPOOL_RUNTIME_DIR", state_variable[] = "GRADPOOL_STATE_DIR";

/* Check an existing directory. GP_EPERM: a symbolic link, no directory, another owner, or open to
 * others. */
static gp_status directory_check(const char *path, const char *variable, gp_error *err)
{
    struct stat seen;

    if (fstatat(AT_FDCWD, path, &seen, AT_SYMLINK_NOFOLLOW) != 0)
        return gp_fail_errno(err, errno == ENOENT ? GP_ENOENT : GP_EIO, "cannot stat %s", path);
    if (S_ISLNK(seen.st_mode))
        return gp_fail(err, GP_EPERM, "%s is a symbolic link, but must be a directory; remove the link",
                       path);
    if (!S_ISDIR(seen.st_mode))
        return gp_fail(err, GP_EPERM, "%s is not a directory; remove it or choose another path", path);
    if (seen.st_uid != geteuid())
        return gp_fail(err, GP_EPERM,
                       "%s belongs to user %u, not to user %u; set %s to a directory of your own", path,
                       (unsigned)seen.st_uid, (unsigned)geteuid(), variable);
    if ((seen.st_mode & 077) != 0)
        return gp_fail(err, GP_EPERM, "%s is accessible to other users (mode %04o); run: chmod 700 '%s'",
                       path, (unsigned)(seen.st_mode & 07777), path);
    return GP_OK;
}

/* Create a directory with mode 0700 unless the path exists. */
static gp_status directory_make(const char *path, const char *variable, gp_error *err)
{
    struct stat seen;
    int problem = mkdir(path, 0700) == 0 ? 0 : errno;

    /* mkdir() of an existing directory can also fail with EROFS or EACCES */
    if (problem == 0 || problem == EEXIST || stat(path, &seen) == 0)
        return GP_OK;
    return gp_fail(err, GP_EIO,
                   "cannot create the directory %s: %s; set %s to a directory that you can write", path,
                   strerror(problem), variable);
}

static gp_status directory_secure(const char *path, const char *variable, gp_error *err)
{
    gp_status status = directory_make(path, variable, err);

    return status == GP_OK ? directory_check(path, variable, err) : status;
}

gp_status gp_directory_secure(const char *path, gp_error *err)
{
    return directory_secure(path, state_variable, err);
}

/* Create the missing parents of `path` with mode 0700. Existing parents may have any owner and
 * mode, for example ~/.local. */
static gp_status parents_make(const char *path, const char *variable, gp_error *err)
{
    char part[GP_TEXT_PATH];
    gp_status status = GP_OK;

    for (const char *slash = strchr(path + 1, '/'); slash != NULL && status == GP_OK;
         slash = strchr(slash + 1, '/')) {
        snprintf(part, sizeof(part), "%.*s", (int)(slash - path), path);
        status = directory_make(part, variable, err);
    }
    return status;
}

/* Outermost directory first: directory_secure() requires the parent. host_dir lies between
 * state_root and state_dir. */
gp_status gp_paths_create(const gp_paths *paths, gp_error *err)
{
    char host_dir[GP_TEXT_PATH], claims_dir[GP_TEXT_ENDPOINT];

    snprintf(host_dir, sizeof(host_dir), "%s", paths->state_dir);
    *strrchr(host_dir, '/') = '\0';
    snprintf(claims_dir, sizeof(claims_dir), "%s", paths->device_dir);
    *strrchr(claims_dir, '/') = '\0';
    const char *const state[] = { paths->state_root, host_dir,   paths->state_dir,
                                  paths->log_dir,    claims_dir, paths->device_dir };
    gp_status status = parents_make(paths->runtime, runtime_variable, err);

    if (status == GP_OK)
        status = parents_make(paths->state_root, state_variable, err);
    if (status == GP_OK)
        status = directory_secure(paths->runtime, runtime_variable, err);
    if (status == GP_OK)
        status = directory_secure(paths->pool_dir, runtime_variable, err);
    for (size_t i = 0; i < sizeof(state) / sizeof(state[0]) && status == GP_OK; i++)
        status = directory_secure(state[i], state_variable, err);
    return status;
}

gp_status gp_paths_check(const gp_paths *paths, gp_error *err)
{
    gp_status status = directory_check(paths->runtime, runtime_variable, err);

    if (status == GP_OK)
        status = directory_check(paths->pool_dir, runtime_variable, err);
    if (status == GP_ENOENT)
        return gp_fail(err, GP_ENOPOOL,
                       "no pool '%s' is running (there is no %s); start one with: gradpool up", paths->pool,
                       paths->pool_dir);
    return status;
}

void gp_paths_worker_file(const gp_paths *paths, uint32_t index, uint32_t incarnation, const char *suffix,
                          char out[GP_TEXT_ENDPOINT])
{
    path_set(out, GP_TEXT_ENDPOINT, "%s/w%u.%u%s", paths->pool_dir, index, incarnation, suffix);
}

void gp_paths_worker_log(const gp_paths *paths, uint32_t index, char out[GP_TEXT_PATH])
{
    path_set(out, GP_TEXT_PATH, "%s/worker-%u.log", paths->log_dir, index);
}
