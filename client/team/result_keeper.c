#include "client/team/result_keeper.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "client/pool/result_store.h"
#include "client/team/detach.h"
#include "client/team/team.h"
#include "common/base/clock.h"
#include "common/base/memory/alloc.h"
#include "common/base/system/fault.h"
#include "common/base/system/process.h"

enum {
    OWNERS_MAX = 64,    /* owners watched at once; the others are noticed by the next scan */
    CLAIMS_MAX = 1024,  /* calls in flight */
    SCAN_MS = 1000,     /* longest interval between scans */
    SETTLE_MS = 5,      /* shortest one, and SCAN_SHARE times the duration of a scan */
    SCAN_SHARE = 10,    /* a scan of many entries takes at most a tenth of the time */
    RETRY_MS = 200,     /* after a team failed, or the end of a call could not be stored */
    RETRIES_MS = 30000, /* time without a team after which the keeper fails */

    /* Longest wait until no lease is returning its workers. The scheduler kills a worker that does
     * not return long before. */
    RETURN_MS = 60000,
    TEAMS_MAX = 8,    /* teams at once */
    LINGER_MS = 1000, /* time without pending calls after which the keeper ends */
};

#define CLAIM_BYTES_MAX ((uint64_t)1 << 30) /* arguments in flight, unless there is one call */

/* Team for calls with the same needs. */
typedef struct keeper_team {
    gp_team *team; /* NULL: not open */
    bool refused;  /* no worker was free in this pass; only if `team` is NULL */
    uint32_t environment;
    char needs[GP_RESOURCES_BYTES];
} keeper_team;

/* Thread that waits in the queue of the pool for the workers of one team, perhaps for hours. */
typedef struct keeper_opener {
    pthread_t thread;
    bool runs;   /* the thread was not joined yet */
    bool wanted; /* a call for the team was found in this pass */
    keeper_team opened;
    gp_error why;               /* if opened.team is NULL */
    gp_pool *pool;              /* gp_team_open() only reads the name and the callback */
    volatile sig_atomic_t stop; /* leave the queue */
    int wakeup;                 /* eventfd, written at the end */
    atomic_bool ended;          /* `opened` and `why` are set */
} keeper_opener;

/* Claimed entry of a call that could be neither started nor ended. The keeper must release the
 * entry: while its owner is alive, readers wait, and so does the keeper itself. */
typedef struct keeper_release {
    result_key key;
    bool wanted; /* `key` is such an entry */

    /* No team is open that ends the pending entries of this process: the scan releases them. */
    bool all;
} keeper_release;

typedef struct keeper {
    gp_pool *pool;
    result_store store;
    const volatile sig_atomic_t *stop;
    int lock, inotify;
    keeper_team teams[TEAMS_MAX];
    keeper_opener opener;
    int wakeup; /* eventfd of the opener */

    /* first abandoned call for which no worker was free in this pass; state 0: none */
    result_head unserved;
    keeper_release unreleased;
    uint64_t started;
    int64_t waits_ms; /* start of the wait for calls of earlier owners; 0: no wait */

    /* Result of a scan. */
    result_owner self;
    result_owner owners[OWNERS_MAX]; /* processes that run calls, without this one */
    int owners_fd[OWNERS_MAX];       /* pidfds */
    uint32_t owner_count;
    char (*abandoned)[GP_RESULT_NAME_BYTES]; /* [CLAIMS_MAX] */
    uint32_t abandoned_count;
    uint64_t unvisited;            /* abandoned entries that the pass has not visited */
    uint64_t own_count, own_bytes; /* pending entries of this process */
    uint64_t pending;              /* all pending entries */
} keeper;

/* ---- scanning ---- */

static void owner_note(keeper *k, const result_owner *owner)
{
    for (uint32_t i = 0; i < k->owner_count; i++)
        if (k->owners[i].pid == owner->pid)
            return;
    if (k->owner_count < OWNERS_MAX)
        k->owners[k->owner_count++] = *owner;
}

