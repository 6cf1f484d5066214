/* test_comm.c: the results of collectives between real processes. */
#include <pthread.h>
#include <sched.h>

#include "tests/worker/comm/ranks.h"

enum { SMALL_ARENA = 1 << 20, LARGE = 1000000 };

/* ---- d2l 12.5 ---- */

static void ones_and_twos(rank_place *place)
{
    gp_comm *comm = join_all(place, SMALL_ARENA);
    float *data = NULL;
    void *range = NULL;
    gp_error err;

    REQUIRE(comm != NULL);
    REQUIRE_OK(gp_comm_arena_alloc(comm, 2 * sizeof(float), &range, &err), err);
    data = range;
    data[0] = data[1] = (float)(gp_comm_rank(comm) + 1);
    REQUIRE_OK(gp_comm_all_reduce(comm, data, 2, GP_F32, GP_COMM_SUM, &err), err);
    CHECK(data[0] == 3.0f && data[1] == 3.0f);
    gp_comm_free(comm);
}

TEST(allreduce_of_ones_and_twos_gives_threes_on_both_ranks)
{
    run_ranks(2, ones_and_twos);
}

/* ---- against a sequential combination in rank order ---- */

/* Return values whose sum depends on the order: mixed signs, magnitudes over ten powers of two. */
static uint32_t scramble(uint32_t x)
{
    x ^= x >> 16;
    x *= 0x7feb352du;
    x ^= x >> 15;
    x *= 0x846ca68bu;
    return x ^ x >> 16;
}

static double value_of(uint32_t rank, size_t i)
{
    uint32_t bits = scramble((uint32_t)i * 64 + rank + 1);

    return ((double)(int32_t)bits / 2147483648.0) * (double)(1 << (bits & 15));
}

static void store_value(void *buffer, size_t i, gp_dtype type, double value)
{
    if (type == GP_F32)
        ((float *)buffer)[i] = (float)value;
    else if (type == GP_F64)
        ((double *)buffer)[i] = value / 3.0;
    else if (type == GP_I32)
        ((int32_t *)buffer)[i] = (int32_t)(value * 65536.0);
    else
        ((int64_t *)buffer)[i] = (int64_t)(value * 1e12);
}

static void fill(void *buffer, size_t count, gp_dtype type, uint32_t rank)
{
    for (size_t i = 0; i < count; i++)
        store_value(buffer, i, type, value_of(rank, i));
}

#define COMBINE(T, U)                                                                                        \
    do {                                                                                                     \
        T a_ = ((T *)sum)[i], b_ = ((T *)next)[0];                                                           \
        ((T *)sum)[i] = how == GP_COMM_SUM ? (T)((U)a_ + (U)b_) : a_ > b_ ? a_ : b_;                         \
    } while (0)

/* Oracle: start with the value of rank 0, then add rank 1 and so on, one element at a time. */
static void expect_into(void *sum, size_t count, gp_dtype type, gp_comm_reduction how, uint32_t world)
{
    _Alignas(8) uint8_t next[8];

    fill(sum, count, type, 0);
    for (uint32_t rank = 1; rank < world; rank++) {
        for (size_t i = 0; i < count; i++) {
            store_value(next, 0, type, value_of(rank, i));
            if (type == GP_F32)
                COMBINE(float, float);
            else if (type == GP_F64)
                COMBINE(double, double);
            else if (type == GP_I32)
                COMBINE(int32_t, uint32_t);
            else
                COMBINE(int64_t, uint64_t);
        }
    }
}

typedef struct sum_case {
    size_t count;
    gp_dtype type;
    gp_comm_reduction how;
} sum_case;

