/* task_wire.h -- what the records of a link mean; link.h says how they travel.
 *
 * Opening a link, by the client that holds the lease and has attached (ZeroMQ):
 *   1. it connects to the worker's door and keeps the connection; its end is the notice of death both ways
 *   2. it sends GP_DOOR_SEGMENT and GP_DOOR_BELL with lease and the lease's token, each with its descriptor
 *   3. it sends task_open (ZeroMQ), which names no descriptor: the worker looks for those of this token
 *   4. task_ready comes back, or error_reply
 * From then on the connection is known, and GP_DOOR_BLOB goes both ways with the blob's number in `lease`.  A blob is
 * sent before the record that names it is committed.  Numbers are the sender's, above 0, in any order, and never used twice.
 * A blob from the client may be named by any number of calls and stays mapped until GP_CALL_RELEASE names it or the
 * link ends; what a call made of it (a value, a file, an object) stays beyond that.  A blob from the worker is named
 * once and is the client's from then on.  A record with a blob has the blob's size in payload_bytes; its inline bytes
 * then reach to the end of the record, and a text in them ends with NUL.  A client has at most GP_LINK_BLOBS_MAX blobs
 * that it has not released: a worker hangs up on one that sends more.
 * A link outlives generations of its lease: survivors of another worker's death keep theirs.
 *
 * All calls are answered once by GP_ANSWER_DONE with the call's id, but for GP_CALL_RELEASE, GP_CALL_CLOSE and those
 * that were revoked.  Calls are served and answered in the order of the ring.  A worker that finds a record malformed
 * answers GP_EPROTO. */
#ifndef GP_TASK_WIRE_H
#define GP_TASK_WIRE_H

#include <stdint.h>

#include "proto/task/link.h"

/* gp_door_request.what, beyond those of a group's rendezvous (comm.h). */
enum {
    GP_DOOR_SEGMENT = 100, /* client: the link's memfd */
    GP_DOOR_BELL = 101,    /* client: its eventfd */
    /* Either: a memfd, sealed against shrinking.  Objects and files are sealed against growing and writing too; the
     * writer of an argument may go on writing, at the cost of the tasks that read it. */
    GP_DOOR_BLOB = 102,
    /* Client to scheduler: a memfd of secrets (common/base/memory/secret.h) for the pool; back: the same, `lease` a gp_status.
     * Worker to a scheduler that calls it: the pool's secrets, which the one that died has taken with it. */
    GP_DOOR_SECRETS = 103,
    /* Client to worker, with lease, generation and token of the grant: a memfd of weights for the
     * message that follows, or no descriptor, so that the worker can send weights over this
     * connection. Worker to client: a memfd of weights for the message that follows. Sealed against
     * writing, growing and shrinking. */
    GP_DOOR_WEIGHTS = 104,
};

enum {
    GP_TASK_NAME_MAX = 128,    /* bytes of names of values, functions and queues, without the NUL */
    GP_TASK_OBJECTS_MAX = 256, /* shared objects and functions that a worker takes of one lease */
    GP_TASK_FUNCTIONS_MAX = 4096,
    GP_TASK_VALUES_MAX = 65536,
    GP_TASK_FILES_MAX = 256,
    GP_LINK_BLOBS_MAX = 1024,
    GP_TASK_LOOPS_MAX = 64,       /* open at once */
    GP_TASK_REDUCE_MAX = 1 << 20, /* bytes of one accumulator */
};

/* gp_answer.value of a rank that failed (GP_CALL_BLOCK). */
enum { GP_BLOCK_NOT_FORMED = 1, GP_BLOCK_GROUP_FAILED = 2 };