static bool scan_visit(void *context, const result_head *head)
{
    keeper *k = context;

    if (head->state > RESULT_RELEASED)
        return true;
    k->pending++;
    if (result_is_abandoned(head)) {
        k->unvisited++;
        if (k->abandoned_count < CLAIMS_MAX)
            snprintf(k->abandoned[k->abandoned_count++], sizeof(k->abandoned[0]), "%s", head->key.name);
    } else if (head->owner.pid == k->self.pid) {
        k->own_count++;
        k->own_bytes += head->bytes;
        if (k->unreleased.all) /* stop after a failure: each try may wait for the lock */
            k->unreleased.all = detach_release(&k->store, &head->key, 1, false);
    } else {
        owner_note(k, &head->owner);
    }
    return true;
}

static void owners_close(keeper *k)
{
    for (uint32_t i = 0; i < k->owner_count; i++)
        if (k->owners_fd[i] >= 0)
            close(k->owners_fd[i]);
    k->owner_count = 0;
}

static gp_status scan(keeper *k, gp_error *err)
{
    owners_close(k);
    k->abandoned_count = 0;
    k->own_count = k->own_bytes = k->pending = k->unvisited = 0;
    k->unreleased.all = !k->unreleased.wanted;
    for (int i = 0; i < TEAMS_MAX; i++)
        k->unreleased.all &= k->teams[i].team == NULL;
    gp_status status = result_each(&k->store, scan_visit, k, gp_unix_ms(), err);

    for (uint32_t i = 0; i < k->owner_count; i++)
        k->owners_fd[i] = (int)syscall(SYS_pidfd_open, (pid_t)k->owners[i].pid, 0);
    return status;
}

/* ---- calls ---- */

/* Open a team for calls with these needs.
 *   no_wait  GP_EBUSY: no worker is free, or others wait in the queue of the pool */
static gp_status team_begin(keeper_team *out, gp_pool *pool, bool no_wait, const volatile sig_atomic_t *stop,
                            gp_error *err)
{
    const gp_team_options options = {
        .lease = { .environment = (gp_lease_environment)out->environment,
                   .needs = out->needs[0] != '\0' ? out->needs : NULL,
                   .no_wait = no_wait },
        .purpose = "results of exited programs",
        .stop = stop,
        .elastic = true,
    };

    gp_status status = gp_team_open(&out->team, pool, &options, err);

    if (status == GP_OK)
        out->team->futures.store_always = true;
    return status;
}

static void *opener_run(void *context)
{
    keeper_opener *o = context;

    if (team_begin(&o->opened, o->pool, false, &o->stop, &o->why) != GP_OK)
        o->opened.team = NULL;
    atomic_store(&o->ended, true);
    eventfd_write(o->wakeup, 1);
    return NULL;
}

/* Wait in the queue of the pool for a team for calls with these needs. */
static gp_status opener_start(keeper *k, const result_head *head, gp_error *err)
{
    keeper_opener *o = &k->opener;

    *o = (keeper_opener){
        .wanted = true, .opened.environment = head->environment, .pool = k->pool, .wakeup = k->wakeup
    };
    snprintf(o->opened.needs, sizeof(o->opened.needs), "%s", head->needs);
    const int problem = gp_thread_start(&o->thread, "gp-keeper", 0, opener_run, o);

    o->runs = problem == 0;
    return o->runs ? GP_OK : gp_fail(err, GP_EIO, "cannot start a thread for a team: %s", strerror(problem));
}

/* Take the team of the thread, or the error with which it ended. */
static gp_status opener_take(keeper *k, keeper_team *out, gp_error *err)
{
    keeper_opener *o = &k->opener;

    pthread_join(o->thread, NULL);
    o->runs = false;
    if (o->opened.team == NULL)
        return gp_fail(err, o->why.code, "%s", o->why.message);
    o->opened.team->stop = k->stop;
    *out = o->opened;
    return GP_OK;
}

/* End the thread. Its team is not needed. */
static void opener_end(keeper *k)
{
    keeper_team unneeded = { .team = NULL };

    k->opener.stop = 1;
    if (k->opener.runs && opener_take(k, &unneeded, NULL) == GP_OK)
        gp_team_close(unneeded.team);
}

static bool has_needs(const keeper_team *t, const result_head *head)
{
    return t->environment == head->environment && strcmp(t->needs, head->needs) == 0;
}

/* Return the team for calls with these needs; open it if workers are free. NULL with GP_OK: no
 * worker is free, or there are TEAMS_MAX others. */
