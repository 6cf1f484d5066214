/* test_behave_futures.c: semantics of executors and futures as in other systems: waiting,
 * as-completed, cancel, shutdown, crashes, killed workers, saturation. */
#include "tests/service/team/behave.h"

enum {
    MANY = 40,
    SLACK_NS = 2000000, /* tolerance: two clocks are compared through message arrival times */
};

/* ---- results and states ---- */

TEST(future_is_waiting_then_running_then_done_with_ordered_times)
{
    BEGIN(1);
    gp_future *busy = call_held(), *queued = call("square", 12);
    gp_future_info info;

    CHECK(wait_running(busy));
    CHECK(info_of(queued).state != GP_FUTURE_DONE); /* it may already be in the worker's ring */
    CHECK_INT(0, info_of(queued).ended_ns);
    let_go();
    CHECK_INT(144, number_of(queued));
    info = info_of(queued);
    CHECK_INT(GP_FUTURE_DONE, info.state);
    CHECK_STATUS(GP_OK, info.status);
    CHECK_INT(1, info.attempts);
    CHECK_INT(0, info.retries);
    CHECK_INT(1, info.worker);
    CHECK(0 < info.submitted_ns && info.submitted_ns <= info.started_ns && info.started_ns <= info.ended_ns);
    CHECK(info_of(busy).ended_ns <= info.ended_ns);
}

TEST(result_can_be_read_repeatedly)
{
    static char argument[100000];
    const void *data = NULL;
    size_t bytes = 1;

    for (size_t i = 0; i < sizeof(argument); i++)
        argument[i] = (char)(i * 7);
    BEGIN(2);
    gp_future *empty = call("nothing", 0);
    gp_future *copy = call_with((gp_parfeval_request){ 0 }, "echo", argument, sizeof(argument));

    CHECK_STATUS(GP_OK, gp_future_result(empty, &data, &bytes, &err));
    CHECK_INT(0, bytes);
    for (int i = 0; i < 2; i++) {
        REQUIRE_OK(gp_future_result(copy, &data, &bytes, &err), err);
        CHECK_INT(sizeof(argument), bytes);
        CHECK(memcmp(argument, data, sizeof(argument)) == 0);
    }
}

TEST(error_message_of_a_task_reaches_the_client)
{
    BEGIN(2);
    gp_future *failed = call_text("fail", "too many cooks");

    CHECK_STATUS(GP_EINVAL, end_of(failed));
    CHECK_CONTAINS(err.message, "refused: too many cooks");
    CHECK_STATUS(GP_EINVAL, info_of(failed).status);

    /* the call has ended: a failed call is not a failed wait */
    CHECK_STATUS(GP_OK, gp_future_wait(failed, 0, &err));
    CHECK_INT(2, workers_alive());
    CHECK_INT(0, team_info().worker_deaths);
}

/* ---- waiting ---- */

TEST(waiting_for_any_ends_with_the_first)
{
    BEGIN(2);
    gp_future *futures[] = { call_held(), call("square", 3) };

    REQUIRE_OK(gp_futures_wait(futures, 2, GP_WAIT_ANY, POOLS_TIMEOUT_MS, &err), err);
    CHECK_INT(GP_FUTURE_DONE, info_of(futures[1]).state);
    CHECK(wait_running(futures[0]));
    REQUIRE_OK(gp_futures_wait(futures, 2, GP_WAIT_ANY, 0, &err), err); /* one has already ended */
    gp_future_cancel(futures[0]);
    CHECK_STATUS(GP_ECANCELED, end_of(futures[0]));
}

TEST(waiting_for_the_first_error_does_not_wait_for_the_rest)
{
    BEGIN(2);
    gp_future *futures[] = { call_held(), call("square", 3), call_text("fail", "early") };
    gp_future *fine[] = { call("square", 1), call("square", 2) };

    REQUIRE_OK(gp_futures_wait(futures, 3, GP_WAIT_FIRST_ERROR, POOLS_TIMEOUT_MS, &err), err);
    CHECK_INT(GP_FUTURE_DONE, info_of(futures[2]).state);
    CHECK(info_of(futures[0]).state != GP_FUTURE_DONE);
    gp_future_cancel(futures[0]);

    /* Without an error, this waits for all. */
    REQUIRE_OK(gp_futures_wait(fine, 2, GP_WAIT_FIRST_ERROR, POOLS_TIMEOUT_MS, &err), err);
    CHECK_INT(GP_FUTURE_DONE, info_of(fine[0]).state);
    CHECK_INT(GP_FUTURE_DONE, info_of(fine[1]).state);
}

