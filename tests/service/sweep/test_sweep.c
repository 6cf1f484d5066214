/* `gradpool sweep` with real daemons: results, kills, interrupts and errors. */
#include <math.h>
#include <pty.h>
#include <signal.h>
#include <sys/stat.h>

#include "tests/service/commands.h"

#define TRAIN "--", "train", "--network", "lenet", "--data", "digits:200", "--epochs"

/* Return the path of a file in the folder of the sweep. */
static const char *in_sweep(const char *name)
{
    char path[80];

    snprintf(path, sizeof(path), "s/%s", name);
    return in_w(path);
}

/* Run another command while a sweep runs. */
#define RUN_OTHER(expected, ...)                                                                             \
    do {                                                                                                     \
        pid_t other_ = start(-1, command_file("other"), (const char *const[]){ __VA_ARGS__, NULL });         \
        int code_ = finish(other_);                                                                          \
        if (code_ != (expected))                                                                             \
            GP_TEST_FAIL("exit code %d, expected %d: %s", code_, expected, err);                             \
        slurp(in_root("other"), out, sizeof(out));                                                           \
    } while (0)

/* Count the lines of the journal that contain a text. */
static int lines_with(const char *text)
{
    return count_in_file(in_sweep("trials.jsonl"), text);
}

/* Check that each of `count` trials was asked once and has one end, and that all are done. */
static void check_trials(int count)
{
    char text[60];

    CHECK_INT(count, lines_with("\"asked\""));
    CHECK_INT(count, lines_with("\"end\""));
    for (int trial = 1; trial <= count; trial++) {
        snprintf(text, sizeof(text), "\"end\", \"trial\": %d,", trial);
        CHECK_INT(1, lines_with(text));
    }
    CHECK_INT(count, lines_with("\"state\": \"done\""));
}

/* Check that the best trials have a model, and no others. */
static void check_models(size_t expected)
{
    char path[60];
    size_t models = 0;

    RUN_CODE(0, "sweep", "show", "s", "--json");
    gp_json *json = pools_json(out);
    const gp_json *trials = gp_json_member(json, "trials");

    for (size_t i = 0; i < gp_json_count(trials); i++) {
        const double value = gp_json_number(gp_json_member(gp_json_element(trials, i), "value"), NAN);
        size_t better = 0;

        for (size_t k = 0; k < gp_json_count(trials); k++) {
            const double other = gp_json_number(gp_json_member(gp_json_element(trials, k), "value"), NAN);

            better += other > value || (other == value && k < i);
        }
        snprintf(path, sizeof(path), "trials/%04zu/result/model.onnx", i + 1);
        CHECK_INT(better < expected, access(in_sweep(path), F_OK) == 0);
        models += better < expected;
    }
    CHECK_INT((int64_t)expected, (int64_t)models);
    CHECK(access(in_sweep("best.onnx"), R_OK) == 0);
    gp_json_free(json);
}

/* Wait until `count` trials have ended. */
static bool await_ends(int count)
{
    AWAIT(lines_with("\"end\"") >= count, 5);
    return lines_with("\"end\"") >= count;
}

/* Return the number of jobs that the pool ran for the sweep. */
static int jobs_of_trials(void)
{
    RUN_CODE(0, "jobs", "--all", "--trials", "--json");
    return count_in(out, "\"kind\": \"trial\"");
}

TEST(a_sweep_runs_all_combinations_and_keeps_the_best_model)
{
    exec_begin();
    RUN_CODE(0, "sweep", "lr=0.0001,0.1", "momentum=0.5,0.9", "--folder", "s", TRAIN, "2");
    CHECK_CONTAINS(out, "all combinations, grid");
    CHECK_CONTAINS(out, "4 trials: 4 done, 0 stopped early, 0 failed, 0 lost, 0 open");
    CHECK_CONTAINS(out, "best: trial ");
    CHECK_CONTAINS(out, "again: gradpool train --network lenet --data digits:200 --epochs 2 --lr ");
    check_trials(4);
    CHECK(access(in_sweep("best.onnx"), R_OK) == 0);
    CHECK_INT(4, jobs_of_trials());
    RUN_CODE(0, "evaluate", "--model", in_sweep("best.onnx"), "--data", "digits:100");
    RUN_CODE(0, "sweep", "show", "s", "--json");
    gp_json *json = pools_json(out);
    const gp_json *trials = gp_json_member(json, "trials");
    double best = -1;

    CHECK_INT(4, (int64_t)gp_json_count(trials));
    for (size_t i = 0; i < 4; i++) {
        double value = gp_json_number(gp_json_member(gp_json_element(trials, i), "value"), NAN);

        best = value > best ? value : best;
    }
    size_t index = (size_t)gp_json_integer(gp_json_member(json, "best"), 0) - 1;

    CHECK(gp_json_number(gp_json_member(gp_json_element(trials, index), "value"), NAN) == best);
    gp_json_free(json);
    RUN_CODE(0, "sweep", "show", "s", "--csv", "t.csv", "--optuna", "t.log", "--plot", "t.png");
    CHECK_INT(5, count_in_file(in_w("t.csv"), "\n"));
    CHECK_INT(4, count_in_file(in_w("t.log"), "\"op_code\": 4"));
    CHECK(access(in_w("t.png"), R_OK) == 0);
    RUN_CODE(0, "runs", "list", "s/trials/0001", "--json"); /* a trial has a run folder */
    CHECK_CONTAINS(out, "completed");
    pools_end();
}

/* A killed controller, and a killed scheduler: --resume continues, and complete trials do not run
 * again. */
TEST(a_killed_sweep_continues_with_each_trial_once)
{
    exec_begin();
    pid_t child = START("sweep", "seed=1:6", "--method", "grid", "--folder", "s", "--keep", "2", TRAIN, "2");

    REQUIRE(await_ends(2));
    kill(child, SIGKILL);
    finish(child);
    child = START("sweep", "--resume", "s");
    REQUIRE(await_ends(4));
    kill(pid_of(0), SIGKILL);
    FINISH_CODE(0, child);
    CHECK_CONTAINS(out, "6 trials: 6 done");
    check_trials(6);
    check_models(2);
    CHECK(jobs_of_trials() >= 6);
    RUN_CODE(0, "sweep", "--resume", "s"); /* nothing is left to do */
    check_trials(6);
    pools_end();
}

