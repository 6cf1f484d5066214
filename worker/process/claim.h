/* claim.h -- one device, one worker, across all pools and runtime directories of the user.
 *
 * A claim is a flock on a file named after the device's UUID in the device folder (places.h).  The kernel drops
 * it with the last process that holds the descriptor, so a dead worker never blocks its device and no stale
 * claim can exist.  The file is never removed: unlinking a locked name lets two hold "the" lock.  What it says
 * (pid, pool, index) is for the refusal's sentence only; the lock decides. */
#ifndef GP_CLAIM_H
#define GP_CLAIM_H

#include <stdint.h>

#include "common/base/error.h"

typedef struct gp_claim_holder {
    uint32_t pid;
    const char *pool;
    uint32_t index; /* of the worker, from 1 */
} gp_claim_holder;

/* gp_claim_take -- *out is a close-on-exec descriptor; the claim holds until it is closed by gp_claim_release() or
 * the process ends.
 *   directory  the device folder; must exist
 *   uuid       "GPU-..." or "MIG-..."; characters that file names cannot have become '_'
 *   wait_ms    how long to try again while another holds it: a predecessor that is being killed needs a moment
 * GP_EBUSY: "device GPU-... is held by worker 1 of pool default (pid 4711)".  GP_EIO.  GP_EINVAL: an empty uuid. */
gp_status gp_claim_take(int *out, const char *directory, const char *uuid, const gp_claim_holder *holder,
                        int wait_ms, gp_error *err);

void gp_claim_release(int claim); /* accepts -1 */

#endif
