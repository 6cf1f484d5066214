/* Implement ssh_jobs.h. */
#include "client/cluster/ssh_jobs.h"

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
#include <time.h>
#include <unistd.h>

#include "client/cluster/job_folder.h"
#include "common/base/clock.h"
#include "common/base/memory/alloc.h"
#include "common/base/printable.h"
#include "common/base/system/cgroup.h"
#include "common/base/system/file.h"
#include "common/base/system/proc_stat.h"

enum {
    JOB_PATH_BYTES = SSH_FOLDER_BYTES + CLUSTER_NAME_BYTES,
    PATH_BYTES = JOB_PATH_BYTES + 32,
    ENVIRONMENT_BYTES = 1 << 17, /* examined beginning of an environment; the variable is first */
    KILL_ROUNDS = 100,           /* of 10 ms */
};

gp_status ssh_job_folder(char path[JOB_PATH_BYTES], const char *folder, const char *name, gp_error *err)
{
    return snprintf(path, JOB_PATH_BYTES, "%s/%s", folder, name) < JOB_PATH_BYTES
               ? GP_OK
               : gp_fail(err, GP_ELIMIT, "the path %.80s... is too long", folder);
}

/* ---- record ---- */

void ssh_record_init(ssh_record *out, const char *host)
{
    *out = (ssh_record){ .pid = 0 };
    snprintf(out->host, sizeof(out->host), "%s", host);
    gethostname(out->machine, sizeof(out->machine) - 1);
    gp_boot_id_read(out->boot, sizeof(out->boot));
}

gp_status ssh_record_write(const ssh_record *record, const char *folder, gp_error *err)
{
    char path[PATH_BYTES];
    gp_json_writer writer;
    gp_buffer text;
    gp_status status;

    gp_buffer_init(&text, CLUSTER_RECORD_MAX);
    gp_json_writer_init(&writer, &text, false);
    gp_json_begin_object(&writer, NULL);
    gp_json_put_integer(&writer, "version", 1);
    gp_json_put_text(&writer, "host", record->host);
    gp_json_put_text(&writer, "machine", record->machine);
    gp_json_put_text(&writer, "boot", record->boot);
    gp_json_put_integer(&writer, "pid", record->pid);
    gp_json_put_integer(&writer, "start_time", (int64_t)record->start_time);
    gp_json_end_object(&writer);
    status = gp_json_writer_finish(&writer, err);
    snprintf(path, sizeof(path), "%s/ssh.json", folder);
    if (status == GP_OK)
        status = gp_file_write(path, text.data, text.bytes, err);
    gp_buffer_deinit(&text);
    return status;
}

gp_status ssh_record_read(ssh_record *out, const char *folder, gp_error *err)
{
    char path[PATH_BYTES];
    gp_json *json = NULL;
    uint8_t *text = NULL;
    size_t bytes;
    gp_status status;

    snprintf(path, sizeof(path), "%s/ssh.json", folder);
    status = gp_file_read(&text, &bytes, path, CLUSTER_RECORD_MAX, err);
    if (status == GP_OK && gp_json_parse(&json, (const char *)text, bytes, err) != GP_OK)
        status = gp_fail(err, GP_ECORRUPT, "%s is malformed", path);
    gp_free(text);
    if (status != GP_OK)
        return status;
    *out = (ssh_record){ .pid = (pid_t)gp_json_integer(gp_json_member(json, "pid"), 0),
                         .start_time = (uint64_t)gp_json_integer(gp_json_member(json, "start_time"), 0) };
    snprintf(out->host, sizeof(out->host), "%s", gp_json_text(gp_json_member(json, "host"), ""));
    snprintf(out->machine, sizeof(out->machine), "%s", gp_json_text(gp_json_member(json, "machine"), ""));
    snprintf(out->boot, sizeof(out->boot), "%s", gp_json_text(gp_json_member(json, "boot"), ""));
    gp_json_free(json);
    return GP_OK;
}

