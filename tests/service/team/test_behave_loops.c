/* test_behave_loops.c: loops that continue after failures: all results and all errors by index,
 * retries, time limits, worker failures, priorities. */
#include <stdlib.h>
#include <sys/resource.h>

#include "tests/service/team/behave.h"

enum { COUNT = 100, EVENTS_MAX = 20000 };

/* What the callbacks of a loop received, in order. */
typedef struct event {
    int64_t iteration;
    gp_status status; /* GP_OK: a result */
    int64_t pid;      /* process that gave the result */
} event;

static event events[EVENTS_MAX];
static int event_count, stop_after; /* stop_after 0: never */
static gp_error errors[COUNT];
static int64_t output[COUNT], sum;
static behave_trouble trouble;
static char last_error[GP_ERROR_MESSAGE_MAX];

static bool on_result(void *context, int64_t iteration, const void *data, size_t bytes)
{
    int64_t place[2] = { 0 };

    (void)context;
    if (bytes == sizeof(place))
        memcpy(place, data, sizeof(place));
    CHECK_INT(iteration, place[0]);
    if (event_count < EVENTS_MAX)
        events[event_count++] = (event){ iteration, GP_OK, place[1] };
    return stop_after == 0 || event_count < stop_after;
}

static bool on_error(void *context, int64_t iteration, const gp_error *error)
{
    (void)context;
    snprintf(last_error, sizeof(last_error), "%s", error->message);
    if (event_count < EVENTS_MAX)
        events[event_count++] = (event){ iteration, error->code, 0 };
    return stop_after == 0 || event_count < stop_after;
}

/* Return a loop over 1 to COUNT that keeps going. */
static gp_parfor_request loop_of(uint32_t chunk)
{
    event_count = stop_after = 0;
    sum = -1;
    memset(output, 0, sizeof(output));
    memset(errors, 1, sizeof(errors));
    snprintf(trouble.path, sizeof(trouble.path), "%s/starts", pools_root);
    unlink(trouble.path);
    return (gp_parfor_request){ .function = find("troubled"),
                                .argument = &trouble,
                                .bytes = sizeof(trouble),
                                .first = 1,
                                .last = COUNT,
                                .chunk = chunk,
                                .output = output,
                                .output_bytes = sizeof(output[0]),
                                .reduction = GP_REDUCTION_SUM_I64,
                                .reduced = &sum,
                                .reduced_bytes = sizeof(sum),
                                .on_result = on_result,
                                .on_error = on_error,
                                .errors = errors };
}

/* Count the starts of an iteration, and set *attempt to the attempt number of the last one. */
static int starts_of(int64_t iteration, int64_t *attempt)
{
    FILE *file = fopen(trouble.path, "re");
    behave_start start;
    int count = 0;

    while (file != NULL && fread(&start, sizeof(start), 1, file) == 1)
        if (start.iteration == iteration) {
            count++;
            *attempt = start.attempt;
        }
    if (file != NULL)
        fclose(file);
    return count;
}

/* Check that each iteration has one event, in order, and that the arrays agree with it. Return the
 * sum of the iterations with a result. */
static int64_t check_arrays(void)
{
    int64_t good = 0;

    CHECK_INT(COUNT, event_count);
    for (int k = 0; k < event_count && k < COUNT; k++) {
        CHECK_INT(k + 1, events[k].iteration);
        CHECK_INT(events[k].status, errors[k].code);
        CHECK_INT(events[k].status == GP_OK ? (k + 1) * (k + 1) : 0, output[k]);
        good += events[k].status == GP_OK ? k + 1 : 0;
    }
    return good;
}

TEST(loop_returns_all_results_and_all_errors_by_index)
{
    static const uint32_t chunks[] = { 0, 1, 7, 100 };

    BEGIN(2);
    for (size_t i = 0; i < sizeof(chunks) / sizeof(chunks[0]); i++) {
        trouble = (behave_trouble){ .fails = 10 };
        gp_parfor_request loop = loop_of(chunks[i]);

        REQUIRE_OK(gp_parfor(team, &loop, &err), err);
        CHECK_INT(check_arrays(), sum);
        CHECK_INT(5050 - 550, sum);
        CHECK_INT(GP_ECORRUPT, errors[9].code);
        CHECK_CONTAINS(errors[9].message, "worker ");
        CHECK_CONTAINS(errors[9].message, "10 is bad");
    }
    CHECK_INT(0, team_info().worker_deaths);
}

