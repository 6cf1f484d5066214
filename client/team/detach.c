#include "client/team/detach.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/random.h>

#include "client/pool/results.h"
#include "client/team/shared.h"
#include "client/team/team.h"
#include "common/base/clock.h"
#include "common/base/memory/alloc.h"
#include "common/base/system/fault.h"
#include "common/base/system/process.h"

/* Open the results of the pool, once per team. */
static gp_status results_of(gp_team *team, result_store **out, gp_error *err)
{
    gp_status status = GP_OK;

    if (team->futures.results == NULL) {
        result_store *store = gp_calloc(1, sizeof(*store));

        if (store == NULL)
            return gp_fail(err, GP_ENOMEM, "no memory for the results of a team");
        status = result_store_open(store, team->pool->paths.state_dir, err);
        if (status == GP_OK)
            team->futures.results = store;
        else
            gp_free(store);
    }
    *out = team->futures.results;
    return status;
}

/* Return whether a change of an entry need not be repeated: it succeeded, or would fail again. */
static bool is_final(gp_status status)
{
    return status == GP_OK || status == GP_ESTALE || status == GP_EPERM || status == GP_ECORRUPT;
}

bool detach_store(result_store *store, const result_key *key, gp_status status, const void *data,
                  size_t bytes)
{
    gp_error why;
    gp_status stored = result_end(store, key, status, data, bytes, gp_unix_ms(), &why);

    if (stored == GP_EIO)
        stored = result_end(store, key, GP_EIO, why.message, strlen(why.message) + 1, gp_unix_ms(), NULL);
    return is_final(stored);
}

bool detach_release(result_store *store, const result_key *key, uint32_t starts, bool ended)
{
    return is_final(result_release(store, key, starts, ended, NULL));
}

/* ---- outcomes that a thread stores ---- */

enum {
    LARGE_BYTES = 1 << 20, /* the thread writes results from this size on */

    /* of results that wait for the thread; others are written at once, which holds up the team */
    STORING_BYTES_MAX = 1 << 30,

    /* Time limit for storing outcomes after a failure, and the retry interval. Another process may
     * be suspended with the lock held. After the limit the entry is released, and the call runs
     * again. A keeper would run the same call, so it has no limit (team_futures.store_always). */
    TRIES_MS = 30000,
    TRY_MS = 100,
};

/* Outcome that the thread stores. Its future ends afterwards. */
typedef struct late_outcome {
    struct late_outcome *next;
    gp_future *future;
    result_key key;
    gp_status status;
    team_bytes payload; /* the result, or the error message of a failed call */
    int64_t begun_ns, ended_ns;
    bool release; /* release the entry instead; the call was started `starts` times */
    uint32_t starts;
    bool unopened; /* the thread could not open the results */
} late_outcome;

/* Thread of a team that stores large results, and outcomes that could not be stored at once, so
 * that the team continues meanwhile. */
struct detach_writer {
    pthread_t thread;
    const char *state_dir;
    bool always;         /* try until the team ends */
    int wakeup_fd, kick; /* eventfds of the team */

    pthread_mutex_t lock; /* guards the members below */
    pthread_cond_t came;
    late_outcome *first, **end; /* to be stored, oldest first */
    late_outcome *written;      /* their futures have not ended yet */
    _Atomic bool ending;        /* written with the lock held */
};

/* Store an outcome, or release the entry. Return false if a later try may succeed. */
static bool late_try(result_store *store, const late_outcome *late)
{
    return late->release
               ? detach_release(store, &late->key, late->starts, false)
               : detach_store(store, &late->key, late->status, late->payload.data, late->payload.bytes);
}

/* Release the entry of a call whose outcome cannot be stored: the call runs again. That needs no
 * disk space. Return false if a later try may succeed. */
static bool late_drop(result_store *store, const late_outcome *late)
{
    return !late->release && detach_release(store, &late->key, late->starts, true);
}

/* Store an outcome. Drop the outcome instead TRIES_MS after the first failure
 * (team_futures.store_always: never), and once the team has begun to close. Repeat failed tries
 * until the team closes.
 *   stalled_ms  time of the thread's first failure since its last success; 0: none. After a
 *               failure, a team that closes does not wait for the lock, so that it closes in
 *               time */
static void late_store(const detach_writer *w, late_outcome *late, int64_t *stalled_ms)
{
    result_store store;

    for (;;) {
        const int64_t now_ms = gp_now_ms();
        const bool stalled = *stalled_ms != 0, ending = atomic_load(&w->ending);
        const bool expired = !w->always && stalled && now_ms - *stalled_ms >= TRIES_MS;
        bool stored = false, dropped = false;

        late->unopened = result_store_open(&store, w->state_dir, NULL) != GP_OK;
        if (!late->unopened) {
            if (stalled && (ending || expired))
                store.lock_ms = ending ? 0 : TRY_MS;
            stored = late_try(&store, late);
            dropped = !stored && (ending || expired) && late_drop(&store, late);
            result_store_close(&store);
        }
        *stalled_ms = stored ? 0 : stalled ? *stalled_ms : now_ms;
        if (stored || dropped || ending)
            return;
        gp_sleep_ms(TRY_MS);
    }
}

