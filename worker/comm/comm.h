/* Communication between the workers of a group: collectives and tagged messages.
 *
 * A gp_comm holds one process's membership. gp_comm_new() creates it without a group, and
 * gp_comm_form() joins a generation: an ordered list of processes in which this process has a rank.
 * After a worker failure, every operation of the surviving ranks fails with GP_EPEER, and they form
 * the next generation without the failed worker. New members join in the same way.
 *
 * Each rank owns an arena: memory that all peers map, so that collectives on it need no copies.
 * gp_comm_arena_alloc() allocates ranges from the arena. All ranks call it in the same order with
 * the same sizes, so a range has the same offset on every rank. The arena, including all contents
 * and ranges, survives a generation change.
 *
 * Operations are collective unless stated otherwise: every rank calls them in the same order with
 * equal arguments. A call that differs between ranks fails with GP_ESTATE. Operations block, and
 * all fail with:
 *   GP_EPEER      a member exited, or left with gp_comm_free(); the message names it
 *   GP_ECANCELED  some rank called gp_comm_abort()
 *   GP_ESTATE     no group is formed
 * After such a failure the group is unusable until the next gp_comm_form(), and the failed
 * operation's buffers have undefined contents. The kernel reports failed members; no timeout is
 * involved, so a stopped peer only causes a delay. If a collective returns GP_OK on one rank, it
 * returns GP_OK on all live ranks.
 *
 * Reductions combine the values in rank order 0, 1, 2, ...: the results are bitwise identical on
 * all ranks and in every run.
 *
 * At most one thread at a time may use a gp_comm, except for functions marked "any thread". */
#ifndef GP_COMM_H
#define GP_COMM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/base/error.h"
#include "common/base/memory/tensor.h"

/* The ranks are processes of one host and share memory. */
typedef struct gp_comm gp_comm;

/* maximum rank count in a group */
enum { GP_COMM_WORLD_MAX = 64 };

/* Limits in bytes: arena size, message size, and messages that arrived but were not received
 * yet. */
#define GP_COMM_ARENA_BYTES_MAX   ((size_t)1 << 38)
#define GP_COMM_MESSAGE_BYTES_MAX ((size_t)256 << 20)
#define GP_COMM_QUEUE_BYTES_MAX   ((size_t)1 << 30)
#define GP_COMM_ANY               UINT32_MAX /* any rank or any tag */

/* ---- forming a group ---- */

/* A process that belongs to a group. PID and start time together identify a process uniquely. */
typedef struct gp_comm_member {
    uint32_t index; /* worker number in the pool, used in messages */
    pid_t pid;
    uint64_t start_time; /* clock ticks since boot, field 22 of /proc/PID/stat */
} gp_comm_member;

/* Kind of file descriptor that the ranks exchange. */
typedef enum gp_comm_what { GP_COMM_WHAT_ARENA = 1, GP_COMM_WHAT_CONTROL = 2 } gp_comm_what;

/* Exchange of file descriptors between the ranks; the worker daemon uses control sockets. One
 * context serves one generation. */
typedef struct gp_comm_rendezvous_ops {
    /* Offer a descriptor to all members of this generation. The caller keeps ownership, so the
     * implementation must dup() it if needed after the call. Must not wait for a peer. */
    gp_status (*publish)(void *context, gp_comm_what what, int fd, gp_error *err);
    /* Get the descriptor that `rank` published, as a new descriptor that the caller closes.
     * GP_ETIMEDOUT: not published within timeout_ms; gp_comm_form() checks that the peer is alive,
     * then retries. */
    gp_status (*fetch)(void *context, uint32_t rank, gp_comm_what what, uint32_t timeout_ms, int *fd,
                       gp_error *err);
} gp_comm_rendezvous_ops;

/* Arguments of gp_comm_form(). */
typedef struct gp_comm_rendezvous {
    /* lease id; equal on all ranks */
    uint64_t lease;
    uint32_t generation; /* starts at 1; incremented for every attempt to form a group */
    /* own rank, and rank count */
    uint32_t rank, world;
    const gp_comm_member *members; /* [world], in rank order; read during the call */
    size_t arena_bytes;            /* capacity for gp_comm_arena_alloc(); equal on all ranks */
    /* reserve only addresses: each allocation commits memory, and a reset returns all memory */
    bool sparse;
    bool spin;                         /* may busy-wait, because each rank has its own core */
    const gp_comm_rendezvous_ops *ops; /* may be NULL if world is 1 */
    /* passed to `ops` */
    void *context;
} gp_comm_rendezvous;

