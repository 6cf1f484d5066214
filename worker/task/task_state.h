/* task_state.h -- internal structures shared by the files that serve a link. Not for other
 * files.
 *
 *   tasks.c                    the loop over the link: takes calls, dispatches them to handlers,
 *                              answers
 *   object.c                   code: shared objects and the functions in them
 *   blobs.c                    numbered descriptors received over the control socket
 *   values.c                   named data: values, constants, files
 *   task_api.c                 functions of task.h, except communication between ranks
 *   capture.c                  lines that tasks print
 *   task_loop.c                GP_CALL_LOOP and related calls
 *   task_block.c, task_comm.c  blocks, and the functions of task.h for communication between
 *                              ranks
 *   model*.c, task_data.c      train_task.h
 *
 * Everything belongs to the compute thread, except gp_link_server and fields marked otherwise. */
#ifndef GP_TASK_STATE_H
#define GP_TASK_STATE_H

#include <stdatomic.h>

#include "proto/task/link.h"
#include "proto/task/task_wire.h"
#include "worker/backend/backend.h"
#include "worker/process/device.h"
#include "worker/process/rendezvous.h"
#include "worker/task/capture.h"
#include "worker/task/results.h"
#include "worker/train/trainer.h"
#define GP_TASK_NO_ABI /* this file is not a task object */
#include "worker/task/task.h"

typedef struct gp_tasks gp_tasks;
typedef struct gp_objects gp_objects;
typedef struct gp_names gp_names;
struct gp_task_loops;
struct gp_task_blocks;

/* Services that the compute thread provides to tasks. */
typedef struct gp_tasks_host {
    void *context; /* first argument of both functions */
    /* Get the device backend, opening it at the first call. GP_ENODEV: this worker has no usable
     * device. */
    gp_status (*backend)(void *context, const gp_backend_ops **ops, gp_backend **backend, gp_error *err);
    /* Return the current lease's group, valid until the next call. NULL: the worker has no
     * lease. */
    gp_rendezvous *(*rendezvous)(void *context);
} gp_tasks_host;

/* Link server: the link state that control and compute share. Control creates it, and frees it
 * after compute has left the link. */
typedef struct gp_link_server {
    gp_link *link;
    gp_blobs *blobs;
    int wakeup_fd;         /* the client's wakeup eventfd */
    int64_t opened_ns;     /* time origin of begun_ns and ended_ns */
    _Atomic uint32_t stop; /* nonzero: leave the link; control sets it and calls gp_link_wake() */
    /* rank in the lease, from 0, and member count; both change with the lease generation */
    _Atomic uint32_t rank;
    _Atomic uint32_t size;

    /* the client requested the lines that tasks print; set before compute serves the link */
    bool output;

    /* set by compute: answers are committed, but the client was not woken */
    _Atomic uint32_t unannounced;
    _Atomic uint32_t world; /* set by compute: ranks in the current block; 0: not in a block */

    /* set by compute: an object or a value was received, so this process must not serve another
     * lease */
    _Atomic uint32_t used;
} gp_link_server;

/* ---- calls and answers ---- */

/* A call taken from the ring. The header is a copy, because the client can modify the ring at
 * any time. The payload is not: copy data before checking them. */
typedef struct gp_taken {
    uint16_t kind, flags;
    uint32_t function, count, attempt;
    uint64_t id;
    int64_t first;
    uint64_t value;
    uint64_t blob;                /* blob number; 0: none */
    uint64_t blob_bytes;          /* size stated by the client; checked against the file when it is opened */
    const unsigned char *inlined; /* payload after the header; may be padded if there is a blob */
    size_t inlined_bytes;
} gp_taken;

/* Answer to a call. Zeroed, with memory.fd = -1, before the handler is called. */
typedef struct gp_outcome {
    /* owned by the handler; valid until the answer is sent, which precedes the next handler
     * call */
    const void *data;
    size_t bytes;     /* above GP_LINK_INLINE_MAX: sent as a blob */
    gp_memory memory; /* used instead of data if fd is not -1; taken over */
    uint16_t flags;
    uint32_t count;
    uint64_t value; /* also sent with a failure */
} gp_outcome;

