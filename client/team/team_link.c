/* team_link.c: membership of a team: worker stages, failures and replacements. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define GP_TASK_NO_ABI
#include <gradpool/task.h>

#include "client/team/team.h"
#include "common/base/clock.h"

enum {
    REDIAL_MS = 500,       /* pause between two attempts to connect to the same worker process */
    OPEN_MS = 10000,       /* for all links of a new team */
    EXIT_REPORT_MS = 5000, /* wait for a busy scheduler to report how a worker exited */
};

/* ---- hooks of the dispatch ---- */

static bool hook_send(void *context, uint32_t w, team_unit *unit)
{
    gp_team *team = context;
    team_worker *worker = worker_of(team, w);
    team_call *from = &unit->call;
    gp_call *call;

    if (worker->corrupt || !call_share(from) ||
        (from->shared != NULL &&
         !payloads_send(&team->payloads, worker, (gp_broadcast *)(uintptr_t)from->shared)))
        return false;
    call = gp_link_reserve(worker->link, from->bytes + (from->shared != NULL && from->bytes > 0));
    if (call == NULL)
        return false;
    call->kind = from->kind;
    call->flags = from->flags;
    call->function = from->function;
    call->id = from->id;
    call->first = from->first;
    call->count = from->count;
    call->attempt = from->attempt != 0 ? from->attempt : (uint32_t)unit->attempts + unit->tries;
    call->value = from->value;
    if (from->bytes > 0)
        memcpy(call->payload, from->payload, from->bytes);
    if (from->shared != NULL) {
        /* terminate the text: a record with a blob has no inline length */
        if (from->bytes > 0)
            call->payload[from->bytes] = '\0';
        call->blob = from->shared->number;
        call->payload_bytes = from->shared->bytes;
    }
    unit->position = gp_link_position(worker->link);
    worker->dirty = true;
    return true;
}

static bool hook_revoke(void *context, uint32_t w, team_unit *unit)
{
    gp_team *team = context;
    team_worker *worker = worker_of(team, w);

    return worker->link != NULL && gp_link_revoke(worker->link, unit->position);
}

/* Request the end of a running call: set the cancel flag, and fail the operations that the call
 * waits for. */
static void hook_stop(void *context, uint32_t w, team_unit *unit)
{
    const team_worker *worker = worker_of(context, w);

    if (worker->stage != TEAM_UP)
        return;
    gp_link_cancel(worker->link, unit->call.id);
    pool_try_worker(worker->pool, w - 1, &gp_msg_task_stop, &(gp_task_stop){ .call = unit->call.id }, NULL,
                    NULL, NULL);
}

static bool hook_replace(void *context, uint32_t w, team_unit *unit)
{
    team_worker *worker = worker_of(context, w);
    char reason[GP_TEXT_REASON];

    if (worker->link != NULL && gp_link_ended(worker->link, unit->position) && gp_link_pending(worker->link))
        return false;
    snprintf(reason, sizeof(reason), "a call %s and did not end within %" PRIu32 " ms",
             unit->over_limit ? "exceeded its time limit" : "was canceled", unit->grace_ms);
    worker_replace(worker, reason);
    return true;
}

const dispatch_hooks team_hooks = {
    .send = hook_send, .revoke = hook_revoke, .stop = hook_stop, .replace = hook_replace
};

bool team_unit_begun(const gp_team *team, const team_unit *unit)
{
    const gp_link *link = unit->state == UNIT_SENT ? team->workers[unit->worker - 1].link : NULL;

    return link != NULL && gp_link_begun(link, unit->position);
}

/* ---- stages ---- */

/* End the calls that ran on a failed worker and have no attempt left. The exit cause is now known,
 * or will never be. */
static void exit_settle(gp_team *team, team_worker *worker)
{
    team_unit *unit;

    worker->exit_awaited = false;
    while ((unit = dispatch_dying(team->dispatch, worker->number)) != NULL)
        dispatch_over(team->dispatch, unit, GP_EPEER);
}

/* Return the calls of a failed worker to the dispatch, and store in the running one how far it
 * was. */
static void calls_lose(gp_team *team, const team_worker *worker)
{
    team_unit *first = NULL;
    uint32_t progress = 0;

    if (dispatch_sent(team->dispatch, worker->number, &first) > 0 && worker->link != NULL &&
        gp_link_running(worker->link) == first->call.id)
        progress = gp_link_progress(worker->link);
    dispatch_worker_down(team->dispatch, worker->number, gp_now_ns());
    if (first != NULL)
        first->position = progress;
}

