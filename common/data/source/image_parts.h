/* Internals of the image store, shared by image_open.c (opening), image_store.c (samples at the
 * store's size) and image_drawn.c (augmented windows). */
#ifndef GP_IMAGE_PARTS_H
#define GP_IMAGE_PARTS_H

#include "common/data/store/augment.h"
#include "common/data/source/image_cache.h"
#include "common/data/source/image_reader.h"
#include "common/data/source/image_store.h"

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

/* Return whether a failed image must be skipped. If so, log and count it, once per image. */
bool gp_image_skip(gp_image_store *images, const gp_image_reader *r, uint32_t index, const gp_error *why);

/* Implementations for gp_store_ops. */
bool gp_image_draws(const gp_store *store, const gp_augment *augment);
gp_status gp_image_read_drawn(const gp_store *store, const gp_drawing *drawing, uint32_t epoch,
                              const uint32_t *index, uint32_t count, void *samples, void *targets,
                              gp_error *err);

#endif
