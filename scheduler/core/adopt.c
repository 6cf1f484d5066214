/* Recover the workers, leases and clients of a scheduler that crashed.
 *
 *   AWAITED --report--> READY, with a claim: the lease that it serves ----. joined by lease id
 *   and token
 *   client: lease, generation, token and members --------------------------'---> a lease, HELD
 *
 * Workers and clients continue while no scheduler runs. Before the first step, the shell finds the
 * live workers (GP_CORE_EVENT_WORKER_FOUND). For adopt_ms the core grants nothing, and both sides
 * report their leases in any order. The worker's report decides which lease it serves. The client's
 * report decides whether the lease is still wanted.
 *
 * - All members agree: the lease continues unchanged, without any message.
 * - A member exited or serves another generation: the core offers the next generation, as after
 *   any worker failure (group.c).
 * - No client claims the lease in time: the core keeps it while the holder process named by the
 *   workers is alive. A client that is suspended or busy computing can claim it later. If the
 *   holder has exited, or no worker named one, the core revokes the lease.
 * - A member of a training serves another lease, or none: it left the training before the client
 *   received the formation without it. The core drops it from the claim. A team names only the
 *   members that it still uses.
 * - No member survived, so no worker can report: the core accepts the claim at any time if the
 *   slots are not assigned. For keep_ms it reserves the slots for that claim.
 *
 * The report period ends early when all reports have arrived. A live worker that has not reported
 * by the deadline is killed and replaced: it only had to reply to one call, and all others wait for
 * it. */
#include <stdio.h>
#include <string.h>

#include "scheduler/core/core_parts.h"

/* Limits for ids from other processes: the core counts up from the values that it accepts, and must
 * not overflow. */
static const uint64_t lease_max = INT64_MAX;
static const uint32_t generation_max = INT32_MAX;

void gp_core_adopt_found(gp_core *core, const gp_core_event *event)
{
    gp_core_slot *slot = &core->slots[event->slot];

    if (slot->process != GP_CORE_ABSENT) {
        core->stale++;
        return;
    }
    slot->process = GP_CORE_AWAITED;
    slot->answered = true;
    slot->kept = slot->kept && event->holds;
    slot->incarnation = event->incarnation;
    slot->pid = event->pid;
    core->adopting_ms = core->now_ms + core->config.adopt_ms;
    slot->due_ms = core->adopting_ms;
    if (!slot->wanted)
        gp_core_slot_kill(core, event->slot);
}

/* Return whether the slot's worker reported this lease, with this token. */
static bool claims(const gp_core_slot *slot, uint64_t lease, const gp_core_id *token)
{
    return slot->process == GP_CORE_READY && slot->claim == lease &&
           gp_core_id_equal(&slot->claim_token, token);
}

static void revoke_claim(gp_core *core, uint32_t index)
{
    gp_core_slot *slot = &core->slots[index];

    gp_core_lease_revoke(core, index, slot->claim, slot->claim_generation);
    slot->claim = 0;
    slot->claim_pid = 0;
}

static void revoke_unheld(gp_core *core, uint32_t index)
{
    gp_core_emit_log(core,
                     "worker %u has lease %llu of an earlier scheduler, which no client claimed; revoking it",
                     index + 1, (unsigned long long)core->slots[index].claim);
    revoke_claim(core, index);
}

/* Revoke the claimed lease of this slot in all slots that claim it. */
static void revoke_all(gp_core *core, uint32_t index)
{
    const uint64_t lease = core->slots[index].claim;
    const gp_core_id token = core->slots[index].claim_token;

    for (uint32_t s = 0; s < GP_CORE_SLOTS_MAX; s++)
        if (core->slots[s].claim != 0 && claims(&core->slots[s], lease, &token))
            revoke_unheld(core, s);
}

/* Return whether the session has a queued request. A client that requests a lease does not claim an
 * older one. */
static bool asks(const gp_core *core, const gp_core_id *session)
{
    for (uint32_t i = 0; i < core->ask_count; i++)
        if (gp_core_id_equal(&core->asks[i].session, session))
            return true;
    return false;
}

