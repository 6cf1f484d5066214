/* Prefetch queue: a hash table of slots, a FIFO of queued slots, and a pool of fetching threads.
 * See prefetch.h for the states of a slot. */
#include "common/data/s3/prefetch.h"

#include <assert.h>
#include <pthread.h>
#include <signal.h>

#include "common/base/memory/alloc.h"
#include "common/base/memory/ring.h"
#include "common/base/clock.h"
#include "common/base/system/process.h"

enum { STALE_MS = 30000, STACK_BYTES = 512 << 10, NONE = -1 };

typedef enum prefetch_state {
    PREFETCH_FREE,
    PREFETCH_QUEUED,
    PREFETCH_FETCHING,
    PREFETCH_READY
} prefetch_state;

typedef struct prefetch_slot {
    prefetch_state state;
    uint32_t number;
    int32_t next;     /* next slot with the same hash, or next free slot; NONE: last */
    int64_t ready_ms; /* when the fetch completed */
    gp_buffer bytes;
    gp_status status;
    gp_error error;
} prefetch_slot;

struct gp_prefetch {
    uint32_t thread_count, slot_count;
    size_t item_max, bytes_max;
    gp_prefetch_fetch fetch;
    void *context;
    pthread_t *threads;
    pthread_mutex_t lock; /* protects all fields below */
    pthread_cond_t work, ready;
    prefetch_slot *slots;
    int32_t *chains; /* [slot_count]: first slot per hash; NONE: empty */
    int32_t free;
    gp_ring queue_ring;
    int32_t *queue; /* slot numbers in FIFO order; slots no longer QUEUED are skipped */
    size_t ready_bytes;
    uint32_t started;
    bool stopping;
};

/* ---- hash table ---- */

static int32_t *chain_of(gp_prefetch *prefetch, uint32_t number)
{
    /* multiplicative hashing (Knuth, 6.4) */
    return &prefetch->chains[number * 2654435761u % prefetch->slot_count];
}

static prefetch_slot *slot_find(gp_prefetch *prefetch, uint32_t number)
{
    for (int32_t at = *chain_of(prefetch, number); at != NONE; at = prefetch->slots[at].next)
        if (prefetch->slots[at].number == number)
            return &prefetch->slots[at];
    return NULL;
}

static void slot_release(gp_prefetch *prefetch, prefetch_slot *slot)
{
    int32_t self = (int32_t)(slot - prefetch->slots), *link = chain_of(prefetch, slot->number);

    while (*link != self)
        link = &prefetch->slots[*link].next;
    *link = slot->next;
    if (slot->state == PREFETCH_READY)
        prefetch->ready_bytes -= slot->bytes.bytes;
    gp_buffer_deinit(&slot->bytes);
    slot->state = PREFETCH_FREE;
    slot->next = prefetch->free;
    prefetch->free = self;
    pthread_cond_signal(&prefetch->work);
}

/* Free items that were ready for more than STALE_MS: their consumer has probably gone. */
static void stale_release(gp_prefetch *prefetch)
{
    int64_t now = gp_now_ms();

    for (uint32_t i = 0; i < prefetch->slot_count; i++)
        if (prefetch->slots[i].state == PREFETCH_READY && now - prefetch->slots[i].ready_ms > STALE_MS)
            slot_release(prefetch, &prefetch->slots[i]);
}

/* ---- threads ---- */

/* Return the next slot to fetch; NULL: the queue is empty, or the memory limit is reached. */
static prefetch_slot *queue_next(gp_prefetch *prefetch)
{
    if (prefetch->ready_bytes >= prefetch->bytes_max)
        stale_release(prefetch);
    while (prefetch->queue_ring.count > 0 && prefetch->ready_bytes < prefetch->bytes_max) {
        prefetch_slot *slot = &prefetch->slots[prefetch->queue[gp_ring_pop(&prefetch->queue_ring)]];

        if (slot->state == PREFETCH_QUEUED)
            return slot;
    }
    return NULL;
}

/* Thread function: fetch queued items without the lock until shutdown. */
static void *prefetch_main(void *argument)
{
    gp_prefetch *prefetch = argument;

    pthread_mutex_lock(&prefetch->lock);
    while (!prefetch->stopping) {
        prefetch_slot *slot = queue_next(prefetch);

        if (slot == NULL) {
            pthread_cond_wait(&prefetch->work, &prefetch->lock);
            continue;
        }
        slot->state = PREFETCH_FETCHING;
        pthread_mutex_unlock(&prefetch->lock);
        slot->status = prefetch->fetch(prefetch->context, slot->number, &slot->bytes, &slot->error);
        pthread_mutex_lock(&prefetch->lock);
        slot->state = PREFETCH_READY;
        slot->ready_ms = gp_now_ms();
        prefetch->ready_bytes += slot->bytes.bytes;
        pthread_cond_broadcast(&prefetch->ready);
    }
    pthread_mutex_unlock(&prefetch->lock);
    return NULL;
}

/* ---- interface ---- */

