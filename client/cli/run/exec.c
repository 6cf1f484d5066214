/* Runners on the workers, and the slots in which they run commands. State of a runner:
 *
 *   DOWN ---run_open---> ASKED ---ok_reply, socket received---> UP ---end of file---> DOWN
 *
 * The client asks a worker to start a runner, then fetches the runner's socket from the worker's
 * control socket. A dead worker does not answer: its runner stays DOWN or ASKED until the scheduler
 * grants a replacement. All answers sent before the end of file are read first, so a command that
 * ended is never reported as lost.
 *
 * The file is long but stays in one piece: all functions move runners and slots through these
 * states. */
#include "client/cli/run/exec.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/memory/alloc.h"
#include "common/base/clock.h"
#include "common/base/system/proc_stat.h"
#include "proto/local/control_socket.h"
#include "proto/local/runner_spawn.h"

/* Times in milliseconds, and limits. */
enum {
    AGAIN_MS = 20,            /* delay before the next request to a worker without a runner */
    ASK_MS = 1000,            /* reply timeout; the request is sent again */
    CONTROL_SOCKET_MS = 1000, /* control socket timeout; a worker answers within microseconds */
    FAILURES_MAX = 10,        /* consecutive refusals or runner exits without an answer */
    POOL_POLL_MS = 100,       /* maximum interval between reads of pool messages */
    BEHIND_MS = 5000,         /* time for a runner to read pending requests */
    WAIT_MAX_MS = 3600000,    /* longest wait of gp_exec_wait() */
};

typedef enum runner_state { RUNNER_DOWN, RUNNER_ASKED, RUNNER_UP } runner_state;

/* A slot: the command that runs there, and a pending kill request. */
typedef struct exec_running {
    uint64_t job;      /* 0: free */
    bool started;      /* the runner reported the start */
    bool kill;         /* a kill request is pending, because the runner's socket was full */
    uint32_t grace_ms; /* delay between SIGTERM and SIGKILL, in milliseconds */
} exec_running;

/* The runner of a worker. */
typedef struct exec_runner {
    runner_state state;
    int socket; /* -1: none */
    /* worker process that started the runner; the grant may name a replacement by now */
    pid_t worker_pid;
    uint64_t worker_start; /* start time of worker_pid, see gp_proc_stat */
    uint64_t correlation;  /* pending request id, while ASKED */
    int64_t again_ms;      /* time of the next request */
    uint32_t failures;     /* consecutive failures since a runner on this worker last answered */
    bool alone;            /* the running command excludes all others */
    uint32_t busy;         /* occupied slots */
    uint32_t kills;        /* slots with a pending kill request */
    exec_running *running; /* array of `slots` entries */
} exec_runner;

struct gp_exec {
    gp_pool *pool; /* NULL: local mode */
    pid_t local;   /* local runner process id; 0: none */
    int leash;     /* pipe to the local runner, which exits when it closes; -1: none */
    uint32_t workers, slots;
    exec_runner runners[GP_MEMBERS_MAX];
    uint32_t draining;  /* rank that gets no new commands until it is idle; `workers`: none */
    exec_event *events; /* ring buffer */
    uint32_t event_first, event_count, events_max;
    struct pollfd *fds;
    nfds_t fds_max;
    int64_t look_ms; /* when to read pool messages next, regardless of poll() */
};

/* ---- opening ---- */

