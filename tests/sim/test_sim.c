/* test_sim.c -- the promises of the scheduler under thousands of faults, and proof that breaking them shows.
 *
 *   test_sim_core                       all tests
 *   GP_SIM_SEED=N test_sim_core replay  one run again, with what it was (GP_SIM_MUTANT=M plants bug M)
 *   GP_SIM_RUNS=N test_sim_core promise more runs than ctest has time for */
#include "tests/gp_test.h"
#include "tests/sim/sim.h"

enum { RUNS = 300, MUTANT_RUNS = 300 };

static sim world;

static bool sim_setup(void)
{
    if (world.queue == NULL)
        world.queue = malloc(SIM_QUEUE * sizeof(*world.queue));
    if (world.actions == NULL) /* the default configuration's bound is above the simulation's */
        world.actions = malloc(1024 * sizeof(*world.actions));
    return world.queue != NULL && world.actions != NULL;
}

TEST(every_promise_holds_under_deaths_hangs_restarts_and_late_messages)
{
    const char *more = getenv("GP_SIM_RUNS");
    uint64_t steps = 0, grants = 0, deaths = 0, hangs = 0, restarts = 0, claims = 0;
    uint64_t runs = more == NULL ? RUNS : strtoull(more, NULL, 10);

    REQUIRE(sim_setup());
    gp_core_mutation = GP_MUTANT_NONE;
    for (uint64_t seed = 1; seed <= runs; seed++) {
        if (!sim_run(&world, seed))
            GP_TEST_FAIL("seed %llu at %lld ms: %s; again: GP_SIM_SEED=%llu test_sim_core replay",
                         (unsigned long long)seed, (long long)world.now_ms, world.failure,
                         (unsigned long long)seed);
        steps += world.steps;
        grants += world.grants;
        deaths += world.deaths;
        hangs += world.hangs;
        restarts += world.restarts;
        claims += world.claims;
    }
    printf("     %llu runs: %llu events, %llu grants, %llu deaths, %llu hangs, %llu restarts, %llu leases "
           "adopted\n",
           (unsigned long long)runs, (unsigned long long)steps, (unsigned long long)grants,
           (unsigned long long)deaths, (unsigned long long)hangs, (unsigned long long)restarts,
           (unsigned long long)claims);
    CHECK(steps >= 200000);
    CHECK(grants >= 2000 && deaths >= 5000 && hangs >= 500 && restarts >= 100 && claims >= 100);
}

TEST(the_same_seed_is_the_same_run)
{
    uint64_t steps, draws;

    REQUIRE(sim_setup());
    gp_core_mutation = GP_MUTANT_NONE;
    CHECK(sim_run(&world, 77));
    steps = world.steps;
    draws = world.draws;
    CHECK(sim_run(&world, 77));
    CHECK_INT(steps, world.steps);
    CHECK_INT(draws, world.draws);
}

/* Runs seeds until one fails; prints which and why. */
static bool mutant_is_found(gp_core_mutant mutant)
{
    bool found = false;

    gp_core_mutation = mutant;
    for (uint64_t seed = 1; !found && seed <= MUTANT_RUNS; seed++) {
        found = !sim_run(&world, seed);
        if (found)
            printf("     mutant %d, seed %llu: %s\n", (int)mutant, (unsigned long long)seed, world.failure);
    }
    gp_core_mutation = GP_MUTANT_NONE;
    return found;
}

TEST(a_double_grant_is_found)
{
    REQUIRE(sim_setup());
    CHECK(mutant_is_found(GP_MUTANT_DOUBLE_GRANT));
}

TEST(a_lost_release_is_found)
{
    REQUIRE(sim_setup());
    CHECK(mutant_is_found(GP_MUTANT_LOST_RELEASE));
}

TEST(an_acknowledgement_of_an_old_generation_that_counts_is_found)
{
    REQUIRE(sim_setup());
    CHECK(mutant_is_found(GP_MUTANT_STALE_ACK));
}

TEST(a_client_told_of_half_a_gang_is_found)
{
    REQUIRE(sim_setup());
    CHECK(mutant_is_found(GP_MUTANT_PARTIAL_GANG));
}

TEST(a_dead_worker_that_speaks_for_its_replacement_is_found)
{
    REQUIRE(sim_setup());
    CHECK(mutant_is_found(GP_MUTANT_OLD_INCARNATION));
}

TEST(a_lease_that_outlives_its_client_is_found)
{
    REQUIRE(sim_setup());
    CHECK(mutant_is_found(GP_MUTANT_DEAF_TO_EOF));
}

TEST(overtaking_in_the_queue_is_found)
{
    REQUIRE(sim_setup());
    CHECK(mutant_is_found(GP_MUTANT_OVERTAKE));
}

TEST(a_hung_worker_that_is_waited_for_is_found)
{
    REQUIRE(sim_setup());
    CHECK(mutant_is_found(GP_MUTANT_FORGOTTEN_DEADLINE));
}

TEST(a_grant_of_a_worker_whose_lease_may_yet_be_claimed_is_found)
{
    REQUIRE(sim_setup());
    CHECK(mutant_is_found(GP_MUTANT_HASTY_GRANT));
}

TEST(a_lease_that_nobody_claims_and_nobody_revokes_is_found)
{
    REQUIRE(sim_setup());
    CHECK(mutant_is_found(GP_MUTANT_KEPT_CLAIM));
}

TEST(a_claim_that_is_believed_against_its_workers_is_found)
{
    REQUIRE(sim_setup());
    CHECK(mutant_is_found(GP_MUTANT_BLIND_CLAIM));
}

TEST(replay)
{
    const char *seed = getenv("GP_SIM_SEED"), *mutant = getenv("GP_SIM_MUTANT");

    if (seed == NULL)
        SKIP("GP_SIM_SEED names the run to replay");
    REQUIRE(sim_setup());
    gp_core_mutation = mutant == NULL ? GP_MUTANT_NONE : (gp_core_mutant)atoi(mutant);
    if (!sim_run(&world, strtoull(seed, NULL, 10)))
        GP_TEST_FAIL("at %lld ms, after %llu events: %s", (long long)world.now_ms,
                     (unsigned long long)world.steps, world.failure);
    gp_core_mutation = GP_MUTANT_NONE;
}