/* Return the process that holds the slot's claimed lease, as named by any member. A client may have
 * attached to some members only. 0: none. */
static int32_t holder_of(const gp_core *core, const gp_core_slot *slot)
{
    for (uint32_t s = 0; s < GP_CORE_SLOTS_MAX; s++) {
        const gp_core_slot *other = &core->slots[s];

        if (other->claim != 0 && other->claim_pid != 0 && claims(other, slot->claim, &slot->claim_token) &&
            !asks(core, &other->claim_session))
            return other->claim_pid;
    }
    return 0;
}

/* Move the claim of a worker to a lease of this scheduler. */
static void take_claim(gp_core_slot *slot)
{
    slot->granted = slot->acked = slot->claim_generation;
    slot->claim = 0;
    slot->claim_pid = 0;
}

/* Offer a new generation, because some members are not in the formation that the client knows. Its
 * number is above all generations that any member had. */
static void form_anew(gp_core *core, gp_core_lease *lease)
{
    uint32_t last = lease->phase == GP_CORE_HELD ? lease->generation : lease->generation - 1;

    GP_CORE_EACH_MEMBER(s, lease->members)
    {
        if (core->slots[s].granted > last)
            last = core->slots[s].granted;
    }
    lease->generation = last + 1;
    lease->announced_size = 0;
    lease->phase = GP_CORE_GATHER;
    gp_core_group_advance(core, lease);
}

/* Report lost peers to a worker that reported late. Its formation has already ended, and it may
 * wait for members that no longer exist. */
static void notify_lost_peers(gp_core *core, const gp_core_lease *lease, uint32_t index)
{
    const gp_core_slot *slot = &core->slots[index];

    GP_CORE_EACH_MEMBER(s, lease->members)
    {
        gp_core_action *action;

        if (s == index || core->slots[s].process == GP_CORE_AWAITED ||
            core->slots[s].granted == slot->granted)
            continue;
        action = gp_core_emit_to_worker(core, GP_CORE_PEER_LOST, index);
        action->lease = lease->id;
        action->generation = slot->granted;
        action->lost_slot = s;
        action->lost_incarnation = core->slots[s].incarnation;
        snprintf(action->text, sizeof(action->text),
                 "worker %u exited together with the scheduler (exit status unknown)", s + 1);
    }
}

/* Return whether an adopted lease can continue without one of its members: it is a training's, and
 * enough others remain. The members of a team must keep their ranks. */
static bool can_spare(const gp_core_lease *lease)
{
    return lease->floor != 0 && !lease->team && (uint32_t)__builtin_popcountll(lease->members) > lease->floor;
}

/* Remove a member that left the lease before the scheduler crashed. */
static void drop(gp_core *core, gp_core_lease *lease, uint32_t index)
{
    lease->members &= ~(1ull << index);
    lease->formed &= lease->members;
    lease->joining &= lease->members;
    core->slots[index].lease = 0;
    form_anew(core, lease);
}

/* Add a late worker to a lease that the client has already claimed. If the worker serves another
 * lease, drop it, or end the lease. */
static void join(gp_core *core, gp_core_lease *lease, uint32_t index)
{
    gp_core_slot *slot = &core->slots[index];
    char why[GP_ERROR_MESSAGE_MAX];

    slot->granted = slot->acked = 0;
    if (slot->claim != 0 && !claims(slot, lease->id, &lease->token)) {
        snprintf(why, sizeof(why), "worker %u now has another lease", index + 1);
        if (can_spare(lease))
            drop(core, lease, index);
        else
            gp_core_lease_end(core, lease, GP_ESTALE, why);
        return;
    }
    if (slot->claim != 0)
        take_claim(slot);
    if (slot->granted == lease->generation && lease->phase == GP_CORE_HELD)
        return;
    if (slot->granted != 0 && slot->granted < lease->generation)
        notify_lost_peers(core, lease, index);
    form_anew(core, lease);
}

/* Return whether a client claimed the lease earlier. That client now continues without this worker,
 * has released the lease, or treats it as lost. */
