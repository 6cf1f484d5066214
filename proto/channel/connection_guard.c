/* Connection guard for listeners that serve other hosts (channel_parts.h). */
#include "proto/channel/channel_parts.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <zmq.h>

#include "common/base/memory/alloc.h"
#include "common/base/clock.h"
#include "common/base/system/timeout.h"
#include "common/base/text/log.h"
#include "proto/channel/zmq_monitor.h"

enum {
    LINKS_MAX = GP_REMOTE_LINKS_MAX,
    LINKS_SILENT_MAX = 256, /* connections without a first message */
    LINKS_KEY_MAX = 16,
    SILENCE_MS = 5000, /* limit from the connection to the first message */
    LOOK_MS = 50,
    MALFORMED_MAX = 10,
    /* the malformed count restarts after this time without a malformed message */
    FORGIVEN_MS = 60000,
    MUTE_MS = 10000,
    LOG_MS = 1000,
    RATE_MESSAGES = 1000, /* per second and key; up to RATE_BURST seconds at once */
    RATE_BYTES = 8 << 20,
    RATE_BURST = 4,
    RATE_DROPPED_MAX = 1000,
};

/* State of a TCP connection. */
typedef struct gate_link {
    int fd;            /* descriptor owned by ZeroMQ; -1: free entry */
    gp_timeout silent; /* deadline for the first message */
    uint64_t bytes;    /* bytes received up to the last message */
    bool spoke;
    bool ended; /* closed by the guard; ZeroMQ has not reported the end yet */
    char key[GP_KEY_TEXT];
    gp_peer peer; /* bytes is 0 before the first message */
} gate_link;

/* Rate and error counters of one key (token bucket). */
typedef struct gate_key {
    char key[GP_KEY_TEXT];  /* "": free entry */
    double messages, bytes; /* tokens available now */
    int64_t at_ms, malformed_ms;
    unsigned dropped, malformed;
} gate_key;

struct gp_connection_guard {
    gp_zmq_monitor monitor;
    gp_zap *zap;
    unsigned turned_away; /* expected disconnects of connections whose key was refused */
    uint16_t port;
    int64_t looked_ms;
    int64_t logged_ms, accept_logged_ms;
    unsigned unlogged; /* connections closed since the last log line */
    uint32_t high;     /* highest index in use, plus 1 */
    gate_link links[LINKS_MAX];
    gate_key keys[GP_ALLOWED_MAX];
    gp_peer gone[LINKS_MAX];
    uint32_t gone_first, gone_count;
    gp_connection_guard_stats stats;
};

/* Monitor events. ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL must never be among them: ZeroMQ 4.3.4 sends
 * it after it has found that a message was modified in transit and before it reads errno, which
 * sending the event can set to EAGAIN. It then keeps the connection without reading from it. If the
 * connection ends before its next heartbeat is due, the process aborts ("!_io_error"). Anyone who
 * can flip a bit on the network could cause this. */
enum {
    EVENTS = ZMQ_EVENT_ACCEPTED | ZMQ_EVENT_ACCEPT_FAILED | ZMQ_EVENT_DISCONNECTED |
             ZMQ_EVENT_HANDSHAKE_FAILED_AUTH
};

/* Log texts, by gp_cut. */
static const char *const cut_words[GP_CUTS] = { "no handshake before the deadline",
                                                "endless message",
                                                "malformed message",
                                                "too much data",
                                                "too many connections",
                                                "key removed from the list",
                                                "the peer reads no data" };

/* ---- connections ---- */

/* Return the entry with this descriptor; -1 finds a free entry. */
static gate_link *link_find(gp_connection_guard *guard, int fd)
{
    for (uint32_t i = 0; i < guard->high; i++)
        if (guard->links[i].fd == fd)
            return &guard->links[i];
    return NULL;
}

