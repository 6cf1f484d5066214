/* test_advise.c: advise and bench: short trainings on a real pool, the printed numbers, and
 * leftovers. */
#include "tests/service/commands.h"

TEARDOWN()
{
    pools_end();
}

#define LENET "--network", "lenet", "--data", "digits:600", "--mini-batch-size", "32"

static void advise_begin(void)
{
    static char cache[800];

    exec_begin();
    snprintf(cache, sizeof(cache), "%s", in_root("cache"));
    setenv("XDG_CACHE_HOME", cache, 1);
}

static double number(const gp_json *json, const char *name)
{
    return gp_json_number(gp_json_member(json, name), -1);
}

TEST(advise_predicts_every_number_of_workers_and_a_training_reports_it)
{
    gp_json *json;
    const gp_json *rows, *one, *two;

    advise_begin();
    RUN_CODE(0, "advise", LENET, "--steps", "12", "--check", "--json");
    json = pools_json(out);
    rows = gp_json_member(json, "workers");
    CHECK_INT(2, gp_json_count(rows));
    one = gp_json_element(rows, 0);
    two = gp_json_element(rows, 1);
    CHECK(number(one, "step_seconds") > 0 && number(one, "exchange_seconds") == 0);

    /* the smaller update per worker can outweigh the exchange */
    CHECK(number(two, "exchange_seconds") >= 0);
    CHECK(number(one, "efficiency") == 1.0 && number(one, "memory_bytes") > 129068 * 4);
    CHECK_INT(32, (int)number(two, "batch"));
    CHECK_INT(16, (int)number(two, "share"));
    CHECK(number(two, "images_per_second") > 0 && number(two, "batch_for_80_percent") >= 2);
    CHECK_INT(129068 * 4, (int)number(gp_json_member(json, "model"), "gradient_bytes"));
    CHECK(number(gp_json_member(json, "check"), "measured_seconds") > 0);
    CHECK(number(json, "best") == 1 || number(json, "best") == 2);
    gp_json_free(json);
    CHECK(access(in_w("gradpool-runs"), F_OK) != 0); /* no training was started */

    RUN_CODE(0, "train", LENET, "--epochs", "2", "--plots", "none");
    CHECK_CONTAINS(out, "\nadvise expected ");
    CHECK_CONTAINS(out, " images/s; this run reached ");
    RUN_CODE(0, "train", LENET, "--epochs", "2", "--plots", "none");
    CHECK(strstr(out, "advise expected") == NULL); /* the advice was compared only once */

    /* A released worker stays busy until all state is freed. */
    AWAIT(RUN("status", "--json") != 0 || strstr(out, "\"busy\"") == NULL, 20);
    RUN_CODE(0, "status", "--json");
    CHECK(strstr(out, "\"busy\"") == NULL);
}

TEST(advise_marks_predictions_beyond_the_pool)
{
    advise_begin();
    RUN_CODE(0, "advise", LENET, "--steps", "10", "--workers", "1:4");
    CHECK_CONTAINS(out, "workers  batch  each  step ms  images/s  efficiency  batch for 80 %  memory each\n");
    CHECK_CONTAINS(out, "4 ?");
    CHECK_CONTAINS(out, "?: more workers than this pool has; the exchange time is extrapolated");
    CHECK_CONTAINS(err, "exchange on 2 workers: ");
}

TEST(advise_reports_errors_of_the_training)
{
    advise_begin();
    RUN_CODE(2, "advise", "--network", "lenet");
    CHECK_CONTAINS(err, "--data is missing");
    RUN_CODE(1, "advise", "--network", "lenett", "--data", "digits:600");
    CHECK_CONTAINS(err, "did you mean 'lenet'?");
    RUN_CODE(1, "advise", "--network", "lenet", "--data", "digits:20");
    CHECK_CONTAINS(err, "has only 20 samples");
}

TEST(interrupt_ends_advise_and_frees_the_workers)
{
    advise_begin();
    exec_faulty("forward:9:stop@1.1");
    pid_t worker = pid_of(1), child = START("advise", LENET, "--steps", "1000", "--quiet");

    CHECK(await_stopped(worker)); /* suspended within a step, early in the run */
    kill(child, SIGINT);
    kill(worker, SIGCONT);
    FINISH_CODE(130, child);
    CHECK_TEXT("", out);
    RUN_CODE(0, "train", LENET, "--epochs", "1", "--no-wait", "--quiet");
}

