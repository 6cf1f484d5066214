/* test_cli.c: the gradpool command as run from a shell: arguments in, exit code and two streams
 * out.
 *
 * Each test has private directories and works in an empty folder, so that leftovers are
 * detected. */
#include <arpa/inet.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "common/data/format/idx.h"
#include "tests/service/commands.h"

TEARDOWN()
{
    pools_end();
}

static void cli_begin(void)
{
    commands_begin();
    setenv("HOME", pools_root, 1);
    unsetenv("GRADPOOL_DATA");
    unsetenv("XDG_CACHE_HOME");
}

/* Run a command that must succeed; otherwise print the output and return. */
#define RUN_OK(...)                                                                                          \
    do {                                                                                                     \
        int code_ = RUN(__VA_ARGS__);                                                                        \
        if (code_ != 0) {                                                                                    \
            GP_TEST_FAIL("exit code %d: %s", code_, err);                                                    \
            return;                                                                                          \
        }                                                                                                    \
    } while (0)

static bool there_is(const char *path)
{
    return access(in_root(path), F_OK) == 0;
}

/* Check that all names of the list are members. */
static void check_keys(const gp_json *object, const char *const *keys)
{
    for (; *keys != NULL; keys++)
        if (gp_json_member(object, *keys) == NULL)
            GP_TEST_FAIL("missing member \"%s\"", *keys);
}

#define CHECK_KEYS(object, ...) check_keys(object, (const char *const[]){ __VA_ARGS__, NULL })

static double number_in(const gp_json *object, const char *key)
{
    return gp_json_number(gp_json_member(object, key), NAN);
}

/* ---- the pool ---- */

TEST(without_a_pool_the_home_screen_says_how_to_start_one)
{
    cli_begin();
    FINISH_CODE(0, start(-1, -1, (const char *const[]){ NULL }));
    CHECK_CONTAINS(out, "No pool is running");
    CHECK_CONTAINS(out, "gradpool up");
    RUN_CODE(1, "status");
    CHECK_CONTAINS(err, "start one with: gradpool up");
    RUN_CODE(1, "status", "--json");
    CHECK_TEXT("{\"pool\": null}\n", out);
}

TEST(up_resize_and_down_report_the_pool)
{
    cli_begin();
    RUN_OK("up", "--workers", "2", "--devices", "cpu", "--idle-timeout", "20m");
    CHECK_CONTAINS(out, "started; ready in");
    RUN_OK("up");
    CHECK_CONTAINS(out, "already running");
    RUN_OK("up", "--workers", "2", "--devices", "cpu");
    CHECK_CONTAINS(out, "already running");
    RUN_OK("up", "--workers", "3");
    CHECK_CONTAINS(out, "resized (it had 2 workers)");
    CHECK_CONTAINS(out, "ends after 20 m without use"); /* a resize keeps the idle timeout */
    RUN_OK("up", "--quiet");
    CHECK_TEXT("", out);
    finish(start(-1, -1, (const char *const[]){ NULL }));
    CHECK_CONTAINS(out, "pool default: 3 workers");
    CHECK_CONTAINS(out, "gradpool down");
    RUN_OK("down");
    CHECK_CONTAINS(out, "pool default was shut down: 3 workers");
    RUN_OK("down");
    CHECK_CONTAINS(err, "no pool is running");
}

TEST(up_fails_if_no_worker_starts)
{
    cli_begin();
    write_file("worker", "#!/bin/sh\nexit 7\n");
    chmod(in_root("worker"), 0700);
    setenv("GRADPOOL_WORKER", in_root("worker"), 1);
    RUN_CODE(1, "up", "--workers", "2");
    CHECK_CONTAINS(err, "no worker started; worker 1: exited 5 times during startup");
    CHECK_CONTAINS(out, "dead");
    CHECK(strstr(out, "ready in") == NULL);
    RUN_OK("down");
}

TEST(json_status_has_the_documented_members)
{
    cli_begin();
    RUN_OK("up", "--workers", "2", "--devices", "cpu", "--quiet");
    CHECK_TEXT("", err);
    RUN_OK("status", "--json");
    gp_json *json = pools_json(out);

    REQUIRE(json != NULL);
    CHECK_KEYS(json, "pool", "scheduler", "workers", "leases", "jobs");
    CHECK_TEXT("default", gp_json_text(gp_json_member(json, "pool"), ""));
    CHECK(number_in(gp_json_member(json, "scheduler"), "pid") > 1);
    const gp_json *workers = gp_json_member(json, "workers");

    CHECK_INT(2, gp_json_count(workers));
    for (size_t i = 0; i < gp_json_count(workers); i++) {
        const gp_json *worker = gp_json_element(workers, i);

        CHECK_KEYS(worker, "index", "pid", "host", "state", "device", "reason");
        CHECK_KEYS(gp_json_member(worker, "device"), "kind", "index", "uuid", "name");
        CHECK_INT((long long)i + 1, gp_json_integer(gp_json_member(worker, "index"), 0));
        CHECK_TEXT("idle", gp_json_text(gp_json_member(worker, "state"), ""));
        CHECK(process_alive((pid_t)number_in(worker, "pid")));
    }
    gp_json_free(json);
}

/* ---- usage errors ---- */

/* A command line with the expected exit code and error text. */
typedef struct mistake {
    int code;
    const char *words, *arguments[14];
} mistake;

#define LENET "train", "--network", "lenet", "--data", "digits:500"

