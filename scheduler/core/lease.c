/* Start and end leases.
 *
 * The core frees the entry of a lease as soon as the lease ends, although the workers may still
 * execute calls of the client. Until a worker acknowledges the revoke, slot->revoking of its slot
 * contains the lease id, and the slot cannot be leased. slot.c kills a worker that does not
 * acknowledge in time; the slot is free again when the next process is ready. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "scheduler/core/core_parts.h"

gp_core_lease *gp_core_lease_of(gp_core *core, uint64_t id)
{
    return (gp_core_lease *)gp_core_lease_find(core, id);
}

const gp_core_lease *gp_core_lease_find(const gp_core *core, uint64_t id)
{
    for (uint32_t i = 0; id != 0 && i < GP_CORE_SLOTS_MAX; i++) {
        if (core->leases[i].id == id)
            return &core->leases[i];
    }
    return NULL;
}

uint32_t gp_core_lease_count(const gp_core *core)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < GP_CORE_SLOTS_MAX; i++)
        count += core->leases[i].id != 0;
    return count;
}

void gp_core_lease_begin(gp_core *core, const gp_core_ask *ask, uint64_t members)
{
    gp_core_lease *lease = NULL;

    /* leases[] has one entry per slot, and each lease holds at least one slot that no other lease
     * holds, so an entry is always free. */
    for (uint32_t i = 0; lease == NULL && i < GP_CORE_SLOTS_MAX; i++) {
        if (core->leases[i].id == 0)
            lease = &core->leases[i];
    }
    assert(lease != NULL && members != 0);
    memset(lease, 0, sizeof(*lease));
    lease->id = core->lease_next++;
    if (core->lease_own == 0)
        core->lease_own = lease->id;
    lease->generation = 1;
    lease->min = ask->named != 0 ? (uint32_t)__builtin_popcountll(members) : ask->wish.min;
    lease->members = lease->formed = members;
    lease->floor = ask->wish.floor;
    lease->team = ask->wish.team && ask->wish.floor != 0;
    lease->want = ask->named != 0 ? lease->min : ask->wish.max != 0 ? ask->wish.max : GP_CORE_SLOTS_MAX;
    lease->environment = ask->wish.environment;
    lease->needs = ask->wish.needs;
    lease->named = ask->named;
    lease->phase = GP_CORE_GATHER;
    lease->session = ask->session;
    lease->correlation = ask->correlation;
    lease->token = ask->wish.token;
    lease->asked_ms = ask->asked_ms;
    lease->since_ms = core->now_ms;
    lease->pid = ask->pid;
    snprintf(lease->description, sizeof(lease->description), "%s", ask->wish.description);
    GP_CORE_EACH_MEMBER(s, members)
    {
        gp_core_slot *slot = &core->slots[s];

        assert(slot->lease == 0);
        slot->lease = lease->id;
        slot->granted = slot->acked = 0;
        slot->step = 0;
    }
    gp_core_group_advance(core, lease);
}

void gp_core_lease_revoke(gp_core *core, uint32_t slot, uint64_t lease, uint32_t generation)
{
    gp_core_action *action = gp_core_emit_to_worker(core, GP_CORE_REVOKE, slot);

    action->lease = lease;
    action->generation = generation;
    core->slots[slot].revoking = lease;
    core->slots[slot].grace_used = false;
    core->slots[slot].answer_ms = core->now_ms + core->config.answer_ms;
}

void gp_core_lease_end(gp_core *core, gp_core_lease *lease, gp_status status, const char *reason)
{
    gp_core_lease ended = *lease;

    lease->id = 0;
    core->active_ms = core->now_ms;
    GP_CORE_EACH_MEMBER(s, ended.members)
    {
        gp_core_slot *slot = &core->slots[s];

        slot->lease = 0;
        slot->answer_ms = 0;
        if (slot->process == GP_CORE_READY && slot->granted != 0)
            gp_core_lease_revoke(core, s, ended.id, slot->granted);
    }
    if (reason == NULL)
        return;

    /* Until the client has received its first generation, its lease request has no reply. Send an
     * error reply in that case. */
    if (ended.reported) {
        gp_core_action *action = gp_core_emit_to_client(core, GP_CORE_LEASE_ENDED, &ended.session, 0);

        action->lease = ended.id;
        action->generation = ended.generation;
        action->status = status;
        snprintf(action->text, sizeof(action->text), "%s", reason);
    } else {
        gp_core_emit_error(core, &ended.session, ended.correlation, status, "%s", reason);
    }
}

void gp_core_lease_release(gp_core *core, const gp_core_event *event)
{
    gp_core_lease *lease = gp_core_lease_of(core, event->lease);

    if (lease == NULL || !gp_core_id_equal(&lease->session, &event->session)) {
        core->stale++;
        gp_core_emit_error(core, &event->session, event->correlation, GP_ESTALE,
                           "lease %llu has ended or belongs to another session",
                           (unsigned long long)event->lease);
        return;
    }
    gp_core_lease_end(core, lease, GP_OK, NULL);
    gp_core_emit_to_client(core, GP_CORE_OK, &event->session, event->correlation);
}

void gp_core_lease_revoked(gp_core *core, const gp_core_event *event)
{
    gp_core_slot *slot = &core->slots[event->slot];

    if (slot->revoking == 0 || slot->revoking != event->lease) {
        core->stale++;
        return;
    }
    slot->revoking = 0;
    slot->answer_ms = 0;
    slot->granted = slot->acked = 0;
    slot->step = 0;
    /* A worker that freezes before its next heartbeat must not be spared for user code. */
    slot->work = GP_CORE_OURS;
    slot->stretch_ms = slot->stretch_max_ms = 0;

    /* The process must not serve another lease. Its requested exit does not count as a failure.
     * Queued requests wait for the next process in this slot. */
    if (event->recycle)
        gp_core_slot_quit(core, event->slot);
}
