/* test_task_comm.c: communication functions in task.h between forked ranks, without a daemon. */
#include "tests/worker/comm/ranks.h"
#include "worker/task/task_block.h"

enum { LARGE = 700000, TURNS_BYTES = 3 << 20 };

/* A task that acts as a rank, as task_block.c creates it. */
typedef struct server {
    gp_task task;
    gp_task_group group;
} server;

static bool server_begin(server *here, rank_place *place)
{
    memset(here, 0, sizeof(*here));
    here->group.comm = join_all(place, 0);
    here->group.rank = place->slot;
    here->group.world = place->slots;
    here->task.index = place->slot + 1;
    here->task.size = place->slots;
    here->task.group = &here->group;
    if (here->group.comm != NULL)
        gp_comm_enter(here->group.comm, 1);
    return here->group.comm != NULL;
}

static void server_end(server *here)
{
    gp_error err;

    CHECK_STATUS(GP_OK, gp_task_barrier(&here->task, &err));
    gp_group_release(&here->group);
    gp_comm_free(here->group.comm);
    gp_free(here->group.received);
}

/* ---- messages ---- */

static void talking(rank_place *place)
{
    unsigned char *large = malloc(LARGE);
    gp_task_message message;
    bool found = true;
    gp_error err;
    server here;

    REQUIRE(server_begin(&here, place) && large != NULL);
    uint32_t index = here.task.index, size = here.task.size, next = index % size + 1;
    uint32_t before = index == 1 ? size : index - 1;

    memset(large, (int)index, LARGE);
    REQUIRE_OK(gp_task_send(&here.task, next, 5, &index, sizeof(index), &err), err);
    REQUIRE_OK(gp_task_send(&here.task, next, 6, large, LARGE, &err), err);
    REQUIRE_OK(gp_task_send(&here.task, index, 0, "self", 4, &err), err);
    CHECK_INT(3, here.group.balance);

    /* Receive the large message first; the memory remains valid until the next receive. */
    REQUIRE_OK(gp_task_receive(&here.task, before, 6, &message, &err), err);
    CHECK_INT(LARGE, message.bytes);
    CHECK_INT(before, message.from);
    CHECK_INT(before, ((const unsigned char *)message.data)[LARGE - 1]);
    REQUIRE_OK(gp_task_probe(&here.task, before, 5, &found, &message, &err), err);
    CHECK(found);
    CHECK_INT(sizeof(index), message.bytes);
    REQUIRE_OK(gp_task_receive(&here.task, GP_TASK_ANY, 5, &message, &err), err);
    CHECK_INT(before, *(const uint32_t *)message.data);
    REQUIRE_OK(gp_task_receive(&here.task, index, GP_TASK_ANY_TAG, &message, &err), err);
    CHECK_INT(0, message.tag);
    CHECK_INT(0, here.group.balance);
    REQUIRE_OK(gp_task_probe(&here.task, GP_TASK_ANY, GP_TASK_ANY_TAG, &found, NULL, &err), err);
    CHECK(!found);
    free(large);
    server_end(&here);
}

TEST(ranks_send_to_each_other_and_receive_by_index_and_tag)
{
    run_ranks(3, talking);
    run_ranks(2, talking);
}

/* ---- collectives ---- */

/* Composition of affine maps: associative but not commutative. */
typedef struct affine {
    uint32_t factor, offset;
    unsigned char filler[12];
} affine;

static void compose(void *into, const void *from, size_t bytes, void *context)
{
    affine *a = into;
    const affine *b = from;

    *(int *)context += 1;
    for (size_t k = 0; k < bytes / sizeof(*a); k++) {
        a[k].offset = a[k].offset * b[k].factor + b[k].offset;
        a[k].factor *= b[k].factor;
    }
}

static void composing(rank_place *place, size_t count)
{
    affine *maps = calloc(count, sizeof(*maps)), expected = { .factor = 1 };
    int combined = 0, ignored = 0;
    gp_error err;
    server here;

    REQUIRE(server_begin(&here, place) && maps != NULL);
    for (uint32_t k = 0; k < place->slots; k++) {
        affine map = { .factor = 3 + 2 * k, .offset = 7 * k + 1 };

        compose(&expected, &map, sizeof(map), &ignored);
        for (size_t i = 0; i < count && k == place->slot; i++)
            maps[i] = map;
    }
    REQUIRE_OK(gp_task_all_reduce(&here.task, maps, count * sizeof(*maps), compose, &combined, &err), err);
    CHECK_INT(place->slots - 1, combined);
    for (size_t i = 0; i < count; i += count < 100 ? 1 : 1001) {
        CHECK_INT(expected.factor, maps[i].factor);
        CHECK_INT(expected.offset, maps[i].offset);
    }
    free(maps);
    server_end(&here);
}

