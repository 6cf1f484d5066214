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

static int32_t *chain_of(gp_prefetch *ahead, uint32_t number)
{
    /* multiplicative hashing (Knuth, 6.4) */
    return &ahead->chains[number * 2654435761u % ahead->slot_count];
}

static prefetch_slot *slot_find(gp_prefetch *ahead, uint32_t number)
{
    for (int32_t at = *chain_of(ahead, number); at != NONE; at = ahead->slots[at].next)
        if (ahead->slots[at].number == number)
            return &ahead->slots[at];
    return NULL;
}

static void slot_release(gp_prefetch *ahead, prefetch_slot *slot)
{
    int32_t self = (int32_t)(slot - ahead->slots), *link = chain_of(ahead, slot->number);

    while (*link != self)
        link = &ahead->slots[*link].next;
    *link = slot->next;
    if (slot->state == PREFETCH_READY)
        ahead->ready_bytes -= slot->bytes.bytes;
    gp_buffer_deinit(&slot->bytes);
    slot->state = PREFETCH_FREE;
    slot->next = ahead->free;
    ahead->free = self;
    pthread_cond_signal(&ahead->work);
}

/* Free items that were ready for more than STALE_MS: their consumer has probably gone. */
static void stale_release(gp_prefetch *ahead)
{
    int64_t now = gp_now_ms();

    for (uint32_t i = 0; i < ahead->slot_count; i++)
        if (ahead->slots[i].state == PREFETCH_READY && now - ahead->slots[i].ready_ms > STALE_MS)
            slot_release(ahead, &ahead->slots[i]);
}

/* ---- threads ---- */

/* Return the next slot to fetch; NULL: the queue is empty, or the memory limit is reached. */
static prefetch_slot *queue_next(gp_prefetch *ahead)
{
    if (ahead->ready_bytes >= ahead->bytes_max)
        stale_release(ahead);
    while (ahead->queue_ring.count > 0 && ahead->ready_bytes < ahead->bytes_max) {
        prefetch_slot *slot = &ahead->slots[ahead->queue[gp_ring_pop(&ahead->queue_ring)]];

        if (slot->state == PREFETCH_QUEUED)
            return slot;
    }
    return NULL;
}

/* Thread function: fetch queued items without the lock until shutdown. */
static void *prefetch_main(void *argument)
{
    gp_prefetch *ahead = argument;

    pthread_mutex_lock(&ahead->lock);
    while (!ahead->stopping) {
        prefetch_slot *slot = queue_next(ahead);

        if (slot == NULL) {
            pthread_cond_wait(&ahead->work, &ahead->lock);
            continue;
        }
        slot->state = PREFETCH_FETCHING;
        pthread_mutex_unlock(&ahead->lock);
        slot->status = ahead->fetch(ahead->context, slot->number, &slot->bytes, &slot->error);
        pthread_mutex_lock(&ahead->lock);
        slot->state = PREFETCH_READY;
        slot->ready_ms = gp_now_ms();
        ahead->ready_bytes += slot->bytes.bytes;
        pthread_cond_broadcast(&ahead->ready);
    }
    pthread_mutex_unlock(&ahead->lock);
    return NULL;
}

/* ---- interface ---- */

gp_status gp_prefetch_new(gp_prefetch **out, uint32_t threads, uint32_t slots, size_t item_max,
                          size_t bytes_max, gp_prefetch_fetch fetch, void *context, gp_error *err)
{
    gp_prefetch *ahead = gp_calloc(1, sizeof(*ahead));

    assert(threads >= 1 && threads <= 64 && slots >= 1 && slots <= 65536);
    if (ahead == NULL)
        return gp_fail(err, GP_ENOMEM, "no memory to prefetch");
    ahead->thread_count = threads;
    ahead->slot_count = ahead->queue_ring.room = slots;
    ahead->item_max = item_max;
    ahead->bytes_max = bytes_max;
    ahead->fetch = fetch;
    ahead->context = context;
    pthread_mutex_init(&ahead->lock, NULL);
    pthread_cond_init(&ahead->work, NULL);
    pthread_cond_init(&ahead->ready, NULL);
    ahead->threads = gp_calloc(threads, sizeof(*ahead->threads));
    ahead->slots = gp_calloc(slots, sizeof(*ahead->slots));
    ahead->chains = gp_calloc(slots, sizeof(*ahead->chains));
    ahead->queue = gp_calloc(slots, sizeof(*ahead->queue));
    if (ahead->threads == NULL || ahead->slots == NULL || ahead->chains == NULL || ahead->queue == NULL) {
        gp_prefetch_free(ahead);
        return gp_fail(err, GP_ENOMEM, "no memory to prefetch %u objects", slots);
    }
    for (uint32_t i = 0; i < slots; i++) {
        ahead->chains[i] = NONE;
        ahead->slots[i].next = i + 1 < slots ? (int32_t)i + 1 : NONE;
    }
    *out = ahead;
    return GP_OK;
}

