/* test_behave_views.c: semantics of load-balanced and direct views as in other systems: ordered and
 * unordered loops, bounded and endless ones; retries, dependencies; values pushed, pulled,
 * scattered and gathered. */
#include "tests/service/team/behave.h"

/* ---- loops ---- */

typedef struct seen {
    int64_t values[4096];
    int count, stop_after; /* stop_after 0: never */
    int64_t next, outstanding, outstanding_max, last;
} seen;

static seen s;

static bool take_value(void *context, int64_t iteration, const void *data, size_t bytes)
{
    (void)context;
    (void)iteration;
    if (bytes >= sizeof(int64_t) && s.count < 4096)
        memcpy(&s.values[s.count], data, sizeof(int64_t));
    s.count++;
    s.outstanding--;
    return s.stop_after == 0 || s.count < s.stop_after;
}

/* Give 1, 2, ... last (0: forever). */
static bool give_next(void *context, void *item)
{
    (void)context;
    if (s.last != 0 && s.next == s.last)
        return false;
    s.next++;
    s.outstanding++;
    s.outstanding_max = s.outstanding > s.outstanding_max ? s.outstanding : s.outstanding_max;
    memcpy(item, &s.next, sizeof(s.next));
    return true;
}

TEST(ordered_loop_returns_results_in_order)
{
    memset(&s, 0, sizeof(s));
    BEGIN(2);
    REQUIRE_OK(gp_parfor(team,
                         &(gp_parfor_request){ .function = find("give_iteration"),
                                               .first = 1,
                                               .last = 200,
                                               .chunk = 1,
                                               .on_result = take_value },
                         &err),
               err);
    CHECK_INT(200, s.count);
    for (int i = 0; i < 200; i++)
        CHECK_INT(i + 1, s.values[i]);
}

TEST(unordered_loop_returns_each_result_once)
{
    bool was_seen[201] = { false };

    memset(&s, 0, sizeof(s));
    BEGIN(2);
    REQUIRE_OK(gp_parfor(team,
                         &(gp_parfor_request){ .function = find("give_iteration"),
                                               .first = 1,
                                               .last = 200,
                                               .unordered = true,
                                               .on_result = take_value },
                         &err),
               err);
    CHECK_INT(200, s.count);
    for (int i = 0; i < 200; i++) {
        REQUIRE(s.values[i] >= 1 && s.values[i] <= 200);
        CHECK(!was_seen[s.values[i]]);
        was_seen[s.values[i]] = true;
    }
}

TEST(short_empty_and_stepped_loops_have_the_right_count)
{
    static const struct {
        int64_t first, last, step;
        int count;
    } loops[] = { { 1, 1, 0, 1 },  { 5, 6, 1, 2 },   { 1, 0, 1, 0 },  { 1, 10, 3, 4 },
                  { 7, 1, -2, 4 }, { 0, -1, -1, 2 }, { -5, 5, 5, 3 }, { 3, 9, -1, 0 } };

    BEGIN(3);
    for (size_t i = 0; i < sizeof(loops) / sizeof(loops[0]); i++) {
        int64_t step = loops[i].step == 0 ? 1 : loops[i].step;

        memset(&s, 0, sizeof(s));
        REQUIRE_OK(gp_parfor(team,
                             &(gp_parfor_request){ .function = find("give_iteration"),
                                                   .first = loops[i].first,
                                                   .last = loops[i].last,
                                                   .step = loops[i].step,
                                                   .on_result = take_value },
                             &err),
                   err);
        CHECK_INT(loops[i].count, s.count);
        for (int n = 0; n < s.count; n++)
            CHECK_INT(loops[i].first + n * step, s.values[n]);
    }
}

