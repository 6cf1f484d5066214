/* test_parfor.c: loops on real workers: results, bitwise reductions, failures, limits. */
#include "proto/task/reduction.h"
#include "tests/service/killer.h"
#include "tests/service/teams.h"

static const gp_function *function(const char *name)
{
    return team_function(TASKS_LOOPS, name);
}

static gp_status loop(gp_parfor_request request)
{
    gp_status status;

    err.message[0] = '\0';
    status = gp_parfor(team, &request, &err);
    if (status == GP_OK && err.message[0] != '\0')
        GP_TEST_FAIL("an error text without an error: %s", err.message);
    return status;
}

/* ---- arrays ---- */

enum { ELEMENTS = 200000 };

TEST(arrays_are_split_and_reassembled)
{
    double *input = gp_malloc(ELEMENTS * sizeof(*input)), *output = gp_calloc(ELEMENTS, sizeof(*output));
    double argument[5000] = { 0 };
    size_t wrong = 0;

    REQUIRE(input != NULL && output != NULL && team_begin(3, NULL));
    for (int k = 0; k < ELEMENTS; k++)
        input[k] = k;
    for (int round = 0; round < 4; round++) {
        size_t count = round < 2 ? 1 : 5000; /* within the record, and larger */
        uint32_t chunk = round % 2 == 0 ? 0 : 7001;

        argument[count - 1] = 0.25 + round;
        REQUIRE_OK(loop((gp_parfor_request){ .function = function("add"),
                                             .argument = argument,
                                             .bytes = count * sizeof(double),
                                             .first = 1,
                                             .last = ELEMENTS,
                                             .input = input,
                                             .input_bytes = sizeof(double),
                                             .output = output,
                                             .output_bytes = sizeof(double),
                                             .chunk = chunk }),
                   err);
        for (int k = 0; k < ELEMENTS; k++)
            wrong += output[k] != k + 0.25 + round;
        CHECK_INT(0, wrong);
    }
    gp_free(input);
    gp_free(output);
}

TEST(argument_is_an_array_or_a_broadcast)
{
    double input = 1, output = 0, argument = 0.5;
    gp_broadcast *shared;
    gp_parfor_request request = { .first = 1,
                                  .last = 1,
                                  .input = &input,
                                  .input_bytes = sizeof(input),
                                  .output = &output,
                                  .output_bytes = sizeof(output) };

    REQUIRE(team_begin(1, NULL));
    REQUIRE_OK(gp_broadcast_new(&shared, &argument, sizeof(argument), &err), err);
    request.function = function("add");
    request.bytes = sizeof(argument);
    CHECK_STATUS(GP_EINVAL, loop(request));
    CHECK_CONTAINS(err.message, "the argument has 8 bytes and no address");
    request.shared = shared;
    REQUIRE_OK(loop(request), err);
    CHECK_NEAR(1.5, output, 0);
    request.argument = &argument;
    CHECK_STATUS(GP_EINVAL, loop(request));
    CHECK_CONTAINS(err.message, "two addresses: argument and shared");
    request.bytes = 0;
    CHECK_STATUS(GP_EINVAL, loop(request));
    request.argument = NULL;
    request.bytes = 4;
    CHECK_STATUS(GP_EINVAL, loop(request));
    CHECK_CONTAINS(err.message, "the argument has 4 bytes, but the broadcast has 8");
    gp_broadcast_free(shared);
}

TEST(ranges_run_up_and_down_and_may_be_empty)
{
    uint64_t output[40] = { 0 };
    gp_parfor_request request = { .output = output, .output_bytes = 8 };

    REQUIRE(team_begin(2, NULL));
    request.function = function("draws");
    request.first = 10;
    request.last = -9;
    request.step = -3;
    REQUIRE_OK(loop(request), err);
    CHECK(output[6] != 0 && output[7] == 0);
    request.step = 1;
    REQUIRE_OK(loop(request), err);
    CHECK(output[7] == 0);
    request.first = INT64_MIN;
    request.last = INT64_MAX;
    CHECK_STATUS(GP_ELIMIT, loop(request));
    request.function = NULL;
    CHECK_STATUS(GP_EINVAL, loop(request));
}

