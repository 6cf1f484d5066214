/* Implement ssh_host.h. */
#include "client/cli/cluster/ssh_host.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/cli/cli.h"
#include "client/cli/cluster/cluster_jobs.h"
#include "client/cluster/job_folder.h"
#include "client/cluster/ssh_jobs.h"
#include "client/cluster/ssh_wire.h"
#include "client/cluster/tool.h"
#include "common/base/memory/alloc.h"
#include "common/base/system/directory.h"
#include "common/base/system/file.h"
#include "common/base/system/proc_stat.h"
#include "common/base/system/process.h"

enum {
    LIFE_S = 120, /* the kernel ends this process then; a file server may not answer */
    LOCK_MS = 10000,
    JOB_PATH_BYTES = SSH_FOLDER_BYTES + CLUSTER_NAME_BYTES,
    PATH_BYTES = JOB_PATH_BYTES + SSH_FILE_BYTES,
    VARIABLES_MAX = 4096,
    NAMES_BYTES = 200, /* names of jobs in a message */
};

extern char **environ;

/* A request with the reply to it. */
typedef struct exchange {
    ssh_request request;
    const char *command; /* launch: contents of command.json */
    size_t command_bytes;
    char folder[JOB_PATH_BYTES]; /* folder of the job */
    gp_json_writer *head;        /* members of the reply */
    gp_buffer data;              /* bytes after the head */
} exchange;

/* ---- launch ---- */

/* Lock the folder of the profile, so that launches on this host follow one another. */
static gp_status folder_lock(int *fd, const char *folder, gp_error *err)
{
    char path[PATH_BYTES];
    gp_status status = gp_directory_make(folder, 0700, err);

    *fd = -1;
    if (status != GP_OK)
        return status;
    snprintf(path, sizeof(path), "%s/.ssh-lock", folder);
    *fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (*fd < 0)
        return gp_fail_errno(err, GP_EIO, "cannot open %s", path);
    status = gp_file_lock_wait(*fd, LOCK_MS);
    if (status == GP_EBUSY)
        return gp_fail(err, GP_EBUSY, "another launch has locked %s for %d s", path, LOCK_MS / 1000);
    return status == GP_OK ? GP_OK : gp_fail_errno(err, status, "cannot lock %s", path);
}

/* Check that no other job runs under the name of this host. */
static gp_status check_free(const ssh_request *request, gp_error *err)
{
    cluster_listing listing = { 0 };
    char names[NAMES_BYTES] = "";
    size_t used = 0;
    gp_status status = ssh_jobs_list(&listing, request->host, request->folder, err);

    for (size_t i = 0; status == GP_OK && i < listing.count; i++) {
        const cluster_entry *entry = &listing.entries[i];

        if (entry->state != CLUSTER_ENTRY_ENDED && strcmp(entry->name, request->name) != 0 &&
            used < sizeof(names))
            used += (size_t)snprintf(names + used, sizeof(names) - used, "%s%s", used > 0 ? ", " : "",
                                     entry->name);
    }
    cluster_listing_deinit(&listing);
    return status == GP_OK && used > 0 ? gp_fail(err, GP_EBUSY, "runs %s", names) : status;
}

/* Remove a job folder in which no attempt has started: an earlier launch was interrupted. */
static void folder_remove(const char *folder)
{
    static const char *const files[] = { "command.json", "ssh.json", "engine.out", "attempts" };
    char path[PATH_BYTES];

    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        snprintf(path, sizeof(path), "%s/%s", folder, files[i]);
        remove(path);
    }
    rmdir(folder);
}

/* Create the folder of the job.
 *   launched  set to true if an earlier launch of this job has succeeded; nothing is done then */
