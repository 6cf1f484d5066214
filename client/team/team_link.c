/* team_link.c -- a team's workers: links made, doors read, deaths and replacements. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define GP_TASK_NO_ABI
#include <gradpool/task.h>

#include "client/team/team.h"
#include "common/base/memory/alloc.h"
#include "common/base/clock.h"

void team_death_words(const gp_team *team, uint32_t worker, const char *doing, char *text, size_t bytes)
{
    const team_worker *w = &team->workers[worker - 1];
    const gp_worker_lost *lost = &w->lost;
    char name[TEAM_NAME_BYTES];

    team_worker_name(team, worker, w->lost_pid, name);
    if (!w->lost_known)
        snprintf(text, bytes, "%s died%s for an unknown reason; its log is %s", name, doing,
                 team->pool->grant.slots[worker - 1].log);
    else if (lost->out_of_memory != 0)
        snprintf(text, bytes, "%s was killed because memory ran out%s; its log is %s", name, doing,
                 lost->log);
    else if (lost->signal > 0)
        snprintf(text, bytes, "%s was killed by signal %" PRId32 " (%s)%s; its log is %s", name, lost->signal,
                 sigdescr_np(lost->signal) == NULL ? "unknown" : sigdescr_np(lost->signal), doing, lost->log);
    else if (lost->signal == 0 && lost->exit_code >= 0)
        snprintf(text, bytes, "%s exited with code %" PRId32 "%s; its log is %s", name, lost->exit_code,
                 doing, lost->log);
    else
        snprintf(text, bytes, "%s ended%s: %s", name, doing, lost->cause);
}

/* ---- hooks of the dispatch ---- */

/* An argument too long for the ring, which has waited on the heap: a memory file from here on. */
static bool make_shared(team_unit *unit)
{
    gp_shared *shared;
    gp_error ignored;

    if (unit->bytes <= GP_LINK_INLINE_MAX)
        return true;
    if (gp_shared_new(&shared, unit->payload.memory, unit->bytes, &ignored) != GP_OK)
        return false; /* tried again when calls before it have given back what they held */
    unit_payload_free(unit);
    unit->shared = shared;
    return true;
}

