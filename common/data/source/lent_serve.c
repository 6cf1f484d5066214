/* Pass the descriptor of shared arrays over a socket. Processes whose /proc entry is not readable
 * (those with credentials) can share too, and no descriptor number has to be trusted.
 *
 * The socket has an abstract name built from the source's PID and token, so it leaves no file
 * behind. Both ends check the other's user id. */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/base/memory/alloc.h"
#include "common/base/system/packet.h"
#include "common/base/system/process.h"
#include "common/data/source/lent.h"

enum { BACKLOG = 128, ANSWER_S = 20 };

struct gp_lender {
    int lent, listener, stop; /* `lent` is borrowed from the caller */
    pthread_t thread;
};

static socklen_t address_of(struct sockaddr_un *address, unsigned pid, uint64_t token)
{
    *address = (struct sockaddr_un){ .sun_family = AF_UNIX };
    int length = snprintf(address->sun_path + 1, sizeof(address->sun_path) - 1,
                          "gradpool-arrays:%u:%016" PRIx64, pid, token);

    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
}

static bool is_ours(int fd)
{
    struct ucred who;
    socklen_t bytes = sizeof(who);

    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &bytes) == 0 && who.uid == geteuid();
}

/* ---- owner ---- */

/* Thread function: send the descriptor to each client until `stop` is signalled. */
static void *lender_main(void *argument)
{
    gp_lender *lender = argument;
    struct pollfd fds[] = { { .fd = lender->stop, .events = POLLIN },
                            { .fd = lender->listener, .events = POLLIN } };

    while (poll(fds, 2, -1) >= 0 || errno == EINTR) {
        if (fds[0].revents != 0)
            break;
        int asking = accept4(lender->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

        if (asking >= 0 && is_ours(asking))
            /* ignore errors: the peer may have exited */
            (void)gp_packet_send(asking, "", 1, &lender->lent, 1);
        if (asking >= 0)
            close(asking);
        else if (errno == EMFILE || errno == ENFILE)
            poll(fds, 1, 100); /* out of descriptors: let the peer wait, then try again */
    }
    return NULL;
}

gp_status gp_lent_serve(gp_lender **out, int fd, const char *source, gp_error *err)
{
    gp_lender *lender = gp_calloc(1, sizeof(*lender));
    struct sockaddr_un address;
    unsigned pid = 0, descriptor;
    uint64_t token = 0;

    if (lender == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory to lend arrays");
    sscanf(source, "arrays:%u:%u:%" SCNx64, &pid, &descriptor, &token);
    const socklen_t length = address_of(&address, pid, token);

    lender->lent = fd;
    lender->stop = eventfd(0, EFD_CLOEXEC);
    lender->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (lender->stop >= 0 && lender->listener >= 0 &&
        bind(lender->listener, (struct sockaddr *)&address, length) == 0 &&
        listen(lender->listener, BACKLOG) == 0 &&
        gp_thread_start(&lender->thread, "gp-lender", 0, lender_main, lender) == 0) {
        *out = lender;
        return GP_OK;
    }
    gp_status status = gp_fail_errno(err, GP_ELIMIT, "no socket or thread to lend arrays through");

    if (lender->stop >= 0)
        close(lender->stop);
    if (lender->listener >= 0)
        close(lender->listener);
    gp_free(lender);
    return status;
}

void gp_lent_serve_end(gp_lender *lender)
{
    if (lender == NULL)
        return;
    (void)!write(lender->stop, &(uint64_t){ 1 }, sizeof(uint64_t));
    pthread_join(lender->thread, NULL);
    close(lender->stop);
    close(lender->listener);
    gp_free(lender);
}

/* ---- reader ---- */

static int fd_take(int from)
{
    gp_packet_fds fds;
    ssize_t got;
    char byte;
    bool cut;

    do
        got = gp_packet_receive(from, &byte, 1, 0, &fds, &cut);
    while (got < 0 && errno == EINTR);
    if (got == 1 && !cut && fds.count == 1)
        return fds.fd[0];
    gp_packet_fds_close(&fds);
    return -1;
}

int gp_lent_ask(unsigned pid, uint64_t token)
{
    const struct timeval patience = { .tv_sec = ANSWER_S };
    struct sockaddr_un address;
    const socklen_t length = address_of(&address, pid, token);
    int from = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0), fd = -1;

    if (from < 0)
        return -1;
    setsockopt(from, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    /* also limits connect() */
    setsockopt(from, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
    if (connect(from, (struct sockaddr *)&address, length) == 0 && is_ours(from))
        fd = fd_take(from);
    close(from);
    return fd;
}
