/* task_comm.c -- communication between a block's ranks (task.h), implemented with comm.h.
 *
 * Indices in task.h count from 1, ranks in comm.h from 0. An operation that fails on all ranks
 * makes the group unusable: it is marked broken, and the client forms a new one for the next
 * block. */
#include <string.h>

#include "common/base/memory/alloc.h"
#include "proto/task/reduction.h"
#include "worker/task/task_block.h"

enum {
    PART_ALIGN = 64,
    /* limit for all ranks together; above it, data are passed on rank by rank */
    GATHER_BYTES_MAX = 8 << 20,
};

/* ---- helpers ---- */

static gp_status group_of(const gp_task *task, gp_task_group **out, gp_error *err)
{
    if (task->group == NULL)
        return gp_fail(err, GP_ESTATE, "this task is not a rank of an spmd block; it has no peers");
    *out = task->group;
    return GP_OK;
}

static gp_status index_check(const gp_task_group *group, uint32_t index, const char *what, gp_error *err)
{
    if (index >= 1 && index <= group->world)
        return GP_OK;
    return gp_fail(err, GP_EINVAL, "cannot %s index %u: must be between 1 and %u", what, index, group->world);
}

/* Mark the group as broken if the status makes it unusable. */
static gp_status group_result(gp_task_group *group, gp_status status)
{
    if (status != GP_OK && status != GP_EINVAL && status != GP_ELIMIT && status != GP_ENOMEM)
        group->broken = true;
    return status;
}

