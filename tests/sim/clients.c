/* Simulated users: they request workers, hold and release them, or exit. */
#include <string.h>

#include "tests/sim/cluster.h"

static uint32_t number_of(const sim *s, const sim_client *client)
{
    return (uint32_t)(client - s->clients);
}

static gp_core_id draw_id(sim_dice *dice)
{
    uint64_t words[2] = { sim_draw64(dice), sim_draw64(dice) };
    gp_core_id id;

    memcpy(id.bytes, words, sizeof(id.bytes));
    return id;
}

sim_client *sim_find_client(sim *s, const gp_core_id *session)
{
    for (uint32_t i = 0; i < SIM_CLIENTS; i++) {
        if (s->clients[i].state != SIM_AWAY && gp_core_id_equal(&s->clients[i].session, session))
            return &s->clients[i];
    }
    return NULL;
}

void sim_lease_hurt(sim *s, uint64_t lease)
{
    for (uint32_t i = 0; i < SIM_CLIENTS; i++) {
        if (lease != 0 && s->clients[i].lease == lease)
            s->clients[i].whole = false;
    }
}

/* Return whether a member may have left an elastic lease without the knowledge of the client, which
 * has requested another formation. */
static bool has_let_go(const sim_client *client, uint32_t rank)
{
    if (client->elastic)
        return client->forming != 0 && rank >= client->forming;
    return client->trains && client->training.r.phase == MEMBERSHIP_WAIT;
}

bool sim_lease_is_whole(sim *s, const sim_client *client)
{
    uint32_t members = 0;

    for (uint32_t i = 0; i < client->claim.member_count; i++) {
        const gp_core_member *member = &client->claim.members[i];
        const sim_process *process = sim_find_process(s, member->slot, member->incarnation);

        if (process != NULL && process->lease != client->lease && client->floor != 0 && has_let_go(client, i))
            continue;
        if (process == NULL || !process->alive || process->gate.until_us > s->now_us || process->fuse != 0 ||
            process->out_us > s->now_us + 500 * MS || process->lease != client->lease ||
            (process->generation != client->generation && client->floor == 0))
            return false;
        members++;
    }
    return client->state == SIM_HOLDING && members >= client->floor && !client->broken &&
           client->gate.until_us <= s->now_us && client->fuse == 0 &&
           client->out_us <= s->now_us + 500 * MS && s->now_us >= s->slow_until_us;
}

/* ---- messages to the scheduler ---- */

static void client_posts(sim *s, sim_client *client, const gp_core_event *event, const gp_core_wish *wish)
{
    int64_t at_us = s->now_us + sim_transit(s);
    sim_happening *h;

    if (at_us > client->out_us)
        client->out_us = at_us;
    h = sim_push_at(s, client->out_us, SIM_TO_CORE, 0);
    h->link = client->link;
    h->core.event = *event;
    h->core.event.session = client->session;
    h->core.event.epoch = s->epoch;
    if (wish != NULL)
        h->core.wish = *wish;
}

void sim_client_posts(sim *s, sim_client *client, const gp_core_event *event)
{
    if (s->up && client->epoch == s->epoch)
        client_posts(s, client, event, NULL);
}

static void client_says(sim *s, sim_client *client, const gp_core_event *event, const gp_core_wish *wish)
{
    client_posts(s, client, event, wish);
    sim_client_burns(s, client);
}

bool sim_client_burns(sim *s, sim_client *client)
{
    if (client->fuse == 0 || --client->fuse > 0)
        return false;
    sim_client_leaves(s, client);
    return true;
}

void sim_client_leaves(sim *s, sim_client *client)
{
    gp_core_event gone = { .kind = GP_CORE_EVENT_CLIENT_GONE, .session = client->session };

    sim_note(s, "client-leaves", number_of(s, client), 0, 0);
    sim_team_dies(s, client);
    client->trains = false;
    client->state = SIM_AWAY;
    client->whole = false;
    client->fuse = 0;
    sim_gate_open(&client->gate);
    if (s->up &&
        /* otherwise this scheduler never knew the client; the event may overtake earlier
         * messages */
        client->epoch == s->epoch)
        sim_push(s, sim_draw(&client->dice, 60 * MS), SIM_TO_CORE, 0)->core.event = gone;
}

