/* SplitMix64 (Steele, Lea, Flood: "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014).
 * The Python programs that write expected results use the same generator. */
#ifndef GP_SPLITMIX_H
#define GP_SPLITMIX_H

#include <stdint.h>

static inline uint64_t random_next(uint64_t *state)
{
    uint64_t word = *state += UINT64_C(0x9E3779B97F4A7C15);

    word = (word ^ word >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    word = (word ^ word >> 27) * UINT64_C(0x94D049BB133111EB);
    return word ^ word >> 31;
}

static inline uint64_t random_below(uint64_t *state, uint64_t limit)
{
    return random_next(state) % limit;
}

static inline double random_uniform(uint64_t *state)
{
    return (double)(random_next(state) >> 11) * 0x1p-53;
}

#endif
