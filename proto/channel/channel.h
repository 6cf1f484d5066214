/* Message channels over ZeroMQ sockets.
 *
 *   gp_channel_bind()     scheduler, worker: a ROUTER on a local socket with mode 0600
 *   gp_channel_listen()   scheduler, optional: a ROUTER on a TCP port, secured by keys
 *   gp_channel_connect()  all others: a DEALER with one peer
 *
 * A message consists of the frames [routing id] envelope, body, and up to GP_PAYLOADS_MAX payloads.
 * It is delivered completely or not at all. Sending and receiving never block.
 *
 * Threads: only the thread that opened a channel may use it. To hand a channel over, use a full
 * memory barrier; the old thread must not touch it again. The process has one ZeroMQ context,
 * created with the first channel and destroyed with the last. A process with a channel must not
 * fork without exec.
 *
 * Polling: gp_channel_fd() is edge-triggered, and "readable" only means that the channel's state
 * may have changed. A correct loop is:
 *
 *     for (;;) {
 *         while (gp_channel_receive(channel, &in, &err) == GP_OK) {
 *             handle(&in);
 *             gp_incoming_close(&in);
 *         }
 *         ... all other work, including every gp_channel_send() ...
 *         poll(fds, n, gp_channel_pending(channel) ? 0 : timeout_ms);
 *     }
 *
 * Any send or receive can consume the edge, so call gp_channel_pending() after the last of them,
 * right before poll(). */
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

/* Security of a link. */
typedef enum gp_security {
    GP_SECURITY_NONE,  /* same host only: mode 0600 and a uid filter */
    GP_SECURITY_CURVE, /* encrypted, and both sides authenticated by keys; required for TCP */
} gp_security;

/* Keys for GP_SECURITY_CURVE; borrowed for the duration of the call. */
typedef struct gp_link_keys {
    const gp_key_pair *own;
    const char *server_key; /* connecting side: public key of the listener */
    gp_zap *zap;            /* listening side: key check; must outlive the channel */
} gp_link_keys;

/* Options for opening a channel. `curve` is required for GP_SECURITY_CURVE. */
typedef struct gp_channel_options {
    gp_security security;
    const gp_link_keys *curve;

    /* frame limit is GP_PAYLOAD_BYTES_MAX (client and worker) instead of GP_BODY_BYTES_MAX */
    bool bulk;

    /* Connecting side: keep messages from the peer that were not read when the link ended. While
     * the link is down, messages to the peer wait in the queue. Without this option
     * gp_channel_send() then returns GP_EBUSY. */
    bool queued;

    /* Send ZMTP heartbeats every 500 ms; the link is lost after 2 s of silence. Only for links
     * between hosts: on one host the control socket reports failures. */
    bool heartbeat;

    /* NULL, or set by gp_channel_connect(). true: it failed with GP_EPERM because handshakes ended
     * without an error, so the cause is either a peer without the expected key or a network that
     * breaks connections. */
    bool *unproved;
} gp_channel_options;

/* Sender of a message, as a ROUTER identifies it. Plain value: may be copied, stored, and compared
 * with gp_peer_equal(). It names one connection; a peer that reconnects gets another value. */
typedef struct gp_peer {
    uint8_t bytes; /* length of id; 0: no peer */
    uint8_t id[32];
    bool remote; /* peer of a channel that gp_channel_listen() opened */
} gp_peer;

/* Return whether both values name the same connection. */
bool gp_peer_equal(const gp_peer *a, const gp_peer *b);

/* Listen on a new local socket at `path` (without "ipc://", at most 100 bytes), mode 0600.
 *
 * The socket is bound under a temporary name and renamed to `path`, so it cannot take the socket of
 * a live daemon by accident between check and bind. The caller holds the lock file of the pool. The
 * first bind raises the soft descriptor limit to the hard limit: ZeroMQ aborts the process if
 * accept() finds no free descriptor. gp_channel_close() removes `path` if it still belongs to this
 * channel. */
gp_status gp_channel_bind(gp_channel **out, const char *path, const gp_channel_options *options,
                          gp_error *err);

