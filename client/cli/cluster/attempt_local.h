/* Directories of an attempt on the host that runs it: sockets and the state of its pool. The job
 * folder cannot hold them: Unix sockets and SQLite do not work on network file systems. */
#ifndef GP_CLI_CLUSTER_ATTEMPT_LOCAL_H
#define GP_CLI_CLUSTER_ATTEMPT_LOCAL_H

#include "common/base/error.h"

enum { ATTEMPT_LOCAL_BYTES = 64 }; /* sockets need a short path */

typedef struct attempt_local {
    char path[ATTEMPT_LOCAL_BYTES];
    int lock; /* locked file; this process and its children keep it open */
} attempt_local;

/* Create the directories and name them in the environment. Remove those of attempts on this host
 * that were killed. GP_EIO. */
gp_status attempt_local_open(attempt_local *out, gp_error *err);

/* Remove the directories. */
void attempt_local_remove(attempt_local *local);

#endif
