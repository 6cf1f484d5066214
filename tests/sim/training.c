/* A client's training: the real membership state machine (client/train/membership.h) with simulated
 * ranks.
 *
 * All ranks compute a step together, and each one commits alone, so two ranks differ by one step at
 * most. A rank keeps its state from one lease generation to the next. The ranks of the next group
 * agree on the furthest state. */
#include <string.h>

#include "tests/sim/cluster.h"

enum { MAX_RESTARTS = 100000, GOAL_MAX = 150, GOAL_LONG = 600, PREPARE_MS = 800 };

static uint32_t number_of(const sim *s, const sim_client *client)
{
    return (uint32_t)(client - s->clients);
}

static sim_process *rank_of(sim *s, const sim_training *t, uint32_t rank)
{
    return t->process[rank] == 0 ? NULL : &s->processes[t->process[rank] - 1];
}

static sim_happening *push_for(sim *s, const sim_client *client, int64_t after_us, sim_what what,
                               uint32_t detail)
{
    sim_happening *h = sim_push(s, after_us, what, number_of(s, client));

    h->detail = detail;
    h->link = client->training.serial;
    return h;
}

/* Send a notification from a rank to the client. */
static void tell(sim *s, sim_client *client, membership_event event)
{
    sim_training *t = &client->training;
    bool last = event.kind == MEMBERSHIP_ENDED && event.end == MEMBERSHIP_FINISHED;
    uint32_t late_ms = sim_chance(&client->dice, last ? 30 : 2) ? 1500 : 3; /* the link is congested */
    int64_t at_us = s->now_us + 50 + sim_draw(&client->dice, late_ms * MS);

    if (at_us < t->event_us)
        at_us = t->event_us;
    t->event_us = at_us;
    push_for(s, client, at_us - s->now_us, SIM_TRAIN_RECEIVES, 0)->train = event;
}

/* ---- ranks ---- */

static void rank_leaves(sim *s, sim_client *client, uint32_t rank, membership_end end)
{
    sim_training *t = &client->training;
    const sim_process *process = rank_of(s, t, rank);

    if (t->ended[rank])
        return;
    t->ended[rank] = true;
    if (process != NULL && process->alive)
        tell(s, client, (membership_event){ .kind = MEMBERSHIP_ENDED, .rank = rank, .end = end });
}

static void all_leave(sim *s, sim_client *client, membership_end end)
{
    for (uint32_t rank = 0; rank < client->training.world; rank++)
        rank_leaves(s, client, rank, end);
}

void sim_rank_breaks(sim *s, const sim_process *process)
{
    for (uint32_t i = 0; i < SIM_CLIENTS; i++) {
        sim_client *client = &s->clients[i];
        sim_training *t = &client->training;

        for (uint32_t rank = 0; client->trains && rank < t->world; rank++)
            if (rank_of(s, t, rank) == process && !t->ended[rank]) {
                rank_leaves(s, client, rank, MEMBERSHIP_FAILED);
                push_for(s, client, sim_draw(&client->dice, 20 * MS), SIM_GROUP_STEPS,
                         0); /* the peers detect the loss */
            }
    }
}

/* Return until when a rank in the group is suspended. 0: no rank is suspended. */
static int64_t stopped_until(sim *s, const sim_training *t)
{
    int64_t until_us = 0;

    for (uint32_t rank = 0; rank < t->world; rank++) {
        const sim_process *process = rank_of(s, t, rank);

        if (process->gate.until_us > s->now_us && process->gate.until_us > until_us)
            until_us = process->gate.until_us;
    }
    return until_us;
}

static bool group_is_whole(sim *s, const sim_training *t)
{
    for (uint32_t rank = 0; rank < t->world; rank++)
        if (t->ended[rank] || !rank_of(s, t, rank)->alive)
            return false;
    return true;
}

/* Return whether the scheduler takes the lease away from a worker that may not know it yet. */
static bool is_revoked(const sim *s, const sim_process *process, uint64_t lease)
{
    const gp_core_slot *slot = s->up ? &s->core->slots[process->slot] : NULL;

    return slot != NULL && slot->incarnation == process->incarnation && slot->revoking == lease;
}

