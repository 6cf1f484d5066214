/* Checks that compare the core with the real state of the simulated processes. */
#include <string.h>

#include "tests/sim/cluster.h"

/* Check that no earlier request was overtaken. */
static void check_order(sim *s, const gp_core_action *action)
{
    const gp_core_lease *lease = gp_core_lease_find(s->core, action->lease);
    sim_client *client = lease == NULL ? NULL : sim_find_client(s, &lease->session);

    for (uint32_t i = 0; client != NULL && i < SIM_CLIENTS; i++) {
        const sim_client *other = &s->clients[i];

        if (other->state != SIM_WAITING || other->asked == 0 || other->asked >= client->asked)
            continue;
        for (uint32_t a = 0; a < s->core->ask_count; a++)
            if (gp_core_id_equal(&s->core->asks[a].session, &other->session))
                sim_fail(s, "overtaken", "lease %llu overtook the earlier request of client %u",
                         (unsigned long long)action->lease, i);
    }
}

uint32_t *sim_lease_generation(sim *s, uint64_t lease)
{
    for (uint32_t i = 0; i < SIM_LEASES; i++)
        if (s->generation_of[i] == lease)
            return &s->generation_last[i];
    return NULL;
}

void sim_lease_known(sim *s, uint64_t lease)
{
    uint32_t entry = s->lease_entries++ % SIM_LEASES;

    s->generation_of[entry] = lease;
    s->generation_last[entry] = 0;
}

/* Check a grant to a worker: generations increase, ids are new, and no request is overtaken. */
static void check_grant(sim *s, const gp_core_action *action)
{
    uint32_t *last;

    if (action->lease > s->lease_last) {
        s->lease_last = action->lease;
        sim_lease_known(s, action->lease);
        check_order(s, action);
    }
    last = sim_lease_generation(s, action->lease);
    if (last == NULL) {
        sim_fail(s, "reused-lease", "lease id %llu was used again", (unsigned long long)action->lease);
        return;
    }
    if (action->generation < *last)
        sim_fail(s, "generation", "lease %llu went back to generation %u", (unsigned long long)action->lease,
                 action->generation);
    *last = action->generation;
}

/* Check a grant to a client: each member really holds this formation, or has exited unnoticed. */
static void check_gang(sim *s, const gp_core_action *action)
{
    if (action->member_count == 0)
        sim_fail(s, "gang", "lease %llu has no members", (unsigned long long)action->lease);
    for (uint32_t i = 0; i < action->member_count; i++) {
        const gp_core_member *member = &action->members[i];
        const sim_process *process = sim_find_process(s, member->slot, member->incarnation);

        if (process == NULL)
            sim_fail(s, "gang", "lease %llu names worker %u incarnation %u, which never existed",
                     (unsigned long long)action->lease, member->slot + 1, member->incarnation);
        else if (process->lease != action->lease || process->generation != action->generation)
            sim_fail(s, "gang",
                     "the client of lease %llu generation %u was granted worker %u, which holds lease %llu "
                     "generation %u",
                     (unsigned long long)action->lease, action->generation, member->slot + 1,
                     (unsigned long long)process->lease, process->generation);
    }
    s->tally.grants++;
}

/* Check a kill: silence is no reason to kill a worker that runs user code, but the end of a lease
 * is. */
static void check_kill(sim *s, const gp_core_action *action)
{
    const gp_core_slot *slot = &s->core->slots[action->slot];
    const sim_process *process = sim_find_process(s, action->slot, action->incarnation);

    if (process != NULL && process->alive && process->told_work == GP_CORE_USERS &&
        strstr(slot->reason, "no heartbeat") != NULL)
        sim_fail(s, "users-code", "worker %u was killed while it ran user code: %s", action->slot + 1,
                 slot->reason);
}

void sim_check_action(sim *s, const gp_core_action *action)
{
    if (action->kind == GP_CORE_KILL)
        check_kill(s, action);
    if (action->kind == GP_CORE_GRANT)
        check_grant(s, action);
    else if (action->kind == GP_CORE_LEASE_GRANT)
        check_gang(s, action);
}

static void check_member(sim *s, const gp_core_lease *lease, uint32_t slot)
{
    const gp_core_slot *member = &s->core->slots[slot];
    const sim_process *process;

    if (member->lease != lease->id)
        sim_fail(s, "member", "slot %u of lease %llu belongs to lease %llu", slot + 1,
                 (unsigned long long)lease->id, (unsigned long long)member->lease);
    if (lease->phase != GP_CORE_HELD || member->process != GP_CORE_READY || (lease->formed >> slot & 1) == 0)
        return;
    process = sim_find_process(s, slot, member->incarnation);
    if (process == NULL || process->lease != lease->id || process->generation != lease->generation)
        sim_fail(s, "not-served", "lease %llu generation %u is held, but worker %u does not serve it",
                 (unsigned long long)lease->id, lease->generation, slot + 1);
}

