/* trainer_shard.c -- one copy of parameters and optimizer state for all ranks on a host; each
 * rank updates a shard.
 *
 * With a copy on each rank, a step of N ranks writes and reads N gradients to sum them, N times
 * the sum, and N times all parameters and state to apply the same update. With one copy, a rank
 * reads its shard of the N gradients and of parameters and state once. An update is bound by
 * memory bandwidth, so this traffic determines its time (Xu et al. 2020, "Automatic
 * cross-replica sharding of weight update in data-parallel training"; Rajbhandari et al. 2020,
 * "ZeRO"). The all-gather needs no copy, because the ranks share memory. Sums are computed in
 * rank order and an update is elementwise, so the result is bitwise identical to an all-reduce
 * with an update on each rank.
 *
 * Two copies exist; one of them is committed. An update reads the committed copy and writes the
 * other, which no rank reads:
 *
 *   compute, header (all gradients are written)  ->  update of this rank's shard  ->  barrier
 *                                                ->  swap copies
 *
 * Before the barrier only scratch memory is written, so a failed rank or an abort leaves step s
 * on all ranks. The barrier is the commit: if one surviving rank has passed it, all pass it
 * (comm.h) and have step s + 1. Step s + 2 overwrites the copy of step s, which no rank reads
 * after it has sent its header of step s + 2.
 *
 * Large fully connected layers have no gradient in memory: trainer_factors.c computes this
 * rank's shard.
 *
 * Sharding excludes gradient clipping, which needs the norm of the whole sum first,
 * `reproducible`, which sums integers, and small networks, where an update is faster than a
 * barrier. */
#include "worker/train/trainer_shard.h"

#include <string.h>

#include "common/base/memory/alloc.h"
#include "common/base/system/fault.h"
#include "worker/backend/cpu/base/threads.h"
#include "worker/comm/reduce.h"

/* BLOCK: numbers summed and updated at once. Small blocks keep the accesses to all arrays close
 * together, so that the hardware prefetcher can follow. RANGES: ranges in the arena, each
 * aligned to 64 bytes. */
enum { SHARD_MINIMUM = 1 << 18, BLOCK = 256, RANGES = 4 };

gp_status gp_shards_init(gp_shards *shards, const gp_graph *graph, const gp_train_options *options,
                         size_t minimum, uint32_t batch, gp_error *err)
{
    if (minimum == 0)
        minimum = SHARD_MINIMUM;
    shards->active =
        graph->blob_count >= minimum && !options->reproducible && options->gradient_threshold <= 0;
    return shards->active ? gp_factor_list_init(&shards->factors, graph, batch, err) : GP_OK;
}

void gp_shards_deinit(gp_shards *shards)
{
    gp_factor_list_deinit(&shards->factors);
}

static size_t state_bytes(const gp_graph *graph, gp_optim *optim)
{
    uint32_t blobs;

    gp_optim_state(optim, &blobs, NULL);
    return blobs * graph->blob_count * sizeof(float);
}

size_t gp_shards_bytes(const gp_shards *shards, const gp_graph *graph, gp_optim *optim)
{
    return shards->active ? 2 * (graph->blob_count * sizeof(float) + state_bytes(graph, optim)) +
                                RANGES * 64 + gp_factor_list_bytes(&shards->factors)
                          : 0;
}

/* Make a copy the committed one. */
static void shards_use(gp_shards *shards, uint32_t now, float **parameters, gp_optim *optim)
{
    shards->now = now;
    *parameters = shards->parameters[now];
    gp_optim_place_state(optim, shards->state[now]);
}

/* Allocate the arena memory of one copy; the owner fills it. */
static gp_status copy_take(gp_shards *shards, int copy, const float *parameters, const float *state,
                           size_t blob_bytes, size_t state_bytes, gp_comm *comm, gp_error *err)
{
    void *ranges[2];
    gp_status status = gp_comm_arena_alloc_of(comm, GP_SHARD_OWNER, blob_bytes, &ranges[0], err);

    if (status == GP_OK)
        status = gp_comm_arena_alloc_of(comm, GP_SHARD_OWNER, state_bytes, &ranges[1], err);
    if (status != GP_OK)
        return status;
    shards->parameters[copy] = ranges[0];
    shards->state[copy] = ranges[1];
    if (gp_comm_rank(comm) == GP_SHARD_OWNER) {
        memcpy(ranges[0], parameters, blob_bytes);
        memcpy(ranges[1], state, state_bytes);
    }
    return GP_OK;
}

