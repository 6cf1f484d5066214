/* test_membership.c: decisions about a training's next group, event by event, without a pool. */
#include "client/train/membership.h"
#include "tests/gp_test.h"

/* A training and the actions for the last event. */
typedef struct story {
    membership r;
    membership_action actions[MEMBERSHIP_ACTIONS_MAX];
    size_t count;
} story;

static void tell(story *s, membership_event event)
{
    s->count = membership_step(&s->r, &event, s->actions);
}

static const membership_action *done(const story *s, membership_action_kind kind)
{
    for (size_t i = 0; i < s->count; i++)
        if (s->actions[i].kind == kind)
            return &s->actions[i];
    return NULL;
}

static void all_ready(story *s, uint64_t step)
{
    for (uint32_t rank = 0; rank < s->r.world; rank++)
        tell(s, (membership_event){ .kind = MEMBERSHIP_READY, .rank = rank, .step = step });
}

static void all_end(story *s, membership_end end)
{
    for (uint32_t rank = 0, world = s->r.world; rank < world; rank++)
        tell(s, (membership_event){ .kind = MEMBERSHIP_ENDED, .rank = rank, .end = end });
}

static void steps(story *s, uint64_t step)
{
    tell(s, (membership_event){ .kind = MEMBERSHIP_STEP, .step = step });
}

static void begin(story *s, uint32_t workers, uint32_t max_restarts)
{
    membership_init(&s->r, workers, max_restarts);
    all_ready(s, 0);
    CHECK(s->r.phase == MEMBERSHIP_STEPS);
    CHECK(done(s, MEMBERSHIP_DO_RESUME) == NULL);
}

/* A member fails, the other members stop, and the scheduler grants the lease with `left`
 * workers. */
static void lose(story *s, uint32_t rank, uint32_t left)
{
    tell(s, (membership_event){ .kind = MEMBERSHIP_LOST, .rank = rank });
    if (s->r.phase == MEMBERSHIP_OVER)
        return;
    for (uint32_t i = 0; i < s->r.world; i++)
        if (i != rank)
            tell(s, (membership_event){ .kind = MEMBERSHIP_ENDED, .rank = i, .end = MEMBERSHIP_FAILED });
    tell(s, (membership_event){ .kind = MEMBERSHIP_GRANT, .workers = left });
}

/* Workers become available, prepare and join. */
static void grow(story *s, uint32_t workers)
{
    tell(s, (membership_event){ .kind = MEMBERSHIP_CHANGE, .workers = workers });
    if (s->r.phase != MEMBERSHIP_PREPARE)
        return;
    tell(s, (membership_event){ .kind = MEMBERSHIP_PREPARED, .prepared = workers - s->r.world });
    all_end(s, MEMBERSHIP_PAUSED);
    tell(s, (membership_event){ .kind = MEMBERSHIP_GRANT, .workers = workers });
}

TEST(after_a_failure_the_next_group_waits_for_all_members_and_the_grant)
{
    story s;

    begin(&s, 3, 3);
    steps(&s, 10);
    tell(&s, (membership_event){ .kind = MEMBERSHIP_LOST, .rank = 1 });
    CHECK(s.r.phase == MEMBERSHIP_BREAK);
    CHECK_INT(MEMBERSHIP_REPLACE_MS, done(&s, MEMBERSHIP_DO_ALARM)->ms);
    tell(&s, (membership_event){ .kind = MEMBERSHIP_ENDED, .rank = 0, .end = MEMBERSHIP_FAILED });
    tell(&s, (membership_event){ .kind = MEMBERSHIP_GRANT, .workers = 2 });
    CHECK(done(&s, MEMBERSHIP_DO_START) == NULL); /* rank 2 may still report its end */
    CHECK_INT(MEMBERSHIP_FINAL_MESSAGE_MS, done(&s, MEMBERSHIP_DO_ALARM)->ms);
    tell(&s, (membership_event){ .kind = MEMBERSHIP_ENDED, .rank = 2, .end = MEMBERSHIP_FAILED });
    REQUIRE(done(&s, MEMBERSHIP_DO_START) != NULL);
    CHECK_INT(2, done(&s, MEMBERSHIP_DO_START)->workers);
    CHECK_INT(1, done(&s, MEMBERSHIP_DO_START)->restart);
    all_ready(&s, 11);
    REQUIRE(done(&s, MEMBERSHIP_DO_RESUME) != NULL);
    CHECK_INT(3, done(&s, MEMBERSHIP_DO_RESUME)->workers);
    CHECK_INT(11, done(&s, MEMBERSHIP_DO_RESUME)->step);
}

