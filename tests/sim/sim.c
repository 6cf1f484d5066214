/* sim.c -- the invented world around the core.  sim.h is the manual. */
#include "tests/sim/sim.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

enum { CHAOS_MS = 40000, PATIENCE_MS = 90000, BEAT_MS = 2000, NETWORK_MS = 25 };

/* splitmix64 (Steele, Lea, Flood 2014): one stream for all chance of a run. */
static uint64_t draw64(sim *s)
{
    uint64_t z = s->seed + ++s->draws * 0x9e3779b97f4a7c15ull;

    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    return z ^ z >> 31;
}

static uint32_t draw(sim *s, uint32_t below)
{
    return (uint32_t)(draw64(s) % below);
}

static bool chance(sim *s, uint32_t percent)
{
    return draw(s, 100) < percent;
}

static bool calm(const sim *s)
{
    return s->now_ms >= s->calm_ms;
}

/* How long a message is on its way: mostly short, at times as long as a busy machine makes it. */
static int64_t transit(sim *s)
{
    return chance(s, 10) ? draw(s, 16 * NETWORK_MS) : 1 + draw(s, NETWORK_MS);
}

static gp_core_id draw_id(sim *s)
{
    uint64_t words[2] = { draw64(s), draw64(s) };
    gp_core_id id;

    memcpy(id.bytes, words, sizeof(id.bytes));
    return id;
}

/* ---- the queue: a binary heap by (time, order) ---- */

static bool before(const sim_happening *a, const sim_happening *b)
{
    return a->at_ms != b->at_ms ? a->at_ms < b->at_ms : a->order < b->order;
}

static void push(sim *s, int64_t at_ms, const sim_happening *happening)
{
    uint32_t i = s->queue_count;

    if (i == SIM_QUEUE) {
        sim_fail(s, "more than %d things are on their way", SIM_QUEUE);
        return;
    }
    s->queue_count++;
    s->queue[i] = *happening;
    s->queue[i].at_ms = at_ms;
    s->queue[i].order = s->order++;
    while (i > 0 && before(&s->queue[i], &s->queue[(i - 1) / 2])) {
        sim_happening swap = s->queue[i];

        s->queue[i] = s->queue[(i - 1) / 2];
        s->queue[(i - 1) / 2] = swap;
        i = (i - 1) / 2;
    }
}

static sim_happening pop(sim *s)
{
    sim_happening first = s->queue[0], last = s->queue[--s->queue_count];
    uint32_t i = 0;

    for (;;) {
        uint32_t child = 2 * i + 1;

        if (child >= s->queue_count)
            break;
        if (child + 1 < s->queue_count && before(&s->queue[child + 1], &s->queue[child]))
            child++;
        if (!before(&s->queue[child], &last))
            break;
        s->queue[i] = s->queue[child];
        i = child;
    }
    s->queue[i] = last;
    return first;
}

static void push_plain(sim *s, int64_t after_ms, sim_what what, uint32_t number)
{
    sim_happening happening = { .what = what, .number = number, .epoch = s->epoch };

    push(s, s->now_ms + after_ms, &happening);
}

/* ---- events for the core ---- */

/* The shell's own word (spawned, died, door): not lost, not from the wire. */
static void tell_core(sim *s, int64_t after_ms, const gp_core_event *event)
{
    sim_happening happening = { .what = SIM_TO_CORE, .epoch = s->epoch, .event = *event };

    push(s, s->now_ms + after_ms, &happening);
}

/* A message: in order per sender.  *out_ms is the sender's. */
static void mail_core(sim *s, int64_t *out_ms, int64_t after_ms, const gp_core_event *event,
                      const gp_core_wish *wish, uint64_t epoch, uint32_t sender)
{
    sim_happening happening = { .what = SIM_TO_CORE, .epoch = s->epoch, .event = *event, .number = sender };

    if (wish != NULL)
        happening.wish = *wish;
    happening.event.epoch = epoch;
    if (s->now_ms + after_ms > *out_ms)
        *out_ms = s->now_ms + after_ms;
    push(s, *out_ms, &happening);
}

static void process_says(sim *s, sim_process *process, int64_t after_ms, gp_core_event event)
{
    event.slot = process->slot;
    event.incarnation = process->incarnation;
    mail_core(s, &process->out_ms, after_ms + transit(s), &event, NULL, process->epoch,
              (uint32_t)(process - s->processes) + 1);
}

