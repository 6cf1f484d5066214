/* test_jobs.c: background jobs with real daemons: environment, results, watching. */
#include <pty.h>
#include <sys/ioctl.h>
#include <sys/resource.h>

#include "tests/service/jobs_stage.h"

/* ---- environment of a job ---- */

TEST(job_has_the_directory_umask_and_variables_of_its_submitter)
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
    const char *shown = text_of(in_root("here/shown"));

    snprintf(line, sizeof(line), "directory %s\n", in_root("here"));
    CHECK_CONTAINS(shown, line);
    CHECK_CONTAINS(shown, "umask 027\n");
    CHECK_CONTAINS(shown, "LC_TIME=C.UTF-8\n");
    CHECK_CONTAINS(shown, "GRADPOOL_POOL=default\n");
    CHECK_CONTAINS(shown, "GRADPOOL_JOB=1\n");
    snprintf(line, sizeof(line), "GRADPOOL_METRICS=%s\n", in_job(job, "metrics.jsonl"));
    CHECK_CONTAINS(shown, line);
    CHECK(strstr(shown, "A_SECRET") == NULL);

    /* only for the job process, not for child processes */
    CHECK(strstr(shown, "GRADPOOL_JOB_") == NULL);
    unsetenv("LC_TIME");
    unsetenv("A_SECRET");
    REQUIRE(chdir("/") == 0);
}

TEST(job_has_the_soft_limit_on_descriptors_of_its_pool)
{
    struct rlimit old, soft;
    char path[40];

    stage_begin(true);
    getrlimit(RLIMIT_NOFILE, &old);
    soft = old;
    soft.rlim_cur = 1000;
    setrlimit(RLIMIT_NOFILE, &soft); /* for the scheduler started below, which raises its own */
    bool opened = open_pool();

    setrlimit(RLIMIT_NOFILE, &old);
    REQUIRE(opened);
    uint64_t job = SUBMIT("train", "until", in_root("end"));

    CHECK(await_state(job, GP_JOB_RUNNING));
    snprintf(path, sizeof(path), "/proc/%u/limits", look(job).pid);
    CHECK_CONTAINS(text_of(path), "Max open files            1000 ");
    write_file("end", "");
    CHECK_INT(GP_JOB_DONE, wait_end(job).state);
}

/* The library refuses such names, so the test sends a message to the scheduler directly. */
TEST(a_job_name_with_control_characters_is_refused)
{
    static const gp_payload payloads[] = { { .data = "train", .bytes = 6 },
                                           { .data = "", .bytes = 0 },
                                           { .data = "/tmp", .bytes = 5 } };
    gp_job_put put = { .seq = 1, .name = "a\n9  root  done  forged" };
    uint64_t job, correlation = 0;
    pool_message reply = { .from = POOL_NOBODY };
    gp_error e;

    stage_begin(true);
    REQUIRE(open_pool());
    CHECK_STATUS(GP_EINVAL, gp_job_submit(&job, pool,
                                          &(gp_job_request){ .words = (const char *const[]){ "train", NULL },
                                                             .name = put.name },
                                          &e));
    CHECK_CONTAINS(e.message, "the job name contains a control character");
    REQUIRE_OK(pool_post_with(pool, &gp_msg_job_put, &put, payloads, 3, &correlation, &e), e);
    for (int64_t until = gp_now_ms() + POOLS_TIMEOUT_MS;
         (reply.from == POOL_NOBODY || reply.in.envelope.correlation != correlation) &&
         gp_now_ms() < until;) {
        pool_message_close(&reply);
        REQUIRE_OK(pool_next(pool, &reply, 1000, &e), e);
    }
    REQUIRE(reply.from != POOL_NOBODY && reply.in.type == &gp_msg_error_reply);
    CHECK_STATUS(GP_EINVAL, pool_error_from(&reply.in, &e));
    CHECK_CONTAINS(e.message, "the job name contains a control character");
    pool_message_close(&reply);
}

static int64_t wall_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

TEST(job_rows_have_the_time_of_submission)
{
    stage_begin(true);
    REQUIRE(open_pool());
    const int64_t before_ms = wall_ms();
    const uint64_t job = SUBMIT("train", "exit", "0");
    const int64_t after_ms = wall_ms(), submitted_ms = look(job).submitted_ms;

    CHECK(submitted_ms >= before_ms && submitted_ms <= after_ms);
    CHECK_INT(submitted_ms, wait_end(job).submitted_ms);
}

