/* Prefetch queue: threads fetch numbered items over the network before they are needed, so that
 * compute threads do not wait.
 *
 *   FREE --want--> QUEUED --a thread--> FETCHING --> READY (bytes or an error) --take--> FREE
 *                    '-- take before a thread started: the caller fetches the item --> FREE
 *
 * Items are fetched in the order of the requests. Ready items wait for their consumer within a
 * memory limit. An item that stays ready for 30 seconds may be dropped to make room. */
#ifndef GP_AHEAD_H
#define GP_AHEAD_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/memory/buffer.h"

typedef struct gp_ahead gp_ahead;

/* Fetch the item with this number. Called from several threads at once. */
typedef gp_status (*gp_ahead_fetch)(void *context, uint32_t number, gp_buffer *out, gp_error *err);

/* Create a queue. Its threads start with the first gp_ahead_want().
 *   threads    1 to 64
 *   slots      items queued, in flight or ready at once, 1 to 65536
 *   item_max   largest item, in bytes
 *   bytes_max  limit for ready items, in bytes; fetches in flight may exceed it */
gp_status gp_ahead_new(gp_ahead **out, uint32_t threads, uint32_t slots, size_t item_max, size_t bytes_max,
                       gp_ahead_fetch fetch, void *context, gp_error *err);

/* Wait for fetches in flight, then free the queue. NULL is accepted. */
void gp_ahead_free(gp_ahead *ahead);

/* Request items; never blocks. An item already requested keeps its queue position. If all slots are
 * in use, the remaining items are not prefetched. */
void gp_ahead_want(gp_ahead *ahead, const uint32_t *numbers, uint32_t count);

/* Take an item if it is ready, or wait if a fetch is in flight. The item is swapped with the memory
 * of *out. *there false: the item is not in the queue, and the caller must fetch it. Otherwise
 * return the status of the fetch. */
gp_status gp_ahead_take(gp_ahead *ahead, uint32_t number, bool *there, gp_buffer *out, gp_error *err);

#endif