static gp_status team_of(keeper *k, const result_head *head, gp_team **out, gp_error *err)
{
    keeper_opener *o = &k->opener;
    const bool queued = o->runs && has_needs(&o->opened, head);
    keeper_team *unused = NULL;
    gp_error why;

    *out = NULL;
    o->wanted |= queued;
    for (int i = 0; i < TEAMS_MAX; i++) {
        keeper_team *t = &k->teams[i];

        if (t->team != NULL && t->team->failure.code != GP_OK) {
            gp_team_close(t->team);
            t->team = NULL;
        }
        if (t->team == NULL && !t->refused) {
            unused = t;
        } else if (has_needs(t, head)) {
            *out = t->team;
            return GP_OK;
        }
    }
    if (unused == NULL || (queued && !atomic_load(&o->ended)))
        return GP_OK;
    *unused = (keeper_team){ .environment = head->environment };
    snprintf(unused->needs, sizeof(unused->needs), "%s", head->needs);
    gp_status status =
        queued ? opener_take(k, unused, &why) : team_begin(unused, k->pool, true, k->stop, &why);

    *out = unused->team;
    if (status != GP_EBUSY)
        return status == GP_OK ? GP_OK : gp_fail(err, status, "%s", why.message);
    unused->refused = true;
    if (k->unserved.state == 0)
        k->unserved = *head;
    return GP_OK;
}

/* Close the teams whose calls have ended; `all`: every team. */
static void teams_close(keeper *k, bool all)
{
    for (int i = 0; i < TEAMS_MAX; i++) {
        keeper_team *t = &k->teams[i];
        gp_team_info info = { .submitted = 0 };

        t->refused = false;
        if (t->team != NULL)
            gp_team_get_info(t->team, &info);
        if (!all && info.submitted != info.ended)
            continue;
        gp_team_close(t->team);
        t->team = NULL;
    }
}

/* Release the entry in `r`, if there is one. After a failure, the next pass tries again. */
static void release(keeper_release *r, result_store *store)
{
    if (r->wanted)
        r->wanted = !detach_release(store, &r->key, 0, false);
}

/* Mark a claimed entry for release in the next pass. The keeper claims no other entry before it is
 * released. */
static void release_later(keeper_release *r, const result_key *key)
{
    *r = (keeper_release){ .key = *key, .wanted = true };
}

/* Store an error as the end of a claimed call that was not started. */
static void refuse(keeper *k, const result_head *head, const gp_error *why)
{
    if (!detach_store(&k->store, &head->key, why->code, why->message, strlen(why->message) + 1))
        release_later(&k->unreleased, &head->key);
}

/* Submit a claimed call. An error of the call is stored as its result. Other errors: the team has
 * failed, and the entry was released. */
static gp_status call_start(keeper *k, gp_team *team, const result_head *head, const void *argument,
                            gp_error *err)
{
    char path[RESULT_FOLDER_BYTES + 100 + sizeof(head->function)];
    gp_parfeval_request request = { .argument = argument,
                                    .bytes = head->bytes,
                                    .priority = head->priority,
                                    .attempts = head->attempts - head->starts,
                                    .retries = head->retries,
                                    .timeout_ms = head->timeout_ms };
    gp_error why;

    result_object_path(&k->store, head, path, sizeof(path) - sizeof(head->function));
    snprintf(path + strlen(path), sizeof(head->function) + 1, ":%s", head->function);
    gp_status status = gp_function_find(&request.function, team, path, &why);

    if (status == GP_OK)
        status = future_submit(NULL, team, &request, &head->key, &why);
    if (status == GP_OK) {
        k->started++;
        return GP_OK;
    }
    if (team->failure.code == GP_OK && *k->stop == 0) {
        refuse(k, head, &why);
        return GP_OK;
    }
    release_later(&k->unreleased, &head->key);
    release(&k->unreleased, &k->store);
    return gp_fail(err, status, "%s", why.message);
}

/* Ask the pool which leases exist and whether it is taking workers back. GP_OK: `out` must be freed
 * with gp_free().
 *
 * A worker in state "starting" counts too. It may not have reported to a new scheduler yet, or was
 * just killed, and its call may still run. */
