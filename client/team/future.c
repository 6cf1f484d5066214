/* future.c: parfeval calls, whose results are fetched later.
 *
 * A future consists of a dispatch unit and the fields of the public interface. Futures are
 * allocated in slabs, so that a million waiting futures stay small and close together in memory. A
 * short result is stored in place of the argument.
 *
 * The file stays whole: memory, submission and results are parts of one life cycle. */
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "client/team/detach.h"
#include "client/team/team.h"
#include "common/base/memory/alloc.h"
#include "common/base/clock.h"

enum { SLAB_COUNT = 256 };

/* State of a gp_futures_wait() call. */
struct futures_wait {
    gp_wait_for what;
    uint64_t left;          /* futures that have not ended */
    uint64_t ended, failed; /* futures that have ended, and those of them with an error */
};

struct future_slab {
    future_slab *next;
    gp_future futures[SLAB_COUNT];
};

_Static_assert(sizeof(gp_future) <= 288, "a waiting call is small");

/* ---- memory ---- */

/* Take a zeroed future from the free list; allocate a slab if the list is empty. NULL: out of
 * memory. */
static gp_future *future_new(gp_team *team)
{
    team_futures *futures = &team->futures;

    if (futures->free == NULL) {
        future_slab *slab = gp_calloc(1, sizeof(*slab));

        if (slab == NULL)
            return NULL;
        slab->next = futures->slabs;
        futures->slabs = slab;
        for (uint32_t i = SLAB_COUNT; i > 0; i--) {
            slab->futures[i - 1].unit.next = futures->free;
            futures->free = &slab->futures[i - 1].unit;
        }
    }
    gp_future *future = (gp_future *)futures->free;

    futures->free = future->unit.next;
    memset(future, 0, sizeof(*future));
    future->team = team;
    future->unit.is_future = true;
    return future;
}

/* Free the argument, or after the end the result. */
static void payload_free(gp_future *future)
{
    team_call *call = &future->unit.call;

    if (future->mapped) {
        munmap((void *)(uintptr_t)call->payload, call->bytes);
        call->payload = NULL;
        future->mapped = false;
    }
    call_free(call, future->unit.in_place);
}

/* Return the future to the free list. Edges to it become invalid, because the id changes. */
static void future_recycle(team_futures *futures, gp_future *future)
{
    payload_free(future);
    if (future->listed)
        unit_list_remove(&futures->ended, &future->unit);
    future->unit.call.id = 0;
    future->unit.state = UNIT_FREE;
    future->unit.next = futures->free;
    futures->free = &future->unit;
}

void futures_deinit(team_futures *futures)
{
    for (future_slab *slab = futures->slabs, *next; slab != NULL; slab = next) {
        next = slab->next;
        for (uint32_t i = 0; i < SLAB_COUNT; i++)
            if (slab->futures[i].ended && slab->futures[i].unit.call.id != 0)
                payload_free(&slab->futures[i]);
        gp_free(slab);
    }
}

/* ---- ending ---- */

/* Store the result or the error message as the unit's payload. Without memory, the status becomes
 * GP_ENOMEM. */
static void result_keep(gp_future *future, const team_outcome *outcome)
{
    bool fine = outcome->status == GP_OK;
    const void *data = fine ? outcome->data : outcome->sentence;
    size_t bytes = fine ? outcome->bytes : strlen(outcome->sentence) + 1;
    team_call *call = &future->unit.call;
    void *memory = future->unit.in_place;

    future->status = (uint16_t)outcome->status;
    payload_free(future);
    if (fine && outcome->blob != NULL && outcome->blob->data != NULL) {
        team_bytes taken;

        team_bytes_take(&taken, outcome, NULL); /* moving a mapping cannot fail */
        call->payload = taken.data;
        call->bytes = taken.bytes;
        future->mapped = taken.mapped != 0;
        return;
    }
    if (bytes > CALL_IN_PLACE_MAX)
        memory = gp_malloc(bytes);
    if (memory == NULL) {
        future->status = GP_ENOMEM;
        return;
    }
    if (bytes != 0)
        memcpy(memory, data, bytes);
    call->payload = memory;
    call->bytes = bytes;
}

