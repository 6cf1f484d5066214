/* Send and receive packets over a Unix socket, together with file descriptors (SCM_RIGHTS). */
#ifndef GP_PACKET_H
#define GP_PACKET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum { GP_PACKET_FDS_MAX = 16 }; /* descriptors per packet */

/* Received descriptors, owned by the receiver. */
typedef struct gp_packet_fds {
    int fd[GP_PACKET_FDS_MAX]; /* close-on-exec */
    uint32_t count;
    bool dropped; /* others were discarded: no room here, or no free descriptor in this process */
} gp_packet_fds;

/* Send one packet; never block. Return the sendmsg() result. -1: see errno. */
ssize_t gp_packet_send(int socket, const void *data, size_t bytes, const int *fds, uint32_t fd_count);

/* Receive one packet. Return the recvmsg() result; if it is 0 or more, the caller owns *fds.
 *   flags  passed to recvmsg()
 *   fds    received descriptors
 *   cut    set to whether bytes or descriptors were discarded because there was no room */
ssize_t gp_packet_receive(int socket, void *data, size_t bytes, int flags, gp_packet_fds *fds, bool *cut);

/* Close all descriptors. */
void gp_packet_fds_close(gp_packet_fds *fds);

#endif
