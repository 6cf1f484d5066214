/* The lock file and the epoch, which ensure that a pool has only one scheduler. */
#ifndef GP_POOL_LOCK_H
#define GP_POOL_LOCK_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/base/error.h"
#include "proto/local/paths.h"

typedef struct gp_pool_lock {
    /* locked descriptor of the lock file; the kernel releases the lock when the process exits */
    int fd;
    dev_t device;
    ino_t inode;
    uint64_t epoch; /* increases by one with each scheduler of this pool on this host */
} gp_pool_lock;

/* Create the directories of the pool, lock paths->lock and increase the epoch. Write the pid into
 * the lock file for users. Release the lock with gp_pool_lock_release() or by exiting.
 *
 * The file remains, unless the pool had an owner: then the directory is renamed and removed before
 * the lock is released, and this function notices that the path names another file.
 *
 * GP_EBUSY: another scheduler holds the lock. GP_EIO: cannot read or write a file. */
gp_status gp_pool_lock_take(gp_pool_lock *out, const gp_paths *paths, gp_error *err);
void gp_pool_lock_release(gp_pool_lock *lock);

/* Return whether the lock path still names the locked file. If not, another scheduler may be
 * running. */
bool gp_pool_lock_valid(const gp_pool_lock *lock, const gp_paths *paths);

/* Return whether a scheduler with a larger epoch has started. Then this one no longer owns the
 * pool. */
bool gp_pool_lock_followed(const gp_pool_lock *lock, const gp_paths *paths);

#endif
