/* packet.h -- packets on a Unix socket, and the descriptors that travel beside them (SCM_RIGHTS). */
#ifndef GP_PACKET_H
#define GP_PACKET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum { GP_PACKET_FDS_MAX = 16 }; /* of one packet */

typedef struct gp_packet_fds {
    int fd[GP_PACKET_FDS_MAX]; /* close-on-exec */
    uint32_t count;
} gp_packet_fds;

/* gp_packet_send -- does not block; as sendmsg(): -1, and errno says why. */
ssize_t gp_packet_send(int socket, const void *data, size_t bytes, const int *fds, uint32_t fd_count);

/* gp_packet_receive -- as recvmsg() with those flags.  From 0 on the descriptors in *fds are the caller's.
 *   cut  more bytes or descriptors came than there was room for */
ssize_t gp_packet_receive(int socket, void *data, size_t bytes, int flags, gp_packet_fds *fds, bool *cut);

void gp_packet_fds_close(gp_packet_fds *fds);

#endif