/* Store the reason for the failure in a unit that depends on this future and will not run. The text
 * replaces the unit's argument. */
static void orphan_notify(team_unit *unit, const gp_future *future)
{
    char text[GP_ERROR_MESSAGE_MAX];
    const char *why =
        future->unit.call.payload != NULL ? future->unit.call.payload : "no memory for its error message";

    if (future->unit.orphan) /* the message already names the call that failed first */
        snprintf(text, sizeof(text), "%s", why);
    else
        snprintf(text, sizeof(text), "call %" PRIu64 ", which it depends on, failed: %s",
                 future->unit.call.id, why);
    call_free(&unit->call, unit->in_place);
    unit->call.payload = gp_strdup(text); /* NULL: out of memory */
}

void future_ended(gp_team *team, team_unit *unit, const team_outcome *outcome)
{
    gp_future *future = (gp_future *)unit;

    if (future->result == NULL || detach_ended(team, future, outcome))
        future_finish(team, unit, outcome);
}

void future_finish(gp_team *team, team_unit *unit, const team_outcome *outcome)
{
    gp_future *future = (gp_future *)unit;

    result_keep(future, outcome);
    for (const unit_edge *edge = unit->edges; future->status != GP_OK && edge != NULL; edge = edge->next)
        if (edge->unit->call.id == edge->id && edge->unit->state == UNIT_HELD)
            orphan_notify(edge->unit, future);
    future->ended = true;
    future->ended_ns = outcome->ended_ns != 0 ? outcome->ended_ns : team_now(team);
    future->started_ns = outcome->begun_ns;
    if (future->started_ns != 0 && future->started_ns < future->submitted_ns)
        future->started_ns = future->submitted_ns;
    team->info.ended++;
    if (future->status == GP_ECANCELED)
        team->info.canceled++;
    else if (future->status != GP_OK)
        team->info.failed++;
    if (future->wait != NULL) {
        future->wait->left--;
        future->wait->ended++;
        future->wait->failed += future->status != GP_OK;
    }
    dispatch_settle(team->dispatch, unit, (gp_status)future->status);
    if (!future->released) {
        team->futures.coming--;
        future->listed = true;
        unit_list_append(&team->futures.ended, unit);
    }
    if (future->done != NULL) {
        const gp_team *before = team_callback_begin(team);

        future->calling = true;
        future->done(future->context, future);
        future->calling = false;
        team_callback_end(before);
    }
    if (future->released)
        future_recycle(&team->futures, future);
}

/* ---- parfeval ---- */

static gp_status request_check(const gp_team *team, const gp_parfeval_request *request, gp_error *err)
{
    if (request->function == NULL || request->function->team != team)
        return gp_fail(err, GP_EINVAL, "the function is %s; find it with gp_function_find()",
                       request->function == NULL ? "missing" : "of another team");
    gp_status status = function_check(request->function, err);

    if (status != GP_OK)
        return status;
    status = team_check_worker(team, request->worker, err);
    if (status != GP_OK)
        return status;
    status = team_check_argument(request->argument, request->bytes, request->shared, err);
    if (status != GP_OK)
        return status;
    if (request->depends_on == NULL && request->depends_on_count != 0)
        return gp_fail(err, GP_EINVAL, "depends_on_count is %" PRIu32 " and depends_on is NULL",
                       request->depends_on_count);
    if (request->queue_timeout_ms < 0 || request->timeout_ms < 0)
        return gp_fail(err, GP_EINVAL, "a timeout is negative: %" PRId64 " ms",
                       request->queue_timeout_ms < 0 ? request->queue_timeout_ms : request->timeout_ms);
    if (dispatch_get_counts(team->dispatch)->live >= GP_FUTURES_MAX)
        return gp_fail(err, GP_ELIMIT,
                       "%d calls are already waiting, the maximum; wait for some of them first",
                       GP_FUTURES_MAX);
    return GP_OK;
}

