/* task_block.c -- GP_CALL_BLOCK and related calls: one rank in an spmd block, and that rank's
 * result until the client fetches it. */
#include "worker/task/task_block.h"

#include <stdlib.h>
#include <string.h>

#include "common/base/memory/alloc.h"
#include "common/base/clock.h"
#include "worker/task/object.h"

/* Time limit for control, which may be without a core, to receive a generation that the client
 * already knows. */
enum { GRANT_WAIT_MS = 20000 };

/* Address space for a block's models; memory is allocated on use. */
static const size_t ARENA_BYTES = (size_t)16 << 30;

typedef struct kept_result {
    uint64_t block;
    gp_result result;
} kept_result;

struct gp_task_blocks {
    gp_task_group group;
    kept_result *kept; /* sorted by block number */
    size_t kept_count;
};

void gp_task_blocks_free(struct gp_task_blocks *blocks)
{
    if (blocks == NULL)
        return;
    gp_group_deinit(&blocks->group);
    for (size_t k = 0; k < blocks->kept_count; k++)
        gp_result_close(&blocks->kept[k].result);
    gp_free(blocks->kept);
    gp_free(blocks);
}

/* ---- the group ---- */

/* Publish the communicator, so that control can abort the waits of this thread during the block. */
void gp_group_enter(gp_task_group *group, gp_tasks *tasks, uint64_t block)
{
    group->broken = false;
    group->balance = 0;
    gp_train_control_set_comm(tasks->train, group->comm, group->number);
    atomic_store(&tasks->server->world, group->world);
    gp_comm_enter(group->comm, block);
}

void gp_group_leave(gp_task_group *group, gp_tasks *tasks)
{
    gp_comm_leave(group->comm);
    gp_comm_arena_reset(group->comm);
    atomic_store(&tasks->server->world, 0);
    gp_train_control_set_comm(tasks->train, NULL, 0);
    gp_group_release(group);
}

void gp_group_deinit(gp_task_group *group)
{
    gp_comm_free(group->comm);
    gp_free(group->received);
    *group = (gp_task_group){ 0 };
}

static uint32_t rank_of(const gp_taken *call)
{
    return (uint32_t)call->first;
}

/* Begin the rendezvous for the call's lease generation. The scheduler notifies workers before the
 * client, but control may not have processed the message yet. */
static gp_status group_begin(gp_tasks *tasks, const gp_taken *call, gp_rendezvous **rendezvous,
                             gp_comm_rendezvous *out, gp_error *err)
{
    int64_t deadline = gp_now_ms() + GRANT_WAIT_MS;
    uint32_t generation = (uint32_t)(call->first >> 32);
    bool spin = !tasks->device->shared;

    for (;;) {
        gp_status status;

        *rendezvous = tasks->host.rendezvous(tasks->host.context);
        if (*rendezvous == NULL)
            return gp_fail(err, GP_ESTATE, "the worker has no lease to run a block");
        status = gp_rendezvous_begin(*rendezvous, call->count, spin, out, err);
        if (status != GP_OK)
            return status;
        if (out->generation == generation)
            break;
        if (out->generation > generation || gp_now_ms() > deadline || gp_tasks_canceled(tasks))
            return gp_fail(err, GP_ESTALE,
                           "stale block: it has generation %u of the lease, the worker has generation %u",
                           generation, out->generation);
        gp_sleep_ms(1);
    }
    if (out->rank != rank_of(call))
        return gp_fail(err, GP_EPROTO, "the block assigns rank %u to the worker with rank %u", rank_of(call),
                       out->rank);
    return GP_OK;
}

/* Form a group with a new communicator: ranks from the previous group that are not in this one may
 * be alive. */
static gp_status group_form(gp_task_group *group, gp_tasks *tasks, const gp_taken *call, gp_error *err)
{
    gp_comm_member members[GP_COMM_WORLD_MAX];
    gp_rendezvous *rendezvous;
    gp_comm_rendezvous how;
    gp_status status = group_begin(tasks, call, &rendezvous, &how, err);

    /* Error messages identify workers by their number in the team, as the client does. */
    for (uint32_t rank = 0; status == GP_OK && rank < how.world; rank++) {
        members[rank] = how.members[rank];
        members[rank].index = rank + 1;
    }
    how.members = members;

    if (status == GP_OK)
        status = gp_comm_new(&group->comm, err);
    if (status != GP_OK)
        return status;
    how.generation = call->attempt;
    how.arena_bytes = ARENA_BYTES;
    how.sparse = true;
    gp_train_control_set_comm(tasks->train, group->comm, call->attempt);
    atomic_store(&tasks->server->world, call->count);
    /* A stop that precedes the communicator is recorded in the link. */
    status = gp_tasks_canceled(tasks)
                 ? gp_fail(err, GP_ECANCELED, "the block was ended while its group formed")
                 : gp_comm_form(group->comm, &how, err);

    /* before the client learns of this block, and so before the next group forms */
    gp_rendezvous_end(rendezvous);
    gp_train_control_set_comm(tasks->train, NULL, 0);
    atomic_store(&tasks->server->world, 0);
    if (status != GP_OK)
        return status;
    group->number = call->attempt;
    group->rank = how.rank;
    group->world = how.world;
    return GP_OK;
}