/* Report a new client, as the control socket of the real shell does. */
static void connect_to_core(sim *s, const sim_client *client, const gp_core_event *connected)
{
    sim_happening *h = sim_push(s, 0, SIM_TO_CORE, 0);

    h->link = client->link;
    h->core.event = *connected;
}

static void client_connects(sim *s, sim_client *client)
{
    gp_core_event connected = { .kind = GP_CORE_EVENT_CLIENT_CONNECTED, .pid = 1000 };
    sim_dice dice = client->dice;
    uint32_t link = client->link + 1;
    sim_gate gate = client->gate;
    int64_t pump_us = client->pump_us;

    memset(client, 0, sizeof(*client));
    client->session = draw_id(&dice);
    client->dice = dice;
    client->link = link;
    client->gate = gate;
    client->pump_us = pump_us;
    client->state = SIM_THINKING;
    client->serial = ++s->sessions;
    client->epoch = s->epoch;
    connected.session = client->session;
    connect_to_core(s, client, &connected);
    client->out_us = s->now_us + MS;
}

/* Return whether the run consists mainly of long trainings that are resized: one run in three. */
bool sim_trains_mostly(const sim *s)
{
    return s->script.seed % 3 == 1;
}

/* Return whether leases and calls have needs: one run in five. */
static bool has_needs(const sim *s)
{
    return s->script.seed % 5 == 4;
}

uint32_t sim_tag_of(const sim *s, uint32_t slot)
{
    return has_needs(s) ? (uint32_t)(s->script.seed / 5 + slot) % 3 : 0;
}

gp_resource_table sim_tag(uint32_t amount)
{
    return amount == 0 ? (gp_resource_table){ .count = 0 }
                       : (gp_resource_table){ .count = 1, .at = { { "tag", amount } } };
}

/* Return whether most clients are elastic teams: one run in three. */
static bool teams_mostly(const sim *s)
{
    return s->script.seed % 3 == 2;
}

static void client_asks(sim *s, sim_client *client)
{
    sim_dice *dice = &client->dice;
    uint32_t slots = s->script.slots;
    gp_core_event ask = { .kind = GP_CORE_EVENT_LEASE_ASK, .correlation = sim_draw64(dice) | 1 };
    gp_core_wish wish = { .token = draw_id(dice), .description = "simulate" };

    switch (sim_draw(dice, 8)) {
    case 0:
        snprintf(wish.devices, sizeof(wish.devices), "%u,%u", 1 + sim_draw(dice, slots),
                 1 + sim_draw(dice, slots));
        break;
    case 1:
        wish.environment = GP_CORE_ONLY_GPU;
        break;
    case 2:
        wish.min = wish.max = 1 + sim_draw(dice, slots + 1);
        break;
    case 3:
    case 4:
        wish.min = 1 + sim_draw(dice, slots);
        wish.max = wish.min + sim_draw(dice, 3);
        break;
    case 5:
        wish.no_wait = true;
        break;
    default:
        break;
    }
    client->trains = sim_chance(dice, sim_trains_mostly(s) ? 90 : teams_mostly(s) ? 10 : 30);
    client->floor = 0;
    if (client->trains && sim_chance(dice, 80)) /* elastic lease */
        client->floor = wish.floor = wish.max == 0 ? 1 + sim_draw(dice, 2) : 1 + sim_draw(dice, wish.max);
    client->elastic = wish.team =
        !client->trains && wish.devices[0] == '\0' && sim_chance(dice, teams_mostly(s) ? 90 : 30);
    if (client->elastic && teams_mostly(s))
        wish.max = 0;
    if (client->elastic)
        client->floor = wish.floor = wish.min = wish.min == 0 || wish.max == 0 ? 1 : wish.min;
    client->state = SIM_WAITING;
    client->correlation = ask.correlation;
    /* without a throw of the dice: runs without needs do not change */
    client->tag = has_needs(s) && ask.correlation % 3 == 0 ? 1 + (ask.correlation >> 8 & 1) : 0;
    wish.needs = sim_tag(client->tag);
    client->asked = 0;
    client->suspects = 0;
    client->lease = 0;
    client->repairing = client->leaving = false;
    client_says(s, client, &ask, &wish);
}