TEST(failing_iteration_is_retried_with_its_attempt_number)
{
    int64_t attempt = 0;

    BEGIN(2);
    trouble = (behave_trouble){ .fails = 25, .until = 3 };
    gp_parfor_request loop = loop_of(10);

    loop.retries = 2;
    REQUIRE_OK(gp_parfor(team, &loop, &err), err);
    CHECK_INT(5050, check_arrays());
    CHECK_INT(5050, sum);
    CHECK_INT(3, starts_of(50, &attempt));
    CHECK_INT(3, attempt);
    CHECK_INT(1, starts_of(51, &attempt));
    CHECK_INT(1, attempt);

    /* too few retries, in a loop that ends at the first failure */
    trouble.fails = COUNT;
    loop = loop_of(10);
    loop.retries = 1;
    loop.on_error = NULL;
    loop.errors = NULL;
    CHECK_STATUS(GP_ECORRUPT, gp_parfor(team, &loop, &err));
    CHECK_CONTAINS(err.message, "iteration 100: worker ");
    CHECK_CONTAINS(err.message, "100 is bad");
    CHECK_INT(2, starts_of(COUNT, &attempt));
}

TEST(iteration_that_kills_its_workers_is_the_only_one_without_a_result)
{
    int64_t attempt = 0;

    BEGIN(2);
    trouble = (behave_trouble){ .dies = 57 };
    gp_parfor_request loop = loop_of(10);

    REQUIRE_OK(gp_parfor(team, &loop, &err), err);
    CHECK_INT(5050 - 57, check_arrays());
    CHECK_INT(5050 - 57, sum);
    CHECK_STATUS(GP_EPEER, errors[56].code);
    CHECK_CONTAINS(errors[56].message, "signal 9");
    CHECK_INT(3, starts_of(57, &attempt));
    CHECK_INT(3, attempt);
    CHECK_INT(3, team_info().worker_deaths);
    for (int64_t i = 51; i <= 56; i++) /* their results were lost with the first worker */
        CHECK_INT(2, starts_of(i, &attempt));
    for (int64_t i = 58; i <= 60; i++) /* these had not started */
        CHECK_INT(1, starts_of(i, &attempt));
}

TEST(iteration_with_one_attempt_never_starts_twice)
{
    int64_t attempt = 0;

    BEGIN(2);
    trouble = (behave_trouble){ .dies = 57 };
    gp_parfor_request loop = loop_of(10);

    loop.attempts = 1;
    REQUIRE_OK(gp_parfor(team, &loop, &err), err);
    CHECK_INT(check_arrays(), sum);
    for (int k = 0; k < COUNT; k++) {
        CHECK_INT(1, starts_of(k + 1, &attempt));
        CHECK_STATUS(k + 1 >= 51 && k + 1 <= 57 ? GP_EPEER : GP_OK, errors[k].code);
    }
}

TEST(time_limit_ends_one_iteration_with_its_own_status)
{
    int64_t attempt = 0;

    BEGIN(2);
    trouble = (behave_trouble){ .spins = 33, .deaf = 66 };
    gp_parfor_request loop = loop_of(10);

    loop.timeout_ms = 100;
    loop.retries = 5;
    REQUIRE_OK(gp_parfor(team, &loop, &err), err);
    CHECK_INT(5050 - 99, check_arrays());
    CHECK_INT(5050 - 99, sum);
    for (int k = 32; k < COUNT; k += 33)
        CHECK_STATUS(k == 98 ? GP_OK : GP_ETIMELIMIT, errors[k].code);
    CHECK_CONTAINS(errors[32].message, "exceeded its time limit of 100 ms");
    CHECK_CONTAINS(errors[65].message, "the worker was replaced");
    CHECK_INT(1, starts_of(33, &attempt));
    CHECK_INT(1, starts_of(66, &attempt));
    CHECK_INT(1, team_info().worker_deaths);
}

static int64_t next_item;

/* Give 1 to COUNT. */
static bool give_next(void *context, void *item)
{
    (void)context;
    (void)item;
    return next_item++ < COUNT;
}

TEST(loop_over_a_source_keeps_going_and_can_be_ended_by_on_error)
{
    BEGIN(2);
    trouble = (behave_trouble){ .fails = 10, .dies = 57 };
    gp_parfor_request loop = loop_of(0);

    CHECK_STATUS(GP_EINVAL, gp_parfor(team,
                                      &(gp_parfor_request){
                                          .function = loop.function, .next = give_next, .errors = errors },
                                      &err));
    CHECK_CONTAINS(err.message, "errors go to `on_error`");
    next_item = 0;
    loop.first = 1;
    loop.output = NULL;
    loop.output_bytes = 0;
    loop.errors = NULL;
    loop.next = give_next;
    loop.unordered = true;
    REQUIRE_OK(gp_parfor(team, &loop, &err), err);
    CHECK_INT(COUNT, event_count);
    CHECK_INT(5050 - 550 - 57, sum);
    loop = loop_of(1);
    stop_after = 10; /* the tenth event is the first error */
    REQUIRE_OK(gp_parfor(team, &loop, &err), err);
    CHECK_INT(10, event_count);
    CHECK_STATUS(GP_ECORRUPT, events[9].status);
    CHECK_STATUS(GP_ECANCELED, errors[COUNT - 1].code);
}

