/* test_report.c: the report of a failed run, as shown by `gradpool report`: bounded, readable,
 * without secrets. */
#include "common/base/text/json.h"
#include "tests/fault/stage.h"

#define TRAIN                                                                                                \
    "train", "--network", "lenet", "--data", "digits:600", "--max-epochs", "3", "--mini-batch-size", "60",   \
        "--max-restarts", "0"

static const char canary[] = "/canary/Zk81-QwErTy-secret"; /* not the path of a file */

TEARDOWN()
{
    unsetenv("AWS_SECRET_ACCESS_KEY");
    STAGE_RUN("down");
    stage_check_left();
    stage_end();
}

/* Return the path of the only run in gradpool-runs. */
static const char *run_path(void)
{
    static char path[400];
    DIR *directory = opendir(in_root("w/gradpool-runs"));

    path[0] = '\0';
    for (struct dirent *entry; directory != NULL && (entry = readdir(directory)) != NULL;)
        if (entry->d_name[0] != '.' && strcmp(entry->d_name, "latest") != 0)
            snprintf(path, sizeof(path), "gradpool-runs/%s", entry->d_name);
    if (directory != NULL)
        closedir(directory);
    return path;
}

/* Return the path of a file of that run. */
static const char *in_run(const char *name)
{
    return path_in(path_in(in_root("w"), run_path()), name);
}

static bool has_log(const gp_json *report, const char *name)
{
    const gp_json *logs = gp_json_member(report, "logs");

    for (size_t i = 0; i < gp_json_count(logs); i++)
        if (strcmp(gp_json_text(gp_json_member(gp_json_element(logs, i), "name"), ""), name) == 0)
            return gp_json_text(gp_json_member(gp_json_element(logs, i), "tail"), "")[0] != '\0';
    return false;
}

static void check_report(const char *run)
{
    gp_json *report = NULL;
    gp_error err;

    REQUIRE(STAGE_RUN("report", run, "--json") == 0);
    REQUIRE_OK(gp_json_parse(&report, stage_out, strlen(stage_out), &err), err);
    CHECK_CONTAINS(gp_json_text(gp_json_member(gp_json_member(report, "error"), "message"), ""), "worker 2");
    CHECK_TEXT("GP_EPEER", gp_json_text(gp_json_member(gp_json_member(report, "error"), "status"), ""));
    CHECK_INT(2, gp_json_integer(gp_json_member(gp_json_member(report, "topology"), "workers"), 0));
    CHECK(gp_json_count(gp_json_member(gp_json_member(report, "run"), "arguments")) >= 10);
    CHECK(gp_json_count(gp_json_member(report, "last_steps")) >= 2);
    CHECK(gp_json_member(gp_json_element(gp_json_member(report, "last_steps"), 0), "time") != NULL);
    CHECK(has_log(report, "scheduler.log") && has_log(report, "worker-1.log") &&
          has_log(report, "worker-2.log"));
    CHECK_CONTAINS(gp_json_text(gp_json_member(gp_json_member(report, "versions"), "gradpool"), ""),
                   "gradpool");
    gp_json_free(report);
    CHECK_INT(0, STAGE_RUN("report", run));
    CHECK_CONTAINS(stage_out, "worker 2");
    CHECK_CONTAINS(stage_out, "last steps");
    CHECK_CONTAINS(stage_out, "--max-restarts");
}

static void await_worker_1(void)
{
    AWAIT(shell("grep -q event=training-ended state/*/default/log/worker-1.log") == 0, 10);
}

/* Remove the report of the run, and check that a new one contains the last step of the worker that
 * survived. A run writes its report when it fails; a worker that is descheduled logs its last step
 * later. */
static void check_new_report(const char *run)
{
    gp_json *report = NULL;
    gp_error err;

    await_worker_1();
    CHECK_INT(0, shell("find . -name report.json -delete"));
    REQUIRE(STAGE_RUN("report", run, "--json") == 0);
    REQUIRE_OK(gp_json_parse(&report, stage_out, strlen(stage_out), &err), err);
    CHECK(gp_json_count(gp_json_member(report, "exchange")) >= 1);
    CHECK_CONTAINS(gp_json_text(gp_json_element(gp_json_member(report, "exchange"), 0), ""), "worker-1");
    gp_json_free(report);
    CHECK_INT(0, STAGE_RUN("report", run));
    CHECK_CONTAINS(stage_out, "training ended in step");
}

TEST(failed_training_leaves_a_report)
{
    struct stat facts;

    REQUIRE(stage_up("forward:9:kill@2.1"));
    CHECK_INT(1, STAGE_RUN(TRAIN));
    CHECK_CONTAINS(stage_err, "gradpool report gradpool-runs/");
    check_report(run_path());
    CHECK(stat(in_run("report.json"), &facts) == 0 && facts.st_size > 1000 && facts.st_size < 1 << 20);
    CHECK_INT(0, STAGE_RUN("report", run_path(), "--out", "r.tar"));
    CHECK_INT(0, shell("cd w && tar xf r.tar && test -s report/report.json && "
                       "test -s report/logs/worker-2.log"));
    check_new_report(run_path());
}

