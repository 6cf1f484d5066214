/* loader.h -- batches ahead of the step: threads that read what was requested into a ring of slots.
 *
 * The loader knows no rank and no schedule: a request is (epoch, first position, count) of the sampler's
 * order.  Batches come in the order of the requests.  All memory is taken by gp_loader_new(). */
#ifndef GP_LOADER_H
#define GP_LOADER_H

#include <stdint.h>

#include "common/base/error.h"
#include "common/data/store/augment.h"
#include "common/data/store/sampler.h"
#include "common/data/store/store.h"

enum {
    GP_LOADER_DEPTH_MAX = 64,
    GP_LOADER_REQUESTS_MAX = 256,
    GP_LOADER_BATCH_MAX = 1 << 20,
    GP_LOADER_THREADS_MAX = 64,
    GP_LOADER_CALM = 256,
};

typedef struct gp_loader gp_loader;

/* A filled slot; the caller's from take to release. */
typedef struct gp_loader_batch {
    void *samples;                /* count * sample_bytes, packed in the form asked for, 64-byte aligned */
    void *targets;                /* count * target_bytes, 64-byte aligned */
    uint32_t epoch, first, count; /* as requested */
} gp_loader_batch;

/* What a loader is to be.  All zero but depth and capacity: plain. */
typedef struct gp_loader_options {
    uint32_t
        depth; /* slots: batches that may be ready or in the caller's hands at once (1..GP_LOADER_DEPTH_MAX) */
    /* It may grow to so many (0: not at all), while all slots together take at most bytes_max: by one each time a take had
     * to wait although the threads had been idle for want of a slot before; by one less after GP_LOADER_CALM takes that
     * did not wait.  Memory of slots that are not used is only reserved. */
    uint32_t depth_max;
    uint64_t bytes_max;
    uint32_t capacity; /* samples in the largest request */
    /* What is done to each sample, of its epoch and index, with that seed; copied; NULL: nothing.  Batches have the shape
     * of gp_augment_shape(), and the sampler's positions are of its count: with patches, index i is patch i mod patches of
     * image i / patches. */
    const gp_augment *augment;
    uint64_t seed;
    gp_pixel_form form; /* of stores of bytes; others have GP_PIXELS_PLANES only: the stored values */
    uint32_t
        threads; /* 0: one, or for a store that decodes one for each processor that the caller may run on */
} gp_loader_options;

/* gp_loader_new_with -- take the memory and start the threads.
 *   store, sampler  borrowed, must outlive the loader; the sampler is copied
 * The threads inherit the caller's CPU affinity and take no signals.  Batches are the same bits for any number of them. */
gp_status gp_loader_new_with(gp_loader **out, const gp_store *store, const gp_sampler *sampler,
                             const gp_loader_options *options, gp_error *err);

/* gp_loader_new -- the same with depth and capacity. */
gp_status gp_loader_new(gp_loader **out, const gp_store *store, const gp_sampler *sampler, uint32_t depth,
                        uint32_t capacity, gp_error *err);

/* Slots that may be used now, and how many there may be: so many requests are worth being queued. */
uint32_t gp_loader_depth(gp_loader *loader);
uint32_t gp_loader_depth_max(const gp_loader *loader);

/* Stops the threads after the samples they are at and frees everything, batches that are out included.  NULL is fine.
 * No other thread may be in a call. */
void gp_loader_free(gp_loader *loader);

/* gp_loader_request -- queue one batch; never blocks.  A count of 0 is an empty batch.
 * GP_EBUSY: GP_LOADER_REQUESTS_MAX are queued.  GP_EINVAL: more than capacity, or beyond the epoch's end. */
gp_status gp_loader_request(gp_loader *loader, uint32_t epoch, uint32_t first, uint32_t count, gp_error *err);

/* Forget every request that was not taken.  A take that is blocked returns GP_ECANCELED.  Any thread. */
void gp_loader_cancel(gp_loader *loader);

/* gp_loader_take -- the batch of the oldest request, waiting until it is there.
 *   waited_ns  the time this call was blocked, 0 if the batch was ready; may be NULL
 * One thread at a time.  An error of reading comes out here, in the place of its batch; the next take goes on
 * with the next request.  GP_ESTATE: nothing is requested, or all slots are with the caller (it would
 * block for ever).  GP_ECANCELED: cancelled meanwhile. */
gp_status gp_loader_take(gp_loader *loader, gp_loader_batch **out, int64_t *waited_ns, gp_error *err);

/* Give a taken batch back, in any order. */
void gp_loader_release(gp_loader *loader, gp_loader_batch *batch);

#endif