/* Reject a call that should run on the worker of an earlier call but cannot, or might not be able
 * to.
 *   needs  class of the call's needs */
static gp_status follow_check(gp_team *team, const gp_parfeval_request *request, uint32_t needs,
                              gp_error *err)
{
    const gp_future *before = request->same_worker_as;
    uint32_t worker;

    if (before == NULL || before->team != team || (before->ended && before->status != GP_OK))
        return GP_OK; /* depend() handles these cases */
    worker = before->ended ? before->unit.worker : before->unit.wish;
    if (request->worker != 0 && worker != request->worker)
        return worker != 0
                   ? gp_fail(err, GP_EINVAL,
                             "the call follows one on worker %" PRIu32 " and requests worker %" PRIu32
                             "; drop `worker`",
                             worker, request->worker)
                   : gp_fail(err, GP_EINVAL,
                             "the call follows one that may run on any worker and requests worker %" PRIu32
                             "; drop `worker`, or set it in both",
                             request->worker);
    if (needs != 0 && worker == 0 && before->unit.needs != needs)
        return gp_fail(err, GP_EINVAL,
                       "the call follows one with other needs; set the same `environment` and `needs` in "
                       "both");
    if (worker == 0)
        return GP_OK;
    gp_status status = team_check_worker(team, worker, err); /* it may have left the team */

    if (status != GP_OK)
        return status;
    return team_needs_find(team, request->environment, request->needs, worker, &needs, err);
}

/* Make a call depend on an earlier one. If that one has already failed, set *failed: the call fails
 * at submission. */
static gp_status depend(gp_team *team, gp_future *future, gp_future *before, bool follow, bool *failed,
                        gp_error *err)
{
    if (before == NULL || before->team != team)
        return gp_fail(err, GP_EINVAL, "a future that the call depends on is %s",
                       before == NULL ? "NULL" : "of another team");
    if (!before->ended)
        return dispatch_after(team->dispatch, &future->unit, &before->unit, follow, err);
    if (before->status == GP_OK && follow && future->unit.wish == 0)
        future->unit.wish = before->unit.worker;
    if (before->status != GP_OK && !*failed) {
        *failed = true;
        orphan_notify(&future->unit, before);
    }
    return GP_OK;
}

static gp_status future_fill(gp_team *team, gp_future *future, const gp_parfeval_request *request,
                             uint32_t needs, bool *failed, gp_error *err)
{
    const team_terms terms = { .worker = request->worker,
                               .needs = needs,
                               .priority = request->priority,
                               .attempts = request->attempts,
                               .retries = request->retries,
                               .timeout_ms = request->timeout_ms };
    team_unit *unit = &future->unit;

    unit->call = (team_call){ .kind = GP_CALL_RUN,
                              .function = request->function->number,
                              .payload = request->argument,
                              .bytes = request->argument != NULL ? request->bytes : 0,
                              .shared = request->shared };
    gp_status status = unit_fill(team, unit, &terms, err);

    unit->start_ms_max =
        request->queue_timeout_ms < UINT32_MAX ? (uint32_t)request->queue_timeout_ms : UINT32_MAX;
    future->done = request->done;
    future->context = request->context;
    future->submitted_ns = team_now(team);
    for (uint32_t i = 0; status == GP_OK && i < request->depends_on_count; i++)
        status = depend(team, future, request->depends_on[i], false, failed, err);
    if (status == GP_OK && request->same_worker_as != NULL)
        status = depend(team, future, request->same_worker_as, true, failed, err);
    return status;
}

/* Return the deadline for the start of a call that is submitted now. 0: no limit. */
static int64_t start_by_ns(gp_team *team, int64_t queue_timeout_ms)
{
    return queue_timeout_ms == 0 || queue_timeout_ms > INT64_MAX / 2000000
               ? 0
               : team_now(team) + queue_timeout_ms * 1000000;
}

