/* test_metrics_line.c: the metrics.jsonl format, and that each line reads back as the same
 * record. */
#include "client/runs/metrics_line.h"

#include <math.h>
#include <string.h>

#include <gradpool/gradpool.h>

#include "tests/gp_test.h"

static const gp_train_step step_of_classes = { .worker = 2,
                                               .rank = 1,
                                               .step = 7,
                                               .epoch = 3,
                                               .samples = 64,
                                               .loss = 0.1,
                                               .accuracy = 0.875,
                                               .rmse = NAN,
                                               .learn_rate = 0.01,
                                               .seconds = 1.25,
                                               .data_ms = 0.5,
                                               .forward_ms = 10.00004,
                                               .backward_ms = 20.5,
                                               .exchange_ms = 1e-7,
                                               .commit_ms = 3,
                                               .wait_ms = 1234.5678 };

static const char *line_of(const metric *table, const void *record)
{
    static char line[1000];
    gp_buffer text;
    gp_json_writer writer;

    gp_buffer_init(&text, sizeof(line) - 1);
    gp_json_writer_init(&writer, &text, false);
    metrics_put(&writer, table, record);
    CHECK(gp_json_writer_finish(&writer, NULL) == GP_OK);
    snprintf(line, sizeof(line), "%s", gp_buffer_text(&text));
    gp_buffer_deinit(&text);
    return line;
}

static void read_line(void *record, const metric *table, const char *line)
{
    gp_json *json;

    REQUIRE(gp_json_parse(&json, line, strlen(line), NULL) == GP_OK);
    metrics_get(record, table, json);
    gp_json_free(json);
}

TEST(step_line_matches_the_recorded_bytes)
{
    gp_train_step step = step_of_classes;

    CHECK_TEXT(
        "{\"step\": 7, \"epoch\": 3, \"worker\": 2, \"seconds\": 1.250000, \"samples\": 64, \"loss\": 0.1, "
        "\"accuracy\": 0.875, \"learn_rate\": 0.01, \"time\": {\"data\": 0.5000, \"forward\": 10.0000, "
        "\"backward\": 20.5000, \"exchange\": 0.0000, \"commit\": 3.0000, \"wait\": 1234.5678}}",
        line_of(metrics_of_step, &step));
    step.loss = NAN;
    step.accuracy = NAN;
    step.rmse = 0.25;
    step.learn_rate = 1.0 / 3;
    step.loss_scale = 65536;
    step.skipped = true;
    CHECK_TEXT(
        "{\"step\": 7, \"epoch\": 3, \"worker\": 2, \"seconds\": 1.250000, \"samples\": 64, \"loss\": null, "
        "\"accuracy\": null, \"rmse\": 0.25, \"learn_rate\": 0.3333333333, \"loss_scale\": 65536, "
        "\"skipped\": true, \"time\": {\"data\": 0.5000, \"forward\": 10.0000, \"backward\": 20.5000, "
        "\"exchange\": 0.0000, \"commit\": 3.0000, \"wait\": 1234.5678}}",
        line_of(metrics_of_step, &step));
}

TEST(validation_line_matches_the_recorded_bytes)
{
    gp_train_validation_result check = {
        .step = 20, .epoch = 1, .loss = 0.3, .accuracy = 0.5, .rmse = NAN, .count = 10000, .seconds = 2.5
    };

    CHECK_TEXT("{\"step\": 20, \"epoch\": 1, \"seconds\": 2.500000, \"validation_loss\": 0.3, "
               "\"validation_accuracy\": 0.5, \"count\": 10000}",
               line_of(metrics_of_validation, &check));
    check.accuracy = NAN;
    check.rmse = 1.5;
    check.excluded = 12;
    CHECK_TEXT("{\"step\": 20, \"epoch\": 1, \"seconds\": 2.500000, \"validation_loss\": 0.3, "
               "\"validation_accuracy\": null, \"validation_rmse\": 1.5, \"count\": 10000, \"excluded\": 12}",
               line_of(metrics_of_validation, &check));
}

TEST(a_line_reads_back_as_its_record)
{
    gp_train_step step = step_of_classes, step_read = { .rank = 1 };
    gp_train_validation_result check = { .step = 20, .epoch = 1, .loss = 0.3, .accuracy = NAN, .rmse = 1.5 },
                               check_read = { 0 };
    char line[1000];

    check.count = 1ull << 50;
    check.excluded = 12;
    step.skipped = true;
    step.loss_scale = 65536;
    for (int i = 0; i < 2; i++) {
        snprintf(line, sizeof(line), "%s", line_of(metrics_of_step, &step));
        read_line(&step_read, metrics_of_step, line);
        CHECK_TEXT(line, line_of(metrics_of_step, &step_read));
        CHECK(isnan(step_read.rmse));
        CHECK_INT(step.skipped, step_read.skipped);
        CHECK(step.loss_scale == step_read.loss_scale && step.loss == step_read.loss);
        step.skipped = false;
        step.loss_scale = 0;
    }
    snprintf(line, sizeof(line), "%s", line_of(metrics_of_validation, &check));
    read_line(&check_read, metrics_of_validation, line);
    CHECK_TEXT(line, line_of(metrics_of_validation, &check_read));
    CHECK(isnan(check_read.accuracy) && check_read.count == check.count);
}

TEST(missing_members_become_nan_or_0)
{
    gp_train_step step = step_of_classes;

    read_line(&step, metrics_of_step, "{\"step\": -1, \"loss\": null, \"time\": {\"data\": 1}}");
    CHECK_INT(0, step.step);
    CHECK_INT(0, step.samples);
    CHECK(isnan(step.loss) && isnan(step.forward_ms));
    CHECK(step.data_ms == 1 && step.loss_scale == 0 && !step.skipped);
}
