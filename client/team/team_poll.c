/* team_poll.c: drive a team: read records, send ready units, wait.
 *
 * A caller that waits drives the team itself. The background thread drives the team if units are in
 * flight and no call was made for BACKGROUND_MS. A caller that enters meanwhile takes over. */
#include <poll.h>
#include <sched.h>
#include <unistd.h>

#include "client/team/detach.h"
#include "client/team/team.h"
#include "common/base/clock.h"

enum {
    /* interval of checks for control sockets and scheduler while records arrive without pause */
    LOOK_MS = 10,
    SLEEP_MS = 250,    /* longest sleep */
    STOP_MS = 50,      /* longest sleep with a stop flag: the signal may reach another thread */
    BACKGROUND_MS = 1, /* time without a call after which the thread drives the team */
    PARK_AFTER = 50,   /* such intervals without work after which the thread is parked */
};

bool team_pump(gp_team *team)
{
    bool any = false;

    if (team_is_forked(team)) /* the rings belong to the parent */
        return false;
    team->now_ns = gp_now_ns();
    EACH_WORKER(team, w)
    {
        team_worker *worker = worker_of(team, w);

        if (worker_readable(worker) && gp_link_pending(worker->link))
            any |= team_drain(team, w);
    }
    dispatch_tick(team->dispatch, team->now_ns);
    if (team->now_ns - team->looked_ns > (int64_t)LOOK_MS * 1000000)
        team_check_workers(team);
    team_link_tick(team);
    if (team->needs.class_count > 1) /* calls with needs were submitted */
        team_needs_check(team);
    team_end_over(team);
    detach_finish(team);
    team_release_unused(team);
    if (team->membership.elastic)
        team_follow_size(team);
    if (team->failure.code == GP_OK)
        team_send(team);
    return any;
}

/* ---- waiting ---- */

void team_awake(gp_team *team)
{
    if (!team->asleep)
        return;
    team->asleep = false;
    EACH_WORKER(team, w)
    if (worker_of(team, w)->link != NULL)
        gp_link_awake(worker_of(team, w)->link);
}

static bool team_pending(const gp_team *team)
{
    EACH_WORKER(team, w)
    if (worker_readable(&team->workers[w - 1]) && gp_link_pending(team->workers[w - 1].link))
        return true;
    return false;
}

/* Return whether spinning is useful: no worker with calls needs the core of this thread. */
static bool team_may_spin(gp_team *team)
{
    int core = sched_getcpu();
    bool may = false;

    EACH_WORKER(team, w)
    {
        const team_worker *worker = worker_of(team, w);
        bool near = worker->stage == TEAM_UP && gp_link_peer_core(worker->link) == core;

        dispatch_worker_near(team->dispatch, w, near);
        if (dispatch_sent(team->dispatch, w, NULL) == 0)
            continue;
        if (near)
            return false;
        may = true;
    }
    return may;
}

/* Spin until an answer is pending, for at most `ns`. Return whether one is. */
static bool team_spin(const gp_team *team, int64_t begin_ns, int64_t ns)
{
    for (uint32_t turn = 1; !team_pending(team); turn++) {
        if (turn % 32 == 0 && gp_now_ns() - begin_ns >= ns)
            return false;
        gp_relax();
    }
    return true;
}

/* Sleep until an event on any descriptor, for at most `ns`. `background`: release the lock
 * meanwhile. Return false if there is something to read other than the wakeup eventfds. */
static bool team_wait_fds(gp_team *team, int64_t ns, bool background)
{
    struct pollfd fds[2 * GP_MEMBERS_MAX + 4];
    struct timespec time;
    nfds_t count = 0;
    bool news = false;

    fds[count++] = (struct pollfd){ .fd = team->wakeup_fd, .events = POLLIN };
    fds[count++] = (struct pollfd){ .fd = background ? team->background.kick : -1, .events = POLLIN };
    fds[count++] = (struct pollfd){ .fd = team->pool->control_socket, .events = POLLIN };
    fds[count++] = (struct pollfd){ .fd = gp_channel_fd(team->pool->scheduler), .events = POLLIN };
    EACH_WORKER(team, w)
    {
        const team_worker *worker = worker_of(team, w);

        /* end of file only: a blob stays in the queue until its record is read */
        fds[count++] = (struct pollfd){ .fd = worker->control_socket };
        if (worker->stage == TEAM_ATTACHING || worker->stage == TEAM_OPENING) {
            if (pool_worker_pending(team->pool, w - 1))
                return false;
            fds[count++] =
                (struct pollfd){ .fd = gp_channel_fd(team->pool->workers[w - 1]), .events = POLLIN };
        }
    }
    time = (struct timespec){ .tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000 };
    if (background && team->background.state == BACKGROUND_RUNNING)
        team->background.state = BACKGROUND_WATCHING;
    if (background)
        pthread_mutex_unlock(&team->background.mutex);
    int ready = ppoll(fds, count, &time, NULL);

    if (background)
        background_lock(&team->background);
    if (background && team->background.state == BACKGROUND_WATCHING)
        team->background.state = BACKGROUND_RUNNING;
    for (nfds_t i = 0; ready > 0 && i < count; i++) {
        uint64_t ignored;

        if (fds[i].revents == 0)
            continue;
        if (i >= 2)
            news = true;
        else if (read(fds[i].fd, &ignored, sizeof(ignored)) < 0)
            continue; /* another thread has read the eventfd */
    }
    return !news;
}

