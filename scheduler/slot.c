/* slot.c -- the life of the processes in a slot.
 *
 *   ABSENT --due: SPAWN--> STARTING --ready--> READY ------------------------.
 *     ^                       |  \---ready without a device--> EXCLUDED      | no answer, no beat
 *     |                       | not ready in time: KILL           | due: QUIT| KILL
 *     '---------died----------+---------------------------------- DYING <----'
 *
 * A slot may begin with a process of an earlier scheduler, AWAITED instead of ABSENT: adopt.c.
 *
 * A slot whose process died before it was ready waits longer each time; after GP_CORE_EARLY_DEATHS_MAX such
 * deaths within ten seconds it is condemned: a worker that cannot start must not keep the machine busy.
 * A device that is taken may come free (a worker that is being killed, or ends for want of a scheduler), so the excluded are tried again: soon at first, then every half minute. */
#include <stdio.h>
#include <string.h>

#include "scheduler/core_parts.h"

enum { EARLY_WINDOW_MS = 10000, RETRY_FIRST_MS = 250, RETRY_LAST_MS = 30000, TRIES_SOON = 4 };

bool gp_core_slot_free(const gp_core_slot *slot)
{
    return slot->wanted && !slot->kept && slot->process == GP_CORE_READY &&
           (slot->lease == 0 || MUTANT(DOUBLE_GRANT)) && slot->revoking == 0 &&
           (slot->claim == 0 || MUTANT(HASTY_GRANT));
}

bool gp_core_slot_coming(const gp_core_slot *slot)
{
    if (!slot->wanted || slot->condemned || slot->lease != 0)
        return false;
    switch (slot->process) {
    case GP_CORE_ABSENT:
    case GP_CORE_AWAITED:
    case GP_CORE_STARTING:
    case GP_CORE_EXCLUDED:
    case GP_CORE_DYING:
        return slot->tries <= TRIES_SOON;
    case GP_CORE_READY:
        return false;
    }
    return false;
}

bool gp_core_slot_usable(const gp_core_slot *slot)
{
    return slot->wanted && !slot->condemned &&
           (slot->process == GP_CORE_READY || slot->lease != 0 || gp_core_slot_coming(slot));
}

const char *gp_core_slot_word(const gp_core_slot *slot)
{
    if (slot->condemned)
        return "dead";
    if (slot->process == GP_CORE_EXCLUDED || (slot->tries != 0 && slot->process != GP_CORE_READY))
        return "excluded";
    if (slot->process != GP_CORE_READY)
        return "starting";
    return slot->lease != 0 || slot->revoking != 0 || slot->claim != 0 ? "busy" : "idle";
}

void gp_core_slot_spawn(gp_core *core, uint32_t index)
{
    gp_core_slot *slot = &core->slots[index];

    slot->process = GP_CORE_STARTING;
    if (slot->incarnation < core->config.incarnation_base) /* that of an adopted process */
        slot->incarnation = core->config.incarnation_base;
    slot->incarnation++;
    slot->pid = 0;
    slot->due_ms = core->now_ms + core->config.start_ms;
    gp_core_emit_to_worker(core, GP_CORE_SPAWN, index);
}

void gp_core_slot_kill(gp_core *core, uint32_t index)
{
    gp_core_slot *slot = &core->slots[index];

    slot->process = GP_CORE_DYING;
    slot->due_ms = core->now_ms + core->config.answer_ms;
    slot->answer_ms = 0;
    gp_core_emit_to_worker(core, GP_CORE_KILL, index);
}

void gp_core_slot_quit(gp_core *core, uint32_t index)
{
    gp_core_slot *slot = &core->slots[index];

    if (slot->process == GP_CORE_STARTING || slot->process == GP_CORE_AWAITED) { /* nobody to be told yet */
        gp_core_slot_kill(core, index);
    } else if (slot->process == GP_CORE_READY || slot->process == GP_CORE_EXCLUDED) {
        slot->process = GP_CORE_DYING;
        slot->due_ms = core->now_ms + core->config.answer_ms;
        slot->answer_ms = 0;
        gp_core_emit_to_worker(core, GP_CORE_QUIT, index);
    }
}

static void kill_because(gp_core *core, uint32_t index, const char *reason)
{
    snprintf(core->slots[index].reason, sizeof(core->slots[index].reason), "%s", reason);
    gp_core_emit_log(core, "worker %u (pid %d, incarnation %u) is killed: %s", index + 1,
                     (int)core->slots[index].pid, core->slots[index].incarnation, reason);
    gp_core_slot_kill(core, index);
}

