/* shared.h: immutable bytes in a sealed memory file, created once and mapped by each worker on the
 * host that needs them.
 *
 * The users of a payload are the caller's handle and the calls that name it. A team holds a
 * reference of its own while workers have the payload; when no user is left, the team makes them
 * release it (payloads.h). Any thread may change the counters. */
#ifndef GP_BROADCAST_H
#define GP_BROADCAST_H

#include <stdatomic.h>

#include "client/gradpool.h"

struct gp_broadcast {
    _Atomic uint32_t users;
    _Atomic uint32_t references; /* one reference for all users together, and one per team */
    int fd;
    size_t bytes;
    uint64_t number; /* blob number, unique in this process */
    void *writing;   /* mapping of gp_broadcast_map(), until the first use */
};

/* Seal the payload against all changes; the first use does this. GP_EIO: the seal failed. */
gp_status shared_seal(gp_broadcast *shared, gp_error *err);

void shared_leave(gp_broadcast *shared); /* remove a user; accepts NULL */

/* Remove the reference of a team. The last one frees the payload. */
void shared_drop(gp_broadcast *shared);

/* Return a counter that grows each time a payload loses its last user. */
uint64_t shared_left_count(void);

/* Write to an eventfd whenever gp_broadcast_free() frees a payload, until shared_unwatch(). Any
 * thread may call it. GP_ENOMEM: out of memory. */
gp_status shared_watch(int fd, gp_error *err);
void shared_unwatch(int fd); /* ignores an eventfd that is not watched */

/* Copy `bytes` bytes from a file descriptor into a new payload. GP_EIO: the file is shorter or
 * unreadable. GP_ELIMIT: the file is too large. */
gp_status shared_from_fd(gp_broadcast **out, int fd, size_t bytes, const char *path, gp_error *err);

#endif
