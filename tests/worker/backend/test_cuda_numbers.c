/* test_cuda_numbers.c: 2-byte numbers in kernel bodies: all fp16 values, and the values that round
 * to them. Divisors of kernels. */
#include "tests/gp_test.h"

#include <math.h>

#include "worker/backend/cuda/kernels/bodies.h"

enum { F16_INFINITE = 0x7c00 };

TEST(every_fp16_value_survives_a_round_trip)
{
    for (uint32_t bits = 0; bits < F16_INFINITE; bits++) {
        uint32_t exponent = bits >> 10, fraction = bits & 0x3ff;
        double value = exponent == 0 ? ldexp(fraction, -24) : ldexp(1024 + fraction, (int)exponent - 25);

        if ((double)f16_wide((uint16_t)bits) != value || f16_narrow((float)value) != bits ||
            (double)f16_wide((uint16_t)(bits | 0x8000)) != -value ||
            f16_narrow(-(float)value) != (bits | 0x8000))
            GP_TEST_FAIL("%04x is %g, read as %g, written as %04x", bits, value,
                         (double)f16_wide((uint16_t)bits), f16_narrow((float)value));
    }
    CHECK(signbit(f16_wide(0x8000)) && isinf(f16_wide(0x7c00)) && f16_wide(0xfc00) == -INFINITY);
    CHECK(isnan(f16_wide(0x7c01)) && isnan(f16_wide(0xffff)));
}

TEST(fp16_rounds_to_nearest_with_ties_to_even)
{
    for (uint32_t bits = 0; bits < F16_INFINITE; bits++) {
        float next = bits + 1 == F16_INFINITE ? 65536.0f : f16_wide((uint16_t)(bits + 1));
        float middle = 0.5f * (f16_wide((uint16_t)bits) + next);
        uint32_t even = bits + (bits & 1);

        if (f16_narrow(middle) != even || f16_narrow(nextafterf(middle, 0)) != bits ||
            f16_narrow(nextafterf(middle, INFINITY)) != bits + 1)
            GP_TEST_FAIL("about %g: %04x, %04x, %04x", (double)middle, f16_narrow(nextafterf(middle, 0)),
                         f16_narrow(middle), f16_narrow(nextafterf(middle, INFINITY)));
    }
    CHECK_INT(0, f16_narrow(1e-45f));
    CHECK_INT(0x8000, f16_narrow(-1e-30f));
    CHECK_INT(F16_INFINITE, f16_narrow(1e38f));
    CHECK_INT(F16_INFINITE, f16_narrow(INFINITY));
    CHECK(isnan(f16_wide(f16_narrow(NAN))) && isnan(bf16_wide(bf16_narrow(NAN))));
}

TEST(bf16_rounds_ties_to_even)
{
    for (uint32_t bits = 0; bits < 0x7f80; bits++) {
        float low = bf16_wide((uint16_t)bits);
        uint32_t word = bits << 16 | 0x8000, below = word - 1, above = word + 1;
        float middle, less, more;

        memcpy(&middle, &word, sizeof(middle));
        memcpy(&less, &below, sizeof(less));
        memcpy(&more, &above, sizeof(more));
        if (bf16_narrow(low) != bits || bf16_narrow(middle) != bits + (bits & 1) ||
            bf16_narrow(less) != bits || bf16_narrow(more) != bits + 1)
            GP_TEST_FAIL("%04x", bits);
    }
}

TEST(divisors_give_exact_quotients)
{
    const uint32_t by[] = { 1, 2, 3, 7, 8, 55, 112, 3136, 12543, 65537, 1u << 30, INT32_MAX };

    for (size_t i = 0; i < sizeof(by) / sizeof(by[0]); i++)
        for (uint32_t k = 0; k < 2000; k++) {
            const uint32_t multiple = (uint32_t)(INT32_MAX / by[i] * (uint64_t)k / 1999) * by[i];
            const uint32_t values[] = { multiple, multiple + by[i] - 1, multiple == 0 ? 0 : multiple - 1 };
            uint32_t divisor[2];

            gp_kernel_divisor(divisor, by[i]);
            for (int v = 0; v < 3; v++)
                if (values[v] <= INT32_MAX &&
                    (uint32_t)(2 * (uint64_t)values[v] * divisor[0] >> 32) >> divisor[1] != values[v] / by[i])
                    GP_TEST_FAIL("%u / %u", values[v], by[i]);
        }
}
