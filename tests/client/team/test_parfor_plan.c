/* test_parfor_plan.c: the chunk plan for a parfor on simulated workers with simulated time. */
#include "client/team/parfor_plan.h"

#include "proto/task/link.h"
#include "tests/gp_test.h"

enum { WORKERS_MAX = 8, ITERATIONS_MAX = 200000 };

/* ---- workers that run their chunks in order ---- */

typedef struct work {
    parfor_piece piece;
    double ready; /* completion time, ns */
    double took;
    uint32_t done;
    bool out;
} work;

typedef struct world {
    parfor_plan plan;
    double (*cost)(uint64_t position); /* ns */
    double overhead;                   /* ns per chunk */
    double now, free[WORKERS_MAX];     /* time at which each worker is idle */
    work works[WORKERS_MAX * PARFOR_DEPTH];
    unsigned char seen[ITERATIONS_MAX];
    uint32_t chunks, sizes_max;
} world;

static uint64_t random_state = 7;

static uint64_t random_next(void)
{
    uint64_t x = random_state++;

    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

static double cost_none(uint64_t position)
{
    (void)position;
    return 2;
}

static double cost_even(uint64_t position)
{
    (void)position;
    return 100e3;
}

static double cost_long(uint64_t position)
{
    (void)position;
    return 1e6;
}

/* Short iterations first, so that chunks have grown when the long ones arrive. */
static double cost_step(uint64_t position)
{
    return position < 50000 ? 10 : 500e3;
}

static double cost_wild(uint64_t position)
{
    uint64_t x = position * 0x9e3779b97f4a7c15u;

    return (double)(x >> 54) * (x >> 32 & 1023 ? 10 : 3000);
}

static double ideal(const world *w, uint64_t count)
{
    double sum = 0;

    for (uint64_t k = 0; k < count; k++)
        sum += w->cost(k);
    return sum / w->plan.workers;
}

static void world_give(world *w, work *slot, uint32_t worker)
{
    double budget = (double)parfor_plan_budget(&w->plan);

    *slot = (work){ .piece = slot->piece, .out = true };
    while (slot->done < slot->piece.count &&
           (budget == 0 || slot->took < budget || slot->done % w->plan.block != 0)) {
        slot->took += w->cost(slot->piece.first + slot->done);
        CHECK_INT(0, w->seen[slot->piece.first + slot->done]);
        w->seen[slot->piece.first + slot->done]++;
        slot->done++;
    }
    if (w->free[worker] < w->now)
        w->free[worker] = w->now;
    w->free[worker] += slot->took + w->overhead;
    slot->ready = w->free[worker];
    w->chunks++;
    if (slot->piece.count > w->sizes_max)
        w->sizes_max = slot->piece.count;
    CHECK_INT(0, slot->piece.first % w->plan.block);
}

static uint32_t world_idlest(const world *w)
{
    uint32_t best = 0;

    for (uint32_t k = 1; k < w->plan.workers; k++)
        if (w->free[k] < w->free[best])
            best = k;
    return best;
}

/* Keep all workers supplied and complete the earliest chunk. Return false if no chunk is in
 * flight. */
static bool world_step(world *w, bool ordered)
{
    work *first = NULL;
    uint64_t lowest;

    for (uint32_t k = 0; k < w->plan.workers * PARFOR_DEPTH; k++)
        if (!w->works[k].out && parfor_plan_take(&w->plan, UINT32_MAX, &w->works[k].piece))
            world_give(w, &w->works[k], world_idlest(w));
    for (uint32_t k = 0; k < w->plan.workers * PARFOR_DEPTH; k++)
        if (w->works[k].out && (first == NULL || w->works[k].ready < first->ready))
            first = &w->works[k];
    if (first == NULL)
        return false;
    w->now = first->ready;
    first->out = false;
    parfor_plan_end(&w->plan, &first->piece, first->done, (int64_t)first->took);
    first->piece.first += first->done;
    first->piece.count -= first->done;
    CHECK_STATUS(GP_OK, parfor_plan_return(&w->plan, first->piece, NULL));
    lowest = w->plan.next;
    for (uint32_t k = 0; k < w->plan.workers * PARFOR_DEPTH; k++)
        if (w->works[k].out && w->works[k].piece.first < lowest)
            lowest = w->works[k].piece.first;
    if (parfor_plan_has_rest(&w->plan) && w->plan.rests[0].first < lowest)
        lowest = w->plan.rests[0].first;
    w->plan.settled = ordered ? lowest : w->plan.next - w->plan.out;
    return true;
}

static world *world_new(uint64_t total, uint32_t workers, double (*cost)(uint64_t))
{
    world *w = calloc(1, sizeof(*w));

    if (w == NULL)
        abort();
    w->plan = (parfor_plan){ .total = total, .workers = workers, .block = 1 };
    w->cost = cost;
    w->overhead = 2000;
    return w;
}

static void world_free(world *w)
{
    parfor_plan_deinit(&w->plan);
    free(w);
}

static void world_run(world *w, uint64_t count)
{
    while (world_step(w, true))
        ;
    CHECK(parfor_plan_ended(&w->plan));
    for (uint64_t k = 0; k < count; k++)
        if (w->seen[k] != 1) {
            GP_TEST_FAIL("iteration %llu was assigned %d times", (unsigned long long)k, w->seen[k]);
            return;
        }
}

TEST(every_iteration_is_assigned_once_for_every_kind_of_loop)
{
    double (*const costs[])(uint64_t) = { cost_none, cost_even, cost_step, cost_wild };

    for (int round = 0; round < 60; round++) {
        uint64_t total = 1 + random_next() % (round < 30 ? 100 : 60000);
        world *w = world_new(total, 1 + (uint32_t)(random_next() % WORKERS_MAX), costs[round % 4]);

        w->plan.block = 1u << random_next() % 6;
        if (round % 3 == 0)
            w->plan.max_in_flight = 1 + random_next() % 500;
        if (round % 5 == 0)
            w->plan.chunk = 1 + (uint32_t)(random_next() % 90);
        world_run(w, total);
        world_free(w);
    }
}

TEST(tiny_iterations_are_sent_in_large_chunks)
{
    world *w = world_new(ITERATIONS_MAX, 2, cost_none);

    world_run(w, ITERATIONS_MAX);
    CHECK(w->sizes_max > 20000);
    CHECK(w->chunks < 200);
    world_free(w);
}

TEST(long_iterations_are_sent_alone)
{
    world *w = world_new(1000, 2, cost_long);

    world_run(w, 1000);
    CHECK_INT(1, w->sizes_max);
    CHECK(w->now <= 1.01 * ideal(w, 1000));
    world_free(w);
}

TEST(workers_finish_at_the_same_time)
{
    world *w = world_new(10000, 4, cost_even);

    world_run(w, 10000);
    CHECK(w->now <= 1.03 * ideal(w, 10000) + 200e3);
    world_free(w);
    w = world_new(100000, 4, cost_wild);
    world_run(w, 100000);
    CHECK(w->now <= 1.10 * ideal(w, 100000) + 1e6);
    world_free(w);
}

TEST(chunk_that_takes_longer_than_expected_is_split)
{
    world *w = world_new(50400, 4, cost_step);

    world_run(w, 50400);

    /* 400 long iterations: a single worker needs four times as long */
    CHECK(w->now <= 1.15 * ideal(w, 50400) + 2e6);
    world_free(w);
}

TEST(window_limits_iterations_in_flight)
{
    for (int ordered = 0; ordered < 2; ordered++) {
        world *w = world_new(20000, 3, cost_none);

        w->plan.max_in_flight = 100;
        while (world_step(w, ordered != 0))
            CHECK(w->plan.next - w->plan.settled <= 100);
        CHECK(parfor_plan_ended(&w->plan));
        CHECK(w->sizes_max <= 100);
        world_free(w);
    }
}

TEST(window_smaller_than_a_group_makes_progress)
{
    world *w = world_new(1000, 3, cost_none);

    w->plan.max_in_flight = 3;
    w->plan.block = 16;
    world_run(w, 1000);
    CHECK_INT(16, w->sizes_max);
    world_free(w);
}

TEST(data_of_a_chunk_fits_into_a_record)
{
    world *w = world_new(50000, 2, cost_none);

    w->plan.bytes = 100;
    world_run(w, 50000);
    CHECK(w->sizes_max * 100 <= GP_LINK_INLINE_MAX);
    CHECK(w->sizes_max * 100 > GP_LINK_INLINE_MAX / 2);
    w->plan = (parfor_plan){ .total = 10, .workers = 2, .block = 1, .bytes = 1 << 20 };
    CHECK_INT(1, parfor_plan_size(&w->plan));
    world_free(w);
}

TEST(chunk_of_a_chosen_size_has_at_most_the_bytes_that_a_worker_accepts)
{
    parfor_plan plan = { .total = 1 << 20, .workers = 2, .block = 1, .chunk = 1 << 16, .bytes = 1 << 20 };

    CHECK_INT(PARFOR_CHUNK_BYTES_MAX >> 20, parfor_plan_size(&plan));
    plan.block = 48;
    CHECK_INT(PARFOR_CHUNK_BYTES_MAX / (48 << 20) * 48, parfor_plan_size(&plan));
    plan.bytes = PARFOR_CHUNK_BYTES_MAX;
    plan.block = 1;
    CHECK_INT(1, parfor_plan_size(&plan));
}

TEST(source_ends_the_loop_when_exhausted)
{
    parfor_plan plan = { .total = UINT64_MAX, .workers = 2, .block = 4, .max_in_flight = 64 };
    parfor_piece piece;
    uint64_t first = 0;

    while (first < 30 && parfor_plan_size(&plan) > 0) {
        REQUIRE(parfor_plan_take(&plan, first == 28 ? 2 : UINT32_MAX, &piece));
        CHECK_INT(first, piece.first);
        first += piece.count;
        parfor_plan_end(&plan, &piece, piece.count, 1000);
        plan.settled = first;
    }
    parfor_plan_close(&plan);
    CHECK_INT(first, plan.total);
    CHECK(parfor_plan_ended(&plan));
    CHECK(!parfor_plan_take(&plan, UINT32_MAX, &piece));
}

TEST(returned_iterations_come_first_and_keep_their_starts)
{
    parfor_plan plan = { .total = 100, .workers = 2, .block = 1, .chunk = 10 };
    parfor_piece piece, taken;

    REQUIRE(parfor_plan_take(&plan, UINT32_MAX, &piece));
    parfor_plan_end(&plan, &piece, 4, 1000);
    CHECK_STATUS(GP_OK, parfor_plan_return(&plan, (parfor_piece){ .first = 5, .count = 5 }, NULL));
    CHECK_STATUS(GP_OK, parfor_plan_return(&plan, (parfor_piece){ 4, 1, 2, 1 }, NULL));
    CHECK_STATUS(GP_OK, parfor_plan_return(&plan, (parfor_piece){ .first = 10 }, NULL)); /* empty */
    REQUIRE(parfor_plan_take(&plan, UINT32_MAX, &taken));
    CHECK_INT(4, taken.first);
    CHECK_INT(1, taken.count);
    CHECK_INT(2, taken.attempts);
    CHECK_INT(1, taken.retries);
    REQUIRE(parfor_plan_take(&plan, UINT32_MAX, &taken));
    CHECK_INT(5, taken.first);
    CHECK_INT(5, taken.count);
    CHECK_INT(0, taken.attempts);
    REQUIRE(parfor_plan_take(&plan, UINT32_MAX, &taken));
    CHECK_INT(10, taken.first);
    parfor_plan_deinit(&plan);
}
