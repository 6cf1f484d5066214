/* results.c: fetch, list and remove the results of detached calls. */
#include "client/pool/results.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/memory/alloc.h"

enum {
    LOOK_MS = 1000,   /* interval at which a waiting process checks that another one runs the call */
    NO_WATCH_MS = 20, /* interval of the reads without inotify, which has a limit per user */

    /* Longest and shortest time limit of a request for a keeper. The stop flag is checked between
     * requests. A fetch with a timeout of 0 makes one of the shortest. A repeated request starts no
     * second keeper: while one is queued, the pool replies with its job number. */
    REQUEST_MS = 5000,
    REQUEST_MIN_MS = 100,
};

gp_status results_keeper_ensure(const gp_pool *pool, result_store *store, int timeout_ms, gp_error *err)
{
    static const char *const words[] = { "results", "keep", NULL };

    /* Attach only, unless the scheduler failed: no new pool starts after an orderly shutdown. */
    const gp_pool_options same = { .pool = pool->paths.pool,
                                   .timeout_ms = timeout_ms,
                                   .attach_only = !pool_missed(pool) };
    const int64_t end_ms = gp_now_ms() + timeout_ms;
    gp_pool *own = NULL;
    bool wanted;
    uint64_t job;
    gp_status status = result_keeper_wanted(&wanted, store, gp_unix_ms(), err);

    if (status != GP_OK || !wanted)
        return status;
    status = gp_pool_open(&own, &same, err);

    /* Jobs of this kind run beside the jobs that need workers, so the keeper takes no slot from
     * them while it waits for calls. */
    if (status == GP_OK)
        status = pool_job_submit(
            &job, own,
            &(gp_job_request){ .words = words, .name = "results", .directory = "/", .kind = GP_JOB_SWEEP },
            timeout_ms > 0 ? end_ms - gp_now_ms() : POOL_JOB_ANSWER_MS, err);
    gp_pool_close(own);
    if (status != GP_OK)
        result_keeper_missed(store);
    return status;
}

static gp_status results_open(result_store *out, const gp_pool *pool, gp_error *err)
{
    gp_error why = { GP_OK, "" };
    gp_status status = pool_check_process(pool, &why);

    if (status != GP_OK)
        return gp_fail(err, status, "%s", why.message);
    return result_store_open(out, pool->remote != NULL ? "" : pool->paths.state_dir, err);
}

/* Wait until the folder changes, or for `ms`. */
static void folder_wait(int inotify, int64_t ms)
{
    struct pollfd poller = { .fd = inotify, .events = POLLIN };
    char events[4096];

    if (inotify < 0 && ms > NO_WATCH_MS)
        ms = NO_WATCH_MS;
    if (poll(&poller, 1, (int)ms) > 0)
        while (read(inotify, events, sizeof(events)) > 0)
            ;
}

/* Wait for a result and read it. Return the error of the read, not that of the call. */
static gp_status outcome_wait(gp_pool *pool, result_store *store, const char *name, int timeout_ms,
                              const volatile sig_atomic_t *stop, gp_status *ended, void **data, size_t *bytes,
                              gp_error *err)
{
    int64_t deadline = timeout_ms < 0 ? INT64_MAX : gp_now_ms() + timeout_ms, looked_ms = 0;
    int inotify = -1;
    bool pending;
    gp_status status;

    for (;;) {
        int64_t now_ms = gp_now_ms();
        result_head head;

        status = result_read(store, name, ended, data, bytes, &pending, gp_unix_ms(), err);
        if (status == GP_OK || (!pending && status != GP_EBUSY))
            break;
        if (stop != NULL && *stop != 0) {
            status = gp_fail(err, GP_ECANCELED, "interrupted; the result '%s' can still be fetched", name);
            break;
        }
        if (pending && now_ms - looked_ms >= LOOK_MS) {
            int64_t ms = deadline - now_ms < REQUEST_MS ? deadline - now_ms : REQUEST_MS;

            looked_ms = now_ms;
            if (result_get(store, name, &head, gp_unix_ms(), NULL) == GP_OK && result_is_abandoned(&head))
                status =
                    results_keeper_ensure(pool, store, ms > REQUEST_MIN_MS ? (int)ms : REQUEST_MIN_MS, err);
            if (status == GP_ENOPOOL || status == GP_EPERM || status == GP_EVERSION)
                break; /* other errors are temporary: a new scheduler starts, the disk is slow */
        }
        if (now_ms >= deadline) {
            if (pending)
                status = gp_fail(err, GP_ETIMEDOUT, "the call of result '%s' did not end within %g s", name,
                                 timeout_ms * 1e-3);
            else /* the message names the lock that another process holds */
                err->code = status = GP_ETIMEDOUT;
            break;
        }

        /* Read once more now that the watch exists: no event reports a change before it. */
        if (inotify < 0) {
            inotify = result_watch(store);
            if (inotify >= 0)
                continue;
        }
        int64_t ms = deadline - now_ms;

        folder_wait(inotify, ms < LOOK_MS ? ms : LOOK_MS);
    }
    if (inotify >= 0)
        close(inotify);
    return status;
}

