/* slurm_stage.h: jobs on a private Slurm cluster (tests/cluster/slurm-cluster), driven through the
 * engine `slurm`. The cluster starts with the first test and ends with the program. */
#ifndef GP_TEST_SLURM_STAGE_H
#define GP_TEST_SLURM_STAGE_H

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/cluster/engine.h"
#include "client/cluster/job_folder.h"
#include "client/cluster/profile.h"
#include "client/cluster/slurm.h"
#include "common/base/clock.h"
#include "common/base/system/file.h"
#include "tests/cluster/folders.h"
#include "tests/gp_test.h"

enum { WORDS_MAX = 40, WAIT_MS = 60000, PROCESSES_MAX = 64 };

static gp_error err;
static gp_profile profile;
static bool cluster_started;

/* ---- cluster ---- */

__attribute__((destructor)) static void cluster_stop(void)
{
    if (cluster_started)
        shell("%s/tests/cluster/slurm-cluster stop %s/cluster", getenv("GP_SOURCE_DIR"), scratch_dir);
    cluster_started = false;
}

/* Start the cluster. NULL: it runs; otherwise the reason to skip the test. */
static const char *cluster_start(void)
{
    static char path[8192];

    if (cluster_started)
        return NULL;
    snprintf(path, sizeof(path), "%s:/usr/sbin:/sbin", getenv("PATH"));
    setenv("PATH", path, 1);
    if (shell("command -v slurmctld slurmd sbatch munged > programs") != 0)
        return "Slurm is not installed (packages slurmctld, slurmd, slurm-client, munge)";
    snprintf(path, sizeof(path), "%s/cluster/slurm.conf", scratch_dir);
    setenv("SLURM_CONF", path, 1); /* names the folder, so that no daemon outlives the test */
    setenv("HOME", scratch_dir, 1);
    cluster_started = true;
    if (shell("%s/tests/cluster/slurm-cluster start %s/cluster && mkdir jobs work", getenv("GP_SOURCE_DIR"),
              scratch_dir) != 0)
        return NULL; /* the tests fail with the messages of the daemons */
    profile = (gp_profile){ .name = "test", .type = GP_PROFILE_SLURM, .cores = 2 };
    snprintf(profile.folder, sizeof(profile.folder), "%s/jobs", scratch_dir);
    snprintf(profile.gradpool, sizeof(profile.gradpool), "%s/bin/gradpool", getenv("GP_BUILD_DIR"));
    return NULL;
}

#define CLUSTER()                                                                                            \
    do {                                                                                                     \
        const char *reason_ = cluster_start();                                                               \
        if (reason_ != NULL)                                                                                 \
            SKIP("%s", reason_);                                                                             \
    } while (0)

/* ---- jobs ---- */

typedef struct job {
    char name[CLUSTER_NAME_BYTES], folder[256], id[CLUSTER_ID_BYTES];
} job;

/* Create the folder of a job and launch it.
 *   options  lines of sbatch options; NULL: none
 *   time     limit, such as "10m" */
static bool job_submit(job *out, const char *options, const char *time, const char *const *words)
{
    enum { PASSED = 5 };
    static const char *const passed[PASSED] = { "ASAN_OPTIONS", "LSAN_OPTIONS", "TSAN_OPTIONS",
                                                "UBSAN_OPTIONS", "GRADPOOL_FAULT" };
    const char *variables[PASSED];
    char assignments[PASSED][512], directory[PATH_MAX];
    cluster_command command = { .engine = "slurm", .umask = 022, .requeue = true, .variables = variables };
    cluster_launch launch = { .name = out->name, .folder = out->folder, .requeue = true };
    gp_buffer text;
    gp_status status = cluster_name_new(out->name, &err);

    snprintf(directory, sizeof(directory), "%s/work", scratch_dir);
    snprintf(out->folder, sizeof(out->folder), "%s/jobs/%s", scratch_dir, out->name);
    snprintf(profile.slurm_options, sizeof(profile.slurm_options), "%s", options != NULL ? options : "");
    snprintf(profile.time, sizeof(profile.time), "%s", time);
    command.directory = directory;
    command.words = (const char **)(uintptr_t)words;
    while (words[command.word_count] != NULL)
        command.word_count++;
    for (int i = 0; i < PASSED; i++)
        if (getenv(passed[i]) != NULL) {
            snprintf(assignments[i], sizeof(assignments[i]), "%s=%s", passed[i], getenv(passed[i]));
            variables[command.variable_count++] = assignments[i];
        }
    gp_buffer_init(&text, CLUSTER_COMMAND_JSON_MAX);
    if (status == GP_OK)
        status = cluster_command_format(&command, &text, &err);
    if (status == GP_OK)
        status = cluster_folder_create(out->folder, gp_buffer_text(&text), text.bytes, &err);
    if (status == GP_OK)
        status = cluster_engine_slurm.launch(&profile, &launch, out->id, &err);
    gp_buffer_deinit(&text);
    if (status != GP_OK)
        GP_TEST_FAIL("submit: %s", err.message);
    return status == GP_OK;
}

