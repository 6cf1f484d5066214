/* Owner of a pool: a process whose exit, for any reason, shuts the pool down. */
#ifndef GP_OWNER_H
#define GP_OWNER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/base/error.h"
#include "proto/local/paths.h"

/* Owner process, identified by pid and start time, so that a process with a reused pid is not
 * mistaken for the owner. */
typedef struct gp_owner {
    pid_t pid;           /* 0: the pool has no owner */
    uint64_t start_time; /* as in gp_proc_stat */
    int fd;              /* pidfd; -1: the process has exited */

    /* The state directory belongs to this pool alone: no pool had this name before. It is removed
     * together with the runtime directory. */
    bool temporary;
} gp_owner;

/* Parse "PID:START", the value of --owner, and open the process. NULL: no owner. A process that has
 * exited is not an error, see gp_owner_exited(). Release *out with gp_owner_close(). GP_EINVAL:
 * malformed. GP_ELIMIT (no free descriptor), GP_EIO: the process cannot be watched; it may be
 * alive. */
gp_status gp_owner_open(gp_owner *out, const char *text, gp_error *err);
void gp_owner_close(gp_owner *owner);

/* Return whether the pool has an owner that has exited. */
bool gp_owner_exited(const gp_owner *owner);

/* Remove the runtime directory of the pool with all files, and a temporary state directory. Call
 * this after the last worker has exited, while the pool lock is held. */
void gp_owner_remove_files(const gp_owner *owner, const gp_paths *paths);

#endif
