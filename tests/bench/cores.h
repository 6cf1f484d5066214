/* cores.h: allowed processor cores. */
#ifndef GP_BENCH_CORES_H
#define GP_BENCH_CORES_H

#include <sched.h>

/* Find the first two allowed cores. Return their number. */
static inline int cores_find(int cores[2])
{
    cpu_set_t set;
    int found = 0;

    sched_getaffinity(0, sizeof(set), &set);
    for (int core = 0; core < CPU_SETSIZE && found < 2; core++)
        if (CPU_ISSET(core, &set))
            cores[found++] = core;
    return found;
}

/* Bind the calling thread to a core. */
static inline void cores_pin(int core)
{
    cpu_set_t set;

    CPU_ZERO(&set);
    CPU_SET(core, &set);
    sched_setaffinity(0, sizeof(set), &set);
}

#endif
