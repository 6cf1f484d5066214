/* The model of a search: Gaussian process, minimization, expected improvement. NumPy computed the
 * expected results (regression_numpy.py). */
#include "tests/gp_test.h"

#include "common/search/acquire.h"
#include "common/search/minimize.h"
#include "common/search/regression.h"
#include "tests/common/search/regression_facts.h"
#include "tests/common/search/splitmix.h"

static gp_regression model;
static double others[PREDICTIONS][DIMENSIONS];

/* Set up the model of regression_numpy.py. */
static gp_status prepare(gp_error *err)
{
    uint64_t state = 1;
    double inputs[COUNT][DIMENSIONS];
    gp_status status = gp_regression_init(&model, COUNT + PREDICTIONS, DIMENSIONS, err);

    if (status != GP_OK)
        return status;
    for (int i = 0; i < COUNT + PREDICTIONS; i++) {
        double *point = i < COUNT ? inputs[i] : others[i - COUNT];

        for (int k = 0; k < DIMENSIONS; k++)
            point[k] = random_uniform(&state);
        point[CATEGORY] = floor(point[CATEGORY] * 3) / 3;
    }
    model.category[CATEGORY] = true;
    for (int i = 0; i < COUNT; i++)
        gp_regression_add(&model, inputs[i], random_uniform(&state) * 2 - 1, i == DOUBTED ? DOUBT : 0);
    memcpy(model.theta, expected_theta, sizeof(expected_theta));
    return GP_OK;
}

TEARDOWN()
{
    gp_regression_deinit(&model);
}

TEST(likelihood_and_gradient_equal_those_of_numpy)
{
    double gradient[DIMENSIONS + 2];
    gp_error err;

    REQUIRE_OK(prepare(&err), err);
    for (int again = 0; again < 2; again++) {
        const double value = gp_regression_likelihood(&model, expected_theta, gradient);

        CHECK_NEAR(expected_likelihood, value, 1e-9 * fabs(expected_likelihood));
        for (int k = 0; k < DIMENSIONS + 2; k++)
            CHECK_NEAR(expected_gradient[k], gradient[k], 1e-9 * (1 + fabs(expected_gradient[k])));
    }
}

TEST(predictions_equal_those_of_numpy)
{
    const double *points[PREDICTIONS];
    double means[PREDICTIONS], deviations[PREDICTIONS];
    gp_error err;

    REQUIRE_OK(prepare(&err), err);
    gp_regression_condition(&model);
    for (int i = 0; i < PREDICTIONS; i++)
        points[i] = others[i];
    gp_regression_predict(&model, points, PREDICTIONS, means, deviations);
    for (int i = 0; i < PREDICTIONS; i++) {
        CHECK_NEAR(expected_means[i], means[i], 1e-9);
        CHECK_NEAR(expected_deviations[i], deviations[i], 1e-9);
    }
}

TEST(gradients_of_predictions_equal_differences)
{
    enum { REALS = DIMENSIONS - 1 };
    const double step = 1e-6;
    double means[3], deviations[3], of_mean[DIMENSIONS], of_deviation[DIMENSIONS];
    gp_error err;

    REQUIRE_OK(prepare(&err), err);
    gp_regression_condition(&model);
    gp_regression_add_pending(&model, others[1]);
    for (int k = 0; k < REALS; k++) {
        double low[DIMENSIONS], high[DIMENSIONS];
        const double *points[3] = { low, others[0], high };

        memcpy(low, others[0], sizeof(low));
        memcpy(high, others[0], sizeof(high));
        low[k] -= step;
        high[k] += step;
        gp_regression_predict(&model, points, 3, means, deviations);
        double mean, deviation;

        gp_regression_predict_gradient(&model, others[0], &mean, &deviation, of_mean, of_deviation);
        CHECK_NEAR(means[1], mean, 1e-12);
        CHECK_NEAR(deviations[1], deviation, 1e-12);
        CHECK_NEAR((means[2] - means[0]) / (2 * step), of_mean[k], 1e-6);
        CHECK_NEAR((deviations[2] - deviations[0]) / (2 * step), of_deviation[k], 1e-6);
    }
    CHECK_NEAR(0, of_mean[CATEGORY], 0);
}

/* A pending point acts as an observation that equals the mean. */
TEST(pending_points_reduce_the_variance_and_keep_the_mean)
{
    const double *points[PREDICTIONS];
    double means[2][PREDICTIONS], deviations[2][PREDICTIONS];
    gp_error err;

    REQUIRE_OK(prepare(&err), err);
    gp_regression_condition(&model);
    for (int i = 0; i < PREDICTIONS; i++)
        points[i] = others[i];
    gp_regression_predict(&model, points, PREDICTIONS, means[0], deviations[0]);
    gp_regression_add_pending(&model, others[0]);
    gp_regression_add_pending(&model, others[1]);
    gp_regression_predict(&model, points, PREDICTIONS, means[1], deviations[1]);
    CHECK(deviations[1][0] < 0.5 * deviations[0][0]);
    gp_regression_add(&model, others[0], means[0][0], 0);
    gp_regression_add(&model, others[1], means[0][1], 0);
    gp_regression_condition(&model);
    gp_regression_predict(&model, points, PREDICTIONS, means[0], deviations[0]);
    for (int i = 0; i < PREDICTIONS; i++) {
        CHECK_NEAR(means[0][i], means[1][i], 1e-9);
        CHECK_NEAR(deviations[0][i], deviations[1][i], 1e-9);
    }
}

