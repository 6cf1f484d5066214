/* Implement packet.h. */
#include "common/base/system/packet.h"

#include <assert.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Control message buffer. The union aligns it for struct cmsghdr. */
typedef union control_room {
    struct cmsghdr head;
    char room[CMSG_SPACE(sizeof(int) * GP_PACKET_FDS_MAX)];
} control_room;

ssize_t gp_packet_send(int socket, const void *data, size_t bytes, const int *fds, uint32_t fd_count)
{
    struct iovec piece = { (void *)(uintptr_t)data, bytes };
    struct msghdr message = { .msg_iov = &piece, .msg_iovlen = 1 };
    control_room control = { .room = { 0 } };

    assert(fd_count <= GP_PACKET_FDS_MAX);
    if (fd_count > 0) {
        control.head = (struct cmsghdr){ .cmsg_len = CMSG_LEN(sizeof(int) * fd_count),
                                         .cmsg_level = SOL_SOCKET,
                                         .cmsg_type = SCM_RIGHTS };
        memcpy(CMSG_DATA(&control.head), fds, sizeof(int) * fd_count);
        message.msg_control = &control;
        message.msg_controllen = CMSG_SPACE(sizeof(int) * fd_count);
    }
    return sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

ssize_t gp_packet_receive(int socket, void *data, size_t bytes, int flags, gp_packet_fds *fds, bool *cut)
{
    struct iovec piece = { data, bytes };
    control_room control = { .room = { 0 } };
    struct msghdr message = {
        .msg_iov = &piece, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control.room)
    };
    ssize_t got = recvmsg(socket, &message, flags | MSG_CMSG_CLOEXEC);

    fds->count = 0;
    fds->dropped = false;
    *cut = false;
    if (got <= 0)
        return got;
    fds->dropped = (message.msg_flags & MSG_CTRUNC) != 0;
    *cut = (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0;
    for (struct cmsghdr *head = CMSG_FIRSTHDR(&message); head != NULL; head = CMSG_NXTHDR(&message, head)) {
        if (head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS)
            continue;
        size_t here = (head->cmsg_len - CMSG_LEN(0)) / sizeof(int);

        for (size_t i = 0; i < here && fds->count < GP_PACKET_FDS_MAX; i++)
            memcpy(&fds->fd[fds->count++], CMSG_DATA(head) + i * sizeof(int), sizeof(int));
    }
    return got;
}

void gp_packet_fds_close(gp_packet_fds *fds)
{
    while (fds->count > 0)
        close(fds->fd[--fds->count]);
}
