#include "tests/gp_test.h"

#include "common/data/store/sampler.h"

/* Return the order for a whole epoch; the caller frees the array. */
static uint32_t *epoch_order(uint32_t count, gp_shuffle shuffle, uint64_t seed, uint32_t epoch)
{
    uint32_t *index = malloc(count * sizeof(*index));
    gp_sampler sampler;

    gp_sampler_init(&sampler, count, shuffle, seed);
    gp_sampler_get(&sampler, epoch, 0, count, index);
    return index;
}

static bool is_permutation(const uint32_t *index, uint32_t count)
{
    uint8_t *seen = calloc(count, 1);
    bool good = true;

    for (uint32_t i = 0; i < count && good; i++)
        good = index[i] < count && seen[index[i]]++ == 0;
    free(seen);
    return good;
}

TEST(every_epoch_is_a_permutation)
{
    static const uint32_t large[] = { 1000, 4095, 4096, 4097, 60000, 65536, 65537, 99999 };

    for (uint32_t count = 1; count <= 300; count++) {
        uint32_t *index = epoch_order(count, GP_SHUFFLE_EVERY_EPOCH, 7, count % 3);

        if (!is_permutation(index, count))
            GP_TEST_FAIL("the order of %u samples is not a permutation", count);
        free(index);
    }
    for (size_t i = 0; i < sizeof(large) / sizeof(large[0]); i++) {
        uint32_t *index = epoch_order(large[i], GP_SHUFFLE_EVERY_EPOCH, 0xdeadbeefcafef00d, 5);

        CHECK(is_permutation(index, large[i]));
        free(index);
    }
}

TEST(the_largest_size_stays_in_range)
{
    enum { COUNT = 1 << 30 };
    uint32_t index[1000];
    gp_sampler sampler;

    gp_sampler_init(&sampler, COUNT, GP_SHUFFLE_EVERY_EPOCH, 1);
    gp_sampler_get(&sampler, 0xffffffff, COUNT - 1000, 1000, index);
    for (int i = 0; i < 1000; i++)
        CHECK(index[i] < COUNT);
}

TEST(shuffle_modes_never_and_once_keep_their_order)
{
    uint32_t *never = epoch_order(100, GP_SHUFFLE_NEVER, 1, 3),
             *first = epoch_order(100, GP_SHUFFLE_ONCE, 1, 0);
    uint32_t *later = epoch_order(100, GP_SHUFFLE_ONCE, 1, 9),
             *every = epoch_order(100, GP_SHUFFLE_EVERY_EPOCH, 1, 9);

    for (uint32_t i = 0; i < 100; i++)
        CHECK_INT(i, never[i]);
    CHECK(memcmp(first, later, 100 * sizeof(*first)) == 0);
    CHECK(memcmp(first, never, 100 * sizeof(*first)) != 0);
    CHECK(memcmp(first, every, 100 * sizeof(*first)) != 0);
    free(never);
    free(first);
    free(later);
    free(every);
}

TEST(any_part_of_an_epoch_can_be_read_alone)
{
    uint32_t *whole = epoch_order(777, GP_SHUFFLE_EVERY_EPOCH, 42, 6), part[50];
    gp_sampler sampler;

    gp_sampler_init(&sampler, 777, GP_SHUFFLE_EVERY_EPOCH, 42);
    gp_sampler_get(&sampler, 6, 700, 50, part);
    CHECK(memcmp(whole + 700, part, sizeof(part)) == 0);
    free(whole);
}

/* Checkpoints store seed and position, so these values must never change. */
TEST(orders_match_the_golden_values)
{
    static const struct {
        uint32_t count;
        uint64_t seed;
        uint32_t epoch, index[10];
    } golden[] = {
        { 10, 0x0, 0, { 5, 1, 6, 2, 3, 7, 0, 9, 8, 4 } },
        { 10, 0x0, 1, { 5, 7, 9, 0, 4, 3, 1, 8, 2, 6 } },
        { 60000, 0x2a, 0, { 14074, 20847, 5993, 4871, 16112, 27145, 10901, 10228, 21531, 13413 } },
        { 60000,
          0x123456789abcdef0,
          7,
          { 34825, 27808, 15754, 1701, 58942, 33656, 50724, 34963, 46242, 235 } },
    };

    for (size_t i = 0; i < sizeof(golden) / sizeof(golden[0]); i++) {
        uint32_t *index =
            epoch_order(golden[i].count, GP_SHUFFLE_EVERY_EPOCH, golden[i].seed, golden[i].epoch);

        for (int j = 0; j < 10; j++)
            CHECK_INT(golden[i].index[j], index[j]);
        free(index);
    }
}