/* Handle a worker failure: read the last answers, return or end the calls, and close the link. */
static void worker_down(gp_team *team, team_worker *worker)
{
    bool was_up = worker->stage == TEAM_UP;

    if (worker->stage == TEAM_DOWN)
        return;

    /* from here on, items for full queues are accepted too, so that all records can be read */
    worker->stage = TEAM_DOWN;
    if (was_up) {
        while (!worker->corrupt && team_drain(team, worker->number))
            ;
        team->up--;
        team->info.worker_deaths++;
    }
    worker->exit_pid = worker->pid;
    worker->pid = 0;
    worker->dirty = false;
    worker->replacement = gp_timeout_in(TEAM_REPLACE_MS);
    worker->dial_ms = INT64_MAX;
    calls_lose(team, worker);
    worker_close(worker);
    payloads_forget(&team->payloads, worker);
    worker->corrupt = worker->blocked = false;
    if (worker->exit_known)
        exit_settle(team, worker);
    else if (dispatch_dying(team->dispatch, worker->number) != NULL) {
        worker->exit_awaited = true;
        worker->exit_timeout = gp_timeout_in(EXIT_REPORT_MS);
    }
}

/* Handle a failed attempt to link a worker. Break the team if no retry can succeed. Otherwise
 * retry: the process is slow, or it has exited and the scheduler will report that. */
static void worker_failed(gp_team *team, team_worker *worker, const gp_error *why)
{
    char name[TEAM_NAME_BYTES];

    if (why->code == GP_EVERSION || why->code == GP_EUNSUPPORTED || why->code == GP_EPERM) {
        gp_error words = *why;

        gp_error_prefix(&words, "%s", worker_name(worker, 0, name));
        team_break(team, &words);
    }
    worker_close(worker);
    worker->stage = TEAM_DOWN;
    worker->dial_ms = gp_now_ms() + REDIAL_MS;
}

/* ---- messages ---- */

static void on_worker(gp_team *team, const pool_message *message)
{
    team_worker *worker = worker_of(team, message->rank + 1);
    gp_task_ready ready;
    gp_error err = { 0 };
    gp_status status = GP_OK;

    if (worker->awaited == 0 || message->in.envelope.correlation != worker->awaited)
        return;
    if (message->in.type == &gp_msg_error_reply)
        status = pool_error_from(&message->in, &err);
    else if (worker->stage == TEAM_ATTACHING && message->in.type == &gp_msg_ok_reply)
        status = worker_connect(worker, team->wakeup_fd, team->lines.output != NULL, &err);
    else if (worker->stage == TEAM_OPENING && message->in.type == &gp_msg_task_ready) {
        worker->awaited = 0;
        status = gp_incoming_decode(&message->in, &ready, &err);
        if (status == GP_OK && (ready.link_version != GP_LINK_VERSION || ready.task_abi != GP_TASK_ABI))
            status = gp_fail(&err, GP_EVERSION,
                             "it has link version %" PRIu32 " and task ABI %" PRIu32 ", expected %d and %d",
                             ready.link_version, ready.task_abi, GP_LINK_VERSION, GP_TASK_ABI);
        if (status == GP_OK) {
            worker->stage = TEAM_UP;
            worker->exit_known = false;
            team->up++;
            if (team->asleep)
                gp_link_asleep(worker->link, false);
            worker->clock_ns = INT64_MAX;
            worker->last_ns = gp_now_ns();

            /* Replay broadcasts first: no waiting call may precede them in the ring. */
            broadcasts_replay(team, worker->number);
            dispatch_worker_up(team->dispatch, worker->number, gp_now_ns());
        }
    }
    if (status != GP_OK)
        worker_failed(team, worker, &err);
}

static void on_lost(gp_team *team, const gp_incoming *in)
{
    gp_worker_lost lost;
    gp_error ignored;

    if (in->envelope.lease != team->pool->lease || gp_incoming_decode(in, &lost, &ignored) != GP_OK)
        return;
    EACH_WORKER(team, w)
    {
        team_worker *worker = worker_of(team, w);

        if (worker->index != lost.index || worker->incarnation != lost.incarnation)
            continue;
        worker->exit_report = lost;
        worker->exit_known = true;
        worker_down(team, worker);
        exit_settle(team, worker);
    }
}

/* Apply a new generation of the lease. Unchanged workers keep their link and channel. */
static void on_grant(gp_team *team)
{
    gp_pool *pool = team->pool;
    gp_error err;

    pool->regranted = false;
    team->membership.forming = 0;
    if (team->membership.elastic && pool->grant.slots_count > team->size)
        team_set_size(team, pool->grant.slots_count);
    if (pool->grant.slots_count != team->size) {
        gp_fail(&err, GP_EPEER,
                "the pool cannot replace a worker of the team: the lease has %" PRIu32
                " workers, the team %" PRIu32 "; the scheduler's log is %s",
                pool->grant.slots_count, team->size, pool->paths.scheduler_log);
        team_break(team, &err);
        return;
    }
    team_needs_update(team);
    EACH_WORKER(team, w)
    {
        team_worker *worker = worker_of(team, w);
        const gp_slot *slot = &pool->grant.slots[w - 1];
        bool same = slot->index == worker->index && slot->incarnation == worker->incarnation;

        dispatch_leave(team->dispatch, w, false);
        if (same && worker->stage == TEAM_UP)
            continue;
        if (!same)
            worker_down(team, worker);
        worker_close(worker);
        worker->stage = TEAM_DOWN;
        worker->awaited = 0;
        worker->index = slot->index;
        worker->incarnation = slot->incarnation;
        worker->dial_ms = 0;
    }
}

