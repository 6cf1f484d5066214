/* test_dispatch.c: the pure dispatch core on simulated workers. tests/sim runs it under millions of
 * faults. */
#include "client/team/dispatch.h"
#include "tests/gp_test.h"

enum { WORKERS_MAX = 8, RING = 64, MS = 1000000 };

typedef struct world_worker {
    bool up;
    team_unit *ring[RING]; /* in order; NULL: revoked */
    uint32_t count;
    bool begun;       /* ring[0] is running */
    uint32_t room;    /* records that fit */
    uint64_t stopped; /* id of the call asked to stop */
    bool replace;
    bool answered; /* the running call has ended, but its answer has not been processed */
} world_worker;

/* A dispatcher with simulated workers and a simulated clock. */
typedef struct world {
    dispatch *d;
    world_worker workers[WORKERS_MAX];
    uint32_t size;
    int64_t now;
    uint64_t id;
} world;

static bool world_send(void *context, uint32_t worker, team_unit *unit)
{
    world *w = context;
    world_worker *to = &w->workers[worker - 1];

    if (!to->up || to->count >= to->room)
        return false;
    to->ring[to->count++] = unit;
    return true;
}

static bool world_revoke(void *context, uint32_t worker, team_unit *unit)
{
    world *w = context;
    world_worker *from = &w->workers[worker - 1];

    for (uint32_t i = from->begun ? 1 : 0; i < from->count; i++)
        if (from->ring[i] == unit) {
            memmove(&from->ring[i], &from->ring[i + 1], (from->count - i - 1) * sizeof(*from->ring));
            from->count--;
            return true;
        }
    return false;
}

static void world_stop(void *context, uint32_t worker, team_unit *unit)
{
    ((world *)context)->workers[worker - 1].stopped = unit->call.id;
}

static bool world_replace(void *context, uint32_t worker, team_unit *unit)
{
    world_worker *doomed = &((world *)context)->workers[worker - 1];

    (void)unit;
    doomed->replace = !doomed->answered;
    return doomed->replace;
}

/* Classes of calls that need a kind of device. */
enum { NEEDS_CPU = 1, NEEDS_GPU };

static void world_begin(world *w, uint32_t workers, uint64_t gpus)
{
    gp_error err;
    dispatch_hooks hooks = { world_send, world_revoke, world_stop, world_replace, w };

    *w = (world){ .size = workers, .now = 1000 * (int64_t)MS };
    if (dispatch_new(&w->d, &hooks, workers, workers, &err) != GP_OK)
        abort();
    CHECK_STATUS(GP_OK, dispatch_set_class(w->d, NEEDS_CPU, ~gpus, &err));
    CHECK_STATUS(GP_OK, dispatch_set_class(w->d, NEEDS_GPU, gpus, &err));
    for (uint32_t i = 1; i <= workers; i++) {
        w->workers[i - 1] = (world_worker){ .up = true, .room = RING };
        dispatch_worker_up(w->d, i, w->now);
    }
}

static team_unit *unit_new(world *w)
{
    team_unit *unit = gp_calloc(1, sizeof(*unit));

    unit->call.id = ++w->id;
    unit->call.kind = GP_CALL_RUN;
    unit->call.function = 1;
    unit->attempts_max = 3;
    unit->grace_ms = DISPATCH_GRACE_MS;
    return unit;
}

static team_unit *submit(world *w, team_unit *unit)
{
    gp_error err;

    CHECK_STATUS(GP_OK, dispatch_submit(w->d, unit, 0, &err));
    dispatch_fill(w->d, w->now);
    return unit;
}

/* End a worker's running call with `status`. Return the unit if this completed it, else NULL. */
static team_unit *answer(world *w, uint32_t worker, gp_status status, int64_t ran_ns)
{
    world_worker *from = &w->workers[worker - 1];
    team_unit *unit = from->ring[0], *ended = NULL;

    memmove(&from->ring[0], &from->ring[1], (from->count - 1) * sizeof(*from->ring));
    from->count--;
    from->begun = false;
    if (dispatch_answered(w->d, worker, unit->call.id, status, ran_ns, w->now, &ended) != GP_OK)
        return NULL;
    dispatch_settle(w->d, ended, status);
    return ended;
}

static void let_begin(world *w, uint32_t worker)
{
    if (w->workers[worker - 1].count > 0)
        w->workers[worker - 1].begun = true;
}

static void death(world *w, uint32_t worker)
{
    dispatch_worker_down(w->d, worker, w->now);
    w->workers[worker - 1] = (world_worker){ .room = RING };
}

/* ---- one thing at a time ---- */