/* ---- bench ---- */

TEST(bench_scaling_scales_batch_and_rate_with_the_workers)
{
    gp_json *json;
    const gp_json *runs;
    uint8_t head[24] = { 0 };
    FILE *file;

    advise_begin();
    RUN_CODE(0, "bench", "scaling", "--workers", "1,2", LENET, "--epochs", "2", "--lr", "0.02", "--plot",
             "s.png", "--json");
    json = pools_json(out);
    runs = gp_json_member(json, "runs");
    CHECK_INT(2, gp_json_count(runs));
    for (size_t i = 0; i < 2; i++) {
        const gp_json *run = gp_json_element(runs, i);

        CHECK_INT(i + 1, (int)number(run, "workers"));
        CHECK_INT(32 * (i + 1), (int)number(run, "batch"));
        CHECK(number(run, "learn_rate") == 0.02 * (double)(i + 1));
        CHECK_INT(i == 0 ? 38 : 20, (int)number(run, "steps"));
        CHECK(number(run, "images_per_second") > 0);
        CHECK(number(run, "accuracy") > 0.05 && number(run, "accuracy") <= 1);
        CHECK_INT(2, gp_json_count(gp_json_member(run, "curve")));
    }
    CHECK(number(gp_json_element(runs, 0), "speed_up") == 1);
    CHECK(number(json, "accuracy_spread") >= 0 && number(json, "accuracy_spread") <= 1);
    gp_json_free(json);
    file = fopen(in_w("s.png"), "r");
    REQUIRE(file != NULL);
    CHECK_INT(24, fread(head, 1, sizeof(head), file));
    fclose(file);
    CHECK(memcmp(head, "\x89PNG\r\n\x1a\n", 8) == 0);
}

TEST(bench_scaling_reports_a_fixed_batch_and_missing_validation_data)
{
    advise_begin();
    RUN_CODE(0, "bench", "scaling", "--workers", "1,2", LENET, "--epochs", "2", "--fixed-batch",
             "--validation-data", "none");
    CHECK_CONTAINS(out, "\n1        32     0.01  38 ");
    CHECK_CONTAINS(out, "\n2        32     0.01  38 ");
    CHECK_CONTAINS(out, "measured on the training batches");
    RUN_CODE(2, "bench", "scaling", "--workers", "2,1", LENET);
    CHECK_CONTAINS(err, "ascending numbers");
    RUN_CODE(2, "bench", "scaling", LENET, "--scale-lr", "linear:32");
    CHECK_CONTAINS(err, "or --fixed-batch");
    RUN_CODE(1, "bench", "scaling", "--workers", "3", LENET);
    CHECK_CONTAINS(err, "`gradpool up --workers 3`");
}

TEST(bench_allreduce_times_the_exchange_of_each_size)
{
    gp_json *json;

    advise_begin();
    RUN_CODE(0, "bench", "allreduce", "--workers", "1,2", "--sizes", "4K,1M", "--steps", "10", "--json");
    json = pools_json(out);
    CHECK_INT(2, gp_json_count(json)); /* a single worker exchanges nothing */
    for (size_t i = 0; i < gp_json_count(json); i++) {
        const double bytes = number(gp_json_element(json, i), "bytes"), wanted = i == 0 ? 4096 : 1 << 20;

        CHECK(bytes >= wanted * 0.95 && bytes <= wanted * 1.05);
        CHECK(number(gp_json_element(json, i), "exchange_seconds") > 0);

        /* 2 (n - 1) / n is 1 for n = 2 */
        CHECK_NEAR(number(gp_json_element(json, i), "algbw"), number(gp_json_element(json, i), "busbw"), 0);
        CHECK_NEAR(bytes * 1e-9 / number(gp_json_element(json, i), "exchange_seconds"),
                   number(gp_json_element(json, i), "algbw"), 1e-6);
    }
    gp_json_free(json);
    RUN_CODE(2, "bench", "allreduce", "--sizes", "1");
    CHECK_CONTAINS(err, "--sizes is '1'");
}
