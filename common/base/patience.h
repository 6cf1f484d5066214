/* patience.h -- how much longer is waited, in turns: one that took longer than it was meant to was held up itself, stopped or without a
 * core, as was perhaps who is waited for, and only part of it is counted.
 *
 *   for (gp_patience p = gp_patience_of(ms); gp_patience_left(&p) > 0;)
 *       poll(fds, count, gp_patience_turn(&p)); */
#ifndef GP_PATIENCE_H
#define GP_PATIENCE_H

#include "common/base/clock.h"

enum { GP_PATIENCE_TURN_MS = 250 };

typedef struct gp_patience {
    int64_t left_ms, at_ms;
} gp_patience;

static inline gp_patience gp_patience_of(int64_t ms)
{
    return (gp_patience){ .left_ms = ms, .at_ms = gp_now_ms() };
}

/* Ends a turn, which costs two turns' time at most; 0: it is over. */
static inline int64_t gp_patience_left(gp_patience *patience)
{
    int64_t now = gp_now_ms(), took = now - patience->at_ms;

    patience->at_ms = now;
    patience->left_ms -= took < 2 * GP_PATIENCE_TURN_MS ? took : 2 * GP_PATIENCE_TURN_MS;
    if (patience->left_ms < 0)
        patience->left_ms = 0;
    return patience->left_ms;
}

/* How long the next turn waits. */
static inline int gp_patience_turn(const gp_patience *patience)
{
    return patience->left_ms < GP_PATIENCE_TURN_MS ? (int)patience->left_ms : GP_PATIENCE_TURN_MS;
}

#endif
