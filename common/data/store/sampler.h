/* The sample order within an epoch, and its division among ranks.
 *
 * The order is a keyed permutation of (seed, epoch). It can be evaluated at any position, so no
 * rank stores or sends a list, and a resumed run needs only the position. */
#ifndef GP_SAMPLER_H
#define GP_SAMPLER_H

#include <stdint.h>

/* Shuffle mode. */
typedef enum gp_shuffle {
    GP_SHUFFLE_NEVER, /* stored order */
    GP_SHUFFLE_ONCE,  /* every epoch uses epoch 0's order */
    GP_SHUFFLE_EVERY_EPOCH,
} gp_shuffle;

/* A plain value: may be copied, and used from any thread. */
typedef struct gp_sampler {
    uint64_t seed;
    uint32_t count;   /* sample count */
    uint32_t side[2]; /* sides: the smallest near-square rectangle with at least `count` cells */
    gp_shuffle shuffle;
} gp_sampler;

/* Initialize a sampler. count: 1 to GP_STORE_SAMPLES_MAX. */
void gp_sampler_init(gp_sampler *sampler, uint32_t count, gp_shuffle shuffle, uint64_t seed);

/* Set index[i] to the sample at position first + i of the epoch, for i < count. Epochs count from
 * 0. first + count must not exceed the sampler's count. */
void gp_sampler_get(const gp_sampler *sampler, uint32_t epoch, uint32_t first, uint32_t count,
                    uint32_t *index);

/* Divide `total` items among ranks as evenly as possible: each rank gets floor(total / ranks), and
 * the first total mod ranks ranks get one more. The parts are consecutive, in rank order, and may
 * be empty. Requires rank < ranks. */
void gp_split(uint32_t total, uint32_t ranks, uint32_t rank, uint32_t *first, uint32_t *count);

/* Divide `total` items in proportion to loads[0..ranks). Each load must be >= 0, and at least one >
 * 0. Each part differs from the exact proportion by less than one item. */
void gp_split_loads(uint32_t total, const double *loads, uint32_t ranks, uint32_t rank, uint32_t *first,
                    uint32_t *count);

#endif
