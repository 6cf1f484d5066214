/* ahead.h -- things that will be wanted, fetched before they are: threads that wait for a network in the place of those that
 * compute.
 *
 *   FREE --want--> QUEUED --a thread--> FETCHING --> READY (bytes, or an error) --take--> FREE
 *                    `--take: whoever needs it now fetches it itself--> FREE
 *
 * The queue is in the order of the wants.  What is ready waits for its taker within a limit of bytes; what nobody has taken for
 * half a minute makes room for what is wanted now. */
#ifndef GP_AHEAD_H
#define GP_AHEAD_H

#include <stdbool.h>
#include <stdint.h>

#include "common/base/memory/buffer.h"

typedef struct gp_ahead gp_ahead; /* opaque */

/* Bring the thing of that number; any thread, several at a time. */
typedef gp_status (*gp_ahead_fetch)(void *context, uint32_t number, gp_buffer *out, gp_error *err);

/* gp_ahead_new -- threads are started by the first want.
 *   threads    1 to 64;  slots: things at a time, 1 to 65536;  item_max: the largest, in bytes
 *   bytes_max  of what is ready; a fetch that has begun may go over it */
gp_status gp_ahead_new(gp_ahead **out, uint32_t threads, uint32_t slots, size_t item_max, size_t bytes_max,
                       gp_ahead_fetch fetch, void *context, gp_error *err);

/* Waits for the fetches that have begun.  NULL is fine. */
void gp_ahead_free(gp_ahead *ahead);

/* gp_ahead_want -- never blocks.  What is wanted already stays where it is in the queue; what there is no room for is not
 * fetched ahead. */
void gp_ahead_want(gp_ahead *ahead, const uint32_t *numbers, uint32_t count);

/* gp_ahead_take -- the thing, if it is ready or about to be, which is waited for: *out's memory is exchanged for it.
 * *there false: fetch it yourself.  Else what the fetch returned. */
gp_status gp_ahead_take(gp_ahead *ahead, uint32_t number, bool *there, gp_buffer *out, gp_error *err);

#endif
