/* launch.c: find the scheduler of a pool, or start one, without races between clients. */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/pool/pool.h"
#include "common/base/memory/alloc.h"
#include "common/base/clock.h"
#include "common/base/system/fault.h"
#include "common/base/system/proc_stat.h"
#include "common/base/system/process.h"
#include "common/base/memory/secret.h"
#include "proto/channel/curve.h"

enum { RETRY_MS = 5, READY_MS = 2000, REPLACED_MS = 5000, REPLACED_RETRY_MS = 20 };

/* Connect to the scheduler's control socket and wait for the reply. The caller owns
 * *control_socket. GP_ENOPOOL: no scheduler listens. */
static gp_status launch_find(int *control_socket, gp_control_socket_reply *reply, const gp_paths *paths,
                             const uint8_t session[16], gp_timeout timeout, gp_error *err)
{
    gp_control_socket_hello hello = { .protocol_min = GP_PROTOCOL_MIN,
                                      .protocol_max = GP_PROTOCOL,
                                      .role = GP_ROLE_CLIENT,
                                      .pid = (uint32_t)getpid() };
    gp_status status = gp_paths_check(paths, err);

    if (status != GP_OK)
        return status;
    memcpy(hello.session, session, sizeof(hello.session));
    status = gp_control_socket_connect(control_socket, reply, paths->scheduler_control_socket, &hello,
                                       (int)gp_timeout_left(timeout), err);

    /* A scheduler that is shutting down, or was killed before its socket was closed, accepts the
     * connection and then closes it. Report that no pool is running. */
    return status == GP_EPEER ? gp_fail(err, GP_ENOPOOL,
                                        "no pool is running: the scheduler of pool %s has just exited; start "
                                        "a pool with: gradpool up",
                                        paths->pool)
                              : status;
}

/* Build the path to program `name` in folder `from`, relative to the folder that contains `file`.
 * Return whether it is executable. */
static bool program_beside(char *path, size_t bytes, const char *file, const char *from, const char *name)
{
    const char *slash = strrchr(file, '/');
    int length =
        slash == NULL ? -1 : snprintf(path, bytes, "%.*s/%s%s", (int)(slash - file), file, from, name);

    return length > 0 && (size_t)length < bytes && access(path, X_OK) == 0;
}

gp_status pool_daemon_path(const char *name, const char *variable, char *path, size_t bytes, gp_error *err)
{
    const char *named = getenv(variable);
    char file[PATH_MAX];
    Dl_info library;
    bool found = false;

    if (named != NULL) {
        snprintf(path, bytes, "%s", named);
        found = true;
    }
    if (!found && gp_program_path(file, sizeof(file), NULL) == GP_OK)
        found = program_beside(path, bytes, file, "", name);

    /* The caller is another program. Search next to this library (dladdr() of the version string),
     * which lies in lib or in lib/TRIPLET. */
    if (!found && dladdr(gp_version(), &library) != 0 && realpath(library.dli_fname, file) != NULL)
        found = program_beside(path, bytes, file, "../bin/", name) ||
                program_beside(path, bytes, file, "../../bin/", name);
    if (!found)
        snprintf(path, bytes, "%s/%s", GP_INSTALL_BINDIR, name);
    if (access(path, X_OK) != 0)
        return gp_fail_errno(err, GP_ENOENT, "cannot find %s at %s; set %s to its path", name, path,
                             variable);
    return GP_OK;
}

/* Move *fd above the descriptors that the scheduler inherits. Closes *fd on failure. */
static gp_status descriptor_raise(int *fd, const char *what, gp_error *err)
{
    errno = gp_spawn_raise(fd, 15);
    return errno == 0 ? GP_OK : gp_fail_errno(err, GP_EIO, "cannot duplicate a descriptor for %s", what);
}

/* Open the scheduler log as its standard output. Messages go there until the scheduler has parsed
 * its arguments. */