/* Create a gp_comm without a group. Separate from gp_comm_form(), so that another thread can abort
 * the forming.
 *   out  release with gp_comm_free() */
gp_status gp_comm_new(gp_comm **out, gp_error *err);

/* Leave the group and release everything. Peers that wait for this rank fail with GP_EPEER. Accepts
 * NULL. */
void gp_comm_free(gp_comm *comm);

/* Join a generation and return after all members joined.
 *
 * Members that also belonged to the previous generation (same process) keep their arenas and
 * mappings. Messages that were not received are dropped. Every process of the previous generation
 * that is no longer a member must have exited, or left with gp_comm_free(): a slow process could
 * still write to an arena. A larger arena_bytes than before replaces the arena on every rank and
 * discards its contents.
 *
 * Errors that change nothing:
 *   GP_ESTATE     an excluded process is still alive; the message names it
 *   GP_ESTALE     the generation is not newer than the last attempt
 *   GP_EINVAL     arena_bytes is smaller than before, or another argument is invalid
 * Errors that leave this rank without a group; surviving ranks keep their mappings and can form the
 * next generation:
 *   GP_EPEER      a member exited
 *   GP_EPROTO     a member's memory is not sealed or too short
 *   GP_ECANCELED  aborted, or another rank failed to form */
gp_status gp_comm_form(gp_comm *comm, const gp_comm_rendezvous *rendezvous, gp_error *err);

/* Abort all operations of generations up to and including `generation`, on all ranks. Waiting
 * operations fail with GP_ECANCELED within milliseconds. A gp_comm_form() for such a generation
 * fails in the same way, even if called later. Any thread, also while another thread forms or
 * waits; not during gp_comm_free(). */
void gp_comm_abort(gp_comm *comm, uint32_t generation);

/* Return a property of the current group. 0: no group is formed. */
uint32_t gp_comm_rank(const gp_comm *comm);
uint32_t gp_comm_world(const gp_comm *comm);
uint32_t gp_comm_generation(const gp_comm *comm);

/* ---- the arena (all ranks allocate in the same order, but need not do so at the same time)
 * ---- */

/* Allocate an arena range: 64-byte aligned, initially zero. It stays valid until the arena is reset
 * or replaced, or the gp_comm is freed. GP_ELIMIT: the arena is full. GP_ENOMEM: the arena is
 * sparse and the host is out of memory. */
gp_status gp_comm_arena_alloc(gp_comm *comm, size_t bytes, void **out, gp_error *err);

/* Allocate a range in the arena of rank `owner`, which all ranks may read and write.
 *   owner  for a sparse arena, only this rank commits memory; other ranks must not touch the range
 *          before the next collective
 *   bytes  range size
 *   out    address in this process; valid until the next gp_comm_form(), even if the group fails
 * GP_ESTATE: no group is formed. GP_EINVAL: no such rank. */
gp_status gp_comm_arena_alloc_of(gp_comm *comm, uint32_t owner, size_t bytes, void **out, gp_error *err);

/* Return the address in this process of another rank's copy of a range. A group must be formed.
 * Callers synchronise access by collectives. Valid until the next gp_comm_form(). */
void *gp_comm_arena_copy(const gp_comm *comm, uint32_t rank, const void *range);

/* Free all ranges. The contents remain, except in a sparse arena. */
void gp_comm_arena_reset(gp_comm *comm);

/* ---- collectives ---- */

/* Reduction operators. Integer sums wrap modulo 2^n; the maximum with a NaN is NaN. */
typedef enum gp_comm_reduction { GP_COMM_SUM = 1, GP_COMM_MAX = 2 } gp_comm_reduction;

/* Combine a buffer element by element over all ranks and store the result on all ranks.
 *   buffer  in the arena, at the same offset on all ranks
 *   count   elements
 *   type    GP_F32, GP_F64, GP_I32 or GP_I64
 * GP_EINVAL: the buffer is outside the arena, or the type is not supported. */
gp_status gp_comm_all_reduce(gp_comm *comm, void *buffer, size_t count, gp_dtype type, gp_comm_reduction how,
                             gp_error *err);

/* Perform an all-reduce on memory outside the arena. Copies through staging buffers, so large
 * buffers take 4 to 5 times as long as in the arena. */
gp_status gp_comm_all_reduce_private(gp_comm *comm, void *buffer, size_t count, gp_dtype type,
                                     gp_comm_reduction how, gp_error *err);

/* Compute the slice of `count` elements that `rank` owns: [*first, *last). Any thread. */
void gp_comm_slice(const gp_comm *comm, size_t count, gp_dtype type, uint32_t rank, size_t *first,
                   size_t *last);