static bool await_told(const char *text)
{
    AWAIT(stage_told(text), 10);
    return stage_told(text);
}

/* Start a pool and a client that is suspended before the training starts, until a fault was
 * injected into a worker. */
static pid_t start_held_up(const char *const *words, const char *fault, const char *reported)
{
    char faults[100];

    snprintf(faults, sizeof(faults), "loading:1:stop@2.1,%s", fault);
    CHECK(stage_up(faults));
    pid_t client = stage_start(NULL, words);

    CHECK(await_told("loading stop"));
    kill(client, SIGSTOP);
    stage_continue(0);
    CHECK(await_told(reported));
    return client;
}

/* The client reads about the worker failure first, and then that the training had started. */
TEST(training_that_fails_while_its_client_is_suspended_leaves_a_report)
{
    static const char *const words[] = { TRAIN, NULL };
    pid_t client;

    client = start_held_up(words, "forward:9:kill@2.1", "forward kill");
    kill(client, SIGCONT);
    CHECK_INT(1, stage_finish(client, 0));
    CHECK_CONTAINS(stage_err, "the last step that all workers completed is 8");
    CHECK_CONTAINS(stage_err, "gradpool report gradpool-runs/");
    check_report(run_path());
}

/* Wait until the scheduler knows this or a later process of a worker, and this training step.
 * Return the pid of the process; 0: the deadline passed. */
static pid_t await_worker(uint32_t index, uint32_t incarnation, uint64_t step)
{
    gp_timeout timeout = gp_timeout_in(POOLS_TIMEOUT_MS);
    gp_status_reply *reply;
    gp_pool *pool;
    pid_t pid = 0;

    if (gp_pool_open(&pool, &(gp_pool_options){ .attach_only = true }, NULL) != GP_OK)
        return 0;
    while (pid == 0 && gp_timeout_left(timeout) > 0 && pool_status(pool, &reply, NULL) == GP_OK) {
        for (uint32_t i = 0; i < reply->workers_count; i++)
            if (reply->workers[i].slot.index == index && reply->workers[i].slot.incarnation >= incarnation &&
                reply->workers[i].step >= step)
                pid = (pid_t)reply->workers[i].slot.pid;
        gp_free(reply);
        gp_sleep_ms(2);
    }
    gp_pool_close(pool);
    return pid;
}

/* Rank 0 is killed after it has taken all steps. The suspended client has not read its messages,
 * and they are lost with the link. */
TEST(steps_of_a_failed_rank_are_reported_from_the_other_rank)
{
    static const char *const words[] = { TRAIN, NULL };
    pid_t client, worker;

    client = start_held_up(words, "done:1:hang@1.1", "done hang");
    worker = await_worker(1, 1, 30);
    REQUIRE(worker > 0);
    kill(worker, SIGKILL);
    CHECK(await_worker(1, 2, 0) > 0);
    kill(client, SIGCONT);
    CHECK_INT(1, stage_finish(client, 0));
    CHECK_CONTAINS(stage_err, "the last step that all workers completed is 30");
    CHECK_CONTAINS(stage_err, "gradpool report gradpool-runs/");
}

static int count_lines(const char *pattern, const char *path)
{
    return WEXITSTATUS(shell("exit $(grep -c '%s' %s)", pattern, path));
}

/* The client reads that one worker exited and the other one finished before it reads that both
 * were ready. Nothing is reported before the run folder is open, and nothing is lost: 30 steps,
 * and a validation after each of the 3 epochs. Worker 2 exits after worker 1 has taken all
 * steps: a client that reads of an exit while worker 1 still trains stops the training, because
 * --max-restarts is 0. */
TEST(a_suspended_client_reports_all_steps_and_validations)
{
    static const char *const words[] = { TRAIN, "--metrics", "m.jsonl", "--out", "m.onnx", NULL };
    pid_t client, worker;

    client = start_held_up(words, "done:1:hang@2.1", "done hang");
    CHECK(await_worker(1, 1, 30) > 0);
    worker = await_worker(2, 1, 0);
    REQUIRE(worker > 0);
    kill(worker, SIGKILL);
    CHECK(await_worker(2, 2, 0) > 0);
    kill(client, SIGCONT);
    CHECK_INT(0, stage_finish(client, 0));
    CHECK_INT(33, count_lines("\"step\"", in_root("w/m.jsonl")));
    CHECK_INT(3, count_lines("\"step\": [123]0, .*\"validation_loss\"", in_root("w/m.jsonl")));
}