TEST(exit_reason_of_a_job_is_reported)
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
    CHECK_INT(1, info.attempts); /* it failed without a worker failure */
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
    CHECK_CONTAINS(info.reason, "cannot enter the working directory /no/such/folder: No such file");
    CHECK_INT(1, info.exit_code); /* of the process of the job: the scheduler does not look there */
    CHECK_STATUS(GP_ENOENT, gp_job_get(&info, pool, 77, &err));
    CHECK_CONTAINS(err.message, "job 77 does not exist");
}

TEST(jobs_wait_while_the_command_is_being_replaced)
{
    stage_begin(true);
    CHECK(symlink(getenv("GRADPOOL_CLIENT"), in_root("command")) == 0);
    setenv("GRADPOOL_CLIENT", in_root("command"), 1);
    REQUIRE(open_pool());
    CHECK(rename(in_root("command"), in_root("away")) == 0);
    uint64_t first = SUBMIT("train", "exit", "0"), second = SUBMIT("train", "exit", "0");
    gp_job_info info = { 0 };

    AWAIT(strstr((info = look(first)).reason, "queued again") != NULL || info.state == GP_JOB_FAILED, 2);
    CHECK_INT(GP_JOB_QUEUED, info.state);
    CHECK_CONTAINS(info.reason, "cannot run GRADPOOL_CLIENT=");
    CHECK(rename(in_root("away"), in_root("command")) == 0);
    CHECK_INT(GP_JOB_DONE, wait_end(first).state);
    info = wait_end(second);
    CHECK_INT(GP_JOB_DONE, info.state);
    CHECK_INT(1, info.attempts);
}

TEST(job_whose_folder_is_unusable_fails_and_others_start)
{
    stage_begin(true);
    REQUIRE(open_pool());
    CHECK(shell("ln -s /no/such/folder $(echo state/*/default/jobs)/1") == 0);
    uint64_t bad = SUBMIT("train", "exit", "0"), good = SUBMIT("train", "exit", "0");
    gp_job_info info = wait_end(good);

    CHECK_INT(1, bad);
    CHECK_INT(GP_JOB_DONE, info.state);
    info = wait_end(bad);
    CHECK_INT(GP_JOB_FAILED, info.state);
    CHECK_CONTAINS(info.reason, "cannot open the job's log ");
    CHECK_CONTAINS(info.reason, "jobs/1/log: No such file or directory");
}

TEST(the_command_waits_with_the_exit_code_of_the_job)
{
    stage_begin(true);
    REQUIRE(open_pool());
    SUBMIT("train", "exit", "7");
    SUBMIT("train", "abort");
    SUBMIT("train", "exit", "0");
    uint64_t long_one = SUBMIT("train", "until", in_root("end"));

    RUN_CODE(7, "a", "wait", "1");
    CHECK_CONTAINS(text_of(in_root("a.out")), "job 1: failed");
    RUN_CODE(128 + SIGABRT, "a", "wait", "2");
    RUN_CODE(0, "a", "wait", "3");
    RUN_CODE(0, "a", "wait", "3", "4", "--any", "--quiet");
    RUN_CODE(7, "a", "wait", "3", "1", "2");
    RUN_CODE(124, "a", "wait", "4", "--timeout", "0.1");
    RUN_CODE(125, "a", "wait", "99");
    RUN_CODE(2, "a", "wait", "x");
    write_file("end", "");
    CHECK_INT(GP_JOB_DONE, wait_end(long_one).state);
}

TEST(invalid_commands_are_refused_before_they_are_recorded)
{
    stage_begin(true);
    RUN_CODE(2, "a", "submit", "--", "trian", "--network", "lenet");
    CHECK_CONTAINS(text_of(in_root("a.err")), "did you mean 'train'?");
    RUN_CODE(2, "a", "submit", "--", "train", "--network", "lenet");
    CHECK_CONTAINS(text_of(in_root("a.err")), "--data is missing");
    RUN_CODE(2, "a", "submit", "--", "train", "--network", "lenet", "--data", "digits", "--epochs", "many");
    RUN_CODE(2, "a", "submit", "--", "down");
    RUN_CODE(2, "a", "submit", "--", "train", "--pool", "x");
    RUN_CODE(2, "a", "submit");
    RUN_CODE(1, "a", "jobs"); /* no pool was started */
}

