/* parfor_state.h: state of one loop, for the files of gp_parfor().
 *
 *   source or range --plan (parfor_plan.h)--> chunks --units--> workers
 *                                                |
 *        outputs into the array, accumulators into the tree (reduction.h), <--- answers
 *        results to on_result() and failures to on_error(), in order
 *
 *   parfor.c          checks, opening, sending chunks, combining
 *   parfor_answers.c  answers, failures, delivery to the caller
 *
 * Each answer is stored as soon as it arrives. Only results that must wait for earlier ones are
 * buffered, and no new chunks are sent while the buffer is full.
 *
 * A chunk whose worker fails is repeated by the dispatch; an answered chunk never is. If iterations
 * are *isolated* (retries, timeout_ms, on_error or errors is set), a failure concerns one iteration
 * instead of the chunk:
 *
 *   the iteration returns an error   the worker answers with the iterations before it
 *   its worker fails                 the link has the index of the iteration that ran
 *
 * The plan then gets the other iterations back, and the failed one as a piece of its own until no
 * start is left. Each iteration is also a reduction group of its own, because a group is complete
 * only with all its iterations. */
#ifndef GP_PARFOR_STATE_H
#define GP_PARFOR_STATE_H

#include "client/team/parfor_plan.h"
#include "client/team/team.h"
#include "proto/task/reduction.h"

/* Items from a source, kept until their iterations have ended. */
typedef struct parfor_items {
    struct parfor_items *next;
    uint64_t first;
    uint32_t count, left;
    _Alignas(16) unsigned char data[];
} parfor_items;

/* Chunk in flight, or with results or a failure that wait for delivery. */
typedef struct parfor_chunk {
    struct parfor_chunk *next;     /* next chunk in flight, or next finished chunk by position */
    struct parfor_chunk *previous; /* previous finished chunk */
    struct parfor *loop;
    parfor_piece piece;
    team_unit *unit;
    uint32_t done;
    team_bytes answer;
    size_t items_begin, items_end; /* range of the results inside the answer */
    gp_error *failure;             /* error of all iterations of the piece; NULL: none */
} parfor_chunk;

typedef struct parfor_pairs {
    struct parfor *loop;
    uint32_t count;
    gp_tree_node nodes[];
} parfor_pairs;

typedef struct parfor {
    gp_team *team;
    const gp_parfor_request *request;
    uint32_t number; /* number of the loop on the workers; never 0 */
    uint32_t needs;  /* class of the iterations' needs (needs.h) */
    gp_task_loop wire;
    parfor_plan plan;
    team_broadcast *open;
    gp_tree *tree;        /* NULL: no reduction */
    parfor_chunk *flying; /* chunks in flight */

    /* chunks to deliver; sorted by position if ordered */
    parfor_chunk *finished, *finished_last;
    parfor_items *items;
    uint32_t out;       /* chunks in flight */
    uint32_t combining; /* combine calls in flight */
    bool ordered;       /* results wait for results of earlier iterations */
    bool isolated;      /* a failure concerns one iteration */
    bool keeps_going;   /* failed iterations go to on_error() and errors, and do not end the loop */
    uint64_t kept_bytes;
    uint64_t undelivered; /* ended iterations whose results on_result() has not received */
    uint64_t done;        /* iterations that have ended */
    int64_t progress_ns;
    bool source_ended;
    bool changed;    /* something ended since the flag was last cleared */
    bool ending;     /* send no more chunks: the loop failed, or on_result() ended it */
    bool stopped;    /* on_result() returned false */
    uint64_t failed; /* lowest position that failed */
    gp_error error;  /* code GP_OK: none */
} parfor;

/* Return the iteration value at a position in the range. */
static inline int64_t parfor_iteration(const parfor *loop, uint64_t position)
{
    return (int64_t)((uint64_t)loop->wire.first + position * (uint64_t)loop->wire.step);
}

/* ---- parfor_answers.c ---- */

/* Return the items that contain a position; NULL: none. */
parfor_items *parfor_items_of(const parfor *loop, uint64_t position);

/* Cancel all chunks in flight, and send no more. */
void parfor_cancel(parfor *loop);

/* Record the failure of the loop at a position, and cancel it. The lowest position wins. */
void parfor_fail(parfor *loop, uint64_t position, gp_status status, const char *sentence);

/* Handle the end of a chunk. Implements team_done_fn; context: the chunk. */
void parfor_chunk_done(gp_team *team, void *context, const team_outcome *outcome);

/* Remove a chunk from the list of chunks in flight. */
void parfor_chunk_unlink(parfor *loop, parfor_chunk *chunk);
void parfor_chunk_free(parfor_chunk *chunk);

/* Deliver results and failures to the caller, as far as the order allows. */
void parfor_deliver(parfor *loop);

#endif