static void team_sleep(gp_team *team, int64_t end_ns, bool background)
{
    int64_t now_ns = gp_now_ns(), timer = dispatch_next_ns(team->dispatch, now_ns), link = INT64_MAX;

    /* Sleep until the next deadline of the dispatch, the links or the caller, within the limits
     * above. */
    int64_t until = now_ns + (int64_t)(team->stop != NULL ? STOP_MS : SLEEP_MS) * 1000000;

    if (team->up < team->size)
        link = team_link_next_ns(team);
    if (dispatch_stuck(team->dispatch) && now_ns + 1000000 < until)
        until = now_ns + 1000000; /* a full control socket sends no event when it has room again */
    until = timer < until ? timer : until;
    until = link < until ? link : until;
    until = end_ns < until ? end_ns : until;

    /* Dependent calls start only after this process has read the answers that they wait for. */
    bool patient = team->patient && dispatch_get_counts(team->dispatch)->held == 0;
    bool quiet = true, news;

    /* Announce the sleep on every link. */
    team->asleep = true;
    EACH_WORKER(team, w)
    if (worker_readable(worker_of(team, w)) && !gp_link_asleep(worker_of(team, w)->link, patient))
        quiet = false;
    if (quiet && !gp_channel_pending(team->pool->scheduler))
        news = !team_wait_fds(team, until > now_ns ? until - now_ns : 0, background);
    else
        news = !team_pending(team);
    team_awake(team);
    if (news)
        team_check_workers(team);
}

/* Drive the team until until(context) is true. heedless: ignore the stop flag. */
static gp_status drive(gp_team *team, bool (*until)(void *context), void *context, int64_t end_ns,
                       bool heedless, gp_error *err)
{
    while (!until(context)) {
        bool moved = team_pump(team);

        if (until(context))
            return GP_OK;
        if (team->failure.code != GP_OK && team->futures.storing == 0)
            return team_check(team, err);
        if (!heedless && team->stop != NULL && *team->stop != 0)
            return gp_fail(err, GP_ECANCELED, "the wait was interrupted");
        if (team->now_ns >= end_ns)
            return gp_fail(err, GP_ETIMEDOUT, "no end within the timeout");
        if (moved)
            continue;
        int64_t begin_ns = gp_now_ns();
        int64_t spin_ns = team_may_spin(team) ? gp_spin_begin(&team->spin) : 0;
        bool spun = spin_ns > 0 && team_spin(team, begin_ns, spin_ns);

        if (!spun)
            team_sleep(team, end_ns, false);
        gp_spin_end(&team->spin, spun ? 0 : gp_now_ns() - begin_ns);
    }
    return GP_OK;
}

gp_status team_poll(gp_team *team, bool (*until)(void *context), void *context, int64_t timeout_ms,
                    gp_error *err)
{
    int64_t end_ns = INT64_MAX;

    if (team_is_forked(team))
        return pool_check_process(team->pool, err);
    if (until(context))
        return GP_OK;
    if (team_in_callback(team))
        return gp_fail(err, GP_ESTATE, "a callback cannot wait for its own team");
    if (timeout_ms >= 0 && timeout_ms < INT64_MAX / 2000000)
        end_ns = gp_now_ns() + timeout_ms * 1000000;
    return drive(team, until, context, end_ns, false, err);
}

gp_status team_poll_extended(gp_team *team, bool (*until)(void *context), void *context, int64_t ms,
                             gp_error *err)
{
    gp_timeout timeout = gp_timeout_in(ms);
    gp_status status;
    gp_error why;

    do
        status = team_poll(team, until, context, gp_timeout_slice(timeout), &why);
    while (status == GP_ETIMEDOUT && gp_timeout_left(timeout) > 0);
    return status == GP_OK ? GP_OK : gp_fail(err, status, "%s", why.message);
}

void team_poll_canceled(gp_team *team, bool (*until)(void *context), void *context)
{
    if (!team_in_callback(team))
        drive(team, until, context, INT64_MAX, true, NULL);
}

/* ---- the background thread ---- */

bool team_has_work(const gp_team *team)
{
    return team->futures.storing != 0 || dispatch_get_counts(team->dispatch)->live != 0 ||
           (team->membership.elastic && team->failure.code == GP_OK);
}

void *team_background_run(void *context)
{
    gp_team *team = context;
    int idle = 0;

    background_lock(&team->background);
    while (team->background.state != BACKGROUND_ENDING) {
        team_release_unused(team);
        if (!team_has_work(team) && ++idle > PARK_AFTER) {
            background_park(&team->background);
            idle = 0;
        } else if (background_sleep(&team->background, BACKGROUND_MS)) {
            uint64_t calls = team->background.calls;

            /* Drive the team until all units have ended or a call is made. */
            while (team_has_work(team) && team->background.calls == calls &&
                   team->background.state != BACKGROUND_ENDING)
                if (!team_pump(team) && (team->failure.code == GP_OK || team->futures.storing != 0))
                    team_sleep(team, INT64_MAX, true);
        }
    }
    pthread_mutex_unlock(&team->background.mutex);
    return NULL;
}
