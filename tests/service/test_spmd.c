/* test_spmd.c: spmd blocks on real workers: communication, errors, worker failures, leftovers. */
#include "tests/descriptors.h"
#include "tests/service/killer.h"
#include "tests/service/teams.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { GROWTH_KIB = 1 << 18 };
#else
enum { GROWTH_KIB = 2048 };
#endif

static const gp_function *function(const char *name)
{
    return team_function(TASKS_RANKS, name);
}

static gp_status block_on(gp_spmd_result **block, const char *name, uint32_t n, const char *argument)
{
    gp_spmd_request request = { .function = function(name),
                                .argument = argument,
                                .bytes = argument == NULL ? 0 : strlen(argument) + 1,
                                .workers_min = n,
                                .workers_max = n };

    err.message[0] = '\0';
    return gp_spmd(block, team, &request, &err);
}

static gp_status block_ends(const char *name, uint32_t n, const char *argument)
{
    gp_spmd_result *block;
    gp_status status = block_on(&block, name, n, argument);

    gp_spmd_result_free(block);
    return status;
}

/* Check that a block in which all ranks communicate works. */
static void check_whole(uint32_t size)
{
    const void *data;
    size_t bytes;
    gp_spmd_result *block;

    CHECK_STATUS(GP_OK, block_on(&block, "sum", 0, NULL));
    if (err.message[0] != '\0')
        GP_TEST_FAIL("%s", err.message);
    CHECK_INT(size, block == NULL ? 0 : gp_spmd_result_size(block));
    for (uint32_t index = 1; block != NULL && index <= size; index++) {
        CHECK_STATUS(GP_OK, gp_spmd_result_get(block, index, &data, &bytes, &err));
        CHECK_NEAR(size * (size + 1) / 2.0, *(const double *)data, 0);
    }
    gp_spmd_result_free(block);
}

static bool index_is_refused(gp_spmd_result *block, uint32_t index)
{
    const void *data;
    size_t bytes;

    return gp_spmd_result_get(block, index, &data, &bytes, NULL) == GP_EINVAL;
}

TEST(all_or_some_workers_run_a_block_and_return_results)
{
    uint64_t random[3] = { 0 };
    gp_spmd_result *block;

    REQUIRE(team_begin(3, NULL));
    check_whole(3);
    for (uint32_t n = 1; n <= 3; n++) {
        const uint64_t *facts;
        const void *data;
        size_t bytes;

        CHECK_STATUS(GP_OK, block_on(&block, "about", n, "abc"));
        REQUIRE(block != NULL && gp_spmd_result_size(block) == n);
        for (uint32_t index = 1; index <= n; index++) {
            CHECK_STATUS(GP_OK, gp_spmd_result_get(block, index, &data, &bytes, &err));
            facts = data;
            CHECK_INT(index, facts[0]);
            CHECK_INT(n, facts[1]);
            CHECK_INT(4 << 8, facts[2]);

            /* the same random stream each time */
            CHECK(random[index - 1] == 0 || random[index - 1] == facts[3]);
            random[index - 1] = facts[3];
        }
        CHECK(index_is_refused(block, n + 1));
        gp_spmd_result_free(block);
    }
    CHECK(random[0] != random[1] && random[1] != random[2]);
    check_whole(3);
}

TEST(range_of_workers_uses_the_available_ones_and_too_many_are_refused)
{
    gp_spmd_request request = { .workers_min = 2, .workers_max = 10 };
    gp_spmd_result *block;

    REQUIRE(team_begin(3, NULL));
    request.function = function("empty");
    CHECK_STATUS(GP_OK, gp_spmd(&block, team, &request, &err));
    CHECK_INT(3, gp_spmd_result_size(block));
    gp_spmd_result_free(block);
    request.workers_min = 4;
    CHECK_STATUS(GP_EINVAL, gp_spmd(&block, team, &request, &err));
    CHECK(block == NULL);
    CHECK_CONTAINS(err.message, "4 workers");
    CHECK_CONTAINS(err.message, "has 3");
    request.workers_max = 3;
    CHECK_STATUS(GP_EINVAL, gp_spmd(&block, team, &request, &err));
    request.bytes = 8;
    CHECK_STATUS(GP_EINVAL, gp_spmd(&block, team, &request, &err));
    CHECK_CONTAINS(err.message, "the argument has 8 bytes and no address");
    request.function = NULL;
    CHECK_STATUS(GP_EINVAL, gp_spmd(&block, team, &request, &err));
}

