/* ring.h -- a first-in, first-out queue of fixed size.  It has the positions; the items are in an array of the owner. */
#ifndef GP_RING_H
#define GP_RING_H

#include <stdint.h>

typedef struct gp_ring {
    uint32_t head, count; /* position of the oldest item; items now */
    uint32_t room;        /* length of the array; the owner pushes no more than that */
} gp_ring;

/* Add an item; return its position. */
static inline uint32_t gp_ring_push(gp_ring *ring)
{
    return (ring->head + ring->count++) % ring->room;
}

/* Remove the oldest item; return its position, which stays valid until the next push. */
static inline uint32_t gp_ring_pop(gp_ring *ring)
{
    uint32_t at = ring->head;

    ring->head = (at + 1) % ring->room;
    ring->count--;
    return at;
}

#endif