/* Kill the controller at a fault point, and continue. */
static void kill_at(const char *fault)
{
    char path[60];

    leftovers_clear(in_w("s"));
    setenv("GRADPOOL_FAULT", fault, 1);
    RUN_CODE(-1, "sweep", "seed=1:3", "--method", "grid", "--folder", "s", TRAIN, "1");
    unsetenv("GRADPOOL_FAULT");
    RUN_CODE(0, "sweep", "--resume", "s");
    CHECK_INT(3, lines_with("\"asked\""));
    CHECK_INT(3, lines_with("\"state\": \"done\""));
    CHECK_INT(3, lines_with("\"end\""));
    CHECK(access(in_sweep("best.onnx"), R_OK) == 0);
    CHECK(access(in_sweep("best.onnx.new"), F_OK) != 0);
    for (int trial = 1; trial <= 3; trial++) {
        static const char *const left[] = { "trials/%04d.job", "trials/%04d/job.json",
                                            "trials/%04d/result/model.onnx", "checkpoints/%04d" };

        for (size_t i = 0; i < sizeof(left) / sizeof(left[0]); i++) {
            snprintf(path, sizeof(path), left[i], trial);
            if (access(in_sweep(path), F_OK) == 0)
                GP_TEST_FAIL("%s is left after %s", path, fault);
        }
    }
}

TEST(a_controller_that_is_killed_between_two_actions_continues)
{
    exec_begin();
    kill_at("sweep-created:1:kill");
    kill_at("sweep-appended:1:kill");  /* the points are on disk, and no job exists */
    kill_at("sweep-submitted:1:kill"); /* the pool has the job */
    kill_at("sweep-appended:3:kill");
    kill_at("sweep-linked:1:kill");
    kill_at("sweep-packed:3:kill"); /* of the last trial: only a resumed sweep cleans its folder */
    pools_end();
}

TEST(a_folder_that_a_killed_sweep_left_incomplete_is_used_again)
{
    exec_begin();
    setenv("GRADPOOL_FAULT", "file-written:1:kill", 1); /* sweep.json has a temporary name */
    RUN_CODE(-1, "sweep", "lr=0.1", "--folder", "s", TRAIN, "1");
    unsetenv("GRADPOOL_FAULT");
    CHECK(access(in_sweep("lock"), F_OK) == 0 && access(in_sweep("sweep.json"), F_OK) != 0);
    RUN_CODE(1, "sweep", "--resume", "s");
    CHECK_CONTAINS(err, "not the folder of a sweep");
    RUN_CODE(0, "sweep", "lr=0.1,0.2", "--folder", "s", TRAIN, "1");
    check_trials(2);
    REQUIRE(mkdir(in_w("t"), 0777) == 0);
    RUN_CODE(0, "sweep", "lr=0.1", "--folder", "t", TRAIN, "1");
    REQUIRE(mkdir(in_w("u"), 0777) == 0 && symlink("x", in_w("u/notes")) == 0);
    RUN_CODE(1, "sweep", "lr=0.1", "--folder", "u", TRAIN, "1");
    CHECK_CONTAINS(err, "the folder u exists and has no sweep; use another --folder");
    pools_end();
}

TEST(an_interrupted_sweep_resumes_its_trials)
{
    exec_begin();
    pid_t child = START("sweep", "seed=1:3", "--method", "grid", "--folder", "s", TRAIN, "40");

    AWAIT(access(in_sweep("checkpoints/0001"), F_OK) == 0, 5);
    kill(child, SIGINT);
    FINISH_CODE(130, child);
    CHECK_CONTAINS(out, "continue: gradpool sweep --resume ");
    CHECK_INT(1, lines_with("\"halt\""));
    RUN_CODE(0, "jobs", "--trials");
    CHECK_CONTAINS(out, "no running or queued jobs");
    RUN_CODE(0, "sweep", "--resume", "s", "--trials", "4");
    CHECK_CONTAINS(out, "3 trials: 3 done"); /* the space has three points */
    check_trials(3);
    CHECK(lines_with("\"attempt\": 2") >= 1);
    pools_end();
}

TEST(a_terminal_that_cannot_be_redrawn_gets_lines)
{
    char said[4000];
    size_t used = 0;
    ssize_t got;
    int terminal;

    exec_begin();
    fflush(stdout);
    pid_t child = forkpty(&terminal, NULL, NULL, NULL);

    if (child == 0) {
        setenv("TERM", "dumb", 1);
        command_exec(in_root("w"), (const int[]){ 0, 1, 2 },
                     (const char *const[]){ "sweep", "x=1,2", "--minimize", "--folder", "s", "--", "echo",
                                            "{x}", NULL });
    }
    REQUIRE(child > 0);
    while (used < sizeof(said) - 1 && (got = read(terminal, said + used, sizeof(said) - 1 - used)) > 0)
        used += (size_t)got;
    said[used] = '\0';
    close(terminal);
    CHECK_INT(0, child_exit_code(child));
    CHECK_CONTAINS(said, "trial 2: done");
    CHECK(strchr(said, '\033') == NULL);
    pools_end();
}

TEST(early_stopping_ends_bad_trials)
{
    exec_begin();
    RUN_CODE(0, "sweep", "lr=0.1,0.000001,0.0000001,0.00000001", "--stop", "asha", "--max-concurrent", "1",
             "--folder", "s", TRAIN, "9");
    CHECK_CONTAINS(out, "stopped, ");
    CHECK_INT(4, lines_with("\"end\""));
    CHECK(lines_with("\"stop\": true") >= 1);
    CHECK_INT(lines_with("\"stop\": true"), lines_with("\"state\": \"stopped\""));
    pools_end();
}