TEST(calls_run_by_priority_then_by_submission)
{
    static const int16_t priorities[] = { 0, 5, -1000, 5, 1000, 0 };
    static const int order[] = { 4, 1, 3, 0, 5, 2 };
    team_unit *units[6];
    world w;

    world_begin(&w, 1, 0);
    w.workers[0].room = 0; /* all calls wait */
    for (int i = 0; i < 6; i++) {
        units[i] = unit_new(&w);
        units[i]->priority = priorities[i];
        submit(&w, units[i]);
    }
    dispatch_worker_up(w.d, 1, w.now);
    w.workers[0].room = RING;
    for (int i = 0; i < 6; i++) {
        dispatch_fill(w.d, w.now);
        let_begin(&w, 1);
        team_unit *ended = answer(&w, 1, GP_OK, 5 * MS);

        CHECK(ended == units[order[i]]);
    }
    for (int i = 0; i < 6; i++)
        gp_free(units[i]);
    dispatch_free(w.d);
}

TEST(short_calls_are_prefetched_and_long_calls_two_at_a_time)
{
    world w;

    world_begin(&w, 1, 0);
    for (int i = 0; i < 200; i++)
        submit(&w, unit_new(&w));
    CHECK_INT(2, w.workers[0].count); /* the duration is still unknown */
    for (int i = 0; i < 2; i++) {
        let_begin(&w, 1);
        gp_free(answer(&w, 1, GP_OK, DISPATCH_FILL_NS / 40));
        dispatch_fill(w.d, w.now);
    }
    CHECK_INT(40, w.workers[0].count);
    for (int i = 0; i < 60; i++) {
        let_begin(&w, 1);
        gp_free(answer(&w, 1, GP_OK, 2 * DISPATCH_FILL_NS));
        dispatch_fill(w.d, w.now);
    }
    CHECK_INT(2, w.workers[0].count); /* the expected duration is now long */
    dispatch_over_all(w.d, GP_ECANCELED);
    for (team_unit *unit; (unit = dispatch_next_over(w.d)) != NULL;)
        gp_free(unit);
    dispatch_free(w.d);
}

TEST(idle_workers_take_calls_queued_behind_a_long_one)
{
    team_unit *units[3];
    world w;

    world_begin(&w, 2, 0);
    for (int i = 0; i < 3; i++)
        units[i] = submit(&w, unit_new(&w));
    CHECK_INT(2, w.workers[0].count);
    CHECK_INT(1, w.workers[1].count);
    let_begin(&w, 1);
    let_begin(&w, 2);
    CHECK(answer(&w, 2, GP_OK, MS) == units[1]);
    dispatch_fill(w.d, w.now); /* the third call is revoked and sent to the idle worker */
    CHECK_INT(1, w.workers[0].count);
    CHECK(w.workers[1].count == 1 && w.workers[1].ring[0] == units[2]);
    CHECK_INT(1, units[2]->attempts);
    CHECK_INT(1, dispatch_get_counts(w.d)->stolen);
    answer(&w, 1, GP_OK, MS);
    answer(&w, 2, GP_OK, MS);
    for (int i = 0; i < 3; i++)
        gp_free(units[i]);
    dispatch_free(w.d);
}

TEST(a_free_worker_away_from_our_core_is_chosen)
{
    world w;

    world_begin(&w, 3, 0);
    dispatch_worker_near(w.d, 1, true);
    team_unit *unit = submit(&w, unit_new(&w));

    CHECK_INT(2, unit->worker);
    team_unit *other = submit(&w, unit_new(&w)), *last = submit(&w, unit_new(&w));

    CHECK_INT(3, other->worker);
    CHECK_INT(1, last->worker); /* sharing a core is better than waiting */
    for (uint32_t i = 1; i <= 3; i++)
        gp_free(answer(&w, i, GP_OK, 1));
    dispatch_free(w.d);
}

TEST(preferred_workers_and_required_resources_are_respected)
{
    world w;

    world_begin(&w, 3, 2); /* worker 2 has a GPU */
    team_unit *gpu = unit_new(&w), *cpu = unit_new(&w), *third = unit_new(&w), *third_too = unit_new(&w);

    gpu->needs = NEEDS_GPU;
    cpu->needs = NEEDS_CPU;
    third->wish = third_too->wish = 3;
    submit(&w, gpu);
    submit(&w, third);
    submit(&w, third_too);
    submit(&w, cpu);
    CHECK_INT(2, gpu->worker);
    CHECK_INT(1, cpu->worker);
    CHECK_INT(3, third->worker);
    CHECK_INT(3, third_too->worker);
    let_begin(&w, 3);
    gp_free(answer(&w, 1, GP_OK, 1));
    w.now += 1000 * (int64_t)MS;
    dispatch_fill(w.d, w.now);
    CHECK_INT(0, w.workers[0].count);
    CHECK_INT(2, w.workers[2].count);
    gp_free(answer(&w, 2, GP_OK, 1));
    gp_free(answer(&w, 3, GP_OK, 1));
    gp_free(answer(&w, 3, GP_OK, 1));
    dispatch_free(w.d);
}