#define SUBMIT(job, options, time, ...)                                                                      \
    REQUIRE(job_submit(job, options, time, (const char *const[]){ __VA_ARGS__, NULL }))

/* Find a job in a listing. False: the engine does not list it. */
static bool job_find(const job *j, cluster_entry *entry)
{
    cluster_listing listing = { 0 };
    bool found = false;

    if (cluster_engine_slurm.list(&profile, &listing, &err) != GP_OK)
        GP_TEST_FAIL("list: %s", err.message);
    for (size_t i = 0; i < listing.count; i++)
        if (strcmp(listing.entries[i].name, j->name) == 0) {
            *entry = listing.entries[i];
            found = true;
        }
    cluster_listing_deinit(&listing);
    return found;
}

/* Wait until the engine lists a job in a state. */
static bool job_wait(const job *j, cluster_entry_state state)
{
    cluster_entry entry = { 0 };

    for (int64_t end_ms = gp_now_ms() + WAIT_MS; gp_now_ms() < end_ms; gp_sleep_ms(30))
        if (job_find(j, &entry) && entry.state == state)
            return true;
    GP_TEST_FAIL("job %s is still %s", j->id, entry.text);
    shell("cat %s/engine.out %s/log; tail -n 20 cluster/log/*", j->folder, j->folder);
    return false;
}

/* Wait until a job is requeued, and let it start at once instead of in two minutes. */
static bool job_restart(const job *j)
{
    if (!job_wait(j, CLUSTER_ENTRY_QUEUED))
        return false;
    /* slurmd compares credentials in whole seconds: it refuses a job that starts again within the
     * second of the requeue ("Job credential revoked"). */
    gp_sleep_ms(1100);
    return shell("scontrol update JobId=%s StartTime=now", j->id) == 0;
}

static cluster_facts job_facts(const job *j)
{
    cluster_facts facts = { 0 };

    if (cluster_folder_facts(j->folder, &facts, &err) != GP_OK)
        GP_TEST_FAIL("facts: %s", err.message);
    return facts;
}

/* ---- files ---- */

/* Set *first and *last to the steps in lines of metrics. Return whether all steps between them are
 * there, in order and once. */
static bool steps_in(const char *text, int *first, int *last)
{
    bool complete = true;

    *first = *last = 0;
    for (const char *line = text; line != NULL && *line != '\0';
         line = strchr(line, '\n'), line += line != NULL) {
        size_t bytes = strcspn(line, "\n");
        int step;

        if (sscanf(line, "{\"step\": %d, \"epoch\"", &step) != 1 ||
            memmem(line, bytes, "\"worker\"", 8) == NULL)
            continue;
        complete = complete && (*first == 0 || step == *last + 1);
        *first = *first == 0 ? step : *first;
        *last = step;
    }
    return complete;
}

static bool job_steps(const job *j, int *first, int *last)
{
    return steps_in(folder_read(j->folder, "metrics.jsonl"), first, last);
}

/* Return the last step that a note in the log names, after the last occurrence of `words`; -1: no
 * such note. */
static int job_noted_step(const job *j, const char *words)
{
    int step = -1;

    for (const char *at = folder_read(j->folder, "log"); (at = strstr(at, words)) != NULL;)
        step = atoi(at += strlen(words));
    return step;
}

/* Wait until the running attempt of a job has taken a step. */
static bool job_wait_step(const job *j, int wanted)
{
    int first, last = 0;

    for (int64_t end_ms = gp_now_ms() + WAIT_MS; gp_now_ms() < end_ms; gp_sleep_ms(5)) {
        job_steps(j, &first, &last);
        if (last >= wanted)
            return true;
    }
    GP_TEST_FAIL("job %s has taken %d steps", j->id, last);
    shell("cat %s/engine.out %s/log; tail -n 20 cluster/log/*", j->folder, j->folder);
    return false;
}

