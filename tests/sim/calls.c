/* A client's team: the real dispatch with simulated rings and workers.
 *
 * The ring is in the client's memory, so replies of a worker remain there after the worker exits. A
 * worker takes a call, commits the reply and frees the ring entry in three separate events, and may
 * be killed between them. */
#include <string.h>

#include "tests/sim/cluster.h"

enum { FIRST_FILL = 4 }; /* calls handed over at a time */

static uint32_t number_of(const sim *s, const sim_client *client)
{
    return (uint32_t)(client - s->clients);
}

static uint64_t thing_of(const sim_client *client, uint64_t unit)
{
    return client->serial << 32 | unit;
}

static void wake(sim *s, sim_client *client, int64_t after_us)
{
    int64_t at_us = s->now_us + after_us;

    if (client->pump_us != 0 && client->pump_us <= at_us && client->pump_us >= s->now_us)
        return;
    client->pump_us = at_us;
    sim_push_at(s, at_us, SIM_PUMPS, number_of(s, client));
}

/* ---- rings ---- */

static sim_lane *lane_of(sim *s, const sim_process *process, uint32_t serial)
{
    sim_lane *lane;

    if (!process->alive || process->client == 0 || process->serial != serial)
        return NULL;
    lane = &s->clients[process->client - 1].lanes[process->rank];
    return lane->serial == serial ? lane : NULL;
}

static sim_call *call_at(sim_lane *lane, uint32_t place)
{
    return &lane->calls[(lane->call_first + place) % SIM_RING];
}

static bool hook_send(void *context, uint32_t worker, team_unit *unit)
{
    sim_client *client = context;
    sim_lane *lane = &client->lanes[worker - 1];

    if (lane->process == 0 || lane->call_count == SIM_RING)
        return false;
    *call_at(lane, lane->call_count++) =
        (sim_call){ .unit = unit, .id = unit->call.id, .attempt = (uint32_t)unit->attempts + unit->tries };
    return true;
}

static bool hook_revoke(void *context, uint32_t worker, team_unit *unit)
{
    sim_client *client = context;
    sim_lane *lane = &client->lanes[worker - 1];

    for (uint32_t i = 0; i < lane->call_count; i++) {
        sim_call *call = call_at(lane, i);

        if (call->id != unit->call.id || call->revoked)
            continue;
        if (call->taken)
            return PLANTED(FALSE_REVOKE) && i == 0;
        call->revoked = true;
        return true;
    }
    return false;
}

static void hook_stop(void *context, uint32_t worker, team_unit *unit)
{
    ((sim_client *)context)->lanes[worker - 1].stop = unit->call.id;
}

/* The running simulation. The hooks' context has no room for it. */
static sim *world;

static bool hook_replace(void *context, uint32_t worker, team_unit *unit)
{
    sim_client *client = context;
    const gp_core_member *member = &client->lanes[worker - 1].member;

    (void)unit;
    sim_client_replaces(world, client, member->slot, member->incarnation);
    return true;
}

/* ---- workers ---- */

static int64_t run_us(sim_dice *dice)
{
    uint32_t kind = sim_draw(dice, 100);

    return kind < 70   ? 50 + sim_draw(dice, 2 * MS)
           : kind < 96 ? 2 * MS + sim_draw(dice, 30 * MS)
                       : sim_draw(dice, 1500 * MS);
}

static void push_for(sim *s, const sim_process *process, int64_t after_us, sim_what what, uint64_t call)
{
    sim_happening *h = sim_push(s, after_us, what, (uint32_t)(process - s->processes));

    h->link = process->serial;
    h->detail = (uint32_t)call;
}

static sim_task *task_of(sim_client *client, uint64_t unit)
{
    for (uint32_t i = 0; i < client->task_count; i++)
        if (client->tasks[i].unit.call.id == unit)
            return &client->tasks[i];
    return NULL;
}

static void begins(sim *s, sim_client *client, const sim_process *process, const sim_call *call)
{
    const sim_task *task = task_of(client, call->id);

    for (uint32_t i = 0; task != NULL && i < task->after_count; i++) {
        const sim_task *before = &client->tasks[task->after[i]];

        if (!before->ended || before->status != GP_OK)
            sim_fail(s, "order", "call %llu starts before its dependency %llu has a result",
                     (unsigned long long)call->id, (unsigned long long)before->unit.call.id);
    }
    if (task != NULL && sim_tag_of(s, process->slot) < task->tag)
        sim_fail(s, "needs", "call %llu needs tag=%u and starts on worker %u, which has %u",
                 (unsigned long long)call->id, task->tag, process->slot + 1, sim_tag_of(s, process->slot));
    sim_record(
        s, s->calls,
        (history_entry){ .kind = HISTORY_START, .id = thing_of(client, call->id), .attempt = call->attempt });
}

