/* Prefetch batches: worker threads fill slots in a ring, and one consumer takes them in order.
 *
 *   requests --> filling --> ready --take--> TAKEN --release--> FREE
 *
 * A slot is FREE, FILLING, READY or TAKEN. A thread takes the next samples from the newest slot
 * being filled. If all of these are assigned, the thread starts the next request. A slow sample
 * therefore delays one thread, but not the following batches. Each sample has a fixed position in
 * its batch, so the result does not depend on thread timing. Slots become ready in request order.
 *
 * A read error ends a batch: no further samples are assigned, and of all errors the one with the
 * lowest position is reported. A cancel empties all rings and increments `generation`. If a thread
 * still works on a slot, the cancel marks that slot DROPPED; the last such thread frees it.
 *
 * One mutex protects everything below. Reading the samples needs no lock. */
#include "common/data/loader/loader.h"

#include <assert.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>

#include "common/base/clock.h"
#include "common/base/memory/alloc.h"
#include "common/base/memory/ring.h"
#include "common/base/system/process.h"

enum {
    PIECES_PER_THREAD = 4, /* pieces per batch and thread: threads finish at about the same time */
    ALIGNMENT = 64,
};

/* ---- reading samples ---- */

enum { READER_SAMPLES = 64 }; /* largest number of samples per read */

/* Reader settings, constant after reader_init(), so any number of threads may read. `drawing`
 * points into the struct: do not move it. */
typedef struct loader_reader {
    const gp_store *store; /* borrowed */
    gp_sampler sampler;
    gp_augment augment;
    bool augments;       /* samples are augmented */
    bool draws;          /* the store applies the augmentation itself */
    gp_store_info shape; /* description of the samples in a batch */
    gp_drawing drawing;
} loader_reader;

/* Buffers for one thread. */
typedef struct reader_scratch {
    uint32_t index[READER_SAMPLES];
    /* samples and targets as stored; NULL: the store writes directly to the batch */
    uint8_t *stored, *stored_targets;
    uint8_t *drawn; /* augmented sample before format conversion; NULL: not needed */
} reader_scratch;

/* Initialize a reader and check the options. GP_EINVAL: the augmentation or pixel format does not
 * suit the store. */
static gp_status reader_init(loader_reader *reader, const gp_store *store, const gp_sampler *sampler,
                             const gp_loader_options *options, gp_error *err)
{
    const gp_store_info *info = gp_store_get_info(store);
    gp_status status = GP_OK;

    reader->store = store;
    reader->sampler = *sampler;
    reader->shape = *info;
    reader->augments = options->augment != NULL && !gp_augment_is_identity(options->augment);
    if (reader->augments) {
        reader->augment = *options->augment;
        status = gp_augment_shape(&reader->shape, &reader->augment, info, err);
    }
    if (status == GP_OK && options->form != GP_PIXELS_PLANES && info->dtype != GP_U8)
        status = gp_fail(err, GP_EINVAL, "the samples of %s have no uint8 form", info->source);
    if (status != GP_OK)
        return status;
    reader->draws = reader->augments && gp_store_draws(reader->store, &reader->augment);
    reader->drawing =
        (gp_drawing){ .augment = &reader->augment,
                      .shape = &reader->shape,
                      .seed = options->seed,
                      .form = options->form,
                      .sample_bytes = reader->shape.sample_bytes * gp_pixel_form_bytes(options->form) };
    return GP_OK;
}

/* Allocate the buffers that one thread needs; none if the store writes directly to the batch. */
static gp_status reader_scratch_init(reader_scratch *scratch, const loader_reader *reader, gp_error *err)
{
    const gp_store_info *info = gp_store_get_info(reader->store);
    bool forms = reader->drawing.form != GP_PIXELS_PLANES;

    if (reader->draws || !(reader->augments || forms))
        return GP_OK;
    scratch->stored = gp_aligned_calloc(ALIGNMENT, READER_SAMPLES * info->sample_bytes);
    scratch->stored_targets = gp_aligned_calloc(ALIGNMENT, READER_SAMPLES * info->target_bytes);
    if (reader->augments && forms)
        scratch->drawn = gp_aligned_calloc(ALIGNMENT, reader->shape.sample_bytes);
    if (scratch->stored == NULL || scratch->stored_targets == NULL ||
        (reader->augments && forms && scratch->drawn == NULL))
        return gp_fail(err, GP_ENOMEM, "no memory for %d samples of %zu bytes", READER_SAMPLES,
                       info->sample_bytes + info->target_bytes);
    return GP_OK;
}

