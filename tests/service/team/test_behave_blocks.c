/* test_behave_blocks.c: spmd blocks: communication, resident results, errors that end the other
 * ranks, endless blocks. */
#include "tests/service/team/behave.h"

static gp_status run_block(gp_spmd_result **block, const char *name, const void *argument, size_t bytes)
{
    return gp_spmd(block, team,
                   &(gp_spmd_request){ .function = find(name), .argument = argument, .bytes = bytes }, &err);
}

TEST(ranks_are_numbered_from_one_and_send_to_each_other)
{
    gp_spmd_result *block = NULL;
    const int64_t *number;
    size_t bytes;

    BEGIN(3);
    REQUIRE_OK(run_block(&block, "ring", NULL, 0), err);
    CHECK_INT(3, gp_spmd_result_size(block));
    for (uint32_t index = 1; index <= 3; index++) {
        REQUIRE_OK(gp_spmd_result_get(block, index, (const void **)&number, &bytes, &err), err);
        CHECK_INT(100 * index + 3, *number);
    }
    CHECK_STATUS(GP_EINVAL, gp_spmd_result_get(block, 4, (const void **)&number, &bytes, &err));
    gp_spmd_result_free(block);
    REQUIRE_OK(run_block(&block, "probe_tags", NULL, 0), err);
    gp_spmd_result_free(block);
}

TEST(collectives_work_in_index_order)
{
    gp_spmd_result *block = NULL;
    const void *data;
    size_t bytes;

    BEGIN(3);
    REQUIRE_OK(run_block(&block, "collectives", NULL, 0), err);
    for (uint32_t index = 1; index <= 3; index++) {
        REQUIRE_OK(gp_spmd_result_get(block, index, &data, &bytes, &err), err);
        CHECK(bytes == 6 && memcmp(data, "\1\2\2\3\3\3", 6) == 0);
    }
    gp_spmd_result_free(block);
    REQUIRE_OK(run_block(&block, "join_in_order", NULL, 0), err);
    REQUIRE_OK(gp_spmd_result_get(block, 2, &data, &bytes, &err), err);
    CHECK(bytes == 3 && memcmp(data, "abc", 3) == 0);
    gp_spmd_result_free(block);
}

TEST(large_results_stay_on_the_workers_until_they_are_fetched)
{
    int64_t length = 3 << 20;
    gp_spmd_result *block = NULL;
    const unsigned char *data;
    size_t bytes;

    BEGIN(2);
    REQUIRE_OK(run_block(&block, "make_bytes", &length, sizeof(length)), err);
    for (uint32_t index = 2; index >= 1; index--) {
        REQUIRE_OK(gp_spmd_result_get(block, index, (const void **)&data, &bytes, &err), err);
        REQUIRE(bytes == (size_t)length);
        CHECK(data[0] == 0 && data[250] == 250 && data[length - 1] == (length - 1) % 251);
    }
    gp_spmd_result_free(block);
}

TEST(block_of_n_or_of_a_range_has_that_many_ranks)
{
    gp_spmd_result *block = NULL;
    gp_spmd_request request = { .workers_min = 1, .workers_max = 8 };

    BEGIN(3);
    request.function = find("ring");
    REQUIRE_OK(gp_spmd(&block, team, &request, &err), err);
    CHECK_INT(3, gp_spmd_result_size(block));
    gp_spmd_result_free(block);
    request.workers_min = request.workers_max = 2;
    REQUIRE_OK(gp_spmd(&block, team, &request, &err), err);
    CHECK_INT(2, gp_spmd_result_size(block));
    gp_spmd_result_free(block);
    request.workers_min = request.workers_max = 1;
    REQUIRE_OK(gp_spmd(&block, team, &request, &err), err);
    gp_spmd_result_free(block);
}

/* ---- errors ---- */

/* Run a block of three ranks in which rank 2 fails or exits while the others wait for it. */
static gp_status run_one_of_many(gp_spmd_result **block, const char *does, const char *others)
{
    behave_one one = { .rank = 2 };

    snprintf(one.does, sizeof(one.does), "%s", does);
    snprintf(one.others, sizeof(one.others), "%s", others);
    *block = NULL;
    return run_block(block, "one_of_many", &one, sizeof(one));
}