static const mistake mistakes[] = {
    { 2, "did you mean 'train'?", { "trian" } },
    { 2, "did you mean 'status'?", { "help", "statsu" } },
    { 2, "gradpool status --pool x", { "--pool", "x", "status" } },
    { 2, "did you mean --network?", { "train", "--netwrk", "lenet" } },
    { 2, "did you mean --solver?", { "train", "--optimizer", "adam" } },
    { 2, "did you mean --gradient-threshold?", { "train", "--max-norm", "1" } },
    { 2, "did you mean --l2-regularization?", { "train", "--L2Regularization", "1" } },
    { 2, "did you mean --learn-rate-drop-factor?", { "train", "--LearnRateDropFactor=1" } },
    { 2, "--network is missing", { "train" } },
    { 2, "--data needs a value", { "train", "--network", "lenet", "--data" } },
    { 2, "initial-learn-rate is nan", { LENET, "--lr", "nan" } },
    { 2, "max-epochs", { LENET, "--epochs", "0" } },
    { 2, "did you mean 'make'?", { "data", "mak", "digits", "d" } },
    { 2, "needs -o SHEET.png", { "data", "preview", "digits:10" } },
    { 1,
      "did you mean 'rotation'?",
      { "data", "preview", "digits:10", "--augment", "rotatin=3", "-o", "s.png" } },
    { 1, "did you mean 'crop'?", { LENET, "--augment", "crp=random" } },
    { 2, "unexpected word 'twice'", { "status", "twice" } },
    { 2, "--idle-timeout is 'soon'", { "up", "--idle-timeout", "soon" } },
    { 2, "--input is '1x28'", { "model", "show", "lenet", "--input", "1x28" } },
    { 2, "did you mean 'show'?", { "model", "shw", "lenet" } },
    { 1, "did you mean 'form'?", { "model", "show", "googlenet:fom=caffe" } },
    { 1, "did you mean 'resnet18'?", { "model", "get", "resnet-18" } },
    { 1, "--sha256 is 'abc'", { "model", "get", "resnet18", "--sha256", "abc" } },
    { 1, "does not end in a file name", { "model", "get", "http://127.0.0.1/" } },
    { 2, "unknown option --json", { "down", "--json" } },
    { 2, "--model is missing", { "predict" } },
    { 1, "did you mean 'lenet'?", { "train", "--network", "lenett", "--data", "digits:500" } },
    { 1, "did you mean \"fashion-mnist\"?", { "train", "--network", "lenet", "--data", "fasion-mnist" } },
    { 1, "cannot open none.onnx", { "predict", "--model", "none.onnx", "--data", "digits:500" } },
    { 1, "`gradpool up --workers 5`", { LENET, "--workers", "5" } },
    { 2, "--workers is '0'", { LENET, "--workers", "0" } },
    { 1, "has a GPU of its own", { LENET, "--execution-environment", "multi-gpu" } },
    { 2, "uses one worker", { LENET, "--execution-environment", "cpu", "--workers", "2" } },
    { 1, "has only 500 samples", { LENET, "--mini-batch-size", "501" } },
    { 1, "train: network lenet has no batch norm", { LENET, "--synchronize-batch-norm" } },
    { 1,
      "train: mini-batch-size is 128, but ",
      { "train", "--network", "lenet", "--data", "../images/train" } },
    { 1, "its folder is not writable", { LENET, "--out", "nowhere/m.onnx" } },
    { 1, "its folder is not writable", { LENET, "--metrics", "nowhere/m.jsonl" } },
    { 1, "a folder; it must be a file", { LENET, "--out", "nowhere/" } },
};

TEST(usage_errors_have_a_message_and_no_side_effects)
{
    cli_begin();
    RUN_OK("up", "--workers", "2", "--devices", "cpu", "--quiet");
    RUN_OK("data", "make", "digits", "../images", "--count", "21", "--test-count", "10", "--format", "png");
    for (size_t i = 0; i < sizeof(mistakes) / sizeof(mistakes[0]); i++) {
        const mistake *m = &mistakes[i];
        int code = finish(start(-1, -1, m->arguments));

        if (code != m->code)
            GP_TEST_FAIL("exit code %d, expected %d, for: %s", code, m->code, m->words);
        CHECK_CONTAINS(err, m->words);
        CHECK(strncmp(err, "gradpool", 8) == 0);
        CHECK_TEXT("", out);
    }
    CHECK_INT(0, pools_entries("w"));
}

TEST(an_option_without_effect_is_refused_with_the_corrected_command_line)
{
    cli_begin();
    RUN_CODE(2, LENET, "--learn-rate-drop-factor", "0.5");
    CHECK_CONTAINS(err, "gradpool train --network lenet --data digits:500 --learn-rate-drop-factor 0.5 "
                        "--learn-rate-schedule piecewise\n");
    CHECK_INT(0, pools_entries("w"));
    RUN_CODE(1, "status"); /* no pool was started */
    RUN_OK("up", "--workers", "1", "--devices", "cpu", "--quiet");
    RUN_OK(LENET, "--learn-rate-drop-factor", "0.5", "--lint", "warn", "--epochs", "1", "--quiet");
    CHECK_CONTAINS(err, "--learn-rate-drop-factor has no effect");
}

TEST(network_that_is_too_large_is_refused_before_a_pool_is_started)
{
    cli_begin();
    write_file("w/large.json", "{\"input\": [1, 8, 8], \"layers\": ["
                               "{\"name\": \"a\", \"kind\": \"fc\", \"outputs\": 50000},"
                               "{\"name\": \"b\", \"kind\": \"fc\", \"outputs\": 50000},"
                               "{\"name\": \"loss\", \"kind\": \"crossentropy\"}]}");
    RUN_CODE(1, "train", "--network", "large.json", "--data", "synthetic:8x8x1:10:256");
    CHECK_CONTAINS(err, "more than 2147483647 elements");
    RUN_CODE(1, "status"); /* no pool was started */
    CHECK_CONTAINS(err, "start one with: gradpool up");
}

static void overwrite(const char *path, const void *data, size_t bytes)
{
    FILE *file = fopen(in_root(path), "w");

    if (file == NULL || fwrite(data, 1, bytes, file) != bytes || fclose(file) != 0)
        abort();
}

TEST(damaged_data_is_named_and_leaves_no_files)
{
    static const char magic[16] = { 0, 0, 8, 7, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1 };
    const char *images = "data/train-images-idx3-ubyte.gz", *plain = "data/train-images-idx3-ubyte";
    char packed[4096];
    FILE *file;

    cli_begin();
    RUN_OK("up", "--workers", "2", "--devices", "cpu", "--quiet");
    RUN_OK("data", "make", "digits", "../data", "--count", "300", "--test-count", "100");
    const char *const train[] = {
        "train", "--network", "lenet", "--data", "../data", "--out", "m.onnx", NULL
    };

    overwrite("data/classes.txt", "zero\none\n", 9);
    FINISH_CODE(1, start(-1, -1, train));
    CHECK_CONTAINS(err, "label");
    unlink(in_root("data/classes.txt"));
    file = fopen(in_root(images), "r+");
    REQUIRE(file != NULL && fread(packed, 1, sizeof(packed), file) == sizeof(packed));
    for (size_t i = 100; i < sizeof(packed); i++)
        packed[i] = (char)(packed[i] ^ 0x5a);
    rewind(file);
    REQUIRE(fwrite(packed, 1, sizeof(packed), file) == sizeof(packed) && fclose(file) == 0);
    FINISH_CODE(1, start(-1, -1, train));
    CHECK_CONTAINS(err, "train-images-idx3-ubyte.gz is a damaged gzip file");
    unlink(in_root(images));
    overwrite(plain, magic, sizeof(magic));
    FINISH_CODE(1, start(-1, -1, train));
    CHECK_CONTAINS(err, "magic 0x00000807");
    CHECK_INT(0, pools_entries("w"));
    RUN_OK("status"); /* the pool still works */
}

/* ---- work ---- */

