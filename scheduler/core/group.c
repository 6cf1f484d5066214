/* Build one formation of a lease after another.
 *
 *   GATHER --all members have a ready process--> OFFER --all acknowledged--> HELD
 *     ^----------- a member's process exited: generation + 1 ---------|--------|
 *
 * A worker acknowledges generation g + 1 only after it has left g. The client therefore receives a
 * formation only when no member is in an older one. The core offers the next generation only after
 * the pidfd reported that the lost process has exited. A late store from that process cannot reach
 * the memory of the surviving members. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "scheduler/core/core_parts.h"

void gp_core_list_members(const gp_core *core, const gp_core_lease *lease, uint64_t members,
                          gp_core_action *action)
{
    GP_CORE_EACH_MEMBER(s, members)
    {
        const gp_core_slot *slot = &core->slots[s];
        uint32_t rank = action->member_count++;

        for (; rank > 0 && lease->joined[action->members[rank - 1].slot] > lease->joined[s]; rank--)
            action->members[rank] = action->members[rank - 1];
        action->members[rank] =
            (gp_core_member){ .slot = s, .incarnation = slot->incarnation, .pid = slot->pid };
    }
}

void gp_core_group_advance(gp_core *core, gp_core_lease *lease)
{
    gp_core_action *action;

    if (lease->phase == GP_CORE_GATHER) {
        lease->formed = gp_core_resize_form(core, lease);
        GP_CORE_EACH_MEMBER(s, lease->formed)
        {
            if (core->slots[s].process != GP_CORE_READY || core->slots[s].revoking != 0)
                return;
        }
        /* Send the current generation to all members and start their reply deadlines. */
        lease->phase = GP_CORE_OFFER;
        GP_CORE_EACH_MEMBER(s, lease->formed)
        {
            gp_core_slot *slot = &core->slots[s];

            action = gp_core_emit_to_worker(core, GP_CORE_GRANT, s);
            action->lease = lease->id;
            action->generation = lease->generation;
            action->token = lease->token;
            gp_core_list_members(core, lease, lease->formed, action);
            /* A surviving member may have to finish a step before it leaves the old formation. A
             * new member replies at once. */
            slot->answer_ms =
                core->now_ms + (slot->granted == 0 ? core->config.grant_ms : core->config.regrant_ms);
            slot->granted = lease->generation;
            slot->acked = 0;
        }
    } else if (lease->phase == GP_CORE_OFFER) {
        GP_CORE_EACH_MEMBER(s, lease->formed)
        {
            if (core->slots[s].acked != lease->generation)
                return;
        }
        /* The first grant replies to the request; later ones are unsolicited. */
        action = gp_core_emit_to_client(core, GP_CORE_LEASE_GRANT, &lease->session,
                                        lease->reported ? 0 : lease->correlation);
        action->lease = lease->id;
        action->generation = lease->generation;
        action->token = lease->token;
        gp_core_list_members(core, lease, lease->formed, action);
        lease->phase = GP_CORE_HELD;
        lease->reported = true;
        /* the requested size is reached */
        if ((uint32_t)__builtin_popcountll(lease->formed) == lease->want)
            lease->asked = false;
    }
}

void gp_core_group_acked(gp_core *core, const gp_core_event *event)
{
    gp_core_slot *slot = &core->slots[event->slot];
    gp_core_lease *lease = gp_core_lease_of(core, event->lease);
    bool current = lease != NULL && slot->lease == lease->id && lease->phase == GP_CORE_OFFER;

    if (lease != NULL && slot->lease == lease->id && (lease->formed >> event->slot & 1) == 0) {
        gp_core_resize_acked(core, event);
        return;
    }
    if (current && event->generation != lease->generation)
        current = false;
    if (!current) {
        core->stale++;
        return;
    }
    slot->acked = lease->generation;
    slot->answer_ms = 0;
    gp_core_group_advance(core, lease);
}

void gp_core_group_lost(gp_core *core, gp_core_lease *lease, const gp_core_event *event, const char *cause)
{
    gp_core_action *action;

    lease->joining &= ~(1ull << event->slot); /* the preparation was lost with the process */
    /* An elastic lease already continues without this member. */
    if ((lease->formed >> event->slot & 1) == 0)
        return;
    /* Tell the surviving members at once that the formation ended, so that they abort it before
     * the next one is offered. */
    GP_CORE_EACH_MEMBER(s, lease->formed)
    {
        if (s == event->slot || core->slots[s].granted != lease->generation)
            continue;
        core->slots[s].answer_ms = 0; /* no reply is due for a formation that ended */
        action = gp_core_emit_to_worker(core, GP_CORE_PEER_LOST, s);
        action->lease = lease->id;
        action->generation = lease->generation;
        action->lost_slot = event->slot;
        action->lost_incarnation = event->incarnation;
        snprintf(action->text, sizeof(action->text), "%s", cause);
    }
    if (lease->reported) {
        action = gp_core_emit_to_client(core, GP_CORE_WORKER_LOST, &lease->session, 0);
        action->lease = lease->id;
        action->generation = lease->generation;
        action->lost_slot = event->slot;
        action->lost_incarnation = event->incarnation;
        action->lost_death = event->death;
        action->lost_number = event->number;
        action->lost_out_of_memory = event->out_of_memory;
        action->lost_step = core->slots[event->slot].step;
        snprintf(action->text, sizeof(action->text), "%s", cause);
    }
    lease->generation++;
    lease->announced_size = 0;
    lease->phase = GP_CORE_GATHER;
}

void gp_core_group_shrink(gp_core *core, gp_core_lease *lease, uint32_t slot)
{
    uint64_t rest = lease->members & ~(1ull << slot);
    uint32_t least = lease->floor != 0 && lease->reported ? lease->floor : lease->min;
    char why[GP_ERROR_MESSAGE_MAX + 64];

    if ((lease->formed >> slot & 1) == 0) { /* The lease already continues without this member. */
        core->slots[slot].lease = 0;
        lease->members = rest;
        return;
    }
    assert(lease->phase == GP_CORE_GATHER);
    lease->formed &= ~(1ull << slot);
    snprintf(why, sizeof(why), "worker %u cannot be replaced: %s", slot + 1, core->slots[slot].reason);
    if (rest == 0 || (uint32_t)__builtin_popcountll(rest) < least) {
        gp_core_lease_end(core, lease, GP_EPEER, why);
        return;
    }
    gp_core_emit_log(core, "lease %llu continues without worker %u: %s", (unsigned long long)lease->id,
                     slot + 1, core->slots[slot].reason);
    core->slots[slot].lease = 0;
    lease->members = rest;
    gp_core_group_advance(core, lease);
}