TEST(the_last_rung_depends_on_the_epochs_of_the_trials)
{
    exec_begin();
    RUN_CODE(0, "sweep", "lr=0.1", "--stop", "asha", "--folder", "a", TRAIN, "3", "--max_epochs=5");
    CHECK_CONTAINS(out, "early stopping after epoch 1, 3, ... of 5: one of 3 continues");
    RUN_CODE(0, "sweep", "epochs=2,4", "--stop", "asha", "--folder", "b", TRAIN, "3");
    CHECK_CONTAINS(out, "early stopping after epoch 1, 3, ... of 4: one of 3 continues");
    RUN_CODE(2, "sweep", "lr=0.1", "--stop", "asha:4294967299", TRAIN, "3"); /* 2^32 + 3 */
    CHECK_CONTAINS(err, "it must be none, asha or asha:ETA with 2 to 16");
    pools_end();
}

/* Return whether end.json of a trial has a number of workers. */
static bool ended_with(const char *sweep, uint32_t trial, uint32_t workers)
{
    char path[100], text[4000], wanted[40];

    snprintf(path, sizeof(path), "%s/trials/%04u/end.json", sweep, trial);
    slurp(in_w(path), text, sizeof(text));
    snprintf(wanted, sizeof(wanted), "\"workers\": %u,", workers);
    return strstr(text, wanted) != NULL;
}

/* One trial has both workers; two trials have one each. When one of two ends, the other may get
 * both. */
TEST(elastic_trials_share_the_workers_of_the_pool)
{
    exec_begin();
    RUN_CODE(0, "sweep", "lr=0.1", "--workers", "1:2", "--folder", "s", TRAIN, "2");
    CHECK(ended_with("s", 1, 2));
    RUN_CODE(0, "sweep", "lr=0.1,0.2", "--workers", "1:2", "--folder", "t", TRAIN, "2");
    CHECK(ended_with("t", 1, 1) || ended_with("t", 2, 1));
    pools_end();
}

/* A sweep occupies no worker, so it can run as a job in a pool of one. */
TEST(a_sweep_runs_as_a_job_of_a_pool_with_one_worker)
{
    commands_begin();
    RUN_CODE(0, "up", "--workers", "1");
    RUN_CODE(0, "submit", "--", "sweep", "lr=0.01,0.1", TRAIN, "1");
    RUN_CODE(0, "wait", "1");
    RUN_CODE(0, "jobs", "--all");
    CHECK_CONTAINS(out, "trials of sweeps: 2");
    RUN_CODE(0, "logs", "1");
    CHECK_CONTAINS(out, "2 trials: 2 done");
    RUN_CODE(0, "sweep", "show", "1");
    CHECK_CONTAINS(out, "2 trials: 2 done");
    RUN_CODE(1, "sweep", "show", "1", "--sort", "rate");
    CHECK_CONTAINS(err, "--sort: trials have no 'rate'; use trial, epochs, time, validation-accuracy or");
    RUN_CODE(0, "submit", "--", "sweep", "x=3111,3222", "--maximize", "--folder", "f", "--", "echo", "{x}");
    RUN_CODE(0, "wait", "4");
    RUN_CODE(0, "sweep", "--resume", "4"); /* the job folder leads to the folder f */
    CHECK_CONTAINS(out, "best: trial 2: objective 3222: x 3222");
    RUN_CODE(0, "sweep", "show", "4", "--sort", "x");
    CHECK(strstr(out, "3111") < strstr(out, "3222"));
    RUN_CODE(0, "sweep", "show", "4", "--sort", "-x");
    CHECK(strstr(out, "3111") > strstr(out, "3222"));
    RUN_CODE(1, "sweep", "show", "2");
    CHECK_CONTAINS(err, "job 2 has no sweep: there is no ");
    RUN_CODE(0, "submit", "--", "sweep", "x=1,2", "--maximize", "--folder", "s", "--", "sleep", "60");
    AWAIT(lines_with("\"asked\"") >= 1, 5);
    RUN_CODE(0, "sweep", "end", "7");
    RUN_CODE(130, "wait", "7");
    CHECK_CONTAINS(out, "job 7: canceled");
    CHECK_INT(1, lines_with("\"halt\""));
    pools_end();
}

TEST(a_sweep_runs_any_program)
{
    exec_begin();
    RUN_CODE(0, "sweep", "x=1:1:5", "--minimize", "--folder", "s", "--", "sh", "-c",
             "echo step 1: $((({x}-4)*({x}-4))); echo done 1s");
    CHECK_CONTAINS(out, "5 trials: 5 done");
    CHECK_CONTAINS(out, "best: trial 4: objective 0: x 4");
    CHECK_CONTAINS(out, "again: sh -c 'echo step 1: $(((4-4)*(4-4)))");
    /* all trials but the first wait after step 1 until they are stopped */
    RUN_CODE(
        0, "sweep", "x=5,1,2,3", "--maximize", "--stop", "asha", "--max-concurrent", "1", "--folder", "t",
        "--", "sh", "-c",
        "for i in 1 2 3 4; do echo \"{\\\"step\\\": $i, \\\"objective\\\": $1.5}\" >> $GRADPOOL_METRICS; "
        "while test $1 != 5; do sleep 0.05; done; done; echo 99",
        "prog", "{x}");
    CHECK_CONTAINS(out, "best: trial 1: objective 5.5: x 5");
    CHECK_CONTAINS(out, "4 trials: 1 done, 3 stopped early");
    RUN_CODE(1, "sweep", "x=1,2", "--maximize", "--folder", "u", "--", "sh", "-c",
             "echo 1; echo no {x} >&2; exit 3");
    CHECK_CONTAINS(err, "no trial is done; the first one exit code 3: no 1");
    RUN_CODE(0, "sweep", "x=1", "--maximize", "--folder", "k", "--", "sh", "-c",
             "test -e killed || { touch killed; kill -9 $$; }; echo {x}");
    CHECK_CONTAINS(out, "1 trial: 1 done");
    CHECK_INT(1, count_in_file(in_w("k/trials.jsonl"), "\"lost\": true"));
    RUN_CODE(2, "sweep", "x=1,2", "--maximize", "--", "./missing");
    CHECK_CONTAINS(err, "cannot run ./missing: No such file or directory");
    RUN_CODE(2, "sweep", "x=1,2", "--", "true");
    CHECK_CONTAINS(err, "add --minimize or --maximize: is a low or a high 'objective' good?");
    RUN_CODE(2, "sweep", "x=1,2", "--minimize", "--", "echo 1 2");
    CHECK_CONTAINS(err, "needs the placeholder {NAME} of each parameter");
    RUN_CODE(2, "sweep", "x=1,2", "--minimize", "--workers", "1:2", "--", "true");
    CHECK_CONTAINS(err, "a program has a fixed number of workers");
    RUN_CODE(2, "sweep", "x=1,2", "--minimize", "--", "spmd", "--", "true");
    CHECK_CONTAINS(err, "the trials of a sweep cannot be 'spmd'");
    pools_end();
}

