/* Searches by their public interface: proposals, history, ends. */
#include "tests/gp_test.h"

#include "common/base/rng.h"
#include "common/search/space.h"

#define MIXED                                                                                                \
    "{\"solver\": [\"sgdm\", \"adam\"], \"lr\": \"log:1e-4:0.3\","                                           \
    " \"momentum\": {\"values\": \"0.5:0.99\", \"when\": {\"solver\": [\"sgdm\"]}},"                         \
    " \"width\": \"int:log:8:512\", \"batch\": [32, 64, 128]}"

static gp_search *search;

static gp_status begin(const char *space, gp_search_options options, gp_error *err)
{
    gp_search_free(search);
    search = NULL;
    return gp_search_new(&search, space, &options, err);
}

TEARDOWN()
{
    gp_search_free(search);
    search = NULL;
}

/* Return an arbitrary objective value of a trial's values. */
static double objective(const char *values)
{
    double sum = 0.0;

    for (; *values != '\0'; values++)
        sum = sum * 0.9 + *values;
    return sum;
}

TEST(a_grid_is_proposed_in_order_and_ends)
{
    static const char *const expected[] = { "{\"a\": \"x\", \"b\": 1}", "{\"a\": \"x\", \"b\": 2}",
                                            "{\"a\": \"y\", \"b\": 1}", "{\"a\": \"y\", \"b\": 2}" };
    uint32_t trial;
    char *values;
    gp_error err;

    REQUIRE_OK(begin("a=x,y b=1:1:2", (gp_search_options){ .method = GP_SEARCH_GRID }, &err), err);
    REQUIRE_OK(gp_search_add(search, "a=y b=1", &trial, &err), err); /* the grid skips this point */
    for (uint32_t i = 0; i < 4; i++) {
        if (i == 2)
            continue;
        REQUIRE_OK(gp_search_ask(search, &trial, &values, &err), err);
        CHECK_INT(i < 2 ? i + 2 : i + 1, trial);
        CHECK_TEXT(expected[i], values);
        gp_free(values);
    }
    CHECK_STATUS(GP_ENOENT, gp_search_ask(search, &trial, &values, &err));
    CHECK_CONTAINS(err.message, "all 4 points of the space were tried");
    CHECK_STATUS(GP_EINVAL, begin("a=x,y lr=0.1:0.2", (gp_search_options){ .method = GP_SEARCH_GRID }, &err));
    CHECK_CONTAINS(err.message, "write lr=LO:STEP:HI");
}

static const gp_search_method methods[] = { GP_SEARCH_BAYES, GP_SEARCH_RANDOM, GP_SEARCH_SOBOL };

enum { METHODS = sizeof(methods) / sizeof(methods[0]) };

TEST(a_finite_space_is_tried_without_repetition_and_ends)
{
    static const char *const spaces[] = {
        "a=x,y,z b=int:1:7 c=1,2",
        "{\"a\": [1, 2, 3], \"b\": {\"values\": \"int:1:9\", \"when\": {\"a\": [2]}}, \"c\": [true, false]}",
        "a=5",
        "a=int:1:300",
    };
    static const uint32_t points[] = { 42, 22, 1, 300 };
    gp_error err;

    for (size_t m = 0; m < METHODS; m++)
        for (size_t s = 0; s < sizeof(spaces) / sizeof(spaces[0]); s++) {
            char *seen[300];
            uint32_t trial;

            if (methods[m] == GP_SEARCH_BAYES && points[s] > 22) /* takes seconds */
                continue;

            REQUIRE_OK(begin(spaces[s], (gp_search_options){ .method = methods[m], .seed = s }, &err), err);
            for (uint32_t i = 0; i < points[s]; i++) {
                REQUIRE_OK(gp_search_ask(search, &trial, &seen[i], &err), err);
                CHECK_INT(i + 1, trial);
                for (uint32_t k = 0; k < i; k++)
                    CHECK(strcmp(seen[k], seen[i]) != 0);
                if (i % 3 != 0)
                    REQUIRE_OK(gp_search_tell(search, trial, i % 7 == 1 ? GP_SEARCH_FAILED : GP_SEARCH_DONE,
                                              objective(seen[i]), &err),
                               err);
            }
            CHECK_STATUS(GP_ENOENT, gp_search_ask(search, &trial, &seen[0], &err));
            for (uint32_t i = 0; i < points[s]; i++)
                gp_free(seen[i]);
        }
}