TEST(jobs_beyond_the_number_of_workers_wait)
{
    uint64_t jobs[8];
    gp_job_info infos[8];

    stage_begin(true);
    mkdir(in_root("there"), 0700);
    REQUIRE(open_pool());
    for (int i = 0; i < 8; i++)
        jobs[i] = SUBMIT("train", "count", in_root("there"), "20");
    REQUIRE_OK(gp_job_wait(infos, pool, jobs, 8, false, TIMEOUT_MS, NULL, &err), err);
    for (int i = 0; i < 8; i++)
        CHECK_INT(GP_JOB_DONE, infos[i].state);
}

/* A single watch serves all of them, and the queries of their states discard its notifications. */
TEST(a_wait_for_many_jobs_misses_no_end)
{
    enum { MANY = 80 };
    uint64_t jobs[MANY];
    gp_job_info infos[MANY];

    stage_begin(true);
    REQUIRE(open_pool());
    for (int i = 0; i < MANY; i++)
        jobs[i] = SUBMIT("train", "exit", "0");
    REQUIRE_OK(gp_job_wait(infos, pool, jobs, MANY, false, TIMEOUT_MS, NULL, &err), err);
    for (int i = 0; i < MANY; i++)
        CHECK_INT(GP_JOB_DONE, infos[i].state);
}

TEST(waits_that_time_out_leave_room_for_others)
{
    enum { MANY = 70 };
    gp_job_info info;

    stage_begin(true);
    REQUIRE(open_pool());
    for (int i = 0; i < MANY; i++) {
        const uint64_t job = SUBMIT("train", "until", in_root("end"));

        CHECK_STATUS(GP_ETIMEDOUT, gp_job_wait(&info, pool, &job, 1, false, 1, NULL, &err));
    }
}

TEST(repeated_submit_returns_the_same_job)
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
}

/* Submit a job of a kind with words for tests/fake/job.c. */
static uint64_t submit_kind(gp_job_kind kind, const char *const *words)
{
    uint64_t job = 0;

    if (gp_job_submit(&job, pool, &(gp_job_request){ .words = words, .kind = kind }, &err) != GP_OK)
        GP_TEST_FAIL("submit: %s", err.message);
    return job;
}

TEST(sweeps_run_beside_one_job_per_worker_and_restart_after_a_kill)
{
    stage_begin(true);
    REQUIRE(open_pool());
    write_file("hold", "");
    const char *const hold[] = { "train", "while", in_root("hold"), NULL };
    uint64_t sweeps[3], trial;

    for (int i = 0; i < 3; i++) /* more than the two workers */
        sweeps[i] = submit_kind(GP_JOB_SWEEP, hold);
    trial = submit_kind(GP_JOB_TRIAL, hold);
    CHECK(await_state(sweeps[2], GP_JOB_RUNNING) && await_state(trial, GP_JOB_RUNNING));
    CHECK_INT(GP_JOB_SWEEP, look(sweeps[0]).kind);
    RUN_CODE(0, "a", "jobs");
    CHECK_CONTAINS(text_of(in_root("a.out")), "trials of sweeps: 1");
    RUN_CODE(0, "a", "jobs", "--trials", "--json");
    CHECK_CONTAINS(text_of(in_root("a.out")), "\"kind\": \"trial\"");
    RUN_CODE(0, "a", "jobs", "--json");
    CHECK(strstr(text_of(in_root("a.out")), "trial") == NULL);
    CHECK_CONTAINS(text_of(in_root("a.out")), "\"kind\": \"sweep\"");

    pid_t killed = (pid_t)look(sweeps[0]).pid;

    kill(killed, SIGKILL);
    AWAIT(look(sweeps[0]).attempts == 2 && look(sweeps[0]).state == GP_JOB_RUNNING, 2);
    CHECK_INT(2, look(sweeps[0]).attempts);
    kill_scheduler(); /* the kinds are in the journal */
    REQUIRE(open_pool());
    CHECK_INT(GP_JOB_SWEEP, look(sweeps[0]).kind);
    CHECK_INT(GP_JOB_TRIAL, look(trial).kind);
    unlink(in_root("hold"));
    for (int i = 0; i < 3; i++)
        CHECK_INT(GP_JOB_DONE, wait_end(sweeps[i]).state);
    CHECK_INT(GP_JOB_DONE, wait_end(trial).state);
}

