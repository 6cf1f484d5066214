/* Checks the arguments of collectives, maintains counters and allocates arena ranges. */
#include "worker/comm/sealed.h"
#include "worker/comm/shm.h"

#include "common/base/clock.h"

enum { ALIGNMENT = 64 };

uint32_t gp_comm_rank(const gp_comm *comm)
{
    return comm->rank;
}

uint32_t gp_comm_world(const gp_comm *comm)
{
    return comm->world;
}

uint32_t gp_comm_generation(const gp_comm *comm)
{
    return comm->world == 0 ? 0 : comm->generation;
}

gp_status gp_shm_check_formed(const gp_comm *comm, gp_error *err)
{
    if (comm->world == 0)
        return gp_fail(err, GP_ESTATE, "this rank is not in a group; call gp_comm_form() first");
    return GP_OK;
}

/* Allocate the next `bytes` in all arenas. If `ours`, also commit the memory of a sparse arena
 * here. */
static gp_status arena_next(gp_comm *comm, size_t bytes, bool ours, size_t *offset, gp_error *err)
{
    size_t left = comm->arena_bytes - comm->arena_used;

    if (bytes > left)
        return gp_fail(
            err, GP_ELIMIT,
            "cannot allocate %zu bytes: the arena has %zu of %zu bytes left; pass a larger arena_bytes",
            bytes, left, comm->arena_bytes);
    if (comm->sparse && ours && gp_sealed_take(comm->arena + comm->arena_used, bytes, err) != GP_OK)
        return GP_ENOMEM;
    *offset = comm->arena_used;
    bytes = (bytes + ALIGNMENT - 1) & ~(size_t)(ALIGNMENT - 1);
    comm->arena_used += bytes < left ? bytes : left;
    return GP_OK;
}

gp_status gp_comm_arena_alloc(gp_comm *comm, size_t bytes, void **out, gp_error *err)
{
    size_t offset;
    gp_status status = arena_next(comm, bytes, true, &offset, err);

    if (status == GP_OK)
        *out = comm->arena + offset;
    return status;
}

gp_status gp_comm_arena_alloc_of(gp_comm *comm, uint32_t owner, size_t bytes, void **out, gp_error *err)
{
    size_t offset;
    gp_status status = gp_shm_check_formed(comm, err);

    if (status == GP_OK && owner >= comm->world)
        status = gp_fail(err, GP_EINVAL, "rank %u is not in the group of %u ranks", owner, comm->world);
    if (status == GP_OK)
        status = arena_next(comm, bytes, owner == comm->rank, &offset, err);
    if (status == GP_OK)
        *out = comm->peers[owner].map + STAGING_BYTES + offset;
    return status;
}

void *gp_comm_arena_copy(const gp_comm *comm, uint32_t rank, const void *range)
{
    return comm->peers[rank].map + STAGING_BYTES + ((const uint8_t *)range - comm->arena);
}

void gp_comm_arena_reset(gp_comm *comm)
{
    if (comm->sparse && comm->arena_used > 0)
        gp_sealed_give_back(comm->arena, comm->arena_used);
    comm->arena_used = 0;
}

void gp_comm_slice(const gp_comm *comm, size_t count, gp_dtype type, uint32_t rank, size_t *first,
                   size_t *last)
{
    /* Round up to whole cache lines, so that two owners never write to the same line. */
    size_t line = ALIGNMENT / gp_dtype_bytes(type);
    size_t share = (count / comm->world + (count % comm->world != 0) + line - 1) / line * line;

    *first = share * rank < count ? share * rank : count;
    *last = share < count - *first ? *first + share : count;
}

/* Add to a counter. Each counter has a single writer, so a plain load and store are enough. */
static void add(_Atomic uint64_t *total, uint64_t more)
{
    atomic_store_explicit(total, atomic_load_explicit(total, memory_order_relaxed) + more,
                          memory_order_relaxed);
}

/* Update the counters after a successful operation; return `status`. */
static gp_status finish(gp_comm *comm, gp_status status, size_t bytes, int64_t began_ns)
{
    if (status == GP_OK) {
        add(&comm->total_ns, (uint64_t)(gp_now_ns() - began_ns));
        add(&comm->bytes, bytes);
        add(&comm->operations, 1);
    }
    return status;
}

typedef gp_status (*collective)(gp_comm *comm, const gp_comm_call *call, gp_error *err);

