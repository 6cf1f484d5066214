/* channel.h -- every ZeroMQ bind and connect.  The only file that knows ZeroMQ is channel.c.
 *
 *   scheduler, worker:  gp_channel_bind()      a ROUTER on a 0600 socket of ours
 *   whoever dials:      gp_channel_connect()   a DEALER with one peer
 *
 * One message = [routing id] envelope, body, up to GP_PAYLOADS_MAX payload frames.  A message is whole or not at
 * all.  Sending and receiving never block.
 *
 * Threads: a channel belongs to the thread that opened it (handing it over needs a full memory barrier and the old
 * thread never touching it again).  One ZeroMQ context serves the process; it is made with the first channel and
 * ends with the last.  A process that has a channel must not fork without exec.
 *
 * Polling: gp_channel_fd() is edge-triggered and readable means "look", nothing more.  The loop that is right:
 *
 *     for (;;) {
 *         while (gp_channel_receive(channel, &in, &err) == GP_OK) { handle(&in); gp_incoming_close(&in); }
 *         ... the other things to do, among them all gp_channel_send() ...
 *         poll(fds, n, gp_channel_pending(channel) ? 0 : timeout_ms);
 *     }
 *
 * Each send or receive can swallow the edge, so pending must be asked after the last of them and before poll. */
#ifndef GP_CHANNEL_H
#define GP_CHANNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"
#include "proto/codec.h"
#include "proto/limits.h"

typedef struct gp_channel gp_channel;

typedef enum gp_security {
    GP_SECURITY_NONE,  /* same host: 0600 socket, uid filter */
    GP_SECURITY_CURVE, /* not yet: GP_EUNSUPPORTED */
} gp_security;

typedef struct gp_channel_options {
    gp_security security;
    bool bulk; /* frames up to GP_PAYLOAD_BYTES_MAX (client and worker); else GP_BODY_BYTES_MAX */
    bool
        heartbeat; /* ZMTP heartbeats (500 ms, lost after 2 s): scheduler and worker; never on client links */
} gp_channel_options;

/* Who sent a message, as a router knows it.  A plain value: copy it, compare with gp_peer_equal(), keep it.
 * It names one connection: a peer that reconnects has another. */
typedef struct gp_peer {
    uint8_t bytes; /* 0 = nobody */
    uint8_t id[32];
} gp_peer;

bool gp_peer_equal(const gp_peer *a, const gp_peer *b);

/* gp_channel_bind -- listen on a new socket at path (no "ipc://"; at most 100 bytes), mode 0600.
 * The socket is bound under a temporary name and renamed over path, so nothing of a live daemon is stolen by
 * accident between check and bind; the caller holds the pool's lock file.  The first bind raises the soft limit
 * of descriptors to the hard one: ZeroMQ aborts the process when accept() finds none left.
 * path is removed by gp_channel_close() if it is still ours. */
gp_status gp_channel_bind(gp_channel **out, const char *path, const gp_channel_options *options,
                          gp_error *err);

/* gp_channel_connect -- dial endpoint ("ipc://PATH").  Waits at most timeout_ms for the link: GP_EPEER when nobody
 * answers by then.  timeout_ms 0 does not wait and cannot fail so; sends are GP_EBUSY until the link is up.
 * A broken link is redialled every 100 ms to 1 s; a message is never queued for a peer that is not there. */
gp_status gp_channel_connect(gp_channel **out, const char *endpoint, const gp_channel_options *options,
                             int timeout_ms, gp_error *err);

/* gp_channel_close -- accepts NULL.  Messages not yet in the kernel are given drain_ms, then dropped; the wait, if
 * any, is in the close of the process's last channel. */
void gp_channel_close(gp_channel *channel, int drain_ms);

/* A raw frame.  release == NULL: the bytes are copied.  Else they are sent from where they are, and release(data,
 * hint) is called exactly once, whatever gp_channel_send() returns, perhaps from ZeroMQ's own thread and perhaps
 * long after; data must not change until then. */
typedef struct gp_payload {
    const void *data;
    size_t bytes;
    void (*release)(void *data, void *hint);
    void *hint;
} gp_payload;

/* gp_channel_send -- peer: to whom (routers), or NULL (dealers).  envelope->message is taken from type.
 * GP_EBUSY: the queue to the peer is full, or the link is not up: nothing was sent, try after the next poll.
 * GP_EPEER: the router has no such peer (any more).  GP_EINVAL: a field is out of its range.  GP_ELIMIT: too many
 * or too large payloads.  GP_ENOMEM. */
gp_status gp_channel_send(gp_channel *channel, const gp_peer *peer, const gp_envelope *envelope,
                          const gp_message_type *type, const void *message, const gp_payload *payloads,
                          size_t payload_count, gp_error *err);

/* gp_channel_reply_error -- send error_reply with *error to the sender of the message with that envelope: same
 * correlation, epoch, lease and generation.  worker: index from 1, or 0. */
gp_status gp_channel_reply_error(gp_channel *channel, const gp_peer *peer, const gp_envelope *to,
                                 const gp_error *error, uint32_t worker, gp_error *err);

/* Bytes inside a received message; valid until gp_incoming_close(). */
typedef struct gp_frame {
    const uint8_t *data;
    size_t bytes;
} gp_frame;

/* A received message.  Must not be copied (small frames live inside it): gp_incoming_move(). */
typedef struct gp_incoming {
    gp_peer peer; /* bytes = 0 on dealers */
    gp_envelope envelope;
    const gp_message_type *type; /* NULL: an id this build does not know */
    gp_frame body;
    gp_frame payloads[GP_PAYLOADS_MAX];
    uint32_t payload_count;
    uint32_t frame_count; /* private from here on */
    struct {
        _Alignas(void *) unsigned char bytes[64];
    } frames[GP_PAYLOADS_MAX + 2];
} gp_incoming;

/* gp_channel_receive -- the next message, if one waits; in is uninitialised memory, set only on GP_OK and then
 * released by gp_incoming_close().
 * GP_ETIMEDOUT: none waits.  GP_EIO: the channel is broken.
 * Messages that are not ours in form (too few or many frames, bad envelope, body not msgpack) are dropped whole
 * and counted, and the next one is tried; at most 64 in one call. */
gp_status gp_channel_receive(gp_channel *channel, gp_incoming *in, gp_error *err);

/* gp_incoming_decode -- the body into the struct of in->type.  GP_EVERSION: the envelope has another protocol than
 * ours (hello, welcome and error_reply pass).  GP_EUNSUPPORTED: unknown message.  GP_EPROTO. */
gp_status gp_incoming_decode(const gp_incoming *in, void *message, gp_error *err);

void gp_incoming_close(gp_incoming *in);

/* to: uninitialised; from: closed afterwards (closing it again does nothing). */
void gp_incoming_move(gp_incoming *to, gp_incoming *from);

int gp_channel_fd(const gp_channel *channel); /* POLLIN; see above */
bool gp_channel_pending(gp_channel *channel); /* whether gp_channel_receive() has something to do */

typedef struct gp_channel_stats {
    uint64_t sent, received;
    uint64_t refused;       /* messages dropped because of their form */
    uint64_t busy;          /* sends that were GP_EBUSY */
    char refused_last[120]; /* why the last one was dropped */
} gp_channel_stats;

gp_channel_stats gp_channel_get_stats(const gp_channel *channel);

#endif
