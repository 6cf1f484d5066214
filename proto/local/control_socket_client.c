/* Client side of the control socket, and descriptor passing for both sides.
 *
 * The static assertions below fix the layout of the packets. */
#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "common/base/system/timeout.h"
#include "common/base/system/packet.h"
#include "proto/local/control_socket.h"
#include "proto/local/listen.h"
#include "proto/message/messages.h"

static_assert(sizeof(gp_control_socket_hello) == 40 && offsetof(gp_control_socket_hello, session) == 24,
              "layout of the hello");
static_assert(sizeof(gp_control_socket_reply) == 256 && offsetof(gp_control_socket_reply, epoch) == 16,
              "layout of the reply");
static_assert(sizeof(gp_control_socket_request) == 40 && offsetof(gp_control_socket_request, token) == 24,
              "layout of a request");

/* Connect to `path`. If the backlog is full, connect() on a Unix socket fails with EAGAIN at once
 * and no event reports free space, so retry every 5 ms. */
static gp_status connect_until(int fd, const char *path, gp_timeout timeout, gp_error *err)
{
    struct sockaddr_un address;
    gp_status status = gp_unix_address(&address, path, err);

    if (status != GP_OK)
        return status;
    while (connect(fd, (struct sockaddr *)&address, sizeof(address)) != 0) {
        if (errno == ENOENT || errno == ECONNREFUSED)
            return gp_fail(err, GP_ENOPOOL,
                           "no pool is running: no scheduler listens at %s; start one with: gradpool up",
                           path);
        if (errno == EACCES || errno == EPERM)
            return gp_fail_errno(err, GP_EPERM, "cannot connect to %s", path);
        if (errno != EAGAIN && errno != EINTR)
            return gp_fail_errno(err, GP_EIO, "cannot connect to %s", path);
        if (gp_timeout_left(timeout) == 0)
            return gp_fail(err, GP_ETIMEDOUT, "timed out connecting to %s: its backlog is full; try again",
                           path);
        nanosleep(&(struct timespec){ .tv_nsec = 5000000 }, NULL);
    }
    return GP_OK;
}

/* Wait for the reply to the hello. A refusal becomes the error of this call. */
static gp_status reply_wait(int fd, gp_control_socket_reply *reply, const char *path, gp_timeout timeout,
                            gp_error *err)
{
    struct pollfd ready = { .fd = fd, .events = POLLIN };
    int64_t left;
    int count;

    do {
        left = gp_timeout_left(timeout);
        count = poll(&ready, 1, gp_timeout_slice(timeout));
    } while (count <= 0 && left > 0);
    if (count <= 0)
        return gp_fail(err, GP_ETIMEDOUT, "no reply from the daemon at %s", path);
    ssize_t bytes = recv(fd, reply, sizeof(*reply), MSG_DONTWAIT);

    if (bytes == 0 || (bytes < 0 && errno == ECONNRESET))
        return gp_fail(err, GP_EPEER, "the daemon at %s closed the connection without a reply; see its log",
                       path);
    if (bytes < 0)
        return gp_fail_errno(err, GP_EIO, "cannot read from %s", path);
    if (bytes != sizeof(*reply) || reply->magic != GP_CONTROL_SOCKET_MAGIC ||
        !gp_status_known((long)reply->status) || memchr(reply->text, 0, sizeof(reply->text)) == NULL)
        return gp_fail(err, GP_EPROTO, "malformed reply from %s: the listener is not a gradpool daemon",
                       path);
    if (reply->status != GP_OK)
        return gp_fail(err, (gp_status)reply->status, "%s", reply->text);
    return GP_OK;
}

bool gp_control_socket_listened(const char *path)
{
    struct sockaddr_un address;
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    bool listened = fd >= 0 && gp_unix_address(&address, path, NULL) == GP_OK &&
                    (connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0 || errno == EAGAIN);

    if (fd >= 0)
        close(fd);
    return listened;
}

