/* Job processes: spawn behind a gate, adopt, signal and reap. job_process.h describes the
 * interface. */
#include "scheduler/jobs/job_process.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/memory/alloc.h"
#include "common/base/text/json.h"
#include "common/base/text/log.h"
#include "common/base/system/cgroup.h"
#include "common/base/system/process.h"
#include "common/base/memory/secret.h"
#include "scheduler/process/supervise.h"

enum { GATE = 3, SECRETS = 4, OURS_MAX = 9, RECORD_BYTES_MAX = 1 << 20 };

/* No scheduler counts this far. A larger number is the name of another folder. */
static const uint64_t folder_id_max = UINT64_C(1) << 53;

void gp_job_folder(const gp_paths *paths, uint64_t job, char *path, size_t bytes)
{
    snprintf(path, bytes, "%s/jobs/%" PRIu64, paths->state_dir, job);
}

gp_status gp_job_folders_last(uint64_t *out, const gp_paths *paths, gp_error *err)
{
    char path[GP_TEXT_FOLDER];
    uint64_t last = 0;
    const struct dirent *entry;
    DIR *directory;
    int problem;

    snprintf(path, sizeof(path), "%s/jobs", paths->state_dir);
    directory = opendir(path);
    if (directory == NULL)
        return gp_fail_errno(err, GP_EIO, "cannot read %s", path);
    for (errno = 0; (entry = readdir(directory)) != NULL; errno = 0) {
        char *end;
        const uint64_t id = strtoull(entry->d_name, &end, 10);

        if (*end == '\0' && id > last && id <= folder_id_max)
            last = id;
    }
    problem = errno;
    closedir(directory);
    errno = problem;
    if (problem != 0)
        return gp_fail_errno(err, GP_EIO, "cannot read %s", path);
    *out = last;
    return GP_OK;
}

/* ---- process identity ---- */

void gp_job_boot(uint8_t out[16])
{
    static const char digits[] = "0123456789abcdef";
    char text[40] = "";
    int nibbles = 0;

    gp_boot_id_read(text, sizeof(text));
    memset(out, 0, 16);
    for (const char *at = text; *at != '\0' && nibbles < 32; at++) {
        const char *found = strchr(digits, *at);

        if (found != NULL) {
            out[nibbles / 2] = (uint8_t)(out[nibbles / 2] << 4 | (found - digits));
            nibbles++;
        }
    }
}

static gp_status gone(gp_error *err)
{
    return gp_fail(err, GP_ENOENT, "the process has exited");
}

gp_status gp_job_adopt(gp_job_process *out, const gp_jobs_job *job, gp_error *err)
{
    static const uint8_t unavailable[16];
    uint8_t boot[16];
    uint64_t start_time;
    int fd, problem;

    gp_job_boot(boot);
    if (job->pid <= 1 || job->start_time == 0)
        return gone(err);
    /* If either boot id could not be read, the start time decides whether the pid was reused. */
    if (memcmp(boot, job->boot, sizeof(boot)) != 0 && memcmp(boot, unavailable, sizeof(boot)) != 0 &&
        memcmp(job->boot, unavailable, sizeof(boot)) != 0)
        return gone(err);
    fd = (int)syscall(SYS_pidfd_open, job->pid, 0);
    if (fd < 0 && (errno == ESRCH || errno == EINVAL)) /* EINVAL: now the id of a thread */
        return gone(err);
    start_time = fd < 0 ? 0 : gp_supervise_start_time(job->pid);
    problem = errno;
    if (fd >= 0 && start_time != job->start_time)
        close(fd);
    if (fd >= 0 && start_time == 0 && (problem == ENOENT || problem == ESRCH))
        return gone(err);
    if (start_time == 0)
        return gp_fail(err, GP_EBUSY, "cannot find out whether process %d is running: %s", job->pid,
                       strerror(problem));
    if (start_time != job->start_time) /* the pid has been reused */
        return gone(err);
    *out = (gp_job_process){ .job = job->id,
                             .attempt = job->attempts,
                             .pid = job->pid,
                             .start_time = job->start_time,
                             .pidfd = fd,
                             .gate = -1,
                             .adopted = true };
    return GP_OK;
}

/* ---- spawning ---- */

/* Split NUL-terminated strings into a list. Free the list with gp_free(); the strings are borrowed.
 *   before     entries to leave free at the start
 *   room       entries to leave free at the end
 *   variables  skip the variables that the scheduler sets
 *   count      set to `before` plus the number of strings */
