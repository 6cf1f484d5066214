/* Worker processes: spawn, kill and reap. supervise.h describes the interface. */
#include "scheduler/process/supervise.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/memory/alloc.h"
#include "common/base/system/proc_stat.h"
#include "common/base/system/process.h"
#include "common/base/memory/secret.h"

extern char **environ;

enum { SECRETS_FD = 3 }; /* descriptor number in the worker */

/* Find an executable: the path in an environment variable, or else a file in one of the folders
 * relative to this executable. */
static gp_status find_program(char *path, size_t bytes, const char *name, const char *variable,
                              const char *const *folders, gp_error *err)
{
    const char *named = getenv(variable);
    char self[3900];
    gp_status status;

    if (named != NULL) {
        snprintf(path, bytes, "%s", named);
        if (access(path, X_OK) != 0)
            return gp_fail_errno(err, GP_ENOENT, "cannot run %s=%s", variable, path);
        return GP_OK;
    }
    status = gp_program_path(self, sizeof(self), err);
    if (status != GP_OK)
        return status;
    *strrchr(self, '/') = '\0';
    for (; *folders != NULL; folders++) {
        snprintf(path, bytes, "%s/%s%s", self, *folders, name);
        if (access(path, X_OK) == 0)
            return GP_OK;
    }
    return gp_fail(err, GP_ENOENT, "cannot find %s in or near %s; set %s to its path", name, self, variable);
}

gp_status gp_supervise_program(char *path, size_t bytes, gp_error *err)
{
    return find_program(path, bytes, "gradpool-worker", "GRADPOOL_WORKER",
                        (const char *const[]){ "", "../libexec/gradpool/", "../libexec/", NULL }, err);
}

gp_status gp_supervise_client(char *path, size_t bytes, gp_error *err)
{
    return find_program(path, bytes, "gradpool", "GRADPOOL_CLIENT",
                        (const char *const[]){ "", "../bin/", "../../bin/", NULL }, err);
}

/* Build the worker environment: the environment of this process without hidden secrets, plus the
 * GPU selection. The caller frees the array; the strings are borrowed. */
static char **make_environment(const gp_core_slot_config *config, char *visible, char *order, char *secrets)
{
    size_t count = 0, kept = 0;
    char **list;

    while (environ[count] != NULL)
        count++;
    list = gp_calloc(count + 4, sizeof(*list));
    if (list == NULL)
        return NULL;
    for (size_t i = 0; i < count; i++) {
        bool ours = strncmp(environ[i], "CUDA_VISIBLE_DEVICES=", 21) == 0 ||
                    strncmp(environ[i], "CUDA_DEVICE_ORDER=", 18) == 0;

        if ((config->kind != GP_CORE_GPU || !ours) && !gp_secrets_hide(environ[i]))
            list[kept++] = environ[i];
    }
    if (config->kind == GP_CORE_GPU) {
        list[kept++] = visible;
        list[kept++] = order;
    }
    if (gp_secrets_fd() >= 0)
        list[kept++] = secrets;
    return list;
}

int gp_supervise_open_log(int *out, const char *path)
{
    struct stat info;
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
    int problem = fd < 0 || fstat(fd, &info) != 0 ? errno : S_ISREG(info.st_mode) ? 0 : ENXIO;

    if (problem == 0 && fcntl(fd, F_SETFL, O_APPEND) != 0) /* without O_NONBLOCK */
        problem = errno;
    if (problem != 0 && fd >= 0)
        close(fd);
    else if (problem == 0)
        *out = fd;
    return problem;
}

int gp_supervise_spawn_with(pid_t *pid, const char *program, int log, int gate, char **arguments,
                            char **environment)
{
    posix_spawn_file_actions_t actions;
    int next = STDERR_FILENO + 1;

    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, log, STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, log, STDERR_FILENO);
    if (gate >= 0)
        posix_spawn_file_actions_adddup2(&actions, gate, next++);
    if (gp_secrets_fd() >= 0)
        posix_spawn_file_actions_adddup2(&actions, gp_secrets_fd(), next++);
    /* Descriptors of this process are close-on-exec, but the ZeroMQ threads create some that are
     * not. */
    posix_spawn_file_actions_addclosefrom_np(&actions, next);
    return gp_spawn(pid, program, &actions, POSIX_SPAWN_SETSID, arguments, environment);
}

/* posix_spawn() does not modify the arguments, but the prototype takes char *. */
static char *text(const char *constant)
{
    return (char *)(uintptr_t)constant;
}