/* Combine a buffer as gp_comm_all_reduce() does, but store only the own slice, in the own
 * buffer. */
gp_status gp_comm_reduce_scatter(gp_comm *comm, void *buffer, size_t count, gp_dtype type,
                                 gp_comm_reduction how, gp_error *err);

/* Copy every rank's own slice to all ranks. After gp_comm_reduce_scatter() the result is bitwise
 * identical to the gp_comm_all_reduce() result. */
gp_status gp_comm_all_gather(gp_comm *comm, void *buffer, size_t count, gp_dtype type, gp_error *err);

/* Copy a buffer, anywhere in memory, from rank `root` to all ranks. */
gp_status gp_comm_broadcast(gp_comm *comm, void *buffer, size_t bytes, uint32_t root, gp_error *err);

/* Gather one part from every rank on all ranks.
 *   all    receives all parts, anywhere in memory; the own part is already in place
 *   parts  world + 1 offsets in bytes, starting at 0 and equal on all ranks; rank k's part is
 *          [parts[k], parts[k + 1]) */
gp_status gp_comm_gather_private(gp_comm *comm, void *all, const size_t *parts, gp_error *err);

/* Wait until all ranks have called this function. */
gp_status gp_comm_barrier(gp_comm *comm, gp_error *err);

/* Check without waiting whether a collective could still succeed. Fails as the collective would if
 * a member exited or the group was ended, and then ends the group for all ranks. For callers that
 * wait for peers by other means.
 *   left  set to true if a member left with gp_comm_free(): not an error, but it will not reply */
gp_status gp_comm_check(gp_comm *comm, bool *left, gp_error *err);

/* ---- tagged messages between two ranks (not collective) ---- */

/* Sender, tag and size of a received message. */
typedef struct gp_comm_message {
    uint32_t rank; /* sender's rank */
    uint32_t tag;
    size_t bytes;
} gp_comm_message;

/* Send a message and return when `data` may be reused. For a large message, that is after the
 * receiver has taken most of it. While waiting, the call stores incoming messages, so two ranks may
 * both send first and receive afterwards, up to GP_COMM_QUEUE_BYTES_MAX bytes each. Beyond that, or
 * if memory is exhausted, ranks that wait to send to each other end the group with GP_ESTATE. A
 * message to the own rank is stored until received.
 *   tag    less than GP_COMM_ANY
 *   bytes  0 .. GP_COMM_MESSAGE_BYTES_MAX; more: GP_ELIMIT */
gp_status gp_comm_send(gp_comm *comm, uint32_t rank, uint32_t tag, const void *data, size_t bytes,
                       gp_error *err);

/* Receive the oldest message that matches. Messages from one sender with one tag arrive in order.
 *   rank, tag  GP_COMM_ANY: any
 *   message    set to sender, tag and size
 * GP_ELIMIT: the message is longer than `capacity` (*message is set, and the message remains
 * available), or more than GP_COMM_QUEUE_BYTES_MAX bytes of other messages are pending. */
gp_status gp_comm_receive(gp_comm *comm, uint32_t rank, uint32_t tag, void *buffer, size_t capacity,
                          gp_comm_message *message, gp_error *err);

/* Check without waiting whether gp_comm_receive() would find a message; set *message if *found is
 * true. */
gp_status gp_comm_probe(gp_comm *comm, uint32_t rank, uint32_t tag, bool *found, gp_comm_message *message,
                        gp_error *err);

/* ---- sections: work that each rank begins and ends independently (not collective) ---- */

/* Begin a section: work that each rank begins and ends at its own pace. The number starts at 1,
 * grows, and is the same on all ranks. */
void gp_comm_enter(gp_comm *comm, uint64_t section);

/* End the section: this rank makes no more calls in it. If another rank, still in the section,
 * waits for this rank, that operation fails with GP_ESTATE after some milliseconds and the group
 * ends; the message names both ranks. Messages sent before the end still arrive, so no operation
 * fails that could succeed. */
void gp_comm_leave(gp_comm *comm);

/* ---- what happened ---- */

/* Counters since gp_comm_new(). */
typedef struct gp_comm_stats {
    uint64_t operations; /* completed collectives */
    uint64_t bytes;      /* total buffer size of these collectives */
    uint64_t wait_ns;    /* time spent waiting for other ranks */
    uint64_t work_ns;    /* time spent copying and reducing */
} gp_comm_stats;

/* Return the counters. Any thread: fault tests poll `operations` to kill a worker between two
 * buckets. */
gp_comm_stats gp_comm_get_stats(const gp_comm *comm);

#endif
