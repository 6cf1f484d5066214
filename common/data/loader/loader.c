/* loader.c -- some threads, two fixed rings, and a list of what is being filled.
 *
 *   requests [oldest ... newest] --> filling [oldest ... newest] --> ready [...] --take--> the caller --release--> free
 *
 * A slot is FREE, FILLING, READY or TAKEN.  A thread takes the next piece of the newest slot that is being filled, or, when
 * all of that is handed out, begins the next request; so a slow sample holds up one thread, not its batch's successors.
 * Where a sample lies in its batch is fixed by its position, so the bits do not depend on the threads.  Slots become
 * ready in the order of the requests.  An error ends its batch: no piece behind it is handed out, those before it are out
 * already, and the first by position is the batch's.  A cancel empties all rings and raises `generation`; a slot that some
 * thread still has a piece of is DROPPED, and free when the last one gives its piece back.
 *
 * It stays whole, though it is long: one mutex, and all that it guards. */
#include "common/data/loader/loader.h"

#include <assert.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>

#include "common/base/memory/alloc.h"
#include "common/base/clock.h"
#include "common/base/system/process.h"

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
    /* SAMPLES_PER_READ as they are stored; NULL where the store writes the batch. */
    uint8_t *stored, *stored_targets;
    uint8_t *drawn; /* one sample, before it gets its form; NULL unless both are done here */
} loader_thread;

typedef struct loader_request {
    uint32_t epoch, first, count;
} loader_request;

struct gp_loader {
    const gp_store *store;
    gp_sampler sampler;
    uint32_t depth_min, depth_max, capacity;
    loader_slot *slots; /* depth_max of them */
    uint8_t *memory;    /* of their batches */
    size_t slot_bytes, samples_bytes;
    bool augments, draws; /* something is done to samples; the store does it */
    gp_augment augment;
    gp_store_info shape; /* of what comes out */
    gp_drawing drawing;
    loader_thread *threads;
    uint32_t thread_count, started;

    pthread_mutex_t lock; /* of everything below */
    pthread_cond_t work;  /* to the threads: a request, a free slot, the end */
    pthread_cond_t ready; /* to the taker: a batch, a cancel */
    bool stopping;
    uint32_t depth, used;                            /* slots that may be used, and those that are */
    bool starved;                                    /* a thread had nothing to do for want of a slot */
    uint32_t calm;                                   /* takes since one waited */
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
    for (uint32_t i = 0; i < loader->depth_max; i++)
        if (loader->slots[i].state == state)
            return &loader->slots[i];
    return NULL;
}

/* Sample i of those that were read, and what goes with it, into the batch. */
static void sample_put(loader_thread *thread, uint32_t epoch, uint32_t i, uint8_t *sample, uint8_t *targets)
{
    const gp_loader *loader = thread->loader;
    const gp_store_info *info = gp_store_get_info(loader->store), *shape = &loader->shape;
    const uint8_t *stored = thread->stored + i * info->sample_bytes,
                  *target = thread->stored_targets + i * info->target_bytes;
    uint8_t *drawn = thread->drawn == NULL ? sample : thread->drawn;
    gp_augment_draw draw;

    if (loader->augments) {
        gp_augment_draw_sample(&draw, &loader->augment, info, shape, loader->drawing.seed, epoch,
                               thread->index[i]);
        gp_augment_image(&draw, info, shape, loader->augment.fill, stored, drawn);
        stored = drawn;
    }
    if (loader->drawing.form != GP_PIXELS_PLANES)
        gp_pixels_form(sample, loader->drawing.form, stored, shape->channels,
                       (size_t)shape->height * shape->width, shape->scale, shape->offset);
    for (uint32_t t = 0; t < info->target_count; t++) {
        size_t bytes = gp_targets_bytes(&info->targets[t], 1);

        if (loader->augments && info->targets[t].shape.rank == 2)
            gp_augment_indices(&draw, info, shape, (const int32_t *)(const void *)target,
                               (int32_t *)(void *)targets);
        else
            memcpy(targets, target, bytes);
        target += bytes;
        targets += gp_targets_bytes(&shape->targets[t], 1);
    }
}