TEST(proposals_are_points_of_the_space)
{
    uint32_t trial;
    char *values;
    double point[GP_SEARCH_PARAMETERS_MAX];
    gp_space *space;
    gp_error err;

    REQUIRE_OK(gp_space_parse(&space, MIXED, NULL, NULL, &err), err);
    for (size_t m = 0; m < METHODS; m++) {
        REQUIRE_OK(begin(MIXED, (gp_search_options){ .method = methods[m], .seed = 7 }, &err), err);
        for (int i = 0; i < (methods[m] == GP_SEARCH_BAYES ? 14 : 60); i++) {
            REQUIRE_OK(gp_search_ask(search, &trial, &values, &err), err);
            REQUIRE_OK(gp_space_point_parse(space, values, point, &err), err);
            REQUIRE_OK(gp_search_tell(search, trial, GP_SEARCH_DONE, objective(values), &err), err);
            gp_free(values);
        }
    }
    gp_space_free(space);
}

/* Proposals of new searches, to which the history was repeated, equal those of the first search. */
TEST(a_repeated_history_gives_the_same_proposals)
{
    enum { TRIALS = 16 };
    gp_error err;

    for (size_t m = 0; m < METHODS; m++) {
        const gp_search_options options = {
            .method = methods[m], .seed = 3, .minimize = true, .trials_max = 16
        };
        char *values[TRIALS], *again;
        uint32_t trial;

        REQUIRE_OK(begin(MIXED, options, &err), err);
        for (uint32_t i = 0; i < TRIALS; i++) { /* four trials are pending */
            REQUIRE_OK(gp_search_ask(search, &trial, &values[i], &err), err);
            if (i >= 3)
                REQUIRE_OK(gp_search_tell(search, i - 2, GP_SEARCH_DONE, objective(values[i - 3]), &err),
                           err);
        }
        for (uint32_t end = 0; end < TRIALS; end += 5) {
            REQUIRE_OK(begin(MIXED, options, &err), err);
            for (uint32_t i = 0; i < end; i++) {
                REQUIRE_OK(gp_search_add(search, values[i], &trial, &err), err);
                CHECK_INT(i + 1, trial);
                if (i >= 3)
                    REQUIRE_OK(gp_search_tell(search, i - 2, GP_SEARCH_DONE, objective(values[i - 3]), &err),
                               err);
            }
            REQUIRE_OK(gp_search_ask(search, &trial, &again, &err), err);
            CHECK_TEXT(values[end], again);
            gp_free(again);
        }
        for (uint32_t i = 0; i < TRIALS; i++)
            gp_free(values[i]);
    }
}

enum { STAGED_TRIALS = 26 };

/* Run or repeat a history with early stopping, failures and two trials at a time, up to `end`
 * trials. Values of new trials are stored. */
static gp_status run_staged(uint32_t end, char **values, bool repeat, gp_error *err)
{
    const gp_search_options options = {
        .seed = 11, .asha_eta = 2, .epochs_max = 4, .trials_max = STAGED_TRIALS
    };
    gp_status status = begin(MIXED, options, err);

    for (uint32_t i = 0; i < end + 1 && status == GP_OK; i++) {
        uint32_t trial;
        bool stop = false;

        if (i < end)
            status = repeat ? gp_search_add(search, values[i], &trial, err)
                            : gp_search_ask(search, &trial, &values[i], err);
        if (i == 0 || status != GP_OK)
            continue;
        for (uint32_t epoch = 1; epoch <= 3 && !stop && status == GP_OK; epoch++)
            status = gp_search_report(search, i, epoch, objective(values[i - 1]) * epoch, &stop, err);
        if (status == GP_OK)
            status = gp_search_tell(search, i,
                                    i % 6 == 5 ? GP_SEARCH_FAILED
                                    : stop     ? GP_SEARCH_STOPPED
                                               : GP_SEARCH_DONE,
                                    objective(values[i - 1]), err);
    }
    return status;
}