/* Free an entry, and queue the peer for gp_connection_guard_next_gone(). */
static void link_forget(gp_connection_guard *guard, gate_link *link)
{
    if (link->peer.bytes != 0 && guard->gone_count < LINKS_MAX)
        guard->gone[(guard->gone_first + guard->gone_count++) % LINKS_MAX] = link->peer;
    *link = (gate_link){ .fd = -1 };
    guard->stats.links--;
    while (guard->high > 0 && guard->links[guard->high - 1].fd < 0)
        guard->high--;
}

/* Return a copy of the descriptor if it is a connection to this listener, else -1. ZeroMQ may have
 * closed it since it was reported, and the number may belong to another file. */
static int link_copy(const gp_connection_guard *guard, int fd)
{
    int copy = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } here;
    socklen_t bytes = sizeof(here);

    if (copy < 0)
        return -1;
    if (getsockname(copy, &here.any, &bytes) == 0 &&
        ((here.any.sa_family == AF_INET && here.v4.sin_port == htons(guard->port)) ||
         (here.any.sa_family == AF_INET6 && here.v6.sin6_port == htons(guard->port))))
        return copy;
    close(copy);
    return -1;
}

/* Return the bytes received on a connection; 0: unknown. */
static uint64_t link_bytes(int copy)
{
    struct tcp_info info = { .tcpi_bytes_received = 0 };
    socklen_t bytes = sizeof(info);

    return getsockopt(copy, IPPROTO_TCP, TCP_INFO, &info, &bytes) == 0 ? info.tcpi_bytes_received : 0;
}

/* Count, log and shut down a connection by descriptor. */
static void fd_cut(gp_connection_guard *guard, int fd, gp_cut why, const char *key)
{
    gp_allowed owner = { .name = "an unknown key" };
    int copy = link_copy(guard, fd);

    guard->stats.cut[why]++;
    if (copy >= 0) {
        /* ZeroMQ sees the end of file, drops the connection and reports it */
        shutdown(copy, SHUT_RDWR);
        close(copy);
    }

    /* at most one log line per second */
    if (gp_now_ms() - guard->logged_ms < LOG_MS) {
        guard->unlogged++;
        return;
    }
    if (key[0] != '\0' && !gp_zap_find(guard->zap, key, &owner))
        snprintf(owner.name, sizeof(owner.name), "the key %.8s...", key);
    gp_log_event(GP_LOG_WARN, "connection-cut",
                 GP_LOG_WITH({ "key", .text = owner.name }, { "more", .number = guard->unlogged }),
                 "closed a connection from another host: %s", cut_words[why]);
    guard->logged_ms = gp_now_ms();
    guard->unlogged = 0;
}

/* Shut down a connection, and mute the key if the peer broke a message rule. */
static void link_cut(gp_connection_guard *guard, gate_link *link, gp_cut why)
{
    fd_cut(guard, link->fd, why, link->key);
    if (link->key[0] != '\0' && (why == GP_CUT_MALFORMED || why == GP_CUT_RATE || why == GP_CUT_ENDLESS))
        gp_zap_mute(guard->zap, link->key, MUTE_MS);
    link->ended = true;
}

/* Register a new connection. */
static void link_add(gp_connection_guard *guard, int fd)
{
    gate_link *link = link_find(guard, fd), *oldest = NULL;
    uint32_t silent = 0;

    if (link != NULL) /* the descriptor was reused */
        link_forget(guard, link);
    if (guard->stats.links == LINKS_MAX) {
        fd_cut(guard, fd, GP_CUT_CROWDED, "");
        return;
    }

    /* Close the oldest connection without a message, if there are LINKS_SILENT_MAX. A client needs
     * milliseconds for a handshake, so strangers can only keep it out by connecting faster than
     * that. */
    for (uint32_t i = 0; i < guard->high; i++) {
        link = &guard->links[i];
        if (link->fd < 0 || link->spoke || link->ended)
            continue;
        silent++;
        if (oldest == NULL || link->silent.end_ms < oldest->silent.end_ms)
            oldest = link;
    }
    if (silent >= LINKS_SILENT_MAX)
        link_cut(guard, oldest, GP_CUT_CROWDED);
    link = link_find(guard, -1);
    if (link == NULL)
        link = &guard->links[guard->high++];
    *link = (gate_link){ .fd = fd, .silent = gp_timeout_in(SILENCE_MS) };
    guard->stats.links++;
}

