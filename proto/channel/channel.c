/* Open, configure and close ZeroMQ sockets.
 *
 * Pitfalls of libzmq 4.3.4 and how this code avoids them:
 *
 *   zmq_bind() takes over the socket of a live process    bind and rename the socket here, then
 *                                                         pass it with ZMQ_USE_FD
 *   a ROUTER silently drops messages it cannot send       ROUTER_MANDATORY: GP_EBUSY, GP_EPEER
 *   a DEALER queues messages without a peer               IMMEDIATE: GP_EBUSY until connected
 *   IMMEDIATE drops unread messages of a link that ends   options.queued: not IMMEDIATE
 *   accept() aborts the process without free descriptors  raise the soft limit; accept.c
 *   MAXMSGSIZE limits a frame, HWM counts messages        count frames here; close connections with
 *                                                         endless messages: connection_guard.c
 *                                                         (TCP), accept.c (Unix sockets)
 *   CURVE admits any key                                  require a key list, enforce its ZAP
 *                                                         domain, test with a wrong key
 *   LINGER is infinite                                    0, or drain_ms of gp_channel_close()
 *   silent peers                                          HANDSHAKE_IVL 2 s; Unix sockets 30 s,
 *                                                         but 2 s if descriptors run out */
#include "proto/channel/channel_parts.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>
#include <zmq.h>

#include "common/base/memory/alloc.h"
#include "proto/channel/endpoint.h"
#include "proto/channel/zmq_context.h"

#ifndef ZMQ_ZAP_ENFORCE_DOMAIN /* draft option in zmq.h, but implemented in release builds */
#define ZMQ_ZAP_ENFORCE_DOMAIN 93
#endif

enum {
    BACKLOG = 4096,
    HEARTBEAT_MS = 500,
    HEARTBEAT_LOST_MS = 2000,
    HEARTBEAT_TTL_MS = 3000,
    RECONNECT_MAX_MS = 1000,
    QUEUE_MESSAGES = 1000,
    REMOTE_QUEUE_MESSAGES = 64, /* queue limit per remote peer and direction */
    REMOTE_BACKLOG = 256,
    CONNECT_MS = 5000,
    /* Handshake limit for local listeners. After this process was suspended, ZeroMQ runs its timers
     * before it reads. A short limit would then end a handshake that the client has completed, and
     * the client's first message would be lost without an error. */
    LOCAL_HANDSHAKE_MS = 30000,
    SELF_TEST_MS = 5000,
};

/* ---- opening ---- */

/* Raise the soft descriptor limit of the process to the hard limit. */
static void descriptors_raise(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE,
                  /* On failure the old limit stays; the control socket reports a lack of
                   * descriptors to clients. */
                  &limit);
    }
}

static bool option_set(void *socket, int option, int value)
{
    return zmq_setsockopt(socket, option, &value, sizeof(value)) == 0;
}

/* Set the socket options that do not depend on the endpoint. */
static gp_status channel_configure(gp_channel *channel, const gp_channel_options *options, gp_error *err)
{
    void *socket = channel->socket;
    int64_t frame_bytes_max = options->bulk ? GP_PAYLOAD_BYTES_MAX : GP_BODY_BYTES_MAX;
    uid_t uid = geteuid();
    bool local = channel->router && options->security == GP_SECURITY_NONE;
    int handshake_ms = local ? LOCAL_HANDSHAKE_MS : GP_DIAL_HANDSHAKE_MS;
    const char *text = getenv("GRADPOOL_FRAME_BYTES");
    char *end;
    unsigned long long bytes = text == NULL ? 0 : strtoull(text, &end, 10);
    bool done = option_set(socket, ZMQ_LINGER, 0) && option_set(socket, ZMQ_SNDHWM, QUEUE_MESSAGES) &&
                option_set(socket, ZMQ_RCVHWM, QUEUE_MESSAGES) &&
                option_set(socket, ZMQ_HANDSHAKE_IVL, handshake_ms) &&
                zmq_setsockopt(socket, ZMQ_MAXMSGSIZE, &frame_bytes_max, sizeof(frame_bytes_max)) == 0;

    /* the largest payload that this side sends; tests lower it with GRADPOOL_FRAME_BYTES */
    channel->payload_bytes_max = (size_t)frame_bytes_max;
    if (bytes > 0 && *end == '\0' && bytes < channel->payload_bytes_max)
        channel->payload_bytes_max = (size_t)bytes;
    if (channel->router)
        done = done && option_set(socket, ZMQ_ROUTER_MANDATORY, 1) &&
               zmq_setsockopt(socket, ZMQ_IPC_FILTER_UID, &uid, sizeof(uid)) == 0;
    else
        done = done && option_set(socket, ZMQ_IMMEDIATE, !options->queued) &&
               option_set(socket, ZMQ_RECONNECT_IVL, GP_DIAL_RETRY_MS) &&
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

/* Set the CURVE keys and, on a listener, the ZAP domain. GP_EPERM: keys or key list missing. */
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
                       channel->router ? "cannot listen with CURVE: no list of authorized keys is set"
                                       : "cannot connect with CURVE: no server key is set");
    done = text_set(socket, ZMQ_CURVE_SECRETKEY, curve->own->secret_key) &&
           text_set(socket, ZMQ_CURVE_PUBLICKEY, curve->own->public_key);
    if (channel->router)
        done = done && option_set(socket, ZMQ_CURVE_SERVER, 1) &&
               text_set(socket, ZMQ_ZAP_DOMAIN, GP_ZAP_DOMAIN) &&
               option_set(socket, ZMQ_ZAP_ENFORCE_DOMAIN, 1);
    else
        done = done && text_set(socket, ZMQ_CURVE_SERVERKEY, curve->server_key);
    return done ? GP_OK
                : gp_fail(err, GP_EUNSUPPORTED, "this libzmq rejects the CURVE keys or the ZAP domain: %s",
                          zmq_strerror(errno));
}

