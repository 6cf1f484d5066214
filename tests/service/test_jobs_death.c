/* test_jobs_death.c: background jobs when the scheduler fails, the pool is shut down, or the
 * journal or the disk fails. */
#include <sys/resource.h>

#include "tests/service/jobs_stage.h"

TEST(job_outlives_its_scheduler_and_is_monitored_by_the_next)
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
    write_file("end", "");
    gp_job_info info = wait_end(job);

    /* not a child of the new scheduler: the job itself reported the result */
    CHECK_INT(GP_JOB_DONE, info.state);
    CHECK_INT(0, info.exit_code);
    CHECK_INT(1, info.attempts);
}

/* Stopped by a debugger or SIGSTOP: the kernel sends SIGHUP to stopped processes of an orphaned
 * process group. */
TEST(stopped_job_survives_a_scheduler_failure_and_resumes)
{
    gp_proc_stat stat = { .state = '?' };

    stage_begin(true);
    REQUIRE(open_pool());
    uint64_t job = SUBMIT("train", "until", in_root("end"));

    CHECK(await_state(job, GP_JOB_RUNNING));
    pid_t pid = (pid_t)look(job).pid;

    kill(pid, SIGSTOP);
    CHECK(await_stopped(pid));
    kill_scheduler();
    REQUIRE(open_pool());
    CHECK_INT(pid, look(job).pid);
    CHECK(gp_proc_stat_read(&stat, pid));
    CHECK_INT('T', stat.state);
    write_file("end", "");
    kill(pid, SIGCONT);
    gp_job_info info = wait_end(job);

    CHECK_INT(GP_JOB_DONE, info.state);
    CHECK_INT(1, info.attempts);
}

TEST(result_of_a_job_that_ended_without_a_scheduler_is_recorded)
{
    stage_begin(true);
    REQUIRE(open_pool());
    uint64_t good = SUBMIT("train", "until", in_root("end")),
             bad = SUBMIT("train", "until", in_root("end"), "1");

    CHECK(await_state(good, GP_JOB_RUNNING) && await_state(bad, GP_JOB_RUNNING));
    pid_t pids[] = { (pid_t)look(good).pid, (pid_t)look(bad).pid };

    kill_scheduler();
    write_file("end", "");
    AWAIT(!process_alive(pids[0]) && !process_alive(pids[1]), 2);
    REQUIRE(open_pool());
    CHECK_INT(GP_JOB_DONE, wait_end(good).state);
    CHECK_INT(1, look(good).attempts);
    CHECK_INT(GP_JOB_FAILED, wait_end(bad).state); /* failed by itself: no retry */
    CHECK_INT(1, look(bad).exit_code);
    CHECK_INT(1, look(bad).attempts);
}

/* Start the next scheduler with system calls that fail as in tests/fault/failing.h. */
static bool open_failing(const char *fail)
{
    setenv("LD_PRELOAD", in_build("tests/failing.so"), 1);
    setenv("GP_FAIL", fail, 1);
    bool opened = open_pool();

    unsetenv("LD_PRELOAD");
    unsetenv("GP_FAIL");
    return opened;
}

TEST(result_that_cannot_be_read_at_first_is_recorded)
{
    if (GP_SANITIZED)
        SKIP("a sanitizer must be loaded before this library");
    stage_begin(true);
    REQUIRE(open_pool());
    uint64_t job = SUBMIT("train", "until", in_root("end"));

    CHECK(await_state(job, GP_JOB_RUNNING));
    pid_t pid = (pid_t)look(job).pid;

    kill_scheduler();
    write_file("end", "");
    AWAIT(!process_alive(pid), 2);
    REQUIRE(open_failing("open:1:EMFILE:job.json"));
    CHECK_INT(GP_JOB_DONE, wait_end(job).state);
    CHECK_INT(1, look(job).attempts);
    CHECK(shell("grep -q 'job.json: Too many open files; trying again' state/*/default/log/scheduler.log") ==
          0);
}

