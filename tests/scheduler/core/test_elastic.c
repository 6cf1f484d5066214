/* Test one training against the scheduler core: membership.c controls the training, resize.c and
 * group.c its lease. Simulated workers fail and return, another client resizes the lease, and
 * messages arrive in any order that the links allow.
 *
 * Checked at each training step: the group equals one formation of the lease, no other lease has
 * its workers, the state is never older than a reported step, and the group never waits for an
 * unprepared worker. Finally the training has all workers. */
#include "client/train/membership.h"
#include "scheduler/core/core_parts.h"
#include "tests/gp_test.h"

enum { SLOTS = 4, QUEUE = 512, CHAOS = 400, CALM = 6000 };

typedef struct process {
    bool alive;
    uint32_t incarnation, generation; /* generation of lease 1; 0: none */
    uint32_t begun;                   /* generation of the received train_begin; 0: none */
    bool ready, pause, prepared;
    int64_t state; /* step of the worker's state; -1: no state */
} process;

typedef enum letter_kind { TO_CORE, FROM_CORE, TO_WORKER, FROM_WORKER } letter_kind;

typedef struct letter {
    letter_kind kind;
    gp_core_event event;   /* to the core */
    gp_core_action action; /* from the core to a client or worker */
    membership_event said; /* to the client */
    uint32_t slot, incarnation, generation;
} letter;

typedef struct link {
    letter *letters;
    uint32_t first, count;
} link;

/* A link per direction and pair: client and core, core and each worker, each worker and
 * client. */
enum {
    CLIENT_CORE,
    CORE_CLIENT,
    WORKER_CORE,
    CORE_WORKER = WORKER_CORE + SLOTS,
    WORKER_CLIENT = CORE_WORKER + SLOTS,
    CLIENT_WORKER = WORKER_CLIENT + SLOTS,
    LINKS = CLIENT_WORKER + SLOTS
};

typedef struct world {
    uint64_t random;
    int64_t now;
    gp_core *core;
    gp_core_action *actions;
    process processes[SLOTS];
    link links[LINKS];
    membership r;
    bool alarm, failed;
    /* granted: last grant received; group: grant that the client is attached to */
    gp_core_action granted;
    gp_core_action group;
    bool regranted, begin_due;
    uint32_t lost; /* slot + 1 of the first member reported lost since then; 0: none */
    bool lost_reported;
    uint32_t change;
    bool change_asked;
    gp_core_action changed; /* notification with the joining workers */
    /* masks of joining workers that were asked to prepare, and that are prepared */
    uint64_t asked, prepared;
    uint32_t named[SLOTS]; /* incarnations of the workers named in the last lease_form */
    int64_t reported;      /* last reported step */
    uint32_t kills, regroups;
} world;

static const gp_core_id trainer = { .bytes = { 1 } }, other = { .bytes = { 2 } };

static uint32_t draw(world *w, uint32_t below)
{
    w->random = w->random * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)(w->random >> 33) % below;
}

static void post(world *w, uint32_t to, const letter *l)
{
    link *k = &w->links[to];

    if (k->count == QUEUE) {
        GP_TEST_FAIL("link %u is full", to);
        w->failed = true;
        return;
    }
    k->letters[(k->first + k->count++) % QUEUE] = *l;
}

static void core_receives(world *w, const gp_core_event *event);

static void worker_says(world *w, uint32_t slot, gp_core_event_kind kind, uint64_t lease, uint32_t generation)
{
    post(w, WORKER_CORE + slot,
         &(letter){ .kind = TO_CORE,
                    .event = { .kind = kind,
                               .slot = slot,
                               .incarnation = w->processes[slot].incarnation,
                               .lease = lease,
                               .generation = generation,
                               .usable = true } });
}

static void worker_tells(world *w, uint32_t slot, uint32_t generation, membership_event said)
{
    post(w, WORKER_CLIENT + slot,
         &(letter){ .kind = FROM_WORKER, .slot = slot, .generation = generation, .said = said });
}

static uint32_t rank_in(const gp_core_action *group, uint32_t slot)
{
    uint32_t rank = 0;

    while (rank < group->member_count && group->members[rank].slot != slot)
        rank++;
    return rank;
}

/* End the worker's part in the group. The worker keeps the state. */
static void worker_ends(world *w, uint32_t slot, membership_end end)
{
    process *p = &w->processes[slot];

    if (p->begun == 0)
        return;
    worker_tells(
        w, slot, p->begun,
        (membership_event){ .kind = MEMBERSHIP_ENDED, .rank = rank_in(&w->group, slot), .end = end });
    p->begun = 0;
    p->ready = p->pause = false;
}

