/* jobs_stage.h: a pool for tests of background jobs; most run tests/fake/job.c instead of the
 * command. */
#ifndef GP_TEST_JOBS_STAGE_H
#define GP_TEST_JOBS_STAGE_H

#include <fcntl.h>
#include <sys/wait.h>

#include "tests/service/pools.h"

enum { TIMEOUT_MS = POOLS_TIMEOUT_MS };

static gp_pool *pool;
static gp_error err;

/* Start a stage whose jobs run tests/fake/job.c or the real command. */
static inline void stage_begin(bool fake)
{
    pools_begin(NULL);
    setenv("GRADPOOL_CLIENT", in_build(fake ? "tests/fake_job" : "bin/gradpool"), 1);
    setenv("HOME", pools_root, 1);
    if (chdir(pools_root) != 0)
        abort();
    pool = NULL;
}

static inline bool open_pool(void)
{
    gp_pool_close(pool);
    pool = NULL;
    if (gp_pool_open(&pool, &(gp_pool_options){ .workers = 2, .devices = "cpu" }, &err) == GP_OK)
        return true;
    GP_TEST_FAIL("no pool: %s", err.message);
    return false;
}

static inline void stage_end(void)
{
    gp_pool_close(pool);
    pool = NULL;
    if (gp_test_failures != 0 && shell("tail -n 30 state/*/default/log/scheduler.log") != 0)
        printf("     no log\n");
    if (chdir("/") != 0)
        abort();
    pools_end();
}

TEARDOWN()
{
    stage_end();
}

static inline uint64_t submit_words(const char *const *words)
{
    uint64_t job = 0;

    if (gp_job_submit(&job, pool, &(gp_job_request){ .words = words }, &err) != GP_OK)
        GP_TEST_FAIL("submit: %s", err.message);
    return job;
}

#define SUBMIT(...) submit_words((const char *const[]){ __VA_ARGS__, NULL })

static inline gp_job_info wait_end(uint64_t job)
{
    gp_job_info info = { .exit_code = -2 };

    if (gp_job_wait(&info, pool, &job, 1, false, TIMEOUT_MS, NULL, &err) != GP_OK)
        GP_TEST_FAIL("job %d: %s", (int)job, err.message);
    return info;
}

static inline gp_job_info look(uint64_t job)
{
    gp_job_info info = { .exit_code = -2 };

    if (gp_job_get(&info, pool, job, &err) != GP_OK)
        GP_TEST_FAIL("job %d: %s", (int)job, err.message);
    return info;
}

/* Return the path of a file in the folder of a job, valid like that of path_in(). */
static inline const char *in_job(uint64_t job, const char *name)
{
    return path_in(look(job).folder, name);
}

static inline bool await_state(uint64_t job, gp_job_state state)
{
    gp_job_state last = GP_JOB_QUEUED;

    AWAIT((last = look(job).state) == state || gp_test_failures != 0, 2);
    return last == state && gp_test_failures == 0;
}

static inline bool await_file(const char *path)
{
    AWAIT(access(path, F_OK) == 0, 2);
    return access(path, F_OK) == 0;
}

/* Return the text of a file, valid until the next call. */
static inline char *text_of(const char *path)
{
    static char text[1 << 20];

    slurp(path, text, sizeof(text));
    return text;
}

/* Wait until the file contains the text. */
static inline bool await_text(const char *path, const char *text)
{
    AWAIT(strstr(text_of(path), text) != NULL, 5);
    return strstr(text_of(path), text) != NULL;
}

static inline pid_t scheduler_pid(void)
{
    return (pid_t)pool->scheduler_pid;
}

static inline void kill_scheduler(void)
{
    pid_t pid = scheduler_pid();

    kill(pid, SIGKILL);
    AWAIT(!process_alive(pid), 1);
}

/* Start the gradpool command, with output and errors in files under the root. */
static inline pid_t start_command(const char *name, const char *const *words)
{
    char path[100];

    fflush(stdout);
    pid_t child = fork();

    if (child != 0)
        return child;
    snprintf(path, sizeof(path), "%s.out", name);
    int out = command_file(path);

    snprintf(path, sizeof(path), "%s.err", name);
    command_exec(pools_root, (const int[]){ STDIN_FILENO, out, command_file(path) }, words);
    return child;
}

#define START(name, ...) start_command(name, (const char *const[]){ __VA_ARGS__, NULL })

/* Check the exit code of a command; print the errors on a mismatch. */
static inline void check_code(int line, int expected, const char *name, pid_t child)
{
    const int code = child_exit_code(child);
    char path[100];

    snprintf(path, sizeof(path), "%s.err", name);
    if (code != expected)
        GP_TEST_FAIL("line %d: '%s' ended with %d, expected %d: %s", line, name, code, expected,
                     text_of(in_root(path)));
}

#define FINISH_CODE(expected, name, child) check_code(__LINE__, expected, name, child)
#define RUN_CODE(expected, name, ...)      FINISH_CODE(expected, name, START(name, __VA_ARGS__))

#endif
