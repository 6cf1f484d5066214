/* trainer_shard.c -- one copy of parameters and optimiser state for all ranks of a host, each updating a share.
 *
 * With a copy on each rank a step of N ranks writes and reads N gradients to add them up, N times the sum, and N times
 * all parameters and state to update them alike.  With one, a rank reads its share of the N gradients, and its share of
 * parameters and state, once: memory is what an update waits for, so that is what counts (Xu et al. 2020, "Automatic
 * cross-replica sharding of weight update in data-parallel training"; Rajbhandari et al. 2020, "ZeRO"; here the
 * all-gather is no copy, the ranks' memory being one).  Sums are taken in the order of ranks, and an update knows no
 * neighbours: the bits are those of all-reduce and update on each rank.
 *
 * There are two copies, of which one is committed.  An update reads it and writes the other, which nobody reads:
 *
 *     compute, header (all gradients are there)  ->  update of our share  ->  barrier  ->  the other one is committed
 *
 * So until the barrier all that is written is scratch, and a rank that dies, or an abort, leaves step s to everybody.
 * The barrier is the commit: if one living rank has passed it, all pass it (comm.h), and have step s + 1.  What is
 * overwritten by step s + 2 is what step s had left: nobody reads that any more who has sent his header of step s + 2.
 *
 * Of large fully connected layers no gradient is there to be read: its slice is made on the way (trainer_factors.c).
 *
 * Not with clipping, which wants the norm of the whole sum first; not with `reproducible`, which adds up integers; not
 * for small networks, where an update takes less than a barrier. */
#include <string.h>

#include "common/base/memory/alloc.h"
#include "common/base/clock.h"
#include "worker/backend/cpu/base/threads.h"
#include "worker/comm/reduce.h"
#include "common/base/system/fault.h"
#include "worker/train/trainer_state.h"

/* BLOCK: numbers added up and updated at once.  Few: all memory that is read and written is then before the processor's
 * eyes at any time. */
enum { SHARD_MINIMUM = 1 << 18, BLOCK = 256, RANGES = 4, OWNER = 0 };

bool gp_trainer_shards(const gp_trainer *trainer)
{
    size_t minimum = trainer->shard_minimum == 0 ? SHARD_MINIMUM : trainer->shard_minimum;

    return trainer->world > 1 && trainer->graph->blob_count >= minimum &&
           trainer->backend_ops->rebind != NULL && !trainer->options.reproducible &&
           trainer->options.gradient_threshold <= 0;
}

static uint32_t state_blobs(const gp_trainer *trainer)
{
    uint64_t *step;
    uint32_t blobs;

    gp_optim_state(trainer->optim, &blobs, &step);
    return blobs;
}

size_t gp_trainer_shard_bytes(const gp_trainer *trainer)
{
    size_t blob_bytes = trainer->graph->blob_count * sizeof(float);

    return 2 * (1 + state_blobs(trainer)) * blob_bytes + RANGES * 64;
}

static void shard_use(gp_trainer *trainer, uint32_t now)
{
    trainer->shards.now = now;
    trainer->parameters = trainer->shards.parameters[now];
    gp_optim_place_state(trainer->optim, trainer->shards.state[now]);
}

void gp_trainer_shard_release(gp_trainer *trainer)
{
    if (trainer->again || trainer->rank == OWNER)
        return;
    gp_free(trainer->parameters);
    trainer->parameters = NULL;
    gp_optim_place_state(trainer->optim, NULL);
}

/* Take the arena of one copy. */
static gp_status copy_take(gp_trainer *trainer, int copy, gp_error *err)
{
    shards *s = &trainer->shards;
    size_t blob_bytes = trainer->graph->blob_count * sizeof(float);
    void *parameters, *state;
    gp_status status = gp_comm_arena_alloc_of(trainer->comm, OWNER, blob_bytes, &parameters, err);

    if (status == GP_OK)
        status = gp_comm_arena_alloc_of(trainer->comm, OWNER, state_blobs(trainer) * blob_bytes, &state, err);
    if (status != GP_OK)
        return status;
    s->parameters[copy] = parameters;
    s->state[copy] = state;
    return GP_OK;
}

static void copy_fill(const gp_trainer *trainer, int copy, const float *parameters, const float *state)
{
    size_t blob_bytes = trainer->graph->blob_count * sizeof(float);

    if (trainer->rank != OWNER)
        return;
    memcpy(trainer->shards.parameters[copy], parameters, blob_bytes);
    memcpy(trainer->shards.state[copy], state, state_blobs(trainer) * blob_bytes);
}