static void worker_receives(world *w, const letter *l)
{
    process *p = &w->processes[l->slot];

    if (!p->alive || p->incarnation != l->incarnation)
        return;
    if (l->kind == TO_WORKER) { /* from the client */
        if (l->generation != p->generation)
            return; /* refused */
        if (l->said.kind == MEMBERSHIP_CHANGE) {
            p->pause = p->begun != 0;
        } else if (l->said.kind == MEMBERSHIP_PREPARED) {
            p->prepared = true;
            worker_tells(w, l->slot, p->generation, (membership_event){ .kind = MEMBERSHIP_PREPARED });
        } else {
            p->begun = l->generation;
        }
        return;
    }
    switch (l->action.kind) {
    case GP_CORE_GRANT:
        if (l->action.lease != 1)
            break;
        worker_ends(w, l->slot, MEMBERSHIP_FAILED);
        p->generation = l->action.generation;
        worker_says(w, l->slot, GP_CORE_EVENT_WORKER_GRANTED, 1, p->generation);
        return;
    case GP_CORE_PEER_LOST:
        worker_ends(w, l->slot, MEMBERSHIP_FAILED);
        return;
    case GP_CORE_REVOKE:
        p->begun = p->generation = 0;
        p->prepared = false;
        p->state = -1;
        worker_says(w, l->slot, GP_CORE_EVENT_WORKER_REVOKED, l->action.lease, 0);
        return;
    default:
        return;
    }
    worker_says(w, l->slot, GP_CORE_EVENT_WORKER_GRANTED, l->action.lease, l->action.generation);
}

/* ---- the client, like train_recover.c ---- */

static uint64_t newcomers(const world *w)
{
    uint64_t mask = 0;

    for (uint32_t i = 0; i < w->changed.member_count; i++)
        mask |= 1ull << w->changed.members[i].slot;
    return mask;
}

static void ask_newcomers(world *w)
{
    for (uint32_t i = 0; i < w->changed.member_count; i++) {
        const gp_core_member *m = &w->changed.members[i];

        if ((w->asked >> m->slot & 1) != 0)
            continue;
        w->asked |= 1ull << m->slot;
        post(w, CLIENT_WORKER + m->slot,
             &(letter){ .kind = TO_WORKER,
                        .slot = m->slot,
                        .incarnation = m->incarnation,
                        .generation = w->group.generation,
                        .said = { .kind = MEMBERSHIP_PREPARED } });
    }
}

static void client_does(world *w, const membership_event *event)
{
    membership_action actions[MEMBERSHIP_ACTIONS_MAX];
    size_t count = membership_step(&w->r, event, actions);

    for (size_t i = 0; i < count; i++) {
        letter l = {
            .kind = TO_CORE,
            .event = { .session = trainer, .correlation = 5, .lease = 1, .generation = w->granted.generation }
        };
        const gp_core_member *first = &w->group.members[0];

        switch (actions[i].kind) {
        case MEMBERSHIP_DO_PREPARE:
            ask_newcomers(w);
            break;
        case MEMBERSHIP_DO_PAUSE:
            post(w, CLIENT_WORKER + first->slot,
                 &(letter){ .kind = TO_WORKER,
                            .slot = first->slot,
                            .incarnation = first->incarnation,
                            .generation = w->group.generation,
                            .said = { .kind = MEMBERSHIP_CHANGE } });
            break;
        case MEMBERSHIP_DO_FORM:
            l.event.kind = GP_CORE_EVENT_LEASE_FORM;
            l.event.joining = w->prepared;
            for (uint32_t n = 0; n < w->changed.member_count; n++)
                w->named[w->changed.members[n].slot] = w->changed.members[n].incarnation;
            post(w, CLIENT_CORE, &l);
            break;
        case MEMBERSHIP_DO_KEEP:
            l.event.kind = GP_CORE_EVENT_LEASE_RESIZE;
            l.event.workers = actions[i].workers;
            post(w, CLIENT_CORE, &l);
            break;
        case MEMBERSHIP_DO_START:
            w->begin_due = true;
            break;
        case MEMBERSHIP_DO_RESUME:
            w->regroups++;
            break;
        case MEMBERSHIP_DO_ALARM:
            w->alarm = actions[i].ms != 0;
            break;
        case MEMBERSHIP_DO_FAIL:
            GP_TEST_FAIL("it failed: %d", (int)actions[i].why);
            w->failed = true;
            break;
        }
    }
}