/* Augment sample i of the last read, convert its pixels, and write sample and targets to the
 * batch. */
static void sample_put(const loader_reader *reader, const reader_scratch *scratch, uint32_t epoch, uint32_t i,
                       uint8_t *sample, uint8_t *targets)
{
    const gp_store_info *info = gp_store_get_info(reader->store), *shape = &reader->shape;
    const uint8_t *stored = scratch->stored + i * info->sample_bytes,
                  *target = scratch->stored_targets + i * info->target_bytes;
    uint8_t *drawn = scratch->drawn == NULL ? sample : scratch->drawn;
    gp_augment_draw draw;

    if (reader->augments) {
        gp_augment_draw_sample(&draw, &reader->augment, info, shape, reader->drawing.seed, epoch,
                               scratch->index[i]);
        gp_augment_image(&draw, info, shape, reader->augment.fill, stored, drawn);
        stored = drawn;
    }
    if (reader->drawing.form != GP_PIXELS_PLANES)
        gp_pixels_form(sample, reader->drawing.form, stored, shape->channels,
                       (size_t)shape->height * shape->width, shape->scale, shape->offset);
    for (uint32_t t = 0; t < info->target_count; t++) {
        size_t bytes = gp_targets_bytes(&info->targets[t], 1);

        if (reader->augments && info->targets[t].shape.rank == 2)
            gp_augment_indices(&draw, info, shape, (const int32_t *)(const void *)target,
                               (int32_t *)(void *)targets);
        else
            memcpy(targets, target, bytes);
        target += bytes;
        targets += gp_targets_bytes(&shape->targets[t], 1);
    }
}

/* Return how many samples each image contributes to an epoch. */
static uint32_t patches_of(const loader_reader *reader)
{
    return reader->augments ? (uint32_t)reader->augment.patches_per_image : 1;
}

/* Read samples [at, at + count) of a batch into their positions in the batch. */
static gp_status reader_read(const loader_reader *reader, reader_scratch *scratch,
                             const gp_loader_batch *batch, uint32_t at, uint32_t count, gp_error *err)
{
    const uint32_t patches = patches_of(reader);
    uint8_t *samples = (uint8_t *)batch->samples + at * reader->drawing.sample_bytes,
            *targets = (uint8_t *)batch->targets + at * reader->shape.target_bytes;
    uint32_t images[READER_SAMPLES];
    gp_status status;

    gp_sampler_get(&reader->sampler, batch->epoch, batch->first + at, count, scratch->index);
    if (reader->draws)
        return gp_store_read_drawn(reader->store, &reader->drawing, batch->epoch, scratch->index, count,
                                   samples, targets, err);
    if (scratch->stored == NULL)
        return gp_store_read(reader->store, scratch->index, count, samples, targets, err);
    for (uint32_t i = 0; i < count; i++)
        images[i] = scratch->index[i] / patches;
    status = gp_store_read(reader->store, images, count, scratch->stored, scratch->stored_targets, err);
    for (uint32_t i = 0; i < count && status == GP_OK; i++)
        sample_put(reader, scratch, batch->epoch, i, samples + i * reader->drawing.sample_bytes,
                   targets + i * reader->shape.target_bytes);
    return status;
}

/* Announce samples to a store that reads over a network. */
static void reader_expect(const loader_reader *reader, uint32_t epoch, uint32_t first, uint32_t count)
{
    const uint32_t patches = patches_of(reader);
    uint32_t index[READER_SAMPLES];

    for (uint32_t done = 0; done < count;) {
        uint32_t part = count - done < READER_SAMPLES ? count - done : READER_SAMPLES;

        gp_sampler_get(&reader->sampler, epoch, first + done, part, index);
        for (uint32_t i = 0; i < part; i++)
            index[i] /= patches;
        gp_store_expect(reader->store, index, part);
        done += part;
    }
}

/* ---- slots ---- */

typedef enum slot_state { SLOT_FREE, SLOT_FILLING, SLOT_DROPPED, SLOT_READY, SLOT_TAKEN } slot_state;

typedef struct loader_slot {
    gp_loader_batch batch; /* first member: loader.c casts gp_loader_batch to loader_slot */
    slot_state state;
    uint32_t begun, done; /* samples assigned to threads; samples completed */
    uint32_t error_at;    /* position of the failed sample in the batch */
    gp_error error;       /* code GP_OK: no error */
} loader_slot;