static gp_status launch_log(int *out, const gp_paths *paths, gp_error *err)
{
    *out = open(paths->scheduler_log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (*out < 0 && errno == ELOOP)
        return gp_fail(err, GP_EPERM, "the scheduler's log %s is a symbolic link; remove it",
                       paths->scheduler_log);
    return *out < 0 ? gp_fail_errno(err, GP_EIO, "cannot open the scheduler's log %s", paths->scheduler_log)
                    : descriptor_raise(out, "the scheduler's log", err);
}

/* Create a descriptor with the named secrets, numbered above the descriptors of the child. */
static gp_status launch_secrets(int *out, const char *names, gp_error *err)
{
    int fd;
    gp_status status = gp_secrets_new(&fd, err);

    if (status != GP_OK)
        return status;
    if (names[0] != '\0')
        status = gp_secrets_set(fd, names, err);
    if (status == GP_OK)
        status = descriptor_raise(&fd, "secrets", err);
    else
        close(fd);
    *out = fd;
    return status;
}

/* Write the --owner argument of the scheduler. GP_ENOENT: no such process. */
static gp_status launch_owner(char *text, size_t bytes, uint32_t pid, gp_error *err)
{
    gp_proc_stat stat;

    if (pid > INT32_MAX || !gp_proc_stat_read(&stat, (pid_t)pid))
        return gp_fail(err, GP_ENOENT, "no process has the pid %" PRIu32 ", so it cannot own a pool", pid);
    snprintf(text, bytes, "%" PRIu32 ":%" PRIu64, pid, stat.start_time);
    return GP_OK;
}

/* Start the scheduler process.
 *   ready  set to the read end of a pipe on which the scheduler reports "ready" or "error: ..."
 *   pid    set to an intermediate process that exits after this report; see gp_launch(). The
 *          scheduler itself is not a child of this process.
 *   given  NULL: resume the pool of a failed scheduler */
static gp_status launch_spawn(int *ready, pid_t *pid, const gp_paths *paths, const gp_pool_options *given,
                              gp_error *err)
{
    static const gp_pool_options usual;
    const gp_pool_options *options = given != NULL ? given : &usual;
    const bool owned = options->owner_pid != 0;
    const struct {
        const char *name;
        int64_t ms;
    } times[] = { { "--idle-timeout",
                    owned && options->idle_timeout_ms == 0 ? -1 : options->idle_timeout_ms },
                  { "--suspect-after", options->suspect_ms },
                  { "--kill-after", options->silence_ms } };
    enum { TIMES = sizeof(times) / sizeof(times[0]) };
    char path[4096], workers[16], texts[TIMES][24], owner[40];
    const char *argv[26] = {
        path, "--pool", paths->pool, "--detach", "--ready-fd", "3", "--workers", workers
    };
    size_t count = 8;
    char known[GP_SECRETS_NAMES_BYTES], assignment[GP_SECRETS_ASSIGNMENT_BYTES], **environment;
    const char *names = options->secret_env != NULL ? options->secret_env : gp_secrets_names(known);
    int pipe_fds[2], secrets, log;
    posix_spawn_file_actions_t actions;
    gp_status status = pool_daemon_path("gradpool-scheduler", "GRADPOOL_SCHEDULER", path, sizeof(path), err);

    if (status != GP_OK)
        return status;
    if (options->workers != 0)
        snprintf(workers, sizeof(workers), "%" PRIu32, options->workers);
    else
        snprintf(workers, sizeof(workers), "auto");
    if (options->devices != NULL) {
        argv[count++] = "--devices";
        argv[count++] = options->devices;
    }
    if (given == NULL)
        argv[count++] = "--resume";
    if (options->resources != NULL) {
        argv[count++] = "--resource";
        argv[count++] = options->resources;
    }
    if (options->listen != NULL) {
        gp_key_pair own;

        /* Create the server key first: the scheduler only reads it. */
        status = gp_directory_secure(paths->key_dir, err);
        if (status == GP_OK)
            status = gp_key_ensure(&own, paths->server_key, err);
        gp_key_wipe(&own);
        if (status != GP_OK)
            return status;
        argv[count++] = "--listen";
        argv[count++] = options->listen;
    }
    for (int i = 0; i < TIMES; i++) {
        if (times[i].ms == 0)
            continue;
        snprintf(texts[i], sizeof(texts[i]), "%" PRId64, times[i].ms < 0 ? INT64_C(0) : times[i].ms);
        argv[count++] = times[i].name;
        argv[count++] = texts[i];
    }
    if (owned) {
        status = launch_owner(owner, sizeof(owner), options->owner_pid, err);
        if (status != GP_OK)
            return status;
        argv[count++] = "--owner";
        argv[count++] = owner;
    }
    status = launch_secrets(&secrets, names, err);
    if (status != GP_OK)
        return status;
    status = launch_log(&log, paths, err);
    if (status != GP_OK) {
        close(secrets);
        return status;
    }
    if (pipe2(pipe_fds, O_CLOEXEC) != 0) {
        close(secrets);
        close(log);
        return gp_fail_errno(err, GP_EIO, "cannot create a pipe to the scheduler");
    }
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, log, STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, log, STDERR_FILENO);
    posix_spawn_file_actions_adddup2(&actions, pipe_fds[1], 3);
    posix_spawn_file_actions_adddup2(&actions, secrets, 4);
    posix_spawn_file_actions_addclosefrom_np(&actions, 5);
    int problem = ENOMEM;

    gp_secrets_assignment(assignment, 4);
    environment = gp_secrets_environment(names, assignment);
    if (environment != NULL)
        /* The scheduler gets a separate session, without the terminal of this process
         * (scheduler/process/process_env.h). */
        problem = gp_spawn(pid, path, &actions, POSIX_SPAWN_SETSID, (char *const *)argv, environment);
    else
        posix_spawn_file_actions_destroy(&actions);
    gp_free(environment);
    close(pipe_fds[1]);
    close(secrets);
    close(log);
    if (problem != 0) {
        close(pipe_fds[0]);
        errno = problem;
        return gp_fail_errno(err, GP_EIO, "cannot start %s", path);
    }
    *ready = pipe_fds[0];
    return GP_OK;
}

