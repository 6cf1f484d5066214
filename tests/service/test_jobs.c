/* test_jobs.c -- background jobs with real daemons: what is acknowledged survives, runs once, ends once. */
#include <fcntl.h>
#include <sys/wait.h>

#include "tests/service/pools.h"

enum { PATIENCE_MS = 20000 };

static gp_pool *pool;
static gp_error err;

static const char *in_root(const char *name)
{
    static char paths[8][300];
    static int next;
    char *path = paths[next++ % 8];

    snprintf(path, sizeof(paths[0]), "%s/%s", pools_root, name);
    return path;
}

/* Jobs are what tests/fake/job.c says, or the real command. */
static void stage_begin(bool fake)
{
    char path[600];

    pools_begin(NULL);
    snprintf(path, sizeof(path), fake ? "%s/tests/fake_job" : "%s/bin/gradpool",
             getenv("GP_BUILD_DIR") == NULL ? "." : getenv("GP_BUILD_DIR"));
    setenv("GRADPOOL_CLIENT", path, 1);
    setenv("HOME", pools_root, 1);
    pool = NULL;
}

static bool open_pool(void)
{
    gp_pool_close(pool);
    pool = NULL;
    if (gp_pool_open(&pool, &(gp_pool_options){ .workers = 2, .devices = "cpu" }, &err) == GP_OK)
        return true;
    GP_TEST_FAIL("no pool: %s", err.message);
    return false;
}

static void stage_end(void)
{
    gp_pool_close(pool);
    pool = NULL;
    if (gp_test_failures != 0) {
        char command[200];

        snprintf(command, sizeof(command), "tail -n 30 %s/state/*/default/log/scheduler.log", pools_root);
        if (system(command) != 0)
            printf("     no log\n");
    }
    pools_end();
}

static uint64_t submit_words(const char *const *words)
{
    uint64_t job = 0;

    if (gp_job_submit(&job, pool, &(gp_job_request){ .words = words }, &err) != GP_OK)
        GP_TEST_FAIL("submit: %s", err.message);
    return job;
}

#define SUBMIT(...) submit_words((const char *const[]){ __VA_ARGS__, NULL })

static gp_job_info wait_end(uint64_t job)
{
    gp_job_info info = { .exit_code = -2 };

    if (gp_job_wait(&info, pool, &job, 1, false, PATIENCE_MS, NULL, &err) != GP_OK)
        GP_TEST_FAIL("job %d: %s", (int)job, err.message);
    return info;
}

static gp_job_info look(uint64_t job)
{
    gp_job_info info = { .exit_code = -2 };

    if (gp_job_get(&info, pool, job, &err) != GP_OK)
        GP_TEST_FAIL("job %d: %s", (int)job, err.message);
    return info;
}

static bool await_state(uint64_t job, gp_job_state state)
{
    for (int64_t end = gp_now_ms() + PATIENCE_MS; gp_now_ms() < end; gp_sleep_ms(2))
        if (look(job).state == state || gp_test_failures != 0)
            return gp_test_failures == 0;
    return false;
}

static bool await_file(const char *path)
{
    for (int64_t end = gp_now_ms() + PATIENCE_MS; gp_now_ms() < end; gp_sleep_ms(2))
        if (access(path, F_OK) == 0)
            return true;
    return false;
}

static void touch(const char *path)
{
    int fd = open(path, O_WRONLY | O_CREAT, 0600);

    if (fd < 0)
        abort();
    close(fd);
}

static char *slurp(const char *path)
{
    static char text[1 << 16];
    FILE *file = fopen(path, "r");
    size_t got = file == NULL ? 0 : fread(text, 1, sizeof(text) - 1, file);

    text[got] = '\0';
    if (file != NULL)
        fclose(file);
    return text;
}

static pid_t scheduler_pid(void)
{
    return (pid_t)pool->scheduler_pid;
}

static void kill_scheduler(void)
{
    pid_t pid = scheduler_pid();

    kill(pid, SIGKILL);
    for (int64_t end = gp_now_ms() + PATIENCE_MS; process_alive(pid) && gp_now_ms() < end;)
        gp_sleep_ms(1);
}

/* The gradpool command; out and err of it in files of the root. */
static pid_t start_command(const char *name, const char *const *words)
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

static int finish(pid_t child)
{
    int state = 0;

    waitpid(child, &state, 0);
    return WIFEXITED(state) ? WEXITSTATUS(state) : -1;
}

