#include "tests/fault/proxy.h"

#include <arpa/inet.h>
#include <errno.h>
#include <signal.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/clock.h"

enum { LINKS_MAX = 96, CHUNKS_MAX = 16, CHUNK_BYTES = 2048, TURN_MS = 2, TOGETHER = 3 };

const char *const proxy_fault_names[PROXY_FAULTS] = { "pass",    "delay",      "throttle", "cut",
                                                      "reset",   "half-close", "corrupt",  "black hole",
                                                      "reorder", "refuse" };

struct proxy_shared {
    /* wanted is incremented after fault and amount are set */
    uint32_t fault, amount, wanted, obeyed;
    proxy_counts counts;
};

typedef struct chunk {
    int64_t due_ms;
    size_t bytes, sent;
    uint8_t data[CHUNK_BYTES];
} chunk;

/* Direction of a connection. */
typedef struct way {
    chunk ring[CHUNKS_MAX];
    uint32_t first, count;
    bool ended; /* the source has sent end of file */
    bool shut;  /* end of file was forwarded */
    int64_t spent_ms;
    uint32_t left; /* bytes that a fault still lets through */
} way;

typedef struct wire {
    /* client, pool; direction i leads from fd[i] to the other; -1: free, or not dialed yet */
    int fd[2];
    way *ways; /* two directions */
    bool lost;
    uint32_t turn; /* number of the fault that `left` belongs to */
    int64_t accepted_ms;
} wire;

static struct proxy_shared *shared;
static wire links[LINKS_MAX];
static int listener = -1, listen_port;
static struct sockaddr_in upstream;
static uint64_t random_state;

static uint32_t draw(uint32_t below)
{
    random_state = random_state * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)(random_state >> 33) % below;
}

static void count(uint64_t *counter, uint64_t more)
{
    __atomic_add_fetch(counter, more, __ATOMIC_RELAXED);
}

/* ---- connections ---- */

static void link_close(wire *l, bool reset)
{
    for (int i = 0; i < 2; i++) {
        if (l->fd[i] < 0)
            continue;
        if (reset)
            setsockopt(l->fd[i], SOL_SOCKET, SO_LINGER, &(struct linger){ .l_onoff = 1, .l_linger = 0 },
                       sizeof(struct linger));
        close(l->fd[i]);
        l->fd[i] = -1;
    }
    free(l->ways);
    l->ways = NULL;
}

static void listen_begin(void)
{
    struct sockaddr_in here = { .sin_family = AF_INET,
                                .sin_port = htons((uint16_t)listen_port),
                                .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t bytes = sizeof(here);
    int one = 1;

    listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (listener < 0 || setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) != 0 ||
        bind(listener, (struct sockaddr *)&here, sizeof(here)) != 0 || listen(listener, 64) != 0 ||
        getsockname(listener, (struct sockaddr *)&here, &bytes) != 0) {
        close(listener);
        listener = -1;
        return;
    }
    listen_port = ntohs(here.sin_port);
}

static void link_dial(wire *l)
{
    l->fd[1] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (l->fd[1] < 0 ||
        (connect(l->fd[1], (struct sockaddr *)&upstream, sizeof(upstream)) != 0 && errno != EINPROGRESS))
        link_close(l, true);
}

static void links_accept(bool lost)
{
    for (int i = 0; i < LINKS_MAX && listener >= 0; i++) {
        wire *l = &links[i];

        if (l->ways != NULL)
            continue;
        int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

        if (fd < 0)
            return;
        *l = (wire){
            .fd = { fd, -1 }, .ways = calloc(2, sizeof(way)), .lost = lost, .accepted_ms = gp_now_ms()
        };
        if (l->ways == NULL)
            abort();
        count(&shared->counts.links, 1);
    }
}

/* Dial waiting connections at once, or for PROXY_REORDER in groups of three in reverse order. */
static void links_dial(proxy_fault fault, uint32_t amount)
{
    int waiting = 0;
    int64_t oldest_ms = INT64_MAX;

    for (int i = 0; i < LINKS_MAX; i++)
        if (links[i].ways != NULL && links[i].fd[1] < 0 && !links[i].lost) {
            waiting++;
            if (links[i].accepted_ms < oldest_ms)
                oldest_ms = links[i].accepted_ms;
        }
    if (waiting == 0 ||
        (fault == PROXY_REORDER && waiting < TOGETHER && gp_now_ms() - oldest_ms < (int64_t)amount))
        return;
    for (int i = LINKS_MAX - 1; i >= 0; i--)
        if (links[i].ways != NULL && links[i].fd[1] < 0 && !links[i].lost)
            link_dial(&links[i]);
}