/* Run a sweep of a program over x = 1, 2, 3, in which x = 2 fails. */
static pid_t start_program(const char *option, const char *value)
{
    return START("sweep", "x=1,2,3", "--maximize", "--folder", "s", "--max-concurrent", "1", option, value,
                 "--", "sh", "-c",
                 "echo \"{\\\"step\\\": 7, \\\"objective\\\": {x}.{seed}}\" >> $GRADPOOL_METRICS; "
                 "while test {x} = 3 -a ! -e go; do sleep 0.02; done; test {x} != 2");
}

TEST(a_running_sweep_takes_points_and_retries)
{
    exec_begin();
    pid_t child = start_program("--confirm", "2");

    REQUIRE(await_ends(2)); /* trial 3 waits for the file `go` */
    AWAIT(count_in_file(in_sweep("trials/0003/metrics.jsonl"), "objective") == 1, 5);
    RUN_OTHER(0, "top", "--once");
    CHECK_CONTAINS(out, "step 7, objective 3.0");
    RUN_OTHER(0, "sweep", "add", "s", "x=1");
    CHECK_CONTAINS(out, "trial 4");
    RUN_OTHER(0, "sweep", "retry", "s", "2");
    CHECK_CONTAINS(out, "trial 5");
    RUN_OTHER(1, "sweep", "retry", "s", "1");
    CHECK_CONTAINS(err, "trial 1 is done; only failed, lost and stopped trials can be retried");
    RUN_OTHER(1, "sweep", "add", "s", "x=7");
    CHECK_CONTAINS(err, "x: '7' is not in the list of values");
    close(open(in_w("go"), O_CREAT | O_WRONLY, 0600));
    FINISH_CODE(0, child);
    CHECK_CONTAINS(out, "7 trials: 5 done, 0 stopped early, 2 failed");
    CHECK_CONTAINS(out, "repeated with 2 other seeds: mean 3.15, standard deviation 0.07071: 3.1, 3.2");
    CHECK_INT(7, lines_with("\"asked\""));
    RUN_CODE(0, "sweep", "show", "s", "--json");
    CHECK_CONTAINS(out, "\"how\": \"retry\", \"of\": 2,");
    CHECK_CONTAINS(out, "\"how\": \"confirm\", \"of\": 3, \"repeat\": 2,");
    RUN_CODE(1, "sweep", "add", "s", "x=1");
    CHECK_CONTAINS(err, "the sweep has ended with 7 trials; to continue it: gradpool sweep --resume ");
    RUN_CODE(0, "sweep", "--resume", "s", "--retry-failed");
    CHECK_INT(8, lines_with("\"asked\"")); /* trial 2 was retried before */
    pools_end();
}

/* The controller is killed before and after the line of a request is durable. */
TEST(a_request_survives_a_killed_controller_once)
{
    static const char *const faults[] = { "sweep-requested:1:kill", "sweep-appended:3:kill" };

    exec_begin();
    for (int i = 0; i < 2; i++) {
        leftovers_clear(in_w("s"));
        unlink(in_w("go"));
        setenv("GRADPOOL_FAULT", faults[i], 1);
        pid_t child = start_program("--max-failures", "0");

        unsetenv("GRADPOOL_FAULT");
        if (i == 0) {
            REQUIRE(await_ends(2));
            RUN_OTHER(0, "sweep", "add", "s", "x=1");
        }
        FINISH_CODE(-1, child);
        if (i == 1)
            RUN_CODE(0, "sweep", "add", "s", "x=1");
        close(open(in_w("go"), O_CREAT | O_WRONLY, 0600));
        RUN_CODE(0, "sweep", "--resume", "s");
        CHECK_CONTAINS(out, "4 trials: 3 done");
        CHECK_INT(1, lines_with("\"request\""));
    }
    pools_end();
}

TEST(a_space_in_a_file_has_conditional_parameters)
{
    exec_begin();
    FILE *file = fopen(in_w("space.json"), "w");

    fputs("{\"a\": [\"x\", \"y\"],\n \"b\": {\"values\": [1, 2], \"when\": {\"a\": [\"x\"]}}}", file);
    fclose(file);
    RUN_CODE(0, "sweep", "--space", "space.json", "--maximize", "--folder", "s", "--", "echo", "9");
    CHECK_CONTAINS(out, "3 trials: 3 done");
    CHECK_INT(1, lines_with("\"values\": {\"a\": \"y\"}"));
    CHECK_INT(2, lines_with("\"values\": {\"a\": \"x\", \"b\": "));
    RUN_CODE(2, "sweep", "--space", "space.json", "--maximize", "--", "echo", "{b}");
    CHECK_CONTAINS(err, "b has a condition, so it cannot stand in {b}");
    RUN_CODE(2, "sweep", "c=1,2", "--space", "space.json", "--maximize", "--", "echo");
    CHECK_CONTAINS(err, "give the parameters either as words or with --space");
    RUN_CODE(2, "sweep", "--space", "missing.json", "--maximize", "--", "echo");
    CHECK_CONTAINS(err, "--space missing.json: ");
    pools_end();
}