static bool was_claimed(const gp_core *core, uint64_t lease)
{
    for (uint32_t i = 0; i < core->adopted_count; i++)
        if (core->adopted[i] == lease)
            return true;
    return false;
}

void gp_core_adopt_reported(gp_core *core, const gp_core_event *event)
{
    gp_core_slot *slot = &core->slots[event->slot];
    gp_core_lease *lease = gp_core_lease_of(core, slot->lease);

    slot->process = GP_CORE_READY;
    slot->claim = event->lease;
    slot->claim_generation = event->generation;
    slot->claim_token = event->token;
    slot->claim_pid = event->lease != 0 ? event->pid : 0;
    slot->claim_session = event->session;
    if (event->lease >= core->lease_next && event->lease <= lease_max)
        core->lease_next = event->lease + 1; /* lease ids are never reused */
    if (lease != NULL)
        join(core, lease, event->slot);
    if (slot->claim != 0 &&
        (was_claimed(core, slot->claim) || (core->adopting_ms == 0 && holder_of(core, slot) == 0)))
        revoke_claim(core, event->slot);
}

void gp_core_adopt_unheld(gp_core *core, const gp_core_event *event)
{
    gp_core_slot *slot = &core->slots[event->slot];

    /* The client has reconnected, and its control socket reports when it exits. */
    if (slot->claim == 0)
        return;
    slot->claim_pid = 0;
    if (core->adopting_ms == 0)
        revoke_all(core, event->slot);
}

void gp_core_adopt_asked(gp_core *core, const gp_core_id *session)
{
    for (uint32_t s = 0; s < GP_CORE_SLOTS_MAX && core->adopting_ms == 0; s++)
        if (core->slots[s].claim != 0 && gp_core_id_equal(&core->slots[s].claim_session, session))
            revoke_all(core, s);
}

/* Remove from a training's claim the members that serve another lease or none, or that the pool has
 * no longer, if enough others remain. */
static void drop_left_members(const gp_core *core, gp_core_claim *claim, uint64_t lease)
{
    uint32_t count = 0;
    gp_core_member rest[GP_CORE_SLOTS_MAX];

    for (uint32_t i = 0; i < claim->member_count; i++) {
        const gp_core_slot *slot = &core->slots[claim->members[i].slot];
        bool serves_none = slot->incarnation == claim->members[i].incarnation &&
                           slot->process == GP_CORE_READY && slot->claim == 0;

        if (slot->wanted && slot->lease == 0 && slot->revoking == 0 && !serves_none &&
            (slot->claim == 0 || claims(slot, lease, &claim->token)))
            rest[count++] = claim->members[i];
    }
    if (claim->floor == 0 || claim->team || count < claim->floor)
        return;
    claim->member_count = count;
    memcpy(claim->members, rest, count * sizeof(rest[0]));
}

/* Return whether a claim is possible after the report period: no live member was revoked or serves
 * another lease. */
static bool still_there(const gp_core *core, const gp_core_event *event)
{
    const gp_core_claim *claim = event->claim;

    for (uint32_t i = 0; i < claim->member_count; i++) {
        const gp_core_slot *slot = &core->slots[claim->members[i].slot];
        bool lives = slot->incarnation == claim->members[i].incarnation && slot->process != GP_CORE_ABSENT &&
                     slot->process != GP_CORE_DYING;

        if (lives && !claims(slot, event->lease, &claim->token))
            return false;
    }
    return true;
}

/* Check a claim against the worker reports so far and against other leases.
 *   GP_ENOPOOL: the pool is shutting down
 *   GP_ESTALE: the lease ended, or a member is not available
 *   GP_EBUSY: only the report of a worker will show whether it serves this lease
 *   GP_EINVAL: incomplete claim */