void gp_channel_cut(gp_channel *channel, const gp_peer *peer)
{
    gp_connection_guard *guard = channel->guard;

    for (uint32_t i = 0; guard != NULL && peer->bytes != 0 && i < guard->high; i++)
        if (guard->links[i].fd >= 0 && !guard->links[i].ended && gp_peer_equal(&guard->links[i].peer, peer)) {
            link_cut(guard, &guard->links[i], GP_CUT_UNREAD);
            return;
        }
}

bool gp_channel_next_gone(gp_channel *channel, gp_peer *out)
{
    gp_connection_guard *guard = channel->guard;

    if (guard == NULL || guard->gone_count == 0)
        return false;
    *out = guard->gone[guard->gone_first];
    guard->gone_first = (guard->gone_first + 1) % LINKS_MAX;
    guard->gone_count--;
    return true;
}

/* ---- events ---- */

/* Update the connection table for all pending monitor events. */
static void handle_events(gp_connection_guard *guard)
{
    gate_link *link;
    uint16_t event;
    uint32_t value;

    while (gp_zmq_monitor_next(&guard->monitor, &event, &value))
        switch (event) {
        case ZMQ_EVENT_ACCEPTED:
            guard->stats.accepted++;
            link_add(guard, (int)value);
            break;
        case ZMQ_EVENT_DISCONNECTED:
            link = link_find(guard, (int)value);
            if (link == NULL)
                break;
            if (!link->spoke && !link->ended) {
                bool known = guard->turned_away > 0;

                guard->turned_away -= known;
                guard->stats.failed += !known;
            }
            link_forget(guard, link);
            break;
        case ZMQ_EVENT_HANDSHAKE_FAILED_AUTH: /* the key list counts these */
            guard->turned_away++;
            break;
        case ZMQ_EVENT_ACCEPT_FAILED:
            guard->stats.failed++;

            /* log at most once per second: without descriptors the listener retries in a loop */
            if (gp_now_ms() - guard->accept_logged_ms < LOG_MS)
                break;
            guard->accept_logged_ms = gp_now_ms();
            gp_log(GP_LOG_WARN, "connection-refused", "cannot accept a connection: %s", strerror((int)value));
            break;
        default:
            break;
        }
}

/* ---- messages ---- */

/* Return the counters of a key. An unknown key replaces the key with the longest idle time. */
static gate_key *key_state(gp_connection_guard *guard, const char *key)
{
    gate_key *place = NULL;
    int64_t now = gp_now_ms();

    for (uint32_t i = 0; i < GP_ALLOWED_MAX; i++) {
        gate_key *at = &guard->keys[i];

        if (strcmp(at->key, key) == 0)
            return at;
        if (place == NULL || at->at_ms < place->at_ms) /* unused entries have time 0 */
            place = at;
    }
    *place =
        (gate_key){ .messages = RATE_MESSAGES * RATE_BURST, .bytes = RATE_BYTES * RATE_BURST, .at_ms = now };
    snprintf(place->key, sizeof(place->key), "%s", key);
    return place;
}

/* Return the token count after `seconds`, limited to a full bucket. */
static double refilled(double now, double rate, double seconds)
{
    double filled = now + rate * seconds;

    return filled < rate * RATE_BURST ? filled : rate * RATE_BURST;
}

/* Count a message of `bytes` against the rate of a key.
 *
 * GP_EBUSY: over the limit, drop the message.
 * GP_ELIMIT: RATE_DROPPED_MAX messages were dropped; disconnect. */
