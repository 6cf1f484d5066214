/* link.h -- the fast way between a client and the compute thread of a leased worker on the same host: one sealed
 * memfd with a ring in each direction, and a wake-up only where the other side sleeps.
 *
 *   client ---- calls ---->  worker (compute)       blobs, larger than GP_LINK_INLINE_MAX, are memfds that go
 *          <--- answers ---                         through the worker's door beside it, named by a number
 *
 * A ring holds records of one contiguous piece each (gp_call, gp_answer), whole and 64-byte aligned, as they are in
 * memory: same host, same build of the layout (GP_LINK_VERSION is checked).  A ring that is full is the credit that
 * is used up: the producer keeps what it has and goes on when there is room, so nothing is ever dropped.
 *
 * Each side trusts its own memory only: what it reads from the segment is copied or checked against its private
 * capacity, because a task that corrupts its worker's memory must not take the client with it.
 *
 * A call lies in its ring until the worker *takes* it, by changing gp_call.state from QUEUED to TAKEN; the client
 * can *revoke* it until then (QUEUED to REVOKED): to cancel it, or to give it to a worker that has nothing to do.
 * After a worker's death the segment is still there: answers that it committed are read, calls that it had not
 * taken were not begun, and gp_link_running() is the one that it died of.
 *
 * Waiting: who finds nothing spins for a while if that has paid lately and the other side runs on another core,
 * then sleeps: the worker on a futex in the segment, the client on its eventfd among its other descriptors.
 *
 * Threads: one on each side at a time, but for gp_link_wake(). */
#ifndef GP_LINK_H
#define GP_LINK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"

enum {
    GP_LINK_VERSION = 1,
    GP_LINK_RING_BYTES = 512 << 10, /* of each direction */
    GP_LINK_INLINE_MAX = 32 << 10,  /* payload bytes of one record; more is a blob */
    GP_LINK_SPIN_NS = 50000,        /* the longest spin before sleeping */
};

#define GP_LINK_BLOB_BYTES_MAX ((uint64_t)1 << 36)

/* ---- records; all fields are the sender's word, their meaning is in task_wire.h ---- */

typedef enum gp_call_state { GP_CALL_QUEUED = 0, GP_CALL_TAKEN = 1, GP_CALL_REVOKED = 2 } gp_call_state;

/* Client to worker; 64 bytes and the payload. */
typedef struct gp_call {
    uint32_t bytes; /* of the record with its payload and padding: a multiple of 64 */
    uint16_t kind;  /* gp_call_kind */
    uint16_t flags;
    _Atomic uint32_t state; /* gp_call_state */
    uint32_t function;
    uint64_t id;
    int64_t first;
    uint32_t count;
    uint32_t attempt;
    uint64_t blob; /* 0 = the payload is inline */
    uint64_t payload_bytes;
    uint64_t value; /* by kind */
    unsigned char payload[];
} gp_call;

/* Worker to client; 64 bytes and the payload. */
typedef struct gp_answer {
    uint32_t bytes;
    uint16_t kind; /* gp_answer_kind */
    uint16_t flags;
    uint32_t status; /* gp_status */
    uint32_t count;
    uint64_t id;       /* of the call */
    uint64_t begun_ns; /* since the worker took the link: a duration, as all times on the wire */
    uint64_t ended_ns;
    uint64_t blob;
    uint64_t payload_bytes;
    uint64_t value; /* by kind */
    unsigned char payload[];
} gp_answer;

_Static_assert(sizeof(gp_call) == 64 && sizeof(gp_answer) == 64, "records are pinned");

/* ---- making ---- */

typedef struct gp_link gp_link;

/* gp_link_new -- the client's side, with a new segment.
 *   fd    the segment's descriptor, to be sent to the worker; the caller closes it
 *   bell  eventfd of the client (borrowed) that the worker writes when the client sleeps; -1 on the worker's side
 * GP_ENOMEM, GP_EIO. */
gp_status gp_link_new(gp_link **out, int *fd, gp_error *err);

