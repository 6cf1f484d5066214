/* dispatch.c: implements dispatch.h, which describes the rules. The file is long on purpose: each
 * function moves units between the states of one machine, whose invariants span all functions. */
#include "client/team/dispatch.h"

#include <assert.h>

#include "common/base/memory/alloc.h"

enum {
    LONG_NS = DISPATCH_FILL_NS,
    LOOK_MAX = 16, /* calls of a ring, from either end, that are examined for another worker */

    /* time for an answer that has arrived to be processed, before its worker is replaced */
    ANSWER_NS = 10000000,
};

/* Time after which an unanswered request for a replacement is repeated, or the worker gets calls
 * again: the scheduler failed, or did not know the worker yet. */
#define REPLACE_NS ((int64_t)2 * 1000000000)

typedef struct lane { /* state of one worker */
    bool near, full;
    bool leaving;     /* see dispatch_leave() */
    uint64_t classes; /* bit c: the worker can run calls of class c */
    unit_list sent;   /* calls in the ring, in ring order */
    unit_list urgent; /* ready calls that precede all others */
    unit_list dying;
    uint32_t sent_count;
    double load_ns;   /* sum of the estimated run times in `sent` */
    int64_t since_ns; /* time at which the current first call became first */
    int64_t asked_ns; /* when its replacement was requested; only in dispatch.doomed */
} lane;

/* Calls with the same needs. */
typedef struct need_class {
    uint64_t workers;  /* bit w - 1: worker w can run them; it may not have joined yet */
    uint64_t users;    /* live units, and dispatch_hold_class(); not counted for class 0 */
    unit_queue *queue; /* ready units without a chosen worker; NULL: the class was never used */
} need_class;

struct dispatch {
    dispatch_hooks hooks;
    uint32_t workers, workers_max;
    uint32_t up_count;
    lane *lanes;        /* [workers_max] */
    unit_queue *queues; /* [workers_max]; units for a chosen worker */

    /* Sets of workers, bit w - 1: worker w. */
    uint64_t up;      /* the link is up, and the worker is not doomed */
    uint64_t doomed;  /* the replacement was requested; these workers get no calls */
    uint64_t staying; /* in the team, and does not leave */
    uint64_t busy;    /* at least one call in the ring */
    uint64_t backlog; /* at least two calls in the ring */

    uint64_t waiting; /* bit c: the queue of class c is not empty */
    dispatch_counts counts;
    uint64_t turns;  /* last sequence number given to a ready unit */
    uint64_t ranked; /* ready or sent units whose priority is not 0 */
    unit_timers timers;
    unit_list held, over;
    need_class classes[DISPATCH_CLASSES_MAX];
    float run_ns[GP_TASK_FUNCTIONS_MAX + 1]; /* estimated run time by function number; 0: unknown */
};

static uint64_t bit_of(uint32_t worker)
{
    return (uint64_t)1 << (worker - 1);
}

/* ---- queues ---- */

/* Add a ready unit to the queue of its chosen worker, or else of its class. */
static void queue_put(dispatch *d, team_unit *unit, bool front)
{
    if (unit->wish != 0) {
        unit_queue_put(&d->queues[unit->wish - 1], unit, front);
        return;
    }
    unit_queue_put(d->classes[unit->needs].queue, unit, front);
    d->waiting |= (uint64_t)1 << unit->needs;
}