void team_check_workers(gp_team *team)
{
    team->looked_ns = gp_now_ns();
    if (team->failure.code != GP_OK)
        return;
    EACH_WORKER(team, w)
    {
        team_worker *worker = worker_of(team, w);

        if (worker->control_socket < 0 || worker_is_connected(worker))
            continue;
        if (worker->stage == TEAM_UP)
            worker_down(team, worker);
        else
            worker_failed(team, worker, &(gp_error){ GP_EPEER, "its control socket is closed" });
    }
    for (;;) {
        pool_message message;
        gp_error err;
        gp_status status = pool_next(team->pool, &message, 0, &err);

        if (status != GP_OK && team->pool->revoked)
            team_break_revoked(team);
        else if (status != GP_OK)
            team_break(team, &err);
        if (status != GP_OK)
            return;

        /* Repeat the requests that the new scheduler has not seen. The dispatch repeats those for
         * canceled calls. */
        if (team->membership.reunions != team->pool->reunions) {
            team->membership.reunions = team->pool->reunions;
            EACH_WORKER(team, w)
            if (worker_of(team, w)->corrupt)
                worker_replace(worker_of(team, w), "a task corrupted its memory");
            team_form_again(team);
            if (team->pool->revoked)
                team_break_revoked(team);
        }
        if (message.from == POOL_NOBODY)
            break;
        if (message.from == POOL_WORKER)
            on_worker(team, &message);
        else if (message.in.type == &gp_msg_worker_lost)
            on_lost(team, &message.in);
        else
            team_needs_reply(&team->needs, &message.in);
        if (team->pool->regranted)
            on_grant(team);
        if (team->pool->revoked)
            team_break_revoked(team);
        pool_message_close(&message);
    }
    team_follow_size(team);
}

/* ---- timers ---- */

int64_t team_link_next_ns(const gp_team *team)
{
    int64_t next_ms = INT64_MAX;

    EACH_WORKER(team, w)
    {
        const team_worker *worker = &team->workers[w - 1];
        if (worker->stage == TEAM_DOWN && worker->dial_ms < next_ms)
            next_ms = worker->dial_ms;
    }
    return next_ms == INT64_MAX ? INT64_MAX : next_ms * 1000000;
}

void team_link_tick(gp_team *team)
{
    int64_t now_ms = team->up < team->size ? gp_now_ms() : 0;

    if (now_ms == 0 || team->failure.code != GP_OK)
        return;
    EACH_WORKER(team, w)
    {
        team_worker *worker = worker_of(team, w);
        char name[TEAM_NAME_BYTES];
        gp_error err;

        if (worker->exit_awaited && gp_timeout_left(worker->exit_timeout) == 0)
            exit_settle(team, worker);
        if (worker->stage == TEAM_UP)
            continue;
        if (worker->stage == TEAM_DOWN && worker->dial_ms <= now_ms) {
            if (pool_dial_worker(team->pool, w - 1, &worker->awaited, &err) == GP_OK)
                worker->stage = TEAM_ATTACHING;
            else
                worker_failed(team, worker, &err);
        }
        if (gp_timeout_left(worker->replacement) == 0) {
            gp_fail(&err, GP_ETIMEDOUT,
                    "%s exited and was not replaced within %d s; the scheduler's log is %s",
                    worker_name(worker, worker->exit_pid, name), TEAM_REPLACE_MS / 1000,
                    team->pool->paths.scheduler_log);
            team_break(team, &err);
        }
    }
}

/* ---- first link ---- */

static bool all_up(void *context)
{
    const gp_team *team = context;

    return team->up == team->size;
}

gp_status team_link_all(gp_team *team, gp_error *err)
{
    gp_status status;

    EACH_WORKER(team, w)
    {
        team_worker *worker = worker_of(team, w);
        gp_error why;

        worker->replacement = gp_timeout_in(TEAM_REPLACE_MS);
        worker->stage = TEAM_ATTACHING;
        if (worker_connect(worker, team->wakeup_fd, team->lines.output != NULL, &why) != GP_OK)
            worker_failed(team, worker, &why);
    }
    status = team_poll_extended(team, all_up, team, OPEN_MS, err);
    if (status == GP_ETIMEDOUT)
        return gp_fail(err, GP_ETIMEDOUT, "%" PRIu32 " of %" PRIu32 " leased workers did not connect in time",
                       team->size - team->up, team->size);
    return status;
}
