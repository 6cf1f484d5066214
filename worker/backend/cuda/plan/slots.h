/* Slots for calls and results that wait on the device: pinned host memory, a copy on the device,
 * and the kernel that selects the next call. Used by feed.c (training) and predict.c. Private to
 * this folder. */
#ifndef GP_CUDA_SLOTS_H
#define GP_CUDA_SLOTS_H

#include "worker/backend/cuda/plan/plan.h"

enum { GP_SLOTS = 2, GP_SLOT_ALIGNMENT = 256 };

/* Slots of one kind. */
typedef struct gp_slots {
    size_t bytes;  /* slot size */
    char *pinned;  /* host memory for GP_SLOTS slots, freed by gp_slots_free() */
    char *mirrors; /* the same on the device; a block of the plan's heap */
} gp_slots;

/* Round up to the alignment for slot parts. */
static inline size_t gp_slot_aligned(size_t bytes)
{
    return (bytes + GP_SLOT_ALIGNMENT - 1) / GP_SLOT_ALIGNMENT * GP_SLOT_ALIGNMENT;
}

/* Return the sample size in bytes. */
static inline size_t gp_slot_sample_bytes(const gp_plan *plan)
{
    return (size_t)gp_shape_count(&plan->graph->spec->input) * gp_dtype_bytes(plan->options.sample_dtype);
}

/* Allocate the pinned memory and the device copy. */
static inline gp_status gp_slots_take(gp_slots *slots, plan_heap *heap, size_t bytes, gp_error *err)
{
    void *pinned = NULL, *there;
    gp_status status = gp_device_alloc_host(heap->device, &pinned, &there, GP_SLOTS * bytes, err);

    slots->bytes = bytes;
    slots->pinned = pinned;
    return status == GP_OK ? gp_heap_take(heap, &slots->mirrors, GP_SLOTS * bytes, err) : status;
}

/* Free the pinned memory. The device must have finished using it. */
static inline void gp_slots_free(gp_slots *slots, gp_device *device)
{
    gp_device_free_host(device, slots->pinned);
}

/* Return a slot's host address. */
static inline char *gp_slot_pinned(const gp_slots *slots, uint32_t slot)
{
    return slots->pinned + slot * slots->bytes;
}

/* Return a slot's device address. */
static inline char *gp_slot_mirror(const gp_slots *slots, uint32_t slot)
{
    return slots->mirrors + slot * slots->bytes;
}

/* Copy the first bytes of a pinned slot to the device, and make the main lane wait for the copy. */
static inline gp_status gp_slot_put(const gp_slots *slots, gp_device *device, uint32_t slot, size_t bytes,
                                    gp_error *err)
{
    gp_status status =
        gp_device_feed(device, gp_slot_mirror(slots, slot), gp_slot_pinned(slots, slot), bytes, err);

    return status == GP_OK ? gp_device_order(device, GP_LANE_MAIN, GP_EVENT_FED + slot, GP_LANE_INPUT, err)
                           : status;
}

/* Return the arguments of the kernel that makes the next slot's call the current one and clears the
 * sums. */
static inline gp_kernel_args gp_slot_args(gp_plan *plan, gp_kernel_kept *kept, const gp_slots *slots)
{
    gp_kernel_args args = { .call = plan->buffers.call, .kept = kept };

    for (uint32_t slot = 0; slot < GP_SLOTS; slot++)
        args.x[slot].data = gp_slot_mirror(slots, slot);
    args.number[0] = GP_SLOTS;
    args.d[1] = plan->buffers.sums;
    args.n[7] = PLAN_SUMS;
    return args;
}

/* Launch this kernel. */
static inline gp_status gp_slot_turn(gp_plan *plan, gp_kernel_kept *kept, const gp_slots *slots,
                                     gp_error *err)
{
    const gp_kernel_args args = gp_slot_args(plan, kept, slots);

    return gp_device_launch(plan->backend->device, GP_KERNEL_feed_turn, &args, 1, err);
}

#endif
