/* test_simt.c: kernels on the host (tests/fake/simt/simt.h): barriers, shuffles, conversions, and
 * the faults that a run must find. */
#include "tests/gp_test.h"

#include <sys/wait.h>
#include <unistd.h>

#include "tests/worker/backend/simt_kernels.h"
#include "worker/backend/cuda/kernels/bodies.h"

enum { BLOCK = 256, BLOCKS = 3, COUNT = BLOCKS * BLOCK };

/* Whole numbers whose sums are exact. */
static float input[COUNT + 4] __attribute__((aligned(16)));
static float output[4 * COUNT] __attribute__((aligned(16)));

static void run(simt_kernel kernel, simt_order order, uint32_t blocks, uint32_t count, uint32_t offset)
{
    simt_launch launch = { .kernel = kernel, .blocks = blocks, .threads = BLOCK, .count = count };

    for (uint32_t i = 0; i < COUNT + 4; i++)
        input[i] = (float)(i % 1000);
    memset(output, 0, sizeof(output));
    launch.args.f[0] = input;
    launch.args.f[1] = output;
    launch.args.n[0] = offset;
    simt_set_order(order);
    simt_run(&launch);
    simt_set_order(SIMT_EACH);
}

static bool sums_are_right(void)
{
    for (uint32_t b = 0; b < BLOCKS; b++) {
        float sum = 0.0f;

        for (uint32_t i = b * BLOCK; i < (b + 1) * BLOCK && i < COUNT - 7; i++)
            sum += input[i];
        if (output[b] != sum)
            return false;
    }
    return true;
}

TEST(barriers_and_shuffles_compute_block_sums_in_every_order)
{
    for (simt_order order = SIMT_FORWARDS; order < SIMT_EACH; order++) {
        run(block_sums, order, BLOCKS, COUNT - 7, 0);
        CHECK(sums_are_right());
        run(block_reversed_twice, order, BLOCKS, COUNT, 0);
        CHECK(memcmp(output, input, COUNT * sizeof(output[0])) == 0);
    }
}

/* In the order backwards, warp 0 runs last and reads the right values. */
TEST(planted_missing_barrier_before_a_read_gives_a_wrong_sum_in_some_orders)
{
    run(block_sums_without_barrier, SIMT_FORWARDS, BLOCKS, COUNT - 7, 0);
    CHECK(!sums_are_right());
    run(block_sums_without_barrier, SIMT_SHUFFLED, BLOCKS, COUNT - 7, 0);
    CHECK(!sums_are_right());
}

TEST(planted_missing_barrier_before_a_write_gives_wrong_values_in_every_order)
{
    for (simt_order order = SIMT_FORWARDS; order < SIMT_EACH; order++) {
        run(block_reversed_twice_without_barrier, order, BLOCKS, COUNT, 0);
        CHECK(memcmp(output, input, COUNT * sizeof(output[0])) != 0);
    }
}

TEST(planted_dependency_between_blocks_gives_another_result_in_each_order)
{
    static float first[COUNT], second[COUNT];

    run(neighbour_output, SIMT_FORWARDS, BLOCKS, COUNT, 0);
    memcpy(first, output, sizeof(first));
    run(neighbour_output, SIMT_BACKWARDS, BLOCKS, COUNT, 0);
    memcpy(second, output, sizeof(second));
    run(neighbour_output, SIMT_SHUFFLED, BLOCKS, COUNT, 0);
    CHECK(memcmp(first, second, sizeof(first)) != 0 && memcmp(first, output, sizeof(first)) != 0 &&
          memcmp(second, output, sizeof(second)) != 0);
}

TEST(launches_use_the_three_orders_in_rotation)
{
    static float results[4][COUNT];

    for (uint32_t i = 0; i < 4; i++) {
        run(neighbour_output, SIMT_EACH, BLOCKS, COUNT, 0);
        memcpy(results[i], output, sizeof(results[i]));
    }
    CHECK(memcmp(results[0], results[1], sizeof(results[0])) != 0 &&
          memcmp(results[1], results[2], sizeof(results[0])) != 0 &&
          memcmp(results[2], results[0], sizeof(results[0])) != 0);
}