void sim_takes(sim *s, sim_process *process, uint32_t serial)
{
    sim_lane *lane = lane_of(s, process, serial);

    while (lane != NULL && !process->busy && lane->call_count > 0) {
        sim_call *call = call_at(lane, 0);

        if (!call->revoked) {
            call->taken = true;
            process->busy = true;
            begins(s, &s->clients[process->client - 1], process, call);
            push_for(s, process, run_us(&process->dice), SIM_ANSWERS, call->id);
            sim_process_burns(s, process);
            return;
        }
        lane->call_first = (lane->call_first + 1) % SIM_RING;
        lane->call_count--;
    }
}

void sim_answers(sim *s, sim_process *process, uint32_t serial)
{
    sim_lane *lane = lane_of(s, process, serial);
    sim_client *client;
    sim_call *call;
    gp_status status = GP_OK;

    if (lane == NULL || !process->busy || lane->call_count == 0 || call_at(lane, 0)->answered)
        return; /* the call was canceled and has ended */
    client = &s->clients[process->client - 1];
    call = call_at(lane, 0);
    if (lane->answer_count == SIM_RING) {
        push_for(s, process, 100, SIM_ANSWERS, call->id);
        return;
    }
    if (lane->stop == call->id && sim_chance(&process->dice, 80))
        status = GP_ECANCELED;
    else if (sim_chance(&process->dice, 6))
        status = GP_EIO;
    call->answered = true;
    lane->answers[(lane->answer_first + lane->answer_count++) % SIM_RING] =
        (sim_answer){ .id = call->id, .status = status, .ran_us = sim_draw(&process->dice, 5 * MS) };
    sim_record(s, s->calls,
               (history_entry){ .kind = HISTORY_FINISH,
                                .id = thing_of(client, call->id),
                                .attempt = call->attempt,
                                .outcome = (int32_t)status });
    push_for(s, process, 1, SIM_DROPS, call->id);
    wake(s, client, 10 + sim_draw(&process->dice, 2 * MS));
    sim_process_burns(s, process);
}

void sim_drops(sim *s, sim_process *process, uint32_t serial)
{
    sim_lane *lane = lane_of(s, process, serial);

    if (lane == NULL || !process->busy || lane->call_count == 0)
        return;
    process->busy = false;
    lane->call_first = (lane->call_first + 1) % SIM_RING;
    lane->call_count--;
    if (!sim_process_burns(s, process))
        push_for(s, process, 1, SIM_TAKES, 0);
}

void sim_leave(sim *s, sim_process *process)
{
    sim_happening *h;

    if (process->client == 0)
        return;
    h = sim_push(s, sim_draw(&process->dice, 20 * MS), SIM_LANE_ENDS, process->client - 1);
    h->detail = process->rank;
    h->link = process->serial;
    process->client = 0;
    process->busy = false;
}

/* ---- results ---- */

/* Record the end of a call. False: the client was killed by it. */
static bool task_ends(sim *s, sim_client *client, team_unit *unit, gp_status status)
{
    sim_task *task = (sim_task *)unit;

    task->ended = true;
    task->status = status;
    sim_record(s, s->calls,
               (history_entry){ .kind = HISTORY_RESULT,
                                .session = client->serial,
                                .seq = unit->call.id,
                                .id = thing_of(client, unit->call.id),
                                .outcome = (int32_t)status });
    dispatch_settle(client->calls, unit, status);
    return !sim_client_burns(s, client);
}

static bool end_over(sim *s, sim_client *client)
{
    for (team_unit *unit; (unit = dispatch_next_over(client->calls)) != NULL;)
        if (!task_ends(s, client, unit, (gp_status)unit->status))
            return false;
    return true;
}

