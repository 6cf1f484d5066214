/* burn.h -- a task's worth of CPU time: the same instructions in every program that is compared. */
#ifndef GP_BENCH_BURN_H
#define GP_BENCH_BURN_H

#include <stdint.h>

/* One dependent chain in registers: its time depends on nothing but the core it runs on (about 2 ns a turn). */
static inline uint64_t bench_burn(uint64_t turns)
{
    uint64_t x = 0x9e3779b97f4a7c15u;

    for (uint64_t i = 0; i < turns; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
    }
    return x;
}

#endif