TEST(iteration_draws_the_same_numbers_on_every_worker)
{
    static uint64_t first[3000][2], second[3000][2];
    gp_parfor_request request = { .first = 1, .last = 3000, .output_bytes = 16, .seed = 5 };

    REQUIRE(team_begin(3, NULL));
    request.function = function("draws");
    request.output = first;
    request.chunk = 1000;
    REQUIRE_OK(loop(request), err);
    request.output = second;
    request.chunk = 7;
    REQUIRE_OK(loop(request), err);
    CHECK(memcmp(first, second, sizeof(first)) == 0);
    request.seed = 6;
    REQUIRE_OK(loop(request), err);
    CHECK(memcmp(first, second, sizeof(first)) != 0);
    CHECK(first[0][0] != first[0][1] && first[0][0] != first[1][0]);
}

/* ---- separate results ---- */

typedef struct listener {
    int64_t last, count, sum, stop_at;
    size_t wrong;
    bool ordered;
} listener;

static bool hear(void *context, int64_t iteration, const void *data, size_t bytes)
{
    listener *l = context;
    int64_t said;

    memcpy(&said, data, sizeof(said));
    l->wrong += said != iteration || bytes != (iteration % 3 == 0 ? 3000 : 8) || iteration % 5 == 0;
    if (l->ordered)
        l->wrong += iteration <= l->last;
    l->last = iteration;
    l->count++;
    l->sum += iteration;
    return l->count != l->stop_at;
}

TEST(results_arrive_once_in_order_or_as_completed)
{
    REQUIRE(team_begin(3, NULL));
    for (int round = 0; round < 4; round++) {
        listener l = { .ordered = round % 2 == 0 };

        REQUIRE_OK(loop((gp_parfor_request){ .function = function("tell"),
                                             .first = 1,
                                             .last = 20000,
                                             .on_result = hear,
                                             .unordered = !l.ordered,
                                             .context = &l,
                                             .max_in_flight = round < 2 ? 0 : 50 }),
                   err);
        CHECK_INT(0, l.wrong);
        CHECK_INT(16000, l.count);
        CHECK_INT(20000LL * 20001 / 2 - 5 * 4000LL * 4001 / 2, l.sum);
    }
}

TEST(callback_can_end_the_loop)
{
    listener l = { .ordered = true, .stop_at = 100 };

    REQUIRE(team_begin(2, NULL));
    CHECK_STATUS(GP_OK, loop((gp_parfor_request){ .function = function("tell"),
                                                  .first = 1,
                                                  .last = 1000000000,
                                                  .on_result = hear,
                                                  .context = &l }));
    CHECK_INT(100, l.count);
    CHECK_INT(0, l.wrong);
}

typedef struct caller {
    gp_future *futures[40];
    int64_t count;
    size_t wrong;
} caller;

static bool handle_big(void *context, int64_t iteration, const void *data, size_t bytes)
{
    caller *c = context;
    const unsigned char *content = data;

    c->wrong += bytes != 1 << 20 || content[0] != iteration || content[bytes - 1] != iteration;
    c->wrong += iteration != c->count + 1;
    c->wrong += gp_parfor(team, &(gp_parfor_request){ .function = function("nothing"), .last = 1 }, NULL) !=
                GP_ESTATE; /* it would wait */
    c->wrong += gp_parfeval(&c->futures[c->count], team,
                            &(gp_parfeval_request){ .function = function("nothing") }, NULL) != GP_OK;
    return ++c->count < 40;
}

TEST(large_results_are_complete_and_callbacks_may_submit_calls)
{
    caller c = { .wrong = 0 };

    REQUIRE(team_begin(2, NULL));
    function("nothing");
    REQUIRE_OK(
        loop((gp_parfor_request){
            .function = function("big"), .first = 1, .last = 40, .on_result = handle_big, .context = &c }),
        err);
    CHECK_INT(40, c.count);
    CHECK_INT(0, c.wrong);
    for (int k = 0; k < 40; k++) {
        CHECK_STATUS(GP_OK, gp_future_wait(c.futures[k], -1, &err));
        gp_future_free(c.futures[k]);
    }
}

/* ---- endless sources ---- */

typedef struct source {
    int64_t given, taken, limit, most;
    size_t wrong;
} source;

static bool source_next(void *context, void *item)
{
    source *s = context;

    if (s->given == s->limit)
        return false;
    s->given++;
    memcpy(item, &s->given, sizeof(s->given));
    if (s->given - s->taken > s->most)
        s->most = s->given - s->taken;
    return true;
}