TEST(unreadable_result_does_not_prevent_a_shutdown)
{
    if (GP_SANITIZED)
        SKIP("a sanitizer must be loaded before this library");
    stage_begin(true);
    REQUIRE(open_pool());
    uint64_t job = SUBMIT("train", "until", in_root("end"));

    CHECK(await_state(job, GP_JOB_RUNNING));
    pid_t pid = (pid_t)look(job).pid;

    kill_scheduler();
    write_file("end", "");
    AWAIT(!process_alive(pid), 2);
    REQUIRE(open_failing("open:1+:EIO:job.json"));
    CHECK_INT(GP_JOB_RUNNING, look(job).state);
    RUN_CODE(0, "a", "down");
    REQUIRE(open_pool());
    CHECK_INT(GP_JOB_DONE, wait_end(job).state);
    CHECK_INT(1, look(job).attempts);
}

TEST(job_killed_with_its_scheduler_is_tried_three_times)
{
    stage_begin(true);
    REQUIRE(open_pool());
    write_file("hold", "");
    uint64_t job = SUBMIT("train", "while", in_root("hold"));

    for (uint32_t attempt = 1; attempt <= 3 && gp_test_failures == 0; attempt++) {
        gp_job_info info = { 0 };

        AWAIT((info = look(job)).state == GP_JOB_RUNNING && info.attempts == attempt, 2);
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
    RUN_CODE(125, "a", "wait", "1");
}

TEST(jobs_of_a_stopped_pool_run_in_the_next_one)
{
    stage_begin(true);
    REQUIRE(open_pool());
    write_file("hold", "");
    uint64_t running = SUBMIT("train", "while", in_root("hold")), queued = 0;

    SUBMIT("train", "while", in_root("hold"));
    queued = SUBMIT("train", "append", in_root("ran"), "0");
    CHECK(await_state(running, GP_JOB_RUNNING));
    pid_t pid = (pid_t)look(running).pid;

    RUN_CODE(0, "a", "down");
    CHECK_CONTAINS(text_of(in_root("a.out")), "3 jobs wait for the next pool");
    CHECK(!process_alive(pid));
    CHECK(access(in_root("ran"), F_OK) != 0);
    unlink(in_root("hold"));
    REQUIRE(open_pool());
    CHECK_INT(GP_JOB_DONE, wait_end(queued).state);
    gp_job_info info = wait_end(running);

    CHECK_INT(GP_JOB_DONE, info.state);
    CHECK_INT(1, info.attempts); /* an attempt ended by a shutdown does not count */
}

static int sockets_of(pid_t pid)
{
    char path[300], link[32];
    int count = 0;

    snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
    DIR *folder = opendir(path);

    for (struct dirent *entry; folder != NULL && (entry = readdir(folder)) != NULL;) {
        snprintf(path, sizeof(path), "/proc/%d/fd/%s", (int)pid, entry->d_name);
        ssize_t got = readlink(path, link, sizeof(link) - 1);

        link[got > 0 ? got : 0] = '\0';
        count += strncmp(link, "socket:", 7) == 0;
    }
    if (folder != NULL)
        closedir(folder);
    return count;
}

TEST(waiting_clients_continue_with_the_next_scheduler)
{
    stage_begin(true);
    REQUIRE(open_pool());
    uint64_t job = SUBMIT("train", "until", in_root("end"));

    CHECK(await_state(job, GP_JOB_RUNNING));
    pid_t waiter = START("a", "wait", "1"), follower = START("b", "logs", "1", "-f");

    CHECK(await_text(in_root("b.out"), "waiting"));
    AWAIT(sockets_of(waiter) >= sockets_of(follower), 5); /* the waiter is connected too */
    kill_scheduler();
    gp_sleep_ms(100);
    write_file("end", "");
    FINISH_CODE(0, "a", waiter);
    FINISH_CODE(0, "b", follower);
    CHECK_CONTAINS(text_of(in_root("a.out")), "job 1: done");
    REQUIRE(open_pool());
}

TEST(damaged_journal_disables_jobs_with_a_reason)
{
    gp_job_info info;
    uint64_t job;
    uint32_t workers;

    stage_begin(true);
    REQUIRE(shell("umask 077; d=state/$(uname -n)/default; mkdir -p $d; "
                  "yes no database at all | head -n 200 > $d/jobs.db; ln -s $d/jobs.db journal") == 0);
    REQUIRE(open_pool());
    CHECK_STATUS(GP_ECORRUPT,
                 gp_job_submit(&job, pool,
                               &(gp_job_request){ .words = (const char *const[]){ "train", NULL } }, &err));
    CHECK_CONTAINS(err.message, "jobs.db is damaged");
    CHECK_CONTAINS(err.message, "move the file away");
    CHECK_STATUS(GP_ECORRUPT, gp_job_get(&info, pool, 1, &err));
    CHECK_CONTAINS(err.message, "jobs.db is damaged");
    CHECK_STATUS(GP_ECORRUPT, gp_job_wait(&info, pool, &(uint64_t){ 1 }, 1, false, TIMEOUT_MS, NULL, &err));
    CHECK_CONTAINS(err.message, "jobs.db is damaged");
    RUN_CODE(1, "a", "jobs");
    CHECK_CONTAINS(text_of(in_root("a.err")), "jobs.db is damaged");
    RUN_CODE(0, "a", "status");
    CHECK_CONTAINS(text_of(in_root("a.out")), "pool default: 2 workers");
    CHECK_CONTAINS(text_of(in_root("a.err")), "jobs.db is damaged");
    RUN_CODE(0, "a", "metrics");
    CHECK_CONTAINS(text_of(in_root("a.out")), "\ngradpool_journal_up 0\n");
    CHECK(strstr(text_of(in_root("a.out")), "gradpool_jobs{") == NULL); /* unknown, not 0 */
    CHECK_CONTAINS(text_of(in_root("a.err")), "jobs.db is damaged");
    CHECK_STATUS(GP_OK, gp_pool_workers(pool, &workers, &err));
    CHECK_INT(2, workers);
    CHECK_CONTAINS(text_of(in_root("journal")), "no database at all");
}

TEST(journal_of_a_suspended_scheduler_is_opened_once_it_exits)
{
    const gp_job_request request = { .words = (const char *const[]){ "train", "exit", "0", NULL } };
    gp_pool *stale;
    uint64_t next = 0;

    stage_begin(true);
    REQUIRE(open_pool());
    uint64_t job = SUBMIT("train", "until", in_root("end"));

    CHECK(await_state(job, GP_JOB_RUNNING));
    pid_t pid = (pid_t)look(job).pid, old = scheduler_pid();

    kill(old, SIGSTOP);
    CHECK(unlink(in_root("run/default/lock")) == 0 && unlink(in_root("run/default/scheduler.door")) == 0);
    stale = pool;
    pool = NULL;
    REQUIRE(open_pool());
    CHECK_STATUS(GP_EBUSY, gp_job_submit(&next, pool, &request, &err));
    CHECK_CONTAINS(err.message, "jobs work two seconds after it exits");
    kill(old, SIGKILL);
    AWAIT(gp_job_submit(&next, pool, &request, &err) == GP_OK, 5);
    CHECK_INT(job + 1, next);
    CHECK_INT(GP_JOB_RUNNING, look(job).state);
    CHECK_INT(pid, look(job).pid);
    write_file("end", "");
    gp_job_info info = wait_end(job);

    CHECK_INT(GP_JOB_DONE, info.state);
    CHECK_INT(1, info.attempts);
    CHECK_INT(GP_JOB_DONE, wait_end(next).state);
    gp_pool_close(stale);
}

TEST(job_numbers_continue_after_the_journal_was_moved_away)
{
    stage_begin(true);
    REQUIRE(open_pool());
    SUBMIT("train", "exit", "0");
    uint64_t last = SUBMIT("train", "exit", "0");

    CHECK_INT(GP_JOB_DONE, wait_end(last).state);
    RUN_CODE(0, "a", "down");
    REQUIRE(shell("mv state/*/default/jobs.db away && rm -f state/*/default/jobs.db-*") == 0);
    REQUIRE(open_pool());
    CHECK_INT(last + 1, SUBMIT("train", "exit", "0")); /* the folders of the others have their results */
}

TEST(full_disk_refuses_new_jobs_and_loses_none)
{
    struct rlimit old, small;
    uint64_t acknowledged = 0, job;
    gp_job_info info;
    gp_status status = GP_OK;

    stage_begin(true);
    getrlimit(RLIMIT_FSIZE, &old);
    small = old;
    small.rlim_cur = 200 << 10;
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &small); /* for the scheduler started below */
    bool opened = open_pool();

    setrlimit(RLIMIT_FSIZE, &old);
    REQUIRE(opened);
    while (status == GP_OK && acknowledged < 1000) {
        status = gp_job_submit(
            &job, pool, &(gp_job_request){ .words = (const char *const[]){ "train", "exit", "0", NULL } },
            &err);
        if (status == GP_OK)
            acknowledged = job;
    }
    CHECK_STATUS(GP_EIO, status);
    CHECK_CONTAINS(err.message, "jobs.db");
    CHECK_CONTAINS(err.message, "new jobs are rejected");
    CHECK_STATUS(GP_EIO, gp_job_cancel(NULL, pool, 1, &err));
    CHECK_CONTAINS(err.message, "new jobs are rejected");
    REQUIRE_OK(gp_pool_shutdown(pool, false, &err), err);
    pool_wait_gone(pool, TIMEOUT_MS, &err);
    REQUIRE(open_pool());
    CHECK(acknowledged > 0);
    for (uint64_t id = 1; id <= acknowledged; id++)
        CHECK_STATUS(GP_OK, gp_job_get(&info, pool, id, &err));
    CHECK_INT(GP_JOB_DONE, wait_end(acknowledged).state);
}