TEST(large_results_are_fetched_from_the_workers_on_demand)
{
    gp_spmd_result *blocks[5];

    REQUIRE(team_begin(2, NULL));
    for (int k = 0; k < 5; k++)
        CHECK_STATUS(GP_OK, block_on(&blocks[k], "large", 0, NULL));
    for (int k = 4; k >= 0; k -= 2) {
        for (uint32_t index = 1; index <= 2; index++) {
            const unsigned char *content;
            const void *data, *again;
            size_t bytes;

            REQUIRE_OK(gp_spmd_result_get(blocks[k], index, &data, &bytes, &err), err);
            content = data;
            CHECK_INT(1 << 20, bytes);
            CHECK(content[0] == index && content[bytes - 1] == index);
            REQUIRE_OK(gp_spmd_result_get(blocks[k], index, &again, &bytes, &err), err);
            CHECK(data == again);
        }
    }
    for (int k = 0; k < 5; k++)
        gp_spmd_result_free(blocks[k]);
    check_whole(2);
}

TEST(a_large_argument_reaches_all_ranks)
{
    size_t bytes = 5 << 20, got;
    char *argument = gp_malloc(bytes);
    const uint64_t *facts;
    const void *data;
    gp_broadcast *shared;
    gp_spmd_result *block;

    REQUIRE(argument != NULL && team_begin(2, NULL));
    memset(argument, 9, bytes);
    for (int round = 0; round < 2; round++) {
        gp_spmd_request request = { .function = function("about"), .argument = argument, .bytes = bytes };

        if (round == 1) {
            REQUIRE_OK(gp_broadcast_new(&shared, argument, bytes, &err), err);
            request = (gp_spmd_request){ .function = function("about"), .shared = shared };
        }
        CHECK_STATUS(GP_OK, gp_spmd(&block, team, &request, &err));
        for (uint32_t index = 1; index <= 2; index++) {
            REQUIRE_OK(gp_spmd_result_get(block, index, &data, &got, &err), err);
            facts = data;
            CHECK(facts[2] == (bytes << 8 | 9));
        }
        gp_spmd_result_free(block);
    }
    gp_broadcast_free(shared);
    gp_free(argument);
}

TEST(one_failure_ends_the_block_and_is_reported_first)
{
    gp_spmd_result *block;
    gp_error own;
    const void *data;
    size_t bytes;

    REQUIRE(team_begin(3, NULL));
    check_whole(3);
    CHECK_STATUS(GP_ENOENT, block_on(&block, "one_fails", 0, NULL));
    CHECK_CONTAINS(err.message, "worker 2");
    CHECK_CONTAINS(err.message, "the second rank found nothing");
    REQUIRE(block != NULL);
    CHECK(gp_spmd_result_get(block, 1, &data, &bytes, &own) != GP_OK);
    CHECK_STATUS(GP_ENOENT, gp_spmd_result_get(block, 2, &data, &bytes, &own));
    CHECK_STATUS(GP_ECANCELED, gp_spmd_result_get(block, 3, &data, &bytes, &own));
    CHECK_CONTAINS(own.message, "worker 3");
    gp_spmd_result_free(block);
    check_whole(3);

    CHECK_STATUS(GP_EINVAL, block_on(&block, "all_fail", 0, NULL));
    CHECK_CONTAINS(err.message, "rank 3 fails");
    for (uint32_t index = 1; index <= 3; index++) {
        char words[40];

        snprintf(words, sizeof(words), "rank %u fails", index);
        CHECK_STATUS(GP_EINVAL, gp_spmd_result_get(block, index, &data, &bytes, &own));
        CHECK_CONTAINS(own.message, words);
    }
    gp_spmd_result_free(block);
    check_whole(3);
}

TEST(uncooperative_rank_is_replaced)
{
    REQUIRE(team_begin(2, NULL));
    CHECK_STATUS(GP_EINVAL, block_ends("deaf", 0, NULL));
    CHECK_CONTAINS(err.message, "the first rank fails");
    check_whole(2);
}

TEST(no_rank_waits_for_a_finished_rank)
{
    static const char *const ways[] = { "b", "r", "a", "c" };

    REQUIRE(team_begin(2, NULL));
    for (size_t k = 0; k < 4; k++) {
        CHECK_STATUS(GP_ESTATE, block_ends("mismatched", 0, ways[k]));
        CHECK_CONTAINS(err.message, "worker 2 ");
        CHECK_CONTAINS(err.message, "worker 1 ");
        CHECK_CONTAINS(err.message, "has finished, but");
        check_whole(2);
    }
}

TEST(unreceived_message_is_dropped_with_its_block)
{
    REQUIRE(team_begin(2, NULL));
    for (int round = 0; round < 3; round++) {
        CHECK_STATUS(GP_OK, block_ends("litter", 0, NULL));
        CHECK_STATUS(GP_OK, block_ends("tidy", 0, NULL));
    }
}

TEST(worker_failure_ends_the_block_and_the_next_block_is_complete)
{
    REQUIRE(team_begin(3, NULL));
    for (int round = 0; round < 4; round++) {
        CHECK_STATUS(GP_EPEER, block_ends("one_dies", 0, round % 2 == 0 ? "wait" : "compute"));
        CHECK_CONTAINS(err.message, "worker 3");
        CHECK_CONTAINS(err.message, "killed by signal 9");
        check_whole(3);
    }
    CHECK_STATUS(GP_EPEER, block_ends("one_dies", 2, "wait"));
    CHECK_CONTAINS(err.message, "worker 2");
    check_whole(3);
}

