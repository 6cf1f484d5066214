/* test_comm_faults.c: failures, suspension, aborts and generations, with real processes and
 * signals. */
#include <fcntl.h>
#include <pthread.h>

#include "tests/worker/comm/ranks.h"
#include "worker/comm/shm.h"

enum { ARENA = 4 << 20, ELEMENTS = 500000 };

/* board->stage announces the test's progress to the children; board->at[slot] announces a child's
 * progress to the test; board->progress[slot] counts the child's collectives. */

/* Run all-reduce until it fails; publish the number of completed operations. */
static gp_status reduce_until_failure(rank_place *place, gp_comm *comm, float *data, size_t count,
                                      gp_error *err)
{
    gp_status status;

    do {
        data[0] = 1.0f;
        status = gp_comm_all_reduce(comm, data, count, GP_F32, GP_COMM_SUM, err);
        if (status == GP_OK && data[0] != (float)gp_comm_world(comm))
            GP_TEST_FAIL("slot %u: a sum is %g", place->slot, (double)data[0]);
        atomic_store(&place->board->progress[place->slot], gp_comm_get_stats(comm).operations);
    } while (status == GP_OK);
    return status;
}

static void check_names_the_dead(const rank_place *place, uint32_t slot, const gp_error *err)
{
    char text[64];

    snprintf(text, sizeof(text), "worker %u (rank %u, pid %d)", slot + 1, slot,
             place->board->members[slot].pid);
    CHECK_CONTAINS(err->message, text);
    CHECK_CONTAINS(err->message, "exited");
}

/* ---- kill -9 ---- */

/* Run collectives until slot 2 is killed. The test chooses the time: while asleep, during
 * operations, or between two operations. */
static void survive_slot_2(rank_place *place)
{
    gp_comm *comm = join_all(place, ARENA);
    void *range = NULL;
    gp_error err = { .code = GP_OK };

    REQUIRE(comm != NULL);
    REQUIRE_OK(gp_comm_arena_alloc(comm, ELEMENTS * sizeof(float), &range, &err), err);
    atomic_store(&place->board->at[place->slot], 1);
    if (place->slot == 2 && atomic_load(&place->board->stage) == 1) {
        for (;;)
            pause_ms(1000); /* never reaches the first operation */
    }
    if (place->slot == 2 && atomic_load(&place->board->stage) == 2) {
        for (int k = 0; k < 7; k++) { /* exits between the seventh and the eighth bucket */
            ((float *)range)[0] = 1.0f;
            REQUIRE_OK(gp_comm_all_reduce(comm, range, ELEMENTS, GP_F32, GP_COMM_SUM, &err), err);
        }
        raise(SIGKILL);
    }
    CHECK_STATUS(GP_EPEER, reduce_until_failure(place, comm, range, ELEMENTS, &err));
    check_names_the_dead(place, 2, &err);
    CHECK_STATUS(GP_EPEER, gp_comm_barrier(comm, &err)); /* the failure is permanent */
    CHECK_STATUS(GP_EPEER, gp_comm_send(comm, 1, 1, "x", 1, &err));
    if (atomic_load(&place->board->stage) == 2)
        CHECK_INT(7, gp_comm_get_stats(comm).operations);
    gp_comm_free(comm);
}

TEST(a_rank_killed_before_an_operation_ends_it_for_the_others)
{
    rank_family family;

    family_open(&family, 4);
    atomic_store(&family.board->stage, 1);
    family_fork(&family, survive_slot_2);
    wait_for(&family.board->at[2], 1);
    kill(family.pids[2], SIGKILL);
    family_join(&family, 1 << 2);
}

TEST(a_rank_killed_between_two_buckets_ends_the_next_one)
{
    rank_family family;

    family_open(&family, 4);
    atomic_store(&family.board->stage, 2);
    family_fork(&family, survive_slot_2);
    family_join(&family, 1 << 2);
}

TEST(a_rank_killed_while_operations_run_ends_them_on_all_ranks)
{
    for (uint32_t round = 0; round < 10; round++) {
        rank_family family;

        family_open(&family, 4);
        family_fork(&family, survive_slot_2);
        while (atomic_load(&family.board->progress[2]) < 3 + round)
            pause_ms(0);
        kill(family.pids[2], SIGKILL);
        family_join(&family, 1 << 2);
    }
}