/* Samples of the indices at samples and targets as the batch has them. */
static gp_status samples_read(loader_thread *thread, uint32_t epoch, uint32_t count, uint8_t *samples,
                              uint8_t *targets, gp_error *err)
{
    gp_loader *loader = thread->loader;
    const uint32_t patches = loader->augments ? (uint32_t)loader->augment.patches_per_image : 1;
    uint32_t images[SAMPLES_PER_READ];
    gp_status status;

    if (loader->draws)
        return gp_store_read_drawn(loader->store, &loader->drawing, epoch, thread->index, count, samples,
                                   targets, err);
    if (thread->stored == NULL)
        return gp_store_read(loader->store, thread->index, count, samples, targets, err);
    for (uint32_t i = 0; i < count; i++)
        images[i] = thread->index[i] / patches;
    status = gp_store_read(loader->store, images, count, thread->stored, thread->stored_targets, err);
    for (uint32_t i = 0; i < count && status == GP_OK; i++)
        sample_put(thread, epoch, i, samples + i * loader->drawing.sample_bytes,
                   targets + i * loader->shape.target_bytes);
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
    if (loader->request_count == 0)
        return NULL;
    slot = loader->used < loader->depth ? slot_find(loader, SLOT_FREE) : NULL;
    if (slot == NULL) {
        loader->starved = true;
        return NULL;
    }
    loader->used++;
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

/* With the lock held. */
static void slot_free(gp_loader *loader, loader_slot *slot)
{
    slot->state = SLOT_FREE;
    loader->used--;
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
            slot_free(loader, slot);
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
    const size_t sample_bytes = loader->drawing.sample_bytes, target_bytes = loader->shape.target_bytes;

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
        error.code = samples_read(thread, batch->epoch, count, (uint8_t *)batch->samples + at * sample_bytes,
                                  (uint8_t *)batch->targets + at * target_bytes, &error);
        pthread_mutex_lock(&loader->lock);
        piece_end(loader, slot, at, count, &error);
    }
    pthread_mutex_unlock(&loader->lock);
    return NULL;
}

