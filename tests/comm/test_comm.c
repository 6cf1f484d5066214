/* test_comm.c -- what collectives and messages compute, between real processes. */
#include <pthread.h>

#include "tests/comm/ranks.h"

enum { SMALL_ARENA = 1 << 20 };

/* ---- d2l 12.5 ---- */

static void ones_and_twos(rank_place *place)
{
    gp_comm *comm = join_all(place, SMALL_ARENA);
    float *data = NULL;
    void *range = NULL;
    gp_error err;

    REQUIRE(comm != NULL);
    REQUIRE_OK(gp_comm_arena_alloc(comm, 2 * sizeof(float), &range, &err), err);
    data = range;
    data[0] = data[1] = (float)(gp_comm_rank(comm) + 1);
    REQUIRE_OK(gp_comm_all_reduce(comm, data, 2, GP_F32, GP_COMM_SUM, &err), err);
    CHECK(data[0] == 3.0f && data[1] == 3.0f);
    gp_comm_free(comm);
}

TEST(allreduce_of_ones_and_twos_gives_threes_on_both_ranks)
{
    run_ranks(2, ones_and_twos);
}