/* ---- bytes ---- */

static void way_read(wire *l, int i, proxy_fault fault, uint32_t amount)
{
    way *w = &l->ways[i];

    while (w->count < CHUNKS_MAX && !w->ended) {
        chunk *c = &w->ring[(w->first + w->count) % CHUNKS_MAX];
        ssize_t got = recv(l->fd[i], c->data, sizeof(c->data), 0);

        if (got < 0 && (errno == EAGAIN || errno == EINTR || errno == ENOTCONN))
            return;
        if (got <= 0) {
            w->ended = true;
            return;
        }
        c->bytes = (size_t)got;
        c->sent = 0;
        c->due_ms = gp_now_ms() + (fault == PROXY_DELAY ? amount : 0);
        for (size_t at = 0; fault == PROXY_CORRUPT && at < c->bytes; at++)
            if (draw(amount) == 0) {
                c->data[at] ^= (uint8_t)(1u << draw(8));
                count(&shared->counts.bits_changed, 1);
            }
        w->count++;
    }
}

/* Return the number of bytes that may pass now; 0: none. */
static size_t way_allowance(way *w, proxy_fault fault, uint32_t amount, size_t bytes)
{
    int64_t now = gp_now_ms();

    if (fault == PROXY_THROTTLE) {
        int64_t since = now - w->spent_ms;
        uint64_t may = (uint64_t)(since > 100 ? 100 : since) * amount / 1000;

        return may < bytes ? (size_t)may : bytes;
    }
    if (fault == PROXY_CUT || fault == PROXY_RESET || fault == PROXY_HALF_CLOSE)
        return w->left < bytes ? w->left : bytes;
    return bytes;
}

/* Forward bytes. Return false if the connection has ended. */
static bool way_write(wire *l, int i, proxy_fault fault, uint32_t amount)
{
    way *w = &l->ways[i];

    while (w->count > 0 && w->ring[w->first].due_ms <= gp_now_ms()) {
        chunk *c = &w->ring[w->first];
        bool cuts = fault == PROXY_CUT || fault == PROXY_RESET || fault == PROXY_HALF_CLOSE;
        size_t may = way_allowance(w, fault, amount, c->bytes - c->sent);
        ssize_t sent = may > 0 && !w->shut ? send(l->fd[1 - i], c->data + c->sent, may, MSG_NOSIGNAL) : 0;

        if (sent < 0 && (errno == EAGAIN || errno == EINTR || errno == ENOTCONN))
            return true;
        if (sent < 0) {
            link_close(l, true);
            return false;
        }
        if (w->shut) /* the receiver is gone */
            sent = (ssize_t)(c->bytes - c->sent);
        count(&shared->counts.bytes, (uint64_t)sent);
        if (sent > 0)
            w->spent_ms = gp_now_ms();
        c->sent += (size_t)sent;
        if (cuts && !w->shut) {
            w->left -= (uint32_t)sent;
            if (w->left == 0) {
                count(&shared->counts.ended, 1);
                if (fault != PROXY_HALF_CLOSE) {
                    link_close(l, fault == PROXY_RESET);
                    return false;
                }
                shutdown(l->fd[1 - i], SHUT_WR);
                w->shut = true;
            }
        }
        if (c->sent < c->bytes && sent == 0)
            return true;
        if (c->sent == c->bytes) {
            w->first = (w->first + 1) % CHUNKS_MAX;
            w->count--;
        }
    }
    if (w->ended && w->count == 0 && !w->shut) {
        shutdown(l->fd[1 - i], SHUT_WR);
        w->shut = true;
    }
    if (l->ways[0].shut && l->ways[1].shut) {
        link_close(l, false);
        return false;
    }
    return true;
}

