/* sampler.h -- which sample is at position p of epoch e, and which positions are whose.
 *
 * The order of an epoch is a keyed permutation of (seed, epoch): a function that is evaluated at any
 * position, so no rank holds or sends a list, and a resumed run needs the position only. */
#ifndef GP_SAMPLER_H
#define GP_SAMPLER_H

#include <stdint.h>

typedef enum gp_shuffle {
    GP_SHUFFLE_NEVER, /* the data's order */
    GP_SHUFFLE_ONCE,  /* every epoch has the order of epoch 0 */
    GP_SHUFFLE_EVERY_EPOCH,
} gp_shuffle;

/* A plain value: copy it freely, use it from any thread. */
typedef struct gp_sampler {
    uint64_t seed;
    uint32_t count;   /* samples */
    uint32_t side[2]; /* of the smallest near-square rectangle that holds count cells */
    gp_shuffle shuffle;
} gp_sampler;

/* count: 1 to GP_STORE_SAMPLES_MAX. */
void gp_sampler_init(gp_sampler *sampler, uint32_t count, gp_shuffle shuffle, uint64_t seed);

/* index[i] = the sample at position first + i of the epoch, for i < count; first + count must not pass the
 * sampler's count.  Epochs are counted from 0. */
void gp_sampler_get(const gp_sampler *sampler, uint32_t epoch, uint32_t first, uint32_t count,
                    uint32_t *index);

/* gp_split -- rank's part of `total` consecutive things: floor(total / ranks), the first total mod ranks ranks
 * get one more; parts follow each other in rank order.  Needs rank < ranks.  Parts may be empty. */
void gp_split(uint32_t total, uint32_t ranks, uint32_t rank, uint32_t *first, uint32_t *count);

/* gp_split_loads -- the same with parts in proportion to loads[0..ranks), each >= 0 and one above: every part is
 * within one of its exact share. */
void gp_split_loads(uint32_t total, const double *loads, uint32_t ranks, uint32_t rank, uint32_t *first,
                    uint32_t *count);

#endif
