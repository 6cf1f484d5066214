/* Test leases that need resources: which workers they get, and which requests are refused. */
#include "scheduler/core/core_parts.h"
#include "tests/gp_test.h"

enum { WORKERS = 4 };

static gp_core *core;
static gp_core_action *actions;
static size_t action_count;

static void say(gp_core_event event)
{
    action_count = gp_core_step(core, actions, &event, core->now_ms + 1);
}

static const gp_core_action *find(gp_core_action_kind kind)
{
    for (size_t i = 0; i < action_count; i++)
        if (actions[i].kind == kind)
            return &actions[i];
    return NULL;
}

static gp_core_event of_worker(gp_core_event_kind kind, uint32_t slot)
{
    return (gp_core_event){ .kind = kind, .slot = slot, .incarnation = core->slots[slot].incarnation };
}

static void ready(uint32_t slot)
{
    gp_core_event event = of_worker(GP_CORE_EVENT_WORKER_READY, slot);

    event.usable = true;
    say(event);
}

static void plan_fill(gp_core_slot_config plan[WORKERS], const char *resources)
{
    memset(plan, 0, WORKERS * sizeof(*plan));
    CHECK_STATUS(GP_OK,
                 gp_resources_assign(&plan[0].resources, sizeof(plan[0]), WORKERS, resources, true, NULL));
}

TEARDOWN()
{
    gp_core_free(core);
    gp_free(actions);
    core = NULL;
    actions = NULL;
}

/* Start a pool with these resources and clients 1 to 3. */
static bool pool_new(const char *resources)
{
    gp_core_config config = gp_core_config_default();
    gp_core_slot_config plan[WORKERS];

    config.epoch = 5;
    plan_fill(plan, resources);
    if (gp_core_new(&core, &config, plan, WORKERS, 1000, NULL) != GP_OK)
        return false;
    actions = gp_calloc(gp_core_actions_max(core), sizeof(*actions));
    if (actions == NULL)
        return false;
    say((gp_core_event){ .kind = GP_CORE_EVENT_TICK });
    for (uint32_t s = 0; s < WORKERS; s++)
        ready(s);
    for (uint8_t client = 1; client <= 3; client++)
        say((gp_core_event){
            .kind = GP_CORE_EVENT_CLIENT_CONNECTED, .session.bytes = { client }, .pid = 800 });
    return true;
}

static void ask_wish(uint8_t client, gp_core_wish wish, const char *needs)
{
    CHECK_STATUS(GP_OK, gp_resources_parse(&wish.needs, needs, NULL));
    say((gp_core_event){
        .kind = GP_CORE_EVENT_LEASE_ASK, .session.bytes = { client }, .correlation = client, .wish = &wish });
}

static void ask(uint8_t client, uint32_t min, uint32_t max, const char *needs)
{
    ask_wish(client, (gp_core_wish){ .min = min, .max = max }, needs);
}

/* Acknowledge the grants of all members of a lease. */
static void acked(uint64_t lease)
{
    for (uint32_t s = 0; s < WORKERS; s++) {
        gp_core_event event = of_worker(GP_CORE_EVENT_WORKER_GRANTED, s);

        event.lease = lease;
        event.generation = core->slots[s].granted;
        if (core->slots[s].lease == lease && event.generation != 0 &&
            core->slots[s].acked != event.generation)
            say(event);
    }
}

/* Return the mask of slots in a lease. */
static uint64_t members(uint64_t lease)
{
    const gp_core_lease *l = gp_core_lease_find(core, lease);

    return l == NULL ? 0 : l->members;
}

static void check_refused(gp_status status, const char *text)
{
    REQUIRE(find(GP_CORE_ERROR) != NULL);
    CHECK_INT(status, find(GP_CORE_ERROR)->status);
    CHECK_CONTAINS(find(GP_CORE_ERROR)->text, text);
}

static void release(uint8_t client, uint64_t lease)
{
    uint64_t slots = members(lease);

    say((gp_core_event){ .kind = GP_CORE_EVENT_LEASE_RELEASE, .session.bytes = { client }, .lease = lease });
    for (uint32_t s = 0; s < WORKERS; s++) {
        gp_core_event event = of_worker(GP_CORE_EVENT_WORKER_REVOKED, s);

        event.lease = lease;
        if ((slots >> s & 1) != 0)
            say(event);
    }
}