static void composing_few(rank_place *place)
{
    composing(place, 3);
}

static void composing_many(rank_place *place)
{
    composing(place, TURNS_BYTES / sizeof(affine));
}

TEST(reduction_applies_any_associative_function_in_index_order)
{
    run_ranks(1, composing_few);
    run_ranks(3, composing_few);
    run_ranks(4, composing_few);
    run_ranks(3, composing_many);
}

static void collecting(rank_place *place)
{
    double sums[3], low = 10.0 - place->slot, high = place->slot == 1 ? NAN : 1.0;
    int64_t least = -(int64_t)place->slot, product = 0;
    size_t parts[SLOT_MAX + 1], bytes;
    char text[SLOT_MAX + 1] = "";
    const void *all;
    gp_error err;
    server here;

    REQUIRE(server_begin(&here, place));
    for (int k = 0; k < 3; k++)
        sums[k] = 0.1 * (place->slot + 1) + k;
    REQUIRE_OK(gp_task_all_reduce(&here.task, sums, sizeof(sums), gp_combine_sum_f64, NULL, &err), err);
    CHECK(sums[0] == 0.1 + 0.2 + 0.1 * 3); /* summed in this order */
    REQUIRE_OK(gp_task_all_reduce(&here.task, &low, sizeof(low), gp_combine_min_f64, NULL, &err), err);
    CHECK_NEAR(11.0 - place->slots, low, 0);
    REQUIRE_OK(gp_task_all_reduce(&here.task, &high, sizeof(high), gp_combine_max_f64, NULL, &err), err);
    CHECK(isnan(high));
    REQUIRE_OK(gp_task_all_reduce(&here.task, &least, sizeof(least), gp_combine_min_i64, NULL, &err), err);
    CHECK_INT(1 - (int)place->slots, least);
    CHECK_STATUS(GP_EINVAL, gp_task_all_reduce(&here.task, &product, 7, gp_combine_sum_i64, NULL, &err));

    memset(text, 'a' + (int)place->slot, place->slot);
    REQUIRE_OK(gp_task_all_gather(&here.task, text, place->slot, &all, &bytes, parts, &err), err);
    CHECK_INT(3, bytes);
    CHECK(memcmp(all, "bcc", 3) == 0);
    CHECK_INT(1, parts[2]);
    CHECK_INT(3, parts[3]);

    memset(text, place->slot == 1 ? 'x' : '-', 4);
    REQUIRE_OK(gp_task_broadcast(&here.task, 2, text, 4, &err), err);
    CHECK(memcmp(text, "xxxx", 4) == 0);
    CHECK(memcmp(all, "bcc", 3) == 0); /* valid until the task ends */
    server_end(&here);
}

TEST(sums_minima_parts_and_broadcasts_reach_all_ranks)
{
    run_ranks(3, collecting);
}

/* ---- errors ---- */

static void mistaken(rank_place *place)
{
    gp_task_message message;
    gp_error err;
    server here;

    REQUIRE(server_begin(&here, place));
    CHECK_STATUS(GP_EINVAL, gp_task_send(&here.task, 0, 1, "", 0, &err));
    CHECK_STATUS(GP_EINVAL, gp_task_send(&here.task, 3, 1, "", 0, &err));
    CHECK_CONTAINS(err.message, "between 1 and 2");
    CHECK_STATUS(GP_EINVAL, gp_task_send(&here.task, 1, GP_TASK_ANY_TAG, "", 0, &err));
    CHECK_STATUS(GP_EINVAL, gp_task_receive(&here.task, 9, 1, &message, &err));
    CHECK_STATUS(GP_EINVAL, gp_task_broadcast(&here.task, 0, NULL, 0, &err));
    CHECK(!here.group.broken);
    server_end(&here);
}

TEST(invalid_index_is_an_error_without_side_effects)
{
    run_ranks(2, mistaken);
}

static void mixed_up(rank_place *place)
{
    uint64_t number = 1;
    gp_error err;
    server here;

    REQUIRE(server_begin(&here, place));
    if (place->slot == 0)
        CHECK_STATUS(GP_ESTATE, gp_task_barrier(&here.task, &err));
    else
        CHECK_STATUS(GP_ESTATE, gp_task_broadcast(&here.task, 1, &number, sizeof(number), &err));
    CHECK_CONTAINS(err.message, "another collective");
    CHECK(here.group.broken);
    gp_comm_free(here.group.comm);
}

TEST(different_operations_across_ranks_are_reported)
{
    run_ranks(2, mixed_up);
}

TEST(communication_outside_a_block_is_refused)
{
    gp_task task = { .index = 0 };
    gp_error err;

    CHECK_STATUS(GP_ESTATE, gp_task_barrier(&task, &err));
    CHECK_CONTAINS(err.message, "spmd block");
}