/* The worker's last log lines are in a file that was rotated since. */
TEST(report_includes_rotated_log_files)
{
    REQUIRE(stage_up("forward:9:kill@2.1"));
    REQUIRE(STAGE_RUN("submit", "--", TRAIN) == 0);
    CHECK(STAGE_RUN("wait", "1") != 0);
    await_worker_1();
    REQUIRE(shell("cd state/*/default/log && for f in worker-1 scheduler; do mv $f.log $f.log.1; "
                  "echo 'time=now of the new file' > $f.log; done && rm -f ../jobs/1/report.json") == 0);
    CHECK(STAGE_RUN("report", "1") == 0);
    CHECK_CONTAINS(stage_out, "training ended in step");
    CHECK_CONTAINS(stage_out, "of the new file");
    CHECK(STAGE_RUN("report", "1", "--json") == 0);
    CHECK_CONTAINS(stage_out, "event=lease-served lease=");
    CHECK(strstr(stage_out, "event=pool-up") == NULL); /* older than the run */
}

TEST(failed_job_writes_a_report_and_a_killed_job_gets_one)
{
    REQUIRE(stage_up("forward:9:kill@2.1"));
    REQUIRE(STAGE_RUN("submit", "--", TRAIN) == 0);
    CHECK(STAGE_RUN("wait", "1") != 0);
    check_report("1");
    check_new_report("1");
    static const char *const words[] = { "submit", "--", TRAIN, NULL };

    REQUIRE(stage_finish(stage_start("train-step:3:kill", words), 0) == 0);
    CHECK(STAGE_RUN("wait", "2") != 0);
    CHECK_INT(0, STAGE_RUN("report", "2"));
    CHECK_CONTAINS(stage_out, "state:    failed");
    CHECK_CONTAINS(stage_out, "== scheduler.log");
}

/* The evaluation fails before it leases a worker: the workers log only the training. */
TEST(report_of_a_job_without_a_training_shows_no_other_training)
{
    REQUIRE(stage_up("forward:9:kill@2.1"));
    CHECK_INT(1, STAGE_RUN(TRAIN));
    REQUIRE(STAGE_RUN("submit", "--", "evaluate", "--model", "missing.onnx", "--data", "digits:600") == 0);
    CHECK_INT(1, STAGE_RUN("wait", "1"));
    for (int down = 0; down < 2; down++) {
        CHECK_INT(0, STAGE_RUN("report", "1"));
        CHECK_CONTAINS(stage_out, "missing.onnx");
        CHECK_CONTAINS(stage_out, "state:    failed");
        CHECK(strstr(stage_out, "training ended in step") == NULL);
        CHECK_INT(0, STAGE_RUN("down"));
    }
}

TEST(report_has_no_secrets_and_a_bounded_size)
{
    REQUIRE(stage_up(NULL));
    setenv("AWS_SECRET_ACCESS_KEY", canary, 1);
    int code = STAGE_RUN("train", "--network", "lenet", "--data", "digits:600", "--max-epochs", "1");

    if (code != 0)
        GP_TEST_FAIL("%d: %s", code, stage_err);
    FILE *log = fopen(in_run("log"), "a");

    REQUIRE(log != NULL);
    for (int i = 0; i < 100000; i++)
        fprintf(log, "line %d told %s to a log\x01\xff\n", i, canary);
    fclose(log);
    REQUIRE(STAGE_RUN("report", run_path(), "--json") == 0);
    CHECK(strstr(stage_out, canary) == NULL);
    CHECK_CONTAINS(stage_out, "line 99999 told ****");
    CHECK(strlen(stage_out) < STAGE_TEXT - 1); /* completely read: at most 64 KiB */
    REQUIRE(STAGE_RUN("report", run_path()) == 0);
    CHECK(strstr(stage_out, canary) == NULL);
    CHECK_INT(0, STAGE_RUN("report", run_path(), "--out", "r.tar"));
    CHECK(shell("grep -q '%s' w/r.tar", canary) != 0);
    REQUIRE(
        shell("mkdir w/trial && echo '{\"records\": {\"job.json\": {\"pid\": 7, \"arguments\": [\"%s\"]}}}' "
              "> w/trial/end.json",
              canary) == 0);
    REQUIRE(STAGE_RUN("report", "./trial", "--json") == 0);
    CHECK(strstr(stage_out, canary) == NULL);
    CHECK_CONTAINS(stage_out, "\"pid\": 7");
}

TEST(report_has_no_secrets_that_json_escapes)
{
    REQUIRE(stage_up(NULL));
    setenv("MY_PASSWORD", "canary\"with\\escapes", 1);
    write_file("w/job.json", "{\"pid\": 7, \"arguments\": [\"canary\\\"with\\\\escapes\"]}\n");
    write_file("w/log", "the password is canary\"with\\escapes.\n");
    REQUIRE(STAGE_RUN("report", ".", "--json") == 0);
    CHECK_CONTAINS(stage_out, "\"pid\": 7");
    CHECK_CONTAINS(stage_out, "the password is ****");
    CHECK(strstr(stage_out, "canary") == NULL && strstr(stage_out, "escapes") == NULL);
    unsetenv("MY_PASSWORD");
}

TEST(missing_run_has_no_report)
{
    stage_begin();
    CHECK_INT(1, STAGE_RUN("report", "7"));
    stage_check_error("no job");
    CHECK_INT(1, STAGE_RUN("report", "./nowhere"));
    stage_check_error("no folder");
    CHECK_INT(2, STAGE_RUN("report"));
}