TEST(a_repeated_history_with_early_stopping_gives_the_same_proposals)
{
    char *values[STAGED_TRIALS] = { NULL }, *again[STAGED_TRIALS] = { NULL };
    uint32_t trial;
    gp_error err;

    REQUIRE_OK(run_staged(STAGED_TRIALS - 2, values, false, &err), err);
    for (uint32_t i = 0; i < STAGED_TRIALS - 2; i++)
        again[i] = values[i];
    REQUIRE_OK(gp_search_ask(search, &trial, &values[trial = STAGED_TRIALS - 2], &err), err);
    REQUIRE_OK(run_staged(STAGED_TRIALS - 2, again, true, &err), err);
    REQUIRE_OK(gp_search_ask(search, &trial, &again[STAGED_TRIALS - 2], &err), err);
    CHECK_TEXT(values[STAGED_TRIALS - 2], again[STAGED_TRIALS - 2]);
    gp_free(again[STAGED_TRIALS - 2]);
    for (uint32_t i = 0; i < STAGED_TRIALS; i++)
        gp_free(values[i]);
}

/* Return the lowest value of Branin's function after a number of trials. Every seventh trial fails,
 * and `pending` trials run at the same time. maximize: the search sees the negative values. */
static double minimize_branin(gp_search_method method, uint32_t trials, uint32_t pending, bool maximize)
{
    double best = INFINITY, waiting[8] = { 0 };
    gp_error err;

    CHECK_STATUS(GP_OK, begin("x=real:-5:10 y=real:0:15",
                              (gp_search_options){ .method = method, .minimize = !maximize }, &err));
    for (uint32_t asked = 0, told = 0; told < trials; told++) {
        for (; asked < trials && asked - told < pending; asked++) {
            double x = 0, y = 0;
            char *values = NULL;
            uint32_t trial;

            CHECK_STATUS(GP_OK, gp_search_ask(search, &trial, &values, &err));
            CHECK_INT(2, sscanf(values, "{\"x\": %lf, \"y\": %lf}", &x, &y));
            gp_free(values);
            const double a = y - 5.1 / (4 * M_PI * M_PI) * x * x + 5 / M_PI * x - 6;

            waiting[asked % pending] = a * a + 10 * (1 - 1 / (8 * M_PI)) * cos(x) + 10;
        }
        const double value = waiting[told % pending];

        CHECK_STATUS(GP_OK,
                     gp_search_tell(search, told + 1, told % 7 == 3 ? GP_SEARCH_FAILED : GP_SEARCH_DONE,
                                    maximize ? -value : value, &err));
        if (told % 7 != 3 && value < best)
            best = value;
    }
    return best;
}

TEST(a_model_finds_the_minimum)
{
    const double minimum = 0.39788735772973816;

    CHECK(minimize_branin(GP_SEARCH_BAYES, 36, 1, false) < minimum + 0.02);
    CHECK(minimize_branin(GP_SEARCH_BAYES, 40, 4, true) < minimum + 0.3);
    CHECK(minimize_branin(GP_SEARCH_RANDOM, 36, 1, false) > minimum + 0.3);
}

/* All 300 points of this space are rated for a proposal. Many of them have the value of a training
 * that diverged, beside the best point. Two of the points are accepted. */
TEST(a_model_finds_the_maximum_of_a_small_space)
{
    for (uint64_t seed = 0; seed < 3; seed++) {
        double best = -INFINITY;
        gp_error err;

        REQUIRE_OK(begin("a=0,1,2,3,4,5,6,7,8,9 b=0,1,2,3,4,5,6,7,8,9 c=u,v,w",
                         (gp_search_options){ .seed = seed }, &err),
                   err);
        for (uint32_t i = 1; i <= 40; i++) {
            int a = 0, b = 0;
            char *values, c = 0;
            uint32_t trial;

            REQUIRE_OK(gp_search_ask(search, &trial, &values, &err), err);
            CHECK_INT(3, sscanf(values, "{\"a\": %d, \"b\": %d, \"c\": \"%c", &a, &b, &c));
            gp_free(values);
            const double value =
                a + b > 10 ? -5.0 : -0.02 * (a - 6) * (a - 6) - 0.03 * (b - 4) * (b - 4) - 0.1 * (c != 'v');

            REQUIRE_OK(gp_search_tell(search, i, GP_SEARCH_DONE, value, &err), err);
            best = fmax(best, value);
        }
        CHECK(best > -0.025);
    }
}

/* A large space has a confidence bound for every fourth trial, which leaves the known minimum at
 * 200. The last eight trials and small spaces have the expected improvement for all trials. */
