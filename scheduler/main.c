/* gradpool-scheduler: parse the arguments, set up the daemon and run the shell. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/memory/alloc.h"
#include "common/base/clock.h"
#include "common/base/system/fault.h"
#include "common/base/text/arguments.h"
#include "common/base/text/log.h"
#include "common/base/memory/secret.h"
#include "proto/device/device_holder.h"
#include "proto/device/device_probe.h"
#include "proto/channel/endpoint.h"
#include "scheduler/shell/ownerless.h"
#include "scheduler/shell/shell.h"
#include "scheduler/process/supervise.h"
#include "scheduler/process/process_env.h"

enum {
    EXIT_USAGE = 2,
    EXIT_LOCK_HELD = 75,
    IDLE_MS = 30 * 60 * 1000,
};

typedef struct arguments {
    const char *pool;
    gp_plan_request request;
    int64_t idle_timeout_ms, suspect_ms, silence_ms;
    const char *listen, *owner;
    int ready_fd;
    bool resume, detach, help;
} arguments;

static const char usage[] =
    "gradpool-scheduler -- run the scheduler of a pool; `gradpool up` starts it\n  --pool NAME         "
    " name of the pool [default]\n  --workers N|auto     number of workers; auto: one per GPU, else "
    "one per core, at most 16 [auto]\n  --devices LIST       auto, cpu, or GPUs: 1,3 or cuda:0 or "
    "UUIDs [auto]\n  --resource LIST      resources of the workers: license=1 2-3:gpu_memory=80 [none]\n  "
    "--idle-timeout MS    shut down when no client used the pool for MS; 0: never "
    "[1800000]\n  --suspect-after MS   mark a worker without heartbeat for MS as suspect; 0: never "
    "[5000]\n  --kill-after MS      kill a worker without heartbeat for MS, unless it runs user code "
    "or a long step;\n                       0: never [15000]\n  --listen ENDPOINT    "
    "tcp://ADDRESS:PORT for clients on other hosts with authorized keys [none]\n  --owner PID:START    shut "
    "down when this process exits, and remove the pool's files; START: field 22 of /proc/PID/stat [none]\n  "
    "--resume             start only to continue a pool whose scheduler crashed\n  --ready-fd N         "
    "write ready, adopted, busy, error: REASON or ended: STATUS to this descriptor\n  --detach         "
    "    run in a child process; exit when the child is ready\nExit codes: 0 shut down, 1 cannot "
    "start, 2 invalid arguments, 75 another scheduler holds the pool\n";

static gp_status parse_arguments(arguments *out, int count, char **values, gp_error *err)
{
    static const gp_argument table[] = {
        { GP_TEXT("pool", arguments, pool) },
        { GP_NUMBER("workers", arguments, request.workers), .min = 1, .max = GP_CORE_SLOTS_MAX,
          .automatic = true },
        { GP_TEXT("devices", arguments, request.devices) },
        { GP_TEXT("resource", arguments, request.resources) },
        { GP_NUMBER("idle-timeout", arguments, idle_timeout_ms), .max = GP_DURATION_MS_MAX },
        { GP_NUMBER("suspect-after", arguments, suspect_ms), .max = GP_DURATION_MS_MAX },
        { GP_NUMBER("kill-after", arguments, silence_ms), .max = GP_DURATION_MS_MAX },
        { GP_TEXT("listen", arguments, listen) },
        { GP_TEXT("owner", arguments, owner) },
        { GP_NUMBER("ready-fd", arguments, ready_fd), .max = 1 << 20 },
        { GP_FLAG("resume", arguments, resume) },
        { GP_FLAG("detach", arguments, detach) },
        { GP_FLAG("help", arguments, help) },
        { .name = NULL },
    };
    const gp_core_config config = gp_core_config_default();

    *out = (arguments){ .idle_timeout_ms = IDLE_MS,
                        .request.strict = true,
                        .suspect_ms = config.suspect_ms,
                        .silence_ms = config.beat_ms,
                        .ready_fd = -1 };
    if (gp_arguments_parse(table, out, count, values, err) != GP_OK)
        return err->code;
    return out->listen == NULL ? GP_OK : gp_endpoint_check(out->listen, true, err);
}

static gp_status redirect(const char *log, gp_error *err)
{
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    int fd = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);

    if (null < 0 || fd < 0 || dup2(null, STDIN_FILENO) < 0 || dup2(fd, STDOUT_FILENO) < 0 ||
        dup2(fd, STDERR_FILENO) < 0)
        return gp_fail_errno(err, GP_EIO, "cannot open the log %s", log);
    close(null);
    close(fd);
    gp_log_keep(log, GP_LOG_FILE_BYTES_MAX, true);
    return GP_OK;
}

/* Find the GPUs unless the request is "cpu", and log those left out. If the driver hangs or
 * crashes, log it; the pool then has CPU workers only. */
