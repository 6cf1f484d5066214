#include "client/team/detach.h"
#include "client/team/team.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "common/base/memory/alloc.h"
#include "common/base/clock.h"

/* a payload up to this size becomes a memory file only when it is sent */
enum { HEAP_MAX = 1 << 20 };

/* Team whose callback runs on this thread; NULL: none. */
static _Thread_local const gp_team *calling __attribute__((tls_model("initial-exec")));

/* ---- entering and leaving ---- */

bool team_in_callback(const gp_team *team)
{
    return calling == team;
}

const gp_team *team_callback_begin(const gp_team *team)
{
    const gp_team *before = calling;

    calling = team;
    return before;
}

void team_callback_end(const gp_team *before)
{
    calling = before;
}

void team_lock(gp_team *team)
{
    if (calling != team && !team_is_forked(team))
        pthread_mutex_lock(&team->background.mutex);
}

void team_unlock(gp_team *team)
{
    if (calling != team && !team_is_forked(team))
        pthread_mutex_unlock(&team->background.mutex);
}

void team_enter(gp_team *team)
{
    if (calling == team)
        return;
    if (team_is_forked(team)) {
        if (team->failure.code == GP_OK)
            pool_check_process(team->pool, &team->failure);
        return;
    }
    bool takes_over = background_enter(&team->background);

    team->now_ns = 0;
    if (takes_over)
        team_awake(team);
}

void team_leave(gp_team *team)
{
    if (calling == team || team_is_forked(team))
        return;
    team_release_unused(team);

    /* The thread also releases payloads. Start it for them, but do not wake it if it is parked. */
    if (team_has_work(team) || (team->payloads.count != 0 && team->background.state == BACKGROUND_NONE))
        background_start(&team->background, team_background_run, team);
    pthread_mutex_unlock(&team->background.mutex);
}

gp_status team_check(const gp_team *team, gp_error *err)
{
    if (team->failure.code != GP_OK)
        return gp_fail(err, team->failure.code, "%s", team->failure.message);
    return GP_OK;
}

gp_status team_check_worker(const gp_team *team, uint32_t worker, gp_error *err)
{
    if (worker > team->size)
        return gp_fail(err, GP_EINVAL, "there is no worker %" PRIu32 "; the team has %" PRIu32, worker,
                       team->size);
    return GP_OK;
}

gp_status team_check_argument(const void *argument, size_t bytes, const gp_broadcast *shared, gp_error *err)
{
    if (argument != NULL && shared != NULL)
        return gp_fail(err, GP_EINVAL, "the argument has two addresses: argument and shared");
    if (shared != NULL && bytes != 0 && bytes != shared->bytes)
        return gp_fail(err, GP_EINVAL, "the argument has %zu bytes, but the broadcast has %zu", bytes,
                       shared->bytes);
    if (argument == NULL && shared == NULL && bytes != 0)
        return gp_fail(err, GP_EINVAL, "the argument has %zu bytes and no address", bytes);
    return GP_OK;
}

/* Check a priority. GP_EINVAL: outside -1000 to 1000. */
static gp_status team_check_priority(int32_t priority, gp_error *err)
{
    if (priority < -GP_PRIORITY_MAX || priority > GP_PRIORITY_MAX)
        return gp_fail(err, GP_EINVAL, "the priority is %" PRId32 "; it must be -%d to %d", priority,
                       GP_PRIORITY_MAX, GP_PRIORITY_MAX);
    return GP_OK;
}

void team_break(gp_team *team, const gp_error *why)
{
    if (team->failure.code != GP_OK)
        return;
    team->failure = *why;
    dispatch_over_all(team->dispatch, why->code);
    for (team_broadcast *b = team->broadcasts; b != NULL; b = b->next)
        if (b->status == GP_ETIMEDOUT) {
            b->status = why->code;
            b->error = *why;
        }
}

void team_break_revoked(gp_team *team)
{
    gp_error why;

    gp_fail(&why, GP_ECANCELED, "the lease ended: %s", team->pool->ended.reason);
    team_break(team, &why);
}

/* ---- units ---- */

/* Unit that is not a future. */
typedef struct loose_unit {
    team_unit unit;
    team_done_fn done;
    void *context;
} loose_unit;

/* Limit a counter to the range of uint16_t. */
static uint16_t small(uint32_t count)
{
    return count > UINT16_MAX - 1 ? UINT16_MAX - 1 : (uint16_t)count;
}

