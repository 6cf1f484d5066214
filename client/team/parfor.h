/* parfor.h: state of one running loop, shared by parfor.c and parfor_chunk.c. */
#ifndef GP_PARFOR_H
#define GP_PARFOR_H

#include "client/team/parfor_plan.h"
#include "client/team/team.h"
#include "proto/task/reduction.h"

enum {
    PARFOR_ELEMENT_MAX = 1 << 30,     /* bytes of one input or output element */
    PARFOR_KEPT_BYTES_MAX = 64 << 20, /* limit for buffered results; above it, send no chunks */

    /* iterations in flight if results are delivered in order, or items come from a source */
    PARFOR_WINDOW = 1 << 18,
    PARFOR_PROGRESS_NS = 50000000,
    PARFOR_PAIRS_BYTES = 256 << 10, /* size of one call that combines accumulators */

    /* parts of a reduction that may accumulate while chunks are still sent */
    PARFOR_GATHERED = 256,
};

/* Items from a source, kept until their iterations have ended. */
typedef struct parfor_items {
    struct parfor_items *next;
    uint64_t first;
    uint32_t count, left;
    _Alignas(16) unsigned char data[];
} parfor_items;

/* Chunk in flight, or with results that wait for delivery. */
typedef struct parfor_chunk {
    struct parfor_chunk *next; /* next chunk in flight, or next finished chunk by position */
    struct parfor *loop;
    parfor_piece piece;
    team_unit *unit;
    uint32_t done;
    team_bytes answer;
    size_t items_begin, items_end; /* range of the results inside the answer */
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
    gp_task_loop wire;
    parfor_plan plan;
    team_broadcast *open;
    gp_tree *tree;          /* NULL: no reduction */
    parfor_chunk *flying;   /* chunks in flight */
    parfor_chunk *finished; /* chunks with results to deliver; sorted by position if ordered */
    parfor_items *items;
    uint32_t out;       /* chunks in flight */
    uint32_t combining; /* combine calls in flight */
    bool ordered;       /* results wait for results of earlier iterations */
    uint64_t kept_bytes;
    uint64_t undelivered; /* ended iterations whose results on_result() has not received */
    uint64_t done;        /* iterations that have ended */
    int64_t told_ns;
    bool source_ended;
    bool changed;    /* something ended since the flag was last cleared */
    bool ending;     /* send no more chunks: the loop failed, or on_result() ended it */
    bool stopped;    /* on_result() returned false */
    uint64_t failed; /* lowest position that failed */
    gp_error error;  /* code GP_OK: none */
} parfor;

/* iteration value at a position in the range */
int64_t parfor_iteration(const parfor *loop, uint64_t position);

/* ---- parfor_chunk.c ---- */

void parfor_begin(parfor *loop); /* requires loop->wire */
void parfor_end(parfor *loop);   /* requires that no chunk is in flight */

/* Submit one piece of the loop as a chunk. */
gp_status parfor_chunk_submit(parfor *loop, const parfor_piece *piece, gp_error *err);

/* Pass finished results to on_result(), in order if the loop is ordered. */
void parfor_deliver(parfor *loop);

/* Submit a call of the user's combine function for pairs of accumulators that are complete. */
gp_status parfor_combine(parfor *loop, gp_error *err);

/* Send no more chunks and cancel the chunks in flight. */
void parfor_cancel(parfor *loop);

#endif
