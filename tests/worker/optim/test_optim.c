/* test_optim.c: optimizer updates against their formulas in float64. */
#include "worker/backend/cpu/base/threads.h"
#include "worker/optim/optim.h"

#include "tests/gp_test.h"
#include "tests/common/model/nets.h"

enum { STEPS = 24, STEPS_PER_EPOCH = 6 };
static const gp_shape image = { 3, { 1, 4, 4 } };

/* Factors for the tensors of net: c.weight, c.bias, f.weight, f.bias. */
static const char *const net =
    "c conv2d channels=2;kernel=3;weight-learn-rate-factor=0;weight-l2-factor=5 | "
    "f fc outputs=3;weight-learn-rate-factor=2;weight-l2-factor=0.5;bias-l2-factor=3 | l crossentropy";
static const double rate_factors[] = { 0, 1, 2, 1 }, l2_factors[] = { 5, 0, 0.5, 3 };

static gp_graph *graph_new(void)
{
    gp_graph *graph = NULL;
    gp_error err;

    if (net_graph(&graph, &image, net, &err) != GP_OK)
        GP_TEST_FAIL("%s", err.message);
    return graph;
}

static gp_train_options options_of(const char *json)
{
    gp_train_options options = { 0 };
    gp_error err;

    if (gp_train_options_from_json(&options, json, strlen(json), &err) != GP_OK)
        GP_TEST_FAIL("%s", err.message);
    return options;
}

/* Update one tensor: v <- momentum v - rate (g / weight + l2 w), w <- w + v. */
static void tensor_step(double *w, double *v, const float *g, int64_t count, double weight, double rate,
                        double momentum, double l2)
{
    for (int64_t i = 0; i < count; i++) {
        v[i] = momentum * v[i] - rate * (g[i] / weight + l2 * w[i]);
        w[i] += v[i];
    }
}

static void fill(float *blob, size_t count, int step)
{
    /* sums over about 30 samples */
    for (size_t i = 0; i < count; i++)
        blob[i] = (float)(40.0 * sin(1.3 * (double)i + 0.7 * step));
}

/* ---- other solvers, in float64 from their papers ---- */

typedef struct moments {
    double m, v;
} moments;

static void adaptive_step(const gp_train_options *options, double *w, moments *at, double g, double rate,
                          double l2, int t)
{
    double b1 = options->gradient_decay_factor, b2 = options->squared_gradient_decay_factor;
    bool decoupled = options->solver == GP_SOLVER_ADAMW, root_mean = options->solver == GP_SOLVER_RMSPROP;

    if (decoupled)
        *w -= rate * l2 * *w;
    else
        g += l2 * *w;
    at->m = b1 * at->m + (1 - b1) * g;
    at->v = b2 * at->v + (1 - b2) * g * g;
    if (root_mean)
        *w -= rate * g / (sqrt(at->v) + options->epsilon);
    else
        *w -= rate * (at->m / (1 - pow(b1, t))) / (sqrt(at->v / (1 - pow(b2, t))) + options->epsilon);
}

static double norm_of(const double *values, size_t count)
{
    double sum = 0;

    for (size_t i = 0; i < count; i++)
        sum += values[i] * values[i];
    return sqrt(sum);
}

/* Clip the mini-batch gradient according to the option; frozen tensors are excluded from norms. */
static void clip_both(const gp_graph *graph, const gp_train_options *options, double *g)
{
    double limit = options->gradient_threshold, squares = 0;

    for (uint32_t p = 0; p < graph->parameter_count; p++) {
        double *part = g + graph->parameters[p].offset;
        size_t count = (size_t)graph->parameters[p].count;
        double norm = norm_of(part, count);

        squares += rate_factors[p] == 0 ? 0 : norm * norm;
        for (size_t i = 0; i < count; i++) {
            if (options->gradient_threshold_method == GP_CLIP_L2NORM && norm > limit)
                part[i] *= limit / norm;
            if (options->gradient_threshold_method == GP_CLIP_ABSOLUTE)
                part[i] = fmax(-limit, fmin(limit, part[i]));
        }
    }
    if (options->gradient_threshold_method == GP_CLIP_GLOBAL_L2NORM && sqrt(squares) > limit)
        for (size_t i = 0; i < graph->blob_count; i++)
            g[i] *= limit / sqrt(squares);
}