static bool source_each(void *context, int64_t iteration, const void *data, size_t bytes)
{
    source *s = context;
    int64_t item = 0;

    if (bytes == sizeof(item))
        memcpy(&item, data, sizeof(item));
    s->wrong += item != ++s->taken || iteration != s->taken - 1;
    if (s->taken % 100 == 0)
        gp_sleep_ms(1); /* slower than the workers */
    return s->taken != 5000;
}

TEST(endless_source_is_read_only_up_to_the_limit_in_flight)
{
    source s = { .limit = -1 };
    int64_t pause = 0;

    REQUIRE(team_begin(2, NULL));
    gp_parfor_request request = { .function = function("echo"),
                                  .argument = &pause,
                                  .bytes = sizeof(pause),
                                  .next = source_next,
                                  .input_bytes = sizeof(int64_t),
                                  .on_result = source_each,
                                  .context = &s,
                                  .max_in_flight = 64 };

    CHECK_STATUS(GP_OK, loop(request));
    CHECK_INT(5000, s.taken);
    CHECK_INT(0, s.wrong);
    CHECK(s.most <= 64);

    s = (source){ .limit = 3000 };
    pause = 200; /* the first one takes long: the others wait for their turn */
    request.max_in_flight = 0;
    CHECK_STATUS(GP_OK, loop(request));
    CHECK_INT(3000, s.taken);
    CHECK_INT(0, s.wrong);
    s = (source){ .limit = 0 };
    CHECK_STATUS(GP_OK, loop(request));
    CHECK_INT(0, s.taken);
}

static bool slow_each(void *context, int64_t iteration, const void *data, size_t bytes)
{
    source *s = context;

    (void)iteration;
    (void)data;
    s->wrong += bytes != sizeof(int64_t);
    gp_sleep_ms(2); /* the workers have finished all assigned iterations */
    s->taken++;
    return true;
}

TEST(unordered_loop_respects_the_limit_in_flight)
{
    source s = { .limit = 60 };
    int64_t pause = 0;

    REQUIRE(team_begin(2, NULL));
    gp_parfor_request request = { .function = function("echo"),
                                  .argument = &pause,
                                  .bytes = sizeof(pause),
                                  .next = source_next,
                                  .input_bytes = sizeof(int64_t),
                                  .on_result = slow_each,
                                  .unordered = true,
                                  .context = &s,
                                  .max_in_flight = 5 };

    CHECK_STATUS(GP_OK, loop(request));
    CHECK_INT(60, s.taken);
    CHECK_INT(0, s.wrong);
    CHECK(s.most <= 5); /* read from the source, but not passed to `each` yet */

    gp_team_info info;

    gp_team_get_info(team, &info); /* the call that closes the loop on the workers is not counted */
    CHECK_INT(0, info.running);
    CHECK_INT(0, info.waiting);
}

TEST(loop_over_a_source_can_be_reduced)
{
    source s = { .limit = 1003 };
    double once[2], again[2];
    gp_parfor_request request = { .next = source_next,
                                  .input_bytes = sizeof(int64_t),
                                  .context = &s,
                                  .reduction = GP_REDUCTION_SUM_F64,
                                  .reduced = once,
                                  .reduced_bytes = sizeof(once) };

    REQUIRE(team_begin(2, NULL));
    request.function = function("series");
    REQUIRE_OK(loop(request), err);
    s = (source){ .limit = 1003 };
    request.reduced = again;
    request.max_in_flight = 30;
    REQUIRE_OK(loop(request), err);
    CHECK(memcmp(once, again, sizeof(once)) == 0);
}

/* ---- reductions ---- */

typedef struct extremes {
    uint64_t count;
    double least, greatest;
    uint64_t least_at, greatest_at, shape;
} extremes;

