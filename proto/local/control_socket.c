/* Daemon side of the control socket.
 *
 * One epoll descriptor contains the listener, a timer and all connections, so a daemon has a single
 * descriptor to poll.
 *
 *   accept -> SILENT --hello--> KNOCKED --admit--> INSIDE
 *               |                  |
 *               | timeout (2 s),   | refuse
 *               | invalid hello    |
 *               v                  v
 *             closed            closed
 *
 * End of file in KNOCKED or INSIDE produces a GONE event; in SILENT it produces none.
 *
 * To refuse a peer, stop reading, drain the receive queue, send the reply, and close. If unread
 * bytes were left at close, the peer would get ECONNRESET instead of the reply. */
#include "proto/local/control_socket.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "common/base/memory/alloc.h"
#include "common/base/clock.h"
#include "proto/message/codec.h"
#include "proto/local/listen.h"
#include "proto/message/messages.h"

#ifndef SO_PEERPIDFD /* Linux 6.5 */
#define SO_PEERPIDFD 77
#endif

/* State of a connection slot; the diagram above shows the transitions. */
typedef enum stage { FREE, SILENT, KNOCKED, INSIDE } stage;

typedef struct connection {
    stage stage;
    int fd;
    uint64_t id; /* turn << 16 | index in the table */
    pid_t pid;
    uint32_t protocol;   /* common version */
    int64_t deadline_ms; /* SILENT: when the hello must have arrived */
    bool grace_used;     /* the deadline has been extended once */
    uint32_t next;       /* FREE: index of the next free slot plus 1; 0: none */
} connection;

/* Epoll tags. Connections use their id, which is at least 1 << 16. */
enum {
    TAG_LISTENER = 0,
    TAG_TIMER = 1,
    PEERS_CEILING = 65535,
    BACKLOG = 4096,
    EXHAUSTED_PAUSE_MS = 100,
    LATE_MS = 500
};

/* A listening control socket and all connections to it. */
struct gp_control_socket {
    gp_listener listener;
    int epoll, timer;

    /* reserve descriptor, closed for a short time to refuse a client when no other is left */
    int spare;

    /* true: the listener is out of epoll until the timer fires. */
    bool paused;

    /* The first `used` slots have been in use; the free ones among them form a list from `free`. */
    connection *connections;
    uint32_t peers_max, used, free;
    uint64_t turn;
    gp_control_socket_stats stats;
};

static bool socket_watch(gp_control_socket *control_socket, int fd, uint64_t tag)
{
    struct epoll_event event = { .events = EPOLLIN, .data.u64 = tag };

    return epoll_ctl(control_socket->epoll, EPOLL_CTL_ADD, fd, &event) == 0;
}

