/* Test the job state machine event by event. tests/sim runs it with random events. */
#include "scheduler/core/jobs.h"

#include <unistd.h>

#include "tests/gp_test.h"

enum { ACTIONS_MAX = 512 };

static gp_jobs *jobs;
static gp_jobs_action actions[ACTIONS_MAX];
static gp_jobs_state states[ACTIONS_MAX]; /* state of the job at the time of the action */
static char texts[ACTIONS_MAX][GP_ERROR_MESSAGE_MAX];
static uint32_t action_count;
static uint64_t written; /* largest action number seen */
static int64_t now_ms, clock_ms;

static void collect(void *context, const gp_jobs_action *action)
{
    (void)context;
    if (action->number > written)
        written = action->number;
    if (action_count == ACTIONS_MAX)
        abort();
    actions[action_count] = *action;
    states[action_count] = action->job != NULL ? action->job->state : GP_JOBS_NONE;
    snprintf(texts[action_count], sizeof(texts[0]), "%s", action->text != NULL ? action->text : "");
    action_count++;
}

static void begin_with(gp_jobs_config config)
{
    gp_error err;

    gp_jobs_free(jobs);
    written = 0;
    now_ms = 1000;
    clock_ms = 1700000000000ll;
    if (gp_jobs_new(&jobs, &config, collect, NULL, &err) != GP_OK)
        abort();
}

static void begin(uint32_t capacity)
{
    gp_jobs_config config = gp_jobs_config_default();

    config.capacity = capacity;
    begin_with(config);
    gp_jobs_begin(jobs, 1);
}

static void end(void)
{
    gp_jobs_free(jobs);
    jobs = NULL;
}

static uint32_t step(gp_jobs_event event)
{
    action_count = 0;
    event.clock_ms = clock_ms;
    gp_jobs_step(jobs, &event, now_ms);
    return action_count;
}

static uint32_t submit_command(uint64_t seq, gp_jobs_kind kind, int32_t priority, const char *command)
{
    gp_jobs_submit submit = {
        .submitter = { 7 }, .seq = seq, .kind = kind, .priority = priority, .name = "n", .command = command
    };

    return step((gp_jobs_event){
        .kind = GP_JOBS_EVENT_SUBMIT, .client = { { 3 } }, .correlation = 100 + seq, .submit = &submit });
}

static uint32_t submit_kind(uint64_t seq, gp_jobs_kind kind, int32_t priority)
{
    return submit_command(seq, kind, priority, "train --network lenet");
}

static uint32_t submit_as(uint64_t seq, int32_t priority)
{
    return submit_kind(seq, GP_JOBS_ORDINARY, priority);
}

static uint32_t persisted(void)
{
    return step((gp_jobs_event){ .kind = GP_JOBS_EVENT_PERSISTED, .persisted = written });
}

static uint32_t cancel_grace(uint64_t job, uint32_t grace_ms)
{
    return step((gp_jobs_event){ .kind = GP_JOBS_EVENT_CANCEL,
                                 .client = { { 3 } },
                                 .correlation = 50,
                                 .job = job,
                                 .grace_ms = grace_ms });
}

static uint32_t cancel(uint64_t job)
{
    return cancel_grace(job, 10000);
}

static uint32_t spawned(uint64_t job, uint32_t attempt)
{
    return step((gp_jobs_event){
        .kind = GP_JOBS_EVENT_SPAWNED, .job = job, .attempt = attempt, .pid = 4000 + (int32_t)job });
}

static uint32_t ended(uint64_t job, uint32_t attempt, gp_jobs_exit kind, int32_t number)
{
    return step((gp_jobs_event){
        .kind = GP_JOBS_EVENT_ENDED, .job = job, .attempt = attempt, .exit = kind, .number = number });
}

/* Return the first action with this kind in the last step. NULL: none. */
static const gp_jobs_action *seen(gp_jobs_action_kind kind)
{
    for (uint32_t i = 0; i < action_count; i++) {
        if (actions[i].kind == kind)
            return &actions[i];
    }
    return NULL;
}

static const char *text_of(const gp_jobs_action *action)
{
    return action == NULL ? "" : texts[action - actions];
}

static gp_jobs_state state_of(uint64_t job)
{
    const gp_jobs_job *found = gp_jobs_find(jobs, job);

    return found == NULL ? GP_JOBS_NONE : found->state;
}

/* Submit a job and advance it until it runs. */
static void run_kind(uint64_t seq, gp_jobs_kind kind)
{
    submit_kind(seq, kind, 0);
    persisted();
    spawned(seq, 1);
    persisted();
}

static void run_one(uint64_t seq)
{
    run_kind(seq, GP_JOBS_ORDINARY);
}