TEST(silent_rank_delays_the_next_group_for_a_bounded_time)
{
    story s;

    begin(&s, 3, 3);
    tell(&s, (membership_event){ .kind = MEMBERSHIP_LOST, .rank = 0 });
    tell(&s, (membership_event){ .kind = MEMBERSHIP_GRANT, .workers = 3 });
    tell(&s, (membership_event){ .kind = MEMBERSHIP_LATE });
    CHECK(done(&s, MEMBERSHIP_DO_START) != NULL);
}

TEST(second_failure_before_the_next_group_waits_for_another_grant)
{
    story s;

    begin(&s, 3, 3);
    steps(&s, 4);
    lose(&s, 2, 2);
    CHECK(s.r.phase == MEMBERSHIP_BEGIN);
    tell(&s, (membership_event){ .kind = MEMBERSHIP_LOST, .rank = 1 });
    CHECK(s.r.phase == MEMBERSHIP_BREAK);
    tell(&s, (membership_event){ .kind = MEMBERSHIP_ENDED, .rank = 0, .end = MEMBERSHIP_FAILED });
    CHECK(done(&s, MEMBERSHIP_DO_START) == NULL);
    tell(&s, (membership_event){ .kind = MEMBERSHIP_GRANT, .workers = 1 });
    REQUIRE(done(&s, MEMBERSHIP_DO_START) != NULL);
    CHECK_INT(1, s.r.world);
}

TEST(later_grant_replaces_the_earlier_one)
{
    story s;

    begin(&s, 3, 3);
    steps(&s, 4);
    lose(&s, 2, 2);
    tell(&s, (membership_event){ .kind = MEMBERSHIP_ATTACHED, .workers = 1 });
    all_ready(&s, 4);
    CHECK(s.r.phase == MEMBERSHIP_STEPS);
    REQUIRE(done(&s, MEMBERSHIP_DO_RESUME) != NULL);
}

TEST(group_without_a_step_is_not_reported)
{
    story s;

    begin(&s, 3, 5);
    steps(&s, 4);
    lose(&s, 2, 2);
    lose(&s, 1, 1); /* before both ranks were ready */
    all_ready(&s, 4);
    REQUIRE(done(&s, MEMBERSHIP_DO_RESUME) != NULL);
    CHECK_INT(3, done(&s, MEMBERSHIP_DO_RESUME)->workers);
}

TEST(failure_before_the_first_step_is_reported_with_the_size_of_that_group)
{
    story s;

    membership_init(&s.r, 3, 5);
    lose(&s, 2, 2);
    all_ready(&s, 0);
    REQUIRE(done(&s, MEMBERSHIP_DO_RESUME) != NULL);
    CHECK_INT(3, done(&s, MEMBERSHIP_DO_RESUME)->workers);
}