static char **split_texts(char *texts, size_t bytes, size_t before, size_t room, bool variables,
                          size_t *count)
{
    /* The scheduler sets these variables itself; the submitter's values are dropped. */
    static const char *const ours[] = { "GRADPOOL_JOB",
                                        "GRADPOOL_POOL=", "GRADPOOL_RUNTIME_DIR=", "GRADPOOL_STATE_DIR=" };
    size_t texts_count = 0;
    char **list;

    for (size_t i = 0; i < bytes; i++)
        texts_count += texts[i] == '\0';
    list = gp_calloc(before + texts_count + room + 1, sizeof(*list));
    *count = before;
    for (char *at = texts; list != NULL && at < texts + bytes; at += strlen(at) + 1) {
        bool keep = true;

        for (size_t i = 0; variables && i < sizeof(ours) / sizeof(ours[0]); i++)
            keep = keep && strncmp(at, ours[i], strlen(ours[i])) != 0;
        if (keep)
            list[(*count)++] = at;
    }
    return list;
}

/* Fail because a job cannot start. GP_EINVAL: the job is the cause: the arguments are too large for
 * this system, or another file is in place of the log or the folder. GP_EIO: other errors. */
static gp_status start_fail(int error_number, const char *what, const char *path, gp_error *err)
{
    const bool of_job = error_number == E2BIG || error_number == ELOOP || error_number == ENOTDIR ||
                        error_number == EISDIR || error_number == ENXIO;

    return gp_fail(err, of_job ? GP_EINVAL : GP_EIO, "cannot %s %s: %s", what, path,
                   error_number == ENXIO ? "not a regular file" : strerror(error_number));
}

/* Fail because the log of a job cannot be opened. mkdir() has created or found the folder, so the
 * job itself is the cause of EACCES, EPERM and ENOENT. Errors as in start_fail(). */
static gp_status log_fail(int error_number, const char *log, gp_error *err)
{
    static const char what[] = "open the job's log";
    const bool of_folder = error_number == EACCES || error_number == EPERM || error_number == ENOENT;

    return of_folder ? gp_fail(err, GP_EINVAL, "cannot %s %s: %s", what, log, strerror(error_number))
                     : start_fail(error_number, what, log, err);
}

/* Create the job folder, and open the log for the process. From the second attempt on, write a
 * separator into the log. Errors as in start_fail(). */
static gp_status make_folder(const gp_paths *paths, uint64_t job, uint32_t attempt, char *folder,
                             size_t bytes, int *log, gp_error *err)
{
    char path[GP_TEXT_FOLDER + 8];
    int problem;

    gp_job_folder(paths, job, folder, bytes);
    if (mkdir(folder, 0700) != 0 && errno != EEXIST)
        return start_fail(errno, "create the job's directory", folder, err);
    snprintf(path, sizeof(path), "%s/log", folder);
    problem = gp_supervise_open_log(log, path);
    if (problem != 0)
        return log_fail(problem, path, err);
    if (attempt > 1)
        dprintf(*log, "\n== attempt %u ==\n", attempt);
    return GP_OK;
}

/* Spawn the child and open a pidfd. Errors as in start_fail(). */
static gp_status start(gp_job_process *out, const char *program, int log, char **arguments,
                       char **environment, gp_error *err)
{
    int ends[2] = { -1, -1 }, problem = pipe2(ends, O_CLOEXEC) == 0 ? 0 : errno;

    if (problem == 0)
        /* dup2() onto the same number would keep close-on-exec set */
        problem = gp_spawn_raise(&ends[0], GATE);
    if (problem == 0)
        /* a new session, so that a suspended job also survives the scheduler */
        problem = gp_supervise_spawn_with(&out->pid, program, log, ends[0], arguments, environment);
    if (ends[0] >= 0)
        close(ends[0]);
    if (problem != 0 && ends[1] >= 0)
        close(ends[1]);
    if (problem == 0) {
        out->gate = ends[1];
        out->pidfd = (int)syscall(SYS_pidfd_open, out->pid, 0);
        /* Without the start time, the next scheduler could not identify the process. */
        out->start_time = out->pidfd < 0 ? 0 : gp_supervise_start_time(out->pid);
        if (out->start_time != 0)
            return GP_OK;
        problem = errno;
        kill(out->pid, SIGKILL);
        waitpid(out->pid, NULL, 0);
        close(out->gate);
        if (out->pidfd >= 0)
            close(out->pidfd);
    }
    return start_fail(problem, "start", program, err);
}

/* Set the soft limit on descriptors of a process at the gate. posix_spawn() cannot do that. */
static void limit_files(pid_t pid, rlim_t files)
{
    struct rlimit limit;

    if (prlimit(pid, RLIMIT_NOFILE, NULL, &limit) != 0 || limit.rlim_cur <= files)
        return;
    limit.rlim_cur = files;
    prlimit(pid, RLIMIT_NOFILE, &limit, NULL);
}

