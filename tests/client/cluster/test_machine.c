/* The state machine of a cluster job, step by step; tests/client/cluster/sim has the faults. */
#include "client/cluster/machine.h"
#include "tests/gp_test.h"

static cluster_job job;
static int64_t now;

static void apply(cluster_event_kind kind, const char *text)
{
    cluster_step(&job, &(cluster_event){ .kind = kind, .text = text }, now);
}

/* Apply a listing with one entry, or with none for id NULL. */
static void list(const char *id, cluster_entry_state state)
{
    cluster_entry entry = { .name = "gp-0", .state = state, .reason = "NODE_FAIL" };

    snprintf(entry.id, sizeof(entry.id), "%s", id != NULL ? id : "");
    cluster_step(&job,
                 &(cluster_event){ .kind = CLUSTER_LISTED,
                                   .requested_ms = now,
                                   .unix_ms = now,
                                   .changes = job.changes,
                                   .entries = &entry,
                                   .entry_count = id != NULL },
                 now);
}

static void read_facts(const cluster_facts *facts)
{
    cluster_step(&job, &(cluster_event){ .kind = CLUSTER_FACTS, .requested_ms = now, .facts = facts }, now);
}

static void begin(const char *clock)
{
    now = 1000;
    cluster_job_init(&job, "gp-0");
    apply(CLUSTER_OPENED, clock);
}

static void launch(void)
{
    begin("boot 1");
    CHECK(cluster_next(&job, now).kind == CLUSTER_DO_LAUNCH);
    apply(CLUSTER_LAUNCH_BEGINS, NULL);
    apply(CLUSTER_LAUNCHED, "4803");
}

TEST(job_goes_through_its_states)
{
    cluster_facts facts = { .attempt = 1 };

    launch();
    CHECK(job.state == CLUSTER_QUEUED);
    list("4803", CLUSTER_ENTRY_QUEUED);
    CHECK(job.state == CLUSTER_QUEUED);
    list("4803", CLUSTER_ENTRY_RUNNING);
    read_facts(&facts);
    CHECK(job.state == CLUSTER_STARTING);
    facts.begun = true;
    read_facts(&facts);
    CHECK(job.state == CLUSTER_RUNNING);
    /* requeued: the old attempt does not count as running */
    list("4803", CLUSTER_ENTRY_QUEUED);
    read_facts(&facts);
    CHECK(job.state == CLUSTER_QUEUED);
    list("4803", CLUSTER_ENTRY_RUNNING);
    read_facts(&facts);
    CHECK(job.state == CLUSTER_STARTING);
    facts = (cluster_facts){ .attempt = 2, .begun = true, .has_result = true, .exit_code = 7 };
    read_facts(&facts);
    CHECK(job.state == CLUSTER_RUNNING && job.has_result);
    list("4803", CLUSTER_ENTRY_ENDED);
    CHECK(job.state == CLUSTER_RUNNING);
    read_facts(&facts);
    CHECK(job.state == CLUSTER_ENDED && job.end == CLUSTER_END_RESULT && job.exit_code == 7);
    CHECK(cluster_next(&job, now).kind == CLUSTER_DO_NOTHING);
}

TEST(start_is_late_but_a_queue_is_not)
{
    launch();
    now += 86400000;
    list("4803", CLUSTER_ENTRY_QUEUED);
    CHECK(job.state == CLUSTER_QUEUED && !cluster_start_is_late(&job, now));
    list("4803", CLUSTER_ENTRY_RUNNING);
    CHECK(!cluster_start_is_late(&job, now + CLUSTER_START_MS - 1));
    CHECK(cluster_start_is_late(&job, now + CLUSTER_START_MS));
    CHECK(job.state == CLUSTER_STARTING);
}

TEST(job_is_lost_after_two_listings_five_seconds_apart)
{
    const cluster_facts none = { 0 };

    launch();
    list(NULL, CLUSTER_ENTRY_ENDED);
    read_facts(&none);
    now += CLUSTER_CONFIRM_MS - 1;
    list(NULL, CLUSTER_ENTRY_ENDED);
    read_facts(&none);
    CHECK(job.state == CLUSTER_QUEUED);
    now += 1;
    list(NULL, CLUSTER_ENTRY_ENDED);
    CHECK(job.state == CLUSTER_QUEUED);
    read_facts(&none);
    CHECK(job.state == CLUSTER_ENDED && job.end == CLUSTER_END_LOST);
    CHECK_INT(CLUSTER_EXIT_NO_OUTCOME, job.exit_code);
    /* the engine lists it again */
    list("4803", CLUSTER_ENTRY_RUNNING);
    CHECK(job.state == CLUSTER_STARTING && job.end == CLUSTER_END_NONE && job.exit_code == -1);
}