TEST(waiting_for_all_accepts_errors_and_duplicates)
{
    BEGIN(2);
    gp_future *futures[] = { call("nap", 20), call_text("fail", "x"), call("square", 5), NULL };

    futures[3] = futures[0];
    REQUIRE_OK(gp_futures_wait(futures, 4, GP_WAIT_ALL, POOLS_TIMEOUT_MS, &err), err);
    for (int i = 0; i < 3; i++)
        CHECK_INT(GP_FUTURE_DONE, info_of(futures[i]).state);

    /* an empty set has completed */
    REQUIRE_OK(gp_futures_wait(futures, 0, GP_WAIT_ALL, -1, &err), err);
}

TEST(a_wait_that_times_out_leaves_the_futures_as_they_are)
{
    BEGIN(1);
    gp_future *futures[] = { call_held(), call("square", 4) };

    CHECK_STATUS(GP_ETIMEDOUT, gp_future_wait(futures[1], 0, &err));
    CHECK_STATUS(GP_ETIMEDOUT, gp_future_wait(futures[1], 5, &err));
    CHECK_STATUS(GP_ETIMEDOUT, gp_futures_wait(futures, 2, GP_WAIT_ALL, 5, &err));
    let_go();
    CHECK_INT(16, number_of(futures[1]));
    CHECK_STATUS(GP_OK, end_of(futures[0]));
}

TEST(as_completed_returns_each_future_once)
{
    gp_future *futures[MANY], *next = NULL;
    bool seen[MANY] = { false };
    int64_t last_ns = 0;

    BEGIN(2);
    CHECK_STATUS(GP_ENOENT, gp_team_as_completed(team, &next, 0, &err));
    for (int i = 0; i < MANY; i++)
        futures[i] = i % 10 == 9 ? call_text("fail", "on purpose") : call("nap", i % 3);
    for (int n = 0; n < MANY; n++) {
        int i = 0;

        REQUIRE_OK(gp_team_as_completed(team, &next, POOLS_TIMEOUT_MS, &err), err);
        while (i < MANY && futures[i] != next)
            i++;
        REQUIRE(i < MANY);
        CHECK(!seen[i]);
        seen[i] = true;
        CHECK_INT(GP_FUTURE_DONE, info_of(next).state);
        CHECK(info_of(next).ended_ns >= last_ns || info_of(next).worker != 1);
        last_ns = info_of(next).worker == 1 ? info_of(next).ended_ns : last_ns;
    }
    CHECK_STATUS(GP_ENOENT, gp_team_as_completed(team, &next, 0, &err));
}

TEST(as_completed_returns_at_once_without_remaining_futures)
{
    gp_future *next = NULL;

    BEGIN(1);
    gp_future *slow = call_held(), *freed = call("nap", 1);

    CHECK_STATUS(GP_ETIMEDOUT, gp_team_as_completed(team, &next, 0, &err));
    gp_future_free(freed);
    CHECK_STATUS(GP_ETIMEDOUT, gp_team_as_completed(team, &next, 0, &err));
    gp_future_free(slow); /* both calls run without a future */
    CHECK_STATUS(GP_ENOENT, gp_team_as_completed(team, &next, 0, &err));
    CHECK_STATUS(GP_ENOENT, gp_team_as_completed(team, &next, -1, &err));
    let_go();
    gp_future *last = call("nap", 1);

    REQUIRE_OK(gp_team_as_completed(team, &next, POOLS_TIMEOUT_MS, &err), err);
    CHECK(next == last);
    CHECK_STATUS(GP_ENOENT, gp_team_as_completed(team, &next, 0, &err));
}

TEST(as_completed_respects_its_timeout)
{
    gp_future *next = NULL;

    BEGIN(1);
    gp_future *slow = call_held();

    CHECK_STATUS(GP_ETIMEDOUT, gp_team_as_completed(team, &next, 0, &err));
    CHECK_STATUS(GP_ETIMEDOUT, gp_team_as_completed(team, &next, 5, &err));
    let_go();
    REQUIRE_OK(gp_team_as_completed(team, &next, POOLS_TIMEOUT_MS, &err), err);
    CHECK(next == slow);
}