TEST(resize_stops_all_ranks_at_one_step_and_requests_the_next_group)
{
    story s;

    begin(&s, 4, 3);
    steps(&s, 100);
    tell(&s, (membership_event){ .kind = MEMBERSHIP_CHANGE, .workers = 2, .asked = true });
    REQUIRE(done(&s, MEMBERSHIP_DO_PAUSE) != NULL);
    for (uint32_t rank = 0; rank < 3; rank++)
        tell(&s, (membership_event){ .kind = MEMBERSHIP_ENDED, .rank = rank, .end = MEMBERSHIP_PAUSED });
    CHECK(done(&s, MEMBERSHIP_DO_FORM) == NULL);
    tell(&s, (membership_event){ .kind = MEMBERSHIP_ENDED, .rank = 3, .end = MEMBERSHIP_PAUSED });
    CHECK(done(&s, MEMBERSHIP_DO_FORM) != NULL);

    /* the scheduler may not have received the request */
    tell(&s, (membership_event){ .kind = MEMBERSHIP_RECONNECTED });
    CHECK(done(&s, MEMBERSHIP_DO_FORM) != NULL);
    tell(&s, (membership_event){ .kind = MEMBERSHIP_GRANT, .workers = 2 });
    CHECK(done(&s, MEMBERSHIP_DO_START) != NULL);
    all_ready(&s, 101);
    CHECK_INT(4, done(&s, MEMBERSHIP_DO_RESUME)->workers);
    CHECK_INT(0, s.r.in_a_row);
}

/* Two ranks train while two other workers are about to join. */
static void begin_growing(story *s)
{
    begin(s, 2, 3);
    steps(s, 10);
    tell(s, (membership_event){ .kind = MEMBERSHIP_CHANGE, .workers = 4, .asked = true });
    REQUIRE(done(s, MEMBERSHIP_DO_PREPARE) != NULL);
    CHECK_INT(4, done(s, MEMBERSHIP_DO_PREPARE)->workers);
    CHECK(s->r.phase == MEMBERSHIP_PREPARE && done(s, MEMBERSHIP_DO_PAUSE) == NULL);
}

TEST(steps_continue_until_all_joining_workers_are_prepared)
{
    story s;

    begin_growing(&s);
    steps(&s, 11);
    tell(&s, (membership_event){ .kind = MEMBERSHIP_PREPARED, .prepared = 1 });
    CHECK_INT(0, s.count);
    steps(&s, 12);
    tell(&s, (membership_event){ .kind = MEMBERSHIP_PREPARED, .prepared = 2 });
    CHECK(done(&s, MEMBERSHIP_DO_PAUSE) != NULL && s.r.phase == MEMBERSHIP_PAUSE);
    all_end(&s, MEMBERSHIP_PAUSED);
    CHECK(done(&s, MEMBERSHIP_DO_FORM) != NULL);
    tell(&s, (membership_event){ .kind = MEMBERSHIP_GRANT, .workers = 4 });
    all_ready(&s, 12);
    REQUIRE(done(&s, MEMBERSHIP_DO_RESUME) != NULL);
    CHECK_INT(2, done(&s, MEMBERSHIP_DO_RESUME)->workers);
    CHECK_INT(4, s.r.world);
    CHECK(s.r.phase == MEMBERSHIP_STEPS);
}

TEST(failure_of_a_joining_worker_leaves_the_others_joining)
{
    story s;

    begin_growing(&s);
    tell(&s, (membership_event){ .kind = MEMBERSHIP_CHANGE, .workers = 3 });
    CHECK(s.r.phase == MEMBERSHIP_PREPARE && done(&s, MEMBERSHIP_DO_PAUSE) == NULL);
    tell(&s, (membership_event){ .kind = MEMBERSHIP_PREPARED, .prepared = 1 });
    CHECK(done(&s, MEMBERSHIP_DO_PAUSE) != NULL);

    begin_growing(&s);
    tell(&s, (membership_event){ .kind = MEMBERSHIP_PREPARED, .prepared = 1 }); /* then that worker fails */
    tell(&s, (membership_event){ .kind = MEMBERSHIP_CHANGE, .workers = 3 });
    CHECK(s.r.phase == MEMBERSHIP_PREPARE);
    tell(&s, (membership_event){ .kind = MEMBERSHIP_CHANGE, .workers = 2 });
    CHECK(s.r.phase == MEMBERSHIP_STEPS && s.count == 0);
    tell(&s, (membership_event){ .kind = MEMBERSHIP_CHANGE, .workers = 3 }); /* the replacement */
    CHECK(done(&s, MEMBERSHIP_DO_PREPARE) != NULL);
}

