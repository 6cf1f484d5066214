/* Sources of samples for a device-resident training.
 *
 *   fed        host: loader batch -> (input lane) -> device slot, which normalize reads. A batch
 *              outside page-locked memory is copied to a pinned slot first.
 *   resident   host: call and augmentation draws -> ... -> index -> normalize reads the data
 *              through it, or warp -> normalize
 *
 * There are two slots. A call's copy waits only for the call two positions earlier, so it overlaps
 * with the previous call. */
/* included first, because the name `place` conflicts with another name */
#include "worker/backend/cuda/kernels/bodies.h"

#include <time.h>

#include "common/base/memory/alloc.h"
#include "common/data/store/augment.h"
#include "common/data/store/sampler.h"
#include "worker/backend/cuda/plan/resident.h"

/* TARGET_WORDS: words of a target that one thread copies. BLOCK_ROWS: samples that one block
 * selects. */
enum { READ_BYTES = 16 << 20, SPARE_BYTES = 512 << 20, TARGET_WORDS = 4, BLOCK_ROWS = 2 * GP_KERNEL_THREADS };

_Static_assert((int)GP_SHUFFLE_NEVER == 0 && (int)GP_SHUFFLE_ONCE == 1, "body_feed_index uses these numbers");

_Static_assert((int)GP_READS_AHEAD == (int)GP_SLOTS, "gp_feed_fill() waits for the copy from a slot");

void gp_feed_close(gp_plan *plan)
{
    gp_device_unlock(plan->backend->device, plan->resident->feed.locked);
    gp_slots_free(&plan->resident->feed.slots, plan->backend->device);
}

/* ---- memory ---- */

static gp_status data_read(gp_plan *plan, const gp_resident *resident, gp_error *err)
{
    gp_device *device = plan->backend->device;
    gp_feed *feed = &plan->resident->feed;
    const size_t each = resident->sample_bytes, target = resident->target_bytes;
    const uint32_t some = (uint32_t)(READ_BYTES / (each + target)) + 1;
    const size_t targets_at = gp_slot_aligned(some * each);
    char *rows = gp_malloc(targets_at + some * target);
    gp_status status = rows == NULL ? gp_fail(err, GP_ENOMEM, "no memory to read data for the GPU") : GP_OK;

    for (uint32_t at = 0; at < resident->count && status == GP_OK; at += some) {
        uint32_t count = resident->count - at < some ? resident->count - at : some;

        status = resident->read(resident->context, at, count, rows, rows + targets_at, err);
        if (status == GP_OK)
            status = gp_device_upload(device, feed->data + at * each, rows, count * each, err);
        if (status == GP_OK)
            status = gp_device_upload(device, feed->data_targets + at * target, rows + targets_at,
                                      count * target, err);
    }
    gp_free(rows);
    return status;
}

/* Store all samples on the device. GP_ENOMEM: they do not fit in free memory,
 * with a reserve for the libraries. */
static gp_status data_take(gp_plan *plan, const gp_resident *resident, gp_error *err)
{
    gp_feed *feed = &plan->resident->feed;
    const size_t rows = plan->options.micro_batch, available = gp_device_available(plan->backend->device);
    const double bytes = (double)resident->count * (double)(resident->sample_bytes + resident->target_bytes);
    gp_status status;

    if (resident->sample_bytes > INT32_MAX || available <= SPARE_BYTES ||
        bytes >= 0.75 * (double)(available - SPARE_BYTES))
        return GP_ENOMEM;
    status = gp_heap_take(&plan->heap, &feed->data, resident->count * resident->sample_bytes, err);

    if (status == GP_OK)
        status =
            gp_heap_take(&plan->heap, &feed->data_targets, resident->count * resident->target_bytes, err);
    if (status == GP_OK)
        status = gp_heap_take(&plan->heap, &feed->index, rows * sizeof(uint32_t), err);
    if (status == GP_OK && resident->drawn)
        status = gp_heap_take(&plan->heap, &feed->means, rows * resident->channels * sizeof(double), err);
    return status == GP_OK ? data_read(plan, resident, err) : status;
}

gp_status gp_feed_open(gp_plan *plan, const gp_resident *resident, gp_error *err)
{
    gp_feed *feed = &plan->resident->feed;
    gp_kernel_args *input = gp_plan_input(plan);
    const uint32_t blocks = plan->heap.count;
    const size_t rows = plan->options.micro_batch;
    size_t targets = 0, draws = 0, samples = 0; /* bytes in a slot */
    gp_error ignored;
    gp_status status;

    if (resident != NULL && data_take(plan, resident, &ignored) == GP_OK) {
        feed->resident = resident;
    } else if (resident != NULL) {
        *feed = (gp_feed){ .resident = NULL };
        gp_heap_cut(&plan->heap, blocks);
    }
    resident = feed->resident;
    if (resident == NULL) {
        targets = gp_slot_aligned(rows * plan->graph->target_bytes);
        samples = gp_slot_aligned(rows * gp_slot_sample_bytes(plan));
    } else if (resident->drawn) {
        draws = gp_slot_aligned(rows * sizeof(gp_kernel_draw));
    }
    feed->targets_at = gp_slot_aligned(sizeof(gp_kernel_call));
    feed->draws_at = feed->targets_at + targets;
    feed->samples_at = feed->draws_at + draws;
    status = gp_slots_take(&feed->slots, &plan->heap, feed->samples_at + samples, err);
    if (status != GP_OK)
        return status;
    input->index = NULL;
    input->count = 0;
    input->bytes = plan->buffers.samples; /* warp destination */
    if (resident == NULL) {
        input->bytes = feed->slots.mirrors + feed->samples_at;
        input->count = feed->slots.bytes;
    } else if (!resident->drawn) {
        input->bytes = feed->data;
        input->index = feed->index;
    }
    return GP_OK;
}

