/* pools.h: real pools for service tests: private runtime and state directories, daemons from this
 * build.
 *
 * A process with an open pool must not fork: tests fork first, and each child opens another
 * handle. */
#ifndef GP_TEST_POOLS_H
#define GP_TEST_POOLS_H

#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/pool/pool.h"
#include "common/base/system/timeout.h"
#include "common/base/system/proc_stat.h"
#include "tests/gp_test.h"
#include "tests/leftovers.h"

static char pools_root[32]; /* short, because socket paths are limited to 100 bytes */

/* Limit of every wait for an event that must occur, so that a hang ends as a failure. No test
 * measures speed with it. */
enum { POOLS_TIMEOUT_MS = 360000 };

/* Return a path under pools_root, valid until the eighth call after this one. */
static inline const char *in_root(const char *name)
{
    static char paths[8][800];
    static int next;
    char *path = paths[next++ % 8];

    snprintf(path, sizeof(paths[0]), "%s/%s", pools_root, name);
    return path;
}

/* Read a file as text, truncated to the buffer; "": missing. */
static inline void slurp(const char *path, char *text, size_t bytes)
{
    FILE *file = fopen(path, "r");
    size_t got = file == NULL ? 0 : fread(text, 1, bytes - 1, file);

    text[got] = '\0';
    if (file != NULL)
        fclose(file);
}

static int remove_entry(const char *path, const struct stat *facts, int kind, struct FTW *at)
{
    (void)facts;
    (void)kind;
    (void)at;
    return remove(path);
}

/* Create fresh directories. faults (may be NULL): GRADPOOL_FAULT for the workers. */
static inline void pools_begin(const char *faults)
{
    char path[600];
    const char *build = getenv("GP_BUILD_DIR") == NULL ? "." : getenv("GP_BUILD_DIR");

    strcpy(pools_root, "/tmp/gpt-XXXXXX");
    if (mkdtemp(pools_root) == NULL)
        abort();
    leftovers_watch(pools_root);
    snprintf(path, sizeof(path), "%s/run", pools_root);
    mkdir(path, 0700);
    setenv("GRADPOOL_RUNTIME_DIR", path, 1);
    snprintf(path, sizeof(path), "%s/state", pools_root);
    mkdir(path, 0700);
    setenv("GRADPOOL_STATE_DIR", path, 1);
    snprintf(path, sizeof(path), "%s/bin/gradpool-scheduler", build);
    setenv("GRADPOOL_SCHEDULER", path, 1);
    snprintf(path, sizeof(path), "%s/bin/gradpool-worker", build);
    setenv("GRADPOOL_WORKER", path, 1);
    unsetenv("GRADPOOL_POOL");
    if (faults != NULL)
        setenv("GRADPOOL_FAULT", faults, 1);
    else
        unsetenv("GRADPOOL_FAULT");
}