typedef struct loader_thread {
    gp_loader *loader;
    pthread_t thread;
    reader_scratch scratch; /* used only by this thread */
} loader_thread;

typedef struct loader_request {
    uint32_t epoch, first, count;
} loader_request;

struct gp_loader {
    loader_reader reader;
    uint32_t depth_min, depth_max; /* limits for `depth` */
    uint32_t capacity;             /* largest batch, in samples */
    loader_slot *slots;            /* [depth_max] */
    uint8_t *memory;               /* memory for all batches */
    /* bytes per batch; bytes for its samples, which precede the targets */
    size_t slot_bytes, samples_bytes;
    loader_thread *threads;
    uint32_t thread_count, started;

    pthread_mutex_t lock; /* protects all fields below */
    pthread_cond_t work;  /* to threads: new request, free slot, or shutdown */
    pthread_cond_t ready; /* to the consumer: batch ready, or cancelled */
    bool stopping;
    uint32_t depth, used; /* slots allowed; slots in use */
    bool starved;         /* a thread was idle because no slot was free */
    uint32_t calm;        /* consecutive takes that did not wait */
    uint64_t generation;  /* incremented by each cancel */
    gp_ring request_ring, ready_ring, filling_ring;
    loader_request requests[GP_LOADER_REQUESTS_MAX];
    uint32_t ready_slots[GP_LOADER_DEPTH_MAX];   /* slot numbers */
    uint32_t filling_slots[GP_LOADER_DEPTH_MAX]; /* slot numbers */
};

static loader_slot *slot_find(gp_loader *loader, slot_state state)
{
    for (uint32_t i = 0; i < loader->depth_max; i++)
        if (loader->slots[i].state == state)
            return &loader->slots[i];
    return NULL;
}

/* Return a slot with unassigned samples; start the next request if necessary. NULL: no work. Call
 * with the lock held. */
static loader_slot *slot_work(gp_loader *loader)
{
    const gp_ring *filling = &loader->filling_ring;
    uint32_t newest = (filling->head + filling->count + GP_LOADER_DEPTH_MAX - 1) % GP_LOADER_DEPTH_MAX;
    loader_slot *slot = filling->count == 0 ? NULL : &loader->slots[loader->filling_slots[newest]];
    loader_request next;

    if (slot != NULL && slot->begun < slot->batch.count)
        return slot;
    if (loader->request_ring.count == 0)
        return NULL;
    slot = loader->used < loader->depth ? slot_find(loader, SLOT_FREE) : NULL;
    if (slot == NULL) {
        loader->starved = true;
        return NULL;
    }
    loader->used++;
    next = loader->requests[gp_ring_pop(&loader->request_ring)];
    loader->filling_slots[gp_ring_push(&loader->filling_ring)] = (uint32_t)(slot - loader->slots);
    slot->state = SLOT_FILLING;
    slot->begun = slot->done = 0;
    slot->error.code = GP_OK;
    slot->batch.epoch = next.epoch;
    slot->batch.first = next.first;
    slot->batch.count = next.count;
    return slot;
}

/* Mark a slot as free. Call with the lock held. */
static void slot_free(gp_loader *loader, loader_slot *slot)
{
    slot->state = SLOT_FREE;
    loader->used--;
}

/* Record that a thread completed a piece: samples [at, at + count) of a slot. Call with the lock
 * held. */
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
        slot->done += slot->batch.count - slot->begun; /* do not read the rest of the batch */
        slot->begun = slot->batch.count;
    }
    /* Move completed slots to the ready ring, oldest first. */
    while (loader->filling_ring.count > 0) {
        const uint32_t number = loader->filling_slots[loader->filling_ring.head];

        if (loader->slots[number].done < loader->slots[number].batch.count)
            return;
        gp_ring_pop(&loader->filling_ring);
        loader->slots[number].state = SLOT_READY;
        loader->ready_slots[gp_ring_push(&loader->ready_ring)] = number;
        pthread_cond_signal(&loader->ready);
    }
}