/* ---- memory of the caller ---- */

gp_status gp_feed_lock(gp_plan *plan, void *memory, size_t bytes, gp_error *err)
{
    gp_device *device = plan->backend->device;
    gp_feed *feed = &plan->resident->feed;
    gp_status status = GP_OK;

    gp_device_unlock(device, feed->locked);
    feed->locked = NULL;
    if (memory != NULL)
        status = gp_device_lock(device, memory, bytes, err);
    if (memory != NULL && status == GP_OK) {
        feed->locked = memory;
        feed->locked_bytes = bytes;
    }
    return status;
}

static bool locked_has(const gp_feed *feed, const char *at)
{
    return feed->locked != NULL && at >= feed->locked && at < feed->locked + feed->locked_bytes;
}

uint32_t gp_feed_reading(gp_plan *plan)
{
    const gp_feed *feed = &plan->resident->feed;
    uint32_t count = feed->calls < GP_SLOTS ? (uint32_t)feed->calls : GP_SLOTS;
    gp_error ignored;

    /* The copies end in the order of the calls. */
    for (bool passed = false; feed->locked != NULL && count > 0; count--) {
        gp_status status =
            gp_device_passed(plan->backend->device,
                             GP_EVENT_FED + (uint32_t)((feed->calls - count) % GP_SLOTS), &passed, &ignored);

        if (status != GP_OK || !passed)
            return count;
    }
    return 0;
}

/* ---- filling a slot ---- */

/* Copy samples and targets from locked memory to a slot of the device. */
static gp_status slot_feed(const gp_plan *plan, uint32_t slot, const gp_batch *batch, gp_error *err)
{
    gp_device *device = plan->backend->device;
    const gp_feed *feed = &plan->resident->feed;
    char *to = gp_slot_mirror(&feed->slots, slot);
    gp_status status = gp_device_feed(device, to + feed->targets_at, batch->targets,
                                      batch->count * plan->graph->target_bytes, err);

    return status == GP_OK ? gp_device_feed(device, to + feed->samples_at, batch->samples,
                                            batch->count * gp_slot_sample_bytes(plan), err)
                           : status;
}

/* Write a call to a pinned slot. Return the bytes to copy from there.
 *   direct  the device copies samples and targets from locked memory */
static size_t slot_write(const gp_plan *plan, char *slot, const gp_step_call *call, bool direct)
{
    const gp_feed *feed = &plan->resident->feed;
    const gp_batch *batch = &call->batch;
    gp_kernel_call about = gp_plan_call(batch);

    about.targets = 1;
    about.epoch = call->epoch;
    about.at = call->at;
    about.samples = call->samples;
    about.stop = call->stop;
    about.pause = call->pause;
    about.learn_rate = (float)call->learn_rate;
    memcpy(slot, &about, sizeof(about));
    if (direct)
        return sizeof(about);
    if (feed->resident == NULL) {
        memcpy(slot + feed->targets_at, batch->targets, batch->count * plan->graph->target_bytes);
        memcpy(slot + feed->samples_at, batch->samples, batch->count * gp_slot_sample_bytes(plan));
        return feed->samples_at + batch->count * gp_slot_sample_bytes(plan);
    }
    if (!feed->resident->drawn)
        return feed->targets_at;
    for (uint32_t i = 0; i < batch->count; i++) {
        const gp_augment_draw *from = &call->draws[i];
        gp_kernel_draw draw = { .contrast = from->contrast, .recolor = from->recolor };

        memcpy(draw.a, from->a, sizeof(draw.a));
        memcpy(draw.color, from->color, sizeof(draw.color));
        memcpy(slot + feed->draws_at + i * sizeof(draw), &draw, sizeof(draw));
    }
    return feed->samples_at;
}

