#include "common/model/train_options.h"

#include "tests/gp_test.h"

static gp_status parse(gp_train_options *out, const char *text, gp_error *err)
{
    return gp_train_options_from_json(out, text, strlen(text), err);
}

/* The defaults of MATLAB's trainingOptions, except shuffling and validation in every epoch. */
TEST(defaults_are_those_of_matlab)
{
    gp_train_options options;
    gp_error err;

    REQUIRE_OK(parse(&options, "{}", &err), err);
    CHECK_INT(GP_SOLVER_SGDM, options.solver);
    CHECK_INT(30, options.max_epochs);
    CHECK_INT(128, options.mini_batch_size);
    CHECK_NEAR(0.01, options.initial_learn_rate, 0.0);
    CHECK_INT(GP_SCHEDULE_NONE, options.learn_rate_schedule);
    CHECK_NEAR(0.1, options.learn_rate_drop_factor, 0.0);
    CHECK_INT(10, options.learn_rate_drop_period);
    CHECK_NEAR(0.9, options.momentum, 0.0);
    CHECK_NEAR(1e-4, options.l2_regularization, 0.0);
    CHECK_INT(2, options.shuffle);
    CHECK_INT(0, options.validation_frequency);
    CHECK_INT(50, options.verbose_frequency);
    CHECK_TEXT("glorot", options.weights_initializer);
    CHECK_INT(0, options.micro_batch_size);
}

TEST(fields_aliases_and_underscores_are_accepted)
{
    gp_train_options options;
    gp_error err;

    REQUIRE_OK(
        parse(&options,
              "{\"lr\": 0.5, \"epochs\": 7, \"batch_size\": 64, \"weight-decay\": 0, \"shuffle\": \"never\","
              " \"learn_rate_schedule\": \"piecewise\", \"weights-initializer\": \"normal:0.5\", \"seed\": "
              "9007199254740991}",
              &err),
        err);
    CHECK_NEAR(0.5, options.initial_learn_rate, 0.0);
    CHECK_INT(7, options.max_epochs);
    CHECK_INT(64, options.mini_batch_size);
    CHECK_NEAR(0.0, options.l2_regularization, 0.0);
    CHECK_INT(0, options.shuffle);
    CHECK_INT(GP_SCHEDULE_PIECEWISE, options.learn_rate_schedule);
    CHECK_TEXT("normal:0.5", options.weights_initializer);
    CHECK_INT(9007199254740991, options.seed);
}

TEST(invalid_options_are_refused_and_leave_the_output_unchanged)
{
    static const struct {
        const char *text, *part;
    } cases[] = {
        { "[]", "must be a JSON object" },
        { "{\"lr\": -1}", "initial-learn-rate" },
        { "{\"lr\": \"fast\"}", "a number" },
        { "{\"mini-batch-size\": 0}", "mini-batch-size" },
        { "{\"mini-batch-size\": 2.5}", "whole number" },
        { "{\"mini-batch-size\": 1e300}", "mini-batch-size" },
        { "{\"momentum\": 1.5}", "momentum" },
        { "{\"solver\": \"sgd\"}", "did you mean 'sgdm'" },
        { "{\"mometum\": 0.5}", "did you mean 'momentum'" },
        { "{\"weights-initializer\": \"glorat\"}", "did you mean 'glorot'" },
        { "{\"weights-initializer\": \"normal:0.00000000000000000000000000001\"}", "weights-initializer" },
        { "{\"seed\": -1}", "seed" },
        { "{\"lr\": null}", "initial-learn-rate" },
        { "{\"lr\": [0.1, 0.2]}", "initial-learn-rate" },
        { "{\"lr\": 1, \"lr\": 2}", "JSON" },
        { "{", "JSON" },
        { "", "JSON" },
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        gp_train_options options = { .max_epochs = -77 };
        gp_error err = { .message = "" };
        gp_status status = parse(&options, cases[i].text, &err);

        if (status != GP_EINVAL && status != GP_ELIMIT)
            GP_TEST_FAIL("%s: %s", cases[i].text, gp_status_name(status));
        CHECK_CONTAINS(err.message, cases[i].part);
        CHECK_INT(-77, options.max_epochs);
    }
}

/* Return the learning rate in a training with 100 steps. */
static double rate_at(const gp_train_options *options, uint64_t step, uint32_t epoch)
{
    return gp_train_learn_rate(options, &(gp_train_place){ .step = step, .epoch = epoch, .steps = 100 });
}

TEST(default_rate_and_decay_depend_on_the_solver)
{
    gp_train_options options;
    gp_error err;

    REQUIRE_OK(parse(&options, "{\"solver\": \"adam\"}", &err), err);
    CHECK_NEAR(0.001, options.initial_learn_rate, 0.0);
    CHECK_NEAR(0.999, options.squared_gradient_decay_factor, 0.0);
    REQUIRE_OK(parse(&options, "{\"solver\": \"rmsprop\", \"lr\": 0.5}", &err), err);
    CHECK_NEAR(0.5, options.initial_learn_rate, 0.0);
    CHECK_NEAR(0.9, options.squared_gradient_decay_factor, 0.0);
}