TEST(dependent_calls_wait_and_fail_with_their_predecessor)
{
    gp_error err;
    world w;

    world_begin(&w, 2, 0);
    team_unit *first = unit_new(&w), *second = unit_new(&w), *follower = unit_new(&w), *chain[100];

    first->wish = 2;
    CHECK_STATUS(GP_OK, dispatch_after(w.d, second, first, false, &err));
    CHECK_STATUS(GP_OK, dispatch_after(w.d, follower, first, true, &err));
    CHECK_STATUS(GP_OK, dispatch_after(w.d, follower, second, false, &err));
    submit(&w, first);
    submit(&w, second);
    submit(&w, follower);
    for (int i = 0; i < 100; i++) {
        chain[i] = unit_new(&w);
        CHECK_STATUS(GP_OK, dispatch_after(w.d, chain[i], i == 0 ? follower : chain[i - 1], false, &err));
        submit(&w, chain[i]);
    }
    CHECK_INT(UNIT_HELD, second->state);
    CHECK(answer(&w, 2, GP_OK, 1) == first);
    dispatch_fill(w.d, w.now);
    CHECK_INT(UNIT_SENT, second->state);
    CHECK_INT(UNIT_HELD, follower->state);
    CHECK(answer(&w, second->worker, GP_OK, 1) == second);
    dispatch_fill(w.d, w.now);
    CHECK_INT(2, follower->worker);
    CHECK(answer(&w, 2, GP_EIO, 1) == follower);
    for (int i = 0; i < 100; i++) {
        team_unit *over = dispatch_next_over(w.d);

        CHECK(over == chain[i]);
        CHECK_INT(GP_ECANCELED, over->status);
        CHECK(over->orphan);
        dispatch_settle(w.d, over, GP_ECANCELED);
    }
    CHECK(dispatch_next_over(w.d) == NULL);
    for (int i = 0; i < 100; i++)
        gp_free(chain[i]);
    gp_free(first);
    gp_free(second);
    gp_free(follower);
    dispatch_free(w.d);
}

TEST(worker_failure_counts_as_attempt_only_for_the_running_call)
{
    world w;

    world_begin(&w, 1, 0);
    team_unit *a = unit_new(&w), *b = unit_new(&w);

    a->retries_max = 1;
    a->attempts_max = 2;
    submit(&w, a);
    submit(&w, b);
    let_begin(&w, 1);
    CHECK(answer(&w, 1, GP_EIO, 1) == NULL);
    CHECK_INT(1, a->tries);
    dispatch_fill(w.d, w.now); /* b, a */
    death(&w, 1);              /* before either call started */
    CHECK_INT(0, a->attempts);
    CHECK_INT(0, b->attempts);
    w.workers[0].up = true;
    dispatch_worker_up(w.d, 1, w.now);
    dispatch_fill(w.d, w.now);
    CHECK(w.workers[0].ring[0] == b); /* the order is unchanged */
    let_begin(&w, 1);
    death(&w, 1);
    CHECK_INT(1, b->attempts);
    CHECK_INT(1, dispatch_get_counts(w.d)->rerun);
    for (int i = 0; i < 2; i++) {
        w.workers[0].up = true;
        dispatch_worker_up(w.d, 1, w.now);
        dispatch_fill(w.d, w.now);
        let_begin(&w, 1);
        death(&w, 1);
    }
    CHECK(dispatch_dying(w.d, 1) == b); /* this call was running in three worker failures */
    dispatch_over(w.d, b, GP_EPEER);
    CHECK(dispatch_dying(w.d, 1) == NULL);
    CHECK(dispatch_next_over(w.d) == b);
    CHECK_INT(3, b->attempts);
    w.workers[0].up = true;
    dispatch_worker_up(w.d, 1, w.now);
    dispatch_fill(w.d, w.now);
    CHECK(answer(&w, 1, GP_EIO, 1) == a); /* its retries are used up */
    gp_free(a);
    gp_free(b);
    dispatch_free(w.d);
}

TEST(deadlines_end_waiting_calls_and_stop_running_ones)
{
    gp_error err;
    world w;

    world_begin(&w, 1, 0);
    team_unit *running = unit_new(&w), *inside = unit_new(&w), *waits = unit_new(&w);

    running->timeout_ms = 50;
    submit(&w, running);
    let_begin(&w, 1);
    CHECK_STATUS(GP_OK, dispatch_submit(w.d, inside, w.now + 20 * MS, &err));
    CHECK_STATUS(GP_OK, dispatch_submit(w.d, waits, w.now + 10 * MS, &err));
    dispatch_fill(w.d, w.now);
    CHECK_INT(UNIT_SENT, inside->state);
    CHECK_INT(UNIT_READY, waits->state);
    CHECK_INT(w.now + 10 * MS, dispatch_next_ns(w.d, w.now));
    w.now += 30 * MS;
    dispatch_tick(w.d, w.now);
    CHECK(dispatch_next_over(w.d) == waits && waits->status == GP_ETIMEDOUT);
    CHECK(dispatch_next_over(w.d) == inside && inside->status == GP_ETIMEDOUT);
    CHECK_INT(1, w.workers[0].count);
    w.now += 21 * MS;
    dispatch_tick(w.d, w.now);
    CHECK_INT(running->call.id, w.workers[0].stopped);
    CHECK(running->over_limit && !w.workers[0].replace);

    /* the clock jumped: this host may have been suspended, so the worker gets half the grace period
     * again */
    w.now += DISPATCH_GRACE_MS * (int64_t)MS + DISPATCH_LATE_NS + 1;
    dispatch_tick(w.d, w.now);
    CHECK(!w.workers[0].replace);
    CHECK_INT(w.now + DISPATCH_GRACE_MS * (int64_t)MS / 2, dispatch_next_ns(w.d, w.now));
    w.now += DISPATCH_GRACE_MS * (int64_t)MS / 2;
    dispatch_tick(w.d, w.now);
    CHECK(w.workers[0].replace);
    death(&w, 1);
    CHECK(dispatch_next_over(w.d) == running && running->status == GP_ETIMELIMIT);
    CHECK_INT(INT64_MAX, dispatch_next_ns(w.d, w.now));
    gp_free(running);
    gp_free(inside);
    gp_free(waits);
    dispatch_free(w.d);
}