static void link_turn(wire *l, proxy_fault fault, uint32_t amount)
{
    if (l->turn != shared->obeyed) { /* each connection ends at a different byte */
        l->turn = shared->obeyed;
        for (int i = 0; i < 2; i++)
            l->ways[i].left = 1 + draw(amount > 0 ? amount : 1);
    }
    if (l->lost) {
        /* Free a black-holed connection silently after the client has gone. */
        struct pollfd client = { .fd = l->fd[0], .events = POLLRDHUP };

        if (poll(&client, 1, 0) > 0 && gp_now_ms() - l->accepted_ms > 8000)
            link_close(l, false);
        return;
    }
    if (l->fd[1] < 0)
        return;
    for (int i = 0; i < 2; i++)
        way_read(l, i, fault, amount);
    for (int i = 0; i < 2; i++)
        if (!way_write(l, i, fault, amount))
            return;
}

static void obey(void)
{
    uint32_t wanted = __atomic_load_n(&shared->wanted, __ATOMIC_ACQUIRE);
    proxy_fault fault = (proxy_fault)shared->fault;

    if (wanted == shared->obeyed)
        return;
    for (int i = 0; i < LINKS_MAX; i++) {
        if (links[i].ways == NULL)
            continue;
        if (fault == PROXY_BLACK_HOLE) {
            links[i].lost = true;
            links[i].accepted_ms = gp_now_ms();
            count(&shared->counts.ended, 1);
        }
        if (fault == PROXY_REFUSE) {
            link_close(&links[i], true);
            count(&shared->counts.ended, 1);
        }
    }
    if (fault == PROXY_REFUSE && listener >= 0) {
        close(listener);
        listener = -1;
    }
    __atomic_store_n(&shared->obeyed, wanted, __ATOMIC_RELEASE);
}

static void serve(void)
{
    for (;;) {
        struct pollfd fds[2 * LINKS_MAX + 1];
        nfds_t watched = 0;

        obey();
        proxy_fault fault = (proxy_fault)shared->fault;
        uint32_t amount = shared->amount;

        if (fault != PROXY_REFUSE && listener < 0)
            listen_begin();
        links_accept(fault == PROXY_BLACK_HOLE);
        links_dial(fault, amount);
        for (int i = 0; i < LINKS_MAX; i++)
            if (links[i].ways != NULL)
                link_turn(&links[i], fault, amount);
        if (listener >= 0)
            fds[watched++] = (struct pollfd){ .fd = listener, .events = POLLIN };
        for (int i = 0; i < LINKS_MAX; i++)
            for (int side = 0; side < 2 && links[i].ways != NULL && !links[i].lost; side++)
                if (links[i].fd[side] >= 0 && !links[i].ways[side].ended &&
                    links[i].ways[side].count < CHUNKS_MAX)
                    fds[watched++] = (struct pollfd){ .fd = links[i].fd[side], .events = POLLIN };
        poll(fds, watched, TURN_MS);
    }
}

/* ---- interface ---- */

int proxy_start(proxy *p, const char *to, int to_port, uint32_t seed)
{
    pid_t parent = getpid();

    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        return 0;
    memset(shared, 0, sizeof(*shared));
    upstream = (struct sockaddr_in){ .sin_family = AF_INET, .sin_port = htons((uint16_t)to_port) };
    random_state = seed;
    listen_port = 0;
    listener = -1;
    if (inet_pton(AF_INET, to, &upstream.sin_addr) != 1)
        return 0;
    listen_begin();
    if (listener < 0)
        return 0;
    fflush(NULL);
    *p = (proxy){ .pid = fork(), .port = listen_port, .shared = shared };
    if (p->pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            _exit(1);
        for (int i = 0; i < LINKS_MAX; i++)
            links[i].fd[0] = links[i].fd[1] = -1;
        serve();
    }
    close(listener);
    listener = -1;
    return p->pid > 0;
}

void proxy_set(proxy *p, proxy_fault fault, uint32_t amount)
{
    uint32_t wanted = p->shared->wanted + 1;

    p->shared->fault = fault;
    p->shared->amount = amount;
    __atomic_store_n(&p->shared->wanted, wanted, __ATOMIC_RELEASE);
    while (__atomic_load_n(&p->shared->obeyed, __ATOMIC_ACQUIRE) != wanted)
        gp_sleep_ms(1);
}

proxy_counts proxy_get_counts(const proxy *p)
{
    return p->shared->counts;
}

void proxy_stop(proxy *p)
{
    if (p->pid <= 0)
        return;
    kill(p->pid, SIGKILL);
    waitpid(p->pid, NULL, 0);
    munmap(p->shared, sizeof(*p->shared));
    *p = (proxy){ .pid = 0 };
}