/* ---- callbacks ---- */

typedef struct ends {
    int count;
    gp_status last;
    gp_future *more; /* submitted from the callback */
} ends;

static void count_end(void *context, gp_future *future)
{
    ends *e = context;

    e->count++;
    e->last = info_of(future).status;
}

static void submit_more(void *context, gp_future *future)
{
    ends *e = context;
    int64_t x = 9;
    gp_parfeval_request request = { .function = find("square"), .argument = &x, .bytes = sizeof(x) };

    (void)future;
    e->count++;
    gp_parfeval(&e->more, team, &request, NULL);
}

TEST(callback_runs_once_for_each_kind_of_end)
{
    static ends e[4];
    gp_future *futures[4];
    int64_t number = 60;
    char go[64];

    memset(e, 0, sizeof(e));
    BEGIN(1);
    gp_parfeval_request with = { .done = count_end };

    snprintf(go, sizeof(go), "%s/go", pools_root);
    with.context = &e[0];
    futures[0] = call_with(with, "hold", go, strlen(go));
    with.context = &e[1];
    futures[1] = call_with(with, "fail", "x", 1);
    with.context = &e[2];
    futures[2] = call_with(with, "square", &number, sizeof(number));
    gp_future_cancel(futures[2]);
    with.context = &e[3];
    with.attempts = 1;
    futures[3] = call_with(with, "die", "kill", 4);
    let_go();
    REQUIRE_OK(gp_futures_wait(futures, 4, GP_WAIT_ALL, POOLS_TIMEOUT_MS, &err), err);
    for (int i = 0; i < 4; i++) {
        gp_future_cancel(futures[i]); /* too late for all of them */
        CHECK_INT(1, e[i].count);
    }
    CHECK_STATUS(GP_OK, e[0].last);
    CHECK_STATUS(GP_EINVAL, e[1].last);
    CHECK_STATUS(GP_ECANCELED, e[2].last);
    CHECK_STATUS(GP_EPEER, e[3].last);
}

TEST(a_callback_can_make_the_next_call)
{
    static ends e;

    memset(&e, 0, sizeof(e));
    BEGIN(2);
    find("square");
    gp_future *first =
        call_with((gp_parfeval_request){ .done = submit_more, .context = &e }, "nothing", "", 0);

    REQUIRE_OK(gp_future_wait(first, POOLS_TIMEOUT_MS, &err), err);
    CHECK_INT(1, e.count);
    REQUIRE(e.more != NULL);
    CHECK_INT(81, number_of(e.more));
}

static void wait_inside(void *context, gp_future *future)
{
    gp_future **other = context;

    (void)future;
    CHECK_STATUS(GP_ESTATE, gp_futures_wait(other, 1, GP_WAIT_ALL, POOLS_TIMEOUT_MS, &err));
}

TEST(wait_inside_a_callback_is_refused_and_the_outer_wait_continues)
{
    static gp_future *futures[2];
    gp_parfeval_request with = { .done = wait_inside, .context = &futures[1] };
    char go[64];

    BEGIN(1);
    snprintf(go, sizeof(go), "%s/go", pools_root);
    futures[0] = call_with(with, "hold", go, strlen(go));
    futures[1] = call("square", 3);
    let_go();
    CHECK_STATUS(GP_OK, gp_futures_wait(futures, 2, GP_WAIT_ALL, POOLS_TIMEOUT_MS, &err));
}

/* ---- cancel ---- */

TEST(canceled_queued_call_never_starts)
{
    behave_tally argument = { .number = 1 };
    struct stat facts;

    BEGIN(1);
    snprintf(argument.path, sizeof(argument.path), "%s/ran", pools_root);
    gp_future *busy = call_held();
    gp_future *queued = call_with((gp_parfeval_request){ 0 }, "tally", &argument, sizeof(argument));

    CHECK(wait_running(busy));
    gp_future_cancel(queued);
    CHECK_STATUS(GP_ECANCELED, end_of(queued)); /* although the other call continues */
    CHECK_INT(0, info_of(queued).attempts);
    let_go();
    CHECK_STATUS(GP_OK, end_of(busy));
    CHECK_INT(4, number_of(call("square", 2)));
    CHECK(stat(argument.path, &facts) != 0);
}