static void reduce_on(uint32_t workers, double sums[3], extremes *found, bool dying)
{
    static const uint32_t chunks[] = { 0, 3, 100, 5000 };
    int64_t pause = 60;
    char combine[600];

    REQUIRE(team_begin(workers, NULL));
    snprintf(combine, sizeof(combine), "%s:extremes_combine", TASKS_LOOPS);
    for (int round = 0; round < 4; round++) {
        double got[3] = { 0 };
        extremes at = { 0 };
        bool first = sums[0] == 0;
        gp_status_reply *rows = dying ? pools_settled(pool) : NULL;
        pid_t victim = rows == NULL ? 0 : (pid_t)rows->workers[round % workers].slot.pid;
        pid_t killer = victim == 0 ? 0 : fork();

        gp_free(rows);
        if (killer == 0 && victim != 0) {
            gp_sleep_ms(3 + 4 * round);
            kill(victim, SIGKILL);
            _exit(0);
        }
        REQUIRE_OK(loop((gp_parfor_request){ .function = function("series"),
                                             .argument = dying ? &(int64_t){ 400 } : &pause,
                                             .bytes = sizeof(pause),
                                             .first = 1,
                                             .last = 10007,
                                             .chunk = chunks[round],
                                             .reduction = GP_REDUCTION_SUM_F64,
                                             .reduced = got,
                                             .reduced_bytes = sizeof(got) }),
                   err);
        if (killer > 0)
            waitpid(killer, NULL, 0);
        if (first)
            memcpy(sums, got, sizeof(got));
        CHECK(memcmp(sums, got, sizeof(got)) == 0);
        REQUIRE_OK(loop((gp_parfor_request){ .function = function("extremes_of"),
                                             .argument = &pause,
                                             .bytes = sizeof(pause),
                                             .first = 1,
                                             .last = 10007,
                                             .chunk = chunks[round],
                                             .reduction = GP_REDUCTION_COMBINE,
                                             .combine = combine,
                                             .reduced = &at,
                                             .reduced_bytes = sizeof(at) }),
                   err);
        CHECK_INT(10007, at.count);
        if (first)
            *found = at;
        CHECK(memcmp(found, &at, sizeof(at)) == 0);
    }
    team_end();
}

TEST(reduction_is_bitwise_identical_for_any_workers_chunks_and_failures)
{
    double sums[3] = { 0 };
    extremes found = { 0 };

    reduce_on(1, sums, &found, false);
    reduce_on(2, sums, &found, false);
    reduce_on(3, sums, &found, true);
    reduce_on(5, sums, &found, false);
}

TEST(long_loops_and_large_accumulators_reduce_too)
{
    static double wide[50000];
    double narrow = 0;
    int64_t none = 0;

    REQUIRE(team_begin(2, NULL));
    REQUIRE_OK(loop((gp_parfor_request){ .function = function("nothing"),
                                         .first = 1,
                                         .last = 30000000,
                                         .reduction = GP_REDUCTION_MAX_F64,
                                         .reduced = &narrow,
                                         .reduced_bytes = sizeof(narrow) }),
               err);
    CHECK(isinf(narrow) && narrow < 0);
    REQUIRE_OK(loop((gp_parfor_request){ .function = function("series"),
                                         .first = 1,
                                         .last = 40,
                                         .reduction = GP_REDUCTION_SUM_F64,
                                         .reduced = wide,
                                         .reduced_bytes = sizeof(wide) }),
               err);
    CHECK(wide[49999] > 0);
    REQUIRE_OK(loop((gp_parfor_request){ .function = function("nothing"),
                                         .first = 1,
                                         .last = 0,
                                         .reduction = GP_REDUCTION_SUM_I64,
                                         .reduced = &none,
                                         .reduced_bytes = sizeof(none) }),
               err);
    CHECK_INT(0, none);
    CHECK_STATUS(GP_EINVAL, loop((gp_parfor_request){ .function = function("nothing"),
                                                      .last = 3,
                                                      .reduction = GP_REDUCTION_SUM_I64,
                                                      .reduced = &none,
                                                      .reduced_bytes = 5 }));
    CHECK_CONTAINS(err.message, "5 bytes");
    CHECK_STATUS(GP_EINVAL, loop((gp_parfor_request){ .function = function("nothing"),
                                                      .last = 3,
                                                      .reduction = GP_REDUCTION_COMBINE,
                                                      .reduced = &none,
                                                      .reduced_bytes = 8 }));
}

/* ---- errors, worker failures, stops ---- */