gp_status gp_job_spawn(gp_job_process *out, const gp_paths *paths, uint64_t job, uint32_t attempt,
                       const gp_journal_text *words, rlim_t files, gp_error *err)
{
    char program[4096], folder[GP_TEXT_FOLDER], ours[OURS_MAX][GP_TEXT_FOLDER + 40];
    char directory[GP_JOB_DIRECTORY_BYTES_MAX + 40];
    char **arguments, **environment;
    size_t argument_count, variable_count, used = 0;
    int log;
    gp_error missing;
    gp_status status;

    if (gp_supervise_client(program, sizeof(program), &missing) != GP_OK)
        return gp_fail(err, GP_EIO, "%s", missing.message);
    status = make_folder(paths, job, attempt, folder, sizeof(folder), &log, err);
    if (status != GP_OK)
        return status;
    *out = (gp_job_process){ .job = job, .attempt = attempt, .pidfd = -1, .gate = -1 };
    arguments = split_texts(words->words, words->words_bytes, 1, 0, false, &argument_count);
    environment =
        split_texts(words->environment, words->environment_bytes, 0, OURS_MAX + 1, true, &variable_count);
    if (arguments == NULL || environment == NULL) {
        close(log);
        gp_free(arguments);
        gp_free(environment);
        return gp_fail(err, GP_ENOMEM, "no memory for the job's arguments");
    }
    arguments[0] = program;
    snprintf(ours[used++], sizeof(ours[0]), "GRADPOOL_POOL=%s", paths->pool);
    snprintf(ours[used++], sizeof(ours[0]), "GRADPOOL_RUNTIME_DIR=%s", paths->runtime);
    snprintf(ours[used++], sizeof(ours[0]), "GRADPOOL_STATE_DIR=%s", paths->state_root);
    snprintf(ours[used++], sizeof(ours[0]), "GRADPOOL_JOB=%" PRIu64, job);
    snprintf(ours[used++], sizeof(ours[0]), "GRADPOOL_JOB_ATTEMPT=%u", attempt);
    snprintf(ours[used++], sizeof(ours[0]), "GRADPOOL_JOB_DIR=%s", folder);
    snprintf(ours[used++], sizeof(ours[0]), "GRADPOOL_JOB_GATE=%d", GATE);
    snprintf(ours[used++], sizeof(ours[0]), "GRADPOOL_JOB_UMASK=%03o", words->umask);
    if (gp_secrets_fd() >= 0)
        gp_secrets_assignment(ours[used++], SECRETS);
    for (size_t i = 0; i < used; i++)
        environment[variable_count++] = ours[i];
    snprintf(directory, sizeof(directory), "GRADPOOL_JOB_CWD=%s", words->directory);
    environment[variable_count] = directory;
    status = start(out, program, log, arguments, environment, err);
    close(log);
    if (status == GP_OK)
        limit_files(out->pid, files);
    gp_free(arguments);
    gp_free(environment);
    return status;
}

void gp_job_go(gp_job_process *process)
{
    if (process->gate < 0)
        return;
    if (write(process->gate, "g", 1) != 1)
        gp_log_event(GP_LOG_WARN, "job-gate", GP_LOG_WITH({ "job", .number = (int64_t)process->job }),
                     "cannot release the job to run: %s", strerror(errno));
    close(process->gate);
    process->gate = -1;
}

void gp_job_signal(const gp_job_process *process, int number, bool group)
{
    /* The process leads a group with its pid until it is reaped. The parent of an adopted process
     * may have reaped it already, and the pid may then belong to another group. So check the pidfd
     * first; only a short race remains. */
    if (group && syscall(SYS_pidfd_send_signal, process->pidfd, 0, NULL, 0) == 0)
        kill(-process->pid, number);
    syscall(SYS_pidfd_send_signal, process->pidfd, number, NULL, 0);
}

void gp_job_drop(gp_job_process *process)
{
    if (process->gate >= 0)
        close(process->gate);
    process->gate = -1;
    gp_job_signal(process, SIGKILL, true);
}

/* ---- signals and exit ---- */

static const char unknown[] = "exited (exit status unknown)";

/* Read and parse job.json. *out NULL: missing, too large or malformed. GP_EBUSY: cannot read it
 * now. */
