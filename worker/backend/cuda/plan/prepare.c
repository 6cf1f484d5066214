/* Merge the steps that copy weights into one step. */
#include "worker/backend/cuda/plan/prepare.h"

#include <assert.h>

#include "common/base/memory/alloc.h"

enum { COPY_BLOCKS_MAX = 132 * 8 };

static uint32_t copy_blocks(const step *s)
{
    const uint32_t blocks = (s->count + GP_KERNEL_THREADS - 1) / GP_KERNEL_THREADS;

    return blocks < COPY_BLOCKS_MAX ? blocks : COPY_BLOCKS_MAX;
}

/* Fill in the table of copies and the copy of each block. */
static void tables_fill(const step_list *list, gp_kernel_copy *copies, uint32_t *copy_of_block)
{
    uint32_t block = 0;

    for (uint32_t i = 0; i < list->count; i++) {
        copies[i] = (gp_kernel_copy){ .args = list->step[i].args,
                                      .count = list->step[i].count,
                                      .first_block = block,
                                      .blocks = copy_blocks(&list->step[i]) };
        for (uint32_t k = 0; k < copies[i].blocks; k++)
            copy_of_block[block++] = i;
    }
}

gp_status gp_plan_join_prepare(gp_plan *plan, gp_error *err)
{
    step_list *list = &plan->prepare;
    gp_device *device = plan->backend->device;
    gp_kernel_copy *copies, *copies_there = NULL;
    uint32_t *copy_of_block, *copy_of_block_there = NULL, blocks = 0, op;
    step *joined;
    gp_status status;

    if (list->count == 0)
        return GP_OK;
    op = list->step[0].op;
    for (uint32_t i = 0; i < list->count; i++) {
        assert(list->step[i].kernel == GP_KERNEL_prepare_weights);
        blocks += copy_blocks(&list->step[i]);
    }
    copies = gp_calloc(list->count, sizeof(*copies));
    copy_of_block = gp_calloc(blocks + 1, sizeof(*copy_of_block));
    status = copies == NULL || copy_of_block == NULL
                 ? gp_fail(err, GP_ENOMEM, "no memory for tables of weights")
                 : GP_OK;
    if (status == GP_OK) {
        tables_fill(list, copies, copy_of_block);
        status = gp_heap_take(&plan->heap, &copies_there, list->count * sizeof(*copies), err);
    }
    if (status == GP_OK)
        status = gp_heap_take(&plan->heap, &copy_of_block_there, blocks * sizeof(*copy_of_block), err);
    if (status == GP_OK)
        status = gp_device_upload(device, copies_there, copies, list->count * sizeof(*copies), err);
    if (status == GP_OK)
        status = gp_device_upload(device, copy_of_block_there, copy_of_block, blocks * sizeof(*copy_of_block),
                                  err);
    if (status == GP_OK)
        status = gp_device_sync(device, err); /* the uploads read the tables on the host */
    gp_free(copy_of_block);
    gp_free(copies);
    if (status != GP_OK)
        return status;
    gp_step_cut(list, 0);
    joined = gp_step_add(list, STEP_KERNEL, op);
    if (joined == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for the steps of a plan");
    joined->kernel = GP_KERNEL_prepare_weights;
    joined->args = (gp_kernel_args){ .bytes = copies_there, .index = copy_of_block_there };
    joined->count = blocks * GP_KERNEL_THREADS;
    return GP_OK;
}