TEST(submit_is_acknowledged_only_when_durable)
{
    begin(1);
    submit_as(1, 0);
    CHECK(seen(GP_JOBS_INSERT) != NULL);
    CHECK(seen(GP_JOBS_ACCEPTED) == NULL);
    CHECK(seen(GP_JOBS_START) == NULL);
    persisted();
    REQUIRE(seen(GP_JOBS_ACCEPTED) != NULL);
    CHECK_INT(1, seen(GP_JOBS_ACCEPTED)->id);
    CHECK_INT(101, seen(GP_JOBS_ACCEPTED)->correlation);
    CHECK(seen(GP_JOBS_CHANGED) != NULL);
    REQUIRE(seen(GP_JOBS_START) != NULL);
    CHECK_INT(1, seen(GP_JOBS_START)->attempt);
    end();
}

TEST(process_runs_only_after_its_pid_is_durable)
{
    begin(1);
    submit_as(1, 0);
    persisted();
    spawned(1, 1);
    REQUIRE(seen(GP_JOBS_UPDATE) != NULL);
    CHECK(seen(GP_JOBS_GO) == NULL);
    persisted();
    CHECK(seen(GP_JOBS_GO) != NULL);
    CHECK_INT(GP_JOBS_RUNNING, state_of(1));
    CHECK_INT(1, gp_jobs_find(jobs, 1)->attempts);
    end();
}

TEST(job_end_is_reported_only_when_durable)
{
    begin(1);
    run_one(1);
    ended(1, 1, GP_JOBS_EXIT_CODE, 0);
    CHECK(seen(GP_JOBS_CHANGED) == NULL);
    CHECK_INT(GP_JOBS_RUNNING, gp_jobs_find(jobs, 1)->durable);
    persisted();
    CHECK(seen(GP_JOBS_CHANGED) != NULL);
    CHECK_INT(GP_JOBS_DONE, gp_jobs_find(jobs, 1)->durable);
    CHECK(!gp_jobs_busy(jobs));
    end();
}

TEST(failed_job_is_not_restarted)
{
    begin(1);
    run_one(1);
    ended(1, 1, GP_JOBS_EXIT_SIGNAL, 9);
    CHECK_INT(GP_JOBS_FAILED, state_of(1));
    CHECK_INT(9, gp_jobs_find(jobs, 1)->number);
    persisted();
    CHECK(seen(GP_JOBS_START) == NULL);
    end();
}

/* Report that no process could be started for the first attempt of a job. */
static uint32_t unborn(uint64_t job, gp_status status)
{
    return step((gp_jobs_event){ .kind = GP_JOBS_EVENT_UNBORN,
                                 .job = job,
                                 .attempt = 1,
                                 .status = status,
                                 .text = "cannot start gradpool: Too many open files" });
}

TEST(start_failure_of_the_machine_fails_no_queued_job)
{
    begin(1);
    submit_as(1, 0);
    submit_as(2, 0);
    persisted();
    REQUIRE(seen(GP_JOBS_START) != NULL);
    unborn(1, GP_EIO);
    CHECK(seen(GP_JOBS_START) == NULL);
    persisted();
    CHECK(seen(GP_JOBS_START) == NULL); /* neither this job again at once, nor the next one */
    CHECK_INT(GP_JOBS_QUEUED, state_of(1));
    CHECK_TEXT("cannot start gradpool: Too many open files; queued again", gp_jobs_find(jobs, 1)->reason);
    now_ms += 1000;
    step((gp_jobs_event){ .kind = GP_JOBS_EVENT_TICK });
    REQUIRE(seen(GP_JOBS_START) != NULL);
    CHECK_INT(1, seen(GP_JOBS_START)->id);
    CHECK_INT(1, seen(GP_JOBS_START)->attempt);
    spawned(1, 1);
    persisted();
    CHECK_INT(GP_JOBS_RUNNING, state_of(1));
    CHECK_TEXT("", gp_jobs_find(jobs, 1)->reason);
    ended(1, 1, GP_JOBS_EXIT_CODE, 0);
    persisted();
    unborn(2, GP_EINVAL); /* only this job is affected */
    CHECK_INT(GP_JOBS_FAILED, state_of(2));
    end();
}

TEST(repeated_submit_finds_the_same_job)
{
    begin(1);
    submit_as(1, 0);
    submit_as(1, 0); /* before the first one is durable */
    CHECK(seen(GP_JOBS_INSERT) == NULL && seen(GP_JOBS_ACCEPTED) == NULL);
    persisted();
    CHECK_INT(GP_JOBS_ACCEPTED, actions[0].kind);
    CHECK_INT(GP_JOBS_ACCEPTED, actions[1].kind);
    CHECK_INT(1, actions[1].id);
    CHECK(actions[1].known);
    submit_as(1, 0); /* also long after the job ended */
    REQUIRE(seen(GP_JOBS_ACCEPTED) != NULL);
    CHECK_INT(1, seen(GP_JOBS_ACCEPTED)->id);
    submit_as(2, 0);
    persisted();
    CHECK_INT(2, seen(GP_JOBS_ACCEPTED)->id);
    end();
}