static void client_watches(world *w)
{
    if (w->lost != 0 && !w->lost_reported) {
        w->lost_reported = true;
        client_does(w,
                    &(membership_event){ .kind = MEMBERSHIP_LOST, .rank = rank_in(&w->group, w->lost - 1) });
    }
    if (w->regranted && !w->r.granted && !w->begin_due)
        client_does(w, &(membership_event){ .kind = MEMBERSHIP_GRANT, .workers = w->granted.member_count });
    if (w->change != 0 && !w->regranted) {
        /* close the links to workers that are no longer named */
        for (uint32_t s = 0; s < SLOTS; s++)
            if ((w->asked & ~newcomers(w)) >> s & 1)
                w->links[WORKER_CLIENT + s].count = w->links[CLIENT_WORKER + s].count = 0;
        w->asked &= newcomers(w);
        w->prepared &= newcomers(w);
        client_does(w, &(membership_event){ .kind = MEMBERSHIP_CHANGE,
                                            .workers = w->change,
                                            .asked = w->change_asked,
                                            .prepared = (uint32_t)__builtin_popcountll(w->prepared) });
        w->change = 0;
    }
    if (!w->begin_due)
        return;
    w->begin_due = w->regranted = w->lost_reported = false;
    w->lost = 0;
    w->asked = w->prepared = 0;
    w->group = w->granted;
    for (uint32_t s = 0; s < SLOTS; s++) /* close the old links */
        w->links[WORKER_CLIENT + s].count = w->links[CLIENT_WORKER + s].count = 0;
    client_does(w, &(membership_event){ .kind = MEMBERSHIP_ATTACHED, .workers = w->group.member_count });
    for (uint32_t rank = 0; rank < w->group.member_count; rank++)
        post(w, CLIENT_WORKER + w->group.members[rank].slot,
             &(letter){ .kind = TO_WORKER,
                        .slot = w->group.members[rank].slot,
                        .incarnation = w->group.members[rank].incarnation,
                        .generation = w->group.generation,
                        .said = { .kind = MEMBERSHIP_READY } });
}

static void client_receives(world *w, const letter *l)
{
    const gp_core_action *a = &l->action;

    if (l->kind == FROM_WORKER) {
        if (l->generation != w->group.generation)
            return;
        if (l->said.kind == MEMBERSHIP_PREPARED) {
            w->prepared |= 1ull << l->slot & newcomers(w);
            client_does(w, &(membership_event){ .kind = MEMBERSHIP_PREPARED,
                                                .prepared = (uint32_t)__builtin_popcountll(w->prepared) });
        } else {
            client_does(w, &l->said);
        }
    } else if (a->kind == GP_CORE_LEASE_GRANT && a->generation > w->granted.generation) {
        w->granted = *a;
        w->regranted = true;
        w->change = 0;
    } else if (a->kind == GP_CORE_WORKER_LOST && w->lost == 0) {
        w->lost = a->lost_slot + 1;
    } else if (a->kind == GP_CORE_LEASE_CHANGE && a->generation == w->granted.generation) {
        w->change = a->workers;
        w->change_asked = a->asked;
        w->changed = *a;
    } else if (a->kind == GP_CORE_LEASE_ENDED) {
        GP_TEST_FAIL("the lease ended: %s", a->text);
        w->failed = true;
    }
}

/* ---- the scheduler's shell ---- */

static void shell_does(world *w, const gp_core_action *a)
{
    letter l = { .kind = FROM_CORE, .action = *a, .slot = a->slot, .incarnation = a->incarnation };

    switch (a->kind) {
    case GP_CORE_SPAWN:
        w->processes[a->slot] = (process){ .alive = true, .incarnation = a->incarnation, .state = -1 };
        worker_says(w, a->slot, GP_CORE_EVENT_WORKER_READY, 0, 0);
        break;
    case GP_CORE_GRANT:
    case GP_CORE_REVOKE:
    case GP_CORE_PEER_LOST:
        post(w, CORE_WORKER + a->slot, &l);
        break;
    case GP_CORE_KILL:
        GP_TEST_FAIL("a worker was killed: %s", w->core->slots[a->slot].reason);
        w->failed = true;
        break;
    default:
        if (a->kind >= GP_CORE_LEASE_GRANT && gp_core_id_equal(&a->session, &trainer))
            post(w, CORE_CLIENT, &l);
    }
}