static gp_status folder_create(const exchange *x, bool *launched, gp_error *err)
{
    char path[PATH_BYTES];
    cluster_command command;
    ssh_record record;
    struct stat info;
    gp_status status = cluster_command_parse(&command, x->command, x->command_bytes, err);

    *launched = false;
    if (status != GP_OK)
        return status;
    if (stat(command.directory, &info) != 0 || !S_ISDIR(info.st_mode))
        status =
            gp_fail(err, GP_ENOENT,
                    "there is no directory %.200s for the job; create it, or set 'directory' in the profile",
                    command.directory);
    cluster_command_deinit(&command);
    if (status == GP_OK)
        status = ssh_job_alive(launched, x->request.host, x->request.folder, x->request.name, err);
    if (status != GP_OK || *launched)
        return status;
    snprintf(path, sizeof(path), "%s/attempts/1", x->folder);
    if (stat(path, &info) == 0) {
        if (ssh_record_read(&record, x->folder, NULL) == GP_OK && strcmp(record.host, x->request.host) != 0)
            return gp_fail(err, GP_ESTATE, "the job was launched on %s before", record.host);
        *launched = true;
        return GP_OK;
    }
    if (errno != ENOENT && errno != ENOTDIR)
        return gp_fail_errno(err, GP_EIO, "cannot determine whether %.300s exists", path);
    folder_remove(x->folder);
    return cluster_folder_create(x->folder, x->command, x->command_bytes, err);
}

static bool is_dropped(const char *variable)
{
    /* of the connection, of the login session, and of an attempt */
    static const char *const prefixes[] = { "SSH_", "XDG_SESSION_", "XDG_RUNTIME_DIR=", "GRADPOOL_FENCE",
                                            NULL };

    return cluster_has_prefix(variable, prefixes) || cluster_has_prefix(variable, cluster_job_variables);
}

/* Texts of the variables that describe the allocation; see cluster_allocation_open(). */
typedef struct allocation_texts {
    char text[6][SSH_HOST_BYTES + 64];
    int count;
} allocation_texts;

static void allocation_format(allocation_texts *out, const ssh_request *request)
{
    const size_t bytes = sizeof(out->text[0]);

    out->count = 0;
    /* The first variable: it is found in the beginning of an environment. */
    snprintf(out->text[out->count++], bytes, SSH_JOB_VARIABLE "=%s/%s", request->host, request->name);
    snprintf(out->text[out->count++], bytes, "GRADPOOL_ALLOCATION_ID=%s", request->name);
    snprintf(out->text[out->count++], bytes, "GRADPOOL_ALLOCATION_GPUS=%" PRId64, request->gpus);
    if (request->cores > 0)
        snprintf(out->text[out->count++], bytes, "GRADPOOL_ALLOCATION_CORES=%" PRId64, request->cores);
    if (request->memory_mib > 0)
        snprintf(out->text[out->count++], bytes, "GRADPOOL_ALLOCATION_MEMORY_MIB=%" PRId64,
                 request->memory_mib);
    if (request->time_s > 0)
        snprintf(out->text[out->count++], bytes, "GRADPOOL_ALLOCATION_TIME_S=%" PRId64, request->time_s);
}

/* Start the process of the attempt, detached from this one. */
static gp_status attempt_spawn(const exchange *x, pid_t *pid, gp_error *err)
{
    char path[PATH_MAX], output[PATH_BYTES], verb[] = "job-attempt", program[] = "gradpool";
    char *words[] = { program, verb, (char *)(uintptr_t)x->folder, NULL };
    char **variables = gp_calloc(VARIABLES_MAX + 1, sizeof(*variables));
    allocation_texts texts;
    posix_spawn_file_actions_t actions;
    size_t count = 0;
    int problem;
    gp_status status = gp_program_path(path, sizeof(path), err);

    if (status == GP_OK && variables == NULL)
        status = gp_fail(err, GP_ENOMEM, "no memory for the environment of the job");
    if (status == GP_OK) {
        allocation_format(&texts, &x->request);
        for (int i = 0; i < texts.count; i++)
            variables[count++] = texts.text[i];
        for (char **at = environ; *at != NULL && count < VARIABLES_MAX; at++)
            if (!is_dropped(*at))
                variables[count++] = *at;
        snprintf(output, sizeof(output), "%s/engine.out", x->folder);
        posix_spawn_file_actions_init(&actions);
        posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
        posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, output,
                                         O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW, 0600);
        posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
        posix_spawn_file_actions_addclosefrom_np(&actions, STDERR_FILENO + 1);
        problem = gp_spawn(pid, path, &actions, POSIX_SPAWN_SETSID, words, variables);
        if (problem != 0) {
            errno = problem;
            status = gp_fail_errno(err, GP_EIO, "cannot start %s", path);
        }
    }
    gp_free(variables);
    return status;
}