TEST(worker_that_fails_between_blocks_is_replaced_or_named)
{
    REQUIRE(team_begin(3, NULL));
    for (int round = 0; round < 8; round++) {
        gp_status_reply *rows = pools_settled(pool);
        bool idle = round % 2 == 0; /* the killed worker is not part of the next block */
        gp_status status;

        REQUIRE(rows != NULL);
        check_whole(3);
        kill((pid_t)rows->workers[idle ? 2 : 1].slot.pid, SIGKILL);
        gp_free(rows);
        gp_sleep_ms(round / 2 * 10);
        status = block_ends("sum", 2, NULL);
        if (idle || status == GP_OK) {
            CHECK_STATUS(GP_OK, status);
            if (status != GP_OK)
                printf("    round %d: %s\n", round, err.message);
        } else {
            CHECK_STATUS(GP_EPEER, status);
            CHECK_CONTAINS(err.message, "worker 2");
        }

        /* If the failure was not detected before the block starts, the block reports it. */
        status = block_ends("sum", 0, NULL);
        if (status != GP_OK) {
            CHECK_STATUS(GP_EPEER, status);
            CHECK_CONTAINS(err.message, idle ? "worker 3" : "worker 2");
        }
        check_whole(3);
    }
}

static volatile sig_atomic_t stop;

static void set_stop(int number)
{
    (void)number;
    stop = 1;
}

TEST(stop_and_a_time_limit_end_a_block)
{
    gp_spmd_request request = { .timeout_ms = 100 };
    gp_spmd_result *block;

    stop = 0;
    REQUIRE(team_begin(2, &(gp_team_options){ .stop = &stop }));
    request.function = function("nap");
    CHECK(gp_spmd(&block, team, &request, &err) != GP_OK);
    gp_spmd_result_free(block);
    check_whole(2);

    signal(SIGALRM, set_stop);
    ualarm(100000, 0);
    CHECK_STATUS(GP_ECANCELED, block_ends("nap", 0, NULL));
    stop = 0;
    check_whole(2);
}

TEST(block_waiting_for_a_busy_worker_can_be_stopped)
{
    gp_future *future;

    stop = 0;
    REQUIRE(team_begin(2, &(gp_team_options){ .stop = &stop }));
    REQUIRE_OK(
        gp_parfeval(&future, team, &(gp_parfeval_request){ .function = function("nap"), .worker = 2 }, &err),
        err);
    function("sum"); /* looked up while the workers are idle */
    signal(SIGALRM, set_stop);
    ualarm(200000, 0);
    CHECK_STATUS(GP_ECANCELED, block_ends("sum", 0, NULL));
    stop = 0;

    /* the running call was not disturbed */
    CHECK_STATUS(GP_ETIMEDOUT, gp_future_wait(future, 0, &err));
    gp_future_cancel(future);
    gp_future_free(future);
    check_whole(2);
}

TEST(ten_thousand_empty_blocks_leak_nothing)
{
    gp_spmd_request request = { 0 };
    unsigned descriptors[3] = { 0 };
    long memory[3] = { 0 };
    gp_status_reply *rows;
    pid_t pids[3] = { getpid() };
    gp_spmd_result *block;

    REQUIRE(team_begin(2, NULL));
    rows = pools_settled(pool);
    REQUIRE(rows != NULL);
    for (int k = 0; k < 2; k++)
        pids[k + 1] = (pid_t)rows->workers[k].slot.pid;
    gp_free(rows);
    request.function = function("empty");
    for (int round = 0; round < 10000; round++) {
        REQUIRE_OK(gp_spmd(&block, team, &request, &err), err);
        gp_spmd_result_free(block);
        for (int k = 0; k < 3 && round == 1000; k++) {
            descriptors[k] = descriptors_of(pids[k]);
            memory[k] = pools_own_kib(pids[k]);
        }
    }
    for (int k = 0; k < 3; k++) {
        CHECK_INT(descriptors[k], descriptors_of(pids[k]));
        if (pools_own_kib(pids[k]) > memory[k] + GROWTH_KIB)
            GP_TEST_FAIL("process %d grew from %ld to %ld KiB", k, memory[k], pools_own_kib(pids[k]));
    }
}

TEST(blocks_continue_while_schedulers_are_killed)
{
    scheduler_killer k = { .first_ms = 50, .every_ms = 250, .times = 4 };
    pid_t first;

    REQUIRE(team_begin(3, NULL));
    first = holder();
    killer_start(&k);
    for (int64_t until = gp_now_ms() + 2 * POOLS_TIMEOUT_MS;
         k.killed < k.times && gp_now_ms() < until && gp_test_failures == 0;)
        check_whole(3);
    CHECK_INT(4, killer_join(&k));
    check_whole(3);
    CHECK(holder() != first);
}
