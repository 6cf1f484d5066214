/* Test the state machine of a sweep event by event, and the journal. tests/sim runs both with
 * random events and crashes. */
#include "client/sweep/sweep_core.h"

#include <math.h>

#include "tests/gp_test.h"

enum { ACTIONS_MAX = 256 };

static sweep *core;
static sweep_action actions[ACTIONS_MAX];
static uint32_t action_count;
static uint64_t written; /* number of the last line */
static gp_buffer journal;
static uint32_t asks, asks_max, extras, ends_told;
static double worst; /* the search stops trials with lower values */
static gp_error err;

static gp_status fake_ask(void *context, const char **values, gp_error *error)
{
    (void)context;
    if (asks == asks_max)
        return gp_fail(error, GP_ENOENT, "no point is left");
    asks++;
    *values = "{\"lr\": 0.1}";
    return GP_OK;
}

static gp_status fake_add(void *context, const char *values, bool extra, gp_error *error)
{
    (void)context;
    (void)values;
    (void)error;
    asks++;
    extras += extra;
    return GP_OK;
}

static sweep_verdict fake_report(void *context, uint32_t trial, uint32_t epoch, double value)
{
    (void)context;
    (void)trial;
    return epoch != 1 ? SWEEP_NO_RUNG : value < worst ? SWEEP_STOP : SWEEP_CONTINUE;
}

static void fake_tell(void *context, uint32_t trial, sweep_state state, double value)
{
    (void)context;
    (void)trial;
    (void)state;
    (void)value;
    ends_told++;
}

static void collect(void *context, const sweep_action *action)
{
    (void)context;
    if (action_count == ACTIONS_MAX)
        abort();
    actions[action_count++] = *action;
    if (action->kind != SWEEP_APPEND)
        return;
    written = action->number;
    if (sweep_line_encode(&journal, action->line, &err) != GP_OK)
        GP_TEST_FAIL("%s", err.message);
}

static sweep_config config_of(uint32_t trials, uint32_t concurrent)
{
    return (sweep_config){ .trials_max = trials,
                           .concurrent_max = concurrent,
                           .workers_min = 1,
                           .workers_max = 1,
                           .goal = NAN,
                           .how = "random",
                           .search = {
                               .ask = fake_ask, .add = fake_add, .report = fake_report, .tell = fake_tell } };
}

static void step(sweep_event event)
{
    action_count = 0;
    sweep_step(core, &event);
}

static gp_status replay(void *context, const sweep_line *line, gp_error *error)
{
    (void)context;
    return sweep_replay(core, line, error);
}

/* Start a controller with the journal so far. */
static gp_status begin(sweep_config config)
{
    size_t kept = 0;
    gp_status status;

    sweep_free(core);
    core = NULL;
    asks = extras = ends_told = 0;
    written = 0;
    status = sweep_new(&core, &config, collect, NULL, &err);
    if (status == GP_OK)
        status = sweep_lines_decode((const char *)journal.data, journal.bytes, &kept, replay, NULL, &err);
    if (status == GP_OK)
        step((sweep_event){ .kind = SWEEP_EVENT_BEGIN });
    return status;
}

/* Start a sweep without a journal. */
static void begin_new(sweep_config config)
{
    gp_buffer_deinit(&journal);
    gp_buffer_init(&journal, 1 << 22);
    asks_max = 1000;
    worst = 0;
    if (begin(config) != GP_OK)
        abort();
}

TEARDOWN()
{
    sweep_free(core);
    core = NULL;
    gp_buffer_deinit(&journal);
}

static void persisted(void)
{
    step((sweep_event){ .kind = SWEEP_EVENT_APPENDED, .number = written });
}

static void running(uint32_t trial, uint32_t attempt)
{
    step((sweep_event){ .kind = SWEEP_EVENT_SUBMITTED, .trial = trial, .attempt = attempt });
    step((sweep_event){ .kind = SWEEP_EVENT_RUNNING, .trial = trial, .attempt = attempt });
}

static void value(uint32_t trial, uint32_t epoch, double number)
{
    step((sweep_event){
        .kind = SWEEP_EVENT_VALUE, .trial = trial, .attempt = 1, .epoch = epoch, .value = number });
}

