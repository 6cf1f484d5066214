/* loader.c -- one thread, two fixed rings.
 *
 *   requests [oldest ... newest]  --thread-->  ready [oldest ... newest]  --take-->  the caller  --release--> free
 *
 * A slot is FREE, FILLING (the thread's), READY (in the ready ring) or TAKEN (the caller's).  Only the
 * thread fills, one slot at a time, so batches become ready in the order of the requests.  A cancel
 * empties both rings and raises `generation`; a slot that was being filled is dropped when it comes back with an
 * older one. */
#include "common/data/loader.h"

#include <assert.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"

enum { SAMPLES_PER_READ = 64, ALIGNMENT = 64 }; /* a stop is looked for after so many samples */

typedef enum slot_state { SLOT_FREE, SLOT_FILLING, SLOT_READY, SLOT_TAKEN } slot_state;

typedef struct loader_slot {
    gp_loader_batch batch; /* first: a gp_loader_batch of ours is a loader_slot */
    slot_state state;
    gp_error error; /* code GP_OK: the batch is good */
} loader_slot;

typedef struct loader_request {
    uint32_t epoch, first, count;
} loader_request;

struct gp_loader {
    const gp_store *store;
    gp_sampler sampler;
    uint32_t depth, capacity;
    loader_slot *slots;
    uint32_t *index; /* SAMPLES_PER_READ; the thread's own */
    bool augments;
    gp_augment augment;
    gp_store_info shape; /* of what comes out */
    uint64_t seed;
    uint8_t *stored,
        *stored_targets; /* SAMPLES_PER_READ as they are stored; NULL unless they are augmented */
    pthread_t thread;
    bool started;

    pthread_mutex_t lock; /* of everything below */
    pthread_cond_t work;  /* to the thread: a request, a free slot, the end */
    pthread_cond_t ready; /* to the taker: a batch, a cancel */
    bool stopping;
    uint64_t generation;                             /* raised by each cancel */
    loader_request requests[GP_LOADER_REQUESTS_MAX]; /* ring */
    uint32_t request_head, request_count;
    uint32_t ready_slots[GP_LOADER_DEPTH_MAX]; /* ring of slot numbers */
    uint32_t ready_head, ready_count;
    bool filling; /* the thread has a slot of this generation in hand */
};

static loader_slot *slot_find(gp_loader *loader, slot_state state)
{
    for (uint32_t i = 0; i < loader->depth; i++)
        if (loader->slots[i].state == state)
            return &loader->slots[i];
    return NULL;
}

/* Whether what is being filled is still wanted. */
static bool still_wanted(gp_loader *loader, uint64_t generation)
{
    bool wanted;

    pthread_mutex_lock(&loader->lock);
    wanted = !loader->stopping && loader->generation == generation;
    pthread_mutex_unlock(&loader->lock);
    return wanted;
}

/* Samples of the indices at samples and targets as the batch has them. */
static gp_status samples_read(gp_loader *loader, uint32_t epoch, uint32_t count, uint8_t *samples,
                              uint8_t *targets, gp_error *err)
{
    const gp_store_info *info = gp_store_get_info(loader->store), *shape = &loader->shape;
    const uint32_t patches = (uint32_t)loader->augment.patches_per_image;
    uint32_t images[SAMPLES_PER_READ];
    gp_status status;

    if (!loader->augments)
        return gp_store_read(loader->store, loader->index, count, samples, targets, err);
    for (uint32_t i = 0; i < count; i++)
        images[i] = loader->index[i] / patches;
    status = gp_store_read(loader->store, images, count, loader->stored, loader->stored_targets, err);
    for (uint32_t i = 0; i < count && status == GP_OK; i++) {
        const uint8_t *target = loader->stored_targets + i * info->target_bytes;
        gp_augment_draw draw;

        gp_augment_draw_sample(&draw, &loader->augment, info, shape, loader->seed, epoch, loader->index[i]);
        gp_augment_image(&draw, info, shape, loader->augment.fill, loader->stored + i * info->sample_bytes,
                         samples + i * shape->sample_bytes);
        for (uint32_t t = 0; t < info->target_count; t++) {
            size_t bytes = gp_targets_bytes(&info->targets[t], 1);

            if (info->targets[t].shape.rank == 2)
                gp_augment_indices(&draw, info, shape, (const int32_t *)(const void *)target,
                                   (int32_t *)(void *)targets);
            else
                memcpy(targets, target, bytes);
            target += bytes;
            targets += gp_targets_bytes(&shape->targets[t], 1);
        }
    }
    return status;
}

