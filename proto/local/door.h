/* door.h -- every daemon's plain local socket: who knocks, polite refusals, death notices, descriptors.
 *
 * AF_UNIX, SOCK_SEQPACKET.  ZeroMQ cannot say who a peer is, refuse with a reason, or tell at once that a process
 * is gone; the kernel can.  A client connects, sends gp_door_hello, gets gp_door_reply, and keeps the connection
 * for as long as it lives: end of file is the notice of death, in both directions.
 *
 * All structs here travel as they are in memory (same host, same kernel); their layout is fixed and pinned by a
 * test.  All descriptors are close-on-exec and never block. */
#ifndef GP_DOOR_H
#define GP_DOOR_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/base/error.h"

#define GP_DOOR_MAGIC 0x44504731u /* "1GPD" in memory */

enum {
    GP_DOOR_SILENCE_MS = 2000, /* a peer that connects and says nothing is closed then */
    GP_DOOR_TEXT_MAX = 232,
};

typedef struct gp_door_hello {
    uint32_t magic; /* filled in by gp_door_connect() */
    uint32_t protocol_min, protocol_max;
    uint32_t role; /* gp_role */
    uint32_t pid;  /* as the peer says; the kernel's word is in gp_door_event */
    uint32_t reserved;
    uint8_t
        session[16]; /* of a scheduler that calls a worker: its epoch, 8 bytes, then zeros; 0 = not told */
} gp_door_hello;

typedef struct gp_door_reply {
    uint32_t magic;
    uint32_t status;   /* gp_status; GP_OK = come in */
    uint32_t protocol; /* the common version */
    uint32_t reserved;
    uint64_t epoch;
    char text[GP_DOOR_TEXT_MAX]; /* the refusal, a sentence */
} gp_door_reply;

/* What a descriptor is, or which one is asked for. */
typedef struct gp_door_request {
    uint32_t magic; /* filled in on sending */
    uint32_t what;  /* of the two ends' making */
    uint64_t lease;
    uint32_t generation;
    uint32_t rank; /* from 0, of the sender */
    uint8_t token[16];
} gp_door_request;

/* ---- the daemon's side: one descriptor to poll, one function to ask what happened ---- */

typedef struct gp_door gp_door;

/* gp_door_open -- listen at path (at most 100 bytes), 0600, bound under a temporary name and renamed.
 * peers_max: connections kept at once; later ones are told GP_EBUSY in words.  So are those that come when the
 * process is out of descriptors (one is kept in reserve for that). */
gp_status gp_door_open(gp_door **out, const char *path, uint32_t peers_max, gp_error *err);
void gp_door_close(
    gp_door *door); /* accepts NULL; closes all connections, removes path if it is still ours */

/* Level-triggered POLLIN: gp_door_next() has something to do. */
int gp_door_fd(const gp_door *door);

typedef enum gp_door_event_kind {
    GP_DOOR_NOTHING, /* all done: poll again */
    GP_DOOR_KNOCK,   /* a valid hello: answer by gp_door_admit() or gp_door_refuse() */
    GP_DOOR_REQUEST, /* an admitted peer sent a request, with a descriptor or without */
    GP_DOOR_GONE,    /* a peer that has knocked ended or hung up; its id is no longer valid */
} gp_door_event_kind;

typedef struct gp_door_event {
    gp_door_event_kind kind;
    uint64_t id; /* of the connection; never used twice */
    pid_t pid;   /* by the kernel */
    gp_door_hello hello;
    gp_door_request request;
    int fd; /* of REQUEST: owned by the caller; -1 = none came */
} gp_door_event;

/* gp_door_next -- the next event; GP_DOOR_NOTHING when none is left.  Never blocks.  After a KNOCK there is exactly
 * one GONE, unless the peer was refused or dropped; it can come before the answer.  Strangers (another uid, no
 * common version, bad hello, silence, over peers_max) are refused in here and counted, not shown. */
void gp_door_next(gp_door *door, gp_door_event *event);

/* Answer a KNOCK.  After refuse the connection is closed and gives no further event. */
void gp_door_admit(gp_door *door, uint64_t id, uint64_t epoch);
void gp_door_refuse(gp_door *door, uint64_t id, gp_status status, const char *text);

/* Hang up on a peer; no GONE follows.  An id that is no longer valid is ignored. */
void gp_door_drop(gp_door *door, uint64_t id);

/* Where the connection of a valid id is among those of its door: in [0, peers_max), no other's while it is there. */
uint32_t gp_door_place(uint64_t id);

/* The connection's descriptor (borrowed), for gp_door_send_fd(); -1 when the id is no longer valid. */
int gp_door_peer_fd(const gp_door *door, uint64_t id);

typedef struct gp_door_stats {
    uint32_t peers;   /* connected now, those not yet admitted included */
    uint64_t refused; /* since open, by the door itself */
} gp_door_stats;

gp_door_stats gp_door_get_stats(const gp_door *door);

/* ---- the client's side ---- */

/* gp_door_connect -- knock and wait for the answer, at most timeout_ms.  *out is a descriptor that the caller
 * closes; it becomes readable with end of file when the daemon is gone.
 * GP_ENOPOOL: nobody listens at path.  GP_EPERM: the listener is not of our uid.  GP_ETIMEDOUT.  Or the status and
 * the sentence of the refusal: GP_EBUSY, GP_EVERSION, ... */
gp_status gp_door_connect(int *out, gp_door_reply *reply, const char *path, const gp_door_hello *hello,
                          int timeout_ms, gp_error *err);

/* gp_door_listened -- whether a process accepts connections at path; never waits. */
bool gp_door_listened(const char *path);

/* gp_door_gone -- whether the other end has hung up; a request that waits is left where it is. */
bool gp_door_gone(int door_fd);

/* ---- descriptors, both sides ---- */

/* gp_door_send_fd -- send request with a copy of descriptor fd (-1 = none).  request->magic is filled in.
 * GP_EPEER: the other end is gone.  GP_EBUSY: its queue is full. */
gp_status gp_door_send_fd(int door_fd, const gp_door_request *request, int fd, gp_error *err);

/* gp_door_receive_fd -- wait at most timeout_ms for a request; *fd (may be NULL: then any is closed) is owned by the
 * caller, -1 when none came.  GP_ETIMEDOUT, GP_EPEER (end of file), GP_EPROTO (not a request). */
gp_status gp_door_receive_fd(int door_fd, gp_door_request *request, int *fd, int timeout_ms, gp_error *err);

#endif