static gp_status read_record(gp_json **out, const gp_paths *paths, uint64_t job, gp_error *err)
{
    char folder[GP_TEXT_FOLDER], path[GP_TEXT_FOLDER + 16];
    gp_status parsed = GP_OK;
    char *text = NULL;
    struct stat info;
    int fd, problem = 0;

    *out = NULL;
    gp_job_folder(paths, job, folder, sizeof(folder));
    snprintf(path, sizeof(path), "%s/job.json", folder);
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0 && (errno == ENOENT || errno == ENOTDIR || errno == ELOOP))
        return GP_OK;
    /* EACCES is final if the folder is accessible: the job denied access to its own files.
     * Otherwise a folder above denies access, perhaps for a short time only: GP_EBUSY. */
    if (fd < 0 && errno == EACCES && lstat(folder, &info) == 0)
        return GP_OK;
    if (fd < 0 || fstat(fd, &info) != 0) {
        problem = errno;
    } else if (S_ISREG(info.st_mode) && info.st_size <= RECORD_BYTES_MAX) {
        ssize_t got = -1;

        text = gp_malloc((size_t)info.st_size + 1);
        if (text != NULL)
            got = read(fd, text, (size_t)info.st_size);
        problem = text == NULL ? ENOMEM : got < 0 ? errno : 0;
        if (got > 0)
            parsed = gp_json_parse(out, text, (size_t)got, NULL);
        if (parsed == GP_ENOMEM)
            problem = ENOMEM;
    }
    if (parsed != GP_OK)
        *out = NULL;
    gp_free(text);
    if (fd >= 0)
        close(fd);
    return problem == 0 ? GP_OK : gp_fail(err, GP_EBUSY, "cannot read %s: %s", path, strerror(problem));
}

gp_status gp_job_read_end(const gp_paths *paths, uint64_t job, uint32_t attempt, gp_job_end *end,
                          gp_error *err)
{
    gp_json *json;
    gp_status status = read_record(&json, paths, job, err);
    const gp_json *last = json != NULL ? gp_json_member(json, "exit") : NULL;
    int64_t code = last != NULL ? gp_json_integer(gp_json_member(last, "code"), -1) : -1;

    *end = (gp_job_end){ .exit = GP_JOBS_EXIT_UNKNOWN };
    if (last != NULL && gp_json_integer(gp_json_member(json, "attempt"), 0) == (int64_t)attempt &&
        code >= 0 && code <= 255) {
        const char *error = gp_json_text(gp_json_member(last, "error"), "");

        end->exit = GP_JOBS_EXIT_CODE;
        end->number = (int32_t)code;
        /* the error name tells whether the pool failed, not the job */
        end->pool_lost = strcmp(error, "GP_EPEER") == 0 || strcmp(error, "GP_ENOPOOL") == 0 ||
                         strcmp(error, "GP_ESTALE") == 0;
        snprintf(end->text, sizeof(end->text), "%s", gp_json_text(gp_json_member(last, "message"), ""));
    } else {
        snprintf(end->text, sizeof(end->text), "%s", unknown);
    }
    gp_json_free(json);
    return status;
}

void gp_job_process_deinit(gp_job_process *process)
{
    if (process->gate >= 0)
        close(process->gate);
    if (process->pidfd >= 0)
        close(process->pidfd);
    *process = (gp_job_process){ .pidfd = -1, .gate = -1 };
}

gp_status gp_job_reap(gp_job_process *process, const gp_paths *paths, gp_job_end *end, gp_error *err)
{
    siginfo_t info = { .si_pid = 0 };
    gp_status status;

    /* the pidfd was readable; the kernel reports nothing else to a process that is not the
     * parent */
    if (process->adopted) {
        status = gp_job_read_end(paths, process->job, process->attempt, end, err);
        gp_job_process_deinit(process);
        return status;
    }
    if (waitid(P_PIDFD, (id_t)process->pidfd, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0)
        return gp_fail(err, GP_ESTATE, "the process is still running");
    /* Kill the job's children too. The job is not reaped yet, so the process group still exists. */
    kill(-process->pid, SIGKILL);
    waitid(P_PIDFD, (id_t)process->pidfd, &info, WEXITED);
    /* Complete the result with the exit status from the kernel. If the file cannot be read, only
     * the message is lost. */
    gp_job_read_end(paths, process->job, process->attempt, end, NULL);
    end->exit = info.si_code == CLD_EXITED ? GP_JOBS_EXIT_CODE : GP_JOBS_EXIT_SIGNAL;
    end->number = info.si_status;
    if (info.si_code != CLD_EXITED) {
        end->pool_lost = false;
        snprintf(end->text, sizeof(end->text), "killed by signal %d (%s)%s", info.si_status,
                 strsignal(info.si_status), info.si_code == CLD_DUMPED ? ", core dumped" : "");
    } else if (strcmp(end->text, unknown) == 0) {
        end->text[0] = '\0'; /* no message; status shows the exit code */
    }
    gp_job_process_deinit(process);
    return GP_OK;
}
