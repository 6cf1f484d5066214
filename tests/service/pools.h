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
#include <stdarg.h>
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

/* Poll a condition every poll_ms until it holds or the time limit has passed. The caller checks the
 * outcome. */
#define AWAIT(condition, poll_ms)                                                                            \
    for (gp_timeout await_ = gp_timeout_in(POOLS_TIMEOUT_MS); !(condition) && gp_timeout_left(await_) > 0;)  \
    gp_sleep_ms(poll_ms)

/* Return FOLDER/NAME, valid until the eighth call after this one. */
static inline const char *path_in(const char *folder, const char *name)
{
    static char paths[8][800];
    static int next;
    char path[sizeof(paths[0])]; /* `folder` may be in `paths` */

    snprintf(path, sizeof(path), "%s/%s", folder, name);
    return strcpy(paths[next++ % 8], path);
}

/* Return a path under pools_root, valid like that of path_in(). */
static inline const char *in_root(const char *name)
{
    return path_in(pools_root, name);
}

/* Return a path under the build directory, valid like that of path_in(). */
static inline const char *in_build(const char *name)
{
    const char *build = getenv("GP_BUILD_DIR");

    return path_in(build == NULL ? "." : build, name);
}

/* Run a shell command in pools_root. Return the value of system(). */
__attribute__((format(printf, 1, 2))) static inline int shell(const char *format, ...)
{
    char command[1500];
    const int used = snprintf(command, sizeof(command), "cd '%s' && ", pools_root);
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(command + used, sizeof(command) - (size_t)used, format, arguments);
    va_end(arguments);
    return system(command);
}

/* Wait for a child process. Return the exit code; -1: it was killed by a signal. */
static inline int child_exit_code(pid_t child)
{
    int state = 0;

    if (waitpid(child, &state, 0) != child)
        abort();
    return WIFEXITED(state) ? WEXITSTATUS(state) : -1;
}

/* Read a file as text, truncated to the buffer; "": missing. Return the length. */
static inline size_t slurp(const char *path, char *text, size_t bytes)
{
    FILE *file = fopen(path, "r");
    size_t got = file == NULL ? 0 : fread(text, 1, bytes - 1, file);

    text[got] = '\0';
    if (file != NULL)
        fclose(file);
    return got;
}

/* Count the occurrences of a part in a text. */
static inline int count_in(const char *text, const char *part)
{
    int count = 0;

    for (const char *at = strstr(text, part); at != NULL; at = strstr(at + 1, part))
        count++;
    return count;
}

/* Count the occurrences of a part in a text file. */
static inline int count_in_file(const char *path, const char *part)
{
    static char content[1 << 20];

    slurp(path, content, sizeof(content));
    return count_in(content, part);
}

static inline void write_file(const char *name, const char *text)
{
    FILE *file = fopen(in_root(name), "w");

    if (file == NULL || fputs(text, file) < 0 || fclose(file) != 0)
        abort();
}

/* Create fresh directories. faults (may be NULL): GRADPOOL_FAULT for the workers. */
static inline void pools_begin(const char *faults)
{
    strcpy(pools_root, "/tmp/gpt-XXXXXX");
    if (leftovers_make(pools_root) == NULL)
        abort();
    mkdir(in_root("run"), 0700);
    mkdir(in_root("state"), 0700);
    setenv("GRADPOOL_RUNTIME_DIR", in_root("run"), 1);
    setenv("GRADPOOL_STATE_DIR", in_root("state"), 1);
    setenv("GRADPOOL_SCHEDULER", in_build("bin/gradpool-scheduler"), 1);
    setenv("GRADPOOL_WORKER", in_build("bin/gradpool-worker"), 1);
    unsetenv("GRADPOOL_POOL");
    if (faults != NULL)
        setenv("GRADPOOL_FAULT", faults, 1);
    else
        unsetenv("GRADPOOL_FAULT");
}

/* Shut down the pool, if one runs, and remove the directories. No effect without directories. */
static inline void pools_end(void)
{
    gp_pool *pool;

    if (pools_root[0] == '\0')
        return;
    if (gp_pool_open(&pool, &(gp_pool_options){ .attach_only = true, .timeout_ms = POOLS_TIMEOUT_MS },
                     NULL) == GP_OK) {
        gp_pool_shutdown(pool, false, NULL);
        pool_wait_gone(pool, POOLS_TIMEOUT_MS, NULL);
        gp_pool_close(pool);
    }
    leftovers_clear(pools_root);
    pools_root[0] = '\0';
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

/* Return the number of leases; UINT32_MAX: unknown. */
static inline uint32_t pools_leases(gp_pool *pool)
{
    gp_status_reply *reply;
    uint32_t count = UINT32_MAX;

    if (pool_status(pool, &reply, NULL) == GP_OK) {
        count = reply->leases_count;
        gp_free(reply);
    }
    return count;
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

    AWAIT(!gp_proc_stat_read(&stat, pid) || strchr("XZT", stat.state) != NULL, 1);
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
        char text[1 << 15], comm[16] = "";
        int pid = atoi(entry->d_name);

        if (pid <= 1 || pid == (int)getpid())
            continue;
        if (name != NULL) {
            if (leftovers_read(pid, "comm", comm, 15) < 0)
                continue;
            comm[strcspn(comm, "\n")] = '\0';
            if (strncmp(comm, name, 15) != 0)
                continue;
        }
        ssize_t got = leftovers_read(pid, "environ", text, sizeof(text));

        if (got > 0 && memmem(text, (size_t)got, pools_root, strlen(pools_root)) != NULL)
            out[count++] = pid;
    }
    closedir(all);
    return count;
}

/* ---- the gradpool command ---- */

enum { COMMAND_WORDS_MAX = 40 };

/* Open an output file of a command under pools_root. */
static inline int command_file(const char *name)
{
    return open(in_root(name), O_WRONLY | O_CREAT | O_TRUNC, 0600);
}

/* Run the gradpool command in this process, a forked child.
 *   folder  working directory
 *   files   standard input, output and error */
static inline void command_exec(const char *folder, const int files[3], const char *const *words)
{
    const char *vector[COMMAND_WORDS_MAX] = { "gradpool" };

    for (int i = 0; words[i] != NULL && i < COMMAND_WORDS_MAX - 2; i++)
        vector[i + 1] = words[i];
    for (int i = 0; i < 3; i++)
        if (dup2(files[i], i) < 0)
            _exit(99);
    if (chdir(folder) != 0)
        _exit(99);
    execv(in_build("bin/gradpool"), (char *const *)(uintptr_t)vector);
    _exit(98);
}

/* ---- leftovers of a command ---- */

/* Count the entries of a folder under pools_root, except dot files. */
static inline uint32_t pools_entries(const char *folder)
{
    uint32_t count = 0;
    DIR *directory = opendir(in_root(folder));

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