TEST(first_failing_iteration_ends_the_loop_and_is_named)
{
    int64_t at = 777;

    REQUIRE(team_begin(2, NULL));
    CHECK_STATUS(GP_ENOENT, loop((gp_parfor_request){ .function = function("fails_at"),
                                                      .argument = &at,
                                                      .bytes = sizeof(at),
                                                      .first = 1,
                                                      .last = 1000000000 }));
    CHECK(strncmp(err.message, "iteration ", 10) == 0);
    CHECK(atoi(err.message + 10) >= 777);
    CHECK_CONTAINS(err.message, ": worker ");
    CHECK_CONTAINS(err.message, "is too much");
    at = 5;
    CHECK_STATUS(GP_ENOENT, loop((gp_parfor_request){ .function = function("fails_at"),
                                                      .argument = &at,
                                                      .bytes = sizeof(at),
                                                      .first = 1,
                                                      .last = 100,
                                                      .chunk = 100 }));
    CHECK_CONTAINS(err.message, "iteration 5: worker ");
    CHECK_CONTAINS(err.message, "5 is too much");
}

TEST(only_the_unfinished_chunk_of_a_failed_worker_is_rerun)
{
    uint64_t output[200] = { 0 };
    int64_t argument[2] = { 60, 0 };
    unsigned again = 0;
    gp_parfor_request request = { .argument = argument,
                                  .bytes = sizeof(argument),
                                  .first = 1,
                                  .last = 200,
                                  .output = output,
                                  .output_bytes = 8 };

    REQUIRE(team_begin(2, NULL));
    request.function = function("dies_at");
    REQUIRE_OK(loop(request), err);
    for (uint64_t k = 0; k < 200; k++) {
        CHECK_INT(k, output[k] % 1000);
        again += output[k] >= 2000;
    }
    CHECK(output[59] >= 2000);
    CHECK(again <= 8); /* one chunk; later chunks had not started */
    argument[1] = 1;   /* on every start */
    CHECK_STATUS(GP_EPEER, loop(request));
    CHECK_CONTAINS(err.message, "60");
    CHECK_CONTAINS(err.message, "worker ");
    argument[0] = 1000;
    REQUIRE_OK(loop(request), err);
}

static volatile sig_atomic_t stop;

static void set_stop(int number)
{
    (void)number;
    stop = 1;
}

static void count_progress(void *context, uint64_t done, uint64_t total)
{
    uint64_t *last = context;

    CHECK(done >= last[0] && done <= total);
    CHECK_INT(5000, total);
    last[0] = done;
    last[1]++;
}

TEST(stop_ends_a_loop_and_progress_is_reported)
{
    uint64_t progress[2] = { 0 };

    stop = 0;
    REQUIRE(team_begin(2, &(gp_team_options){ .stop = &stop }));
    function("slow"); /* looked up while nothing is stopped */
    signal(SIGALRM, set_stop);
    ualarm(100000, 0);
    CHECK_STATUS(GP_ECANCELED,
                 loop((gp_parfor_request){ .function = function("slow"), .first = 1, .last = 100 }));
    stop = 0;
    REQUIRE_OK(loop((gp_parfor_request){ .function = function("echo"),
                                         .argument = &(int64_t){ 20 },
                                         .bytes = 8,
                                         .first = 1,
                                         .last = 5000,
                                         .progress = count_progress,
                                         .context = progress }),
               err);
    CHECK_INT(5000, progress[0]);
    CHECK(progress[1] >= 1);
}

TEST(many_loops_leak_nothing)
{
    REQUIRE(team_begin(2, NULL));
    const gp_function *nothing = function("nothing");

    for (int round = 0; round < 2000; round++)
        REQUIRE_OK(loop((gp_parfor_request){ .function = nothing, .first = 1, .last = 1 + round % 7 }), err);
}

TEST(loop_returns_each_result_once_while_schedulers_are_killed)
{
    scheduler_killer k = { .first_ms = 20, .every_ms = 200, .times = 4 };
    static uint64_t plain[3000][2], killed[3000][2];
    gp_parfor_request request = {
        .first = 1, .last = 3000, .output_bytes = 16, .seed = 5, .output = plain, .chunk = 7
    };

    REQUIRE(team_begin(3, NULL));
    request.function = function("draws");
    REQUIRE_OK(loop(request), err);
    request.output = killed;
    killer_start(&k);
    for (int64_t until = gp_now_ms() + 2 * POOLS_TIMEOUT_MS;
         k.killed < k.times && gp_now_ms() < until && gp_test_failures == 0;) {
        memset(killed, 0, sizeof(killed));
        if (loop(request) != GP_OK)
            GP_TEST_FAIL("%s", err.message);
        CHECK(memcmp(plain, killed, sizeof(plain)) == 0);
    }
    CHECK_INT(4, killer_join(&k));
}