static void client_says(sim *s, sim_client *client, gp_core_event event, const gp_core_wish *wish)
{
    event.session = client->session;
    mail_core(s, &client->out_ms, transit(s), &event, wish, s->epoch, 0);
}

/* ---- invented workers ---- */

sim_process *sim_find_process(sim *s, uint32_t slot, uint32_t incarnation)
{
    for (uint32_t i = s->process_count; i-- > 0;) {
        if (s->processes[i].slot == slot && s->processes[i].incarnation == incarnation)
            return &s->processes[i];
    }
    return NULL;
}

static bool device_taken(const sim *s, uint32_t slot)
{
    for (uint32_t i = 0; i < s->process_count; i++) {
        if (s->processes[i].alive && s->processes[i].claims && s->processes[i].slot == slot)
            return true;
    }
    return false;
}

/* Something happens to a worker: its client's lease need not go on as it is. */
static void lease_hurt(sim *s, const sim_process *process)
{
    for (uint32_t i = 0; i < SIM_CLIENTS; i++) {
        if (process->lease != 0 && s->clients[i].lease == process->lease)
            s->clients[i].whole = false;
    }
}

static void process_dies(sim *s, sim_process *process, gp_core_death_kind death, int number)
{
    gp_core_event died = { .kind = GP_CORE_EVENT_WORKER_DIED,
                           .slot = process->slot,
                           .incarnation = process->incarnation,
                           .death = death,
                           .number = number };

    if (!process->alive)
        return;
    process->alive = false;
    s->deaths++;
    lease_hurt(s, process);
    if (process->watched == s->epoch) /* else nobody saw it */
        tell_core(s, draw(s, 50), &died);
}

static void spawn(sim *s, uint32_t slot, uint32_t incarnation)
{
    gp_core_event event = { .kind = GP_CORE_EVENT_WORKER_SPAWNED, .slot = slot, .incarnation = incarnation };
    sim_process *process;

    if (s->process_count == SIM_PROCESSES) {
        sim_fail(s, "%d processes were spawned: the core respawns without end", SIM_PROCESSES);
        return;
    }
    if (!calm(s) && chance(s, 3)) {
        event.kind = GP_CORE_EVENT_WORKER_DIED;
        event.death = GP_CORE_DIED_UNBORN;
        event.number = 11;
        tell_core(s, 0, &event);
        return;
    }
    process = &s->processes[s->process_count++];
    *process = (sim_process){
        .slot = slot, .incarnation = incarnation, .epoch = s->epoch, .watched = s->epoch, .alive = true
    };
    event.pid = (int32_t)s->process_count;
    tell_core(s, 0, &event);
    push_plain(s, 5 + draw(s, 200), SIM_SPAWN_DONE, s->process_count - 1);
}

static void spawn_done(sim *s, sim_process *process)
{
    gp_core_event ready = { .kind = GP_CORE_EVENT_WORKER_READY, .usable = true };

    if (!process->alive || process->hung)
        return;
    if (process->epoch !=
        s->epoch) { /* it was not there yet when the next scheduler looked: refused, it ends */
        process_dies(s, process, GP_CORE_DIED_EXIT, 1);
        return;
    }
    if (!calm(s) && chance(s, 8)) {
        process_dies(s, process, GP_CORE_DIED_EXIT, 1);
        return;
    }
    if (device_taken(s, process->slot)) {
        ready.usable = false;
        ready.reason = "its device is taken by another process";
    }
    process->ready = true;
    process->claims = ready.usable;
    process_says(s, process, 0, ready);
}

