/* Forms the groups of the shared-memory transport: members, mappings and the join.
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

/* MOVED_ON and UNMAPPED are values of shm_line.left. FETCH_SLICE_MS is the interval, in
 * milliseconds, between checks for failed members. */
enum { PAGE = 4096, FETCH_SLICE_MS = 20, MOVED_ON = 1, UNMAPPED = 2 };

/* first word of the control segment: "gpmmocs1" in ASCII */
#define MAGIC UINT64_C(0x67706d6d6f637331)

static shm_group *shm_of(gp_comm *comm)
{
    return (shm_group *)comm;
}

static gp_status shm_open(gp_comm **out, gp_error *err)
{
    shm_group *shm = gp_calloc(1, sizeof(*shm));

    if (shm == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for a communicator");
    pthread_mutex_init(&shm->lock, NULL);
    shm->arena_fd = -1;
    gp_shm_messages_clear(shm);
    *out = &shm->base;
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
static void forget_own_map(shm_group *shm)
{
    for (uint32_t k = 0; k < shm->peer_count; k++) {
        if (shm->peers[k].map == shm->arena_map)
            shm->peers[k].map = NULL;
    }
}

static bool is_member(const gp_comm_rendezvous *rendezvous, const gp_comm_member *member)
{
    for (uint32_t k = 0; k < rendezvous->world; k++) {
        if (member_same(&rendezvous->members[k], member))
            return true;
    }
    return false;
}

/* Check that every member of the previous generation that is not in the new one cannot write to
 * arenas: it exited, or left with gp_comm_free(). GP_ESTATE: one is still alive. */
static gp_status check_left_out(const shm_group *shm, const gp_comm_rendezvous *rendezvous, gp_error *err)
{
    for (uint32_t k = 0; k < shm->peer_count; k++) {
        const shm_peer *peer = &shm->peers[k];

        if (peer->pidfd < 0 || is_member(rendezvous, &peer->member) || gp_process_dead(peer->pidfd))
            continue;
        if (shm->control != NULL && atomic_load(&shm->control->lines[k].left) == UNMAPPED)
            continue;
        return gp_fail(
            err, GP_ESTATE,
            "worker %u (pid %d) is left out of generation %u but alive, and could still store into the "
            "others' memory; kill it first",
            peer->member.index, (int)peer->member.pid, rendezvous->generation);
    }
    return GP_OK;
}

/* Check the arguments of gp_comm_form(). Failures change nothing. */
static gp_status check_rendezvous(const shm_group *shm, const gp_comm_rendezvous *rendezvous, gp_error *err)
{
    const gp_comm_member *self = &rendezvous->members[rendezvous->rank];

    if (rendezvous->generation <= shm->base.generation)
        return gp_fail(err, GP_ESTALE, "generation %u is not newer than %u", rendezvous->generation,
                       shm->base.generation);
    if (self->pid != getpid())
        return gp_fail(err, GP_EINVAL, "rank %u is pid %d, and we are pid %d", rendezvous->rank,
                       (int)self->pid, (int)getpid());
    if (rendezvous->arena_bytes < shm->base.arena_bytes)
        return gp_fail(err, GP_EINVAL, "an arena of %zu bytes cannot shrink to %zu", shm->base.arena_bytes,
                       rendezvous->arena_bytes);
    return check_left_out(shm, rendezvous, err);
}

/* Replace the peer list by the members of the new generation. Processes that were members before
 * keep pidfd and mapping; a pidfd is opened for the others. GP_EPEER: a member exited. */
static gp_status adopt_members(shm_group *shm, const gp_comm_rendezvous *rendezvous, gp_error *err)
{
    shm_peer next[GP_COMM_WORLD_MAX];

    forget_own_map(shm);
    for (uint32_t k = 0; k < rendezvous->world; k++) {
        next[k] = no_peer;
        for (uint32_t j = 0; j < shm->peer_count; j++) {
            if (member_same(&rendezvous->members[k], &shm->peers[j].member)) {
                next[k] = shm->peers[j];
                shm->peers[j] = no_peer;
            }
        }
        next[k].member = rendezvous->members[k];
    }
    for (uint32_t j = 0; j < shm->peer_count; j++)
        peer_release(&shm->peers[j]);
    memcpy(shm->peers, next, rendezvous->world * sizeof(next[0]));
    shm->peer_count = rendezvous->world;
    for (uint32_t k = 0; k < rendezvous->world; k++) {
        const gp_comm_member *member = &shm->peers[k].member;
        gp_status status = GP_OK;

        if (k != rendezvous->rank && shm->peers[k].pidfd < 0)
            status = gp_process_open(member->pid, member->start_time, &shm->peers[k].pidfd, err);
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

static void arena_release(shm_group *shm)
{
    gp_sealed_unmap(shm->arena_map, shm->arena_map_bytes);
    if (shm->arena_fd >= 0)
        close(shm->arena_fd);
    shm->arena_fd = -1;
    shm->arena_map = NULL;
    shm->arena_map_bytes = 0;
    shm->base.arena = NULL;
    shm->base.arena_bytes = shm->base.arena_used = 0;
}

/* Create the own arena. A sparse arena allocates only the staging slots. */
static gp_status arena_new(shm_group *shm, size_t bytes, gp_error *err)
{
    gp_status status;

    if (!shm->base.sparse)
        return gp_sealed_new("gradpool-arena", bytes, &shm->arena_fd, &shm->arena_map, err);
    status = gp_sealed_new_sparse("gradpool-arena", bytes, &shm->arena_fd, &shm->arena_map, err);
    if (status == GP_OK)
        shm->arena_map_bytes = bytes;
    return status == GP_OK ? gp_sealed_take(shm->arena_map, STAGING_BYTES, err) : status;
}

/* Ensure that the own arena has the requested size; a larger size replaces the arena. */
static gp_status arena_grow(shm_group *shm, const gp_comm_rendezvous *rendezvous, gp_error *err)
{
    size_t arena_bytes = rendezvous->arena_bytes, bytes = map_bytes_of(arena_bytes);
    gp_status status;

    if (shm->arena_map_bytes < bytes) {
        arena_release(shm);
        shm->base.sparse = rendezvous->sparse;
        status = arena_new(shm, bytes, err);
        if (status != GP_OK)
            return status;
        shm->arena_map_bytes = bytes;
        shm->base.arena = shm->arena_map + STAGING_BYTES;
    }
    shm->base.arena_bytes = arena_bytes;
    return GP_OK;
}

/* Offset of the pipes in the control segment. */
static size_t pipes_offset(uint32_t world)
{
    return sizeof(shm_control) + world * sizeof(shm_line);
}

static size_t control_bytes_of(uint32_t world)
{
    return (pipes_offset(world) + (size_t)world * world * sizeof(shm_pipe) + PAGE - 1) / PAGE * PAGE;
}

/* Make the control segment current. From now on, gp_comm_abort() affects this generation. */
static void control_install(shm_group *shm, uint8_t *map, size_t bytes, const gp_comm_rendezvous *rendezvous)
{
    pthread_mutex_lock(&shm->lock);
    shm->control = (shm_control *)map;
    shm->control_bytes = bytes;
    shm->pipes = (shm_pipe *)(map + pipes_offset(rendezvous->world));
    shm->base.rank = rendezvous->rank;
    shm->base.world = rendezvous->world;
    pthread_mutex_unlock(&shm->lock);
}

/* Leave the current control segment. `left`: value for shm_line.left, which peers that still wait
 * can read. */
static void control_drop(shm_group *shm, uint32_t left)
{
    shm_control *control;

    pthread_mutex_lock(&shm->lock);
    control = shm->control;
    if (control != NULL) {
        atomic_store(&control->lines[shm->base.rank].left, left);
        shm->control = NULL;
        shm->base.rank = shm->base.world = 0;
        gp_sealed_unmap((uint8_t *)control, shm->control_bytes);
    }
    pthread_mutex_unlock(&shm->lock);
    shm->barriers = shm->staged = 0;
    gp_shm_messages_clear(shm);
}

/* ---- joining ---- */

/* Check whether forming can still succeed. GP_ECANCELED: aborted. GP_EPEER: a member exited. */
static gp_status check_forming(shm_group *shm, const gp_comm_rendezvous *rendezvous, gp_error *err)
{
    if (atomic_load(&shm->aborted_through) >= rendezvous->generation)
        return gp_fail(err, GP_ECANCELED, "generation %u was aborted while it formed",
                       rendezvous->generation);
    if (shm->control != NULL && gp_shm_verdict(shm, NULL) != GP_OK)
        return gp_shm_verdict(shm, err);
    for (uint32_t k = 0; k < rendezvous->world; k++) {
        if (k != rendezvous->rank && gp_process_dead(shm->peers[k].pidfd))
            return gp_fail(err, GP_EPEER, "worker %u (rank %u, pid %d) died while generation %u formed",
                           shm->peers[k].member.index, k, (int)shm->peers[k].member.pid,
                           rendezvous->generation);
    }
    return GP_OK;
}

/* Fetch a peer's descriptor; check for aborts and failed members after each FETCH_SLICE_MS. */
static gp_status fetch(shm_group *shm, const gp_comm_rendezvous *rendezvous, uint32_t rank, gp_comm_what what,
                       int *fd, gp_error *err)
{
    for (;;) {
        gp_status status = check_forming(shm, rendezvous, err);

        if (status != GP_OK)
            return status;
        status = rendezvous->ops->fetch(rendezvous->context, rank, what, FETCH_SLICE_MS, fd, err);
        if (status != GP_ETIMEDOUT)
            return status;
    }
}

/* Map memory of a peer; add the worker to the error message. */
static gp_status map_from(const shm_group *shm, uint32_t rank, int fd, size_t bytes, uint8_t **map,
                          gp_error *err)
{
    const gp_comm_member *member = &shm->peers[rank].member;
    gp_status status = gp_sealed_map(fd, bytes, map, err);

    if (status != GP_OK)
        gp_error_prefix(err, "worker %u (rank %u, pid %d)", member->index, rank, (int)member->pid);
    return status;
}

/* Create the control segment on rank 0 and publish it. */
static gp_status control_make(shm_group *shm, const gp_comm_rendezvous *rendezvous, gp_error *err)
{
    size_t bytes = control_bytes_of(rendezvous->world);
    gp_status status;
    uint8_t *map;
    int fd;

    status = gp_sealed_new_sparse("gradpool-control", bytes, &fd, &map, err);
    if (status != GP_OK)
        return status;
    *(shm_control *)map = (shm_control){ .magic = MAGIC,
                                         .lease = rendezvous->lease,
                                         .generation = rendezvous->generation,
                                         .world = rendezvous->world,
                                         .spin = shm->spin };
    control_install(shm, map, bytes, rendezvous);
    if (rendezvous->world > 1)
        status = rendezvous->ops->publish(rendezvous->context, GP_COMM_WHAT_CONTROL, fd, err);
    close(fd);
    return status;
}

/* Fetch the control segment from rank 0 and check that it belongs to this group. */
static gp_status control_fetch(shm_group *shm, const gp_comm_rendezvous *rendezvous, gp_error *err)
{
    size_t bytes = control_bytes_of(rendezvous->world);
    const shm_control *control;
    gp_status status;
    uint8_t *map;
    int fd;

    status = fetch(shm, rendezvous, 0, GP_COMM_WHAT_CONTROL, &fd, err);
    if (status != GP_OK)
        return status;
    status = map_from(shm, 0, fd, bytes, &map, err);
    close(fd);
    if (status != GP_OK)
        return status;
    control = (const shm_control *)map;
    if (control->magic != MAGIC || control->lease != rendezvous->lease ||
        control->generation != rendezvous->generation || control->world != rendezvous->world) {
        status = gp_fail(
            err, GP_EPROTO,
            "worker %u (rank 0) formed lease %llu, generation %u, %u ranks; expected %llu, %u, %u",
            shm->peers[0].member.index, (unsigned long long)control->lease, control->generation,
            control->world, (unsigned long long)rendezvous->lease, rendezvous->generation, rendezvous->world);
        gp_sealed_unmap(map, bytes);
        return status;
    }
    control_install(shm, map, bytes, rendezvous);
    return GP_OK;
}

/* Map the arena of a peer, unless the existing mapping shows the same memory and is large
 * enough. */
static gp_status map_arena(shm_group *shm, uint32_t rank, int fd, size_t bytes, gp_error *err)
{
    shm_peer *peer = &shm->peers[rank];
    struct stat info;
    gp_status status;

    if (fstat(fd, &info) != 0)
        return gp_fail_errno(err, GP_EIO, "cannot stat the arena of rank %u", rank);
    if (peer->map != NULL && peer->bytes >= bytes && peer->inode == (uint64_t)info.st_ino)
        return GP_OK;
    gp_sealed_unmap(peer->map, peer->bytes);
    peer->map = NULL;
    status = map_from(shm, rank, fd, bytes, &peer->map, err);
    if (status != GP_OK)
        return status;
    peer->bytes = bytes;
    peer->inode = (uint64_t)info.st_ino;
    gp_sealed_populate(peer->map, shm->base.sparse ? STAGING_BYTES : bytes);
    return GP_OK;
}

/* Map the arenas of all peers. Descriptors are fetched in every generation: that is cheap, and only
 * the inode shows whether the peer's arena is still the mapped one. */
static gp_status map_arenas(shm_group *shm, const gp_comm_rendezvous *rendezvous, gp_error *err)
{
    for (uint32_t k = 0; k < rendezvous->world; k++) {
        gp_status status;
        int fd;

        if (k == rendezvous->rank) {
            shm->peers[k].map = shm->arena_map;
            shm->peers[k].bytes = shm->arena_map_bytes;
            continue;
        }
        status = fetch(shm, rendezvous, k, GP_COMM_WHAT_ARENA, &fd, err);
        if (status != GP_OK)
            return status;
        status = map_arena(shm, k, fd, map_bytes_of(rendezvous->arena_bytes), err);
        close(fd);
        if (status != GP_OK)
            return status;
    }
    return GP_OK;
}

/* Perform all steps of a join that can fail after the old generation was left. */
static gp_status join(shm_group *shm, const gp_comm_rendezvous *rendezvous, gp_error *err)
{
    gp_status status = adopt_members(shm, rendezvous, err);

    if (status == GP_OK)
        status = arena_grow(shm, rendezvous, err);
    if (status == GP_OK && rendezvous->world > 1)
        status = rendezvous->ops->publish(rendezvous->context, GP_COMM_WHAT_ARENA, shm->arena_fd, err);
    if (status == GP_OK)
        status =
            rendezvous->rank == 0 ? control_make(shm, rendezvous, err) : control_fetch(shm, rendezvous, err);
    if (status == GP_OK)
        status = map_arenas(shm, rendezvous, err);
    if (status == GP_OK)
        /* catches an abort before control_install() */
        status = check_forming(shm, rendezvous, err);
    if (status == GP_OK)
        status = gp_shm_sync(shm, rendezvous->arena_bytes, err);
    return status;
}

static gp_status shm_form(gp_comm *comm, const gp_comm_rendezvous *rendezvous, gp_error *err)
{
    shm_group *shm = shm_of(comm);
    gp_status status = check_rendezvous(shm, rendezvous, err);

    if (status != GP_OK)
        return status;
    control_drop(shm, MOVED_ON);
    pthread_mutex_lock(&shm->lock);
    shm->base.generation = rendezvous->generation;
    pthread_mutex_unlock(&shm->lock);
    shm->spin = rendezvous->spin && (long)rendezvous->world <= sysconf(_SC_NPROCESSORS_ONLN);
    status = join(shm, rendezvous, err);
    if (status != GP_OK && shm->control != NULL)
        gp_shm_end(shm->control, SHM_ABORTED, rendezvous->rank);
    if (status != GP_OK)
        control_drop(shm, MOVED_ON);
    return status;
}

static uint8_t *shm_arena(const gp_comm *comm, uint32_t rank)
{
    return ((const shm_group *)comm)->peers[rank].map + STAGING_BYTES;
}

static void shm_abort(gp_comm *comm, uint32_t generation)
{
    shm_group *shm = shm_of(comm);

    pthread_mutex_lock(&shm->lock);
    if (atomic_load(&shm->aborted_through) < generation)
        atomic_store(&shm->aborted_through, generation);
    if (shm->control != NULL && shm->base.generation <= generation)
        gp_shm_end(shm->control, SHM_ABORTED, shm->base.rank);
    pthread_mutex_unlock(&shm->lock);
}

static void shm_close(gp_comm *comm)
{
    shm_group *shm = shm_of(comm);

    forget_own_map(shm);
    for (uint32_t k = 0; k < shm->peer_count; k++)
        peer_release(&shm->peers[k]);
    /* after the peers' arenas are unmapped: UNMAPPED promises that this process writes to no
     * arena */
    control_drop(shm, UNMAPPED);
    arena_release(shm);
    pthread_mutex_destroy(&shm->lock);
    gp_free(shm);
}

const gp_comm_ops gp_comm_shm = {
    .name = "shm",
    .open = shm_open,
    .close = shm_close,
    .form = shm_form,
    .abort = shm_abort,
    .arena = shm_arena,
    .all_reduce = gp_shm_all_reduce,
    .all_reduce_private = gp_shm_all_reduce_private,
    .reduce_scatter = gp_shm_reduce_scatter,
    .all_gather = gp_shm_all_gather,
    .broadcast = gp_shm_broadcast,
    .broadcast_private = gp_shm_broadcast_private,
    .gather_private = gp_shm_gather_private,
    .barrier = gp_shm_barrier,
    .look = gp_shm_look_now,
    .send = gp_shm_send,
    .receive = gp_shm_receive,
    .probe = gp_shm_probe,
    .section = gp_shm_section,
};
