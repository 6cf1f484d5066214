/* resize.c -- elastic leases: those whose client goes on with fewer members, and takes more while it runs.
 *
 *   formed  the members of the present formation; the others are slots that came free, or whose process died and is replaced
 *   HELD --a member died--> GATHER of those who live, if they are enough (group.c); it stays a member
 *   HELD --it is to have fewer: LEASE_CHANGE--> the client stops at a step --FORM--> GATHER
 *   HELD --slots are free: taken, each granted alone, acknowledged: LEASE_CHANGE--> they prepare for the client, whose steps
 *          go on --all have: it stops at a step --FORM, names them--> GATHER
 *
 * Who is in the formation is changed by a death, or when the client says that nobody is in it any more.  Who has not
 * prepared is in none: a training never waits for one that reads its data, unless too few would be left without it.  A
 * formation that is over is one for those who prepare too: they are granted the next one, alone again, and told anew.
 * Free slots go to those who wait in the queue first. */
#include <stdio.h>

#include "scheduler/core/core_parts.h"

static uint32_t count_of(uint64_t mask)
{
    return (uint32_t)__builtin_popcountll(mask);
}

static bool is_ready(const gp_core_slot *slot)
{
    return slot->process == GP_CORE_READY && slot->revoking == 0;
}

uint64_t gp_core_resize_form(const gp_core *core, const gp_core_lease *lease)
{
    uint64_t ready = 0, prepared;

    if (lease->floor == 0 || !lease->told)
        return lease->members;
    GP_CORE_EACH_MEMBER(s, lease->members)
    {
        if (core->slots[s].process == GP_CORE_AWAITED) /* it lives, and may have what nobody else has */
            return lease->members;
        if (is_ready(&core->slots[s]))
            ready |= 1ull << s;
    }
    prepared = ready & (lease->formed | lease->joining);
    if (count_of(prepared) >= lease->floor)
        return prepared;
    return count_of(ready) >= lease->floor ? ready : lease->members;
}

/* Slots that it may have, free or not. */
static uint64_t fitting(const gp_core *core, const gp_core_lease *lease)
{
    return gp_core_queue_fitting(core, lease->environment, lease->named);
}

/* Free slots that the lease may take now. */
static uint64_t takeable(const gp_core *core, const gp_core_lease *lease)
{
    uint64_t mask = 0;

    if (core->ask_count != 0 || !core->accepting || core->adopting_ms != 0 ||
        core->stopping != GP_CORE_RUNNING || count_of(lease->members) >= lease->want)
        return 0;
    GP_CORE_EACH_MEMBER(s, fitting(core, lease) & ~lease->members)
    {
        if (s < core->slot_count && gp_core_slot_free(&core->slots[s]))
            mask |= 1ull << s;
    }
    return mask;
}

static void let_go(gp_core *core, gp_core_lease *lease, uint32_t s)
{
    gp_core_slot *slot = &core->slots[s];

    lease->members &= ~(1ull << s);
    slot->lease = 0;
    slot->answer_ms = 0;
    if (slot->process == GP_CORE_READY && slot->granted != 0)
        gp_core_lease_revoke(core, s, lease->id, slot->granted);
}

/* Those of the mask, the last first, as long as there are too many. */
static void let_go_of(gp_core *core, gp_core_lease *lease, uint64_t mask)
{
    while (mask != 0 && count_of(lease->members) > lease->want) {
        uint32_t last = 63 - (uint32_t)__builtin_clzll(mask);

        let_go(core, lease, last);
        mask &= ~(1ull << last);
    }
}

/* Slots that are free become members: nobody else gets them while they prepare. */
static void take_free(gp_core *core, gp_core_lease *lease)
{
    GP_CORE_EACH_MEMBER(s, takeable(core, lease))
    {
        gp_core_slot *slot = &core->slots[s];

        if (count_of(lease->members) >= lease->want)
            break;
        lease->members |= 1ull << s;
        slot->lease = lease->id;
        slot->granted = slot->acked = 0;
        slot->step = 0;
    }
}

/* A grant in which it is alone, of the present generation: its client may come, and let it prepare. */
static void invite(gp_core *core, const gp_core_lease *lease, uint32_t s)
{
    gp_core_slot *slot = &core->slots[s];
    gp_core_action *action = gp_core_emit_to_worker(core, GP_CORE_GRANT, s);

    action->lease = lease->id;
    action->generation = lease->generation;
    action->token = lease->token;
    action->member_count = 1;
    action->members[0] = (gp_core_member){ .slot = s, .incarnation = slot->incarnation, .pid = slot->pid };
    /* One that prepares for the generation before answers when it has done so, and nobody waits for that. */
    slot->answer_ms = slot->granted == 0 ? core->now_ms + core->config.grant_ms : 0;
    slot->granted = lease->generation;
    slot->acked = 0;
}

/* Those of them that have come; *pending: others are about to. */
static uint64_t invite_all(gp_core *core, const gp_core_lease *lease, bool *pending)
{
    uint64_t come = 0;

    *pending = false;
    GP_CORE_EACH_MEMBER(s, lease->members & ~lease->formed)
    {
        const gp_core_slot *slot = &core->slots[s];

        if (!is_ready(slot))
            continue;
        if (slot->granted != lease->generation)
            invite(core, lease, s);
        if (slot->acked == lease->generation)
            come |= 1ull << s;
        else
            *pending = *pending || slot->answer_ms != 0;
    }
    return come;
}