static bool hook_send(void *context, uint32_t w, team_unit *unit)
{
    gp_team *team = context;
    team_worker *worker = worker_of(team, w);
    const void *payload;
    gp_call *call;

    if (worker->corrupt || !make_shared(unit) || (unit->shared != NULL && !team_give(team, w, unit->shared)))
        return false;
    call = gp_link_reserve(worker->link, unit->bytes + (unit->shared != NULL && unit->bytes > 0));
    if (call == NULL)
        return false;
    payload = unit->bytes > UNIT_INLINE_MAX ? unit->payload.memory : unit->payload.in_place;
    call->kind = unit->kind;
    call->flags = unit->flags;
    call->function = unit->function;
    call->id = unit->id;
    call->first = unit->first;
    call->count = unit->count;
    call->attempt = unit->attempt != 0 ? unit->attempt : (uint32_t)unit->attempts + unit->tries;
    call->value = unit->value;
    memcpy(call->payload, payload, unit->bytes);
    if (unit->shared != NULL) {
        if (unit->bytes > 0)
            call->payload[unit->bytes] = '\0'; /* beside a blob the length of a text is not said */
        call->blob = unit->shared->number;
        call->payload_bytes = unit->shared->bytes;
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

bool team_unit_begun(const gp_team *team, const team_unit *unit)
{
    const gp_link *link = unit->state == UNIT_SENT ? team->workers[unit->worker - 1].link : NULL;

    return link != NULL && gp_link_begun(link, unit->position);
}

void team_worker_stop(gp_team *team, uint32_t w, uint64_t id)
{
    team_worker *worker = worker_of(team, w);
    gp_error ignored;

    if (worker->stage != TEAM_UP)
        return;
    gp_link_cancel(worker->link, id);
    pool_try_worker(team->pool, w - 1, &gp_msg_task_stop, &(gp_task_stop){ .call = id }, &ignored);
}

void team_worker_replace(gp_team *team, uint32_t w, const char *reason)
{
    team_worker *worker = worker_of(team, w);
    gp_worker_replace request = { .index = worker->index, .incarnation = worker->incarnation };
    gp_error ignored;

    if (worker->replacing || worker->stage == TEAM_DOWN)
        return;
    worker->replacing = true;
    snprintf(request.reason, sizeof(request.reason), "%s", reason);
    pool_tell(team->pool, &gp_msg_worker_replace, &request, NULL, &ignored);
}

static void hook_stop(void *context, uint32_t w, team_unit *unit)
{
    team_worker_stop(context, w, unit->id);
}

static void hook_replace(void *context, uint32_t w, team_unit *unit)
{
    char reason[GP_TEXT_REASON];

    snprintf(reason, sizeof(reason), "a call %s and did not end within %" PRIu32 " ms",
             unit->over_limit ? "exceeded its time limit" : "was canceled", unit->grace_ms);
    team_worker_replace(context, w, reason);
}

const dispatch_hooks team_hooks = {
    .send = hook_send, .revoke = hook_revoke, .stop = hook_stop, .replace = hook_replace
};

/* ---- blobs from workers ---- */

static void blob_keep(gp_team *team, uint32_t w, uint64_t number, int fd)
{
    team_worker *worker = worker_of(team, w);

    if (worker->blob_count == worker->blob_room && worker->blob_room < TEAM_BLOBS_MAX) {
        uint32_t room = worker->blob_room == 0 ? 8 : 2 * worker->blob_room;
        team_blob *grown = gp_realloc_array(worker->blobs, room, sizeof(*grown));

        if (grown != NULL) {
            worker->blobs = grown;
            worker->blob_room = room;
        }
    }
    if (worker->blob_count == worker->blob_room) {
        close(fd);
        team_worker_corrupt(team, w,
                            "it sent more descriptors than it named, or there is no memory for them");
        return;
    }
    worker->blobs[worker->blob_count++] = (team_blob){ number, fd };
}

/* All that waits behind the door; false: it is at its end. */
static bool door_read(gp_team *team, uint32_t w)
{
    for (;;) {
        gp_door_request request;
        int fd = -1;
        gp_error ignored;
        gp_status status = gp_door_receive_fd(worker_of(team, w)->door, &request, &fd, 0, &ignored);

        if (status == GP_OK && fd >= 0 && request.what == GP_DOOR_BLOB && request.lease != 0)
            blob_keep(team, w, request.lease, fd);
        else if (status == GP_OK && fd >= 0)
            close(fd);
        else if (status == GP_EPROTO)
            team_worker_corrupt(team, w, "what it sent through its door is no request");
        else if (status == GP_ETIMEDOUT)
            return true;
        else if (status != GP_OK)
            return false;
    }
}

int team_blob_take(gp_team *team, uint32_t w, uint64_t number)
{
    team_worker *worker = worker_of(team, w);

    for (int look = 0; look < 2; look++) {
        for (uint32_t i = 0; i < worker->blob_count; i++)
            if (worker->blobs[i].number == number) {
                int fd = worker->blobs[i].fd;

                worker->blobs[i] = worker->blobs[--worker->blob_count];
                return fd;
            }
        door_read(team, w); /* its end is seen again by who looks for it */
    }
    return -1;
}

/* ---- stages ---- */

void team_worker_close(gp_team *team, uint32_t w)
{
    team_worker *worker = worker_of(team, w);

    gp_link_free(worker->link);
    worker->link = NULL;
    if (worker->door >= 0)
        close(worker->door);
    worker->door = -1;
    while (worker->blob_count > 0)
        close(worker->blobs[--worker->blob_count].fd);
    gp_free(worker->blobs);
    worker->blobs = NULL;
    worker->blob_room = 0;
    team_given_forget(team, w);
}

void team_worker_corrupt(gp_team *team, uint32_t w, const char *what)
{
    team_worker *worker = worker_of(team, w);
    char reason[GP_TEXT_REASON];

    if (worker->corrupt)
        return;
    worker->corrupt = true;
    snprintf(reason, sizeof(reason), "a task has damaged its memory: %.180s", what);
    team_worker_replace(team, w, reason);
}

/* What is known of its death makes those calls end that will not be tried again. */
static void facts_settle(gp_team *team, uint32_t w)
{
    team_worker *worker = worker_of(team, w);
    team_unit *unit;

    worker->facts_awaited = false;
    while ((unit = dispatch_dying(team->dispatch, w)) != NULL)
        dispatch_over(team->dispatch, unit, GP_EPEER);
}

static void worker_down(gp_team *team, uint32_t w)
{
    team_worker *worker = worker_of(team, w);
    bool was_up = worker->stage == TEAM_UP;

    if (worker->stage == TEAM_DOWN)
        return;
    if (was_up) {
        worker->blocked = false;
        worker->last_words = true;
        while (!worker->corrupt && team_drain(team, w))
            ;
        worker->last_words = false;
        team->up--;
        team->info.worker_deaths++;
    }
    worker->stage = TEAM_DOWN;
    worker->lost_pid = worker->pid;
    worker->pid = 0;
    worker->dirty = false;
    worker->down = gp_timeout_in(TEAM_REPLACE_MS);
    worker->dial_ms = INT64_MAX; /* when a grant comes */
    dispatch_worker_down(team->dispatch, w, gp_now_ns());
    team_worker_close(team, w);
    worker->corrupt = worker->blocked = worker->replacing = false;
    if (worker->lost_known)
        facts_settle(team, w);
    else if (dispatch_dying(team->dispatch, w) != NULL) {
        worker->facts_awaited = true;
        worker->facts = gp_timeout_in(TEAM_FACTS_MS);
    }
}

static gp_status worker_dial(gp_team *team, uint32_t w, gp_error *err)
{
    team_worker *worker = worker_of(team, w);

    worker->dial_ms = gp_now_ms() + TEAM_REDIAL_MS;
    gp_status status = pool_dial_worker(team->pool, w - 1, &worker->awaited, err);

    if (status == GP_OK)
        worker->stage = TEAM_ATTACHING;
    return status;
}

/* Attached: send the descriptors through its door and ask it to take the link. */
static gp_status worker_link(gp_team *team, uint32_t w, gp_error *err)
{
    team_worker *worker = worker_of(team, w);
    gp_door_request request = pool_door_request(team->pool, GP_DOOR_SEGMENT);
    gp_task_open open = { .link_version = GP_LINK_VERSION, .task_abi = GP_TASK_ABI };
    int segment = -1;

    team_worker_close(team, w);
    worker->pid = team->pool->grant.slots[w - 1].pid;
    gp_status status = pool_knock_worker(team->pool, w - 1, &worker->door, TEAM_DOOR_MS, err);

    if (status == GP_OK)
        status = gp_link_new(&worker->link, &segment, err);
    if (status == GP_OK)
        status = gp_door_send_fd(worker->door, &request, segment, err);
    request.what = GP_DOOR_BELL;
    if (status == GP_OK)
        status = gp_door_send_fd(worker->door, &request, team->bell, err);
    if (segment >= 0)
        close(segment);
    if (status == GP_OK)
        status = pool_try_worker_ask(team->pool, w - 1, &gp_msg_task_open, &open, &worker->awaited, err);
    if (status == GP_OK)
        worker->stage = TEAM_OPENING;
    return status;
}

static void worker_up(gp_team *team, uint32_t w)
{
    team_worker *worker = worker_of(team, w);

    worker->stage = TEAM_UP;
    worker->dial_ms = INT64_MAX;
    worker->lost_known = false;
    team->up++;
    if (team->asleep)
        gp_link_asleep(worker->link, false);
    worker->clock_ns = INT64_MAX;
    worker->last_ns = gp_now_ns();
    /* First all that lasts, then the worker is open: else a call that waits would slip in behind the first of them. */
    team_lasting_replay(team, w);
    dispatch_worker_up(team->dispatch, w, gp_now_ns());
}

/* It could not be linked: perhaps it is dead and the scheduler will say so, perhaps it is only slow. */
static void worker_failed(gp_team *team, uint32_t w, const gp_error *why)
{
    team_worker *worker = worker_of(team, w);
    char name[TEAM_NAME_BYTES];

    if (why->code == GP_EVERSION || why->code == GP_EUNSUPPORTED || why->code == GP_EPERM) {
        gp_error words = *why;

        gp_error_prefix(&words, "%s", team_worker_name(team, w, 0, name));
        team_break(team, &words);
    }
    team_worker_close(team, w);
    worker->stage = TEAM_DOWN;
    worker->dial_ms = gp_now_ms() + TEAM_REDIAL_MS;
}

/* ---- messages ---- */

static void on_worker(gp_team *team, const pool_message *message)
{
    uint32_t w = message->rank + 1;
    team_worker *worker = worker_of(team, w);
    gp_task_ready ready;
    gp_error err = { 0 };
    gp_status status = GP_OK;

    if (worker->awaited == 0 || message->in.envelope.correlation != worker->awaited)
        return;
    if (message->in.type == &gp_msg_error_reply)
        status = pool_error_from(&message->in, &err);
    else if (worker->stage == TEAM_ATTACHING && message->in.type == &gp_msg_ok_reply)
        status = worker_link(team, w, &err);
    else if (worker->stage == TEAM_OPENING && message->in.type == &gp_msg_task_ready) {
        worker->awaited = 0;
        status = gp_incoming_decode(&message->in, &ready, &err);
        if (status == GP_OK && (ready.link_version != GP_LINK_VERSION || ready.task_abi != GP_TASK_ABI))
            status = gp_fail(&err, GP_EVERSION,
                             "it speaks link %" PRIu32 " and task ABI %" PRIu32 ", this %d and %d",
                             ready.link_version, ready.task_abi, GP_LINK_VERSION, GP_TASK_ABI);
        if (status == GP_OK)
            worker_up(team, w);
    }
    if (status != GP_OK)
        worker_failed(team, w, &err);
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
        worker->lost = lost;
        worker->lost_known = true;
        if (worker->door >= 0)
            door_read(team, w); /* what it sent before its end */
        worker_down(team, w);
        facts_settle(team, w);
    }
}

/* The members of the new generation: who is the same keeps link and channel. */
static void on_grant(gp_team *team)
{
    gp_pool *pool = team->pool;
    gp_error err;

    pool->regranted = false;
    if (pool->grant.slots_count != team->size) {
        gp_fail(&err, GP_EPROTO, "the lease has %" PRIu32 " workers now and had %" PRIu32,
                pool->grant.slots_count, team->size);
        team_break(team, &err);
        return;
    }
    EACH_WORKER(team, w)
    {
        team_worker *worker = worker_of(team, w);
        const gp_slot *slot = &pool->grant.slots[w - 1];

        if (slot->index == worker->index && slot->incarnation == worker->incarnation &&
            worker->stage == TEAM_UP)
            continue;
        if (slot->index != worker->index || slot->incarnation != worker->incarnation) {
            if (worker->door >= 0)
                door_read(team, w);
            worker_down(team, w);
        }
        team_worker_close(team, w);
        worker->stage = TEAM_DOWN;
        worker->awaited = 0;
        worker->index = slot->index;
        worker->incarnation = slot->incarnation;
        worker->dial_ms = 0;
    }
}

static void on_message(gp_team *team, const pool_message *message)
{
    gp_error why;

    if (message->from == POOL_WORKER)
        on_worker(team, message);
    else if (message->in.type == &gp_msg_worker_lost)
        on_lost(team, &message->in);
    if (team->pool->regranted)
        on_grant(team);
    if (team->pool->revoked) {
        gp_fail(&why, GP_ECANCELED, "the lease ended: %s", team->pool->ended.reason);
        team_break(team, &why);
    }
}

static void look_at_doors(gp_team *team)
{
    EACH_WORKER(team, w)
    {
        team_worker *worker = worker_of(team, w);

        if (worker->door < 0 || door_read(team, w))
            continue;
        if (worker->stage == TEAM_UP)
            worker_down(team, w);
        else
            worker_failed(team, w, &(gp_error){ GP_EPEER, "its door is closed" });
    }
}

/* The scheduler died, the next one was found: what it was asked for was lost, what it knows of the lease may be news. */
static void after_reunion(gp_team *team)
{
    gp_error why;

    team->reunions = team->pool->reunions;
    EACH_WORKER(team, w)
    {
        team_worker *worker = worker_of(team, w);

        if (!worker->replacing)
            continue;
        worker->replacing = false;
        team_worker_replace(team, w, "its task does not end");
    }
    if (team->pool->revoked) {
        gp_fail(&why, GP_ECANCELED, "the lease ended: %s", team->pool->ended.reason);
        team_break(team, &why);
    }
}

void team_look(gp_team *team)
{
    team->looked_ns = gp_now_ns();
    if (team->broken != GP_OK)
        return;
    look_at_doors(team);
    for (;;) {
        pool_message message;
        gp_error err;
        gp_status status = pool_next(team->pool, &message, 0, &err);

        if (status != GP_OK) {
            if (team->pool->revoked)
                gp_fail(&err, GP_ECANCELED, "the lease ended: %s", team->pool->ended.reason);
            team_break(team, &err);
            return;
        }
        if (team->reunions != team->pool->reunions)
            after_reunion(team);
        if (message.from == POOL_NOBODY)
            return;
        on_message(team, &message);
        pool_message_close(&message);
    }
}

/* ---- time ---- */

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

    if (now_ms == 0 || team->broken != GP_OK)
        return;
    EACH_WORKER(team, w)
    {
        team_worker *worker = worker_of(team, w);
        char name[TEAM_NAME_BYTES];
        gp_error err;

        if (worker->facts_awaited && gp_timeout_left(worker->facts) == 0)
            facts_settle(team, w);
        if (worker->stage == TEAM_UP)
            continue;
        if (worker->stage == TEAM_DOWN && worker->dial_ms <= now_ms && worker_dial(team, w, &err) != GP_OK)
            worker_failed(team, w, &err);
        if (gp_timeout_left(worker->down) == 0) {
            gp_fail(&err, GP_ETIMEDOUT, "%s died and was not replaced within %d s; the scheduler's log is %s",
                    team_worker_name(team, w, worker->lost_pid, name), TEAM_REPLACE_MS / 1000,
                    team->pool->places.scheduler_log);
            team_break(team, &err);
        }
    }
}

/* ---- the first time ---- */

static bool all_up_or_broken(void *context)
{
    return team_all_up(context);
}

gp_status team_link_all(gp_team *team, gp_error *err)
{
    gp_status status;

    EACH_WORKER(team, w)
    {
        team_worker *worker = worker_of(team, w);
        gp_error why;

        worker->down = gp_timeout_in(TEAM_REPLACE_MS);
        worker->stage = TEAM_ATTACHING;
        if (worker_link(team, w, &why) != GP_OK)
            worker_failed(team, w, &why);
    }
    status = team_drive_patient(team, all_up_or_broken, team, TEAM_OPEN_MS, err);
    if (status == GP_ETIMEDOUT)
        return gp_fail(err, GP_ETIMEDOUT,
                       "%" PRIu32 " of %" PRIu32 " leased workers did not open their link in time",
                       team->size - team->up, team->size);
    return status;
}