/* Start a pool of two and train a small model w/m.onnx with metrics w/m.jsonl. */
static bool trained(void)
{
    cli_begin();
    return RUN("up", "--workers", "2", "--devices", "cpu", "--quiet") == 0 &&
           RUN("train", "--network", "lenet", "--data", "digits:2000", "--epochs", "2", "--lr", "0.1",
               "--json", "--out", "m.onnx", "--metrics", "m.jsonl") == 0;
}

/* Return whether the line has this value with the fewest digits that read back exactly. */
static bool exactly(const char *line, const char *key, double value)
{
    char text[80];

    for (int digits = 6; digits <= 17; digits++) {
        int name = snprintf(text, sizeof(text), "\"%s\": ", key);

        snprintf(text + name, sizeof(text) - (size_t)name, "%.*g", digits, value);
        if (strtod(text + name, NULL) == value)
            break;
    }
    return strstr(line, text) != NULL;
}

static void check_metrics(const char *path)
{
    static char text[OUT_BYTES];
    uint32_t steps = 0, checks = 0;
    char *rest = NULL;

    slurp(path, text, sizeof(text));
    for (char *line = strtok_r(text, "\n", &rest); line != NULL; line = strtok_r(NULL, "\n", &rest)) {
        gp_json *json = pools_json(line);

        REQUIRE(json != NULL);
        if (gp_json_member(json, "validation_loss") != NULL) {
            checks++;
            CHECK_KEYS(json, "step", "validation_loss", "validation_accuracy");
        } else {
            CHECK_KEYS(json, "step", "epoch", "seconds", "samples", "loss", "learn_rate", "time");
            CHECK_INT(++steps, gp_json_integer(gp_json_member(json, "step"), 0));
            CHECK(exactly(line, "loss", number_in(json, "loss")));
        }
        gp_json_free(json);
    }
    CHECK_INT(32, steps);
    CHECK_INT(2, checks);
}

TEST(training_reports_its_result_as_json_and_keeps_a_run_folder)
{
    char path[600];

    REQUIRE(trained());
    gp_json *json = pools_json(out);

    REQUIRE(json != NULL);
    CHECK_TEXT("m.onnx", gp_json_text(gp_json_member(json, "model"), ""));
    CHECK_INT(32, gp_json_integer(gp_json_member(json, "steps"), 0));
    CHECK(number_in(json, "validation_accuracy") > 0.5);
    CHECK(there_is("w/m.onnx"));
    check_metrics(in_root("w/m.jsonl"));
    const char *files[] = { "job.json", "end.json", "log", "metrics.jsonl" };

    for (size_t i = 0; i < 4; i++) {
        snprintf(path, sizeof(path), "w/%s/%s", gp_json_text(gp_json_member(json, "folder"), "none"),
                 files[i]);
        CHECK(there_is(path));
        slurp(in_root(path), out, sizeof(out));
        if (i < 2)
            gp_json_free(pools_json(out));
        else if (i == 2)
            CHECK_CONTAINS(out, "|       2 |     32 |");
        else
            check_metrics(in_root(path));
    }
    gp_json_free(json);
}

/* Count the lines of a file that contain a text. */
static int lines_with(const char *path, const char *part)
{
    static char text[OUT_BYTES];
    int count = 0;
    char *rest = NULL;

    slurp(in_root(path), text, sizeof(text));
    for (char *line = strtok_r(text, "\n", &rest); line != NULL; line = strtok_r(NULL, "\n", &rest))
        count += strstr(line, part) != NULL;
    return count;
}

TEST(resumed_training_continues_the_records_of_its_folder)
{
    cli_begin();
    RUN_OK("up", "--workers", "1", "--devices", "cpu", "--quiet");
    RUN_OK("train", "--network", "lenet", "--data", "digits:2000", "--epochs", "1", "--folder", "run",
           "--checkpoint-path", "ck", "--metrics", "copy.jsonl", "--quiet");
    /* four documents and logs, two records, the model, the lock, and one file for TensorBoard */
    CHECK_INT(9, pools_entries("w/run"));
    CHECK_INT(1, RUN("train", "--network", "lenet", "--data", "digits:2000", "--folder", "run", "--metrics",
                     "copy.jsonl", "--quiet"));
    CHECK(there_is("w/run/end.json"));
    CHECK_CONTAINS(err, "the folder run has the steps of another training; resume it with --resume");
    /* as if an attempt had been killed after step 18 */
    FILE *file = fopen(in_root("w/run/metrics.jsonl"), "a");

    REQUIRE(file != NULL);
    fputs("{\"step\": 17, \"loss\": 1}\n{\"step\": 18, \"loss\": 1}\n{\"step\": 1", file);
    fclose(file);
    int lock = open(in_root("w/run/writer.lock"), O_RDONLY | O_CLOEXEC);

    REQUIRE(lock >= 0 && flock(lock, LOCK_EX) == 0);
    CHECK_INT(1, RUN("train", "--network", "lenet", "--data", "digits:2000", "--epochs", "2", "--folder",
                     "run", "--checkpoint-path", "ck", "--resume", "auto", "--quiet"));
    CHECK_CONTAINS(err, "another training writes to the folder run");
    RUN_OK("runs", "list", "run");
    CHECK_CONTAINS(out, " completed "); /* end.json has the state */
    close(lock);
    /* a reader that holds the lock for a moment does not disturb the training */
    lock = open(in_root("w/run/writer.lock"), O_RDONLY | O_CLOEXEC);
    REQUIRE(lock >= 0 && flock(lock, LOCK_SH) == 0);
    pid_t child =
        START("train", "--network", "lenet", "--data", "digits:2000", "--epochs", "2", "--folder", "run/",
              "--checkpoint-path", "ck", "--resume", "auto", "--metrics", "copy.jsonl", "--quiet");

    gp_sleep_ms(300);
    close(lock);
    FINISH_CODE(0, child);
    RUN_OK("runs", "--all", "--json");
    gp_json *runs = pools_json(out);

    CHECK_INT(1, gp_json_count(runs)); /* both trainings are one run */
    gp_json_free(runs);
    check_metrics(in_root("w/run/metrics.jsonl"));
    check_metrics(in_root("w/copy.jsonl"));
    CHECK(there_is("w/run/end.json"));
    CHECK_INT(10, pools_entries("w/run"));
    CHECK_INT(1, lines_with("w/run/facts.json", "\"network\": \"lenet\""));
    CHECK_INT(1, lines_with("w/run/workers.jsonl", "\"first_step\": 1,"));
    CHECK_INT(1, lines_with("w/run/workers.jsonl", "\"first_step\": 17,"));
}