void gp_core_resize_acked(gp_core *core, const gp_core_event *event)
{
    gp_core_slot *slot = &core->slots[event->slot];

    if (slot->granted != event->generation) {
        core->stale++;
        return;
    }
    slot->acked = event->generation;
    slot->answer_ms = 0;
}

static void tell_change(gp_core *core, gp_core_lease *lease, uint32_t size, uint64_t joining)
{
    gp_core_action *action = gp_core_emit_to_client(core, GP_CORE_LEASE_CHANGE, &lease->session, 0);

    lease->told_size = size;
    lease->told_joining = joining;
    action->lease = lease->id;
    action->generation = lease->generation;
    action->workers = size;
    action->asked = lease->asked;
    GP_CORE_EACH_MEMBER(s, joining)
    {
        action->members[action->member_count++] = (gp_core_member){ .slot = s,
                                                                    .incarnation = core->slots[s].incarnation,
                                                                    .pid = core->slots[s].pid };
    }
}

void gp_core_resize_tell(gp_core *core)
{
    for (uint32_t i = 0; i < GP_CORE_SLOTS_MAX; i++) {
        gp_core_lease *lease = &core->leases[i];
        uint32_t told, size;
        uint64_t joining;
        bool pending;

        if (lease->id == 0 || lease->floor == 0 || lease->phase != GP_CORE_HELD)
            continue;
        let_go_of(core, lease, lease->members & ~lease->formed); /* asked for while it was formed */
        take_free(core, lease);
        lease->joining = 0;
        joining = invite_all(core, lease, &pending);
        told = lease->told_size == 0 ? count_of(lease->formed) : lease->told_size;
        size = count_of(lease->formed) + count_of(joining);
        size = size < lease->want ? size : lease->want;
        if (size == told && (lease->told_size == 0 || joining == lease->told_joining))
            continue;
        if (size > told && pending) /* more at once are one change */
            continue;
        tell_change(core, lease, size, joining);
    }
}

static gp_status check_asked(const gp_core *core, const gp_core_lease *lease, const gp_core_event *event,
                             gp_error *err)
{
    uint64_t may = lease == NULL ? 0 : fitting(core, lease);
    uint32_t usable = 0;
    char words[32];

    if (lease == NULL)
        return gp_fail(err, GP_ESTALE, "lease %llu is not held now; `gradpool status` lists those that are",
                       (unsigned long long)event->lease);
    if (lease->floor == 0)
        return gp_fail(
            err, GP_EINVAL,
            "lease %llu (%.80s) keeps its workers while it runs: a team, a prediction or a command has a "
            "fixed number; a training can be resized if it was begun with --max-restarts above 0 and "
            "without --worker-load",
            (unsigned long long)lease->id, lease->description);
    for (uint32_t s = 0; s < core->slot_count; s++)
        usable += gp_core_slot_usable(&core->slots[s]) && (may >> s & 1) != 0;
    if (event->workers > usable)
        return gp_fail(err, GP_ENODEV, "%s asked, the pool has %u that lease %llu can use",
                       gp_core_words_workers(words, sizeof(words), event->workers), usable,
                       (unsigned long long)lease->id);
    if (event->workers < lease->floor)
        return gp_fail(err, GP_EINVAL, "%s asked, fewer than the min-workers (%u) of lease %llu (%.80s)",
                       gp_core_words_workers(words, sizeof(words), event->workers), lease->floor,
                       (unsigned long long)lease->id, lease->description);
    return GP_OK;
}

void gp_core_resize_asked(gp_core *core, const gp_core_event *event)
{
    gp_core_lease *lease = gp_core_lease_of(core, event->lease);
    gp_error err;

    if (check_asked(core, lease, event, &err) != GP_OK) {
        gp_core_emit_error(core, &event->session, event->correlation, err.code, "%s", err.message);
        return;
    }
    lease->want = event->workers;
    /* Its own client asks for no more than it has: nothing that it did not know. */
    lease->asked = !gp_core_id_equal(&lease->session, &event->session);
    if (lease->phase == GP_CORE_HELD)
        let_go_of(core, lease, lease->members & ~lease->formed);
    gp_core_emit_to_client(core, GP_CORE_OK, &event->session, event->correlation);
    gp_core_queue_serve(core);
}

void gp_core_resize_go(gp_core *core, const gp_core_event *event)
{
    gp_core_lease *lease = gp_core_lease_of(core, event->lease);

    if (lease == NULL || !gp_core_id_equal(&lease->session, &event->session) || lease->floor == 0) {
        core->stale++;
        gp_core_emit_error(core, &event->session, event->correlation, GP_ESTALE,
                           "lease %llu is not an elastic one of this session",
                           (unsigned long long)event->lease);
        return;
    }
    if (lease->generation != event->generation || lease->phase != GP_CORE_HELD) {
        core->stale++; /* a death came first: the next formation is on its way */
        return;
    }
    let_go_of(core, lease, lease->members & ~lease->formed);
    let_go_of(core, lease, lease->members);
    /* One that died since its client named it has a successor that was not told of yet. */
    lease->joining = event->joining & lease->members & (lease->told_size == 0 ? 0 : lease->told_joining);
    lease->generation++;
    lease->told_size = 0;
    lease->phase = GP_CORE_GATHER;
    gp_core_group_advance(core, lease);
}