static size_t aligned(size_t bytes)
{
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

/* A batch's bytes, and how many batches there may be within the limit. */
static void slots_size(gp_loader *loader, const gp_loader_options *options)
{
    uint64_t fit;

    loader->samples_bytes = aligned(loader->drawing.sample_bytes * loader->capacity);
    loader->slot_bytes = loader->samples_bytes + aligned(loader->shape.target_bytes * loader->capacity);
    fit = options->bytes_max / loader->slot_bytes;
    loader->depth = loader->depth_min = loader->depth_max = options->depth;
    if (options->depth_max > loader->depth_max)
        loader->depth_max = fit > options->depth_max ? options->depth_max
                            : fit > options->depth   ? (uint32_t)fit
                                                     : options->depth;
}

/* What a thread needs where the store does not write the batch itself. */
static gp_status thread_memory(gp_loader *loader, loader_thread *thread, gp_error *err)
{
    const gp_store_info *info = gp_store_get_info(loader->store);
    bool forms = loader->drawing.form != GP_PIXELS_PLANES;

    if (loader->draws || !(loader->augments || forms))
        return GP_OK;
    thread->stored = gp_aligned_calloc(ALIGNMENT, SAMPLES_PER_READ * info->sample_bytes);
    thread->stored_targets = gp_aligned_calloc(ALIGNMENT, SAMPLES_PER_READ * info->target_bytes);
    if (loader->augments && forms)
        thread->drawn = gp_aligned_calloc(ALIGNMENT, loader->shape.sample_bytes);
    if (thread->stored == NULL || thread->stored_targets == NULL ||
        (loader->augments && forms && thread->drawn == NULL))
        return gp_fail(err, GP_ENOMEM, "no memory for %d samples of %zu bytes", SAMPLES_PER_READ,
                       info->sample_bytes + info->target_bytes);
    return GP_OK;
}

static gp_status slots_new(gp_loader *loader, gp_error *err)
{
    gp_status status = GP_OK;

    loader->threads = gp_calloc(loader->thread_count, sizeof(*loader->threads));
    loader->slots = gp_calloc(loader->depth_max, sizeof(*loader->slots));
    if (loader->threads == NULL || loader->slots == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for a loader of depth %u", loader->depth_max);
    for (uint32_t i = 0; i < loader->thread_count && status == GP_OK; i++)
        status = thread_memory(loader, &loader->threads[i], err);
    if (status != GP_OK)
        return status;
    /* Pages are taken as they are written: a slot that is never used costs nothing. */
    loader->memory = gp_reserve(loader->slot_bytes * loader->depth_max);
    if (loader->memory == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for %u batches of %u samples (%zu bytes each)",
                       loader->depth_max, loader->capacity, loader->slot_bytes);
    for (uint32_t i = 0; i < loader->depth_max; i++) {
        gp_loader_batch *batch = &loader->slots[i].batch;

        batch->samples = loader->memory + i * loader->slot_bytes;
        batch->targets = loader->memory + i * loader->slot_bytes + loader->samples_bytes;
    }
    return GP_OK;
}

static gp_status threads_start(gp_loader *loader, gp_error *err)
{
    int code = 0;

    while (loader->started < loader->thread_count && code == 0) {
        loader_thread *thread = &loader->threads[loader->started];

        thread->loader = loader;
        code = gp_thread_start(&thread->thread, "gp-loader", 0, loader_main, thread);
        if (code == 0)
            loader->started++;
    }
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
    return gp_loader_new_with(out, store, sampler,
                              &(gp_loader_options){ .depth = depth, .capacity = capacity }, err);
}

/* What is done to samples, and what comes out. */
static gp_status drawing_decide(gp_loader *loader, const gp_loader_options *options, gp_error *err)
{
    const gp_store_info *info = gp_store_get_info(loader->store);
    gp_status status = GP_OK;

    loader->shape = *info;
    loader->augments = options->augment != NULL && !gp_augment_is_identity(options->augment);
    if (loader->augments) {
        loader->augment = *options->augment;
        status = gp_augment_shape(&loader->shape, &loader->augment, info, err);
    }
    if (status == GP_OK && options->form != GP_PIXELS_PLANES && info->dtype != GP_U8)
        status =
            gp_fail(err, GP_EINVAL, "the samples of %s are no bytes; they have no other form", info->source);
    if (status != GP_OK)
        return status;
    loader->draws = loader->augments && gp_store_draws(loader->store, &loader->augment);
    loader->drawing =
        (gp_drawing){ .augment = &loader->augment,
                      .shape = &loader->shape,
                      .seed = options->seed,
                      .form = options->form,
                      .sample_bytes = loader->shape.sample_bytes * gp_pixel_form_bytes(options->form) };
    return GP_OK;
}

gp_status gp_loader_new_with(gp_loader **out, const gp_store *store, const gp_sampler *sampler,
                             const gp_loader_options *options, gp_error *err)
{
    gp_status status;
    gp_loader *loader;

    if (options->depth < 1 || options->depth > GP_LOADER_DEPTH_MAX ||
        options->depth_max > GP_LOADER_DEPTH_MAX)
        return gp_fail(err, GP_EINVAL, "a loader's depth is %u, at most %u; 1 to %d is possible",
                       options->depth, options->depth_max, GP_LOADER_DEPTH_MAX);
    if (options->capacity < 1 || options->capacity > GP_LOADER_BATCH_MAX)
        return gp_fail(err, GP_EINVAL, "a loader's batch has %u samples; 1 to %d are possible",
                       options->capacity, GP_LOADER_BATCH_MAX);
    loader = gp_calloc(1, sizeof(*loader));
    if (loader == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for a loader");
    loader->store = store;
    loader->sampler = *sampler;
    loader->capacity = options->capacity;
    loader->thread_count = threads_decide(gp_store_get_info(store), options->threads);
    pthread_mutex_init(&loader->lock, NULL);
    pthread_cond_init(&loader->work, NULL);
    pthread_cond_init(&loader->ready, NULL);
    status = drawing_decide(loader, options, err);
    if (status == GP_OK) {
        assert(sampler->count <= loader->shape.count);
        slots_size(loader, options);
        status = slots_new(loader, err);
    }
    if (status == GP_OK)
        status = threads_start(loader, err);
    if (status != GP_OK) {
        gp_loader_free(loader);
        return status;
    }
    *out = loader;
    return GP_OK;
}

uint32_t gp_loader_depth(gp_loader *loader)
{
    pthread_mutex_lock(&loader->lock);
    uint32_t depth = loader->depth;

    pthread_mutex_unlock(&loader->lock);
    return depth;
}

uint32_t gp_loader_depth_max(const gp_loader *loader)
{
    return loader->depth_max;
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
    gp_unreserve(loader->memory, loader->slot_bytes * loader->depth_max);
    for (uint32_t i = 0; loader->threads != NULL && i < loader->thread_count; i++) {
        gp_free(loader->threads[i].stored);
        gp_free(loader->threads[i].stored_targets);
        gp_free(loader->threads[i].drawn);
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
        slot_free(loader, &loader->slots[loader->ready_slots[loader->ready_head]]);
        loader->ready_head = (loader->ready_head + 1) % GP_LOADER_DEPTH_MAX;
    }
    for (; loader->filling_count > 0; loader->filling_count--) {
        loader_slot *slot = &loader->slots[loader->filling_slots[loader->filling_head]];

        if (slot->done == slot->begun)
            slot_free(loader, slot);
        else
            slot->state = SLOT_DROPPED;
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
        if (loader->filling_count == 0 && loader->used >= loader->depth &&
            slot_find(loader, SLOT_DROPPED) == NULL)
            return gp_fail(err, GP_ESTATE, "all %u batches of the loader are taken; release one first",
                           loader->depth);
        pthread_cond_wait(&loader->ready, &loader->lock);
    }
    return GP_OK;
}

/* With the lock held: more slots only where they would have helped. */
static void depth_adapt(gp_loader *loader, bool waits)
{
    if (waits && loader->starved && loader->depth < loader->depth_max) {
        loader->depth++;
        pthread_cond_signal(&loader->work);
    }
    if (waits) {
        loader->starved = false;
        loader->calm = 0;
    } else if (++loader->calm >= GP_LOADER_CALM) {
        loader->calm = 0;
        loader->depth -= loader->depth > loader->depth_min;
    }
}

gp_status gp_loader_take(gp_loader *loader, gp_loader_batch **out, int64_t *waited_ns, gp_error *err)
{
    int64_t since = 0;
    gp_status status;
    loader_slot *slot;

    pthread_mutex_lock(&loader->lock);
    if (waited_ns != NULL && loader->ready_count == 0)
        since = gp_now_ns();
    depth_adapt(loader, loader->ready_count == 0);
    status = ready_wait(loader, err);
    if (status == GP_OK) {
        slot = &loader->slots[loader->ready_slots[loader->ready_head]];
        loader->ready_head = (loader->ready_head + 1) % GP_LOADER_DEPTH_MAX;
        loader->ready_count--;
        status = slot->error.code;
        if (status == GP_OK) {
            slot->state = SLOT_TAKEN;
            *out = &slot->batch;
        } else {
            slot_free(loader, slot);
            if (err != NULL)
                *err = slot->error;
        }
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
    assert(slot >= loader->slots && slot < loader->slots + loader->depth_max && slot->state == SLOT_TAKEN);
    slot_free(loader, slot);
    pthread_cond_signal(&loader->work);
    pthread_mutex_unlock(&loader->lock);
}