/* A limit of the file size cuts a line, as a full disk does. */
TEST(line_after_a_full_disk_begins_with_a_newline)
{
    struct rlimit before, full;
    struct stat metrics = { 0 };
    char next[2] = "";

    cli_begin();
    RUN_OK("up", "--workers", "1", "--devices", "cpu", "--quiet");
    signal(SIGXFSZ, SIG_IGN); /* the command inherits this */
    pid_t child = START("train", "--network", "lenet", "--data", "digits:2000", "--epochs", "100000",
                        "--folder", "run", "--quiet");

    signal(SIGXFSZ, SIG_DFL);
    AWAIT(stat(in_root("w/run/metrics.jsonl"), &metrics) == 0 && metrics.st_size > 0, 20);
    CHECK_INT(0, prlimit(child, RLIMIT_FSIZE, NULL, &before));
    full = (struct rlimit){ .rlim_cur = (rlim_t)metrics.st_size + 3000, .rlim_max = before.rlim_max };
    CHECK_INT(0, prlimit(child, RLIMIT_FSIZE, &full, NULL));
    AWAIT(stat(in_root("w/run/metrics.jsonl"), &metrics) == 0 && (rlim_t)metrics.st_size >= full.rlim_cur,
          20);
    gp_sleep_ms(50); /* lines are lost */
    CHECK_INT(0, prlimit(child, RLIMIT_FSIZE, &before, NULL));
    AWAIT(stat(in_root("w/run/metrics.jsonl"), &metrics) == 0 &&
              (rlim_t)metrics.st_size >= full.rlim_cur + sizeof(next),
          20);
    kill(child, SIGINT);
    FINISH_CODE(130, child);
    CHECK_CONTAINS(err, " of metrics: File too large"); /* "1 line" or more */
    int fd = open(in_root("w/run/metrics.jsonl"), O_RDONLY | O_CLOEXEC);

    CHECK_INT(2, pread(fd, next, sizeof(next), (off_t)full.rlim_cur));
    close(fd);
    CHECK(next[0] == '\n' && next[1] == '{');
}

TEST(later_attempt_adds_a_run_that_the_index_lacks)
{
    static const char *const epochs[] = { "1", "2", "3" };

    cli_begin();
    RUN_OK("up", "--workers", "1", "--devices", "cpu", "--quiet");
    CHECK(shell("cd state/*/default && mkdir runs.jsonl") == 0);
    for (int i = 0; i < 3; i++) {
        RUN_OK("train", "--network", "lenet", "--data", "digits:500", "--epochs", epochs[i], "--folder",
               "run", "--checkpoint-path", "ck", "--resume", "auto", "--quiet");
        CHECK_INT(i == 0, count_in(err, "the run is missing in `gradpool runs`"));
        if (i == 0)
            CHECK(shell("rmdir state/*/default/runs.jsonl") == 0);
    }
    RUN_OK("runs");
    CHECK_INT(1, count_in(out, "lenet"));
}

TEST(runs_are_listed_sorted_and_compared)
{
    char note[300] = "";

    cli_begin();
    RUN_OK("runs");
    CHECK_TEXT("no runs\n", out);
    RUN_OK("up", "--workers", "1", "--devices", "cpu", "--quiet");
    RUN_OK("train", "--network", "lenet", "--data", "digits:500", "--epochs", "1", "--lr", "0.001",
           "--quiet");
    RUN_OK("train", "--network", "lenet", "--data", "digits:500", "--epochs", "3", "--lr", "0.1", "--quiet");
    RUN_OK("runs", "note", "2", "the \"better\" one");
    RUN_OK("runs", "--sort", "accuracy", "--json");
    gp_json *json = pools_json(out);

    REQUIRE(gp_json_count(json) == 2);
    const gp_json *best = gp_json_element(json, 0);

    CHECK_INT(2, gp_json_integer(gp_json_member(best, "run"), 0));
    CHECK_TEXT("completed", gp_json_text(gp_json_member(best, "state"), ""));
    CHECK_TEXT("the \"better\" one", gp_json_text(gp_json_member(best, "note"), ""));
    CHECK_TEXT("lenet", gp_json_text(gp_json_member(best, "network"), ""));
    CHECK_INT(3, gp_json_integer(gp_json_member(best, "epochs"), 0));
    CHECK(number_in(best, "images_per_second") > 0);
    gp_json_free(json);
    RUN_OK("runs", "--where", "initial-learn-rate<0.01", "--where", "network=lenet");
    CHECK_CONTAINS(out, "run  when");
    CHECK_CONTAINS(out, "\n1    ");
    CHECK(strstr(out, "\n2    ") == NULL);
    RUN_OK("runs", "--where", "accuracy>=1%", "--where", "accuracy<=100 %");
    CHECK_CONTAINS(out, "\n2    ");
    RUN_OK("runs", "compare", "1", "latest", "--plot", "curves.png");
    CHECK_CONTAINS(out, "\ninitial-learn-rate  0.001      0.1\n");
    CHECK_CONTAINS(out, "\nstate               completed  completed\n");
    CHECK(strstr(out, "momentum") == NULL); /* equal */
    CHECK(there_is("w/curves.png"));
    RUN_OK("runs", "--csv", "--where", "note!=");
    CHECK_CONTAINS(out, "\"the \"\"better\"\" one\"");
    memset(note, 'x', sizeof(note) - 2); /* notes that differ in the last character */
    for (int run = 1; run <= 2; run++) {
        note[sizeof(note) - 2] = run == 1 ? 'a' : 'b';
        RUN_OK("runs", "note", run == 1 ? "1" : "2", note);
    }
    RUN_OK("runs", "--sort", "note", "--json");
    json = pools_json(out);
    CHECK_INT(1, gp_json_integer(gp_json_member(gp_json_element(json, 0), "run"), 0));
    gp_json_free(json);
    CHECK_INT(1, RUN("runs", "--where", "lern-rate=1"));
    CHECK_CONTAINS(err, "--where: runs have no 'lern-rate'");
    CHECK_INT(1, RUN("runs", "--where", "accuracy>=0,9"));
    CHECK_CONTAINS(err, "--where: accuracy is a number, and '0,9' is not; write it with a decimal point");
    CHECK_INT(1, RUN("runs", "--where", "initial-learn-rate=high"));
    CHECK_CONTAINS(err, "--where: initial-learn-rate is a number, and 'high' is not");
    RUN_OK("runs", "--where", "accuracy!=", "--where", "began>2026", "--where", "network!=0,9");
    CHECK_INT(1, RUN("runs", "list", "3"));
    CHECK_CONTAINS(err, "no run 3; `gradpool runs` lists them");
    CHECK_INT(1, RUN("runs", "list", "."));
    CHECK_CONTAINS(err, ". is not a run folder: it has no job.json");
    /* a folder that was removed, and a training that was killed */
    unlink(in_root("w/gradpool-runs/latest/end.json"));
    RUN_OK("runs", "list", "2");
    CHECK_CONTAINS(out, " killed ");
    int lock = open(in_root("w/gradpool-runs/latest/writer.lock"), O_RDONLY | O_CLOEXEC);

    REQUIRE(lock >= 0 && flock(lock, LOCK_EX) == 0);
    RUN_OK("runs", "list", "2", "gradpool-runs/latest/");
    CHECK_INT(2, count_in(out, " running "));
    close(lock);
    CHECK_INT(1, RUN("runs", "note", "2", "a\nb"));
    CHECK_CONTAINS(err, "note");
    unlink(in_root("w/gradpool-runs/latest/job.json"));
    RUN_OK("runs");
    CHECK(strstr(out, "\n2    ") == NULL);
}