TEST(jobs_start_by_priority_then_by_age)
{
    uint64_t order[4];

    begin(0);
    submit_as(1, 0);
    submit_as(2, 5);
    submit_as(3, 0);
    submit_as(4, 5);
    persisted();
    for (uint32_t i = 0; i < 4; i++) {
        step((gp_jobs_event){ .kind = GP_JOBS_EVENT_CAPACITY, .count = i + 1 });
        REQUIRE(seen(GP_JOBS_START) != NULL);
        order[i] = seen(GP_JOBS_START)->id;
        CHECK_INT(1, action_count);
    }
    CHECK_INT(2, order[0]);
    CHECK_INT(4, order[1]);
    CHECK_INT(1, order[2]);
    CHECK_INT(3, order[3]);
    end();
}

TEST(running_jobs_do_not_exceed_the_number_of_workers)
{
    begin(2);
    for (uint64_t seq = 1; seq <= 5; seq++)
        submit_as(seq, 0);
    persisted();
    CHECK_INT(2, gp_jobs_active(jobs));
    spawned(1, 1);
    spawned(2, 1);
    persisted();
    CHECK_INT(2, gp_jobs_active(jobs));
    ended(1, 1, GP_JOBS_EXIT_CODE, 0);
    REQUIRE(seen(GP_JOBS_START) != NULL);
    CHECK_INT(3, seen(GP_JOBS_START)->id);
    end();
}

TEST(sweeps_do_not_take_the_places_of_other_jobs)
{
    begin(1);
    for (uint64_t seq = 1; seq <= GP_JOBS_SWEEPS_MAX + 1; seq++)
        run_kind(seq, GP_JOBS_SWEEP);
    CHECK_INT(GP_JOBS_SWEEPS_MAX, gp_jobs_active(jobs));
    CHECK_INT(GP_JOBS_QUEUED, state_of(GP_JOBS_SWEEPS_MAX + 1));
    run_kind(18, GP_JOBS_TRIAL);
    submit_kind(19, GP_JOBS_ORDINARY, 0);
    persisted();
    CHECK_INT(GP_JOBS_SWEEPS_MAX + 1, gp_jobs_active(jobs));
    CHECK_INT(GP_JOBS_RUNNING, state_of(18));
    CHECK_INT(GP_JOBS_QUEUED, state_of(19));
    ended(18, 1, GP_JOBS_EXIT_CODE, 0);
    REQUIRE(seen(GP_JOBS_START) != NULL);
    CHECK_INT(19, seen(GP_JOBS_START)->id);
    ended(1, 1, GP_JOBS_EXIT_CODE, 0);
    REQUIRE(seen(GP_JOBS_START) != NULL);
    CHECK_INT(GP_JOBS_SWEEPS_MAX + 1, seen(GP_JOBS_START)->id);
    end();
}

/* Submit the job that runs detached calls. */
static void submit_keeper(uint64_t seq)
{
    submit_command(seq, GP_JOBS_SWEEP, 0, "results keep");
    persisted();
}

TEST(one_keeper_runs_beside_the_sweeps)
{
    const uint64_t first = GP_JOBS_SWEEPS_MAX + 1;

    begin(1);
    for (uint64_t seq = 1; seq < first; seq++)
        run_kind(seq, GP_JOBS_SWEEP);
    submit_keeper(first);
    REQUIRE(seen(GP_JOBS_START) != NULL);
    CHECK_INT(first, seen(GP_JOBS_START)->id);
    spawned(first, 1);
    persisted();
    submit_keeper(first + 1);
    CHECK_INT(GP_JOBS_QUEUED, state_of(first + 1));
    submit_kind(first + 2, GP_JOBS_SWEEP, 0);
    persisted();
    ended(1, 1, GP_JOBS_EXIT_CODE, 0);
    REQUIRE(seen(GP_JOBS_START) != NULL);
    CHECK_INT(first + 2, seen(GP_JOBS_START)->id); /* the keeper is not before it in the queue */
    ended(first, 1, GP_JOBS_EXIT_CODE, 0);
    REQUIRE(seen(GP_JOBS_START) != NULL);
    CHECK_INT(first + 1, seen(GP_JOBS_START)->id);
    end();
}

