/* Ring buffer positions (FIFO queue with fixed capacity). The owner stores the items in an array
 * and asks this module for array indexes. */
#ifndef GP_RING_H
#define GP_RING_H

#include <stdint.h>

/* Ring buffer state. The owner sets `room` and never pushes more items than that. */
typedef struct gp_ring {
    uint32_t head, count; /* index of the oldest item; number of items */
    uint32_t room;        /* capacity in items */
} gp_ring;

/* Add an item and return the array index where the caller must store it. */
static inline uint32_t gp_ring_push(gp_ring *ring)
{
    return (ring->head + ring->count++) % ring->room;
}

/* Remove the oldest item and return the array index, valid until the next push. */
static inline uint32_t gp_ring_pop(gp_ring *ring)
{
    uint32_t at = ring->head;

    ring->head = (at + 1) % ring->room;
    ring->count--;
    return at;
}

#endif