gp_status gp_control_socket_connect(int *out, gp_control_socket_reply *reply, const char *path,
                                    const gp_control_socket_hello *hello, int timeout_ms, gp_error *err)
{
    gp_timeout timeout = gp_timeout_in(timeout_ms);
    gp_control_socket_hello sent = *hello;
    gp_control_socket_reply got;
    struct ucred who;
    socklen_t bytes = sizeof(who);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0)
        return gp_fail_errno(err, GP_EIO, "cannot create a socket for %s", path);
    sent.magic = GP_CONTROL_SOCKET_MAGIC;
    gp_status status = connect_until(fd, path, timeout, err);

    /* The listener must run under the uid of this process. */
    if (status == GP_OK && getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &bytes) != 0)
        status = gp_fail_errno(err, GP_EIO, "cannot read the owner of the listener at %s", path);
    else if (status == GP_OK && who.uid != geteuid())
        status = gp_fail(err, GP_EPERM,
                         "user %u listens at %s, not you; set GRADPOOL_RUNTIME_DIR to a directory of yours",
                         (unsigned)who.uid, path);

    /* EPIPE: the daemon refused before the hello was sent; the reply is already in the queue.
     * ECONNRESET: the daemon exited while this connection was in the backlog; reply_wait() reports
     * that. */
    if (status == GP_OK && send(fd, &sent, sizeof(sent), MSG_NOSIGNAL | MSG_DONTWAIT) < 0 && errno != EPIPE &&
        errno != ECONNRESET)
        status = gp_fail_errno(err, GP_EIO, "cannot send to %s", path);
    if (status == GP_OK)
        status = reply_wait(fd, &got, path, timeout, err);
    if (status == GP_EVERSION && err != NULL && hello->role == GP_ROLE_CLIENT) {
        gp_error refusal = *err;
        char command[32] = "";

        /* 0: the daemon is in a PID namespace that this process does not see. `kill 0` would end
         * the caller's own process group. */
        if (who.pid > 0)
            snprintf(command, sizeof(command), ": kill %d", (int)who.pid);
        gp_fail(err, GP_EVERSION, "%.350s; install the same version of gradpool, or end the daemon%s",
                refusal.message, command);
    }
    if (status != GP_OK) {
        close(fd);
        return status;
    }
    *reply = got;
    *out = fd;
    return GP_OK;
}

bool gp_control_socket_gone(int socket_fd)
{
    char byte;
    ssize_t bytes = recv(socket_fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);

    return bytes == 0 || (bytes < 0 && errno != EAGAIN && errno != EINTR);
}

/* ---- requests and descriptors ---- */

gp_status gp_control_socket_send_fd(int socket_fd, const gp_control_socket_request *request, int fd,
                                    gp_error *err)
{
    gp_control_socket_request sent = *request;

    sent.magic = GP_CONTROL_SOCKET_MAGIC;
    if (gp_packet_send(socket_fd, &sent, sizeof(sent), &fd, fd >= 0 ? 1 : 0) >= 0)
        return GP_OK;
    if (errno == EAGAIN || errno == ENOBUFS || errno == ETOOMANYREFS)
        return gp_fail(err, GP_EBUSY, "the queue of the control socket is full; try again");
    if (errno == EPIPE || errno == ECONNRESET || errno == ENOTCONN)
        return gp_fail(err, GP_EPEER, "the peer closed its control socket");
    return gp_fail_errno(err, GP_EIO, "cannot send on the control socket");
}

/* If the peer sent more than one descriptor,
 * gp_control_socket_request_read() closes all of them. */
gp_status gp_control_socket_request_read(int socket_fd, gp_control_socket_request *request, int *fd,
                                         gp_error *err)
{
    gp_control_socket_request got;
    gp_packet_fds fds;
    bool cut;
    ssize_t count = gp_packet_receive(socket_fd, &got, sizeof(got), MSG_DONTWAIT, &fds, &cut);

    if (count < 0 && (errno == EAGAIN || errno == EINTR))
        return gp_fail(err, GP_ETIMEDOUT, "no request is pending on the control socket");
    if (count == 0 || (count < 0 && (errno == ECONNRESET || errno == ENOTCONN)))
        return gp_fail(err, GP_EPEER, "the peer closed its control socket");
    if (count < 0)
        return gp_fail_errno(err, GP_EIO, "cannot read from the control socket");
    bool sound = count == sizeof(got) && got.magic == GP_CONTROL_SOCKET_MAGIC && !cut;

    if (cut && fds.dropped && fds.count == 0)
        return gp_fail(err, GP_EIO, "no free file descriptor to receive another; raise ulimit -n");
    if (!sound || fds.count > 1)
        gp_packet_fds_close(&fds);
    if (!sound)
        return gp_fail(err, GP_EPROTO, "malformed request on the control socket");
    *request = got;
    *fd = fds.count == 1 ? fds.fd[0] : -1;
    return GP_OK;
}

gp_status gp_control_socket_receive_fd(int socket_fd, gp_control_socket_request *request, int *fd,
                                       int timeout_ms, gp_error *err)
{
    gp_timeout timeout = gp_timeout_in(timeout_ms);
    int received = -1;

    for (;;) {
        int64_t left = gp_timeout_left(timeout);
        gp_status status = gp_control_socket_request_read(socket_fd, request, &received, err);

        if (status == GP_OK && fd == NULL && received >= 0)
            close(received);
        if (status == GP_OK && fd != NULL)
            *fd = received;
        if (status != GP_ETIMEDOUT || left == 0)
            return status;
        poll(&(struct pollfd){ .fd = socket_fd, .events = POLLIN }, 1, gp_timeout_slice(timeout));
    }
}
