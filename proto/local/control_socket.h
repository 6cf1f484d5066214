/* Control socket: the local Unix socket of each daemon, for admission, failure detection and
 * passing file descriptors.
 *
 * The socket is AF_UNIX, SOCK_SEQPACKET. It does what ZeroMQ cannot: identify the peer process,
 * refuse it with a reason, and report at once that a process exited. A client connects, sends a
 * gp_control_socket_hello, receives a gp_control_socket_reply and keeps the connection open
 * while it runs. End of file tells either side that the other process exited.
 *
 * All structs are sent as they are in memory: both processes run on the same kernel. Their layout
 * is fixed and checked by static assertions. All descriptors are close-on-exec and non-blocking. */
#ifndef GP_CONTROL_SOCKET_H
#define GP_CONTROL_SOCKET_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/base/error.h"

#define GP_CONTROL_SOCKET_MAGIC 0x44504731u /* "1GPD" in memory */

enum {
    GP_CONTROL_SOCKET_SILENCE_MS = 2000, /* a connection without a hello is closed after this time */
    GP_CONTROL_SOCKET_TEXT_MAX = 232,
};

/* First packet on a connection, sent by the side that connected. */
typedef struct gp_control_socket_hello {
    uint32_t magic; /* set by gp_control_socket_connect() */
    uint32_t protocol_min, protocol_max;
    uint32_t role; /* gp_role */
    uint32_t pid;  /* as claimed by the peer; gp_control_socket_event.pid comes from the kernel */
    uint32_t reserved;

    /* Session id. A scheduler that connects to a worker sends an 8-byte epoch and zeros instead;
     * epoch 0: unknown. */
    uint8_t session[16];
} gp_control_socket_hello;

/* Reply to a hello: admission or refusal. */
typedef struct gp_control_socket_reply {
    uint32_t magic;
    uint32_t status;   /* gp_status; GP_OK: admitted */
    uint32_t protocol; /* common protocol version */
    uint32_t reserved;
    uint64_t epoch;
    char text[GP_CONTROL_SOCKET_TEXT_MAX]; /* reason for the refusal */
} gp_control_socket_reply;

/* Packet after admission, in either direction. It describes the descriptor that it carries, or
 * requests one. */
typedef struct gp_control_socket_request {
    uint32_t magic; /* set on sending */
    uint32_t what;  /* meaning agreed between sender and receiver, not interpreted here */
    uint64_t lease;
    uint32_t generation;
    uint32_t rank; /* rank of the sender, from 0 */
    uint8_t token[16];
} gp_control_socket_request;

/* ---- daemon side: one descriptor to poll, one function that returns events ---- */

typedef struct gp_control_socket gp_control_socket;

/* Listen at `path` (at most 100 bytes, mode 0600). The socket is bound under a temporary name and
 * renamed, so it replaces an old socket atomically.
 *
 * peers_max limits the open connections. Further clients are refused with GP_EBUSY and a reason,
 * even if the process has no free descriptor: one is kept in reserve for this. */
gp_status gp_control_socket_open(gp_control_socket **out, const char *path, uint32_t peers_max,
                                 gp_error *err);

/* Close all connections and remove the socket file if it still belongs to this process. Accepts
 * NULL. */
void gp_control_socket_close(gp_control_socket *control_socket);

/* Return a level-triggered descriptor. It is readable while
 * gp_control_socket_next() has events or work to do. */
int gp_control_socket_fd(const gp_control_socket *control_socket);

/* Event that gp_control_socket_next() returns. */
typedef enum gp_control_socket_event_kind {
    GP_CONTROL_SOCKET_NOTHING, /* no event left; poll again */
    GP_CONTROL_SOCKET_HELLO,   /* valid hello; the caller must admit or refuse the connection */
    GP_CONTROL_SOCKET_REQUEST, /* request from an admitted peer, with or without a descriptor */
    GP_CONTROL_SOCKET_GONE,    /* a peer that had sent its hello exited or closed; the id is invalid now */
} gp_control_socket_event_kind;

typedef struct gp_control_socket_event {
    gp_control_socket_event_kind kind;
    uint64_t id; /* connection id, never reused */
    pid_t pid;   /* from the kernel */
    gp_control_socket_hello hello;
    gp_control_socket_request request;
    int fd; /* REQUEST: received descriptor, owned by the caller; -1: none */
} gp_control_socket_event;

