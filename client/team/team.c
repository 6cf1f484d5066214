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
#include "common/base/system/forks.h"

/* The team whose callback this thread is in. */
static _Thread_local const gp_team *calling __attribute__((tls_model("initial-exec")));

/* ---- entering, leaving ---- */

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

void team_log_line(gp_team *team, uint32_t worker, const char *line)
{
    const gp_team *before = team_callback_begin(team);

    team->log(team->context, worker, line);
    team_callback_end(before);
}

/* Whether the caller was forked from the process that opened the team.  It has the rings of that process in its memory,
 * but not its background thread, which may hold the mutex for ever here. */
static bool is_forked(const gp_team *team)
{
    return team->forks != gp_forks();
}

void team_lock(gp_team *team)
{
    if (calling != team && !is_forked(team))
        pthread_mutex_lock(&team->mutex);
}

void team_unlock(gp_team *team)
{
    if (calling != team && !is_forked(team))
        pthread_mutex_unlock(&team->mutex);
}

void team_enter(gp_team *team)
{
    if (calling == team)
        return;
    if (is_forked(team)) {
        if (team->broken == GP_OK)
            team->broken = pool_check_process(team->pool, &team->why);
        return;
    }
    pthread_mutex_lock(&team->mutex);
    team->calls++;
    team->now_ns = gp_now_ns();
    if (team->watching) { /* the other thread sleeps in our place: wake it, so that it looks when we have left */
        uint64_t one = 1;
        ssize_t ignored = write(team->kick, &one, sizeof(one));

        (void)ignored;
        team->watching = false;
        team_awake(team);
    }
}

void team_leave(gp_team *team)
{
    if (calling == team || is_forked(team))
        return;
    if (team->left_seen != shared_left_count())
        team_release_unused(team);
    if (team->units != 0 || (team->given_count != 0 && !team->started)) /* payloads are released there, too */
        team_background_begin(team);
    pthread_mutex_unlock(&team->mutex);
}

gp_status team_check(const gp_team *team, gp_error *err)
{
    if (team->broken != GP_OK)
        return gp_fail(err, team->broken, "%s", team->why.message);
    return GP_OK;
}

void team_break(gp_team *team, const gp_error *why)
{
    if (team->broken != GP_OK)
        return;
    team->broken = why->code;
    team->why = *why;
    dispatch_over_all(team->dispatch, why->code);
    for (team_lasting *l = team->lasting; l != NULL; l = l->next)
        if (l->status == GP_ETIMEDOUT) {
            l->status = why->code;
            l->error = *why;
        }
}

/* ---- units ---- */

/* One that futures do not own. */
typedef struct loose_unit {
    team_unit unit;
    team_done_fn done;
    void *context;
} loose_unit;

void unit_payload_free(team_unit *unit)
{
    if (unit->bytes > UNIT_INLINE_MAX && !unit->borrowed)
        gp_free(unit->payload.memory);
    unit->bytes = 0;
    shared_leave(unit->shared);
    unit->shared = NULL;
}

static gp_status unit_take_payload(team_unit *unit, const team_call *call, gp_error *err)
{
    if (call->bytes > GP_LINK_INLINE_MAX && call->shared != NULL)
        return gp_fail(err, GP_ELIMIT, "%zu bytes beside a shared payload; at most %d", call->bytes,
                       GP_LINK_INLINE_MAX);
    /* Descriptors are few: what is not very large becomes a memory file only when it is sent (team_link.c). */
    if (call->bytes > TEAM_HEAP_MAX)
        return gp_shared_new(&unit->shared, call->payload, call->bytes, err);
    gp_shared *shared = (gp_shared *)call->shared; /* its bytes stay as they are: it is counted, and sealed */

    if (shared != NULL) {
        gp_status status = shared_seal(shared, err);

        if (status != GP_OK)
            return status;
    }
    if (call->bytes <= UNIT_INLINE_MAX) {
        if (call->bytes != 0)
            memcpy(unit->payload.in_place, call->payload, call->bytes);
    } else if (call->borrowed) {
        unit->borrowed = true;
        memcpy(&unit->payload.memory, &call->payload, sizeof(call->payload)); /* never written through */
    } else {
        unit->payload.memory = gp_malloc(call->bytes);
        if (unit->payload.memory == NULL)
            return gp_fail(err, GP_ENOMEM, "no memory for an argument of %zu bytes", call->bytes);
        memcpy(unit->payload.memory, call->payload, call->bytes);
    }
    unit->bytes = (uint32_t)call->bytes;
    if (shared != NULL) {
        shared_use(shared);
        unit->shared = shared;
    }
    return GP_OK;
}