gp_status gp_supervise_spawn(gp_child *out, const char *program, const char *pool,
                             const gp_core_slot_config *config, uint32_t index, uint32_t incarnation,
                             uint64_t failures, bool cold, gp_error *err)
{
    char number[16], which[16], failed[24], ordinal[16], visible[96], secrets[GP_SECRETS_ASSIGNMENT_BYTES];
    char order[] = "CUDA_DEVICE_ORDER=PCI_BUS_ID";
    char *arguments[24] = { text(program),
                            text("--pool"),
                            text(pool),
                            text("--index"),
                            number,
                            text("--incarnation"),
                            which,
                            text("--failures"),
                            failed,
                            text("--device"),
                            config->kind == GP_CORE_GPU ? text(config->uuid) : text("cpu") };
    size_t count = 11;
    char **environment;
    int log, problem = gp_supervise_open_log(&log, config->log);

    if (problem != 0) {
        return gp_fail(err, GP_EIO, "cannot open the log of worker %u, %s: %s", index + 1, config->log,
                       problem == ENXIO ? "not a regular file" : strerror(problem));
    }

    snprintf(number, sizeof(number), "%u", index + 1);
    snprintf(which, sizeof(which), "%u", incarnation);
    snprintf(failed, sizeof(failed), "%llu", (unsigned long long)failures);
    snprintf(ordinal, sizeof(ordinal), "%u", config->device_index);
    snprintf(visible, sizeof(visible), "CUDA_VISIBLE_DEVICES=%s", config->uuid);
    if (config->cores[0] != '\0') {
        arguments[count++] = text("--cores");
        arguments[count++] = text(config->cores);
    }
    if (config->shared)
        arguments[count++] = text("--shared");
    if (cold)
        arguments[count++] = text("--cold");
    if (config->kind == GP_CORE_GPU) {
        arguments[count++] = text("--device-name");
        arguments[count++] = text(config->name);
        arguments[count++] = text("--device-ordinal");
        arguments[count++] = ordinal;
    }
    gp_secrets_assignment(secrets, SECRETS_FD);
    environment = make_environment(config, visible, order, secrets);
    if (environment == NULL) {
        close(log);
        errno = ENOMEM;
        return gp_fail(err, GP_ENOMEM, "no memory for the environment of worker %u", index + 1);
    }
    *out = (gp_child){ .pid = 0, .pidfd = -1, .incarnation = incarnation };
    problem = gp_supervise_spawn_with(&out->pid, program, log, -1, arguments, environment);
    close(log);
    gp_free(environment);
    if (problem == 0) {
        out->pidfd = (int)syscall(SYS_pidfd_open, out->pid, 0); /* pidfds are close-on-exec */
        if (out->pidfd >= 0) {
            gp_memory_kills_begin(&out->kills, (uint32_t)out->pid);
            return GP_OK;
        }
        problem = errno;
        kill(out->pid, SIGKILL); /* a worker that cannot be watched is useless */
        waitpid(out->pid, NULL, 0);
    }
    out->pid = 0;
    errno = problem;
    return gp_fail_errno(err, GP_EIO, "cannot start worker %u (%s)", index + 1, program);
}

uint64_t gp_supervise_start_time(pid_t pid)
{
    gp_proc_stat stat;

    return gp_proc_stat_read(&stat, pid) ? stat.start_time : 0;
}

void gp_supervise_kill(const gp_child *child)
{
    if (child->pid == 0)
        return;
    if (child->adopted) {
        /* fails only if the process has exited */
        syscall(SYS_pidfd_send_signal, child->pidfd, SIGKILL, NULL, 0);
        return;
    }
    kill(-child->pid, SIGKILL);
    /* in case it left the group; it is not reaped yet, so the pid is still valid */
    kill(child->pid, SIGKILL);
}

bool gp_supervise_reap(gp_child *child, gp_core_event *event)
{
    siginfo_t info = { .si_pid = 0 };
    struct pollfd ended = { .fd = child->pidfd, .events = POLLIN };

    if (child->pid == 0)
        return false;
    if (child->adopted) {
        /* Only the parent receives the exit status. The out-of-memory kill counter is the only hint
         * available here. */
        if (poll(&ended, 1, 0) <= 0)
            return false;
        event->death = GP_CORE_DIED_UNKNOWN;
        event->out_of_memory = gp_memory_kills_grew(&child->kills);
    } else {
        if (waitid(P_PIDFD, (id_t)child->pidfd, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0)
            return false;
        /* Kill the worker's children too. The worker is not reaped yet, so the process group still
         * exists. */
        kill(-child->pid, SIGKILL);
        waitid(P_PIDFD, (id_t)child->pidfd, &info, WEXITED);
        event->death = info.si_code == CLD_EXITED ? GP_CORE_DIED_EXIT : GP_CORE_DIED_SIGNAL;
        event->number = info.si_status;
        event->out_of_memory = event->death == GP_CORE_DIED_SIGNAL && event->number == SIGKILL &&
                               gp_memory_kills_grew(&child->kills);
    }
    close(child->pidfd);
    *child = (gp_child){ .pid = 0, .pidfd = -1, .incarnation = child->incarnation };
    return true;
}