static const sum_case sum_cases[] = {
    { 0, GP_F32, GP_COMM_SUM },     { 1, GP_F32, GP_COMM_SUM },      { 2, GP_F32, GP_COMM_SUM },
    { 3, GP_F64, GP_COMM_SUM },     { 17, GP_F32, GP_COMM_SUM },     { 1023, GP_F32, GP_COMM_SUM },
    { 1024, GP_F64, GP_COMM_SUM },  { 2048, GP_F32, GP_COMM_SUM },   { 2049, GP_F32, GP_COMM_SUM },
    { 1025, GP_F64, GP_COMM_SUM },  { 2049, GP_I32, GP_COMM_SUM },   { 5000, GP_I64, GP_COMM_SUM },
    { 777, GP_F32, GP_COMM_MAX },   { 4099, GP_F32, GP_COMM_MAX },   { 4099, GP_F64, GP_COMM_MAX },
    { 4099, GP_I32, GP_COMM_MAX },  { 4099, GP_I64, GP_COMM_MAX },   { 65537, GP_F32, GP_COMM_SUM },
    { 65536, GP_F64, GP_COMM_SUM }, { 131071, GP_F64, GP_COMM_SUM }, { LARGE, GP_F32, GP_COMM_SUM },
};

/* Run each variant of a case twice; every result must be bitwise identical to the expected one. */
static void check_sum_case(gp_comm *comm, const sum_case *c, uint8_t *arena, uint8_t *private,
                           uint8_t *expected)
{
    size_t bytes = c->count * gp_dtype_bytes(c->type);
    gp_error err;

    expect_into(expected, c->count, c->type, c->how, gp_comm_world(comm));
    for (int repeat = 0; repeat < 2; repeat++) {
        fill(arena, c->count, c->type, gp_comm_rank(comm));
        memcpy(private, arena, bytes);
        memset(arena + bytes, 0x5a, 64);
        REQUIRE_OK(gp_comm_all_reduce(comm, arena, c->count, c->type, c->how, &err), err);
        REQUIRE_OK(gp_comm_all_reduce_private(comm, private, c->count, c->type, c->how, &err), err);
        if (memcmp(arena, expected, bytes) != 0 || memcmp(private, expected, bytes) != 0)
            GP_TEST_FAIL("%zu x %s over %u ranks differs", c->count, gp_dtype_name(c->type),
                         gp_comm_world(comm));
        for (size_t k = 0; k < 64; k++) {
            if (arena[bytes + k] != 0x5a)
                GP_TEST_FAIL("%zu x %s: written past the end", c->count, gp_dtype_name(c->type));
        }

        /* The same as reduce-scatter plus all-gather. */
        fill(arena, c->count, c->type, gp_comm_rank(comm));
        REQUIRE_OK(gp_comm_reduce_scatter(comm, arena, c->count, c->type, c->how, &err), err);
        REQUIRE_OK(gp_comm_all_gather(comm, arena, c->count, c->type, &err), err);
        if (memcmp(arena, expected, bytes) != 0)
            GP_TEST_FAIL("%zu x %s over %u ranks with reduce-scatter and all-gather differs", c->count,
                         gp_dtype_name(c->type), gp_comm_world(comm));
    }
}

static void sum_all_cases(rank_place *place)
{
    size_t bytes_max = LARGE * sizeof(float) + 64;
    gp_comm *comm = join_all(place, bytes_max + 64);
    uint8_t *private = gp_malloc(bytes_max), *expected = gp_malloc(bytes_max);
    void *arena = NULL;
    gp_error err;

    REQUIRE(comm != NULL && private != NULL && expected != NULL);
    REQUIRE_OK(gp_comm_arena_alloc(comm, bytes_max, &arena, &err), err);
    for (size_t k = 0; k < sizeof(sum_cases) / sizeof(sum_cases[0]); k++)
        check_sum_case(comm, &sum_cases[k], arena, private, expected);
    gp_free(private);
    gp_free(expected);
    gp_comm_free(comm);
}

TEST(one_rank_keeps_the_values)
{
    run_ranks(1, sum_all_cases);
}