TEST(a_confidence_bound_proposes_points_of_large_spaces_before_the_last_trials)
{
    enum { HISTORY = 7 };
    static const int history[HISTORY] = { 0, 100, 160, 240, 300, 400, 500 };
    static const struct {
        const char *space;
        uint32_t trials_max;
        bool explores;
    } cases[] = { { "x=int:0:999", 0, false },
                  { "x=int:0:1000", 0, true },
                  { "x=int:0:1000", HISTORY + 1 + 8, true },
                  { "x=int:0:1000", HISTORY + 1 + 7, false },
                  { "x=int:0:1000", HISTORY + 1, false } };
    gp_error err;

    for (size_t k = 0; k < sizeof(cases) / sizeof(cases[0]); k++) {
        uint32_t trial;
        char *values;
        int x = -1;

        REQUIRE_OK(begin(cases[k].space,
                         (gp_search_options){ .minimize = true, .trials_max = cases[k].trials_max }, &err),
                   err);
        for (uint32_t i = 1; i <= HISTORY; i++) {
            const double distance = (history[i - 1] - 200) / 100.0;
            char text[16];

            sprintf(text, "x=%d", history[i - 1]);
            REQUIRE_OK(gp_search_add(search, text, &trial, &err), err);
            REQUIRE_OK(gp_search_tell(search, i, GP_SEARCH_DONE, distance * distance, &err), err);
        }
        REQUIRE_OK(gp_search_ask(search, &trial, &values, &err), err);
        CHECK_INT(HISTORY + 1, trial);
        CHECK_INT(1, sscanf(values, "{\"x\": %d", &x));
        gp_free(values);
        CHECK(cases[k].explores ? x > 700 : x > 150 && x < 250);
    }
}

TEST(values_that_are_all_equal_or_all_failed_are_no_obstacle)
{
    gp_error err;

    for (int failed = 0; failed < 2; failed++) {
        REQUIRE_OK(begin("x=real:-5:10 b=1,2", (gp_search_options){ .trials_max = 14 }, &err), err);
        for (uint32_t i = 1; i <= 14; i++) {
            uint32_t trial;
            char *values;

            REQUIRE_OK(gp_search_ask(search, &trial, &values, &err), err);
            gp_free(values);
            REQUIRE_OK(gp_search_tell(search, i, failed ? GP_SEARCH_FAILED : GP_SEARCH_DONE, 1e300, &err),
                       err);
        }
    }
}

TEST(importance_is_the_part_of_the_variance)
{
    double x, y, z;
    char *importance;
    gp_error err;

    REQUIRE_OK(
        begin("x=0.0:1.0 y=log:0.01:1.0 z=int:0:9", (gp_search_options){ .method = GP_SEARCH_SOBOL }, &err),
        err);
    CHECK_STATUS(GP_ENOENT, gp_search_importance(search, &importance, &err));
    for (uint32_t i = 0; i < 48; i++) {
        uint32_t trial;
        char *values;

        REQUIRE_OK(gp_search_ask(search, &trial, &values, &err), err);
        CHECK_INT(3, sscanf(values, "{\"x\": %lf, \"y\": %lf, \"z\": %lf}", &x, &y, &z));
        gp_free(values);
        /* Both terms are uniform on an interval of width 1 and 2: the variances are 1 to 4. */
        REQUIRE_OK(gp_search_tell(search, trial, GP_SEARCH_DONE, x + log10(y), &err), err);
    }
    REQUIRE_OK(gp_search_importance(search, &importance, &err), err);
    CHECK_INT(3, sscanf(importance, "{\"x\": %lf, \"y\": %lf, \"z\": %lf}", &x, &y, &z));
    CHECK_NEAR(0.2, x, 0.03);
    CHECK_NEAR(0.8, y, 0.03);
    CHECK_NEAR(0.0, z, 0.02);
    gp_free(importance);
}

TEST(seeds_differ)
{
    char *one, *two;
    uint32_t trial;
    gp_error err;

    REQUIRE_OK(begin(MIXED, (gp_search_options){ .seed = 1 }, &err), err);
    REQUIRE_OK(gp_search_ask(search, &trial, &one, &err), err);
    REQUIRE_OK(begin(MIXED, (gp_search_options){ .seed = 2 }, &err), err);
    REQUIRE_OK(gp_search_ask(search, &trial, &two, &err), err);
    CHECK(strcmp(one, two) != 0);
    gp_free(one);
    gp_free(two);
}

