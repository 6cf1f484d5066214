/* test_fixed_point.c: fixed-point sums are bitwise independent of the order. */
#include "worker/train/fixed_point.h"

#include <math.h>
#include <string.h>

#include "common/base/rng.h"
#include "tests/gp_test.h"

enum { COUNT = 37, TERMS = 200 };

/* Return values over 30 orders of magnitude with both signs. */
static float term(uint32_t t, uint32_t i)
{
    double angle = 0.7 * t + 1.3 * i;

    return (float)(sin(angle) * pow(10.0, (double)((t * 7 + i * 3) % 30) - 22.0));
}

static void sum_in(const uint32_t order[TERMS], float out[COUNT], uint32_t parts)
{
    int64_t high[COUNT] = { 0 }, low[COUNT] = { 0 };

    /* Add up as several ranks do: each adds a part, then the parts are added. */
    for (uint32_t p = 0; p < parts; p++) {
        int64_t part_high[COUNT] = { 0 }, part_low[COUNT] = { 0 };

        for (uint32_t k = p * TERMS / parts; k < (p + 1) * TERMS / parts; k++) {
            float values[COUNT];

            for (uint32_t i = 0; i < COUNT; i++)
                values[i] = term(order[k], i);
            CHECK_INT(0, gp_fixed_point_add(part_high, part_low, values, COUNT));
        }
        for (uint32_t i = 0; i < COUNT; i++) {
            high[i] += part_high[i];
            low[i] += part_low[i];
        }
    }
    gp_fixed_point_get(out, high, low, COUNT);
}

TEST(sums_are_bitwise_identical_in_any_order_and_grouping)
{
    uint32_t order[TERMS];
    float first[COUNT], other[COUNT];

    for (uint32_t t = 0; t < TERMS; t++)
        order[t] = t;
    sum_in(order, first, 1);
    for (uint32_t round = 1; round < 50; round++) {
        for (uint32_t t = TERMS; t-- > 1;) {
            uint32_t k = (round * 2654435761u + t * 40503u) % (t + 1), swap = order[t];

            order[t] = order[k];
            order[k] = swap;
        }
        sum_in(order, other, 1 + round % 7);
        CHECK(memcmp(first, other, sizeof(first)) == 0);
    }
}

TEST(the_sum_is_right_to_the_grid)
{
    uint32_t order[TERMS];
    float sum[COUNT];

    for (uint32_t t = 0; t < TERMS; t++)
        order[t] = t;
    sum_in(order, sum, 3);
    for (uint32_t i = 0; i < COUNT; i++) {
        long double exact = 0;

        for (uint32_t t = 0; t < TERMS; t++)
            exact += term(t, i);
        CHECK_NEAR((double)exact, sum[i], fabs((double)exact) * 6e-8 + TERMS * ldexp(1, -62));
    }
}

TEST(halves_and_powers_are_exact)
{
    double values[] = { 0.0, -0.5,          1.0 / 65536,    -1.0 / 131072, 3.0,
                        1e9, ldexp(1, -62), -ldexp(1, -40), ldexp(-1, 76), 3e20 };
    enum { VALUES = sizeof(values) / sizeof(values[0]) };
    int64_t sums[GP_FIXED_POINT_WIDE * VALUES] = { 0 };
    double got[VALUES];

    CHECK_INT(0, gp_fixed_point_add_wide(sums, values, VALUES));
    gp_fixed_point_get_wide(got, sums, VALUES);
    for (int i = 0; i < VALUES; i++)
        CHECK(got[i] == values[i]);
}

/* Squared errors of prices: 10^9 to 10^20. */
TEST(wide_sums_of_large_values_are_right_in_any_order)
{
    int64_t sums[2][GP_FIXED_POINT_WIDE] = { { 0 } };
    double got[2];
    long double exact = 0;

    for (int i = 0; i < TERMS; i++) {
        double forward = pow(10.0, 9 + 11.0 * i / TERMS), backward = pow(10.0, 20 - 11.0 * (i + 1) / TERMS);

        exact += (long double)forward;
        CHECK_INT(0, gp_fixed_point_add_wide(sums[0], &forward, 1));
        CHECK_INT(0, gp_fixed_point_add_wide(sums[1], &forward, 1));
        CHECK_INT(0, gp_fixed_point_add_wide(sums[1], &backward, 1));
        backward = -backward;
        CHECK_INT(0, gp_fixed_point_add_wide(sums[1], &backward, 1));
    }
    for (int i = 0; i < 2; i++)
        gp_fixed_point_get_wide(&got[i], sums[i], 1);
    CHECK_NEAR(1, got[0] / (double)exact, 1e-15);
    CHECK(got[0] == got[1]);
}

TEST(values_outside_the_range_of_a_wide_sum_are_counted)
{
    double values[] = { NAN, INFINITY, -INFINITY, 1e23, -1e300, 1.0 };
    int64_t sums[GP_FIXED_POINT_WIDE * 6] = { 0 };
    double got[6];

    CHECK_INT(5, gp_fixed_point_add_wide(sums, values, 6));
    gp_fixed_point_get_wide(got, sums, 6);
    CHECK(got[0] == 0.0 && got[4] == 0.0 && got[5] == 1.0);
}

TEST(nan_is_counted_and_overflow_saturates)
{
    float values[] = { NAN, INFINITY, -INFINITY, 1.0f };
    int64_t high[4] = { 0 }, low[4] = { 0 };
    float got[4];

    CHECK_INT(1, gp_fixed_point_add(high, low, values, 4));
    gp_fixed_point_get(got, high, low, 4);
    CHECK(got[0] == 0.0f && got[1] == (float)GP_FIXED_POINT_LIMIT && got[2] == -(float)GP_FIXED_POINT_LIMIT &&
          got[3] == 1.0f);
}

TEST(documented_number_of_terms_fits)
{
    float value = (float)GP_FIXED_POINT_LIMIT, got;
    int64_t high = 0, low = 0;

    for (int i = 0; i < GP_FIXED_POINT_TERMS - 1; i++)
        gp_fixed_point_add(&high, &low, &value, 1);
    gp_fixed_point_get(&got, &high, &low, 1);
    CHECK_NEAR(GP_FIXED_POINT_LIMIT * (GP_FIXED_POINT_TERMS - 1), (double)got, 1e7);
}
