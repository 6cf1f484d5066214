/* hold.h -- what makes one scheduler the only one of its pool: the lock file and the epoch. */
#ifndef GP_HOLD_H
#define GP_HOLD_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/base/error.h"
#include "proto/local/places.h"

typedef struct gp_hold {
    int fd; /* of the lock file, locked; closed by the end of the process */
    dev_t device;
    ino_t inode;
    uint64_t epoch; /* + 1 with each scheduler of this pool on this host */
} gp_hold;

/* gp_hold_take -- lock places->lock and count the epoch up; writes our pid into the lock file, for people.
 * GP_EBUSY: another scheduler holds it.  GP_EIO.  Released by gp_hold_release() or the end of the process; the file
 * stays, because unlinking a locked name would let two hold "the" lock. */
gp_status gp_hold_take(gp_hold *out, const gp_places *places, gp_error *err);
void gp_hold_release(gp_hold *hold);

/* Whether the lock's path is still the file that we hold: if not, another scheduler may be there too. */
bool gp_hold_valid(const gp_hold *hold, const gp_places *places);

/* Whether a scheduler with a larger epoch has begun: this one is no longer the pool's. */
bool gp_hold_followed(const gp_hold *hold, const gp_places *places);

#endif
