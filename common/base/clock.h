/* clock.h -- CLOCK_MONOTONIC, the only clock deadlines are made of, and waiting. */
#ifndef GP_CLOCK_H
#define GP_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline int64_t gp_now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static inline int64_t gp_now_ms(void)
{
    return gp_now_ns() / 1000000;
}

static inline double gp_now_seconds(void)
{
    return (double)gp_now_ns() * 1e-9;
}

static inline void gp_sleep_ms(int64_t ms)
{
    nanosleep(&(struct timespec){ .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000 }, NULL);
}

/* One iteration of a loop that spins: tells the core to leave its resources to the other hardware thread. */
static inline void gp_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

#endif