gp_status gp_feed_fill(gp_plan *plan, const gp_step_call *call, gp_error *err)
{
    gp_device *device = plan->backend->device;
    gp_feed *feed = &plan->resident->feed;
    uint32_t slot = (uint32_t)(feed->calls % GP_SLOTS);
    bool direct = feed->resident == NULL && locked_has(feed, call->batch.samples) &&
                  locked_has(feed, call->batch.targets);
    size_t bytes;
    bool passed = false;
    gp_status status = gp_device_passed(device, GP_EVENT_FED + slot, &passed, err);

    /* Wait until the earlier copy from the pinned slot is complete. It belongs to the call two
     * positions earlier, so there is usually no wait. */
    while (status == GP_OK && !passed) {
        nanosleep(&(struct timespec){ .tv_nsec = 20000 }, NULL);
        status = gp_device_poll(device, err);
        if (status == GP_OK)
            status = gp_device_passed(device, GP_EVENT_FED + slot, &passed, err);
    }
    if (status != GP_OK)
        return status;
    bytes = slot_write(plan, gp_slot_pinned(&feed->slots, slot), call, direct);
    status = gp_device_follow(device, GP_LANE_INPUT, GP_EVENT_USED + slot, err);
    if (status == GP_OK && direct)
        status = slot_feed(plan, slot, &call->batch, err);
    return status == GP_OK ? gp_slot_put(&feed->slots, device, slot, bytes, err) : status;
}

gp_status gp_feed_used(gp_plan *plan, gp_error *err)
{
    gp_feed *feed = &plan->resident->feed;
    uint32_t slot = (uint32_t)(feed->calls++ % GP_SLOTS);

    return gp_device_note(plan->backend->device, GP_EVENT_USED + slot, GP_LANE_MAIN, err);
}

/* ---- kernels ---- */

static gp_status launch_warp(gp_plan *plan, gp_kernel_args args, gp_error *err)
{
    gp_device *device = plan->backend->device;
    const gp_feed *feed = &plan->resident->feed;
    const gp_resident *resident = feed->resident;
    const gp_shape *shape = &plan->graph->spec->input;
    const uint32_t rows = plan->options.micro_batch;
    gp_status status;

    args.bytes = feed->data;
    args.index = feed->index;
    args.count = feed->slots.bytes;
    args.factor[0] = resident->fill;
    args.d[0] = feed->means;
    args.x[0] = (gp_kernel_image){ .channels = resident->channels,
                                   .height = resident->height,
                                   .width = resident->width,
                                   .pixels = resident->height * resident->width,
                                   .sample = resident->channels * resident->height * resident->width };
    args.x[1].data = feed->slots.mirrors + feed->draws_at;
    args.y[0] = (gp_kernel_image){ .data = plan->buffers.samples,
                                   .channels = resident->channels,
                                   .height = (uint32_t)shape->dim[1],
                                   .width = (uint32_t)shape->dim[2] };
    args.y[0].pixels = args.y[0].height * args.y[0].width;
    args.y[0].sample = args.y[0].channels * args.y[0].pixels;
    status = gp_device_launch(device, GP_KERNEL_feed_mean, &args, rows * resident->channels, err);
    return status == GP_OK
               ? gp_device_launch(device, GP_KERNEL_feed_warp, &args, rows * args.y[0].pixels, err)
               : status;
}

gp_status gp_feed_launch(gp_plan *plan, gp_error *err)
{
    gp_device *device = plan->backend->device;
    const gp_feed *feed = &plan->resident->feed;
    const gp_kernel_args base = { .call = plan->buffers.call, .kept = plan->resident->kept };
    const uint32_t words = (uint32_t)(plan->graph->target_bytes / sizeof(uint32_t));
    const bool at_once = feed->resident != NULL && plan->options.micro_batch <= BLOCK_ROWS;
    gp_kernel_args args = base;
    gp_status status = GP_OK;

    if (!at_once)
        status = gp_slot_turn(plan, plan->resident->kept, &feed->slots, err);
    if (feed->resident == NULL) {
        args.y[0].data = plan->buffers.targets;
        args.bytes = feed->slots.mirrors + feed->targets_at;
        args.count = feed->slots.bytes;
        return status == GP_OK ? gp_device_launch(device, GP_KERNEL_feed_targets, &args,
                                                  plan->options.micro_batch * words, err)
                               : status;
    }
    args = gp_slot_args(plan, plan->resident->kept, &feed->slots);
    args.rows = plan->options.micro_batch;
    args.kind = feed->resident->sampler->shuffle;
    args.count = feed->resident->sampler->seed;
    args.n[0] = feed->resident->sampler->count;
    args.n[1] = feed->resident->sampler->side[0];
    args.n[2] = feed->resident->sampler->side[1];
    args.n[3] = feed->resident->patches;
    args.y[0].data = feed->index;
    if (words <= TARGET_WORDS) {
        args.n[4] = words;
        args.y[1].data = plan->buffers.targets;
        args.bytes = feed->data_targets;
    }
    if (status == GP_OK)
        status = gp_device_launch(device, at_once ? GP_KERNEL_feed_begin : GP_KERNEL_feed_index, &args,
                                  at_once ? GP_KERNEL_THREADS : args.rows, err);
    args = base;
    args.y[0].data = plan->buffers.targets;
    args.bytes = feed->data_targets;
    args.index = feed->index;
    args.n[0] = words;
    if (status == GP_OK && words > TARGET_WORDS)
        status = gp_device_launch(device, GP_KERNEL_feed_rows, &args, plan->options.micro_batch * words, err);
    return status == GP_OK && feed->resident->drawn ? launch_warp(plan, base, err) : status;
}
