/* Check the promises under simulated faults, and prove that planted bugs are found. tests/sim/run
 * does the same for longer. */
#include "tests/gp_test.h"
#include "tests/sim/cluster.h"

enum { RUNS = 600, RATE = 25, PLANTED_SEEDS = 8000 };

static sim *world;

static bool world_there(void)
{
    if (world == NULL)
        world = sim_new();
    sim_planted = SIM_BUG_NONE;
    return world != NULL;
}

/* Fail with a line for found.def. */
static void fail_with(sim_script *script, sim_outcome *outcome)
{
    static char text[SIM_SCRIPT_BYTES];
    uint32_t runs = sim_shrink(script, outcome, sim_run, world);

    sim_script_print(script, text);
    GP_TEST_FAIL("%s: %s (at %lld ms; shrunk in %u runs)\nSIM_FOUND(\"%s\",\n          \"%s\")",
                 outcome->check, outcome->why, (long long)outcome->at_ms, runs, outcome->why, text);
}

TEST(promises_hold_under_all_kinds_of_faults)
{
    sim_tally sum = { 0 };
    sim_script script;
    sim_outcome outcome;

    REQUIRE(world_there());
    for (uint64_t seed = 1; seed <= RUNS && gp_test_failures == 0; seed++) {
        sim_script_draw(&script, seed, RATE);
        sim_run(world, &script, &outcome);
        if (!outcome.kept)
            fail_with(&script, &outcome);
        sum.events += outcome.events;
        sum.faults += world->tally.faults;
        sum.grants += world->tally.grants;
        sum.deaths += world->tally.deaths;
        sum.restarts += world->tally.restarts;
        sum.claims += world->tally.claims;
        sum.calls += world->tally.calls;
        sum.reruns += world->tally.reruns;
        sum.jobs += world->tally.jobs;
        sum.train_steps += world->tally.train_steps;
        sum.regroups += world->tally.regroups;
        sum.resized += world->tally.resized;
        for (int kind = 0; kind < SIM_FAULT_KINDS; kind++)
            sum.of[kind] += world->tally.of[kind];
    }
    printf("     %llu events, %llu faults: %llu worker failures, %llu scheduler failures; %llu leases, %llu "
           "adopted; "
           "%llu call results, %llu team sizes, %llu jobs, %llu restarts\n",
           (unsigned long long)sum.events, (unsigned long long)sum.faults, (unsigned long long)sum.deaths,
           (unsigned long long)sum.restarts, (unsigned long long)sum.grants, (unsigned long long)sum.claims,
           (unsigned long long)sum.calls, (unsigned long long)sum.resized, (unsigned long long)sum.jobs,
           (unsigned long long)sum.reruns);
    CHECK(sum.events >= 800000 && sum.faults >= 50000);
    CHECK(sum.deaths >= 2000 && sum.restarts >= 500 && sum.grants >= 1000 && sum.claims >= 60);
    CHECK(sum.train_steps >= 20000 && sum.regroups >= 20 && sum.resized >= 30);
    CHECK(sum.calls >= 5000 && sum.jobs >= 2000 && sum.reruns >= 200);
    for (int kind = 0; kind < SIM_FAULT_KINDS; kind++)
        CHECK(sum.of[kind] > 0);
}

TEST(scripts_reproduce_runs_exactly)
{
    sim_script script, again;
    sim_outcome first, second, other;
    char text[SIM_SCRIPT_BYTES], why[120];

    REQUIRE(world_there());
    sim_script_draw(&script, 77, RATE);
    sim_run(world, &script, &first);
    sim_script_draw(&again, 78, RATE);
    sim_run(world, &again, &other);
    sim_script_print(&script, text); /* including a round trip through text */
    REQUIRE(sim_script_parse(&again, text, why));
    sim_run(world, &again, &second);
    CHECK(first.kept && second.kept);
    CHECK_INT(first.events, second.events);
    CHECK(first.trace == second.trace && first.trace != other.trace);
}