gp_status gp_group_join(gp_task_group *group, gp_tasks *tasks, const gp_taken *call, gp_error *err)
{
    gp_status status;

    if (call->count < 1 || call->count > GP_COMM_WORLD_MAX || rank_of(call) >= call->count ||
        call->attempt == 0)
        return gp_fail(err, GP_EPROTO, "started rank %u of a block of %u in group %u", rank_of(call),
                       call->count, call->attempt);
    if (group->number == call->attempt && group->world == call->count && group->rank == rank_of(call))
        return GP_OK;
    gp_group_deinit(group);
    status = group_form(group, tasks, call, err);
    if (status != GP_OK)
        gp_group_deinit(group);
    return status;
}

/* ---- kept results ---- */

/* Return a block's index, or the insertion index. */
static size_t kept_find(const struct gp_task_blocks *blocks, uint64_t block)
{
    size_t low = 0, high = blocks->kept_count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (blocks->kept[middle].block < block)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool kept_has(const struct gp_task_blocks *blocks, size_t k, uint64_t block)
{
    return k < blocks->kept_count && blocks->kept[k].block == block;
}

static void kept_remove(struct gp_task_blocks *blocks, size_t k)
{
    blocks->kept_count--;
    memmove(blocks->kept + k, blocks->kept + k + 1, (blocks->kept_count - k) * sizeof(*blocks->kept));
}

/* Keep a result. *result is taken over on GP_OK. */
static gp_status kept_add(struct gp_task_blocks *blocks, uint64_t block, gp_result *result, gp_error *err)
{
    size_t k = kept_find(blocks, block);

    if (kept_has(blocks, k, block))
        return gp_fail(err, GP_EPROTO, "this worker already has a result of block %llu",
                       (unsigned long long)block);
    if (blocks->kept_count == GP_BLOCKS_KEPT_MAX)
        return gp_fail(err, GP_ELIMIT,
                       "the worker has reached its limit of %d block results; free some first",
                       GP_BLOCKS_KEPT_MAX);
    kept_result *kept = gp_array_grow(blocks->kept, blocks->kept_count, sizeof(*kept));

    if (kept == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory to keep the result of a block");
    blocks->kept = kept;
    memmove(blocks->kept + k + 1, blocks->kept + k, (blocks->kept_count - k) * sizeof(*blocks->kept));
    blocks->kept[k] = (kept_result){ block, *result };
    blocks->kept_count++;
    *result = (gp_result){ .fd = -1 };
    return GP_OK;
}

gp_status gp_block_fetch(gp_tasks *tasks, const gp_taken *call, gp_outcome *out, gp_error *err)
{
    struct gp_task_blocks *blocks = tasks->blocks;
    size_t k = blocks == NULL ? 0 : kept_find(blocks, (uint64_t)call->first);

    if (blocks == NULL || !kept_has(blocks, k, (uint64_t)call->first))
        return gp_fail(err, GP_ENOENT, "the worker no longer has the result of the block");
    gp_result_answer(&blocks->kept[k].result, out);
    gp_result_close(&blocks->kept[k].result);
    kept_remove(blocks, k);
    return GP_OK;
}

gp_status gp_block_forget(gp_tasks *tasks, const gp_taken *call, gp_outcome *out, gp_error *err)
{
    struct gp_task_blocks *blocks = tasks->blocks;
    size_t k = blocks == NULL ? 0 : kept_find(blocks, (uint64_t)call->first);

    (void)out;
    (void)err;
    if (blocks != NULL && kept_has(blocks, k, (uint64_t)call->first)) {
        gp_result_close(&blocks->kept[k].result);
        kept_remove(blocks, k);
    }
    return GP_OK;
}

/* ---- running a block ---- */

gp_status gp_block_run(gp_tasks *tasks, const gp_taken *call, gp_outcome *out, gp_error *err)
{
    struct gp_task_blocks *blocks = tasks->blocks;
    gp_task_fn function;
    gp_task task;
    gp_status status;

    if (blocks == NULL)
        blocks = tasks->blocks = gp_calloc(1, sizeof(*blocks));
    if (blocks == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for a block");
    *(void **)&function = gp_objects_find(tasks->objects, call->function, err);
    if (function == NULL)
        return err->code;
    status = gp_group_join(&blocks->group, tasks, call, err);
    if (status != GP_OK) {
        out->value = GP_BLOCK_NOT_FORMED;
        return status;
    }
    gp_task_begin(&task, tasks, call);
    task.index = rank_of(call) + 1;
    task.size = call->count;
    task.attempt = 1;
    task.stream.position = rank_of(call);
    task.group = &blocks->group;
    status = gp_tasks_view(tasks, call, &task.argument, err);
    gp_group_enter(&blocks->group, tasks, call->id);
    if (status == GP_OK)
        status = function(&task, err);
    gp_task_release(&task);
    gp_group_leave(&blocks->group, tasks);
    /* Send a short result with the answer; keep a long one until the client fetches it. */
    if (status == GP_OK && task.result.bytes <= GP_LINK_INLINE_MAX) {
        gp_result_answer(&task.result, out);
    } else if (status == GP_OK) {
        out->flags = GP_ANSWER_KEPT;
        out->value = task.result.bytes;
        status = kept_add(blocks, call->id, &task.result, err);
    }
    gp_result_close(&task.result);
    out->count = blocks->group.balance;
    if (blocks->group.broken)
        out->flags |= GP_ANSWER_BROKEN;
    if (status != GP_OK && blocks->group.broken)
        out->value = GP_BLOCK_GROUP_FAILED;
    return status;
}