static void find_devices(gp_device_list *out, const char *asked, const char *program)
{
    char why[GP_DEVICE_REASON + 80];
    gp_error err;

    memset(out, 0, sizeof(*out));
    if (asked != NULL && strcmp(asked, "cpu") == 0)
        return;
    if (gp_device_probe(out, program, GP_DEVICE_PROBE_MS, &err) != GP_OK) {
        gp_log(GP_LOG_ERROR, "probe-failed", "%s", err.message);
        snprintf(out->note, sizeof(out->note), "%.*s", (int)sizeof(out->note) - 1, err.message);
    }
    for (uint32_t i = 0; i < out->count && (asked == NULL || strcmp(asked, "auto") == 0); i++)
        if (gp_device_left_out(out, i, why, sizeof(why)))
            gp_log(GP_LOG_WARN, "gpu-left-out", "GPU %u (%s) is excluded: %s", out->devices[i].index,
                   out->devices[i].name, why);
}

/* Resume the pool of a crashed scheduler with the recorded settings. Exceptions: no worker survived
 * and the arguments request other settings, or the owner of the pool has exited. GP_EINVAL:
 * malformed owner. GP_ENOPOOL: with --resume, the owner has exited or the pool has ended. */
static gp_status go_on(gp_shell_options *options, gp_pool_record *record, gp_orphans *orphans,
                       const arguments *given, gp_error *err)
{
    const char *devices = options->request.devices, *owner = given->owner;
    const bool fresh = options->lock->epoch == 1; /* no pool had this name */
    bool asked = options->request.workers != 0 || (devices != NULL && strcmp(devices, "auto") != 0) ||
                 options->request.resources != NULL || owner != NULL;
    bool known = gp_pool_record_read(record, options->paths);
    bool ended = known && ownerless_end(record, orphans, options->paths);
    gp_status status;

    options->follows = known || orphans->count != 0;
    if (given->resume && (ended || (orphans->count == 0 && access(options->paths->record, F_OK) != 0))) {
        if (ended || fresh)
            gp_owner_remove_files(&(gp_owner){ .fd = -1, .temporary = fresh || record->temporary },
                                  options->paths);
        return gp_fail(err, GP_ENOPOOL, "pool %s has ended", options->paths->pool);
    }
    if (!known || ended || (asked && orphans->count == 0)) {
        status = gp_owner_open(&options->owner, owner, err);
        options->owner.temporary = fresh || record->temporary;
        return status;
    }
    gp_log_event(
        GP_LOG_WARN, "pool-adopted",
        GP_LOG_WITH({ "living", .number = orphans->count }, { "workers", .number = record->workers }),
        "the previous scheduler crashed; found %u of its %u workers alive", orphans->count, record->workers);
    if (record->process_env != NULL)
        gp_process_env_restore(record->process_env);
    options->process_env = record->process_env;
    options->request.workers = record->workers;
    options->request.devices = record->devices[0] != '\0' ? record->devices : NULL;
    options->request.resources = record->resources;
    options->request.strict = false;
    options->idle_timeout_ms = record->idle_ms;
    options->suspect_ms = record->suspect_ms;
    options->silence_ms = record->silence_ms;
    options->listen = record->listen[0] != '\0' ? record->listen : NULL;
    status = gp_owner_open(&options->owner, record->owner, err);
    options->owner.temporary = record->temporary;
    return status;
}

static rlim_t files_limit(void)
{
    struct rlimit limit = { .rlim_cur = RLIM_INFINITY };

    getrlimit(RLIMIT_NOFILE, &limit);
    return limit.rlim_cur;
}

