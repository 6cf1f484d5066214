/* Background job support inside the job's own process: start barrier, job folder, and the record
 * job.json. */
#include "client/cli/jobs/job_self.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "client/cli/show.h"
#include "common/base/memory/alloc.h"
#include "common/base/system/fault.h"

enum {
    EXIT_CLOSED_GATE = 75, /* the scheduler closed the start pipe */
    EXIT_NO_DIRECTORY = 1, /* cannot enter the working directory */
    GATE_MAX = 1 << 20,    /* largest valid descriptor number */
};

static struct {
    char folder[512], began[32];
    long job, attempt;
    int argc;
    char **argv;
    gp_error error;
    gp_train_options *options; /* training options; NULL: not a training, or not parsed yet */
    bool unlinked;             /* job_self_link() has reported an error */
} self;

/* Copy an environment variable to `text` and remove it from the environment, because child
 * processes are not the job. NULL: not set, or too long. */
static const char *take_variable(const char *name, char *text, size_t bytes)
{
    const char *value = getenv(name);

    if (value == NULL || (size_t)snprintf(text, bytes, "%s", value) >= bytes)
        return NULL;
    unsetenv(name);
    return text;
}

/* Take a numeric variable from the environment. -1: not set, malformed, or larger than `max`. */
static long take_number(const char *name, int base, long max)
{
    char text[32], *end;
    const char *value = take_variable(name, text, sizeof(text));
    long number = value != NULL ? strtol(value, &end, base) : -1;

    return value == NULL || end == value || *end != '\0' || number > max ? -1 : number;
}

void job_self_now(char text[32])
{
    struct timespec now;
    struct tm utc;
    size_t bytes;

    clock_gettime(CLOCK_REALTIME, &now);
    bytes = strftime(text, 32, "%Y-%m-%dT%H:%M:%S", gmtime_r(&now.tv_sec, &utc));
    snprintf(text + bytes, 32 - bytes, ".%03dZ", (int)(now.tv_nsec / 1000000));
}

void job_self_put_command(gp_json_writer *writer, int argc, char **argv, const gp_train_options *options)
{
    char directory[4096];

    if (self.began[0] == '\0')
        job_self_now(self.began);
    gp_json_put_text(writer, "program", gp_version());
    gp_json_put_text(writer, "directory", getcwd(directory, sizeof(directory)) != NULL ? directory : "");
    gp_json_put_integer(writer, "pid", getpid());
    gp_json_put_text(writer, "began", self.began);
    gp_json_begin_array(writer, "arguments");
    for (int i = 0; i < argc; i++)
        gp_json_put_text(writer, NULL, argv[i]);
    gp_json_end_array(writer);
    if (options == NULL)
        return;
    gp_json_begin_object(writer, "options");
    gp_params_to_json(gp_train_options_table, options, false, writer);
    gp_json_end_object(writer);
}

/* Write job.json; it replaces the previous version atomically.
 *   ended  include the result of the job
 *   code   exit code */
static void write_record(bool ended, int code)
{
    char path[600];
    json_document json;
    gp_error err;
    gp_status status;
    gp_json_writer *writer = show_json_object(&json, true);

    gp_json_put_integer(writer, "job", self.job);
    gp_json_put_integer(writer, "attempt", self.attempt);
    job_self_put_command(writer, self.argc, self.argv, self.options);
    gp_json_put_text(writer, "state", ended ? "ended" : "running");
    if (ended) {
        char now[32];

        job_self_now(now);
        gp_json_put_text(writer, "ended", now);
        gp_json_begin_object(writer, "exit");
        gp_json_put_integer(writer, "code", code);
        gp_json_put_text(writer, "error", gp_status_name(code == 0 ? GP_OK : self.error.code));
        gp_json_put_text(writer, "message", code == 0 ? "" : self.error.message);
        gp_json_end_object(writer);
    }
    snprintf(path, sizeof(path), "%s/job.json", self.folder);
    status = ended ? show_json_write(&json, path, &err) : show_json_write_record(&json, path, &err);
    if (status != GP_OK)
        fprintf(stderr, "gradpool: cannot write the record of the job: %s\n", err.message);
}

/* Enter the working directory of the job. On an error in the path, record the end of the job and
 * exit. Other errors are those of a file server or a disk: wait until the directory is available,
 * as for a server that does not reply. */
