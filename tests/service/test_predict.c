/* test_predict.c: predictions and evaluations through the command and the library, with worker
 * failures. */
#include <pthread.h>

#include "client/gradpool.h"
#include "common/base/system/file.h"
#include "common/data/store/store.h"
#include "tests/common/model/onnx_bytes.h"
#include "tests/service/commands.h"

TEARDOWN()
{
    pools_end();
}

/* Start a pool of two, with faults (NULL: none), and train LeNet on drawn digits as m.onnx. */
static void predict_begin(const char *faults)
{
    exec_begin();
    RUN_CODE(0, "train", "--network", "lenet", "--data", "digits:2000", "--epochs", "1", "--lr", "0.05",
             "--batch-size", "64", "--quiet", "--out", "m.onnx");
    if (faults != NULL)
        exec_faulty(faults);
}

static char file_text[4 << 20];

static const char *file_of(const char *name)
{
    slurp(in_w(name), file_text, sizeof(file_text));
    return file_text;
}

static double number_in(const gp_json *object, const char *key)
{
    return gp_json_number(gp_json_member(object, key), NAN);
}

/* ---- worker failures ---- */

/* Each worker returns one part and stops before the next one, so that neither computes everything
 * alone. */
#define BOTH_STOP "predict:2:stop@1.1,predict:2:stop@2.1"
#define MANY      "synthetic:28x28x1:10:6000"

/* Two workers suspended by a fault, in the order of their suspension. */
typedef struct pair {
    int before; /* stops reported earlier */
    pid_t pids[2];
    bool stopped; /* both workers are suspended */
} pair;

static void pair_await(pair *p)
{
    int seen = 0;

    for (int64_t until = gp_now_ms() + POOLS_TIMEOUT_MS; seen < 2 && gp_now_ms() < until; gp_sleep_ms(2)) {
        FILE *file = fopen(in_root("told"), "r");
        int pid;

        seen = -p->before;
        while (file != NULL && seen < 2 && fscanf(file, "%d predict stop ", &pid) == 1)
            if (seen++ >= 0)
                p->pids[seen - 1] = pid;
        if (file != NULL)
            fclose(file);
    }
    p->stopped = seen == 2 && await_stopped(p->pids[0]) && await_stopped(p->pids[1]);
    if (!p->stopped)
        GP_TEST_FAIL("%d of two workers are suspended", seen);
}

/* Once both are suspended, kill one, which holds samples, and resume the other. */
static void *pair_strike(void *of)
{
    pair *p = of;

    pair_await(p);
    if (p->stopped) {
        kill(p->pids[0], SIGKILL);
        kill(p->pids[1], SIGCONT);
    }
    return NULL;
}

TEST(predictions_are_complete_and_bitwise_identical_after_a_worker_failure)
{
    static char whole[4 << 20], rows[4 << 20];
    size_t got = 0;
    int ends[2];

    predict_begin(NULL);
    RUN_CODE(0, "predict", "--model", "m.onnx", "--data", MANY, "--out", "whole.csv");
    snprintf(whole, sizeof(whole), "%s", file_of("whole.csv"));
    exec_faulty(BOTH_STOP);
    REQUIRE(pipe2(ends, O_CLOEXEC) == 0);
    REQUIRE(fcntl(ends[1], F_SETPIPE_SZ, 1 << 18) >
            0); /* space for the parts that arrive before both are suspended */
    pair workers = { 0 };
    pid_t child =
        start(-1, ends[1], (const char *const[]){ "predict", "--model", "m.onnx", "--data", MANY, NULL });

    close(ends[1]);
    pair_strike(&workers);
    for (ssize_t n; (n = read(ends[0], rows + got, sizeof(rows) - 1 - got)) > 0;)
        got += (size_t)n;
    close(ends[0]);
    FINISH_CODE(0, child);
    CHECK_CONTAINS(err, "its samples are sent to other workers");
    CHECK_CONTAINS(err, "6000 samples in");
    rows[got] = '\0';
    CHECK_INT(strlen(whole), got);
    CHECK(strcmp(whole, rows) == 0);
}

