/* parfor_plan.h: choose the next iterations of a loop to send. Pure arithmetic.
 *
 *   in flight -----------------------------> ended    rest: iterations that start again, or that a
 *   [first .. next)   rests first, then next          worker returned because a chunk took too long
 *
 * A chunk should take PARFOR_CHUNK_NS by recent durations: long enough to hide the message latency,
 * short enough to balance the load. Near the end of the loop, chunks shrink with the remaining
 * iterations, so that all workers finish together. In a reduction, chunks consist of whole
 * groups. */
#ifndef GP_PARFOR_PLAN_H
#define GP_PARFOR_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"

enum {
    PARFOR_CHUNK_NS = 1000000,

    /* time after which a worker returns the rest of a chunk */
    PARFOR_BUDGET_NS = 4000000,
    PARFOR_DEPTH = 4,           /* chunks in flight per worker */
    PARFOR_CHUNK_MAX = 1 << 26, /* iterations per chunk */

    /* input or output of a chunk; workers accept no more output */
    PARFOR_CHUNK_BYTES_MAX = 1 << 30,
};

typedef struct parfor_piece {
    uint64_t first;
    uint32_t count;
    uint16_t attempts; /* starts that ended with the worker's failure */
    uint16_t retries;  /* starts that ended with an error of the iteration */
} parfor_piece;

typedef struct parfor_plan {
    /* Parameters, set before use. All other fields start at zero. */
    uint64_t total;         /* iterations; UINT64_MAX: not known yet */
    uint32_t workers;       /* at least 1 */
    uint32_t block;         /* chunk sizes are multiples of it, except the last; at least 1 */
    uint32_t chunk;         /* iterations per chunk, within the limits; 0: by measured duration */
    uint64_t max_in_flight; /* limit for next - settled, in iterations; 0: none */

    /* bytes per iteration sent or received through a link; keeps chunks below GP_LINK_INLINE_MAX */
    size_t bytes;

    uint64_t next;       /* first iteration that was never sent */
    uint64_t settled;    /* all iterations before it are settled */
    uint64_t out;        /* iterations in flight */
    double ns;           /* recent duration per iteration; 0: unknown */
    uint64_t weight;     /* iterations in the chunk that was measured last */
    parfor_piece *rests; /* sorted by first iteration */
    size_t rest_count;
} parfor_plan;

/* Return the chunk size at `next`; 0: none may be sent now. For sources that must fetch their items
 * first. */
uint32_t parfor_plan_size(const parfor_plan *plan);

/* Take the next piece to send: a rest, or else new iterations.
 *   most  limit for new iterations, for a source with few items; UINT32_MAX: no limit
 * Return false if nothing can be sent now. */
bool parfor_plan_take(parfor_plan *plan, uint32_t most, parfor_piece *out);

/* Return whether parfor_plan_take() will return a rest. */
bool parfor_plan_has_rest(const parfor_plan *plan);

/* Record that a piece ended: the first `done` iterations took took_ns together. The caller returns
 * the others with parfor_plan_return(), except failed iterations. */
void parfor_plan_end(parfor_plan *plan, const parfor_piece *piece, uint32_t done, int64_t took_ns);

/* Return iterations to the plan, which sends them before all others. Accepts an empty piece.
 * GP_ENOMEM: out of memory; the iterations are lost. */
gp_status parfor_plan_return(parfor_plan *plan, parfor_piece rest, gp_error *err);

/* Free the rests. */
void parfor_plan_deinit(parfor_plan *plan);

/* Set the end of a source: no iterations after those already sent. */
void parfor_plan_close(parfor_plan *plan);

/* Return a worker's time budget for one chunk, in ns; 0: unlimited. */
uint64_t parfor_plan_budget(const parfor_plan *plan);

bool parfor_plan_ended(const parfor_plan *plan); /* return whether all iterations have ended */

#endif
