/* Record contents on a shared-memory link. link.h describes their transport.
 *
 * Opening a link, by a client that holds a lease and has attached to the worker:
 *
 *   1. The client connects to the worker's control socket and keeps the connection. End of file
 *      tells either side that the other exited.
 *   2. It sends GP_CONTROL_SOCKET_SEGMENT and GP_CONTROL_SOCKET_WAKEUP with lease and token, each
 *      with a descriptor.
 *   3. It sends task_open over ZeroMQ. The worker uses the descriptors sent with this token.
 *   4. The worker replies with task_ready or error_reply.
 *
 * Blobs: after that, GP_CONTROL_SOCKET_BLOB goes in both directions, with the blob number in
 * `lease`. A blob is sent before the record that names it is committed. Numbers are chosen by
 * the sender: above 0, in any order, never reused.
 *
 * - A client blob may be named by several calls. It stays mapped until GP_CALL_RELEASE names it
 * or the link ends. Values, files and objects created from it outlive it.
 * - Worker blobs are named in the order in which they were sent, each at most once. A named blob
 * belongs to the client.
 * - In a record with a blob, payload_bytes is the blob size. Inline bytes then extend to the end
 * of the record, and an inline text ends with a NUL.
 * - A client may have GP_LINK_BLOBS_MAX unreleased blobs; the worker disconnects a client that
 * sends more.
 *
 * A link outlives lease generations: when a worker fails, the other workers keep their links.
 *
 * Each call gets one GP_ANSWER_DONE with the call's id, except GP_CALL_RELEASE, GP_CALL_CLOSE and
 * revoked calls. The worker runs and answers calls in ring order. It answers a malformed record
 * with GP_EPROTO. */
#ifndef GP_TASK_WIRE_H
#define GP_TASK_WIRE_H

#include <stdint.h>

#include "proto/task/link.h"

/* Values for gp_control_socket_request.what, in addition to those in comm.h. */
enum {
    GP_CONTROL_SOCKET_SEGMENT = 100, /* client: link memfd */
    GP_CONTROL_SOCKET_WAKEUP = 101,  /* client: wakeup eventfd */
    /* Both sides: memfd, sealed against shrinking. Objects and files must also be sealed against
     * growing and writing. An argument's sender can still write to it; only the tasks that read it
     * are affected. */
    GP_CONTROL_SOCKET_BLOB = 102,
    /* Client to scheduler: memfd with secrets for the pool (common/base/memory/secret.h); the reply
     * has the same `what` and a gp_status in `lease`. Worker to a failed scheduler's successor: the
     * pool's secrets, which the old scheduler kept in memory only. */
    GP_CONTROL_SOCKET_SECRETS = 103,
    /* Client to worker, with lease, generation and token from the grant: memfd with weights for the
     * next message, or no descriptor, which names the connection for weights sent by the worker.
     * Worker to client: memfd with weights for the next message. Sealed against writing, growing
     * and shrinking. */
    GP_CONTROL_SOCKET_WEIGHTS = 104,
};

enum {
    GP_TASK_NAME_MAX = 128,    /* longest value, function or queue name, without the NUL */
    GP_TASK_OBJECTS_MAX = 256, /* limits per lease on one worker */
    GP_TASK_FUNCTIONS_MAX = 4096,
    GP_TASK_VALUES_MAX = 65536,
    GP_TASK_FILES_MAX = 256,
    GP_LINK_BLOBS_MAX = 1024,
    GP_TASK_LOOPS_MAX = 64,       /* open at once */
    GP_TASK_REDUCE_MAX = 1 << 20, /* bytes per accumulator */
};

/* gp_answer.value if a rank failed in a GP_CALL_BLOCK. */
enum { GP_BLOCK_NOT_FORMED = 1, GP_BLOCK_GROUP_FAILED = 2 };