/* Check and execute one reduction or gather. */
static gp_status run(gp_comm *comm, collective operation, gp_comm_call *call, bool in_arena, gp_error *err)
{
    int64_t began_ns = gp_now_ns();
    gp_dtype type = call->type;
    size_t size = gp_dtype_bytes(type);
    uintptr_t start = (uintptr_t)comm->arena, at = (uintptr_t)call->buffer;

    if (type != GP_F32 && type != GP_F64 && type != GP_I32 && type != GP_I64)
        return gp_fail(err, GP_EINVAL, "cannot reduce elements of type %s (%d); must be f32, f64, i32 or i64",
                       gp_dtype_name(type), (int)type);
    if (gp_shm_check_formed(comm, err) != GP_OK)
        return GP_ESTATE;
    if (call->how != GP_COMM_SUM && call->how != GP_COMM_MAX)
        return gp_fail(err, GP_EINVAL, "unknown reduction operator %d", (int)call->how);
    if (call->count > SIZE_MAX / size || at % size != 0)
        return gp_fail(err, GP_EINVAL,
                       "invalid buffer: %zu elements of type %d at %p are unaligned or too many", call->count,
                       (int)type, call->buffer);
    if (in_arena && (at < start || at - start > comm->arena_bytes ||
                     call->count * size > comm->arena_bytes - (at - start)))
        return gp_fail(
            err, GP_EINVAL,
            "a buffer of %zu bytes is not in the arena of %zu bytes; allocate it with gp_comm_arena_alloc()",
            call->count * size, comm->arena_bytes);
    call->offset = in_arena ? at - start : 0;
    return finish(comm, operation(comm, call, err), call->count * size, began_ns);
}

gp_status gp_comm_all_reduce(gp_comm *comm, void *buffer, size_t count, gp_dtype type, gp_comm_reduction how,
                             gp_error *err)
{
    gp_comm_call call = { .buffer = buffer, .count = count, .type = type, .how = how };

    return run(comm, gp_shm_all_reduce, &call, true, err);
}

gp_status gp_comm_all_reduce_private(gp_comm *comm, void *buffer, size_t count, gp_dtype type,
                                     gp_comm_reduction how, gp_error *err)
{
    gp_comm_call call = { .buffer = buffer, .count = count, .type = type, .how = how };

    return run(comm, gp_shm_all_reduce_private, &call, false, err);
}

gp_status gp_comm_reduce_scatter(gp_comm *comm, void *buffer, size_t count, gp_dtype type,
                                 gp_comm_reduction how, gp_error *err)
{
    gp_comm_call call = { .buffer = buffer, .count = count, .type = type, .how = how };

    return run(comm, gp_shm_reduce_scatter, &call, true, err);
}

gp_status gp_comm_all_gather(gp_comm *comm, void *buffer, size_t count, gp_dtype type, gp_error *err)
{
    gp_comm_call call = { .buffer = buffer, .count = count, .type = type, .how = GP_COMM_SUM };

    return run(comm, gp_shm_all_gather, &call, true, err);
}

gp_status gp_comm_gather_private(gp_comm *comm, void *all, const size_t *parts, gp_error *err)
{
    int64_t began_ns = gp_now_ns();
    gp_status status = gp_shm_check_formed(comm, err);

    for (uint32_t k = 0; status == GP_OK && k < comm->world; k++) {
        if (parts[0] != 0 || parts[k + 1] < parts[k])
            status = gp_fail(err, GP_EINVAL, "the parts of a gather operation are not contiguous");
    }
    if (status != GP_OK)
        return status;
    return finish(comm, gp_shm_gather_private(comm, all, parts, err), parts[comm->world], began_ns);
}

gp_status gp_comm_broadcast(gp_comm *comm, void *buffer, size_t bytes, uint32_t root, gp_error *err)
{
    size_t parts[GP_COMM_WORLD_MAX + 1];

    if (comm->world != 0 && root >= comm->world)
        return gp_fail(err, GP_EINVAL, "cannot broadcast from rank %u: the group has %u ranks", root,
                       comm->world);
    for (uint32_t k = 0; k <= comm->world; k++)
        parts[k] = k > root ? bytes : 0; /* a gathering in which only the root has a part */
    return gp_comm_gather_private(comm, buffer, parts, err);
}

gp_status gp_comm_barrier(gp_comm *comm, gp_error *err)
{
    int64_t began_ns = gp_now_ns();
    gp_status status = gp_shm_check_formed(comm, err);

    if (status == GP_OK)
        status = gp_shm_barrier(comm, err);
    return finish(comm, status, 0, began_ns);
}

gp_comm_stats gp_comm_get_stats(const gp_comm *comm)
{
    gp_comm_stats stats = { .operations = atomic_load_explicit(&comm->operations, memory_order_relaxed),
                            .bytes = atomic_load_explicit(&comm->bytes, memory_order_relaxed),
                            .wait_ns = atomic_load_explicit(&comm->wait_ns, memory_order_relaxed) };
    uint64_t total_ns = atomic_load_explicit(&comm->total_ns, memory_order_relaxed);

    stats.work_ns = total_ns > stats.wait_ns ? total_ns - stats.wait_ns : 0;
    return stats;
}
