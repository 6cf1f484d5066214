/* channel.c -- every ZeroMQ bind and connect; the only file that includes zmq.h.
 *
 * What ZeroMQ does to the unwary, and what stands here against it (libzmq 4.3.4):
 *   zmq_bind unlinks and steals a live socket      our own socket, bound, renamed, handed over by ZMQ_USE_FD
 *   a ROUTER drops what it cannot send             ROUTER_MANDATORY: GP_EBUSY and GP_EPEER instead
 *   a DEALER queues for nobody                     IMMEDIATE: GP_EBUSY until the link is up
 *   accept() without descriptors aborts            soft limit raised to the hard one; the door refuses first
 *   MAXMSGSIZE is per frame, HWM per message       frames are counted here; one that never ends can only come from
 *                                                  our own uid (0600 in 0700, uid filter), see PROTOCOL.md
 *   LINGER for ever                                0, or what gp_channel_close() was given
 *   a silent peer                                  HANDSHAKE_IVL 2 s
 *
 * It stays whole, though it is long: each of these needs zmq.h, and that has one home. */
#include "proto/channel.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>
#include <zmq.h>

#include "common/base/alloc.h"
#include "common/base/buffer.h"
#include "common/base/clock.h"
#include "proto/listen.h"
#include "proto/messages.h"

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
    SOCKETS_MAX = 1023,
    RECEIVE_TRIES = 64,
};

struct gp_channel {
    void *socket;
    bool router;
    size_t payload_bytes_max;
    gp_listener listener; /* of routers; its descriptor belongs to ZeroMQ once bound */
    bool listening;
    gp_buffer envelope, body; /* kept from send to send */
    gp_channel_stats stats;
};

/* ---- the process's context ---- */

static pthread_mutex_t context_lock = PTHREAD_MUTEX_INITIALIZER;
static void *context;
static unsigned context_users;

static void *context_acquire(gp_error *err)
{
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

static void context_release(void)
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

static gp_status channel_new(gp_channel **out, bool router, const gp_channel_options *options, gp_error *err)
{
    if (options->security != GP_SECURITY_NONE)
        return gp_fail(
            err, GP_EUNSUPPORTED,
            "this version speaks to its own host only; CURVE security for other hosts is not there yet");
    gp_channel *channel = gp_calloc(1, sizeof(*channel));

    if (channel == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for a channel");
    channel->router = router;
    channel->listener.fd = -1;
    gp_buffer_init(&channel->envelope, GP_ENVELOPE_BYTES_MAX);
    gp_buffer_init(&channel->body, GP_BODY_BYTES_MAX);
    void *shared = context_acquire(err);

    if (shared == NULL) {
        gp_free(channel);
        return GP_ELIMIT;
    }
    channel->socket = zmq_socket(shared, router ? ZMQ_ROUTER : ZMQ_DEALER);
    gp_status status = channel->socket == NULL
                           ? gp_fail(err, GP_ELIMIT, "cannot make a ZeroMQ socket: %s", zmq_strerror(errno))
                           : channel_configure(channel, options, err);

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

static gp_status link_wait(gp_channel *channel, const char *endpoint, int timeout_ms, gp_error *err)
{
    int64_t deadline_ms = gp_now_ms() + timeout_ms;
    zmq_pollitem_t item = { .socket = channel->socket, .events = ZMQ_POLLOUT };

    for (;;) {
        int64_t left = deadline_ms - gp_now_ms();
        int ready = zmq_poll(&item, 1, left > 0 ? left : 0);

        if (ready > 0)
            return GP_OK;
        if (ready < 0 && errno != EINTR)
            return gp_fail(err, GP_EIO, "cannot wait for %s: %s", endpoint, zmq_strerror(errno));
        if (ready == 0 && left <= 0)
            return gp_fail(err, GP_EPEER, "nobody answered at %s for %d ms", endpoint, timeout_ms);
    }
}

gp_status gp_channel_connect(gp_channel **out, const char *endpoint, const gp_channel_options *options,
                             int timeout_ms, gp_error *err)
{
    gp_channel *channel;
    gp_status status;

    if (strncmp(endpoint, "ipc://", 6) != 0)
        return gp_fail(err, GP_EUNSUPPORTED,
                       "cannot connect to '%.120s': this version knows endpoints of the form ipc://PATH",
                       endpoint);
    status = gp_unix_path_check(endpoint + 6, err);
    if (status != GP_OK)
        return status;
    status = channel_new(&channel, false, options, err);
    if (status != GP_OK)
        return status;
    if (zmq_connect(channel->socket, endpoint) != 0)
        status = gp_fail(err, GP_EIO, "cannot connect to %s: %s", endpoint, zmq_strerror(errno));
    else if (timeout_ms > 0)
        status = link_wait(channel, endpoint, timeout_ms, err);
    if (status != GP_OK) {
        gp_channel_close(channel, 0);
        return status;
    }
    *out = channel;
    return GP_OK;
}

void gp_channel_close(gp_channel *channel, int drain_ms)
{
    if (channel == NULL)
        return;
    if (channel->listening)
        gp_listener_unlink(&channel->listener);
    if (channel->socket != NULL) {
        option_set(channel->socket, ZMQ_LINGER, drain_ms > 0 ? drain_ms : 0);
        zmq_close(channel->socket);
    }
    context_release();
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
    return a->bytes == b->bytes && memcmp(a->id, b->id, a->bytes) == 0;
}

static zmq_msg_t *incoming_frame(gp_incoming *in, uint32_t i)
{
    return (zmq_msg_t *)(void *)in->frames[i].bytes;
}

/* Read what is left of a message that is too long, one frame at a time; the bytes go as they come. */
static void rest_drop(gp_channel *channel)
{
    zmq_msg_t frame;
    bool more = true;

    while (more) {
        zmq_msg_init(&frame);
        if (zmq_msg_recv(&frame, channel->socket, ZMQ_DONTWAIT) >= 0)
            more = zmq_msg_more(&frame);
        else if (errno != EINTR)
            more = false;
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
        rest_drop(channel);
        *why = "the peer chose a routing id over 32 bytes";
        status = GP_EPROTO;
    } else {
        in->peer.bytes = (uint8_t)zmq_msg_size(&frame);
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
            rest_drop(channel);
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

/* One message: GP_OK, GP_EPROTO (dropped), GP_ETIMEDOUT, GP_EIO. */
static gp_status incoming_read(gp_channel *channel, gp_incoming *in)
{
    const char *why = "";
    gp_error err = { .code = GP_OK };
    gp_status status = GP_OK;

    in->peer.bytes = 0;
    in->type = NULL;
    in->frame_count = in->payload_count = 0;
    if (channel->router)
        status = peer_receive(channel, in, &why);
    if (status == GP_OK)
        status = frames_receive(channel, in, &why);
    if (status == GP_OK)
        status = incoming_check(in, &why, &err);
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
        if (status != GP_EPROTO)
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