/* The record is written before the start, too: if this process is killed in between, a listing
 * finds the job by its environment, and the next launch does not start it again. */
static gp_status do_launch(exchange *x, gp_error *err)
{
    const ssh_request *request = &x->request;
    ssh_record record;
    gp_proc_stat stat;
    bool launched = false;
    int lock;
    gp_status status = folder_lock(&lock, request->folder, err);

    if (status == GP_OK)
        status = check_free(request, err);
    if (status == GP_OK)
        status = folder_create(x, &launched, err);
    if (status == GP_OK && !launched) {
        ssh_record_init(&record, request->host);
        status = ssh_record_write(&record, x->folder, err);
        if (status == GP_OK)
            status = attempt_spawn(x, &record.pid, err);
        if (status == GP_OK && gp_proc_stat_read(&stat, record.pid)) {
            record.start_time = stat.start_time;
            (void)ssh_record_write(&record, x->folder, NULL); /* a listing finds the job without it */
        }
    }
    if (lock >= 0)
        close(lock);
    return status;
}

/* ---- other verbs ---- */

static gp_status do_list(exchange *x, gp_error *err)
{
    cluster_listing listing = { 0 };
    gp_status status = ssh_jobs_list(&listing, x->request.host, x->request.folder, err);

    if (status == GP_OK) {
        gp_json_begin_array(x->head, "jobs");
        for (size_t i = 0; i < listing.count; i++) {
            gp_json_begin_object(x->head, NULL);
            gp_json_put_text(x->head, "name", listing.entries[i].name);
            gp_json_put_bool(x->head, "ended", listing.entries[i].state == CLUSTER_ENTRY_ENDED);
            gp_json_end_object(x->head);
        }
        gp_json_end_array(x->head);
    }
    cluster_listing_deinit(&listing);
    return status;
}

static gp_status do_facts(exchange *x, gp_error *err)
{
    cluster_facts facts;
    gp_status status = cluster_folder_facts(x->folder, &facts, err);

    if (status != GP_OK)
        return status;
    gp_json_put_integer(x->head, "attempt", facts.attempt);
    gp_json_put_bool(x->head, "begun", facts.begun);
    gp_json_put_text(x->head, "on", facts.host);
    gp_json_put_text(x->head, "attempt_reason", facts.attempt_reason);
    gp_json_put_bool(x->head, "canceled", facts.canceled);
    gp_json_put_bool(x->head, "has_result", facts.has_result);
    gp_json_put_integer(x->head, "result_attempt", facts.result_attempt);
    gp_json_put_integer(x->head, "exit_code", facts.exit_code);
    gp_json_put_text(x->head, "reason", facts.reason);
    gp_json_put_integer(x->head, "begin_ms", facts.begin_ms);
    gp_json_put_integer(x->head, "end_ms", facts.end_ms);
    return GP_OK;
}

static gp_status do_mark(exchange *x, gp_error *err)
{
    return cluster_folder_cancel(x->folder, err);
}

static gp_status do_cancel(exchange *x, gp_error *err)
{
    return ssh_job_cancel(x->request.host, x->request.folder, x->request.name, err);
}

