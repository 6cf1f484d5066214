/* When a training forms its group again: the pure decisions, event by event. */
#include "client/train/reform.h"
#include "tests/gp_test.h"

/* A training and what it was told to do last. */
typedef struct story {
    reform r;
    reform_action actions[REFORM_ACTIONS_MAX];
    size_t count;
} story;

static void tell(story *s, reform_event event)
{
    s->count = reform_step(&s->r, &event, s->actions);
}

static const reform_action *done(const story *s, reform_action_kind kind)
{
    for (size_t i = 0; i < s->count; i++)
        if (s->actions[i].kind == kind)
            return &s->actions[i];
    return NULL;
}

static void all_ready(story *s, uint64_t step)
{
    for (uint32_t rank = 0; rank < s->r.world; rank++)
        tell(s, (reform_event){ .kind = REFORM_READY, .rank = rank, .step = step });
}

static void all_end(story *s, reform_end end)
{
    for (uint32_t rank = 0, world = s->r.world; rank < world; rank++)
        tell(s, (reform_event){ .kind = REFORM_ENDED, .rank = rank, .end = end });
}

static void steps(story *s, uint64_t step)
{
    tell(s, (reform_event){ .kind = REFORM_STEP, .step = step });
}

static void begin(story *s, uint32_t workers, uint32_t max_restarts)
{
    reform_init(&s->r, workers, max_restarts);
    all_ready(s, 0);
    CHECK(s->r.phase == REFORM_STEPS);
    CHECK(done(s, REFORM_DO_GO_ON) == NULL);
}

/* A member dies, the others end, and the lease is granted anew. */
static void lose(story *s, uint32_t rank, uint32_t left)
{
    tell(s, (reform_event){ .kind = REFORM_LOST, .rank = rank });
    if (s->r.phase == REFORM_OVER)
        return;
    for (uint32_t i = 0; i < s->r.world; i++)
        if (i != rank)
            tell(s, (reform_event){ .kind = REFORM_ENDED, .rank = i, .end = REFORM_FAILED });
    tell(s, (reform_event){ .kind = REFORM_GRANT, .workers = left });
}

/* Workers come free, and join. */
static void grow(story *s, uint32_t workers)
{
    tell(s, (reform_event){ .kind = REFORM_CHANGE, .workers = workers });
    if (s->r.phase != REFORM_PREPARE)
        return;
    tell(s, (reform_event){ .kind = REFORM_PREPARED, .prepared = workers - s->r.world });
    all_end(s, REFORM_PAUSED);
    tell(s, (reform_event){ .kind = REFORM_GRANT, .workers = workers });
}

TEST(after_a_death_the_next_group_begins_when_the_others_have_ended_and_the_lease_is_granted)
{
    story s;

    begin(&s, 3, 3);
    steps(&s, 10);
    tell(&s, (reform_event){ .kind = REFORM_LOST, .rank = 1 });
    CHECK(s.r.phase == REFORM_BREAK);
    CHECK_INT(REFORM_REPLACE_MS, done(&s, REFORM_DO_ALARM)->ms);
    tell(&s, (reform_event){ .kind = REFORM_ENDED, .rank = 0, .end = REFORM_FAILED });
    tell(&s, (reform_event){ .kind = REFORM_GRANT, .workers = 2 });
    CHECK(done(&s, REFORM_DO_BEGIN) == NULL); /* rank 2 may have news */
    CHECK_INT(REFORM_LAST_WORDS_MS, done(&s, REFORM_DO_ALARM)->ms);
    tell(&s, (reform_event){ .kind = REFORM_ENDED, .rank = 2, .end = REFORM_FAILED });
    REQUIRE(done(&s, REFORM_DO_BEGIN) != NULL);
    CHECK_INT(2, done(&s, REFORM_DO_BEGIN)->workers);
    CHECK_INT(1, done(&s, REFORM_DO_BEGIN)->restart);
    all_ready(&s, 11);
    REQUIRE(done(&s, REFORM_DO_GO_ON) != NULL);
    CHECK_INT(3, done(&s, REFORM_DO_GO_ON)->workers);
    CHECK_INT(11, done(&s, REFORM_DO_GO_ON)->step);
}