/* ---- canceling ---- */

TEST(queued_and_running_jobs_are_canceled)
{
    uint32_t count;

    stage_begin(true);
    REQUIRE(open_pool());
    write_file("hold", "");
    uint64_t first = SUBMIT("train", "while", in_root("hold")), second;

    SUBMIT("train", "while", in_root("hold"));
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
    RUN_CODE(130, "a", "wait", "1");
    RUN_CODE(0, "a", "cancel", "--all");
    CHECK_CONTAINS(text_of(in_root("a.out")), "canceled 0 jobs");
    RUN_CODE(1, "a", "cancel", "44");
    CHECK_CONTAINS(text_of(in_root("a.err")), "job 44 does not exist");
}

/* ---- watching ---- */

TEST(two_terminals_watch_one_job_and_leaving_has_no_effect)
{
    stage_begin(true);
    REQUIRE(open_pool());
    uint64_t job = SUBMIT("train", "print", "30", in_root("end"));

    CHECK(await_state(job, GP_JOB_RUNNING));
    pid_t one = START("one", "logs", "1", "-f"), two = START("two", "logs", "-f", "1"),
          three = START("three", "logs", "1", "--follow");

    CHECK(await_text(in_root("three.out"), "line 30\n"));
    kill(three, SIGINT);
    FINISH_CODE(130, "three", three);
    CHECK_CONTAINS(text_of(in_root("three.err")), "detached; job 1 continues");
    write_file("end", "");
    FINISH_CODE(0, "one", one);
    FINISH_CODE(0, "two", two);
    CHECK_CONTAINS(text_of(in_root("one.out")), "line 1\nline 2\n");
    CHECK_CONTAINS(text_of(in_root("one.out")), "line 31\n");
    CHECK_CONTAINS(text_of(in_root("one.err")), "job 1: done");
    char *first = strdup(text_of(in_root("one.out")));

    CHECK_TEXT(first, text_of(in_root("two.out")));
    free(first);
    CHECK_INT(GP_JOB_DONE, wait_end(job).state);
    RUN_CODE(0, "late", "logs", "1"); /* from the history, long after the end */
    CHECK_CONTAINS(text_of(in_root("late.out")), "line 31\n");
    REQUIRE_OK(gp_pool_shutdown(pool, false, &err), err);
    pool_wait_gone(pool, TIMEOUT_MS, &err);
    RUN_CODE(0, "late", "logs", "1"); /* even without a pool */
    CHECK_CONTAINS(text_of(in_root("late.out")), "line 31\n");
    CHECK_CONTAINS(text_of(in_root("late.err")), "no pool is running");
    RUN_CODE(1, "late", "logs", "2");
}

