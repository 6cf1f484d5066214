/* Elastic leases: the client continues with fewer members and accepts more while it runs.
 *
 * lease->formed holds the members in the current formation. The other members are new slots, or
 * slots whose process exited and is being replaced.
 *
 * - HELD --> GATHER when a member exits and enough live members remain (group.c). The slot stays a
 *   member.
 * - HELD --> GATHER with fewer members: the core sends LEASE_CHANGE, the client stops at a step and
 *   replies with FORM.
 * - HELD --> GATHER with more members: the core adds free slots and grants the lease to each alone.
 *   After their acknowledgements it sends LEASE_CHANGE. The new workers prepare while the client
 *   continues. When all are ready, the client stops at a step and sends FORM with their names.
 *
 * The formation changes only when a member exits, or when the client reports that its workers have
 * left it. A worker that is not prepared does not enter a formation: a training never waits for a
 * worker that is still reading data, unless too few members would remain. When a formation ends,
 * preparing workers receive the next generation, again alone, and a new notification. The queue has
 * precedence for free slots. */
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

    if (lease->floor == 0 || !lease->reported)
        return lease->members;
    GP_CORE_EACH_MEMBER(s, lease->members)
    {
        /* it is alive, and may have data that no other worker has */
        if (core->slots[s].process == GP_CORE_AWAITED)
            return lease->members;
        if (is_ready(&core->slots[s]))
            ready |= 1ull << s;
    }
    prepared = ready & (lease->formed | lease->joining);
    if (count_of(prepared) >= lease->floor)
        return prepared;
    return count_of(ready) >= lease->floor ? ready : lease->members;
}

/* Return the mask of slots compatible with the lease, free or not. */
static uint64_t fitting(const gp_core *core, const gp_core_lease *lease)
{
    return gp_core_queue_fitting(core, lease->environment, lease->named);
}

/* Release slots from the mask, last first, while the lease has more members than it wants. */
static void let_go_of(gp_core *core, gp_core_lease *lease, uint64_t mask)
{
    while (mask != 0 && count_of(lease->members) > lease->want) {
        uint32_t last = 63 - (uint32_t)__builtin_clzll(mask);
        gp_core_slot *slot = &core->slots[last];

        lease->members &= ~(1ull << last);
        slot->lease = 0;
        slot->answer_ms = 0;
        if (slot->process == GP_CORE_READY && slot->granted != 0)
            gp_core_lease_revoke(core, last, lease->id, slot->granted);
        mask &= ~(1ull << last);
    }
}

/* Grant the lease to each joining worker that is ready, alone, in the current generation. The
 * client can then attach to it and let it prepare. Return those that acknowledged. *pending
 * is set if others are about to. */
