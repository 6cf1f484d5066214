/* slots.h -- where the calls lie that wait on the device, and the kernel that takes the next one.  Of feed.c (trainings) and
 * predict.c.  Private to this folder. */
#ifndef GP_CUDA_SLOTS_H
#define GP_CUDA_SLOTS_H

#include "worker/backend/cuda/plan/plan.h"

enum { GP_SLOT_ALIGNMENT = 256 };

static inline size_t gp_slot_aligned(size_t bytes)
{
    return (bytes + GP_SLOT_ALIGNMENT - 1) / GP_SLOT_ALIGNMENT * GP_SLOT_ALIGNMENT;
}

static inline size_t gp_slot_sample_bytes(const gp_plan *plan)
{
    return (size_t)gp_shape_count(&plan->graph->spec->input) * gp_dtype_bytes(plan->options.sample_dtype);
}

/* The call of the next of `count` slots becomes the plan's, and its sums are zeros. */
static inline gp_status gp_slot_turn(gp_plan *plan, gp_kernel_kept *kept, char *slots, size_t slot_bytes,
                                     uint32_t count, gp_error *err)
{
    gp_kernel_args args = { .call = plan->call, .kept = kept };

    args.bytes = slots;
    args.count = slot_bytes;
    args.number[0] = count;
    args.y[0].data = plan->call;
    args.d[1] = plan->sums;
    args.n[0] = PLAN_SUMS;
    return gp_device_launch(plan->backend->device, GP_KERNEL_feed_turn, &args, 1, err);
}

#endif