TEST(evaluation_counts_are_unchanged_by_a_worker_failure)
{
    static char disturbed[1 << 16];

    predict_begin(BOTH_STOP);
    pair workers = { 0 };
    pid_t child = START("evaluate", "--model", "m.onnx", "--data", MANY, "--confusion", "c.csv", "--json");

    pair_strike(&workers);
    FINISH_CODE(0, child);
    CHECK_CONTAINS(err, "its samples are sent to other workers");
    snprintf(disturbed, sizeof(disturbed), "%s", file_of("c.csv"));
    gp_json *first = pools_json(out);

    RUN_CODE(0, "evaluate", "--model", "m.onnx", "--data", MANY, "--confusion", "c.csv", "--json");
    CHECK(strstr(err, "its samples go") == NULL);
    CHECK_TEXT(disturbed, file_of("c.csv"));
    gp_json *second = pools_json(out);

    REQUIRE(first != NULL && second != NULL);
    CHECK_INT(6000, (int)number_in(first, "count"));
    CHECK_INT(6000, (int)number_in(second, "count"));
    CHECK_NEAR(number_in(second, "loss"), number_in(first, "loss"), 0); /* summed in data order */
    gp_json_free(first);
    gp_json_free(second);
}

TEST(samples_that_crash_every_worker_end_the_call_and_are_named)
{
    predict_begin("predict:1:kill");
    RUN_CODE(1, "evaluate", "--model", "m.onnx", "--data", "digits:600");
    CHECK_CONTAINS(err, "3 workers failed on samples ");
    CHECK_CONTAINS(err, "; its log is ");
}

/* ---- memory ---- */

enum { WIDE = 1000, WIDE_SAMPLES = 60000 };

TEST(reply_that_cannot_be_sent_ends_the_prediction_with_its_cause)
{
    commands_begin();
    write_file("w/net.json", "{\"name\": \"small\", \"input\": [1, 8, 8], \"layers\": ["
                             "{\"name\": \"fc\", \"kind\": \"fc\", \"outputs\": 10},"
                             "{\"name\": \"loss\", \"kind\": \"crossentropy\"}]}");
    setenv("GRADPOOL_FRAME_BYTES", "8192", 1); /* scores for 500 samples need 20000 bytes */
    RUN_CODE(0, "up", "--workers", "1");
    unsetenv("GRADPOOL_FRAME_BYTES");
    RUN_CODE(0, "train", "--network", "net.json", "--data", "synthetic:8x8x1:10:256", "--epochs", "1",
             "--quiet", "--out", "m.onnx");
    RUN_CODE(1, "predict", "--model", "m.onnx", "--data", "synthetic:8x8x1:10:4000", "--out", "p.csv");
    CHECK_CONTAINS(err, "cannot send predict_part: payload 1 has ");
    CHECK(access(in_w("p.csv"), F_OK) != 0);
    RUN_CODE(0, "evaluate", "--model", "m.onnx", "--data",
             "synthetic:8x8x1:10:4000"); /* the worker is free */
}

/* tests/soak/large_models tests models whose weights exceed every frame limit. */
TEST(weights_larger_than_a_frame_are_sent_and_returned)
{
    const char *workers[] = { "1", "2" };

    commands_begin();
    setenv("GRADPOOL_FRAME_BYTES", "16384", 1); /* lenet has 516,272 bytes of weights */
    RUN_CODE(0, "up", "--workers", "2");
    for (int i = 0; i < 2; i++) {
        RUN_CODE(0, "train", "--network", "lenet", "--data", "digits:256", "--epochs", "1", "--workers",
                 workers[i], "--checkpoint-path", workers[i], "--quiet", "--out", "a.onnx");
        RUN_CODE(0, "train", "--network", "lenet", "--data", "digits:256", "--epochs", "2", "--workers",
                 workers[i], "--resume", workers[i], "--quiet", "--out", "b.onnx");
        RUN_CODE(0, "train", "--pretrained", "b.onnx", "--data", "digits:256", "--epochs", "1", "--workers",
                 workers[i], "--quiet", "--out", "c.onnx");
        RUN_CODE(0, "predict", "--model", "c.onnx", "--data", "digits:256", "--workers", workers[i], "--out",
                 "p.csv");
        RUN_CODE(0, "evaluate", "--model", "c.onnx", "--data", "digits:256", "--workers", workers[i]);
    }
    unsetenv("GRADPOOL_FRAME_BYTES");
}

