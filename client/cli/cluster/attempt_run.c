/* Implement attempt_run.h. */
#include "client/cli/cluster/attempt_run.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/cluster/job_folder.h"
#include "common/base/clock.h"
#include "common/base/system/file.h"
#include "common/base/system/process.h"

extern char **environ;

enum {
    CHECK_MS = 1000,    /* interval between checks of the job folder */
    READ_BYTES = 65536, /* output per read */
    RETRY_MS = 200,     /* interval between attempts to write blocked output */
    BLOCKED_MS = 60000, /* output that is blocked for this time ends the program */
    CANCEL_MS = 10000,  /* interval between the signals of a cancel: SIGINT, SIGINT, SIGKILL */
};

/* A running program. */
typedef struct program {
    pid_t pid;
    int pidfd, output;   /* readable after the exit; output of the program, -1: at its end */
    int signals;         /* signals sent */
    int64_t signaled_ms; /* when the last signal was sent */
    int64_t blocked_ms;  /* since when output cannot be written; 0: it can */
    int64_t checked_ms;  /* last check of the job folder */
} program;

gp_status attempt_files_open(attempt_files *files, const char *folder, const gp_fence *fence, gp_error *err)
{
    char path[PATH_MAX];
    sigset_t set;

    *files =
        (attempt_files){ .folder = folder, .fence = *fence, .log = -1, .signals = -1, .guard = getppid() };
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGUSR1);
    sigaddset(&set, SIGINT);
    sigprocmask(SIG_BLOCK, &set, NULL);
    files->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (files->signals < 0)
        return gp_fail_errno(err, GP_EIO, "cannot create a signalfd");
    if ((size_t)snprintf(path, sizeof(path), "%s/log", folder) >= sizeof(path))
        return gp_fail(err, GP_ELIMIT, "the path %.80s... is too long", folder);
    files->log = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
    return files->log >= 0 ? GP_OK : gp_fail_errno(err, GP_EIO, "cannot open %s", path);
}

void attempt_files_close(attempt_files *files)
{
    if (files->log >= 0)
        close(files->log);
    if (files->signals >= 0)
        close(files->signals);
    files->log = files->signals = -1;
}

void attempt_note(const attempt_files *files, const char *format, ...)
{
    char text[1000];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof(text) - 1, format, arguments);
    va_end(arguments);
    strcat(text, "\n");
    fputs(text, stderr);
    if (files->log >= 0 && gp_fence_check(&files->fence, NULL) == GP_OK)
        gp_write_all(files->log, text, strlen(text));
}

void attempt_check(const attempt_files *files, attempt_stops *stops)
{
    struct signalfd_siginfo info;

    while (read(files->signals, &info, sizeof(info)) == (ssize_t)sizeof(info))
        stops->noticed = true;
    stops->canceled = stops->canceled || cluster_folder_canceled(files->folder);
    stops->outdated =
        stops->outdated || getppid() != files->guard || gp_fence_check(&files->fence, NULL) == GP_ESTALE;
}

/* ---- one program ---- */

static gp_status program_start(program *out, const char *const *words, gp_error *err)
{
    posix_spawn_file_actions_t actions;
    char path[PATH_MAX];
    int ends[2] = { -1, -1 }, problem;
    gp_status status = gp_program_path(path, sizeof(path), err);

    *out = (program){ .pid = -1, .pidfd = -1, .output = -1 };
    if (status != GP_OK)
        return status;
    if (pipe2(ends, O_CLOEXEC) != 0)
        return gp_fail_errno(err, GP_EIO, "cannot create a pipe");
    out->output = ends[0];
    problem = gp_spawn_raise(&ends[1], STDERR_FILENO);
    if (problem == 0) {
        posix_spawn_file_actions_init(&actions);
        posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
        posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
        posix_spawn_file_actions_adddup2(&actions, ends[1], STDERR_FILENO);
        posix_spawn_file_actions_addclosefrom_np(&actions, STDERR_FILENO + 1);
        problem = gp_spawn(&out->pid, path, &actions, POSIX_SPAWN_SETPGROUP, (char *const *)(uintptr_t)words,
                           environ);
        close(ends[1]);
    }
    if (problem == 0) {
        out->pidfd = (int)syscall(SYS_pidfd_open, out->pid, 0);
        problem = out->pidfd < 0 ? errno : 0;
    }
    if (problem == 0)
        return GP_OK;
    if (out->pid > 0) {
        kill(out->pid, SIGKILL);
        waitpid(out->pid, NULL, 0);
    }
    close(out->output);
    errno = problem;
    return gp_fail_errno(err, GP_EIO, "cannot start %s", path);
}