#define START(name, ...) start_command(name, (const char *const[]){ __VA_ARGS__, NULL })

/* ---- what a job is ---- */

TEST(a_job_has_the_directory_umask_and_variables_of_its_submitter)
{
    char line[400];

    stage_begin(true);
    setenv("LC_TIME", "C.UTF-8", 1);
    setenv("A_SECRET", "x", 1);
    mkdir(in_root("here"), 0700);
    REQUIRE(chdir(in_root("here")) == 0);
    umask(027);
    REQUIRE(open_pool());
    uint64_t job = SUBMIT("train", "show", "shown");

    umask(022);
    CHECK_INT(GP_JOB_DONE, wait_end(job).state);
    const char *shown = slurp(in_root("here/shown"));

    snprintf(line, sizeof(line), "directory %s\n", in_root("here"));
    CHECK_CONTAINS(shown, line);
    CHECK_CONTAINS(shown, "umask 027\n");
    CHECK_CONTAINS(shown, "LC_TIME=C.UTF-8\n");
    CHECK_CONTAINS(shown, "GRADPOOL_POOL=default\n");
    CHECK_CONTAINS(shown, "GRADPOOL_JOB=1\n");
    CHECK(strstr(shown, "A_SECRET") == NULL);
    CHECK(strstr(shown, "GRADPOOL_JOB_") == NULL); /* for the job's own process, not for what it starts */
    unsetenv("LC_TIME");
    unsetenv("A_SECRET");
    REQUIRE(chdir("/") == 0);
    stage_end();
}

TEST(how_a_job_ended_is_told)
{
    gp_job_info info;

    stage_begin(true);
    REQUIRE(open_pool());
    info = wait_end(SUBMIT("train", "exit", "7"));
    CHECK_INT(GP_JOB_FAILED, info.state);
    CHECK_INT(7, info.exit_code);
    info = wait_end(SUBMIT("train", "abort"));
    CHECK_INT(GP_JOB_FAILED, info.state);
    CHECK_INT(SIGABRT, info.signal);
    CHECK_CONTAINS(info.reason, "signal 6");
    CHECK_INT(1, info.attempts); /* it failed by itself */
    info = wait_end(SUBMIT("train", "lost"));
    CHECK_INT(GP_JOB_FAILED, info.state);
    CHECK_CONTAINS(info.reason, "the scheduler is gone");
    uint64_t nowhere;

    REQUIRE_OK(gp_job_submit(&nowhere, pool,
                             &(gp_job_request){ .words = (const char *const[]){ "train", NULL },
                                                .directory = "/no/such/folder" },
                             &err),
               err);
    info = wait_end(nowhere);
    CHECK_INT(GP_JOB_FAILED, info.state);
    CHECK_CONTAINS(info.reason, "/no/such/folder is not there");
    CHECK_STATUS(GP_ENOENT, gp_job_get(&info, pool, 77, &err));
    CHECK_CONTAINS(err.message, "there is no job 77");
    stage_end();
}

TEST(the_command_waits_with_the_exit_code_of_the_job)
{
    stage_begin(true);
    REQUIRE(open_pool());
    SUBMIT("train", "exit", "7");
    SUBMIT("train", "abort");
    SUBMIT("train", "exit", "0");
    uint64_t long_one = SUBMIT("train", "until", in_root("end"));

    CHECK_INT(7, finish(START("a", "wait", "1")));
    CHECK_CONTAINS(slurp(in_root("a.out")), "job 1: failed");
    CHECK_INT(128 + SIGABRT, finish(START("a", "wait", "2")));
    CHECK_INT(0, finish(START("a", "wait", "3")));
    CHECK_INT(0, finish(START("a", "wait", "3", "4", "--any", "--quiet")));
    CHECK_INT(7, finish(START("a", "wait", "3", "1", "2")));
    CHECK_INT(124, finish(START("a", "wait", "4", "--timeout", "0.1")));
    CHECK_INT(125, finish(START("a", "wait", "99")));
    CHECK_INT(2, finish(START("a", "wait", "x")));
    touch(in_root("end"));
    CHECK_INT(GP_JOB_DONE, wait_end(long_one).state);
    stage_end();
}