/* The disk of the journal is full: running trials end, no other one starts, and none is lost. */
TEST(a_full_disk_starts_no_trial_and_loses_none)
{
    struct rlimit old, small;

    exec_begin();
    getrlimit(RLIMIT_FSIZE, &old);
    small = old;
    small.rlim_cur = 1500; /* more than sweep.json, less than the journal */
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &small); /* for the controller; the jobs belong to the scheduler */
    pid_t child = START("sweep", "x=1:1:12", "--maximize", "--quiet", "--folder", "s", "--", "echo", "{x}");

    setrlimit(RLIMIT_FSIZE, &old);
    FINISH_CODE(1, child);
    CHECK_CONTAINS(err, "trials.jsonl: File too large; running trials end as jobs of the pool");
    CHECK(lines_with("\"asked\"") < 12);
    RUN_CODE(0, "sweep", "--resume", "s");
    CHECK_CONTAINS(out, "12 trials: 12 done");
    check_trials(12);
    pools_end();
}

/* The limit of descriptors is below the number of trials. */
TEST(ended_trials_keep_no_file_open)
{
    struct rlimit old, small;

    exec_begin();
    getrlimit(RLIMIT_NOFILE, &old);
    small = old;
    small.rlim_cur = 40;
    setrlimit(RLIMIT_NOFILE, &small);
    pid_t child = START("sweep", "x=1:1:60", "--maximize", "--quiet", "--folder", "s", "--", "echo", "{x}");

    setrlimit(RLIMIT_NOFILE, &old);
    FINISH_CODE(0, child);
    check_trials(60);
    CHECK_INT(60, jobs_of_trials());
    pools_end();
}

/* Check that each training without a durable end has its model. Return their number. */
static int check_open_ends(int trials)
{
    char text[60];
    int count = 0;

    for (int trial = 1; trial <= trials; trial++) {
        snprintf(text, sizeof(text), "\"end\", \"trial\": %d,", trial);
        bool durable = lines_with(text) > 0;

        snprintf(text, sizeof(text), "trials/%04d/end.json", trial);
        if (durable || access(in_sweep(text), F_OK) != 0)
            continue;
        snprintf(text, sizeof(text), "trials/%04d/result/model.onnx", trial);
        CHECK(access(in_sweep(text), F_OK) == 0);
        count++;
    }
    return count;
}

/* The end of a training is not durable, so the next controller needs its model. With some of the
 * limits, the journal ends within the line of an end. */
TEST(a_full_disk_keeps_the_models_of_trials_without_a_durable_end)
{
    struct rlimit old, small;

    exec_begin();
    getrlimit(RLIMIT_FSIZE, &old);
    signal(SIGXFSZ, SIG_IGN);
    for (rlim_t bytes = 1010; bytes <= 1160; bytes += 30) {
        leftovers_clear(in_w("s"));
        small = (struct rlimit){ .rlim_cur = bytes, .rlim_max = old.rlim_max };
        setrlimit(RLIMIT_FSIZE, &small);
        pid_t child = START("sweep", "lr=log:0.001:0.3", "--method", "random", "--trials", "12", "--quiet",
                            "--folder", "s", TRAIN, "1");

        setrlimit(RLIMIT_FSIZE, &old);
        FINISH_CODE(1, child);
        CHECK(check_open_ends(12) > 0);
    }
    RUN_CODE(0, "sweep", "--resume", "s");
    check_trials(12);
    CHECK(access(in_sweep("best.onnx"), R_OK) == 0);
    pools_end();
}

TEST(a_best_model_that_cannot_be_linked_or_copied_stays_with_its_trial)
{
    exec_begin();
    RUN_CODE(0, "sweep", "lr=0.0001,0.1", "--method", "grid", "--trials", "1", "--folder", "s", TRAIN, "2");
    REQUIRE(mkdir(in_sweep("best.onnx.new"), 0700) == 0);
    RUN_CODE(0, "sweep", "--resume", "s", "--trials", "2");
    CHECK_CONTAINS(err, "cannot copy ");
    CHECK_CONTAINS(err, "best.onnx is not the best model; that is ");
    CHECK(access(in_sweep("trials/0002/result/model.onnx"), F_OK) == 0);
    REQUIRE(rmdir(in_sweep("best.onnx.new")) == 0);
    RUN_CODE(0, "sweep", "--resume", "s");
    CHECK_INT(0, shell("cmp w/s/trials/0002/result/model.onnx w/s/best.onnx"));
    pools_end();
}

TEST(a_model_that_is_linked_late_does_not_stay_with_its_trial)
{
    exec_begin();
    pid_t child =
        START("sweep", "seed=1:2", "--method", "grid", "--folder", "s", "--max-concurrent", "1", TRAIN, "40");

    AWAIT(access(in_sweep("sweep.json"), F_OK) == 0, 5);
    REQUIRE(mkdir(in_sweep("best.onnx.new"), 0700) == 0);
    REQUIRE(await_err("cannot copy "));
    REQUIRE(rmdir(in_sweep("best.onnx.new")) == 0);
    FINISH_CODE(0, child);
    CHECK(access(in_sweep("best.onnx"), R_OK) == 0);
    CHECK(access(in_sweep("trials/0001/result/model.onnx"), F_OK) != 0);
    CHECK(access(in_sweep("trials/0002/result/model.onnx"), F_OK) != 0);
    pools_end();
}

TEST(values_and_names_are_read_back_unchanged)
{
    FILE *file;

    exec_begin();
    RUN_CODE(2, "sweep", "x=1,2", "--maximize", "--", "echo", "m\xe4rz");
    CHECK_CONTAINS(err, "a word of the command is not valid UTF-8");

    /* more digits than a table shows */
    RUN_CODE(0, "sweep", "n=int:999999999999990:999999999999999", "--method", "random", "--trials", "1",
             "--maximize", "--folder", "long", "--", "echo", "{n}");
    RUN_CODE(0, "sweep", "show", "long", "--csv", "long.csv");
    CHECK_INT(2, count_in_file(in_w("long.csv"), ",99999999999999")); /* parameter and objective */

    /* a text that looks like a number; no controller runs */
    file = fopen(in_w("space.json"), "w");
    fputs("{\"depth\": [\"18\", \"34\"], \"x\": [1, 2]}", file);
    fclose(file);
    setenv("GRADPOOL_FAULT", "sweep-appended:1:kill", 1);
    RUN_CODE(-1, "sweep", "--space", "space.json", "--maximize", "--folder", "s", "--", "echo", "1");
    unsetenv("GRADPOOL_FAULT");
    RUN_CODE(0, "sweep", "add", "s", "depth=18", "x=2");
    CHECK_CONTAINS(out, "queued");
    RUN_CODE(0, "sweep", "--resume", "s");
    CHECK_INT(1, lines_with("\"how\": \"added\""));

    /* a space of 300 KB */
    file = fopen(in_w("large.json"), "w");
    for (int list = 0; list < 40; list++) {
        fprintf(file, "%s\"list%d\": [", list == 0 ? "{" : ", ", list);
        for (int i = 0; i < 400; i++)
            fprintf(file, "%s\"a value of 20 bytes %d\"", i == 0 ? "" : ",", i);
        fputs("]", file);
    }
    fputs("}", file);
    fclose(file);
    RUN_CODE(0, "sweep", "--space", "large.json", "--method", "random", "--trials", "1", "--maximize",
             "--folder", "large", "--", "echo", "1");
    RUN_CODE(0, "sweep", "show", "large", "--json");
    RUN_CODE(0, "sweep", "--resume", "large", "--trials", "2");
    pools_end();
}

