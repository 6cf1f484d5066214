/* parfor.h -- one running loop; parfor.c and parfor_chunk.c share it. */
#ifndef GP_PARFOR_H
#define GP_PARFOR_H

#include "client/team/calls.h"
#include "client/team/parfor_plan.h"
#include "proto/task/reduction.h"

enum {
    PARFOR_ELEMENT_MAX = 1 << 30, /* bytes of one element, in or out */
    PARFOR_KEPT_BYTES_MAX =
        64 << 20,            /* results that wait for earlier ones, before nothing new is given out */
    PARFOR_WINDOW = 1 << 18, /* iterations in flight where somebody takes results in order or makes items */
    PARFOR_PROGRESS_NS = 50000000,
    PARFOR_PAIRS_BYTES = 256 << 10, /* accumulators sent together to be combined */
    PARFOR_GATHERED = 256,          /* parts of a reduction that wait while chunks are still given out */
};

/* Items that a source gave, until their iterations have ended. */
typedef struct parfor_items {
    struct parfor_items *next;
    uint64_t first;
    uint32_t count, left;
    _Alignas(16) unsigned char data[];
} parfor_items;

/* A piece on its way, or with results that wait. */
typedef struct parfor_chunk {
    struct parfor_chunk *next; /* of those in flight, or of the finished ones by position */
    struct parfor *loop;
    parfor_piece piece;
    team_unit *unit;
    uint32_t done;
    team_bytes answer;
    size_t items_begin, items_end; /* in the answer */
} parfor_chunk;

typedef struct parfor_pairs {
    struct parfor *loop;
    uint32_t count;
    gp_tree_node nodes[];
} parfor_pairs;

typedef struct parfor {
    gp_team *team;
    const gp_parfor_request *request;
    uint32_t number; /* on the workers; never 0 */
    gp_task_loop wire;
    parfor_plan plan;
    team_broadcast *open;
    gp_tree *tree;          /* NULL without a reduction */
    parfor_chunk *flying;   /* given out */
    parfor_chunk *finished; /* with results to deliver; by position when ordered */
    parfor_items *items;
    uint32_t out;       /* chunks given out */
    uint32_t combining; /* calls that combine accumulators, given out */
    bool ordered;       /* results wait for those of earlier iterations */
    uint64_t kept_bytes;
    uint64_t undelivered; /* iterations that have ended and whose results `each` has not seen */
    uint64_t done;        /* iterations */
    int64_t told_ns;
    bool source_ended;
    bool changed;    /* something ended since this was last looked at */
    bool ending;     /* nothing more is given out: it failed, or `each` has enough */
    bool stopped;    /* by `each` */
    uint64_t failed; /* lowest position that failed */
    gp_error error;  /* code GP_OK: none */
} parfor;

int64_t parfor_iteration(const parfor *loop, uint64_t position); /* its value in the range */

/* ---- parfor_chunk.c ---- */

void parfor_begin(parfor *loop); /* wire is set */
void parfor_end(parfor *loop);   /* nothing is out any more */

gp_status parfor_chunk_submit(parfor *loop, const parfor_piece *piece, gp_error *err);
/* Hand results to `each`, as far as their turn has come. */
void parfor_deliver(parfor *loop);
/* Have accumulators combined by the user's function, where halves are there. */
gp_status parfor_combine(parfor *loop, gp_error *err);
/* Nothing more is given out, and what is out should end. */
void parfor_cancel(parfor *loop);

#endif