/* Read the scheduler's report from the readiness pipe. *started is false if the scheduler adopted
 * the workers of a failed one. GP_EBUSY: another scheduler holds the pool's lock. */
static gp_status launch_wait_ready(int ready, bool *started, const gp_paths *paths, gp_timeout timeout,
                                   gp_error *err)
{
    char line[GP_ERROR_MESSAGE_MAX] = "";
    size_t used = 0;

    while (strchr(line, '\n') == NULL && used < sizeof(line) - 1) {
        struct pollfd poll_fd = { .fd = ready, .events = POLLIN };
        int64_t left = gp_timeout_left(timeout);
        int said = poll(&poll_fd, 1, gp_timeout_slice(timeout));

        if (said <= 0 && left == 0) /* Check after poll(): this process may have been suspended. */
            return gp_fail(err, GP_ETIMEDOUT, "the scheduler was not ready in time; its log is %s",
                           paths->scheduler_log);
        if (said <= 0)
            continue;
        ssize_t got = read(ready, line + used, sizeof(line) - 1 - used);

        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            break;
        used += (size_t)got;
        line[used] = '\0';
    }
    line[strcspn(line, "\n")] = '\0';
    *started = strcmp(line, "ready") == 0;
    if (*started || strcmp(line, "adopted") == 0)
        return GP_OK;
    if (strcmp(line, "busy") == 0)
        return gp_fail(err, GP_EBUSY, "another scheduler holds %s", paths->lock);
    if (strncmp(line, "error: ", 7) == 0)
        return gp_fail(err, GP_EIO, "%s", line + 7);
    return gp_fail(err, GP_EIO, "the scheduler exited during startup (%s); its log is %s",
                   strncmp(line, "ended: ", 7) == 0 ? line + 7 : "no exit code", paths->scheduler_log);
}

/* Take the pool's start lock, which serializes processes that start a scheduler. */
static gp_status launch_lock(int *lock, const gp_paths *paths, gp_timeout timeout, gp_error *err)
{
    char path[GP_TEXT_ENDPOINT + 16];

    snprintf(path, sizeof(path), "%s/start", paths->pool_dir);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);

    if (fd < 0)
        return gp_fail_errno(err, GP_EIO, "cannot open the start lock %s", path);
    while (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        if (gp_timeout_left(timeout) == 0) {
            close(fd);
            return gp_fail(err, GP_ETIMEDOUT,
                           "another process is still starting pool %s and holds its lock %s", paths->pool,
                           path);
        }
        poll(NULL, 0, RETRY_MS);
    }
    *lock = fd;
    return GP_OK;
}

/* ---- finding without starting ---- */

/* Return whether any worker in the pool is alive. A worker waits a few seconds for the next
 * scheduler after its own failed. */
static bool worker_alive(const gp_paths *paths)
{
    DIR *folder = opendir(paths->pool_dir);
    struct dirent *entry;
    bool alive = false;

    while (folder != NULL && !alive && (entry = readdir(folder)) != NULL) {
        char path[GP_TEXT_ENDPOINT];
        size_t bytes = strlen(entry->d_name);

        if (entry->d_name[0] == 'w' && bytes > 5 && strcmp(entry->d_name + bytes - 5, ".door") == 0 &&
            (size_t)snprintf(path, sizeof(path), "%s/%s", paths->pool_dir, entry->d_name) < sizeof(path))
            alive = gp_control_socket_listened(path);
    }
    if (folder != NULL)
        closedir(folder);
    return alive;
}