TEST(unfit_worker_blocks_growth_until_the_next_request)
{
    story s;

    begin_growing(&s);
    tell(&s, (membership_event){ .kind = MEMBERSHIP_UNFIT });
    REQUIRE(done(&s, MEMBERSHIP_DO_KEEP) != NULL);
    CHECK(done(&s, MEMBERSHIP_DO_KEEP)->why == MEMBERSHIP_REASON_UNFIT);
    CHECK_INT(2, done(&s, MEMBERSHIP_DO_KEEP)->workers);
    CHECK(s.r.phase == MEMBERSHIP_STEPS);
    tell(&s, (membership_event){ .kind = MEMBERSHIP_PREPARED, .prepared = 1 }); /* the other worker */
    tell(&s, (membership_event){ .kind = MEMBERSHIP_UNFIT });
    CHECK(s.r.phase == MEMBERSHIP_STEPS && s.count == 0);
    tell(&s, (membership_event){ .kind = MEMBERSHIP_CHANGE, .workers = 3 });
    CHECK(s.r.phase == MEMBERSHIP_STEPS);
    tell(&s, (membership_event){ .kind = MEMBERSHIP_CHANGE, .workers = 3, .asked = true });
    CHECK(s.r.phase == MEMBERSHIP_PREPARE);
}

TEST(rank_failure_during_preparation_continues_without_joining_workers)
{
    story s;

    begin_growing(&s);
    tell(&s, (membership_event){ .kind = MEMBERSHIP_PREPARED, .prepared = 1 });
    lose(&s, 1, 1);
    REQUIRE(done(&s, MEMBERSHIP_DO_START) != NULL);
    CHECK_INT(1, s.r.world);

    /* the joining workers prepare once more */
    tell(&s, (membership_event){ .kind = MEMBERSHIP_CHANGE, .workers = 3 });
    all_ready(&s, 10);
    CHECK(done(&s, MEMBERSHIP_DO_PREPARE) != NULL && done(&s, MEMBERSHIP_DO_PAUSE) == NULL);
    tell(&s, (membership_event){ .kind = MEMBERSHIP_PREPARED, .prepared = 2 });
    CHECK(done(&s, MEMBERSHIP_DO_PAUSE) != NULL);
}

TEST(training_ends_while_workers_are_still_preparing)
{
    story s;

    begin_growing(&s);
    all_end(&s, MEMBERSHIP_FINISHED);
    CHECK(s.r.phase == MEMBERSHIP_OVER);
    tell(&s, (membership_event){ .kind = MEMBERSHIP_PREPARED, .prepared = 2 });
    CHECK_INT(0, s.count);

    begin_growing(&s);
    tell(&s, (membership_event){ .kind = MEMBERSHIP_STOPPED });
    CHECK(s.r.phase == MEMBERSHIP_STEPS);
    tell(&s, (membership_event){ .kind = MEMBERSHIP_PREPARED, .prepared = 2 });
    CHECK(s.r.phase == MEMBERSHIP_STEPS && s.count == 0);
}

TEST(second_resize_during_preparation_replaces_the_first)
{
    story s;

    begin_growing(&s); /* to fewer workers: at once */
    tell(&s, (membership_event){ .kind = MEMBERSHIP_CHANGE, .workers = 1, .asked = true });
    CHECK(done(&s, MEMBERSHIP_DO_PAUSE) != NULL);

    begin_growing(&s); /* to more: prepared workers stay prepared */
    tell(&s, (membership_event){ .kind = MEMBERSHIP_PREPARED, .prepared = 1 });
    tell(&s, (membership_event){ .kind = MEMBERSHIP_CHANGE, .workers = 5, .asked = true, .prepared = 1 });
    CHECK(done(&s, MEMBERSHIP_DO_PREPARE) != NULL);
    CHECK_INT(5, done(&s, MEMBERSHIP_DO_PREPARE)->workers);
    tell(&s, (membership_event){ .kind = MEMBERSHIP_PREPARED, .prepared = 2 });
    CHECK(s.r.phase == MEMBERSHIP_PREPARE);
    tell(&s, (membership_event){ .kind = MEMBERSHIP_PREPARED, .prepared = 3 });
    CHECK(done(&s, MEMBERSHIP_DO_PAUSE) != NULL);

    begin_growing(&s); /* back to the current size: equivalent to no request */
    tell(&s, (membership_event){ .kind = MEMBERSHIP_CHANGE, .workers = 2, .asked = true });
    CHECK(s.r.phase == MEMBERSHIP_STEPS && s.count == 0);
}