gp_status gp_trainer_shard_state(gp_trainer *trainer, gp_error *err)
{
    shards *s = &trainer->shards;
    gp_checkpoint ours;
    gp_status status = copy_take(trainer, 0, err);

    if (status != GP_OK)
        return status;
    gp_trainer_checkpoint(trainer, &ours);
    copy_fill(trainer, 0, ours.parameters, ours.state);
    gp_free(trainer->parameters); /* before the second copy: a large network fits twice, not three times */
    trainer->sharded = true;
    shard_use(trainer, 0);
    status = copy_take(trainer, 1, err);
    if (status != GP_OK)
        return status;
    copy_fill(trainer, 1, s->parameters[0], s->state[0]);
    status = gp_comm_barrier(trainer->comm, err);
    if (status != GP_OK)
        return status;
    for (uint32_t k = 0; k < trainer->world; k++)
        s->gradients[k] = gp_comm_arena_copy(trainer->comm, k, trainer->gradients);
    return GP_OK;
}

typedef struct shard_call {
    gp_trainer *trainer;
    gp_optim_pass pass;
} shard_call;

/* Elements [first, end) of a tensor. */
static void shard_update(const shard_call *call, uint32_t parameter, size_t first, size_t end)
{
    const gp_trainer *trainer = call->trainer;
    size_t offset = trainer->graph->parameters[parameter].offset;
    _Alignas(64) float sum[BLOCK];

    for (size_t at = first; at < end; at += BLOCK) {
        size_t count = end - at < BLOCK ? end - at : BLOCK;

        gp_reduce_into(sum, (void *const *)trainer->shards.gradients, trainer->world, offset + at,
                       offset + at + count, GP_F32, GP_COMM_SUM);
        gp_optim_update(&call->pass, parameter, at, count, sum);
    }
}

/* A thread's part of our rank's slice of a tensor. */
static void shard_slice(const shard_call *call, uint32_t parameter, uint32_t thread, uint32_t threads)
{
    const gp_trainer *trainer = call->trainer;
    size_t count = (size_t)trainer->graph->parameters[parameter].count, first, end;

    gp_comm_slice(trainer->comm, count, GP_F32, trainer->rank, &first, &end);

    size_t blocks = (end - first + BLOCK - 1) / BLOCK;
    size_t part = first + blocks * thread / threads * BLOCK,
           part_end = first + blocks * (thread + 1) / threads * BLOCK;

    shard_update(call, parameter, part, part_end < end ? part_end : end);
}

/* Of every tensor our rank's slice, and of that a part for each thread. */
static void shard_share(void *context, uint32_t thread, uint32_t threads)
{
    const shard_call *call = context;
    gp_trainer *trainer = call->trainer;

    for (uint32_t i = 0; i < trainer->graph->parameter_count; i++) {
        const gp_factor *factor = gp_trainer_factor(trainer, i);

        if (!gp_parameter_learns(&trainer->graph->parameters[i]))
            continue;
        if (thread == 0 && i > 0)
            gp_fault_point("between-buckets");
        if (thread == 0) {
            gp_fault_point("exchange");
            gp_trainer_progress(trainer);
        }
        if (factor != NULL)
            gp_trainer_update_factor(trainer, &call->pass, factor, thread, threads);
        else
            shard_slice(call, i, thread, threads);
    }
    gp_optim_flush();
}

/* Running statistics are few: one rank moves them all.  Nobody reads its gradients in their place. */
static void shard_statistics(gp_trainer *trainer, float *next)
{
    const gp_graph *graph = trainer->graph;

    if (trainer->rank != OWNER)
        return;
    for (uint32_t i = 0; i < graph->parameter_count; i++) {
        const gp_parameter *parameter = &graph->parameters[i];
        size_t first = parameter->offset, count = (size_t)parameter->count;

        if (parameter->statistic == GP_STATISTIC_NONE)
            continue;
        gp_reduce_into(trainer->gradients + first, (void *const *)trainer->shards.gradients, trainer->world,
                       first, first + count, GP_F32, GP_COMM_SUM);
        memcpy(next + first, trainer->parameters + first, count * sizeof(float));
    }
    gp_statistics_commit(graph, next, trainer->gradients, trainer->header[HEADER_SAMPLES]);
}

gp_status gp_trainer_shard_commit(gp_trainer *trainer, double weight, double learn_rate, gp_error *err)
{
    shards *s = &trainer->shards;
    uint32_t next = !s->now;
    shard_call call = { .trainer = trainer };
    int64_t begin_ns;
    gp_status status;

    gp_optim_begin(&call.pass, trainer->optim, trainer->parameters, weight, learn_rate);
    call.pass.next_parameters = s->parameters[next];
    call.pass.next_state = s->state[next];
    shard_statistics(trainer, s->parameters[next]);
    gp_threads_run(gp_threads_prepared(), shard_share, &call);
    begin_ns = gp_now_ns();
    status = gp_comm_barrier(trainer->comm, err);
    trainer->exchange_ns += gp_now_ns() - begin_ns;
    if (status != GP_OK)
        return status;
    gp_optim_end(trainer->optim);
    shard_use(trainer, next);
    trainer->backend_ops->rebind(trainer->plan, trainer->parameters);
    if (trainer->validation_plan != NULL)
        trainer->backend_ops->rebind(trainer->validation_plan, trainer->parameters);
    return GP_OK;
}
