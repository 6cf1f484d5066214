/* listen.h -- a listening Unix socket that takes its name without a moment in which another's could be
 * lost: bound as PATH.PID, 0600, then renamed over PATH. */
#ifndef GP_LISTEN_H
#define GP_LISTEN_H

#include <stdbool.h>
#include <sys/types.h>

#include "common/base/error.h"

typedef struct gp_listener {
    int fd; /* close-on-exec, does not block */
    char path[108];
    dev_t device; /* of the socket file, to know it again */
    ino_t inode;
} gp_listener;

/* type: SOCK_STREAM or SOCK_SEQPACKET.  GP_ELIMIT: path is over 100 bytes. */
gp_status gp_listener_open(gp_listener *out, const char *path, int type, int backlog, gp_error *err);

/* Remove the socket file if it is still the one that was made.  The descriptor is the caller's. */
void gp_listener_unlink(const gp_listener *listener);

/* What a process that has died left there, under either name. */
void gp_listener_forget(const char *path, pid_t owner);

/* GP_ELIMIT: a socket path over 100 bytes; names the path and the fix. */
gp_status gp_unix_path_check(const char *path, gp_error *err);

struct sockaddr_un;
gp_status gp_unix_address(struct sockaddr_un *out, const char *path, gp_error *err);

#endif
