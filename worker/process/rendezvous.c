#include "worker/process/rendezvous.h"

#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "common/base/memory/alloc.h"
#include "common/base/clock.h"
#include "common/base/text/log.h"

enum {
    WHATS = GP_COMM_WHAT_CONTROL + 1,
    WAITERS_MAX = GP_MEMBERS_MAX * WHATS, /* each peer requests each kind once */
    /* a control socket replies in microseconds unless the process is suspended */
    CONNECT_MS = 1000,
    WHAT_STALE = 0, /* reply: the requester's grant is outdated or belongs to another lease */
};

typedef struct waiter {
    uint64_t id; /* control socket connection id */
    uint32_t what;
} waiter;

/* Connection to a peer's control socket; used by compute only. */
typedef struct peer_link {
    int fd; /* -1: not connected */
    bool asked[WHATS];
    int got[WHATS]; /* descriptors received while waiting for another kind; -1: none */
} peer_link;

struct gp_rendezvous {
    uint64_t lease;
    uint32_t generation;
    gp_grant grant;
    gp_mailbox *mailbox;

    pthread_mutex_t lock;

    /* duplicated descriptors, owned; -1: not published yet; protected by lock */
    int published[WHATS];

    waiter waiters[WAITERS_MAX]; /* used by control only */
    uint32_t waiter_count;

    gp_comm_member members[GP_MEMBERS_MAX]; /* the fields from here on are used by compute only */
    peer_link links[GP_MEMBERS_MAX];
};

gp_status gp_rendezvous_new(gp_rendezvous **out, uint64_t lease, uint32_t generation, const gp_grant *grant,
                            gp_mailbox *mailbox, gp_error *err)
{
    gp_rendezvous *r = gp_calloc(1, sizeof(*r));

    if (r == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for a group of %u workers", grant->members_count);
    r->lease = lease;
    r->generation = generation;
    r->grant = *grant;
    r->mailbox = mailbox;
    pthread_mutex_init(&r->lock, NULL);
    for (int what = 0; what < WHATS; what++)
        r->published[what] = -1;
    for (uint32_t rank = 0; rank < GP_MEMBERS_MAX; rank++) {
        r->links[rank].fd = -1;
        for (int what = 0; what < WHATS; what++)
            r->links[rank].got[what] = -1;
    }
    *out = r;
    return GP_OK;
}

void gp_rendezvous_free(gp_rendezvous *r)
{
    if (r == NULL)
        return;
    gp_rendezvous_end(r);
    pthread_mutex_destroy(&r->lock);
    gp_free(r);
}

/* ---- control thread ---- */

static void send_answer(gp_control_socket *control_socket, uint64_t id, uint32_t what, int fd)
{
    gp_control_socket_request answer = { .what = what };
    gp_error err;

    if (gp_control_socket_send_fd(gp_control_socket_peer_fd(control_socket, id), &answer, fd, &err) != GP_OK)
        gp_log(GP_LOG_INFO, "peer-unanswered", "cannot reply to a peer: %s", err.message);
}

/* Answer a request if the descriptor is published. Return whether the waiter can be removed. */
static bool waiter_answer(gp_rendezvous *r, gp_control_socket *control_socket, const waiter *w)
{
    int fd;

    if (gp_control_socket_peer_fd(control_socket, w->id) < 0)
        return true; /* the connection has ended */
    pthread_mutex_lock(&r->lock);
    fd = r->published[w->what];
    if (fd >= 0)
        /* send under the lock: compute may close the descriptor afterwards */
        send_answer(control_socket, w->id, w->what, fd);
    pthread_mutex_unlock(&r->lock);
    return fd >= 0;
}

void gp_rendezvous_serve(gp_rendezvous *r, gp_control_socket *control_socket, uint64_t id,
                         const gp_control_socket_request *request)
{
    waiter w = { .id = id, .what = request->what };

    if (r == NULL || request->lease != r->lease || request->generation != r->generation ||
        memcmp(request->token, r->grant.token, sizeof(request->token)) != 0 || request->what == WHAT_STALE ||
        request->what >= WHATS || r->waiter_count == WAITERS_MAX) {
        gp_log_event(GP_LOG_INFO, "peer-refused",
                     GP_LOG_WITH({ "lease", .number = (int64_t)request->lease },
                                 { "generation", .number = request->generation },
                                 { "what", .number = request->what }),
                     "rejected a request");
        send_answer(control_socket, id, WHAT_STALE, -1);
        return;
    }
    if (!waiter_answer(r, control_socket, &w))
        r->waiters[r->waiter_count++] = w;
}

void gp_rendezvous_answer(gp_rendezvous *r, gp_control_socket *control_socket)
{
    uint32_t kept = 0;

    if (r == NULL)
        return;
    for (uint32_t i = 0; i < r->waiter_count; i++)
        if (!waiter_answer(r, control_socket, &r->waiters[i]))
            r->waiters[kept++] = r->waiters[i];
    r->waiter_count = kept;
}

void gp_rendezvous_forget(gp_rendezvous *r, uint64_t id)
{
    uint32_t kept = 0;

    for (uint32_t i = 0; r != NULL && i < r->waiter_count; i++)
        if (r->waiters[i].id != id)
            r->waiters[kept++] = r->waiters[i];
    if (r != NULL)
        r->waiter_count = kept;
}

/* ---- compute thread ---- */

static gp_status publish(void *context, gp_comm_what what, int fd, gp_error *err)
{
    gp_rendezvous *r = context;
    int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0), old;

    if (copy < 0)
        return gp_fail_errno(err, GP_EIO, "a descriptor for the peers could not be kept");
    pthread_mutex_lock(&r->lock);
    old = r->published[what];
    r->published[what] = copy;
    pthread_mutex_unlock(&r->lock);
    if (old >= 0)
        close(old);
    gp_mailbox_wake(r->mailbox);
    return GP_OK;
}

