/* shared.h -- bytes in a sealed memory file: made once, mapped by every worker of the host that needs them.
 *
 * Users are the caller's handle and the calls that name the payload.  A team keeps a reference of its own as long as
 * workers have the payload, and has them release it when no user is left (team.h).  Counting is for any thread. */
#ifndef GP_BROADCAST_H
#define GP_BROADCAST_H

#include <stdatomic.h>

#include "client/gradpool.h"

struct gp_broadcast {
    _Atomic uint32_t users;
    _Atomic uint32_t references; /* the users as one, and teams */
    int fd;
    size_t bytes;
    uint64_t number; /* of the blob: one in the process */
    void *writing;   /* of gp_broadcast_map(), until the first use */
};

/* Seal it against everything; the first use does.  GP_EIO. */
gp_status shared_seal(gp_broadcast *shared, gp_error *err);

void shared_use(gp_broadcast *shared);   /* one user more */
void shared_leave(gp_broadcast *shared); /* accepts NULL */
void shared_keep(gp_broadcast *shared);
void shared_drop(gp_broadcast *shared);

/* Grows each time one has lost its last user. */
uint64_t shared_left_count(void);

/* Write to an eventfd whenever gp_broadcast_free() has freed a payload, until it is unwatched.  Any thread.  GP_ENOMEM. */
gp_status shared_watch(int fd, gp_error *err);
void shared_unwatch(int fd); /* accepts one that is not watched */

/* A file's content as one, private to the caller.  bytes_max: GP_ELIMIT. */
gp_status shared_from_fd(gp_broadcast **out, int fd, size_t bytes, const char *path, gp_error *err);

#endif