/* Without the lock: the slot is the thread's.  Leaves early when nobody wants it any more. */
static void slot_fill(gp_loader *loader, loader_slot *slot, uint64_t generation)
{
    const gp_store_info *shape = &loader->shape;
    gp_loader_batch *batch = &slot->batch;

    slot->error.code = GP_OK;
    for (uint32_t done = 0; done < batch->count && slot->error.code == GP_OK;) {
        uint32_t part = batch->count - done < SAMPLES_PER_READ ? batch->count - done : SAMPLES_PER_READ;

        if (done > 0 && !still_wanted(loader, generation))
            return;
        gp_sampler_get(&loader->sampler, batch->epoch, batch->first + done, part, loader->index);
        slot->error.code =
            samples_read(loader, batch->epoch, part, (uint8_t *)batch->samples + done * shape->sample_bytes,
                         (uint8_t *)batch->targets + done * shape->target_bytes, &slot->error);
        done += part;
    }
}

static void *loader_main(void *argument)
{
    gp_loader *loader = argument;

    pthread_mutex_lock(&loader->lock);
    while (!loader->stopping) {
        loader_slot *slot = loader->request_count == 0 ? NULL : slot_find(loader, SLOT_FREE);
        uint64_t generation = loader->generation;
        loader_request next;

        if (slot == NULL) {
            pthread_cond_wait(&loader->work, &loader->lock);
            continue;
        }
        next = loader->requests[loader->request_head];
        loader->request_head = (loader->request_head + 1) % GP_LOADER_REQUESTS_MAX;
        loader->request_count--;
        loader->filling = true;
        slot->state = SLOT_FILLING;
        slot->batch.epoch = next.epoch;
        slot->batch.first = next.first;
        slot->batch.count = next.count;
        pthread_mutex_unlock(&loader->lock);
        slot_fill(loader, slot, generation);
        pthread_mutex_lock(&loader->lock);
        if (loader->generation != generation) {
            slot->state = SLOT_FREE;
            continue;
        }
        loader->filling = false;
        slot->state = SLOT_READY;
        loader->ready_slots[(loader->ready_head + loader->ready_count++) % GP_LOADER_DEPTH_MAX] =
            (uint32_t)(slot - loader->slots);
        pthread_cond_signal(&loader->ready);
    }
    pthread_mutex_unlock(&loader->lock);
    return NULL;
}