static bool read_answers(sim *s, sim_client *client, uint32_t rank)
{
    sim_lane *lane = &client->lanes[rank];

    while (lane->answer_count > 0) {
        sim_answer answer = lane->answers[lane->answer_first];
        team_unit *unit;
        gp_status status = answer.status;

        lane->answer_first = (lane->answer_first + 1) % SIM_RING;
        lane->answer_count--;
        if (dispatch_answered(client->calls, rank + 1, answer.id, status, answer.ran_us * 1000,
                              s->now_us * 1000, &unit) != GP_OK)
            continue; /* retried, or the caller has gone */
        if (status != GP_OK && unit->canceled)
            status = GP_ECANCELED;
        if (!task_ends(s, client, unit, status))
            return false;
    }
    return true;
}

/* ---- links ---- */

static void ring_clear(sim_lane *lane)
{
    lane->process = 0;
    lane->serial++;
    lane->call_count = lane->answer_count = 0;
    lane->stop = 0;
}

/* Handle a lost worker: the replies count, and calls that it had not started go to other workers.
 * False: the client was killed. */
static bool lane_down(sim *s, sim_client *client, uint32_t rank)
{
    sim_lane *lane = &client->lanes[rank];
    sim_process *process = &s->processes[lane->process - 1];

    if (!PLANTED(UNREAD_ANSWERS) && !read_answers(s, client, rank))
        return false;
    if (process->client == number_of(s, client) + 1 && process->serial == lane->serial) {
        process->client = 0; /* the client closes the link */
        process->busy = false;
    }
    dispatch_worker_down(client->calls, rank + 1, s->now_us * 1000);
    ring_clear(lane);
    for (team_unit *unit; (unit = dispatch_dying(client->calls, rank + 1)) != NULL;)
        dispatch_over(client->calls, unit, GP_EPEER);
    return end_over(s, client);
}

void sim_lane_ends(sim *s, sim_client *client, uint32_t rank, uint32_t serial)
{
    sim_lane *lane = &client->lanes[rank];

    if (client->state == SIM_AWAY || client->calls == NULL || lane->process == 0 || lane->serial != serial)
        return;
    if (lane_down(s, client, rank))
        wake(s, client, 1);
}

static void dial(sim *s, sim_client *client, uint32_t rank, int64_t after_us)
{
    sim_happening *h = sim_push(s, after_us, SIM_LANE_DIALS, number_of(s, client));

    h->detail = rank;
    h->link = client->lanes[rank].serial;
}

void sim_lane_dials(sim *s, sim_client *client, uint32_t rank, uint32_t serial)
{
    sim_lane *lane = &client->lanes[rank];
    sim_process *process;

    if (client->state != SIM_HOLDING || client->calls == NULL || rank >= client->size ||
        lane->serial != serial || lane->process != 0)
        return;
    process = sim_find_process(s, lane->member.slot, lane->member.incarnation);
    if (process == NULL || !process->alive)
        return; /* the next grant names another process */
    if (process->lease != client->lease || process->generation != client->generation ||
        process->gate.until_us > s->now_us) {
        dial(s, client, rank, 100 * MS);
        return;
    }
    ring_clear(lane);
    lane->process = (uint32_t)(process - s->processes) + 1;
    process->client = number_of(s, client) + 1;
    process->rank = rank;
    process->serial = lane->serial;
    process->busy = false;
    dispatch_worker_up(client->calls, rank + 1, s->now_us * 1000);
    wake(s, client, 1);
}

/* ---- team ---- */

/* Let the worker read the ring once more before it detects the closed control socket. */
static void last_look(sim *s, sim_client *client, const sim_process *process, sim_lane *lane)
{
    for (uint32_t i = 0; i < lane->call_count; i++) {
        const sim_call *call = call_at(lane, i);

        if (call->taken || call->revoked)
            continue;
        begins(s, client, process, call);
        return;
    }
}

static void team_part(sim *s, sim_client *client)
{
    for (uint32_t rank = 0; rank < SIM_SLOTS; rank++) {
        sim_lane *lane = &client->lanes[rank];
        sim_process *process = lane->process != 0 ? &s->processes[lane->process - 1] : NULL;

        if (process != NULL && process->client == number_of(s, client) + 1 &&
            process->serial == lane->serial) {
            if (client->state != SIM_AWAY && process->gate.until_us <= s->now_us)
                last_look(s, client, process, lane);
            process->client = 0;
            process->busy = false;
        }
        ring_clear(lane);
    }
    dispatch_free(client->calls);
    client->calls = NULL;
    client->task_count = client->task_goal = 0;
}