/* Read a piece of a file.
 *   ends  its beginning and its end: see CLUSTER_READ_ENDS */
static gp_status read_file(exchange *x, bool ends, gp_error *err)
{
    char path[PATH_BYTES];
    struct stat info;
    ssize_t got = -1;
    int fd;
    gp_status status = gp_buffer_reserve(&x->data, (size_t)x->request.count, err);

    if (status != GP_OK)
        return status;
    snprintf(path, sizeof(path), "%s/%s", x->folder, x->request.file);
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0)
        return gp_fail_errno(err, errno == ENOENT ? GP_ENOENT : GP_EIO, "cannot open %s", path);
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode))
        errno = EINVAL;
    else if (ends)
        got = gp_read_ends(fd, x->data.data, (size_t)x->request.count);
    else
        got = gp_read_at(fd, x->data.data, (size_t)x->request.count, (uint64_t)x->request.offset);
    if (got < 0)
        status = gp_fail_errno(err, GP_EIO, "cannot read %s", path);
    else
        x->data.bytes = (size_t)got;
    close(fd);
    return status;
}

static gp_status do_read(exchange *x, gp_error *err)
{
    return read_file(x, false, err);
}

static gp_status do_ends(exchange *x, gp_error *err)
{
    return read_file(x, true, err);
}

/* Reply with the steps of the jobs whose names are in the lines after the request. Jobs without a
 * folder or without steps are missing. */
static gp_status do_steps(exchange *x, gp_error *err)
{
    static char text[CLUSTER_METRICS_ENDS + 1];
    const char *end = x->command + x->command_bytes, *next;

    gp_json_begin_object(x->head, "steps");
    for (const char *at = x->command; at < end && (next = memchr(at, '\n', (size_t)(end - at))) != NULL;
         at = next + 1) {
        char name[CLUSTER_NAME_BYTES], path[PATH_BYTES];
        cluster_steps steps;
        ssize_t got;
        int fd;

        snprintf(name, sizeof(name), "%.*s", (int)(next - at), at);
        if (!cluster_name_valid(name))
            return gp_fail(err, GP_EPROTO, "the request has a malformed name of a job");
        if (snprintf(path, sizeof(path), "%s/%s/metrics.jsonl", x->request.folder, name) >= PATH_BYTES)
            continue;
        fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
        got = fd < 0 ? -1 : gp_read_ends(fd, text, CLUSTER_METRICS_ENDS);
        if (fd >= 0)
            close(fd);
        text[got > 0 ? got : 0] = '\0';
        steps = cluster_steps_of(text);
        if (steps.last < 0)
            continue;
        gp_json_begin_array(x->head, name);
        gp_json_put_integer(x->head, NULL, steps.first);
        gp_json_put_integer(x->head, NULL, steps.last);
        gp_json_end_array(x->head);
    }
    gp_json_end_object(x->head);
    return GP_OK;
}

static const struct {
    const char *verb;
    gp_status (*function)(exchange *x, gp_error *err);
    bool job;    /* the request names a job */
    bool folder; /* the folder of the job must exist */
} verbs[] = {
    { "launch", do_launch, true, false }, { "list", do_list, false, false },
    { "facts", do_facts, true, true },    { "mark", do_mark, true, true },
    { "cancel", do_cancel, true, false }, { "read", do_read, true, true },
    { "ends", do_ends, true, true },      { "steps", do_steps, false, false },
};