/* Thread function: take a piece of work, read it without the lock, repeat until shutdown. */
static void *loader_main(void *argument)
{
    loader_thread *thread = argument;
    gp_loader *loader = thread->loader;

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
        count = loader->thread_count == 1 ? READER_SAMPLES
                                          : batch->count / (loader->thread_count * PIECES_PER_THREAD);
        count = count < 1 ? 1 : count > READER_SAMPLES ? READER_SAMPLES : count;
        count = batch->count - at < count ? batch->count - at : count;
        slot->begun += count;
        /* More work remains: wake another thread. */
        if (loader->thread_count > 1 && (slot->begun < batch->count || loader->request_ring.count > 0))
            pthread_cond_signal(&loader->work);
        pthread_mutex_unlock(&loader->lock);
        error.code = reader_read(&loader->reader, &thread->scratch, batch, at, count, &error);
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

/* Allocate threads and slots: compute the batch size in bytes, and how many batches fit into the
 * memory limit. */
static gp_status slots_new(gp_loader *loader, const gp_loader_options *options, gp_error *err)
{
    gp_status status = GP_OK;

    loader->samples_bytes = aligned(loader->reader.drawing.sample_bytes * loader->capacity);
    loader->slot_bytes =
        loader->samples_bytes + aligned(loader->reader.shape.target_bytes * loader->capacity);
    const uint64_t fit = options->bytes_max / loader->slot_bytes;

    loader->depth = loader->depth_min = loader->depth_max = options->depth;
    if (options->depth_max > loader->depth_max)
        loader->depth_max = fit > options->depth_max ? options->depth_max
                            : fit > options->depth   ? (uint32_t)fit
                                                     : options->depth;
    loader->threads = gp_calloc(loader->thread_count, sizeof(*loader->threads));
    loader->slots = gp_calloc(loader->depth_max, sizeof(*loader->slots));
    if (loader->threads == NULL || loader->slots == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for a loader of depth %u", loader->depth_max);
    for (uint32_t i = 0; i < loader->thread_count && status == GP_OK; i++)
        status = reader_scratch_init(&loader->threads[i].scratch, &loader->reader, err);
    if (status != GP_OK)
        return status;
    /* Reserve address space only: a slot that is never used takes no memory. */
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

gp_status gp_loader_new(gp_loader **out, const gp_store *store, const gp_sampler *sampler,
                        const gp_loader_options *options, gp_error *err)
{
    gp_status status;
    gp_loader *loader;
    cpu_set_t cpus;

    if (options->depth < 1 || options->depth > GP_LOADER_DEPTH_MAX ||
        options->depth_max > GP_LOADER_DEPTH_MAX)
        return gp_fail(err, GP_EINVAL, "invalid loader depth %u (at most %u): must be between 1 and %d",
                       options->depth, options->depth_max, GP_LOADER_DEPTH_MAX);
    if (options->capacity < 1 || options->capacity > GP_LOADER_BATCH_MAX)
        return gp_fail(err, GP_EINVAL, "invalid loader batch size %u: must be between 1 and %d",
                       options->capacity, GP_LOADER_BATCH_MAX);
    loader = gp_calloc(1, sizeof(*loader));
    if (loader == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory for a loader");
    loader->request_ring.room = GP_LOADER_REQUESTS_MAX;
    loader->ready_ring.room = loader->filling_ring.room = GP_LOADER_DEPTH_MAX;
    loader->capacity = options->capacity;
    /* Copying needs one thread. Decoding uses all processors that the caller may run on. */
    loader->thread_count = options->threads != 0 ? options->threads : 1;
    if (options->threads == 0 && gp_store_get_info(store)->decodes &&
        sched_getaffinity(0, sizeof(cpus), &cpus) == 0)
        loader->thread_count = (uint32_t)CPU_COUNT(&cpus);
    if (loader->thread_count > GP_LOADER_THREADS_MAX)
        loader->thread_count = GP_LOADER_THREADS_MAX;
    pthread_mutex_init(&loader->lock, NULL);
    pthread_cond_init(&loader->work, NULL);
    pthread_cond_init(&loader->ready, NULL);
    status = reader_init(&loader->reader, store, sampler, options, err);
    if (status == GP_OK) {
        assert(sampler->count <= loader->reader.shape.count);
        status = slots_new(loader, options, err);
    }
    for (int code = 0; status == GP_OK && loader->started < loader->thread_count; loader->started++) {
        loader_thread *thread = &loader->threads[loader->started];

        thread->loader = loader;
        code = gp_thread_start(&thread->thread, "gp-loader", 0, loader_main, thread);
        if (code != 0) {
            status = gp_fail(err, GP_ELIMIT, "cannot start a loader thread: %s", strerror(code));
            break;
        }
    }
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

void *gp_loader_memory(const gp_loader *loader, size_t *bytes)
{
    *bytes = loader->slot_bytes * loader->depth_max;
    return loader->memory;
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
        gp_free(loader->threads[i].scratch.stored);
        gp_free(loader->threads[i].scratch.stored_targets);
        gp_free(loader->threads[i].scratch.drawn);
    }
    gp_free(loader->slots);
    gp_free(loader->threads);
    pthread_cond_destroy(&loader->ready);
    pthread_cond_destroy(&loader->work);
    pthread_mutex_destroy(&loader->lock);
    gp_free(loader);
}

gp_status gp_loader_request(gp_loader *loader, uint32_t epoch, uint32_t first, uint32_t count, gp_error *err)
{
    gp_status status = GP_OK;

    if (count > loader->capacity)
        return gp_fail(err, GP_EINVAL, "%u samples requested from a loader with batches of %u", count,
                       loader->capacity);
    if (first > loader->reader.sampler.count || count > loader->reader.sampler.count - first)
        return gp_fail(err, GP_EINVAL, "samples %u to %llu requested from an epoch of %u", first,
                       (unsigned long long)first + count, loader->reader.sampler.count);
    pthread_mutex_lock(&loader->lock);
    if (loader->request_ring.count == GP_LOADER_REQUESTS_MAX) {
        status = gp_fail(err, GP_EBUSY, "too many requested batches: at most %d are allowed",
                         GP_LOADER_REQUESTS_MAX);
    } else {
        loader->requests[gp_ring_push(&loader->request_ring)] = (loader_request){ epoch, first, count };
        pthread_cond_signal(&loader->work);
    }
    pthread_mutex_unlock(&loader->lock);
    /* Announce the samples now, so that a remote store can fetch them before a thread is free. */
    if (status == GP_OK && gp_store_get_info(loader->reader.store)->remote)
        reader_expect(&loader->reader, epoch, first, count);
    return status;
}

void gp_loader_cancel(gp_loader *loader)
{
    pthread_mutex_lock(&loader->lock);
    while (loader->ready_ring.count > 0)
        slot_free(loader, &loader->slots[loader->ready_slots[gp_ring_pop(&loader->ready_ring)]]);
    while (loader->filling_ring.count > 0) {
        loader_slot *slot = &loader->slots[loader->filling_slots[gp_ring_pop(&loader->filling_ring)]];

        if (slot->done == slot->begun)
            slot_free(loader, slot);
        else
            slot->state = SLOT_DROPPED;
    }
    loader->request_ring.count = 0;
    loader->generation++;
    pthread_cond_signal(&loader->ready);
    pthread_mutex_unlock(&loader->lock);
}

/* Wait until a batch is ready. Call with the lock held. GP_ECANCELED, GP_ESTATE: see
 * gp_loader_take(). */
static gp_status ready_wait(gp_loader *loader, gp_error *err)
{
    uint64_t generation = loader->generation;

    while (loader->ready_ring.count == 0) {
        if (loader->generation != generation)
            return gp_fail(err, GP_ECANCELED, "the requested batches were canceled");
        if (loader->filling_ring.count == 0 && loader->request_ring.count == 0)
            return gp_fail(err, GP_ESTATE, "no batch is requested from the loader");
        if (loader->filling_ring.count == 0 && loader->used >= loader->depth &&
            slot_find(loader, SLOT_DROPPED) == NULL)
            return gp_fail(err, GP_ESTATE, "all %u batches of the loader are in use; release one first",
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
    /* Adapt the queue depth. Grow if this call waits and threads were idle for lack of a slot.
     * Shrink after GP_LOADER_CALM takes without a wait. */
    if (loader->ready_ring.count == 0) {
        if (waited_ns != NULL)
            since = gp_now_ns();
        if (loader->starved && loader->depth < loader->depth_max) {
            loader->depth++;
            pthread_cond_signal(&loader->work);
        }
        loader->starved = false;
        loader->calm = 0;
    } else if (++loader->calm >= GP_LOADER_CALM) {
        loader->calm = 0;
        loader->depth -= loader->depth > loader->depth_min;
    }
    status = ready_wait(loader, err);
    if (status == GP_OK) {
        slot = &loader->slots[loader->ready_slots[gp_ring_pop(&loader->ready_ring)]];
        status = slot->error.code;
        if (status == GP_OK) {
            slot->state = SLOT_TAKEN;
            *out = &slot->batch;
        } else {
            slot_free(loader, slot);
            if (err != NULL)
                *err = slot->error;
        }
        pthread_cond_signal(&loader->work); /* a slot may have become free */
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