/* Allocate memory that is freed when the task ends. */
static gp_status group_alloc(gp_task_group *group, size_t bytes, void **out, gp_error *err)
{
    gp_task_memory *memory = NULL;

    if (bytes <= GP_LINK_BLOB_BYTES_MAX)
        memory = gp_aligned_calloc(_Alignof(gp_task_memory),
                                   (sizeof(*memory) + bytes + PART_ALIGN - 1) & ~(size_t)(PART_ALIGN - 1));
    if (memory == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for %zu bytes of all ranks", bytes);
    memory->next = group->memory;
    group->memory = memory;
    *out = memory->data;
    return GP_OK;
}

/* Free the latest allocation. */
static void group_free_last(gp_task_group *group)
{
    gp_task_memory *memory = group->memory;

    group->memory = memory->next;
    gp_free(memory);
}

void gp_group_release(gp_task_group *group)
{
    while (group->memory != NULL)
        group_free_last(group);
    if (group->received_bytes > GP_LINK_INLINE_MAX) { /* large buffers are not kept */
        gp_free(group->received);
        group->received = NULL;
        group->received_bytes = 0;
    }
}

/* ---- messages ---- */

gp_status gp_task_send(gp_task *task, uint32_t to, uint32_t tag, const void *data, size_t bytes,
                       gp_error *err)
{
    gp_task_group *group = NULL;
    gp_status status = group_of(task, &group, err);

    if (status == GP_OK)
        status = index_check(group, to, "send to", err);
    if (status != GP_OK)
        return status;
    if (tag == GP_TASK_ANY_TAG)
        return gp_fail(err, GP_EINVAL, "invalid tag %u: reserved for any tag; use a smaller one", tag);
    status = group_result(group, gp_comm_send(group->comm, to - 1, tag, data, bytes, err));
    if (status == GP_OK)
        group->balance++;
    return status;
}

gp_status gp_task_receive(gp_task *task, uint32_t from, uint32_t tag, gp_task_message *out, gp_error *err)
{
    gp_comm_message message = { .bytes = 0 };
    gp_task_group *group = NULL;
    gp_status status = group_of(task, &group, err);

    if (status == GP_OK && from != GP_TASK_ANY)
        status = index_check(group, from, "receive from", err);
    if (status != GP_OK)
        return status;
    uint32_t rank = from == GP_TASK_ANY ? GP_COMM_ANY : from - 1;

    status = gp_comm_receive(group->comm, rank, tag, group->received, group->received_bytes, &message, err);
    if (status == GP_ELIMIT && message.bytes > group->received_bytes) {
        size_t bytes = message.bytes < GP_LINK_INLINE_MAX ? GP_LINK_INLINE_MAX : message.bytes;

        gp_free(group->received);
        group->received = gp_malloc(bytes);
        group->received_bytes = group->received == NULL ? 0 : bytes;
        if (group->received == NULL)
            return gp_fail(err, GP_ENOMEM, "no memory for a message of %zu bytes", bytes);
        /* the same message: it is still the oldest */
        status = gp_comm_receive(group->comm, message.rank, message.tag, group->received,
                                 group->received_bytes, &message, err);
    }
    if (group_result(group, status) != GP_OK)
        return status;
    group->balance--;
    *out = (gp_task_message){
        .from = message.rank + 1, .tag = message.tag, .data = group->received, .bytes = message.bytes
    };
    return GP_OK;
}

gp_status gp_task_probe(gp_task *task, uint32_t from, uint32_t tag, bool *found, gp_task_message *out,
                        gp_error *err)
{
    gp_comm_message message;
    gp_task_group *group = NULL;
    gp_status status = group_of(task, &group, err);

    if (status == GP_OK && from != GP_TASK_ANY)
        status = index_check(group, from, "probe for a message from", err);
    if (status == GP_OK)
        status = group_result(group, gp_comm_probe(group->comm, from == GP_TASK_ANY ? GP_COMM_ANY : from - 1,
                                                   tag, found, &message, err));
    if (status == GP_OK && *found && out != NULL)
        *out = (gp_task_message){ .from = message.rank + 1, .tag = message.tag, .bytes = message.bytes };
    return status;
}

/* ---- collectives ---- */

gp_status gp_task_barrier(gp_task *task, gp_error *err)
{
    gp_task_group *group = NULL;
    gp_status status = group_of(task, &group, err);

    return status == GP_OK ? group_result(group, gp_comm_barrier(group->comm, err)) : status;
}

gp_status gp_task_broadcast(gp_task *task, uint32_t root, void *data, size_t bytes, gp_error *err)
{
    gp_task_group *group = NULL;
    gp_status status = group_of(task, &group, err);

    if (status == GP_OK)
        status = index_check(group, root, "broadcast from", err);
    if (status != GP_OK)
        return status;
    return group_result(group, gp_comm_broadcast(group->comm, data, bytes, root - 1, err));
}

/* Combine functions of task.h: the element type, and whether comm.h reduces in the same order. */
static const struct combine_kind {
    gp_combine_fn combine;
    gp_dtype type;
    bool native;
    gp_comm_reduction how;
} combine_kinds[] = {
    { gp_combine_sum_f64, GP_F64, true, GP_COMM_SUM }, { gp_combine_sum_f32, GP_F32, true, GP_COMM_SUM },
    { gp_combine_sum_i64, GP_I64, true, GP_COMM_SUM }, { gp_combine_max_f64, GP_F64, true, GP_COMM_MAX },
    { gp_combine_max_i64, GP_I64, true, GP_COMM_MAX }, { gp_combine_product_f64, GP_F64, .native = false },
    { gp_combine_min_f64, GP_F64, .native = false },   { gp_combine_min_i64, GP_I64, .native = false },
};

/* Gather all data on all ranks and combine them locally, in the same order. */
static gp_status reduce_gathered(gp_task_group *group, void *data, size_t bytes, gp_combine_fn combine,
                                 void *context, gp_error *err)
{
    size_t stride = (bytes + PART_ALIGN - 1) & ~(size_t)(PART_ALIGN - 1), parts[GP_COMM_WORLD_MAX + 1];
    unsigned char *all;
    void *memory = NULL;
    gp_status status = group_alloc(group, stride * group->world, &memory, err);

    if (status != GP_OK)
        return status;
    all = memory;
    for (uint32_t k = 0; k <= group->world; k++)
        parts[k] = k * stride;
    memcpy(all + parts[group->rank], data, bytes);
    status = gp_comm_gather_private(group->comm, all, parts, err);
    for (uint32_t k = 1; status == GP_OK && k < group->world; k++)
        combine(all, all + parts[k], bytes, context);
    if (status == GP_OK)
        memcpy(data, all, bytes);
    group_free_last(group);
    return status;
}

/* Combine with memory for two values: the ranks broadcast their data one after the other. */
static gp_status reduce_in_turn(gp_task_group *group, void *data, size_t bytes, gp_combine_fn combine,
                                void *context, gp_error *err)
{
    size_t stride = (bytes + PART_ALIGN - 1) & ~(size_t)(PART_ALIGN - 1);
    unsigned char *total, *reported;
    void *memory = NULL;
    gp_status status = group_alloc(group, 2 * stride, &memory, err);

    if (status != GP_OK)
        return status;
    total = memory;
    reported = total + stride;
    for (uint32_t k = 0; status == GP_OK && k < group->world; k++) {
        unsigned char *here = k == 0 ? total : reported;

        if (k == group->rank)
            memcpy(here, data, bytes);
        status = gp_comm_broadcast(group->comm, here, bytes, k, err);
        if (status == GP_OK && k > 0)
            combine(total, reported, bytes, context);
    }
    if (status == GP_OK)
        memcpy(data, total, bytes);
    group_free_last(group);
    return status;
}

gp_status gp_task_all_reduce(gp_task *task, void *data, size_t bytes, gp_combine_fn combine, void *context,
                             gp_error *err)
{
    const struct combine_kind *kind = NULL; /* NULL: a custom function */
    gp_task_group *group = NULL;
    gp_status status = group_of(task, &group, err);

    if (status != GP_OK)
        return status;
    if (combine == NULL || bytes > GP_COMM_MESSAGE_BYTES_MAX)
        return gp_fail(err, GP_EINVAL, "invalid reduction of %zu bytes%s: at most %zu are allowed", bytes,
                       combine == NULL ? " without a function" : "", GP_COMM_MESSAGE_BYTES_MAX);
    for (size_t i = 0; i < sizeof(combine_kinds) / sizeof(combine_kinds[0]); i++)
        if (combine_kinds[i].combine == combine)
            kind = &combine_kinds[i];
    size_t element = kind == NULL ? 1 : gp_dtype_bytes(kind->type);

    if (bytes % element != 0)
        return gp_fail(err, GP_EINVAL,
                       "a reduction of %zu bytes is not a multiple of the element size of %zu bytes", bytes,
                       element);
    if (kind != NULL && kind->native && (uintptr_t)data % element == 0)
        status = gp_comm_all_reduce_private(group->comm, data, bytes / element, kind->type, kind->how, err);
    else if (bytes * group->world <= GATHER_BYTES_MAX)
        status = reduce_gathered(group, data, bytes, combine, context, err);
    else
        status = reduce_in_turn(group, data, bytes, combine, context, err);
    return group_result(group, status);
}

gp_status gp_task_all_gather(gp_task *task, const void *data, size_t bytes, const void **all,
                             size_t *all_bytes, size_t *parts, gp_error *err)
{
    uint64_t lengths[GP_COMM_WORLD_MAX];
    size_t at[GP_COMM_WORLD_MAX + 1];
    gp_task_group *group = NULL;
    void *memory = NULL;
    gp_status status = group_of(task, &group, err);

    if (status != GP_OK)
        return status;
    for (uint32_t k = 0; k <= group->world; k++)
        at[k] = k * sizeof(*lengths);
    lengths[group->rank] = bytes;
    status = gp_comm_gather_private(group->comm, lengths, at, err);
    for (uint32_t k = 0; status == GP_OK && k < group->world; k++) {
        /* All ranks make the same decision. */
        if (lengths[k] > GP_LINK_BLOB_BYTES_MAX - at[k])
            return gp_fail(err, GP_ELIMIT, "the data of all ranks have more than %llu bytes",
                           (unsigned long long)GP_LINK_BLOB_BYTES_MAX);
        at[k + 1] = at[k] + lengths[k];
    }
    if (status == GP_OK)
        status = group_alloc(group, at[group->world], &memory, err);
    if (status == GP_OK) {
        if (bytes > 0)
            memcpy((unsigned char *)memory + at[group->rank], data, bytes);
        status = gp_comm_gather_private(group->comm, memory, at, err);
    }
    if (group_result(group, status) != GP_OK)
        return status;
    *all = memory;
    *all_bytes = at[group->world];
    if (parts != NULL)
        memcpy(parts, at, (group->world + 1) * sizeof(*at));
    return GP_OK;
}

/* ---- combine functions ---- */

#define COMBINE(name, kind)                                                                                  \
    void gp_combine_##name(void *into, const void *from, size_t bytes, void *context)                        \
    {                                                                                                        \
        (void)context;                                                                                       \
        gp_reduce_combine(kind, into, from, bytes);                                                          \
    }

COMBINE(sum_f64, GP_REDUCE_SUM_F64)
COMBINE(sum_f32, GP_REDUCE_SUM_F32)
COMBINE(sum_i64, GP_REDUCE_SUM_I64)
COMBINE(product_f64, GP_REDUCE_PRODUCT_F64)
COMBINE(min_f64, GP_REDUCE_MIN_F64)
COMBINE(max_f64, GP_REDUCE_MAX_F64)
COMBINE(min_i64, GP_REDUCE_MIN_I64)
COMBINE(max_i64, GP_REDUCE_MAX_I64)