/* Call handler. GP_OK: *out is the answer. Otherwise *err has the error message. */
typedef gp_status (*gp_call_handler)(gp_tasks *tasks, const gp_taken *call, gp_outcome *out, gp_error *err);

/* Handlers in other files; tasks.c has the dispatch table. */
gp_status gp_task_run(gp_tasks *tasks, const gp_taken *call, gp_outcome *out, gp_error *err);
gp_status gp_loop_open(gp_tasks *tasks, const gp_taken *call, gp_outcome *out, gp_error *err);
gp_status gp_loop_run(gp_tasks *tasks, const gp_taken *call, gp_outcome *out, gp_error *err);
gp_status gp_loop_close(gp_tasks *tasks, const gp_taken *call, gp_outcome *out, gp_error *err);
gp_status gp_loop_combine(gp_tasks *tasks, const gp_taken *call, gp_outcome *out, gp_error *err);
gp_status gp_block_run(gp_tasks *tasks, const gp_taken *call, gp_outcome *out, gp_error *err);
gp_status gp_block_fetch(gp_tasks *tasks, const gp_taken *call, gp_outcome *out, gp_error *err);
gp_status gp_block_forget(gp_tasks *tasks, const gp_taken *call, gp_outcome *out, gp_error *err);

/* Free all loops or blocks when the link ends; accept NULL. */
void gp_task_loops_free(struct gp_task_loops *loops);
void gp_task_blocks_free(struct gp_task_blocks *blocks);

/* ---- services for handlers ---- */

/* Bytes in the ring, in a mapped blob or in a copy. */
typedef struct gp_view {
    const void *data; /* NULL: no bytes */
    size_t bytes;
    void *map, *copy; /* released by gp_view_close(); NULL: unused */
} gp_view;

/* Get a call's input, inline or as a blob mapped read-only. Valid until the handler returns.
 * GP_EPROTO: no such blob, or the size differs. GP_ECANCELED: the link ends. */
gp_status gp_tasks_view(gp_tasks *tasks, const gp_taken *call, gp_view *out, gp_error *err);

/* Get a call's input for use beyond the call: the blob is mapped once more, or the inline bytes are
 * copied. Errors as for gp_tasks_view(). */
gp_status gp_tasks_keep(gp_tasks *tasks, const gp_taken *call, gp_view *out, gp_error *err);

/* GP_ENOMEM: out of memory */
gp_status gp_view_copy(gp_view *out, const void *data, size_t bytes, gp_error *err);
void gp_view_close(gp_view *view); /* for results of keep and copy; accepts a zeroed view */

/* Reserve an answer record; all fields except bytes and payload_bytes are zero. Waits while the
 * ring is full. The record must be committed at once by gp_tasks_commit() or
 * gp_tasks_commit_events(): until then no other thread can add answers. NULL: the link ends, or
 * with until_canceled the call was canceled. */
gp_answer *gp_tasks_reserve(gp_tasks *tasks, size_t payload_bytes, bool until_canceled);
void gp_tasks_commit(gp_tasks *tasks);
void gp_tasks_commit_events(gp_tasks *tasks); /* commit, and wake the client */

/* Send bytes as a blob and set *number. GP_ENOMEM: out of memory; others as for gp_blobs_send(). */
gp_status gp_tasks_send_blob(gp_tasks *tasks, const void *data, size_t bytes, uint64_t *number,
                             gp_error *err);

/* Copy the name at the start of the inlined bytes, terminated by NUL or by their end.
 *   rest  set to the bytes after the NUL; may be NULL
 * GP_EPROTO: the name is empty or longer than GP_TASK_NAME_MAX. */
gp_status gp_tasks_name(const gp_taken *call, char name[GP_TASK_NAME_MAX + 1], gp_view *rest, gp_error *err);