static void *writer_run(void *context)
{
    detach_writer *w = context;
    int64_t stalled_ms = 0;

    pthread_mutex_lock(&w->lock);
    for (;;) {
        while (w->first == NULL && !atomic_load(&w->ending)) {
            stalled_ms = 0;
            pthread_cond_wait(&w->came, &w->lock);
        }
        late_outcome *late = w->first;

        if (late == NULL)
            break;
        w->first = late->next;
        w->end = w->first == NULL ? &w->first : w->end;
        pthread_mutex_unlock(&w->lock);
        late_store(w, late, &stalled_ms);
        pthread_mutex_lock(&w->lock);
        late->next = w->written;
        w->written = late;
        eventfd_write(w->wakeup_fd, 1);
        eventfd_write(w->kick, 1);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

/* Return the thread of the team; start it if necessary. NULL: that is not possible. */
static detach_writer *writer_of(gp_team *team)
{
    detach_writer *w = team->futures.writer;

    if (w != NULL)
        return w;
    w = gp_calloc(1, sizeof(*w));
    if (w == NULL)
        return NULL;
    w->state_dir = team->pool->paths.state_dir;
    w->wakeup_fd = team->wakeup_fd;
    w->kick = team->background.kick;
    w->always = team->futures.store_always;
    w->end = &w->first;
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->came, NULL);
    if (gp_thread_start(&w->thread, "gp-results", 0, writer_run, w) != 0) {
        pthread_cond_destroy(&w->came);
        pthread_mutex_destroy(&w->lock);
        gp_free(w);
        return NULL;
    }
    team->futures.writer = w;
    return w;
}

/* Queue an outcome of at least `least` bytes for the thread.
 *   release  the thread releases the entry instead of storing the outcome
 * Return false if the outcome is smaller, more than STORING_BYTES_MAX would be queued, or memory
 * or the thread is missing. */
static bool late_begin(gp_team *team, gp_future *future, const team_outcome *outcome, bool release,
                       size_t least)
{
    const bool fine = outcome->status == GP_OK;
    const size_t bytes = fine ? outcome->bytes : strlen(outcome->sentence) + 1;
    const bool fits = bytes <= STORING_BYTES_MAX - team->futures.storing_bytes;
    detach_writer *w = bytes >= least && fits ? writer_of(team) : NULL;
    late_outcome *late = w == NULL ? NULL : gp_calloc(1, sizeof(*late));
    bool taken = late != NULL;

    if (taken && fine) {
        taken = team_bytes_take(&late->payload, outcome, NULL) == GP_OK;
    } else if (taken) {
        late->payload = (team_bytes){ .data = gp_strdup(outcome->sentence), .bytes = bytes };
        taken = late->payload.data != NULL;
    }
    if (!taken) {
        gp_free(late);
        return false;
    }
    late->future = future;
    late->key = *future->result;
    late->status = outcome->status;
    late->begun_ns = outcome->begun_ns;
    late->ended_ns = outcome->ended_ns;
    late->release = release;
    late->starts = outcome->attempts;
    team->futures.storing++;
    team->futures.storing_bytes += late->payload.bytes;
    pthread_mutex_lock(&w->lock);
    *w->end = late;
    w->end = &late->next;
    pthread_cond_signal(&w->came);
    pthread_mutex_unlock(&w->lock);
    return true;
}

void detach_finish(gp_team *team)
{
    detach_writer *w = team->futures.writer;

    if (team->futures.storing == 0)
        return;
    pthread_mutex_lock(&w->lock);
    late_outcome *late = w->written, *next;

    w->written = NULL;
    pthread_mutex_unlock(&w->lock);
    for (; late != NULL; late = next) {
        const bool fine = late->status == GP_OK;
        const team_outcome outcome = { .status = late->status,
                                       .sentence = fine ? "" : late->payload.data,
                                       .data = late->payload.data,
                                       .bytes = late->payload.bytes,
                                       .begun_ns = late->begun_ns,
                                       .ended_ns = late->ended_ns,
                                       .blob = fine ? &late->payload : NULL };

        result_store *store;

        /* The thread lacked descriptors to open the results. The team has them open, so it needs
         * only one. */
        if (late->unopened && results_of(team, &store, NULL) == GP_OK && !late_try(store, late))
            late_drop(store, late);
        next = late->next;
        team->futures.storing--;
        team->futures.storing_bytes -= late->payload.bytes;
        future_finish(team, &late->future->unit, &outcome);
        team_bytes_deinit(&late->payload);
        gp_free(late);
    }
    if (team->futures.storing == 0)
        team->futures.stalled = false;
}

void detach_finish_all(gp_team *team)
{
    detach_writer *w = team->futures.writer;

    if (w == NULL)
        return;
    pthread_mutex_lock(&w->lock);
    atomic_store(&w->ending, true);
    pthread_cond_signal(&w->came);
    pthread_mutex_unlock(&w->lock);
    pthread_join(w->thread, NULL);
    detach_finish(team);
    pthread_cond_destroy(&w->came);
    pthread_mutex_destroy(&w->lock);
    gp_free(w);
    team->futures.writer = NULL;
}

/* ---- ending ---- */

bool detach_ended(gp_team *team, gp_future *future, const team_outcome *outcome)
{
    const team_unit *unit = &future->unit;
    const bool fine = outcome->status == GP_OK;
    result_key *key = future->result;
    result_store *store;

    /* Release the entry if the call ended only because the team ended. A cancel and a time limit
     * end the call itself, so their outcome is stored. */
    const bool release =
        team->failure.code != GP_OK && outcome->answer == NULL && !unit->canceled && !unit->over_limit;
    const bool stalled = team->futures.stalled;
    bool later = (fine || stalled) && late_begin(team, future, outcome, release, stalled ? 0 : LARGE_BYTES);

    if (!later) {
        const bool stored =
            results_of(team, &store, NULL) == GP_OK &&
            (release ? detach_release(store, key, outcome->attempts, false)
                     : detach_store(store, key, outcome->status, fine ? outcome->data : outcome->sentence,
                                    fine ? outcome->bytes : strlen(outcome->sentence) + 1));

        team->futures.stalled = !stored;
        later = !stored && late_begin(team, future, outcome, release, 0);
        if (!stored && !later && results_of(team, &store, NULL) == GP_OK) /* the call runs again */
            detach_release(store, key, outcome->attempts, !release);
    }
    future->result = NULL;
    gp_free(key);
    return !later;
}

void detach_close(gp_team *team)
{
    if (team->futures.results != NULL)
        result_store_close(team->futures.results);
    gp_free(team->futures.results);
    team->futures.results = NULL;
}

/* ---- detaching ---- */

static gp_status options_check(const gp_detach_options *options, gp_error *err)
{
    if (options->ttl_ms < 0 || options->ttl_ms > RESULT_TTL_MAX_MS)
        return gp_fail(err, GP_EINVAL, "the result is to be kept for %" PRId64 " ms; it must be 0 to %d",
                       options->ttl_ms, RESULT_TTL_MAX_MS);
    if (options->reads > UINT32_MAX / 2)
        return gp_fail(err, GP_EINVAL, "%" PRIu32 " reads are too many; 0 sets no limit", options->reads);
    return options->name != NULL ? result_name_check(options->name, err) : GP_OK;
}

/* Choose a serial number and, unless the caller has one, a name: "r" and 16 hexadecimal digits. */
static gp_status key_choose(result_key *key, const char *name, gp_error *err)
{
    if (getrandom(&key->serial, sizeof(key->serial), 0) != (ssize_t)sizeof(key->serial))
        return gp_fail_errno(err, GP_EIO, "no random bytes for the name of a result");
    if (name != NULL)
        snprintf(key->name, sizeof(key->name), "%s", name);
    else
        snprintf(key->name, sizeof(key->name), "r%016" PRIx64, key->serial);
    return GP_OK;
}

/* Add an entry for a future that has ended. */
static gp_status add_ended(result_store *store, result_head *head, const gp_future *future, gp_error *err)
{
    const team_call *call = &future->unit.call;
    const char *text =
        future->status != GP_OK && call->payload == NULL ? "no memory for its error message" : NULL;

    head->state = RESULT_READY;
    head->status = future->status;
    return result_add(store, head, text != NULL ? text : call->payload,
                      text != NULL ? strlen(text) + 1 : call->bytes, NULL, gp_unix_ms(), err);
}

/* Add an entry for a call that has not ended. */
static gp_status add_pending(result_store *store, result_head *head, const gp_future *future,
                             const function_origin *origin, gp_error *err)
{
    const team_unit *unit = &future->unit;
    const gp_broadcast *shared = unit->call.shared;
    const result_object object = { .fd = origin->fd, .bytes = origin->bytes };
    const void *data = unit->call.payload;
    size_t bytes = unit->call.bytes;
    void *mapped = NULL;
    gp_lease_environment environment;
    gp_status status = team_needs_lease(future->team, unit->needs, &environment, head->needs, err);

    if (status != GP_OK)
        return status;
    head->state = RESULT_PENDING;
    head->owner = result_self();
    head->lease = future->team->pool->lease;
    head->priority = unit->priority;
    head->environment = (uint32_t)environment;
    head->attempts = unit->attempts_max;
    head->retries = unit->retries_max;
    head->timeout_ms = unit->timeout_ms;
    for (int i = 0; i < 32; i++)
        snprintf(head->object + 2 * i, 3, "%02x", origin->sha256[i]);
    if (shared != NULL) { /* a payload of its own was moved there, see call_own() */
        data = NULL;
        bytes = shared->bytes;
        if (bytes > 0) {
            mapped = mmap(NULL, bytes, PROT_READ, MAP_SHARED, shared->fd, 0);
            if (mapped == MAP_FAILED)
                return gp_fail_errno(err, GP_ENOMEM, "cannot map an argument of %zu bytes", bytes);
            data = mapped;
        }
    }
    status = result_add(store, head, data, bytes, &object, gp_unix_ms(), err);
    if (mapped != NULL)
        munmap(mapped, bytes);
    return status;
}

static gp_status detach(gp_future *future, const gp_detach_options *options, const result_key *key,
                        gp_error *err)
{
    gp_team *team = future->team;
    function_origin origin;
    result_store *store;
    result_head head = { .key = *key,
                         .reads_max = options->reads,
                         .ttl_ms = options->ttl_ms != 0 ? options->ttl_ms : RESULT_TTL_DEFAULT_MS };

    if (future->detached)
        return gp_fail(err, GP_ESTATE, "call %" PRIu64 " was detached before", future->unit.call.id);
    if (!future->ended && future->unit.state == UNIT_HELD)
        return gp_fail(err, GP_ESTATE,
                       "call %" PRIu64 " waits for %" PRIu32
                       " calls that it depends on; detach it after they have ended",
                       future->unit.call.id, future->unit.holds);
    if (!function_find_origin(&origin, &team->functions, future->unit.call.function))
        return gp_fail(err, GP_EINTERNAL, "call %" PRIu64 " has no function", future->unit.call.id);
    gp_status status = results_of(team, &store, err);

    if (status != GP_OK)
        return status;
    snprintf(head.function, sizeof(head.function), "%s", origin.name);
    if (future->ended) {
        status = add_ended(store, &head, future, err);
    } else {
        status = detach_adopt(future, key, err);
        if (status == GP_OK)
            status = add_pending(store, &head, future, &origin, err);
        if (status != GP_OK) {
            gp_free(future->result);
            future->result = NULL;
        }
    }
    future->detached = status == GP_OK;
    return status;
}

gp_status detach_adopt(gp_future *future, const result_key *key, gp_error *err)
{
    future->result = gp_malloc(sizeof(*key));
    if (future->result == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for the name of a result");
    *future->result = *key;
    return GP_OK;
}

/* Request a keeper. Uses a separate store, because a background thread may be using the store of
 * the team. After an error, remove the entry, so that the future is no longer detached. If the
 * results cannot be opened or the entry cannot be removed, return GP_OK: the future stays detached
 * and ends the entry. If this process exits first, the next gp_result_fetch() requests a keeper. */
static gp_status keeper_ensure(gp_future *future, const char *name, gp_error *err)
{
    gp_team *team = future->team;
    gp_error why;
    result_store store;

    if (result_store_open(&store, team->pool->paths.state_dir, NULL) != GP_OK)
        return GP_OK;
    gp_status status = results_keeper_ensure(team->pool, &store, 0, &why);
    gp_status removed = status == GP_OK ? GP_OK : result_remove(&store, name, NULL);

    result_store_close(&store);
    if (removed != GP_OK && removed != GP_ENOENT)
        return GP_OK;
    if (status != GP_OK) {
        team_enter(team);
        if (!future->ended) {
            gp_free(future->result);
            future->result = NULL;
        }
        future->detached = false;
        team_leave(team);
        gp_fail(err, status, "%s", why.message);
    }
    return status;
}

gp_status gp_future_detach(gp_future *future, const gp_detach_options *options, char *name, gp_error *err)
{
    static const gp_detach_options usual;
    gp_team *team = future->team;
    bool pending;
    result_key key;
    gp_status status;

    if (options == NULL)
        options = &usual;
    if (team_in_callback(team))
        return gp_fail(err, GP_ESTATE, "a callback cannot detach a future of its own team");
    status = options_check(options, err);
    if (status == GP_OK)
        status = key_choose(&key, options->name, err);
    if (status != GP_OK)
        return status;
    team_enter(team);
    status = team_is_forked(team) ? team_check(team, err) : detach(future, options, &key, err);
    pending = !future->ended;
    team_leave(team);
    if (status == GP_OK && pending)
        gp_fault_point("result-added");
    if (status == GP_OK && pending)
        status = keeper_ensure(future, key.name, err);
    if (status == GP_OK && name != NULL)
        memcpy(name, key.name, sizeof(key.name));
    return status;
}