/* Run STEPS steps and return the largest difference, relative to the largest weight. */
static double adaptive_both(const gp_graph *graph, const gp_train_options *options, double l2_of_formula)
{
    const size_t count = graph->blob_count;
    const double weight = 32;
    float *g = calloc(count, sizeof(*g)), *w = calloc(count, sizeof(*w));
    double *w64 = calloc(count, sizeof(*w64)), *g64 = calloc(count, sizeof(*g64)), error = 0, largest = 0;
    moments *state = calloc(count, sizeof(*state));
    gp_optim *optim;

    if (gp_optim_new(&optim, graph, options, NULL) != GP_OK)
        abort();
    for (size_t i = 0; i < count; i++)
        w64[i] = w[i] = (float)cos(0.9 * (double)i);
    for (int step = 0; step < STEPS; step++) {
        fill(g, count, step);
        for (size_t i = 0; i < count; i++)
            g64[i] = g[i] / weight;
        gp_optim_step(optim, w, g, weight, options->initial_learn_rate);
        if (options->gradient_threshold > 0)
            clip_both(graph, options, g64);
        for (uint32_t p = 0; p < graph->parameter_count; p++)
            for (size_t i = graph->parameters[p].offset, k = 0; k < (size_t)graph->parameters[p].count;
                 i++, k++)
                if (rate_factors[p] != 0 && options->solver == GP_SOLVER_SGDM)
                    w64[i] -= options->initial_learn_rate * rate_factors[p] *
                              (g64[i] + l2_of_formula * l2_factors[p] * w64[i]);
                else if (rate_factors[p] != 0)
                    adaptive_step(options, &w64[i], &state[i], g64[i],
                                  options->initial_learn_rate * rate_factors[p],
                                  l2_of_formula * l2_factors[p], step + 1);
    }
    for (size_t i = 0; i < count; i++) {
        error = fmax(error, fabs(w[i] - w64[i]));
        largest = fmax(largest, fabs(w64[i]));
    }
    gp_optim_free(optim);
    free(g);
    free(w);
    free(w64);
    free(g64);
    free(state);
    return error / largest;
}

static void check_adaptive(const char *json)
{
    gp_graph *graph = graph_new();
    gp_train_options options = options_of(json);

    REQUIRE(graph != NULL);
    CHECK_NEAR(0.0, adaptive_both(graph, &options, options.l2_regularization), 1e-5);

    /* proves that the check can fail */
    CHECK(adaptive_both(graph, &options, options.l2_regularization + 0.02) > 4e-5);
    gp_graph_free(graph);
}

/* Run STEPS steps both ways and return the largest difference, relative to the largest weight. */
static double run_both(const gp_graph *graph, const gp_train_options *options, double rates[STEPS], float *w)
{
    const size_t count = graph->blob_count;
    float *g = calloc(count, sizeof(*g));
    double *w64 = calloc(count, sizeof(*w64)), *v64 = calloc(count, sizeof(*v64));
    double error = 0.0, largest = 0.0;
    gp_optim *optim;

    if (gp_optim_new(&optim, graph, options, NULL) != GP_OK)
        abort();
    for (size_t i = 0; i < count; i++)
        w64[i] = w[i] = (float)cos(0.9 * (double)i);
    for (int step = 0; step < STEPS; step++) {
        const double weight =
            step % STEPS_PER_EPOCH == STEPS_PER_EPOCH - 1 ? 7 : 32; /* a smaller last batch */

        fill(g, count, step);
        gp_optim_step(
            optim, w, g, weight,
            gp_train_learn_rate(options, &(gp_train_place){ .step = (uint64_t)step + 1,
                                                            .epoch = (uint32_t)(step / STEPS_PER_EPOCH + 1),
                                                            .steps = STEPS }));
        for (uint32_t p = 0; p < graph->parameter_count; p++) {
            size_t offset = graph->parameters[p].offset;

            tensor_step(w64 + offset, v64 + offset, g + offset, graph->parameters[p].count, weight,
                        rates[step] * rate_factors[p], options->momentum,
                        options->l2_regularization * l2_factors[p]);
        }
    }
    for (size_t i = 0; i < count; i++) {
        error = fmax(error, fabs(w[i] - w64[i]));
        largest = fmax(largest, fabs(w64[i]));
    }
    gp_optim_free(optim);
    free(g);
    free(w64);
    free(v64);
    return error / largest;
}