/* Return the furthest step of all live lease holders, whether in the group or not. */
static uint64_t furthest_of(const sim *s, uint64_t lease)
{
    uint64_t step = 0;

    for (uint32_t i = 0; i < s->process_count; i++) {
        const sim_process *process = &s->processes[i];

        if (process->alive && process->lease == lease && process->true_lease == lease &&
            process->true_step > step && !is_revoked(s, process, lease))
            step = process->true_step;
    }
    return step;
}

/* Choose the furthest state of any rank after all ranks have started. */
static void agree(sim *s, sim_client *client)
{
    sim_training *t = &client->training;
    uint64_t step = 0, truth = 0;

    for (uint32_t rank = 0; rank < t->world; rank++) {
        const sim_process *process = rank_of(s, t, rank);

        if (process->kept_lease == client->lease && process->kept_step > step)
            step = process->kept_step;
        if (process->true_lease == client->lease && process->true_step > truth)
            truth = process->true_step;
    }
    if (step < truth)
        sim_fail(s, "lost-step",
                 "a training continues from step %llu, but a rank in the group had committed step %llu",
                 (unsigned long long)step, (unsigned long long)truth);
    t->furthest = furthest_of(s, client->lease);
    t->step = step;
    for (uint32_t rank = 0; rank < t->world; rank++) {
        sim_process *process = rank_of(s, t, rank);

        process->kept_lease = process->true_lease = client->lease;
        process->kept_step = process->true_step = step;
        tell(s, client, (membership_event){ .kind = MEMBERSHIP_READY, .rank = rank, .step = step });
    }
    push_for(s, client, sim_draw(&client->dice, 5 * MS), SIM_GROUP_STEPS, 0);
}

void sim_rank_begins(sim *s, sim_client *client, uint32_t rank, uint32_t serial)
{
    sim_training *t = &client->training;
    sim_process *process;

    if (!client->trains || t->serial != serial || t->ended[rank] || t->begun[rank])
        return;
    process = rank_of(s, t, rank);
    if (process == NULL || !process->alive)
        return;
    if (process->gate.until_us > s->now_us) {
        push_for(s, client, process->gate.until_us - s->now_us, SIM_RANK_BEGINS, rank);
        return;
    }
    /* refused: another lease or generation */
    if (process->lease != client->lease || process->generation != t->generation) {
        rank_leaves(s, client, rank, MEMBERSHIP_FAILED);
        push_for(s, client, sim_draw(&client->dice, 20 * MS), SIM_GROUP_STEPS, 0);
        return;
    }
    t->begun[rank] = true;
    if (++t->begun_count == t->world && group_is_whole(s, t))
        agree(s, client);
}

void sim_rank_commits(sim *s, sim_client *client, uint32_t rank, uint32_t serial)
{
    sim_training *t = &client->training;
    sim_process *process;

    if (!client->trains || t->serial != serial)
        return;
    process = rank_of(s, t, rank);
    if (process->alive && process->gate.until_us > s->now_us) {
        push_for(s, client, process->gate.until_us - s->now_us, SIM_RANK_COMMITS, rank);
        return;
    }
    if (process->alive && !t->ended[rank]) { /* needs no other rank */
        process->kept_step = process->true_step = t->step + 1;
        s->tally.train_steps++;
        if (rank == 0)
            tell(s, client, (membership_event){ .kind = MEMBERSHIP_STEP, .step = t->step + 1 });
        sim_process_burns(s, process);
    }
    if (t->serial == serial && --t->committing == 0) {
        t->step++;
        push_for(s, client, 500 + sim_draw(&client->dice, 10 * MS), SIM_GROUP_STEPS, 0);
    }
}

void sim_group_steps(sim *s, sim_client *client, uint32_t serial)
{
    sim_training *t = &client->training;
    int64_t until_us;

    if (!client->trains || t->serial != serial)
        return;
    if (!group_is_whole(s, t)) {
        all_leave(s, client, MEMBERSHIP_FAILED);
        return;
    }
    if (t->begun_count < t->world || t->committing > 0)
        return; /* more events than necessary are harmless */
    until_us = stopped_until(s, t);
    if (until_us != 0) {
        push_for(s, client, until_us - s->now_us, SIM_GROUP_STEPS, 0);
    } else if (t->step >= t->goal) {
        all_leave(s, client, MEMBERSHIP_FINISHED);
    } else if (t->pause) {
        all_leave(s, client, MEMBERSHIP_PAUSED);
    } else {
        t->committing = t->world;
        for (uint32_t rank = 0; rank < t->world; rank++)
            push_for(s, client, MS + sim_draw(&client->dice, 3 * MS), SIM_RANK_COMMITS, rank);
    }
}

