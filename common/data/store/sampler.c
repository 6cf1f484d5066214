#include "common/data/store/sampler.h"

#include <assert.h>
#include <math.h>

#include "common/base/rng.h"

/* Sample order by a Feistel network on an a x b rectangle, a * b >= count.
 *
 * Cells outside [0, count) are encrypted again until the result is inside. See Black & Rogaway,
 * "Ciphers with Arbitrary Finite Domains" (2002): generalized Feistel and cycle-walking cipher.
 * Fewer than `a` cells are outside, so a second evaluation is rare. The round function is Philox
 * with the counter (shuffle, epoch, other half, round). */
enum { ROUNDS = 8 };

void gp_sampler_init(gp_sampler *sampler, uint32_t count, gp_shuffle shuffle, uint64_t seed)
{
    uint32_t side = 1;

    assert(count >= 1);
    while ((uint64_t)side * side < count)
        side++;
    *sampler = (gp_sampler){ .seed = seed, .count = count, .shuffle = shuffle };
    sampler->side[0] = side;
    sampler->side[1] = (uint32_t)(((uint64_t)count + side - 1) / side);
}

static uint32_t feistel(const gp_sampler *sampler, uint32_t epoch, uint32_t cell)
{
    uint32_t half[2] = { cell % sampler->side[0], cell / sampler->side[0] };

    for (uint32_t round = 0; round < ROUNDS; round++) {
        uint32_t word[4], moved = round & 1, side = sampler->side[moved];

        gp_rng_draw(word, sampler->seed, gp_rng_stream(GP_RNG_SHUFFLE, 0), epoch, half[1 - moved], round);
        half[moved] = (half[moved] + (uint32_t)((uint64_t)word[0] * side >> 32)) % side;
    }
    return half[0] + half[1] * sampler->side[0];
}

void gp_sampler_get(const gp_sampler *sampler, uint32_t epoch, uint32_t first, uint32_t count,
                    uint32_t *index)
{
    assert(first <= sampler->count && count <= sampler->count - first);
    if (sampler->shuffle == GP_SHUFFLE_ONCE)
        epoch = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint32_t cell = first + i;

        if (sampler->shuffle != GP_SHUFFLE_NEVER)
            do
                cell = feistel(sampler, epoch, cell);
            while (cell >= sampler->count);
        index[i] = cell;
    }
}

void gp_split(uint32_t total, uint32_t ranks, uint32_t rank, uint32_t *first, uint32_t *count)
{
    uint32_t base, extra;

    assert(rank < ranks);
    base = total / ranks;
    extra = total % ranks;
    *first = rank * base + (rank < extra ? rank : extra);
    *count = base + (rank < extra);
}

/* Return a rank's first item: the summed load over all lower ranks, scaled to items and rounded. */
static uint32_t loads_border(uint32_t total, const double *loads, uint32_t ranks, uint32_t rank)
{
    double before = 0, all = 0;

    for (uint32_t r = 0; r < ranks; r++) {
        before += r < rank ? loads[r] : 0;
        all += loads[r];
    }
    return rank == ranks ? total : (uint32_t)floor((double)total * (before / all) + 0.5);
}

void gp_split_loads(uint32_t total, const double *loads, uint32_t ranks, uint32_t rank, uint32_t *first,
                    uint32_t *count)
{
    assert(rank < ranks);
    *first = loads_border(total, loads, ranks, rank);
    *count = loads_border(total, loads, ranks, rank + 1) - *first;
}
