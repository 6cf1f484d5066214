/* Starts commands with vfork() and exec. The child shares the runner's memory until exec, so it
 * reports errors by writing to that memory, and no page tables are copied. */
#include "worker/exec/runner_start.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

/* Step while starting a command, for error messages. */
typedef enum launch_stage { STAGE_SETUP, STAGE_DIRECTORY, STAGE_EXEC } launch_stage;

/* All data that the child needs, prepared before vfork(): the child must not call functions that
 * allocate or lock. */
typedef struct launch {
    const gp_runner_spec *spec;
    const int *fds;
    const char *search[2]; /* "PATH=..." from the spec's environment, and NULL */
    pid_t parent;
    launch_stage stage; /* stage that failed */
    /* errno of the failure; 0: none */
    int error;
} launch;

/* ---- in the child ---- */

/* Prepare the process and execute the command. Returns only on failure. execvpe() searches PATH
 * like a shell: relative entries refer to the command's directory, and a text file without "#!"
 * is passed to /bin/sh. It takes PATH from `environ`, which the caller restores. */
static void launch_child(launch *l)
{
    struct rlimit files;
    sigset_t none;

    /* Create the group first, so that a signal to the group finds this process. */
    if (setpgid(0, 0) != 0 || prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != l->parent) {
        l->error = errno != 0 ? errno : ECHILD;
        return;
    }
    for (int number = 1; number < NSIG; number++)
        /* fails for SIGKILL, SIGSTOP and signals reserved by libc, which have default handling
         * anyway */
        signal(number, SIG_DFL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    umask((mode_t)l->spec->mask);
    if (l->spec->files_max != 0 && getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = l->spec->files_max < files.rlim_max ? l->spec->files_max : files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    for (int i = 0; i < 3; i++)
        if (dup2(l->fds[i], i) < 0) {
            l->error = errno;
            return;
        }
    l->stage = STAGE_DIRECTORY;
    if (chdir(l->spec->directory) == 0) {
        l->stage = STAGE_EXEC;
        environ = (char **)(uintptr_t)l->search;
        execvpe(l->spec->arguments[0], (char *const *)(uintptr_t)l->spec->arguments,
                (char *const *)(uintptr_t)l->spec->environment);
    }
    l->error = errno;
}

/* A separate function, so that no caller variable is kept in a register across vfork(). */
static __attribute__((noinline)) pid_t launch_fork(launch *l)
{
    char **before = environ;
    pid_t pid = vfork();

    if (pid == 0) {
        errno = 0;
        launch_child(l);
        _exit(127);
    }
    environ = before;
    return pid;
}

/* ---- in the runner ---- */

/* Convert a child's failure to an error and an exit code. */
static gp_status launch_explain(const launch *l, int *exit_code, gp_error *err)
{
    const char *name = l->spec->arguments[0];

    *exit_code = 126;
    errno = l->error;
    if (l->stage == STAGE_SETUP)
        return gp_fail_errno(err, GP_EIO, "cannot prepare a process for '%.100s'", name);
    if (l->stage == STAGE_DIRECTORY)
        return gp_fail_errno(err, GP_ENOENT, "cannot change to the directory %.200s", l->spec->directory);
    if (l->error != ENOENT && l->error != ENOTDIR)
        return gp_fail_errno(err, l->error == EACCES ? GP_EPERM : GP_EIO, "cannot run '%.100s'", name);
    *exit_code = 127;
    if (strchr(name, '/') == NULL)
        return gp_fail(err, GP_ENOENT, "command not found: '%.60s'; PATH is %.300s", name,
                       l->search[0] + strlen("PATH="));
    errno = l->error;
    if (access(name, F_OK) == 0 && name[0] == '/')
        return gp_fail(err, GP_ENOENT,
                       "cannot run '%.100s': the interpreter in its first line does not exist", name);
    errno = l->error;
    return gp_fail_errno(err, GP_ENOENT, "cannot run '%.100s' in %.150s", name, l->spec->directory);
}

gp_status gp_runner_start(pid_t *pid, int *exit_code, const gp_runner_spec *spec, const int fds[3],
                          gp_error *err)
{
    launch l = {
        .spec = spec, .fds = fds, .search = { "PATH=/usr/local/bin:/usr/bin:/bin" }, .parent = getpid()
    };

    *exit_code = 126;
    for (const char *const *entry = spec->environment; *entry != NULL; entry++)
        if (strncmp(*entry, "PATH=", strlen("PATH=")) == 0) {
            l.search[0] = *entry;
            break; /* getenv() also returns the first one */
        }
    pid_t child = launch_fork(&l);

    if (child < 0)
        return gp_fail_errno(err, errno == EAGAIN ? GP_ELIMIT : GP_ENOMEM,
                             "cannot create a process for '%.100s'", spec->arguments[0]);
    if (l.error != 0)
        return launch_explain(&l, exit_code, err); /* jobs_reap() reaps the child */
    *pid = child;
    return GP_OK;
}