/* ---- joining workers ---- */

static sim_newcomer *newcomer_of(sim_training *t, uint32_t slot, uint32_t incarnation)
{
    for (uint32_t i = 0; i < t->newcomer_count; i++)
        if (t->newcomers[i].member.slot == slot && t->newcomers[i].member.incarnation == incarnation)
            return &t->newcomers[i];
    return NULL;
}

/* Update the list of joining workers. Unchanged ones keep their state. */
static void take_newcomers(sim_training *t, const sim_letter *letter)
{
    sim_newcomer now[SIM_SLOTS];

    for (uint32_t i = 0; i < letter->member_count; i++) {
        const gp_core_member *member = &letter->members[i];
        const sim_newcomer *known = newcomer_of(t, member->slot, member->incarnation);

        now[i] = known != NULL ? *known : (sim_newcomer){ .member = *member };
    }
    t->newcomer_count = letter->member_count;
    memcpy(t->newcomers, now, letter->member_count * sizeof(now[0]));
}

static uint32_t count_prepared(const sim_training *t, uint64_t *mask)
{
    uint32_t count = 0;

    *mask = 0;
    for (uint32_t i = 0; i < t->newcomer_count; i++)
        if (t->newcomers[i].prepared) {
            *mask |= 1ull << t->newcomers[i].member.slot;
            count++;
        }
    return count;
}

static void prepare_newcomers(sim *s, sim_client *client)
{
    sim_training *t = &client->training;

    for (uint32_t i = 0; i < t->newcomer_count; i++) {
        sim_newcomer *newcomer = &t->newcomers[i];

        if (newcomer->asked)
            continue;
        newcomer->asked = true;
        push_for(s, client,
                 MS + sim_draw(&client->dice, (sim_trains_mostly(s) ? PREPARE_MS / 4 : PREPARE_MS) * MS),
                 SIM_NEWCOMER_PREPARES, 0)
            ->train =
            (membership_event){ .workers = newcomer->member.slot, .rank = newcomer->member.incarnation };
    }
}

void sim_newcomer_prepares(sim *s, sim_client *client, const sim_happening *h)
{
    const membership_event who = h->train;
    sim_process *process = sim_find_process(s, who.workers, who.rank);
    membership_event event = { .kind = MEMBERSHIP_PREPARED, .workers = who.workers, .rank = who.rank };

    if (!client->trains || client->training.serial != h->link || process == NULL || !process->alive)
        return;
    if (process->gate.until_us > s->now_us) {
        push_for(s, client, process->gate.until_us - s->now_us, SIM_NEWCOMER_PREPARES, 0)->train = who;
        return;
    }
    if (process->lease != client->lease || process->generation != client->training.generation)
        return; /* the worker receives the next generation, and the client is notified again */
    if (sim_chance(&client->dice, 8)) {
        event.kind = MEMBERSHIP_UNFIT;
    } else {
        process->prepared_lease = client->lease;
        s->tally.prepared++;
    }
    push_for(s, client, 50 + sim_draw(&client->dice, 3 * MS), SIM_NEWCOMER_TELLS, 0)->train = event;
    sim_process_burns(s, process);
}

/* Check that workers that prepare still exist, and that prepared workers are not kept waiting. */
static void check_newcomers(sim *s, const sim_training *t)
{
    uint64_t mask;
    uint32_t prepared = count_prepared(t, &mask);

    if (t->r.phase != MEMBERSHIP_PREPARE)
        return;
    if (prepared == t->newcomer_count)
        sim_fail(s, "idle-newcomers",
                 "a training on %u workers does not pause; %u of %u joining workers have prepared",
                 t->r.world, prepared, t->newcomer_count);
}