/* ---- processes ---- */

/* List the processes of an attempt: those whose environment has its fence, and the process of the
 * attempt itself. Return their number. */
static int attempt_processes(const job *j, int attempt, int pids[PROCESSES_MAX])
{
    static char text[1 << 16];
    char fence[320];
    DIR *all = opendir("/proc");
    int count = 0;

    snprintf(fence, sizeof(fence), "GRADPOOL_FENCE=%d:%s/", attempt, j->folder);
    for (struct dirent *entry; all != NULL && (entry = readdir(all)) != NULL;) {
        int pid = atoi(entry->d_name), begun = 0;
        ssize_t got = pid > 1 ? leftovers_read(pid, "environ", text, sizeof(text)) : -1;
        bool ours = got > 0 && memmem(text, (size_t)got, fence, strlen(fence)) != NULL;
        char name[32];
        const char *record;

        snprintf(name, sizeof(name), "attempts/%d/begin.json", attempt);
        record = ours ? NULL : strstr(folder_read(j->folder, name), "\"pid\": ");
        if (record != NULL && sscanf(record, "\"pid\": %d", &begun) == 1 && begun == pid) {
            got = leftovers_read(pid, "cmdline", text, sizeof(text));
            ours = got > 0 && memmem(text, (size_t)got, j->folder, strlen(j->folder)) != NULL;
        }
        if (ours && count < PROCESSES_MAX)
            pids[count++] = pid;
    }
    if (all != NULL)
        closedir(all);
    return count;
}

/* Return the last step in the metrics that a process of an attempt writes, also if the file has no
 * name any more; 0: none. */
__attribute__((unused)) static int attempt_last_step(const job *j, int attempt)
{
    static char text[1 << 20];
    int pids[PROCESSES_MAX], count = attempt_processes(j, attempt, pids), first, last = 0;

    for (int i = 0; i < count; i++)
        for (int n = 3; n < 40; n++) {
            char path[64], name[PATH_MAX];
            ssize_t length, got;
            int fd;

            snprintf(path, sizeof(path), "/proc/%d/fd/%d", pids[i], n);
            length = readlink(path, name, sizeof(name) - 1);
            name[length > 0 ? length : 0] = '\0';
            if (strstr(name, "/metrics.jsonl") == NULL || (fd = open(path, O_RDONLY)) < 0)
                continue;
            got = read(fd, text, sizeof(text) - 1);
            close(fd);
            text[got > 0 ? got : 0] = '\0';
            steps_in(text, &first, &last);
        }
    return last;
}

/* Send a signal to all processes of an attempt and return their number. */
__attribute__((unused)) static int attempt_signal(const job *j, int attempt, int number)
{
    int pids[PROCESSES_MAX], count = attempt_processes(j, attempt, pids);

    for (int i = 0; i < count; i++)
        kill(pids[i], number);
    return count;
}

/* Like attempt_signal(), but without the process of the attempt: the pool and the command. */
__attribute__((unused)) static void attempt_signal_pool(const job *j, int attempt, int number)
{
    int pids[PROCESSES_MAX], count = attempt_processes(j, attempt, pids);
    static char text[1 << 16];

    for (int i = 0; i < count; i++) {
        ssize_t got = leftovers_read(pids[i], "cmdline", text, sizeof(text));

        if (got > 0 && memmem(text, (size_t)got, "job-attempt", strlen("job-attempt")) == NULL)
            kill(pids[i], number);
    }
}

/* Wait until an attempt has no processes. */
static bool attempt_wait_gone(const job *j, int attempt)
{
    int pids[PROCESSES_MAX];

    for (int64_t end_ms = gp_now_ms() + WAIT_MS; gp_now_ms() < end_ms; gp_sleep_ms(20))
        if (attempt_processes(j, attempt, pids) == 0)
            return true;
    return false;
}

/* ---- commands ---- */

/* Write a profile for the commands, and set $G to the command. */
__attribute__((unused)) static void commands_begin(void)
{
    char path[512];

    snprintf(path, sizeof(path), "%s/config", scratch_dir);
    setenv("XDG_CONFIG_HOME", path, 1);
    snprintf(path, sizeof(path), "%s/bin/gradpool", getenv("GP_BUILD_DIR"));
    setenv("G", path, 1);
    CHECK_INT(0, shell("$G cluster new hpc --type slurm --folder %s/jobs --cores 2 --time 10m --gradpool $G "
                       "--force > profile",
                       scratch_dir));
}

#endif