TEST(arguments_are_aligned_to_16_bytes)
{
    static const unsigned char argument[40000];
    static const size_t sizes[] = { 1, 40, sizeof(argument) };

    BEGIN(1);
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        gp_spmd_result *block = NULL;
        const void *data = NULL;
        size_t bytes;
        const gp_function *function = find("argument_offset");

        memset(&s, 0, sizeof(s));
        REQUIRE_OK(gp_parfor(team,
                             &(gp_parfor_request){ .function = function,
                                                   .argument = argument,
                                                   .bytes = sizes[i],
                                                   .first = 1,
                                                   .last = 1,
                                                   .on_result = take_value },
                             &err),
                   err);
        CHECK_INT(1, s.count);
        CHECK_INT(0, s.values[0]);
        CHECK_INT(0, number_of(call_with((gp_parfeval_request){ 0 }, "argument_offset", argument, sizes[i])));
        REQUIRE_OK(
            gp_spmd(&block, team,
                    &(gp_spmd_request){ .function = function, .argument = argument, .bytes = sizes[i] },
                    &err),
            err);
        REQUIRE_OK(gp_spmd_result_get(block, 1, &data, &bytes, &err), err);
        CHECK_INT(0, *(const int64_t *)data);
        gp_spmd_result_free(block);
    }
}

TEST(endless_source_respects_the_limit_in_flight)
{
    memset(&s, 0, sizeof(s));
    s.stop_after = 300;
    BEGIN(2);
    REQUIRE_OK(gp_parfor(team,
                         &(gp_parfor_request){ .function = find("give_input"),
                                               .next = give_next,
                                               .input_bytes = sizeof(int64_t),
                                               .on_result = take_value,
                                               .max_in_flight = 8 },
                         &err),
               err);
    CHECK_INT(300, s.count); /* not called after it returned false */
    CHECK(s.outstanding_max <= 8);
    for (int i = 0; i < 300; i++)
        CHECK_INT(i + 1, s.values[i]);
    CHECK_INT(4, number_of(call("square", 2))); /* the team is idle */
}

TEST(finite_source_is_completely_consumed)
{
    memset(&s, 0, sizeof(s));
    s.last = 1000;
    BEGIN(2);
    REQUIRE_OK(gp_parfor(team,
                         &(gp_parfor_request){ .function = find("give_input"),
                                               .next = give_next,
                                               .input_bytes = sizeof(int64_t),
                                               .on_result = take_value },
                         &err),
               err);
    CHECK_INT(1000, s.count);
    for (int i = 0; i < 1000; i++)
        CHECK_INT(i + 1, s.values[i]);
}

TEST(each_iteration_gets_its_input_and_output_slice)
{
    enum { COUNT = 10007 };
    static double in[COUNT], out[COUNT];

    BEGIN(2);
    for (int i = 0; i < COUNT; i++)
        in[i] = i / 3.0;
    REQUIRE_OK(gp_parfor(team,
                         &(gp_parfor_request){ .function = find("square_slice"),
                                               .first = 1,
                                               .last = COUNT,
                                               .input = in,
                                               .input_bytes = sizeof(in[0]),
                                               .output = out,
                                               .output_bytes = sizeof(out[0]) },
                         &err),
               err);
    for (int i = 0; i < COUNT; i++)
        if (out[i] != in[i] * in[i])
            REQUIRE(!"an element is wrong");
}

TEST(sum_is_bitwise_identical_for_any_workers_and_chunks)
{
    static const struct {
        uint32_t workers, chunk;
    } ways[] = { { 1, 0 }, { 1, 1 }, { 2, 0 }, { 2, 7 }, { 3, 1 }, { 3, 64 } };
    double first = 0;

    for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
        double sum = 0;

        BEGIN(ways[i].workers);
        REQUIRE_OK(gp_parfor(team,
                             &(gp_parfor_request){ .function = find("add_term"),
                                                   .first = 1,
                                                   .last = 3001,
                                                   .chunk = ways[i].chunk,
                                                   .reduction = GP_REDUCTION_SUM_F64,
                                                   .reduced = &sum,
                                                   .reduced_bytes = sizeof(sum),
                                                   .seed = 7 },
                             &err),
                   err);
        first = i == 0 ? sum : first;
        CHECK_NEAR(8.5838, sum, 1e-3); /* harmonic number */
        CHECK(memcmp(&first, &sum, sizeof(sum)) == 0);
        team_end();
    }
}

TEST(loop_can_reduce_and_return_large_results)
{
    int64_t count = 0;

    memset(&s, 0, sizeof(s));
    BEGIN(2);
    REQUIRE_OK(gp_parfor(team,
                         &(gp_parfor_request){ .function = find("count_and_give"),
                                               .first = 1,
                                               .last = 400,
                                               .chunk = 200,
                                               .on_result = take_value,
                                               .reduction = GP_REDUCTION_SUM_I64,
                                               .reduced = &count,
                                               .reduced_bytes = sizeof(count) },
                         &err),
               err);
    CHECK_INT(400, count);
    CHECK_INT(400, s.count);
    for (int i = 0; i < 400; i++)
        CHECK_INT(i + 1, s.values[i]);
}