static void client_releases(sim *s, sim_client *client)
{
    gp_core_event release = { .kind = GP_CORE_EVENT_LEASE_RELEASE, .correlation = 7, .lease = client->lease };

    sim_team_close(s, client, GP_ECANCELED);
    client->trains = false;
    client->state = SIM_THINKING;
    client->whole = false;
    client_says(s, client, &release, NULL);
}

/* Ask to replace a worker of the client's lease, or one that the client wrongly believes to be a
 * member. The core must distinguish them. */
void sim_client_replaces(sim *s, sim_client *client, uint32_t slot, uint32_t incarnation)
{
    gp_core_event replace = { .kind = GP_CORE_EVENT_WORKER_REPLACE,
                              .correlation = 10,
                              .lease = client->lease,
                              .slot = slot,
                              .incarnation = incarnation,
                              .reason = "its task does not end" };

    client->whole = false;
    /* called from within the dispatch, so the client must not be killed here */
    sim_client_posts(s, client, &replace);
}

static void client_replaces_any(sim *s, sim_client *client)
{
    uint32_t slot = sim_draw(&client->dice, s->script.slots);

    sim_client_replaces(s, client, slot,
                        s->core->slots[slot].incarnation - (sim_chance(&client->dice, 25) ? 1 : 0));
}

/* ---- user actions ---- */

/* Resize a training of any client. */
static void client_resizes(sim *s, sim_client *client)
{
    const sim_client *other =
        &s->clients[sim_draw(&client->dice, sim_trains_mostly(s) ? s->script.clients : SIM_CLIENTS)];
    gp_core_event event = { .kind = GP_CORE_EVENT_LEASE_RESIZE,
                            .correlation = 13,
                            .lease = other->lease,
                            .workers = 1 + sim_draw(&client->dice, s->script.slots) };

    client_says(s, client, &event, NULL);
}

static void client_thinks(sim *s, sim_client *client)
{
    gp_core_event event = { .kind = GP_CORE_EVENT_RESIZE, .correlation = 9 };

    if (sim_calm(s) || sim_chance(&client->dice, 10)) {
        sim_client_leaves(s, client);
    } else if (sim_chance(&client->dice, sim_trains_mostly(s) ? 50 : 15)) {
        client_resizes(s, client);
    } else if (sim_chance(&client->dice, 4)) {
        event.plan_count = 1 + sim_draw(&client->dice, s->script.slots);
        client_says(s, client, &event, NULL);
    } else {
        client_asks(s, client);
    }
}

static bool client_is_idle(const sim_client *client)
{
    return client->trains ? sim_training_over(client) : sim_team_idle(client);
}

/* Let the user decide about suspect workers that run user code: the simulated user replaces those
 * that would never resume. */
static void client_replaces_suspects(sim *s, sim_client *client)
{
    enum { FOR_EVER_US = 60 * 1000 * MS };

    for (uint32_t rank = 0; rank < client->claim.member_count; rank++) {
        const gp_core_member *member = &client->claim.members[rank];
        const sim_process *process = sim_find_process(s, member->slot, member->incarnation);

        if ((client->suspects >> member->slot & 1) != 0 && process != NULL &&
            process->gate.until_us - s->now_us > FOR_EVER_US) {
            client->suspects &= ~(UINT64_C(1) << member->slot);
            sim_client_replaces(s, client, member->slot, member->incarnation);
        }
    }
}

static void client_holds(sim *s, sim_client *client)
{
    sim_dice *dice = &client->dice;

    client_replaces_suspects(s, client);
    if (!sim_calm(s) && sim_chance(dice, 4))
        client_replaces_any(s, client);
    else if (!sim_calm(s) && sim_trains_mostly(s) && sim_chance(dice, 10))
        client_resizes(s, client);
    else if (client->repairing
                 /* without faults, wait until the lease is complete again */
                 ? !sim_calm(s) && sim_chance(dice, 10)
                 : client_is_idle(client) ||
                       (!sim_calm(s) && sim_chance(dice, sim_trains_mostly(s) && client->trains ? 1 : 8)))
        client_releases(s, client);
}