/* Call kinds, with the gp_call members that they use. */
typedef enum gp_call_kind {
    /* Load code. payload: gp_task_object and the original path, for messages; blob: the file;
     * count: object number, chosen by the client, from 1. */
    GP_CALL_OBJECT = 1,
    /* Look up a function. count: object number; function: function number, chosen by the client,
     * from 1; payload: symbol name. */
    GP_CALL_FUNCTION = 2,
    /* Provide a file that tasks can read. payload: name; blob: the file. */
    GP_CALL_FILE = 3,

    /* Run a function once. payload or blob: argument; attempt: from 1; value: random seed. The
     * answer holds the result as payload or blob. */
    GP_CALL_RUN = 10,
    /* Run a function as one rank in a block with `count` ranks. All ranks get the same id; ids
     * increase from block to block.
     *
     *   first            rank, from 0, and the lease generation << 32; the ranks are the first
     *                    `count` members of that generation
     *   attempt          group number, from 1; a new number forms a new group. The client
     *                    increments it for each new generation or rank count, and after a block
     *                    that failed, answered GP_ANSWER_BROKEN, or whose message counts do not add
     *                    up to 0
     *   value            random seed
     *   payload or blob  argument
     *
     * The answer holds a short result inline. A longer result stays on the worker: flag
     * GP_ANSWER_KEPT, value: size in bytes. GP_CALL_FETCH then gets it (once), GP_CALL_FORGET frees
     * it. count: messages sent minus messages received by the rank, modulo 2^32.
     *
     * On failure, value is GP_BLOCK_NOT_FORMED if no rank has started, or GP_BLOCK_GROUP_FAILED if
     * a collective or message of the rank had failed, possibly caused by another rank. */
    GP_CALL_BLOCK = 11,
    GP_CALL_FETCH = 12,  /* first: block id */
    GP_CALL_FORGET = 13, /* first: block id */

    /* Open a loop: once per worker, before any chunk runs. count: loop number, chosen by the
     * client; function; payload: gp_task_loop and the argument, or the argument alone in the
     * blob. */
    GP_CALL_LOOP_OPEN = 20,
    /* Run a loop chunk. function: loop number; first: first iteration's position, from 0; count:
     * iterations; value: time limit in ns after which the chunk should end early (0: none); payload
     * or blob: input slices.
     *
     * The answer has in count the completed iterations, at least one; the others were not started.
     * With flag GP_ANSWER_FAILED, count may be 0, and the iteration after the completed ones
     * failed. The comment on gp_task_loop describes the payload. */
    GP_CALL_LOOP = 21,
    GP_CALL_LOOP_CLOSE = 22, /* function: loop number */
    /* Combine accumulators: first with second, third with fourth, and so on. function: loop number;
     * payload or blob: `count` accumulators, an even number. The answer holds half as many. */
    GP_CALL_COMBINE = 23,

    /* Set or get a named value. PUT payload: name, NUL, bytes; or the bytes in a blob and the name
     * as inline payload. PUT without bytes and with flag GP_CALL_REMOVE removes the value. GET
     * payload: name; the answer holds the bytes. */
    GP_CALL_PUT = 30,
    GP_CALL_GET = 31,

    GP_CALL_RELEASE = 39, /* blob: the client will not name it again */
    GP_CALL_CLOSE = 40,   /* the client is done; the worker leaves the link */
} gp_call_kind;

enum { GP_CALL_REMOVE = 1 };

/* GP_CALL_OBJECT payload; the path follows. */
typedef struct gp_task_object {
    uint8_t sha256[32];
    uint64_t bytes;
} gp_task_object;

/* GP_CALL_LOOP_OPEN payload; the argument follows. The loop runs over first, first + step, ...,
 * with `total` iterations (0: unknown, an endless source).
 *
 * The answer to a chunk holds, in this order:
 *
 * - output_bytes for each iteration
 * - for each iteration that returned a result (gp_task_result) a gp_task_item with the bytes,
 *   padded to 16
 * - with flag GP_ANSWER_FAILED: a gp_task_failure
 * - one accumulator for each reduction tree node inside the chunk (reduction.h) */
typedef struct gp_task_loop {
    int64_t first, step;
    uint64_t total;
    uint64_t seed; /* seed for the iterations' random streams */
    uint32_t input_bytes, output_bytes;
    uint32_t reduce_bytes; /* accumulator size; 0: no reduction */

    /* Iterations reduced in order into one accumulator. Chunks start at multiples of this. */
    uint32_t reduce_block;
    uint32_t combine;     /* function number, combines two accumulators; 0: use reduce_kind */
    uint32_t reduce_kind; /* gp_reduce_kind */
    uint64_t argument_bytes;
    uint32_t flags; /* GP_LOOP_... */
    uint32_t reserved;
} gp_task_loop;

enum {
    /* A failing iteration ends its chunk, and the answer has the iterations before it and a
     * gp_task_failure. Otherwise the whole chunk fails. The worker publishes the running iteration
     * (gp_link_set_progress). */
    GP_LOOP_ISOLATED = 1,
    GP_LOOP_TIMED = 2, /* check the time limit of a chunk after each iteration */
};

/* Built-in reductions: operation and element type. */
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

/* Result header in a chunk's answer. */
typedef struct gp_task_item {
    uint64_t bytes;
    uint32_t iteration; /* index within the chunk, from 0 */
    uint32_t reserved;
} gp_task_item;

/* Failed iteration in a chunk's answer. */
typedef struct gp_task_failure {
    uint32_t status; /* gp_status */
    uint32_t reserved;
    char message[GP_ERROR_MESSAGE_MAX]; /* NUL-terminated */
} gp_task_failure;

/* Answer kinds. */
typedef enum gp_answer_kind {
    /* The call has ended. status GP_OK: the answer holds the result. Otherwise payload: error
     * message; value: for a loop, the iteration that failed, from 0. */
    GP_ANSWER_DONE = 1,
    /* Item for a data queue, sent by the running call. payload: queue name, NUL, bytes; or the
     * bytes in a blob and the name inline. */
    GP_ANSWER_QUEUE = 2,
    GP_ANSWER_LOG = 3, /* payload: text line */
    /* value: records dropped because the client did not read; count: GP_ANSWER_OUTPUT for lines of
     * output, 0 for log lines and queue items. Results are never dropped. */
    GP_ANSWER_DROPPED = 4,
    /* Line that a task printed, if task_open requested output. id: the call that ran; value: with
     * flag GP_ANSWER_ITERATION the iteration; payload: the line without its newline, at most
     * GP_LINE_BYTES_MAX. */
    GP_ANSWER_OUTPUT = 5,
} gp_answer_kind;

enum {
    GP_ANSWER_KEPT = 1,
    GP_ANSWER_BROKEN = 2,    /* the block's group is unusable */
    GP_ANSWER_FAILED = 4,    /* an iteration of the loop chunk failed */
    GP_ANSWER_ITERATION = 8, /* the line was printed by an iteration of a loop */
};

#endif