TEST(time_limit_of_a_call_that_has_not_started_does_not_end_it)
{
    gp_error err;
    world w;

    world_begin(&w, 1, 0);
    team_unit *first = unit_new(&w), *limited = unit_new(&w);

    first->timeout_ms = limited->timeout_ms = 50;
    submit(&w, first); /* the worker is suspended: it does not start the call */
    w.now += 51 * MS;
    dispatch_tick(w.d, w.now);
    dispatch_fill(w.d, w.now);
    CHECK_INT(UNIT_SENT, first->state);
    CHECK(!first->over_limit && dispatch_next_over(w.d) == NULL);
    CHECK_INT(1, first->attempts);
    let_begin(&w, 1);
    w.now += 51 * MS;
    dispatch_tick(w.d, w.now);
    CHECK(first->over_limit);
    CHECK_INT(first->call.id, w.workers[0].stopped);
    CHECK(answer(&w, 1, GP_ECANCELED, 51 * MS) == first);

    /* its time limit to start has passed as well */
    CHECK_STATUS(GP_OK, dispatch_submit(w.d, limited, w.now + 50 * MS, &err));
    dispatch_fill(w.d, w.now);
    w.now += 51 * MS;
    dispatch_tick(w.d, w.now);
    CHECK(dispatch_next_over(w.d) == limited && limited->status == GP_ETIMEDOUT);
    CHECK_INT(0, limited->attempts);
    gp_free(first);
    gp_free(limited);
    dispatch_free(w.d);
}

/* Submit a call with a deadline to start and a time limit, both from now. */
static team_unit *submit_limited(world *w, int64_t start_ms, uint32_t timeout_ms)
{
    team_unit *unit = unit_new(w);
    gp_error err;

    unit->timeout_ms = timeout_ms;
    CHECK_STATUS(GP_OK, dispatch_submit(w->d, unit, w->now + start_ms * MS, &err));
    dispatch_fill(w->d, w->now);
    CHECK_INT(UNIT_SENT, unit->state);
    return unit;
}

static void pass_ms(world *w, int64_t ms)
{
    w->now += ms * MS;
    dispatch_tick(w->d, w->now);
    dispatch_fill(w->d, w->now);
}

TEST(deadline_to_start_holds_for_calls_with_a_time_limit)
{
    world w;

    world_begin(&w, 1, 0);

    /* the worker is suspended: it does not start the call */
    team_unit *brief = submit_limited(&w, 20, 50);

    pass_ms(&w, 21);
    CHECK(dispatch_next_over(w.d) == brief && brief->status == GP_ETIMEDOUT);
    team_unit *patient = submit_limited(&w, 80, 50);

    pass_ms(&w, 51);
    CHECK_INT(UNIT_SENT, patient->state);
    pass_ms(&w, 30);
    CHECK(dispatch_next_over(w.d) == patient && patient->status == GP_ETIMEDOUT);
    CHECK_INT(0, patient->attempts);

    /* after the start, only the time limit counts */
    team_unit *started = submit_limited(&w, 20, 50);

    let_begin(&w, 1);
    pass_ms(&w, 21);
    CHECK_INT(UNIT_SENT, started->state);
    CHECK(!started->canceled);
    CHECK_INT(w.now + 29 * MS, dispatch_next_ns(w.d, w.now));
    pass_ms(&w, 30);
    CHECK(started->over_limit);
    CHECK(answer(&w, 1, GP_ECANCELED, 51 * MS) == started);

    /* the worker fails before it starts the call */
    team_unit *unlucky = submit_limited(&w, 20, 50);

    death(&w, 1);
    CHECK_INT(UNIT_READY, unlucky->state);
    pass_ms(&w, 21);
    CHECK(dispatch_next_over(w.d) == unlucky && unlucky->status == GP_ETIMEDOUT);
    gp_free(brief);
    gp_free(patient);
    gp_free(started);
    gp_free(unlucky);
    dispatch_free(w.d);
}

