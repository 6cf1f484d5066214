/* Prefetch queue: threads fetch numbered items over the network before they are needed, so that
 * compute threads do not wait.
 *
 *   FREE --want--> QUEUED --a thread--> FETCHING --> READY (bytes or an error) --take--> FREE
 *                    '-- take before a thread started: the caller fetches the item --> FREE
 *
 * Items are fetched in the order of the requests. Ready items wait for their consumer within a
 * memory limit. An item that stays ready for 30 seconds may be dropped to make room. */
#ifndef GP_PREFETCH_H
#define GP_PREFETCH_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/memory/buffer.h"

typedef struct gp_prefetch gp_prefetch;

/* Fetch the item with this number. Called from several threads at once. */
typedef gp_status (*gp_prefetch_fetch)(void *context, uint32_t number, gp_buffer *out, gp_error *err);

/* Create a queue. Its threads start with the first gp_prefetch_want().
 *   threads    1 to 64
 *   slots      items queued, in flight or ready at once, 1 to 65536
 *   item_max   largest item, in bytes
 *   bytes_max  limit for ready items, in bytes; fetches in flight may exceed it */
gp_status gp_prefetch_new(gp_prefetch **out, uint32_t threads, uint32_t slots, size_t item_max,
                          size_t bytes_max, gp_prefetch_fetch fetch, void *context, gp_error *err);

/* Wait for fetches in flight, then free the queue. NULL is accepted. */
void gp_prefetch_free(gp_prefetch *prefetch);

/* Request items; never blocks. An item already requested keeps its queue position. If all slots are
 * in use, the remaining items are not prefetched. */
void gp_prefetch_want(gp_prefetch *prefetch, const uint32_t *numbers, uint32_t count);

/* Take an item if it is ready, or wait if a fetch is in flight. The item is swapped with the memory
 * of *out. *there false: the item is not in the queue, and the caller must fetch it. Otherwise
 * return the status of the fetch. */
gp_status gp_prefetch_take(gp_prefetch *prefetch, uint32_t number, bool *there, gp_buffer *out,
                           gp_error *err);

#endif