TEST(a_sweep_that_reached_its_goal_takes_no_requests)
{
    exec_begin();
    RUN_CODE(0, "sweep", "x=1,2,3", "--maximize", "--until", "1", "--max-concurrent", "1", "--folder", "s",
             "--", "echo", "{x}");
    CHECK(lines_with("\"asked\"") < 3);
    RUN_CODE(1, "sweep", "add", "s", "x=2");
    CHECK_CONTAINS(err, "the sweep has reached its goal");
    pools_end();
}

TEST(errors_of_a_sweep_are_reported_before_it_starts)
{
    exec_begin();
    RUN_CODE(2, "sweep", "lr=0.1,0.2");
    CHECK_CONTAINS(err, "the command of the trials is missing");
    RUN_CODE(2, "sweep", TRAIN, "1");
    CHECK_CONTAINS(err, "no parameters");
    RUN_CODE(2, "sweep", "lr=0.3:0.1", TRAIN, "1");
    CHECK_CONTAINS(err, "lr");
    RUN_CODE(2, "sweep", "lern-rate=0.1,0.2", TRAIN, "1");
    CHECK_CONTAINS(err, "unknown option --lern-rate");
    RUN_CODE(2, "sweep", "lr=0.1", "--csv", "t.csv", TRAIN, "1");
    CHECK_CONTAINS(err, "--csv, --optuna, --plot and --sort belong to gradpool sweep show");
    RUN_CODE(2, "sweep", "lr=0.1", TRAIN, "1", "--folder", "x");
    CHECK_CONTAINS(err, "the sweep sets --folder of its trials");
    RUN_CODE(2, "sweep", "lr=0.1", TRAIN, "1", "--checkpoint_path=x");
    CHECK_CONTAINS(err, "the sweep sets --checkpoint-path of its trials");
    RUN_CODE(2, "sweep", "workers=1,2", TRAIN, "1");
    CHECK_CONTAINS(err, "the sweep sets --workers of its trials, so it cannot be a parameter");
    RUN_CODE(2, "sweep", "initial_learn_rate=0.1,0.2", "lr=0.3", TRAIN, "1");
    CHECK_CONTAINS(err, "initial_learn_rate and lr are the same option");
    RUN_CODE(2, "sweep", "lr=0.1", "--workers", "2:1", TRAIN, "1");
    CHECK_CONTAINS(err, "--workers is '2:1'");
    RUN_CODE(2, "sweep", "lr=0.1", "--stop", "median", TRAIN, "1");
    CHECK_CONTAINS(err, "--stop is 'median'");
    CHECK(access(in_w("gradpool-sweeps"), F_OK) != 0);
    RUN_CODE(1, "sweep", "--resume", ".");
    CHECK_CONTAINS(err, "not the folder of a sweep");
    RUN_CODE(1, "sweep", "lr=0.1", "--objective", "f1", "--max-failures", "1", "--folder", "s", TRAIN, "1");
    CHECK_CONTAINS(err, "ended without f1; the result has: validation_loss, validation_accuracy");
    RUN_CODE(1, "sweep", "lr=0.1", "--folder", "s", TRAIN, "1");
    CHECK_CONTAINS(err, "s has a sweep; view it with `gradpool sweep show`");
    RUN_CODE(1, "sweep", "lr=0.2", "--resume", "s");
    CHECK_CONTAINS(err, "--resume continues a sweep as it was: its space is 'lr=0.1', not 'lr=0.2'");
    RUN_CODE(1, "sweep", "l2-regularization=1000", "--max-failures", "1", "--folder", "d", TRAIN, "2", "--lr",
             "900", "--mini-batch-size", "16"); /* the weights grow until they overflow */
    CHECK_CONTAINS(err, "is not a number: the first non-finite value is in the output of layer");
    RUN_CODE(0, "sweep", "lr=0.1,0.2", "--trials", "5", "--folder", "t", TRAIN, "1");
    CHECK_CONTAINS(out, "ended: all points of the space were tried");
    RUN_CODE(2, "sweep", "lr=0.1,1e6", TRAIN, "1");
    CHECK_CONTAINS(err, "trials with lr=1e+06 would fail; remove the value");
    RUN_CODE(2, "sweep", "lr=log:0.1:1e6", TRAIN, "1");
    CHECK_CONTAINS(err, "trials with lr=1000000 would fail");
    RUN_CODE(2, "sweep", "solver=sgdm,adam", "momentum=0.5,0.9", TRAIN, "1");
    CHECK_CONTAINS(err, "--momentum has no effect: --solver is adam");
    CHECK_CONTAINS(err, "trials with solver=adam would fail");
    pools_end();
}