TEST(combine_function_sees_iterations_in_order)
{
    char text[64] = "", combine[700];

    BEGIN(2);
    snprintf(combine, sizeof(combine), "%s:combine_text", object_path);
    gp_parfor_request loop = { .function = find("append_letter"),
                               .first = 1,
                               .last = 40,
                               .chunk = 3,
                               .reduction = GP_REDUCTION_COMBINE,
                               .combine = combine,
                               .reduced = text,
                               .reduced_bytes = sizeof(text) };

    REQUIRE_OK(gp_parfor(team, &loop, &err), err);
    CHECK_TEXT("abcdefghijklmnopqrstuvwxyzabcdefghijklmn", text);
    loop.last = 0; /* an empty source */
    REQUIRE_OK(gp_parfor(team, &loop, &err), err);
    CHECK_TEXT("", text);
}

TEST(random_numbers_depend_on_iteration_and_seed)
{
    enum { COUNT = 500 };
    static double drawn[3][COUNT][2];

    for (int i = 0; i < 3; i++) {
        BEGIN(i == 0 ? 1 : 3);
        REQUIRE_OK(gp_parfor(team,
                             &(gp_parfor_request){ .function = find("draw"),
                                                   .first = 1,
                                                   .last = COUNT,
                                                   .chunk = i == 0 ? 0 : 3,
                                                   .output = drawn[i],
                                                   .output_bytes = sizeof(drawn[i][0]),
                                                   .seed = i == 2 ? 6 : 5 },
                             &err),
                   err);
        team_end();
    }
    CHECK(memcmp(drawn[0], drawn[1], sizeof(drawn[0])) == 0);
    CHECK(memcmp(drawn[0], drawn[2], sizeof(drawn[0])) != 0);
    for (int i = 1; i < COUNT; i++)
        CHECK(drawn[0][i][0] >= 0 && drawn[0][i][0] < 1 && drawn[0][i][0] != drawn[0][i - 1][0]);
}

TEST(failing_iteration_ends_the_loop_and_is_named)
{
    behave_iteration bad = { .iteration = 57, .does = "fail" };
    int64_t sum = 0;
    gp_parfor_request request = { .argument = &bad,
                                  .bytes = sizeof(bad),
                                  .first = 1,
                                  .last = 100,
                                  .reduction = GP_REDUCTION_SUM_I64,
                                  .reduced = &sum,
                                  .reduced_bytes = sizeof(sum) };

    BEGIN(2);
    request.function = find("one_iteration");
    CHECK_STATUS(GP_ECORRUPT, gp_parfor(team, &request, &err));
    CHECK_CONTAINS(err.message, "57");
    CHECK_CONTAINS(err.message, "worker ");
    CHECK_CONTAINS(err.message, "this one is bad");
    CHECK_INT(2, workers_alive());
    bad.iteration = 0; /* the same loop without a failure */
    REQUIRE_OK(gp_parfor(team, &request, &err), err);
    CHECK_INT(5050, sum);
}

TEST(loop_continues_after_a_worker_failure_and_counts_each_iteration_once)
{
    behave_iteration bad = { .iteration = 57, .does = "kill" };
    int64_t sum = 0;

    BEGIN(2);
    REQUIRE_OK(gp_parfor(team,
                         &(gp_parfor_request){ .function = find("one_iteration"),
                                               .argument = &bad,
                                               .bytes = sizeof(bad),
                                               .first = 1,
                                               .last = 100,
                                               .reduction = GP_REDUCTION_SUM_I64,
                                               .reduced = &sum,
                                               .reduced_bytes = sizeof(sum) },
                         &err),
               err);
    CHECK_INT(5050, sum);
    CHECK_INT(1, team_info().worker_deaths);
}

/* ---- retries and dependencies ---- */

