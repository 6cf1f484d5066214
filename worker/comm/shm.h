/* Internals of a rank group in shared memory, private to comm.c and the shm*.c files.
 *
 *   arena memfd, one per rank, kept across generations, mapped by all peers:
 *       [ staging: SLOTS x SLOT_BYTES | memory for gp_comm_arena_alloc() ]
 *   control memfd, one per generation, created by rank 0:
 *       [ header | verdict | arrived | lines[world] | pipes[world][world] ]
 *
 * Barrier b (counted from 0) is complete when `arrived` has counted (b + 1) * world arrivals. A
 * rank reads data after the barrier that its peers wrote before they arrived. Arrivals are
 * sequentially consistent additions, and collectives need no other memory ordering. When the group
 * ends, a rank sets the SHM_CLOSED bit in the same word, and no rank can arrive afterwards. All
 * ranks therefore agree on whether the last barrier completed.
 *
 * Every word that a rank can wait for has a sleeper count next to it, so that posting costs a
 * system call only if another rank sleeps. The waiter increments the count, then reads the word
 * again. The poster changes the word, then reads the count. These four operations are totally
 * ordered, so one side notices the other. */
#ifndef GP_COMM_SHM_H
#define GP_COMM_SHM_H

#include <pthread.h>
#include <stdatomic.h>

#include "worker/comm/comm.h"

enum {
    SLOTS = 3, /* staging slots per rank; see stage_next() in shm_collectives.c */
    SLOT_BYTES = 256 << 10,
    STAGING_BYTES = SLOTS * SLOT_BYTES,
    PIPE_BYTES = 64 << 10, /* pipe capacity; a power of two */
    /* recent barriers whose call fingerprints are kept */
    CALLS = 4,
};

#define SHM_CLOSED 0x80000000u /* flag in `arrived`; the counter below it wraps modulo 2^31 */

/* A futex word and the number of processes that sleep on it. */
typedef struct shm_word {
    _Atomic uint32_t value, sleepers;
} shm_word;

/* State that one rank publishes to all others. */
typedef struct shm_line {
    /* wakeup counter: incremented when a pipe has new data or new room for this rank */
    _Alignas(64) shm_word wakeup_fd;
    _Alignas(64) _Atomic uint32_t left; /* nonzero: this rank no longer writes to any arena */
    /* call fingerprint at barrier b, in entry b % CALLS */
    _Atomic uint64_t calls[CALLS];
    /* number of the last section that this rank left; 0: none */
    _Atomic uint64_t over;
    /* last wait of this rank for room in a pipe; 0: none. High 32 bits: wakeup count before the
     * wait, which ends when the count changes. Low 32 bits: receiving rank + 1. */
    _Atomic uint64_t blocked;
} shm_line;

/* Ring buffer for bytes from one rank to another. Both counters wrap modulo 2^32. */
typedef struct shm_pipe {
    /* total bytes written by the sender */
    _Alignas(64) _Atomic uint32_t written;
    /* total bytes read by the receiver */
    _Alignas(64) _Atomic uint32_t taken;
    _Alignas(64) uint8_t data[PIPE_BYTES];
} shm_pipe;

/* Control segment header. */
typedef struct shm_control {
    /* identify the group; checked by every rank that maps the segment */
    uint64_t magic, lease;
    uint32_t generation, world;
    /* rank 0 may busy-wait. All ranks follow this flag when they select the method for small
     * sums. */
    uint32_t spin;
    /* 0: the group works; otherwise the first reason why it ended, see control_end() in
     * shm_wait.c */
    _Alignas(64) _Atomic uint32_t verdict;
    /* total barrier arrivals */
    _Alignas(64) shm_word arrived;
    shm_line lines[];
} shm_control;

/* A member of the last attempted generation. */
typedef struct shm_peer {
    gp_comm_member member;
    int pidfd; /* -1: not open */
    /* address of this member's arena, which starts with the staging slots; NULL: not mapped */
    uint8_t *map;
    size_t bytes;
    uint64_t inode; /* inode of the mapped memfd; detects that a peer created a new arena */
} shm_peer;

/* A complete or partly received message in local memory. */
typedef struct shm_message {
    struct shm_message *next;
    uint32_t rank, tag;
    size_t bytes;
    uint8_t data[];
} shm_message;

/* Header in front of every message in a pipe. */
typedef struct shm_head {
    uint32_t tag, zero;
    uint64_t bytes;
} shm_head;

/* A message that was partly read from a pipe. */
typedef struct shm_inbound {
    shm_head head;
    /* bytes read so far: header, payload */
    size_t head_got, got;
    /* NULL: the header is not complete */
    shm_message *message;
} shm_inbound;