TEST(requests_for_a_keeper_share_the_queued_one)
{
    begin(0);
    submit_keeper(1);
    for (uint64_t seq = 2; seq <= 5; seq++) {
        submit_command(seq, GP_JOBS_SWEEP, 0, "results keep");
        REQUIRE(seen(GP_JOBS_ACCEPTED) != NULL);
        CHECK_INT(1, seen(GP_JOBS_ACCEPTED)->id);
        CHECK_INT(100 + seq, seen(GP_JOBS_ACCEPTED)->correlation);
    }
    CHECK_INT(1, gp_jobs_count(jobs, GP_JOBS_QUEUED));
    cancel(1);
    persisted();
    submit_keeper(6);
    CHECK_INT(GP_JOBS_QUEUED, state_of(2));
    submit_kind(7, GP_JOBS_SWEEP, 0); /* other sweeps are jobs of their own */
    persisted();
    CHECK_INT(2, gp_jobs_count(jobs, GP_JOBS_QUEUED));
    end();
}

TEST(requests_for_a_keeper_share_the_queued_one_before_it_is_durable)
{
    begin(0);
    submit_command(1, GP_JOBS_SWEEP, 0, "results keep");
    submit_command(2, GP_JOBS_SWEEP, 0, "results keep");
    CHECK(seen(GP_JOBS_ACCEPTED) == NULL); /* the reply waits for the journal */
    CHECK_INT(1, gp_jobs_count(jobs, GP_JOBS_QUEUED));
    persisted();
    REQUIRE(seen(GP_JOBS_ACCEPTED) != NULL);
    CHECK_INT(1, seen(GP_JOBS_ACCEPTED)->id);
    end();
}

TEST(killed_sweep_is_queued_again_at_most_three_times)
{
    begin(1);
    run_kind(1, GP_JOBS_SWEEP);
    for (uint32_t attempt = 1; attempt <= GP_JOBS_ATTEMPTS_MAX; attempt++) {
        step((gp_jobs_event){ .kind = GP_JOBS_EVENT_ENDED,
                              .job = 1,
                              .attempt = attempt,
                              .exit = GP_JOBS_EXIT_SIGNAL,
                              .number = 9,
                              .text = "killed by signal 9 (Killed)" });
        persisted();
        CHECK_INT(attempt < GP_JOBS_ATTEMPTS_MAX ? GP_JOBS_STARTING : GP_JOBS_FAILED, state_of(1));
        spawned(1, attempt + 1);
        persisted();
    }
    CHECK_TEXT("killed by signal 9 (Killed) (attempt 3 of 3)", gp_jobs_find(jobs, 1)->reason);
    run_kind(2, GP_JOBS_SWEEP); /* a sweep that fails by itself, or was canceled, does not restart */
    ended(2, 1, GP_JOBS_EXIT_CODE, 1);
    CHECK_INT(GP_JOBS_FAILED, state_of(2));
    run_kind(3, GP_JOBS_SWEEP);
    cancel(3);
    persisted();
    ended(3, 1, GP_JOBS_EXIT_SIGNAL, 15);
    CHECK_INT(GP_JOBS_CANCELED, state_of(3));
    run_kind(4, GP_JOBS_TRIAL); /* the sweep decides about a trial */
    ended(4, 1, GP_JOBS_EXIT_SIGNAL, 9);
    CHECK_INT(GP_JOBS_FAILED, state_of(4));
    end();
}

TEST(canceled_queued_job_never_starts)
{
    begin(1);
    submit_as(1, 0);
    submit_as(2, 0);
    persisted();
    cancel(2);
    CHECK(seen(GP_JOBS_CANCELING) == NULL);
    persisted();
    REQUIRE(seen(GP_JOBS_CANCELING) != NULL);
    CHECK_INT(1, seen(GP_JOBS_CANCELING)->count);
    CHECK_INT(GP_JOBS_CANCELED, state_of(2));
    cancel(2); /* a second cancel finds nothing to do and is no error */
    REQUIRE(seen(GP_JOBS_CANCELING) != NULL);
    CHECK_INT(0, seen(GP_JOBS_CANCELING)->count);
    cancel(77);
    CHECK_CONTAINS(text_of(seen(GP_JOBS_ERROR)), "job 77 does not exist");
    end();
}

TEST(canceled_running_job_is_terminated_then_killed)
{
    begin(1);
    run_one(1);
    cancel(1);
    CHECK(seen(GP_JOBS_TERM) == NULL); /* not before the cancel is durable */
    persisted();
    CHECK(seen(GP_JOBS_TERM) != NULL);
    CHECK_INT(GP_JOBS_STOPPING, state_of(1));
    CHECK(gp_jobs_due(jobs) <= now_ms + 10000);
    now_ms += 9999;
    CHECK_INT(0, step((gp_jobs_event){ .kind = GP_JOBS_EVENT_TICK }));
    now_ms += 1;
    step((gp_jobs_event){ .kind = GP_JOBS_EVENT_TICK });
    CHECK(seen(GP_JOBS_KILL) != NULL);
    ended(1, 1, GP_JOBS_EXIT_SIGNAL, 9);
    CHECK_INT(GP_JOBS_CANCELED, state_of(1));
    end();
}