TEST(equal_inputs_do_not_break_the_model)
{
    const double point[2] = { 0.3, 0.6 }, *points[1] = { point };
    double mean, deviation;
    gp_error err;

    REQUIRE_OK(gp_regression_init(&model, 12, 2, &err), err);
    for (int i = 0; i < 12; i++)
        gp_regression_add(&model, point, i % 2 == 0 ? 1.0 : -1.0, 0);
    gp_regression_prior(&model, model.theta);
    model.theta[3] = -60.0; /* no noise: the covariance is singular */
    gp_regression_condition(&model);
    gp_regression_predict(&model, points, 1, &mean, &deviation);
    CHECK_NEAR(0.0, mean, 1e-3);
    gp_regression_fit(&model, 60, true);
    CHECK(model.theta[3] > -2.0); /* all of it is noise */
}

/* Observations of 1 everywhere are evidence for a mean of 1 far from them. */
TEST(predictions_return_to_the_mean_of_the_observations)
{
    const double far[2] = { 1.0, 1.0 }, *points[1] = { far };
    double mean, deviation;
    gp_error err;

    REQUIRE_OK(gp_regression_init(&model, 4, 2, &err), err);
    for (int i = 0; i < 4; i++)
        gp_regression_add(&model, (const double[]){ 0.1 * i, 0.0 }, 1.0, 0);
    gp_regression_prior(&model, model.theta);
    model.theta[0] = model.theta[1] = -4.0; /* far points are independent */
    gp_regression_condition(&model);
    gp_regression_predict(&model, points, 1, &mean, &deviation);
    CHECK_NEAR(0.8, mean, 1e-3); /* four observations beside a prior mean of 0 */
}

TEST(a_fit_finds_the_relevant_coordinate)
{
    uint64_t state = 3;
    gp_error err;

    REQUIRE_OK(gp_regression_init(&model, 40, 3, &err), err);
    for (int i = 0; i < 40; i++) {
        const double point[3] = { random_uniform(&state), random_uniform(&state), random_uniform(&state) };

        gp_regression_add(&model, point, 1.4 * sin(9 * point[1]), 0);
    }
    gp_regression_prior(&model, model.theta);
    gp_regression_fit(&model, 60, false);
    CHECK(model.theta[1] < model.theta[0] - 1.0);
    CHECK(model.theta[1] < model.theta[2] - 1.0);
    CHECK(model.theta[4] < -9.0);
}

TEST(log_improvement_is_accurate_everywhere)
{
    for (size_t i = 0; i < sizeof(improvement_steps) / sizeof(improvement_steps[0]); i++) {
        const double z = improvement_steps[i], step = 1e-5;
        double slope;

        CHECK_NEAR(expected_improvements[i], gp_log_improvement(z, &slope),
                   1e-12 * (1 + fabs(expected_improvements[i])));
        CHECK_NEAR((gp_log_improvement(z + step, NULL) - gp_log_improvement(z - step, NULL)) / (2 * step),
                   slope, 1e-5 * fabs(slope));
    }
}

/* Rosenbrock's function, a curved valley; the minimum is at (1, 1). */
static double rosenbrock(void *context, const double *x, double *gradient)
{
    const double a = x[1] - x[0] * x[0], b = 1 - x[0];

    ++*(int *)context;
    gradient[0] = -400 * x[0] * a - 2 * b;
    gradient[1] = 200 * a;
    return 100 * a * a + b * b;
}

TEST(minimization_finds_minima_inside_and_at_the_edge)
{
    const double low[2] = { -2, -2 }, high[2] = { 2, 2 }, edge[2] = { 0.5, 2 };
    double x[2] = { -1.2, 1 };
    int calls = 0;

    CHECK_NEAR(0, gp_minimize(rosenbrock, &calls, x, low, high, 2, 200), 1e-9);
    CHECK_NEAR(1, x[0], 1e-4);
    CHECK_NEAR(1, x[1], 1e-4);
    CHECK(calls < 80);
    x[0] = -1.2;
    x[1] = 1;
    CHECK_NEAR(0.25, gp_minimize(rosenbrock, &calls, x, low, edge, 2, 200), 1e-9); /* (0.5, 0.25) */
    CHECK_NEAR(0.5, x[0], 0);
    CHECK_NEAR(0.25, x[1], 1e-4);
    calls = 0;
    x[0] = x[1] = -1;
    gp_minimize(rosenbrock, &calls, x, low, high, 2, 5);
    CHECK(calls <= 6);
}

TEST(a_model_survives_each_failing_allocation)
{
    gp_error err;

    CHECK_EVERY_ALLOCATION(gp_regression_init(&model, 9, 2, &err), gp_regression_deinit(&model));
}