TEST(two_ranks_combine_in_rank_order_bit_for_bit)
{
    run_ranks(2, sum_all_cases);
}

TEST(three_ranks_combine_in_rank_order_bit_for_bit)
{
    run_ranks(3, sum_all_cases);
}

TEST(four_ranks_combine_in_rank_order_bit_for_bit)
{
    run_ranks(4, sum_all_cases);
}

TEST(eight_ranks_on_fewer_cores_combine_in_rank_order_bit_for_bit)
{
    run_ranks(8, sum_all_cases);
}

/* Check that an operation of any size leaves the buffers of the previous one intact. */
static void many_in_a_row(rank_place *place)
{
    static const size_t counts[] = { 4, 3000, 900, 70000, 1 };
    gp_comm *comm = join_all(place, SMALL_ARENA);
    uint32_t world = place->slots;
    void *range = NULL;
    gp_error err;
    float *data;

    REQUIRE(comm != NULL);
    REQUIRE_OK(gp_comm_arena_alloc(comm, 70000 * sizeof(float), &range, &err), err);
    data = range;
    for (uint32_t round = 0; round < 400; round++) {
        size_t count = counts[round % 5];
        float expected = (float)(world * round + world * (world - 1) / 2);

        for (size_t i = 0; i < count; i++)
            data[i] = (float)(round + place->slot);
        if (round % 3 == 0)
            REQUIRE_OK(gp_comm_all_reduce_private(comm, data, count, GP_F32, GP_COMM_SUM, &err), err);
        else
            REQUIRE_OK(gp_comm_all_reduce(comm, data, count, GP_F32, GP_COMM_SUM, &err), err);
        for (size_t i = 0; i < count; i++)
            REQUIRE(data[i] == expected);
    }
    CHECK_INT(400, gp_comm_get_stats(comm).operations);
    CHECK(gp_comm_get_stats(comm).work_ns > 0);
    gp_comm_free(comm);
}

TEST(operations_of_all_sizes_in_a_row_do_not_disturb_each_other)
{
    run_ranks(3, many_in_a_row);
}

/* ---- NaN ---- */

static void max_with_nan(rank_place *place)
{
    gp_comm *comm = join_all(place, SMALL_ARENA);
    double data[3] = { place->slot == 0 ? NAN : 1.0, place->slot == 1 ? NAN : 1.0, (double)place->slot };
    gp_error err;

    REQUIRE(comm != NULL);
    REQUIRE_OK(gp_comm_all_reduce_private(comm, data, 3, GP_F64, GP_COMM_MAX, &err), err);
    CHECK(isnan(data[0]) && isnan(data[1]) && data[2] == 1.0);
    gp_comm_free(comm);
}

TEST(nan_on_any_rank_propagates_through_a_maximum)
{
    run_ranks(2, max_with_nan);
}

/* ---- broadcast and barrier ---- */

static void broadcast_from_each(rank_place *place)
{
    static const size_t sizes[] = { 0, 1, 1001, 262144, 700001 };
    gp_comm *comm = join_all(place, SMALL_ARENA);
    uint8_t *private = gp_malloc(700001);
    void *range = NULL;
    gp_error err;

    REQUIRE(comm != NULL && private != NULL);
    REQUIRE_OK(gp_comm_arena_alloc(comm, 700001, &range, &err), err);
    for (uint32_t root = 0; root < place->slots; root++) {
        for (size_t k = 0; k < sizeof(sizes) / sizeof(sizes[0]); k++) {
            uint8_t mine = (uint8_t)(place->slot * 16 + k), theirs = (uint8_t)(root * 16 + k);

            memset(range, mine, sizes[k]);
            memset(private, mine, sizes[k]);
            REQUIRE_OK(gp_comm_broadcast(comm, range, sizes[k], root, &err), err);
            REQUIRE_OK(gp_comm_broadcast(comm, private, sizes[k], root, &err), err);
            for (size_t i = 0; i < sizes[k]; i++)
                REQUIRE(((uint8_t *)range)[i] == theirs && private[i] == theirs);
        }
    }
    gp_free(private);
    gp_comm_free(comm);
}