TEST(grace_period_of_a_cancel_can_be_zero_or_shortened)
{
    begin(2);
    run_one(1);
    cancel_grace(1, 0);
    CHECK(seen(GP_JOBS_TERM) == NULL);
    persisted();
    CHECK(seen(GP_JOBS_TERM) != NULL);
    CHECK(gp_jobs_due(jobs) <= now_ms);
    step((gp_jobs_event){ .kind = GP_JOBS_EVENT_TICK });
    CHECK(seen(GP_JOBS_KILL) != NULL);
    ended(1, 1, GP_JOBS_EXIT_SIGNAL, 9);
    CHECK_INT(GP_JOBS_CANCELED, state_of(1));

    run_one(2);
    cancel(2);
    cancel_grace(2, 4000); /* before the first cancel is durable */
    persisted();
    cancel(2); /* cannot extend the period */
    now_ms += 2999;
    CHECK_INT(0, step((gp_jobs_event){ .kind = GP_JOBS_EVENT_TICK }));
    cancel_grace(2, 1001);
    CHECK_INT(0, seen(GP_JOBS_CANCELING)->count);
    cancel_grace(2, 500);
    CHECK_INT(1, seen(GP_JOBS_CANCELING)->count);
    now_ms += 499;
    CHECK_INT(0, step((gp_jobs_event){ .kind = GP_JOBS_EVENT_TICK }));
    now_ms += 1;
    step((gp_jobs_event){ .kind = GP_JOBS_EVENT_TICK });
    CHECK(seen(GP_JOBS_KILL) != NULL);
    end();
}

TEST(job_that_finishes_before_a_cancel_is_done)
{
    begin(1);
    run_one(1);
    cancel(1);
    ended(1, 1, GP_JOBS_EXIT_CODE, 0);
    persisted();
    CHECK_INT(GP_JOBS_DONE, state_of(1));
    CHECK(seen(GP_JOBS_TERM) == NULL);
    end();
}

TEST(process_of_a_job_canceled_before_its_spawn_is_not_awaited)
{
    begin(2);
    submit_as(1, 0);
    submit_as(2, 0);
    persisted();
    CHECK(gp_jobs_awaits(jobs, 1, 1) && gp_jobs_awaits(jobs, 2, 1));
    CHECK(!gp_jobs_awaits(jobs, 1, 2) && !gp_jobs_awaits(jobs, 3, 1));
    cancel(1);
    CHECK(!gp_jobs_awaits(jobs, 1, 1));
    spawned(2, 1);
    CHECK(!gp_jobs_awaits(jobs, 2, 1));
    end();
}

TEST(job_canceled_at_the_gate_never_runs)
{
    begin(1);
    submit_as(1, 0);
    persisted();
    cancel(1);
    CHECK(seen(GP_JOBS_DROP) != NULL);
    spawned(1, 1); /* the spawn was already in progress */
    CHECK(seen(GP_JOBS_DROP) != NULL);
    persisted();
    CHECK(seen(GP_JOBS_GO) == NULL);
    CHECK_INT(GP_JOBS_CANCELED, state_of(1));
    end();
}

/* Return a row as an earlier scheduler left it. */
static gp_jobs_job row_of(uint64_t id, gp_jobs_state state, uint32_t attempts)
{
    return (gp_jobs_job){ .id = id,
                          .submitter = { 9 },
                          .seq = id,
                          .state = state,
                          .attempts = attempts,
                          .ended_ms = gp_jobs_state_ended(state) ? 1699999999000ll + (int64_t)id : 0 };
}

static void load(gp_jobs_job row)
{
    gp_error err;

    CHECK_STATUS(GP_OK, gp_jobs_load(jobs, &row, &err));
}

TEST(job_lost_with_its_scheduler_runs_at_most_three_times)
{
    gp_jobs_config config = gp_jobs_config_default();

    config.capacity = 4;
    begin_with(config);
    load(row_of(1, GP_JOBS_RUNNING, 1));
    load(row_of(2, GP_JOBS_RUNNING, 3));
    load(row_of(3, GP_JOBS_RUNNING, 1));
    gp_jobs_begin(jobs, 9);
    ended(1, 1, GP_JOBS_EXIT_UNKNOWN, 0);
    CHECK_INT(GP_JOBS_QUEUED, state_of(1));
    CHECK(seen(GP_JOBS_START) == NULL);
    persisted();
    REQUIRE(seen(GP_JOBS_START) != NULL);
    CHECK_INT(2, seen(GP_JOBS_START)->attempt);
    ended(2, 3, GP_JOBS_EXIT_UNKNOWN, 0);
    CHECK_INT(GP_JOBS_LOST, state_of(2));
    CHECK_CONTAINS(gp_jobs_find(jobs, 2)->reason, "3 attempts");
    ended(3, 1, GP_JOBS_EXIT_CODE, 1); /* the exit record shows that the job failed by itself */
    CHECK_INT(GP_JOBS_FAILED, state_of(3));
    end();
}

