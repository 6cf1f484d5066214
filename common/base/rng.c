/* Implement rng.h: the Philox4x32-10 rounds, and conversion to normal values. */
#include "common/base/rng.h"

#include <math.h>

void gp_philox4x32(uint32_t out[4], const uint32_t counter[4], const uint32_t key[2])
{
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    uint32_t k0 = key[0], k1 = key[1];

    /* Multipliers and key increments are the constants of the Philox paper. */
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
        uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0, n2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;

        c1 = (uint32_t)p1;
        c3 = (uint32_t)p0;
        c0 = n0;
        c2 = n2;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

void gp_rng_draw(uint32_t out[4], uint64_t seed, uint32_t stream, uint32_t when, uint32_t position,
                 uint32_t element)
{
    const uint32_t counter[4] = { stream, when, position, element };
    const uint32_t key[2] = { (uint32_t)seed, (uint32_t)(seed >> 32) };

    gp_philox4x32(out, counter, key);
}

void gp_rng_normal(double out[2], uint32_t first, uint32_t second)
{
    /* u is in (0, 1], so log(u) is finite. */
    double u = ((double)first + 1.0) * 0x1p-32, v = (double)second * 0x1p-32;
    double radius = sqrt(-2.0 * log(u)), angle = 6.283185307179586476925 * v;

    out[0] = radius * cos(angle);
    out[1] = radius * sin(angle);
}
