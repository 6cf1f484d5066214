/* test_comm_messages.c: tagged messages between real processes. */
#include "tests/worker/comm/ranks.h"
#include "worker/comm/shm.h"

/* LARGE_BYTES is larger than forty pipe buffers. A queue of QUEUE_BYTES takes QUEUE_PARTS messages
 * of PART_BYTES. */
enum { LARGE_BYTES = 3000001, QUEUE_BYTES = 1 << 20, PART_BYTES = 256 << 10, QUEUE_PARTS = 3 };

static void fill_bytes(uint8_t *data, size_t bytes, uint32_t seed)
{
    for (size_t i = 0; i < bytes; i++)
        data[i] = (uint8_t)(i * 31 + i / 251 + seed);
}

static bool bytes_are(const uint8_t *data, size_t bytes, uint32_t seed)
{
    for (size_t i = 0; i < bytes; i++) {
        if (data[i] != (uint8_t)(i * 31 + i / 251 + seed))
            return false;
    }
    return true;
}

static void by_tag(rank_place *place)
{
    gp_comm *comm = join_all(place, 0);
    gp_comm_message message;
    int32_t got = 0;
    gp_error err;

    REQUIRE(comm != NULL);
    if (place->slot == 0) {
        for (int32_t k = 0; k < 10; k++)
            REQUIRE_OK(gp_comm_send(comm, 1, (uint32_t)k % 5, &k, sizeof(k), &err), err);
        REQUIRE_OK(gp_comm_send(comm, 1, 9, NULL, 0, &err), err);
    } else {
        /* the last message is empty */
        REQUIRE_OK(gp_comm_receive(comm, 0, 9, NULL, 0, &message, &err), err);
        CHECK_INT(0, message.bytes);
        for (uint32_t tag = 5; tag-- > 0;) {
            REQUIRE_OK(gp_comm_receive(comm, 0, tag, &got, sizeof(got), &message, &err), err);
            CHECK_INT(tag, got);
            CHECK_INT(sizeof(got), message.bytes);
        }
        REQUIRE_OK(gp_comm_receive(comm, GP_COMM_ANY, GP_COMM_ANY, &got, sizeof(got), &message, &err), err);
        CHECK_INT(5, got);
        CHECK_INT(0, message.rank);
        CHECK_INT(0, message.tag);
        REQUIRE_OK(gp_comm_receive(comm, 0, 3, &got, sizeof(got), &message, &err), err);
        CHECK_INT(8, got);
    }
    REQUIRE_OK(gp_comm_barrier(comm, &err), err);
    gp_comm_free(comm);
}

TEST(messages_are_received_by_tag_in_any_order)
{
    run_ranks(2, by_tag);
}

static void probing(rank_place *place)
{
    gp_comm *comm = join_all(place, 0);
    gp_comm_message message = { .bytes = 0 };
    bool found = true;
    uint8_t data[100];
    gp_error err;

    REQUIRE(comm != NULL);
    fill_bytes(data, sizeof(data), 1);
    REQUIRE_OK(gp_comm_probe(comm, GP_COMM_ANY, 4, &found, &message, &err), err);
    CHECK(!found);
    REQUIRE_OK(gp_comm_barrier(comm, &err), err);
    if (place->slot == 1) {
        REQUIRE_OK(gp_comm_send(comm, 0, 4, data, sizeof(data), &err), err);
    } else {
        while (!found)
            REQUIRE_OK(gp_comm_probe(comm, 1, GP_COMM_ANY, &found, &message, &err), err);
        CHECK_INT(100, message.bytes);
        CHECK_INT(4, message.tag);
        CHECK_STATUS(GP_ELIMIT, gp_comm_receive(comm, 1, 4, data, 99, &message, &err));
        CHECK_CONTAINS(err.message, "100 bytes");
        memset(data, 0, sizeof(data));
        REQUIRE_OK(gp_comm_receive(comm, 1, 4, data, 100, &message, &err), err);
        CHECK(bytes_are(data, 100, 1));
        CHECK_STATUS(GP_ESTATE, gp_comm_receive(comm, 0, 4, data, 100, &message, &err));
        CHECK_CONTAINS(err.message, "deadlock");
    }
    REQUIRE_OK(gp_comm_barrier(comm, &err), err);
    gp_comm_free(comm);
}

TEST(probe_reports_the_size_and_a_short_buffer_keeps_the_message)
{
    run_ranks(2, probing);
}