TEST(adopted_job_is_not_restarted)
{
    begin(1);
    gp_jobs_free(jobs);
    jobs = NULL;
    begin_with(gp_jobs_config_default());
    load(row_of(5, GP_JOBS_RUNNING, 2));
    gp_jobs_begin(jobs, 6);
    CHECK(gp_jobs_orphaned(gp_jobs_find(jobs, 5)));
    step((gp_jobs_event){ .kind = GP_JOBS_EVENT_ADOPTED, .job = 5 });
    CHECK(seen(GP_JOBS_START) == NULL);
    CHECK_INT(1, gp_jobs_active(jobs));
    step((gp_jobs_event){ .kind = GP_JOBS_EVENT_ENDED,
                          .job = 5,
                          .attempt = 2,
                          .exit = GP_JOBS_EXIT_CODE,
                          .number = 1,
                          .pool_lost = true });
    CHECK_INT(GP_JOBS_QUEUED, state_of(5)); /* the pool was gone, so the job is not at fault */
    end();
}

TEST(canceled_job_that_is_found_late_gets_sigterm)
{
    begin_with(gp_jobs_config_default());
    load(row_of(5, GP_JOBS_RUNNING, 1));
    gp_jobs_begin(jobs, 6);
    cancel(5);
    persisted();
    CHECK(seen(GP_JOBS_TERM) != NULL); /* no process is known yet */
    now_ms += 9000;
    step((gp_jobs_event){ .kind = GP_JOBS_EVENT_ADOPTED, .job = 5 });
    CHECK(seen(GP_JOBS_TERM) != NULL);
    now_ms += 9000;
    step((gp_jobs_event){ .kind = GP_JOBS_EVENT_TICK });
    CHECK(seen(GP_JOBS_KILL) == NULL);
    end();
}

TEST(running_job_that_is_found_during_a_shutdown_gets_sigterm)
{
    begin_with(gp_jobs_config_default());
    load(row_of(5, GP_JOBS_RUNNING, 1));
    gp_jobs_begin(jobs, 6);
    step((gp_jobs_event){ .kind = GP_JOBS_EVENT_STOP }); /* no process is known yet */
    now_ms += 1500;
    step((gp_jobs_event){ .kind = GP_JOBS_EVENT_ADOPTED, .job = 5 });
    CHECK(seen(GP_JOBS_TERM) != NULL);
    now_ms += 1500;
    step((gp_jobs_event){ .kind = GP_JOBS_EVENT_TICK });
    CHECK(seen(GP_JOBS_KILL) == NULL);
    end();
}

TEST(job_ids_are_never_reused)
{
    begin_with(gp_jobs_config_default());
    load(row_of(4, GP_JOBS_DONE, 1));
    gp_jobs_begin(jobs, 40);
    submit_as(1, 0);
    CHECK_INT(40, seen(GP_JOBS_INSERT)->id);
    end();
}

TEST(invalid_rows_are_refused)
{
    gp_jobs_job row = row_of(4, GP_JOBS_STARTING, 1);
    gp_error err;

    begin_with(gp_jobs_config_default());
    CHECK_STATUS(GP_ECORRUPT, gp_jobs_load(jobs, &row, &err));
    load(row_of(5, GP_JOBS_QUEUED, 0));
    row = row_of(5, GP_JOBS_QUEUED, 0);
    CHECK_STATUS(GP_ECORRUPT, gp_jobs_load(jobs, &row, &err));
    end();
}

TEST(journal_failure_refuses_all_requests_with_the_reason)
{
    begin(1);
    run_one(1);
    submit_as(2, 0);
    cancel(1);
    step((gp_jobs_event){
        .kind = GP_JOBS_EVENT_JOURNAL_FAILED, .status = GP_EIO, .text = "the disk is full" });
    CHECK_INT(GP_JOBS_ERROR, actions[0].kind);
    CHECK_CONTAINS(texts[0], "the disk is full");
    CHECK_INT(GP_JOBS_ERROR, actions[1].kind);
    CHECK(seen(GP_JOBS_BROKEN) != NULL);
    CHECK(gp_jobs_find(jobs, 2) == NULL);
    CHECK_INT(GP_JOBS_RUNNING, gp_jobs_find(jobs, 1)->durable);
    submit_as(3, 0);
    CHECK_CONTAINS(text_of(seen(GP_JOBS_ERROR)), "the disk is full");
    CHECK_INT(1, action_count);
    CHECK(gp_jobs_busy(jobs)); /* the running job continues */
    ended(1, 1, GP_JOBS_EXIT_CODE, 0);
    CHECK(!gp_jobs_busy(jobs));
    CHECK_INT(GP_JOBS_RUNNING, gp_jobs_find(jobs, 1)->durable);
    end();
}