/* Check that an operation that succeeded on one rank succeeded on all surviving ranks. */
static void count_operations(rank_place *place)
{
    gp_comm *comm = join_all(place, ARENA);
    void *range = NULL;
    gp_error err;

    REQUIRE(comm != NULL);
    REQUIRE_OK(gp_comm_arena_alloc(comm, ELEMENTS * sizeof(float), &range, &err), err);
    CHECK_STATUS(GP_EPEER, reduce_until_failure(place, comm, range, 4000, &err));
    gp_comm_free(comm);
}

TEST(survivors_agree_on_the_last_successful_operation)
{
    for (uint32_t round = 0; round < 10; round++) {
        rank_family family;
        _Atomic uint64_t *progress;

        family_open(&family, 3);
        progress = family.board->progress;
        family_fork(&family, count_operations);
        while (atomic_load(&progress[1]) < 20)
            pause_ms(0);
        kill(family.pids[1], SIGKILL);
        waitpid(family.pids[1], NULL, 0);
        for (uint32_t slot = 0; slot < 3; slot += 2) {
            siginfo_t info;

            waitid(P_PID, (id_t)family.pids[slot], &info, WEXITED | WNOWAIT);
        }
        CHECK_INT(atomic_load(&progress[0]), atomic_load(&progress[2]));

        /* family_join() reaps slot 1. */
        for (uint32_t slot = 0; slot < 3; slot += 2)
            CHECK_INT(family.pids[slot], waitpid(family.pids[slot], NULL, 0));
        family_close(&family);
    }
}

/* Slot 0 arrives at a barrier that has already failed for slot 1. Slot 0 had checked for a verdict
 * just before it was published. */
static void arrive_after_the_end(rank_place *place)
{
    gp_comm *comm = join_all(place, 0);
    gp_error err;

    REQUIRE(comm != NULL);
    if (place->slot == 1) {
        CHECK_STATUS(GP_ECANCELED, gp_comm_barrier(comm, &err));
        atomic_store(&place->board->stage, 1);
        wait_for(&place->board->stage, 2);
    } else {
        shm_control *control = comm->control;

        /* both ranks when the group formed, and slot 1 now */
        while (atomic_load(&control->arrived.value) < 3)
            pause_ms(1);
        gp_comm_abort(comm, 1);
        wait_for(&place->board->stage, 1);
        atomic_store(&control->verdict, 0);
        if (gp_comm_barrier(comm, &err) == GP_OK)
            GP_TEST_FAIL("a barrier succeeded on one rank and failed on the other");
        atomic_store(&place->board->stage, 2);
    }
    gp_comm_free(comm);
}

TEST(failed_barrier_fails_for_late_ranks_too)
{
    run_ranks(2, arrive_after_the_end);
}

static void wait_for_a_message(rank_place *place)
{
    gp_comm *comm = join_all(place, 0);
    gp_comm_message message;
    char byte;
    gp_error err;

    REQUIRE(comm != NULL);
    atomic_store(&place->board->at[place->slot], 1);
    if (place->slot == 2) {
        for (;;)
            pause_ms(1000);
    }
    if (place->slot == 0) {
        /* the failed rank sends no message */
        CHECK_STATUS(GP_EPEER, gp_comm_receive(comm, 1, 5, &byte, 1, &message, &err));
    } else {
        bool found = false;
        gp_status status;

        do
            status = gp_comm_probe(comm, GP_COMM_ANY, 5, &found, &message, &err);
        while (status == GP_OK && !found);
        CHECK_STATUS(GP_EPEER, status);
    }
    check_names_the_dead(place, 2, &err);
    gp_comm_free(comm);
}

TEST(rank_failure_ends_receive_and_probe)
{
    rank_family family;

    family_open(&family, 3);
    family_fork(&family, wait_for_a_message);
    wait_for(&family.board->at[2], 1);
    kill(family.pids[2], SIGKILL);
    family_join(&family, 1 << 2);
}

/* ---- suspension is not a failure ---- */