TEST(words_that_cannot_run_are_refused_before_anything_is_recorded)
{
    stage_begin(true);
    CHECK_INT(2, finish(START("a", "submit", "--", "trian", "--network", "lenet")));
    CHECK_CONTAINS(slurp(in_root("a.err")), "did you mean 'train'?");
    CHECK_INT(2, finish(START("a", "submit", "--", "train", "--network", "lenet")));
    CHECK_CONTAINS(slurp(in_root("a.err")), "--data is missing");
    CHECK_INT(2, finish(START("a", "submit", "--", "train", "--network", "lenet", "--data", "digits",
                              "--epochs", "many")));
    CHECK_INT(2, finish(START("a", "submit", "--", "down")));
    CHECK_INT(2, finish(START("a", "submit", "--", "train", "--pool", "x")));
    CHECK_INT(2, finish(START("a", "submit")));
    CHECK_INT(1, finish(START("a", "jobs"))); /* no pool was started for it */
    stage_end();
}

TEST(no_more_jobs_run_at_once_than_there_are_workers)
{
    uint64_t jobs[8];
    gp_job_info infos[8];

    stage_begin(true);
    mkdir(in_root("there"), 0700);
    REQUIRE(open_pool());
    for (int i = 0; i < 8; i++)
        jobs[i] = SUBMIT("train", "count", in_root("there"), "20");
    REQUIRE_OK(gp_job_wait(infos, pool, jobs, 8, false, PATIENCE_MS, NULL, &err), err);
    for (int i = 0; i < 8; i++)
        CHECK_INT(GP_JOB_DONE, infos[i].state);
    stage_end();
}

TEST(the_same_submit_again_is_the_same_job)
{
    const char *const words[] = { "train", "exit", "0", NULL };
    gp_job_request request = { .words = words, .key = { 1, 2, 3 }, .seq = 5 };
    uint64_t first = 0, second = 0, third = 0;

    stage_begin(true);
    REQUIRE(open_pool());
    REQUIRE_OK(gp_job_submit(&first, pool, &request, &err), err);
    REQUIRE_OK(gp_job_submit(&second, pool, &request, &err), err);
    CHECK_INT(first, second);
    kill_scheduler();
    REQUIRE(open_pool());
    REQUIRE_OK(gp_job_submit(&second, pool, &request, &err), err);
    CHECK_INT(first, second);
    request.seq = 6;
    REQUIRE_OK(gp_job_submit(&third, pool, &request, &err), err);
    CHECK_INT(first + 1, third);
    stage_end();
}

/* ---- canceling ---- */

TEST(queued_and_running_jobs_are_canceled)
{
    uint32_t count;

    stage_begin(true);
    REQUIRE(open_pool());
    uint64_t first = SUBMIT("train", "append", in_root("ran"), "60000"), second;

    SUBMIT("train", "append", in_root("ran"), "60000");
    second = SUBMIT("train", "append", in_root("ran"), "0");
    CHECK(await_state(first, GP_JOB_RUNNING));
    REQUIRE_OK(gp_job_cancel(&count, pool, second, &err), err);
    CHECK_INT(1, count);
    CHECK_INT(GP_JOB_CANCELED, wait_end(second).state);
    pid_t pid = (pid_t)look(first).pid;

    CHECK(process_alive(pid));
    REQUIRE_OK(gp_job_cancel(&count, pool, 0, &err), err);
    CHECK_INT(2, count);
    CHECK_INT(GP_JOB_CANCELED, wait_end(first).state);
    CHECK(!process_alive(pid));
    CHECK(access(in_root("ran"), F_OK) != 0);
    CHECK_INT(130, finish(START("a", "wait", "1")));
    CHECK_INT(0, finish(START("a", "cancel", "--all")));
    CHECK_CONTAINS(slurp(in_root("a.out")), "canceled 0 jobs");
    CHECK_INT(1, finish(START("a", "cancel", "44")));
    CHECK_CONTAINS(slurp(in_root("a.err")), "there is no job 44");
    stage_end();
}

/* ---- watching ---- */

