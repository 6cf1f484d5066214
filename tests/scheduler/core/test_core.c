/* Test the rules for leases, the queue, formations and worker processes. */
#include "scheduler/core/core_parts.h"
#include "tests/gp_test.h"

static gp_core *core;
static gp_core_action *actions;
static size_t action_count;
static int64_t now;

/* ---- fixture: a pool ---- */

static void say(gp_core_event event)
{
    action_count = gp_core_step(core, actions, &event, now);
}

/* Advance the time in steps, as a running scheduler does. Keeps the actions of the last step. */
static void wait_ms(int64_t ms)
{
    for (int64_t end = now + ms; now < end;) {
        int64_t due = gp_core_due(core);

        now = due > now ? due : now + 1;
        now = now < end ? now : end;
        say((gp_core_event){ .kind = GP_CORE_EVENT_TICK });
    }
}

static const gp_core_action *find_nth(gp_core_action_kind kind, unsigned nth)
{
    for (size_t i = 0; i < action_count; i++) {
        if (actions[i].kind == kind && nth-- == 0)
            return &actions[i];
    }
    return NULL;
}

static const gp_core_action *find(gp_core_action_kind kind)
{
    return find_nth(kind, 0);
}

static unsigned count_of(gp_core_action_kind kind)
{
    unsigned count = 0;

    for (size_t i = 0; i < action_count; i++)
        count += actions[i].kind == kind;
    return count;
}