static gp_status rate_count(gp_connection_guard *guard, const char *key, size_t bytes)
{
    gate_key *state = key_state(guard, key);
    int64_t now = gp_now_ms();
    double seconds = (double)(now - state->at_ms) * 1e-3;

    state->at_ms = now;
    state->messages = refilled(state->messages, RATE_MESSAGES, seconds);
    state->bytes = refilled(state->bytes, RATE_BYTES, seconds);
    if (state->messages >= 1 && state->bytes >= 0) {
        state->messages -= 1;
        state->bytes -= (double)bytes;
        if (state->messages > RATE_MESSAGES)
            state->dropped = 0;
        return GP_OK;
    }
    guard->stats.over_rate++;
    if (++state->dropped < RATE_DROPPED_MAX)
        return GP_EBUSY;
    state->dropped = 0;
    return GP_ELIMIT;
}

/* Return the connection that `frame` came from; NULL: closed since. Process pending events first:
 * the connection may be new, or the descriptor reused. */
static gate_link *link_of(gp_connection_guard *guard, zmq_msg_t *frame)
{
    int fd = zmq_msg_get(frame, ZMQ_SRCFD), copy;
    gate_link *link;

    handle_events(guard);
    link = fd >= 0 ? link_find(guard, fd) : NULL;
    copy = link != NULL ? link_copy(guard, fd) : -1;
    if (copy >= 0) {
        link->bytes = link_bytes(copy);
        close(copy);
    }
    return link;
}

/* Return whether the connection is known to belong to this key and routing id. A message can wait
 * while its connection ends and the descriptor goes to another connection, which must not be
 * punished. */
static bool link_is(const gate_link *link, const char *key, const gp_peer *peer)
{
    return link != NULL && link->spoke && strcmp(link->key, key) == 0 && gp_peer_equal(&link->peer, peer);
}

gp_status gp_connection_guard_pass(gp_connection_guard *guard, void *frame, const gp_peer *peer, size_t bytes,
                                   gp_allowed *owner)
{
    /* The thread in zap.c sets User-Id; properties that the peer sends cannot overwrite it. */
    const char *key = zmq_msg_gets(frame, "User-Id");
    gate_link *link = link_of(guard, frame);
    uint32_t open = 0; /* connections with this key */
    gp_status rate;

    if (key == NULL || strlen(key) != GP_KEY_TEXT - 1)
        return GP_EPERM;
    if (!gp_zap_find(guard->zap, key, owner)) {
        if (link_is(link, key, peer) && !link->ended)
            link_cut(guard, link, GP_CUT_REVOKED);
        return GP_EPERM; /* a connection without an admitted message times out as silent */
    }
    if (link != NULL && link->ended)
        return GP_EPERM;
    if (link != NULL && !link->spoke) {
        memcpy(link->key, key, GP_KEY_TEXT);
        link->peer = *peer;
        link->spoke = true;
        for (uint32_t i = 0; i < guard->high; i++)
            open +=
                guard->links[i].fd >= 0 && !guard->links[i].ended && strcmp(guard->links[i].key, key) == 0;
        if (open > LINKS_KEY_MAX) {
            link_cut(guard, link, GP_CUT_CROWDED);
            return GP_EPERM;
        }
    }
    rate = rate_count(guard, key, bytes);
    if (rate == GP_ELIMIT && link_is(link, key, peer))
        link_cut(guard, link, GP_CUT_RATE);
    return rate == GP_OK ? GP_OK : GP_EBUSY;
}