/* All ranks send before any rank receives, and each message exceeds all pipe buffers together. */
static void around(rank_place *place)
{
    gp_comm *comm = join_all(place, 0);
    uint32_t next = (place->slot + 1) % place->slots,
             previous = (place->slot + place->slots - 1) % place->slots;
    uint8_t *data = gp_malloc(LARGE_BYTES);
    gp_comm_message message;
    gp_error err;

    REQUIRE(comm != NULL && data != NULL);
    for (uint32_t round = 0; round < 3; round++) {
        fill_bytes(data, LARGE_BYTES - round, place->slot + round);
        REQUIRE_OK(gp_comm_send(comm, next, round, data, LARGE_BYTES - round, &err), err);
        REQUIRE_OK(gp_comm_receive(comm, previous, round, data, LARGE_BYTES, &message, &err), err);
        CHECK_INT(LARGE_BYTES - round, message.bytes);
        CHECK(bytes_are(data, message.bytes, previous + round));
    }
    REQUIRE_OK(gp_comm_barrier(comm, &err), err);
    gp_free(data);
    gp_comm_free(comm);
}

TEST(ring_of_large_messages_does_not_deadlock)
{
    run_ranks(3, around);
}

/* All ranks send more than the queues take before any rank receives. */
static void too_much(rank_place *place)
{
    gp_comm *comm = join_all(place, 0);
    uint8_t *data = gp_calloc(1, PART_BYTES);
    gp_status status = GP_OK;
    gp_error err;

    REQUIRE(comm != NULL && data != NULL);
    comm->queue_bytes_max = QUEUE_BYTES;
    for (uint32_t k = 0; k < 2 * QUEUE_PARTS && status == GP_OK; k++)
        status = gp_comm_send(comm, (place->slot + 1) % place->slots, k, data, PART_BYTES, &err);
    CHECK_STATUS(GP_ESTATE, status);
    CHECK_CONTAINS(err.message, "deadlock");
    CHECK_CONTAINS(err.message, "1048576 bytes");
    gp_free(data);
    gp_comm_free(comm);
}

TEST(ranks_that_send_more_than_the_queues_take_get_an_error)
{
    run_ranks(2, too_much);
    run_ranks(3, too_much);
}

static void send_parts(gp_comm *comm, uint32_t to, uint32_t count, const uint8_t *data)
{
    gp_error err;

    for (uint32_t k = 0; k < count; k++)
        REQUIRE_OK(gp_comm_send(comm, to, k, data, PART_BYTES, &err), err);
}

static void receive_parts(gp_comm *comm, uint32_t from, uint32_t count, uint8_t *data)
{
    gp_comm_message message;
    gp_error err;

    for (uint32_t k = 0; k < count; k++)
        REQUIRE_OK(gp_comm_receive(comm, from, k, data, PART_BYTES, &message, &err), err);
}

/* Rank 0 sends more than the queue of the next rank takes, while all ranks fill the queue of the
 * next one and receive afterwards. */
static void uneven(rank_place *place)
{
    gp_comm *comm = join_all(place, 0);
    uint32_t next = (place->slot + 1) % place->slots, from = (place->slot + place->slots - 1) % place->slots;
    uint8_t *data = gp_calloc(1, PART_BYTES);

    REQUIRE(comm != NULL && data != NULL);
    comm->queue_bytes_max = QUEUE_BYTES;
    for (uint32_t round = 0; round < 50; round++) {
        send_parts(comm, next, place->slot == 0 ? 4 * QUEUE_PARTS : QUEUE_PARTS, data);
        receive_parts(comm, from, place->slot == 1 ? 4 * QUEUE_PARTS : QUEUE_PARTS, data);
    }
    gp_free(data);
    gp_comm_free(comm);
}

TEST(one_full_queue_is_back_pressure_and_no_error)
{
    run_ranks(2, uneven);
    run_ranks(3, uneven);
}

/* All ranks send many small messages to one, which reads the slowest sender first. */
static void to_one(rank_place *place)
{
    enum { EACH = 2000 };
    gp_comm *comm = join_all(place, 0);
    gp_comm_message message;
    gp_error err;

    REQUIRE(comm != NULL);
    for (uint32_t k = 0; k < EACH && place->slot != 0; k++)
        REQUIRE_OK(gp_comm_send(comm, 0, k, &k, sizeof(k), &err), err);
    for (uint32_t rank = place->slots - 1; rank > 0 && place->slot == 0; rank--) {
        for (uint32_t k = 0, got = 0; k < EACH; k++) {
            REQUIRE_OK(gp_comm_receive(comm, rank, GP_COMM_ANY, &got, sizeof(got), &message, &err), err);
            REQUIRE(got == k && message.tag == k && message.rank == rank);
        }
    }
    REQUIRE_OK(gp_comm_barrier(comm, &err), err);
    gp_comm_free(comm);
}

TEST(messages_of_one_sender_come_in_the_order_sent)
{
    run_ranks(4, to_one);
}