/* Return whether the process of a record is alive on this machine. */
static bool record_alive(const ssh_record *record, const ssh_record *here)
{
    gp_proc_stat stat;

    return record->pid > 0 && strcmp(record->boot, here->boot) == 0 &&
           strcmp(record->machine, here->machine) == 0 && gp_proc_stat_read(&stat, record->pid) &&
           stat.start_time == record->start_time && stat.state != 'Z' && stat.state != 'X';
}

/* ---- processes ---- */

/* Read the variable of a process. False: it is not set, or not readable. */
static bool process_read(ssh_process *out, pid_t pid, char *text)
{
    static const char variable[] = SSH_JOB_VARIABLE "=";
    char path[40];
    ssize_t got;
    const char *at, *slash;
    int fd;

    snprintf(path, sizeof(path), "/proc/%d/environ", (int)pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    got = gp_read_at(fd, text, ENVIRONMENT_BYTES - 1, 0);
    close(fd);
    if (got <= 0)
        return false;
    text[got] = '\0';
    for (at = text; at < text + got; at += strlen(at) + 1)
        if (strncmp(at, variable, sizeof(variable) - 1) == 0)
            break;
    if (at >= text + got)
        return false;
    at += sizeof(variable) - 1;
    slash = strchr(at, '/');
    if (slash == NULL || slash - at >= SSH_HOST_BYTES || !cluster_name_valid(slash + 1))
        return false;
    snprintf(out->host, sizeof(out->host), "%.*s", (int)(slash - at), at);
    snprintf(out->name, sizeof(out->name), "%s", slash + 1);
    out->pid = pid;
    return true;
}

static gp_status processes_add(ssh_processes *processes, const ssh_process *process, gp_error *err)
{
    if (processes->count == SSH_PROCESSES_MAX)
        return gp_fail(err, GP_ELIMIT, "the jobs have more than %d processes", SSH_PROCESSES_MAX);
    if (processes->count == processes->capacity) {
        size_t capacity = processes->capacity == 0 ? 64 : 2 * processes->capacity;
        ssh_process *list = gp_realloc_array(processes->list, capacity, sizeof(*list));

        if (list == NULL)
            return gp_fail(err, GP_ENOMEM, "no memory for a list of processes");
        processes->list = list;
        processes->capacity = capacity;
    }
    processes->list[processes->count++] = *process;
    return GP_OK;
}

gp_status ssh_processes_read(ssh_processes *out, gp_error *err)
{
    char *text = gp_malloc(ENVIRONMENT_BYTES);
    DIR *all = opendir("/proc");
    const struct dirent *entry;
    gp_status status = GP_OK;

    *out = (ssh_processes){ 0 };
    if (all == NULL)
        status = gp_fail_errno(err, GP_EIO, "cannot read /proc");
    else if (text == NULL)
        status = gp_fail(err, GP_ENOMEM, "no memory for a list of processes");
    while (status == GP_OK && (entry = readdir(all)) != NULL) {
        ssh_process process;
        struct stat info;
        pid_t pid = entry->d_name[0] >= '1' && entry->d_name[0] <= '9' ? atoi(entry->d_name) : 0;

        if (pid > 0 && fstatat(dirfd(all), entry->d_name, &info, 0) == 0 && info.st_uid == geteuid() &&
            process_read(&process, pid, text))
            status = processes_add(out, &process, err);
    }
    if (all != NULL)
        closedir(all);
    gp_free(text);
    if (status != GP_OK)
        ssh_processes_deinit(out);
    return status;
}

void ssh_processes_deinit(ssh_processes *processes)
{
    gp_free(processes->list);
    *processes = (ssh_processes){ 0 };
}

static bool processes_have(const ssh_processes *processes, const char *host, const char *name)
{
    for (size_t i = 0; i < processes->count; i++)
        if (strcmp(processes->list[i].host, host) == 0 && strcmp(processes->list[i].name, name) == 0)
            return true;
    return false;
}

/* ---- listing ---- */

/* Add a job, unless it is among the first `known` entries. */
static gp_status entry_add(cluster_listing *out, size_t known, const char *name, cluster_entry_state state,
                           gp_error *err)
{
    cluster_entry *entry;
    gp_status status;

    for (size_t i = 0; i < known; i++)
        if (strcmp(out->entries[i].name, name) == 0)
            return GP_OK;
    if (out->count >= SSH_JOBS_MAX)
        return gp_fail(err, GP_ELIMIT, "the host has more than %d jobs", SSH_JOBS_MAX);
    status = cluster_listing_add(out, &entry, err);
    if (status == GP_OK) {
        entry->state = state;
        snprintf(entry->name, sizeof(entry->name), "%s", name);
    }
    return status;
}

/* Set *exists to whether a file exists, and *info if it does. */
static gp_status file_find(bool *exists, struct stat *info, const char *file, gp_error *err)
{
    *exists = stat(file, info) == 0;
    return *exists || errno == ENOENT || errno == ENOTDIR
               ? GP_OK
               : gp_fail_errno(err, GP_EIO, "cannot determine whether %.300s exists", file);
}

/* Add a job by its folder, if it belongs to this host and is alive or has run.
 *   known  number of entries that came from processes
 *   now_s  Unix time */
static gp_status folder_add(cluster_listing *out, size_t known, const ssh_record *here, const char *folder,
                            const char *name, int64_t now_s, gp_error *err)
{
    char path[JOB_PATH_BYTES], file[PATH_BYTES];
    struct stat info;
    ssh_record record;
    bool result, begun;
    gp_status status = ssh_job_folder(path, folder, name, err);

    if (status != GP_OK)
        return status;
    snprintf(file, sizeof(file), "%s/result.json", path);
    status = file_find(&result, &info, file, err);
    if (status != GP_OK)
        return status;
    if (result && info.st_mtime + SSH_RECENT_S < now_s)
        return GP_OK;
    status = ssh_record_read(&record, path, err);
    if (status != GP_OK)
        return status == GP_ENOENT ? GP_OK : status; /* a launch that was interrupted */
    if (strcmp(record.host, here->host) != 0)
        return GP_OK;
    if (record_alive(&record, here))
        return entry_add(out, known, name, CLUSTER_ENTRY_RUNNING, err);
    if (!result && strcmp(record.boot, here->boot) != 0 && strcmp(record.machine, here->machine) != 0)
        return gp_fail(err, GP_ESTATE,
                       "the name leads to the machine '%.64s', but job %s was launched on '%.64s'; list each "
                       "machine in 'hosts' by a name of its own, or remove %.200s if that machine is gone",
                       here->machine, name, record.machine, path);
    snprintf(file, sizeof(file), "%s/attempts/1", path);
    status = file_find(&begun, &info, file, err);
    return status == GP_OK && (result || begun) ? entry_add(out, known, name, CLUSTER_ENTRY_ENDED, err)
                                                : status;
}

gp_status ssh_jobs_list(cluster_listing *out, const char *host, const char *folder, gp_error *err)
{
    ssh_processes processes;
    ssh_record here;
    const struct dirent *entry;
    DIR *all;
    unsigned folders = 0;
    gp_status status = ssh_processes_read(&processes, err);

    ssh_record_init(&here, host);
    for (size_t i = 0; status == GP_OK && i < processes.count; i++)
        if (strcmp(processes.list[i].host, host) == 0)
            status = entry_add(out, out->count, processes.list[i].name, CLUSTER_ENTRY_RUNNING, err);
    ssh_processes_deinit(&processes);
    if (status != GP_OK)
        return status;
    all = opendir(folder);
    if (all == NULL)
        return errno == ENOENT ? GP_OK : gp_fail_errno(err, GP_EIO, "cannot read %s", folder);
    const int64_t now_s = time(NULL);
    const size_t known = out->count;

    errno = 0;
    while (status == GP_OK && (entry = readdir(all)) != NULL) {
        if (cluster_name_valid(entry->d_name))
            status = ++folders <= SSH_FOLDERS_MAX
                         ? folder_add(out, known, &here, folder, entry->d_name, now_s, err)
                         : gp_fail(err, GP_ELIMIT, "%s has more than %d jobs; move old ones away", folder,
                                   SSH_FOLDERS_MAX);
        errno = 0;
    }
    if (status == GP_OK && errno != 0)
        status = gp_fail_errno(err, GP_EIO, "cannot read %s", folder);
    closedir(all);
    return status;
}

gp_status ssh_job_alive(bool *alive, const char *host, const char *folder, const char *name, gp_error *err)
{
    char path[JOB_PATH_BYTES];
    ssh_processes processes;
    ssh_record record, here;
    gp_status status = ssh_job_folder(path, folder, name, err);

    if (status == GP_OK)
        status = ssh_processes_read(&processes, err);
    if (status != GP_OK)
        return status;
    ssh_record_init(&here, host);
    *alive = processes_have(&processes, host, name) ||
             (ssh_record_read(&record, path, NULL) == GP_OK && record_alive(&record, &here));
    ssh_processes_deinit(&processes);
    return GP_OK;
}

/* ---- cancel ---- */

/* Send a signal to a process, unless its id belongs to another process by now.
 *   start_time  start time of the process; 0: compare the variable in its environment instead */
static void process_signal(const ssh_process *process, uint64_t start_time, int number)
{
    int fd = (int)syscall(SYS_pidfd_open, process->pid, 0);
    char *text = gp_malloc(ENVIRONMENT_BYTES);
    ssh_process now;
    gp_proc_stat stat;

    if (fd >= 0 && text != NULL &&
        (start_time != 0 ? gp_proc_stat_read(&stat, process->pid) && stat.start_time == start_time
                         : process_read(&now, process->pid, text) && strcmp(now.name, process->name) == 0))
        syscall(SYS_pidfd_send_signal, fd, number, NULL, 0);
    if (fd >= 0)
        close(fd);
    gp_free(text);
}

/* Kill all processes of a job, and repeat until they have exited, for at most a second. */
static gp_status job_kill(const ssh_record *record, const ssh_record *here, const char *name, gp_error *err)
{
    const ssh_process leader = { .pid = record->pid };
    gp_status status = GP_OK;
    bool left = true;

    for (int round = 0; status == GP_OK && left && round < KILL_ROUNDS; round++) {
        ssh_processes processes;

        if (round > 0)
            gp_sleep_ms(10);
        status = ssh_processes_read(&processes, err);
        if (status != GP_OK)
            break;
        left = record_alive(record, here);
        if (left)
            process_signal(&leader, record->start_time, SIGKILL);
        for (size_t i = 0; i < processes.count; i++)
            if (strcmp(processes.list[i].name, name) == 0) {
                process_signal(&processes.list[i], 0, SIGKILL);
                left = true;
            }
        ssh_processes_deinit(&processes);
    }
    return status;
}

/* Return the age of a file in seconds, by the clock of the file server: the age is the difference
 * to a file that is touched now. */
static int64_t mark_age_s(const char *folder)
{
    char path[PATH_BYTES];
    struct stat mark, now;
    int64_t age = 0;
    int fd;

    snprintf(path, sizeof(path), "%s/ssh.now", folder);
    fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return 0;
    if (futimens(fd, NULL) == 0 && fstat(fd, &now) == 0) {
        snprintf(path, sizeof(path), "%s/cancel", folder);
        if (stat(path, &mark) == 0)
            age = now.st_mtime - mark.st_mtime;
    }
    close(fd);
    return age;
}

gp_status ssh_job_cancel(const char *host, const char *folder, const char *name, gp_error *err)
{
    char path[JOB_PATH_BYTES];
    ssh_record record = { .pid = 0 }, here;
    bool alive = false, leader;
    gp_status status = ssh_job_alive(&alive, host, folder, name, err);

    if (status == GP_OK)
        status = ssh_job_folder(path, folder, name, err);
    if (status != GP_OK || !alive)
        return status;
    ssh_record_init(&here, host);
    (void)ssh_record_read(&record, path, NULL);
    leader = record_alive(&record, &here);
    status = cluster_folder_cancel(path, err);
    if (status == GP_OK && leader && mark_age_s(path) < SSH_KILL_S) {
        const ssh_process process = { .pid = record.pid };

        process_signal(&process, record.start_time, SIGTERM);
        return GP_OK;
    }
    /* Without a folder or a process of the attempt, no process would act on the mark. */
    return job_kill(&record, &here, name, err);
}
