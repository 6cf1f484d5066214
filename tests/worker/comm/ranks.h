/* ranks.h: real processes as ranks: forked by the test, connected by socket pairs that carry
 * descriptors.
 *
 *     static void body(rank_place *place) { ... CHECK(...) ... }
 *     run_ranks(4, body);      forks 4 processes that run body() and exit
 *
 * A process keeps its *slot*; its rank is its position in a generation's list of slots. */
#ifndef GP_TEST_RANKS_H
#define GP_TEST_RANKS_H

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/gp_test.h"
#include "worker/comm/comm.h"
#include "worker/comm/process.h"

enum { SLOT_MAX = 8, STASH_MAX = 64 };

/* Memory shared by all processes of a test. */
typedef struct board {
    gp_comm_member members[SLOT_MAX];
    _Atomic uint32_t ready;        /* members[] is complete */
    _Atomic uint32_t stage;        /* for use by the tests */
    _Atomic uint32_t at[SLOT_MAX]; /* for use by the tests, one per slot */
    _Atomic uint64_t progress[SLOT_MAX];
} board;

typedef struct rank_packet {
    uint32_t generation, what, slot;
} rank_packet;

/* A process or a thread that acts as a rank. */
typedef struct rank_place {
    board *board;
    uint32_t slot, slots;
    int sockets[SLOT_MAX]; /* one socket to each other slot */
    uint32_t generation;   /* generation being formed */
    const uint32_t *order; /* rank -> slot in that generation */
    uint32_t world;
    struct {
        rank_packet packet;
        int fd;
    } stash[STASH_MAX]; /* descriptors that arrived before they were requested */
    uint32_t stashed;
    int lie;     /* descriptor to publish instead of the real arena; 0: none */
    bool sparse; /* form with a sparse arena */
} rank_place;

static void pause_ms(int ms)
{
    poll(NULL, 0, ms);
}

/* Wait until *word reaches at_least. No time limit: ctest ends a test that hangs here. */
static void wait_for(_Atomic uint32_t *word, uint32_t at_least)
{
    while (atomic_load(word) < at_least)
        pause_ms(1);
}

static gp_status place_publish(void *context, gp_comm_what what, int fd, gp_error *err)
{
    rank_place *place = context;

    (void)err;
    if (place->lie != 0 && what == GP_COMM_WHAT_ARENA)
        fd = place->lie;
    for (uint32_t rank = 0; rank < place->world; rank++) {
        rank_packet packet = { place->generation, what, place->slot };
        struct iovec part = { &packet, sizeof(packet) };
        union {
            struct cmsghdr align;
            char bytes[CMSG_SPACE(sizeof(int))];
        } control;
        struct msghdr message = { .msg_iov = &part,
                                  .msg_iovlen = 1,
                                  .msg_control = control.bytes,
                                  .msg_controllen = sizeof(control.bytes) };
        struct cmsghdr *head = CMSG_FIRSTHDR(&message);

        head->cmsg_level = SOL_SOCKET;
        head->cmsg_type = SCM_RIGHTS;
        head->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(head), &fd, sizeof(int));

        /* the peer may have exited */
        if (place->order[rank] != place->slot)
            (void)!sendmsg(place->sockets[place->order[rank]], &message, MSG_NOSIGNAL);
    }
    return GP_OK;
}