static void core_receives(world *w, const gp_core_event *event)
{
    size_t count = gp_core_step(w->core, w->actions, event, w->now);

    for (size_t i = 0; i < count; i++)
        shell_does(w, &w->actions[i]);
}

/* ---- events ---- */

/* Return whether all ranks are in the group. They agree on the furthest state, which must not be
 * older than a reported step. */
static bool group_meets(world *w, bool *pauses)
{
    int64_t furthest = 0;

    *pauses = false;
    for (uint32_t rank = 0; rank < w->group.member_count; rank++) {
        const gp_core_member *m = &w->group.members[rank];
        const process *p = &w->processes[m->slot];

        if (!p->alive || p->incarnation != m->incarnation || p->begun != w->group.generation ||
            p->generation != w->group.generation)
            return false;
        furthest = p->state > furthest ? p->state : furthest;
        *pauses = *pauses || p->pause;
    }
    for (uint32_t rank = 0; rank < w->group.member_count; rank++) {
        uint32_t slot = w->group.members[rank].slot;

        if (w->processes[slot].ready)
            continue;
        /* Except the successor of a worker that exited after it was named. */
        if (w->processes[slot].state < 0 && !w->processes[slot].prepared && furthest > 0 &&
            (w->named[slot] == 0 || w->named[slot] == w->processes[slot].incarnation))
            GP_TEST_FAIL("worker %u joined at step %d without preparation", slot + 1, (int)furthest);
        w->processes[slot].ready = true;
        w->processes[slot].state = furthest;
        worker_tells(
            w, slot, w->group.generation,
            (membership_event){ .kind = MEMBERSHIP_READY, .rank = rank, .step = (uint64_t)furthest });
    }
    if (furthest < w->reported)
        GP_TEST_FAIL("step %d was reported, but the group starts at %d", (int)w->reported, (int)furthest);
    return true;
}

static void take_step(world *w)
{
    bool pauses;

    if (w->group.member_count == 0 || !group_meets(w, &pauses))
        return;
    for (uint32_t rank = 0; rank < w->group.member_count; rank++) {
        uint32_t slot = w->group.members[rank].slot;

        if (w->core->slots[slot].lease != 1)
            GP_TEST_FAIL("worker %u trains, but its slot belongs to lease %d", slot + 1,
                         (int)w->core->slots[slot].lease);
        w->reported = ++w->processes[slot].state;
        if (rank == 0)
            worker_tells(w, slot, w->group.generation,
                         (membership_event){ .kind = MEMBERSHIP_STEP, .step = (uint64_t)w->reported });
        if (pauses)
            worker_ends(w, slot, MEMBERSHIP_PAUSED);
    }
}

/* Kill a worker, but never the last one with the state. */
static void kill_one(world *w)
{
    uint32_t slot = draw(w, SLOTS), having = 0;
    process *p = &w->processes[slot];

    for (uint32_t s = 0; s < SLOTS; s++)
        having += s != slot && w->processes[s].alive && w->processes[s].state >= w->reported &&
                  w->core->slots[s].lease == 1 && w->core->slots[s].revoking == 0;
    if (!p->alive || having == 0 || w->core->leases[0].want <= 1)
        return;
    w->kills++;
    p->alive = false;
    w->links[CORE_WORKER + slot].count = 0;
    post(w, WORKER_CORE + slot,
         &(letter){ .kind = TO_CORE,
                    .event = { .kind = GP_CORE_EVENT_WORKER_DIED,
                               .slot = slot,
                               .incarnation = p->incarnation,
                               .death = GP_CORE_DIED_SIGNAL,
                               .number = 9 } });
}

static bool deliver(world *w)
{
    uint32_t from = draw(w, LINKS);

    for (uint32_t i = 0; i < LINKS; i++) {
        link *k = &w->links[(from + i) % LINKS];

        if (k->count == 0)
            continue;
        letter l = k->letters[k->first];

        k->first = (k->first + 1) % QUEUE;
        k->count--;
        w->now += 1;
        if (l.kind == TO_CORE)
            core_receives(w, &l.event);
        else if (l.kind == TO_WORKER || l.action.kind < GP_CORE_LEASE_GRANT) {
            if (l.kind == FROM_WORKER)
                client_receives(w, &l);
            else
                worker_receives(w, &l);
        } else
            client_receives(w, &l);
        return true;
    }
    return false;
}