/* Check a pause for joining workers: they have prepared, or have exited or left the lease since. */
static void check_pause(sim *s, const sim_client *client)
{
    const sim_training *t = &client->training;
    uint32_t fit = 0;

    for (uint32_t i = 0; i < t->newcomer_count; i++) {
        const gp_core_member *member = &t->newcomers[i].member;
        const sim_process *process = sim_find_process(s, member->slot, member->incarnation);

        fit +=
            t->newcomers[i].asked && (process == NULL || !process->alive || process->lease != client->lease ||
                                      process->prepared_lease == client->lease);
    }
    if (t->r.wanted > t->r.world && fit < t->r.wanted - t->r.world)
        sim_fail(s, "unprepared", "a training on %u workers pauses for %u joining workers; %u have prepared",
                 t->r.world, t->r.wanted - t->r.world, fit);
}

/* ---- client ---- */

/* Return whether every live rank has reported the end. */
static bool all_have_said(const sim *s, const sim_training *t)
{
    for (uint32_t rank = 0; rank < t->world; rank++)
        if (!t->received_end[rank] && t->process[rank] != 0 && s->processes[t->process[rank] - 1].alive)
            return false;
    return true;
}

/* Check the start of a group: a new generation, after all final reports from the old one, and never
 * after the training ended. */
static void check_begin(sim *s, const sim_client *client, membership_event_kind because)
{
    const sim_training *t = &client->training;

    if (client->generation <= t->generation)
        sim_fail(s, "two-groups", "generation %u begins a second time", t->generation);
    if (t->finished)
        sim_fail(s, "after-the-end", "a training restarts although rank 0 had finished");
    if (because != MEMBERSHIP_LATE && !all_have_said(s, t))
        sim_fail(s, "last-words", "the next group starts before every rank has reported its end");
}

static void count_break(sim *s, sim_training *t)
{
    t->row = (t->received_step > t->began_step ? 0 : t->row) + t->broke;
    if (t->row > t->r.max_restarts)
        sim_fail(s, "endless", "%u groups failed in a row, limit %u", t->row, t->r.max_restarts);
    t->began_step = t->received_step;
    t->broke = false;
}

static void check_go_on(sim *s, const sim_training *t, uint64_t step)
{
    if (t->received_ready < t->world)
        sim_fail(s, "not-ready", "a group of %u starts with %u ranks ready", t->world, t->received_ready);
    if (step + 1 < t->received_step) /* the last step may belong to a failed rank alone */
        sim_fail(s, "lost-step", "a training continues from step %llu, but step %llu was reported",
                 (unsigned long long)step, (unsigned long long)t->received_step);
}

/* Count an event before the state machine receives it. */
static void note_heard(sim_training *t, const membership_event *event)
{
    switch (event->kind) {
    case MEMBERSHIP_READY:
        t->received_ready++;
        break;
    case MEMBERSHIP_STEP:
        t->received_step = event->step > t->received_step ? event->step : t->received_step;
        break;
    case MEMBERSHIP_ENDED:
    case MEMBERSHIP_LOST:
        if (event->rank < t->world)
            t->received_end[event->rank] = true;
        t->finished = t->finished || (event->kind == MEMBERSHIP_ENDED && event->rank == 0 &&
                                      event->end == MEMBERSHIP_FINISHED && t->r.phase != MEMBERSHIP_BREAK);
        t->broke = t->broke || (event->kind == MEMBERSHIP_LOST && t->r.phase != MEMBERSHIP_WAIT);
        break;
    default:
        break;
    }
}

static void check_failed(sim *s, const sim_client *client, membership_reason why)
{
    const sim_training *t = &client->training;
    const gp_core_lease *lease = s->up ? gp_core_lease_find(s->core, client->lease) : NULL;

    if (why == MEMBERSHIP_REASON_NOT_REPLACED && lease != NULL && lease->phase == GP_CORE_HELD &&
        lease->generation == client->generation && client->epoch == s->epoch)
        sim_fail(s, "not-asked", "a training waited for a group that was never requested");

    if (why == MEMBERSHIP_REASON_LOST && t->r.world > 1 && t->r.in_a_row < t->r.max_restarts)
        sim_fail(s, "gives-up", "a training on %u ranks failed after a worker failure", t->r.world);
    if (why == MEMBERSHIP_REASON_ALONE && t->r.world > 1)
        sim_fail(s, "gives-up", "a training on %u ranks reported a single rank", t->r.world);
    if (why == MEMBERSHIP_REASON_STATE && t->furthest >= t->r.reported)
        sim_fail(s, "gives-up", "a training reported a lost state, but a rank has the state of step %llu",
                 (unsigned long long)t->furthest);
}