gp_status gp_control_socket_open(gp_control_socket **out, const char *path, uint32_t peers_max, gp_error *err)
{
    if (peers_max == 0 || peers_max > PEERS_CEILING)
        return gp_fail(err, GP_EINVAL,
                       "invalid limit of %u peers for a control socket: must be between 1 and %d", peers_max,
                       PEERS_CEILING);
    gp_control_socket *control_socket = gp_calloc(1, sizeof(*control_socket));

    if (control_socket == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for the control socket %s", path);
    control_socket->listener.fd = -1;
    control_socket->peers_max = peers_max;
    control_socket->connections = gp_calloc(peers_max, sizeof(*control_socket->connections));
    control_socket->epoll = epoll_create1(EPOLL_CLOEXEC);
    control_socket->timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    control_socket->spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
    gp_status status;

    if (control_socket->connections == NULL)
        status = gp_fail(err, GP_ENOMEM, "no memory for a control socket with %u peers", peers_max);
    else if (control_socket->epoll < 0 || control_socket->timer < 0 || control_socket->spare < 0)
        status = gp_fail_errno(err, GP_EIO, "cannot create the descriptors of the control socket %s", path);
    else
        status = gp_listener_open(&control_socket->listener, path, SOCK_SEQPACKET, BACKLOG, err);
    if (status == GP_OK && (!socket_watch(control_socket, control_socket->timer, TAG_TIMER) ||
                            !socket_watch(control_socket, control_socket->listener.fd, TAG_LISTENER)))
        status = gp_fail_errno(err, GP_EIO, "cannot poll the control socket %s", path);
    if (status != GP_OK) {
        gp_control_socket_close(control_socket);
        return status;
    }
    *out = control_socket;
    return GP_OK;
}

static void fd_close(int fd)
{
    if (fd >= 0)
        close(fd);
}

void gp_control_socket_close(gp_control_socket *control_socket)
{
    if (control_socket == NULL)
        return;
    if (control_socket->listener.fd >= 0)
        gp_listener_unlink(&control_socket->listener);
    for (uint32_t i = 0; i < control_socket->used; i++)
        if (control_socket->connections[i].stage != FREE)
            close(control_socket->connections[i].fd);
    fd_close(control_socket->listener.fd);
    fd_close(control_socket->spare);
    fd_close(control_socket->timer);
    fd_close(control_socket->epoll);
    gp_free(control_socket->connections);
    gp_free(control_socket);
}

int gp_control_socket_fd(const gp_control_socket *control_socket)
{
    return control_socket->epoll;
}

gp_control_socket_stats gp_control_socket_get_stats(const gp_control_socket *control_socket)
{
    return control_socket->stats;
}

/* Return the open connection with this id; NULL: the id is no longer valid. */
static connection *connection_find(const gp_control_socket *control_socket, uint64_t id)
{
    connection *found = &control_socket->connections[gp_control_socket_index(id) % control_socket->peers_max];

    return found->stage != FREE && found->id == id ? found : NULL;
}

uint32_t gp_control_socket_index(uint64_t id)
{
    return id & 0xffff;
}

static void connection_free(gp_control_socket *control_socket, connection *peer)
{
    *peer = (connection){ .stage = FREE, .fd = -1, .next = control_socket->free };
    control_socket->free = (uint32_t)(peer - control_socket->connections) + 1;
}

static void connection_close(gp_control_socket *control_socket, connection *peer)
{
    /* close() does not suffice if another process has a copy of the descriptor */
    epoll_ctl(control_socket->epoll, EPOLL_CTL_DEL, peer->fd, NULL);
    close(peer->fd);
    connection_free(control_socket, peer);
    control_socket->stats.peers--;
}

/* Send a reply to a hello; never blocks. */
static void reply_send(int fd, gp_status status, uint32_t protocol, uint64_t epoch, const char *text)
{
    gp_control_socket_reply reply = {
        .magic = GP_CONTROL_SOCKET_MAGIC, .status = status, .protocol = protocol, .epoch = epoch
    };

    snprintf(reply.text, sizeof(reply.text), "%.*s", (int)sizeof(reply.text) - 1, text);

    /* Ignore errors: if the peer exited, end of file reports it. */
    (void)!send(fd, &reply, sizeof(reply), MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* Send a refusal that the peer can read even after this side has closed the connection. */
static void refuse_in_words(int fd, gp_status status, const char *text)
{
    char rest[sizeof(gp_control_socket_request)];

    shutdown(fd, SHUT_RD);
    while (recv(fd, rest, sizeof(rest), MSG_DONTWAIT) > 0)
        ;
    reply_send(fd, status, GP_PROTOCOL, 0, text);
}

/* ---- timer ---- */

static void timer_set(gp_control_socket *control_socket, int64_t at_ms)
{
    struct itimerspec when = { .it_value = { at_ms / 1000, at_ms % 1000 * 1000000 } };

    /* cannot fail with these arguments */
    timerfd_settime(control_socket->timer, TFD_TIMER_ABSTIME, &when, NULL);
}

/* Stop or resume accepting connections. */
static void listener_pause(gp_control_socket *control_socket, bool paused)
{
    struct epoll_event event = { .events = paused ? 0 : EPOLLIN, .data.u64 = TAG_LISTENER };

    control_socket->paused = paused;
    epoll_ctl(control_socket->epoll, EPOLL_CTL_MOD, control_socket->listener.fd, &event);
}

/* ---- accepting ---- */

/* Refuse a client although no descriptor is free: close the reserve descriptor and accept with
 * it. */
static void accept_exhausted(gp_control_socket *control_socket)
{
    fd_close(control_socket->spare);
    int fd = accept4(control_socket->listener.fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

    if (fd >= 0) {
        refuse_in_words(fd, GP_EBUSY,
                        "the daemon has no free file descriptors; close other clients and try again");
        close(fd);
        control_socket->stats.refused++;
    }
    control_socket->spare = open("/dev/null", O_RDONLY | O_CLOEXEC);

    /* another thread took the descriptor: pause instead of spinning */
    if (fd < 0 || control_socket->spare < 0) {
        listener_pause(control_socket, true);
        timer_set(control_socket, gp_now_ms() + EXHAUSTED_PAUSE_MS);
    }
}

/* Register an accepted connection, or refuse it with a reason. */
static void connection_accept(gp_control_socket *control_socket, int fd)
{
    connection *peer = NULL;
    const char *refusal = NULL;
    gp_status status = GP_EBUSY;
    struct ucred who;
    socklen_t bytes = sizeof(who);

    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &bytes) != 0 || who.uid != geteuid()) {
        status = GP_EPERM;
        refusal = "permission denied: the pool belongs to another user";
    } else if (control_socket->free == 0 && control_socket->used == control_socket->peers_max) {
        refusal = "the daemon has reached its limit of clients; close others and try again";
    } else {
        peer =
            &control_socket
                 ->connections[control_socket->free != 0 ? control_socket->free - 1 : control_socket->used++];
        if (control_socket->free != 0)
            control_socket->free = peer->next;
        *peer =
            (connection){ .stage = SILENT,
                          .fd = fd,
                          .pid = who.pid,
                          .id = ++control_socket->turn << 16 | (uint64_t)(peer - control_socket->connections),
                          .deadline_ms = gp_now_ms() + GP_CONTROL_SOCKET_SILENCE_MS };
        if (!socket_watch(control_socket, fd, peer->id)) {
            connection_free(control_socket, peer);
            refusal = "the daemon cannot poll another client; close others and try again";
        }
    }
    if (refusal != NULL) {
        refuse_in_words(fd, status, refusal);
        close(fd);
        control_socket->stats.refused++;
        return;
    }
    control_socket->stats.peers++;
    struct itimerspec now;

    if (timerfd_gettime(control_socket->timer, &now) == 0 && now.it_value.tv_sec == 0 &&
        now.it_value.tv_nsec == 0)
        timer_set(control_socket, peer->deadline_ms);
}

/* ---- reading ---- */

static void connection_refuse(gp_control_socket *control_socket, connection *peer, gp_status status,
                              const char *text)
{
    refuse_in_words(peer->fd, status, text);
    connection_close(control_socket, peer);
}

/* Read and check the hello of a SILENT connection. Return true if *event is a HELLO. */
static bool hello_read(gp_control_socket *control_socket, connection *peer, gp_control_socket_event *event)
{
    struct {
        gp_control_socket_hello hello;
        char more; /* nonempty if the packet is too long */
    } packet;
    ssize_t bytes = recv(peer->fd, &packet, sizeof(packet), MSG_DONTWAIT);
    gp_error err;

    if (bytes < 0 && (errno == EAGAIN || errno == EINTR))
        return false;
    if (bytes <= 0) {
        connection_close(control_socket, peer);
        return false;
    }
    gp_control_socket_hello *hello = &packet.hello;

    if (bytes != sizeof(*hello) || hello->magic != GP_CONTROL_SOCKET_MAGIC || hello->role < GP_ROLE_CLIENT ||
        hello->role > GP_ROLE_SCHEDULER) {
        control_socket->stats.refused++;
        connection_refuse(control_socket, peer, GP_EPROTO, "malformed hello: this is not a gradpool client");
        return false;
    }
    if (gp_protocol_choose(&peer->protocol, hello->protocol_min, hello->protocol_max, &err) != GP_OK) {
        control_socket->stats.refused++;
        connection_refuse(control_socket, peer, err.code, err.message);
        return false;
    }

    /* Until the caller replies, wake up only if the peer hangs up. */
    struct epoll_event quiet = { .events = 0, .data.u64 = peer->id };

    epoll_ctl(control_socket->epoll, EPOLL_CTL_MOD, peer->fd, &quiet);
    peer->stage = KNOCKED;
    *event = (gp_control_socket_event){
        .kind = GP_CONTROL_SOCKET_HELLO, .id = peer->id, .pid = peer->pid, .hello = *hello, .fd = -1
    };
    return true;
}

/* Close a connection and report it as GONE. */
static bool peer_gone(gp_control_socket *control_socket, connection *peer, gp_control_socket_event *event)
{
    *event = (gp_control_socket_event){
        .kind = GP_CONTROL_SOCKET_GONE, .id = peer->id, .pid = peer->pid, .fd = -1
    };
    connection_close(control_socket, peer);
    return true;
}

/* Handle a readable connection. Return true if *event is set. */
static bool connection_read(gp_control_socket *control_socket, connection *peer, uint32_t events,
                            gp_control_socket_event *event)
{
    gp_control_socket_request request;
    int fd = -1;

    if (peer->stage == SILENT)
        return hello_read(control_socket, peer, event);
    if (peer->stage == KNOCKED)
        return (events & (EPOLLHUP | EPOLLERR)) != 0 && peer_gone(control_socket, peer, event);
    gp_status status = gp_control_socket_request_read(peer->fd, &request, &fd, NULL);

    if (status == GP_ETIMEDOUT)
        return false;
    if (status == GP_EPROTO)
        control_socket->stats.refused++;
    if (status != GP_OK)
        return peer_gone(control_socket, peer, event);
    *event = (gp_control_socket_event){
        .kind = GP_CONTROL_SOCKET_REQUEST, .id = peer->id, .pid = peer->pid, .request = request, .fd = fd
    };
    return true;
}

void gp_control_socket_next(gp_control_socket *control_socket, gp_control_socket_event *event)
{
    struct epoll_event ready;

    *event = (gp_control_socket_event){ .kind = GP_CONTROL_SOCKET_NOTHING, .fd = -1 };
    while (epoll_wait(control_socket->epoll, &ready, 1, 0) == 1) {
        if (ready.data.u64 == TAG_LISTENER) {
            int fd = accept4(control_socket->listener.fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

            /* other errors: the client has disconnected, or no connection is pending */
            if (fd >= 0)
                connection_accept(control_socket, fd);
            else if (errno == EMFILE || errno == ENFILE)
                accept_exhausted(control_socket);
        } else if (ready.data.u64 == TAG_TIMER) {
            /* Close connections whose hello is overdue, and set the timer for the next deadline. A
             * sweep that runs LATE_MS too late means that this process was suspended, and perhaps
             * the peers too: it extends the deadline once. */
            int64_t now_ms = gp_now_ms(), next_ms = INT64_MAX;
            uint64_t expirations;
            char byte;

            (void)!read(control_socket->timer, &expirations, sizeof(expirations));
            for (uint32_t i = 0; i < control_socket->used; i++) {
                connection *peer = &control_socket->connections[i];

                if (peer->stage != SILENT)
                    continue;
                if (peer->deadline_ms + LATE_MS < now_ms && !peer->grace_used) {
                    peer->grace_used = true;
                    peer->deadline_ms = now_ms + LATE_MS;
                }
                if (peer->deadline_ms <= now_ms && recv(peer->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 &&
                    (errno == EAGAIN || errno == EINTR)) { /* the receive queue is empty */
                    control_socket->stats.refused++;
                    connection_close(control_socket, peer);
                } else if (peer->deadline_ms > now_ms && peer->deadline_ms < next_ms) {
                    next_ms = peer->deadline_ms;
                }
            }
            if (control_socket->paused)
                listener_pause(control_socket, false);
            if (next_ms != INT64_MAX)
                timer_set(control_socket, next_ms);
        } else {
            connection *peer = connection_find(control_socket, ready.data.u64);

            if (peer != NULL && connection_read(control_socket, peer, ready.events, event))
                return;
        }
    }
}

void gp_control_socket_admit(gp_control_socket *control_socket, uint64_t id, uint64_t epoch)
{
    connection *peer = connection_find(control_socket, id);
    struct epoll_event awake = { .events = EPOLLIN, .data.u64 = id };

    if (peer == NULL || peer->stage != KNOCKED)
        return;
    peer->stage = INSIDE;
    epoll_ctl(control_socket->epoll, EPOLL_CTL_MOD, peer->fd, &awake);
    reply_send(peer->fd, GP_OK, peer->protocol, epoch, "");
}

void gp_control_socket_refuse(gp_control_socket *control_socket, uint64_t id, gp_status status,
                              const char *text)
{
    connection *peer = connection_find(control_socket, id);

    if (peer != NULL)
        connection_refuse(control_socket, peer, status, text);
}

void gp_control_socket_drop(gp_control_socket *control_socket, uint64_t id)
{
    connection *peer = connection_find(control_socket, id);

    if (peer != NULL)
        connection_close(control_socket, peer);
}

int gp_control_socket_peer_fd(const gp_control_socket *control_socket, uint64_t id)
{
    connection *peer = connection_find(control_socket, id);

    return peer == NULL ? -1 : peer->fd;
}

/* Before Linux 6.5, the pid could have been reused since the process connected. */
int gp_control_socket_peer_pidfd(const gp_control_socket *control_socket, uint64_t id)
{
    connection *peer = connection_find(control_socket, id);
    int pidfd = -1;
    socklen_t bytes = sizeof(pidfd);

    errno = EBADF;
    if (peer == NULL || peer->pid <= 0) /* pid 0: in a PID namespace that this process does not see */
        return -1;
    if (getsockopt(peer->fd, SOL_SOCKET, SO_PEERPIDFD, &pidfd, &bytes) != 0)
        pidfd = errno == ENOPROTOOPT ? (int)syscall(SYS_pidfd_open, peer->pid, 0) : -1;
    if (pidfd < 0 && errno == EINVAL) /* exited, by version of Linux, or the pid names a thread */
        errno = ESRCH;
    return pidfd;
}
