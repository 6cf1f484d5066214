/* Replacements for accept4() and recv() that protect ZeroMQ listeners in the daemons.
 *
 * Each daemon links this file into its executable, so the dynamic linker resolves libzmq's calls of
 * accept4() and recv() to these functions. They close three gaps in libzmq 4.3.4 on local sockets,
 * to which any process of the same user can connect:
 *
 *   no free descriptor   ipc_listener.cpp aborts the process on EMFILE. Here the connection is
 *                        accepted with a reserve descriptor and closed. The listener gets
 *                        ECONNABORTED, which it handles.
 *   half a handshake     A connection that sends nothing keeps the descriptor until
 *                        ZMQ_HANDSHAKE_IVL. When descriptors run out, connections without a
 *                        handshake for HANDSHAKE_MS are shut down.
 *   endless message      ZMQ_MAXMSGSIZE limits one frame and ZMQ_RCVHWM counts whole messages,
 *                        so a message without a last frame could fill the memory. Here the
 *                        frames on each connection are counted as they arrive. A connection
 *                        whose message is too large is reset.
 *
 * For TCP, where frames are encrypted, connection_guard.c does the same with the kernel's byte
 * counter. Unix sockets have no such counter.
 *
 * The library does not contain this file: user programs keep their own accept4() and recv(). */
#include "proto/channel/channel.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "common/base/clock.h"
#include "common/base/text/log.h"

enum {
    PAUSE_NS = 10 * 1000 * 1000,
    HANDSHAKE_MS = 2000,
    FRAMES_MAX = GP_PAYLOADS_MAX + 2, /* envelope, body, payloads */
    CHUNK_LINKS = 1024,
    CHUNKS_MAX = 1024, /* for links[fd]: supports a million descriptors */
    LOG_MS = 1000,
};

/* ZMTP 3 (RFC 23): a greeting of 64 bytes, then frames with flags, size (1 or 8 bytes) and body. */
enum {
    GREETING_BYTES = 64,
    GREETING_VERSION = 10, /* offset of the major version */
    FLAG_MORE = 1,
    FLAG_LONG = 2,
    FLAG_COMMAND = 4,
    HEADER_BYTES_MAX = 9,
};

/* Parser state of one local connection. */
typedef struct stream {
    uint64_t cookie; /* SO_COOKIE of the connection; 0: no local connection has this descriptor */
    int64_t accepted_ms;
    uint64_t body_left;     /* bytes of the current frame still to be received */
    uint64_t message_bytes; /* bytes in the current message so far, headers included */
    uint32_t frames;        /* frames in the current message so far */
    uint8_t greeting_bytes;
    uint8_t header_bytes;
    uint8_t header[HEADER_BYTES_MAX];
    bool handshaken; /* the first command of the peer has arrived */
} stream;

static pthread_mutex_t streams_lock = PTHREAD_MUTEX_INITIALIZER;
static stream *chunks[CHUNKS_MAX]; /* streams by descriptor; never freed */
static int fd_highest = -1;        /* highest descriptor accepted so far */
static uint64_t message_bytes_max = GP_MESSAGE_BYTES_MAX;
static int64_t cut_logged_ms;
static unsigned cuts_unlogged;

static pthread_mutex_t spare_lock = PTHREAD_MUTEX_INITIALIZER;
static int spare = -1;

/* true: this thread has accepted local connections. ZeroMQ's single I/O thread accepts and
 * receives, so recv() in any other thread is passed through unchecked. */
static _Thread_local bool accepts;

void gp_accept_limit(uint64_t bytes_max)
{
    message_bytes_max = bytes_max;
}

/* ---- messages ---- */

/* Return the parser state for a descriptor; NULL: not allocated. */
static stream *stream_at(int fd)
{
    if (fd < 0 || fd / CHUNK_LINKS >= CHUNKS_MAX || chunks[fd / CHUNK_LINKS] == NULL)
        return NULL;
    return &chunks[fd / CHUNK_LINKS][fd % CHUNK_LINKS];
}

/* Return the socket cookie for fd; 0: unknown. Descriptors are reused, cookies are not. */
static uint64_t cookie_of(int fd)
{
    uint64_t cookie = 0;
    socklen_t bytes = sizeof(cookie);

    return getsockopt(fd, SOL_SOCKET, SO_COOKIE, &cookie, &bytes) == 0 ? cookie : 0;
}