static void work_past_a_stop(rank_place *place)
{
    gp_comm *comm = join_all(place, ARENA);
    void *range = NULL;
    gp_error err;

    REQUIRE(comm != NULL);
    REQUIRE_OK(gp_comm_arena_alloc(comm, ELEMENTS * sizeof(float), &range, &err), err);
    CHECK_STATUS(GP_ECANCELED, reduce_until_failure(place, comm, range, 1000, &err));
    CHECK_CONTAINS(err.message, "worker 1 (rank 0");
    gp_comm_free(comm);
}

static void *abort_on_demand(void *argument)
{
    rank_place *place = ((void **)argument)[0];

    wait_for(&place->board->stage, 1);
    gp_comm_abort(((void **)argument)[1], 1);
    return NULL;
}

static void work_and_abort(rank_place *place)
{
    gp_comm *comm = join_all(place, ARENA);
    void *range = NULL, *shared[2] = { place, comm };
    pthread_t thread;
    gp_error err;

    if (place->slot != 0) {
        gp_comm_free(comm);
        return;
    }
    REQUIRE(comm != NULL);
    REQUIRE_OK(gp_comm_arena_alloc(comm, ELEMENTS * sizeof(float), &range, &err), err);
    REQUIRE(pthread_create(&thread, NULL, abort_on_demand, shared) == 0);
    CHECK_STATUS(GP_ECANCELED, reduce_until_failure(place, comm, range, 1000, &err));
    pthread_join(thread, NULL);
    gp_comm_free(comm);
}

static void stop_test_body(rank_place *place)
{
    if (place->slot == 0)
        work_and_abort(place);
    else
        work_past_a_stop(place);
}