TEST(a_resumed_sweep_keeps_its_options)
{
    exec_begin();
    setenv("GRADPOOL_FAULT", "sweep-appended:1:kill", 1); /* two points are on disk */
    RUN_CODE(-1, "sweep", "x=1:1:9", "--maximize", "--method", "sobol", "--trials", "8", "--until=-5",
             "--folder", "s", "--stop", "asha", "--", "echo", "{x}");
    unsetenv("GRADPOOL_FAULT");
    RUN_CODE(1, "sweep", "--resume", "s", "--stop", "none");
    CHECK_CONTAINS(err, "its stop is 'asha:3', not 'none'");
    RUN_CODE(1, "sweep", "--resume", "s", "--workers", "2");
    CHECK_CONTAINS(err, "its workers is '1:1', not '2:2'");
    RUN_CODE(1, "sweep", "--resume", "s", "--method", "grid");
    CHECK_CONTAINS(err, "its method is 'sobol', not 'grid'");
    RUN_CODE(1, "sweep", "--resume", "s", "--minimize");
    CHECK_CONTAINS(err, "its direction is '--maximize', not '--minimize'");
    RUN_CODE(1, "sweep", "x=1:1:9", "--resume", "s", "--", "echo", "{x}", "1 2");
    CHECK_CONTAINS(err, "its command is 'echo '{x}'', not 'echo '{x}' '1 2''");
    RUN_CODE(2, "sweep", "--resume", "s", "--folder", "t");
    CHECK_CONTAINS(err, "--resume names the folder; remove --folder");

    /* the same words again are no difference, and the goal of the first command counts */
    RUN_CODE(0, "sweep", "x=1:1:9", "--resume", "s", "--stop", "asha", "--", "echo", "{x}");
    CHECK_CONTAINS(out, "ended: a trial reached --until");
    CHECK(lines_with("\"asked\"") <= 4);

    /* the larger number of trials counts for the next controller, too */
    setenv("GRADPOOL_FAULT", "sweep-submitted:1:kill", 1);
    RUN_CODE(-1, "sweep", "--resume", "s", "--trials", "9", "--until", "99");
    unsetenv("GRADPOOL_FAULT");
    RUN_CODE(0, "sweep", "--resume", "s");
    CHECK_CONTAINS(out, "9 trials: ");
    CHECK_INT(9, lines_with("\"end\""));
    pools_end();
}

/* The pool is shut down while a sweep runs. In the foreground, the sweep ends and says how to
 * continue; as a job, it restarts with the next pool. */
TEST(a_sweep_continues_after_a_shutdown_of_the_pool)
{
    exec_begin();
    pid_t child = START("sweep", "seed=1:4", "--method", "grid", "--folder", "s", TRAIN, "2");

    REQUIRE(await_ends(1));
    RUN_OTHER(0, "down");
    FINISH_CODE(1, child);
    CHECK_CONTAINS(err, "pool default was shut down; its trials restart with the next pool");
    CHECK_CONTAINS(out, "continue: gradpool sweep --resume ");
    RUN_CODE(0, "up", "--workers", "2");
    RUN_CODE(0, "sweep", "--resume", "s");
    check_trials(4);
    leftovers_clear(in_w("s"));
    RUN_CODE(0, "submit", "--quiet", "--", "sweep", "seed=1:4", "--method", "grid", "--folder", "s", TRAIN,
             "2");
    char job[20];

    snprintf(job, sizeof(job), "%.*s", (int)strcspn(out, "\n"), out);
    REQUIRE(await_ends(1));
    RUN_CODE(0, "down");
    RUN_CODE(0, "up", "--workers", "2");
    RUN_CODE(0, "wait", job);
    check_trials(4);
    pools_end();
}

/* The folder of a trial is removed: while the trial runs, and after its end while no controller
 * runs. */
TEST(a_trial_without_its_folder_runs_again)
{
    exec_begin();
    RUN_CODE(0, "sweep", "x=1,2", "--maximize", "--folder", "s", "--max-concurrent", "1", "--", "sh", "-c",
             "test -e once || { touch once; rm -rf $GRADPOOL_RUN_FOLDER; }; echo {x}");
    CHECK_CONTAINS(out, "2 trials: 2 done");
    CHECK_INT(1, lines_with("\"lost\": true"));
    leftovers_clear(in_w("s"));
    setenv("GRADPOOL_FAULT", "sweep-submitted:2:kill", 1);
    RUN_CODE(-1, "sweep", "x=1,2", "--maximize", "--folder", "s", "--", "echo", "{x}");
    unsetenv("GRADPOOL_FAULT");
    AWAIT(RUN("jobs", "--trials") == 0 && strstr(out, "no running or queued jobs") != NULL, 5);
    leftovers_clear(in_sweep("trials"));
    mkdir(in_sweep("trials"), 0700);
    RUN_CODE(0, "sweep", "--resume", "s");
    CHECK_CONTAINS(out, "2 trials: 2 done");
    CHECK_INT(2, lines_with("\"lost\": true"));
    pools_end();
}

/* The journal of the pool is gone when the sweep resumes, and the number of its trial now names
 * trial 1 of another sweep. */
TEST(a_job_of_another_sweep_is_not_taken_for_a_trial)
{
    exec_begin();
    pid_t child =
        START("sweep", "x=1", "--maximize", "--folder", "s", "--", "sh", "-c", "sleep 0.5; echo {x}");

    AWAIT(access(in_sweep("trials/0001.job"), F_OK) == 0, 5);
    kill(child, SIGKILL);
    finish(child);
    AWAIT(access(in_sweep("trials/0001/end.json"), F_OK) == 0, 5);
    RUN_CODE(0, "down");
    leftovers_clear(in_root("state"));
    child = START("sweep", "x=1", "--maximize", "--folder", "other", "--", "sh", "-c", "sleep 30; echo {x}");
    AWAIT(access(in_w("other/trials/0001.job"), F_OK) == 0, 5);
    RUN_OTHER(0, "sweep", "--resume", "s");
    CHECK_CONTAINS(out, "1 trial: 1 done");
    RUN_OTHER(0, "jobs", "--trials"); /* the other trial has not ended meanwhile */
    CHECK_CONTAINS(out, "trial 1");
    RUN_OTHER(0, "cancel", "1");
    kill(child, SIGKILL);
    finish(child);
    pools_end();
}

/* ---- the wall clock ---- */

enum { DAY_S = 86400 };

