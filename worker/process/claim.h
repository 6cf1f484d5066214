/* claim.h -- exclusive use of a device by one worker, across all pools and runtime directories
 * of a user.
 *
 * A claim is a flock on a file in the device folder (paths.h), named after the device UUID. The
 * kernel releases the lock when the last process that holds the descriptor exits, so a failed
 * worker never blocks its device and claims cannot become stale. The file is never removed:
 * after an unlink, two processes could hold locks on different files of the same name. The file
 * contents (pid, pool, worker index) serve error messages only. */
#ifndef GP_CLAIM_H
#define GP_CLAIM_H

#include <stdint.h>

#include "common/base/error.h"

/* Identity that is written to the claim file. */
typedef struct gp_claim_holder {
    uint32_t pid;
    const char *pool;
    uint32_t index; /* worker index, from 1 */
} gp_claim_holder;

/* Claim a device for this process.
 *   out        set to a close-on-exec descriptor; the claim ends when gp_claim_release() closes
 *              the descriptor or the process exits
 *   directory  device folder; must exist
 *   uuid       "GPU-..." or "MIG-..."; characters that are invalid in file names become '_'
 *   wait_ms    time limit for retries, as a previous worker may still be exiting
 * GP_EBUSY: another process holds the device; the message names the worker, pool and pid.
 * GP_EIO: the claim file cannot be opened or locked. GP_EINVAL: the uuid is empty. */
gp_status gp_claim_take(int *out, const char *directory, const char *uuid, const gp_claim_holder *holder,
                        int wait_ms, gp_error *err);

void gp_claim_release(int claim); /* accepts -1 */

#endif
