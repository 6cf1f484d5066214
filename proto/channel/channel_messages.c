/* Send and receive messages on an open channel: encode structs to frames, decode frames to
 * structs. */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <zmq.h>

#include "proto/channel/channel_parts.h"
#include "proto/message/messages.h"

static_assert(sizeof(((gp_incoming *)0)->frames[0]) == sizeof(zmq_msg_t), "storage for ZeroMQ messages");

enum { RECEIVE_TRIES = 64 };

/* ---- sending ---- */

enum { FRAMES_MAX = GP_PAYLOADS_MAX + 3 }; /* routing id, envelope, body, payloads */

/* Frames of a message that is being sent. */
typedef struct outgoing {
    zmq_msg_t frames[FRAMES_MAX];
    unsigned count;
} outgoing;

/* Append a frame with a copy of the bytes. */
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

/* Check the payloads against the receiver's limits, which accept.c and MAXMSGSIZE enforce. */
static gp_status payloads_check(const gp_channel *channel, const gp_payload *payloads, size_t count,
                                gp_error *err)
{
    const size_t message_max = channel->payload_bytes_max > GP_BODY_BYTES_MAX ? GP_BULK_MESSAGE_BYTES_MAX
                                                                              : GP_MESSAGE_BYTES_MAX,
                 payloads_max = message_max - GP_BODY_BYTES_MAX - 2 * GP_ENVELOPE_BYTES_MAX;
    size_t bytes = 0;

    if (count > GP_PAYLOADS_MAX)
        return gp_fail(err, GP_ELIMIT, "invalid message: %zu payloads, at most %u are allowed", count,
                       GP_PAYLOADS_MAX);
    for (size_t i = 0; i < count; i++) {
        if (payloads[i].bytes > channel->payload_bytes_max)
            return gp_fail(err, GP_ELIMIT, "payload %zu has %zu bytes; at most %zu are allowed on this link",
                           i + 1, payloads[i].bytes, channel->payload_bytes_max);
        bytes += payloads[i].bytes;
    }
    if (!channel->router && bytes > payloads_max)
        return gp_fail(err, GP_ELIMIT, "the payloads have %zu bytes; at most %zu are allowed on this link",
                       bytes, payloads_max);
    return GP_OK;
}

/* Send all frames. Only the first one can be refused: ZeroMQ has then chosen a pipe with room for
 * the whole message. */
static gp_status outgoing_send(outgoing *out, gp_channel *channel, gp_error *err)
{
    gp_status status = GP_OK;
    unsigned sent = 0;

    while (sent < out->count && status == GP_OK) {
        int flags = ZMQ_DONTWAIT | (sent + 1 < out->count ? ZMQ_SNDMORE : 0);

        if (zmq_msg_send(&out->frames[sent], channel->socket, flags) >= 0)
            sent++;
        else if (errno == EAGAIN)
            status = gp_fail(err, GP_EBUSY,
                             channel->router ? "cannot send: the queue to the peer is full"
                                             : "cannot send: the link is down or its queue is full");
        else if (errno == EHOSTUNREACH)
            status = gp_fail(err, GP_EPEER, "cannot send: the peer disconnected");
        else if (errno != EINTR)
            status = gp_fail(err, GP_EIO, "cannot send: %s", zmq_strerror(errno));
    }
    channel->stats.busy += status == GP_EBUSY;
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
    size_t taken = 0;

    assert(channel->router == (peer != NULL));
    filled.message = type->id;
    gp_buffer_clear(&channel->envelope);
    gp_buffer_clear(&channel->body);
    gp_status status = payloads_check(channel, payloads, payload_count, err);

    if (status == GP_OK)
        status = gp_message_encode(&channel->body, type, message, err);
    if (status == GP_OK)
        status = gp_envelope_encode(&channel->envelope, &filled, err);

    /* Build all frames before the first is sent, so that any failure happens before the message is
     * on the wire. */
    if (status == GP_OK && channel->router)
        status = frame_copy(&out, peer->id, peer->bytes, err);
    if (status == GP_OK)
        status = frame_copy(&out, channel->envelope.data, channel->envelope.bytes, err);
    if (status == GP_OK)
        status = frame_copy(&out, channel->body.data, channel->body.bytes, err);

    /* After success a frame owns its payload: sending or closing it calls `release`. */
    while (status == GP_OK && taken < payload_count) {
        const gp_payload *payload = &payloads[taken];

        if (payload->release == NULL)
            status = frame_copy(&out, payload->data, payload->bytes, err);
        else if (zmq_msg_init_data(&out.frames[out.count], (void *)(uintptr_t)payload->data, payload->bytes,
                                   payload->release, payload->hint) == 0)
            out.count++;
        else
            status = gp_fail(err, GP_ENOMEM, "no memory for a frame");
        taken += status == GP_OK;
    }
    for (size_t i = taken; i < payload_count; i++)
        if (payloads[i].release != NULL)
            payloads[i].release((void *)(uintptr_t)payloads[i].data, payloads[i].hint);
    if (status == GP_OK)
        status = outgoing_send(&out, channel, err);
    else
        while (out.count > 0)
            zmq_msg_close(&out.frames[--out.count]);
    channel->stats.sent += status == GP_OK;
    return status;
}