void sim_client_acts(sim *s, sim_client *client)
{
    gp_core_event leave = { .kind = GP_CORE_EVENT_LEASE_LEAVE, .correlation = 8 };

    sim_push(s, 5 * MS + sim_draw(&client->dice, 400 * MS), SIM_CLIENT_ACTS, number_of(s, client));
    if (!s->up || (client->state != SIM_AWAY && client->epoch != s->epoch)) {
        if (client->state != SIM_AWAY && !sim_calm(s) && sim_chance(&client->dice, 3))
            sim_client_leaves(s, client);
        return; /* not connected yet */
    }
    switch (client->state) {
    case SIM_AWAY:
        if (!sim_calm(s) && !s->downed)
            client_connects(s, client);
        break;
    case SIM_THINKING:
        client_thinks(s, client);
        break;
    case SIM_WAITING:
        if (!sim_calm(s) && !client->leaving && sim_chance(&client->dice, 5)) {
            client->leaving = true;
            client_says(s, client, &leave, NULL);
        }
        break;
    case SIM_HOLDING:
        client_holds(s, client);
        break;
    }
}

/* ---- connections ---- */

static void claim(sim *s, sim_client *client)
{
    gp_core_event event = { .kind = GP_CORE_EVENT_LEASE_CLAIM,
                            .correlation = 11,
                            .lease = client->lease,
                            .generation = client->generation };

    /* a team claims only the members that it still uses */
    if (client->elastic && client->forming != 0 && client->forming < client->claim.member_count &&
        !PLANTED(CLAIMS_ALL))
        client->claim.member_count = client->forming;
    client_says(s, client, &event, NULL);
}

/* Register with the scheduler after connecting. */
static void client_dialled(sim *s, sim_client *client)
{
    gp_core_event event = { .kind = GP_CORE_EVENT_CLIENT_CONNECTED, .pid = 1000, .session = client->session };

    client->epoch = s->epoch;
    client->asked = 0;
    client->link++;
    client->out_us = client->in_us = s->now_us + MS;
    connect_to_core(s, client, &event);
    if (client->state != SIM_HOLDING) {
        client->state = SIM_THINKING;
        return;
    }
    claim(s, client);
}

void sim_client_claims(sim *s, sim_client *client, uint32_t link)
{
    if (client->state == SIM_HOLDING && client->link == link && s->up && client->epoch == s->epoch)
        claim(s, client);
}

void sim_client_dials(sim *s, sim_client *client, uint64_t epoch)
{
    if (client->state != SIM_AWAY && s->up && epoch == s->epoch && client->epoch != s->epoch)
        client_dialled(s, client);
}

/* Break the link. The scheduler sees the client leave. Then a client with the same session claims a
 * lease that has ended. */
void sim_client_breaks(sim *s, sim_client *client)
{
    gp_core_event gone = { .kind = GP_CORE_EVENT_CLIENT_GONE, .session = client->session };

    if (!s->up || client->epoch != s->epoch)
        return;
    sim_push(s, 0, SIM_TO_CORE, 0)->core.event = gone;
    client->broken = true;
    client_dialled(s, client);
}

/* ---- messages from the scheduler ---- */

/* Check a new formation of an elastic team: each worker that the client still uses keeps its rank,
 * unless it cannot be replaced. */
static void check_ranks(sim *s, const sim_client *client, const sim_letter *letter)
{
    for (uint32_t rank = 0; s->up && client->calls != NULL && rank < client->size; rank++) {
        const gp_core_slot *slot = &s->core->slots[client->claim.members[rank].slot];

        if (!slot->wanted || slot->disabled || slot->process == GP_CORE_EXCLUDED || slot->tries != 0)
            return; /* a worker that cannot be replaced: the team ends */
    }
    for (uint32_t rank = 0; client->calls != NULL && rank < client->size; rank++)
        if (rank >= letter->member_count || letter->members[rank].slot != client->claim.members[rank].slot)
            sim_fail(s, "rank-moved", "the worker of rank %u in lease %llu has another rank, or none", rank,
                     (unsigned long long)client->lease);
}

/* Check that the granted workers have the resources that the client asked for. */
static void check_needs(sim *s, const sim_client *client, const sim_letter *letter)
{
    for (uint32_t i = 0; i < letter->member_count; i++) {
        const uint32_t slot = letter->members[i].slot, has = sim_tag_of(s, slot);

        if (has < client->tag)
            sim_fail(s, "needs", "lease %llu needs tag=%u and got worker %u, which has %u",
                     (unsigned long long)letter->lease, client->tag, slot + 1, has);
    }
}