static bool place_receive_one(rank_place *place, int socket)
{
    rank_packet packet;
    struct iovec part = { &packet, sizeof(packet) };
    union {
        struct cmsghdr align;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control;
    struct msghdr message = { .msg_iov = &part,
                              .msg_iovlen = 1,
                              .msg_control = control.bytes,
                              .msg_controllen = sizeof(control.bytes) };
    ssize_t got = recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

    if (got != sizeof(packet) || CMSG_FIRSTHDR(&message) == NULL || place->stashed == STASH_MAX)
        return false;
    place->stash[place->stashed].packet = packet;
    memcpy(&place->stash[place->stashed].fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(int));
    place->stashed++;
    return true;
}

static gp_status place_fetch(void *context, uint32_t rank, gp_comm_what what, uint32_t timeout_ms, int *fd,
                             gp_error *err)
{
    rank_place *place = context;
    uint32_t slot = place->order[rank];
    struct pollfd entry = { .fd = place->sockets[slot], .events = POLLIN };

    for (int attempt = 0; attempt < 2; attempt++) {
        while (place_receive_one(place, place->sockets[slot]))
            ;
        for (uint32_t k = 0; k < place->stashed; k++) {
            rank_packet packet = place->stash[k].packet;

            if (packet.generation != place->generation || packet.what != what || packet.slot != slot)
                continue;
            *fd = place->stash[k].fd;
            place->stash[k] = place->stash[--place->stashed];
            return GP_OK;
        }
        if (attempt == 0)
            poll(&entry, 1, (int)timeout_ms);
    }
    return gp_fail(err, GP_ETIMEDOUT, "nothing came");
}

static const gp_comm_rendezvous_ops place_ops = { place_publish, place_fetch };

static const uint32_t in_order[SLOT_MAX] = { 0, 1, 2, 3, 4, 5, 6, 7 };

/* Form a generation from the slots order[0..world), which include this one. */
static gp_status form(rank_place *place, gp_comm *comm, uint32_t generation, const uint32_t *order,
                      uint32_t world, size_t arena_bytes, gp_error *err)
{
    gp_comm_member members[SLOT_MAX];
    gp_comm_rendezvous rendezvous = { .lease = 77,
                                      .generation = generation,
                                      .world = world,
                                      .members = members,
                                      .arena_bytes = arena_bytes,
                                      .sparse = place->sparse,
                                      .spin = true,
                                      .ops = &place_ops,
                                      .context = place };

    for (uint32_t rank = 0; rank < world; rank++) {
        members[rank] = place->board->members[order[rank]];
        if (order[rank] == place->slot)
            rendezvous.rank = rank;
    }
    place->generation = generation;
    place->order = order;
    place->world = world;
    return gp_comm_form(comm, &rendezvous, err);
}

/* Form generation 1 from all slots. On failure, fail a check and return NULL. */
static inline gp_comm *join_all(rank_place *place, size_t arena_bytes)
{
    gp_comm *comm = NULL;
    gp_error err;

    CHECK_STATUS(GP_OK, gp_comm_new(&comm, &err));
    if (comm != NULL && form(place, comm, 1, in_order, place->slots, arena_bytes, &err) != GP_OK) {
        GP_TEST_FAIL("slot %u cannot form: %s", place->slot, err.message);
        gp_comm_free(comm);
        comm = NULL;
    }
    return comm;
}

static void place_deinit(rank_place *place)
{
    for (uint32_t k = 0; k < place->stashed; k++)
        close(place->stash[k].fd);
}

typedef struct rank_family {
    board *board;
    uint32_t slots;
    int pairs[SLOT_MAX][SLOT_MAX]; /* [a][b]: end of slot a in the pair with slot b */
    pid_t pids[SLOT_MAX];
} rank_family;

static void family_open(rank_family *family, uint32_t slots)
{
    memset(family, 0, sizeof(*family));
    family->slots = slots;
    family->board = mmap(NULL, sizeof(board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (family->board == MAP_FAILED)
        abort();
    for (uint32_t a = 0; a < slots; a++) {
        for (uint32_t b = a + 1; b < slots; b++) {
            int ends[2];

            if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
                abort();
            family->pairs[a][b] = ends[0];
            family->pairs[b][a] = ends[1];
        }
    }
}

static void family_close(rank_family *family)
{
    for (uint32_t a = 0; a < family->slots; a++) {
        for (uint32_t b = 0; b < family->slots; b++) {
            if (a != b)
                close(family->pairs[a][b]);
        }
    }
    munmap(family->board, sizeof(board));
}

static void place_init(rank_place *place, const rank_family *family, uint32_t slot)
{
    memset(place, 0, sizeof(*place));
    place->board = family->board;
    place->slot = slot;
    place->slots = family->slots;
    memcpy(place->sockets, family->pairs[slot], sizeof(place->sockets));
}

static void family_fork(rank_family *family, void (*body)(rank_place *place))
{
    fflush(stdout);
    for (uint32_t slot = 0; slot < family->slots; slot++) {
        static rank_place place;
        pid_t parent = getpid();

        family->pids[slot] = fork();
        if (family->pids[slot] != 0)
            continue;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            _exit(1);
        gp_test_failures = 0;
        place_init(&place, family, slot);
        wait_for(&place.board->ready, 1);
        body(&place);
        place_deinit(&place);
        exit(gp_test_failures != 0);
    }
    for (uint32_t slot = 0; slot < family->slots; slot++) {
        gp_comm_member *member = &family->board->members[slot];

        member->index = slot + 1;
        member->pid = family->pids[slot];
        CHECK_STATUS(GP_OK, gp_process_start_time(member->pid, &member->start_time, NULL));
    }
    atomic_store(&family->board->ready, 1);
}

/* Wait for all processes. Slots in the `killed` bit mask must have exited by SIGKILL; all others
 * must have passed. */
static void family_join(rank_family *family, uint32_t killed)
{
    for (uint32_t slot = 0; slot < family->slots; slot++) {
        int status = 0;

        CHECK_INT(family->pids[slot], waitpid(family->pids[slot], &status, 0));
        if (killed >> slot & 1)
            CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        else if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
            GP_TEST_FAIL("slot %u failed (wait status %#x)", slot, status);
    }
    family_close(family);
}

static inline void run_ranks(uint32_t slots, void (*body)(rank_place *place))
{
    rank_family family;

    family_open(&family, slots);
    family_fork(&family, body);
    family_join(&family, 0);
}

#endif