static void enter_directory(const char *path)
{
    while (chdir(path) != 0) {
        const int problem = errno;
        const bool path_is_wrong = problem == ENOENT || problem == ENOTDIR || problem == EACCES ||
                                   problem == ELOOP || problem == ENAMETOOLONG;
        const gp_status code = problem == EACCES ? GP_EPERM : path_is_wrong ? GP_ENOENT : GP_EIO;

        if (self.error.code == GP_OK || path_is_wrong) {
            gp_fail(&self.error, code, "cannot enter the working directory %s: %s", path, strerror(problem));
            fprintf(stderr, "gradpool: %s%s\n", self.error.message, path_is_wrong ? "" : "; trying again");
        }
        if (path_is_wrong) {
            job_self_end(EXIT_NO_DIRECTORY);
            exit(EXIT_NO_DIRECTORY);
        }
        sleep(1);
    }
    self.error = (gp_error){ .code = GP_OK };
}

uint32_t job_self_attempt(void)
{
    const char *attempt = getenv("GRADPOOL_JOB_ATTEMPT");

    return attempt != NULL && atoi(attempt) > 0 ? (uint32_t)atoi(attempt) : 1;
}

void job_self_begin(int argc, char **argv)
{
    char metrics[sizeof(self.folder) + 32], directory[PATH_MAX];
    bool moves;
    long gate, mask;
    char byte;
    ssize_t got = 1;

    if (take_variable("GRADPOOL_JOB_DIR", self.folder, sizeof(self.folder)) == NULL)
        self.folder[0] = '\0';
    gate = take_number("GRADPOOL_JOB_GATE", 10, GATE_MAX);
    mask = take_number("GRADPOOL_JOB_UMASK", 8, 0777);
    moves = take_variable("GRADPOOL_JOB_CWD", directory, sizeof(directory)) != NULL;
    self.attempt = take_number("GRADPOOL_JOB_ATTEMPT", 10, 1000000);
    /* Wait until the scheduler writes a byte to the start pipe. If the pipe closes without a
     * byte, no scheduler knows this process, which has done nothing yet. */
    while (gate >= 0 && (got = read((int)gate, &byte, 1)) < 0 && errno == EINTR)
        ;
    if (gate >= 0 && got != 1)
        _exit(EXIT_CLOSED_GATE);
    if (gate >= 0)
        close((int)gate);
    if (self.folder[0] == '\0')
        return;
    self.job = getenv("GRADPOOL_JOB") != NULL ? atol(getenv("GRADPOOL_JOB")) : 0;
    self.argc = argc;
    self.argv = argv;
    if (moves)
        enter_directory(directory);
    snprintf(metrics, sizeof(metrics), "%s/metrics.jsonl", self.folder);
    setenv("GRADPOOL_METRICS", metrics, true); /* for programs that spmd and parfor start */
    write_record(false, 0);                    /* before setting the umask, because the folder is private */
    gp_fault_point("job-begun");
    if (mask >= 0)
        umask((mode_t)mask);
}

void job_self_options(const gp_train_options *options, bool write)
{
    if (self.options == NULL)
        self.options = gp_malloc(sizeof(*self.options));
    if (self.options == NULL)
        return;
    *self.options = *options;
    if (!write)
        return;
    mode_t before = umask(077);

    write_record(false, 0);
    umask(before);
}

const char *job_self_folder(void)
{
    return self.folder[0] != '\0' ? self.folder : NULL;
}

void job_self_link(const char *run_folder, const char *name)
{
    char from[PATH_MAX + 20], to[sizeof(self.folder) + 20];

    if (self.folder[0] == '\0' || strcmp(run_folder, self.folder) == 0)
        return;
    snprintf(from, sizeof(from), "%.4095s/%s", run_folder, name);
    snprintf(to, sizeof(to), "%s/%s", self.folder, name);
    unlink(to); /* of an earlier attempt */
    if (link(from, to) == 0 || errno == ENOENT || self.unlinked)
        return;
    self.unlinked = true;
    fprintf(stderr, "gradpool: `top` and `logs` do not show the curves of this job: cannot link %s: %s\n",
            from, errno == EXDEV ? "the job folder is on another file system" : strerror(errno));
}

void job_self_result(const char *name, char *path, size_t bytes)
{
    snprintf(path, bytes, "%s/result", self.folder);
    if (mkdir(path, 0777) != 0 && errno != EEXIST)
        fprintf(stderr, "gradpool: cannot create %s: %s\n", path, strerror(errno));
    snprintf(path, bytes, "%s/result/%s", self.folder, name);
}

void job_self_error(const gp_error *error)
{
    self.error = *error;
}

void job_self_end(int code)
{
    if (self.folder[0] == '\0')
        return;
    umask(077);
    gp_fault_point("job-ending");
    write_record(true, code);
}