TEST(who_says_nothing_more_is_waited_for_a_moment_only)
{
    story s;

    begin(&s, 3, 3);
    tell(&s, (reform_event){ .kind = REFORM_LOST, .rank = 0 });
    tell(&s, (reform_event){ .kind = REFORM_GRANT, .workers = 3 });
    tell(&s, (reform_event){ .kind = REFORM_LATE });
    CHECK(done(&s, REFORM_DO_BEGIN) != NULL);
}

TEST(another_death_before_the_next_group_has_begun_waits_for_the_grant_after_it)
{
    story s;

    begin(&s, 3, 3);
    steps(&s, 4);
    lose(&s, 2, 2);
    CHECK(s.r.phase == REFORM_BEGIN);
    tell(&s, (reform_event){ .kind = REFORM_LOST, .rank = 1 });
    CHECK(s.r.phase == REFORM_BREAK);
    tell(&s, (reform_event){ .kind = REFORM_ENDED, .rank = 0, .end = REFORM_FAILED });
    CHECK(done(&s, REFORM_DO_BEGIN) == NULL);
    tell(&s, (reform_event){ .kind = REFORM_GRANT, .workers = 1 });
    REQUIRE(done(&s, REFORM_DO_BEGIN) != NULL);
    CHECK_INT(1, s.r.world);
}

TEST(a_grant_that_was_followed_by_another_one_counts_as_that)
{
    story s;

    begin(&s, 3, 3);
    steps(&s, 4);
    lose(&s, 2, 2);
    tell(&s, (reform_event){ .kind = REFORM_ATTACHED, .workers = 1 });
    all_ready(&s, 4);
    CHECK(s.r.phase == REFORM_STEPS);
    REQUIRE(done(&s, REFORM_DO_GO_ON) != NULL);
}

TEST(what_is_told_of_a_group_that_took_no_step_is_nothing)
{
    story s;

    begin(&s, 3, 5);
    steps(&s, 4);
    lose(&s, 2, 2);
    lose(&s, 1, 1); /* before all of the two were ready */
    all_ready(&s, 4);
    REQUIRE(done(&s, REFORM_DO_GO_ON) != NULL);
    CHECK_INT(3, done(&s, REFORM_DO_GO_ON)->workers);
}

TEST(a_failure_before_the_first_group_is_ready_is_reported_with_the_number_of_workers_of_that_group)
{
    story s;

    reform_init(&s.r, 3, 5);
    lose(&s, 2, 2);
    all_ready(&s, 0);
    REQUIRE(done(&s, REFORM_DO_GO_ON) != NULL);
    CHECK_INT(3, done(&s, REFORM_DO_GO_ON)->workers);
}

TEST(a_change_of_size_stops_all_ranks_at_one_step_and_asks_for_the_next_group)
{
    story s;

    begin(&s, 4, 3);
    steps(&s, 100);
    tell(&s, (reform_event){ .kind = REFORM_CHANGE, .workers = 2, .asked = true });
    REQUIRE(done(&s, REFORM_DO_PAUSE) != NULL);
    for (uint32_t rank = 0; rank < 3; rank++)
        tell(&s, (reform_event){ .kind = REFORM_ENDED, .rank = rank, .end = REFORM_PAUSED });
    CHECK(done(&s, REFORM_DO_FORM) == NULL);
    tell(&s, (reform_event){ .kind = REFORM_ENDED, .rank = 3, .end = REFORM_PAUSED });
    CHECK(done(&s, REFORM_DO_FORM) != NULL);
    tell(&s, (reform_event){ .kind = REFORM_REUNION }); /* nobody knows whether it was heard */
    CHECK(done(&s, REFORM_DO_FORM) != NULL);
    tell(&s, (reform_event){ .kind = REFORM_GRANT, .workers = 2 });
    CHECK(done(&s, REFORM_DO_BEGIN) != NULL);
    all_ready(&s, 101);
    CHECK_INT(4, done(&s, REFORM_DO_GO_ON)->workers);
    CHECK_INT(0, s.r.in_a_row);
}

