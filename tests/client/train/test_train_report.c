/* test_train_report.c: steps are reported once and in order, whichever rank fails. */
#include "client/train/train_report.h"
#include "tests/gp_test.h"

enum { WORLD = 3, STEPS_MAX = 64 };

/* Reported steps, in order. */
typedef struct story {
    gp_train_report report;
    gp_training_summary summary;
    gp_train_options options;
    gp_train_events events;
    uint64_t steps[STEPS_MAX];
    uint32_t count;
} story;

static void on_step(void *context, const gp_train_step *step)
{
    story *s = context;

    if (step->rank == 0 && s->count < STEPS_MAX)
        s->steps[s->count++] = step->step;
}

static void begin(story *s)
{
    gp_pool pool = { .lease = 1 };

    *s = (story){ .events = { .step = on_step, .context = s } };
    gp_report_init(&s->report, &s->events, &s->options, &s->summary);
    gp_report_set_group(&s->report, &pool, WORLD);
}

/* Deliver the records of the steps from `first` to `last` by a rank. */
static void takes(story *s, uint32_t rank, uint64_t first, uint64_t last, bool early)
{
    gp_train_steps steps = { .records_count = 0 };

    for (uint64_t step = first; step <= last; step++)
        steps.records[steps.records_count++] = (gp_train_record){ .step = step, .epoch = 1 };
    gp_report_steps(&s->report, rank, &steps, early);
}

/* End the group: report the pending events in the order of the client. */
static void regroup(story *s)
{
    gp_report_pending(&s->report, &s->report.early);
    gp_report_pending(&s->report, &s->report.spare);
}

static void check_steps(const story *s, uint32_t count)
{
    CHECK_INT(count, s->count);
    for (uint32_t i = 0; i < s->count; i++)
        CHECK_INT(i + 1, s->steps[i]);
    CHECK_INT(count, s->summary.steps);
}

TEST(steps_of_a_failed_rank_0_are_taken_from_any_other_rank)
{
    story s;

    begin(&s);
    takes(&s, 0, 1, 2, false);
    takes(&s, 1, 1, 2, false);
    takes(&s, 2, 1, 4, false);
    takes(&s, 1, 3, 3, false);
    regroup(&s);
    check_steps(&s, 4);
    takes(&s, 0, 4, 6, false); /* step 4 is repeated */
    check_steps(&s, 6);
    gp_report_deinit(&s.report);
}

TEST(steps_of_other_ranks_are_dropped_when_rank_0_reports_them)
{
    story s;

    begin(&s);
    takes(&s, 2, 1, 5, false);
    takes(&s, 1, 1, 6, false);
    takes(&s, 0, 1, 5, false);
    check_steps(&s, 5);
    CHECK_INT(1, s.report.spare.count);
    takes(&s, 0, 6, 6, false);
    CHECK_INT(0, s.report.spare.count);
    regroup(&s);
    check_steps(&s, 6);
    gp_report_deinit(&s.report);
}

TEST(steps_follow_the_delayed_steps_before_them)
{
    story s;

    begin(&s);
    takes(&s, 0, 1, 2, true);
    takes(&s, 0, 3, 4, false); /* a rank failed before all were ready: the group has ended */
    CHECK_INT(0, s.count);
    regroup(&s);
    check_steps(&s, 4);
    gp_report_deinit(&s.report);
}

/* A client that does not read for minutes loses steps, but its summary is right. */
TEST(the_summary_has_the_last_step_although_it_was_not_reported)
{
    const gp_train_done done = {
        .stop_reason = GP_STOP_COMPLETED, .step = 9, .epoch = 3, .loss = 0.25, .seconds = 12.5
    };
    story s;

    begin(&s);
    s.report.seconds_before = 2;
    takes(&s, 0, 1, 2, false);
    takes(&s, 0, 3, 4, true);
    gp_report_done(&s.report, &done);
    gp_report_pending(&s.report, &s.report.early);
    CHECK_INT(4, s.count);
    gp_report_end(&s.report);
    CHECK_INT(9, s.summary.steps);
    CHECK_INT(3, s.summary.epochs);
    CHECK_NEAR(0.25, s.summary.loss, 0);
    CHECK_NEAR(14.5, s.summary.seconds, 0);
    gp_report_deinit(&s.report);
}
