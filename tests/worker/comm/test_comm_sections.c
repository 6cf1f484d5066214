/* test_comm_sections.c: waiting for a rank that has left the section; gathering parts of any
 * length. */
#include "tests/worker/comm/ranks.h"

enum { PART_MAX = 600000, ROUNDS = 300, LARGE_BYTES = 1 << 20 };

static size_t part_bytes(uint32_t rank, uint32_t round)
{
    static const size_t sizes[] = { 0, 1, 8, 4096, PART_MAX, 262144 };

    return sizes[(rank + round) % 6];
}

static void gathering(rank_place *place)
{
    gp_comm *comm = join_all(place, 0);
    uint8_t *all = malloc((size_t)PART_MAX * place->slots);
    gp_error err;

    REQUIRE(comm != NULL && all != NULL);
    for (uint32_t round = 0; round < 12; round++) {
        size_t parts[SLOT_MAX + 1] = { 0 }, wrong = 0;

        for (uint32_t k = 0; k < place->slots; k++)
            parts[k + 1] = parts[k] + part_bytes(k, round);
        memset(all, 0xee, parts[place->slots]);
        for (size_t at = parts[place->slot]; at < parts[place->slot + 1]; at++)
            all[at] = (uint8_t)(place->slot * 50 + at % 47 + round);
        REQUIRE_OK(gp_comm_gather_private(comm, all, parts, &err), err);
        for (uint32_t k = 0; k < place->slots; k++)
            for (size_t at = parts[k]; at < parts[k + 1]; at++)
                wrong += all[at] != (uint8_t)(k * 50 + at % 47 + round);
        CHECK_INT(0, wrong);
    }
    free(all);
    gp_comm_free(comm);
}

TEST(parts_of_any_length_reach_all_ranks)
{
    run_ranks(3, gathering);
    run_ranks(1, gathering);
}

/* Wait in one of several ways for slot 0, which left the section after one barrier. */
static gp_status wait_in_vain(gp_comm *comm, uint32_t way, gp_error *err)
{
    static uint8_t large[LARGE_BYTES];
    gp_comm_message message;

    switch (way) {
    case 0:
        return gp_comm_barrier(comm, err);
    case 1:
        return gp_comm_receive(comm, 0, 7, large, sizeof(large), &message, err);
    case 2:
        return gp_comm_send(comm, 0, 7, large, sizeof(large), err);
    default:
        return gp_comm_receive(comm, GP_COMM_ANY, GP_COMM_ANY, large, sizeof(large), &message, err);
    }
}

static void left_alone(rank_place *place)
{
    gp_comm *comm;
    gp_error err;

    CHECK_STATUS(GP_OK, gp_comm_new(&comm, &err));
    for (uint32_t way = 0; way < 4; way++) {
        REQUIRE_OK(form(place, comm, way + 1, in_order, place->slots, 0, &err), err);
        gp_comm_enter(comm, way + 5);
        REQUIRE_OK(gp_comm_barrier(comm, &err), err);
        if (place->slot != 0) {
            err.message[0] = '\0';
            CHECK_STATUS(GP_ESTATE, wait_in_vain(comm, way, &err));
            CHECK_CONTAINS(err.message, "worker 1 ");
            CHECK_CONTAINS(err.message, "but worker 2 ");
        }
        gp_comm_leave(comm);
        if (place->slot == 0) /* forms a new group once the others have seen the failure */
            wait_for(&place->board->at[1], way + 1);
        else
            atomic_store(&place->board->at[1], way + 1);
    }
    gp_comm_free(comm);
}

TEST(waiting_for_a_rank_that_left_fails_and_names_both_workers)
{
    run_ranks(2, left_alone);
}

/* Slot 0 sends and leaves at once; slot 1 arrives later or earlier. */
static void final_message_pending(rank_place *place)
{
    gp_comm *comm = join_all(place, 0);
    gp_comm_message message;
    gp_error err;

    REQUIRE(comm != NULL);
    for (uint32_t round = 1; round <= ROUNDS; round++) {
        uint32_t word = round, got = 0;

        if (place->slot == round % 2 && round % 5 == 0)
            pause_ms(6); /* longer than the poll interval of a waiting rank */
        gp_comm_enter(comm, round);
        if (place->slot == 0) {
            REQUIRE_OK(gp_comm_send(comm, 1, 3, &word, sizeof(word), &err), err);
        } else {
            REQUIRE_OK(gp_comm_receive(comm, 0, 3, &got, sizeof(got), &message, &err), err);
            CHECK_INT(round, got);
        }
        gp_comm_leave(comm);

        /* As between blocks: no rank enters the next section before all have left. */
        atomic_store(&place->board->at[place->slot], round);
        wait_for(&place->board->at[1 - place->slot], round);
    }
    gp_comm_free(comm);
}

TEST(messages_sent_before_leaving_arrive)
{
    run_ranks(2, final_message_pending);
}

/* Slot 1 is in section 2 while slot 0 has only left section 1: slot 0 is late, not gone. */
static void late(rank_place *place)
{
    gp_comm *comm = join_all(place, 0);
    gp_error err;

    REQUIRE(comm != NULL);
    gp_comm_enter(comm, 1);
    gp_comm_leave(comm);
    if (place->slot == 0)
        pause_ms(40);
    gp_comm_enter(comm, 2);
    REQUIRE_OK(gp_comm_barrier(comm, &err), err);
    gp_comm_leave(comm);
    gp_comm_free(comm);
}

TEST(rank_that_enters_a_section_late_is_not_a_failure)
{
    run_ranks(2, late);
}

static void probing(rank_place *place)
{
    gp_comm *comm = join_all(place, 0);
    gp_comm_message message;
    bool found = true;
    gp_error err;

    REQUIRE(comm != NULL);
    gp_comm_enter(comm, 1);
    if (place->slot == 1) {
        wait_for(&place->board->stage, 1);
        REQUIRE_OK(gp_comm_probe(comm, 0, GP_COMM_ANY, &found, &message, &err), err);
        CHECK(!found);
    }
    gp_comm_leave(comm);
    atomic_store(&place->board->stage, place->slot + 1);
    wait_for(&place->board->stage, 2);
    gp_comm_free(comm);
}

TEST(probing_a_rank_that_left_finds_nothing)
{
    run_ranks(2, probing);
}
