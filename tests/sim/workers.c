/* Simulated worker processes, as seen by the scheduler. */
#include "tests/sim/cluster.h"

enum { ACTOR_PROCESS = 20, TRIES_AGAIN_MS = 200 };

sim_process *sim_find_process(sim *s, uint32_t slot, uint32_t incarnation)
{
    uint32_t youngest = slot < SIM_SLOTS ? s->process_at[slot] : 0;

    if (youngest != 0 && s->processes[youngest - 1].incarnation == incarnation)
        return &s->processes[youngest - 1];
    for (uint32_t i = s->process_count; i-- > 0;) {
        if (s->processes[i].slot == slot && s->processes[i].incarnation == incarnation)
            return &s->processes[i];
    }
    return NULL;
}

gp_core_work sim_work_of(const sim *s, const sim_process *process)
{
    if (process->client != 0)
        return GP_CORE_USERS;
    for (uint32_t i = 0; i < SIM_CLIENTS && process->lease != 0; i++)
        if (s->clients[i].state == SIM_HOLDING && s->clients[i].lease == process->lease &&
            s->clients[i].trains)
            return GP_CORE_TRAINING;
    return GP_CORE_OURS;
}

sim_process *sim_process_in(sim *s, uint32_t slot)
{
    for (uint32_t i = s->process_count; i-- > 0;) {
        if (s->processes[i].slot == slot && s->processes[i].alive)
            return &s->processes[i];
    }
    return NULL;
}

static bool device_taken(const sim *s, uint32_t slot)
{
    for (uint32_t i = 0; i < s->process_count; i++) {
        if (s->processes[i].alive && s->processes[i].claims && s->processes[i].slot == slot)
            return true;
    }
    return false;
}

static uint32_t number_of(const sim *s, const sim_process *process)
{
    return (uint32_t)(process - s->processes);
}

/* Send an event that the shell itself creates (spawned, died). Such events do not use a link and
 * cannot be lost. */
static void post_to_core(sim *s, int64_t after_us, const gp_core_event *event)
{
    sim_push(s, after_us, SIM_TO_CORE, 0)->core.event = *event;
}

bool sim_process_burns(sim *s, sim_process *process)
{
    if (process->fuse == 0 || --process->fuse > 0)
        return false;
    sim_process_dies(s, process, GP_CORE_DIED_SIGNAL, 11);
    return true;
}

static void process_says(sim *s, sim_process *process, int64_t after_us, gp_core_event event)
{
    bool twice = process->twice > 0 && event.kind >= GP_CORE_EVENT_WORKER_GRANTED;

    event.slot = process->slot;
    event.incarnation = process->incarnation;
    event.epoch = process->epoch;
    if (s->now_us + after_us > process->out_us)
        process->out_us = s->now_us + after_us;
    process->out_us += sim_transit(s) / 16;
    process->twice -= twice;
    for (int i = 0; i <= (int)twice; i++) {
        sim_happening *h =
            sim_push_at(s, process->out_us + (int64_t)i * sim_transit(s), SIM_TO_CORE, number_of(s, process));

        h->link = process->link;
        h->core.event = event;
    }
    sim_process_burns(s, process);
}

void sim_process_dies(sim *s, sim_process *process, gp_core_death_kind death, int number)
{
    gp_core_event died = { .kind = GP_CORE_EVENT_WORKER_DIED,
                           .slot = process->slot,
                           .incarnation = process->incarnation,
                           .death = death,
                           .number = number };

    if (!process->alive)
        return;
    sim_note(s, "worker-dies", process->slot, process->incarnation, (uint64_t)number);
    process->alive = false;
    s->tally.deaths++;
    sim_lease_hurt(s, process->lease);
    sim_leave(s, process);
    sim_rank_breaks(s, process);
    if (s->up && process->watched == s->epoch) /* otherwise no scheduler watches it */
        post_to_core(s, sim_draw(&process->dice, 50 * MS), &died);
}

void sim_spawn(sim *s, uint32_t slot, uint32_t incarnation)
{
    gp_core_event event = { .kind = GP_CORE_EVENT_WORKER_SPAWNED, .slot = slot, .incarnation = incarnation };
    sim_dice dice = sim_dice_of(s->script.seed, ACTOR_PROCESS + slot, incarnation);
    sim_process *process;

    if (s->process_count == SIM_PROCESSES) {
        sim_fail(s, "respawns", "%d processes were started: endless restarts", SIM_PROCESSES);
        return;
    }
    if (!sim_calm(s) && sim_chance(&dice, 3)) {
        event.kind = GP_CORE_EVENT_WORKER_DIED;
        event.death = GP_CORE_DIED_UNBORN;
        event.number = 11;
        post_to_core(s, 0, &event);
        return;
    }
    process = &s->processes[s->process_count++];
    *process = (sim_process){ .dice = dice,
                              .slot = slot,
                              .incarnation = incarnation,
                              .epoch = s->epoch,
                              .watched = s->epoch,
                              .alive = true };
    s->process_at[slot] = s->process_count;
    event.pid = (int32_t)s->process_count;
    post_to_core(s, 0, &event);
    sim_push(s, 5 * MS + sim_draw(&process->dice, 200 * MS), SIM_SPAWN_DONE, number_of(s, process));
}