/* Count a frame whose header is complete. Return false if the message is too large. A command is
 * not part of a message unless it claims that more frames follow. */
static bool frame_begin(stream *s)
{
    uint64_t size = 0;

    for (int i = 1; i < s->header_bytes; i++)
        size = size << 8 | s->header[i];
    if (size > message_bytes_max)
        return false;
    if ((s->header[0] & (FLAG_COMMAND | FLAG_MORE)) != FLAG_COMMAND) {
        s->message_bytes += size + s->header_bytes;
        s->frames++;
    }
    s->body_left = size;
    return s->message_bytes <= message_bytes_max && s->frames <= FRAMES_MAX;
}

/* Reset the header, and after the last frame the message counters. */
static void frame_end(stream *s)
{
    s->header_bytes = 0;
    if ((s->header[0] & FLAG_COMMAND) != 0) {
        s->handshaken = true;
    } else if ((s->header[0] & FLAG_MORE) == 0) {
        s->message_bytes = 0;
        s->frames = 0;
    }
}

/* Parse bytes received from the peer. Return false if the connection must be reset. */
static bool stream_follow(stream *s, const uint8_t *data, size_t bytes)
{
    for (size_t i = 0; i < bytes;) {
        if (s->greeting_bytes < GREETING_BYTES) {
            uint8_t at = s->greeting_bytes++, byte = data[i++];

            /* the peer must speak ZMTP 3, whose framing is parsed here */
            if ((at == 0 && byte != 0xff) || (at == GREETING_VERSION - 1 && (byte & 1) == 0) ||
                (at == GREETING_VERSION && byte < 3))
                return false;
        } else if (s->body_left > 0) {
            size_t part = bytes - i < s->body_left ? bytes - i : (size_t)s->body_left;

            i += part;
            s->body_left -= part;
            if (s->body_left == 0)
                frame_end(s);
        } else {
            s->header[s->header_bytes++] = data[i++];
            if (s->header_bytes < ((s->header[0] & FLAG_LONG) != 0 ? HEADER_BYTES_MAX : 2))
                continue;
            if (!frame_begin(s))
                return false;
            if (s->body_left == 0)
                frame_end(s);
        }
    }
    return true;
}

/* recv() of the C library, or of a preloaded library. */
static ssize_t (*next_recv)(int, void *, size_t, int);

__attribute__((constructor)) static void next_find(void)
{
    *(void **)&next_recv = dlsym(RTLD_NEXT, "recv");
}

/* Replacement for recv(): parse the received bytes and reset connections that break the limits. */
__attribute__((visibility("default"))) ssize_t recv(int fd, void *data, size_t bytes, int flags)
{
    ssize_t count = next_recv != NULL ? next_recv(fd, data, bytes, flags)
                                      : syscall(SYS_recvfrom, fd, data, bytes, flags, NULL, NULL);
    bool cut = false, greeted = false;

    if (!accepts || count <= 0)
        return count;
    pthread_mutex_lock(&streams_lock);
    stream *s = stream_at(fd);

    if (s != NULL && s->cookie != 0 && s->cookie == cookie_of(fd)) {
        cut = !stream_follow(s, data, (size_t)count);
        greeted = s->greeting_bytes == GREETING_BYTES;
        if (cut)
            s->cookie = 0;
    }
    if (cut && cut_logged_ms != 0 && gp_now_ms() - cut_logged_ms < LOG_MS) {
        cuts_unlogged++; /* at most one log line per second */
    } else if (cut) {
        gp_log_event(GP_LOG_WARN, "connection-cut", GP_LOG_WITH({ "more", .number = cuts_unlogged }),
                     "closed a local connection: the peer sent %s",
                     greeted ? "an oversized or endless message" : "data that is not ZMTP 3");
        cut_logged_ms = gp_now_ms();
        cuts_unlogged = 0;
    }
    pthread_mutex_unlock(&streams_lock);
    if (!cut)
        return count;
    errno = ECONNRESET; /* ZeroMQ closes the connection and frees the frames received so far */
    return -1;
}

/* ---- connections ---- */

__attribute__((constructor)) static void spare_open(void)
{
    spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
}