/* Release the start lock. close() alone keeps it locked if another thread has forked meanwhile: the
 * child has a copy of the descriptor. */
static void launch_unlock(int lock)
{
    flock(lock, LOCK_UN);
    close(lock);
}

/* Return whether a process holds the start lock. */
static bool is_starting(const gp_paths *paths)
{
    char path[GP_TEXT_ENDPOINT + 16];
    int fd;

    snprintf(path, sizeof(path), "%s/start", paths->pool_dir);
    fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return false;
    bool held = flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;

    launch_unlock(fd);
    return held;
}

/* Like launch_find(), for a caller that must not start a scheduler. After a scheduler failure, a
 * client that works in the pool or the next starting command starts a new one. Wait for it while
 * workers are alive, up to REPLACED_MS. */
static gp_status launch_attach(int *control_socket, gp_control_socket_reply *reply, const gp_paths *paths,
                               const uint8_t session[16], gp_timeout timeout, gp_error *err)
{
    int64_t left = gp_timeout_left(timeout),
            deadline = gp_now_ms() + (left < REPLACED_MS ? left : REPLACED_MS);

    for (;;) {
        gp_status status = launch_find(control_socket, reply, paths, session, timeout, err);

        if (status != GP_ENOPOOL || access(paths->record, F_OK) != 0 ||
            !(is_starting(paths) || worker_alive(paths)))
            return status;
        if (gp_now_ms() >= deadline)
            return gp_fail(err, GP_ENOPOOL,
                           "the scheduler of pool %s failed and no client has replaced it; run: gradpool up",
                           paths->pool);
        gp_sleep_ms(REPLACED_RETRY_MS);
    }
}

gp_status gp_launch(int *control_socket, gp_control_socket_reply *reply, bool *started, const gp_paths *paths,
                    const gp_pool_options *options, const uint8_t session[16], gp_timeout *timeout,
                    gp_error *err)
{
    int timeout_ms = (int)gp_timeout_left(*timeout), lock = -1;
    bool was_ready = false, extended = false;
    const char *earlier = ""; /* start of an error message: the earlier failure; "": none */
    gp_error why = { 0 };
    gp_status status;

    *started = false;
    if (options != NULL && options->attach_only)
        return launch_attach(control_socket, reply, paths, session, *timeout, err);
    for (;;) {
        int ready = -1;
        pid_t pid;

        if (lock >= 0 && gp_timeout_left(*timeout) == 0) {
            status = gp_fail(err, GP_ETIMEDOUT, "%spool %s did not start within %d ms (%s); its log is %s",
                             earlier, paths->pool, timeout_ms, why.message, paths->scheduler_log);
            break;
        }
        status = launch_find(control_socket, reply, paths, session, *timeout, &why);
        if (status != GP_ENOPOOL) {
            if (status != GP_OK)
                gp_fail(err, status, "%s%s", earlier, why.message);
            break;
        }
        if (was_ready)
            earlier = "a scheduler exited before it replied; then ";

        /* look again under the lock before starting a scheduler */
        if (lock < 0) {
            status = gp_paths_create(paths, err);
            if (status == GP_OK)
                status = launch_lock(&lock, paths, *timeout, err);
            if (status != GP_OK)
                break;
            continue;
        }
        status = launch_spawn(&ready, &pid, paths, options, err);
        if (status != GP_OK)
            break;
        gp_fault_point("starting");
        status = launch_wait_ready(ready, started, paths, *timeout, &why);
        close(ready);

        /* Reap the intermediate process, which exits after its report. Kill it if it has not
         * reported in time. The scheduler continues without it. */
        if (status == GP_ETIMEDOUT)
            kill(pid, SIGKILL);
        while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
            ;

        /* The scheduler listens: extend the deadline, to leave time for the connection. Extend it
         * only once: if every scheduler exited at this point, the loop would not end. */
        if (status == GP_OK) {
            was_ready = true;
            if (!extended && gp_timeout_left(*timeout) < READY_MS) {
                extended = true;
                *timeout = gp_timeout_in(READY_MS);
            }
            continue;
        }

        /* Another scheduler holds the lock: it is shutting down, or was started without the start
         * lock. Retry soon. */
        if (status != GP_EBUSY) {
            gp_fail(err, status, "%s%s", earlier, why.message);
            break;
        }
        poll(NULL, 0, RETRY_MS);
    }
    if (lock >= 0)
        launch_unlock(lock);
    return status;
}
