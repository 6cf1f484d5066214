/* Shared-memory link between a client and a leased worker's compute thread on the same host. A
 * sealed memfd contains one ring buffer per direction, and a wake-up is sent only if the peer
 * sleeps.
 *
 *   client  ---- calls ---->   worker (compute)
 *           <--- answers ---
 *           <---- blobs --->   payloads larger than GP_LINK_INLINE_MAX: memfds sent through the
 *                              worker's control socket, identified by a number
 *
 * A ring holds contiguous, 64-byte aligned records (gp_call, gp_answer) in their memory layout;
 * GP_LINK_VERSION identifies the layout. A full ring provides back pressure: the producer keeps its
 * records and continues when there is room, so no record is ever dropped.
 *
 * Each side trusts only its own memory. Values read from the segment are copied, or checked against
 * private limits: a task that corrupts the worker's memory must not bring down the client.
 *
 * A call stays in its ring until the worker takes it (gp_call.state QUEUED -> TAKEN). Until then
 * the client can revoke it (QUEUED -> REVOKED), to cancel it or to give it to an idle worker.
 *
 * The segment outlives a worker failure. Committed answers can still be read, calls not taken were
 * never started, and gp_link_running() identifies the call during which the worker failed.
 *
 * An idle side spins for a short time, if spinning has paid off recently and the peer runs on
 * another core. Then it sleeps: the worker on a futex in the segment, the client by polling its
 * eventfd with its other descriptors.
 *
 * Threads: one on each side at a time, except for gp_link_wake(). */
#ifndef GP_LINK_H
#define GP_LINK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"

enum {
    GP_LINK_VERSION = 1,
    GP_LINK_RING_BYTES = 512 << 10, /* ring size, per direction */
    GP_LINK_INLINE_MAX = 32 << 10,  /* largest inline payload; larger payloads become blobs */
    GP_LINK_SPIN_NS = 50000,        /* longest spin before sleeping */
};

#define GP_LINK_BLOB_BYTES_MAX ((uint64_t)1 << 36)

/* ---- records; task_wire.h defines the fields ---- */

typedef enum gp_call_state { GP_CALL_QUEUED = 0, GP_CALL_TAKEN = 1, GP_CALL_REVOKED = 2 } gp_call_state;

/* Call from client to worker: 64 bytes and the payload. */
typedef struct gp_call {
    uint32_t bytes; /* record size with payload and padding, a multiple of 64 */
    uint16_t kind;  /* gp_call_kind */
    uint16_t flags;
    _Atomic uint32_t state; /* gp_call_state */
    uint32_t function;
    uint64_t id;
    int64_t first;
    uint32_t count;
    uint32_t attempt;
    uint64_t blob; /* blob number; 0: inline payload */
    uint64_t payload_bytes;
    uint64_t value; /* depends on kind */
    unsigned char payload[];
} gp_call;

/* Answer from worker to client: 64 bytes and the payload. */
typedef struct gp_answer {
    uint32_t bytes;
    uint16_t kind; /* gp_answer_kind */
    uint16_t flags;
    uint32_t status; /* gp_status */
    uint32_t count;
    uint64_t id;       /* the call's id */
    uint64_t begun_ns; /* start time, since the worker mapped the link */
    uint64_t ended_ns;
    uint64_t blob;
    uint64_t payload_bytes;
    uint64_t value; /* depends on kind */
    unsigned char payload[];
} gp_answer;

_Static_assert(sizeof(gp_call) == 64 && sizeof(gp_answer) == 64,
               "the size of records is part of the protocol");

/* ---- opening ---- */

typedef struct gp_link gp_link;

/* Create a link with a new segment; client side.
 *
 *   fd  set to the segment's descriptor, to be sent to the worker; the caller closes it
 *
 * GP_ENOMEM: out of memory.
 * GP_EIO: the memfd could not be created. */
gp_status gp_link_new(gp_link **out, int *fd, gp_error *err);

/* Map a segment received through the control socket; worker side.
 *
 *   wakeup_fd  client's wakeup eventfd, borrowed until gp_link_free()
 *   spin  the worker has a core for itself, so waits may spin
 *
 * GP_EPROTO: the segment is not sealed against resizing.
 * GP_EVERSION: wrong size or layout version. */
gp_status gp_link_map(gp_link **out, int fd, int wakeup_fd, bool spin, gp_error *err);

void gp_link_free(gp_link *link); /* Unmap the link; accepts NULL. The peer is not notified. */

/* ---- producing ---- */

