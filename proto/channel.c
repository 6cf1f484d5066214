/* channel.c -- every ZeroMQ bind and connect.
 *
 * What ZeroMQ does to the unwary, and what stands here against it (libzmq 4.3.4):
 *   zmq_bind unlinks and steals a live socket      our own socket, bound, renamed, handed over by ZMQ_USE_FD
 *   a ROUTER drops what it cannot send             ROUTER_MANDATORY: GP_EBUSY and GP_EPEER instead
 *   a DEALER queues for nobody                     IMMEDIATE: GP_EBUSY until the link is up
 *   accept() without descriptors aborts            soft limit raised to the hard one; accept.c in our daemons
 *   MAXMSGSIZE is per frame, HWM per message       frames are counted here; one that never ends can only come from
 *                                                  our own uid (0600 in 0700, uid filter), or is cut off (gate.c)
 *   CURVE lets any key in                          no listener without a list of keys, its domain enforced, and a test
 *                                                  with a wrong key before it serves
 *   LINGER for ever                                0, or what gp_channel_close() was given
 *   a silent peer                                  HANDSHAKE_IVL 2 s
 *
 * It stays whole, though it is long: each of these needs zmq.h, and that has one home. */
#include "proto/channel.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>
#include <zmq.h>

#include "common/base/alloc.h"
#include "common/base/buffer.h"
#include "common/base/clock.h"
#include "proto/gate.h"
#include "proto/listen.h"
#include "proto/messages.h"
#include "proto/zmq_context.h"

#ifndef ZMQ_ZAP_ENFORCE_DOMAIN /* a draft in the header, in force in the stock library */
#define ZMQ_ZAP_ENFORCE_DOMAIN 93
#endif

static_assert(sizeof(((gp_incoming *)0)->frames[0]) == sizeof(zmq_msg_t), "room for ZeroMQ's messages");

enum {
    BACKLOG = 4096,
    HANDSHAKE_MS = 2000,
    HEARTBEAT_MS = 500,
    HEARTBEAT_LOST_MS = 2000,
    HEARTBEAT_TTL_MS = 3000,
    RECONNECT_MS = 100,
    RECONNECT_MAX_MS = 1000,
    QUEUE_MESSAGES = 1000,
    REMOTE_QUEUE_MESSAGES = 64, /* of a peer on another host, each way */
    REMOTE_BACKLOG = 256,
    CONNECT_MS = 5000,
    SOCKETS_MAX = 1023,
    RECEIVE_TRIES = 64,
    SELF_TEST_MS = 5000,
    HANDSHAKES_FAILED_MAX = 3,
    CONNECTS_REFUSED_MAX = 4, /* within about a second */
};

/* What the monitor of a link to another host has told.  A handshake that ends is `failed` if the other side, or somebody on the
 * way, ended it, and `unanswered` if we did, when HANDSHAKE_MS were over (less, as we may hear late that it began). */
typedef struct link_story {
    void *monitor;
    bool connected, turned_away;
    int64_t connected_ms;
    int64_t ended_ms; /* the link ended then, and ZeroMQ has not said that it tries again; 0 = neither */
    bool broken;      /* it ended, since that was asked last */
    unsigned failed, unanswered, refused;
} link_story;

struct gp_channel {
    void *socket;
    bool router;
    gp_gate *gate; /* of one that listens for other hosts */
    size_t payload_bytes_max;
    gp_listener listener; /* of routers; its descriptor belongs to ZeroMQ once bound */
    bool listening;
    link_story story;         /* of a link to another host that is up: whether it broke */
    gp_buffer envelope, body; /* kept from send to send */
    gp_channel_stats stats;
};

/* ---- the process's context ---- */

static pthread_mutex_t context_lock = PTHREAD_MUTEX_INITIALIZER;
static void *context;
static unsigned context_users;

/* libzmq ends the process when its threads cannot have the descriptors that they need: so we look first. */
static bool descriptors_left(void)
{
    enum { NEEDED = 16 };
    int fds[NEEDED], count = 0;

    while (count < NEEDED && (fds[count] = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0)) >= 0)
        count++;
    bool enough = count == NEEDED || errno == EBADF; /* without a standard error there is nothing to copy */

    while (count > 0)
        close(fds[--count]);
    return enough;
}

void *gp_zmq_acquire(gp_error *err)
{
    if (!descriptors_left()) {
        gp_fail(err, GP_ELIMIT, "too few file descriptors are left for a ZeroMQ socket; raise ulimit -n");
        return NULL;
    }
    pthread_mutex_lock(&context_lock);
    if (context_users == 0) {
        context = zmq_ctx_new();
        if (context == NULL) {
            gp_fail_errno(err, GP_ELIMIT, "cannot make a ZeroMQ context");
        } else {
            zmq_ctx_set(context, ZMQ_BLOCKY, 0);
            zmq_ctx_set(context, ZMQ_MAX_SOCKETS, SOCKETS_MAX);
        }
    }
    void *acquired = context;

    if (acquired != NULL)
        context_users++;
    pthread_mutex_unlock(&context_lock);
    return acquired;
}

void gp_zmq_release(void)
{
    pthread_mutex_lock(&context_lock);
    assert(context_users > 0);
    if (--context_users == 0) {
        while (zmq_ctx_term(context) != 0 && errno == EINTR)
            ;
        context = NULL;
    }
    pthread_mutex_unlock(&context_lock);
}

/* ---- opening ---- */

