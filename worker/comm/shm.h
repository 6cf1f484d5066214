/* shm.h -- the parts of the shared-memory transport see each other here; nobody else includes this.
 *
 *   arena memfd, one per rank, kept across generations, mapped by all peers:
 *       [ staging: SLOTS x SLOT_BYTES | what gp_comm_arena_alloc() gives out ]
 *   control memfd, one per generation, made by rank 0:
 *       [ header | verdict | arrived | lines[world] | pipes[world][world] ]
 *
 * Barrier number b (from 0) is complete when `arrived` has counted (b + 1) * world arrivals.  Data written
 * before arriving is read after the barrier: arriving is a sequentially consistent addition, which is all
 * the ordering that collectives need.  The end of the group sets a bit of the same word, SHM_CLOSED, and
 * nobody arrives after that: the ranks cannot differ about whether the last barrier was complete.
 *
 * Each word that is waited for has a count of sleepers beside it, so that nobody pays a system call to wake
 * nobody: the waiter adds itself, then looks at the word again; the poster changes the word, then looks for
 * sleepers; in the total order of these four one sees the other. */
#ifndef GP_COMM_SHM_H
#define GP_COMM_SHM_H

#include <pthread.h>
#include <stdatomic.h>

#include "worker/comm/transport.h"

enum {
    SLOTS = 3, /* see stage_next() in shm_collectives.c */
    SLOT_BYTES = 256 << 10,
    STAGING_BYTES = SLOTS * SLOT_BYTES,
    PIPE_BYTES = 64 << 10, /* a power of two */
    CALLS = 4,
};

#define SHM_CLOSED 0x80000000u /* in `arrived`; counts run on modulo 2^31 below it */

typedef struct shm_word {
    _Atomic uint32_t value, sleepers;
} shm_word;

/* What one rank shows to all. */
typedef struct shm_line {
    _Alignas(64) shm_word bell;         /* rung when its pipes moved: bytes for it, or room for it */
    _Alignas(64) _Atomic uint32_t left; /* it stores into nobody's arena any more */
    _Atomic uint64_t calls[CALLS];      /* fingerprint of its call at barrier b, at b % CALLS */
    _Atomic uint64_t over;              /* the last section that it has left */
} shm_line;

/* Bytes from one rank to another; both counts run on modulo 2^32. */
typedef struct shm_pipe {
    _Alignas(64) _Atomic uint32_t written;
    _Alignas(64) _Atomic uint32_t taken;
    _Alignas(64) uint8_t data[PIPE_BYTES];
} shm_pipe;

typedef struct shm_control {
    uint64_t magic, lease;
    uint32_t generation, world;
    uint32_t spin; /* rank 0 may wait busily: decides for all which way small sums go */
    _Alignas(64) _Atomic uint32_t verdict; /* 0 while the group works, then its first end; see shm_wait.c */
    _Alignas(64) shm_word arrived;
    shm_line lines[];
} shm_control;

typedef struct shm_peer {
    gp_comm_member member;
    int pidfd;    /* -1: not open */
    uint8_t *map; /* its arena with the staging in front; ours for ourselves; NULL: not mapped */
    size_t bytes;
    uint64_t inode; /* of the memory mapped: a peer that came back with a new arena is noticed */
} shm_peer;

typedef struct shm_message {
    struct shm_message *next;
    uint32_t rank, tag;
    size_t bytes;
    uint8_t data[];
} shm_message;

typedef struct shm_head {
    uint32_t tag, zero;
    uint64_t bytes;
} shm_head;

/* What has been taken from one pipe and is not yet a whole message. */
typedef struct shm_inbound {
    shm_head head;
    size_t head_got, got;
    shm_message *message;
} shm_inbound;