TEST(failing_call_is_retried_up_to_the_limit)
{
    int64_t third = 3, never = 100;

    BEGIN(2);
    gp_future *good = call_with((gp_parfeval_request){ .retries = 4 }, "fail_until", &third, sizeof(third));
    gp_future *bad = call_with((gp_parfeval_request){ .retries = 2 }, "fail_until", &never, sizeof(never));
    gp_future *once = call("fail_until", 2);

    CHECK_INT(3, number_of(good));
    CHECK_INT(2, info_of(good).retries);
    CHECK_INT(1, info_of(good).attempts); /* no worker failed */
    CHECK_STATUS(GP_EIO, end_of(bad));
    CHECK_CONTAINS(err.message, "attempt 3");
    CHECK_STATUS(GP_EIO, end_of(once));
    CHECK_CONTAINS(err.message, "attempt 1");
}

TEST(call_starts_after_its_dependencies_ended)
{
    int64_t ms = 20;

    BEGIN(2);
    gp_future *first[] = { call("nap", 30), call("nap", 10) };
    gp_future *second =
        call_with((gp_parfeval_request){ .depends_on = first, .depends_on_count = 2 }, "nap", &ms, 8);
    gp_future *third =
        call_with((gp_parfeval_request){ .depends_on = &second, .depends_on_count = 1 }, "nap", &ms, 8);
    gp_future *late;

    CHECK_STATUS(GP_OK, end_of(third));
    for (int i = 0; i < 2; i++)
        CHECK(info_of(first[i]).ended_ns <= info_of(second).started_ns);
    CHECK(info_of(second).ended_ns <= info_of(third).started_ns);
    late = call_with((gp_parfeval_request){ .depends_on = first, .depends_on_count = 2 }, "square", &ms, 8);
    CHECK_INT(400, number_of(late)); /* after a call that ended earlier */
}

TEST(call_is_canceled_with_a_reason_if_its_dependency_fails)
{
    int64_t x = 1;

    BEGIN(2);
    gp_future *first[] = { call_text("fail", "the first step"), call_held() };
    gp_future *second =
        call_with((gp_parfeval_request){ .depends_on = first, .depends_on_count = 1 }, "square", &x, 8);
    gp_future *third =
        call_with((gp_parfeval_request){ .depends_on = &second, .depends_on_count = 1 }, "square", &x, 8);
    gp_future *other =
        call_with((gp_parfeval_request){ .depends_on = &first[1], .depends_on_count = 1 }, "square", &x, 8);

    CHECK_STATUS(GP_ECANCELED, end_of(second));
    CHECK_CONTAINS(err.message, "which it depends on, failed: worker ");
    CHECK_CONTAINS(err.message, "the first step");
    CHECK_STATUS(GP_ECANCELED, end_of(third));
    CHECK_INT(0, info_of(third).attempts);
    gp_future_cancel(first[1]);
    CHECK_STATUS(GP_ECANCELED, end_of(other));
    gp_future *late =
        call_with((gp_parfeval_request){ .depends_on = first, .depends_on_count = 1 }, "square", &x, 8);

    CHECK_STATUS(GP_ECANCELED, end_of(late)); /* after a call that failed earlier */
}

TEST(call_that_follows_another_runs_on_the_same_worker)
{
    BEGIN(3);
    for (int i = 0; i < 12; i++) {
        gp_future *first = call("where", 0);
        gp_future *second = call_with((gp_parfeval_request){ .same_worker_as = first }, "where", "", 0);

        CHECK_INT(place_of(first).pid, place_of(second).pid);
        gp_future_free(first);
        gp_future_free(second);
    }
}

TEST(calls_that_follow_the_same_call_start_in_submission_order)
{
    gp_future *first, *next, *after[10];

    BEGIN(2);
    first = call_held();
    for (int i = 0; i < 10; i++)
        after[i] = call_with((gp_parfeval_request){ .same_worker_as = first }, "where", "", 0);
    let_go();
    REQUIRE_OK(gp_team_as_completed(team, &next, POOLS_TIMEOUT_MS, &err), err);
    CHECK(next == first);
    for (int i = 0; i < 10; i++) {
        REQUIRE_OK(gp_team_as_completed(team, &next, POOLS_TIMEOUT_MS, &err), err);
        CHECK(next == after[i]);
    }
    for (int i = 0; i < 10; i++)
        gp_future_free(after[i]);
}

