/* image_cache.h -- decoded images that are kept, within a limit of memory.
 *
 * Every image is read once an epoch, so which ones are kept does not matter, and nothing is ever evicted: an image goes from
 * nowhere to FILLING to its place, once, and whoever sees its place may read it without a lock.  What a reader gets does
 * not depend on what is kept. */
#ifndef GP_IMAGE_CACHE_H
#define GP_IMAGE_CACHE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"

/* A place: this, then the bytes that were asked for. */
typedef struct gp_image_kept {
    uint32_t width, height, channels; /* pixels, interleaved or planar as the store says */
    uint32_t format;                  /* gp_image_format of the file */
    uint8_t bytes[];
} gp_image_kept;

typedef struct gp_image_cache {
    uint32_t count;
    _Atomic uint64_t
        *places; /* [count]: 0 nowhere, 1 being filled, else in the arena, behind the first byte */
    uint8_t *arena;
    size_t limit;
    _Atomic size_t used;
} gp_image_cache;

/* Of `count` images, at most `limit` bytes; memory is taken as it is written. */
gp_status gp_image_cache_init(gp_image_cache *cache, uint32_t count, size_t limit, gp_error *err);
void gp_image_cache_deinit(gp_image_cache *cache); /* accepts all zero */

/* The image, NULL: it is not kept. */
const gp_image_kept *gp_image_cache_get(const gp_image_cache *cache, uint32_t index);

/* Whether an image of so many bytes would be kept. */
bool gp_image_cache_has_room(const gp_image_cache *cache, size_t bytes);

/* A place to fill, NULL: there is no room, or another thread is at it.  Filled, it is everybody's with _end(). */
gp_image_kept *gp_image_cache_begin(gp_image_cache *cache, uint32_t index, size_t bytes);
void gp_image_cache_end(gp_image_cache *cache, uint32_t index, const gp_image_kept *place);

#endif
