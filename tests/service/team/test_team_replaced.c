/* test_team_replaced.c: a replacement worker learns the functions that waiting calls need. */
#include "tests/service/pools.h"

TEST(calls_that_wait_for_a_replaced_worker_find_their_function)
{
    enum { ROUNDS = 3, WAITING = 8 };
    const gp_function *first, *die, *last;
    gp_pool *pool = NULL;
    gp_team *team = NULL;
    gp_error err;
    const char *build = getenv("GP_BUILD_DIR") == NULL ? "." : getenv("GP_BUILD_DIR");
    char object[400], name[420];

    pools_begin(NULL);
    snprintf(object, sizeof(object), "%s/tests/service/replaced_tasks.so", build);
    REQUIRE_OK(gp_pool_open(&pool, &(gp_pool_options){ .workers = 1 }, &err), err);
    REQUIRE_OK(gp_team_open(&team, pool, NULL, &err), err);
    snprintf(name, sizeof(name), "%s:first", object);
    REQUIRE_OK(gp_function_find(&first, team, name, &err), err);
    snprintf(name, sizeof(name), "%s:die", object);
    REQUIRE_OK(gp_function_find(&die, team, name, &err), err);
    snprintf(name, sizeof(name), "%s:last", object);
    REQUIRE_OK(gp_function_find(&last, team, name, &err), err);
    for (int round = 0; round < ROUNDS; round++) {
        gp_future *dying, *waiting[WAITING];

        REQUIRE_OK(gp_parfeval(&dying, team, &(gp_parfeval_request){ .function = die, .attempts = 1 }, &err),
                   err);
        for (int i = 0; i < WAITING; i++)
            REQUIRE_OK(gp_parfeval(&waiting[i], team, &(gp_parfeval_request){ .function = last }, &err), err);
        CHECK_STATUS(GP_EPEER, gp_future_result(dying, &(const void *){ NULL }, &(size_t){ 0 }, &err));
        gp_future_free(dying);
        for (int i = 0; i < WAITING; i++) {
            gp_status status = gp_future_result(waiting[i], &(const void *){ NULL }, &(size_t){ 0 }, &err);

            if (status != GP_OK)
                GP_TEST_FAIL("call %d of round %d: %s", i, round, err.message);
            gp_future_free(waiting[i]);
        }
    }
    gp_team_close(team);
    gp_pool_close(pool);
    pools_end();
}
