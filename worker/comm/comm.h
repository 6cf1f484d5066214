/* comm.h -- the only path from worker to worker: collectives and tagged messages within one group.
 *
 * A gp_comm is one process's place in a group.  gp_comm_new() makes it without a group; gp_comm_form()
 * joins a *generation*: an ordered list of processes in which ours has a rank.  When a member dies,
 * every operation of the survivors ends with GP_EPEER and they form the next generation without it; the
 * same call lets members join later.
 *
 * Each rank owns an *arena*: memory that its peers map too, so that buckets in it are reduced without a
 * copy.  Ranges come from gp_comm_arena_alloc(), which all ranks call in the same order with the same
 * sizes and which therefore yields the same offset on each.  The arena, its contents and its ranges
 * outlive generations.
 *
 * Operations are collective unless said otherwise: every rank calls them in the same order with equal
 * arguments (another order is noticed and fails with GP_ESTATE).  They block, and they all fail with
 *   GP_EPEER      a member died, or left by gp_comm_free(); the message names it
 *   GP_ECANCELED  gp_comm_abort() was called on some rank
 *   GP_ESTATE     no group is formed
 * after which the group is of no use until the next gp_comm_form(), and buffers of the failed operation
 * hold anything.  A death is a fact from the kernel, never a time-out: a stopped peer only delays.  A
 * collective that returned GP_OK on one rank returns GP_OK on all ranks that live.
 *
 * Reductions combine the ranks' values in the order 0, 1, 2 ...: results are bit-equal on all ranks and
 * from run to run.
 *
 * Threads: one thread at a time, except where "any thread" is said. */
#ifndef GP_COMM_H
#define GP_COMM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/base/error.h"
#include "common/base/memory/tensor.h"

typedef struct gp_comm gp_comm;
typedef struct gp_comm_ops gp_comm_ops; /* a transport; see transport.h */

/* Shared memory between processes of one host. */
extern const gp_comm_ops gp_comm_shm;

enum { GP_COMM_WORLD_MAX = 64 };

#define GP_COMM_ARENA_BYTES_MAX   ((size_t)1 << 38)
#define GP_COMM_MESSAGE_BYTES_MAX ((size_t)256 << 20)
#define GP_COMM_QUEUE_BYTES_MAX   ((size_t)1 << 30) /* messages that arrived and were not yet received */
#define GP_COMM_ANY               UINT32_MAX        /* any rank, any tag */

/* ---- forming a group ---- */

typedef struct gp_comm_member {
    uint32_t index; /* of the worker in its pool, for messages */
    pid_t pid;
    uint64_t start_time; /* field 22 of /proc/PID/stat: with the pid it names one process for ever */
} gp_comm_member;

typedef enum gp_comm_what { GP_COMM_WHAT_ARENA = 1, GP_COMM_WHAT_CONTROL = 2 } gp_comm_what;

/* How descriptors travel: in the daemons over door sockets.  A context belongs to one generation. */
typedef struct gp_comm_rendezvous_ops {
    /* Offer our descriptor to all members of this generation.  It stays ours; keep a dup if it is needed
     * after the call.  Must not wait for a peer. */
    gp_status (*publish)(void *context, gp_comm_what what, int fd, gp_error *err);
    /* What `rank` published, as a new descriptor that the caller closes.  GP_ETIMEDOUT: not there within
     * timeout_ms; comm looks whether the peer lives and asks again. */
    gp_status (*fetch)(void *context, uint32_t rank, gp_comm_what what, uint32_t timeout_ms, int *fd,
                       gp_error *err);
} gp_comm_rendezvous_ops;

typedef struct gp_comm_rendezvous {
    uint64_t lease;
    uint32_t generation; /* from 1; grows with every attempt to form */
    uint32_t rank, world;
    const gp_comm_member *members; /* [world], in rank order; read during the call */
    size_t arena_bytes;            /* what gp_comm_arena_alloc() can give out; equal on all ranks */
    bool sparse; /* the arena is addresses only: each range takes its memory when it is given
                                        * out, and a reset gives all back */
    bool spin;   /* may wait busily: each rank has a core of its own */
    const gp_comm_rendezvous_ops *ops; /* may be NULL when world is 1 */
    void *context;
} gp_comm_rendezvous;