TEST(every_listing_shows_jobs)
{
    gp_json *json = NULL;

    stage_begin(true);
    REQUIRE(open_pool());
    uint64_t job = SUBMIT("train", "until", in_root("end")), other = SUBMIT("train", "until", in_root("end"));

    SUBMIT("train", "exit", "3");
    CHECK(await_state(job, GP_JOB_RUNNING) && await_state(other, GP_JOB_RUNNING));
    FILE *metrics = fopen(in_job(job, "metrics.jsonl"), "w");

    REQUIRE(metrics != NULL);
    fputs("{\"name\": \"x\", \"step\": 7, \"objective\": 0.25}\n", metrics);
    fclose(metrics);
    RUN_CODE(0, "a", "jobs");
    CHECK_CONTAINS(text_of(in_root("a.out")), "running");
    CHECK_CONTAINS(text_of(in_root("a.out")), "queued");
    RUN_CODE(0, "a", "jobs", "--json");
    const char *text = text_of(in_root("a.out"));

    REQUIRE_OK(gp_json_parse(&json, text, strlen(text), &err), err);
    CHECK_INT(3, gp_json_count(json));

    /* newest first */
    CHECK_INT(3, gp_json_integer(gp_json_member(gp_json_element(json, 0), "job"), 0));
    CHECK_TEXT("queued", gp_json_text(gp_json_member(gp_json_element(json, 0), "state"), ""));
    gp_json_free(json);
    RUN_CODE(0, "a", "status", "--json");
    text = text_of(in_root("a.out"));
    REQUIRE_OK(gp_json_parse(&json, text, strlen(text), &err), err);
    CHECK_INT(3, gp_json_count(gp_json_member(json, "jobs")));
    gp_json_free(json);
    RUN_CODE(0, "a", "top", "--once");
    CHECK_CONTAINS(text_of(in_root("a.out")), "jobs: 2 running, 1 queued, 0 done");
    CHECK_CONTAINS(text_of(in_root("a.out")), "step 7, objective 0.2500");
    CHECK_INT(0, child_exit_code(start_command("a", (const char *const[]){ NULL })));
    CHECK_CONTAINS(text_of(in_root("a.out")), "jobs: 2 running, 1 queued");
    CHECK_CONTAINS(text_of(in_root("a.out")), "gradpool logs 2 -f");
    write_file("end", "");
    CHECK_INT(GP_JOB_FAILED, wait_end(3).state);
    CHECK_INT(GP_JOB_DONE, wait_end(job).state);
    CHECK_INT(GP_JOB_DONE, wait_end(other).state);
    RUN_CODE(0, "a", "jobs");
    CHECK_CONTAINS(text_of(in_root("a.out")), "no running or queued jobs");
    CHECK_CONTAINS(text_of(in_root("a.out")), "ended: 3 (2 done, 1 failed");
    RUN_CODE(0, "a", "jobs", "--all");
    CHECK_CONTAINS(text_of(in_root("a.out")), "failed");
}

/* Run a command on a terminal of the type `term` and return the output; press `key` once `text` was
 * displayed. */
static int on_terminal(const char *term, char *shown, size_t bytes, const char *const *words,
                       const char *text, char key)
{
    struct winsize size = { .ws_row = 30, .ws_col = 100 };
    size_t used = 0;
    bool pressed = false;
    int terminal, code;
    pid_t child = forkpty(&terminal, NULL, NULL, &size);

    if (child == 0) {
        setenv("TERM", term, 1);
        execv(in_build("bin/gradpool"), (char *const *)(uintptr_t)words);
        _exit(98);
    }
    for (ssize_t got; used + 1 < bytes && (got = read(terminal, shown + used, bytes - 1 - used)) > 0;) {
        used += (size_t)got;
        shown[used] = '\0';
        if (!pressed && strstr(shown, text) != NULL)
            pressed = write(terminal, &key, 1) == 1;
    }
    close(terminal);
    code = child_exit_code(child);
    if (code != 0)
        printf("     shown, at its end: %s\n", used > 200 ? shown + used - 200 : shown);
    return code;
}

TEST(top_draws_on_a_terminal_until_q_is_pressed)
{
    static char shown[1 << 16];

    stage_begin(true);
    REQUIRE(open_pool());
    uint64_t job = SUBMIT("train", "until", in_root("end"));

    CHECK(await_state(job, GP_JOB_RUNNING));
    CHECK_INT(0, on_terminal("xterm", shown, sizeof(shown),
                             (const char *const[]){ "gradpool", "top", "--interval", "0.1", NULL },
                             "jobs: 1 running", 'q'));
    CHECK_CONTAINS(shown, "\033[?1049h"); /* on the alternate screen, which is left at the end */
    CHECK_CONTAINS(shown, "\033[?1049l");
    CHECK_CONTAINS(shown, "pool default: 2 workers");
    CHECK_INT(0, on_terminal("xterm", shown, sizeof(shown), (const char *const[]){ "gradpool", "top", NULL },
                             "jobs: 1 running", '\003')); /* Ctrl-C */

    /* once, as to a file */
    CHECK_INT(0, on_terminal("dumb", shown, sizeof(shown), (const char *const[]){ "gradpool", "top", NULL },
                             "jobs: 1 running", 'q'));
    CHECK(strchr(shown, '\033') == NULL);
    write_file("end", "");
    CHECK_INT(GP_JOB_DONE, wait_end(job).state);
}