static int future_ends, ends_before_result;

static void on_future(void *context, gp_future *future)
{
    (void)context;
    (void)future;
    future_ends++;
}

static bool on_first_result(void *context, int64_t iteration, const void *data, size_t bytes)
{
    (void)context;
    (void)iteration;
    (void)data;
    (void)bytes;
    if (ends_before_result < 0)
        ends_before_result = future_ends;
    return true;
}

static void on_progress(void *context, uint64_t done, uint64_t total)
{
    (void)context;
    (void)done;
    (void)total;
    let_go();
}

TEST(calls_of_higher_priority_precede_the_iterations_of_a_loop)
{
    gp_future *calls[5];

    for (int32_t priority = -1; priority <= 1; priority += 2) {
        BEGIN(1);
        future_ends = 0;
        ends_before_result = -1;
        gp_future *held = call_held();

        REQUIRE(wait_running(held));
        for (int i = 0; i < 5; i++)
            calls[i] = call_with((gp_parfeval_request){ .done = on_future }, "nothing", NULL, 0);
        REQUIRE_OK(gp_parfor(team,
                             &(gp_parfor_request){ .function = find("give_iteration"),
                                                   .first = 1,
                                                   .last = 20,
                                                   .priority = priority,
                                                   .on_result = on_first_result,
                                                   .progress = on_progress },
                             &err),
                   err);
        CHECK_INT(priority < 0 ? 5 : 0, ends_before_result);
        REQUIRE_OK(gp_futures_wait(calls, 5, GP_WAIT_ALL, -1, &err), err);
        team_end();
    }
}

TEST(invalid_limits_are_refused)
{
    BEGIN(1);
    gp_parfor_request loop = { .function = find("give_iteration"), .first = 1, .last = 2, .timeout_ms = -1 };

    CHECK_STATUS(GP_EINVAL, gp_parfor(team, &loop, &err));
    CHECK_CONTAINS(err.message, "negative: -1 ms");
    loop.timeout_ms = 0;
    loop.priority = 1001;
    CHECK_STATUS(GP_EINVAL, gp_parfor(team, &loop, &err));
    CHECK_CONTAINS(err.message, "the priority is 1001");
}

/* ---- forced cancel ---- */

/* End the loop once iteration 2 has started. */
static bool end_beside_another(void *context, int64_t iteration, const void *data, size_t bytes)
{
    int64_t attempt;

    (void)context;
    (void)iteration;
    (void)data;
    (void)bytes;
    AWAIT(starts_of(2, &attempt) > 0, 1);
    return false;
}

TEST(canceled_loop_block_and_team_can_kill_their_workers_without_a_grace_period)
{
    gp_parfor_request loop = { .first = 1, .last = 2, .chunk = 1, .cancel_at_once = true };
    gp_spmd_result *block = NULL;
    int64_t forever = 1000000;

    /* the loop ends while iteration 2 runs, which ignores the cancel */
    BEGIN(2);
    trouble = (behave_trouble){ .deaf = 2 };
    loop.function = find("troubled");
    loop.argument = &trouble;
    loop.bytes = sizeof(trouble);
    snprintf(trouble.path, sizeof(trouble.path), "%s/starts", pools_root);
    loop.on_result = end_beside_another;
    REQUIRE_OK(gp_parfor(team, &loop, &err), err);
    CHECK_INT(1, team_info().worker_deaths);

    /* a time limit */
    loop.on_result = NULL;
    trouble.path[0] = '\0';
    loop.timeout_ms = 50;
    CHECK_STATUS(GP_ETIMELIMIT, gp_parfor(team, &loop, &err));
    CHECK_INT(2, team_info().worker_deaths);

    /* a block at its time limit */
    gp_spmd_request request = { .function = find("stubborn"),
                                .argument = &forever,
                                .bytes = sizeof(forever),
                                .timeout_ms = 50,
                                .cancel_at_once = true };

    CHECK_STATUS(GP_ETIMELIMIT, gp_spmd(&block, team, &request, &err));
    CHECK_CONTAINS(err.message, "did not end within 0 ms after the cancel");
    CHECK_INT(4, team_info().worker_deaths);
    gp_spmd_result_free(block);

    /* all futures of a team */
    said[0] = '\0';
    gp_future *first = call("stubborn", forever), *second = call("stubborn", forever);

    REQUIRE(wait_begun(2));
    CHECK_STATUS(GP_EINVAL, gp_team_cancel_grace(team, GP_CANCEL_GRACE_MS_MAX + 1, &err));
    CHECK_STATUS(GP_OK, gp_team_cancel_grace(team, 0, &err));
    CHECK_STATUS(GP_ECANCELED, end_of(first));
    CHECK_CONTAINS(err.message, "did not end within 0 ms; its worker was replaced");
    CHECK_STATUS(GP_ECANCELED, end_of(second));
    CHECK_INT(6, team_info().worker_deaths);
}