typedef enum gp_call_kind {
    /* Code.  payload: gp_task_object, then the path it had (for messages); the file is the blob.  count: number that
     * the client gives it, from 1. */
    GP_CALL_OBJECT = 1,
    /* count: number of the object; function: the number that the client gives it, from 1; payload: symbol name. */
    GP_CALL_FUNCTION = 2,
    /* A file for tasks to read.  payload: name; the file is the blob. */
    GP_CALL_FILE = 3,

    /* Run function once.  payload or blob: the argument; attempt from 1; value: seed of its random stream.  answer: the
     * result as payload or blob. */
    GP_CALL_RUN = 10,
    /* Run function as a rank in a block of `count`; all ranks get the same id, which grows from block to block.
     * first: the rank, from 0, and the generation of the lease << 32; the ranks are the first `count` members in it.
     * attempt: the number of their group, from 1: one of another number is formed anew.  The client counts on with every
     * new generation or number of ranks, and after a block that failed, that was GP_ANSWER_BROKEN, or whose ranks' counts
     * do not sum up to 0.  payload or blob: the argument; value: seed of the ranks' random streams.
     * answer: result inline when it is short, else it stays on the worker: flag GP_ANSWER_KEPT, value = its bytes;
     * Of a failure, value GP_BLOCK_NOT_FORMED: no rank has begun; GP_BLOCK_GROUP_FAILED: a collective or message of the
     * rank had failed, perhaps because of another rank.
     * GP_CALL_FETCH gets it (once), GP_CALL_FORGET frees it.  count: messages that the rank has sent less those that it
     * has received, modulo 2^32. */
    GP_CALL_BLOCK = 11,
    GP_CALL_FETCH = 12,  /* first: id of the block */
    GP_CALL_FORGET = 13, /* first: id of the block */

    /* A loop is opened once per worker (count: its number, function, payload: gp_task_loop and then the argument, or
     * the argument alone in the blob), runs in chunks and is closed. */
    GP_CALL_LOOP_OPEN = 20,
    /* function: number of the loop; first: position of the first iteration, from 0; count: iterations; value: nanoseconds
     * after which the chunk should end early (0 = never).  payload or blob: their slices of the input.
     * answer: count = iterations done, at least one; those that are left were not begun.  payload: see gp_task_loop. */
    GP_CALL_LOOP = 21,
    GP_CALL_LOOP_CLOSE = 22, /* function: number of the loop */
    /* Combine accumulators, the first with the second and so on: function: number of the loop; payload or blob: `count`
     * of them, an even number; answer: half as many. */
    GP_CALL_COMBINE = 23,

    /* Values by name.  PUT: payload = name, NUL, bytes; or in a blob, with the name as inline payload.  No bytes and
     * flag GP_CALL_REMOVE: remove.  GET: payload = name; answer: the bytes. */
    GP_CALL_PUT = 30,
    GP_CALL_GET = 31,

    GP_CALL_RELEASE = 39, /* blob: the client will not name it again */
    GP_CALL_CLOSE = 40,   /* the client is done: the worker leaves the link */
} gp_call_kind;

enum { GP_CALL_REMOVE = 1 };

/* Payload of GP_CALL_OBJECT: then the path. */
typedef struct gp_task_object {
    uint8_t sha256[32];
    uint64_t bytes;
} gp_task_object;

/* Payload of GP_CALL_LOOP_OPEN: then the argument.  The range is first, first + step, ... (`total` iterations; 0 = not
 * known: an endless source).  The answer to a chunk holds, in this order: output_bytes per iteration; for each
 * iteration that gave a result (gp_task_result) a gp_task_item with its bytes, padded to 16; accumulators, one for
 * each part of the reduction's tree that the chunk is (reduction.h). */
typedef struct gp_task_loop {
    int64_t first, step;
    uint64_t total;
    uint64_t seed; /* of the iterations' random streams */
    uint32_t input_bytes, output_bytes;
    uint32_t reduce_bytes; /* of an accumulator; 0 = no reduction */
    uint32_t
        reduce_block; /* iterations that are reduced in order into one accumulator; chunks begin at multiples */
    uint32_t combine;     /* number of the function that combines two accumulators; 0 = by `reduce_kind` */
    uint32_t reduce_kind; /* gp_reduce_kind */
    uint64_t argument_bytes;
} gp_task_loop;

typedef enum gp_reduce_kind {
    GP_REDUCE_NONE = 0,
    GP_REDUCE_SUM_F64 = 1,
    GP_REDUCE_SUM_F32 = 2,
    GP_REDUCE_SUM_I64 = 3,
    GP_REDUCE_MIN_F64 = 4,
    GP_REDUCE_MAX_F64 = 5,
    GP_REDUCE_PRODUCT_F64 = 6,
    GP_REDUCE_MIN_I64 = 7,
    GP_REDUCE_MAX_I64 = 8,
} gp_reduce_kind;

typedef struct gp_task_item {
    uint64_t bytes;
    uint32_t iteration; /* within the chunk, from 0 */
    uint32_t reserved;
} gp_task_item;

typedef enum gp_answer_kind {
    /* The end of a call.  status GP_OK: the result.  Else payload: the sentence; value: the iteration (from 0) that
     * failed, of a loop. */
    GP_ANSWER_DONE = 1,
    GP_ANSWER_QUEUE =
        2, /* from the running call: payload = name of the queue, NUL, bytes; or blob, name inline */
    GP_ANSWER_LOG = 3, /* payload: a line of text */
    /* value: how many log lines or queue items were dropped because the client read nothing (never of results). */
    GP_ANSWER_DROPPED = 4,
} gp_answer_kind;

enum {
    GP_ANSWER_KEPT = 1,
    GP_ANSWER_BROKEN = 2, /* of a block: its group is of no use any more */
};

#endif