gp_status gp_channel_reply_error(gp_channel *channel, const gp_peer *peer, const gp_envelope *to,
                                 const gp_error *error, uint32_t worker, gp_error *err)
{
    gp_envelope envelope = {
        .correlation = to->correlation, .epoch = to->epoch, .lease = to->lease, .generation = to->generation
    };
    gp_error_reply reply = { .code = error->code, .worker = worker };

    static_assert(sizeof(reply.message) == sizeof(error->message),
                  "an error reply must be able to hold any error");
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

/* Drop the remaining frames of an oversized message, one at a time. With is_first the first frame
 * identifies the offender for the connection guard. */
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
        if (is_first && channel->guard != NULL)
            gp_connection_guard_offend(channel->guard, &frame);
        is_first = false;
        zmq_msg_close(&frame);
    }
}

/* Receive the routing id on a ROUTER. GP_EPROTO: invalid, with the reason in *why. GP_ETIMEDOUT: no
 * message. GP_EIO: socket error. */
static gp_status peer_receive(gp_channel *channel, gp_incoming *in, const char **why)
{
    zmq_msg_t frame;
    gp_status status = GP_OK;

    zmq_msg_init(&frame);
    if (zmq_msg_recv(&frame, channel->socket, ZMQ_DONTWAIT) < 0) {
        status = errno == EAGAIN || errno == EINTR ? GP_ETIMEDOUT : GP_EIO;
    } else if (zmq_msg_size(&frame) > sizeof(in->peer.id)) {
        rest_drop(channel, true);
        *why = "its routing id has more than 32 bytes";
        status = GP_EPROTO;
    } else {
        in->peer.bytes = (uint8_t)zmq_msg_size(&frame);
        in->peer.remote = channel->guard != NULL;
        memcpy(in->peer.id, zmq_msg_data(&frame), in->peer.bytes);
    }
    zmq_msg_close(&frame);
    return status;
}

/* Receive the frames after the routing id. Errors as in peer_receive(). */
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

/* Point body and payloads at their frames. */
static void views_set(gp_incoming *in)
{
    in->body = frame_view(in, 1);
    in->payload_count = in->frame_count - 2;
    for (uint32_t i = 0; i < in->payload_count; i++)
        in->payloads[i] = frame_view(in, i + 2);
}

