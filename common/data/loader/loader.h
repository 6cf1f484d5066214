/* Prefetch batches for training: threads read requested samples into a ring of slots.
 *
 * The loader knows neither ranks nor schedules. A request is a range (epoch, first position, count)
 * in sampler order, and batches arrive in request order. gp_loader_new() allocates all memory. */
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

/* A batch. The caller owns it between gp_loader_take() and gp_loader_release(). */
typedef struct gp_loader_batch {
    /* count * sample_bytes, packed, in the requested pixel format, 64-byte aligned */
    void *samples;
    void *targets;                /* count * target_bytes, 64-byte aligned */
    uint32_t epoch, first, count; /* as requested */
} gp_loader_batch;

/* Loader settings. Only depth and capacity are required; 0 selects the default for all others. */
typedef struct gp_loader_options {
    uint32_t
        /* number of slots, 1 to GP_LOADER_DEPTH_MAX: batches that may be ready or taken at once */
        depth;
    /* Upper limit for an adaptive depth (0: fixed depth), as long as all slots fit into bytes_max.
     * The depth grows by one when a take has to wait after threads were idle for lack of a slot. It
     * shrinks by one after GP_LOADER_CALM takes without a wait. Unused slots only reserve address
     * space. */
    uint32_t depth_max;
    uint64_t bytes_max;
    uint32_t capacity; /* largest request, in samples */
    /* Augmentation, copied; NULL: none. `seed`, the epoch and the index determine the draw of each
     * sample. Batches have the shape from gp_augment_shape(), and sampler positions refer to its
     * count: with patches, index i is patch i mod patches of image i / patches. */
    const gp_augment *augment;
    uint64_t seed;
    /* pixel format for byte samples; other stores support only GP_PIXELS_PLANES */
    gp_pixel_form form;
    /* number of threads; 0: one, or one per allowed processor if the store decodes */
    uint32_t threads;
} gp_loader_options;

/* Allocate a loader and start its threads. `store` and `sampler` must outlive the loader; the
 * sampler is copied. Threads inherit the caller's CPU affinity and block all signals. Batches are
 * bitwise identical for any number of threads. */
gp_status gp_loader_new(gp_loader **out, const gp_store *store, const gp_sampler *sampler,
                        const gp_loader_options *options, gp_error *err);

/* Return the number of slots in use now, and the upper limit. There is no benefit in queueing more
 * requests than slots. */
uint32_t gp_loader_depth(gp_loader *loader);
uint32_t gp_loader_depth_max(const gp_loader *loader);

/* Return the memory of all batches, and its size. A caller may lock its pages. */
void *gp_loader_memory(const gp_loader *loader, size_t *bytes);

/* Stop the threads after their current samples, and free everything, including taken batches. NULL
 * is accepted. No other thread may be inside a loader function. */
void gp_loader_free(gp_loader *loader);

/* Queue a request for one batch; never blocks. A count of 0 requests an empty batch. GP_EBUSY:
 * GP_LOADER_REQUESTS_MAX requests are queued. GP_EINVAL: more samples than `capacity`, or a
 * position behind the end of the epoch. */
gp_status gp_loader_request(gp_loader *loader, uint32_t epoch, uint32_t first, uint32_t count, gp_error *err);

/* Drop all requests whose batches were not taken. A blocked gp_loader_take() returns GP_ECANCELED.
 * Callable from any thread. */
void gp_loader_cancel(gp_loader *loader);

/* Wait for the batch of the oldest request and return it. Only one thread may call this at a time.
 *   waited_ns  set to the time spent waiting; 0: the batch was ready; may be NULL
 * A read error is returned in place of the batch, and the next call continues with the next
 * request.
 *
 *   GP_ESTATE: no request is queued, or the caller holds all slots; waiting would never end
 *   GP_ECANCELED: cancelled while waiting */
gp_status gp_loader_take(gp_loader *loader, gp_loader_batch **out, int64_t *waited_ns, gp_error *err);

/* Return a taken batch. Batches may be returned in any order. */
void gp_loader_release(gp_loader *loader, gp_loader_batch *batch);

#endif