gp_status gp_prefetch_new(gp_prefetch **out, uint32_t threads, uint32_t slots, size_t item_max,
                          size_t bytes_max, gp_prefetch_fetch fetch, void *context, gp_error *err)
{
    gp_prefetch *prefetch = gp_calloc(1, sizeof(*prefetch));

    assert(threads >= 1 && threads <= 64 && slots >= 1 && slots <= 65536);
    if (prefetch == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory to prefetch");
    prefetch->thread_count = threads;
    prefetch->slot_count = prefetch->queue_ring.room = slots;
    prefetch->item_max = item_max;
    prefetch->bytes_max = bytes_max;
    prefetch->fetch = fetch;
    prefetch->context = context;
    pthread_mutex_init(&prefetch->lock, NULL);
    pthread_cond_init(&prefetch->work, NULL);
    pthread_cond_init(&prefetch->ready, NULL);
    prefetch->threads = gp_calloc(threads, sizeof(*prefetch->threads));
    prefetch->slots = gp_calloc(slots, sizeof(*prefetch->slots));
    prefetch->chains = gp_calloc(slots, sizeof(*prefetch->chains));
    prefetch->queue = gp_calloc(slots, sizeof(*prefetch->queue));
    if (prefetch->threads == NULL || prefetch->slots == NULL || prefetch->chains == NULL ||
        prefetch->queue == NULL) {
        gp_prefetch_free(prefetch);
        return gp_fail(err, GP_ENOMEM, "no memory to prefetch %u objects", slots);
    }
    for (uint32_t i = 0; i < slots; i++) {
        prefetch->chains[i] = NONE;
        prefetch->slots[i].next = i + 1 < slots ? (int32_t)i + 1 : NONE;
    }
    *out = prefetch;
    return GP_OK;
}

void gp_prefetch_free(gp_prefetch *prefetch)
{
    if (prefetch == NULL)
        return;
    pthread_mutex_lock(&prefetch->lock);
    prefetch->stopping = true;
    pthread_cond_broadcast(&prefetch->work);
    pthread_mutex_unlock(&prefetch->lock);
    for (uint32_t i = 0; i < prefetch->started; i++)
        pthread_join(prefetch->threads[i], NULL);
    for (uint32_t i = 0; prefetch->slots != NULL && i < prefetch->slot_count; i++)
        gp_buffer_deinit(&prefetch->slots[i].bytes);
    pthread_mutex_destroy(&prefetch->lock);
    pthread_cond_destroy(&prefetch->work);
    pthread_cond_destroy(&prefetch->ready);
    gp_free(prefetch->threads);
    gp_free(prefetch->slots);
    gp_free(prefetch->chains);
    gp_free(prefetch->queue);
    gp_free(prefetch);
}

void gp_prefetch_want(gp_prefetch *prefetch, const uint32_t *numbers, uint32_t count)
{
    pthread_mutex_lock(&prefetch->lock);
    while (prefetch->started < prefetch->thread_count &&
           gp_thread_start(&prefetch->threads[prefetch->started], "gp-prefetch", STACK_BYTES, prefetch_main,
                           prefetch) == 0)
        prefetch->started++;
    /* If the system allows fewer threads than requested, do not try to start the others again. */
    prefetch->thread_count = prefetch->started;
    for (uint32_t i = 0; i < count && prefetch->started > 0; i++) {
        int32_t self, *chain = chain_of(prefetch, numbers[i]);
        prefetch_slot *slot;

        if (slot_find(prefetch, numbers[i]) != NULL)
            continue;
        if (prefetch->free == NONE)
            stale_release(prefetch);
        self = prefetch->free;
        if (self == NONE || prefetch->queue_ring.count == prefetch->slot_count)
            break;
        slot = &prefetch->slots[self];
        prefetch->free = slot->next;
        slot->state = PREFETCH_QUEUED;
        slot->number = numbers[i];
        slot->next = *chain;
        *chain = self;
        gp_buffer_init(&slot->bytes, prefetch->item_max);
        prefetch->queue[gp_ring_push(&prefetch->queue_ring)] = self;
        pthread_cond_signal(&prefetch->work);
    }
    pthread_mutex_unlock(&prefetch->lock);
}

gp_status gp_prefetch_take(gp_prefetch *prefetch, uint32_t number, bool *there, gp_buffer *out, gp_error *err)
{
    gp_status status = GP_OK;
    prefetch_slot *slot;

    pthread_mutex_lock(&prefetch->lock);
    for (;;) {
        slot = slot_find(prefetch, number);
        if (slot == NULL || slot->state != PREFETCH_FETCHING)
            break;
        pthread_cond_wait(&prefetch->ready, &prefetch->lock);
    }
    *there = slot != NULL && slot->state == PREFETCH_READY;
    if (*there) {
        status = slot->status;
        if (status == GP_OK) {
            gp_buffer had = *out;

            prefetch->ready_bytes -= slot->bytes.bytes;
            *out = slot->bytes;
            out->bytes_max = had.bytes_max;
            slot->bytes = had;
            slot->bytes.bytes = 0;
        } else if (err != NULL) {
            *err = slot->error;
        }
    }
    if (slot != NULL)
        slot_release(prefetch, slot);
    pthread_mutex_unlock(&prefetch->lock);
    return status;
}