TEST(two_terminals_watch_one_job_and_leaving_has_no_effect)
{
    stage_begin(true);
    REQUIRE(open_pool());
    uint64_t job = SUBMIT("train", "print", "30", "20");

    CHECK(await_state(job, GP_JOB_RUNNING));
    pid_t one = START("one", "logs", "1", "-f"), two = START("two", "logs", "-f", "1"),
          three = START("three", "logs", "1", "--follow");

    for (int64_t end = gp_now_ms() + PATIENCE_MS; gp_now_ms() < end; gp_sleep_ms(5))
        if (strstr(slurp(in_root("three.out")), "line 3\n") != NULL)
            break;
    kill(three, SIGINT);
    CHECK_INT(130, finish(three));
    CHECK_CONTAINS(slurp(in_root("three.err")), "detached; job 1 goes on");
    CHECK_INT(0, finish(one));
    CHECK_INT(0, finish(two));
    CHECK_CONTAINS(slurp(in_root("one.out")), "line 1\nline 2\n");
    CHECK_CONTAINS(slurp(in_root("one.out")), "line 30\n");
    CHECK_CONTAINS(slurp(in_root("one.err")), "job 1: done");
    char *first = strdup(slurp(in_root("one.out")));

    CHECK_TEXT(first, slurp(in_root("two.out")));
    free(first);
    CHECK_INT(GP_JOB_DONE, wait_end(job).state);
    CHECK_INT(0, finish(START("late", "logs", "1"))); /* history, long after */
    CHECK_CONTAINS(slurp(in_root("late.out")), "line 30\n");
    stage_end();
}

/* ---- the death of the scheduler, and of the pool ---- */

TEST(a_job_outlives_its_scheduler_and_is_watched_by_the_next)
{
    stage_begin(true);
    REQUIRE(open_pool());
    uint64_t job = SUBMIT("train", "until", in_root("end"));

    CHECK(await_state(job, GP_JOB_RUNNING));
    pid_t pid = (pid_t)look(job).pid;

    kill_scheduler();
    REQUIRE(open_pool());
    CHECK_INT(GP_JOB_RUNNING, look(job).state);
    CHECK_INT(pid, look(job).pid);
    CHECK(process_alive(pid));
    touch(in_root("end"));
    gp_job_info info = wait_end(job);

    CHECK_INT(GP_JOB_DONE, info.state); /* it was not our child: it said so itself */
    CHECK_INT(0, info.exit_code);
    CHECK_INT(1, info.attempts);
    stage_end();
}

TEST(a_job_that_ended_while_no_scheduler_was_there_is_recorded_as_it_ended)
{
    stage_begin(true);
    REQUIRE(open_pool());
    uint64_t good = SUBMIT("train", "until", in_root("end")),
             bad = SUBMIT("train", "append", "/no/where", "300");

    CHECK(await_state(good, GP_JOB_RUNNING) && await_state(bad, GP_JOB_RUNNING));
    pid_t pids[] = { (pid_t)look(good).pid, (pid_t)look(bad).pid };

    kill_scheduler();
    touch(in_root("end"));
    for (int64_t end = gp_now_ms() + PATIENCE_MS;
         (process_alive(pids[0]) || process_alive(pids[1])) && gp_now_ms() < end;)
        gp_sleep_ms(2);
    REQUIRE(open_pool());
    CHECK_INT(GP_JOB_DONE, wait_end(good).state);
    CHECK_INT(1, look(good).attempts);
    CHECK_INT(GP_JOB_FAILED, wait_end(bad).state); /* by itself: not tried again */
    CHECK_INT(1, look(bad).exit_code);
    CHECK_INT(1, look(bad).attempts);
    stage_end();
}

TEST(a_job_killed_together_with_its_scheduler_is_tried_three_times)
{
    stage_begin(true);
    REQUIRE(open_pool());
    uint64_t job = SUBMIT("train", "append", in_root("ran"), "60000");

    for (uint32_t attempt = 1; attempt <= 3 && gp_test_failures == 0; attempt++) {
        gp_job_info info = { 0 };

        for (int64_t end = gp_now_ms() + PATIENCE_MS; gp_now_ms() < end; gp_sleep_ms(2)) {
            info = look(job);
            if (info.state == GP_JOB_RUNNING && info.attempts == attempt)
                break;
        }
        CHECK_INT(attempt, info.attempts);
        kill_scheduler();
        kill((pid_t)info.pid, SIGKILL);
        while (process_alive((pid_t)info.pid))
            gp_sleep_ms(1);
        REQUIRE(open_pool());
    }
    gp_job_info info = wait_end(job);

    CHECK_INT(GP_JOB_LOST, info.state);
    CHECK_CONTAINS(info.reason, "3 attempts");
    CHECK_INT(125, finish(START("a", "wait", "1")));
    stage_end();
}

