/* Internals of the image store, shared by image_open.c (opening), image_store.c (samples at the
 * store's size) and image_drawn.c (augmented windows). */
#ifndef GP_IMAGE_PARTS_H
#define GP_IMAGE_PARTS_H

#include <stdatomic.h>

#include "common/data/store/augment.h"
#include "common/data/source/image_reader.h"
#include "common/data/source/image_store.h"

/* Header of a cached image; the bytes follow. */
typedef struct gp_image_kept {
    /* image size; the store decides whether pixels are interleaved or planar */
    uint32_t width, height, channels;
    uint32_t format; /* file format, a gp_image_format */
    uint8_t bytes[];
} gp_image_kept;

/* Memory cache for decoded images, within a limit.
 *
 * An epoch reads every image once, so it does not matter which images are cached, and nothing is
 * ever evicted. Each image changes state once, from absent to FILLING to a place in the arena.
 * After that, any thread may read it without a lock. The cache does not affect the samples that
 * readers get.
 *
 * All functions except init and deinit are thread-safe. */
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

/* A JPEG is decoded at a reduced scale only if the result is at least this many times the requested
 * size. The DCT's reduction differs from our resampling filter. Photographs reduced by the DCT to
 * exactly the requested size differ by 2 grey levels on average (12 or more for one value in a
 * hundred). Reduced to twice the size and then resampled, they differ by less than 0.5 (and 3). */
enum { GP_IMAGE_SPARE = 2 };

/* A store over a list of images. */
typedef struct gp_image_store {
    gp_store store;
    gp_image_list list;
    gp_pixel_labels *labels; /* label images; NULL: one class per sample, in `list` */
    size_t label_bytes;      /* bytes of a sample's label image, one per pixel; 0: none */
    gp_store_options options;
    /* no size was requested, and each sample has one class: images are cached as decoded from their
     * files */
    bool native;
    gp_image_readers readers;

    /* Cached images. native: interleaved pixels at full size. Otherwise planar samples at the
     * store's size, followed by the label image. */
    gp_image_cache cache;
} gp_image_store;

extern const gp_store_ops gp_image_store_ops;

/* Return a cached image as if it had just been decoded. */
gp_pixels gp_image_kept_pixels(const gp_image_kept *kept);

/* Cache the decoded pixels of image `index`, and label_bytes bytes from `label`, if there is
 * room. */
void gp_image_keep(gp_image_store *images, uint32_t index, const gp_pixels *pixels, const uint8_t *label);

/* Check an image that is not to be resized against the size and channels of the store: opening
 * inspects only some images. GP_EINVAL: it has others. */
gp_status gp_image_size_check(const gp_image_store *images, const char *name, const gp_image_info *seen,
                              gp_error *err);

/* Return whether a failed image must be skipped. If so, log and count it, once per image. */
bool gp_image_skip(gp_image_store *images, const gp_image_reader *r, uint32_t index, const gp_error *why);

/* Implementations for gp_store_ops. */
bool gp_image_draws(const gp_store *store, const gp_augment *augment);
gp_status gp_image_read_drawn(const gp_store *store, const gp_drawing *drawing, uint32_t epoch,
                              const uint32_t *index, uint32_t count, void *samples, void *targets,
                              gp_error *err);

#endif