TEST(lease_gets_only_workers_with_the_resources)
{
    REQUIRE(pool_new("license=1 2,4:gpu_memory=80 3:gpu_memory=40"));
    ask(1, 0, 0, "gpu_memory=80");
    CHECK_INT(0xa, members(1)); /* all workers that have them */
    ask(2, 1, 0, "gpu_memory=1,license");
    CHECK_INT(0x4, members(2));
    ask(3, 1, 0, "");
    CHECK_INT(0x1, members(3));
}

TEST(lease_waits_for_a_worker_with_the_resources)
{
    REQUIRE(pool_new("3:license"));
    ask(1, 3, 3, "");
    CHECK_INT(0x7, members(1));
    ask(2, 1, 1, "license"); /* worker 4 is free */
    CHECK_INT(0, members(2));
    CHECK(find(GP_CORE_ERROR) == NULL);
    acked(1);
    release(1, 1);
    CHECK_INT(0x4, members(2));
}

TEST(needs_that_no_worker_meets_are_refused_at_once)
{
    REQUIRE(pool_new("license=1 2,4:gpu_memory=80"));
    ask(1, 3, 3, "gpu_memory=80");
    check_refused(GP_ENODEV,
                  "3 workers with gpu_memory=80 requested, but the pool has 2; worker 1: license=1; "
                  "worker 2: gpu_memory=80,license=1; worker 3: license=1; worker 4: "
                  "gpu_memory=80,license=1; set resources with `gradpool up --resource`");
    ask(1, 0, 0, "fpga");
    check_refused(GP_ENODEV, "1 worker with fpga=1 requested, but the pool has 0");
    ask_wish(1, (gp_core_wish){ .devices = "2,3" }, "gpu_memory=80");
    check_refused(GP_ENODEV, "2 workers with gpu_memory=80 requested, but the pool has 1");
    ask(1, 5, 5, "license"); /* the number is the cause */
    check_refused(GP_ENODEV, "5 workers requested, but the pool has 4");
    ask_wish(1, (gp_core_wish){ .devices = "2,4" }, "gpu_memory=80");
    CHECK_INT(0xa, members(1));
}

TEST(replaced_worker_keeps_the_resources)
{
    gp_core_event died;

    REQUIRE(pool_new("2:license"));
    ask(1, 1, 1, "license");
    CHECK_INT(0x2, members(1));
    acked(1);
    died = of_worker(GP_CORE_EVENT_WORKER_DIED, 1);
    died.death = GP_CORE_DIED_SIGNAL;
    died.number = 9;
    say(died);
    for (int i = 0; i < 20 && core->slots[1].process != GP_CORE_STARTING; i++)
        action_count =
            gp_core_step(core, actions, &(gp_core_event){ .kind = GP_CORE_EVENT_TICK }, core->now_ms + 500);
    ready(1);
    CHECK_INT(0x2, members(1));
    acked(1);
    CHECK_INT(2, core->leases[0].generation);
    CHECK_INT(GP_CORE_HELD, core->leases[0].phase);
}

TEST(resize_changes_resources_of_a_worker_when_it_is_free)
{
    gp_core_slot_config plan[WORKERS];

    REQUIRE(pool_new("1:license"));
    ask(1, 1, 1, "license");
    acked(1);
    plan_fill(plan, "2:license");
    say((gp_core_event){
        .kind = GP_CORE_EVENT_RESIZE, .session.bytes = { 2 }, .plan = plan, .plan_count = WORKERS });
    CHECK_INT(0x1, members(1));
    CHECK_INT(1, core->slots[0].config.resources.count);
    CHECK_INT(1, core->slots[1].config.resources.count);
    release(1, 1);
    say((gp_core_event){ .kind = GP_CORE_EVENT_TICK });
    CHECK_INT(0, core->slots[0].config.resources.count);
}

