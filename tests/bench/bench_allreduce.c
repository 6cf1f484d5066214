/* bench_allreduce.c: measure one all-reduce over shared memory.
 *
 *   bench_allreduce RANKS BYTES SECONDS [pin] [private]
 *
 * Forks RANKS processes; `pin` binds rank k to the k-th allowed core. Prints median, 95th
 * percentile and operation count as one JSON object. Rank 0 times each operation after a barrier.
 * Before each operation every rank rewrites the data, as a backward pass would; this time is not
 * included. */
#define GP_TEST_NO_MAIN

#include <sched.h>

#include "common/base/clock.h"
#include "tests/sort.h"
#include "tests/worker/comm/ranks.h"

enum { SAMPLES_MAX = 200000, WARM_UP = 20 };

static struct {
    size_t bytes;
    double seconds;
    bool pin, private;
} options;

static void pin_to(uint32_t nth)
{
    cpu_set_t allowed, one;

    sched_getaffinity(0, sizeof(allowed), &allowed);
    CPU_ZERO(&one);
    for (int core = 0; core < CPU_SETSIZE; core++) {
        if (CPU_ISSET(core, &allowed) && nth-- == 0)
            CPU_SET(core, &one);
    }
    sched_setaffinity(0, sizeof(one), &one);
}

static void report(int64_t *times, size_t count)
{
    sort_int64s(times, count);
    printf("{\"median_us\": %.3f, \"p95_us\": %.3f, \"count\": %zu}\n", (double)times[count / 2] * 1e-3,
           (double)times[count * 95 / 100] * 1e-3, count);
}

static bool is_last(size_t done, int64_t end_ns)
{
    return done == SAMPLES_MAX - 1 || (done > WARM_UP + 10 && gp_now_ns() >= end_ns);
}

/* Measure until rank 0 stops; the others read this decision from the first element of the sum. */
static void measure(rank_place *place)
{
    gp_comm *comm;
    int64_t *times = gp_calloc(SAMPLES_MAX, sizeof(int64_t)), end_ns;
    size_t count = options.bytes / sizeof(float), done = 0;
    void *range = NULL;
    float *data;
    gp_error err;

    if (options.pin)
        pin_to(place->slot);
    comm = join_all(place, options.bytes);
    REQUIRE(comm != NULL && times != NULL);
    REQUIRE_OK(gp_comm_arena_alloc(comm, options.bytes, &range, &err), err);
    data = options.private ? gp_aligned_calloc(64, options.bytes) : range;
    end_ns = gp_now_ns() + (int64_t)(options.seconds * 1e9);
    for (bool stop = false; !stop; done++) {
        int64_t began_ns;

        for (size_t i = 0; i < count; i++)
            data[i] = 1.0f;
        data[0] = place->slot == 0 && is_last(done, end_ns) ? 1000.0f : 1.0f;
        REQUIRE_OK(gp_comm_barrier(comm, &err), err);
        began_ns = gp_now_ns();
        if (options.private)
            REQUIRE_OK(gp_comm_all_reduce_private(comm, data, count, GP_F32, GP_COMM_SUM, &err), err);
        else
            REQUIRE_OK(gp_comm_all_reduce(comm, data, count, GP_F32, GP_COMM_SUM, &err), err);
        times[done] = gp_now_ns() - began_ns;
        REQUIRE(data[count - 1] == (float)place->slots);
        stop = data[0] >= 1000.0f;
    }
    if (place->slot == 0)
        report(times + WARM_UP, done - WARM_UP);
    if (options.private)
        gp_free(data);
    gp_free(times);
    gp_comm_free(comm);
}

int main(int count, char **arguments)
{
    long ranks = count > 3 ? strtol(arguments[1], NULL, 10) : 0;

    if (ranks < 1 || ranks > SLOT_MAX) {
        fprintf(stderr, "usage: %s RANKS BYTES SECONDS [pin] [private]; at most %d ranks\n", arguments[0],
                SLOT_MAX);
        return 2;
    }
    options.bytes = strtoull(arguments[2], NULL, 10) / 64 * 64;
    options.seconds = strtod(arguments[3], NULL);
    if (options.bytes == 0 || options.bytes > GP_COMM_ARENA_BYTES_MAX) {
        fprintf(stderr, "%s bytes: at least 64, at most %zu\n", arguments[2], GP_COMM_ARENA_BYTES_MAX);
        return 2;
    }
    for (int k = 4; k < count; k++) {
        options.pin |= strcmp(arguments[k], "pin") == 0;
        options.private |= strcmp(arguments[k], "private") == 0;
    }
    run_ranks((uint32_t)ranks, measure);
    return gp_test_failures != 0;
}
