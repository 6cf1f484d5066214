/* parfor_plan.h -- which iterations of a loop are given out next; pure arithmetic.
 *
 *   given out ------------------------------------> ended     a rest is what a worker left of a chunk that took
 *   [first .. next)   rests first, then next ..               longer than was hoped
 *
 * A chunk should take CHUNK_NS by what iterations took lately: long enough to hide the way there, short enough for
 * others to take over.  Towards the end chunks shrink with what is left, so that all workers end together.  With a
 * reduction chunks are whole groups of it. */
#ifndef GP_PARFOR_PLAN_H
#define GP_PARFOR_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    PARFOR_CHUNK_NS = 1000000,
    PARFOR_BUDGET_NS = 4000000,           /* after which a worker gives the rest of a chunk back */
    PARFOR_DEPTH = 4,                     /* chunks given out per worker */
    PARFOR_CHUNK_MAX = 1 << 26,           /* iterations */
    PARFOR_RESTS_MAX = 64 * PARFOR_DEPTH, /* no more than chunks given out */
};

typedef struct parfor_piece {
    uint64_t first;
    uint32_t count;
} parfor_piece;

typedef struct parfor_plan {
    /* Set before use; the rest is zero. */
    uint64_t total;   /* iterations; UINT64_MAX = not known yet */
    uint32_t workers; /* at least 1 */
    uint32_t block;   /* chunks are multiples of it, but for the last; at least 1 */
    uint32_t chunk;   /* iterations of each; 0 = by measured duration */
    uint64_t
        max_in_flight; /* iterations between the first that is not settled and the last given out; 0 = any */
    size_t bytes; /* that an iteration brings or takes through a link; chunks stay below GP_LINK_INLINE_MAX */

    uint64_t next;                        /* the first that was never given out */
    uint64_t settled;                     /* all before it are done with */
    uint64_t out;                         /* given out and not ended */
    double ns;                            /* of an iteration, lately; 0 = not known */
    uint64_t weight;                      /* iterations that this was measured on */
    parfor_piece rests[PARFOR_RESTS_MAX]; /* by first */
    size_t rest_count;
} parfor_plan;

/* How many iterations a chunk at `next` would have now; 0 = none may be given out.  For sources whose items have to be
 * asked for first. */
uint32_t parfor_plan_size(const parfor_plan *plan);

/* parfor_plan_take -- give out a piece: a rest, or the next ones.
 *   most  of the next ones (a source that had no more at the moment); UINT32_MAX = any
 * false: nothing can be given out now. */
bool parfor_plan_take(parfor_plan *plan, uint32_t most, parfor_piece *out);
/* Whether the next take will be a rest. */
bool parfor_plan_has_rest(const parfor_plan *plan);

/* A piece came back: `done` of its iterations took so long, the others were not begun. */
void parfor_plan_end(parfor_plan *plan, const parfor_piece *piece, uint32_t done, int64_t took_ns);

/* The source ended: no iteration after those given out so far. */
void parfor_plan_close(parfor_plan *plan);

/* What a worker may take for a chunk, ns; 0 = as long as it takes. */
uint64_t parfor_plan_budget(const parfor_plan *plan);

bool parfor_plan_ended(const parfor_plan *plan); /* all iterations have ended */

#endif