TEST(journal_failure_drops_jobs_at_the_gate)
{
    begin(1);
    submit_as(1, 0);
    persisted();
    spawned(1, 1);
    step((gp_jobs_event){ .kind = GP_JOBS_EVENT_JOURNAL_FAILED, .status = GP_EIO, .text = "no" });
    CHECK(seen(GP_JOBS_DROP) != NULL);
    CHECK(seen(GP_JOBS_START) == NULL);
    CHECK(!gp_jobs_busy(jobs));
    end();
}

/* A sweep cannot start trials then; it continues in the next pool. */
TEST(shutdown_when_idle_does_not_wait_for_sweeps)
{
    begin(2);
    run_kind(1, GP_JOBS_SWEEP);
    run_kind(2, GP_JOBS_TRIAL);
    CHECK(gp_jobs_busy(jobs));
    step((gp_jobs_event){ .kind = GP_JOBS_EVENT_HOLD, .count = 1 });
    CHECK(gp_jobs_busy(jobs)); /* the trial */
    ended(2, 1, GP_JOBS_EXIT_CODE, 0);
    persisted();
    CHECK(!gp_jobs_busy(jobs));
    step((gp_jobs_event){ .kind = GP_JOBS_EVENT_STOP });
    CHECK(seen(GP_JOBS_TERM) != NULL);
    CHECK(gp_jobs_busy(jobs));
    ended(1, 1, GP_JOBS_EXIT_SIGNAL, 15);
    persisted();
    CHECK(!gp_jobs_busy(jobs));
    CHECK_INT(GP_JOBS_QUEUED, state_of(1));
    end();
}

TEST(pool_shutdown_stops_and_requeues_running_jobs)
{
    begin(2);
    run_one(1);
    submit_as(2, 0);
    persisted(); /* job 2 is being spawned */
    submit_as(3, 0);
    persisted();
    step((gp_jobs_event){ .kind = GP_JOBS_EVENT_STOP });
    CHECK(seen(GP_JOBS_TERM) != NULL);
    CHECK(seen(GP_JOBS_DROP) != NULL);
    now_ms += 2000;
    step((gp_jobs_event){ .kind = GP_JOBS_EVENT_TICK });
    CHECK(seen(GP_JOBS_KILL) != NULL);
    ended(1, 1, GP_JOBS_EXIT_SIGNAL, 9);
    CHECK(gp_jobs_busy(jobs));
    persisted();
    CHECK(!gp_jobs_busy(jobs));
    for (uint64_t job = 1; job <= 3; job++) {
        CHECK_INT(GP_JOBS_QUEUED, state_of(job));
        CHECK_INT(0, gp_jobs_find(jobs, job)->attempts);
    }
    end();
}

TEST(hold_lets_running_jobs_finish_and_starts_no_others)
{
    begin(1);
    run_one(1);
    submit_as(2, 0);
    persisted();
    step((gp_jobs_event){ .kind = GP_JOBS_EVENT_HOLD, .count = 1 });
    CHECK(gp_jobs_busy(jobs));
    ended(1, 1, GP_JOBS_EXIT_CODE, 0);
    CHECK(seen(GP_JOBS_START) == NULL);
    persisted();
    CHECK(!gp_jobs_busy(jobs));
    end();
}

/* Advance the time in steps, as for a scheduler that is not suspended. */
static void wait_ms(int64_t ms)
{
    for (; ms > 0; ms -= 500) {
        now_ms += 500;
        step((gp_jobs_event){ .kind = GP_JOBS_EVENT_TICK });
    }
}

TEST(finished_jobs_are_deleted_by_count_and_not_by_the_wall_clock)
{
    gp_jobs_config config = gp_jobs_config_default();

    config.finished_max = 2;
    config.repeat_ms = 0;
    begin_with(config);
    gp_jobs_begin(jobs, 1);
    for (uint64_t seq = 1; seq <= 3; seq++) {
        run_one(seq);
        ended(seq, 1, GP_JOBS_EXIT_CODE, 0);
        CHECK(seen(GP_JOBS_DELETE) == NULL);
        persisted();
    }
    REQUIRE(seen(GP_JOBS_DELETE) != NULL);
    CHECK_INT(1, seen(GP_JOBS_DELETE)->id);
    CHECK(gp_jobs_find(jobs, 1) == NULL && gp_jobs_find(jobs, 2) != NULL);
    clock_ms += 100ll * 365 * 24 * 3600 * 1000;
    now_ms += 60000;
    step((gp_jobs_event){ .kind = GP_JOBS_EVENT_TICK });
    CHECK(gp_jobs_find(jobs, 2) != NULL && gp_jobs_find(jobs, 3) != NULL);
    end();
}