static void process_hears(sim *s, sim_process *process, const sim_letter *letter)
{
    gp_core_event answer = { .lease = letter->lease, .generation = letter->generation };

    if (!process->alive || process->hung || process->epoch != s->epoch)
        return;
    switch (letter->kind) {
    case GP_CORE_GRANT:
        if (!process->ready || !process->claims)
            sim_fail(s, "worker %u was granted lease %llu before it was ready", process->slot + 1,
                     (unsigned long long)letter->lease);
        if (process->lease != 0 && process->lease != letter->lease)
            sim_fail(s, "worker %u was granted lease %llu while it holds lease %llu", process->slot + 1,
                     (unsigned long long)letter->lease, (unsigned long long)process->lease);
        if (process->lease == letter->lease && process->generation >= letter->generation)
            sim_fail(s, "worker %u was granted generation %u after %u", process->slot + 1, letter->generation,
                     process->generation);
        answer.kind = GP_CORE_EVENT_WORKER_GRANTED;
        process_says(s, process, process->lease == 0 ? 0 : draw(s, 800), answer);
        process->lease = letter->lease;
        process->generation = letter->generation;
        process->token = letter->token;
        break;
    case GP_CORE_REVOKE:
        process->lease = 0;
        answer.kind = GP_CORE_EVENT_WORKER_REVOKED;
        answer.recycle = chance(s, 30);
        process_says(s, process, chance(s, 5) ? 1200 : draw(s, 100), answer);
        break;
    case GP_CORE_QUIT:
        process_dies(s, process, GP_CORE_DIED_EXIT, 0);
        break;
    default:
        break;
    }
}

/* The next scheduler: what it is told counts from here on. */
static void worker_dials(sim *s, sim_process *process, uint64_t epoch)
{
    gp_core_event ready = { .kind = GP_CORE_EVENT_WORKER_READY,
                            .usable = process->claims,
                            .reason = "its device is taken by another process",
                            .lease = process->lease,
                            .generation = process->generation,
                            .token = process->token };

    if (!process->alive || process->hung || epoch != s->epoch)
        return;
    process->epoch = s->epoch;
    process_says(s, process, 0, ready);
}

/* ---- invented clients ---- */

sim_client *sim_find_client(sim *s, const gp_core_id *session)
{
    for (uint32_t i = 0; i < SIM_CLIENTS; i++) {
        if (s->clients[i].state != SIM_AWAY && gp_core_id_equal(&s->clients[i].session, session))
            return &s->clients[i];
    }
    return NULL;
}

static void client_leaves(sim *s, sim_client *client)
{
    gp_core_event gone = { .kind = GP_CORE_EVENT_CLIENT_GONE, .session = client->session };

    client->state = SIM_AWAY;
    client->whole = false;
    if (client->epoch == s->epoch)        /* else this scheduler never saw it */
        tell_core(s, draw(s, 60), &gone); /* may overtake what it said last */
}

static void client_connects(sim *s, sim_client *client)
{
    gp_core_event connected = { .kind = GP_CORE_EVENT_CLIENT_CONNECTED, .pid = 1000 };

    *client = (sim_client){ .state = SIM_THINKING, .session = draw_id(s), .epoch = s->epoch };
    connected.session = client->session;
    tell_core(s, 0, &connected);
    client->out_ms = s->now_ms + 1;
}

static void client_asks(sim *s, sim_client *client)
{
    gp_core_event ask = { .kind = GP_CORE_EVENT_LEASE_ASK, .correlation = draw64(s) | 1 };
    gp_core_wish wish = { .token = draw_id(s), .description = "simulate" };

    switch (draw(s, 8)) {
    case 0:
        snprintf(wish.devices, sizeof(wish.devices), "%u,%u", 1 + draw(s, s->slot_count),
                 1 + draw(s, s->slot_count));
        break;
    case 1:
        wish.environment = GP_CORE_ONLY_GPU;
        break;
    case 2:
        wish.min = wish.max = 1 + draw(s, s->slot_count + 1);
        break;
    case 3:
    case 4:
        wish.min = 1 + draw(s, s->slot_count);
        wish.max = wish.min + draw(s, 3);
        break;
    case 5:
        wish.no_wait = true;
        break;
    default:
        break;
    }
    client->state = SIM_WAITING;
    client->correlation = ask.correlation;
    client->asked = 0;
    client->lease = 0;
    client->repairing = client->leaving = false;
    client_says(s, client, ask, &wish);
}

static void client_releases(sim *s, sim_client *client)
{
    gp_core_event release = { .kind = GP_CORE_EVENT_LEASE_RELEASE, .correlation = 7, .lease = client->lease };

    client_says(s, client, release, NULL);
    client->state = SIM_THINKING;
    client->whole = false;
}

