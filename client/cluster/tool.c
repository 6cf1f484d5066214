/* Implement tool.h. */
#include "client/cluster/tool.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/cluster/ssh_jobs.h"
#include "common/base/memory/alloc.h"
#include "common/base/printable.h"
#include "common/base/system/file.h"
#include "common/base/system/process.h"
#include "common/base/system/timeout.h"

extern char **environ;

enum { PATH_BYTES = 4096, READ_BYTES = 4096, LINE_BYTES = 240, EXIT_MS = 5000 };

const char *const cluster_job_variables[] = { "GRADPOOL_JOB", "GRADPOOL_ALLOCATION_", SSH_JOB_VARIABLE,
                                              NULL };

/* A command while it runs. */
typedef struct running {
    pid_t pid;
    int pidfd, output, errors; /* readable after the exit; read ends; -1: closed */
} running;

struct cluster_tool_prepared {
    running run;   /* pid -1: cluster_tool_run() has reaped it */
    bool answered; /* cluster_tool_run() has its line of output, but not its exit */
    int input[2];  /* pipe to its standard input. This process keeps the read end open, too: a write
                   * then raises no SIGPIPE if the command has exited */
};

static void fd_close(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

/* ---- start ---- */

static bool is_program(const char *path)
{
    struct stat info;

    return stat(path, &info) == 0 && S_ISREG(info.st_mode) && access(path, X_OK) == 0;
}

gp_status cluster_tool_find(char *path, size_t bytes, const char *name, gp_error *err)
{
    const char *folders = getenv("PATH");

    if (strchr(name, '/') != NULL) {
        if (is_program(name) && (size_t)snprintf(path, bytes, "%s", name) < bytes)
            return GP_OK;
        return gp_fail(err, GP_ENOENT, "no program at %s", name);
    }
    if (folders == NULL || folders[0] == '\0')
        folders = "/usr/local/bin:/usr/bin:/bin";
    for (const char *at = folders; *at != '\0'; at += *at == ':') {
        size_t length = strcspn(at, ":");

        /* Relative entries are skipped: they name another program in each directory. */
        if (at[0] == '/' && (size_t)snprintf(path, bytes, "%.*s/%s", (int)length, at, name) < bytes &&
            is_program(path))
            return GP_OK;
        at += length;
    }
    return gp_fail(err, GP_ENOENT, "no program '%s' in PATH (%.200s); install it or extend PATH", name,
                   folders);
}

bool cluster_has_prefix(const char *variable, const char *const *prefixes)
{
    for (; prefixes != NULL && *prefixes != NULL; prefixes++)
        if (strncmp(variable, *prefixes, strlen(*prefixes)) == 0)
            return true;
    return false;
}

/* Return whether `variable` (NAME=VALUE) has one of the names. NULL: all names. */
static bool is_kept(const char *variable, const char *const *names)
{
    const size_t length = strcspn(variable, "=");

    if (names == NULL)
        return true;
    for (; *names != NULL; names++)
        if (strncmp(variable, *names, length) == 0 && (*names)[length] == '\0')
            return true;
    return false;
}

/* Return whether `variable` (NAME=VALUE) has the name of an entry of `set`. */
static bool is_set(const char *variable, const char *const *set)
{
    size_t length = strcspn(variable, "=") + 1;

    for (; set != NULL && *set != NULL; set++)
        if (strncmp(variable, *set, length) == 0)
            return true;
    return false;
}

/* Build the environment of the command; free the array with gp_free(). NULL: no memory, or more
 * than CLUSTER_TOOL_VARIABLES_MAX variables. */
static char **environment_new(const cluster_tool *tool)
{
    char **list = gp_calloc(CLUSTER_TOOL_VARIABLES_MAX + 1, sizeof(*list));
    size_t count = 0;

    if (list == NULL)
        return NULL;
    for (char **at = environ; *at != NULL && count < CLUSTER_TOOL_VARIABLES_MAX; at++)
        if (is_kept(*at, tool->keep) && !cluster_has_prefix(*at, tool->drop) && !is_set(*at, tool->set))
            list[count++] = *at;
    for (const char *const *at = tool->set; at != NULL && *at != NULL && count < CLUSTER_TOOL_VARIABLES_MAX;
         at++)
        list[count++] = (char *)(uintptr_t)*at;
    if (count < CLUSTER_TOOL_VARIABLES_MAX)
        return list;
    gp_free(list);
    return NULL;
}

/* Open a file in memory that holds the input, at its beginning. A pipe would raise SIGPIPE if the
 * command does not read its input, and a second descriptor to poll. */
static gp_status input_open(int *fd, const cluster_tool *tool, gp_error *err)
{
    *fd = -1;
    if (tool->input_bytes > CLUSTER_TOOL_INPUT_MAX)
        return gp_fail(err, GP_EINVAL, "the input of %s has %zu bytes, at most %d are supported",
                       tool->words[0], tool->input_bytes, CLUSTER_TOOL_INPUT_MAX);
    *fd = memfd_create("gradpool-input", MFD_CLOEXEC);
    if (*fd >= 0 && gp_write_all(*fd, tool->input, tool->input_bytes) && lseek(*fd, 0, SEEK_SET) == 0)
        return GP_OK;
    return gp_fail_errno(err, GP_EIO, "cannot create the input of %s", tool->words[0]);
}

/* Start the command with `input` as its standard input. */
static gp_status start(running *out, const cluster_tool *tool, int input, gp_error *err)
{
    int output[2] = { -1, -1 }, errors[2] = { -1, -1 }, problem = 0;
    char path[PATH_BYTES];
    char **environment = NULL;
    bool started = false;
    gp_status status = cluster_tool_find(path, sizeof(path), tool->words[0], err);

    *out = (running){ .pid = -1, .pidfd = -1, .output = -1, .errors = -1 };
    if (status != GP_OK)
        return status;
    environment = environment_new(tool);
    if (environment == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for the environment of %s", tool->words[0]);
    if (pipe2(output, O_CLOEXEC) != 0 || pipe2(errors, O_CLOEXEC) != 0)
        problem = errno;
    if (problem == 0)
        problem = gp_spawn_raise(&output[1], STDERR_FILENO);
    if (problem == 0)
        problem = gp_spawn_raise(&errors[1], STDERR_FILENO);
    if (problem == 0) {
        posix_spawn_file_actions_t actions;

        posix_spawn_file_actions_init(&actions);
        posix_spawn_file_actions_adddup2(&actions, input, STDIN_FILENO);
        posix_spawn_file_actions_adddup2(&actions, output[1], STDOUT_FILENO);
        posix_spawn_file_actions_adddup2(&actions, errors[1], STDERR_FILENO);
        posix_spawn_file_actions_addclosefrom_np(&actions, STDERR_FILENO + 1);
        problem = gp_spawn(&out->pid, path, &actions, POSIX_SPAWN_SETSID,
                           (char *const *)(uintptr_t)tool->words, environment);
    }
    if (problem == 0) {
        out->pidfd = (int)syscall(SYS_pidfd_open, out->pid, 0);
        problem = out->pidfd < 0 ? errno : 0;
        if (problem != 0) {
            kill(-out->pid, SIGKILL);
            waitpid(out->pid, NULL, 0);
            started = true;
        }
    }
    gp_free(environment);
    fd_close(&output[1]);
    fd_close(&errors[1]);
    out->output = output[0];
    out->errors = errors[0];
    if (problem == 0)
        return GP_OK;
    fd_close(&out->output);
    fd_close(&out->errors);
    if (started)
        return gp_fail(err, GP_EPEER, "cannot wait for %s (%s); it was killed, its effect is unknown", path,
                       strerror(problem));
    errno = problem;
    return gp_fail_errno(err, GP_EIO, "cannot start %s", path);
}

/* ---- wait ---- */

/* Read once from *fd and append to `to`; close *fd at end of file. `cut`: drop bytes beyond the
 * limit of `to` instead of failing. */
static gp_status take(int *fd, gp_buffer *to, bool cut, gp_error *err)
{
    uint8_t bytes[READ_BYTES];
    ssize_t got = read(*fd, bytes, sizeof(bytes));
    size_t room = to->bytes_max - to->bytes;

    if (got < 0 && (errno == EINTR || errno == EAGAIN))
        return GP_OK;
    if (got <= 0) {
        fd_close(fd);
        return GP_OK;
    }
    if (cut && (size_t)got > room)
        got = (ssize_t)room;
    return gp_buffer_append(to, bytes, (size_t)got, err);
}

/* Read until the command exits or the time limit passes. A background process that holds the pipes
 * open does not extend this: after the exit, only the bytes in the pipes are read.
 *   answered  NULL: wait for the exit. Otherwise return at the first complete line of output, too;
 *             *answered is then true */
static gp_status wait_exit(running *run, const cluster_tool *tool, bool *answered, cluster_tool_result *out,
                           gp_error *err)
{
    int limit_ms = tool->timeout_ms > 0 ? tool->timeout_ms : CLUSTER_TOOL_MS;
    gp_timeout timeout = gp_timeout_in(limit_ms);
    gp_status status = GP_OK;
    bool exited = false;

    for (;;) {
        struct pollfd fds[] = { { .fd = run->output, .events = POLLIN },
                                { .fd = run->errors, .events = POLLIN },
                                { .fd = exited ? -1 : run->pidfd, .events = POLLIN } };
        int64_t left_ms = gp_timeout_left(timeout);
        int ready = poll(fds, 3, exited ? 0 : gp_timeout_slice(timeout));

        if (ready < 0 && errno != EINTR)
            return gp_fail(err, GP_EPEER, "cannot wait for %s (%s); it was killed, its effect is unknown",
                           tool->words[0], strerror(errno));
        if (ready > 0 && fds[0].revents != 0)
            status = take(&run->output, &out->output, false, err);
        if (answered != NULL && status == GP_OK && strchr(gp_buffer_text(&out->output), '\n') != NULL) {
            *answered = true;
            return GP_OK;
        }
        if (status == GP_OK && ready > 0 && fds[1].revents != 0)
            status = take(&run->errors, &out->errors, true, err);
        if (status != GP_OK)
            break;
        if (ready > 0 && fds[2].revents != 0)
            exited = true;
        else if (exited && (ready == 0 || left_ms <= 0)) /* a process in the background can write on */
            return GP_OK;
        else if (left_ms <= 0)
            return gp_fail(err, GP_ETIMEDOUT,
                           "%s did not exit within %g s; it was killed, its effect is unknown",
                           tool->words[0], limit_ms / 1000.0);
    }
    if (status == GP_ELIMIT)
        return gp_fail(err, GP_ELIMIT, "%s wrote more than %zu bytes; it was killed", tool->words[0],
                       out->output.bytes_max);
    return gp_fail(err, GP_EPEER, "no memory for the output of %s; it was killed, its effect is unknown",
                   tool->words[0]);
}

/* ---- prepared process ---- */

gp_status cluster_tool_prepare(cluster_tool_prepared **out, const cluster_tool *tool, gp_error *err)
{
    cluster_tool_prepared *prepared = gp_calloc(1, sizeof(*prepared));
    gp_status status = GP_OK;

    if (prepared == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for %s", tool->words[0]);
    prepared->input[0] = prepared->input[1] = -1;
    if (pipe2(prepared->input, O_CLOEXEC) != 0)
        status = gp_fail_errno(err, GP_EIO, "cannot create the input of %s", tool->words[0]);
    if (status == GP_OK && (errno = gp_spawn_raise(&prepared->input[1], STDERR_FILENO)) != 0)
        status = gp_fail_errno(err, GP_EIO, "cannot create the input of %s", tool->words[0]);
    if (status == GP_OK)
        status = start(&prepared->run, tool, prepared->input[0], err);
    if (status == GP_OK) {
        *out = prepared;
        return GP_OK;
    }
    fd_close(&prepared->input[0]);
    fd_close(&prepared->input[1]);
    gp_free(prepared);
    return status;
}

/* Write the input to a prepared process and take over its descriptors. Returns whether it got the
 * input as a whole. */
static bool prepared_use(running *out, const cluster_tool *tool)
{
    cluster_tool_prepared *prepared = tool->prepared;

    if (prepared == NULL || prepared->input[1] < 0 ||
        fcntl(prepared->input[1], F_GETPIPE_SZ) < (int)tool->input_bytes || tool->input_bytes > INT_MAX ||
        write(prepared->input[1], tool->input, tool->input_bytes) != (ssize_t)tool->input_bytes)
        return false;
    fd_close(&prepared->input[1]);
    fd_close(&prepared->input[0]);
    *out = prepared->run;
    prepared->run.pid = -1;
    return true;
}

/* Wait until a process exits. Return whether it has. */
static bool exit_wait(const running *run)
{
    struct pollfd exited = { .fd = run->pidfd, .events = POLLIN };
    gp_timeout timeout = gp_timeout_in(EXIT_MS);
    int ready;

    while ((ready = poll(&exited, 1, gp_timeout_slice(timeout))) <= 0 && gp_timeout_left(timeout) > 0)
        ;
    return ready > 0;
}

void cluster_tool_prepared_free(cluster_tool_prepared *prepared)
{
    if (prepared != NULL && prepared->run.pid > 0) {
        /* without an answer: before the end of its input */
        if (!prepared->answered || !exit_wait(&prepared->run))
            kill(-prepared->run.pid, SIGKILL);
        while (waitpid(prepared->run.pid, NULL, 0) < 0 && errno == EINTR)
            ;
        fd_close(&prepared->input[1]);
        fd_close(&prepared->input[0]);
        fd_close(&prepared->run.pidfd);
        fd_close(&prepared->run.output);
        fd_close(&prepared->run.errors);
    }
    gp_free(prepared);
}

/* ---- run ---- */

static gp_status start_with_input(running *out, const cluster_tool *tool, gp_error *err)
{
    int input;
    gp_status status = input_open(&input, tool, err);

    if (status == GP_OK)
        status = start(out, tool, input, err);
    fd_close(&input);
    return status;
}

gp_status cluster_tool_run(cluster_tool_result *out, const cluster_tool *tool, gp_error *err)
{
    cluster_tool_result result = { .code = -1 };
    running run;
    bool prepared, answered = false;
    int ended = 0;
    gp_status status = GP_OK;

    gp_buffer_init(&result.output, tool->output_max > 0 ? tool->output_max : CLUSTER_TOOL_OUTPUT_MAX);
    gp_buffer_init(&result.errors, CLUSTER_TOOL_ERRORS_MAX);
    prepared = prepared_use(&run, tool);
    if (!prepared)
        status = start_with_input(&run, tool, err);
    if (status == GP_OK)
        status = wait_exit(&run, tool, prepared && tool->one_line ? &answered : NULL, &result, err);
    else
        run.pid = -1;
    if (answered) { /* cluster_tool_prepared_free() reaps it */
        result.code = 0;
        tool->prepared->run = run;
        tool->prepared->answered = true;
    } else if (run.pid > 0) {
        if (status != GP_OK)
            kill(-run.pid, SIGKILL); /* the group exists: its leader is not reaped yet */
        while (waitpid(run.pid, &ended, 0) < 0 && errno == EINTR)
            ;
        result.code = WIFSIGNALED(ended) ? 128 + WTERMSIG(ended) : WEXITSTATUS(ended);
        fd_close(&run.pidfd);
        fd_close(&run.output);
        fd_close(&run.errors);
    }
    if (status == GP_OK)
        *out = result;
    else
        cluster_tool_deinit(&result);
    return status;
}

void cluster_tool_deinit(cluster_tool_result *result)
{
    gp_buffer_deinit(&result->output);
    gp_buffer_deinit(&result->errors);
}

gp_status cluster_tool_fail(gp_error *err, gp_status code, const cluster_tool *tool,
                            const cluster_tool_result *result)
{
    const char *text = gp_buffer_text(&result->errors), *last = text, *cause = NULL;
    const char *name = strrchr(tool->words[0], '/');
    char line[LINE_BYTES];
    size_t length;

    for (const char *at = text; *at != '\0'; at += strcspn(at, "\n"), at += *at == '\n') {
        const char *words = tool->cause != NULL ? strstr(at, tool->cause) : NULL;

        if (words != NULL && words < at + strcspn(at, "\n"))
            cause = at;
        if (*at != '\n')
            last = at;
    }
    if (cause != NULL)
        last = cause;
    length = strcspn(last, "\r\n"); /* ssh ends its lines with both */
    snprintf(line, sizeof(line), "%.*s", (int)(length < sizeof(line) ? length : sizeof(line) - 1), last);
    return gp_fail(err, code, "%s exited with code %d: %s", name != NULL ? name + 1 : tool->words[0],
                   result->code, line[0] != '\0' ? gp_printable(line) : "(no message on standard error)");
}