/* A run folder needs only a job.json to be listed. */
TEST(list_of_a_large_index_has_the_newest_runs)
{
    static const char record[] = "{\"began\": \"2026-01-02T03:04:05Z\"}";
    char host[80], path[200];
    FILE *index;

    cli_begin();
    RUN_OK("up", "--workers", "1", "--devices", "cpu", "--quiet");
    mkdir(in_root("w/old"), 0700);
    mkdir(in_root("w/new"), 0700);
    write_file("w/old/job.json", record);
    write_file("w/new/job.json", record);
    REQUIRE(gethostname(host, sizeof(host)) == 0);
    snprintf(path, sizeof(path), "state/%s/default/runs.jsonl", host);
    index = fopen(in_root(path), "w");
    REQUIRE(index != NULL);
    fprintf(index, "{\"folder\": \"%s\"}\n", in_root("w/old"));
    for (int i = 0; i < 10000; i++)
        fprintf(index, "{\"folder\": \"/nonexistent/%d\"}\n", i);
    fprintf(index, "torn\n{\"folder\": \"%s\"}\n", in_root("w/new"));
    fclose(index);
    RUN_OK("runs", "--all");
    CHECK_CONTAINS(err, "the index has 10003 runs; only the newest 10000 are considered");
    CHECK_CONTAINS(out, "\n10003  ");
    CHECK(strstr(out, "w/old") == NULL);
    RUN_OK("runs", "list", "1", "latest");
    CHECK_CONTAINS(out, "w/old");
    CHECK_CONTAINS(out, "w/new");
    CHECK_INT(1, RUN("runs", "list", "10002")); /* the torn line */
}

/* Versions before `runs` wrote no options, network or data, and no steps of other workers. */
TEST(folder_of_an_older_version_is_listed_and_compared)
{
    cli_begin();
    mkdir(in_root("w/old"), 0700);
    write_file("w/old/job.json", "{\"began\": \"2026-01-02T03:04:05Z\", \"arguments\": [\"gradpool\", "
                                 "\"train\", \"--network=lenet\", \"--data\", \"digits:2000\"]}");
    write_file("w/old/facts.json", "{\"workers\": 2, \"batch\": 64, \"steps_per_epoch\": 2, \"epochs\": 9}");
    write_file(
        "w/old/metrics.jsonl",
        "{\"step\": 3, \"epoch\": 2, \"seconds\": 1, \"loss\": 0.5, \"time\": {\"forward\": 1}}\n"
        "{\"step\": 4, \"epoch\": 2, \"seconds\": 1.5, \"loss\": 0.25, \"time\": {}}\n"
        "{\"step\": 4, \"validation_loss\": 0.125, \"validation_accuracy\": 0.87654321}\n{\"step\": 5");
    RUN_OK("runs", "list", "old", "--json");
    gp_json *json = pools_json(out);
    const gp_json *run = gp_json_element(json, 0);

    CHECK_TEXT("killed", gp_json_text(gp_json_member(run, "state"), ""));
    CHECK_TEXT("lenet", gp_json_text(gp_json_member(run, "network"), ""));
    CHECK_TEXT("digits:2000", gp_json_text(gp_json_member(run, "data"), ""));
    CHECK_INT(4, gp_json_integer(gp_json_member(run, "steps"), 0));
    CHECK(number_in(run, "validation_loss") == 0.125 && number_in(run, "images_per_second") == 128);
    gp_json_free(json);
    RUN_OK("runs", "list", "old", "--csv");
    CHECK_CONTAINS(out, ",killed,2,4,0.87654321,0.125,,1.5,128,2,");
    RUN_OK("runs", "compare", "old", "old");
    CHECK_CONTAINS(out, "\naccuracy           0.8765  0.8765\n");
    RUN_OK("report", "./old");
    CHECK_CONTAINS(out, "last steps");
    RUN_OK("runs", "list", "old", "--where", "solver=adam"); /* it has no options */
    CHECK_TEXT("no runs\n", out);
}

TEST(runs_with_long_values_are_compared_by_all_bytes)
{
    char text[400], data[120];

    cli_begin();
    memset(data, 'd', sizeof(data) - 1);
    data[sizeof(data) - 1] = '\0';
    for (int i = 1; i <= 2; i++) {
        snprintf(text, sizeof(text), "w/long%d", i);
        mkdir(in_root(text), 0700);
        snprintf(text, sizeof(text), "{\"arguments\": [\"gradpool\", \"train\", \"--data\", \"/%s/%d\"]}",
                 data, i);
        write_file(i == 1 ? "w/long1/job.json" : "w/long2/job.json", text);
    }
    RUN_OK("runs", "compare", "long1", "long2");
    CHECK_CONTAINS(out, "data ");
    CHECK_CONTAINS(out, "dd/1  ...ddd");
    CHECK_CONTAINS(out, "dd/2\n");
    pools_end();
}

TEST(warnings_of_a_training_are_printed_with_quiet)
{
    cli_begin();
    RUN_OK("up", "--workers", "1", "--devices", "cpu", "--quiet");
    FINISH_CODE(
        0, start(-1, -1,
                 (const char *const[]){ "train", "--network", "lenet", "--data", "digits:200", "--epochs",
                                        "1", "--quiet", "--checkpoint-path", "/proc/none", NULL }));
    CHECK_CONTAINS(err,
                   "warning: cannot write the checkpoint of step 2: cannot create the directory /proc/none");
    slurp(in_root("w/gradpool-runs/latest/log"), out, sizeof(out));
    CHECK_CONTAINS(out,
                   "warning: cannot write the checkpoint of step 2: cannot create the directory /proc/none");
    slurp(in_root("w/gradpool-runs/latest/job.json"), out, sizeof(out));
    CHECK_CONTAINS(out, "\"checkpoint-path\": \"/proc/none\"");
    CHECK_CONTAINS(out, "\"mini-batch-size\": 128"); /* all options, including defaults */
}

