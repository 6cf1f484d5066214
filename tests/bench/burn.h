/* burn.h: CPU work for one task: the same instructions in every compared program. */
#ifndef GP_BENCH_BURN_H
#define GP_BENCH_BURN_H

#include <stdint.h>

/* Run one dependent chain in registers. The time depends only on the core (about 2 ns per turn). */
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
