/* Implement sobol.h. */
#include "common/search/sobol.h"

#include <assert.h>

#include "common/base/rng.h"

enum { DEGREE_MAX = 9, BITS = 32 };

/* Primitive polynomial and initial direction numbers of a dimension. */
static const struct {
    uint16_t polynomial;
    uint16_t numbers[DEGREE_MAX];
} table[GP_SOBOL_DIMENSIONS_MAX - 1] = {
#define S(polynomial, ...) { polynomial, { __VA_ARGS__ } },
#include "common/search/sobol.def"
#undef S
};

/* Compute the direction numbers of a dimension: the numbers of the table, then the recurrence of
 * its polynomial. */
static void directions(uint32_t dimension, uint32_t numbers[BITS])
{
    const uint32_t polynomial = dimension == 0 ? 1 : table[dimension - 1].polynomial;
    const int degree = 31 - __builtin_clz(polynomial);

    for (int i = 0; i < BITS; i++) {
        if (dimension == 0 || i < degree) {
            numbers[i] = (uint32_t)(dimension == 0 ? 1 : table[dimension - 1].numbers[i]) << (BITS - 1 - i);
            continue;
        }
        numbers[i] = numbers[i - degree] ^ numbers[i - degree] >> degree;
        for (int k = 1; k < degree; k++)
            if ((polynomial >> (degree - k) & 1) != 0)
                numbers[i] ^= numbers[i - k];
    }
}

uint32_t gp_sobol_word(uint32_t dimension, uint32_t index)
{
    uint32_t numbers[BITS], word = 0;

    assert(dimension < GP_SOBOL_DIMENSIONS_MAX);
    directions(dimension, numbers);
    for (uint32_t gray = index ^ index >> 1; gray != 0; gray &= gray - 1)
        word ^= numbers[__builtin_ctz(gray)];
    return word;
}

/* Flip each bit of a word at random, depending on the bits above it. The flips form a binary tree;
 * one draw of 128 bits has the 127 flips of a subtree of seven levels. */
static uint32_t scramble(uint32_t word, uint64_t seed, uint32_t stream, uint32_t when, uint32_t dimension)
{
    enum { LEVELS = 7 };
    uint32_t flipped = 0;

    for (uint32_t first = 0; first < BITS; first += LEVELS) {
        const uint32_t prefix = first == 0 ? 0 : word >> (BITS - first);
        uint32_t flips[4], node = 1;

        gp_rng_draw(flips, seed, stream, when, dimension << 8 | first, prefix);
        for (uint32_t level = first; level < first + LEVELS && level < BITS; level++) {
            const uint32_t bit = word >> (BITS - 1 - level) & 1;
            const uint32_t flip = flips[node >> 5] >> (node & 31) & 1;

            flipped |= (bit ^ flip) << (BITS - 1 - level);
            node = 2 * node + bit;
        }
    }
    return flipped;
}

void gp_sobol_point(uint64_t seed, uint32_t stream, uint32_t when, uint32_t index, uint32_t dimensions,
                    double *unit)
{
    for (uint32_t i = 0; i < dimensions; i++)
        unit[i] = (scramble(gp_sobol_word(i, index), seed, stream, when, i) + 0.5) * 0x1p-32;
}