/* gp_link_map -- the worker's side of a segment that came through the door.
 *   bell  the client's eventfd (borrowed until free)
 *   spin  whether waiting may be busy: the worker has a core of its own
 * GP_EPROTO: not sealed against resizing, or of another size.  GP_EVERSION. */
gp_status gp_link_map(gp_link **out, int fd, int bell, bool spin, gp_error *err);

void gp_link_free(gp_link *link); /* accepts NULL; does not touch the other side */

/* ---- producing ---- */

/* Room for a record with that payload (at most GP_LINK_INLINE_MAX), header zeroed but for bytes and payload_bytes;
 * NULL when the ring has no room now.  It is filled in place and seen by nobody before gp_link_commit().  Several
 * may be reserved before one commit. */
void *gp_link_reserve(gp_link *link, size_t payload_bytes);
void gp_link_commit(gp_link *link);

/* Wake the other side if it sleeps; after commit, as often or as rarely as its patience allows. */
void gp_link_ring(gp_link *link);

/* ---- consuming ---- */

/* The oldest record not yet dropped, or GP_ETIMEDOUT.  The header's bytes and payload_bytes have been checked: the
 * payload is `payload_bytes` long if blob is 0.  The other side can still change what is in it: copy what is checked,
 * and hold it against gp_link_payload_max().
 * GP_EPROTO: the ring is corrupt; the link is of no use any more. */
gp_status gp_link_next(gp_link *link, const void **record, gp_error *err);
/* How many bytes of the record that was given last lie behind its header, padding included; by our own memory. */
size_t gp_link_payload_max(const gp_link *link);
void gp_link_drop(gp_link *link); /* the record of the last gp_link_next() */

/* ---- calls: taking and revoking ---- */

/* Worker: whether the call that gp_link_next() gave is still wanted. */
bool gp_call_take(const gp_call *call);

/* Client: where the call that was reserved last lies, for gp_link_revoke(). */
uint64_t gp_link_position(const gp_link *link);
/* Client: true: the worker has not begun the call at that position and never will. */
bool gp_link_revoke(gp_link *link, uint64_t position);
/* Client: whether the worker has begun the call at that position, or has ended it. */
bool gp_link_begun(const gp_link *link, uint64_t position);

/* Worker: what it is running now (0 = nothing); client: what it said.  0 after a call ended. */
void gp_link_set_running(gp_link *link, uint64_t id);
uint64_t gp_link_running(const gp_link *link);

/* Client: the running call of that id should end.  Worker: whether the call now running should. */
void gp_link_cancel(gp_link *link, uint64_t id);
bool gp_link_canceled(const gp_link *link);

/* ---- waiting ---- */

/* Worker: return when a call may be there, gp_link_wake() was called, or the time is over (-1 = never). */
void gp_link_wait(gp_link *link, int64_t timeout_ns);
/* Any thread of the worker: the present or next gp_link_wait() returns at once. */
void gp_link_wake(gp_link *link);

/* Client: announce that it will sleep on its eventfd; false: answers are there already, do not sleep.  The
 * announcement is taken back by gp_link_awake(). */
bool gp_link_asleep(gp_link *link, bool patient);
/* Worker: whether the client sleeps and is patient: it waits for many answers, and a few ms do not matter to it. */
bool gp_link_patient(const gp_link *link);
void gp_link_awake(gp_link *link);
/* Client: whether an answer waits; cheap enough to spin on. */
bool gp_link_pending(const gp_link *link);

/* The core on which the other side was last seen; -1 = not known.  Ours is told by commit, wait and awake. */
int gp_link_peer_core(const gp_link *link);
bool gp_link_idle(const gp_link *link); /* every record of ours was dropped by the other side */

/* How long to spin before sleeping: longer when the last waits were short, not at all when they were long. */
typedef struct gp_spin {
    uint32_t ns;    /* of the next spin; begins at 0 */
    uint32_t tries; /* waits since the last that was tried without hope */
} gp_spin;

int64_t gp_spin_begin(gp_spin *spin);               /* how long to spin now, ns; 0 = sleep at once */
void gp_spin_end(gp_spin *spin, int64_t waited_ns); /* how long it took in all */

#endif
