/* Implement job_attempt.h. */
#include "client/cli/cluster/job_attempt.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/cli/cli.h"
#include "client/cli/cluster/attempt_container.h"
#include "client/cli/cluster/attempt_local.h"
#include "client/cli/cluster/attempt_run.h"
#include "client/cluster/allocation.h"
#include "client/cluster/job_folder.h"
#include "client/cluster/tool.h"
#include "common/base/clock.h"

enum {
    DOWN_TRIES = 500,   /* of 10 ms, until all processes of the pool have exited */
    REQUEUE_TRIES = 60, /* of REQUEUE_WAIT_MS, until the engine accepts the request */
    REQUEUE_WAIT_MS = 2000,
    FOLDER_MS = 120000, /* until the job folder can be read and written */
    FOLDER_WAIT_MS = 500,
    KILLED_MS = 90000, /* the engine kills a requeued job within this time */
    REASON_BYTES = 300,
    DEVICES_BYTES = 5 * CLUSTER_ALLOCATION_GPUS_MAX,
};

static const char canceled[] = "canceled";

typedef struct attempt {
    const char *folder;       /* job folder */
    const char *message_path; /* termination message of the container; NULL: not in a container */
    cluster_command command;
    cluster_allocation allocation;
    uint32_t taken; /* number that attempt_take() took; 0: none */
    attempt_files files;
    attempt_stops stops;
    attempt_local local;
    int code; /* exit code of the command */
    bool ran; /* the command has exited with `code` */
} attempt;

/* ---- job folder ---- */

/* Return whether a notice is pending. This process blocks the notices from its start. */
static bool notice_pending(void)
{
    sigset_t pending;

    return sigpending(&pending) == 0 &&
           (sigismember(&pending, SIGTERM) == 1 || sigismember(&pending, SIGUSR1) == 1 ||
            sigismember(&pending, SIGINT) == 1);
}

/* Return whether to repeat an operation on the job folder, and wait before that. A full disk and a
 * network file system fail only for a time; without the operation, the job would be lost. A notice
 * or a cancel ends the tries.
 *   end_ms  when the tries end; 0: this is the first error, which sets it */
static bool folder_retry(const attempt *a, gp_status status, int64_t *end_ms, const gp_error *err)
{
    const int64_t now_ms = gp_now_ms();

    if ((status != GP_EIO && status != GP_ENOMEM) || notice_pending() || cluster_folder_canceled(a->folder))
        return false;
    if (*end_ms == 0) {
        *end_ms = now_ms + FOLDER_MS;
        fprintf(stderr, "gradpool: %s; trying again for %d s\n", err->message, FOLDER_MS / 1000);
    }
    if (now_ms >= *end_ms)
        return false;
    gp_sleep_ms(FOLDER_WAIT_MS);
    return true;
}

/* ---- environment ---- */

/* Return whether a variable of the submitting host has no meaning in the allocation: directories
 * and names of a pool or a job. With them, two attempts on one host would share a pool. */
static bool variable_is_local(const char *variable)
{
    static const char *const pool[] = { "GRADPOOL_RUNTIME_DIR=", "GRADPOOL_STATE_DIR=", "GRADPOOL_POOL=",
                                        NULL };

    return cluster_has_prefix(variable, pool) || cluster_has_prefix(variable, cluster_job_variables);
}

/* Set the variables of the pool and of the command. */
static gp_status environment_set(const attempt *a, gp_error *err)
{
    char fence[GP_FENCE_BYTES], memory[32];

    for (size_t i = 0; i < a->command.variable_count; i++) {
        const char *variable = a->command.variables[i], *value = strchr(variable, '=');
        char *name;
        bool set;

        if (variable_is_local(variable))
            continue;
        name = strndup(variable, (size_t)(value - variable));
        set = name != NULL && setenv(name, value + 1, 1) == 0;
        free(name);
        if (!set)
            return gp_fail(err, GP_ENOMEM, "no memory for the variable %.*s", (int)(value - variable),
                           variable);
    }
    snprintf(fence, sizeof(fence), "%" PRIu32 ":%s", a->files.fence.number, a->files.fence.file);
    setenv(GP_FENCE_VARIABLE, fence, 1);
    setenv("GRADPOOL_POOL", a->allocation.id[0] != '\0' ? a->allocation.id : "job", 1);
    if (a->allocation.memory_mib > 0 && a->allocation.gpus == 0 && a->allocation.cores > 0) {
        uint32_t workers = a->allocation.cores < 16 ? a->allocation.cores : 16; /* as `gradpool up` */

        snprintf(memory, sizeof(memory), "%" PRIu64 "M", a->allocation.memory_mib / workers);
        setenv("GRADPOOL_WORKER_MEMORY", memory, 0);
    }
    return GP_OK;
}

