/* task_state.h -- what the files that serve a link share; nobody else includes it.
 *
 *   tasks.c        the loop over the link: takes calls, hands them to the handler of their kind, answers
 *   object.c       code: shared objects and the functions in them
 *   blobs.c        descriptors that came through the door, by number
 *   values.c       what stays under a name: values, constants, files
 *   task_api.c     the functions of task.h but those of groups
 *   task_loop.c    GP_CALL_LOOP and its kin
 *   task_block.c, task_comm.c   blocks, and the functions of task.h between their ranks
 *   model*.c, task_data.c  train_task.h
 *
 * All of it belongs to the compute thread, but for gp_seat and what says otherwise. */
#ifndef GP_TASK_STATE_H
#define GP_TASK_STATE_H

#include <stdatomic.h>

#include "proto/task/link.h"
#include "proto/task/task_wire.h"
#include "worker/backend/backend.h"
#include "worker/process/device.h"
#include "worker/process/rendezvous.h"
#include "worker/task/results.h"
#include "worker/train/trainer.h"
#define GP_TASK_NO_ABI /* this is no task object */
#include "worker/task/task.h"

typedef struct gp_tasks gp_tasks;
typedef struct gp_objects gp_objects;
typedef struct gp_names gp_names;
struct gp_task_loops;
struct gp_task_blocks;

/* What the compute thread provides to the tasks it runs. */
typedef struct gp_tasks_host {
    void *context; /* the first argument of both functions */
    /* The device's backend, opened at the first call. GP_ENODEV: this worker has no usable device. */
    gp_status (*backend)(void *context, const gp_backend_ops **ops, gp_backend **backend, gp_error *err);
    /* The group of the present lease; it stays valid until the next call. NULL: the worker has no lease. */
    gp_rendezvous *(*rendezvous)(void *context);
} gp_tasks_host;

/* What control and compute share of a link.  Control makes it, and frees it when compute has left the link. */
typedef struct gp_seat {
    gp_link *link;
    gp_blobs *blobs;
    int bell;              /* the client's eventfd */
    int64_t opened_ns;     /* begun_ns and ended_ns count from here */
    _Atomic uint32_t stop; /* not 0: leave the link; control sets it and rings gp_link_wake() */
    _Atomic uint32_t rank; /* place in the lease, from 0, and its members: they change with its generation */
    _Atomic uint32_t size;
    _Atomic uint32_t unannounced; /* compute: answers wait for which the client was not woken */
    _Atomic uint32_t world;       /* compute: ranks of the block that it is in; 0 = in none */
    _Atomic uint32_t
        used; /* compute: an object or a value was taken: this process must not serve another lease */
} gp_seat;

/* ---- a call, an answer ---- */

/* A call that was taken.  The header is a copy, because the client can change what is in the ring; what the payload
 * points at it can change too: copy what is checked. */
typedef struct gp_taken {
    uint16_t kind, flags;
    uint32_t function, count, attempt;
    uint64_t id;
    int64_t first;
    uint64_t value;
    uint64_t blob;                /* 0 = none */
    uint64_t blob_bytes;          /* as the client says; checked against the file when it is opened */
    const unsigned char *inlined; /* behind the header; beside a blob it may be padded */
    size_t inlined_bytes;
} gp_taken;

/* What the answer will be; zeroed, memory.fd = -1, before the handler is called. */
typedef struct gp_outcome {
    const void
        *data;    /* the handler's; until the answer is sent, which is before the next call of any handler */
    size_t bytes; /* over GP_LINK_INLINE_MAX: sent as a blob */
    gp_memory memory; /* instead of data, where its fd is not -1: handed over */
    uint16_t flags;
    uint32_t count;
    uint64_t value; /* of a failure too */
} gp_outcome;

/* A handler does what the call asks.  GP_OK: *out is the answer.  Else the sentence in *err is. */
typedef gp_status (*gp_call_handler)(gp_tasks *tasks, const gp_taken *call, gp_outcome *out, gp_error *err);

/* Those of other files; tasks.c has the table, a line for each kind. */
gp_status gp_task_run(gp_tasks *tasks, const gp_taken *call, gp_outcome *out, gp_error *err);
gp_status gp_loop_open(gp_tasks *tasks, const gp_taken *call, gp_outcome *out, gp_error *err);
gp_status gp_loop_run(gp_tasks *tasks, const gp_taken *call, gp_outcome *out, gp_error *err);
gp_status gp_loop_close(gp_tasks *tasks, const gp_taken *call, gp_outcome *out, gp_error *err);
gp_status gp_loop_combine(gp_tasks *tasks, const gp_taken *call, gp_outcome *out, gp_error *err);
gp_status gp_block_run(gp_tasks *tasks, const gp_taken *call, gp_outcome *out, gp_error *err);
gp_status gp_block_fetch(gp_tasks *tasks, const gp_taken *call, gp_outcome *out, gp_error *err);
gp_status gp_block_forget(gp_tasks *tasks, const gp_taken *call, gp_outcome *out, gp_error *err);

/* When the link ends; accept NULL. */
void gp_task_loops_free(struct gp_task_loops *loops);
void gp_task_blocks_free(struct gp_task_blocks *blocks);

/* ---- what a handler may use ---- */

/* Bytes in the ring, or of a mapped blob. */
typedef struct gp_view {
    const void *data; /* NULL when there are none */
    size_t bytes;
    void *map, *copy; /* what gp_view_close() gives back; NULL = not this */
} gp_view;