static gp_status submit(gp_future **out, gp_team *team, const gp_parfeval_request *request,
                        const struct result_key *key, gp_error *err)
{
    bool failed = false;
    uint32_t needs = 0;
    gp_future *future;
    gp_status status = team_check(team, err);

    if (status == GP_OK)
        status = request_check(team, request, err);
    if (status == GP_OK)
        status = team_needs_find(team, request->environment, request->needs, request->worker, &needs, err);
    if (status == GP_OK)
        status = follow_check(team, request, needs, err);
    if (status != GP_OK)
        return status;
    future = future_new(team);
    if (future == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for a future");
    status = future_fill(team, future, request, needs, &failed, err);
    if (status == GP_OK && key != NULL)
        status = detach_adopt(future, key, err);
    if (status == GP_OK)
        status =
            dispatch_submit(team->dispatch, &future->unit, start_by_ns(team, request->queue_timeout_ms), err);
    if (status != GP_OK) {
        gp_free(future->result);
        future_recycle(&team->futures, future);
        return status;
    }
    future->released = out == NULL;
    if (out != NULL)
        *out = future;
    team->futures.coming += !future->released;
    team->info.submitted++;
    if (failed) {
        future->unit.orphan = true;
        dispatch_over(team->dispatch, &future->unit, GP_ECANCELED);
    } else {
        team_send(team);
    }
    return GP_OK;
}

gp_status future_submit(gp_future **out, gp_team *team, const gp_parfeval_request *request,
                        const struct result_key *key, gp_error *err)
{
    gp_status status;

    team_enter(team);
    status = submit(out, team, request, key, err);
    if (status == GP_OK && !team_in_callback(team) && (team->info.submitted & 15) == 0)
        team_pump(team); /* a caller that only submits must process answers as well */
    team_leave(team);
    return status;
}

gp_status gp_parfeval(gp_future **out, gp_team *team, const gp_parfeval_request *request, gp_error *err)
{
    return future_submit(out, team, request, NULL, err);
}

/* ---- state, waiting ---- */

static gp_future_state future_state(const gp_future *future)
{
    if (future->ended)
        return GP_FUTURE_DONE;
    if (future->unit.state == UNIT_ENDED) /* a thread stores the large result of a detached call */
        return GP_FUTURE_RUNNING;
    return team_unit_begun(future->team, &future->unit) ? GP_FUTURE_RUNNING : GP_FUTURE_WAITING;
}

/* Describe the state of a future that has not ended. */
static void future_words(const gp_future *future, char *text, size_t bytes)
{
    char name[TEAM_NAME_BYTES];

    if (future_state(future) == GP_FUTURE_RUNNING)
        snprintf(text, bytes, "running on %s", team_worker_name(future->team, future->unit.worker, name));
    else if (future->unit.state == UNIT_HELD)
        snprintf(text, bytes, "waiting for %" PRIu32 " call%s that it depends on", future->unit.holds,
                 future->unit.holds == 1 ? "" : "s");
    else
        snprintf(text, bytes, "waiting for a worker");
}

void gp_future_get_info(const gp_future *future, gp_future_info *out)
{
    gp_team *team = future->team;
    const team_unit *unit = &future->unit;

    team_lock(team);
    *out = (gp_future_info){ .state = future_state(future),
                             .status = future->ended ? (gp_status)future->status : GP_OK,
                             .id = unit->call.id,
                             .worker = unit->worker,
                             .pool_worker = unit->worker == 0 ? 0 : team->workers[unit->worker - 1].index,
                             .attempts = unit->attempts,
                             .retries = unit->tries,
                             .submitted_ns = future->submitted_ns - team->opened_ns,
                             .started_ns = future->started_ns == 0 ? 0 : future->started_ns - team->opened_ns,
                             .ended_ns = future->ended ? future->ended_ns - team->opened_ns : 0 };
    team_unlock(team);
}

static bool future_has_ended(void *context)
{
    return ((const gp_future *)context)->ended;
}

gp_status gp_future_wait(gp_future *future, int timeout_ms, gp_error *err)
{
    gp_team *team = future->team;
    gp_status status;

    team_enter(team);
    status = team_poll(team, future_has_ended, future, timeout_ms, err);
    if (status == GP_ETIMEDOUT) {
        char words[100];

        future_words(future, words, sizeof(words));
        gp_fail(err, status, "call %" PRIu64 " did not end within %d ms: %s", future->unit.call.id,
                timeout_ms, words);
    }
    team_leave(team);
    return status;
}

gp_status gp_future_result(gp_future *future, const void **data, size_t *bytes, gp_error *err)
{
    const team_call *call = &future->unit.call;
    gp_team *team = future->team;
    gp_status status;

    team_enter(team);
    status = team_poll(team, future_has_ended, future, -1, err);
    if (status == GP_OK && future->status != GP_OK) {
        status = gp_fail(err, (gp_status)future->status, "%s",
                         call->payload != NULL ? (const char *)call->payload : "no memory for its result");
    } else if (status == GP_OK) {
        if (data != NULL)
            *data = call->bytes != 0 ? call->payload : NULL;
        if (bytes != NULL)
            *bytes = call->bytes;
    }
    team_leave(team);
    return status;
}

static bool futures_enough(void *context)
{
    const futures_wait *wait = context;

    return wait->left == 0 || (wait->what == GP_WAIT_ANY && wait->ended > 0) ||
           (wait->what == GP_WAIT_FIRST_ERROR && wait->failed > 0);
}

gp_status gp_futures_wait(gp_future *const *futures, size_t count, gp_wait_for what, int timeout_ms,
                          gp_error *err)
{
    futures_wait wait = { .what = what };
    gp_team *team;
    gp_status status;

    if (count == 0)
        return GP_OK;
    for (size_t i = 0; i < count; i++)
        if (futures == NULL || futures[i] == NULL)
            return gp_fail(err, GP_EINVAL, "futures[%zu] of %zu is NULL", i, count);
    team = futures[0]->team;
    for (size_t i = 1; i < count; i++)
        if (futures[i]->team != team)
            return gp_fail(err, GP_EINVAL, "the futures belong to two teams; wait for each team separately");
    team_enter(team);
    bool in_callback = team_in_callback(team);

    /* Register the wait with each future, once per future. A wait inside a callback returns at
     * once; it must not replace the registration of the wait that the callback interrupts. */
    for (size_t i = 0; i < count; i++) {
        gp_future *future = futures[i];

        if (future->ended) {
            wait.ended++;
            wait.failed += future->status != GP_OK;
        } else if (in_callback || future->wait != &wait) {
            wait.left++;
            future->wait = in_callback ? future->wait : &wait;
        }
    }
    team->patient = what == GP_WAIT_ALL;
    status = team_poll(team, futures_enough, &wait, timeout_ms, err);
    team->patient = false;
    if (status == GP_ETIMEDOUT) {
        size_t late = 0, first = 0;
        char words[100];

        for (size_t i = count; i > 0; i--)
            if (!futures[i - 1]->ended) {
                first = i - 1;
                late++;
            }
        future_words(futures[first], words, sizeof(words));
        gp_fail(err, GP_ETIMEDOUT, "%zu of %zu calls did not end within %d ms; the first is futures[%zu]: %s",
                late, count, timeout_ms, first, words);
    }
    for (size_t i = 0; i < count; i++)
        if (futures[i]->wait == &wait)
            futures[i]->wait = NULL;
    team_leave(team);
    return status;
}

static bool next_is_there(void *context)
{
    const gp_team *team = context;

    return team->futures.ended.first != NULL || team->futures.coming == 0;
}

gp_status gp_team_as_completed(gp_team *team, gp_future **out, int timeout_ms, gp_error *err)
{
    gp_status status;

    team_enter(team);
    status = team_poll(team, next_is_there, team, timeout_ms, err);
    if (team->futures.ended.first != NULL && !team_is_forked(team)) {
        gp_future *future = (gp_future *)team->futures.ended.first;

        unit_list_remove(&team->futures.ended, &future->unit);
        future->listed = false;
        *out = future;
        status = GP_OK;
    } else if (status == GP_OK) {
        status = gp_fail(err, GP_ENOENT, "all futures of the team were returned or freed");
    } else if (status == GP_ETIMEDOUT) {
        gp_fail(err, status, "none of %" PRIu64 " calls ended within %d ms", team->futures.coming,
                timeout_ms);
    }
    team_leave(team);
    return status;
}

/* ---- canceling, freeing ---- */

/* Check a grace period. GP_EINVAL: out of range. */
static gp_status grace_check(int64_t grace_ms, gp_error *err)
{
    if (grace_ms < 0 || grace_ms > GP_CANCEL_GRACE_MS_MAX)
        return gp_fail(err, GP_EINVAL, "the grace period is %" PRId64 " ms; it must be 0 to %d", grace_ms,
                       GP_CANCEL_GRACE_MS_MAX);
    return GP_OK;
}

gp_status gp_future_cancel_grace(gp_future *future, int64_t grace_ms, gp_error *err)
{
    gp_team *team = future->team;
    gp_status status = grace_check(grace_ms, err);

    if (status != GP_OK)
        return status;
    team_enter(team);
    if (!future->ended && team->failure.code == GP_OK) {
        dispatch_cancel(team->dispatch, &future->unit, (uint32_t)grace_ms, team_now(team));
        if (!team_in_callback(team))
            team_end_over(team);
    }
    team_leave(team);
    return GP_OK;
}

void gp_future_cancel(gp_future *future)
{
    gp_future_cancel_grace(future, DISPATCH_GRACE_MS, NULL);
}

gp_status gp_team_cancel_grace(gp_team *team, int64_t grace_ms, gp_error *err)
{
    gp_status status = grace_check(grace_ms, err);

    if (status != GP_OK)
        return status;
    team_enter(team);
    for (future_slab *slab = team->failure.code == GP_OK ? team->futures.slabs : NULL; slab != NULL;
         slab = slab->next)
        for (uint32_t i = 0; i < SLAB_COUNT; i++) {
            gp_future *future = &slab->futures[i];

            if (future->unit.call.id != 0 && !future->ended)
                dispatch_cancel(team->dispatch, &future->unit, (uint32_t)grace_ms, team_now(team));
        }
    if (!team_in_callback(team))
        team_end_over(team);
    team_leave(team);
    return GP_OK;
}

void gp_team_cancel(gp_team *team)
{
    gp_team_cancel_grace(team, DISPATCH_GRACE_MS, NULL);
}

void gp_future_free(gp_future *future)
{
    if (future == NULL)
        return;
    gp_team *team = future->team;

    team_enter(team);
    if (!future->ended && !future->released)
        team->futures.coming--;
    future->released = true;
    if (future->ended && !future->calling)
        future_recycle(&team->futures, future);
    team_leave(team);
}

void gp_team_get_info(gp_team *team, gp_team_info *out)
{
    team_lock(team);
    const dispatch_counts *counts = dispatch_get_counts(team->dispatch);
    uint64_t running = 0, waiting = counts->held + counts->ready;

    EACH_WORKER(team, w)
    {
        team_unit *first;

        if (dispatch_sent(team->dispatch, w, &first) > 0 && !first->urgent && team_unit_begun(team, first))
            running++;
    }
    *out = team->info;
    out->running = running;
    out->waiting = waiting + counts->sent - counts->urgent - running;
    out->rerun = counts->rerun;
    out->queue_bytes = waiting * sizeof(gp_future);
    team_unlock(team);
}