void gp_prefetch_free(gp_prefetch *ahead)
{
    if (ahead == NULL)
        return;
    pthread_mutex_lock(&ahead->lock);
    ahead->stopping = true;
    pthread_cond_broadcast(&ahead->work);
    pthread_mutex_unlock(&ahead->lock);
    for (uint32_t i = 0; i < ahead->started; i++)
        pthread_join(ahead->threads[i], NULL);
    for (uint32_t i = 0; ahead->slots != NULL && i < ahead->slot_count; i++)
        gp_buffer_deinit(&ahead->slots[i].bytes);
    pthread_mutex_destroy(&ahead->lock);
    pthread_cond_destroy(&ahead->work);
    pthread_cond_destroy(&ahead->ready);
    gp_free(ahead->threads);
    gp_free(ahead->slots);
    gp_free(ahead->chains);
    gp_free(ahead->queue);
    gp_free(ahead);
}

void gp_prefetch_want(gp_prefetch *ahead, const uint32_t *numbers, uint32_t count)
{
    pthread_mutex_lock(&ahead->lock);
    while (ahead->started < ahead->thread_count &&
           gp_thread_start(&ahead->threads[ahead->started], "gp-prefetch", STACK_BYTES, prefetch_main,
                           ahead) == 0)
        ahead->started++;
    /* If the system allows fewer threads than requested, do not try to start the others again. */
    ahead->thread_count = ahead->started;
    for (uint32_t i = 0; i < count && ahead->started > 0; i++) {
        int32_t self, *chain = chain_of(ahead, numbers[i]);
        prefetch_slot *slot;

        if (slot_find(ahead, numbers[i]) != NULL)
            continue;
        if (ahead->free == NONE)
            stale_release(ahead);
        self = ahead->free;
        if (self == NONE || ahead->queue_ring.count == ahead->slot_count)
            break;
        slot = &ahead->slots[self];
        ahead->free = slot->next;
        slot->state = PREFETCH_QUEUED;
        slot->number = numbers[i];
        slot->next = *chain;
        *chain = self;
        gp_buffer_init(&slot->bytes, ahead->item_max);
        ahead->queue[gp_ring_push(&ahead->queue_ring)] = self;
        pthread_cond_signal(&ahead->work);
    }
    pthread_mutex_unlock(&ahead->lock);
}

gp_status gp_prefetch_take(gp_prefetch *ahead, uint32_t number, bool *there, gp_buffer *out, gp_error *err)
{
    gp_status status = GP_OK;
    prefetch_slot *slot;

    pthread_mutex_lock(&ahead->lock);
    for (;;) {
        slot = slot_find(ahead, number);
        if (slot == NULL || slot->state != PREFETCH_FETCHING)
            break;
        pthread_cond_wait(&ahead->ready, &ahead->lock);
    }
    *there = slot != NULL && slot->state == PREFETCH_READY;
    if (*there) {
        status = slot->status;
        if (status == GP_OK) {
            gp_buffer had = *out;

            ahead->ready_bytes -= slot->bytes.bytes;
            *out = slot->bytes;
            out->bytes_max = had.bytes_max;
            slot->bytes = had;
            slot->bytes.bytes = 0;
        } else if (err != NULL) {
            *err = slot->error;
        }
    }
    if (slot != NULL)
        slot_release(ahead, slot);
    pthread_mutex_unlock(&ahead->lock);
    return status;
}