static gp_status check_claim(const gp_core *core, const gp_core_event *event, gp_error *err)
{
    const gp_core_claim *claim = event->claim;
    uint64_t seen = 0;

    if (core->stopping == GP_CORE_STOPPING)
        return gp_fail(err, GP_ENOPOOL, "the pool is shutting down");
    if ((core->adopting_ms == 0 && !still_there(core, event)) || !core->accepting)
        return gp_fail(err, GP_ESTALE,
                       "lease %llu was granted by a scheduler that exited, and its client did not reconnect "
                       "before the deadline",
                       (unsigned long long)event->lease);
    if (event->lease == 0 || event->lease > lease_max || event->generation == 0 ||
        event->generation > generation_max || claim->member_count == 0)
        return gp_fail(err, GP_EINVAL, "malformed lease_claim: lease %llu, generation %u, %u members",
                       (unsigned long long)event->lease, event->generation, claim->member_count);
    /* Ids of ended leases are not accepted again. If the list of claimed ids is full, assume that
     * the id was used. */
    if ((core->lease_own != 0 && event->lease >= core->lease_own && event->lease < core->lease_next) ||
        was_claimed(core, event->lease) || core->adopted_count == GP_CORE_SLOTS_MAX)
        return gp_fail(err, GP_ESTALE, "lease %llu has ended or belongs to another client",
                       (unsigned long long)event->lease);
    for (uint32_t i = 0; i < claim->member_count; i++) {
        const gp_core_slot *slot = &core->slots[claim->members[i].slot];

        if (!slot->wanted || (seen >> claim->members[i].slot & 1) != 0)
            return gp_fail(err, GP_ESTALE, "worker %u is no longer a member of the pool",
                           claim->members[i].slot + 1);
        seen |= 1ull << claim->members[i].slot;
        if (slot->process == GP_CORE_AWAITED &&
            (slot->lease != 0 || slot->incarnation != claim->members[i].incarnation))
            return gp_fail(err, GP_EBUSY, "worker %u has not reported yet; repeat the claim",
                           claim->members[i].slot + 1);
        if (slot->lease != 0 || slot->revoking != 0 ||
            (slot->claim != 0 && !claims(slot, event->lease, &claim->token)))
            return gp_fail(err, GP_ESTALE, "worker %u now has another lease", claim->members[i].slot + 1);
    }
    return GP_OK;
}

/* Return whether a member of the claim has not reported yet. */
static bool awaits_any(const gp_core *core, const gp_core_claim *claim)
{
    for (uint32_t i = 0; i < claim->member_count; i++)
        if (core->slots[claim->members[i].slot].process == GP_CORE_AWAITED)
            return true;
    return false;
}

/* Create the lease that a client claims, and assign the members to it. */
static gp_core_lease *rebuild(gp_core *core, const gp_core_event *event)
{
    const gp_core_claim *claim = event->claim;
    gp_core_lease *lease = core->leases;

    core->adopted[core->adopted_count++] = event->lease;
    while (lease->id != 0) /* an entry is free: each lease holds a separate slot */
        lease++;
    *lease = (gp_core_lease){ .id = event->lease,
                              .generation = event->generation,
                              .min = claim->min,
                              .floor = claim->floor,
                              .team = claim->team && claim->floor != 0,
                              .joins = claim->member_count,
                              .want = claim->want != 0 ? claim->want : GP_CORE_SLOTS_MAX,
                              .environment = claim->environment,
                              .needs = claim->needs,
                              .phase = GP_CORE_HELD,
                              .reported = true,
                              .session = event->session,
                              .token = claim->token,
                              .since_ms = core->now_ms,
                              .pid = event->pid };
    memcpy(lease->description, claim->description, sizeof(lease->description));
    for (uint32_t i = 0; i < claim->member_count; i++) {
        gp_core_slot *slot = &core->slots[claim->members[i].slot];

        lease->members |= 1ull << claim->members[i].slot;
        slot->lease = lease->id;
        lease->joined[claim->members[i].slot] = claim->team ? i : 0;
        slot->kept = false;
        slot->suspect = false; /* the next tick reports a silent worker to this client */
        slot->granted = slot->acked = 0;
        if (claims(slot, lease->id, &lease->token))
            take_claim(slot);
    }
    lease->formed = lease->members;
    /* A worker that claims the lease but is no member was about to join. Revoke the claim; the
     * lease invites it again. */
    for (uint32_t s = 0; s < GP_CORE_SLOTS_MAX; s++)
        if (core->slots[s].lease == 0 && claims(&core->slots[s], lease->id, &lease->token))
            revoke_claim(core, s);
    if (lease->id >= core->lease_next)
        core->lease_next = lease->id + 1;
    return lease;
}

