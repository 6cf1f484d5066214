/* Forms rank groups: members, mappings and the join.
 *
 *   1. Check the arguments; failures change nothing. The generation is newer, and excluded
 *      processes exited.
 *   2. Match members with the previous generation, keep or create the own arena, publish it.
 *   3. Rank 0 creates the control segment. The others fetch it before anything else, so that a
 *      later failure can be reported to all ranks.
 *   4. Fetch the peers' arenas; check and map new ones.
 *   5. Pass one barrier: no rank returns before all ranks have joined.
 *
 * Arenas can be kept only because excluded processes must have exited: a slow process would
 * otherwise complete its stores to an arena at any later time, in any generation. */
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/memory/alloc.h"
#include "worker/comm/process.h"
#include "worker/comm/sealed.h"
#include "worker/comm/shm.h"

/* MOVED_ON and UNMAPPED are shm_line.left values. FETCH_SLICE_MS is the interval, in milliseconds,
 * between checks for failed members. */
enum { PAGE = 4096, FETCH_SLICE_MS = 20, MOVED_ON = 1, UNMAPPED = 2 };

/* first word of the control segment: "gpmmocs1" in ASCII */
#define MAGIC UINT64_C(0x67706d6d6f637331)

gp_status gp_comm_new(gp_comm **out, gp_error *err)
{
    gp_comm *comm = gp_calloc(1, sizeof(*comm));

    if (comm == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for a communicator");
    pthread_mutex_init(&comm->lock, NULL);
    comm->arena_fd = -1;
    comm->queue_bytes_max = GP_COMM_QUEUE_BYTES_MAX;
    gp_shm_messages_clear(comm);
    *out = comm;
    return GP_OK;
}

/* ---- members ---- */

static bool member_same(const gp_comm_member *a, const gp_comm_member *b)
{
    return a->index == b->index && a->pid == b->pid && a->start_time == b->start_time;
}

static const shm_peer no_peer = { .pidfd = -1 };

static void peer_release(shm_peer *peer)
{
    gp_sealed_unmap(peer->map, peer->bytes);
    if (peer->pidfd >= 0)
        close(peer->pidfd);
    *peer = no_peer;
}

/* Clear the own entry's mapping, which belongs to arena_map and must not be unmapped twice. */
static void forget_own_map(gp_comm *comm)
{
    for (uint32_t k = 0; k < comm->peer_count; k++) {
        if (comm->peers[k].map == comm->arena_map)
            comm->peers[k].map = NULL;
    }
}

/* Check the arguments of gp_comm_form(). Failures change nothing. */
static gp_status check_rendezvous(const gp_comm *comm, const gp_comm_rendezvous *rendezvous, gp_error *err)
{
    const gp_comm_member *self = &rendezvous->members[rendezvous->rank];

    if (rendezvous->world < 1 || rendezvous->world > GP_COMM_WORLD_MAX)
        return gp_fail(err, GP_ELIMIT, "invalid group size %u: must be between 1 and %d", rendezvous->world,
                       GP_COMM_WORLD_MAX);
    if (rendezvous->rank >= rendezvous->world)
        return gp_fail(err, GP_EINVAL, "rank %u is not in the group of %u ranks", rendezvous->rank,
                       rendezvous->world);
    if (rendezvous->generation == 0)
        return gp_fail(err, GP_EINVAL, "invalid generation 0: must be 1 or more");
    if (rendezvous->arena_bytes > GP_COMM_ARENA_BYTES_MAX)
        return gp_fail(err, GP_ELIMIT, "invalid arena size of %zu bytes: at most %zu are allowed",
                       rendezvous->arena_bytes, GP_COMM_ARENA_BYTES_MAX);
    if (rendezvous->world > 1 && rendezvous->ops == NULL)
        return gp_fail(err, GP_EINVAL, "a group of %u ranks needs a function that exchanges descriptors",
                       rendezvous->world);
    if (rendezvous->generation <= comm->generation)
        return gp_fail(err, GP_ESTALE, "generation %u is not newer than generation %u",
                       rendezvous->generation, comm->generation);
    if (self->pid != getpid())
        return gp_fail(err, GP_EINVAL, "rank %u has pid %d, but this process has pid %d", rendezvous->rank,
                       (int)self->pid, (int)getpid());
    if (rendezvous->arena_bytes < comm->arena_bytes)
        return gp_fail(err, GP_EINVAL, "an arena of %zu bytes cannot be reduced to %zu bytes",
                       comm->arena_bytes, rendezvous->arena_bytes);
    /* Each member of the previous generation that is not in the new one must be unable to write to
     * arenas: it exited, or left with gp_comm_free(). */
    for (uint32_t k = 0; k < comm->peer_count; k++) {
        const shm_peer *peer = &comm->peers[k];
        bool gone = peer->pidfd < 0;

        for (uint32_t j = 0; j < rendezvous->world; j++)
            gone = gone || member_same(&rendezvous->members[j], &peer->member);
        if (gone || gp_process_dead(peer->pidfd) ||
            (comm->control != NULL && atomic_load(&comm->control->lines[k].left) == UNMAPPED))
            continue;
        return gp_fail(err, GP_ESTATE,
                       "worker %u (pid %d) is not in generation %u but is still alive and has access to the "
                       "shared memory; kill it first",
                       peer->member.index, (int)peer->member.pid, rendezvous->generation);
    }
    return GP_OK;
}

/* Replace the peer list by the new generation's members. Processes that were members before keep
 * pidfd and mapping; a pidfd is opened for the others. GP_EPEER: a member exited. */
static gp_status adopt_members(gp_comm *comm, const gp_comm_rendezvous *rendezvous, gp_error *err)
{
    shm_peer next[GP_COMM_WORLD_MAX];

    forget_own_map(comm);
    for (uint32_t k = 0; k < rendezvous->world; k++) {
        next[k] = no_peer;
        for (uint32_t j = 0; j < comm->peer_count; j++) {
            if (member_same(&rendezvous->members[k], &comm->peers[j].member)) {
                next[k] = comm->peers[j];
                comm->peers[j] = no_peer;
            }
        }
        next[k].member = rendezvous->members[k];
    }
    for (uint32_t j = 0; j < comm->peer_count; j++)
        peer_release(&comm->peers[j]);
    memcpy(comm->peers, next, rendezvous->world * sizeof(next[0]));
    comm->peer_count = rendezvous->world;
    for (uint32_t k = 0; k < rendezvous->world; k++) {
        const gp_comm_member *member = &comm->peers[k].member;
        gp_status status = GP_OK;

        if (k != rendezvous->rank && comm->peers[k].pidfd < 0)
            status = gp_process_open(member->pid, member->start_time, &comm->peers[k].pidfd, err);
        if (status != GP_OK) {
            gp_error_prefix(err, "worker %u (rank %u)", member->index, k);
            return status;
        }
    }
    return GP_OK;
}

/* ---- arena and control segment ---- */

static size_t map_bytes_of(size_t arena_bytes)
{
    return STAGING_BYTES + (arena_bytes + PAGE - 1) / PAGE * PAGE;
}

static void arena_release(gp_comm *comm)
{
    gp_sealed_unmap(comm->arena_map, comm->arena_map_bytes);
    if (comm->arena_fd >= 0)
        close(comm->arena_fd);
    comm->arena_fd = -1;
    comm->arena_map = NULL;
    comm->arena_map_bytes = 0;
    comm->arena = NULL;
    comm->arena_bytes = comm->arena_used = 0;
}

/* Ensure that the own arena has the requested size; a larger size replaces the arena. */
static gp_status arena_grow(gp_comm *comm, const gp_comm_rendezvous *rendezvous, gp_error *err)
{
    size_t arena_bytes = rendezvous->arena_bytes, bytes = map_bytes_of(arena_bytes);
    gp_status status;

    if (comm->arena_map_bytes < bytes) {
        arena_release(comm);
        comm->sparse = rendezvous->sparse;
        status = gp_sealed_new("gradpool-arena", bytes, comm->sparse ? STAGING_BYTES : bytes, &comm->arena_fd,
                               &comm->arena_map, err);
        if (status != GP_OK)
            return status;
        comm->arena_map_bytes = bytes;
        comm->arena = comm->arena_map + STAGING_BYTES;
    }
    comm->arena_bytes = arena_bytes;
    return GP_OK;
}

/* Pipe offset in the control segment. */
static size_t pipes_offset(uint32_t world)
{
    return sizeof(shm_control) + world * sizeof(shm_line);
}

static size_t control_bytes_of(uint32_t world)
{
    return (pipes_offset(world) + (size_t)world * world * sizeof(shm_pipe) + PAGE - 1) / PAGE * PAGE;
}

/* Make the control segment current. From now on, gp_comm_abort() affects this generation. */
static void control_install(gp_comm *comm, uint8_t *map, size_t bytes, const gp_comm_rendezvous *rendezvous)
{
    pthread_mutex_lock(&comm->lock);
    comm->control = (shm_control *)map;
    comm->control_bytes = bytes;
    comm->pipes = (shm_pipe *)(map + pipes_offset(rendezvous->world));
    comm->rank = rendezvous->rank;
    comm->world = rendezvous->world;
    pthread_mutex_unlock(&comm->lock);
}

/* Leave the current control segment. `left`: value for shm_line.left, which peers that still wait
 * can read. */
static void control_drop(gp_comm *comm, uint32_t left)
{
    shm_control *control;

    pthread_mutex_lock(&comm->lock);
    control = comm->control;
    if (control != NULL) {
        atomic_store(&control->lines[comm->rank].left, left);
        comm->control = NULL;
        comm->rank = comm->world = 0;
        gp_sealed_unmap((uint8_t *)control, comm->control_bytes);
    }
    pthread_mutex_unlock(&comm->lock);
    comm->barriers = comm->staged = 0;
    gp_shm_messages_clear(comm);
}

/* ---- joining ---- */

/* Check whether forming can still succeed. GP_ECANCELED: aborted. GP_EPEER: a member exited. */
static gp_status check_forming(gp_comm *comm, const gp_comm_rendezvous *rendezvous, gp_error *err)
{
    if (atomic_load(&comm->aborted_through) >= rendezvous->generation)
        return gp_fail(err, GP_ECANCELED, "generation %u was aborted while the group formed",
                       rendezvous->generation);
    if (comm->control != NULL && gp_shm_verdict(comm, NULL) != GP_OK)
        return gp_shm_verdict(comm, err);
    for (uint32_t k = 0; k < rendezvous->world; k++) {
        if (k != rendezvous->rank && gp_process_dead(comm->peers[k].pidfd))
            return gp_fail(err, GP_EPEER, "worker %u (rank %u, pid %d) exited while generation %u formed",
                           comm->peers[k].member.index, k, (int)comm->peers[k].member.pid,
                           rendezvous->generation);
    }
    return GP_OK;
}

/* Fetch a peer's descriptor; check for aborts and failed members after each FETCH_SLICE_MS. */
static gp_status fetch(gp_comm *comm, const gp_comm_rendezvous *rendezvous, uint32_t rank, gp_comm_what what,
                       int *fd, gp_error *err)
{
    for (;;) {
        gp_status status = check_forming(comm, rendezvous, err);

        if (status != GP_OK)
            return status;
        status = rendezvous->ops->fetch(rendezvous->context, rank, what, FETCH_SLICE_MS, fd, err);
        if (status != GP_ETIMEDOUT)
            return status;
    }
}

/* Map a peer's memory; add the worker to the error message. */
static gp_status map_from(const gp_comm *comm, uint32_t rank, int fd, size_t bytes, uint8_t **map,
                          gp_error *err)
{
    const gp_comm_member *member = &comm->peers[rank].member;
    gp_status status = gp_sealed_map(fd, bytes, map, err);

    if (status != GP_OK)
        gp_error_prefix(err, "worker %u (rank %u, pid %d)", member->index, rank, (int)member->pid);
    return status;
}

/* Create the control segment on rank 0 and publish it. */
static gp_status control_make(gp_comm *comm, const gp_comm_rendezvous *rendezvous, gp_error *err)
{
    size_t bytes = control_bytes_of(rendezvous->world);
    gp_status status;
    uint8_t *map;
    int fd;

    status = gp_sealed_new("gradpool-control", bytes, 0, &fd, &map, err);
    if (status != GP_OK)
        return status;
    *(shm_control *)map = (shm_control){ .magic = MAGIC,
                                         .lease = rendezvous->lease,
                                         .generation = rendezvous->generation,
                                         .world = rendezvous->world,
                                         .spin = comm->spin };
    control_install(comm, map, bytes, rendezvous);
    if (rendezvous->world > 1)
        status = rendezvous->ops->publish(rendezvous->context, GP_COMM_WHAT_CONTROL, fd, err);
    close(fd);
    return status;
}

/* Fetch the control segment from rank 0 and check that it belongs to this group. */
static gp_status control_fetch(gp_comm *comm, const gp_comm_rendezvous *rendezvous, gp_error *err)
{
    size_t bytes = control_bytes_of(rendezvous->world);
    const shm_control *control;
    gp_status status;
    uint8_t *map;
    int fd;

    status = fetch(comm, rendezvous, 0, GP_COMM_WHAT_CONTROL, &fd, err);
    if (status != GP_OK)
        return status;
    status = map_from(comm, 0, fd, bytes, &map, err);
    close(fd);
    if (status != GP_OK)
        return status;
    control = (const shm_control *)map;
    if (control->magic != MAGIC || control->lease != rendezvous->lease ||
        control->generation != rendezvous->generation || control->world != rendezvous->world) {
        status = gp_fail(err, GP_EPROTO,
                         "worker %u (rank 0) formed lease %llu, generation %u with %u ranks; expected lease "
                         "%llu, generation %u with %u ranks",
                         comm->peers[0].member.index, (unsigned long long)control->lease, control->generation,
                         control->world, (unsigned long long)rendezvous->lease, rendezvous->generation,
                         rendezvous->world);
        gp_sealed_unmap(map, bytes);
        return status;
    }
    control_install(comm, map, bytes, rendezvous);
    return GP_OK;
}

/* Map a peer's arena, unless the existing mapping shows the same memory and is large enough. */
static gp_status map_arena(gp_comm *comm, uint32_t rank, int fd, size_t bytes, gp_error *err)
{
    shm_peer *peer = &comm->peers[rank];
    struct stat info;
    gp_status status;

    if (fstat(fd, &info) != 0)
        return gp_fail_errno(err, GP_EIO, "cannot stat the arena of rank %u", rank);
    if (peer->map != NULL && peer->bytes >= bytes && peer->inode == (uint64_t)info.st_ino)
        return GP_OK;
    gp_sealed_unmap(peer->map, peer->bytes);
    peer->map = NULL;
    status = map_from(comm, rank, fd, bytes, &peer->map, err);
    if (status != GP_OK)
        return status;
    peer->bytes = bytes;
    peer->inode = (uint64_t)info.st_ino;
    gp_sealed_populate(peer->map, comm->sparse ? STAGING_BYTES : bytes);
    return GP_OK;
}

/* Map all peers' arenas. Descriptors are fetched in every generation: that is cheap, and only the
 * inode shows whether the peer's arena is still the mapped one. */
static gp_status map_arenas(gp_comm *comm, const gp_comm_rendezvous *rendezvous, gp_error *err)
{
    for (uint32_t k = 0; k < rendezvous->world; k++) {
        gp_status status;
        int fd;

        if (k == rendezvous->rank) {
            comm->peers[k].map = comm->arena_map;
            comm->peers[k].bytes = comm->arena_map_bytes;
            continue;
        }
        status = fetch(comm, rendezvous, k, GP_COMM_WHAT_ARENA, &fd, err);
        if (status != GP_OK)
            return status;
        status = map_arena(comm, k, fd, map_bytes_of(rendezvous->arena_bytes), err);
        close(fd);
        if (status != GP_OK)
            return status;
    }
    return GP_OK;
}

gp_status gp_comm_form(gp_comm *comm, const gp_comm_rendezvous *rendezvous, gp_error *err)
{
    uint64_t waited_ns = atomic_load_explicit(&comm->wait_ns, memory_order_relaxed);
    gp_status status = check_rendezvous(comm, rendezvous, err);

    if (status != GP_OK)
        return status;
    control_drop(comm, MOVED_ON);
    pthread_mutex_lock(&comm->lock);
    comm->generation = rendezvous->generation;
    pthread_mutex_unlock(&comm->lock);
    comm->spin = rendezvous->spin && (long)rendezvous->world <= sysconf(_SC_NPROCESSORS_ONLN);
    status = adopt_members(comm, rendezvous, err);
    if (status == GP_OK)
        status = arena_grow(comm, rendezvous, err);
    if (status == GP_OK && rendezvous->world > 1)
        status = rendezvous->ops->publish(rendezvous->context, GP_COMM_WHAT_ARENA, comm->arena_fd, err);
    if (status == GP_OK)
        status = rendezvous->rank == 0 ? control_make(comm, rendezvous, err)
                                       : control_fetch(comm, rendezvous, err);
    if (status == GP_OK)
        status = map_arenas(comm, rendezvous, err);
    if (status == GP_OK) /* catches an abort before control_install() */
        status = check_forming(comm, rendezvous, err);
    if (status == GP_OK)
        status = gp_shm_sync(comm, rendezvous->arena_bytes, err);
    if (status != GP_OK && comm->control != NULL)
        gp_shm_end(comm->control, SHM_ABORTED, rendezvous->rank);
    if (status != GP_OK)
        control_drop(comm, MOVED_ON);
    /* Exclude the wait for members that have not joined yet: it belongs to no operation. */
    atomic_store_explicit(&comm->wait_ns, waited_ns, memory_order_relaxed);
    return status;
}

void gp_comm_abort(gp_comm *comm, uint32_t generation)
{
    pthread_mutex_lock(&comm->lock);
    if (atomic_load(&comm->aborted_through) < generation)
        atomic_store(&comm->aborted_through, generation);
    if (comm->control != NULL && comm->generation <= generation)
        gp_shm_end(comm->control, SHM_ABORTED, comm->rank);
    pthread_mutex_unlock(&comm->lock);
}

void gp_comm_free(gp_comm *comm)
{
    if (comm == NULL)
        return;
    forget_own_map(comm);
    for (uint32_t k = 0; k < comm->peer_count; k++)
        peer_release(&comm->peers[k]);
    /* after the peers' arenas are unmapped: UNMAPPED promises that this process writes to no
     * arena */
    control_drop(comm, UNMAPPED);
    arena_release(comm);
    pthread_mutex_destroy(&comm->lock);
    gp_free(comm);
}
