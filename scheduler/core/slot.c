/* Life cycle of the worker processes in a slot.
 *
 *   ABSENT --due: SPAWN--> STARTING --ready--> READY ------------------------.
 *     ^                       |  \---ready without a device--> EXCLUDED      | no reply or beat
 *     |                       | not ready in time: KILL           | due: QUIT| KILL
 *     '---------exited--------+---------------------------------- DYING <----'
 *
 * A slot may start in AWAITED instead of ABSENT, with a process from an earlier scheduler
 * (adopt.c).
 *
 * Respawning: after an exit before ready, the delay grows with each attempt. After
 * GP_CORE_EARLY_DEATHS_MAX such exits in a row, the slot is disabled: a worker that cannot start
 * must neither keep the machine busy nor keep requests for all workers waiting. A worker that is
 * killed because it is not ready in time counts, too. A process that cannot be spawned because the
 * machine lacks a resource does not count; the next attempt follows after a second.
 *
 * Silence: a READY worker becomes suspect if it sends no heartbeat, or if its training stays in one
 * stretch of a step. Status shows the suspicion until the worker recovers. The worker is killed,
 * and thereby fenced because the core drops messages from old incarnations, according to its work:
 *
 * - idle or repeatable work: after config.beat_ms
 * - training: also only after ten times the longest stretch so far
 * - user code: never. Only the user knows how long it may take, or whether it is stopped in a
 *   debugger.
 *
 * Unused devices: a worker that had its GPU open for a long time without work asks to be replaced.
 * Its process exits, which releases all memory of the GPU, and the next process opens the GPU only
 * for work. A reset within the process is not reliable: each library has its own CUDA runtime.
 *
 * Excluded workers: a device in use may become free when a worker that is being killed, or has lost
 * its scheduler, exits. The core retries soon at first, then every 30 seconds. */
#include <stdio.h>
#include <string.h>

#include "scheduler/core/core_parts.h"

enum {
    SHORTAGE_MS = 1000,
    RETRY_FIRST_MS = 250,
    RETRY_LAST_MS = 30000,
    TRIES_SOON = 4,
    STRETCH_SUSPECT = 5, /* multiple of the longest stretch of a step so far */
    STRETCH_LOST = 10,
    STOOD_STILL_MS = 900, /* time without a heartbeat; workers send one every 500 ms */
};

bool gp_core_slot_free(const gp_core_slot *slot)
{
    return slot->wanted && !slot->kept && slot->process == GP_CORE_READY && slot->lease == 0 &&
           slot->revoking == 0 && slot->claim == 0;
}

bool gp_core_slot_coming(const gp_core_slot *slot)
{
    if (!slot->wanted || slot->disabled || slot->lease != 0)
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
    return slot->wanted && !slot->disabled &&
           (slot->process == GP_CORE_READY || slot->lease != 0 || gp_core_slot_coming(slot));
}

const char *gp_core_slot_word(const gp_core_slot *slot)
{
    if (slot->disabled)
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
    /* an adopted process had an earlier one */
    if (slot->incarnation < core->config.incarnation_base)
        slot->incarnation = core->config.incarnation_base;
    slot->incarnation++;
    slot->pid = 0;
    slot->answered = false;
    slot->due_ms = core->now_ms + core->config.start_ms;
    gp_core_emit_to_worker(core, GP_CORE_SPAWN, index);
}

void gp_core_slot_kill(gp_core *core, uint32_t index)
{
    gp_core_slot *slot = &core->slots[index];

    slot->process = GP_CORE_DYING;
    slot->suspect = false;
    slot->due_ms = core->now_ms + core->config.answer_ms;
    slot->answer_ms = 0;
    gp_core_emit_to_worker(core, GP_CORE_KILL, index);
}

void gp_core_slot_quit(gp_core *core, uint32_t index)
{
    gp_core_slot *slot = &core->slots[index];

    /* no link to the worker yet */
    if (slot->process == GP_CORE_STARTING || slot->process == GP_CORE_AWAITED) {
        gp_core_slot_kill(core, index);
    } else if (slot->process == GP_CORE_READY || slot->process == GP_CORE_EXCLUDED) {
        slot->process = GP_CORE_DYING;
        slot->suspect = false;
        slot->due_ms = core->now_ms + core->config.answer_ms;
        slot->answer_ms = 0;
        gp_core_emit_to_worker(core, GP_CORE_QUIT, index);
    }
}