static void descriptors_raise(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE,
                  &limit); /* refused: the old limit is in force, and the door knows how to say so */
    }
}

static bool option_set(void *socket, int option, int value)
{
    return zmq_setsockopt(socket, option, &value, sizeof(value)) == 0;
}

static gp_status channel_configure(gp_channel *channel, const gp_channel_options *options, gp_error *err)
{
    void *socket = channel->socket;
    int64_t frame_bytes_max = options->bulk ? GP_PAYLOAD_BYTES_MAX : GP_BODY_BYTES_MAX;
    uid_t uid = geteuid();
    bool done = option_set(socket, ZMQ_LINGER, 0) && option_set(socket, ZMQ_SNDHWM, QUEUE_MESSAGES) &&
                option_set(socket, ZMQ_RCVHWM, QUEUE_MESSAGES) &&
                option_set(socket, ZMQ_HANDSHAKE_IVL, HANDSHAKE_MS) &&
                zmq_setsockopt(socket, ZMQ_MAXMSGSIZE, &frame_bytes_max, sizeof(frame_bytes_max)) == 0;

    channel->payload_bytes_max = (size_t)frame_bytes_max;
    if (channel->router)
        done = done && option_set(socket, ZMQ_ROUTER_MANDATORY, 1) &&
               zmq_setsockopt(socket, ZMQ_IPC_FILTER_UID, &uid, sizeof(uid)) == 0;
    else
        done = done && option_set(socket, ZMQ_IMMEDIATE, 1) &&
               option_set(socket, ZMQ_RECONNECT_IVL, RECONNECT_MS) &&
               option_set(socket, ZMQ_RECONNECT_IVL_MAX, RECONNECT_MAX_MS);
    if (options->heartbeat)
        done = done && option_set(socket, ZMQ_HEARTBEAT_IVL, HEARTBEAT_MS) &&
               option_set(socket, ZMQ_HEARTBEAT_TIMEOUT, HEARTBEAT_LOST_MS) &&
               option_set(socket, ZMQ_HEARTBEAT_TTL, HEARTBEAT_TTL_MS);
    if (!done)
        return gp_fail(err, GP_EIO, "cannot set up a ZeroMQ socket: %s", zmq_strerror(errno));
    return GP_OK;
}

static bool text_set(void *socket, int option, const char *text)
{
    return zmq_setsockopt(socket, option, text, strlen(text)) == 0;
}

static gp_status channel_secure(gp_channel *channel, const gp_link_keys *curve, gp_error *err)
{
    void *socket = channel->socket;
    gp_status status = gp_curve_check(err);
    bool done;

    if (status != GP_OK)
        return status;
    if (curve == NULL || curve->own == NULL ||
        (channel->router ? curve->zap == NULL : curve->server_key == NULL))
        return gp_fail(err, GP_EPERM,
                       channel->router ? "CURVE without a list of keys would let any key in"
                                       : "CURVE without the other side's key proves nothing");
    done = text_set(socket, ZMQ_CURVE_SECRETKEY, curve->own->secret_key) &&
           text_set(socket, ZMQ_CURVE_PUBLICKEY, curve->own->public_key);
    if (channel->router)
        done = done && option_set(socket, ZMQ_CURVE_SERVER, 1) &&
               text_set(socket, ZMQ_ZAP_DOMAIN, GP_ZAP_DOMAIN) &&
               option_set(socket, ZMQ_ZAP_ENFORCE_DOMAIN, 1);
    else
        done = done && text_set(socket, ZMQ_CURVE_SERVERKEY, curve->server_key);
    return done ? GP_OK
                : gp_fail(err, GP_EUNSUPPORTED, "this libzmq does not take our keys or the list's domain: %s",
                          zmq_strerror(errno));
}