/* A worker of its lease, or one that it only thinks is: the core must tell them apart. */
static void client_replaces(sim *s, sim_client *client)
{
    gp_core_event replace = { .kind = GP_CORE_EVENT_WORKER_REPLACE,
                              .correlation = 10,
                              .lease = client->lease,
                              .slot = draw(s, s->slot_count),
                              .reason = "its task does not end" };

    client->whole = false;
    replace.incarnation = s->core->slots[replace.slot].incarnation - (chance(s, 25) ? 1 : 0);
    client_says(s, client, replace, NULL);
}

static void client_thinks(sim *s, sim_client *client)
{
    gp_core_event event = { .kind = GP_CORE_EVENT_RESIZE, .correlation = 9, .plan = s->plan };

    if (calm(s) || chance(s, 20)) {
        client_leaves(s, client);
    } else if (chance(s, 8)) {
        event.plan_count = 1 + draw(s, s->slot_count);
        client_says(s, client, event, NULL);
    } else {
        client_asks(s, client);
    }
}

static void client_acts(sim *s, sim_client *client)
{
    gp_core_event leave = { .kind = GP_CORE_EVENT_LEASE_LEAVE, .correlation = 8 };

    push_plain(s, 20 + draw(s, 1500), SIM_CLIENT_ACTS, (uint32_t)(client - s->clients));
    if (client->state != SIM_AWAY && client->epoch != s->epoch) {
        if (!calm(s) && chance(s, 5))
            client_leaves(s, client);
        return; /* it has yet to dial */
    }
    switch (client->state) {
    case SIM_AWAY:
        if (!calm(s))
            client_connects(s, client);
        break;
    case SIM_THINKING:
        client_thinks(s, client);
        break;
    case SIM_WAITING:
        if (!calm(s) && !client->leaving && chance(s, 10)) {
            client_says(s, client, leave, NULL);
            client->leaving = true;
        }
        break;
    case SIM_HOLDING:
        if (!calm(s) && chance(s, 15))
            client_replaces(s, client);
        else if (!client->repairing ||
                 (!calm(s) && chance(s, 20))) /* in calm it waits until it is whole again */
            client_releases(s, client);
        break;
    }
}

/* It knows the next scheduler and is known there. */
static void client_dials(sim *s, sim_client *client, uint64_t epoch)
{
    gp_core_event event = { .kind = GP_CORE_EVENT_CLIENT_CONNECTED, .pid = 1000, .session = client->session };

    if (client->state == SIM_AWAY || epoch != s->epoch || client->epoch == s->epoch)
        return;
    client->epoch = s->epoch;
    client->asked = 0;
    tell_core(s, 0, &event);
    client->out_ms = client->in_ms = s->now_ms + 1;
    if (client->state != SIM_HOLDING) {
        client->state = SIM_THINKING;
        return;
    }
    event = (gp_core_event){ .kind = GP_CORE_EVENT_LEASE_CLAIM,
                             .correlation = 11,
                             .lease = client->lease,
                             .generation = client->generation };
    client_says(s, client, event, NULL);
}

static void client_granted(sim *s, sim_client *client, const sim_letter *letter)
{
    if (letter->correlation == 0 && (client->state != SIM_HOLDING || letter->lease != client->lease))
        return; /* a new formation of a lease that it has just given back */
    if (letter->correlation == 0 && letter->generation <= client->generation)
        sim_fail(s, "a client was told generation %u of lease %llu after %u", letter->generation,
                 (unsigned long long)letter->lease, client->generation);
    if (letter->correlation != 0 &&
        (client->state != SIM_WAITING || letter->correlation != client->correlation))
        sim_fail(s, "a client got lease %llu for an ask that it does not wait for",
                 (unsigned long long)letter->lease);
    if (client->whole)
        sim_fail(s, "lease %llu was formed anew, but nothing had happened to it but the scheduler's death",
                 (unsigned long long)letter->lease);
    client->state = SIM_HOLDING;
    client->lease = letter->lease;
    client->generation = letter->generation;
    client->repairing = false;
    client->claim = (gp_core_claim){ .token = letter->token, .min = 1, .member_count = letter->member_count };
    memcpy(client->claim.members, letter->members, sizeof(letter->members));
}

static void client_loses(sim *s, sim_client *client)
{
    if (client->whole)
        sim_fail(s, "lease %llu ended, but nothing had happened to it but the scheduler's death",
                 (unsigned long long)client->lease);
    client->state = SIM_THINKING;
}