/* Kill a worker and log the reason. */
static void kill_because(gp_core *core, uint32_t index, const char *reason)
{
    snprintf(core->slots[index].reason, sizeof(core->slots[index].reason), "%s", reason);
    gp_core_emit_log(core, "killing worker %u (pid %d, incarnation %u): %s", index + 1,
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
                           "worker %u, incarnation %u, is not a member of lease %llu of this session",
                           event->slot + 1, event->incarnation, (unsigned long long)event->lease);
        return;
    }
    gp_core_emit_to_client(core, GP_CORE_OK, &event->session, event->correlation);
    kill_because(core, event->slot, event->reason);
}

/* ---- silent workers ---- */

static int64_t longer_of(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Return whether the worker is in a step that can be timed. Until one stretch has ended, its
 * expected duration is unknown. */
static bool stretches(const gp_core_slot *slot)
{
    return slot->work == GP_CORE_TRAINING && slot->stretch_ms != 0 && slot->stretch_max_ms != 0;
}

int64_t gp_core_slot_silence(const gp_core *core, const gp_core_slot *slot)
{
    return core->now_ms - slot->beat_ms + (stretches(slot) ? slot->stretch_ms : 0);
}

/* Return when to suspect the worker if no further heartbeat arrives; INT64_MAX: never. */
static int64_t suspect_due(const gp_core_slot *slot, const gp_core_config *config)
{
    int64_t limit = config->suspect_ms, due = slot->beat_ms + limit;

    if (config->suspect_ms == 0)
        return INT64_MAX;
    if (stretches(slot)) {
        limit = longer_of(limit, STRETCH_SUSPECT * slot->stretch_max_ms);
        due = slot->beat_ms + limit - slot->stretch_ms < due ? slot->beat_ms + limit - slot->stretch_ms : due;
    }
    return due;
}

/* Return when to kill the worker if no further heartbeat arrives; INT64_MAX: never. */
static int64_t silence_due(const gp_core_slot *slot, const gp_core_config *config)
{
    int64_t limit = config->beat_ms;

    if (config->beat_ms == 0 || slot->work == GP_CORE_USERS)
        return INT64_MAX;
    if (slot->work != GP_CORE_TRAINING)
        return slot->beat_ms + limit;
    limit = longer_of(limit, STRETCH_LOST * slot->stretch_max_ms);
    return slot->beat_ms + limit - (stretches(slot) ? slot->stretch_ms : 0);
}

/* Return when the reply to a grant or revoke is overdue; INT64_MAX: no reply is due. A worker that
 * sends heartbeats but does not give back its lease is stuck in a call. A worker without heartbeats
 * was suspended or has no core, and gets grant_ms from the last heartbeat. */
static int64_t answer_due(const gp_core_slot *slot, const gp_core_config *config)
{
    if (slot->answer_ms == 0)
        return INT64_MAX;
    return slot->revoking == 0 || slot->grace_used || slot->answer_ms - slot->beat_ms < STOOD_STILL_MS
               ? slot->answer_ms
               : longer_of(slot->answer_ms, slot->beat_ms + config->grant_ms);
}

/* Log a suspicion and report it to the client of the worker's lease. silent_ms 0: the worker
 * recovered. */
static void report_suspicion(gp_core *core, uint32_t index, int64_t silent_ms, const char *words)
{
    const gp_core_slot *slot = &core->slots[index];
    const gp_core_lease *lease = gp_core_lease_find(core, slot->lease);
    gp_core_action *action = gp_core_emit_to_worker(core, GP_CORE_SUSPECT, index);

    action->silent_ms = silent_ms;
    snprintf(action->text, sizeof(action->text), "worker %u (pid %d): %.400s", index + 1, (int)slot->pid,
             words);
    if (lease == NULL || !lease->reported)
        return;
    const char *text = action->text;

    action = gp_core_emit_to_client(core, GP_CORE_WORKER_SUSPECT, &lease->session, 0);
    action->lease = lease->id;
    action->generation = lease->generation;
    action->lost_slot = index;
    action->lost_incarnation = slot->incarnation;
    action->silent_ms = silent_ms;
    snprintf(action->text, sizeof(action->text), "%s", text);
}

void gp_core_slot_heard(gp_core *core, uint32_t index, int64_t silent_ms)
{
    gp_core_slot *slot = &core->slots[index];
    char words[80], time[32];

    if (slot->revoking != 0 && !slot->grace_used && core->now_ms - slot->beat_ms >= STOOD_STILL_MS) {
        slot->grace_used = true; /* once only: the call may take long, and heartbeats may be slow */
        slot->answer_ms = longer_of(slot->answer_ms, core->now_ms + core->config.answer_ms);
    }
    slot->beat_ms = core->now_ms;
    if (!slot->suspect || core->now_ms >= suspect_due(slot, &core->config))
        return;
    slot->suspect = false;
    snprintf(words, sizeof(words), "responsive again after %s",
             gp_core_duration(time, sizeof(time), silent_ms));
    report_suspicion(core, index, 0, words);
}

void gp_core_slot_beat(gp_core *core, const gp_core_event *event)
{
    gp_core_slot *slot = &core->slots[event->slot];
    int64_t silent_ms = gp_core_slot_silence(core, slot);

    slot->step = event->step;
    slot->work = event->work;
    slot->stretch_ms = event->stretch_ms;
    slot->stretch_max_ms = event->stretch_max_ms;
    gp_core_slot_heard(core, event->slot, silent_ms);

    /* Only the scheduler can decide: a grant may be in flight to a worker that reports no work. */
    if (event->recycle && gp_core_slot_free(slot)) {
        core->cold |= UINT64_C(1) << event->slot;
        gp_core_slot_quit(core, event->slot);
    }
}

void gp_core_slot_spawned(gp_core *core, const gp_core_event *event)
{
    core->slots[event->slot].pid = event->pid;
}

/* Process a repeated ready message: the worker has re-executed itself. The worker's lease must
 * match the core's record; otherwise kill it. */
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
    /* it prepares for that generation */
    if (event->lease == lease->id && (lease->formed >> event->slot & 1) == 0)
        slot->granted = slot->acked = event->generation;
    if (event->lease == lease->id)
        return;
    /* The re-executed worker has lost the grant. */
    kill_because(core, event->slot, "restarted without the lease that it was granted");
}