/* Take the pool lock, find surviving workers and devices, and run the pool until it shuts down. */
static gp_status serve(const arguments *given, gp_error *err)
{
    gp_paths paths;
    gp_pool_lock lock = { .fd = -1 };
    char program[4096];
    gp_device_list *devices = gp_calloc(1, sizeof(*devices));
    gp_plan_cores *cores = gp_calloc(1, sizeof(*cores));
    gp_orphans *orphans = gp_calloc(1, sizeof(*orphans));
    gp_pool_record record = { .workers = 0 };
    gp_buffer own; /* attributes of the first scheduler of a pool */
    gp_shell_options options = { .paths = &paths,
                                 .lock = &lock,
                                 .worker_program = program,
                                 .devices = devices,
                                 .cores = cores,
                                 .request = given->request,
                                 .orphans = orphans,
                                 .idle_timeout_ms = given->idle_timeout_ms,
                                 .suspect_ms = given->suspect_ms,
                                 .silence_ms = given->silence_ms,
                                 .listen = given->listen,
                                 .owner.fd = -1,
                                 .ready_fd = given->ready_fd };
    gp_buffer_init(&own, GP_POOL_RECORD_BYTES_MAX / 2);
    gp_status status = devices == NULL || cores == NULL || orphans == NULL
                           ? gp_fail(err, GP_ENOMEM, "no memory for the scheduler")
                           : GP_OK;

    if (status == GP_OK)
        status = gp_paths_find(&paths, given->pool, err);
    if (status == GP_OK)
        status = gp_pool_lock_take(&lock, &paths, err);
    if (status == GP_OK)
        status = gp_fault_arm(GP_FAULT_scheduler, 1, (uint32_t)lock.epoch, err);
    gp_fault_point("locked");
    if (status == GP_OK)
        status = gp_supervise_program(program, sizeof(program), err);
    if (status == GP_OK)
        status = redirect(paths.scheduler_log, err);
    if (status == GP_OK) {
        gp_orphans_find(orphans, &paths);
        status = go_on(&options, &record, orphans, given, err);
    }
    if (status == GP_OK) {
        ownerless_end_others(&paths);
        if (options.process_env == NULL && gp_process_env_write(&own, err) == GP_OK)
            options.process_env = gp_buffer_text(&own);
        options.files = files_limit();
        find_devices(devices, options.request.devices, program);
        gp_plan_find_cores(cores);
        status = gp_shell_run(&options, err);
    }
    gp_pool_lock_release(&lock);
    gp_free(record.process_env);
    gp_buffer_deinit(&own);
    if (orphans != NULL)
        gp_orphans_free(orphans);
    gp_free(orphans);
    gp_free(devices);
    gp_free(cores);
    return status;
}

/* ---- detaching ---- */

/* Continue in a child process, so that a program that starts a pool through the library has no
 * child to wait for. The parent reports the result of the start, then exits; it does not return. */
static gp_status detach(arguments *given, gp_error *err)
{
    int fds[2], state = 0;
    char line[GP_ERROR_MESSAGE_MAX + 16];
    size_t used = 0;
    ssize_t got;

    if (pipe2(fds, O_CLOEXEC) != 0)
        return gp_fail_errno(err, GP_EIO, "cannot create a pipe");
    pid_t child = fork();

    if (child < 0)
        return gp_fail_errno(err, GP_EIO, "cannot fork the scheduler");
    if (child == 0) {
        close(fds[0]);
        if (given->ready_fd >= 0)
            close(given->ready_fd);
        given->ready_fd = fds[1];
        return GP_OK;
    }
    close(fds[1]);
    /* Forward the status line of the child, if it writes one. */
    while (used < sizeof(line) && (got = read(fds[0], line + used, sizeof(line) - used)) != 0)
        if (got > 0)
            used += (size_t)got;
        else if (errno != EINTR)
            break;
    if (used > 0 && write(given->ready_fd, line, used) == (ssize_t)used)
        _exit(0);
    while (waitpid(child, &state, 0) < 0 && errno == EINTR)
        ;
    if (given->ready_fd >= 0)
        dprintf(given->ready_fd, "ended: %s %d\n", WIFSIGNALED(state) ? "signal" : "exit code",
                WIFSIGNALED(state) ? WTERMSIG(state) : WEXITSTATUS(state));
    _exit(1);
}

int main(int count, char **values)
{
    arguments given;
    gp_error err;
    gp_status status;

    gp_log_setup("scheduler", GP_LOG_INFO);
    status = parse_arguments(&given, count, values, &err);
    if (status == GP_OK && given.help) {
        fputs(usage, stdout);
        return 0;
    }
    if (status == GP_OK && given.detach)
        status = detach(&given, &err);
    if (status == GP_OK) {
        gp_process_env_detach();
        status = gp_secrets_keep(&err);
        if (status == GP_OK)
            status = serve(&given, &err);
        if (status == GP_OK)
            return 0;
    }
    gp_log(GP_LOG_ERROR, "start-failed", "%s", err.message);
    if (given.ready_fd >= 0 &&
        status == GP_EBUSY) /* the starter connects to the scheduler that holds the lock */
        dprintf(given.ready_fd, "busy\n");
    else if (given.ready_fd >= 0)
        dprintf(given.ready_fd, "error: %s\n", err.message);
    if (status == GP_EBUSY)
        return EXIT_LOCK_HELD;
    return status == GP_EINVAL ? EXIT_USAGE : 1;
}