/* Two take steps, and two others will join. */
static void begin_growing(story *s)
{
    begin(s, 2, 3);
    steps(s, 10);
    tell(s, (reform_event){ .kind = REFORM_CHANGE, .workers = 4, .asked = true });
    REQUIRE(done(s, REFORM_DO_PREPARE) != NULL);
    CHECK_INT(4, done(s, REFORM_DO_PREPARE)->workers);
    CHECK(s->r.phase == REFORM_PREPARE && done(s, REFORM_DO_PAUSE) == NULL);
}

TEST(steps_go_on_until_all_who_will_join_have_prepared)
{
    story s;

    begin_growing(&s);
    steps(&s, 11);
    tell(&s, (reform_event){ .kind = REFORM_PREPARED, .prepared = 1 });
    CHECK_INT(0, s.count);
    steps(&s, 12);
    tell(&s, (reform_event){ .kind = REFORM_PREPARED, .prepared = 2 });
    CHECK(done(&s, REFORM_DO_PAUSE) != NULL && s.r.phase == REFORM_PAUSE);
    all_end(&s, REFORM_PAUSED);
    CHECK(done(&s, REFORM_DO_FORM) != NULL);
    tell(&s, (reform_event){ .kind = REFORM_GRANT, .workers = 4 });
    all_ready(&s, 12);
    REQUIRE(done(&s, REFORM_DO_GO_ON) != NULL);
    CHECK_INT(2, done(&s, REFORM_DO_GO_ON)->workers);
    CHECK_INT(4, s.r.world);
    CHECK(s.r.phase == REFORM_STEPS);
}

TEST(when_one_that_prepares_dies_the_others_are_waited_for_or_nobody)
{
    story s;

    begin_growing(&s);
    tell(&s, (reform_event){ .kind = REFORM_CHANGE, .workers = 3 });
    CHECK(s.r.phase == REFORM_PREPARE && done(&s, REFORM_DO_PAUSE) == NULL);
    tell(&s, (reform_event){ .kind = REFORM_PREPARED, .prepared = 1 });
    CHECK(done(&s, REFORM_DO_PAUSE) != NULL);

    begin_growing(&s);
    tell(&s, (reform_event){ .kind = REFORM_PREPARED, .prepared = 1 }); /* and that one dies */
    tell(&s, (reform_event){ .kind = REFORM_CHANGE, .workers = 3 });
    CHECK(s.r.phase == REFORM_PREPARE);
    tell(&s, (reform_event){ .kind = REFORM_CHANGE, .workers = 2 });
    CHECK(s.r.phase == REFORM_STEPS && s.count == 0);
    tell(&s, (reform_event){ .kind = REFORM_CHANGE, .workers = 3 }); /* its replacement */
    CHECK(done(&s, REFORM_DO_PREPARE) != NULL);
}

TEST(when_one_cannot_join_nobody_does_until_somebody_asks)
{
    story s;

    begin_growing(&s);
    tell(&s, (reform_event){ .kind = REFORM_UNFIT });
    REQUIRE(done(&s, REFORM_DO_KEEP) != NULL);
    CHECK(done(&s, REFORM_DO_KEEP)->why == REFORM_WHY_UNFIT);
    CHECK_INT(2, done(&s, REFORM_DO_KEEP)->workers);
    CHECK(s.r.phase == REFORM_STEPS);
    tell(&s, (reform_event){ .kind = REFORM_PREPARED, .prepared = 1 }); /* the other one */
    tell(&s, (reform_event){ .kind = REFORM_UNFIT });
    CHECK(s.r.phase == REFORM_STEPS && s.count == 0);
    tell(&s, (reform_event){ .kind = REFORM_CHANGE, .workers = 3 });
    CHECK(s.r.phase == REFORM_STEPS);
    tell(&s, (reform_event){ .kind = REFORM_CHANGE, .workers = 3, .asked = true });
    CHECK(s.r.phase == REFORM_PREPARE);
}

TEST(when_a_rank_dies_while_others_prepare_the_rest_goes_on_without_them)
{
    story s;

    begin_growing(&s);
    tell(&s, (reform_event){ .kind = REFORM_PREPARED, .prepared = 1 });
    lose(&s, 1, 1);
    REQUIRE(done(&s, REFORM_DO_BEGIN) != NULL);
    CHECK_INT(1, s.r.world);
    tell(&s, (reform_event){ .kind = REFORM_CHANGE, .workers = 3 }); /* they are told again */
    all_ready(&s, 10);
    CHECK(done(&s, REFORM_DO_PREPARE) != NULL && done(&s, REFORM_DO_PAUSE) == NULL);
    tell(&s, (reform_event){ .kind = REFORM_PREPARED, .prepared = 2 });
    CHECK(done(&s, REFORM_DO_PAUSE) != NULL);
}