static void happen(world *w, bool chaos)
{
    uint32_t what = draw(w, 100);

    if (chaos && what < 4)
        kill_one(w);
    else if (chaos && what < 8)
        core_receives(w, &(gp_core_event){ .kind = GP_CORE_EVENT_LEASE_RESIZE,
                                           .session = other,
                                           .correlation = 6,
                                           .lease = 1,
                                           .workers = 2 + draw(w, SLOTS - 1) });
    else if (what < 30)
        take_step(w);
    else if (!deliver(w)) {
        bool pauses;

        if (w->group.member_count == 0 || !group_meets(w, &pauses)) {
            w->now = gp_core_due(w->core);
            core_receives(w, &(gp_core_event){ .kind = GP_CORE_EVENT_TICK });
            for (uint32_t s = 0; s < SLOTS; s++) /* all workers are alive */
                core_receives(w, &(gp_core_event){ .kind = GP_CORE_EVENT_WORKER_BEAT,
                                                   .slot = s,
                                                   .incarnation = w->core->slots[s].incarnation });
            if (w->alarm && draw(w, 4) == 0) {
                w->alarm = false;
                if (w->r.granted) /* here, the next generation never times out */
                    client_does(w, &(membership_event){ .kind = MEMBERSHIP_LATE });
            }
        }
    }
    client_watches(w);
}

static void world_run(uint64_t seed)
{
    gp_core_config config = gp_core_config_default();
    gp_core_slot_config plan[SLOTS] = { 0 };
    gp_core_wish wish = { .min = 2, .max = SLOTS, .floor = 1, .description = "train" };
    world *w = gp_calloc(1, sizeof(*w));
    gp_error err;

    w->random = seed * 0x9e3779b97f4a7c15ull + 1;
    w->now = 1000;
    config.beat_ms = config.idle_ms = 0;
    for (uint32_t i = 0; i < LINKS; i++)
        w->links[i].letters = gp_calloc(QUEUE, sizeof(letter));
    REQUIRE_OK(gp_core_new(&w->core, &config, plan, SLOTS, w->now, &err), err);
    w->actions = gp_calloc(gp_core_actions_max(w->core), sizeof(*w->actions));
    core_receives(w, &(gp_core_event){ .kind = GP_CORE_EVENT_TICK });
    core_receives(w, &(gp_core_event){ .kind = GP_CORE_EVENT_CLIENT_CONNECTED, .session = trainer });
    core_receives(w, &(gp_core_event){ .kind = GP_CORE_EVENT_CLIENT_CONNECTED, .session = other });
    core_receives(w,
                  &(gp_core_event){
                      .kind = GP_CORE_EVENT_LEASE_ASK, .session = trainer, .correlation = 4, .wish = &wish });
    while (w->granted.generation == 0 && deliver(w))
        ;
    membership_init(&w->r, w->granted.member_count, 1000000);
    w->begin_due = true;
    client_watches(w);
    for (int i = 0; i < CHAOS && !w->failed; i++)
        happen(w, true);
    core_receives(w, &(gp_core_event){ .kind = GP_CORE_EVENT_LEASE_RESIZE,
                                       .session = other,
                                       .correlation = 6,
                                       .lease = 1,
                                       .workers = SLOTS });
    int64_t reported = w->reported;
    int left = CALM;

    while (left-- > 0 && !w->failed &&
           (w->reported < reported + 20 || w->r.phase != MEMBERSHIP_STEPS || w->r.world != SLOTS))
        happen(w, false);
    if (left <= 0 || w->failed)
        GP_TEST_FAIL(
            "seed %d: phase %d, %u workers, step %d of %d, lease phase %d formed %x members %x want %u",
            (int)seed, (int)w->r.phase, w->r.world, (int)w->reported, (int)reported + 20,
            (int)w->core->leases[0].phase, (unsigned)w->core->leases[0].formed,
            (unsigned)w->core->leases[0].members, w->core->leases[0].want);
    CHECK(w->regroups > 0 && w->kills > 0);
    for (uint32_t i = 0; i < LINKS; i++)
        gp_free(w->links[i].letters);
    gp_core_free(w->core);
    gp_free(w->actions);
    gp_free(w);
}

TEST(training_survives_worker_failures_and_resizes)
{
    const char *one = getenv("GP_ELASTIC_SEED");

    for (uint64_t seed = 1; one == NULL && seed <= 200; seed++)
        world_run(seed);
    if (one != NULL)
        world_run(strtoull(one, NULL, 10));
}