static void client_hears(sim *s, sim_client *client, const sim_letter *letter)
{
    switch (letter->kind) {
    case GP_CORE_LEASE_GRANT:
        client_granted(s, client, letter);
        break;
    case GP_CORE_LEASE_ENDED:
        if (client->state == SIM_HOLDING && client->lease == letter->lease)
            client_loses(s, client);
        break;
    case GP_CORE_WORKER_LOST:
        if (client->state == SIM_HOLDING && client->lease == letter->lease)
            client->repairing = true;
        break;
    case GP_CORE_OK:
        s->claims += letter->correlation == 11;
        if (client->state == SIM_WAITING && client->leaving && letter->correlation == 8)
            client->state = SIM_THINKING;
        break;
    case GP_CORE_ERROR:
        if (letter->correlation == 0) /* the pool has too many clients: it was not let in */
            client->state = SIM_AWAY;
        else if (client->state == SIM_WAITING && letter->correlation == client->correlation)
            client->state = SIM_THINKING;
        else if (client->state == SIM_HOLDING && letter->correlation == 11)
            client_loses(s, client);
        break;
    default:
        break;
    }
}

/* ---- carrying actions out ---- */

static void deliver(sim *s, const gp_core_action *action)
{
    sim_happening happening = { .epoch = s->epoch,
                                .session = action->session,
                                .letter = { .kind = action->kind,
                                            .lease = action->lease,
                                            .correlation = action->correlation,
                                            .generation = action->generation,
                                            .member_count = action->member_count,
                                            .token = action->token } };
    sim_process *process;
    sim_client *client;
    int64_t at_ms = s->now_ms + transit(s);

    memcpy(happening.letter.members, action->members, sizeof(happening.letter.members));
    if (action->kind >= GP_CORE_LEASE_GRANT) {
        client = sim_find_client(s, &action->session);
        if (client == NULL)
            return;
        happening.what = SIM_TO_CLIENT;
        happening.number = (uint32_t)(client - s->clients);
        client->in_ms = at_ms > client->in_ms ? at_ms : client->in_ms;
        push(s, client->in_ms, &happening);
        return;
    }
    process = sim_find_process(s, action->slot, action->incarnation);
    if (process == NULL)
        return; /* it could not be spawned */
    happening.what = SIM_TO_PROCESS;
    happening.number = (uint32_t)(process - s->processes);
    process->in_ms = at_ms > process->in_ms ? at_ms : process->in_ms;
    push(s, process->in_ms, &happening);
}

static void step(sim *s, const gp_core_event *event)
{
    size_t count = gp_core_step(s->core, s->actions, event, s->now_ms);

    s->steps++;
    for (size_t i = 0; i < count; i++) {
        const gp_core_action *action = &s->actions[i];
        sim_process *process;

        sim_check_action(s, action);
        switch (action->kind) {
        case GP_CORE_SPAWN:
            spawn(s, action->slot, action->incarnation);
            break;
        case GP_CORE_KILL:
            process = sim_find_process(s, action->slot, action->incarnation);
            if (process != NULL)
                process_dies(s, process, GP_CORE_DIED_SIGNAL, 9);
            break;
        case GP_CORE_EXIT:
            s->exited = true;
            break;
        case GP_CORE_LOG:
            break;
        default:
            deliver(s, action);
        }
    }
    sim_check_state(s);
}

/* ---- faults ---- */

static void start_scheduler(sim *s)
{
    gp_core_config config = gp_core_config_default();
    gp_error err;

    gp_core_free(s->core);
    s->core = NULL;
    config.epoch = ++s->epoch;
    config.waits_max = 8;
    config.clients_max = SIM_CLIENTS - 2;
    config.idle_ms = 0;
    config.start_ms = 5000;
    config.incarnation_base = (uint32_t)(s->epoch - 1) << 16;
    if (gp_core_new(&s->core, &config, s->plan, s->slot_count, s->now_ms, &err) != GP_OK)
        sim_fail(s, "%s", err.message);
    s->lease_last = 0;
    memset(s->generation_of, 0, sizeof(s->generation_of));
}

