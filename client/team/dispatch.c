/* dispatch.c: implements dispatch.h, which describes the rules. The file is long on purpose: each
 * function moves units between the states of one machine, whose invariants span all functions. */
#include "client/team/dispatch.h"

#include <assert.h>

#include "common/base/memory/alloc.h"

enum { LONG_NS = DISPATCH_FILL_NS };

typedef struct lane { /* state of one worker */
    bool up, near, full;
    unit_list sent;   /* calls in the ring, in ring order */
    unit_list urgent; /* ready calls that precede all others */
    unit_list dying;
    uint32_t sent_count;
    double load_ns;   /* sum of the estimated run times in `sent` */
    int64_t since_ns; /* time at which the current first call became first */
} lane;

struct dispatch {
    dispatch_hooks hooks;
    uint32_t workers;
    uint64_t gpus;
    lane *lanes;        /* [workers] */
    unit_queue *queues; /* [QUEUE_WORKER + workers] */
    unit_timers timers;
    unit_list held, over;
    dispatch_counts counts;
    uint64_t turns;                          /* last sequence number given to a ready unit */
    uint64_t ranked;                         /* ready or sent units whose priority is not 0 */
    float run_ns[GP_TASK_FUNCTIONS_MAX + 1]; /* estimated run time by function number; 0: unknown */
};

enum { QUEUE_ANY, QUEUE_CPU, QUEUE_GPU, QUEUE_WORKER };

/* ---- queues ---- */

/* Return the queue for a ready unit: of its chosen worker, its device kind, or any worker. */
static unit_queue *queue_of(dispatch *d, const team_unit *unit)
{
    if (unit->wish != 0)
        return &d->queues[QUEUE_WORKER + unit->wish - 1];
    return &d->queues[unit->needs == GP_RESOURCES_GPU   ? QUEUE_GPU
                      : unit->needs == GP_RESOURCES_CPU ? QUEUE_CPU
                                                        : QUEUE_ANY];
}

/* Queue a unit. `front`: the unit was there before and keeps its position. */
static void ready_put(dispatch *d, team_unit *unit, bool front)
{
    unit->state = UNIT_READY;
    if (!front)
        unit->turn = ++d->turns;
    d->counts.ready++;
    d->ranked += unit->priority != 0;
    d->counts.urgent += unit->urgent;
    if (!unit->urgent) {
        unit_queue_put(queue_of(d, unit), unit, front);
        return;
    }
    unit_list *urgent = &d->lanes[unit->wish - 1].urgent;

    if (front)
        unit_list_prepend(urgent, unit);
    else
        unit_list_append(urgent, unit);
}

static void ready_remove(dispatch *d, team_unit *unit)
{
    d->counts.ready--;
    d->ranked -= unit->priority != 0;
    d->counts.urgent -= unit->urgent;
    if (unit->urgent)
        unit_list_remove(&d->lanes[unit->wish - 1].urgent, unit);
    else
        unit_queue_remove(queue_of(d, unit), unit);
}

/* Return the unit to send first: the one with higher priority, or else the older one. Either may be
 * NULL. */
static team_unit *better(team_unit *a, team_unit *b)
{
    if (a == NULL || b == NULL)
        return a == NULL ? b : a;
    if (a->priority != b->priority)
        return a->priority > b->priority ? a : b;
    return a->turn <= b->turn ? a : b;
}

static bool has_gpu(const dispatch *d, uint32_t worker)
{
    return (d->gpus >> (worker - 1) & 1) != 0;
}

/* Return the next ready unit that this worker can run; NULL: none. */
static team_unit *ready_for(const dispatch *d, uint32_t worker)
{
    const lane *l = &d->lanes[worker - 1];

    if (l->urgent.first != NULL)
        return l->urgent.first;
    team_unit *unit = better(unit_queue_first(&d->queues[QUEUE_ANY]),
                             unit_queue_first(&d->queues[has_gpu(d, worker) ? QUEUE_GPU : QUEUE_CPU]));

    return better(unit, unit_queue_first(&d->queues[QUEUE_WORKER + worker - 1]));
}