/* Shut down the pool, if one runs, and remove the directories. */
static inline void pools_end(void)
{
    gp_pool *pool;

    if (gp_pool_open(&pool, &(gp_pool_options){ .attach_only = true, .timeout_ms = POOLS_TIMEOUT_MS },
                     NULL) == GP_OK) {
        gp_pool_shutdown(pool, false, NULL);
        pool_wait_gone(pool, POOLS_TIMEOUT_MS, NULL);
        gp_pool_close(pool);
    }
    nftw(pools_root, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

/* Return the status of the workers once none of them is starting. Free it with gp_free(). */
static inline gp_status_reply *pools_settled(gp_pool *pool)
{
    gp_timeout timeout = gp_timeout_in(POOLS_TIMEOUT_MS);
    gp_error err;

    for (;;) {
        gp_status_reply *reply;
        uint32_t unsettled = 0;

        if (pool_status(pool, &reply, &err) != GP_OK) {
            GP_TEST_FAIL("no status: %s", err.message);
            return NULL;
        }
        for (uint32_t i = 0; i < reply->workers_count; i++)
            unsettled +=
                reply->workers[i].state == GP_WORKER_STARTING || reply->workers[i].state == GP_WORKER_DEAD;
        if (unsettled == 0 || gp_timeout_left(timeout) == 0)
            return reply;
        gp_free(reply);
        gp_sleep_ms(5);
    }
}

static inline bool process_alive(pid_t pid)
{
    gp_proc_stat stat;

    return gp_proc_stat_read(&stat, pid) && stat.state != 'X' && stat.state != 'Z';
}

/* Wait until a process is stopped. One that stops itself may not have stopped yet, and a SIGCONT
 * before that is lost. false: the process has exited. */
static inline bool await_stopped(pid_t pid)
{
    gp_proc_stat stat = { .state = 'R' };

    for (gp_timeout timeout = gp_timeout_in(POOLS_TIMEOUT_MS); gp_timeout_left(timeout) > 0; gp_sleep_ms(1)) {
        if (!gp_proc_stat_read(&stat, pid) || stat.state == 'X' || stat.state == 'Z' || stat.state == 'T')
            break;
    }
    return stat.state == 'T';
}

/* Return a number in KiB from /proc/PID/status; 0: missing. */
static inline long pools_status_kib(pid_t pid, const char *name)
{
    char path[40], line[200];
    long kib = 0;

    snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
    FILE *file = fopen(path, "re");

    while (file != NULL && fgets(line, sizeof(line), file) != NULL)
        if (strncmp(line, name, strlen(name)) == 0 && sscanf(line + strlen(name), ": %ld", &kib) == 1)
            break;
    if (file != NULL)
        fclose(file);
    return kib;
}

/* Return the resident memory of a process. */
static inline long pools_resident_kib(pid_t pid)
{
    return pools_status_kib(pid, "VmRSS");
}

/* Return the anonymous memory of a process: without program pages, which vary, and without shared
 * memory, such as rings, which is bounded separately. */
static inline long pools_own_kib(pid_t pid)
{
    return pools_status_kib(pid, "RssAnon");
}

/* List the processes whose environment contains this test's directories. name: only that program;
 * NULL: all. */
static inline uint32_t pool_processes(const char *name, pid_t *out, uint32_t max)
{
    DIR *all = opendir("/proc");
    uint32_t count = 0;

    for (struct dirent *entry; (entry = readdir(all)) != NULL && count < max;) {
        char path[300], text[1 << 15], comm[32] = "";
        int pid = atoi(entry->d_name);
        ssize_t got = -1;

        if (pid <= 1 || pid == (int)getpid())
            continue;
        snprintf(path, sizeof(path), "/proc/%d/comm", pid);
        FILE *file = name == NULL ? NULL : fopen(path, "re");

        if (file != NULL) {
            if (fscanf(file, "%31s", comm) != 1)
                comm[0] = '\0';
            fclose(file);
        }
        if (name != NULL && strncmp(comm, name, 15) != 0)
            continue;
        snprintf(path, sizeof(path), "/proc/%d/environ", pid);
        int fd = open(path, O_RDONLY | O_CLOEXEC);

        if (fd >= 0) {
            got = read(fd, text, sizeof(text) - 1);
            close(fd);
        }
        if (got > 0 && memmem(text, (size_t)got, pools_root, strlen(pools_root)) != NULL)
            out[count++] = pid;
    }
    closedir(all);
    return count;
}

/* ---- leftovers of a command ---- */

/* Count the entries of a folder under pools_root, except dot files. */
static inline uint32_t pools_entries(const char *folder)
{
    char path[220];
    uint32_t count = 0;

    snprintf(path, sizeof(path), "%s/%s", pools_root, folder);
    DIR *directory = opendir(path);

    for (struct dirent *entry; directory != NULL && (entry = readdir(directory)) != NULL;)
        count += entry->d_name[0] != '.';
    if (directory != NULL)
        closedir(directory);
    return count;
}

/* Parse JSON; free it with gp_json_free(). NULL: malformed, reported as a failure. */
static inline gp_json *pools_json(const char *text)
{
    gp_json *json = NULL;
    gp_error e;

    if (gp_json_parse(&json, text, strlen(text), &e) != GP_OK)
        GP_TEST_FAIL("no JSON: %s in %.200s", e.message, text);
    return json;
}

#endif
