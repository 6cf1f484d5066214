/* Implement process.h. */
#include "common/base/system/process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/system/fence.h"

gp_status gp_program_path(char *path, size_t bytes, gp_error *err)
{
    static const char deleted[] = " (deleted)";
    ssize_t length = readlink("/proc/self/exe", path, bytes), kept;

    if (length < 0)
        return gp_fail_errno(err, GP_EIO, "cannot read /proc/self/exe");
    if ((size_t)length >= bytes)
        return gp_fail(err, GP_EIO, "the path of this program has more than %zu bytes", bytes - 1);
    path[length] = '\0';
    kept = length - (ssize_t)strlen(deleted);
    if (kept > 0 && strcmp(path + kept, deleted) == 0 && access(path, F_OK) != 0)
        path[kept] = '\0';
    return GP_OK;
}

mode_t gp_umask(void)
{
    FILE *file = fopen("/proc/self/status", "re");
    char line[200];
    unsigned found;
    bool known = false;

    while (!known && file != NULL && fgets(line, sizeof(line), file) != NULL)
        known = sscanf(line, "Umask: %o", &found) == 1;
    if (file != NULL)
        fclose(file);
    if (known)
        return (mode_t)found;

    /* Without /proc, the umask can only be read by setting it. */
    const mode_t mask = umask(077);

    umask(mask);
    return mask;
}

int gp_thread_start(pthread_t *out, const char *name, size_t stack_bytes, void *(*run)(void *), void *context)
{
    pthread_attr_t attributes;
    sigset_t all, before;
    int problem;

    pthread_attr_init(&attributes);
    if (stack_bytes != 0)
        pthread_attr_setstacksize(&attributes, stack_bytes);
    sigfillset(&all);
    /* Block signals before the thread exists, so that it never handles one. */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    problem = pthread_create(out, &attributes, run, context);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    if (problem == 0)
        pthread_setname_np(*out, name);
    return problem;
}

int gp_spawn(pid_t *pid, const char *program, posix_spawn_file_actions_t *actions, short group,
             char *const *arguments, char *const *environment)
{
    posix_spawnattr_t attributes;
    sigset_t all, none;
    int problem;

    sigfillset(&all);
    sigemptyset(&none);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setsigdefault(&attributes, &all);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setflags(&attributes, (short)(group | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK));
    problem = posix_spawn(pid, program, actions, &attributes, arguments, environment);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(actions);
    return problem;
}

bool gp_spawn_is_shortage(int error_number)
{
    switch (error_number) {
    case EAGAIN: /* processes */
    case EMFILE:
    case ENFILE:
    case ENOMEM:
    case ENOSPC:
    case EDQUOT:
        return true;
    default:
        return false;
    }
}

int gp_spawn_raise(int *fd, int highest)
{
    int raised = fcntl(*fd, F_DUPFD_CLOEXEC, highest + 1), problem = raised < 0 ? errno : 0;

    close(*fd);
    *fd = raised;
    /* EINVAL: `highest` is at or above RLIMIT_NOFILE. */
    return problem == EINVAL ? EMFILE : problem;
}

void gp_daemon_signals(sigset_t *set)
{
    sigemptyset(set);
    sigaddset(set, SIGTERM);
    sigaddset(set, SIGINT);
    sigaddset(set, SIGHUP);
}

bool gp_job_signals_ignore(void)
{
    if (!gp_fence_given())
        return false;
    signal(SIGTERM, SIG_IGN);
    signal(SIGUSR1, SIG_IGN);
    return true;
}

gp_status gp_daemon_signals_open(int *fd, gp_error *err)
{
    sigset_t set;

    gp_daemon_signals(&set);
    if (gp_job_signals_ignore())
        /* A signalfd also reports blocked signals that are ignored. */
        sigdelset(&set, SIGTERM);
    *fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return *fd < 0 ? gp_fail_errno(err, GP_EIO, "cannot create a signalfd") : GP_OK;
}