/* ---- the real command ---- */

/* The shutdown precedes the request of the job for workers. */
TEST(shutdown_when_idle_lets_a_starting_job_run)
{
    stage_begin(false);
    REQUIRE(open_pool());
    uint64_t job = SUBMIT("train", "--network", "lenet", "--data", "digits:200", "--epochs", "1");

    REQUIRE(await_state(job, GP_JOB_RUNNING));
    REQUIRE_OK(gp_pool_shutdown(pool, true, &err), err);
    AWAIT(shell("test -z \"$(find run -name record)\"") == 0, 20);
    REQUIRE(open_pool());
    CHECK_INT(GP_JOB_DONE, look(job).state);
    CHECK_INT(1, look(job).attempts);
}

TEST(a_training_in_a_job_keeps_its_model_in_the_jobs_folder)
{
    stage_begin(false);
    REQUIRE(open_pool());
    uint64_t job =
        SUBMIT("train", "--network", "lenet", "--data", "digits:1000", "--epochs", "1", "--workers", "2");
    gp_job_info info = wait_end(job);

    CHECK_INT(GP_JOB_DONE, info.state);
    CHECK_INT(2, info.workers);
    CHECK(access(in_job(job, "result/model.onnx"), R_OK) == 0);
    CHECK_CONTAINS(text_of(in_job(job, "metrics.jsonl")), "\"step\": 1,");
    CHECK_CONTAINS(text_of(in_job(job, "log")), "finished after");
    CHECK_CONTAINS(text_of(in_job(job, "job.json")), "\"state\": \"ended\"");
    CHECK(access(in_root("gradpool-runs"), F_OK) != 0);
}

/* Start the command with standard output connected to *out. */
static pid_t piped(int *out, const char *const *words)
{
    int ends[2];

    if (pipe2(ends, O_CLOEXEC) != 0)
        abort();
    pid_t child = fork();

    if (child == 0) {
        dup2(ends[1], STDOUT_FILENO);
        execv(getenv("GRADPOOL_CLIENT"), (char *const *)(uintptr_t)words);
        _exit(98);
    }
    close(ends[1]);
    *out = ends[0];
    return child;
}

TEST(interrupt_does_not_truncate_output)
{
    enum { BYTES = 200000 };
    static char text[1 << 16];
    struct stat log = { .st_size = 0 };
    int out, full = 0;
    size_t bytes = 0;

    stage_begin(false);
    REQUIRE(open_pool());
    SUBMIT("spmd", "-n", "1", "--",
           "yes a-line-of-words | head -c 200000; while [ ! -e end ]; do sleep 0.02; done");
    AWAIT(stat(in_job(1, "log"), &log) == 0 && log.st_size >= BYTES, 10);
    CHECK(log.st_size >= BYTES);
    pid_t child = piped(&out, (const char *const[]){ "gradpool", "logs", "1", "-f", NULL });
    int capacity = fcntl(out, F_GETPIPE_SZ);

    AWAIT(ioctl(out, FIONREAD, &full) != 0 || full >= capacity / 2, 10);
    CHECK(full >= capacity / 2);
    gp_sleep_ms(100); /* normally blocked in write() by now; otherwise interrupted before */
    kill(child, SIGINT);
    gp_sleep_ms(50);
    for (ssize_t got; (got = read(out, text, sizeof(text))) > 0;)
        bytes += (size_t)got;
    close(out);
    CHECK_INT(130, child_exit_code(child));
    CHECK(bytes >= BYTES);
    write_file("end", "");
    CHECK_INT(GP_JOB_DONE, wait_end(1).state);
}

TEST(lease_with_a_higher_priority_is_granted_first)
{
    stage_begin(false);
    REQUIRE(open_pool());
    pid_t holder = START("a", "spmd", "--", "while [ ! -e go ]; do sleep 0.01; done");

    for (uint32_t wanted = 1; wanted <= 3; wanted++) {
        if (wanted == 2)
            SUBMIT("spmd", "-n", "1", "--", "echo low >> order");
        if (wanted == 3)
            SUBMIT("spmd", "--workers", "2", "--priority", "5", "--", "echo high >> order");
        AWAIT(pools_leases(pool) == wanted, 5);
        CHECK_INT(wanted, pools_leases(pool));
    }
    write_file("go", "");
    FINISH_CODE(0, "a", holder);
    CHECK_INT(GP_JOB_DONE, wait_end(1).state);
    CHECK_INT(GP_JOB_DONE, wait_end(2).state);
    CHECK_TEXT("high\nhigh\nlow\n", text_of(in_root("order")));
}

