/* Scheduler core: dispatch events, track clients, resize and shut down the pool. core.h describes
 * the interface. */
#include "scheduler/core/core.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "common/base/memory/alloc.h"
#include "scheduler/core/core_parts.h"

enum {
    TICK_MS = 500,
    /* A longer gap between steps means that this process was suspended, not that all others
     * were. */
    STOPPED_MS = 900,
};

gp_core_config gp_core_config_default(void)
{
    return (gp_core_config){
        .clients_max = 1024,
        .waits_max = 64,
        .idle_ms = 30 * 60 * 1000,
        .start_ms = 60 * 1000,
        .answer_ms = 1000,
        .grant_ms = 5000,
        .regrant_ms = 15000,
        .suspect_ms = 5000,
        .beat_ms = 15000,
        .adopt_ms = 2000,
        .keep_ms = 500,
    };
}

/* Hash and compare callbacks of the session index. */
static uint64_t session_hash(const void *core, uint32_t entry)
{
    return gp_index_hash(((const gp_core *)core)->clients[entry - 1].session.bytes);
}

static bool session_is(const void *core, uint32_t entry, const void *session)
{
    return gp_core_id_equal(&((const gp_core *)core)->clients[entry - 1].session, session);
}

gp_status gp_core_new(gp_core **out, const gp_core_config *config, const gp_core_slot_config *plan,
                      uint32_t plan_count, int64_t now_ms, gp_error *err)
{
    gp_core *core;

    if (plan_count == 0 || plan_count > GP_CORE_SLOTS_MAX)
        return gp_fail(err, GP_EINVAL, "invalid number of workers %u: a pool has 1 to %d", plan_count,
                       GP_CORE_SLOTS_MAX);
    core = gp_calloc(1, sizeof(*core));
    if (core == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for the scheduler's state");
    core->config = *config;
    core->clients = gp_calloc(config->clients_max, sizeof(*core->clients));
    core->asks = gp_calloc(config->waits_max + 1, sizeof(*core->asks));
    core->sessions = (gp_index){ .owner = core, .hash = session_hash, .is = session_is };
    if (core->clients == NULL || core->asks == NULL || !gp_index_init(&core->sessions, config->clients_max)) {
        gp_core_free(core);
        return gp_fail(err, GP_ENOMEM, "no memory for %u clients", config->clients_max);
    }
    core->accepting = true;
    core->now_ms = core->active_ms = now_ms;
    core->lease_next = config->incarnation_base + 1ull;
    core->slot_count = core->planned = plan_count;
    for (uint32_t s = 0; s < GP_CORE_SLOTS_MAX; s++)
        core->slots[s].incarnation = config->incarnation_base;
    for (uint32_t s = 0; s < plan_count; s++) {
        core->slots[s].config = plan[s];
        core->slots[s].wanted = true;
        /* cleared if the worker is found alive */
        core->slots[s].kept = config->incarnation_base != 0;
    }
    core->kept_ms = config->incarnation_base != 0 ? now_ms + config->keep_ms : 0;
    *out = core;
    return GP_OK;
}

void gp_core_free(gp_core *core)
{
    if (core == NULL)
        return;
    gp_index_deinit(&core->sessions);
    gp_free(core->clients);
    gp_free(core->asks);
    gp_free(core);
}

/* Bound the actions per step. An event causes at most two actions, one log line and two suspicion
 * messages (log and client) per slot, one message per lease and two per request. */
size_t gp_core_actions_max(const gp_core *core)
{
    return 9 * GP_CORE_SLOTS_MAX + 2 * core->config.waits_max + 16;
}

gp_core_action *gp_core_emit(gp_core *core, gp_core_action_kind kind)
{
    gp_core_action *action;

    assert(core->action_count < core->action_max);
    action = &core->actions[core->action_count++];
    memset(action, 0, sizeof(*action));
    action->kind = kind;
    return action;
}

gp_core_action *gp_core_emit_to_worker(gp_core *core, gp_core_action_kind kind, uint32_t slot)
{
    gp_core_action *action = gp_core_emit(core, kind);

    action->slot = slot;
    action->incarnation = core->slots[slot].incarnation;
    return action;
}

gp_core_action *gp_core_emit_to_client(gp_core *core, gp_core_action_kind kind, const gp_core_id *session,
                                       uint64_t correlation)
{
    gp_core_action *action = gp_core_emit(core, kind);

    action->session = *session;
    action->correlation = correlation;
    return action;
}

void gp_core_emit_error(gp_core *core, const gp_core_id *session, uint64_t correlation, gp_status status,
                        const char *format, ...)
{
    gp_core_action *action = gp_core_emit_to_client(core, GP_CORE_ERROR, session, correlation);
    va_list arguments;

    action->status = status;
    va_start(arguments, format);
    vsnprintf(action->text, sizeof(action->text), format, arguments);
    va_end(arguments);
}

void gp_core_emit_log(gp_core *core, const char *format, ...)
{
    gp_core_action *action = gp_core_emit(core, GP_CORE_LOG);
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(action->text, sizeof(action->text), format, arguments);
    va_end(arguments);
}

bool gp_core_id_equal(const gp_core_id *a, const gp_core_id *b)
{
    return memcmp(a->bytes, b->bytes, sizeof(a->bytes)) == 0;
}

/* ---- clients ---- */

/* Find a connected client by session. NULL: not connected. */
static gp_core_client *find_client(const gp_core *core, const gp_core_id *session)
{
    uint32_t entry = gp_index_find(&core->sessions, gp_index_hash(session->bytes), session);

    return entry == 0 ? NULL : &core->clients[entry - 1];
}

static void client_connected(gp_core *core, const gp_core_event *event)
{
    core->active_ms = core->now_ms;
    if (core->client_count == core->config.clients_max) {
        gp_core_emit_error(core, &event->session, event->correlation, GP_EBUSY,
                           "the pool has reached its limit of %u clients; try again later",
                           core->client_count);
        return;
    }
    core->clients[core->client_count++] = (gp_core_client){ .session = event->session, .pid = event->pid };
    gp_index_add(&core->sessions, core->client_count);
}

/* End the leases of a session. reported_too: also end those that the client knows about. */
static void end_leases_of(gp_core *core, const gp_core_id *session, bool reported_too)
{
    for (uint32_t i = 0; i < GP_CORE_SLOTS_MAX; i++) {
        gp_core_lease *lease = &core->leases[i];

        if (lease->id != 0 && gp_core_id_equal(&lease->session, session) &&
            (reported_too || !lease->reported))
            gp_core_lease_end(core, lease, GP_OK, NULL);
    }
}

static void client_gone(gp_core *core, const gp_core_event *event)
{
    gp_core_client *client = find_client(core, &event->session), *last;

    if (client == NULL)
        return;
    last = &core->clients[core->client_count - 1];
    gp_index_remove(&core->sessions, (uint32_t)(client - core->clients) + 1);
    if (client != last) { /* the last client moves into the free entry */
        gp_index_remove(&core->sessions, core->client_count);
        *client = *last;
        gp_index_add(&core->sessions, (uint32_t)(client - core->clients) + 1);
    }
    core->client_count--;
    gp_core_queue_leave(core, &event->session);
    end_leases_of(core, &event->session, true);
}

/* Drop all requests that the client has not seen granted. */
static void client_leaves(gp_core *core, const gp_core_event *event)
{
    gp_core_queue_leave(core, &event->session);
    end_leases_of(core, &event->session, false);
    gp_core_emit_to_client(core, GP_CORE_OK, &event->session, event->correlation);
}

/* ---- resize and shutdown ---- */

/* Return whether slot s already matches the plan. */
static bool resize_keeps(const gp_core *core, const gp_core_event *event, uint32_t s)
{
    const gp_core_slot *slot = &core->slots[s];

    if (s >= event->plan_count)
        return !slot->wanted;
    return slot->wanted && !slot->disabled &&
           memcmp(&slot->config, &event->plan[s], sizeof(slot->config)) == 0;
}

/* Return whether a lease, a claim of an earlier scheduler or a pending revoke keeps the slot. */
static bool slot_in_use(const gp_core_slot *slot)
{
    return slot->lease != 0 || slot->revoking != 0 || slot->claim != 0 || slot->kept ||
           slot->process == GP_CORE_AWAITED;
}

/* Apply the plan to a slot that is not in use. The next incarnation uses the new configuration. */
static void resize_slot(gp_core *core, uint32_t s)
{
    gp_core_slot *slot = &core->slots[s];

    core->outdated &= ~(1ull << s);
    slot->wanted = s < core->planned;
    slot->disabled = false;
    slot->tries = slot->early = 0;
    slot->reason[0] = '\0';
    if (slot->wanted)
        slot->config = core->plan[s];
    if (slot->process == GP_CORE_ABSENT)
        slot->due_ms = core->now_ms;
    gp_core_slot_quit(core, s);
    gp_core_slot_tick(core, s);
}

/* Apply the plan of the last resize to the slots that are free by now. Slots above the planned
 * number belong to the pool until then. */
static void resize_free_slots(gp_core *core)
{
    GP_CORE_EACH_MEMBER(s, core->outdated)
    {
        if (!slot_in_use(&core->slots[s]))
            resize_slot(core, s);
    }
    core->slot_count = core->planned;
    GP_CORE_EACH_MEMBER(s, core->outdated)
    {
        if (s >= core->slot_count)
            core->slot_count = s + 1;
    }
}

/* Change the slots to those of a plan, now or when their leases give them back. */
static void resize(gp_core *core, const gp_core_event *event)
{
    if (core->stopping != GP_CORE_RUNNING) {
        gp_core_emit_error(core, &event->session, event->correlation, GP_ESTATE, "the pool is shutting down");
        return;
    }
    if (event->plan_count == 0 || event->plan_count > GP_CORE_SLOTS_MAX) {
        gp_core_emit_error(core, &event->session, event->correlation, GP_EINVAL,
                           "invalid number of workers %u: a pool has 1 to %d", event->plan_count,
                           GP_CORE_SLOTS_MAX);
        return;
    }
    core->outdated = 0;
    core->planned = event->plan_count;
    for (uint32_t s = 0; s < GP_CORE_SLOTS_MAX; s++) {
        if (s < event->plan_count)
            core->plan[s] = event->plan[s];
        if (!resize_keeps(core, event, s))
            core->outdated |= 1ull << s;
    }
    resize_free_slots(core);
    core->config.idle_ms = event->idle_ms;
    gp_core_emit_to_client(core, GP_CORE_RESIZED, &event->session, event->correlation);
}

/* Shut down the pool: refuse queued requests, end all leases and ask all workers to quit. */
static void stop(gp_core *core)
{
    core->stopping = GP_CORE_STOPPING;
    gp_core_queue_refuse_all(core, GP_ENOPOOL, "the pool is shutting down");
    for (uint32_t i = 0; i < GP_CORE_SLOTS_MAX; i++) {
        if (core->leases[i].id != 0)
            gp_core_lease_end(core, &core->leases[i], GP_ENOPOOL, "the pool is shutting down");
    }
    for (uint32_t s = 0; s < GP_CORE_SLOTS_MAX; s++)
        gp_core_slot_quit(core, s);
}

/* Shut down now, or with when_idle once no lease, request or job is left. */
static void shutdown_asked(gp_core *core, const gp_core_event *event)
{
    static const gp_core_id nobody;

    if (!gp_core_id_equal(&event->session, &nobody))
        gp_core_emit_to_client(core, GP_CORE_OK, &event->session, event->correlation);
    if (event->grace_ms != 0)
        core->config.answer_ms = event->grace_ms;
    if (!event->when_idle && core->stopping != GP_CORE_STOPPING)
        stop(core);
    else if (core->stopping == GP_CORE_RUNNING)
        core->stopping = GP_CORE_STOP_WHEN_IDLE;
}

/* Check after each event whether the pool is idle, has to stop, or has stopped. */
static void settle(gp_core *core)
{
    bool idle = gp_core_lease_count(core) == 0 && core->ask_count == 0 && !core->jobs &&
                core->adopting_ms == 0 && gp_core_adopt_claims(core) == 0;
    bool alive = false;

    if (!idle)
        core->active_ms = core->now_ms;
    if (core->stopping == GP_CORE_STOP_WHEN_IDLE && idle)
        stop(core);
    if (core->stopping == GP_CORE_RUNNING && core->config.idle_ms != 0 &&
        core->now_ms - core->active_ms >= core->config.idle_ms) {
        char time[32];

        gp_core_emit_log(core, "no client used the pool for %s; shutting down",
                         gp_core_duration(time, sizeof(time), core->config.idle_ms));
        stop(core);
    }
    for (uint32_t s = 0; s < GP_CORE_SLOTS_MAX; s++)
        alive = alive || core->slots[s].process != GP_CORE_ABSENT;
    if (core->stopping == GP_CORE_STOPPING && !alive && !core->exited) {
        core->exited = true;
        gp_core_emit(core, GP_CORE_EXIT);
    }
}

/* ---- event dispatch ---- */

/* Return whether a worker's event is current: from the present incarnation, and not made
 * obsolete by the process state. */
static bool worker_is_current(const gp_core *core, const gp_core_event *event)
{
    const gp_core_slot *slot = &core->slots[event->slot];

    if (event->incarnation != slot->incarnation || slot->process == GP_CORE_ABSENT)
        return false;
    if (slot->process == GP_CORE_AWAITED)
        return event->kind == GP_CORE_EVENT_WORKER_READY || event->kind == GP_CORE_EVENT_WORKER_DIED;
    /* sent before the process was killed */
    return slot->process != GP_CORE_DYING || event->kind == GP_CORE_EVENT_WORKER_SPAWNED ||
           event->kind == GP_CORE_EVENT_WORKER_DIED;
}

/* Return whether a request is from a connected client, or a shutdown signal without a session. Add
 * the client's pid to the event. If the control socket of the client is closed, a lease granted to
 * it would never end. */
static bool client_is_known(gp_core *core, gp_core_event *event)
{
    static const gp_core_id nobody;
    const gp_core_client *client = find_client(core, &event->session);

    if (client == NULL &&
        !(event->kind == GP_CORE_EVENT_SHUTDOWN && gp_core_id_equal(&event->session, &nobody)))
        return false;
    if (client != NULL)
        event->pid = client->pid;
    core->active_ms = core->now_ms;
    return true;
}

static void handle(gp_core *core, const gp_core_event *event)
{
    static void (*const handlers[])(gp_core * core, const gp_core_event *event) = {
        [GP_CORE_EVENT_CLIENT_CONNECTED] = client_connected,
        [GP_CORE_EVENT_CLIENT_GONE] = client_gone,
        [GP_CORE_EVENT_LEASE_CLAIM] = gp_core_adopt_claim,
        [GP_CORE_EVENT_LEASE_ASK] = gp_core_queue_ask,
        [GP_CORE_EVENT_LEASE_LEAVE] = client_leaves,
        [GP_CORE_EVENT_LEASE_RELEASE] = gp_core_lease_release,
        [GP_CORE_EVENT_LEASE_RESIZE] = gp_core_resize_asked,
        [GP_CORE_EVENT_LEASE_FORM] = gp_core_resize_go,
        [GP_CORE_EVENT_WORKER_REPLACE] = gp_core_slot_replace,
        [GP_CORE_EVENT_RESIZE] = resize,
        [GP_CORE_EVENT_SHUTDOWN] = shutdown_asked,
        [GP_CORE_EVENT_WORKER_FOUND] = gp_core_adopt_found,
        [GP_CORE_EVENT_WORKER_SPAWNED] = gp_core_slot_spawned,
        [GP_CORE_EVENT_WORKER_READY] = gp_core_slot_ready,
        [GP_CORE_EVENT_WORKER_BEAT] = gp_core_slot_beat,
        [GP_CORE_EVENT_WORKER_GRANTED] = gp_core_group_acked,
        [GP_CORE_EVENT_WORKER_REVOKED] = gp_core_lease_revoked,
        [GP_CORE_EVENT_WORKER_UNHELD] = gp_core_adopt_unheld,
        [GP_CORE_EVENT_WORKER_DIED] = gp_core_slot_died,
    };

    assert(event->slot < GP_CORE_SLOTS_MAX); /* the shell validates slot numbers from the wire */
    if (event->kind == GP_CORE_EVENT_WORKER_GRANTED || event->kind == GP_CORE_EVENT_WORKER_REVOKED)
        gp_core_slot_heard(core, event->slot, gp_core_slot_silence(core, &core->slots[event->slot]));
    if (event->kind == GP_CORE_EVENT_LOCK)
        core->accepting = event->holds;
    else if (event->kind == GP_CORE_EVENT_JOBS)
        core->jobs = event->holds;
    else if (event->kind == GP_CORE_EVENT_TICK)
        for (uint32_t s = 0; s < GP_CORE_SLOTS_MAX; s++)
            gp_core_slot_tick(core, s);
    else if (event->kind != GP_CORE_EVENT_CLIENT_SPOKE)
        handlers[event->kind](core, event);
}

size_t gp_core_step(gp_core *core, gp_core_action *actions, const gp_core_event *event, int64_t now_ms)
{
    int64_t gap_ms = now_ms - core->now_ms;
    gp_core_event known = *event;

    assert(gap_ms >= 0 && core->actions == NULL);
    core->actions = actions;
    core->action_count = 0;
    core->action_max = gp_core_actions_max(core);
    core->now_ms = now_ms;
    /* Extend all deadlines by the time for which the scheduler itself was
     * suspended (Ctrl-Z, a closed laptop lid). Messages sent meanwhile are still
     * unread, so no deadline has truly passed. */
    if (gap_ms > STOPPED_MS) {
        if (core->adopting_ms != 0)
            core->adopting_ms += gap_ms;
        if (core->kept_ms != 0)
            core->kept_ms += gap_ms;
        for (uint32_t s = 0; s < GP_CORE_SLOTS_MAX; s++) {
            gp_core_slot *slot = &core->slots[s];

            slot->beat_ms += gap_ms;
            if (slot->answer_ms != 0)
                slot->answer_ms += gap_ms;
            if (slot->process != GP_CORE_ABSENT)
                slot->due_ms += gap_ms;
        }
    }
    if ((event->epoch != 0 && event->epoch != core->config.epoch) ||
        (event->kind >= GP_CORE_EVENT_WORKER_SPAWNED && !worker_is_current(core, event)) ||
        (event->kind >= GP_CORE_EVENT_LEASE_CLAIM && event->kind <= GP_CORE_EVENT_SHUTDOWN &&
         !client_is_known(core, &known)))
        core->stale++;
    else
        handle(core, &known);
    gp_core_adopt_tick(core);
    if (core->outdated != 0)
        resize_free_slots(core);
    gp_core_queue_serve(core);
    gp_core_resize_notify(core);
    settle(core);
    core->actions = NULL;
    return core->action_count;
}

int64_t gp_core_due(const gp_core *core)
{
    int64_t due = core->now_ms + TICK_MS, other = gp_core_queue_due(core);

    if (other < due)
        due = other;
    if (core->adopting_ms != 0 && core->adopting_ms < due)
        due = core->adopting_ms;
    if (core->kept_ms != 0 && core->kept_ms < due)
        due = core->kept_ms;
    for (uint32_t s = 0; s < GP_CORE_SLOTS_MAX; s++) {
        if (core->stopping == GP_CORE_STOPPING && core->slots[s].process == GP_CORE_ABSENT)
            continue;
        other = gp_core_slot_due(&core->slots[s], &core->config);
        if (other < due)
            due = other;
    }
    return due;
}
