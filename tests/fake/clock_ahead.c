/* clock_ahead.c: a preloaded library that lets the clock of a program run ten minutes ahead. */
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { AHEAD_S = 600 };

__attribute__((visibility("default"))) int clock_gettime(clockid_t clock, struct timespec *now)
{
    const long code = syscall(SYS_clock_gettime, clock, now);

    if (code == 0 && clock == CLOCK_REALTIME)
        now->tv_sec += AHEAD_S;
    return (int)code;
}

/* munged calls time(). */
__attribute__((visibility("default"))) time_t time(time_t *out)
{
    struct timespec now = { 0 };

    clock_gettime(CLOCK_REALTIME, &now);
    if (out != NULL)
        *out = now.tv_sec;
    return now.tv_sec;
}