static bool option_is(int fd, int option, int expected)
{
    int value = 0;
    socklen_t bytes = sizeof(value);

    return getsockopt(fd, SOL_SOCKET, option, &value, &bytes) == 0 && value == expected;
}

/* Return whether `listener` belongs to ZeroMQ. Control sockets are SOCK_SEQPACKET and refuse
 * clients with their own error message. */
static bool is_stream(int listener)
{
    return option_is(listener, SO_TYPE, SOCK_STREAM);
}

/* Start to track a connection. Return false if that is impossible; the caller must close it. */
static bool stream_add(int fd)
{
    stream *s = NULL;

    accepts = true;
    pthread_mutex_lock(&streams_lock);
    if (fd / CHUNK_LINKS < CHUNKS_MAX && chunks[fd / CHUNK_LINKS] == NULL)
        chunks[fd / CHUNK_LINKS] = calloc(CHUNK_LINKS, sizeof(stream));
    s = stream_at(fd);
    if (s != NULL)
        *s = (stream){ .cookie = cookie_of(fd), .accepted_ms = gp_now_ms() };
    if (fd > fd_highest)
        fd_highest = fd;
    pthread_mutex_unlock(&streams_lock);
    return s != NULL && s->cookie != 0;
}

/* Shut down connections without a complete handshake for HANDSHAKE_MS; ZeroMQ then closes them.
 * Return whether there were any.
 *
 * ZeroMQ can close and reuse a descriptor meanwhile, so each connection is checked and shut down
 * through a copy. The reserve descriptor makes room for it. If another thread takes that room,
 * the original is used: waiting for a free descriptor could take as long as the connections stay
 * open. */
static bool handshakes_end(void)
{
    int64_t now = gp_now_ms();
    bool any = false;

    pthread_mutex_lock(&spare_lock);
    if (spare >= 0)
        close(spare);
    pthread_mutex_lock(&streams_lock);
    for (int fd = 0; fd <= fd_highest; fd++) {
        stream *s = stream_at(fd);

        if (s == NULL || s->cookie == 0 || s->handshaken || now - s->accepted_ms < HANDSHAKE_MS)
            continue;
        int copy = fcntl(fd, F_DUPFD_CLOEXEC, 3), target = copy >= 0 ? copy : fd;

        if (cookie_of(target) == s->cookie)
            any |= shutdown(target, SHUT_RDWR) == 0;
        if (copy >= 0)
            close(copy);
        s->cookie = 0;
    }
    pthread_mutex_unlock(&streams_lock);
    spare_open();
    pthread_mutex_unlock(&spare_lock);
    return any;
}

/* Replacement for accept4(): track local connections, and survive a lack of descriptors. */
__attribute__((visibility("default"))) int accept4(int listener, struct sockaddr *address, socklen_t *bytes,
                                                   int flags)
{
    int fd = (int)syscall(SYS_accept4, listener, address, bytes, flags), error = errno;

    if (fd >= 0 && is_stream(listener) && option_is(listener, SO_DOMAIN, AF_UNIX) && !stream_add(fd)) {
        close(fd);
        errno = ECONNABORTED;
        return -1;
    }
    if (fd >= 0 || (error != EMFILE && error != ENFILE))
        return fd;
    bool ended = handshakes_end();

    /* control socket; ZeroMQ's thread closes the shut down connections meanwhile */
    if (!is_stream(listener)) {
        if (ended)
            nanosleep(&(struct timespec){ .tv_nsec = PAUSE_NS }, NULL);
        return (int)syscall(SYS_accept4, listener, address, bytes, flags);
    }
    if (!ended) { /* otherwise the listener retries after ZeroMQ has closed them */
        /* Accept a pending connection with the reserve descriptor and close it. If another thread
         * took the descriptor, sleep: the listener is polled again at once and would spin. */
        pthread_mutex_lock(&spare_lock);
        if (spare >= 0)
            close(spare);
        fd = (int)syscall(SYS_accept4, listener, NULL, NULL, SOCK_CLOEXEC);
        if (fd >= 0)
            close(fd);
        spare_open();
        pthread_mutex_unlock(&spare_lock);
        if (fd < 0 || spare < 0)
            nanosleep(&(struct timespec){ .tv_nsec = PAUSE_NS }, NULL);
    }
    errno = ECONNABORTED;
    return -1;
}
