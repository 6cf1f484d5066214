/* Merge short steps into one that executes a table of them. */
#include "worker/backend/cuda/plan/prepare.h"

#include <assert.h>
#include <string.h>

#include "common/base/memory/alloc.h"

enum { COPY_BLOCKS_MAX = 132 * 8 };

static uint32_t copy_blocks(const step *s)
{
    const uint32_t blocks = (s->count + GP_KERNEL_THREADS - 1) / GP_KERNEL_THREADS;

    return blocks < COPY_BLOCKS_MAX ? blocks : COPY_BLOCKS_MAX;
}

/* Fill in the table of copies and the copy of each block. */
static void tables_fill(const step *steps, uint32_t count, gp_kernel_copy *copies, uint32_t *copy_of_block)
{
    uint32_t block = 0;

    for (uint32_t i = 0; i < count; i++) {
        copies[i] = (gp_kernel_copy){ .args = steps[i].args,
                                      .count = steps[i].count,
                                      .first_block = block,
                                      .blocks = copy_blocks(&steps[i]) };
        for (uint32_t k = 0; k < copies[i].blocks; k++)
            copy_of_block[block++] = i;
    }
}

/* Set *joined to a step of `kernel` that executes all `count` steps. */
static gp_status steps_join(gp_plan *plan, const step *steps, uint32_t count, gp_kernel kernel, step *joined,
                            gp_error *err)
{
    gp_device *device = plan->backend->device;
    gp_kernel_copy *copies, *copies_there = NULL;
    uint32_t *copy_of_block, *copy_of_block_there = NULL, blocks = 0;
    gp_status status;

    for (uint32_t i = 0; i < count; i++)
        blocks += copy_blocks(&steps[i]);
    copies = gp_calloc(count, sizeof(*copies));
    copy_of_block = gp_calloc(blocks + 1, sizeof(*copy_of_block));
    status = copies == NULL || copy_of_block == NULL
                 ? gp_fail(err, GP_ENOMEM, "no memory for tables of weights")
                 : GP_OK;
    if (status == GP_OK) {
        tables_fill(steps, count, copies, copy_of_block);
        status = gp_heap_take(&plan->heap, &copies_there, count * sizeof(*copies), err);
    }
    if (status == GP_OK)
        status = gp_heap_take(&plan->heap, &copy_of_block_there, blocks * sizeof(*copy_of_block), err);
    if (status == GP_OK)
        status = gp_device_upload(device, copies_there, copies, count * sizeof(*copies), err);
    if (status == GP_OK)
        status = gp_device_upload(device, copy_of_block_there, copy_of_block, blocks * sizeof(*copy_of_block),
                                  err);
    if (status == GP_OK)
        status = gp_device_sync(device, err); /* the uploads read the tables on the host */
    gp_free(copy_of_block);
    gp_free(copies);
    *joined = (step){ .kind = STEP_KERNEL,
                      .kernel = kernel,
                      .args = { .bytes = copies_there, .index = copy_of_block_there },
                      .count = blocks * GP_KERNEL_THREADS };
    return status;
}

gp_status gp_plan_join_prepare(gp_plan *plan, gp_error *err)
{
    step_list *list = &plan->prepare;
    step joined = { 0 };
    gp_status status;

    if (list->count == 0)
        return GP_OK;
    for (uint32_t i = 0; i < list->count; i++)
        assert(list->step[i].kernel == GP_KERNEL_prepare_weights);
    status = steps_join(plan, list->step, list->count, GP_KERNEL_prepare_weights, &joined, err);
    if (status != GP_OK)
        return status;
    joined.op = list->step[0].op;
    gp_step_cut(list, 0);
    list->step[list->count++] = joined;
    return GP_OK;
}

/* Return the way in which a step adds to a gradient; negative: it is another step. */
static int32_t addition_of(const step *s)
{
    switch (s->kind == STEP_KERNEL ? s->kernel : GP_KERNEL_COUNT) {
    case GP_KERNEL_weights_unpack:
        return GP_KERNEL_ADD_UNPACKED;
    case GP_KERNEL_parts_add:
        return GP_KERNEL_ADD_PARTS;
    case GP_KERNEL_parts_add_warp:
        return GP_KERNEL_ADD_PARTS_WARP;
    default:
        return -1;
    }
}

gp_status gp_plan_join_gradients(gp_plan *plan, gp_error *err)
{
    step_list *list = &plan->steps;
    step *additions = gp_calloc(list->count + 1, sizeof(*additions));
    uint32_t count = 0, kept = 0, place = 0;
    gp_status status = GP_OK;

    if (additions == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for tables of gradients");
    for (uint32_t i = 0; i < list->count; i++) {
        const int32_t kind = addition_of(&list->step[i]);

        if (kind < 0) {
            list->step[kept++] = list->step[i];
            continue;
        }
        additions[count] = list->step[i];
        additions[count++].args.number[0] = kind;
        place = kept;
    }
    list->count = kept;
    if (count > 0) {
        memmove(&list->step[place + 1], &list->step[place], (kept - place) * sizeof(*list->step));
        list->count++;
        status = steps_join(plan, additions, count, GP_KERNEL_add_gradients, &list->step[place], err);
        list->step[place].op = additions[count - 1].op;
    }
    gp_free(additions);
    return status;
}