/* Carry out a request. `folder` of the reply tells whether the folder of the job exists. */
static gp_status carry_out(exchange *x, gp_error *err)
{
    const ssh_request *request = &x->request;
    bool exists;
    gp_status status;

    for (size_t i = 0; i < sizeof(verbs) / sizeof(verbs[0]); i++) {
        if (strcmp(verbs[i].verb, request->verb) != 0)
            continue;
        if (verbs[i].job != (request->name[0] != '\0'))
            return gp_fail(err, GP_EPROTO, "the request '%s' %s job", request->verb,
                           verbs[i].job ? "names no" : "must not name a");
        status = ssh_job_folder(x->folder, request->folder, request->name, err);
        if (status != GP_OK)
            return status;
        exists = access(x->folder, F_OK) == 0;
        if (!exists && errno != ENOENT && errno != ENOTDIR)
            return gp_fail_errno(err, GP_EIO, "cannot determine whether %.300s exists", x->folder);
        gp_json_put_bool(x->head, "folder", exists);
        if (verbs[i].folder && !exists)
            return gp_fail(err, GP_ENOENT, "there is no folder %.300s", x->folder);
        return verbs[i].function(x, err);
    }
    return gp_fail(err, GP_EUNSUPPORTED, "unknown request '%s'", request->verb);
}

/* ---- connection ---- */

static gp_status input_read(gp_buffer *text, gp_error *err)
{
    static uint8_t bytes[1 << 16];
    gp_status status = GP_OK;
    ssize_t got = 1;

    while (status == GP_OK && got != 0) {
        got = read(STDIN_FILENO, bytes, sizeof(bytes));
        if (got < 0 && errno != EINTR)
            return gp_fail_errno(err, GP_EIO, "cannot read the request");
        if (got > 0)
            status = gp_buffer_append(text, bytes, (size_t)got, err);
    }
    return status;
}

/* Write the head of the reply and the bytes after it. */
static gp_status reply_write(gp_buffer *head, gp_json_writer *writer, const gp_buffer *data, gp_status result,
                             const gp_error *failure, gp_error *err)
{
    gp_status status;

    gp_json_put_integer(writer, "status", result);
    gp_json_put_text(writer, "message", result == GP_OK ? "" : failure->message);
    gp_json_put_integer(writer, "bytes", (int64_t)data->bytes);
    gp_json_end_object(writer);
    status = gp_json_writer_finish(writer, err);
    if (status == GP_OK)
        status = gp_buffer_append(head, "\n", 1, err);
    if (status == GP_OK && (!gp_write_all(STDOUT_FILENO, head->data, head->bytes) ||
                            !gp_write_all(STDOUT_FILENO, data->data, data->bytes)))
        status = gp_fail_errno(err, GP_EIO, "cannot write the reply");
    return status;
}

int ssh_host_main(void)
{
    gp_buffer text, head;
    gp_json_writer writer;
    exchange x = { .head = &writer };
    gp_error failure = { 0 }, err;
    gp_status result, status;

    alarm(LIFE_S);
    umask(077);
    gp_buffer_init(&text, SSH_REQUEST_MAX);
    gp_buffer_init(&head, SSH_REPLY_MAX);
    gp_buffer_init(&x.data, SSH_PIECE_MAX);
    status = ssh_greeting_format(&head, &err);
    if (status == GP_OK && !gp_write_all(STDOUT_FILENO, head.data, head.bytes))
        status = gp_fail_errno(&err, GP_EIO, "cannot write the reply");
    if (status == GP_OK) {
        gp_buffer_clear(&head);
        gp_json_writer_init(&writer, &head, false);
        gp_json_begin_object(&writer, NULL);
        result = input_read(&text, &failure);
        if (result == GP_OK)
            result = ssh_request_parse(&x.request, gp_buffer_text(&text), text.bytes, &x.command,
                                       &x.command_bytes, &failure);
        if (result == GP_OK)
            result = carry_out(&x, &failure);
        status = reply_write(&head, &writer, &x.data, result, &failure, &err);
    }
    if (status != GP_OK)
        fprintf(stderr, "gradpool ssh-host: %s\n", err.message);
    gp_buffer_deinit(&text);
    gp_buffer_deinit(&head);
    gp_buffer_deinit(&x.data);
    return status == GP_OK ? CLI_OK : CLI_FAILED;
}
