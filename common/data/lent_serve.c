/* lent_serve.c -- the descriptor of lent arrays goes to whoever asks for it, through a socket: a process that may not be looked
 * into (one with credentials) can lend too, and no descriptor number is trusted.
 *
 * The socket has an abstract name made of the source's PID and token: it leaves nothing behind.  Both ends look at the
 * other's user. */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "common/base/alloc.h"
#include "common/data/lent.h"

enum { BACKLOG = 128, ANSWER_S = 20 };

struct gp_lender {
    int lent, listener, stop; /* lent is the caller's */
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

/* ---- lending ---- */

static void fd_send(int to, int fd)
{
    char nothing = 0;
    struct iovec byte = { &nothing, 1 };
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(sizeof(int))];
    } control = {
        .head = { .cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS }
    };
    struct msghdr message = {
        .msg_iov = &byte, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control.room)
    };

    memcpy(CMSG_DATA(&control.head), &fd, sizeof(fd));
    (void)!sendmsg(to, &message, MSG_NOSIGNAL | MSG_DONTWAIT); /* who is gone needs none */
}

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
            fd_send(asking, lender->lent);
        if (asking >= 0)
            close(asking);
        else if (errno == EMFILE || errno == ENFILE)
            poll(fds, 1, 100); /* the one that asks waits with us */
    }
    return NULL;
}

/* All signals are for the process's other threads. */
static bool lender_start(gp_lender *lender)
{
    sigset_t all, old;
    int code;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    code = pthread_create(&lender->thread, NULL, lender_main, lender);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return code == 0;
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
        listen(lender->listener, BACKLOG) == 0 && lender_start(lender)) {
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

/* ---- borrowing ---- */

static int fd_take(int from)
{
    char byte;
    struct iovec bytes = { &byte, 1 };
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(sizeof(int))];
    } control;
    struct msghdr message = {
        .msg_iov = &bytes, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control.room)
    };
    struct cmsghdr *head;
    ssize_t got;
    int fd = -1;

    do
        got = recvmsg(from, &message, MSG_CMSG_CLOEXEC);
    while (got < 0 && errno == EINTR);
    head = got == 1 ? CMSG_FIRSTHDR(&message) : NULL;
    if (head != NULL && head->cmsg_level == SOL_SOCKET && head->cmsg_type == SCM_RIGHTS &&
        head->cmsg_len == CMSG_LEN(sizeof(int)))
        memcpy(&fd, CMSG_DATA(head), sizeof(fd));
    return fd;
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
    setsockopt(from, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience)); /* of connect, too */
    if (connect(from, (struct sockaddr *)&address, length) == 0 && is_ours(from))
        fd = fd_take(from);
    close(from);
    return fd;
}