TEST(jobs_of_a_pool_that_was_taken_down_run_with_the_next_one)
{
    stage_begin(true);
    REQUIRE(open_pool());
    uint64_t running = SUBMIT("train", "append", in_root("ran"), "400"), queued = 0;

    SUBMIT("train", "append", in_root("ran"), "400");
    queued = SUBMIT("train", "append", in_root("ran"), "0");
    CHECK(await_state(running, GP_JOB_RUNNING));
    pid_t pid = (pid_t)look(running).pid;

    CHECK_INT(0, finish(START("a", "down")));
    CHECK(!process_alive(pid));
    CHECK(access(in_root("ran"), F_OK) != 0);
    REQUIRE(open_pool());
    CHECK_INT(GP_JOB_DONE, wait_end(queued).state);
    gp_job_info info = wait_end(running);

    CHECK_INT(GP_JOB_DONE, info.state);
    CHECK_INT(1, info.attempts); /* the one that was taken down does not count */
    stage_end();
}

TEST(whoever_waits_goes_on_with_the_next_scheduler)
{
    stage_begin(true);
    REQUIRE(open_pool());
    uint64_t job = SUBMIT("train", "until", in_root("end"));

    CHECK(await_state(job, GP_JOB_RUNNING));
    pid_t waiter = START("a", "wait", "1"), follower = START("b", "logs", "1", "-f");

    gp_sleep_ms(100);
    kill_scheduler();
    gp_sleep_ms(100);
    touch(in_root("end"));
    CHECK_INT(0, finish(waiter));
    CHECK_INT(0, finish(follower));
    CHECK_CONTAINS(slurp(in_root("a.out")), "job 1: done");
    REQUIRE(open_pool());
    stage_end();
}

TEST(a_journal_that_is_damaged_leaves_a_pool_without_jobs_that_says_why)
{
    char host[65] = "", path[400];
    gp_job_info info;
    uint64_t job;
    uint32_t workers;

    stage_begin(true);
    gethostname(host, sizeof(host) - 1);
    snprintf(path, sizeof(path), "%s/state/%s", pools_root, host);
    mkdir(path, 0700);
    snprintf(path, sizeof(path), "%s/state/%s/default", pools_root, host);
    mkdir(path, 0700);
    snprintf(path, sizeof(path), "%s/state/%s/default/jobs.db", pools_root, host);
    FILE *file = fopen(path, "w");

    REQUIRE(file != NULL);
    for (int i = 0; i < 200; i++)
        fputs("no database at all\n", file);
    fclose(file);
    REQUIRE(open_pool());
    CHECK_STATUS(GP_ECORRUPT,
                 gp_job_submit(&job, pool,
                               &(gp_job_request){ .words = (const char *const[]){ "train", NULL } }, &err));
    CHECK_CONTAINS(err.message, "jobs.db is damaged");
    CHECK_CONTAINS(err.message, "move the file away");
    CHECK(gp_job_get(&info, pool, 1, &err) != GP_OK);
    CHECK_CONTAINS(err.message, "jobs.db is damaged");
    CHECK(gp_job_wait(&info, pool, &(uint64_t){ 1 }, 1, false, 1000, NULL, &err) != GP_OK);
    CHECK_CONTAINS(err.message, "jobs.db is damaged");
    CHECK_STATUS(GP_OK, gp_pool_workers(pool, &workers, &err));
    CHECK_INT(2, workers);
    CHECK_CONTAINS(slurp(path), "no database at all");
    stage_end();
}

/* ---- the real command ---- */

TEST(a_training_in_a_job_keeps_its_model_in_the_jobs_folder)
{
    stage_begin(false);
    REQUIRE(open_pool());
    uint64_t job =
        SUBMIT("train", "--network", "lenet", "--data", "digits:1000", "--epochs", "1", "--workers", "2");
    gp_job_info info = wait_end(job);
    char path[300];

    CHECK_INT(GP_JOB_DONE, info.state);
    CHECK_INT(2, info.workers);
    info = look(job);
    snprintf(path, sizeof(path), "%s/result/model.onnx", info.folder);
    CHECK(access(path, R_OK) == 0);
    snprintf(path, sizeof(path), "%s/metrics.jsonl", info.folder);
    CHECK_CONTAINS(slurp(path), "\"step\": 1,");
    snprintf(path, sizeof(path), "%s/log", info.folder);
    CHECK_CONTAINS(slurp(path), "finished after");
    snprintf(path, sizeof(path), "%s/job.json", info.folder);
    CHECK_CONTAINS(slurp(path), "\"state\": \"ended\"");
    CHECK(access(in_root("gradpool-runs"), F_OK) != 0);
    stage_end();
}

