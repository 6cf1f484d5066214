/* Early stopping: rungs, decisions, and the decisions of Ray's AsyncHyperBandScheduler on 1,000
 * random tables (asha_decisions.txt, written by asha_ray.py). */
#include "tests/gp_test.h"

#include <gradpool/search.h>

#include "tests/common/search/splitmix.h"

enum { TRIALS_MAX = 40, RUNNING_MAX = 8 };

static gp_search *search;

static gp_status begin(uint32_t eta, uint32_t epochs_min, uint32_t epochs_max, bool minimize, gp_error *err)
{
    const gp_search_options options = {
        .asha_eta = eta, .epochs_min = epochs_min, .epochs_max = epochs_max, .minimize = minimize
    };

    gp_search_free(search);
    search = NULL;
    return gp_search_new(&search, "x=0.0:1.0", &options, err);
}

TEARDOWN()
{
    gp_search_free(search);
    search = NULL;
}

static uint32_t digit(char c)
{
    return (uint32_t)(c <= '9' ? c - '0' : c - 'a' + 10);
}

/* Run the trials of a table; stopped[i] is the epoch after which trial i was stopped, or 0. */
static void run_table(const uint32_t epochs_max, uint32_t trials, uint64_t state, bool rounded,
                      uint32_t *stopped)
{
    double quality[TRIALS_MAX];
    uint32_t epoch[TRIALS_MAX], running[RUNNING_MAX], running_count = 0, count = 0;
    const uint32_t running_max = 1 + (uint32_t)random_below(&state, RUNNING_MAX);
    gp_error err;

    while (count < trials || running_count > 0) {
        bool stop;

        if (count < trials && running_count < running_max) {
            REQUIRE_OK(gp_search_add(search, "x=0.5", NULL, &err), err);
            running[running_count++] = count;
            quality[count] = random_uniform(&state);
            stopped[count] = epoch[count] = 0;
            count++;
            continue;
        }
        const uint32_t place = (uint32_t)random_below(&state, running_count), trial = running[place];
        const uint32_t now = ++epoch[trial];
        double value = quality[trial] * (now / (now + 2.0)) + 0.2 * random_uniform(&state);

        if (rounded)
            value = floor(value * 64.0) / 64.0;
        REQUIRE_OK(gp_search_report(search, trial + 1, epoch[trial], value, &stop, &err), err);
        if (epoch[trial] < epochs_max && !stop)
            continue;
        if (epoch[trial] < epochs_max)
            stopped[trial] = epoch[trial];
        memmove(&running[place], &running[place + 1], (--running_count - place) * sizeof(*running));
    }
}

TEST(decisions_equal_those_of_ray)
{
    char path[4096], line[256], text[128];
    unsigned eta, epochs_min, epochs_max, trials, seed, tables = 0, stops = 0;
    gp_error err;

    snprintf(path, sizeof(path), "%s/tests/common/search/asha_decisions.txt", getenv("GP_SOURCE_DIR"));
    FILE *file = fopen(path, "r");

    REQUIRE(file != NULL);
    while (fgets(line, sizeof(line), file) != NULL) {
        uint32_t stopped[TRIALS_MAX];

        CHECK_INT(6,
                  sscanf(line, "%u %u %u %u %u %127s", &eta, &epochs_min, &epochs_max, &trials, &seed, text));
        uint64_t state = seed;
        const bool minimize = random_below(&state, 2) == 1, rounded = random_below(&state, 2) == 1;

        REQUIRE_OK(begin(eta, epochs_min, epochs_max, minimize, &err), err);
        run_table(epochs_max, trials, state, rounded, stopped);
        for (uint32_t i = 0; i < trials; i++) {
            const uint32_t expected = digit(text[2 * i]) * 36 + digit(text[2 * i + 1]);

            if (stopped[i] != expected)
                GP_TEST_FAIL("table %u, trial %u: stopped after epoch %u, expected %u", seed, i, stopped[i],
                             expected);
            stops += expected != 0;
        }
        tables++;
    }
    fclose(file);
    CHECK_INT(1000, tables);
    CHECK(stops > 10000);
}

/* Report one epoch of a new trial; return whether it stops. */
static bool stops(uint32_t epoch, double value)
{
    uint32_t trial = 0;
    bool stop = false;

    CHECK_STATUS(GP_OK, gp_search_add(search, "x=0.5", &trial, NULL));
    CHECK_STATUS(GP_OK, gp_search_report(search, trial, epoch, value, &stop, NULL));
    return stop;
}