/* Whether all that a client was told of its lease is so. */
static bool lease_is_whole(sim *s, const sim_client *client)
{
    for (uint32_t i = 0; i < client->claim.member_count; i++) {
        const gp_core_member *member = &client->claim.members[i];
        const sim_process *process = sim_find_process(s, member->slot, member->incarnation);

        if (process == NULL || !process->alive || process->hung || process->lease != client->lease ||
            process->generation != client->generation)
            return false;
    }
    return client->state == SIM_HOLDING;
}

/* kill -9 of the scheduler: its workers and clients dial the next one, mostly soon. */
static void restart(sim *s)
{
    gp_core_event found = { .kind = GP_CORE_EVENT_WORKER_FOUND };

    s->restarts++;
    start_scheduler(s);
    for (uint32_t i = 0; i < s->process_count; i++) {
        sim_process *process = &s->processes[i];

        if (!process->alive || !process->ready)
            continue;
        process->watched = s->epoch;
        found.slot = process->slot;
        found.incarnation = process->incarnation;
        found.pid = (int32_t)i + 1;
        step(s, &found);
        push_plain(s, draw(s, chance(s, 10) ? 4000 : 300), SIM_WORKER_DIALS, i);
    }
    for (uint32_t i = 0; i < SIM_CLIENTS; i++) {
        sim_client *client = &s->clients[i];
        int64_t after_ms = draw(s, chance(s, 10) ? 5000 : 800);

        client->whole = lease_is_whole(s, client) && after_ms < 1000;
        if (client->state == SIM_HOLDING) { /* its id goes on: see check_grant() */
            s->generation_of[client->lease & 63] = client->lease;
            s->generation_last[client->lease & 63] = 0;
        }
        push_plain(s, after_ms, SIM_CLIENT_DIALS, i);
    }
}

static void chaos(sim *s)
{
    uint32_t hit = draw(s, 100);
    sim_process *process = &s->processes[draw(s, s->process_count == 0 ? 1 : s->process_count)];

    /* Mostly the living: the youngest processes. */
    if (s->process_count > s->slot_count)
        process = &s->processes[s->process_count - 1 - draw(s, s->slot_count)];
    if (hit < 45) {
        process_dies(s, process, GP_CORE_DIED_SIGNAL, 9);
    } else if (hit < 60) {
        s->hangs += process->alive && !process->hung;
        lease_hurt(s, process);
        process->hung = true;
    } else if (hit < 97) {
        sim_client *client = &s->clients[draw(s, SIM_CLIENTS)];

        if (client->state != SIM_AWAY)
            client_leaves(s, client);
    } else {
        restart(s);
    }
    if (!calm(s))
        push_plain(s, 10 + draw(s, chance(s, 40) ? 150 : 1200), SIM_CHAOS, 0); /* troubles come in bursts */
}

static void beats(sim *s)
{
    for (uint32_t i = 0; i < s->process_count; i++) {
        sim_process *process = &s->processes[i];
        gp_core_event beat = { .kind = GP_CORE_EVENT_WORKER_BEAT,
                               .epoch = s->epoch,
                               .slot = process->slot,
                               .incarnation = process->incarnation,
                               .step = s->steps };

        if (process->alive && process->ready && !process->hung && process->epoch == s->epoch)
            step(s, &beat);
    }
    push_plain(s, BEAT_MS, SIM_BEATS, 0);
}

/* ---- the loop ---- */

static void to_core(sim *s, sim_happening *happening)
{
    gp_core_event *event = &happening->event;
    bool wire = event->epoch != 0;

    if (happening->epoch != s->epoch && (!wire || chance(s, 50)))
        return; /* what was on its way to a dead scheduler mostly dies with it */
    if (wire && happening->number != 0 && !s->processes[happening->number - 1].alive && chance(s, 50))
        return; /* and so does what a dead worker had said */
    if (event->kind == GP_CORE_EVENT_LEASE_ASK) {
        sim_client *client = sim_find_client(s, &event->session);

        event->wish = &happening->wish;
        if (client != NULL)
            client->asked = ++s->asks;
    }
    if (event->kind == GP_CORE_EVENT_LEASE_CLAIM) {
        sim_client *client = sim_find_client(s, &event->session);

        if (client == NULL)
            return;
        event->claim = &client->claim;
    }
    step(s, event);
}