/* Check frame count, envelope and body. On failure *why names the reason. */
static gp_status incoming_check(gp_incoming *in, const char **why, gp_error *err)
{
    if (in->frame_count < 2) {
        *why = "it has no envelope or no body";
        return GP_EPROTO;
    }
    views_set(in);
    gp_frame envelope = frame_view(in, 0);

    if (in->body.bytes > GP_BODY_BYTES_MAX) {
        *why = "its body has more than 1 MiB";
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

/* Read one message.
 *
 * GP_EPROTO: malformed, dropped.
 * GP_ESTALE: dropped by the connection guard.
 * GP_ETIMEDOUT: no message is pending.
 * GP_EIO: socket error. */
static gp_status incoming_read(gp_channel *channel, gp_incoming *in)
{
    const char *why = "";
    gp_error err = { .code = GP_OK };
    gp_status status = GP_OK;

    in->peer.bytes = 0;
    in->peer.remote = false;
    in->owner = (gp_allowed){ .role = GP_KEY_NOBODY };
    in->type = NULL;
    in->fd = -1;
    in->frame_count = in->payload_count = 0;
    if (channel->router)
        status = peer_receive(channel, in, &why);
    if (status == GP_OK)
        status = frames_receive(channel, in, &why);
    if (status == GP_OK && channel->guard != NULL) {
        size_t bytes = 0;

        for (uint32_t i = 0; i < in->frame_count; i++)
            bytes += zmq_msg_size(incoming_frame(in, i));

        /* the remote sender is no longer admitted, or over its rate */
        if (gp_connection_guard_pass(channel->guard, incoming_frame(in, 0), &in->peer, bytes, &in->owner) !=
            GP_OK)
            status = GP_ESTALE;
    }
    if (status == GP_OK)
        status = incoming_check(in, &why, &err);
    if (status == GP_EPROTO && channel->guard != NULL && in->frame_count > 0)
        gp_connection_guard_offend(channel->guard, incoming_frame(in, 0));
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
            gp_fail(err, GP_ETIMEDOUT, "no message is pending");
        if (status != GP_EPROTO && status != GP_ESTALE)
            return status;
    }
    return gp_fail(err, GP_ETIMEDOUT, "no valid message among the first %d pending messages", RECEIVE_TRIES);
}

gp_status gp_incoming_decode(const gp_incoming *in, void *message, gp_error *err)
{
    uint32_t id = in->envelope.message;
    bool timeless = id == GP_ID(hello) || id == GP_ID(welcome) || id == GP_ID(error_reply);

    if (in->envelope.protocol != GP_PROTOCOL && !timeless)
        return gp_fail(err, GP_EVERSION,
                       "unsupported protocol version %" PRIu32
                       ": this side speaks %u to %u; install the same version of gradpool on both sides",
                       in->envelope.protocol, GP_PROTOCOL_MIN, GP_PROTOCOL);
    if (in->type == NULL)
        return gp_fail(err, GP_EUNSUPPORTED,
                       "unknown message type %" PRIu32 ": the peer runs a newer version of gradpool", id);
    return gp_message_decode(message, in->type, in->body.data, in->body.bytes, err);
}

void gp_incoming_close(gp_incoming *in)
{
    for (uint32_t i = 0; i < in->frame_count; i++)
        zmq_msg_close(incoming_frame(in, i));
    if (in->fd >= 0)
        close(in->fd);
    in->fd = -1;
    in->frame_count = in->payload_count = 0;
    in->body = (gp_frame){ NULL, 0 };
}

void gp_incoming_move(gp_incoming *to, gp_incoming *from)
{
    to->peer = from->peer;
    to->owner = from->owner;
    to->envelope = from->envelope;
    to->type = from->type;
    to->fd = from->fd;
    from->fd = -1;
    to->frame_count = from->frame_count;
    for (uint32_t i = 0; i < from->frame_count; i++) {
        zmq_msg_init(incoming_frame(to, i));
        zmq_msg_move(incoming_frame(to, i), incoming_frame(from, i));
    }
    views_set(to);
    gp_incoming_close(from);
}