void gp_core_slot_replace(gp_core *core, const gp_core_event *event)
{
    const gp_core_lease *lease = gp_core_lease_find(core, event->lease);
    gp_core_slot *slot = &core->slots[event->slot];
    bool present = slot->incarnation == event->incarnation && slot->process == GP_CORE_READY;

    if (lease == NULL || !gp_core_id_equal(&lease->session, &event->session) || slot->lease != lease->id ||
        !present) {
        core->stale++;
        gp_core_emit_error(core, &event->session, event->correlation, GP_ESTALE,
                           "worker %u, incarnation %u, is not a member of lease %llu of this session now",
                           event->slot + 1, event->incarnation, (unsigned long long)event->lease);
        return;
    }
    gp_core_emit_to_client(core, GP_CORE_OK, &event->session, event->correlation);
    kill_because(core, event->slot, event->reason);
}

void gp_core_slot_spawned(gp_core *core, const gp_core_event *event)
{
    core->slots[event->slot].pid = event->pid;
}

/* A worker says again that it is ready (it re-executed itself).  What it holds must be what we think. */
static void ready_again(gp_core *core, const gp_core_event *event)
{
    gp_core_slot *slot = &core->slots[event->slot];
    gp_core_lease *lease = gp_core_lease_of(core, slot->lease);

    if (slot->revoking != 0 && event->lease == 0) {
        slot->revoking = 0;
        slot->answer_ms = 0;
        slot->granted = slot->acked = 0;
        return;
    }
    if (lease == NULL || slot->granted == 0)
        return;
    if (event->lease == lease->id && (lease->formed >> event->slot & 1) == 0) /* it prepares, for that one */
        slot->granted = slot->acked = event->generation;
    if (event->lease == lease->id)
        return;
    /* The grant, or what it knew of it, was lost with its former self. */
    kill_because(core, event->slot, "it came back without the lease it was granted");
}

static void ready_excluded(gp_core *core, const gp_core_event *event)
{
    gp_core_slot *slot = &core->slots[event->slot];
    gp_core_lease *lease = gp_core_lease_of(core, slot->lease);
    int64_t wait_ms = RETRY_LAST_MS;

    if (slot->process == GP_CORE_READY) { /* it lost its device: the new process will say whether for good */
        kill_because(core, event->slot, event->reason != NULL ? event->reason : "it lost its device");
        return;
    }
    slot->process = GP_CORE_EXCLUDED;
    slot->tries++;
    if (slot->tries <= TRIES_SOON)
        wait_ms = (int64_t)RETRY_FIRST_MS << (slot->tries - 1);
    slot->due_ms = core->now_ms + wait_ms;
    snprintf(slot->reason, sizeof(slot->reason), "%s",
             event->reason != NULL ? event->reason : "no reason given");
    if (slot->tries > TRIES_SOON && lease != NULL)
        gp_core_group_shrink(core, lease, event->slot);
}

void gp_core_slot_ready(gp_core *core, const gp_core_event *event)
{
    gp_core_slot *slot = &core->slots[event->slot];
    gp_core_lease *lease;
    bool again = slot->process == GP_CORE_READY;

    slot->beat_ms = core->now_ms;
    if (!event->usable) {
        ready_excluded(core, event);
        return;
    }
    if (slot->process == GP_CORE_AWAITED || (again && slot->claim != 0)) {
        gp_core_adopt_reported(core, event);
        return;
    }
    slot->process = GP_CORE_READY;
    slot->tries = slot->early = 0;
    slot->reason[0] = '\0';
    if (again)
        ready_again(core, event);
    if (slot->process != GP_CORE_READY)
        return;
    /* A lease of another time: nobody here can use it. */
    if (event->lease != 0 && event->lease != slot->lease)
        gp_core_lease_revoke(core, event->slot, event->lease, event->generation);
    lease = gp_core_lease_of(core, slot->lease);
    if (lease != NULL)
        gp_core_group_advance(core, lease);
}