TEST(large_results_need_bounded_memory_even_with_a_suspended_worker)
{
    static const char wide[] = "{\"name\": \"wide\", \"input\": [1, 4, 4], \"layers\": [{\"kind\": \"fc\", "
                               "\"name\": \"fc\", \"outputs\": 1000},"
                               " {\"kind\": \"crossentropy\", \"name\": \"loss\"}]}";
    char samples[60];

    exec_begin();
    write_file("w/wide.json", wide);
    RUN_CODE(0, "train", "--network", "wide.json", "--data", "synthetic:4x4x1:1000:2000", "--epochs", "1",
             "--validation-data", "none", "--batch-size", "500", "--quiet", "--out", "wide.onnx");
    snprintf(samples, sizeof(samples), "synthetic:4x4x1:1000:%d", WIDE_SAMPLES);
    exec_faulty(BOTH_STOP);
    pair workers = { 0 };
    pid_t child =
        START("predict", "--model", "wide.onnx", "--data", samples, "--out", "top.jsonl", "--top-k", "1");

    pair_await(&workers);
    kill(workers.pids[0], SIGCONT);
    gp_sleep_ms(1500); /* lets the other worker run ahead to the limit */
    kill(workers.pids[1], SIGCONT);
    FINISH_CODE(0, child);
#ifndef __SANITIZE_ADDRESS__ /* sanitizers delay the reuse of freed memory */
    CHECK(usage.ru_maxrss < (long)WIDE * WIDE_SAMPLES * (long)sizeof(float) / 1024 / 2);
#endif
    CHECK_INT(WIDE_SAMPLES, lines_of("top.jsonl"));
}

/* ---- files ---- */

TEST(csv_json_lines_and_arrays_have_the_same_rows)
{
    static float scores[1000][10];
    static int32_t classes[1000];
    char *rest = NULL;
    uint32_t row = 0;
    FILE *array;

    predict_begin(NULL);
    RUN_CODE(0, "predict", "--model", "m.onnx", "--data", "digits:6000", "--out", "p.npy");
    array = fopen(in_w("p.npy"), "r");
    REQUIRE(array != NULL && fseek(array, 128, SEEK_SET) == 0);
    CHECK_INT(1000, fread(scores, sizeof(scores[0]), 1000, array));
    CHECK_INT(EOF, fgetc(array));
    fclose(array);

    RUN_CODE(0, "predict", "--model", "m.onnx", "--data", "digits:6000", "--out", "p.jsonl");
    file_of("p.jsonl");
    for (char *line = strtok_r(file_text, "\n", &rest); line != NULL;
         line = strtok_r(NULL, "\n", &rest), row++) {
        gp_json *json = pools_json(line);
        int32_t best = 0;

        if (json == NULL || row >= 1000)
            break;
        for (int k = 0; k < 10; k++) {
            CHECK((float)gp_json_number(gp_json_element(gp_json_member(json, "scores"), (size_t)k), NAN) ==
                  scores[row][k]);
            best = scores[row][k] > scores[row][best] ? k : best;
        }
        CHECK_INT(row, number_in(json, "index"));
        CHECK_INT(best, atoi(gp_json_text(gp_json_member(json, "class"), "-1")));
        classes[row] = best;
        gp_json_free(json);
    }
    CHECK_INT(1000, row);

    RUN_CODE(0, "predict", "--model", "m.onnx", "--data", "digits:6000", "--out", "p.csv", "--top-k", "2");
    file_of("p.csv");
    CHECK_TEXT("index,name,class,score,class_2,score_2", strtok_r(file_text, "\n", &rest));
    for (row = 0; row < 1000; row++) {
        const char *line = strtok_r(NULL, "\n", &rest);
        int first, second;
        float one, two;

        REQUIRE(line != NULL && sscanf(line, "%*d,%*d,%d,%f,%d,%f", &first, &one, &second, &two) == 4);
        CHECK_INT(classes[row], first);
        CHECK(one == scores[row][first] && two == scores[row][second] && one >= two && first != second);
        for (int k = 0; k < 10; k++)
            CHECK(k == first || scores[row][k] <= two);
    }
    CHECK(strtok_r(NULL, "\n", &rest) == NULL);
}

/* ---- meaning of scores ---- */

/* Write a model with logits 0 and x ln 3 for a sample x, followed by up to two more operators. */
static void two_classes_write(const char *name, const char *first, const char *second)
{
    gp_buffer graph = message(), file;
    gp_error error;

    put_text(&graph, 2, "two");
    put_port(&graph, 11, "x", "N 1 1 1");
    put_port(&graph, 12, "y", "N 2");
    put_tensor(&graph, "w", "1 2", 0, 1.0986123f);
    put_node(&graph, "Flatten", "flat", "x", "f", "");
    put_node(&graph, "MatMul", "head", "f w", first == NULL ? "y" : "logits", "");
    if (first != NULL)
        put_node(&graph, first, "first", "logits", second == NULL ? "y" : "between", "");
    if (second != NULL)
        put_node(&graph, second, "second", "between", "y", "");
    file = model_of(&graph, 13);
    if (gp_file_write(in_w(name), file.data, file.bytes, &error) != GP_OK)
        GP_TEST_FAIL("%s", error.message);
    gp_buffer_deinit(&file);
}