/* gp_comm_new -- a gp_comm without a group, so that it can be aborted while it forms one.
 *   out  released with gp_comm_free() */
gp_status gp_comm_new(gp_comm **out, const gp_comm_ops *transport, gp_error *err);

/* gp_comm_free -- leave the group and release everything.  Peers that still wait for this rank get
 * GP_EPEER.  Accepts NULL. */
void gp_comm_free(gp_comm *comm);

/* gp_comm_form -- join a generation; returns when all its members have joined.
 * The first time, or again after the members changed.  Members known from before (same process) keep
 * their arenas and mappings; messages not yet received are dropped.  Every process of the last generation
 * that is left out must be dead, or must have left by gp_comm_free(): a process that is merely slow could
 * still store into an arena.  A larger arena_bytes than before makes a new arena on every rank, ranges and
 * contents are gone then; a smaller one is GP_EINVAL.
 * These change nothing:
 *   GP_ESTATE     a left-out process is alive (the message names it)
 *   GP_ESTALE     the generation is not newer than the last one tried
 * After these there is no group; what survivors share is kept, and the next generation can be formed:
 *   GP_EPEER      a member is dead
 *   GP_EPROTO     a member's memory is not sealed or too short
 *   GP_ECANCELED  aborted, or another rank could not form */
gp_status gp_comm_form(gp_comm *comm, const gp_comm_rendezvous *rendezvous, gp_error *err);

/* gp_comm_abort -- end all operations of generations up to and including `generation`, on all ranks:
 * those now waiting return GP_ECANCELED within milliseconds, and so does a gp_comm_form() of such a
 * generation, now or later.  Any thread, also while another forms or waits; not during gp_comm_free(). */
void gp_comm_abort(gp_comm *comm, uint32_t generation);

/* Of the formed group; 0, 0 and 0 when there is none. */
uint32_t gp_comm_rank(const gp_comm *comm);
uint32_t gp_comm_world(const gp_comm *comm);
uint32_t gp_comm_generation(const gp_comm *comm);

/* ---- the arena (not collective in time, but in order and sizes) ---- */

/* A range of `bytes`, 64-byte aligned and zero at first, valid until the arena is reset, replaced by a larger
 * one or the comm is freed.  GP_ELIMIT: the arena is used up.  GP_ENOMEM: sparse, and the machine has not that much. */
gp_status gp_comm_arena_alloc(gp_comm *comm, size_t bytes, void **out, gp_error *err);

/* The same, but the range is the one of rank `owner`, for all ranks to read and write: *out is where it lies here.  Its
 * memory is taken on that rank alone, if the arena is sparse: others touch it after a collective that follows.  GP_ESTATE:
 * no group is formed.  GP_EINVAL: no such rank.  Valid until the next gp_comm_form(), also after the group failed. */
gp_status gp_comm_arena_alloc_of(gp_comm *comm, uint32_t owner, size_t bytes, void **out, gp_error *err);

/* Where that rank's copy of one of our ranges lies here; what is read and when is the callers' to agree on, by
 * collectives.  A group must be formed; valid as above. */
void *gp_comm_arena_copy(const gp_comm *comm, uint32_t rank, const void *range);

/* Take all ranges back; contents stay as they are, but those of a sparse arena are gone. */
void gp_comm_arena_reset(gp_comm *comm);

/* ---- collectives ---- */

/* Integers add modulo 2^n; MAX of anything and NaN is NaN. */
typedef enum gp_comm_reduction { GP_COMM_SUM = 1, GP_COMM_MAX = 2 } gp_comm_reduction;

/* `buffer` (in the arena, same offset on all ranks; count elements of f32, f64, i32 or i64) := the
 * combination over all ranks, on all ranks.  GP_EINVAL: not within the arena, or another type. */
gp_status gp_comm_all_reduce(gp_comm *comm, void *buffer, size_t count, gp_dtype type, gp_comm_reduction how,
                             gp_error *err);

/* The same for memory anywhere; copies through staging, so 4-5 times slower when large. */
gp_status gp_comm_all_reduce_private(gp_comm *comm, void *buffer, size_t count, gp_dtype type,
                                     gp_comm_reduction how, gp_error *err);

/* The part of `count` elements of which `rank` is the owner: [*first, *last).  Any thread. */
void gp_comm_slice(const gp_comm *comm, size_t count, gp_dtype type, uint32_t rank, size_t *first,
                   size_t *last);