/* Check that no slot is in two leases, each member knows its lease, the queue is bounded, and
 * exited processes hold nothing. */
void sim_check_state(sim *s)
{
    const gp_core *core = s->core;
    uint64_t taken = 0;

    for (uint32_t i = 0; i < SIM_SLOTS + 1;
         i++) { /* each lease takes the first free entry and has a slot of its own */
        const gp_core_lease *lease = &core->leases[i];

        if (lease->id == 0)
            continue;
        if ((taken & lease->members) != 0)
            sim_fail(s, "two-leases", "a slot is in lease %llu and in another (mask %llx)",
                     (unsigned long long)lease->id, (unsigned long long)(taken & lease->members));
        taken |= lease->members;
        if ((lease->formed & ~lease->members) != 0)
            sim_fail(s, "formed", "lease %llu is formed with slots that it does not have",
                     (unsigned long long)lease->id);
        for (uint64_t left = lease->members; left != 0; left &= left - 1)
            check_member(s, lease, (uint32_t)__builtin_ctzll(left));
    }
    for (uint32_t slot = 0; slot < SIM_SLOTS; slot++) {
        if (core->slots[slot].lease != 0 && (taken >> slot & 1) == 0)
            sim_fail(s, "ghost-lease", "slot %u is held by lease %llu, which does not exist", slot + 1,
                     (unsigned long long)core->slots[slot].lease);
    }
    for (uint32_t slot = 0; slot < SIM_SLOTS; slot++) {
        const gp_core_slot *there = &core->slots[slot];

        if (there->suspect &&
            (there->process != GP_CORE_READY ||
             (gp_core_slot_silence(core, there) < core->config.suspect_ms && !PLANTED(KEPT_SUSPICION))))
            sim_fail(s, "suspicion", "worker %u is suspect after %lld ms", slot + 1,
                     (long long)gp_core_slot_silence(core, there));
    }
    if (core->ask_count > core->config.waits_max)
        sim_fail(s, "bounds", "%u requests wait, the limit is %u", core->ask_count, core->config.waits_max);
    if (core->client_count > core->config.clients_max)
        sim_fail(s, "bounds", "%u clients, the limit is %u", core->client_count, core->config.clients_max);
}

/* Describe the lease holders for an error message. */
static void describe_leases(const sim *s, char *text, size_t bytes)
{
    size_t used = 0;

    for (uint32_t i = 0; i < SIM_SLOTS + 1 && used < bytes; i++) {
        const gp_core_lease *lease = &s->core->leases[i];

        if (lease->id != 0)
            used += (size_t)snprintf(text + used, bytes - used,
                                     "; lease %llu generation %u, phase %d, members %llx, formed %llx",
                                     (unsigned long long)lease->id, lease->generation, (int)lease->phase,
                                     (unsigned long long)lease->members, (unsigned long long)lease->formed);
    }
}

bool sim_settled(const sim *s, char why[480])
{
    for (uint32_t i = 0; i < SIM_CLIENTS; i++) {
        if (s->clients[i].state != SIM_AWAY) {
            snprintf(why, 480, "client %u is still %s (lease %llu, training phase %d)", i,
                     s->clients[i].state == SIM_WAITING   ? "waiting"
                     : s->clients[i].state == SIM_HOLDING ? "holding"
                                                          : "there",
                     (unsigned long long)s->clients[i].lease,
                     s->clients[i].trains ? (int)s->clients[i].training.r.phase : -1);
            describe_leases(s, why + strlen(why), 480 - strlen(why));
            return false;
        }
    }
    for (uint32_t i = 0; i < GP_CORE_SLOTS_MAX; i++) {
        if (s->core->leases[i].id != 0) {
            snprintf(why, 480, "lease %llu was never given back", (unsigned long long)s->core->leases[i].id);
            return false;
        }
    }
    for (uint32_t slot = 0; slot < s->core->slot_count; slot++) {
        const char *word = gp_core_slot_word(&s->core->slots[slot]);

        if (s->core->slots[slot].suspect) {
            snprintf(why, 480, "worker %u is suspect, and is well", slot + 1);
            return false;
        }
        if (strcmp(word, "idle") != 0 && strcmp(word, "dead") != 0) {
            snprintf(why, 480, "worker %u is %s (%.400s)", slot + 1, word, s->core->slots[slot].reason);
            return false;
        }
    }
    return true;
}