TEST(a_training_that_ends_or_is_stopped_while_others_prepare_ends_without_them)
{
    story s;

    begin_growing(&s);
    all_end(&s, REFORM_FINISHED);
    CHECK(s.r.phase == REFORM_OVER);
    tell(&s, (reform_event){ .kind = REFORM_PREPARED, .prepared = 2 });
    CHECK_INT(0, s.count);

    begin_growing(&s);
    tell(&s, (reform_event){ .kind = REFORM_STOPPED });
    CHECK(s.r.phase == REFORM_STEPS);
    tell(&s, (reform_event){ .kind = REFORM_PREPARED, .prepared = 2 });
    CHECK(s.r.phase == REFORM_STEPS && s.count == 0);
}

TEST(a_second_resize_while_others_prepare_is_the_one_that_counts)
{
    story s;

    begin_growing(&s); /* to fewer: at once */
    tell(&s, (reform_event){ .kind = REFORM_CHANGE, .workers = 1, .asked = true });
    CHECK(done(&s, REFORM_DO_PAUSE) != NULL);

    begin_growing(&s); /* to more: who has prepared stays so */
    tell(&s, (reform_event){ .kind = REFORM_PREPARED, .prepared = 1 });
    tell(&s, (reform_event){ .kind = REFORM_CHANGE, .workers = 5, .asked = true, .prepared = 1 });
    CHECK(done(&s, REFORM_DO_PREPARE) != NULL);
    CHECK_INT(5, done(&s, REFORM_DO_PREPARE)->workers);
    tell(&s, (reform_event){ .kind = REFORM_PREPARED, .prepared = 2 });
    CHECK(s.r.phase == REFORM_PREPARE);
    tell(&s, (reform_event){ .kind = REFORM_PREPARED, .prepared = 3 });
    CHECK(done(&s, REFORM_DO_PAUSE) != NULL);

    begin_growing(&s); /* back to what it has: as if nobody had asked */
    tell(&s, (reform_event){ .kind = REFORM_CHANGE, .workers = 2, .asked = true });
    CHECK(s.r.phase == REFORM_STEPS && s.count == 0);
}

TEST(after_the_death_of_the_scheduler_those_who_prepared_are_told_of_again)
{
    story s;

    begin_growing(&s);
    tell(&s, (reform_event){ .kind = REFORM_PREPARED, .prepared = 1 });
    tell(&s, (reform_event){ .kind = REFORM_REUNION });
    CHECK(s.r.phase == REFORM_STEPS && s.count == 0);
    tell(&s, (reform_event){ .kind = REFORM_CHANGE, .workers = 3 });
    CHECK(done(&s, REFORM_DO_PREPARE) != NULL && done(&s, REFORM_DO_PAUSE) == NULL);
}

TEST(a_change_that_comes_while_ranks_get_ready_is_made_when_they_are)
{
    story s;

    reform_init(&s.r, 2, 3);
    tell(&s, (reform_event){ .kind = REFORM_CHANGE, .workers = 1 });
    CHECK_INT(0, s.count);
    all_ready(&s, 0);
    CHECK(done(&s, REFORM_DO_PAUSE) != NULL);
    reform_init(&s.r, 2, 3);
    tell(&s, (reform_event){ .kind = REFORM_CHANGE, .workers = 3 });
    all_ready(&s, 0);
    CHECK(done(&s, REFORM_DO_PREPARE) != NULL && done(&s, REFORM_DO_PAUSE) == NULL);
    begin(&s, 2, 3);
    tell(&s, (reform_event){ .kind = REFORM_CHANGE, .workers = 2 }); /* no change */
    CHECK_INT(0, s.count);
}