/* Complete the error of a failed task: an unknown status becomes GP_EINVAL, and a missing message
 * the text of the status. Return the status. */
gp_status gp_tasks_error(gp_status status, gp_error *err);

/* Return whether the running call should end. May be called on any thread. */
bool gp_tasks_canceled(const gp_tasks *tasks);

/* ---- task context ---- */

/* Result of a task: in scratch memory, or in a memory file if large. */
typedef struct gp_result {
    void *data; /* NULL: no result */
    size_t bytes;
    bool given;  /* a result was set; it may be empty */
    int fd;      /* memory file of a large result; -1: none */
    size_t room; /* file size in bytes, mapped at data */
    bool clean;  /* the contents are all zero */
} gp_result;

/* A task's random number stream. */
typedef struct gp_task_stream {
    uint64_t seed, position; /* position: the iteration, or the rank in a block */
    uint64_t next;           /* Philox counter */
    uint64_t kept;           /* last draw's second half */
    bool has_kept, has_normal;
    double normal;
} gp_task_stream;

/* Object that is closed when the task ends unless closed earlier. Must be the first member of the
 * containing structure. */
typedef struct gp_owned {
    struct gp_owned *next, **at; /* at: NULL if no task owns the object */
    void (*close)(struct gp_owned *owned);
} gp_owned;

void gp_task_own(gp_task *task, gp_owned *owned);
void gp_owned_leave(gp_owned *owned); /* detach the object from the task */
void gp_task_release(gp_task *task);  /* close all objects that the task owns, newest first */

/* Context of a task function, initialized by gp_task_begin(). */
struct gp_task {
    gp_tasks *tasks;
    uint64_t call;
    uint32_t index, size; /* 0: use the lease's values */
    uint32_t attempt;
    int64_t iteration;
    uint64_t position;
    gp_view argument;
    const void *input;
    size_t input_bytes;
    void *output;
    size_t output_bytes;
    void *accumulator;
    size_t accumulator_bytes;
    gp_task_stream stream;
    /* Allocate memory for a result, replacing an earlier one. NULL: use gp_result_room(). */
    gp_status (*room)(gp_task *task, size_t bytes, void **out, gp_error *err);
    gp_result result;            /* set by gp_result_room() */
    void *owner;                 /* creator's context, such as a loop */
    struct gp_task_group *group; /* see task_comm.c; NULL: not in a block */
    gp_owned *owned;             /* newest first; NULL: none */
};

void gp_task_begin(gp_task *task, gp_tasks *tasks, const gp_taken *call);

/* Allocate memory for a result: in scratch memory if small (valid until the next task starts),
 * else in a memfd. */
gp_status gp_result_room(gp_task *task, size_t bytes, void **out, gp_error *err);

/* Use the result as the answer; a memory file is taken over. */
void gp_result_answer(gp_result *result, gp_outcome *out);
void gp_result_close(gp_result *result); /* frees the memory of gp_result_room() */

/* ---- state of one link ---- */

/* State of the link that compute serves. */
struct gp_tasks {
    gp_link_server *server;
    gp_link *link;
    gp_tasks_host host;

    /* comm is set while a block exists, so that control can abort its waits */
    gp_train_control *train;
    const gp_worker_device *device;
    gp_objects *objects;
    gp_names *values, *constants, *files;
    struct gp_task_loops *loops;   /* see task_loop.c; NULL: no loop so far */
    struct gp_task_blocks *blocks; /* see task_block.c; NULL: no block so far */
    uint32_t large_items;          /* items sent to queues as blobs since the client last emptied the ring */
    gp_capture *capture;           /* NULL: the client did not request output */
    uint64_t dropped;              /* log lines dropped since the last GP_ANSWER_DROPPED */

    /* commit time of the oldest answer for which the client was not woken; 0: none */
    int64_t unannounced_ns;
    int64_t now_ns; /* last clock reading */
    bool ended;     /* leave the link */
    gp_results results;
    _Alignas(64) unsigned char scratch[GP_LINK_INLINE_MAX];
};

#endif
