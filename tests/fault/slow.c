/* slow.c: preload library that simulates a slow disk and arbitrary scheduling.
 *
 * Every third fsync, fdatasync and rename takes 0.3 to 1 s. Interactions between threads and
 * processes (messages, waits, locks, wakeups, new threads) pause now and then: mostly briefly,
 * sometimes as long as on a busy machine. Affects gradpool's programs and tests, but not the shells
 * that they start. */
#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { DISK_LEAST_MS = 300, DISK_MOST_MS = 1000, SHORT_MOST_MS = 20, LONG_MOST_MS = 400 };

static bool slow;

__attribute__((constructor)) static void decide(void)
{
    static const char *const names[] = { "gradpool", "test_", "fake_" };

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        slow = slow || strncmp(program_invocation_short_name, names[i], strlen(names[i])) == 0;
}

/* Return a random number below `below`. */
static uint32_t draw(uint32_t below)
{
    static __thread uint64_t state;

    if (state == 0) {
        struct timespec now;

        clock_gettime(CLOCK_MONOTONIC, &now);
        state = (uint64_t)now.tv_nsec * 2654435761u + (uint64_t)syscall(SYS_gettid) + 1;
    }
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 33) % below;
}

static void rest(uint32_t ms)
{
    int before = errno;

    nanosleep(&(struct timespec){ .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000 }, NULL);
    errno = before;
}

static void disk(void)
{
    if (slow && draw(3) == 0)
        rest(DISK_LEAST_MS + draw(DISK_MOST_MS - DISK_LEAST_MS));
}

/* Pause with probability 1 / times. */
static void pause_once_in(uint32_t times)
{
    if (slow && draw(times) == 0)
        rest(1 + draw(draw(20) == 0 ? LONG_MOST_MS : SHORT_MOST_MS));
}

/* Look up the next definition of a function. */
#define REAL(type, name, ...)                                                                                \
    static type (*real)(__VA_ARGS__);                                                                        \
    if (real == NULL)                                                                                        \
    *(void **)&real = dlsym(RTLD_NEXT, name)

int fsync(int fd)
{
    REAL(int, "fsync", int);
    disk();
    return real(fd);
}

int fdatasync(int fd)
{
    REAL(int, "fdatasync", int);
    disk();
    return real(fd);
}

int rename(const char *from, const char *to)
{
    REAL(int, "rename", const char *, const char *);
    disk();
    return real(from, to);
}

ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
    REAL(ssize_t, "sendmsg", int, const struct msghdr *, int);
    pause_once_in(40);
    return real(fd, message, flags);
}

ssize_t send(int fd, const void *data, size_t bytes, int flags)
{
    REAL(ssize_t, "send", int, const void *, size_t, int);
    pause_once_in(40);
    return real(fd, data, bytes, flags);
}

ssize_t recvmsg(int fd, struct msghdr *message, int flags)
{
    REAL(ssize_t, "recvmsg", int, struct msghdr *, int);
    ssize_t got = real(fd, message, flags);

    pause_once_in(40);
    return got;
}

ssize_t recv(int fd, void *data, size_t bytes, int flags)
{
    REAL(ssize_t, "recv", int, void *, size_t, int);
    ssize_t got = real(fd, data, bytes, flags);

    pause_once_in(40);
    return got;
}

int poll(struct pollfd *fds, nfds_t count, int timeout)
{
    REAL(int, "poll", struct pollfd *, nfds_t, int);
    int ready = real(fds, count, timeout);

    pause_once_in(100);
    return ready;
}

int epoll_wait(int fd, struct epoll_event *events, int most, int timeout)
{
    REAL(int, "epoll_wait", int, struct epoll_event *, int, int);
    int ready = real(fd, events, most, timeout);

    pause_once_in(100);
    return ready;
}

int pthread_mutex_unlock(pthread_mutex_t *mutex)
{
    REAL(int, "pthread_mutex_unlock", pthread_mutex_t *);
    int result = real(mutex);

    pause_once_in(2000);
    return result;
}

int pthread_cond_signal(pthread_cond_t *condition)
{
    REAL(int, "pthread_cond_signal", pthread_cond_t *);
    pause_once_in(100);
    return real(condition);
}

int pthread_cond_broadcast(pthread_cond_t *condition)
{
    REAL(int, "pthread_cond_broadcast", pthread_cond_t *);
    pause_once_in(100);
    return real(condition);
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *), void *context)
{
    REAL(int, "pthread_create", pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    int result = real(thread, attributes, run, context);

    pause_once_in(4);
    return result;
}