TEST(suspended_rank_only_delays_until_another_rank_aborts)
{
    rank_family family;
    uint64_t before;
    siginfo_t info = { .si_pid = 0 };

    family_open(&family, 3);
    family_fork(&family, stop_test_body);
    while (atomic_load(&family.board->progress[1]) < 10)
        pause_ms(1);
    kill(family.pids[1], SIGSTOP);
    waitid(P_PID, (id_t)family.pids[1], &info, WSTOPPED | WNOWAIT);
    pause_ms(200); /* forty slices without a failure report */
    before = atomic_load(&family.board->progress[1]);
    kill(family.pids[1], SIGCONT);
    while (atomic_load(&family.board->progress[1]) < before + 10)
        pause_ms(1); /* resume slot 1 */
    kill(family.pids[1], SIGSTOP);
    waitid(P_PID, (id_t)family.pids[1], &info, WSTOPPED | WNOWAIT);
    atomic_store(&family.board->stage, 1); /* slot 0 aborts; slots 0 and 2 end without slot 1 */
    for (uint32_t slot = 0; slot < 3; slot += 2) {
        int status = 0;

        CHECK_INT(family.pids[slot], waitpid(family.pids[slot], &status, 0));
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    kill(family.pids[1], SIGKILL);
    waitpid(family.pids[1], NULL, 0);
    family_close(&family);
}

/* ---- generations ---- */

static float mark_of(uint32_t slot, size_t i)
{
    return (float)(slot * 1000 + i % 1000);
}

static const uint32_t without_2[] = { 0, 1, 3 };
static const uint32_t without_0_turned[] = { 3, 1 };

static void membership_twice(rank_place *place)
{
    gp_comm *comm = join_all(place, ARENA);
    void *range = NULL, *other = NULL;
    float *data;
    gp_error err;

    REQUIRE(comm != NULL);
    REQUIRE_OK(gp_comm_arena_alloc(comm, 1000 * sizeof(float), &range, &err), err);
    data = range;
    for (size_t i = 0; i < 1000; i++)
        data[i] = mark_of(place->slot, i);
    REQUIRE_OK(gp_comm_barrier(comm, &err), err);
    if (place->slot == 2)
        raise(SIGKILL);
    CHECK_STATUS(GP_EPEER, gp_comm_barrier(comm, &err));

    REQUIRE_OK(form(place, comm, 2, without_2, 3, ARENA, &err), err);
    CHECK_INT(3, gp_comm_world(comm));
    CHECK_INT(2, gp_comm_generation(comm));
    for (size_t i = 0; i < 1000; i++)
        REQUIRE(data[i] == mark_of(place->slot, i)); /* the arena is unchanged */
    REQUIRE_OK(gp_comm_arena_alloc(comm, ELEMENTS * sizeof(float), &other, &err), err);
    REQUIRE(other != range); /* earlier ranges remain allocated */
    REQUIRE_OK(gp_comm_all_reduce(comm, data, 1000, GP_F32, GP_COMM_SUM, &err), err);
    CHECK(data[999] == mark_of(0, 999) + mark_of(1, 999) + mark_of(3, 999));
    ((float *)other)[ELEMENTS - 1] = 2.0f;
    REQUIRE_OK(gp_comm_all_reduce(comm, other, ELEMENTS, GP_F32, GP_COMM_SUM, &err), err);
    CHECK(((float *)other)[ELEMENTS - 1] == 6.0f);

    if (place->slot == 0)
        raise(SIGKILL); /* rank 0 may fail too, and ranks may be renumbered */
    CHECK_STATUS(GP_EPEER, gp_comm_barrier(comm, &err));
    CHECK_STATUS(GP_ESTALE, form(place, comm, 2, without_0_turned, 2, ARENA, &err));
    REQUIRE_OK(form(place, comm, 3, without_0_turned, 2, ARENA, &err), err);
    CHECK_INT(place->slot == 3 ? 0 : 1, gp_comm_rank(comm));
    data[0] = place->slot == 3 ? 5.0f : 7.0f;
    REQUIRE_OK(gp_comm_broadcast(comm, data, sizeof(float), 0, &err), err);
    CHECK(data[0] == 5.0f);
    gp_comm_free(comm);
}

TEST(survivors_form_a_new_group_with_the_same_arenas)
{
    rank_family family;

    family_open(&family, 4);
    family_fork(&family, membership_twice);
    family_join(&family, 1 << 2 | 1 << 0);
}

static void leave_a_living_one_out(rank_place *place)
{
    gp_comm *comm = join_all(place, ARENA);
    char text[32];
    gp_error err;

    REQUIRE(comm != NULL);
    atomic_store(&place->board->at[place->slot], 1);
    if (place->slot == 2) {
        for (;;)
            pause_ms(1000);
    }
    CHECK_STATUS(GP_ESTATE, form(place, comm, 2, without_2, 3, ARENA, &err));
    snprintf(text, sizeof(text), "worker 3 (pid %d)", place->board->members[2].pid);
    CHECK_CONTAINS(err.message, text);
    CHECK_INT(4, gp_comm_world(comm)); /* unchanged */
    atomic_store(&place->board->at[place->slot], 2);
    wait_for(&place->board->stage, 1);
    REQUIRE_OK(form(place, comm, 2, without_2, 3, ARENA, &err), err);
    REQUIRE_OK(gp_comm_barrier(comm, &err), err);
    gp_comm_free(comm);
}

TEST(generation_without_a_running_member_is_refused)
{
    rank_family family;

    family_open(&family, 4);
    family_fork(&family, leave_a_living_one_out);
    wait_for(&family.board->at[0], 2);
    wait_for(&family.board->at[1], 2);
    wait_for(&family.board->at[3], 2);
    kill(family.pids[2], SIGKILL); /* a zombie has no memory left: continue before it is reaped */
    {
        siginfo_t info;

        waitid(P_PID, (id_t)family.pids[2], &info, WEXITED | WNOWAIT);
    }
    atomic_store(&family.board->stage, 1);
    family_join(&family, 1 << 2);
}

/* One member leaves and keeps running; another one joins later. */
static void come_and_go(rank_place *place)
{
    static const uint32_t first[] = { 0, 1, 2 }, second[] = { 0, 1 }, third[] = { 3, 0, 1 };
    gp_comm *comm = NULL;
    float value = (float)place->slot;
    gp_error err;

    REQUIRE_OK(gp_comm_new(&comm, &err), err);
    if (place->slot != 3) {
        REQUIRE_OK(form(place, comm, 1, first, 3, ARENA, &err), err);
        REQUIRE_OK(gp_comm_barrier(comm, &err), err);
    }
    if (place->slot == 2) {
        gp_comm_free(comm);
        atomic_store(&place->board->stage, 1);
        wait_for(&place->board->stage, 3);
        return;
    }
    if (place->slot != 3) {
        CHECK_STATUS(GP_EPEER, gp_comm_barrier(comm, &err));
        CHECK_CONTAINS(err.message, "worker 3");
        CHECK_CONTAINS(err.message, "left");
        wait_for(&place->board->stage, 1);
        REQUIRE_OK(form(place, comm, 2, second, 2, ARENA, &err), err);
    }
    REQUIRE_OK(form(place, comm, 3, third, 3, ARENA, &err), err);
    REQUIRE_OK(gp_comm_all_reduce_private(comm, &value, 1, GP_F32, GP_COMM_SUM, &err), err);
    CHECK(value == 4.0f);

    /* A larger arena is a new arena for all ranks. */
    {
        void *range = NULL;

        REQUIRE_OK(form(place, comm, 4, third, 3, 2 * ARENA, &err), err);
        REQUIRE_OK(gp_comm_arena_alloc(comm, 2 * ARENA, &range, &err), err);
        ((uint8_t *)range)[2 * ARENA - 1] = (uint8_t)place->slot;
        REQUIRE_OK(gp_comm_broadcast(comm, range, 2 * ARENA, 0, &err), err);
        CHECK_INT(3, ((uint8_t *)range)[2 * ARENA - 1]);
        CHECK_STATUS(GP_EINVAL, form(place, comm, 5, third, 3, ARENA, &err));
        REQUIRE_OK(gp_comm_barrier(comm, &err), err);
    }
    atomic_store(&place->board->stage, 3);
    gp_comm_free(comm);
}

TEST(members_can_leave_and_join)
{
    run_ranks(4, come_and_go);
}

/* The same process with another arena: peers must not use the old mapping. */
static void begin_anew(rank_place *place)
{
    gp_comm *comm = join_all(place, ARENA);
    void *range = NULL;
    gp_error err;

    REQUIRE(comm != NULL);
    REQUIRE_OK(gp_comm_barrier(comm, &err), err);
    if (place->slot == 1) {
        gp_comm_free(comm);
        REQUIRE_OK(gp_comm_new(&comm, &err), err);
    }
    REQUIRE_OK(form(place, comm, 2, in_order, 3, ARENA, &err), err);
    REQUIRE_OK(gp_comm_arena_alloc(comm, ARENA, &range, &err), err);
    ((float *)range)[ARENA / 4 - 1] = 1.0f;
    REQUIRE_OK(gp_comm_all_reduce(comm, range, ARENA / 4, GP_F32, GP_COMM_SUM, &err), err);
    CHECK(((float *)range)[ARENA / 4 - 1] == 3.0f);
    gp_comm_free(comm);
}

TEST(restarted_member_is_mapped_again)
{
    run_ranks(3, begin_anew);
}

static size_t count_open_files(void)
{
    size_t count = 0;

    for (int fd = 0; fd < 1024; fd++)
        count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

static size_t count_shared_mappings(void)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    size_t count = 0;
    char line[512];

    while (maps != NULL && fgets(line, sizeof(line), maps) != NULL)
        count += strstr(line, "gradpool-") != NULL;
    if (maps != NULL)
        fclose(maps);
    return count;
}

static void form_often(rank_place *place)
{
    size_t files = count_open_files(), files_formed = 0;
    gp_comm *comm = join_all(place, 0);
    gp_error err;

    REQUIRE(comm != NULL);
    files_formed = count_open_files();
    CHECK_INT(4, count_shared_mappings()); /* three arenas and the control segment */
    for (uint32_t generation = 2; generation < 30; generation++)
        REQUIRE_OK(form(place, comm, generation, in_order, 3, generation * 4096, &err), err);
    CHECK_INT(files_formed, count_open_files());
    CHECK_INT(4, count_shared_mappings());
    REQUIRE_OK(gp_comm_barrier(comm, &err), err);
    gp_comm_free(comm);
    CHECK_INT(files, count_open_files());
    CHECK_INT(0, count_shared_mappings());
}

TEST(many_generations_leak_no_descriptors_or_mappings)
{
    run_ranks(3, form_often);
}

static void form_with_the_dead(rank_place *place)
{
    gp_comm *comm = NULL;
    gp_error err;

    if (place->slot == 1)
        raise(SIGKILL);
    wait_for(&place->board->stage, 1);
    REQUIRE_OK(gp_comm_new(&comm, &err), err);
    CHECK_STATUS(GP_EPEER, form(place, comm, 1, in_order, 3, ARENA, &err));
    CHECK_CONTAINS(err.message, "worker 2 (rank 1");
    gp_comm_free(comm);
    atomic_store(&place->board->at[place->slot], 1);

    /* otherwise the other rank finds this one exited */
    wait_for(&place->board->at[2 - place->slot], 1);
}

TEST(forming_with_an_exited_member_fails_and_names_it)
{
    rank_family family;
    siginfo_t info;

    family_open(&family, 3);
    family_fork(&family, form_with_the_dead);
    waitid(P_PID, (id_t)family.pids[1], &info, WEXITED | WNOWAIT);
    atomic_store(&family.board->stage, 1);
    family_join(&family, 1 << 1);
}

static void form_with_a_namesake(rank_place *place)
{
    gp_comm *comm = NULL;
    gp_error err;

    REQUIRE_OK(gp_comm_new(&comm, &err), err);
    if (place->slot == 0) {
        place->board->members[1].start_time--; /* an earlier process with the same pid */
        CHECK_STATUS(GP_EPEER, form(place, comm, 1, in_order, 2, ARENA, &err));
        CHECK_CONTAINS(err.message, "another process with this pid");
        atomic_store(&place->board->stage, 1);
    }
    wait_for(&place->board->stage, 1);
    gp_comm_free(comm);
}

TEST(reused_pid_does_not_impersonate_a_member)
{
    run_ranks(2, form_with_a_namesake);
}

static void *abort_forming(void *argument)
{
    pause_ms(30);
    gp_comm_abort(argument, 1);
    return NULL;
}

static void form_in_vain(rank_place *place)
{
    gp_comm *comm = NULL;
    pthread_t thread;
    gp_error err;

    if (place->slot == 1) {
        wait_for(&place->board->stage, 1); /* running, but never forms */
        return;
    }
    REQUIRE_OK(gp_comm_new(&comm, &err), err);
    REQUIRE(pthread_create(&thread, NULL, abort_forming, comm) == 0);
    CHECK_STATUS(GP_ECANCELED, form(place, comm, 1, in_order, 2, ARENA, &err));
    pthread_join(thread, NULL);
    CHECK_STATUS(GP_ESTALE, form(place, comm, 1, in_order, 2, ARENA, &err));
    gp_comm_abort(comm, 2);

    /* aborted before it started */
    CHECK_STATUS(GP_ECANCELED, form(place, comm, 2, in_order, 2, ARENA, &err));
    atomic_store(&place->board->stage, 1);
    gp_comm_free(comm);
}

TEST(forming_can_be_aborted_while_a_member_is_missing)
{
    run_ranks(2, form_in_vain);
}

/* ---- validation of memory from peers ---- */

static void hand_over(rank_place *place, bool sealed, off_t bytes, const char *complaint)
{
    gp_comm *comm = NULL;
    gp_status status;
    gp_error err;

    REQUIRE_OK(gp_comm_new(&comm, &err), err);
    if (place->slot == 1) {
        place->lie = memfd_create("lie", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        REQUIRE(place->lie > 0 && ftruncate(place->lie, bytes) == 0);
        if (sealed)
            REQUIRE(fcntl(place->lie, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0);
    }
    status = form(place, comm, 1, in_order, 2, ARENA, &err);
    if (place->slot == 0) {
        CHECK_STATUS(GP_EPROTO, status);
        CHECK_CONTAINS(err.message, "worker 2 (rank 1");
        CHECK_CONTAINS(err.message, complaint);
    } else {
        CHECK_STATUS(GP_ECANCELED, status); /* notified by the other rank */
        close(place->lie);
        atomic_store(&place->board->stage, 1);
    }

    /* otherwise the other rank might find this one exited first */
    wait_for(&place->board->stage, 1);
    gp_comm_free(comm);
}

static void hand_over_unsealed(rank_place *place)
{
    hand_over(place, false, 2 * ARENA, "not sealed");
}

static void hand_over_short(rank_place *place)
{
    hand_over(place, true, ARENA, "needs");
}

TEST(memory_that_the_owner_could_shrink_is_refused)
{
    run_ranks(2, hand_over_unsealed);
}

TEST(memory_that_is_too_short_is_refused)
{
    run_ranks(2, hand_over_short);
}