static gp_status slots_new(gp_loader *loader, gp_error *err)
{
    const gp_store_info *info = gp_store_get_info(loader->store);
    size_t bytes = loader->shape.sample_bytes * loader->capacity,
           target_bytes = loader->shape.target_bytes * loader->capacity;

    loader->index = gp_calloc(SAMPLES_PER_READ, sizeof(*loader->index));
    loader->slots = gp_calloc(loader->depth, sizeof(*loader->slots));
    if (loader->index == NULL || loader->slots == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for a loader of depth %u", loader->depth);
    if (loader->augments) {
        loader->stored = gp_aligned_calloc(ALIGNMENT, SAMPLES_PER_READ * info->sample_bytes);
        loader->stored_targets = gp_aligned_calloc(ALIGNMENT, SAMPLES_PER_READ * info->target_bytes);
        if (loader->stored == NULL || loader->stored_targets == NULL)
            return gp_fail(err, GP_ENOMEM, "no memory for %d samples of %zu bytes", SAMPLES_PER_READ,
                           info->sample_bytes + info->target_bytes);
    }
    for (uint32_t i = 0; i < loader->depth; i++) {
        gp_loader_batch *batch = &loader->slots[i].batch;

        batch->samples = gp_aligned_calloc(ALIGNMENT, bytes);
        batch->targets = gp_aligned_calloc(ALIGNMENT, target_bytes);
        if (batch->samples == NULL || batch->targets == NULL)
            return gp_fail(err, GP_ENOMEM, "no memory for %u batches of %u samples (%zu bytes each)",
                           loader->depth, loader->capacity, bytes + target_bytes);
    }
    return GP_OK;
}

/* All signals are for the process's other threads. */
static gp_status thread_start(gp_loader *loader, gp_error *err)
{
    sigset_t all, old;
    int code;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    code = pthread_create(&loader->thread, NULL, loader_main, loader);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (code != 0)
        return gp_fail(err, GP_ELIMIT, "cannot start the loader's thread: %s", strerror(code));
    pthread_setname_np(loader->thread, "gp-loader");
    loader->started = true;
    return GP_OK;
}

gp_status gp_loader_new(gp_loader **out, const gp_store *store, const gp_sampler *sampler, uint32_t depth,
                        uint32_t capacity, gp_error *err)
{
    return gp_loader_new_augmented(out, store, sampler, depth, capacity, NULL, 0, err);
}

gp_status gp_loader_new_augmented(gp_loader **out, const gp_store *store, const gp_sampler *sampler,
                                  uint32_t depth, uint32_t capacity, const gp_augment *augment, uint64_t seed,
                                  gp_error *err)
{
    gp_store_info shape = *gp_store_get_info(store);
    gp_status status = GP_OK;
    gp_loader *loader;

    if (depth < 1 || depth > GP_LOADER_DEPTH_MAX)
        return gp_fail(err, GP_EINVAL, "a loader's depth is %u; 1 to %d is possible", depth,
                       GP_LOADER_DEPTH_MAX);
    if (capacity < 1 || capacity > GP_LOADER_BATCH_MAX)
        return gp_fail(err, GP_EINVAL, "a loader's batch has %u samples; 1 to %d are possible", capacity,
                       GP_LOADER_BATCH_MAX);
    if (augment != NULL && !gp_augment_is_identity(augment))
        status = gp_augment_shape(&shape, augment, gp_store_get_info(store), err);
    if (status != GP_OK)
        return status;
    assert(sampler->count <= shape.count);
    loader = gp_calloc(1, sizeof(*loader));
    if (loader == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for a loader");
    loader->store = store;
    loader->sampler = *sampler;
    loader->augments = augment != NULL && !gp_augment_is_identity(augment);
    if (loader->augments)
        loader->augment = *augment;
    loader->shape = shape;
    loader->seed = seed;
    loader->depth = depth;
    loader->capacity = capacity;
    pthread_mutex_init(&loader->lock, NULL);
    pthread_cond_init(&loader->work, NULL);
    pthread_cond_init(&loader->ready, NULL);
    status = slots_new(loader, err);
    if (status == GP_OK)
        status = thread_start(loader, err);
    if (status != GP_OK) {
        gp_loader_free(loader);
        return status;
    }
    *out = loader;
    return GP_OK;
}

void gp_loader_free(gp_loader *loader)
{
    if (loader == NULL)
        return;
    if (loader->started) {
        pthread_mutex_lock(&loader->lock);
        loader->stopping = true;
        pthread_cond_signal(&loader->work);
        pthread_mutex_unlock(&loader->lock);
        pthread_join(loader->thread, NULL);
    }
    for (uint32_t i = 0; loader->slots != NULL && i < loader->depth; i++) {
        gp_free(loader->slots[i].batch.samples);
        gp_free(loader->slots[i].batch.targets);
    }
    gp_free(loader->slots);
    gp_free(loader->stored);
    gp_free(loader->stored_targets);
    gp_free(loader->index);
    pthread_cond_destroy(&loader->ready);
    pthread_cond_destroy(&loader->work);
    pthread_mutex_destroy(&loader->lock);
    gp_free(loader);
}

gp_status gp_loader_request(gp_loader *loader, uint32_t epoch, uint32_t first, uint32_t count, gp_error *err)
{
    gp_status status = GP_OK;

    if (count > loader->capacity)
        return gp_fail(err, GP_EINVAL, "%u samples were requested of a loader of batches of %u", count,
                       loader->capacity);
    if (first > loader->sampler.count || count > loader->sampler.count - first)
        return gp_fail(err, GP_EINVAL, "samples %u to %llu were requested of an epoch of %u", first,
                       (unsigned long long)first + count, loader->sampler.count);
    pthread_mutex_lock(&loader->lock);
    if (loader->request_count == GP_LOADER_REQUESTS_MAX) {
        status = gp_fail(err, GP_EBUSY, "%d batches are requested already", GP_LOADER_REQUESTS_MAX);
    } else {
        loader->requests[(loader->request_head + loader->request_count++) % GP_LOADER_REQUESTS_MAX] =
            (loader_request){ epoch, first, count };
        pthread_cond_signal(&loader->work);
    }
    pthread_mutex_unlock(&loader->lock);
    return status;
}

void gp_loader_cancel(gp_loader *loader)
{
    pthread_mutex_lock(&loader->lock);
    for (; loader->ready_count > 0; loader->ready_count--) {
        loader->slots[loader->ready_slots[loader->ready_head]].state = SLOT_FREE;
        loader->ready_head = (loader->ready_head + 1) % GP_LOADER_DEPTH_MAX;
    }
    loader->request_count = 0;
    loader->filling = false;
    loader->generation++;
    pthread_cond_signal(&loader->ready);
    pthread_mutex_unlock(&loader->lock);
}

/* With the lock held: wait until a batch is ready. */
static gp_status ready_wait(gp_loader *loader, gp_error *err)
{
    uint64_t generation = loader->generation;

    while (loader->ready_count == 0) {
        if (loader->generation != generation)
            return gp_fail(err, GP_ECANCELED, "the requested batches were cancelled");
        if (!loader->filling && loader->request_count == 0)
            return gp_fail(err, GP_ESTATE, "a batch was to be taken from the loader, but none is requested");
        if (!loader->filling && slot_find(loader, SLOT_FREE) == NULL &&
            slot_find(loader, SLOT_FILLING) == NULL)
            return gp_fail(err, GP_ESTATE, "all %u batches of the loader are taken; release one first",
                           loader->depth);
        pthread_cond_wait(&loader->ready, &loader->lock);
    }
    return GP_OK;
}

gp_status gp_loader_take(gp_loader *loader, gp_loader_batch **out, int64_t *waited_ns, gp_error *err)
{
    int64_t since = 0;
    gp_status status;
    loader_slot *slot;

    pthread_mutex_lock(&loader->lock);
    if (waited_ns != NULL && loader->ready_count == 0)
        since = gp_now_ns();
    status = ready_wait(loader, err);
    if (status == GP_OK) {
        slot = &loader->slots[loader->ready_slots[loader->ready_head]];
        loader->ready_head = (loader->ready_head + 1) % GP_LOADER_DEPTH_MAX;
        loader->ready_count--;
        status = slot->error.code;
        slot->state = status == GP_OK ? SLOT_TAKEN : SLOT_FREE;
        if (status == GP_OK)
            *out = &slot->batch;
        else if (err != NULL)
            *err = slot->error;
        pthread_cond_signal(&loader->work); /* a slot may be free */
    }
    pthread_mutex_unlock(&loader->lock);
    if (status == GP_OK && waited_ns != NULL)
        *waited_ns = since == 0 ? 0 : gp_now_ns() - since;
    return status;
}

void gp_loader_release(gp_loader *loader, gp_loader_batch *batch)
{
    loader_slot *slot = (loader_slot *)batch;

    pthread_mutex_lock(&loader->lock);
    assert(slot >= loader->slots && slot < loader->slots + loader->depth && slot->state == SLOT_TAKEN);
    slot->state = SLOT_FREE;
    pthread_cond_signal(&loader->work);
    pthread_mutex_unlock(&loader->lock);
}