static void does(sim *s, sim_client *client, const membership_action *action, membership_event_kind because)
{
    sim_training *t = &client->training;
    gp_core_event event = { .correlation = 12, .lease = client->lease, .generation = client->generation };

    switch (action->kind) {
    case MEMBERSHIP_DO_PREPARE:
        prepare_newcomers(s, client);
        break;
    case MEMBERSHIP_DO_PAUSE:
        check_pause(s, client);
        push_for(s, client, sim_draw(&client->dice, 3 * MS), SIM_GROUP_PAUSES, 0);
        break;
    case MEMBERSHIP_DO_FORM:
        if (!all_have_said(s, t))
            sim_fail(s, "two-groups", "the next group is requested while ranks are in the old one");
        event.kind = GP_CORE_EVENT_LEASE_FORM;
        count_prepared(t, &event.joining);
        sim_client_posts(s, client, &event);
        break;
    case MEMBERSHIP_DO_START:
        check_begin(s, client, because);
        count_break(s, t);
        t->begin_due = true;
        push_for(s, client, sim_draw(&client->dice, 3 * MS), SIM_TRAIN_ATTACHES, 0);
        break;
    case MEMBERSHIP_DO_KEEP:
        event.kind = GP_CORE_EVENT_LEASE_RESIZE;
        event.workers = action->workers;
        sim_client_posts(s, client, &event);
        break;
    case MEMBERSHIP_DO_ALARM:
        t->alarms++;
        if (action->ms != 0)
            push_for(s, client, (int64_t)action->ms * MS, SIM_TRAIN_ALARM, t->alarms);
        break;
    case MEMBERSHIP_DO_RESUME:
        check_go_on(s, t, action->step);
        s->tally.regroups++;
        break;
    case MEMBERSHIP_DO_FAIL:
        s->tally.gave_up++;
        check_failed(s, client, action->why);
        break;
    }
}

static void steps(sim *s, sim_client *client, membership_event event)
{
    sim_training *t = &client->training;
    membership_action actions[MEMBERSHIP_ACTIONS_MAX];
    size_t count;

    note_heard(t, &event);
    count = membership_step(&t->r, &event, actions);
    sim_note(s, "reform", event.kind, event.rank, t->r.phase);
    for (size_t i = 0; i < count; i++)
        does(s, client, &actions[i], event.kind);
    check_newcomers(s, t);
    if (t->regranted && !t->r.granted && !t->begin_due && t->r.phase != MEMBERSHIP_OVER &&
        event.kind != MEMBERSHIP_GRANT)
        steps(s, client,
              (membership_event){ .kind = MEMBERSHIP_GRANT, .workers = client->claim.member_count });
}

/* Apply a change to the group that the client is attached to, or will be. */
static void take_change(sim *s, sim_client *client)
{
    sim_training *t = &client->training;
    uint64_t mask;

    if (!t->change_due || t->regranted || t->begin_due)
        return;
    t->change_due = false;
    if (t->change.generation != t->generation)
        return;
    take_newcomers(t, &t->change);
    steps(s, client,
          (membership_event){ .kind = MEMBERSHIP_CHANGE,
                              .workers = t->change.workers,
                              .asked = t->change.asked,
                              .prepared = count_prepared(t, &mask) });
}

void sim_train_attaches(sim *s, sim_client *client, uint32_t serial)
{
    sim_training *t = &client->training;
    bool first = t->serial == 0;

    if (!client->trains || t->serial != serial || !t->begin_due || client->state != SIM_HOLDING)
        return;
    t->serial = ++s->groups;
    t->begin_due = t->regranted = t->pause = false;
    t->generation = client->generation;
    t->world = client->claim.member_count;
    t->begun_count = t->committing = t->newcomer_count = t->received_ready = 0;
    memset(t->received_end, 0, sizeof(t->received_end));
    memset(t->begun, 0, sizeof(t->begun));
    memset(t->ended, 0, sizeof(t->ended));
    for (uint32_t rank = 0; rank < t->world; rank++) {
        const gp_core_member *member = &client->claim.members[rank];
        const sim_process *process = sim_find_process(s, member->slot, member->incarnation);

        t->process[rank] = process == NULL ? 0 : (uint32_t)(process - s->processes) + 1;
        push_for(s, client, MS + sim_draw(&client->dice, 20 * MS), SIM_RANK_BEGINS, rank);
    }
    if (first)
        membership_init(&t->r, t->world,
                        sim_chance(&client->dice, 30) ? 1 + sim_draw(&client->dice, 2) : MAX_RESTARTS);
    else
        steps(s, client, (membership_event){ .kind = MEMBERSHIP_ATTACHED, .workers = t->world });
    if (!group_is_whole(s, t))
        push_for(s, client, sim_draw(&client->dice, 20 * MS), SIM_GROUP_STEPS, 0);
    take_change(s, client);
}