TEST(two_trainings_in_the_same_second_keep_both_models)
{
    const char *const train[] = { "train", "--network", "lenet",     "--data", "digits:500", "--epochs",
                                  "1",     "--json",    "--workers", "1",      NULL };

    cli_begin();
    RUN_OK("up", "--workers", "1", "--devices", "cpu", "--quiet");
    for (uint32_t i = 1; i <= 3; i++) {
        char path[600];

        FINISH_CODE(0, start(-1, -1, train));
        gp_json *json = pools_json(out);

        REQUIRE(json != NULL);
        snprintf(path, sizeof(path), "w/%s", gp_json_text(gp_json_member(json, "model"), "none"));
        CHECK_CONTAINS(path, "result/model.onnx");
        CHECK(there_is(path));
        CHECK_INT(i + 1, pools_entries("w/gradpool-runs")); /* plus the link to the latest run */
        gp_json_free(json);
    }
}

TEST(predictions_are_ordered_and_agree_with_evaluate)
{
    uint32_t rows = 0;
    char *rest = NULL, said[80];
    static char csv[OUT_BYTES];

    REQUIRE(trained());
    gp_json *training = pools_json(out), *json;

    RUN_OK("predict", "--model", "m.onnx", "--data", "digits:2000", "--out", "p.csv");
    slurp(in_root("w/p.csv"), csv, sizeof(csv));
    strtok_r(csv, "\n", &rest);
    CHECK_TEXT(
        "index,name,class,score_0,score_1,score_2,score_3,score_4,score_5,score_6,score_7,score_8,score_9",
        csv);
    for (char *line; (line = strtok_r(NULL, "\n", &rest)) != NULL; rows++)
        CHECK_INT(rows, atoi(line));
    snprintf(said, sizeof(said), "%u samples in", rows);
    CHECK_CONTAINS(err, said);
    const char *accuracy = strstr(err, "accuracy ");

    REQUIRE(accuracy != NULL);
    double predicted = atof(accuracy + 9);

    RUN_OK("evaluate", "--model", "m.onnx", "--data", "digits:2000", "--json");
    json = pools_json(out);
    REQUIRE(json != NULL && training != NULL);
    CHECK_KEYS(json, "accuracy", "loss", "count");
    CHECK_INT(rows, gp_json_integer(gp_json_member(json, "count"), 0));
    CHECK_NEAR(predicted, number_in(json, "accuracy") * 100, 0.0051);
    CHECK_NEAR(number_in(training, "validation_accuracy"), number_in(json, "accuracy"), 1e-12);
    CHECK_NEAR(number_in(training, "validation_loss"), number_in(json, "loss"), 1e-6);
    gp_json_free(json);
    gp_json_free(training);
}

TEST(generated_digits_are_trained_on_by_a_relative_path)
{
    cli_begin();
    RUN_OK("up", "--workers", "2", "--devices", "cpu", "--quiet");
    RUN_OK("data", "make", "digits", "d", "--count", "600", "--test-count", "150");
    CHECK_TEXT("d\n", out);
    RUN_OK("train", "--network", "lenet", "--data", "d", "--epochs", "1", "--plots", "none");
    CHECK_CONTAINS(out, "2 workers, mini-batch 128 (64 + 64), 1 epoch of 5 steps, 600 samples");
    CHECK_CONTAINS(out, "validation: 150 samples");
    CHECK_CONTAINS(out, "finished after 5 steps");
}

TEST(contact_sheet_shows_samples_before_and_after_preprocessing)
{
    uint8_t head[24] = { 0 };
    FILE *file;

    cli_begin();
    RUN_OK("data", "preview", "digits:40", "--augment", "crop=random crop-size=20,20 rotation=-20,20",
           "--rows", "5", "--columns", "3", "-o", "sheet.png");
    CHECK_TEXT("sheet.png\n", out);
    file = fopen(in_root("w/sheet.png"), "rb");
    REQUIRE(file != NULL);
    CHECK_INT(24, fread(head, 1, sizeof(head), file));
    fclose(file);
    CHECK(memcmp(head, "\x89PNG\r\n\x1a\n", 8) == 0);

    /* images of 28 pixels with 2 pixels between */
    CHECK_INT(2 + 3 * 30, head[18] * 256 + head[19]);
    CHECK_INT(2 + 5 * 30, head[22] * 256 + head[23]);
}

/* ---- downloaded models ---- */

/* Serve a small body to every request, in a child process: "abd" below /others/, else `body`. */
static pid_t serve(int *port, const char *body)
{
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t bytes = sizeof(address);
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    pid_t child;

    if (bind(listener, (struct sockaddr *)&address, bytes) != 0 || listen(listener, 8) != 0 ||
        getsockname(listener, (struct sockaddr *)&address, &bytes) != 0)
        return -1;
    *port = ntohs(address.sin_port);
    fflush(stdout);
    child = fork();
    if (child != 0) {
        close(listener);
        return child;
    }
    for (;;) {
        int fd = accept(listener, NULL, NULL);
        char request[4096] = "";
        const char *sent = body;

        if (recv(fd, request, sizeof(request) - 1, 0) > 0) {
            if (strncmp(request, "GET /others/", 12) == 0)
                sent = "abd";
            dprintf(fd, "HTTP/1.1 200 OK\r\nContent-Length: %zu\r\nConnection: close\r\n\r\n%s", strlen(sent),
                    sent);
        }
        close(fd);
    }
}

TEST(model_is_fetched_from_a_url_and_its_checksum_printed_or_verified)
{
    static const char sum[] =
        "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"; /* SHA-256 of "abc" */
    char url[80], other[80], wrong[80], path[400];
    int port;
    pid_t server = serve(&port, "abc");

    REQUIRE(server > 0);
    cli_begin();
    setenv("no_proxy", "127.0.0.1", 1);
    setenv("XDG_CACHE_HOME", in_root("cache"), 1);
    snprintf(url, sizeof(url), "http://127.0.0.1:%d/models/net.onnx", port);
    RUN_OK("model", "get", url);
    CHECK_CONTAINS(err, sum);
    CHECK_CONTAINS(err, "to verify it, give --sha256 SUM");
    CHECK_CONTAINS(out, "/cache/gradpool/models/");
    CHECK_CONTAINS(out, "/net.onnx");
    snprintf(path, sizeof(path), "%.399s", out);
    RUN_OK("model", "get", url); /* the file is there */
    CHECK_TEXT(path, out);
    snprintf(other, sizeof(other), "http://127.0.0.1:%d/others/net.onnx", port);
    RUN_OK("model", "get", other); /* another file with the same name */
    CHECK(strcmp(path, out) != 0 && strstr(err, sum) == NULL);
    RUN_OK("model", "get", url, "--sha256", sum, "--json");
    CHECK_CONTAINS(out, "\"checked\": true");
    snprintf(wrong, sizeof(wrong), "%.*s0", 63, sum);
    RUN_CODE(1, "model", "get", url, "--sha256", wrong);
    CHECK_CONTAINS(err, "exists but is not the published file");
    snprintf(url, sizeof(url), "http://127.0.0.1:%d/models/other.onnx", port);
    RUN_CODE(1, "model", "get", url, "--sha256", wrong);
    CHECK_CONTAINS(err, "SHA-256 ba7816bf");
    snprintf(url, sizeof(url), "http://127.0.0.1:%d", port);
    RUN_CODE(1, "model", "get", "squeezenet1.1", "--url", url);
    CHECK_CONTAINS(err, "is truncated: 3 of 4958202 bytes");
    kill(server, SIGKILL);
    waitpid(server, NULL, 0);
    unsetenv("XDG_CACHE_HOME");
}

