/* channel.h -- every ZeroMQ bind and connect.
 *
 *   scheduler, worker:  gp_channel_bind()      a ROUTER on a 0600 socket of ours
 *   scheduler, if asked: gp_channel_listen()   a ROUTER on a TCP port, behind keys
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
#include "proto/message/codec.h"
#include "proto/channel/curve.h"
#include "proto/message/limits.h"
#include "proto/channel/zap.h"

typedef struct gp_channel gp_channel;

/* An attribute of the link: */
typedef enum gp_security {
    GP_SECURITY_NONE,  /* same host: 0600 socket, uid filter */
    GP_SECURITY_CURVE, /* encrypted, both sides known by their keys; without it there is no TCP */
} gp_security;

/* Of CURVE; read during the call only. */
typedef struct gp_link_keys {
    const gp_key_pair *own;
    const char *server_key; /* who dials: the listener's public key, known beforehand */
    gp_zap *zap;            /* who listens: says whose key may come in; outlives the channel */
} gp_link_keys;

typedef struct gp_channel_options {
    gp_security security;
    const gp_link_keys *curve;
    bool bulk; /* frames up to GP_PAYLOAD_BYTES_MAX (client and worker); else GP_BODY_BYTES_MAX */
    /* ZMTP heartbeats (500 ms, lost after 2 s): links between hosts; never on one host, where the door tells. */
    bool heartbeat;
    /* NULL, or set by gp_channel_connect() when it returns: its GP_EPERM is of handshakes that were ended without a word, by
     * one who has not the key that we expect or by a network that breaks connections. */
    bool *unproved;
} gp_channel_options;

/* Who sent a message, as a router knows it.  A plain value: copy it, compare with gp_peer_equal(), keep it.
 * It names one connection: a peer that reconnects has another. */
typedef struct gp_peer {
    uint8_t bytes; /* 0 = nobody */
    uint8_t id[32];
    bool remote; /* it is a peer of the channel that gp_channel_listen() made */
} gp_peer;

bool gp_peer_equal(const gp_peer *a, const gp_peer *b);

/* gp_channel_bind -- listen on a new socket at path (no "ipc://"; at most 100 bytes), mode 0600.
 * The socket is bound under a temporary name and renamed over path, so nothing of a live daemon is stolen by
 * accident between check and bind; the caller holds the pool's lock file.  The first bind raises the soft limit
 * of descriptors to the hard one: ZeroMQ aborts the process when accept() finds none left.
 * path is removed by gp_channel_close() if it is still ours. */
gp_status gp_channel_bind(gp_channel **out, const char *path, const gp_channel_options *options,
                          gp_error *err);

/* gp_channel_listen -- listen for other hosts at endpoint, "tcp://ADDRESS:PORT" (an address of this host or "*"; port 0: any
 * that is free).  bound is where it listens then.  Needs CURVE with a list of keys: GP_EPERM without.  Before it returns it
 * has knocked at itself with a key that nobody has: GP_EINTERNAL if that one was let in.
 * GP_EINVAL: no such endpoint.  GP_EBUSY: the port is taken.  GP_EUNSUPPORTED: this libzmq cannot be trusted with it.
 * Frames have at most GP_REMOTE_FRAME_BYTES_MAX; peers that break the rules of gate.h are cut off, see gp_channel_watch(). */
gp_status gp_channel_listen(gp_channel **out, const char *endpoint, const gp_channel_options *options,
                            char bound[GP_TEXT_ENDPOINT], gp_error *err);

/* gp_channel_connect -- dial endpoint ("ipc://PATH", or with CURVE "tcp://HOST:PORT").  Waits at most timeout_ms for the link: GP_EPEER when nobody
 * answers by then; with CURVE GP_EPERM as soon as the other side turns our key away or has not the key that we expect.
 * timeout_ms 0 does not wait and cannot fail so; sends are GP_EBUSY until the link is up.
 * A broken link is redialled every 100 ms to 1 s; a message is never queued for a peer that is not there. */
gp_status gp_channel_connect(gp_channel **out, const char *endpoint, const gp_channel_options *options,
                             int timeout_ms, gp_error *err);

/* gp_channel_check_process -- GP_ESTATE: this process was forked from one that has channels, and can have none. */
gp_status gp_channel_check_process(gp_error *err);

/* gp_channel_broke -- whether a link to another host ended since it was made, or since this was asked: what was said on it may be
 * lost, and who redialled may be unknown there.  Of links that gp_channel_connect() waited for. */
bool gp_channel_broke(gp_channel *channel);

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
    gp_peer peer;     /* bytes = 0 on dealers */
    gp_allowed owner; /* of remote peers: who it is, by the key; role NOBODY otherwise */
    gp_envelope envelope;
    const gp_message_type *type; /* NULL: an id this build does not know */
    gp_frame body;
    gp_frame payloads[GP_PAYLOADS_MAX];
    uint32_t payload_count;
    int fd;               /* a descriptor that belongs to the message, set by its receiver; -1: none */
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
/* Return whether gp_channel_send() to the one peer has room: the link is up and its queue is not full. */
bool gp_channel_writable(gp_channel *channel);

typedef struct gp_channel_stats {
    uint64_t sent, received;
    uint64_t refused;       /* messages dropped because of their form */
    uint64_t busy;          /* sends that were GP_EBUSY */
    char refused_last[120]; /* why the last one was dropped */
} gp_channel_stats;

gp_channel_stats gp_channel_get_stats(const gp_channel *channel);

/* ---- of a channel that listens for other hosts (gate.h) ---- */

/* Why a connection was cut off. */
typedef enum gp_cut {
    GP_CUT_SILENT,    /* no message within 5 s */
    GP_CUT_ENDLESS,   /* 4 MiB and no end of the message */
    GP_CUT_MALFORMED, /* ten messages that were none */
    GP_CUT_RATE,      /* on and on over its key's rate */
    GP_CUT_CROWDED,   /* too many connections, in all or of a key */
    GP_CUT_REVOKED,   /* its key was removed, or is muted */
    GP_CUT_UNREAD,    /* by gp_channel_cut() */
    GP_CUTS,
} gp_cut;

typedef struct gp_gate_stats {
    uint32_t links;            /* connections now */
    uint64_t accepted, failed; /* failed: handshakes of who does not speak CURVE, or not to our key */
    uint64_t over_rate;        /* messages dropped */
    uint64_t cut[GP_CUTS];
} gp_gate_stats;

/* Hear what happened to connections and look at them, after the messages that wait were received, and at the latest
 * when gp_channel_patience_ms() is over (-1: never) or gp_channel_watch_fd() is readable.  For other channels: nothing, -1. */
void gp_channel_watch(gp_channel *channel);
int gp_channel_watch_fd(const gp_channel *channel);
int gp_channel_patience_ms(const gp_channel *channel);

/* The next of the peers whose connection ended. */
bool gp_channel_next_gone(gp_channel *channel, gp_peer *out);

/* End a peer's connection. */
void gp_channel_cut(gp_channel *channel, const gp_peer *peer);

gp_gate_stats gp_channel_get_gate_stats(const gp_channel *channel);

#endif
