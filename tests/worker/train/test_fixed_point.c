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
    double values[] = { 0.0, -0.5, 1.0 / 65536, -1.0 / 131072, 3.0, 1e9, ldexp(1, -62), -ldexp(1, -40) };
    int64_t high[8] = { 0 }, low[8] = { 0 };
    double got[8];

    CHECK_INT(0, gp_fixed_point_add_f64(high, low, values, 8));
    gp_fixed_point_get_f64(got, high, low, 8);
    for (int i = 0; i < 8; i++)
        CHECK(got[i] == values[i]);
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