/* Set the clock of all processes that are started with clock_begin(). */
static void set_clock(int64_t offset_s)
{
    FILE *file = fopen(in_root("clock"), "r+");

    if (file == NULL)
        file = fopen(in_root("clock"), "w");
    if (file == NULL || fwrite(&offset_s, sizeof(offset_s), 1, file) != 1 || fclose(file) != 0)
        abort();
}

static void clock_begin(void)
{
    commands_begin();
    set_clock(0);
    setenv("GP_CLOCK_FILE", in_root("clock"), 1);
    setenv("LD_PRELOAD", in_build("tests/fault_clock.so"), 1);
    RUN_CODE(0, "up", "--workers", "2");
}

static void clock_end(void)
{
    pools_end();
    unsetenv("LD_PRELOAD");
    unsetenv("GP_CLOCK_FILE");
}

/* Check the times that `sweep show` prints for the trials of a training. */
static void check_durations(size_t trials, double limit_s)
{
    RUN_CODE(0, "sweep", "show", "s", "--json");
    gp_json *json = pools_json(out);
    const gp_json *list = gp_json_member(json, "trials");

    CHECK_INT((int64_t)trials, (int64_t)gp_json_count(list));
    for (size_t i = 0; i < gp_json_count(list); i++) {
        const double seconds = gp_json_number(gp_json_member(gp_json_element(list, i), "seconds"), NAN);

        if (!(seconds > 0 && seconds < limit_s))
            GP_TEST_FAIL("trial %zu took %g s", i + 1, seconds);
    }
    gp_json_free(json);
}

/* The clock goes back and forth while the sweep runs, and back before it is resumed. */
TEST(a_sweep_continues_when_the_clock_goes_back)
{
    if (GP_SANITIZED)
        SKIP("a sanitizer must be loaded before the library that sets the clock");
    clock_begin();
    const int64_t begin_ms = gp_now_ms();
    pid_t child =
        START("sweep", "seed=1:3", "--method", "grid", "--folder", "s", "--max-concurrent", "1", TRAIN, "40");

    AWAIT(access(in_sweep("checkpoints/0001"), F_OK) == 0, 5);
    set_clock(-3 * DAY_S);
    REQUIRE(await_ends(1));
    AWAIT(access(in_sweep("checkpoints/0002"), F_OK) == 0, 5);
    set_clock(2 * DAY_S);
    kill(child, SIGINT);
    FINISH_CODE(130, child);
    set_clock(-9 * DAY_S);
    RUN_CODE(0, "sweep", "--resume", "s");
    CHECK_CONTAINS(out, "3 trials: 3 done");
    check_trials(3);
    check_durations(3, (double)(gp_now_ms() - begin_ms) / 1000);
    CHECK_INT(1, lines_with("\"attempt\": 2")); /* the interrupted trial, from its checkpoint */
    for (int epoch = 1; epoch <= 40; epoch++) {
        char text[40];

        snprintf(text, sizeof(text), "\"epoch\": %d, \"seconds\"", epoch);
        CHECK(count_in_file(in_sweep("trials/0002/metrics.jsonl"), text) >= 1);
    }
    clock_end();
}

TEST(a_time_limit_does_not_follow_the_clock)
{
    static const int64_t jumps[] = { -30 * DAY_S, DAY_S };

    if (GP_SANITIZED)
        SKIP("a sanitizer must be loaded before the library that sets the clock");
    clock_begin();
    for (size_t i = 0; i < sizeof(jumps) / sizeof(jumps[0]); i++) {
        const int64_t begin_ms = gp_now_ms();
        pid_t child = START("sweep", "x=1,2,3", "--maximize", "--folder", "s", "--time-limit", "1s", "--",
                            "sh", "-c", "exec sleep 600", "{x}");

        AWAIT(lines_with("\"asked\"") >= 1, 5);
        set_clock(jumps[i]);
        finish(child);
        CHECK_CONTAINS(out, "the time limit was reached");
        CHECK(gp_now_ms() - begin_ms >= 1000);
        CHECK(lines_with("\"asked\"") == 2);
        leftovers_clear(in_w("s"));
    }
    clock_end();
}

/* Requests wait for a controller, and the clock goes back between them. */
TEST(requests_keep_their_order_when_the_clock_goes_back)
{
    if (GP_SANITIZED)
        SKIP("a sanitizer must be loaded before the library that sets the clock");
    clock_begin();
    setenv("GRADPOOL_FAULT", "sweep-appended:1:kill", 1);
    RUN_CODE(-1, "sweep", "x=1,2,3", "--maximize", "--folder", "s", "--", "echo", "{x}");
    unsetenv("GRADPOOL_FAULT");
    for (int x = 3; x >= 1; x--) {
        char value[8];

        snprintf(value, sizeof(value), "x=%d", x);
        RUN_CODE(0, "sweep", "add", "s", value);
        set_clock((x - 4) * DAY_S);
    }
    RUN_CODE(0, "sweep", "--resume", "s");
    RUN_CODE(0, "sweep", "show", "s", "--csv", "t.csv", "--sort", "trial");
    slurp(in_w("t.csv"), out, sizeof(out));
    const char *at = out;

    for (int x = 3; x >= 1; x--) {
        char text[20];

        snprintf(text, sizeof(text), ",added,%d", x);
        at = at != NULL ? strstr(at, text) : NULL;
    }
    if (at == NULL)
        GP_TEST_FAIL("%s", out);
    clock_end();
}

TEST(a_second_controller_is_refused_with_the_process_of_the_first)
{
    char pid[20];

    exec_begin();
    pid_t child = START("sweep", "seed=1:2", "--method", "grid", "--folder", "s", TRAIN, "10000");

    AWAIT(lines_with("\"asked\"") >= 1, 5);
    REQUIRE(await_leases(2));
    pid_t second = start(-1, command_file("other"), (const char *const[]){ "sweep", "--resume", "s", NULL });

    CHECK_INT(1, finish(second));
    snprintf(pid, sizeof(pid), "process %d", (int)child);
    CHECK_CONTAINS(err, pid);
    RUN_CODE(0, "sweep", "end", "s");
    int state;

    CHECK(waitpid(child, &state, 0) == child && WIFEXITED(state) && WEXITSTATUS(state) == 130);
    pools_end();
}