static void ended(uint32_t trial, uint32_t attempt, sweep_outcome outcome, double number)
{
    step((sweep_event){ .kind = SWEEP_EVENT_ENDED,
                        .trial = trial,
                        .attempt = attempt,
                        .outcome = outcome,
                        .epoch = 2,
                        .value = number,
                        .text = "the loss is not finite" });
}

/* Return an action of the last step. NULL: none of this kind. */
static const sweep_action *seen(sweep_action_kind kind)
{
    for (uint32_t i = 0; i < action_count; i++)
        if (actions[i].kind == kind)
            return &actions[i];
    return NULL;
}

static sweep_state state_of(uint32_t trial)
{
    return sweep_find(core, trial)->state;
}

TEST(a_trial_starts_only_when_its_point_is_durable)
{
    begin_new(config_of(3, 2));
    CHECK_INT(2, sweep_count(core));
    CHECK(seen(SWEEP_SUBMIT) == NULL);
    persisted();
    REQUIRE(seen(SWEEP_SUBMIT) != NULL);
    CHECK_INT(1, seen(SWEEP_SUBMIT)->trial);
    CHECK_INT(SWEEP_SUBMITTED, state_of(2));
    running(1, 1);
    ended(1, 1, SWEEP_OUTCOME_DONE, 0.5);
    CHECK_INT(3, sweep_count(core)); /* one sync serves the end and the next point */
    CHECK(seen(SWEEP_LINK_BEST) == NULL);
    CHECK(seen(SWEEP_SUBMIT) == NULL);
    persisted();
    REQUIRE(seen(SWEEP_LINK_BEST) != NULL);
    CHECK_INT(1, seen(SWEEP_LINK_BEST)->trial);
    REQUIRE(seen(SWEEP_SUBMIT) != NULL);
    CHECK_INT(3, seen(SWEEP_SUBMIT)->trial);
}

TEST(the_sweep_is_over_when_all_trials_have_ended)
{
    begin_new(config_of(1, 4));
    persisted();
    running(1, 1);
    ended(1, 1, SWEEP_OUTCOME_DONE, 0.5);
    CHECK(seen(SWEEP_OVER) == NULL);
    persisted();
    REQUIRE(seen(SWEEP_OVER) != NULL);
    CHECK_INT(SWEEP_REASON_TRIALS, seen(SWEEP_OVER)->reason);
    CHECK_INT(1, ends_told);
    ended(1, 1, SWEEP_OUTCOME_DONE, 0.7);
    CHECK_INT(1, ends_told);
    begin_new(config_of(5, 2));
    asks_max = 2;
    persisted();
    ended(1, 1, SWEEP_OUTCOME_DONE, 0.5);
    ended(2, 1, SWEEP_OUTCOME_FAILED, NAN);
    persisted();
    REQUIRE(seen(SWEEP_OVER) != NULL);
    CHECK_INT(SWEEP_REASON_EXHAUSTED, seen(SWEEP_OVER)->reason);
}

TEST(the_lowest_number_of_equal_trials_is_the_best)
{
    begin_new(config_of(3, 3));
    persisted();
    for (uint32_t trial = 1; trial <= 3; trial++)
        running(trial, 1);
    ended(2, 1, SWEEP_OUTCOME_DONE, 0.5);
    persisted();
    ended(1, 1, SWEEP_OUTCOME_DONE, 0.5);
    persisted();
    REQUIRE(seen(SWEEP_LINK_BEST) != NULL);
    CHECK_INT(1, seen(SWEEP_LINK_BEST)->trial);
    ended(3, 1, SWEEP_OUTCOME_DONE, 0.5);
    persisted();
    CHECK(seen(SWEEP_LINK_BEST) == NULL);
    CHECK_INT(1, sweep_best(core));
    REQUIRE_OK(begin(config_of(3, 3)), err);
    CHECK_INT(1, sweep_best(core));
}