typedef struct shm_group {
    gp_comm base;
    pthread_mutex_t lock; /* of control against gp_comm_abort() of other threads */
    shm_control *control; /* NULL: no group; written under the lock */
    size_t control_bytes;
    shm_pipe *pipes;                  /* in control */
    _Atomic uint32_t aborted_through; /* the newest generation that gp_comm_abort() ended */
    int arena_fd;                     /* -1: none */
    uint8_t *arena_map;               /* with the staging in front */
    size_t arena_map_bytes;
    shm_peer peers[GP_COMM_WORLD_MAX]; /* of the last generation attempted, in rank order */
    uint32_t peer_count;
    bool spin;
    uint64_t barriers, staged; /* completed in this generation; slots used in it */
    uint64_t section;          /* that we are in; 0 = none */
    shm_inbound inbound[GP_COMM_WORLD_MAX];
    shm_message *first, **last; /* whole messages in order of arrival */
    size_t queue_bytes;
} shm_group;

#define SHM_ALL (GP_COMM_ANY - 1) /* awaits every rank */

/* shm_wait.c */

/* Wait until `word` has reached `target` (modulo 2^31).  `awaited`: the rank without which that cannot
 * happen, SHM_ALL, or GP_COMM_ANY for at least one of them. */
gp_status gp_shm_wait(shm_group *shm, shm_word *word, uint32_t target, uint32_t awaited, gp_error *err);
void gp_shm_post(shm_word *word); /* adds one and wakes */

/* A barrier, and proof that the neighbour is at the same call: fingerprints must be equal. */
gp_status gp_shm_sync(shm_group *shm, uint64_t fingerprint, gp_error *err);

typedef enum shm_end { SHM_ABORTED = 1, SHM_DIED, SHM_LEFT, SHM_MIXED_UP, SHM_MALFORMED, SHM_OVER } shm_end;

/* End the group for all ranks, unless it has ended; wakes everybody. */
void gp_shm_end(shm_control *control, shm_end end, uint32_t rank);
/* GP_OK while the group works, else why it ended. */
gp_status gp_shm_verdict(const shm_group *shm, gp_error *err);
/* Look for dead members and end the group if there is one; what `awaited` means is said above.  waits: that we do not
 * go on without it, so that a member that has left our section matters too.  One that went after it had brought `word`
 * to `target` is not missed. */
void gp_shm_look(shm_group *shm, const shm_word *word, uint32_t target, uint32_t awaited, bool waits);
gp_status gp_shm_look_now(gp_comm *comm, bool *left, gp_error *err);
void gp_shm_section(gp_comm *comm, uint64_t section, bool over);

/* shm_messages.c */
void gp_shm_messages_clear(shm_group *shm);
gp_status gp_shm_send(gp_comm *comm, uint32_t rank, uint32_t tag, const void *data, size_t bytes,
                      gp_error *err);
gp_status gp_shm_receive(gp_comm *comm, uint32_t rank, uint32_t tag, void *buffer, size_t capacity,
                         gp_comm_message *message, gp_error *err);
gp_status gp_shm_probe(gp_comm *comm, uint32_t rank, uint32_t tag, bool *found, gp_comm_message *message,
                       gp_error *err);

/* shm_collectives.c */
gp_status gp_shm_all_reduce(gp_comm *comm, const gp_comm_call *call, gp_error *err);
gp_status gp_shm_all_reduce_private(gp_comm *comm, const gp_comm_call *call, gp_error *err);
gp_status gp_shm_reduce_scatter(gp_comm *comm, const gp_comm_call *call, gp_error *err);
gp_status gp_shm_all_gather(gp_comm *comm, const gp_comm_call *call, gp_error *err);
gp_status gp_shm_broadcast(gp_comm *comm, const gp_comm_call *call, uint32_t root, gp_error *err);
gp_status gp_shm_broadcast_private(gp_comm *comm, const gp_comm_call *call, uint32_t root, gp_error *err);
gp_status gp_shm_gather_private(gp_comm *comm, void *all, const size_t *parts, gp_error *err);
gp_status gp_shm_barrier(gp_comm *comm, gp_error *err);

#endif