TEST(options_that_depend_on_the_workers_are_resolved_once)
{
    gp_train_options options;
    gp_error err;

    REQUIRE_OK(parse(&options,
                     "{\"mini-batch-size-per-worker\": 32, \"lr\": 0.1, \"scale-lr\": \"linear:64\"}", &err),
               err);
    REQUIRE_OK(gp_train_options_scale(&options, 4, &err), err);
    CHECK_INT(128, options.mini_batch_size);
    CHECK_NEAR(0.2, options.initial_learn_rate, 1e-16);
    REQUIRE_OK(gp_train_options_scale(&options, 4, &err), err);
    CHECK_NEAR(0.2, options.initial_learn_rate, 1e-16);
    strcpy(options.scale_lr, "square:64");
    CHECK_STATUS(GP_EINVAL, gp_train_options_scale(&options, 4, &err));
    CHECK_CONTAINS(err.message, "linear:BASE");
    options.mini_batch_size_per_worker = 1 << 20;
    CHECK_STATUS(GP_EINVAL, gp_train_options_scale(&options, 64, &err));
    CHECK_CONTAINS(err.message, "on 64 workers makes a mini-batch of");
}

TEST(cosine_and_polynomial_change_from_the_initial_to_the_final_rate)
{
    gp_train_options options;
    gp_error err;

    REQUIRE_OK(parse(&options,
                     "{\"lr\": 2, \"learn-rate-schedule\": \"cosine\", \"learn-rate-final-factor\": 0.1}",
                     &err),
               err);
    CHECK_NEAR(2.0, rate_at(&options, 1, 1), 0.0);
    CHECK_NEAR(0.2, rate_at(&options, 100, 1), 1e-15);
    CHECK_NEAR(0.2 + 1.8 * 0.5 * (1 + cos(M_PI * 33 / 99)), rate_at(&options, 34, 1), 1e-15);
    options.learn_rate_schedule = GP_SCHEDULE_POLYNOMIAL;
    options.learn_rate_power = 2;
    options.learn_rate_final_factor = 0;
    CHECK_NEAR(2.0, rate_at(&options, 1, 1), 0.0);
    CHECK_NEAR(2.0 * 66 * 66 / (99.0 * 99.0), rate_at(&options, 34, 1), 1e-15);
    CHECK_NEAR(0.0, rate_at(&options, 100, 1), 0.0);
}

TEST(warm_up_is_linear_and_precedes_the_schedule)
{
    gp_train_options options;
    gp_error err;

    REQUIRE_OK(
        parse(&options, "{\"lr\": 2, \"learn-rate-schedule\": \"cosine\", \"learn-rate-warmup\": 20}", &err),
        err);
    CHECK_NEAR(0.1, rate_at(&options, 1, 1), 1e-16);
    CHECK_NEAR(2.0, rate_at(&options, 20, 1), 0.0);
    CHECK_NEAR(2.0, rate_at(&options, 21, 1), 0.0);
    CHECK_NEAR(0.0, rate_at(&options, 100, 1), 1e-15);
    options.learn_rate_schedule = GP_SCHEDULE_EXPONENTIAL;
    CHECK_NEAR(0.02, rate_at(&options, 60, 3), 1e-16);
}

TEST(training_with_one_step_has_a_rate)
{
    gp_train_options options;
    gp_error err;

    REQUIRE_OK(parse(&options, "{\"lr\": 2, \"learn-rate-schedule\": \"polynomial\"}", &err), err);
    CHECK(isfinite(gp_train_learn_rate(&options, &(gp_train_place){ .step = 1, .epoch = 1, .steps = 1 })));
}

TEST(piecewise_drops_by_the_factor_every_period)
{
    static const double expected[] = { 0.03, 0.006, 0.0012, 0.00024 };
    gp_train_options options;
    gp_error err;

    REQUIRE_OK(parse(&options,
                     "{\"lr\": 0.03, \"learn-rate-schedule\": \"piecewise\", \"learn-rate-drop-factor\": 0.2,"
                     " \"learn-rate-drop-period\": 3}",
                     &err),
               err);
    for (uint32_t epoch = 1; epoch <= 12; epoch++)
        CHECK_NEAR(expected[(epoch - 1) / 3], rate_at(&options, 1, epoch), 1e-17);
    options.learn_rate_drop_period = 1;
    CHECK_NEAR(0.03, rate_at(&options, 1, 1), 0.0);
    CHECK_NEAR(0.006, rate_at(&options, 1, 2), 1e-17);
    options.learn_rate_drop_factor = 0.0;
    CHECK_NEAR(0.03, rate_at(&options, 1, 1), 0.0);
    CHECK_NEAR(0.0, rate_at(&options, 1, 2), 0.0);
}

TEST(rate_without_a_schedule_is_constant)
{
    gp_train_options options;
    gp_error err;

    REQUIRE_OK(parse(&options,
                     "{\"lr\": 0.03, \"learn-rate-drop-factor\": 0.2, \"learn-rate-drop-period\": 1}", &err),
               err);
    CHECK_NEAR(0.03, rate_at(&options, 1, 1), 0.0);
    CHECK_NEAR(0.03, rate_at(&options, 100, 1000000), 0.0);
}

TEST(every_option_has_a_description)
{
    for (const gp_param *a = gp_train_options_table; a->type != GP_PARAM_NONE; a++) {
        CHECK(a->help != NULL && a->help[0] != '\0');
        CHECK(gp_params_find(gp_train_options_table, a->name) == a); /* names are unique */
        if (a->alias != NULL)
            CHECK(gp_params_find(gp_train_options_table, a->alias) == a);
        if (a->type == GP_PARAM_I64 || a->type == GP_PARAM_F64)
            CHECK((a->min <= a->fallback || a->fallback == -1.0) && a->fallback <= a->max);
    }
}