TEST(a_lost_attempt_is_repeated_at_most_twice)
{
    begin_new(config_of(1, 1));
    for (uint32_t attempt = 1; attempt <= SWEEP_LOSSES_MAX; attempt++) {
        persisted();
        REQUIRE(seen(SWEEP_SUBMIT) != NULL);
        CHECK_INT(attempt, seen(SWEEP_SUBMIT)->attempt);
        ended(1, attempt, SWEEP_OUTCOME_LOST, NAN);
    }
    CHECK_INT(SWEEP_LOST, state_of(1));
    persisted();
    CHECK(seen(SWEEP_OVER) != NULL);
}

TEST(a_bad_trial_is_stopped_after_the_decision_is_durable)
{
    begin_new(config_of(1, 1));
    worst = 0.3;
    persisted();
    running(1, 1);
    value(1, 1, 0.2);
    CHECK(seen(SWEEP_STOP_JOB) == NULL);
    persisted();
    REQUIRE(seen(SWEEP_STOP_JOB) != NULL);
    value(1, 2, 0.9); /* the decision is final */
    ended(1, 1, SWEEP_OUTCOME_CANCELED, NAN);
    CHECK_INT(SWEEP_STOPPED, state_of(1));
    CHECK(sweep_find(core, 1)->value == 0.2);
    CHECK_INT(0, sweep_best(core));
}

TEST(a_restarted_controller_knows_its_decisions)
{
    begin_new(config_of(2, 2));
    worst = 0.3;
    persisted();
    running(1, 1);
    running(2, 1);
    value(1, 1, 0.2);
    ended(2, 1, SWEEP_OUTCOME_DONE, 0.8);
    REQUIRE_OK(begin(config_of(2, 2)), err);
    CHECK_INT(2, asks);
    CHECK_INT(1, ends_told);
    REQUIRE(seen(SWEEP_LINK_BEST) != NULL);
    CHECK_INT(2, seen(SWEEP_LINK_BEST)->trial);
    REQUIRE(seen(SWEEP_SUBMIT) != NULL); /* the same submit finds the job */
    CHECK_INT(1, seen(SWEEP_SUBMIT)->trial);
    running(1, 1);
    CHECK(action_count == 0 || seen(SWEEP_STOP_JOB) != NULL);
    ended(1, 1, SWEEP_OUTCOME_CANCELED, NAN);
    CHECK_INT(SWEEP_STOPPED, state_of(1));
}

TEST(an_interrupted_sweep_continues_its_trials)
{
    begin_new(config_of(4, 2));
    persisted();
    running(1, 1);
    running(2, 1);
    step((sweep_event){ .kind = SWEEP_EVENT_HALT });
    CHECK(seen(SWEEP_STOP_JOB) == NULL);
    persisted();
    CHECK(seen(SWEEP_STOP_JOB) != NULL);
    ended(1, 1, SWEEP_OUTCOME_CANCELED, NAN);
    ended(2, 1, SWEEP_OUTCOME_DONE, 0.5); /* it was faster than the stop */
    persisted();
    REQUIRE(seen(SWEEP_OVER) != NULL);
    CHECK_INT(SWEEP_REASON_HALTED, seen(SWEEP_OVER)->reason);
    REQUIRE_OK(begin(config_of(4, 2)), err);
    REQUIRE(seen(SWEEP_SUBMIT) != NULL);
    CHECK_INT(1, seen(SWEEP_SUBMIT)->trial);
    CHECK_INT(2, seen(SWEEP_SUBMIT)->attempt);
    CHECK_INT(3, sweep_count(core));
}

TEST(a_goal_a_time_limit_or_failures_end_a_sweep)
{
    sweep_config config = config_of(9, 2);

    config.goal = 0.9;
    begin_new(config);
    persisted();
    running(1, 1);
    running(2, 1);
    ended(1, 1, SWEEP_OUTCOME_DONE, 0.9);
    persisted();
    CHECK(seen(SWEEP_STOP_JOB) != NULL && seen(SWEEP_STOP_JOB)->trial == 2);
    ended(2, 1, SWEEP_OUTCOME_CANCELED, NAN);
    CHECK_INT(SWEEP_STOPPED, state_of(2));
    persisted();
    REQUIRE(seen(SWEEP_OVER) != NULL);
    CHECK_INT(SWEEP_REASON_GOAL, seen(SWEEP_OVER)->reason);

    config = config_of(9, 1);
    begin_new(config);
    persisted();
    running(1, 1);
    step((sweep_event){ .kind = SWEEP_EVENT_TIME });
    persisted();
    CHECK(seen(SWEEP_STOP_JOB) != NULL);

    config.failures_max = 2;
    begin_new(config);
    for (uint32_t trial = 1; trial <= 2; trial++) {
        persisted(); /* the end of the last trial */
        persisted(); /* the next point */
        step((sweep_event){ .kind = SWEEP_EVENT_ENDED,
                            .trial = trial,
                            .attempt = 1,
                            .outcome = SWEEP_OUTCOME_FAILED,
                            .value = NAN,
                            .text = trial == 1 ? "the loss is not finite" : "another reason" });
    }
    persisted();
    REQUIRE(seen(SWEEP_OVER) != NULL);
    CHECK_INT(SWEEP_REASON_FAILURES, seen(SWEEP_OVER)->reason);
    CHECK_TEXT("the loss is not finite", seen(SWEEP_OVER)->text);
}