gp_status gp_exec_open(gp_exec **out, gp_pool *pool, uint32_t slots, gp_error *err)
{
    uint32_t workers = pool == NULL ? 1 : pool->grant.slots_count;
    char path[4096];
    gp_exec *exec;
    int problem = 0;
    bool whole;

    if (slots == 0 || slots > EXEC_SLOTS_MAX)
        return gp_fail(err, GP_EINVAL, "the number of slots per worker is %" PRIu32 "; it must be 1 to %d",
                       slots, EXEC_SLOTS_MAX);
    exec = gp_calloc(1, sizeof(*exec));
    if (exec == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for commands");
    exec->pool = pool;
    exec->workers = workers;
    exec->slots = slots;
    exec->draining = workers;
    exec->leash = -1;
    exec->events_max = 2 * workers * slots + 1;
    exec->events = gp_calloc(exec->events_max, sizeof(*exec->events));
    whole = exec->events != NULL;
    for (uint32_t rank = 0; rank < workers; rank++) {
        exec->runners[rank].socket = -1;
        exec->runners[rank].running = gp_calloc(slots, sizeof(exec_running));
        whole = whole && exec->runners[rank].running != NULL;
    }
    gp_status status =
        whole ? GP_OK : gp_fail(err, GP_ENOMEM, "no memory for %" PRIu32 " command slots", workers * slots);

    if (status == GP_OK && pool == NULL)
        status = pool_daemon_path("gradpool-worker", "GRADPOOL_WORKER", path, sizeof(path), err);
    if (status == GP_OK && pool == NULL) {
        problem = gp_runner_spawn(&exec->local, &exec->runners[0].socket, &exec->leash, path, 1, 1);
        exec->local = problem == 0 ? exec->local : 0;
        exec->runners[0].state = RUNNER_UP;
        errno = problem;
        status = problem == 0 ? GP_OK : gp_fail_errno(err, GP_EIO, "cannot start %s", path);
    }
    if (status == GP_OK)
        *out = exec;
    else
        gp_exec_close(exec);
    return status;
}

void gp_exec_close(gp_exec *exec)
{
    if (exec == NULL)
        return;
    for (uint32_t rank = 0; rank < exec->workers; rank++) {
        if (exec->runners[rank].socket >= 0)
            close(exec->runners[rank].socket);
        gp_free(exec->runners[rank].running);
    }
    if (exec->leash >= 0)
        close(exec->leash);
    /* The local runner exits when all commands have exited. Retry after a signal, so that the
     * runner is reaped. */
    while (exec->local > 0 && waitpid(exec->local, NULL, 0) < 0 && errno == EINTR)
        ;
    gp_free(exec->events);
    gp_free(exec->fds);
    gp_free(exec);
}

uint32_t gp_exec_workers(const gp_exec *exec)
{
    return exec->workers;
}

const gp_slot *gp_exec_slot(const gp_exec *exec, uint32_t rank)
{
    return &exec->pool->grant.slots[rank];
}

/* ---- events ---- */

/* Append an event for the slot; the caller fills in the details. */
static exec_event *event_add(gp_exec *exec, exec_kind kind, uint32_t rank, uint32_t slot)
{
    exec_event *event = &exec->events[(exec->event_first + exec->event_count) % exec->events_max];

    exec->event_count++;
    *event = (exec_event){ .kind = kind,
                           .job = exec->runners[rank].running[slot].job,
                           .place = { .rank = rank, .slot = slot } };
    return event;
}

bool gp_exec_next(gp_exec *exec, exec_event *event)
{
    if (exec->event_count == 0)
        return false;
    *event = exec->events[exec->event_first];
    exec->event_first = (exec->event_first + 1) % exec->events_max;
    exec->event_count--;
    return true;
}

/* ---- places ---- */

/* Return whether a new command may start on the worker. */
static bool runner_has_place(const gp_exec *exec, uint32_t rank)
{
    const exec_runner *r = &exec->runners[rank];

    return r->state == RUNNER_UP && r->busy < exec->slots && !r->alone && rank != exec->draining;
}

bool gp_exec_find_on(const gp_exec *exec, uint32_t rank, exec_place *place)
{
    const exec_runner *r = &exec->runners[rank];

    if (!runner_has_place(exec, rank))
        return false;
    for (uint32_t slot = 0; slot < exec->slots; slot++)
        if (r->running[slot].job == 0) {
            *place = (exec_place){ .rank = rank, .slot = slot };
            return true;
        }
    return false;
}

bool gp_exec_find(const gp_exec *exec, exec_place *place)
{
    uint32_t best = exec->workers;

    for (uint32_t rank = 0; rank < exec->workers; rank++)
        if (runner_has_place(exec, rank) &&
            (best == exec->workers || exec->runners[rank].busy < exec->runners[best].busy))
            best = rank;
    return best < exec->workers && gp_exec_find_on(exec, best, place);
}

bool gp_exec_find_alone(gp_exec *exec, exec_place *place)
{
    uint32_t best = exec->workers;

    for (uint32_t rank = 0; rank < exec->workers; rank++)
        if (exec->runners[rank].state == RUNNER_UP && !exec->runners[rank].alone &&
            (best == exec->workers || exec->runners[rank].busy < exec->runners[best].busy))
            best = rank;
    /* The draining worker gets no new commands. It remains the least busy worker while others are
     * filled. */
    exec->draining = best;
    if (best == exec->workers || exec->runners[best].busy > 0)
        return false;
    exec->draining = exec->workers;
    *place = (exec_place){ .rank = best, .slot = 0 };
    return true;
}

static void place_free(gp_exec *exec, uint32_t rank, uint32_t slot)
{
    exec->runners[rank].kills -= exec->runners[rank].running[slot].kill;
    exec->runners[rank].running[slot] = (exec_running){ 0 };
    exec->runners[rank].busy--;
    exec->runners[rank].alone = false;
}

static void runner_read(gp_exec *exec, uint32_t rank);

gp_status gp_exec_start(gp_exec *exec, exec_place place, uint64_t job, const exec_command *command,
                        gp_error *err)
{
    exec_runner *r = &exec->runners[place.rank];
    gp_runner_request request = { .kind = GP_RUNNER_START, .job = job };
    int fds[GP_RUNNER_FDS] = { -1, command->in, command->out, command->err };
    gp_status status = gp_runner_spec_write(&fds[0], &request.spec_bytes, &command->spec, err);

    if (status != GP_OK)
        return status;
    status = gp_runner_ask_send(r->socket, &request, fds, GP_RUNNER_FDS, err);
    /* The socket holds requests for all slots, but the runner may be behind, or too many
     * descriptors may be in flight. */
    for (int64_t until = gp_now_ms() + BEHIND_MS; status == GP_EBUSY && gp_now_ms() < until;) {
        poll(&(struct pollfd){ .fd = r->socket, .events = POLLOUT }, 1, (int)(until - gp_now_ms()));
        gp_sleep_ms(1); /* poll() does not consider the limit on descriptors in flight */
        status = gp_runner_ask_send(r->socket, &request, fds, GP_RUNNER_FDS, err);
    }
    close(fds[0]);
    if (status == GP_EBUSY)
        return gp_fail(err, GP_EIO, "the runner at rank %" PRIu32 " does not read its socket", place.rank);
    if (status == GP_OK) {
        r->running[place.slot] = (exec_running){ .job = job };
        r->busy++;
        r->alone = command->alone;
    }
    if (status != GP_EPEER)
        return status;
    /* Read the answers sent before the runner exited, then the end of file: it is DOWN now. */
    runner_read(exec, place.rank);
    if (exec->pool != NULL && ++r->failures >= FAILURES_MAX)
        return gp_fail(
            err, GP_EIO,
            "worker %" PRIu32 " cannot run commands: %d of its runners exited before a reply; see %s",
            gp_exec_slot(exec, place.rank)->index, FAILURES_MAX, gp_exec_slot(exec, place.rank)->log);
    return status;
}

/* Send pending kill requests until the socket is full. A runner that exited has killed all
 * commands, so the requests are dropped. */
static void kills_send(gp_exec *exec, uint32_t rank)
{
    exec_runner *r = &exec->runners[rank];

    for (uint32_t slot = 0; slot < exec->slots && r->kills > 0; slot++) {
        exec_running *running = &r->running[slot];
        gp_runner_request request = { .kind = GP_RUNNER_KILL,
                                      .job = running->job,
                                      .grace_ms = running->grace_ms };

        if (!running->kill)
            continue;
        if (r->state == RUNNER_UP && gp_runner_ask_send(r->socket, &request, NULL, 0, NULL) == GP_EBUSY)
            return;
        running->kill = false;
        r->kills--;
    }
}

void gp_exec_kill(gp_exec *exec, exec_place place, uint32_t grace_ms)
{
    exec_running *running = &exec->runners[place.rank].running[place.slot];

    if (running->job == 0)
        return;
    exec->runners[place.rank].kills += !running->kill;
    running->kill = true;
    running->grace_ms = grace_ms;
    kills_send(exec, place.rank);
}

/* ---- answers of runners ---- */

/* Convert an answer to an event. Ignore answers for unknown jobs. */
static void answer_take(gp_exec *exec, uint32_t rank, const gp_runner_answer *answer)
{
    static const exec_kind kinds[] = {
        [GP_RUNNER_STARTED] = EXEC_STARTED, [GP_RUNNER_ENDED] = EXEC_ENDED, [GP_RUNNER_FAILED] = EXEC_FAILED
    };
    exec_runner *r = &exec->runners[rank];
    uint32_t slot = 0;

    r->failures = 0;
    while (slot < exec->slots && (r->running[slot].job == 0 || r->running[slot].job != answer->job))
        slot++;
    if (slot == exec->slots || (answer->kind == GP_RUNNER_STARTED && r->running[slot].started))
        return; /* not for a command that this process runs */
    r->running[slot].started = answer->kind != GP_RUNNER_FAILED;
    exec_event *event = event_add(exec, kinds[answer->kind], rank, slot);

    event->pid = (pid_t)answer->pid;
    event->exit_code = answer->exit_code;
    event->signal = answer->signal;
    event->core = answer->core != 0;
    event->seconds = answer->seconds;
    event->user_seconds = answer->user_seconds;
    event->system_seconds = answer->system_seconds;
    event->rss_bytes = answer->rss_bytes;
    memcpy(event->text, answer->text, sizeof(event->text));
    if (answer->kind != GP_RUNNER_STARTED)
        place_free(exec, rank, slot);
}

/* Handle a runner exit: report the runner's commands as lost and schedule a new runner.
 *
 * When the worker exits, the runner kills all processes of its commands and only then closes the
 * socket. Meanwhile the lease may have been renewed with a new worker process. The runner notices
 * the exit when the kernel closes the worker's files: at this point the worker has no address
 * space, but may not be a zombie yet. */
static void runner_lose(gp_exec *exec, uint32_t rank)
{
    exec_runner *r = &exec->runners[rank];
    gp_proc_stat stat;
    bool worker_alive = exec->pool != NULL && gp_proc_stat_read(&stat, r->worker_pid) &&
                        stat.start_time == r->worker_start && stat.address_bytes != 0;

    close(r->socket);
    r->socket = -1;
    r->state = RUNNER_DOWN;
    r->again_ms = gp_now_ms() + AGAIN_MS; /* by then it is known whether the worker is alive */
    for (uint32_t slot = 0; slot < exec->slots; slot++)
        if (r->running[slot].job != 0) {
            event_add(exec, EXEC_LOST, rank, slot)->worker_alive = worker_alive;
            place_free(exec, rank, slot);
        }
}

/* Read all pending answers, as long as the event ring has room for all events from a runner. Each
 * slot produces at most two: EXEC_STARTED, then one that frees the slot. */
static void runner_read(gp_exec *exec, uint32_t rank)
{
    exec_runner *r = &exec->runners[rank];

    while (r->state == RUNNER_UP && exec->event_count + 2 * exec->slots <= exec->events_max) {
        gp_runner_answer answer;
        gp_status status = gp_runner_answer_receive(r->socket, &answer, NULL);

        if (status == GP_ETIMEDOUT)
            return;
        if (status == GP_OK)
            answer_take(exec, rank, &answer);
        else
            runner_lose(exec, rank); /* the runner exited or sent a malformed answer */
    }
}

/* ---- opening runners ---- */

/* Fetch a started runner's socket from the worker's control socket. GP_ESTALE: the worker has no
 * runner. */
static gp_status runner_fetch(gp_exec *exec, uint32_t rank, gp_error *err)
{
    const gp_slot *slot = gp_exec_slot(exec, rank);
    gp_control_socket_request request = pool_control_request(exec->pool, GP_RUNNER_WHAT);
    int control_socket = -1, socket = -1;
    gp_status status = pool_greet_worker(exec->pool, rank, &control_socket, CONTROL_SOCKET_MS, err);

    request.rank = rank;
    if (status == GP_OK)
        status = gp_control_socket_send_fd(control_socket, &request, -1, err);
    if (status == GP_OK)
        status = gp_control_socket_receive_fd(control_socket, &request, &socket, CONTROL_SOCKET_MS, err);
    if (control_socket >= 0)
        close(control_socket);
    if (status == GP_OK && (request.what != GP_RUNNER_WHAT || socket < 0)) {
        if (socket >= 0)
            close(socket);
        status = gp_fail(err, GP_ESTALE, "worker %" PRIu32 " has no runner available", slot->index);
    }
    if (status == GP_OK) {
        exec->runners[rank].socket = socket;
        exec->runners[rank].worker_pid = (pid_t)slot->pid;
        exec->runners[rank].worker_start = slot->start_time;
    }
    return status;
}

/* Handle a worker's reply to run_open. After a refusal, retry later, or return the error after
 * FAILURES_MAX refusals. */
static gp_status runner_answered(gp_exec *exec, uint32_t rank, const gp_incoming *in, gp_error *err)
{
    exec_runner *r = &exec->runners[rank];
    gp_error why;
    gp_status status;

    if (r->state != RUNNER_ASKED || in->envelope.correlation != r->correlation)
        return GP_OK;
    status = in->type == &gp_msg_error_reply ? pool_error_from(in, &why) : runner_fetch(exec, rank, &why);
    r->state = status == GP_OK ? RUNNER_UP : RUNNER_DOWN;
    if (status == GP_OK)
        return GP_OK;
    r->again_ms = gp_now_ms() + AGAIN_MS;
    /* These errors are temporary: the worker is exiting, is joining a new generation, or still ends
     * earlier commands. */
    if (status == GP_EBUSY || status == GP_ESTALE || status == GP_EPEER || status == GP_ENOPOOL ||
        ++r->failures < FAILURES_MAX)
        return GP_OK;
    return gp_fail(err, status, "worker %" PRIu32 " cannot run commands: %s", gp_exec_slot(exec, rank)->index,
                   why.message);
}

/* ---- the pool ---- */

/* Handle all pending pool messages. GP_ECANCELED: the lease ended. */
static gp_status pool_poll(gp_exec *exec, gp_error *err)
{
    gp_status status = GP_OK;

    exec->look_ms = gp_now_ms() + POOL_POLL_MS;
    while (status == GP_OK) {
        pool_message message;
        gp_worker_lost lost;

        status = pool_next(exec->pool, &message, 0, err);
        if (status != GP_OK || message.from == POOL_NOBODY)
            break;
        if (message.from == POOL_WORKER)
            status = runner_answered(exec, message.rank, &message.in, err);
        else if (message.in.type == &gp_msg_worker_lost && message.in.envelope.lease == exec->pool->lease &&
                 gp_incoming_decode(&message.in, &lost, NULL) == GP_OK)
            pool_note(exec->pool, "%s", lost.cause); /* worker, signal and log file */
        pool_message_close(&message);
    }
    if (status == GP_OK && exec->pool->revoked)
        status = gp_fail(err, GP_ECANCELED, "the lease ended: %s", exec->pool->ended.reason);
    if (status != GP_OK || !exec->pool->regranted)
        return status;
    /* Attach to the new generation of the lease. Runners that are up keep their commands; all
     * others are requested again at once. */
    status = pool_attach(exec->pool, NULL, err);
    if (status == GP_OK && exec->pool->grant.slots_count != exec->workers)
        status = gp_fail(err, GP_EPROTO, "the lease has %" PRIu32 " workers, expected %" PRIu32,
                         exec->pool->grant.slots_count, exec->workers);
    for (exec_runner *r = exec->runners; r < exec->runners + exec->workers; r++)
        if (r->state != RUNNER_UP) {
            r->state = RUNNER_DOWN;
            r->again_ms = 0;
        }
    return status;
}

/* ---- waiting ---- */

/* Fill in the poll set: links to the pool first, then runner sockets. Return the link count.
 *   look  set if a pool message is already pending: poll() would miss it, because descriptors of
 *         ZeroMQ sockets are edge-triggered */
static nfds_t fds_fill(gp_exec *exec, bool *look)
{
    const gp_pool *pool = exec->pool;
    nfds_t count = 0, pools;

    *look = false;
    if (pool != NULL) {
        exec->fds[count++] = (struct pollfd){ .fd = pool->control_socket, .events = POLLIN };
        exec->fds[count++] = (struct pollfd){ .fd = gp_channel_fd(pool->scheduler), .events = POLLIN };
        *look = gp_channel_pending(pool->scheduler);
    }
    for (uint32_t rank = 0; pool != NULL && rank < exec->workers; rank++) {
        gp_channel *link = pool->workers[rank];

        exec->fds[count++] =
            (struct pollfd){ .fd = link == NULL ? -1 : gp_channel_fd(link), .events = POLLIN };
        *look |= link != NULL && gp_channel_pending(link);
    }
    pools = count;
    for (uint32_t rank = 0; rank < exec->workers; rank++)
        exec->fds[count++] =
            (struct pollfd){ .fd = exec->runners[rank].socket,
                             .events = exec->runners[rank].kills > 0 ? POLLIN | POLLOUT : POLLIN };
    return pools;
}

gp_status gp_exec_wait(gp_exec *exec, struct pollfd *others, nfds_t count, int timeout_ms, gp_error *err)
{
    nfds_t pools, ours = exec->pool == NULL ? exec->workers : 2 + 2 * (nfds_t)exec->workers;
    struct pollfd *grown =
        ours + count > exec->fds_max ? gp_realloc_array(exec->fds, ours + count, sizeof(*grown)) : exec->fds;
    int64_t now, until;
    bool look;

    if (grown == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory to wait for %zu descriptors", (size_t)(ours + count));
    exec->fds = grown;
    exec->fds_max = ours + count > exec->fds_max ? ours + count : exec->fds_max;
    if (exec->pool != NULL) {
        /* Send run_open to all workers whose runner is down and whose retry is due. */
        now = gp_now_ms();
        for (uint32_t rank = 0; rank < exec->workers; rank++) {
            exec_runner *r = &exec->runners[rank];

            if (r->state == RUNNER_UP || r->again_ms > now)
                continue;
            r->state = RUNNER_DOWN;
            r->again_ms = now + AGAIN_MS;
            r->correlation = exec->pool->correlation + 1; /* correlation id of the next message sent */
            if (pool_try_worker(exec->pool, rank, &gp_msg_run_open, &(gp_run_open){ 0 }, NULL, NULL, NULL) ==
                GP_OK) {
                r->state = RUNNER_ASKED;
                r->again_ms = now + ASK_MS;
            }
        }
    }
    pools = fds_fill(exec, &look);
    if (count > 0)
        memcpy(exec->fds + ours, others, count * sizeof(*others));
    now = gp_now_ms();
    until = look || exec->event_count > 0 ? now : now + (timeout_ms < 0 ? WAIT_MAX_MS : timeout_ms);
    for (uint32_t rank = 0; rank < exec->workers; rank++) /* limit the wait to the next runner request */
        if (exec->runners[rank].state != RUNNER_UP && exec->runners[rank].again_ms < until)
            until = exec->runners[rank].again_ms;
    if (poll(exec->fds, ours + count, until > now ? (int)(until - now) : 0) < 0) {
        if (errno != EINTR)
            return gp_fail_errno(err, GP_EIO, "cannot wait for commands");
        for (nfds_t i = 0; i < ours + count; i++)
            exec->fds[i].revents = 0;
    }
    if (count > 0)
        memcpy(others, exec->fds + ours, count * sizeof(*others));
    for (nfds_t i = 0; i < pools; i++)
        look |= exec->fds[i].revents != 0;
    for (uint32_t rank = 0; rank < exec->workers; rank++)
        if (exec->fds[pools + rank].revents != 0) {
            runner_read(exec, rank);
            kills_send(exec, rank);
        }
    if (exec->pool == NULL && exec->runners[0].state != RUNNER_UP)
        return gp_fail(err, GP_EPEER, "the runner (pid %d) exited", (int)exec->local);
    return exec->pool != NULL && (look || gp_now_ms() >= exec->look_ms) ? pool_poll(exec, err) : GP_OK;
}