void sim_team_close(sim *s, sim_client *client, gp_status status)
{
    uint32_t fuse = client->fuse;

    if (client->calls == NULL)
        return;
    client->fuse = 0; /* do not kill the client during the close */
    dispatch_over_all(client->calls, status);
    end_over(s, client);
    client->fuse = fuse;
    team_part(s, client);
}

void sim_team_dies(sim *s, sim_client *client)
{
    if (client->serial != 0)
        sim_record(s, s->calls, (history_entry){ .kind = HISTORY_VOID, .session = client->serial });
    if (client->calls == NULL)
        return;
    client->state = SIM_AWAY;
    /* no result is delivered, but the memory is freed */
    dispatch_over_all(client->calls, GP_EPEER);
    for (team_unit *unit; (unit = dispatch_next_over(client->calls)) != NULL;)
        dispatch_settle(client->calls, unit, GP_EPEER);
    team_part(s, client);
}

bool sim_team_idle(const sim_client *client)
{
    if (client->calls == NULL)
        return true;
    for (uint32_t i = 0; i < client->task_count; i++)
        if (!client->tasks[i].ended)
            return false;
    return client->task_count >= client->task_goal;
}

static void team_open(sim *s, sim_client *client, uint32_t size)
{
    dispatch_hooks hooks = { hook_send, hook_revoke, hook_stop, hook_replace, client };
    gp_error err;

    world = s;
    if (dispatch_new(&client->calls, &hooks, size, client->elastic ? SIM_SLOTS : size, &err) != GP_OK) {
        sim_fail(s, "memory", "%s", err.message);
        return;
    }
    client->size = size;
    client->task_count = 0;
    client->task_goal = 1 + sim_draw(&client->dice, SIM_CALLS);
    for (uint32_t rank = 0; rank < size; rank++)
        client->lanes[rank].member = (gp_core_member){ .slot = UINT32_MAX };
}

/* Return which of the first `size` members have that amount of the resource "tag": a bit for each
 * rank. */
static uint64_t ranks_with(const sim *s, const sim_client *client, uint32_t tag, uint32_t size)
{
    uint64_t ranks = 0;

    for (uint32_t rank = 0; rank < size; rank++)
        if (sim_tag_of(s, client->claim.members[rank].slot) >= tag)
            ranks |= (uint64_t)1 << rank;
    return ranks;
}

/* Mirror team_needs_update(). Class n are calls that need tag=n. */
static void update_needs(sim *s, sim_client *client)
{
    gp_error err;

    for (uint32_t tag = 1; tag <= 2; tag++)
        if (dispatch_set_class(client->calls, tag, ranks_with(s, client, tag, client->claim.member_count),
                               &err) != GP_OK)
            sim_fail(s, "memory", "%s", err.message);
}

/* ---- elastic teams ---- */

/* Check that no call waits for workers that have all left. */
static void check_left(sim *s, const sim_client *client, uint32_t size)
{
    for (uint32_t i = 0; i < client->task_count; i++) {
        const sim_task *task = &client->tasks[i];

        if (task->tag != 0 && task->unit.state == UNIT_READY && ranks_with(s, client, task->tag, size) == 0)
            sim_fail(s, "left-needs", "call %llu waits for workers that have left the team",
                     (unsigned long long)task->unit.call.id);
    }
}

/* Check that a worker that leaves runs no call and has none in the ring, and close the link. */
static void lane_leaves(sim *s, sim_client *client, uint32_t rank)
{
    sim_lane *lane = &client->lanes[rank];
    sim_process *process = lane->process != 0 ? &s->processes[lane->process - 1] : NULL;

    for (uint32_t i = 0; i < lane->call_count; i++)
        if (!call_at(lane, i)->revoked && !call_at(lane, i)->answered)
            sim_fail(s, "left-busy", "worker %u left the team with a call", rank + 1);
    if (process != NULL && process->client == number_of(s, client) + 1 && process->serial == lane->serial) {
        process->client = 0;
        process->busy = false;
    }
    if (lane->process != 0)
        dispatch_worker_down(client->calls, rank + 1, s->now_us * 1000);
    ring_clear(lane);
    lane->serial++;
    lane->member = (gp_core_member){ .slot = UINT32_MAX };
}