TEST(lost_job_has_the_reason_of_the_engine)
{
    const cluster_facts none = { 0 };

    launch();
    list("4803", CLUSTER_ENTRY_ENDED);
    now += CLUSTER_CONFIRM_MS;
    list("4803", CLUSTER_ENTRY_ENDED);
    read_facts(&none);
    CHECK(job.end == CLUSTER_END_LOST);
    CHECK_CONTAINS(job.reason, "NODE_FAIL");
}

TEST(refusal_of_the_first_launch_is_final)
{
    begin("boot 1");
    apply(CLUSTER_LAUNCH_BEGINS, NULL);
    apply(CLUSTER_LAUNCH_REFUSED, "invalid account");
    CHECK(job.state == CLUSTER_ENDED && job.end == CLUSTER_END_REFUSED);
    CHECK_CONTAINS(job.reason, "invalid account");
}

TEST(cancel_before_the_launch_ends_the_job)
{
    begin("boot 1");
    apply(CLUSTER_CANCEL, NULL);
    CHECK(job.state == CLUSTER_ENDED && job.end == CLUSTER_END_CANCELED);
    CHECK(cluster_next(&job, now).kind == CLUSTER_DO_NOTHING);
}

TEST(cancel_is_repeated_while_the_job_is_listed)
{
    launch();
    apply(CLUSTER_CANCEL, NULL);
    CHECK(cluster_next(&job, now).kind == CLUSTER_DO_MARK);
    apply(CLUSTER_MARKED, NULL);
    CHECK(cluster_next(&job, now).kind == CLUSTER_DO_CANCEL);
    apply(CLUSTER_CANCEL_SENT, NULL);
    CHECK(cluster_next(&job, now).kind == CLUSTER_DO_LIST);
    list("4803", CLUSTER_ENTRY_RUNNING);
    CHECK(cluster_next(&job, now).kind != CLUSTER_DO_CANCEL);
    now += CLUSTER_CANCEL_MS;
    list("4803", CLUSTER_ENTRY_RUNNING);
    CHECK(cluster_next(&job, now).kind == CLUSTER_DO_CANCEL);
    list("4803", CLUSTER_ENTRY_ENDED);
    read_facts(&(cluster_facts){ 0 });
    CHECK(job.state == CLUSTER_ENDED && job.end == CLUSTER_END_CANCELED);
}

/* The engine has ended the job, and uses its id for another one. */
TEST(cancel_is_sent_only_for_a_job_that_the_engine_has)
{
    launch();
    apply(CLUSTER_CANCEL, NULL);
    apply(CLUSTER_MARKED, NULL);
    memset(&job.seen, 0, sizeof(job.seen)); /* another command */
    apply(CLUSTER_OPENED, "boot 1");
    CHECK(cluster_next(&job, now).kind == CLUSTER_DO_LIST);
    list(NULL, CLUSTER_ENTRY_ENDED);
    for (int i = 0; i < 2; i++, now += CLUSTER_CONFIRM_MS) {
        read_facts(&(cluster_facts){ 0 });
        CHECK(cluster_next(&job, now).kind != CLUSTER_DO_CANCEL);
    }
    list("4803", CLUSTER_ENTRY_RUNNING);
    CHECK(cluster_next(&job, now).kind == CLUSTER_DO_CANCEL);
    /* an engine that cannot list may still cancel */
    memset(&job.seen, 0, sizeof(job.seen));
    apply(CLUSTER_OPENED, "boot 1");
    apply(CLUSTER_LIST_FAILED, NULL);
    CHECK(cluster_next(&job, now).kind == CLUSTER_DO_CANCEL);
}

/* List two running jobs with the name of the job. */
static void list_both(void)
{
    cluster_entry entries[] = { { .name = "gp-0", .id = "1", .state = CLUSTER_ENTRY_RUNNING },
                                { .name = "gp-0", .id = "2", .state = CLUSTER_ENTRY_RUNNING } };

    now += CLUSTER_LIST_MS;
    cluster_step(&job,
                 &(cluster_event){ .kind = CLUSTER_LISTED,
                                   .entries = entries,
                                   .entry_count = 2,
                                   .requested_ms = now,
                                   .changes = job.changes },
                 now);
    now++;
}