TEST(the_best_trial_has_the_best_value)
{
    uint32_t trial;
    double value;
    char *values;
    gp_error err;

    for (int minimize = 0; minimize < 2; minimize++) {
        REQUIRE_OK(begin("x=0.0:9.0", (gp_search_options){ .minimize = minimize }, &err), err);
        CHECK_STATUS(GP_ENOENT, gp_search_best(search, &trial, NULL, NULL, &err));
        for (uint32_t i = 1; i <= 4; i++) {
            char text[16];

            sprintf(text, "x=%u", i);
            REQUIRE_OK(gp_search_add(search, text, &trial, &err), err);
            REQUIRE_OK(gp_search_tell(search, i, i == 4 ? GP_SEARCH_STOPPED : GP_SEARCH_DONE,
                                      i == 4   ? (minimize ? -9.0 : 9.0)
                                      : i == 2 ? 0.5
                                               : i,
                                      &err),
                       err);
        }
        REQUIRE_OK(gp_search_best(search, &trial, &value, &values, &err), err);
        CHECK_INT(minimize ? 2 : 3, trial);
        CHECK_NEAR(minimize ? 0.5 : 3.0, value, 0);
        CHECK_TEXT(minimize ? "{\"x\": 2}" : "{\"x\": 3}", values);
        gp_free(values);
    }
}

TEST(invalid_calls_are_refused)
{
    uint32_t trial;
    char *values;
    gp_error err;

    CHECK_STATUS(GP_EINVAL, begin("x=0.0:1.0", (gp_search_options){ .method = (gp_search_method)99 }, &err));
    CHECK_CONTAINS(err.message, "unknown search method 99");
    CHECK_STATUS(GP_ELIMIT, begin("x=0.0:1.0", (gp_search_options){ .trials_max = 100001 }, &err));
    CHECK_CONTAINS(err.message, "100001 trials, at most 100000");
    REQUIRE_OK(begin("x=0.0:1.0", (gp_search_options){ .trials_max = 2 }, &err), err);
    CHECK_STATUS(GP_EINVAL, gp_search_tell(search, 1, GP_SEARCH_DONE, 1.0, &err));
    CHECK_CONTAINS(err.message, "no trial 1; 0 were started");
    CHECK_STATUS(GP_EINVAL, gp_search_tell(search, 0, GP_SEARCH_DONE, 1.0, &err));
    REQUIRE_OK(gp_search_ask(search, &trial, &values, &err), err);
    gp_free(values);
    CHECK_STATUS(GP_EINVAL, gp_search_tell(search, 1, GP_SEARCH_PENDING, 1.0, &err));
    CHECK_CONTAINS(err.message, "invalid final state 0");
    CHECK_STATUS(GP_EINVAL, gp_search_tell(search, 1, GP_SEARCH_DONE, NAN, &err));
    CHECK_CONTAINS(err.message, "report it as failed");
    REQUIRE_OK(gp_search_tell(search, 1, GP_SEARCH_FAILED, NAN, &err), err);
    CHECK_STATUS(GP_ESTATE, gp_search_tell(search, 1, GP_SEARCH_DONE, 1.0, &err));
    CHECK_CONTAINS(err.message, "trial 1 has ended before");
    REQUIRE_OK(gp_search_add(search, "x=0.5", NULL, &err), err);
    CHECK_STATUS(GP_ELIMIT, gp_search_add(search, "x=0.6", NULL, &err));
    CHECK_STATUS(GP_ENOENT, gp_search_ask(search, &trial, &values, &err));
    CHECK_CONTAINS(err.message, "no trial is left: all 2 were started");
}

/* Ask, tell and add once; leave the search as a caller finds it after an error. */
static gp_status use(size_t method, gp_error *err)
{
    gp_search_options options = { .method = methods[method], .trials_max = 4 };
    uint32_t trial;
    char *values = NULL;
    gp_status status = begin(MIXED, options, err);

    for (int i = 0; i < 3 && status == GP_OK; i++) {
        status = gp_search_ask(search, &trial, &values, err);
        if (status == GP_OK)
            gp_free(values);
        if (status == GP_OK)
            status = gp_search_tell(search, trial, GP_SEARCH_DONE, i, err);
    }
    if (status == GP_OK)
        status = gp_search_add(search, "solver=adam lr=0.1 width=9 batch=64", NULL, err);
    gp_search_free(search);
    search = NULL;
    return status;
}

TEST(a_search_survives_each_failing_allocation)
{
    gp_error err;

    for (size_t m = 0; m < METHODS; m++)
        CHECK_EVERY_ALLOCATION(use(m, &err), (void)0);
}