static void queue_remove(dispatch *d, team_unit *unit)
{
    if (unit->wish != 0) {
        unit_queue_remove(&d->queues[unit->wish - 1], unit);
        return;
    }
    unit_queue_remove(d->classes[unit->needs].queue, unit);
    if (d->classes[unit->needs].queue->count == 0)
        d->waiting &= ~((uint64_t)1 << unit->needs);
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
        queue_put(d, unit, front);
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
        queue_remove(d, unit);
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

/* Return the classes with ready units that this worker may start. A worker that leaves starts only
 * those of classes that no staying worker can run. */
static uint64_t classes_for(const dispatch *d, const lane *l)
{
    uint64_t classes = d->waiting & l->classes;

    for (uint64_t rest = l->leaving ? classes : 0; rest != 0; rest &= rest - 1)
        if ((d->classes[__builtin_ctzll(rest)].workers & d->staying) != 0)
            classes &= ~(rest & -rest);
    return classes;
}

/* Return the next ready unit that this worker can run; NULL: none. */
static team_unit *ready_for(const dispatch *d, uint32_t worker)
{
    const lane *l = &d->lanes[worker - 1];

    if (l->urgent.first != NULL)
        return l->urgent.first;
    team_unit *unit = d->queues[worker - 1].count == 0 ? NULL : unit_queue_first(&d->queues[worker - 1]);

    for (uint64_t rest = classes_for(d, l); rest != 0; rest &= rest - 1)
        unit = better(unit_queue_first(d->classes[__builtin_ctzll(rest)].queue), unit);
    return unit;
}

/* ---- creating ---- */

/* Recompute which workers stay. */
static void staying_changed(dispatch *d)
{
    d->staying = 0;
    for (uint32_t w = 1; w <= d->workers; w++)
        if (!d->lanes[w - 1].leaving)
            d->staying |= bit_of(w);
}

gp_status dispatch_set_class(dispatch *d, uint32_t class, uint64_t workers, gp_error *err)
{
    need_class *c = &d->classes[class];

    assert(class < DISPATCH_CLASSES_MAX);
    if (c->queue == NULL)
        c->queue = gp_calloc(1, sizeof(*c->queue));
    if (c->queue == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for a queue of calls");
    c->workers = workers;
    for (uint32_t w = 1; w <= d->workers_max; w++) {
        lane *l = &d->lanes[w - 1];

        l->classes &= ~((uint64_t)1 << class);
        l->classes |= (workers >> (w - 1) & 1) << class;
    }
    return GP_OK;
}

void dispatch_hold_class(dispatch *d, uint32_t class)
{
    if (class != 0)
        d->classes[class].users++;
}

void dispatch_release_class(dispatch *d, uint32_t class)
{
    assert(class == 0 || d->classes[class].users > 0);
    if (class != 0)
        d->classes[class].users--;
}

bool dispatch_class_used(const dispatch *d, uint32_t class)
{
    return class == 0 || d->classes[class].users != 0;
}

bool dispatch_class_unmet(const dispatch *d, uint32_t class)
{
    const uint64_t members = UINT64_MAX >> (64 - d->workers);

    return class != 0 && d->classes[class].users != 0 && (d->classes[class].workers & members) == 0;
}

gp_status dispatch_new(dispatch **out, const dispatch_hooks *hooks, uint32_t workers, uint32_t workers_max,
                       gp_error *err)
{
    dispatch *d = gp_calloc(1, sizeof(*d));

    assert(workers >= 1 && workers <= workers_max && workers_max <= GP_MEMBERS_MAX);
    if (d != NULL) {
        d->hooks = *hooks;
        d->workers = workers;
        d->workers_max = workers_max;
        d->lanes = gp_calloc(workers_max, sizeof(*d->lanes));
        d->queues = gp_calloc(workers_max, sizeof(*d->queues));
    }
    if (d == NULL || d->lanes == NULL || d->queues == NULL ||
        dispatch_set_class(d, 0, UINT64_MAX, err) != GP_OK) {
        dispatch_free(d);
        return gp_fail(err, GP_ENOMEM, "no memory for the queues of %u workers", workers_max);
    }
    staying_changed(d);
    *out = d;
    return GP_OK;
}

void dispatch_free(dispatch *d)
{
    if (d == NULL)
        return;
    for (uint32_t c = 0; c < DISPATCH_CLASSES_MAX; c++)
        gp_free(d->classes[c].queue);
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
    assert(unit->needs < DISPATCH_CLASSES_MAX && d->classes[unit->needs].queue != NULL);
    if (start_by_ns != 0 || unit->timeout_ms != 0) {
        gp_status status = unit_timers_reserve(&d->timers, err);

        if (status != GP_OK)
            return status;
    }
    unit->start_by_ns = start_by_ns;
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
    dispatch_hold_class(d, unit->needs);
    return GP_OK;
}

/* Stop counting a unit that has ended. */
static void unit_ended(dispatch *d, team_unit *unit)
{
    unit->state = UNIT_ENDED;
    d->counts.live--;
    dispatch_release_class(d, unit->needs);
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

/* Return when the first call of a ring exceeds its time limit. */
static int64_t limit_ns(const lane *l)
{
    return l->since_ns + (int64_t)l->sent.first->timeout_ms * 1000000;
}

/* Start the time measurement of the new first call in the ring, which is the one that runs, or that
 * the worker starts next. */
static void lane_first_changed(dispatch *d, lane *l, int64_t now_ns)
{
    team_unit *first = l->sent.first;

    l->since_ns = now_ns;
    if (first != NULL && first->timeout_ms != 0 && !first->canceled) {
        const bool starts_first = first->start_by_ns != 0 && first->start_by_ns < limit_ns(l);

        unit_timers_set(&d->timers, first, starts_first ? first->start_by_ns : limit_ns(l));
    }
}

/* Change the number of calls in the ring of a worker. */
static void lane_set_count(dispatch *d, uint32_t worker, uint32_t count)
{
    const uint64_t bit = bit_of(worker);

    d->lanes[worker - 1].sent_count = count;
    d->busy = count >= 1 ? d->busy | bit : d->busy & ~bit;
    d->backlog = count >= 2 ? d->backlog | bit : d->backlog & ~bit;
}

static void lane_remove(dispatch *d, team_unit *unit, int64_t now_ns)
{
    lane *l = &d->lanes[unit->worker - 1];
    bool first = l->sent.first == unit;

    unit_list_remove(&l->sent, unit);
    lane_set_count(d, unit->worker, l->sent_count - 1);
    d->counts.sent--;
    d->ranked -= unit->priority != 0;
    d->counts.urgent -= unit->urgent;
    l->load_ns = l->sent_count == 0 ? 0 : l->load_ns - (double)unit->expected_ns;
    if (l->load_ns < 0)
        l->load_ns = 0;
    if (first)
        lane_first_changed(d, l, now_ns);
}

/* Remove a unit that has started or ends from the container for the current state, and clear the
 * timer. */
static void detach(dispatch *d, team_unit *unit, int64_t now_ns)
{
    unit_timers_clear(&d->timers, unit);
    unit->start_by_ns = 0;
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

void dispatch_over_class(dispatch *d, uint32_t class, gp_status status)
{
    unit_queue *queue = d->classes[class].queue;

    for (team_unit *unit = d->held.first, *next; unit != NULL; unit = next) {
        next = unit->next;
        if (unit->needs == class && unit->wish == 0)
            dispatch_over(d, unit, status);
    }
    for (team_unit *unit; (unit = unit_queue_first(queue)) != NULL;)
        dispatch_over(d, unit, status);
}

team_unit *dispatch_next_over(dispatch *d)
{
    team_unit *unit = d->over.first;

    if (unit != NULL) {
        unit_list_remove(&d->over, unit);
        unit_ended(d, unit);
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
            if (status == GP_OK && waiting->wish > d->workers) { /* the worker to follow has left */
                dispatch_over(d, waiting, GP_ESTALE);
            } else if (status != GP_OK) {
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

/* Set whether a worker gets calls. */
static void set_up(dispatch *d, uint32_t worker, bool up)
{
    d->up = up ? d->up | bit_of(worker) : d->up & ~bit_of(worker);
    d->up_count = (uint32_t)__builtin_popcountll(d->up);
}

/* Revoke a call from the ring, as if it had never been sent. Return false if the worker has started
 * it. */
static bool take_back(dispatch *d, team_unit *unit, int64_t now_ns)
{
    if (!d->hooks.revoke(d->hooks.context, unit->worker, unit))
        return false;

    unit_timers_clear(&d->timers, unit); /* it may be that of the time limit */
    if (unit->start_by_ns != 0)
        unit_timers_set(&d->timers, unit, unit->start_by_ns);
    lane_remove(d, unit, now_ns);
    unit->state = UNIT_FREE;
    unit->attempts--;
    return true;
}

/* Return whether a call could run on one of these workers. */
static bool runs_on(const dispatch *d, const team_unit *unit, uint64_t workers)
{
    return unit->wish == 0 && (d->classes[unit->needs].workers & workers) != 0;
}

/* Return whether a call in a ring could run on one of these workers instead. */
static bool could_move(const dispatch *d, const team_unit *unit, uint64_t workers)
{
    return !unit->canceled && runs_on(d, unit, workers);
}

/* Return the last waiting call in a ring that one of these workers could run; NULL: none among the
 * last LOOK_MAX calls. */
static team_unit *waiting_for(const dispatch *d, const lane *l, uint64_t workers)
{
    team_unit *unit = l->sent.last;

    for (int i = 0; i < LOOK_MAX && unit != l->sent.first; i++, unit = unit->previous)
        if (could_move(d, unit, workers))
            return unit;
    return NULL;
}

/* Return the call of highest priority, above `above`, that waits in another ring and could run on
 * this worker. NULL: none. */
static team_unit *waiting_best(const dispatch *d, uint32_t worker, int32_t above)
{
    team_unit *best = NULL;

    for (uint32_t w = 1; w <= d->workers; w++) {
        const lane *l = &d->lanes[w - 1];
        team_unit *unit = w == worker || l->sent_count < 2 ? NULL : l->sent.first->next;

        for (int i = 0; unit != NULL && i < LOOK_MAX && !could_move(d, unit, bit_of(worker)); i++)
            unit = unit->next;
        if (unit != NULL && unit->priority > above && could_move(d, unit, bit_of(worker))) {
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
    /* Without priorities, only calls behind another one, or of a worker that leaves, can yield. */
    uint64_t rest = d->ranked > 0 ? d->busy : d->backlog | (d->busy & ~d->staying);

    for (; rest != 0; rest &= rest - 1) {
        const uint32_t w = (uint32_t)__builtin_ctzll(rest) + 1;
        const lane *l = &d->lanes[w - 1];
        bool ranked = d->ranked > 0 && d->counts.ready > 0;
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
        if (!l->leaving && (l->sent_count < 2 || d->up_count < 2 || !lane_is_long(l, now_ns)))
            continue;
        const uint64_t others = (l->leaving ? d->staying : d->up & d->staying) & ~bit_of(w);

        /* The first call of a worker that leaves may not have started either. */
        for (unit = l->sent.last; unit != NULL && (l->leaving || unit != l->sent.first); unit = previous) {
            previous = unit->previous;
            if (!runs_on(d, unit, others))
                continue;
            if (!take_back(d, unit, now_ns))
                break;
            ready_put(d, unit, true);
        }
    }
}

/* ---- sending ---- */

/* Return whether to send one more call to a worker, by the fill rules in dispatch.h.
 *   others  other workers that could take the call */
static bool lane_wants(dispatch *d, const lane *l, const team_unit *unit, uint64_t others, int64_t now_ns)
{
    double after_ns = l->load_ns + expected_ns(d, unit);

    if (lane_is_long(l, now_ns) && runs_on(d, unit, others))
        return false;
    if (l->sent_count < 2 || unit->urgent)
        return true;
    if (l->sent_count >= DISPATCH_DEPTH_MAX || after_ns > DISPATCH_FILL_NS)
        return false;
    return after_ns <= DISPATCH_EAGER_NS || l->sent_count < d->counts.ready / (2 * d->up_count);
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
    lane_set_count(d, worker, l->sent_count + 1);
    if (l->sent_count == 1)
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
    uint64_t open = d->up;
    const uint64_t takers = open & d->staying;

    while (d->counts.ready > 0 && open != 0) {
        uint32_t worker = lightest(d, open);
        const lane *l = &d->lanes[worker - 1];
        team_unit *unit = ready_for(d, worker);
        team_unit *first = unit == NULL || unit->urgent || l->leaving || d->ranked == 0
                               ? NULL
                               : waiting_best(d, worker, unit->priority);

        if (first != NULL && l->sent_count == 0 && take_back(d, first, now_ns)) {
            ready_put(d, first, true);
            continue;
        }
        if (unit == NULL || (first != NULL && l->sent_count > 0) ||
            !lane_wants(d, l, unit, takers & ~bit_of(worker), now_ns) || !lane_send(d, worker, unit, now_ns))
            open &= ~bit_of(worker);
    }
}

/* ---- stealing for idle workers ---- */

/* Return the time from which the waiting calls of a worker may be moved. */
static int64_t steal_ns(const lane *l)
{
    return l->load_ns >= DISPATCH_STEAL_NS ? l->since_ns : l->since_ns + DISPATCH_STEAL_NS;
}

/* Return the workers without a call that could take one. */
static uint64_t idle_workers(const dispatch *d)
{
    return d->up & d->staying & ~d->busy;
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

        if (l->sent_count >= 2 && now_ns >= steal_ns(l) && (from == NULL || l->load_ns > from->load_ns) &&
            waiting_for(d, l, bit_of(idle)) != NULL)
            from = l;
    }
    if (from == NULL)
        return false;
    for (uint32_t want = from->sent_count / 2; moved < want; moved++) {
        team_unit *unit = waiting_for(d, from, bit_of(idle));

        if (unit == NULL || !take_back(d, unit, now_ns))
            break;
        ready_put(d, unit, true);
    }
    d->counts.stolen += moved;
    return moved > 0;
}

void dispatch_fill(dispatch *d, int64_t now_ns)
{
    uint64_t idle;

    take_back_all(d, now_ns);
    if (d->counts.ready > 0)
        send_ready(d, now_ns);
    idle = idle_workers(d);
    for (; idle != 0 && d->backlog != 0; idle &= idle - 1) {
        uint32_t worker = (uint32_t)__builtin_ctzll(idle) + 1;

        if (d->lanes[worker - 1].sent_count == 0 && ready_for(d, worker) == NULL &&
            steal_for(d, worker, now_ns))
            send_ready(d, now_ns);
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
    unit_ended(d, unit);
    *out = unit;
    return GP_OK;
}

/* ---- workers ---- */

void dispatch_worker_up(dispatch *d, uint32_t worker, int64_t now_ns)
{
    lane *l = &d->lanes[worker - 1];

    set_up(d, worker, true);
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

    d->doomed &= ~bit_of(worker);
    set_up(d, worker, false);

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

void dispatch_set_workers(dispatch *d, uint32_t workers)
{
    uint32_t before = d->workers;

    assert(workers >= 1 && workers <= d->workers_max);
    d->workers = workers;
    for (uint32_t w = workers + 1; w <= before; w++) {
        lane *l = &d->lanes[w - 1];
        team_unit *unit;

        assert(l->sent_count == 0);
        d->doomed &= ~bit_of(w);
        set_up(d, w, false);
        l->leaving = false;
        while ((unit = l->urgent.first) != NULL || (unit = l->dying.first) != NULL ||
               (unit = unit_queue_first(&d->queues[w - 1])) != NULL)
            dispatch_over(d, unit, GP_ESTALE);
    }
    staying_changed(d);
}

void dispatch_leave(dispatch *d, uint32_t worker, bool leave)
{
    d->lanes[worker - 1].leaving = leave;
    staying_changed(d);
}

/* Return whether the worker can run calls of a class in use that no staying worker can run. */
static bool last_of_class(const dispatch *d, const lane *l)
{
    for (uint64_t rest = l->classes & ~(uint64_t)1; rest != 0; rest &= rest - 1) {
        const need_class *c = &d->classes[__builtin_ctzll(rest)];

        if (c->users != 0 && (c->workers & d->staying) == 0)
            return true;
    }
    return false;
}

bool dispatch_worker_done(const dispatch *d, uint32_t worker)
{
    const lane *l = &d->lanes[worker - 1];

    return l->sent_count == 0 && l->urgent.first == NULL && l->dying.first == NULL &&
           d->queues[worker - 1].count == 0 && (!l->leaving || !last_of_class(d, l));
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

/* Replace the worker of a canceled call. No other call may start there any more: revoke the calls
 * behind it, and send none. */
static void replace(dispatch *d, team_unit *unit, int64_t now_ns)
{
    lane *l = &d->lanes[unit->worker - 1];

    for (team_unit *other = l->sent.last, *previous; other != NULL; other = previous) {
        previous = other->previous;
        if (other != unit && take_back(d, other, now_ns))
            ready_put(d, other, true);
    }
    if (d->hooks.replace(d->hooks.context, unit->worker, unit)) {
        set_up(d, unit->worker, false);
        d->doomed |= bit_of(unit->worker);
        l->asked_ns = now_ns;
    } else {
        unit_timers_set(&d->timers, unit, now_ns + ANSWER_NS);
    }
}

/* Handle the workers that have not been replaced in time: request it again while the canceled call
 * runs. */
static void doomed_check(dispatch *d, int64_t now_ns)
{
    for (uint64_t rest = d->doomed; rest != 0; rest &= rest - 1) {
        const uint32_t w = (uint32_t)__builtin_ctzll(rest) + 1;
        const lane *l = &d->lanes[w - 1];

        if (now_ns - l->asked_ns < REPLACE_NS)
            continue;
        d->doomed &= ~bit_of(w);
        set_up(d, w, true);
        if (l->sent.first != NULL && l->sent.first->canceled)
            replace(d, l->sent.first, now_ns);
    }
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
            replace(d, unit, now_ns);
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
        replace(d, unit, now_ns);
        return;
    }
    if (take_back(d, unit, now_ns)) {
        /* The worker has not started the call, for example because it is suspended, so the time
         * limit does not apply yet. */
        if (unit->start_by_ns == 0 || unit->start_by_ns > now_ns)
            ready_put(d, unit, true);
        else
            over_at(d, unit, GP_ETIMEDOUT, now_ns);
        return;
    }
    l = &d->lanes[unit->worker - 1];
    unit->start_by_ns = 0; /* it has started */
    if (unit->timeout_ms == 0 || l->sent.first != unit)
        return;
    if (limit_ns(l) > now_ns) {
        unit_timers_set(&d->timers, unit, limit_ns(l));
        return;
    }
    unit->over_limit = true;
    dispatch_cancel(d, unit, unit->grace_ms, now_ns);
}

void dispatch_tick(dispatch *d, int64_t now_ns)
{
    doomed_check(d, now_ns);
    while (d->timers.count > 0 && d->timers.at[0].when_ns <= now_ns)
        timer_fired(d, d->timers.at[0].unit, now_ns - d->timers.at[0].when_ns, now_ns);
}

int64_t dispatch_next_ns(const dispatch *d, int64_t now_ns)
{
    int64_t next = d->timers.count > 0 ? d->timers.at[0].when_ns : INT64_MAX;
    const uint64_t idle = idle_workers(d), takers = d->up & d->staying;

    for (uint64_t rest = d->doomed; rest != 0; rest &= rest - 1) {
        const int64_t when = d->lanes[__builtin_ctzll(rest)].asked_ns + REPLACE_NS;

        next = when < next ? when : next;
    }
    for (uint64_t rest = d->backlog; rest != 0; rest &= rest - 1) {
        const uint32_t w = (uint32_t)__builtin_ctzll(rest) + 1;
        const lane *l = &d->lanes[w - 1];
        int64_t when = l->since_ns + DISPATCH_SOLO_NS;

        if (d->up_count > 1 && when > now_ns && when < next && waiting_for(d, l, takers & ~bit_of(w)) != NULL)
            next = when;
        if (idle == 0 || waiting_for(d, l, idle) == NULL)
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

uint32_t dispatch_sent(const dispatch *d, uint32_t worker, team_unit **first)
{
    const lane *l = &d->lanes[worker - 1];

    if (first != NULL)
        *first = l->sent.first;
    return l->sent_count;
}

bool dispatch_stuck(const dispatch *d)
{
    for (uint64_t rest = d->up & ~d->busy; rest != 0; rest &= rest - 1)
        if (d->lanes[__builtin_ctzll(rest)].full)
            return true;
    return false;
}

void dispatch_over_all(dispatch *d, gp_status status)
{
    while (d->held.first != NULL)
        dispatch_over(d, d->held.first, status);
    for (uint64_t rest; (rest = d->waiting) != 0;)
        dispatch_over(d, unit_queue_first(d->classes[__builtin_ctzll(rest)].queue), status);
    for (uint32_t w = 1; w <= d->workers_max; w++)
        for (team_unit *unit; (unit = unit_queue_first(&d->queues[w - 1])) != NULL;)
            dispatch_over(d, unit, status);
    for (uint32_t w = 1; w <= d->workers_max; w++) {
        while (d->lanes[w - 1].urgent.first != NULL)
            dispatch_over(d, d->lanes[w - 1].urgent.first, status);

        /* revoked units are never started; the others are running */
        for (team_unit *unit; (unit = d->lanes[w - 1].sent.first) != NULL; dispatch_over(d, unit, status))
            if (d->hooks.revoke(d->hooks.context, w, unit))
                unit->attempts--;
        while (d->lanes[w - 1].dying.first != NULL)
            dispatch_over(d, d->lanes[w - 1].dying.first, status);
    }
}