gp_status results_wait(gp_pool *pool, const char *name, int timeout_ms, const volatile sig_atomic_t *stop,
                       gp_status *ended, void **data, size_t *bytes, gp_error *err)
{
    result_store store;
    gp_error why;
    gp_status status = results_open(&store, pool, err);

    if (status != GP_OK)
        return status;
    store.lock_ms = LOOK_MS; /* outcome_wait() tries again until the deadline */
    status = outcome_wait(pool, &store, name, timeout_ms, stop, ended, data, bytes, &why);
    result_store_close(&store);
    return status == GP_OK ? GP_OK : gp_fail(err, status, "%s", why.message);
}

gp_status gp_result_wait(gp_pool *pool, const char *name, int timeout_ms, gp_status *ended, void **data,
                         size_t *bytes, gp_error *err)
{
    return results_wait(pool, name, timeout_ms, NULL, ended, data, bytes, err);
}

gp_status gp_result_fetch(gp_pool *pool, const char *name, int timeout_ms, void **data, size_t *bytes,
                          gp_error *err)
{
    void *payload = NULL;
    size_t payload_bytes = 0;
    gp_status ended;
    gp_status status = gp_result_wait(pool, name, timeout_ms, &ended, &payload, &payload_bytes, err);

    if (status != GP_OK)
        return status;
    if (ended != GP_OK) {
        gp_fail(err, ended, "%s", (const char *)payload);
        gp_free(payload);
        return ended;
    }
    *data = payload;
    *bytes = payload_bytes;
    return GP_OK;
}

/* Caller of gp_result_list(). */
typedef struct listing {
    bool (*on_result)(void *context, const gp_result_info *result);
    void *context;
} listing;

static bool list_visit(void *context, const result_head *head)
{
    static const gp_result_state states[] = {
        [RESULT_PENDING] = GP_RESULT_PENDING, [RESULT_RELEASED] = GP_RESULT_PENDING,
        [RESULT_READY] = GP_RESULT_READY,     [RESULT_READ] = GP_RESULT_READ,
        [RESULT_EXPIRED] = GP_RESULT_EXPIRED,
    };
    const listing *l = context;
    gp_result_info info = { .state = states[head->state],
                            .status = (gp_status)head->status,
                            .bytes = head->state == RESULT_READY ? head->bytes : 0,
                            .reads = head->reads,
                            .reads_max = head->reads_max,
                            .detached_ms = head->detached_ms,
                            .ended_ms = head->ended_ms,
                            .expires_ms = head->state == RESULT_READY ? head->expires_ms : 0 };

    snprintf(info.name, sizeof(info.name), "%s", head->key.name);
    snprintf(info.function, sizeof(info.function), "%s", head->function);
    return l->on_result(l->context, &info);
}

gp_status gp_result_list(gp_pool *pool, bool (*on_result)(void *context, const gp_result_info *result),
                         void *context, gp_error *err)
{
    listing l = { on_result, context };
    result_store store;
    gp_status status = results_open(&store, pool, err);

    if (status != GP_OK)
        return status;
    status = result_each(&store, list_visit, &l, gp_unix_ms(), err);
    result_store_close(&store);
    return status;
}

gp_status gp_result_remove(gp_pool *pool, const char *name, gp_error *err)
{
    result_store store;
    gp_status status = results_open(&store, pool, err);

    if (status != GP_OK)
        return status;
    status = result_remove(&store, name, err);
    result_store_close(&store);
    return status;
}