TEST(the_best_third_continues)
{
    gp_error err;

    REQUIRE_OK(begin(3, 1, 9, false, &err), err);
    CHECK(!stops(1, 0.1)); /* the first one */
    CHECK(stops(1, 0.05));
    CHECK(!stops(1, 0.1)); /* not below the quantile 2/3 of 0.05 and 0.1 */
    CHECK(!stops(1, 0.9));
    CHECK(stops(1, 0.0999));
    REQUIRE_OK(begin(3, 1, 9, true, &err), err);
    CHECK(!stops(1, 0.1));
    CHECK(stops(1, 0.2));
    CHECK(!stops(1, 0.05));
}

TEST(epochs_between_rungs_change_nothing)
{
    bool stop = true;
    gp_error err;

    REQUIRE_OK(begin(3, 2, 18, false, &err), err); /* rungs after 2 and 6 */
    CHECK(!stops(1, 9.0));
    CHECK(!stops(1, 1.0));
    CHECK(!stops(2, 5.0));
    CHECK(stops(5, 4.0));  /* its first report counts at rung 2 */
    CHECK(!stops(7, 3.0)); /* first at rung 6; does not count at rung 2 */
    REQUIRE_OK(gp_search_report(search, 5, 2, 0.0, &stop, &err), err);
    CHECK(!stop);
    REQUIRE_OK(gp_search_report(search, 4, 6, 100.0, &stop, &err), err);
    CHECK(stop); /* the decision is final */
    REQUIRE_OK(gp_search_report(search, 3, 18, 0.0, &stop, &err), err);
    CHECK(stop); /* below the value of trial 5 at rung 6 */
}

TEST(a_trial_that_diverges_stops)
{
    gp_error err;

    REQUIRE_OK(begin(3, 1, 9, false, &err), err);
    CHECK(stops(1, NAN));
    CHECK(stops(1, INFINITY));
    CHECK(!stops(1, 0.0)); /* still the first one */
    REQUIRE_OK(begin(0, 0, 0, false, &err), err);
    CHECK(!stops(1, NAN));
    CHECK(!stops(1, 3.0));
    CHECK(!stops(1, 2.0));
}

TEST(invalid_rungs_and_reports_are_refused)
{
    bool stop;
    gp_error err;

    CHECK_STATUS(GP_EINVAL, begin(1, 1, 9, false, &err));
    CHECK_CONTAINS(err.message, "one of 1 trials; must be 2 to 16");
    CHECK_STATUS(GP_EINVAL, begin(17, 1, 9, false, &err));
    CHECK_STATUS(GP_EINVAL, begin(3, 9, 9, false, &err));
    CHECK_CONTAINS(err.message, "after epoch 9 of 9");
    CHECK_STATUS(GP_EINVAL, begin(3, 0, 0, false, &err));
    REQUIRE_OK(begin(2, 0, UINT32_MAX, false, &err), err);
    CHECK_STATUS(GP_EINVAL, gp_search_report(search, 1, 1, 0.0, &stop, &err));
    CHECK_CONTAINS(err.message, "no trial 1");
    REQUIRE_OK(gp_search_add(search, "x=0.5", NULL, &err), err);
    CHECK_STATUS(GP_EINVAL, gp_search_report(search, 1, 0, 0.0, &stop, &err));
    CHECK_CONTAINS(err.message, "epoch 0");
    REQUIRE_OK(gp_search_report(search, 1, UINT32_MAX, 0.0, &stop, &err), err);
    REQUIRE_OK(gp_search_tell(search, 1, GP_SEARCH_STOPPED, NAN, &err), err);
    CHECK_STATUS(GP_ESTATE, gp_search_report(search, 1, 2, 0.0, &stop, &err));
}

static gp_status use(gp_error *err)
{
    bool stop;
    gp_status status = begin(2, 1, 9, false, err);

    for (uint32_t i = 1; i < 20 && status == GP_OK; i++) {
        status = gp_search_add(search, "x=0.5", NULL, err);
        if (status == GP_OK)
            status = gp_search_report(search, i, 1, i, &stop, err);
    }
    gp_search_free(search);
    search = NULL;
    return status;
}

TEST(rungs_survive_each_failing_allocation)
{
    gp_error err;

    CHECK_EVERY_ALLOCATION(use(&err), (void)0);
}