/* ---- results that wait ---- */

static int64_t delivered; /* last iteration that next_in_order() received */

static bool next_in_order(void *context, int64_t iteration, const void *data, size_t bytes)
{
    (void)context;
    CHECK(iteration == delivered + 1 && bytes == sizeof(iteration));
    CHECK(memcmp(data, &iteration, sizeof(iteration)) == 0);
    delivered = iteration;
    return true;
}

static double cpu_seconds(void)
{
    struct rusage use;

    getrusage(RUSAGE_SELF, &use);
    return (double)(use.ru_utime.tv_sec + use.ru_stime.tv_sec) +
           1e-6 * (double)(use.ru_utime.tv_usec + use.ru_stime.tv_usec);
}

TEST(results_that_wait_for_a_slow_first_iteration_cost_no_quadratic_time)
{
    enum { LAST = 10000 };
    behave_tally held = { .number = LAST };
    double used[2]; /* the second loop does not wait: the file exists */

    BEGIN(2);
    snprintf(held.path, sizeof(held.path), "%s", in_root("last"));
    for (int round = 0; round < 2; round++) {
        const double before = cpu_seconds();

        delivered = 0;
        REQUIRE_OK(gp_parfor(team,
                             &(gp_parfor_request){ .function = find("hold_first"),
                                                   .argument = &held,
                                                   .bytes = sizeof(held),
                                                   .first = 1,
                                                   .last = LAST,
                                                   .chunk = 1,
                                                   .on_result = next_in_order },
                             &err),
                   err);
        CHECK_INT(LAST, delivered);
        used[round] = cpu_seconds() - before;
    }
    printf("     %.3f s, %.3f s without waiting\n", used[0], used[1]);
    CHECK(used[0] < 10 * used[1]);
}

/* ---- random kills ---- */

static int kills_left, results_left;

/* Kill the worker of about each 20th result. */
static bool kill_some(void *context, int64_t iteration, const void *data, size_t bytes)
{
    bool more = on_result(context, iteration, data, bytes);

    if (kills_left > 0 && --results_left <= 0 && event_count > 0) {
        kills_left -= kill((pid_t)events[event_count - 1].pid, SIGKILL) == 0;
        results_left = 10 + rand() % 20;
    }
    return more;
}

/* GRADPOOL_TEST_KILLS: the number of kills, for longer runs by hand. */
TEST(every_iteration_has_one_end_despite_random_kills)
{
    const char *kills = getenv("GRADPOOL_TEST_KILLS"), *seed = getenv("GRADPOOL_TEST_SEED");
    static bool ended[EVENTS_MAX];
    unsigned int random = seed != NULL ? (unsigned int)atoi(seed) : (unsigned int)getpid();

    BEGIN(3);
    kills_left = kills != NULL ? atoi(kills) : 12;
    results_left = 10;
    srand(random);
    printf("     seed %u, %d kills\n", random, kills_left);
    trouble = (behave_trouble){ .fails = 9 };
    gp_parfor_request loop = loop_of(5);
    const int64_t last = 60 * (int64_t)(kills_left + 5) < EVENTS_MAX ? 60 * (kills_left + 5) : EVENTS_MAX;

    loop.last = last;
    loop.output = NULL;
    loop.output_bytes = 0;
    loop.errors = NULL;
    loop.unordered = true;
    loop.attempts = 50;
    loop.on_result = kill_some;
    trouble.path[0] = '\0';
    REQUIRE_OK(gp_parfor(team, &loop, &err), err);
    CHECK_INT(last, event_count);
    int64_t good = 0;

    memset(ended, 0, sizeof(ended));
    for (int k = 0; k < event_count; k++) {
        CHECK(!ended[events[k].iteration - 1]);
        ended[events[k].iteration - 1] = true;
        CHECK_STATUS(events[k].iteration % 9 == 0 ? GP_ECORRUPT : GP_OK, events[k].status);
        good += events[k].status == GP_OK ? events[k].iteration : 0;
    }
    CHECK_INT(good, sum);
    CHECK_INT(0, kills_left);
}
