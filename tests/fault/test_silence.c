/* test_silence.c: workers without heartbeats are detected, shown and reported, and are killed only
 * if that loses no user work. */
#include "common/base/text/json.h"
#include "tests/fault/stage.h"

/* Limits before a silent worker is killed. LATE leaves a resumed worker time on a busy machine. */
#define SOON "3s"
#define LATE "120s"

static bool begin(const char *workers, const char *kill_after, const char *faults)
{
    stage_begin();
    if (faults != NULL)
        setenv("GRADPOOL_FAULT", faults, 1); /* for the daemons */
    int code = STAGE_RUN("up", "--workers", workers, "--suspect-after", "1s", "--kill-after", kill_after);

    unsetenv("GRADPOOL_FAULT");
    if (code != 0)
        GP_TEST_FAIL("up: %s", stage_err);
    return code == 0;
}

static void end(void)
{
    STAGE_RUN("down");
    stage_check_left();
    stage_end();
}

typedef struct seen {
    char state[24], reason[240];
    pid_t pid;
    double silent;
} seen;

/* Read the state of a worker from `status --json`. */
static seen look(size_t index)
{
    gp_json *status = NULL;
    seen out = { .pid = 0 };

    if (STAGE_RUN("status", "--json") != 0 ||
        gp_json_parse(&status, stage_out, strlen(stage_out), NULL) != GP_OK) {
        GP_TEST_FAIL("status: %s", stage_err);
        return out;
    }
    const gp_json *worker = gp_json_element(gp_json_member(status, "workers"), index - 1);

    snprintf(out.state, sizeof(out.state), "%s", gp_json_text(gp_json_member(worker, "state"), ""));
    snprintf(out.reason, sizeof(out.reason), "%s", gp_json_text(gp_json_member(worker, "reason"), ""));
    out.pid = (pid_t)gp_json_integer(gp_json_member(worker, "pid"), 0);
    out.silent = gp_json_number(gp_json_member(worker, "silent_seconds"), -1);
    gp_json_free(status);
    return out;
}

/* Wait until the worker has that state; return the last state. */
static seen look_for(size_t index, const char *state)
{
    seen out;

    AWAIT(strcmp((out = look(index)).state, state) == 0, 0);
    CHECK_TEXT(state, out.state);
    return out;
}

static void check_log(const char *event)
{
    if (shell("grep -q 'event=%s' state/*/default/log/scheduler.log", event) != 0)
        GP_TEST_FAIL("no event %s in the scheduler's log", event);
}

TEST(suspended_worker_is_suspect_until_it_resumes)
{
    REQUIRE(begin("1", LATE, NULL));
    seen before = look_for(1, "idle");

    CHECK(before.silent == 0);
    kill(before.pid, SIGSTOP);
    seen silent = look_for(1, "suspect");

    kill(before.pid, SIGCONT);
    CHECK_INT(before.pid, silent.pid);
    CHECK(silent.silent >= 1);
    CHECK_CONTAINS(silent.reason, "no heartbeat for");
    CHECK_CONTAINS(silent.reason, "it will be replaced if this continues");
    CHECK_INT(before.pid, look_for(1, "idle").pid);
    check_log("worker-suspect");
    check_log("worker-well");
    end();
}

TEST(silent_idle_worker_is_replaced)
{
    REQUIRE(begin("1", SOON, NULL));
    seen before = look_for(1, "idle"), after;

    kill(before.pid, SIGSTOP);
    AWAIT((after = look(1)).pid != before.pid && strcmp(after.state, "idle") == 0, 0);
    CHECK(after.pid != before.pid);
    CHECK_TEXT("idle", after.state);
    check_log("worker-suspect"); /* lasts two seconds: polling may miss the state */
    end();
}

TEST(silent_worker_with_a_command_is_kept_and_its_user_notified)
{
    int64_t deadline = gp_now_ms() + POOLS_TIMEOUT_MS, stopped;
    seen silent;

    REQUIRE(begin("1", "5s", NULL));
    unlink(in_root("err"));
    pid_t child = stage_start(
        NULL, (const char *const[]){ "spmd", "--", "sh", "-c",
                                     "touch begun; until test -e go; do sleep 0.05; done", NULL });

    /* later commands write a file with that name */
    while (rename(in_root("err"), in_root("notes")) != 0)
        gp_sleep_ms(1);
    seen busy = look_for(1, "busy");

    while (access(in_root("w/begun"), F_OK) != 0)
        gp_sleep_ms(5);
    do { /* until it is suspended after the scheduler knows about the user's command */
        stopped = gp_now_ms();
        kill(busy.pid, SIGSTOP);
        silent = look_for(1, "suspect");
        if (strstr(silent.reason, "it runs user code and will not be replaced") != NULL)
            break;
        kill(busy.pid, SIGCONT);
        look_for(1, "busy");
    } while (gp_now_ms() < deadline);
    CHECK_CONTAINS(silent.reason, "it runs user code and will not be replaced");
    while (gp_now_ms() < stopped + 6500) /* longer than the limit for an idle worker */
        gp_sleep_ms(50);
    seen still = look(1);

    CHECK_TEXT("suspect", still.state);
    CHECK_INT(busy.pid, still.pid);
    kill(busy.pid, SIGCONT);
    CHECK_INT(busy.pid, look_for(1, "busy").pid);
    write_file("w/go", "");
    CHECK_INT(0, stage_finish(child, 0));
    slurp(in_root("notes"), stage_err, sizeof(stage_err));
    CHECK_CONTAINS(stage_err, "no heartbeat for");
    CHECK_CONTAINS(stage_err, "responsive again after");
    end();
}

/* Hang one rank in a step. Its control thread keeps sending heartbeats, so the error must name the
 * rank that caused the hang. *first: whether a waiting rank was named too, which is correct if the
 * machine did not schedule it for 1 s. */
static void rank_hangs(bool *first)
{
    REQUIRE(begin("2", SOON, "forward:9:hang@2.1"));
    pid_t pids[] = { look_for(1, "idle").pid, look_for(2, "idle").pid };
    int code = STAGE_RUN("train", "--network", "lenet", "--data", "digits:600", "--max-epochs", "2",
                         "--mini-batch-size", "60", "--out", "m.onnx");

    if (code != 0)
        GP_TEST_FAIL("%d: %s", code, stage_err);
    CHECK_CONTAINS(stage_err, "its current step has not ended for");
    CHECK_CONTAINS(stage_err, "one step took more than ");
    CHECK_CONTAINS(stage_err, "worker 2 (pid");
    *first = strstr(stage_err, "worker 1 (pid") != NULL;
    check_log("worker-suspect");
    CHECK_INT(pids[0], look_for(1, "idle").pid);
    CHECK(pids[1] != look_for(2, "idle").pid);
    end();
}

TEST(training_continues_without_a_rank_that_hangs_in_a_step)
{
    bool first = true;

    for (int i = 0; i < 4 && first && gp_test_failures == 0; i++)
        rank_hangs(&first);
    CHECK(!first);
}