static void check_formula(const char *json, double drop, int period)
{
    gp_graph *graph = graph_new();
    gp_train_options options = options_of(json);
    double rates[STEPS];

    REQUIRE(graph != NULL);
    float *w = calloc(graph->blob_count, sizeof(*w));

    for (int step = 0; step < STEPS; step++)
        rates[step] = 0.02 * pow(drop, step / STEPS_PER_EPOCH / period);
    CHECK_NEAR(0.0, run_both(graph, &options, rates, w), 2e-6);

    /* The check can fail: it detects a rate that is off by a thousandth in one step. */
    rates[STEPS - 1] *= 1.001;
    CHECK(run_both(graph, &options, rates, w) > 4e-6);
    free(w);
    gp_graph_free(graph);
}

TEST(momentum_l2_and_factors_follow_the_formula)
{
    check_formula("{\"lr\": 0.02, \"momentum\": 0.9, \"l2-regularization\": 0.03}", 1, 1);
}

TEST(without_momentum_it_is_plain_descent)
{
    check_formula("{\"lr\": 0.02, \"momentum\": 0, \"l2-regularization\": 0.03}", 1, 1);
}

TEST(the_velocity_keeps_the_rate_of_its_step_when_the_schedule_drops)
{
    check_formula("{\"lr\": 0.02, \"l2-regularization\": 0.03, \"learn-rate-schedule\": \"piecewise\","
                  " \"learn-rate-drop-factor\": 0.5, \"learn-rate-drop-period\": 2}",
                  0.5, 2);
}

TEST(frozen_layer_is_bitwise_unchanged_and_the_others_move)
{
    gp_graph *graph = graph_new();
    gp_train_options options = options_of("{\"lr\": 0.02}");
    double rates[STEPS] = { 0 };

    REQUIRE(graph != NULL);
    float *w = calloc(graph->blob_count, sizeof(*w));

    run_both(graph, &options, rates, w);
    for (uint32_t p = 0; p < graph->parameter_count; p++) {
        int64_t same = 0;

        for (int64_t i = 0; i < graph->parameters[p].count; i++) {
            size_t at = graph->parameters[p].offset + (size_t)i;

            same += w[at] == (float)cos(0.9 * (double)at);
        }
        CHECK_INT(p == 0 ? graph->parameters[p].count : 0, same);
    }
    free(w);
    gp_graph_free(graph);
}

/* One step from gradient sums and weight, then both doubled: equal results, so the divisor is
 * applied once. */