TEST(scores_are_the_models_probabilities_or_the_softmax_of_its_logits)
{
    static const struct {
        const char *first, *second, *type, *words;
        double scores[2]; /* for x = 1 */
    } cases[] = {
        { NULL, NULL, "probabilities", "probabilities (softmax)\n", { 0.25, 0.75 } },
        { "Softmax", NULL, "probabilities", "probabilities (softmax)\n", { 0.25, 0.75 } },
        { "Sigmoid", NULL, "independent_probabilities", "probabilities (sigmoid,", { 0.5, 0.75 } },
        /* alpha 0.2: max(0, min(1, 0.2 x + 0.5)) */
        { "HardSigmoid", NULL, "independent_probabilities", "probabilities (sigmoid,", { 0.5, 0.71972246 } },
        /* exp(-1/4) = 0.77880078: 1 / (1 + exp(1/4)) and 1 / (1 + exp(-1/4)) */
        { "Sigmoid", "Softmax", "probabilities", "probabilities (softmax)\n", { 0.43782350, 0.56217650 } },
        /* exp(-1/2) = 0.60653066 */
        { "Softmax", "Softmax", "probabilities", "probabilities (softmax)\n", { 0.37754067, 0.62245933 } },
    };
    static const char shape[] = "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 1, 1, 1), }";
    const float sample = 1;
    char header[129];
    FILE *array;

    exec_begin();
    memcpy(header, "\x93NUMPY\x01\x00\x76\x00", 10);
    snprintf(header + 10, sizeof(header) - 10, "%-117s\n", shape);
    array = fopen(in_w("x.npy"), "w");
    REQUIRE(array != NULL && fwrite(header, 128, 1, array) == 1 && fwrite(&sample, 4, 1, array) == 1);
    REQUIRE(fclose(array) == 0);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        two_classes_write("two.onnx", cases[i].first, cases[i].second);

        /* The same model as written by gradpool. */
        RUN_CODE(0, "model", "edit", "two.onnx", "--class-names", "no,yes", "-o", "ours.onnx");
        for (int ours = 0; ours < 2; ours++) {
            RUN_CODE(0, "predict", "--model", ours ? "ours.onnx" : "two.onnx", "--data", "x.npy", "--json");
            gp_json *json = pools_json(out);

            REQUIRE(json != NULL);
            CHECK_TEXT(cases[i].type, gp_json_text(gp_json_member(json, "score_type"), ""));
            CHECK_TEXT(ours ? "yes" : "1", gp_json_text(gp_json_member(json, "class"), ""));
            for (size_t k = 0; k < 2; k++)
                CHECK_NEAR(cases[i].scores[k],
                           gp_json_number(gp_json_element(gp_json_member(json, "scores"), k), NAN), 1e-6);
            CHECK_CONTAINS(err, cases[i].words);
            gp_json_free(json);
        }
    }
}

TEST(unwritable_output_is_reported_and_removed)
{
    uint32_t before;

    predict_begin(NULL);
    before = pools_entries("w");
    RUN_CODE(1, "predict", "--model", "m.onnx", "--data", MANY, "--out", "/dev/full");
    CHECK_CONTAINS(err, "cannot write /dev/full after ");
    CHECK_CONTAINS(err, "No space left on device");
    RUN_CODE(1, "predict", "--model", "m.onnx", "--data", MANY, "--out", "nowhere/p.csv");
    CHECK_CONTAINS(err, "--out: cannot create nowhere/p.csv: No such file or directory");
    RUN_CODE(2, "predict", "--model", "m.onnx", "--data", MANY, "--out", "p.xls");
    CHECK_CONTAINS(err, "must be .csv, .jsonl");
    RUN_CODE(2, "predict", "--model", "m.onnx", "--data", MANY, "--out", "p.npy", "--top-k", "3");
    CHECK_CONTAINS(err, "--top-k has no effect");
    CHECK_INT(before, pools_entries("w"));
}