TEST(a_failed_journal_starts_no_trial_and_lets_others_run)
{
    begin_new(config_of(5, 2));
    persisted();
    running(1, 1);
    running(2, 1);
    step((sweep_event){ .kind = SWEEP_EVENT_UNWRITABLE, .text = "no space" });
    CHECK(seen(SWEEP_OVER) == NULL && seen(SWEEP_STOP_JOB) == NULL);
    ended(1, 1, SWEEP_OUTCOME_DONE, 0.5);
    CHECK_INT(0, action_count);
    ended(2, 1, SWEEP_OUTCOME_DONE, 0.5);
    REQUIRE(seen(SWEEP_OVER) != NULL);
    CHECK_INT(SWEEP_REASON_JOURNAL, seen(SWEEP_OVER)->reason);
    CHECK_INT(0, ends_told);
}

TEST(points_of_the_user_come_in_addition)
{
    begin_new(config_of(1, 1));
    persisted();
    step((sweep_event){ .kind = SWEEP_EVENT_ADD, .values = "{\"lr\": 0.3}" });
    CHECK_INT(2, sweep_count(core));
    persisted();
    CHECK(seen(SWEEP_SUBMIT) == NULL); /* waits for the slot */
    ended(1, 1, SWEEP_OUTCOME_DONE, 0.5);
    REQUIRE(seen(SWEEP_SUBMIT) != NULL);
    CHECK_INT(2, seen(SWEEP_SUBMIT)->trial);
    CHECK_TEXT("{\"lr\": 0.3}", sweep_find(core, 2)->values);
    CHECK_INT(1, extras);
    REQUIRE_OK(begin(config_of(1, 1)), err);
    CHECK_INT(1, extras); /* as before the restart */
}

/* The search reports a lack of points, which is not the reason. */
TEST(a_sweep_with_added_points_ends_at_the_largest_number_of_trials)
{
    begin_new(config_of(SWEEP_TRIALS_MAX, 1));
    asks_max = SWEEP_TRIALS_MAX;
    step((sweep_event){ .kind = SWEEP_EVENT_ADD, .values = "{\"lr\": 0.3}" });
    for (uint32_t trial = 1; trial <= SWEEP_TRIALS_MAX; trial++) {
        persisted();
        ended(trial, 1, SWEEP_OUTCOME_DONE, 0.5);
    }
    persisted();
    REQUIRE(seen(SWEEP_OVER) != NULL);
    CHECK_INT(SWEEP_REASON_TRIALS, seen(SWEEP_OVER)->reason);
    CHECK_INT(SWEEP_TRIALS_MAX, sweep_count(core));
}

/* A request becomes a trial once, also if the controller restarts and gets it again. */
TEST(a_request_of_the_user_becomes_one_trial)
{
    static const char again[] =
        "{\"event\": \"asked\", \"trial\": 3, \"request\": \"a-1\", \"values\": {}}\n";
    const sweep_event add = { .kind = SWEEP_EVENT_ADD, .values = "{\"lr\": 0.3}", .text = "a-1" };

    begin_new(config_of(1, 1));
    persisted();
    step(add);
    CHECK_INT(2, sweep_requested(core, "a-1"));
    CHECK_INT(0, sweep_requested(core, "a-2"));
    CHECK_CONTAINS(gp_buffer_text(&journal), "\"how\": \"added\", \"request\": \"a-1\", \"values\"");
    REQUIRE_OK(begin(config_of(1, 1)), err);
    CHECK_INT(2, sweep_requested(core, "a-1"));
    CHECK_TEXT("{\"lr\": 0.3}", sweep_find(core, 2)->values);
    CHECK(!sweep_is_complete(core));
    gp_buffer_append(&journal, again, strlen(again), NULL);
    CHECK_STATUS(GP_ECORRUPT, begin(config_of(1, 1)));
    CHECK_CONTAINS(err.message, "trial 3 repeats a request");
}

