/* Counter-based random numbers: Philox4x32-10 (Salmon et al., "Parallel Random Numbers: As Easy as
 * 1, 2, 3", SC 2011).
 *
 * Each draw is a pure function of a seed and a counter, and the counter identifies purpose, layer,
 * step or epoch, position and element. Results therefore do not depend on rank, thread and tile,
 * and any part can be recomputed separately. */
#ifndef GP_RNG_H
#define GP_RNG_H

#include <stdint.h>

/* Consumers of random numbers, each with its own streams. The comments name the counter fields
 * used. Changing a number changes all results derived from it. */
typedef enum gp_rng_purpose {
    GP_RNG_INIT = 1,    /* layer; position = parameter tensor, element */
    GP_RNG_SHUFFLE = 2, /* epoch */
    GP_RNG_DROPOUT = 3, /* layer; step, sample position in the global batch, element / 4 */
    GP_RNG_AUGMENT = 4, /* epoch, sample index in the data set */
    GP_RNG_PARFOR = 5,  /* iteration */
    GP_RNG_DIGITS = 6,  /* sample index */
    GP_RNG_SPLIT = 7,   /* sample index */
    GP_RNG_SEARCH = 8,  /* use; trial, attempt, parameter / 2 */
} gp_rng_purpose;

/* Pack purpose (8 bits) and layer (24 bits) into one counter word. */
static inline uint32_t gp_rng_stream(gp_rng_purpose purpose, uint32_t layer)
{
    return (uint32_t)purpose << 24 | (layer & 0xffffff);
}

/* Compute the Philox4x32-10 bijection of `counter` under `key`. */
void gp_philox4x32(uint32_t out[4], const uint32_t counter[4], const uint32_t key[2]);

/* Draw four random words.
 *   seed      run seed
 *   stream    result of gp_rng_stream()
 *   when      step, epoch or iteration
 *   position  sample position or index, or parameter tensor
 *   element   element within the sample or tensor */
void gp_rng_draw(uint32_t out[4], uint64_t seed, uint32_t stream, uint32_t when, uint32_t position,
                 uint32_t element);

/* Convert a random word to a uniform float in [0, 1). Only 24 bits are used, so float32 is
 * exact. */
static inline float gp_rng_uniform(uint32_t word)
{
    return (float)(word >> 8) * 0x1p-24f;
}

/* Convert two random words to two independent standard normal values (Box-Muller, in float64). */
void gp_rng_normal(double out[2], uint32_t first, uint32_t second);

#endif