/* ---- pool and command ---- */

/* Return the devices of the pool, for `gradpool up --devices`: the visible GPUs, else the first of
 * this host or container.
 *   text  room for the list */
static const char *devices_of(const cluster_allocation *allocation, char text[DEVICES_BYTES])
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    size_t bytes = 0;

    if (allocation->gpus == 0)
        return "cpu";
    if (visible != NULL && visible[0] != '\0')
        return visible;
    for (uint32_t i = 0; i < allocation->gpus && bytes < DEVICES_BYTES; i++)
        bytes += (size_t)snprintf(text + bytes, DEVICES_BYTES - bytes, "%s%" PRIu32, i == 0 ? "" : ",", i);
    return text;
}

static gp_status pool_start(attempt *a, gp_error *err)
{
    const char *words[8] = { "gradpool", "up", "--quiet", "--idle-timeout", "10m" };
    char devices[DEVICES_BYTES];
    int code = 0;
    gp_status status;

    /* Without the option, a job without GPUs would use those of others, and a job whose GPUs do not
     * work would train on the CPU. */
    if (a->allocation.gpus_limited) {
        words[5] = "--devices";
        words[6] = devices_of(&a->allocation, devices);
    }
    status = attempt_run(&a->files, words, &code, &a->stops, err);
    if (status == GP_OK && code != 0 && !a->stops.noticed && !a->stops.canceled && !a->stops.outdated)
        status = gp_fail(err, GP_ENOPOOL,
                         "the pool did not start (exit code %d); the job's log has the reason", code);
    return status;
}