/* ---- memory ---- */

/* Create a control group with a memory limit. false: not permitted or not supported. */
static bool memory_group_make(char group[100], const char *limit)
{
    static const char *const kinds[][2] = { { "/sys/fs/cgroup/memory", "memory.limit_in_bytes" },
                                            { "/sys/fs/cgroup", "memory.max" } };

    for (size_t i = 0; i < 2; i++) {
        char path[200];

        snprintf(group, 100, "%s/gradpool-test-%d", kinds[i][0], (int)getpid());
        snprintf(path, sizeof(path), "%s/%s", group, kinds[i][1]);
        if (mkdir(group, 0700) != 0)
            continue;
        int fd = open(path, O_WRONLY | O_CLOEXEC);

        if (fd >= 0 && write(fd, limit, strlen(limit)) == (ssize_t)strlen(limit)) {
            close(fd);
            return true;
        }
        if (fd >= 0)
            close(fd);
        rmdir(group);
    }
    return false;
}

TEST(training_reports_a_worker_killed_for_memory)
{
    char group[100], procs[120];

    if (!memory_group_make(group, "100000000"))
        SKIP("cannot create a memory control group; needs root");
    cli_begin();
    snprintf(procs, sizeof(procs), "%s/cgroup.procs", group);
    fflush(stdout);
    pid_t child = fork(); /* `up` and its daemons are in the group, this process is not */

    if (child == 0) {
        FILE *file = fopen(procs, "w");

        if (file == NULL || fprintf(file, "%d", (int)getpid()) < 0 || fclose(file) != 0)
            _exit(97);
        _exit(RUN("up", "--workers", "1"));
    }

    CHECK_INT(0, child_exit_code(child));
    RUN_CODE(1, "train", "--network", "alexnet", "--data", "synthetic:224x224x3:10:64", "--mini-batch-size",
             "64", "--max-restarts", "0");
    CHECK_CONTAINS(err, "was killed because memory ran out (signal 9)");
    pools_end();
    AWAIT(rmdir(group) == 0, 5);
    CHECK(access(group, F_OK) != 0);
}

/* ---- diagnosis ---- */

TEST(doctor_checks_the_directories_of_the_named_pool)
{
    cli_begin();
    RUN_CODE(1, "doctor", "--quick", "--pool", "no/name");
    CHECK_CONTAINS(out, "no/name");
    setenv("GRADPOOL_POOL", "no name", 1);
    RUN_CODE(1, "doctor", "--quick");
    CHECK_CONTAINS(out, "no name");
    unsetenv("GRADPOOL_POOL");
}

/* ---- untrusted names ---- */

TEST(names_with_terminal_escapes_are_sanitized)
{
    cli_begin();
    RUN_OK("data", "preview", "digits:60", "--rows", "1", "--columns", "1", "--out", "x.png");
    REQUIRE(mkdir(in_root("w/cls"), 0700) == 0 && mkdir(in_root("w/cls/a\033[31m\nb"), 0700) == 0);
    REQUIRE(rename(in_w("x.png"), in_root("w/cls/a\033[31m\nb/x.png")) == 0);
    RUN_OK("data", "show", "cls");
    CHECK_CONTAINS(out, "\na?[31m?b ");
    CHECK(strchr(out, '\033') == NULL);
    RUN_CODE(2, "submit", "--name", "a\033]0;title\007", "--", "spmd", "--", "true");
    CHECK_CONTAINS(err, "the job name contains a control character or invalid UTF-8 (0x1b at byte 2)");
    CHECK(strchr(err, '\033') == NULL);
}

/* ---- listings ---- */

/* Count the lines that a text needs on a terminal with 100 columns. */
static int screen_lines(const char *text)
{
    int lines = 0;

    while (*text != '\0') {
        size_t length = strcspn(text, "\n");

        lines += length == 0 ? 1 : (int)((length + 99) / 100);
        text += length + (text[length] == '\n');
    }
    return lines;
}

TEST(json_listings_are_complete)
{
    static const char *const commands[] = { "up",      "down",     "status", "devices", "doctor",  "train",
                                            "predict", "evaluate", "model",  "data",    "options", NULL };
    gp_json *json;

    cli_begin();
    RUN_OK("model", "show", "lenet", "--json");
    json = pools_json(out);
    CHECK_INT(129068, gp_json_integer(gp_json_member(json, "parameters"), 0));
    CHECK_INT(26 * 26 * 20 * 9 + 9 * 9 * 50 * 20 * 25 + 800 * 128 + 128 * 10,
              gp_json_integer(gp_json_member(json, "forward_macs"), 0));
    CHECK_INT(128, gp_json_integer(gp_json_member(gp_json_member(json, "memory_estimate"), "samples"), 0));
    CHECK_INT(10, gp_json_count(gp_json_member(json, "layers")));
    gp_json_free(json);
    RUN_OK("model", "show", "googlenet:form=caffe", "--classes", "10", "--mini-batch-size", "8", "--solver",
           "adam");
    CHECK_CONTAINS(out, "FLOPs to predict");
    CHECK_CONTAINS(out, "estimated for 8 samples");
    RUN_OK("model", "list");
    CHECK_CONTAINS(out, "form=torchvision|caffe [torchvision]");
    RUN_OK("model", "list", "--json");
    json = pools_json(out);
    CHECK(gp_json_count(json) >= 11);
    gp_json_free(json);
    RUN_OK("version");
    CHECK_CONTAINS(out, "gradpool ");
    CHECK_INT(1, screen_lines(out));
    RUN_OK("version", "--json");
    json = pools_json(out);
    CHECK_KEYS(json, "version", "build_type", "protocol", "task_abi", "plugin_abi", "command", "worker");
    CHECK_KEYS(gp_json_member(json, "libraries"), "libzmq", "msgpack-c", "SQLite", "libcurl");
    gp_json_free(json);
    RUN_OK("train", "--help");
    CHECK_CONTAINS(out, "  --data SOURCE  ");
    CHECK_CONTAINS(out, "  --solver sgdm|adam|adamw|rmsprop  ");
    CHECK_CONTAINS(out, "more options: gradpool train --help-all");
    CHECK(strstr(out, "--loss-scale-growth") == NULL);
    RUN_OK("train", "--help-all");
    CHECK_CONTAINS(out, "  --s3-anonymous  ");
    static char help[OUT_BYTES];

    memcpy(help, out, sizeof(help));
    RUN_OK("options", "--json");
    json = pools_json(out);
    CHECK(gp_json_count(json) >= 15);
    for (size_t i = 0; i < gp_json_count(json); i++) {
        char option[80];

        CHECK_KEYS(gp_json_element(json, i), "name", "default", "matlab", "pytorch", "help");
        snprintf(option, sizeof(option), "  --%s",
                 gp_json_text(gp_json_member(gp_json_element(json, i), "name"), "none"));
        CHECK_CONTAINS(help, option);
    }
    gp_json_free(json);
    for (size_t i = 0; commands[i] != NULL; i++) {
        char example[80];

        RUN_OK(commands[i], "--help");
        CHECK(screen_lines(out) <= 50);
        snprintf(example, sizeof(example), "\nExamples:\n  gradpool %s", commands[i]);
        CHECK_CONTAINS(out, example);
    }
    RUN_CODE(1, "status"); /* none of these starts a pool */
}