TEST(a_broadcast_reaches_all_ranks_from_any_root)
{
    run_ranks(3, broadcast_from_each);
}

static void meet(rank_place *place)
{
    gp_comm *comm = join_all(place, 0);
    gp_error err;

    REQUIRE(comm != NULL);
    for (uint32_t round = 1; round <= 200; round++) {
        atomic_store(&place->board->at[place->slot], round);
        REQUIRE_OK(gp_comm_barrier(comm, &err), err);
        for (uint32_t k = 0; k < place->slots; k++)
            REQUIRE(atomic_load(&place->board->at[k]) >= round);
        REQUIRE_OK(gp_comm_barrier(comm, &err), err);
    }
    gp_comm_free(comm);
}

TEST(barrier_holds_all_ranks_until_the_last_one_arrives)
{
    run_ranks(4, meet);
}

/* ---- sparse arenas ---- */

static size_t resident_kib(void)
{
    char line[256];
    size_t kib = 0;
    FILE *status = fopen("/proc/self/status", "r");

    while (status != NULL && fgets(line, sizeof(line), status) != NULL)
        if (sscanf(line, "RssShmem: %zu", &kib) == 1)
            break;
    if (status != NULL)
        fclose(status);
    return kib;
}

static void come_and_go(rank_place *place)
{
    enum { COUNT = 1 << 20 };
    size_t before;
    gp_error err;

    place->sparse = true;
    gp_comm *comm = join_all(place, (size_t)16 << 30);

    REQUIRE(comm != NULL);
    before = resident_kib();
    CHECK(before < 64 << 10);
    for (int turn = 0; turn < 3; turn++) {
        void *small = NULL, *range = NULL;
        float *values;

        REQUIRE_OK(gp_comm_arena_alloc(comm, 100, &small, &err), err);
        REQUIRE_OK(gp_comm_arena_alloc(comm, COUNT * sizeof(float), &range, &err), err);
        values = range;
        for (size_t i = 0; i < COUNT; i += 1000) {
            CHECK_NEAR(0, values[i], 0);
            values[i] = (float)(gp_comm_rank(comm) + 1);
        }
        REQUIRE_OK(gp_comm_all_reduce(comm, values, COUNT, GP_F32, GP_COMM_SUM, &err), err);
        CHECK_NEAR(3, values[COUNT / 1000 * 1000], 0);
        CHECK(resident_kib() >= before + (4 << 10));
        gp_comm_arena_reset(comm);
    }
    REQUIRE_OK(gp_comm_barrier(comm, &err), err);
    CHECK(resident_kib() < before + 1024);
    gp_comm_free(comm);
}

TEST(sparse_arena_has_memory_only_for_allocated_ranges)
{
    run_ranks(2, come_and_go);
}

/* ---- ranges of other ranks ---- */