gp_status unit_fill(gp_team *team, team_unit *unit, const team_terms *terms, gp_error *err)
{
    gp_status status = team_check_worker(team, terms->worker, err);

    if (status == GP_OK)
        status = team_check_priority(terms->priority, err);
    if (status == GP_OK)
        status = call_own(&unit->call, HEAP_MAX, unit->in_place, err);
    if (status != GP_OK) {
        unit->call = (team_call){ 0 };
        return status;
    }
    if (unit->call.id == 0)
        unit->call.id = team_new_id(team);
    unit->wish = (uint8_t)terms->worker;
    unit->needs = (uint8_t)terms->needs;
    unit->priority = (int16_t)terms->priority;
    unit->urgent = terms->urgent && terms->worker != 0;
    unit->loss = (uint8_t)terms->loss;
    unit->attempts_max = small(terms->attempts == 0 ? DISPATCH_ATTEMPTS : terms->attempts);
    unit->retries_max = small(terms->retries);
    unit->grace_ms = terms->cancel_at_once ? 0 : DISPATCH_GRACE_MS;
    unit->timeout_ms =
        terms->timeout_ms > 0 && terms->timeout_ms < UINT32_MAX ? (uint32_t)terms->timeout_ms : 0;
    return GP_OK;
}

gp_status team_submit(team_unit **out, gp_team *team, const team_call *call, const team_terms *terms,
                      team_done_fn done, void *context, gp_error *err)
{
    loose_unit *loose;
    gp_status status = team_check(team, err);

    if (status != GP_OK)
        return status;
    loose = gp_calloc(1, sizeof(*loose));
    if (loose == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for a call");
    loose->done = done;
    loose->context = context;
    team_unit *unit = &loose->unit;

    unit->call = *call;
    status = unit_fill(team, unit, terms, err);
    if (status == GP_OK)
        status = dispatch_submit(team->dispatch, unit, 0, err);
    if (status != GP_OK) {
        call_free(&unit->call, unit->in_place);
        gp_free(loose);
        return status;
    }
    team_send(team);
    if (out != NULL)
        *out = unit;
    return GP_OK;
}

void team_end(gp_team *team, team_unit *unit, const team_outcome *outcome)
{
    loose_unit *loose = (loose_unit *)unit;
    const gp_team *before;

    assert(unit->state == UNIT_ENDED);
    if (unit->is_future) {
        future_ended(team, unit, outcome);
        return;
    }
    call_free(&unit->call, unit->in_place);
    dispatch_settle(team->dispatch, unit, outcome->status);
    before = team_callback_begin(team);
    if (loose->done != NULL)
        loose->done(team, loose->context, outcome);
    team_callback_end(before);
    gp_free(loose);
}

/* Write the error message of a unit that ended without an answer. */
static void over_words(gp_team *team, const team_unit *unit, char *text, size_t bytes)
{
    if (team->failure.code != GP_OK) {
        snprintf(text, bytes, "%s", team->failure.message);
        return;
    }
    if (unit->status == GP_EPEER) {
        char death[GP_ERROR_MESSAGE_MAX - 100];

        bool broadcast = unit->loss != TEAM_LOSS_RERUN && unit->call.kind != GP_CALL_BLOCK;

        worker_exit_text(worker_of(team, unit->worker),
                         broadcast ? " while it received this value" : " while it ran this call", death,
                         sizeof(death));
        snprintf(text, bytes, "%s%s", death,
                 unit->attempts_max > 1 || broadcast
                     ? "; other workers exited before on the same call, so it is not retried"
                     : "");
    } else if (unit->status == GP_ETIMEDOUT) {
        snprintf(text, bytes, "it did not start within its time limit of %" PRIu32 " ms", unit->start_ms_max);
    } else if (unit->status == GP_ENODEV) {
        team_needs_text(team, unit->needs, text, bytes);
    } else if (unit->orphan) {
        snprintf(text, bytes, "%s",
                 unit->call.payload != NULL ? (const char *)unit->call.payload
                                            : "a call that it depends on failed");
    } else if (unit->over_limit) {
        snprintf(text, bytes,
                 "exceeded its time limit of %" PRIu32 " ms and did not end within %" PRIu32
                 " ms after the cancel; its worker was replaced",
                 unit->timeout_ms, unit->grace_ms);
    } else if (unit->canceled) {
        snprintf(text, bytes, "canceled, but did not end within %" PRIu32 " ms; its worker was replaced",
                 unit->grace_ms);
    } else {
        snprintf(text, bytes, "%s",
                 unit->status == GP_ECANCELED ? "canceled before it started"
                 : unit->wish > team->size    ? "its worker left the team"
                                              : "its worker was replaced");
    }
}

void team_end_over(gp_team *team)
{
    for (team_unit *unit; (unit = dispatch_next_over(team->dispatch)) != NULL;) {
        char sentence[GP_ERROR_MESSAGE_MAX];
        team_outcome outcome = { .status = (gp_status)unit->status,
                                 .sentence = sentence,
                                 .worker = unit->worker,
                                 .attempts = unit->attempts,
                                 .progress = (uint32_t)unit->position,
                                 .over_limit = unit->over_limit };

        over_words(team, unit, sentence, sizeof(sentence));
        team_end(team, unit, &outcome);
    }
}

void team_unit_cancel(gp_team *team, team_unit *unit)
{
    dispatch_cancel(team->dispatch, unit, unit->grace_ms, team_now(team));
}

typedef struct asked {
    bool ended;
    team_bytes *out;
    gp_error error; /* code GP_OK: none */
} asked;

static void asked_done(gp_team *team, void *context, const team_outcome *outcome)
{
    asked *a = context;

    (void)team;
    a->ended = true;
    if (outcome->status != GP_OK)
        gp_fail(&a->error, outcome->status, "%s", outcome->sentence);
    else if (a->out != NULL)
        team_bytes_take(a->out, outcome, &a->error);
}

static bool asked_ended(void *context)
{
    return ((const asked *)context)->ended;
}

gp_status team_ask(gp_team *team, uint32_t worker, const team_call *call, team_bytes *out, gp_error *err)
{
    asked a = { .out = out };
    team_unit *unit = NULL;
    gp_status status = team_submit(&unit, team, call, &(team_terms){ .worker = worker, .urgent = true },
                                   asked_done, &a, err);

    if (status != GP_OK)
        return status;
    status = team_poll(team, asked_ended, &a, -1, err);

    /* The stop flag is set. Cancel the unit: it must not outlive the variables that it writes
     * to. */
    if (status != GP_OK && !a.ended) {
        team_unit_cancel(team, unit);
        team_poll_canceled(team, asked_ended, &a);
        if (a.ended && a.error.code == GP_OK && out != NULL)
            team_bytes_deinit(out);
        return status;
    }
    return a.error.code == GP_OK ? GP_OK : gp_fail(err, a.error.code, "%s", a.error.message);
}

uint64_t team_new_id(gp_team *team)
{
    return ++team->id_next;
}

void team_send(gp_team *team)
{
    dispatch_fill(team->dispatch, team_now(team));
    team_flush(team);
}

void team_flush(gp_team *team)
{
    EACH_WORKER(team, w)
    {
        team_worker *worker = worker_of(team, w);

        if (worker->dirty) {
            worker->dirty = false;
            gp_link_commit(worker->link);
            gp_link_ring(worker->link);
        }
    }
}

void team_release_unused(gp_team *team)
{
    if (team->payloads.left_seen == shared_left_count())
        return;
    payloads_release_unused(&team->payloads, team->workers, team->size);
    team_flush(team);
}

/* ---- workers ---- */

const char *team_worker_name(const gp_team *team, uint32_t worker, char name[TEAM_NAME_BYTES])
{
    return worker_name(&team->workers[worker - 1], 0, name);
}

/* ---- opening and closing ---- */

/* Look up which workers of the pool may join an elastic team. */
static gp_status team_joining(gp_team *team, const gp_lease_request *lease, gp_error *err)
{
    gp_status_reply *reply = NULL;
    gp_status status = pool_status(team->pool, &reply, err);

    if (status == GP_OK)
        team_needs_open(&team->needs, reply, lease);
    gp_free(reply);
    return status;
}

/* Open a separate pool handle for the team and lease the workers. */
static gp_status team_lease(gp_team *team, gp_pool *pool, const gp_team_options *options, gp_error *err)
{
    /* Do not start a new pool after an orderly shutdown. After a scheduler failure, start or find
     * the successor. */
    const gp_pool_options same = { .pool = pool->paths.pool,
                                   .attach_only = !pool_missed(pool),
                                   .note = pool->note,
                                   .context = pool->note_context };
    gp_lease_request request = options->lease;
    dispatch_hooks hooks = team_hooks;
    gp_status status = gp_pool_open(&team->pool, &same, err);

    if (status != GP_OK)
        return status;
    if (request.priority == 0)
        request.priority = options->priority;
    team->membership.elastic = options->elastic;
    if (options->elastic) {
        request.workers_min = request.workers_min == 0 ? 1 : request.workers_min;
        team->pool->elastic.floor = request.workers_min;
        team->pool->elastic.team = true;
        status = team_joining(team, &request, err);
        if (status != GP_OK)
            return status;
    }
    status = pool_lease(team->pool, &request,
                        options->purpose != NULL ? options->purpose : program_invocation_short_name,
                        options->stop, err);
    if (status != GP_OK)
        return status;
    team->size = team->pool->grant.slots_count;
    EACH_WORKER(team, w)
    {
        const gp_slot *slot = &team->pool->grant.slots[w - 1];

        *worker_of(team, w) = (team_worker){ .pool = team->pool,
                                             .number = w,
                                             .index = slot->index,
                                             .incarnation = slot->incarnation,
                                             .control_socket = -1 };
    }
    hooks.context = team;
    return dispatch_new(&team->dispatch, &hooks, team->size,
                        team->membership.elastic ? GP_MEMBERS_MAX : team->size, err);
}

gp_status gp_team_open(gp_team **out, gp_pool *pool, const gp_team_options *options, gp_error *err)
{
    static const gp_team_options usual;
    gp_team *team;
    gp_status status;

    if (options == NULL)
        options = &usual;
    status = team_check_priority(options->priority, err);
    if (status != GP_OK)
        return status;
    team = gp_calloc(1, sizeof(*team));
    if (team == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for a team");
    team->stop = options->stop;
    team->lines = (team_lines){ .log = options->log, .output = options->output, .context = options->context };
    team->opened_ns = team->now_ns = gp_now_ns();
    team->wakeup_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    status = background_init(&team->background, err);
    if (team->wakeup_fd < 0)
        status = gp_fail_errno(err, GP_EIO, "cannot create an eventfd for a team");
    if (status == GP_OK)
        status = shared_watch(team->wakeup_fd, err); /* wakes a thread that waits in a call */
    if (status == GP_OK)
        status = shared_watch(team->background.kick, err); /* wakes the background thread */
    if (status == GP_OK)
        status = team_lease(team, pool, options, err);
    if (status == GP_OK)
        status = team_link_all(team, err);
    if (status != GP_OK) {
        gp_team_close(team);
        return status;
    }
    if (team->membership.elastic) { /* starts the background thread, which follows the size of the lease */
        team_enter(team);
        team_leave(team);
    }
    *out = team;
    return GP_OK;
}

void gp_team_close(gp_team *team)
{
    static const gp_error closed = { GP_ECANCELED, "the team was closed" };

    /* In a forked child: leave the parent's rings and the copied memory alone. */
    if (team == NULL || (team->pool != NULL && team_is_forked(team)))
        return;
    background_stop(&team->background);
    if (team->dispatch != NULL) {
        detach_finish_all(team);
        team_break(team, &closed);
        team_end_over(team);
        detach_finish_all(team); /* entries that could not be released at once */

        /* Close the links of idle workers in an orderly way. The end of the lease stops a worker
         * that still runs a call. */
        EACH_WORKER(team, w)
        {
            team_worker *worker = worker_of(team, w);
            gp_call *call =
                worker->stage == TEAM_UP && !worker->corrupt ? gp_link_reserve(worker->link, 0) : NULL;

            if (call != NULL) {
                call->kind = GP_CALL_CLOSE;
                worker->dirty = true;
            }
        }
        team_flush(team);
    }
    while (team->broadcasts != NULL)
        team_broadcast_remove(team, team->broadcasts);
    queues_free(team);
    functions_deinit(&team->functions);
    EACH_WORKER(team, w)
    worker_close(worker_of(team, w));
    gp_pool_close(team->pool);
    payloads_deinit(&team->payloads);
    team_needs_deinit(&team->needs);
    futures_deinit(&team->futures);
    detach_close(team);
    dispatch_free(team->dispatch);
    shared_unwatch(team->wakeup_fd);
    shared_unwatch(team->background.kick);
    if (team->wakeup_fd >= 0)
        close(team->wakeup_fd);
    background_deinit(&team->background);
    gp_free(team);
}

uint32_t gp_team_size(const gp_team *team)
{
    return team->size;
}