/* Process a ready message without a usable device: exclude the slot and schedule the next attempt.
 * Shrink the lease after TRIES_SOON attempts. */
static void ready_excluded(gp_core *core, const gp_core_event *event)
{
    gp_core_slot *slot = &core->slots[event->slot];
    gp_core_lease *lease = gp_core_lease_of(core, slot->lease);
    int64_t wait_ms = RETRY_LAST_MS;

    /* The worker lost the device. A new process will find out whether the loss is permanent. */
    if (slot->process == GP_CORE_READY) {
        kill_because(core, event->slot, event->reason != NULL ? event->reason : "lost its device");
        return;
    }
    slot->process = GP_CORE_EXCLUDED;
    slot->tries++;
    if (slot->tries <= TRIES_SOON)
        wait_ms = (int64_t)RETRY_FIRST_MS << (slot->tries - 1);
    slot->due_ms = core->now_ms + wait_ms;
    snprintf(slot->reason, sizeof(slot->reason), "%s",
             event->reason != NULL ? event->reason : "no reason reported");
    if (slot->tries > TRIES_SOON && lease != NULL)
        gp_core_group_shrink(core, lease, event->slot);
}

void gp_core_slot_ready(gp_core *core, const gp_core_event *event)
{
    gp_core_slot *slot = &core->slots[event->slot];
    gp_core_lease *lease;
    bool again = slot->process == GP_CORE_READY;

    slot->answered = true;
    gp_core_slot_heard(core, event->slot, gp_core_slot_silence(core, slot));
    if (!event->usable) {
        ready_excluded(core, event);
        return;
    }
    if (slot->process == GP_CORE_AWAITED || (again && slot->claim != 0)) {
        gp_core_adopt_reported(core, event);
        return;
    }
    slot->process = GP_CORE_READY;
    core->cold &= ~(UINT64_C(1) << event->slot);
    slot->tries = slot->early = 0;
    slot->reason[0] = '\0';
    if (again)
        ready_again(core, event);
    if (slot->process != GP_CORE_READY)
        return;
    /* The worker holds a lease that no client can use any more. */
    if (event->lease != 0 && event->lease != slot->lease)
        gp_core_lease_revoke(core, event->slot, event->lease, event->generation);
    lease = gp_core_lease_of(core, slot->lease);
    if (lease != NULL)
        gp_core_group_advance(core, lease);
}