/* Every command with --workers in the help also has --devices. */
TEST(every_command_that_takes_workers_takes_devices)
{
    static char help[OUT_BYTES];
    int leasing = 0;

    cli_begin();
    RUN_OK("--help");
    memcpy(help, out, sizeof(help));
    for (char *line = strtok(help, "\n"); line != NULL; line = strtok(NULL, "\n")) {
        char name[32], described[64];

        if (sscanf(line, "  %31[a-z] %63s", name, described) != 2)
            continue;
        if (RUN(name, "--help") != 0 || strstr(out, "Usage: gradpool") == NULL)
            continue; /* another line of the help */
        if (strstr(out, "  --workers") == NULL || strcmp(name, "sweep") == 0)
            continue; /* the devices of a sweep stand in the command of the trials */
        leasing++;
        if (strstr(out, "  --devices") == NULL)
            GP_TEST_FAIL("gradpool %s has --workers and no --devices", name);
    }
    CHECK(leasing >= 8); /* up, train, advise, bench, predict, evaluate, spmd, parfor */
}

/* ---- interrupts ---- */

static pid_t start_endless(void)
{
    pid_t child = START("train", "--network", "lenet", "--data", "digits:2000", "--epochs", "100000", "--out",
                        "m.onnx", "--metrics", "m.jsonl", "--plots", "none");
    struct stat facts = { 0 };

    AWAIT(stat(in_root("w/m.jsonl"), &facts) == 0 && facts.st_size >= 2000, 5);
    CHECK(facts.st_size >= 2000);
    return child;
}

static void check_pool_free(void)
{
    RUN_OK("up", "--json");
    gp_json *json = pools_json(out);

    CHECK_INT(2, gp_json_count(gp_json_member(json, "workers")));
    CHECK_INT(0, gp_json_count(gp_json_member(json, "leases")));
    gp_json_free(json);
}

TEST(first_interrupt_stops_a_training_and_keeps_its_model)
{
    cli_begin();
    RUN_OK("up", "--workers", "2", "--devices", "cpu", "--quiet");
    pid_t child = start_endless();

    kill(child, SIGINT);
    FINISH_CODE(130, child);
    CHECK_CONTAINS(out, "stopped after");
    CHECK_CONTAINS(out, "model: m.onnx");
    RUN_OK("evaluate", "--model", "m.onnx", "--data", "digits:2000");
    check_pool_free();
}

/* timeout(1) signals its child, and then the process group with the child. */
TEST(interrupt_that_arrives_twice_counts_once)
{
    cli_begin();
    RUN_OK("up", "--workers", "2", "--devices", "cpu", "--quiet");

    /* Repeat if a busy machine delays the second signal by 0.2 s: it is a second request then. */
    for (int i = 0; i < 5 && !there_is("w/m.onnx"); i++) {
        unlink(in_root("w/m.jsonl"));
        pid_t child = start_endless();

        kill(child, SIGINT);
        gp_sleep_ms(2); /* pending standard signals merge */
        kill(child, SIGINT);
        FINISH_CODE(130, child);
    }
    CHECK_CONTAINS(out, "model: m.onnx");
}

TEST(second_interrupt_ends_a_training_at_once)
{
    cli_begin();
    RUN_OK("up", "--workers", "2", "--devices", "cpu", "--quiet");
    pid_t child = start_endless();

    kill(child, SIGINT);
    kill(child, SIGINT);

    /* standard signals merge, and signals within 0.2 s count once: repeat until both were seen */
    while (process_alive(child)) {
        kill(child, SIGINT);
        gp_sleep_ms(1);
    }
    FINISH_CODE(130, child);
    check_pool_free();
}

TEST(sigterm_ends_a_training_whose_worker_never_reports_its_end)
{
    cli_begin();
    setenv("GRADPOOL_FAULT", "done:1:hang@1.1", 1);
    setenv("GRADPOOL_FAULT_REPORT", in_root("told"), 1);
    RUN_OK("up", "--workers", "1", "--devices", "cpu", "--quiet");
    unsetenv("GRADPOOL_FAULT");
    unsetenv("GRADPOOL_FAULT_REPORT");
    setenv("GRADPOOL_TERM_GRACE", "1", 1);
    pid_t child =
        START("train", "--network", "lenet", "--data", "digits:128", "--epochs", "1", "--out", "m.onnx");

    unsetenv("GRADPOOL_TERM_GRACE");
    AWAIT(there_is("told"), 5);
    kill(child, SIGTERM);
    AWAIT(!process_alive(child), 5);
    CHECK(!process_alive(child));
    kill(child, SIGKILL);
    FINISH_CODE(130, child);
    CHECK_CONTAINS(err, "stopped at once; the last reported step is 1");
    CHECK(!there_is("w/m.onnx"));
}

TEST(closed_output_affects_neither_the_model_nor_the_pool)
{
    int ends[2];

    cli_begin();
    RUN_OK("up", "--workers", "2", "--devices", "cpu", "--quiet");
    if (pipe(ends) != 0)
        abort();
    close(ends[0]);
    pid_t child = start(-1, ends[1],
                        (const char *const[]){ "train", "--network", "lenet", "--data", "digits:500",
                                               "--epochs", "1", "--out", "m.onnx", NULL });

    close(ends[1]);
    FINISH_CODE(1, child);
    CHECK(strstr(err, "cannot write") == NULL); /* as in `gradpool train ... | head` */
    CHECK(there_is("w/m.onnx"));
    check_pool_free();
}

TEST(full_output_device_is_an_error)
{
    int full = open("/dev/full", O_WRONLY | O_CLOEXEC);

    cli_begin();
    REQUIRE(full >= 0);
    pid_t child = start(-1, full, (const char *const[]){ "version", NULL });

    close(full);
    FINISH_CODE(1, child);
    CHECK_CONTAINS(err, "cannot write to standard output");
}
