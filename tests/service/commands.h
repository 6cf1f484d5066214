/* commands.h: run the gradpool command with a pool of two workers in an empty folder, and check for
 * leftovers.
 *
 * Test commands write their pids to a file in the folder; leftover checks use these files. */
#ifndef GP_TEST_COMMANDS_H
#define GP_TEST_COMMANDS_H

#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>

#include "common/base/text/json.h"
#include "tests/service/pools.h"

enum { OUT_BYTES = 1 << 20, ERR_BYTES = 1 << 16, PIDS_MAX = 64 };

/* Output of the last command. */
static char out[OUT_BYTES], err[ERR_BYTES];

/* ---- running gradpool ---- */

/* Return a number from the JSON object that the last command printed; -1: missing. */
static inline double reported(const char *member)
{
    gp_json *json = NULL;
    gp_error e;
    double number;

    if (gp_json_parse(&json, out, strlen(out), &e) != GP_OK)
        return -1;
    number = gp_json_number(gp_json_member(json, member), -1);
    gp_json_free(json);
    return number;
}

/* Start a command. in >= 0: standard input; sink >= 0: standard output. */
static inline pid_t start(int in, int sink, const char *const *arguments)
{
    fflush(stdout);
    pid_t child = fork();

    if (child == 0)
        command_exec(in_root("w"),
                     (const int[]){ in >= 0 ? in : open("/dev/null", O_RDONLY),
                                    sink >= 0 ? sink : command_file("out"), command_file("err") },
                     arguments);
    return child;
}

static struct rusage usage;

/* Return the exit code; -1: killed by a signal. */
static inline int finish(pid_t child)
{
    int state;

    if (wait4(child, &state, 0, &usage) != child)
        abort();
    slurp(in_root("out"), out, sizeof(out));
    slurp(in_root("err"), err, sizeof(err));
    return WIFEXITED(state) ? WEXITSTATUS(state) : -1;
}

#define START(...) start(-1, -1, (const char *const[]){ __VA_ARGS__, NULL })
#define RUN(...)   finish(START(__VA_ARGS__))

#define FINISH_CODE(expected, child)                                                                         \
    do {                                                                                                     \
        int code_ = finish(child);                                                                           \
        if (code_ != (expected))                                                                             \
            GP_TEST_FAIL("exit code %d, expected %d: %s", code_, expected, err);                             \
    } while (0)

#define RUN_CODE(expected, ...) FINISH_CODE(expected, START(__VA_ARGS__))

/* Create fresh directories without a pool, and an empty working directory. */
static inline void commands_begin(void)
{
    pools_begin(NULL);
    if (mkdir(in_root("w"), 0700) != 0)
        abort();
}

/* Start a pool of two workers, with an empty working directory. */
static inline void exec_begin(void)
{
    commands_begin();
    if (RUN("up", "--workers", "2") != 0)
        GP_TEST_FAIL("no pool: %s", err);
}

/* Restart the pool with daemon faults, which are reported in the file `told`. Suspended workers are
 * not killed. */
static inline void exec_faulty(const char *faults)
{
    RUN_CODE(0, "down");
    setenv("GRADPOOL_FAULT", faults, 1);
    setenv("GRADPOOL_FAULT_REPORT", in_root("told"), 1);
    RUN_CODE(0, "up", "--workers", "2", "--kill-after", "never");
    unsetenv("GRADPOOL_FAULT");
    unsetenv("GRADPOOL_FAULT_REPORT");
}

/* ---- running processes ---- */

static inline const char *in_w(const char *name)
{
    return path_in(in_root("w"), name);
}

static inline int lines_of(const char *name)
{
    FILE *file = fopen(in_w(name), "r");
    int count = 0;

    for (int c; file != NULL && (c = fgetc(file)) != EOF;)
        count += c == '\n';
    if (file != NULL)
        fclose(file);
    return count;
}

static inline bool wait_for_lines(const char *name, int count)
{
    AWAIT(lines_of(name) >= count, 2);
    if (lines_of(name) < count)
        GP_TEST_FAIL("%s has %d lines, not %d", name, lines_of(name), count);
    return lines_of(name) >= count;
}

static inline int pids_of(const char *name, pid_t *pids)
{
    FILE *file = fopen(in_w(name), "r");
    int count = 0;

    while (file != NULL && count < PIDS_MAX && fscanf(file, "%d", &pids[count]) == 1)
        count++;
    if (file != NULL)
        fclose(file);
    return count;
}

/* Return the number of running processes. wait: wait until all have exited or the timeout
 * expires. */
static inline int alive_of(const char *name, bool wait)
{
    gp_timeout timeout = gp_timeout_in(wait ? POOLS_TIMEOUT_MS : 0);
    pid_t pids[PIDS_MAX];
    int count = pids_of(name, pids), alive;

    do {
        alive = 0;
        for (int i = 0; i < count; i++)
            alive += process_alive(pids[i]);
        if (alive > 0)
            gp_sleep_ms(2);
    } while (alive > 0 && gp_timeout_left(timeout) > 0);
    return alive;
}

/* Wait until standard error of the running command contains the text. */
static inline bool await_err(const char *text)
{
    AWAIT((slurp(in_root("err"), err, sizeof(err)), strstr(err, text) != NULL), 2);
    return strstr(err, text) != NULL;
}

/* Wait until the pool has `count` leases. */
static inline bool await_leases(uint32_t count)
{
    uint32_t leases;
    gp_pool *pool;

    if (gp_pool_open(&pool, &(gp_pool_options){ .attach_only = true }, NULL) != GP_OK)
        return false;
    AWAIT((leases = pools_leases(pool)) == count || leases == UINT32_MAX, 2);
    gp_pool_close(pool);
    return leases == count;
}

/* Return the pid of worker `index` (from 1), or of the scheduler with 0. */
static inline pid_t pid_of(uint32_t index)
{
    gp_pool *pool;
    gp_status_reply *reply;
    pid_t pid = 0;

    if (gp_pool_open(&pool, &(gp_pool_options){ .attach_only = true }, NULL) != GP_OK)
        return 0;
    if (pool_status(pool, &reply, NULL) == GP_OK) {
        pid = (pid_t)reply->scheduler_pid;
        for (uint32_t i = 0; i < reply->workers_count && index > 0; i++)
            if (reply->workers[i].slot.index == index)
                pid = (pid_t)reply->workers[i].slot.pid;
        gp_free(reply);
    }
    gp_pool_close(pool);
    return pid;
}

#endif