/* Arguments of a collective on elements. */
typedef struct gp_comm_call {
    void *buffer;
    size_t offset; /* buffer offset in the arena, if the buffer must be in the arena */
    /* elements */
    size_t count;
    gp_dtype type;
    gp_comm_reduction how;
} gp_comm_call;

/* This process's membership. Only gp_comm_form() writes the first part. */
struct gp_comm {
    uint32_t rank, world, generation; /* world 0: no group */
    uint8_t *arena;                   /* own arena, behind the staging slots */
    /* capacity and allocated bytes */
    size_t arena_bytes, arena_used;
    bool sparse; /* ranges commit memory on allocation */
    /* counters, written only by the thread that runs operations */
    _Atomic uint64_t operations, bytes, wait_ns, total_ns;
    pthread_mutex_t lock; /* protects `control` against gp_comm_abort() in other threads */
    shm_control *control; /* NULL: no group; written under the lock */
    size_t control_bytes;
    shm_pipe *pipes;                  /* points into `control` */
    _Atomic uint32_t aborted_through; /* newest generation that gp_comm_abort() ended */
    int arena_fd;                     /* -1: none */
    uint8_t *arena_map;               /* own arena, which starts with the staging slots */
    size_t arena_map_bytes;
    shm_peer peers[GP_COMM_WORLD_MAX]; /* members of the last attempted generation, in rank order */
    uint32_t peer_count;
    /* this rank may busy-wait */
    bool spin;
    uint64_t barriers, staged; /* barriers completed and staging slots used in this generation */
    uint64_t section;          /* current section number; 0: none */
    shm_inbound inbound[GP_COMM_WORLD_MAX];
    shm_message *first, **last; /* complete messages, queued in arrival order */
    size_t queue_bytes;         /* total size in the queue and in all partly received messages */
    size_t queue_bytes_max;     /* limit of queue_bytes; tests lower it */
};

#define SHM_ALL (GP_COMM_ANY - 1) /* wait that needs every rank */

/* Check that a group is formed; in comm.c. */
gp_status gp_shm_check_formed(const gp_comm *comm, gp_error *err);

/* shm_wait.c */

/* Wait until `word` has reached a count.
 *   target   the count, modulo 2^31
 *   awaited  rank that must act first. SHM_ALL: every rank; GP_COMM_ANY: at least one other rank */
gp_status gp_shm_wait(gp_comm *comm, shm_word *word, uint32_t target, uint32_t awaited, gp_error *err);
void gp_shm_post(shm_word *word); /* increment the word and wake all sleepers */

/* Wait at a barrier and check that the next rank makes the same call.
 *   fingerprint  call hash; GP_ESTATE: it differs between ranks */
gp_status gp_shm_sync(gp_comm *comm, uint64_t fingerprint, gp_error *err);

/* Reason why a group ended. */
typedef enum shm_end {
    SHM_ABORTED = 1,
    SHM_DIED,
    SHM_LEFT,
    SHM_MIXED_UP,
    SHM_MALFORMED,
    SHM_OVER,
    SHM_FULL,
} shm_end;

/* End the group for all ranks and wake them. No effect if the group has already ended. */
void gp_shm_end(shm_control *control, shm_end end, uint32_t rank);

/* Return GP_OK while the group works, otherwise an error with the reason why it ended. */
gp_status gp_shm_verdict(const gp_comm *comm, gp_error *err);

/* Check for exited members and end the group if the wait cannot succeed.
 *   word, target  wait condition; a member that left after its part was done causes no
 *                 failure
 *   awaited       as for gp_shm_wait()
 *   waits         the caller blocks, so a member that left the current section also ends the
 * group */
void gp_shm_check(gp_comm *comm, const shm_word *word, uint32_t target, uint32_t awaited, bool waits);

/* shm_messages.c */
void gp_shm_messages_clear(gp_comm *comm);

/* shm_collectives.c */
gp_status gp_shm_all_reduce(gp_comm *comm, const gp_comm_call *call, gp_error *err);
gp_status gp_shm_all_reduce_private(gp_comm *comm, const gp_comm_call *call, gp_error *err);
gp_status gp_shm_reduce_scatter(gp_comm *comm, const gp_comm_call *call, gp_error *err);
gp_status gp_shm_all_gather(gp_comm *comm, const gp_comm_call *call, gp_error *err);
gp_status gp_shm_gather_private(gp_comm *comm, void *all, const size_t *parts, gp_error *err);
gp_status gp_shm_barrier(gp_comm *comm, gp_error *err);

#endif