gp_status unit_fill(gp_team *team, team_unit *unit, const team_call *call, gp_error *err)
{
    unit->id = call->id != 0 ? call->id : team_new_id(team);
    unit->kind = call->kind;
    unit->flags = call->flags;
    unit->function = call->function;
    unit->first = call->first;
    unit->count = call->count;
    unit->attempt = call->attempt;
    unit->value = call->value;
    return unit_take_payload(unit, call, err);
}

static uint16_t small(uint32_t count)
{
    return count > UINT16_MAX - 1 ? UINT16_MAX - 1 : (uint16_t)count;
}

static gp_status terms_check(const gp_team *team, const team_terms *terms, gp_error *err)
{
    if (terms->worker > team->size)
        return gp_fail(err, GP_EINVAL, "there is no worker %" PRIu32 "; the team has %" PRIu32, terms->worker,
                       team->size);
    if (terms->priority < -GP_PRIORITY_MAX || terms->priority > GP_PRIORITY_MAX)
        return gp_fail(err, GP_EINVAL, "priority %" PRId32 " is not within -%d .. %d", terms->priority,
                       GP_PRIORITY_MAX, GP_PRIORITY_MAX);
    return GP_OK;
}

gp_status team_submit(team_unit **out, gp_team *team, const team_call *call, const team_terms *terms,
                      team_done_fn done, void *context, gp_error *err)
{
    static const team_terms usual;
    loose_unit *loose;
    gp_status status = team_check(team, err);

    if (terms == NULL)
        terms = &usual;
    if (status == GP_OK)
        status = terms_check(team, terms, err);
    if (status != GP_OK)
        return status;
    loose = gp_calloc(1, sizeof(*loose));
    if (loose == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for a call");
    loose->done = done;
    loose->context = context;
    team_unit *unit = &loose->unit;

    unit->wish = (uint8_t)terms->worker;
    unit->needs = (uint8_t)terms->needs;
    unit->priority = (int16_t)terms->priority;
    unit->urgent = terms->urgent && terms->worker != 0;
    unit->attempts_max = small(terms->attempts == 0 ? DISPATCH_ATTEMPTS : terms->attempts);
    unit->retries_max = small(terms->retries);
    unit->run_ms_max =
        terms->run_ms_max > 0 && terms->run_ms_max < UINT32_MAX ? (uint32_t)terms->run_ms_max : 0;
    status = unit_fill(team, unit, call, err);
    if (status == GP_OK)
        status = dispatch_submit(team->dispatch, unit, 0, err);
    if (status != GP_OK) {
        unit_payload_free(unit);
        gp_free(loose);
        return status;
    }
    team->units++;
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
    team->units--;
    if (unit->is_future) {
        future_ended(team, unit, outcome);
        return;
    }
    unit_payload_free(unit);
    dispatch_settle(team->dispatch, unit, outcome->status);
    before = team_callback_begin(team);
    if (loose->done != NULL)
        loose->done(team, loose->context, outcome);
    team_callback_end(before);
    gp_free(loose);
}

/* Write why a unit ended without an answer of its worker. */
static void over_words(gp_team *team, const team_unit *unit, char *text, size_t bytes)
{
    if (team->broken != GP_OK) {
        snprintf(text, bytes, "%s", team->why.message);
        return;
    }
    if (unit->status == GP_EPEER) {
        char death[GP_ERROR_MESSAGE_MAX - 100];

        bool lasting = unit->once && unit->kind != GP_CALL_BLOCK;

        team_death_words(team, unit->worker, lasting ? " while it took this in" : " while it ran this call",
                         death, sizeof(death));
        snprintf(text, bytes, "%s%s", death,
                 unit->attempts_max > 1 || (lasting && unit->fatal)
                     ? "; others died of it before, so it is not tried again"
                     : "");
    } else if (unit->status == GP_ETIMEDOUT) {
        snprintf(text, bytes, "it was not begun within its time limit of %" PRIu32 " ms", unit->start_ms_max);
    } else if (unit->orphan) {
        snprintf(text, bytes, "%s",
                 unit->bytes > UNIT_INLINE_MAX ? (const char *)unit->payload.memory
                                               : "a call that it depends on has failed");
    } else if (unit->over_limit) {
        snprintf(text, bytes,
                 "it ran longer than its time limit of %" PRIu32 " ms and did not end within %" PRIu32
                 " ms of the cancel: its worker was replaced",
                 unit->run_ms_max, unit->grace_ms);
    } else if (unit->canceled) {
        snprintf(text, bytes, "canceled; it did not end within %" PRIu32 " ms: its worker was replaced",
                 unit->grace_ms);
    } else {
        snprintf(text, bytes, "%s",
                 unit->status == GP_ECANCELED ? "canceled before it began" : "its worker was replaced");
    }
}

void team_end_over(gp_team *team)
{
    for (team_unit *unit; (unit = dispatch_next_over(team->dispatch)) != NULL;) {
        char sentence[GP_ERROR_MESSAGE_MAX];
        team_outcome outcome = { .status = (gp_status)unit->status,
                                 .sentence = sentence,
                                 .worker = unit->worker,
                                 .attempts = unit->attempts };

        over_words(team, unit, sentence, sizeof(sentence));
        team_end(team, unit, &outcome);
    }
}

void team_unit_cancel(gp_team *team, team_unit *unit)
{
    dispatch_cancel(team->dispatch, unit, DISPATCH_GRACE_MS, team->now_ns);
}

typedef struct asked {
    bool ended;
    team_bytes *out;
    gp_status status;
    gp_error error;
} asked;

static void asked_done(gp_team *team, void *context, const team_outcome *outcome)
{
    asked *a = context;

    (void)team;
    a->ended = true;
    a->status = outcome->status;
    if (outcome->status != GP_OK)
        gp_fail(&a->error, outcome->status, "%s", outcome->sentence);
    else if (a->out != NULL)
        a->status = team_bytes_take(a->out, outcome, &a->error);
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
    status = team_drive(team, asked_ended, &a, -1, err);
    if (status != GP_OK && !a.ended) { /* `stop`: the unit must not outlive what it writes to */
        team_unit_cancel(team, unit);
        team_drive_out(team, asked_ended, &a);
        if (a.ended && a.status == GP_OK && out != NULL)
            team_bytes_deinit(out);
        return status;
    }
    return a.status == GP_OK ? GP_OK : gp_fail(err, a.status, "%s", a.error.message);
}

uint64_t team_new_id(gp_team *team)
{
    return ++team->id_next;
}

void team_send(gp_team *team)
{
    dispatch_fill(team->dispatch, team->now_ns);
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

/* ---- workers ---- */

uint32_t team_size(const gp_team *team)
{
    return team->size;
}

bool team_worker_up(const gp_team *team, uint32_t worker)
{
    return team->workers[worker - 1].stage == TEAM_UP;
}

bool team_all_up(const gp_team *team)
{
    return team->up == team->size;
}

uint32_t team_worker_index(const gp_team *team, uint32_t worker)
{
    return team->workers[worker - 1].index;
}

const char *team_worker_name(const gp_team *team, uint32_t worker, uint32_t pid, char name[TEAM_NAME_BYTES])
{
    uint32_t index = team_worker_index(team, worker);
    char in_pool[24] = "", process[20] = "";

    if (index != worker)
        snprintf(in_pool, sizeof(in_pool), "%" PRIu32 " in the pool", index);
    if (pid != 0)
        snprintf(process, sizeof(process), "%spid %" PRIu32, index != worker ? ", " : "", pid);
    snprintf(name, TEAM_NAME_BYTES,
             index != worker || pid != 0 ? "worker %" PRIu32 " (%s%s)" : "worker %" PRIu32, worker, in_pool,
             process);
    return name;
}

uint32_t team_generation(const gp_team *team)
{
    return team->pool->generation;
}

/* ---- open, close ---- */

static gp_status team_make(gp_team *team, const gp_team_options *options, gp_error *err)
{
    team->stop = options->stop;
    team->log = options->log;
    team->context = options->context;
    team->opened_ns = team->now_ns = gp_now_ns();
    for (uint32_t i = 0; i < GP_MEMBERS_MAX; i++)
        team->workers[i].door = -1;
    pthread_mutex_init(&team->mutex, NULL);
    team->kick = -1;
    team->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (team->bell >= 0)
        team->kick = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (team->kick < 0)
        return gp_fail_errno(err, GP_EIO, "no eventfd for a team");

    gp_status status = shared_watch(team->bell, err); /* wakes the thread that waits in a call */

    return status != GP_OK ? status : shared_watch(team->kick, err); /* wakes the background thread */
}

/* A handle of its own to the pool, with the lease. */
static gp_status team_lease(gp_team *team, gp_pool *pool, const gp_team_options *options, gp_error *err)
{
    /* Of a pool that ended as it was told no other is begun; a scheduler that has just died is followed by the next. */
    const gp_pool_options same = { .pool = pool->places.pool,
                                   .attach_only = !pool_missed(pool),
                                   .note = pool->note,
                                   .context = pool->note_context };
    gp_lease_request request = options->lease;
    uint64_t gpus = 0;
    dispatch_hooks hooks = team_hooks;
    gp_status status = gp_pool_open(&team->pool, &same, err);

    if (status != GP_OK)
        return status;
    if (request.priority == 0)
        request.priority = options->priority;
    status = pool_lease(team->pool, &request,
                        options->purpose != NULL ? options->purpose : program_invocation_short_name,
                        options->stop, err);
    if (status != GP_OK)
        return status;
    team->size = team->pool->grant.slots_count;
    for (uint32_t i = 0; i < team->size; i++) {
        team->workers[i].index = team->pool->grant.slots[i].index;
        team->workers[i].incarnation = team->pool->grant.slots[i].incarnation;
        if (team->pool->grant.slots[i].device_kind == GP_DEVICE_CUDA)
            gpus |= (uint64_t)1 << i;
    }
    hooks.context = team;
    return dispatch_new(&team->dispatch, &hooks, team->size, gpus, err);
}

gp_status gp_team_open(gp_team **out, gp_pool *pool, const gp_team_options *options, gp_error *err)
{
    static const gp_team_options usual;
    gp_team *team;
    gp_status status;

    if (options == NULL)
        options = &usual;
    if (options->priority < -GP_PRIORITY_MAX || options->priority > GP_PRIORITY_MAX)
        return gp_fail(err, GP_EINVAL, "priority %" PRId32 " is not within -%d .. %d", options->priority,
                       GP_PRIORITY_MAX, GP_PRIORITY_MAX);
    team = gp_calloc(1, sizeof(*team));
    if (team == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for a team");
    team->forks = gp_forks();
    status = team_make(team, options, err);
    if (status == GP_OK)
        status = team_lease(team, pool, options, err);
    if (status == GP_OK)
        status = team_link_all(team, err);
    if (status != GP_OK) {
        gp_team_close(team);
        return status;
    }
    *out = team;
    return GP_OK;
}

/* Tell idle workers in order; one that still runs something is taken from it by the end of the lease. */
static void team_part(gp_team *team)
{
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

void gp_team_close(gp_team *team)
{
    static const gp_error closed = { GP_ECANCELED, "the team was closed" };

    if (team == NULL ||
        is_forked(team)) /* a forked child leaves the rings as they are, and its copy of the rest */
        return;
    team_background_end(team);
    if (team->dispatch != NULL) {
        team_break(team, &closed);
        team_end_over(team);
        team_part(team);
    }
    while (team->lasting != NULL)
        team_lasting_remove(team, team->lasting);
    queues_free(team);
    functions_free(team);
    values_free(team);
    EACH_WORKER(team, w)
    team_worker_close(team, w);
    gp_pool_close(team->pool);
    team_given_free(team);
    futures_free(team);
    dispatch_free(team->dispatch);
    shared_unwatch(team->bell);
    shared_unwatch(team->kick);
    if (team->bell >= 0)
        close(team->bell);
    if (team->kick >= 0)
        close(team->kick);
    pthread_mutex_destroy(&team->mutex);
    gp_free(team);
}

uint32_t gp_team_size(const gp_team *team)
{
    return team->size;
}