/* Run the command as a background job of the pool does (client/cli/jobs/job_self.h). */
static gp_status command_run(attempt *a, gp_error *err)
{
    const char **words = calloc(a->command.word_count + 2, sizeof(*words));
    char number[16], mask[8];
    gp_status status;

    if (words == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for the command");
    words[0] = "gradpool";
    memcpy(words + 1, a->command.words, a->command.word_count * sizeof(*words));
    snprintf(number, sizeof(number), "%" PRIu32, a->files.fence.number);
    snprintf(mask, sizeof(mask), "%03o", (unsigned)a->command.umask);
    setenv("GRADPOOL_JOB", a->allocation.id[0] != '\0' ? a->allocation.id : "0", 1);
    setenv("GRADPOOL_JOB_ATTEMPT", number, 1);
    setenv("GRADPOOL_JOB_DIR", a->folder, 1);
    setenv("GRADPOOL_JOB_UMASK", mask, 1);
    status = attempt_run(&a->files, words, &a->code, &a->stops, err);
    a->ran = status == GP_OK;
    unsetenv("GRADPOOL_JOB_DIR"); /* `gradpool down` is not the job */
    free(words);
    return status;
}

/* Kill all descendants of this process, which is their subreaper. */
static void descendants_kill(void)
{
    char path[64];

    snprintf(path, sizeof(path), "/proc/self/task/%d/children", (int)getpid());
    for (int i = 0; i < DOWN_TRIES && waitpid(-1, NULL, WNOHANG) >= 0; i++) {
        FILE *children = fopen(path, "re");
        int child;

        while (children != NULL && fscanf(children, "%d", &child) == 1)
            kill(child, SIGKILL);
        if (children != NULL)
            fclose(children);
        gp_sleep_ms(10);
    }
}

/* End the pool, and kill the processes that it left. The engine may end the workers before this
 * process receives the notice; so check for a notice here, too. */
static void pool_end(attempt *a)
{
    const char *words[] = { "gradpool", "down", "--quiet", NULL };
    attempt_stops stops = { .outdated = false };
    int code;

    if (!a->stops.outdated)
        attempt_run(&a->files, words, &code, &stops, NULL);
    a->stops.noticed |= stops.noticed;
    descendants_kill();
}

/* ---- end ---- */

/* Ask the engine why it sent the notice; repeat while it does not answer. */
static cluster_notice notice_of(const attempt *a, char state[CLUSTER_TEXT_BYTES])
{
    cluster_notice notice = CLUSTER_NOTICE_SIGNAL;
    gp_error err;

    state[0] = '\0';
    for (int i = 0; i < REQUEUE_TRIES; i++) {
        gp_status status = cluster_allocation_notice(&notice, state, &a->allocation, &err);

        if (status == GP_OK || status == GP_ENOENT)
            break;
        gp_sleep_ms(REQUEUE_WAIT_MS);
    }
    return notice;
}

/* Request that the engine queues the job again, and wait until it kills this process. Returns only
 * on failure. */
static gp_status requeue(const attempt *a, const char *reason, gp_error *err)
{
    gp_status status = GP_OK;

    for (int i = 0; i < REQUEUE_TRIES; i++) {
        if (cluster_folder_canceled(a->folder))
            return gp_fail(err, GP_ECANCELED, "canceled");
        status = cluster_allocation_requeue(&a->allocation, err);
        if (status != GP_ETIMEDOUT && status != GP_EPEER)
            break;
        gp_sleep_ms(REQUEUE_WAIT_MS);
    }
    if (status != GP_OK)
        return status;
    fprintf(stderr, "gradpool: requeued (%s)\n", reason);
    /* If the process exited before the engine signals the job, the engine would take the job for
     * finished. */
    poll(&(struct pollfd){ .fd = a->files.signals, .events = POLLIN }, 1, KILLED_MS);
    _exit(0);
}

/* Decide what follows after a notice has stopped the command: requeue the job, or set the reason
 * for the result. Return whether the engine is already ending the job, so there is no result. */
static bool noticed_finish(const attempt *a, char reason[REASON_BYTES])
{
    char state[CLUSTER_TEXT_BYTES];
    cluster_notice notice = notice_of(a, state);
    const char *text = cluster_notice_text(notice);
    gp_error err;

    if (notice == CLUSTER_NOTICE_ENDING) {
        snprintf(reason, REASON_BYTES, "%s (%s)", text, state);
        return true;
    }
    if (!a->command.requeue) {
        snprintf(reason, REASON_BYTES, "%s; the job has no checkpoints, so it is not requeued", text);
        return false;
    }
    attempt_note(&a->files, "gradpool: stopped after a notice (%s); requeueing the job", text);
    cluster_attempt_end(a->folder, a->files.fence.number, text, &err);
    if (requeue(a, text, &err) == GP_ECANCELED)
        snprintf(reason, REASON_BYTES, "%s", canceled);
    else
        snprintf(reason, REASON_BYTES, "%s, and the job cannot be requeued: %.200s", text, err.message);
    return false;
}

/* Write the result. GP_ESTALE: a newer attempt has begun, or an older one has written a result. */
static gp_status result_write(const attempt *a, int code, const char *reason, gp_error *err)
{
    const gp_fence *fence = &a->files.fence;
    int64_t end_ms = 0;
    gp_status status;

    do
        status = cluster_attempt_result(a->folder, fence, code, reason, err);
    while (folder_retry(a, status, &end_ms, err));
    /* A try that failed can have written the file: the reply of the file server was lost. */
    if (status == GP_ESTALE && end_ms != 0 && gp_fence_check(fence, NULL) == GP_OK)
        return GP_OK;
    return status;
}

/* Write how the attempt ended, and the result unless the job will run again. Return the exit code
 * of this process. */
static int attempt_finish(attempt *a, const gp_error *failure)
{
    const uint32_t number = a->files.fence.number;
    const bool finished = a->ran && a->code == 0;
    char reason[REASON_BYTES] = "finished";
    int code = a->ran && failure->code == GP_OK ? a->code : CLI_FAILED;
    bool result = true;
    gp_error err;

    attempt_check(&a->files, &a->stops);
    if (a->stops.outdated) {
        snprintf(reason, sizeof(reason), "a newer attempt has begun");
        result = false;
    } else if (a->stops.canceled && !finished) {
        snprintf(reason, sizeof(reason), "%s", canceled);
        code = CLI_INTERRUPTED;
    } else if (a->stops.noticed && !finished) {
        result = !noticed_finish(a, reason);
    } else if (failure->code != GP_OK) {
        snprintf(reason, sizeof(reason), "%.280s", failure->message);
    } else if (code != 0) {
        snprintf(reason, sizeof(reason), "exit code %d", code);
    }
    cluster_attempt_end(a->folder, number, reason, &err);
    if (!finished)
        attempt_note(&a->files, "gradpool: attempt %" PRIu32 " ended: %s", number, reason);
    if (result && result_write(a, code, reason, &err) != GP_OK) {
        fprintf(stderr, "gradpool: cannot write the result: %s\n", err.message);
        result = err.code != GP_ESTALE;
    }
    if (a->message_path != NULL) {
        kubernetes_message message = { .attempt = number, .has_result = result, .exit_code = code & 255 };

        snprintf(message.reason, sizeof(message.reason), "%.150s", reason);
        attempt_message_write(a->message_path, &message);
    }
    return code;
}

/* Read the command, take the attempt number and open the files. */
static gp_status attempt_take(attempt *a, gp_error *err)
{
    gp_fence fence = { .number = 0 };
    gp_status status = GP_OK;

    if (a->command.document == NULL)
        status = cluster_command_read(&a->command, a->folder, err);
    if (status == GP_OK)
        status = cluster_attempt_take(&fence, &a->taken, a->folder, err);
    if (status == GP_OK) {
        attempt_files_close(&a->files);
        status = attempt_files_open(&a->files, a->folder, &fence, err);
    }
    return status;
}

/* Prepare the files of the job folder. */
static gp_status attempt_begin(attempt *a, gp_error *err)
{
    const uint32_t number = a->files.fence.number;
    gp_status status = GP_OK;

    if (number > 1)
        status = cluster_attempt_detach(a->folder, number, err);
    if (status == GP_OK)
        status = cluster_attempt_begin(a->folder, number, a->allocation.host, a->allocation.id, err);
    return status;
}

/* Change to the directory of the job. */
static gp_status directory_enter(const attempt *a, gp_error *err)
{
    if (chdir(a->command.directory) == 0)
        return GP_OK;
    return gp_fail_errno(err, errno == ENOENT || errno == ENOTDIR || errno == EACCES ? GP_EINVAL : GP_EIO,
                         "cannot change to the job's directory %s", a->command.directory);
}

/* Prepare the attempt: number, files, allocation, directories, environment. */
static gp_status attempt_open(attempt *a, gp_error *err)
{
    int64_t end_ms = 0;
    gp_status status;

    do
        status = attempt_take(a, err);
    while (folder_retry(a, status, &end_ms, err));
    if (status != GP_OK)
        return status;
    status = cluster_allocation_open(&a->allocation, a->command.engine, err);
    attempt_note(&a->files, "== attempt %" PRIu32 " on %s%s%s, %s ==", a->files.fence.number,
                 a->allocation.host, a->allocation.id[0] != '\0' ? ", job " : "", a->allocation.id,
                 gp_version());
    if (status == GP_OK)
        do
            status = attempt_begin(a, err);
        while (folder_retry(a, status, &end_ms, err));
    if (status == GP_OK)
        do
            status = directory_enter(a, err);
        while (folder_retry(a, status, &end_ms, err));
    if (status == GP_OK)
        status = cluster_allocation_bind(&a->allocation, err);
    if (status == GP_OK)
        status = cluster_allocation_limit(&a->allocation, err);
    if (status == GP_OK)
        status = environment_set(a, err);
    return status;
}

/* Run the attempt in this process, a child of the guard. Return the exit code. */
static int attempt_main(attempt *a)
{
    gp_error err = { 0 };
    gp_status status;
    int code;

    prctl(PR_SET_CHILD_SUBREAPER, 1);
    status = attempt_open(a, &err);
    if (a->files.fence.number == 0) { /* not an attempt: the job does not concern this process */
        fprintf(stderr, "gradpool job-attempt: %s\n", err.message);
        if (a->message_path != NULL)
            attempt_message_refused(a->message_path, a->folder, &err, CLI_FAILED);
        return CLI_FAILED;
    }
    a->files.copied = a->message_path != NULL;
    attempt_check(&a->files, &a->stops);
    if (status == GP_OK && !a->stops.canceled && !a->stops.noticed && !a->stops.outdated)
        status = pool_start(a, &err);
    if (status == GP_OK && !a->stops.canceled && !a->stops.noticed && !a->stops.outdated)
        status = command_run(a, &err);
    pool_end(a);
    if (status == GP_OK)
        err.code = GP_OK;
    code = attempt_finish(a, &err);
    attempt_files_close(&a->files);
    cluster_command_deinit(&a->command);
    return code;
}

/* Pass the notices of engines that signal only this process to the child. */
static volatile sig_atomic_t guarded;

static void notice_forward(int number)
{
    if (guarded > 0)
        kill((pid_t)guarded, number);
}

/* Wait until the child that runs the attempt exits, and end what it left: if it is killed, Slurm
 * without cgroups does not find the daemons of its pool. If this process is killed, the child ends
 * them. Return the exit code of the child; 128 + N: killed by signal N.
 *   notices  blocked signals of the notices */
static int attempt_guard(pid_t child, const sigset_t *notices)
{
    struct sigaction action = { .sa_handler = notice_forward, .sa_flags = SA_RESTART };
    int ended = 0;

    guarded = child;
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGUSR1, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    sigprocmask(SIG_UNBLOCK, notices, NULL);
    while (waitpid(child, &ended, 0) < 0 && errno == EINTR)
        ;
    guarded = 0;
    descendants_kill();
    return WIFSIGNALED(ended) ? 128 + WTERMSIG(ended) : WEXITSTATUS(ended);
}

int job_attempt_main(int argc, char **argv)
{
    attempt a = { .folder = argc == 3 || argc == 5 ? argv[2] : "",
                  .message_path = argc == 5 ? argv[4] : NULL,
                  .files = { .log = -1, .signals = -1 },
                  .local.lock = -1 };
    gp_error err;
    sigset_t notices;
    pid_t child;
    int code;

    if (a.folder[0] != '/') {
        fprintf(stderr, "gradpool job-attempt: the folder of the job must be an absolute path\n");
        return CLI_USAGE;
    }
    /* A notice stays pending until the guard has its handlers. Before that, it would leave the
     * directories of the attempt behind. The child blocks the notices, too. */
    sigemptyset(&notices);
    sigaddset(&notices, SIGTERM);
    sigaddset(&notices, SIGUSR1);
    sigaddset(&notices, SIGINT);
    sigprocmask(SIG_BLOCK, &notices, NULL);
    umask(077);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    /* one stream, so that the lines of the container's log keep their order */
    if (a.message_path != NULL)
        dup2(STDOUT_FILENO, STDERR_FILENO);
    if ((a.message_path != NULL && attempt_folder_create(a.folder, argv[3], &err) != GP_OK) ||
        attempt_local_open(&a.local, &err) != GP_OK) {
        fprintf(stderr, "gradpool job-attempt: %s\n", err.message);
        if (a.message_path != NULL)
            attempt_message_refused(a.message_path, a.folder, &err, CLI_FAILED);
        return CLI_FAILED;
    }
    child = fork();
    if (child == 0)
        _exit(attempt_main(&a));
    code = child > 0 ? attempt_guard(child, &notices) : CLI_FAILED;
    attempt_local_remove(&a.local);
    return code;
}