static void happen(sim *s, sim_happening *happening)
{
    sim_client *client = &s->clients[happening->number % SIM_CLIENTS];
    sim_process *process = &s->processes[happening->number % SIM_PROCESSES];

    switch (happening->what) {
    case SIM_TO_CORE:
        to_core(s, happening);
        break;
    case SIM_TO_PROCESS:
        if (happening->epoch == s->epoch)
            process_hears(s, process, &happening->letter);
        break;
    case SIM_TO_CLIENT:
        if (happening->epoch == s->epoch && client->state != SIM_AWAY &&
            gp_core_id_equal(&client->session, &happening->session))
            client_hears(s, client, &happening->letter);
        break;
    case SIM_SPAWN_DONE:
        spawn_done(s, process);
        break;
    case SIM_CLIENT_ACTS:
        client_acts(s, client);
        break;
    case SIM_CHAOS:
        chaos(s);
        break;
    case SIM_BEATS:
        beats(s);
        break;
    case SIM_WORKER_DIALS:
        worker_dials(s, process, happening->epoch);
        break;
    case SIM_CLIENT_DIALS:
        client_dials(s, client, happening->epoch);
        break;
    }
}

/* The next thing that happens: the core's own timer or the head of the queue. */
static void advance(sim *s)
{
    gp_core_event tick = { .kind = GP_CORE_EVENT_TICK };
    int64_t due_ms = gp_core_due(s->core);
    sim_happening happening;

    if (due_ms < s->now_ms)
        due_ms = s->now_ms;
    if (s->queue_count == 0 || due_ms <= s->queue[0].at_ms) {
        s->ticks_here = due_ms == s->now_ms ? s->ticks_here + 1 : 0;
        if (s->ticks_here > 100)
            sim_fail(s, "the timer rings again and again at %lld ms", (long long)s->now_ms);
        s->now_ms = due_ms;
        step(s, &tick);
        return;
    }
    happening = pop(s);
    s->now_ms = happening.at_ms;
    happen(s, &happening);
}

static void check_end(sim *s)
{
    gp_core_event end = { .kind = GP_CORE_EVENT_SHUTDOWN };
    int64_t until_ms = s->now_ms + 5000;

    step(s, &end);
    while (s->failure[0] == '\0' && !s->exited && s->now_ms < until_ms)
        advance(s);
    if (!s->exited)
        sim_fail(s, "the scheduler was told to end and did not within 5 s");
    for (uint32_t i = 0; i < s->process_count; i++) {
        if (s->processes[i].alive && s->processes[i].watched == s->epoch)
            sim_fail(s, "the scheduler ended and left worker %u (incarnation %u) behind",
                     s->processes[i].slot + 1, s->processes[i].incarnation);
    }
}

bool sim_run(sim *s, uint64_t seed)
{
    sim_happening *queue = s->queue;
    gp_core_action *actions = s->actions;
    char why[480] = "";

    memset(s, 0, sizeof(*s));
    s->queue = queue;
    s->actions = actions;
    s->seed = seed;
    s->slot_count = 1 + draw(s, SIM_SLOTS);
    s->calm_ms = CHAOS_MS;
    for (uint32_t i = 0; i < s->slot_count; i++) {
        s->plan[i].kind = chance(s, 20) ? GP_CORE_GPU : GP_CORE_CPU;
        s->plan[i].device_index = i;
        snprintf(s->plan[i].label, sizeof(s->plan[i].label), "cpu cores %u", i);
    }
    start_scheduler(s);
    for (uint32_t i = 0; i < SIM_CLIENTS; i++)
        push_plain(s, draw(s, 3000), SIM_CLIENT_ACTS, i);
    push_plain(s, 500, SIM_CHAOS, 0);
    push_plain(s, BEAT_MS, SIM_BEATS, 0);
    while (s->failure[0] == '\0' && s->now_ms < s->calm_ms)
        advance(s);
    while (s->failure[0] == '\0' && !sim_settled(s, why)) {
        if (s->now_ms > s->calm_ms + PATIENCE_MS)
            sim_fail(s, "%d s after the last fault %s", PATIENCE_MS / 1000, why);
        advance(s);
    }
    if (s->failure[0] == '\0')
        check_end(s);
    gp_core_free(s->core);
    s->core = NULL;
    return s->failure[0] == '\0';
}