static gp_status channel_new(gp_channel **out, bool router, const gp_channel_options *options, gp_error *err)
{
    gp_channel *channel = gp_calloc(1, sizeof(*channel));

    if (channel == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for a channel");
    channel->router = router;
    channel->listener.fd = -1;
    gp_buffer_init(&channel->envelope, GP_ENVELOPE_BYTES_MAX);
    gp_buffer_init(&channel->body, GP_BODY_BYTES_MAX);
    void *shared = gp_zmq_acquire(err);

    if (shared == NULL) {
        gp_free(channel);
        return GP_ELIMIT;
    }
    channel->socket = zmq_socket(shared, router ? ZMQ_ROUTER : ZMQ_DEALER);
    gp_status status = channel->socket == NULL
                           ? gp_fail(err, GP_ELIMIT, "cannot make a ZeroMQ socket: %s", zmq_strerror(errno))
                           : channel_configure(channel, options, err);

    if (status == GP_OK && options->security == GP_SECURITY_CURVE)
        status = channel_secure(channel, options->curve, err);
    if (status != GP_OK) {
        gp_channel_close(channel, 0);
        return status;
    }
    *out = channel;
    return GP_OK;
}

/* ZeroMQ owns the listener's descriptor from a successful zmq_bind on, and never unlinks its path. */
static gp_status channel_listen(gp_channel *channel, const char *path, gp_error *err)
{
    char endpoint[GP_TEXT_ENDPOINT + 8];
    gp_status status = gp_listener_open(&channel->listener, path, SOCK_STREAM, BACKLOG, err);

    if (status != GP_OK)
        return status;
    channel->listening = true;
    snprintf(endpoint, sizeof(endpoint), "ipc://%s", path);
    if (!option_set(channel->socket, ZMQ_USE_FD, channel->listener.fd) ||
        zmq_bind(channel->socket, endpoint) != 0) {
        status = gp_fail(err, GP_EIO, "cannot listen at %s: %s", path, zmq_strerror(errno));
        close(channel->listener.fd);
    }
    return status;
}

gp_status gp_channel_bind(gp_channel **out, const char *path, const gp_channel_options *options,
                          gp_error *err)
{
    gp_channel *channel;
    gp_status status = channel_new(&channel, true, options, err);

    if (status != GP_OK)
        return status;
    descriptors_raise();
    status = channel_listen(channel, path, err);
    if (status != GP_OK) {
        gp_channel_close(channel, 0);
        return status;
    }
    *out = channel;
    return GP_OK;
}

/* ---- other hosts ---- */

bool gp_endpoint_is_remote(const char *endpoint)
{
    return strncmp(endpoint, "tcp://", 6) == 0;
}

gp_status gp_endpoint_check(const char *endpoint, bool to_listen, gp_error *err)
{
    const char *host = gp_endpoint_is_remote(endpoint) ? endpoint + 6 : "";
    const char *colon = strrchr(host, ':');
    size_t host_bytes = colon != NULL ? (size_t)(colon - host) : 0;
    size_t digits = colon != NULL ? strspn(colon + 1, "0123456789") : 0;
    long port = digits > 0 && digits <= 5 && colon[1 + digits] == '\0' ? strtol(colon + 1, NULL, 10) : -1;
    /* [::1] in brackets; names and addresses have no colon of their own. */
    bool bracketed = host_bytes > 2 && host[0] == '[' && host[host_bytes - 1] == ']';
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789.-_";
    bool sound = bracketed ? strspn(host + 1, "0123456789abcdefABCDEF:.%") == host_bytes - 2
                           : host_bytes > 0 && (strspn(host, plain) == host_bytes ||
                                                (to_listen && host_bytes == 1 && host[0] == '*'));

    if (sound && port >= (to_listen ? 0 : 1) && port <= 65535 && strlen(endpoint) < GP_TEXT_ENDPOINT)
        return GP_OK;
    return gp_fail(
        err, GP_EINVAL,
        to_listen
            ? "'%.120s' is nothing to listen at; use tcp://ADDRESS:PORT with an address of this host, or "
              "tcp://*:PORT for all of them"
            : "'%.120s' is nothing to connect to; use tcp://HOST:PORT",
        endpoint);
}

/* Knock with a key that nobody has: if that comes in, anybody does. */
static gp_status self_test(const char *bound, const gp_link_keys *curve, gp_error *err)
{
    char endpoint[GP_TEXT_ENDPOINT + 16];
    const char *port = strrchr(bound, ':');
    bool any = strncmp(bound, "tcp://0.0.0.0:", 14) == 0 || strncmp(bound, "tcp://[::]:", 11) == 0 ||
               strncmp(bound, "tcp://*:", 8) == 0;
    gp_key_pair stranger;
    gp_channel *knock = NULL;
    gp_error why;
    gp_status status = gp_key_new(&stranger, err);

    if (status != GP_OK)
        return status;
    snprintf(endpoint, sizeof(endpoint), any ? "tcp://127.0.0.1%s" : "%s", any ? port : bound);
    gp_link_keys wrong = { .own = &stranger, .server_key = curve->own->public_key };

    status = gp_channel_connect(&knock, endpoint,
                                &(gp_channel_options){ .security = GP_SECURITY_CURVE, .curve = &wrong },
                                SELF_TEST_MS, &why);
    gp_key_wipe(&stranger);
    if (status == GP_EPERM) {
        gp_zap_forgive(curve->zap);
        return GP_OK;
    }
    gp_channel_close(knock, 0);
    if (status == GP_ENOMEM)
        return gp_fail(err, status, "%s", why.message);
    return status == GP_OK
               ? gp_fail(err, GP_EINTERNAL,
                         "a key that is on no list was let in at %s: nothing is served there", bound)
               : gp_fail(err, GP_EINTERNAL,
                         "the test whether wrong keys are turned away at %s failed: %.160s", bound,
                         why.message);
}

static gp_status remote_bind(gp_channel *channel, const char *endpoint, char bound[GP_TEXT_ENDPOINT],
                             gp_error *err)
{
    size_t bytes = GP_TEXT_ENDPOINT;
    bool wide = endpoint[6] == '[' || endpoint[6] == '*'; /* else it would be shown as [::ffff:10.0.0.5] */
    bool done = option_set(channel->socket, ZMQ_IPV6, wide) &&
                option_set(channel->socket, ZMQ_BACKLOG, REMOTE_BACKLOG);

    if (!done || zmq_bind(channel->socket, endpoint) != 0)
        return gp_fail(err,
                       errno == EADDRINUSE ? GP_EBUSY
                       : errno == EACCES   ? GP_EPERM
                                           : GP_EINVAL,
                       "cannot listen at %s: %s%s", endpoint, zmq_strerror(errno),
                       errno == ENODEV || errno == EADDRNOTAVAIL ? "; it must be an address of this host"
                                                                 : "");
    if (zmq_getsockopt(channel->socket, ZMQ_LAST_ENDPOINT, bound, &bytes) != 0 || strrchr(bound, ':') == NULL)
        return gp_fail(err, GP_EIO, "cannot tell where %s is: %s", endpoint, zmq_strerror(errno));
    gp_gate_set_port(channel->gate, (uint16_t)strtol(strrchr(bound, ':') + 1, NULL, 10));
    return GP_OK;
}

gp_status gp_channel_listen(gp_channel **out, const char *endpoint, const gp_channel_options *options,
                            char bound[GP_TEXT_ENDPOINT], gp_error *err)
{
    gp_channel *channel;
    gp_status status = gp_endpoint_check(endpoint, true, err);

    if (status != GP_OK)
        return status;
    if (options->security != GP_SECURITY_CURVE)
        return gp_fail(err, GP_EPERM,
                       "cannot listen at %s without CURVE: whoever reaches the port could do anything",
                       endpoint);
    status = channel_new(&channel, true, options, err);
    if (status != GP_OK)
        return status;
    descriptors_raise();
    int64_t frame_bytes_max = GP_REMOTE_FRAME_BYTES_MAX;

    if (zmq_setsockopt(channel->socket, ZMQ_MAXMSGSIZE, &frame_bytes_max, sizeof(frame_bytes_max)) != 0 ||
        !option_set(channel->socket, ZMQ_RCVHWM, REMOTE_QUEUE_MESSAGES) ||
        !option_set(channel->socket, ZMQ_SNDHWM, REMOTE_QUEUE_MESSAGES))
        status = gp_fail(err, GP_EIO, "cannot set up a ZeroMQ socket: %s", zmq_strerror(errno));
    if (status == GP_OK)
        status = gp_gate_open(&channel->gate, channel->socket, options->curve->zap, err);
    if (status == GP_OK)
        status = remote_bind(channel, endpoint, bound, err);
    if (status == GP_OK)
        status = self_test(bound, options->curve, err);
    if (status != GP_OK) {
        gp_channel_close(channel, 0);
        return status;
    }
    *out = channel;
    return GP_OK;
}

/* ---- dialling ---- */

static void story_hear(link_story *story)
{
    zmq_msg_t frame;

    for (;;) {
        uint16_t event = 0;

        zmq_msg_init(&frame);
        if (zmq_msg_recv(&frame, story->monitor, ZMQ_DONTWAIT) < 0) {
            zmq_msg_close(&frame);
            return;
        }
        if (zmq_msg_more(&frame) && zmq_msg_size(&frame) >= sizeof(event))
            memcpy(&event, zmq_msg_data(&frame), sizeof(event));
        zmq_msg_close(&frame);
        if (event == ZMQ_EVENT_CONNECTED) {
            story->connected = true;
            story->connected_ms = gp_now_ms();
        }
        story->broken |= event == ZMQ_EVENT_DISCONNECTED;
        if (event == ZMQ_EVENT_DISCONNECTED)
            story->ended_ms = gp_now_ms();
        else if (event == ZMQ_EVENT_CONNECT_RETRIED || event == ZMQ_EVENT_CONNECT_DELAYED ||
                 event == ZMQ_EVENT_CONNECTED)
            story->ended_ms = 0;
        story->refused += event == ZMQ_EVENT_CONNECT_RETRIED;
        story->turned_away |= event == ZMQ_EVENT_HANDSHAKE_FAILED_AUTH;
        if (event == ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL &&
            gp_now_ms() - story->connected_ms >= HANDSHAKE_MS / 2)
            story->unanswered++;
        else if (event == ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL ||
                 event == ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL)
            story->failed++;
    }
}

static gp_status story_begin(link_story *story, void *socket, int events, gp_error *err)
{
    static _Atomic unsigned serial;
    char address[64];
    int none = 0;
    void *shared = gp_zmq_acquire(err);

    if (shared == NULL)
        return GP_ELIMIT;
    snprintf(address, sizeof(address), "inproc://gradpool.dial.%u", ++serial);
    story->monitor = zmq_socket(shared, ZMQ_PAIR);
    if (story->monitor != NULL && zmq_socket_monitor(socket, address, events) == 0 &&
        zmq_setsockopt(story->monitor, ZMQ_LINGER, &none, sizeof(none)) == 0 &&
        zmq_setsockopt(story->monitor, ZMQ_RCVHWM, &none, sizeof(none)) == 0 &&
        zmq_connect(story->monitor, address) == 0)
        return GP_OK;
    gp_fail(err, GP_ELIMIT, "cannot watch a link: %s", zmq_strerror(errno));
    if (story->monitor != NULL)
        zmq_close(story->monitor);
    story->monitor = NULL;
    gp_zmq_release();
    return GP_ELIMIT;
}

static void story_end(link_story *story, void *socket)
{
    if (story->monitor == NULL)
        return;
    zmq_socket_monitor(socket, NULL, 0);
    zmq_close(story->monitor);
    gp_zmq_release();
}

/* GP_OK: nothing is known that makes waiting useless. */
static gp_status story_judge(const link_story *story, const char *endpoint, bool time_is_over, int timeout_ms,
                             bool *unproved, gp_error *err)
{
    bool ended = story->failed > 0 && story->failed + story->unanswered >= HANDSHAKES_FAILED_MAX;

    if (story->turned_away)
        return gp_fail(
            err, GP_EPERM,
            "the pool at %s turns this key away: it is not on its list (`gradpool key add` there), was "
            "removed, or has offended",
            endpoint);
    if (ended || (time_is_over && story->failed > 0)) {
        *unproved = true;
        return gp_fail(
            err, GP_EPERM,
            "%s does not prove to be the pool whose key was given: --server-key-file is another pool's, its "
            "key was rotated, something else listens there, or the network ends connections",
            endpoint);
    }
    if (story->unanswered >= HANDSHAKES_FAILED_MAX || (time_is_over && story->connected))
        return gp_fail(err, GP_EPEER, "%s takes connections and says nothing", endpoint);
    if (story->refused >= CONNECTS_REFUSED_MAX && !story->connected)
        return gp_fail(err, GP_EPEER, "nobody listens at %s", endpoint);
    if (time_is_over)
        return gp_fail(err, GP_EPEER, "nobody answered at %s for %d ms", endpoint, timeout_ms);
    return GP_OK;
}

/* ZeroMQ redials a link that broke, but not one on which it saw a wrong byte: a network that changed it would be waited for in vain. */
static void story_redial(link_story *story, void *socket, const char *endpoint)
{
    if (story->ended_ms == 0 || gp_now_ms() - story->ended_ms < RECONNECT_MS)
        return;
    story->ended_ms = 0;
    zmq_disconnect(socket, endpoint); /* nothing is left of it, perhaps */
    zmq_connect(socket, endpoint);
}

static gp_status link_wait(gp_channel *channel, const char *endpoint, link_story *story, int timeout_ms,
                           bool *unproved, gp_error *err)
{
    int64_t deadline_ms = gp_now_ms() + timeout_ms;
    zmq_pollitem_t items[2] = { { .socket = channel->socket, .events = ZMQ_POLLOUT },
                                { .socket = story->monitor, .events = ZMQ_POLLIN } };

    for (;;) {
        int64_t left = deadline_ms - gp_now_ms(), wait = left > 0 ? left : 0;

        if (story->ended_ms != 0 && wait > RECONNECT_MS)
            wait = RECONNECT_MS;
        int ready = zmq_poll(items, story->monitor != NULL ? 2 : 1, wait);
        gp_status status;

        if (ready > 0 && items[0].revents != 0)
            return GP_OK;
        if (ready < 0 && errno != EINTR)
            return gp_fail(err, GP_EIO, "cannot wait for %s: %s", endpoint, zmq_strerror(errno));
        if (story->monitor != NULL) {
            story_hear(story);
            story_redial(story, channel->socket, endpoint);
        }
        status = story_judge(story, endpoint, ready == 0 && left <= 0, timeout_ms, unproved, err);
        if (status != GP_OK)
            return status;
    }
}

static gp_status endpoint_allowed(const char *endpoint, const gp_channel_options *options, gp_error *err)
{
    if (strncmp(endpoint, "ipc://", 6) == 0)
        return gp_unix_path_check(endpoint + 6, err);
    if (!gp_endpoint_is_remote(endpoint))
        return gp_fail(err, GP_EUNSUPPORTED,
                       "cannot connect to '%.120s': endpoints are of the form ipc://PATH or tcp://HOST:PORT",
                       endpoint);
    if (options->security != GP_SECURITY_CURVE)
        return gp_fail(
            err, GP_EPERM,
            "cannot connect to %.120s without CURVE: whoever is on the way could read and change all",
            endpoint);
    return gp_endpoint_check(endpoint, false, err);
}

gp_status gp_channel_connect(gp_channel **out, const char *endpoint, const gp_channel_options *options,
                             int timeout_ms, gp_error *err)
{
    gp_channel *channel;
    link_story story = { .monitor = NULL };
    bool unproved = false;
    gp_status status = endpoint_allowed(endpoint, options, err);

    if (status != GP_OK)
        return status;
    status = channel_new(&channel, false, options, err);
    if (status != GP_OK)
        return status;
    if (gp_endpoint_is_remote(endpoint)) {
        option_set(channel->socket, ZMQ_IPV6, 1);
        option_set(channel->socket, ZMQ_CONNECT_TIMEOUT, CONNECT_MS);
        status = timeout_ms > 0 ? story_begin(&story, channel->socket, ZMQ_EVENT_ALL, err) : GP_OK;
    }
    if (status == GP_OK && zmq_connect(channel->socket, endpoint) != 0)
        status = gp_fail(err, GP_EIO, "cannot connect to %s: %s", endpoint, zmq_strerror(errno));
    if (status == GP_OK && timeout_ms > 0)
        status = link_wait(channel, endpoint, &story, timeout_ms, &unproved, err);
    story_end(&story, channel->socket);
    if (options->unproved != NULL)
        *options->unproved = unproved;
    if (status != GP_OK) {
        gp_channel_close(channel, 0);
        return status;
    }
    /* What is told of handshakes is not asked for any more: gate.c says what that can do.  Without it a break is found later. */
    if (story.monitor != NULL)
        story_begin(&channel->story, channel->socket, ZMQ_EVENT_DISCONNECTED, NULL);
    *out = channel;
    return GP_OK;
}

bool gp_channel_broke(gp_channel *channel)
{
    if (channel->story.monitor == NULL)
        return false;
    story_hear(&channel->story);
    bool broke = channel->story.broken;

    channel->story.broken = false;
    return broke;
}

void gp_channel_close(gp_channel *channel, int drain_ms)
{
    if (channel == NULL)
        return;
    story_end(&channel->story, channel->socket);
    if (channel->listening)
        gp_listener_unlink(&channel->listener);
    gp_gate_close(channel->gate);
    if (channel->socket != NULL) {
        option_set(channel->socket, ZMQ_LINGER, drain_ms > 0 ? drain_ms : 0);
        zmq_close(channel->socket);
    }
    gp_zmq_release();
    gp_buffer_deinit(&channel->envelope);
    gp_buffer_deinit(&channel->body);
    gp_free(channel);
}

/* ---- sending ---- */

enum { FRAMES_MAX = GP_PAYLOADS_MAX + 3 }; /* routing id, envelope, body, payloads */

typedef struct outgoing {
    zmq_msg_t frames[FRAMES_MAX];
    unsigned count;
} outgoing;

static void payload_release(const gp_payload *payload)
{
    if (payload->release != NULL)
        payload->release((void *)(uintptr_t)payload->data, payload->hint);
}

static gp_status frame_copy(outgoing *out, const void *data, size_t bytes, gp_error *err)
{
    zmq_msg_t *frame = &out->frames[out->count];

    if (zmq_msg_init_size(frame, bytes) != 0)
        return gp_fail(err, GP_ENOMEM, "no memory for a frame of %zu bytes", bytes);
    if (bytes != 0)
        memcpy(zmq_msg_data(frame), data, bytes);
    out->count++;
    return GP_OK;
}

/* From a success on, closing or sending the frame releases the payload. */
static gp_status frame_payload(outgoing *out, const gp_payload *payload, gp_error *err)
{
    if (payload->release == NULL)
        return frame_copy(out, payload->data, payload->bytes, err);
    zmq_msg_t *frame = &out->frames[out->count];

    if (zmq_msg_init_data(frame, (void *)(uintptr_t)payload->data, payload->bytes, payload->release,
                          payload->hint) != 0)
        return gp_fail(err, GP_ENOMEM, "no memory for a frame");
    out->count++;
    return GP_OK;
}

static gp_status payloads_check(const gp_channel *channel, const gp_payload *payloads, size_t count,
                                gp_error *err)
{
    if (count > GP_PAYLOADS_MAX)
        return gp_fail(err, GP_ELIMIT, "a message of %zu payloads; at most %u are allowed", count,
                       GP_PAYLOADS_MAX);
    for (size_t i = 0; i < count; i++)
        if (payloads[i].bytes > channel->payload_bytes_max)
            return gp_fail(err, GP_ELIMIT, "payload %zu has %zu bytes; at most %zu are allowed on this link",
                           i + 1, payloads[i].bytes, channel->payload_bytes_max);
    return GP_OK;
}

/* All frames before any is sent: what can fail must fail while nothing is on the wire. */
static gp_status outgoing_build(outgoing *out, gp_channel *channel, const gp_peer *peer,
                                const gp_payload *payloads, size_t count, gp_error *err)
{
    gp_status status = GP_OK;
    size_t taken = 0;

    if (channel->router)
        status = frame_copy(out, peer->id, peer->bytes, err);
    if (status == GP_OK)
        status = frame_copy(out, channel->envelope.data, channel->envelope.bytes, err);
    if (status == GP_OK)
        status = frame_copy(out, channel->body.data, channel->body.bytes, err);
    for (; taken < count && status == GP_OK; taken++) {
        status = frame_payload(out, &payloads[taken], err);
        if (status != GP_OK)
            break;
    }
    for (size_t i = taken; i < count; i++)
        payload_release(&payloads[i]);
    return status;
}

static gp_status send_failure(gp_channel *channel, gp_error *err)
{
    switch (errno) {
    case EAGAIN:
        channel->stats.busy++;
        return gp_fail(err, GP_EBUSY,
                       channel->router ? "the queue to the peer is full"
                                       : "the link is not up, or its queue is full");
    case EHOSTUNREACH:
        return gp_fail(err, GP_EPEER, "the peer is gone");
    default:
        return gp_fail(err, GP_EIO, "cannot send: %s", zmq_strerror(errno));
    }
}

/* Only the first frame can be refused: after it ZeroMQ has chosen a pipe with room for the message. */
static gp_status outgoing_send(outgoing *out, gp_channel *channel, gp_error *err)
{
    gp_status status = GP_OK;
    unsigned sent = 0;

    while (sent < out->count && status == GP_OK) {
        int flags = ZMQ_DONTWAIT | (sent + 1 < out->count ? ZMQ_SNDMORE : 0);

        if (zmq_msg_send(&out->frames[sent], channel->socket, flags) >= 0)
            sent++;
        else if (errno != EINTR)
            status = send_failure(channel, err);
    }
    for (; sent < out->count; sent++)
        zmq_msg_close(&out->frames[sent]);
    return status;
}

gp_status gp_channel_send(gp_channel *channel, const gp_peer *peer, const gp_envelope *envelope,
                          const gp_message_type *type, const void *message, const gp_payload *payloads,
                          size_t payload_count, gp_error *err)
{
    gp_envelope filled = *envelope;
    outgoing out = { .count = 0 };

    assert(channel->router == (peer != NULL));
    filled.message = type->id;
    gp_buffer_clear(&channel->envelope);
    gp_buffer_clear(&channel->body);
    gp_status status = payloads_check(channel, payloads, payload_count, err);

    if (status == GP_OK)
        status = gp_message_encode(&channel->body, type, message, err);
    if (status == GP_OK)
        status = gp_envelope_encode(&channel->envelope, &filled, err);
    if (status != GP_OK) {
        for (size_t i = 0; i < payload_count; i++)
            payload_release(&payloads[i]);
        return status;
    }
    status = outgoing_build(&out, channel, peer, payloads, payload_count, err);
    if (status != GP_OK) {
        while (out.count > 0)
            zmq_msg_close(&out.frames[--out.count]);
        return status;
    }
    status = outgoing_send(&out, channel, err);
    if (status == GP_OK)
        channel->stats.sent++;
    return status;
}

gp_status gp_channel_reply_error(gp_channel *channel, const gp_peer *peer, const gp_envelope *to,
                                 const gp_error *error, uint32_t worker, gp_error *err)
{
    gp_envelope envelope = {
        .correlation = to->correlation, .epoch = to->epoch, .lease = to->lease, .generation = to->generation
    };
    gp_error_reply reply = { .code = error->code, .worker = worker };

    static_assert(sizeof(reply.message) == sizeof(error->message), "a reply holds any error");
    memcpy(reply.message, error->message, sizeof(reply.message));
    return gp_channel_send(channel, channel->router ? peer : NULL, &envelope, &gp_msg_error_reply, &reply,
                           NULL, 0, err);
}

/* ---- receiving ---- */

bool gp_peer_equal(const gp_peer *a, const gp_peer *b)
{
    return a->remote == b->remote && a->bytes == b->bytes && memcmp(a->id, b->id, a->bytes) == 0;
}

static zmq_msg_t *incoming_frame(gp_incoming *in, uint32_t i)
{
    return (zmq_msg_t *)(void *)in->frames[i].bytes;
}

/* Read what is left of a message that is too long, one frame at a time; the bytes go as they come. */
static void rest_drop(gp_channel *channel, bool is_first)
{
    zmq_msg_t frame;
    bool more = true;

    while (more) {
        zmq_msg_init(&frame);
        if (zmq_msg_recv(&frame, channel->socket, ZMQ_DONTWAIT) >= 0)
            more = zmq_msg_more(&frame);
        else if (errno != EINTR)
            more = false;
        if (is_first && channel->gate != NULL)
            gp_gate_offend(channel->gate, &frame);
        is_first = false;
        zmq_msg_close(&frame);
    }
}

/* The routing id of a router's message.  GP_EPROTO: refused, reason in *why; GP_ETIMEDOUT; GP_EIO. */
static gp_status peer_receive(gp_channel *channel, gp_incoming *in, const char **why)
{
    zmq_msg_t frame;
    gp_status status = GP_OK;

    zmq_msg_init(&frame);
    if (zmq_msg_recv(&frame, channel->socket, ZMQ_DONTWAIT) < 0) {
        status = errno == EAGAIN || errno == EINTR ? GP_ETIMEDOUT : GP_EIO;
    } else if (zmq_msg_size(&frame) > sizeof(in->peer.id)) {
        rest_drop(channel, true);
        *why = "the peer chose a routing id over 32 bytes";
        status = GP_EPROTO;
    } else {
        in->peer.bytes = (uint8_t)zmq_msg_size(&frame);
        in->peer.remote = channel->gate != NULL;
        memcpy(in->peer.id, zmq_msg_data(&frame), in->peer.bytes);
    }
    zmq_msg_close(&frame);
    return status;
}

static gp_status frames_receive(gp_channel *channel, gp_incoming *in, const char **why)
{
    for (;;) {
        zmq_msg_t *frame = incoming_frame(in, in->frame_count);

        zmq_msg_init(frame);
        if (zmq_msg_recv(frame, channel->socket, ZMQ_DONTWAIT) < 0) {
            zmq_msg_close(frame);
            if (errno == EINTR && in->frame_count > 0)
                continue;
            return errno == EAGAIN || errno == EINTR ? GP_ETIMEDOUT : GP_EIO;
        }
        in->frame_count++;
        if (!zmq_msg_more(frame))
            return GP_OK;
        if (in->frame_count == GP_PAYLOADS_MAX + 2) {
            rest_drop(channel, false);
            *why = "it has more than 8 payloads";
            return GP_EPROTO;
        }
    }
}

static gp_frame frame_view(gp_incoming *in, uint32_t i)
{
    zmq_msg_t *frame = incoming_frame(in, i);

    return (gp_frame){ zmq_msg_data(frame), zmq_msg_size(frame) };
}

static void views_set(gp_incoming *in)
{
    in->body = frame_view(in, 1);
    in->payload_count = in->frame_count - 2;
    for (uint32_t i = 0; i < in->payload_count; i++)
        in->payloads[i] = frame_view(in, i + 2);
}

/* Whether the form is that of a message; *why or err->message says what is wrong. */
static gp_status incoming_check(gp_incoming *in, const char **why, gp_error *err)
{
    if (in->frame_count < 2) {
        *why = "it has no envelope and body";
        return GP_EPROTO;
    }
    views_set(in);
    gp_frame envelope = frame_view(in, 0);

    if (in->body.bytes > GP_BODY_BYTES_MAX) {
        *why = "its body is over 1 MiB";
        return GP_EPROTO;
    }
    gp_status status = gp_envelope_decode(&in->envelope, envelope.data, envelope.bytes, err);

    if (status == GP_OK)
        status = gp_msgpack_validate(in->body.data, in->body.bytes, err);
    if (status != GP_OK)
        *why = err->message;
    else
        in->type = gp_message_find(in->envelope.message);
    return status;
}

/* Whether whoever sent it from another host may still speak.  GP_ESTALE: no, and it is not a matter of form. */
static gp_status gate_check(gp_channel *channel, gp_incoming *in)
{
    size_t bytes = 0;

    for (uint32_t i = 0; i < in->frame_count; i++)
        bytes += zmq_msg_size(incoming_frame(in, i));
    return gp_gate_pass(channel->gate, incoming_frame(in, 0), &in->peer, bytes, &in->owner) == GP_OK
               ? GP_OK
               : GP_ESTALE;
}

/* One message: GP_OK, GP_EPROTO (dropped), GP_ESTALE (dropped by the gate), GP_ETIMEDOUT, GP_EIO. */
static gp_status incoming_read(gp_channel *channel, gp_incoming *in)
{
    const char *why = "";
    gp_error err = { .code = GP_OK };
    gp_status status = GP_OK;

    in->peer.bytes = 0;
    in->peer.remote = false;
    in->owner = (gp_allowed){ .role = GP_KEY_NOBODY };
    in->type = NULL;
    in->frame_count = in->payload_count = 0;
    if (channel->router)
        status = peer_receive(channel, in, &why);
    if (status == GP_OK)
        status = frames_receive(channel, in, &why);
    if (status == GP_OK && channel->gate != NULL)
        status = gate_check(channel, in);
    if (status == GP_OK)
        status = incoming_check(in, &why, &err);
    if (status == GP_EPROTO && channel->gate != NULL && in->frame_count > 0)
        gp_gate_offend(channel->gate, incoming_frame(in, 0));
    if (status == GP_EPROTO) {
        channel->stats.refused++;
        snprintf(channel->stats.refused_last, sizeof(channel->stats.refused_last), "%.*s",
                 (int)sizeof(channel->stats.refused_last) - 1, why);
    }
    if (status != GP_OK)
        gp_incoming_close(in);
    return status;
}

gp_status gp_channel_receive(gp_channel *channel, gp_incoming *in, gp_error *err)
{
    for (int tries = 0; tries < RECEIVE_TRIES; tries++) {
        gp_status status = incoming_read(channel, in);

        if (status == GP_OK)
            channel->stats.received++;
        if (status == GP_EIO)
            gp_fail(err, GP_EIO, "cannot receive: %s", zmq_strerror(errno));
        if (status == GP_ETIMEDOUT)
            gp_fail(err, GP_ETIMEDOUT, "no message waits");
        if (status != GP_EPROTO && status != GP_ESTALE)
            return status;
    }
    return gp_fail(err, GP_ETIMEDOUT, "no message of ours among %d that waited", RECEIVE_TRIES);
}

gp_status gp_incoming_decode(const gp_incoming *in, void *message, gp_error *err)
{
    uint32_t id = in->envelope.message;
    bool timeless = id == GP_ID(hello) || id == GP_ID(welcome) || id == GP_ID(error_reply);

    if (in->envelope.protocol != GP_PROTOCOL && !timeless)
        return gp_fail(err, GP_EVERSION, "the message is of protocol %" PRIu32 "; this side speaks %u to %u",
                       in->envelope.protocol, GP_PROTOCOL_MIN, GP_PROTOCOL);
    if (in->type == NULL)
        return gp_fail(err, GP_EUNSUPPORTED, "message %" PRIu32 " is not known to this version", id);
    return gp_message_decode(message, in->type, in->body.data, in->body.bytes, err);
}

void gp_incoming_close(gp_incoming *in)
{
    for (uint32_t i = 0; i < in->frame_count; i++)
        zmq_msg_close(incoming_frame(in, i));
    in->frame_count = in->payload_count = 0;
    in->body = (gp_frame){ NULL, 0 };
}

void gp_incoming_move(gp_incoming *to, gp_incoming *from)
{
    to->peer = from->peer;
    to->owner = from->owner;
    to->envelope = from->envelope;
    to->type = from->type;
    to->frame_count = from->frame_count;
    for (uint32_t i = 0; i < from->frame_count; i++) {
        zmq_msg_init(incoming_frame(to, i));
        zmq_msg_move(incoming_frame(to, i), incoming_frame(from, i));
    }
    views_set(to);
    gp_incoming_close(from);
}

int gp_channel_fd(const gp_channel *channel)
{
    int fd = -1;
    size_t bytes = sizeof(fd);

    zmq_getsockopt(channel->socket, ZMQ_FD, &fd, &bytes);
    return fd;
}

bool gp_channel_pending(gp_channel *channel)
{
    int events = 0;
    size_t bytes = sizeof(events);

    while (zmq_getsockopt(channel->socket, ZMQ_EVENTS, &events, &bytes) != 0 && errno == EINTR)
        ;
    return (events & ZMQ_POLLIN) != 0;
}

gp_channel_stats gp_channel_get_stats(const gp_channel *channel)
{
    return channel->stats;
}

void gp_channel_watch(gp_channel *channel)
{
    if (channel->gate != NULL)
        gp_gate_watch(channel->gate);
}

int gp_channel_watch_fd(const gp_channel *channel)
{
    return channel->gate != NULL ? gp_gate_fd(channel->gate) : -1;
}

int gp_channel_patience_ms(const gp_channel *channel)
{
    return channel->gate != NULL ? gp_gate_patience_ms(channel->gate) : -1;
}

bool gp_channel_next_gone(gp_channel *channel, gp_peer *out)
{
    return channel->gate != NULL && gp_gate_next_gone(channel->gate, out);
}

void gp_channel_cut(gp_channel *channel, const gp_peer *peer)
{
    if (channel->gate != NULL && peer->bytes != 0)
        gp_gate_cut_peer(channel->gate, peer);
}

gp_gate_stats gp_channel_get_gate_stats(const gp_channel *channel)
{
    return channel->gate != NULL ? gp_gate_get_stats(channel->gate) : (gp_gate_stats){ .links = 0 };
}