TEST(the_divisor_is_applied_once_and_l2_is_not_divided)
{
    gp_graph *graph = graph_new();
    gp_train_options options = options_of("{\"lr\": 0.5, \"momentum\": 0.5, \"l2-regularization\": 0.25}");

    REQUIRE(graph != NULL);
    float *g = calloc(graph->blob_count, sizeof(*g)), *w = calloc(graph->blob_count, sizeof(*w));
    const size_t at = graph->parameters[2].offset; /* f.weight: rate x 2, l2 x 0.5 */

    for (int doubled = 0; doubled < 2; doubled++) {
        gp_optim *optim;

        g[at] = doubled ? 48 : 24;
        w[at] = 2;
        REQUIRE(gp_optim_new(&optim, graph, &options, NULL) == GP_OK);
        gp_optim_step(optim, w, g, doubled ? 16 : 8, 0.5);
        CHECK_NEAR(2 - 1.0 * (3 + 0.125 * 2), w[at], 0.0);
        gp_optim_free(optim);
    }
    free(g);
    free(w);
    gp_graph_free(graph);
}

TEST(multithreaded_update_is_bitwise_identical)
{
    static const char *const solvers[] = { "{\"solver\": \"sgdm\"}", "{\"solver\": \"adam\"}" };
    gp_netspec *spec = NULL;
    gp_graph *graph = NULL;
    gp_error err = { 0 };

    REQUIRE_OK(gp_zoo_build(&spec, "lenet", NULL, 0, &err), err);
    REQUIRE_OK(gp_graph_new(&graph, spec, &err), err);
    for (size_t k = 0; k < sizeof(solvers) / sizeof(solvers[0]); k++) {
        gp_train_options options = options_of(solvers[k]);
        const size_t count = graph->blob_count;
        float *g = calloc(count, sizeof(*g)), *w[2];

        for (uint32_t team = 0; team < 2; team++) {
            gp_optim *optim;

            w[team] = calloc(count, sizeof(*w[team]));
            gp_threads_prepare(1 + 2 * team, NULL);
            REQUIRE_OK(gp_optim_new(&optim, graph, &options, &err), err);
            for (int step = 0; step < 3; step++) {
                fill(g, count, step);
                gp_optim_step(optim, w[team], g, 8, 0.1);
            }
            gp_optim_free(optim);
        }
        CHECK(w[0][0] != 0.0f && memcmp(w[0], w[1], count * sizeof(*g)) == 0);
        free(w[0]);
        free(w[1]);
        free(g);
    }
    gp_threads_prepare(1, NULL);
    gp_graph_free(graph);
    gp_netspec_free(spec);
}

TEST(an_optimiser_survives_every_failing_allocation)
{
    gp_graph *graph = graph_new();
    gp_train_options options = options_of("{}");
    gp_optim *optim;

    REQUIRE(graph != NULL);
    CHECK_EVERY_ALLOCATION(gp_optim_new(&optim, graph, &options, NULL), gp_optim_free(optim));
    gp_optim_free(NULL);
    gp_graph_free(graph);
}

TEST(adam_follows_its_paper)
{
    check_adaptive("{\"solver\": \"adam\", \"lr\": 0.01, \"l2-regularization\": 0.03}");
    check_adaptive("{\"solver\": \"adam\", \"lr\": 0.02, \"gradient-decay-factor\": 0.5,"
                   " \"squared-gradient-decay-factor\": 0.9, \"epsilon\": 0.001}");
}

TEST(adamw_subtracts_the_decay_from_the_weight)
{
    check_adaptive("{\"solver\": \"adamw\", \"lr\": 0.01, \"l2-regularization\": 0.3}");
}

TEST(rmsprop_divides_by_the_root_of_the_mean_square)
{
    check_adaptive("{\"solver\": \"rmsprop\", \"lr\": 0.01, \"l2-regularization\": 0.03}");
}

TEST(gradients_above_the_threshold_are_clipped_in_three_ways)
{
    static const char *const methods[] = { "l2norm", "global-l2norm", "absolute-value" };

    for (int i = 0; i < 3; i++) {
        char json[200];

        snprintf(json, sizeof(json),
                 "{\"momentum\": 0, \"lr\": 0.1, \"gradient-threshold\": 0.7, \"gradient-threshold-method\": "
                 "\"%s\"}",
                 methods[i]);
        check_adaptive(json);
    }
}

/* Two ranks' sums around the running mean add up to the batch moments, for any means of the
 * ranks. */