/* Return the size of the unnamed temporary file for rows; 0: none. */
static off_t draft_bytes(pid_t child)
{
    char folder[40], path[300];
    off_t bytes = 0;

    snprintf(folder, sizeof(folder), "/proc/%d/fd", (int)child);
    DIR *fds = opendir(folder);

    for (struct dirent *entry; fds != NULL && (entry = readdir(fds)) != NULL;) {
        struct stat facts;

        snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
        if (stat(path, &facts) == 0 && S_ISREG(facts.st_mode) && facts.st_nlink == 0 && facts.st_size > bytes)
            bytes = facts.st_size;
    }
    if (fds != NULL)
        closedir(fds);
    return bytes;
}

/* Send a signal once rows are on disk and both workers are suspended: the prediction cannot end
 * before that. path: NULL: rows go to an unnamed file. */
static void interrupt(pid_t child, const char *path, pair *workers, int number, int code)
{
    struct stat facts = { 0 };

    pair_await(workers);
    for (int64_t until = gp_now_ms() + POOLS_TIMEOUT_MS; facts.st_size == 0 && gp_now_ms() < until;) {
        if (path == NULL)
            facts.st_size = draft_bytes(child);
        if ((path != NULL && stat(path, &facts) != 0) || facts.st_size == 0)
            gp_sleep_ms(2);
    }
    CHECK(facts.st_size > 0);
    kill(child, number);
    FINISH_CODE(code, child);
    for (int i = 0; i < 2 && workers->stopped; i++)
        kill(workers->pids[i], SIGCONT);
}

TEST(interrupted_prediction_leaves_no_file_and_prints_complete_lines)
{
    static const char data[] = "synthetic:28x28x1:10:100000";
    uint32_t before;

    /* each worker, after more rows than a file buffer holds */
    predict_begin("predict:16:stop,predict:40:stop");
    before = pools_entries("w");
    pair workers = { 0 };
    pid_t child = START("predict", "--model", "m.onnx", "--data", data, "--out", "p.csv");

    interrupt(child, NULL, &workers, SIGINT, 130);
    CHECK_CONTAINS(err, "stopped after ");
    CHECK_INT(before, pools_entries("w"));
    workers.before = 2;
    child = START("predict", "--model", "m.onnx", "--data", data);
    interrupt(child, in_root("out"), &workers, SIGINT, 130);
    CHECK_CONTAINS(err, "stopped after ");
    FILE *rows = fopen(in_root("out"), "r");

    REQUIRE(rows != NULL && fseek(rows, -1, SEEK_END) == 0);
    CHECK(ftell(rows) > 100 && fgetc(rows) == '\n');
    fclose(rows);
}

TEST(killed_prediction_leaves_no_file)
{
    predict_begin("predict:16:stop,predict:40:stop");
    uint32_t before = pools_entries("w");
    pair workers = { 0 };
    pid_t child =
        START("predict", "--model", "m.onnx", "--data", "synthetic:28x28x1:10:100000", "--out", "p.csv");

    interrupt(child, NULL, &workers, SIGKILL, -1);
    CHECK_INT(before, pools_entries("w"));
}

/* ---- evaluation ---- */

/* Compute the confusion matrix from the rows of a prediction. */
static void matrix_of_rows(uint64_t counts[10][10])
{
    char *rest = NULL;

    memset(counts, 0, sizeof(uint64_t[10][10]));
    file_of("p.jsonl");
    for (char *line = strtok_r(file_text, "\n", &rest); line != NULL; line = strtok_r(NULL, "\n", &rest)) {
        gp_json *json = pools_json(line);

        if (json == NULL)
            return;
        counts[atoi(gp_json_text(gp_json_member(json, "label"), "0"))]
              [atoi(gp_json_text(gp_json_member(json, "class"), "0"))]++;
        gp_json_free(json);
    }
}