TEST(a_call_that_never_started_counts_no_attempt_when_all_calls_end)
{
    world w;

    world_begin(&w, 1, 0);
    team_unit *running = submit(&w, unit_new(&w)), *inside;

    let_begin(&w, 1);
    inside = submit(&w, unit_new(&w));
    CHECK_INT(UNIT_SENT, inside->state);
    dispatch_over_all(w.d, GP_ECANCELED);
    CHECK(dispatch_next_over(w.d) == running && running->attempts == 1);
    CHECK(dispatch_next_over(w.d) == inside && inside->attempts == 0);
    gp_free(running);
    gp_free(inside);
    dispatch_free(w.d);
}

TEST(stale_calls_end_with_their_worker_and_urgent_calls_run_first)
{
    world w;

    world_begin(&w, 1, 0);
    w.workers[0].room = 0;
    team_unit *usual = submit(&w, unit_new(&w)), *first = unit_new(&w), *second = unit_new(&w);

    first->urgent = second->urgent = true;
    first->loss = second->loss = TEAM_LOSS_STALE;
    first->wish = second->wish = 1;
    submit(&w, first);
    submit(&w, second);
    w.workers[0].room = RING;
    dispatch_worker_up(w.d, 1, w.now);
    dispatch_fill(w.d, w.now);
    CHECK_INT(2, w.workers[0].count);
    CHECK(w.workers[0].ring[0] == first && w.workers[0].ring[1] == second);
    CHECK_INT(UNIT_READY, usual->state);
    death(&w, 1);
    for (int i = 0; i < 2; i++) {
        team_unit *over = dispatch_next_over(w.d);

        CHECK(over == first || over == second);
        CHECK_INT(GP_ESTALE, over->status);
    }
    CHECK_INT(UNIT_READY, usual->state);
    dispatch_over_all(w.d, GP_ECANCELED);
    CHECK(dispatch_next_over(w.d) == usual);
    gp_free(usual);
    gp_free(first);
    gp_free(second);
    dispatch_free(w.d);
}

/* Run a worker's next call for ran_ns and return it. */
static team_unit *run_next(world *w, uint32_t worker, int64_t ran_ns)
{
    dispatch_fill(w->d, w->now);
    let_begin(w, worker);
    w->now += ran_ns;
    return answer(w, worker, GP_OK, ran_ns);
}

TEST(urgent_call_overtakes_prefetched_calls)
{
    team_unit *usual[8], *urgent;
    world w;

    world_begin(&w, 1, 0);
    for (int i = 0; i < 8; i++)
        usual[i] = submit(&w, unit_new(&w));
    let_begin(&w, 1);
    CHECK_INT(2, w.workers[0].count);
    urgent = unit_new(&w);
    urgent->priority = 10;
    submit(&w, urgent);
    CHECK_INT(UNIT_READY, usual[1]->state);
    CHECK_INT(0, usual[1]->attempts);
    CHECK(answer(&w, 1, GP_OK, 500 * MS) == usual[0]);
    CHECK(run_next(&w, 1, 500 * MS) == urgent);
    for (int i = 1; i < 8; i++) /* the others keep the order */
        CHECK(run_next(&w, 1, 500 * MS) == usual[i]);
    for (int i = 0; i < 8; i++)
        gp_free(usual[i]);
    gp_free(urgent);
    dispatch_free(w.d);
}

TEST(no_call_of_lower_priority_starts_while_an_urgent_call_waits)
{
    team_unit *urgent, *ended;
    world w;
    int before = 0;

    world_begin(&w, 2, 0);
    for (int i = 0; i < 8; i++)
        submit(&w, unit_new(&w));
    let_begin(&w, 1);
    let_begin(&w, 2);
    urgent = unit_new(&w);
    urgent->priority = 1;
    submit(&w, urgent); /* waits for the running call on either worker */

    uint32_t behind = urgent->state == UNIT_SENT ? urgent->worker : 1, other = 3 - behind;

    gp_free(answer(&w, other, GP_OK, MS));
    dispatch_fill(w.d, w.now);
    CHECK_INT(UNIT_SENT, urgent->state);
    CHECK(w.workers[other - 1].ring[0] == urgent);
    CHECK_INT(1, urgent->attempts);
    gp_free(answer(&w, behind, GP_OK, MS));
    for (int i = 0; i < 6; i++) {
        ended = run_next(&w, behind, MS);
        before += ended == NULL;
        gp_free(ended);
    }
    CHECK_INT(0, before);
    CHECK(run_next(&w, other, MS) == urgent);
    gp_free(urgent);
    dispatch_free(w.d);
}

