/* Elastic leases: the client continues with fewer members and accepts more while it runs.
 *
 * Trainings and teams differ. First the trainings:
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
 * precedence for free slots.
 *
 * A team has the same two phases, but a free slot joins without a grant of its own: its worker has
 * nothing to prepare. The client replies to LEASE_CHANGE with FORM and a number of members. Those
 * with the lowest ranks remain, so each keeps its rank, and new ones follow. A member that exits is
 * replaced before the next formation. While the head of the queue lacks workers that teams have
 * above their minimum, the teams must give back that number; without an effect on the queue they
 * keep them. */
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
    if (lease->team)
        return lease->formed;
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
    return gp_core_queue_fitting(core, lease->environment, &lease->needs, lease->named);
}

/* Return the slot of the last rank in the mask, which is not empty. */
static uint32_t last_of(const gp_core_lease *lease, uint64_t mask)
{
    uint32_t last = (uint32_t)__builtin_ctzll(mask);

    GP_CORE_EACH_MEMBER(s, mask)
    {
        if (lease->joined[s] >= lease->joined[last])
            last = s;
    }
    return last;
}

/* Release slots from the mask, last rank first, while the lease has more members than `limit`. */
static void let_go_of(gp_core *core, gp_core_lease *lease, uint64_t mask, uint32_t limit)
{
    while (mask != 0 && count_of(lease->members) > limit) {
        uint32_t last = last_of(lease, mask);
        gp_core_slot *slot = &core->slots[last];

        lease->members &= ~(1ull << last);
        lease->formed &= lease->members;
        slot->lease = 0;
        slot->answer_ms = 0;
        if (slot->process == GP_CORE_READY && slot->granted != 0)
            gp_core_lease_revoke(core, last, lease->id, slot->granted);
        mask &= ~(1ull << last);
    }
}

/* Return the number of members that a team keeps if it gives back its last ranks, down to the
 * floor, until `count` slots of the mask are among them. *got (may be NULL) is set to the number of
 * such slots. */
static uint32_t keeps(const gp_core_lease *lease, uint64_t from, uint32_t count, uint32_t *got)
{
    uint64_t rest = lease->members;
    uint32_t kept = count_of(rest), found = 0;

    while (lease->id != 0 && lease->team && count_of(rest) > lease->floor && found < count) {
        uint32_t last = last_of(lease, rest);

        rest &= ~(1ull << last);
        if ((from >> last & 1) != 0) {
            found++;
            kept = count_of(rest);
        }
    }
    if (got != NULL)
        *got = found;
    return kept;
}

/* Return how many members the lease can spare for the head of the queue. from: slots that the head
 * can use. */
static uint32_t spare(const gp_core_lease *lease, uint64_t from)
{
    uint32_t count;

    keeps(lease, from, GP_CORE_SLOTS_MAX, &count);
    return count;
}

/* Return the requested number of members. A team gives the members of its last ranks back if the
 * pool was resized without them. */
static uint32_t want_of(const gp_core *core, const gp_core_lease *lease)
{
    uint64_t rest = lease->members;

    while (lease->team && count_of(rest) > lease->floor) {
        uint32_t last = last_of(lease, rest);

        if (last < core->planned)
            break;
        rest &= ~(1ull << last);
    }
    return rest == lease->members || count_of(rest) > lease->want ? lease->want : count_of(rest);
}

/* Return the maximum number of members of the lease now: as requested, or fewer while the head of
 * the queue lacks workers. The teams that began last give workers back first. */
static uint32_t limit_of(const gp_core *core, const gp_core_lease *lease)
{
    uint64_t from = 0;
    uint32_t lacks = gp_core_queue_lacks(core, &from), all = 0, later = 0;
    uint32_t own = lacks == 0 ? 0 : spare(lease, from), want = want_of(core, lease);

    if (own == 0)
        return want;
    for (uint32_t i = 0; i < GP_CORE_SLOTS_MAX; i++) {
        all += spare(&core->leases[i], from);
        later += core->leases[i].id > lease->id ? spare(&core->leases[i], from) : 0;
    }
    if (all < lacks || later >= lacks) /* giving back would not help, or others give back enough */
        return want;
    own = keeps(lease, from, own < lacks - later ? own : lacks - later, NULL);
    return own < want ? own : want;
}

