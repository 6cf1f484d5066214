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
    char path[600];

    pools_begin(NULL);
    snprintf(path, sizeof(path), fake ? "%s/tests/fake_job" : "%s/bin/gradpool",
             getenv("GP_BUILD_DIR") == NULL ? "." : getenv("GP_BUILD_DIR"));
    setenv("GRADPOOL_CLIENT", path, 1);
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
    if (gp_test_failures != 0) {
        char command[200];

        snprintf(command, sizeof(command), "tail -n 30 %s/state/*/default/log/scheduler.log", pools_root);
        if (system(command) != 0)
            printf("     no log\n");
    }
    if (chdir("/") != 0)
        abort();
    pools_end();
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

static inline bool await_state(uint64_t job, gp_job_state state)
{
    for (int64_t end = gp_now_ms() + TIMEOUT_MS; gp_now_ms() < end; gp_sleep_ms(2))
        if (look(job).state == state || gp_test_failures != 0)
            return gp_test_failures == 0;
    return false;
}

static inline bool await_file(const char *path)
{
    for (int64_t end = gp_now_ms() + TIMEOUT_MS; gp_now_ms() < end; gp_sleep_ms(2))
        if (access(path, F_OK) == 0)
            return true;
    return false;
}

static inline void touch(const char *path)
{
    int fd = open(path, O_WRONLY | O_CREAT, 0600);

    if (fd < 0)
        abort();
    close(fd);
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
    for (int64_t end = gp_now_ms() + TIMEOUT_MS; gp_now_ms() < end; gp_sleep_ms(5))
        if (strstr(text_of(path), text) != NULL)
            return true;
    return false;
}

static inline pid_t scheduler_pid(void)
{
    return (pid_t)pool->scheduler_pid;
}

static inline void kill_scheduler(void)
{
    pid_t pid = scheduler_pid();

    kill(pid, SIGKILL);
    for (int64_t end = gp_now_ms() + TIMEOUT_MS; process_alive(pid) && gp_now_ms() < end;)
        gp_sleep_ms(1);
}

/* Start the gradpool command, with output and errors in files under the root. */
static inline pid_t start_command(const char *name, const char *const *words)
{
    const char *vector[20] = { "gradpool" };
    char program[600], path[300];

    snprintf(program, sizeof(program), "%s/bin/gradpool",
             getenv("GP_BUILD_DIR") == NULL ? "." : getenv("GP_BUILD_DIR"));
    for (int i = 0; words[i] != NULL && i < 18; i++)
        vector[i + 1] = words[i];
    fflush(stdout);
    pid_t child = fork();

    if (child != 0)
        return child;
    snprintf(path, sizeof(path), "%s/%s.out", pools_root, name);
    int out = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);

    snprintf(path, sizeof(path), "%s/%s.err", pools_root, name);
    int errors = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);

    if (dup2(out, 1) < 0 || dup2(errors, 2) < 0 || chdir(pools_root) != 0)
        _exit(99);
    execv(program, (char *const *)(uintptr_t)vector);
    _exit(98);
}

static inline int finish(pid_t child)
{
    int state = 0;

    waitpid(child, &state, 0);
    return WIFEXITED(state) ? WEXITSTATUS(state) : -1;
}

#define START(name, ...) start_command(name, (const char *const[]){ __VA_ARGS__, NULL })

/* Check the exit code of a command; print the errors on a mismatch. */
static inline void check_code(int line, int expected, const char *name, pid_t child)
{
    const int code = finish(child);
    char path[300];

    snprintf(path, sizeof(path), "%s/%s.err", pools_root, name);
    if (code != expected)
        GP_TEST_FAIL("line %d: '%s' ended with %d, expected %d: %s", line, name, code, expected,
                     text_of(path));
}

#define FINISH_CODE(expected, name, child) check_code(__LINE__, expected, name, child)
#define RUN_CODE(expected, name, ...)      FINISH_CODE(expected, name, START(name, __VA_ARGS__))

#endif
