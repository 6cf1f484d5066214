/* test_behave_payloads.c: large and shared payloads in any number and order. */
#include <sys/resource.h>

#include "tests/service/team/behave.h"
static gp_future *echo_shared(gp_broadcast *shared)
{
    return call_with((gp_parfeval_request){ .shared = shared }, "echo", NULL, 0);
}

static bool gives(gp_future *future, const char *text)
{
    const void *data = NULL;
    size_t bytes = 0;
    bool same = gp_future_result(future, &data, &bytes, &err) == GP_OK && bytes == strlen(text) + 1 &&
                memcmp(data, text, bytes) == 0;

    gp_future_free(future);
    return same;
}

TEST(broadcasts_work_in_any_order_and_after_a_worker_failure)
{
    gp_broadcast *first = NULL, *second = NULL;
    void *data;

    BEGIN(2);
    REQUIRE_OK(gp_broadcast_new(&first, "first", 6, &err), err);
    REQUIRE_OK(gp_broadcast_map(&second, &data, 7, &err), err);
    memcpy(data, "second", 7);
    for (int i = 0; i < 4; i++) {
        CHECK(gives(echo_shared(second), "second"));
        CHECK(gives(echo_shared(first), "first"));
    }
    CHECK_INT(0, team_info().worker_deaths);
    for (uint32_t worker = 1; worker <= 2; worker++)
        gp_future_free(call_with((gp_parfeval_request){ .worker = worker, .attempts = 1 }, "die", "kill", 4));
    CHECK(gives(echo_shared(first), "first"));
    gp_broadcast_free(first); /* at any time after the calls that use it were submitted */
    CHECK(gives(echo_shared(second), "second"));
    gp_broadcast_free(second);
    CHECK_INT(2, team_info().worker_deaths);
}

/* Return whether this process may open `count` descriptors: each payload is one. */
static bool may_open(rlim_t count)
{
    struct rlimit files;

    if (getrlimit(RLIMIT_NOFILE, &files) != 0 || files.rlim_max < count)
        return false;
    files.rlim_cur = files.rlim_cur < count ? count : files.rlim_cur;
    return setrlimit(RLIMIT_NOFILE, &files) == 0;
}

TEST(broadcasts_beyond_the_worker_cache_are_resent_on_demand)
{
    enum { SHARED = 1300 };
    static gp_broadcast *shared[SHARED];

    if (!may_open(SHARED + 200))
        SKIP("the descriptor limit is too low");
    BEGIN(2);
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < SHARED; i++) {
            char text[16];

            snprintf(text, sizeof(text), "%d", i);
            if (shared[i] == NULL)
                REQUIRE_OK(gp_broadcast_new(&shared[i], text, strlen(text) + 1, &err), err);
            if (!gives(echo_shared(shared[i]), text))
                REQUIRE(!"another text came back");
        }
    for (int i = 0; i < SHARED; i++)
        gp_broadcast_free(shared[i]);
    CHECK_INT(0, team_info().worker_deaths);
}

TEST(large_values_beyond_the_payload_limit_are_kept)
{
    enum { VALUES = 1100, BYTES = 40000 };
    static unsigned char value[BYTES];
    void *data;
    size_t bytes;

    if (!may_open(VALUES + 200))
        SKIP("the descriptor limit is too low");
    BEGIN(2);
    for (int i = 0; i < VALUES; i++) {
        char name[16];

        snprintf(name, sizeof(name), "v%d", i);
        memset(value, i % 251, BYTES);
        REQUIRE_OK(gp_team_put(team, GP_EVERY_WORKER, name, value, BYTES, &err), err);
    }
    for (int i = 0; i < VALUES; i += 99) {
        char name[16];

        snprintf(name, sizeof(name), "v%d", i);
        REQUIRE_OK(gp_team_get(team, 2, name, &data, &bytes, &err), err);
        CHECK(bytes == BYTES && ((unsigned char *)data)[BYTES - 1] == i % 251);
        gp_buffer_free(data);
    }
    CHECK_INT(0, team_info().worker_deaths);
}

TEST(many_large_arguments_can_be_queued)
{
    enum { CALLS = 3000, BYTES = 40000 };
    static gp_future *futures[CALLS];
    static unsigned char argument[BYTES];
    const unsigned char *data;
    size_t bytes;

    if (!may_open(CALLS + 200))
        SKIP("the descriptor limit is too low");
    BEGIN(2);
    find("echo");
    for (int i = 0; i < CALLS; i++) {
        memset(argument, i % 251, BYTES);
        futures[i] = call_with((gp_parfeval_request){ 0 }, "echo", argument, BYTES);
    }
    for (int i = 0; i < CALLS; i++) {
        REQUIRE_OK(gp_future_result(futures[i], (const void **)&data, &bytes, &err), err);
        CHECK(bytes == BYTES && data[BYTES - 1] == i % 251);
        gp_future_free(futures[i]);
    }
}

TEST(full_queue_of_large_items_blocks_the_sender_before_descriptors_run_out)
{
    enum { ITEMS = 3000 };
    gp_queue *queue = NULL;
    unsigned char *item;
    uint32_t worker;
    size_t bytes;
    int before;

    BEGIN(1);
    find("queue_large");
    before = descriptors_of(getpid());
    REQUIRE_OK(gp_queue_open(&queue, team, "large", &(gp_queue_options){ .depth = 4 }, &err), err);
    gp_future *sender = call("queue_large", ITEMS);

    CHECK_STATUS(GP_ETIMEDOUT, gp_future_wait(sender, 300, &err));
    CHECK(descriptors_of(getpid()) < before + 300);
    for (int i = 1; i <= ITEMS; i++) {
        REQUIRE_OK(gp_queue_next(queue, &worker, (void **)&item, &bytes, POOLS_TIMEOUT_MS, &err), err);
        if (bytes != BEHAVE_LARGE || item[0] != i % 251 || item[bytes - 1] != i % 251)
            REQUIRE(!"another item was expected");
        gp_buffer_free(item);
    }
    CHECK_STATUS(GP_OK, end_of(sender));
    CHECK_INT(0, team_info().worker_deaths);
    gp_queue_close(queue);
}
