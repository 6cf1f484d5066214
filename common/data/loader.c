/* loader.c -- some threads, two fixed rings, and a list of what is being filled.
 *
 *   requests [oldest ... newest] --> filling [oldest ... newest] --> ready [...] --take--> the caller --release--> free
 *
 * A slot is FREE, FILLING, READY or TAKEN.  A thread takes the next piece of the newest slot that is being filled, or, when
 * all of that is handed out, begins the next request; so a slow sample holds up one thread, not its batch's successors.
 * Where a sample lies in its batch is fixed by its position, so the bits do not depend on the threads.  Slots become
 * ready in the order of the requests.  An error ends its batch: no piece behind it is handed out, those before it are out
 * already, and the first by position is the batch's.  A cancel empties all rings and raises `generation`; a slot that some
 * thread still has a piece of is DROPPED, and free when the last one gives its piece back. */
#include "common/data/loader.h"

#include <assert.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>

#include "common/base/alloc.h"
#include "common/base/clock.h"

enum {
    SAMPLES_PER_READ = 64, /* a stop is looked for after so many samples */
    PIECES_PER_THREAD = 4, /* of a batch, so that threads end together */
    ALIGNMENT = 64,
};

typedef enum slot_state { SLOT_FREE, SLOT_FILLING, SLOT_DROPPED, SLOT_READY, SLOT_TAKEN } slot_state;

typedef struct loader_slot {
    gp_loader_batch batch; /* first: a gp_loader_batch of ours is a loader_slot */
    slot_state state;
    uint32_t begun, done; /* samples handed out to threads, and given back */
    uint32_t error_at;    /* the sample's place in the batch */
    gp_error error;       /* code GP_OK: the batch is good */
} loader_slot;

/* A thread and what it alone writes. */
typedef struct loader_thread {
    gp_loader *loader;
    pthread_t thread;
    uint32_t index[SAMPLES_PER_READ];
    uint8_t *stored,
        *stored_targets; /* SAMPLES_PER_READ as they are stored; NULL unless they are augmented */
} loader_thread;

typedef struct loader_request {
    uint32_t epoch, first, count;
} loader_request;

struct gp_loader {
    const gp_store *store;
    gp_sampler sampler;
    uint32_t depth, capacity;
    loader_slot *slots;
    bool augments;
    gp_augment augment;
    gp_store_info shape; /* of what comes out */
    uint64_t seed;
    loader_thread *threads;
    uint32_t thread_count, started;

    pthread_mutex_t lock; /* of everything below */
    pthread_cond_t work;  /* to the threads: a request, a free slot, the end */
    pthread_cond_t ready; /* to the taker: a batch, a cancel */
    bool stopping;
    uint64_t generation;                             /* raised by each cancel */
    loader_request requests[GP_LOADER_REQUESTS_MAX]; /* ring */
    uint32_t request_head, request_count;
    uint32_t ready_slots[GP_LOADER_DEPTH_MAX]; /* ring of slot numbers */
    uint32_t ready_head, ready_count;
    uint32_t filling_slots[GP_LOADER_DEPTH_MAX]; /* ring of slot numbers */
    uint32_t filling_head, filling_count;
};

static loader_slot *slot_find(gp_loader *loader, slot_state state)
{
    for (uint32_t i = 0; i < loader->depth; i++)
        if (loader->slots[i].state == state)
            return &loader->slots[i];
    return NULL;
}

