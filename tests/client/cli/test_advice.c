/* test_advice.c: the performance model in `gradpool advise` and the comparison with a later
 * training. */
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/cli/measure/advice.h"
#include "tests/gp_test.h"
#include "tests/leftovers.h"

static bool near(double a, double b)
{
    return fabs(a - b) <= 1e-9 * fabs(b);
}

/* A step takes 2 ms plus 0.1 ms per sample. The exchange takes 1 ms between 2 workers, 3 ms between
 * 4. */
static advice_model four_workers(void)
{
    advice_model model = { .batch = 100, .point_count = 2, .points = { { 2, 1e-3 }, { 4, 3e-3 } } };

    advice_fit(&model, &(advice_times){ 25, 100, 4.5e-3, 12e-3, 35e6, 110e6 });
    return model;
}

TEST(two_measurements_of_one_worker_determine_the_line)
{
    const advice_model model = four_workers();

    CHECK(near(model.sample_s, 1e-4));
    CHECK(near(model.fixed_s, 2e-3));
    CHECK(near(model.memory_sample_bytes, 1e6));
    CHECK(near(model.memory_bytes, 10e6));
}

TEST(step_time_is_the_largest_share_plus_the_exchange)
{
    const advice_model model = four_workers();
    advice_row row = advice_predict(&model, 1);

    CHECK(near(row.step_s, 12e-3) && near(row.efficiency, 1) && row.exchange_s == 0 && !row.extrapolated);
    row = advice_predict(&model, 2);
    CHECK_INT(50, row.share);
    CHECK(near(row.step_s, 2e-3 + 5e-3 + 1e-3));
    CHECK(near(row.rate, 100 / 8e-3));
    CHECK(near(row.efficiency, 12.0 / 8 / 2));
    CHECK(near(row.memory_bytes, 60e6));
    row = advice_predict(&model, 3); /* 34 + 33 + 33 samples; exchange halfway between the points */
    CHECK_INT(34, row.share);
    CHECK(near(row.exchange_s, 2e-3));
    CHECK(near(row.step_s, 2e-3 + 3.4e-3 + 2e-3));
    row = advice_predict(&model, 6); /* extrapolated at 1 ms per worker */
    CHECK(row.extrapolated && near(row.exchange_s, 5e-3));
}

TEST(the_batch_for_eighty_percent_has_an_efficiency_of_eighty_percent)
{
    for (int per_worker = 0; per_worker < 2; per_worker++)
        for (uint32_t n = 2; n <= 4; n += 2) {
            advice_model model = four_workers();
            advice_row row;

            model.per_worker = per_worker == 1;
            row = advice_predict(&model, n);
            model.batch = (uint32_t)(per_worker ? row.batch_80 / n : row.batch_80);
            row = advice_predict(&model, n);
            CHECK(row.efficiency > 0.78 && row.efficiency < 0.82);
        }
}

TEST(the_best_number_is_the_fewest_that_are_about_as_fast)
{
    advice_model model = four_workers();

    CHECK_INT(2, advice_best(&model, 2));
    CHECK_INT(3, advice_best(&model, 4)); /* 7.5 ms and 7.4 ms: the fourth worker does not help */
    model.points[0].exchange_s = 1;       /* exchange time: 1 s */
    model.points[1].exchange_s = 1;
    CHECK_INT(1, advice_best(&model, 4));
    model.points[0].exchange_s = model.points[1].exchange_s = 0;
    CHECK_INT(4, advice_best(&model, 4));
}

TEST(noise_gives_no_negative_times)
{
    advice_model model = { .batch = 100 };

    /* the smaller share took longer */
    advice_fit(&model, &(advice_times){ 50, 100, 12e-3, 10e-3, 2, 1 });
    CHECK(model.sample_s > 0 && model.fixed_s >= 0 && model.memory_sample_bytes >= 0);
    CHECK(near(model.fixed_s + 100 * model.sample_s, 10e-3));
    advice_fit(&model, &(advice_times){ 50, 100, 1e-3, 10e-3, 2, 1 }); /* far less than half */
    CHECK(model.sample_s > 0 && model.fixed_s >= 0);
    advice_fit(&model, &(advice_times){ 100, 100, 10e-3, 10e-3, 7, 7 }); /* a single measurement */
    CHECK(near(model.fixed_s + 100 * model.sample_s, 10e-3));
    CHECK(near(model.memory_bytes, 7));
    model.point_count = 2;
    model.points[0] = (struct advice_point){ 2, 3e-3 };
    model.points[1] = (struct advice_point){ 4, 1e-3 };

    /* a falling line is not extrapolated */
    CHECK(near(advice_predict(&model, 8).exchange_s, 1e-3));
}

