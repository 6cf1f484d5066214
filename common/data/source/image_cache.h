/* Memory cache for decoded images, within a limit.
 *
 * An epoch reads every image once, so it does not matter which images are cached, and nothing is
 * ever evicted. Each image changes state once, from absent to FILLING to a place in the arena.
 * After that, any thread may read it without a lock. The cache does not affect the samples that
 * readers get. */
#ifndef GP_IMAGE_CACHE_H
#define GP_IMAGE_CACHE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/error.h"

/* Header of a cached image; the bytes follow. */
typedef struct gp_image_kept {
    /* image size; the store decides whether pixels are interleaved or planar */
    uint32_t width, height, channels;
    uint32_t format; /* file format, a gp_image_format */
    uint8_t bytes[];
} gp_image_kept;

/* The cache. All functions except init and deinit are thread-safe. */
typedef struct gp_image_cache {
    uint32_t count;
    _Atomic uint64_t *places; /* [count]: 0: absent, 1: being filled, else offset in the arena */
    uint8_t *arena;
    size_t limit;
    _Atomic size_t used;
} gp_image_cache;

/* Initialize a cache for `count` images and at most `limit` bytes. Memory is allocated only as it
 * is written. */
gp_status gp_image_cache_init(gp_image_cache *cache, uint32_t count, size_t limit, gp_error *err);
void gp_image_cache_deinit(gp_image_cache *cache); /* accepts an all-zero struct */

/* Return a cached image; NULL: absent. */
const gp_image_kept *gp_image_cache_get(const gp_image_cache *cache, uint32_t index);

/* Return whether an image of this size would be cached. */
bool gp_image_cache_has_room(const gp_image_cache *cache, size_t bytes);

/* Reserve room for an image, which the caller fills. NULL: no room, or another thread is filling
 * it. gp_image_cache_end() publishes the image to all threads. */
gp_image_kept *gp_image_cache_begin(gp_image_cache *cache, uint32_t index, size_t bytes);
void gp_image_cache_end(gp_image_cache *cache, uint32_t index, const gp_image_kept *place);

#endif