/* Listen for other hosts.
 *
 *   endpoint  "tcp://ADDRESS:PORT", a local address or "*"; port 0: any free port
 *   options   must select CURVE with a key list
 *   bound     set to the actual endpoint
 *
 * Before it returns, it connects to itself with a random key to test that unknown keys are
 * refused. Frames are limited to GP_REMOTE_FRAME_BYTES_MAX. Peers that break the rules in
 * channel_parts.h are disconnected; see gp_channel_watch().
 *
 * GP_EPERM: options without CURVE or without a key list.
 * GP_EINVAL: malformed endpoint or no local address.
 * GP_EBUSY: the port is in use.
 * GP_EUNSUPPORTED: this libzmq version is unsafe or lacks CURVE.
 * GP_EINTERNAL: the self-test failed, for example because the random key was admitted. */
gp_status gp_channel_listen(gp_channel **out, const char *endpoint, const gp_channel_options *options,
                            char bound[GP_TEXT_ENDPOINT], gp_error *err);

/* Connect to `endpoint`: "ipc://PATH", or with CURVE "tcp://HOST:PORT". Wait up to timeout_ms for
 * the link. With timeout_ms 0 return at once; gp_channel_send() then fails with GP_EBUSY until the
 * link is up.
 *
 * A broken link is redialled, after 100 ms at first and 1 s at most. Messages are never queued for
 * a peer that is not connected.
 *
 * GP_EPEER: no reply within timeout_ms.
 * GP_EPERM: the peer refuses this key, or does not own the expected key; reported as soon as it is
 * known. */
gp_status gp_channel_connect(gp_channel **out, const char *endpoint, const gp_channel_options *options,
                             int timeout_ms, gp_error *err);

/* Check that this process may use channels. GP_ESTATE: it was forked from a process that uses
 * channels. */
gp_status gp_channel_check_process(gp_error *err);

/* Return whether a link to another host broke since it was opened or since the previous call.
 * Messages may be lost then, and the peer may no longer know this client. Works for links that
 * gp_channel_connect() waited for. */
bool gp_channel_broke(gp_channel *channel);

/* Close a channel; accepts NULL. Queued messages are sent for up to drain_ms and then dropped. Only
 * closing the last channel of the process waits for that. */
void gp_channel_close(gp_channel *channel, int drain_ms);

/* A raw payload frame. With release NULL the bytes are copied. Otherwise they are sent in place and
 * must not change until release(data, hint) is called: exactly once, also if gp_channel_send()
 * fails, possibly much later and from ZeroMQ's I/O thread. */
typedef struct gp_payload {
    const void *data;
    size_t bytes;
    void (*release)(void *data, void *hint);
    void *hint;
} gp_payload;

/* Send a message. envelope->message is set from `type`. On a ROUTER, `peer` names the receiver; on
 * a DEALER it must be NULL.
 *
 * GP_EBUSY: the queue is full, or the link is down and not `queued`; nothing was sent, retry after
 * the next poll.
 * GP_EPEER: the ROUTER has no connection to this peer.
 * GP_EINVAL: a field is out of range.
 * GP_ELIMIT: too many payloads or too many bytes.
 * GP_ENOMEM: out of memory. */
gp_status gp_channel_send(gp_channel *channel, const gp_peer *peer, const gp_envelope *envelope,
                          const gp_message_type *type, const void *message, const gp_payload *payloads,
                          size_t payload_count, gp_error *err);

/* Send *error as an error_reply to the message with envelope `to`, with the same correlation,
 * epoch, lease and generation. worker: index from 1; 0: none. */
gp_status gp_channel_reply_error(gp_channel *channel, const gp_peer *peer, const gp_envelope *to,
                                 const gp_error *error, uint32_t worker, gp_error *err);

/* Bytes inside a received message; valid until gp_incoming_close(). */
typedef struct gp_frame {
    const uint8_t *data;
    size_t bytes;
} gp_frame;

/* Received message. Do not copy it, because small frames are stored inside; use
 * gp_incoming_move(). */