TEST(evaluate_counts_what_predict_lists)
{
    uint64_t counts[10][10];

    predict_begin(NULL);
    RUN_CODE(0, "predict", "--model", "m.onnx", "--data", "digits:6000", "--out", "p.jsonl", "--top-k", "1");
    matrix_of_rows(counts);
    RUN_CODE(0, "evaluate", "--model", "m.onnx", "--data", "digits:6000", "--json", "--per-class",
             "--confusion", "c.json,c.png,c.txt");
    gp_json *reported = pools_json(out), *written = pools_json(file_of("c.json"));

    REQUIRE(reported != NULL && written != NULL);
    const gp_json *rows = gp_json_member(written, "counts"), *classes = gp_json_member(reported, "per_class");
    double right = 0, recall = 0;

    for (size_t i = 0; i < 10; i++) {
        uint64_t truth = 0;

        for (size_t j = 0; j < 10; j++) {
            CHECK_INT(counts[i][j], gp_json_integer(gp_json_element(gp_json_element(rows, i), j), -1));
            truth += counts[i][j];
        }
        right += (double)counts[i][i];
        recall += (double)counts[i][i] / (double)truth / 10;
        CHECK_INT(truth, number_in(gp_json_element(classes, i), "truth"));
    }
    CHECK_INT(1000, number_in(reported, "count"));
    CHECK_NEAR(right / 1000, number_in(reported, "accuracy"), 1e-12);
    CHECK_NEAR(recall, number_in(reported, "mean_accuracy"), 1e-12);
    CHECK(gp_json_member(reported, "pixels") == NULL);
    gp_json_free(reported);
    gp_json_free(written);
    CHECK(memcmp(file_of("c.png"), "\x89PNG", 4) == 0);
    CHECK_CONTAINS(file_of("c.txt"), "true \\ predicted");
    RUN_CODE(0, "evaluate", "--model", "m.onnx", "--data", "digits:6000", "--per-class");
    CHECK_CONTAINS(out, "precision         F1        IoU\n");
    CHECK_CONTAINS(out, "true \\ predicted");
    RUN_CODE(2, "evaluate", "--model", "m.onnx", "--data", "digits:6000", "--confusion", "c.jpg");
    CHECK_CONTAINS(err, "--confusion is 'c.jpg'; it must be FILE.png");
}

/* ---- the library ---- */

TEST(arrays_in_memory_give_the_scores_of_the_same_samples_on_disk)
{
    gp_scores disk = { 0 }, memory = { 0 }, floats = { 0 };
    static uint8_t samples[500 * 28 * 28];
    static float same[500 * 28 * 28];
    uint32_t index[500];
    char model[240];
    gp_store *store = NULL;
    pthread_t striker;
    gp_pool *pool;
    gp_error error;

    predict_begin(BOTH_STOP);
    pair workers = { 0 };
    snprintf(model, sizeof(model), "%s", in_w("m.onnx"));
    REQUIRE_OK(gp_store_open(&store, "digits:3000", GP_DATA_TEST, &error), error);
    for (uint32_t i = 0; i < 500; i++)
        index[i] = i;
    REQUIRE_OK(gp_store_read(store, index, 500, samples, NULL, &error), error);
    gp_store_close(store);
    for (size_t i = 0; i < sizeof(samples); i++)
        same[i] = samples[i];
    REQUIRE_OK(gp_pool_open(&pool, NULL, &error), error);
    gp_predict_request request = { .model = model, .samples = samples, .sample_count = 500 };

    REQUIRE(pthread_create(&striker, NULL, pair_strike, &workers) == 0); /* during the first call */
    const gp_status status = gp_predict_array(&memory, pool, &request, &error);

    pthread_join(striker, NULL);
    REQUIRE_OK(status, error);
    REQUIRE_OK(
        gp_predict_array(&disk, pool, &(gp_predict_request){ .model = model, .data = "digits:3000" }, &error),
        error);
    request.samples = same;
    request.sample_floats = true;
    REQUIRE_OK(gp_predict_array(&floats, pool, &request, &error), error);
    CHECK_INT(500, disk.count);
    CHECK_INT(500, memory.count);
    CHECK_INT(10, memory.score_count);
    CHECK_INT(1, memory.rank);
    CHECK(memcmp(disk.scores, memory.scores, 5000 * sizeof(float)) == 0);
    CHECK(memcmp(disk.predicted, memory.predicted, 500 * sizeof(int32_t)) == 0);
    for (int i = 0; i < 5000; i++)
        CHECK_NEAR(disk.scores[i], floats.scores[i], 1e-6);
    CHECK(disk.evaluation.accuracy > 0.3 && isnan(memory.evaluation.accuracy));
    request.sample_count = 0;
    CHECK_STATUS(GP_EINVAL, gp_predict_array(&memory, pool, &request, &error));
    CHECK_CONTAINS(error.message, "the number of samples is 0");
    request.data = "digits:500";
    CHECK_STATUS(GP_EINVAL, gp_predict(NULL, pool, &request, &error));
    CHECK_CONTAINS(error.message, "not both");
    gp_scores_deinit(&disk);
    gp_scores_deinit(&memory);
    gp_scores_deinit(&floats);
    gp_pool_close(pool);
}
