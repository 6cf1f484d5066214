/* image_parts.h -- the inside of the image store, for the files that make it up: image_open.c (what it holds),
 * image_store.c (samples at the store's size), image_drawn.c (windows that were drawn). */
#ifndef GP_IMAGE_PARTS_H
#define GP_IMAGE_PARTS_H

#include <stdatomic.h>

#include "common/data/store/augment.h"
#include "common/data/source/image_cache.h"
#include "common/data/source/image_reader.h"
#include "common/data/source/image_store.h"

/* A JPEG is decoded at a fraction only where so many times the sides wanted are left.  The cosine transform's way to make an
 * image smaller is another filter than ours: photographs that it brings to just the size wanted differ by 2 grey levels on
 * average (a hundredth of the values by 12 and more), to twice the size and then averaged by less than 0.5 (and 3). */
enum { GP_IMAGE_SPARE = 2 };

typedef struct gp_image_store {
    gp_store store;
    gp_image_list list;
    gp_pixel_labels *labels; /* NULL: a class for each sample, in the list */
    size_t label_bytes;      /* of a sample's label image, one byte a pixel; 0 without */
    gp_store_options options;
    bool
        native; /* nobody named a size, and a class for each: samples are the images as their files have them */
    gp_image_readers readers;
    /* Native: pixels as decoded, interleaved, at full size.  Else samples, planar.  Then the label image. */
    gp_image_cache cache;
    atomic_uchar *bad; /* one bit per image that could not be read */
    _Atomic uint64_t skipped;
    _Atomic uint32_t skipped_first[GP_SKIPPED_TOLD]; /* place + 1, 0: being written */
} gp_image_store;

extern const gp_store_ops gp_image_store_ops;

/* What is kept, as if it had just been decoded. */
gp_pixels gp_image_kept_pixels(const gp_image_kept *kept);

/* Keep what was decoded of image `index`, and label_bytes of its label image, if there is room. */
void gp_image_keep(gp_image_store *images, uint32_t index, const gp_pixels *pixels, const uint8_t *label);

/* Whether an image that failed is passed over instead: then it is counted, and told by name, once. */
bool gp_image_skip(gp_image_store *images, const gp_image_reader *r, uint32_t index, const gp_error *why);

/* Of gp_store_ops. */
bool gp_image_draws(const gp_store *store, const gp_augment *augment);
gp_status gp_image_read_drawn(const gp_store *store, const gp_drawing *drawing, uint32_t epoch,
                              const uint32_t *index, uint32_t count, void *samples, void *targets,
                              gp_error *err);

#endif