TEST(ended_trials_do_not_push_out_other_jobs)
{
    gp_jobs_config config = gp_jobs_config_default();

    config.finished_max = 2;
    config.trials_max = 3;
    config.repeat_ms = 0;
    begin_with(config);
    gp_jobs_begin(jobs, 1);
    for (uint64_t seq = 1; seq <= 12; seq++) {
        run_kind(seq, seq == 1 ? GP_JOBS_SWEEP : seq == 2 ? GP_JOBS_ORDINARY : GP_JOBS_TRIAL);
        ended(seq, 1, GP_JOBS_EXIT_CODE, 0);
        persisted();
    }
    CHECK(gp_jobs_find(jobs, 1) != NULL && gp_jobs_find(jobs, 2) != NULL);
    CHECK(gp_jobs_find(jobs, 9) == NULL && gp_jobs_find(jobs, 10) != NULL);
    CHECK_INT(5, gp_jobs_count(jobs, GP_JOBS_DONE));
    end();
}

TEST(job_is_kept_while_its_submit_may_be_repeated)
{
    gp_jobs_config config = gp_jobs_config_default();

    config.finished_max = 0;
    config.repeat_ms = 10000;
    begin_with(config);
    gp_jobs_begin(jobs, 1);
    run_one(1);
    ended(1, 1, GP_JOBS_EXIT_CODE, 0);
    persisted();
    clock_ms += 400ll * 24 * 3600 * 1000; /* the wall clock jumps; the monotonic clock decides */
    wait_ms(9000);
    submit_as(1, 0);
    CHECK_INT(1, seen(GP_JOBS_ACCEPTED)->id);
    CHECK(seen(GP_JOBS_ACCEPTED)->known);
    now_ms += 60000; /* suspended for a minute: messages sent meanwhile are read only now */
    step((gp_jobs_event){ .kind = GP_JOBS_EVENT_TICK });
    CHECK(gp_jobs_find(jobs, 1) != NULL);
    wait_ms(11000);
    CHECK(gp_jobs_find(jobs, 1) == NULL);
    end();
}

TEST(submits_over_the_limit_are_refused_until_a_job_ends)
{
    gp_jobs_config config = gp_jobs_config_default();

    config.unfinished_max = 2;
    begin_with(config);
    gp_jobs_begin(jobs, 1);
    run_one(1);
    submit_as(2, 0);
    submit_as(3, 0);
    CHECK_CONTAINS(text_of(seen(GP_JOBS_ERROR)), "2 jobs are queued or running");
    ended(1, 1, GP_JOBS_EXIT_CODE, 0);
    submit_as(3, 0);
    CHECK(seen(GP_JOBS_INSERT) != NULL);
    end();
}

TEST(large_job_lists_are_ordered_in_both_directions)
{
    gp_jobs_config config = gp_jobs_config_default();
    uint64_t previous = 0;
    uint32_t count = 0;

    config.capacity = 0;
    begin_with(config);
    for (uint64_t id = 1; id <= 20000; id++)
        load(row_of(id, GP_JOBS_QUEUED, 0));
    gp_jobs_begin(jobs, 20001);
    for (const gp_jobs_job *job = gp_jobs_after(jobs, 0); job != NULL; job = gp_jobs_after(jobs, job->id)) {
        CHECK(job->id > previous);
        previous = job->id;
        count++;
    }
    CHECK_INT(20000, count);
    CHECK_INT(20000, gp_jobs_before(jobs, 0)->id);
    CHECK_INT(4, gp_jobs_before(jobs, 5)->id);
    CHECK(gp_jobs_before(jobs, 1) == NULL);
    end();
}

static long resident_kib(void)
{
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");

    if (file == NULL || fscanf(file, "%*d %ld", &pages) != 1)
        abort();
    fclose(file);
    return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

/* Memory for 100,000 jobs is reserved, but only used pages count. */
TEST(thousand_jobs_use_less_than_one_mebibyte)
{
    gp_jobs_config config = gp_jobs_config_default();

    if (GP_SANITIZED)
        SKIP("memory usage differs under a sanitizer");
    begin_with(config);
    long before = resident_kib();

    for (uint64_t id = 1; id <= 1000; id++) {
        gp_jobs_job row = row_of(id, GP_JOBS_DONE, 1);

        for (int i = 0; i < 16; i++) /* each client has a distinct id */
            row.submitter[i] = (uint8_t)((id * 0x9e3779b97f4a7c15ull) >> (3 * i + 8));
        load(row);
    }
    gp_jobs_begin(jobs, 1001);
    long taken = resident_kib() - before;

    printf("     %ld KiB\n", taken);
    CHECK(taken < 1024);
    end();
}

TEST(failed_allocations_do_not_leak)
{
    gp_jobs_config config = gp_jobs_config_default();
    gp_error err;

    CHECK_EVERY_ALLOCATION(gp_jobs_new(&jobs, &config, collect, NULL, &err), end());
}
