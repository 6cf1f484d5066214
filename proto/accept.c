/* accept.c -- accept4() as ZeroMQ's listeners in our daemons find it.
 *
 * libzmq 4.3.4 aborts the process when a connection comes and no descriptor is left (ipc_listener.cpp: EMFILE is not among
 * the errors that it lives with), and any process of ours can bring that about.  A daemon that has this file in its
 * executable is met first by the dynamic linker: the connection is taken with a descriptor kept for that, and closed; the
 * listener hears ECONNABORTED, which it knows, and its queue is empty, so that it does not spin.
 *
 * Only for streams: doors (SOCK_SEQPACKET) refuse in words.  Not in the library: a user's program accepts as it likes. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { PAUSE_NS = 10 * 1000 * 1000 };

static pthread_mutex_t spare_lock = PTHREAD_MUTEX_INITIALIZER;
static int spare = -1;

static int take(int listener, int flags)
{
    return (int)syscall(SYS_accept4, listener, NULL, NULL, flags);
}

static void spare_open(void)
{
    spare = open("/dev/null", O_RDONLY | O_CLOEXEC);
}

__attribute__((constructor)) static void spare_keep(void)
{
    spare_open();
}

/* Nobody waits at the listener afterwards, or we have paused: it is asked again at once. */
static void turn_away(int listener)
{
    int fd;

    pthread_mutex_lock(&spare_lock);
    if (spare >= 0)
        close(spare);
    fd = take(listener, SOCK_CLOEXEC);
    if (fd >= 0)
        close(fd);
    spare_open();
    pthread_mutex_unlock(&spare_lock);
    if (fd < 0 || spare < 0) /* another thread had the descriptor */
        nanosleep(&(struct timespec){ .tv_nsec = PAUSE_NS }, NULL);
}

__attribute__((visibility("default"))) int accept4(int listener, struct sockaddr *address, socklen_t *bytes,
                                                   int flags)
{
    int fd = (int)syscall(SYS_accept4, listener, address, bytes, flags), type = 0;
    socklen_t type_bytes = sizeof(type);

    if (fd >= 0 || (errno != EMFILE && errno != ENFILE))
        return fd;
    int error = errno;

    if (getsockopt(listener, SOL_SOCKET, SO_TYPE, &type, &type_bytes) != 0 || type != SOCK_STREAM) {
        errno = error;
        return -1;
    }
    turn_away(listener);
    errno = ECONNABORTED;
    return -1;
}
