/* Listening Unix socket that replaces an older one atomically: it is bound as PATH.PID with mode
 * 0600 and then renamed to PATH. The name PATH never disappears meanwhile. */
#ifndef GP_LISTEN_H
#define GP_LISTEN_H

#include <sys/types.h>

#include "common/base/error.h"

typedef struct gp_listener {
    int fd; /* close-on-exec, non-blocking */
    char path[108];
    dev_t device; /* device and inode of the socket file, to recognize it later */
    ino_t inode;
} gp_listener;

/* Listen at `path`. type is SOCK_STREAM or SOCK_SEQPACKET. GP_ELIMIT: `path` is longer than 100
 * bytes. */
gp_status gp_listener_open(gp_listener *out, const char *path, int type, int backlog, gp_error *err);

/* Remove the socket file if it is still the one that gp_listener_open() created. Does not close the
 * descriptor. */
void gp_listener_unlink(const gp_listener *listener);

/* Remove the socket files, temporary and final, that the exited process `owner` left at `path`. */
void gp_listener_forget(const char *path, pid_t owner);

/* Check the length of a socket path. GP_ELIMIT: over 100 bytes; the error names the path and the
 * variable to set. */
gp_status gp_unix_path_check(const char *path, gp_error *err);

struct sockaddr_un;

/* Fill in a Unix socket address. GP_ELIMIT: see gp_unix_path_check(). */
gp_status gp_unix_address(struct sockaddr_un *out, const char *path, gp_error *err);

#endif