TEST(a_trial_without_a_result_is_retried_as_another_trial)
{
    const sweep_event retry = { .kind = SWEEP_EVENT_RETRY, .trial = 1, .text = "r-1" };

    begin_new(config_of(2, 2));
    persisted();
    step(retry);
    CHECK_INT(2, sweep_count(core)); /* trial 1 has not ended */
    running(1, 1);
    running(2, 1);
    ended(1, 1, SWEEP_OUTCOME_FAILED, NAN);
    ended(2, 1, SWEEP_OUTCOME_DONE, 0.5);
    step((sweep_event){ .kind = SWEEP_EVENT_RETRY, .trial = 2, .text = "r-2" });
    CHECK_INT(2, sweep_count(core)); /* trial 2 is done */
    step(retry);
    CHECK_INT(3, sweep_requested(core, "r-1"));
    CHECK_INT(1, sweep_find(core, 3)->of);
    persisted();
    CHECK(seen(SWEEP_OVER) == NULL && seen(SWEEP_SUBMIT)->trial == 3);
    running(3, 1);
    ended(3, 1, SWEEP_OUTCOME_DONE, 0.7);
    persisted();
    CHECK(seen(SWEEP_OVER) != NULL);
    CHECK_INT(3, sweep_best(core));
    step((sweep_event){ .kind = SWEEP_EVENT_RETRY, .trial = 1, .text = "r-3" });
    CHECK_INT(0, sweep_requested(core, "r-3")); /* the sweep is over */
}

/* The best trial is repeated after all others; a repeat is neither stopped nor the best. */
TEST(the_best_trial_is_repeated_with_further_seeds)
{
    sweep_config config = config_of(2, 2);

    config.repeats = 2;
    config.goal = 0.6;
    begin_new(config);
    persisted();
    running(1, 1);
    running(2, 1);
    ended(1, 1, SWEEP_OUTCOME_DONE, 0.7);
    CHECK(sweep_find(core, 2)->stop);
    persisted();
    ended(2, 1, SWEEP_OUTCOME_CANCELED, NAN);
    CHECK_INT(2, sweep_count(core));
    persisted(); /* both ends are durable */
    CHECK_INT(4, sweep_count(core));
    CHECK_INT(1, sweep_find(core, 4)->of);
    CHECK_INT(2, sweep_find(core, 4)->repeat);
    REQUIRE_OK(begin(config), err);
    CHECK(!sweep_find(core, 3)->stop);
    persisted();
    running(3, 1);
    running(4, 1);
    worst = 1;
    value(3, 1, 0.1);
    CHECK(state_of(3) == SWEEP_RUNNING);
    ended(3, 1, SWEEP_OUTCOME_DONE, 0.9);
    ended(4, 1, SWEEP_OUTCOME_FAILED, NAN);
    persisted();
    CHECK(seen(SWEEP_OVER) != NULL);
    CHECK_INT(4, sweep_count(core));
    CHECK_INT(1, sweep_best(core));
    REQUIRE_OK(begin(config_of(3, 2)), err); /* more trials */
    CHECK_INT(5, sweep_count(core));
}