gp_status gp_shards_place(gp_shards *shards, float **parameters, gp_graph *graph, gp_optim *optim,
                          gp_exchange *exchange, gp_error *err)
{
    size_t blob = graph->blob_count * sizeof(float), state = state_bytes(graph, optim);
    gp_comm *comm = exchange->comm;
    gp_status status;

    if (!shards->active)
        return GP_OK;
    status = copy_take(shards, 0, *parameters, gp_optim_state(optim, NULL, NULL), blob, state, comm, err);
    if (status != GP_OK)
        return status;
    gp_free(*parameters); /* before the second copy is allocated, so that at most two exist */
    shards_use(shards, 0, parameters, optim);
    status = copy_take(shards, 1, shards->parameters[0], shards->state[0], blob, state, comm, err);
    if (status == GP_OK)
        status = gp_comm_barrier(comm, err);
    if (status != GP_OK)
        return status;
    for (uint32_t k = 0; k < gp_comm_world(comm); k++)
        shards->gradients[k] = gp_comm_arena_copy(comm, k, exchange->gradients);
    return gp_factor_list_place(&shards->factors, graph, comm, err);
}

/* ---- a step ---- */

typedef struct shard_call {
    const gp_shards *shards;
    const gp_exchange *exchange;
    const gp_graph *graph;
    gp_optim_pass pass;
    uint32_t rank, world;
} shard_call;

/* Update one thread's part of this rank's shard of all tensors. */
static void shard_share(void *context, uint32_t thread, uint32_t threads)
{
    const shard_call *call = context;
    const size_t samples = (size_t)call->exchange->header[GP_HEADER_SAMPLES];

    _Alignas(64) float sum[BLOCK];

    for (uint32_t i = 0; i < call->graph->parameter_count; i++) {
        const gp_factor *factor = gp_factor_list_find(&call->shards->factors, i);
        const gp_parameter *about = &call->graph->parameters[i];
        size_t first, end;

        if (!gp_parameter_learns(about))
            continue;
        if (thread == 0 && i > 0)
            gp_fault_point("between-buckets");
        if (thread == 0) {
            gp_fault_point("exchange");
            gp_train_control_progress(call->exchange->control);
        }
        if (factor != NULL) {
            gp_factor_update(factor, &call->pass, samples, (size_t)call->rank * threads + thread,
                             (size_t)call->world * threads);
            continue;
        }
        /* Sum and update this thread's part of the shard. */
        gp_comm_slice(call->exchange->comm, (size_t)about->count, GP_F32, call->rank, &first, &end);

        size_t blocks = (end - first + BLOCK - 1) / BLOCK,
               part_end = first + blocks * (thread + 1) / threads * BLOCK;

        end = part_end < end ? part_end : end;
        for (size_t at = first + blocks * thread / threads * BLOCK; at < end; at += BLOCK) {
            size_t count = end - at < BLOCK ? end - at : BLOCK;

            gp_reduce_into(sum, (void *const *)call->shards->gradients, call->world, about->offset + at,
                           about->offset + at + count, GP_F32, GP_COMM_SUM);
            gp_optim_update(&call->pass, i, at, count, sum);
        }
    }
    gp_optim_flush();
}

gp_status gp_shards_commit(gp_shards *shards, float **parameters, const gp_graph *graph, gp_optim *optim,
                           gp_exchange *exchange, double learn_rate, gp_error *err)
{
    uint32_t next = !shards->now;
    shard_call call = { .shards = shards,
                        .exchange = exchange,
                        .graph = graph,
                        .rank = gp_comm_rank(exchange->comm),
                        .world = gp_comm_world(exchange->comm) };
    gp_status status;

    gp_optim_begin(&call.pass, optim, *parameters, exchange->header[GP_SUM_WEIGHT], learn_rate);
    call.pass.next_parameters = shards->parameters[next];
    call.pass.next_state = shards->state[next];
    /* Update the running statistics. They are small, so the owner updates all of them. The sums
     * replace the owner's gradients in place, because no other rank reads these. */
    for (uint32_t i = 0; call.rank == GP_SHARD_OWNER && i < graph->parameter_count; i++) {
        const gp_parameter *parameter = &graph->parameters[i];
        size_t first = parameter->offset, count = (size_t)parameter->count;

        if (parameter->statistic == GP_STATISTIC_NONE)
            continue;
        gp_reduce_into(exchange->gradients + first, (void *const *)shards->gradients, call.world, first,
                       first + count, GP_F32, GP_COMM_SUM);
        memcpy(call.pass.next_parameters + first, *parameters + first, count * sizeof(float));
    }
    if (call.rank == GP_SHARD_OWNER)
        gp_statistics_commit(graph, call.pass.next_parameters, exchange->gradients,
                             exchange->header[GP_HEADER_SAMPLES], false);
    gp_threads_run(gp_threads_prepared(), shard_share, &call);
    status = gp_exchange_barrier(exchange, err);
    if (status != GP_OK)
        return status;
    gp_optim_end(optim);
    shards_use(shards, next, parameters, optim);
    return GP_OK;
}