TEST(calls_queued_behind_an_unexpectedly_long_call_move)
{
    team_unit *units[4];
    world w;

    world_begin(&w, 2, 0);
    for (int i = 0; i < 4; i++)
        units[i] = submit(&w, unit_new(&w));
    let_begin(&w, 1);
    let_begin(&w, 2);
    CHECK_INT(2, w.workers[0].count);
    CHECK_INT(w.now + DISPATCH_SOLO_NS, dispatch_next_ns(w.d, w.now));
    w.now += DISPATCH_SOLO_NS;
    dispatch_fill(w.d, w.now);
    CHECK_INT(1, w.workers[0].count);
    CHECK_INT(1, w.workers[1].count);
    CHECK_INT(INT64_MAX, dispatch_next_ns(w.d, w.now));
    CHECK(answer(&w, 2, GP_OK, MS) == units[1]);
    CHECK(run_next(&w, 2, MS) == units[2]);
    CHECK(run_next(&w, 2, MS) == units[3]); /* the first call is still running */
    CHECK(answer(&w, 1, GP_OK, 100 * MS) == units[0]);
    for (int i = 0; i < 4; i++)
        gp_free(units[i]);
    dispatch_free(w.d);
}

TEST(a_worker_that_leaves_runs_only_the_calls_that_name_it)
{
    world w;
    team_unit *units[6];

    world_begin(&w, 2, 0);
    for (int i = 0; i < 4; i++)
        units[i] = submit(&w, unit_new(&w));
    let_begin(&w, 2);
    for (int i = 4; i < 6; i++) {
        units[i] = unit_new(&w);
        units[i]->wish = 2;
        submit(&w, units[i]);
    }
    dispatch_leave(w.d, 2, true);
    dispatch_fill(w.d, w.now);
    CHECK(!dispatch_worker_done(w.d, 2));

    /* the running call, and the two that name the worker */
    for (int i = 0; i < 3; i++) {
        team_unit *first = NULL;

        CHECK(dispatch_sent(w.d, 2, &first) > 0);
        CHECK(i == 0 || first->wish == 2);
        team_unit *ended = answer(&w, 2, GP_OK, MS);

        CHECK(ended != NULL);
        gp_free(ended);
        dispatch_fill(w.d, w.now);
    }
    CHECK(dispatch_worker_done(w.d, 2));
    dispatch_set_workers(w.d, 1);
    for (int i = 0; i < 3; i++) {
        team_unit *ended = answer(&w, 1, GP_OK, MS);

        CHECK(ended != NULL);
        gp_free(ended);
        dispatch_fill(w.d, w.now);
    }
    CHECK_INT(0, dispatch_get_counts(w.d)->live);
    dispatch_free(w.d);
}

static team_unit *submit_class(world *w, uint32_t needs)
{
    team_unit *unit = unit_new(w);

    unit->needs = (uint8_t)needs;
    return submit(w, unit);
}

TEST(calls_move_to_the_idle_worker_that_meets_their_needs)
{
    world w;

    world_begin(&w, 3, 6); /* workers 2 and 3 have a GPU */
    for (uint32_t i = 0; i < 4; i++)
        submit_class(&w, NEEDS_GPU);
    for (uint32_t i = 2; i <= 3; i++) {
        CHECK_INT(2, w.workers[i - 1].count);
        let_begin(&w, i);
    }
    gp_free(answer(&w, 2, GP_OK, 50 * (int64_t)MS));
    gp_free(answer(&w, 2, GP_OK, 50 * (int64_t)MS));
    w.now += 10 * (int64_t)MS;
    dispatch_fill(w.d, w.now); /* worker 1 is idle too, and comes first */
    CHECK_INT(0, w.workers[0].count);
    CHECK_INT(1, w.workers[1].count);
    CHECK_INT(1, w.workers[2].count);
    CHECK_INT(1, dispatch_get_counts(w.d)->stolen);
    for (uint32_t i = 2; i <= 3; i++)
        gp_free(answer(&w, i, GP_OK, 1));
    CHECK(!dispatch_class_used(w.d, NEEDS_GPU));
    dispatch_free(w.d);
}

TEST(call_before_one_that_cannot_move_is_moved)
{
    world w;

    world_begin(&w, 2, 2);
    submit(&w, unit_new(&w));
    gp_free(answer(&w, 1, GP_OK, 1000)); /* calls are short from here on */
    for (int i = 0; i < 2; i++)
        submit_class(&w, NEEDS_CPU);
    submit_class(&w, NEEDS_GPU);
    team_unit *any = submit(&w, unit_new(&w));

    submit_class(&w, NEEDS_GPU);
    let_begin(&w, 2);
    CHECK_INT(2, any->worker);
    CHECK_INT(3, w.workers[1].count);
    for (int i = 0; i < 2; i++)
        gp_free(answer(&w, 1, GP_OK, 1000));
    w.now += MS;
    dispatch_fill(w.d, w.now);
    CHECK_INT(1, w.workers[0].count);
    CHECK_INT(1, any->worker);
    gp_free(answer(&w, 1, GP_OK, 1));
    for (int i = 0; i < 2; i++)
        gp_free(answer(&w, 2, GP_OK, 1));
    CHECK_INT(0, dispatch_get_counts(w.d)->live);
    dispatch_free(w.d);
}

