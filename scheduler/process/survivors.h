/* survivors.h -- the workers that a scheduler which died has left: found, held by a pidfd, called.
 *
 * A worker is known by its door in the pool's directory.  Who listens there is the kernel's word (SO_PEERCRED), and the
 * connection is kept: as long as it stands, the pid is that process's. */
#ifndef GP_SURVIVORS_H
#define GP_SURVIVORS_H

#include "proto/local/places.h"
#include "scheduler/process/supervise.h"

typedef struct gp_survivor {
    uint32_t slot; /* from 0 */
    gp_child child;
    uint64_t start_time;
    int door; /* a connection to its door, on which nothing was said yet; -1 = none */
} gp_survivor;

typedef struct gp_survivors {
    uint32_t count; /* at most one for each slot */
    gp_survivor workers[GP_CORE_SLOTS_MAX];
} gp_survivors;

/* gp_survivors_find -- knock at every worker's door in places->pool_dir; sockets of dead workers are removed.  Only for
 * the holder of the pool's lock.  Released by gp_survivors_free(), which closes what is left in it. */
void gp_survivors_find(gp_survivors *out, const gp_places *places);
void gp_survivors_free(gp_survivors *survivors);

/* gp_survivor_call -- tell the worker that a new scheduler, of that epoch, answers now: it dials at once, even if it still
 * has a link to an older one, but not if it has found this one before. */
void gp_survivor_call(const gp_survivor *survivor, uint64_t epoch);

#endif