/* Check that the last event was refused with this status and a text that contains `text`. */
static void check_refused(gp_status status, const char *text)
{
    REQUIRE(find(GP_CORE_ERROR) != NULL);
    CHECK_INT(status, find(GP_CORE_ERROR)->status);
    CHECK_CONTAINS(find(GP_CORE_ERROR)->text, text);
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

static void spawned(uint32_t slot, int32_t pid)
{
    gp_core_event event = of_worker(GP_CORE_EVENT_WORKER_SPAWNED, slot);

    event.pid = pid;
    say(event);
}

static void died(uint32_t slot, int signal)
{
    gp_core_event event = of_worker(GP_CORE_EVENT_WORKER_DIED, slot);

    event.death = GP_CORE_DIED_SIGNAL;
    event.number = signal;
    say(event);
}

static void acked(uint32_t slot, uint64_t lease, uint32_t generation)
{
    gp_core_event event = of_worker(GP_CORE_EVENT_WORKER_GRANTED, slot);

    event.lease = lease;
    event.generation = generation;
    say(event);
}

static void revoked(uint32_t slot, uint64_t lease)
{
    gp_core_event event = of_worker(GP_CORE_EVENT_WORKER_REVOKED, slot);

    event.lease = lease;
    say(event);
}

static gp_core_id session(uint8_t number)
{
    return (gp_core_id){ .bytes = { number } };
}

static void connect(uint8_t client)
{
    say((gp_core_event){
        .kind = GP_CORE_EVENT_CLIENT_CONNECTED, .session = session(client), .pid = 800 + client });
}

static void of_client(gp_core_event_kind kind, uint8_t client, uint64_t lease)
{
    say((gp_core_event){ .kind = kind, .session = session(client), .correlation = 90, .lease = lease });
}

static void ask_wish(uint8_t client, const gp_core_wish *wish)
{
    say((gp_core_event){
        .kind = GP_CORE_EVENT_LEASE_ASK, .session = session(client), .correlation = client, .wish = wish });
}

static void ask(uint8_t client, uint32_t min, uint32_t max)
{
    gp_core_wish wish = { .min = min, .max = max, .description = "train lenet", .token = session(77) };

    ask_wish(client, &wish);
}

static void pool_free(void)
{
    gp_core_free(core);
    gp_free(actions);
    core = NULL;
    actions = NULL;
}

TEARDOWN()
{
    pool_free();
}

static uint32_t pool_follows; /* incarnation_base of the next pool */

/* Create a pool before the first tick, in place of the previous pool. */
static bool pool_make(gp_core_device_kind kind, uint32_t workers)
{
    gp_core_config config = gp_core_config_default();
    gp_core_slot_config plan[8] = { 0 };
    gp_error err;

    for (uint32_t i = 0; i < workers; i++) {
        plan[i].kind = kind;
        plan[i].device_index = i;
        snprintf(plan[i].uuid, sizeof(plan[i].uuid), "GPU-%u", i);
        snprintf(plan[i].label, sizeof(plan[i].label), "cpu cores %u", i);
        snprintf(plan[i].log, sizeof(plan[i].log), "/log/worker-%u.log", i + 1);
    }
    pool_free();
    now = 1000;
    config.epoch = 5;
    config.incarnation_base = pool_follows;
    if (gp_core_new(&core, &config, plan, workers, now, &err) != GP_OK)
        return false;
    actions = gp_calloc(gp_core_actions_max(core), sizeof(*actions));
    return actions != NULL;
}

static bool pool_new(gp_core_device_kind kind, uint32_t workers, bool started)
{
    if (!pool_make(kind, workers))
        return false;
    say((gp_core_event){ .kind = GP_CORE_EVENT_TICK });
    for (uint32_t i = 0; started && i < workers; i++) {
        spawned(i, 4711 + (int32_t)i);
        ready(i);
    }
    return true;
}

/* Create a pool whose client 1 holds all workers as lease 1. */
static bool pool_held(uint32_t workers)
{
    if (!pool_new(GP_CORE_CPU, workers, true))
        return false;
    connect(1);
    ask(1, 0, 0);
    for (uint32_t i = 0; i < workers; i++)
        acked(i, 1, 1);
    return find(GP_CORE_LEASE_GRANT) != NULL;
}

/* ---- leases ---- */

TEST(first_tick_starts_a_worker_in_each_slot)
{
    REQUIRE(pool_new(GP_CORE_CPU, 3, false));
    CHECK_INT(3, count_of(GP_CORE_SPAWN));
    CHECK_TEXT("starting", gp_core_slot_word(&core->slots[2]));
}

TEST(request_without_numbers_gets_all_workers)
{
    REQUIRE(pool_new(GP_CORE_CPU, 2, true));
    connect(1);
    ask(1, 0, 0);
    CHECK_INT(2, count_of(GP_CORE_GRANT));
    CHECK_INT(2, find(GP_CORE_GRANT)->member_count);
    CHECK_INT(77, find(GP_CORE_GRANT)->token.bytes[0]);
    CHECK(find(GP_CORE_LEASE_GRANT) == NULL);
    acked(0, 1, 1);
    CHECK(find(GP_CORE_LEASE_GRANT) == NULL);
    acked(1, 1, 1);
    REQUIRE(find(GP_CORE_LEASE_GRANT) != NULL);
    CHECK_INT(2, find(GP_CORE_LEASE_GRANT)->member_count);
    CHECK_INT(1, find(GP_CORE_LEASE_GRANT)->correlation);
    CHECK_TEXT("busy", gp_core_slot_word(&core->slots[0]));
}

TEST(request_waits_for_starting_workers)
{
    REQUIRE(pool_new(GP_CORE_CPU, 2, false));
    connect(1);
    ready(0);
    ask(1, 0, 0);
    /* a start is usually over before the user can read the reason */
    CHECK(find(GP_CORE_LEASE_WAIT) == NULL);
    wait_ms(1999);
    CHECK(find(GP_CORE_LEASE_WAIT) == NULL);
    wait_ms(1);
    REQUIRE(find(GP_CORE_LEASE_WAIT) != NULL);
    CHECK_CONTAINS(find(GP_CORE_LEASE_WAIT)->text, "1 worker is starting");
    ready(1);
    CHECK_INT(2, count_of(GP_CORE_GRANT));
}

TEST(request_with_a_range_takes_free_workers_up_to_the_maximum)
{
    REQUIRE(pool_new(GP_CORE_CPU, 4, true));
    connect(1);
    connect(2);
    connect(3);
    ask(1, 1, 1);
    ask(2, 2, 3);
    CHECK_INT(3, count_of(GP_CORE_GRANT));
    ask(3, 1, 2);
    CHECK(find(GP_CORE_LEASE_WAIT) != NULL);
}

TEST(waiting_client_learns_its_position_and_the_holders)
{
    REQUIRE(pool_held(2));
    connect(2);
    for (int second = 0; second < 200; second++) {
        wait_ms(1000);
        say(of_worker(GP_CORE_EVENT_WORKER_BEAT, 0));
        say(of_worker(GP_CORE_EVENT_WORKER_BEAT, 1));
    }
    ask(2, 1, 1);
    REQUIRE(find(GP_CORE_LEASE_WAIT) != NULL);
    CHECK_TEXT("position 1 in the queue; lease 1 (train lenet, pid 801) has held 2 workers for 3 m 20 s",
               find(GP_CORE_LEASE_WAIT)->text);
}

TEST(requests_do_not_overtake_the_head_of_the_queue)
{
    REQUIRE(pool_new(GP_CORE_CPU, 2, true));
    connect(1);
    connect(2);
    connect(3);
    ask(1, 1, 1);
    ask(2, 2, 2);
    ask(3, 1, 1); /* one worker is free, but client 2 has asked first */
    CHECK_INT(0, count_of(GP_CORE_GRANT));
    CHECK_INT(2, core->ask_count);
    acked(0, 1, 1);
    of_client(GP_CORE_EVENT_LEASE_RELEASE, 1, 1);
    CHECK(find(GP_CORE_OK) != NULL);
    revoked(0, 1);
    CHECK_INT(2, count_of(GP_CORE_GRANT));
    CHECK_INT(2, find(GP_CORE_GRANT)->lease);
}

TEST(worker_with_user_code_is_restarted_before_the_next_lease)
{
    gp_core_event given_back;

    REQUIRE(pool_new(GP_CORE_CPU, 1, true));
    connect(1);
    connect(2);
    ask(1, 1, 1);
    acked(0, 1, 1);
    of_client(GP_CORE_EVENT_LEASE_RELEASE, 1, 1);
    given_back = of_worker(GP_CORE_EVENT_WORKER_REVOKED, 0);
    given_back.lease = 1;
    given_back.recycle = true;
    say(given_back);
    CHECK(find(GP_CORE_QUIT) != NULL);
    ask(2, 1, 1); /* the request waits as for a starting worker */
    CHECK(find(GP_CORE_ERROR) == NULL);
    CHECK_INT(0, count_of(GP_CORE_GRANT));
    given_back = of_worker(GP_CORE_EVENT_WORKER_DIED, 0);
    given_back.death = GP_CORE_DIED_EXIT;
    say(given_back);
    CHECK(find(GP_CORE_SPAWN) != NULL); /* respawned at once */
    CHECK_INT(0, core->slots[0].deaths);
    CHECK_INT(2, core->slots[0].incarnation);
    spawned(0, 900);
    ready(0);
    CHECK_INT(1, count_of(GP_CORE_GRANT));
    CHECK_INT(2, find(GP_CORE_GRANT)->lease);
}

TEST(worker_with_an_unused_gpu_is_replaced_unless_it_is_leased)
{
    gp_core_event beat, exited;

    REQUIRE(pool_new(GP_CORE_GPU, 1, true));
    connect(1);
    ask(1, 1, 1);
    beat = of_worker(GP_CORE_EVENT_WORKER_BEAT, 0);
    beat.recycle = true;
    say(beat); /* the grant is in flight */
    CHECK(find(GP_CORE_QUIT) == NULL);
    acked(0, 1, 1);
    say(beat);
    CHECK(find(GP_CORE_QUIT) == NULL);
    of_client(GP_CORE_EVENT_LEASE_RELEASE, 1, 1);
    revoked(0, 1);
    CHECK_INT(0, core->cold);
    say(beat);
    CHECK(find(GP_CORE_QUIT) != NULL);
    ask(1, 1, 1); /* the request waits as for a starting worker */
    CHECK(find(GP_CORE_ERROR) == NULL);
    exited = of_worker(GP_CORE_EVENT_WORKER_DIED, 0);
    exited.death = GP_CORE_DIED_EXIT;
    say(exited);
    CHECK(find(GP_CORE_SPAWN) != NULL);
    CHECK_INT(1, core->cold);
    CHECK_INT(0, core->slots[0].deaths);
    spawned(0, 900);
    ready(0);
    CHECK_INT(0, core->cold); /* a process after an unexpected exit opens the GPU at the start */
    CHECK_INT(1, count_of(GP_CORE_GRANT));
}

TEST(higher_priority_requests_are_served_first)
{
    gp_core_wish wish = { .min = 1, .max = 1, .priority = 5 };

    REQUIRE(pool_held(1));
    connect(2);
    connect(3);
    ask(2, 1, 1);
    ask_wish(3, &wish);
    CHECK_INT(3, core->asks[0].session.bytes[0]);
}

TEST(oversized_requests_are_refused_with_the_pool_size)
{
    REQUIRE(pool_new(GP_CORE_CPU, 2, true));
    connect(1);
    ask(1, 4, 4);
    check_refused(GP_ENODEV,
                  "4 workers requested, but the pool has 2; enlarge it with `gradpool up --workers 4`");
    CHECK_INT(0, core->ask_count);
}

TEST(gpu_requests_are_refused_without_a_gpu)
{
    gp_core_wish wish = { .environment = GP_CORE_ONLY_GPU };

    REQUIRE(pool_new(GP_CORE_CPU, 2, true));
    connect(1);
    ask_wish(1, &wish);
    check_refused(GP_ENODEV, "no worker of this pool has a GPU");
}

TEST(named_devices_are_granted_exactly_or_refused)
{
    gp_core_wish named = { .devices = "cuda:2,1" }, missing = { .devices = "cuda:9" };

    REQUIRE(pool_new(GP_CORE_GPU, 4, true));
    connect(1);
    ask_wish(1, &missing);
    REQUIRE(find(GP_CORE_ERROR) != NULL);
    CHECK_CONTAINS(find(GP_CORE_ERROR)->text, "cuda:9");
    ask_wish(1, &named);
    REQUIRE(count_of(GP_CORE_GRANT) == 2);
    CHECK_INT(0, find_nth(GP_CORE_GRANT, 0)->slot);
    CHECK_INT(2, find_nth(GP_CORE_GRANT, 1)->slot);
}

TEST(requests_without_waiting_fail_with_busy)
{
    gp_core_wish wish = { .no_wait = true };

    REQUIRE(pool_held(2));
    connect(2);
    ask_wish(2, &wish);
    check_refused(GP_EBUSY, "pid 801");
    CHECK_INT(0, core->ask_count);
}

TEST(queue_length_is_bounded)
{
    REQUIRE(pool_held(1));
    connect(2);
    for (uint32_t i = 0; i < core->config.waits_max; i++)
        ask(2, 1, 1);
    CHECK(find(GP_CORE_ERROR) == NULL);
    ask(2, 1, 1);
    check_refused(GP_EBUSY, "64 clients are in the queue");
}

TEST(client_exit_frees_workers_for_the_next_request)
{
    REQUIRE(pool_held(2));
    connect(2);
    ask(2, 2, 2);
    of_client(GP_CORE_EVENT_CLIENT_GONE, 1, 0);
    CHECK_INT(2, count_of(GP_CORE_REVOKE));
    revoked(0, 1);
    CHECK_INT(0, count_of(GP_CORE_GRANT));
    revoked(1, 1);
    CHECK_INT(2, count_of(GP_CORE_GRANT));
    CHECK_INT(2, find(GP_CORE_GRANT)->lease);
}

TEST(requests_of_an_exited_client_create_no_lease)
{
    REQUIRE(pool_new(GP_CORE_CPU, 1, true));
    connect(1);
    of_client(GP_CORE_EVENT_CLIENT_GONE, 1, 0);
    ask(1, 1, 1);
    CHECK_INT(0, action_count);
    CHECK_INT(1, core->stale);
}

TEST(leaving_the_queue_releases_a_lease_in_preparation)
{
    REQUIRE(pool_new(GP_CORE_CPU, 1, true));
    connect(1);
    ask(1, 1, 1);
    of_client(GP_CORE_EVENT_LEASE_LEAVE, 1, 0);
    CHECK(find(GP_CORE_OK) != NULL && find(GP_CORE_REVOKE) != NULL);
    acked(0, 1, 1);
    CHECK(find(GP_CORE_LEASE_GRANT) == NULL);
}

TEST(other_sessions_cannot_release_a_lease)
{
    REQUIRE(pool_held(1));
    connect(2);
    of_client(GP_CORE_EVENT_LEASE_RELEASE, 2, 1);
    check_refused(GP_ESTALE, "");
    CHECK(gp_core_lease_find(core, 1) != NULL);
}

TEST(client_learns_that_memory_ran_out)
{
    gp_core_event event;
    const gp_core_action *lost;

    REQUIRE(pool_held(2));
    event = of_worker(GP_CORE_EVENT_WORKER_DIED, 1);
    event.death = GP_CORE_DIED_SIGNAL;
    event.number = 9;
    event.out_of_memory = true;
    say(event);
    lost = find(GP_CORE_WORKER_LOST);
    REQUIRE(lost != NULL && lost->lost_out_of_memory);
    CHECK_CONTAINS(lost->text, "was killed because memory ran out (signal 9)");
}

TEST(lease_ids_are_never_reused)
{
    REQUIRE(pool_held(1));
    of_client(GP_CORE_EVENT_LEASE_RELEASE, 1, 1);
    revoked(0, 1);
    ask(1, 1, 1);
    REQUIRE(find(GP_CORE_GRANT) != NULL);
    CHECK_INT(2, find(GP_CORE_GRANT)->lease);
}

/* ---- worker failures ---- */

TEST(worker_failure_is_reported_and_the_lease_restored)
{
    gp_core_event beat;
    const gp_core_action *lost;

    REQUIRE(pool_held(2));
    beat = of_worker(GP_CORE_EVENT_WORKER_BEAT, 1);
    beat.step = 120;
    say(beat);
    died(1, 9);
    lost = find(GP_CORE_WORKER_LOST);
    REQUIRE(lost != NULL);
    CHECK_TEXT("worker 2 (pid 4712, cpu cores 1) was killed by signal 9 (Killed) (it last reported step "
               "120); its log is "
               "/log/worker-2.log",
               lost->text);
    CHECK_INT(1, lost->lost_slot);
    CHECK_INT(9, lost->lost_number);
    REQUIRE(find(GP_CORE_PEER_LOST) != NULL);
    CHECK_INT(0, find(GP_CORE_PEER_LOST)->slot);
    REQUIRE(find(GP_CORE_SPAWN) != NULL);
    CHECK_INT(2, find(GP_CORE_SPAWN)->incarnation);
    ready(1);
    REQUIRE(count_of(GP_CORE_GRANT) == 2);
    CHECK_INT(2, find(GP_CORE_GRANT)->generation);
    acked(0, 1, 2);
    acked(1, 1, 2);
    REQUIRE(find(GP_CORE_LEASE_GRANT) != NULL);
    CHECK_INT(2, find(GP_CORE_LEASE_GRANT)->generation);
    CHECK_INT(2, find(GP_CORE_LEASE_GRANT)->members[1].incarnation);
}

/* ---- silent workers ---- */

static void beats(uint32_t slot, gp_core_work work, int64_t stretch_ms, int64_t stretch_max_ms)
{
    gp_core_event beat = of_worker(GP_CORE_EVENT_WORKER_BEAT, slot);

    beat.work = work;
    beat.stretch_ms = stretch_ms;
    beat.stretch_max_ms = stretch_max_ms;
    say(beat);
}

/* Advance until a worker has been silent for `ms`, while the others send heartbeats. */
static void silent_until(uint32_t slot, int64_t ms, uint32_t workers)
{
    for (int64_t end = core->slots[slot].beat_ms + ms; now < end;) {
        for (uint32_t s = 0; s < workers; s++)
            if (s != slot)
                say(of_worker(GP_CORE_EVENT_WORKER_BEAT, s));
        wait_ms(end - now < 500 ? end - now : 500);
    }
}

TEST(silent_worker_is_suspect_after_5_s_and_its_client_is_notified)
{
    const gp_core_action *reported;

    REQUIRE(pool_held(2));
    beats(1, GP_CORE_TRAINING, 0, 40);
    silent_until(1, 4999, 2);
    CHECK(!core->slots[1].suspect && find(GP_CORE_WORKER_SUSPECT) == NULL);
    wait_ms(1);
    CHECK(core->slots[1].suspect);
    REQUIRE(find(GP_CORE_SUSPECT) != NULL);
    reported = find(GP_CORE_WORKER_SUSPECT);
    REQUIRE(reported != NULL);
    CHECK_INT(1, reported->lost_slot);
    CHECK_INT(5000, reported->silent_ms);
    CHECK(gp_core_id_equal(&reported->session, &(gp_core_id){ .bytes = { 1 } }));
    CHECK_TEXT(
        "worker 2 (pid 4712): no heartbeat for 5 s; it will be replaced if this exceeds the time limit of "
        "a step",
        reported->text);
    /* the suspicion does not replace the state */
    CHECK_TEXT("busy", gp_core_slot_word(&core->slots[1]));
    silent_until(1, 9000, 2);
    CHECK(find(GP_CORE_WORKER_SUSPECT) == NULL);
    beats(1, GP_CORE_TRAINING, 0, 40);
    CHECK(!core->slots[1].suspect);
    reported = find(GP_CORE_WORKER_SUSPECT);
    REQUIRE(reported != NULL && find(GP_CORE_SUSPECT) != NULL);
    CHECK_INT(0, reported->silent_ms);
    CHECK_TEXT("worker 2 (pid 4712): responsive again after 9 s", reported->text);
    wait_ms(500);
    CHECK(find(GP_CORE_WORKER_SUSPECT) == NULL && find(GP_CORE_WORKER_LOST) == NULL);
}

TEST(silent_training_worker_is_killed_after_15_s)
{
    REQUIRE(pool_held(2));
    beats(1, GP_CORE_TRAINING, 0, 40);
    silent_until(1, 14999, 2);
    CHECK(find(GP_CORE_KILL) == NULL);
    wait_ms(1);
    REQUIRE(find(GP_CORE_KILL) != NULL);
    CHECK_INT(1, find(GP_CORE_KILL)->slot);
    CHECK(!core->slots[1].suspect);
    uint64_t stale = core->stale;

    beats(1, GP_CORE_TRAINING, 0, 40); /* the worker resumed before SIGKILL arrived */
    CHECK_INT(stale + 1, core->stale);
    died(1, 9);
    REQUIRE(find(GP_CORE_WORKER_LOST) != NULL);
    CHECK_CONTAINS(find(GP_CORE_WORKER_LOST)->text, "no heartbeat for 15 s");
}

TEST(training_may_be_silent_for_ten_times_its_longest_stretch)
{
    REQUIRE(pool_held(2));
    beats(1, GP_CORE_TRAINING, 0, 4000);
    silent_until(1, 39999, 2);
    CHECK(core->slots[1].suspect && find(GP_CORE_KILL) == NULL);
    wait_ms(1);
    CHECK(find(GP_CORE_KILL) != NULL);
}

TEST(silent_worker_with_user_code_is_suspect_but_never_killed)
{
    REQUIRE(pool_held(2));
    beats(1, GP_CORE_USERS, 0, 0);
    silent_until(1, 5000, 2);
    CHECK(core->slots[1].suspect);
    REQUIRE(find(GP_CORE_WORKER_SUSPECT) != NULL);
    CHECK_CONTAINS(find(GP_CORE_WORKER_SUSPECT)->text, "it runs user code and will not be replaced");
    silent_until(1, 3600 * 1000, 2);
    CHECK(core->slots[1].process == GP_CORE_READY && core->slots[1].suspect);
    beats(1, GP_CORE_USERS, 0, 0);
    CHECK(!core->slots[1].suspect);
    /* the end of a lease is a separate reason to kill it */
    of_client(GP_CORE_EVENT_LEASE_RELEASE, 1, 1);
    wait_ms(core->config.answer_ms / 2);
    beats(1, GP_CORE_USERS, 0, 0);
    wait_ms(core->config.answer_ms / 2);
    CHECK(core->slots[1].process == GP_CORE_DYING);
}

TEST(silent_idle_worker_is_replaced_after_15_s)
{
    REQUIRE(pool_new(GP_CORE_CPU, 2, true));
    silent_until(1, 5000, 2);
    CHECK(core->slots[1].suspect);
    /* no client holds the worker */
    CHECK(find(GP_CORE_SUSPECT) != NULL && find(GP_CORE_WORKER_SUSPECT) == NULL);
    silent_until(1, 15000, 2);
    CHECK(core->slots[1].process == GP_CORE_DYING);
}

/* Its last heartbeat was sent before the lease ended. */
TEST(worker_that_freezes_after_user_code_is_replaced)
{
    REQUIRE(pool_held(2));
    beats(1, GP_CORE_USERS, 0, 0);
    of_client(GP_CORE_EVENT_LEASE_RELEASE, 1, 1);
    revoked(1, 1);
    silent_until(1, 15000, 2);
    CHECK(core->slots[1].process == GP_CORE_DYING);
}

TEST(training_stuck_in_a_step_is_suspect_and_then_killed)
{
    REQUIRE(pool_held(2));
    for (int64_t ms = 1; ms < 5000; ms += 500) {
        beats(1, GP_CORE_TRAINING, ms, 40);
        beats(0, GP_CORE_TRAINING, 0, 40); /* this worker waits for the other one */
        wait_ms(500);
    }
    CHECK(core->slots[1].suspect && !core->slots[0].suspect);
    for (int64_t ms = 5001; ms < 14500; ms += 500) {
        beats(1, GP_CORE_TRAINING, ms, 40);
        CHECK(core->slots[1].suspect); /* a heartbeat alone does not end the suspicion */
        beats(0, GP_CORE_TRAINING, 0, 40);
        wait_ms(500);
    }
    CHECK(core->slots[1].process == GP_CORE_READY);
    beats(1, GP_CORE_TRAINING, 14501, 40);
    wait_ms(499);
    CHECK(core->slots[1].process == GP_CORE_DYING && core->slots[0].process == GP_CORE_READY);
    died(1, 9);
    REQUIRE(find(GP_CORE_WORKER_LOST) != NULL);
    CHECK_CONTAINS(find(GP_CORE_WORKER_LOST)->text, "one step took more than 15 s");
}

TEST(first_stretch_of_a_training_has_no_time_limit)
{
    REQUIRE(pool_held(1));
    for (int64_t ms = 1; ms < 100000; ms += 500) {
        /* no stretch has ended yet: the worker may be compiling */
        beats(0, GP_CORE_TRAINING, ms, 0);
        wait_ms(500);
    }
    CHECK(!core->slots[0].suspect && core->slots[0].process == GP_CORE_READY);
    for (int64_t ms = 1; ms < 9500; ms += 500) {
        beats(0, GP_CORE_TRAINING, ms, 2000);
        wait_ms(500);
    }
    CHECK(!core->slots[0].suspect);
    beats(0, GP_CORE_TRAINING, 9501, 2000);
    wait_ms(499);
    CHECK(core->slots[0].suspect); /* after five times the longest stretch */
}

TEST(resumed_scheduler_suspects_no_worker)
{
    REQUIRE(pool_held(2));
    beats(1, GP_CORE_TRAINING, 0, 40);
    now += 20000; /* one long gap between steps */
    say((gp_core_event){ .kind = GP_CORE_EVENT_TICK });
    CHECK(!core->slots[0].suspect && !core->slots[1].suspect && find(GP_CORE_KILL) == NULL);
}

/* The machine was suspended for longer than a worker may take to give back a lease. */
TEST(resumed_scheduler_extends_reply_deadlines)
{
    REQUIRE(pool_held(1));
    of_client(GP_CORE_EVENT_LEASE_RELEASE, 1, 1);
    now += core->config.answer_ms + 200;
    say((gp_core_event){ .kind = GP_CORE_EVENT_TICK });
    CHECK(core->slots[0].process == GP_CORE_READY && find(GP_CORE_KILL) == NULL);
    wait_ms(core->config.answer_ms / 2);
    beats(0, GP_CORE_TRAINING, 0, 40);
    wait_ms(core->config.answer_ms / 2);
    CHECK(core->slots[0].process == GP_CORE_DYING);
}

TEST(disabled_limits_suspect_and_kill_no_worker)
{
    REQUIRE(pool_held(1));
    core->config.suspect_ms = core->config.beat_ms = 0;
    wait_ms(3600 * 1000);
    CHECK(!core->slots[0].suspect && core->slots[0].process == GP_CORE_READY);
}

TEST(worker_failure_during_an_offer_restarts_the_offer)
{
    REQUIRE(pool_new(GP_CORE_CPU, 2, true));
    connect(1);
    ask(1, 2, 2);
    acked(0, 1, 1);
    died(1, 11);
    CHECK(find(GP_CORE_WORKER_LOST) == NULL); /* the client has not received a grant yet */
    ready(1);
    CHECK_INT(2, count_of(GP_CORE_GRANT));
    acked(1, 1, 2);
    acked(0, 1, 1); /* late acknowledgement of the old generation */
    CHECK(find(GP_CORE_LEASE_GRANT) == NULL);
    acked(0, 1, 2);
    CHECK(find(GP_CORE_LEASE_GRANT) != NULL);
    CHECK_INT(1, find(GP_CORE_LEASE_GRANT)->correlation);
}

TEST(messages_from_older_incarnations_are_dropped)
{
    gp_core_event late;

    REQUIRE(pool_new(GP_CORE_CPU, 1, true));
    late = of_worker(GP_CORE_EVENT_WORKER_READY, 0);
    late.usable = true;
    died(0, 9);
    say(late);
    CHECK_INT(1, core->stale);
    CHECK_TEXT("starting", gp_core_slot_word(&core->slots[0]));
}

TEST(messages_from_other_epochs_are_dropped)
{
    gp_core_event event;

    REQUIRE(pool_new(GP_CORE_CPU, 1, false));
    event = of_worker(GP_CORE_EVENT_WORKER_READY, 0);
    event.usable = true;
    event.epoch = 4;
    say(event);
    CHECK_INT(1, core->stale);
    CHECK_TEXT("starting", gp_core_slot_word(&core->slots[0]));
}

TEST(live_worker_that_keeps_a_revoked_lease_is_killed_after_1_s)
{
    REQUIRE(pool_held(1));
    of_client(GP_CORE_EVENT_LEASE_RELEASE, 1, 1);
    wait_ms(500);
    say(of_worker(GP_CORE_EVENT_WORKER_BEAT, 0));
    wait_ms(499);
    CHECK(core->slots[0].process == GP_CORE_READY);
    wait_ms(1);
    REQUIRE(find(GP_CORE_KILL) != NULL);
    died(0, 9);
    REQUIRE(find(GP_CORE_SPAWN) != NULL);
    CHECK_INT(2, find(GP_CORE_SPAWN)->incarnation);
    ready(0);
    CHECK_TEXT("idle", gp_core_slot_word(&core->slots[0]));
}

/* A worker without heartbeats is suspended or has no core, so it has not received the revoke
 * yet. */
TEST(suspended_worker_gets_more_time_to_give_back_a_lease)
{
    for (int goes_on = 0; goes_on < 2; goes_on++) {
        REQUIRE(pool_held(1));
        of_client(GP_CORE_EVENT_LEASE_RELEASE, 1, 1);
        wait_ms(4500);
        CHECK(core->slots[0].process == GP_CORE_READY);
        if (goes_on) {
            gp_core_event revoked = of_worker(GP_CORE_EVENT_WORKER_REVOKED, 0);

            say(of_worker(GP_CORE_EVENT_WORKER_BEAT, 0));
            wait_ms(900);
            revoked.lease = 1;
            say(revoked);
            CHECK_TEXT("idle", gp_core_slot_word(&core->slots[0]));
            CHECK_INT(1, core->slots[0].incarnation);
        } else {
            wait_ms(500);
            CHECK(find(GP_CORE_KILL) != NULL);
        }
    }
}

TEST(worker_without_heartbeat_for_15_s_is_replaced)
{
    REQUIRE(pool_new(GP_CORE_CPU, 1, true));
    wait_ms(14000);
    CHECK(core->slots[0].process == GP_CORE_READY);
    wait_ms(1000);
    CHECK(find(GP_CORE_KILL) != NULL);
}

TEST(scheduler_resumed_after_an_hour_kills_no_worker)
{
    REQUIRE(pool_new(GP_CORE_CPU, 1, true));
    now += 3600 * 1000;
    core->config.idle_ms = 0;
    say((gp_core_event){ .kind = GP_CORE_EVENT_TICK });
    CHECK_INT(0, count_of(GP_CORE_KILL));
}

TEST(five_failed_starts_condemn_a_slot_until_the_next_up)
{
    gp_core_event resize = {
        .kind = GP_CORE_EVENT_RESIZE, .session = session(1), .plan_count = 1, .idle_ms = 0
    };
    gp_core_slot_config plan;

    REQUIRE(pool_new(GP_CORE_CPU, 1, false));
    connect(1);
    ask(1, 1, 1);
    for (int i = 0; i < 4; i++) {
        died(0, 11);
        CHECK(find(GP_CORE_ERROR) == NULL);
        wait_ms(1000);
    }
    died(0, 11);
    CHECK_TEXT("dead", gp_core_slot_word(&core->slots[0]));
    CHECK_CONTAINS(core->slots[0].reason, "Segmentation fault");
    REQUIRE(find(GP_CORE_ERROR) != NULL); /* the request that waited for the worker is refused */
    CHECK_INT(GP_ENODEV, find(GP_CORE_ERROR)->status);
    wait_ms(60000);
    CHECK(core->slots[0].process == GP_CORE_ABSENT);
    plan = core->slots[0].config;
    resize.plan = &plan;
    say(resize);
    CHECK(find(GP_CORE_SPAWN) != NULL);
}

TEST(lease_shrinks_to_its_minimum_and_ends_below)
{
    REQUIRE(pool_new(GP_CORE_CPU, 2, true));
    connect(1);
    ask(1, 1, 2);
    acked(0, 1, 1);
    acked(1, 1, 1);
    for (int i = 0; i < 6; i++) {
        died(1, 11);
        wait_ms(1000);
        say(of_worker(GP_CORE_EVENT_WORKER_BEAT, 0));
    }
    acked(0, 1, core->leases[0].generation);
    REQUIRE(find(GP_CORE_LEASE_GRANT) != NULL);
    CHECK_INT(1, find(GP_CORE_LEASE_GRANT)->member_count);
    for (int i = 0; i < 5; i++) {
        died(0, 11);
        wait_ms(1000);
    }
    died(0, 11);
    REQUIRE(find(GP_CORE_LEASE_ENDED) != NULL);
    CHECK_CONTAINS(find(GP_CORE_LEASE_ENDED)->text, "worker 1 cannot be replaced");
}

TEST(excluded_worker_is_retried_but_never_granted)
{
    gp_core_event excluded;

    REQUIRE(pool_new(GP_CORE_GPU, 1, false));
    excluded = of_worker(GP_CORE_EVENT_WORKER_READY, 0);
    excluded.reason = "device GPU-0 is held by worker 1 of pool other (pid 99)";
    say(excluded);
    CHECK_TEXT("excluded", gp_core_slot_word(&core->slots[0]));
    connect(1);
    ask(1, 1, 1); /* the device may become free soon */
    CHECK(find(GP_CORE_GRANT) == NULL);
    wait_ms(250);
    CHECK(find(GP_CORE_QUIT) != NULL);
    died(0, 0);
    CHECK(find(GP_CORE_SPAWN) != NULL);
    ready(0);
    CHECK(find(GP_CORE_GRANT) != NULL);
}

TEST(request_for_a_used_device_reports_the_user)
{
    gp_core_event excluded;

    REQUIRE(pool_new(GP_CORE_GPU, 1, false));
    connect(1);
    ask(1, 0, 0);
    for (int i = 0; i < 5; i++) {
        excluded = of_worker(GP_CORE_EVENT_WORKER_READY, 0);
        excluded.reason = "device GPU-0 is held by worker 1 of pool other (pid 99)";
        say(excluded);
        if (i == 4)
            break;
        wait_ms(250 << i);
        died(0, 0);
    }
    REQUIRE(find(GP_CORE_ERROR) != NULL);
    CHECK_CONTAINS(find(GP_CORE_ERROR)->text, "pool other (pid 99)");
}

TEST(worker_that_returns_without_its_lease_is_replaced)
{
    REQUIRE(pool_held(1));
    ready(0);
    CHECK(find(GP_CORE_KILL) != NULL);
}

/* ---- resize and shutdown ---- */

TEST(resize_without_changes_restarts_no_worker)
{
    gp_core_slot_config plan[2];

    REQUIRE(pool_held(2));
    plan[0] = core->slots[0].config;
    plan[1] = core->slots[1].config;
    say((gp_core_event){
        .kind = GP_CORE_EVENT_RESIZE, .session = session(1), .plan = plan, .plan_count = 2 });
    CHECK(find(GP_CORE_RESIZED) != NULL);
    CHECK(find(GP_CORE_ERROR) == NULL);
    CHECK_INT(0, count_of(GP_CORE_QUIT));
}

TEST(resize_applies_to_workers_in_use_when_their_lease_ends)
{
    gp_core_slot_config plan[3] = { { .threads = 1 }, { .threads = 1 }, { .threads = 1 } };
    gp_core_event resize = {
        .kind = GP_CORE_EVENT_RESIZE, .session = session(1), .plan = plan, .plan_count = 3
    };

    REQUIRE(pool_held(2));
    say(resize);
    CHECK(find(GP_CORE_RESIZED) != NULL);
    CHECK_INT(0, count_of(GP_CORE_QUIT));
    CHECK_INT(1, count_of(GP_CORE_SPAWN)); /* the new worker */
    CHECK_INT(3, core->slot_count);
    of_client(GP_CORE_EVENT_LEASE_RELEASE, 1, 1);
    revoked(0, 1);
    CHECK_INT(1, count_of(GP_CORE_QUIT)); /* the core assignment changed */
    revoked(1, 1);
    CHECK_INT(1, count_of(GP_CORE_QUIT));
    died(0, 15);
    CHECK(find(GP_CORE_SPAWN) != NULL);
    CHECK_INT(1, core->slots[0].config.threads);
}

TEST(worker_in_use_leaves_a_smaller_pool_when_its_lease_ends)
{
    gp_core_slot_config plan[1];

    REQUIRE(pool_held(2));
    plan[0] = core->slots[0].config;
    say((gp_core_event){
        .kind = GP_CORE_EVENT_RESIZE, .session = session(1), .plan = plan, .plan_count = 1 });
    CHECK(find(GP_CORE_RESIZED) != NULL);
    CHECK_INT(0, count_of(GP_CORE_QUIT));
    CHECK_INT(2, core->slot_count);
    of_client(GP_CORE_EVENT_LEASE_RELEASE, 1, 1);
    revoked(1, 1);
    CHECK_INT(1, count_of(GP_CORE_QUIT));
    CHECK_INT(1, core->slot_count);
    died(1, 15);
    CHECK(find(GP_CORE_SPAWN) == NULL);
}

TEST(shutdown_ends_leases_then_workers_then_the_scheduler)
{
    REQUIRE(pool_held(2));
    connect(2);
    ask(2, 1, 1);
    of_client(GP_CORE_EVENT_SHUTDOWN, 2, 0);
    CHECK(find(GP_CORE_OK) != NULL && find(GP_CORE_LEASE_ENDED) != NULL && find(GP_CORE_ERROR) != NULL);
    CHECK_INT(2, count_of(GP_CORE_QUIT));
    died(0, 0);
    CHECK(find(GP_CORE_EXIT) == NULL && find(GP_CORE_SPAWN) == NULL);
    wait_ms(1000);
    REQUIRE(find(GP_CORE_KILL) != NULL); /* worker 2 did not exit by itself */
    died(1, 9);
    CHECK(find(GP_CORE_EXIT) != NULL);
}

TEST(shutdown_when_idle_waits_for_leases_and_refuses_requests)
{
    gp_core_event shutdown = { .kind = GP_CORE_EVENT_SHUTDOWN, .session = session(2), .when_idle = true };

    REQUIRE(pool_held(1));
    connect(2);
    say(shutdown);
    CHECK_INT(0, count_of(GP_CORE_QUIT));
    ask(2, 1, 1);
    REQUIRE(find(GP_CORE_ERROR) != NULL);
    CHECK_CONTAINS(find(GP_CORE_ERROR)->text, "shutting down");
    of_client(GP_CORE_EVENT_LEASE_RELEASE, 1, 1);
    CHECK_INT(1, count_of(GP_CORE_QUIT));
}

TEST(running_job_gets_its_workers_although_the_pool_shuts_down_when_idle)
{
    gp_core_event shutdown = { .kind = GP_CORE_EVENT_SHUTDOWN, .session = session(2), .when_idle = true };
    gp_core_wish wish = { .min = 1, .max = 1, .of_job = true, .token = session(77) };

    REQUIRE(pool_held(1));
    connect(2);
    say((gp_core_event){ .kind = GP_CORE_EVENT_JOBS, .holds = true });
    of_client(GP_CORE_EVENT_LEASE_RELEASE, 1, 1);
    say(shutdown);
    ask_wish(2, &wish);
    CHECK(find(GP_CORE_ERROR) == NULL);
    CHECK(core->ask_count == 1 || gp_core_lease_count(core) == 1);
    CHECK_INT(0, count_of(GP_CORE_QUIT));
}

TEST(unused_pool_shuts_down_with_a_log_message)
{
    REQUIRE(pool_new(GP_CORE_CPU, 1, true));
    for (int minute = 0; minute < 29; minute++) {
        for (int second = 0; second < 60; second++) {
            wait_ms(1000);
            say(of_worker(GP_CORE_EVENT_WORKER_BEAT, 0));
        }
    }
    CHECK(core->stopping == GP_CORE_RUNNING);
    for (int second = 0; second < 60 && core->stopping == GP_CORE_RUNNING; second++) {
        say(of_worker(GP_CORE_EVENT_WORKER_BEAT, 0));
        wait_ms(1000);
    }
    const gp_core_action *said = find(GP_CORE_LOG);

    REQUIRE(said != NULL);
    CHECK_CONTAINS(said->text, "no client used the pool for 30 m");
    CHECK(find(GP_CORE_QUIT) != NULL);
}

TEST(scheduler_without_its_lock_file_grants_no_lease)
{
    REQUIRE(pool_new(GP_CORE_CPU, 1, true));
    connect(1);
    say((gp_core_event){ .kind = GP_CORE_EVENT_LOCK, .holds = false });
    ask(1, 1, 1);
    REQUIRE(find(GP_CORE_ERROR) != NULL);
    CHECK_CONTAINS(find(GP_CORE_ERROR)->text, "lock file");
    say((gp_core_event){ .kind = GP_CORE_EVENT_LOCK, .holds = true });
    ask(1, 1, 1);
    CHECK(find(GP_CORE_GRANT) != NULL);
}

TEST(core_creation_fails_cleanly_without_memory)
{
    gp_core_config config = gp_core_config_default();
    gp_core_slot_config plan[1] = { { .threads = 1 } };
    gp_core *made = NULL;
    gp_error err;

    CHECK_EVERY_ALLOCATION(gp_core_new(&made, &config, plan, 1, 0, &err), gp_core_free(made));
    CHECK_STATUS(GP_EINVAL, gp_core_new(&made, &config, plan, 0, 0, &err));
    CHECK_STATUS(GP_EINVAL, gp_core_new(&made, &config, plan, GP_CORE_SLOTS_MAX + 1, 0, &err));
}

static void replace(uint8_t client, uint64_t lease, uint32_t slot, uint32_t incarnation)
{
    say((gp_core_event){ .kind = GP_CORE_EVENT_WORKER_REPLACE,
                         .session = session(client),
                         .correlation = 90,
                         .lease = lease,
                         .slot = slot,
                         .incarnation = incarnation,
                         .reason = "task 12 did not end" });
}

TEST(client_can_replace_a_worker_of_its_lease)
{
    REQUIRE(pool_held(2));
    replace(1, 1, 1, 1);
    CHECK(find(GP_CORE_OK) != NULL);
    REQUIRE(find(GP_CORE_KILL) != NULL);
    CHECK_INT(1, find(GP_CORE_KILL)->slot);
    died(1, 9);
    const gp_core_action *lost = find(GP_CORE_WORKER_LOST);

    REQUIRE(lost != NULL);
    CHECK_CONTAINS(lost->text, "was replaced: task 12 did not end");
    CHECK(find(GP_CORE_SPAWN) != NULL);
    ready(1);
    acked(0, 1, 2);
    acked(1, 1, 2);
    REQUIRE(find(GP_CORE_LEASE_GRANT) != NULL);
    CHECK_INT(2, find(GP_CORE_LEASE_GRANT)->generation);
}

TEST(client_cannot_replace_other_workers_or_incarnations)
{
    REQUIRE(pool_held(2));
    connect(2);
    replace(2, 1, 1, 1); /* lease of another session */
    CHECK_INT(GP_ESTALE, find(GP_CORE_ERROR)->status);
    replace(1, 1, 1, 2); /* incarnation that does not exist yet */
    CHECK_INT(GP_ESTALE, find(GP_CORE_ERROR)->status);
    replace(1, 7, 1, 1); /* no such lease */
    CHECK_INT(GP_ESTALE, find(GP_CORE_ERROR)->status);
    CHECK(find(GP_CORE_KILL) == NULL);
    replace(1, 1, 1, 1);
    replace(1, 1, 1, 1); /* already being killed */
    CHECK_INT(GP_ESTALE, find(GP_CORE_ERROR)->status);
}

TEST(pool_with_background_jobs_is_not_idle)
{
    gp_core_event shutdown = { .kind = GP_CORE_EVENT_SHUTDOWN, .session = session(2), .when_idle = true };
    gp_core_event jobs = { .kind = GP_CORE_EVENT_JOBS, .holds = true };

    REQUIRE(pool_new(GP_CORE_CPU, 1, true));
    say(jobs);
    core->config.idle_ms = 5000;
    for (int second = 0; second < 20; second++) {
        say(of_worker(GP_CORE_EVENT_WORKER_BEAT, 0));
        wait_ms(1000);
    }
    CHECK(core->stopping == GP_CORE_RUNNING);
    connect(2);
    say(shutdown);
    CHECK_INT(0, count_of(GP_CORE_QUIT));
    jobs.holds = false;
    say(jobs);
    CHECK_INT(1, count_of(GP_CORE_QUIT));
}

/* ---- recovery after a scheduler crash ---- */

static void claim(uint8_t client, uint64_t lease, const gp_core_claim *of)
{
    say((gp_core_event){ .kind = GP_CORE_EVENT_LEASE_CLAIM,
                         .session = session(client),
                         .correlation = 91,
                         .lease = lease,
                         .generation = 3,
                         .claim = of });
}

TEST(lease_survives_the_loss_of_all_workers_and_the_scheduler)
{
    gp_core_claim of = { .token = session(77), .min = 2, .member_count = 2 };

    of.members[0] = (gp_core_member){ .slot = 0, .incarnation = 4000 };
    of.members[1] = (gp_core_member){ .slot = 1, .incarnation = 4001 };
    REQUIRE(pool_new(GP_CORE_CPU, 2, true));
    connect(1);
    connect(2);
    claim(1, 9, &of);
    CHECK(find(GP_CORE_OK) != NULL);
    CHECK_INT(2, count_of(GP_CORE_WORKER_LOST));
    REQUIRE(find(GP_CORE_GRANT) != NULL);
    uint32_t generation = find(GP_CORE_GRANT)->generation;

    CHECK(generation > 3);
    claim(2, 10, &of); /* another client claims the same workers */
    check_refused(GP_ESTALE, "");
    acked(0, 9, generation);
    acked(1, 9, generation);
    REQUIRE(find(GP_CORE_LEASE_GRANT) != NULL);
    CHECK_INT(9, find(GP_CORE_LEASE_GRANT)->lease);
    of_client(GP_CORE_EVENT_LEASE_RELEASE, 1, 9);
    claim(1, 9, &of); /* the lease has ended, and ids are never reused */
    check_refused(GP_ESTALE, "");
}

/* FOUND: incarnation of adopted workers; HOLDER: pid of a client */
enum { FOUND = 4000, HOLDER = 812 };

/* Create a pool whose previous scheduler crashed and left `workers` workers, which have not
 * reported. */
static bool pool_found(uint32_t workers)
{
    if (!pool_make(GP_CORE_CPU, workers))
        return false;
    for (uint32_t s = 0; s < workers; s++)
        say((gp_core_event){
            .kind = GP_CORE_EVENT_WORKER_FOUND, .slot = s, .incarnation = FOUND, .pid = 4711 + (int32_t)s });
    say((gp_core_event){ .kind = GP_CORE_EVENT_TICK });
    return count_of(GP_CORE_SPAWN) == 0;
}

/* Report that a worker serves a lease in generation 3, held by process `pid`. */
static void reports(uint32_t slot, uint64_t lease, int32_t pid)
{
    gp_core_event event = of_worker(GP_CORE_EVENT_WORKER_READY, slot);

    event.usable = true;
    event.lease = lease;
    event.generation = 3;
    event.token = session(77);
    event.pid = pid;
    event.session = session(1);
    say(event);
}

static gp_core_claim claim_of(uint32_t members)
{
    gp_core_claim of = { .token = session(77), .min = members, .member_count = members };

    for (uint32_t i = 0; i < members; i++)
        of.members[i] = (gp_core_member){ .slot = i, .incarnation = FOUND };
    return of;
}

TEST(late_claim_of_a_lease_reports_its_silent_member_to_the_client)
{
    const gp_core_claim of = claim_of(2);
    const gp_core_action *reported;

    REQUIRE(pool_found(2));
    reports(0, 9, HOLDER);
    reports(1, 9, HOLDER);
    beats(1, GP_CORE_USERS, 0, 0); /* user code is not killed */
    silent_until(1, 20000, 2);
    CHECK(core->slots[1].suspect);
    connect(1);
    claim(1, 9, &of);
    CHECK(find(GP_CORE_OK) != NULL);
    wait_ms(1);
    reported = find(GP_CORE_WORKER_SUSPECT);
    REQUIRE(reported != NULL);
    CHECK_INT(1, reported->lost_slot);
    CHECK_INT(9, reported->lease);
    wait_ms(500);
    CHECK(find(GP_CORE_WORKER_SUSPECT) == NULL);
}

/* Advance the time while all workers send heartbeats. */
static void beats_for(int64_t ms, uint32_t workers)
{
    for (int64_t end = now + ms; now < end;) {
        for (uint32_t s = 0; s < workers; s++)
            say(of_worker(GP_CORE_EVENT_WORKER_BEAT, s));
        wait_ms(500);
    }
}

/* A worker can hang before it is ready, for example in the driver of a broken GPU. */
TEST(worker_that_never_becomes_ready_does_not_block_requests_forever)
{
    REQUIRE(pool_new(GP_CORE_CPU, 2, false));
    spawned(0, 4711);
    ready(0);
    connect(1);
    ask(1, 0, 0); /* all workers of the pool */
    for (int i = 0; i < GP_CORE_EARLY_DEATHS_MAX; i++) {
        CHECK(core->slots[1].process == GP_CORE_STARTING);
        beats_for(core->config.start_ms, 1);
        CHECK(core->slots[1].process == GP_CORE_DYING);
        died(1, 9);
        if (i + 1 < GP_CORE_EARLY_DEATHS_MAX)
            beats_for(2000, 1);
    }
    CHECK(core->slots[1].disabled);
    CHECK_CONTAINS(core->slots[1].reason, "was not ready before the deadline");
    REQUIRE(find(GP_CORE_GRANT) != NULL);
    CHECK_INT(1, find(GP_CORE_GRANT)->member_count);
}

TEST(lack_of_a_resource_disables_no_worker)
{
    gp_core_event unborn;

    REQUIRE(pool_new(GP_CORE_CPU, 1, true));
    died(0, 9);
    for (int i = 0; i < 2 * GP_CORE_EARLY_DEATHS_MAX; i++) {
        REQUIRE(find(GP_CORE_SPAWN) != NULL);
        unborn = of_worker(GP_CORE_EVENT_WORKER_DIED, 0);
        unborn.death = GP_CORE_DIED_SHORTAGE;
        say(unborn);
        CHECK(find(GP_CORE_SPAWN) == NULL);
        CHECK(!core->slots[0].disabled);
        wait_ms(1000);
    }
    unborn.incarnation = core->slots[0].incarnation;
    unborn.death = GP_CORE_DIED_UNBORN;
    for (int i = 0; i < GP_CORE_EARLY_DEATHS_MAX; i++) {
        say(unborn);
        wait_ms(2000);
        unborn.incarnation = core->slots[0].incarnation;
    }
    CHECK(core->slots[0].disabled);
}

/* Ids from other processes must not exhaust the range of lease ids. */
TEST(claims_with_ids_at_the_end_of_their_range_are_refused)
{
    gp_core_claim of = { .token = session(77), .min = 1, .member_count = 1 };

    of.members[0] = (gp_core_member){ .slot = 0, .incarnation = 4000 };
    REQUIRE(pool_new(GP_CORE_CPU, 1, true));
    connect(1);
    claim(1, UINT64_MAX, &of);
    check_refused(GP_EINVAL, "malformed lease_claim");
    say((gp_core_event){ .kind = GP_CORE_EVENT_LEASE_CLAIM,
                         .session = session(1),
                         .correlation = 91,
                         .lease = 9,
                         .generation = UINT32_MAX,
                         .claim = &of });
    check_refused(GP_EINVAL, "malformed lease_claim");
    ask(1, 1, 1);
    REQUIRE(find(GP_CORE_GRANT) != NULL);
    CHECK_INT(1, find(GP_CORE_GRANT)->lease);

    REQUIRE(pool_found(1));
    reports(0, UINT64_MAX, 0);
    wait_ms(core->config.adopt_ms); /* no client claims it */
    CHECK(find(GP_CORE_REVOKE) != NULL);
    revoked(0, UINT64_MAX);
    connect(1);
    ask(1, 1, 1);
    REQUIRE(find(GP_CORE_GRANT) != NULL);
    CHECK_INT(1, find(GP_CORE_GRANT)->lease);
}

TEST(worker_that_misses_the_report_period_is_replaced)
{
    REQUIRE(pool_found(2));
    reports(0, 0, 0);
    wait_ms(core->config.adopt_ms - 1);
    CHECK(core->slots[1].process == GP_CORE_AWAITED);
    connect(1);
    ask(1, 2, 2);
    CHECK(find(GP_CORE_GRANT) == NULL);
    wait_ms(1);
    REQUIRE(find(GP_CORE_KILL) != NULL);
    CHECK_INT(1, find(GP_CORE_KILL)->slot);
    died(1, 9);
    CHECK(find(GP_CORE_SPAWN) != NULL);
    spawned(1, 5000);
    ready(1);
    CHECK_INT(2, count_of(GP_CORE_GRANT));
}

TEST(lease_is_kept_for_a_live_client_that_claims_late)
{
    gp_core_claim of = claim_of(2);

    REQUIRE(pool_found(2));
    reports(0, 9, HOLDER);
    reports(1, 9, HOLDER);
    beats_for(60 * 1000, 2);
    CHECK_INT(0, count_of(GP_CORE_REVOKE));
    CHECK(core->stopping == GP_CORE_RUNNING);
    connect(2);
    ask(2, 1, 1);
    CHECK(find(GP_CORE_GRANT) == NULL);
    const gp_core_action *wait = find(GP_CORE_LEASE_WAIT);

    REQUIRE(wait != NULL);
    CHECK_CONTAINS(wait->text, "lease 9");
    CHECK_CONTAINS(wait->text, "pid 812");
    connect(1);
    claim(1, 9, &of);
    CHECK(find(GP_CORE_OK) != NULL);
    CHECK(find(GP_CORE_GRANT) == NULL && find(GP_CORE_WORKER_LOST) == NULL);
    CHECK_INT(9, core->slots[0].lease);
    CHECK_INT(3, core->leases[0].generation);
    of_client(GP_CORE_EVENT_LEASE_RELEASE, 1, 9);
    CHECK_INT(2, count_of(GP_CORE_REVOKE));
}

TEST(slot_of_a_lost_worker_is_briefly_reserved_for_its_client)
{
    gp_core_claim of = claim_of(2);

    pool_follows = 65536;
    REQUIRE(pool_make(GP_CORE_CPU, 3));
    say((gp_core_event){ .kind = GP_CORE_EVENT_WORKER_FOUND, .slot = 2, .incarnation = FOUND, .pid = 4713 });
    say((gp_core_event){ .kind = GP_CORE_EVENT_TICK });
    CHECK_INT(2, count_of(GP_CORE_SPAWN));
    reports(2, 0, 0);
    for (uint32_t s = 0; s < 2; s++) {
        spawned(s, 5000 + (int32_t)s);
        ready(s);
    }
    connect(2);
    ask(2, 1, 1);
    REQUIRE(find(GP_CORE_GRANT) != NULL);
    CHECK_INT(2, find(GP_CORE_GRANT)->slot);
    connect(3);
    ask(3, 1, 1);
    CHECK(find(GP_CORE_GRANT) == NULL);
    wait_ms(core->config.keep_ms - 1);
    connect(1);
    claim(1, 9, &of);
    CHECK(find(GP_CORE_OK) != NULL);
    CHECK_INT(2, count_of(GP_CORE_GRANT));

    REQUIRE(
        /* two schedulers crashed in succession: the replacement is equally suitable */
        pool_make(GP_CORE_CPU, 1));
    say((gp_core_event){ .kind = GP_CORE_EVENT_WORKER_FOUND,
                         .slot = 0,
                         .incarnation = FOUND + 1,
                         .pid = 4713,
                         .holds = true });
    reports(0, 0, 0);
    connect(2);
    ask(2, 1, 1);
    CHECK(find(GP_CORE_GRANT) == NULL);
    connect(1);
    of.member_count = of.min = 1;
    claim(1, 9, &of);
    CHECK(find(GP_CORE_OK) != NULL);
    CHECK_INT(1, count_of(GP_CORE_GRANT));

    REQUIRE(pool_make(GP_CORE_CPU, 1)); /* no client claims the worker */
    say((gp_core_event){ .kind = GP_CORE_EVENT_TICK });
    spawned(0, 5000);
    ready(0);
    connect(2);
    ask(2, 1, 1);
    CHECK(find(GP_CORE_GRANT) == NULL);
    CHECK(find(GP_CORE_LEASE_WAIT) == NULL); /* a short wait is not reported */
    wait_ms(core->config.keep_ms - 1);
    wait_ms(1);
    CHECK(find(GP_CORE_GRANT) != NULL);
    pool_follows = 0;
}

TEST(client_that_requests_a_lease_gives_up_its_claim)
{
    gp_core_claim of = claim_of(2);

    REQUIRE(pool_found(2));
    reports(0, 9, HOLDER);
    reports(1, 9, HOLDER);
    connect(1);
    ask(1, 2, 2); /* while reports are awaited */
    wait_ms(core->config.adopt_ms);
    CHECK_INT(2, count_of(GP_CORE_REVOKE));
    revoked(0, 9);
    revoked(1, 9);
    CHECK_INT(2, count_of(GP_CORE_GRANT));

    REQUIRE(pool_found(2));
    reports(0, 9, HOLDER);
    reports(1, 9, HOLDER);
    beats_for(3000, 2);
    connect(1);
    ask(1, 2, 2); /* after the report period */
    CHECK_INT(2, count_of(GP_CORE_REVOKE));

    REQUIRE(pool_found(2));
    reports(0, 9, 0); /* the client had attached to the other worker only */
    reports(1, 9, HOLDER);
    beats_for(3000, 2);
    CHECK(core->slots[0].claim == 9);
    connect(1);
    claim(1, 9, &of);
    CHECK(find(GP_CORE_OK) != NULL && find(GP_CORE_GRANT) == NULL);
}

TEST(unclaimed_lease_is_revoked_when_its_client_exits)
{
    REQUIRE(pool_found(2));
    reports(0, 9, HOLDER);
    reports(1, 9, HOLDER);
    beats_for(3000, 2);
    say(of_worker(GP_CORE_EVENT_WORKER_UNHELD, 0));
    CHECK_INT(2, count_of(GP_CORE_REVOKE)); /* both workers named the same process */
    CHECK_INT(9, find(GP_CORE_REVOKE)->lease);
    say(of_worker(GP_CORE_EVENT_WORKER_UNHELD, 1));
    CHECK_INT(0, count_of(GP_CORE_REVOKE));
    revoked(0, 9);
    revoked(1, 9);
    connect(2);
    ask(2, 2, 2);
    CHECK_INT(2, count_of(GP_CORE_GRANT));

    REQUIRE(pool_found(1)); /* the holder exited before the workers reported */
    reports(0, 9, 0);
    wait_ms(core->config.adopt_ms);
    REQUIRE(find(GP_CORE_REVOKE) != NULL);
}

TEST(late_claims_with_a_lost_member_form_again_or_are_refused)
{
    gp_core_claim of = claim_of(2);

    REQUIRE(pool_found(2));
    reports(0, 9, HOLDER);
    reports(1, 9, HOLDER);
    beats_for(3000, 2);
    died(1, 9);
    spawned(1, 5000);
    ready(1);
    connect(1);
    claim(1, 9, &of);
    CHECK(find(GP_CORE_OK) != NULL);
    CHECK_INT(1, count_of(GP_CORE_WORKER_LOST));
    CHECK_INT(2, count_of(GP_CORE_GRANT));

    REQUIRE(pool_found(2));
    reports(0, 9, HOLDER);
    reports(1, 9, HOLDER);
    beats_for(3000, 2);
    died(1, 9);
    spawned(1, 5000);
    ready(1);
    connect(2);
    ask(2, 1, 1); /* the replacement has no lease */
    REQUIRE(find(GP_CORE_GRANT) != NULL);
    connect(1);
    claim(1, 9, &of);
    check_refused(GP_ESTALE, "");
    REQUIRE(find(GP_CORE_REVOKE) != NULL);
    CHECK_INT(0, find(GP_CORE_REVOKE)->slot);
}

TEST(requests_with_too_few_named_devices_are_refused)
{
    gp_core_wish wish = { .devices = "1,1", .floor = 2 };

    REQUIRE(pool_new(GP_CORE_CPU, 2, true));
    connect(1);
    ask_wish(1, &wish);
    check_refused(GP_EINVAL, "names 1 workers, but at least 2 are needed");
}

TEST(claims_contradicted_by_a_live_worker_are_refused)
{
    gp_core_claim of = { .token = session(77), .min = 1, .member_count = 1 };

    REQUIRE(pool_new(GP_CORE_CPU, 1, true));
    of.members[0] = (gp_core_member){ .slot = 0, .incarnation = core->slots[0].incarnation };
    connect(1);
    claim(1, 9, &of);
    check_refused(GP_ESTALE, "");
}

/* Report that a worker serves lease 12 of client 2. */
static void reports_other_lease(uint32_t slot)
{
    gp_core_event event = of_worker(GP_CORE_EVENT_WORKER_READY, slot);

    event.usable = true;
    event.lease = 12;
    event.generation = 3;
    event.token = session(78);
    event.pid = HOLDER + 1;
    event.session = session(2);
    say(event);
}

TEST(training_continues_without_a_worker_that_left_before_the_crash)
{
    for (int claim_first = 0; claim_first < 2; claim_first++) {
        gp_core_claim of = claim_of(3);

        of.min = of.floor = 1;
        REQUIRE(pool_found(3));
        connect(1);
        for (int i = 0; i < 2; i++) {
            if (i == claim_first) {
                reports(0, 9, HOLDER);
                reports(1, 9, HOLDER);
                reports_other_lease(2);
            } else {
                claim(1, 9, &of);
                CHECK(find(GP_CORE_OK) != NULL);
            }
        }
        CHECK_INT(3, (int)core->leases[0].members);
        CHECK_INT(2, count_of(GP_CORE_GRANT));
        CHECK_INT(0, (int)core->slots[2].lease);
        CHECK_INT(12, (int)core->slots[2].claim);
    }
}

TEST(lease_below_its_minimum_ends_with_the_worker_that_left)
{
    gp_core_claim of = claim_of(2);

    of.min = of.floor = 2;
    REQUIRE(pool_found(2));
    reports(0, 9, HOLDER);
    reports_other_lease(1);
    connect(1);
    claim(1, 9, &of);
    check_refused(GP_ESTALE, "worker 2 now has another lease");
}

TEST(claims_for_one_worker_wait_for_its_report)
{
    gp_core_claim of = claim_of(1), other = claim_of(1);

    other.token = session(78);
    REQUIRE(pool_found(1));
    connect(1);
    connect(2);
    claim(1, 9, &of);
    CHECK(find(GP_CORE_OK) != NULL);
    claim(2, 12, &other);
    check_refused(GP_EBUSY, "worker 1 has not reported yet");
    reports_other_lease(0);
    REQUIRE(find(GP_CORE_LEASE_ENDED) != NULL);
    CHECK_INT(9, (int)find(GP_CORE_LEASE_ENDED)->lease);
    claim(2, 12, &other);
    CHECK(find(GP_CORE_OK) != NULL);
    CHECK_INT(12, (int)core->slots[0].lease);
}

TEST(refused_lease_is_revoked_from_a_worker_that_reports_later)
{
    gp_core_claim of = claim_of(2);

    of.token = session(78);
    REQUIRE(pool_found(2));
    reports(0, 9, HOLDER);
    connect(2);
    claim(2, 12, &of);
    check_refused(GP_ESTALE, "worker 1 now has another lease");
    reports_other_lease(1);
    REQUIRE(find(GP_CORE_REVOKE) != NULL);
    CHECK_INT(1, find(GP_CORE_REVOKE)->slot);
}

TEST(two_schedulers_never_assign_the_same_lease_id)
{
    pool_follows = 65536;
    REQUIRE(pool_make(GP_CORE_CPU, 1));
    pool_follows = 0;
    say((gp_core_event){ .kind = GP_CORE_EVENT_TICK });
    wait_ms(core->config.keep_ms);
    spawned(0, 4711);
    ready(0);
    connect(1);
    ask(1, 1, 1);
    REQUIRE(find(GP_CORE_GRANT) != NULL);
    CHECK_INT(65537, (int)find(GP_CORE_GRANT)->lease);
}

TEST(suspect_worker_that_acknowledges_a_lease_has_recovered)
{
    REQUIRE(pool_new(GP_CORE_CPU, 1, true));
    wait_ms(core->config.suspect_ms);
    CHECK(core->slots[0].suspect);
    connect(1);
    ask(1, 1, 1);
    acked(0, 1, 1);
    CHECK(!core->slots[0].suspect);
    wait_ms(core->config.suspect_ms); /* the client learns about the next silence */
    CHECK(find(GP_CORE_WORKER_SUSPECT) != NULL);
}

/* ---- elastic leases (resize.c) ---- */

/* Create a pool in which client 1 holds the first `held` workers as elastic lease 1.
 *   workers  size of the pool
 *   most     maximum members of the lease
 *   floor    minimum members of the lease */
static bool pool_elastic(uint32_t workers, uint32_t held, uint32_t most, uint32_t floor)
{
    gp_core_wish wish = {
        .min = held, .max = held, .floor = floor, .description = "train lenet", .token = session(77)
    };

    if (!pool_new(GP_CORE_CPU, workers, true))
        return false;
    connect(1);
    connect(2);
    ask_wish(1, &wish);
    for (uint32_t i = 0; i < held; i++)
        acked(i, 1, 1);
    core->leases[0].want = most;
    return find(GP_CORE_LEASE_GRANT) != NULL;
}

static void resize_lease(uint8_t client, uint64_t lease, uint32_t workers)
{
    say((gp_core_event){ .kind = GP_CORE_EVENT_LEASE_RESIZE,
                         .session = session(client),
                         .correlation = 91,
                         .lease = lease,
                         .workers = workers });
}

static void form(uint8_t client, uint32_t generation)
{
    say((gp_core_event){ .kind = GP_CORE_EVENT_LEASE_FORM,
                         .session = session(client),
                         .correlation = 92,
                         .lease = 1,
                         .generation = generation,
                         .joining = UINT64_MAX });
}

TEST(elastic_lease_continues_at_once_after_a_worker_failure)
{
    REQUIRE(pool_elastic(3, 3, 3, 1));
    died(1, 9);
    CHECK_INT(1, count_of(GP_CORE_WORKER_LOST));
    CHECK_INT(2, count_of(GP_CORE_PEER_LOST));
    REQUIRE(count_of(GP_CORE_GRANT) == 2);
    CHECK_INT(2, find(GP_CORE_GRANT)->generation);
    CHECK_INT(2, find(GP_CORE_GRANT)->member_count);
    acked(0, 1, 2);
    acked(2, 1, 2);
    REQUIRE(find(GP_CORE_LEASE_GRANT) != NULL);
    CHECK_INT(2, find(GP_CORE_LEASE_GRANT)->member_count);
    CHECK_INT(2, find(GP_CORE_LEASE_GRANT)->members[1].slot);
    ask(2, 1, 1);
    ready(1); /* the replacement belongs to lease 1, not to client 2, which waits */
    REQUIRE(count_of(GP_CORE_GRANT) == 1);
    CHECK_INT(1, find(GP_CORE_GRANT)->slot);
    CHECK_INT(1, find(GP_CORE_GRANT)->lease);
    CHECK_INT(2, find(GP_CORE_GRANT)->generation);
    CHECK_INT(1, find(GP_CORE_GRANT)->member_count); /* granted alone, to prepare */
    CHECK(find(GP_CORE_LEASE_CHANGE) == NULL);
    acked(1, 1, 2);
    REQUIRE(find(GP_CORE_LEASE_CHANGE) != NULL);
    CHECK_INT(3, find(GP_CORE_LEASE_CHANGE)->workers);
    CHECK_INT(1, find(GP_CORE_LEASE_CHANGE)->member_count);
    CHECK_INT(1, find(GP_CORE_LEASE_CHANGE)->members[0].slot);
    CHECK(!find(GP_CORE_LEASE_CHANGE)->asked);
    wait_ms(50);
    CHECK(find(GP_CORE_LEASE_CHANGE) == NULL); /* notified only once */
    form(1, 2);
    CHECK_INT(3, count_of(GP_CORE_GRANT));
    CHECK_INT(3, find(GP_CORE_GRANT)->generation);
}

TEST(elastic_lease_below_its_minimum_waits_for_a_replacement)
{
    REQUIRE(pool_elastic(2, 2, 2, 2));
    died(1, 9);
    CHECK_INT(0, count_of(GP_CORE_GRANT));
    ready(1);
    CHECK_INT(2, count_of(GP_CORE_GRANT));
}

TEST(second_failure_before_acknowledgement_also_excludes_the_worker)
{
    REQUIRE(pool_elastic(3, 3, 3, 1));
    died(1, 9);
    acked(0, 1, 2);
    died(2, 9);
    REQUIRE(count_of(GP_CORE_GRANT) == 1);
    CHECK_INT(3, find(GP_CORE_GRANT)->generation);
    acked(0, 1, 2); /* acknowledgement of the previous generation: ignored */
    CHECK(find(GP_CORE_LEASE_GRANT) == NULL);
    acked(0, 1, 3);
    CHECK(find(GP_CORE_LEASE_GRANT) != NULL);
    died(0, 9); /* no member is left: the first ready worker forms the group */
    ready(2);
    REQUIRE(count_of(GP_CORE_GRANT) == 1);
    CHECK_INT(2, find(GP_CORE_GRANT)->slot);
}

TEST(failure_of_an_unjoined_replacement_keeps_the_formation)
{
    REQUIRE(pool_elastic(2, 2, 2, 1));
    died(1, 9);
    acked(0, 1, 2);
    ready(1);
    acked(1, 1, 2);
    died(1, 9);
    CHECK_INT(0, count_of(GP_CORE_WORKER_LOST) + count_of(GP_CORE_PEER_LOST));
    CHECK(core->leases[0].phase == GP_CORE_HELD);
    CHECK_INT(1, find(GP_CORE_LEASE_CHANGE)->workers); /* the previous offer is void */
}

TEST(released_workers_serve_the_next_request)
{
    REQUIRE(pool_elastic(3, 3, 3, 1));
    ask(2, 1, 1);
    resize_lease(2, 1, 2);
    REQUIRE(find(GP_CORE_LEASE_CHANGE) != NULL && find(GP_CORE_OK) != NULL);
    CHECK_INT(2, find(GP_CORE_LEASE_CHANGE)->workers);
    CHECK(find(GP_CORE_LEASE_CHANGE)->asked);
    CHECK_INT(0, count_of(GP_CORE_REVOKE)); /* the worker is still in use */
    form(1, 1);
    CHECK_INT(1, count_of(GP_CORE_REVOKE));
    CHECK_INT(2, find(GP_CORE_REVOKE)->slot);
    CHECK_INT(2, count_of(GP_CORE_GRANT));
    revoked(2, 1);
    REQUIRE(count_of(GP_CORE_GRANT) == 1);
    CHECK_INT(2, find(GP_CORE_GRANT)->lease);
}

TEST(free_workers_are_offered_to_elastic_leases_up_to_their_maximum)
{
    REQUIRE(pool_elastic(4, 1, 3, 1));
    ask(2, 4, 4);
    wait_ms(1);
    CHECK(find(GP_CORE_LEASE_CHANGE) == NULL); /* another client waits for the free workers */
    CHECK_INT(1, core->leases[0].members);
    of_client(GP_CORE_EVENT_LEASE_LEAVE, 2, 0);
    CHECK_INT(2, count_of(GP_CORE_GRANT));
    acked(1, 1, 1);
    CHECK(find(GP_CORE_LEASE_CHANGE) == NULL); /* both workers are reported as one change */
    acked(2, 1, 1);
    REQUIRE(find(GP_CORE_LEASE_CHANGE) != NULL);
    CHECK_INT(3, find(GP_CORE_LEASE_CHANGE)->workers);
    CHECK_INT(2, find(GP_CORE_LEASE_CHANGE)->member_count);
    ask(2, 2, 2); /* too late for these workers: they already prepare */
    CHECK_INT(0, count_of(GP_CORE_REVOKE));
    form(1, 7); /* another generation */
    CHECK_INT(0, count_of(GP_CORE_GRANT));
    form(2, 2); /* lease of another session */
    CHECK_INT(GP_ESTALE, find(GP_CORE_ERROR)->status);
    form(1, 1);
    CHECK_INT(3, count_of(GP_CORE_GRANT));
    CHECK_INT(2, find(GP_CORE_GRANT)->generation);
    CHECK_INT(3, find(GP_CORE_GRANT)->member_count);
}

static void form_with(uint64_t joining)
{
    say((gp_core_event){ .kind = GP_CORE_EVENT_LEASE_FORM,
                         .session = session(1),
                         .correlation = 92,
                         .lease = 1,
                         .generation = core->leases[0].generation,
                         .joining = joining });
}

TEST(unprepared_workers_join_no_formation_and_are_invited_again)
{
    REQUIRE(pool_elastic(4, 2, 4, 1));
    wait_ms(1);
    acked(2, 1, 1);
    acked(3, 1, 1);
    CHECK_INT(4, find(GP_CORE_LEASE_CHANGE)->workers);
    form_with(1 << 2); /* worker 4 is still preparing */
    REQUIRE(count_of(GP_CORE_GRANT) == 3);
    CHECK_INT(3, find(GP_CORE_GRANT)->member_count);
    for (uint32_t s = 0; s < 3; s++)
        acked(s, 1, 2);
    CHECK_INT(3, find(GP_CORE_LEASE_GRANT)->member_count);
    REQUIRE(count_of(GP_CORE_GRANT) == 1); /* granted alone again, in the present generation */
    CHECK_INT(3, find(GP_CORE_GRANT)->slot);
    CHECK_INT(2, find(GP_CORE_GRANT)->generation);
    core->config.beat_ms = 0;
    wait_ms(60000); /* preparation has no time limit */
    CHECK_INT(0, count_of(GP_CORE_KILL));
    acked(3, 1, 1); /* acknowledgement of the previous generation: ignored */
    CHECK(find(GP_CORE_LEASE_CHANGE) == NULL);
    acked(3, 1, 2);
    REQUIRE(find(GP_CORE_LEASE_CHANGE) != NULL);
    CHECK_INT(3, find(GP_CORE_LEASE_CHANGE)->members[0].slot);
}

TEST(worker_failure_forms_a_generation_without_preparing_workers)
{
    REQUIRE(pool_elastic(4, 2, 4, 1));
    wait_ms(1);
    acked(2, 1, 1);
    acked(3, 1, 1);
    died(0, 9);
    REQUIRE(count_of(GP_CORE_GRANT) == 1);
    CHECK_INT(1, find(GP_CORE_GRANT)->slot);
    acked(1, 1, 2);
    CHECK_INT(1, find(GP_CORE_LEASE_GRANT)->member_count);
    CHECK_INT(2, count_of(GP_CORE_GRANT)); /* the preparing workers, each alone */
    /* Too few members would remain, so the preparing worker joins. */
    REQUIRE(pool_elastic(3, 2, 3, 2));
    wait_ms(1);
    acked(2, 1, 1);
    died(0, 9);
    REQUIRE(count_of(GP_CORE_GRANT) == 2);
    CHECK_INT(2, find(GP_CORE_GRANT)->member_count);
}

TEST(preparing_workers_are_released_with_a_smaller_size_or_lease_end)
{
    REQUIRE(pool_elastic(4, 2, 4, 1));
    wait_ms(1);
    acked(2, 1, 1);
    acked(3, 1, 1);
    resize_lease(2, 1, 3);
    REQUIRE(count_of(GP_CORE_REVOKE) == 1);
    CHECK_INT(3, find(GP_CORE_REVOKE)->slot);
    REQUIRE(find(GP_CORE_LEASE_CHANGE) != NULL);
    CHECK_INT(3, find(GP_CORE_LEASE_CHANGE)->workers);
    CHECK_INT(1, find(GP_CORE_LEASE_CHANGE)->member_count);
    of_client(GP_CORE_EVENT_LEASE_RELEASE, 1, 1);
    CHECK_INT(3, count_of(GP_CORE_REVOKE));
}

TEST(surplus_slot_is_released_after_the_formation)
{
    REQUIRE(pool_elastic(3, 3, 3, 1));
    died(2, 9);
    resize_lease(2, 1, 2);
    CHECK_INT(7, core->leases[0].members);
    acked(0, 1, 2);
    acked(1, 1, 2);
    CHECK_INT(3, core->leases[0].members);
    CHECK(find(GP_CORE_LEASE_CHANGE) == NULL);
    ready(2);
    ask(2, 1, 1);
    CHECK_INT(2, find(GP_CORE_GRANT)->lease);
}

TEST(impossible_sizes_are_refused_with_a_message)
{
    REQUIRE(pool_elastic(3, 3, 3, 2));
    resize_lease(2, 1, 1);
    CHECK_INT(GP_EINVAL, find(GP_CORE_ERROR)->status);
    resize_lease(2, 1, 4);
    CHECK_INT(GP_ENODEV, find(GP_CORE_ERROR)->status);
    resize_lease(2, 9, 1);
    CHECK_INT(GP_ESTALE, find(GP_CORE_ERROR)->status);
    CHECK(find(GP_CORE_LEASE_CHANGE) == NULL);
    REQUIRE(pool_held(2));
    connect(2);
    resize_lease(2, 1, 1);
    check_refused(GP_EINVAL, "it has a fixed number of workers; an elastic team can be resized");
}

TEST(irreplaceable_member_is_released_and_the_formation_remains)
{
    REQUIRE(pool_elastic(2, 2, 2, 1));
    died(1, 9);
    acked(0, 1, 2);
    for (int i = 0; i < GP_CORE_EARLY_DEATHS_MAX; i++) {
        wait_ms(2000);
        died(1, 9);
    }
    CHECK(core->slots[1].disabled);
    CHECK_INT(1, core->leases[0].members);
    CHECK(core->leases[0].phase == GP_CORE_HELD);
    CHECK_INT(2, core->leases[0].generation);
}
