/* rng.h -- counter-based random numbers: Philox4x32-10 (Salmon et al., "Parallel Random Numbers:
 * As Easy as 1, 2, 3", SC 2011).
 *
 * Every draw is a pure function of (seed; purpose and layer, step or epoch, position, element), so
 * it depends on no rank, thread or tile, and any part of a run can be recomputed alone. */
#ifndef GP_RNG_H
#define GP_RNG_H

#include <stdint.h>

typedef enum gp_rng_purpose {
    GP_RNG_INIT = 1,    /* layer; position = parameter tensor, element */
    GP_RNG_SHUFFLE = 2, /* epoch */
    GP_RNG_DROPOUT = 3, /* layer; step, sample's position in the global batch, element / 4 */
    GP_RNG_AUGMENT = 4, /* epoch, sample's index in the data */
    GP_RNG_PARFOR = 5,  /* iteration */
    GP_RNG_DIGITS = 6,  /* sample's index */
    GP_RNG_SPLIT = 7,   /* sample's index */
} gp_rng_purpose;

/* purpose and layer in one counter word: 8 and 24 bits. */
static inline uint32_t gp_rng_stream(gp_rng_purpose purpose, uint32_t layer)
{
    return (uint32_t)purpose << 24 | (layer & 0xffffff);
}

/* The raw bijection: out = Philox4x32-10(counter, key). */
void gp_philox4x32(uint32_t out[4], const uint32_t counter[4], const uint32_t key[2]);

/* Four words of stream (seed; stream, when, position, element). */
void gp_rng_draw(uint32_t out[4], uint64_t seed, uint32_t stream, uint32_t when, uint32_t position,
                 uint32_t element);

/* [0, 1), 24 random bits: exact in float32. */
static inline float gp_rng_uniform(uint32_t word)
{
    return (float)(word >> 8) * 0x1p-24f;
}

/* Two independent standard normal values from two words (Box-Muller, float64). */
void gp_rng_normal(double out[2], uint32_t first, uint32_t second);

#endif