TEST(a_training_that_is_canceled_keeps_its_model)
{
    char path[300];

    stage_begin(false);
    REQUIRE(open_pool());
    uint64_t job = SUBMIT("train", "--network", "lenet", "--data", "digits:2000", "--epochs", "1000");

    snprintf(path, sizeof(path), "%s/metrics.jsonl", look(job).folder);
    CHECK(await_file(path));
    REQUIRE_OK(gp_job_cancel(NULL, pool, job, &err), err);
    gp_job_info info = wait_end(job);

    CHECK_INT(GP_JOB_CANCELED, info.state);
    CHECK_INT(130, info.exit_code);
    snprintf(path, sizeof(path), "%s/result/model.onnx", look(job).folder);
    CHECK(access(path, R_OK) == 0);
    stage_end();
}

TEST(a_training_whose_scheduler_is_killed_is_attempted_again)
{
    char path[300];

    stage_begin(false);
    REQUIRE(open_pool());
    uint64_t job = SUBMIT("train", "--network", "lenet", "--data", "digits:2000", "--epochs", "12");

    snprintf(path, sizeof(path), "%s/metrics.jsonl", look(job).folder);
    CHECK(await_file(path));
    kill_scheduler();
    REQUIRE(open_pool());
    gp_job_info info = wait_end(job);

    CHECK_INT(GP_JOB_DONE, info.state);
    CHECK_INT(2, info.attempts);
    snprintf(path, sizeof(path), "%s/log", look(job).folder);
    CHECK_CONTAINS(slurp(path), "== attempt 2 ==");
    stage_end();
}

/* ---- kill -9 of everything, at any moment ---- */

enum { ROUNDS = 32, SUBMITS_MAX = 900 };

typedef struct gp_history {
    uint64_t acknowledged;               /* seqs 1 .. acknowledged were */
    uint64_t ids[SUBMITS_MAX];           /* by seq */
    gp_job_state ended[SUBMITS_MAX * 2]; /* by id: as it was first seen to have ended */
    uint32_t runs_then[SUBMITS_MAX * 2]; /* and how often it had run then */
} gp_history;

static gp_history *history;

/* A client that submits until it is killed, one by one. */
static void submit_for_ever(void)
{
    const char *const words[] = { "train", "append", in_root("ran"), "3", NULL };
    gp_job_request request = { .words = words, .key = { 42 } };

    gp_pool_close(pool); /* the parent's, if any: this process has its own */
    pool = NULL;
    while (gp_pool_open(&pool, &(gp_pool_options){ .workers = 2, .devices = "cpu" }, &err) != GP_OK)
        gp_sleep_ms(1);
    for (uint64_t seq = history->acknowledged + 1; seq < SUBMITS_MAX; seq++) {
        uint64_t job;

        request.seq = seq;
        if (gp_job_submit(&job, pool, &request, &err) != GP_OK)
            _exit(1);
        history->ids[seq] = job;
        __atomic_store_n(&history->acknowledged, seq, __ATOMIC_SEQ_CST);
    }
    for (;;)
        pause();
}

/* SIGKILL to every process whose environment has our directories: daemons and jobs. */
static uint32_t kill_everything(void)
{
    DIR *all = opendir("/proc");
    uint32_t count = 0;

    for (struct dirent *entry; (entry = readdir(all)) != NULL;) {
        char path[300], text[1 << 15];
        int pid = atoi(entry->d_name);
        ssize_t got = -1;

        if (pid <= 1 || pid == (int)getpid())
            continue;
        snprintf(path, sizeof(path), "/proc/%d/environ", pid);
        int fd = open(path, O_RDONLY | O_CLOEXEC);

        if (fd >= 0) {
            got = read(fd, text, sizeof(text) - 1);
            close(fd);
        }
        if (got > 0 && memmem(text, (size_t)got, pools_root, strlen(pools_root)) != NULL)
            count += kill(pid, SIGKILL) == 0;
    }
    closedir(all);
    return count;
}