static gp_status leases_get(keeper *k, gp_status_reply **out, bool *returning, gp_error *err)
{
    gp_status status = pool_status(k->pool, out, err);

    *returning = false;
    for (uint32_t i = 0; status == GP_OK && i < (*out)->workers_count; i++)
        *returning |= (*out)->workers[i].state == GP_WORKER_STARTING ||
                      ((*out)->workers[i].state == GP_WORKER_BUSY && (*out)->workers[i].lease == 0);
    return status;
}

/* Return whether the lease in which the call may have started still exists. */
static bool lease_exists(const gp_status_reply *reply, const result_head *head)
{
    for (uint32_t i = 0; i < reply->leases_count; i++)
        if (reply->leases[i].lease == head->lease && reply->leases[i].state == GP_LEASE_GRANTED &&
            reply->leases[i].client_pid == (uint32_t)head->owner.pid)
            return true;
    return false;
}

/* Claim an abandoned entry and start the call. GP_OK also if another process has claimed it
 * first. */
static gp_status take_over(keeper *k, const char *name, const gp_status_reply *reply, bool *later,
                           gp_error *err)
{
    result_head head;
    void *argument;
    gp_team *team;
    gp_error why;
    gp_status status;

    if (result_get(&k->store, name, &head, gp_unix_ms(), NULL) != GP_OK || !result_is_abandoned(&head))
        return GP_OK;
    if (lease_exists(reply, &head)) {
        *later = true;
        return GP_OK;
    }

    /* Claim the entry only when a team can run the call. */
    status = team_of(k, &head, &team, &why);
    const bool never = status == GP_ENODEV; /* no worker of this pool can run the call */

    if (status != GP_OK && !never)
        return gp_fail(err, status, "%s", why.message);
    if ((team == NULL && !never) ||
        result_claim(&head, &argument, &k->store, name, never ? 0 : team->pool->lease, NULL) != GP_OK)
        return GP_OK;
    k->own_count++;
    k->own_bytes += head.bytes;
    gp_fault_point("result-claimed");
    status = GP_OK;
    if (!never && head.starts >= head.attempts)
        gp_fail(&why, GP_EPEER,
                "the process that made the call exited or could not store the result, and may have started "
                "the call %" PRIu32 " of at most %" PRIu32 " times",
                head.starts, head.attempts);
    if (never || head.starts >= head.attempts)
        refuse(k, &head, &why);
    else
        status = call_start(k, team, &head, argument, err);
    gp_free(argument);
    return status;
}

/* Claim the abandoned entries of the last scan, once the earlier runs of their calls have ended.
 * The scheduler ends the lease of a process that exited, and kills workers that do not return from
 * it.
 *   waits  set to whether entries still wait for an earlier run */
static gp_status take_over_all(keeper *k, bool *waits, gp_error *err)
{
    const int64_t now_ms = gp_now_ms();
    gp_status_reply *reply = NULL;
    bool returning;
    gp_status status = leases_get(k, &reply, &returning, err);

    if (status != GP_OK)
        return status;
    k->waits_ms = k->waits_ms == 0 ? now_ms : k->waits_ms;
    returning = returning && now_ms - k->waits_ms < RETURN_MS;
    *waits = returning;
    k->unserved.state = 0;
    for (uint32_t i = 0;
         i < k->abandoned_count && status == GP_OK && *k->stop == 0 && !returning && !k->unreleased.wanted &&
         k->own_count < CLAIMS_MAX && (k->own_count == 0 || k->own_bytes < CLAIM_BYTES_MAX);
         i++) {
        k->unvisited--;
        status = take_over(k, k->abandoned[i], reply, waits, err);
    }

    /* Wait for workers in the background: the calls of open teams must not wait meanwhile, and the
     * workers in use may be theirs. */
    if (status == GP_OK && k->unserved.state != 0 && !k->opener.runs)
        status = opener_start(k, &k->unserved, err);
    if (!*waits)
        k->waits_ms = 0;
    gp_free(reply);
    return status;
}

/* ---- waiting ---- */

