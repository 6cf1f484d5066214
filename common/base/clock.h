/* Read the clocks, and wait. All deadlines in gradpool are based on CLOCK_MONOTONIC, so a change of
 * the system time does not affect them. */
#ifndef GP_CLOCK_H
#define GP_CLOCK_H

#include <stdint.h>
#include <time.h>

/* Return the CLOCK_MONOTONIC time in nanoseconds. */
static inline int64_t gp_now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Return the CLOCK_MONOTONIC time in milliseconds. */
static inline int64_t gp_now_ms(void)
{
    return gp_now_ns() / 1000000;
}

/* Return the CLOCK_MONOTONIC time in seconds. A double keeps nanoseconds for about 100 days. */
static inline double gp_now_seconds(void)
{
    return (double)gp_now_ns() * 1e-9;
}

/* Return the system time in milliseconds since 1970. For timestamps only: the time may jump. */
static inline int64_t gp_unix_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Sleep for ms milliseconds; less if a signal handler interrupts the sleep. */
static inline void gp_sleep_ms(int64_t ms)
{
    nanosleep(&(struct timespec){ .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000 }, NULL);
}

/* Pause once in a spin-wait loop: the core lends execution resources to the other hardware
 * thread. */
static inline void gp_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

#endif