void gp_core_adopt_claim(gp_core *core, const gp_core_event *event)
{
    gp_core_claim *claim = &(gp_core_claim){ 0 };
    gp_core_event known = *event;
    gp_core_lease *lease;
    bool changed;
    char cause[GP_ERROR_MESSAGE_MAX];
    gp_error err;

    *claim = *event->claim;
    known.claim = claim;
    drop_left_members(core, claim, event->lease);
    changed = claim->member_count != event->claim->member_count;
    if (check_claim(core, &known, &err) != GP_OK) {
        gp_core_emit_error(core, &event->session, event->correlation, err.code, "%s", err.message);
        if (err.code == GP_EBUSY)
            return;
        core->stale++;

        /* The client treats the lease as lost from here on: also revoke it from workers that report
         * later. */
        if (err.code == GP_ESTALE && awaits_any(core, claim) && !was_claimed(core, event->lease) &&
            core->adopted_count < GP_CORE_SLOTS_MAX)
            core->adopted[core->adopted_count++] = event->lease;
        for (uint32_t s = 0; s < GP_CORE_SLOTS_MAX; s++)
            if (core->slots[s].claim != 0 && claims(&core->slots[s], event->lease, &claim->token))
                revoke_claim(core, s);
        return;
    }
    lease = rebuild(core, &known);
    gp_core_emit_to_client(core, GP_CORE_OK, &event->session, event->correlation);
    for (uint32_t i = 0; i < claim->member_count; i++) {
        const gp_core_member *member = &claim->members[i];
        const gp_core_slot *slot = &core->slots[member->slot];
        bool same = slot->incarnation == member->incarnation;

        if (same && slot->process == GP_CORE_AWAITED)
            continue;
        if (!same || slot->process != GP_CORE_READY) { /* it exited while no scheduler ran */
            gp_core_event died = { .slot = member->slot,
                                   .incarnation = member->incarnation,
                                   .death = GP_CORE_DIED_UNKNOWN };

            snprintf(
                cause, sizeof(cause),
                "worker %u exited while no scheduler was running (exit status unknown); its log is %.150s",
                member->slot + 1, slot->config.log);
            gp_core_group_lost(core, lease, &died, cause);
        }
        changed = changed || !same || slot->process != GP_CORE_READY || slot->granted != event->generation;
    }
    if (changed)
        form_anew(core, lease);
}

uint32_t gp_core_adopt_claims(const gp_core *core)
{
    uint32_t claimed = 0;

    for (uint32_t s = 0; s < GP_CORE_SLOTS_MAX; s++)
        claimed += core->slots[s].claim != 0;
    return claimed;
}

void gp_core_adopt_tick(gp_core *core)
{
    bool missing = false;

    if (core->kept_ms != 0 && core->now_ms >= core->kept_ms) {
        core->kept_ms = 0;
        for (uint32_t s = 0; s < GP_CORE_SLOTS_MAX; s++)
            core->slots[s].kept = false;
    }
    if (core->adopting_ms == 0)
        return;
    for (uint32_t s = 0; s < GP_CORE_SLOTS_MAX; s++)
        missing = missing || core->slots[s].process == GP_CORE_AWAITED || core->slots[s].claim != 0;
    if (missing && core->now_ms < core->adopting_ms)
        return;
    core->adopting_ms = 0;
    for (uint32_t s = 0; s < GP_CORE_SLOTS_MAX; s++) {
        const gp_core_slot *slot = &core->slots[s];

        if (slot->claim != 0 && holder_of(core, slot) == 0)
            revoke_unheld(core, s);
        else if (slot->claim != 0)
            gp_core_emit_log(core, "worker %u has lease %llu of pid %d, which has not claimed it yet", s + 1,
                             (unsigned long long)slot->claim, (int)slot->claim_pid);
    }
}