TEST(canceled_job_leaves_no_process)
{
    stage_begin(false);
    REQUIRE(open_pool());
    uint64_t job = SUBMIT("spmd", "-n", "1", "--", "echo $$ > shell; sleep 100");
    char text[40] = "";

    CHECK(await_file(in_root("shell")));
    while (text[0] == '\0')
        snprintf(text, sizeof(text), "%s", text_of(in_root("shell")));
    REQUIRE_OK(gp_job_cancel(NULL, pool, job, &err), err);
    CHECK_INT(GP_JOB_CANCELED, wait_end(job).state);
    AWAIT(!process_alive((pid_t)atoi(text)), 5);
    CHECK(!process_alive((pid_t)atoi(text)));
}

TEST(cancel_without_grace_kills_a_job_that_ignores_the_request)
{
    stage_begin(false);
    REQUIRE(open_pool());
    uint64_t job =
        SUBMIT("spmd", "-n", "1", "--", "trap '' TERM; echo $$ > shell; sleep 100 & wait; sleep 100");
    uint32_t count = 0;
    char text[40] = "";

    CHECK(await_file(in_root("shell")));
    while (text[0] == '\0')
        snprintf(text, sizeof(text), "%s", text_of(in_root("shell")));
    CHECK_STATUS(GP_EINVAL, gp_job_cancel_grace(&count, pool, job, -1, &err));
    CHECK_CONTAINS(err.message, "the grace period is -1 ms");
    RUN_CODE(0, "a", "cancel", "1", "--grace", "3600");
    CHECK_CONTAINS(text_of(in_root("a.out")), "canceled 1 job");
    RUN_CODE(0, "a", "cancel", "1", "--grace", "0");
    CHECK_CONTAINS(text_of(in_root("a.out")), "canceled 1 job");
    gp_job_info info = wait_end(job);

    CHECK_INT(GP_JOB_CANCELED, info.state);
    CHECK_INT(SIGKILL, info.signal);
    AWAIT(!process_alive((pid_t)atoi(text)), 5);
    CHECK(!process_alive((pid_t)atoi(text)));
}

TEST(second_terminal_shows_the_picture_of_a_training)
{
    stage_begin(false);
    REQUIRE(open_pool());
    uint64_t job = SUBMIT("train", "--network", "lenet", "--data", "digits:1000", "--epochs", "6");

    RUN_CODE(0, "a", "logs", "1", "-f", "--plots", "live");
    CHECK_CONTAINS(text_of(in_root("a.out")), "images/s");
    CHECK_CONTAINS(text_of(in_root("a.out")), "step 48/48");
    CHECK_CONTAINS(text_of(in_root("a.out")), "finished after 48 steps");
    CHECK_CONTAINS(text_of(in_root("a.out")), "result/model.onnx");

    /* from the history, long after the end */
    RUN_CODE(0, "a", "logs", "1", "-f", "--plots", "live");
    CHECK_CONTAINS(text_of(in_root("a.out")), "step 48/48");
    CHECK_CONTAINS(text_of(in_root("a.out")), "finished after 48 steps");
    CHECK_INT(GP_JOB_DONE, wait_end(job).state);
}

TEST(canceled_training_keeps_its_model)
{
    stage_begin(false);
    REQUIRE(open_pool());
    uint64_t job = SUBMIT("train", "--network", "lenet", "--data", "digits:2000", "--epochs", "100000");

    CHECK(await_file(in_job(job, "metrics.jsonl")));
    REQUIRE_OK(gp_job_cancel(NULL, pool, job, &err), err);
    gp_job_info info = wait_end(job);

    CHECK_INT(GP_JOB_CANCELED, info.state);
    CHECK_INT(130, info.exit_code);
    CHECK(access(in_job(job, "result/model.onnx"), R_OK) == 0);
}