void gp_connection_guard_offend(gp_connection_guard *guard, void *frame)
{
    const char *key = zmq_msg_gets(frame, "User-Id");
    gate_link *link = link_of(guard, frame);

    if (key == NULL || strlen(key) != GP_KEY_TEXT - 1)
        return;
    gate_key *state = key_state(guard, key);

    if (gp_now_ms() - state->malformed_ms > FORGIVEN_MS)
        state->malformed = 0;
    state->malformed_ms = gp_now_ms();
    if (++state->malformed < MALFORMED_MAX)
        return;
    state->malformed = 0;
    if (link != NULL && link->spoke && !link->ended && strcmp(link->key, key) == 0) {
        link_cut(guard, link, GP_CUT_MALFORMED);
        return;
    }

    /* the connection has sent no valid message and will time out as silent */
    guard->stats.cut[GP_CUT_MALFORMED]++;
    gp_zap_mute(guard->zap, key, MUTE_MS);
}

/* ---- periodic checks ---- */

/* Check one connection for silence, a removed key and an endless message. */
static void look_at(gp_connection_guard *guard, gate_link *link)
{
    gp_allowed owner;
    int copy;
    uint64_t bytes;

    if (link->ended)
        return;
    if (!link->spoke && gp_timeout_left(link->silent) == 0) {
        link_cut(guard, link, GP_CUT_SILENT);
        return;
    }
    if (link->key[0] != '\0' && !gp_zap_find(guard->zap, link->key, &owner)) {
        link_cut(guard, link, GP_CUT_REVOKED);
        return;
    }
    copy = link_copy(guard, link->fd);
    if (copy < 0) /* the connection has ended; the event will follow */
        return;
    bytes = link_bytes(copy);
    close(copy);
    if (bytes > link->bytes + GP_MESSAGE_BYTES_MAX)
        link_cut(guard, link, GP_CUT_ENDLESS);
}

void gp_channel_watch(gp_channel *channel)
{
    gp_connection_guard *guard = channel->guard;
    int64_t now = gp_now_ms();

    if (guard == NULL)
        return;
    handle_events(guard);
    if (guard->high == 0 || now - guard->looked_ms < LOOK_MS)
        return;
    guard->looked_ms = now;
    for (uint32_t i = guard->high; i-- > 0;)
        if (i < guard->high && guard->links[i].fd >= 0)
            look_at(guard, &guard->links[i]);
}

int gp_channel_poll_timeout_ms(const gp_channel *channel)
{
    const gp_connection_guard *guard = channel->guard;
    int64_t left = guard == NULL ? 0 : guard->looked_ms + LOOK_MS - gp_now_ms();

    return guard == NULL || guard->high == 0 ? -1 : left > 0 ? (int)left : 0;
}

int gp_channel_watch_fd(const gp_channel *channel)
{
    int fd = -1;
    size_t bytes = sizeof(fd);

    if (channel->guard != NULL)
        zmq_getsockopt(channel->guard->monitor.events, ZMQ_FD, &fd, &bytes);
    return fd;
}

gp_connection_guard_stats gp_channel_get_guard_stats(const gp_channel *channel)
{
    return channel->guard != NULL ? channel->guard->stats : (gp_connection_guard_stats){ .links = 0 };
}

/* ---- opening ---- */

gp_status gp_connection_guard_open(gp_connection_guard **out, void *router, gp_zap *zap, gp_error *err)
{
    gp_connection_guard *guard = gp_calloc(1, sizeof(*guard));

    if (guard == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for the connection guard");
    guard->zap = zap;
    for (int i = 0; i < LINKS_MAX; i++)
        guard->links[i].fd = -1;
    gp_status status =
        gp_zmq_monitor_open(&guard->monitor, router, EVENTS, "connections of other hosts", err);

    if (status != GP_OK) {
        gp_connection_guard_close(guard);
        return status;
    }
    *out = guard;
    return GP_OK;
}

void gp_connection_guard_set_port(gp_connection_guard *guard, uint16_t port)
{
    guard->port = port;
}

void gp_connection_guard_close(gp_connection_guard *guard)
{
    if (guard == NULL)
        return;
    gp_zmq_monitor_close(&guard->monitor);
    gp_free(guard);
}