static void reach_over(rank_place *place)
{
    enum { COUNT = 1 << 20, PART = COUNT / 3 };
    uint32_t *ours, *common;
    void *own = NULL, *range = NULL;
    size_t before;
    gp_error err;

    place->sparse = true;
    gp_comm *comm = join_all(place, (size_t)1 << 30);

    REQUIRE(comm != NULL);
    uint32_t rank = gp_comm_rank(comm);

    REQUIRE_OK(gp_comm_arena_alloc(comm, 100, &own, &err), err);
    before = resident_kib();
    CHECK_STATUS(GP_EINVAL, gp_comm_arena_alloc_of(comm, 3, 64, &range, &err));
    CHECK_CONTAINS(err.message, "rank 3");
    REQUIRE_OK(gp_comm_arena_alloc_of(comm, 1, COUNT * sizeof(*common), &range, &err), err);
    CHECK((resident_kib() >= before + (4 << 10)) == (rank == 1)); /* only one rank has the memory */
    ours = own;
    common = range;
    ours[0] = rank + 10;
    REQUIRE_OK(gp_comm_barrier(comm, &err), err);
    for (uint32_t k = 0; k < 3; k++)
        CHECK_INT(k + 10, *(const uint32_t *)gp_comm_arena_copy(comm, k, own));
    CHECK(gp_comm_arena_copy(comm, rank, own) == own);
    for (size_t i = 0; i < PART; i++)
        common[rank * PART + i] = rank + 1;
    REQUIRE_OK(gp_comm_barrier(comm, &err), err);
    for (size_t i = 0; i < 3 * PART; i += 1001)
        CHECK_INT(i / PART + 1, common[i]);
    REQUIRE_OK(gp_comm_arena_alloc(comm, 100, &range, &err), err); /* allocations stay symmetric */
    CHECK(range != own && (uint8_t *)range - (uint8_t *)own == 128 + COUNT * (ptrdiff_t)sizeof(*common));
    gp_comm_free(comm);
}

TEST(a_range_of_one_rank_is_memory_of_all)
{
    run_ranks(3, reach_over);
}

/* ---- misuse ---- */

static void call_wrongly(rank_place *place)
{
    gp_comm *comm = join_all(place, 4096);
    float outside[4] = { 0 };
    void *range = NULL, *more = NULL;
    gp_error err;

    REQUIRE(comm != NULL);
    REQUIRE_OK(gp_comm_arena_alloc(comm, 4000, &range, &err), err);
    CHECK_INT(0, (uintptr_t)range % 64);
    CHECK_STATUS(GP_ELIMIT, gp_comm_arena_alloc(comm, 100, &more, &err));
    CHECK_CONTAINS(err.message, "arena_bytes");
    CHECK_STATUS(GP_EINVAL, gp_comm_all_reduce(comm, outside, 4, GP_F32, GP_COMM_SUM, &err));
    CHECK_CONTAINS(err.message, "gp_comm_arena_alloc");
    CHECK_STATUS(GP_EINVAL, gp_comm_all_reduce(comm, range, 1025, GP_F32, GP_COMM_SUM, &err));
    CHECK_STATUS(GP_EINVAL, gp_comm_all_reduce(comm, range, SIZE_MAX / 2, GP_F32, GP_COMM_SUM, &err));
    CHECK_STATUS(GP_EINVAL, gp_comm_all_reduce(comm, range, 4, GP_BF16, GP_COMM_SUM, &err));
    CHECK_STATUS(GP_EINVAL, gp_comm_all_reduce(comm, range, 4, GP_F32, (gp_comm_reduction)9, &err));
    CHECK_STATUS(GP_EINVAL, gp_comm_broadcast(comm, range, 4, 2, &err));
    CHECK_STATUS(GP_EINVAL, gp_comm_send(comm, 2, 1, outside, 4, &err));
    CHECK_STATUS(GP_EINVAL, gp_comm_send(comm, 1, GP_COMM_ANY, outside, 4, &err));
    CHECK_STATUS(GP_ELIMIT, gp_comm_send(comm, 1, 1, outside, GP_COMM_MESSAGE_BYTES_MAX + 1, &err));
    gp_comm_arena_reset(comm);
    CHECK_STATUS(GP_OK, gp_comm_arena_alloc(comm, 4096, &more, &err));
    CHECK(more == range);
    gp_comm_free(comm);
}

TEST(wrong_arguments_are_refused_with_the_cause)
{
    run_ranks(2, call_wrongly);
}

static void call_differently(rank_place *place)
{
    gp_comm *comm = join_all(place, 65536);
    void *range = NULL;
    gp_status status;
    gp_error err;

    REQUIRE(comm != NULL);
    REQUIRE_OK(gp_comm_arena_alloc(comm, 65536, &range, &err), err);
    status = gp_comm_all_reduce(comm, range, place->slot == 0 ? 8000 : 8001, GP_F32, GP_COMM_SUM, &err);
    CHECK_STATUS(GP_ESTATE, status);
    CHECK_CONTAINS(err.message, "same order");
    gp_comm_free(comm);
}