TEST(background_training_continues_when_its_scheduler_is_killed)
{
    stage_begin(false);
    REQUIRE(open_pool());
    uint64_t job = SUBMIT("train", "--network", "lenet", "--data", "digits:2000", "--epochs", "6");

    CHECK(await_file(in_job(job, "metrics.jsonl")));
    kill_scheduler();
    REQUIRE(open_pool());
    gp_job_info info = wait_end(job);

    CHECK_INT(GP_JOB_DONE, info.state);
    CHECK_INT(1, info.attempts);
    CHECK_CONTAINS(text_of(in_job(job, "log")), "finished after");
    CHECK(strstr(text_of(in_job(job, "log")), "== attempt 2 ==") == NULL);
}

/* A training that resumes replaces metrics.jsonl of its run folder. */
TEST(metrics_of_a_later_attempt_are_in_the_folder_of_the_job)
{
    struct stat run = { 0 }, shown = { 0 };
    gp_job_info info;

    stage_begin(false);
    REQUIRE(open_pool());
    uint64_t job = SUBMIT("train", "--network", "lenet", "--data", "digits:2000", "--epochs", "8", "--folder",
                          "folder", "--checkpoint-path", "checkpoints", "--resume", "auto");

    REQUIRE(await_text(in_root("folder/metrics.jsonl"), "\"epoch\": 2,"));
    info = look(job);
    REQUIRE(info.pid > 0);
    kill_scheduler();
    kill((pid_t)info.pid, SIGKILL);
    while (process_alive((pid_t)info.pid))
        gp_sleep_ms(1);
    REQUIRE(open_pool());
    info = wait_end(job);
    CHECK_INT(GP_JOB_DONE, info.state);
    CHECK_INT(2, info.attempts);
    CHECK_INT(0, stat(in_root("folder/metrics.jsonl"), &run));
    CHECK_INT(0, stat(in_job(job, "metrics.jsonl"), &shown));
    CHECK_INT(run.st_ino, shown.st_ino);
    RUN_CODE(0, "a", "logs", "1", "-f", "--plots", "live");
    CHECK_CONTAINS(text_of(in_root("a.out")), "step 128/128");
}