static uint32_t runs_of(uint64_t job)
{
    char line[100];
    FILE *file = fopen(in_root("ran"), "r");
    uint32_t count = 0;

    while (file != NULL && fgets(line, sizeof(line), file) != NULL)
        count += strtoull(line, NULL, 10) == job;
    if (file != NULL)
        fclose(file);
    return count;
}

static uint64_t listed, listed_before; /* how many; the id listed last */

static bool check_listed(void *context, const gp_job_info *job)
{
    (void)context;
    listed++;
    CHECK(listed_before == 0 || job->id < listed_before);
    listed_before = job->id;
    if (job->id >= SUBMITS_MAX * 2) {
        GP_TEST_FAIL("job %d is too many", (int)job->id);
        return false;
    }
    CHECK(job->attempts <= 3);
    CHECK(job->state != GP_JOB_FAILED && job->state != GP_JOB_CANCELED);
    if (history->ended[job->id] != 0) {
        CHECK_INT(history->ended[job->id], job->state);
        CHECK_INT(history->runs_then[job->id], runs_of(job->id)); /* nothing runs after its end */
    } else if (gp_job_state_ended(job->state)) {
        history->ended[job->id] = job->state;
        history->runs_then[job->id] = runs_of(job->id);
        CHECK(job->state != GP_JOB_DONE || history->runs_then[job->id] >= 1);
        CHECK(history->runs_then[job->id] <= job->attempts);
    }
    return true;
}

/* Against all that was ever acknowledged. */
static void check_history(void)
{
    gp_job_info info;

    listed = listed_before = 0;
    CHECK_STATUS(GP_OK, gp_job_list(pool, true, check_listed, NULL, &err));
    CHECK(listed >= history->acknowledged && listed <= history->acknowledged + 1);
    for (uint64_t seq = 1; seq <= history->acknowledged; seq++) {
        CHECK(seq == 1 || history->ids[seq] > history->ids[seq - 1]); /* never used again */
        if (gp_job_get(&info, pool, history->ids[seq], &err) != GP_OK)
            GP_TEST_FAIL("submit %d, acknowledged as job %d: %s", (int)seq, (int)history->ids[seq],
                         err.message);
    }
}

static void check_ends(void)
{
    uint32_t done = 0, lost = 0, again = 0;

    for (uint64_t seq = 1; seq <= history->acknowledged && gp_test_failures == 0; seq++) {
        gp_job_info info = wait_end(history->ids[seq]);

        done += info.state == GP_JOB_DONE;
        lost += info.state == GP_JOB_LOST;
        again += info.attempts > 1;
        if (info.state == GP_JOB_DONE && runs_of(info.id) == 0)
            GP_TEST_FAIL("job %d is done and never ran", (int)info.id);
    }
    printf("     %d jobs acknowledged: %u done, %u of them not at the first attempt, %u lost\n",
           (int)history->acknowledged, done, again, lost);
    CHECK_INT(history->acknowledged, done + lost);
}

TEST(what_was_acknowledged_survives_the_death_of_everything_at_any_moment)
{
    uint32_t killed = 0;

    stage_begin(true);
    history = mmap(NULL, sizeof(*history), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    srand(12345);
    for (int round = 0; round < ROUNDS && gp_test_failures == 0; round++) {
        uint64_t before = history->acknowledged;

        fflush(stdout);
        pid_t client = fork();

        if (client == 0)
            submit_for_ever();
        for (int64_t end = gp_now_ms() + PATIENCE_MS;
             __atomic_load_n(&history->acknowledged, __ATOMIC_SEQ_CST) == before && gp_now_ms() < end;)
            gp_sleep_ms(1);
        CHECK(history->acknowledged > before);
        gp_sleep_ms(rand() % 40);
        if (round % 3 == 2)
            kill(client, SIGKILL); /* the client first, sometimes */
        killed += kill_everything();
        kill(client, SIGKILL);
        waitpid(client, NULL, 0);
        if (round % 4 == 3) { /* between the rounds, and at the end */
            killed += kill_everything();
            if (open_pool())
                check_history();
            gp_pool_close(pool);
            pool = NULL;
        }
    }
    REQUIRE(open_pool());
    check_ends();
    check_history();
    printf("     %u processes were killed\n", killed);
    munmap(history, sizeof(*history));
    stage_end();
}