TEST(prepared_workers_are_reported_to_the_next_scheduler)
{
    story s;

    begin_growing(&s);
    tell(&s, (membership_event){ .kind = MEMBERSHIP_PREPARED, .prepared = 1 });
    tell(&s, (membership_event){ .kind = MEMBERSHIP_RECONNECTED });
    CHECK(s.r.phase == MEMBERSHIP_STEPS && s.count == 0);
    tell(&s, (membership_event){ .kind = MEMBERSHIP_CHANGE, .workers = 3 });
    CHECK(done(&s, MEMBERSHIP_DO_PREPARE) != NULL && done(&s, MEMBERSHIP_DO_PAUSE) == NULL);
}

TEST(change_during_startup_is_applied_when_all_ranks_are_ready)
{
    story s;

    membership_init(&s.r, 2, 3);
    tell(&s, (membership_event){ .kind = MEMBERSHIP_CHANGE, .workers = 1 });
    CHECK_INT(0, s.count);
    all_ready(&s, 0);
    CHECK(done(&s, MEMBERSHIP_DO_PAUSE) != NULL);
    membership_init(&s.r, 2, 3);
    tell(&s, (membership_event){ .kind = MEMBERSHIP_CHANGE, .workers = 3 });
    all_ready(&s, 0);
    CHECK(done(&s, MEMBERSHIP_DO_PREPARE) != NULL && done(&s, MEMBERSHIP_DO_PAUSE) == NULL);
    begin(&s, 2, 3);
    tell(&s, (membership_event){ .kind = MEMBERSHIP_CHANGE, .workers = 2 }); /* same size: no change */
    CHECK_INT(0, s.count);
}

TEST(training_that_ends_instead_of_pausing_is_over)
{
    story s;

    begin(&s, 2, 3);
    tell(&s, (membership_event){ .kind = MEMBERSHIP_CHANGE, .workers = 1, .asked = true });
    all_end(&s, MEMBERSHIP_FINISHED);
    CHECK(s.r.phase == MEMBERSHIP_OVER);
    CHECK(done(&s, MEMBERSHIP_DO_FORM) == NULL);
    begin(&s, 2, 3);
    tell(&s, (membership_event){ .kind = MEMBERSHIP_STOPPED });
    tell(&s, (membership_event){ .kind = MEMBERSHIP_CHANGE, .workers = 1, .asked = true });
    CHECK(done(&s, MEMBERSHIP_DO_PAUSE) == NULL);
}

TEST(failure_during_pause_or_wait_forms_a_group_of_the_others)
{
    story s;

    begin(&s, 3, 3);
    steps(&s, 7);
    tell(&s, (membership_event){ .kind = MEMBERSHIP_CHANGE, .workers = 2 });
    tell(&s, (membership_event){ .kind = MEMBERSHIP_ENDED, .rank = 0, .end = MEMBERSHIP_PAUSED });
    tell(&s, (membership_event){ .kind = MEMBERSHIP_LOST, .rank = 1 });
    tell(&s, (membership_event){ .kind = MEMBERSHIP_ENDED, .rank = 2, .end = MEMBERSHIP_PAUSED });
    CHECK(done(&s, MEMBERSHIP_DO_FORM) == NULL); /* the scheduler forms the group without a request */
    tell(&s, (membership_event){ .kind = MEMBERSHIP_GRANT, .workers = 2 });
    CHECK(done(&s, MEMBERSHIP_DO_START) != NULL);

    begin(&s, 3, 3);
    tell(&s, (membership_event){ .kind = MEMBERSHIP_CHANGE, .workers = 2 });
    all_end(&s, MEMBERSHIP_PAUSED);
    tell(&s, (membership_event){ .kind = MEMBERSHIP_LOST, .rank = 1 });
    tell(&s, (membership_event){ .kind = MEMBERSHIP_GRANT, .workers = 2 });
    CHECK(done(&s, MEMBERSHIP_DO_START) != NULL);
}

