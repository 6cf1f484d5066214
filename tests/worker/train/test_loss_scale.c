#include "tests/gp_test.h"

#include <string.h>

#include "worker/train/loss_scale.h"

static gp_train_options options_of(const char *json)
{
    gp_train_options options = { 0 };
    gp_error err;

    if (gp_train_options_from_json(&options, json, strlen(json), &err) != GP_OK)
        GP_TEST_FAIL("%s: %s", json, err.message);
    return options;
}

TEST(only_fp16_has_a_loss_scale)
{
    for (int precision = 0; precision < GP_PRECISION_COUNT; precision++) {
        char json[60];

        snprintf(json, sizeof(json), "{\"precision\":\"%s\"}", gp_precision_names[precision]);
        gp_train_options options = options_of(json);
        gp_loss_scale scale = gp_loss_scale_begin(&options);

        CHECK_NEAR(precision == GP_PRECISION_F16 ? 65536 : 0, scale.scale, 0);
        if (precision != GP_PRECISION_F16)
            CHECK(!gp_loss_scale_step(&scale, &options, 5));
    }
}

TEST(an_overflow_skips_the_step_and_halves_the_scale_and_good_steps_double_it)
{
    gp_train_options options = options_of("{\"precision\":\"fp16\",\"loss-scale-interval\":3}");
    gp_loss_scale scale = gp_loss_scale_begin(&options);

    CHECK(!gp_loss_scale_step(&scale, &options, 0));
    CHECK(!gp_loss_scale_step(&scale, &options, 0));
    CHECK(gp_loss_scale_step(&scale, &options, 1));
    CHECK_NEAR(32768, scale.scale, 0);
    CHECK_INT(0, scale.good);
    CHECK_INT(1, scale.skips);
    for (int i = 0; i < 3; i++) {
        CHECK_NEAR(32768, scale.scale, 0);
        CHECK(!gp_loss_scale_step(&scale, &options, 0));
        CHECK_INT(0, scale.skips);
    }
    CHECK_NEAR(65536, scale.scale, 0);
}

TEST(scale_with_interval_0_never_grows)
{
    gp_train_options options =
        options_of("{\"precision\":\"fp16\",\"loss-scale\":128,\"loss-scale-interval\":0,"
                   "\"loss-scale-backoff\":0.25}");
    gp_loss_scale scale = gp_loss_scale_begin(&options);

    for (int i = 0; i < 5000; i++)
        gp_loss_scale_step(&scale, &options, 0);
    CHECK_NEAR(128, scale.scale, 0);
    gp_loss_scale_step(&scale, &options, 1);
    CHECK_NEAR(32, scale.scale, 0);
}

TEST(the_scale_stays_within_its_limits)
{
    gp_train_options options =
        options_of("{\"precision\":\"fp16\",\"loss-scale-interval\":1,\"loss-scale-growth\":1000}");
    gp_loss_scale scale = gp_loss_scale_begin(&options);

    for (int i = 0; i < 1000; i++)
        gp_loss_scale_step(&scale, &options, 0);
    CHECK(scale.scale <= GP_LOSS_SCALE_MAX && scale.scale > 1e20);
    for (int i = 0; i < 1000; i++)
        gp_loss_scale_step(&scale, &options, 1);
    CHECK(scale.scale >= 1 / GP_LOSS_SCALE_MAX && scale.scale < 1e-20);
}

/* The gradient of a sum is larger than that of a mean by the number of samples. */
TEST(a_sum_is_scaled_by_less_in_powers_of_two)
{
    const gp_loss_scale scale = { .scale = 65536 };

    CHECK_NEAR(65536, gp_loss_scale_of_sum(&scale, 0), 0);
    CHECK_NEAR(65536, gp_loss_scale_of_sum(&scale, 1), 0);
    CHECK_NEAR(256, gp_loss_scale_of_sum(&scale, 256), 0);
    CHECK_NEAR(128, gp_loss_scale_of_sum(&scale, 257), 0);
}