/* Check that a rank reports the failure of another one as the cause. */
static void check_ended_by_another(gp_spmd_result *block, uint32_t index, const char *cause)
{
    const void *data;
    size_t bytes;
    char own[20];

    CHECK_STATUS(GP_ECANCELED, gp_spmd_result_get(block, index, &data, &bytes, &err));
    snprintf(own, sizeof(own), "worker %u: ", index);
    CHECK_CONTAINS(err.message, own);
    CHECK_CONTAINS(err.message, cause);
}

TEST(failing_rank_ends_the_others_in_any_operation)
{
    static const char *const others[] = { "barrier", "receive", "spin" };
    gp_spmd_result *block;
    const void *data;
    size_t bytes;

    BEGIN(3);
    find("one_of_many");
    for (int i = 0; i < 3; i++) {
        int64_t since_ms = gp_now_ms();
        bool kept = team_info().worker_deaths == 0;

        CHECK_STATUS(GP_ECORRUPT, run_one_of_many(&block, "fail", others[i]));
        CHECK(!kept || workers_kept(since_ms));
        CHECK_CONTAINS(err.message, "rank 2 gives up");
        CHECK_CONTAINS(err.message, "2");
        REQUIRE(block != NULL);
        check_ended_by_another(block, 1, "another rank failed: worker 2: rank 2 gives up");
        CHECK_STATUS(GP_ECORRUPT, gp_spmd_result_get(block, 2, &data, &bytes, &err));
        check_ended_by_another(block, 3, "another rank failed: worker 2: rank 2 gives up");
        gp_spmd_result_free(block);
    }
    REQUIRE_OK(run_block(&block, "collectives", NULL, 0), err); /* the team is complete */
    gp_spmd_result_free(block);
}

/* The collective always fails first here; in the test above this depends on timing. */
TEST(a_failure_of_a_rank_explains_the_collective_that_failed_before)
{
    gp_spmd_result *block = NULL;

    BEGIN(3);
    CHECK_STATUS(GP_ECORRUPT, run_block(&block, "missed_barrier", NULL, 0));
    CHECK_CONTAINS(err.message, "worker 2: rank 2 gives up");
    REQUIRE(block != NULL);
    check_ended_by_another(block, 1, "another rank failed: worker 2: rank 2 gives up");
    gp_spmd_result_free(block);
}

TEST(crashed_rank_ends_the_others_and_is_replaced)
{
    static const char *const others[] = { "barrier", "receive", "spin" };
    gp_spmd_result *block;
    const void *data;
    size_t bytes;

    BEGIN(3);
    for (int i = 0; i < 3; i++) {
        CHECK_STATUS(GP_EPEER, run_one_of_many(&block, "kill", others[i]));
        CHECK_CONTAINS(err.message, "signal 9");
        REQUIRE(block != NULL);
        CHECK_STATUS(GP_EPEER, gp_spmd_result_get(block, 2, &data, &bytes, &err));
        check_ended_by_another(block, 1, "another rank failed: worker 2 (pid ");
        check_ended_by_another(block, 3, "signal 9");
        gp_spmd_result_free(block);
        REQUIRE_OK(run_block(&block, "collectives", NULL, 0), err);
        gp_spmd_result_free(block);
    }
    CHECK_INT(3, team_info().worker_deaths);
    CHECK_INT(3, workers_alive());
}

TEST(rank_that_returns_early_does_not_block_the_others)
{
    gp_spmd_result *block;

    BEGIN(3);
    CHECK(run_one_of_many(&block, "leave", "receive") != GP_OK);
    gp_spmd_result_free(block);
    CHECK(run_one_of_many(&block, "leave", "barrier") != GP_OK);
    gp_spmd_result_free(block);
    CHECK_STATUS(GP_ESTATE, run_block(&block, "disagree", NULL, 0));
    gp_spmd_result_free(block);
    REQUIRE_OK(run_block(&block, "collectives", NULL, 0), err);
    gp_spmd_result_free(block);
}

TEST(all_errors_of_a_block_are_readable_and_the_earliest_is_returned)
{
    gp_spmd_result *block = NULL;
    const void *data;
    size_t bytes;

    BEGIN(3);
    CHECK_STATUS(GP_EINVAL, run_block(&block, "all_fail", NULL, 0));
    CHECK_CONTAINS(err.message, "rank 3 has its own reason"); /* the earliest */
    REQUIRE(block != NULL);
    for (uint32_t index = 1; index <= 3; index++) {
        char own[40];

        snprintf(own, sizeof(own), "rank %u has its own reason", index);
        CHECK_STATUS(GP_EINVAL, gp_spmd_result_get(block, index, &data, &bytes, &err));
        CHECK_CONTAINS(err.message, own);
    }
    gp_spmd_result_free(block);
}