/* Return the members of a team that can join the next formation. */
static uint64_t team_joining(const gp_core *core, const gp_core_lease *lease)
{
    uint64_t ready = 0;

    GP_CORE_EACH_MEMBER(s, lease->members & ~lease->formed)
    {
        if (is_ready(&core->slots[s]))
            ready |= 1ull << s;
    }
    return ready;
}

/* Grant the lease to each joining worker that is ready, alone, in the current generation. The
 * client can then attach to it and let it prepare. Return those that acknowledged. *pending
 * is set if others are about to. */
static uint64_t invite_all(gp_core *core, const gp_core_lease *lease, bool *pending)
{
    uint64_t come = 0;

    *pending = false;
    if (lease->team)
        return team_joining(core, lease);
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
            gp_core_list_members(core, lease, 1ull << s, action);
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
        uint32_t reported, size, limit;
        uint64_t joining;
        bool pending;

        if (lease->id == 0 || lease->floor == 0 || lease->phase != GP_CORE_HELD)
            continue;
        limit = limit_of(core, lease);
        /* requested while the lease was forming, or another client waits */
        let_go_of(core, lease, lease->members & ~lease->formed, limit);
        /* Add free slots as members, so that no other lease takes them while they prepare. Add
         * none while other clients wait, the scheduler grants nothing, or the lease is full. */
        GP_CORE_EACH_MEMBER(s, takes ? fitting(core, lease) & ~lease->members : 0)
        {
            gp_core_slot *slot = &core->slots[s];

            if (count_of(lease->members) >= limit)
                break;
            if (s >= core->slot_count || !gp_core_slot_free(slot))
                continue;
            lease->members |= 1ull << s;
            slot->lease = lease->id;
            lease->joined[s] = lease->team ? ++lease->joins : 0;
            slot->granted = slot->acked = 0;
            slot->step = 0;
        }
        lease->joining = 0;
        joining = invite_all(core, lease, &pending);
        reported = lease->announced_size == 0 ? count_of(lease->formed) : lease->announced_size;
        size = count_of(lease->formed) + count_of(joining);
        size = size < limit ? size : limit;
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
        gp_core_list_members(core, lease, joining, action);
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
            "lease %llu (%.80s) cannot be resized: it has a fixed number of workers; an elastic team can "
            "be resized, and a training that was started with --max-restarts above 0 and without "
            "--worker-weights",
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
        let_go_of(core, lease, lease->members & ~lease->formed, lease->want);
    gp_core_emit_to_client(core, GP_CORE_OK, &event->session, event->correlation);
}

/* Form a team with the members of the lowest ranks. The calls on the others have ended. */
static void team_form(gp_core *core, gp_core_lease *lease, uint32_t workers)
{
    uint64_t stay = lease->formed | team_joining(core, lease);
    uint32_t limit = workers == 0 ? limit_of(core, lease) : workers;

    limit = limit > lease->floor ? limit : lease->floor;
    let_go_of(core, lease, lease->members & ~stay, 0);
    let_go_of(core, lease, lease->members, limit);
    lease->formed = lease->members;
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
    if (lease->team) {
        team_form(core, lease, event->workers);
    } else {
        let_go_of(core, lease, lease->members & ~lease->formed, lease->want);
        let_go_of(core, lease, lease->members, lease->want);
    }
    /* A worker that exited after the client named it has a successor that the client does not
     * know. */
    lease->joining =
        event->joining & lease->members & (lease->announced_size == 0 ? 0 : lease->reported_joining);
    lease->generation++;
    lease->announced_size = 0;
    lease->phase = GP_CORE_GATHER;
    gp_core_group_advance(core, lease);
}