/* Get the next event; GP_CONTROL_SOCKET_NOTHING: no event is left. Never blocks.
 *
 * Each HELLO is followed by exactly one GONE, unless the caller refused or dropped the peer. GONE
 * can arrive before the caller has replied. This function itself refuses and counts invalid
 * connections, without an event: another uid, no common protocol version, a malformed hello, a
 * timeout, or more than peers_max connections. */
void gp_control_socket_next(gp_control_socket *control_socket, gp_control_socket_event *event);

/* Reply to a HELLO. gp_control_socket_refuse() also closes the
 * connection; no further event follows. */
void gp_control_socket_admit(gp_control_socket *control_socket, uint64_t id, uint64_t epoch);
void gp_control_socket_refuse(gp_control_socket *control_socket, uint64_t id, gp_status status,
                              const char *text);

/* Close a connection without a GONE event. An invalid id is ignored. */
void gp_control_socket_drop(gp_control_socket *control_socket, uint64_t id);

/* Return the table index of a connection, in [0, peers_max). No other open connection of the same
 * socket has this index. */
uint32_t gp_control_socket_index(uint64_t id);

/* Return the descriptor of a connection, for gp_control_socket_send_fd(). It still belongs to
 * `control_socket`. -1: invalid id. */
int gp_control_socket_peer_fd(const gp_control_socket *control_socket, uint64_t id);

/* Open a pidfd of the process that connected. GONE does not report the exit of a process whose
 * connection is still open in a process that it forked. -1 with errno set: invalid id, or no
 * descriptor is left; ESRCH: the process has exited. */
int gp_control_socket_peer_pidfd(const gp_control_socket *control_socket, uint64_t id);

typedef struct gp_control_socket_stats {
    uint32_t peers;   /* open connections, including those not yet admitted */
    uint64_t refused; /* connections that gp_control_socket_next() refused since the socket was opened */
} gp_control_socket_stats;

gp_control_socket_stats gp_control_socket_get_stats(const gp_control_socket *control_socket);

/* ---- client side ---- */

/* Connect, send `hello` and wait up to timeout_ms for the reply. The caller closes *out; it reports
 * end of file when the daemon exits.
 *
 * GP_ENOPOOL: no process listens at `path`.
 * GP_EPERM: the listener runs under another uid.
 * GP_ETIMEDOUT: no reply in time.
 * GP_EPEER: the daemon closed the connection without a reply. Any other code and message: the
 * refusal of the daemon, such as GP_EBUSY or GP_EVERSION. */
gp_status gp_control_socket_connect(int *out, gp_control_socket_reply *reply, const char *path,
                                    const gp_control_socket_hello *hello, int timeout_ms, gp_error *err);

/* Return whether a process accepts connections at `path`. Never waits. */
bool gp_control_socket_listened(const char *path);

/* Return whether the peer closed the connection. A pending request stays in the queue. */
bool gp_control_socket_gone(int socket_fd);

/* ---- requests and descriptors, both sides ---- */

/* Send a request with a copy of descriptor fd (-1: none). GP_EPEER: the peer closed the connection.
 * GP_EBUSY: the receive queue of the peer is full. */
gp_status gp_control_socket_send_fd(int socket_fd, const gp_control_socket_request *request, int fd,
                                    gp_error *err);

/* Wait up to timeout_ms for a request. The caller owns *fd (-1: no descriptor was sent); with fd
 * NULL, a received descriptor is closed.
 *
 * GP_ETIMEDOUT: no request in time.
 * GP_EPEER: end of file.
 * GP_EIO: this process had no free descriptor, and that of the request is lost.
 * GP_EPROTO: malformed packet. */
gp_status gp_control_socket_receive_fd(int socket_fd, gp_control_socket_request *request, int *fd,
                                       int timeout_ms, gp_error *err);

/* Like gp_control_socket_receive_fd() without waiting. GP_ETIMEDOUT: no request is pending. */
gp_status gp_control_socket_request_read(int socket_fd, gp_control_socket_request *request, int *fd,
                                         gp_error *err);

#endif