TEST(block_that_exceeds_its_time_limit_is_ended)
{
    int64_t ms = 1 << 30; /* about 12 days */
    gp_spmd_result *block = NULL;
    gp_spmd_request request = { .argument = &ms, .bytes = sizeof(ms), .timeout_ms = 50 };
    gp_status status;

    BEGIN(2);
    request.function = find("nap");
    status = gp_spmd(&block, team, &request, &err);
    CHECK_STATUS(GP_ETIMELIMIT, status);
    CHECK_CONTAINS(err.message, "exceeded its time limit of 50 ms");
    for (uint32_t index = 1; index <= 2; index++) {
        const void *data;
        size_t bytes;

        CHECK(gp_spmd_result_get(block, index, &data, &bytes, &err) != GP_OK);
        CHECK_CONTAINS(err.message, "exceeded its time limit of 50 ms");
    }
    gp_spmd_result_free(block);
    CHECK_INT(25, number_of(call("square", 5)));
}

TEST(results_on_a_failed_worker_are_lost_and_the_others_kept)
{
    int64_t length = 1 << 20;
    gp_spmd_result *block = NULL;
    const void *data;
    size_t bytes;

    BEGIN(2);
    REQUIRE_OK(run_block(&block, "make_bytes", &length, sizeof(length)), err);
    gp_future *death = call_with((gp_parfeval_request){ .worker = 1, .attempts = 1 }, "die", "kill", 4);

    CHECK_STATUS(GP_EPEER, end_of(death));
    CHECK_STATUS(GP_ENOENT, gp_spmd_result_get(block, 1, &data, &bytes, &err));
    CHECK_CONTAINS(err.message, "worker 1");
    CHECK_STATUS(GP_OK, gp_spmd_result_get(block, 2, &data, &bytes, &err));
    CHECK_INT(length, bytes);
    gp_spmd_result_free(block);
}

TEST(values_stay_on_the_workers_from_block_to_block)
{
    gp_spmd_result *block = NULL;
    const void *data = NULL;
    size_t bytes = 0;

    BEGIN(2);
    REQUIRE_OK(run_block(&block, "put_value", "season=spring", 13), err);
    gp_spmd_result_free(block);
    REQUIRE_OK(run_block(&block, "get_value", "season", 6), err);
    for (uint32_t index = 1; index <= 2; index++) {
        REQUIRE_OK(gp_spmd_result_get(block, index, &data, &bytes, &err), err);
        CHECK(bytes == 6 && memcmp(data, "spring", 6) == 0);
    }
    gp_spmd_result_free(block);
}

/* Sanitizers delay the reuse of freed memory. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { GROWTH_KIB = 1 << 18 };
#else
enum { GROWTH_KIB = 1024 };
#endif

TEST(many_empty_blocks_leak_nothing)
{
    enum { BLOCKS = 10000, WARM = 500 };
    pid_t pids[3] = { getpid(), 0, 0 };
    int files[3] = { 0 };
    long kib[3] = { 0 };
    gp_spmd_result *block = NULL;
    gp_spmd_request request = { 0 };

    BEGIN(2);
    request.function = find("nothing");
    for (int n = 0; n < 2; n++) {
        gp_future *future = call_with((gp_parfeval_request){ .worker = (uint32_t)n + 1 }, "where", "", 0);

        pids[n + 1] = (pid_t)place_of(future).pid;
        gp_future_free(future);
    }
    for (int i = 0; i < BLOCKS; i++) {
        REQUIRE_OK(gp_spmd(&block, team, &request, &err), err);
        gp_spmd_result_free(block);
        for (int p = 0; p < 3 && i == WARM; p++) {
            files[p] = descriptors_of(pids[p]);
            kib[p] = pools_own_kib(pids[p]);
        }
    }
    for (int p = 0; p < 3; p++) {
        CHECK_INT(files[p], descriptors_of(pids[p]));
        if (pools_own_kib(pids[p]) - kib[p] >= GROWTH_KIB)
            GP_TEST_FAIL("process %d of 3 grew from %ld to %ld KiB", p, kib[p], pools_own_kib(pids[p]));
    }
}