TEST(elastic_team_takes_only_workers_with_the_resources)
{
    REQUIRE(pool_new("1,2,4:license"));
    ask(2, 1, 1, "");
    CHECK_INT(0x1, members(1));
    acked(1);
    ask_wish(1, (gp_core_wish){ .min = 1, .floor = 1, .team = true }, "license");
    CHECK_INT(0xa, members(2));
    acked(2);
    release(2, 1);
    say((gp_core_event){ .kind = GP_CORE_EVENT_TICK });
    CHECK_INT(0xb, members(2)); /* worker 1 joins, worker 3 does not */
}

TEST(team_gives_back_ranks_until_the_needed_worker_is_among_them)
{
    const gp_core_action *change;

    REQUIRE(pool_new("2:license"));
    ask_wish(1, (gp_core_wish){ .min = 1, .floor = 1, .team = true }, "");
    CHECK_INT(0xf, members(1));
    acked(1);
    ask(2, 1, 1, "license");
    change = find(GP_CORE_LEASE_CHANGE);
    REQUIRE(change != NULL);
    CHECK_INT(1, change->workers); /* worker 2 has rank 1 */
    say((gp_core_event){ .kind = GP_CORE_EVENT_LEASE_FORM,
                         .session.bytes = { 1 },
                         .lease = 1,
                         .generation = 1,
                         .joining = UINT64_MAX,
                         .workers = 1 });
    CHECK_INT(0x1, members(1));
    for (uint32_t s = 1; s < WORKERS; s++) {
        gp_core_event event = of_worker(GP_CORE_EVENT_WORKER_REVOKED, s);

        event.lease = 1;
        say(event);
    }
    CHECK_INT(0x2, members(2));
}

TEST(team_keeps_a_needed_worker_below_its_floor)
{
    REQUIRE(pool_new("2:license"));
    ask_wish(1, (gp_core_wish){ .min = 2, .floor = 2, .team = true }, "");
    acked(1);
    ask(2, 1, 1, "license");
    CHECK(find(GP_CORE_LEASE_CHANGE) == NULL);
    CHECK_INT(0, members(2));
}

TEST(claimed_team_takes_only_workers_with_the_resources)
{
    gp_core_claim claim = { .min = 1, .floor = 1, .team = true, .member_count = 1 };
    gp_core_config config = gp_core_config_default();
    gp_core_slot_config plan[WORKERS];
    gp_core_event worker = {
        .kind = GP_CORE_EVENT_WORKER_FOUND, .slot = 1, .incarnation = 70000, .pid = 4712
    };

    /* A new scheduler adopts worker 2, whose client held it as lease 7. */
    config.epoch = 6;
    config.incarnation_base = 5 << 16;
    plan_fill(plan, "2,3:license");
    REQUIRE(gp_core_new(&core, &config, plan, WORKERS, 1000, NULL) == GP_OK);
    actions = gp_calloc(gp_core_actions_max(core), sizeof(*actions));
    REQUIRE(actions != NULL);
    say(worker);
    say((gp_core_event){ .kind = GP_CORE_EVENT_TICK });
    say((gp_core_event){ .kind = GP_CORE_EVENT_CLIENT_CONNECTED, .session.bytes = { 1 }, .pid = 801 });
    worker.kind = GP_CORE_EVENT_WORKER_READY;
    worker.usable = true;
    worker.lease = 7;
    worker.generation = 3;
    say(worker);
    claim.members[0] = (gp_core_member){ .slot = 1, .incarnation = 70000 };
    CHECK_STATUS(GP_OK, gp_resources_parse(&claim.needs, "license", NULL));
    say((gp_core_event){ .kind = GP_CORE_EVENT_LEASE_CLAIM,
                         .session.bytes = { 1 },
                         .lease = 7,
                         .generation = 3,
                         .claim = &claim });
    CHECK_INT(0x2, members(7));
    for (int i = 0; i < 20; i++)
        action_count =
            gp_core_step(core, actions, &(gp_core_event){ .kind = GP_CORE_EVENT_TICK }, core->now_ms + 200);
    for (uint32_t s = 0; s < WORKERS; s++)
        if (s != 1)
            ready(s);
    say((gp_core_event){ .kind = GP_CORE_EVENT_TICK });
    CHECK_INT(0x6, members(7));
}