/* Compute the chi-square statistic of the sample at a position, over seeds. The bounds in the test
 * are about 6 sigma for bins - 1 degrees of freedom. */
static double chi_square(uint32_t count, uint32_t position, uint32_t bins, uint32_t seeds)
{
    uint32_t hits[64] = { 0 };
    double expected = (double)seeds / bins, sum = 0;

    for (uint32_t seed = 0; seed < seeds; seed++) {
        gp_sampler sampler;
        uint32_t index;

        gp_sampler_init(&sampler, count, GP_SHUFFLE_EVERY_EPOCH, seed / 2);
        gp_sampler_get(&sampler, seed % 2, position, 1, &index);
        hits[(uint64_t)index * bins / count]++;
    }
    for (uint32_t i = 0; i < bins; i++)
        sum += (hits[i] - expected) * (hits[i] - expected) / expected;
    return sum;
}

TEST(every_position_is_equally_likely)
{
    CHECK(chi_square(60000, 0, 32, 20000) < 31 + 6 * 7.9);
    CHECK(chi_square(60000, 59999, 32, 20000) < 31 + 6 * 7.9);
    CHECK(chi_square(10, 3, 10, 20000) < 9 + 6 * 4.3);
    CHECK(chi_square(3, 0, 3, 20000) < 2 + 6 * 2);
}

TEST(neighbours_are_separated)
{
    uint32_t *index = epoch_order(60000, GP_SHUFFLE_EVERY_EPOCH, 3, 0), adjacent = 0, fixed = 0;
    double covariance = 0;

    for (uint32_t i = 0; i + 1 < 60000; i++) {
        adjacent += index[i + 1] == index[i] + 1;
        fixed += index[i] == i;
        covariance += (index[i] - 29999.5) * (index[i + 1] - 29999.5);
    }
    CHECK(adjacent <= 8); /* Poisson with mean 1 */
    CHECK(fixed <= 8);
    CHECK(fabs(covariance / 60000 / (60000.0 * 60000 / 12)) < 0.025); /* 6 sigma */
    free(index);
}

TEST(a_split_matches_split_batch_of_d2l)
{
    uint32_t first, count;

    gp_split(4, 2, 0, &first, &count);
    CHECK_INT(0, first);
    CHECK_INT(2, count);
    gp_split(4, 2, 1, &first, &count);
    CHECK_INT(2, first);
    CHECK_INT(2, count);
}

TEST(load_splits_are_complete_and_proportional)
{
    static const double loads[] = { 1, 0, 2.5, 0.001, 4, 0 };
    const uint32_t ranks = 6;

    for (uint32_t total = 0; total < 300; total++) {
        uint32_t next = 0;

        for (uint32_t rank = 0; rank < ranks; rank++) {
            uint32_t first, count;

            gp_split_loads(total, loads, ranks, rank, &first, &count);
            CHECK_INT(next, first);
            CHECK(fabs(count - total * loads[rank] / 7.501) < 1);
            next += count;
        }
        CHECK_INT(total, next);
    }
}

TEST(splits_are_complete_and_even)
{
    for (uint32_t total = 0; total < 40; total++)
        for (uint32_t ranks = 1; ranks < 10; ranks++) {
            uint32_t next = 0;

            for (uint32_t rank = 0; rank < ranks; rank++) {
                uint32_t first, count;

                gp_split(total, ranks, rank, &first, &count);
                CHECK_INT(next, first);
                CHECK_INT(total / ranks + (rank < total % ranks), count);
                next += count;
            }
            CHECK_INT(total, next);
        }
}