/* Samples of the indices at samples and targets as the batch has them. */
static gp_status samples_read(loader_thread *thread, uint32_t epoch, uint32_t count, uint8_t *samples,
                              uint8_t *targets, gp_error *err)
{
    gp_loader *loader = thread->loader;
    const gp_store_info *info = gp_store_get_info(loader->store), *shape = &loader->shape;
    const uint32_t patches = (uint32_t)loader->augment.patches_per_image;
    uint32_t images[SAMPLES_PER_READ];
    gp_status status;

    if (!loader->augments)
        return gp_store_read(loader->store, thread->index, count, samples, targets, err);
    for (uint32_t i = 0; i < count; i++)
        images[i] = thread->index[i] / patches;
    status = gp_store_read(loader->store, images, count, thread->stored, thread->stored_targets, err);
    for (uint32_t i = 0; i < count && status == GP_OK; i++) {
        const uint8_t *target = thread->stored_targets + i * info->target_bytes;
        gp_augment_draw draw;

        gp_augment_draw_sample(&draw, &loader->augment, info, shape, loader->seed, epoch, thread->index[i]);
        gp_augment_image(&draw, info, shape, loader->augment.fill, thread->stored + i * info->sample_bytes,
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

/* With the lock held: the slot that has samples nobody works at, begun if need be.  NULL: there is nothing to do. */
static loader_slot *slot_work(gp_loader *loader)
{
    uint32_t newest =
        (loader->filling_head + loader->filling_count + GP_LOADER_DEPTH_MAX - 1) % GP_LOADER_DEPTH_MAX;
    loader_slot *slot = loader->filling_count == 0 ? NULL : &loader->slots[loader->filling_slots[newest]];
    loader_request next;

    if (slot != NULL && slot->begun < slot->batch.count)
        return slot;
    slot = loader->request_count == 0 ? NULL : slot_find(loader, SLOT_FREE);
    if (slot == NULL)
        return NULL;
    next = loader->requests[loader->request_head];
    loader->request_head = (loader->request_head + 1) % GP_LOADER_REQUESTS_MAX;
    loader->request_count--;
    loader->filling_slots[(loader->filling_head + loader->filling_count++) % GP_LOADER_DEPTH_MAX] =
        (uint32_t)(slot - loader->slots);
    slot->state = SLOT_FILLING;
    slot->begun = slot->done = 0;
    slot->error.code = GP_OK;
    slot->batch.epoch = next.epoch;
    slot->batch.first = next.first;
    slot->batch.count = next.count;
    return slot;
}

/* How many samples of a batch a thread takes at a time. */
static uint32_t piece_size(const gp_loader *loader, uint32_t count)
{
    uint32_t size =
        loader->thread_count == 1 ? SAMPLES_PER_READ : count / (loader->thread_count * PIECES_PER_THREAD);

    return size < 1 ? 1 : size > SAMPLES_PER_READ ? SAMPLES_PER_READ : size;
}

/* With the lock held: slots that are complete, from the oldest on, are ready. */
static void slots_ready(gp_loader *loader)
{
    while (loader->filling_count > 0) {
        uint32_t number = loader->filling_slots[loader->filling_head];
        loader_slot *slot = &loader->slots[number];

        if (slot->done < slot->batch.count)
            return;
        loader->filling_head = (loader->filling_head + 1) % GP_LOADER_DEPTH_MAX;
        loader->filling_count--;
        slot->state = SLOT_READY;
        loader->ready_slots[(loader->ready_head + loader->ready_count++) % GP_LOADER_DEPTH_MAX] = number;
        pthread_cond_signal(&loader->ready);
    }
}

/* With the lock held: a piece is back. */
static void piece_end(gp_loader *loader, loader_slot *slot, uint32_t at, uint32_t count,
                      const gp_error *error)
{
    slot->done += count;
    if (slot->state == SLOT_DROPPED) {
        if (slot->done == slot->begun) {
            slot->state = SLOT_FREE;
            pthread_cond_signal(&loader->work);
        }
        return;
    }
    if (error->code != GP_OK) {
        if (slot->error.code == GP_OK || at < slot->error_at) {
            slot->error = *error;
            slot->error_at = at;
        }
        slot->done += slot->batch.count - slot->begun; /* the rest is not read */
        slot->begun = slot->batch.count;
    }
    slots_ready(loader);
}

static void *loader_main(void *argument)
{
    loader_thread *thread = argument;
    gp_loader *loader = thread->loader;
    const gp_store_info *shape = &loader->shape;

    pthread_mutex_lock(&loader->lock);
    while (!loader->stopping) {
        loader_slot *slot = slot_work(loader);
        gp_loader_batch *batch;
        uint32_t at, count;
        gp_error error = { GP_OK, "" };

        if (slot == NULL) {
            pthread_cond_wait(&loader->work, &loader->lock);
            continue;
        }
        batch = &slot->batch;
        at = slot->begun;
        count = piece_size(loader, batch->count);
        count = batch->count - at < count ? batch->count - at : count;
        slot->begun += count;
        /* What is left is somebody else's. */
        if (loader->thread_count > 1 && (slot->begun < batch->count || loader->request_count > 0))
            pthread_cond_signal(&loader->work);
        pthread_mutex_unlock(&loader->lock);
        gp_sampler_get(&loader->sampler, batch->epoch, batch->first + at, count, thread->index);
        error.code =
            samples_read(thread, batch->epoch, count, (uint8_t *)batch->samples + at * shape->sample_bytes,
                         (uint8_t *)batch->targets + at * shape->target_bytes, &error);
        pthread_mutex_lock(&loader->lock);
        piece_end(loader, slot, at, count, &error);
    }
    pthread_mutex_unlock(&loader->lock);
    return NULL;
}

static gp_status slots_new(gp_loader *loader, gp_error *err)
{
    const gp_store_info *info = gp_store_get_info(loader->store);
    size_t bytes = loader->shape.sample_bytes * loader->capacity,
           target_bytes = loader->shape.target_bytes * loader->capacity;

    loader->threads = gp_calloc(loader->thread_count, sizeof(*loader->threads));
    loader->slots = gp_calloc(loader->depth, sizeof(*loader->slots));
    if (loader->threads == NULL || loader->slots == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for a loader of depth %u", loader->depth);
    for (uint32_t i = 0; i < loader->thread_count && loader->augments; i++) {
        loader_thread *thread = &loader->threads[i];

        thread->stored = gp_aligned_calloc(ALIGNMENT, SAMPLES_PER_READ * info->sample_bytes);
        thread->stored_targets = gp_aligned_calloc(ALIGNMENT, SAMPLES_PER_READ * info->target_bytes);
        if (thread->stored == NULL || thread->stored_targets == NULL)
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
static gp_status threads_start(gp_loader *loader, gp_error *err)
{
    sigset_t all, old;
    int code = 0;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    while (loader->started < loader->thread_count && code == 0) {
        loader_thread *thread = &loader->threads[loader->started];

        thread->loader = loader;
        code = pthread_create(&thread->thread, NULL, loader_main, thread);
        if (code == 0) {
            pthread_setname_np(thread->thread, "gp-loader");
            loader->started++;
        }
    }
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return code == 0 ? GP_OK : gp_fail(err, GP_ELIMIT, "cannot start a loader's thread: %s", strerror(code));
}

/* One thread keeps up with what is copied; what is decoded is shared by as many as the caller may run on. */
static uint32_t threads_decide(const gp_store_info *info, uint32_t wanted)
{
    cpu_set_t cpus;
    int count = 1;

    if (wanted == 0 && info->decodes && sched_getaffinity(0, sizeof(cpus), &cpus) == 0)
        count = CPU_COUNT(&cpus);
    if (wanted != 0)
        count = (int)wanted;
    return count < 1 ? 1 : count > GP_LOADER_THREADS_MAX ? GP_LOADER_THREADS_MAX : (uint32_t)count;
}

gp_status gp_loader_new(gp_loader **out, const gp_store *store, const gp_sampler *sampler, uint32_t depth,
                        uint32_t capacity, gp_error *err)
{
    return gp_loader_new_augmented(out, store, sampler, depth, capacity, NULL, 0, 0, err);
}

gp_status gp_loader_new_augmented(gp_loader **out, const gp_store *store, const gp_sampler *sampler,
                                  uint32_t depth, uint32_t capacity, const gp_augment *augment, uint64_t seed,
                                  uint32_t threads, gp_error *err)
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
    loader->thread_count = threads_decide(gp_store_get_info(store), threads);
    pthread_mutex_init(&loader->lock, NULL);
    pthread_cond_init(&loader->work, NULL);
    pthread_cond_init(&loader->ready, NULL);
    status = slots_new(loader, err);
    if (status == GP_OK)
        status = threads_start(loader, err);
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
    pthread_mutex_lock(&loader->lock);
    loader->stopping = true;
    pthread_cond_broadcast(&loader->work);
    pthread_mutex_unlock(&loader->lock);
    for (uint32_t i = 0; i < loader->started; i++)
        pthread_join(loader->threads[i].thread, NULL);
    for (uint32_t i = 0; loader->slots != NULL && i < loader->depth; i++) {
        gp_free(loader->slots[i].batch.samples);
        gp_free(loader->slots[i].batch.targets);
    }
    for (uint32_t i = 0; loader->threads != NULL && i < loader->thread_count; i++) {
        gp_free(loader->threads[i].stored);
        gp_free(loader->threads[i].stored_targets);
    }
    gp_free(loader->slots);
    gp_free(loader->threads);
    pthread_cond_destroy(&loader->ready);
    pthread_cond_destroy(&loader->work);
    pthread_mutex_destroy(&loader->lock);
    gp_free(loader);
}

/* What takes long to come is sent for when it is requested, not when a thread has time for it. */
static void request_expect(const gp_loader *loader, uint32_t epoch, uint32_t first, uint32_t count)
{
    const uint32_t patches = loader->augments ? (uint32_t)loader->augment.patches_per_image : 1;
    uint32_t index[SAMPLES_PER_READ];

    for (uint32_t done = 0; done < count;) {
        uint32_t part = count - done < SAMPLES_PER_READ ? count - done : SAMPLES_PER_READ;

        gp_sampler_get(&loader->sampler, epoch, first + done, part, index);
        for (uint32_t i = 0; i < part; i++)
            index[i] /= patches;
        gp_store_expect(loader->store, index, part);
        done += part;
    }
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
    if (status == GP_OK && gp_store_get_info(loader->store)->remote)
        request_expect(loader, epoch, first, count);
    return status;
}

void gp_loader_cancel(gp_loader *loader)
{
    pthread_mutex_lock(&loader->lock);
    for (; loader->ready_count > 0; loader->ready_count--) {
        loader->slots[loader->ready_slots[loader->ready_head]].state = SLOT_FREE;
        loader->ready_head = (loader->ready_head + 1) % GP_LOADER_DEPTH_MAX;
    }
    for (; loader->filling_count > 0; loader->filling_count--) {
        loader_slot *slot = &loader->slots[loader->filling_slots[loader->filling_head]];

        slot->state = slot->done == slot->begun ? SLOT_FREE : SLOT_DROPPED;
        loader->filling_head = (loader->filling_head + 1) % GP_LOADER_DEPTH_MAX;
    }
    loader->request_count = 0;
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
        if (loader->filling_count == 0 && loader->request_count == 0)
            return gp_fail(err, GP_ESTATE, "a batch was to be taken from the loader, but none is requested");
        if (loader->filling_count == 0 && slot_find(loader, SLOT_FREE) == NULL &&
            slot_find(loader, SLOT_DROPPED) == NULL)
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