static void team_resize(sim *s, sim_client *client, uint32_t size)
{
    for (uint32_t rank = size; rank < client->size; rank++)
        lane_leaves(s, client, rank);
    for (uint32_t rank = client->size; rank < size; rank++)
        client->lanes[rank].member = (gp_core_member){ .slot = UINT32_MAX };
    s->tally.resized += size != client->size;
    client->size = size;
    dispatch_set_workers(client->calls, size);
    for (uint32_t rank = 0; rank < size; rank++)
        dispatch_leave(client->calls, rank + 1, false);
}

void sim_team_forms(sim *s, sim_client *client, uint32_t workers)
{
    const gp_core_event form = { .kind = GP_CORE_EVENT_LEASE_FORM,
                                 .correlation = 14,
                                 .lease = client->lease,
                                 .generation = client->generation,
                                 .joining = UINT64_MAX,
                                 .workers = workers };

    client->forming = workers;
    sim_client_posts(s, client, &form);
}

void sim_team_changes(sim *s, sim_client *client, uint32_t workers)
{
    client->change = workers;
    wake(s, client, 1);
}

/* Mirror team_follow_size(). */
static void follow_size(sim *s, sim_client *client)
{
    uint32_t target = client->change;

    if (!client->elastic || target == 0 || client->forming != 0)
        return;
    for (uint32_t rank = 0; rank < client->size; rank++)
        dispatch_leave(client->calls, rank + 1, rank >= target);
    if (target == client->size)
        return;
    for (uint32_t rank = target; rank < client->size; rank++)
        if (client->lanes[rank].process == 0 || !dispatch_worker_done(client->calls, rank + 1))
            return;
    if (target < client->size) {
        check_left(s, client, target);
        team_resize(s, client, target);
    }
    sim_team_forms(s, client, target);
}

/* Adopt the members of a new generation. Unchanged members keep their links. */
void sim_team_granted(sim *s, sim_client *client)
{
    if (client->calls != NULL && client->elastic && client->claim.member_count >= client->size)
        team_resize(s, client, client->claim.member_count);
    else if (client->calls != NULL && client->size != client->claim.member_count)
        sim_team_close(s, client, GP_EPROTO);
    if (client->calls == NULL)
        team_open(s, client, client->claim.member_count);
    if (client->calls != NULL)
        update_needs(s, client);
    for (uint32_t rank = 0; client->calls != NULL && rank < client->size; rank++) {
        const gp_core_member *member = &client->claim.members[rank];
        sim_lane *lane = &client->lanes[rank];
        bool same = lane->member.slot == member->slot && lane->member.incarnation == member->incarnation;

        if (same && lane->process != 0)
            continue;
        if (lane->process != 0 && !lane_down(s, client, rank))
            return;
        lane->serial++;
        lane->member = *member;
        dial(s, client, rank, MS + sim_draw(&client->dice, 10 * MS));
    }
}

/* ---- events ---- */

static void submit(sim *s, sim_client *client)
{
    uint32_t number = client->task_count++;
    sim_task *task = &client->tasks[number];
    team_unit *unit = &task->unit;
    sim_dice *dice = &client->dice;
    bool orphan = false;
    gp_error err;

    *task = (sim_task){ .used = true };
    unit->call.id = ++client->unit_id;
    unit->call.kind = GP_CALL_RUN;
    unit->call.function = 1 + sim_draw(dice, 3);
    unit->priority = (int16_t)(sim_chance(dice, 30) ? (int)sim_draw(dice, 2001) - 1000 : 0);
    unit->wish = (uint8_t)(sim_chance(dice, 20) ? 1 + sim_draw(dice, client->size) : 0);
    unit->attempts_max = (uint16_t)(1 + sim_draw(dice, 4));
    unit->grace_ms = unit->call.id % 4 == 0 ? 0 : DISPATCH_GRACE_MS;
    unit->retries_max = (uint16_t)sim_draw(dice, 3);
    unit->timeout_ms = sim_chance(dice, 10) ? 1 + sim_draw(dice, 20) : 0;
    if (unit->wish != 0 && sim_chance(dice, 20)) {
        unit->urgent = true;
        unit->loss = TEAM_LOSS_STALE;
        unit->attempts_max = 1;
    }
    for (uint32_t i = 0; i < 2 && number > 0 && sim_chance(dice, 20); i++) {
        uint32_t before = sim_draw(dice, number);

        if (i == 1 && task->after[0] == before)
            break;
        task->after[task->after_count++] = before;
        if (client->tasks[before].ended)
            orphan |= client->tasks[before].status != GP_OK;
        else if (dispatch_after(client->calls, unit, &client->tasks[before].unit, sim_chance(dice, 50),
                                &err) != GP_OK)
            sim_fail(s, "memory", "%s", err.message);
    }
    if (unit->wish == 0 && task->after_count == 0 &&
        ranks_with(s, client, (uint32_t)(unit->call.id % 3), client->size) != 0)
        unit->needs = (uint8_t)(task->tag = (uint32_t)(unit->call.id % 3));
    sim_record(s, s->calls,
               (history_entry){ .kind = HISTORY_SUBMIT, .session = client->serial, .seq = unit->call.id });
    sim_record(s, s->calls,
               (history_entry){ .kind = HISTORY_ACCEPT,
                                .session = client->serial,
                                .seq = unit->call.id,
                                .id = thing_of(client, unit->call.id),
                                .attempt = (uint32_t)unit->attempts_max + unit->retries_max });
    if (dispatch_submit(client->calls, unit,
                        sim_chance(dice, 10) ? (s->now_us + sim_draw(dice, 200 * MS)) * 1000 : 0,
                        &err) != GP_OK)
        sim_fail(s, "memory", "%s", err.message);
    if (orphan)
        dispatch_over(client->calls, unit, GP_ECANCELED);
}

