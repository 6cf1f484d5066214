/* Check the promises of cluster jobs under simulated faults, and prove that planted bugs are found.
 * `test_cluster_sim trace SEED [BUG]` prints the events of one run. */
#include "tests/client/cluster/sim/sim.h"
#include "tests/gp_test.h"

enum { RUNS = 3000, PLANTED_RUNS = 60000 };

static const char *const bug_names[SIM_BUG_COUNT] = {
#define SIM_BUG(id, name) [SIM_BUG_##id] = name,
#include "tests/client/cluster/sim/bugs.def"
#undef SIM_BUG
};

/* GP_CLUSTER_SIM_SEED: print the events of that run; GP_CLUSTER_SIM_BUG: with that bug. */
TEST(one_run_can_be_traced)
{
    const char *seed = getenv("GP_CLUSTER_SIM_SEED"), *bug = getenv("GP_CLUSTER_SIM_BUG");
    sim_tally tally = { 0 };
    const char *broken;

    for (int i = 1; bug != NULL && i < SIM_BUG_COUNT; i++)
        sim_planted = strcmp(bug, bug_names[i]) == 0 ? (sim_bug)i : sim_planted;
    sim_trace = seed != NULL;
    broken = sim_run(seed != NULL ? strtoull(seed, NULL, 10) : 1, &tally);
    sim_trace = false;
    sim_planted = SIM_BUG_NONE;
    if (broken != NULL && bug == NULL)
        GP_TEST_FAIL("%s", broken);
}

TEST(promises_hold_under_all_kinds_of_faults)
{
    sim_tally t = { 0 };

    sim_planted = SIM_BUG_NONE;
    for (uint64_t seed = 1; seed <= RUNS && gp_test_failures == 0; seed++) {
        const char *broken = sim_run(seed, &t);

        if (broken != NULL)
            GP_TEST_FAIL("seed %llu breaks the promise: %s", (unsigned long long)seed, broken);
    }
    printf("     %llu kills, %llu launches, %llu repeated, %llu accepted late, %llu strays canceled, %llu "
           "requeues, %llu results, %llu cancels, %llu lost, %llu returned, "
           "%llu released\n",
           (unsigned long long)t.deaths, (unsigned long long)t.launches, (unsigned long long)t.relaunches,
           (unsigned long long)t.late_accepts, (unsigned long long)t.strays, (unsigned long long)t.requeues,
           (unsigned long long)t.results, (unsigned long long)t.cancels, (unsigned long long)t.losses,
           (unsigned long long)t.returns, (unsigned long long)t.releases);
    CHECK(t.deaths >= RUNS / 4 && t.relaunches >= RUNS / 50 && t.late_accepts >= RUNS / 50);
    CHECK(t.strays >= RUNS / 50 && t.requeues >= RUNS / 20 && t.results >= RUNS / 4);
    CHECK(t.cancels >= RUNS / 5 && t.losses >= RUNS / 50 && t.returns > 0 && t.refusals > 0);
    CHECK(t.glitches >= RUNS / 20 && t.releases >= RUNS / 50);
}

TEST(planted_bugs_are_found)
{
    for (int bug = 1; bug < SIM_BUG_COUNT; bug++) {
        sim_tally tally = { 0 };
        const char *broken = NULL;
        uint64_t seed = 0;

        sim_planted = (sim_bug)bug;
        while (broken == NULL && seed < PLANTED_RUNS)
            broken = sim_run(++seed, &tally);
        if (broken == NULL)
            GP_TEST_FAIL("%s is not found in %d runs", bug_names[bug], PLANTED_RUNS);
        else
            printf("     %s: seed %llu, %s\n", bug_names[bug], (unsigned long long)seed, broken);
    }
    sim_planted = SIM_BUG_NONE;
}