/* Run a kernel in a child process, which must fail and print `message`. */
static void check_fault(simt_kernel kernel, uint32_t count, uint32_t offset, const char *message)
{
    static char text[1 << 16];
    size_t length = 0;
    ssize_t bytes;
    int pipe_ends[2], status;
    pid_t child;

    fflush(stdout);
    REQUIRE(pipe(pipe_ends) == 0);
    child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        dup2(pipe_ends[1], STDERR_FILENO);
        run(kernel, SIMT_EACH, 1, count, offset);
        _exit(0);
    }
    close(pipe_ends[1]);
    while (length < sizeof(text) - 1 &&
           (bytes = read(pipe_ends[0], text + length, sizeof(text) - 1 - length)) > 0)
        length += (size_t)bytes;
    text[length] = '\0';
    close(pipe_ends[0]);
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK(!WIFEXITED(status) || WEXITSTATUS(status) != 0);
    CHECK_CONTAINS(text, message);
}

TEST(planted_misaligned_access_is_found)
{
    run(copy_of_16_bytes, SIMT_EACH, 1, 8, 4);
    CHECK(memcmp(output, input + 4, 8 * 16) == 0);
    check_fault(copy_of_16_bytes, 8, 1, "misaligned address");
}

TEST(planted_divergent_barriers_are_found)
{
    check_fault(divergent_barrier, 0, 0, "thread 0 waits in line ");
    check_fault(exit_before_barrier, 0, 0, "for thread 128, which has exited");
}

TEST(planted_divergent_shuffles_are_found)
{
    check_fault(divergent_shuffle, 0, 0, "thread 0 waits in line ");
    check_fault(shuffle_from_excluded_lane, 0, 0, "the mask 0000ffff lacks lane ");
}

TEST(planted_write_beyond_shared_memory_is_found)
{
#ifdef __SANITIZE_ADDRESS__
    check_fault(shared_overflow, 1, 0, "global-buffer-overflow");
#else
    run(shared_overflow, SIMT_EACH, 1, 0, 0); /* only AddressSanitizer finds it */
    CHECK(output[BLOCK - 1] == 1.0f);
#endif
}

TEST(atomics_and_votes_count_threads)
{
    uint32_t odd;

    run(atomic_counts, SIMT_EACH, BLOCKS, COUNT - 7, 0);
    memcpy(&odd, &output[2], sizeof(odd));
    CHECK(output[0] == COUNT - 7 && output[1] == COUNT - 8);
    CHECK_INT(0xaaaaaaaau, odd);
}

TEST(shuffles_read_the_right_lanes)
{
    run(shuffles, SIMT_EACH, 1, BLOCK, 0);
    for (uint32_t i = 0; i < BLOCK; i++) {
        const uint32_t lane = i % 32, warp = i - lane;
        const float *out = output + 4 * i;

        if (out[0] != (float)(warp + 5) || out[1] != (float)(i ^ 1) ||
            out[2] != (float)(lane + 3 < 32 ? i + 3 : i) || out[3] != (float)(lane >= 3 ? i - 3 : i))
            GP_TEST_FAIL("thread %u received %g, %g, %g, %g", i, (double)out[0], (double)out[1],
                         (double)out[2], (double)out[3]);
    }
}

TEST(conversions_of_the_device_and_of_the_host_are_bitwise_identical)
{
    enum { VALUES = 1 << 16 };
    simt_launch launch = {
        .kernel = conversions, .blocks = VALUES / BLOCK, .threads = BLOCK, .count = VALUES
    };
    static float from[VALUES], wide[VALUES];
    static uint16_t narrow[VALUES], pairs[2 * VALUES];

    for (uint32_t i = 0; i < VALUES; i++) {
        uint32_t bits = i * 0x9e3779b1u; /* all exponents, including NaN */

        memcpy(&from[i], &bits, sizeof(bits));
    }
    launch.args.f[0] = from;
    launch.args.f[1] = wide;
    launch.args.x[0].data = narrow;
    launch.args.y[0].data = pairs;
    simt_run(&launch);
    for (uint32_t i = 0; i < VALUES; i++) {
        const float value = f16_wide((uint16_t)i);
        const bool nan = from[i] != from[i];

        if (value == value ? memcmp(&value, &wide[i], sizeof(value)) != 0 : wide[i] == wide[i])
            GP_TEST_FAIL("fp16 %04x is %g on the host, %g on the device", i, (double)value, (double)wide[i]);
        if (nan ? (narrow[i] & 0x7fff) <= 0x7c00 || (pairs[2 * i] & 0x7fff) <= 0x7f80
                : narrow[i] != f16_narrow(from[i]) || pairs[2 * i] != bf16_narrow(from[i]) ||
                      pairs[2 * i + 1] != bf16_narrow(-from[i]))
            GP_TEST_FAIL("%g is %04x %04x on the host, %04x %04x on the device", (double)from[i],
                         f16_narrow(from[i]), bf16_narrow(from[i]), narrow[i], pairs[2 * i]);
    }
}
