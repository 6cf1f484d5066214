/* Sobol sequences: the points of SciPy without scrambling, and the properties of nets with it. */
#include "tests/gp_test.h"

#include "common/base/memory/hash.h"
#include "common/base/rng.h"
#include "common/search/sobol.h"

enum { POINTS = 1024 };

/* Hashes of the first 1,024 points of scipy.stats.qmc.Sobol(64, scramble=False), times 1,024, by
 * dimension (SciPy 1.17.1). */
TEST(points_without_scrambling_equal_those_of_scipy)
{
    static const uint64_t hashes[GP_SOBOL_DIMENSIONS_MAX] = {
        0xfece88ff482f9ba5, 0x20d5f0f6875ede25, 0x60bf54fde5e35925, 0xd61ffadadf02e065, 0x27a669a3f8c4d865,
        0x53e16630fcc6c4e5, 0xe7fb79a791628c25, 0xaf420869717bc2e5, 0x1559c31c6e794065, 0x9cecb7d8f2353f25,
        0x772996c177d7a525, 0x7bc01d641401b225, 0xc26f56fe67f97f25, 0x4c1ffac0eb391025, 0xa7a7f81111b31565,
        0x3cc0e71e277bc925, 0x55e3a631d78526a5, 0x06c3e6fcbb40d1a5, 0x731e5dfbb1efd8e5, 0x1da33d57ddbcca65,
        0x4ed40a121ebcd325, 0x976e11730c934d65, 0x2657216c89c2f5e5, 0xad294bad03eced25, 0x27be1fe06ba8c925,
        0xa698f2977140dba5, 0x39c2dc26d1daf8a5, 0xc651972537f529e5, 0xf25d440a0116c525, 0x9c8aa26ce2c6cc65,
        0x83a26ebe4dfa4465, 0xf08e1c787631aaa5, 0xd2165e47feb81c25, 0x806c79a25a653625, 0x2450e556598a8b25,
        0xfc0ee7262581a625, 0x1711cb4a72330de5, 0x151d3ae960a0c2a5, 0x31a26df1e6c7d325, 0x17b3cd3fd46cf525,
        0xbdc7b2d079a9b225, 0xb4c4a2fc58885ae5, 0xca64e7c617565425, 0x497defb91f306525, 0x9cc05b699a1f37e5,
        0xaa2d6bf098f014a5, 0xc1f4eb569d3e5025, 0x4e1eaa2f69f8d825, 0x25ad61f3b889f9e5, 0x554c1dd112dcf965,
        0x8fc8bedc500682a5, 0x273f9aee5dcad5a5, 0x3125494c670cf9a5, 0x9913abec73111ee5, 0x2161b742c126f465,
        0x2581fcfa47c0f765, 0xf7efa4b57d1534a5, 0x8eaa26ef01d5d125, 0x414b478b5e151a25, 0x764009eadf13bfa5,
        0x3c4a68b38e591fe5, 0xf9124cb0ddfb89e5, 0x329804b3b37c75e5, 0x1790f1d3fb3d7565,
    };

    for (uint32_t dimension = 0; dimension < GP_SOBOL_DIMENSIONS_MAX; dimension++) {
        uint64_t hash = GP_HASH_BEGIN;

        for (uint32_t i = 0; i < POINTS; i++)
            hash = gp_hash_add_number(hash, gp_sobol_word(dimension, i) / (1u << 22));
        if (hash != hashes[dimension])
            GP_TEST_FAIL("dimension %u differs from the points of SciPy", dimension);
    }
}

TEST(scrambling_keeps_one_point_in_each_interval)
{
    static double points[POINTS][GP_SOBOL_DIMENSIONS_MAX];

    for (uint32_t when = 0; when < 3; when++) {
        for (uint32_t i = 0; i < POINTS; i++)
            gp_sobol_point(5, gp_rng_stream(GP_RNG_SEARCH, 9), when, i, GP_SOBOL_DIMENSIONS_MAX, points[i]);
        for (uint32_t d = 0; d < GP_SOBOL_DIMENSIONS_MAX; d++) {
            bool seen[POINTS] = { false };

            for (uint32_t i = 0; i < POINTS; i++) {
                CHECK(points[i][d] > 0.0 && points[i][d] < 1.0);
                seen[(int)(points[i][d] * POINTS)] = true;
            }
            for (uint32_t i = 0; i < POINTS; i++)
                CHECK(seen[i]);
        }
    }
}

/* The first two dimensions form a (0, 2)-sequence: 64 points have one point in each of the 64
 * rectangles of any shape. */
TEST(scrambled_pairs_of_dimensions_are_balanced)
{
    for (int wide = 0; wide <= 6; wide++) {
        bool seen[64] = { false };
        double unit[2];

        for (uint32_t i = 0; i < 64; i++) {
            gp_sobol_point(1, gp_rng_stream(GP_RNG_SEARCH, 9), 0, i, 2, unit);
            seen[(int)(unit[0] * (1 << wide)) * (64 >> wide) + (int)(unit[1] * (64 >> wide))] = true;
        }
        for (int i = 0; i < 64; i++)
            CHECK(seen[i]);
    }
}

/* Over 4,096 scramblings, a point is uniform: mean 1/2 and variance 1/12 within five standard
 * errors, in the bits of each draw too. */
TEST(scrambled_points_are_uniform)
{
    enum { SEEDS = 4096 };
    double sum = 0.0, squares = 0.0;
    uint32_t ones[32] = { 0 };

    for (uint32_t seed = 0; seed < SEEDS; seed++) {
        double unit[3];

        gp_sobol_point(seed, gp_rng_stream(GP_RNG_SEARCH, 9), 0, 77, 3, unit);
        sum += unit[2];
        squares += (unit[2] - 0.5) * (unit[2] - 0.5);
        for (int bit = 0; bit < 32; bit++)
            ones[bit] += (uint32_t)(unit[2] * 0x1p32) >> bit & 1;
    }
    CHECK_NEAR(0.5, sum / SEEDS, 5 * 0.2887 / 64);
    CHECK_NEAR(1.0 / 12, squares / SEEDS, 5 * 0.0745 / 64);
    for (int bit = 0; bit < 32; bit++)
        CHECK_NEAR(0.5, ones[bit] / (double)SEEDS, 5 * 0.5 / 64);
}