TEST(call_stays_behind_a_long_call_if_no_other_worker_meets_its_needs)
{
    world w;

    world_begin(&w, 2, 2);
    submit_class(&w, NEEDS_GPU);
    let_begin(&w, 2);
    submit_class(&w, NEEDS_GPU);
    w.now += DISPATCH_SOLO_NS;
    dispatch_fill(w.d, w.now);
    CHECK_INT(2, w.workers[1].count);
    CHECK_INT(INT64_MAX, dispatch_next_ns(w.d, w.now));
    CHECK_STATUS(GP_OK, dispatch_set_class(w.d, NEEDS_GPU, 3, NULL)); /* worker 1 gets a GPU */
    dispatch_fill(w.d, w.now);
    CHECK_INT(1, w.workers[0].count);
    gp_free(answer(&w, 1, GP_OK, 1));
    gp_free(answer(&w, 2, GP_OK, 1));
    dispatch_free(w.d);
}

TEST(calls_without_a_worker_that_meets_their_needs_wait_for_one)
{
    world w;

    world_begin(&w, 1, 0);
    team_unit *unit = submit_class(&w, NEEDS_GPU);

    CHECK_INT(0, w.workers[0].count);
    CHECK_INT(1, dispatch_get_counts(w.d)->ready);
    CHECK(dispatch_class_used(w.d, NEEDS_GPU));
    CHECK_STATUS(GP_OK, dispatch_set_class(w.d, NEEDS_GPU, 1, NULL));
    dispatch_fill(w.d, w.now);
    CHECK_INT(1, unit->worker);
    dispatch_hold_class(w.d, NEEDS_GPU);
    gp_free(answer(&w, 1, GP_OK, 1));
    CHECK(dispatch_class_used(w.d, NEEDS_GPU));
    dispatch_release_class(w.d, NEEDS_GPU);
    CHECK(!dispatch_class_used(w.d, NEEDS_GPU));
    dispatch_free(w.d);
}

TEST(a_worker_that_leaves_first_runs_the_calls_whose_needs_only_it_meets)
{
    team_unit *any;
    world w;

    world_begin(&w, 2, 2);
    dispatch_leave(w.d, 2, true);
    submit_class(&w, NEEDS_GPU);
    submit_class(&w, NEEDS_GPU);
    any = submit(&w, unit_new(&w));
    CHECK_INT(1, any->worker);
    for (int i = 0; i < 2; i++) {
        CHECK(!dispatch_worker_done(w.d, 2));
        REQUIRE(w.workers[1].count > 0);
        gp_free(answer(&w, 2, GP_OK, 1));
        dispatch_fill(w.d, w.now);
    }
    CHECK(dispatch_worker_done(w.d, 2));
    gp_free(answer(&w, 1, GP_OK, 1));
    dispatch_free(w.d);
}

TEST(a_worker_that_leaves_waits_for_dependent_calls_whose_needs_only_it_meets)
{
    world w;

    world_begin(&w, 2, 2);
    team_unit *before = submit(&w, unit_new(&w)), *dependent = unit_new(&w);

    CHECK_INT(1, before->worker);
    dependent->needs = NEEDS_GPU;
    CHECK_STATUS(GP_OK, dispatch_after(w.d, dependent, before, false, NULL));
    submit(&w, dependent);
    dispatch_leave(w.d, 2, true);
    CHECK(!dispatch_worker_done(w.d, 2));
    gp_free(answer(&w, 1, GP_OK, 1));
    dispatch_fill(w.d, w.now);
    CHECK_INT(2, dependent->worker);
    gp_free(answer(&w, 2, GP_OK, 1));
    CHECK(dispatch_worker_done(w.d, 2));

    /* a loop that has no call at present */
    dispatch_hold_class(w.d, NEEDS_GPU);
    CHECK(!dispatch_worker_done(w.d, 2));
    dispatch_release_class(w.d, NEEDS_GPU);
    CHECK(dispatch_worker_done(w.d, 2));
    dispatch_hold_class(w.d, NEEDS_CPU); /* worker 1 can run these, and stays */
    CHECK(dispatch_worker_done(w.d, 2));
    dispatch_release_class(w.d, NEEDS_CPU);
    dispatch_free(w.d);
}