TEST(canceled_running_call_is_notified_and_keeps_its_worker)
{
    BEGIN(1);
    gp_future *running = call_held(), *before = call("where", 0);
    behave_place place;
    int64_t since_ms;

    CHECK(wait_running(running));
    since_ms = gp_now_ms();
    gp_future_cancel(running);
    CHECK_STATUS(GP_ECANCELED, end_of(running));
    CHECK(workers_kept(since_ms));
    place = place_of(before);
    gp_future_cancel(before); /* no effect after the end */
    CHECK_STATUS(GP_OK, end_of(before));
    gp_future *after = call("where", 0);

    CHECK_INT(place.pid, place_of(after).pid);
}

TEST(uncooperative_canceled_call_loses_its_worker_after_a_second)
{
    BEGIN(1);
    gp_future *running = call("stubborn", 1 << 30); /* about 12 days */

    CHECK(wait_running(running));
    gp_future_cancel(running);
    gp_future *next = call("square", 6);

    CHECK_STATUS(GP_ECANCELED, end_of(running));
    CHECK_INT(36, number_of(next));
    CHECK_INT(1, team_info().worker_deaths);
}

TEST(stop_ends_the_wait_but_not_the_call)
{
    static volatile sig_atomic_t stop;
    const gp_team_options options = { .stop = &stop, .log = take_line };
    gp_future *next = NULL;

    stop = 0;
    BEGIN(1);
    REQUIRE_OK(team_again(&options), err);
    gp_future *slow = call_held();

    CHECK(wait_running(slow));
    stop = 1;
    CHECK_STATUS(GP_ECANCELED, gp_future_wait(slow, -1, &err));
    CHECK_STATUS(GP_ECANCELED, gp_futures_wait(&slow, 1, GP_WAIT_ALL, -1, &err));
    CHECK_STATUS(GP_ECANCELED, gp_team_as_completed(team, &next, -1, &err));
    CHECK_INT(GP_FUTURE_RUNNING, info_of(slow).state);
    stop = 0;
    let_go();
    CHECK_STATUS(GP_OK, end_of(slow));
}

TEST(canceling_a_team_ends_all_its_calls_and_new_ones_are_served)
{
    gp_future *futures[MANY];

    BEGIN(2);
    for (int i = 0; i < MANY; i++)
        futures[i] = call_held();
    CHECK(wait_running(futures[0]));
    gp_team_cancel(team);
    for (int i = 0; i < MANY; i++)
        CHECK_STATUS(GP_ECANCELED, end_of(futures[i]));
    CHECK_INT(MANY, team_info().canceled);
    CHECK_INT(0, team_info().waiting);
    CHECK_INT(49, number_of(call("square", 7)));
}

TEST(call_is_ended_at_its_deadline_or_time_limit)
{
    int64_t ms = 1 << 30; /* about 12 days */

    BEGIN(1);
    call_held();
    gp_future *late = call_with((gp_parfeval_request){ .queue_timeout_ms = 10 }, "square", &ms, sizeof(ms));
    gp_status status = end_of(late);

    CHECK_STATUS(GP_ETIMEDOUT, status);
    CHECK_INT(0, info_of(late).attempts);
    let_go();
    gp_future *slow = call_with((gp_parfeval_request){ .timeout_ms = 50 }, "nap", &ms, sizeof(ms));

    status = end_of(slow);
    CHECK_STATUS(GP_ETIMELIMIT, status);
    CHECK_CONTAINS(err.message, "exceeded its time limit of 50 ms");
}

/* ---- shutdown ---- */

TEST(closing_a_team_with_calls_queued_and_running_gives_its_workers_back)
{
    BEGIN(2);
    for (int i = 0; i < MANY; i++)
        gp_future_free(call_held()); /* a call continues after the future is freed */
    REQUIRE_OK(team_again(NULL), err);
    CHECK_INT(2, gp_team_size(team));
    CHECK_INT(64, number_of(call("square", 8)));
}

TEST(closing_a_team_right_after_a_call_never_hangs)
{
    BEGIN(2);
    for (int i = 0; i < 20; i++) {
        int64_t x = i;

        REQUIRE_OK(team_again(NULL), err);
        if (i % 2 == 0) {
            gp_future *future = call("square", x);

            if (i % 4 == 0)
                CHECK_INT(x * x, number_of(future));
        }
    }
}