/* The engine has accepted a launch late. The second job has just taken an attempt number. */
TEST(second_job_is_canceled_after_the_newest_attempt_has_begun)
{
    cluster_facts facts = { .attempt = 1, .begun = true, .engine_id = "1" };

    launch();
    list("1", CLUSTER_ENTRY_RUNNING);
    read_facts(&facts);
    CHECK_TEXT("1", job.attempt_id);
    for (int i = 0; i < 2; i++) {
        facts = (cluster_facts){ .attempt = 2, .begun = i > 0 };
        strcpy(facts.engine_id, i > 0 ? "2" : "");
        list_both();
        read_facts(&facts);
        CHECK(cluster_next(&job, now).kind != CLUSTER_DO_CANCEL_STRAY);
    }
    list_both();
    read_facts(&facts);
    CHECK(cluster_next(&job, now).kind == CLUSTER_DO_CANCEL_STRAY);
    CHECK_TEXT("1", job.stray_id);
    CHECK_TEXT("2", job.id);
}

/* slurmctld has recovered a state in which the job runs. */
TEST(allocation_of_a_job_with_a_result_is_canceled_after_two_minutes)
{
    cluster_facts facts = { .attempt = 1, .begun = true, .has_result = true, .exit_code = 3 };

    launch();
    facts.end_ms = now;
    list("4803", CLUSTER_ENTRY_RUNNING);
    read_facts(&facts);
    now += CLUSTER_RELEASE_MS - 1;
    list("4803", CLUSTER_ENTRY_RUNNING);
    read_facts(&facts);
    CHECK(cluster_next(&job, now).kind == CLUSTER_DO_LIST);
    for (int i = 0; i < 2; i++) { /* repeated until the engine obeys */
        now += CLUSTER_LIST_SOON_MS;
        list("4803", CLUSTER_ENTRY_RUNNING);
        read_facts(&facts);
        CHECK(cluster_next(&job, now).kind == CLUSTER_DO_CANCEL_STRAY);
        CHECK_TEXT("4803", job.stray_id);
        apply(CLUSTER_STRAY_CANCEL_SENT, NULL);
        CHECK(cluster_next(&job, now).kind != CLUSTER_DO_CANCEL_STRAY);
    }
    list("4803", CLUSTER_ENTRY_ENDED);
    read_facts(&facts);
    CHECK(job.state == CLUSTER_ENDED && job.end == CLUSTER_END_RESULT && job.exit_code == 3);
}

/* A listing and a look at the job take 20 s each, and the listing also serves other jobs. */
TEST(launch_is_repeated_if_the_engine_is_slow)
{
    const cluster_facts none = { 0 };

    begin("boot 1");
    apply(CLUSTER_LAUNCH_BEGINS, NULL);
    apply(CLUSTER_LAUNCH_UNKNOWN, NULL);
    list(NULL, CLUSTER_ENTRY_ENDED);
    read_facts(&none);
    CHECK(cluster_next(&job, now).kind != CLUSTER_DO_LAUNCH);
    now += CLUSTER_CONFIRM_MS;
    list(NULL, CLUSTER_ENTRY_ENDED);
    now += 40000;
    read_facts(&none);
    CHECK(cluster_next(&job, now).kind == CLUSTER_DO_LAUNCH);
    now += CLUSTER_REPEAT_MS; /* this process was suspended */
    CHECK(cluster_next(&job, now).kind != CLUSTER_DO_LAUNCH);
}

TEST(launches_without_a_reply_are_limited)
{
    const cluster_facts none = { 0 };
    int launches = 0;

    begin("boot 1");
    for (int i = 0; i < 100 && job.state != CLUSTER_ENDED; i++) {
        cluster_action action = cluster_next(&job, now);

        now = action.due_ms > now ? action.due_ms : now;
        if (action.kind == CLUSTER_DO_LAUNCH) {
            apply(CLUSTER_LAUNCH_BEGINS, NULL);
            apply(CLUSTER_LAUNCH_UNKNOWN, NULL);
            launches++;
        } else if (action.kind == CLUSTER_DO_LIST) {
            list(NULL, CLUSTER_ENTRY_ENDED);
        } else {
            read_facts(&none);
        }
    }
    CHECK_INT(CLUSTER_LAUNCHES_MAX, launches);
    CHECK(job.state == CLUSTER_ENDED && job.end == CLUSTER_END_LOST);
}