/* gp_tasks_view -- the input of the call: inline or blob, mapped read-only; valid until the handler returns.
 * GP_EPROTO: no such blob, or not as large as was said.  GP_ECANCELED: the link ends. */
gp_status gp_tasks_view(gp_tasks *tasks, const gp_taken *call, gp_view *out, gp_error *err);
/* gp_tasks_keep -- the same to be kept beyond the call: the blob mapped once more, or the inline bytes copied. */
gp_status gp_tasks_keep(gp_tasks *tasks, const gp_taken *call, gp_view *out, gp_error *err);
gp_status gp_view_copy(gp_view *out, const void *data, size_t bytes, gp_error *err); /* GP_ENOMEM */
void gp_view_close(gp_view *view); /* of keep and copy; accepts one that is zero */

/* Room for an answer to be filled in, all but bytes and payload_bytes zero; waits while the ring is full.  NULL: the link
 * ends (or the call was canceled, if that matters).  Nothing else may be reserved before it is committed. */
gp_answer *gp_tasks_reserve(gp_tasks *tasks, size_t payload_bytes, bool until_canceled);
void gp_tasks_commit_news(gp_tasks *tasks); /* commit, and wake the client */

/* Send bytes as a blob.  GP_ENOMEM, GP_EPEER, GP_ECANCELED. */
gp_status gp_tasks_send_blob(gp_tasks *tasks, const void *data, size_t bytes, uint64_t *number,
                             gp_error *err);

/* The name that the inlined bytes begin with, ended by NUL or their end, into name.  rest: what follows the NUL; may be
 * NULL.  GP_EPROTO: none, or longer than GP_TASK_NAME_MAX. */
gp_status gp_tasks_name(const gp_taken *call, char name[GP_TASK_NAME_MAX + 1], gp_view *rest, gp_error *err);

/* The function of that number, or NULL with the error: a gp_task_fn or gp_combine_fn. */
void *gp_tasks_function(gp_tasks *tasks, uint32_t number, gp_error *err);

/* Whether the call now running should end; also from other threads. */
bool gp_tasks_canceled(const gp_tasks *tasks);

/* ---- a task ---- */

/* A result: in the tasks' scratch memory, or large. */
typedef struct gp_result {
    void *data; /* NULL: none was given */
    size_t bytes;
    bool given;  /* also when it has no bytes */
    int fd;      /* of a large one; else -1 */
    size_t room; /* bytes of that file, mapped at data */
    bool clean;  /* all of it is zero */
} gp_result;

typedef struct gp_task_stream {
    uint64_t seed, position; /* position: the iteration, or the rank of a block */
    uint64_t next;           /* Philox counter */
    uint64_t kept;           /* second half of the last draw */
    bool has_kept, has_normal;
    double normal;
} gp_task_stream;

/* Something that ends with its task unless it was closed before: the first member of what it is. */
typedef struct gp_owned {
    struct gp_owned *next, **at; /* at: NULL when no task owns it */
    void (*close)(struct gp_owned *owned);
} gp_owned;

void gp_task_own(gp_task *task, gp_owned *owned);
void gp_owned_leave(gp_owned *owned); /* its task forgets it */
void gp_task_release(gp_task *task);  /* closes all that the task owns, the youngest first */

/* What a task function is given.  Zero it but for what it has: gp_task_begin() does. */
struct gp_task {
    gp_tasks *tasks;
    uint64_t call;
    uint32_t index, size; /* 0: those of the lease */
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
    /* Room for a result of that size, in place of any earlier one; NULL: gp_result_room(). */
    gp_status (*room)(gp_task *task, size_t bytes, void **out, gp_error *err);
    gp_result result;            /* by gp_result_room() */
    void *owner;                 /* of whoever set it up: a loop */
    struct gp_task_group *group; /* task_comm.c; NULL outside of blocks */
    gp_owned *owned;             /* NULL: nothing */
};

void gp_task_begin(gp_task *task, gp_tasks *tasks, const gp_taken *call);

/* The usual room: small results in the tasks' scratch memory (valid until the next task begins), large ones in a
 * memfd. */
gp_status gp_result_room(gp_task *task, size_t bytes, void **out, gp_error *err);
/* Make the result the answer; a large one is handed over. */
void gp_result_answer(gp_result *result, gp_outcome *out);
void gp_result_close(gp_result *result); /* frees what gp_result_room() gave */

/* ---- everything of one link ---- */

struct gp_tasks {
    gp_seat *seat;
    gp_link *link;
    gp_tasks_host host;
    gp_train_control *train; /* comm: set while a block exists, so that control can end its waits */
    const gp_worker_device *device;
    gp_objects *objects;
    gp_names *values, *constants, *files;
    struct gp_task_loops *loops;   /* task_loop.c: made by the first loop; NULL = none */
    struct gp_task_blocks *blocks; /* task_block.c: the same */
    uint32_t large_items;          /* sent to queues as blobs since the client was seen to have read all */
    uint64_t dropped;              /* log lines since the last GP_ANSWER_DROPPED */
    int64_t
        unannounced_ns; /* when the oldest answer was committed that the client was not woken for; 0 = none */
    int64_t now_ns;     /* the clock as last read */
    bool ended;         /* leave the link */
    gp_results results;
    _Alignas(64) unsigned char scratch[GP_LINK_INLINE_MAX];
};

#endif