void sim_spawn_done(sim *s, sim_process *process)
{
    gp_core_event ready = { .kind = GP_CORE_EVENT_WORKER_READY, .usable = true };

    if (!process->alive)
        return;
    if (!s->up) {
        sim_push(s, TRIES_AGAIN_MS * MS, SIM_SPAWN_DONE, number_of(s, process));
        return;
    }
    /* it was not running yet when the next scheduler looked for workers, so it is refused and
     * exits */
    if (process->epoch != s->epoch) {
        sim_process_dies(s, process, GP_CORE_DIED_EXIT, 1);
        return;
    }
    if (!sim_calm(s) && sim_chance(&process->dice, 8)) {
        sim_process_dies(s, process, GP_CORE_DIED_EXIT, 1);
        return;
    }
    if (device_taken(s, process->slot)) {
        ready.usable = false;
        ready.reason = "its device is taken by another process";
    }
    process->ready = true;
    process->claims = ready.usable;
    process_says(s, process, sim_transit(s), ready);
}

static void handle_grant(sim *s, sim_process *process, const sim_letter *letter)
{
    gp_core_event answer = { .kind = GP_CORE_EVENT_WORKER_GRANTED,
                             .lease = letter->lease,
                             .generation = letter->generation };
    int64_t after_us =
        process->lease == 0 ? 0 : sim_draw(&process->dice, 800 * MS); /* finishes a step first */

    if (!process->ready || !process->claims)
        sim_fail(s, "early-grant", "worker %u was granted lease %llu before it was ready", process->slot + 1,
                 (unsigned long long)letter->lease);
    if (process->lease != 0 && process->lease != letter->lease)
        sim_fail(s, "double-grant", "worker %u was granted lease %llu while it holds lease %llu",
                 process->slot + 1, (unsigned long long)letter->lease, (unsigned long long)process->lease);
    if (process->lease == letter->lease && process->generation >= letter->generation)
        sim_fail(s, "generation", "worker %u was granted generation %u after %u", process->slot + 1,
                 letter->generation, process->generation);
    sim_rank_breaks(s, process); /* acknowledges after it has left the old formation */
    if (process->lease != letter->lease)
        process->kept_lease = process->true_lease = process->prepared_lease = 0;
    else if (PLANTED(FORGOTTEN_STATE) && sim_chance(&process->dice, 50))
        process->kept_lease = 0;
    process->lease = letter->lease;
    process->generation = letter->generation;
    process->token = letter->token;
    process_says(s, process, after_us + sim_transit(s), answer);
}

void sim_process_receives(sim *s, sim_process *process, const sim_letter *letter)
{
    gp_core_event answer = { .kind = GP_CORE_EVENT_WORKER_REVOKED,
                             .lease = letter->lease,
                             .generation = letter->generation };

    if (!process->alive || process->epoch != s->epoch)
        return;
    switch (letter->kind) {
    case GP_CORE_GRANT:
        handle_grant(s, process, letter);
        break;
    case GP_CORE_PEER_LOST:
        if (letter->lease == process->lease && letter->generation == process->generation)
            sim_rank_breaks(s, process);
        break;
    case GP_CORE_REVOKE:
        sim_rank_breaks(s, process);
        process->lease = process->kept_lease = process->true_lease = process->prepared_lease = 0;
        sim_leave(s, process);
        answer.recycle = sim_chance(&process->dice, 30);
        process_says(s, process,
                     sim_transit(s) +
                         (sim_chance(&process->dice, 5) ? 1200 * MS : sim_draw(&process->dice, 100 * MS)),
                     answer);
        break;
    case GP_CORE_QUIT:
        sim_process_dies(s, process, GP_CORE_DIED_EXIT, 0);
        break;
    default:
        break;
    }
}

/* Return the live client that holds a lease, as the worker's pidfd would report. NULL: none. */
static const sim_client *holder_of(const sim *s, uint64_t lease)
{
    for (uint32_t i = 0; i < SIM_CLIENTS && lease != 0; i++)
        if (s->clients[i].state == SIM_HOLDING && s->clients[i].lease == lease)
            return &s->clients[i];
    return NULL;
}

void sim_watch_holders(sim *s)
{
    for (uint32_t i = 0; i < s->script.slots && s->up; i++) {
        const gp_core_slot *slot = &s->core->slots[i];
        gp_core_event unheld = { .kind = GP_CORE_EVENT_WORKER_UNHELD,
                                 .slot = i,
                                 .incarnation = slot->incarnation };

        const sim_client *holder =
            slot->claim == 0 || slot->claim_pid == 0 ? NULL : holder_of(s, slot->claim);

        if (slot->claim != 0 && slot->claim_pid != 0 &&
            (holder == NULL || (int32_t)holder->serial != slot->claim_pid))
            sim_step_core(s, &unheld);
    }
}

static void report(sim *s, sim_process *process)
{
    gp_core_event ready = { .kind = GP_CORE_EVENT_WORKER_READY,
                            .usable = process->claims,
                            .reason = "its device is taken by another process",
                            .lease = process->lease,
                            .generation = process->generation,
                            .token = process->token };
    const sim_client *holder = holder_of(s, process->lease);

    if (holder != NULL) {
        ready.pid = (int32_t)holder->serial;
        ready.session = holder->session;
    }
    process_says(s, process, sim_transit(s), ready);
}

/* Connect to the next scheduler and report the held lease. */
void sim_worker_dials(sim *s, sim_process *process, uint64_t epoch)
{
    if (!process->alive || !s->up || epoch != s->epoch || process->epoch == s->epoch)
        return;
    process->epoch = s->epoch;
    process->link++;
    report(s, process);
}

/* Replace the link to the same scheduler. Messages on the old link are lost in both directions. */
void sim_process_breaks(sim *s, sim_process *process)
{
    if (!s->up || process->epoch != s->epoch || !process->ready)
        return;
    process->link++;
    report(s, process);
}