TEST(malformed_scripts_are_refused_with_a_message)
{
    sim_script script;
    char why[120] = "";

    CHECK(!sim_script_parse(&script, "seed 1", why));
    CHECK_CONTAINS(why, "begins with");
    CHECK(!sim_script_parse(&script, "seed 1 slots 1 clients 1 submitters 0 calm 10: 5 kill-everyone 0 0",
                            why));
    CHECK_CONTAINS(why, "kill-everyone");
    CHECK(!sim_script_parse(&script, "seed 1 slots 1 clients 1 submitters 0 calm 10: 5 kill-worker", why));
    CHECK_CONTAINS(why, "MS FAULT TARGET AMOUNT");
}

TEST(known_failing_scripts_pass)
{
    static const struct {
        const char *was, *script;
    } scripts[] = {
#define SIM_FOUND(was, script) { was, script },
#include "tests/sim/found.def"
#undef SIM_FOUND
    };
    sim_script script;
    sim_outcome outcome;
    char why[120];

    REQUIRE(world_there());
    for (size_t i = 0; i < sizeof(scripts) / sizeof(scripts[0]); i++) {
        if (!sim_script_parse(&script, scripts[i].script, why)) {
            GP_TEST_FAIL("script %zu: %s", i + 1, why);
            continue;
        }
        sim_run(world, &script, &outcome);
        if (!outcome.kept)
            GP_TEST_FAIL("%s: %s; it was: %s", outcome.check, outcome.why, scripts[i].was);
    }
}

/* Draw the next failing script after a seed. Return its seed; 0: none in PLANTED_SEEDS. */
static uint64_t failing_draw(sim_script *script, sim_outcome *outcome, uint64_t seed)
{
    do {
        sim_script_draw(script, ++seed, RATE);
        sim_run(world, script, outcome);
    } while (outcome->kept && seed < PLANTED_SEEDS);
    return outcome->kept ? 0 : seed;
}

TEST(simulation_finds_every_planted_bug)
{
    sim_script script;
    sim_outcome outcome;

    if (GP_SANITIZED)
        SKIP("the search for planted bugs takes minutes under a sanitizer");
    REQUIRE(world_there());
    for (int bug = 1; bug < SIM_BUG_COUNT; bug++) {
        sim_planted = (sim_bug)bug;
        const uint64_t seed = failing_draw(&script, &outcome, 0);

        if (seed == 0)
            GP_TEST_FAIL("%s was not found within %d seeds", sim_bug_names[bug], PLANTED_SEEDS);
        else
            printf("     %-18s seed %3llu, %s: %.100s\n", sim_bug_names[bug], (unsigned long long)seed,
                   outcome.check, outcome.why);
    }
    sim_planted = SIM_BUG_NONE;
}

/* A failing script must shrink from dozens of faults to those that matter and still reproduce the
 * failure. Some failures need many faults, but not those of all scripts. */
TEST(failing_scripts_are_shrunk_to_the_relevant_faults)
{
    static const char *const bugs[] = { "unread-answers", "amnesia", "kept-claim" };
    enum { SCRIPTS = 3, FAULTS = 4 };
    sim_script script;
    sim_outcome outcome, again;
    char text[SIM_SCRIPT_BYTES], why[120];

    REQUIRE(world_there());
    for (size_t i = 0; i < sizeof(bugs) / sizeof(bugs[0]); i++) {
        uint32_t fewest = UINT32_MAX;
        uint64_t seed = 0;

        for (int n = 0; n < SCRIPTS; n++) {
            sim_planted = sim_find_bug(bugs[i]);
            seed = failing_draw(&script, &outcome, seed);
            REQUIRE(seed != 0);
            uint32_t before = script.count, runs = sim_shrink(&script, &outcome, sim_run, world);

            sim_script_print(&script, text);
            printf("     %s: %u faults of %u, in %u runs: %s\n", bugs[i], script.count, before, runs, text);
            CHECK(script.count < before);
            fewest = script.count < fewest ? script.count : fewest;
            REQUIRE(sim_script_parse(&script, text, why));
            sim_run(world, &script, &again);
            CHECK(!again.kept && again.trace == outcome.trace);
            CHECK_TEXT(outcome.why, again.why);
            sim_planted = SIM_BUG_NONE; /* without the bug, the script passes */
            sim_run(world, &script, &again);
            CHECK(again.kept);
        }
        CHECK(fewest <= FAULTS);
    }
}