TEST(function_of_a_loaded_object_is_found_while_workers_are_busy)
{
    gp_future *busy[2];

    BEGIN(2);
    busy[0] = call_held();
    busy[1] = call_held();
    CHECK(wait_begun(2));
    gp_future *after = call("echo", 5);

    CHECK_INT(GP_FUTURE_RUNNING, info_of(busy[0]).state);
    CHECK_INT(GP_FUTURE_RUNNING, info_of(busy[1]).state);
    gp_future_cancel(busy[0]);
    gp_future_cancel(busy[1]);
    CHECK_INT(5, number_of(after));
}

TEST(call_runs_on_the_requested_worker)
{
    BEGIN(3);
    for (uint32_t worker = 1; worker <= 3; worker++) {
        gp_future *future = call_with((gp_parfeval_request){ .worker = worker }, "where", "", 0);
        behave_place place = place_of(future);

        CHECK_INT(worker, place.index);
        CHECK_INT(3, place.size);
        gp_future_free(future);
    }
}

/* ---- values on workers ---- */

static bool holds(uint32_t worker, const char *name, const char *text)
{
    void *data = NULL;
    size_t bytes = 0;
    bool same = gp_team_get(team, worker, name, &data, &bytes, &err) == GP_OK && bytes == strlen(text) &&
                memcmp(data, text, bytes) == 0;

    gp_buffer_free(data);
    return same;
}

TEST(values_are_put_on_one_or_all_workers_and_read_back)
{
    void *data;
    size_t bytes;

    BEGIN(2);
    REQUIRE_OK(gp_team_put(team, GP_EVERY_WORKER, "colour", "red", 3, &err), err);
    CHECK(holds(1, "colour", "red") && holds(2, "colour", "red"));
    REQUIRE_OK(gp_team_put(team, 2, "colour", "green", 5, &err), err);
    CHECK(holds(1, "colour", "red") && holds(2, "colour", "green"));
    REQUIRE_OK(gp_team_put(team, 1, "colour", NULL, 0, &err), err);
    CHECK_STATUS(GP_ENOENT, gp_team_get(team, 1, "colour", &data, &bytes, &err));
    CHECK_CONTAINS(err.message, "colour");
    CHECK_STATUS(GP_ENOENT, gp_team_get(team, 1, "never", &data, &bytes, &err));
    CHECK_CONTAINS(err.message, "never");
    CHECK_STATUS(GP_EINVAL, gp_team_put(team, 3, "colour", "x", 1, &err));
    CHECK_CONTAINS(err.message, "2");
    CHECK_STATUS(GP_EINVAL, gp_team_get(team, 3, "colour", &data, &bytes, &err));
}

TEST(tasks_and_client_see_each_others_values)
{
    const void *data = NULL;
    size_t bytes = 0;

    BEGIN(2);
    REQUIRE_OK(gp_team_put(team, GP_EVERY_WORKER, "colour", "red", 3, &err), err);
    gp_future *got = call_text("get_value", "colour"), *missing = call_text("get_value", "taste");
    gp_future *put = call_with((gp_parfeval_request){ .worker = 2 }, "put_value", "taste=sour", 10);

    REQUIRE_OK(gp_future_result(got, &data, &bytes, &err), err);
    CHECK(bytes == 3 && memcmp(data, "red", 3) == 0);
    CHECK_STATUS(GP_ENOENT, end_of(missing));
    CHECK_CONTAINS(err.message, "taste");
    CHECK_STATUS(GP_OK, end_of(put));
    CHECK(holds(2, "taste", "sour"));
    CHECK(!holds(1, "taste", "sour"));
}

TEST(scatter_and_gather_preserve_order_for_any_size)
{
    static const size_t counts[] = { 101, 100, 2, 1, 0 };
    int64_t values[101], *back = NULL;
    size_t bytes;

    BEGIN(3);
    for (int i = 0; i < 101; i++)
        values[i] = i;
    for (size_t n = 0; n < sizeof(counts) / sizeof(counts[0]); n++) {
        REQUIRE_OK(gp_team_scatter(team, "part", values, counts[n], sizeof(values[0]), &err), err);
        REQUIRE_OK(gp_team_gather(team, "part", (void **)&back, &bytes, &err), err);
        CHECK_INT(counts[n] * sizeof(values[0]), bytes);
        CHECK(bytes == 0 || memcmp(values, back, bytes) == 0);
        gp_buffer_free(back);
    }
    REQUIRE_OK(gp_team_scatter(team, "part", values, 101, sizeof(values[0]), &err), err);
    for (uint32_t worker = 1; worker <= 3; worker++) {
        static const int64_t sums[] = { 33 * 34 / 2, 34 * 34 + 33 * 34 / 2, 33 * 68 + 32 * 33 / 2 };
        gp_future *future = call_with((gp_parfeval_request){ .worker = worker }, "sum_and_double", "part", 4);

        CHECK_INT(sums[worker - 1], number_of(future));
        gp_future_free(future);
    }
    REQUIRE_OK(gp_team_gather(team, "part", (void **)&back, &bytes, &err), err);
    REQUIRE(bytes == sizeof(values));
    for (int i = 0; i < 101; i++)
        CHECK_INT(2 * i, back[i]);
    gp_buffer_free(back);
    CHECK_STATUS(GP_ENOENT, gp_team_gather(team, "nobody", (void **)&back, &bytes, &err));
}