TEST(different_sizes_across_ranks_are_reported)
{
    run_ranks(2, call_differently);
}

TEST(without_a_group_every_operation_is_refused)
{
    gp_comm *comm = NULL;
    gp_comm_message message;
    void *range = NULL;
    float data = 1;
    bool found;
    gp_error err;

    REQUIRE_OK(gp_comm_new(&comm, &err), err);
    CHECK_INT(0, gp_comm_world(comm));
    CHECK_STATUS(GP_ESTATE, gp_comm_all_reduce_private(comm, &data, 1, GP_F32, GP_COMM_SUM, &err));
    CHECK_STATUS(GP_ESTATE, gp_comm_all_reduce(comm, &data, 1, GP_F32, GP_COMM_SUM, &err));
    CHECK_STATUS(GP_ESTATE, gp_comm_arena_alloc_of(comm, 0, 0, &range, &err));
    CHECK_STATUS(GP_ESTATE, gp_comm_barrier(comm, &err));
    CHECK_STATUS(GP_ESTATE, gp_comm_send(comm, 0, 1, &data, 4, &err));
    CHECK_STATUS(GP_ESTATE, gp_comm_receive(comm, 0, 1, &data, 4, &message, &err));
    CHECK_STATUS(GP_ESTATE, gp_comm_probe(comm, 0, 1, &found, &message, &err));
    gp_comm_free(comm);
    gp_comm_free(NULL);
}

/* ---- memory ---- */

static gp_status one_alone(gp_error *err)
{
    gp_comm_member self = { .index = 1, .pid = getpid() };
    gp_comm_rendezvous rendezvous = { .generation = 1, .world = 1, .members = &self, .arena_bytes = 4096 };
    gp_comm_message message;
    gp_comm *comm;
    char text[8];
    gp_status status = gp_comm_new(&comm, err);

    if (status != GP_OK)
        return status;
    status = gp_comm_form(comm, &rendezvous, err);
    if (status == GP_OK)
        status = gp_comm_send(comm, 0, 5, "hello", 6, err);
    if (status == GP_OK)
        status = gp_comm_receive(comm, 0, 5, text, sizeof(text), &message, err);
    if (status == GP_OK)
        CHECK_TEXT("hello", text);
    gp_comm_free(comm);
    return status;
}

TEST(failed_allocation_leaks_nothing)
{
    gp_error err;

    CHECK_EVERY_ALLOCATION(one_alone(&err), (void)0);
}

/* ---- threads as ranks, for the thread sanitizer ---- */

enum { THREADS = 3 };

static void *run_thread(void *argument)
{
    rank_place *place = argument;

    sum_all_cases(place);
    many_in_a_row(place);
    return NULL;
}

TEST(threads_of_one_process_can_be_the_ranks)
{
    rank_family family;
    rank_place paths[THREADS];
    pthread_t threads[THREADS];
    gp_comm_member self = { .pid = getpid() };

    CHECK_STATUS(GP_OK, gp_process_start_time(getpid(), &self.start_time, NULL));
    family_open(&family, THREADS);
    for (uint32_t slot = 0; slot < THREADS; slot++) {
        self.index = slot + 1;
        family.board->members[slot] = self;
    }
    for (uint32_t slot = 0; slot < THREADS; slot++) {
        place_init(&paths[slot], &family, slot);
        REQUIRE(pthread_create(&threads[slot], NULL, run_thread, &paths[slot]) == 0);
    }
    for (uint32_t slot = 0; slot < THREADS; slot++) {
        pthread_join(threads[slot], NULL);
        place_deinit(&paths[slot]);
    }
    family_close(&family);
}