TEST(running_statistics_move_towards_the_moments_of_all_ranks_together)
{
    enum { PIXELS = 4, FIRST = 3, ALL = 8 };
    const gp_shape input = gp_shape3(2, 2, 2);
    float *w, *g;
    gp_graph *graph = NULL;
    gp_error err;

    REQUIRE_OK(net_graph(&graph, &input, "n batchnorm momentum=0.25 | f fc outputs=2 | l crossentropy", &err),
               err);
    w = calloc(graph->blob_count, sizeof(float));
    g = calloc(graph->blob_count, sizeof(float));
    const gp_parameter *mean = &graph->parameters[2], *variance = &graph->parameters[3];

    CHECK_TEXT("n.mean", mean->name);
    CHECK_INT(PIXELS, mean->per_sample);
    CHECK_INT(graph->blob_count - 4, graph->learned_count);
    for (int c = 0; c < 2; c++) {
        double running = 3.0 + c, sum = 0, squares = 0, m, v = 0;

        w[mean->offset + (size_t)c] = (float)running;
        w[variance->offset + (size_t)c] = 2.0f;
        for (int i = 0; i < ALL * PIXELS; i++) {
            double x = 5.0 * c + 0.5 * (i % 7) + (i < FIRST * PIXELS ? 10.0 : 0.0);

            sum += x;
            g[mean->offset + (size_t)c] += (float)(x - running);
            g[variance->offset + (size_t)c] += (float)((x - running) * (x - running));
        }
        m = sum / (ALL * PIXELS);
        for (int i = 0; i < ALL * PIXELS; i++) {
            double x = 5.0 * c + 0.5 * (i % 7) + (i < FIRST * PIXELS ? 10.0 : 0.0);

            squares += (x - m) * (x - m);
        }
        v = squares / (ALL * PIXELS - 1);
        if (c == 1)
            gp_statistics_commit(graph, w, g, ALL, false);
        else
            continue;
        CHECK_NEAR(0.75 * running + 0.25 * m, w[mean->offset + 1], 1e-5);
        CHECK_NEAR(0.75 * 2.0 + 0.25 * v, w[variance->offset + 1], 1e-5);
    }
    for (size_t i = 0; i < graph->blob_count; i++)
        if ((i < mean->offset || i >= mean->offset + 4) && w[i] != 0.0f)
            GP_TEST_FAIL("parameter %zu moved", i);
    free(w);
    free(g);
    gp_graph_free(graph);
}

TEST(optimizer_ignores_running_statistics)
{
    const gp_shape input = gp_shape3(1, 1, 1);
    gp_train_options options =
        options_of("{\"gradient-threshold\": 1.0, \"gradient-threshold-method\": \"global-l2norm\"}");
    gp_graph *graph = NULL;
    gp_optim *optim = NULL;
    float w[16] = { 0 }, g[16] = { 0 };
    gp_error err;

    REQUIRE_OK(net_graph(&graph, &input, "n batchnorm | f fc outputs=2;bias=false | l crossentropy", &err),
               err);
    REQUIRE(graph->blob_count <= 16);
    REQUIRE_OK(gp_optim_new(&optim, graph, &options, &err), err);
    for (uint32_t p = 0; p < graph->parameter_count; p++)
        for (int64_t i = 0; i < graph->parameters[p].count; i++)
            g[graph->parameters[p].offset + (size_t)i] =
                graph->parameters[p].statistic == GP_STATISTIC_NONE ? 0.25f : 1000.0f;
    gp_optim_step(optim, w, g, 1.0, 0.5);
    for (uint32_t p = 0; p < graph->parameter_count; p++)
        CHECK_NEAR(graph->parameters[p].statistic == GP_STATISTIC_NONE ? -0.125 : 0.0,
                   w[graph->parameters[p].offset], 1e-7);
    gp_optim_free(optim);
    gp_graph_free(graph);
}