TEST(calls_whose_needs_no_worker_meets_any_more_can_be_ended)
{
    team_unit *units[4], *over;
    world w;

    world_begin(&w, 2, 2);
    for (int i = 0; i < 3; i++)
        units[i] = submit_class(&w, NEEDS_GPU);
    let_begin(&w, 2);
    units[3] = unit_new(&w);
    units[3]->needs = NEEDS_GPU;
    CHECK_STATUS(GP_OK, dispatch_after(w.d, units[3], units[0], false, NULL));
    submit(&w, units[3]);
    CHECK(!dispatch_class_unmet(w.d, NEEDS_GPU));
    CHECK(!dispatch_class_unmet(w.d, NEEDS_CPU)); /* not in use */

    /* worker 2 is replaced by one without a GPU, and a worker with one may join later */
    death(&w, 2);
    CHECK_STATUS(GP_OK, dispatch_set_class(w.d, NEEDS_GPU, 4, NULL));
    CHECK(dispatch_class_unmet(w.d, NEEDS_GPU));
    dispatch_over_class(w.d, NEEDS_GPU, GP_ENODEV);
    for (int i = 0; i < 4; i++) {
        over = dispatch_next_over(w.d);
        REQUIRE(over != NULL);
        CHECK_INT(GP_ENODEV, over->status);
        dispatch_settle(w.d, over, GP_ENODEV);
    }
    for (int i = 0; i < 4; i++)
        gp_free(units[i]);
    CHECK(dispatch_next_over(w.d) == NULL);
    CHECK(!dispatch_class_unmet(w.d, NEEDS_GPU));
    CHECK_INT(0, dispatch_get_counts(w.d)->live);
    dispatch_free(w.d);
}

TEST(a_cancel_without_grace_replaces_the_worker_at_once)
{
    world w;

    world_begin(&w, 1, 0);
    team_unit *running = submit(&w, unit_new(&w));

    let_begin(&w, 1);
    dispatch_cancel(w.d, running, DISPATCH_GRACE_MS, w.now);
    CHECK_INT(running->call.id, w.workers[0].stopped);
    CHECK(!w.workers[0].replace);
    dispatch_cancel(w.d, running, 2 * DISPATCH_GRACE_MS, w.now); /* cannot extend the deadline */
    CHECK_INT(w.now + DISPATCH_GRACE_MS * (int64_t)MS, dispatch_next_ns(w.d, w.now));
    dispatch_cancel(w.d, running, 0, w.now);
    CHECK(w.workers[0].replace);
    death(&w, 1);
    CHECK(dispatch_next_over(w.d) == running && running->status == GP_ECANCELED);
    gp_free(running);
    dispatch_free(w.d);
}

TEST(calls_behind_a_canceled_one_never_start_on_the_worker_that_is_replaced)
{
    world w;

    world_begin(&w, 1, 0);
    team_unit *running = submit(&w, unit_new(&w)), *behind = unit_new(&w);

    let_begin(&w, 1);
    behind->attempts_max = 1;
    submit(&w, behind);
    CHECK_INT(UNIT_SENT, behind->state);

    /* The call has ended meanwhile: its worker stays. */
    w.workers[0].answered = true;
    dispatch_cancel(w.d, running, 0, w.now);
    CHECK(!w.workers[0].replace);
    CHECK(answer(&w, 1, GP_OK, MS) == running);
    dispatch_fill(w.d, w.now);
    CHECK_INT(UNIT_SENT, behind->state);
    w.workers[0].answered = false;

    /* It has not: the worker may get no other call before it fails. */
    team_unit *next = submit(&w, unit_new(&w));

    let_begin(&w, 1);
    dispatch_cancel(w.d, behind, 0, w.now);
    CHECK(w.workers[0].replace);
    CHECK_INT(UNIT_READY, next->state);
    CHECK_INT(1, w.workers[0].count);
    dispatch_fill(w.d, w.now);
    CHECK_INT(UNIT_READY, next->state);
    CHECK(answer(&w, 1, GP_ECANCELED, MS) == behind);
    dispatch_fill(w.d, w.now);
    CHECK_INT(UNIT_READY, next->state);
    death(&w, 1);
    w.workers[0].up = true;
    dispatch_worker_up(w.d, 1, w.now);
    dispatch_fill(w.d, w.now);
    CHECK_INT(UNIT_SENT, next->state);
    CHECK_INT(1, next->attempts);

    /* The scheduler ignores the request: it is repeated while the call runs, and afterwards the
     * worker gets calls again. */
    let_begin(&w, 1);
    dispatch_cancel(w.d, next, 0, w.now);
    CHECK(w.workers[0].replace);
    w.workers[0].replace = false;
    CHECK_INT(w.now + 2000 * MS, dispatch_next_ns(w.d, w.now));
    w.now += 2000 * MS;
    dispatch_tick(w.d, w.now);
    CHECK(w.workers[0].replace);
    CHECK(answer(&w, 1, GP_ECANCELED, 2000 * MS) == next);
    team_unit *last = submit(&w, unit_new(&w));

    CHECK_INT(UNIT_READY, last->state);
    w.now += 2000 * MS;
    dispatch_tick(w.d, w.now);
    dispatch_fill(w.d, w.now);
    CHECK_INT(UNIT_SENT, last->state);
    CHECK_INT(INT64_MAX, dispatch_next_ns(w.d, w.now));
    gp_free(running);
    gp_free(behind);
    gp_free(next);
    gp_free(last);
    dispatch_free(w.d);
}

TEST(team_reports_failed_allocations)
{
    dispatch_hooks hooks = { world_send, world_revoke, world_stop, world_replace, NULL };
    dispatch *d;
    gp_error err;

    CHECK_EVERY_ALLOCATION(dispatch_new(&d, &hooks, 2, 2, &err), dispatch_free(d));
}