typedef struct gp_incoming {
    gp_peer peer;     /* sender; bytes is 0 on a DEALER */
    gp_allowed owner; /* key owner of a remote peer; otherwise the role is GP_KEY_NOBODY */
    gp_envelope envelope;
    const gp_message_type *type; /* NULL: message id unknown to this build */
    gp_frame body;
    gp_frame payloads[GP_PAYLOADS_MAX];
    uint32_t payload_count;
    int fd;               /* descriptor sent with the message, set by the receiver; -1: none */
    uint32_t frame_count; /* private, as is `frames` */
    struct {
        _Alignas(void *) unsigned char bytes[64];
    } frames[GP_PAYLOADS_MAX + 2];
} gp_incoming;

/* Receive the next pending message. *in may be uninitialized; it is set on GP_OK only, and the
 * caller releases it with gp_incoming_close().
 *
 * Malformed messages (too few or too many frames, invalid envelope, body not msgpack) are dropped
 * and counted. One call skips at most 64 of them.
 *
 * GP_ETIMEDOUT: no message is pending.
 * GP_EIO: the channel is unusable. */
gp_status gp_channel_receive(gp_channel *channel, gp_incoming *in, gp_error *err);

/* Decode the body into a struct of in->type.
 *
 * GP_EVERSION: the envelope has another protocol version; hello, welcome and error_reply are
 * exempt.
 * GP_EUNSUPPORTED: unknown message id.
 * GP_EPROTO: malformed body. */
gp_status gp_incoming_decode(const gp_incoming *in, void *message, gp_error *err);

/* Release a received message and close its descriptor. */
void gp_incoming_close(gp_incoming *in);

/* Move a message. *to may be uninitialized. *from is closed, and closing it again has no effect. */
void gp_incoming_move(gp_incoming *to, gp_incoming *from);

/* Return the descriptor to poll for POLLIN; see the loop above. */
int gp_channel_fd(const gp_channel *channel);

/* Return whether gp_channel_receive() has work to do. */
bool gp_channel_pending(gp_channel *channel);

/* Counters since the channel was opened. */
typedef struct gp_channel_stats {
    uint64_t sent, received;
    uint64_t refused;       /* malformed messages dropped */
    uint64_t busy;          /* sends that failed with GP_EBUSY */
    char refused_last[120]; /* reason for the last dropped message */
} gp_channel_stats;

gp_channel_stats gp_channel_get_stats(const gp_channel *channel);

/* Set the largest message in bytes that a local connection to this daemon may
 * send; the default is GP_MESSAGE_BYTES_MAX. Call it before the first bind. Only
 * daemons link this function: accept.c. */
void gp_accept_limit(uint64_t message_bytes_max);

/* ---- channels that listen for other hosts (connection_guard.c) ---- */

/* Reasons to disconnect a peer. */
typedef enum gp_cut {
    GP_CUT_SILENT,    /* no message within 5 s */
    GP_CUT_ENDLESS,   /* 4 MiB received since the last complete message */
    GP_CUT_MALFORMED, /* ten malformed messages */
    GP_CUT_RATE,      /* persistently over the rate limit of the key */
    GP_CUT_CROWDED,   /* too many connections, in total or with one key */
    GP_CUT_REVOKED,   /* key removed from the list, or muted */
    GP_CUT_UNREAD,    /* by gp_channel_cut() */
    GP_CUTS,
} gp_cut;

/* Connection counters of a listener for other hosts. */
typedef struct gp_connection_guard_stats {
    uint32_t links;            /* open connections */
    uint64_t accepted, failed; /* failed: handshakes without CURVE or for another server key */
    uint64_t over_rate;        /* messages dropped */
    uint64_t cut[GP_CUTS];
} gp_connection_guard_stats;

/* Process connection events and check all connections. Call it after receiving the pending
 * messages, whenever gp_channel_watch_fd() is readable, and at the latest after
 * gp_channel_poll_timeout_ms() (-1: never). On other channels this function has no effect, and the
 * other two return -1. */
void gp_channel_watch(gp_channel *channel);
int gp_channel_watch_fd(const gp_channel *channel);
int gp_channel_poll_timeout_ms(const gp_channel *channel);

/* Get the next peer whose connection has closed. Return false if no peer is left. */
bool gp_channel_next_gone(gp_channel *channel, gp_peer *out);

/* Disconnect a peer. */
void gp_channel_cut(gp_channel *channel, const gp_peer *peer);

gp_connection_guard_stats gp_channel_get_guard_stats(const gp_channel *channel);

#endif