static void client_granted(sim *s, sim_client *client, const sim_letter *letter)
{
    if (letter->correlation == 0 && (client->state != SIM_HOLDING || letter->lease != client->lease))
        return; /* a new formation of a lease that was just released */
    if (letter->correlation == 0 && letter->generation <= client->generation)
        sim_fail(s, "client-generation", "a client received generation %u of lease %llu after %u",
                 letter->generation, (unsigned long long)letter->lease, client->generation);
    if (letter->correlation != 0 &&
        (client->state != SIM_WAITING || letter->correlation != client->correlation))
        sim_fail(s, "stray-grant", "a client received lease %llu without a pending request",
                 (unsigned long long)letter->lease);
    if (client->whole && client->floor == 0)
        sim_fail(s, "not-adopted", "lease %llu was formed again although only the scheduler had failed",
                 (unsigned long long)letter->lease);
    check_needs(s, client, letter);
    client->state = SIM_HOLDING;
    client->broken = false;
    client->lease = letter->lease;
    client->generation = letter->generation;
    client->repairing = false;
    if (client->elastic && letter->correlation == 0)
        check_ranks(s, client, letter);
    client->change = client->forming = 0;
    client->claim = (gp_core_claim){ .token = letter->token,
                                     .min = 1,
                                     .floor = client->floor,
                                     .team = client->elastic,
                                     .needs = sim_tag(client->tag),
                                     .member_count = letter->member_count };
    memcpy(client->claim.members, letter->members, sizeof(letter->members));
    if (client->trains)
        sim_training_granted(s, client, letter->correlation != 0);
    else
        sim_team_granted(s, client);
}

static void client_loses(sim *s, sim_client *client)
{
    if (client->whole)
        sim_fail(s, "not-adopted", "lease %llu ended although only the scheduler had failed",
                 (unsigned long long)client->lease);
    sim_team_close(s, client, GP_ECANCELED);
    client->trains = false;
    client->state = SIM_THINKING;
}

/* Keep what the scheduler reports about a worker: silent_ms 0 means that it is responsive again. */
static void client_suspects(sim_client *client, const sim_letter *letter)
{
    const uint64_t bit = UINT64_C(1) << letter->lost_slot;

    client->suspects = letter->silent_ms != 0 ? client->suspects | bit : client->suspects & ~bit;
}

void sim_client_receives(sim *s, sim_client *client, const sim_letter *letter)
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
        if (client->state != SIM_HOLDING || client->lease != letter->lease)
            break;
        client->repairing = true;
        if (client->trains)
            sim_training_receives(s, client, letter);
        break;
    case GP_CORE_WORKER_SUSPECT:
        if (client->state == SIM_HOLDING && client->lease == letter->lease && !client->trains)
            client_suspects(client, letter);
        break;
    case GP_CORE_LEASE_CHANGE:
        if (client->state == SIM_HOLDING && client->lease == letter->lease && client->trains)
            sim_training_receives(s, client, letter);
        else if (client->state == SIM_HOLDING && client->lease == letter->lease && client->elastic &&
                 client->generation == letter->generation)
            sim_team_changes(s, client, letter->workers);
        break;
    case GP_CORE_OK:
        s->tally.claims += letter->correlation == 11;
        if (letter->correlation == 11 && client->state == SIM_HOLDING && client->trains)
            sim_training_reunited(s, client);
        else if (letter->correlation == 11 && client->state == SIM_HOLDING && client->forming != 0)
            sim_team_forms(s, client, client->forming);
        if (client->state == SIM_WAITING && client->leaving && letter->correlation == 8)
            client->state = SIM_THINKING;
        break;
    case GP_CORE_ERROR:
        if (letter->correlation == 0) /* the pool has too many clients: connection refused */
            sim_client_leaves(s, client);
        else if (client->state == SIM_WAITING && letter->correlation == client->correlation)
            client->state = SIM_THINKING;
        else if (client->state == SIM_HOLDING && letter->correlation == 11 && letter->status == GP_EBUSY)
            sim_push(s, 10 * MS, SIM_CLIENT_CLAIMS, number_of(s, client))->link = client->link;
        else if (client->state == SIM_HOLDING && letter->correlation == 11)
            client_loses(s, client);
        break;
    default:
        break;
    }
}