static char cache[64];

static const char *const sgdm[] = { "mini-batch-size=100", "momentum=0.5", NULL };
static const char *const adam[] = { "mini-batch-size=100", "solver=adam", NULL };
static const char *const each[] = { "mini-batch-size-per-worker=25", NULL };

static void cache_begin(void)
{
    strcpy(cache, "/tmp/gradpool-test-XXXXXX");
    if (leftovers_make(cache) == NULL)
        abort();
    setenv("XDG_CACHE_HOME", cache, 1);
}

static void cache_end(void)
{
    char command[96];

    snprintf(command, sizeof(command), "rm -rf '%s'", cache);
    if (system(command) != 0)
        abort();
}

TEST(stored_advice_is_found_only_for_the_same_training)
{
    const advice_model model = four_workers();
    advice_model back;
    advice_key key, other;
    gp_error err;

    cache_begin();
    advice_key_of(&key, "lenet", "digits", sgdm);
    CHECK_STATUS(GP_ENOENT, advice_load(&key, &back, &err));
    REQUIRE_OK(advice_save(&key, &model, &err), err);
    REQUIRE_OK(advice_load(&key, &back, &err), err);
    CHECK(memcmp(&back.points, &model.points, sizeof(model.points)) == 0);
    CHECK(back.fixed_s == model.fixed_s && back.sample_s == model.sample_s && back.batch == 100);
    advice_key_of(&other, "lenet", "digits", (const char *const[]){ "mini-batch-size=100", NULL });

    /* momentum does not change the step time */
    CHECK_STATUS(GP_OK, advice_load(&other, &back, &err));
    advice_key_of(&other, "lenet", "digits", adam);
    CHECK_STATUS(GP_ENOENT, advice_load(&other, &back, &err));
    advice_key_of(&other, "lenet", "digits", each);
    CHECK_STATUS(GP_ENOENT, advice_load(&other, &back, &err));
    advice_key_of(&other, "lenet", "digits:500", sgdm);
    CHECK_STATUS(GP_ENOENT, advice_load(&other, &back, &err));
    cache_end();
}

TEST(training_warns_about_slow_steps_and_reports_the_error_of_the_advice)
{
    advice_model model = four_workers();
    advice_watch watch;
    advice_key key;
    char text[400] = "";
    advice_result result;
    gp_error err;

    cache_begin();
    advice_key_of(&key, "lenet", "digits", sgdm);
    REQUIRE_OK(advice_save(&key, &model, &err), err);
    CHECK(!advice_watch_begin(&watch, "lenet", "digits", sgdm, &(gp_train_info){ .workers = 2 }, text,
                              sizeof(text)));
    CHECK(advice_watch_begin(&watch, "lenet", "digits", sgdm, &(gp_train_info){ .workers = 4 }, text,
                             sizeof(text)));
    CHECK_CONTAINS(text, "more workers will not help: gradpool advise measured that 3 are enough");
    for (int i = 1; i <= 11; i++) { /* 10 ms per step; a validation takes 1 s before step 6 */
        advice_watch_step(&watch,
                          &(gp_train_step){ .rank = 0, .seconds = i * 0.01 + (i >= 6), .data_ms = 7 });
        advice_watch_step(&watch, &(gp_train_step){ .rank = 1, .seconds = 77, .data_ms = 5 });
        if (i == 5)
            watch.skip = true;
    }
    CHECK(advice_watch_end(&watch, &result));
    CHECK(near(result.measured, 100 / 0.01));
    CHECK(near(result.expected, advice_predict(&model, 4).rate));
    CHECK(result.fresh);
    CHECK_CONTAINS(result.text, "advise expected 13,333 images/s; this run reached 10,000 (75 %)");

    /* The comparison is printed only for the first training after the advice. */
    advice_watch_begin(&watch, "lenet", "digits", sgdm, &(gp_train_info){ .workers = 2 }, text, sizeof(text));
    for (int i = 1; i <= 3; i++)
        advice_watch_step(&watch, &(gp_train_step){ .rank = 0, .seconds = i, .data_ms = 900 });
    CHECK(advice_watch_end(&watch, &result) && !result.fresh);
    CHECK_CONTAINS(result.text, ": each step waited 900.00 ms for data");
    CHECK(!advice_watch_begin(&watch, "vgg16", "digits", sgdm, &(gp_train_info){ .workers = 4 }, text,
                              sizeof(text)));
    CHECK(!advice_watch_end(&watch, &result));
    cache_end();
}
