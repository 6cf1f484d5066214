/* clock.c: preload library that makes the wall clock jump.
 *
 * The file GP_CLOCK_FILE contains the offset in seconds, which takes effect as soon as it changes.
 * Monotonic clocks are unaffected. */
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *offset;

__attribute__((constructor)) static void map_offset(void)
{
    const char *path = getenv("GP_CLOCK_FILE");
    int fd = path == NULL ? -1 : open(path, O_RDONLY | O_CLOEXEC);
    void *map = fd < 0 ? MAP_FAILED : mmap(NULL, sizeof(*offset), PROT_READ, MAP_SHARED, fd, 0);

    if (fd >= 0)
        close(fd);
    offset = map == MAP_FAILED ? NULL : map;
}

int clock_gettime(clockid_t which, struct timespec *out)
{
    int result = (int)syscall(SYS_clock_gettime, which, out);

    if (result == 0 && offset != NULL && (which == CLOCK_REALTIME || which == CLOCK_REALTIME_COARSE))
        out->tv_sec += *offset;
    return result;
}

time_t time(time_t *out)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    if (out != NULL)
        *out = now.tv_sec;
    return now.tv_sec;
}

int gettimeofday(struct timeval *restrict out, void *restrict zone)
{
    struct timespec now;

    (void)zone;
    clock_gettime(CLOCK_REALTIME, &now);
    *out = (struct timeval){ .tv_sec = now.tv_sec, .tv_usec = now.tv_nsec / 1000 };
    return 0;
}