TEST(a_training_that_ends_or_is_stopped_while_it_should_pause_has_ended)
{
    story s;

    begin(&s, 2, 3);
    tell(&s, (reform_event){ .kind = REFORM_CHANGE, .workers = 1, .asked = true });
    all_end(&s, REFORM_FINISHED);
    CHECK(s.r.phase == REFORM_OVER);
    CHECK(done(&s, REFORM_DO_FORM) == NULL);
    begin(&s, 2, 3);
    tell(&s, (reform_event){ .kind = REFORM_STOPPED });
    tell(&s, (reform_event){ .kind = REFORM_CHANGE, .workers = 1, .asked = true });
    CHECK(done(&s, REFORM_DO_PAUSE) == NULL);
}

TEST(a_death_while_ranks_pause_or_wait_leads_to_the_group_of_the_others)
{
    story s;

    begin(&s, 3, 3);
    steps(&s, 7);
    tell(&s, (reform_event){ .kind = REFORM_CHANGE, .workers = 2 });
    tell(&s, (reform_event){ .kind = REFORM_ENDED, .rank = 0, .end = REFORM_PAUSED });
    tell(&s, (reform_event){ .kind = REFORM_LOST, .rank = 1 });
    tell(&s, (reform_event){ .kind = REFORM_ENDED, .rank = 2, .end = REFORM_PAUSED });
    CHECK(done(&s, REFORM_DO_FORM) == NULL); /* the scheduler forms it by itself */
    tell(&s, (reform_event){ .kind = REFORM_GRANT, .workers = 2 });
    CHECK(done(&s, REFORM_DO_BEGIN) != NULL);

    begin(&s, 3, 3);
    tell(&s, (reform_event){ .kind = REFORM_CHANGE, .workers = 2 });
    all_end(&s, REFORM_PAUSED);
    tell(&s, (reform_event){ .kind = REFORM_LOST, .rank = 1 });
    tell(&s, (reform_event){ .kind = REFORM_GRANT, .workers = 2 });
    CHECK(done(&s, REFORM_DO_BEGIN) != NULL);
}

TEST(deaths_in_a_row_without_a_step_between_end_it_and_steps_start_the_count_anew)
{
    story s;

    begin(&s, 4, 2);
    lose(&s, 1, 4);
    all_ready(&s, 0);
    lose(&s, 1, 4);
    all_ready(&s, 0);
    tell(&s, (reform_event){ .kind = REFORM_LOST, .rank = 1 });
    REQUIRE(done(&s, REFORM_DO_FAIL) != NULL);
    CHECK(done(&s, REFORM_DO_FAIL)->why == REFORM_WHY_LOST);
    begin(&s, 4, 2);
    for (uint64_t step = 1; step < 20; step++) {
        steps(&s, step);
        lose(&s, 1, 4);
        all_ready(&s, step);
        CHECK(s.r.phase == REFORM_STEPS);
    }
}

TEST(a_death_that_a_grant_told_of_first_counts_like_any_other)
{
    story s;

    begin(&s, 3, 1);
    lose(&s, 1, 3);
    all_ready(&s, 0);
    tell(&s, (reform_event){ .kind = REFORM_GRANT, .workers = 2 });
    CHECK(s.r.phase == REFORM_BREAK);
    tell(&s, (reform_event){ .kind = REFORM_LOST, .rank = 2 });
    REQUIRE(done(&s, REFORM_DO_FAIL) != NULL);
    CHECK(done(&s, REFORM_DO_FAIL)->why == REFORM_WHY_LOST);
}

TEST(a_death_that_may_not_be_or_leaves_nobody_ends_it)
{
    story s;

    begin(&s, 4, 0);
    lose(&s, 1, 3);
    CHECK(s.r.phase == REFORM_OVER);
    begin(&s, 1, 3);
    lose(&s, 0, 1);
    CHECK(s.r.phase == REFORM_OVER);
    begin(&s, 2, 3);
    tell(&s, (reform_event){ .kind = REFORM_STOPPED, .hard = true });
    lose(&s, 0, 1);
    CHECK(s.r.phase == REFORM_OVER);
    CHECK_INT(1, s.r.ended); /* the others are still waited for */
    tell(&s, (reform_event){ .kind = REFORM_ENDED, .rank = 1, .end = REFORM_FAILED });
    CHECK_INT(2, s.r.ended);
}