/* When the next process may be spawned, or that none may. */
static void count_early_death(gp_core *core, uint32_t index, const char *cause)
{
    gp_core_slot *slot = &core->slots[index];

    if (slot->early == 0 || core->now_ms - slot->early_since_ms > EARLY_WINDOW_MS) {
        slot->early = 0;
        slot->early_since_ms = core->now_ms;
    }
    slot->early++;
    slot->due_ms = core->now_ms + (slot->early == 1 ? 0 : 50ll << slot->early);
    if (slot->early < GP_CORE_EARLY_DEATHS_MAX)
        return;
    slot->condemned = true;
    snprintf(slot->reason, sizeof(slot->reason),
             "it died %u times while starting; the last time %.360s; run `gradpool up` to try again",
             slot->early, cause);
    gp_core_emit_log(core, "worker %u is given up: %s", index + 1, slot->reason);
}

void gp_core_slot_died(gp_core *core, const gp_core_event *event)
{
    gp_core_slot *slot = &core->slots[event->slot];
    gp_core_lease *lease = gp_core_lease_of(core, slot->lease);
    bool asked = slot->process == GP_CORE_DYING && slot->reason[0] == '\0';
    bool excluded = slot->tries != 0; /* its reason stays to be read */
    bool early = slot->process == GP_CORE_STARTING;
    char cause[GP_ERROR_MESSAGE_MAX];

    gp_core_words_death(cause, slot, event->slot, event);
    if (lease != NULL)
        gp_core_group_lost(core, lease, event, cause);
    if (!asked && !excluded) {
        slot->deaths++;
        gp_core_emit_log(core, "%s", cause);
    }
    slot->process = GP_CORE_ABSENT;
    slot->pid = 0;
    slot->due_ms = core->now_ms;
    slot->revoking = 0;
    slot->answer_ms = 0;
    slot->granted = slot->acked = 0;
    slot->claim = 0;
    slot->claim_pid = 0;
    slot->step = 0;
    if (!excluded)
        slot->reason[0] = '\0';
    if (early)
        count_early_death(core, event->slot, cause);
    if (slot->condemned && lease != NULL)
        gp_core_group_shrink(core, lease, event->slot);
    else if (lease != NULL)
        gp_core_group_advance(core, lease); /* an elastic one needs no replacement */
    gp_core_slot_tick(core, event->slot);
}

static void tick_ready(gp_core *core, uint32_t index)
{
    gp_core_slot *slot = &core->slots[index];
    char why[160];

    if (MUTANT(FORGOTTEN_DEADLINE))
        return;
    if (slot->answer_ms != 0 && core->now_ms >= slot->answer_ms) {
        if (slot->revoking != 0)
            snprintf(why, sizeof(why), "it did not give back lease %llu in time",
                     (unsigned long long)slot->revoking);
        else
            snprintf(why, sizeof(why), "it did not acknowledge lease %llu in time",
                     (unsigned long long)slot->lease);
        kill_because(core, index, why);
    } else if (core->config.beat_ms != 0 && core->now_ms - slot->beat_ms >= core->config.beat_ms) {
        snprintf(why, sizeof(why), "it gave no sign of life for %lld s",
                 (long long)(core->config.beat_ms / 1000));
        kill_because(core, index, why);
    }
}

void gp_core_slot_tick(gp_core *core, uint32_t index)
{
    gp_core_slot *slot = &core->slots[index];

    if (slot->process == GP_CORE_READY) {
        tick_ready(core, index);
        return;
    }
    if (core->now_ms < slot->due_ms)
        return;
    switch (slot->process) {
    case GP_CORE_ABSENT:
        if (slot->wanted && !slot->condemned && core->stopping != GP_CORE_STOPPING)
            gp_core_slot_spawn(core, index);
        break;
    case GP_CORE_AWAITED:
        kill_because(core, index, "it did not report to the scheduler that follows its own");
        break;
    case GP_CORE_STARTING:
        kill_because(core, index, "it was not ready in time");
        break;
    case GP_CORE_EXCLUDED:
        gp_core_slot_quit(core, index);
        break;
    case GP_CORE_DYING:
        gp_core_slot_kill(core, index);
        break;
    case GP_CORE_READY:
        break;
    }
}

int64_t gp_core_slot_due(const gp_core_slot *slot, const gp_core_config *config)
{
    int64_t due = INT64_MAX;

    if (slot->process != GP_CORE_READY)
        return slot->process == GP_CORE_ABSENT && (!slot->wanted || slot->condemned) ? INT64_MAX
                                                                                     : slot->due_ms;
    if (MUTANT(FORGOTTEN_DEADLINE))
        return due;
    if (slot->answer_ms != 0)
        due = slot->answer_ms;
    if (config->beat_ms != 0 && slot->beat_ms + config->beat_ms < due)
        due = slot->beat_ms + config->beat_ms;
    return due;
}