/* Move output to the log. If the fence is unreadable, the output stays in the pipe until the file
 * system of the job folder is available again. */
static void program_read(program *run, const attempt_files *files, attempt_stops *stops, int64_t now_ms)
{
    static char text[READ_BYTES];
    gp_status status = gp_fence_check(&files->fence, NULL);
    ssize_t got;

    stops->outdated = stops->outdated || status == GP_ESTALE;
    if (status != GP_OK) {
        run->blocked_ms = run->blocked_ms != 0 ? run->blocked_ms : now_ms;
        return;
    }
    run->blocked_ms = 0;
    got = read(run->output, text, sizeof(text));
    if (got < 0 && (errno == EINTR || errno == EAGAIN))
        return;
    if (got <= 0) {
        close(run->output);
        run->output = -1;
    } else {
        if (!gp_write_all(files->log, text, (size_t)got))
            fprintf(stderr, "gradpool: cannot write to the job's log: %s\n", strerror(errno));
        if (files->copied)
            (void)gp_write_all(STDERR_FILENO, text, (size_t)got);
    }
}

/* Send the signal that `stops` requires now, if any. */
static void program_signal(program *run, const attempt_stops *stops, int64_t now_ms)
{
    if (stops->outdated) {
        kill(-run->pid, SIGKILL);
        return;
    }
    if (!stops->noticed && !stops->canceled)
        return;
    /* A cancel ends within 20 s. A notice leaves the time for the checkpoint to the engine, which
     * kills the job in the end. */
    if (run->signals > 0 && (!stops->canceled || now_ms < run->signaled_ms + CANCEL_MS))
        return;
    if (run->signals < 2)
        kill(run->pid, SIGINT);
    else
        kill(-run->pid, SIGKILL);
    run->signals++;
    run->signaled_ms = now_ms;
}

gp_status attempt_run(const attempt_files *files, const char *const *words, int *code, attempt_stops *stops,
                      gp_error *err)
{
    bool exited = false, drained = false, stuck = false;
    int ended = 0;
    program run;
    gp_status status = program_start(&run, words, err);

    if (status != GP_OK)
        return status;
    while (!drained && !stuck) {
        bool blocked = run.blocked_ms != 0;
        struct pollfd fds[] = { { .fd = blocked ? -1 : run.output, .events = POLLIN },
                                { .fd = exited ? -1 : run.pidfd, .events = POLLIN },
                                { .fd = files->signals, .events = POLLIN } };

        poll(fds, 3, blocked ? RETRY_MS : exited ? 0 : CHECK_MS);
        int64_t now_ms = gp_now_ms();

        if (fds[0].revents != 0 || blocked)
            program_read(&run, files, stops, now_ms);
        /* After the exit, read what is in the pipe. Daemons may hold it open, so do not wait. */
        drained = exited && ((fds[0].revents == 0 && !blocked) || run.output < 0 || stops->outdated);
        exited = exited || fds[1].revents != 0;
        if (fds[2].revents != 0 || now_ms >= run.checked_ms + CHECK_MS) {
            attempt_check(files, stops);
            run.checked_ms = now_ms;
        }
        if (!exited)
            program_signal(&run, stops, now_ms);
        stuck = run.blocked_ms != 0 && !stops->outdated && now_ms > run.blocked_ms + BLOCKED_MS;
    }
    if (!exited)
        kill(-run.pid, SIGKILL);
    while (waitpid(run.pid, &ended, 0) < 0 && errno == EINTR)
        ;
    if (run.output >= 0)
        close(run.output);
    close(run.pidfd);
    *code = WIFSIGNALED(ended) ? 128 + WTERMSIG(ended) : WEXITSTATUS(ended);
    return stuck ? gp_fail(err, GP_EIO, "cannot read the newest attempt in %s for %d s", files->folder,
                           BLOCKED_MS / 1000)
                 : GP_OK;
}