TEST(a_worker_that_went_on_alone_takes_the_state_with_it_unless_another_has_joined)
{
    story s;

    begin(&s, 2, 3);
    steps(&s, 2);
    lose(&s, 1, 1);
    all_ready(&s, 2);
    steps(&s, 4);
    tell(&s, (reform_event){ .kind = REFORM_CHANGE, .workers = 2 }); /* too late: nobody has paused yet */
    tell(&s, (reform_event){ .kind = REFORM_LOST, .rank = 0 });
    REQUIRE(done(&s, REFORM_DO_FAIL) != NULL);
    CHECK(done(&s, REFORM_DO_FAIL)->why == REFORM_WHY_ALONE);

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
    CHECK(s.r.phase == REFORM_STEPS);

    begin(&s, 1, 3); /* as it was asked for */
    steps(&s, 4);
    tell(&s, (reform_event){ .kind = REFORM_LOST, .rank = 0 });
    REQUIRE(done(&s, REFORM_DO_FAIL) != NULL);
    CHECK(done(&s, REFORM_DO_FAIL)->why == REFORM_WHY_LOST);
}

TEST(a_death_after_rank_0_has_sent_the_result_changes_nothing)
{
    story s;

    begin(&s, 2, 3);
    tell(&s, (reform_event){ .kind = REFORM_ENDED, .rank = 0, .end = REFORM_FINISHED });
    tell(&s, (reform_event){ .kind = REFORM_LOST, .rank = 1 });
    CHECK(s.r.phase == REFORM_OVER);
    CHECK(done(&s, REFORM_DO_FAIL) == NULL);
}

TEST(a_state_that_nobody_has_and_a_lease_that_does_not_come_end_it)
{
    story s;

    begin(&s, 2, 3);
    steps(&s, 5);
    lose(&s, 1, 2);
    all_ready(&s, 0);
    REQUIRE(done(&s, REFORM_DO_FAIL) != NULL);
    CHECK(done(&s, REFORM_DO_FAIL)->why == REFORM_WHY_STATE);
    begin(&s, 3, 3); /* one that left long ago has an old one; the last step may be that of the dead alone */
    steps(&s, 40);
    lose(&s, 1, 2);
    all_ready(&s, 39);
    CHECK(s.r.phase == REFORM_STEPS);
    lose(&s, 0, 2);
    all_ready(&s, 5);
    REQUIRE(done(&s, REFORM_DO_FAIL) != NULL);
    CHECK(done(&s, REFORM_DO_FAIL)->why == REFORM_WHY_STATE);
    begin(&s, 2, 3);
    tell(&s, (reform_event){ .kind = REFORM_LOST, .rank = 1 });
    tell(&s, (reform_event){ .kind = REFORM_LATE });
    REQUIRE(done(&s, REFORM_DO_FAIL) != NULL);
    CHECK(done(&s, REFORM_DO_FAIL)->why == REFORM_WHY_NOT_REPLACED);
}

TEST(workers_that_join_and_die_again_and_again_are_taken_no_more_unless_somebody_asks)
{
    uint64_t step = 100;
    story s;

    begin(&s, 2, 2);
    for (int i = 0; i < 2; i++) {
        steps(&s, step += 10);
        lose(&s, 1, 1);
        all_ready(&s, step);
        CHECK(done(&s, REFORM_DO_KEEP) == NULL);
        grow(&s, 2);
        all_ready(&s, ++step);
        CHECK_INT(2, s.r.world);
    }
    lose(&s, 1, 1);
    all_ready(&s, step);
    REQUIRE(done(&s, REFORM_DO_KEEP) != NULL);
    CHECK_INT(1, done(&s, REFORM_DO_KEEP)->workers);
    steps(&s, ++step);
    tell(&s, (reform_event){ .kind = REFORM_CHANGE, .workers = 2 });
    CHECK(s.r.phase == REFORM_STEPS);
    tell(&s, (reform_event){ .kind = REFORM_CHANGE, .workers = 2, .asked = true });
    CHECK(s.r.phase == REFORM_PREPARE);
}

TEST(a_worker_that_joined_and_proved_itself_may_die_and_another_one_joins)
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
        steps(&s, step += REFORM_PROVED_STEPS);
        CHECK(!s.r.barred);
        CHECK_INT(2, s.r.world);
    }
}