TEST(failures_without_a_step_between_end_the_training_and_steps_reset_the_count)
{
    story s;

    begin(&s, 4, 2);
    lose(&s, 1, 4);
    all_ready(&s, 0);
    lose(&s, 1, 4);
    all_ready(&s, 0);
    tell(&s, (membership_event){ .kind = MEMBERSHIP_LOST, .rank = 1 });
    REQUIRE(done(&s, MEMBERSHIP_DO_FAIL) != NULL);
    CHECK(done(&s, MEMBERSHIP_DO_FAIL)->why == MEMBERSHIP_REASON_LOST);
    begin(&s, 4, 2);
    for (uint64_t step = 1; step < 20; step++) {
        steps(&s, step);
        lose(&s, 1, 4);
        all_ready(&s, step);
        CHECK(s.r.phase == MEMBERSHIP_STEPS);
    }
}

TEST(failure_announced_by_a_grant_counts_as_a_failure)
{
    story s;

    begin(&s, 3, 1);
    lose(&s, 1, 3);
    all_ready(&s, 0);
    tell(&s, (membership_event){ .kind = MEMBERSHIP_GRANT, .workers = 2 });
    CHECK(s.r.phase == MEMBERSHIP_BREAK);
    tell(&s, (membership_event){ .kind = MEMBERSHIP_LOST, .rank = 2 });
    REQUIRE(done(&s, MEMBERSHIP_DO_FAIL) != NULL);
    CHECK(done(&s, MEMBERSHIP_DO_FAIL)->why == MEMBERSHIP_REASON_LOST);
}

TEST(failure_beyond_the_limit_or_of_the_last_worker_ends_the_training)
{
    story s;

    begin(&s, 4, 0);
    lose(&s, 1, 3);
    CHECK(s.r.phase == MEMBERSHIP_OVER);
    begin(&s, 1, 3);
    lose(&s, 0, 1);
    CHECK(s.r.phase == MEMBERSHIP_OVER);
    begin(&s, 2, 3);
    tell(&s, (membership_event){ .kind = MEMBERSHIP_STOPPED, .hard = true });
    lose(&s, 0, 1);
    CHECK(s.r.phase == MEMBERSHIP_OVER);
    CHECK_INT(1, s.r.ended); /* the other ranks have not ended yet */
    tell(&s, (membership_event){ .kind = MEMBERSHIP_ENDED, .rank = 1, .end = MEMBERSHIP_FAILED });
    CHECK_INT(2, s.r.ended);
}

TEST(failure_of_the_only_worker_loses_the_state_unless_another_joined)
{
    story s;

    begin(&s, 2, 3);
    steps(&s, 2);
    lose(&s, 1, 1);
    all_ready(&s, 2);
    steps(&s, 4);

    /* too late: no rank has paused yet */
    tell(&s, (membership_event){ .kind = MEMBERSHIP_CHANGE, .workers = 2 });
    tell(&s, (membership_event){ .kind = MEMBERSHIP_LOST, .rank = 0 });
    REQUIRE(done(&s, MEMBERSHIP_DO_FAIL) != NULL);
    CHECK(done(&s, MEMBERSHIP_DO_FAIL)->why == MEMBERSHIP_REASON_ALONE);

    begin(&s, 2, 3);
    steps(&s, 2);
    lose(&s, 1, 1);
    all_ready(&s, 2);
    steps(&s, 3);
    grow(&s, 2);
    all_ready(&s, 3);
    steps(&s, 4);
    lose(&s, 0, 1);
    all_ready(&s, 4);
    CHECK(s.r.phase == MEMBERSHIP_STEPS);

    begin(&s, 1, 3); /* one worker, as requested */
    steps(&s, 4);
    tell(&s, (membership_event){ .kind = MEMBERSHIP_LOST, .rank = 0 });
    REQUIRE(done(&s, MEMBERSHIP_DO_FAIL) != NULL);
    CHECK(done(&s, MEMBERSHIP_DO_FAIL)->why == MEMBERSHIP_REASON_LOST);
}