void sim_training_granted(sim *s, sim_client *client, bool first)
{
    sim_training *t = &client->training;

    if (first) {
        *t = (sim_training){ .goal = 1 + sim_draw(&client->dice, sim_trains_mostly(s) ? GOAL_LONG : GOAL_MAX),
                             .begin_due = true };
        push_for(s, client, sim_draw(&client->dice, 3 * MS), SIM_TRAIN_ATTACHES, 0);
        return;
    }
    if (t->serial == 0 || t->r.phase == MEMBERSHIP_OVER) /* attaches to the latest one */
        return;
    t->regranted = true;
    if (!t->r.granted && !t->begin_due)
        steps(s, client,
              (membership_event){ .kind = MEMBERSHIP_GRANT, .workers = client->claim.member_count });
}

void sim_training_receives(sim *s, sim_client *client, const sim_letter *letter)
{
    sim_training *t = &client->training;
    uint32_t rank = 0;

    if (t->serial == 0)
        return;
    if (letter->kind == GP_CORE_LEASE_CHANGE) {
        t->change = *letter;
        t->change_due = true;
        take_change(s, client);
        return;
    }
    if (t->begin_due) /* pool_attach() drops earlier losses */
        return;
    while (rank < t->world && (t->process[rank] == 0 || rank_of(s, t, rank)->slot != letter->lost_slot))
        rank++;
    steps(s, client, (membership_event){ .kind = MEMBERSHIP_LOST, .rank = rank });
}

void sim_training_reunited(sim *s, sim_client *client)
{
    sim_training *t = &client->training;

    if (t->serial == 0)
        return;
    t->newcomer_count = 0;
    steps(s, client, (membership_event){ .kind = MEMBERSHIP_RECONNECTED });
}

void sim_newcomer_tells(sim *s, sim_client *client, const sim_happening *h)
{
    sim_training *t = &client->training;
    sim_newcomer *newcomer = newcomer_of(t, h->train.workers, h->train.rank);
    uint64_t mask;

    if (!client->trains || h->link != t->serial || client->state != SIM_HOLDING || newcomer == NULL)
        return;
    newcomer->prepared = h->train.kind == MEMBERSHIP_PREPARED;
    if (newcomer->prepared)
        steps(s, client,
              (membership_event){ .kind = MEMBERSHIP_PREPARED, .prepared = count_prepared(t, &mask) });
    else
        steps(s, client, (membership_event){ .kind = MEMBERSHIP_UNFIT });
}

void sim_train_receives(sim *s, sim_client *client, const sim_happening *h)
{
    /* while the client attaches to the next group, it drops the messages of the old one */
    bool is_old = client->training.begin_due && client->training.serial != 0 &&
                  (h->train.kind == MEMBERSHIP_READY || h->train.kind == MEMBERSHIP_ENDED);

    if (client->trains && h->link == client->training.serial && client->state == SIM_HOLDING && !is_old)
        steps(s, client, h->train);
}

void sim_train_alarm(sim *s, sim_client *client, const sim_happening *h)
{
    if (client->trains && h->detail == client->training.alarms && h->link == client->training.serial &&
        client->state == SIM_HOLDING)
        steps(s, client, (membership_event){ .kind = MEMBERSHIP_LATE });
}

void sim_group_pauses(sim *s, sim_client *client, uint32_t serial)
{
    (void)s;
    if (client->trains && client->training.serial == serial)
        client->training.pause = true;
}

bool sim_training_over(const sim_client *client)
{
    return client->training.r.phase == MEMBERSHIP_OVER;
}