static void link_close(peer_link *l)
{
    for (int what = 0; what < WHATS; what++) {
        if (l->got[what] >= 0)
            close(l->got[what]);
        l->got[what] = -1;
        l->asked[what] = false;
    }
    if (l->fd >= 0)
        close(l->fd);
    l->fd = -1;
}

/* Wait for a descriptor of kind `what`. Descriptors of other kinds that arrive first are stored
 * in l->got. */
static gp_status link_receive(peer_link *l, uint32_t what, int64_t deadline, int *fd, gp_error *err)
{
    while (l->got[what] < 0) {
        int64_t left = deadline - gp_now_ms();
        gp_control_socket_request answer;
        gp_status status;
        int came;

        status = gp_control_socket_receive_fd(l->fd, &answer, &came, left > 0 ? (int)left : 0, err);
        if (status != GP_OK)
            return status;
        if (answer.what == WHAT_STALE || answer.what >= WHATS || came < 0) {
            if (came >= 0)
                close(came);
            return gp_fail(err, GP_ESTALE, "the peer has another lease or generation");
        }
        if (l->got[answer.what] >= 0)
            close(l->got[answer.what]);
        l->got[answer.what] = came;
    }
    *fd = l->got[what];
    l->got[what] = -1;
    l->asked[what] = false;
    return GP_OK;
}

static gp_status fetch(void *context, uint32_t rank, gp_comm_what what, uint32_t timeout_ms, int *fd,
                       gp_error *err)
{
    int64_t deadline = gp_now_ms() + timeout_ms;
    gp_rendezvous *r = context;
    peer_link *l = &r->links[rank];
    gp_control_socket_hello hello = { .protocol_min = GP_PROTOCOL_MIN,
                                      .protocol_max = GP_PROTOCOL,
                                      .role = GP_ROLE_WORKER,
                                      .pid = (uint32_t)getpid() };
    gp_control_socket_request request = {
        .what = what, .lease = r->lease, .generation = r->generation, .rank = r->grant.rank
    };
    gp_control_socket_reply reply;
    gp_status status = GP_OK;

    if (rank == r->grant.rank) { /* published by this rank itself */
        pthread_mutex_lock(&r->lock);
        *fd = r->published[what] >= 0 ? fcntl(r->published[what], F_DUPFD_CLOEXEC, 0) : -1;
        pthread_mutex_unlock(&r->lock);
        return *fd >= 0 ? GP_OK : gp_fail(err, GP_ESTATE, "this rank has not published a descriptor");
    }
    if (l->fd < 0)
        status = gp_control_socket_connect(&l->fd, &reply, r->grant.members[rank].door, &hello,
                                           (int)(timeout_ms < CONNECT_MS ? timeout_ms : CONNECT_MS), err);
    /* A peer still has the request of an earlier fetch that timed out. */
    if (status == GP_OK && !l->asked[what]) {
        memcpy(request.token, r->grant.token, sizeof(request.token));
        status = gp_control_socket_send_fd(l->fd, &request, -1, err);
        l->asked[what] = status == GP_OK;
    }
    if (status == GP_OK)
        status = link_receive(l, what, deadline, fd, err);
    switch (status) {
    case GP_OK:
    case GP_ETIMEDOUT:
        return status;
    case GP_ESTALE:
        gp_error_prefix(err, "worker %u", r->grant.members[rank].index);
        link_close(l);
        return status;
    default:
        /* The control socket is closed or failing. The caller checks whether the peer process is
         * alive. Sleep 1 ms before the retry, to give the peer time to open a socket. */
        link_close(l);
        usleep(1000);
        return gp_fail(err, GP_ETIMEDOUT, "no reply from worker %u at %s", r->grant.members[rank].index,
                       r->grant.members[rank].door);
    }
}

static const gp_comm_rendezvous_ops rendezvous_ops = { .publish = publish, .fetch = fetch };

gp_status gp_rendezvous_begin(gp_rendezvous *r, uint32_t world, bool spin, gp_comm_rendezvous *out,
                              gp_error *err)
{
    if (world > r->grant.members_count || r->grant.rank >= world)
        return gp_fail(err, GP_EINVAL, "invalid training of %u workers for rank %u of a lease of %u", world,
                       r->grant.rank, r->grant.members_count);
    for (uint32_t rank = 0; rank < world; rank++) {
        const gp_slot *slot = &r->grant.members[rank];

        r->members[rank] =
            (gp_comm_member){ .index = slot->index, .pid = (pid_t)slot->pid, .start_time = slot->start_time };
    }
    *out = (gp_comm_rendezvous){
        .lease = r->lease,
        .generation = r->generation,
        .rank = r->grant.rank,
        .world = world,
        .members = r->members,
        .spin = spin,
        .ops = &rendezvous_ops,
        .context = r,
    };
    return GP_OK;
}

void gp_rendezvous_end(gp_rendezvous *r)
{
    pthread_mutex_lock(&r->lock);
    for (int what = 0; what < WHATS; what++) {
        if (r->published[what] >= 0)
            close(r->published[what]);
        r->published[what] = -1;
    }
    pthread_mutex_unlock(&r->lock);
    for (uint32_t rank = 0; rank < GP_MEMBERS_MAX; rank++)
        link_close(&r->links[rank]);
}
