/* resize.c -- elastic leases: those whose client goes on with fewer members, and takes more while it runs.
 *
 *   formed  the members of the present formation; the other members are slots whose process died, and is replaced
 *   HELD --a member died--> GATHER of those who live, if they are enough (group.c); it stays a member
 *   HELD --it can have more, or is to have fewer: LEASE_CHANGE--> the client stops at a step --FORM--> GATHER
 *
 * What a lease can be is told, never taken: only when its client says that nobody is in the formation any more are slots
 * given back or added, and what is free then counts.  Free slots go to those who wait in the queue first. */
#include <stdio.h>

#include "scheduler/core_parts.h"

static uint32_t count_of(uint64_t mask)
{
    return (uint32_t)__builtin_popcountll(mask);
}

uint64_t gp_core_resize_form(const gp_core *core, const gp_core_lease *lease)
{
    uint64_t ready = 0;

    if (lease->floor == 0 || !lease->told)
        return lease->members;
    GP_CORE_EACH_MEMBER(s, lease->members)
    {
        if (core->slots[s].process == GP_CORE_AWAITED) /* it lives, and may have what nobody else has */
            return lease->members;
        if (core->slots[s].process == GP_CORE_READY && core->slots[s].revoking == 0)
            ready |= 1ull << s;
    }
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

/* How many members a formation would have if it were made now. */
static uint32_t size_now(const gp_core *core, const gp_core_lease *lease)
{
    uint64_t ready = lease->formed;
    uint32_t size;

    GP_CORE_EACH_MEMBER(s, lease->members & ~lease->formed)
    {
        if (core->slots[s].process == GP_CORE_READY && core->slots[s].revoking == 0)
            ready |= 1ull << s;
    }
    size = count_of(ready) + count_of(takeable(core, lease));
    return size < lease->want ? size : lease->want;
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

void gp_core_resize_tell(gp_core *core)
{
    for (uint32_t i = 0; i < GP_CORE_SLOTS_MAX; i++) {
        gp_core_lease *lease = &core->leases[i];
        uint32_t formed, size;
        gp_core_action *action;

        if (lease->id == 0 || lease->floor == 0 || lease->phase != GP_CORE_HELD)
            continue;
        let_go_of(core, lease, lease->members & ~lease->formed); /* asked for while it was formed */
        formed = count_of(lease->formed);
        size = size_now(core, lease);
        if (size == (lease->told_size == 0 ? formed : lease->told_size))
            continue;
        lease->told_size = size;
        action = gp_core_emit_to_client(core, GP_CORE_LEASE_CHANGE, &lease->session, 0);
        action->lease = lease->id;
        action->generation = lease->generation;
        action->workers = size;
        action->asked = lease->asked;
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
        return gp_fail(err, GP_EINVAL,
                       "lease %llu (%.80s) keeps its workers: only a training with max-restarts above 0, and "
                       "without loads, changes their number while it runs",
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
    uint64_t more;

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
    more = takeable(core, lease);
    GP_CORE_EACH_MEMBER(s, more)
    {
        gp_core_slot *slot = &core->slots[s];

        if (count_of(lease->members) >= lease->want)
            break;
        lease->members |= 1ull << s;
        slot->lease = lease->id;
        slot->granted = slot->acked = 0;
        slot->step = 0;
    }
    lease->generation++;
    lease->told_size = 0;
    lease->phase = GP_CORE_GATHER;
    gp_core_group_advance(core, lease);
}