/* As all_reduce, but only our own slice of our buffer is written. */
gp_status gp_comm_reduce_scatter(gp_comm *comm, void *buffer, size_t count, gp_dtype type,
                                 gp_comm_reduction how, gp_error *err);

/* Every rank's own slice reaches all ranks: reduce_scatter + all_gather = all_reduce, bit for bit. */
gp_status gp_comm_all_gather(gp_comm *comm, void *buffer, size_t count, gp_dtype type, gp_error *err);

/* root's bytes reach all ranks; in the arena, and anywhere. */
gp_status gp_comm_broadcast(gp_comm *comm, void *buffer, size_t bytes, uint32_t root, gp_error *err);
gp_status gp_comm_broadcast_private(gp_comm *comm, void *buffer, size_t bytes, uint32_t root, gp_error *err);

/* Every rank's part reaches all ranks: `all` (anywhere) holds rank k's at [parts[k], parts[k + 1]); ours is there
 * already.  parts: world + 1 offsets from 0 on, the same on all ranks. */
gp_status gp_comm_gather_private(gp_comm *comm, void *all, const size_t *parts, gp_error *err);

/* Returns when all ranks have called it. */
gp_status gp_comm_barrier(gp_comm *comm, gp_error *err);

/* gp_comm_look -- whether a collective that were begun now could still succeed: fails as it would where a member died or
 * the group was ended, and ends it for all.  Does not wait; for who waits for peers in another way.
 *   *left  a member has left in good order: it lacks nothing, but it answers nothing either */
gp_status gp_comm_look(gp_comm *comm, bool *left, gp_error *err);

/* ---- tagged messages between two ranks (not collective) ---- */

typedef struct gp_comm_message {
    uint32_t rank; /* of the sender */
    uint32_t tag;
    size_t bytes;
} gp_comm_message;

/* gp_comm_send -- returns when `data` may be reused, which for a large message is when the receiver has
 * taken most of it; messages to us are taken in meanwhile, so two ranks may send to each other first and
 * receive afterwards.  To our own rank: kept until received.
 *   tag    below GP_COMM_ANY
 *   bytes  0 .. GP_COMM_MESSAGE_BYTES_MAX; more is GP_ELIMIT */
gp_status gp_comm_send(gp_comm *comm, uint32_t rank, uint32_t tag, const void *data, size_t bytes,
                       gp_error *err);

/* gp_comm_receive -- the oldest message of that rank and tag (each may be GP_COMM_ANY); those of one sender
 * with one tag arrive in the order sent.
 *   message  who sent what and how long it is
 * GP_ELIMIT: it is longer than `capacity` (*message is set; it can be received again with more room), or more
 * than GP_COMM_QUEUE_BYTES_MAX of other messages wait. */
gp_status gp_comm_receive(gp_comm *comm, uint32_t rank, uint32_t tag, void *buffer, size_t capacity,
                          gp_comm_message *message, gp_error *err);

/* gp_comm_probe -- whether gp_comm_receive() would find one now; *message is set when *found.  Does not
 * wait. */
gp_status gp_comm_probe(gp_comm *comm, uint32_t rank, uint32_t tag, bool *found, gp_comm_message *message,
                        gp_error *err);

/* ---- sections: work that each rank begins and ends in its own time (not collective) ---- */

/* gp_comm_enter -- what follows belongs to the section of that number: the same on all ranks, from 1, growing.
 * gp_comm_leave -- this rank calls nothing more in it.  Who waits for it within that section waits in vain and gets
 * GP_ESTATE, naming both, after some milliseconds, and the group ends as after other failures.  What was sent or
 * begun before still arrives: nothing that could have succeeded fails. */
void gp_comm_enter(gp_comm *comm, uint64_t section);
void gp_comm_leave(gp_comm *comm);

/* ---- what happened ---- */

typedef struct gp_comm_stats {
    uint64_t operations; /* collectives completed since gp_comm_new() */
    uint64_t bytes;      /* of their buffers */
    uint64_t wait_ns;    /* of it, waiting for other ranks */
    uint64_t work_ns;    /* and copying and adding */
} gp_comm_stats;

/* Any thread; a fault test kills "between two buckets" by watching `operations`. */
gp_comm_stats gp_comm_get_stats(const gp_comm *comm);

#endif
