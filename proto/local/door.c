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
#include "proto/local/door.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "common/base/memory/alloc.h"
#include "common/base/clock.h"
#include "proto/message/codec.h"
#include "proto/local/listen.h"
#include "proto/message/messages.h"

/* State of a connection slot; the diagram above shows the transitions. */
typedef enum stage { FREE, SILENT, KNOCKED, INSIDE } stage;

typedef struct connection {
    stage stage;
    int fd;
    uint64_t id; /* turn << 16 | index in the table */
    pid_t pid;
    uint32_t protocol;   /* common version */
    int64_t deadline_ms; /* SILENT: when the hello must have arrived */
    bool excused;        /* the deadline has been extended once */
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
struct gp_door {
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
    gp_door_stats stats;
};

static bool door_watch(gp_door *door, int fd, uint64_t tag)
{
    struct epoll_event event = { .events = EPOLLIN, .data.u64 = tag };

    return epoll_ctl(door->epoll, EPOLL_CTL_ADD, fd, &event) == 0;
}

gp_status gp_door_open(gp_door **out, const char *path, uint32_t peers_max, gp_error *err)
{
    if (peers_max == 0 || peers_max > PEERS_CEILING)
        return gp_fail(err, GP_EINVAL,
                       "invalid limit of %u peers for a control socket: must be between 1 and %d", peers_max,
                       PEERS_CEILING);
    gp_door *door = gp_calloc(1, sizeof(*door));

    if (door == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for the control socket %s", path);
    door->listener.fd = -1;
    door->peers_max = peers_max;
    door->connections = gp_calloc(peers_max, sizeof(*door->connections));
    door->epoll = epoll_create1(EPOLL_CLOEXEC);
    door->timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    door->spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
    gp_status status;

    if (door->connections == NULL)
        status = gp_fail(err, GP_ENOMEM, "no memory for a control socket with %u peers", peers_max);
    else if (door->epoll < 0 || door->timer < 0 || door->spare < 0)
        status = gp_fail_errno(err, GP_EIO, "cannot create the descriptors of the control socket %s", path);
    else
        status = gp_listener_open(&door->listener, path, SOCK_SEQPACKET, BACKLOG, err);
    if (status == GP_OK &&
        (!door_watch(door, door->timer, TAG_TIMER) || !door_watch(door, door->listener.fd, TAG_LISTENER)))
        status = gp_fail_errno(err, GP_EIO, "cannot poll the control socket %s", path);
    if (status != GP_OK) {
        gp_door_close(door);
        return status;
    }
    *out = door;
    return GP_OK;
}

static void fd_close(int fd)
{
    if (fd >= 0)
        close(fd);
}

void gp_door_close(gp_door *door)
{
    if (door == NULL)
        return;
    if (door->listener.fd >= 0)
        gp_listener_unlink(&door->listener);
    for (uint32_t i = 0; i < door->used; i++)
        if (door->connections[i].stage != FREE)
            close(door->connections[i].fd);
    fd_close(door->listener.fd);
    fd_close(door->spare);
    fd_close(door->timer);
    fd_close(door->epoll);
    gp_free(door->connections);
    gp_free(door);
}

int gp_door_fd(const gp_door *door)
{
    return door->epoll;
}

gp_door_stats gp_door_get_stats(const gp_door *door)
{
    return door->stats;
}

/* Return the open connection with this id; NULL: the id is no longer valid. */
static connection *connection_find(const gp_door *door, uint64_t id)
{
    connection *found = &door->connections[gp_door_place(id) % door->peers_max];

    return found->stage != FREE && found->id == id ? found : NULL;
}

uint32_t gp_door_place(uint64_t id)
{
    return id & 0xffff;
}

static void connection_free(gp_door *door, connection *peer)
{
    *peer = (connection){ .stage = FREE, .fd = -1, .next = door->free };
    door->free = (uint32_t)(peer - door->connections) + 1;
}

static void connection_close(gp_door *door, connection *peer)
{
    /* close() does not suffice if another process has a copy of the descriptor */
    epoll_ctl(door->epoll, EPOLL_CTL_DEL, peer->fd, NULL);
    close(peer->fd);
    connection_free(door, peer);
    door->stats.peers--;
}

/* Send a reply to a hello; never blocks. */
static void reply_send(int fd, gp_status status, uint32_t protocol, uint64_t epoch, const char *text)
{
    gp_door_reply reply = { .magic = GP_DOOR_MAGIC, .status = status, .protocol = protocol, .epoch = epoch };

    snprintf(reply.text, sizeof(reply.text), "%.*s", (int)sizeof(reply.text) - 1, text);

    /* Ignore errors: if the peer exited, end of file reports it. */
    (void)!send(fd, &reply, sizeof(reply), MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* Send a refusal that the peer can read even after this side has closed the connection. */
static void refuse_in_words(int fd, gp_status status, const char *text)
{
    char rest[sizeof(gp_door_request)];

    shutdown(fd, SHUT_RD);
    while (recv(fd, rest, sizeof(rest), MSG_DONTWAIT) > 0)
        ;
    reply_send(fd, status, GP_PROTOCOL, 0, text);
}

/* ---- timer ---- */

static void timer_set(gp_door *door, int64_t at_ms)
{
    struct itimerspec when = { .it_value = { at_ms / 1000, at_ms % 1000 * 1000000 } };

    /* cannot fail with these arguments */
    timerfd_settime(door->timer, TFD_TIMER_ABSTIME, &when, NULL);
}

/* Stop or resume accepting connections. */
static void listener_pause(gp_door *door, bool paused)
{
    struct epoll_event event = { .events = paused ? 0 : EPOLLIN, .data.u64 = TAG_LISTENER };

    door->paused = paused;
    epoll_ctl(door->epoll, EPOLL_CTL_MOD, door->listener.fd, &event);
}

/* Close connections whose hello is overdue, and set the timer for the next deadline. A sweep that
 * runs LATE_MS too late means that this process was suspended, and perhaps its peers too: it
 * extends the deadline once. */
static void door_sweep(gp_door *door)
{
    int64_t now_ms = gp_now_ms(), next_ms = INT64_MAX;
    uint64_t expirations;
    char byte;

    (void)!read(door->timer, &expirations, sizeof(expirations));
    for (uint32_t i = 0; i < door->used; i++) {
        connection *peer = &door->connections[i];

        if (peer->stage != SILENT)
            continue;
        if (peer->deadline_ms + LATE_MS < now_ms && !peer->excused) {
            peer->excused = true;
            peer->deadline_ms = now_ms + LATE_MS;
        }
        if (peer->deadline_ms <= now_ms && recv(peer->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 &&
            (errno == EAGAIN || errno == EINTR)) { /* the receive queue is empty */
            door->stats.refused++;
            connection_close(door, peer);
        } else if (peer->deadline_ms > now_ms && peer->deadline_ms < next_ms) {
            next_ms = peer->deadline_ms;
        }
    }
    if (door->paused)
        listener_pause(door, false);
    if (next_ms != INT64_MAX)
        timer_set(door, next_ms);
}

/* ---- accepting ---- */

/* Refuse a client although no descriptor is free: close the reserve descriptor and accept with
 * it. */
static void accept_exhausted(gp_door *door)
{
    fd_close(door->spare);
    int fd = accept4(door->listener.fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

    if (fd >= 0) {
        refuse_in_words(fd, GP_EBUSY,
                        "the daemon has no free file descriptors; close other clients and try again");
        close(fd);
        door->stats.refused++;
    }
    door->spare = open("/dev/null", O_RDONLY | O_CLOEXEC);

    /* another thread took the descriptor: pause instead of spinning */
    if (fd < 0 || door->spare < 0) {
        listener_pause(door, true);
        timer_set(door, gp_now_ms() + EXHAUSTED_PAUSE_MS);
    }
}

/* Register an accepted connection, or refuse it with a reason. */
static void connection_accept(gp_door *door, int fd)
{
    connection *peer = NULL;
    const char *refusal = NULL;
    gp_status status = GP_EBUSY;
    struct ucred who;
    socklen_t bytes = sizeof(who);

    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &bytes) != 0 || who.uid != geteuid()) {
        status = GP_EPERM;
        refusal = "permission denied: the pool belongs to another user";
    } else if (door->free == 0 && door->used == door->peers_max) {
        refusal = "the daemon has reached its limit of clients; close others and try again";
    } else {
        peer = &door->connections[door->free != 0 ? door->free - 1 : door->used++];
        if (door->free != 0)
            door->free = peer->next;
        *peer = (connection){ .stage = SILENT,
                              .fd = fd,
                              .pid = who.pid,
                              .id = ++door->turn << 16 | (uint64_t)(peer - door->connections),
                              .deadline_ms = gp_now_ms() + GP_DOOR_SILENCE_MS };
        if (!door_watch(door, fd, peer->id)) {
            connection_free(door, peer);
            refusal = "the daemon cannot poll another client; close others and try again";
        }
    }
    if (refusal != NULL) {
        refuse_in_words(fd, status, refusal);
        close(fd);
        door->stats.refused++;
        return;
    }
    door->stats.peers++;
    struct itimerspec now;

    if (timerfd_gettime(door->timer, &now) == 0 && now.it_value.tv_sec == 0 && now.it_value.tv_nsec == 0)
        timer_set(door, peer->deadline_ms);
}

/* ---- reading ---- */

static void connection_refuse(gp_door *door, connection *peer, gp_status status, const char *text)
{
    refuse_in_words(peer->fd, status, text);
    connection_close(door, peer);
}

/* Read and check the hello of a SILENT connection. Return true if *event is a KNOCK. */
static bool hello_read(gp_door *door, connection *peer, gp_door_event *event)
{
    struct {
        gp_door_hello hello;
        char more; /* nonempty if the packet is too long */
    } packet;
    ssize_t bytes = recv(peer->fd, &packet, sizeof(packet), MSG_DONTWAIT);
    gp_error err;

    if (bytes < 0 && (errno == EAGAIN || errno == EINTR))
        return false;
    if (bytes <= 0) {
        connection_close(door, peer);
        return false;
    }
    gp_door_hello *hello = &packet.hello;

    if (bytes != sizeof(*hello) || hello->magic != GP_DOOR_MAGIC || hello->role < GP_ROLE_CLIENT ||
        hello->role > GP_ROLE_SCHEDULER) {
        door->stats.refused++;
        connection_refuse(door, peer, GP_EPROTO, "malformed hello: this is not a gradpool client");
        return false;
    }
    if (gp_protocol_choose(&peer->protocol, hello->protocol_min, hello->protocol_max, &err) != GP_OK) {
        door->stats.refused++;
        connection_refuse(door, peer, err.code, err.message);
        return false;
    }

    /* Until the caller replies, wake up only if the peer hangs up. */
    struct epoll_event quiet = { .events = 0, .data.u64 = peer->id };

    epoll_ctl(door->epoll, EPOLL_CTL_MOD, peer->fd, &quiet);
    peer->stage = KNOCKED;
    *event =
        (gp_door_event){ .kind = GP_DOOR_KNOCK, .id = peer->id, .pid = peer->pid, .hello = *hello, .fd = -1 };
    return true;
}

/* Close a connection and report it as GONE. */
static bool peer_gone(gp_door *door, connection *peer, gp_door_event *event)
{
    *event = (gp_door_event){ .kind = GP_DOOR_GONE, .id = peer->id, .pid = peer->pid, .fd = -1 };
    connection_close(door, peer);
    return true;
}

/* Handle a readable connection. Return true if *event is set. */
static bool connection_read(gp_door *door, connection *peer, uint32_t events, gp_door_event *event)
{
    gp_door_request request;
    int fd = -1;

    if (peer->stage == SILENT)
        return hello_read(door, peer, event);
    if (peer->stage == KNOCKED)
        return (events & (EPOLLHUP | EPOLLERR)) != 0 && peer_gone(door, peer, event);
    gp_status status = gp_door_request_read(peer->fd, &request, &fd, NULL);

    if (status == GP_ETIMEDOUT)
        return false;
    if (status == GP_EPROTO)
        door->stats.refused++;
    if (status != GP_OK)
        return peer_gone(door, peer, event);
    *event = (gp_door_event){
        .kind = GP_DOOR_REQUEST, .id = peer->id, .pid = peer->pid, .request = request, .fd = fd
    };
    return true;
}

void gp_door_next(gp_door *door, gp_door_event *event)
{
    struct epoll_event ready;

    *event = (gp_door_event){ .kind = GP_DOOR_NOTHING, .fd = -1 };
    while (epoll_wait(door->epoll, &ready, 1, 0) == 1) {
        if (ready.data.u64 == TAG_LISTENER) {
            int fd = accept4(door->listener.fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

            /* other errors: the client has disconnected, or no connection is pending */
            if (fd >= 0)
                connection_accept(door, fd);
            else if (errno == EMFILE || errno == ENFILE)
                accept_exhausted(door);
        } else if (ready.data.u64 == TAG_TIMER) {
            door_sweep(door);
        } else {
            connection *peer = connection_find(door, ready.data.u64);

            if (peer != NULL && connection_read(door, peer, ready.events, event))
                return;
        }
    }
}

void gp_door_admit(gp_door *door, uint64_t id, uint64_t epoch)
{
    connection *peer = connection_find(door, id);
    struct epoll_event awake = { .events = EPOLLIN, .data.u64 = id };

    if (peer == NULL || peer->stage != KNOCKED)
        return;
    peer->stage = INSIDE;
    epoll_ctl(door->epoll, EPOLL_CTL_MOD, peer->fd, &awake);
    reply_send(peer->fd, GP_OK, peer->protocol, epoch, "");
}

void gp_door_refuse(gp_door *door, uint64_t id, gp_status status, const char *text)
{
    connection *peer = connection_find(door, id);

    if (peer != NULL)
        connection_refuse(door, peer, status, text);
}

void gp_door_drop(gp_door *door, uint64_t id)
{
    connection *peer = connection_find(door, id);

    if (peer != NULL)
        connection_close(door, peer);
}

int gp_door_peer_fd(const gp_door *door, uint64_t id)
{
    connection *peer = connection_find(door, id);

    return peer == NULL ? -1 : peer->fd;
}