/* Reserve a record with a payload of at most GP_LINK_INLINE_MAX bytes. The header is zero except
 * for bytes and payload_bytes. Fill the record in place. gp_link_commit() makes all reserved
 * records visible to the peer. NULL: the ring has no room now. */
void *gp_link_reserve(gp_link *link, size_t payload_bytes);
void gp_link_commit(gp_link *link);

/* Return how many bytes of records from this side the peer has not dropped. */
uint64_t gp_link_unread(const gp_link *link);

/* Wake the peer if it sleeps. Call it after gp_link_commit(). If gp_link_patient() returns true,
 * one call after several commits suffices. */
void gp_link_ring(gp_link *link);

/* ---- consuming ---- */

/* Get the oldest record that has not been dropped. Its `bytes` and `payload_bytes` have been
 * checked: an inline payload lies completely inside the record. The peer can still modify the
 * record, so copy fields before checking them, and compare lengths with gp_link_payload_max().
 *
 * GP_ETIMEDOUT: the ring is empty.
 * GP_EPROTO: the ring is corrupt; the link is unusable. */
gp_status gp_link_next(gp_link *link, const void **record, gp_error *err);

/* Return the current record's bytes behind the header, padding included. The value comes from
 * private memory. */
size_t gp_link_payload_max(const gp_link *link);
void gp_link_drop(gp_link *link); /* Drop the record that gp_link_next() returned last. */

/* ---- taking and revoking calls ---- */

/* Worker: take the call that gp_link_next() returned. Return false if it was revoked. */
bool gp_call_take(const gp_call *call);

/* Client: return the last reserved call's ring position, for gp_link_revoke(). */
uint64_t gp_link_position(const gp_link *link);

/* Client: revoke the call at a position. Return true if the worker has not started it and never
 * will. */
bool gp_link_revoke(gp_link *link, uint64_t position);

/* Client: return whether the worker has finished the call at a position. Its answer precedes. */
bool gp_link_ended(const gp_link *link, uint64_t position);

/* Client: return whether the worker has started, and possibly finished, the call at a position. */
bool gp_link_begun(const gp_link *link, uint64_t position);

/* Set (worker) or get (client) the running call's id; 0: none. Setting it resets the progress. */
void gp_link_set_running(gp_link *link, uint64_t id);
uint64_t gp_link_running(const gp_link *link);

/* Set (worker) or get (client) how far the running call is: the index of the running iteration of a
 * loop chunk. The client reads it after the worker has failed. */
void gp_link_set_progress(gp_link *link, uint32_t iteration);
uint32_t gp_link_progress(const gp_link *link);

/* Client: request the running call with this id to stop. Worker: return whether the running call
 * was requested to stop. */
void gp_link_cancel(gp_link *link, uint64_t id);
bool gp_link_canceled(const gp_link *link);

/* ---- waiting ---- */

/* Worker: wait until a call may be pending, gp_link_wake() was called, or timeout_ns has passed
 * (-1: no limit). */
void gp_link_wait(gp_link *link, int64_t timeout_ns);

/* Worker, from any thread: make the current or next gp_link_wait() return at once. */
void gp_link_wake(gp_link *link);

/* Client: announce that it is about to sleep on the eventfd. Return false if an answer is pending;
 * the client must not sleep then. The second argument is true if the client expects many answers
 * and tolerates a delay of some milliseconds. gp_link_awake() withdraws the announcement. */
bool gp_link_asleep(gp_link *link, bool patient);

/* Worker: return whether the client sleeps and tolerates a delay. */
bool gp_link_patient(const gp_link *link);
void gp_link_awake(gp_link *link);

/* Client: return whether an answer is pending. Cheap enough for a spin loop. */
bool gp_link_pending(const gp_link *link);

/* Return the core on which the peer last ran; -1: unknown. Each side publishes its own core while
 * it waits or wakes up. */
int gp_link_peer_core(const gp_link *link);

/* Return whether the peer has dropped all records from this side. */
bool gp_link_idle(const gp_link *link);

/* Adaptive spinning: spin while recent waits were short, sleep at once while they were long. */
typedef struct gp_spin {
    uint32_t ns;    /* next spin's duration; initially 0 */
    uint32_t tries; /* waits since the last trial spin */
} gp_spin;

/* Return how long to spin now in ns; 0: sleep at once. */
int64_t gp_spin_begin(gp_spin *spin);

/* Record how long the whole wait took. */
void gp_spin_end(gp_spin *spin, int64_t waited_ns);

#endif