/* Wait for an event in the folder, the exit of an owner, the end of the opener, or `ms`. */
static void keeper_wait(const keeper *k, int64_t ms)
{
    struct pollfd fds[OWNERS_MAX + 2];
    char events[4096];
    nfds_t count = 0;

    fds[count++] = (struct pollfd){ .fd = k->inotify, .events = POLLIN };
    fds[count++] = (struct pollfd){ .fd = k->wakeup, .events = POLLIN };
    for (uint32_t i = 0; i < k->owner_count; i++)
        fds[count++] = (struct pollfd){ .fd = k->owners_fd[i], .events = POLLIN };
    if (poll(fds, count, (int)ms) <= 0)
        return;
    while (k->inotify >= 0 && read(k->inotify, events, sizeof(events)) > 0)
        ;
    (void)!read(k->wakeup, events, sizeof(events));
}

/* Run until all calls have ended. */
static gp_status keep(keeper *k, gp_error *err)
{
    int64_t failed_ms = 0;            /* first of the latest failures in a row; 0: none */
    int64_t pending_ms = gp_now_ms(); /* when a call was pending last */
    gp_error why = { GP_OK, "" };

    while (*k->stop == 0) {
        int64_t begin_ms = gp_now_ms();
        bool waits = false;

        release(&k->unreleased, &k->store);
        gp_status status = scan(k, err);
        int64_t pause_ms = (gp_now_ms() - begin_ms) * SCAN_SHARE;

        if (status != GP_OK)
            return status;
        if (k->abandoned_count > 0)
            status = take_over_all(k, &waits, &why);
        if (status != GP_OK) {
            int64_t now_ms = gp_now_ms();

            failed_ms = failed_ms == 0 ? now_ms : failed_ms;
            if (now_ms - failed_ms >= RETRIES_MS || *k->stop != 0)
                return gp_fail(err, status, "%s", why.message);
            gp_sleep_ms(RETRY_MS);
            continue;
        }
        failed_ms = 0;
        if (waits) {
            gp_sleep_ms(SETTLE_MS);
            continue;
        }
        teams_close(k, false);

        /* End the opener if this pass found no call for its team: other clients may need the
         * workers. But keep an opener that is still waiting if the pass did not reach all calls. */
        if (!k->opener.wanted && (k->unvisited == 0 || atomic_load(&k->opener.ended)))
            opener_end(k);
        k->opener.wanted = false;
        if (k->pending > 0)
            pending_ms = begin_ms;
        if (begin_ms - pending_ms >= LINGER_MS && result_keeper_end(&k->lock, &k->store, gp_unix_ms()))
            return GP_OK;

        pause_ms = pause_ms > SCAN_MS ? SCAN_MS : pause_ms;
        if (k->unreleased.wanted && pause_ms < RETRY_MS)
            pause_ms = RETRY_MS;
        gp_sleep_ms(pause_ms > SETTLE_MS ? (int)pause_ms : SETTLE_MS);
        keeper_wait(k, SCAN_MS);
    }
    return gp_fail(err, GP_ECANCELED, "stopped; calls that have not ended are started again later");
}

gp_status result_keeper_run(gp_pool *pool, const volatile sig_atomic_t *stop, uint64_t *count, gp_error *err)
{
    keeper k = { .pool = pool,
                 .stop = stop,
                 .lock = -1,
                 .inotify = -1,
                 .wakeup = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK),
                 .self = result_self() };

    *count = 0;
    if (k.wakeup < 0)
        return gp_fail_errno(err, GP_EIO, "cannot create an eventfd for the teams of the keeper");
    gp_status status = result_store_open(&k.store, pool->remote != NULL ? "" : pool->paths.state_dir, err);

    if (status != GP_OK) {
        close(k.wakeup);
        return status;
    }
    k.abandoned = gp_calloc(CLAIMS_MAX, sizeof(k.abandoned[0]));
    if (k.abandoned == NULL)
        status = gp_fail(err, GP_ENOMEM, "no memory for the names of %d results", CLAIMS_MAX);
    if (status == GP_OK)
        status = result_keeper_begin(&k.lock, &k.store, err);
    if (status == GP_OK && k.lock >= 0) { /* otherwise another keeper runs */
        k.inotify = result_watch(&k.store);
        status = keep(&k, err);
    }
    opener_end(&k);
    teams_close(&k, true);
    release(&k.unreleased, &k.store);
    owners_close(&k);
    close(k.wakeup);
    if (k.inotify >= 0)
        close(k.inotify);
    if (k.lock >= 0)
        close(k.lock);
    result_store_close(&k.store);
    gp_free(k.abandoned);
    *count = k.started;
    return status;
}