/* Count an exit before ready. Set the next spawn time, or disable the slot. */
static void count_early_death(gp_core *core, uint32_t index, const char *cause)
{
    gp_core_slot *slot = &core->slots[index];

    slot->early++;
    slot->due_ms = core->now_ms + (slot->early == 1 ? 0 : 50ll << slot->early);
    if (slot->early < GP_CORE_EARLY_DEATHS_MAX)
        return;
    slot->disabled = true;
    snprintf(slot->reason, sizeof(slot->reason),
             "exited %u times during startup; last: %.360s; to retry run `gradpool up`", slot->early, cause);
    gp_core_emit_log(core, "giving up on worker %u: %s", index + 1, slot->reason);
}

void gp_core_slot_died(gp_core *core, const gp_core_event *event)
{
    gp_core_slot *slot = &core->slots[event->slot];
    gp_core_lease *lease = gp_core_lease_of(core, slot->lease);
    bool asked = slot->process == GP_CORE_DYING && slot->reason[0] == '\0';
    bool excluded = slot->tries != 0; /* keep the reason for status */
    bool early = !slot->answered && !asked;
    char cause[GP_ERROR_MESSAGE_MAX];

    gp_core_text_exit(cause, slot, event->slot, event);
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
    slot->suspect = false;
    slot->work = GP_CORE_OURS;
    slot->stretch_ms = slot->stretch_max_ms = 0;
    if (!excluded)
        slot->reason[0] = '\0';
    if (event->death == GP_CORE_DIED_SHORTAGE)
        slot->due_ms = core->now_ms + SHORTAGE_MS;
    else if (early)
        count_early_death(core, event->slot, cause);
    if (slot->disabled && lease != NULL)
        gp_core_group_shrink(core, lease, event->slot);
    else if (lease != NULL)
        gp_core_group_advance(core, lease); /* an elastic lease needs no replacement */
    gp_core_slot_tick(core, event->slot);
}

/* Kill a ready worker whose reply or heartbeat is overdue, or mark it as suspect. */
static void tick_ready(gp_core *core, uint32_t index)
{
    gp_core_slot *slot = &core->slots[index];
    char why[160];

    if (core->now_ms >= answer_due(slot, &core->config)) {
        if (slot->revoking != 0)
            snprintf(why, sizeof(why), "did not give back lease %llu before the deadline",
                     (unsigned long long)slot->revoking);
        else
            snprintf(why, sizeof(why), "did not acknowledge lease %llu before the deadline",
                     (unsigned long long)slot->lease);
        kill_because(core, index, why);
    } else if (core->now_ms >= silence_due(slot, &core->config)) {
        bool mute = core->now_ms - slot->beat_ms >= core->config.beat_ms;

        snprintf(why, sizeof(why), mute ? "no heartbeat for %lld s" : "one step took more than %lld s",
                 (long long)(gp_core_slot_silence(core, slot) / 1000));
        kill_because(core, index, why);
    } else if (!slot->suspect && core->now_ms >= suspect_due(slot, &core->config)) {
        char words[GP_ERROR_MESSAGE_MAX];

        slot->suspect = true;
        report_suspicion(core, index, gp_core_slot_silence(core, slot),
                         gp_core_text_silence(core, slot, words));
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
        if (slot->wanted && !slot->disabled && core->stopping != GP_CORE_STOPPING)
            gp_core_slot_spawn(core, index);
        break;
    case GP_CORE_AWAITED:
        kill_because(core, index, "did not report to the new scheduler before the deadline");
        break;
    case GP_CORE_STARTING:
        kill_because(core, index, "was not ready before the deadline");
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
        return slot->process == GP_CORE_ABSENT && (!slot->wanted || slot->disabled) ? INT64_MAX
                                                                                    : slot->due_ms;
    if (answer_due(slot, config) < due)
        due = answer_due(slot, config);
    if (silence_due(slot, config) < due)
        due = silence_due(slot, config);
    if (!slot->suspect && suspect_due(slot, config) < due)
        due = suspect_due(slot, config);
    return due;
}