/* Wake up the workers: calls were added to the rings or canceled. */
static void rouse(sim *s, sim_client *client)
{
    for (uint32_t rank = 0; rank < client->size; rank++) {
        sim_lane *lane = &client->lanes[rank];
        sim_process *process = lane->process != 0 ? &s->processes[lane->process - 1] : NULL;

        if (process == NULL || process->client != number_of(s, client) + 1 ||
            process->serial != lane->serial || lane->call_count == 0)
            continue;
        if (!process->busy)
            push_for(s, process, 1 + sim_draw(&process->dice, 50), SIM_TAKES, 0);
        else if (lane->stop != 0 && lane->stop == call_at(lane, 0)->id && sim_chance(&process->dice, 75))
            push_for(s, process, 1 + sim_draw(&process->dice, 50 * MS), SIM_ANSWERS, 0);
    }
}

static void check_counts(sim *s, const sim_client *client)
{
    const dispatch_counts *counts = dispatch_get_counts(client->calls);
    uint64_t waiting = counts->held + counts->ready, alive = 0;

    for (uint32_t i = 0; i < client->task_count; i++)
        alive += !client->tasks[i].ended;
    if (waiting + counts->sent != alive || counts->live != alive)
        sim_fail(s, "counts", "%llu calls wait and %llu are in flight, but %llu have not ended",
                 (unsigned long long)waiting, (unsigned long long)counts->sent, (unsigned long long)alive);
}

void sim_pumps(sim *s, sim_client *client)
{
    int64_t now_ns = s->now_us * 1000, next_ns;

    if (client->pump_us > s->now_us)
        return; /* an earlier pump is already scheduled */
    client->pump_us = 0;
    if (client->calls == NULL)
        return;
    for (uint32_t rank = 0; rank < client->size; rank++)
        if (client->lanes[rank].process != 0 && !read_answers(s, client, rank))
            return;
    dispatch_tick(client->calls, now_ns);
    if (sim_calm(s) && client->task_goal > client->task_count)
        client->task_goal = client->task_count;
    for (uint32_t i = 0; i < FIRST_FILL && client->task_count < client->task_goal; i++)
        submit(s, client);
    if (client->task_count > 0 && sim_chance(&client->dice, 3)) {
        sim_task *task = &client->tasks[sim_draw(&client->dice, client->task_count)];

        if (!task->ended)
            dispatch_cancel(client->calls, &task->unit, DISPATCH_GRACE_MS, now_ns);
    }
    follow_size(s, client);
    if (!end_over(s, client))
        return;
    dispatch_fill(client->calls, now_ns);
    rouse(s, client);
    check_counts(s, client);
    next_ns = dispatch_next_ns(client->calls, now_ns);
    if (next_ns != INT64_MAX)
        wake(s, client, next_ns > now_ns ? (next_ns - now_ns) / 1000 + 1 : 20);
    if (client->task_count < client->task_goal)
        wake(s, client, MS + sim_draw(&client->dice, 10 * MS));
}
