/* Workers left by a scheduler that crashed: find them, hold a pidfd for each and call them.
 *
 * Each worker has a control socket in the pool directory. SO_PEERCRED reports the process that
 * listens there. The connection stays open, so the pid cannot be reused meanwhile. */
#ifndef GP_ORPHANS_H
#define GP_ORPHANS_H

#include "proto/local/paths.h"
#include "scheduler/process/supervise.h"

typedef struct gp_survivor {
    uint32_t slot; /* slot number, from 0 */
    gp_child child;
    uint64_t start_time;
    int control_socket; /* open connection to the worker's control socket, nothing sent yet; -1: none */
} gp_survivor;

typedef struct gp_orphans {
    uint32_t count; /* at most one worker per slot */
    gp_survivor workers[GP_CORE_SLOTS_MAX];
} gp_orphans;

/* Connect to each worker control socket in paths->pool_dir, and remove the sockets of workers that
 * have exited. Only the holder of the pool lock may call this. Release *out with
 * gp_orphans_free(), which closes the connections that are still there. */
void gp_orphans_find(gp_orphans *out, const gp_paths *paths);

/* Close all connections and pidfds that the caller has not taken over. */
void gp_orphans_free(gp_orphans *orphans);

/* Tell a worker that a new scheduler with this epoch is ready. The worker connects at once, even if
 * it still has a link to an older scheduler. It ignores the call if it has already found this
 * one. */
void gp_survivor_call(const gp_survivor *survivor, uint64_t epoch);

#endif