static uint64_t invite_all(gp_core *core, const gp_core_lease *lease, bool *pending)
{
    uint64_t come = 0;

    *pending = false;
    GP_CORE_EACH_MEMBER(s, lease->members & ~lease->formed)
    {
        gp_core_slot *slot = &core->slots[s];

        if (!is_ready(slot))
            continue;
        if (slot->granted != lease->generation) {
            gp_core_action *action = gp_core_emit_to_worker(core, GP_CORE_GRANT, s);

            action->lease = lease->id;
            action->generation = lease->generation;
            action->token = lease->token;
            gp_core_list_members(core, 1ull << s, action);
            /* A worker that prepares for the previous generation replies when it has finished.
             * Nothing waits for that reply, so it has no deadline. */
            slot->answer_ms = slot->granted == 0 ? core->now_ms + core->config.grant_ms : 0;
            slot->granted = lease->generation;
            slot->acked = 0;
        }
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

void gp_core_resize_notify(gp_core *core)
{
    const bool takes = core->ask_count == 0 && core->accepting && core->adopting_ms == 0 &&
                       core->stopping == GP_CORE_RUNNING;

    for (uint32_t i = 0; i < GP_CORE_SLOTS_MAX; i++) {
        gp_core_lease *lease = &core->leases[i];
        uint32_t reported, size;
        uint64_t joining;
        bool pending;

        if (lease->id == 0 || lease->floor == 0 || lease->phase != GP_CORE_HELD)
            continue;
        /* requested while the lease was forming */
        let_go_of(core, lease, lease->members & ~lease->formed);
        /* Add free slots as members, so that no other lease takes them while they prepare. Add
         * none while other clients wait, the scheduler grants nothing, or the lease is full. */
        GP_CORE_EACH_MEMBER(s, takes ? fitting(core, lease) & ~lease->members : 0)
        {
            gp_core_slot *slot = &core->slots[s];

            if (count_of(lease->members) >= lease->want)
                break;
            if (s >= core->slot_count || !gp_core_slot_free(slot))
                continue;
            lease->members |= 1ull << s;
            slot->lease = lease->id;
            slot->granted = slot->acked = 0;
            slot->step = 0;
        }
        lease->joining = 0;
        joining = invite_all(core, lease, &pending);
        reported = lease->announced_size == 0 ? count_of(lease->formed) : lease->announced_size;
        size = count_of(lease->formed) + count_of(joining);
        size = size < lease->want ? size : lease->want;
        if (size == reported && (lease->announced_size == 0 || joining == lease->reported_joining))
            continue;
        if (size > reported && pending) /* report several joining workers as one change */
            continue;
        /* Tell the client the size that its lease can have and the workers that would join. */
        gp_core_action *action = gp_core_emit_to_client(core, GP_CORE_LEASE_CHANGE, &lease->session, 0);

        lease->announced_size = size;
        lease->reported_joining = joining;
        action->lease = lease->id;
        action->generation = lease->generation;
        action->workers = size;
        action->asked = lease->asked;
        gp_core_list_members(core, joining, action);
    }
}

void gp_core_resize_asked(gp_core *core, const gp_core_event *event)
{
    gp_core_lease *lease = gp_core_lease_of(core, event->lease);
    const gp_core_id *session = &event->session;
    uint64_t may = lease == NULL ? 0 : fitting(core, lease);
    uint32_t usable = 0;
    char words[32];

    for (uint32_t s = 0; s < core->slot_count; s++)
        usable += gp_core_slot_usable(&core->slots[s]) && (may >> s & 1) != 0;
    if (lease == NULL) {
        gp_core_emit_error(core, session, event->correlation, GP_ESTALE,
                           "lease %llu does not exist; list leases with `gradpool status`",
                           (unsigned long long)event->lease);
        return;
    }
    if (lease->floor == 0) {
        gp_core_emit_error(
            core, session, event->correlation, GP_EINVAL,
            "lease %llu (%.80s) cannot be resized: a team, a prediction or a command has a fixed "
            "number of workers; a training can be resized if it was started with "
            "--max-restarts above 0 and without --worker-weights",
            (unsigned long long)lease->id, lease->description);
        return;
    }
    if (event->workers > usable) {
        gp_core_emit_error(core, session, event->correlation, GP_ENODEV,
                           "%s requested, but the pool has %u that lease %llu can use",
                           gp_core_text_workers(words, sizeof(words), event->workers), usable,
                           (unsigned long long)lease->id);
        return;
    }
    if (event->workers < lease->floor) {
        gp_core_emit_error(core, session, event->correlation, GP_EINVAL,
                           "%s requested, fewer than min-workers (%u) of lease %llu (%.80s)",
                           gp_core_text_workers(words, sizeof(words), event->workers), lease->floor,
                           (unsigned long long)lease->id, lease->description);
        return;
    }
    lease->want = event->workers;
    /* Only another client's request is events to the holder. */
    lease->asked = !gp_core_id_equal(&lease->session, &event->session);
    if (lease->phase == GP_CORE_HELD)
        let_go_of(core, lease, lease->members & ~lease->formed);
    gp_core_emit_to_client(core, GP_CORE_OK, &event->session, event->correlation);
}

void gp_core_resize_go(gp_core *core, const gp_core_event *event)
{
    gp_core_lease *lease = gp_core_lease_of(core, event->lease);

    if (lease == NULL || !gp_core_id_equal(&lease->session, &event->session) || lease->floor == 0) {
        core->stale++;
        gp_core_emit_error(core, &event->session, event->correlation, GP_ESTALE,
                           "lease %llu of this session does not exist or has a fixed number of workers",
                           (unsigned long long)event->lease);
        return;
    }
    if (lease->generation != event->generation || lease->phase != GP_CORE_HELD) {
        core->stale++; /* A worker failure came first, and the next formation has started. */
        return;
    }
    let_go_of(core, lease, lease->members & ~lease->formed);
    let_go_of(core, lease, lease->members);
    /* A worker that exited after the client named it has a successor that the client does not
     * know. */
    lease->joining =
        event->joining & lease->members & (lease->announced_size == 0 ? 0 : lease->reported_joining);
    lease->generation++;
    lease->announced_size = 0;
    lease->phase = GP_CORE_GATHER;
    gp_core_group_advance(core, lease);
}