/* ---- creating ---- */

gp_status dispatch_new(dispatch **out, const dispatch_hooks *hooks, uint32_t workers, uint64_t gpus,
                       gp_error *err)
{
    dispatch *d = gp_calloc(1, sizeof(*d));

    assert(workers >= 1 && workers <= GP_MEMBERS_MAX);
    if (d != NULL) {
        d->hooks = *hooks;
        d->workers = workers;
        d->gpus = gpus;
        d->lanes = gp_calloc(workers, sizeof(*d->lanes));
        d->queues = gp_calloc(QUEUE_WORKER + workers, sizeof(*d->queues));
    }
    if (d == NULL || d->lanes == NULL || d->queues == NULL) {
        dispatch_free(d);
        return gp_fail(err, GP_ENOMEM, "no memory for the queues of %u workers", workers);
    }
    *out = d;
    return GP_OK;
}

void dispatch_free(dispatch *d)
{
    if (d == NULL)
        return;
    gp_free(d->lanes);
    gp_free(d->queues);
    gp_free(d->timers.at);
    gp_free(d);
}

/* ---- submitting and ending ---- */

gp_status dispatch_after(dispatch *d, team_unit *unit, team_unit *before, bool follow, gp_error *err)
{
    unit_edge *edge = gp_malloc(sizeof(*edge));

    (void)d;
    if (edge == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for a dependency");
    *edge = (unit_edge){ .next = before->edges, .unit = unit, .id = unit->call.id, .follow = follow };
    before->edges = edge;
    unit->holds++;
    return GP_OK;
}

gp_status dispatch_submit(dispatch *d, team_unit *unit, int64_t start_by_ns, gp_error *err)
{
    assert(unit->state == UNIT_FREE && unit->wish <= d->workers && (!unit->urgent || unit->wish != 0));
    if (start_by_ns != 0 || unit->timeout_ms != 0) {
        gp_status status = unit_timers_reserve(&d->timers, err);

        if (status != GP_OK)
            return status;
    }
    if (start_by_ns != 0)
        unit_timers_set(&d->timers, unit, start_by_ns);
    if (unit->holds != 0) {
        unit->state = UNIT_HELD;
        unit_list_append(&d->held, unit);
        d->counts.held++;
    } else {
        ready_put(d, unit, false);
    }
    d->counts.live++;
    return GP_OK;
}

/* Return the run-time estimate for a unit; NULL if this kind of call has no estimate. */
static float *estimate_of(dispatch *d, const team_unit *unit)
{
    return unit->call.kind == GP_CALL_RUN && unit->call.function <= GP_TASK_FUNCTIONS_MAX
               ? &d->run_ns[unit->call.function]
               : NULL;
}

static double expected_ns(dispatch *d, const team_unit *unit)
{
    const float *estimate = estimate_of(d, unit);

    return estimate != NULL && *estimate > 0 ? (double)*estimate : LONG_NS;
}

/* Start the time measurement of the new first call in the ring, which is the one that runs. */
static void lane_first_changed(dispatch *d, lane *l, int64_t now_ns)
{
    team_unit *first = l->sent.first;

    l->since_ns = now_ns;
    if (first != NULL && first->timeout_ms != 0 && !first->canceled) {
        first->run_timed = true;
        unit_timers_set(&d->timers, first, now_ns + (int64_t)first->timeout_ms * 1000000);
    }
}

static void lane_remove(dispatch *d, team_unit *unit, int64_t now_ns)
{
    lane *l = &d->lanes[unit->worker - 1];
    bool first = l->sent.first == unit;

    unit_list_remove(&l->sent, unit);
    l->sent_count--;
    d->counts.sent--;
    d->ranked -= unit->priority != 0;
    d->counts.urgent -= unit->urgent;
    l->load_ns = l->sent_count == 0 ? 0 : l->load_ns - (double)unit->expected_ns;
    if (l->load_ns < 0)
        l->load_ns = 0;
    if (first)
        lane_first_changed(d, l, now_ns);
}

/* Remove a unit from the container for the current state, and clear the timer. */
static void detach(dispatch *d, team_unit *unit, int64_t now_ns)
{
    unit_timers_clear(&d->timers, unit);
    unit->run_timed = false;
    if (unit->state == UNIT_HELD) {
        unit_list_remove(&d->held, unit);
        d->counts.held--;
    } else if (unit->state == UNIT_READY) {
        ready_remove(d, unit);
    } else if (unit->state == UNIT_SENT) {
        lane_remove(d, unit, now_ns);
    } else if (unit->state == UNIT_DYING) {
        unit_list_remove(&d->lanes[unit->worker - 1].dying, unit);
    }
    unit->state = UNIT_FREE;
}

static void over_at(dispatch *d, team_unit *unit, gp_status status, int64_t now_ns)
{
    detach(d, unit, now_ns);
    unit->state = UNIT_OVER;
    unit->status = (uint16_t)status;
    unit_list_append(&d->over, unit);
}

void dispatch_over(dispatch *d, team_unit *unit, gp_status status)
{
    if (unit->state == UNIT_OVER || unit->state == UNIT_ENDED || unit->state == UNIT_FREE)
        return;
    over_at(d, unit, status, unit->worker == 0 ? 0 : d->lanes[unit->worker - 1].since_ns);
}

team_unit *dispatch_next_over(dispatch *d)
{
    team_unit *unit = d->over.first;

    if (unit != NULL) {
        unit_list_remove(&d->over, unit);
        unit->state = UNIT_ENDED;
        d->counts.live--;
    }
    return unit;
}

void dispatch_settle(dispatch *d, team_unit *unit, gp_status status)
{
    unit_edge *edge, *next, *first = NULL;

    /* reverse the list: units wait in the order of submission */
    for (edge = unit->edges; edge != NULL; edge = next) {
        next = edge->next;
        edge->next = first;
        first = edge;
    }
    unit->edges = NULL;
    for (edge = first; edge != NULL; edge = next) {
        team_unit *waiting = edge->unit;

        next = edge->next;

        /* The waiting unit may have ended earlier, and the memory may hold another unit now:
         * compare the id. */
        if (waiting->call.id == edge->id && waiting->state == UNIT_HELD) {
            if (edge->follow && waiting->wish == 0)
                waiting->wish = unit->worker;
            if (status != GP_OK) {
                waiting->orphan = true;
                dispatch_over(d, waiting, GP_ECANCELED);
            } else if (--waiting->holds == 0) {
                unit_list_remove(&d->held, waiting);
                d->counts.held--;
                ready_put(d, waiting, false);
            }
        }
        gp_free(edge);
    }
}

/* ---- revoking ---- */

/* Revoke a call from the ring, as if it had never been sent. Return false if the worker has started
 * it. */
static bool take_back(dispatch *d, team_unit *unit, int64_t now_ns)
{
    if (!d->hooks.revoke(d->hooks.context, unit->worker, unit))
        return false;

    /* otherwise the timer is the start deadline, which stays valid */
    if (unit->run_timed)
        unit_timers_clear(&d->timers, unit);
    unit->run_timed = false;
    lane_remove(d, unit, now_ns);
    unit->state = UNIT_FREE;
    unit->attempts--;
    return true;
}

/* Return whether a call in another ring could run on worker `to`. */
static bool movable(const dispatch *d, const team_unit *unit, uint32_t to)
{
    return unit->wish == 0 && !unit->canceled &&
           (unit->needs == GP_RESOURCES_ANY || (unit->needs == GP_RESOURCES_GPU) == has_gpu(d, to));
}

static uint64_t lanes_up(const dispatch *d, uint32_t *count)
{
    uint64_t up = 0;

    *count = 0;
    for (uint32_t w = 1; w <= d->workers; w++)
        if (d->lanes[w - 1].up) {
            up |= (uint64_t)1 << (w - 1);
            ++*count;
        }
    return up;
}

/* Return the call of highest priority, above `above`, that waits in another ring and could run on
 * this worker. NULL: none. */
static team_unit *waiting_best(const dispatch *d, uint32_t worker, int32_t above)
{
    team_unit *best = NULL;

    for (uint32_t w = 1; w <= d->workers; w++) {
        const lane *l = &d->lanes[w - 1];
        team_unit *unit = w == worker || l->sent_count < 2 ? NULL : l->sent.first->next;

        if (unit != NULL && unit->priority > above && movable(d, unit, worker)) {
            best = unit;
            above = unit->priority;
        }
    }
    return best;
}

static bool lane_is_long(const lane *l, int64_t now_ns)
{
    return l->sent_count > 0 && now_ns - l->since_ns >= DISPATCH_SOLO_NS;
}

/* Revoke the calls in each ring that should yield: to a ready call of higher priority, or to any
 * worker because they wait behind a long call. */
static void take_back_all(dispatch *d, int64_t now_ns)
{
    uint32_t up;

    lanes_up(d, &up);
    for (uint32_t w = 1; w <= d->workers; w++) {
        const lane *l = &d->lanes[w - 1];
        bool ranked = l->sent_count > 0 && d->ranked > 0 && d->counts.ready > 0;
        const team_unit *best = ranked ? ready_for(d, w) : NULL;
        team_unit *unit = best == NULL || best->urgent ? NULL : l->sent.last, *previous;

        for (; unit != NULL; unit = previous) {
            previous = unit->previous;
            if (unit->urgent)
                continue;
            if (unit->priority >= best->priority || !take_back(d, unit, now_ns))
                break;
            ready_put(d, unit, true);
        }
        if (l->sent_count < 2 || up < 2 || !lane_is_long(l, now_ns))
            continue;
        for (unit = l->sent.last; unit != l->sent.first; unit = previous) {
            previous = unit->previous;
            if (unit->wish != 0)
                continue;
            if (!take_back(d, unit, now_ns))
                break;
            ready_put(d, unit, true);
        }
    }
}

/* ---- sending ---- */

/* Return whether to send one more call to a worker, by the fill rules in dispatch.h. up: workers
 * whose link is up. */
static bool lane_wants(dispatch *d, const lane *l, const team_unit *unit, uint32_t up, int64_t now_ns)
{
    double after_ns = l->load_ns + expected_ns(d, unit);

    if (unit->wish == 0 && up > 1 && lane_is_long(l, now_ns))
        return false;
    if (l->sent_count < 2 || unit->urgent)
        return true;
    if (l->sent_count >= DISPATCH_DEPTH_MAX || after_ns > DISPATCH_FILL_NS)
        return false;
    return after_ns <= DISPATCH_EAGER_NS || l->sent_count < d->counts.ready / (2 * up);
}

static bool lane_send(dispatch *d, uint32_t worker, team_unit *unit, int64_t now_ns)
{
    lane *l = &d->lanes[worker - 1];

    unit->attempts++; /* the hook puts this number into the record */
    if (!d->hooks.send(d->hooks.context, worker, unit)) {
        unit->attempts--;
        l->full = true;
        return false;
    }
    ready_remove(d, unit);
    unit->state = UNIT_SENT;
    unit->worker = (uint8_t)worker;
    unit_list_append(&l->sent, unit);
    unit->expected_ns = (float)expected_ns(d, unit);
    l->load_ns += (double)unit->expected_ns;
    d->counts.sent++;
    d->ranked += unit->priority != 0;
    d->counts.urgent += unit->urgent;
    if (l->sent_count++ == 0)
        lane_first_changed(d, l, now_ns);
    return true;
}

/* Return the least loaded worker of a set. Among idle workers, one on the client's core comes last.
 * 0: the set is empty. */
static uint32_t lightest(const dispatch *d, uint64_t among)
{
    uint32_t best = 0;

    for (; among != 0; among &= among - 1) {
        uint32_t worker = (uint32_t)__builtin_ctzll(among) + 1;
        const lane *l = &d->lanes[worker - 1], *b = best == 0 ? NULL : &d->lanes[best - 1];

        if (b == NULL || (l->sent_count == 0) > (b->sent_count == 0) ||
            ((l->sent_count == 0) == (b->sent_count == 0) &&
             (l->sent_count == 0 && l->near != b->near ? b->near : l->load_ns < b->load_ns)))
            best = worker;
    }
    return best;
}

/* Send ready calls, always to the least loaded worker, until no ready call or no willing worker is
 * left. */
static void send_ready(dispatch *d, int64_t now_ns)
{
    uint32_t up;
    uint64_t open = lanes_up(d, &up);

    while (d->counts.ready > 0 && open != 0) {
        uint32_t worker = lightest(d, open);
        const lane *l = &d->lanes[worker - 1];
        team_unit *unit = ready_for(d, worker);
        team_unit *first =
            unit == NULL || unit->urgent || d->ranked == 0 ? NULL : waiting_best(d, worker, unit->priority);

        if (first != NULL && l->sent_count == 0 && take_back(d, first, now_ns)) {
            ready_put(d, first, true);
            continue;
        }
        if (unit == NULL || (first != NULL && l->sent_count > 0) || !lane_wants(d, l, unit, up, now_ns) ||
            !lane_send(d, worker, unit, now_ns))
            open &= ~((uint64_t)1 << (worker - 1));
    }
}

/* ---- stealing for idle workers ---- */

/* Return the time from which the waiting calls of a worker may be moved. */
static int64_t steal_ns(const lane *l)
{
    return l->load_ns >= DISPATCH_STEAL_NS ? l->since_ns : l->since_ns + DISPATCH_STEAL_NS;
}

static uint32_t idle_worker(const dispatch *d)
{
    for (uint32_t w = 1; w <= d->workers; w++)
        if (d->lanes[w - 1].up && d->lanes[w - 1].sent_count == 0)
            return w;
    return 0;
}

/* Move calls from another ring to the queue for an idle worker: the waiting call of highest
 * priority, or half of the calls that wait in the fullest ring. Return false if no call can be
 * moved. */
static bool steal_for(dispatch *d, uint32_t idle, int64_t now_ns)
{
    team_unit *first = d->ranked == 0 ? NULL : waiting_best(d, idle, INT32_MIN);
    const lane *from = NULL;
    uint32_t moved = 0;

    if (first != NULL && now_ns >= steal_ns(&d->lanes[first->worker - 1]) && take_back(d, first, now_ns)) {
        ready_put(d, first, true);
        d->counts.stolen++;
        return true;
    }

    for (uint32_t w = 1; w <= d->workers; w++) {
        const lane *l = &d->lanes[w - 1];

        if (l->sent_count >= 2 && now_ns >= steal_ns(l) && movable(d, l->sent.last, idle) &&
            (from == NULL || l->load_ns > from->load_ns))
            from = l;
    }
    if (from == NULL)
        return false;
    for (uint32_t want = from->sent_count / 2; moved < want; moved++) {
        team_unit *unit = from->sent.last;

        if (!movable(d, unit, idle) || !take_back(d, unit, now_ns))
            break;
        ready_put(d, unit, true);
    }
    d->counts.stolen += moved;
    return moved > 0;
}

void dispatch_fill(dispatch *d, int64_t now_ns)
{
    uint32_t idle;

    take_back_all(d, now_ns);
    if (d->counts.ready > 0)
        send_ready(d, now_ns);
    while (d->counts.sent >= 2 && (idle = idle_worker(d)) != 0 && ready_for(d, idle) == NULL) {
        if (!steal_for(d, idle, now_ns))
            return;
        send_ready(d, now_ns);
        if (d->lanes[idle - 1].sent_count == 0)
            return; /* the ring has no room */
    }
}

/* ---- answers ---- */

gp_status dispatch_answered(dispatch *d, uint32_t worker, uint64_t id, gp_status status, int64_t ran_ns,
                            int64_t now_ns, team_unit **out)
{
    lane *l = &d->lanes[worker - 1];
    team_unit *unit = l->sent.first;
    float *estimate, ran = ran_ns > 0 ? (float)ran_ns : 1;

    l->full = false;
    while (unit != NULL && unit->call.id != id)
        unit = unit->next;
    if (unit == NULL)
        return GP_ENOENT;
    detach(d, unit, now_ns);
    estimate = estimate_of(d, unit);
    if (status == GP_OK && estimate != NULL)
        *estimate = *estimate == 0 ? ran : *estimate + (ran - *estimate) / 8;
    if (status != GP_OK && !unit->canceled && unit->tries < unit->retries_max) {
        unit->tries++;
        unit->attempts--; /* `attempts` counts only starts after worker failures */
        ready_put(d, unit, false);
        return GP_EBUSY;
    }
    unit->state = UNIT_ENDED;
    d->counts.live--;
    *out = unit;
    return GP_OK;
}

/* ---- workers ---- */

void dispatch_worker_up(dispatch *d, uint32_t worker, int64_t now_ns)
{
    lane *l = &d->lanes[worker - 1];

    l->up = true;
    l->full = false;
    l->since_ns = now_ns;
}

void dispatch_worker_near(dispatch *d, uint32_t worker, bool near)
{
    d->lanes[worker - 1].near = near;
}

void dispatch_worker_down(dispatch *d, uint32_t worker, int64_t now_ns)
{
    lane *l = &d->lanes[worker - 1];

    l->up = false;

    /* Go from last to first, so that calls that return to the queue keep their order. */
    for (team_unit *unit = l->sent.last, *previous; unit != NULL; unit = previous) {
        previous = unit->previous;
        bool begun = !take_back(d, unit, now_ns);

        if (begun)
            detach(d, unit, now_ns);
        if (unit->loss == TEAM_LOSS_FATAL && begun && !unit->canceled) {
            unit->state = UNIT_DYING;
            unit_list_append(&l->dying, unit);
        } else if (unit->loss != TEAM_LOSS_RERUN || unit->canceled) {
            over_at(d, unit, unit->canceled ? dispatch_canceled_status(unit) : GP_ESTALE, now_ns);
        } else if (begun && unit->attempts >= unit->attempts_max) {
            unit->state = UNIT_DYING;
            unit_list_append(&l->dying, unit);
        } else {
            d->counts.rerun += begun;
            ready_put(d, unit, true);
        }
    }
    for (team_unit *unit = l->urgent.first, *next; unit != NULL; unit = next) {
        next = unit->next;
        if (unit->loss != TEAM_LOSS_RERUN)
            over_at(d, unit, GP_ESTALE, now_ns);
    }
}

team_unit *dispatch_dying(const dispatch *d, uint32_t worker)
{
    return d->lanes[worker - 1].dying.first;
}

/* ---- canceling, deadlines ---- */

gp_status dispatch_canceled_status(const team_unit *unit)
{
    return unit->over_limit ? GP_ETIMELIMIT : GP_ECANCELED;
}

void dispatch_cancel(dispatch *d, team_unit *unit, uint32_t grace_ms, int64_t now_ns)
{
    int64_t when_ns = now_ns + (int64_t)grace_ms * 1000000;

    if (unit->state == UNIT_HELD || unit->state == UNIT_READY || unit->state == UNIT_DYING) {
        over_at(d, unit, GP_ECANCELED, now_ns);
    } else if (unit->state == UNIT_SENT) {
        if (!unit->canceled && take_back(d, unit, now_ns)) {
            over_at(d, unit, GP_ECANCELED, now_ns);
            return;
        }
        if (!unit->canceled)
            d->hooks.stop(d->hooks.context, unit->worker, unit);
        else if (unit->timer != 0 && d->timers.at[unit->timer - 1].when_ns <= when_ns)
            return; /* an earlier replacement of the worker is due */
        unit->canceled = true;
        unit->grace_ms = grace_ms;
        unit_timers_clear(&d->timers, unit);
        if (grace_ms != 0)
            unit_timers_set(&d->timers, unit, when_ns);
        else
            d->hooks.replace(d->hooks.context, unit->worker, unit);
    }
}

static void timer_fired(dispatch *d, team_unit *unit, int64_t late_ns, int64_t now_ns)
{
    const lane *l;

    unit_timers_clear(&d->timers, unit);
    if (unit->state == UNIT_HELD || unit->state == UNIT_READY) {
        over_at(d, unit, GP_ETIMEDOUT, now_ns);
        return;
    }
    if (unit->state != UNIT_SENT)
        return;

    /* the deadline is seen late: this process stalled, and the worker may have stalled as well */
    if (unit->canceled && late_ns > DISPATCH_LATE_NS) {
        unit_timers_set(&d->timers, unit, now_ns + (int64_t)unit->grace_ms * 500000);
        return;
    }
    if (unit->canceled) {
        d->hooks.replace(d->hooks.context, unit->worker, unit);
        return;
    }
    l = &d->lanes[unit->worker - 1];
    if (unit->timeout_ms != 0 && l->sent.first == unit) {
        unit->over_limit = true;
        dispatch_cancel(d, unit, DISPATCH_GRACE_MS, now_ns);
    } else if (take_back(d, unit, now_ns)) {
        over_at(d, unit, GP_ETIMEDOUT, now_ns);
    }
}

void dispatch_tick(dispatch *d, int64_t now_ns)
{
    while (d->timers.count > 0 && d->timers.at[0].when_ns <= now_ns)
        timer_fired(d, d->timers.at[0].unit, now_ns - d->timers.at[0].when_ns, now_ns);
}

int64_t dispatch_next_ns(const dispatch *d, int64_t now_ns)
{
    int64_t next = d->timers.count > 0 ? d->timers.at[0].when_ns : INT64_MAX;
    uint32_t idle = d->counts.sent >= 2 ? idle_worker(d) : 0, up;

    lanes_up(d, &up);
    for (uint32_t w = 1; w <= d->workers && d->counts.sent >= 2; w++) {
        const lane *l = &d->lanes[w - 1];
        int64_t when = l->since_ns + DISPATCH_SOLO_NS;

        if (l->sent_count >= 2 && up > 1 && l->sent.last->wish == 0 && when > now_ns && when < next)
            next = when;
        if (idle == 0 || l->sent_count < 2 || !movable(d, l->sent.last, idle))
            continue;
        when = steal_ns(l);

        if (when <= now_ns) /* stealing failed before: the worker is about to answer */
            when = now_ns + DISPATCH_STEAL_NS;
        next = when < next ? when : next;
    }
    return next;
}

const dispatch_counts *dispatch_get_counts(const dispatch *d)
{
    return &d->counts;
}

uint32_t dispatch_sent(const dispatch *d, uint32_t worker, const team_unit **first)
{
    const lane *l = &d->lanes[worker - 1];

    if (first != NULL)
        *first = l->sent.first;
    return l->sent_count;
}

bool dispatch_stuck(const dispatch *d)
{
    for (uint32_t w = 1; w <= d->workers; w++)
        if (d->lanes[w - 1].up && d->lanes[w - 1].full && d->lanes[w - 1].sent_count == 0)
            return true;
    return false;
}

void dispatch_over_all(dispatch *d, gp_status status)
{
    while (d->held.first != NULL)
        dispatch_over(d, d->held.first, status);
    for (uint32_t q = 0; q < QUEUE_WORKER + d->workers; q++)
        for (team_unit *unit; (unit = unit_queue_first(&d->queues[q])) != NULL;)
            dispatch_over(d, unit, status);
    for (uint32_t w = 1; w <= d->workers; w++) {
        while (d->lanes[w - 1].urgent.first != NULL)
            dispatch_over(d, d->lanes[w - 1].urgent.first, status);

        /* revoked units are never started; the others are running */
        for (team_unit *unit; (unit = d->lanes[w - 1].sent.first) != NULL; dispatch_over(d, unit, status))
            (void)d->hooks.revoke(d->hooks.context, w, unit);
        while (d->lanes[w - 1].dying.first != NULL)
            dispatch_over(d, d->lanes[w - 1].dying.first, status);
    }
}