TEST(closing_a_team_does_not_wait_for_an_uncancelable_task)
{
    BEGIN(1);
    CHECK(wait_running(call("stubborn", 1 << 30))); /* about 12 days */
    REQUIRE_OK(team_again(NULL), err);
    CHECK_INT(81, number_of(call("square", 9)));
}

TEST(two_teams_are_independent)
{
    const gp_team_options one = { .lease = { .workers_min = 1, .workers_max = 1 }, .log = take_line };
    const gp_team_options now = { .lease = { .no_wait = true } };
    gp_team *other, *third = NULL;

    BEGIN(2);
    REQUIRE_OK(team_again(&one), err);
    CHECK_INT(1, gp_team_size(team));
    gp_future *slow = call_held();

    CHECK(wait_running(slow));
    other = team;
    team = NULL; /* stays open */
    REQUIRE_OK(team_again(&one), err);
    CHECK_INT(1, gp_team_size(team));
    CHECK_INT(100, number_of(call("square", 10)));
    CHECK_STATUS(GP_EBUSY, gp_team_open(&third, pool, &now, &err));
    gp_team_close(other);
    CHECK_INT(121, number_of(call("square", 11)));
}

/* ---- order and saturation ---- */

TEST(calls_beyond_the_number_of_workers_wait)
{
    gp_future *futures[30];
    gp_team_info info;

    BEGIN(2);
    for (int i = 0; i < 30; i++)
        futures[i] = call_held();
    info = team_info();
    CHECK_INT(30, info.submitted);
    CHECK(info.waiting + info.running + info.ended == 30);
    CHECK(info.waiting > 0 && info.queue_bytes > 0);
    let_go();
    REQUIRE_OK(gp_futures_wait(futures, 30, GP_WAIT_ALL, POOLS_TIMEOUT_MS, &err), err);
    info = team_info();
    CHECK_INT(0, info.waiting);
    CHECK_INT(0, info.running);
    CHECK_INT(30, info.ended);
    for (int i = 0; i < 30; i++)
        for (int j = 0; j < i; j++) { /* on one worker, calls do not overlap in time */
            gp_future_info a = info_of(futures[i]), b = info_of(futures[j]);

            if (a.worker == b.worker && a.started_ns + SLACK_NS < b.ended_ns &&
                b.started_ns + SLACK_NS < a.ended_ns)
                CHECK(!"two calls ran at once on one worker");
        }
}

TEST(idle_workers_are_reused)
{
    int64_t first = 0;

    BEGIN(1);
    for (int i = 0; i < 20; i++) {
        gp_future *future = call("where", 0);
        int64_t pid = place_of(future).pid;

        first = first == 0 ? pid : first;
        CHECK_INT(first, pid);
        gp_future_free(future);
    }
}

TEST(call_of_higher_priority_overtakes_waiting_calls)
{
    gp_future *low[20], *high;
    int64_t x = 2;
    int before = 0;

    BEGIN(1);
    gp_future *busy = call_held();

    CHECK(wait_running(busy));
    for (int i = 0; i < 20; i++)
        low[i] = call("nap", 2);
    high = call_with((gp_parfeval_request){ .priority = 5 }, "square", &x, sizeof(x));
    let_go();
    CHECK_INT(4, number_of(high));
    REQUIRE_OK(gp_futures_wait(low, 20, GP_WAIT_ALL, POOLS_TIMEOUT_MS, &err), err);
    for (int i = 0; i < 20; i++)
        before += info_of(low[i]).ended_ns < info_of(high).started_ns;
    CHECK_INT(0, before);
}

TEST(many_thousand_calls_without_a_future_each_call_back_once)
{
    enum { CALLS = 20000 };
    static ends e;
    int64_t x = 3;

    memset(&e, 0, sizeof(e));
    BEGIN(2);
    gp_parfeval_request request = {
        .function = find("square"), .argument = &x, .bytes = sizeof(x), .done = count_end, .context = &e
    };

    for (int i = 0; i < CALLS; i++)
        REQUIRE_OK(gp_parfeval(NULL, team, &request, &err), err);
    AWAIT(team_info().ended >= CALLS, 2);
    CHECK_INT(CALLS, team_info().ended);
    CHECK_INT(CALLS, e.count);
    CHECK_INT(0, team_info().failed);
}