TEST(attached_file_can_be_read_by_tasks)
{
    const void *data = NULL;
    size_t bytes = 0;

    BEGIN(2);
    const char *path = in_root("letter");

    write_file("letter", "dear worker");
    REQUIRE_OK(gp_team_attach(team, "data", path, &err), err);
    remove(path); /* the workers have a copy */
    gp_future *future = call("read_file", 0);

    REQUIRE_OK(gp_future_result(future, &data, &bytes, &err), err);
    CHECK(bytes == 11 && memcmp(data, "dear worker", 11) == 0);
    CHECK_STATUS(GP_ENOENT, gp_team_attach(team, "data", path, &err));
    CHECK_CONTAINS(err.message, path);
}

TEST(a_constant_is_built_once_in_each_worker)
{
    BEGIN(2);
    for (int i = 0; i < 10; i++) {
        gp_future *future =
            call_with((gp_parfeval_request){ .worker = (uint32_t)(i % 2) + 1 }, "count_builds", "", 0);

        CHECK_INT(1, number_of(future));
        gp_future_free(future);
    }
}

TEST(queue_keeps_order_and_a_full_queue_blocks_senders)
{
    gp_queue *queue = NULL;
    uint32_t worker;
    int64_t *item;
    size_t bytes;

    BEGIN(1);
    REQUIRE_OK(gp_queue_open(&queue, team, "numbers", &(gp_queue_options){ .depth = 4 }, &err), err);
    gp_future *sender = call("queue_numbers", 3000);

    for (int64_t i = 1; i <= 3000; i++) {
        REQUIRE_OK(gp_queue_next(queue, &worker, (void **)&item, &bytes, POOLS_TIMEOUT_MS, &err), err);
        if (bytes != sizeof(*item) || *item != i || worker != 1)
            REQUIRE(!"another item was expected");
        gp_buffer_free(item);
    }
    CHECK_STATUS(GP_OK, end_of(sender));
    CHECK_STATUS(GP_ETIMEDOUT, gp_queue_next(queue, &worker, (void **)&item, &bytes, 10, &err));
    CHECK_INT(0, gp_queue_dropped(queue));
    gp_queue_close(queue);
}

TEST(queue_that_keeps_the_newest_counts_dropped_items)
{
    gp_queue *queue = NULL;
    uint32_t worker;
    int64_t *item, last = 0, count = 0;
    size_t bytes;

    BEGIN(1);
    REQUIRE_OK(
        gp_queue_open(&queue, team, "numbers", &(gp_queue_options){ .depth = 5, .keep_newest = true }, &err),
        err);
    gp_future *sender = call("queue_numbers", 1000);

    CHECK_STATUS(GP_OK, end_of(sender)); /* no reader, no waiting */
    while (gp_queue_next(queue, &worker, (void **)&item, &bytes, 200, &err) == GP_OK) {
        CHECK(*item > last);
        last = *item;
        count++;
        gp_buffer_free(item);
    }
    CHECK_INT(1000, last);
    CHECK_INT(1000, count + (int64_t)gp_queue_dropped(queue));
    CHECK(count >= 5);
    gp_queue_close(queue);
}

TEST(log_lines_carry_their_worker)
{
    BEGIN(2);
    gp_future *first = call_with((gp_parfeval_request){ .worker = 2 }, "say", "good morning", 12);

    CHECK_STATUS(GP_OK, end_of(first));
    AWAIT(said[0] != '\0', 1);
    CHECK_TEXT("2: said: good morning\n", said);
}