/* Create a configured socket that is not yet bound or connected. */
static gp_status channel_new(gp_channel **out, bool router, const gp_channel_options *options, gp_error *err)
{
    gp_status usable = gp_channel_check_process(err);
    gp_channel *channel;

    if (usable != GP_OK)
        return usable;
    channel = gp_calloc(1, sizeof(*channel));
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
                           ? gp_fail(err, GP_ELIMIT, "cannot create a ZeroMQ socket: %s", zmq_strerror(errno))
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

gp_status gp_channel_bind(gp_channel **out, const char *path, const gp_channel_options *options,
                          gp_error *err)
{
    char endpoint[GP_TEXT_ENDPOINT + 8];
    gp_channel *channel;
    gp_status status = channel_new(&channel, true, options, err);

    if (status != GP_OK)
        return status;
    descriptors_raise();
    status = gp_listener_open(&channel->listener, path, SOCK_STREAM, BACKLOG, err);
    channel->listening = status == GP_OK;
    snprintf(endpoint, sizeof(endpoint), "ipc://%s", path);

    /* From a successful zmq_bind() on, ZeroMQ owns the listener's descriptor; it never unlinks the
     * path. */
    if (status == GP_OK && (!option_set(channel->socket, ZMQ_USE_FD, channel->listener.fd) ||
                            zmq_bind(channel->socket, endpoint) != 0)) {
        status = gp_fail(err, GP_EIO, "cannot listen at %s: %s", path, zmq_strerror(errno));
        close(channel->listener.fd);
    }
    if (status != GP_OK) {
        gp_channel_close(channel, 0);
        return status;
    }
    *out = channel;
    return GP_OK;
}

/* ---- other hosts ---- */

/* Connect with a random key. GP_EINTERNAL: it was admitted, or the test could not be completed. */
static gp_status self_test(const char *bound, const gp_link_keys *curve, gp_error *err)
{
    char endpoint[GP_TEXT_ENDPOINT + 16];
    const char *port = strrchr(bound, ':');
    bool any = strncmp(bound, "tcp://0.0.0.0:", 14) == 0 || strncmp(bound, "tcp://[::]:", 11) == 0 ||
               strncmp(bound, "tcp://*:", 8) == 0;
    gp_key_pair stranger;
    gp_channel *greeting = NULL;
    gp_error why;
    gp_status status = gp_key_new(&stranger, err);

    if (status != GP_OK)
        return status;
    snprintf(endpoint, sizeof(endpoint), any ? "tcp://127.0.0.1%s" : "%s", any ? port : bound);
    gp_link_keys wrong = { .own = &stranger, .server_key = curve->own->public_key };

    status = gp_channel_connect(&greeting, endpoint,
                                &(gp_channel_options){ .security = GP_SECURITY_CURVE, .curve = &wrong },
                                SELF_TEST_MS, &why);
    gp_key_wipe(&stranger);
    if (status == GP_EPERM) {
        gp_zap_uncount_refused(curve->zap);
        return GP_OK;
    }
    gp_channel_close(greeting, 0);
    if (status == GP_ENOMEM)
        return gp_fail(err, status, "%s", why.message);
    return status == GP_OK
               ? gp_fail(err, GP_EINTERNAL,
                         "self-test: an unauthorized key was accepted at %s; the socket is closed", bound)
               : gp_fail(err, GP_EINTERNAL,
                         "self-test: cannot check that unauthorized keys are rejected at %s: %.160s", bound,
                         why.message);
}

/* Bind to a TCP endpoint, and set `bound` to the actual address and port. */
static gp_status remote_bind(gp_channel *channel, const char *endpoint, char bound[GP_TEXT_ENDPOINT],
                             gp_error *err)
{
    size_t bytes = GP_TEXT_ENDPOINT;

    /* IPv6 sockets would show IPv4 addresses as [::ffff:10.0.0.5] */
    bool wide = endpoint[6] == '[' || endpoint[6] == '*';
    bool done = option_set(channel->socket, ZMQ_IPV6, wide) &&
                option_set(channel->socket, ZMQ_BACKLOG, REMOTE_BACKLOG);

    if (!done || zmq_bind(channel->socket, endpoint) != 0)
        return gp_fail(err,
                       errno == EADDRINUSE ? GP_EBUSY
                       : errno == EACCES   ? GP_EPERM
                                           : GP_EINVAL,
                       "cannot listen at %s: %s%s", endpoint, zmq_strerror(errno),
                       errno == ENODEV || errno == EADDRNOTAVAIL ? "; use an address of this host" : "");
    if (zmq_getsockopt(channel->socket, ZMQ_LAST_ENDPOINT, bound, &bytes) != 0 || strrchr(bound, ':') == NULL)
        return gp_fail(err, GP_EIO, "cannot read the bound address of %s: %s", endpoint, zmq_strerror(errno));
    gp_connection_guard_set_port(channel->guard, (uint16_t)strtol(strrchr(bound, ':') + 1, NULL, 10));
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
                       "cannot listen at %s without CURVE: the link would have no authentication", endpoint);
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
        status = gp_connection_guard_open(&channel->guard, channel->socket, options->curve->zap, err);
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

/* ---- connecting ---- */

gp_status gp_channel_connect(gp_channel **out, const char *endpoint, const gp_channel_options *options,
                             int timeout_ms, gp_error *err)
{
    gp_channel *channel;
    gp_dial dial = { .connected = false };
    bool unproved = false;
    bool local = strncmp(endpoint, "ipc://", 6) == 0, remote = gp_endpoint_is_remote(endpoint);
    gp_status status;

    if (!local && !remote)
        return gp_fail(err, GP_EUNSUPPORTED,
                       "cannot connect to '%.120s': an endpoint must be ipc://PATH or tcp://HOST:PORT",
                       endpoint);
    if (remote && options->security != GP_SECURITY_CURVE)
        return gp_fail(err, GP_EPERM,
                       "cannot connect to %.120s without CURVE: the link would have no encryption", endpoint);
    status = local ? gp_unix_path_check(endpoint + 6, err) : gp_endpoint_check(endpoint, false, err);
    if (status == GP_OK)
        status = channel_new(&channel, false, options, err);
    if (status != GP_OK)
        return status;
    if (remote) {
        option_set(channel->socket, ZMQ_IPV6, 1);
        option_set(channel->socket, ZMQ_CONNECT_TIMEOUT, CONNECT_MS);
        status = timeout_ms > 0 ? gp_dial_begin(&dial, channel->socket, ZMQ_EVENT_ALL, err) : GP_OK;
    }
    if (status == GP_OK && zmq_connect(channel->socket, endpoint) != 0)
        status = gp_fail(err, GP_EIO, "cannot connect to %s: %s", endpoint, zmq_strerror(errno));
    if (status == GP_OK && timeout_ms > 0)
        status = gp_dial_wait(&dial, channel->socket, endpoint, timeout_ms, &unproved, err);
    bool watched = dial.monitor.events != NULL;

    gp_dial_end(&dial);
    if (options->unproved != NULL)
        *options->unproved = unproved;
    if (status != GP_OK) {
        gp_channel_close(channel, 0);
        return status;
    }

    /* From now on monitor disconnects only: connection_guard.c explains why handshake events are
     * dangerous. If the monitor cannot be opened, a broken link is detected later. */
    if (watched)
        gp_dial_begin(&channel->dial, channel->socket, ZMQ_EVENT_DISCONNECTED, NULL);
    *out = channel;
    return GP_OK;
}

void gp_channel_close(gp_channel *channel, int drain_ms)
{
    if (channel == NULL)
        return;
    gp_dial_end(&channel->dial);
    if (channel->listening)
        gp_listener_unlink(&channel->listener);
    gp_connection_guard_close(channel->guard);
    if (channel->socket != NULL) {
        option_set(channel->socket, ZMQ_LINGER, drain_ms > 0 ? drain_ms : 0);
        zmq_close(channel->socket);
    }
    gp_zmq_release();
    gp_buffer_deinit(&channel->envelope);
    gp_buffer_deinit(&channel->body);
    gp_free(channel);
}

int gp_channel_fd(const gp_channel *channel)
{
    int fd = -1;
    size_t bytes = sizeof(fd);

    zmq_getsockopt(channel->socket, ZMQ_FD, &fd, &bytes);
    return fd;
}

/* Return ZMQ_EVENTS of the socket. */
static int channel_events(const gp_channel *channel)
{
    int events = 0;
    size_t bytes = sizeof(events);

    while (zmq_getsockopt(channel->socket, ZMQ_EVENTS, &events, &bytes) != 0 && errno == EINTR)
        ;
    return events;
}

bool gp_channel_pending(gp_channel *channel)
{
    return (channel_events(channel) & ZMQ_POLLIN) != 0;
}

gp_channel_stats gp_channel_get_stats(const gp_channel *channel)
{
    return channel->stats;
}