TEST(failure_after_the_result_is_ignored)
{
    story s;

    begin(&s, 2, 3);
    tell(&s, (membership_event){ .kind = MEMBERSHIP_ENDED, .rank = 0, .end = MEMBERSHIP_FINISHED });
    tell(&s, (membership_event){ .kind = MEMBERSHIP_LOST, .rank = 1 });
    CHECK(s.r.phase == MEMBERSHIP_OVER);
    CHECK(done(&s, MEMBERSHIP_DO_FAIL) == NULL);
}

TEST(missing_state_or_missing_lease_ends_the_training)
{
    story s;

    begin(&s, 2, 3);
    steps(&s, 5);
    lose(&s, 1, 2);
    all_ready(&s, 0);
    REQUIRE(done(&s, MEMBERSHIP_DO_FAIL) != NULL);
    CHECK(done(&s, MEMBERSHIP_DO_FAIL)->why == MEMBERSHIP_REASON_STATE);

    /* Continue from step 39: only the failed rank may have had the last step. Then refuse step 5,
     * the outdated state from a rank that left long ago. */
    begin(&s, 3, 3);
    steps(&s, 40);
    lose(&s, 1, 2);
    all_ready(&s, 39);
    CHECK(s.r.phase == MEMBERSHIP_STEPS);
    lose(&s, 0, 3);
    all_ready(&s, 5);
    REQUIRE(done(&s, MEMBERSHIP_DO_FAIL) != NULL);
    CHECK(done(&s, MEMBERSHIP_DO_FAIL)->why == MEMBERSHIP_REASON_STATE);
    CHECK_INT(2, membership_reported_size(&s.r)); /* the group of 3 was ready, but never took a step */
    begin(&s, 2, 3);
    tell(&s, (membership_event){ .kind = MEMBERSHIP_LOST, .rank = 1 });
    tell(&s, (membership_event){ .kind = MEMBERSHIP_LATE });
    REQUIRE(done(&s, MEMBERSHIP_DO_FAIL) != NULL);
    CHECK(done(&s, MEMBERSHIP_DO_FAIL)->why == MEMBERSHIP_REASON_NOT_REPLACED);
}

TEST(workers_that_fail_repeatedly_after_joining_are_rejected_until_requested)
{
    uint64_t step = 100;
    story s;

    begin(&s, 2, 2);
    for (int i = 0; i < 2; i++) {
        steps(&s, step += 10);
        lose(&s, 1, 1);
        all_ready(&s, step);
        CHECK(done(&s, MEMBERSHIP_DO_KEEP) == NULL);
        grow(&s, 2);
        all_ready(&s, ++step);
        CHECK_INT(2, s.r.world);
    }
    lose(&s, 1, 1);
    all_ready(&s, step);
    REQUIRE(done(&s, MEMBERSHIP_DO_KEEP) != NULL);
    CHECK_INT(1, done(&s, MEMBERSHIP_DO_KEEP)->workers);
    steps(&s, ++step);
    tell(&s, (membership_event){ .kind = MEMBERSHIP_CHANGE, .workers = 2 });
    CHECK(s.r.phase == MEMBERSHIP_STEPS);
    tell(&s, (membership_event){ .kind = MEMBERSHIP_CHANGE, .workers = 2, .asked = true });
    CHECK(s.r.phase == MEMBERSHIP_PREPARE);
}

TEST(failure_of_a_proven_worker_allows_another_to_join)
{
    uint64_t step = 1;
    story s;

    begin(&s, 2, 1);
    for (int i = 0; i < 5; i++) {
        lose(&s, 1, 1);
        all_ready(&s, step);
        steps(&s, ++step);
        grow(&s, 2);
        all_ready(&s, ++step);
        steps(&s, step += MEMBERSHIP_PROVED_STEPS);
        CHECK(!s.r.barred);
        CHECK_INT(2, s.r.world);
    }
}