TEST(elastic_trials_share_the_workers)
{
    sweep_config config = config_of(3, 2);

    config.workers_max = 4;
    begin_new(config);
    step((sweep_event){ .kind = SWEEP_EVENT_WORKERS, .count = 6 });
    persisted();
    REQUIRE(seen(SWEEP_SUBMIT) != NULL);
    CHECK_INT(3, seen(SWEEP_SUBMIT)->workers);
    running(1, 1);
    running(2, 1);
    ended(1, 1, SWEEP_OUTCOME_DONE, 0.5);
    persisted();
    CHECK(seen(SWEEP_SIZE) == NULL); /* trial 3 takes the place */
    persisted();
    running(3, 1);
    ended(2, 1, SWEEP_OUTCOME_DONE, 0.5);
    persisted();
    REQUIRE(seen(SWEEP_SIZE) != NULL);
    CHECK_INT(3, seen(SWEEP_SIZE)->trial);
    CHECK_INT(4, seen(SWEEP_SIZE)->workers);
    step((sweep_event){ .kind = SWEEP_EVENT_WORKERS, .count = 2 });
    REQUIRE(seen(SWEEP_SIZE) != NULL);
    CHECK_INT(2, seen(SWEEP_SIZE)->workers);
}

/* ---- journal ---- */

static uint32_t lines;

static gp_status count_line(void *context, const sweep_line *line, gp_error *error)
{
    (void)context;
    (void)line;
    (void)error;
    lines++;
    return GP_OK;
}

static gp_status decode(const char *text, size_t bytes, size_t *kept)
{
    lines = 0;
    return sweep_lines_decode(text, bytes, kept, count_line, NULL, &err);
}

TEST(a_torn_last_line_is_cut_off)
{
    size_t kept = 0;

    begin_new(config_of(3, 3));
    for (size_t cut = 0; cut <= journal.bytes; cut++) {
        REQUIRE_OK(decode((const char *)journal.data, cut, &kept), err);
        CHECK(kept <= cut && (kept == 0 || journal.data[kept - 1] == '\n'));
    }
    CHECK_INT(3, lines);
    REQUIRE_OK(decode("{\"event\": \"halt\"}\n\0\0\0", 21, &kept), err); /* after a power failure */
    CHECK_INT(18, kept);
}

TEST(malformed_lines_are_reported_with_their_number)
{
    static const char *const bad[] = {
        "x\n",
        "[]\n",
        "{\"event\": \"asked\", \"trial\": 0, \"values\": {}}\n",
        "{\"event\": \"asked\", \"trial\": 1, \"values\": 3}\n",
        "{\"event\": \"end\", \"trial\": 1, \"state\": \"running\", \"epochs\": 1}\n",
        "{\"event\": \"end\", \"trial\": 1, \"state\": \"done\", \"epochs\": 1, \"value\": null}\n",
        "{\"event\": \"asked\", \"trial\": 2, \"of\": 2, \"values\": {}}\n",
        "{\"event\": \"asked\", \"trial\": 2, \"repeat\": 1, \"values\": {}}\n",
        "{\"event\": \"other\", \"trial\": 1}\n",
        "{\"event\": \"rung\", \"trial\": 1, \"epoch\": -1}\n",
    };
    char text[200];
    size_t kept = 0;

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        snprintf(text, sizeof(text), "{\"event\": \"halt\"}\n%s", bad[i]);
        CHECK_STATUS(GP_ECORRUPT, decode(text, strlen(text), &kept));
        CHECK_CONTAINS(err.message, "line 2");
    }
}

TEST(contradicting_lines_are_refused)
{
    static const char *const bad[] = {
        "{\"event\": \"asked\", \"trial\": 2, \"values\": {}}\n",
        "{\"event\": \"stop\", \"trial\": 1}\n",
        "{\"event\": \"asked\", \"trial\": 1, \"values\": {}}\n"
        "{\"event\": \"attempt\", \"trial\": 1, \"attempt\": 3}\n",
        "{\"event\": \"asked\", \"trial\": 1, \"values\": {}}\n"
        "{\"event\": \"end\", \"trial\": 1, \"state\": \"done\", \"epochs\": 1, \"value\": 1}\n"
        "{\"event\": \"end\", \"trial\": 1, \"state\": \"done\", \"epochs\": 1, \"value\": 1}\n",
    };

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        begin_new(config_of(3, 3));
        gp_buffer_clear(&journal);
        gp_buffer_append(&journal, bad[i], strlen(bad[i]), NULL);
        CHECK_STATUS(GP_ECORRUPT, begin(config_of(3, 3)));
        CHECK_CONTAINS(err.message, "the journal is damaged: trial");
    }
}
